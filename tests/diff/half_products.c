/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of f16 and bf16, on every path, bit for bit beside the interpreter. Elements are drawn
 * around exponents at which sums cancel, or are or nearly are denormals, or overflow. Operands are
 * transposed, cut from larger arrays, and shared by the batch. The same weights are used several
 * times, so that they are packed. The result is a half, an f32, an f32 with a bias, or a gradient.
 *
 *   half_products [--quick|--full] [COUNT [SEED]]
 */
#include "../support/budget.h"
#include "../support/oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))
enum { USES = 3 };

typedef enum form {
    FORM_HALF,
    FORM_F32,
    FORM_BIAS,
    FORM_GRADIENT_A,
    FORM_GRADIENT_B,
    N_FORMS
} form;

typedef struct operand {
    deft_dtype dtype;
    bool is_transposed, is_cut;
    uint32_t least, span; /* exponents as bits lie in [least, least + span) */
} operand;

typedef struct program {
    operand a, b;
    int64_t n_batch, m, n, k;
    bool shares_b;
    form form;
    uint64_t seed;
} program;

/* Writes halves with exponents in the range of o. Every eighth is 0. */
static void draw_halves(const operand *o, uint16_t *h, size_t n, uint64_t seed)
{
    const int fraction = o->dtype == DEFT_BF16 ? 7 : 10;
    for (size_t i = 0; i < n; i++) {
        const uint64_t bits = oracle_next(&seed);
        const uint64_t exponent = o->least + (bits >> 32) % o->span;
        const uint64_t rest = bits & (0x8000u | ((1u << fraction) - 1));
        h[i] = bits >> 61 ? (uint16_t)(exponent << fraction | rest) : 0;
    }
}

/* An operand of n_batch matrices; 0: one matrix without a batch axis. */
static deft_tensor *record_operand(deft_ctx *cx, const operand *o, int64_t n_batch, int64_t rows,
                                   int64_t columns, uint64_t seed)
{
    const int64_t more = o->is_cut ? 3 : 0;
    const int64_t y = (o->is_transposed ? columns : rows) + more;
    const int64_t x = (o->is_transposed ? rows : columns) + more;
    const deft_shape s = n_batch ? DEFT_SHAPE(n_batch, y, x) : DEFT_SHAPE(y, x);
    const size_t n = (size_t)oracle_numel(&s);
    uint16_t *const data = oracle_alloc(n * sizeof *data + 1);
    draw_halves(o, data, n, seed);
    deft_tensor *t = deft_from(cx, s, o->dtype, data, n * sizeof *data);
    free(data);
    if (o->is_cut && n_batch)
        t = deft_slice(t, DEFT_R(0, n_batch), DEFT_R(1, y - 2), DEFT_R(2, x - 1));
    else if (o->is_cut)
        t = deft_slice(t, DEFT_R(1, y - 2), DEFT_R(2, x - 1));
    return o->is_transposed ? deft_transpose(t, -1, -2) : t;
}

static deft_tensor *record_product(deft_ctx *cx, const program *p, deft_tensor *a, deft_tensor *b)
{
    deft_tensor *const x = deft_cast(a, DEFT_F32), *const y = deft_cast(b, DEFT_F32);
    deft_tensor *g = NULL;
    switch (p->form) {
    case FORM_F32:
    case N_FORMS: return deft_matmul(x, y);
    case FORM_HALF: return deft_matmul(a, p->a.dtype == p->b.dtype ? b : y);
    case FORM_BIAS: {
        deft_tensor *const bias = deft_arange(cx, 0, p->n, 1, DEFT_F32);
        return deft_relu(deft_add(deft_matmul(x, y), bias));
    }
    case FORM_GRADIENT_A:
    case FORM_GRADIENT_B: {
        deft_tensor *const product = deft_matmul(a, p->a.dtype == p->b.dtype ? b : y);
        deft_tensor *const sum = deft_sum(deft_mul(product, product), DEFT_ALL_AXES, 0);
        deft_tensor *const of = p->form == FORM_GRADIENT_A ? a : b;
        return deft_grad(&sum, NULL, 1, &of, 1, NULL, &g) ? g : NULL;
    }
    }
    return NULL;
}

