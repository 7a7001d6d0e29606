/* SPDX-License-Identifier: Apache-2.0
 *
 * A trace as a list of launches (runtime/gpu_export.h), for programs without deft.
 */
#ifndef DF_JIT_CUDA_EXPORT_H
#define DF_JIT_CUDA_EXPORT_H

#include "base/log.h"
#include "jit_cuda/driver/gpu.h"
#include "runtime/gpu_export.h"

/* Makes the list of launches of a run on a GPU like `gpu`, by value, and compiles their kernels.
 * See df_plugin_gpu_export_fn for the rest. */
deft_status df_cuda_export(df_diag *d, const df_mem *mem, const df_log *log, const df_trace *t,
                           const df_gpu_properties *gpu, const df_gpu_export_options *o,
                           df_gpu_export *out);

/* The GPU for which a list is made when nobody names one: an H100, but for its multiprocessors. */
df_gpu_properties df_cuda_export_gpu(int n_sms);

#endif
