/* SPDX-License-Identifier: Apache-2.0
 *
 * einsum, tensordot, outer, vecdot.
 *
 * Operands are contracted in pairs. A pair is one product of matrices [batch, of a alone, summed]
 * and [batch, summed, of b alone], where a batch axis is one that both have and that stays. Axes
 * that only one operand has and that nobody else needs are summed before. A pair without summed
 * axes is multiplied elementwise. Of many operands, the pair whose product is smallest, compared
 * with its operands, comes first. This is the greedy rule of D. G. A. Smith and J. Gray,
 * "opt_einsum", 2018.
 */
#include "lazy/arrays/arrays.h"

#include <string.h>

/* The letters, then the axes for which "..." stands, the last of which has the last label. */
enum { LETTERS = 52, LABELS = LETTERS + DEFT_MAX_RANK, MOST_OPERANDS = 64 };

/* A tensor with a label for each axis. */
typedef struct labelled {
    deft_tensor *t;
    uint32_t n;
    uint8_t label[DEFT_MAX_RANK];
} labelled;

/* One call. Sets of labels are bits. */
typedef struct einsum {
    deft_ctx *cx;
    const char *what;
    int64_t extent[LABELS];
    labelled at[MOST_OPERANDS];
    uint32_t n;
    labelled out;    /* the labels of the result; t is unused */
    uint32_t n_dots; /* the most axes for which "..." stands in one operand */
    deft_dtype dtype;
} einsum;

static uint64_t bit(uint32_t label)
{
    return (uint64_t)1 << label;
}

static uint64_t labels_of(const labelled *x)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < x->n; i++) all |= bit(x->label[i]);
    return all;
}

static void append_labels(labelled *to, const labelled *from, uint64_t of)
{
    for (uint32_t i = 0; i < from->n; i++)
        if (of & bit(from->label[i])) to->label[to->n++] = from->label[i];
}

/* The number of elements of a tensor with these labels, at most INT64_MAX. */
static int64_t label_size(const einsum *e, uint64_t labels)
{
    int64_t n = 1;
    for (uint32_t l = 0; l < LABELS; l++)
        if (labels & bit(l) && !df_mul_i64(n, e->extent[l], &n)) return INT64_MAX;
    return n;
}

/* Sums x over the labels that are not in `keep`, and rounds to the dtype of the call. */
static void sum_others(const einsum *e, labelled *x, uint64_t keep)
{
    deft_axes axes = { 0 };
    labelled left = { x->t, 0, { 0 } };
    for (uint32_t i = 0; i < x->n; i++)
        if (!(keep & bit(x->label[i]))) axes.at[axes.n++] = (int32_t)i;
    if (axes.n == 0) return;
    append_labels(&left, x, keep);
    left.t = deft_cast(deft_sum(x->t, axes, false), e->dtype);
    *x = left;
}

/* x with its axes in the order of `order`, whose labels are those of x. */
static deft_tensor *ordered(const labelled *x, const labelled *order)
{
    deft_axes axes = { .n = x->n };
    bool is_same = true;
    for (uint32_t i = 0; i < order->n; i++)
        for (uint32_t k = 0; k < x->n; k++)
            if (x->label[k] == order->label[i]) {
                axes.at[i] = (int32_t)k;
                is_same &= k == i;
            }
    return is_same ? x->t : deft_permute(x->t, axes);
}

/* x with the axes of `order`, and axes of extent 1 for the labels of it that x lacks. */
static deft_tensor *spread_labels(const einsum *e, const labelled *x, const labelled *order)
{
    const uint64_t own = labels_of(x);
    labelled present = { NULL, 0, { 0 } };
    deft_shape s = { .rank = order->n };
    append_labels(&present, order, own);
    for (uint32_t i = 0; i < order->n; i++)
        s.dim[i] = own & bit(order->label[i]) ? e->extent[order->label[i]] : 1;
    return deft_reshape(ordered(x, &present), s);
}

/* x as [batch, rows, columns], each of which is a set of labels. Without a batch, and with one
 * label for rows and one for columns, x is not reshaped. */
