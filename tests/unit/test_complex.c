/* SPDX-License-Identifier: Apache-2.0
 *
 * Complex tensors. Values against C's <complex.h>, special values by hand, views and assignments,
 * gradients in the complex plane, and every call that makes handles of handles: captures, loops,
 * deft_vmap, custom gradients, steps. What has no meaning for complex numbers is refused.
 *
 * Why this file is long: each public call that takes complex tensors is here once, and they share
 * the numbers and the ways to compare.
 */
#include "support/harness.h"

#include "lazy/core/lazy.h"
#include "lazy/run/materialize.h"

#include <complex.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#undef I
#undef complex
#define I _Complex_I

typedef float _Complex c64;
typedef double _Complex c128;

#define S(...) DEFT_SHAPE(__VA_ARGS__)
#define LEN(a) (sizeof(a) / sizeof *(a))

static const c64 some[] = { 1 + 2 * I,     -3 + 0.5f * I, 0.25f - 1 * I,    -0.5f - 0.125f * I,
                            0.75f + 0 * I, 0 + 1.5f * I,  -2 + 0 * I,       0.001f + 3 * I,
                            7 - 0.25f * I, -1 - 1 * I,    0.6f + 0.8f * I,  1e-3f - 1e-4f * I,
                            30 + 4 * I,    -8 + 9 * I,    1.25f + 1e-6f * I };
enum { N = LEN(some) };

static deft_tensor *c64s(rig *r, int64_t n, const c64 *v)
{
    return deft_from(r->cx, S(n), DEFT_C64, v, (size_t)n * sizeof *v);
}

static deft_tensor *one(rig *r, c64 v)
{
    return deft_from(r->cx, S(), DEFT_C64, &v, sizeof v);
}

/* The parts, which an addition to I would not keep for zeros and infinities. */
static c64 z(float re, float im)
{
    return CMPLXF(re, im);
}

static void read_c64(rig *r, const char *what, deft_tensor *t, int64_t n, c64 *out)
{
    cr_assert_not_null(t, "%s: %s", what, deft_message(r->cx));
    cr_assert_eq(deft_dtype_of(t), DEFT_C64, "%s: %s", what, deft_dtype_name(deft_dtype_of(t)));
    cr_assert_eq(deft_numel(t), n, "%s: %d elements", what, (int)deft_numel(t));
    OK(r, deft_read(t, DEFT_C64, out, (size_t)n * sizeof *out));
}

static void near_c64(const char *what, int64_t i, c64 got, c128 want, double within)
{
    cr_assert(cabs((c128)got - want) <= within * fmax(cabs(want), 1e-3),
              "%s, element %d: %.9g%+.9gi, not %.9g%+.9gi", what, (int)i, (double)crealf(got),
              (double)cimagf(got), creal(want), cimag(want));
}

static void expect_near(rig *r, const char *what, deft_tensor *t, int64_t n, const c128 *want)
{
    c64 got[64];
    read_c64(r, what, t, n, got);
    for (int64_t i = 0; i < n; i++) near_c64(what, i, got[i], want[i], 4e-6);
}

/* Zeros have equal signs, and other numbers may differ in the last bit. */
static bool same(float a, float b)
{
    if (a != a || b != b) return a != a && b != b;
    if (a == 0 || b == 0 || isinf(b)) return a == b && signbit(a) == signbit(b);
    return fabsf(a - b) <= 1.2e-7f * fabsf(b);
}

static void expect_same(rig *r, const char *what, deft_tensor *t, int64_t n, const c64 *want)
{
    c64 got[64];
    read_c64(r, what, t, n, got);
    for (int64_t i = 0; i < n; i++)
        cr_assert(same(crealf(got[i]), crealf(want[i])) && same(cimagf(got[i]), cimagf(want[i])),
                  "%s, element %d: %.9g%+.9gi, not %.9g%+.9gi", what, (int)i,
                  (double)crealf(got[i]), (double)cimagf(got[i]), (double)crealf(want[i]),
                  (double)cimagf(want[i]));
}
#define SAME(r, what, t, ...)                                                                      \
    expect_same((r), (what), (t), LEN(((const c64[]){ __VA_ARGS__ })), (const c64[]){ __VA_ARGS__ })

/* ---- functions ---- */

static const struct {
    const char *name;
    deft_tensor *(*f)(deft_tensor *);
    c128 (*c)(c128);
} functions[] = {
    { "exp", deft_exp, cexp },       { "log", deft_log, clog },
    { "sqrt", deft_sqrt, csqrt },    { "sin", deft_sin, csin },
    { "cos", deft_cos, ccos },       { "tan", deft_tan, ctan },
    { "sinh", deft_sinh, csinh },    { "cosh", deft_cosh, ccosh },
    { "tanh", deft_tanh, ctanh },    { "asin", deft_asin, casin },
    { "acos", deft_acos, cacos },    { "atan", deft_atan, catan },
    { "asinh", deft_asinh, casinh }, { "acosh", deft_acosh, cacosh },
    { "atanh", deft_atanh, catanh },
};

static void compare_functions(rig *r)
{
    for (size_t k = 0; k < LEN(functions); k++) {
        c128 want[N];
        for (int i = 0; i < N; i++) want[i] = functions[k].c((c128)some[i]);
        const deft_scope s = deft_scope_begin(r->cx);
        expect_near(r, functions[k].name, functions[k].f(c64s(r, N, some)), N, want);
        OK(r, deft_scope_end(s));
    }
}

Test(complex, functions_are_those_of_c)
{
    rig r;
    rig_open(&r, NULL, NULL);
    compare_functions(&r);
    rig_close(&r);
    rig_interpret(&r, 1);
    compare_functions(&r);
    rig_close(&r);
}

Test(complex, functions_of_c128_have_its_precision)
{
    rig r;
    rig_open(&r, NULL, NULL);
    for (size_t k = 0; k < LEN(functions); k++) {
        c128 in[N], got[N];
        for (int i = 0; i < N; i++) in[i] = (c128)some[i];
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const t = functions[k].f(deft_from(r.cx, S(N), DEFT_C128, in, sizeof in));
        cr_assert_eq(deft_dtype_of(t), DEFT_C128, "%s", functions[k].name);
        OK(&r, deft_read(t, DEFT_C128, got, sizeof got));
        for (int i = 0; i < N; i++) {
            const c128 want = functions[k].c(in[i]);
            cr_assert(cabs(got[i] - want) <= 1e-13 * fmax(cabs(want), 1e-3),
                      "%s(%d): %.17g%+.17gi, not %.17g%+.17gi", functions[k].name, i, creal(got[i]),
                      cimag(got[i]), creal(want), cimag(want));
        }
        OK(&r, deft_scope_end(s));
    }
    rig_close(&r);
}

Test(complex, derived_functions)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const x = c64s(&r, N, some);
    c128 want[N];
    float real[N];
#define EACH(what, call, expression)                                                               \
    do {                                                                                           \
        for (int i = 0; i < N; i++) {                                                              \
            const c128 v = (c128)some[i];                                                          \
            want[i] = (expression);                                                                \
        }                                                                                          \
        expect_near(&r, what, call, N, want);                                                      \
    } while (0)
    EACH("square", deft_square(x), v * v);
    EACH("reciprocal", deft_reciprocal(x), 1 / v);
    EACH("rsqrt", deft_rsqrt(x), 1 / csqrt(v));
    EACH("neg", deft_neg(x), -v);
    EACH("conj", deft_conj(x), conj(v));
    EACH("sign", deft_sign(x), v / cabs(v));
    EACH("expm1", deft_expm1(x), cexp(v) - 1);
    EACH("log1p", deft_log1p(x), clog(1 + v));
    EACH("log2", deft_log2(x), clog(v) / log(2));
    EACH("log10", deft_log10(x), clog(v) / log(10));
    EACH("exp2", deft_exp2(x), cexp(v * log(2)));
    EACH("pow 3", deft_pow(x, 3), v * v * v);
    EACH("pow 0", deft_pow(x, 0), 1 + 0 * v);
    EACH("pow 0.5", deft_pow(x, 0.5), csqrt(v));
    EACH("2 - x", deft_rsub(x, 2), 2 - v);
    EACH("3 / x", deft_rdiv(x, 3.0), 3 / v);
