/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over blocks of keys, all of a loop at once. This text follows the prelude,
 * mma.cu and attention_params.h. attention.c writes entries that call the functions here.
 *
 * Forward, a thread block has a tile of queries and iterates over tiles of keys. For each
 * query it keeps the greatest score m, the sum l of exp(score - m), and the values weighted
 * likewise, as the loop does (lazy/layers/attention.c).
 *
 * The gradient has two kernels, so that nothing is added by atomics. One has a tile of
 * queries and computes dq; the other has a tile of keys and computes dk and dv (Dao,
 * "FlashAttention-2", 2023):
 *
 *             fixed: x, y       iterated: a, b    s = x a^T   dp = y b^T   p = exp(s - log_sum)
 *   dq        q, dout           k, v              ds = p (dp - less)       dq += ds a
 *   dk, dv    k, v              q, dout           (all transposed)         dk += ds a   dv += p b
 *
 * There are two ways. f32 uses chains of fma: a thread has some rows and columns of each
 * product, and operands are in shared memory. Halves use tensor cores: operands that were
 * converted from f16 or bf16 are halves in shared memory, and sums are in f32. Only p and
 * ds are rounded to halves.
 *
 * Widths are padded with 0 to D, a multiple of 32; so are rows behind the last. Results in
 * the padding are not written. All keys exist.
 */

DEV f32 least() { return f32_of(0xFF800000u); }
/* e to the power x. */
DEV f32 power(f32 x) { return exp2f(__fmul_rn(x, 1.44269504f)); }
DEV f32 greater(f32 x, f32 y) { return x > y || x != x ? x : y; }
DEV f32 from_lane(f32 v, u32 by)
{
    return f32_of(__shfl_sync(ALL_LANES, __float_as_uint(v), (threadIdx.x & 31) ^ by));
}

/* ---- positions and addresses ---- */

struct attention_place {
    i64 batch, first; /* first: of the tile's rows */
    i64 q, k, v, dout;
};

/* The place of tile `at`, of n_tiles per batch entry. The last tiles come first, because
 * they have most to do. */
DEV attention_place attention_at(const attention_params &a, i64 at, i64 n_tiles, i64 rows,
                                 bool last_first)
{
    attention_place x;
    x.batch = divide(at, n_tiles);
    const i64 tile = at - x.batch * n_tiles;
    x.first = (last_first ? n_tiles - 1 - tile : tile) * rows;
    x.q = x.k = x.v = x.dout = 0;
    i64 left = x.batch;
    for (i32 i = a.rank - 1; i >= 0; i--) {
        const i64 next = divide(left, (i64)a.extent[i]), j = left - next * a.extent[i];
        x.q += j * a.q.batch[i];
        x.k += j * a.k.batch[i];
        x.v += j * a.v.batch[i];
        x.dout += j * a.dout.batch[i];
        left = next;
    }
    return x;
}

/* The address of row `row` of a matrix whose batch entry begins at `from`. Keys are in
 * blocks. */
DEV const f32 *row_of(const attention_matrix &m, i64 from, i64 row)
{
    return (const f32 *)m.at + from + row * m.row;
}
DEV const f32 *key_of(const attention_matrix &m, i64 from, i64 key)
{
    const i64 block = divide(key, (i64)ATTENTION_BLOCK);
    return row_of(m, from, key - block * ATTENTION_BLOCK) + block * m.block;
}

/* The offset of a key in dk and dv. */
DEV i64 key_result(const attention_params &a, i64 batch, i64 key)
{
    const i64 block = divide(key, (i64)ATTENTION_BLOCK);
    return ((block * a.n_batch + batch) * ATTENTION_BLOCK + key - block * ATTENTION_BLOCK) *
           a.width;
}

DEV i64 smaller(i64 x, i64 y) { return x < y ? x : y; }

/* ---- tiles ---- */

union four {
    b16 all;
    f32 v[4];
};

template <int KIND> struct element { typedef u16 t; enum { GAP = 8 }; };
template <> struct element<IS_F32> { typedef f32 t; enum { GAP = 4 }; };

