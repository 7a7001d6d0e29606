/* SPDX-License-Identifier: Apache-2.0
 *
 * Simplification. One walk up the nodes rewrites, folds and shares them. One walk down marks the
 * nodes that roots need. A last walk up closes the gaps. Each node is visited a bounded number of
 * times, and a hash table finds equal nodes, so the cost is linear. Nothing recurses.
 *
 * What a rule may depend on. The result is used for every run of the same key. So a rule sees
 * operators, dtypes, ranks, attributes and operands, never extents or arguments. Two consequences:
 *   - Some nodes have extents of their own: constants of rank above 0, iota, expand, reshape,
 *     slice, diagonal. They may look equal without being equal, so they are never shared. Nor are
 *     num and random, whose arguments differ from run to run, nor inputs. The exception are views,
 *     when the caller asks for it: they are shared if they show one place in this run, which the
 *     caller guards (place.h).
 *   - x op c may become x only if c cannot broadcast x to something larger: c has rank 0.
 *
 * Why every strict rule keeps every bit. All NaNs are equal by contract, so a rule may change the
 * sign and the payload of a NaN. A rule must not change the sign of a zero.
 *   x + (-0), x - (+0)   are x for all x: -0 + -0 = -0 and -0 - +0 = -0, while x + (+0) turns -0
 *                        into +0 and is left to fast mode.
 *   x * 1, x / 1         are x, NaN included.
 *   x / 2^k = x * 2^-k   both round the same real number once; only where 2^-k is a normal f32 that
 *                        the dtype holds.
 *   x + -y = x - y       IEEE defines one by the other; likewise -x + y = y - x, x - -y = x + y.
 *   -x * -y, -x / -y     signs multiply, also those of zeros and infinities.
 *   abs(-x), square(-x), square(abs x)
 *                        the magnitude decides; integers are taken modulo 2^n, where (-x)^2 = x^2.
 *   max(x, -inf), min(x, +inf), max(x, x)
 *                        hold in each case of the definition (a > b || a != a) ? a : b.
 *   floor(round(x)) ...  an integral value, an infinity, NaN and -0 are fixed points of all four.
 *   cast(cast(x))        only where the first step loses nothing; not from integers through floats
 *                        to integers of another dtype, since one wraps and the other saturates.
 *   reduce over no axes  joins one element with the identity, which was chosen to change nothing
 *                        (-0 for float sums); not for argmin and argmax.
 *
 * Folding computes with the floats of this machine. Their rounding mode and their flushing of
 * denormals belong to the caller. So a fold is kept only if the result is exact and normal, where
 * neither of them matters. Reassociation, distribution, x - x = 0 and x * 0 = 0 are never done:
 * NaN and infinities forbid them, and the zeros would need extents.
 *
 * Fast mode adds: x + 0, x - (-0); x / c = x * (1 / c) in f32; sqrt(square x) = abs x.
 *
 * Places of updates. The third operand of an update names a place by being a view of the first
 * operand. A rule that replaces the operand of a view would break that chain. So the rules for
 * views never look through a value that some update replaces.
 *
 * Why this file is long: all rules in one place, each beside the reason why it keeps every bit.
 */
#include "ops/shape.h"
#include "trace/forward.h"

#include <math.h>
#include <string.h>

/* Bound on the rules that are applied to one node, one after the other. */
#define MOST_REWRITES 8

typedef struct simplifier {
    const df_trace *in;
    df_trace *t;          /* the copy, grown in order */
    uint32_t *from;       /* per node of t: the node of in that it computes */
    uint32_t *map;        /* per node of in: its node of t */
    uint32_t *table;      /* hash table with open addressing: node of t + 1; 0 is free */
    uint8_t *is_updated;  /* per node of in: it is the first operand of an update */
    uint8_t *is_target;   /* the same per node of t */
    uint8_t *is_live;     /* per node of t: a root needs it; NODE_* */
    uint32_t *moved;      /* per node of t: its index after the gaps are closed */
    uint32_t mask;        /* number of cells of table - 1 */
    df_place_table views; /* used only when places is not NULL */
    df_forward forward;   /* substitutes for views that updates read */
    uint32_t *read;       /* per node of in where forward.of[].is_read: its substitute in t */
    df_places *places;    /* NULL when no views are shared for the places that they show */
    uint32_t passes;
    bool fast;
} simplifier;

/* Why a node is needed. NODE_listed: only as a place in the list of a loop, which the end of the
 * list or a final names. A stack is left out then. Other nodes are live. */
enum { NODE_live = 1, NODE_listed = 2 };

/* The effect of a rule on a node. */
typedef enum result {
    RESULT_none,
    RESULT_changed, /* the node was rewritten, and further rules may apply */
    RESULT_found    /* an existing node of t replaces the node */
} result;

static const df_node *simplify_node_at(const simplifier *s, df_ref r)
{
    return &s->t->nodes[r.i];
}

