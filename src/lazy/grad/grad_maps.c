/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of elementwise ops, by textbook formulas. Where the value of the op itself
 * occurs in its derivative, the record is used, because it is computed already.
 * docs/gradients.md says what happens at kinks.
 */
#include "lazy/grad/grad.h"

/* ---- short forms, for rules that read as formulas ---- */

/* Operands 0 and 1 of the record k whose rule is being written; g is the gradient of k. */
#define X df_grad_src(w, k, 0)
#define Y df_grad_src(w, k, 1)

static uint32_t map1(df_grad *w, df_op op, uint32_t a)
{
    return df_map1(w->cx, op, a, w->site);
}

static uint32_t where(df_grad *w, uint32_t c, uint32_t a, uint32_t b)
{
    return df_where(w->cx, c, a, b, w->site);
}

#define ADD(a, b) df_grad_map2(w, DF_OP_add, a, b)
#define SUB(a, b) df_grad_map2(w, DF_OP_sub, a, b)
#define MUL(a, b) df_grad_map2(w, DF_OP_mul, a, b)
#define DIV(a, b) df_grad_map2(w, DF_OP_div, a, b)
#define NEG(a) map1(w, DF_OP_neg, a)
#define MAP(op, a) map1(w, DF_OP_##op, a)

/* A whole number that is part of the program. */
static uint32_t whole(df_grad *w, uint32_t k, int32_t value)
{
    return df_cst(w->cx, df_dtype_at(w->cx, k), value, w->site);
}

static uint32_t number(df_grad *w, uint32_t k, double value)
{
    return df_number_f(w->cx, "grad", df_dtype_at(w->cx, k), value, w->site);
}

#define INT(v) whole(w, k, v)
#define NUM(v) number(w, k, v)

/* Defines the rule of an op with one operand: the gradient of x is the expression. */
#define UNARY(name, ...)                                                                           \
    bool df_grad_##name(df_grad *w, uint32_t k, uint32_t g)                                        \
    {                                                                                              \
        return df_grad_give(w, X, __VA_ARGS__);                                                    \
    }

/* ---- one operand ---- */

/* A state or row of a loop that is still being recorded. grad_loop.c uses its gradient. */
bool df_grad_leaf(df_grad *w, uint32_t k, uint32_t g)
{
    (void)w, (void)k, (void)g;
    return true;
}

/* Step functions: the derivative is 0 wherever it exists. */
bool df_grad_zero(df_grad *w, uint32_t k, uint32_t g)
{
    (void)g;
    for (uint32_t i = 0; i < w->cx->rec.nodes[k].n_src; i++) {
        const uint32_t x = df_grad_src(w, k, i);
        if (df_grad_is_active(w, x) && !df_grad_give(w, x, df_grad_zeros(w->cx, x, w->site)))
            return false;
    }
    return true;
}

#define TWO_OVER_SQRT_PI 1.12837916709551257390
#define SQRT_PI_OVER_TWO 0.88622692545275801365
#define ONE_OVER_SQRT_2PI 0.39894228040143267794
#define LN2 0.69314718055994530942
#define LN10 2.30258509299404568402

