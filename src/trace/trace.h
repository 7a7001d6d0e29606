/* SPDX-License-Identifier: Apache-2.0
 *
 * A closed trace: the result of a cut, which the cache, the fuser and the printers read.
 *
 *   nodes   In topological order: every operand has a lower index than its user. Nodes are plain
 *           bytes, which are hashed and compared directly.
 *   shape   Per node, the index in `extents` of its first extent. Not part of the identity.
 *   args    Numbers, slice starts and steps, seeds. Not part of the identity. The first argument
 *           of node k is args[nodes[k].arg]. Arguments are numbered in node order, so that
 *           nodes[k].arg follows from the structure. In simplified copies, two slices may share
 *           arguments.
 *   inputs  One per `input` node. The attr of the node is the index of its input. The node gives
 *           the dtype and the rank. Guards check memory, strides and flags.
 *   roots   The nodes whose values the trace stores, in order.
 *
 * The *identity* of a trace is nodes + roots + flags + the bound on temporaries + what calls of
 * opaque operators name (df_trace_key).
 * Everything else may change from run to run under the same plan, as long as its guards hold.
 *

 * Text form (print.c, parse.c; grammar in docs/trace-format.md):
 *
 *   %0 = input f32[128,64] strides=[64,1]
 *   %1 = num f32[] 0x1p-1
 *   %2 = mul f32[128,64] %0 %1
 *   %3 = sum f32[128] %2 axes=[1]
 *   output %3
 *
 * Why this file is long: one structure, and the contract of every operation on it.
 */
#ifndef DF_TRACE_TRACE_H
#define DF_TRACE_TRACE_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/hash.h"
#include "base/str.h"
#include "ops/op.h"

struct df_opaques; /* trace/opaque.h */

/* The index of a node in a trace. A struct of its own, so that no other index converts to it. */
typedef struct df_ref {
    uint32_t i;
} df_ref;

#define DF_NO_REF ((df_ref){ UINT32_MAX })
#define DF_NONE UINT32_MAX /* no index, for all indices that are plain integers */

/* One operator. op is a df_op, dtype a deft_dtype. */
typedef struct df_node {
    uint8_t op, dtype, rank, n_src;
    df_ref src[3]; /* the n_src operands; DF_NO_REF where unused */
    uint32_t attr; /* constants of the operator; ops.def gives the meaning for each op */
    uint32_t arg;  /* index in df_trace.args of its first argument; 0 when the op has none */
} df_node;
_Static_assert(sizeof(df_node) == 24, "hashed and compared as bytes: no padding, no extents");

/* Flags of an input. */
enum {
    DF_INPUT_WRAPPED = 1,    /* wrapped memory of the caller: the run never donates it */
    DF_INPUT_SOLE = 2,       /* the run may donate the memory; never set together with WRAPPED */
    DF_INPUT_CONTIGUOUS = 4, /* the elements are row-major without gaps */
    DF_INPUT_ALIGNED = 8     /* the address is a multiple of 64 bytes */
};

/* A value that the trace reads. */
typedef struct df_input {
    void *data;                    /* address of element [0,...,0]; NULL in a parsed trace */
    int64_t bytes;                 /* from the lowest byte in reach to the end of the highest */
    int64_t stride[DEFT_MAX_RANK]; /* per axis, in elements; may be negative or 0 */
    uint32_t node;                 /* index of the input node that names this input */
    uint32_t flags;                /* DF_INPUT_* */
} df_input;

/* Where the value of a root is stored. */
enum {
    DF_ROOT_NEW = 0, /* in a new contiguous buffer, or in the memory of the donor */
    DF_ROOT_INTO = 1 /* in the memory of input `into`, which the caller wrapped for writing */
};

/* A node whose value the trace stores. */
typedef struct df_root {
    uint32_t node;
    uint16_t kind;  /* DF_ROOT_* */
    uint16_t pad;   /* 0 */
    uint32_t into;  /* index of the input for DF_ROOT_INTO, else DF_NONE */
    uint32_t donor; /* index of the input whose memory may become the memory of this root, because
                       this root replaces its value (DF_INPUT_SOLE decides); or DF_NONE */
} df_root;
_Static_assert(sizeof(df_root) == 16, "hashed as bytes");

/* Flags of a trace. The device is part of them, so that two devices never share a plan. The text
 * form does not show the device. */
enum {
    DF_TRACE_FAST = 1,          /* DEFT_FAST numerics */
    DF_TRACE_NOFUSE = 2,        /* one kernel per operator */
    DF_TRACE_DEVICE_SHIFT = 8,  /* position of the deft_device on which the trace runs */
    DF_TRACE_DEVICE_MASK = 0xff /* its mask, after the shift */
};

