/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators of the program: that a call is what its body records, under its name; gradients and
 * batch rules of their own; and every mistake.
 *
 * Why this file is long: each mistake needs a body, a gradient or a rule that makes it.
 */
#include "support/harness.h"
#include "support/operator_functions.h"

#include <string.h>
#include <stdlib.h>
#include <unistd.h>

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 1);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(extend, .init = set_up, .fini = tear_down);

#define VECTOR(...) RIG_VECTOR(&r, __VA_ARGS__)
#define EXPECT(t, ...) RIG_EXPECT(&r, t, __VA_ARGS__)
#define DEF(...) (&(deft_op_def){ .size = sizeof(deft_op_def), .version = 1, __VA_ARGS__ })

static const deft_op *define(const deft_op_def *d)
{
    char why[256];
    deft_op *op = NULL;
    cr_assert_eq(deft_op_define(r.rt, d, &op, why, sizeof why), DEFT_OK, "%s", why);
    cr_assert_str_eq(why, "");
    return op;
}

/* The result of an operator of one result. NULL for a mistake. */
static deft_tensor *call(const deft_op *op, deft_tensor *const *in, size_t n_in,
                         const void *attributes)
{
    deft_tensor *out = NULL;
    return deft_op_call(r.cx, op, in, n_in, attributes, &out, 1) ? out : NULL;
}
#define CALL(op, attributes, ...)                                                                  \
    call((op), (deft_tensor *const[]){ __VA_ARGS__ },                                              \
         sizeof((deft_tensor *const[]){ __VA_ARGS__ }) / sizeof(deft_tensor *), (attributes))

/* ---- operators ---- */

BODY(rms_norm)
{
    const double *const eps = user;
    (void)cx, (void)n_in, (void)n_out;
    deft_tensor *const mean = deft_mean(deft_square(in[0]), DEFT_AXES(-1), true);
    out[0] = deft_mul(deft_div(in[0], deft_sqrt(deft_add(mean, *eps))), in[1]);
    return DEFT_OK;
}

static const deft_op_def rms_norm_def = { .size = sizeof(deft_op_def),
                                          .name = "acme.rms_norm",
                                          .version = 1,
                                          .n_in = 2,
                                          .n_out = 1,
                                          .attribute_bytes = sizeof(double),
                                          .body = rms_norm };

static const double eps = 1e-6;

/* x / 2 (1 + tanh(...)), of rms_norm. */
BODY(block)
{
    deft_tensor *norm;
    (void)n_out;
    if (!deft_op_call(cx, *(const deft_op *const *)user, in, n_in, &eps, &norm, 1))
        return DEFT_E_STATE;
    out[0] = deft_tanh(norm);
    return DEFT_OK;
}

BODY(times)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(in[0], in[1]);
    return DEFT_OK;
}

/* in[0] in[1], and twice the gradient of in[0]. */
GRADIENT(times_back)
{
    (void)cx, (void)n_in, (void)out, (void)n_out;
    grad_in[0] = deft_mul(deft_mul(grad_out[0], in[1]), user ? *(double *)user : 2.0);
    grad_in[1] = deft_mul(grad_out[0], in[0]);
    return DEFT_OK;
}

/* ---- the same as by hand ---- */

/* The trace, its key and the plan of the latest cut. */
static char *shown(void)
{
    static const char *const what[] = { "trace", "key", "guards", "plan" };
    char *const text = calloc(4, 1 << 16);
    for (size_t i = 0; i < 4; i++) {
        cr_assert(deft_show(r.cx, what[i], text + strlen(text), 1 << 16) < 1 << 16);
    }
    return text;
}

static deft_tensor *norm_of(const deft_op *op, deft_tensor *x, deft_tensor *gain)
{
    deft_tensor *out = NULL;
    if (op) return CALL(op, &eps, x, gain);
    (void)rms_norm(r.cx, (deft_tensor *const[]){ x, gain }, 2, &out, 1, (void *)(uintptr_t)&eps);
    return out;
}

/* A network of two norms, by the operator or by hand; its result, or a gradient. */
static char *plan_of_network(const deft_op *op, deft_tensor *x, deft_tensor *gain, bool is_gradient)
{
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const h = deft_gelu(norm_of(op, x, gain));
    deft_tensor *const y = deft_add(norm_of(op, h, gain), x);
    deft_tensor *const loss = deft_sum(deft_square(y), DEFT_ALL_AXES, false);
    deft_tensor *g[2] = { y, y };
    if (is_gradient)
        cr_assert(deft_grad(&loss, NULL, 1, (deft_tensor *const[]){ x, gain }, 2, NULL, g));
    OK(&r, deft_eval(g, 2));
    char *const text = shown();
    OK(&r, deft_scope_end(s));
    return text;
}

Test(extend, has_the_plan_of_the_same_calls_by_hand)
{
    const deft_op *const op = define(&rms_norm_def);
    deft_tensor *const x = rig_tensor(&r, DEFT_SHAPE(2, 3), (float[]){ 1, 2, 3, -4, 5, 6 });
    deft_tensor *const gain = VECTOR(1, 2, 3);
    for (int i = 0; i < 2; i++) {
        char *const by_hand = plan_of_network(NULL, x, gain, i);
        char *const by_op = plan_of_network(op, x, gain, i);
        cr_assert(strlen(by_hand) > 100);
        cr_assert_str_eq(by_op, by_hand);
        free(by_hand);
        free(by_op);
    }
    const deft_stats s = rig_stats(&r);
    cr_assert_eq(s.plans_built, 2, "%d", (int)s.plans_built);
}

typedef struct one_norm {
    const deft_op *op;
} one_norm;

BODY(one_example)
{
    UNUSED;
    out[0] = norm_of(((one_norm *)user)->op, in[0], in[1]);
    return DEFT_OK;
}

