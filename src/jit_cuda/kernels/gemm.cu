/* SPDX-License-Identifier: Apache-2.0
 *
 * C[b,m,n] = sum_k A[b,m,k] B[b,k,n]. This text follows the prelude and mma.cu. gemm_text.c
 * writes entries that call `product` with a tile of the table in gemm.c.
 *
 * A thread block computes a tile of BM x BN. A thread computes TM x TN of it, in groups of
 * G neighbours. So a thread reads shared memory 16 bytes at a time, and a warp reads each
 * word once:
 *
 *              BN                      Slices of BK are fetched into registers while the slice
 *          +---+---+                   before is multiplied. Then they are stored to the other of
 *      BM  | G |   | groups of a       two places in shared memory, as [k][row of A or column of
 *          +---+---+ thread: TM / G    B]. So there is one barrier per slice.
 *          |   |   | by TN / G
 *          +---+---+
 *
 * What must hold: an element is one chain acc = fma(a, b, acc), k ascending from +0. The
 * last slice is padded with a = -0, b = +0. Their product is -0, and adding -0 changes no
 * value, neither -0 nor +0. Rows and columns that do not exist are computed, and not
 * written. Halves are converted to f32 on their way from registers to shared memory.
 *
 * C goes through shared memory, one group of rows or half of it at a time. From there it
 * goes in full rows, V neighbours per thread, to memory and to the epilogue. The text
 * contains the epilogue once.
 */
enum {
    GEMM_WORDS = 47,
    GEMM_THREADS = 256,
    GEMM_GROUP = 8 /* rows of tiles that are processed column by column, so that B stays in L2 */
};

DEV f32 chain(f32 a, f32 b, f32 acc) { return __fmaf_rn(a, b, acc); }
DEV f64 chain(f64 a, f64 b, f64 acc) { return __fma_rn(a, b, acc); }

/* How elements are stored (in), and what they are in the product (out). */
template <typename T> struct as_is {
    typedef T in;
    typedef T out;
    DEV T lift(T v) { return v; }
    DEV T zero(bool minus) { return minus ? (T)-0.0 : (T)0.0; }
};
struct from_f16 {
    enum { KIND = IS_F16 };
    typedef f16 in;
    typedef f32 out;
    DEV f32 lift(f16 h) { return cast_f16_f32(h); }
    DEV f16 zero(bool minus) { return minus ? 0x8000 : 0; }
};
struct from_bf16 {
    enum { KIND = IS_BF16 };
    typedef bf16 in;
    typedef f32 out;
    DEV f32 lift(bf16 h) { return cast_bf16_f32(h); }
    DEV bf16 zero(bool minus) { return minus ? 0x8000 : 0; }
};

/* Reads V elements as one access. */
template <int V, typename T> DEV void get_all(T *v, const T *p)
{
    union { typename chunk<V * sizeof(T)>::t all; T one[V]; } u;
    u.all = *(const typename chunk<V * sizeof(T)>::t *)p;
    EACH v[l] = u.one[l];
}
template <int V, typename T> DEV void put_all(T *p, const T *v)
{
    union { typename chunk<V * sizeof(T)>::t all; T one[V]; } u;
    EACH u.one[l] = v[l];
    *(typename chunk<V * sizeof(T)>::t *)p = u.all;
}

/* V elements as one value, so that halves take half the registers. */
template <int V, typename T> union packed {
    typename chunk<V * sizeof(T)>::t all;
    T one[V];
};

/* An operand's tile, R rows of A or columns of B by K, and what a thread reads of it. It
 * reads N times V neighbours, along k or across it, BY apart in the other direction. E: how
 * elements are stored. */
template <class E, int R, int K, bool ALONG_K, int V> struct side {
    typedef typename E::in I;
    typedef typename E::out T;
    enum {
        ACROSS = (ALONG_K ? K : R) / V, /* threads along the neighbours */
        TAKEN = R * K / V,
        N = (TAKEN + GEMM_THREADS - 1) / GEMM_THREADS,
        BY = GEMM_THREADS / ACROSS,
        ROW = R + 16 / (int)sizeof(T), /* of a row in shared memory */
        SIZE = K * ROW
    };
    const I *p; /* the thread's first */
    i64 by;     /* in memory, from one of the N to the next */
    i32 r, k;   /* the thread's first */
    typename chunk<V * sizeof(I)>::t held[N];
};

template <class E, int R, int K, bool ALONG_K, int V>
DEV void start(side<E, R, K, ALONG_K, V> &s, const typename E::in *p, i64 r_stride, i64 k_stride)
{
    typedef side<E, R, K, ALONG_K, V> S;
    const i32 t = (i32)threadIdx.x, near = t % S::ACROSS * V, far = t / S::ACROSS;
    s.r = ALONG_K ? far : near;
    s.k = ALONG_K ? near : far;
    s.p = p + s.r * r_stride + s.k * k_stride;
    s.by = S::BY * (ALONG_K ? r_stride : k_stride);
}

