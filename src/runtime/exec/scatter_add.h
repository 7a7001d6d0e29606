/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops of scatter_* and index_*: values combined with elements at the indices of the two
 * innermost axes. Additions are in scatter_add.c, all else is in scatter_combine.c.
 */
#ifndef DF_RUNTIME_SCATTER_ADD_H
#define DF_RUNTIME_SCATTER_ADD_H

#include "ops/op.h"
#include "runtime/interp/interp_ops.h"

#include "base/compiler.h"

enum { DF_SCATTER_CHUNK = 256 /* indices that are made i64 at a time */, DF_SCATTER_WAYS = 4 };

/* The two innermost axes of the box. Axis 0 here is the last one. */
typedef struct df_scatter_nest {
    int64_t n, step;  /* extent and stride of the indexed axis of out */
    int64_t low, end; /* only values with an index in [low, end) are taken */
    int64_t extent[2], out_step[2], index_step[2], value_step[2];
    const char *index;
    df_scatter_how how;
    deft_dtype index_dtype, dtype;
    /* 0: there is one result. Otherwise DF_SCATTER_WAYS results lie `way` elements apart, of which
     * the sum is wanted, and [low, end) is [0, n). */
    int64_t way;
    const df_lane_ops *ops; /* by the instructions of this machine */
} df_scatter_nest;

/* Returns n <= DF_SCATTER_CHUNK indices of dtype t, which is no float, as neighbours: those in
 * memory, which may be misaligned, or a copy in `copy`. */
const df_any_i64 *df_scatter_indices(const df_lane_ops *ops, deft_dtype t, const char *from,
                                     int64_t step, int64_t n, int64_t *copy);

/* Folds n values into as many neighbours at out. */
void df_scatter_fold(df_fold_fn fold, char *out, const char *value, int64_t n, size_t size);

/* Makes a negative index count from 0. Returns false when the index is outside [-n, n). */
DF_INLINE bool df_scatter_resolve(int64_t *index, int64_t n)
{
    *index += *index < 0 ? n : 0;
    return (uint64_t)*index < (uint64_t)n;
}

/* Returns true when this walk takes the value with `index`. Clears *ok when the index is out of
 * range. */
DF_INLINE bool df_scatter_takes(const df_scatter_nest *x, int64_t *index, bool *ok)
{
    if (DF_UNLIKELY(!df_scatter_resolve(index, x->n))) return *ok = false;
    return (uint64_t)(*index - x->low) < (uint64_t)(x->end - x->low);
}

/* Adds the values to out. Returns false when an index is out of range. The dtype is no bool and no
 * half: plans add halves up as f32. */
bool df_scatter_nest_add(const df_scatter_nest *x, char *out, const char *value);
/* Combines the values with out in another way than by addition. The way x->way is not used. */
bool df_scatter_nest_combine(const df_scatter_nest *x, char *out, const char *value);

#endif
