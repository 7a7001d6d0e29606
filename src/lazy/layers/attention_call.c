/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_attention: checks of its operands and options, and the inputs that the computation takes
 * (attention.c).
 */
#define DEFT_NO_GENERIC
#include "deft/capture.h"
#include "deft/layers.h"
#include "deft/ops.h"
#include "lazy/calls/compose.h"
#include "lazy/calls/control.h"
#include "lazy/layers/attention.h"
#include "lazy/run/body.h"

#include <math.h>

typedef struct operands {
    uint32_t node[3]; /* q, k, v */
    df_shape s[3];
    df_manner how;
    deft_tensor *mask; /* of the caller */
    double window, cap;
} operands;

/* The most tensors of a call: q, k, v, mask, window, cap. */
enum { MOST_INPUTS = 6 };

/* The batch axes of all three operands, broadcast, as the first axes of *out. Returns
 * false when they differ. */
static bool common_batch(const operands *o, df_shape *out)
{
    out->rank = 0;
    for (int i = 0; i < 3; i++)
        if (o->s[i].rank > out->rank) out->rank = o->s[i].rank;
    for (uint32_t j = 0; j + 2 < out->rank; j++) {
        out->dim[j] = 1;
        for (int i = 0; i < 3; i++) {
            const uint32_t off = out->rank - o->s[i].rank;
            const int64_t d = j < off ? 1 : o->s[i].dim[j - off];
            if (d != 1 && out->dim[j] != 1 && d != out->dim[j]) return false;
            if (d != 1) out->dim[j] = d;
        }
    }
    return true;
}

/* Checks shapes and dtypes, and sets *batch (common_batch). Returns false with the error
 * recorded. */
static bool check_attention_operands(deft_ctx *cx, const operands *o, df_shape *batch)
{
    char q[DF_SHAPE_TEXT], k[DF_SHAPE_TEXT], v[DF_SHAPE_TEXT];
    const df_shape *const s = o->s;
    const uint32_t a = s[0].rank, b = s[1].rank, c = s[2].rank;
    const deft_dtype t = df_dtype_at(cx, o->node[0]);
    const bool fits = a >= 2 && b >= 2 && c >= 2 && a < DEFT_MAX_RANK && b < DEFT_MAX_RANK &&
                      c < DEFT_MAX_RANK && s[0].dim[a - 1] == s[1].dim[b - 1] &&
                      s[1].dim[b - 2] == s[2].dim[c - 2] && s[1].dim[b - 2] > 0;
    if (!fits || !common_batch(o, batch)) {
        df_error(cx, DEFT_E_SHAPE,
                 "attention: q is %s, k is %s, v is %s; it takes [..., S, D], [..., T, D], [..., "
                 "T, E] with T at least 1 and at most %d axes",
                 df_shape_text(&s[0], q, sizeof q), df_shape_text(&s[1], k, sizeof k),
                 df_shape_text(&s[2], v, sizeof v), DEFT_MAX_RANK - 1);
        return false;
    }
    if (df_is_float(t) && df_dtype_at(cx, o->node[1]) == t && df_dtype_at(cx, o->node[2]) == t)
        return true;
    df_error(cx, DEFT_E_DTYPE, "attention: q is %s, k is %s, v is %s; it takes floats of one dtype",
             deft_dtype_name(t), deft_dtype_name(df_dtype_at(cx, o->node[1])),
             deft_dtype_name(df_dtype_at(cx, o->node[2])));
    return false;
}

/* Makes handles of the operands in the open body: with equal batch axes, and q scaled.
 * Returns false with the error recorded. */
