/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a plan of parts (loops, branches) on any device: what it does with memory goes through a
 * table, so that addresses are only the device's business.
 */
#ifndef DF_RUNTIME_FLOW_H
#define DF_RUNTIME_FLOW_H

#include "runtime/device.h"

/* A loop or a branch of which nothing has run yet. */
typedef struct df_flow_construct {
    const df_plan *plan;
    const df_part *part;
    const df_trace *t; /* of plan, as slots are */
    const int64_t *slots;
    df_launch_io *io;
    /* As the inputs of body and of other are bound: of ROW ports to the first row, of STATE and
     * NUMBER ports to nothing. They may be changed. */
    df_input *body, *other;
    void *const *init; /* LOOP, per state: where it is at first */
    const void *cond;  /* COND: where the condition is */
    df_buffer **made;  /* out, per root of body: what it leaves behind; NULL: nobody wants it */
} df_flow_construct;

/* self: the device's own, of one run. What is put in is in order. */
typedef struct df_flow_ops {
    const df_mem *mem;
    /* A plan without parts. */
    deft_status (*run)(void *self, df_diag *d, const df_plan *plan, const df_trace *t,
                       const int64_t *slots, df_launch_io *io, df_run_stats *stats);
    deft_status (*create)(void *self, df_diag *d, int64_t bytes, df_buffer **out);
    deft_status (*copy)(void *self, df_diag *d, void *to, const void *from, size_t bytes);
    /* The first bytes, 8 at most, of bits. */
    deft_status (*put)(void *self, df_diag *d, void *to, uint64_t bits, size_t bytes);
    /* Waits for it, where that is a matter of waiting. */
    deft_status (*holds)(void *self, df_diag *d, const void *at, bool *out);
    /* All of the loop that is `part` of plan, which has a tag (df_part_tag), in the device's own
     * way. in: where each port of an iteration reads, of rows the first; NULL for states. out:
     * where what each root of an iteration leaves behind goes, a state or all rows; NULL: nobody
     * wants it. *done false: nothing was done, and the loop turns. NULL as a whole: it always does.
     */
    deft_status (*run_tagged)(void *self, df_diag *d, const df_plan *plan, const df_part *part,
                              const int64_t *slots, void *const *in, void *const *out, bool *done);
    /* All of a branch, or of a loop with a test, without a word to the host. *done false: nothing
     * was done, and the host decides. NULL: it always does. */
    deft_status (*run_whole)(void *self, df_diag *d, const df_flow_construct *w, bool *done);
    bool reads_host; /* plans read the host's memory, so that numbers need not be put anywhere */
} df_flow_ops;

/* df_device.run of a plan of parts. */
deft_status df_flow_run(const df_flow_ops *ops, void *self, df_diag *d, const df_plan *plan,
                        const df_trace *t, const int64_t *slots, df_launch_io *io,
                        df_run_stats *stats);

#endif
