/* SPDX-License-Identifier: Apache-2.0
 *
 * C[b,m,n] = sum_k A[b,m,k] B[b,k,n] of halves, by tensor cores, with sums in f32 in any
 * order. This text follows mma.cu and gemm.cu, and uses the tiles, slices and epilogues of
 * the latter. gemm_text.c writes entries that call `product_mma`.
 *
 * The 8 warps of a thread block have 2 by 4 equal parts of its tile of BM x BN. Slices of A
 * and of B are in shared memory as [row of A or column of B][k], because lanes of the
 * instruction take pairs along k. Rows are 8 halves longer than a slice, so that the pairs
 * of a warp are in 32 banks.
 */
enum { MMA_HIGH = 2, MMA_WIDE = 4, MMA_GAP = 8 };

template <class E, int R, int K, bool ALONG_K, int V>
DEV void put_rows(const side<E, R, K, ALONG_K, V> &s, u16 *mem)
{
    typedef side<E, R, K, ALONG_K, V> S;
    enum { ROW = K + MMA_GAP };
    if (S::TAKEN < GEMM_THREADS && (i32)threadIdx.x >= (i32)S::TAKEN) return;
    UNROLL for (int i = 0; i < S::N; i++) {
        const i32 r = s.r + (ALONG_K ? i * S::BY : 0), k = s.k + (ALONG_K ? 0 : i * S::BY);
        packed<V, u16> u;
        u.all = s.held[i];
        if (ALONG_K) {
            *(typename chunk<V * sizeof(u16)>::t *)(mem + r * ROW + k) = u.all;
        } else {
            EACH mem[(r + l) * ROW + k] = u.one[l];
        }
    }
}

/* E: how elements of A and B are stored. F: the epilogue. */
template <class E, int BM, int BN, int BK, int READ_A, int READ_B, int V, bool STORE, class F>
DEV void product_mma(const u64 *w)
{
    enum {
        ROW = BK + MMA_GAP,
        SLICE = (BM + BN) * ROW,
        WM = BM / MMA_HIGH, /* a warp's part */
        WN = BN / MMA_WIDE,
        TM = WM / 16,
        TN = WN / 8,
        ROWS = MMA_HIGH * 16, /* rows of C that go to the epilogue at once */
        OUT = BN + 8,
        SIZE = 2 * SLICE > 2 * ROWS * OUT ? 2 * SLICE : 2 * ROWS * OUT
    };
    typedef side<E, BM, BK, READ_A & 1, READ_A & 2 ? 8 : 1> SA;
    typedef side<E, BN, BK, READ_B & 1, READ_B & 2 ? 8 : 1> SB;
    __shared__ __align__(16) u16 mem[SIZE];
    __shared__ tile_place to;
    const i64 m = (i64)w[3], n = (i64)w[4], k = (i64)w[5];
    const i32 n_slices = (i32)divide(k + (BK - 1), (i64)BK);
    const i32 last = (i32)(k - (i64)(n_slices - 1) * BK);
    const i32 warp = (i32)threadIdx.x / 32, y = warp / MMA_WIDE, x = warp % MMA_WIDE;
    for (u32 round = 0;; round++) {
        const i64 at = (i64)blockIdx.x + (i64)round * gridDim.x;
        if (threadIdx.x == 0) find_place<BM, BN>(w, at, to);
        __syncthreads();
        if (at >= to.n_tiles) break;
        const i32 left_m = at_most(m - to.m0, BM), left_n = at_most(n - to.n0, BN);
        SA a;
        SB b;
        start(a, (const u16 *)w[0] + to.a + to.m0 * (i64)w[6], (i64)w[6], (i64)w[7]);
        start(b, (const u16 *)w[1] + to.b + to.n0 * (i64)w[9], (i64)w[9], (i64)w[8]);
        f32 acc[TM][TN][4];
        UNROLL for (int i = 0; i < TM; i++) UNROLL for (int j = 0; j < TN; j++)
            UNROLL for (int l = 0; l < 4; l++) acc[i][j][l] = 0;
        i32 now = 0;
        if (n_slices > 0) {
            fetch(a, left_m, n_slices > 1 ? BK : last, E::zero(true), (i64)w[13]);
            fetch(b, left_n, n_slices > 1 ? BK : last, E::zero(false), (i64)w[14]);
            put_rows(a, mem);
            put_rows(b, mem + BM * ROW);
        }
        __syncthreads();
        for (i32 left = n_slices; left > 0; left--) {
            if (left > 1) {
                fetch(a, left_m, left > 2 ? BK : last, E::zero(true), (i64)w[13]);
                fetch(b, left_n, left > 2 ? BK : last, E::zero(false), (i64)w[14]);
            }
            UNROLL for (int s = 0; s < BK; s += 16) {
                u32 u[TM][4];
                UNROLL for (int i = 0; i < TM; i++) {
                    const u16 *const row =
                        mem + now + (y * WM + i * 16 + lane_g()) * ROW + s + lane_t() * 2;
                    u[i][0] = pair(row);
                    u[i][1] = pair(row + 8 * ROW);
                    u[i][2] = pair(row + 8);
                    u[i][3] = pair(row + 8 * ROW + 8);
                }
                UNROLL for (int j = 0; j < TN; j++) {
                    const u16 *const col =
                        mem + now + (BM + x * WN + j * 8 + lane_g()) * ROW + s + lane_t() * 2;
                    const u32 v0 = pair(col), v1 = pair(col + 8);
                    UNROLL for (int i = 0; i < TM; i++) multiply<E::KIND>(acc[i][j], u[i], v0, v1);
                }
            }
            now = SLICE - now;
            if (left > 1) {
                put_rows(a, mem + now);
                put_rows(b, mem + now + BM * ROW);
            }
            __syncthreads();
        }
        f32 *const out = (f32 *)mem;
        _Pragma("unroll 1") for (i32 part = 0; part < TM; part++) {
            UNROLL for (int i = 0; i < TM; i++)
                if (i == part)
                    UNROLL for (int j = 0; j < TN; j++) UNROLL for (int h = 0; h < 2; h++)
                        put_all<2>(out + (y * 16 + lane_g() + 8 * h) * OUT + x * WN + j * 8 +
                                       lane_t() * 2, acc[i][j] + 2 * h);
            __syncthreads();
            _Pragma("unroll 1") for (i32 e = (i32)threadIdx.x; e < ROWS * (BN / V);
                                     e += GEMM_THREADS) {
                const i32 row = e / (BN / V), col = e % (BN / V) * V;
                const i32 r = row / 16 * WM + part * 16 + row % 16;
                if (r < left_m && col < left_n)
                    hand_out<V, STORE, F>(w, to, r, col, left_n, out + row * OUT + col);
            }
            __syncthreads();
        }
    }
}
