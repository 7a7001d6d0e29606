/* SPDX-License-Identifier: Apache-2.0
 *
 * A library stays open until the last of its kernels is released. Where DEFT_TEST_KEEP names a
 * folder, the text of each library is kept there.
 */
#include "c_compiler.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aot/c.h"

#define WARNINGS "-std=c11 -Wall -Wextra -Werror -Wframe-larger-than=262144 -ffp-contract=off"

typedef deft_status (*fail_fn)(df_diag *d, deft_status status, const char *fmt, ...);

typedef struct library {
    void *handle;
    atomic_uint n_kernels;
} library;

typedef struct c_compiler {
    fail_fn fail;
    const int64_t (*extents)[DF_MAX_AXES]; /* of each kernel of a text, or NULL */
    atomic_uint n_texts;
} c_compiler;

static const char *setting(const char *name, const char *usual)
{
    const char *const value = getenv(name);
    return value ? value : usual;
}

static bool write_file(const char *path, const df_str *s)
{
    FILE *const f = fopen(path, "w");
    if (!f) return false;
    const bool good = fwrite(s->at, 1, s->n, f) == s->n;
    return fclose(f) == 0 && good;
}

/* Compiles a text, opens the library, and asks it whether the compiler keeps the rules. */
static deft_status open_text(c_compiler *c, df_diag *d, const df_str *text, library **out)
{
    char folder[] = "/tmp/deft_aot_XXXXXX", source[64], object[64], command[512];
    int (*check)(void);
    if (!text->ok || !mkdtemp(folder)) return c->fail(d, DEFT_E_MEMORY, "no text, or no folder");
    snprintf(source, sizeof source, "%s/k.c", folder);
    snprintf(object, sizeof object, "%s/k.so", folder);
    snprintf(command, sizeof command, "%s %s %s -shared -fPIC -o %s %s -lm >%s/log 2>&1",
             setting("DEFT_TEST_CC", "cc"), WARNINGS, setting("DEFT_TEST_CFLAGS", "-O1"), object,
             source, folder);
    library *const lib = calloc(1, sizeof *lib);
    if (lib && write_file(source, text) && system(command) == 0)
        lib->handle = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    if (!lib || !lib->handle) {
        free(lib);
        return c->fail(d, DEFT_E_COMPILE, "the text of %s does not compile: see its log", source);
    }
    void *const p = dlsym(lib->handle, "test_check");
    memcpy(&check, &p, sizeof check);
    const char *const keep = getenv("DEFT_TEST_KEEP");
    if (keep) {
        snprintf(command, sizeof command, "cp %s %s/%u.c", source, keep,
                 atomic_fetch_add(&c->n_texts, 1));
        if (system(command) != 0) fprintf(stderr, "nothing is kept in %s\n", keep);
    }
    snprintf(command, sizeof command, "%s/log", folder);
    unlink(command);
    unlink(source);
    unlink(object);
    rmdir(folder);
    if (!p || !check()) {
        dlclose(lib->handle);
        free(lib);
        return c->fail(d, DEFT_E_COMPILE, "the compiler breaks a rule of arithmetic");
    }
    *out = lib;
    return DEFT_OK;
}

static void begin_text(df_str *s)
{
    df_str_init(s, &df_mem_system);
    df_str_put(s, "#define DF_AOT_KERNEL\n");
    df_aot_c_prelude(s);
    df_str_put(s, "int test_check(void) { return df_aot_c_check(); }\n");
}

static df_kernel_fn function(const library *lib, const char *name)
{
    df_kernel_fn fn;
    void *const p = dlsym(lib->handle, name);
    memcpy(&fn, &p, sizeof fn);
    return fn;
}

static deft_status compile(void *self, df_diag *d, const df_kernel *const *k, uint32_t n,
                           df_opt level, df_code *out)
{
    c_compiler *const c = self;
    library *lib = NULL;
    df_str s;
    char name[DF_CODE_NAME];
    deft_status st = DEFT_OK;
    (void)level;
    begin_text(&s);
    for (uint32_t i = 0; i < n; i++) {
        df_code_name(name, i, 0);
        TRY(df_aot_c_kernel(d, k[i], c->extents ? c->extents[i] : NULL, name, &s));
    }
    TRY(open_text(c, d, &s, &lib));
    atomic_store(&lib->n_kernels, n);
    for (uint32_t i = 0; i < n; i++) {
        df_kernel_fn fn[3];
        for (int piece = 0; piece < 3; piece++) {
            df_code_name(name, i, piece);
            fn[piece] = function(lib, name);
        }
        out[i] =
            (df_code){ .main = fn[0], .part = fn[1], .fin = fn[2], .bytes = 4096, .owner = lib };
    }
done:
    df_str_finish(&s);
    return st;
}

static void close_library(library *lib)
{
    dlclose(lib->handle);
    free(lib);
}

static void release(void *self, df_code *code)
{
    (void)self;
    library *const lib = code->owner;
    if (atomic_fetch_sub(&lib->n_kernels, 1) == 1) close_library(lib);
    *code = (df_code){ 0 };
}

static deft_status show(void *self, df_diag *d, const df_kernel *k, const char *target,
                        bool assembly, df_str *out)
{
    (void)self, (void)target, (void)assembly;
    return df_aot_c_kernel(d, k, NULL, "kernel", out);
}

/* Exported products are no kernels (src/aot/rt/product.c). */
static deft_status gemm(void *self, df_diag *d, deft_dtype t, df_gemm_kernel *out)
{
    c_compiler *const c = self;
    (void)t, (void)out;
    return c->fail(d, DEFT_E_BACKEND, "C text has no micro-kernels");
}

static void destroy(void *self)
{
    free(self);
}

void c_compiler_extents(df_compiler *c, const int64_t (*extents)[DF_MAX_AXES])
{
    ((c_compiler *)c->self)->extents = extents;
}

void c_compiler_open(fail_fn fail, df_compiler *out)
{
    c_compiler *const c = calloc(1, sizeof *c);
    if (!c) abort();
    c->fail = fail;
    *out = (df_compiler){ .name = "C text",
                          .version = "C text",
                          .self = c,
                          .vector_bytes = 16,
                          .compile = compile,
                          .release = release,
                          .show = show,
                          .gemm = gemm,
                          .destroy = destroy };
}
