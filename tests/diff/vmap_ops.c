/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_vmap of every op against a loop over the examples, bit for bit: each choice of mapped
 * operands, examples on the first axis and on the last, in one call and in one within another. Then
 * the same of gradients inside the function, and gradients of what comes out against sums of the
 * loop's. Interpreted with --quick, else compiled. The table is held against ops.def: an op with a
 * rule and no row here fails. --table prints a line for each row.
 *
 * The rows are f64. Each is run again in another dtype, complex ones too, that its functions take;
 * each round takes the next one.
 *
 * Why this file is long: a row for every op.
 */
#define DEFT_NO_GENERIC
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/faces.h"
#include "deft/deft.h"
#include "ops/op.h"
#include "../support/budget.h"
#include "../support/half_ref.h"
#include "../support/int_ref.h"
#include "../support/oracle.h"

enum { MAX_IN = 3, OUTER = 2, INNER = 3, MOST = OUTER * INNER, MAX_BYTES = 1 << 15 };

typedef deft_tensor *(*make_fn)(deft_ctx *cx, deft_tensor *const *x);

typedef struct operand {
    deft_dtype dtype;
    deft_shape shape;
    double low, high; /* integers: both may be taken */
} operand;

typedef struct row {
    const char *op, *what; /* op: all that it is a test of */
    make_fn f;
    int n_in;
    operand in[MAX_IN];
} row;

static deft_runtime *rt;
static deft_ctx *cx;
static uint64_t state;
static long passed, failed;

/* ---- one row ---- */

/* How the operands are mapped: bit i, by the outer and by the inner of two calls. */
typedef struct way {
    unsigned outer, inner;
    bool last; /* examples stand on the last axis, of operands and results */
} way;

typedef struct trial {
    const row *r;
    way w;
    bool gradient; /* of f, with respect to its float operands, instead of f */
    char *data[MAX_IN];
} trial;

static double uniform(double low, double high)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(state >> 11) * 0x1p-53;
}

static void check(deft_status st, const row *r)
{
    if (st == DEFT_OK) return;
    printf("%s, %s: %s\n", r->op, r->what, deft_message(cx));
    exit(1);
}

static int64_t numel(const deft_shape *s)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < s->rank; i++) n *= s->dim[i];
    return n;
}

static bool is_complex(deft_dtype t)
{
    return t == DEFT_C64 || t == DEFT_C128;
}

/* The dtype of the parts of t, and their number. */
static deft_dtype part_dtype(deft_dtype t)
{
    return t == DEFT_C64 ? DEFT_F32 : t == DEFT_C128 ? DEFT_F64 : t;
}

static size_t n_parts(deft_dtype t)
{
    return is_complex(t) ? 2 : 1;
}

static bool is_float(deft_dtype t)
{
    return t == DEFT_F32 || t == DEFT_F64 || half_is(t);
}

static bool has_gradient(deft_dtype t)
{
    return is_float(t) || is_complex(t);
}

static size_t example_size(const operand *o)
{
    return (size_t)numel(&o->shape) * deft_dtype_size(o->dtype);
}

static void put(const operand *o, char *at, int64_t i)
{
    const double v = uniform(o->low, o->high + !is_float(part_dtype(o->dtype)));
    switch (o->dtype) {
    case DEFT_F32:
    case DEFT_C64: ((float *)(void *)at)[i] = (float)v; break;
    case DEFT_F64:
    case DEFT_C128: ((double *)(void *)at)[i] = v; break;
    case DEFT_F16:
    case DEFT_BF16:
        ((uint16_t *)(void *)at)[i] = half_bits(o->dtype, v);
        break;
    CASES_OF_CODES: /* storage dtypes have no operators */
        break;
    case DEFT_BOOL:
        at[i] = v >= 1;
        break;
    INT_REF_CASES:
        int_ref_put(o->dtype, at, (size_t)i, (int64_t)floor(v));
        break;
    }
}

static bool outer_maps(const trial *t, int i)
{
    return t->w.outer >> i & 1;
}

static bool inner_maps(const trial *t, int i)
{
    return t->w.inner >> i & 1;
}

/* Which of the examples in memory operand i takes for example (a, b). */
static int64_t example_of(const trial *t, int i, int a, int b)
{
    const int64_t n = inner_maps(t, i) ? INNER : 1;
    return (outer_maps(t, i) ? a * n : 0) + (inner_maps(t, i) ? b : 0);
}

static deft_tensor *single(const trial *t, int i, int a, int b)
{
    const operand *const o = &t->r->in[i];
    const size_t n = example_size(o);
    return deft_from(cx, o->shape, o->dtype, t->data[i] + (size_t)example_of(t, i, a, b) * n, n);
}

/* Axis 0 goes behind all others, or back. */
static deft_tensor *turned(deft_tensor *x, bool back)
{
    const uint32_t rank = deft_rank(x);
    deft_axes order = { .n = rank };
    for (uint32_t i = 0; i < rank; i++) order.at[i] = (int)((back ? i + rank - 1 : i + 1) % rank);
    return deft_permute(x, order);
}

/* All examples of operand i. The outer examples stand first; only the inner ones are turned. */
static deft_tensor *whole(const trial *t, int i)
{
    const operand *const o = &t->r->in[i];
    deft_shape s = { 0 };
    if (outer_maps(t, i)) s.dim[s.rank++] = OUTER;
    if (inner_maps(t, i)) s.dim[s.rank++] = INNER;
    for (uint32_t k = 0; k < o->shape.rank; k++) s.dim[s.rank++] = o->shape.dim[k];
    const size_t bytes = (size_t)numel(&s) * deft_dtype_size(o->dtype);
    deft_tensor *const x = deft_from(cx, s, o->dtype, t->data[i], bytes);
    if (!t->w.last || !inner_maps(t, i)) return x;
    if (!outer_maps(t, i)) return turned(x, false);
    deft_axes order = { .n = s.rank };
    for (uint32_t k = 1; k + 1 < s.rank; k++) order.at[k] = (int)k + 1;
    order.at[s.rank - 1] = 1;
    return deft_permute(x, order);
}

/* ---- the function ---- */

/* The sum of all elements, with a weight for each by its place in an example. */
static deft_tensor *total(deft_tensor *x, uint32_t n_axes)
{
    if (is_complex(deft_dtype_of(x)))
        return deft_add(total(deft_real(x), n_axes), total(deft_neg(deft_imag(x)), n_axes));
    deft_shape s = deft_shape_get(x);
    const deft_dtype dtype = deft_dtype_of(x);
    for (uint32_t i = 0; i < n_axes; i++) s.dim[i] = s.dim[s.rank - n_axes + i];
    s.rank = n_axes;
    deft_tensor *const place = deft_iota(cx, DEFT_SHAPE(numel(&s)), 0);
    deft_tensor *const weight = deft_add_f(deft_mul_f(deft_cast(place, dtype), 0.25), 0.5);
    return deft_sum(deft_mul(x, deft_reshape(weight, s)), DEFT_ALL_AXES, 0);
}

static const deft_grad_options zero_is_fine = { .size = sizeof(deft_grad_options),
                                                .unused_is_zero = true };

/* Operands that have a gradient. */
static size_t floats(const row *r, deft_tensor *const *x, deft_tensor **out)
{
    size_t n = 0;
    for (int i = 0; i < r->n_in; i++)
        if (has_gradient(r->in[i].dtype)) out[n++] = x[i];
    return n;
}

