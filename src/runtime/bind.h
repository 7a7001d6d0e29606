/* SPDX-License-Identifier: Apache-2.0
 *
 * Binding: what a run computes from a plan, a trace and slots, in the same way on every device.
 *
 *   slots      become extents, strides and base values
 *   buffers    become addresses
 *   arguments  become numbers
 *
 * This header also decides which input a root may reuse the memory of, which launches write
 * memory that outlives a failed run, and how a fault is reported. It allocates nothing.
 *
 * In all functions, `slots` are the evaluated slots of the plan, and `t` is the trace of the
 * run. `origin[b]` is the address of the first element of buffer b.
 */
#ifndef DF_RUNTIME_BIND_H
#define DF_RUNTIME_BIND_H

#include "runtime/device.h"
#include "runtime/routine.h"

/* The arrays that a segment's df_kargs points to, writable. The caller owns them. Their lengths
 * follow from the kernel: see df_kargs. */
typedef struct df_bound {
    char **ptr;
    int64_t *stride, *base, *extent;
    uint64_t *num;
} df_bound;

/* Returns the value of a slot; DF_NONE gives 0. */
DF_INLINE int64_t df_slot_value(const int64_t *slots, df_slot slot)
{
    return slot.i == DF_NONE ? 0 : slots[slot.i];
}

/* Fills in b->extent, b->stride and b->base. */
void df_bind_extents(const df_bound *b, const df_kernel *k, const df_seg *seg,
                     const int64_t *slots);
/* Fills in b->ptr. Accesses without a buffer (DF_NONE) get NULL. */
void df_bind_addresses(const df_bound *b, const df_kernel *k, const df_seg *seg,
                       const int64_t *slots, char *const *origin);
/* Fills in b->num. */
void df_bind_numbers(const df_bound *b, const df_kernel *k, const df_seg *seg, const int64_t *slots,
                     const df_trace *t);
/* Returns the bits of number slot i of the segment. */
uint64_t df_bind_number(const df_seg *seg, uint32_t i, const int64_t *slots, const df_trace *t);

/* Returns the size of a buffer in bytes. */
int64_t df_bind_bytes(const df_plan_buf *b, const int64_t *slots);

/* Returns the buffer of an input whose memory root buffer b may reuse, as a new reference.
 * Returns NULL when there is no such input: b then needs memory of its own. */
df_buffer *df_bind_donated(const df_plan *plan, const df_plan_buf *b, const df_trace *t,
                           const int64_t *slots, const df_launch_io *io);

/* The next three are for DF_SEG_ROUTINE segments. Returns true when the segment scatters
 * values; its job is then made by df_bind_scatter, else by df_bind_routine. */
bool df_bind_is_scatter(const df_seg *seg);
/* origin NULL: the job has sizes, and its addresses are NULL. */
/* The dtype of the result of such a routine. */
deft_dtype df_bind_routine_dtype(const df_seg *seg);
df_routine_job df_bind_routine(const df_seg *seg, const int64_t *slots, char *const *origin);
/* origin must not be NULL. */
df_scatter_job df_bind_scatter(const df_seg *seg, const int64_t *slots, char *const *origin);

/* Returns true when the plan writes memory that outlives a failed run: wrapped memory, or the
 * memory of a donated input. Once a launch has written such memory, the run cannot be undone. */
bool df_bind_has_kept(const df_plan *plan, const df_trace *t, char *const *origin);
/* Returns true when launch l writes such memory. */
bool df_bind_writes_kept(const df_plan *plan, const df_launch *l, const df_trace *t,
                         char *const *origin);

/* Reports the fault that a check has found. `fault` is as in df_kargs. Returns DEFT_OK where
 * fault[0] is 0, else DEFT_E_RANGE; d gets the sentence, the node and the call site. */
deft_status df_bind_fault(df_diag *d, const df_plan *plan, const df_trace *t,
                          const int64_t fault[3]);

#endif
