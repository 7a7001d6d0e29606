/* SPDX-License-Identifier: Apache-2.0
 *
 * NVRTC, opened at run time. It compiles CUDA text to a cubin for one architecture. It also
 * compiles to PTX, which the driver compiles further for GPUs that are newer than this
 * NVRTC.
 *
 * Neither a GPU nor a driver is needed. The library is searched under the names of CUDA
 * 11.2 to 13, or where DEFT_NVRTC says, which is a file or a folder that holds the library.
 */
#ifndef DF_JIT_CUDA_NVRTC_H
#define DF_JIT_CUDA_NVRTC_H

#include "base/diag.h"
#include "base/str.h"

typedef struct df_nvrtc df_nvrtc;

/* A compiled program. df_cubin_finish frees it. */
typedef struct df_cubin {
    void *at; /* a cubin, or PTX with a final 0 byte */
    size_t size;
    df_str log; /* the compiler's output: warnings, and the resources that each entry uses */
} df_cubin;

/* What an entry needs of a multiprocessor. */
typedef struct df_cuda_usage {
    uint32_t registers;      /* per thread */
    uint32_t spilled, stack; /* bytes per thread: spill stores plus spill loads; local memory */
    uint32_t shared;         /* bytes per thread block */
} df_cuda_usage;

/* path: a file or a folder. NULL means DEFT_NVRTC or, without that, the usual names. The
 * caller owns *out. Returns DEFT_E_BACKEND when there is no library or it is too old; the
 * sentence says what was tried. */
deft_status df_nvrtc_open(df_diag *d, const df_mem *mem, const char *path, df_nvrtc **out);
void df_nvrtc_close(df_nvrtc **n);       /* NULL is fine; the library stays loaded */
int df_nvrtc_version(const df_nvrtc *n); /* 1305 is 13.5 */
/* Whether it compiles cubins for compute capability arch / 10 . arch % 10. */
bool df_nvrtc_has(const df_nvrtc *n, int arch);
/* The greatest architecture it knows that is not above arch. Returns 0 when there is none. */
int df_nvrtc_nearest(const df_nvrtc *n, int arch);

/* Compiles a text, which may hold many kernels, to a cubin. contracts: the compiler may
 * contract multiplications and additions, which only FAST kernels allow. The caller owns
 * *out on success. Returns DEFT_E_COMPILE, with the first error of the compiler, when the
 * text is refused. Any thread; calls may overlap. */
deft_status df_nvrtc_compile(const df_nvrtc *n, df_diag *d, const char *text, int arch,
                             bool contracts, df_cubin *out);
/* Compiles to PTX for GPUs of arch and above. The log of *out does not contain resources. */
deft_status df_nvrtc_ptx(const df_nvrtc *n, df_diag *d, const char *text, int arch, bool contracts,
                         df_cubin *out);
/* Frees the members of c, not c itself. */
void df_cubin_finish(const df_nvrtc *n, df_cubin *c);

/* Reads the resources of an entry from the log. Returns DEFT_E_NOT_FOUND when the log does
 * not have the entry. */
deft_status df_cubin_usage(df_diag *d, const df_cubin *c, const char *entry, df_cuda_usage *out);

#endif
