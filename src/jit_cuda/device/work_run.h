/* SPDX-License-Identifier: Apache-2.0
 *
 * External work on a GPU, by calls of its function or through the graph tree. Private to the
 * device.
 */
#ifndef DF_JIT_CUDA_WORK_RUN_H
#define DF_JIT_CUDA_WORK_RUN_H

#include "jit_cuda/exec/device_internal.h"

/* Runs external work: df_device_memory_ops.work. out[i] receives a reference to result i. */
deft_status df_cuda_work_run(df_cuda_device *c, df_diag *d, df_queue *q, const df_work *w,
                             df_buffer **out);

#endif
