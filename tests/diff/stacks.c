/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors that are stacked along a new last axis, and the parts of such a stack that are taken out
 * again, on every path, bit for bit beside the interpreter: one part to more than the code
 * interleaves in registers, elements of 1 to 16 bytes, rows that end within a vector, parts that
 * are computed or are views of other arrays, and stacks that are written into a part of an array.
 *
 *   stacks [--quick] [--full] [SEED]
 */
#include "../support/budget.h"
#include "../support/oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))
enum { MOST_PARTS = 18 };

/* How a part is made. */
typedef enum part_kind {
    WHOLE,
    REVERSED,
    FROM_THIRD,
    EVERY_SECOND,
    CROSSED,
    COMPUTED,
    N_KINDS
} part_kind;

typedef struct program {
    int64_t rows, columns;
    uint32_t n_parts;
    deft_dtype dtype;
    uint8_t kind[MOST_PARTS]; /* part_kind */
    bool writes_view;         /* the stack is assigned to a part of an array */
    bool takes_out;           /* the result is made of parts of the stack, not the stack */
    uint64_t seed;
} program;

static const deft_dtype dtypes[] = { DEFT_F32,  DEFT_F64, DEFT_BF16, DEFT_U8,  DEFT_I32,
                                     DEFT_BOOL, DEFT_F16, DEFT_I64,  DEFT_C64, DEFT_C128 };
static long n_checks, n_failures;

/* ---- programs ---- */

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    return (uint32_t)(oracle_next(seed) >> 33) % n;
}

static program make_program(uint32_t n_parts, uint64_t seed)
{
    static const int64_t extents[] = { 1, 2, 5, 15, 16, 17, 31, 33, 64, 65, 100, 127, 257, 1000 };
    program p = { .n_parts = n_parts, .seed = seed };
    p.rows = draw(&seed, 3) ? 1 + draw(&seed, 5) : 40;
    p.columns = extents[draw(&seed, LEN(extents))];
    p.dtype = dtypes[draw(&seed, LEN(dtypes))];
    const bool is_plain = draw(&seed, 2) == 0;
    for (uint32_t i = 0; i < n_parts; i++)
        p.kind[i] = (uint8_t)(is_plain ? WHOLE : draw(&seed, N_KINDS));
    p.writes_view = draw(&seed, 4) == 0;
    p.takes_out = draw(&seed, 3) == 0;
    return p;
}

static deft_tensor *array(deft_ctx *cx, deft_shape s, deft_dtype t, uint64_t seed)
{
    const size_t bytes = (size_t)oracle_numel(&s) * deft_dtype_size(t);
    const bool is_complex = t == DEFT_C64 || t == DEFT_C128;
    const deft_dtype of_parts = t == DEFT_C64 ? DEFT_F32 : t == DEFT_C128 ? DEFT_F64 : t;
    void *const data = oracle_alloc(bytes);
    oracle_fill(of_parts, data, (size_t)oracle_numel(&s) * (is_complex ? 2 : 1), seed, ORACLE_HARD);
    deft_tensor *const x = deft_from(cx, s, t, data, bytes);
    free(data);
    return x;
}

static deft_tensor *part(deft_ctx *cx, const program *p, uint32_t i)
{
    const int64_t r = p->rows, c = p->columns;
    const uint64_t seed = p->seed + i;
    switch ((part_kind)p->kind[i]) {
    case WHOLE: break;
    case REVERSED: return deft_flip(array(cx, DEFT_SHAPE(r, c), p->dtype, seed), DEFT_AXES(1));
    case FROM_THIRD:
        return deft_slice(array(cx, DEFT_SHAPE(r, c + 5), p->dtype, seed), DEFT_FULL,
                          DEFT_R(3, c + 3));
    case EVERY_SECOND:
        return deft_slice(array(cx, DEFT_SHAPE(r, 2 * c), p->dtype, seed), DEFT_FULL,
                          DEFT_RS(0, 2 * c, 2));
    case CROSSED: return deft_t(array(cx, DEFT_SHAPE(c, r), p->dtype, seed));
    case COMPUTED: {
        deft_tensor *const x = array(cx, DEFT_SHAPE(r, c), p->dtype, seed);
        return p->dtype == DEFT_BOOL ? deft_bitwise_xor(x, deft_flip(x, DEFT_AXES(1)))
                                     : deft_mul(x, array(cx, DEFT_SHAPE(r, c), p->dtype, ~seed));
    }
    case N_KINDS: break;
    }
    return array(cx, DEFT_SHAPE(r, c), p->dtype, seed);
}

