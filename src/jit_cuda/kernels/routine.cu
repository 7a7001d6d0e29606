/* SPDX-License-Identifier: Apache-2.0
 *
 * Routines. This text follows the prelude and routine_params.h, in a program that has some
 * of them. A kernel is a function with the name of its entry; routine.c decides which
 * entries a program has. All kernels stride over their work by the grid.
 *
 * What must hold: keys, the order of equal keys and the order of additions are those of
 * runtime/sort/sort.c, which.c and scatter.c. Only integers are added by atomics.
 */

DEV u64 quotient(u64 x, u64 y) { return (x | y) >> 32 ? x / y : (u32)x / (u32)y; }
DEV u64 first_of_grid() { return (u64)blockIdx.x * ROUTINE_THREADS + threadIdx.x; }
DEV u64 all_of_grid() { return (u64)gridDim.x * ROUTINE_THREADS; }

/* ---- keys ---- */

DEV u64 bits_at(u32 kind, const char *at)
{
    switch (kind & KIND_BYTES) {
    case 1: return *(const u8 *)at;
    case 2: return *(const u16 *)at;
    case 4: return *(const u32 *)at;
    }
    return *(const u64 *)at;
}

/* The sign bit of an element. */
DEV u64 top_of(u32 kind) { return 1ull << ((kind & KIND_BYTES) * 8 - 1); }

/* The bits of a float, whose sign is `top`, as an integer with the same order. All NaNs are
 * one key above infinity, and both zeros are one key. */
DEV u64 float_key(u64 b, u64 infinity, u64 top)
{
    const u64 all = top | (top - 1);
    if ((b & ~top) > infinity) return all;
    return b & top ? (b == top ? b : ~b & all) : b | top;
}

DEV u64 key_at(u32 kind, const char *at)
{
    const u64 b = bits_at(kind, at);
    const u64 top = top_of(kind);
    if (kind & KIND_FLOAT)
        return float_key(b, (top - 1) & ~((1ull << (kind >> KIND_FRACTION)) - 1), top);
    return kind & KIND_SIGNED ? b ^ top : b;
}

/* Whether an element is not 0. Both zeros are 0. */
DEV bool is_set(u32 kind, const char *at)
{
    const u64 b = bits_at(kind, at);
    return (kind & KIND_FLOAT ? b & (top_of(kind) - 1) : b) != 0;
}

/* The offset of a row's first element. */
template <typename P> DEV i64 row_at(const P &a, u64 row)
{
    i64 at = 0;
    for (u32 i = a.rank; i-- > 1;) {
        const u64 rest = quotient(row, (u64)a.extent[i]);
        at += (i64)(row - rest * (u64)a.extent[i]) * a.step[i];
        row = rest;
    }
    return a.rank > 0 ? at + (i64)row * a.step[0] : at;
}

/* ---- short rows: a bitonic sort in shared memory ---- */

/* Words differ because a word contains its index, except those that pad rows. With 64-bit
 * keys the index is beside the key. */
template <bool WIDE> DEV void put_in_order(u64 *key, u32 *at, u32 i, u32 j)
{
    const u64 x = key[i], y = key[j];
    if (x < y || (x == y && (!WIDE || at[i] <= at[j]))) return;
    key[i] = y;
    key[j] = x;
    if (!WIDE) return;
    const u32 t = at[i];
    at[i] = at[j];
    at[j] = t;
}

/* Merges neighbouring sorted runs into runs of `size`: compares with the second run
 * backwards, then in halves. */
template <bool WIDE> DEV void merge_runs(u64 *key, u32 *at, u32 tile, u32 size)
{
    for (u32 c = threadIdx.x; c < tile / 2; c += ROUTINE_THREADS) {
        const u32 o = c & (size / 2 - 1), run = (c - o) * 2;
        put_in_order<WIDE>(key, at, run + o, run + size - 1 - o);
    }
    __syncthreads();
    for (u32 by = size / 4; by > 0; by /= 2) {
        for (u32 c = threadIdx.x; c < tile / 2; c += ROUTINE_THREADS) {
            const u32 o = c & (by - 1), i = (c - o) * 2 + o;
            put_in_order<WIDE>(key, at, i, i + by);
        }
        __syncthreads();
    }
}

