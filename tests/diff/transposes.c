/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps whose operands have other orders of axes than their results, on every path, bit for bit
 * beside the interpreter: all permutations of two to four axes, extents around the sides of the
 * squares that are transposed in registers, elements of 1 to 8 bytes, one to three permuted
 * operands, and results that are written into permuted views.
 *
 *   transposes [--quick] [--full]
 */
#include "../support/budget.h"
#include "../support/oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))
enum { MAX_RANK = 4, MAX_OPERANDS = 3, MOST = 200000 };

typedef struct program {
    uint32_t rank;
    int64_t extent[MAX_RANK];                  /* of the result */
    uint8_t order[MAX_OPERANDS + 1][MAX_RANK]; /* of each operand, and of the written view */
    deft_dtype dtype[MAX_OPERANDS];
    uint32_t n_operands;
    bool writes_view; /* the result is added to a permuted view of an array */
    uint64_t seed;
} program;

static const deft_dtype dtypes[] = { DEFT_F32, DEFT_F64, DEFT_BF16, DEFT_U8,
                                     DEFT_I32, DEFT_I64, DEFT_F16,  DEFT_BOOL };
static long n_checks, n_failures;

/* ---- programs ---- */

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    return (uint32_t)(oracle_next(seed) >> 33) % n;
}

/* The k-th permutation of n axes. */
static void permutation(uint8_t *order, uint32_t n, uint32_t k)
{
    for (uint32_t i = 0; i < n; i++) order[i] = (uint8_t)i;
    for (uint32_t i = n; i > 1; k /= i, i--) {
        const uint32_t j = k % i;
        const uint8_t other = order[j];
        order[j] = order[i - 1];
        order[i - 1] = other;
    }
}

static uint32_t factorial(uint32_t n)
{
    return n < 2 ? 1 : n * factorial(n - 1);
}

/* first: the permutation of the first operand; the others are drawn. */
static program make_program(uint32_t rank, uint32_t first, uint64_t seed)
{
    static const int64_t extents[] = { 1, 7, 8, 9, 15, 16, 17, 33, 3, 64, 81, 150, 2, 300 };
    program p = { .rank = rank, .seed = seed };
    int64_t n = 1;
    p.n_operands = 1 + draw(&seed, MAX_OPERANDS);
    p.writes_view = draw(&seed, 4) == 0;
    for (uint32_t i = 0; i < rank; i++) {
        p.extent[i] = extents[draw(&seed, LEN(extents))];
        while (n * p.extent[i] > MOST) p.extent[i] = (p.extent[i] + 1) / 2;
        n *= p.extent[i];
    }
    const deft_dtype t = dtypes[draw(&seed, LEN(dtypes))];
    for (uint32_t i = 0; i <= MAX_OPERANDS; i++) {
        permutation(p.order[i], rank, i == 0 ? first : draw(&seed, factorial(rank)));
        if (i < MAX_OPERANDS) p.dtype[i] = draw(&seed, 3) ? t : dtypes[draw(&seed, LEN(dtypes))];
    }
    return p;
}

static deft_axes axes_of(const program *p, const uint8_t *order)
{
    deft_axes a = { .n = p->rank };
    for (uint32_t i = 0; i < p->rank; i++) a.at[i] = order[i];
    return a;
}

/* The shape of an array that has the result's shape when it is permuted by `order`. */
static deft_shape shape_before(const program *p, const uint8_t *order)
{
    deft_shape s = { .rank = p->rank };
    for (uint32_t i = 0; i < p->rank; i++) s.dim[order[i]] = p->extent[i];
    return s;
}

static deft_tensor *operand(deft_ctx *cx, const program *p, const uint8_t *order, deft_dtype t,
                            uint64_t seed)
{
    const deft_shape s = shape_before(p, order);
    const size_t n = (size_t)oracle_numel(&s);
    void *const data = oracle_alloc(n * deft_dtype_size(t));
    oracle_fill(t, data, n, seed, ORACLE_HARD);
    deft_tensor *const x = deft_from(cx, s, t, data, n * deft_dtype_size(t));
    free(data);
    return x;
}

static deft_tensor *joined(deft_tensor *a, deft_tensor *b)
{
    if (!a) return b;
    return deft_dtype_of(a) == DEFT_BOOL && deft_dtype_of(b) == DEFT_BOOL ? deft_bitwise_xor(a, b)
                                                                          : deft_add(a, b);
}

