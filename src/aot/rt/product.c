/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of exported programs. Each element of C is one chain acc = fma(a, b, acc) with k
 * ascending, as everywhere in deft, so the division changes no bit.
 *
 * A share is a range of rows of all entries of the batch, or of columns. Within a share:
 *
 *   for NC columns:
 *     for MC rows:
 *       for KC of k: pack A
 *         for nr columns: pack B, in the first of the MC rows
 *           for mr rows: micro-kernel: mr x nr elements of C
 *       epilogue
 *
 * Where C has no memory of its own, MC x NC elements of it live in the workspace. Few rows against
 * rows of B that lie side by side are computed without packing.
 *
 * This file is compiled once for each level of processors.
 */
#include "aot/rt/image.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* An object whose products have one dtype contains the code for this one; a C file has both. */
#if defined(AOT_ONLY_F32)
#define HAS_F64 0
#define IS_F64(p) 0
#elif defined(AOT_ONLY_F64)
#define HAS_F64 1
#define IS_F64(p) 1
#else
#define HAS_F64 1
#define IS_F64(p) ((int)(p)->is_f64)
#endif
#if defined(AOT_ONLY_F64)
#define HAS_F32 0
#else
#define HAS_F32 1
#endif

/* One block of rows does not pack a B that a cache holds: its elements would be used too few times.
 */
enum { THIN_ROWS = 4, THIN_COLUMNS = 4096, DIRECT_BYTES = 256 << 10 };
enum { LINE_BYTES = 64, PACK_AHEAD = 8 };

/* ---- vectors ---- */

/* FMA(a, b, c) rounds once, in each lane. */
#if defined(__AVX512F__)
typedef __m512 vec32;
typedef __m512d vec64;
#define LOAD32(p) _mm512_loadu_ps(p)
#define STORE32(p, v) _mm512_storeu_ps(p, v)
#define SPLAT32(x) _mm512_set1_ps(x)
#define FMA32(a, b, c) _mm512_fmadd_ps(a, b, c)
#define LOAD64(p) _mm512_loadu_pd(p)
#define STORE64(p, v) _mm512_storeu_pd(p, v)
#define SPLAT64(x) _mm512_set1_pd(x)
#define FMA64(a, b, c) _mm512_fmadd_pd(a, b, c)
#elif defined(__AVX2__) && defined(__FMA__)
typedef __m256 vec32;
typedef __m256d vec64;
#define LOAD32(p) _mm256_loadu_ps(p)
#define STORE32(p, v) _mm256_storeu_ps(p, v)
#define SPLAT32(x) _mm256_set1_ps(x)
#define FMA32(a, b, c) _mm256_fmadd_ps(a, b, c)
#define LOAD64(p) _mm256_loadu_pd(p)
#define STORE64(p, v) _mm256_storeu_pd(p, v)
#define SPLAT64(x) _mm256_set1_pd(x)
#define FMA64(a, b, c) _mm256_fmadd_pd(a, b, c)
#else
typedef float vec32;
typedef double vec64;
#define LOAD32(p) (*(p))
#define STORE32(p, v) (*(p) = (v))
#define SPLAT32(x) (x)
#define FMA32(a, b, c) __builtin_fmaf(a, b, c)
#define LOAD64(p) (*(p))
#define STORE64(p, v) (*(p) = (v))
#define SPLAT64(x) (x)
#define FMA64(a, b, c) __builtin_fma(a, b, c)
#endif

enum { LANES32 = sizeof(vec32) / sizeof(float), LANES64 = sizeof(vec64) / sizeof(double) };
enum { STEPS = 8 }; /* rows of B at a time, in a product of few rows */
/* The elements of C that the micro-kernel computes at a time: as many accumulators as the registers
 * have room for. */