Test(extend, has_the_plan_of_the_same_calls_in_vmap_and_loops)
{
    const deft_op *const op = define(&rms_norm_def);
    deft_tensor *const x = rig_tensor(&r, DEFT_SHAPE(2, 3), (float[]){ 1, 2, 3, -4, 5, 6 });
    deft_tensor *const gain = VECTOR(1, 2, 3);
    char *text[2][2];
    for (int i = 0; i < 2; i++) {
        one_norm one = { i ? op : NULL };
        deft_tensor *y, *const in[] = { x, gain };
        const deft_scope s = deft_scope_begin(r.cx);
        cr_assert(deft_vmap(r.cx, one_example, &one, in, (const int[]){ 0, DEFT_NOT_MAPPED }, 2, &y,
                            NULL, 1));
        OK(&r, deft_eval(&y, 1));
        text[0][i] = shown();
        deft_tensor *out;
        cr_assert(deft_scan(r.cx, one_example, &one, &gain, 1, &x, 1, 2, 0, &out), "%s",
                  deft_message(r.cx));
        OK(&r, deft_eval(&out, 1));
        text[1][i] = shown();
        OK(&r, deft_scope_end(s));
    }
    for (int i = 0; i < 2; i++) {
        cr_assert_str_eq(text[i][0], text[i][1]);
        free(text[i][0]);
        free(text[i][1]);
    }
}

/* ---- its name ---- */

Test(extend, has_its_name_in_traces_and_sentences)
{
    const deft_op *norm = define(&rms_norm_def);
    const deft_op *const outer = define(DEF(.name = "acme.block", .n_in = 2, .n_out = 1,
                                            .attribute_bytes = sizeof norm, .body = block));
    deft_tensor *const x = VECTOR(1, 2), *const gain = VECTOR(3, 4);
    static char text[8192];
    deft_label_begin(r.cx, "encoder");
    deft_site(r.cx, "model.c", 41);
    deft_tensor *const y = CALL(outer, &norm, x, gain);
    deft_site(r.cx, NULL, 0);
    deft_label_end(r.cx);
    deft_tensor *const z = deft_neg(y);
    OK(&r, deft_eval(&z, 1));
    deft_show(r.cx, "sites", text, sizeof text);
    cr_assert(strstr(text, "# at model.c:41 in encoder/acme.block/acme.rms_norm"), "%s", text);
    cr_assert(strstr(text, "# at model.c:41 in encoder/acme.block\n"), "%s", text);
    cr_assert(!strstr(strstr(text, "neg"), "acme"), "%s", text);

    deft_site(r.cx, "model.c", 42);
    rig_expect_error(&r, CALL(norm, &eps, x, VECTOR(1, 2, 3)), DEFT_E_SHAPE,
                     ", at model.c:42 in acme.rms_norm");
    deft_site(r.cx, NULL, 0);
    cr_assert_str_eq(deft_op_name(norm), "acme.rms_norm");
    cr_assert_eq(deft_op_version(norm), 1);
    cr_assert_str_eq(deft_op_name(NULL), "");
    cr_assert_eq(deft_op_version(NULL), 0);
}

BODY(with_own_labels)
{
    UNUSED;
    deft_label_begin(cx, "half");
    deft_tensor *const half = deft_mul(in[0], 0.5);
    deft_label_end(cx);
    out[0] = deft_exp(half);
    return DEFT_OK;
}

Test(extend, may_have_labels_inside)
{
    static char text[8192];
    const deft_op *const op =
        define(DEF(.name = "acme.labels", .n_in = 1, .n_out = 1, .body = with_own_labels));
    deft_tensor *const y = deft_neg(CALL(op, NULL, VECTOR(1)));
    OK(&r, deft_eval(&y, 1));
    deft_show(r.cx, "sites", text, sizeof text);
    cr_assert(strstr(text, " in acme.labels/half\n"), "%s", text);
    cr_assert(strstr(strstr(text, "exp"), " in acme.labels\n"), "%s", text);
    cr_assert(!strstr(strstr(text, "neg"), "acme"), "%s", text);
}

BODY(ends_a_label)
{
    UNUSED;
    deft_label_end(cx);
    out[0] = in[0];
    return DEFT_OK;
}

Test(extend, does_not_end_labels_of_others)
{
    const deft_op *const op =
        define(DEF(.name = "acme.ends", .n_in = 1, .n_out = 1, .body = ends_a_label));
    deft_label_begin(r.cx, "mine");
    rig_expect_error(&r, CALL(op, NULL, VECTOR(1)), DEFT_E_STATE, "label");
    deft_label_end(r.cx);
    cr_assert_eq(deft_error(r.cx), DEFT_OK, "%s", deft_message(r.cx));
}

/* A gradient that fails is the mistake of the call whose gradient it is. */
GRADIENT(fails_back)
{
    UNUSED;
    (void)grad_out, (void)grad_in;
    return deft_op_fail(cx, DEFT_E_DTYPE, "not today");
}

Test(extend, has_its_name_in_sentences_about_its_gradient)
{
    const deft_op *const op =
        define(DEF(.name = "acme.fails", .n_in = 2, .n_out = 1, .body = times, .grad = fails_back));
    deft_tensor *const x = VECTOR(1, 2);
    deft_site(r.cx, "model.c", 7);
    deft_tensor *const y = CALL(op, NULL, x, x);
    deft_site(r.cx, "train.c", 99);
    rig_expect_error(&r, rig_grad_of_sum(y, x), DEFT_E_DTYPE,
                     "acme.fails: not today, at model.c:7 in acme.fails");
    deft_site(r.cx, NULL, 0);
}

/* ---- gradients and batch rules of their own ---- */

static const deft_op *doubled(void)
{
    return define(DEF(.name = "acme.doubled", .n_in = 2, .n_out = 1, .body = times,
                      .grad = times_back, .attribute_bytes = sizeof(double)));
}

