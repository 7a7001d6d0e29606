/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference interpreter. It runs the instructions of a kernel directly, and every other path
 * must give the same bits.
 *
 * Each instruction is one C loop over a chunk of at most DF_CHUNK lanes (interp_ops.h). A kernel
 * contains only kernel ops (ops/kops.def). The fuser has already replaced all other operators by
 * sequences of kernel ops.
 */
#ifndef DF_RUNTIME_INTERP_H
#define DF_RUNTIME_INTERP_H

#include "runtime/device.h"

/* Returns the bytes of workspace that one call of main, part or fin needs. A workspace may have
 * any alignment. Each thread needs one of its own, which all its calls may use, one after the
 * other. */
size_t df_interp_work_size(const df_kernel *k);

/* Run kernel k as df_kernel_fn (device.h) says. All ends of ranges are exclusive.
 *
 *   main  computes rows [o0, o1), and of each row the positions [i0, i1)
 *   part  computes blocks [b0, b1) of row o, and stores their results in a->partial
 *   fin   joins all blocks of row o, for positions [i0, i1)
 *
 * Only SPLIT kernels have part and fin, and fin runs after part has computed all blocks of the row.
 * `work` is workspace of the size above. Its content before and after the call means nothing. No
 * call fails. A check that finds an index out of range stores it in a->fault, and the call goes on
 * with index 0. */
void df_interp_main(const df_kernel *k, void *work, const df_kargs *a, int64_t o0, int64_t o1,
                    int64_t i0, int64_t i1);
void df_interp_part(const df_kernel *k, void *work, const df_kargs *a, int64_t o, int64_t b0,
                    int64_t b1);
void df_interp_fin(const df_kernel *k, void *work, const df_kargs *a, int64_t o, int64_t i0,
                   int64_t i1);

#endif
