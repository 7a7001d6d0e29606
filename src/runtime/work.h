/* SPDX-License-Identifier: Apache-2.0
 *
 * External work (deft_device_work in deft/device.h) as a device gets it, through
 * df_device_memory_ops.work.
 */
#ifndef DF_RUNTIME_WORK_H
#define DF_RUNTIME_WORK_H

#include <stdint.h>

#include "deft/status.h"
#include "runtime/replay_event.h"

typedef struct df_work {
    const char *name;
    /* Enqueues the work in `stream`, and returns without waiting for it. */
    deft_status (*fn)(void *stream, const void *const *in, void *const *out, void *user);
    void *user;
    /* Not 0: while fn, user, key, addresses and form are equal, a replay may launch what fn
     * enqueued before, without a call of fn. 0: fn is called each time. */
    uint64_t key;
    const void *const *in; /* addresses of the inputs */
    uint32_t n_in, n_out;
    const int64_t *out_bytes; /* sizes of the outputs */
    const int64_t *form;      /* dtypes and extents of all tensors, on which fn may depend */
    uint32_t n_form;
    uint32_t owner; /* as in df_plan; for failures that are found late */
    uintptr_t site;
    df_replay_event_fn decided; /* as in df_launch_io, but called with `listener`; may be NULL */
    void *listener;
} df_work;

#endif