#if defined(__AVX512F__)
enum { ROWS = 8, VECTORS = 3 };
#elif defined(__AVX2__) && defined(__FMA__)
enum { ROWS = 6, VECTORS = 2 };
#elif defined(__SSE2__) && !defined(__FMA__)
enum { ROWS = 4, VECTORS = 1 }; /* a multiply-add is a call: the size of tiles does not matter */
#else
enum { ROWS = 4, VECTORS = 4 };
#endif
enum { COLUMNS32 = VECTORS * LANES32, COLUMNS64 = VECTORS * LANES64 };
/* What the micro-kernel fetches of the next panel in each step of k: MC rows fetch all of it. */
enum { AHEAD_BYTES = COLUMNS32 * (int)sizeof(float) * ROWS / AOT_MC };
#define UNROLLED _Pragma("GCC unroll 8")
#define INLINED inline __attribute__((always_inline))

/* ---- packing ---- */

/* Transposes 4 x 4 words: the rows of `from` are `row` words apart, those of `to` `ld`. */
#if defined(__AVX2__) && HAS_F32
static INLINED void transpose32(const uint32_t *from, int64_t row, uint32_t *to, int64_t ld)
{
    __m128 r[4];
    for (int i = 0; i < 4; i++) r[i] = _mm_loadu_ps((const float *)(const void *)(from + i * row));
    _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
    for (int i = 0; i < 4; i++) _mm_storeu_ps((float *)(void *)(to + i * ld), r[i]);
}
#else
#define transpose32 transpose_words
#endif
#define transpose64 transpose_words
#define transpose_words(from, row, to, ld)                                                         \
    for (int u = 0; u < 4; u++)                                                                    \
        for (int v = 0; v < 4; v++) (to)[u * (ld) + v] = (from)[v * (row) + u];

/* Defines a function that copies rows [0, m) and columns [0, k) of a matrix to panels of `width`
 * rows, each stored as [k][width]. Rows that do not exist are 0. What lies side by side is read
 * side by side; no processor foresees the rows of B, which may be pages apart. */
#define DEFINE_PACK(name, word, transpose)                                                         \
    static void name(const word *from, int64_t row, int64_t col, int64_t m, int64_t k,             \
                     int64_t width, word *to)                                                      \
    {                                                                                              \
        for (int64_t i = 0; i < m; i += width, from += width * row, to += width * k) {             \
            const int64_t n = aot_least(width, m - i);                                             \
            int64_t x = 0;                                                                         \
            for (; row == 1 && x < k; x++) {                                                       \
                const word *const p = from + x * col, *const ahead = p + PACK_AHEAD * col;         \
                for (int64_t j = 0; j < n; j += LINE_BYTES / (int64_t)sizeof *p)                   \
                    __builtin_prefetch(ahead + j);                                                 \
                for (int64_t j = 0; j < n; j++) to[x * width + j] = p[j];                          \
            }                                                                                      \
            for (; col == 1 && x + 4 <= k; x += 4) {                                               \
                int64_t j = 0;                                                                     \
                for (; j + 4 <= n; j += 4)                                                         \
                    transpose(from + j * row + x, row, to + x * width + j, width);                 \
                for (; j < n; j++)                                                                 \
                    for (int u = 0; u < 4; u++) to[(x + u) * width + j] = from[j * row + x + u];   \
            }                                                                                      \
            for (; x < k; x++)                                                                     \
                for (int64_t j = 0; j < n; j++) to[x * width + j] = from[j * row + x * col];       \
            for (x = 0; n < width && x < k; x++)                                                   \
                for (int64_t j = n; j < width; j++) to[x * width + j] = 0;                         \
        }                                                                                          \
    }

#if HAS_F32
DEFINE_PACK(pack32, uint32_t, transpose32)
#else
#define pack32(...) ((void)0)
#endif
#if HAS_F64
DEFINE_PACK(pack64, uint64_t, transpose64)
#else
#define pack64(...) ((void)0)
#endif

