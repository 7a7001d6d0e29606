/* SPDX-License-Identifier: Apache-2.0
 *
 * Formulas: that each function and operator of the language is that of deft, that numbers keep
 * their values in all dtypes, derivatives of both kinds, and the sentence of each mistake.
 *
 * Why this file is long: each function, operator and mistake of the language has a row.
 */
#include "support/harness.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 1);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(formula, .init = set_up, .fini = tear_down);

#define LEN(a) (sizeof(a) / sizeof *(a))
#define VECTOR(...) RIG_VECTOR(&r, __VA_ARGS__)
#define EXPECT(t, ...) RIG_EXPECT(&r, t, __VA_ARGS__)
#define DEF(...)                                                                                   \
    (&(deft_formula_def){ .size = sizeof(deft_formula_def), .version = 1, __VA_ARGS__ })

static deft_op *define(const deft_formula_def *d)
{
    char why[256];
    deft_op *op = NULL;
    cr_assert_eq(deft_formula_define(r.rt, d, &op, why, sizeof why), DEFT_OK, "%s", why);
    cr_assert_str_eq(why, "");
    return op;
}

/* A formula of a name that no other has. */
static deft_op *formula(const char *text)
{
    static int n;
    char name[32];
    (void)snprintf(name, sizeof name, "formula.n%d", n++);
    return define(DEF(.name = name, .text = text));
}

/* ---- the same as by hand ---- */

static deft_scope plan_scope;

static void begin_plan(void)
{
    plan_scope = deft_scope_begin(r.cx);
}

/* The trace, its key and the plan of the cut that computes t, which was recorded since
 * begin_plan. */
static char *end_plan(deft_tensor *t)
{
    static const char *const what[] = { "trace", "key", "guards", "plan" };
    char *const text = calloc(4, 1 << 16);
    OK(&r, deft_eval(&t, 1));
    for (size_t i = 0; i < LEN(what); i++)
        cr_assert(deft_show(r.cx, what[i], text + strlen(text), 1 << 16) < 1 << 16);
    OK(&r, deft_scope_end(plan_scope));
    return text;
}

static void expect_equal_texts(char *a, char *b, const char *what)
{
    cr_assert(!strcmp(a, b), "%s:\n%s\n-- and --\n%s", what, a, b);
    free(a);
    free(b);
}

#define EXPECT_EQUAL_PLANS(by_formula, by_hand, what)                                              \
    do {                                                                                           \
        begin_plan();                                                                              \
        char *const plan_of_formula = end_plan(by_formula);                                        \
        begin_plan();                                                                              \
        expect_equal_texts(plan_of_formula, end_plan(by_hand), what);                              \
    } while (0)

/* Abramowitz and Stegun, Handbook of Mathematical Functions, 9.4.1 and 9.4.3. */
static const char j0_text[] =
    "(x) {                                                                            \n"
    "    z = abs(x);  // J0 is even                                                   \n"
    "    t = square(x / 3);                                                           \n"
    "    near = polyval(t, 0.00021, -0.0039444, 0.0444479, -0.3163866, 1.2656208,     \n"
    "                   -2.2499997, 1);                                               \n"
    "    u = 3 / z;                                                                   \n"
    "    f = polyval(u, 0.00014476, -0.00072805, 0.00137237, -0.00009512, -0.0055274, \n"
    "                -0.00000077, 0.79788456);                                        \n"
    "    angle = polyval(u, 0.00013558, -0.00029333, -0.00054125, 0.00262573,         \n"
    "                    -0.00003954, -0.04166397, -0.78539816) + z;                  \n"
    "    return z <= 3 ? near : f * cos(angle) / sqrt(z);                             \n"
    "}";

static deft_tensor *horner(deft_tensor *x, const double *c, size_t n)
{
    deft_tensor *y = deft_mul(x, c[0]);
    for (size_t i = 1; i + 1 < n; i++) y = deft_mul(deft_add(y, c[i]), x);
    return deft_add(y, c[n - 1]);
}

static deft_tensor *j0_by_hand(deft_tensor *x)
{
    static const double c_near[] = { 0.00021,   -0.0039444, 0.0444479, -0.3163866,
                                     1.2656208, -2.2499997, 1 };
    static const double c_far[] = { 0.00014476, -0.00072805, 0.00137237, -0.00009512,
                                    -0.0055274, -0.00000077, 0.79788456 };
    static const double c_angle[] = { 0.00013558,  -0.00029333, -0.00054125, 0.00262573,
                                      -0.00003954, -0.04166397, -0.78539816 };
    deft_tensor *const z = deft_abs(x);
    deft_tensor *const near = horner(deft_square(deft_div(x, 3)), c_near, LEN(c_near));
    deft_tensor *const u = deft_rdiv(z, 3);
    deft_tensor *const f = horner(u, c_far, LEN(c_far));
    deft_tensor *const angle = deft_add(horner(u, c_angle, LEN(c_angle)), z);
    deft_tensor *const is_near = deft_le(z, 3), *const wave = deft_mul(f, deft_cos(angle));
    return deft_where(is_near, near, deft_div(wave, deft_sqrt(z)));
}

