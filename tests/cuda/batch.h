/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels whose CUDA text is compiled for the CPU (shim.h): many in one file, one compiler call,
 * one shared library. Whatever goes wrong is said on stdout, and false.
 */
#ifndef TEST_CUDA_BATCH_H
#define TEST_CUDA_BATCH_H

#include "jit_cuda/gen/cuda_abi.h"

enum { BATCH_ENTRIES = 10 };

typedef struct batch_kernel {
    const df_kernel *k;
    const char *where; /* for people */
    char name[16];
    df_cuda_entry entry[BATCH_ENTRIES];
    uint32_t n_entries;
} batch_kernel;

typedef struct batch {
    void *library;
    const void *entries; /* shim_entry[] */
    int (*launch)(void (*call)(const void *), const void *params, unsigned n_blocks,
                  unsigned n_threads, unsigned n_shared);
    size_t text_bytes;
} batch;

typedef struct batch_tools {
    const char *compiler; /* a C++ compiler */
    const char *shim;     /* the folder of shim.h */
    char folder[64];      /* for files */
    bool runs_briefly;    /* compiling it is what takes the time */
} batch_tools;

bool batch_build(batch *b, const batch_tools *t, const batch_kernel *k, uint32_t n,
                 uint32_t number);
/* text: all of the file, shim.h to shim_entries. */
bool batch_build_text(batch *b, const batch_tools *t, const df_str *text, uint32_t number);
/* params: the entry's one parameter. */
bool batch_launch(const batch *b, const batch_kernel *k, df_cuda_entry e, const void *params,
                  int64_t n_blocks);
/* Thread blocks of n_threads, with n_shared bytes of shared memory. */
bool batch_launch_held(const batch *b, const batch_kernel *k, df_cuda_entry e, const void *params,
                       int64_t n_blocks, uint32_t n_threads, uint32_t n_shared);
bool batch_call(const batch *b, const char *where, const char *name, const void *params,
                int64_t n_blocks, uint32_t n_threads);
void batch_close(batch *b);

#endif
