/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention: beside all of its scores at once, with few and with many queries, what it stores, what
 * fast plans know of it, and what each mistake says. Formulas of gradients are
 * tests/diff/gradcheck.c's.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/budget.h"
#include "support/harness.h"

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 2);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(attention, .init = set_up, .fini = tear_down);

typedef struct attention_case {
    int64_t batch, n_queries, n_keys, width, width_v;
    bool is_causal;
} attention_case;

static deft_tensor *drawn(uint64_t seed, deft_shape s)
{
    deft_rng rng = { seed, 0 };
    deft_tensor *const t = deft_keep(deft_normal(r.cx, &rng, s, DEFT_F64, 0, 1));
    OK(&r, deft_eval(&t, 1));
    return t;
}

/* Every score at once. */
static deft_tensor *all_scores(deft_tensor *const x[3], const attention_case *c)
{
    deft_tensor *s = deft_matmul(deft_mul(x[0], 1 / sqrt((double)c->width)), deft_t(x[1]));
    deft_tensor *const key = deft_iota(r.cx, DEFT_SHAPE(c->n_keys), 0);
    deft_tensor *const query = deft_iota(r.cx, DEFT_SHAPE(c->n_queries, 1), 0);
    if (c->is_causal) s = deft_where(deft_le(key, query), s, deft_num(r.cx, -INFINITY));
    return deft_matmul(deft_softmax(s, -1), x[2]);
}

/* The result, the gradients of its squares, and the gradients of the squares of those. */
static void derivatives(deft_tensor *y, deft_tensor *const x[3], deft_tensor *out[7])
{
    deft_tensor *const loss = deft_sum(deft_square(y), DEFT_ALL_AXES, 0);
    deft_tensor *more = NULL;
    out[0] = y;
    cr_assert(deft_grad(&loss, NULL, 1, x, 3, NULL, out + 1), "%s", deft_message(r.cx));
    for (int i = 1; i < 4; i++) {
        deft_tensor *const sum = deft_sum(deft_square(out[i]), DEFT_ALL_AXES, 0);
        more = more ? deft_add(more, sum) : sum;
    }
    cr_assert(deft_grad(&more, NULL, 1, x, 3, NULL, out + 4), "%s", deft_message(r.cx));
}

/* How far a and b are apart, over 1 + |b|. */
static double apart(deft_tensor *a, deft_tensor *b)
{
    deft_tensor *const d = deft_div(deft_abs(deft_sub(a, b)), deft_add(deft_abs(b), 1.0));
    double worst = INFINITY;
    OK(&r, deft_item(deft_max(d, DEFT_ALL_AXES, 0), &worst));
    return worst;
}

