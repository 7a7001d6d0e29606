/* SPDX-License-Identifier: Apache-2.0
 *
 * Element types. Numbers are stable: they stand in trace files.
 */
#ifndef DEFT_DTYPE_H
#define DEFT_DTYPE_H

#include "deft/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum deft_dtype {
    DEFT_BOOL = 0, /* one byte, 0 or 1 */
    DEFT_U8 = 1,
    DEFT_I32 = 2,
    DEFT_I64 = 3,
    DEFT_F32 = 4,
    DEFT_F64 = 5,
    DEFT_F16 = 6, /* IEEE binary16, 2 bytes. Each op computes in f32 and rounds once, to nearest */
    DEFT_BF16 = 7 /* bfloat16, the upper half of an f32; the same (docs/halves.md) */
} deft_dtype;

#define DEFT_N_DTYPES 8

/* The largest rank of a tensor. */
#define DEFT_MAX_RANK 8

/* Bytes of one element; 0 for a value that is no dtype. Any thread. */
DEFT_API size_t deft_dtype_size(deft_dtype dtype);

/* "f32" and so on; "?" for a value that is no dtype. Static. Any thread. */
DEFT_API const char *deft_dtype_name(deft_dtype dtype);

/* The dtype two operands meet in (docs/promotion.md prints the table). Any thread. */
DEFT_API deft_dtype deft_promote(deft_dtype a, deft_dtype b);

#ifdef __cplusplus
}
#endif
#endif