/* A map of all parts of the stack. Every second one is taken as it is. */
static deft_tensor *taken_out(const program *p, deft_tensor *stack)
{
    deft_tensor *sum = NULL;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        deft_tensor *const x =
            deft_slice(stack, DEFT_FULL, DEFT_FULL, DEFT_R((int64_t)i, (int64_t)i + 1));
        if (!sum)
            sum = x;
        else if (p->dtype == DEFT_BOOL)
            sum = deft_bitwise_xor(sum, x);
        else
            sum = i % 2 ? deft_sub(sum, x) : deft_add(x, deft_mul(sum, x));
    }
    return sum;
}

static deft_tensor *record(deft_ctx *cx, const program *p)
{
    deft_tensor *x[MOST_PARTS];
    for (uint32_t i = 0; i < p->n_parts; i++) x[i] = part(cx, p, i);
    deft_tensor *stack = deft_stack(x, p->n_parts, 2);
    if (p->takes_out) {
        stack = deft_keep(stack);
        if (deft_eval(&stack, 1) != DEFT_OK) return NULL;
        return taken_out(p, stack);
    }
    if (!p->writes_view) return stack;
    const int64_t n = p->n_parts;
    deft_tensor *const base =
        array(cx, DEFT_SHAPE(p->rows, p->columns + 2, n), p->dtype, p->seed + 99);
    deft_assign(deft_slice(base, DEFT_FULL, DEFT_R(1, p->columns + 1)), stack);
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

static bool are_same(const result *a, const result *b)
{
    const deft_dtype t = a->dtype;
    const bool is_complex = t == DEFT_C64 || t == DEFT_C128;
    const deft_dtype of_parts = t == DEFT_C64 ? DEFT_F32 : t == DEFT_C128 ? DEFT_F64 : t;
    const size_t n = a->n * (is_complex ? 2 : 1);
    return a->n > 0 && a->n == b->n && t == b->dtype &&
           oracle_difference(of_parts, a->data, b->data, n) == n;
}

static void say(const program *p)
{
    printf("  %u parts of %lld x %lld %s%s%s, kinds", p->n_parts, (long long)p->rows,
           (long long)p->columns, deft_dtype_name(p->dtype), p->writes_view ? ", written" : "",
           p->takes_out ? ", taken out" : "");
    for (uint32_t i = 0; i < p->n_parts; i++) printf(" %u", p->kind[i]);
    printf(", seed %llu\n", (unsigned long long)p->seed);
}

static void check(const oracle_path *paths, size_t n_paths, const program *p)
{
    const result want = run(paths[0].cx, p);
    for (size_t i = 1; i < n_paths; i++) {
        n_checks++;
        const result got = run(paths[i].cx, p);
        if (!are_same(&want, &got) && ++n_failures < 20) {
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
    uint32_t rounds = 8;
    uint64_t seed = 5;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) rounds = 2;
        if (!strcmp(argv[i], "--full")) rounds = 60;
        if (argv[i][0] != '-') seed = strtoull(argv[i], NULL, 10);
    }
    const size_t n = oracle_open(paths, LEN(paths));
    long n_programs = 0;
    for (uint32_t round = 0; round < rounds; round++)
        for (uint32_t n_parts = 1; n_parts <= MOST_PARTS; n_parts++) {
            if (round > 0 && !test_time_left(1)) continue;
            const program p = make_program(n_parts, oracle_mix(seed, round * 1000 + n_parts));
            check(paths, n, &p);
            n_programs++;
        }
    printf("%ld programs, %ld checks, %ld failures\n", n_programs, n_checks, n_failures);
    oracle_close(paths, n);
    return n_failures ? 1 : 0;
}