DEV void copy_element(u32 size, u64 out, u64 i, const char *from)
{
    switch (size) {
    case 1: ((unsigned char *)out)[i] = *(const unsigned char *)from; break;
    case 2: ((unsigned short *)out)[i] = *(const unsigned short *)from; break;
    case 4: ((u32 *)out)[i] = *(const u32 *)from; break;
    case 8: ((u64 *)out)[i] = *(const u64 *)from; break;
    }
}

/* Writes element number i of the result: the index `at`, or the element at this index of a row that
 * begins at element `row` of the operand. */
template <typename PARAMS> DEV void put_sorted(const PARAMS &a, u64 out, u64 i, i64 row, u32 at)
{
    if (!a.values) {
        ((i64 *)out)[i] = (i64)at;
        return;
    }
    copy_element(a.size, out, i, (const char *)a.in + (row + at * a.in_step) * a.size);
}

template <bool WIDE> DEV void sort_tiles(const rows_params &a)
{
    __shared__ u64 key[ROUTINE_TILE];
    __shared__ u32 at[WIDE ? ROUTINE_TILE : 1];
    const u32 each = a.tile / a.width;
    const u64 flip = WIDE ? (u64)a.flip << 32 | a.flip : a.flip;
    for (u64 first = (u64)blockIdx.x * each; first < (u64)a.n_rows;
         first += (u64)gridDim.x * each) {
        for (u32 s = threadIdx.x; s < a.tile; s += ROUTINE_THREADS) {
            const u32 i = s & (a.width - 1);
            const u64 row = first + s / a.width;
            const bool on = row < (u64)a.n_rows && i < a.n;
            u64 k = ~0ull;
            if (on) {
                const i64 from = row_at(a, row) + i * a.in_step;
                k = key_at(a.kind, (const char *)a.in + from * a.size) ^ flip;
                if (!WIDE) k = k << 32 | i;
            }
            key[s] = k;
            if (WIDE) at[s] = on ? i : ~0u;
        }
        __syncthreads();
        for (u32 size = 2; size <= a.width; size *= 2) merge_runs<WIDE>(key, at, a.tile, size);
        for (u32 s = threadIdx.x; s < a.tile; s += ROUTINE_THREADS) {
            const i64 i = (i64)(s & (a.width - 1)) - a.first;
            const u64 row = first + s / a.width;
            if (row < (u64)a.n_rows && i >= 0 && i < a.m)
                put_sorted(a, a.out, row * (u64)a.m + (u64)i, row_at(a, row),
                           WIDE ? at[s] : (u32)key[s]);
        }
        __syncthreads();
    }
}

DEV void sort_rows(const rows_params &a) { sort_tiles<false>(a); }
DEV void sort_rows_64(const rows_params &a) { sort_tiles<true>(a); }

/* ---- long rows: a stable radix sort from the least digit, 8 bits in a pass ---- */

struct piece {
    u64 row, number; /* number: among the pieces of the row */
    i64 begin, end;
    const char *in;
    const u64 *from;
};

DEV piece piece_of(const sort_params &a, u64 which)
{
    piece p;
    p.row = quotient(which, (u64)a.n_pieces);
    p.number = which - p.row * (u64)a.n_pieces;
    p.begin = (i64)p.number * a.piece;
    p.end = p.begin + a.piece < a.n ? p.begin + a.piece : a.n;
    p.in = (const char *)a.in;
    if (a.source != FROM_WORDS) p.in += row_at(a, p.row) * a.size;
    p.from = (const u64 *)a.from + p.row * (u64)a.n;
    return p;
}

DEV u64 word_at(const sort_params &a, const piece &p, i64 i)
{
    if (a.source == FROM_WORDS) return p.from[i];
    const u32 at = a.source == FROM_UPPER ? (u32)p.from[i] : (u32)i;
    const u64 key = key_at(a.kind, p.in + (i64)at * a.in_step * a.size);
    return (u64)((u32)(a.source == FROM_UPPER ? key >> 32 : key) ^ a.flip) << 32 | at;
}

DEV u32 digit_of(const sort_params &a, u64 word) { return (u32)(word >> a.shift) & 255; }