static void aot_pack(int is_f64, const char *from, int64_t row, int64_t col, int64_t m, int64_t k,
                     int64_t width, char *to)
{
    if (is_f64)
        pack64((const uint64_t *)(const void *)from, row, col, m, k, width, (uint64_t *)(void *)to);
    else
        pack32((const uint32_t *)(const void *)from, row, col, m, k, width, (uint32_t *)(void *)to);
}

/* ---- few rows ---- */

/* Defines a function that computes `count` columns of one row of C: the row of A, whose elements
 * are `step` apart, times rows of B, which are ldb apart. It goes along STEPS rows of B at a time,
 * in the order in which they lie in memory, and adds them to C, which stays in the first cache. */
#define DEFINE_THIN(name, type, vec, lanes, load, store, splat, fma, fma_one)                      \
    static void name(const type *a, int64_t step, const type *b, int64_t ldb, int64_t k,           \
                     int64_t count, type *c)                                                       \
    {                                                                                              \
        memset(c, 0, (size_t)count * sizeof *c);                                                   \
        for (int64_t x = 0; x < k; x += STEPS) {                                                   \
            const type *const row = b + x * ldb;                                                   \
            const int64_t n = aot_least(STEPS, k - x);                                             \
            vec ax[STEPS];                                                                         \
            int64_t j = 0;                                                                         \
            UNROLLED for (int i = 0; i < STEPS; i++) ax[i] = splat(i < n ? a[(x + i) * step] : 0); \
            for (; n == STEPS && j + lanes <= count; j += lanes) {                                 \
                vec acc = load(c + j);                                                             \
                UNROLLED for (int i = 0; i < STEPS; i++) acc =                                     \
                    fma(ax[i], load(row + i * ldb + j), acc);                                      \
                store(c + j, acc);                                                                 \
            }                                                                                      \
            for (; j < count; j++)                                                                 \
                for (int64_t i = 0; i < n; i++)                                                    \
                    c[j] = fma_one(a[(x + i) * step], row[i * ldb + j], c[j]);                     \
        }                                                                                          \
    }

#if HAS_F32
DEFINE_THIN(thin32, float, vec32, LANES32, LOAD32, STORE32, SPLAT32, FMA32, __builtin_fmaf)
#else
#define thin32(...) ((void)0)
#endif
#if HAS_F64
DEFINE_THIN(thin64, double, vec64, LANES64, LOAD64, STORE64, SPLAT64, FMA64, __builtin_fma)
#else
#define thin64(...) ((void)0)
#endif

/* ---- the micro-kernel ---- */

/* Defines a function that adds the product of panels of A and of B to ROWS rows of C, each of
 * `vectors` vectors, of which m x n elements exist. first: C counts as 0. Rows of the panel of A
 * are `row` elements apart, and its columns `col`; rows of B are ldb apart. Tiles that are not full
 * are computed in full, in memory of their own. */
#define DEFINE_GEMM(name, vectors, type, vec, lanes, load, store, splat, fma)                      \
    static INLINED void name(int64_t k, const void *a, int64_t row, int64_t col, const void *b,    \
                             int64_t ldb, void *c, int64_t ldc, int64_t m, int64_t n, int first,   \
                             const char *next)                                                     \
    {                                                                                              \
        enum { COLUMNS = (vectors)*lanes };                                                        \
        const type *pa = a, *pb = b;                                                               \
        type edge[ROWS * COLUMNS], *to = c;                                                        \
        vec acc[ROWS][vectors];                                                                    \
        const int is_full = m == ROWS && n == COLUMNS;                                             \
        if (!is_full) {                                                                            \
            memset(edge, 0, sizeof edge);                                                          \
            for (int64_t i = 0; !first && i < m; i++)                                              \
                memcpy(edge + i * COLUMNS, to + i * ldc, (size_t)n * sizeof *to);                  \
            to = edge;                                                                             \
        }                                                                                          \
        const int64_t ld = is_full ? ldc : COLUMNS;                                                \
        UNROLLED for (int i = 0; i < ROWS; i++) UNROLLED for (int j = 0; j < (vectors); j++)       \
            acc[i][j] = first ? splat(0) : load(to + i * ld + j * lanes);                          \
        for (int64_t x = 0; x < k; x++, pa += col, pb += ldb) {                                    \
            if (next) __builtin_prefetch(next + x * AHEAD_BYTES, 0, 2);                            \
            UNROLLED for (int i = 0; i < ROWS; i++) UNROLLED for (int j = 0; j < (vectors); j++)   \
                acc[i][j] = fma(splat(pa[i * row]), load(pb + j * lanes), acc[i][j]);              \
        }                                                                                          \
        UNROLLED for (int i = 0; i < ROWS; i++) UNROLLED for (int j = 0; j < (vectors); j++)       \
            store(to + i * ld + j * lanes, acc[i][j]);                                             \
        for (int64_t i = 0; !is_full && i < m; i++)                                                \
            memcpy((type *)c + i * ldc, edge + i * COLUMNS, (size_t)n * sizeof *to);               \
    }