static bool make_attention_inputs(deft_ctx *cx, const operands *o, const df_shape *batch,
                                  double scale, deft_tensor *in[MOST_INPUTS], size_t *n,
                                  uintptr_t site)
{
    const deft_dtype t = df_dtype_at(cx, o->node[0]);
    for (int i = 0; i < 3; i++) {
        df_shape want = *batch;
        uint32_t a = o->node[i];
        const df_shape *const s = &o->s[i];
        want.dim[want.rank - 2] = s->dim[s->rank - 2];
        want.dim[want.rank - 1] = s->dim[s->rank - 1];
        if (!df_shape_equal(&want, s)) a = df_expand_to(cx, a, &want, site);
        if (i == 0)
            a = df_map2(cx, DF_OP_mul, a, df_number_f(cx, "attention", t, scale, site), site);
        if (!(in[i] = df_result(cx, a))) return false;
    }
    *n = 3;
    if (o->how.mask != DF_MASK_NONE) {
        deft_shape s = deft_shape_get(o->mask);
        s.dim[s.rank - 1] = o->s[1].dim[o->s[1].rank - 2];
        in[(*n)++] = deft_expand(o->how.mask == DF_MASK_ADDED ? deft_cast(o->mask, t) : o->mask, s);
        if (!in[*n - 1]) return false;
    }
    if (o->how.has_window) in[(*n)++] = deft_const_i(cx, (int64_t)o->window);
    if (o->how.has_cap) in[(*n)++] = deft_cast(deft_const_f(cx, o->cap), t);
    return true;
}

/* Computes the result within a body (lazy/run/body.h), whose handles end with it. Returns the
 * record of the result, or DF_BAD with the error recorded. */
static uint32_t attend(deft_ctx *cx, const operands *o, const df_shape *batch, double scale,
                       df_loop_tag tag, uintptr_t site)
{
    uint32_t was, made = DF_BAD;
    deft_tensor *in[MOST_INPUTS], *out = NULL;
    size_t n;
    if (!df_body_open(cx, site, &was)) return DF_BAD;
    if (make_attention_inputs(cx, o, batch, scale, in, &n, site))
        out = df_attend(cx, in, n, tag, &o->how, site);
    if (out) made = df_node_of(cx, out);
    df_body_close(cx, was);
    return made;
}

/* Checks the mask of the caller against the queries and keys, and sets the manner. Returns false
 * with the error recorded. */
static bool take_manner(deft_ctx *cx, const deft_attention_options *o, const df_shape *batch,
                        operands *x)
{
    char text[DF_SHAPE_TEXT];
    const deft_tensor *const mask = o->mask;
    if (o->window < 0 || !(o->cap >= 0) || !isfinite(o->cap)) {
        df_error(cx, DEFT_E_ARG, "attention: window %lld and cap %g must be positive",
                 (long long)o->window, o->cap);
        return false;
    }
    x->how = (df_manner){ .is_causal = o->is_causal,
                          .is_at_end = o->is_at_end && (o->is_causal || o->window),
                          .has_window = o->window > 0,
                          .has_cap = o->cap > 0 };
    x->window = (double)o->window;
    x->cap = o->cap;
    x->mask = o->mask;
    if (!mask) return true;
    if (df_operand(cx, "attention", 4, o->mask) == DF_BAD) return false;
    const deft_dtype t = deft_dtype_of(mask);
    x->how.mask = t == DEFT_BOOL ? DF_MASK_VISIBLE : DF_MASK_ADDED;
    df_shape s = { .rank = deft_rank(mask) };
    for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = deft_dim(mask, (int)i);
    df_shape want = *batch;
    want.dim[want.rank - 2] = x->s[0].dim[x->s[0].rank - 2];
    want.dim[want.rank - 1] = x->s[1].dim[x->s[1].rank - 2];
    bool fits = (t == DEFT_BOOL || df_is_float(t)) && s.rank >= 2 && s.rank <= want.rank;
    for (uint32_t i = 0; fits && i < s.rank; i++) {
        const int64_t d = s.dim[i];
        fits = d == 1 || d == want.dim[want.rank - s.rank + i];
    }
    if (fits) return true;
    char of[DF_SHAPE_TEXT];
    df_error(
        cx, DEFT_E_SHAPE,
        "attention: the mask is %s%s, which does not broadcast to scores %s, or is neither bool "
        "nor float",
        deft_dtype_name(t), df_shape_text(&s, text, sizeof text),
        df_shape_text(&want, of, sizeof of));
    return false;
}

/* ---- groups of queries ----
 *
 * Some heads of queries share a head of keys and values (Ainslie et al., "GQA", 2023). They get an
 * axis of their own, along which keys and values broadcast.
 */

/* t [..., heads, M, N] as [..., heads / n, n, M, N]. */
static deft_tensor *parted_heads(deft_tensor *t, int64_t n)
{
    deft_shape s = deft_shape_get(t);
    const uint32_t r = s.rank;
    s.rank = r + 1;
    s.dim[r] = s.dim[r - 1];
    s.dim[r - 1] = s.dim[r - 2];
    s.dim[r - 2] = n;
    s.dim[r - 3] /= n;
    return deft_reshape(t, s);
}