static bool is_op(const simplifier *s, df_ref r, df_op op)
{
    return simplify_node_at(s, r)->op == op;
}

/* ---- constants ---- */

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static bool is_scalar_constant(const simplifier *s, df_ref r)
{
    return is_op(s, r, DF_OP_cst) && simplify_node_at(s, r)->rank == 0;
}

/* Whether v is zero or a normal f32, so that rounding mode and denormal flushing do not matter. */
static bool simplify_is_plain_value(double v)
{
    return v == 0 || (fabs(v) >= 0x1p-126 && fabs(v) <= 0x1.fffffep+127);
}

/* ---- emitting ---- */

static bool extents_are_free(const df_node *n)
{
    /* Those of a call follow from its inputs, by a rule that the trace does not have. */
    if (n->op == DF_OP_pass || n->op == DF_OP_call || n->op == DF_OP_result) return false;
    return df_shape_takes_extents((df_op)n->op) &&
           !((n->op == DF_OP_cst || n->op == DF_OP_count) && n->rank == 0);
}

/* Control nodes are never shared, except for finals: two loops, or two states of a loop, may begin
 * alike and differ later. */
static bool is_never_shared(const df_node *n)
{
    const bool is_control = df_op_infos[n->op].cls == DF_CLASS_control;
    return extents_are_free(n) || (is_control && n->op != DF_OP_final);
}

static df_node simplify_sort_operands(df_node n)
{
    if ((df_op_infos[n.op].algebra & DF_COMMUTES) && n.src[0].i > n.src[1].i) {
        const df_ref a = n.src[0];
        n.src[0] = n.src[1];
        n.src[1] = a;
    }
    return n;
}

static uint32_t simplify_append_node(simplifier *s, const df_node *n, uint32_t from)
{
    df_trace *const t = s->t;
    const uint32_t k = t->n_nodes++;
    t->nodes[k] = *n;
    t->shape[k] = s->in->shape[from];
    if (t->site) t->site[k] = s->in->site[from];
    s->from[k] = from;
    return k;
}

/* Returns the node of t that equals n, or appends n. */
static uint32_t simplify_emit_node(simplifier *s, const df_node *n, uint32_t from)
{
    if (!(s->passes & DF_PASS_CSE) || is_never_shared(n)) return simplify_append_node(s, n, from);
    const df_node wanted = simplify_sort_operands(*n);
    uint64_t h = df_mix(wanted.op, (uint64_t)wanted.dtype << 8 | wanted.rank);
    h = df_mix(h, (uint64_t)wanted.src[0].i << 32 | wanted.src[1].i);
    h = df_mix(h, (uint64_t)wanted.src[2].i << 32 | wanted.attr);
    for (uint32_t i = (uint32_t)h & s->mask;; i = (i + 1) & s->mask) {
        if (s->table[i] == 0) {
            s->table[i] = s->t->n_nodes + 1;
            return simplify_append_node(s, n, from);
        }
        const df_node found = simplify_sort_operands(s->t->nodes[s->table[i] - 1]);
        if (memcmp(&found, &wanted, sizeof found) == 0) return s->table[i] - 1;
    }
}

/* A constant node of rank 0. */
static df_node simplify_constant_node(deft_dtype t, uint32_t attr)
{
    return (df_node){ .op = DF_OP_cst,
                      .dtype = (uint8_t)t,
                      .src = { DF_NO_REF, DF_NO_REF, DF_NO_REF },
                      .attr = attr };
}

/* ---- folding ---- */

/* Makes *out the constant v of dtype t. Returns false when the attribute of a constant cannot hold
 * v exactly. */
static bool constant_of(double v, deft_dtype t, df_node *out)
{
    if (df_is_float(t)) {
        if (!simplify_is_plain_value(v) || (double)(float)v != v || !df_half_holds(t, (float)v))
            return false;
        *out = simplify_constant_node(t, bits_of((float)v));
        return true;
    }
    /* an attribute holds 32 bits */
    if (!(v >= INT32_MIN && v <= INT32_MAX && df_int_holds(t, (int64_t)v))) return false;
    *out = simplify_constant_node(t, (uint32_t)(int32_t)v);
    return true;
}

