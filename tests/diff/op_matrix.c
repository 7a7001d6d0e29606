/* SPDX-License-Identifier: Apache-2.0
 *
 * The op matrix: every public op x every dtype it accepts x layouts x shapes, run on every path and
 * compared bit for bit with the reference, which is the interpreter without fusion.
 *
 *   op_matrix [--quick | --full] [--shard=I/N] [-v] [FILTER]     FILTER: part of "op/dtype"
 *
 * A case is one (op, dtypes, layouts, shape, variant) on all paths. Cases of one op and dtype are
 * recorded together and computed by one deft_eval per batch, so that a compiler sees modules of a
 * useful size. When a path refuses a batch, its cases are run alone to find out which one it was.
 * What a case computes follows from its fields alone; every path therefore sees the same program
 * and the same bytes.
 *
 * The full scale has seven million cases of more than a million combinations of op, dtype, form,
 * layout and rank. Nearly all of its time is the compiler's. So each case has a cut of its own
 * there: in a batch, ops that are made of others share kernels with unrelated cases, each time in
 * another way, and the batches of the whole table would have 475,000 kernels in place of 222,000.
 * The table can be divided: --shard=2/48 runs the second of 48 parts, which together are the
 * whole.
 *
 * The last lines say how many cases there were of each dtype. At full scale every op must have had
 * a case of each dtype that it accepts. Without a limit of time there must be LEAST_AT_FULL cases.
 * Shards are unequal, and each must have half of an equal share. Complex dtypes are no dtypes of a
 * record: complex_matrix.c has those.
 *
 * Operands lie in pools of hard values (zeros of both signs, infinities, NaN, denormals, extreme
 * integers); a layout says how a view of the pool, or of a copy, becomes the operand.
 * Why this file is long: one table of ops by dtype by layout.
 */
#include "ops/dtype.h"
#include "../support/bits.h"
#include "../support/oracle.h"
#include "../support/budget.h"
#include "../support/int_ref.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEN(a) (sizeof(a) / sizeof *(a))
#define ANY_FLOAT (1u << DEFT_F32 | 1u << DEFT_F64 | 1u << DEFT_F16 | 1u << DEFT_BF16)
#define ANY_INT                                                                                    \
    (1u << DEFT_U8 | 1u << DEFT_I32 | 1u << DEFT_I64 | 1u << DEFT_I8 | 1u << DEFT_I16 |            \
     1u << DEFT_U16 | 1u << DEFT_U32 | 1u << DEFT_U64)
#define ANY_NUMBER (ANY_FLOAT | ANY_INT)
#define ANY (ANY_NUMBER | 1u << DEFT_BOOL)
#define INTEGRAL (ANY_INT | 1u << DEFT_BOOL)

/* ---- layouts ---- */

typedef enum layout {
    L_COPY,    /* deft_from: aligned and contiguous */
    L_PADDED,  /* wrapped; rows with gaps, a vector with step 2 */
    L_FLIP,    /* negative steps on all axes */
    L_TURNED,  /* axes in reverse order */
    L_SPREAD,  /* first axis expanded */
    L_ODD,     /* wrapped at an odd address */
    L_NEXT,    /* wrapped one element into the pool */
    L_STEP,    /* a slice with step 3 along the last axis, -2 along the first */
    L_LAST,    /* last axis expanded */
    L_STRIDE0, /* wrapped with stride 0 along the first axis */
    L_MADE,    /* pending: recorded by an op of the same cut */
    N_LAYOUTS
} layout;

static const char *const layout_names[] = { "copy", "padded", "flip", "turned",  "spread", "odd",
                                            "next", "step",   "last", "stride0", "made" };

static bool layout_fits(layout l, const deft_shape *s)
{
    switch (l) {
    case L_COPY:
    case L_NEXT:
    case L_ODD:
    case L_MADE: return true;
    case L_PADDED:
    case L_FLIP:
    case L_SPREAD:
    case L_STEP:
    case L_STRIDE0: return s->rank >= 1;
    case L_TURNED:
    case L_LAST: return s->rank >= 2;
    case N_LAYOUTS: break;
    }
    return false;
}

enum { POOL = 460000, SHIFTS = 20011 };
static char *pool[DF_N_RECORDED], *odd_pool[DF_N_RECORDED];
static char *tame_pool[DF_N_RECORDED], *odd_tame_pool[DF_N_RECORDED];

static char *fill_pool(deft_dtype t, oracle_kind kind)
{
    char *const p = oracle_alloc(POOL * deft_dtype_size(t));
    oracle_fill(t, p, POOL, 77 + (uint64_t)t, kind);
    return p;
}

static char *shifted_copy(deft_dtype t, const char *from)
{
    char *const p = oracle_alloc(POOL * deft_dtype_size(t) + 1);
    memcpy(p + 1, from, POOL * deft_dtype_size(t));
    return p;
}

static void fill_pools(void)
{
    for (int t = 0; t < DF_N_RECORDED; t++) {
        pool[t] = fill_pool((deft_dtype)t, ORACLE_HARD);
        odd_pool[t] = shifted_copy((deft_dtype)t, pool[t]);
        tame_pool[t] = fill_pool((deft_dtype)t, ORACLE_TAME);
        odd_tame_pool[t] = shifted_copy((deft_dtype)t, tame_pool[t]);
    }
}

/* A copy of a pool from an element on. What is longer goes through it again. */
static deft_tensor *copy_at(deft_ctx *cx, deft_dtype t, const char *base, size_t at, deft_shape s)
{
    const size_t size = deft_dtype_size(t), n = (size_t)oracle_numel(&s), whole = POOL - at;
    if (n <= whole) return deft_from(cx, s, t, base + at * size, n * size);
    char *const all = oracle_alloc(n * size);
    for (size_t i = 0; i < n; i += whole)
        memcpy(all + i * size, base + at * size, (n - i < whole ? n - i : whole) * size);
    deft_tensor *const copy = deft_from(cx, s, t, all, n * size);
    free(all);
    return copy;
}

/* Elements from the first to the last of an array with positive strides; NULL: row-major. */
static size_t reach(const deft_shape *s, const int64_t *strides)
{
    int64_t n = 1;
    if (!strides || oracle_numel(s) == 0) return (size_t)oracle_numel(s);
    for (uint32_t i = 0; i < s->rank; i++) n += (s->dim[i] - 1) * strides[i];
    return (size_t)n;
}

/* Wraps a pool, or copies what does not fit in it. */
static deft_tensor *wrap_at(deft_ctx *cx, deft_dtype t, const char *base, size_t at, deft_shape s,
                            const int64_t *strides)
{
    const size_t size = deft_dtype_size(t);
    if (reach(&s, strides) > POOL - at) return copy_at(cx, t, base, at, s);
    return deft_wrap(cx, s, t, base + at * size, (POOL - at) * size, strides);
}

static deft_tensor *operand_of(deft_ctx *cx, deft_dtype t, layout l, deft_shape s, uint32_t seed,
                               bool tame)
{
    const char *const base = tame ? tame_pool[t] : pool[t];
    const size_t at = (seed * 977u) % SHIFTS;
    const uint32_t last = s.rank ? s.rank - 1 : 0;
    deft_shape b = s;
    int64_t stride[DEFT_MAX_RANK];
    deft_range r[DEFT_MAX_RANK];
    switch (l) {
    case L_COPY: return copy_at(cx, t, base, at, s);
    case L_NEXT: return wrap_at(cx, t, base, at | 1, s, NULL);
    case L_ODD: return wrap_at(cx, t, (tame ? odd_tame_pool[t] : odd_pool[t]) + 1, at, s, NULL);
    case L_PADDED: {
        int64_t by = s.rank == 1 ? 2 : 1;
        for (uint32_t i = s.rank; i-- > 0;) {
            stride[i] = by;
            by *= s.dim[i] + (i == last && s.rank > 1 ? 3 : 0);
        }
        return wrap_at(cx, t, base, at, s, stride);
    }
    case L_FLIP: return deft_flip(operand_of(cx, t, L_COPY, s, seed, tame), DEFT_ALL_AXES);
    case L_TURNED: {
        deft_axes order = { .n = s.rank };
        for (uint32_t i = 0; i < s.rank; i++) {
            b.dim[i] = s.dim[last - i];
            order.at[i] = (int32_t)(last - i);
        }
        return deft_permute(operand_of(cx, t, L_COPY, b, seed, tame), order);
    }
    case L_SPREAD: b.dim[0] = 1; return deft_expand(operand_of(cx, t, L_COPY, b, seed, tame), s);
    case L_LAST: b.dim[last] = 1; return deft_expand(operand_of(cx, t, L_COPY, b, seed, tame), s);
    case L_STRIDE0: {
        int64_t by = 1;
        for (uint32_t i = s.rank; i-- > 0;) {
            stride[i] = i ? by : 0;
            by *= s.dim[i];
        }
        return wrap_at(cx, t, base, at, s, stride);
    }
    case L_STEP:
        for (uint32_t i = 0; i < s.rank; i++) r[i] = DEFT_FULL;
        b.dim[last] = s.dim[last] * 3;
        r[last] = DEFT_RS(0, DEFT_END, 3);
        if (last > 0) {
            b.dim[0] = s.dim[0] * 2;
            r[0] = DEFT_RS(-1, DEFT_END, -2);
        }
        return deft_slice_n(operand_of(cx, t, L_COPY, b, seed, tame), s.rank, r);
    case L_MADE: {
        deft_tensor *const x = operand_of(cx, t, L_COPY, s, seed, tame);
        return deft_where(operand_of(cx, DEFT_BOOL, L_COPY, s, seed + 1, tame), x,
                          operand_of(cx, t, L_COPY, s, seed + 2, tame));
    }
    case N_LAYOUTS: break;
    }
    return NULL;
}

/* ---- cases ---- */

typedef struct kase {
    uint16_t op;
    uint8_t t;          /* dtype of the first operand */
    uint8_t lay, lay_b; /* of the first and the second operand */
    uint8_t variant;
    deft_shape s;
    uint32_t seed;
} kase;

static char skip_mark;
#define SKIP ((deft_tensor *)(void *)&skip_mark)

typedef deft_tensor *record_fn(deft_ctx *cx, const kase *k);
typedef deft_tensor *unary_fn(deft_tensor *);
typedef deft_tensor *binary_fn(deft_tensor *, deft_tensor *);
typedef deft_tensor *binary_f_fn(deft_tensor *, double);
typedef deft_tensor *binary_i_fn(deft_tensor *, int64_t);
typedef deft_tensor *binary_u_fn(deft_tensor *, uint64_t);

