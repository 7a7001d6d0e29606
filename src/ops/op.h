/* SPDX-License-Identifier: Apache-2.0
 *
 * The enumeration of operators and the properties of each. ops.def has the table, and explains the
 * rules and classes that are enumerated here.
 * Why this file is long: it has all that other modules may ask about an operator.
 */
#ifndef DF_OPS_OP_H
#define DF_OPS_OP_H

#include "ops/kop.h"
#include "ops/recipe.h"

/* Flags of algebra. */
enum {
    DF_COMMUTES = 1,   /* f(a, b) = f(b, a) */
    DF_IDEMPOTENT = 2, /* f(f(x)) = f(x) */
    DF_INVOLUTES = 4   /* f(f(x)) = x */
};
/* In place of a number of arguments: two per axis of the operand. */
enum { DF_PER_AXIS2 = 255 };

/* The operators, in the order of ops.def. */
typedef enum df_op {
#define OP(name, n_src, class, facets) DF_OP_##name,
#include "ops/ops.def"
    DF_N_OPS
} df_op;

/* The class of an operator, as its row of ops.def gives it. */
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

/* The rules DTYPE(rule) of ops.def. */
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
    DF_DTYPE_bits,
    DF_DTYPE_select,
    DF_DTYPE_index,
    DF_DTYPE_scatter,
    DF_DTYPE_to_index,
    DF_DTYPE_count,
    DF_DTYPE_any,
    DF_DTYPE_but_last
} df_dtype_rule;

/* The rules SHAPE(rule) of ops.def. */
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

/* The rules MIXED(how) of ops.def. */
typedef enum df_mixed { DF_MIXED_low, DF_MIXED_high, DF_MIXED_widest, DF_MIXED_same } df_mixed;

/* The ways LOWER(how, what) of ops.def. */
typedef enum df_lower_how {
    DF_LOWER_kop,
    DF_LOWER_recipe,
    DF_LOWER_body,
    DF_LOWER_fuser
} df_lower_how;

/* Appends the kernel ops of one elementwise operator and returns the id of the result. Arguments as
 * in df_op_emit, which alone calls these functions. Only the operators `cast` and `where` may have
 * halves here. */
typedef uint32_t (*df_body_fn)(df_emit *e, deft_dtype t, deft_dtype out, const uint32_t src[3],
                               uint32_t attr);

/* The version of every operator. When the meaning of one changes, or of its attributes, versions
 * become a column of ops.def. A text trace then names the version behind the operator ("sum@2"). */
enum { DF_OP_VERSION = 1 };

/* The properties of an operator, from its row of ops.def. */
typedef struct df_op_info {
    const char *name; /* as in ops.def: "add" */
    const char *doc;  /* text for people */
    df_body_fn body;  /* unary, binary and ternary operators have one; NULL for the others */
    /* algebra is a set of flags, kop a df_kop, and n_args may be DF_PER_AXIS2. The others are of
     * the enums above. */
    uint8_t n_src, cls, dtype_rule, shape_rule, algebra, how, kop, n_args, mixed;
} df_op_info;

extern const df_op_info df_op_infos[DF_N_OPS];

/* DF_N_VIEWS is the number of view operators: each row of ops.def adds DF_VIEWS_<class>, which is 1
 * for views. Code that handles each kind of view asserts this number. */
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

/* Finds an operator by the n characters of its name. Returns DF_N_OPS when there is none. */
df_op df_op_find(const char *name, size_t n);

/* Whether op is elementwise: unary, binary or ternary. */
DF_INLINE bool df_op_is_map(df_op op)
{
    const uint8_t c = df_op_infos[op].cls;
    return c == DF_CLASS_unary || c == DF_CLASS_binary || c == DF_CLASS_ternary;
}

enum { DF_POLYGAMMA_MOST = 20 }; /* the greatest order of polygamma */

/* How a value is combined with the element that its index selects. The operators scatter_* and
 * index_* stand in ops.def in this order. */
typedef enum df_scatter_how {
    DF_SCATTER_ADD,
    DF_SCATTER_SET,
    DF_SCATTER_MUL,
    DF_SCATTER_MIN,
    DF_SCATTER_MAX
} df_scatter_how;
_Static_assert(DF_OP_scatter_max - DF_OP_scatter_add == DF_SCATTER_MAX &&
                   DF_OP_index_max - DF_OP_index_add == DF_SCATTER_MAX &&
                   DF_OP_scatter_set - DF_OP_scatter_add == DF_SCATTER_SET &&
                   DF_OP_scatter_mul - DF_OP_scatter_add == DF_SCATTER_MUL &&
                   DF_OP_scatter_min - DF_OP_scatter_add == DF_SCATTER_MIN &&
                   DF_OP_index_set - DF_OP_index_add == DF_SCATTER_SET &&
                   DF_OP_index_mul - DF_OP_index_add == DF_SCATTER_MUL &&
                   DF_OP_index_min - DF_OP_index_add == DF_SCATTER_MIN,
               "the order of the rows");

/* Whether op is one of index_*, which have an index for each slice of values. */
DF_INLINE bool df_op_scatters_slices(df_op op)
{
    return op >= DF_OP_index_add && op <= DF_OP_index_max;
}

