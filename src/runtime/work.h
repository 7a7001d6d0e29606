/* SPDX-License-Identifier: Apache-2.0
 *
 * Work of the caller's (deft/device.h) as a device gets it: df_device_memory_ops.work.
 */
#ifndef DF_RUNTIME_WORK_H
#define DF_RUNTIME_WORK_H

#include <stdint.h>

#include "deft/status.h"
#include "runtime/replay_event.h"

/* fn puts it into the stream that it is handed, and does not wait for it. */
typedef struct df_work {
    const char *name;
    deft_status (*fn)(void *stream, const void *const *in, void *const *out, void *user);
    void *user;
    uint64_t key; /* 0: fn is called each time */
    const void *const *in;
    uint32_t n_in, n_out;
    const int64_t *out_bytes;
    const int64_t *form; /* what fn may go by besides: dtypes, extents */
    uint32_t n_form;
    uint32_t owner; /* for errors that come late, as df_plan has them */
    uintptr_t site;
    df_replay_event_fn decided; /* as of a run (df_launch_io), with `listener` */
    void *listener;
} df_work;

#endif