/* f's result, or its gradients. */
static size_t results(const trial *t, deft_tensor *const *x, deft_tensor **out)
{
    deft_tensor *with[MAX_IN];
    deft_tensor *const y = t->r->f(cx, x);
    if (!t->gradient) {
        out[0] = y;
        return 1;
    }
    const size_t n = floats(t->r, x, with);
    deft_tensor *const of = y ? total(y, deft_rank(y)) : NULL;
    deft_grad(&of, NULL, 1, with, n, &zero_is_fine, out);
    return n;
}

static size_t n_results(const trial *t)
{
    deft_tensor *x[MAX_IN] = { NULL }, *with[MAX_IN];
    return t->gradient ? floats(t->r, x, with) : 1;
}

static deft_status one(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                       size_t n_out, void *user)
{
    const trial *const t = user;
    (void)c, (void)n_in, (void)n_out;
    results(t, in, out);
    return DEFT_OK;
}

static bool map(const trial *t, deft_body_fn f, unsigned mask, bool last, deft_tensor *const *in,
                deft_tensor **out)
{
    int in_axes[MAX_IN], out_axes[MAX_IN];
    for (int i = 0; i < MAX_IN; i++) {
        in_axes[i] = !(mask >> i & 1) ? DEFT_NOT_MAPPED : last ? -1 : 0;
        out_axes[i] = last ? -1 : 0;
    }
    return deft_vmap(cx, f, (void *)(uintptr_t)t, in, in_axes, (size_t)t->r->n_in, out, out_axes,
                     n_results(t));
}

static deft_status inner(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    const trial *const t = user;
    (void)c, (void)n_in, (void)n_out;
    map(t, one, t->w.inner, t->w.last, in, out);
    return DEFT_OK;
}

/* All examples: results with the outer ones first, then the inner ones. */
static void mapped(const trial *t, deft_tensor **out)
{
    deft_tensor *x[MAX_IN];
    for (int i = 0; i < t->r->n_in; i++) x[i] = whole(t, i);
    const bool two = t->w.outer != 0;
    if (!map(t, two ? inner : one, two ? t->w.outer : t->w.inner, !two && t->w.last, x, out))
        check(deft_error(cx), t->r);
    for (size_t k = 0; k < n_results(t); k++) {
        if (!t->w.last) continue;
        const uint32_t rank = deft_rank(out[k]);
        if (!two) {
            out[k] = turned(out[k], true);
            continue;
        }
        deft_axes order = { .n = rank, .at = { 0, (int)rank - 1 } };
        for (uint32_t i = 2; i < rank; i++) order.at[i] = (int)i - 1;
        out[k] = deft_permute(out[k], order);
    }
}

/* ---- comparison ---- */

static void read_all(const trial *t, deft_tensor *x, char *to)
{
    const deft_shape s = deft_shape_get(x);
    const size_t bytes = (size_t)numel(&s) * deft_dtype_size(deft_dtype_of(x));
    if (bytes > MAX_BYTES) abort();
    check(deft_read(x, deft_dtype_of(x), to, bytes), t->r);
}

static long differences(const trial *t)
{
    static char all[MAX_IN][MAX_BYTES], alone[MAX_BYTES];
    deft_tensor *out[MAX_IN];
    long n = 0;
    deft_scope s = deft_scope_begin(cx);
    mapped(t, out);
    const size_t n_out = n_results(t);
    const int n_outer = t->w.outer ? OUTER : 1;
    for (size_t k = 0; k < n_out; k++) read_all(t, out[k], all[k]);
    check(deft_scope_end(s), t->r);
    for (int a = 0; a < n_outer; a++)
        for (int b = 0; b < INNER; b++) {
            deft_tensor *x[MAX_IN];
            s = deft_scope_begin(cx);
            for (int i = 0; i < t->r->n_in; i++) x[i] = single(t, i, a, b);
            results(t, x, out);
            for (size_t k = 0; k < n_out; k++) {
                read_all(t, out[k], alone);
                const deft_dtype dtype = deft_dtype_of(out[k]);
                const size_t size = deft_dtype_size(dtype), count = (size_t)deft_numel(out[k]);
                const char *const at = all[k] + (size_t)(a * INNER + b) * count * size;
                const size_t parts = count * n_parts(dtype);
                n += oracle_difference(part_dtype(dtype), at, alone, parts) < parts;
            }
            check(deft_scope_end(s), t->r);
        }
    return n;
}

static double value_at(deft_dtype t, const char *at, size_t i)
{
    float f;
    double d;
    if (t == DEFT_F32) {
        memcpy(&f, at + i * sizeof f, sizeof f);
        return f;
    }
    memcpy(&d, at + i * sizeof d, sizeof d);
    return d;
}

/* Part i of floats or complex numbers that are no halves. */
static double part_at(deft_dtype t, const char *at, size_t i)
{
    return value_at(part_dtype(t), at, i);
}

/* The gradient of what deft_vmap gives, against those of each example: side by side for a mapped
 * operand, else their sum. The greatest distance. */
static double distance(const trial *t)
{
    static char got[MAX_IN][MAX_BYTES], alone[MAX_BYTES];
    static double sum[MAX_IN][MAX_BYTES / 4];
    deft_tensor *x[MAX_IN], *with[MAX_IN], *out[MAX_IN];
    double worst = 0;
    trial value = *t;
    value.gradient = false;
    memset(sum, 0, sizeof sum);
    deft_scope s = deft_scope_begin(cx);
    for (int i = 0; i < t->r->n_in; i++) x[i] = whole(t, i);
    const size_t n = floats(t->r, x, with);
    if (!map(&value, one, t->w.inner, false, x, out)) check(deft_error(cx), t->r);
    deft_tensor *const of = total(out[0], deft_rank(out[0]) - 1);
    deft_grad(&of, NULL, 1, with, n, &zero_is_fine, out);
    for (size_t k = 0; k < n; k++) read_all(t, out[k], got[k]);
    check(deft_scope_end(s), t->r);
    for (int b = 0; b < INNER; b++) {
        s = deft_scope_begin(cx);
        for (int i = 0; i < t->r->n_in; i++) x[i] = single(t, i, 0, b);
        results(t, x, out);
        for (int i = 0, k = 0; i < t->r->n_in; i++) {
            if (!has_gradient(t->r->in[i].dtype)) continue;
            const size_t count = (size_t)numel(&t->r->in[i].shape) * n_parts(t->r->in[i].dtype);
            read_all(t, out[k], alone);
            for (size_t e = 0; e < count; e++)
                sum[k][(inner_maps(t, i) ? (size_t)b * count : 0) + e] +=
                    part_at(t->r->in[i].dtype, alone, e);
            k++;
        }
        check(deft_scope_end(s), t->r);
    }
    for (int i = 0, k = 0; i < t->r->n_in; i++) {
        if (!has_gradient(t->r->in[i].dtype)) continue;
        const size_t count = (size_t)numel(&t->r->in[i].shape) * n_parts(t->r->in[i].dtype) *
                             (inner_maps(t, i) ? INNER : 1);
        for (size_t e = 0; e < count; e++) {
            const double v = part_at(t->r->in[i].dtype, got[k], e);
            const double d = fabs(v - sum[k][e]) / (1 + fabs(sum[k][e]));
            if (!(d <= worst) && !(isnan(v) && isnan(sum[k][e]))) worst = d;
        }
        k++;
    }
    return worst;
}

/* ---- all ways ---- */

/* What the function of a row gives for one example: no dtype, when it refuses the operands. */
typedef struct answer {
    bool is_given;
    deft_dtype dtype;
} answer;