Test(attention, is_that_of_all_scores_with_its_derivatives)
{
    static const attention_case cases[] = {
        { 1, 5, 128, 4, 3, true },   { 2, 7, 128, 4, 3, false },  { 2, 40, 129, 4, 3, false },
        { 1, 200, 256, 3, 5, true }, { 2, 300, 260, 2, 2, true }, { 1, 3, 400, 5, 1, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const attention_case *const c = &cases[i];
        deft_tensor *const x[] = { drawn(1, DEFT_SHAPE(c->batch, c->n_queries, c->width)),
                                   drawn(2, DEFT_SHAPE(c->batch, c->n_keys, c->width)),
                                   drawn(3, DEFT_SHAPE(c->batch, c->n_keys, c->width_v)) };
        deft_tensor *got[7], *want[7];
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const y =
            deft_attention(x[0], x[1], x[2], DEFT_ATTENTION(.is_causal = c->is_causal));
        cr_assert(y, "%s", deft_message(r.cx));
        derivatives(y, x, got);
        derivatives(all_scores(x, c), x, want);
        for (int k = 0; k < 7; k++) {
            const double d = apart(got[k], want[k]);
            cr_assert(d < 1e-11, "case %zu, %d: %g", i, k, d);
        }
        OK(&r, deft_scope_end(s));
    }
}

Test(attention, of_one_block_is_its_operations_bit_for_bit)
{
    const attention_case c = { 2, 9, DEFT_ATTENTION_BLOCK, 4, 4, true };
    deft_tensor *const x[] = { drawn(1, DEFT_SHAPE(2, 9, 4)), drawn(2, DEFT_SHAPE(2, c.n_keys, 4)),
                               drawn(3, DEFT_SHAPE(2, c.n_keys, 4)) };
    cr_assert_eq(apart(deft_attention(x[0], x[1], x[2], DEFT_ATTENTION(.is_causal = true)),
                       all_scores(x, &c)),
                 0);
}

/* Expects the first rows of `of_many` to have the bits of `of_few`. */
static void expect_first_rows(deft_tensor *of_few, deft_tensor *of_many, const char *what)
{
    enum { ROOM = 4096 };
    static float few[ROOM], many[ROOM];
    const size_t size = (size_t)deft_numel(of_few) * sizeof *few;
    cr_assert_leq(size, sizeof few);
    deft_tensor *const rows = deft_slice(of_many, DEFT_FULL, DEFT_R(0, deft_dim(of_few, -2)));
    OK(&r, deft_read(of_few, DEFT_F32, few, size));
    OK(&r, deft_read(rows, DEFT_F32, many, size));
    cr_assert(memcmp(few, many, size) == 0, "%s", what);
}

/* Up to 16 queries, all scores are stored; beyond, those of a block of keys. */
Test(attention, of_few_queries_has_the_bits_of_many)
{
    static const int64_t n_keys[] = { 129, 256, 300, 1000 }, n_few[] = { 1, 3, 16 };
    enum { MANY = 17, WIDTH = 7, BATCH = 2 };
    for (int i = 0; i < 2 * 4 * 3; i++) {
        const int64_t t = n_keys[i / 2 % 4], few = n_few[i / 8];
        const deft_attention_options *const o = DEFT_ATTENTION(.is_causal = i % 2 != 0);
        char what[64];
        snprintf(what, sizeof what, "%d of %d queries, %d keys, causal %d", (int)few, MANY, (int)t,
                 o->is_causal);
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *x[3], *q[2], *y[2], *g[2];
        const deft_shape shape[] = { DEFT_SHAPE(BATCH, MANY, WIDTH), DEFT_SHAPE(BATCH, t, WIDTH),
                                     DEFT_SHAPE(BATCH, t, 5) };
        for (unsigned k = 0; k < 3; k++) {
            deft_rng rng = { k, 0 };
            x[k] = deft_normal(r.cx, &rng, shape[k], DEFT_F32, 0, 4);
        }
        q[0] = deft_slice(x[0], DEFT_FULL, DEFT_R(0, few)), q[1] = x[0];
        for (int k = 0; k < 2; k++) {
            y[k] = deft_attention(q[k], x[1], x[2], o);
            deft_tensor *const loss = deft_sum(deft_sin(y[k]), DEFT_ALL_AXES, 0);
            cr_assert(deft_grad(&loss, NULL, 1, &q[k], 1, NULL, &g[k]), "%s", deft_message(r.cx));
        }
        expect_first_rows(y[0], y[1], what);
        expect_first_rows(g[0], g[1], what);
        OK(&r, deft_scope_end(s));
    }
}

/* The sum of the first block becomes -0 when it is scaled, and that of the last block is -0 after
 * its last key. Padding adds 0 to the latter. */
Test(attention, of_few_queries_has_the_zeros_of_many)
{
    enum { T = DEFT_ATTENTION_BLOCK + 2, MANY = 17 };
    float key[T], value[T] = { 0 };
    for (int i = 0; i < T; i++) key[i] = -200;
    key[0] = 0, value[0] = -1e-45f;
    key[T - 2] = 3, value[T - 2] = -0.0f;
    key[T - 1] = 0, value[T - 1] = -1e-45f;
    deft_tensor *const k = rig_tensor(&r, DEFT_SHAPE(1, T, 1), key);
    deft_tensor *const v = rig_tensor(&r, DEFT_SHAPE(1, T, 1), value);
    deft_tensor *const q = deft_full(r.cx, DEFT_SHAPE(1, MANY, 1), DEFT_F32, 1);
    deft_tensor *const one = deft_slice(q, DEFT_FULL, DEFT_R(0, 1));
    expect_first_rows(deft_attention(one, k, v, NULL), deft_attention(q, k, v, NULL), "zeros");
}

Test(attention, of_few_queries_copies_neither_keys_nor_values)
{
    enum { HEADS = 4, KEYS = 1000, WIDTH = 64 };
    rig own;
    rig_open(&own, NULL, NULL);
    deft_tensor *x[3];
    for (int i = 0; i < 3; i++)
        x[i] = deft_keep(deft_zeros(own.cx, DEFT_SHAPE(HEADS, i == 0 ? 1 : KEYS, WIDTH), DEFT_F32));
    OK(&own, deft_eval(x, 3));
    const uint64_t before = rig_stats(&own).peak_bytes;
    deft_tensor *y = deft_attention(x[0], x[1], x[2], NULL);
    OK(&own, deft_eval(&y, 1));
    const uint64_t more = rig_stats(&own).peak_bytes - before;
    cr_assert_lt(more, HEADS * KEYS * WIDTH * sizeof(float), "%llu", (unsigned long long)more);
    rig_close(&own);
}

/* One query to keys and values that grow by one, each in a step. Beyond a block of keys as well. */
static void grow_in_place(deft_numerics numerics)
{
    enum { HEADS = 2, ROOM_FOR = 2 * DEFT_ATTENTION_BLOCK, WIDTH = 8, FIRST = 120 };
    const deft_ctx_options how = { .size = sizeof how, .numerics = numerics };
    rig own;
    rig_open(&own, NULL, &how);
    deft_tensor *all[2],
        *q = deft_keep(deft_full(own.cx, DEFT_SHAPE(HEADS, 1, WIDTH), DEFT_F32, 1));
    for (int i = 0; i < 2; i++)
        all[i] = deft_keep(deft_full(own.cx, DEFT_SHAPE(HEADS, ROOM_FOR, WIDTH), DEFT_F32, i));
    OK(&own, deft_eval(all, 2));
    for (int64_t t = FIRST; t < ROOM_FOR; t++) {
        const uint64_t before = rig_stats(&own).donated;
        const deft_scope s = deft_step_begin(own.cx);
        for (int i = 0; i < 2; i++)
            deft_assign(deft_slice(all[i], DEFT_FULL, DEFT_R(t, t + 1)), deft_mul(q, (double)t));
        deft_keep(deft_attention(q, deft_slice(all[0], DEFT_FULL, DEFT_R(0, t + 1)),
                                 deft_slice(all[1], DEFT_FULL, DEFT_R(0, t + 1)), NULL));
        OK(&own, deft_step_end(s));
        const uint64_t in_place = rig_stats(&own).donated - before;
        cr_assert(t == FIRST || in_place == 2, "%d keys: %d", (int)t + 1, (int)in_place);
    }
    rig_close(&own);
}

Test(attention, of_few_queries_in_fast_mode_lets_keys_and_values_grow_in_place)
{
    grow_in_place(DEFT_FAST);
}

Test(attention, of_few_queries_in_strict_mode_lets_keys_and_values_grow_in_place)
{
    grow_in_place(DEFT_STRICT);
}

Test(attention, batch_axes_of_attention_broadcast)
{
    deft_tensor *const q = drawn(1, DEFT_SHAPE(2, 3, 5, 4)), *const k =
                                                                 drawn(2, DEFT_SHAPE(130, 4));
    deft_tensor *const v = drawn(3, DEFT_SHAPE(3, 130, 2));
    deft_tensor *const y = deft_attention(q, k, v, NULL);
    cr_assert_eq(deft_rank(y), 4);
    const deft_range part[] = { DEFT_AT(1), DEFT_AT(2) };
    deft_tensor *const one = deft_attention(
        deft_slice_n(q, 2, part), k, deft_slice_n(v, 1, part + 1), DEFT_ATTENTION(.scale = 0.5));
    cr_assert_eq(apart(deft_slice_n(y, 2, part), one), 0);
}

/* The gradients of a long attention, f32, on n threads, and the peak of memory. */
static uint64_t long_attention(uint32_t n_threads, int64_t n, float *out)
{
    rig own;
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = n_threads,
                                     .tier = DEFT_TIER_INTERPRET };
    rig_open(&own, &o, NULL);
    deft_rng rng = { 5, 0 };
    deft_tensor *g[3], *x[3];
    const deft_scope s = deft_step_begin(own.cx);
    for (int i = 0; i < 3; i++) x[i] = deft_normal(own.cx, &rng, DEFT_SHAPE(n, 4), DEFT_F32, 0, 1);
    deft_tensor *const y = deft_attention(x[0], x[1], x[2], DEFT_ATTENTION(.is_causal = true));
    deft_tensor *const loss = deft_sum(deft_square(y), DEFT_ALL_AXES, 0);
    cr_assert(deft_grad(&loss, NULL, 1, x, 3, NULL, g), "%s", deft_message(own.cx));
    deft_tensor *const all = deft_keep(deft_stack(g, 3, 0));
    OK(&own, deft_step_end(s));
    OK(&own, deft_read(all, DEFT_F32, out, (size_t)n * 12 * sizeof *out));
    const uint64_t peak = rig_stats(&own).peak_bytes;
    rig_close(&own);
    return peak;
}