/* op on constants, in double. Returns false for an op that is not listed. */
static bool evaluate(df_op op, deft_dtype t, deft_dtype out, const double v[3], double *r)
{
    const double a = v[0], b = v[1];
    const bool whole = !df_is_float(t);
    switch ((int)op) {
    case DF_OP_neg: *r = whole ? 0 - a : -a; return true;
    case DF_OP_abs: *r = fabs(a); return true;
    case DF_OP_square: *r = a * a; return true;
    case DF_OP_relu: *r = a > 0 ? a : 0; return true;
    case DF_OP_sqrt: *r = sqrt(a); return true;
    case DF_OP_reciprocal: *r = 1 / a; return true;
    case DF_OP_add: *r = a + b; return true;
    case DF_OP_sub: *r = a - b; return true;
    case DF_OP_mul: *r = a * b; return true;
    case DF_OP_div: *r = a / b; return true;
    case DF_OP_minimum: *r = a < b ? a : b; return true;
    case DF_OP_maximum: *r = a > b ? a : b; return true;
    case DF_OP_eq: *r = a == b; return true;
    case DF_OP_ne: *r = a != b; return true;
    case DF_OP_lt: *r = a < b; return true;
    case DF_OP_le: *r = a <= b; return true;
    case DF_OP_logical_not: *r = a == 0; return true;
    case DF_OP_where: *r = a != 0 ? b : v[2]; return true;
    case DF_OP_cast:
        if (!df_is_float(out) && out != DEFT_BOOL && trunc(a) != a) return false;
        *r = out == DEFT_BOOL ? a != 0 : a;
        return true;
    }
    return false;
}

/* Computes op on constants in double. Returns false when the result would be rounded, or when op
 * is not listed. Integers of 32 bits are exact in double, and so are those of their sums and
 * products that constant_of keeps. Products of two f32 are exact in double. An inexact quotient or
 * root differs from every f32 by more than the precision of double, so constant_of refuses it. */
static bool simplify_compute_exact(df_op op, deft_dtype t, deft_dtype out, const double v[3],
                                   double *r)
{
    const double a = v[0], b = v[1];
    const bool whole = !df_is_float(t);
    if (!evaluate(op, t, out, v, r)) return false;
    if (op == DF_OP_add || op == DF_OP_sub) {
        /* The error of a sum, by Knuth's TwoSum; the sign of a zero follows the rounding mode. */
        const double y = op == DF_OP_add ? b : -b, z = *r - a;
        return (a - (*r - z)) + (y - z) == 0 && (whole || *r != 0);
    }
    return true;
}

static bool simplify_fold_constants(const simplifier *s, df_node *n)
{
    const uint32_t n_src = n->n_src;
    double v[3] = { 0, 0, 0 }, r = 0;
    if (n_src == 0 || !df_op_is_map((df_op)n->op)) return false;
    for (uint32_t i = 0; i < n_src; i++) {
        if (!is_scalar_constant(s, n->src[i])) return false;
        const df_node *const c = simplify_node_at(s, n->src[i]);
        v[i] = df_is_float((deft_dtype)c->dtype) ? (double)float_of(c->attr)
                                                 : (double)(int32_t)c->attr;
        if (!simplify_is_plain_value(v[i])) return false;
    }
    const deft_dtype t =
        (deft_dtype)simplify_node_at(s, n->src[n->op == DF_OP_where ? 1 : 0])->dtype;
    return simplify_compute_exact((df_op)n->op, t, (deft_dtype)n->dtype, v, &r) &&
           constant_of(r, (deft_dtype)n->dtype, n);
}

/* ---- rules: neutral operands ---- */

enum { LEFT = 1, RIGHT = 2, BOTH = 3 };
enum { ON_FLOATS = 1, ON_INTS = 2, ON_BOOL = 4, ON_NATURALS = 8, IN_FAST = 16 };

#define NEGATIVE_ZERO 0x80000000u
#define ONE 0x3f800000u
#define MINUS_INFINITY 0xff800000u
#define INFINITE 0x7f800000u
#define ALL_BITS 0 /* with ON_NATURALS: those of the dtype */

/* x op c = x, with c on the given side. */
static const struct neutral {
    uint8_t op, side, on;
    uint32_t attr;
} neutrals[] = {
    { DF_OP_add, BOTH, ON_FLOATS, NEGATIVE_ZERO },
    { DF_OP_add, BOTH, ON_FLOATS | IN_FAST, 0 },
    { DF_OP_add, BOTH, ON_INTS, 0 },
    { DF_OP_sub, RIGHT, ON_FLOATS, 0 },
    { DF_OP_sub, RIGHT, ON_FLOATS | IN_FAST, NEGATIVE_ZERO },
    { DF_OP_sub, RIGHT, ON_INTS, 0 },
    { DF_OP_mul, BOTH, ON_FLOATS, ONE },
    { DF_OP_mul, BOTH, ON_INTS, 1 },
    { DF_OP_div, RIGHT, ON_FLOATS, ONE },
    { DF_OP_floor_div, RIGHT, ON_INTS, 1 },
    { DF_OP_maximum, BOTH, ON_FLOATS, MINUS_INFINITY },
    { DF_OP_minimum, BOTH, ON_FLOATS, INFINITE },
    { DF_OP_bitwise_and, BOTH, ON_BOOL, 1 },
    { DF_OP_bitwise_and, BOTH, ON_NATURALS, ALL_BITS },
    { DF_OP_bitwise_and, BOTH, ON_INTS, (uint32_t)-1 },
    { DF_OP_bitwise_or, BOTH, ON_INTS | ON_BOOL, 0 },
    { DF_OP_bitwise_xor, BOTH, ON_INTS | ON_BOOL, 0 },
    { DF_OP_shift_left, RIGHT, ON_INTS, 0 },
    { DF_OP_shift_right, RIGHT, ON_INTS, 0 },
};

