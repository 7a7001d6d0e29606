/* SPDX-License-Identifier: Apache-2.0
 *
 * Opaque operators in traces (deft/opaque.h). A call of one is several nodes:
 *
 *   %2 = pass f32[] %0 %1        the list of inputs: %0, then what %1 lists; a `cst` ends it
 *   %3 = call f64[4] %2 acme.fft@1 attributes=0100
 *   %4 = result i64[4] %3 index=1
 *
 * The value of a `call` is result 0. Its attr is a number in the df_opaques of the trace. So the
 * operator, its version and its attributes are part of the identity of a trace, but no address is.
 * A `pass` has no value: it is read by other nodes of this kind and by calls only.
 */
#ifndef DF_TRACE_OPAQUE_H
#define DF_TRACE_OPAQUE_H

#include "base/arena.h"
#include "base/diag.h"
#include "deft/opaque.h"

#include <stdatomic.h>

enum {
    DF_OPAQUE_MOST_TENSORS = 64, /* inputs, and results, of a call */
    DF_OPAQUE_MOST_ATTRIBUTES = 4096,
    DF_OPAQUE_MOST_NAME = 63
};
#define DF_OPAQUE_NONE UINT32_MAX

/* The functions of an operator that is defined in this process. */
typedef struct df_opaque_code {
    deft_op_shape_fn shape;
    deft_op_run_fn run;
    void *user;
    bool dense; /* its inputs have no gaps */
} df_opaque_code;

/* An operator with the attributes of some calls. It does not change and does not move, except that
 * `code` becomes NULL when the operator is destroyed. */
typedef struct df_opaque {
    const char *name;
    uint32_t version, n_in, n_out;
    uint32_t before; /* in a runtime: the entry of the same operator that was added before; or
                      * DF_OPAQUE_NONE */
    size_t attribute_bytes;
    const void *attributes;               /* aligned like memory of malloc; NULL: none */
    uint64_t hash;                        /* of the attributes */
    _Atomic(const df_opaque_code *) code; /* NULL: there is no definition */
} df_opaque;

enum { DF_OPAQUE_SEGMENTS = 13, DF_OPAQUE_FIRST = 16 };
/* The most entries of a table. */
#define DF_OPAQUE_MOST ((uint32_t)DF_OPAQUE_FIRST * ((1u << DF_OPAQUE_SEGMENTS) - 1))

/* A table of operators with attributes. Entries are added by one thread at a time, and read by any.
 * A zeroed table is empty. Segment i has DF_OPAQUE_FIRST << i entries. */
typedef struct df_opaques {
    _Atomic uint32_t n;
    df_opaque *segment[DF_OPAQUE_SEGMENTS];
} df_opaques;

/* The entry of that number. NULL when there is none, or when t is NULL. */
const df_opaque *df_opaques_at(const df_opaques *t, uint32_t number);
/* Returns the place for the next entry, whose number is *number. df_opaques_added makes it part of
 * the table. Returns NULL when memory runs out or the table is full. The arena owns the memory. */
df_opaque *df_opaques_next(df_opaques *t, df_arena *arena, uint32_t *number);
void df_opaques_added(df_opaques *t);

struct df_trace;
/* The number of inputs that node `list`, the operand of a call, lists. At most one more than
 * DF_OPAQUE_MOST_TENSORS is counted. */
uint32_t df_opaque_count_inputs(const struct df_trace *t, uint32_t list);

/* The text of a failure, and the arguments of the functions of x. */
typedef struct df_opaque_saying {
    char why[DF_DIAG_TEXT];
    deft_op_about about;
} df_opaque_saying;
void df_opaque_begin(df_opaque_saying *s, const df_opaque *x, const df_opaque_code *code);
/* Fails with st, or with DEFT_E_STATE when st is no status of a failure. The sentence has the name
 * of x and what its function wrote. */
deft_status df_opaque_fail(df_diag *d, deft_status st, const df_opaque *x, df_opaque_saying *s,
                           const char *what);

/* Asks the shape rule of x for the forms of its results, and checks them. They must have dtypes of
 * records, extents that are not negative, and sizes within 63 bits. */
deft_status df_opaque_forms(df_diag *d, const df_opaque *x, const df_opaque_code *code,
                            const deft_op_form *in, deft_op_form *out);

#endif