#undef EACH
    rig_read(&r, deft_abs(x), real, N);
    for (int i = 0; i < N; i++) cr_assert_float_eq(real[i], cabsf(some[i]), 1e-6 * cabsf(some[i]));
    rig_read(&r, deft_angle(x), real, N);
    for (int i = 0; i < N; i++) cr_assert_float_eq(real[i], cargf(some[i]), 1e-6);
    RIG_EXPECT(&r, deft_angle(RIG_VECTOR(&r, 2, -3, 0)), 0, (float)M_PI, 0);
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

Test(complex, special_values)
{
    const float inf = INFINITY, nan = NAN, pi = (float)M_PI;
    rig r;
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_scope_begin(r.cx);
#define AT(f, re, im) deft_##f(one(&r, z(re, im)))
    SAME(&r, "exp", AT(exp, 0, 0), z(1, 0));
    SAME(&r, "exp", AT(exp, 0, -0.0f), z(1, -0.0f));
    SAME(&r, "exp", AT(exp, inf, 0), z(inf, 0));
    SAME(&r, "exp", AT(exp, -inf, inf), z(0, 0));
    SAME(&r, "exp", AT(exp, inf, inf), z(inf, nan));
    SAME(&r, "exp", AT(exp, nan, 0), z(nan, 0));
    SAME(&r, "exp", AT(exp, nan, 1), z(nan, nan));
    SAME(&r, "log", AT(log, 0, 0), z(-inf, 0));
    SAME(&r, "log", AT(log, -0.0f, 0), z(-inf, pi));
    SAME(&r, "log", AT(log, inf, nan), z(inf, nan));
    SAME(&r, "log", AT(log, -1, -0.0f), z(0, -pi));
    SAME(&r, "sqrt", AT(sqrt, 0, 0), z(0, 0));
    SAME(&r, "sqrt", AT(sqrt, -4, 0), z(0, 2));
    SAME(&r, "sqrt", AT(sqrt, -4, -0.0f), z(0, -2));
    SAME(&r, "sqrt", AT(sqrt, nan, inf), z(inf, inf));
    SAME(&r, "sqrt", AT(sqrt, -inf, 1), z(0, inf));
    SAME(&r, "sqrt", AT(sqrt, inf, -1), z(inf, -0.0f));
    SAME(&r, "sinh", AT(sinh, 0, 0), z(0, 0));
    SAME(&r, "sinh", AT(sinh, inf, 0), z(inf, 0));
    SAME(&r, "sinh", AT(sinh, 0, inf), z(0, nan));
    SAME(&r, "cosh", AT(cosh, inf, 0), z(inf, 0));
    SAME(&r, "cosh", AT(cosh, inf, inf), z(inf, nan));
    SAME(&r, "tanh", AT(tanh, inf, inf), z(1, 0));
    SAME(&r, "tanh", AT(tanh, -inf, 1), z(-1, 0));
    SAME(&r, "tanh", AT(tanh, nan, 0), z(nan, 0));
    SAME(&r, "acos", AT(acos, 1, inf), z(pi / 2, -inf));
    SAME(&r, "acos", AT(acos, -inf, 1), z(pi, -inf));
    SAME(&r, "acosh", AT(acosh, -inf, inf), z(inf, 3 * pi / 4));
    SAME(&r, "asinh", AT(asinh, inf, inf), z(inf, pi / 4));
    SAME(&r, "asinh", AT(asinh, inf, nan), z(inf, nan));
    SAME(&r, "atanh", AT(atanh, 1, 0), z(inf, 0));
    SAME(&r, "atanh", AT(atanh, inf, 1), z(0, pi / 2));
    SAME(&r, "sign", AT(sign, 0, 0), z(0, 0));
#undef AT
    /* no overflow in between */
    const float big = FLT_MAX / 2;
    RIG_EXPECT(&r, deft_abs(one(&r, z(big, big))), big * 1.41421356f);
    SAME(&r, "div", deft_div(one(&r, z(big, big)), one(&r, z(big, big))), z(1, 0));
    SAME(&r, "div", deft_div(one(&r, z(1, 2)), one(&r, z(0, 0))), z(inf, inf));
    SAME(&r, "div", deft_div(one(&r, z(1, 1)), one(&r, z(inf, 0))), z(0, 0));
    SAME(&r, "pow", deft_pow(one(&r, z(0, 0)), one(&r, z(0, 0))), z(1, 0));
    SAME(&r, "pow", deft_pow(one(&r, z(0, 0)), one(&r, z(2, 1))), z(0, 0));
    RIG_EXPECT(&r, deft_isnan(one(&r, z(0, nan))), 1);
    RIG_EXPECT(&r, deft_isinf(one(&r, z(nan, inf))), 1);
    RIG_EXPECT(&r, deft_isfinite(one(&r, z(1, -inf))), 0);
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

/* ---- arithmetic, promotion, comparisons ---- */

Test(complex, arithmetic_and_promotion)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_scope_begin(r.cx);
    const c64 a[2] = { 1 + 2 * I, -3 + 0.5f * I }, b[2] = { 2 - 1 * I, 4 + 4 * I };
    deft_tensor *const x = c64s(&r, 2, a), *const y = c64s(&r, 2, b);
    deft_tensor *const real = RIG_VECTOR(&r, 2, 3);
    SAME(&r, "add", deft_add(x, y), a[0] + b[0], a[1] + b[1]);
    SAME(&r, "sub", deft_sub(x, y), a[0] - b[0], a[1] - b[1]);
    SAME(&r, "mul", deft_mul(x, y), z(4, 3), z(-14, -10));
    SAME(&r, "div", deft_div(y, x), z(0, -1), b[1] / a[1]);
    SAME(&r, "real factor", deft_mul(real, x), z(2, 4), z(-9, 1.5f));
    SAME(&r, "real term", deft_add(x, real), z(3, 2), z(0, 0.5f));
    SAME(&r, "real minuend", deft_sub(real, x), z(1, -2), z(6, -0.5f));
    SAME(&r, "number", deft_add(deft_mul(x, 2), 1.5), z(3.5f, 4), z(-4.5f, 1));
    SAME(&r, "complex number", deft_mul(x, deft_full_c(r.cx, S(), DEFT_C64, 0, 1)), z(-2, 1),
         z(-0.5f, -3));
    SAME(&r, "bool", deft_mul(x, deft_eq(real, 2)), z(1, 2), z(-0.0f, 0));
    SAME(&r, "broadcast", deft_add(deft_unsqueeze(x, 0), deft_unsqueeze(y, 1)), a[0] + b[0],
         a[1] + b[0], a[0] + b[1], a[1] + b[1]);
    RIG_EXPECT(&r, deft_eq(x, deft_add(x, 0)), 1, 1);
    RIG_EXPECT(&r, deft_ne(x, deft_conj(x)), 1, 1);
    RIG_EXPECT(&r, deft_eq(one(&r, 2), 2), 1);
    cr_assert_eq(deft_dtype_of(deft_add(x, deft_cast(real, DEFT_F64))), DEFT_C128);
    cr_assert_eq(deft_dtype_of(deft_add(x, deft_cast(real, DEFT_F16))), DEFT_C64);
    cr_assert_eq(deft_dtype_of(deft_add(deft_cast(real, DEFT_U64), x)), DEFT_C64);
    cr_assert_eq(deft_result_type((deft_tensor *[]){ x, real }, 2), DEFT_C64);
    SAME(&r, "where", deft_where(deft_eq(real, 2), x, deft_num(r.cx, 5)), a[0], z(5, 0));
    SAME(&r, "where a complex", deft_where(one(&r, z(0, 1)), x, y), a[0], a[1]);
    SAME(&r, "cast", deft_cast(real, DEFT_C64), z(2, 0), z(3, 0));
    RIG_EXPECT(&r, deft_cast(c64s(&r, 2, (c64[]){ 0, 1 * I }), DEFT_BOOL), 0, 1);
    RIG_EXPECT(&r, deft_logical_and(x, deft_eq(real, 3)), 0, 1);
    RIG_EXPECT(&r, deft_logical_not(one(&r, 0)), 1);
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

Test(complex, what_has_no_meaning_is_refused)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const x = c64s(&r, 2, some), *const real = RIG_VECTOR(&r, 1, 2);
#define REFUSED(call, part)                                                                        \
    do {                                                                                           \
        deft_tensor *const made = (call);                                                          \
        cr_assert_null(made, "%s", #call);                                                         \
        rig_expect_error(&r, made, DEFT_E_DTYPE, (part));                                          \
    } while (0)
    REFUSED(deft_lt(x, x), "lt: no meaning for complex numbers, which have no order");
    REFUSED(deft_maximum(x, real), "maximum: no meaning");
    REFUSED(deft_floor(x), "floor: no meaning");
    REFUSED(deft_atan2(real, x), "atan2: no meaning");
    REFUSED(deft_max(x, DEFT_ALL_AXES, 0), "max: complex numbers have no order");
    REFUSED(deft_cummax(x, 0), "cummax: complex numbers have no order");
    REFUSED(deft_softmax(x, 0), "softmax: the first argument is c64, for which it has no meaning");
    REFUSED(deft_sort(x, 0, false), "sort: the first argument is c64");
    REFUSED(deft_clamp_t(real, x, NULL), "clamp: the second argument is c64");
    REFUSED(deft_lerp(real, real, x), "lerp: the third argument is c64");
    REFUSED(deft_fma(real, x, real), "fma: the second argument is c64");
    REFUSED(deft_cast(x, DEFT_F32), "cast: from complex numbers to f32");
    REFUSED(deft_imag(real), "imag: the tensor is f32, not complex");
    REFUSED(deft_arange(r.cx, 0, 3, 1, DEFT_C64), "arange: not for c64");
    REFUSED(deft_view_as_complex(RIG_VECTOR(&r, 1, 2, 3)), "view_as_complex: the tensor is f32[3]");
    REFUSED(deft_assign(x, real), "assign: a value of f32 to a tensor of c64");
    REFUSED(deft_assign(real, x), "assign: a value of c64 to a tensor of f32");
    REFUSED(deft_take(real, x, 0), "take: the second argument is c64");
#undef REFUSED
    float out[2];
    cr_assert_eq(deft_read(x, DEFT_F32, out, sizeof out), DEFT_E_DTYPE);
    cr_assert(strstr(deft_message(r.cx), "read: complex numbers as f32"), "%s", deft_message(r.cx));
    rig_expect_error(&r, deft_zeros(r.cx, S(1, 1, 1, 1, 1, 1, 1, 1), DEFT_C64), DEFT_E_LIMIT,
                     "at most 7");
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

/* ---- along axes ---- */

Test(complex, reductions)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const x = c64s(&r, 5, some);
    c128 sum = 0, prod = 1, sums[5], prods[5];
    for (int i = 0; i < 5; i++) {
        sums[i] = sum += (c128)some[i];
        prods[i] = prod *= (c128)some[i];
    }
    expect_near(&r, "sum", deft_sum(x, DEFT_ALL_AXES, 0), 1, &sum);
    expect_near(&r, "prod", deft_prod(x, DEFT_ALL_AXES, 0), 1, &prod);
    expect_near(&r, "cumsum", deft_cumsum(x, 0), 5, sums);
    expect_near(&r, "cumprod", deft_cumprod(x, 0), 5, prods);
    expect_near(&r, "mean", deft_mean(x, DEFT_ALL_AXES, 0), 1, (c128[]){ sum / 5 });
    double var = 0, norm = 0;
    for (int i = 0; i < 5; i++) {
        const double away = cabs((c128)some[i] - sum / 5);
        var += away * away / 4;
        norm += cabs((c128)some[i]) * cabs((c128)some[i]);
    }
    float got;
    rig_read(&r, deft_var(x, DEFT_ALL_AXES, 0, 1), &got, 1);
    cr_assert_float_eq(got, var, 1e-5 * var);
    rig_read(&r, deft_std(x, DEFT_ALL_AXES, 0, 1), &got, 1);
    cr_assert_float_eq(got, sqrt(var), 1e-5);
    rig_read(&r, deft_vector_norm(x, 2, DEFT_ALL_AXES, 0), &got, 1);
    cr_assert_float_eq(got, sqrt(norm), 1e-5);
    deft_tensor *const m = deft_reshape(c64s(&r, 6, some), S(2, 3));
    SAME(&r, "sum rows", deft_sum(m, DEFT_AXES(0), 1), some[0] + some[3], some[1] + some[4],
         some[2] + some[5]);
    cr_assert_eq(deft_rank(deft_prod(m, DEFT_AXES(1), 1)), 2);
    SAME(&r, "prod of none", deft_prod(deft_zeros(r.cx, S(0), DEFT_C64), DEFT_ALL_AXES, 0), 1);
    RIG_EXPECT(&r, deft_any(deft_mul(m, 0), DEFT_ALL_AXES, 0), 0);
    RIG_EXPECT(&r, deft_all(m, DEFT_ALL_AXES, 0), 1);
    RIG_EXPECT(&r, deft_cast(deft_count_nonzero(m, DEFT_ALL_AXES, 0), DEFT_F32), 6);
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

Test(complex, products_of_matrices)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const a = deft_reshape(c64s(&r, 6, some), S(2, 3));
    deft_tensor *const b = deft_reshape(c64s(&r, 6, some + 6), S(3, 2));
    deft_tensor *const real = deft_real(b);
    c128 ab[4] = { 0 }, ar[4] = { 0 }, inner = 0;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            for (int k = 0; k < 3; k++) {
                ab[2 * i + j] += (c128)some[3 * i + k] * (c128)some[6 + 2 * k + j];
                ar[2 * i + j] += (c128)some[3 * i + k] * creal((c128)some[6 + 2 * k + j]);
            }
    for (int k = 0; k < 5; k++) inner += conj((c128)some[k]) * (c128)some[5 + k];
    expect_near(&r, "matmul", deft_matmul(a, b), 4, ab);
    expect_near(&r, "with a real", deft_matmul(a, real), 4, ar);
    expect_near(&r, "tensordot", deft_tensordot(a, b, DEFT_AXES(-1), DEFT_AXES(0)), 4, ab);
    expect_near(&r, "einsum", deft_einsum("ij,jk", (deft_tensor *[]){ a, b }, 2), 4, ab);
    expect_near(&r, "vectors", deft_matmul(deft_conj(c64s(&r, 5, some)), c64s(&r, 5, some + 5)), 1,
                &inner);
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

Test(complex, sums_of_products)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_scope_begin(r.cx);
    const c64 *const v = some;
    deft_tensor *const a = c64s(&r, 3, v), *const b = c64s(&r, 3, v + 3),
                       *const x = RIG_VECTOR(&r, 2, -1, 4);
    deft_tensor *const m = deft_reshape(c64s(&r, 6, v), S(2, 3));
    const c64 dot = conjf(v[0]) * v[3] + conjf(v[1]) * v[4] + conjf(v[2]) * v[5];
    SAME(&r, "vecdot", deft_vecdot(a, b, -1), dot);
    SAME(&r, "vecdot with a real", deft_vecdot(a, x, -1),
         2 * conjf(v[0]) - conjf(v[1]) + 4 * conjf(v[2]));
    SAME(&r, "a real vecdot", deft_vecdot(x, a, -1), 2 * v[0] - v[1] + 4 * v[2]);
    SAME(&r, "outer", deft_outer(deft_slice(a, DEFT_R(0, 2)), deft_slice(b, DEFT_R(0, 2))),
         v[0] * v[3], v[0] * v[4], v[1] * v[3], v[1] * v[4]);
    SAME(&r, "tensordot", deft_tensordot(m, b, DEFT_AXES(1), DEFT_AXES(0)),
         v[0] * v[3] + v[1] * v[4] + v[2] * v[5], v[3] * v[3] + v[4] * v[4] + v[5] * v[5]);
    SAME(&r, "einsum", deft_einsum("ij,j->i", (deft_tensor *[]){ m, x }, 2),
         2 * v[0] - v[1] + 4 * v[2], 2 * v[3] - v[4] + 4 * v[5]);
    SAME(&r, "trace",
         deft_einsum("ii", (deft_tensor *[]){ deft_slice(m, DEFT_FULL, DEFT_R(1, 3)) }, 1),
         v[1] + v[5]);
    SAME(&r, "round", deft_round(a), z(1, 2), z(-3, 0), z(0, -1));
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

/* The number of distinct numbers, and where each first occurs. */
static void expect_distinct(rig *r, deft_tensor *t, int64_t n, const int64_t *first)
{
    int64_t got[64], of[64], is[64];
    deft_tensor *at, *inverse, *counts, *count, *alone;
    deft_tensor *const all = deft_unique_all(t, n + 1, &at, &inverse, &counts, &count);
    deft_tensor *const values = deft_unique(t, n + 1, &alone);
    cr_assert(all && values, "%s", deft_message(r->cx));
    OK(r, deft_read(at, DEFT_I64, got, (size_t)(n + 1) * 8));
    cr_assert(memcmp(got, first, (size_t)n * 8) == 0 && got[n] == 0);
    OK(r, deft_item_i64(count, &got[0]));
    OK(r, deft_item_i64(alone, &got[1]));
    cr_assert(got[0] == n && got[1] == n, "%d and %d of %d", (int)got[0], (int)got[1], (int)n);
    /* the values are the elements at these places, and all elements are those of their value */
    char a[64 * 16], b[64 * 16], c[64 * 16];
    const deft_dtype dtype = deft_dtype_of(t);
    const size_t size = (size_t)n * deft_dtype_size(dtype);
    OK(r, deft_read(deft_slice(all, DEFT_R(0, n)), dtype, a, size));
    OK(r, deft_read(deft_slice(values, DEFT_R(0, n)), dtype, b, size));
    OK(r, deft_read(deft_take(deft_flatten(t), deft_slice(at, DEFT_R(0, n)), 0), dtype, c, size));
    cr_assert(memcmp(a, b, size) == 0 && memcmp(a, c, size) == 0);
    const int64_t len = deft_numel(t);
    OK(r, deft_read(inverse, DEFT_I64, of, (size_t)len * 8));
    deft_tensor *const back = deft_take(all, inverse, 0);
    deft_tensor *const same =
        deft_logical_or(deft_eq(back, t), deft_logical_and(deft_isnan(back), deft_isnan(t)));
    OK(r, deft_read(same, DEFT_I64, is, (size_t)len * 8));
    OK(r, deft_read(counts, DEFT_I64, got, (size_t)(n + 1) * 8));
    for (int64_t i = 0; i < len; i++) {
        cr_assert(is[i], "%d", (int)i);
        got[of[i]]--;
    }
    for (int64_t i = 0; i <= n; i++) cr_assert_eq(got[i], 0, "%d", (int)i);
}

Test(complex, sets)
{
    rig r;
    const float nan = __builtin_nanf("");
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_scope_begin(r.cx);
    const c64 v[] = { z(2, 1),   z(nan, 0), z(1, 5),     z(2, -1), z(1, 5),     z(0, -0.0f),
                      z(3, nan), z(2, 1),   z(-0.0f, 0), z(1, -5), z(nan, nan), z(2, -1) };
    deft_tensor *const x = deft_reshape(c64s(&r, 12, v), S(3, 4));
    static const int64_t first[] = { 5, 9, 2, 3, 0, 1 };
    expect_distinct(&r, x, 6, first);
    expect_distinct(&r, deft_cast(x, DEFT_C128), 6, first);
    expect_distinct(&r, deft_zeros(r.cx, S(0, 2), DEFT_C64), 0, first);
    deft_tensor *count;
    SAME(&r, "few", deft_unique(x, 2, &count), v[5], v[9]);
    rig_expect_error(&r, deft_unique(x, -1, NULL), DEFT_E_RANGE, "room for -1");
    for (int many = 0; many < 2; many++) { /* compared one by one, and by their places */
        deft_tensor *elements = c64s(&r, 3, (c64[]){ z(2, -1), z(nan, 0), z(1, -5) });
        if (many) elements = deft_tile(elements, S(7));
        RIG_EXPECT(&r, deft_isin(x, elements, false), 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1);
        RIG_EXPECT(&r, deft_isin(RIG_VECTOR(&r, 1, 2), deft_mul(elements, 0), true), 1, 1);
    }
    SAME(&r, "compress", deft_compress(x, deft_isin(x, one(&r, z(2, 1)), false), 3, NULL), v[0],
         v[7], 0);
    SAME(&r, "compress", deft_compress(deft_mul(x, 2), deft_gt(deft_imag(x), 4), 2, NULL), 2 * v[2],
         2 * v[4]);
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

/* ---- elements that move ---- */

Test(complex, views_and_joins)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_scope_begin(r.cx);
    const c64 *const v = some;
    deft_tensor *const m = deft_reshape(c64s(&r, 6, v), S(2, 3));
    deft_tensor *const made = deft_mul(m, 1); /* joined of parts */
    for (int k = 0; k < 2; k++) {
        deft_tensor *const x = k ? made : m;
        SAME(&r, "transpose", deft_t(x), v[0], v[3], v[1], v[4], v[2], v[5]);
        SAME(&r, "slice", deft_slice(x, DEFT_AT(1), DEFT_R(1, 3)), v[4], v[5]);
        SAME(&r, "flip", deft_flip(x, DEFT_AXES(1)), v[2], v[1], v[0], v[5], v[4], v[3]);
        SAME(&r, "diagonal", deft_diagonal(x, 1, 0, 1), v[1], v[5]);
        SAME(&r, "expand", deft_expand(deft_slice(x, DEFT_R(0, 1)), S(2, 3)), v[0], v[1], v[2],
             v[0], v[1], v[2]);
        SAME(&r, "flatten", deft_conj(deft_flatten(deft_t(x))), conjf(v[0]), conjf(v[3]),
             conjf(v[1]), conjf(v[4]), conjf(v[2]), conjf(v[5]));
        SAME(&r, "squeeze", deft_neg(deft_squeeze(deft_unsqueeze(x, 1), DEFT_ALL_AXES)), -v[0],
             -v[1], -v[2], -v[3], -v[4], -v[5]);
        SAME(&r, "roll", deft_roll(x, 1, 1), v[2], v[0], v[1], v[5], v[3], v[4]);
        SAME(&r, "roll flat", deft_roll(x, 1, DEFT_FLAT), v[5], v[0], v[1], v[2], v[3], v[4]);
        SAME(&r, "triu", deft_triu(x, 1), 0, v[1], v[2], 0, 0, v[5]);
        SAME(&r, "tile", deft_tile(deft_slice(x, DEFT_AT(0)), S(2)), v[0], v[1], v[2], v[0], v[1],
             v[2]);
        SAME(&r, "repeat", deft_repeat(deft_slice(x, DEFT_AT(0)), 2, 0), v[0], v[0], v[1], v[1],
             v[2], v[2]);
        SAME(&r, "diff", deft_diff(x, 1, 0, NULL, NULL), v[3] - v[0], v[4] - v[1], v[5] - v[2]);
        deft_tensor *const two = deft_from(r.cx, S(2), DEFT_I64, (int64_t[]){ 2, 0 }, 16);
        SAME(&r, "take", deft_take(x, two, 1), v[2], v[0], v[5], v[3]);
        deft_tensor *const often = deft_from(r.cx, S(3), DEFT_I64, (int64_t[]){ 2, 0, 1 }, 24);
        SAME(&r, "repeat_t", deft_repeat_t(x, often, 1, 4), v[0], v[0], v[2], 0, v[3], v[3], v[5],
             0);
        SAME(&r, "gather", deft_gather(x, deft_unsqueeze(two, 1), 1), v[2], v[3]);
        SAME(&r, "pad",
             deft_pad(deft_slice(x, DEFT_AT(0)), (int64_t[]){ 1 }, (int64_t[]){ 1 },
                      DEFT_PAD_CONSTANT, 2),
             2, v[0], v[1], v[2], 2);
        SAME(&r, "index_add", deft_index_add(x, two, deft_slice(x, DEFT_FULL, DEFT_R(0, 2)), 1),
             v[0] + v[1], v[1], v[2] + v[0], v[3] + v[4], v[4], v[5] + v[3]);
        deft_tensor *const at = deft_from(r.cx, S(2, 1), DEFT_I64, (int64_t[]){ 1, 1 }, 16);
        SAME(&r, "scatter_add", deft_scatter_add(x, at, deft_num(r.cx, 2), 1), v[0], v[1] + 2, v[2],
             v[3], v[4] + 2, v[5]);
        deft_tensor *const from_1[] = { NULL, deft_slice(two, DEFT_AT(0)) }; /* 2 is clamped to 1 */
        const int64_t two_columns[] = { 0, 2 };
        SAME(&r, "dynamic_slice", deft_dynamic_slice(x, from_1, two_columns), v[1], v[2], v[4],
             v[5]);
        SAME(&r, "dynamic_update",
             deft_dynamic_update(x, deft_slice(x, DEFT_FULL, DEFT_R(0, 2)), from_1, two_columns),
             v[0], v[0], v[1], v[3], v[3], v[4]);
        deft_tensor *const row = deft_slice(x, DEFT_AT(0));
        SAME(&r, "concat", deft_concat((deft_tensor *[]){ row, row }, 2, 0), v[0], v[1], v[2], v[0],
             v[1], v[2]);
        SAME(&r, "stack with a real", deft_stack((deft_tensor *[]){ row, deft_real(row) }, 2, -1),
             v[0], crealf(v[0]), v[1], crealf(v[1]), v[2], crealf(v[2]));
    }
    SAME(&r, "eye", deft_eye(r.cx, 2, 2, DEFT_C64), 1, 0, 0, 1);
    SAME(&r, "ones", deft_ones_like(m), 1, 1, 1, 1, 1, 1);
    SAME(&r, "full", deft_full(r.cx, S(2), DEFT_C64, 2.5), 2.5f, 2.5f);
    deft_tensor *const re = RIG_VECTOR(&r, 1, 2), *const im = RIG_VECTOR(&r, 0, -3);
    SAME(&r, "complex", deft_complex(re, im), 1, z(2, -3));
    SAME(&r, "complex of a number", deft_complex(re, deft_num(r.cx, 4)), z(1, 4), z(2, 4));
    SAME(&r, "polar", deft_polar(re, deft_num(r.cx, 0)), 1, 2);
    RIG_EXPECT(&r, deft_view_as_real(deft_complex(re, im)), 1, 0, 2, -3);
    SAME(&r, "view", deft_view_as_complex(deft_reshape(rig_range(&r, 4, 1), S(2, 2))), z(1, 2),
         z(3, 4));
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

Test(complex, assignments_to_elements_and_parts)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = deft_keep(c64s(&r, 4, some));
    c64 memory[4] = { 0 };
    deft_tensor *const out =
        deft_keep(deft_wrap_mut(r.cx, S(2), DEFT_C64, memory, sizeof memory, (int64_t[]){ 2 }));
    for (int k = 0; k < 3; k++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_assign(deft_real(x), deft_num(r.cx, k));
        deft_assign(deft_slice(x, DEFT_AT(1)), one(&r, z(5, 6)));
        deft_assign(deft_slice(deft_imag(x), DEFT_AT(2)), 7);
        deft_assign(deft_slice(x, DEFT_AT(3)), 8);
        deft_assign(out, deft_slice(x, DEFT_R(1, 3)));
        OK(&r, deft_step_end(s));
        SAME(&r, "assigned", x, z((float)k, 2), z(5, 6), z((float)k, 7), 8);
        cr_assert(crealf(memory[0]) == 5 && cimagf(memory[0]) == 6);
        cr_assert(crealf(memory[2]) == (float)k && cimagf(memory[2]) == 7);
        cr_assert(memory[1] == 0 && memory[3] == 0);
    }
    /* a step that fails takes its assignments back */
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(x, deft_mul(x, 2));
    deft_step_abort(s);
    SAME(&r, "after an abort", x, z(2, 2), z(5, 6), z(2, 7), 8);
    rig_close(&r);
}

Test(complex, wrapped_memory_has_strides_in_elements)
{
    rig r;
    c64 memory[12];
    char text[200];
    for (int i = 0; i < 12; i++) memory[i] = z((float)i, (float)-i);
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const t =
        deft_wrap(r.cx, S(2, 2), DEFT_C64, memory, sizeof memory, (int64_t[]){ 1, 5 });
    SAME(&r, "strided", deft_mul(t, 1), memory[0], memory[5], memory[1], memory[6]);
    rig_expect_error(&r, deft_wrap(r.cx, S(13), DEFT_C64, memory, sizeof memory, NULL),
                     DEFT_E_RANGE, "needs 104 bytes, 96 were given");
    OK(&r, deft_format(deft_slice(t, DEFT_AT(1)), text, sizeof text, NULL));
    cr_assert_str_eq(text, "c64[2] [1-1i, 6-6i]");
    OK(&r, deft_format(one(&r, z(NAN, -INFINITY)), text, sizeof text, NULL));
    cr_assert_str_eq(text, "c64[] nan-infi");
    float parts[2];
    OK(&r, deft_item_c64(deft_slice(t, DEFT_AT(0), DEFT_AT(1)), parts));
    cr_assert(parts[0] == 5 && parts[1] == -5);
    double wide[2];
    OK(&r, deft_item_c128(deft_num(r.cx, 3), wide));
    cr_assert(wide[0] == 3 && wide[1] == 0);
    c128 read[2];
    OK(&r, deft_read(deft_real(deft_slice(t, DEFT_AT(1))), DEFT_C128, read, sizeof read));
    cr_assert(read[0] == 1 && read[1] == 6);
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

/* ---- gradients ---- */

/* A real function of two complex tensors. */
static deft_tensor *loss_of(deft_tensor *a, deft_tensor *b)
{
    deft_tensor *const p =
        deft_add(deft_mul(deft_exp(deft_mul(a, 0.25)), deft_conj(b)), deft_div(a, deft_sqrt(b)));
    deft_tensor *const q = deft_log(deft_slice(deft_matmul(p, deft_conj(deft_t(p))), DEFT_AT(0)));
    return deft_add(
        deft_sum(deft_square(deft_abs(deft_tanh(deft_mul(p, 0.125)))), DEFT_ALL_AXES, 0),
        deft_sum(deft_imag(q), DEFT_ALL_AXES, 0));
}

static double loss_at(rig *r, const c128 *a, const c128 *b)
{
    double out;
    const deft_scope s = deft_scope_begin(r->cx);
    OK(r, deft_item(loss_of(deft_from(r->cx, S(2, 2), DEFT_C128, a, 64),
                            deft_from(r->cx, S(2, 2), DEFT_C128, b, 64)),
                    &out));
    OK(r, deft_scope_end(s));
    return out;
}

/* dL/dRe + i dL/dIm, by differences */
Test(complex, gradients_are_those_of_pytorch)
{
    rig r;
    rig_open(&r, NULL, NULL);
    c128 in[2][4], got[2][4];
    for (int i = 0; i < 4; i++) {
        in[0][i] = (c128)some[i];
        in[1][i] = 1.5 + (c128)some[7 - i] * 0.25;
    }
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *with[2], *grad[2];
    for (int k = 0; k < 2; k++) with[k] = deft_from(r.cx, S(2, 2), DEFT_C128, in[k], 64);
    deft_tensor *loss = loss_of(with[0], with[1]);
    cr_assert(deft_grad(&loss, NULL, 1, with, 2, NULL, grad), "%s", deft_message(r.cx));
    for (int k = 0; k < 2; k++) {
        cr_assert_eq(deft_dtype_of(grad[k]), DEFT_C128);
        OK(&r, deft_read(grad[k], DEFT_C128, got[k], 64));
    }
    OK(&r, deft_scope_end(s));
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 4; i++) {
            double slope[2];
            for (int part = 0; part < 2; part++) {
                const c128 by = part ? 1e-5 * I : 1e-5, at = in[k][i];
                in[k][i] = at + by;
                const double up = loss_at(&r, in[0], in[1]);
                in[k][i] = at - by;
                slope[part] = (up - loss_at(&r, in[0], in[1])) / 2e-5;
                in[k][i] = at;
            }
            cr_assert(fabs(creal(got[k][i]) - slope[0]) < 1e-6 &&
                          fabs(cimag(got[k][i]) - slope[1]) < 1e-6,
                      "%d, %d: %g%+gi, not %g%+gi", k, i, creal(got[k][i]), cimag(got[k][i]),
                      slope[0], slope[1]);
        }
    rig_close(&r);
}

Test(complex, a_gradient_of_complex_results_needs_seeds)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *x = c64s(&r, 2, some), *grad, *y = deft_mul(x, x), *seed = c64s(&r, 2, some + 2);
    deft_tensor *zero = deft_abs(deft_mul(x, 0)), *grad_at_zero;
    cr_assert(deft_grad(&y, &seed, 1, &x, 1, NULL, &grad), "%s", deft_message(r.cx));
    /* conj(2 x) seed */
    const c128 want[2] = { 2 * conj((c128)some[0]) * (c128)some[2],
                           2 * conj((c128)some[1]) * (c128)some[3] };
    expect_near(&r, "with a seed", grad, 2, want);
    zero = deft_sum(zero, DEFT_ALL_AXES, 0);
    cr_assert(deft_grad(&zero, NULL, 1, &x, 1, NULL, &grad_at_zero));
    SAME(&r, "of abs at 0", grad_at_zero, 0, 0);
    deft_tensor *one_y = deft_sum(y, DEFT_ALL_AXES, 0);
    cr_assert_not(deft_grad(&one_y, NULL, 1, &x, 1, NULL, &grad));
    rig_expect_error(&r, grad, DEFT_E_DTYPE, "result 0 is c64: without a seed");
    deft_tensor *real = RIG_VECTOR(&r, 1, 2);
    cr_assert_not(deft_grad(&y, &real, 1, &x, 1, NULL, &grad));
    rig_expect_error(&r, grad, DEFT_E_SHAPE, "seed 0 is f32[2], result 0 is c64[2]");
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

/* ---- handles of handles ---- */

static deft_status twice_conj(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                              size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(deft_conj(in[0]), 2);
    return DEFT_OK;
}

Test(complex, vmap_counts_the_axes_that_the_program_sees)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const m = deft_reshape(c64s(&r, 6, some), S(2, 3));
    deft_tensor *out = NULL;
    cr_assert(deft_vmap(r.cx, twice_conj, NULL, &m, (int[]){ -1 }, 1, &out, (int[]){ -1 }, 1), "%s",
              deft_message(r.cx));
    cr_assert(deft_rank(out) == 2 && deft_dim(out, 1) == 3);
    SAME(&r, "vmap", out, 2 * conjf(some[0]), 2 * conjf(some[1]), 2 * conjf(some[2]),
         2 * conjf(some[3]), 2 * conjf(some[4]), 2 * conjf(some[5]));
    cr_assert_not(deft_vmap(r.cx, twice_conj, NULL, &m, (int[]){ 2 }, 1, &out, NULL, 1));
    rig_expect_error(&r, out, DEFT_E_RANGE, "tensor 0 is c64[2,3], and has no axis 2");
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

static deft_status rotate(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)user;
    out[0] = deft_mul(in[0], in[1]);
    if (n_out > 1) out[1] = deft_abs(out[0]);
    return DEFT_OK;
}

static deft_status is_small(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_lt(deft_abs(in[0]), 10);
    return DEFT_OK;
}

static deft_status doubled(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_add(in[0], in[0]);
    return DEFT_OK;
}

static deft_status number(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    (void)in, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_num(cx, 3);
    return DEFT_OK;
}

static deft_status to_real(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_view_as_real(in[0]);
    return DEFT_OK;
}

Test(complex, loops_and_branches)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *init = one(&r, 1), *const rows = c64s(&r, 3, (c64[]){ 1 * I, 2, 1 + 1 * I });
    deft_tensor *out[2];
    cr_assert(deft_scan(r.cx, rotate, NULL, &init, 1, &rows, 1, 3, 1, out), "%s",
              deft_message(r.cx));
    SAME(&r, "scan", out[0], z(-2, 2));
    RIG_EXPECT(&r, out[1], 1, 2, 2.8284271f);
    deft_tensor *start = one(&r, z(1, 1));
    cr_assert(deft_while(r.cx, is_small, doubled, NULL, &start, 1, 100, out), "%s",
              deft_message(r.cx));
    SAME(&r, "while", out[0], z(8, 8));
    deft_tensor *const yes = deft_eq(RIG_VECTOR(&r, 1), 1);
    deft_tensor *const is = deft_reshape(yes, S());
    cr_assert(deft_cond(is, twice_conj, number, NULL, &start, 1, out, 1), "%s", deft_message(r.cx));
    SAME(&r, "cond", out[0], z(2, -2));
    cr_assert(deft_cond(is, number, twice_conj, NULL, &start, 1, out, 1), "%s", deft_message(r.cx));
    SAME(&r, "cond of a number", out[0], 3);
    cr_assert_not(deft_while(r.cx, is_small, to_real, NULL, &start, 1, 100, out));
    rig_expect_error(&r, out[0], DEFT_E_SHAPE, "makes result 0 f32[2], it must be c64[]");
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

static deft_status captured(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)n_in, (void)n_out;
    ++*(int *)user;
    deft_tensor *const by = deft_param_f(cx, "by");
    out[0] = deft_mul(deft_conj(in[0]), by);
    deft_assign(in[1], deft_add(in[1], in[0]));
    return DEFT_OK;
}