typedef struct op_row {
    const char *name;
    unsigned dtypes;
    unary_fn *unary;
    binary_fn *binary;
    binary_f_fn *number_f;
    binary_i_fn *number_i;
    binary_u_fn *number_u;
    record_fn *record; /* the others */
    uint8_t n_variants;
    uint8_t min_rank, max_rank;
    bool no_operand; /* layouts have no meaning */
} op_row;

static deft_tensor *operand(deft_ctx *cx, const kase *k)
{
    return operand_of(cx, (deft_dtype)k->t, (layout)k->lay, k->s, k->seed, false);
}

static deft_tensor *tame_operand(deft_ctx *cx, const kase *k)
{
    return operand_of(cx, (deft_dtype)k->t, (layout)k->lay, k->s, k->seed, true);
}

static deft_tensor *second(deft_ctx *cx, const kase *k, deft_dtype t, deft_shape s)
{
    return operand_of(cx, t, (layout)k->lay_b, s, k->seed + 13, false);
}

static deft_shape shape1(int64_t a)
{
    return (deft_shape){ .rank = 1, .dim = { a } };
}
static deft_shape shape2(int64_t a, int64_t b)
{
    return (deft_shape){ .rank = 2, .dim = { a, b } };
}
static bool is_float(unsigned t)
{
    return ANY_FLOAT >> t & 1;
}

/* What a reduction that needs an element refuses. */
static bool has_zero(const deft_shape *s)
{
    for (uint32_t i = 0; i < s->rank; i++)
        if (s->dim[i] == 0) return true;
    return false;
}

/* ---- binary forms: what stands on the right ---- */

enum {
    B_SAME_SHAPE,
    B_SELF,
    B_SCALAR,
    B_LEFT_SCALAR,
    B_COLUMN,
    B_ROW,
    B_OTHER_DTYPE,
    B_LEFT_NUM,
    B_LEFT_NUM_I,
    B_F, /* numbers follow */
    B_I = B_F + 8,
    B_U = B_I + 8,
    N_BINARY
};
static const double numbers_f[8] = { 0.5, -1, 0, 2, -0.0, 3.25, INFINITY, NAN };
static const int64_t numbers_i[8] = { 0, 1, 2, 3, 7, -1, 31, 64 };

static deft_tensor *record_binary(deft_ctx *cx, const op_row *o, const kase *k)
{
    const deft_dtype t = (deft_dtype)k->t;
    deft_shape s = k->s;
    const unsigned v = k->variant;
    if (v == B_U) {
        if (t != DEFT_U64 && t != DEFT_F64) return SKIP;
        return o->number_u(operand(cx, k), UINT64_MAX - k->seed % 3);
    }
    if (v >= B_I) {
        const int64_t n = numbers_i[v - B_I];
        if (n < 0 && int_ref_is_unsigned(t)) return SKIP;
        if (n < 0 && o->number_i == deft_pow_i && INTEGRAL >> t & 1) return SKIP; /* a mistake */
        return o->number_i(operand(cx, k), n);
    }
    if (v >= B_F) {
        /* bits and shifts refuse the f32 that a fractional number makes of an integer */
        if (!(o->dtypes & 1u << DEFT_F32)) return SKIP;
        return o->number_f(operand(cx, k), numbers_f[v - B_F]);
    }
    switch (v) {
    case B_SAME_SHAPE: return o->binary(operand(cx, k), second(cx, k, t, s));
    case B_SELF: {
        deft_tensor *const x = operand(cx, k);
        return o->binary(x, x);
    }
    case B_SCALAR:
        return o->binary(operand(cx, k),
                         operand_of(cx, t, L_COPY, (deft_shape){ 0 }, k->seed + 3, false));
    case B_LEFT_SCALAR:
        return o->binary(operand_of(cx, t, L_NEXT, (deft_shape){ 0 }, k->seed + 5, false),
                         operand(cx, k));
    case B_COLUMN:
        if (s.rank < 2) return SKIP;
        s.dim[s.rank - 1] = 1;
        return o->binary(operand(cx, k), operand_of(cx, t, L_COPY, s, k->seed + 7, false));
    case B_ROW:
        if (s.rank < 2) return SKIP;
        s = shape1(s.dim[s.rank - 1]);
        return o->binary(operand_of(cx, t, L_COPY, s, k->seed + 9, false), operand(cx, k));
    case B_OTHER_DTYPE: {
        const deft_dtype u = (deft_dtype)((t + 1 + k->seed % (DF_N_RECORDED - 1)) % DF_N_RECORDED);
        if (!(o->dtypes & 1u << u) || !(o->dtypes & 1u << deft_promote(t, u))) return SKIP;
        return o->binary(operand(cx, k), second(cx, k, u, s));
    }
    case B_LEFT_NUM:
        if (!(o->dtypes & 1u << DEFT_F32)) return SKIP;
        return o->binary(deft_num(cx, -1.5), operand(cx, k));
    case B_LEFT_NUM_I: return o->binary(deft_num_i(cx, 3), operand(cx, k));
    }
    return SKIP;
}

/* ---- the other ops ---- */

static deft_tensor *r_cast(deft_ctx *cx, const kase *k)
{
    return deft_cast(operand(cx, k), (deft_dtype)k->variant);
}

static deft_tensor *r_cast_twice(deft_ctx *cx, const kase *k)
{
    return deft_cast(deft_cast(operand(cx, k), (deft_dtype)(k->variant / DF_N_RECORDED)),
                     (deft_dtype)(k->variant % DF_N_RECORDED));
}

static deft_tensor *r_where(deft_ctx *cx, const kase *k)
{
    const deft_dtype t = (deft_dtype)k->t, u = (deft_dtype)((t + k->variant) % DF_N_RECORDED);
    if (deft_promote(t, u) == DEFT_N_DTYPES) return SKIP;
    deft_tensor *const c =
        operand_of(cx, k->variant & 1 ? u : DEFT_BOOL, (layout)k->lay_b, k->s, k->seed + 1, false);
    return deft_where(c, operand(cx, k),
                      k->variant == 2 ? operand_of(cx, t, L_COPY, (deft_shape){ 0 }, k->seed, false)
                                      : second(cx, k, u, k->s));
}

static deft_tensor *r_clamp(deft_ctx *cx, const kase *k)
{
    static const double bounds[4][2] = { { 0, 3 }, { 1, 1 }, { 5, 2 }, { 0, 120 } };
    deft_tensor *const x = operand(cx, k);
    if (k->variant < 4) return deft_clamp(x, bounds[k->variant][0], bounds[k->variant][1]);
    if (!is_float(k->t)) return SKIP;
    return k->variant == 4 ? deft_clamp(x, -INFINITY, 0.5) : deft_clamp(x, -0.0, INFINITY);
}

static deft_tensor *r_clamp_t(deft_ctx *cx, const kase *k)
{
    const deft_dtype t = (deft_dtype)k->t;
    deft_tensor *const x = operand(cx, k), *const low = second(cx, k, t, k->s);
    deft_tensor *const high = operand_of(cx, t, L_COPY, (deft_shape){ 0 }, k->seed + 4, false);
    return deft_clamp_t(x, k->variant == 1 ? NULL : low, k->variant == 2 ? NULL : high);
}

static deft_tensor *r_lerp(deft_ctx *cx, const kase *k)
{
    const deft_dtype t = (deft_dtype)k->t;
    deft_tensor *const a = operand(cx, k), *const b = second(cx, k, t, k->s);
    switch (k->variant) {
    case 0: return deft_lerp(a, b, operand_of(cx, t, L_COPY, k->s, k->seed + 2, false));
    case 1: return deft_lerp_f(a, b, 0.3);
    case 2: return deft_lerp_i(a, b, 1);
    default: return deft_lerp_f(a, b, -2);
    }
}

/* The axis lists of reductions: 0 all, 1 first, 2 last, 3 first and last, 4 second, 5 none; + 6:
 * keepdims. */
static bool axes_of(const kase *k, deft_axes *out)
{
    const unsigned which = k->variant % 6;
    const uint32_t rank = k->s.rank;
    *out = (deft_axes){ 0 };
    switch (which) {
    case 0: *out = DEFT_ALL_AXES; return true;
    case 1: out->n = 1; return rank >= 1;
    case 2:
        out->n = 1;
        out->at[0] = -1;
        return rank >= 2;
    case 3:
        out->n = 2;
        out->at[1] = -1;
        return rank >= 3;
    case 4:
        out->n = 1;
        out->at[0] = 1;
        return rank >= 3;
    default: return k->variant < 6;
    }
}