static deft_tensor *as_matrices(const einsum *e, const labelled *x, uint64_t batch, uint64_t rows,
                                uint64_t columns)
{
    labelled order = { NULL, 0, { 0 } };
    append_labels(&order, x, batch);
    append_labels(&order, x, rows);
    append_labels(&order, x, columns);
    deft_tensor *const t = ordered(x, &order);
    const int64_t n = label_size(e, batch), r = label_size(e, rows), c = label_size(e, columns);
    const deft_shape s = { .rank = batch ? 3 : 2, .dim = { batch ? n : r, batch ? r : c, c } };
    if (!t) return NULL;
    const deft_shape own = deft_shape_get(t);
    if (own.rank == s.rank && !memcmp(own.dim, s.dim, s.rank * sizeof *s.dim)) return t;
    return deft_reshape(t, s);
}

/* Whether the result of the call has a label of b alone before those of a alone. Then b is the left
 * factor, so that the last product needs no transposition. */
static bool belongs_left(const einsum *e, uint64_t of_a, uint64_t of_b)
{
    for (uint32_t i = 0; i < e->out.n; i++)
        if ((of_a ^ of_b) & bit(e->out.label[i])) return (of_b & bit(e->out.label[i])) != 0;
    return false;
}

/* The product of a and b, summed over all labels that are not in `keep`. */
static labelled contract_pair(const einsum *e, labelled a, labelled b, uint64_t keep)
{
    if (belongs_left(e, labels_of(&a), labels_of(&b))) {
        const labelled first = a;
        a = b;
        b = first;
    }
    const uint64_t of_a = labels_of(&a), of_b = labels_of(&b);
    sum_others(e, &a, keep | of_b);
    sum_others(e, &b, keep | of_a);
    const uint64_t both = of_a & of_b, batch = both & keep, summed = both & ~keep;
    const uint64_t only_a = labels_of(&a) & ~both, only_b = labels_of(&b) & ~both;
    labelled out = { NULL, 0, { 0 } };
    append_labels(&out, &a, batch);
    append_labels(&out, &a, only_a);
    append_labels(&out, &b, only_b);
    if (summed == 0) {
        out.t = deft_mul(spread_labels(e, &a, &out), spread_labels(e, &b, &out));
        return out;
    }
    /* The labels of both stand in the order of a. */
    labelled b_order = { b.t, b.n, { 0 } };
    b_order.n = 0;
    append_labels(&b_order, &a, both);
    append_labels(&b_order, &b, only_b);
    b_order.t = ordered(&b, &b_order);
    deft_tensor *const left = as_matrices(e, &a, batch, only_a, summed);
    deft_tensor *const right = as_matrices(e, &b_order, batch, summed, only_b);
    deft_shape s = { .rank = out.n };
    for (uint32_t i = 0; i < out.n; i++) s.dim[i] = e->extent[out.label[i]];
    out.t = deft_reshape(deft_matmul(left, right), s);
    return out;
}

/* The labels that are needed by the result or by an operand other than i and k. */
static uint64_t needed(const einsum *e, uint32_t i, uint32_t k)
{
    uint64_t all = labels_of(&e->out);
    for (uint32_t j = 0; j < e->n; j++)
        if (j != i && j != k) all |= labels_of(&e->at[j]);
    return all;
}

/* Finds the pair to contract next. */
static void choose_pair(const einsum *e, uint32_t *first, uint32_t *second)
{
    double least = 0;
    *first = 0, *second = 1;
    for (uint32_t i = 0; i < e->n; i++)
        for (uint32_t k = i + 1; k < e->n; k++) {
            const uint64_t a = labels_of(&e->at[i]), b = labels_of(&e->at[k]);
            const double cost = (double)label_size(e, (a | b) & needed(e, i, k)) -
                                (double)label_size(e, a) - (double)label_size(e, b);
            if ((i == 0 && k == 1) || cost < least) {
                least = cost;
                *first = i, *second = k;
            }
        }
}

static deft_tensor *contract(einsum *e)
{
    while (e->n > 1) {
        uint32_t i, k;
        choose_pair(e, &i, &k);
        e->at[i] = contract_pair(e, e->at[i], e->at[k], needed(e, i, k));
        if (!e->at[i].t) return NULL;
        e->at[k] = e->at[--e->n];
    }
    sum_others(e, &e->at[0], labels_of(&e->out));
    return ordered(&e->at[0], &e->out);
}

/* ---- einsum ---- */

static int letter_label(char c)
{
    if (c >= 'a' && c <= 'z') return c - 'a';
    return c >= 'A' && c <= 'Z' ? c - 'A' + 26 : -1;
}

static bool refused(const einsum *e, const char *equation, const char *why)
{
    df_error(e->cx, DEFT_E_ARG, "einsum: \"%s\": %s", equation, why);
    return false;
}