static answer answer_of(const row *r)
{
    deft_tensor *x[MAX_IN] = { NULL };
    answer a = { 0 };
    const deft_scope s = deft_scope_begin(cx);
    for (int i = 0; i < r->n_in; i++)
        x[i] = deft_cast(deft_full(cx, r->in[i].shape, DEFT_F64, r->in[i].low), r->in[i].dtype);
    deft_tensor *const y = r->f(cx, x);
    if (y && deft_error(cx) == DEFT_OK) a = (answer){ true, deft_dtype_of(y) };
    deft_clear(cx);
    check(deft_scope_end(s), r);
    return a;
}

static bool is_smooth(const row *r)
{
    deft_tensor *x[MAX_IN] = { NULL }, *with[MAX_IN];
    if (!floats(r, x, with)) return false;
    const answer a = answer_of(r);
    return a.is_given && has_gradient(a.dtype);
}

static bool has_halves(const row *r)
{
    bool any = false;
    for (int i = 0; i < r->n_in; i++) any |= half_is(r->in[i].dtype);
    return any;
}

static void run(const row *r, bool table)
{
    trial t = { .r = r };
    for (int i = 0; i < r->n_in; i++) {
        const int64_t n = numel(&r->in[i].shape) * MOST;
        t.data[i] = calloc((size_t)n + 1, deft_dtype_size(r->in[i].dtype));
        const int64_t parts = n * (int64_t)n_parts(r->in[i].dtype);
        for (int64_t k = 0; k < parts; k++) put(&r->in[i], t.data[i], k);
    }
    const bool smooth = is_smooth(r);
    const unsigned all = 1u << r->n_in;
    long wrong = 0, ways = 0, wrong_gradient = 0;
    double worst = 0;
    for (unsigned mask = 1; mask < all; mask++)
        for (int form = 0; form < 3; form++) { /* first axis; last axis; within another */
            const unsigned outer[] = { 0, 0, all - 1, mask & 1 ? all - 1 : 1 };
            t.w = (way){ outer[form], mask, form != 0 };
            t.gradient = false;
            wrong += differences(&t);
            t.gradient = true;
            if (smooth) wrong_gradient += differences(&t);
            if (smooth && form == 0 && !has_halves(r)) worst = fmax(worst, distance(&t));
            ways++;
        }
    const double most = part_dtype(r->in[0].dtype) == DEFT_F32 ? 1e-5 : 1e-12;
    const bool ok = !wrong && !wrong_gradient && worst < most;
    for (int i = 0; i < r->n_in; i++) free(t.data[i]);
    ok ? passed++ : failed++;
    if (ok && !table) return;
    printf("%-26s %-30s %-4s %3ld ways, %ld results differ", r->op, r->what,
           deft_dtype_name(r->in[0].dtype), ways, wrong);
    if (smooth) printf("; of gradients inside %ld; gradient of it %.1e", wrong_gradient, worst);
    puts(ok ? "" : "  WRONG");
}

/* ---- other dtypes ---- */

static long n_other, n_refused; /* rows in other dtypes: run, and refused by their function */

/* Runs a row of f64 with its floats in the which-th other dtype, and its indices in an integer
 * dtype, unless the function of the row refuses them. */
static void run_in_other(const row *of, unsigned which, bool table)
{
    static const deft_dtype all[] = { DEFT_C128, DEFT_I8,  DEFT_U16, DEFT_F16, DEFT_C64,
                                      DEFT_U64,  DEFT_I16, DEFT_F32, DEFT_U8,  DEFT_BF16,
                                      DEFT_I32,  DEFT_U32, DEFT_I64 };
    const deft_dtype t = all[which % (sizeof all / sizeof *all)];
    row r = *of;
    for (int i = 0; i < r.n_in; i++) {
        operand *const o = &r.in[i];
        if (o->dtype == DEFT_F64 || (o->dtype == DEFT_I64 && int_ref_bits(t))) o->dtype = t;
        if (int_ref_is_unsigned(o->dtype) && o->low < 0) o->low = 0;
    }
    if (!answer_of(&r).is_given) {
        n_refused++;
        return;
    }
    n_other++;
    run(&r, table);
}

/* ---- elementwise ---- */

#define MAKE(name, ...)                                                                            \
    static deft_tensor *f_##name(deft_ctx *c, deft_tensor *const *x)                               \
    {                                                                                              \
        (void)c;                                                                                   \
        return __VA_ARGS__;                                                                        \
    }
#define DEFINE1(name) MAKE(name, deft_##name(x[0]))
#define DEFINE2(name) MAKE(name, deft_##name(x[0], x[1]))
DEFT_UNARY_OPS(DEFINE1)
DEFT_BINARY_OPS(DEFINE2)
MAKE(powi, deft_pow_i(x[0], 3))
MAKE(polygamma, deft_polygamma(2, x[0]))
MAKE(cast, deft_cast(x[0], DEFT_I32))
MAKE(where, deft_where(deft_lt_f(x[0], 1.2), x[1], deft_mul_f(x[1], 2)))
MAKE(number, deft_add(deft_mul_f(x[0], 0.3), deft_num(c, 2)))

typedef struct map_row {
    const char *op;
    make_fn f;
    int n_in;
} map_row;

#define ROW1(name) { #name, f_##name, 1 },
#define ROW2(name) { #name, f_##name, 2 },

static const map_row maps[] = {
    DEFT_UNARY_OPS(ROW1) DEFT_BINARY_OPS(ROW2){ "powi", f_powi, 1 },
    { "polygamma", f_polygamma, 1 },
    { "cast", f_cast, 1 },
    { "where", f_where, 2 },
    { "num mul", f_number, 1 },
};

static bool is_integral(const char *op)
{
    return !strncmp(op, "bitwise", 7) || !strncmp(op, "shift", 5);
}

static void run_map(const map_row *m, unsigned which, bool table)
{
    static const struct {
        const char *what;
        deft_shape shape[2];
    } shapes[] = {
        { "[]", { { .rank = 0 }, { .rank = 0 } } },
        { "[2,3]", { { 2, { 2, 3 } }, { 2, { 2, 3 } } } },
        { "[3,1] and [4]", { { 2, { 3, 1 } }, { 1, { 4 } } } },
        { "[2,1,3] and []", { { 3, { 2, 1, 3 } }, { 0, { 0 } } } },
        { "[2] and [3,1,2]", { { 1, { 2 } }, { 3, { 3, 1, 2 } } } },
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        row r = { .op = m->op, .what = shapes[i].what, .f = m->f, .n_in = m->n_in };
        const deft_dtype t = is_integral(m->op) ? DEFT_I32 : DEFT_F64;
        for (int k = 0; k < m->n_in; k++)
            r.in[k] = (operand){ t, shapes[i].shape[k], k ? 1 : 0.4, k ? 3 : 0.9 };
        run(&r, table);
        for (int k = 0; k < m->n_in; k++) r.in[k].dtype = DEFT_F64;
        if (i == 1 + which % 3) run_in_other(&r, which, table);
    }
}

/* ---- the others ---- */

#define S(...)                                                                                     \
    {                                                                                              \
        sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t),                                \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define SCALAR                                                                                     \
    {                                                                                              \
        .rank = 0                                                                                  \
    }
#define ALL DEFT_ALL_AXES
#define F(...)                                                                                     \
    {                                                                                              \
        DEFT_F64, S(__VA_ARGS__), -2, 2                                                            \
    }
#define F32(...)                                                                                   \
    {                                                                                              \
        DEFT_F32, S(__VA_ARGS__), -2, 2                                                            \
    }