#define REDUCTION(name, needs)                                                                     \
    static deft_tensor *r_##name(deft_ctx *cx, const kase *k)                                      \
    {                                                                                              \
        deft_axes axes;                                                                            \
        if (!axes_of(k, &axes) || (needs && has_zero(&k->s))) return SKIP;                         \
        return deft_##name(operand(cx, k), axes, k->variant >= 6);                                 \
    }                                                                                              \
    static deft_tensor *r_##name##_map(deft_ctx *cx, const kase *k)                                \
    {                                                                                              \
        deft_axes axes;                                                                            \
        if (!axes_of(k, &axes) || (needs && has_zero(&k->s))) return SKIP;                         \
        deft_tensor *const x = tame_operand(cx, k);                                                \
        deft_tensor *const y =                                                                     \
            deft_where(deft_lt_f(x, 1), x, deft_cast(deft_abs(x), (deft_dtype)k->t));              \
        return deft_add_f(deft_##name(y, axes, k->variant >= 6), 0.5);                             \
    }
REDUCTION(sum, false)
REDUCTION(prod, false)
REDUCTION(min, true)
REDUCTION(max, true)
REDUCTION(mean, false)
REDUCTION(any, false)
REDUCTION(all, false)
REDUCTION(argmin, true)
REDUCTION(argmax, true)

static deft_tensor *r_var(deft_ctx *cx, const kase *k)
{
    deft_axes axes;
    if (!axes_of(k, &axes)) return SKIP;
    return deft_var(k->seed & 1 ? operand(cx, k) : tame_operand(cx, k), axes, k->variant >= 6,
                    (int)(k->seed >> 1 & 1));
}

static deft_tensor *r_cumsum(deft_ctx *cx, const kase *k)
{
    if (k->variant && k->s.rank < 2) return SKIP;
    return deft_cumsum(operand(cx, k), k->variant == 0 ? -1 : 0);
}

static deft_tensor *r_fma(deft_ctx *cx, const kase *k)
{
    deft_tensor *const x = operand(cx, k), *const y = second(cx, k, (deft_dtype)k->t, k->s);
    return k->variant ? deft_fma(x, y, x) : deft_fma(deft_num(cx, 0.5), x, y);
}

static deft_tensor *r_nan(deft_ctx *cx, const kase *k)
{
    deft_axes axes;
    const bool keep = k->seed & 1;
    if (!axes_of(k, &axes) || has_zero(&k->s)) return SKIP;
    deft_tensor *const x = operand(cx, k);
    switch (k->seed >> 1 & 7) {
    case 0: return deft_nansum(x, axes, keep);
    case 1: return deft_nanprod(x, axes, keep);
    case 2: return deft_nanmin(x, axes, keep);
    case 3: return deft_nanmax(x, axes, keep);
    case 4: return deft_nanmean(x, axes, keep);
    case 5: return deft_nanvar(x, axes, keep, 1);
    case 6: return deft_nanstd(x, axes, keep, 0);
    default: return deft_vector_norm(x, k->seed & 16 ? 2 : 1, axes, keep);
    }
}

static deft_tensor *r_middle(deft_ctx *cx, const kase *k)
{
    const int axis = k->variant & 1 ? 0 : -1;
    deft_tensor *const x = operand(cx, k);
    if (has_zero(&k->s)) return SKIP;
    return k->variant & 2 ? deft_median(x, axis, k->seed & 1)
                          : deft_quantile(x, 0.3, axis, k->seed & 1);
}

static deft_tensor *r_logcumsumexp(deft_ctx *cx, const kase *k)
{
    return deft_logcumsumexp(tame_operand(cx, k), k->variant ? 0 : -1);
}

static deft_tensor *r_logsumexp(deft_ctx *cx, const kase *k)
{
    deft_axes axes;
    if (!axes_of(k, &axes)) return SKIP;
    return deft_logsumexp(k->seed & 1 ? operand(cx, k) : tame_operand(cx, k), axes,
                          k->variant >= 6);
}

static deft_tensor *r_histogram(deft_ctx *cx, const kase *k)
{
    const float edge[4] = { -2, 0, 0.5f, 9 };
    deft_tensor *const x = operand(cx, k);
    if (k->variant) return deft_histc(x, 7, -3, 3);
    return deft_histogram(x, deft_from(cx, shape1(4), DEFT_F32, edge, sizeof edge));
}

static deft_tensor *r_cumprod(deft_ctx *cx, const kase *k)
{
    if (k->variant && k->s.rank < 2) return SKIP;
    return deft_cumprod(operand(cx, k), k->variant == 0 ? -1 : 0);
}

static deft_tensor *r_cummin(deft_ctx *cx, const kase *k)
{
    if (k->variant && k->s.rank < 2) return SKIP;
    return deft_cummin(operand(cx, k), k->variant == 0 ? -1 : 0);
}

static deft_tensor *r_cummax(deft_ctx *cx, const kase *k)
{
    if (k->variant && k->s.rank < 2) return SKIP;
    return deft_cummax(operand(cx, k), k->variant == 0 ? -1 : 0);
}

static deft_tensor *r_cumulative(deft_ctx *cx, const kase *k)
{
    deft_tensor *const x = operand(cx, k);
    const int axis = k->variant & 1 ? 0 : -1;
    return k->variant & 2 ? deft_cumulative_prod(x, axis, true)
                          : deft_cumulative_sum(x, axis, true);
}

static deft_tensor *r_std(deft_ctx *cx, const kase *k)
{
    deft_axes axes;
    if (!axes_of(k, &axes)) return SKIP;
    return deft_std(k->seed & 1 ? operand(cx, k) : tame_operand(cx, k), axes, k->variant >= 6,
                    (int)(k->seed >> 1 & 1));
}

static deft_tensor *r_softmax(deft_ctx *cx, const kase *k)
{
    if (has_zero(&k->s)) return SKIP;
    deft_tensor *const x = k->variant & 2 ? operand(cx, k) : tame_operand(cx, k);
    return deft_softmax(x, k->variant & 1 ? 0 : -1);
}

static deft_tensor *r_log_softmax(deft_ctx *cx, const kase *k)
{
    if (has_zero(&k->s)) return SKIP;
    deft_tensor *const x = k->variant & 2 ? operand(cx, k) : tame_operand(cx, k);
    return deft_log_softmax(x, k->variant & 1 ? 0 : -1);
}

static deft_tensor *r_layer_norm(deft_ctx *cx, const kase *k)
{
    if (k->variant >= 2 && k->s.rank < 2) return SKIP;
    deft_tensor *const x = tame_operand(cx, k);
    const deft_shape g = shape1(k->s.dim[k->s.rank - 1]);
    deft_tensor *const gain = operand_of(cx, (deft_dtype)k->t, L_COPY, g, k->seed + 1, true);
    deft_tensor *const bias = operand_of(cx, (deft_dtype)k->t, L_NEXT, g, k->seed + 2, true);
    const uint32_t axes = k->variant >= 2 ? 2 : 1;
    return k->variant & 1 ? deft_layer_norm(x, axes, gain, bias, 1e-5)
                          : deft_layer_norm(x, axes, NULL, k->seed & 1 ? bias : NULL, 1e-3);
}

static deft_tensor *indices_to(deft_ctx *cx, deft_dtype t, deft_shape s, int64_t n, uint32_t seed)
{
    char data[8 * 4096];
    const size_t count = (size_t)oracle_numel(&s);
    if (count > sizeof data / 8 || n == 0) return SKIP;
    if (t == DEFT_I8 && n > 120) n = 120;
    uint64_t state = seed;
    for (size_t i = 0; i < count; i++) {
        int64_t wide = (int64_t)(oracle_next(&state) % (uint64_t)n);
        if (int_ref_is_signed(t) && state & 64) wide -= n;
        int_ref_put(t, data, i, wide);
    }
    return deft_from(cx, s, t, data, count * deft_dtype_size(t));
}

/* The dtypes of indices. */
static deft_dtype index_dtype(unsigned i)
{
#define ROW(dtype, T, U, bits) dtype,
    static const deft_dtype all[] = { INT_REF_TYPES(ROW) };
#undef ROW
    return all[i % LEN(all)];
}

static deft_tensor *r_cross_entropy(deft_ctx *cx, const kase *k)
{
    if (k->s.dim[1] == 0) return SKIP;
    deft_tensor *const l = indices_to(cx, index_dtype(k->variant + k->seed), shape1(k->s.dim[0]),
                                      k->s.dim[1], k->seed);
    if (l == SKIP) return SKIP;
    /* labels: one may lie outside and gives NaN */
    return deft_cross_entropy(tame_operand(cx, k), k->variant % 3 ? deft_abs(l) : l);
}

/* Views; the last op makes them elementwise users' operands, so that the view is an index map. */
static deft_tensor *used(deft_tensor *t, const kase *k)
{
    return k->seed & 1 || k->t == DEFT_BOOL || !t ? t : deft_add(t, t);
}

static deft_tensor *r_slice(deft_ctx *cx, const kase *k)
{
    const int64_t n = k->s.dim[0], m = k->s.rank > 1 ? k->s.dim[1] : 0;
    deft_tensor *const x = operand(cx, k);
    switch (k->variant) {
    case 0: return used(deft_slice(x, DEFT_RS(n / 3, n, 1)), k);
    case 1: return used(deft_slice(x, DEFT_RS(0, DEFT_END, 2)), k);
    case 2: return used(deft_slice(x, DEFT_RS(-1, DEFT_END, -3)), k);
    case 3: return n ? used(deft_slice(x, DEFT_AT(n / 2)), k) : SKIP;
    case 4: return used(deft_slice(x, DEFT_R(n / 2, n / 2)), k);
    case 5:
        return k->s.rank < 2 ? SKIP
                             : used(deft_slice(x, DEFT_FULL, DEFT_RS(m / 2, DEFT_END, 3)), k);
    case 6:
        return k->s.rank < 2 ? SKIP
                             : used(deft_slice(x, DEFT_FLIP, DEFT_RS(DEFT_END, DEFT_END, -2)), k);
    case 7:
        return k->s.rank < 2 || !m ? SKIP : used(deft_slice(x, DEFT_RS(0, n, 4), DEFT_AT(-1)), k);
    default:
        return k->s.rank < 2 || !n || !m ? SKIP : used(deft_slice(x, DEFT_AT(0), DEFT_FULL), k);
    }
}

static deft_tensor *r_reshape(deft_ctx *cx, const kase *k)
{
    const int64_t n = oracle_numel(&k->s);
    deft_tensor *const x = operand(cx, k);
    switch (k->variant) {
    case 0: return used(deft_flatten(x), k);
    case 1: return used(deft_reshape(x, shape2(1, n)), k);
    case 2: return used(deft_reshape(x, shape2(n, 1)), k);
    case 3: return n % 3 || !n ? SKIP : used(deft_reshape(x, DEFT_SHAPE(-1, 3)), k);
    case 4: return n % 5 || !n ? SKIP : used(deft_reshape(x, DEFT_SHAPE(5, 1, -1)), k);
    case 5: return n % 17 || !n ? SKIP : used(deft_reshape(deft_flatten(x), DEFT_SHAPE(17, -1)), k);
    default: return k->s.rank < 2 ? SKIP : used(deft_flatten(deft_t(x)), k);
    }
}

static deft_tensor *r_permute(deft_ctx *cx, const kase *k)
{
    deft_tensor *const x = operand(cx, k);
    switch (k->variant) {
    case 0: return used(deft_t(x), k);
    case 1: return used(deft_transpose(x, 0, -1), k);
    case 2: return k->s.rank != 3 ? SKIP : used(deft_permute(x, DEFT_AXES(1, 2, 0)), k);
    case 3: return k->s.rank != 3 ? SKIP : used(deft_permute(x, DEFT_AXES(2, 0, 1)), k);
    default: return used(deft_t(deft_flip(x, DEFT_AXES(0))), k);
    }
}

static deft_tensor *r_expand(deft_ctx *cx, const kase *k)
{
    deft_tensor *const x = operand(cx, k);
    deft_shape s = k->s;
    if (k->variant == 0) { /* one more axis in front */
        if (s.rank == DEFT_MAX_RANK) return SKIP;
        memmove(s.dim + 1, s.dim, s.rank * sizeof *s.dim);
        s.rank++;
        s.dim[0] = 3;
        return used(deft_expand(x, s), k);
    }
    memmove(s.dim + 1, s.dim, s.rank * sizeof *s.dim);
    s.rank++;
    s.dim[0] = k->variant == 1 ? 0 : 1;
    return used(deft_expand(x, s), k);
}

static deft_tensor *r_squeeze(deft_ctx *cx, const kase *k)
{
    deft_tensor *const x = deft_unsqueeze(operand(cx, k), k->variant & 1 ? -1 : 0);
    return used(k->variant < 2 ? x : deft_squeeze(x, DEFT_ALL_AXES), k);
}

static deft_tensor *r_flip(deft_ctx *cx, const kase *k)
{
    deft_tensor *const x = operand(cx, k);
    return used(deft_flip(x, k->variant ? DEFT_ALL_AXES : DEFT_AXES(-1)), k);
}

static deft_tensor *r_diagonal(deft_ctx *cx, const kase *k)
{
    static const int64_t offset[5] = { 0, 1, -2, 100, -100 };
    deft_tensor *const x = operand(cx, k);
    return used(
        deft_diagonal(x, offset[k->variant % 5], k->variant < 5 ? 0 : -1, k->variant < 5 ? 1 : 0),
        k);
}

static deft_tensor *r_concat(deft_ctx *cx, const kase *k)
{
    const deft_dtype t = (deft_dtype)k->t;
    const int axis = k->variant & 1 ? -1 : 0;
    deft_shape other = k->s;
    other.dim[axis < 0 ? k->s.rank - 1 : 0] = k->variant < 4 ? 5 : 0;
    deft_tensor *const x = operand(cx, k);
    deft_tensor *const part[4] = {
        x, second(cx, k, k->variant & 2 ? (deft_dtype)((t + 1) % DF_N_RECORDED) : t, other),
        operand_of(cx, t, L_COPY, k->s, k->seed + 5, false), x
    };
    return used(deft_concat(part, k->variant < 6 ? 4 : 1, axis), k);
}

static deft_tensor *r_stack(deft_ctx *cx, const kase *k)
{
    deft_tensor *const x = operand(cx, k);
    deft_tensor *const part[3] = { x, second(cx, k, (deft_dtype)k->t, k->s), x };
    return used(deft_stack(part, 3,
                           k->variant == 0   ? 0
                           : k->variant == 1 ? -1
                                             : (int)(k->s.rank / 2)),
                k);
}

static deft_tensor *r_split(deft_ctx *cx, const kase *k)
{
    const int axis = k->variant & 1 ? -1 : 0;
    const int64_t n = k->s.dim[axis < 0 ? k->s.rank - 1 : 0];
    const int64_t sizes[3] = { n / 3, n / 4, n - n / 3 - n / 4 };
    deft_tensor *out[3];
    if (deft_split(operand(cx, k), sizes, 3, axis, out) != DEFT_OK) return NULL;
    deft_tensor *const back[3] = { out[2], out[0], out[1] };
    return k->variant < 2 ? used(out[k->variant], k) : deft_concat(back, 3, axis);
}

static deft_tensor *r_pad(deft_ctx *cx, const kase *k)
{
    const deft_pad_mode mode = (deft_pad_mode)(k->variant % 4);
    int64_t before[DEFT_MAX_RANK], after[DEFT_MAX_RANK];
    for (uint32_t i = 0; i < k->s.rank; i++) {
        const int64_t n = k->s.dim[i];
        const int64_t most = mode == DEFT_PAD_CONSTANT || (mode == DEFT_PAD_EDGE && n) ? 3
                             : mode == DEFT_PAD_REFLECT                                ? n - 1
                             : mode == DEFT_PAD_WRAP                                   ? n
                                                                                       : 0;
        before[i] = most > 3 ? 3 : most < 0 ? 0 : most;
        after[i] = k->variant < 4 || most < 1 ? 0 : (most > 2 ? 2 : most);
        if (k->variant >= 4 && i == 0) before[i] = 0;
    }
    return used(deft_pad(operand(cx, k), before, after, mode, k->t == DEFT_BOOL ? 1 : 7), k);
}

static deft_tensor *r_roll(deft_ctx *cx, const kase *k)
{
    static const int64_t by[4] = { 1, -2, 1000003, 0 };
    return used(deft_roll(operand(cx, k), by[k->variant], k->variant & 1 ? 0 : -1), k);
}

static deft_tensor *r_tri(deft_ctx *cx, const kase *k)
{
    static const int64_t diagonal[3] = { 0, 2, -1 };
    deft_tensor *const x = operand(cx, k);
    return k->variant < 3 ? deft_tril(x, diagonal[k->variant])
                          : deft_triu(x, diagonal[k->variant - 3]);
}

static deft_tensor *r_take(deft_ctx *cx, const kase *k)
{
    const int axis = k->variant & 1 ? -1 : 0;
    const int64_t n = k->s.dim[axis < 0 ? k->s.rank - 1 : 0];
    const deft_shape s = k->variant < 2   ? shape1(19)
                         : k->variant < 4 ? shape2(3, 4)
                                          : (deft_shape){ 0 };
    deft_tensor *const i = indices_to(cx, index_dtype(k->seed), s, n > 200 ? 200 : n, k->seed);
    return i == SKIP ? SKIP : used(deft_take(operand(cx, k), i, axis), k);
}

static deft_tensor *r_gather(deft_ctx *cx, const kase *k)
{
    const int axis = k->variant & 1 ? -1 : 0;
    const uint32_t at = axis < 0 ? k->s.rank - 1 : 0;
    deft_shape s = k->s;
    const int64_t n = s.dim[at];
    if (k->variant >= 2)
        for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = (s.dim[i] + 1) / 2;
    s.dim[at] = n ? 7 : 0;
    deft_tensor *const i =
        indices_to(cx, index_dtype(k->seed), s, n ? (n > 200 ? 200 : n) : 1, k->seed);
    return i == SKIP ? SKIP : used(deft_gather(operand(cx, k), i, axis), k);
}

/* Into the operand, at positions that repeat; values are of the operand in some variants. */
static deft_tensor *r_index_add(deft_ctx *cx, const kase *k)
{
    const int axis = k->variant & 1 ? -1 : 0;
    const int64_t n = k->s.dim[axis < 0 ? k->s.rank - 1 : 0];
    const deft_shape s = k->variant < 2   ? shape1(19)
                         : k->variant < 4 ? shape2(3, 4)
                                          : (deft_shape){ 0 };
    deft_tensor *const i = indices_to(cx, index_dtype(k->seed), s, n > 200 ? 200 : n, k->seed);
    if (i == SKIP) return SKIP;
    deft_tensor *const x = operand(cx, k), *const same = deft_take(x, i, axis);
    deft_tensor *const v =
        k->variant & 2 ? same : second(cx, k, deft_dtype_of(x), deft_shape_get(same));
    return used(deft_index_add(x, i, v, axis), k);
}

/* Reductions of slices, and of single values in every second variant. */
static deft_tensor *r_scatter_reduce(deft_ctx *cx, const kase *k)
{
    const int axis = k->variant & 1 ? -1 : 0;
    const int64_t n = k->s.dim[axis < 0 ? k->s.rank - 1 : 0];
    deft_tensor *const x = operand(cx, k);
    const deft_scatter_how how = (deft_scatter_how)(k->variant / 4);
    deft_shape s = shape1(11);
    if (k->variant & 2) {
        s = k->s;
        s.dim[axis < 0 ? s.rank - 1 : 0] = n ? 7 : 0;
    }
    deft_tensor *const i = indices_to(cx, index_dtype(k->seed), s, n > 200 ? 200 : n, k->seed);
    if (i == SKIP) return SKIP;
    if (k->variant & 2) {
        deft_tensor *const v = second(cx, k, deft_dtype_of(x), s);
        return used(deft_scatter_reduce(x, i, v, axis, how, k->seed & 1), k);
    }
    deft_tensor *const v = second(cx, k, deft_dtype_of(x), deft_shape_get(deft_take(x, i, axis)));
    return used(deft_index_reduce(x, i, v, axis, how, k->seed & 1), k);
}

static deft_tensor *r_scatter(deft_ctx *cx, const kase *k)
{
    const int axis = k->variant & 1 ? -1 : 0;
    const int64_t n = k->s.dim[axis < 0 ? k->s.rank - 1 : 0];
    deft_tensor *const x = operand(cx, k);
    deft_shape s = k->variant & 2 ? k->s : shape1(11);
    if (k->variant & 2) s.dim[axis < 0 ? s.rank - 1 : 0] = n ? 7 : 0;
    deft_tensor *const i = indices_to(cx, index_dtype(k->seed), s, n > 200 ? 200 : n, k->seed);
    if (i == SKIP) return SKIP;
    if (k->variant & 2)
        return used(deft_scatter(x, i, second(cx, k, deft_dtype_of(x), s), axis), k);
    deft_tensor *const v = second(cx, k, deft_dtype_of(x), deft_shape_get(deft_take(x, i, axis)));
    return used(deft_index_copy(x, i, v, axis), k);
}

static deft_tensor *r_scatter_add(deft_ctx *cx, const kase *k)
{
    const int axis = k->variant & 1 ? -1 : 0;
    const uint32_t at = axis < 0 ? k->s.rank - 1 : 0;
    deft_shape s = k->s;
    const int64_t n = s.dim[at];
    if (k->variant >= 2)
        for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = (s.dim[i] + 1) / 2;
    s.dim[at] = n ? 7 : 0;
    deft_tensor *const i = indices_to(cx, DEFT_I64, s, n ? n : 1, k->seed);
    if (i == SKIP) return SKIP;
    deft_tensor *const x = operand(cx, k);
    deft_tensor *const v = k->variant == 3 ? deft_num_i(cx, 1) : second(cx, k, deft_dtype_of(x), s);
    return used(deft_scatter_add(x, i, v, axis), k);
}

static deft_tensor *r_sort(deft_ctx *cx, const kase *k)
{
    if (k->variant & 1 && k->s.rank < 2) return SKIP;
    return used(deft_sort(operand(cx, k), k->variant & 1 ? 0 : -1, k->variant >> 1), k);
}

static deft_tensor *r_argsort(deft_ctx *cx, const kase *k)
{
    if (k->variant & 1 && k->s.rank < 2) return SKIP;
    return deft_argsort(operand(cx, k), k->variant & 1 ? 0 : -1, k->variant >> 1);
}

static deft_tensor *r_topk(deft_ctx *cx, const kase *k)
{
    deft_tensor *at;
    if (k->variant & 1 && k->s.rank < 2) return SKIP;
    const int axis = k->variant & 1 ? 0 : (int)k->s.rank - 1;
    const int64_t n = k->s.dim[axis];
    const int64_t some = k->variant & 4 ? n / 9 : (n + 1) / 2;
    deft_tensor *const t = deft_topk(operand(cx, k), some, axis, k->variant >> 1 & 1, &at);
    return k->variant & 4 ? at : used(t, k);
}

/* Room for some, for all, for more. The count takes part in half of the variants. */
static deft_tensor *with_count(const kase *k, deft_tensor *t, deft_tensor *count)
{
    return k->variant & 1 ? deft_add(deft_cast(t, DEFT_F64), deft_cast(count, DEFT_F64)) : t;
}

static int64_t room(const kase *k)
{
    const int64_t n = oracle_numel(&k->s);
    return k->variant < 2 ? n / 3 : k->variant < 4 ? n : n + 70;
}

static deft_tensor *r_nonzero(deft_ctx *cx, const kase *k)
{
    deft_tensor *n;
    deft_tensor *const t = deft_nonzero(operand(cx, k), room(k), &n);
    return with_count(k, t, n);
}

static deft_tensor *r_compress(deft_ctx *cx, const kase *k)
{
    deft_tensor *n;
    deft_tensor *const mask = operand_of(cx, DEFT_BOOL, L_COPY, k->s, k->seed + 1, false);
    deft_tensor *const t = deft_compress(operand(cx, k), mask, room(k), &n);
    return with_count(k, t, n);
}

static deft_tensor *r_unique(deft_ctx *cx, const kase *k)
{
    deft_tensor *n;
    deft_tensor *const t = deft_unique(operand(cx, k), room(k), &n);
    return with_count(k, t, n);
}

static deft_tensor *r_shift(deft_ctx *cx, const kase *k)
{
    int64_t by[DEFT_MAX_RANK] = { 0 };
    if (has_zero(&k->s)) return SKIP;
    by[0] = k->s.dim[0] > 1 ? 1 : 0;
    by[k->s.rank - 1] = k->s.dim[k->s.rank - 1] > 1 ? -1 : 0;
    return used(deft_shift(operand(cx, k), by, (deft_pad_mode)k->variant, k->t == DEFT_BOOL), k);
}

static deft_tensor *r_unique_all(deft_ctx *cx, const kase *k)
{
    deft_tensor *part[4];
    deft_tensor *const t =
        deft_unique_all(operand(cx, k), room(k), &part[0], &part[1], &part[2], &part[3]);
    return t ? with_count(k, k->variant % 2 ? part[k->seed % 3] : t, part[3]) : NULL;
}

static deft_tensor *r_searchsorted(deft_ctx *cx, const kase *k)
{
    static const int64_t size[4] = { 0, 1, 37, 64 };
    const deft_dtype t = (deft_dtype)k->t;
    deft_tensor *const list = deft_sort(
        operand_of(cx, t, L_COPY, shape1(size[k->variant % 4]), k->seed + 1, false), 0, 0);
    return deft_searchsorted(list, operand(cx, k), k->variant >= 4);
}

static deft_tensor *r_isin(deft_ctx *cx, const kase *k)
{
    static const int64_t size[3] = { 0, 5, 40 };
    const deft_dtype t = (deft_dtype)k->t;
    deft_tensor *const list =
        operand_of(cx, t, L_COPY, shape1(size[k->variant % 3]), k->seed + 1, false);
    return deft_isin(operand(cx, k), list, k->variant >= 3);
}

static deft_tensor *r_diff(deft_ctx *cx, const kase *k)
{
    const int axis = k->variant & 1 ? 0 : -1;
    deft_tensor *const x = operand(cx, k);
    return used(deft_diff(x, 1 + (k->variant & 2) / 2, axis, k->variant & 4 ? x : NULL, NULL), k);
}

static deft_tensor *r_copies(deft_ctx *cx, const kase *k)
{
    deft_tensor *const x = operand(cx, k);
    const deft_shape three = { .rank = 1, .dim = { 3 } };
    switch (k->variant) {
    case 0: return used(deft_repeat(x, 3, -1), k);
    case 1: return used(deft_repeat(x, 2, 0), k);
    case 2: return used(deft_repeat(x, 2, DEFT_FLAT), k);
    case 3: return used(deft_tile(x, three), k);
    default: return used(deft_tile(x, DEFT_SHAPE(2, 1)), k);
    }
}

static deft_tensor *r_roll_n(deft_ctx *cx, const kase *k)
{
    static const int64_t by[2] = { 1, -2 };
    deft_tensor *const x = operand(cx, k);
    return used(k->variant ? deft_roll_n(x, by, DEFT_AXES(0, -1)) : deft_roll(x, 3, DEFT_FLAT), k);
}

static deft_tensor *r_one_hot(deft_ctx *cx, const kase *k)
{
    return deft_one_hot(operand(cx, k),
                        k->variant % 3 == 0   ? 0
                        : k->variant % 3 == 1 ? 5
                                              : 33,
                        (deft_dtype)(k->seed % DF_N_RECORDED));
}

/* The shape gives M and K; the variant the rest. */
static deft_tensor *r_matmul(deft_ctx *cx, const kase *k)
{
    const int64_t ns[] = { 1, 2 + k->seed % 7, 16, 33, 0 };
    const deft_dtype t = (deft_dtype)k->t;
    const int64_t kk = k->s.dim[k->s.rank - 1], n = ns[k->variant % 5];
    deft_tensor *const a = k->seed % 4 == 0 ? operand(cx, k) : tame_operand(cx, k);
    const uint32_t sb = k->seed + 1;
    if (kk * n * 2 > POOL - SHIFTS || kk > POOL - SHIFTS) return SKIP;
    switch (k->variant / 5) {
    case 0: return deft_matmul(a, operand_of(cx, t, (layout)k->lay_b, shape2(kk, n), sb, true));
    case 1: return deft_matmul(a, deft_t(operand_of(cx, t, L_COPY, shape2(n, kk), sb, true)));
    case 2: return deft_matmul(a, operand_of(cx, t, L_COPY, shape1(kk), sb, true));
    case 3:
        return deft_matmul(operand_of(cx, t, L_COPY, shape1(k->s.dim[k->s.rank - 2]), sb, true), a);
    case 4:
        if (k->s.rank == 3 && k->s.dim[0] != 2 && k->s.dim[0] != 1)
            return SKIP; /* batches differ */
        return deft_matmul(
            a, operand_of(cx, t, L_COPY, (deft_shape){ .rank = 3, .dim = { 2, kk, n } }, sb, true));
    default: /* a prologue and an epilogue */
        return deft_relu(deft_add(
            deft_matmul(deft_mul_f(a, 0.5), operand_of(cx, t, L_COPY, shape2(kk, n), sb, true)),
            operand_of(cx, t, L_COPY, shape1(n), sb + 1, true)));
    }
}

static deft_tensor *r_fill(deft_ctx *cx, const kase *k)
{
    const deft_dtype t = (deft_dtype)k->t;
    switch (k->variant) {
    case 0: return deft_zeros(cx, k->s, t);
    case 1: return deft_ones(cx, k->s, t);
    case 2: return deft_full(cx, k->s, t, 1);
    case 3: return k->s.rank ? deft_iota(cx, k->s, (int)(k->seed % k->s.rank)) : SKIP;
    default: return is_float(k->t) ? deft_full(cx, k->s, t, k->variant == 4 ? -0.0 : NAN) : SKIP;
    }
}

static deft_tensor *r_arange(deft_ctx *cx, const kase *k)
{
    const deft_dtype t = (deft_dtype)k->t;
    const double n = (double)k->s.dim[0];
    const int bits = int_ref_bits(t);
    if ((bits == 8 && n > 40) || (bits == 16 && n > 10000)) return SKIP;
    switch (k->variant) {
    case 0: return deft_arange(cx, 0, n, 1, t);
    case 1: return deft_arange(cx, 2, 2 + 2 * n, 2, t);
    case 2: return int_ref_is_unsigned(t) ? SKIP : deft_arange(cx, 5, 5 - 3 * n, -3, t);
    case 3: return is_float(k->t) ? deft_arange(cx, -1.5, n / 4, 0.25, t) : SKIP;
    default: return is_float(k->t) ? deft_linspace(cx, -1, 2.5, k->s.dim[0], t) : SKIP;
    }
}

static deft_tensor *r_eye(deft_ctx *cx, const kase *k)
{
    return deft_eye(cx, k->s.dim[0], k->s.dim[1], (deft_dtype)k->t);
}

static deft_tensor *r_uniform(deft_ctx *cx, const kase *k)
{
    deft_rng rng = { .seed = k->variant ? 0x123456789abcdefu + k->seed : 0,
                     .next = k->variant * 0x100000001u };
    return deft_uniform(cx, &rng, k->s, (deft_dtype)k->t, k->variant ? -2 : 0, 1);
}

static deft_tensor *r_normal(deft_ctx *cx, const kase *k)
{
    deft_rng rng = { .seed = k->seed, .next = k->variant };
    deft_tensor *const a = deft_normal(cx, &rng, k->s, (deft_dtype)k->t, 1, 0.5);
    return k->variant ? deft_sub(a, deft_normal(cx, &rng, k->s, (deft_dtype)k->t, 0, 1)) : a;
}

static deft_tensor *r_randint(deft_ctx *cx, const kase *k)
{
    deft_rng rng = { .seed = k->seed, .next = 9 };
    const deft_dtype t = (deft_dtype)k->t;
    const int bits = int_ref_bits(t), used = bits > 31 ? 31 : bits;
    const int64_t low = int_ref_is_signed(t) ? -((int64_t)1 << (used - 1)) : 3;
    return k->variant == 0 ? deft_randint(cx, &rng, k->s, t, 0, 10)
                           : deft_randint(cx, &rng, k->s, t, low,
                                          low + ((int64_t)1 << used) - (low > 0 ? low : 0));
}

/* Writing through views: the place is a slice with steps, a diagonal, a transposed block. */
static deft_tensor *r_assign(deft_ctx *cx, const kase *k)
{
    const deft_dtype t = (deft_dtype)k->t;
    deft_tensor *const root = operand_of(cx, t, L_COPY, k->s, k->seed + 3, false);
    deft_tensor *v = NULL;
    switch (k->variant) {
    case 0: v = deft_slice(root, DEFT_RS(0, DEFT_END, 2)); break;
    case 1: v = deft_flip(root, DEFT_ALL_AXES); break;
    case 2: v = k->s.rank == 2 ? deft_diagonal(root, 0, 0, 1) : NULL; break;
    case 3: v = k->s.rank >= 2 ? deft_t(root) : NULL; break;
    case 4: v = deft_flatten(root); break;
    default: v = k->s.dim[0] > 2 ? deft_slice(root, DEFT_R(1, -1)) : NULL; break;
    }
    if (!v) return SKIP;
    if (!deft_assign(
            v, k->seed & 1
                   ? deft_where(deft_ones(cx, (deft_shape){ 0 }, DEFT_BOOL),
                                operand_of(cx, t, L_COPY, (deft_shape){ 0 }, k->seed, false), v)
                   : second(cx, k, t, deft_shape_get(v))))
        return NULL;
    return used(root, k);
}

/* ---- the table ---- */

enum {
    /* what ops.def says: arith refuses bool, integral refuses floats, all others take anything */
    M_neg = ANY_NUMBER,
    M_abs = ANY_NUMBER,
    M_sign = ANY_NUMBER,
    M_square = ANY_NUMBER,
    M_relu = ANY_NUMBER,
    M_bitwise_not = INTEGRAL,
    M_add = ANY_NUMBER,
    M_sub = ANY_NUMBER,
    M_mul = ANY_NUMBER,
    M_floor_div = ANY_NUMBER,
    M_remainder = ANY_NUMBER,
    M_fmod = ANY_NUMBER,
    M_trunc_div = ANY_NUMBER,
    M_minimum = ANY_NUMBER,
    M_maximum = ANY_NUMBER,
    M_bitwise_and = INTEGRAL,
    M_bitwise_or = INTEGRAL,
    M_bitwise_xor = INTEGRAL,
    M_shift_left = ANY_INT,
    M_shift_right = ANY_INT,
    M_sqrt = ANY,
    M_rsqrt = ANY,
    M_reciprocal = ANY,
    M_exp = ANY,
    M_exp2 = ANY,
    M_expm1 = ANY,
    M_log = ANY,
    M_log2 = ANY,
    M_log10 = ANY,
    M_log1p = ANY,
    M_sin = ANY,
    M_cos = ANY,
    M_tan = ANY,
    M_asin = ANY,
    M_acos = ANY,
    M_atan = ANY,
    M_sinh = ANY,
    M_cosh = ANY,
    M_tanh = ANY,
    M_asinh = ANY,
    M_acosh = ANY,
    M_atanh = ANY,
    M_cbrt = ANY,
    M_sigmoid = ANY,
    M_erf = ANY,
    M_erfc = ANY,
    M_lgamma = ANY,
    M_digamma = ANY,
    M_erfinv = ANY,
    M_i0 = ANY,
    M_i0e = ANY,
    M_i1 = ANY,
    M_i1e = ANY,
    M_gelu = ANY,
    M_silu = ANY,
    M_softplus = ANY,
    M_floor = ANY,
    M_ceil = ANY,
    M_trunc = ANY,
    M_round = ANY,
    M_isnan = ANY,
    M_isinf = ANY,
    M_isfinite = ANY,
    M_signbit = ANY,
    M_logical_not = ANY,
    M_div = ANY,
    M_pow = ANY_NUMBER,
    M_nextafter = ANY,
    M_logaddexp = ANY,
    M_atan2 = ANY,
    M_hypot = ANY,
    M_copysign = ANY,
    M_eq = ANY,
    M_ne = ANY,
    M_lt = ANY,
    M_le = ANY,
    M_gt = ANY,
    M_ge = ANY,
    M_rsub = ANY_NUMBER,
    M_rdiv = ANY,
    M_rpow = ANY_NUMBER,
    M_logical_and = ANY,
    M_logical_or = ANY,
    M_logical_xor = ANY
};

/* The numbers are macros that choose a form by type; a name in parentheses is the function itself.
 */
#define U(id) { .name = #id, .dtypes = M_##id, .unary = (deft_##id), .n_variants = 1 },
#define B(id)                                                                                      \
    { .name = #id,                                                                                 \
      .dtypes = M_##id,                                                                            \
      .binary = (deft_##id),                                                                       \
      .number_f = deft_##id##_f,                                                                   \
      .number_i = deft_##id##_i,                                                                   \
      .number_u = deft_##id##_u,                                                                   \
      .n_variants = N_BINARY },
#define O(id, mask, variants, lo, hi)                                                              \
    { .name = #id,                                                                                 \
      .dtypes = (mask),                                                                            \
      .record = r_##id,                                                                            \
      .n_variants = (variants),                                                                    \
      .min_rank = (lo),                                                                            \
      .max_rank = (hi) },
#define MAKES(id, mask, variants, lo, hi)                                                          \
    { .name = #id,                                                                                 \
      .dtypes = (mask),                                                                            \
      .record = r_##id,                                                                            \
      .n_variants = (variants),                                                                    \
      .min_rank = (lo),                                                                            \
      .max_rank = (hi),                                                                            \
      .no_operand = true },

/* clang-format off */
static const op_row ops[] = {
    DEFT_UNARY_OPS(U) DEFT_BINARY_OPS(B)
    O(cumprod, ANY, 2, 1, 8) O(cummin, ANY_NUMBER, 2, 1, 8) O(cummax, ANY_NUMBER, 2, 1, 8)
    O(cumulative, ANY, 4, 1, 8) O(std, ANY, 12, 0, 8) O(unique_all, ANY, 6, 0, 8)
    O(searchsorted, ANY, 8, 0, 8) O(isin, ANY, 6, 0, 8) O(diff, ANY, 8, 1, 8)
    O(fma, ANY, 2, 0, 8) O(nan, ANY_NUMBER, 12, 0, 8) O(middle, ANY_NUMBER, 4, 1, 8)
    O(logcumsumexp, ANY, 2, 1, 8) O(logsumexp, ANY, 12, 0, 8) O(histogram, ANY, 2, 0, 8)
    O(shift, ANY, 4, 1, 8) O(copies, ANY, 5, 1, 6) O(roll_n, ANY, 2, 1, 8)
    O(cast, ANY, DF_N_RECORDED, 0, 8)
    O(cast_twice, ANY, DF_N_RECORDED * DF_N_RECORDED, 1, 1) O(where, ANY, 4, 0, 8)
    O(clamp, ANY_NUMBER, 6, 0, 8) O(clamp_t, ANY_NUMBER, 3, 0, 8) O(lerp, ANY_NUMBER, 4, 0, 8)
    O(sum, ANY, 12, 0, 8) O(prod, ANY, 12, 0, 8) O(min, ANY_NUMBER, 12, 0, 8)
    O(max, ANY_NUMBER, 12, 0, 8) O(mean, ANY, 12, 0, 8) O(any, ANY, 12, 0, 8)
    O(all, ANY, 12, 0, 8) O(argmin, ANY, 12, 0, 8) O(argmax, ANY, 12, 0, 8)
    O(sum_map, ANY_NUMBER, 12, 0, 8) O(prod_map, ANY_FLOAT, 12, 0, 8)
    O(min_map, ANY_NUMBER, 12, 0, 8) O(max_map, ANY_FLOAT, 12, 0, 8)
    O(mean_map, ANY_FLOAT, 12, 0, 8) O(any_map, ANY_FLOAT, 12, 0, 8)
    O(all_map, ANY_FLOAT, 12, 0, 8) O(argmin_map, ANY_NUMBER, 12, 0, 8)
    O(argmax_map, ANY_FLOAT, 12, 0, 8) O(var, ANY, 12, 0, 8) O(cumsum, ANY, 2, 1, 8)
    O(softmax, ANY, 4, 1, 8) O(log_softmax, ANY, 4, 1, 8) O(layer_norm, ANY_FLOAT, 4, 1, 8)
    O(cross_entropy, ANY_FLOAT, 3, 2, 2) O(slice, ANY, 9, 1, 8) O(reshape, ANY, 7, 0, 8)
    O(permute, ANY, 5, 2, 8) O(expand, ANY, 3, 0, 7) O(squeeze, ANY, 4, 0, 7)
    O(flip, ANY, 2, 1, 8) O(diagonal, ANY, 10, 2, 8) O(concat, ANY, 7, 1, 8)
    O(stack, ANY, 3, 0, 7) O(split, ANY, 4, 1, 8) O(pad, ANY, 8, 0, 8) O(roll, ANY, 4, 1, 8)
    O(tri, ANY, 6, 2, 8) O(take, ANY, 5, 1, 7) O(gather, ANY, 4, 1, 8)
    O(one_hot, ANY_INT, 3, 0, 7) O(matmul, ANY, 30, 2, 3) O(assign, ANY, 6, 1, 8)
    O(topk, ANY, 8, 1, 8) O(sort, ANY, 4, 1, 8) O(argsort, ANY, 4, 1, 8) O(nonzero, ANY, 6, 0, 8)
    O(compress, ANY, 6, 0, 8) O(unique, ANY, 6, 0, 8) O(index_add, ANY_NUMBER, 5, 1, 7)
    O(scatter_add, ANY_NUMBER, 4, 1, 8) O(scatter, ANY, 4, 1, 8)
    O(scatter_reduce, ANY_NUMBER, 20, 1, 8) MAKES(fill, ANY, 6, 0, 8)
    MAKES(arange, ANY_NUMBER, 5, 1, 1) MAKES(eye, ANY, 1, 2, 2) MAKES(uniform, ANY_FLOAT, 3, 0, 8)
    MAKES(normal, ANY_FLOAT, 2, 0, 8) MAKES(randint, ANY_INT, 2, 0, 8)
};
/* clang-format on */

static deft_tensor *record(deft_ctx *cx, const kase *k)
{
    const op_row *const o = &ops[k->op];
    if (o->unary) return o->unary(operand(cx, k));
    return o->binary ? record_binary(cx, o, k) : o->record(cx, k);
}

/* ---- running ---- */

#define MAX_PATHS 10
static oracle_path paths[MAX_PATHS] = {
    { .name = "interp unfused", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
    { .name = "interp fused", .tier = DEFT_TIER_INTERPRET, .n_threads = 1 },
    { .name = "llvm O0", .tier = DEFT_TIER_QUICK, .n_threads = 1, .turn = 1 },
    { .name = "llvm O2", .tier = DEFT_TIER_FULL, .n_threads = 1 },
    { .name = "llvm O2 16 bytes",
      .tier = DEFT_TIER_FULL,
      .n_threads = 1,
      .max_vector_bytes = 16,
      .turn = 2 },
    { .name = "llvm O2 32 bytes",
      .tier = DEFT_TIER_FULL,
      .n_threads = 1,
      .max_vector_bytes = 32,
      .turn = 3 },
    { .name = "interp unfused 2 threads",
      .tier = DEFT_TIER_INTERPRET,
      .n_threads = 2,
      .no_fusion = 1 },
    { .name = "interp fused 3 threads", .tier = DEFT_TIER_INTERPRET, .n_threads = 3 },
    { .name = "llvm O2 2 threads", .tier = DEFT_TIER_FULL, .n_threads = 2 },
    { .name = "llvm O2 3 threads", .tier = DEFT_TIER_FULL, .n_threads = 3 },
};
static size_t n_paths;

enum { BATCH = 64, MAX_LINES = 300 };

static struct {
    kase list[BATCH];
    void *want[BATCH]; /* the reference's elements */
    deft_dtype t[BATCH];
    deft_shape s[BATCH];
    size_t n, at_most;
} batch = { .at_most = BATCH };

enum { LEAST_AT_FULL = 7000000 };
static uint32_t shard, n_shards = 1; /* this process runs part `shard`, 0 <= shard < n_shards */

static long n_cases, n_failures, n_skipped;
static long n_added;                   /* cases of the table so far */
static long n_of_dtype[DF_N_RECORDED]; /* of the first operand */
static double path_seconds[MAX_PATHS];
static bool verbose;
static unsigned turn;   /* not 0: of the paths that take turns, the one that runs */
static char doing[160]; /* for the message of a crash */

static const char *describe(const kase *k, char *buf, size_t n)
{
    char s[120];
    snprintf(buf, n, "%s %s %s/%s %s variant %u seed %u", ops[k->op].name,
             deft_dtype_name((deft_dtype)k->t), layout_names[k->lay], layout_names[k->lay_b],
             oracle_shape_text(&k->s, s, sizeof s), k->variant, k->seed);
    return buf;
}

static void fail(const oracle_path *p, const kase *k, const char *what)
{
    char text[300];
    if (++n_failures <= MAX_LINES)
        printf("FAIL %s | %s | %s\n", describe(k, text, sizeof text), p->name, what);
    fflush(stdout);
}

static void compare(const oracle_path *p, size_t i, deft_tensor *t)
{
    char what[400], a[64], b[64], s[120], ws[120];
    const kase *const k = &batch.list[i];
    const deft_dtype dt = deft_dtype_of(t);
    const deft_shape sh = deft_shape_get(t);
    if (dt != batch.t[i] || sh.rank != batch.s[i].rank ||
        memcmp(sh.dim, batch.s[i].dim, sh.rank * sizeof *sh.dim)) {
        snprintf(what, sizeof what, "is %s%s, reference %s%s", deft_dtype_name(dt),
                 oracle_shape_text(&sh, s, sizeof s), deft_dtype_name(batch.t[i]),
                 oracle_shape_text(&batch.s[i], ws, sizeof ws));
        fail(p, k, what);
        return;
    }
    const size_t n = (size_t)oracle_numel(&sh), bytes = n * deft_dtype_size(dt);
    void *const got = oracle_alloc(bytes);
    if (deft_read(t, dt, got, bytes) != DEFT_OK) {
        snprintf(what, sizeof what, "read: %s", deft_message(p->cx));
        fail(p, k, what);
    } else {
        const size_t d = oracle_difference(dt, batch.want[i], got, n);
        if (d < n) {
            snprintf(what, sizeof what, "%s%s element %zu is %s, reference %s", deft_dtype_name(dt),
                     oracle_shape_text(&sh, s, sizeof s), d, oracle_text(dt, got, d, a, sizeof a),
                     oracle_text(dt, batch.want[i], d, b, sizeof b));
            fail(p, k, what);
        }
    }
    free(got);
}

/* Records, computes and compares cases [from, to) on one path as one cut; false when the path
 * refused. */
static bool run_path(const oracle_path *p, size_t from, size_t to, char *why, size_t n)
{
    deft_tensor *t[BATCH];
    const deft_scope scope = deft_scope_begin(p->cx);
    bool ok = true;
    for (size_t i = from; i < to && ok; i++) ok = (t[i] = record(p->cx, &batch.list[i])) != NULL;
    if (!ok) {
        const deft_status st = deft_error(p->cx);
        snprintf(why, n, "recording: %s: %s", deft_status_text(st), deft_message(p->cx));
    } else {
        const deft_status st = deft_eval(t + from, to - from);
        ok = st == DEFT_OK;
        if (!ok) snprintf(why, n, "eval: %s: %s", deft_status_text(st), deft_message(p->cx));
    }
    for (size_t i = from; i < to && ok; i++) compare(p, i, t[i]);
    deft_clear(p->cx);
    if (deft_scope_end(scope) != DEFT_OK && ok) {
        snprintf(why, n, "scope_end: %s", deft_message(p->cx));
        ok = false;
    }
    return ok;
}

/* The reference computes each case alone: what it cannot do is reported and dropped. */
static void run_reference(void)
{
    const oracle_path *const p = &paths[0];
    size_t left = 0;
    for (size_t i = 0; i < batch.n; i++) {
        const kase *const k = &batch.list[i];
        char text[200];
        snprintf(doing, sizeof doing, "%s on %s", describe(k, text, sizeof text), p->name);
        const deft_scope scope = deft_scope_begin(p->cx);
        deft_tensor *const t = record(p->cx, k);
        char why[400] = "";
        if (t == SKIP) {
            n_skipped++;
        } else {
            n_cases++;
            n_of_dtype[k->t]++;
            deft_status st = t ? DEFT_OK : deft_error(p->cx);
            void *got = NULL;
            if (t) {
                batch.t[left] = deft_dtype_of(t);
                batch.s[left] = deft_shape_get(t);
                const size_t bytes =
                    (size_t)oracle_numel(&batch.s[left]) * deft_dtype_size(batch.t[left]);
                got = oracle_alloc(bytes);
                st = deft_read(t, batch.t[left], got, bytes);
            }
            if (!t || st != DEFT_OK) {
                snprintf(why, sizeof why, "%s: %s", deft_status_text(st), deft_message(p->cx));
                fail(p, k, why);
                free(got);
            } else {
                test_bits_add(batch.t[left], got, (size_t)oracle_numel(&batch.s[left]));
                batch.want[left] = got;
                batch.list[left++] = *k;
            }
        }
        deft_clear(p->cx);
        if (deft_scope_end(scope) != DEFT_OK) fail(p, &batch.list[i], deft_message(p->cx));
    }
    batch.n = left;
}

static void flush(void)
{
    if (!batch.n) return;
    double t0 = oracle_cpu();
    run_reference();
    double t1 = oracle_cpu();
    path_seconds[0] += t1 - t0;
    char why[500], text[200];
    for (size_t j = 1; j < n_paths && batch.n; j++) {
        if (turn && paths[j].turn && paths[j].turn != turn) continue;
        snprintf(doing, sizeof doing, "%s .. on %s", describe(&batch.list[0], text, sizeof text),
                 paths[j].name);
        if (!run_path(&paths[j], 0, batch.n, why, sizeof why)) {
            const long before = n_failures;
            for (size_t i = 0; i < batch.n; i++) {
                snprintf(doing, sizeof doing, "%s alone on %s",
                         describe(&batch.list[i], text, sizeof text), paths[j].name);
                if (!run_path(&paths[j], i, i + 1, why, sizeof why))
                    fail(&paths[j], &batch.list[i], why);
            }
            if (n_failures == before)
                fail(&paths[j], &batch.list[0], "its batch fails, alone it does not");
        }
        t0 = t1;
        t1 = oracle_cpu();
        path_seconds[j] += t1 - t0;
    }
    for (size_t i = 0; i < batch.n; i++) free(batch.want[i]);
    batch.n = 0;
}

static void add(const kase *k)
{
    if (batch.n == batch.at_most) flush();
    batch.list[batch.n++] = *k;
    n_added++;
}

/* ---- which cases ---- */

/* A kernel follows from the op, dtype, form (variant), layout and rank; extents are its arguments.
 * So the scale says how many combinations of form, layout and rank an op and dtype get (compiling
 * them is what costs), and every combination gets all shapes of its rank. */
typedef enum scale { QUICK, USUAL, FULL } scale;
static const unsigned n_combinations[] = { 1, 2, 0 };

static const deft_shape shapes[] = {
    { 0, { 0 } },        { 1, { 0 } },          { 1, { 1 } },        { 1, { 3 } },
    { 1, { 15 } },       { 1, { 16 } },         { 1, { 17 } },       { 1, { 63 } },
    { 1, { 64 } },       { 1, { 65 } },         { 1, { 100 } },      { 1, { 4097 } },
    { 1, { 2 } },        { 1, { 5 } },          { 1, { 7 } },        { 1, { 8 } },
    { 1, { 9 } },        { 1, { 31 } },         { 1, { 32 } },       { 1, { 33 } },
    { 1, { 127 } },      { 1, { 128 } },        { 1, { 129 } },      { 1, { 200 } },
    { 1, { 1000 } },     { 2, { 3, 5 } },       { 2, { 17, 16 } },   { 2, { 0, 4 } },
    { 2, { 2, 33 } },    { 2, { 8, 65 } },      { 2, { 1, 17 } },    { 2, { 5, 1 } },
    { 2, { 40, 41 } },   { 3, { 2, 3, 5 } },    { 3, { 3, 1, 17 } }, { 3, { 2, 0, 3 } },
    { 3, { 4, 16, 3 } }, { 4, { 2, 3, 2, 5 } },
};
static const deft_shape more_shapes[] = {
    { 1, { 6 } },
    { 1, { 130 } },
    { 1, { 8200 } },
    { 2, { 4, 0 } },
    { 2, { 65, 2 } },
    { 2, { 64, 64 } },
    { 3, { 17, 2, 16 } },
    { 4, { 3, 1, 2, 1 } },
    { 5, { 2, 1, 3, 2, 2 } },
    { 8, { 1, 2, 1, 2, 1, 2, 1, 3 } },
};
static const deft_shape large_shapes[] = {
    { 1, { 100003 } },   { 2, { 300, 331 } },   { 2, { 3, 33000 } },
    { 2, { 33000, 3 } }, { 3, { 20, 70, 65 } }, { 2, { 1, 90001 } },
};

static const char *filter;

static bool filtered(const op_row *o, deft_dtype t)
{
    char name[80];
    snprintf(name, sizeof name, "%s/%s", o->name, deft_dtype_name(t));
    return filter && !strstr(name, filter);
}

static bool rank_fits(const op_row *o, uint32_t rank)
{
    if (o->unary || o->binary) return true;
    return rank >= o->min_rank && rank <= o->max_rank;
}

static void combination_cases(kase k, uint32_t rank, const deft_shape *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const deft_shape *const s = &list[i];
        if (s->rank != rank || !layout_fits((layout)k.lay, s)) continue;
        const uint64_t h = oracle_mix(oracle_mix(k.op * 64u + k.t, k.variant), k.lay * 4096u + i);
        k.s = *s;
        if (!layout_fits((layout)k.lay_b, s)) k.lay_b = L_COPY;
        k.seed = (uint32_t)(h >> 40);
        add(&k);
    }
}

static void op_cases(uint16_t op, deft_dtype t, scale how)
{
    const op_row *const o = &ops[op];
    unsigned all = 0;
    for (int pass = 0; pass < 2; pass++) /* count, then choose */
        for (uint32_t rank = 0; rank <= DEFT_MAX_RANK; rank++)
            for (unsigned v = 0; v < o->n_variants; v++)
                for (unsigned l = 0; l < N_LAYOUTS; l++) {
                    const deft_shape any = { .rank = rank };
                    if (!rank_fits(o, rank) || !layout_fits((layout)l, &any) ||
                        (l && o->no_operand))
                        continue;
                    if (rank > 4 && how != FULL) continue;
                    all += pass == 0;
                    if (pass == 0) continue;
                    const uint64_t h =
                        oracle_mix(op * 64u + (unsigned)t, rank * 65536 + v * 256 + l);
                    const bool plain =
                        v == 0 && l == 0 &&
                        (how == QUICK ? rank == (o->min_rank > 1 ? o->min_rank : 1u) : rank <= 2);
                    const bool layouts =
                        how == USUAL && rank == 2 && o->unary && (op + (unsigned)t) % 2 == 0;
                    if (how != FULL && !plain && !layouts &&
                        h % (how == QUICK ? 2 * all : all) >= n_combinations[how])
                        continue;
                    kase k = {
                        .op = op, .t = (uint8_t)t, .lay = (uint8_t)l, .variant = (uint8_t)v
                    };
                    k.lay_b = (uint8_t)(h >> 32 & 1 ? l : (h >> 33) % N_LAYOUTS);
                    combination_cases(k, rank, shapes, LEN(shapes));
                    if (how == FULL) combination_cases(k, rank, more_shapes, LEN(more_shapes));
                }
}

/* Whether op has cases of dtype t at this scale. An op on halves is the f32 op between casts: they
 * get fewer combinations. Each op has both of them at full scale, one else, and where time is short
 * every second op one. */
static bool has_cases(uint16_t op, int t, scale how)
{
    const bool is_half = t == DEFT_F16 || t == DEFT_BF16;
    if (!(ops[op].dtypes >> t & 1) || filtered(&ops[op], (deft_dtype)t)) return false;
    if (how == QUICK && is_half) return op % 4 == (t == DEFT_F16 ? 0 : 2);
    if (how == USUAL && is_half) return op % 2 == (t == DEFT_F16 ? 0 : 1);
    return true;
}

static void cases_of(uint16_t op, int t, scale how)
{
    const bool is_half = t == DEFT_F16 || t == DEFT_BF16;
    const long before = n_cases;
    const double t0 = oracle_now();
    /* Compiling dominates: where time is short, O0 and the narrower widths take turns. */
    turn = how == QUICK ? 1 + (op + t) % 6 : 0;
    op_cases(op, (deft_dtype)t, is_half && how == USUAL ? QUICK : how);
    flush();
    turn = 0;
    if (n_cases == before && how == FULL) {
        printf("FAIL %s has no case of %s\n", ops[op].name, deft_dtype_name((deft_dtype)t));
        n_failures++;
    }
    if (verbose)
        printf("%s/%s: %ld cases, %.0f ms\n", ops[op].name, deft_dtype_name((deft_dtype)t),
               n_cases - before, (oracle_now() - t0) * 1e3);
}

/* Under a limit of time every twenty-fourth pair of an op and a dtype is covered in any case, where
 * no GPU is stood in for; which of the others are is drawn by the order. */
static void all_cases(scale how)
{
    const uint32_t n_all = (uint32_t)LEN(ops) * DF_N_RECORDED;
    const uint32_t n_least = (uint32_t)oracle_least(n_all / 24);
    uint32_t i = 0, n_pairs = 0;
    for (; i < n_all && (i < n_least || test_time_left(0.6)); i++) {
        if (i % n_shards != shard) continue;
        const uint32_t which = test_scattered(i, n_all);
        const uint16_t op = (uint16_t)(which / DF_N_RECORDED);
        const int t = (int)(which % DF_N_RECORDED);
        if (!has_cases(op, t, how)) continue;
        cases_of(op, t, how);
        test_bits_next();
        n_pairs++;
    }
    printf("%u pairs of an op and a dtype, %u of %u looked at\n", n_pairs, i, n_all);
}

/* Values large enough to be cut between threads; one dtype per op and shape, all in turn. */
static void large_cases(scale how)
{
    static const char *const names[] = {
        "add",
        "exp",
        "lt",
        "floor_div",
        "cast",
        "where",
        "sum",
        "prod",
        "min",
        "argmax",
        "any",
        "mean",
        "sum_map",
        "argmin_map",
        "var",
        "cumsum",
        "cumprod",
        "cummax",
        "searchsorted",
        "isin",
        "softmax",
        "log_softmax",
        "layer_norm",
        "permute",
        "concat",
        "pad",
        "take",
        "tri",
        "matmul",
        "uniform",
        "assign",
        "sort",
        "argsort",
        "topk",
        "nonzero",
        "compress",
        "unique",
        "index_add",
        "scatter_add",
        "scatter",
        "scatter_reduce",
    };
    const size_t usual = batch.at_most;
    batch.at_most = 8;
    const uint32_t n_ops = (uint32_t)LEN(ops);
    const uint32_t n_least = (uint32_t)oracle_least(n_ops / 4);
    for (uint32_t i = 0; i < n_ops && (i < n_least || test_time_left(1)); i++) {
        if (i % n_shards != shard) continue;
        const uint16_t op = (uint16_t)test_scattered(i, n_ops);
        bool wanted = false;
        for (size_t k = 0; k < LEN(names); k++) wanted |= !strcmp(names[k], ops[op].name);
        if (!wanted) continue;
        uint64_t die = op;
        for (size_t j = 0; j < LEN(large_shapes); j++)
            for (unsigned v = 0; v < ops[op].n_variants; v++) {
                const unsigned t = (unsigned)(oracle_next(&die) % DF_N_RECORDED);
                if (!(ops[op].dtypes >> t & 1) || filtered(&ops[op], (deft_dtype)t)) continue;
                const deft_shape *const s = &large_shapes[j];
                if (!rank_fits(&ops[op], s->rank)) continue;
                if (oracle_next(&die) % (how == QUICK ? 12 : 3)) continue;
                const unsigned l = (unsigned)(oracle_next(&die) % N_LAYOUTS);
                kase k = { .op = op,
                           .t = (uint8_t)t,
                           .s = *s,
                           .variant = (uint8_t)v,
                           .seed = (uint32_t)(die >> 40) };
                k.lay = (uint8_t)(layout_fits((layout)l, s) && l != L_STEP && !ops[op].no_operand
                                      ? l
                                      : L_COPY);
                k.lay_b = L_COPY;
                add(&k);
            }
        flush();
    }
    batch.at_most = usual;
}

/* Prints how many cases there were, and holds the number against what the table promises. */
static void count_cases(bool is_whole)
{
    printf("op matrix: %ld cases:", n_cases);
    for (int t = 0; t < DF_N_RECORDED; t++)
        printf(" %s %ld", deft_dtype_name((deft_dtype)t), n_of_dtype[t]);
    printf("; %ld left out by their op\n", n_skipped);
    if (n_cases + n_skipped != n_added) {
        printf("FAIL: the table has %ld cases, %ld were run or left out\n", n_added,
               n_cases + n_skipped);
        n_failures++;
    }
    const long least = n_shards == 1 ? LEAST_AT_FULL : LEAST_AT_FULL / 2 / (long)n_shards;
    if (is_whole && n_cases < least) {
        printf("FAIL: fewer than %ld cases at full scale\n", least);
        n_failures++;
    }
}

static void crashed(int sig)
{
    static const char text[] = "crashed in: ";
    (void)!write(2, text, sizeof text - 1);
    (void)!write(2, doing, strlen(doing));
    (void)!write(2, "\n", 1);
    signal(sig, SIG_DFL);
    raise(sig);
}

int main(int argc, char **argv)
{
    scale how = USUAL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick"))
            how = QUICK;
        else if (!strcmp(argv[i], "--full"))
            how = FULL;
        else if (sscanf(argv[i], "--shard=%u/%u", &shard, &n_shards) == 2 && shard >= 1 &&
                 shard <= n_shards)
            shard--;
        else if (!strcmp(argv[i], "-v"))
            verbose = true;
        else if (argv[i][0] == '-') {
            fprintf(stderr, "op_matrix: unknown option %s\n", argv[i]);
            return 2;
        } else
            filter = argv[i];
    }
    if (how == FULL) batch.at_most = 1;
    signal(SIGSEGV, crashed);
    signal(SIGBUS, crashed);
    signal(SIGABRT, crashed);
    signal(SIGILL, crashed);
    signal(SIGFPE, crashed);
    const double t0 = oracle_now();
    fill_pools();
    /* Threads have a phase of their own: small values never leave the calling thread. */
    n_paths = oracle_open(paths, MAX_PATHS);
    const size_t all_paths = n_paths;
    size_t one_thread = 0;
    while (one_thread < n_paths && paths[one_thread].n_threads == 1) one_thread++;
    n_paths = one_thread;
    all_cases(how);
    n_paths = all_paths;
    large_cases(how);
    count_cases(how == FULL && !filter && !test_is_limited());
    n_failures += !test_bits_end();
    printf("%ld cases on %zu paths, %ld failures, %.1f s (processor time %.1f s)\n", n_cases,
           all_paths, n_failures, oracle_now() - t0, oracle_cpu());
    for (size_t i = 0; i < all_paths; i++) {
        deft_stats st;
        deft_stats_read(paths[i].cx, &st, sizeof st);
        printf("  %-26s %6.1f s processor time, %llu cuts, %llu kernels, %llu compiled\n",
               paths[i].name, path_seconds[i], (unsigned long long)st.cuts,
               (unsigned long long)st.kernels_known, (unsigned long long)st.kernels_compiled);
    }
    oracle_close(paths, all_paths);
    for (int t = 0; t < DF_N_RECORDED; t++) {
        free(pool[t]);
        free(odd_pool[t]);
        free(tame_pool[t]);
        free(odd_tame_pool[t]);
    }
    return n_failures ? 1 : 0;
}
