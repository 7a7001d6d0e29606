/* SPDX-License-Identifier: Apache-2.0
 *
 * Elementwise functions of one complex number z = x + iy.
 *
 * The formulas are those of W. Kahan, "Branch cuts for complex elementary functions, or: Much ado
 * about nothing's sign bit", 1987, and the special values those of C, Annex G, where the array API
 * standard asks for them. A formula that is exact but for one case is followed by a choice
 * (SELECT). The operands of what is not chosen are replaced by harmless ones where their
 * derivatives would be infinite, since 0 times infinity is NaN.
 *
 * Functions that are turned ones of others take their values from those:
 *   sin z = -i sinh(iz), cos z = cosh(iz), tan z = -i tanh(iz), asin, atan likewise.
 */
#include "lazy/complex/functions.h"

#include <math.h>

#define MAP(op, a) df_map1(j->cx, DF_OP_##op, (a), j->site)
#define OF(op, a, b) df_map2(j->cx, DF_OP_##op, (a), (b), j->site)
#define ADD(a, b) OF(add, a, b)
#define SUB(a, b) OF(sub, a, b)
#define MUL(a, b) OF(mul, a, b)
#define DIV(a, b) OF(div, a, b)
#define INT(v) df_cst(j->cx, j->t, (v), j->site)
#define NUM(v) df_number_f(j->cx, "complex", j->t, (v), j->site)
#define SELECT(c, a, b) df_where(j->cx, (c), (a), (b), j->site)
#define BOTH(a, b) OF(bitwise_and, a, b)

#define HALF_PI 1.57079632679489661923

uint32_t df_complex_truth(deft_ctx *cx, df_parts x, uintptr_t site)
{
    const uint32_t re = df_to(cx, x.re, DEFT_BOOL, site);
    if (x.is_real) return re;
    return df_map2(cx, DF_OP_bitwise_or, re, df_to(cx, x.im, DEFT_BOOL, site), site);
}

df_parts df_complex_mul(deft_ctx *cx, df_parts a, df_parts b, uintptr_t site)
{
    if (a.is_real || b.is_real) {
        const df_parts z = a.is_real ? b : a, x = a.is_real ? a : b;
        return (df_parts){ df_map2(cx, DF_OP_mul, z.re, x.re, site),
                           z.is_real ? DF_BAD : df_map2(cx, DF_OP_mul, z.im, x.re, site),
                           z.is_real };
    }
    const uint32_t rr = df_map2(cx, DF_OP_mul, a.re, b.re, site);
    const uint32_t ii = df_map2(cx, DF_OP_mul, a.im, b.im, site);
    const uint32_t ri = df_map2(cx, DF_OP_mul, a.re, b.im, site);
    const uint32_t ir = df_map2(cx, DF_OP_mul, a.im, b.re, site);
    return (df_parts){ df_map2(cx, DF_OP_sub, rr, ii, site), df_map2(cx, DF_OP_add, ri, ir, site),
                       false };
}

static uint32_t is_zero(const df_cjob *j, uint32_t a)
{
    return OF(eq, a, INT(0));
}

/* x is an infinity and y is no number: an infinity or NaN. */
static uint32_t is_odd(const df_cjob *j, uint32_t x, uint32_t y)
{
    return BOTH(MAP(isinf, x), MAP(logical_not, MAP(isfinite, y)));
}

static uint32_t magnitude_z(const df_cjob *j, df_parts z)
{
    return OF(hypot, z.re, z.im);
}

/* i z, and -i z */
static df_parts times_i(const df_cjob *j, df_parts z)
{
    return (df_parts){ MAP(neg, z.im), z.re, false };
}

static df_parts over_i(const df_cjob *j, df_parts z)
{
    return (df_parts){ z.im, MAP(neg, z.re), false };
}

static df_parts scaled(const df_cjob *j, df_parts z, double by)
{
    const uint32_t f = NUM(by);
    return (df_parts){ MUL(z.re, f), MUL(z.im, f), false };
}

/* ---- arithmetic ---- */

static df_parts conjugate(const df_cjob *j, df_parts z)
{
    return (df_parts){ z.re, MAP(neg, z.im), false };
}

static df_parts negated(const df_cjob *j, df_parts z)
{
    return (df_parts){ MAP(neg, z.re), MAP(neg, z.im), false };
}

static df_parts square(const df_cjob *j, df_parts z)
{
    return df_complex_mul(j->cx, z, z, j->site);
}