#define I(low, high, ...)                                                                          \
    {                                                                                              \
        DEFT_I64, S(__VA_ARGS__), low, high                                                        \
    }
#define B(...)                                                                                     \
    {                                                                                              \
        DEFT_BOOL, S(__VA_ARGS__), 0, 1                                                            \
    }

MAKE(sum_all, deft_sum(deft_exp(x[0]), ALL, 0))
MAKE(sum_axis, deft_sum(x[0], DEFT_AXES(1), 0))
MAKE(sum_keep, deft_sum(deft_square(x[0]), DEFT_AXES(0, 2), 1))
MAKE(prod, deft_prod(x[0], DEFT_AXES(-1), 1))
MAKE(max, deft_max(x[0], DEFT_AXES(0), 0))
MAKE(min, deft_min(x[0], ALL, 0))
MAKE(any, deft_any(x[0], DEFT_AXES(0), 0))
MAKE(all, deft_all(x[0], DEFT_AXES(1), 1))
MAKE(argmin, deft_argmin(x[0], DEFT_AXES(1), 0))
MAKE(argmax, deft_argmax(x[0], ALL, 0))
MAKE(mean, deft_mean(x[0], DEFT_AXES(1), 0))
MAKE(var, deft_var(x[0], DEFT_AXES(0), 0, 1))
MAKE(cumsum_0, deft_cumsum(deft_square(x[0]), 0))
MAKE(cumsum_1, deft_cumsum(x[0], -1))
MAKE(cumprod, deft_cumprod(x[0], -1))
MAKE(cummin, deft_cummin(x[0], 0))
MAKE(cummax, deft_cummax(deft_square(x[0]), 0))
MAKE(cumulative_sum, deft_cumulative_sum(x[0], 0, true))
MAKE(fma, deft_fma(x[0], x[1], x[0]))
MAKE(polyval, deft_polyval(x[0], x[1]))
MAKE(einsum_dots, deft_einsum("...i,...ij->...j", x, 2))
MAKE(nanmean, deft_nanmean(x[0], DEFT_AXES(0), 0))
MAKE(nanstd, deft_nanstd(x[0], DEFT_AXES(1), 0, 1))
MAKE(norm, deft_vector_norm(x[0], 2, DEFT_AXES(1), 0))
MAKE(median, deft_median(x[0], 0, 0))
MAKE(quantile, deft_quantile(x[0], 0.3, 1, 1))
MAKE(logcumsumexp, deft_logcumsumexp(x[0], 0))
MAKE(logsumexp, deft_logsumexp(x[0], DEFT_AXES(1), 0))
MAKE(histogram, deft_histogram(x[0], deft_sort(x[1], 0, false)))
MAKE(shift, deft_shift(x[0], (int64_t[]){ 1, -1 }, DEFT_PAD_WRAP, 0))
MAKE(std, deft_std(x[0], DEFT_AXES(0), 0, 1))
MAKE(diff, deft_diff(x[0], 1, 1, NULL, x[0]))
MAKE(moveaxis, deft_mul(deft_moveaxis(x[0], DEFT_AXES(0), DEFT_AXES(-1)), x[1]))
MAKE(repeat, deft_mul(deft_repeat(x[0], 2, 0), x[1]))
MAKE(tile, deft_tile(x[0], DEFT_SHAPE(2, 1, 2)))
MAKE(roll_n, deft_roll_n(x[0], (int64_t[]){ 1, -1 }, DEFT_AXES(0, 1)))
MAKE(roll_flat, deft_roll(x[0], 2, DEFT_FLAT))
MAKE(concat_flat, deft_concat(x, 2, DEFT_FLAT))
MAKE(take_along_axis, deft_take_along_axis(x[0], x[1], 1))
MAKE(searchsorted, deft_searchsorted(deft_sort(x[0], 0, false), x[1], true))
MAKE(isin, deft_isin(x[0], x[1], false))
MAKE(isin_many, deft_isin(x[0], x[1], true))
MAKE(count_nonzero, deft_count_nonzero(x[0], DEFT_AXES(0), true))
MAKE(repeat_t, deft_repeat_t(x[0], x[1], 0, 5))

static deft_tensor *f_unique_all(deft_ctx *in, deft_tensor *const *x)
{
    deft_tensor *part[4] = { 0 };
    (void)in;
    deft_tensor *const values = deft_unique_all(x[0], 4, &part[0], &part[1], &part[2], &part[3]);
    const deft_shape line = { .rank = 1, .dim = { 1 } };
    deft_tensor *const all[5] = { deft_cast(values, DEFT_I64), part[0], part[1], part[2],
                                  deft_reshape(part[3], line) };
    return deft_concat(all, 5, DEFT_FLAT);
}
MAKE(slice, deft_slice(x[0], DEFT_R(1, 3), DEFT_AT(0)))
MAKE(slice_step, deft_square(deft_slice(x[0], DEFT_RS(-1, DEFT_END, -2), DEFT_RS(0, 4, 3))))
MAKE(slice_twice, deft_mul(deft_slice(x[0], DEFT_R(0, -1)), deft_slice(x[0], DEFT_R(1, DEFT_END))))
MAKE(permute, deft_mul(deft_permute(x[0], DEFT_AXES(2, 0, 1)), x[1]))
MAKE(expand, deft_mul(deft_expand(x[0], DEFT_SHAPE(2, 3, 4)), x[1]))
MAKE(reshape, deft_mul(deft_reshape(x[0], DEFT_SHAPE(4, 3)), x[1]))
MAKE(squeeze, deft_mul(deft_squeeze(x[0], DEFT_AXES(1)), x[1]))
MAKE(unsqueeze, deft_mul(deft_unsqueeze(x[0], 0), deft_unsqueeze(x[0], 1)))
MAKE(diagonal, deft_square(deft_diagonal(x[0], 1, 0, 1)))
MAKE(diagonal_low, deft_diagonal(x[0], -1, 2, 0))
MAKE(take, deft_take(x[0], x[1], 0))
MAKE(take_1, deft_take(deft_square(x[0]), x[1], 1))
MAKE(gather, deft_gather(deft_square(x[0]), x[1], 1))
MAKE(scatter_add, deft_square(deft_scatter_add(x[0], x[1], x[2], 0)))
MAKE(index_add, deft_square(deft_index_add(x[0], x[1], x[2], 1)))
MAKE(index_add_0, deft_index_add(x[0], x[1], x[2], 0))
MAKE(scatter_set, deft_square(deft_scatter(x[0], x[1], x[2], 0)))
MAKE(index_set, deft_square(deft_index_copy(x[0], x[1], x[2], 1)))
MAKE(scatter_mul, deft_square(deft_scatter_reduce(x[0], x[1], x[2], 0, DEFT_SCATTER_PROD, true)))
MAKE(index_mul, deft_square(deft_index_reduce(x[0], x[1], x[2], 1, DEFT_SCATTER_PROD, true)))
MAKE(scatter_min, deft_square(deft_scatter_reduce(x[0], x[1], x[2], 0, DEFT_SCATTER_AMIN, true)))
MAKE(index_min, deft_square(deft_index_reduce(x[0], x[1], x[2], 1, DEFT_SCATTER_AMIN, true)))
MAKE(scatter_max, deft_square(deft_scatter_reduce(x[0], x[1], x[2], 0, DEFT_SCATTER_AMAX, true)))
MAKE(index_max, deft_square(deft_index_reduce(x[0], x[1], x[2], 1, DEFT_SCATTER_AMAX, true)))
MAKE(bitcast, deft_bitcast(x[0], DEFT_U64))
MAKE(whole_product, deft_matmul(x[0], x[1]))
MAKE(concat, deft_square(deft_concat(x, 2, 0)))
MAKE(stack, deft_stack(x, 2, 1))
MAKE(pad, deft_pad(x[0], (int64_t[]){ 1, 2 }, (int64_t[]){ 0, 1 }, DEFT_PAD_REFLECT, 0))
MAKE(roll, deft_mul(deft_roll(x[0], 1, 0), x[0]))
MAKE(flip, deft_flip(x[0], DEFT_AXES(1)))
MAKE(tril, deft_tril(x[0], 0))
MAKE(one_hot, deft_one_hot(x[0], 4, DEFT_F32))
MAKE(matmul, deft_matmul(x[0], x[1]))
MAKE(argsort, deft_argsort(x[0], 0, 1))
MAKE(topk, deft_topk(x[0], 2, 0, 1, NULL))
MAKE(sort, deft_sort(x[0], -1, 0))
MAKE(which, deft_nonzero(x[0], 5, NULL))
MAKE(which_few, deft_nonzero(x[0], 2, NULL))
MAKE(compress, deft_compress(x[0], x[1], 4, NULL))
MAKE(unique, deft_unique(x[0], 3, NULL))
MAKE(softmax, deft_softmax(x[0], 0))
MAKE(log_softmax, deft_log_softmax(x[0], -1))
MAKE(cross_entropy, deft_cross_entropy(x[0], x[1]))
MAKE(layer_norm, deft_layer_norm(x[0], 1, x[1], x[2], 1e-3))
MAKE(rms_norm, deft_rms_norm(x[0], 1, x[1], 1e-3))
MAKE(embedding, deft_embedding(x[0], x[1]))
MAKE(conv2d, deft_conv2d(x[0], x[1], DEFT_CONV2D(.padding = { 1, 1 }, .bias = x[2])))
MAKE(conv2d_strided, deft_conv2d(x[0], x[1], DEFT_CONV2D(.stride = { 2, 1 }, .dilation = { 1, 2 })))
MAKE(conv2d_grouped, deft_conv2d(x[0], x[1], DEFT_CONV2D(.groups = 2)))
MAKE(max_pool2d, deft_max_pool2d(x[0], DEFT_POOL2D(.kernel = { 2, 2 })))
MAKE(max_pool2d_near, deft_max_pool2d(x[0], DEFT_POOL2D(.kernel = { 3, 2 }, .stride = { 1, 1 },
                                                        .padding = { 1, 1 })))