Test(attention, never_keeps_all_scores_and_has_the_same_bits_on_any_threads)
{
    const int64_t n = test_size(2048, 1024);
    const size_t bytes = (size_t)n * 12 * sizeof(float);
    float *const one = malloc(bytes), *const four = malloc(bytes);
    cr_assert(one && four);
    const uint64_t peak = long_attention(1, n, one);
    const uint64_t of_block = (uint64_t)n * DEFT_ATTENTION_BLOCK * 4; /* all scores are 8 or more */
    cr_assert_lt(peak, 6 * of_block, "%llu bytes", (unsigned long long)peak);
    long_attention(4, n, four);
    cr_assert(memcmp(one, four, bytes) == 0);
    free(one), free(four);
}

/* The plan of an attention of dtype t over n keys and the gradients of its squares, with heads as
 * networks have them: results are seen through views. */
static char *attention_plan(deft_numerics numerics, deft_dtype t, int64_t n,
                            const deft_attention_options *options)
{
    enum { ROOM = 1 << 20, BATCH = 2, HEADS = 3, WIDTH = 4 };
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    const deft_ctx_options c = { .size = sizeof c, .numerics = numerics };
    static const int32_t heads[] = { 0, 2, 1, 3 };
    const deft_axes order = { 4, { heads[0], heads[1], heads[2], heads[3] } };
    rig own;
    rig_open(&own, &o, &c);
    deft_rng rng = { 5, 0 };
    deft_tensor *x[3], *h[3], *g[3];
    char *const text = calloc(ROOM, 1);
    cr_assert(text);
    const deft_scope s = deft_step_begin(own.cx);
    for (int i = 0; i < 3; i++) {
        x[i] = deft_normal(own.cx, &rng, DEFT_SHAPE(BATCH, n, HEADS * WIDTH), t, 0, 1);
        h[i] = deft_permute(deft_reshape(x[i], DEFT_SHAPE(BATCH, n, HEADS, WIDTH)), order);
    }
    deft_tensor *const y = deft_attention(h[0], h[1], h[2], options);
    deft_tensor *const all = deft_reshape(deft_permute(y, order), DEFT_SHAPE(BATCH, n, 12));
    deft_tensor *const loss = deft_sum(deft_square(all), DEFT_ALL_AXES, 0);
    cr_assert(deft_grad(&loss, NULL, 1, x, 3, NULL, g), "%s", deft_message(own.cx));
    for (int i = 0; i < 3; i++) g[i] = deft_keep(g[i]);
    OK(&own, deft_step_end(s));
    cr_assert_lt(deft_show(own.cx, "trace", text, ROOM), ROOM);
    strcat(text, "--- plan\n");
    const size_t n_trace = strlen(text);
    cr_assert_lt(deft_show(own.cx, "plan", text + n_trace, ROOM - n_trace), ROOM - n_trace);
    rig_close(&own);
    return text;
}

