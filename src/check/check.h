/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks for tests of a program (deft/check.h). Internal header of this folder. All files record
 * with public calls only. lazy/layer.h gives them memory and the sentences of mistakes.
 *
 *   report.c       faults, running the function
 *   grad_check.c   gradients against differences
 *   op_check.c     operators: batch rules, loops, captures
 *   reference.c    formulas against functions in C
 *   opaque_check.c the functions of opaque operators
 *
 * No code here has to be fast, so all of it is compiled for size.
 */
#ifndef DF_CHECK_CHECK_H
#define DF_CHECK_CHECK_H

#include "deft/check.h"
#include "lazy/layer.h"

#define DF_CHECK_INPUTS 64 /* the most inputs, and the most results */

/* One check. */
typedef struct df_check {
    deft_ctx *cx;
    const char *what; /* the call, for messages */
    deft_body_fn fn;
    void *user;
    size_t n_in, n_out;
    deft_tensor *in[DF_CHECK_INPUTS]; /* kept tensors: copies of the inputs */
    deft_check_options options;
    char *report;
    size_t n, length; /* of report: its size, and what is written */
    uint32_t n_faults;
    uintptr_t site;     /* of the call */
    bool no_gradient;   /* an opaque operator without one: no gradient is checked */
    bool names_caller;  /* records have the line of the call (df_caller_begin) */
    char first[256];    /* the first fault */
    deft_status failed; /* what is no fault of the function, such as DEFT_E_MEMORY, or DEFT_OK */
} df_check;

/* Notes a fault. */
void df_check_fault(df_check *c, const char *name, const char *fmt, ...) DF_PRINTF(3, 4);
/* Whether st, which a call has returned or recorded, is no fault of the function: memory has run
 * out, for example. Then the check ends with st, whose sentence is `why`. */
bool df_check_fails(df_check *c, deft_status st, const char *why);
/* Forgets the mistake that was recorded since `before` (df_mistakes), and notes a fault: `where`,
 * then its sentence. Returns false. */
bool df_check_mistake(df_check *c, uint32_t before, const char *name, const char *where);

/* Calls the function. Returns false, with the fault noted, when it fails. */
bool df_check_run(df_check *c, const char *name, const char *where, deft_tensor *const *in,
                  deft_tensor **out);

bool df_check_moves(const deft_tensor *t);
/* The weights and directions of a check: uniform numbers in [-1, 1], as f64, of a shape. */
deft_tensor *df_check_draw(df_check *c, uint64_t stream, deft_shape shape);

/* The check of gradients, on c->in. */
deft_status df_check_gradients(df_check *c);

/* The check of a formula against its reference, on c->in. */
deft_status df_check_reference(df_check *c, const deft_op *op);
/* The check of the functions of an opaque operator, on copies of c->in. */
void df_check_opaque(df_check *c, const deft_op_def *def, const void *attributes);

/* Begins an acting call. Copies the inputs and the options. */
deft_status df_check_begin(df_check *c, deft_tensor *const *in, const deft_check_options *options,
                           uintptr_t site);
/* Ends the call: drops the inputs. Returns st, or the status of the faults. */
deft_status df_check_end(df_check *c, deft_status st);

#endif