MAKE(avg_pool2d, deft_avg_pool2d(x[0], DEFT_POOL2D(.kernel = { 2, 2 }, .padding = { 0, 1 })))
MAKE(attention, deft_attention(x[0], x[1], x[2], DEFT_ATTENTION(.is_causal = true)))
MAKE(lerp, deft_lerp(x[0], x[1], x[2]))
MAKE(ctc, deft_ctc_loss(deft_log_softmax(x[0], 2), x[1], NULL, NULL, NULL))

static deft_tensor *assigned(deft_tensor *place, deft_tensor *root, deft_tensor *to)
{
    deft_assign(place, to);
    return deft_mul(root, root);
}

static deft_tensor *f_update(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *const copy = deft_add_f(x[0], 1);
    (void)c;
    return assigned(deft_slice(copy, DEFT_R(1, 3), DEFT_AT(1)), copy, x[1]);
}

/* What is written over is the tensor that came in. */
static deft_tensor *f_update_in(deft_ctx *c, deft_tensor *const *x)
{
    (void)c;
    return assigned(deft_slice(x[0], DEFT_R(1, 3), DEFT_AT(1)), x[0], x[1]);
}

static deft_tensor *f_update_view(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *const copy = deft_mul(x[0], x[0]);
    deft_tensor *const part = deft_slice(deft_t(copy), DEFT_RS(3, DEFT_END, -2));
    (void)c;
    return assigned(deft_diagonal(part, 0, 0, 1), copy, x[1]);
}

static deft_tensor *f_update_reshaped(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *const copy = deft_mul_f(x[0], 2);
    (void)c;
    return assigned(deft_slice(deft_reshape(copy, DEFT_SHAPE(6, 2)), DEFT_R(2, 5), DEFT_AT(0)),
                    copy, x[1]);
}

static deft_rng rng;

static deft_tensor *f_draw(deft_ctx *c, deft_tensor *const *x)
{
    return deft_add(deft_normal(c, &rng, deft_shape_get(x[0]), DEFT_F64, 0, 1), x[0]);
}

/* ---- loops and branches ---- */

/* s' = tanh(s w + x), y = s' s; n' = n + 1, which depends on no example. */
static deft_status cell(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *user)
{
    deft_tensor *const w = user;
    (void)c, (void)n_in, (void)n_out;
    deft_tensor *const by = deft_add_f(deft_cast(in[1], DEFT_F64), 1);
    out[0] = deft_tanh(deft_add(deft_mul(in[0], w), deft_mul(in[2], by)));
    out[1] = deft_add_i(in[1], 1);
    out[2] = deft_mul(out[0], in[0]);
    return DEFT_OK;
}

static deft_tensor *f_scan(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *const init[] = { x[0], deft_zeros(c, DEFT_SHAPE(), DEFT_I32) };
    deft_tensor *out[3];
    if (!deft_scan(c, cell, x[2], init, 2, &x[1], 1, deft_dim(x[1], 0), 1, out)) return NULL;
    return deft_concat((deft_tensor *[]){ out[2], deft_unsqueeze(out[0], 0) }, 2, 0);
}

/* Two states of which the second alone sees the weight, and the first sees it a turn later. */
static deft_status chain(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out;
    out[0] = deft_add(deft_mul_f(in[0], 0.5), in[1]);
    out[1] = deft_mul(in[1], user);
    return DEFT_OK;
}

static deft_tensor *f_scan_late(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *const one = deft_ones(c, deft_shape_get(x[0]), DEFT_F64);
    deft_tensor *const init[] = { deft_zeros(c, deft_shape_get(x[0]), DEFT_F64), one };
    deft_tensor *out[2];
    return deft_scan(c, chain, x[0], init, 2, NULL, 0, 4, 0, out) ? out[0] : NULL;
}

/* A loop within a loop: the inner one has a state that depends on no example. */
static deft_status outer_cell(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                              size_t n_out, void *user)
{
    deft_tensor *const init[] = { in[0], in[1] };
    deft_tensor *within[3];
    (void)n_in, (void)n_out;
    if (!deft_scan(c, cell, user, init, 2, &in[2], 1, deft_dim(in[2], 0), 1, within))
        return DEFT_E_STATE;
    out[0] = deft_add(within[0], deft_sum(within[2], DEFT_AXES(0), 0));
    out[1] = within[1];
    return DEFT_OK;
}

static deft_tensor *f_scan_nested(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *const init[] = { x[0], deft_zeros(c, DEFT_SHAPE(), DEFT_I32) };
    deft_tensor *out[2];
    if (!deft_scan(c, outer_cell, x[2], init, 2, &x[1], 1, deft_dim(x[1], 0), 0, out)) return NULL;
    return deft_mul(out[0], deft_cast(out[1], DEFT_F64));
}