Test(complex, captures)
{
    rig r;
    int n_runs = 0;
    rig_open(&r, NULL, NULL);
    deft_capture *c = deft_capture_create(r.cx, captured, &n_runs);
    deft_tensor *const sum = deft_keep(deft_zeros(r.cx, S(2), DEFT_C64));
    for (int k = 0; k < 4; k++) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const in[2] = { c64s(&r, 2, some + k), sum };
        deft_tensor *out = NULL;
        OK(&r, deft_capture_set_f(c, "by", k + 2));
        OK(&r, deft_capture_call(c, in, 2, &out, 1));
        const c64 want[2] = { conjf(some[k]) * (float)(k + 2),
                              conjf(some[k + 1]) * (float)(k + 2) };
        expect_same(&r, "captured", out, 2, want);
        OK(&r, deft_scope_end(s));
    }
    cr_assert_eq(n_runs, 1, "%d runs", n_runs);
    expect_near(&r, "sum", sum, 2,
                (c128[]){ (c128)some[0] + some[1] + some[2] + some[3],
                          (c128)some[1] + some[2] + some[3] + some[4] });
    /* the same memory as reals is another argument */
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const reals = deft_from(r.cx, S(2, 2), DEFT_F32, some, 16);
    deft_tensor *const in[2] = { reals, deft_zeros(r.cx, S(2, 2), DEFT_F32) };
    deft_tensor *out = NULL;
    OK(&r, deft_capture_call(c, in, 2, &out, 1));
    cr_assert_eq(deft_dtype_of(out), DEFT_F32);
    cr_assert_eq(n_runs, 2);
    OK(&r, deft_scope_end(s));
    deft_capture_destroy(&c);
    rig_close(&r);
}