/* R. L. Smith, "Algorithm 116: complex division", 1962: the lesser part of b is divided by the
 * greater one, so that no square overflows. */
df_parts df_complex_div(const df_cjob *j, df_parts a, df_parts b)
{
    if (b.is_real)
        return (df_parts){ DIV(a.re, b.re), a.is_real ? DF_BAD : DIV(a.im, b.re), a.is_real };
    const uint32_t by_im = OF(lt, MAP(abs, b.re), MAP(abs, b.im));
    const uint32_t big = SELECT(by_im, b.im, b.re), small = SELECT(by_im, b.re, b.im);
    const uint32_t r = DIV(small, SELECT(is_zero(j, big), INT(1), big));
    const uint32_t d = ADD(big, MUL(small, r));
    if (a.is_real) {
        const uint32_t f = DIV(a.re, d), g = MUL(f, r);
        return (df_parts){ SELECT(by_im, g, f), MAP(neg, SELECT(by_im, f, g)), false };
    }
    const uint32_t p = SELECT(by_im, a.im, a.re), q = SELECT(by_im, a.re, a.im);
    const uint32_t across = MUL(p, r); /* of a.im or of a.re */
    const uint32_t im = SELECT(by_im, SUB(across, q), SUB(q, across));
    return (df_parts){ DIV(ADD(p, MUL(q, r)), d), DIV(im, d), false };
}

static df_parts reciprocal(const df_cjob *j, df_parts z)
{
    return df_complex_div(j, (df_parts){ INT(1), DF_BAD, true }, z);
}

/* z / |z|, and 0 at 0. */
static df_parts sign_z(const df_cjob *j, df_parts z)
{
    const uint32_t m = magnitude_z(j, z), d = SELECT(is_zero(j, m), INT(1), m);
    return (df_parts){ DIV(z.re, d), DIV(z.im, d), false };
}

/* ---- exponentials and logarithms ---- */

/* exp(x) (cos y + i sin y). exp(x) is the square of h, so that it overflows only when the result
 * does. */
static df_parts exp_z(const df_cjob *j, df_parts z)
{
    const uint32_t x = z.re, y = z.im, h = MAP(exp, MUL(x, NUM(0.5)));
    const uint32_t odd = is_odd(j, x, y);
    const uint32_t re = SELECT(odd, h, MUL(MUL(h, MAP(cos, y)), h));
    const uint32_t im = SELECT(is_zero(j, y), y, MUL(MUL(h, MAP(sin, y)), h));
    return (df_parts){ re, SELECT(odd, SUB(h, h), im), false };
}

static df_parts exp2_z(const df_cjob *j, df_parts z)
{
    return exp_z(j, scaled(j, z, 0.69314718055994530942));
}

static df_parts expm1_z(const df_cjob *j, df_parts z)
{
    const uint32_t x = z.re, y = z.im, s = MAP(sin, MUL(y, NUM(0.5)));
    const df_parts e = exp_z(j, z);
    const uint32_t near = SUB(MUL(MAP(expm1, x), MAP(cos, y)), MUL(INT(2), MUL(s, s)));
    const uint32_t far = SUB(e.re, INT(1));
    return (df_parts){ SELECT(OF(lt, MAP(abs, x), INT(1)), near, far), e.im, false };
}

/* log |z|. Near |z| = 1 it is log1p(|z|^2 - 1) / 2, without the cancellation. */
static uint32_t log_of_magnitude(const df_cjob *j, df_parts z)
{
    const uint32_t a = MAP(abs, z.re), b = MAP(abs, z.im), m = magnitude_z(j, z);
    const uint32_t big = OF(maximum, a, b), small = OF(minimum, a, b);
    const uint32_t src[3] = { small, small, MUL(SUB(big, INT(1)), ADD(big, INT(1))) };
    if (small == DF_BAD || src[2] == DF_BAD) return DF_BAD;
    const uint32_t over = df_append(j->cx, DF_OP_fma, j->t, 0, src, NULL, 0, NULL, j->site);
    const uint32_t near = BOTH(OF(lt, NUM(0.7), m), OF(lt, m, NUM(1.4)));
    const uint32_t log1p = MUL(MAP(log1p, SELECT(near, over, INT(0))), NUM(0.5));
    return SELECT(near, log1p, MAP(log, m));
}

static df_parts log_z(const df_cjob *j, df_parts z)
{
    return (df_parts){ log_of_magnitude(j, z), OF(atan2, z.im, z.re), false };
}