template <int KIND> DEV u32 pack(f32 x, f32 y)
{
    return KIND == IS_BF16 ? (u32)cast_f32_bf16(x) | (u32)cast_f32_bf16(y) << 16
                           : (u32)cast_f32_f16(x) | (u32)cast_f32_f16(y) << 16;
}

template <int KIND> DEV void put_four(f32 *to, const four &x) { *(b16 *)to = x.all; }
template <int KIND> DEV void put_four(u16 *to, const four &x)
{
    *(u64 *)to = (u64)pack<KIND>(x.v[2], x.v[3]) << 32 | pack<KIND>(x.v[0], x.v[1]);
}

/* Fills a tile: ROWS rows, of which n exist, multiplied by `by`. */
template <int KIND, int ROWS, int D>
DEV void load_tile(typename element<KIND>::t *to, const f32 *from, i64 stride, i64 n, i32 width,
                   f32 by)
{
    enum { NEAR = D / 4, ROW = D + element<KIND>::GAP };
    _Pragma("unroll 4") for (int i = 0; i < ROWS * NEAR / ATTENTION_THREADS; i++) {
        const i32 at = (i32)threadIdx.x + i * ATTENTION_THREADS, r = at / NEAR, c = at % NEAR * 4;
        four x;
        UNROLL for (int l = 0; l < 4; l++) x.v[l] = 0;
        if (r < n && c < width) x.all = *(const b16 *)(from + r * stride + c);
        if (by != 1) UNROLL for (int l = 0; l < 4; l++) x.v[l] = __fmul_rn(x.v[l], by);
        put_four<KIND>(to + r * ROW + c, x);
    }
}

/* ---- f32: products as chains of fma ---- */

/* A warp is 4 by 8 threads for 16 by 8. Thread (x, y) has rows y + 16 i. It has columns x +
 * 8 j of a product that is summed along the width, and columns x * 4 + 32 j and their
 * neighbours of a product that has the width. */
DEV i32 thread_x() { return (i32)threadIdx.x % 8; }
DEV i32 thread_y() { return (i32)threadIdx.x / 8; }

/* s = a b^T. a has rows of ROW elements. */
template <int TM, int TN, int D> DEV void dots(f32 s[TM][TN], const f32 *a, const f32 *b)
{
    enum { ROW = D + 4 };
    a += thread_y() * ROW;
    b += thread_x() * ROW;
    UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < TN; j++) s[i][j] = 0;
    _Pragma("unroll 4") for (int d = 0; d < D; d += 4) {
        four u[TM], v[TN];
        UNROLL for (int i = 0; i < TM; i++) u[i].all = *(const b16 *)(a + i * 16 * ROW + d);
        UNROLL for (int j = 0; j < TN; j++) v[j].all = *(const b16 *)(b + j * 8 * ROW + d);
        UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < TN; j++)
            UNROLL for (int l = 0; l < 4; l++) s[i][j] = __fmaf_rn(u[i].v[l], v[j].v[l], s[i][j]);
    }
}

/* o += p b. p has rows of N + 4 elements, and b has N rows. */
template <int TM, int N, int D> DEV void add_rows(f32 o[TM][D / 8], const f32 *p, const f32 *b)
{
    enum { ROW = D + 4, P = N + 4 };
    p += thread_y() * P;
    b += thread_x() * 4;
    _Pragma("unroll 2") for (int k = 0; k < N; k += 4) {
        four u[TM];
        UNROLL for (int i = 0; i < TM; i++) u[i].all = *(const b16 *)(p + i * 16 * P + k);
        UNROLL for (int l = 0; l < 4; l++) UNROLL for (int j = 0; j < D / 32; j++) {
            four v;
            v.all = *(const b16 *)(b + (k + l) * ROW + j * 32);
            UNROLL for (int i = 0; i < TM; i++) UNROLL for (int c = 0; c < 4; c++)
                o[i][j * 4 + c] = __fmaf_rn(u[i].v[l], v.v[c], o[i][j * 4 + c]);
        }
    }
}

