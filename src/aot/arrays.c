/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds to the arrays of an image: slots, buffers and numbers. See maker.h.
 */
#include "aot/maker.h"

#include "aot/rt/number.h"

#define PUSH DF_AOT_PUSH

void program_no_memory(program *p)
{
    if (p->st == DEFT_OK) p->st = df_fail_mem(p->d, "export", sizeof(aot_seg));
}

static uint32_t new_slot(program *p, int64_t value, bool is_open)
{
    PUSH(p, values, value);
    PUSH(p, is_open, is_open);
    return p->st == DEFT_OK ? (uint32_t)p->values.n - 1 : 0;
}

uint32_t program_constant(program *p, int64_t value)
{
    uint32_t *const seen = &p->constant[((uint64_t)value * 0x9E3779B97F4A7C15u) >> 56];
    if (*seen > 0 && p->values.at[*seen - 1] == value) return *seen - 1;
    const uint32_t slot = new_slot(p, value, false);
    if (p->st == DEFT_OK) *seen = slot + 1;
    return slot;
}

uint32_t program_computed(program *p, uint32_t op, uint32_t a, uint32_t b)
{
    for (size_t i = 0; i < p->slots.n; i++) {
        const aot_slot *const s = &p->slots.at[i];
        if (s->op == op && s->a == a && s->b == b) return s->to;
    }
    const uint32_t to = new_slot(p, 0, true);
    PUSH(p, slots, ((aot_slot){ .to = to, .op = op, .a = a, .b = b }));
    return to;
}

static int64_t program_apply(uint32_t op, int64_t a, int64_t b)
{
    const uint64_t x = (uint64_t)a, y = (uint64_t)b;
    if (op == AOT_SLOT_ADD) return (int64_t)(x + y);
    if (op == AOT_SLOT_SUB) return (int64_t)(x - y);
    if (op == AOT_SLOT_MUL) return (int64_t)(x * y);
    if (op == AOT_SLOT_MAX) return df_max_i64(a, b);
    return b > 0 ? df_div_up(a, b) : 0;
}

uint32_t program_combine(program *p, uint32_t op, uint32_t a, uint32_t b)
{
    if (p->st != DEFT_OK) return 0;
    if (!p->is_open.at[a] && !p->is_open.at[b])
        return program_constant(p, program_apply(op, p->values.at[a], p->values.at[b]));
    return program_computed(p, op, a, b);
}

uint32_t program_end_of(program *p, uint32_t begin, uint32_t bytes)
{
    const uint32_t align = program_constant(p, DF_REGION_ALIGN);
    const uint32_t n = program_combine(p, AOT_SLOT_DIVUP, bytes, align);
    return program_combine(p, AOT_SLOT_ADD, begin, program_combine(p, AOT_SLOT_MUL, align, n));
}

uint32_t program_add_buf(program *p, uint32_t kind, uint32_t index)
{
    PUSH(p, bufs, ((aot_buf){ .kind = kind, .index = index }));
    return p->st == DEFT_OK ? (uint32_t)p->bufs.n - 1 : 0;
}

/* ---- numbers ---- */

uint32_t program_number(const program *p, uint32_t arg)
{
    uint32_t i = 0;
    while (i < p->o->n_numbers && p->o->number[i].arg != arg) i++;
    return i < p->o->n_numbers ? i : DF_NONE;
}

uint32_t program_as_dtype(deft_dtype t)
{
    return t == DEFT_F64    ? AOT_AS_F64
           : t == DEFT_F32  ? AOT_AS_F32
           : t == DEFT_F16  ? AOT_AS_F16
           : t == DEFT_BF16 ? AOT_AS_BF16
                            : AOT_AS_INTEGER;
}

deft_status program_use_number(program *p, uint32_t number, deft_dtype t, aot_num *out)
{
    const uint32_t given = p->number[number];
    parameter *const a = &p->params.at[given];
    if (!a->is_integer && !df_is_float(t))
        return df_fail(p->d, DEFT_E_ARG, "export: %s is a float, and is used as %s", a->name,
                       deft_dtype_name(t));
    a->used_as |= 1u << t;
    *out = (aot_num){ .bits = p->o->number[number].add,
                      .slot = AOT_NONE,
                      .parameter = given,
                      .as = program_as_dtype(t),
                      .bytes = (uint32_t)deft_dtype_size(t),
                      .is_integer = a->is_integer };
    return DEFT_OK;
}
