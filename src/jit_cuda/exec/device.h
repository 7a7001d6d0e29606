/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU under the device vtable (runtime/device.h): plans are prepared and run on it.
 */
#ifndef DF_JIT_CUDA_DEVICE_H
#define DF_JIT_CUDA_DEVICE_H

#include "base/log.h"
#include "runtime/device.h"

/* Creates the device of GPU wish->ordinal. mem and log are borrowed and must outlive it.
 * The driver and NVRTC are opened as driver.h and nvrtc.h say. Returns DEFT_E_BACKEND when
 * one of them is missing or unusable, and DEFT_E_ARG when there is no such GPU. The
 * `destroy` of the device's memory calls destroys it. */
deft_status df_cuda_create(df_diag *d, const df_mem *mem, const df_log *log,
                           const df_gpu_request *wish, df_device **out);

#endif