template <int TM, int TN> DEV void put_scores(f32 *p, const f32 s[TM][TN])
{
    UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < TN; j++)
        p[(thread_y() + i * 16) * (TN * 8 + 4) + thread_x() + j * 8] = s[i][j];
}

template <int D> DEV void put_row(f32 *to, const f32 *o, i32 width)
{
    UNROLL for (int j = 0; j < D / 32; j++) {
        four v;
        UNROLL for (int c = 0; c < 4; c++) v.v[c] = o[j * 4 + c];
        const i32 at = thread_x() * 4 + j * 32;
        if (at < width) *(b16 *)(to + at) = v.all;
    }
}

template <int N> DEV void clear(f32 *v) { UNROLL for (int i = 0; i < N; i++) v[i] = 0; }

template <int D> DEV void attention_f32(const attention_params &a)
{
    enum { BQ = D <= 64 ? 64 : 32, BK = 32, TM = BQ / 16, TN = BK / 8, ROW = D + 4 };
    __shared__ __align__(16) f32 q[BQ * ROW], kv[BK * ROW], p[BQ * (BK + 4)];
    const i64 n_tiles = divide((i64)a.n_queries + (BQ - 1), (i64)BQ);
    for (i64 at = blockIdx.x; at < n_tiles * a.n_batch; at += gridDim.x) {
        const attention_place x = attention_at(a, at, n_tiles, BQ, true);
        const i64 left = a.n_queries - x.first;
        const i64 n_keys = a.is_causal ? smaller(a.n_keys, x.first + BQ) : a.n_keys;
        f32 o[TM][D / 8], m[TM], l[TM];
        UNROLL for (int i = 0; i < TM; i++) {
            clear<D / 8>(o[i]);
            m[i] = least();
            l[i] = 0;
        }
        load_tile<IS_F32, BQ, D>(q, row_of(a.q, x.q, x.first), a.q.row, left, a.width, 1);
        for (i64 key = 0; key < n_keys; key += BK) {
            f32 s[TM][TN];
            __syncthreads();
            load_tile<IS_F32, BK, D>(kv, key_of(a.k, x.k, key), a.k.row, BK, a.width, 1);
            __syncthreads();
            dots<TM, TN, D>(s, q, kv);
            UNROLL for (int i = 0; i < TM; i++) {
                const i64 query = x.first + thread_y() + i * 16;
                f32 most = m[i];
                UNROLL for (int j = 0; j < TN; j++) {
                    if (a.is_causal && key + thread_x() + j * 8 > query) s[i][j] = least();
                    most = greater(s[i][j], most);
                }
                UNROLL for (u32 by = 1; by < 8; by *= 2) most = greater(from_lane(most, by), most);
                const f32 down = power(m[i] - most);
                m[i] = most;
                l[i] *= down;
                UNROLL for (int j = 0; j < TN; j++) {
                    s[i][j] = power(s[i][j] - most);
                    l[i] += s[i][j];
                }
                UNROLL for (int j = 0; j < D / 8; j++) o[i][j] *= down;
            }
            put_scores<TM, TN>(p, s);
            __syncthreads();
            load_tile<IS_F32, BK, D>(kv, key_of(a.v, x.v, key), a.v.row, BK, a.width, 1);
            __syncthreads();
            add_rows<TM, BK, D>(o, p, kv);
        }
        UNROLL for (int i = 0; i < TM; i++) {
            const i32 row = thread_y() + i * 16;
            const i64 to = x.batch * a.n_queries + x.first + row;
            UNROLL for (u32 by = 1; by < 8; by *= 2) l[i] += from_lane(l[i], by);
            if (row >= left) continue;
            if (a.m && thread_x() == 0) ((f32 *)a.m)[to] = m[i];
            if (a.l && thread_x() == 0) ((f32 *)a.l)[to] = l[i];
            if (a.acc) put_row<D>((f32 *)a.acc + to * a.width, o[i], a.width);
        }
        __syncthreads();
    }
}