enum { DF_TRACE_MAX_NODES = 1 << 21 };

/* The header comment of this file describes the arrays. */
typedef struct df_trace {
    df_arena *arena; /* borrowed; a simplified copy shares arrays with a trace of another arena */
    df_node *nodes;
    uint32_t *shape; /* per node: index in extents */
    uintptr_t *site; /* per node: return address of the recording call; NULL when not known */
    uint32_t n_nodes;
    int64_t *extents;
    uint32_t n_extents;
    int64_t *args; /* a number is stored as the bits of its dtype, zero-extended */
    uint32_t n_args;
    df_input *inputs;
    uint32_t n_inputs;
    df_root *roots;
    uint32_t n_roots;
    uint32_t flags; /* DF_TRACE_*, and the device */
    /* Bound on the bytes of temporaries that a plan may need at one time. Inputs, roots and values
     * that are written in place do not count. 0 means that there is no bound. Part of the
     * identity. */
    uint64_t max_temporary_bytes;
    /* The operators that its calls number (trace/opaque.h), which outlive the trace. NULL: none */
    const struct df_opaques *opaques;
} df_trace;

/* The extents of a node, as many as its rank. They belong to the trace. */
DF_INLINE const int64_t *df_trace_extents(const df_trace *t, uint32_t node)
{
    return t->extents + t->shape[node];
}

/* The number of elements of a node; 1 for a scalar. */
DF_INLINE int64_t df_trace_numel(const df_trace *t, uint32_t node)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < t->nodes[node].rank; i++) n *= t->extents[t->shape[node] + i];
    return n;
}

/* Computes which bytes an input can touch, from its extents and strides. They start at
 * data + *low, where *low <= 0, and there are *bytes of them. Both are 0 when the input has no
 * elements. Returns false when a number overflows, also for an input without elements. */
bool df_input_reach(const df_trace *t, uint32_t input, int64_t *low, int64_t *bytes);

/* df_input_gather copies the elements of an input to `packed`, row-major without gaps.
 * df_input_scatter copies them back. Where elements share memory (strides of 0), the last one in
 * row-major order remains. The memory must be accessible to the host. */
void df_input_gather(const df_trace *t, uint32_t input, void *packed);
void df_input_scatter(const df_trace *t, uint32_t input, const void *packed);

/* Whether the elements are row-major without gaps. Strides of axes of extent 1 do not matter, and
 * no stride matters when there are no elements. Strides count elements. */
bool df_strides_contiguous(const int64_t *extents, const int64_t *stride, uint32_t rank);

/* Checks that t is well-formed:
 *   - every operand is below its user; dtypes and shapes obey ops.def;
 *   - arguments and inputs are in range, and exactly one node names each input;
 *   - the place of an update is reached from the array that it updates through views only, and
 *     none of these is an expand;
 *   - loops are well-formed (trace/control.h).
 * On failure, d gets a sentence that names the node. d may be NULL. */
deft_status df_trace_verify(df_diag *d, const df_trace *t);

/* ---- identity ---- */

/* The key of a trace. */
typedef struct df_key {
    df_hash hash;      /* of the bytes */
    const void *bytes; /* borrowed: they live in the arena of the trace */
    size_t n;          /* number of bytes */
} df_key;

/* Writes the identity as one block of bytes into the trace's arena. The block contains a header
 * (version, flags, counts), the nodes, the roots and, unless 0, the bound on temporaries. For each
 * call of an opaque operator, its name, version and attributes follow.
 * Fails with DEFT_E_MEMORY only. */
deft_status df_trace_key(df_diag *d, const df_trace *t, df_key *out);

/* ---- simplification ---- */

/* CSE shares equal nodes, FOLD computes operators on constants, ALGEBRA applies rewrite rules, DCE
 * drops nodes that no root needs. */
enum { DF_PASS_CSE = 1, DF_PASS_FOLD = 2, DF_PASS_ALGEBRA = 4, DF_PASS_DCE = 8, DF_PASS_ALL = 15 };

/* Makes a simplified copy of `in` in arena. passes is a set of DF_PASS_*.
 *
 * The result depends on the identity only, never on extents or on values of arguments. So it is
 * valid for every run of the same key: arguments, inputs and extents keep their indices. The copy
 * shares df_trace.args and df_trace.extents with `in`. It has its own inputs, because the node of
 * an input changes. No input is dropped. Any other dropped node leaves its arguments unused.
 * In strict mode no bit of any root changes.
 *
 * (*from)[k] is the node of `in` that node k of the copy computes. The array lives in arena. from
 * may be NULL. Fails with DEFT_E_MEMORY only. */