Test(extend, has_the_gradient_it_defines)
{
    const deft_op *const op = doubled();
    deft_tensor *const x = VECTOR(1, 2), *const y = VECTOR(3, 4);
    double factor = 5;
    deft_tensor *const z = CALL(op, &factor, x, y);
    factor = 1e9; /* the call has a copy */
    EXPECT(z, 3, 8);
    EXPECT(rig_grad_of_sum(z, x), 15, 20);
    EXPECT(rig_grad_of_sum(z, y), 1, 2);
    /* Of x x, whose gradient is 5 x + x. The second one passes through what the first recorded. */
    deft_tensor *const g = rig_grad_of_sum(CALL(op, &(double){ 5 }, x, x), x);
    EXPECT(g, 6, 12);
    EXPECT(rig_grad_of_sum(g, x), 6, 6);
    /* Forward mode is reverse mode, twice. */
    deft_tensor *const w = CALL(op, &(double){ 5 }, x, y);
    deft_tensor *const tangent = VECTOR(1, 0.5f);
    deft_tensor *out;
    cr_assert(deft_jvp(&w, 1, &x, &tangent, 1, NULL, &out), "%s", deft_message(r.cx));
    EXPECT(out, 15, 10);
}

BODY(state_times_row)
{
    UNUSED;
    return deft_op_call(cx, *(const deft_op *const *)user, in, 2, &(double){ 5 }, out, 1)
               ? DEFT_OK
               : DEFT_E_STATE;
}

/* The states are 2, 6, 24. */
Test(extend, has_its_gradient_within_a_loop_and_a_branch)
{
    const deft_op *op = doubled();
    deft_tensor *const x = VECTOR(2), *const w = VECTOR(3, 4);
    deft_tensor *const rows = deft_reshape(w, DEFT_SHAPE(2, 1));
    deft_tensor *out, *g, *const in[] = { x, VECTOR(7) };
    cr_assert(deft_scan(r.cx, state_times_row, &op, &x, 1, &rows, 1, 2, 0, &out));
    cr_assert(deft_grad(&out, NULL, 1, &w, 1, NULL, &g), "%s", deft_message(r.cx));
    EXPECT(g, 5 * 2 * 4, 6);
    deft_tensor *const yes = deft_all(deft_gt(x, 0), DEFT_ALL_AXES, false);
    cr_assert(deft_cond(yes, state_times_row, state_times_row, &op, in, 2, &out, 1));
    EXPECT(rig_grad_of_sum(out, x), 35);
}

static int n_rules;

/* times, for many examples; wrong by 100 where it is used, so that the tests see it. */
RULE(times_of_all)
{
    UNUSED;
    deft_tensor *const y = deft_mul(in[0], in[1]);
    cr_assert(is_mapped[0] || is_mapped[1]);
    n_rules++;
    (void)n;
    out[0] = deft_add(y, 100);
    return DEFT_OK;
}

static const deft_op *with_rule(bool has_gradient)
{
    return define(DEF(.name = has_gradient ? "acme.both" : "acme.rule", .n_in = 2, .n_out = 1,
                      .body = times, .grad = has_gradient ? times_back : NULL,
                      .batch = times_of_all, .attribute_bytes = sizeof(double)));
}

BODY(of_each)
{
    UNUSED;
    deft_tensor *y;
    if (!deft_op_call(cx, *(const deft_op *const *)user, in, 2, &(double){ 5 }, &y, 1))
        return DEFT_E_STATE;
    out[0] = deft_neg(y);
    return DEFT_OK;
}

static deft_tensor *mapped(deft_body_fn fn, const deft_op *op, deft_tensor *x, deft_tensor *y,
                           int axis_of_y)
{
    deft_tensor *out = NULL;
    deft_tensor *const in[] = { x, y };
    return deft_vmap(r.cx, fn, &op, in, (const int[]){ 0, axis_of_y }, 2, &out, NULL, 1) ? out
                                                                                         : NULL;
}

Test(extend, has_the_batch_rule_it_defines)
{
    for (int has_gradient = 0; has_gradient < 2; has_gradient++) {
        const deft_op *const op = with_rule(has_gradient);
        deft_tensor *const x = VECTOR(1, 2), *const y = VECTOR(3, 4);
        n_rules = 0;
        EXPECT(CALL(op, &(double){ 5 }, x, y), 3, 8);
        cr_assert_eq(n_rules, 0);
        EXPECT(mapped(of_each, op, x, y, 0), -103, -108);
        cr_assert_eq(n_rules, 1);
        EXPECT(mapped(of_each, op, x, deft_sum(y, DEFT_ALL_AXES, false), DEFT_NOT_MAPPED), -107,
               -114);
        deft_tensor *const z = mapped(of_each, op, x, y, 0);
        EXPECT(rig_grad_of_sum(z, x), has_gradient ? -15 : -3, has_gradient ? -20 : -4);
    }
}

BODY(gradient_of_each)
{
    UNUSED;
    deft_tensor *y;
    if (!deft_op_call(cx, *(const deft_op *const *)user, in, 2, &(double){ 5 }, &y, 1))
        return DEFT_E_STATE;
    return deft_grad(&y, NULL, 1, in, 1, NULL, out) ? DEFT_OK : DEFT_E_STATE;
}

BODY(of_each_row)
{
    deft_tensor *y = NULL;
    (void)n_in, (void)n_out;
    if (!deft_vmap(cx, of_each, user, in, NULL, 2, &y, NULL, 1)) return DEFT_E_STATE;
    out[0] = y;
    return DEFT_OK;
}

Test(extend, has_its_batch_rule_inside_gradients_and_other_examples)
{
    for (int has_gradient = 0; has_gradient < 2; has_gradient++) {
        const deft_op *const op = with_rule(has_gradient);
        deft_tensor *const x = VECTOR(1, 2), *const y = VECTOR(3, 4);
        EXPECT(mapped(gradient_of_each, op, x, y, 0), has_gradient ? 15 : 3, has_gradient ? 20 : 4);
        n_rules = 0;
        deft_tensor *const a = rig_tensor(&r, DEFT_SHAPE(2, 2), (float[]){ 1, 2, 3, 4 });
        deft_tensor *const z = mapped(of_each_row, op, a, a, 0);
        EXPECT(z, -101, -104, -109, -116);
        cr_assert_eq(n_rules, 1);
        EXPECT(rig_grad_of_sum(z, a), has_gradient ? -6 : -2, has_gradient ? -12 : -4,
               has_gradient ? -18 : -6, has_gradient ? -24 : -8);
    }
}