Test(attention, plans_know_loops_that_are_attention)
{
    char *text = attention_plan(DEFT_FAST, DEFT_F16, 256, DEFT_ATTENTION(.is_causal = true));
    cr_assert(strstr(text, "most=2 attention from=f16 causal scaled\n"), "%s", text);
    cr_assert(strstr(text, "most=2 attention_grad from=f16 causal scaled\n"), "%s", text);
    cr_assert(strstr(text, " which is causal attention of f16 scaled, "), "%s", text);
    cr_assert(strstr(text, " which is causal attention_grad of f16 scaled, "), "%s", text);
    free(text);
    text = attention_plan(DEFT_FAST, DEFT_F32, 384, DEFT_ATTENTION(.scale = 1));
    cr_assert(strstr(text, "most=3 attention from=f32\n"), "%s", text);
    cr_assert(strstr(text, " which is attention of f32, "), "%s", text);
    cr_assert(strstr(text, " which is attention_grad of f32, "), "%s", text);
    free(text);
    /* Strict traces and padded keys have tags, too; f64 has no code. */
    text = attention_plan(DEFT_STRICT, DEFT_F32, 256, NULL);
    cr_assert(strstr(text, "most=2 attention from=f32 scaled\n"), "%s", text);
    cr_assert(strstr(text, " which is attention of f32 scaled, "), "%s", text);
    free(text);
    text = attention_plan(DEFT_FAST, DEFT_F32, 300, NULL);
    cr_assert(strstr(text, " attention from=f32 scaled padded\n"), "%s", text);
    cr_assert(strstr(text, " which is attention of f32 scaled padded, "), "%s", text);
    free(text);
    text = attention_plan(DEFT_FAST, DEFT_F64, 256, NULL);
    cr_assert_not(strstr(text, " which is "), "%s", text);
    free(text);
}

