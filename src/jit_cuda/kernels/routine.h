/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime/routine.h on a GPU: argsort, which, scatter_add and index_add as CUDA kernels, with the
 * CPU's bits. Nothing here launches: a job with addresses of the device becomes a list of launches
 * for one stream, and a set of kernels becomes the text that has their entries. Needs neither a
 * driver nor a GPU. Nothing is allocated; any thread.
 *
 * For one segment (DF_SEG_ROUTINE), always in this order:
 *
 *   work = df_cuda_routine_work_size(job)            bytes, 256-byte aligned; 0: none
 *   df_cuda_routine_plan(d, job, work, &list)        DEFT_E_LIMIT: refused, with a sentence
 *   text = prelude + df_cuda_routine_text(list.kernels)      once for each set, then kept
 *   for each launch: the entry df_cuda_routine_name(launch.kernel), a grid of n_blocks by
 *       df_cuda_routine_threads(launch.kernel) threads, no dynamic shared memory, one parameter by
 *       value: launch.params, launch.size bytes
 *
 * The set depends on the job's dtype and extents and on whether there is a `fault`. Launches need
 * nothing of work space or result, which may hold anything (but a scatter's `out`, which is added
 * to). What lies in the work space means nothing afterwards: routines of one stream may share it.
 *
 * Indices (scatter_add, index_add). With `fault`, the address of three i64 words on the device, the
 * first index outside [-n, n), in the order of the CPU, is told as {id + 1, index, n} where
 * fault[0] is still 0, negative ones counted from n: the words of runtime/exec_routine.c. Values
 * whose index lies outside are not added, with or without `fault`: leave it 0 where they were
 * checked before. df_cuda_scatter_check_plan gives the check alone (df_run_check_inputs).
 *
 * Additions stand in the order of scatter.c for each element of the result, also with FAST.
 */
#ifndef DF_JIT_CUDA_ROUTINE_H
#define DF_JIT_CUDA_ROUTINE_H

#include "base/str.h"
#include "jit_cuda/gen/cuda_abi.h"
#include "runtime/routine.h"

/* X(kernel, parameter): each is an entry, routine_<kernel>. The parameter is a struct of
 * routine_params.h, by value. */
#define DF_CUDA_ROUTINES(X)                                                                        \
    X(sort_rows, rows_params)    /* argsort of short rows, in shared memory */                     \
    X(sort_rows_64, rows_params) /* the same for 8-byte dtypes */                                  \
    X(sort_count, sort_params)   /* a pass of a radix sort: digits of each piece, */               \
    X(sort_scan, sort_params)    /* where they go, */                                              \
    X(sort_move, sort_params)    /* and there */                                                   \
    X(which_count, which_params) /* per piece */                                                   \
    X(which_write, which_params)                                                                   \
    X(scatter_begin, scatter_params) /* no bad index is known */                                   \
    X(scatter_check, scatter_params)                                                               \
    X(scatter_tell, scatter_params)       /* the first bad index, to fault */                      \
    X(scatter_atomic_u32, scatter_params) /* integers: a thread per value */                       \
    X(scatter_atomic_u64, scatter_params)                                                          \
    X(scatter_walk_u8, scatter_params) /* a thread per element that is kept */                     \
    X(scatter_walk_f32, scatter_params)                                                            \
    X(scatter_walk_f64, scatter_params)                                                            \
    X(scatter_slots, scatter_params)   /* checks, and makes words to sort by target */             \
    X(scatter_runs_u8, scatter_params) /* sorted: a thread per target and element of it */         \
    X(scatter_runs_f32, scatter_params)                                                            \
    X(scatter_runs_f64, scatter_params)

typedef enum df_cuda_routine {
#define DF_CUDA_ROUTINE(kernel, parameter) DF_CUDA_R_##kernel,
    DF_CUDA_ROUTINES(DF_CUDA_ROUTINE)
#undef DF_CUDA_ROUTINE
        DF_CUDA_N_ROUTINES
} df_cuda_routine;

enum {
    DF_CUDA_ROUTINE_LAUNCHES = 28, /* of a job, at most */
    DF_CUDA_ROUTINE_WORDS = 56     /* of a parameter, 8 bytes each, at most */
};

typedef struct df_cuda_launch {
    df_cuda_routine kernel;
    uint32_t n_blocks; /* at least 1; fewer do, too */
    uint32_t size;     /* bytes of params */
    uint64_t params[DF_CUDA_ROUTINE_WORDS];
} df_cuda_launch;

typedef struct df_cuda_launches {
    uint32_t n;       /* 0: there is nothing to do */
    uint64_t kernels; /* bits 1 << df_cuda_routine: those of the launches */
    df_cuda_launch at[DF_CUDA_ROUTINE_LAUNCHES];
} df_cuda_launches;

/* ---- argsort, which ---- */

/* in and out need no address yet. */
size_t df_cuda_routine_work_size(const df_routine_job *job);
/* work: address on the device. DEFT_E_LIMIT: rows of 2^32 - 1 elements or more to sort. */
deft_status df_cuda_routine_plan(df_diag *d, const df_routine_job *job, uint64_t work,
                                 df_cuda_launches *out);

/* ---- scatter_add, index_add ---- */

/* out, index and value need no address yet. At least 8 bytes. */
size_t df_cuda_scatter_work_size(const df_scatter_job *job);
/* id: of the check, df_seg's `fault`. */
void df_cuda_scatter_plan(const df_scatter_job *job, uint32_t id, uint64_t fault, uint64_t work,
                          df_cuda_launches *out);
/* Indices alone, nothing is added; index alone needs an address. Work space: 8 bytes. */
void df_cuda_scatter_check_plan(const df_scatter_job *job, uint32_t id, uint64_t fault,
                                uint64_t work, df_cuda_launches *out);

/* ---- text ---- */

/* Appends the entries of a set of kernels to a program that begins with the prelude; at most once
 * for each program. Same set, same text. */
void df_cuda_routine_text(uint64_t kernels, df_str *out);
const char *df_cuda_routine_name(df_cuda_routine kernel);
uint32_t df_cuda_routine_threads(df_cuda_routine kernel);

#endif