/* The same for panels of A that are packed, which needs fewer registers. */
#define DEFINE_PACKED(name, of, columns)                                                           \
    static void name(int64_t k, const void *a, const void *b, void *c, int64_t ldc, int64_t m,     \
                     int64_t n, int first, const char *next)                                       \
    {                                                                                              \
        of(k, a, 1, ROWS, b, columns, c, ldc, m, n, first, next);                                  \
    }

#if HAS_F32
DEFINE_GEMM(full32, VECTORS, float, vec32, LANES32, LOAD32, STORE32, SPLAT32, FMA32)
#if defined(__AVX512F__) /* VECTORS is 3 */
DEFINE_GEMM(middle32, 2, float, vec32, LANES32, LOAD32, STORE32, SPLAT32, FMA32)
#endif
DEFINE_GEMM(narrow32, 1, float, vec32, LANES32, LOAD32, STORE32, SPLAT32, FMA32)
DEFINE_PACKED(packed32, full32, COLUMNS32)
#else
#define packed32(...) ((void)0)
#define full32(...) ((void)0)
#define middle32(...) ((void)0)
#define narrow32(...) ((void)0)
#endif
#if HAS_F64
DEFINE_GEMM(full64, VECTORS, double, vec64, LANES64, LOAD64, STORE64, SPLAT64, FMA64)
#if defined(__AVX512F__) /* VECTORS is 3 */
DEFINE_GEMM(middle64, 2, double, vec64, LANES64, LOAD64, STORE64, SPLAT64, FMA64)
#endif
DEFINE_GEMM(narrow64, 1, double, vec64, LANES64, LOAD64, STORE64, SPLAT64, FMA64)
DEFINE_PACKED(packed64, full64, COLUMNS64)
#else
#define packed64(...) ((void)0)
#define full64(...) ((void)0)
#define middle64(...) ((void)0)
#define narrow64(...) ((void)0)
#endif

/* ---- blocks ---- */

/* What a share works on in one entry of the batch. */
typedef struct part {
    const aot_product *p;
    const char *a, *b;
    char *c;      /* NULL: no memory */
    int64_t row0; /* rows of (batch, m) before this entry */
    int64_t size;
    int64_t a_row, a_col, b_row, b_col, c_row;
    char *packed_b, *packed_a, *tile;
    int64_t thin;      /* columns of C at a time, in a product of few rows */
    int64_t first_row; /* of the share */
    int is_direct;     /* full panels of both operands are read as they lie */
    int is_alone;      /* the share is one block of rows */
} part;

static void finish(const part *t, const char *tile, int64_t ld, int64_t r0, int64_t r1, int64_t c0,
                   int64_t c1)
{
    const aot_product *const p = t->p;
    if (p->epilogue) p->epilogue(p->user, tile, ld, t->row0 + r0, t->row0 + r1, c0, c1);
}

