/* SPDX-License-Identifier: Apache-2.0
 *
 * A closed trace: what a cut hands to the cache, the fuser and the printers.
 *
 *   nodes   topological order, every operand below its user. Plain bytes: hashed and compared as
 *           they stand.
 *   shape   per node, where its extents start in `extents`: not part of the identity.
 *   args    numbers, slice starts and steps, seeds: not part of the identity. Node k's first slot
 *           is nodes[k].arg; slots are numbered in node order, so arg follows from the structure.
 *           In simplified copies a slice may have the slots of an earlier one.
 *   inputs  one per `input` node ordinal: dtype and rank are those of the node; memory, strides and
 *           flags are facts that guards look at.
 *   roots   what must be stored, in order.
 *
 * The *identity* of a trace is nodes + roots + flags + the bound on temporaries (df_trace_key).
 * Everything else may change from run to run under the same plan as long as the plan's guards hold.
 *
 * Text form (print.c, parse.c; grammar in docs/trace-format.md):
 *
 *   %0 = input f32[128,64] strides=[64,1]
 *   %1 = num f32[] 0x1p-1
 *   %2 = mul f32[128,64] %0 %1
 *   %3 = sum f32[128] %2 axes=[1]
 *   output %3
 */
#ifndef DF_TRACE_TRACE_H
#define DF_TRACE_TRACE_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/hash.h"
#include "base/str.h"
#include "ops/op.h"

typedef struct df_ref {
    uint32_t i;
} df_ref;

#define DF_NO_REF ((df_ref){ UINT32_MAX })
#define DF_NONE UINT32_MAX

typedef struct df_node {
    uint8_t op, dtype, rank, n_src;
    df_ref src[3]; /* DF_NO_REF where unused */
    uint32_t attr; /* meaning per op: ops.def */
    uint32_t arg;  /* first argument slot; 0 when the op has none */
} df_node;
_Static_assert(sizeof(df_node) == 24, "hashed and compared as bytes: no padding, no extents");

enum {
    DF_INPUT_WRAPPED = 1,    /* the caller's memory: never donated, never reused */
    DF_INPUT_SOLE = 2,       /* may be donated: lazy.h, df_may_donate. Never of WRAPPED memory */
    DF_INPUT_CONTIGUOUS = 4, /* row-major, no gaps */
    DF_INPUT_ALIGNED = 8     /* address is a multiple of 64 bytes */
};

typedef struct df_input {
    void *data;                    /* address of element [0,...,0] */
    int64_t bytes;                 /* from the lowest to past the highest byte reachable */
    int64_t stride[DEFT_MAX_RANK]; /* in elements */
    uint32_t node;                 /* its input node */
    uint32_t flags;
} df_input;

enum {
    DF_ROOT_NEW = 0, /* stored into a fresh contiguous buffer (or the donor's) */
    DF_ROOT_INTO = 1 /* written through input `into` (memory the caller wrapped for writing) */
};

typedef struct df_root {
    uint32_t node;
    uint16_t kind;
    uint16_t pad;   /* 0 */
    uint32_t into;  /* DF_ROOT_INTO: input ordinal; else DF_NONE */
    uint32_t donor; /* input ordinal whose owner this root rebinds: a candidate; or DF_NONE */
} df_root;
_Static_assert(sizeof(df_root) == 16, "hashed as bytes");

enum {
    DF_TRACE_FAST = 1,          /* DEFT_FAST numerics */
    DF_TRACE_NOFUSE = 2,        /* one kernel per op */
    DF_TRACE_DEVICE_SHIFT = 8,  /* the deft_device it runs on, which its text does not say: */
    DF_TRACE_DEVICE_MASK = 0xff /* plans of two devices never meet */
};

enum { DF_TRACE_MAX_NODES = 1 << 21 };

typedef struct df_trace {
    df_arena *arena;
    df_node *nodes;
    uint32_t *shape;
    uintptr_t *site; /* return address of the recording call; may be NULL as a whole */
    uint32_t n_nodes;
    int64_t *extents;
    uint32_t n_extents;
    int64_t *args; /* numbers as the bits of their dtype, zero-extended */
    uint32_t n_args;
    df_input *inputs;
    uint32_t n_inputs;
    df_root *roots;
    uint32_t n_roots;
    uint32_t flags;
    /* A plan takes no more bytes of temporaries (what is no input, no root and not written in
     * place); 0: as many as it likes. Part of the identity. */
    uint64_t max_temporary_bytes;
} df_trace;

DF_INLINE const int64_t *df_trace_extents(const df_trace *t, uint32_t node)
{
    return t->extents + t->shape[node];
}

DF_INLINE int64_t df_trace_numel(const df_trace *t, uint32_t node)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < t->nodes[node].rank; i++) n *= t->extents[t->shape[node] + i];
    return n;
}

/* The bytes that input may touch: from data + *low (<= 0), *bytes of them (0 when the input is
 * empty). false on overflow. */
bool df_input_reach(const df_trace *t, uint32_t input, int64_t *low, int64_t *bytes);

