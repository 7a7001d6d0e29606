/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a plan of parts (loops, branches) on any device. All access to memory goes through a table
 * of functions of the device, so that this module never reads through an address.
 */
#ifndef DF_RUNTIME_FLOW_H
#define DF_RUNTIME_FLOW_H

#include "runtime/device.h"

/* A loop or a branch of which nothing has run yet. */
typedef struct df_flow_construct {
    const df_plan *plan;
    const df_part *part;
    const df_trace *t;    /* the trace of plan */
    const int64_t *slots; /* values of the slots of plan in this run */
    df_launch_io *io;
    /* The inputs of part->body and part->other: for a LOOP, an iteration and its test; for a COND,
     * the two sides. A ROW port is bound to the first row. A STATE port has no address. The address
     * of a NUMBER port must not be used: the callee sets its own. The callee may change both
     * arrays. */
    df_input *body, *other;
    /* LOOP without a test: per input of the body, the buffer that holds it; NULL: memory of the
     * caller, a row or a number. NULL for other constructs. */
    const df_buffer *const *bufs;
    void *const *init; /* LOOP: per state, the address of its initial value */
    const void *cond;  /* COND: the address of the condition */
    /* Out: per root of body, a new reference to the state after the last iteration, all rows, or
     * the result of a branch. All entries are NULL at first. The entry of a result that nothing
     * reads (part->out) stays NULL. The callee sets entries only when it succeeds with *done
     * true. */
    df_buffer **made;
    df_run_stats *stats; /* of the run; the callee adds to it, but counts no launches */
} df_flow_construct;

/* Runs a construct in another way than part by part. When *done is false, nothing was done. */
typedef deft_status df_flow_run_fn(void *self, df_diag *d, const df_flow_construct *w, bool *done);

/* What a device does for a run of a plan of parts. `self` belongs to the device and to one run.
 * All functions enqueue or execute their work in the order of the calls. */
typedef struct df_flow_ops {
    const df_mem *mem;
    /* Runs a plan without parts; as df_device.run. */
    deft_status (*run)(void *self, df_diag *d, const df_plan *plan, const df_trace *t,
                       const int64_t *slots, df_launch_io *io, df_run_stats *stats);
    /* Creates a buffer, which the caller owns. */
    deft_status (*create)(void *self, df_diag *d, int64_t bytes, df_buffer **out);
    /* Copies between two addresses of the device. */
    deft_status (*copy)(void *self, df_diag *d, void *to, const void *from, size_t bytes);
    /* Writes the first `bytes` bytes of bits, 8 at most, to the address `to`. */
    deft_status (*put)(void *self, df_diag *d, void *to, uint64_t bits, size_t bytes);
    /* Reads the condition at address `at`, a bool of 1 byte. A GPU waits until it has been
     * computed. */
    deft_status (*holds)(void *self, df_diag *d, const void *at, bool *out);
    /* Runs all iterations of the loop `part`, whose tag is free (df_part_tag), by special code.
     *
     * Port i of an iteration reads at in[i]. For rows this is the address of the first row, for
     * states it is NULL: the kind of the tag implies their initial values. The address of a
     * NUMBER port must not be used. Root i writes its final state, or all its rows, to out[i],
     * which is NULL when nothing reads them.
     *
     * When *done is false, the device has refused and nothing was done. The loop then runs one
     * iteration at a time. The member may be NULL: the device always refuses. */
    deft_status (*run_tagged)(void *self, df_diag *d, const df_plan *plan, const df_part *part,
                              const int64_t *slots, void *const *in, void *const *out, bool *done);
    /* Runs a branch, or a loop with a test, so that the device decides, without waiting for the
     * host. When it refuses, the host decides. May be NULL: the device always refuses. */
    df_flow_run_fn *run_whole;
    /* Runs all iterations of a loop without a test. When it refuses, they run one by one. May be
     * NULL. */
    df_flow_run_fn *run_loop;
    /* The last part may write over inputs that are SOLE. Its run allocates everything before its
     * first launch, so once it has written, the run cannot fail. */
    bool donates;
    bool reads_host; /* plans can read memory of the host: iteration numbers need no copy */
} df_flow_ops;

/* Implements df_device.run for a plan of parts. stats may be NULL. On failure all entries of
 * io->root are NULL. */
deft_status df_flow_run(const df_flow_ops *ops, void *self, df_diag *d, const df_plan *plan,
                        const df_trace *t, const int64_t *slots, df_launch_io *io,
                        df_run_stats *stats);

#endif