DEV void sort_count(const sort_params &a)
{
    __shared__ u32 count[ROUTINE_THREADS / 32][256];
    const u32 t = threadIdx.x;
    for (u64 b = blockIdx.x; b < (u64)(a.n_rows * a.n_pieces); b += gridDim.x) {
        const piece p = piece_of(a, b);
        for (u32 w = 0; w < ROUTINE_THREADS / 32; w++) count[w][t] = 0;
        __syncthreads();
        for (i64 i = p.begin + t; i < p.end; i += ROUTINE_THREADS)
            atomicAdd(&count[t / 32][digit_of(a, word_at(a, p, i))], 1u);
        __syncthreads();
        u32 sum = 0;
        for (u32 w = 0; w < ROUTINE_THREADS / 32; w++) sum += count[w][t];
        ((u32 *)a.counts)[(p.row * 256 + t) * (u64)a.n_pieces + p.number] = sum;
        __syncthreads();
    }
}

/* Sums over the lanes up to and including this one. */
DEV u32 scan_lanes(u32 v)
{
    const u32 lane = threadIdx.x & 31;
    for (u32 by = 1; by < 32; by *= 2) {
        const u32 other = __shfl_up_sync(ALL_LANES, v, by);
        if (lane >= by) v += other;
    }
    return v;
}

/* Turns the counts of a row and digit into the number of elements before them. A warp for
 * each. */
DEV void sort_scan(const sort_params &a)
{
    const u32 lane = threadIdx.x & 31;
    for (u64 w = first_of_grid() / 32; w < (u64)a.n_rows * 256; w += all_of_grid() / 32) {
        u32 *const count = (u32 *)a.counts + w * (u64)a.n_pieces;
        u32 before = 0;
        for (i64 at = 0; at < a.n_pieces; at += 32) {
            const bool on = at + lane < a.n_pieces;
            const u32 v = on ? count[at + lane] : 0, sum = scan_lanes(v);
            if (on) count[at + lane] = before + sum - v;
            before += __shfl_sync(ALL_LANES, sum, 31);
        }
        if (lane == 0) ((u32 *)a.totals)[w] = before;
    }
}

/* Sums over the block's threads before this one. sums: one word per warp. */
DEV u32 sum_before(u32 v, u32 *sums)
{
    const u32 sum = scan_lanes(v), warp = threadIdx.x / 32;
    u32 before = sum - v;
    if ((threadIdx.x & 31) == 31) sums[warp] = sum;
    __syncthreads();
    for (u32 w = 0; w < warp; w++) before += sums[w];
    return before;
}

/* The lanes that are on and have the same digit. */
DEV u32 lanes_alike(u32 digit, bool on)
{
    u32 same = __ballot_sync(ALL_LANES, on);
    _Pragma("unroll") for (u32 bit = 0; bit < 8; bit++) {
        const u32 set = __ballot_sync(ALL_LANES, digit >> bit & 1);
        same &= digit >> bit & 1 ? set : ~set;
    }
    return same;
}

/* Moves words, a tile at a time. Each warp ranks its 256 words among those of their digit,
 * 32 by 32. Thread d then sums digit d over the warps. The words are sorted in shared
 * memory first, so that neighbours are written to neighbouring addresses. */
