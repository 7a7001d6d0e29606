/* SPDX-License-Identifier: Apache-2.0
 *
 * Which bytes an input covers, whether its elements are dense, and copies of its elements to and
 * from packed memory.
 */
#include "trace/trace.h"

#include <string.h>

bool df_input_reach(const df_trace *t, uint32_t input, int64_t *low, int64_t *bytes)
{
    const df_input *const in = &t->inputs[input];
    const df_node *const node = &t->nodes[in->node];
    const int64_t *const extent = df_trace_extents(t, in->node);
    const int64_t size = (int64_t)deft_dtype_size((deft_dtype)node->dtype);
    int64_t below = 0, above = 0, span;
    bool empty = false;
    for (uint32_t i = 0; i < node->rank; i++) {
        if (extent[i] == 0) empty = true;
        if (extent[i] <= 1) continue;
        if (!df_mul_i64(extent[i] - 1, in->stride[i], &span)) return false;
        int64_t *const side = span < 0 ? &below : &above;
        if (!df_add_i64(*side, span, side)) return false;
    }
    if (!df_mul_i64(below, size, low) || *low == INT64_MIN || !df_mul_i64(above, size, &above) ||
        !df_add_i64(above, size, &above) || !df_add_i64(above, -*low, bytes))
        return false;
    if (empty) *low = *bytes = 0;
    return true;
}

bool df_strides_contiguous(const int64_t *extents, const int64_t *stride, uint32_t rank)
{
    for (uint32_t i = 0; i < rank; i++)
        if (extents[i] == 0) return true;
    int64_t want = 1;
    for (uint32_t i = rank; i-- > 0;) {
        if (extents[i] != 1 && stride[i] != want) return false;
        want *= extents[i];
    }
    return true;
}

/* Calls copy for each element in row-major order, with its address in the input and its address in
 * packed. A contiguous input gets one call for all elements. */
static void each_element(const df_trace *t, uint32_t input, char *packed,
                         void (*copy)(char *at, char *packed, size_t size))
{
    const df_input *const in = &t->inputs[input];
    const df_node *const node = &t->nodes[in->node];
    const int64_t *const extent = df_trace_extents(t, in->node);
    const size_t size = deft_dtype_size((deft_dtype)node->dtype);
    int64_t at[DEFT_MAX_RANK] = { 0 }, left = df_trace_numel(t, in->node);
    if (df_strides_contiguous(extent, in->stride, node->rank)) {
        if (left) copy(in->data, packed, (size_t)left * size);
        return;
    }
    for (char *from = in->data; left > 0; left--) {
        copy(from, packed, size);
        packed += size;
        for (uint32_t x = node->rank; x-- > 0;) {
            from += in->stride[x] * (int64_t)size;
            if (++at[x] < extent[x]) break;
            from -= at[x] * in->stride[x] * (int64_t)size;
            at[x] = 0;
        }
    }
}

static void take(char *at, char *packed, size_t size)
{
    memcpy(packed, at, size);
}

static void put(char *at, char *packed, size_t size)
{
    memcpy(at, packed, size);
}

void df_input_gather(const df_trace *t, uint32_t input, void *packed)
{
    each_element(t, input, packed, take);
}

void df_input_scatter(const df_trace *t, uint32_t input, const void *packed)
{
    each_element(t, input, (char *)(uintptr_t)packed, put);
}
