/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranges for NVIDIA's profilers (NVTX). The host's work for one run of a plan is a range,
 * and Nsight shows the launches of the run below it.
 *
 * DEFT_NVTX=1 opens libnvToolsExt.so.1, and DEFT_NVTX=FILE opens another library. Without
 * the variable there are no ranges. CUDA 13 does not ship such a library, only headers. A
 * missing library is one line under the log topic "plugin".
 */
#ifndef DF_JIT_CUDA_NVTX_H
#define DF_JIT_CUDA_NVTX_H

#include "base/log.h"
#include "fuser/plan.h"

typedef struct df_nvtx {
    int (*push)(const char *name); /* both NULL: there are no ranges */
    int (*pop)(void);
} df_nvtx;

/* Opens the library that DEFT_NVTX asks for. The library stays loaded. */
df_nvtx df_nvtx_open(const df_log *log);
/* Begins a range of this thread, for example "deft plan 1.5: mul, exp". df_nvtx_end ends
 * it. */
void df_nvtx_begin(const df_nvtx *n, const df_plan *plan);
void df_nvtx_end(const df_nvtx *n);

#endif