/* Reads the next slice into registers. Nothing is read behind n_r or n_k. nothing: the
 * value of elements behind n_k. step: bytes from slice to slice. */
template <class E, int R, int K, bool ALONG_K, int V>
DEV void fetch(side<E, R, K, ALONG_K, V> &s, i32 n_r, i32 n_k, typename E::in nothing, i64 step)
{
    typedef side<E, R, K, ALONG_K, V> S;
    const bool takes = S::TAKEN >= GEMM_THREADS || (i32)threadIdx.x < (i32)S::TAKEN;
    _Pragma("unroll") for (int i = 0; i < S::N; i++) {
        const i32 r = s.r + (ALONG_K ? i * S::BY : 0), k = s.k + (ALONG_K ? 0 : i * S::BY);
        bool on[V];
        EACH on[l] = takes && r + (ALONG_K ? 0 : l) < n_r && k + (ALONG_K ? l : 0) < n_k;
        packed<V, typename E::in> u;
        load_near<V>(u.one, s.p + i * s.by, on);
        EACH if (k + (ALONG_K ? l : 0) >= n_k) u.one[l] = nothing;
        s.held[i] = u.all;
    }
    s.p = (const typename E::in *)((const u8 *)s.p + step);
}

template <class E, int R, int K, bool ALONG_K, int V>
DEV void put(const side<E, R, K, ALONG_K, V> &s, typename E::out *mem)
{
    typedef side<E, R, K, ALONG_K, V> S;
    if (S::TAKEN < GEMM_THREADS && (i32)threadIdx.x >= (i32)S::TAKEN) return;
    _Pragma("unroll") for (int i = 0; i < S::N; i++) {
        const i32 r = s.r + (ALONG_K ? i * S::BY : 0), k = s.k + (ALONG_K ? 0 : i * S::BY);
        typename E::out v[V];
        packed<V, typename E::in> u;
        u.all = s.held[i];
        EACH v[l] = E::lift(u.one[l]);
        if (ALONG_K) {
            EACH mem[(k + l) * S::ROW + r] = v[l];
        } else {
            put_all<V>(mem + k * S::ROW + r, v);
        }
    }
}

/* The place of a tile. It is in shared memory, and so takes no registers while slices are
 * multiplied. */
struct tile_place {
    i64 n_tiles;
    i64 batch, m0, n0, a, b, c; /* offsets of the batch entry */
};

template <int BM, int BN> DEV void find_place(const u64 *w, i64 at, tile_place &x)
{
    const i64 n_m = divide((i64)w[3] + (BM - 1), (i64)BM);
    const i64 n_n = divide((i64)w[4] + (BN - 1), (i64)BN);
    x.n_tiles = n_m * n_n * (i64)w[11];
    if (at >= x.n_tiles) return;
    x.batch = divide(at, n_m * n_n);
    at -= x.batch * n_m * n_n;
    const i64 group = divide(at, GEMM_GROUP * n_n), first = group * GEMM_GROUP;
    const i64 rows = n_m - first < GEMM_GROUP ? n_m - first : GEMM_GROUP;
    at -= first * n_n;
    const i64 col = divide(at, rows);
    x.n0 = col * BN;
    x.m0 = (first + at - col * rows) * BM;
    i64 a = 0, b = 0, c = 0, left = x.batch;
    for (i32 i = (i32)w[12] - 1; i >= 0; i--) {
        const u64 *const axis = w + 15 + 4 * i;
        const i64 next = divide(left, (i64)axis[0]), j = left - next * (i64)axis[0];
        a += j * (i64)axis[1];
        b += j * (i64)axis[2];
        c += j * (i64)axis[3];
        left = next;
    }
    x.a = a;
    x.b = b;
    x.c = c;
}

/* E: an epilogue with run(words, row of (batch, m), column, elements of C). */
struct no_epilogue {
    template <typename T> DEV void run(const u64 *, i64, i64, const T *) {}
};

/* Stores V elements of the tile, from row r and column col on, and passes them to the
 * epilogue. */
template <int V, bool STORE, class E, typename T>
DEV void hand_out(const u64 *w, const tile_place &to, i32 r, i32 col, i32 left_n, const T *from)
{
    const i64 row = to.m0 + r;
    T v[V];
    bool on[V];
    get_all<V>(v, from);
    EACH on[l] = col + l < left_n;
    if (STORE) store_near<V>((T *)w[2] + to.c + row * (i64)w[10] + to.n0 + col, v, on);
    E::run(w + GEMM_WORDS, to.batch * (i64)w[3] + row, to.n0 + col, v);
}

DEV i32 at_most(i64 n, i32 most) { return n < most ? (i32)n : most; }

/* A and B: how their elements are stored. */
template <class A, class B, int BM, int BN, int BK, int TM, int TN, int READ_A, int READ_B, int V,
          bool STORE, class E>
