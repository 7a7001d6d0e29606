/* SPDX-License-Identifier: Apache-2.0
 *
 * Is every dtype as fast as C written for the purpose? Multiply and add, sum, maximum, and casts
 * to and from f32, strict, on one thread, at 256 K and 16 M elements. deft replays a capture, as a
 * program does that repeats a computation. Recorded again, a row takes 0.2 us more.
 * Both sides write to the same memory. Otherwise the physical pages of small results, which compete
 * with the operands for the second cache, decide up to a quarter of the time.
 *
 * Of complex numbers, multiply and add, sum, and the cast to the other complex dtype. Of integers,
 * products of matrices. The reference is the faster of the compilers found
 * (bench/ref/ref_dtypes.c), in turn. The first call compares bits.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ref_dtypes.h"

enum { LARGE = 1 << 24, SMALL = 1 << 18 };

/* The first N_OPERATIONS are of every real dtype. */
typedef enum operation {
    MULADD,
    SUM,
    MAX,
    WIDEN,
    NARROW,
    N_OPERATIONS,
    PRODUCT = N_OPERATIONS,
    COMPLEX_MULADD,
    COMPLEX_SUM,
    COMPLEX_CAST
} operation;

static const char *const operation_names[] = { "a b + a", "sum",     "max", "to f32", "from f32",
                                               "product", "a b + a", "sum", "cast" };

/* The shapes of products: [m,k] by [k,n]. */
typedef struct sides {
    int64_t m, k, n;
} sides;

typedef struct work {
    deft_ctx *cx;
    operation what;
    int64_t n;
    deft_dtype out_dtype;
    deft_tensor *a, *b, *out;
    const void *from, *with;
    void *to;     /* of deft */
    void *theirs; /* of the reference */
    size_t out_bytes;
    int calls; /* in one measurement */
    deft_capture *capture;
    sides sides;
    const ref_dtype *ref;
    const ref_complex *complex;
} work;

static deft_tensor *value(const work *w, deft_tensor *a, deft_tensor *b)
{
    switch (w->what) {
    case COMPLEX_MULADD:
    case MULADD: return deft_add(deft_mul(a, b), a);
    case COMPLEX_SUM:
    case SUM: return deft_sum(a, DEFT_ALL_AXES, 0);
    case MAX: return deft_max(a, DEFT_ALL_AXES, 0);
    case WIDEN:
    case NARROW:
    case COMPLEX_CAST: return deft_cast(a, w->out_dtype);
    case PRODUCT: return deft_matmul(a, b);
    }
    return NULL;
}

static deft_status record(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)out, (void)n_out;
    deft_assign(in[2], value(user, in[0], in[1]));
    return DEFT_OK;
}

static void ours(void *user)
{
    work *const w = user;
    deft_tensor *const in[] = { w->a, w->b, w->out };
    bench_must(w->cx, deft_capture_call(w->capture, in, 3, NULL, 0), "dtypes");
}

static void reference(void *user)
{
    const work *const w = user;
    switch (w->what) {
    case MULADD: w->ref->muladd(w->theirs, w->from, w->with, w->n); break;
    case SUM: w->ref->sum(w->theirs, w->from, w->n); break;
    case MAX: w->ref->max(w->theirs, w->from, w->n); break;
    case WIDEN: w->ref->widen(w->theirs, w->from, w->n); break;
    case NARROW: w->ref->narrow(w->theirs, w->from, w->n); break;
    case PRODUCT:
        w->ref->product(w->theirs, w->from, w->with, w->sides.m, w->sides.k, w->sides.n);
        break;
    case COMPLEX_MULADD: w->complex->muladd(w->theirs, w->from, w->with, w->n); break;
    case COMPLEX_SUM: w->complex->sum(w->theirs, w->from, w->n); break;
    case COMPLEX_CAST: w->complex->cast(w->theirs, w->from, w->n); break;
    }
}

/* Sets w->ref and w->complex to the tables of the faster compiler whose bits are those of w->to.
 * NULL: there is none. gcc 12 contracts products of complex numbers in spite of its options. */