static df_parts log2_z(const df_cjob *j, df_parts z)
{
    return scaled(j, log_z(j, z), 1.44269504088896340736);
}

static df_parts log10_z(const df_cjob *j, df_parts z)
{
    return scaled(j, log_z(j, z), 0.43429448190325182765);
}

static df_parts log1p_z(const df_cjob *j, df_parts z)
{
    const uint32_t x = z.re, y = z.im;
    const df_parts shifted = { ADD(x, INT(1)), y, false };
    const uint32_t near = BOTH(OF(lt, MAP(abs, x), NUM(0.5)), OF(lt, MAP(abs, y), NUM(0.5)));
    const uint32_t over = ADD(MUL(x, ADD(x, INT(2))), MUL(y, y));
    const uint32_t log1p = MUL(MAP(log1p, SELECT(near, over, INT(0))), NUM(0.5));
    return (df_parts){ SELECT(near, log1p, log_of_magnitude(j, shifted)), OF(atan2, y, shifted.re),
                       false };
}

/* t = sqrt((|x| + |z|) / 2) is the greater part, and the other one is |y| / 2t. */
static df_parts sqrt_z(const df_cjob *j, df_parts z)
{
    const uint32_t x = z.re, y = z.im, half = NUM(0.5);
    const uint32_t hx = MUL(x, half), hy = MUL(y, half);
    const uint32_t t = MAP(sqrt, ADD(MAP(abs, hx), OF(hypot, hx, hy)));
    const uint32_t safe = SELECT(is_zero(j, t), INT(1), t);
    const uint32_t other = DIV(hy, safe);
    const uint32_t left = OF(lt, x, INT(0)), up = MAP(isinf, y);
    const uint32_t re = SELECT(left, MAP(abs, other), t);
    const uint32_t im = SELECT(left, OF(copysign, t, y), other);
    return (df_parts){ SELECT(up, MAP(abs, y), re), SELECT(up, y, im), false };
}

static df_parts rsqrt_z(const df_cjob *j, df_parts z)
{
    return reciprocal(j, sqrt_z(j, z));
}

df_parts df_complex_powi(const df_cjob *j, df_parts a, uint32_t power)
{
    df_parts out = { INT(1), INT(0), false };
    bool has = false;
    for (; power; power >>= 1) {
        if (power & 1u) out = has ? df_complex_mul(j->cx, out, a, j->site) : a;
        has |= power & 1u;
        if (power > 1) a = square(j, a);
    }
    if (has) return out;
    const uint32_t is = OF(eq, a.re, a.re); /* 1 in the shape of a, also for NaN */
    return (df_parts){ SELECT(is, out.re, out.re), out.im, false };
}

/* exp(b log a). 0 to a power is 0 where the real part of the power is positive, and 1 at 0. */
df_parts df_complex_pow(const df_cjob *j, df_parts a, df_parts b)
{
    const df_parts whole = { a.re, a.is_real ? INT(0) : a.im, false };
    const uint32_t none = BOTH(is_zero(j, whole.re), is_zero(j, whole.im));
    const df_parts safe = { SELECT(none, INT(1), whole.re), whole.im, false };
    const df_parts p = exp_z(j, df_complex_mul(j->cx, b, log_z(j, safe), j->site));
    const uint32_t zero = INT(0);
    const uint32_t still = b.is_real ? is_zero(j, b.re) : BOTH(is_zero(j, b.re), is_zero(j, b.im));
    const uint32_t rest = SELECT(OF(lt, zero, b.re), zero, DIV(zero, zero));
    return (df_parts){ SELECT(none, SELECT(still, INT(1), rest), p.re),
                       SELECT(none, SELECT(still, zero, rest), p.im), false };
}

/* ---- hyperbolic functions ---- */

static df_parts sinh_z(const df_cjob *j, df_parts z)
{
    const uint32_t x = z.re, y = z.im, s = MAP(sinh, x);
    const uint32_t still = BOTH(is_zero(j, x), MAP(logical_not, MAP(isfinite, y)));
    const uint32_t re = SELECT(still, x, MUL(s, MAP(cos, y)));
    const uint32_t im = MUL(MAP(cosh, x), MAP(sin, y));
    return (df_parts){ SELECT(is_odd(j, x, y), x, re), SELECT(is_zero(j, y), y, im), false };
}

