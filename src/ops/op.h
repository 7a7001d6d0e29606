/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace op enumeration and its facts, read from ops.def.
 */
#ifndef DF_OPS_OP_H
#define DF_OPS_OP_H

#include "ops/kop.h"
#include "ops/recipe.h"

enum { DF_COMMUTES = 1, DF_IDEMPOTENT = 2, DF_INVOLUTES = 4 };
enum { DF_PER_AXIS2 = 255 };

typedef enum df_op {
#define OP(name, n_src, class, facets) DF_OP_##name,
#include "ops/ops.def"
    DF_N_OPS
} df_op;

typedef enum df_op_class {
    DF_CLASS_leaf,
    DF_CLASS_unary,
    DF_CLASS_binary,
    DF_CLASS_ternary,
    DF_CLASS_reduce,
    DF_CLASS_scan,
    DF_CLASS_view,
    DF_CLASS_index,
    DF_CLASS_update,
    DF_CLASS_contract,
    DF_CLASS_routine,
    DF_CLASS_control
} df_op_class;

typedef enum df_dtype_rule {
    DF_DTYPE_none,
    DF_DTYPE_same,
    DF_DTYPE_arith,
    DF_DTYPE_floating,
    DF_DTYPE_wide,
    DF_DTYPE_integral,
    DF_DTYPE_compare,
    DF_DTYPE_boolean,
    DF_DTYPE_test,
    DF_DTYPE_cast,
    DF_DTYPE_select,
    DF_DTYPE_index,
    DF_DTYPE_scatter,
    DF_DTYPE_to_index,
    DF_DTYPE_count,
    DF_DTYPE_but_last
} df_dtype_rule;

typedef enum df_shape_rule {
    DF_SHAPE_given,
    DF_SHAPE_same,
    DF_SHAPE_broadcast,
    DF_SHAPE_reduce,
    DF_SHAPE_slice,
    DF_SHAPE_permute,
    DF_SHAPE_expand,
    DF_SHAPE_reshape,
    DF_SHAPE_squeeze,
    DF_SHAPE_unsqueeze,
    DF_SHAPE_diagonal,
    DF_SHAPE_matmul,
    DF_SHAPE_take,
    DF_SHAPE_gather,
    DF_SHAPE_update,
    DF_SHAPE_scatter_add,
    DF_SHAPE_index_add,
    DF_SHAPE_order,
    DF_SHAPE_one,
    DF_SHAPE_each,
    DF_SHAPE_next,
    DF_SHAPE_stack,
    DF_SHAPE_cond
} df_shape_rule;

typedef enum df_mixed { DF_MIXED_low, DF_MIXED_high, DF_MIXED_widest, DF_MIXED_same } df_mixed;

typedef enum df_lower_how {
    DF_LOWER_kop,
    DF_LOWER_recipe,
    DF_LOWER_body,
    DF_LOWER_fuser
} df_lower_how;

/* Appends the body of one elementwise op. t is the dtype of the operands (of src[1] for where),
 * out that of the result; neither is a half but for casts and where. Called through df_op_emit. */
typedef uint32_t (*df_body_fn)(df_emit *e, deft_dtype t, deft_dtype out, const uint32_t src[3],
                               uint32_t attr);

typedef struct df_op_info {
    const char *name;
    const char *doc;
    df_body_fn body; /* set for every unary, binary and ternary op; NULL for the others */
    uint8_t n_src, cls, dtype_rule, shape_rule, algebra, how, kop, n_args, mixed;
} df_op_info;

extern const df_op_info df_op_infos[DF_N_OPS];

/* The number of view ops. Code that follows each kind of view asserts how many it knows. */
#define DF_VIEWS_leaf 0
#define DF_VIEWS_unary 0
#define DF_VIEWS_binary 0
#define DF_VIEWS_ternary 0
#define DF_VIEWS_reduce 0
#define DF_VIEWS_scan 0
#define DF_VIEWS_view 1
#define DF_VIEWS_index 0
#define DF_VIEWS_update 0
#define DF_VIEWS_contract 0
#define DF_VIEWS_routine 0
#define DF_VIEWS_control 0
enum {
#define OP(id, n, class, facets) +DF_VIEWS_##class
    DF_N_VIEWS = 0
#include "ops/ops.def"
};

