/* SPDX-License-Identifier: Apache-2.0
 *
 * See data.h.
 */
#include "data.h"

#include <string.h>

#include "ops/op.h"

/* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* ---- indices ---- */

/* The input whose elements node k holds, seen through views; DF_NONE when it computes something. */
static uint32_t input_behind(const df_trace *t, uint32_t k)
{
    while (df_op_infos[t->nodes[k].op].cls == DF_CLASS_view) k = t->nodes[k].src[0].i;
    return t->nodes[k].op == DF_OP_input ? t->nodes[k].attr : DF_NONE;
}

/* The least extent that input is an index into; 0 when it is no index. */
static int64_t index_bound(const df_trace *t, uint32_t input)
{
    int64_t bound = 0;
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        const df_node *const n = &t->nodes[k];
        if (!df_op_takes_indices((df_op)n->op)) continue;
        if (input_behind(t, n->src[1].i) != input) continue;
        const int64_t extent = df_trace_extents(t, n->src[0].i)[n->attr];
        if (bound == 0 || extent < bound) bound = extent;
    }
    return bound;
}

/* ---- values ---- */

static void put(char *at, deft_dtype dtype, uint64_t x, int64_t bound)
{
    const double u = (double)(x >> 11) * 0x1p-53 * 8 - 4;
    const float f = (float)u;
    const int32_t small = (int32_t)(x % 19) - 9;
    const int64_t wide = bound > 0 ? (int64_t)(x % (uint64_t)bound) : small;
    switch (dtype) {
    case DEFT_BOOL: *at = (char)(x & 1); break;
    case DEFT_U8: *at = (char)(x & 255); break;
    case DEFT_I32: memcpy(at, &small, sizeof small); break;
    case DEFT_I64: memcpy(at, &wide, sizeof wide); break;
    case DEFT_F32: memcpy(at, &f, sizeof f); break;
    case DEFT_F64: memcpy(at, &u, sizeof u); break;
    }
}

deft_status data_fill(df_diag *d, df_trace *t, df_allocator *a, uint64_t seed, df_buffer **buffers)
{
    deft_status st = DEFT_OK;
    for (uint32_t k = 0; k < t->n_inputs; k++) buffers[k] = NULL;
    for (uint32_t k = 0; k < t->n_inputs; k++) {
        df_input *const in = &t->inputs[k];
        const deft_dtype dtype = (deft_dtype)t->nodes[in->node].dtype;
        const int64_t size = (int64_t)deft_dtype_size(dtype);
        const int64_t bound = dtype == DEFT_I64 ? index_bound(t, k) : 0;
        int64_t low, bytes;
        if (!df_input_reach(t, k, &low, &bytes))
            TRY(df_fail(d, DEFT_E_RANGE, "input %u: its strides reach too far", k));
        TRY(df_buffer_create(d, a, bytes, &buffers[k]));
        in->data = (char *)buffers[k]->data - low;
        in->bytes = bytes;
        uint64_t state = seed + ((uint64_t)k << 32);
        for (int64_t i = 0; i < bytes; i += size)
            put((char *)buffers[k]->data + i, dtype, next(&state), bound);
    }
done:
    for (uint32_t k = 0; st != DEFT_OK && k < t->n_inputs; k++) df_buffer_drop(&buffers[k]);
    return st;
}

void data_gather(const df_trace *t, uint32_t k, char *out)
{
    const df_input *const in = &t->inputs[k];
    const df_node *const n = &t->nodes[in->node];
    const int64_t *const extent = df_trace_extents(t, in->node);
    const size_t size = deft_dtype_size((deft_dtype)n->dtype);
    int64_t at[DEFT_MAX_RANK] = { 0 };
    for (int64_t left = df_trace_numel(t, in->node); left > 0; left--) {
        int64_t offset = 0;
        for (uint32_t x = 0; x < n->rank; x++) offset += at[x] * in->stride[x];
        memcpy(out, (const char *)in->data + offset * (int64_t)size, size);
        out += size;
        for (uint32_t x = n->rank; x-- > 0 && ++at[x] == extent[x];) at[x] = 0;
    }
}
