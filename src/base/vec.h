/* SPDX-License-Identifier: Apache-2.0
 *
 * Growable arrays as plain structs: { T *at; size_t n, cap; }. DF_VEC(T) declares one; zeros are an
 * empty array. All calls for one array must pass the same df_mem. The macros evaluate mem and v
 * more than once. Growth moves the elements, so pointers to them become invalid.
 */
#ifndef DF_BASE_VEC_H
#define DF_BASE_VEC_H

#include "base/mem.h"

#define DF_VEC(T)                                                                                  \
    struct {                                                                                       \
        T *at;                                                                                     \
        size_t n, cap;                                                                             \
    }

/* Makes room for n_more elements of elem bytes after the first n. Returns false when memory runs
 * out, and then changes nothing. Callers use df_vec_reserve and df_vec_push instead. */
bool df_vec_grow(const df_mem *mem, void **at, size_t n, size_t *cap, size_t elem, size_t n_more);

/* Makes room for n_more elements. Evaluates to false when memory runs out. */
#define df_vec_reserve(mem, v, n_more)                                                             \
    ((v)->cap - (v)->n >= (size_t)(n_more) ||                                                      \
     df_vec_grow((mem), (void **)&(v)->at, (v)->n, &(v)->cap, sizeof *(v)->at, (size_t)(n_more)))

/* Appends an element. Evaluates to false when memory runs out. */
#define df_vec_push(mem, v, value)                                                                 \
    (df_vec_reserve((mem), (v), 1) ? ((v)->at[(v)->n++] = (value), true) : false)

/* Frees the array, which is then empty and may be used again. */
#define df_vec_finish(mem, v)                                                                      \
    (df_mem_free((mem), (v)->at, (v)->cap * sizeof *(v)->at), (v)->at = NULL, (v)->n = (v)->cap = 0)

#endif