static df_parts cosh_z(const df_cjob *j, df_parts z)
{
    const uint32_t x = z.re, y = z.im, c = MAP(cosh, x);
    const uint32_t still = BOTH(is_zero(j, x), MAP(logical_not, MAP(isfinite, y)));
    const uint32_t on_axis = MUL(OF(copysign, INT(1), x), y); /* sinh(x) sin(0), x infinite */
    const uint32_t im = SELECT(still, x, MUL(MAP(sinh, x), MAP(sin, y)));
    return (df_parts){ SELECT(is_odd(j, x, y), c, MUL(c, MAP(cos, y))),
                       SELECT(is_zero(j, y), on_axis, im), false };
}

/* With t = tan y and s = sinh x: (s sqrt(1 + s^2) (1 + t^2) + i t) / (1 + s^2 (1 + t^2)). Where
 * tanh x rounds to 1, the imaginary part is 2 sin(2y) exp(-2|x|). */
static df_parts tanh_z(const df_cjob *j, df_parts z)
{
    const uint32_t x = z.re, y = z.im, ax = MAP(abs, x), one = INT(1), two = INT(2);
    const uint32_t far = OF(lt, NUM(j->t == DEFT_F64 ? 22 : 11), ax), odd = is_odd(j, x, y);
    const uint32_t s = MAP(sinh, SELECT(far, INT(0), x)), t = MAP(tan, y);
    const uint32_t b = ADD(one, MUL(t, t)), root = MAP(sqrt, ADD(one, MUL(s, s)));
    const uint32_t d = ADD(one, MUL(MUL(b, s), s));
    const uint32_t re = SELECT(is_zero(j, x), x, DIV(MUL(MUL(b, root), s), d));
    const uint32_t im = SELECT(is_zero(j, y), y, DIV(t, d));
    const uint32_t e = MAP(exp, MUL(ax, INT(-2)));
    const uint32_t faint = MUL(MUL(two, MAP(sin, MUL(y, two))), e);
    return (df_parts){ SELECT(far, OF(copysign, one, x), re),
                       SELECT(far, SELECT(odd, INT(0), faint), im), false };
}

/* sqrt(1 - z) and sqrt(1 + z) */
static void roots_around(const df_cjob *j, df_parts z, df_parts *minus, df_parts *plus)
{
    const uint32_t one = INT(1);
    *minus = sqrt_z(j, (df_parts){ SUB(one, z.re), MAP(neg, z.im), false });
    *plus = sqrt_z(j, (df_parts){ ADD(one, z.re), z.im, false });
}

static uint32_t either_infinite(const df_cjob *j, df_parts z)
{
    return OF(bitwise_or, MAP(isinf, z.re), MAP(isinf, z.im));
}

static df_parts asin_finite_z(const df_cjob *j, df_parts z)
{
    df_parts m, p;
    roots_around(j, z, &m, &p);
    const uint32_t down = SUB(MUL(m.re, p.re), MUL(m.im, p.im));
    const uint32_t across = SUB(MUL(m.re, p.im), MUL(m.im, p.re));
    return (df_parts){ OF(atan2, z.re, down), MAP(asinh, across), false };
}

static df_parts asinh_z(const df_cjob *j, df_parts z)
{
    const uint32_t huge = either_infinite(j, z);
    const df_parts f = over_i(j, asin_finite_z(j, times_i(j, z)));
    const uint32_t angle = OF(atan2, z.im, MAP(abs, z.re));
    const uint32_t on_axis = BOTH(is_zero(j, z.im), MAP(isnan, z.re));
    return (df_parts){ SELECT(huge, OF(copysign, NUM(INFINITY), z.re), f.re),
                       SELECT(huge, angle, SELECT(on_axis, z.im, f.im)), false };
}

static df_parts acos_z(const df_cjob *j, df_parts z)
{
    df_parts m, p;
    roots_around(j, z, &m, &p);
    const uint32_t huge = either_infinite(j, z);
    const uint32_t across = SUB(MUL(p.re, m.im), MUL(p.im, m.re));
    const uint32_t far = MAP(neg, OF(copysign, NUM(INFINITY), z.im));
    return (df_parts){ SELECT(huge, OF(atan2, MAP(abs, z.im), z.re),
                              MUL(INT(2), OF(atan2, m.re, p.re))),
                       SELECT(huge, far, MAP(asinh, across)), false };
}

static df_parts acosh_z(const df_cjob *j, df_parts z)
{
    const df_parts a = acos_z(j, z);
    return (df_parts){ MAP(abs, a.im), OF(copysign, a.re, z.im), false };
}