static void thin_rows(const part *t, int64_t r0, int64_t r1, int64_t c0, int64_t c1)
{
    for (int64_t r = r0; r < r1; r++) {
        const char *const a = t->a + r * t->a_row * t->size;
        for (int64_t n0 = c0, n1; n0 < c1; n0 = n1) {
            n1 = aot_least(n0 + t->thin, c1);
            char *const c = t->c ? t->c + (r * t->c_row + n0) * t->size : t->tile;
            if (IS_F64(t->p))
                thin64((const double *)(const void *)a, t->a_col,
                       (const double *)(const void *)t->b + n0, t->b_row, t->p->k, n1 - n0,
                       (double *)(void *)c);
            else
                thin32((const float *)(const void *)a, t->a_col,
                       (const float *)(const void *)t->b + n0, t->b_row, t->p->k, n1 - n0,
                       (float *)(void *)c);
            finish(t, c, n1 - n0, r, r + 1, n0, n1);
        }
    }
}

/* A block of the product: m rows and n columns from row m0 and column n0 on, for k elements from k0
 * on. */
typedef struct extent {
    int64_t m0, m, n0, n, k0, k;
} extent;

/* The columns of the tile that computes n of them. Panels have as many. */
static int64_t tile_columns(int is_f64, int64_t n)
{
    const int64_t lanes = is_f64 ? LANES64 : LANES32;
    return n <= lanes ? lanes : VECTORS == 3 && n <= 2 * lanes ? 2 * lanes : VECTORS * lanes;
}

/* A tile, from packed panels or from the operands themselves. */
static void tile_product(int is_f64, const char *a, int64_t row, int64_t col, const char *b,
                         int64_t ldb, char *c, int64_t ldc, int64_t m, int64_t n, const extent *e,
                         const char *next)
{
    const int64_t k = e->k;
    const int first = e->k0 == 0, is_packed = row == 1 && col == ROWS;
    if (is_f64) {
        if (n <= LANES64) narrow64(k, a, row, col, b, ldb, c, ldc, m, n, first, NULL);
#if defined(__AVX512F__)
        else if (n <= 2 * LANES64)
            middle64(k, a, row, col, b, ldb, c, ldc, m, n, first, NULL);
#endif
        else if (is_packed && ldb == COLUMNS64)
            packed64(k, a, b, c, ldc, m, n, first, next);
        else
            full64(k, a, row, col, b, ldb, c, ldc, m, n, first, NULL);
    } else if (n <= LANES32) {
        narrow32(k, a, row, col, b, ldb, c, ldc, m, n, first, NULL);
#if defined(__AVX512F__)
    } else if (n <= 2 * LANES32) {
        middle32(k, a, row, col, b, ldb, c, ldc, m, n, first, NULL);
#endif
    } else if (is_packed && ldb == COLUMNS32) {
        packed32(k, a, b, c, ldc, m, n, first, next);
    } else {
        full32(k, a, row, col, b, ldb, c, ldc, m, n, first, NULL);
    }
}

/* Fetches a share of the rows of B that are packed next, while rows [i, i + ROWS) of this block are
 * computed: no processor foresees them. They are those of the next columns, or those of the next
 * elements of k. Inlined, because gcc 12 leaves out calls of a function that does nothing but
 * this. */
static INLINED void fetch_ahead(const part *t, const extent *e, int64_t j, int64_t i,
                                int64_t columns)
{
    const int64_t k = t->p->k, width = columns * t->size;
    int64_t k0 = e->k0, n0 = e->n0 + j + columns;
    if (j + 2 * columns > e->n) {
        k0 += e->k;
        n0 = e->n0;
        if (k0 >= k) {
            k0 = 0;
            n0 += e->n;
        }
    }
    if (n0 + columns > t->p->n) return;
    const int64_t n = aot_least(aot_steps_at_once(t->size), k - k0),
                  end = aot_least(n, n * (i + ROWS) / e->m);
    for (int64_t x = n * i / e->m; x < end; x++)
        for (int64_t b = 0; b < width; b += LINE_BYTES)
            __builtin_prefetch(t->b + (n0 + (k0 + x) * t->b_row) * t->size + b, 0, 2);
}

