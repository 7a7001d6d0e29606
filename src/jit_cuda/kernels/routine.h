/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime/routine.h on a GPU: argsort, sort, topk, which, compress, scatter_* and index_* as CUDA
 * kernels, with the bits of the CPU. Nothing here launches. A job with addresses of the device
 * becomes a list of launches for one stream, and a set of kernels becomes the text with
 * their entries. Needs neither a driver nor a GPU. Only df_cuda_routine_text allocates memory, for
 * its text. Any thread.
 *
 * For one segment (DF_SEG_ROUTINE), always in this order; scatters have two functions of their own:
 *
 *   size = df_cuda_routine_work_size(job)            bytes of workspace; 0: none
 *   df_cuda_routine_plan(d, job, work, &list)        work: device address of size bytes, a multiple
 *                                                    of 256. DEFT_E_LIMIT: refused, with a sentence
 *   text = prelude + df_cuda_routine_text(list.kernels)      once for each set, then kept
 *   for each launch: the entry df_cuda_routine_name(launch.kernel), a grid of n_blocks by
 *       df_cuda_routine_threads(launch.kernel) threads, no dynamic shared memory, one parameter by
 *       value: launch.params, launch.size bytes
 *
 * The set of kernels depends on op, dtype, extents and steps of the job, and on whether there is a
 * `fault`. It does not depend on addresses.
 * Workspace and result may hold anything before the launches, except a scatter's `out`,
 * which is added to. The contents of the workspace mean nothing afterwards, so routines of
 * one stream may share it.
 *
 * Checks of indices (scatter_*, index_*). An index is valid in [-n, n). `fault` is the
 * address of three i64 words on the device, the first of which is 0 before the first launch. A
 * bad index is reported there as {id + 1, index, n}, where a negative index is reported as index
 * + n. Of several bad indices, the one that the CPU meets first is reported. When fault[0] is
 * not 0, the words stay as they are. runtime/exec/exec_routine.c has the same words.
 *
 * Values whose index is bad are not added, with or without `fault`. So pass 0 where the indices
 * were checked before. df_cuda_scatter_check_plan does only the check (df_run_check_inputs).
 *
 * A scatter gives the bits of scatter.c, also with FAST. Floats are added in its order; integers
 * may be added in any order.
 */
#ifndef DF_JIT_CUDA_ROUTINE_H
#define DF_JIT_CUDA_ROUTINE_H

#include "base/str.h"
#include "jit_cuda/gen/cuda_abi.h"
#include "runtime/routine.h"

/* X(kernel, parameter): each is an entry, routine_<kernel>. The parameter is a struct of
 * routine_params.h, by value.
 *
 *   sort_rows, sort_rows_64   argsort of short rows in shared memory; of dtypes of 8 bytes
 *   sort_count, _scan, _move  a pass of a radix sort: counts the digits of each piece, computes the
 *                             position of each digit, and moves the words there
 *   which_count, which_write  counts the elements found in each piece, and writes their positions,
 *                             or the elements of another vector there
 *   scatter_begin, _check,    notes that no bad index is known, looks for the first, and reports it
 *   _tell                     to `fault`
 *   scatter_atomic            integers of 4 and 8 bytes: a thread for each value
 *   scatter_walk              a thread for each position along the axes that `out` advances along,
 *                             which adds all values that meet there
 *   scatter_slots, _runs      for many values: checks indices and writes words to sort by target;
 *                             after the sort, a thread for each target, and each element within
 *                             it, adds the values
 */