Test(formula, has_the_plan_of_the_same_operations_by_hand)
{
    deft_op *const j0 = formula(j0_text);
    deft_tensor *const x = VECTOR(0, 1, 2.5f, -4, 10, 20);
    EXPECT_EQUAL_PLANS(deft_apply(j0, x), j0_by_hand(x), "J0");
    cr_assert_eq(rig_stats(&r).plans_built, 1);
    EXPECT_EQUAL_PLANS(rig_grad_of_sum(deft_apply(j0, x), x), rig_grad_of_sum(j0_by_hand(x), x),
                       "gradient");
    /* Handbook, table 9.1. */
    static const float want[] = { 1,          0.76519769f, -0.04838378f, -0.39714981f, -0.24593576f,
                                  0.16702466f };
    float got[6];
    rig_read(&r, deft_apply(j0, x), got, 6);
    for (int i = 0; i < 6; i++) cr_assert_float_eq(got[i], want[i], 2e-6, "%d: %g", i, got[i]);
}

/* ---- functions and operators ---- */

static deft_op *formula_of(const char *fmt, const char *name)
{
    char text[128];
    (void)snprintf(text, sizeof text, fmt, name);
    return formula(text);
}

Test(formula, has_the_functions_of_one_tensor)
{
    deft_tensor *const f = VECTOR(0.25f, 0.5f, 0.75f), *const i = deft_cast(f, DEFT_I32);
#define UNARY(name)                                                                                \
    EXPECT_EQUAL_PLANS(                                                                            \
        deft_apply(formula_of("(x) { return %s(x); }", #name), !strncmp(#name, "bit", 3) ? i : f), \
        deft_##name(!strncmp(#name, "bit", 3) ? i : f), #name);
    DEFT_UNARY_OPS(UNARY)
}

Test(formula, has_the_functions_of_two_tensors_and_of_numbers)
{
    deft_tensor *const f = VECTOR(1.25f, 2.5f, 3.75f), *const g = VECTOR(3, 2, 1);
    deft_tensor *const i = deft_cast(f, DEFT_I32), *const k = deft_cast(g, DEFT_I32);
#define IS_OF_INTS(name)                                                                           \
    (!strncmp(#name, "bit", 3) || !strncmp(#name, "shift", 5) || strstr(#name, "c_div"))
#define BINARY(name)                                                                               \
    do {                                                                                           \
        deft_tensor *const a = IS_OF_INTS(name) ? i : f, *const b = IS_OF_INTS(name) ? k : g;      \
        EXPECT_EQUAL_PLANS(deft_apply(formula_of("(x, y) { return %s(x, y); }", #name), a, b),     \
                           (deft_##name)(a, b), #name);                                            \
        EXPECT_EQUAL_PLANS(deft_apply(formula_of("(x) { return %s(x, 2); }", #name), a),           \
                           deft_##name##_i(a, 2), #name " of an integer");                         \
        if (IS_OF_INTS(name)) break;                                                               \
        EXPECT_EQUAL_PLANS(deft_apply(formula_of("(x) { return %s(x, 2.5); }", #name), a),         \
                           deft_##name##_f(a, 2.5), #name " of a number");                         \
    } while (0);
    DEFT_BINARY_OPS(BINARY)
}

/* A number in front gives what a tensor of that number gives. */
Test(formula, has_functions_of_a_number_and_a_tensor)
{
    deft_tensor *const f = VECTOR(1.25f, 2.5f, 3.75f), *const i = deft_cast(f, DEFT_I32);
#define NUMBER_FIRST(name)                                                                         \
    do {                                                                                           \
        deft_tensor *const b = IS_OF_INTS(name) ? i : f;                                           \
        float want[3], got[3];                                                                     \
        rig_read(&r,                                                                               \
                 deft_##name(                                                                      \
                     deft_cast(deft_full(r.cx, DEFT_SHAPE(3), DEFT_F32, 7), deft_dtype_of(b)), b), \
                 want, 3);                                                                         \
        rig_read(&r, deft_apply(formula_of("(x) { return %s(7, x); }", #name), b), got, 3);        \
        for (int e = 0; e < 3; e++)                                                                \
            cr_assert(got[e] == want[e], #name ": %g, not %g", got[e], want[e]);                   \
    } while (0);
    DEFT_BINARY_OPS(NUMBER_FIRST)
}

/* The value of a formula of x = 5 and y = 3, as f64 or as i64. */
static double value_of(const char *expression, deft_dtype t)
{
    double v = NAN;
    char text[256];
    (void)snprintf(text, sizeof text, "(x, y) { return %s; }", expression);
    deft_tensor *const x = deft_full(r.cx, DEFT_SHAPE(), t, 5);
    deft_tensor *const y = deft_full(r.cx, DEFT_SHAPE(), t, 3);
    OK(&r, deft_item_f64(deft_apply(formula(text), x, y), &v));
    return v;
}

Test(formula, has_the_operators_and_the_precedence_of_c)
{
    const double x = 5, y = 3;
    const int64_t i = 5, k = 3;
#define REAL(e, c)                                                                                 \
    cr_assert(value_of(e, DEFT_F64) == (double)(c), "%s: %g", e, value_of(e, DEFT_F64))
#define INT(e, c)                                                                                  \
    cr_assert(value_of(e, DEFT_I64) == (double)(c), "%s: %g", e, value_of(e, DEFT_I64))
    REAL("x - y - 1", x - y - 1);
    REAL("x - (y - 1)", x - (y - 1));
    REAL("x / y * 2", x / y * 2);
    REAL("x + y * 2", x + y * 2);
    REAL("-x * -y", -x * -y);
    REAL("- - x + + y", x + y);
    REAL("x % y + 0.5", fmod(x, y) + 0.5);
    REAL("x < y ? 1 : x > y ? 2 : 3", 2);
    REAL("(x < y) + (x >= y) * 2 + (x <= 5) * 4 + (x == y) * 8 + (x != y) * 16", 22);
    REAL("x > y && y > 4 || x == 5", 1);
    REAL("x > y && (y > 4 || x == 4)", 0);
    REAL("!(x > y) || !y", 0);
    REAL("1.5e1 + .5 - 2.E-1*x", 1.5e1 + .5 - 2.E-1 * x);
    REAL("where(x > y, min(x, y), max(x, y))", 3);
    REAL("fma(x, y, 2)", 17);
    REAL("clamp(x, 1, y) + clamp(y, 4, 9)", 7);
    REAL("polyval(x, 2, y, 4)", 2 * x * x + y * x + 4);
    REAL("f32(x / y)", (float)(x / y));
    REAL("pow(x, 2) + pow(2, y)", 33);
    REAL("x /* one */ + // two\n y", 8);
    REAL("x * pi", x * 3.14159265358979323846);
    REAL("x < inf ? 1 : nan", 1);
    INT("x | y & 6 ^ 8", i | ((k & 6) ^ 8));
    INT("x << 2 + 1 >> y", i << (2 + 1) >> k);
    INT("~x & 0xff", ~i & 0xff);
    INT("x & 4 == y", i & (4 == k));
    INT("x * 9007199254740993", 0 * i + 45035996273704965.0);
    INT("x % y", i % k);
}

/* ---- numbers ---- */

Test(formula, computes_with_numbers_when_it_is_defined)
{
    REAL("x * (1 / 2)", 2.5);
    REAL("x * (2 - 3 * 4 + -1 - abs(-2))", 5 * -13);
    REAL("x + sqrt(2) * sqrt(2)", 5 + sqrt(2) * sqrt(2));
    REAL("x + abs(-0.5) + (9007199254740993 - 9007199254740992)", 6.5);
    cr_assert_eq(deft_op_inputs(formula("(x) { two = 1 + 1; return x * two; }")), 1);
}

/* 0.1 is not rounded to f32 where it meets no tensor, or only a tensor of bools. */
Test(formula, keeps_the_bits_of_numbers)
{
    REAL("(x > y ? 0.1 : 0.2) * 1", 0.1);
    REAL("0.1 + 0 * x", 0.1);
    deft_op *const op = formula("(x) { return x > 1 ? 0.5 : 2; }");
    static const struct {
        deft_dtype in, out;
    } row[] = { { DEFT_F64, DEFT_F64 },
                { DEFT_F32, DEFT_F32 },
                { DEFT_BF16, DEFT_BF16 },
                { DEFT_I32, DEFT_F32 },
                { DEFT_BOOL, DEFT_F32 } };
    for (size_t i = 0; i < LEN(row); i++) {
        deft_tensor *const y = deft_apply(op, deft_cast(VECTOR(0, 1, 3), row[i].in));
        cr_assert_eq((int)deft_dtype_of(y), (int)row[i].out, "%zu", i);
        EXPECT(y, 2, 2, row[i].in == DEFT_BOOL ? 2 : 0.5f);
    }
    deft_op *const zeros = formula("(x) { return x * 0, x * 0.0; }");
    deft_tensor *out[2], *const whole = deft_cast(VECTOR(1, 2), DEFT_I32);
    cr_assert(deft_op_call(r.cx, zeros, &whole, 1, NULL, out, 2));
    cr_assert_eq((int)deft_dtype_of(out[0]), DEFT_I32);
    cr_assert_eq((int)deft_dtype_of(out[1]), DEFT_F32);
    deft_op *const ints = formula("(x) { return x > 1 ? 1 : -1; }");
    cr_assert_eq((int)deft_dtype_of(deft_apply(ints, deft_cast(VECTOR(1), DEFT_I16))), DEFT_I16);
    cr_assert_eq((int)deft_dtype_of(deft_apply(ints, deft_cast(VECTOR(1), DEFT_BOOL))), DEFT_I64);
}

static deft_status apply_number(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                deft_tensor **out, size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out;
    out[0] = deft_apply(*(deft_op **)user, in[0]);
    return DEFT_OK;
}

/* Numbers of the program are refused in captures; those of a formula are part of it. */
Test(formula, is_captured_with_its_numbers)
{
    deft_op *op = formula("(x) { return 2 * x + 0.5; }");
    deft_capture *c = deft_capture_create(r.cx, apply_number, &op);
    for (int i = 0; i < 3; i++) {
        deft_tensor *y, *const x = rig_range(&r, 2, (float)i);
        OK(&r, deft_capture_call(c, &x, 1, &y, 1));
        EXPECT(y, 2 * (float)i + 0.5f, 2 * (float)i + 2.5f);
    }
    deft_capture_destroy(&c);
}

/* ---- results and inputs ---- */

Test(formula, has_several_results_and_takes_bare_numbers)
{
    deft_op *const polar = formula("(x, y) { r = hypot(x, y); return r, x, x - y; }");
    deft_tensor *out[3];
    cr_assert_eq(deft_op_results(polar), 3);
    cr_assert(deft_op_call(r.cx, polar, (deft_tensor *[]){ VECTOR(3, 0), deft_num(r.cx, 4) }, 2,
                           NULL, out, 3));
    EXPECT(out[0], 5, 4);
    EXPECT(out[1], 3, 0);
    EXPECT(out[2], -1, -4);
}

/* ---- derivatives ---- */

static deft_tensor *number(double v)
{
    return deft_keep(deft_full(r.cx, DEFT_SHAPE(), DEFT_F64, v));
}

/* The derivative of y by in[i], as f64. */
static double slope_by(deft_tensor *y, deft_tensor *const *in, size_t n_in, size_t i)
{
    deft_tensor *g[4];
    double v = NAN;
    cr_assert(deft_grad(&y, NULL, 1, in, n_in, NULL, g), "%s", deft_message(r.cx));
    OK(&r, deft_item_f64(g[i], &v));
    return v;
}

static const char product_text[] = "(x, a) { return a * x * x; }";

Test(formula, has_the_derivative_that_follows_from_it)
{
    deft_op *const op = formula(product_text);
    deft_tensor *const in[] = { number(0.5), number(3) };
    cr_assert_eq(slope_by(deft_apply(op, in[0], in[1]), in, 2, 0), 3);
    cr_assert_eq(slope_by(deft_apply(op, in[0], in[1]), in, 2, 1), 0.25);
}

/* Other numbers than the true ones show whose derivative it is. */
Test(formula, has_the_derivative_it_defines)
{
    deft_op *const op = define(DEF(.name = "d.given", .text = product_text,
                                   .derivative = "(x, a, y) { return x + 10 * y, 7; }"));
    deft_tensor *const in[] = { number(0.5), number(3) };
    cr_assert_eq(slope_by(deft_apply(op, in[0], in[1]), in, 2, 0), 8);
    cr_assert_eq(slope_by(deft_apply(op, in[0], in[1]), in, 2, 1), 7);
    /* and of that derivative: x + 10 y, of which y has the derivative of the formula */
    deft_tensor *y = deft_apply(op, in[0], in[1]), *g;
    cr_assert(deft_grad(&y, NULL, 1, in, 1, NULL, &g));
    cr_assert_eq(slope_by(g, in, 1, 0), 1 + 10 * 8);
}

Test(formula, has_no_derivative_where_it_is_the_number_0)
{
    deft_op *const op = define(DEF(.name = "d.zero", .text = "(x, a) { return x * a, x + a; }",
                                   .derivative = "(x, a) { return a, 0, 1, 0; }"));
    deft_tensor *const in[] = { number(0.5), number(3) }, *out[2], *g[2];
    cr_assert(deft_op_call(r.cx, op, in, 2, NULL, out, 2));
    deft_tensor *sum = deft_add(out[0], out[1]);
    cr_assert_eq(slope_by(sum, in, 1, 0), 4);
    cr_assert(!deft_grad(&sum, NULL, 1, in, 2, NULL, g));
    rig_expect_error(&r, NULL, DEFT_E_STATE, "no result depends on tensor 1");
}

/* The gradient has the shape and dtype of the input. */
Test(formula, sums_derivatives_over_axes_that_broadcast)
{
    static const char *const derivative[] = { NULL, "(x, a) { return 2 * a * x, x * x; }" };
    for (size_t d = 0; d < LEN(derivative); d++) {
        deft_op *const op = define(DEF(.name = d ? "d.given" : "d.derived", .text = product_text,
                                       .derivative = derivative[d]));
        deft_tensor *const x = rig_tensor(&r, DEFT_SHAPE(2, 3), (float[]){ 1, 2, 3, 4, 5, 6 });
        deft_tensor *const a = deft_keep(deft_cast(
            rig_tensor(&r, DEFT_SHAPE(2, 1), (float[]){ 1, -1 }), d ? DEFT_BF16 : DEFT_F32));
        deft_tensor *const row = VECTOR(1, 2, 3);
        deft_tensor *const by_a = rig_grad_of_sum(deft_apply(op, x, a), a);
        cr_assert_eq((int)deft_dtype_of(by_a), (int)deft_dtype_of(a));
        EXPECT(by_a, 14, d ? 77 : 77);
        EXPECT(rig_grad_of_sum(deft_apply(op, row, x), row), 10, 28, 54);
        EXPECT(rig_grad_of_sum(deft_apply(op, x, row), row), 17, 29, 45);
    }
}

Test(formula, has_derivatives_of_complex_numbers)
{
    double g[2][4];
    for (int d = 0; d < 2; d++) {
        deft_op *const op =
            define(DEF(.name = d ? "d.given" : "d.derived", .text = "(x, a) { return a * x * x; }",
                       .derivative = d ? "(x, a) { return 2 * a * x, x * x; }" : NULL));
        deft_tensor *in[] = { deft_keep(deft_complex(number(1), number(2))),
                              deft_keep(deft_complex(number(-3), number(0.5))) };
        deft_tensor *const y = deft_apply(op, in[0], in[1]);
        deft_tensor *loss = deft_add(deft_real(y), deft_mul(deft_imag(y), 3)), *out[2];
        cr_assert(deft_grad(&loss, NULL, 1, in, 2, NULL, out), "%s", deft_message(r.cx));
        for (int i = 0; i < 2; i++) {
            OK(&r, deft_item_f64(deft_real(out[i]), &g[d][2 * i]));
            OK(&r, deft_item_f64(deft_imag(out[i]), &g[d][2 * i + 1]));
        }
    }
    for (int i = 0; i < 4; i++) cr_assert_float_eq(g[0][i], g[1][i], 1e-12, "%d", i);
}

/* ---- formulas in formulas ---- */

/* The derivatives of the called formula are those that it defines. */
Test(formula, calls_other_formulas)
{
    char why[256];
    deft_op *inner = define(DEF(.name = "call.inner", .text = "(x, a) { return x * x * a; }",
                                .derivative = "(x, a) { return 2 * a * x + 100, x * x; }"));
    deft_op *outer =
        define(DEF(.name = "call.outer", .text = "(x) { return call.inner(x + 1, 3) - x; }",
                   .derivative = "(x) { return call.inner(x, 1); }"));
    deft_op *again = define(
        DEF(.name = "call.again", .text = "(x) { return call.inner(x, 2) + call.inner(2, x); }"));
    deft_tensor *const x = number(0.5);
    const deft_scope step = deft_step_begin(r.cx);
    double v;
    OK(&r, deft_item_f64(deft_apply(outer, x), &v));
    cr_assert_eq(v, 1.5 * 1.5 * 3 - 0.5);
    cr_assert_eq(slope_by(deft_apply(outer, x), &x, 1, 0), 0.25);
    cr_assert_eq(slope_by(deft_apply(again, x), &x, 1, 0), 102 + 4);
    OK(&r, deft_step_end(step));
    /* What is called stays, until the last that calls it has gone. */
    cr_assert_eq(deft_op_destroy(&inner, why, sizeof why), DEFT_E_STATE);
    cr_assert_str_eq(why, "op_destroy: call.inner: 3 texts of formulas call it");
    OK(&r, deft_op_destroy(&outer, NULL, 0));
    cr_assert_eq(deft_op_destroy(&inner, why, sizeof why), DEFT_E_STATE);
    OK(&r, deft_op_destroy(&again, NULL, 0));
    OK(&r, deft_op_destroy(&inner, NULL, 0));
    cr_assert_null(inner);
}

Test(formula, has_the_plan_of_the_formulas_it_calls)
{
    (void)define(DEF(.name = "call.square", .text = "(x) { return x * x; }"));
    deft_op *const by_call = formula("(x, y) { return call.square(x) + call.square(y) * 2; }");
    deft_op *const by_hand = formula("(x, y) { a = x * x; return a + y * y * 2; }");
    deft_tensor *const x = VECTOR(1, 2), *const y = VECTOR(3, 4);
    EXPECT_EQUAL_PLANS(deft_apply(by_call, x, y), deft_apply(by_hand, x, y), "call");
}

/* ---- checks ---- */

static void logistic(const double *in, double *out)
{
    out[0] = in[1] / (1 + exp(-in[0]));
}

static char report[4096];

static deft_status check_formula(deft_op *op, deft_dtype t)
{
    deft_tensor *const x =
        deft_cast(rig_tensor(&r, DEFT_SHAPE(2, 3), (float[]){ -2, 0, 1, 3, 5, 6 }), t);
    deft_tensor *const a = deft_cast(VECTOR(1, -2, 0.5f), t);
    return deft_op_check(r.cx, op, (deft_tensor *const[]){ x, a }, 2, NULL, NULL, report,
                         sizeof report);
}

Test(formula, is_checked)
{
    static const struct {
        const char *name, *text, *derivative, *fault;
    } row[] = {
        { "c.right", "(x, a) { return a / (1 + exp(-x)); }", NULL, "" },
        { "c.both", "(x, a) { return a / (1 + exp(-x)); }",
          "(x, a, y) { s = sigmoid(x); return y * (1 - s), s; }", "" },
        { "c.number", "(x, a) { return a / (1.0000001 + exp(-x)); }", NULL,
          "reference: result 0 of element 0 is " },
        { "c.slope", "(x, a) { return a / (1 + exp(-x)); }",
          "(x, a, y) { s = sigmoid(x); return y * (1 + s), s; }", "reverse: input 0" },
        { "c.nan", "(x, a) { return x > 5 ? nan : a / (1 + exp(-x)); }", NULL, "reference: " },
    };
    for (size_t i = 0; i < LEN(row); i++)
        for (int f64 = 0; f64 < 2; f64++) {
            deft_op *const op = define(DEF(.name = row[i].name, .text = row[i].text,
                                           .derivative = row[i].derivative, .reference = logistic));
            const deft_status st = check_formula(op, f64 ? DEFT_F64 : DEFT_F32);
            cr_assert_eq(st, *row[i].fault ? DEFT_E_CHECK : DEFT_OK, "%s: %s\n%s", row[i].name,
                         deft_message(r.cx), report);
            cr_assert(!strncmp(report, row[i].fault, strlen(row[i].fault)), "%s: %s", row[i].name,
                      report);
        }
}

/* ---- mistakes ---- */

static deft_status identity(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = in[0];
    return DEFT_OK;
}

Test(formula, reports_wrong_texts)
{
    deft_op *body;
    const deft_op_def with_body = { .size = sizeof with_body,
                                    .name = "known.body",
                                    .version = 1,
                                    .n_in = 1,
                                    .n_out = 1,
                                    .body = identity };
    OK(&r, deft_op_define(r.rt, &with_body, &body, NULL, 0));
    (void)define(DEF(.name = "known.one", .text = "(x) { return x; }"));
    (void)define(DEF(.name = "known.two", .text = "(x) { return x, x; }"));
    static const struct {
        const char *text, *sentence;
    } row[] = {
        { "", "line 1, column 1: '(' is missing at the end" },
        { "x", "line 1, column 1: '(' is missing before 'x'" },
        { "() { return 1; }", "column 2: the name of an input is missing" },
        { "(x, x) { return x; }", "column 5: \"x\" has a value already" },
        { "(x) { x = 1; return x; }", "\"x\" has a value already" },
        { "(x) { return = 1; }", "an expression is missing before '='" },
        { "(return) { return 1; }", "\"return\" is no name of a value" },
        { "(x.y) { return 1; }", "\"x.y\" is no name of a value" },
        { "(x) { a.b = x; return x; }", "\"a.b\" is no name of a value" },
        { "(x) { return x.y; }", "\"x.y\" has no value yet" },
        { "(x) { return no.such(x); }", "no.such is no formula of this runtime" },
        { "(x) { return wrong.text(x); }", "wrong.text is no formula of this runtime" },
        { "(x) { return known.body(x); }", "known.body is no formula of this runtime" },
        { "(x) { return known.two(x); }", "known.two has 2 results, and must have one" },
        { "(x) { return known.one(x, x); }", "known.one takes 1 arguments, and not 2" },
        { "(x) { return known.one(2); }", "known.one of numbers alone: write its value" },
        { "(x) { return x }", "column 16: ';' is missing before '}'" },
        { "(x) { return x; ", "'}' is missing at the end" },
        { "(x) { return x; } x", "column 19: 'x' after the end" },
        { "(x) { y = x; }", "'}' begins no statement" },
        { "(x) { y = x; ", "no return" },
        { "(x) { y x; return y; }", "'=' is missing before 'x'" },
        { "(x) { return y; }", "\"y\" has no value yet" },
        { "(x) {\n  return\n    x + sinn(x);\n}",
          "line 3, column 9: \"sinn\" is no function of formulas" },
        { "(x) { return sin(x, x); }", "sin takes 1 arguments, and not 2" },
        { "(x) { return atan2(x); }", "atan2 takes 2 arguments, and not 1" },
        { "(x) { return clamp(x); }", "clamp takes 3 arguments, and not 1" },
        { "(x) { return polyval(x); }", "polyval takes x and the coefficients" },
        { "(x) { return f64(x, x); }", "f64 takes 1 arguments, and not 2" },
        { "(x) { return f64(2); }", "f64 of a number, which has no dtype of its own" },
        { "(x) { return exp(2) * x; }", "exp of numbers alone: write its value" },
        { "(x) { return (1 < 2) * x; }", "lt of numbers alone" },
        { "(x) { return 2; }", "a result that does not depend on an input" },
        { "(x) { return 1 ? x : 2; }", "the condition is a number" },
        { "(x) { return x +; }", "an expression is missing before ';'" },
        { "(x) { return (x; }", "')' is missing before ';'" },
        { "(x) { return x * 1.2.3; }", "\"1.2.3;\" is no number" },
        { "(x) { return x * 1.0f; }", "\"1.0f\" is no number" },
        { "(x) { return x * 0x; }", "\"0x;\" is no number" },
        { "(x) { return x * 0x1g; }", "\"0x1g\" is no number" },
        { "(x) { return x * 9223372036854775808; }", "9223372036854775808 does not fit 63 bits" },
        { "(x) { return x * (9223372036854775807 + 1); }", "the integer does not fit 64 bits" },
        { "(x) { /* return x; }", "column 7: a comment that does not end" },
        { "(x) { return x ? x; }", "':' is missing before ';'" },
        { "(x) { return #; }", "an expression is missing before '#'" },
    };
    for (size_t i = 0; i < LEN(row); i++) {
        char why[256];
        deft_op *op = (deft_op *)&r;
        const deft_status st = deft_formula_define(
            r.rt, DEF(.name = "wrong.text", .text = row[i].text), &op, why, sizeof why);
        cr_assert_eq(st, DEFT_E_ARG, "%s", row[i].text);
        cr_assert(!strncmp(why, "formula_define: wrong.text: line ", 33), "%s: %s", row[i].text,
                  why);
        cr_assert(strstr(why, row[i].sentence), "%s: %s", row[i].text, why);
        cr_assert_null(op);
    }
}

Test(formula, reports_wrong_derivatives)
{
    static const struct {
        const char *derivative, *sentence;
    } row[] = {
        { "(x) { return 1, x; }", "derivative: line 1, column 1: 1 inputs; it has the 2" },
        { "(x, a, y, z) { return 1, x; }", "4 inputs; it has the 2 of the formula, or its 1" },
        { "(x, a) { return 1; }", "1 partial derivatives; there are 2" },
        { "(x, a) { return 1, x, a; }", "more than 2 results" },
        { "(x, a) { return 1, b; }", "derivative: line 1, column 20: \"b\" has no value yet" },
    };
    for (size_t i = 0; i < LEN(row); i++) {
        char why[256];
        deft_op *op = NULL;
        const deft_status st = deft_formula_define(
            r.rt, DEF(.name = "wrong.slope", .text = product_text, .derivative = row[i].derivative),
            &op, why, sizeof why);
        cr_assert_eq(st, DEFT_E_ARG);
        cr_assert(strstr(why, row[i].sentence), "%s: %s", row[i].derivative, why);
    }
}

/* Defines head, n times `each`, middle, n times `close`, and tail. */
static deft_status define_long(const char *head, const char *each, const char *middle,
                               const char *close, const char *tail, size_t n, char *why,
                               size_t n_why)
{
    char *const text = calloc(1, strlen(head) + n * (strlen(each) + strlen(close)) +
                                     strlen(middle) + strlen(tail) + 1);
    char *at = stpcpy(text, head);
    deft_op *op = NULL;
    for (size_t i = 0; i < n; i++) at = stpcpy(at, each);
    at = stpcpy(at, middle);
    for (size_t i = 0; i < n; i++) at = stpcpy(at, close);
    (void)stpcpy(at, tail);
    const deft_status st =
        deft_formula_define(r.rt, DEF(.name = "long.text", .text = text), &op, why, n_why);
    if (st == DEFT_OK) OK(&r, deft_op_destroy(&op, why, n_why));
    free(text);
    return st;
}

Test(formula, has_limits)
{
    static const struct {
        const char *head, *each, *middle, *close, *tail, *sentence;
        size_t most;
    } row[] = {
        { "(x) { return x*", "(x+", "x", ")", ";}", "nested more than 64 deep", 31 },
        { "(x) { return ", "-", "", "", "x;}", "nested more than 64 deep", 62 },
        { "(x) { return x", "+x", "", "", ";}", "more than 1000 operations", 1000 },
        { "(x) { return x;", " ", "", "", "}", "a text of 65536 bytes, at most 65535", 65519 },
        { "(x) { return x", ",x", "", "", ";}", "more than 64 results", 63 },
        { "(x) { return polyval(x,x", ",x", "", "", ");}", "more than 64 arguments", 62 },
    };
    for (size_t i = 0; i < LEN(row); i++) {
        char why[256];
        for (size_t more = 0; more < 2; more++) {
            const deft_status st =
                define_long(row[i].head, row[i].each, row[i].middle, row[i].close, row[i].tail,
                            row[i].most + more, why, sizeof why);
            cr_assert(more ? st == DEFT_E_LIMIT || st == DEFT_E_ARG : st == DEFT_OK, "%zu: %s", i,
                      why);
        }
        cr_assert(strstr(why, row[i].sentence), "%zu: %s", i, why);
    }
}

Test(formula, reports_wrong_definitions)
{
    static const struct {
        deft_formula_def def;
        const char *sentence;
    } row[] = {
#define BAD(part, ...) { { .size = sizeof(deft_formula_def), __VA_ARGS__ }, part }
        BAD("\"soft\" is no name", .name = "soft", .version = 1, .text = "(x) { return x; }"),
        BAD("the version is 0", .name = "a.b", .text = "(x) { return x; }"),
        BAD("a.b: the text is NULL", .name = "a.b", .version = 1),
        BAD("a.b: -1 ulps; at least 0", .name = "a.b", .version = 1, .ulps = -1,
            .text = "(x) { return x; }"),
        { { .name = "a.b" }, "the size of deft_formula_def is 0" },
    };
    char why[128];
    deft_op *op;
    for (size_t i = 0; i < LEN(row); i++) {
        cr_assert_eq(deft_formula_define(r.rt, &row[i].def, &op, why, sizeof why), DEFT_E_ARG);
        cr_assert(strstr(why, row[i].sentence), "%s", why);
        cr_assert(!strncmp(why, "formula_define: ", 16), "%s", why);
    }
    cr_assert_eq(deft_formula_define(NULL, NULL, NULL, NULL, 0), DEFT_E_ARG);
}

Test(formula, has_one_definition_of_a_name)
{
    char why[256];
    deft_op *again, *const op = define(DEF(.name = "one.name", .text = "(x) { return x; }"));
    cr_assert_eq(define(DEF(.name = "one.name", .text = "(x) { return x; }", .ulps = 4)), op);
    const deft_formula_def *const others[] = {
        DEF(.name = "one.name", .text = "(x) { return -x; }"),
        DEF(.name = "one.name", .text = "(x) { return x; }", .derivative = "(x) { return 1; }"),
        DEF(.name = "one.name", .text = "(x) { return x; }", .reference = logistic),
        DEF(.name = "one.name", .text = "(x) { return x; }", .ulps = 2),
    };
    for (size_t i = 0; i < LEN(others); i++) {
        cr_assert_eq(deft_formula_define(r.rt, others[i], &again, why, sizeof why), DEFT_E_STATE);
        cr_assert(strstr(why, "one.name has another definition"), "%s", why);
    }
    deft_op *once_more = op;
    OK(&r, deft_op_destroy(&once_more, NULL, 0));
    EXPECT(deft_apply(define(others[0]), VECTOR(1, 2)), -1, -2);
}

Test(formula, reports_wrong_calls)
{
    deft_op *const op = formula("(x, y) { return x + y; }");
    deft_op *const two = formula("(x) { return x, x; }");
    deft_op *const ints = formula("(x) { return ~x; }");
    deft_tensor *const x = VECTOR(1, 2), *out;
    rig_expect_error(&r, deft_apply(op, x), DEFT_E_ARG, "1 inputs and 1 results, it has 2 and 1");
    rig_expect_error(&r, deft_apply(two, x), DEFT_E_ARG, "1 inputs and 1 results, it has 1 and 2");
    rig_expect_error(&r, deft_apply(NULL, x), DEFT_E_ARG, "the operator is NULL");
    rig_expect_error(&r, deft_apply(op, x, VECTOR(1, 2, 3)), DEFT_E_SHAPE, "add");
    rig_expect_error(&r, deft_apply(ints, x), DEFT_E_DTYPE, "bitwise_not");
    rig_expect_error(&r, deft_apply(op, NULL, x), DEFT_E_ARG, "argument 1 is NULL");
    cr_assert_null(deft_apply(op, NULL, NULL));
    cr_assert_null(deft_apply_list(op, NULL, 2));
    cr_assert(!deft_op_call(r.cx, op, (deft_tensor *[]){ x, x }, 2, &x, &out, 1));
    rig_expect_error(&r, out, DEFT_E_ARG, "a formula takes no attributes, and some are given");
    EXPECT(deft_apply(op, x, x), 2, 4);
}

/* Numbers are read alike where the decimal point is a comma. */
Test(formula, does_not_depend_on_the_locale)
{
    static const char *const with_comma[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR" };
    for (size_t i = 0; i < LEN(with_comma); i++)
        if (setlocale(LC_NUMERIC, with_comma[i])) break;
    deft_op *const op = formula("(x) { return x * 1.5; }");
    (void)setlocale(LC_NUMERIC, "C");
    EXPECT(deft_apply(op, VECTOR(2)), 3);
}
