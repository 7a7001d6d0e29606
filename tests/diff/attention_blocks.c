/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over several blocks of keys, bit for bit beside the operations of its loop recorded one
 * by one. The loop runs block by block of queries, and leaves out what is masked; these operations
 * do neither. Keys and values contain infinities, NaN, denormals and -0 in some programs.
 *
 *   attention_blocks [--quick|--full] [COUNT [SEED]]
 */
#include "../support/budget.h"
#include "../support/oracle.h"
#include "deft/layers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))
#define ROW DEFT_AXES(-1)
enum { BLOCK = DEFT_ATTENTION_BLOCK };

typedef struct program {
    int64_t batch[2], n_queries, n_keys, width, value_width;
    bool is_causal, shares_keys, has_hard[3]; /* of q, k and v */
    bool is_negative_zero;                    /* make_negative_zero */
    bool is_rare;                             /* one hard value alone */
    deft_dtype dtype;
    uint64_t seed;
} program;

static deft_tensor *operand(deft_ctx *cx, const program *p, int which)
{
    const int64_t rows = which == 0 ? p->n_queries : p->n_keys;
    const int64_t columns = which == 2 ? p->value_width : p->width;
    const bool shares = which > 0 && p->shares_keys;
    const deft_shape s = DEFT_SHAPE(p->batch[0], shares ? 1 : p->batch[1], rows, columns);
    const size_t n = (size_t)oracle_numel(&s), size = deft_dtype_size(p->dtype);
    char *const data = oracle_alloc(n * size), *const hard = oracle_alloc(n * size);
    uint64_t seed = p->seed + (uint64_t)which;
    oracle_fill(p->dtype, data, n, seed, ORACLE_TAME);
    oracle_fill(p->dtype, hard, n, seed + 7, ORACLE_HARD);
    for (size_t i = 0; p->has_hard[which] && i < (p->is_rare ? 1 : n / 50); i++) {
        const size_t at = oracle_next(&seed) % n, from = oracle_next(&seed) % n;
        memcpy(data + at * size, hard + from * size, size);
    }
    deft_tensor *const t = deft_from(cx, s, p->dtype, data, n * size);
    free(data);
    free(hard);
    return t;
}

static deft_tensor *rows_of(deft_tensor *t, int64_t first, int64_t end)
{
    return deft_slice(t, DEFT_FULL, DEFT_FULL, DEFT_R(first, end));
}

/* Keys or values of one block. The last block is padded with zeros. */
static deft_tensor *block_of(deft_tensor *t, int64_t first)
{
    const int64_t n = deft_dim(t, -2), end = first + BLOCK < n ? first + BLOCK : n;
    const int64_t before[4] = { 0 }, after[4] = { 0, 0, first + BLOCK - end, 0 };
    return deft_pad(rows_of(t, first, end), before, after, DEFT_PAD_CONSTANT, 0);
}

static deft_tensor *by_hand(deft_ctx *cx, const program *p, deft_tensor *q, deft_tensor *keys,
                            deft_tensor *values)
{
    const deft_shape one = DEFT_SHAPE(p->batch[0], p->batch[1], p->n_queries, 1);
    const deft_shape wide = DEFT_SHAPE(p->batch[0], p->batch[1], p->n_queries, p->value_width);
    deft_tensor *m = deft_full(cx, one, p->dtype, -INFINITY), *l = deft_zeros(cx, one, p->dtype);
    deft_tensor *acc = deft_zeros(cx, wide, p->dtype);
    deft_tensor *const x = deft_mul(q, deft_num(cx, 1 / sqrt((double)p->width)));
    for (int64_t first = 0; first < p->n_keys; first += BLOCK) {
        deft_tensor *const k = block_of(keys, first), *const v = block_of(values, first);
        deft_tensor *const at = deft_add(deft_iota(cx, DEFT_SHAPE(BLOCK), 0), first);
        deft_tensor *s = deft_matmul(x, deft_t(k)), *sees = deft_lt(at, p->n_keys);
        if (p->is_causal)
            sees =
                deft_bitwise_and(sees, deft_le(at, deft_iota(cx, DEFT_SHAPE(p->n_queries, 1), 0)));
        if (p->is_causal || p->n_keys % BLOCK)
            s = deft_where(sees, s, deft_full(cx, DEFT_SHAPE(), p->dtype, -INFINITY));
        deft_tensor *const next = deft_maximum(m, deft_max(s, ROW, 1));
        deft_tensor *const w = deft_exp(deft_sub(s, next));
        deft_tensor *const down = deft_exp(deft_sub(m, next));
        m = next;
        l = deft_add(deft_mul(l, down), deft_sum(w, ROW, 1));
        acc = deft_add(deft_mul(acc, down), deft_matmul(w, v));
    }
    return deft_div(acc, l);
}

static bool read_into(deft_ctx *cx, deft_tensor *t, const program *p, void *out, size_t n)
{
    if (t && deft_read(t, p->dtype, out, n * deft_dtype_size(p->dtype)) == DEFT_OK) return true;
    printf("FAIL %s\n", deft_message(cx));
    deft_clear(cx);
    return false;
}

/* Operands with which acc is -0 before a block that is masked completely. Adding the block makes it
 * +0: keys 0 and 129 have the smallest negative denormal as value, and key 128 scores higher. */