/* Whether op is one of scatter_* and index_*. */
DF_INLINE bool df_op_scatters(df_op op)
{
    return df_op_scatters_slices(op) || (op >= DF_OP_scatter_add && op <= DF_OP_scatter_max);
}

DF_INLINE df_scatter_how df_scatter_how_of(df_op op)
{
    return (df_scatter_how)(op - (df_op_scatters_slices(op) ? DF_OP_index_add : DF_OP_scatter_add));
}

DF_INLINE df_op df_scatter_op(bool slices, df_scatter_how how)
{
    return (df_op)((slices ? DF_OP_index_add : DF_OP_scatter_add) + (int)how);
}

/* Whether the result is a copy of operand 0 with some elements changed. */
DF_INLINE bool df_op_writes_over(df_op op)
{
    return op == DF_OP_update || df_op_scatters(op);
}

/* Whether operand 1 contains indices into operand 0, which may be out of range. */
DF_INLINE bool df_op_takes_indices(df_op op)
{
    return df_op_infos[op].dtype_rule == DF_DTYPE_scatter ||
           (df_op_infos[op].dtype_rule == DF_DTYPE_index && df_op_infos[op].cls == DF_CLASS_index);
}

/* Appends the kernel ops of a unary, binary or ternary operator and returns the id of the result.
 * `src` has the ids of the operands. They have dtype t, except that src[0] of the operator `where`
 * is a bool. The result has dtype out. attr is the attribute of the node. Arithmetic on halves is
 * done in f32, and the result is rounded once at the end. Failures are those of the emitter. */
uint32_t df_op_emit(df_emit *e, df_op op, deft_dtype t, deft_dtype out, const uint32_t src[3],
                    uint32_t attr);

/* Appends a cast of x from dtype `from` to dtype `to`, which rounds at most once, and returns its
 * id. A kernel op casts halves only from and to f32; this function composes the other casts. */
uint32_t df_emit_cast(df_emit *e, deft_dtype to, deft_dtype from, uint32_t x);

/* The number of arguments of a node whose first operand has rank src_rank. For an operator without
 * operands, src_rank is the rank of the result. */
DF_INLINE uint32_t df_op_n_args(df_op op, uint32_t src_rank)
{
    const uint8_t n = df_op_infos[op].n_args;
    return n == DF_PER_AXIS2 ? 2 * src_rank : n;
}

/* Bits of attr, the attribute of a node. */
#define DF_REDUCE_KEEPDIMS 0x100u /* reductions, whose bits 0-7 are the reduced axes */
#define DF_ORDER_DESCENDING 1u    /* the operators `argsort`, `sort` and `topk` */
#define DF_WHICH_ZEROS 1u         /* the operator `which`: 0 instead of -1 in unused rows */

/* ---- tags of loops ---- */

/* The attr of a loop may be a tag that names the function which the loop computes. In fast mode a
 * device may compute that function in one routine instead of running the iterations. The code that
 * records the loop guarantees that the tag is true. The tag remains true when a gradient or
 * deft_vmap records the loop again, also with more batch axes.
 *
 *   attention       The loop runs over blocks of keys. q has shape [..., S, D]. An iteration reads
 *                   a row of each of three inputs: keys k [..., block, D], values v [..., block, E]
 *                   and positions [block] of the keys. Positions are 0, 1, 2, ... over all blocks.
 *                   The states m, l and acc pass from one iteration to the next. They start at
 *                   -infinity, 0 and 0. The scores are q k^T (lazy/layers/attention.c).
 *   attention_grad  The same rows. State: dq, which starts at 0. Each iteration yields dk and dv of
 *                   its block, and the loop stacks them.
 */
typedef enum df_loop_kind {
    DF_LOOP_PLAIN,
    DF_LOOP_ATTENTION,
    DF_LOOP_ATTENTION_GRAD,
    DF_N_LOOP_KINDS
} df_loop_kind;

/* The tag of a loop, which its attr encodes. */
typedef struct df_loop_tag {
    df_loop_kind kind; /* DF_LOOP_PLAIN: the loop has no tag, and all other fields are 0 */
    bool is_causal;    /* query i uses only the keys 0 .. i */
    bool is_scaled;    /* q in the loop is the caller's q times 1 / sqrt(D) */
    bool is_padded;    /* the last block has keys that no query uses, after the others */
    deft_dtype from;   /* dtype of the caller's q, k and v; the loop works on halves in f32 */
} df_loop_tag;

/* The attr of a loop with this tag. */
uint32_t df_loop_attr(df_loop_tag tag);
/* The tag in the attr of a loop. Returns false when no loop can have that attr. *out is written in
 * both cases. */
bool df_loop_tag_of(uint32_t attr, df_loop_tag *out);
/* The name in the text form: "attention". "" for DF_LOOP_PLAIN. */
const char *df_loop_kind_name(df_loop_kind kind);

/* The rank and the extents of a value. */
typedef struct df_shape {
    uint32_t rank;
    int64_t dim[DEFT_MAX_RANK];
} df_shape;

#endif