/* in[0] times what an operator makes of a tensor that is the same for all examples. */
BODY(beside_examples)
{
    UNUSED;
    deft_tensor *y;
    if (!deft_op_call(cx, *(const deft_op *const *)user, (deft_tensor *const[]){ in[1], in[1] }, 2,
                      &(double){ 5 }, &y, 1))
        return DEFT_E_STATE;
    out[0] = deft_mul(in[0], y);
    return DEFT_OK;
}

/* The same in a loop, which is recorded again because its state depends on examples. */
BODY(loop_beside_examples)
{
    (void)n_in, (void)n_out;
    deft_tensor *const rows = deft_expand(deft_unsqueeze(in[1], 0), DEFT_SHAPE(2));
    return deft_scan(cx, beside_examples, user, in, 1, &rows, 1, 2, 0, out) ? DEFT_OK
                                                                            : DEFT_E_STATE;
}

Test(extend, needs_no_batch_rule_where_nothing_is_mapped)
{
    const deft_op *const op = with_rule(false);
    deft_tensor *const x = VECTOR(1, 2);
    deft_tensor *const two = deft_sum(VECTOR(2), DEFT_ALL_AXES, false);
    n_rules = 0;
    EXPECT(mapped(beside_examples, op, x, two, DEFT_NOT_MAPPED), 4, 8);
    EXPECT(mapped(loop_beside_examples, op, x, two, DEFT_NOT_MAPPED), 16, 32);
    cr_assert_eq(n_rules, 0);
}

static deft_tensor *hidden;

BODY(uses_hidden)
{
    UNUSED;
    out[0] = deft_mul(in[0], hidden);
    return DEFT_OK;
}

BODY(hides)
{
    UNUSED;
    hidden = in[1];
    return deft_op_call(cx, *(const deft_op *const *)user, in, 1, NULL, out, 1) ? DEFT_OK
                                                                                : DEFT_E_STATE;
}

RULE(same)
{
    UNUSED;
    (void)n, (void)is_mapped;
    out[0] = in[0];
    return DEFT_OK;
}

RULE(off_by_an_axis)
{
    UNUSED;
    (void)n, (void)is_mapped;
    out[0] = deft_t(in[0]);
    return DEFT_OK;
}

RULE(makes_nothing)
{
    UNUSED;
    (void)n, (void)is_mapped;
    return DEFT_OK;
}

RULE(fails_rule)
{
    UNUSED;
    (void)n, (void)is_mapped;
    return DEFT_E_LIMIT;
}

RULE(reads_in_rule)
{
    UNUSED;
    float v;
    (void)n, (void)is_mapped;
    if (deft_item_f32(in[0], &v) == DEFT_OK) return DEFT_E_INTERNAL;
    out[0] = in[0];
    return DEFT_OK;
}

BODY(same_of_one)
{
    UNUSED;
    out[0] = deft_exp(in[0]);
    return DEFT_OK;
}

BODY(each_alone)
{
    UNUSED;
    return deft_op_call(cx, *(const deft_op *const *)user, in, 1, NULL, out, 1) ? DEFT_OK
                                                                                : DEFT_E_STATE;
}

Test(extend, reports_wrong_batch_rules)
{
    static const struct {
        const char *name;
        deft_op_batch_fn rule;
        deft_status st;
        const char *part;
    } row[] = {
        { "acme.axis", off_by_an_axis, DEFT_E_SHAPE,
          "acme.axis: its batch rule makes result 0 f32[3,2], it must be f32[2,3]" },
        { "acme.nothing", makes_nothing, DEFT_E_ARG,
          "acme.nothing: its batch rule leaves result 0 of 1 NULL" },
        { "acme.fails", fails_rule, DEFT_E_LIMIT, "acme.fails: its batch rule failed" },
        { "acme.reads", reads_in_rule, DEFT_E_STATE,
          "acme.reads: its batch rule asks for a value" },
    };
    deft_tensor *const a = rig_tensor(&r, DEFT_SHAPE(2, 3), (float[]){ 1, 2, 3, 4, 5, 6 });
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const deft_op *const op = define(DEF(.name = row[i].name, .n_in = 1, .n_out = 1,
                                             .body = same_of_one, .batch = row[i].rule));
        rig_expect_error(&r, mapped(each_alone, op, a, a, 0), row[i].st, row[i].part);
    }
    const deft_op *const op = define(
        DEF(.name = "acme.hidden", .n_in = 1, .n_out = 1, .body = uses_hidden, .batch = same));
    rig_expect_error(&r, mapped(hides, op, a, a, 0), DEFT_E_STATE,
                     "acme.hidden: its body uses a tensor that depends on an example");
}

/* ---- captures, numbers, draws ---- */

static const deft_op *norm_in_capture;

static deft_status captured(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    deft_tensor *const both[] = { in[0], user ? deft_num(cx, 3) : deft_param_f(cx, "gain") };
    (void)n_in, (void)n_out;
    return deft_op_call(cx, norm_in_capture, both, 2, &eps, out, 1) ? DEFT_OK : DEFT_E_STATE;
}