UNARY(neg, NEG(g))
UNARY(abs, MUL(g, MAP(sign, X)))
UNARY(square, MUL(g, MUL(INT(2), X)))
UNARY(sqrt, DIV(g, MUL(INT(2), k)))
UNARY(rsqrt, MUL(g, MUL(NUM(-0.5), MUL(k, MUL(k, k)))))
UNARY(reciprocal, NEG(MUL(g, MUL(k, k))))
UNARY(exp, MUL(g, k))
UNARY(exp2, MUL(g, MUL(k, NUM(LN2))))
UNARY(expm1, MUL(g, ADD(k, INT(1))))
UNARY(log, DIV(g, X))
UNARY(log2, DIV(g, MUL(X, NUM(LN2))))
UNARY(log10, DIV(g, MUL(X, NUM(LN10))))
UNARY(log1p, DIV(g, ADD(X, INT(1))))
UNARY(sin, MUL(g, MAP(cos, X)))
UNARY(cos, NEG(MUL(g, MAP(sin, X))))
UNARY(tan, MUL(g, ADD(MUL(k, k), INT(1))))
UNARY(asin, MUL(g, MAP(rsqrt, SUB(INT(1), MUL(X, X)))))
UNARY(acos, NEG(MUL(g, MAP(rsqrt, SUB(INT(1), MUL(X, X))))))
UNARY(atan, DIV(g, ADD(MUL(X, X), INT(1))))
UNARY(sinh, MUL(g, MAP(cosh, X)))
UNARY(cosh, MUL(g, MAP(sinh, X)))
UNARY(tanh, MUL(g, SUB(INT(1), MUL(k, k))))
UNARY(asinh, DIV(g, MAP(sqrt, ADD(MUL(X, X), INT(1)))))
UNARY(acosh, MUL(g, MAP(rsqrt, MUL(SUB(X, INT(1)), ADD(X, INT(1))))))
UNARY(atanh, DIV(g, MUL(SUB(INT(1), X), ADD(INT(1), X))))
UNARY(cbrt, DIV(g, MUL(INT(3), MUL(k, k))))
UNARY(sigmoid, MUL(g, MUL(k, SUB(INT(1), k))))
UNARY(softplus, MUL(g, MAP(sigmoid, X)))

static uint32_t minus_square(df_grad *w, uint32_t x)
{
    return NEG(MUL(x, x));
}

UNARY(erf, MUL(g, MUL(NUM(TWO_OVER_SQRT_PI), MAP(exp, minus_square(w, X)))))
UNARY(erfc, MUL(g, MUL(NUM(-TWO_OVER_SQRT_PI), MAP(exp, minus_square(w, X)))))

UNARY(erfinv, MUL(g, MUL(NUM(SQRT_PI_OVER_TWO), MAP(exp, MUL(k, k)))))
UNARY(lgamma, MUL(g, MAP(digamma, X)))

static uint32_t polygamma(df_grad *w, uint32_t x, uint32_t order)
{
    return df_append(w->cx, DF_OP_polygamma, df_dtype_at(w->cx, x), order, &x, NULL, 0, NULL,
                     w->site);
}

UNARY(digamma, MUL(g, polygamma(w, X, 1)))
UNARY(polygamma, MUL(g, polygamma(w, X, w->cx->rec.nodes[k].attr + 1)))

/* i1(x) / x, which is 1/2 at 0. k is i1(x) or i1e(x). */
static uint32_t i1_over_x(df_grad *w, uint32_t k)
{
    const uint32_t x = X, is_zero = df_grad_map2(w, DF_OP_eq, x, INT(0));
    return where(w, is_zero, NUM(0.5), DIV(k, where(w, is_zero, INT(1), x)));
}

UNARY(i0, MUL(g, MAP(i1, X)))
UNARY(i0e, MUL(g, SUB(MAP(i1e, X), MUL(MAP(sign, X), k))))
UNARY(i1, MUL(g, SUB(MAP(i0, X), i1_over_x(w, k))))
UNARY(i1e, MUL(g, SUB(SUB(MAP(i0e, X), MUL(MAP(sign, X), k)), i1_over_x(w, k))))

/* x P(x) has derivative P(x) + x p(x), with P and p the normal distribution and its density. */
bool df_grad_gelu(df_grad *w, uint32_t k, uint32_t g)
{
    const uint32_t x = X, half = NUM(0.5);
    const uint32_t p = MUL(NUM(ONE_OVER_SQRT_2PI), MAP(exp, MUL(half, minus_square(w, x))));
    const uint32_t tail = MAP(erfc, MUL(NUM(-0.70710678118654752440), x));
    return df_grad_give(w, x, MUL(g, ADD(MUL(half, tail), MUL(x, p))));
}