/* What is written depends on the loop, and what it is written to does not. */
static deft_status writing(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    deft_tensor *const copy = deft_mul_f(user, 2);
    (void)c, (void)n_in, (void)n_out;
    deft_assign(deft_slice(copy, DEFT_AT(0)), in[1]);
    out[0] = deft_tanh(deft_mul(in[0], deft_sum(copy, ALL, 0)));
    out[1] = deft_add_f(in[1], 0.5);
    return DEFT_OK;
}

static deft_tensor *f_scan_writing(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *const init[] = { x[0], deft_zeros(c, DEFT_SHAPE(), DEFT_F64) };
    deft_tensor *out[2];
    return deft_scan(c, writing, x[1], init, 2, NULL, 0, 3, 0, out) ? out[0] : NULL;
}

static deft_status is_small(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_lt_f(deft_sum(in[0], ALL, 0), 9);
    return DEFT_OK;
}

/* Doubles, and counts in a state that starts the same for all. */
static deft_status doubled(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out;
    out[0] = deft_add(deft_mul_f(in[0], 2), user);
    out[1] = deft_add_i(in[1], 1);
    return DEFT_OK;
}

static deft_tensor *f_while(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *const init[] = { x[0], deft_zeros(c, DEFT_SHAPE(), DEFT_I64) };
    deft_tensor *out[2];
    if (!deft_while(c, is_small, doubled, x[1], init, 2, 20, out)) return NULL;
    return deft_add(out[0], deft_mul_f(deft_cast(out[1], DEFT_F64), 100));
}

/* Ends at the same turn for all. */
static deft_status is_early(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_lt_i(in[1], 3);
    return DEFT_OK;
}

static deft_tensor *f_while_counted(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *const init[] = { x[0], deft_zeros(c, DEFT_SHAPE(), DEFT_I64) };
    deft_tensor *out[2];
    if (!deft_while(c, is_early, doubled, x[1], init, 2, 20, out)) return NULL;
    return deft_add(out[0], deft_mul_f(deft_cast(out[1], DEFT_F64), 100));
}

static deft_status squares(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(deft_square(in[0]), in[1]);
    out[1] = in[1];
    return DEFT_OK;
}

static deft_status cubes(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(in[0], deft_square(in[0]));
    out[1] = deft_exp(in[0]);
    return DEFT_OK;
}

/* x: two operands, the condition. */
static deft_tensor *f_cond(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *out[2];
    (void)c;
    deft_tensor *const is = deft_gt_f(deft_sum(x[2], ALL, 0), 0);
    return deft_cond(is, squares, cubes, NULL, x, 2, out, 2) ? deft_add(out[0], out[1]) : NULL;
}

/* The first result is not asked for. */
static deft_tensor *f_cond_second(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *out[2];
    (void)c;
    deft_tensor *const is = deft_gt_f(deft_sum(x[2], ALL, 0), 0);
    return deft_cond(is, squares, cubes, NULL, x, 2, out, 2) ? out[1] : NULL;
}

/* ---- functions with derivatives of their own ---- */

static deft_status twice(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(in[0], in[1]);
    out[1] = deft_mul_f(in[1], 2);
    return DEFT_OK;
}

/* Of sums over all of an example: with more axes than it knows of it would be another. */
static deft_status back(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor *const *out,
                        deft_tensor *const *g, size_t n_out, deft_tensor **grad_in, void *user)
{
    (void)c, (void)n_in, (void)out, (void)n_out, (void)user;
    deft_tensor *const shape = deft_sum(g[0], DEFT_AXES(0), 1);
    grad_in[0] = deft_mul(deft_add(g[0], shape), in[1]);
    grad_in[1] = deft_add(deft_mul(g[0], in[0]), deft_mul(g[1], deft_sum(in[1], ALL, 0)));
    return DEFT_OK;
}

static deft_tensor *f_custom(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *out[2];
    if (!deft_custom_grad(c, twice, back, NULL, x, 2, out, 2)) return NULL;
    return deft_add(out[0], deft_square(out[1]));
}

static deft_tensor *normed(deft_ctx *c, deft_tensor *g, void *user)
{
    (void)c, (void)user;
    return deft_div(g, deft_add_f(deft_sum(deft_square(g), ALL, 0), 1));
}

static deft_tensor *f_hook(deft_ctx *c, deft_tensor *const *x)
{
    deft_tensor *const h = deft_mul(x[0], x[1]);
    (void)c;
    return deft_grad_hook(h, normed, NULL) ? deft_square(h) : NULL;
}

MAKE(stop, deft_mul(x[0], deft_stop_gradient(deft_exp(x[0]))))