/* Records the program. The result is in row-major order. */
static deft_tensor *record(deft_ctx *cx, const program *p)
{
    deft_tensor *sum = NULL;
    for (uint32_t i = 0; i < p->n_operands; i++) {
        deft_tensor *const x = operand(cx, p, p->order[i], p->dtype[i], p->seed + i);
        sum = joined(sum, deft_permute(x, axes_of(p, p->order[i])));
    }
    if (!p->writes_view) return sum;
    const uint8_t *const order = p->order[MAX_OPERANDS];
    deft_tensor *const base = operand(cx, p, order, deft_dtype_of(sum), p->seed + 9);
    deft_tensor *const view = deft_permute(base, axes_of(p, order));
    deft_assign(view, joined(view, sum));
    return base;
}

/* ---- running ---- */

typedef struct result {
    deft_dtype dtype;
    size_t n;
    void *data;
} result;

static result run(deft_ctx *cx, const program *p)
{
    result r = { 0 };
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *const t = record(cx, p);
    if (t) {
        const deft_shape shape = deft_shape_get(t);
        r.dtype = deft_dtype_of(t);
        r.n = (size_t)oracle_numel(&shape);
        r.data = oracle_alloc(r.n * deft_dtype_size(r.dtype));
        if (deft_read(t, r.dtype, r.data, r.n * deft_dtype_size(r.dtype)) != DEFT_OK) r.n = 0;
    }
    if (!t || r.n == 0) printf("FAIL %s\n", deft_message(cx));
    deft_clear(cx);
    if (deft_scope_end(s) != DEFT_OK) printf("FAIL scope: %s\n", deft_message(cx));
    return r;
}

static void say(const program *p)
{
    printf("  extents");
    for (uint32_t i = 0; i < p->rank; i++) printf(" %lld", (long long)p->extent[i]);
    for (uint32_t i = 0; i <= MAX_OPERANDS; i++) {
        if (i >= p->n_operands && (i < MAX_OPERANDS || !p->writes_view)) continue;
        printf(i < MAX_OPERANDS ? ", %s" : ", written", deft_dtype_name(p->dtype[i % 3]));
        for (uint32_t x = 0; x < p->rank; x++) printf(" %u", p->order[i][x]);
    }
    printf(", seed %llu\n", (unsigned long long)p->seed);
}

static void check(const oracle_path *paths, size_t n_paths, const program *p)
{
    const result want = run(paths[0].cx, p);
    for (size_t i = 1; i < n_paths; i++) {
        n_checks++;
        const result got = run(paths[i].cx, p);
        const bool same = want.n > 0 && got.n == want.n && got.dtype == want.dtype &&
                          oracle_difference(want.dtype, want.data, got.data, want.n) == want.n;
        if (!same && ++n_failures < 20) {
            printf("FAIL %s\n", paths[i].name);
            say(p);
        }
        free(got.data);
    }
    free(want.data);
}

int main(int argc, char **argv)
{
    oracle_path paths[] = {
        { .name = "interp unfused", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
        { .name = "interp fused", .tier = DEFT_TIER_INTERPRET, .n_threads = 2 },
        { .name = "llvm O2", .tier = DEFT_TIER_FULL, .n_threads = 1 },
        { .name = "llvm O2 variants",
          .tier = DEFT_TIER_FULL,
          .n_threads = 3,
          .variant_launches = 1,
          .streams = true },
        { .name = "llvm O2 16 bytes",
          .tier = DEFT_TIER_FULL,
          .n_threads = 3,
          .max_vector_bytes = 16 },
        { .name = "llvm O2 32 bytes",
          .tier = DEFT_TIER_FULL,
          .n_threads = 2,
          .max_vector_bytes = 32,
          .streams = true },
        { .name = "llvm O0", .tier = DEFT_TIER_QUICK, .n_threads = 2 },
    };
    uint32_t rounds = 4;
    uint64_t seed = 5;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) rounds = 1;
        if (!strcmp(argv[i], "--full")) rounds = 40;
        if (argv[i][0] != '-') seed = strtoull(argv[i], NULL, 10);
    }
    const size_t n = oracle_open(paths, LEN(paths));
    long n_programs = 0;
    for (uint32_t round = 0; round < rounds; round++)
        for (uint32_t rank = 2; rank <= MAX_RANK; rank++)
            for (uint32_t k = 0; k < factorial(rank); k++) {
                if (round > 0 && !test_time_left(1)) continue;
                const program p =
                    make_program(rank, k, oracle_mix(seed, round * 1000 + rank * 100 + k));
                check(paths, n, &p);
                n_programs++;
            }
    printf("%ld programs, %ld checks, %ld failures\n", n_programs, n_checks, n_failures);
    oracle_close(paths, n);
    return n_failures ? 1 : 0;
}