/* The range that a tile of rows iterates over. It is the queries that see its keys,
 * beginning with a tile's first, or the keys that its queries see. */
struct attention_range {
    i64 first, end;
};
template <bool BY_KEYS>
DEV attention_range range_of(const attention_params &a, i64 first, i64 rows, i64 step)
{
    attention_range r;
    r.first = BY_KEYS && a.is_causal ? divide(first, step) * step : 0;
    r.end = BY_KEYS ? (i64)a.n_queries
                    : a.is_causal ? smaller(a.n_keys, first + rows) : (i64)a.n_keys;
    return r;
}

/* Whether the query sees the key. The query need not exist. */
DEV bool sees(const attention_params &a, i64 query, i64 key)
{
    return query < a.n_queries && (!a.is_causal || key <= query);
}

template <int D, bool BY_KEYS> DEV void attention_grad_f32(const attention_params &a)
{
    enum { R = 32, C = D <= 64 ? 32 : 16, TM = R / 16, TN = C / 8, ROW = D + 4 };
    __shared__ __align__(16) f32 x[R * ROW], y[R * ROW], z[C * ROW], p[R * (C + 4)];
    const i64 n_rows = BY_KEYS ? a.n_keys : a.n_queries;
    const i64 n_tiles = divide(n_rows + (R - 1), (i64)R);
    const f32 *const log_sum = (const f32 *)a.log_sum, *const less = (const f32 *)a.less;
    for (i64 at = blockIdx.x; at < n_tiles * a.n_batch; at += gridDim.x) {
        const attention_place w = attention_at(a, at, n_tiles, R, !BY_KEYS);
        const i64 left = n_rows - w.first, column = w.batch * a.n_queries;
        const attention_range range = range_of<BY_KEYS>(a, w.first, R, C);
        f32 da[TM][D / 8], db[TM][D / 8];
        UNROLL for (int i = 0; i < TM; i++) {
            clear<D / 8>(da[i]);
            clear<D / 8>(db[i]);
        }
        if (BY_KEYS) {
            load_tile<IS_F32, R, D>(x, key_of(a.k, w.k, w.first), a.k.row, R, a.width, 1);
            load_tile<IS_F32, R, D>(y, key_of(a.v, w.v, w.first), a.v.row, R, a.width, 1);
        } else {
            load_tile<IS_F32, R, D>(x, row_of(a.q, w.q, w.first), a.q.row, left, a.width, 1);
            load_tile<IS_F32, R, D>(y, row_of(a.dout, w.dout, w.first), a.dout.row, left, a.width,
                                    1);
        }
        for (i64 c = range.first; c < range.end; c += C) {
            f32 s[TM][TN], ds[TM][TN];
            __syncthreads();
            if (BY_KEYS) {
                load_tile<IS_F32, C, D>(z, row_of(a.q, w.q, c), a.q.row, a.n_queries - c, a.width,
                                        1);
                __syncthreads();
                dots<TM, TN, D>(s, x, z);
                __syncthreads();
                load_tile<IS_F32, C, D>(z, row_of(a.dout, w.dout, c), a.dout.row, a.n_queries - c,
                                        a.width, 1);
                __syncthreads();
                dots<TM, TN, D>(ds, y, z);
            } else {
                load_tile<IS_F32, C, D>(z, key_of(a.v, w.v, c), a.v.row, C, a.width, 1);
                __syncthreads();
                dots<TM, TN, D>(ds, y, z);
                __syncthreads();
                load_tile<IS_F32, C, D>(z, key_of(a.k, w.k, c), a.k.row, C, a.width, 1);
                __syncthreads();
                dots<TM, TN, D>(s, x, z);
            }
            UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < TN; j++) {
                const i64 row = w.first + thread_y() + i * 16, col = c + thread_x() + j * 8;
                const i64 query = BY_KEYS ? col : row;
                const bool on = sees(a, query, BY_KEYS ? row : col);
                s[i][j] = on ? power(s[i][j] - log_sum[column + query]) : 0;
                ds[i][j] = on ? s[i][j] * (ds[i][j] - less[column + query]) : 0;
            }
            if (BY_KEYS) {
                put_scores<TM, TN>(p, s);
                __syncthreads();
                add_rows<TM, C, D>(db, p, z);
                __syncthreads();
                load_tile<IS_F32, C, D>(z, row_of(a.q, w.q, c), a.q.row, a.n_queries - c, a.width,
                                        1);
            }
            put_scores<TM, TN>(p, ds);
            __syncthreads();
            add_rows<TM, C, D>(da, p, z);
        }
        UNROLL for (int i = 0; i < TM; i++) {
            const i64 row = w.first + thread_y() + i * 16;
            if (row >= n_rows) continue;
            if (BY_KEYS) {
                const i64 to = key_result(a, w.batch, row);
                if (a.dk) put_row<D>((f32 *)a.dk + to, da[i], a.width);
                if (a.dv) put_row<D>((f32 *)a.dv + to, db[i], a.width);
            } else if (a.dq) {
                put_row<D>((f32 *)a.dq + (column + row) * a.width, da[i], a.width);
            }
        }
        __syncthreads();
    }
}

