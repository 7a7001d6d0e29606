/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/opaque.h"

#include "base/str.h"
#include "ops/shape.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <string.h>

/* ---- the table ---- */

/* The segment of an entry, and its place there. */
static uint32_t segment_of(uint32_t number, uint32_t *at)
{
    uint32_t i = 0;
    while (number >= (uint32_t)DF_OPAQUE_FIRST << i) number -= (uint32_t)DF_OPAQUE_FIRST << i++;
    *at = number;
    return i;
}

const df_opaque *df_opaques_at(const df_opaques *t, uint32_t number)
{
    uint32_t at;
    if (!t || number >= atomic_load_explicit(&t->n, memory_order_acquire)) return NULL;
    const uint32_t i = segment_of(number, &at);
    return &t->segment[i][at];
}

df_opaque *df_opaques_next(df_opaques *t, df_arena *arena, uint32_t *number)
{
    uint32_t at;
    *number = atomic_load_explicit(&t->n, memory_order_relaxed);
    if (*number >= DF_OPAQUE_MOST) return NULL;
    const uint32_t i = segment_of(*number, &at);
    if (!t->segment[i])
        t->segment[i] = df_arena_new(arena, df_opaque, (size_t)DF_OPAQUE_FIRST << i);
    return t->segment[i] ? &t->segment[i][at] : NULL;
}

void df_opaques_added(df_opaques *t)
{
    const uint32_t n = atomic_load_explicit(&t->n, memory_order_relaxed);
    atomic_store_explicit(&t->n, n + 1, memory_order_release);
}

/* ---- calls ---- */

uint32_t df_opaque_count_inputs(const df_trace *t, uint32_t list)
{
    uint32_t n = 0;
    for (; t->nodes[list].op == DF_OP_pass && n <= DF_OPAQUE_MOST_TENSORS; n++)
        list = t->nodes[list].src[1].i;
    return n;
}

/* ---- the functions of an operator ---- */

void df_opaque_begin(df_opaque_saying *s, const df_opaque *x, const df_opaque_code *code)
{
    s->why[0] = '\0';
    s->about = (deft_op_about){
        .attributes = x->attributes, .user = code->user, .why = s->why, .n_why = sizeof s->why
    };
}

deft_status df_opaque_fail(df_diag *d, deft_status st, const df_opaque *x, df_opaque_saying *s,
                           const char *what)
{
    s->why[sizeof s->why - 1] = '\0';
    const bool is_status = (unsigned)st <= DEFT_E_CHECK && st != DEFT_OK;
    return df_fail(d, is_status ? st : DEFT_E_STATE, "%s: %s", x->name, s->why[0] ? s->why : what);
}

static deft_status check_form(df_diag *d, const df_opaque *x, uint32_t i, const deft_op_form *f)
{
    df_shape s = { .rank = f->rank };
    int64_t n;
    if ((unsigned)f->dtype >= DF_N_RECORDED)
        return df_fail(d, DEFT_E_DTYPE, "%s: its shape rule gives result %" PRIu32 " no dtype (%d)",
                       x->name, i, (int)f->dtype);
    if (f->rank > DEFT_MAX_RANK)
        return df_fail(d, DEFT_E_LIMIT,
                       "%s: its shape rule gives result %" PRIu32 " %" PRIu32 " axes; at most %d",
                       x->name, i, f->rank, DEFT_MAX_RANK);
    for (uint32_t j = 0; j < f->rank; j++) {
        s.dim[j] = f->extent[j];
        if (f->extent[j] < 0)
            return df_fail(d, DEFT_E_SHAPE,
                           "%s: its shape rule gives result %" PRIu32 " the extent %" PRId64,
                           x->name, i, f->extent[j]);
    }
    if (!df_shape_numel(&s, &n))
        return df_fail(d, DEFT_E_LIMIT,
                       "%s: its shape rule gives result %" PRIu32 " too many elements", x->name, i);
    return DEFT_OK;
}

deft_status df_opaque_forms(df_diag *d, const df_opaque *x, const df_opaque_code *code,
                            const deft_op_form *in, deft_op_form *out)
{
    df_opaque_saying s;
    deft_status st = DEFT_OK;
    df_opaque_begin(&s, x, code);
    memset(out, 0, x->n_out * sizeof *out);
    for (uint32_t i = 0; i < x->n_out; i++) out[i].dtype = (deft_dtype)-1;
    st = code->shape(in, x->n_in, out, x->n_out, &s.about);
    if (st != DEFT_OK) return df_opaque_fail(d, st, x, &s, "its shape rule refuses the inputs");
    for (uint32_t i = 0; i < x->n_out && st == DEFT_OK; i++) st = check_form(d, x, i, &out[i]);
    return st;
}