static const row rows[] = {
    { "sum", "all of [2,3,2]", f_sum_all, 1, { F(2, 3, 2) } },
    { "sum", "of integers", f_sum_axis, 1, { I(-4, 4, 3, 4) } },
    { "sum", "of f32", f_sum_axis, 1, { F32(5, 70) } },
    { "sum", "two axes, kept", f_sum_keep, 1, { F(2, 3, 2) } },
    { "prod", "rows, kept", f_prod, 1, { F(3, 3) } },
    { "max", "columns", f_max, 1, { F(4, 3) } },
    { "min", "all", f_min, 1, { F(7) } },
    { "any", "columns", f_any, 1, { B(3, 4) } },
    { "all", "rows, kept", f_all, 1, { B(3, 2) } },
    { "argmin", "rows", f_argmin, 1, { F(3, 5) } },
    { "argmax", "all", f_argmax, 1, { F(3, 5) } },
    { "count", "mean", f_mean, 1, { F(3, 4) } },
    { "count", "variance", f_var, 1, { F(5, 2) } },
    { "cumsum", "axis 0", f_cumsum_0, 1, { F(4, 2) } },
    { "cumsum", "last axis", f_cumsum_1, 1, { F(2, 5) } },
    { "cumprod", "last axis", f_cumprod, 1, { F(2, 5) } },
    { "cummin", "axis 0", f_cummin, 1, { F(4, 2) } },
    { "cummax", "axis 0", f_cummax, 1, { F(4, 2) } },
    { "cumsum", "with an initial 0", f_cumulative_sum, 1, { F(4, 2) } },
    { "fma", "[2,3] and [3]", f_fma, 2, { F(2, 3), F(3) } },
    { "where", "nanmean", f_nanmean, 1, { F(3, 2) } },
    { "where", "nanstd", f_nanstd, 1, { F(2, 4) } },
    { "sqrt", "norm", f_norm, 1, { F(3, 4) } },
    { "topk", "median", f_median, 1, { F(5, 2) } },
    { "gather", "quantile", f_quantile, 1, { F(2, 5) } },
    { "update", "logcumsumexp", f_logcumsumexp, 1, { F(5, 2) } },
    { "log max", "logsumexp", f_logsumexp, 1, { F(5, 2) } },
    { "index_add", "histogram", f_histogram, 2, { F(7), F(3) } },
    { "update", "shift", f_shift, 1, { F(3, 4) } },
    { "sqrt where", "std", f_std, 1, { F(4, 3) } },
    { "sub update", "diff", f_diff, 1, { F(2, 4) } },
    { "permute", "moveaxis", f_moveaxis, 2, { F(2, 3, 4), F(3, 4, 2) } },
    { "expand reshape", "repeat", f_repeat, 2, { F(2, 3), F(4, 3) } },
    { "expand reshape", "tile", f_tile, 1, { F(2, 3) } },
    { "update", "roll of two axes", f_roll_n, 1, { F(3, 4) } },
    { "update", "roll of all", f_roll_flat, 1, { F(3, 4) } },
    { "update", "concat of all", f_concat_flat, 2, { F(2, 3), F(4) } },
    { "gather", "take_along_axis", f_take_along_axis, 2, { F(3, 4), I(-4, 3, 1, 5) } },
    { "take", "searchsorted", f_searchsorted, 2, { F(9), F(2, 3) } },
    { "eq", "isin few", f_isin, 2, { I(-4, 4, 2, 3), I(-4, 4, 5) } },
    { "take", "isin many", f_isin_many, 2, { I(-40, 40, 2, 3), I(-40, 40, 20) } },
    { "sum", "count_nonzero", f_count_nonzero, 1, { I(-1, 1, 4, 3) } },
    { "take", "repeat_t", f_repeat_t, 2, { F(3, 2), I(0, 3, 3) } },
    { "which", "unique_all", f_unique_all, 1, { I(0, 3, 6) } },
    { "slice", "a row's middle", f_slice, 1, { F(4, 2) } },
    { "slice", "backwards by 2, by 3", f_slice_step, 1, { F(5, 4) } },
    { "slice", "overlapping", f_slice_twice, 1, { F(4, 2) } },
    { "slice", "flip", f_flip, 1, { F(4, 2) } },
    { "permute", "three axes", f_permute, 2, { F(2, 3, 4), F(4, 2, 3) } },
    { "expand", "[3,1]", f_expand, 2, { F(3, 1), F(4) } },
    { "expand", "[]", f_expand, 2, { { DEFT_F64, SCALAR, -2, 2 }, F(4) } },
    { "reshape", "[2,6] to [4,3]", f_reshape, 2, { F(2, 6), F(4, 3) } },
    { "squeeze", "[3,1,2]", f_squeeze, 2, { F(3, 1, 2), F(3, 2) } },
    { "unsqueeze", "an outer product", f_unsqueeze, 1, { F(4) } },
    { "diagonal", "above", f_diagonal, 1, { F(3, 4) } },
    { "diagonal", "below, other axes", f_diagonal_low, 1, { F(3, 2, 3) } },
    { "take", "axis 0", f_take, 2, { F(3, 2), I(-3, 2, 2, 2) } },
    { "take", "axis 1", f_take_1, 2, { F(2, 3, 2), I(-3, 2, 4) } },
    { "take", "one", f_take_1, 2, { F(2, 3), { DEFT_I64, SCALAR, -3, 2 } } },
    { "take", "embedding", f_embedding, 2, { F(4, 2), I(0, 3, 2, 3) } },
    { "gather", "axis 1", f_gather, 2, { F(2, 3), I(-3, 2, 2, 4) } },
    { "gather", "sort", f_sort, 1, { F(2, 5) } },
    { "scatter_add", "axis 0", f_scatter_add, 3, { F(3, 4), I(-3, 2, 5, 4), F(5, 4) } },
    { "index_add", "axis 1", f_index_add, 3, { F(2, 3), I(-3, 2, 2, 2), F(2, 2, 2) } },
    { "index_add", "axis 0, rows", f_index_add_0, 3, { F(3, 2), I(0, 2, 7), F(7, 2) } },
    { "scatter_set", "axis 0", f_scatter_set, 3, { F(3, 4), I(-3, 2, 5, 4), F(5, 4) } },
    { "index_set", "axis 1", f_index_set, 3, { F(2, 3), I(-3, 2, 2, 2), F(2, 2, 2) } },
    { "scatter_mul", "axis 0", f_scatter_mul, 3, { F(3, 4), I(-3, 2, 5, 4), F(5, 4) } },
    { "index_mul", "axis 1", f_index_mul, 3, { F(2, 3), I(-3, 2, 2, 2), F(2, 2, 2) } },
    { "scatter_min", "axis 0", f_scatter_min, 3, { F(3, 4), I(-3, 2, 5, 4), F(5, 4) } },
    { "index_min", "axis 1", f_index_min, 3, { F(2, 3), I(-3, 2, 2, 2), F(2, 2, 2) } },
    { "scatter_max", "axis 0", f_scatter_max, 3, { F(3, 4), I(-3, 2, 5, 4), F(5, 4) } },
    { "index_max", "axis 1", f_index_max, 3, { F(2, 3), I(-3, 2, 2, 2), F(2, 2, 2) } },
    { "mul add slice", "polyval", f_polyval, 2, { F(2, 3), F(4) } },
    { "matmul", "einsum with dots", f_einsum_dots, 2, { F(3, 2), F(2, 4) } },
    { "final", "ctc_loss", f_ctc, 2, { F(4, 1, 3), I(1, 2, 1, 2) } },
    { "wrapped_sum", "integers", f_whole_product, 2, { I(-9, 9, 2, 3), I(-9, 9, 3, 4) } },
    { "bitcast", "integers", f_bitcast, 1, { I(-9, 9, 2, 3) } },
    { "update empty", "concat", f_concat, 2, { F(2, 3), F(1, 3) } },
    { "update empty", "stack", f_stack, 2, { F(2, 3), F(2, 3) } },
    { "update", "pad, reflected", f_pad, 1, { F(2, 4) } },
    { "update", "roll", f_roll, 1, { F(4, 2) } },
    { "update", "assign to a slice", f_update, 2, { F(4, 2), F(2) } },
    { "update", "assign to an operand", f_update_in, 2, { I(-4, 4, 4, 2), I(-4, 4, 2) } },
    { "update", "assign to views of views", f_update_view, 2, { F(3, 4), F(2) } },
    { "update", "assign through a reshape", f_update_reshaped, 2, { F(3, 4), F(3) } },
    { "where iota", "tril", f_tril, 1, { F(3, 4) } },
    { "eq iota", "one_hot", f_one_hot, 1, { I(-1, 4, 3) } },
    { "matmul", "[3,4] [4,2]", f_matmul, 2, { F(3, 4), F(4, 2) } },
    { "matmul", "f32", f_matmul, 2, { F32(3, 70), F32(70, 5) } },
    { "matmul", "[4] [4,2]", f_matmul, 2, { F(4), F(4, 2) } },
    { "matmul", "[3,4] [4]", f_matmul, 2, { F(3, 4), F(4) } },
    { "matmul", "[4] [4]", f_matmul, 2, { F(4), F(4) } },
    { "matmul", "[2,3,4] [4,2], shared", f_matmul, 2, { F(2, 3, 4), F(4, 2) } },
    { "matmul", "[2,3] [4,3,1]", f_matmul, 2, { F(2, 3), F(4, 3, 1) } },
    { "matmul", "[4] [3,4,2]", f_matmul, 2, { F(4), F(3, 4, 2) } },
    { "matmul", "[2,1,2,3] [2,3,2]", f_matmul, 2, { F(2, 1, 2, 3), F(2, 3, 2) } },
    { "argsort", "columns, descending", f_argsort, 1, { I(0, 3, 5, 2) } },
    { "sort", "rows", f_sort, 1, { F(2, 5) } },
    { "topk", "columns, largest", f_topk, 1, { I(0, 3, 5, 2) } },
    { "which", "nonzero, room enough", f_which, 1, { I(0, 1, 2, 2) } },
    { "which", "nonzero, too little room", f_which_few, 1, { B(6) } },
    { "compress", "a mask for each", f_compress, 2, { F(4), B(4) } },
    { "compress", "unique", f_unique, 1, { I(0, 3, 5) } },
    { "exp max sum div", "softmax", f_softmax, 1, { F(3, 4) } },
    { "log", "log_softmax", f_log_softmax, 1, { F(4, 2) } },
    { "log where any", "cross_entropy", f_cross_entropy, 2, { F(2, 4), I(0, 3, 2) } },
    { "div", "layer_norm", f_layer_norm, 3, { F(3, 5), F(5), F(5) } },
    { "div", "rms_norm", f_rms_norm, 2, { F(3, 5), F(5) } },
    { "matmul", "conv2d, padded, bias", f_conv2d, 3, { F(1, 2, 3, 3), F(3, 2, 2, 2), F(3) } },
    { "matmul", "conv2d, strided, dilated", f_conv2d_strided, 2, { F(1, 2, 4, 5), F(2, 2, 2, 2) } },
    { "matmul", "conv2d, grouped", f_conv2d_grouped, 2, { F(1, 4, 3, 3), F(4, 2, 2, 1) } },
    { "where", "max_pool2d", f_max_pool2d, 1, { F(1, 2, 4, 5) } },
    { "where", "max_pool2d, overlapping", f_max_pool2d_near, 1, { F(1, 2, 4, 3) } },
    { "slice", "avg_pool2d", f_avg_pool2d, 1, { F(2, 1, 4, 4) } },
    { "matmul", "attention", f_attention, 3, { F(2, 3, 2), F(2, 3, 2), F(2, 3, 3) } },
    { "final", "attention, in blocks", f_attention, 3, { F(2, 1), F(130, 1), F(130, 1) } },
    { "mul", "lerp", f_lerp, 3, { F(3), F(2, 3), { DEFT_F64, SCALAR, 0, 1 } } },
    { "carry each next stack final", "scan", f_scan, 3, { F(3), F(4, 3), F(3) } },
    { "carry next final", "scan, a weight seen late", f_scan_late, 1, { F(3) } },
    { "stack final", "scan of none", f_scan, 3, { F(2), F(0, 2), { DEFT_F64, SCALAR, -1, 1 } } },
    { "loop carry each next final", "scan in scan", f_scan_nested, 3, { F(2), F(2, 3, 2), F(2) } },
    { "update next final", "scan that assigns", f_scan_writing, 2, { F(3), F(2) } },
    { "proceed next final",
      "while",
      f_while,
      2,
      { { DEFT_F64, S(2), 0.1, 3 }, { DEFT_F64, S(2), 0.1, 1 } } },
    { "proceed next final", "while, counted", f_while_counted, 2, { F(2), F(2) } },
    { "cond", "both", f_cond, 3, { F(3), F(3), F(2) } },
    { "cond", "the second of two", f_cond_second, 3, { F(3), F(3), F(2) } },
    { "unsqueeze", "custom_grad", f_custom, 2, { F(3), F(3) } },
    { "unsqueeze", "grad_hook", f_hook, 2, { F(3), F(3) } },
    { "unsqueeze", "stop_gradient", f_stop, 1, { F(3) } },
};

