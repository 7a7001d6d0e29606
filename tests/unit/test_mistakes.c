/* SPDX-License-Identifier: Apache-2.0
 *
 * Mistakes: every sentence names the line of the call that made it, wherever that call stands; one
 * mistake fails one call; what can never be computed fails nothing else.
 *
 * Why this file is long: the table of calls and its functions serve most of the tests, which
 * compare one rule in several places.
 *
 * call_row has the table of them. A call that refuses its arguments in a way of its own belongs
 * there.
 */
#include "support/harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static rig r;

static void set_up(void)
{
    rig_open(&r, NULL, NULL);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(mistakes, .init = set_up, .fini = tear_down);

static float memory[4];

typedef struct provoked {
    const char *what, *text;
    int line;
} provoked;

typedef deft_tensor *list[];

/* Calls row number `row` of the table, for which p then stands; p->what NULL: there are no more. x:
 * f32[4], five: f32[5], whole: i64[4]. Each row is one call that fails, of operands that do not. */
static deft_tensor *call_row(int row, provoked *p, deft_ctx *cx, deft_tensor *x, deft_tensor *five,
                             deft_tensor *whole)
{
    deft_tensor *out = NULL, *two[2] = { 0 };
    int n = 0;
#define ROW(name, call)                                                                            \
    if (row == n++) {                                                                              \
        *p = (provoked){ name, #call, __LINE__ };                                                  \
        deft_tensor *volatile made = (call);                                                       \
        return made;                                                                               \
    }
    /* clang-format off: the line of a row is that of its call */
    ROW("sum", deft_sum(x, DEFT_AXES(2), 0))
    ROW("max", deft_max(x, DEFT_AXES(0, 0), 0))
    ROW("mean", deft_mean(x, DEFT_AXES(3), 0))
    ROW("var", deft_var(x, DEFT_AXES(3), 0, 0))
    ROW("add", deft_add(x, five))
    ROW("lt", deft_lt(x, five))
    ROW("bitwise_and", deft_bitwise_and(x, x))
    ROW("slice", deft_slice(x, DEFT_R(0, 9)))
    ROW("slice", deft_slice(x, DEFT_AT(4)))
    ROW("split", ((void)!deft_split(x, NULL, 1, 0, &out), NULL))
    ROW("reshape", deft_reshape(x, DEFT_SHAPE(3)))
    ROW("permute", deft_permute(x, DEFT_AXES(1)))
    ROW("transpose", deft_transpose(x, 0, 1))
    ROW("expand", deft_expand(x, DEFT_SHAPE(3)))
    ROW("squeeze", deft_squeeze(x, DEFT_AXES(0)))
    ROW("unsqueeze", deft_unsqueeze(x, 5))
    ROW("flip", deft_flip(x, DEFT_AXES(1)))
    ROW("diagonal", deft_diagonal(x, 0, 0, 1))
    ROW("concat", deft_concat((deft_tensor *[]){ x, five }, 2, 1))
    ROW("stack", deft_stack((deft_tensor *[]){ x, five }, 2, 0))
    ROW("pad", deft_pad(x, (int64_t[]){ -9 }, (int64_t[]){ 0 }, DEFT_PAD_CONSTANT, 0))
    ROW("roll", deft_roll(x, 1, 4))
    ROW("take", deft_take(x, x, 0))
    ROW("gather", deft_gather(x, x, 0))
    ROW("index_add", deft_index_add(x, whole, five, 3))
    ROW("scatter_add", deft_scatter_add(x, whole, five, 3))
    ROW("scatter", deft_scatter(x, whole, five, 3))
    ROW("index_copy", deft_index_copy(x, whole, five, 3))
    ROW("scatter_reduce", deft_scatter_reduce(x, whole, five, 3, DEFT_SCATTER_SUM, true))
    ROW("index_reduce", deft_index_reduce(x, whole, five, 3, DEFT_SCATTER_SUM, true))
    ROW("polygamma", deft_polygamma(21, x))
    ROW("polygamma", deft_polygamma(-1, x))
    ROW("one_hot", deft_one_hot(x, 3, DEFT_F32))
    ROW("argsort", deft_argsort(x, 7, 0))
    ROW("topk", deft_topk(x, 99, 0, 1, NULL))
    ROW("nonzero", deft_nonzero(x, -1, NULL))
    ROW("unique", deft_unique(x, -1, NULL))
    ROW("compress", deft_compress(x, x, 4, NULL))
    ROW("cast", deft_cast(x, (deft_dtype)99))
    ROW("where", deft_where(deft_gt(x, x), x, five))
    ROW("sub", deft_lerp(x, five, x))
    ROW("maximum", deft_clamp_t(x, five, NULL))
    ROW("matmul", deft_matmul(x, five))
    ROW("cumsum", deft_cumsum(x, 9))
    ROW("cumprod", deft_cumprod(x, 9))
    ROW("cummax", deft_cummax(deft_gt(x, x), 0))
    ROW("cumulative_sum", deft_cumulative_sum(x, 2, true))
    ROW("cumulative_prod", deft_cumulative_prod(x, 2, true))
    ROW("vector_norm", deft_vector_norm(x, (double)NAN, DEFT_ALL_AXES, 0))
    ROW("nanvar", deft_nanvar(x, DEFT_AXES(3), 0, 0))
    ROW("median", deft_median(x, 3, 0))
    ROW("quantile", deft_quantile(x, 1.5, 0, 0))
    ROW("histogram", deft_histogram(x, deft_slice(x, DEFT_R(0, 1))))
    ROW("histc", deft_histc(x, 0, 0, 1))
    ROW("bucketize", deft_bucketize(x, deft_unsqueeze(x, 0), 0))
    ROW("logcumsumexp", deft_logcumsumexp(x, 3))
    ROW("logsumexp", deft_logsumexp(x, DEFT_AXES(3), 0))
    ROW("shift", deft_shift(x, NULL, DEFT_PAD_EDGE, 0))
    ROW("shift", deft_shift(x, (int64_t[]){ 99 }, DEFT_PAD_WRAP, 0))
    ROW("std", deft_std(x, DEFT_AXES(3), 0, 0))
    ROW("count_nonzero", deft_count_nonzero(x, DEFT_AXES(3), 0))
    ROW("full_like", deft_full_like(deft_gt(x, x), 2.5))
    ROW("eye_k", deft_eye_k(cx, -1, 2, 0, DEFT_F32))
    ROW("linspace_open", deft_linspace_open(cx, 0, 1, -1, DEFT_F32))
    ROW("expand_dims", deft_expand_dims(x, DEFT_AXES(7)))
    ROW("moveaxis", deft_moveaxis(x, DEFT_AXES(0), DEFT_AXES(1)))
    ROW("moveaxis", deft_moveaxis(x, DEFT_AXES(0), DEFT_AXES()))
    ROW("repeat", deft_repeat(x, -1, 0))
    ROW("repeat", deft_repeat(x, 1, 4))
    ROW("repeat_t", deft_repeat_t(x, x, 0, 3))
    ROW("tile", deft_tile(x, DEFT_SHAPE(-1)))
    ROW("roll_n", deft_roll_n(x, NULL, DEFT_AXES(0)))
    ROW("roll_n", deft_roll_n(x, (int64_t[]){ 1 }, DEFT_AXES(4)))
    ROW("take_along_axis", deft_take_along_axis(x, x, 0))
    ROW("diff", deft_diff(x, -1, 0, NULL, NULL))
    ROW("diff", deft_diff(x, 1, 0, deft_unsqueeze(x, 0), NULL))
    ROW("searchsorted", deft_searchsorted(deft_unsqueeze(x, 0), x, false))
    ROW("unique_all", deft_unique_all(x, -1, NULL, NULL, NULL, NULL))
    ROW("unstack", ((void)!deft_unstack(x, 0, 99, &out), NULL))
    ROW("meshgrid", ((void)!deft_meshgrid((list){ deft_unsqueeze(x, 0) }, 1, 0, &out), NULL))
    ROW("broadcast_tensors", ((void)!deft_broadcast_tensors((list){ x, five }, 2, two), NULL))
    ROW("pow", deft_pow_i(deft_iota(cx, DEFT_SHAPE(2), 0), -1))
    ROW("softmax", deft_softmax(x, 9))
    ROW("embedding", deft_embedding(x, x))
    ROW("conv2d", deft_conv2d(x, x, NULL))
    ROW("conv2d", deft_conv2d(x, x, &(deft_conv2d_options){ 0 }))
    ROW("max_pool2d", deft_max_pool2d(x, &(deft_pool2d_options){ 0 }))
    ROW("attention", deft_attention(x, x, x, NULL))
    ROW("zeros", deft_zeros(cx, DEFT_SHAPE(-1), DEFT_F32))
    ROW("full", deft_full(cx, DEFT_SHAPE(2), DEFT_U8, 300))
    ROW("from", deft_from(cx, DEFT_SHAPE(2), DEFT_F32, NULL, 8))
    ROW("wrap", deft_wrap(cx, DEFT_SHAPE(2), DEFT_F32, memory, 4, NULL))
    ROW("wrap", deft_wrap_mut(cx, DEFT_SHAPE(9), DEFT_F32, memory, 4, NULL))
    ROW("linspace", deft_linspace(cx, 0, 1, -1, DEFT_F32))
    ROW("eye", deft_eye(cx, -1, 2, DEFT_F32))
    ROW("iota", deft_iota(cx, DEFT_SHAPE(2), 4))
    ROW("uniform", deft_uniform(cx, NULL, DEFT_SHAPE(2), DEFT_F32, 0, 1))
    ROW("assign", deft_assign(x, five))
    ROW("assign", deft_assign(x, deft_gt(x, x)))
    ROW("grad", (deft_grad(&whole, NULL, 1, &x, 1, NULL, &out), (deft_tensor *)NULL))
    ROW("cond", (deft_cond(x, NULL, NULL, NULL, &x, 1, &out, 1), NULL))
    ROW("while", (deft_while(cx, NULL, NULL, NULL, &x, 1, 3, &out), NULL))
    ROW("scan", (deft_scan(cx, NULL, NULL, &x, 1, NULL, 0, 3, 0, &out), NULL))
    ROW("vmap", (deft_vmap(cx, NULL, NULL, &x, NULL, 1, &out, NULL, 1), NULL))
    ROW("label_end", (deft_label_end(cx), NULL))
    /* clang-format on */
    *p = (provoked){ 0 };
    return out;
}

static deft_tensor *operand(deft_ctx *cx, int64_t n)
{
    return deft_cast(deft_iota(cx, (deft_shape){ 1, { n } }, 0), DEFT_F32);
}

/* false: there is no such row. */
static bool provoke(deft_ctx *cx, int row, provoked *p, deft_tensor *x)
{
    deft_tensor *const five = operand(cx, 5);
    deft_tensor *const whole = deft_iota(cx, (deft_shape){ 1, { 4 } }, 0);
    cr_assert_null(call_row(row, p, cx, x, five, whole), "%s", p->text);
    return p->what != NULL;
}

typedef struct place {
    char text[48];
} place;

/* How messages name a line of this file; without a resolver of lines they name the program. */
static place place_of(int line)
{
    place p = { "test_mistakes" };
    if (HAS_LINES) snprintf(p.text, sizeof p.text, "test_mistakes.c:%d (", line);
    return p;
}

/* The latest sentence names the line. */
static void names_line(const char *where, const char *what, const char *text, int line)
{
    char at[64];
    const char *const said = deft_message(r.cx);
    snprintf(at, sizeof at, ", at %s", place_of(line).text);
    cr_expect(strstr(said, at), "%s, %s: \"%s\" lacks \"%s\"", where, text, said, at);
    cr_expect(!what || strstr(said, what), "%s, %s: \"%s\"", where, text, said);
}

static void row_names_line(const char *where, const provoked *p, bool same_sentence)
{
    names_line(where, same_sentence ? p->what : NULL, p->text, p->line);
}

/* What a function is to call, and what it has called. */
typedef struct task {
    int row;
    provoked p;
} task;

static deft_status captured(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    task *const t = user;
    (void)n_in, (void)n_out;
    deft_assign(in[0], deft_neg(in[0]));
    (void)provoke(cx, t->row, &t->p, in[0]);
    out[0] = deft_neg(in[0]);
    return DEFT_OK;
}

static deft_status body(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *user)
{
    task *const t = user;
    (void)n_in, (void)n_out;
    (void)provoke(cx, t->row, &t->p, in[0]);
    out[0] = deft_neg(in[0]);
    return DEFT_OK;
}

Test(mistakes, name_the_line_of_the_call)
{
    provoked p;
    int n = 0;
    deft_tensor *x = rig_range(&r, 4, 1);
    for (; provoke(r.cx, n, &p, x); n++) {
        cr_assert_neq(deft_error(r.cx), DEFT_OK, "%s", p.text);
        row_names_line("plain", &p, true);
        deft_clear(r.cx);
    }
    cr_assert_geq(n, 50);
}

static void in_step(bool submit)
{
    provoked p = { 0 };
    deft_tensor *x = rig_range(&r, 4, 1);
    for (int i = 0;; i++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_assign(x, deft_neg(x));
        if (!provoke(r.cx, i, &p, x)) {
            deft_step_abort(s);
            break;
        }
        const deft_status st = submit ? deft_step_submit(s) : deft_step_end(s);
        cr_assert_neq(st, DEFT_OK, "%s", p.text);
        row_names_line(submit ? "submitted step" : "step", &p, true);
        cr_assert_eq(deft_error(r.cx), DEFT_OK, "%s", p.text);
    }
    RIG_EXPECT(&r, x, 1, 2, 3, 4);
}

Test(mistakes, name_the_line_in_steps)
{
    in_step(false);
}

Test(mistakes, name_the_line_in_submitted_steps)
{
    in_step(true);
}

Test(mistakes, name_the_line_in_captures)
{
    deft_tensor *x = rig_range(&r, 4, 1), *out;
    for (task t = { 0 };; t.row++) {
        deft_capture *c = deft_capture_create(r.cx, captured, &t);
        const deft_status st = deft_capture_call(c, &x, 1, &out, 1);
        deft_capture_destroy(&c);
        if (!t.p.what) break;
        cr_assert_neq(st, DEFT_OK, "%s", t.p.text);
        row_names_line("capture", &t.p, false);
        cr_assert_eq(deft_error(r.cx), DEFT_OK);
    }
    RIG_EXPECT(&r, x, -1, -2, -3, -4);
}

Test(mistakes, name_the_line_in_loops)
{
    deft_tensor *x = rig_range(&r, 4, 1), *out;
    for (task t = { 0 };; t.row++) {
        const bool ok = deft_scan(r.cx, body, &t, &x, 1, NULL, 0, 3, 0, &out);
        if (!t.p.what) break;
        cr_assert(!ok, "%s", t.p.text);
        row_names_line("loop", &t.p, false);
        deft_clear(r.cx);
    }
}

/* ---- faults of the run ---- */

static int fault_line;

/* x taken at the indices that it holds: 8 is outside. */
static deft_tensor *taken(deft_tensor *x)
{
    deft_tensor *const i = deft_cast(x, DEFT_I32);
    fault_line = __LINE__ + 1;
    deft_tensor *const y = deft_take(x, i, 0);
    return deft_sqrt(y);
}

static deft_status take_once(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = taken(in[0]);
    return DEFT_OK;
}

static void fault_names_line(const char *where)
{
    names_line(where, "take: index 8 is outside [0,4)", "take", fault_line);
}

Test(mistakes, index_faults_name_the_line)
{
    deft_tensor *x = RIG_VECTOR(&r, 0, 1, 2, 8), *fine = rig_range(&r, 4, 0), *out;
    float got[4];
    cr_assert_eq(deft_read(taken(x), DEFT_F32, got, sizeof got), DEFT_E_RANGE);
    fault_names_line("read");
    deft_scope s = deft_step_begin(r.cx);
    deft_assign(x, taken(x));
    cr_assert_eq(deft_step_end(s), DEFT_E_RANGE);
    fault_names_line("step");
    s = deft_step_begin(r.cx);
    deft_assign(x, taken(x));
    deft_status st = deft_step_submit(s);
    if (st == DEFT_OK) st = deft_wait(r.cx);
    cr_assert_eq(st, DEFT_E_RANGE);
    fault_names_line("submitted step");
    deft_capture *c = deft_capture_create(r.cx, take_once, NULL);
    cr_assert_eq(deft_capture_call(c, &x, 1, &out, 1), DEFT_E_RANGE);
    fault_names_line("capture");
    OK(&r, deft_capture_call(c, &fine, 1, &out, 1));
    cr_assert_eq(deft_capture_call(c, &x, 1, &out, 1), DEFT_E_RANGE);
    fault_names_line("replay");
    deft_capture_destroy(&c);
    cr_assert(deft_scan(r.cx, take_once, NULL, &x, 1, NULL, 0, 2, 0, &out));
    cr_assert_eq(deft_read(out, DEFT_F32, got, sizeof got), DEFT_E_RANGE);
    fault_names_line("loop");
    RIG_EXPECT(&r, x, 0, 1, 2, 8);
}

Test(mistakes, what_cannot_be_computed_fails_nothing_else)
{
    float y[4] = { 0 };
    deft_tensor *x = RIG_VECTOR(&r, 0, 1, 2, 8);
    for (int evaluated = 0; evaluated < 2; evaluated++) {
        deft_tensor *const bad = taken(x), *const more = deft_add(bad, 1);
        if (evaluated) {
            cr_assert_eq(deft_eval((deft_tensor *[]){ bad }, 1), DEFT_E_RANGE);
        } else {
            const deft_scope s = deft_step_begin(r.cx); /* it computes what lives on */
            cr_assert_eq(deft_step_end(s), DEFT_E_RANGE);
        }
        fault_names_line("first");
        for (int i = 0; i < 3; i++) {
            const deft_scope s = deft_step_begin(r.cx);
            deft_assign(deft_wrap_mut(r.cx, DEFT_SHAPE(4), DEFT_F32, y, sizeof y, NULL),
                        deft_mul(x, i));
            OK(&r, deft_step_end(s));
            cr_assert_eq(y[3], 8 * i);
        }
        RIG_EXPECT(&r, deft_mul(x, 3), 0, 3, 6, 24);
        cr_assert_eq(deft_read(more, DEFT_F32, y, sizeof y), DEFT_E_RANGE);
        fault_names_line("again");
    }
    RIG_EXPECT(&r, x, 0, 1, 2, 8);
}

/* ---- what may need it: branches ---- */

static deft_tensor *in_branch; /* what the first branch uses */

static deft_status use_in_branch(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                 deft_tensor **out, size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_add(in[0], in_branch);
    return DEFT_OK;
}

static deft_status negate(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_neg(in[0]);
    return DEFT_OK;
}

/* x + used when the sum of x exceeds bound, else -x. */
static deft_tensor *chosen(deft_tensor *x, deft_tensor *used, float bound)
{
    deft_tensor *out;
    in_branch = used;
    deft_tensor *const condition = deft_gt(deft_sum(x, DEFT_ALL_AXES, 0), bound);
    cr_assert(deft_cond(condition, use_in_branch, negate, NULL, &x, 1, &out, 1));
    return out;
}

static deft_status empty_step(void)
{
    return deft_step_end(deft_step_begin(r.cx));
}

Test(mistakes, in_a_branch_not_taken_fail_no_cond)
{
    float o[4];
    deft_tensor *const x = RIG_VECTOR(&r, 0, 1, 2, 8);
    for (int by = 0; by < 3; by++) {
        deft_tensor *const bad = taken(x), *const fine = chosen(x, bad, 99);
        deft_tensor *const more = deft_mul(fine, 2.0);
        const deft_status st = by == 0   ? deft_read(bad, DEFT_F32, o, sizeof o)
                               : by == 1 ? deft_eval((deft_tensor *[]){ fine, bad }, 2)
                                         : empty_step();
        cr_assert_eq(st, DEFT_E_RANGE, "%d", by);
        OK(&r, empty_step());
        RIG_EXPECT(&r, fine, 0, -1, -2, -8);
        RIG_EXPECT(&r, more, 0, -2, -4, -16);
        cr_assert_eq(deft_read(bad, DEFT_F32, o, sizeof o), DEFT_E_RANGE);
        fault_names_line("again");
    }
    /* A call that has no part in it, where all that is pending is computed first. */
    deft_tensor *const y = rig_range(&r, 3, 1), *out;
    OK(&r, deft_eval((deft_tensor *[]){ x, y }, 2));
    deft_tensor *const fine = chosen(x, taken(x), 99);
    deft_capture *c = deft_capture_create(r.cx, negate, NULL);
    cr_assert_eq(deft_capture_call(c, &y, 1, &out, 1), DEFT_E_RANGE, "it is pending, too");
    OK(&r, deft_capture_call(c, &y, 1, &out, 1));
    RIG_EXPECT(&r, out, -1, -2, -3);
    RIG_EXPECT(&r, fine, 0, -1, -2, -8);
    deft_capture_destroy(&c);
}

Test(mistakes, in_the_branch_taken_fail_one_call)
{
    float o[4];
    deft_tensor *const x = RIG_VECTOR(&r, 0, 1, 2, 8);
    for (int by = 0; by < 4; by++) {
        deft_tensor *const bad = taken(x), *const fine = chosen(x, bad, 99);
        deft_tensor *const wrong = chosen(x, bad, 0), *const more = deft_mul(wrong, 2.0);
        const deft_status st = by == 0   ? deft_read(bad, DEFT_F32, o, sizeof o)
                               : by == 1 ? deft_read(wrong, DEFT_F32, o, sizeof o)
                               : by == 2 ? deft_read(more, DEFT_F32, o, sizeof o)
                                         : empty_step();
        cr_assert_eq(st, DEFT_E_RANGE, "%d", by);
        OK(&r, empty_step());
        cr_assert_eq(deft_read(more, DEFT_F32, o, sizeof o), DEFT_E_RANGE, "%d", by);
        fault_names_line("again");
        cr_assert_eq(deft_read(wrong, DEFT_F32, o, sizeof o), DEFT_E_RANGE, "%d", by);
        RIG_EXPECT(&r, fine, 0, -1, -2, -8);
    }
}

/* A write into the caller's memory needs it in a branch. */
Test(mistakes, in_a_branch_fail_writes_of_the_branch_taken)
{
    float fine[4] = { 0 }, wrong[4] = { 0 };
    deft_tensor *const x = RIG_VECTOR(&r, 0, 1, 2, 8), *const bad = taken(x);
    const deft_shape four = DEFT_SHAPE(4);
    deft_assign(deft_wrap_mut(r.cx, four, DEFT_F32, fine, sizeof fine, NULL), chosen(x, bad, 99));
    deft_assign(deft_wrap_mut(r.cx, four, DEFT_F32, wrong, sizeof wrong, NULL), chosen(x, bad, 0));
    cr_assert_eq(empty_step(), DEFT_E_RANGE);
    OK(&r, empty_step());
    cr_assert(fine[3] == -8 && wrong[3] == 0, "%g %g", (double)fine[3], (double)wrong[3]);
}

/* ---- delivery ---- */

Test(mistakes, fail_one_call)
{
    float o[3];
    deft_tensor *t = rig_range(&r, 3, 1);
    cr_assert_eq(deft_read(deft_slice(t, DEFT_R(2, 9)), DEFT_F32, o, 12), DEFT_E_ARG);
    cr_assert(strstr(deft_message(r.cx), "slice"), "%s", deft_message(r.cx));
    OK(&r, deft_read(t, DEFT_F32, o, 12));
    cr_assert(deft_error(r.cx) == DEFT_E_RANGE, "still there for who asks");
    deft_tensor *const bad = deft_add(t, rig_range(&r, 4, 1));
    cr_assert_null(bad);
    cr_assert(strstr(deft_message(r.cx), "add"), "the newer one: %s", deft_message(r.cx));
    cr_assert_eq(deft_eval((deft_tensor *[]){ t, bad }, 2), DEFT_E_SHAPE);
    cr_assert_eq(deft_error(r.cx), DEFT_OK, "delivered");
    OK(&r, deft_eval(&t, 1));
    /* A read of a tensor that has ended is the mistake of the read. */
    deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const gone = deft_neg(t);
    OK(&r, deft_scope_end(s));
    s = deft_step_begin(r.cx);
    cr_assert_eq(deft_eval((deft_tensor *[]){ gone }, 1), DEFT_E_STATE);
    deft_assign(t, deft_neg(t));
    OK(&r, deft_step_end(s));
    RIG_EXPECT(&r, t, -1, -2, -3);
}

/* Gradients, loops and vmap record many operations; a mistake that nobody has collected is none of
 * theirs. */
static deft_status double_it(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(in[0], 2.0);
    return DEFT_OK;
}

Test(mistakes, that_are_ignored_stop_no_later_call)
{
    deft_tensor *x = RIG_VECTOR(&r, 1, 2, 3), *out, *y, *g;
    cr_assert_null(deft_slice(x, DEFT_R(2, 9)));
    cr_assert_neq(deft_error(r.cx), DEFT_OK);
    const deft_scope s = deft_step_begin(r.cx);
    cr_assert(deft_scan(r.cx, double_it, NULL, &x, 1, NULL, 0, 2, 0, &out));
    y = deft_sum(deft_add(deft_mul(out, x), deft_mul(deft_slice(x, DEFT_R(0, 1)), 5.0)),
                 DEFT_ALL_AXES, 0);
    cr_assert(deft_grad(&y, NULL, 1, &x, 1, NULL, &g), "%s", deft_message(r.cx));
    RIG_EXPECT(&r, g, 8 + 15, 16, 24);
    cr_assert(deft_jvp(&y, 1, &x, &x, 1, NULL, &g), "%s", deft_message(r.cx));
    cr_assert_eq(rig_item(&r, g), 8 * 14 + 15);
    OK(&r, deft_step_end(s));
}

/* matmul makes matrices of vectors; the sentence has the shapes that the program wrote. */
Test(mistakes, name_the_shapes_of_the_program)
{
    deft_tensor *const m = deft_ones(r.cx, DEFT_SHAPE(3, 4), DEFT_F32);
    deft_tensor *const three = rig_range(&r, 3, 1), *const five = rig_range(&r, 5, 1);
    cr_assert_null(deft_matmul(m, three));
    cr_expect(strstr(deft_message(r.cx), "matmul: a is [3,4], b is [3],"), "%s",
              deft_message(r.cx));
    cr_assert_null(deft_matmul(five, m));
    cr_expect(strstr(deft_message(r.cx), "matmul: a is [5], b is [3,4],"), "%s",
              deft_message(r.cx));
    deft_clear(r.cx);
}

Test(mistakes, outside_steps_end_with_their_scope)
{
    deft_tensor *t = rig_range(&r, 3, 1);
    deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const kept = deft_keep(deft_neg(t));
    (void)deft_slice(t, DEFT_R(2, 9));
    cr_assert_eq(deft_scope_end(s), DEFT_E_RANGE, "nobody was told before");
    cr_assert_eq(deft_error(r.cx), DEFT_OK);
    RIG_EXPECT(&r, kept, -1, -2, -3);
    s = deft_scope_begin(r.cx);
    (void)deft_slice(t, DEFT_R(2, 9));
    cr_assert(deft_message(r.cx)[0]);
    OK(&r, deft_scope_end(s));
}

Test(mistakes, a_step_with_one_fails)
{
    deft_tensor *t = rig_range(&r, 3, 1);
    float o[3];
    deft_scope s = deft_step_begin(r.cx);
    deft_assign(t, deft_neg(t));
    deft_tensor *const bad = deft_slice(t, DEFT_R(2, 9));
    OK(&r, deft_read(t, DEFT_F32, o, sizeof o)); /* has no part in it */
    cr_assert_eq(o[2], -3);
    cr_assert_eq(deft_eval((deft_tensor *[]){ t, bad }, 2), DEFT_E_RANGE);
    cr_assert_eq(deft_step_end(s), DEFT_E_RANGE, "an assign may be missing");
    RIG_EXPECT(&r, t, 1, 2, 3);
    s = deft_step_begin(r.cx);
    (void)deft_slice(t, DEFT_R(2, 9));
    deft_clear(r.cx);
    deft_assign(t, deft_neg(t));
    OK(&r, deft_step_end(s));
    RIG_EXPECT(&r, t, -1, -2, -3);
    /* One of before the step is no part of it, until it is assigned there. */
    deft_tensor *const before = deft_slice(t, DEFT_R(2, 9));
    s = deft_step_begin(r.cx);
    deft_assign(t, deft_neg(t));
    OK(&r, deft_step_end(s));
    RIG_EXPECT(&r, t, 1, 2, 3);
    s = deft_step_begin(r.cx);
    deft_assign(t, before);
    cr_assert_neq(deft_step_end(s), DEFT_OK);
    cr_assert_eq(deft_error(r.cx), DEFT_OK);
}

/* Outside steps a failed assign leaves its tensor as it was: reading it is no unrelated call. */
Test(mistakes, a_missed_assign_is_told_to_its_readers)
{
    float o[3];
    deft_tensor *t = rig_range(&r, 3, 1), *other = rig_range(&r, 3, 7);
    deft_tensor *const before = deft_neg(t);
    cr_assert_null(deft_assign(t, deft_cast(t, DEFT_F64)));
    deft_tensor *const after = deft_add(deft_neg(t), other);
    OK(&r, deft_read(other, DEFT_F32, o, sizeof o));
    OK(&r, deft_read(before, DEFT_F32, o, sizeof o));
    cr_assert_eq(deft_read(after, DEFT_F32, o, sizeof o), DEFT_E_DTYPE);
    OK(&r, deft_read(after, DEFT_F32, o, sizeof o));
    cr_assert_null(deft_assign(t, deft_cast(t, DEFT_F64)));
    deft_scope s = deft_step_begin(r.cx);
    deft_assign(other, deft_add(t, other));
    cr_assert_eq(deft_step_end(s), DEFT_E_DTYPE, "what it assigns comes of what is missed");
    RIG_EXPECT(&r, other, 7, 8, 9);
    cr_assert_null(deft_assign(t, deft_cast(t, DEFT_F64)));
    s = deft_step_begin(r.cx);
    deft_assign(other, deft_neg(other));
    OK(&r, deft_step_end(s));
    cr_assert_eq(deft_read(t, DEFT_F32, o, sizeof o), DEFT_E_DTYPE);
    OK(&r, deft_read(t, DEFT_F32, o, sizeof o));
    RIG_EXPECT(&r, t, 1, 2, 3);
}

/* So is one that the caller's memory waits for. */
Test(mistakes, a_missed_assign_is_told_where_memory_is_written)
{
    float o[3] = { 0 };
    deft_tensor *t = rig_range(&r, 3, 1), *other = rig_range(&r, 3, 7);
    deft_tensor *const out =
        deft_keep(deft_wrap_mut(r.cx, DEFT_SHAPE(3), DEFT_F32, o, sizeof o, NULL));
    cr_assert_null(deft_assign(t, deft_cast(t, DEFT_F64)));
    deft_scope s = deft_step_begin(r.cx);
    deft_assign(out, deft_neg(other));
    OK(&r, deft_step_end(s));
    cr_assert(o[0] == -7 && o[2] == -9, "%g %g", (double)o[0], (double)o[2]);
    s = deft_step_begin(r.cx);
    deft_assign(out, deft_add(t, other));
    cr_assert_eq(deft_step_end(s), DEFT_E_DTYPE, "what is written comes of what is missed");
    cr_assert(o[0] == -7 && o[2] == -9, "%g %g", (double)o[0], (double)o[2]);
    s = deft_step_begin(r.cx);
    deft_assign(out, deft_add(t, other));
    OK(&r, deft_step_end(s));
    cr_assert(o[0] == 8 && o[2] == 12, "%g %g", (double)o[0], (double)o[2]);
}

/* deft_param_i, which the table above cannot call with a mistake that every place refuses. */
static int param_line;

static deft_status asks_for_n(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                              size_t n_out, void *user)
{
    const bool *const is_int = user;
    (void)n_in, (void)n_out;
    deft_tensor *p;
    param_line = __LINE__ + (*is_int ? 2 : 4);
    if (*is_int)
        p = deft_param_i(cx, "n");
    else
        p = deft_param_f(cx, "n");
    out[0] = deft_mul(in[0], p);
    return DEFT_OK;
}

Test(mistakes, unknown_parameters_name_the_line)
{
    deft_tensor *x = rig_range(&r, 4, 1), *out;
    for (int k = 0; k < 2; k++) {
        bool is_int = k;
        deft_capture *c = deft_capture_create(r.cx, asks_for_n, &is_int);
        cr_assert_eq(deft_capture_call(c, &x, 1, &out, 1), DEFT_E_ARG);
        names_line("capture", "parameter \"n\" was never set", is_int ? "param_i" : "param_f",
                   param_line);
        deft_capture_destroy(&c);
    }
}

static deft_status leaves_none(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = NULL;
    return deft_eval(in, 1); /* the call before */
}

/* What the function returns is a mistake of the call's, wherever the function stands. */
Test(mistakes, outputs_that_are_missing_name_the_call)
{
    deft_tensor *x = rig_range(&r, 4, 1), *out;
    deft_capture *c = deft_capture_create(r.cx, leaves_none, NULL);
    const int line = __LINE__ + 1;
    cr_assert_eq(deft_capture_call(c, &x, 1, &out, 1), DEFT_E_ARG);
    names_line("capture", "the function left output 0 NULL", "capture_call", line);
    deft_capture_destroy(&c);
}

static void miss(deft_tensor *t)
{
    cr_assert_null(deft_assign(t, deft_cast(t, DEFT_F64)));
}

static deft_status read_of(deft_tensor *t)
{
    float o[3];
    return deft_read(t, DEFT_F32, o, sizeof o);
}

Test(mistakes, a_later_assign_passes_a_missed_one_on)
{
    deft_tensor *x = rig_range(&r, 3, 1), *y = rig_range(&r, 3, 7);
    miss(x);
    cr_assert(deft_assign(x, deft_add(x, x)));
    cr_assert_eq(read_of(x), DEFT_E_DTYPE, "assigned from itself");
    miss(x);
    cr_assert(deft_assign(y, x));
    cr_assert_eq(read_of(y), DEFT_E_DTYPE, "assigned as it is");
    miss(x);
    cr_assert(deft_assign(y, deft_neg(x)));
    cr_assert(deft_assign(y, deft_add(y, y)));
    cr_assert_eq(read_of(y), DEFT_E_DTYPE, "assigned twice");
    miss(x);
    deft_tensor *const from_x = deft_neg(x);
    cr_assert(deft_assign_f(x, 5));
    OK(&r, read_of(x));
    cr_assert_eq(read_of(from_x), DEFT_E_DTYPE, "recorded before x was assigned again");
    miss(x);
    cr_assert(deft_assign(deft_slice(y, DEFT_R(0, 1)), deft_slice(x, DEFT_R(0, 1))));
    cr_assert_eq(read_of(y), DEFT_E_DTYPE, "a part of it was assigned");
    RIG_EXPECT(&r, x, 5, 5, 5);
}

Test(mistakes, a_step_passes_a_missed_assign_on)
{
    deft_tensor *x = rig_range(&r, 3, 1), *y = rig_range(&r, 3, 7);
    OK(&r, deft_eval((deft_tensor *[]){ x, y }, 2));
    miss(x);
    deft_scope s = deft_step_begin(r.cx);
    cr_assert(deft_assign(x, deft_add(x, x)));
    cr_assert_eq(deft_step_end(s), DEFT_E_DTYPE);
    RIG_EXPECT(&r, x, 1, 2, 3);
    miss(x);
    s = deft_step_begin(r.cx);
    cr_assert(deft_assign(y, x));
    cr_assert(deft_assign_f(x, 5));
    deft_step_abort(s);
    OK(&r, read_of(y));
    cr_assert_eq(read_of(x), DEFT_E_DTYPE, "its assign is missed as before the step");
    RIG_EXPECT(&r, x, 1, 2, 3);
    RIG_EXPECT(&r, y, 7, 8, 9);
}

Test(mistakes, a_lost_tensor_stays_lost_when_an_assign_to_it_fails)
{
    float o[4];
    deft_tensor *const bad = taken(RIG_VECTOR(&r, 0, 1, 2, 8));
    cr_assert_eq(deft_read(bad, DEFT_F32, o, sizeof o), DEFT_E_RANGE);
    cr_assert_null(deft_assign_f(bad, 1));
    deft_clear(r.cx);
    cr_assert_eq(deft_read(bad, DEFT_F32, o, sizeof o), DEFT_E_RANGE, "%s", deft_message(r.cx));
}

Test(mistakes, a_delivered_one_accuses_nothing_recorded_before_the_next)
{
    deft_tensor *x = rig_range(&r, 3, 1);
    miss(x);
    cr_assert_eq(read_of(x), DEFT_E_DTYPE);
    deft_tensor *const v = deft_add(x, x);
    miss(x);
    RIG_EXPECT(&r, v, 2, 4, 6);
    cr_assert_eq(read_of(x), DEFT_E_DTYPE);
}

Test(mistakes, that_gave_way_to_a_later_one_are_told_to_readers)
{
    deft_tensor *p = rig_range(&r, 3, 1), *q = rig_range(&r, 3, 5), *other = rig_range(&r, 3, 7);
    deft_tensor *const before = deft_neg(p);
    const int line = __LINE__ + 1;
    cr_assert_null(deft_assign(p, operand(r.cx, 5)));
    deft_tensor *const from_p = deft_add(p, 1);
    OK(&r, read_of(other));
    deft_tensor *const from_q = deft_neg(q);
    miss(q);
    OK(&r, read_of(other));
    OK(&r, read_of(before));
    OK(&r, read_of(from_q));
    cr_assert_eq(read_of(from_p), DEFT_E_SHAPE, "%s", deft_message(r.cx));
    names_line("an older mistake", "assign: a value of [5] does not broadcast to [3]", "assign",
               line);
    cr_assert_eq(deft_error(r.cx), DEFT_E_DTYPE, "the later one is still undelivered");
    OK(&r, read_of(p));
    cr_assert_eq(read_of(q), DEFT_E_DTYPE);
    OK(&r, read_of(q));
    miss(p);
    OK(&r, read_of(other));
    miss(q);
    deft_clear(r.cx);
    OK(&r, read_of(p));
    OK(&r, read_of(q));
    /* Each of many fails one call, also those whose sentences are no longer known. */
    deft_tensor *many[200];
    for (int i = 0; i < 200; i++) {
        many[i] = rig_range(&r, 3, 1);
        miss(many[i]);
        OK(&r, read_of(other));
    }
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 200; i++)
            cr_assert_eq(read_of(many[i]), k ? DEFT_OK : i < 196 ? DEFT_E_STATE : DEFT_E_DTYPE);
}

Test(mistakes, a_delivered_one_is_never_told_again)
{
    deft_tensor *const x = rig_range(&r, 3, 1), *y = rig_range(&r, 3, 7), *z = rig_range(&r, 4, 0);
    miss(x);
    cr_assert_eq(read_of(x), DEFT_E_DTYPE);
    for (int i = 0; i < 300; i++) {
        (void)deft_add(x, z);
        deft_tensor *const two[2] = { x, NULL };
        cr_assert_eq(deft_eval(two, 2), DEFT_E_SHAPE);
        miss(y);
        OK(&r, read_of(x));
        cr_assert_eq(read_of(y), DEFT_E_DTYPE);
    }
}

/* What is computed before its records go misses what its records did. */
Test(mistakes, a_missed_assign_outlives_records)
{
    deft_tensor *x = rig_range(&r, 3, 1), *other = rig_range(&r, 3, 7), *out;
    OK(&r, deft_eval((deft_tensor *[]){ x, other }, 2));
    deft_capture *c = deft_capture_create(r.cx, negate, NULL);
    for (int by = 0; by < 6; by++) {
        deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *t = by == 4 ? rig_range(&r, 3, 1) : x, *kept = NULL;
        if (by == 5) t = kept = deft_keep(rig_range(&r, 3, 1));
        deft_tensor *const before = deft_neg(t);
        miss(t);
        deft_tensor *from_t = deft_add(t, other);
        deft_tensor *const from_that = deft_mul(from_t, 2.0);
        if (by == 0) OK(&r, deft_capture_call(c, &other, 1, &out, 1));
        if (by == 1) OK(&r, empty_step());
        if (by == 2) OK(&r, read_of(other));
        if (by == 3) OK(&r, deft_eval((deft_tensor *[]){ before, other }, 2));
        if (by == 4) {
            deft_tensor *const sum = deft_scope_return(s, from_that);
            cr_assert_eq(read_of(sum), DEFT_E_DTYPE, "its scope has ended");
            OK(&r, read_of(sum));
            continue;
        }
        if (kept) deft_drop(&kept);
        OK(&r, read_of(before));
        cr_assert_eq(read_of(from_that), DEFT_E_DTYPE, "%d", by);
        OK(&r, read_of(from_t));
        OK(&r, deft_scope_end(s));
    }
    deft_capture_destroy(&c);
}

Test(mistakes, a_missed_assign_outlives_a_cut_by_a_budget)
{
    float o[3];
    deft_ctx *cx;
    const deft_ctx_options options = { .size = sizeof options, .max_nodes = 64 };
    OK(&r, deft_ctx_create(NULL, &options, &cx));
    /* Of whole numbers nobody asks for gradients, so that the sum is left as a value alone. */
    deft_tensor *const x = deft_full(cx, DEFT_SHAPE(3), DEFT_I32, 1.0);
    cr_assert_null(deft_assign(x, deft_cast(x, DEFT_F64)));
    deft_tensor *const from_x = deft_add(x, 1), *other = deft_full(cx, DEFT_SHAPE(3), DEFT_F32, 2);
    for (int i = 0; i < 20000; i++) other = deft_neg(other);
    OK(&r, deft_read(other, DEFT_F32, o, sizeof o));
    cr_assert_eq(deft_read(deft_neg(from_x), DEFT_F32, o, sizeof o), DEFT_E_DTYPE);
    OK(&r, deft_read(from_x, DEFT_F32, o, sizeof o));
    deft_ctx_destroy(&cx);
}

static deft_tensor *outside;

static deft_status use_outside(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(in[0], outside ? outside : in[0]);
    return DEFT_OK;
}

static void captures_deliver(deft_tensor *missing, deft_tensor *in)
{
    deft_tensor *out;
    deft_capture *c = deft_capture_create(r.cx, use_outside, NULL);
    miss(missing);
    cr_assert_eq(deft_capture_call(c, &in, 1, &out, 1), DEFT_E_DTYPE, "a call that records");
    OK(&r, deft_capture_call(c, &in, 1, &out, 1));
    OK(&r, deft_capture_call(c, &in, 1, &out, 1));
    miss(missing);
    cr_assert_eq(deft_capture_call(c, &in, 1, &out, 1), DEFT_E_DTYPE, "a replay");
    OK(&r, deft_capture_call(c, &in, 1, &out, 1));
    deft_capture_destroy(&c);
}

Test(mistakes, a_missed_assign_is_told_to_captures)
{
    deft_tensor *x = rig_range(&r, 3, 1), *y = rig_range(&r, 3, 7);
    OK(&r, deft_eval((deft_tensor *[]){ x, y }, 2));
    outside = NULL;
    captures_deliver(x, x);
    outside = x;
    captures_deliver(x, y);
}

Test(mistakes, that_are_ignored_stop_no_captured_call)
{
    deft_tensor *x = rig_range(&r, 3, 1), *out;
    outside = NULL;
    deft_capture *c = deft_capture_create(r.cx, use_outside, NULL);
    cr_assert_null(deft_slice(x, DEFT_R(2, 9)));
    for (int i = 0; i < 2; i++) {
        OK(&r, deft_capture_call(c, &x, 1, &out, 1));
        RIG_EXPECT(&r, out, 1, 4, 9);
        cr_assert_eq(deft_error(r.cx), DEFT_E_RANGE, "still there for who asks");
    }
    deft_capture_destroy(&c);
}

Test(mistakes, a_query_records_nothing)
{
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const gone = deft_neg(rig_range(&r, 3, 1));
    OK(&r, deft_scope_end(s));
    cr_assert_eq(deft_rank(gone), 0);
    cr_assert_eq(deft_dim(NULL, 0), -1);
    cr_assert_eq(deft_numel(NULL), 1);
    cr_assert_eq(deft_dtype_of(gone), DEFT_BOOL);
    cr_assert_null(deft_ctx_of(gone));
    cr_assert_eq(deft_error(r.cx), DEFT_OK, "%s", deft_message(r.cx));
}

/* ---- what happens between a mistake and a call on its tensor ---- */

typedef enum between { NOTHING, EVAL, READ, STEP, SCOPE, BUDGET, N_BETWEEN } between;
typedef enum asked { ITSELF, MAP, TAKEN, NOT_TAKEN, N_ASKED } asked;

static void call_between(between b, deft_tensor *other)
{
    deft_scope s;
    if (b == EVAL) OK(&r, deft_eval(&other, 1));
    if (b == READ) OK(&r, read_of(other));
    if (b == STEP) OK(&r, empty_step());
    if (b == SCOPE) {
        s = deft_scope_begin(r.cx);
        (void)deft_neg(other);
        OK(&r, deft_scope_end(s));
    }
    for (int i = 0; i < 100 && b == BUDGET; i++) other = deft_neg(other);
}

/* bad: x holds an index that lies outside, and what is asked for comes of what is taken there. Else
 * x misses an assign. */
static void one_case(bool bad, between b, asked a, const char *text)
{
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const x = bad ? RIG_VECTOR(&r, 0, 1, 8) : rig_range(&r, 3, 1);
    deft_tensor *const in = rig_range(&r, 3, 1), *const other = rig_range(&r, 3, 7);
    if (!bad) miss(x);
    deft_tensor *const t = bad ? taken(x) : x;
    deft_tensor *const what = a == ITSELF  ? t
                              : a == MAP   ? deft_add(t, 1)
                              : a == TAKEN ? chosen(in, t, 0)
                                           : chosen(in, t, 99);
    const deft_status fails = bad ? DEFT_E_RANGE : DEFT_E_DTYPE;
    const bool needs = !bad || a != NOT_TAKEN;
    /* A step's end computes all that lives on, and delivers. */
    if (bad && b == STEP)
        cr_assert_eq(empty_step(), fails, "%s", text);
    else
        call_between(b, other);
    cr_assert_eq(read_of(what), needs ? fails : DEFT_OK, "%s: %s", text, deft_message(r.cx));
    OK(&r, read_of(other));
    if (bad && !(b == STEP || needs)) cr_assert_eq(empty_step(), fails, "%s", text);
    OK(&r, empty_step());
    cr_assert_eq(read_of(what), bad && needs ? fails : DEFT_OK, "%s: %s", text, deft_message(r.cx));
    cr_assert_eq(read_of(t), bad ? fails : DEFT_OK, "%s: %s", text, deft_message(r.cx));
    cr_assert_eq(deft_error(r.cx), DEFT_OK, "%s", text);
    OK(&r, deft_scope_end(s));
}

Test(mistakes, fail_one_call_whatever_lies_between)
{
    char text[64];
    deft_ctx *const usual = r.cx;
    const deft_ctx_options options = { .size = sizeof options, .max_nodes = 64 };
    OK(&r, deft_ctx_create(NULL, &options, &r.cx));
    for (int bad = 0; bad < 2; bad++)
        for (between b = NOTHING; b < N_BETWEEN; b++)
            for (asked a = ITSELF; a < N_ASKED; a++) {
                snprintf(text, sizeof text, "bad %d, between %d, asked %d", bad, b, a);
                one_case(bad, b, a, text);
            }
    deft_ctx_destroy(&r.cx);
    r.cx = usual;
}

/* ---- what a context shows without a log ---- */

Test(mistakes, why_needs_no_log)
{
    deft_ctx *cx;
    char text[4096];
    float v[4];
    OK(&r, deft_ctx_create(NULL, NULL, &cx));
    OK(&r, deft_read(deft_sqrt(deft_mul(deft_ones(cx, DEFT_SHAPE(4), DEFT_F32), 2)), DEFT_F32, v,
                     sizeof v));
    cr_assert(deft_show(cx, "why", text, sizeof text) > 0);
    cr_expect(strstr(text, "mul, %"), "%s", text);
    cr_expect(strstr(text, "fused"), "%s", text);
    cr_expect(strstr(text, "plan"), "the events, too: %s", text);
    deft_ctx_destroy(&cx);
}

/* An acting call names its own line for a mistake of its own, and not that of the call before. */
Test(mistakes, of_acting_calls_name_their_line)
{
    deft_tensor *x = rig_range(&r, 4, 1), *out;
    deft_capture *c = deft_capture_create(r.cx, leaves_none, NULL);
    const deft_named file = { "x", x };
    const deft_scope ended = deft_step_begin(r.cx);
    OK(&r, deft_step_end(ended));
    for (int row = 0; row >= 0; row++) {
        const char *what = NULL;
        float o[3];
        deft_step_memory m;
        deft_device where;
        deft_mapped mapped;
        int line = 0, n = 0;
        deft_status st = DEFT_OK;
        const deft_scope s = deft_step_begin(r.cx);
        OK(&r, deft_eval(&x, 1)); /* the acting call before */
#define ACT(name, call)                                                                            \
    if (row == n++) {                                                                              \
        what = name;                                                                               \
        line = __LINE__;                                                                           \
        st = (call);                                                                               \
    }
        /* clang-format off: the line of a row is that of its call */
        ACT("read", deft_read(x, DEFT_F32, o, sizeof o))
        ACT("item", deft_item(x, o))
        ACT("map", deft_map(x, NULL))
        ACT("map_device", deft_map_device(x, NULL, &where))
        ACT("map_device", deft_map_device(x, &mapped, NULL))
        ACT("device_of", deft_device_of(x, NULL))
        ACT("format", deft_format(x, NULL, 8, NULL))
        ACT("scope_end", deft_scope_end(ended))
        ACT("step_end", deft_step_end(ended))
        ACT("step_submit", deft_step_submit(ended))
        ACT("step_memory_read", deft_step_memory_read(ended, &m, sizeof m))
        ACT("step_memory_read", deft_step_memory_read(s, NULL, 0))
        ACT("save", deft_save(r.cx, "/no such folder/x", &file, 1))
        ACT("load", deft_load(r.cx, "/no such folder/x", &file, 1))
        ACT("capture_set", deft_capture_set_f(c, "", 1))
        ACT("capture_call", deft_capture_call(c, NULL, 1, &out, 1))
        /* clang-format on */
#undef ACT
        if (!what) row = -2;
        cr_assert(!what || st != DEFT_OK, "%s", what);
        if (what) names_line("an acting call", NULL, what, line);
        deft_clear(r.cx);
        deft_step_abort(s);
    }
    deft_capture_destroy(&c);
}

Test(mistakes, kept_tensors_are_listed)
{
    char text[4096];
    cr_assert_eq(deft_show(r.cx, "kept", text, sizeof text), 0);
    deft_tensor *x = deft_ones(r.cx, DEFT_SHAPE(2, 3), DEFT_F64);
    const int line = __LINE__ + 1;
    deft_keep(x);
    deft_keep(x);
    cr_assert(deft_show(r.cx, "kept", text, sizeof text) > 0);
    const place first = place_of(line);
    cr_expect(strstr(text, "f64[2,3] 48 bytes, kept 2 times, first at ") &&
                  strstr(text, first.text),
              "%s", text);
    cr_expect(strstr(text, ", not computed"), "%s", text);
    deft_tensor *again = x;
    deft_drop(&again);
    deft_drop(&x);
    cr_assert_eq(deft_show(r.cx, "kept", text, sizeof text), 0);
}

Test(mistakes, a_folder_for_the_log_is_made)
{
    char dir[] = "/tmp/deft-mistakes-XXXXXX", deep[64], inside[64];
    cr_assert(mkdtemp(dir));
    snprintf(deep, sizeof deep, "%s/a/b", dir);
    deft_runtime_options o = { .size = sizeof o, .trace_dir = deep };
    deft_runtime *rt;
    deft_ctx *cx;
    struct stat s;
    OK(&r, deft_runtime_create(&o, &rt));
    OK(&r, deft_ctx_create(rt, NULL, &cx));
    cr_assert_eq(stat(deep, &s), 0);
    cr_assert_eq(s.st_mode & 0777, 0700);
    cr_assert_str_eq(deft_message(cx), "");
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    /* Where it cannot be, the first sentence of a context says so. */
    o.trace_dir = "/proc/no/such/folder";
    OK(&r, deft_runtime_create(&o, &rt));
    OK(&r, deft_ctx_create(rt, NULL, &cx));
    cr_expect(strstr(deft_message(cx), "trace_dir: no file in /proc/no/such/folder"), "%s",
              deft_message(cx));
    cr_assert_eq(deft_error(cx), DEFT_OK);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    snprintf(inside, sizeof inside, "rm -r %s", dir);
    cr_assert_eq(system(inside), 0);
}