static deft_status forward(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    return twice_conj(cx, in, n_in, out, n_out, user);
}

static deft_status backward(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                            deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                            deft_tensor **grad_in, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    if (deft_dtype_of(in[0]) != DEFT_C64 || deft_dtype_of(out[0]) != DEFT_C64) return DEFT_E_DTYPE;
    grad_in[0] = deft_mul(deft_conj(grad_out[0]), 2);
    return DEFT_OK;
}

static deft_tensor *halve(deft_ctx *cx, deft_tensor *grad, void *user)
{
    (void)cx, (void)user;
    return deft_dtype_of(grad) == DEFT_C64 ? deft_mul(grad, 0.5) : NULL;
}

Test(complex, custom_gradients_and_hooks)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *x = c64s(&r, 2, some), *y, *grad;
    cr_assert(deft_grad_hook(x, halve, NULL));
    cr_assert(deft_custom_grad(r.cx, forward, backward, NULL, &x, 1, &y, 1));
    SAME(&r, "forward", y, 2 * conjf(some[0]), 2 * conjf(some[1]));
    deft_tensor *loss = deft_sum(deft_real(deft_mul(y, y)), DEFT_ALL_AXES, 0);
    cr_assert(deft_grad(&loss, NULL, 1, &x, 1, NULL, &grad), "%s", deft_message(r.cx));
    SAME(&r, "gradient", grad, 4 * conjf(some[0]), 4 * conjf(some[1]));
    deft_tensor *const still = deft_stop_gradient(x);
    SAME(&r, "stopped", still, some[0], some[1]);
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