deft_status df_trace_simplify(df_diag *d, const df_trace *in, uint32_t passes, df_arena *arena,
                              df_trace **out, uint32_t **from);

/* ---- text ---- */

/* Appends the text form of t to out. Equal traces give equal text: it contains no addresses, and
 * floats are in hexadecimal. */
void df_trace_print(df_str *out, const df_trace *t);
/* Like df_trace_print. `note` may append a comment to the line of node k, such as
 * "  # at mlp.c:41". note may be NULL. */
void df_trace_print_noted(df_str *out, const df_trace *t,
                          void (*note)(df_str *out, uint32_t k, void *user), void *user);
/* Appends node k alone, without its number and without a newline: "mul f32[128,64] %0 %1". */
void df_trace_print_node(df_str *out, const df_trace *t, uint32_t k);

/* Reads n characters of text form into a verified trace in arena. The data of its inputs is NULL.
 * Any text is safe to read: text that is not a trace gives a status and a sentence. The sentence
 * has the number of the line when one line is at fault. */
deft_status df_trace_parse(df_diag *d, const char *text, size_t n, df_arena *arena, df_trace **out);

/* ---- building by hand (parser, tests, tools) ---- */

/* A trace under construction. */
typedef struct df_builder {
    df_trace *t;
    df_diag *diag;
    uint32_t cap_nodes, cap_extents, cap_args, cap_inputs, cap_roots; /* capacities of arrays */
    deft_status st; /* first failure; later calls do nothing and return DF_NO_REF */
} df_builder;

/* Starts an empty trace in arena. b->t is the trace. d, which may be NULL, gets the sentence of the
 * first failure. Nothing needs to be finished: the arena owns all memory. */
deft_status df_build_init(df_builder *b, df_arena *arena, df_diag *d);

/* Appends a node after checking its operands, dtypes, shape and values. Returns DF_NO_REF on
 * failure; b->st is then the status. Some operators take their extents from the record
 * (df_shape_takes_extents) and need out_shape, where NULL means the shape []. For other operators
 * out_shape may be NULL; otherwise it must equal the inferred shape. Only df_trace_verify checks
 * the place of an update, since that check needs the complete trace. */
df_ref df_build_op(df_builder *b, df_op op, deft_dtype t, uint32_t attr, const df_ref *src,
                   uint32_t n_src, const int64_t *args, uint32_t n_args, const df_shape *out_shape);
/* Appends an input node and its input, whose data is NULL. strides count elements; NULL means
 * row-major without gaps. Returns DF_NO_REF on failure. */
df_ref df_build_input(df_builder *b, deft_dtype t, const df_shape *s, const int64_t *strides);
/* Appends a root. The parameters are the fields of df_root. */
void df_build_root(df_builder *b, df_ref r, uint32_t kind, uint32_t into, uint32_t donor);

/* ---- launch-time integers ---- */

/* A slot is an int64_t that a run computes from a trace's extents, arguments and strides. Extents
 * of loops, strides and offsets of accesses and operands of guards are slots. The slots of a plan
 * form one list, in which the operands of a slot are earlier slots. */
typedef enum df_slot_op {
    DF_SLOT_const,  /* imm */
    DF_SLOT_extent, /* extent of node a along axis b */
    DF_SLOT_arg,    /* argument a, as an integer */
    DF_SLOT_stride, /* stride of input a along axis b, in elements */
    DF_SLOT_add,    /* slot a + slot b */
    DF_SLOT_sub,    /* slot a - slot b */
    DF_SLOT_mul,    /* slot a * slot b */
    DF_SLOT_max,    /* the greater of slots a and b */
    DF_SLOT_divup   /* slot a / slot b, rounded up; slot b > 0 */
} df_slot_op;

/* How one slot is computed. */
typedef struct df_slot_def {
    uint32_t op;   /* df_slot_op */
    uint32_t a, b; /* see df_slot_op; 0 where unused */
    uint32_t pad;  /* 0 */
    int64_t imm;   /* the value of DF_SLOT_const */
} df_slot_def;

/* The index of a slot in the list of its plan. */
typedef struct df_slot {
    uint32_t i;
} df_slot;

#define DF_NO_SLOT ((df_slot){ DF_NONE })

DF_INLINE bool df_same_slot(df_slot a, df_slot b)
{
    return a.i == b.i;
}

/* Computes all n slots into out, in order. Sums and products wrap on overflow, since extents were
 * checked when they were recorded. */
void df_slots_eval(const df_slot_def *defs, uint32_t n, const df_trace *t, int64_t *out);

#endif