static df_parts atanh_z(const df_cjob *j, df_parts z)
{
    const uint32_t x = MAP(abs, z.re), y = z.im, one = INT(1), huge = either_infinite(j, z);
    const uint32_t below = SUB(one, x), yy = MUL(y, y);
    const uint32_t ratio = DIV(MUL(INT(4), x), ADD(MUL(below, below), yy));
    const uint32_t re = MUL(MAP(log1p, ratio), NUM(0.25));
    const uint32_t angle = OF(atan2, MUL(INT(2), y), SUB(MUL(below, ADD(one, x)), yy));
    return (df_parts){ OF(copysign, SELECT(huge, INT(0), re), z.re),
                       SELECT(huge, SELECT(MAP(isnan, y), y, OF(copysign, NUM(HALF_PI), y)),
                              MUL(angle, NUM(0.5))),
                       false };
}

#define TURNED(name, f)                                                                            \
    static df_parts name(const df_cjob *j, df_parts z)                                             \
    {                                                                                              \
        return over_i(j, f(j, times_i(j, z)));                                                     \
    }
TURNED(sin_z, sinh_z)
TURNED(tan_z, tanh_z)
TURNED(asin_z, asinh_z)
TURNED(atan_z, atanh_z)
#undef TURNED

static df_parts cos_z(const df_cjob *j, df_parts z)
{
    return cosh_z(j, times_i(j, z));
}

static df_parts round_z(const df_cjob *j, df_parts z)
{
    return (df_parts){ MAP(round, z.re), MAP(round, z.im), false };
}

/* ---- functions with real values ---- */

static df_parts real_part(uint32_t re)
{
    return (df_parts){ re, DF_BAD, true };
}

static df_parts abs_z(const df_cjob *j, df_parts z)
{
    return real_part(magnitude_z(j, z));
}

#define EITHER(name, op, join)                                                                     \
    static df_parts name(const df_cjob *j, df_parts z)                                             \
    {                                                                                              \
        return real_part(OF(join, MAP(op, z.re), MAP(op, z.im)));                                  \
    }
EITHER(isnan_z, isnan, bitwise_or)
EITHER(isinf_z, isinf, bitwise_or)
EITHER(isfinite_z, isfinite, bitwise_and)
#undef EITHER

static df_parts not_z(const df_cjob *j, df_parts z)
{
    return real_part(MAP(logical_not, df_complex_truth(j->cx, z, j->site)));
}

typedef df_parts (*function)(const df_cjob *j, df_parts z);

static function function_of(df_op op)
{
    static const struct {
        uint8_t op;
        function f;
    } rows[] = {
        { DF_OP_neg, negated },       { DF_OP_abs, abs_z },
        { DF_OP_sign, sign_z },       { DF_OP_square, square },
        { DF_OP_sqrt, sqrt_z },       { DF_OP_rsqrt, rsqrt_z },
        { DF_OP_exp, exp_z },         { DF_OP_exp2, exp2_z },
        { DF_OP_expm1, expm1_z },     { DF_OP_log, log_z },
        { DF_OP_log2, log2_z },       { DF_OP_log10, log10_z },
        { DF_OP_log1p, log1p_z },     { DF_OP_sin, sin_z },
        { DF_OP_cos, cos_z },         { DF_OP_tan, tan_z },
        { DF_OP_asin, asin_z },       { DF_OP_acos, acos_z },
        { DF_OP_atan, atan_z },       { DF_OP_sinh, sinh_z },
        { DF_OP_cosh, cosh_z },       { DF_OP_tanh, tanh_z },
        { DF_OP_asinh, asinh_z },     { DF_OP_acosh, acosh_z },
        { DF_OP_atanh, atanh_z },     { DF_OP_isnan, isnan_z },
        { DF_OP_isinf, isinf_z },     { DF_OP_isfinite, isfinite_z },
        { DF_OP_logical_not, not_z }, { DF_OP_reciprocal, reciprocal },
        { DF_OP_round, round_z },
    };
    for (size_t i = 0; i < DF_LEN(rows); i++)
        if (rows[i].op == op) return rows[i].f;
    return NULL;
}

bool df_complex_map(const df_cjob *j, df_op op, df_parts x, df_parts *out)
{
    const function f = function_of(op);
    if (f) *out = f(j, x);
    return f != NULL;
}

df_parts df_complex_conj(deft_ctx *cx, df_parts x, uintptr_t site)
{
    const df_cjob j = { cx, DEFT_F32, site };
    return x.is_real ? x : conjugate(&j, x);
}