/* x s has derivative s (1 + x (1 - s)), s = sigmoid(x). */
bool df_grad_silu(df_grad *w, uint32_t k, uint32_t g)
{
    const uint32_t x = X, s = MAP(sigmoid, x), one = INT(1);
    return df_grad_give(w, x, MUL(g, MUL(s, ADD(one, MUL(x, SUB(one, s))))));
}

/* A NaN is not at most 0, so it was passed on and gets the gradient. */
bool df_grad_relu(df_grad *w, uint32_t k, uint32_t g)
{
    const uint32_t zero = INT(0);
    return df_grad_give(w, X, where(w, df_grad_map2(w, DF_OP_le, X, zero), zero, g));
}

bool df_grad_powi(df_grad *w, uint32_t k, uint32_t g)
{
    deft_ctx *const cx = w->cx;
    const uint32_t n = cx->rec.nodes[k].attr, x = X;
    if (n == 0) return df_grad_zero(w, k, g);
    if (n == 1) return df_grad_give(w, x, g);
    const uint32_t less =
        n == 2 ? x
               : df_append(cx, DF_OP_powi, df_dtype_at(cx, x), n - 1, &x, NULL, 0, NULL, w->site);
    return df_grad_give(w, x, MUL(g, MUL(INT((int32_t)n), less)));
}

/* The gradient of a cast between floats. A cast to an integer and back is a constant. */
bool df_grad_cast(df_grad *w, uint32_t k, uint32_t g)
{
    return df_grad_give(w, X, g);
}

/* ---- two and three operands ---- */

/* Defines the rule of an op with two operands. Each gradient is recorded only when its
 * operand is active. */
#define BINARY(name, for_x, for_y)                                                                 \
    bool df_grad_##name(df_grad *w, uint32_t k, uint32_t g)                                        \
    {                                                                                              \
        const uint32_t x = X, y = Y;                                                               \
        return (!df_grad_is_active(w, x) || df_grad_give(w, x, for_x)) &&                          \
               (!df_grad_is_active(w, y) || df_grad_give(w, y, for_y));                            \
    }

BINARY(add, g, g)
BINARY(sub, g, NEG(g))
BINARY(mul, MUL(g, y), MUL(g, x))
BINARY(div, DIV(g, y), NEG(DIV(MUL(g, k), y)))
BINARY(remainder, g, NEG(MUL(g, MAP(floor, DIV(x, y)))))
BINARY(fmod, g, NEG(MUL(g, MAP(trunc, DIV(x, y)))))

/* g / (x^2 + y^2) */
static uint32_t over_squares(df_grad *w, uint32_t g, uint32_t x, uint32_t y)
{
    return DIV(g, ADD(MUL(x, x), MUL(y, y)));
}

BINARY(atan2, MUL(over_squares(w, g, x, y), y), NEG(MUL(over_squares(w, g, x, y), x)))

/* x / r, and 0 where r is 0. */
static uint32_t share_of(df_grad *w, uint32_t x, uint32_t r)
{
    const uint32_t zero = df_cst(w->cx, df_dtype_at(w->cx, r), 0, w->site);
    return where(w, df_grad_map2(w, DF_OP_eq, r, zero), zero, DIV(x, r));
}

BINARY(hypot, MUL(g, share_of(w, x, k)), MUL(g, share_of(w, y, k)))

/* exp(x - log(exp(x) + exp(y))), as a function that does not overflow; 1/2 where x equals y, also
 * where both are infinite. */
static uint32_t weight_of(df_grad *w, uint32_t x, uint32_t y)
{
    const uint32_t zero = df_cst(w->cx, df_dtype_at(w->cx, x), 0, w->site);
    const uint32_t is_equal = df_grad_map2(w, DF_OP_eq, x, y);
    return MAP(sigmoid, where(w, is_equal, zero, SUB(x, y)));
}

BINARY(logaddexp, MUL(g, weight_of(w, x, y)), MUL(g, weight_of(w, y, x)))

