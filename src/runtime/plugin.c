/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening the code generator. Looked for in the caller's folder, in $DEFT_PLUGIN_DIR, beside
 * libdeft (or the program that contains it), and in the installed place; the first file that opens
 * is asked, and one of another build is refused.
 */
#include "runtime/cpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/build_id.h"
#include "base/env.h"

#define PLUGIN_FILE "deft-llvm.so"

#ifndef DEFT_PLUGIN_DIR_DEFAULT
#define DEFT_PLUGIN_DIR_DEFAULT ""
#endif

/* The folder of the file this code lies in, or "". */
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

/* Tries folder; NULL when there is no such plug-in. why gets the first reason that is more than a
 * missing file, else the last reason. */
static void *open_in(const char *folder, char *why, size_t why_size, const df_log *log)
{
    char path[4096];
    if (!folder || !*folder) return NULL;
    if ((size_t)snprintf(path, sizeof path, "%s/" PLUGIN_FILE, folder) >= sizeof path) return NULL;
    void *const handle =
        dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); /* LLVM does not survive unloading */
    if (handle) {
        df_logf(log, plugin, "opened %s", path);
        return handle;
    }
    const char *const text = dlerror();
    df_logf(log, plugin, "%s", text ? text : path);
    if (!why[0] || strstr(why, "No such file"))
        (void)snprintf(why, why_size, "%s", text ? text : "dlopen failed");
    return NULL;
}

deft_status df_plugin_open(df_diag *d, const df_mem *mem, const df_log *log, const char *dir,
                           uint32_t max_vector_bytes, df_compiler *out, void **handle)
{
    char why[300] = "", beside[4096];
    own_folder(beside, sizeof beside);
    void *so = open_in(dir, why, sizeof why, log);
    if (!so) so = open_in(df_env("DEFT_PLUGIN_DIR"), why, sizeof why, log);
    if (!so) so = open_in(beside, why, sizeof why, log);
    if (!so && *beside && strlen(beside) + sizeof "/deft" <= sizeof beside) {
        strcat(beside, "/deft"); /* an installed tree, wherever it was moved to */
        so = open_in(beside, why, sizeof why, log);
    }
    if (!so) so = open_in(DEFT_PLUGIN_DIR_DEFAULT, why, sizeof why, log);
    if (!so) return df_fail(d, DEFT_E_BACKEND, "no code generator: %s", why);

    /* POSIX gives functions as object pointers; C has no cast between them. */
    df_plugin_cpu_fn make = NULL;
    void *const symbol = dlsym(so, DF_PLUGIN_CPU_SYMBOL);
    memcpy(&make, &symbol, sizeof make);
    deft_status st = DEFT_E_BACKEND;
    if (!make) {
        (void)df_fail(d, st, "%s has no symbol %s", PLUGIN_FILE, DF_PLUGIN_CPU_SYMBOL);
    } else {
        const df_host host = { .size = sizeof host,
                               .build_id = DF_BUILD_ID,
                               .mem = mem,
                               .log = log,
                               .fail = df_fail,
                               .str_putn = df_str_putn,
                               .kops = df_kop_infos,
                               .max_vector_bytes = max_vector_bytes };
        st = make(&host, DF_BUILD_ID, d, out);
    }
    if (st != DEFT_OK) {
        dlclose(so);
        return st;
    }
    *handle = so;
    return DEFT_OK;
}

void df_plugin_close(df_compiler *c, void **handle)
{
    if (!*handle) return;
    if (c->destroy) c->destroy(c->self);
    memset(c, 0, sizeof *c);
    dlclose(*handle);
    *handle = NULL;
}
