/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels whose CUDA text is compiled for the CPU.
 */
#include "batch.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

typedef struct shim_entry {
    const char *name;
    void (*call)(const void *params);
} shim_entry;

static void put_entries(df_str *s, const batch_kernel *k, uint32_t n)
{
    df_str_put(s, "extern \"C\" const shim_entry shim_entries[] = {\n");
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t e = 0; e < k[i].n_entries; e++) {
            char name[64], type[32] = "many";
            df_cuda_entry_name(k[i].name, k[i].entry[e], name, sizeof name);
            if (!(k[i].entry[e].flags & DF_CUDA_MANY))
                snprintf(type, sizeof type, "one<%u>", df_cuda_layout(k[i].k, NULL, NULL));
            df_str_fmt(s, "{ \"%s\", shim_call<%s, %s> },\n", name, type, name);
        }
    df_str_put(s, "{ nullptr, nullptr } };\n");
}

static bool put_kernels(df_str *s, const batch_kernel *k, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        df_diag d = { 0 };
        if (df_cuda_text(&d, k[i].k, k[i].name, k[i].entry, k[i].n_entries, &df_mem_system, s) ==
            DEFT_OK)
            continue;
        printf("%s: %s\n", k[i].where, d.text);
        return false;
    }
    return true;
}

static bool write_file(const char *path, const df_str *s)
{
    FILE *const f = fopen(path, "w");
    const bool good = f && s->ok && fwrite(s->at, 1, s->n, f) == s->n;
    if (f) fclose(f);
    if (!good) printf("%s: could not be written\n", path);
    return good;
}

static bool compile(const batch_tools *t, const char *source, const char *library)
{
    char command[1024];
    snprintf(
        command, sizeof command,
        "%s -std=c++11 -O%d -w -fPIC -shared -ffp-contract=off -fno-strict-aliasing "
        "-fsanitize=alignment -fsanitize-undefined-trap-on-error -I'%s' -o %s %s > %s.log 2>&1",
        t->compiler, !t->runs_briefly, t->shim, library, source, library);
    if (system(command) == 0) return true;
    printf("%s\n", command);
    snprintf(command, sizeof command, "grep -m 5 error %s.log", library);
    fflush(stdout);
    if (system(command) != 0) printf("(no word of an error)\n");
    return false;
}

static bool open_library(batch *b, const char *library)
{
    b->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *const launch = b->library ? dlsym(b->library, "shim_launch") : NULL;
    b->entries = b->library ? dlsym(b->library, "shim_entries") : NULL;
    memcpy(&b->launch, &launch, sizeof launch);
    if (!launch || !b->entries) printf("%s: %s\n", library, dlerror());
    return launch && b->entries;
}

bool batch_build_text(batch *b, const batch_tools *t, const df_str *text, uint32_t number)
{
    char source[128], library[128];
    *b = (batch){ .text_bytes = text->n };
    snprintf(source, sizeof source, "%s/%u.cc", t->folder, number);
    snprintf(library, sizeof library, "%s/%u.so", t->folder, number);
    return write_file(source, text) && compile(t, source, library) && open_library(b, library);
}

bool batch_build(batch *b, const batch_tools *t, const batch_kernel *k, uint32_t n, uint32_t number)
{
    df_str s;
    size_t size;
    df_str_init(&s, &df_mem_system);
    *b = (batch){ 0 };
    df_str_put(&s, "#include \"shim.h\"\n");
    const char *const prelude = df_cuda_prelude(&size);
    df_str_putn(&s, prelude, size);
    bool good = put_kernels(&s, k, n);
    put_entries(&s, k, n);
    good = good && batch_build_text(b, t, &s, number);
    df_str_finish(&s);
    return good;
}

static bool call_entry(const batch *b, const char *where, const char *name, const void *params,
                       int64_t n_blocks, uint32_t n_threads, uint32_t n_shared)
{
    for (const shim_entry *at = b->entries; at->name; at++) {
        if (strcmp(at->name, name) != 0) continue;
        const int err = b->launch(at->call, params, (unsigned)n_blocks, n_threads, n_shared);
        if (err)
            printf("%s: %s: %s\n", where, name,
                   err == 1 ? "a barrier that not all threads came to" : "no memory");
        return err == 0;
    }
    printf("%s: no entry %s\n", where, name);
    return false;
}

bool batch_call(const batch *b, const char *where, const char *name, const void *params,
                int64_t n_blocks, uint32_t n_threads)
{
    return call_entry(b, where, name, params, n_blocks, n_threads, 0);
}

bool batch_launch_held(const batch *b, const batch_kernel *k, df_cuda_entry e, const void *params,
                       int64_t n_blocks, uint32_t n_threads, uint32_t n_shared)
{
    char name[64];
    df_cuda_entry_name(k->name, e, name, sizeof name);
    return call_entry(b, k->where, name, params, n_blocks, n_threads, n_shared);
}

bool batch_launch(const batch *b, const batch_kernel *k, df_cuda_entry e, const void *params,
                  int64_t n_blocks)
{
    return batch_launch_held(b, k, e, params, n_blocks, df_cuda_threads(k->k, (df_cuda_pass)e.pass),
                             0);
}

void batch_close(batch *b)
{
    if (b->library) dlclose(b->library);
    *b = (batch){ 0 };
}
