/* SPDX-License-Identifier: Apache-2.0
 *
 * A device for tests: writes down what it is asked to do, and either runs nothing (roots get zeroed
 * buffers) or interprets on the calling thread. It can be told to fail.
 */
#ifndef DF_RUNTIME_NULL_H
#define DF_RUNTIME_NULL_H

#include "base/str.h"
#include "runtime/device.h"

typedef struct df_null_options {
    bool interpret;                  /* else nothing runs */
    bool fuse;                       /* the limits it shows; false: one kernel per op */
    uint32_t fail_prepare, fail_run; /* number of the call to fail, from 1; 0: none */
    deft_status status;              /* with which; 0: DEFT_E_BACKEND */
} df_null_options;

typedef struct df_null_counts {
    uint32_t prepares, runs, releases, failures;
    uint64_t launches, segments;
} df_null_counts;

deft_status df_null_create(df_diag *d, const df_mem *mem, const df_null_options *o,
                           df_device **out);
void df_null_destroy(df_device **dev);

/* From now on, counted anew. */
void df_null_set(df_device *dev, const df_null_options *o);
df_null_counts df_null_read(df_device *dev);

/* One line per call since the last reading: "prepare kernels=2 segs=3", "run launches=1 segs=3
 * roots=1", "release". Byte-stable. */
void df_null_record(df_device *dev, df_str *out);

#endif