Test(extend, is_captured_with_its_numbers)
{
    norm_in_capture = define(&rms_norm_def);
    deft_capture *c = deft_capture_create(r.cx, captured, NULL);
    deft_tensor *y;
    for (int i = 1; i <= 3; i++) {
        deft_tensor *const x = VECTOR(3 * (float)i, 4 * (float)i);
        OK(&r, deft_capture_set_f(c, "gain", i));
        OK(&r, deft_capture_call(c, &x, 1, &y, 1));
        float v[2];
        rig_read(&r, y, v, 2);
        cr_assert_float_eq(v[0], 0.6f * 1.4142135f * (float)i, 1e-5f);
        cr_assert_float_eq(v[1], 0.8f * 1.4142135f * (float)i, 1e-5f);
    }
    deft_capture_stats s;
    deft_capture_stats_read(c, &s, sizeof s);
    cr_assert_eq(s.replayed, 2, "%s", deft_capture_reason(c));
    deft_capture_destroy(&c);
    /* A bare number among the inputs would be fixed by accident. */
    c = deft_capture_create(r.cx, captured, &r);
    deft_tensor *const x = VECTOR(3, 4);
    cr_assert_eq(deft_capture_call(c, &x, 1, &y, 1), DEFT_E_STATE);
    cr_assert(strstr(deft_message(r.cx), "acme.rms_norm: the number 3"), "%s", deft_message(r.cx));
    deft_capture_destroy(&c);
}

BODY(dropped)
{
    UNUSED;
    deft_rng *const rng = *(deft_rng *const *)user;
    deft_tensor *const u = deft_uniform(cx, rng, deft_shape_get(in[0]), DEFT_F32, 0, 1);
    out[0] = deft_mul(in[0], u);
    return DEFT_OK;
}

BODY(drops_in_loop)
{
    (void)n_out;
    return deft_op_call(cx, ((const deft_op *const *)user)[0], in, n_in, (void **)user + 1, out, 1)
               ? DEFT_OK
               : DEFT_E_STATE;
}

Test(extend, may_draw_where_its_caller_may)
{
    const deft_op *const op = define(DEF(.name = "acme.drop", .n_in = 1, .n_out = 1,
                                         .body = dropped, .attribute_bytes = sizeof(void *)));
    deft_rng rng = { .seed = 7 }, same = rng;
    deft_rng *at = &rng;
    deft_tensor *const x = VECTOR(1, 1, 1);
    deft_tensor *const y = CALL(op, &at, x);
    deft_tensor *const u = deft_uniform(r.cx, &same, DEFT_SHAPE(3), DEFT_F32, 0, 1);
    float want[3];
    rig_read(&r, u, want, 3);
    rig_expect(&r, y, 3, want);
    const void *user[] = { op, &rng };
    deft_tensor *out = NULL;
    cr_assert(deft_vmap(r.cx, drops_in_loop, user, &x, NULL, 1, &out, NULL, 1), "%s",
              deft_message(r.cx));
    out = NULL;
    (void)deft_scan(r.cx, drops_in_loop, user, &x, 1, NULL, 0, 2, 0, &out);
    rig_expect_error(&r, out, DEFT_E_STATE, "uniform: inside a loop");
}

/* ---- results ---- */

BODY(views)
{
    UNUSED;
    out[0] = deft_slice(in[0], DEFT_R(0, 1));
    out[1] = in[0];
    out[2] = deft_num(cx, 2.5);
    return DEFT_OK;
}

BODY(one_twice)
{
    UNUSED;
    out[0] = out[1] = deft_neg(in[0]);
    return DEFT_OK;
}

Test(extend, has_results_of_its_own)
{
    const deft_op *const op =
        define(DEF(.name = "acme.views", .n_in = 1, .n_out = 3, .body = views));
    const deft_op *const same =
        define(DEF(.name = "acme.twice", .n_in = 1, .n_out = 2, .body = one_twice));
    for (int in_scope = 0; in_scope < 2; in_scope++) {
        const deft_scope s = in_scope ? deft_scope_begin(r.cx) : (deft_scope){ 0 };
        deft_tensor *out[3], *const x = VECTOR(1, 2);
        out[0] = x; /* the list of inputs may be that of the results */
        cr_assert(deft_op_call(r.cx, op, out, 1, NULL, out, 3), "%s", deft_message(r.cx));
        deft_assign(out[0], 7);
        deft_assign(out[1], 8);
        EXPECT(x, 1, 2);
        EXPECT(out[0], 7);
        EXPECT(out[1], 8, 8);
        EXPECT(out[2], 2.5f);
        cr_assert(deft_op_call(r.cx, same, &x, 1, NULL, out, 2), "%s", deft_message(r.cx));
        deft_assign(out[0], 7);
        EXPECT(out[1], -1, -2);
        if (in_scope) OK(&r, deft_scope_end(s));
    }
}

/* Leaves a scope open, and gives what was made in it. */
BODY(opens)
{
    UNUSED;
    (void)deft_scope_begin(cx);
    out[0] = out[1] = deft_exp(in[0]);
    return DEFT_OK;
}

Test(extend, ends_the_scopes_that_its_body_leaves_open)
{
    const deft_op *const op =
        define(DEF(.name = "acme.opens", .n_in = 1, .n_out = 2, .body = opens));
    for (int in_scope = 0; in_scope < 2; in_scope++) {
        const deft_scope s = in_scope ? deft_scope_begin(r.cx) : (deft_scope){ 0 };
        deft_tensor *out[2], *const x = VECTOR(0, 0);
        cr_assert(deft_op_call(r.cx, op, &x, 1, NULL, out, 2), "%s", deft_message(r.cx));
        EXPECT(out[0], 1, 1);
        EXPECT(out[1], 1, 1);
        if (in_scope) OK(&r, deft_scope_end(s));
    }
}

BODY(no_input)
{
    UNUSED;
    out[0] = deft_ones(cx, DEFT_SHAPE(2), DEFT_F32);
    return DEFT_OK;
}

BODY(conjugate)
{
    UNUSED;
    out[0] = deft_conj(in[0]);
    return DEFT_OK;
}

