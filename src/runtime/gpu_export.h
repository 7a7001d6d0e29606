/* SPDX-License-Identifier: Apache-2.0
 *
 * A trace as a list of launches on GPUs, with the code of their kernels. The plug-in for GPUs makes
 * it (src/jit_cuda/exec/export.c), without a GPU and without a driver. The plug-in for exports
 * writes it as a C file (src/aot/cuda_file.c).
 *
 * All extents of the trace are numbers, so everything is known when the list is made, but for
 * addresses and for numbers that are parameters. Arguments of launches are words of 8 bytes.
 *
 *   words   | table, copied to the front of the workspace | arguments of launch 0 | of 1 | ...
 *   fix     word `at` is the address of a parameter or of the workspace, plus `add`
 *   number  word `at` has the bits of a parameter that is a number
 *
 * A run does the copies that come first, copies the table, does the launches in order, and then the
 * other copies. With has_checks the table begins with three words that are 0. Afterwards the first
 * is not 0 when an index was outside; the second is that index, and the third the extent.
 *
 * Every array begins at a multiple of DF_GPU_EXPORT_ALIGN bytes.
 */
#ifndef DF_RUNTIME_GPU_EXPORT_H
#define DF_RUNTIME_GPU_EXPORT_H

#include "base/arena.h"
#include "runtime/device.h"

enum { DF_GPU_EXPORT_ALIGN = 16, DF_GPU_EXPORT_NAME = 48 };

/* What is asked for. */
typedef struct df_gpu_export_options {
    uint32_t size; /* sizeof(df_gpu_export_options) */
    /* Compute capabilities with a ',' between them, as "80,90": each gets code of its own. Later
     * GPUs get PTX for the least of them. NULL: those of 80, 86, 89, 90 and 100 that the compiler
     * knows. */
    const char *architectures;
    int n_sms; /* multiprocessors of the GPU that grids are chosen for; 0: 132 */
    /* The arguments of the trace that are parameters. */
    const uint32_t *number;
    uint32_t n_numbers;
} df_gpu_export_options;

typedef enum df_gpu_origin_kind {
    DF_GPU_ORIGIN_INPUT, /* of the trace; the memory of what a root is written into, too */
    DF_GPU_ORIGIN_ROOT,
    DF_GPU_ORIGIN_WORKSPACE
} df_gpu_origin_kind;

/* Where an address begins. */
typedef struct df_gpu_origin {
    uint32_t kind;  /* df_gpu_origin_kind */
    uint32_t index; /* of the input or the root */
} df_gpu_origin;

typedef struct df_gpu_fix {
    uint32_t at;
    df_gpu_origin origin;
    int64_t add;
} df_gpu_fix;

typedef struct df_gpu_number {
    uint32_t at;
    uint32_t arg; /* of the trace */
    deft_dtype dtype;
} df_gpu_number;

/* A launch. Grids and thread blocks have one dimension. Its words are its only parameter. */
typedef struct df_gpu_step {
    uint32_t function;
    uint32_t n_blocks, n_threads;
    uint32_t shared; /* bytes of shared memory that it asks for */
    uint32_t first, n_words;
} df_gpu_step;

/* A copy of a complete array into that of a root. */
typedef struct df_gpu_copy {
    uint32_t root;
    df_gpu_origin from;
    int64_t bytes;
    bool is_last; /* after the launches, else before them */
    bool may_be;  /* the root may be given the memory of `from`: then nothing is to be copied */
} df_gpu_copy;

/* An entry of a program. */
typedef struct df_gpu_function {
    uint32_t program;
    char name[DF_GPU_EXPORT_NAME];
} df_gpu_function;

/* The code of one program: a cubin, or PTX with a final 0 byte. */
typedef struct df_gpu_code {
    const void *at;
    size_t size;
} df_gpu_code;

/* All is in the arena. df_arena_finish(&e->arena) frees it. */
typedef struct df_gpu_export {
    df_arena arena;
    bool has_checks;
    uint64_t *word;
    uint32_t n_words, n_table; /* the first n_table are the table */
    df_gpu_fix *fix;           /* by `at`, as numbers are */
    uint32_t n_fixes;
    df_gpu_number *number;
    uint32_t n_numbers;
    df_gpu_step *step;
    uint32_t n_steps;
    df_gpu_copy *copy;
    uint32_t n_copies;
    df_gpu_function *function;
    uint32_t n_functions, n_programs;
    int *arch; /* ascending; the last is that of the PTX */
    uint32_t n_archs;
    df_gpu_code *code; /* [arch][program] */
    uint32_t *may_be;  /* per root: the input whose memory it may have; DF_NONE: none */
    int64_t workspace_bytes;
} df_gpu_export;

/* A symbol of the plug-in for GPUs. t is simplified. Its addresses are not read, and it is taken as
 * strict. *out is empty, and its arena was not initialized.
 *
 * DEFT_E_ARG: the trace has something that cannot be exported, and the sentence names it, or there
 * is no such architecture. DEFT_E_BACKEND: there is no compiler (NVRTC). On failure *out owns
 * nothing. */
typedef deft_status (*df_plugin_gpu_export_fn)(const df_host *host, const char *build_id,
                                               df_diag *d, const df_trace *t,
                                               const df_gpu_export_options *o, df_gpu_export *out);
#define DF_PLUGIN_GPU_EXPORT_SYMBOL "df_plugin_gpu_export"

#endif
