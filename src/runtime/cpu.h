/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU device: thread pool, allocator, tiers and matrix products behind the device vtable.
 * This header also declares the functions that load plug-ins.
 */
#ifndef DF_RUNTIME_CPU_H
#define DF_RUNTIME_CPU_H

#include "runtime/device.h"
#include "runtime/gpu_export.h"
#include "runtime/naming.h"
#include "runtime/pool.h"
#include "runtime/tier.h"

typedef struct df_cpu_options {
    uint32_t n_threads; /* 0: all processors that the process may use */
    df_tier tier;
    uint64_t max_cached;    /* bytes that the allocator caches; 0: 1 GiB */
    uint64_t max_code;      /* bytes of the kernel cache; 0: 256 MiB */
    uint32_t variant_after; /* as in df_tiers_create */
    /* Launches that move more write around the caches; 0: 15/16 of the last one. */
    uint64_t stream_bytes;
    uint64_t last_cache;             /* bytes of the last cache; 0: of this machine's */
    const df_compiler *compiler;     /* copied; NULL: interpreter only */
    bool use_blas;                   /* fast mode may open a BLAS */
    bool use_tiles;                  /* fast mode may use the tiles of AMX */
    const df_naming_options *naming; /* NULL: compiled code gets no names */
    struct df_spent *spent;          /* counts the time of each launch; borrowed; may be NULL */
    bool measure;                    /* fill in the times of df_run_stats */
} df_cpu_options;

/* mem and log are borrowed, and outlive the device. */
deft_status df_cpu_create(df_diag *d, const df_mem *mem, const df_log *log, const df_cpu_options *o,
                          df_device **out);
void df_cpu_destroy(df_device **dev); /* *dev may be NULL */
df_tiers *df_cpu_tiers(df_device *dev);
df_pool *df_cpu_pool(df_device *dev);

/* Loads the LLVM plug-in, without starting its compiler. Searches the folder `dir` (NULL: none),
 * the folders of DEFT_PLUGIN_DIR, the folder of libdeft, and the installed folder, in this order.
 *
 * Returns DEFT_E_BACKEND with a sentence when there is no usable plug-in. The caller then falls
 * back to the interpreter and logs the sentence once. max_vector_bytes is as in df_host. *handle
 * is for df_plugin_close.
 */
deft_status df_plugin_load(df_diag *d, const df_mem *mem, const df_log *log, const char *dir,
                           uint32_t max_vector_bytes, df_compiler *out, void **handle);
/* Does the same and starts the compiler, which fills in out->name and out->vector_bytes. */
deft_status df_plugin_open(df_diag *d, const df_mem *mem, const df_log *log, const char *dir,
                           uint32_t max_vector_bytes, df_compiler *out, void **handle);
/* The same for a named target (df_compiler.show), without a log. Its code may not run here. */
deft_status df_plugin_open_target(df_diag *d, const df_mem *mem, const char *target,
                                  df_compiler *out, void **handle);
/* Starts the compiler, unless it has started. DEFT_E_BACKEND and DEFT_E_MEMORY mean that it cannot
 * be started. No call of it will then make code. */
deft_status df_compiler_start(const df_compiler *c, df_diag *d);
/* Returns the text of deft_runtime_compiler. When the compiler has not started, `starts` decides:
 * true starts it first, false returns NULL. */
const char *df_compiler_text(const df_compiler *c, bool starts);
void df_plugin_close(df_compiler *c, void **handle); /* *handle may be NULL */

/* The plug-in for GPUs. The struct must not move while it is open, because devices point to
 * `host`. */
typedef struct df_gpu_plugin {
    void *library; /* NULL: not open */
    df_host host;
    df_plugin_gpu_fn make;
    df_plugin_gpu_count_fn count;
    df_plugin_gpu_export_fn ship; /* makes exports for GPUs; NULL: it makes none */
} df_gpu_plugin;

/* Opens the plug-in for GPUs. The search is that of df_plugin_sites. Returns DEFT_E_BACKEND when
 * there is no usable plug-in. */
deft_status df_plugin_open_gpu(df_gpu_plugin *p, df_diag *d, const df_mem *mem, const df_log *log,
                               const char *listed);
void df_plugin_close_gpu(df_gpu_plugin *p); /* all of its devices must have been destroyed */

/* Opens the resolver of call sites, and returns false when there is none. Searches the folders
 * of `listed` ("a:b"; NULL: none), then the folder of libdeft and the installed folder. `listed`
 * is DEFT_PLUGIN_DIR as it was when the runtime was made.
 *
 * The call logs nothing, because it may happen while a log line is being made. Debug information
 * is kept in memory of the system, because libdw accepts no other allocator.
 */
bool df_plugin_sites(const char *listed, df_resolver *out);

#endif
