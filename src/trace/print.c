/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints a verified trace as text. The text omits addresses, call sites and the device. It also
 * omits whether an input is contiguous, which follows from its strides.
 */
#include "trace/opaque.h"
#include "trace/text.h"

#include "ops/shape.h"

#include <inttypes.h>

/* Prints name, and the n numbers v[0], v[step], v[2 * step], ... in brackets. */
static void put_list(df_str *out, const char *name, const int64_t *v, uint32_t n, uint32_t step)
{
    df_str_fmt(out, "%s[", name);
    for (uint32_t i = 0; i < n; i++) df_str_fmt(out, "%s%" PRId64, i ? "," : "", v[i * step]);
    df_str_putc(out, ']');
}

static void put_mask(df_str *out, uint32_t mask)
{
    bool first = true;
    df_str_put(out, " axes=[");
    for (unsigned i = 0; i < DEFT_MAX_RANK; i++) {
        if (!(mask >> i & 1)) continue;
        df_str_fmt(out, "%s%u", first ? "" : ",", i);
        first = false;
    }
    df_str_putc(out, ']');
}

/* Prints what is particular to input k. Its ordinal, the index in t->inputs, is printed only when
 * it differs from `expected`. */
static void put_input(df_str *out, const df_trace *t, uint32_t k, uint32_t expected)
{
    const uint32_t ordinal = t->nodes[k].attr;
    const df_input *const in = &t->inputs[ordinal];
    if (t->nodes[k].rank) put_list(out, " strides=", in->stride, t->nodes[k].rank, 1);
    if (ordinal != expected) df_str_fmt(out, " ordinal=%" PRIu32, ordinal);
    if (in->flags & DF_INPUT_WRAPPED) df_str_put(out, " wrapped");
    if (in->flags & DF_INPUT_SOLE) df_str_put(out, " sole");
    if (in->flags & DF_INPUT_ALIGNED) df_str_put(out, " aligned");
}

/* Prints the opaque operator of a call, with its attributes. */
static void put_opaque(df_str *out, const df_opaque *x)
{
    const unsigned char *const at = x->attributes;
    df_str_fmt(out, " %s@%" PRIu32, x->name, x->version);
    if (x->n_out != 1) df_str_fmt(out, " results=%" PRIu32, x->n_out);
    if (x->attribute_bytes) df_str_put(out, " attributes=");
    for (size_t i = 0; i < x->attribute_bytes; i++) df_str_fmt(out, "%02x", at[i]);
}

static void put_attributes(df_str *out, const df_trace *t, uint32_t k)
{
    const df_node *const n = &t->nodes[k];
    const int64_t *const args = t->args + n->arg;
    const bool is_float = df_is_float((deft_dtype)n->dtype);
    switch (df_text_form_of((df_op)n->op)) {
    case DF_TEXT_none:
    case DF_TEXT_input: break;
    case DF_TEXT_value:
        df_str_putc(out, ' ');
        df_text_put_number(out, (deft_dtype)n->dtype, (uint64_t)args[0]);
        break;
    case DF_TEXT_cst:
        df_str_putc(out, ' ');
        df_text_put_number(out, is_float ? DEFT_F32 : DEFT_I32, n->attr);
        break;
    case DF_TEXT_axis: df_str_fmt(out, " axis=%" PRIu32, n->attr); break;
    case DF_TEXT_axes: put_mask(out, n->attr); break;
    case DF_TEXT_reduce:
        put_mask(out, n->attr & ~DF_REDUCE_KEEPDIMS);
        if (n->attr & DF_REDUCE_KEEPDIMS) df_str_put(out, " keepdims");
        break;
    case DF_TEXT_perm:
        df_str_put(out, " perm=[");
        for (unsigned i = 0; i < n->rank; i++)
            df_str_fmt(out, "%s%" PRIu32, i ? "," : "", n->attr >> 4 * i & 15);
        df_str_putc(out, ']');
        break;
    case DF_TEXT_slice:
        put_list(out, " start=", args, n->rank, 2);
        put_list(out, " step=", args + 1, n->rank, 2);
        break;
    case DF_TEXT_pair:
        df_str_fmt(out, " axes=[%" PRIu32 ",%" PRIu32 "] offset=%" PRId64, n->attr & 15,
                   n->attr >> 4 & 15, args[0]);
        break;
    case DF_TEXT_random:
        df_str_fmt(out, " word=%" PRIu32 " seed=%" PRIu64 " draw=%" PRIu64, n->attr,
                   (uint64_t)args[0], (uint64_t)args[1]);
        break;
    case DF_TEXT_power: df_str_fmt(out, " power=%" PRId32, (int32_t)n->attr); break;
    case DF_TEXT_order:
        if (n->attr & DF_ORDER_DESCENDING) df_str_put(out, " descending");
        if (n->op == DF_OP_topk) df_str_fmt(out, " first=%" PRId64, args[0]);
        break;
    case DF_TEXT_loop:
        df_str_fmt(out, " most=%" PRId64, args[0]);
        df_text_put_loop(out, n->attr);
        break;
    case DF_TEXT_call: {
        const df_opaque *const x = df_opaques_at(t->opaques, n->attr);
        if (x) put_opaque(out, x);
        break;
    }
    case DF_TEXT_index: df_str_fmt(out, " index=%" PRIu32, n->attr); break;
    case DF_TEXT_which:
        if (n->attr & DF_WHICH_ZEROS) df_str_put(out, " zeros");
        break;
    }
}

static void put_node(df_str *out, const df_trace *t, uint32_t k, uint32_t expected)
{
    const df_node *const n = &t->nodes[k];
    df_str_fmt(out, "%s %s", df_op_infos[n->op].name, deft_dtype_name((deft_dtype)n->dtype));
    put_list(out, "", df_trace_extents(t, k), n->rank, 1);
    for (uint32_t i = 0; i < n->n_src; i++) df_str_fmt(out, " %%%" PRIu32, n->src[i].i);
    if (n->op == DF_OP_input) put_input(out, t, k, expected);
    put_attributes(out, t, k);
}

void df_trace_print_node(df_str *out, const df_trace *t, uint32_t k)
{
    put_node(out, t, k, t->nodes[k].attr);
}

void df_trace_print(df_str *out, const df_trace *t)
{
    df_trace_print_noted(out, t, NULL, NULL);
}

void df_trace_print_noted(df_str *out, const df_trace *t,
                          void (*note)(df_str *out, uint32_t k, void *user), void *user)
{
    uint32_t n_inputs = 0;
    df_str_put(out, "trace v1");
    if (t->flags & DF_TRACE_FAST) df_str_put(out, " fast");
    if (t->flags & DF_TRACE_NOFUSE) df_str_put(out, " nofuse");
    if (t->max_temporary_bytes) df_str_fmt(out, " temporaries=%" PRIu64, t->max_temporary_bytes);
    df_str_putc(out, '\n');
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        df_str_fmt(out, "%%%" PRIu32 " = ", k);
        put_node(out, t, k, n_inputs);
        n_inputs += t->nodes[k].op == DF_OP_input;
        if (note) note(out, k, user);
        df_str_putc(out, '\n');
    }
    for (uint32_t i = 0; i < t->n_roots; i++) {
        const df_root *const r = &t->roots[i];
        df_str_fmt(out, "output %%%" PRIu32, r->node);
        if (r->into != DF_NONE) df_str_fmt(out, " into %%%" PRIu32, t->inputs[r->into].node);
        if (r->donor != DF_NONE) df_str_fmt(out, " donor %%%" PRIu32, t->inputs[r->donor].node);
        df_str_putc(out, '\n');
    }
}