/* Runs the program, and returns the bytes of all results one after the other; NULL: it failed. */
static char *run(deft_ctx *cx, const program *p, deft_dtype *t, size_t *n)
{
    char *all = NULL;
    bool ok = true;
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *const b =
        record_operand(cx, &p->b, p->shares_b ? 0 : p->n_batch, p->k, p->n, p->seed);
    for (uint64_t use = 0; use < USES && ok; use++) {
        deft_tensor *const a = record_operand(cx, &p->a, p->n_batch, p->m, p->k, p->seed + use + 1);
        deft_tensor *const r = record_product(cx, p, a, b);
        ok = r != NULL;
        if (!ok) break;
        const deft_shape shape = deft_shape_get(r);
        *t = deft_dtype_of(r);
        *n = (size_t)oracle_numel(&shape);
        const size_t bytes = *n * deft_dtype_size(*t);
        if (!all) all = oracle_alloc(USES * bytes + 1);
        ok = deft_read(r, *t, all + use * bytes, bytes) == DEFT_OK;
    }
    if (!ok) printf("FAIL %s\n", deft_message(cx));
    deft_clear(cx);
    if (deft_scope_end(s) != DEFT_OK) printf("FAIL scope: %s\n", deft_message(cx));
    *n *= USES;
    return ok ? all : NULL;
}

static program draw_program(uint64_t seed)
{
    static const int64_t sizes[] = { 1, 2, 3, 5, 8, 9, 16, 17, 31, 48, 49, 65, 100, 130 };
    static const uint32_t least[][2] = { { 120, 120 }, { 60, 82 },   { 60, 81 }, { 0, 120 },
                                         { 70, 60 },   { 190, 190 }, { 1, 141 }, { 247, 3 } };
    program p = { .seed = seed };
    uint64_t bits = oracle_next(&seed);
    const uint32_t *const exponents = least[bits % LEN(least)];
    operand *const side[2] = { &p.a, &p.b };
    for (int i = 0; i < 2; i++) {
        operand *const o = side[i ^ (int)(bits >> 8 & 1)];
        o->dtype = i == 0 || bits >> 9 & 7 ? bits >> 12 & 3 ? DEFT_BF16 : DEFT_F16 : DEFT_F16;
        o->is_transposed = bits >> (14 + i) & 1;
        o->is_cut = (bits >> (16 + 2 * i) & 3) == 0;
        o->span = 1 + (uint32_t)(bits >> (20 + 3 * i)) % 8;
        o->least = exponents[i];
        if (o->dtype == DEFT_F16) o->least = o->least / 9; /* of 5 bits, not 8 */
    }
    bits = oracle_next(&seed);
    p.m = sizes[bits % LEN(sizes)];
    p.n = sizes[(bits >> 8) % LEN(sizes)];
    p.k = sizes[(bits >> 16) % LEN(sizes)];
    p.n_batch = bits >> 24 & 1 ? 0 : 1 + (int64_t)(bits >> 25) % 3;
    p.shares_b = p.n_batch == 0 || bits >> 32 & 1;
    p.form = (form)((bits >> 33) % N_FORMS);
    return p;
}

int main(int argc, char **argv)
{
    oracle_path paths[] = {
        { .name = "interp unfused", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
        { .name = "interp fused", .tier = DEFT_TIER_INTERPRET, .n_threads = 3 },
        { .name = "llvm O2", .tier = DEFT_TIER_FULL, .n_threads = 2, .variant_launches = 2 },
        { .name = "llvm O0 16 bytes",
          .tier = DEFT_TIER_QUICK,
          .n_threads = 1,
          .max_vector_bytes = 16 },
    };
    oracle_asked asked = { .count = 150, .seed = 5, .quick = 40, .full = 5000 };
    for (int i = 1; i < argc; i++)
        if (!oracle_takes(&asked, argv[i])) return 2;
    const uint64_t least = oracle_least(20);
    long n_checks = 0, n_failures = 0;
    const size_t n_paths = oracle_open(paths, LEN(paths));
    for (uint64_t i = 0; i < asked.count && (i < least || test_time_left(1)); i++) {
        const program p = draw_program(oracle_mix(asked.seed, i));
        deft_dtype want_t = DEFT_BOOL, t = DEFT_BOOL;
        size_t n = 0, n_got = 0;
        char *const want = run(paths[0].cx, &p, &want_t, &n);
        for (size_t k = 1; k < n_paths; k++) {
            char *const got = run(paths[k].cx, &p, &t, &n_got);
            const bool same =
                want && got && n_got == n && t == want_t && oracle_difference(t, want, got, n) == n;
            n_checks++;
            n_failures += !same;
            if (!same)
                printf(
                    "FAIL %s: program %llu of seed %llu: form %d, %s x %s, [%lld x %lld x %lld], "
                    "batch %lld\n",
                    paths[k].name, (unsigned long long)i, (unsigned long long)asked.seed,
                    (int)p.form, deft_dtype_name(p.a.dtype), deft_dtype_name(p.b.dtype),
                    (long long)p.m, (long long)p.n, (long long)p.k, (long long)p.n_batch);
            free(got);
        }
        free(want);
    }
    printf("%ld checks, %ld failures\n", n_checks, n_failures);
    oracle_close(paths, n_paths);
    return n_failures ? 1 : 0;
}