/* ---- every op ---- */

/* A draw has no loop to be compared with: example i has row i of one draw of all. */
static void check_draw(void)
{
    const row r = {
        "random", "rows of one draw", f_draw, 1, { { DEFT_F64, { .rank = 1, .dim = { 4 } }, 0, 1 } }
    };
    double zeros[INNER * 4] = { 0 }, got[INNER * 4], want[INNER * 4];
    trial t = { .r = &r, .w = { .inner = 1 } };
    deft_tensor *out[1];
    t.data[0] = (char *)zeros;
    const deft_scope s = deft_scope_begin(cx);
    rng = (deft_rng){ 11, 5 };
    mapped(&t, out);
    check(deft_read(out[0], DEFT_F64, got, sizeof got), &r);
    rng = (deft_rng){ 11, 5 };
    deft_tensor *const all = deft_normal(cx, &rng, DEFT_SHAPE(INNER, 4), DEFT_F64, 0, 1);
    check(deft_read(all, DEFT_F64, want, sizeof want), &r);
    check(deft_scope_end(s), &r);
    memcmp(got, want, sizeof got) ? failed++ : passed++;
    if (memcmp(got, want, sizeof got)) puts("random: not the rows of one draw  WRONG");
}

static const struct {
    const char *op;
    int n_src;
    const char *how, *what;
} rules[] = {
#define OP(name, n, class, facets) { #name, n, facets },
#define BATCH(how, what) #how, #what
#include "ops/ops.def"
};

static bool names(const char *list, const char *op)
{
    const size_t n = strlen(op);
    for (const char *at = list; (at = strstr(at, op)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

static bool has_row(const char *op)
{
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        if (names(maps[i].op, op)) return true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (names(rows[i].op, op)) return true;
    return !strcmp(op, "random");
}

/* The operands that a signature names, and the result. */
static int groups(const char *signature)
{
    int n = 0;
    while ((signature = strchr(signature, '('))) n++, signature++;
    return n;
}

static void check_table(bool table)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        /* That of calls refuses: operators have rules of their own (opaque_programs.c). */
        const bool none = !strcmp(rules[i].how, "rule") &&
                          (!strcmp(rules[i].what, "none") || !strcmp(rules[i].what, "call"));
        if (!strcmp(rules[i].how, "signature") && groups(rules[i].what) != rules[i].n_src + 1) {
            printf("%s: %s is no signature of its operands\n", rules[i].op, rules[i].what);
            failed++;
        }
        if (none && table) printf("%-26s depends on no operand\n", rules[i].op);
        if (none || has_row(rules[i].op)) continue;
        printf("%s has a rule for examples and no row here\n", rules[i].op);
        failed++;
    }
}

/* On a GPU every kernel is compiled anew, so as many rows are run as the time allows. */
static bool goes_on(void)
{
    return !getenv("DEFT_DEVICE") || test_time_left(1);
}

/* The row to run as the i-th of n. Rows near each other are alike: on a GPU they are scattered. */
static size_t nth(size_t i, size_t n)
{
    return getenv("DEFT_DEVICE") ? test_scattered((uint32_t)i, (uint32_t)n) : i;
}

int main(int argc, char **argv)
{
    bool table = false;
    int times = 2;
    deft_tier tier = DEFT_TIER_QUICK;
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--table")) table = true;
        if (!strcmp(argv[i], "--quick")) {
            times = 1;
            tier = DEFT_TIER_INTERPRET;
        }
        if (!strcmp(argv[i], "--full")) times = 20;
        if (!strncmp(argv[i], "--op=", 5)) only = argv[i] + 5;
    }
    const deft_runtime_options o = { .size = sizeof o, .n_threads = 1, .tier = tier };
    if (deft_runtime_create(&o, &rt) != DEFT_OK || deft_ctx_create(rt, NULL, &cx) != DEFT_OK)
        return 1;
    for (int n = 0; n < times; n++) {
        state = (uint64_t)n + 1;
        for (size_t i = 0; i < sizeof maps / sizeof *maps && goes_on(); i++) {
            const map_row *const at = &maps[nth(i, sizeof maps / sizeof *maps)];
            if (!only || names(at->op, only))
                run_map(at, (unsigned)(i + (size_t)n), table && n == 0);
        }
        for (size_t i = 0; i < sizeof rows / sizeof *rows && goes_on(); i++) {
            const row *const at = &rows[nth(i, sizeof rows / sizeof *rows)];
            if (only && !names(at->op, only)) continue;
            run(at, table && n == 0);
            run_in_other(at, (unsigned)(i + (size_t)n), table && n == 0);
        }
    }
    if (!only) {
        check_draw();
        check_table(table);
    }
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    printf("%ld passed, %ld failed; %ld rows in dtypes of their own, %ld refused there\n", passed,
           failed, n_other, n_refused);
    return failed != 0;
}