static uint32_t simplify_dtype_kinds(deft_dtype t)
{
    switch (df_kind_of(t)) {
    case DF_KIND_boolean: return ON_BOOL;
    case DF_KIND_natural: return ON_NATURALS | ON_INTS;
    case DF_KIND_integer: return ON_INTS;
    case DF_KIND_real:
    case DF_KIND_half: return ON_FLOATS;
    case DF_KIND_complex:
    case DF_KIND_coded:
    case DF_KIND_packed: break; /* of handles alone */
    }
    df_unreachable();
}

/* The constant as an attribute. All bits of a natural dtype are its greatest value. */
static uint32_t neutral_attr(const struct neutral *r, deft_dtype t)
{
    return r->on & ON_NATURALS ? (uint32_t)df_all_bits(t) : r->attr;
}

static result drop_neutral(const simplifier *s, df_node *n, df_ref *found)
{
    for (unsigned side = 0; side < 2; side++) {
        if (!is_scalar_constant(s, n->src[side])) continue;
        const uint32_t attr = simplify_node_at(s, n->src[side])->attr;
        for (size_t i = 0; i < DF_LEN(neutrals); i++) {
            const struct neutral *const r = &neutrals[i];
            if (r->op != n->op || !(r->side >> side & 1)) continue;
            if (!(r->on & simplify_dtype_kinds((deft_dtype)n->dtype))) continue;
            if (attr != neutral_attr(r, (deft_dtype)n->dtype)) continue;
            if ((r->on & IN_FAST) && !s->fast) continue;
            *found = n->src[1 - side];
            return RESULT_found;
        }
    }
    return RESULT_none;
}

/* ---- rules: unary over unary ---- */

/* outer(inner(x)) = outer(x) */
static const struct absorbed {
    uint8_t outer, inner;
} absorbed[] = {
    { DF_OP_abs, DF_OP_neg },
    { DF_OP_square, DF_OP_neg },
    { DF_OP_square, DF_OP_abs },
};

static bool gives_integral(const df_node *n)
{
    return n->op == DF_OP_floor || n->op == DF_OP_ceil || n->op == DF_OP_trunc ||
           n->op == DF_OP_round;
}

/* Whether b holds each value of a. */
static bool widens(deft_dtype a, deft_dtype b)
{
    if (a == DEFT_BOOL || a == b) return true;
    if (b == DEFT_BOOL) return false;
    const bool to_float = df_is_float(b);
    if (df_is_float(a))
        return to_float && df_fraction_of(b) >= df_fraction_of(a) &&
               df_infinity_bits(b) >> df_fraction_of(b) >= df_infinity_bits(a) >> df_fraction_of(a);
    const uint32_t digits = df_bits_of(a) - df_is_signed(a);
    if (to_float) return df_fraction_of(b) + 1 >= digits;
    return df_bits_of(b) - df_is_signed(b) >= digits && (df_is_signed(b) || !df_is_signed(a));
}

static result rewrite_cast(const simplifier *s, df_node *n, df_ref *found)
{
    const df_node *const inner = simplify_node_at(s, n->src[0]);
    const deft_dtype to = (deft_dtype)n->dtype, mid = (deft_dtype)inner->dtype;
    if (to == mid) {
        *found = n->src[0];
        return RESULT_found;
    }
    if (inner->op != DF_OP_cast) return RESULT_none;
    const deft_dtype is = (deft_dtype)simplify_node_at(s, inner->src[0])->dtype;
    if (!widens(is, mid)) return RESULT_none;
    if (to != is && is != DEFT_BOOL && !(df_is_int(is) && df_is_int(mid))) return RESULT_none;
    n->src[0] = inner->src[0];
    return RESULT_changed;
}

static result rewrite_unary(const simplifier *s, df_node *n, df_ref *found)
{
    if (n->op == DF_OP_cast) return rewrite_cast(s, n, found);
    const df_node *const inner = simplify_node_at(s, n->src[0]);
    const uint8_t algebra = df_op_infos[n->op].algebra;
    if (n->op == DF_OP_powi && (int32_t)n->attr == 1) {
        *found = n->src[0];
        return RESULT_found;
    }
    if (inner->op == n->op && (algebra & DF_INVOLUTES)) {
        *found = inner->src[0];
        return RESULT_found;
    }
    if ((inner->op == n->op && (algebra & DF_IDEMPOTENT)) ||
        (gives_integral(n) && gives_integral(inner))) {
        *found = n->src[0];
        return RESULT_found;
    }
    for (size_t i = 0; i < DF_LEN(absorbed); i++) {
        if (absorbed[i].outer != n->op || absorbed[i].inner != inner->op) continue;
        if (n->op == DF_OP_abs && df_is_unsigned((deft_dtype)n->dtype))
            continue; /* -x wraps there */
        n->src[0] = inner->src[0];
        return RESULT_changed;
    }
    if (s->fast && n->op == DF_OP_sqrt && inner->op == DF_OP_square) {
        n->op = DF_OP_abs;
        n->src[0] = inner->src[0];
        return RESULT_changed;
    }
    return RESULT_none;
}

