/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rows an entry with HELD keeps in shared memory (cuda_abi.h), and where.
 */
#ifndef DF_JIT_CUDA_HELD_H
#define DF_JIT_CUDA_HELD_H

#include "jit_cuda/gen/cuda_abi.h"

enum { DF_CUDA_HELD_ROWS = 16 /* a kernel with more keeps none */ };

/* Bytes of a row in shared memory: whole accesses of 16 bytes. */
#define DF_CUDA_HELD_ALIGNED(bytes) (((bytes) + 15) & ~(int64_t)15)

typedef struct df_cuda_held_row {
    uint32_t access;     /* of an operand; of SCRATCH the first that others are same_as */
    uint32_t room;       /* which room it is in */
    uint8_t first, last; /* stages that touch it */
    uint8_t size;        /* bytes of an element */
    bool moves;          /* some thread reads elements of its choice */
} df_cuda_held_row;

typedef struct df_cuda_held {
    uint32_t n, n_rooms;
    df_cuda_held_row row[DF_CUDA_HELD_ROWS]; /* by their first stages */
    uint8_t size[DF_CUDA_HELD_ROWS];         /* bytes of an element, by room */
} df_cuda_held;

/* The first of the accesses that may touch the same memory as this one. */
uint32_t df_cuda_held_first(const df_kernel *k, uint32_t access);
/* The rows of k; n is 0 when there is none worth keeping. */
df_cuda_held df_cuda_held_of(const df_kernel *k);
/* The row of an access of df_cuda_held_row.access; NULL: it is not kept. */
const df_cuda_held_row *df_cuda_held_row_of(const df_cuda_held *h, uint32_t access);
/* Bytes for one row of `length` elements, INT64_MAX for very long ones. */
int64_t df_cuda_held_bytes(const df_cuda_held *h, int64_t length);

#endif
