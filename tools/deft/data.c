/* SPDX-License-Identifier: Apache-2.0
 *
 * See data.h. What a program wants of an input is found backwards: an op with a domain (a
 * logarithm, an index) wants something of its operand, and what only moves elements, or is positive
 * where its operands are, passes that on to them. It is a preference: what is computed on the way
 * to a logarithm may still leave its domain.
 */
#include "data.h"

#include <string.h>

#include "base/bits.h"
#include "ops/shape.h"

/* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* ---- what is wanted of a node ---- */

typedef struct wish {
    int64_t bound; /* an index: at least 0, below this; 0: none */
    bool positive; /* above 0 */
    bool unit;     /* within [-1, 1] */
} wish;

static void join(wish *to, const wish *more)
{
    if (more->bound && (!to->bound || more->bound < to->bound)) to->bound = more->bound;
    to->positive |= more->positive;
    to->unit |= more->unit;
}

/* What node k itself wants of operand i. */
static wish own_wish(const df_trace *t, uint32_t k, uint32_t i)
{
    const df_node *const n = &t->nodes[k];
    wish w = { 0 };
    if (df_op_takes_indices((df_op)n->op) && i == 1)
        w.bound = df_trace_extents(t, n->src[0].i)[n->attr];
    else if (n->op == DF_OP_log || n->op == DF_OP_log2 || n->op == DF_OP_log10 ||
             n->op == DF_OP_sqrt || n->op == DF_OP_rsqrt)
        w.positive = true;
    else if (n->op == DF_OP_pow && i == 0)
        w.positive = true;
    else if (n->op == DF_OP_asin || n->op == DF_OP_acos || n->op == DF_OP_log1p)
        w.unit = true;
    return w;
}

/* Whether elements of operand i are elements of the result of n. */
static bool moves(const df_node *n, uint32_t i)
{
    static const df_op all[] = { DF_OP_cast, DF_OP_minimum, DF_OP_maximum,
                                 DF_OP_min,  DF_OP_max,     DF_OP_update };
    static const df_op first[] = { DF_OP_take, DF_OP_gather, DF_OP_carry,
                                   DF_OP_each, DF_OP_stack,  DF_OP_final };
    if (df_op_infos[n->op].cls == DF_CLASS_view) return true;
    if (n->op == DF_OP_where || n->op == DF_OP_cond) return i > 0;
    if (n->op == DF_OP_next) return i < 2;
    for (size_t k = 0; k < DF_LEN(first); k++)
        if (n->op == first[k]) return i == 0;
    for (size_t k = 0; k < DF_LEN(all); k++)
        if (n->op == all[k]) return true;
    return false;
}

/* Whether the result of an op is positive when its operands are. */
static bool stays_positive(uint32_t op)
{
    static const df_op all[] = { DF_OP_add,    DF_OP_mul,    DF_OP_div,         DF_OP_sum,
                                 DF_OP_prod,   DF_OP_hypot,  DF_OP_relu,        DF_OP_tanh,
                                 DF_OP_expm1,  DF_OP_cumsum, DF_OP_scatter_add, DF_OP_index_add,
                                 DF_OP_matmul, DF_OP_powi,   DF_OP_sign,        DF_OP_copysign };
    for (size_t k = 0; k < DF_LEN(all); k++)
        if (op == (uint32_t)all[k]) return true;
    return false;
}

static void pass_on(const df_trace *t, uint32_t k, wish *wishes)
{
    const df_node *const n = &t->nodes[k];
    for (uint32_t i = 0; i < n->n_src; i++) {
        wish w = own_wish(t, k, i);
        if (moves(n, i)) join(&w, &wishes[k]);
        if (stays_positive(n->op)) w.positive |= wishes[k].positive;
        join(&wishes[n->src[i].i], &w);
    }
    /* A state is next what is computed for it. */
    if (n->op == DF_OP_next) join(&wishes[n->src[1].i], &wishes[n->src[0].i]);
}

/* One for each node. In a loop a wish comes from a state, which stands before what it is next:
 * what comes through n loops takes n rounds; more than two are not worth it. */
