/* SPDX-License-Identifier: Apache-2.0
 *
 * On which device values are stored, and how they get to another one (docs/cuda.md,
 * "Using it").
 *
 *   runtime    its GPUs: each is opened on first use and stays open until the
 *              runtime is destroyed                                              gpus.c
 *   context    a queue on each GPU that it has used; df_value_where              gpus.c
 *   values     copied to another device, read, written                           copy.c
 *   cuts       inputs on other devices are transferred before a run, results
 *              that belong to another device after it                            stage.c
 *              inputs are transferred to the host for dumps and logs             lend.c
 *
 * df_value.data and df_buffer.data hold addresses of GPU memory as well as of host
 * memory. Only the functions of copy.c access what a GPU address points to.
 *
 * Functions that take a deft_ctx need the thread of the context. Those with a df_diag set
 * it on failure.
 */
#ifndef DF_LAZY_DEVICES_H
#define DF_LAZY_DEVICES_H

#include "lazy/core/history.h"

/* ---- gpus.c ---- */

/* Gives the GPU `where`, which must not be DEFT_CPU, and opens it on first use. Returns
 * DEFT_E_ARG when `where` cannot be the number of a GPU, and DEFT_E_BACKEND when the GPU
 * cannot be used. DEFT_E_MEMORY is possible. A GPU that could not be opened is tried again
 * by the next call. The runtime owns the device. Any thread. */
deft_status df_rt_gpu(deft_runtime *rt, df_diag *d, deft_device where, df_device **out);
/* Gives the number of GPUs that the driver reports, without opening one. Returns
 * DEFT_E_BACKEND, and not 0, when there is no driver or no GPU. Any thread. */
deft_status df_rt_gpu_count(deft_runtime *rt, df_diag *d, int *out);
/* The device at `where`, or NULL when it has not been opened. DEFT_CPU gives the CPU
 * device. df_device_can_be(where) must hold. Any thread. */
df_device *df_rt_opened(deft_runtime *rt, deft_device where);
/* Waits until no GPU compiles in the background. Any thread. */
void df_rt_gpus_wait_idle(deft_runtime *rt);
void df_rt_gpus_close(deft_runtime *rt); /* closes all GPUs; no context or plan may be left */
/* The device that runs plans for `where`. The context has used it already (df_ctx_use). */
df_device *df_ctx_device(const deft_ctx *cx, deft_device where);
/* Opens the queue of the context on device `where`. Does nothing for DEFT_CPU, and when
 * the queue is open. `theirs` is a stream of the caller for the new queue, as
 * df_device_memory_ops.queue_create takes it, or NULL for a stream of our own. Fails as
 * df_rt_gpu and df_device_memory_ops.queue_create do, and with DEFT_E_ARG when the variable
 * DEFT_REPLAY is neither off nor graphs. On failure the queue is not open. */
deft_status df_ctx_use(deft_ctx *cx, df_diag *d, deft_device where, void *theirs);
/* Sets the default device of the context, and opens its queue there. The device of the
 * options comes first. When that is DEFT_CPU, the variable DEFT_DEVICE counts, and
 * without the variable it is the CPU. With the option allow_cpu, the CPU replaces a GPU
 * that cannot be used. Returns DEFT_E_ARG for a variable that names no device, and for a
 * stream without a GPU. Other failures are those of df_ctx_use. */
deft_status df_ctx_choose_device(deft_ctx *cx, df_diag *d);
/* Called when a step or an outermost scope begins. From then on, each graph tree matches
 * runs from its root again (replay/tree.h). */
void df_ctx_begin_generation(deft_ctx *cx);
/* Appends a description of the graph trees of the context's queues to out. */
void df_ctx_show_replay(deft_ctx *cx, df_str *out);
/* Waits until all queues are empty, also after a failure. Returns the first failure, with
 * its sentence in d. */
deft_status df_ctx_wait(deft_ctx *cx, df_diag *d);
/* Waits until all queues are empty. A failure is logged. */
void df_ctx_drain(deft_ctx *cx);
/* Destroys the queues, which must be empty. No value of the context may be left. */
void df_ctx_leave(deft_ctx *cx);

/* The functions of the GPU that q belongs to. NULL when the queue is not open, or when the
 * GPU offers no graphs. Replay need not be turned on. */
const df_device_memory_ops *df_queue_replay(const df_ctx_queue *q);
/* Whether a device may have this number; the device need not exist. */
DF_INLINE bool df_device_can_be(deft_device where)
{
    return where >= DEFT_CPU && where <= DF_MAX_GPUS;
}

