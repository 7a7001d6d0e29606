/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of NVRTC that are needed, through dlopen. Their prototypes are declared here,
 * because no CUDA header is available.
 *
 * What must hold: a missing library, symbol or architecture is a status whose sentence says
 * what was tried. Messages of the compiler are passed on.
 */
#include "jit_cuda/driver/nvrtc.h"

#include "base/env.h"
#include "jit_cuda/driver/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct program program;

/* X(field, symbol, parameters): each returns 0 or an error */
#define CALLS(X)                                                                                   \
    X(version, nvrtcVersion, (int *, int *))                                                       \
    X(n_archs, nvrtcGetNumSupportedArchs, (int *))                                                 \
    X(archs, nvrtcGetSupportedArchs, (int *))                                                      \
    X(create, nvrtcCreateProgram,                                                                  \
      (program **, const char *, const char *, int, const char *const *, const char *const *))     \
    X(destroy, nvrtcDestroyProgram, (program **))                                                  \
    X(compile, nvrtcCompileProgram, (program *, int, const char *const *))                         \
    X(log_size, nvrtcGetProgramLogSize, (program *, size_t *))                                     \
    X(log, nvrtcGetProgramLog, (program *, char *))                                                \
    X(cubin_size, nvrtcGetCUBINSize, (program *, size_t *))                                        \
    X(cubin, nvrtcGetCUBIN, (program *, char *))                                                   \
    X(ptx_size, nvrtcGetPTXSize, (program *, size_t *))                                            \
    X(ptx, nvrtcGetPTX, (program *, char *))

enum { MOST_ARCHS = 64, MINIMAL_SINCE = 1204, OLDEST = 1102 };

struct df_nvrtc {
    const df_mem *mem;
    void *library;
    int number;
    int arch[MOST_ARCHS], n_arch;
    const char *(*error)(int);
#define FIELD(field, symbol, parameters) int(*field) parameters;
    CALLS(FIELD)
#undef FIELD
};

/* ---- opening ---- */

static void *open_in(const char *path)
{
    static const char *const names[] = { "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2",
                                         "libnvrtc.so" };
    void *library = df_library_open(path, names, DF_LEN(names));
    if (library || path) return library;
    return df_library_open("/usr/local/cuda/lib64/libnvrtc.so", NULL, 0);
}

