/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranges for NVIDIA's profilers (NVTX): what the host does for a run of a plan is one, and Nsight
 * shows what it launched below it. DEFT_NVTX=1 opens libnvToolsExt.so.1, DEFT_NVTX=FILE another;
 * without the variable there are none. CUDA 13 has no such library any more: what is left of NVTX
 * there are headers. That a library is missing is one line under the log topic "plugin".
 */
#ifndef DF_JIT_CUDA_NVTX_H
#define DF_JIT_CUDA_NVTX_H

#include "base/log.h"
#include "fuser/plan.h"

typedef struct df_nvtx {
    int (*push)(const char *name); /* NULL: there are no ranges */
    int (*pop)(void);
} df_nvtx;

/* The library stays loaded. */
df_nvtx df_nvtx_open(const df_log *log);
/* A range of this thread, until its df_nvtx_end: "deft plan 1.5: mul, exp". */
void df_nvtx_begin(const df_nvtx *n, const df_plan *plan);
void df_nvtx_end(const df_nvtx *n);

#endif