/* ---- rules: binary and ternary ---- */

static void set(df_node *n, df_op op, df_ref a, df_ref b)
{
    n->op = (uint8_t)op;
    n->src[0] = a;
    n->src[1] = b;
}

static result move_sign(const simplifier *s, df_node *n)
{
    const df_ref a = n->src[0], b = n->src[1];
    const bool minus_a = is_op(s, a, DF_OP_neg), minus_b = is_op(s, b, DF_OP_neg);
    const df_ref x = minus_a ? simplify_node_at(s, a)->src[0] : a,
                 y = minus_b ? simplify_node_at(s, b)->src[0] : b;
    if (n->op == DF_OP_add && minus_b)
        set(n, DF_OP_sub, a, y);
    else if (n->op == DF_OP_add && minus_a)
        set(n, DF_OP_sub, b, x);
    else if (n->op == DF_OP_sub && minus_b)
        set(n, DF_OP_add, a, y);
    else if ((n->op == DF_OP_mul || n->op == DF_OP_div) && minus_a && minus_b)
        set(n, (df_op)n->op, x, y);
    else
        return RESULT_none;
    return RESULT_changed;
}

/* x / c as x * (1 / c). */
static result divide_by_multiplying(simplifier *s, df_node *n)
{
    if (n->op != DF_OP_div || !is_scalar_constant(s, n->src[1])) return RESULT_none;
    const float c = float_of(simplify_node_at(s, n->src[1])->attr), inverse = 1 / c;
    if (!simplify_is_plain_value(c) || c == 0 || !simplify_is_plain_value(inverse) || inverse == 0)
        return RESULT_none;
    if (!df_half_holds((deft_dtype)n->dtype, inverse)) return RESULT_none;
    const bool exact = frexp(fabs((double)c), &(int){ 0 }) == 0.5;
    if (!exact && !(s->fast && n->dtype == DEFT_F32)) return RESULT_none;
    const df_node k = simplify_constant_node((deft_dtype)n->dtype, bits_of(inverse));
    const df_ref r = { simplify_emit_node(s, &k, s->from[n->src[1].i]) };
    set(n, DF_OP_mul, n->src[0], r);
    return RESULT_changed;
}

static result rewrite_binary(simplifier *s, df_node *n, df_ref *found)
{
    const bool selects = n->op == DF_OP_maximum || n->op == DF_OP_minimum ||
                         n->op == DF_OP_bitwise_and || n->op == DF_OP_bitwise_or;
    if (selects && n->src[0].i == n->src[1].i) {
        *found = n->src[0];
        return RESULT_found;
    }
    result r = drop_neutral(s, n, found);
    if (r == RESULT_none) r = move_sign(s, n);
    if (r == RESULT_none) r = divide_by_multiplying(s, n);
    return r;
}

static result rewrite_where(const simplifier *s, df_node *n, df_ref *found)
{
    const df_ref c = n->src[0], a = n->src[1], b = n->src[2];
    if (is_op(s, c, DF_OP_logical_not)) {
        n->src[0] = simplify_node_at(s, c)->src[0];
        n->src[1] = b;
        n->src[2] = a;
        return RESULT_changed;
    }
    if (simplify_node_at(s, c)->rank != 0) return RESULT_none;
    if (a.i == b.i) {
        *found = a;
        return RESULT_found;
    }
    if (!is_op(s, c, DF_OP_cst)) return RESULT_none;
    const bool yes = simplify_node_at(s, c)->attr != 0;
    if (simplify_node_at(s, yes ? b : a)->rank != 0)
        return RESULT_none; /* it may broadcast the other */
    *found = yes ? a : b;
    return RESULT_found;
}

/* ---- rules: views and reductions ---- */

static bool is_identity(const df_node *n)
{
    if (n->op == DF_OP_squeeze || n->op == DF_OP_unsqueeze) return n->attr == 0;
    if (n->op != DF_OP_permute) return false;
    for (unsigned i = 0; i < n->rank; i++)
        if ((n->attr >> 4 * i & 15) != i) return false;
    return true;
}