/* ---- gradients of complex tensors in the middle ---- */

typedef enum middle_case {
    ITSELF,
    A_PRODUCT,
    A_VIEW,
    OF_A_VIEW, /* with respect to the tensor, of which a view is used */
    A_CONJUGATE,
    OF_NUMBERS,
    HOOKED, /* with respect to the real part, from here on */
    STOPPED,
    CUSTOM,
    N_MIDDLE
} middle_case;

/* What the gradients below are taken of: the elements of Re u^2, of which the gradient with respect
 * to u is 2 conj(u). u is z or is made of z, which is a join of parts, and operations take its
 * parts without reading it. Sets *with to u, z or re, as the case says. */
static deft_tensor *middle_loss(deft_ctx *cx, middle_case c, deft_tensor *re, deft_tensor *im,
                                deft_tensor **with)
{
    deft_tensor *z = deft_complex(re, im), *u = z;
    *with = z;
    switch (c) {
    case A_PRODUCT: *with = u = deft_mul(z, deft_const_f(cx, 2)); break;
    case A_VIEW: *with = u = deft_flip(deft_reshape(z, S(2, 1)), DEFT_AXES(0)); break;
    case OF_A_VIEW: {
        /* The view ends before the gradient is taken. */
        const deft_scope s = deft_scope_begin(cx);
        u = deft_reshape(z, S(2, 1));
        return deft_scope_return(s, deft_flatten(deft_real(deft_mul(u, u))));
    }
    case A_CONJUGATE: *with = u = deft_conj(z); break;
    case OF_NUMBERS: {
        const deft_scope s = deft_scope_begin(cx);
        deft_tensor *const one_by_one = deft_full(cx, S(2), DEFT_F32, 1);
        z = deft_scope_return(s, deft_complex(one_by_one, deft_full(cx, S(2), DEFT_F32, 3)));
        *with = u = z;
        break;
    }
    case HOOKED:
        *with = re;
        if (!deft_grad_hook(z, halve, NULL)) return NULL;
        break;
    case STOPPED:
        *with = re;
        u = deft_stop_gradient(z);
        break;
    case CUSTOM:
        *with = re;
        if (!deft_custom_grad(cx, forward, backward, NULL, &z, 1, &u, 1)) return NULL;
        break;
    case ITSELF:
    case N_MIDDLE: break;
    }
    deft_tensor *const loss = deft_flatten(deft_real(deft_mul(u, u)));
    /* What uses z beside u is no part of the gradient with respect to u. */
    return c > ITSELF && c < OF_NUMBERS ? deft_add(loss, deft_imag(z)) : loss;
}