/* ---- halves: products by tensor cores ---- */

/* Reads rows 16 * warp of a tile, from column 16 * k on, as operand a. */
template <int D> DEV void take_a(u32 *a, const u16 *tile, int k)
{
    enum { ROW = D + 8 };
    const u16 *const at =
        tile + ((i32)threadIdx.x / 32 * 16 + lane_g()) * ROW + k * 16 + lane_t() * 2;
    a[0] = pair(at);
    a[1] = pair(at + 8 * ROW);
    a[2] = pair(at + 8);
    a[3] = pair(at + 8 * ROW + 8);
}

/* c += a tile^T. Column n of c stands for the 8 rows from n * 8 on. */
template <int KIND, int N, int D> DEV void multiply_rows(f32 c[N][4], const u32 *a, const u16 *tile,
                                                         int k)
{
    enum { ROW = D + 8 };
    UNROLL for (int n = 0; n < N; n++) {
        const u16 *const at = tile + (n * 8 + lane_g()) * ROW + k * 16 + lane_t() * 2;
        multiply<KIND>(c[n], a, pair(at), pair(at + 8));
    }
}

/* o += p tile. p is 16 rows of N * 8 scores, in the layout of a product's result. */
template <int KIND, int N, int D> DEV void multiply_scores(f32 o[D / 8][4], const f32 p[N][4],
                                                           const u16 *tile)
{
    enum { ROW = D + 8 };
    UNROLL for (int k = 0; k < N / 2; k++) {
        const u32 a[4] = { pack<KIND>(p[2 * k][0], p[2 * k][1]),
                           pack<KIND>(p[2 * k][2], p[2 * k][3]),
                           pack<KIND>(p[2 * k + 1][0], p[2 * k + 1][1]),
                           pack<KIND>(p[2 * k + 1][2], p[2 * k + 1][3]) };
        UNROLL for (int n = 0; n < D / 8; n++) {
            const u16 *const at = tile + (k * 16 + lane_t() * 2) * ROW + n * 8 + lane_g();
            multiply<KIND>(o[n], a, pair(at[0], at[ROW]), pair(at[8 * ROW], at[9 * ROW]));
        }
    }
}

template <int N> DEV void clear_tiles(f32 c[N][4])
{
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int i = 0; i < 4; i++) c[n][i] = 0;
}

/* Writes row g, or g + 8 where `high`, of 16 rows of results. */
template <int D> DEV void put_half_row(f32 *to, const f32 o[D / 8][4], int high, i32 width, f32 by)
{
    UNROLL for (int n = 0; n < D / 8; n++) {
        const i32 at = n * 8 + lane_t() * 2;
        union { u64 all; f32 v[2]; } u;
        u.v[0] = o[n][2 * high] * by;
        u.v[1] = o[n][2 * high + 1] * by;
        if (at < width) *(u64 *)(to + at) = u.all;
    }
}

