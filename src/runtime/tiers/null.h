/* SPDX-License-Identifier: Apache-2.0
 *
 * A device for tests, which records its calls. It either runs nothing, and roots get zeroed
 * buffers, or it interprets plans on the calling thread. A test can make a call fail. One thread
 * at a time.
 */
#ifndef DF_RUNTIME_NULL_H
#define DF_RUNTIME_NULL_H

#include "base/str.h"
#include "runtime/device.h"

typedef struct df_null_options {
    bool interpret;                  /* run plans; false: nothing runs */
    bool fuse;                       /* df_limits.fuse of the device; false: one kernel per op */
    uint32_t fail_prepare, fail_run; /* number of the call that fails, from 1; 0: none */
    deft_status status;              /* its status; 0: DEFT_E_BACKEND */
} df_null_options;

typedef struct df_null_counts {
    uint32_t prepares, runs, releases, failures;
    uint64_t launches, segments;
} df_null_counts;

/* o NULL: run nothing, fuse, never fail. */
deft_status df_null_create(df_diag *d, const df_mem *mem, const df_null_options *o,
                           df_device **out);
void df_null_destroy(df_device **dev);

/* Sets new options. Calls for fail_prepare and fail_run are counted from 1 again. */
void df_null_set(df_device *dev, const df_null_options *o);
df_null_counts df_null_read(df_device *dev);

/* Appends one line for each call since the last df_null_record, and forgets them. The lines are
 * "prepare kernels=2 segs=3", "run launches=1 segs=3 roots=1" and "release". */
void df_null_record(df_device *dev, df_str *out);

#endif
