/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference interpreter. It runs the instructions of a kernel directly, and every other path
 * must give the same bits.
 *
 * Each instruction is one C loop over a chunk of DF_CHUNK lanes. The functions are the entry points
 * of df_kernel_fn (device.h), with the kernel and the workspace in front. A kernel contains kernel
 * ops alone, because the fuser has expanded recipes.
 */
#ifndef DF_RUNTIME_INTERP_H
#define DF_RUNTIME_INTERP_H

#include "runtime/device.h"

/* Returns the bytes of workspace that one call needs. Each thread needs a workspace of its own. */
size_t df_interp_work_size(const df_kernel *k);

/* `work` is workspace of that size. Its content before and after the call means nothing. */
void df_interp_main(const df_kernel *k, void *work, const df_kargs *a, int64_t o0, int64_t o1,
                    int64_t i0, int64_t i1);
void df_interp_part(const df_kernel *k, void *work, const df_kargs *a, int64_t o, int64_t b0,
                    int64_t b1);
void df_interp_fin(const df_kernel *k, void *work, const df_kargs *a, int64_t o, int64_t i0,
                   int64_t i1);

/* Writes the low `size` bytes of v to dst, as a value of that size. size is 1, 2, 4 or 8. Works for
 * either byte order. */
void df_put_bits(void *dst, uint64_t v, size_t size);

#endif