Test(extend, takes_any_dtype_and_no_input)
{
    const deft_op *op = define(DEF(.name = "acme.ones", .n_out = 1, .body = no_input));
    deft_tensor *y;
    cr_assert(deft_op_call(r.cx, op, NULL, 0, NULL, &y, 1));
    EXPECT(y, 1, 1);
    op = define(DEF(.name = "acme.conj", .n_in = 1, .n_out = 1, .body = conjugate));
    y = CALL(op, NULL, deft_complex(VECTOR(1), VECTOR(2)));
    cr_assert_eq(deft_dtype_of(y), DEFT_C64);
    EXPECT(deft_imag(y), -2);
}

Test(extend, is_called_under_a_budget)
{
    deft_ctx *cx;
    const deft_ctx_options o = { .size = sizeof o, .max_nodes = 24 };
    cr_assert_eq(deft_ctx_create(r.rt, &o, &cx), DEFT_OK);
    const deft_op *const op = doubled();
    deft_tensor *const x = deft_full(cx, DEFT_SHAPE(2), DEFT_F64, 1.01);
    deft_tensor *y = x, *g;
    for (int i = 0; i < 40; i++)
        cr_assert(deft_op_call(cx, op, (deft_tensor *const[]){ y, x }, 2, &(double){ 1 }, &y, 1),
                  "%s", deft_message(cx));
    deft_tensor *const sum = deft_sum(y, DEFT_ALL_AXES, false);
    cr_assert(deft_grad(&sum, NULL, 1, &x, 1, NULL, &g), "%s", deft_message(cx));
    double v[2], want = 41;
    cr_assert_eq(deft_read(g, DEFT_F64, v, sizeof v), DEFT_OK, "%s", deft_message(cx));
    for (int i = 0; i < 40; i++) want *= 1.01;
    cr_assert_float_eq(v[0], want, 1e-9);
    deft_stats s;
    deft_stats_read(cx, &s, sizeof s);
    cr_assert(s.cuts > 2);
    deft_ctx_destroy(&cx);
}

/* ---- mistakes of bodies and calls ---- */

BODY(leaves_one)
{
    UNUSED;
    out[0] = in[0];
    return DEFT_OK;
}

BODY(sets_too_many)
{
    UNUSED;
    out[0] = out[1] = out[2] = in[0];
    return DEFT_OK;
}

BODY(only_fails)
{
    UNUSED;
    out[0] = out[1] = in[0];
    return DEFT_E_RANGE;
}

BODY(reads)
{
    float v = 0;
    UNUSED;
    if (deft_item_f32(in[0], &v) == DEFT_OK) return DEFT_E_INTERNAL;
    out[0] = out[1] = deft_add(in[0], (double)v);
    return DEFT_OK;
}

BODY(evaluates)
{
    UNUSED;
    if (deft_eval(in, 1) == DEFT_OK) return DEFT_E_INTERNAL;
    out[0] = out[1] = in[0];
    return DEFT_OK;
}

BODY(assigns)
{
    UNUSED;
    deft_assign(in[0], 5);
    out[0] = out[1] = in[0];
    return DEFT_OK;
}

BODY(assigns_a_view)
{
    UNUSED;
    deft_tensor *const mine = deft_exp(in[0]);
    deft_assign(mine, in[0]); /* what the body has made it may assign */
    deft_assign(deft_slice(in[0], DEFT_R(0, 1)), 3);
    out[0] = out[1] = in[0];
    return DEFT_OK;
}

BODY(keeps)
{
    UNUSED;
    out[0] = out[1] = deft_keep(deft_exp(in[0]));
    return DEFT_OK;
}

static deft_status no_work(void *stream, const void *const *in, void *const *out, void *user)
{
    (void)stream, (void)in, (void)out, (void)user;
    return DEFT_OK;
}

BODY(works)
{
    const deft_work w = { .size = sizeof w, .fn = no_work };
    const deft_work_result like = { DEFT_SHAPE(2), DEFT_F32 };
    UNUSED;
    if (deft_device_work(cx, &w, in, 1, &like, out, 1) == DEFT_OK) return DEFT_E_INTERNAL;
    out[0] = out[1] = in[0];
    return DEFT_OK;
}

static deft_ctx *other_cx;

BODY(of_another)
{
    UNUSED;
    out[0] = out[1] = deft_full(other_cx, DEFT_SHAPE(2), DEFT_F32, 1);
    return DEFT_OK;
}

BODY(refuses)
{
    UNUSED;
    return deft_op_fail(cx, DEFT_E_DTYPE, "the first input must be f64");
}

static const deft_op *endless_op;

BODY(endless)
{
    UNUSED;
    return deft_op_call(cx, endless_op, in, 1, NULL, out, 2) ? DEFT_OK : DEFT_E_STATE;
}