template <int KIND, int D> DEV void attention_halves(const attention_params &a)
{
    enum { BQ = 64, BK = 64, N = BK / 8, ROW = D + 8 };
    __shared__ __align__(16) u16 k_tile[BK * ROW], v_tile[BK * ROW];
    const i64 n_tiles = divide((i64)a.n_queries + (BQ - 1), (i64)BQ);
    for (i64 at = blockIdx.x; at < n_tiles * a.n_batch; at += gridDim.x) {
        const attention_place x = attention_at(a, at, n_tiles, BQ, true);
        const i64 left = a.n_queries - x.first;
        const i64 n_keys = a.is_causal ? smaller(a.n_keys, x.first + BQ) : a.n_keys;
        const i32 row = (i32)threadIdx.x / 32 * 16 + lane_g();
        u32 q[D / 16][4];
        f32 o[D / 8][4], m[2], l[2];
        clear_tiles<D / 8>(o);
        m[0] = m[1] = least();
        l[0] = l[1] = 0;
        load_tile<KIND, BQ, D>(k_tile, row_of(a.q, x.q, x.first), a.q.row, left, a.width,
                               a.unscale);
        __syncthreads();
        UNROLL for (int k = 0; k < D / 16; k++) take_a<D>(q[k], k_tile, k);
        for (i64 key = 0; key < n_keys; key += BK) {
            f32 s[N][4];
            __syncthreads();
            load_tile<KIND, BK, D>(k_tile, key_of(a.k, x.k, key), a.k.row, BK, a.width, 1);
            load_tile<KIND, BK, D>(v_tile, key_of(a.v, x.v, key), a.v.row, BK, a.width, 1);
            __syncthreads();
            clear_tiles<N>(s);
            UNROLL for (int k = 0; k < D / 16; k++) multiply_rows<KIND, N, D>(s, q[k], k_tile, k);
            UNROLL for (int h = 0; h < 2; h++) {
                const i64 query = x.first + row + h * 8;
                f32 most = m[h];
                UNROLL for (int n = 0; n < N; n++) UNROLL for (int i = 2 * h; i < 2 * h + 2; i++) {
                    s[n][i] *= a.scale;
                    if (a.is_causal && key + n * 8 + lane_t() * 2 + i % 2 > query)
                        s[n][i] = least();
                    most = greater(s[n][i], most);
                }
                most = greater(from_lane(most, 1), most);
                most = greater(from_lane(most, 2), most);
                const f32 down = power(m[h] - most);
                m[h] = most;
                l[h] *= down;
                UNROLL for (int n = 0; n < N; n++) UNROLL for (int i = 2 * h; i < 2 * h + 2; i++) {
                    s[n][i] = power(s[n][i] - most);
                    l[h] += s[n][i];
                }
                UNROLL for (int n = 0; n < D / 8; n++) {
                    o[n][2 * h] *= down;
                    o[n][2 * h + 1] *= down;
                }
            }
            multiply_scores<KIND, N, D>(o, s, v_tile);
        }
        UNROLL for (int h = 0; h < 2; h++) {
            const i64 to = x.batch * a.n_queries + x.first + row + h * 8;
            l[h] += from_lane(l[h], 1);
            l[h] += from_lane(l[h], 2);
            if (row + h * 8 >= left) continue;
            if (a.m && lane_t() == 0) ((f32 *)a.m)[to] = m[h];
            if (a.l && lane_t() == 0) ((f32 *)a.l)[to] = l[h];
            if (a.acc) put_half_row<D>((f32 *)a.acc + to * a.width, o, h, a.width, 1);
        }
        __syncthreads();
    }
}