DEV void sort_move(const sort_params &a)
{
    enum { EACH_LANE = ROUTINE_TILE / ROUTINE_THREADS, WARPS = ROUTINE_THREADS / 32 };
    __shared__ u64 sorted[ROUTINE_TILE];
    __shared__ u32 begin[WARPS][256], shift[256], sums[WARPS];
    const u32 t = threadIdx.x, warp = t / 32, lane = t & 31;
    for (u64 b = blockIdx.x; b < (u64)(a.n_rows * a.n_pieces); b += gridDim.x) {
        const piece p = piece_of(a, b);
        const u64 mine = p.row * 256 + t;
        const u32 most = (u32)(a.to_index ? a.m : a.n), from = (u32)(a.to_index ? a.first : 0);
        const u64 row = p.row * (u64)most;
        u32 next = sum_before(((const u32 *)a.totals)[mine], sums);
        next += ((const u32 *)a.counts)[mine * (u64)a.n_pieces + p.number];
        for (i64 tile = p.begin; tile < p.end; tile += ROUTINE_TILE) {
            const u32 n = p.end - tile < ROUTINE_TILE ? (u32)(p.end - tile) : ROUTINE_TILE;
            const u32 first = warp * EACH_LANE * 32 + lane;
            u64 word[EACH_LANE];
            u32 rank[EACH_LANE];
            for (u32 w = 0; w < WARPS; w++) begin[w][t] = 0;
            __syncthreads();
            _Pragma("unroll") for (u32 k = 0; k < EACH_LANE; k++)
                word[k] = first + k * 32 < n ? word_at(a, p, tile + first + k * 32) : 0;
            _Pragma("unroll") for (u32 k = 0; k < EACH_LANE; k++) {
                const bool on = first + k * 32 < n;
                const u32 digit = digit_of(a, word[k]), alike = lanes_alike(digit, on);
                const u32 below = (u32)__popc(alike & ((1u << lane) - 1));
                rank[k] = begin[warp][digit] + below;
                __syncwarp();
                if (on && below == 0) begin[warp][digit] += (u32)__popc(alike);
                __syncwarp();
            }
            __syncthreads();
            u32 here = 0;
            for (u32 w = 0; w < WARPS; w++) here += begin[w][t];
            u32 at = sum_before(here, sums);
            /* from the position in the tile to that in the row, modulo 2^32 */
            shift[t] = next - at;
            next += here;
            for (u32 w = 0; w < WARPS; w++) {
                const u32 of_warp = begin[w][t];
                begin[w][t] = at;
                at += of_warp;
            }
            __syncthreads();
            _Pragma("unroll") for (u32 k = 0; k < EACH_LANE; k++)
                if (first + k * 32 < n)
                    sorted[begin[warp][digit_of(a, word[k])] + rank[k]] = word[k];
            __syncthreads();
            for (u32 s = t; s < n; s += ROUTINE_THREADS) {
                const u64 v = sorted[s];
                const u32 place = s + shift[digit_of(a, v)] - from; /* modulo 2^32 */
                if (place >= most) continue;
                if (a.to_index)
                    put_sorted(a, a.to, row + place, row_at(a, p.row), (u32)v);
                else
                    ((u64 *)a.to)[row + place] = v;
            }
        }
        __syncthreads();
    }
}

/* ---- which, compress ---- */

/* Sums over the block, returned to all of its threads. */
DEV u64 sum_of_block(u64 v)
{
    __shared__ u64 sums[ROUTINE_THREADS / 32];
    for (u32 by = 16; by > 0; by /= 2) v += shuffle_down(v, by);
    if ((threadIdx.x & 31) == 0) sums[threadIdx.x / 32] = v;
    __syncthreads();
    u64 sum = 0;
    for (u32 w = 0; w < ROUTINE_THREADS / 32; w++) sum += sums[w];
    __syncthreads();
    return sum;
}

DEV bool is_set_at(const which_params &a, i64 i)
{
    return is_set(a.kind, (const char *)a.in + i * a.in_step * a.size);
}

DEV void which_count(const which_params &a)
{
    for (u64 b = blockIdx.x; b < (u64)a.n_pieces; b += gridDim.x) {
        const i64 begin = (i64)b * a.piece, stop = begin + a.piece, end = stop < a.n ? stop : a.n;
        u64 n = 0;
        for (i64 i = begin + threadIdx.x; i < end; i += ROUTINE_THREADS) n += is_set_at(a, i);
        n = sum_of_block(n);
        if (threadIdx.x == 0) ((u64 *)a.counts)[b] = n;
    }
}

/* Writes row number i of the result: position `at`, or the value there. */
DEV void put_row(const which_params &a, i64 i, i64 at)
{
    if (a.values)
        copy_element(a.value_size, a.out, (u64)i,
                     (const char *)a.values + at * a.value_step * a.value_size);
    else
        ((i64 *)a.out)[i] = at;
}

