/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens plug-ins: the CPU code generator, the plug-in for GPUs, and the resolver of call sites.
 *
 * The search goes through the folder of the caller, the folders of $DEFT_PLUGIN_DIR, the folder of
 * libdeft (or of the program that contains it), and the installed folder. The first file that opens
 * is used. A plug-in of another build refuses to start.
 *
 * A file is checked before it is opened (elf_file.h). The dynamic loader trusts what it reads, and
 * a truncated file would end the process.
 */
#include "runtime/cpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/build_id.h"
#include "base/env.h"
#include "runtime/elf_file.h"
#include "runtime/export.h"
#include "runtime/naming.h"
#include "runtime/os.h"

#define COMPILER_FILE "deft-llvm.so"
#define GPU_FILE "deft-cuda.so"
#define SITES_FILE "deft-sites.so"
#define EXPORT_FILE "deft-aot.so"

#ifndef DEFT_PLUGIN_DIR_DEFAULT
#define DEFT_PLUGIN_DIR_DEFAULT ""
#endif

/* One search, and its result. */
typedef struct search {
    const char *file, *dir, *listed;
    const df_log *log;
    void *result;  /* the library; NULL: not found */
    char why[300]; /* the first failure other than a missing file; else the last one */
} search;

/* The stack that the dynamic loader and the constructors of libraries may need. */
#define LOADER_STACK ((size_t)128 << 10)

/* Writes the folder of the file that contains this code, or "". */
static void own_folder(char *out, size_t size)
{
    static const char here = 0;
    Dl_info info;
    out[0] = '\0';
    if (!dladdr(&here, &info) || !info.dli_fname) return;
    const char *const slash = strrchr(info.dli_fname, '/');
    if (slash && (size_t)(slash - info.dli_fname) < size)
        (void)snprintf(out, size, "%.*s", (int)(slash - info.dli_fname), info.dli_fname);
}

/* Tries one folder, the first n characters of `folder`. Returns NULL when it has no plug-in that
 * opens. */
static void *open_in(search *s, const char *folder, size_t n)
{
    char path[4096], text[sizeof s->why];
    if (!n) return NULL;
    if ((size_t)snprintf(path, sizeof path, "%.*s/%s", (int)n, folder, s->file) >= sizeof path)
        return NULL;
    void *handle = NULL;
    if (df_elf_file_check(path, text, sizeof text)) {
        /* LLVM does not survive unloading. */
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        const char *const error = handle ? NULL : dlerror();
        (void)snprintf(text, sizeof text, "%s", error ? error : "dlopen failed");
    }
    if (handle) {
        df_logf(s->log, plugin, "opened %s", path);
        return handle;
    }
    df_logf(s->log, plugin, "%s", text);
    if (!s->why[0] || strstr(s->why, "No such file") || strstr(s->why, "Not a directory"))
        (void)snprintf(s->why, sizeof s->why, "%s", text);
    return NULL;
}

/* Tries several folders, which are separated by ':'. folders may be NULL. */
static void *open_in_any(search *s, const char *folders)
{
    void *so = NULL;
    for (const char *at = folders; at && *at && !so;) {
        const size_t n = strcspn(at, ":");
        if (n < 4096) so = open_in(s, at, n);
        at += n + (at[n] == ':');
    }
    return so;
}

static void find_here(void *user)
{
    search *const s = user;
    char beside[4096];
    own_folder(beside, sizeof beside);
    void *so = s->dir ? open_in(s, s->dir, strlen(s->dir)) : NULL;
    if (!so) so = open_in_any(s, s->listed);
    if (!so) so = open_in(s, beside, strlen(beside));
    if (!so && *beside && strlen(beside) + sizeof "/deft" <= sizeof beside) {
        strcat(beside, "/deft"); /* an installed tree, which may have been moved */
        so = open_in(s, beside, strlen(beside));
    }
    if (!so) so = open_in(s, DEFT_PLUGIN_DIR_DEFAULT, strlen(DEFT_PLUGIN_DIR_DEFAULT));
    s->result = so;
}

static void *find(search *s)
{
    if (!df_os_call(LOADER_STACK, find_here, s))
        (void)snprintf(s->why, sizeof s->why, "no thread could be had to load it in");
    return s->result;
}

