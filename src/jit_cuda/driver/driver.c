/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of the Driver API.
 *
 * What must hold: every fault of the library (none, a stub, too old, no GPU) is a status
 * with a sentence that says what is wrong. The library is never unloaded, because its
 * threads are not ours to end.
 *
 * CUDA 11.4 is the oldest version that works: it is the first with
 * cuGraphInstantiateWithFlags. The NVRTC that nvrtc.c needs came with 11.2.
 */
#include "jit_cuda/driver/driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "base/fork.h"
#include "jit_cuda/driver/library.h"

enum { OLDEST = 11040 }; /* CUDA 11.4, as cuDriverGetVersion counts */

/* The detector reports a fork only once, so is_child remembers the fork. Other threads wait
 * in df_fork_detector_seen until df_fork_detector_done. Therefore they see is_child, and
 * relaxed order suffices. */
struct df_driver_forks {
    df_fork_detector mark;
    atomic_bool is_child;
};

typedef struct opened {
    df_driver dr; /* first, because callers hold a pointer to it */
    struct df_driver_forks forks;
} opened;

/* Finds the calls in the library. Fails when a required call is missing. */
static deft_status find_calls(df_diag *d, df_driver *dr, void *library)
{
#define FIND(field, symbol, parameters)                                                            \
    if (!df_library_find(library, #symbol, &dr->field))                                            \
        return df_fail(d, DEFT_E_BACKEND,                                                          \
                       "cuda: the driver has no " #symbol ": CUDA 11.4 or newer is needed");
    DF_CU_REQUIRED(FIND)
#undef FIND
#define FIND(field, symbol, parameters) (void)df_library_find(library, #symbol, &dr->field);
    DF_CU_OPTIONAL(FIND)
#undef FIND
    return DEFT_OK;
}

/* Initialises the driver. Checks that it is not too old, and that it has a GPU. */
static deft_status start(df_diag *d, df_driver *dr)
{
    df_cu_result r = dr->init(0);
    if (r == DF_CU_STUB)
        return df_fail(d, DEFT_E_BACKEND,
                       "cuda: the library found is the stub that toolkits ship for linking, not a "
                       "driver: cuInit says %d",
                       r);
    if (r == DF_CU_NO_DEVICE)
        return df_fail(d, DEFT_E_BACKEND, "cuda: the driver finds no GPU: cuInit says %d", r);
    if (r) return df_driver_fail(dr, d, r, "cuInit");
    r = dr->driver_version(&dr->version);
    if (r) return df_driver_fail(dr, d, r, "cuDriverGetVersion");
    if (dr->version < OLDEST)
        return df_fail(d, DEFT_E_BACKEND,
                       "cuda: the driver is of CUDA %d.%d: 11.4 or newer is needed",
                       dr->version / 1000, dr->version % 1000 / 10);
    r = dr->device_count(&dr->n_devices);
    if (r) return df_driver_fail(dr, d, r, "cuDeviceGetCount");
    if (dr->n_devices <= 0) return df_fail(d, DEFT_E_BACKEND, "cuda: the driver finds no GPU");
    return DEFT_OK;
}

deft_status df_driver_open(df_diag *d, const df_mem *mem, const char *path, df_driver **out)
{
    deft_status st = DEFT_OK;
    opened *const o = df_mem_zalloc(mem, sizeof *o);
    if (!o) return df_fail_mem(d, "cuda's driver", sizeof *o);
    df_driver *dr = &o->dr;
    dr->mem = mem;
    dr->forks = &o->forks;
    df_fork_detector_init(&o->forks.mark);
    atomic_init(&o->forks.is_child, false);
    if (!path) path = df_env("DEFT_CUDA_DRIVER");
    if (!path || !*path) path = "libcuda.so.1";
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *const why = dlerror();
        TRY(df_fail(d, DEFT_E_BACKEND, "cuda: no driver: %s", why ? why : path));
    }
    TRY(find_calls(d, dr, library));
    TRY(start(d, dr));
    *out = dr;
    dr = NULL;
done:
    df_driver_close(&dr);
    return st;
}

void df_driver_close(df_driver **dr)
{
    df_driver *const old = *dr;
    *dr = NULL;
    if (!old) return;
    df_fork_detector_finish(&old->forks->mark);
    df_mem_free(old->mem, old, sizeof(opened));
}

deft_status df_driver_usable(const df_driver *dr, df_diag *d)
{
    if (DF_UNLIKELY(df_fork_detector_seen(&dr->forks->mark))) {
        atomic_store_explicit(&dr->forks->is_child, true, memory_order_relaxed);
        df_fork_detector_done(&dr->forks->mark);
    }
    if (DF_LIKELY(!atomic_load_explicit(&dr->forks->is_child, memory_order_relaxed)))
        return DEFT_OK;
    return df_fail(d, DEFT_E_BACKEND,
                   "cuda: this process was forked from one that had used CUDA, which does not work "
                   "in a child: fork before the first use, or start another program");
}

deft_status df_driver_fail(const df_driver *dr, df_diag *d, df_cu_result r, const char *what, ...)
{
    char call[128];
    const char *name = NULL, *text = NULL;
    va_list args;
    va_start(args, what);
    if (vsnprintf(call, sizeof call, what, args) < 0) call[0] = '\0';
    va_end(args);
    if (dr->error_name(r, &name)) name = NULL;
    if (dr->error_text(r, &text)) text = NULL;
    return df_fail(d, r == DF_CU_OUT_OF_MEMORY ? DEFT_E_MEMORY : DEFT_E_BACKEND,
                   "cuda: %s: %s (%d)%s%s", call, name ? name : "error", r, text ? ": " : "",
                   text ? text : "");
}