/* The number of letters in the list of labels that begins at `at`. */
static uint32_t count_letters(const char *at)
{
    uint32_t n = 0;
    for (; *at && *at != ',' && *at != '-'; at++) n += letter_label(*at) >= 0;
    return n;
}

/* Reads the labels up to the end of an operand or of the equation, and skips spaces. "..." stands
 * for n_dots axes. */
static bool read_labels(const einsum *e, const char *equation, const char **at, labelled *x,
                        uint32_t n_dots)
{
    bool has_dots = false;
    for (; **at && **at != ',' && **at != '-'; (*at)++) {
        if (**at == ' ') continue;
        const bool is_dots = !has_dots && !strncmp(*at, "...", 3);
        const int label = letter_label(**at);
        const uint32_t n = is_dots ? n_dots : 1;
        if (label < 0 && !is_dots)
            return refused(e, equation, "a label is a letter, or \"...\" once in a list");
        if (x->n + n > DEFT_MAX_RANK)
            return refused(e, equation, "an operand has more than 8 labels");
        for (uint32_t i = 0; i < n; i++)
            x->label[x->n++] = (uint8_t)(is_dots ? LABELS - n + i : (uint32_t)label);
        if (!is_dots) continue;
        has_dots = true;
        *at += 2;
    }
    return true;
}

/* Labels that the equation gives one axis of x twice become a diagonal of it. */
static void take_diagonals(labelled *x)
{
    for (uint32_t i = 0; i < x->n; i++)
        for (uint32_t k = i + 1; k < x->n; k++) {
            if (x->label[i] != x->label[k]) continue;
            const uint8_t label = x->label[i];
            labelled rest = { deft_diagonal(x->t, 0, (int)i, (int)k), 0, { 0 } };
            for (uint32_t j = 0; j < x->n; j++)
                if (j != i && j != k) rest.label[rest.n++] = x->label[j];
            rest.label[rest.n++] = label;
            *x = rest;
            i = UINT32_MAX; /* begins again: the axes have other numbers now */
            break;
        }
}

/* Sets the extents of the labels of x. They must agree with those of operands before; those of
 * "..." broadcast. */
static bool note_extents(einsum *e, const labelled *x, uint32_t which, uint64_t *known)
{
    const deft_shape s = deft_shape_get(x->t);
    if (s.rank != x->n) {
        df_error(e->cx, DEFT_E_SHAPE, "%s: operand %u has %u axes and %u labels", e->what,
                 which + 1, s.rank, x->n);
        return false;
    }
    for (uint32_t i = 0; i < x->n; i++) {
        const uint8_t l = x->label[i];
        const bool is_known = *known & bit(l);
        const bool spreads = l >= LETTERS && is_known && (e->extent[l] == 1 || s.dim[i] == 1);
        if (is_known && e->extent[l] != s.dim[i] && !spreads) {
            df_error(e->cx, DEFT_E_SHAPE, "%s: axis %u of operand %u has extent %lld, another %lld",
                     e->what, i, which + 1, (long long)s.dim[i], (long long)e->extent[l]);
            return false;
        }
        if (!spreads || e->extent[l] == 1) e->extent[l] = s.dim[i];
        *known |= bit(l);
    }
    return true;
}

/* Takes away the axes of extent 1 that broadcast to those of another operand. */
static void drop_spread_axes(const einsum *e, labelled *x)
{
    const deft_shape s = deft_shape_get(x->t);
    deft_axes axes = { 0 };
    uint64_t left = labels_of(x);
    for (uint32_t i = 0; i < x->n; i++) {
        if (s.dim[i] == e->extent[x->label[i]]) continue;
        axes.at[axes.n++] = (int32_t)i;
        left &= ~bit(x->label[i]);
    }
    if (axes.n == 0) return;
    labelled rest = { deft_squeeze(x->t, axes), 0, { 0 } };
    append_labels(&rest, x, left);
    *x = rest;
}

/* The labels of "...", then those that stand once in the equation, in alphabetic order as NumPy
 * sorts letters. */
static void implicit_output(einsum *e)
{
    for (uint32_t i = e->n_dots; i > 0; i--) e->out.label[e->out.n++] = (uint8_t)(LABELS - i);
    for (uint32_t k = 0; k < LETTERS; k++) {
        const uint32_t label = (k + 26) % LETTERS;
        uint32_t n = 0;
        for (uint32_t i = 0; i < e->n; i++)
            for (uint32_t j = 0; j < e->at[i].n; j++) n += e->at[i].label[j] == label;
        if (n == 1 && e->out.n < DEFT_MAX_RANK) e->out.label[e->out.n++] = (uint8_t)label;
    }
}

