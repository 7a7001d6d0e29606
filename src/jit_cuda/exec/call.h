/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the GPU device: one run of a plan without parts, enqueued launch by launch (call.c). A
 * graph of the run shares the steps that are declared here.
 */
#ifndef DF_JIT_CUDA_CALL_H
#define DF_JIT_CUDA_CALL_H

#include "jit_cuda/exec/layout.h"

/* One run of a plan without parts. */
typedef struct df_cuda_call {
    df_cuda_device *c;
    df_diag *d;
    const df_plan *plan;
    const df_trace *t;
    const int64_t *slots;
    df_launch_io *io;
    df_queue *q;
    df_cuda_run_layout *f;
    bool by_table; /* whether its layout is to use a table */
    df_run_stats stats;
    /* memory of table, temporaries and scratch */
    df_buffer *arena;
    char *table;    /* address of the arena, or NULL */
    bool has_begun; /* launches may have been enqueued */
    /* the construct of which this is a plan, when it runs as one graph; else NULL */
    struct df_cuda_conditional *whole;
} df_cuda_call;

/* Runs r, whose layout is built: allocates memory, fills in words, enqueues launches. A
 * failure leaves memory that outlives the run unchanged, unless the driver fails in the
 * middle of the launches. */
deft_status df_cuda_call_plain(df_cuda_call *r);
/* Bytes of the arena. They include room for a table of all words, and so are equal by value
 * and by table. */
int64_t df_cuda_call_arena_bytes(const df_cuda_call *r);
/* The least size of the arena: with the table that the layout has, and none in addition. */
int64_t df_cuda_call_least_bytes(const df_cuda_call *r);
/* Sets the addresses of the arena, fills in all words, and lists the copies before the
 * launches. */
deft_status df_cuda_call_fill(df_cuda_call *r, char *arena);
/* Uploads the table. */
deft_status df_cuda_call_put_table(df_cuda_call *r);
/* Divides the steps of a built layout into phases. */
void df_cuda_call_divide(df_cuda_call *r);
/* Reads the fault words, and waits. Returns DEFT_E_RANGE when a check has failed, or an
 * error of the driver. */
deft_status df_cuda_call_fault(df_cuda_call *r);
/* Whether another thread asked the run to stop. */
bool df_cuda_call_is_interrupted(const df_cuda_call *r);
/* Takes a run layout of the plan, or creates one. Returns NULL when memory runs out. */
df_cuda_run_layout *df_cuda_call_take_frame(const df_cuda_call *r);
/* Gives a run layout back to the plan. */
void df_cuda_call_give_frame(const df_cuda_call *r, df_cuda_run_layout *f);
/* Whether buffer buf is a root that has no memory yet. */
bool df_cuda_call_wants(const df_cuda_call *r, df_buf buf);
/* Allocates memory for root buf. */
deft_status df_cuda_call_new_root(df_cuda_call *r, df_buf buf);

#endif