/* Copies the elements of input from its memory to `packed`, row-major without gaps, or back. Where
 * elements share memory (strides of 0), what comes last is what stays. */
void df_input_gather(const df_trace *t, uint32_t input, void *packed);
void df_input_scatter(const df_trace *t, uint32_t input, const void *packed);

/* Whether strides are those of row-major elements without gaps. Axes of extent 1 are free, and so
 * is everything when there are no elements. */
bool df_strides_contiguous(const int64_t *extents, const int64_t *stride, uint32_t rank);

/* Operands are below users, dtypes and shapes obey ops.def, args and inputs are in range, every
 * input is named by one node, the place of an update is seen through views of what it updates (any
 * but expand), loops are well-formed (trace/control.h). The sentence names the node. */
deft_status df_trace_verify(df_diag *d, const df_trace *t);

/* ---- identity ---- */

typedef struct df_key {
    df_hash hash;
    const void *bytes;
    size_t n;
} df_key;

/* The identity as one block of bytes in the trace's arena: header (version, flags, counts), nodes,
 * roots; with a bound on temporaries, that. */
deft_status df_trace_key(df_diag *d, const df_trace *t, df_key *out);

/* ---- simplification ---- */

enum { DF_PASS_CSE = 1, DF_PASS_FOLD = 2, DF_PASS_ALGEBRA = 4, DF_PASS_DCE = 8, DF_PASS_ALL = 15 };

/* A simplified copy in arena. Looks only at the identity, never at extents or argument values, so
 * that the result is valid for every run of the same key: arguments, inputs and extents keep their
 * numbers. df_trace.args and extents are shared with `in`, inputs are copied, for their node
 * changes. Inputs are never dropped; any other dropped node leaves its argument slots unused.
 * Strict mode changes no bit of any root. Node k of the copy stands for from[k] of `in` (from:
 * allocated in arena; may be NULL). */
deft_status df_trace_simplify(df_diag *d, const df_trace *in, uint32_t passes, df_arena *arena,
                              df_trace **out, uint32_t **from);

/* ---- text ---- */

/* Byte-stable: same trace, same text; no addresses. Floats in hex. */
void df_trace_print(df_str *out, const df_trace *t);
/* The same, with what note appends behind node k: a comment, as "  # at mlp.c:41". */
void df_trace_print_noted(df_str *out, const df_trace *t,
                          void (*note)(df_str *out, uint32_t k, void *user), void *user);
/* Record k alone, without its number and the line's end: "mul f32[128,64] %0 %1". */
void df_trace_print_node(df_str *out, const df_trace *t, uint32_t k);

/* Reads the text form into a verified trace in arena. Inputs have NULL data. Hostile text gives a
 * status and a sentence with the line number, never more. */
deft_status df_trace_parse(df_diag *d, const char *text, size_t n, df_arena *arena, df_trace **out);

/* ---- building by hand (parser, tests, tools) ---- */

typedef struct df_builder {
    df_trace *t;
    df_diag *diag;
    uint32_t cap_nodes, cap_extents, cap_args, cap_inputs, cap_roots;
    deft_status st; /* first failure; later calls do nothing and return DF_NO_REF */
} df_builder;

deft_status df_build_init(df_builder *b, df_arena *arena, df_diag *d);

/* Appends a checked record. out_shape is needed where the shape rule takes extents from the record
 * (NULL is []); elsewhere it may be NULL, or is held against the rule's. What takes the whole trace
 * to see, the place of an update, is left to df_trace_verify. */
df_ref df_build_op(df_builder *b, df_op op, deft_dtype t, uint32_t attr, const df_ref *src,
                   uint32_t n_src, const int64_t *args, uint32_t n_args, const df_shape *out_shape);
/* strides NULL: contiguous. */
df_ref df_build_input(df_builder *b, deft_dtype t, const df_shape *s, const int64_t *strides);
void df_build_root(df_builder *b, df_ref r, uint32_t kind, uint32_t into, uint32_t donor);

/* ---- launch-time integers ---- */

/* A slot is an int64 that a launch computes from a trace's extents, arguments and strides: extents
 * of loops, strides and offsets of accesses, operands of guards. Slots form one list in order;
 * operands are earlier slots. */
typedef enum df_slot_op {
    DF_SLOT_const,  /* imm */
    DF_SLOT_extent, /* node a, axis b */
    DF_SLOT_arg,    /* argument slot a, as an integer */
    DF_SLOT_stride, /* input a, axis b, in elements */
    DF_SLOT_add,    /* slots a, b */
    DF_SLOT_sub,
    DF_SLOT_mul,
    DF_SLOT_max,
    DF_SLOT_divup /* ceil(a / b), b > 0 */
} df_slot_op;

typedef struct df_slot_def {
    uint32_t op; /* df_slot_op */
    uint32_t a, b;
    uint32_t pad; /* 0 */
    int64_t imm;
} df_slot_def;

typedef uint32_t df_slot;

/* Evaluates all n slots into out. Wraps on overflow: extents were checked when recorded. */
void df_slots_eval(const df_slot_def *defs, uint32_t n, const df_trace *t, int64_t *out);

#endif