static result rewrite_view(const simplifier *s, df_node *n, df_ref *found)
{
    if (is_identity(n)) {
        *found = n->src[0];
        return RESULT_found;
    }
    const df_node *const inner = simplify_node_at(s, n->src[0]);
    if (s->is_target[n->src[0].i]) return RESULT_none;
    if ((n->op == DF_OP_squeeze && inner->op == DF_OP_unsqueeze && n->attr == inner->attr) ||
        (n->op == DF_OP_unsqueeze && inner->op == DF_OP_squeeze && n->attr == inner->attr)) {
        *found = inner->src[0];
        return RESULT_found;
    }
    if (n->op != inner->op) return RESULT_none;
    if (n->op == DF_OP_permute) {
        uint32_t attr = 0;
        for (unsigned i = 0; i < n->rank; i++)
            attr |= (inner->attr >> 4 * (n->attr >> 4 * i & 15) & 15) << 4 * i;
        n->attr = attr;
    } else if (n->op != DF_OP_reshape && n->op != DF_OP_expand) {
        return RESULT_none;
    }
    n->src[0] = inner->src[0];
    return RESULT_changed;
}

static result rewrite_reduce(const df_node *n, df_ref *found)
{
    if ((n->attr & ~DF_REDUCE_KEEPDIMS) != 0) return RESULT_none;
    if (n->op == DF_OP_argmin || n->op == DF_OP_argmax) return RESULT_none;
    *found = n->src[0];
    return RESULT_found;
}

static result rewrite(simplifier *s, df_node *n, df_ref *found)
{
    switch ((df_op_class)df_op_infos[n->op].cls) {
    case DF_CLASS_unary: return rewrite_unary(s, n, found);
    case DF_CLASS_binary: return rewrite_binary(s, n, found);
    case DF_CLASS_ternary: return n->op == DF_OP_where ? rewrite_where(s, n, found) : RESULT_none;
    case DF_CLASS_view: return rewrite_view(s, n, found);
    case DF_CLASS_reduce: return rewrite_reduce(n, found);
    case DF_CLASS_leaf:
    case DF_CLASS_scan:
    case DF_CLASS_index:
    case DF_CLASS_update:
    case DF_CLASS_contract:
    case DF_CLASS_routine:
    case DF_CLASS_control: return RESULT_none;
    }
    df_unreachable();
}

/* ---- the walks ---- */

/* The node of t that a member of a run of updates reads in place of node k of in: forward.h. */
static uint32_t as_read(const simplifier *s, uint32_t k)
{
    return s->forward.of && s->forward.of[k].is_read ? s->read[k] : s->map[k];
}

static uint32_t forwarded(simplifier *s, uint32_t k)
{
    const df_forward_of *const f = &s->forward.of[k];
    df_node n = s->in->nodes[k];
    if (f->value != DF_NONE) {
        df_assert(s->in->nodes[f->value].dtype == n.dtype);
        return as_read(s, f->value);
    }
    n.src[0].i = f->base != DF_NONE ? s->map[f->base] : as_read(s, n.src[0].i);
    return simplify_emit_node(s, &n, k);
}

/* Builds the place of update u again, on the version `base` of the array. Both are nodes of `in`;
 * the result is a node of t. */
static uint32_t simplify_rebuild_place(simplifier *s, uint32_t u, uint32_t base)
{
    const df_node *const x = &s->in->nodes[u];
    uint32_t view[DF_PLACE_MOST_VIEWS], n = 0, to = s->map[base];
    for (uint32_t v = x->src[2].i; v != x->src[0].i; v = s->in->nodes[v].src[0].i) view[n++] = v;
    while (n-- > 0) {
        df_node v = s->in->nodes[view[n]];
        const uint32_t args = s->forward.of[view[n]].args;
        if (args != DF_NONE) v.arg = s->in->nodes[args].arg;
        v.src[0].i = to;
        to = simplify_emit_node(s, &v, view[n]);
    }
    return to;
}

/* The node of t that node k of `in` gets as its operand i. */
static uint32_t simplify_map_operand(simplifier *s, uint32_t k, uint32_t i)
{
    const df_node *const x = &s->in->nodes[k];
    const uint32_t o = x->src[i].i;
    const df_forward_of *const f = s->forward.of ? &s->forward.of[k] : NULL;
    if (f && f->reads_back >> i & 1)
        return simplify_rebuild_place(s, s->forward.of[o].written, f->back);
    return f && f->is_member && (x->op != DF_OP_update || i == 1) ? as_read(s, o) : s->map[o];
}

/* Makes a final of rows name the first stack of its loop with the same value. All are nodes of
 * t. */
static void share_rows(const simplifier *s, df_node *final)
{
    const df_node *const rows = simplify_node_at(s, final->src[0]);
    if (rows->op != DF_OP_stack) return;
    for (df_ref k = final->src[1]; simplify_node_at(s, k)->op == DF_OP_stack;
         k = simplify_node_at(s, k)->src[1])
        if (simplify_node_at(s, k)->src[0].i == rows->src[0].i) final->src[0] = k;
}