/* ---- the code generator ---- */

static bool keeps_frames(void)
{
    const df_naming_options o = df_naming_wanted();
    return df_naming_keeps_frames(&o);
}

static df_host host_of(const df_mem *mem, const df_log *log, uint32_t max_vector_bytes)
{
    return (df_host){ .size = sizeof(df_host),
                      .build_id = DF_BUILD_ID,
                      .mem = mem,
                      .log = log,
                      .fail = df_fail,
                      .str_putn = df_str_putn,
                      .kops = df_kop_infos,
                      .max_vector_bytes = max_vector_bytes,
                      .keep_frames = keeps_frames() };
}

/* The plug-in is small, and loads LLVM later (jit_llvm/start.c). The dynamic loader ends the
 * process when it cannot allocate a thread-local block. So this much memory must be available. */
#define LOAD_ROOM ((size_t)16 << 20)

static deft_status open_compiler(df_diag *d, const df_mem *mem, search *s,
                                 uint32_t max_vector_bytes, const char *target, df_compiler *out,
                                 void **handle)
{
    const df_log *const log = s->log;
    if (!df_os_has_room(LOAD_ROOM))
        return df_fail(d, DEFT_E_MEMORY,
                       "the code generator wants room for %zu bytes of memory to be loaded in",
                       LOAD_ROOM);
    void *const so = find(s);
    if (!so) return df_fail(d, DEFT_E_BACKEND, "no code generator: %s", s->why);

    /* dlsym returns functions as object pointers, and C has no cast between the two. */
    df_plugin_cpu_fn make = NULL;
    void *const symbol = dlsym(so, DF_PLUGIN_CPU_SYMBOL);
    memcpy(&make, &symbol, sizeof make);
    deft_status st = DEFT_E_BACKEND;
    if (!make) {
        (void)df_fail(d, st, "%s has no symbol %s", COMPILER_FILE, DF_PLUGIN_CPU_SYMBOL);
    } else {
        df_host host = host_of(mem, log, max_vector_bytes);
        host.target = target;
        st = make(&host, DF_BUILD_ID, d, out);
    }
    if (st != DEFT_OK) {
        dlclose(so);
        return st;
    }
    *handle = so;
    return DEFT_OK;
}

deft_status df_compiler_start(const df_compiler *c, df_diag *d)
{
    return c->start ? c->start(c->self, d) : DEFT_OK;
}

const char *df_compiler_text(const df_compiler *c, bool starts)
{
    if (!c->start) return c->name;
    if (starts) (void)c->start(c->self, NULL);
    return c->describe(c->self, NULL);
}

deft_status df_plugin_load(df_diag *d, const df_mem *mem, const df_log *log, const char *dir,
                           uint32_t max_vector_bytes, df_compiler *out, void **handle)
{
    search s = {
        .file = COMPILER_FILE, .log = log, .dir = dir, .listed = df_env("DEFT_PLUGIN_DIR")
    };
    return open_compiler(d, mem, &s, max_vector_bytes, NULL, out, handle);
}

static deft_status start_opened(df_diag *d, df_compiler *out, void **handle)
{
    const deft_status st = df_compiler_start(out, d);
    if (st != DEFT_OK)
        df_plugin_close(out, handle);
    else if (out->start)
        out->name = out->describe(out->self, &out->vector_bytes);
    return st;
}

deft_status df_plugin_open(df_diag *d, const df_mem *mem, const df_log *log, const char *dir,
                           uint32_t max_vector_bytes, df_compiler *out, void **handle)
{
    const deft_status st = df_plugin_load(d, mem, log, dir, max_vector_bytes, out, handle);
    return st == DEFT_OK ? start_opened(d, out, handle) : st;
}

deft_status df_plugin_open_target(df_diag *d, const df_mem *mem, const char *target,
                                  df_compiler *out, void **handle)
{
    search s = { .file = COMPILER_FILE, .listed = df_env("DEFT_PLUGIN_DIR") };
    const deft_status st = open_compiler(d, mem, &s, 0, target, out, handle);
    return st == DEFT_OK ? start_opened(d, out, handle) : st;
}