static void make_negative_zero(deft_ctx *cx, deft_tensor *x[3])
{
    enum { N = 3 * BLOCK };
    float q[N], k[N], v[N];
    for (int i = 0; i < N; i++) {
        q[i] = 1;
        k[i] = i == BLOCK;
        v[i] = i == 0 || i == BLOCK + 1 ? -0x1p-149f : -0.0f;
    }
    const deft_shape s = DEFT_SHAPE(1, 1, N, 1);
    x[0] = deft_from(cx, s, DEFT_F32, q, sizeof q);
    x[1] = deft_from(cx, s, DEFT_F32, k, sizeof k);
    x[2] = deft_from(cx, s, DEFT_F32, v, sizeof v);
}

/* Returns whether attention has the bits of its operations. */
static bool holds(deft_ctx *cx, const program *p)
{
    const size_t n = (size_t)(p->batch[0] * p->batch[1] * p->n_queries * p->value_width);
    void *const got = oracle_alloc(n * 8), *const want = oracle_alloc(n * 8);
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *x[3];
    if (p->is_negative_zero)
        make_negative_zero(cx, x);
    else
        for (int i = 0; i < 3; i++) x[i] = operand(cx, p, i);
    deft_tensor *const y =
        deft_attention(x[0], x[1], x[2], DEFT_ATTENTION(.is_causal = p->is_causal));
    bool ok =
        read_into(cx, y, p, got, n) && read_into(cx, by_hand(cx, p, x[0], x[1], x[2]), p, want, n);
    const size_t at = ok ? oracle_difference(p->dtype, want, got, n) : 0;
    char a[64], b[64];
    if (ok && at < n)
        printf("element %zu is %s, expected %s\n", at, oracle_text(p->dtype, got, at, a, sizeof a),
               oracle_text(p->dtype, want, at, b, sizeof b));
    ok = ok && at == n;
    if (deft_scope_end(s) != DEFT_OK) printf("FAIL scope: %s\n", deft_message(cx));
    free(got);
    free(want);
    return ok;
}

static program draw_program(uint64_t seed)
{
    static const int64_t widths[] = { 1, 3, 4, 8, 16, 17 };
    program p = { .seed = seed };
    uint64_t bits = oracle_next(&seed);
    for (int i = 0; i < 2; i++) p.batch[i] = 1 + (int64_t)(bits >> (2 * i) & 3) % 3;
    p.is_causal = bits >> 8 & 3;
    p.shares_keys = bits >> 10 & 1;
    p.is_rare = bits >> 11 & 1;
    for (int i = 0; i < 3; i++) p.has_hard[i] = (bits >> (12 + 3 * i) & 3) == 0;
    p.dtype = bits >> 24 & 3 ? DEFT_F32 : DEFT_F64;
    bits = oracle_next(&seed);
    p.width = widths[bits % LEN(widths)];
    p.value_width = widths[(bits >> 8) % LEN(widths)];
    p.n_queries = 17 + (int64_t)(bits >> 16) % 300;
    p.n_keys = bits >> 40 & 1 ? p.n_queries : BLOCK + 1 + (int64_t)(bits >> 32) % 200;
    if (p.n_keys <= BLOCK) p.n_keys += BLOCK;
    return p;
}

int main(int argc, char **argv)
{
    oracle_path paths[] = {
        { .name = "interp", .tier = DEFT_TIER_INTERPRET, .n_threads = 3 },
        { .name = "llvm O2", .tier = DEFT_TIER_FULL, .n_threads = 2, .variant_launches = 2 },
        { .name = "llvm O2 one thread", .tier = DEFT_TIER_FULL, .n_threads = 1 },
        { .name = "llvm O0 16 bytes",
          .tier = DEFT_TIER_QUICK,
          .n_threads = 4,
          .max_vector_bytes = 16 },
    };
    oracle_asked asked = { .count = 60, .seed = 9, .quick = 12, .full = 2000 };
    for (int i = 1; i < argc; i++)
        if (!oracle_takes(&asked, argv[i])) return 2;
    const uint64_t least = oracle_least(8);
    long n_checks = 0, n_failures = 0;
    const size_t n_paths = oracle_open(paths, LEN(paths));
    for (uint64_t i = 0; i < asked.count && (i < least || test_time_left(1)); i++) {
        program p = draw_program(oracle_mix(asked.seed, i));
        if (i == 0)
            p = (program){
                { 1, 1 }, 3 * BLOCK,         3 * BLOCK,         1,
                1,        .is_causal = true, .dtype = DEFT_F32, .is_negative_zero = true
            };
        for (size_t k = 0; k < n_paths; k++) {
            const bool ok = holds(paths[k].cx, &p);
            n_checks++;
            n_failures += !ok;
            if (!ok)
                printf("FAIL %s: program %llu of seed %llu: %lld queries, %lld keys, width %lld, "
                       "%s\n",
                       paths[k].name, (unsigned long long)i, (unsigned long long)asked.seed,
                       (long long)p.n_queries, (long long)p.n_keys, (long long)p.width,
                       deft_dtype_name(p.dtype));
        }
    }
    printf("%ld checks, %ld failures\n", n_checks, n_failures);
    oracle_close(paths, n_paths);
    return n_failures ? 1 : 0;
}