/* Returns the node of t that computes node k of in. */
static uint32_t simplify_node(simplifier *s, uint32_t k)
{
    df_node n = s->in->nodes[k];
    if (s->places && extents_are_free(&n) && df_op_infos[n.op].cls == DF_CLASS_view) {
        const uint32_t same = df_place_find(&s->views, k, s->map);
        if (same != DF_NONE) return same;
    }
    const df_forward_of *const f = s->forward.of ? &s->forward.of[k] : NULL;
    for (uint32_t i = 0; i < n.n_src; i++) n.src[i].i = simplify_map_operand(s, k, i);
    if (f && f->args != DF_NONE) n.arg = s->in->nodes[f->args].arg;
    if (s->passes & DF_PASS_CSE && n.op == DF_OP_final) share_rows(s, &n);
    if (s->passes & DF_PASS_ALGEBRA) {
        for (unsigned i = 0; i < MOST_REWRITES; i++) {
            df_ref found = DF_NO_REF;
            const result r = rewrite(s, &n, &found);
            if (r == RESULT_none) break;
            if (r == RESULT_found) {
                df_assert(simplify_node_at(s, found)->rank == s->in->nodes[k].rank);
                df_assert(simplify_node_at(s, found)->dtype == s->in->nodes[k].dtype);
                return found.i;
            }
        }
    }
    if (s->passes & DF_PASS_FOLD) (void)simplify_fold_constants(s, &n);
    return simplify_emit_node(s, &n, k);
}

static void walk_up(simplifier *s)
{
    const df_trace *const in = s->in;
    for (uint32_t k = 0; k < in->n_nodes; k++) {
        const uint32_t before = s->t->n_nodes;
        s->map[k] = simplify_node(s, k);
        s->is_target[s->map[k]] |= s->is_updated[k];
        if (s->places && s->map[k] == before && df_op_infos[in->nodes[k].op].cls == DF_CLASS_view)
            df_place_add(&s->views, k, before, s->map);
        if (s->forward.of && s->forward.of[k].is_read) s->read[k] = forwarded(s, k);
    }
    for (uint32_t i = 0; i < in->n_roots; i++) s->t->roots[i].node = s->map[in->roots[i].node];
}

/* Marks every input and all nodes that roots need. Rows of a loop that no final reads are left out
 * of the list of the loop, though the nodes after them in the list name them. */
static void mark_live(simplifier *s)
{
    const df_trace *const t = s->t;
    for (uint32_t i = 0; i < t->n_roots; i++) s->is_live[t->roots[i].node] = NODE_live;
    for (uint32_t k = t->n_nodes; k-- > 0;) {
        const df_node *const n = &t->nodes[k];
        uint8_t *const is = &s->is_live[k];
        if (n->op == DF_OP_input) *is = NODE_live;
        if (n->op == DF_OP_stack && *is == NODE_listed) {
            s->is_live[n->src[1].i] |= NODE_listed;
            continue;
        }
        if (!*is) continue;
        const bool names_list = n->op == DF_OP_final || n->op == DF_OP_stack || n->op == DF_OP_next;
        for (uint32_t i = 0; i < n->n_src; i++)
            s->is_live[n->src[i].i] |= names_list && i + 1 == n->n_src ? NODE_listed : NODE_live;
    }
}

/* Whether node n shows the elements of its first operand in the order of its last axis. */
static bool is_gather_in_order(const df_trace *t, const df_node *n)
{
    const bool gathers = n->op == DF_OP_gather && n->attr + 1u == n->rank;
    if (!gathers && (n->op != DF_OP_take || n->rank != 1)) return false;
    const df_node *const index = &t->nodes[n->src[1].i];
    return index->op == DF_OP_argsort && index->src[0].i == n->src[0].i;
}

/* An order that is read only to gather the very elements that it orders becomes a sort of these
 * elements, which need no indices. */
static void join_sorts(simplifier *s)
{
    df_trace *const t = s->t;
    uint32_t *const n_readers = s->moved;
    memset(n_readers, 0, t->n_nodes * sizeof *n_readers);
    for (uint32_t i = 0; i < t->n_roots; i++) n_readers[t->roots[i].node]++;
    for (uint32_t k = 0; k < t->n_nodes; k++)
        for (uint32_t i = 0; s->is_live[k] && i < t->nodes[k].n_src; i++)
            n_readers[t->nodes[k].src[i].i]++;
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        df_node *const n = &t->nodes[k];
        if (!s->is_live[k] || !is_gather_in_order(t, n)) continue;
        const uint32_t order = n->src[1].i;
        if (n_readers[order] != 1) continue;
        n->op = DF_OP_sort;
        n->attr = t->nodes[order].attr;
        n->n_src = 1;
        n->src[1] = DF_NO_REF;
        s->is_live[order] = 0;
    }
}

/* Removes all nodes that are not live. */
static void drop_dead(simplifier *s)
{
    df_trace *const t = s->t;
    const uint8_t *const is_live = s->is_live;
    uint32_t *const moved = s->moved;
    uint32_t n_live = 0;
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        if (!is_live[k]) continue;
        df_node n = t->nodes[k];
        if (n.op == DF_OP_stack && is_live[k] == NODE_listed) {
            moved[k] = moved[n.src[1].i]; /* the list goes on without it */
            continue;
        }
        for (uint32_t i = 0; i < n.n_src; i++) n.src[i].i = moved[n.src[i].i];
        moved[k] = n_live;
        t->nodes[n_live] = n;
        t->shape[n_live] = t->shape[k];
        if (t->site) t->site[n_live] = t->site[k];
        s->from[n_live++] = s->from[k];
    }
    t->n_nodes = n_live;
    for (uint32_t i = 0; i < t->n_roots; i++) t->roots[i].node = moved[t->roots[i].node];
}