/* Writes the rows of [begin, end) to out, behind the `done` rows before them. */
DEV void write_rows(const which_params &a, i64 begin, i64 end, i64 done)
{
    enum { EACH_LANE = ROUTINE_TILE / ROUTINE_THREADS, WARPS = ROUTINE_THREADS / 32 };
    __shared__ u32 sums[WARPS];
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    for (i64 tile = begin; tile < end && done < a.m; tile += ROUTINE_TILE) {
        const i64 at = tile + warp * EACH_LANE * 32 + lane;
        u32 set[EACH_LANE], sum = 0;
        _Pragma("unroll") for (u32 k = 0; k < EACH_LANE; k++) {
            const i64 i = at + k * 32;
            set[k] = __ballot_sync(ALL_LANES, i < end && is_set_at(a, i));
            sum += (u32)__popc(set[k]);
        }
        if (lane == 0) sums[warp] = sum;
        __syncthreads();
        i64 to = done;
        for (u32 w = 0; w < WARPS; w++) {
            if (w < warp) to += sums[w];
            done += sums[w];
        }
        _Pragma("unroll") for (u32 k = 0; k < EACH_LANE; k++) {
            const i64 here = to + __popc(set[k] & ((1u << lane) - 1));
            if ((set[k] >> lane & 1) && here < a.m) put_row(a, here, at + k * 32);
            to += __popc(set[k]);
        }
        __syncthreads();
    }
}

DEV void which_write(const which_params &a)
{
    const u64 *const count = (const u64 *)a.counts;
    u64 n = 0;
    for (u64 k = threadIdx.x; k < (u64)a.n_pieces; k += ROUTINE_THREADS) n += count[k];
    const i64 all = (i64)sum_of_block(n);
    for (u64 b = blockIdx.x; b < (u64)a.n_pieces; b += gridDim.x) {
        const i64 begin = (i64)b * a.piece, stop = begin + a.piece;
        n = 0;
        for (u64 k = threadIdx.x; k < b; k += ROUTINE_THREADS) n += count[k];
        write_rows(a, begin, stop < a.n ? stop : a.n, (i64)sum_of_block(n));
    }
    for (i64 i = all + (i64)first_of_grid(); i < a.m; i += (i64)all_of_grid())
        copy_element(a.value_size, a.out, (u64)i, (const char *)&a.rest);
}

/* ---- scatter ---- */

struct place {
    i64 out, index, value;
    u64 slot; /* position along kept axes */
};

/* Adds position number `at` along axes [first, first + n), row-major, to p. Only kept axes
 * count for the slot. */
DEV void go_to(const scatter_params &a, u32 first, u32 n, u64 at, place &p)
{
    u64 kept = 1;
    for (u32 i = first + n; i-- > first;) {
        u64 rest = 0, here = at;
        if (i > first) {
            rest = quotient(at, (u64)a.extent[i]);
            here = at - rest * (u64)a.extent[i];
        }
        p.out += (i64)here * a.out_step[i];
        p.index += (i64)here * a.index_step[i];
        p.value += (i64)here * a.value_step[i];
        if (a.out_step[i] != 0) {
            p.slot += here * kept;
            kept *= (u64)a.extent[i];
        }
        at = rest;
    }
}

DEV place place_at(const scatter_params &a, u64 at)
{
    place p = { 0, 0, 0, 0 };
    go_to(a, 0, a.rank, at, p);
    return p;
}

/* The index at an offset in elements, as i64. */
DEV i64 index_at(const scatter_params &a, i64 at)
{
    const u32 bytes = a.index_kind & KIND_BYTES;
    const u64 b = bits_at(a.index_kind, (const char *)a.index + at * (i64)bytes);
    const u32 above = 64 - 8 * bytes; /* bits of an i64 that the index does not have */
    return a.index_kind & KIND_SIGNED ? (i64)(b << above) >> above : (i64)b;
}

DEV bool resolve(i64 &index, i64 n)
{
    index += index < 0 ? n : 0;
    return (u64)index < (u64)n;
}

DEV void scatter_begin(const scatter_params &a)
{
    if (threadIdx.x == 0) *(u64 *)a.first_bad = ~0ull;
}

/* Keeps the first bad index. */
DEV void note_bad(const scatter_params &a, u64 at)
{
    atomicMin((u64 *)a.first_bad, at);
}

DEV void scatter_check(const scatter_params &a)
{
    for (u64 i = first_of_grid(); i < (u64)a.n_first; i += all_of_grid()) {
        i64 at = index_at(a, place_at(a, i).index);
        if (!resolve(at, a.n)) note_bad(a, i);
    }
}

