/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of operators and kernel ops, which are generated from ops.def and kops.def.
 */
#include "ops/op.h"

#include "ops/bodies.h"
#include "ops/shape.h"

#include <string.h>

_Static_assert(DF_N_OPS <= 255, "df_node.op is one byte, and 255 means none");
_Static_assert(DF_N_KOPS <= 255, "df_op_info.kop is one byte");

#define BODY_none(name) NULL
#define BODY_leaf BODY_none
#define BODY_reduce BODY_none
#define BODY_scan BODY_none
#define BODY_view BODY_none
#define BODY_index BODY_none
#define BODY_update BODY_none
#define BODY_contract BODY_none
#define BODY_routine BODY_none
#define BODY_control BODY_none
#define BODY_map(name) df_body_##name
#define BODY_unary BODY_map
#define BODY_binary BODY_map
#define BODY_ternary BODY_map

#define KOP_kop(what) DF_K_##what
#define KOP_recipe(what) DF_N_KOPS
#define KOP_body(what) DF_N_KOPS
#define KOP_fuser(what) DF_N_KOPS

const df_op_info df_op_infos[DF_N_OPS] = {
#define OP(id, n, class, facets)                                                                   \
    [DF_OP_##id] = {                                                                               \
        .name = #id, .body = BODY_##class(id), .n_src = n, .cls = DF_CLASS_##class, facets         \
    },
#define DTYPE(rule) .dtype_rule = DF_DTYPE_##rule,
#define SHAPE(rule) .shape_rule = DF_SHAPE_##rule,
#define ALGEBRA(flags) .algebra = (flags),
#define LOWER(way, what) .how = DF_LOWER_##way, .kop = KOP_##way(what),
#define ARGS(n) .n_args = (n),
#define MIXED(how) .mixed = DF_MIXED_##how,
#define DOC(text) .doc = text,
#include "ops/ops.def"
};

const df_kop_info df_kop_infos[DF_N_KOPS] = {
#define KOP(id, n, class, rule, by, identity)                                                      \
    [DF_K_##id] = { .name = #id,                                                                   \
                    .n_src = n,                                                                    \
                    .kind = DF_KOP_##class,                                                        \
                    .types = DF_TYPES_##rule,                                                      \
                    .join = DF_K_##by },
#include "ops/kops.def"
};

static const uint8_t name_size[DF_N_OPS] = {
#define OP(id, n, class, facets) [DF_OP_##id] = sizeof #id - 1,
#include "ops/ops.def"
};

df_op df_op_find(const char *name, size_t n)
{
    for (unsigned i = 0; i < DF_N_OPS; i++)
        if (name_size[i] == n && memcmp(df_op_infos[i].name, name, n) == 0) return (df_op)i;
    return DF_N_OPS;
}

/* ---- tags of loops ---- */

enum { KIND_BITS = 4, CAUSAL = 1 << 4, SCALED = 1 << 5, PADDED = 1 << 6, FROM_SHIFT = 8 };

uint32_t df_loop_attr(df_loop_tag tag)
{
    return (uint32_t)tag.kind | (tag.is_causal ? CAUSAL : 0u) | (tag.is_scaled ? SCALED : 0u) |
           (tag.is_padded ? PADDED : 0u) | (uint32_t)tag.from << FROM_SHIFT;
}

bool df_loop_tag_of(uint32_t attr, df_loop_tag *out)
{
    const df_loop_tag tag = { .kind = (df_loop_kind)(attr & ((1u << KIND_BITS) - 1)),
                              .is_causal = (attr & CAUSAL) != 0,
                              .is_scaled = (attr & SCALED) != 0,
                              .is_padded = (attr & PADDED) != 0,
                              .from = (deft_dtype)(attr >> FROM_SHIFT) };
    *out = tag;
    if (attr == 0) return true;
    return tag.kind != DF_LOOP_PLAIN && tag.kind < DF_N_LOOP_KINDS &&
           attr >> FROM_SHIFT < DF_N_RECORDED && df_is_float(tag.from) && df_loop_attr(tag) == attr;
}

const char *df_loop_kind_name(df_loop_kind kind)
{
    static const char *const names[DF_N_LOOP_KINDS] = { "", "attention", "attention_grad" };
    return names[kind];
}
