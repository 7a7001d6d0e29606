/* SPDX-License-Identifier: Apache-2.0
 *
 * Facts: what is true of every launch for which a *variant* of a kernel is made.
 *
 * The general code of a kernel relies on no extent, stride or number. A variant relies on its
 * facts. It is called only for launches of which the facts hold, and gives the same bits. Facts
 * are plain data: compared before each launch, printed, and read by a code generator.
 */
#ifndef DF_RUNTIME_FACTS_H
#define DF_RUNTIME_FACTS_H

#include "fuser/plan.h"

#define DF_ANY (-1)         /* in df_facts.extent: the extent is not known */
#define DF_FACT_NUMS 64     /* only number slots below this index can have facts */
#define DF_FACT_MULTIPLE 64 /* the divisor of df_facts.multiple */
#define DF_FACT_ACCESSES 32 /* only kernels with at most this many accesses have shared rows */

typedef struct df_facts {
    bool rows;     /* each call covers full rows: i0 is 0, i1 the extent of INNER (MAP, COL) */
    bool all;      /* each call covers all rows: o0 is 0, o1 the product of the extents of OUTER */
    bool multiple; /* extent of the vectorized axis, i0 and i1 are multiples of DF_FACT_MULTIPLE */
    uint64_t seconds;  /* bit i: access i moves by two elements along the vectorized axis (MAP) */
    uint64_t num_mask; /* bit i: number slot i holds num[i] */
    int64_t extent[DF_MAX_AXES]; /* of each axis, or DF_ANY */
    uint64_t num[DF_FACT_NUMS];  /* the bits of each number */
    /* Shared rows (df_facts_may_share): what access a reads in the next row, access below[a] - 1
     * reads in this row. 0: no access is known to. */
    uint8_t below[DF_FACT_ACCESSES];
    bool shares; /* some access has a `below` */
} df_facts;

/* Returns the axis along which lanes run: INNER, or the last RED axis of a ROW kernel. Returns -1
 * when the kernel has no such axis. */
DF_INLINE int df_facts_vector_axis(const df_kernel *k)
{
    int axis = -1;
    for (int x = 0; x < k->n_axes; x++)
        if (k->role[x] == (k->mode == DF_MODE_ROW ? DF_AXIS_RED : DF_AXIS_INNER)) axis = x;
    return axis;
}

/* Returns the axis along which rows follow each other: the last OUTER axis, or -1. */
DF_INLINE int df_facts_row_axis(const df_kernel *k)
{
    int axis = -1;
    for (int x = 0; x < k->n_axes; x++)
        if (k->role[x] == DF_AXIS_OUTER) axis = x;
    return axis;
}

/* Returns true when x / d and x * (1 / d) have equal bits for every x. This holds when d is a power
 * of two, and neither d nor its inverse is subnormal. d holds the bits of a number of dtype t. */
DF_INLINE bool df_facts_is_exact_divisor(deft_dtype t, uint64_t d)
{
    const int mantissa = t == DEFT_F32 ? 23 : 52, most = t == DEFT_F32 ? 0xFF : 0x7FF;
    if (t != DEFT_F32 && t != DEFT_F64) return false;
    const int64_t exponent = (int64_t)(d >> mantissa) & most;
    const bool is_power = (d & ((UINT64_C(1) << mantissa) - 1)) == 0;
    return is_power && exponent > 0 && exponent < most - 1; /* 2^e and 2^-e: both normal */
}

/* Returns the number slot of the divisor when ins is a division of floats for every element, and
 * DF_NONE otherwise. No other use of a number is worth a variant. */
DF_INLINE uint32_t df_facts_useful_slot(const df_kernel *k, const df_ins *ins)
{
    if (ins->op != DF_K_div || ins->level != DF_LEVEL_ELEM) return DF_NONE;
    if (ins->dtype != DEFT_F32 && ins->dtype != DEFT_F64) return DF_NONE;
    const df_ins *const d = &k->ins[ins->src[1]];
    return d->op == DF_K_num && d->imm < DF_FACT_NUMS ? (uint32_t)d->imm : DF_NONE;
}

#endif
