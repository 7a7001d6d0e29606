/* SPDX-License-Identifier: Apache-2.0
 *
 * NVRTC, opened at run time: CUDA text to a cubin for one architecture, or to PTX, which a driver
 * compiles for GPUs that are newer than NVRTC knows. Needs neither a GPU nor a driver. Its library
 * is looked for under the names of CUDA 11.2 to 13, or where DEFT_NVRTC says: a file, or a folder
 * that holds it.
 */
#ifndef DF_JIT_CUDA_NVRTC_H
#define DF_JIT_CUDA_NVRTC_H

#include "base/diag.h"
#include "base/str.h"

typedef struct df_nvrtc df_nvrtc;

/* A compiled program. */
typedef struct df_cubin {
    void *at; /* a cubin, or PTX with a 0 at its end */
    size_t size;
    df_str log; /* the compiler's words: warnings, and what each entry uses */
} df_cubin;

/* What an entry needs of a multiprocessor. */
typedef struct df_cuda_usage {
    uint32_t registers;      /* per thread */
    uint32_t spilled, stack; /* bytes per thread: spill stores and loads; local memory */
    uint32_t shared;         /* bytes per thread block */
} df_cuda_usage;

/* path: a file or a folder, in place of DEFT_NVRTC; NULL: that, or the usual names.
 * DEFT_E_BACKEND: there is none, or one that is too old; d says what was tried. */
deft_status df_nvrtc_open(df_diag *d, const df_mem *mem, const char *path, df_nvrtc **out);
void df_nvrtc_close(df_nvrtc **n);       /* NULL is fine; the library stays loaded */
int df_nvrtc_version(const df_nvrtc *n); /* 1305 is 13.5 */
/* Whether it makes cubins for compute capability arch / 10 . arch % 10. */
bool df_nvrtc_has(const df_nvrtc *n, int arch);
/* The greatest that it knows of those not above arch; 0: none. */
int df_nvrtc_nearest(const df_nvrtc *n, int arch);

/* One program, many kernels. contracts: FAST kernels may be contracted; strict arithmetic never is.
 * DEFT_E_COMPILE: the compiler refused it, and d has its first words. Any thread; calls may
 * overlap. On success *out is the caller's. */
deft_status df_nvrtc_compile(const df_nvrtc *n, df_diag *d, const char *text, int arch,
                             bool contracts, df_cubin *out);
/* The same as PTX, for GPUs of arch and above. Its log says nothing of what entries use. */
deft_status df_nvrtc_ptx(const df_nvrtc *n, df_diag *d, const char *text, int arch, bool contracts,
                         df_cubin *out);
void df_cubin_finish(const df_nvrtc *n, df_cubin *c);

/* What the log says of an entry. DEFT_E_NOT_FOUND: nothing. */
deft_status df_cubin_usage(df_diag *d, const df_cubin *c, const char *entry, df_cuda_usage *out);

#endif