/* Writes "cpu", "cuda:0" and so on into buf. Returns buf. */
#define DF_DEVICE_TEXT 24
const char *df_device_text(deft_device where, char buf[DF_DEVICE_TEXT]);

/* The device on which v is stored. df_value_where is the same without a call for contexts
 * that use no GPU. */
deft_device df_value_device(const deft_ctx *cx, const df_value *v);
DF_INLINE deft_device df_value_where(const deft_ctx *cx, const df_value *v)
{
    return DF_LIKELY(!cx->n_queues) ? DEFT_CPU : df_value_device(cx, v);
}

/* ---- copy.c ---- */

/* Creates a buffer of `bytes` bytes on device `where`, which is DEFT_CPU or a GPU that cx
 * uses already. The content is undefined. The caller owns one reference. */
deft_status df_ctx_buffer(deft_ctx *cx, df_diag *d, deft_device where, int64_t bytes,
                          df_buffer **out);
/* Copies n bytes between two devices, or within one. A copy to the host waits until it is
 * done. After a copy from the host, the caller may change the source as soon as the call
 * returns. */
deft_status df_ctx_copy(deft_ctx *cx, df_diag *d, deft_device to_where, void *to,
                        deft_device from_where, const void *from, size_t n);
/* Copies the bytes from v's lowest element to its highest, gaps included, into a new buffer
 * on device `where`. v's strides stay valid for the copy. Sets
 * *data to the address of element [0,..] in the buffer, which has the alignment that v
 * has. The caller owns a reference to *buf. */
deft_status df_value_span(deft_ctx *cx, df_diag *d, const df_value *v, deft_device where,
                          df_buffer **buf, char **data);
/* Makes a row-major copy of v on device `where`. The caller owns a reference to *out. */
deft_status df_value_moved(deft_ctx *cx, df_diag *d, const df_value *v, deft_device where,
                           df_value **out);
/* Copies v's elements in row-major order into dst on the host, converted to dtype. Returns
 * when the copy is done. */
deft_status df_value_read(deft_ctx *cx, df_diag *d, const df_value *v, deft_dtype dtype, void *dst);
/* Gives v itself when it is stored on the host, else a copy of it there. The caller owns
 * a reference to *out. */
deft_status df_value_host(deft_ctx *cx, df_diag *d, df_value *v, df_value **out);
/* Writes row-major elements of v's dtype, which are stored at `from` on device `where`,
 * through v's strides. When v is stored on the host, `where` must be DEFT_CPU, and the
 * call cannot fail. A source on the host may change as soon as the call returns. */
deft_status df_value_assign(deft_ctx *cx, df_diag *d, const df_value *v, deft_device where,
                            const void *from);

/* ---- stage.c ---- */

/* Transfers the inputs of m that are stored on another device than m->where. The trace of
 * m reads the copies. Memory that only gets a result is not copied. On failure there are
 * no copies, and cx->diag has the sentence. */
deft_status df_cut_stage(deft_ctx *cx, df_cut *m);
/* Drops the copies that df_cut_stage made. */
void df_cut_unstage(df_cut *m);
/* Called before m runs. When m runs on a GPU, some results may belong into wrapped host
 * memory. Allocates a host buffer for each of them. On failure there are no such buffers,
 * and cx->diag has the sentence. */
deft_status df_cut_ready(deft_ctx *cx, df_cut *m, const df_want *want);
/* Drops the host buffers that df_cut_ready made. */
void df_cut_unready(df_cut *m);
/* Called after m has run. Downloads the results for which df_cut_ready made room, so that
 * m->bufs holds host buffers for them. Results for wrapped GPU memory that the run has
 * not written itself are copied there. On failure m->bufs is empty. */
deft_status df_cut_bring(deft_ctx *cx, df_cut *m, const df_want *want, df_diag *d);

/* A copy of the trace of a cut whose inputs the host can read. Valid until df_lent_drop.
 * The cut must outlive the copy, which shares everything but the inputs. */
typedef struct df_lent {
    df_trace t;
    df_input *inputs; /* owned, and equal to t.inputs; NULL: t uses the inputs of the cut's trace */
    df_buffer **buf;  /* per input: the host buffer with the copy; NULL: not copied */
} df_lent;
/* Fills *out with such a copy of the trace of m. On failure *out is empty. */
deft_status df_cut_lend(deft_ctx *cx, df_diag *d, const df_cut *m, df_lent *out);
/* Drops the copies, and empties *l. */
void df_lent_drop(deft_ctx *cx, df_lent *l);

#endif