#define DF_CUDA_ROUTINES(X)                                                                        \
    X(sort_rows, rows_params)                                                                      \
    X(sort_rows_64, rows_params)                                                                   \
    X(sort_count, sort_params)                                                                     \
    X(sort_scan, sort_params)                                                                      \
    X(sort_move, sort_params)                                                                      \
    X(which_count, which_params)                                                                   \
    X(which_write, which_params)                                                                   \
    X(scatter_begin, scatter_params)                                                               \
    X(scatter_check, scatter_params)                                                               \
    X(scatter_tell, scatter_params)                                                                \
    X(scatter_atomic_u32, scatter_params)                                                          \
    X(scatter_atomic_u64, scatter_params)                                                          \
    X(scatter_walk_u8, scatter_params)                                                             \
    X(scatter_walk_u16, scatter_params)                                                            \
    X(scatter_walk_u32, scatter_params)                                                            \
    X(scatter_walk_u64, scatter_params)                                                            \
    X(scatter_walk_f32, scatter_params)                                                            \
    X(scatter_walk_f64, scatter_params)                                                            \
    X(scatter_slots, scatter_params)                                                               \
    X(scatter_runs_u8, scatter_params)                                                             \
    X(scatter_runs_u16, scatter_params)                                                            \
    X(scatter_runs_u32, scatter_params)                                                            \
    X(scatter_runs_u64, scatter_params)                                                            \
    X(scatter_runs_f32, scatter_params)                                                            \
    X(scatter_runs_f64, scatter_params)

typedef enum df_cuda_routine {
#define DF_CUDA_ROUTINE(kernel, parameter) DF_CUDA_R_##kernel,
    DF_CUDA_ROUTINES(DF_CUDA_ROUTINE)
#undef DF_CUDA_ROUTINE
        DF_CUDA_N_ROUTINES
} df_cuda_routine;

enum {
    DF_CUDA_ROUTINE_LAUNCHES = 28, /* launches of a job, at most */
    DF_CUDA_ROUTINE_WORDS = 56     /* 8-byte words of a parameter, at most */
};

/* One launch of a kernel. */
typedef struct df_cuda_launch {
    df_cuda_routine kernel;
    /* At least 1. A smaller grid gives the same result, because threads stride over the grid. */
    uint32_t n_blocks;
    uint32_t size; /* bytes of params that are used */
    uint64_t params[DF_CUDA_ROUTINE_WORDS];
} df_cuda_launch;

/* The launches of a job, in order. */
typedef struct df_cuda_launches {
    uint32_t n;       /* 0: there is nothing to do */
    uint64_t kernels; /* set of the kernels of the launches: bits 1 << df_cuda_routine */
    df_cuda_launch at[DF_CUDA_ROUTINE_LAUNCHES];
} df_cuda_launches;

/* ---- argsort, sort, topk, which, compress ---- */

/* The bytes of workspace. The addresses of the job may still be 0. */
size_t df_cuda_routine_work_size(const df_routine_job *job);
/* Plans the launches of such a job. work: address of the workspace on the device;
 * ignored when its size is 0. Returns DEFT_E_LIMIT for rows of 2^32 - 1 or more elements to sort;
 * the list is then empty. */
deft_status df_cuda_routine_plan(df_diag *d, const df_routine_job *job, uint64_t work,
                                 df_cuda_launches *out);

/* ---- scatter_*, index_* ---- */

/* Bytes of workspace, at least 8. The addresses of the job may still be 0. */
size_t df_cuda_scatter_work_size(const df_scatter_job *job);
/* Plans the launches of a scatter. A bad index is reported at the address `fault`, with `id`, which
 * is the node number in df_seg.fault. With fault 0 nothing is reported. work: address of the
 * workspace on the device. */
void df_cuda_scatter_plan(const df_scatter_job *job, uint32_t id, uint64_t fault, uint64_t work,
                          df_cuda_launches *out);
/* Plans only the check of indices; nothing is added. fault must not be 0. Of the addresses of
 * the job only `index` must be set. Needs 8 bytes of workspace. */
void df_cuda_scatter_check_plan(const df_scatter_job *job, uint32_t id, uint64_t fault,
                                uint64_t work, df_cuda_launches *out);

/* ---- text ---- */

/* Appends the entries of a set of kernels to a program that begins with the prelude, at
 * most once per program. Same set, same text. When memory runs out, out->ok is false. */
void df_cuda_routine_text(uint64_t kernels, df_str *out);
/* The name of the entry, "routine_" and the kernel. A static string. */
const char *df_cuda_routine_name(df_cuda_routine kernel);
/* The threads of a block. */
uint32_t df_cuda_routine_threads(df_cuda_routine kernel);

#endif