/* Finds an op by name; DF_N_OPS when there is none. */
df_op df_op_find(const char *name, size_t n);

/* True for unary, binary and ternary ops. */
DF_INLINE bool df_op_is_map(df_op op)
{
    const uint8_t c = df_op_infos[op].cls;
    return c == DF_CLASS_unary || c == DF_CLASS_binary || c == DF_CLASS_ternary;
}

/* Whether the result is operand 0 with some of its elements changed. */
DF_INLINE bool df_op_writes_over(df_op op)
{
    return op == DF_OP_update || op == DF_OP_scatter_add || op == DF_OP_index_add;
}

/* Whether operand 1 holds indices into operand 0, which may lie outside. */
DF_INLINE bool df_op_takes_indices(df_op op)
{
    return df_op_infos[op].dtype_rule == DF_DTYPE_scatter ||
           (df_op_infos[op].dtype_rule == DF_DTYPE_index && df_op_infos[op].cls == DF_CLASS_index);
}

/* Appends the body of a unary, binary or ternary op. t is the dtype of the operands (of src[1] for
 * where), out that of the result. Halves are calculated with in f32 and rounded once at the end. */
uint32_t df_op_emit(df_emit *e, df_op op, deft_dtype t, deft_dtype out, const uint32_t src[3],
                    uint32_t attr);

/* x, of dtype from, in dtype to: kernels cast a half to f32 and from it alone, and this knows the
 * other ways, each of which rounds once. */
uint32_t df_emit_cast(df_emit *e, deft_dtype to, deft_dtype from, uint32_t x);

/* Argument slots of a record whose first operand (or itself, for leaves) has that rank. */
DF_INLINE uint32_t df_op_n_args(df_op op, uint32_t src_rank)
{
    const uint8_t n = df_op_infos[op].n_args;
    return n == DF_PER_AXIS2 ? 2 * src_rank : n;
}

#define DF_REDUCE_KEEPDIMS 0x100u
#define DF_ORDER_DESCENDING 1u /* argsort */
#define DF_WHICH_ZEROS 1u      /* which: 0 after the last position found */

/* What a loop is said to compute, beside how: its attribute. A device may do all of such a loop at
 * once where numerics are fast. Who records the loop vouches for it; recorded again record by
 * record, with more batch axes too, it stays true.
 *
 *   attention       rows k, v [..., block, D], positions of the block's keys, 0, 1, ... in all;
 *                   states m, l, acc from -infinity, 0, 0, of scores q k^T
 *                   (lazy/layers/attention.c)
 *   attention_grad  the same rows, state dq from 0, rows dk, dv
 */
typedef enum df_loop_kind {
    DF_LOOP_PLAIN,
    DF_LOOP_ATTENTION,
    DF_LOOP_ATTENTION_GRAD,
    DF_N_LOOP_KINDS
} df_loop_kind;

typedef struct df_loop_tag {
    df_loop_kind kind; /* PLAIN: nothing is said, and the rest is 0 */
    bool is_causal;    /* query i sees keys 0 .. i */
    bool is_scaled;    /* q is what there was, times 1 / sqrt(D) in arithmetic */
    deft_dtype from;   /* of what there was of q, k, v: halves were lifted to f32 */
} df_loop_tag;

uint32_t df_loop_attr(df_loop_tag tag);
/* false: no loop has that attribute. */
bool df_loop_tag_of(uint32_t attr, df_loop_tag *out);
const char *df_loop_kind_name(df_loop_kind kind); /* "attention" */

/* Shapes as the rules see them. */
typedef struct df_shape {
    uint32_t rank;
    int64_t dim[DEFT_MAX_RANK];
} df_shape;

#endif