static void find_wishes(const df_trace *t, wish *wishes)
{
    enum { ROUNDS = 3 };
    for (int round = 0; round < ROUNDS; round++)
        for (uint32_t k = t->n_nodes; k-- > 0;) pass_on(t, k, wishes);
}

/* ---- values ---- */

/* Floats in [low, high), integers in [least, most]. */
typedef struct range {
    double low, high;
    int64_t least, most;
} range;

/* The greatest value of an integer dtype that is drawn. */
static int64_t most_of(deft_dtype dtype)
{
    const uint64_t greatest = df_int_greatest(dtype);
    return greatest < INT64_MAX ? (int64_t)greatest : INT64_MAX;
}

static range range_for(deft_dtype dtype, const wish *w)
{
    range r = { -4, 4, -9, 9 };
    if (df_is_unsigned(dtype)) r = (range){ .least = 0, .most = most_of(dtype) };
    if (dtype == DEFT_BOOL) return (range){ .least = 0, .most = 1 };
    if (w->unit) {
        r.low = -1, r.high = 1;
        r.least = r.least < -1 ? -1 : r.least, r.most = 1;
    }
    if (w->positive) r.low = 0x1p-4, r.least = 1;
    if (w->bound) {
        const int64_t fits = df_is_int(dtype) ? most_of(dtype) : INT64_MAX;
        r.least = 0, r.most = w->bound - 1 < fits ? w->bound - 1 : fits;
    }
    return r;
}

static void put(char *at, deft_dtype dtype, uint64_t x, const range *r)
{
    const double g = (double)(x >> 11) * 0x1p-53 * (r->high - r->low) + r->low;
    const float f = (float)g;
    const uint16_t half = df_is_half(dtype) ? df_half_of_f64(dtype, g) : 0;
    const int64_t wide = (int64_t)(x % ((uint64_t)(r->most - r->least) + 1)) + r->least;
    if (dtype == DEFT_F32)
        memcpy(at, &f, sizeof f);
    else if (dtype == DEFT_F64)
        memcpy(at, &g, sizeof g);
    else if (df_is_half(dtype))
        memcpy(at, &half, sizeof half);
    else
        df_bits_store(at, (uint64_t)wide, df_bytes_of(dtype));
}

/* Values for all bytes that input k spans, gaps as well. */
static void generate(const df_trace *t, uint32_t k, uint64_t seed, const wish *w, df_buffer *b)
{
    const deft_dtype dtype = (deft_dtype)t->nodes[t->inputs[k].node].dtype;
    const int64_t size = (int64_t)deft_dtype_size(dtype);
    const range r = range_for(dtype, w);
    uint64_t state = seed + ((uint64_t)k << 32);
    for (int64_t i = 0; i < b->bytes; i += size) put((char *)b->data + i, dtype, next(&state), &r);
}

deft_status data_fill(df_diag *d, const df_trace *program, df_trace *t, df_allocator *a,
                      const data_source *from, df_buffer **buffers)
{
    deft_status st = DEFT_OK;
    const size_t bytes = program->n_nodes * sizeof(wish);
    wish *const wishes = bytes ? df_mem_zalloc(&df_mem_system, bytes) : NULL;
    for (uint32_t k = 0; k < t->n_inputs; k++) buffers[k] = NULL;
    if (bytes && !wishes) TRY(df_fail_mem(d, "inputs", bytes));
    find_wishes(program, wishes);
    for (uint32_t k = 0; k < t->n_inputs; k++) {
        df_input *const in = &t->inputs[k];
        int64_t low, span;
        if (!df_input_reach(t, k, &low, &span))
            TRY(df_fail(d, DEFT_E_RANGE, "input %u: its strides reach too far", k));
        TRY(df_buffer_create(d, a, span, &buffers[k]));
        in->data = (char *)buffers[k]->data - low;
        in->bytes = span;
        generate(t, k, from->seed, &wishes[program->inputs[k].node], buffers[k]);
        if (from->input && from->input[k]) df_input_scatter(t, k, from->input[k]);
    }
done:
    df_mem_free(&df_mem_system, wishes, bytes);
    for (uint32_t k = 0; st != DEFT_OK && k < t->n_inputs; k++) df_buffer_drop(&buffers[k]);
    return st;
}