static deft_status find_calls(df_diag *d, df_nvrtc *n)
{
#define FIND(field, symbol, parameters)                                                            \
    if (!df_library_find(n->library, #symbol, &n->field))                                          \
        return df_fail(d, DEFT_E_BACKEND, "nvrtc: no " #symbol ": CUDA 11.2 or newer is needed");
    CALLS(FIND)
#undef FIND
    if (!df_library_find(n->library, "nvrtcGetErrorString", &n->error))
        return df_fail(d, DEFT_E_BACKEND, "nvrtc: no nvrtcGetErrorString");
    return DEFT_OK;
}

static deft_status ask(df_diag *d, df_nvrtc *n)
{
    int major = 0, minor = 0, n_arch = 0, arch[256];
    if (n->version(&major, &minor) || n->n_archs(&n_arch) || n_arch <= 0 ||
        n_arch > (int)DF_LEN(arch) || n->archs(arch))
        return df_fail(d, DEFT_E_BACKEND, "nvrtc: does not say what it is");
    n->number = major * 100 + minor;
    if (n->number < OLDEST)
        return df_fail(d, DEFT_E_BACKEND, "nvrtc: this is CUDA %d.%d: 11.2 or newer is needed",
                       major, minor);
    for (int i = 0; i < n_arch && n->n_arch < MOST_ARCHS; i++) n->arch[n->n_arch++] = arch[i];
    return DEFT_OK;
}

deft_status df_nvrtc_open(df_diag *d, const df_mem *mem, const char *path, df_nvrtc **out)
{
    deft_status st = DEFT_OK;
    df_nvrtc *n = df_mem_zalloc(mem, sizeof *n);
    if (!n) return df_fail_mem(d, "nvrtc", sizeof *n);
    n->mem = mem;
    if (!path) path = df_env("DEFT_NVRTC");
    n->library = open_in(path);
    if (!n->library)
        TRY(df_fail(d, DEFT_E_BACKEND,
                    "nvrtc: no library %s%s: install CUDA's, or say where it is in DEFT_NVRTC",
                    path ? "at " : "under its usual names", path ? path : ""));
    TRY(find_calls(d, n));
    TRY(ask(d, n));
    *out = n;
    n = NULL;
done:
    df_nvrtc_close(&n);
    return st;
}

/* The library stays open: its threads and its own memory are not ours to end. */
void df_nvrtc_close(df_nvrtc **n)
{
    if (*n) df_mem_free((*n)->mem, *n, sizeof **n);
    *n = NULL;
}

int df_nvrtc_version(const df_nvrtc *n)
{
    return n->number;
}

bool df_nvrtc_has(const df_nvrtc *n, int arch)
{
    for (int i = 0; i < n->n_arch; i++)
        if (n->arch[i] == arch) return true;
    return false;
}

int df_nvrtc_nearest(const df_nvrtc *n, int arch)
{
    int best = 0;
    for (int i = 0; i < n->n_arch; i++)
        if (n->arch[i] <= arch && n->arch[i] > best) best = n->arch[i];
    return best;
}

/* ---- compiling ---- */

static deft_status take_log(const df_nvrtc *n, df_diag *d, program *p, df_cubin *out)
{
    size_t size = 0;
    if (n->log_size(p, &size) || size <= 1) return DEFT_OK;
    char *const text = df_mem_alloc(n->mem, size);
    if (!text) return df_fail_mem(d, "nvrtc's log", size);
    if (n->log(p, text) == 0) df_str_putn(&out->log, text, size - 1);
    df_mem_free(n->mem, text, size);
    return out->log.ok ? DEFT_OK : df_fail_mem(d, "nvrtc's log", size);
}

static deft_status take_code(const df_nvrtc *n, df_diag *d, program *p, const char *target,
                             bool is_ptx, df_cubin *out)
{
    size_t size = 0;
    const int err = is_ptx ? n->ptx_size(p, &size) : n->cubin_size(p, &size);
    if (err || size == 0)
        return df_fail(d, DEFT_E_BACKEND, "nvrtc: no code for %s: %s", target, n->error(err));
    out->at = df_mem_alloc(n->mem, size);
    if (!out->at) return df_fail_mem(d, "cubin", size);
    out->size = size;
    if ((is_ptx ? n->ptx(p, out->at) : n->cubin(p, out->at)) == 0) return DEFT_OK;
    return df_fail(d, DEFT_E_BACKEND, "nvrtc: no code for %s", target);
}

/* The first line of the log that contains "error", or its first line. */
static const char *first_error(const char *log, int *length)
{
    const char *const error = strstr(log, "error");
    const char *line = error ? error : log;
    while (line > log && line[-1] != '\n') line--;
    *length = (int)strcspn(line, "\n");
    return line;
}

static deft_status build(const df_nvrtc *n, df_diag *d, const char *text, int arch, bool contracts,
                         bool is_ptx, df_cubin *out)
{
    deft_status st = DEFT_OK;
    char option[32];
    const char *const target = option + sizeof "-arch=" - 1;
    program *p = NULL;
    const char *options[6] = { option, "--ptxas-options=-v", "-default-device", "-w" };
    int n_options = 4;
    df_cubin c = { 0 };
    df_str_init(&c.log, n->mem);
    snprintf(option, sizeof option, "-arch=%s_%d", is_ptx ? "compute" : "sm", arch);
    options[n_options++] = contracts ? "--fmad=true" : "--fmad=false";
    if (n->number >= MINIMAL_SINCE) options[n_options++] = "--minimal";
    if (!df_nvrtc_has(n, arch))
        TRY(df_fail(d, DEFT_E_COMPILE, "nvrtc: CUDA %d.%d knows no %s", n->number / 100,
                    n->number % 100, target));
    int err = n->create(&p, text, "deft.cu", 0, NULL, NULL);
    if (err) TRY(df_fail(d, DEFT_E_BACKEND, "nvrtc: %s", n->error(err)));
    err = n->compile(p, n_options, options);
    TRY(take_log(n, d, p, &c));
    if (err) {
        int length = 0;
        const char *const line = first_error(c.log.at ? c.log.at : "", &length);
        TRY(df_fail(d, DEFT_E_COMPILE, "nvrtc: %s: %s: %.*s", target, n->error(err), length, line));
    }
    TRY(take_code(n, d, p, target, is_ptx, &c));
    *out = c;
    c = (df_cubin){ 0 };
done:
    if (p) n->destroy(&p);
    df_cubin_finish(n, &c);
    return st;
}

deft_status df_nvrtc_compile(const df_nvrtc *n, df_diag *d, const char *text, int arch,
                             bool contracts, df_cubin *out)
{
    return build(n, d, text, arch, contracts, false, out);
}

deft_status df_nvrtc_ptx(const df_nvrtc *n, df_diag *d, const char *text, int arch, bool contracts,
                         df_cubin *out)
{
    return build(n, d, text, arch, contracts, true, out);
}

void df_cubin_finish(const df_nvrtc *n, df_cubin *c)
{
    df_mem_free(n->mem, c->at, c->size);
    if (c->log.mem) df_str_finish(&c->log);
    *c = (df_cubin){ 0 };
}

/* ---- resources of entries ---- */

/* The number in front of `words` in [at, end), or 0 when `words` is not there. */
static uint32_t number_before(const char *at, const char *end, const char *words)
{
    const char *p = strstr(at, words);
    if (!p || p >= end) return 0;
    while (p > at && p[-1] == ' ') p--;
    while (p > at && p[-1] >= '0' && p[-1] <= '9') p--;
    return (uint32_t)strtoul(p, NULL, 10);
}

deft_status df_cubin_usage(df_diag *d, const df_cubin *c, const char *entry, df_cuda_usage *out)
{
    char head[128];
    snprintf(head, sizeof head, "entry function '%s'", entry);
    const char *const at = c->log.at ? strstr(c->log.at, head) : NULL;
    if (!at) return df_fail(d, DEFT_E_NOT_FOUND, "nvrtc: its log does not speak of %s", entry);
    const char *const next = strstr(at + 1, "entry function '");
    const char *const end = next ? next : at + strlen(at);
    *out = (df_cuda_usage){
        .registers = number_before(at, end, " registers"),
        .spilled = number_before(at, end, " bytes spill stores") +
                   number_before(at, end, " bytes spill loads"),
        .stack = number_before(at, end, " bytes stack frame"),
        .shared = number_before(at, end, " bytes smem"),
    };
    return DEFT_OK;
}