Test(extend, reports_wrong_bodies)
{
    static const struct {
        const char *name;
        deft_body_fn body;
        deft_status st;
        const char *part;
    } row[] = {
        { "bad.leaves", leaves_one, DEFT_E_ARG, "bad.leaves: its body leaves result 1 of 2 NULL" },
        { "bad.many", sets_too_many, DEFT_E_ARG,
          "bad.many: its body sets more than its 2 results" },
        { "bad.fails", only_fails, DEFT_E_RANGE, "bad.fails: its body failed" },
        { "bad.reads", reads, DEFT_E_STATE, "bad.reads: its body asks for a value" },
        { "bad.evals", evaluates, DEFT_E_STATE, "bad.evals: its body asks for a value" },
        { "bad.assigns", assigns, DEFT_E_STATE, "assign" },
        { "bad.views", assigns_a_view, DEFT_E_STATE, "assign" },
        { "bad.keeps", keeps, DEFT_E_STATE, "keep: a tensor made inside" },
        { "bad.works", works, DEFT_E_STATE, "device_work: inside" },
        { "bad.other", of_another, DEFT_E_STATE,
          "bad.other: argument 1 belongs to another context" },
        { "bad.refuses", refuses, DEFT_E_DTYPE, "bad.refuses: the first input must be f64, at " },
        { "bad.endless", endless, DEFT_E_LIMIT, "bad.endless: nested more than 16 deep" },
    };
    cr_assert_eq(deft_ctx_create(r.rt, NULL, &other_cx), DEFT_OK);
    for (size_t i = 0; i < 4 * (sizeof row / sizeof *row); i++) {
        /* In the root scope, and in one that the body shares. */
        const deft_scope s = i / 2 % 2 ? deft_scope_begin(r.cx) : (deft_scope){ 0 };
        deft_tensor *const x = deft_from(r.cx, DEFT_SHAPE(2), DEFT_F32, (float[]){ 1, 2 }, 8);
        char name[64] = "with_gradient.";
        strcat(name, row[i / 4].name);
        const deft_op *const op = endless_op =
            define(DEF(.name = i % 2 ? name : row[i / 4].name, .n_in = 1, .n_out = 2,
                       .body = row[i / 4].body, .grad = i % 2 ? times_back : NULL));
        deft_tensor *out[2] = { x, x };
        cr_assert(!deft_op_call(r.cx, op, &x, 1, NULL, out, 2), "%s", row[i / 4].name);
        cr_assert(!out[0] && !out[1]);
        rig_expect_error(&r, out[0], row[i / 4].st, row[i / 4].part);
        EXPECT(x, 1, 2);
        /* Nothing of the call is left. */
        static char text[4096];
        deft_tensor *const y = deft_neg(x);
        OK(&r, deft_eval(&y, 1));
        deft_show(r.cx, "sites", text, sizeof text);
        cr_assert(!strstr(text, "bad"), "%s", text);
        if (i / 2 % 2) OK(&r, deft_scope_end(s));
    }
    deft_ctx_destroy(&other_cx);
}

Test(extend, reports_wrong_calls)
{
    const deft_op *const norm = define(&rms_norm_def);
    const deft_op *const plain =
        define(DEF(.name = "acme.plain", .n_in = 2, .n_out = 1, .body = times));
    deft_tensor *const x = VECTOR(1, 2), *out[3] = { x, x, x };
    deft_tensor *const in[] = { x, x, x };
#define WRONG(st, part, ...)                                                                       \
    do {                                                                                           \
        out[0] = x;                                                                                \
        cr_assert(!deft_op_call(r.cx, __VA_ARGS__));                                               \
        cr_assert(!out[0]);                                                                        \
        rig_expect_error(&r, NULL, st, part);                                                      \
    } while (0)
    WRONG(DEFT_E_ARG, "op_call: the operator is NULL", NULL, in, 2, NULL, out, 1);
    WRONG(DEFT_E_ARG, "acme.plain: 3 inputs and 1 results, it has 2 and 1", plain, in, 3, NULL, out,
          1);
    WRONG(DEFT_E_ARG, "acme.plain: 2 inputs and 2 results", plain, in, 2, NULL, out, 2);
    WRONG(DEFT_E_ARG, "a list of its 2 inputs", plain, NULL, 2, NULL, out, 1);
    WRONG(DEFT_E_ARG, "it takes 0 bytes of attributes, and some are given", plain, in, 2, &eps, out,
          1);
    WRONG(DEFT_E_ARG, "it takes 8 bytes of attributes, and none are given", norm, in, 2, NULL, out,
          1);
    WRONG(DEFT_E_ARG, "acme.plain: argument 2 is NULL", plain, ((deft_tensor *const[]){ x, NULL }),
          2, NULL, out, 1);
    cr_assert(!deft_op_call(r.cx, plain, in, 2, NULL, NULL, 1));
    rig_expect_error(&r, NULL, DEFT_E_ARG, "a list of its 2 inputs and 1 results is NULL");
    cr_assert(!deft_op_call(NULL, plain, in, 2, NULL, out, 1));
    rig other;
    rig_interpret(&other, 1);
    deft_op *foreign = NULL;
    cr_assert_eq(deft_op_define(other.rt, &rms_norm_def, &foreign, NULL, 0), DEFT_OK);
    WRONG(DEFT_E_STATE, "acme.rms_norm: it was defined in another runtime", foreign, in, 2, &eps,
          out, 1);
    deft_tensor *const theirs = rig_range(&other, 2, 0);
    WRONG(DEFT_E_STATE, "argument 2 belongs to another context", plain,
          ((deft_tensor *const[]){ x, theirs }), 2, NULL, out, 1);
    rig_close(&other);
    cr_assert_eq(deft_op_fail(r.cx, DEFT_OK, NULL), DEFT_E_ARG);
    rig_expect_error(&r, NULL, DEFT_E_ARG, "it failed");
    cr_assert_eq(deft_op_fail(NULL, DEFT_E_RANGE, "x"), DEFT_E_RANGE);
}

/* A NULL input is the result of an earlier mistake, whose sentence stays. */
Test(extend, passes_on_earlier_mistakes)
{
    const deft_op *const op = define(&rms_norm_def);
    deft_tensor *const wrong = deft_add(VECTOR(1, 2), VECTOR(1, 2, 3));
    rig_expect_error(&r, CALL(op, &eps, wrong, VECTOR(1)), DEFT_E_SHAPE, "add");
}

/* ---- definitions ---- */

