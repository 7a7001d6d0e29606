/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU under the device vtable (runtime/device.h): plans are prepared and run on it.
 */
#ifndef DF_JIT_CUDA_DEVICE_H
#define DF_JIT_CUDA_DEVICE_H

#include "base/log.h"
#include "runtime/device.h"

/* mem, log: borrowed. The GPU wish->ordinal; driver and NVRTC are looked for as driver.h and
 * nvrtc.h say. DEFT_E_BACKEND: one of them is missing, or does not do; DEFT_E_ARG: no such ordinal.
 * Destroyed by its far->destroy. */
deft_status df_cuda_create(df_diag *d, const df_mem *mem, const df_log *log,
                           const df_gpu_request *wish, df_device **out);

#endif