void df_plugin_close(df_compiler *c, void **handle)
{
    if (!*handle) return;
    if (c->destroy) c->destroy(c->self);
    memset(c, 0, sizeof *c);
    dlclose(*handle);
    *handle = NULL;
}

/* ---- GPUs ---- */

deft_status df_plugin_open_gpu(df_gpu_plugin *p, df_diag *d, const df_mem *mem, const df_log *log,
                               const char *listed)
{
    search s = { .file = GPU_FILE, .log = log, .listed = listed };
    void *const so = find(&s);
    if (!so) return df_fail(d, DEFT_E_BACKEND, "no plug-in for GPUs: %s", s.why);
    *p = (df_gpu_plugin){ .library = so, .host = host_of(mem, log, 0) };
    void *const make = dlsym(so, DF_PLUGIN_GPU_SYMBOL);
    void *const count = dlsym(so, DF_PLUGIN_GPU_COUNT_SYMBOL);
    memcpy(&p->make, &make, sizeof make);
    memcpy(&p->count, &count, sizeof count);
    void *const ship = dlsym(so, DF_PLUGIN_GPU_EXPORT_SYMBOL);
    memcpy(&p->ship, &ship, sizeof ship);
    if (make && count) return DEFT_OK;
    df_plugin_close_gpu(p);
    return df_fail(d, DEFT_E_BACKEND, "%s has no symbol %s", GPU_FILE,
                   make ? DF_PLUGIN_GPU_COUNT_SYMBOL : DF_PLUGIN_GPU_SYMBOL);
}

void df_plugin_close_gpu(df_gpu_plugin *p)
{
    if (p->library) dlclose(p->library);
    *p = (df_gpu_plugin){ 0 };
}

/* ---- export ---- */

static deft_status export_by_plugin(df_diag *d, const df_mem *mem, const df_log *log,
                                    const df_trace *t, const df_aot_options *o, df_aot_files *out)
{
    search s = { .file = EXPORT_FILE, .log = log, .listed = df_env("DEFT_PLUGIN_DIR") };
    void *const so = find(&s);
    if (!so) return df_fail(d, DEFT_E_BACKEND, "no plug-in for exports: %s", s.why);
    df_plugin_aot_fn make = NULL;
    void *const symbol = dlsym(so, DF_PLUGIN_AOT_SYMBOL);
    memcpy(&make, &symbol, sizeof make);
    deft_status st = DEFT_E_BACKEND;
    if (make)
        st = make(DF_BUILD_ID, d, mem, t, o, out);
    else
        (void)df_fail(d, st, "%s has no symbol %s", EXPORT_FILE, DF_PLUGIN_AOT_SYMBOL);
    dlclose(so);
    return st;
}

deft_status df_plugin_export(df_diag *d, const df_mem *mem, const df_log *log, const df_trace *t,
                             const df_aot_options *o, df_aot_files *out)
{
    df_gpu_plugin plugin = { 0 };
    if (!o->gpu) return export_by_plugin(d, mem, log, t, o, out);
    df_aot_options with = *o;
    df_aot_gpu gpu = *o->gpu;
    deft_status st = df_plugin_open_gpu(&plugin, d, mem, log, df_env("DEFT_PLUGIN_DIR"));
    if (st != DEFT_OK) return st;
    gpu.plugin = &plugin;
    with.gpu = &gpu;
    st = export_by_plugin(d, mem, log, t, &with, out);
    df_plugin_close_gpu(&plugin);
    return st;
}

/* ---- the resolver ---- */

bool df_plugin_sites(const char *listed, df_resolver *out)
{
    search s = { .file = SITES_FILE, .listed = listed };
    void *const so = find(&s);
    if (!so) return false;
    df_plugin_sites_fn make = NULL;
    void *const symbol = dlsym(so, DF_PLUGIN_SITES_SYMBOL);
    memcpy(&make, &symbol, sizeof make);
    const df_sites_host host = { .size = sizeof host,
                                 .build_id = DF_BUILD_ID,
                                 .mem = &df_mem_system };
    if (make && make(&host, out)) {
        out->library = so;
        return true;
    }
    dlclose(so);
    return false;
}
