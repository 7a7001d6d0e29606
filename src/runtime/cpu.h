/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU device: pool, allocator, tiers and matmul under the device vtable.
 */
#ifndef DF_RUNTIME_CPU_H
#define DF_RUNTIME_CPU_H

#include "runtime/device.h"
#include "runtime/naming.h"
#include "runtime/pool.h"
#include "runtime/tier.h"

typedef struct df_cpu_options {
    uint32_t n_threads; /* 0: all the process may use */
    df_tier tier;
    uint64_t max_cached;             /* allocator; 0: 1 GiB */
    uint64_t max_code;               /* kernel cache; 0: 256 MiB */
    uint32_t variant_after;          /* as of df_tiers_create */
    const df_compiler *compiler;     /* NULL: interpreter only */
    bool use_blas;                   /* fast mode may open a BLAS */
    const df_naming_options *naming; /* NULL: nobody asks for names of code */
    struct df_spent *spent;          /* is told of each launch; NULL: not. Borrowed */
    bool measure;                    /* fill in the times of df_run_stats */
} df_cpu_options;

deft_status df_cpu_create(df_diag *d, const df_mem *mem, const df_log *log, const df_cpu_options *o,
                          df_device **out);
void df_cpu_destroy(df_device **dev);
df_tiers *df_cpu_tiers(df_device *dev);
df_pool *df_cpu_pool(df_device *dev);

/* Loads the LLVM plug-in: in the folders of DEFT_PLUGIN_DIR, next to libdeft, or in the installed
 * place. A missing one is DEFT_E_BACKEND with a sentence; the caller falls back to the interpreter
 * and logs it once. The compiler may be one that has not started.
 */
deft_status df_plugin_load(df_diag *d, const df_mem *mem, const df_log *log, const char *dir,
                           uint32_t max_vector_bytes, df_compiler *out, void **handle);
/* The same, and starts it: name and vector_bytes are filled in. */
deft_status df_plugin_open(df_diag *d, const df_mem *mem, const df_log *log, const char *dir,
                           uint32_t max_vector_bytes, df_compiler *out, void **handle);
/* DEFT_E_BACKEND, DEFT_E_MEMORY: it cannot be started, and no call of it will make code. */
deft_status df_compiler_start(const df_compiler *c, df_diag *d);
/* The text of deft_runtime_compiler. With starts, a compiler that has not started is started first;
 * without, the text of such a one is NULL. */
const char *df_compiler_text(const df_compiler *c, bool starts);
void df_plugin_close(df_compiler *c, void **handle);

/* The plug-in for GPUs, which stays where it is while it is open. */
typedef struct df_gpu_plugin {
    void *library; /* NULL: not open */
    df_host host;
    df_plugin_gpu_fn make;
    df_plugin_gpu_count_fn count;
} df_gpu_plugin;

/* Looked for as the resolver below. DEFT_E_BACKEND: there is none. */
deft_status df_plugin_open_gpu(df_gpu_plugin *p, df_diag *d, const df_mem *mem, const df_log *log,
                               const char *listed);
void df_plugin_close_gpu(df_gpu_plugin *p); /* its devices are gone */

/* Opens the resolver of call sites: in the folders of `listed` ("a:b", NULL: none; DEFT_PLUGIN_DIR
 * as it was when the runtime was made), else as the LLVM plug-in. Logs nothing: it may be called
 * while a line is being made. What it reads is kept in memory of the system, as libdw has no other.
 */
bool df_plugin_sites(const char *listed, df_resolver *out);

#endif
