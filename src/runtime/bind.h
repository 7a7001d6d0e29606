/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run needs on every device: slots become extents, strides and base values, buffers become
 * addresses, arguments become numbers; which memory a root takes over; what may not be written
 * before all is known to be well; what a fault says.
 */
#ifndef DF_RUNTIME_BIND_H
#define DF_RUNTIME_BIND_H

#include "runtime/device.h"
#include "runtime/routine.h"

/* The arrays of a segment's df_kargs, as long as its kernel has them. */
typedef struct df_bound {
    char **ptr;
    int64_t *stride, *base, *extent;
    uint64_t *num;
} df_bound;

DF_INLINE int64_t df_slot_value(const int64_t *slots, df_slot slot)
{
    return slot == DF_NONE ? 0 : slots[slot];
}

/* What follows from slots. */
void df_bind_extents(const df_bound *b, const df_kernel *k, const df_seg *seg,
                     const int64_t *slots);
/* origin: of each buffer. NULL for accesses that have none. */
void df_bind_addresses(const df_bound *b, const df_kernel *k, const df_seg *seg,
                       const int64_t *slots, char *const *origin);
void df_bind_numbers(const df_bound *b, const df_kernel *k, const df_seg *seg, const int64_t *slots,
                     const df_trace *t);
uint64_t df_bind_number(const df_seg *seg, uint32_t i, const int64_t *slots, const df_trace *t);

/* Bytes of a buffer; of all temporaries; and where buffer `index` of these begins. */
int64_t df_bind_bytes(const df_plan_buf *b, const int64_t *slots);
int64_t df_bind_temporaries(const df_plan *plan, const int64_t *slots);
int64_t df_bind_region(const df_plan *plan, const int64_t *slots, uint32_t index);

/* A reference to the memory that root buffer b takes over, or NULL. */
df_buffer *df_bind_donated(const df_plan *plan, const df_plan_buf *b, const df_trace *t,
                           const int64_t *slots, const df_launch_io *io);

/* Jobs of DF_SEG_ROUTINE segments: of scatter_add and index_add, and of the others (origin NULL:
 * without addresses). */
bool df_bind_is_scatter(const df_seg *seg);
df_routine_job df_bind_routine(const df_seg *seg, const int64_t *slots, char *const *origin);
df_scatter_job df_bind_scatter(const df_seg *seg, const int64_t *slots, char *const *origin);

/* Whether memory that outlives a failed run is written, by the plan or by one launch: then the run
 * can no longer be undone. */
bool df_bind_has_kept(const df_plan *plan, const df_trace *t, char *const *origin);
bool df_bind_writes_kept(const df_plan *plan, const df_launch *l, const df_trace *t,
                         char *const *origin);

/* DEFT_E_RANGE for the words of a check that failed (df_kargs.fault); OK where fault[0] is 0. */
deft_status df_bind_fault(df_diag *d, const df_plan *plan, const df_trace *t,
                          const int64_t fault[3]);

#endif