/* Divides the memory that lives only during the pass: 2 n + cap + table words, then n + 2 cap
 * bytes. */
static void carve(simplifier *s, uint32_t *block, size_t n, size_t cap)
{
    s->map = block;
    s->read = s->map + n;
    s->moved = s->read + n;
    s->table = s->moved + cap;
    s->is_updated = (uint8_t *)(s->table + s->mask + 1);
    s->is_target = s->is_updated + n;
    s->is_live = s->is_target + cap;
}

/* Creates the copy and its arrays. Roots and inputs are copied, nodes are still missing. */
static deft_status simplify_begin(simplifier *s, df_diag *d, size_t cap, df_arena *arena)
{
    const df_trace *const in = s->in;
    df_trace *const t = df_arena_new(arena, df_trace, 1);
    const size_t bytes = cap * (sizeof *t->nodes + sizeof *t->shape + sizeof *s->from);
    if (!t) return df_fail_mem(d, "simplify", sizeof *t);
    *t = *in;
    t->arena = arena;
    t->n_nodes = 0;
    t->nodes = df_arena_alloc(arena, cap * sizeof *t->nodes, _Alignof(df_node));
    t->shape = df_arena_alloc(arena, cap * sizeof *t->shape, _Alignof(uint32_t));
    s->from = df_arena_alloc(arena, cap * sizeof *s->from, _Alignof(uint32_t));
    t->roots = df_arena_copy(arena, in->roots, in->n_roots * sizeof *t->roots, _Alignof(df_root));
    t->inputs =
        df_arena_copy(arena, in->inputs, in->n_inputs * sizeof *t->inputs, _Alignof(df_input));
    if (in->site) t->site = df_arena_alloc(arena, cap * sizeof *t->site, _Alignof(uintptr_t));
    if (!t->nodes || !t->shape || !s->from || !t->roots || !t->inputs || (in->site && !t->site))
        return df_fail_mem(d, "simplify", bytes);
    s->t = t;
    return DEFT_OK;
}

deft_status df_trace_simplify_now(df_diag *d, const df_trace *in, uint32_t passes,
                                  df_places *places, df_arena *arena, df_trace **out,
                                  uint32_t **from)
{
    simplifier s = { .in = in,
                     .places = passes & DF_PASS_CSE ? places : NULL,
                     .passes = passes,
                     .fast = (in->flags & DF_TRACE_FAST) != 0 };
    const size_t n = in->n_nodes;
    size_t cap = n, size = 0;
    uint32_t *block = NULL;
    deft_status st = DEFT_OK;
    if (s.places) TRY(df_forward_find(d, in, places, arena, &s.forward));
    /* A division may add one constant, and forwarding keeps a view beside its substitute. Nothing
     * else adds a node. */
    cap += s.forward.n_reads;
    for (size_t k = 0; k < n; k++) cap += in->nodes[k].op == DF_OP_div;
    s.mask = 15;
    while (s.mask < 2 * cap) s.mask = 2 * s.mask + 1;

    TRY(simplify_begin(&s, d, cap, arena));
    size = (2 * n + cap + s.mask + 1) * sizeof *block + n + 2 * cap;
    block = df_mem_zalloc(arena->mem, size);
    if (!block) TRY(df_fail_mem(d, "simplify", size));
    carve(&s, block, n, cap);
    df_place_find_updated(in, s.is_updated);
    if (s.places) TRY(df_place_table_init(d, &s.views, in, s.is_updated, places, arena));
    walk_up(&s);
    if (passes & DF_PASS_DCE) {
        mark_live(&s);
        if (passes & DF_PASS_ALGEBRA) join_sorts(&s);
        drop_dead(&s);
    }
    for (uint32_t k = 0; k < s.t->n_nodes; k++)
        if (s.t->nodes[k].op == DF_OP_input) s.t->inputs[s.t->nodes[k].attr].node = k;
    df_assert_slow(df_verify_passed(df_trace_verify(NULL, s.t)));
    *out = s.t;
    if (from) *from = s.from;
done:
    df_mem_free(arena->mem, block, size);
    return st;
}

deft_status df_trace_simplify(df_diag *d, const df_trace *in, uint32_t passes, df_arena *arena,
                              df_trace **out, uint32_t **from)
{
    return df_trace_simplify_now(d, in, passes, NULL, arena, out, from);
}

#undef NEGATIVE_ZERO
#undef ONE
#undef MINUS_INFINITY
#undef INFINITE