/* The gradient as reals [2,2]. */
static deft_tensor *middle_gradient(deft_tensor *loss, deft_tensor *with)
{
    const deft_grad_options o = { .size = sizeof o, .unused_is_zero = true };
    deft_tensor *const sum = deft_sum(loss, DEFT_ALL_AXES, 0);
    deft_tensor *out = NULL;
    if (!deft_grad(&sum, NULL, 1, &with, 1, &o, &out)) return NULL;
    return deft_dtype_of(out) == DEFT_C64 ? deft_view_as_real(deft_flatten(out))
                                          : deft_stack((deft_tensor *[]){ out, out }, 2, -1);
}

typedef struct middle {
    middle_case which;
    deft_tensor *im;
} middle;

/* in[1], or in[0] where it is the only one, is the real part. */
static deft_status gradient_of_example(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                       deft_tensor **out, size_t n_out, void *user)
{
    const middle *const m = user;
    deft_tensor *with;
    deft_tensor *const loss = middle_loss(cx, m->which, in[n_in - 1], m->im, &with);
    out[0] = middle_gradient(loss, with);
    if (n_out > 1) out[1] = in[1];
    return out[0] ? DEFT_OK : deft_error(cx);
}

static deft_status loss_of_example(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                   deft_tensor **out, size_t n_out, void *user)
{
    const middle *const m = user;
    deft_tensor *with;
    (void)n_in;
    out[n_out - 1] = middle_loss(cx, m->which, in[0], m->im, &with);
    if (n_out > 1) out[0] = in[0];
    return out[n_out - 1] ? DEFT_OK : deft_error(cx);
}