/* Fetches the elements of C that the next tile adds to. */
static INLINED void fetch_tile_of_c(const char *c, int64_t row_bytes, int64_t bytes)
{
    for (int64_t i = 0; i < ROWS; i++, c += row_bytes)
        for (int64_t b = 0; b < bytes; b += LINE_BYTES) __builtin_prefetch(c + b, 1);
}

/* Packs A for a block; where full panels are read as they are, the last panel alone. */
static void pack_a(const part *t, const extent *e)
{
    const int64_t from = t->is_direct ? e->m / ROWS * ROWS : 0;
    const char *const a = t->a + ((e->m0 + from) * t->a_row + e->k0 * t->a_col) * t->size;
    aot_pack(IS_F64(t->p), a, t->a_row, t->a_col, e->m - from, e->k, ROWS,
             t->packed_a + from * e->k * t->size);
}

/* Where the panel of B that begins at column j of the block is packed. Panels that one block of
 * rows alone reads share their memory, which stays in the second cache. */
static char *panel_at(const part *t, const extent *e, int64_t j, int64_t columns)
{
    return t->packed_b + (t->is_alone ? 0 : (j * t->p->k + e->k0 * columns) * t->size);
}

/* The first block of rows packs the panels of B, each just before it reads it. */
static void block(const part *t, const extent *e, char *c, int64_t ldc)
{
    const int64_t columns = IS_F64(t->p) ? COLUMNS64 : COLUMNS32;
    const int is_first = e->m0 == t->first_row;
    for (int64_t j = 0; j < e->n; j += columns) {
        const int64_t width = aot_least(columns, e->n - j);
        const int64_t ld = tile_columns(IS_F64(t->p), width);
        const int reads_b = t->is_direct && width == ld;
        const char *const here = t->b + ((e->n0 + j) * t->b_col + e->k0 * t->b_row) * t->size;
        char *const packed = panel_at(t, e, j, columns);
        /* Behind the last panel, the first one follows, with other rows of A. */
        const char *next = panel_at(t, e, j + columns < e->n ? j + columns : 0, columns);
        if (is_first && !reads_b)
            aot_pack(IS_F64(t->p), here, t->b_col, t->b_row, width, e->k, ld, packed);
        for (int64_t i = 0; i < e->m; i += ROWS, next += e->k * AHEAD_BYTES) {
            const int64_t rows = aot_least(ROWS, e->m - i);
            const int reads_a = t->is_direct && rows == ROWS;
            char *const to = c + (i * ldc + j) * t->size;
            if (is_first && !t->is_direct && t->b_col == 1) fetch_ahead(t, e, j, i, columns);
            if (i + ROWS < e->m)
                fetch_tile_of_c(to + ROWS * ldc * t->size, ldc * t->size, width * t->size);
            tile_product(IS_F64(t->p),
                         reads_a ? t->a + ((e->m0 + i) * t->a_row + e->k0 * t->a_col) * t->size
                                 : t->packed_a + i * e->k * t->size,
                         reads_a ? t->a_row : 1, reads_a ? t->a_col : ROWS, reads_b ? here : packed,
                         reads_b ? t->b_row : ld, to, ldc, rows, width, e, is_first ? NULL : next);
        }
    }
}