template <int KIND, int D, bool BY_KEYS> DEV void attention_grad_halves(const attention_params &a)
{
    enum { R = 64, C = D <= 96 ? 32 : 16, N = C / 8, ROW = D + 8 };
    __shared__ __align__(16) u16 x[R * ROW], y[R * ROW], za[C * ROW], zb[C * ROW];
    const i64 n_rows = BY_KEYS ? a.n_keys : a.n_queries;
    const i64 n_tiles = divide(n_rows + (R - 1), (i64)R);
    const f32 *const log_sum = (const f32 *)a.log_sum, *const less = (const f32 *)a.less;
    for (i64 at = blockIdx.x; at < n_tiles * a.n_batch; at += gridDim.x) {
        const attention_place w = attention_at(a, at, n_tiles, R, !BY_KEYS);
        const i64 left = n_rows - w.first, column = w.batch * a.n_queries;
        const i64 mine = w.first + (i32)threadIdx.x / 32 * 16 + lane_g();
        const attention_range range = range_of<BY_KEYS>(a, w.first, R, C);
        f32 da[D / 8][4], db[D / 8][4];
        clear_tiles<D / 8>(da);
        clear_tiles<D / 8>(db);
        if (BY_KEYS) {
            load_tile<KIND, R, D>(x, key_of(a.k, w.k, w.first), a.k.row, R, a.width, 1);
            load_tile<KIND, R, D>(y, key_of(a.v, w.v, w.first), a.v.row, R, a.width, 1);
        } else {
            load_tile<KIND, R, D>(x, row_of(a.q, w.q, w.first), a.q.row, left, a.width, a.unscale);
            load_tile<KIND, R, D>(y, row_of(a.dout, w.dout, w.first), a.dout.row, left, a.width, 1);
        }
        for (i64 c = range.first; c < range.end; c += C) {
            f32 s[N][4], ds[N][4];
            __syncthreads();
            if (BY_KEYS) {
                const i64 n = a.n_queries - c;
                load_tile<KIND, C, D>(za, row_of(a.q, w.q, c), a.q.row, n, a.width, a.unscale);
                load_tile<KIND, C, D>(zb, row_of(a.dout, w.dout, c), a.dout.row, n, a.width, 1);
            } else {
                load_tile<KIND, C, D>(za, key_of(a.k, w.k, c), a.k.row, C, a.width, 1);
                load_tile<KIND, C, D>(zb, key_of(a.v, w.v, c), a.v.row, C, a.width, 1);
            }
            __syncthreads();
            clear_tiles<N>(s);
            clear_tiles<N>(ds);
            _Pragma("unroll 2") for (int k = 0; k < D / 16; k++) {
                u32 u[4];
                take_a<D>(u, x, k);
                multiply_rows<KIND, N, D>(s, u, za, k);
                take_a<D>(u, y, k);
                multiply_rows<KIND, N, D>(ds, u, zb, k);
            }
            UNROLL for (int n = 0; n < N; n++) UNROLL for (int i = 0; i < 4; i++) {
                const i64 row = mine + i / 2 * 8, col = c + n * 8 + lane_t() * 2 + i % 2;
                const i64 query = BY_KEYS ? col : row;
                const bool on = sees(a, query, BY_KEYS ? row : col);
                s[n][i] = on ? power(s[n][i] * a.scale - log_sum[column + query]) : 0;
                ds[n][i] = on ? s[n][i] * (ds[n][i] - less[column + query]) : 0;
            }
            if (BY_KEYS) multiply_scores<KIND, N, D>(db, s, zb);
            multiply_scores<KIND, N, D>(da, ds, za);
        }
        UNROLL for (int h = 0; h < 2; h++) {
            const i64 row = mine + h * 8;
            if (row >= n_rows) continue;
            if (BY_KEYS) {
                const i64 to = key_result(a, w.batch, row);
                if (a.dk) put_half_row<D>((f32 *)a.dk + to, da, h, a.width, a.scale);
                if (a.dv) put_half_row<D>((f32 *)a.dv + to, db, h, a.width, 1);
            } else if (a.dq) {
                put_half_row<D>((f32 *)a.dq + (column + row) * a.width, da, h, a.width, 1);
            }
        }
        __syncthreads();
    }
}