typedef enum middle_way {
    BY_ITSELF,
    FORGOTTEN, /* a cut by a budget forgets what it can before the gradient is taken */
    IN_VMAP,
    IN_A_LOOP,
    OF_VMAP, /* the gradient is taken outside, of what the records are recorded again for */
    OF_A_LOOP,
    N_WAYS
} middle_way;

static deft_tensor *in_the_middle(rig *r, middle_way way, middle *m, deft_tensor *re)
{
    deft_tensor *const row = deft_unsqueeze(re, 0), *with, *out[2] = { NULL };
    switch (way) {
    case IN_VMAP:
        (void)deft_vmap(r->cx, gradient_of_example, m, &row, NULL, 1, out, NULL, 1);
        return deft_squeeze(out[0], DEFT_AXES(0));
    case IN_A_LOOP: {
        deft_tensor *state[2] = { deft_zeros(r->cx, S(2, 2), DEFT_F32), re };
        deft_tensor *last[2] = { NULL };
        (void)deft_scan(r->cx, gradient_of_example, m, state, 2, NULL, 0, 1, 0, last);
        return last[0];
    }
    case OF_VMAP:
        (void)deft_vmap(r->cx, loss_of_example, m, &row, NULL, 1, out, NULL, 1);
        return middle_gradient(out[0], re);
    case OF_A_LOOP:
        (void)deft_scan(r->cx, loss_of_example, m, &re, 1, NULL, 0, 1, 1, out);
        return middle_gradient(out[1], re);
    case BY_ITSELF:
    case FORGOTTEN:
    case N_WAYS: break;
    }
    deft_tensor *const loss = middle_loss(r->cx, m->which, re, m->im, &with);
    if (way == FORGOTTEN) {
        OK(r, df_budget_flush(r->cx));
        df_forget(r->cx);
    }
    return middle_gradient(loss, with);
}