static bool parse_equation(einsum *e, const char *equation, deft_tensor *const *t, size_t n)
{
    const char *at = equation;
    for (size_t i = 0; i < n; i++) {
        const uint32_t n_letters = count_letters(at), rank = deft_rank(t[i]);
        const uint32_t n_dots = rank > n_letters ? rank - n_letters : 0;
        e->at[i].t = t[i];
        if (!read_labels(e, equation, &at, &e->at[i], n_dots)) return false;
        if (e->at[i].n == n_letters + n_dots && n_dots > e->n_dots) e->n_dots = n_dots;
        if (i + 1 < n && *at++ != ',') return refused(e, equation, "too few operands");
    }
    if (*at == ',') return refused(e, equation, "too many operands");
    if (*at == 0) {
        implicit_output(e);
        return true;
    }
    if (at[1] != '>') return refused(e, equation, "a label is a letter");
    at += 2;
    if (!read_labels(e, equation, &at, &e->out, e->n_dots)) return false;
    return *at == 0 || refused(e, equation, "the result has one list of labels");
}

/* The common dtype of the operands, to which they are cast. */
static bool common_dtype(einsum *e)
{
    e->dtype = deft_dtype_of(e->at[0].t);
    for (uint32_t i = 0; i < e->n; i++) {
        const deft_dtype t = deft_dtype_of(e->at[i].t);
        if (t == DEFT_BOOL) {
            df_error(e->cx, DEFT_E_DTYPE, "%s: operand %u is bool: arithmetic needs numbers",
                     e->what, i + 1);
            return false;
        }
        if (!df_common_dtype(e->cx, e->what, e->dtype, t, &e->dtype)) return false;
    }
    for (uint32_t i = 0; i < e->n; i++)
        if (!(e->at[i].t = deft_cast(e->at[i].t, e->dtype))) return false;
    return true;
}

static deft_tensor *run_einsum(einsum *e, const char *equation, deft_tensor *const *t, size_t n)
{
    uint64_t known = 0;
    e->n = (uint32_t)n;
    if (!parse_equation(e, equation, t, n) || !common_dtype(e)) return NULL;
    for (uint32_t i = 0; i < e->n; i++)
        if (!note_extents(e, &e->at[i], i, &known)) return NULL;
    for (uint32_t i = 0; i < e->n; i++) {
        drop_spread_axes(e, &e->at[i]);
        if (!e->at[i].t) return NULL;
        take_diagonals(&e->at[i]);
        if (!e->at[i].t) return NULL;
    }
    uint64_t wanted = 0;
    for (uint32_t i = 0; i < e->out.n; i++) {
        const uint64_t l = bit(e->out.label[i]);
        if (!(known & l) || wanted & l) {
            refused(e, equation, "a label of the result stands there twice, or in no operand");
            return NULL;
        }
        wanted |= l;
    }
    return contract(e);
}

deft_tensor *deft_einsum(const char *equation, deft_tensor *const *t, size_t n)
{
    deft_status st;
    deft_ctx *const cx = df_array_begin_list("einsum", t, n, &st, DF_SITE);
    if (!cx) return NULL;
    if (!equation || n > MOST_OPERANDS)
        return df_error(cx, DEFT_E_ARG, "einsum: %s",
                        equation ? "more than 64 operands" : "there is no equation");
    einsum e = { .cx = cx, .what = "einsum" };
    DF_LAYER_RETURN(deft_tensor *, cx, run_einsum(&e, equation, t, n));
}

/* ---- tensordot, outer, vecdot ---- */

