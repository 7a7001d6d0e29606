/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference interpreter: runs a kernel's IR directly, the oracle of every other path. Vector
 * chunks of DF_BLOCK / 16 elements, one C loop per instruction. Same ABI as compiled code, with the
 * kernel in front. Kernels hold kernel ops only: the fuser wrote recipes out.
 */
#ifndef DF_RUNTIME_INTERP_H
#define DF_RUNTIME_INTERP_H

#include "runtime/device.h"

/* Bytes of work space one call needs; the caller provides it (64-byte aligned, one per thread). */
size_t df_interp_work_size(const df_kernel *k);

void df_interp_main(const df_kernel *k, void *work, const df_kargs *a, int64_t o0, int64_t o1,
                    int64_t i0, int64_t i1);
void df_interp_part(const df_kernel *k, void *work, const df_kargs *a, int64_t o, int64_t b0,
                    int64_t b1);
void df_interp_fin(const df_kernel *k, void *work, const df_kargs *a, int64_t o, int64_t i0,
                   int64_t i1);

/* The low bits of v as a value of size bytes, whatever end comes first. */
void df_put_bits(void *dst, uint64_t v, size_t size);

#endif