Test(complex, gradients_meet_complex_tensors_in_the_middle)
{
    /* z = (1 + 3i, 2 + 4i) */
    static const float want[N_MIDDLE][4] = {
        [ITSELF] = { 2, -6, 4, -8 },    [A_PRODUCT] = { 4, -12, 8, -16 },
        [A_VIEW] = { 4, -8, 2, -6 },    [OF_A_VIEW] = { 2, -6, 4, -8 },
        [A_CONJUGATE] = { 2, 6, 4, 8 }, [OF_NUMBERS] = { 2, -6, 2, -6 },
        [HOOKED] = { 1, 1, 2, 2 },      [STOPPED] = { 0, 0, 0, 0 },
        [CUSTOM] = { 8, 8, 16, 16 },
    };
    for (middle_way way = 0; way < N_WAYS; way++)
        for (middle_case c = way < OF_VMAP ? 0 : HOOKED; c < N_MIDDLE; c++) {
            rig r;
            rig_open(&r, NULL, NULL);
            middle m = { c, RIG_VECTOR(&r, 3, 4) };
            deft_tensor *const re = RIG_VECTOR(&r, 1, 2);
            const deft_scope s = deft_step_begin(r.cx);
            deft_tensor *const g = in_the_middle(&r, way, &m, re);
            cr_assert_not_null(g, "way %d, case %d: %s", (int)way, (int)c, deft_message(r.cx));
            float got[4];
            rig_read(&r, g, got, 4);
            for (int i = 0; i < 4; i++)
                cr_expect_eq(got[i], want[c][i], "way %d, case %d, %d: %g, not %g", (int)way,
                             (int)c, i, (double)got[i], (double)want[c][i]);
            OK(&r, deft_step_end(s));
            rig_close(&r);
        }
}

Test(complex, kept_returned_and_moved)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const deft_scope outer = deft_scope_begin(r.cx), inner = deft_scope_begin(r.cx);
    deft_tensor *const x = deft_scope_return(inner, deft_mul(c64s(&r, 2, some), 2));
    SAME(&r, "returned", x, 2 * some[0], 2 * some[1]);
    deft_tensor *kept = deft_keep(deft_conj(x));
    OK(&r, deft_scope_end(outer));
    SAME(&r, "kept", kept, 2 * conjf(some[0]), 2 * conjf(some[1]));
    SAME(&r, "moved", deft_to(kept, DEFT_CPU), 2 * conjf(some[0]), 2 * conjf(some[1]));
    OK(&r, deft_nan_check(&kept, 1));
    char text[400];
    deft_show(r.cx, "kept", text, sizeof text);
    cr_assert(strstr(text, "c64[2] 16 bytes"), "%s", text);
    deft_rng rng = { 1, 0 };
    deft_tensor *const drawn = deft_normal(r.cx, &rng, S(1000), DEFT_C64, 0, 1);
    float var;
    rig_read(&r, deft_var(drawn, DEFT_ALL_AXES, 0, 1), &var, 1);
    cr_assert_float_eq(var, 1, 0.1);
    deft_drop(&kept);
    rig_close(&r);
}

/* ---- how it runs ---- */

Test(complex, a_chain_is_one_kernel)
{
    rig r;
    rig_open(&r, NULL, NULL);
    enum { LONG = 1000 };
    static c64 in[2][LONG], out[LONG];
    for (int i = 0; i < LONG; i++) {
        in[0][i] = some[i % N] + (float)i;
        in[1][i] = some[(i + 3) % N];
    }
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const a = c64s(&r, LONG, in[0]), *const b = c64s(&r, LONG, in[1]);
    deft_tensor *const t =
        deft_sub(deft_mul(deft_conj(deft_flip(deft_mul(a, b), DEFT_AXES(0))), deft_add(a, 2)), b);
    const uint64_t before = rig_stats(&r).launches;
    OK(&r, deft_read(t, DEFT_C64, out, sizeof out));
    cr_assert_eq(rig_stats(&r).launches, before + 1);
    for (int i = 0; i < LONG; i++) {
        const c128 p = (c128)in[0][LONG - 1 - i] * (c128)in[1][LONG - 1 - i];
        near_c64("chain", i, out[i], conj(p) * ((c128)in[0][i] + 2) - (c128)in[1][i], 1e-5);
    }
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

/* The parts are stored in turn, and a tail is masked. */
Test(complex, all_lengths_have_the_same_bits)
{
    enum { MOST = 150 };
    static c64 in[2][MOST], out[2][MOST];
    for (int i = 0; i < MOST; i++) {
        in[0][i] = some[i % N] * (float)(i + 1) / 7;
        in[1][i] = some[(i + 3) % N] / 3;
    }
    rig r[2];
    const deft_runtime_options full = { .size = sizeof full, .tier = DEFT_TIER_FULL };
    rig_open(&r[0], &full, NULL);
    rig_interpret(&r[1], 1);
    for (int n = 1; n <= MOST; n += n < 70 ? 1 : 13)
        for (int k = 0; k < 2; k++) {
            const deft_scope s = deft_scope_begin(r[k].cx);
            deft_tensor *const a = c64s(&r[k], n, in[0]), *const b = c64s(&r[k], n, in[1]);
            deft_tensor *const t = deft_add(deft_mul(a, b), a);
            OK(&r[k], deft_read(t, DEFT_C64, out[k], (size_t)n * sizeof(c64)));
            OK(&r[k], deft_scope_end(s));
            if (k) cr_assert_arr_eq(out[0], out[1], (size_t)n * sizeof(c64), "%d elements", n);
        }
    rig_close(&r[0]);
    rig_close(&r[1]);
}