/* A step to a neighbour is constant almost everywhere, so that the result follows x. */
BINARY(nextafter, g, df_grad_zeros(w->cx, y, w->site))

/* copysign: |x| with the sign of y increases with x where the signs of x and y are equal,
 * else it decreases. */
BINARY(copysign, MUL(g, MUL(MAP(sign, x), df_grad_map2(w, DF_OP_copysign, INT(1), y))),
       df_grad_zeros(w->cx, y, w->site))

/* y x^(y-1), and 0 where y is 0, also at x = 0. */
static uint32_t power_by_base(df_grad *w, uint32_t k, uint32_t x, uint32_t y)
{
    const uint32_t zero = INT(0);
    const uint32_t slope = MUL(y, df_grad_map2(w, DF_OP_pow, x, SUB(y, INT(1))));
    return where(w, df_grad_map2(w, DF_OP_eq, y, zero), zero, slope);
}

/* x^y log(x), and 0 where x is 0 and y is not negative. */
static uint32_t power_by_exponent(df_grad *w, uint32_t k, uint32_t x, uint32_t y)
{
    const uint32_t zero = INT(0);
    const uint32_t flat = df_grad_map2(w, DF_OP_bitwise_and, df_grad_map2(w, DF_OP_eq, x, zero),
                                       df_grad_map2(w, DF_OP_le, zero, y));
    return where(w, flat, zero, MUL(k, MAP(log, x)));
}

BINARY(pow, MUL(g, power_by_base(w, k, x, y)), MUL(g, power_by_exponent(w, k, x, y)))

/* Whether a and b are equal. All NaNs count as equal. */
static uint32_t is_same(df_grad *w, uint32_t a, uint32_t b)
{
    const uint32_t are_nan = df_grad_map2(w, DF_OP_bitwise_and, MAP(isnan, a), MAP(isnan, b));
    return df_grad_map2(w, DF_OP_bitwise_or, df_grad_map2(w, DF_OP_eq, a, b), are_nan);
}

/* The operand that was taken gets the gradient. A NaN is taken before any number. Equal
 * operands, which two NaNs are, get half each. */
static uint32_t taken(df_grad *w, uint32_t k, uint32_t g, uint32_t mine, uint32_t other)
{
    const uint32_t zero = INT(0);
    const uint32_t part = where(w, is_same(w, mine, other), MUL(g, NUM(0.5)), g);
    return where(w, is_same(w, mine, k), part, zero);
}

BINARY(extremum, taken(w, k, g, x, y), taken(w, k, g, y, x))

bool df_grad_fma(df_grad *w, uint32_t k, uint32_t g)
{
    const uint32_t x = X, y = Y;
    return (!df_grad_is_active(w, x) || df_grad_give(w, x, MUL(g, y))) &&
           (!df_grad_is_active(w, y) || df_grad_give(w, y, MUL(g, x))) &&
           df_grad_give(w, df_grad_src(w, k, 2), g);
}

bool df_grad_where(df_grad *w, uint32_t k, uint32_t g)
{
    const uint32_t c = X, zero = INT(0);
    return df_grad_give(w, df_grad_src(w, k, 1), where(w, c, g, zero)) &&
           df_grad_give(w, df_grad_src(w, k, 2), where(w, c, zero, g));
}

/* What an opaque operator computes is not known. A call with a gradient of its own has an
 * annotation, and the walk stops there. */
bool df_grad_call(df_grad *w, uint32_t k, uint32_t g)
{
    deft_ctx *const cx = w->cx;
    (void)g;
    while (cx->rec.nodes[k].op == DF_OP_result) k = df_grad_src(w, k, 0);
    const df_opaque *const x = df_opaques_at(&cx->rt->opaques, cx->rec.nodes[k].attr);
    df_error(cx, DEFT_E_STATE,
             "%s: a gradient passes through %s, an opaque operator, and no gradient of it is known "
             "here",
             w->what, x ? x->name : "a call");
    return false;
}
