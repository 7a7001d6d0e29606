/* SPDX-License-Identifier: Apache-2.0
 *
 * The exported symbols of the plug-in for NVIDIA's GPUs. It holds the parts of libdeft that it
 * uses, hidden; memory and log are the host's. Nothing here links a library of NVIDIA's.
 */
#include <string.h>

#include "base/build_id.h"
#include "jit_cuda/exec/device.h"
#include "jit_cuda/exec/export.h"
#include "jit_cuda/driver/driver.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED deft_status df_plugin_gpu(const df_host *host, const char *build_id, df_diag *d,
                                   const df_gpu_request *wish, df_device **out);
EXPORTED deft_status df_plugin_gpu_count(const df_host *host, const char *build_id, df_diag *d,
                                         int *out);
EXPORTED deft_status df_plugin_gpu_export(const df_host *host, const char *build_id, df_diag *d,
                                          const df_trace *t, const df_gpu_export_options *o,
                                          df_gpu_export *out);

static bool is_of_build(const df_host *host, const char *build_id)
{
    return strcmp(host->build_id, DF_BUILD_ID) == 0 && strcmp(build_id, DF_BUILD_ID) == 0;
}

static deft_status of_another(const df_host *host, df_diag *d)
{
    return host->fail(d, DEFT_E_BACKEND, "deft-cuda is of build '%s', the host of build '%s'",
                      DF_BUILD_ID, host->build_id);
}

deft_status df_plugin_gpu(const df_host *host, const char *build_id, df_diag *d,
                          const df_gpu_request *wish, df_device **out)
{
    if (host->size != sizeof(df_host)) return DEFT_E_BACKEND; /* fail may not be where we think */
    if (!is_of_build(host, build_id) || wish->size != sizeof *wish) return of_another(host, d);
    return df_cuda_create(d, host->mem, host->log, wish, out);
}

deft_status df_plugin_gpu_count(const df_host *host, const char *build_id, df_diag *d, int *out)
{
    df_driver *dr = NULL;
    if (host->size != sizeof(df_host)) return DEFT_E_BACKEND;
    if (!is_of_build(host, build_id)) return of_another(host, d);
    const deft_status st = df_driver_open(d, host->mem, NULL, &dr);
    if (st == DEFT_OK) *out = dr->n_devices;
    df_driver_close(&dr);
    return st;
}

deft_status df_plugin_gpu_export(const df_host *host, const char *build_id, df_diag *d,
                                 const df_trace *t, const df_gpu_export_options *o,
                                 df_gpu_export *out)
{
    if (host->size != sizeof(df_host)) return DEFT_E_BACKEND;
    if (!is_of_build(host, build_id) || o->size != sizeof *o) return of_another(host, d);
    const df_gpu_properties gpu = df_cuda_export_gpu(o->n_sms);
    return df_cuda_export(d, host->mem, host->log, t, &gpu, o, out);
}