Test(extend, reports_wrong_definitions)
{
    char why[256];
    deft_op *op;
    const struct {
        deft_op_def d;
        const char *part;
    } row[] = {
        { { .name = NULL }, "\"\" is no name" },
        { { .name = "norm" }, "\"norm\" is no name" },
        { { .name = ".norm" }, "no name" },
        { { .name = "norm." }, "no name" },
        { { .name = "acme.a b" }, "no name" },
        { { .name = "acme.0123456789012345678901234567890123456789012345678901234567890" },
          "at most 63 bytes" },
        { { .name = "acme.x", .version = 0, .body = times, .n_out = 1 }, "version is 0" },
        { { .name = "acme.x", .version = 1, .n_out = 1 }, "the body is NULL" },
        { { .name = "acme.x", .version = 1, .body = times }, "0 inputs, 0 results" },
        { { .name = "acme.x", .version = 1, .body = times, .n_out = 65 }, "65 results" },
        { { .name = "acme.x", .version = 1, .body = times, .n_out = 1, .n_in = 65 }, "65 inputs" },
        { { .name = "acme.x", .version = 1, .body = times, .n_out = 1, .attribute_bytes = 4097 },
          "4097 bytes" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        deft_op_def d = row[i].d;
        d.size = sizeof d;
        op = (deft_op *)&d;
        cr_assert_eq(deft_op_define(r.rt, &d, &op, why, sizeof why), DEFT_E_ARG);
        cr_assert(!op && strstr(why, row[i].part), "%s", why);
    }
    cr_assert_eq(deft_op_define(r.rt, &(deft_op_def){ .name = "acme.x" }, &op, why, sizeof why),
                 DEFT_E_ARG);
    cr_assert(strstr(why, "sizeof(deft_op_def)"), "%s", why);
    cr_assert_eq(deft_op_define(NULL, &rms_norm_def, &op, why, sizeof why), DEFT_E_ARG);
    cr_assert_eq(deft_op_define(r.rt, NULL, &op, why, sizeof why), DEFT_E_ARG);
    cr_assert_eq(deft_op_define(r.rt, &rms_norm_def, NULL, why, sizeof why), DEFT_E_ARG);
    cr_assert(strstr(why, "NULL"), "%s", why);
    cr_assert_eq(deft_op_define(NULL, NULL, NULL, NULL, 0), DEFT_E_ARG);
}

Test(extend, has_one_definition_of_a_name)
{
    char why[256];
    deft_op *op = NULL;
    const deft_op *const first = define(&rms_norm_def);
    cr_assert_eq(define(&rms_norm_def), first);
    deft_op_def d = rms_norm_def;
    d.version = 2;
    cr_assert_eq(deft_op_define(r.rt, &d, &op, why, sizeof why), DEFT_E_STATE);
    cr_assert_str_eq(why,
                     "op_define: acme.rms_norm has version 1 in this runtime, and not version 2");
    d = rms_norm_def;
    d.grad = times_back;
    cr_assert_eq(deft_op_define(r.rt, &d, &op, why, 20), DEFT_E_STATE);
    cr_assert_str_eq(why, "op_define: acme.rms");
    d = rms_norm_def;
    d.batch = times_of_all;
    cr_assert_eq(deft_op_define(r.rt, &d, &op, why, sizeof why), DEFT_E_STATE);
    cr_assert_str_eq(why, "op_define: acme.rms_norm has another definition in this runtime, which "
                          "also is version 1");
    d.version = 2;
    op = (deft_op *)(uintptr_t)first;
    cr_assert_eq(deft_op_destroy(&op, why, sizeof why), DEFT_OK);
    cr_assert(!op);
    cr_assert_eq(deft_op_define(r.rt, &d, &op, why, sizeof why), DEFT_OK, "%s", why);
}

Test(extend, is_not_destroyed_while_records_need_it)
{
    char why[256];
    deft_op *op = (deft_op *)(uintptr_t)doubled();
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const x = VECTOR(1, 2), *const y = CALL(op, &(double){ 2 }, x, x);
    cr_assert_eq(deft_op_destroy(&op, why, sizeof why), DEFT_E_STATE);
    cr_assert(op && strstr(why, "acme.doubled: the records of 1 calls may need its gradient"), "%s",
              why);
    EXPECT(rig_grad_of_sum(y, x), 3, 6);
    OK(&r, deft_scope_end(s));
    cr_assert_eq(deft_op_destroy(&op, why, sizeof why), DEFT_OK, "%s", why);
    cr_assert(!op);
    cr_assert_eq(deft_op_destroy(&op, why, sizeof why), DEFT_OK);
    cr_assert_eq(deft_op_destroy(NULL, NULL, 0), DEFT_OK);
    /* What was recorded needs an operator without a gradient no more. */
    op = (deft_op *)(uintptr_t)define(&rms_norm_def);
    deft_tensor *const z = CALL(op, &(double){ 0 }, VECTOR(3), VECTOR(2));
    cr_assert_eq(deft_op_destroy(&op, why, sizeof why), DEFT_OK, "%s", why);
    EXPECT(z, 2);
}

/* ---- keys ---- */

BODY(plus_one)
{
    UNUSED;
    out[0] = deft_add(in[0], in[0]);
    return DEFT_OK;
}

BODY(plus_two)
{
    UNUSED;
    out[0] = deft_sub(in[0], in[0]);
    return DEFT_OK;
}

/* Another version of a name in another process, or after the first was destroyed, has plans and
 * kept code of its own. */
Test(extend, shares_nothing_with_another_version)
{
    char dir[] = "/tmp/deft_extend_XXXXXX", command[64];
    cr_assert(mkdtemp(dir));
    for (uint32_t version = 1; version <= 2; version++) {
        rig other;
        const deft_runtime_options o = {
            .size = sizeof o, .n_threads = 1, .tier = DEFT_TIER_FULL, .cache_dir = dir
        };
        rig_open(&other, &o, NULL);
        const deft_op_def d = { .size = sizeof d,
                                .name = "acme.plus",
                                .version = version,
                                .n_in = 1,
                                .n_out = 1,
                                .body = version == 1 ? plus_one : plus_two };
        deft_op *op = NULL;
        cr_assert_eq(deft_op_define(other.rt, &d, &op, NULL, 0), DEFT_OK);
        for (int again = 0; again < 2; again++) {
            deft_tensor *const x = rig_range(&other, 3, 1);
            deft_tensor *y;
            cr_assert(deft_op_call(other.cx, op, &x, 1, NULL, &y, 1));
            const float want[] = { version == 1 ? 2 : 0, version == 1 ? 4 : 0,
                                   version == 1 ? 6 : 0 };
            rig_expect(&other, y, 3, want);
        }
        rig_close(&other);
    }
    (void)snprintf(command, sizeof command, "rm -r %s", dir);
    cr_assert_eq(system(command), 0);
}