DEV void scatter_tell(const scatter_params &a)
{
    const u64 bad = *(const u64 *)a.first_bad;
    u64 *const fault = (u64 *)a.fault;
    if (threadIdx.x != 0 || bad == ~0ull) return;
    if (atomicCAS(fault, 0ull, (u64)a.id + 1) != 0) return;
    i64 at = index_at(a, place_at(a, bad).index);
    resolve(at, a.n);
    fault[1] = (u64)at;
    fault[2] = (u64)a.n;
}

/* ---- scatter: in any order ---- */

template <typename T> DEV void scatter_atomic(const scatter_params &a)
{
    for (u64 i = first_of_grid(); i < (u64)a.n_first; i += all_of_grid()) {
        const place p = place_at(a, i);
        i64 at = index_at(a, p.index);
        if (resolve(at, a.n))
            atomicAdd((T *)a.out + p.out + at * a.step, ((const T *)a.value)[p.value]);
    }
}
DEV void scatter_atomic_u32(const scatter_params &a) { scatter_atomic<u32>(a); }
DEV void scatter_atomic_u64(const scatter_params &a) { scatter_atomic<u64>(a); }

/* ---- scatter: in the order of the CPU ---- */

DEV u8 plus(u8 x, u8 y) { return add_u8(x, y); }
DEV u16 plus(u16 x, u16 y) { return add_u16(x, y); }
DEV u32 plus(u32 x, u32 y) { return add_u32(x, y); }
DEV u64 plus(u64 x, u64 y) { return add_u64(x, y); }
DEV f32 plus(f32 x, f32 y) { return add_f32(x, y); }
DEV f64 plus(f64 x, f64 y) { return add_f64(x, y); }

DEV u8 times(u8 x, u8 y) { return mul_u8(x, y); }
DEV u16 times(u16 x, u16 y) { return mul_u16(x, y); }
DEV u32 times(u32 x, u32 y) { return mul_u32(x, y); }
DEV u64 times(u64 x, u64 y) { return mul_u64(x, y); }
DEV f32 times(f32 x, f32 y) { return mul_f32(x, y); }
DEV f64 times(f64 x, f64 y) { return mul_f64(x, y); }

/* Whether x < y. Words of signed integers are compared with their sign bit inverted. */
template <typename T> DEV bool is_less(const scatter_params &a, T x, T y)
{
    const T top = a.is_signed ? (T)((T)1 << (8 * sizeof(T) - 1)) : (T)0;
    return (T)(x ^ top) < (T)(y ^ top);
}
DEV bool is_less(const scatter_params &, f32 x, f32 y) { return x < y; }
DEV bool is_less(const scatter_params &, f64 x, f64 y) { return x < y; }

/* Element x after it met value y. */
template <typename T> DEV T combine(const scatter_params &a, T x, T y)
{
    if (a.how == SCATTER_ADD) return plus(x, y);
    if (a.how == SCATTER_SET) return y;
    if (a.how == SCATTER_MUL) return times(x, y);
    const bool stays = a.how == SCATTER_MIN ? is_less(a, x, y) : is_less(a, y, x);
    return stays || x != x ? x : y;
}

/* Combines one line of values that meet. `ahead` of them are read before the first is used. */
template <typename T>
DEV void walk_line(const scatter_params &a, const place &p, i64 n, i64 index_step, i64 value_step)
{
    enum { AHEAD = 4 };
    const T *const value = (const T *)a.value + p.value;
    T *const out = (T *)a.out + p.out;
    for (i64 i = 0; i < n; i += AHEAD) {
        i64 at[AHEAD];
        T v[AHEAD];
        _Pragma("unroll") for (int l = 0; l < AHEAD; l++) {
            at[l] = i + l < n ? index_at(a, p.index + (i + l) * index_step) : a.n;
            v[l] = i + l < n ? value[(i + l) * value_step] : T();
        }
        _Pragma("unroll") for (int l = 0; l < AHEAD; l++) {
            if (!resolve(at[l], a.n)) continue;
            T *const to = out + at[l] * a.step;
            *to = combine(a, *to, v[l]);
        }
    }
}

