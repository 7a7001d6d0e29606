/* SPDX-License-Identifier: Apache-2.0
 *
 * Is every dtype as fast as C written for the purpose? Multiply and add, sum, maximum, and casts
 * to and from f32, strict, on one thread, at 256 K and 16 M elements. Results are written in place.
 * The reference is the faster of the compilers found (bench/ref/ref_dtypes.c), in turn. The first
 * call compares bits.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ref_dtypes.h"

enum { LARGE = 1 << 24, SMALL = 1 << 18 };

typedef enum operation { MULADD, SUM, MAX, WIDEN, NARROW, N_OPERATIONS } operation;

static const char *const operation_names[] = { "a b + a", "sum", "max", "to f32", "from f32" };

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
    const ref_dtype *ref;
} work;

static deft_tensor *value(const work *w)
{
    switch (w->what) {
    case MULADD: return deft_add(deft_mul(w->a, w->b), w->a);
    case SUM: return deft_sum(w->a, DEFT_ALL_AXES, 0);
    case MAX: return deft_max(w->a, DEFT_ALL_AXES, 0);
    case WIDEN:
    case NARROW: return deft_cast(w->a, w->out_dtype);
    case N_OPERATIONS: break;
    }
    return NULL;
}

static void ours(void *user)
{
    work *const w = user;
    const deft_scope s = deft_step_begin(w->cx);
    deft_assign(w->out, value(w));
    bench_must(w->cx, deft_step_end(s), "dtypes");
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
    case N_OPERATIONS: break;
    }
}

/* Sets w->ref to the table of the faster compiler. */
static const char *choose(work *w, size_t row)
{
    static const struct {
        const char *name;
        const ref_dtype *table;
    } all[] = {
#ifdef REF_HAVE_GCC
        { "gcc", ref_dtypes_gcc },
#endif
#ifdef REF_HAVE_CLANG
        { "clang", ref_dtypes_clang },
#endif
    };
    const char *best = NULL;
    const ref_dtype *fastest = NULL;
    double least = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        w->ref = &all[i].table[row];
        const double took = bench_one(reference, w, 5, w->n == LARGE ? 1 : 20);
        if (best && took >= least) continue;
        best = all[i].name;
        fastest = w->ref;
        least = took;
    }
    w->ref = fastest;
    return best;
}

/* Numbers that every cast and product makes interesting: integers of all sizes, floats in [-300,
 * 300). */
static char *random_elements(deft_dtype t, int64_t n, uint64_t seed)
{
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

static void measure(bench *b, deft_ctx *cx, size_t row, deft_dtype t, operation what, int64_t n)
{
    char label[64], of[64];
    snprintf(label, sizeof label, "%s, %s, %s", deft_dtype_name(t), operation_names[what],
             n == LARGE ? "16 M" : "256 K");
    if (!bench_wants(b, label)) return;
    const bool is_float = t == DEFT_F32 || t == DEFT_F64;
    const bool is_unsigned = deft_promote(t, DEFT_U8) == t && deft_promote(t, DEFT_I8) != t;
    const deft_dtype in = what == NARROW ? DEFT_F32 : t;
    const deft_shape shape = { .rank = 1, .dim = { n } }, scalar = { .rank = 0 };
    const bool reduces = what == SUM || what == MAX;
    work w = { .cx = cx, .what = what, .n = n, .out_dtype = what == WIDEN ? DEFT_F32 : t };
    if (what == SUM && !is_float) w.out_dtype = is_unsigned ? DEFT_U64 : DEFT_I64;
    w.out_bytes = (reduces ? 1 : (size_t)n) * deft_dtype_size(w.out_dtype);
    const size_t bytes = (size_t)n * deft_dtype_size(in), room = w.out_bytes + 64;
    char *const from = random_elements(in, n, 1), *const with = random_elements(in, n, 2);
    w.from = from, w.with = with;
    w.to = bench_map(room), w.theirs = bench_map(room);
    memset(w.to, 0, room);
    memset(w.theirs, 0, room);
    w.a = deft_keep(deft_wrap(cx, shape, in, from, bytes, NULL));
    w.b = deft_keep(deft_wrap(cx, shape, in, with, bytes, NULL));
    w.out = deft_keep(
        deft_wrap_mut(cx, reduces ? scalar : shape, w.out_dtype, w.to, w.out_bytes, NULL));
    const char *const compiler = choose(&w, row);
    if (compiler) {
        double t_ours, t_ref;
        ours(&w);
        reference(&w);
        if (memcmp(w.to, w.theirs, w.out_bytes) != 0) {
            fprintf(stderr, "dtypes: %s: other bits than the reference\n", label);
            exit(1);
        }
        snprintf(of, sizeof of, "C by %s", compiler);
        bench_pair(ours, &w, reference, &w, b->quick ? 5 : 21, n == LARGE ? 1 : 60, &t_ours,
                   &t_ref);
        bench_row(b, label, t_ours * 1e6, "us", of, t_ref * 1e6, BENCH_RATIO_AT_MOST,
                  n == LARGE ? 1.05 : 1.15);
    } else {
        bench_row_without(b, label, 0, "us", "C", "there is neither gcc nor clang", 1);
    }
    deft_drop(&w.a);
    deft_drop(&w.b);
    deft_drop(&w.out);
    munmap(from, bytes);
    munmap(with, bytes);
    munmap(w.to, room);
    munmap(w.theirs, room);
}

void bench_dtypes(bench *b)
{
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
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}
