/* SPDX-License-Identifier: Apache-2.0
 *
 * Where values live, and how they get elsewhere (docs/cuda.md, "Using it").
 *
 *   runtime    GPUs, opened when first asked for, there until it ends              gpus.c
 *   context    a queue on each GPU it has used; df_value_where                     gpus.c
 *   values     copied to another device, read, written                             copy.c
 *   cuts       inputs that live elsewhere are copied for the run; results that
 *              belong elsewhere are brought there                                  stage.c
 *
 * Addresses of a GPU are in df_value.data and df_buffer.data like any; nobody but the functions of
 * copy.c looks at what is behind them.
 */
#ifndef DF_LAZY_DEVICES_H
#define DF_LAZY_DEVICES_H

#include "lazy/core/history.h"

/* ---- gpus.c ---- */

/* Opened when it is not yet. where: no DEFT_CPU. DEFT_E_ARG: there can be no such device;
 * DEFT_E_BACKEND: it can't be used. Any thread. */
deft_status df_rt_gpu(deft_runtime *rt, df_diag *d, deft_device where, df_device **out);
/* How many GPUs the driver has. Any thread. */
deft_status df_rt_gpu_count(deft_runtime *rt, df_diag *d, int *out);
/* The device at `where`, or NULL when it has not been opened. Any thread. */
df_device *df_rt_opened(deft_runtime *rt, deft_device where);
void df_rt_gpus_wait_idle(deft_runtime *rt); /* until none of them makes code beside runs */
void df_rt_gpus_close(deft_runtime *rt);     /* all contexts and plans are gone */
/* The device of plans for `where`, which a context has used. */
df_device *df_ctx_device(const deft_ctx *cx, deft_device where);
/* Opens the context's queue there when there is none yet. theirs: the caller's stream, as
 * df_device_memory_ops.queue_create takes it. */
deft_status df_ctx_use(deft_ctx *cx, df_diag *d, deft_device where, void *theirs);
/* Puts the context where its options say. */
deft_status df_ctx_choose_device(deft_ctx *cx, df_diag *d);
/* A step begins, or work outside steps: what is replayed is looked for from the start. */
void df_ctx_begin_generation(deft_ctx *cx);
void df_ctx_show_replay(deft_ctx *cx, df_str *out);
/* Until all queues are empty. */
deft_status df_ctx_wait(deft_ctx *cx, df_diag *d);
/* Waits until all queues are empty. A failure goes to the log. */
void df_ctx_drain(deft_ctx *cx);
/* Destroys the queues, which are empty. No value of the context is left. */
void df_ctx_leave(deft_ctx *cx);

#define DF_DEVICE_TEXT 24
/* The functions of the GPU that q belongs to, or NULL when that GPU replays nothing. */
const df_device_memory_ops *df_queue_replay(const df_ctx_queue *q);
/* Whether a device may have this number; the device need not exist. */
DF_INLINE bool df_device_can_be(deft_device where)
{
    return where >= DEFT_CPU && where <= DF_MAX_GPUS;
}

/* "cpu", "cuda:0" */
const char *df_device_text(deft_device where, char buf[DF_DEVICE_TEXT]);

deft_device df_value_device(const deft_ctx *cx, const df_value *v);
DF_INLINE deft_device df_value_where(const deft_ctx *cx, const df_value *v)
{
    return DF_LIKELY(!cx->n_queues) ? DEFT_CPU : df_value_device(cx, v);
}

/* ---- copy.c ---- */

/* refs = 1; of a device that cx uses. */
deft_status df_ctx_buffer(deft_ctx *cx, df_diag *d, deft_device where, int64_t bytes,
                          df_buffer **out);
/* n bytes between two devices, or on one. To the host, it waits; from the host, they may change as
 * soon as it returns. */
deft_status df_ctx_copy(deft_ctx *cx, df_diag *d, deft_device to_where, void *to,
                        deft_device from_where, const void *from, size_t n);
/* The bytes between v's first and last element, with the alignment they have: *data is the address
 * of element [0,..] in *buf. */
deft_status df_value_span(deft_ctx *cx, df_diag *d, const df_value *v, deft_device where,
                          df_buffer **buf, char **data);
/* A copy of v there, row-major. */
deft_status df_value_moved(deft_ctx *cx, df_diag *d, const df_value *v, deft_device where,
                           df_value **out);
/* Copies v's elements row-major into dst on the host, as dtype; waits for them. */
deft_status df_value_read(deft_ctx *cx, df_diag *d, const df_value *v, deft_dtype dtype, void *dst);
/* v itself where the host has it, else a copy there. */
deft_status df_value_host(deft_ctx *cx, df_diag *d, df_value *v, df_value **out);
/* Writes row-major elements of v's dtype, which live on device `where`, through v's strides. The
 * host's memory is written from the host alone, and then nothing can fail. */
deft_status df_value_assign(deft_ctx *cx, df_diag *d, const df_value *v, deft_device where,
                            const void *from);

/* ---- stage.c ---- */

/* Inputs of m that live elsewhere than it runs get copies, which its trace reads. On failure there
 * are none. */
deft_status df_cut_stage(deft_ctx *cx, df_cut *m);
void df_cut_unstage(df_cut *m);
/* Before m runs: room on the host for results that the host's memory gets. */
deft_status df_cut_ready(deft_ctx *cx, df_cut *m, const df_want *want);
void df_cut_unready(df_cut *m);
/* When m has run: those results are on the host, in m->bufs; memory of GPUs that is written by
 * copying has been. On failure m->bufs is empty. */
deft_status df_cut_bring(deft_ctx *cx, df_cut *m, const df_want *want, df_diag *d);

/* The trace of m with inputs that the host can read, until it is dropped. */
typedef struct df_lent {
    df_trace t;
    df_input *inputs; /* of t; NULL: they are those of the trace itself */
    df_buffer **buf;  /* per input; NULL: not copied */
} df_lent;
deft_status df_cut_lend(deft_ctx *cx, df_diag *d, const df_cut *m, df_lent *out);
void df_lent_drop(deft_ctx *cx, df_lent *l);

#endif