static deft_tensor *grouped_attention(deft_tensor *q, deft_tensor *k, deft_tensor *v,
                                      const deft_attention_options *options)
{
    deft_attention_options o = *options;
    deft_ctx *const cx = deft_ctx_of(q);
    if (!q || !k || !v) return NULL;
    const int64_t heads = deft_dim(q, -3), shared = deft_dim(k, -3);
    if (heads < 1 || shared < 1 || heads % shared || deft_dim(v, -3) != shared ||
        deft_rank(q) > DEFT_MAX_RANK - 2)
        return df_error(cx, DEFT_E_SHAPE,
                        "attention: %lld heads of queries do not share %lld heads of keys and %lld "
                        "of values",
                        (long long)heads, (long long)shared, (long long)deft_dim(v, -3));
    o.has_grouped_heads = false;
    if (o.mask && deft_rank(o.mask) > 2)
        o.mask = deft_dim(o.mask, -3) == heads ? parted_heads(o.mask, heads / shared)
                                               : deft_unsqueeze(o.mask, -3);
    deft_tensor *const y = deft_attention(parted_heads(q, heads / shared), deft_unsqueeze(k, -3),
                                          deft_unsqueeze(v, -3), &o);
    deft_shape s = deft_shape_get(q);
    s.dim[s.rank - 1] = deft_dim(v, -1);
    return deft_reshape(y, s);
}

static deft_tensor *ungrouped_attention(deft_tensor *q, deft_tensor *k, deft_tensor *v,
                                        const deft_attention_options *o, uintptr_t site)
{
    operands x;
    df_shape batch;
    deft_tensor *const list[] = { q, k, v };
    deft_ctx *const cx = df_begin("attention", q, &x.node[0], &x.s[0], site);
    if (!cx) return NULL;
    for (unsigned i = 1; i < 3; i++) {
        if (!df_enter_more(cx, "attention", i + 1, list[i])) return NULL;
        if ((x.node[i] = df_node_of(cx, list[i])) == DF_BAD) return NULL;
        df_rec_shape(&cx->rec, x.node[i], &x.s[i]);
    }
    for (unsigned i = 0; i < 3; i++) {
        x.node[i] = df_mixed_operand(cx, DF_OP_matmul, x.node[i], site);
        if (x.node[i] == DF_BAD) return NULL;
    }
    if (!check_attention_operands(cx, &x, &batch)) return NULL;
    if (!take_manner(cx, o, &batch, &x)) return NULL;
    const double scale = o->scale != 0 ? o->scale : 1 / sqrt((double)x.s[0].dim[x.s[0].rank - 1]);
    /* Halves are cast to f32, and the result is rounded once, as in other composites. */
    const deft_dtype callers_dtype = df_dtype_at(cx, x.node[0]);
    for (unsigned i = 0; i < 3; i++) {
        x.node[i] = df_to(cx, x.node[i], df_arithmetic_dtype(callers_dtype), site);
        if (x.node[i] == DF_BAD) return NULL;
    }
    const df_loop_tag tag = { .kind = DF_LOOP_ATTENTION,
                              .is_causal = o->is_causal,
                              .is_scaled = o->scale == 0, /* the default, 1 / sqrt(D) */
                              .from = callers_dtype };
    const uint8_t mixed = cx->mixed;
    cx->mixed = 0; /* the composite computes everything in that dtype */
    const uint32_t made = attend(cx, &x, &batch, scale, tag, site);
    cx->mixed = mixed;
    return df_result(cx, df_to(cx, made, callers_dtype, site));
}

deft_tensor *deft_attention(deft_tensor *q, deft_tensor *k, deft_tensor *v,
                            const deft_attention_options *options)
{
    deft_attention_options o;
    deft_ctx *const cx = df_enter("attention", 1, q, DF_SITE);
    if (!cx) return NULL;
    if (options && !df_check_options(cx, "attention", "deft_attention_options", options->size))
        return NULL;
    df_take_options(&o, sizeof o, options, options ? options->size : 0);
    if (!o.has_grouped_heads) return ungrouped_attention(q, k, v, &o, DF_SITE);
    DF_LAYER_RETURN(deft_tensor *, cx, grouped_attention(q, k, v, &o));
}