static void blocks(const part *t, int64_t r0, int64_t r1, int64_t c0, int64_t c1)
{
    const aot_product *const p = t->p;
    const int64_t nc = aot_columns_at_once(c1 - c0, p->k, t->size);
    for (int64_t n0 = c0; n0 < c1; n0 += nc) {
        extent e = { .n0 = n0, .n = aot_least(nc, c1 - n0) };
        for (e.m0 = r0; e.m0 < r1; e.m0 += AOT_MC) {
            e.m = aot_least(AOT_MC, r1 - e.m0);
            char *const c = t->c ? t->c + (e.m0 * t->c_row + n0) * t->size : t->tile;
            const int64_t ldc = t->c ? t->c_row : e.n;
            for (e.k0 = 0; e.k0 < p->k; e.k0 += aot_steps_at_once(t->size)) {
                e.k = aot_least(aot_steps_at_once(t->size), p->k - e.k0);
                pack_a(t, &e);
                block(t, &e, c, ldc);
            }
            if (p->k == 0)
                for (int64_t i = 0; i < e.m; i++)
                    memset(c + i * ldc * t->size, 0, (size_t)(e.n * t->size));
            finish(t, c, ldc, e.m0, e.m0 + e.m, n0, n0 + e.n);
        }
    }
}

static int64_t offset_of(const aot_product *p, const int64_t *stride, int64_t entry)
{
    int64_t offset = 0;
    for (uint32_t i = p->batch_rank; i-- > 0; entry /= p->batch[i])
        offset += entry % p->batch[i] * stride[i];
    return offset;
}

/* Rows [r0, r1) and columns [c0, c1) of entry `entry`. */
static void entry_share(const aot_product *p, int64_t entry, int64_t r0, int64_t r1, int64_t c0,
                        int64_t c1, char *work)
{
    const uint32_t rank = p->batch_rank;
    part t = { .p = p, .row0 = entry * p->m, .size = IS_F64(p) ? 8 : 4 };
    t.a = p->a + offset_of(p, p->a_stride, entry) * t.size;
    t.b = p->b + offset_of(p, p->b_stride, entry) * t.size;
    t.c = p->c ? p->c + offset_of(p, p->c_stride, entry) * t.size : NULL;
    t.a_row = p->a_stride[rank];
    t.a_col = p->a_stride[rank + 1];
    t.b_row = p->b_stride[rank];
    t.b_col = p->b_stride[rank + 1];
    t.c_row = p->c_stride[rank];
    const int64_t nc = aot_columns_at_once(p->n, p->k, t.size), mc = aot_rows_at_once(p->m);
    t.packed_b = work;
    t.packed_a = t.packed_b + aot_round_up(nc * p->k * t.size, 64);
    t.thin = aot_least(mc * nc, THIN_COLUMNS);
    t.tile = t.packed_a + aot_packed_a_bytes(p->m, p->k, t.size);
    t.first_row = r0;
    t.is_alone = r1 - r0 <= AOT_MC;
    t.is_direct = t.is_alone && t.b_col == 1 && p->n * p->k * t.size <= DIRECT_BYTES;
    if (p->m <= THIN_ROWS && t.b_col == 1)
        thin_rows(&t, r0, r1, c0, c1);
    else
        blocks(&t, r0, r1, c0, c1);
}

/* An aot_product_fn. */
AOT_API void deft_aot_product(const aot_product *p, int64_t part, int64_t parts, char *work);

AOT_API void deft_aot_product(const aot_product *p, int64_t part, int64_t parts, char *work)
{
    const int64_t rows = p->n_batch * p->m;
    if (rows <= 0 || p->n <= 0) return;
    const int by_rows = rows >= parts * ROWS || rows >= p->n;
    const int64_t all = by_rows ? rows : p->n, unit = by_rows ? ROWS : COLUMNS32;
    const int64_t units = (all + unit - 1) / unit;
    const int64_t from = aot_least(units * part / parts * unit, all);
    const int64_t to = aot_least(units * (part + 1) / parts * unit, all);
    work += -(uintptr_t)work & 63;
    if (!by_rows) {
        for (int64_t e = 0; e < p->n_batch && from < to; e++)
            entry_share(p, e, 0, p->m, from, to, work);
        return;
    }
    for (int64_t r = from, end; r < to; r = end) {
        const int64_t e = r / p->m;
        end = aot_least((e + 1) * p->m, to);
        entry_share(p, e, r - e * p->m, end - e * p->m, 0, p->n, work);
    }
}