static deft_tensor *run_tensordot(einsum *e, const df_shape s[2], const deft_axes *a,
                                  const deft_axes *b)
{
    uint64_t known = 0;
    uint32_t mask[2];
    if (!df_check_axes(e->cx, e->what, a, s[0].rank, &mask[0]) ||
        !df_check_axes(e->cx, e->what, b, s[1].rank, &mask[1]))
        return NULL;
    for (uint32_t i = 0; i < s[0].rank; i++) e->at[0].label[e->at[0].n++] = (uint8_t)i;
    for (uint32_t i = 0; i < s[1].rank; i++)
        e->at[1].label[e->at[1].n++] = (uint8_t)(DEFT_MAX_RANK + i);
    for (uint32_t i = 0; i < a->n; i++) {
        const int32_t of_a = a->at[i] + (a->at[i] < 0 ? (int32_t)s[0].rank : 0);
        const int32_t of_b = b->at[i] + (b->at[i] < 0 ? (int32_t)s[1].rank : 0);
        e->at[1].label[of_b] = (uint8_t)of_a;
    }
    if (s[0].rank + s[1].rank - 2 * a->n > DEFT_MAX_RANK)
        return df_error(e->cx, DEFT_E_LIMIT, "tensordot: the result has rank %u, at most %d",
                        s[0].rank + s[1].rank - 2 * a->n, DEFT_MAX_RANK);
    append_labels(&e->out, &e->at[0], ~labels_of(&e->at[1]));
    append_labels(&e->out, &e->at[1], ~labels_of(&e->at[0]));
    if (!common_dtype(e) || !note_extents(e, &e->at[0], 0, &known) ||
        !note_extents(e, &e->at[1], 1, &known))
        return NULL;
    return contract(e);
}

deft_tensor *deft_tensordot(deft_tensor *a, deft_tensor *b, deft_axes a_axes, deft_axes b_axes)
{
    deft_status st;
    deft_tensor *const t[2] = { a, b };
    deft_ctx *const cx = df_array_begin_list("tensordot", t, 2, &st, DF_SITE);
    if (!cx) return NULL;
    df_shape s[2];
    for (int i = 0; i < 2; i++) df_shown_shape(cx, t[i], &s[i]);
    if (a_axes.n != b_axes.n || a_axes.n > DEFT_MAX_RANK)
        return df_error(cx, DEFT_E_ARG, "tensordot: %u axes of a, %u axes of b", a_axes.n,
                        b_axes.n);
    einsum e = { .cx = cx, .what = "tensordot", .n = 2 };
    e.at[0].t = a;
    e.at[1].t = b;
    DF_LAYER_RETURN(deft_tensor *, cx, run_tensordot(&e, s, &a_axes, &b_axes));
}

static deft_tensor *run_outer(deft_tensor *a, deft_tensor *b)
{
    return deft_mul(deft_unsqueeze(a, 1), deft_unsqueeze(b, 0));
}

deft_tensor *deft_outer(deft_tensor *a, deft_tensor *b)
{
    deft_tensor *met[2];
    deft_dtype t;
    deft_ctx *const cx = df_array_meet_faced("outer", a, b, met, &t, DF_SITE);
    if (!cx) return NULL;
    if (deft_rank(met[0]) != 1 || deft_rank(met[1]) != 1)
        return df_error(cx, DEFT_E_SHAPE, "outer: a has %u axes, b has %u", deft_rank(met[0]),
                        deft_rank(met[1]));
    DF_LAYER_RETURN(deft_tensor *, cx, run_outer(met[0], met[1]));
}

/* The axis counts from the end, since shapes broadcast from there. The first of two complex vectors
 * is conjugated. */
static deft_tensor *run_vecdot(deft_tensor *a, deft_tensor *b, int axis, deft_dtype t)
{
    const deft_axes axes = { 1, { axis } };
    deft_tensor *const left = df_is_complex(t) ? deft_conj(a) : df_array_lift(a);
    deft_tensor *const terms = deft_mul(left, df_array_lift(b));
    return deft_cast(deft_sum(terms, axes, false), t);
}

deft_tensor *deft_vecdot(deft_tensor *a, deft_tensor *b, int axis)
{
    deft_tensor *met[2];
    deft_dtype t;
    deft_ctx *const cx = df_array_meet_faced("vecdot", a, b, met, &t, DF_SITE);
    if (!cx) return NULL;
    const int rank[2] = { (int)deft_rank(met[0]), (int)deft_rank(met[1]) };
    if (axis >= 0 || -axis > rank[0] || -axis > rank[1])
        return df_error(cx, DEFT_E_RANGE,
                        "vecdot: axis %d, counted from the end, of %d and %d axes", axis, rank[0],
                        rank[1]);
    if (deft_dim(met[0], axis) != deft_dim(met[1], axis))
        return df_error(cx, DEFT_E_SHAPE, "vecdot: vectors of %lld and %lld elements",
                        (long long)deft_dim(met[0], axis), (long long)deft_dim(met[1], axis));
    DF_LAYER_RETURN(deft_tensor *, cx, run_vecdot(met[0], met[1], axis, t));
}
