/* SPDX-License-Identifier: Apache-2.0
 *
 * What random programs grow: tensors of two kinds, [rows,4] and [], from which each op takes its
 * operands and to which it adds what it makes.
 */
#ifndef TEST_TENSOR_POOL_H
#define TEST_TENSOR_POOL_H

#include "oracle.h"

enum { POOL = 24 };

typedef struct pool {
    deft_tensor *a[POOL], *b[POOL];
    unsigned n_a, n_b;
} pool;

/* One of 0 .. n - 1. */
static inline unsigned pick(uint64_t *seed, unsigned n)
{
    return (unsigned)(oracle_next(seed) % n);
}

static inline deft_tensor *any_a(const pool *p, uint64_t *seed)
{
    return p->a[pick(seed, p->n_a)];
}

static inline deft_tensor *any_b(const pool *p, uint64_t *seed)
{
    return p->b[pick(seed, p->n_b)];
}

/* Into a full pool in the place of another, but for the first. */
static inline void put_a(pool *p, uint64_t *seed, deft_tensor *t)
{
    p->a[p->n_a < POOL ? p->n_a++ : 1 + pick(seed, POOL - 1)] = t;
}

static inline void put_b(pool *p, uint64_t *seed, deft_tensor *t)
{
    p->b[p->n_b < POOL ? p->n_b++ : 1 + pick(seed, POOL - 1)] = t;
}

#endif