DEV void product(const u64 *w)
{
    typedef typename A::out T;
    enum {
        WIDE = 16 / (int)sizeof(T),
        GM = TM < WIDE ? TM : WIDE,
        GN = TN < WIDE ? TN : WIDE,
        NX = BN / TN,
        HIGH = BM / (TM / GM) /* from one of a thread's groups to the next */
    };
    typedef side<A, BM, BK, READ_A & 1, READ_A & 2 ? WIDE : 1> SA;
    typedef side<B, BN, BK, READ_B & 1, READ_B & 2 ? WIDE : 1> SB;
    enum {
        SLICE = SA::SIZE + SB::SIZE,
        /* rows of a group that go through shared memory at a time */
        H = HIGH * BN > 2 * SLICE && GM > 1 ? GM / 2 : GM,
        ROWS = HIGH / GM * H,
        SIZE = 2 * SLICE > ROWS * BN ? 2 * SLICE : ROWS * BN
    };
    __shared__ __align__(16) T mem[SIZE];
    __shared__ tile_place to;
    const i64 m = (i64)w[3], n = (i64)w[4], k = (i64)w[5];
    const i32 n_slices = (i32)divide(k + (BK - 1), (i64)BK);
    const i32 last = (i32)(k - (i64)(n_slices - 1) * BK); /* extent of k in the last slice */
    /* A warp is 4 by 8 threads of the tile. */
    const i32 warp = (i32)threadIdx.x / 32, lane = (i32)threadIdx.x % 32;
    const i32 y = warp / (NX / 8) * 4 + lane / 8, x = warp % (NX / 8) * 8 + lane % 8;
    for (u32 round = 0;; round++) {
        const i64 at = (i64)blockIdx.x + (i64)round * gridDim.x;
        if (threadIdx.x == 0) find_place<BM, BN>(w, at, to);
        __syncthreads();
        if (at >= to.n_tiles) break;
        const i32 left_m = at_most(m - to.m0, BM), left_n = at_most(n - to.n0, BN);
        SA a;
        SB b;
        start(a, (const typename A::in *)w[0] + to.a + to.m0 * (i64)w[6], (i64)w[6], (i64)w[7]);
        start(b, (const typename B::in *)w[1] + to.b + to.n0 * (i64)w[9], (i64)w[9], (i64)w[8]);
        T acc[TM][TN];
        _Pragma("unroll") for (int i = 0; i < TM; i++)
            _Pragma("unroll") for (int j = 0; j < TN; j++) acc[i][j] = 0;
        i32 now = 0; /* index of the slice in mem that is multiplied */
        if (n_slices > 0) {
            fetch(a, left_m, n_slices > 1 ? BK : last, A::zero(true), (i64)w[13]);
            fetch(b, left_n, n_slices > 1 ? BK : last, B::zero(false), (i64)w[14]);
            put(a, mem);
            put(b, mem + SA::SIZE);
        }
        __syncthreads();
        for (i32 left = n_slices; left > 0; left--) {
            if (left > 1) {
                fetch(a, left_m, left > 2 ? BK : last, A::zero(true), (i64)w[13]);
                fetch(b, left_n, left > 2 ? BK : last, B::zero(false), (i64)w[14]);
            }
            _Pragma("unroll") for (int s = 0; s < BK; s++) {
                T u[TM], v[TN];
                _Pragma("unroll") for (int i = 0; i < TM; i += GM)
                    get_all<GM>(u + i, mem + now + s * SA::ROW + i / GM * HIGH + y * GM);
                _Pragma("unroll") for (int j = 0; j < TN; j += GN)
                    get_all<GN>(v + j, mem + now + SA::SIZE + s * SB::ROW + j / GN * (BN / (TN / GN)) +
                                           x * GN);
                _Pragma("unroll") for (int i = 0; i < TM; i++)
                    _Pragma("unroll") for (int j = 0; j < TN; j++)
                        acc[i][j] = chain(u[i], v[j], acc[i][j]);
            }
            now = SLICE - now;
            if (left > 1) {
                put(a, mem + now);
                put(b, mem + now + SA::SIZE);
            }
            __syncthreads();
        }
        _Pragma("unroll 1") for (i32 part = 0; part < TM / H; part++) {
            _Pragma("unroll") for (int i = 0; i < TM; i++)
                if (i / H == part)
                    _Pragma("unroll") for (int j = 0; j < TN; j += GN)
                        put_all<GN>(mem + (y * H + i % H) * BN + j / GN * (BN / (TN / GN)) +
                                        x * GN, acc[i] + j);
            __syncthreads();
            _Pragma("unroll 1") for (i32 e = (i32)threadIdx.x; e < ROWS * (BN / V); e += GEMM_THREADS) {
                const i32 row = e / (BN / V), col = e % (BN / V) * V;
                const i32 r = part * H / GM * HIGH + row / H * GM + part * H % GM + row % H;
                if (r < left_m && col < left_n)
                    hand_out<V, STORE, E>(w, to, r, col, left_n, mem + row * BN + col);
            }
            __syncthreads();
        }
    }
}