static deft_status attend_each(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_attention(in[0], in[1], in[2], NULL);
    return out[0] ? DEFT_OK : DEFT_E_STATE;
}

/* The plan of attention for each of many examples; q and k, v: 0, or DEFT_NOT_MAPPED. */
static char *plan_for_examples(int qk, int v)
{
    enum { ROOM = 1 << 20, N = 3 };
    const deft_ctx_options c = { .size = sizeof c, .numerics = DEFT_FAST };
    const int axes[] = { qk, qk, v };
    rig own;
    rig_open(&own, NULL, &c);
    deft_rng rng = { 5, 0 };
    deft_tensor *x[3], *y;
    char *const text = calloc(ROOM, 1);
    cr_assert(text);
    const deft_scope s = deft_step_begin(own.cx);
    for (int i = 0; i < 3; i++)
        x[i] = deft_normal(own.cx, &rng, axes[i] == 0 ? DEFT_SHAPE(N, 256, 4) : DEFT_SHAPE(256, 4),
                           DEFT_F32, 0, 1);
    cr_assert(deft_vmap(own.cx, attend_each, NULL, x, axes, 3, &y, NULL, 1), "%s",
              deft_message(own.cx));
    (void)deft_keep(y);
    OK(&own, deft_step_end(s));
    cr_assert_lt(deft_show(own.cx, "plan", text, ROOM), ROOM);
    rig_close(&own);
    return text;
}

/* Where only values are of examples, products are over different batches. */
Test(attention, of_examples_is_known_where_products_have_one_batch)
{
    char *text = plan_for_examples(0, 0);
    cr_assert(strstr(text, " which is attention of f32 scaled, "), "%s", text);
    free(text);
    text = plan_for_examples(DEFT_NOT_MAPPED, 0);
    cr_assert(strstr(text, " loop most "), "%s", text);
    cr_assert_not(strstr(text, " which is "), "%s", text);
    free(text);
}

Test(attention, what_attention_records_belongs_to_the_line_of_the_call)
{
    char text[1 << 15];
    deft_tensor *const q = drawn(1, DEFT_SHAPE(3, 2)), *const k = drawn(2, DEFT_SHAPE(300, 2));
    deft_tensor *const y = deft_attention(q, k, k, NULL);
    deft_tensor *g;
    cr_assert(deft_grad(&y, &y, 1, &q, 1, NULL, &g), "%s", deft_message(r.cx));
    OK(&r, deft_eval(&g, 1));
    cr_assert_lt(deft_show(r.cx, "sites", text, sizeof text), sizeof text);
    const char *site = NULL;
    size_t length = 0;
    int n = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        const char *const at = strstr(line, " # ");
        if (!at || strstr(line, " = input ")) continue;
        if (!site) site = at, length = strlen(at);
        cr_assert(strlen(at) == length && !memcmp(site, at, length), "%s; before: %s", line, site);
        n++;
    }
    cr_assert_gt(n, 20);
}

Test(attention, mistakes_of_attention)
{
    deft_tensor *const q = deft_ones(r.cx, DEFT_SHAPE(2, 3, 4), DEFT_F32);
    deft_tensor *const k = deft_ones(r.cx, DEFT_SHAPE(2, 5, 4), DEFT_F32);
    rig_expect_error(&r, deft_attention(q, deft_t(k), k, NULL), DEFT_E_SHAPE,
                     "attention: q is [2,3,4], k is [2,4,5], v is [2,5,4]; it takes");
    rig_expect_error(&r, deft_attention(q, k, deft_ones(r.cx, DEFT_SHAPE(3, 5, 4), DEFT_F32), NULL),
                     DEFT_E_SHAPE, "v is [3,5,4]");
    deft_tensor *const none = deft_ones(r.cx, DEFT_SHAPE(2, 0, 4), DEFT_F32);
    rig_expect_error(&r, deft_attention(q, none, none, NULL), DEFT_E_SHAPE, "T at least 1");
    rig_expect_error(&r, deft_attention(q, k, deft_cast(k, DEFT_F64), NULL), DEFT_E_DTYPE,
                     "attention: q is f32, k is f32, v is f64; it takes floats of one dtype");
    rig_expect_error(&r, deft_attention(q, k, k, &(const deft_attention_options){ 0 }), DEFT_E_ARG,
                     "_options is 0");
}

/* ---- halves ---- */