template <typename T> DEV void scatter_walk(const scatter_params &a)
{
    const u32 last = a.rank + a.inner - 1;
    const i64 n = a.inner > 0 ? a.extent[last] : 1;
    const i64 index_step = a.inner > 0 ? a.index_step[last] : 0;
    const i64 value_step = a.inner > 0 ? a.value_step[last] : 0;
    const u64 n_lines = quotient((u64)a.n_inner, (u64)n);
    for (u64 k = first_of_grid(); k < (u64)a.n_first; k += all_of_grid()) {
        const place kept = place_at(a, k);
        for (u64 line = 0; line < n_lines; line++) {
            place p = kept;
            if (a.inner > 1) go_to(a, a.rank, a.inner - 1, line, p);
            walk_line<T>(a, p, n, index_step, value_step);
        }
    }
}
DEV void scatter_walk_u8(const scatter_params &a) { scatter_walk<u8>(a); }
DEV void scatter_walk_u16(const scatter_params &a) { scatter_walk<u16>(a); }
DEV void scatter_walk_u32(const scatter_params &a) { scatter_walk<u32>(a); }
DEV void scatter_walk_u64(const scatter_params &a) { scatter_walk<u64>(a); }
DEV void scatter_walk_f32(const scatter_params &a) { scatter_walk<f32>(a); }
DEV void scatter_walk_f64(const scatter_params &a) { scatter_walk<f64>(a); }

DEV void scatter_slots(const scatter_params &a)
{
    for (u64 i = first_of_grid(); i < (u64)a.n_first; i += all_of_grid()) {
        const place p = place_at(a, i);
        i64 at = index_at(a, p.index);
        u64 slot = a.n_slots;
        if (resolve(at, a.n))
            slot = p.slot * (u64)a.n + (u64)at;
        else
            note_bad(a, i);
        ((u64 *)a.words)[i] = slot << 32 | i;
    }
}

/* Words are sorted, so equal slots are neighbours, in the order of the walk. The thread of
 * the first word of a slot adds up all of them. */
template <typename T> DEV void scatter_runs(const scatter_params &a)
{
    enum { AHEAD = 4 };
    const u64 *const words = (const u64 *)a.words;
    const u64 n = (u64)a.n_first;
    for (u64 i = first_of_grid(); i < n * (u64)a.n_inner; i += all_of_grid()) {
        u64 at = quotient(i, (u64)a.n_inner);
        const u64 slot = words[at] >> 32;
        if (slot >= a.n_slots || (at > 0 && words[at - 1] >> 32 == slot)) continue;
        place inner = { 0, 0, 0, 0 };
        go_to(a, a.rank, a.inner, i - at * (u64)a.n_inner, inner);
        const i64 target = (i64)((u32)slot % (u32)a.n);
        T *const to =
            (T *)a.out + place_at(a, (u32)words[at]).out + inner.out + target * a.step;
        const T *const value = (const T *)a.value + inner.value;
        T sum = *to;
        for (bool more = true; more; at += AHEAD) {
            T v[AHEAD];
            bool on[AHEAD];
            _Pragma("unroll") for (int l = 0; l < AHEAD; l++) {
                const u64 word = at + l < n ? words[at + l] : ~0ull;
                on[l] = word >> 32 == slot;
                v[l] = on[l] ? value[place_at(a, (u32)word).value] : T();
            }
            _Pragma("unroll") for (int l = 0; l < AHEAD; l++) if (on[l]) sum = combine(a, sum, v[l]);
            more = on[AHEAD - 1];
        }
        *to = sum;
    }
}
DEV void scatter_runs_u8(const scatter_params &a) { scatter_runs<u8>(a); }
DEV void scatter_runs_u16(const scatter_params &a) { scatter_runs<u16>(a); }
DEV void scatter_runs_u32(const scatter_params &a) { scatter_runs<u32>(a); }
DEV void scatter_runs_u64(const scatter_params &a) { scatter_runs<u64>(a); }
DEV void scatter_runs_f32(const scatter_params &a) { scatter_runs<f32>(a); }
DEV void scatter_runs_f64(const scatter_params &a) { scatter_runs<f64>(a); }