static const char *choose(work *w, size_t row)
{
    static const struct {
        const char *name;
        const ref_dtype *table;
        const ref_complex *complex;
    } all[] = {
#ifdef REF_HAVE_GCC
        { "gcc", ref_dtypes_gcc, ref_dtypes_gcc_complex },
#endif
#ifdef REF_HAVE_CLANG
        { "clang", ref_dtypes_clang, ref_dtypes_clang_complex },
#endif
    };
    const size_t n = sizeof all / sizeof *all;
    size_t best = n;
    double least = 0;
    for (size_t i = 0; i <= n; i++) { /* at the end, the best once more */
        const size_t k = i < n ? i : best;
        if (k == n) break;
        w->ref = &all[k].table[row < REF_N_DTYPES ? row : 0];
        w->complex = &all[k].complex[row < REF_N_DTYPES ? 0 : row - REF_N_DTYPES];
        if (i == n) break;
        const double took = bench_one(reference, w, 5, w->calls);
        if (memcmp(w->to, w->theirs, w->out_bytes) != 0) continue;
        if (best == n || took < least) best = i, least = took;
    }
    return best < n ? all[best].name : NULL;
}

/* Numbers that every cast and product makes interesting: integers of all sizes, floats in [-300,
 * 300). Complex numbers have such floats as parts. */
static char *random_elements(deft_dtype t, int64_t n, uint64_t seed)
{
    const bool is_complex = deft_isdtype(t, DEFT_KIND_COMPLEX);
    if (is_complex) n *= 2, t = t == DEFT_C64 ? DEFT_F32 : DEFT_F64;
    const size_t size = deft_dtype_size(t);
    char *const at = bench_map((size_t)n * size);
    uint64_t s = seed;
    for (int64_t i = 0; i < n; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        const double x = (double)(s >> 11) * 0x1p-53 * 600 - 300;
        const float f = (float)x;
        const uint64_t bits = s >> 32 | s << 32;
        memcpy(at + (size_t)i * size,
               t == DEFT_F64   ? (const void *)&x
               : t == DEFT_F32 ? (const void *)&f
                               : (const void *)&bits,
               size);
    }
    return at;
}

/* Compares bits, and prints the row. w is ready but for the reference. */
static void compare(bench *b, work *w, size_t row, const char *label, double goal)
{
    char of[64];
    double t_ours, t_ref;
    w->calls = w->n == LARGE ? 1 : 60;
    w->capture = deft_capture_create(w->cx, record, w);
    ours(w);
    const char *const compiler = choose(w, row);
#if defined(REF_HAVE_GCC) || defined(REF_HAVE_CLANG)
    if (!compiler) {
        fprintf(stderr, "dtypes: %s: other bits than the reference\n", label);
        exit(1);
    }
#endif
    if (!compiler) {
        bench_row_without(b, label, 0, "us", "C", "there is neither gcc nor clang", 1);
        deft_capture_destroy(&w->capture);
        return;
    }
    snprintf(of, sizeof of, "C by %s", compiler);
    w->theirs = w->to;
    bench_pair(ours, w, reference, w, b->quick ? 5 : 21, w->calls, &t_ours, &t_ref);
    deft_capture_destroy(&w->capture);
    bench_row(b, label, t_ours * 1e6, "us", of, t_ref * 1e6, BENCH_RATIO_AT_MOST, goal);
}

static void measure(bench *b, deft_ctx *cx, size_t row, deft_dtype t, operation what, int64_t n)
{
    char label[64];
    snprintf(label, sizeof label, "%s, %s, %s", deft_dtype_name(t), operation_names[what],
             n == LARGE ? "16 M" : "256 K");
    if (!bench_wants(b, label)) return;
    const bool is_float = t == DEFT_F32 || t == DEFT_F64;
    const bool is_unsigned = deft_promote(t, DEFT_U8) == t && deft_promote(t, DEFT_I8) != t;
    const deft_dtype in = what == NARROW ? DEFT_F32 : t;
    const deft_shape shape = { .rank = 1, .dim = { n } }, scalar = { .rank = 0 };
    const bool reduces = what == SUM || what == MAX || what == COMPLEX_SUM;
    work w = { .cx = cx, .what = what, .n = n, .out_dtype = what == WIDEN ? DEFT_F32 : t };
    if (what == COMPLEX_CAST) w.out_dtype = t == DEFT_C64 ? DEFT_C128 : DEFT_C64;
    if (what == SUM && !is_float) w.out_dtype = is_unsigned ? DEFT_U64 : DEFT_I64;
    w.out_bytes = (reduces ? 1 : (size_t)n) * deft_dtype_size(w.out_dtype);
    const size_t bytes = (size_t)n * deft_dtype_size(in), room = w.out_bytes + 64;
    char *const from = random_elements(in, n, 1), *const with = random_elements(in, n, 2);
    w.from = from, w.with = with;
    char *const to = bench_map(room), *const theirs = bench_map(room);
    memset(w.to = to, 0, room);
    memset(w.theirs = theirs, 0, room);
    /* Handles of earlier rows would be visited by each step. */
    const deft_scope scope = deft_scope_begin(cx);
    w.a = deft_wrap(cx, shape, in, from, bytes, NULL);
    w.b = deft_wrap(cx, shape, in, with, bytes, NULL);
    w.out = deft_wrap_mut(cx, reduces ? scalar : shape, w.out_dtype, w.to, w.out_bytes, NULL);
    const double small = what == COMPLEX_MULADD ? 1.1 : 1.15;
    compare(b, &w, row, label, n == LARGE && what != COMPLEX_MULADD ? 1.05 : small);
    bench_must(cx, deft_scope_end(scope), "dtypes");
    munmap(from, bytes);
    munmap(with, bytes);
    munmap(to, room);
    munmap(theirs, room);
}

/* A product of two matrices of integers. */
static void measure_product(bench *b, deft_ctx *cx, size_t row, deft_dtype t, sides s)
{
    char label[64];
    snprintf(label, sizeof label, "%s, product, %lld x %lld x %lld", deft_dtype_name(t),
             (long long)s.m, (long long)s.k, (long long)s.n);
    if (!bench_wants(b, label)) return;
    const size_t size = deft_dtype_size(t);
    const int64_t n_a = s.m * s.k, n_b = s.k * s.n, n_out = s.m * s.n;
    work w = { .cx = cx, .what = PRODUCT, .n = n_out * s.k, .out_dtype = t, .sides = s };
    w.out_bytes = (size_t)n_out * size;
    char *const from = random_elements(t, n_a, 1), *const with = random_elements(t, n_b, 2);
    w.from = from, w.with = with;
    char *const to = bench_map(w.out_bytes), *const theirs = bench_map(w.out_bytes);
    w.to = to, w.theirs = theirs;
    const deft_shape a = { 2, { s.m, s.k } }, c = { 2, { s.k, s.n } }, out = { 2, { s.m, s.n } };
    const deft_scope scope = deft_scope_begin(cx);
    w.a = deft_wrap(cx, a, t, from, (size_t)n_a * size, NULL);
    w.b = deft_wrap(cx, c, t, with, (size_t)n_b * size, NULL);
    w.out = deft_wrap_mut(cx, out, t, w.to, w.out_bytes, NULL);
    compare(b, &w, row, label, 1);
    bench_must(cx, deft_scope_end(scope), "dtypes");
    munmap(from, (size_t)n_a * size);
    munmap(with, (size_t)n_b * size);
    munmap(to, w.out_bytes);
    munmap(theirs, w.out_bytes);
}

void bench_dtypes(bench *b)
{
    static const sides products[] = { { 256, 256, 256 }, { 1, 1024, 1024 }, { 64, 1000, 100 } };
    static const deft_dtype complexes[] = { DEFT_C64, DEFT_C128 };
    static const deft_dtype dtypes[] = { DEFT_I8,  DEFT_U8,  DEFT_I16, DEFT_U16, DEFT_I32,
                                         DEFT_U32, DEFT_I64, DEFT_U64, DEFT_F32, DEFT_F64 };
    _Static_assert(sizeof dtypes / sizeof *dtypes == REF_N_DTYPES, "in the order of REF_DTYPES");
    deft_runtime *rt = bench_runtime(1, DEFT_TIER_FULL, 0);
    deft_ctx *cx = bench_ctx(rt, DEFT_STRICT);
    for (size_t k = 0; k < REF_N_DTYPES; k++)
        for (int what = 0; what < N_OPERATIONS; what++) {
            if (dtypes[k] == DEFT_F32 && what >= WIDEN) continue; /* no cast */
            measure(b, cx, k, dtypes[k], (operation)what, SMALL);
            measure(b, cx, k, dtypes[k], (operation)what, LARGE);
        }
    for (size_t k = 0; k < 2; k++)
        for (int what = COMPLEX_MULADD; what <= COMPLEX_CAST; what++) {
            measure(b, cx, REF_N_DTYPES + k, complexes[k], (operation)what, SMALL);
            measure(b, cx, REF_N_DTYPES + k, complexes[k], (operation)what, LARGE);
        }
    for (size_t k = 0; k < REF_N_DTYPES && dtypes[k] != DEFT_F32; k++)
        for (size_t i = 0; i < sizeof products / sizeof *products; i++)
            measure_product(b, cx, k, dtypes[k], products[i]);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}
