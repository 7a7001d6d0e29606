/* SPDX-License-Identifier: Apache-2.0
 *
 * See random_trace.h. A pool of nodes grows by ops over members of it; a record that the builder
 * refuses is left out and another one tried.
 */
#include "random_trace.h"

#include "ops/shape.h"
#include "trace/control.h"

enum { MOST_INPUTS = 24, MOST_NESTING = 3, MOST_NUMEL = 400, POOL = 4096 };

typedef struct generator {
    uint64_t state;
    df_builder b;
    df_diag d;
    uint32_t pool[POOL]; /* nodes that ops may read here */
    uint32_t n;
    bool is_taken[4 * MOST_INPUTS]; /* per input: an output goes into or rebinds it */
} generator;

/* splitmix64 */
static uint64_t draw(generator *g)
{
    uint64_t z = g->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint32_t pick(generator *g, uint32_t n)
{
    return (uint32_t)(draw(g) % n);
}

static const df_node *node(const generator *g, uint32_t k)
{
    return &g->b.t->nodes[k];
}

static df_shape shape_of(const generator *g, uint32_t k)
{
    df_shape s = { .rank = node(g, k)->rank };
    for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = df_trace_extents(g->b.t, k)[i];
    return s;
}

/* A node of the pool; of that dtype, when one is soon found. */
static uint32_t any(generator *g, int dtype)
{
    uint32_t k = 0;
    for (int i = 0; i < 12; i++) {
        k = g->pool[pick(g, g->n)];
        if (dtype < 0 || node(g, k)->dtype == dtype) break;
    }
    return k;
}

static bool put(generator *g, df_ref r)
{
    if (g->b.st != DEFT_OK && g->b.st != DEFT_E_MEMORY) g->b.st = DEFT_OK; /* refused */
    if (r.i == DF_NONE) return false;
    if (g->n < POOL) g->pool[g->n++] = r.i;
    return true;
}

static df_ref op(generator *g, df_op o, deft_dtype t, uint32_t attr, const uint32_t *src,
                 const int64_t *args, uint32_t n_args, const df_shape *s)
{
    df_ref refs[3];
    for (uint32_t i = 0; i < df_op_infos[o].n_src; i++) refs[i] = (df_ref){ src[i] };
    return df_build_op(&g->b, o, t, attr, refs, df_op_infos[o].n_src, args, n_args, s);
}

#define SRC(...) ((const uint32_t[]){ __VA_ARGS__ })

/* ---- leaves ---- */

static df_shape random_shape(generator *g)
{
    static const int64_t extents[] = { 1, 2, 3, 4, 5, 3, 4, 8 };
    df_shape s = { .rank = pick(g, 4) };
    for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = extents[pick(g, DF_LEN(extents))];
    return s;
}

static df_ref input(generator *g, deft_dtype t, const df_shape *s)
{
    int64_t strides[DEFT_MAX_RANK], step = 1;
    const uint32_t gap = pick(g, 6);
    for (uint32_t i = s->rank; i-- > 0;) {
        strides[i] = gap == 1 && pick(g, 2) ? -step : step;
        step *= s->dim[i] + (gap == 2);
    }
    const df_ref r = df_build_input(&g->b, t, s, gap == 1 || gap == 2 ? strides : NULL);
    static const uint32_t flags[] = { 0, 0, DF_INPUT_WRAPPED, DF_INPUT_SOLE, DF_INPUT_ALIGNED };
    if (g->b.st == DEFT_OK)
        g->b.t->inputs[g->b.t->n_inputs - 1].flags |= flags[pick(g, DF_LEN(flags))];
    return r;
}

static void leaf(generator *g)
{
    const df_shape s = random_shape(g);
    const deft_dtype t = pick(g, 2) ? DEFT_F32 : (deft_dtype)pick(g, DF_N_RECORDED);
    const uint32_t axis = s.rank ? pick(g, s.rank) : 0;
    static const int64_t singles[] = { 0, 0x3f800000, 0xbfc00000, 0x7f800000, 0x7fc00001 };
    static const int64_t doubles[] = { 0, 0x3ff8000000000000, INT64_MIN, 0x7ff8000000000001 };
    static const int64_t halves[] = { 0, 0x3c00, 0xbe00, 0x7c00, 0x7f81, 1, 0x8000 };
    const int64_t bits = df_is_half(t)   ? halves[pick(g, DF_LEN(halves))]
                         : t == DEFT_F32 ? singles[pick(g, DF_LEN(singles))]
                         : t == DEFT_F64 ? doubles[pick(g, DF_LEN(doubles))]
                                         : (int64_t)pick(g, 2);
    const int64_t seed[] = { (int64_t)draw(g), pick(g, 9) };
    switch (g->b.t->n_inputs < MOST_INPUTS ? pick(g, 7) : pick(g, 5)) {
    case 0: put(g, op(g, DF_OP_num, t, 0, NULL, &bits, 1, &s)); break;
    case 1: {
        const bool real = df_is_float(t);
        const uint32_t attr = real ? (uint32_t)singles[pick(g, 3)] : pick(g, 2);
        put(g, op(g, DF_OP_cst, t, attr, NULL, NULL, 0, &s));
        break;
    }
    case 2: put(g, op(g, DF_OP_iota, DEFT_I64, axis, NULL, NULL, 0, &s)); break;
    case 3: put(g, op(g, DF_OP_random, DEFT_I64, pick(g, 4), NULL, seed, 2, &s)); break;
    case 4: put(g, op(g, DF_OP_num, DEFT_F32, 0, NULL, &bits, 1, NULL)); break;
    default: put(g, input(g, t, &s)); break;
    }
}

/* ---- ops ---- */

static void view(generator *g, df_op o, uint32_t a)
{
    const df_shape x = shape_of(g, a);
    const deft_dtype t = (deft_dtype)node(g, a)->dtype;
    df_shape s = x;
    int64_t args[2 * DEFT_MAX_RANK] = { 0 };
    uint32_t attr = 0, n_args = 0;
    if (o == DF_OP_slice) {
        n_args = 2 * x.rank;
        for (uint32_t i = 0; i < x.rank; i++) {
            const int64_t n = x.dim[i] ? 1 + pick(g, (uint32_t)x.dim[i]) : 0;
            const bool back = pick(g, 3) == 0;
            const int64_t room = x.dim[i] - n;
            const int64_t start = room > 0 ? pick(g, (uint32_t)room + 1) : 0;
            args[2 * i] = back && n ? start + n - 1 : start;
            args[2 * i + 1] = back ? -1 : 1;
            s.dim[i] = n;
        }
    } else if (o == DF_OP_permute) {
        uint32_t axes[DEFT_MAX_RANK];
        for (uint32_t i = 0; i < x.rank; i++) axes[i] = i;
        for (uint32_t i = x.rank; i-- > 1;) {
            const uint32_t j = pick(g, i + 1), keep = axes[i];
            axes[i] = axes[j];
            axes[j] = keep;
        }
        for (uint32_t i = 0; i < x.rank; i++) attr |= axes[i] << 4 * i;
        for (uint32_t i = 0; i < x.rank; i++) s.dim[i] = x.dim[axes[i]];
    } else if (o == DF_OP_expand) {
        if (x.rank < 4) {
            for (uint32_t i = 0; i < x.rank; i++) s.dim[i + 1] = x.dim[i] == 1 ? 3 : x.dim[i];
            s.dim[0] = 2;
            s.rank++;
        }
    } else if (o == DF_OP_reshape) {
        s = (df_shape){ .rank = 1, .dim = { 1 } };
        for (uint32_t i = 0; i < x.rank; i++) s.dim[0] *= x.dim[i];
    } else if (o == DF_OP_diagonal) {
        attr = 1;
        n_args = 1;
        args[0] = (int64_t)pick(g, 3) - 1;
        for (uint32_t i = 2; i < x.rank; i++) s.dim[i - 2] = x.dim[i];
        if (x.rank >= 2) {
            const int64_t rows = x.dim[1] + (args[0] < 0 ? args[0] : 0);
            const int64_t columns = x.dim[0] - (args[0] > 0 ? args[0] : 0);
            s.rank = x.rank - 1;
            s.dim[s.rank - 1] = rows < columns ? rows : columns;
        }
    } else {
        attr = 1u << pick(g, x.rank + 1);
    }
    const bool given = df_shape_takes_extents(o);
    put(g, op(g, o, t, attr, &a, args, n_args, given ? &s : NULL));
}

static void indexed(generator *g, df_op o, uint32_t a)
{
    df_shape s = shape_of(g, a);
    if (s.rank == 0 || g->b.t->n_inputs >= 2 * MOST_INPUTS) return;
    const uint32_t axis = pick(g, s.rank);
    if (s.dim[axis] == 0) return;
    if (o == DF_OP_take)
        s = (df_shape){ .rank = 1, .dim = { 1 + pick(g, 4) } };
    else
        s.dim[axis] = 1 + pick(g, 4);
    /* An input of its own, so that indices are in range; nothing else reads it. */
    const df_ref index = df_build_input(&g->b, DEFT_I64, &s, NULL);
    put(g, op(g, o, (deft_dtype)node(g, a)->dtype, axis, SRC(a, index.i), NULL, 0, NULL));
}

/* Into a, which has an axis that is not empty; the values are of the pool where one fits. */
static void scattered(generator *g, df_op o, uint32_t a)
{
    const df_shape x = shape_of(g, a);
    const deft_dtype t = (deft_dtype)node(g, a)->dtype;
    if (x.rank == 0 || x.rank == DEFT_MAX_RANK || g->b.t->n_inputs >= 2 * MOST_INPUTS) return;
    const uint32_t axis = pick(g, x.rank), more = df_op_scatters_slices(o) ? pick(g, 3) : 1;
    df_shape s = { .rank = x.rank - 1 + more }, at = { .rank = more };
    if (x.dim[axis] == 0 || (t == DEFT_BOOL && df_scatter_how_of(o) != DF_SCATTER_SET)) return;
    for (uint32_t i = 0; i < more; i++) at.dim[i] = 1 + pick(g, 6);
    for (uint32_t i = 0; i < s.rank; i++)
        s.dim[i] = i < axis ? x.dim[i] : i < axis + more ? at.dim[i - axis] : x.dim[i + 1 - more];
    if (!df_op_scatters_slices(o)) {
        for (uint32_t i = 0; i < s.rank; i++)
            if (i != axis && s.dim[i] > 1 && pick(g, 3) == 0) s.dim[i]--;
        at = s;
    }
    const df_ref index = df_build_input(&g->b, DEFT_I64, &at, NULL);
    uint32_t value = any(g, t);
    const df_shape v = shape_of(g, value);
    if (node(g, value)->dtype != t || !df_shape_equal(&s, &v))
        value = pick(g, 3) ? input(g, t, &s).i : op(g, DF_OP_cst, t, 0, NULL, NULL, 0, &s).i;
    if (value == DF_NONE) return;
    put(g, op(g, o, t, axis, SRC(a, index.i, value), NULL, 0, NULL));
}

/* The integer dtype of that size with the other signedness; t when it is no integer. */
static deft_dtype other_sign(deft_dtype t)
{
    for (int k = 0; k < DF_N_RECORDED; k++)
        if (df_is_int(t) && df_is_int((deft_dtype)k) && k != (int)t &&
            df_bits_of((deft_dtype)k) == df_bits_of(t))
            return (deft_dtype)k;
    return t;
}

static void product(generator *g, uint32_t a)
{
    df_shape s = shape_of(g, a);
    if (s.rank < 2 || g->b.t->n_inputs >= 2 * MOST_INPUTS) return;
    s.dim[s.rank - 2] = s.dim[s.rank - 1];
    s.dim[s.rank - 1] = 1 + pick(g, 4);
    const deft_dtype t = (deft_dtype)node(g, a)->dtype;
    if (t != DEFT_F32 && t != DEFT_F64) return;
    const df_ref b = input(g, t, &s);
    put(g, op(g, DF_OP_matmul, t, 0, SRC(a, b.i), NULL, 0, NULL));
}

static void update(generator *g, uint32_t a)
{
    const uint32_t n = g->n;
    view(g, DF_OP_slice, a);
    if (g->n == n) return;
    const uint32_t place = g->pool[g->n - 1];
    const df_shape s = shape_of(g, place);
    const deft_dtype t = (deft_dtype)node(g, a)->dtype;
    uint32_t value = any(g, t);
    const df_shape v = shape_of(g, value);
    if (node(g, value)->dtype != t || !df_shape_equal(&s, &v)) value = place;
    put(g, op(g, DF_OP_update, t, 0, SRC(a, value, place), NULL, 0, NULL));
}

/* A part of a with numbers around it, of a's extents, and often a value of the pool added to it: a
 * kernel then reads a where it exists, and goes over another shape at the same time. */
static void surrounded(generator *g, uint32_t a)
{
    const df_shape x = shape_of(g, a);
    const deft_dtype t = (deft_dtype)node(g, a)->dtype;
    const int64_t bits = 0;
    df_shape s = x;
    int64_t args[2][2 * DEFT_MAX_RANK] = { { 0 } };
    if (x.rank == 0 || x.rank > 4 || t == DEFT_BOOL) return;
    const uint32_t axis = pick(g, x.rank), n = x.rank;
    s.dim[axis] += 1 + pick(g, 3);
    for (int i = 0; i < 2; i++) { /* start and step: the place of a, and the part that is taken */
        for (uint32_t k = 0; k < n; k++) args[i][2 * k + 1] = 1;
        args[i][2 * axis] = pick(g, (uint32_t)(s.dim[axis] - x.dim[axis]) + 1);
    }
    const uint32_t number = op(g, DF_OP_num, t, 0, NULL, &bits, 1, NULL).i;
    const uint32_t whole = op(g, DF_OP_expand, t, 0, &number, NULL, 0, &s).i;
    const uint32_t place = op(g, DF_OP_slice, t, 0, &whole, args[0], 2 * n, &x).i;
    const uint32_t all = op(g, DF_OP_update, t, 0, SRC(whole, a, place), NULL, 0, NULL).i;
    const uint32_t part = op(g, DF_OP_slice, t, 0, &all, args[1], 2 * n, &x).i;
    if (!put(g, (df_ref){ part })) return;
    for (int i = 0; i < 10; i++) {
        const bool is_scan = pick(g, 4) == 0;
        const df_ref scan =
            is_scan ? op(g, DF_OP_cumsum, t, pick(g, n), &a, NULL, 0, NULL) : DF_NO_REF;
        const uint32_t k = put(g, scan) ? scan.i : any(g, t);
        const df_shape y = shape_of(g, k);
        if (node(g, k)->dtype != t || !df_shape_equal(&x, &y)) continue;
        put(g, op(g, DF_OP_add, t, 0, SRC(part, k), NULL, 0, NULL));
        return;
    }
}

static bool is_small(const generator *g, uint32_t k)
{
    return df_trace_numel(g->b.t, k) <= MOST_NUMEL;
}

/* Something of the table over the pool, loops aside. */
static void one_op(generator *g)
{
    const df_op o = (df_op)pick(g, DF_N_OPS);
    const df_op_info *const info = &df_op_infos[o];
    const uint32_t a = any(g, pick(g, 2) ? DEFT_F32 : -1);
    const deft_dtype t = (deft_dtype)node(g, a)->dtype;
    const df_shape x = shape_of(g, a);
    uint32_t src[3] = { a, any(g, t), any(g, t) }, attr = 0;
    deft_dtype out = df_dtype_result(o, t);
    df_shape found = { .rank = 1, .dim = { 1 + pick(g, 6) } };
    if (!is_small(g, a)) return;
    if (pick(g, 16) == 0) {
        surrounded(g, a);
        return;
    }
    switch ((df_op_class)info->cls) {
    case DF_CLASS_leaf:
        if (o != DF_OP_count) {
            leaf(g);
            return;
        }
        found.rank = 0;
        put(g, op(g, o, DEFT_F32, x.rank ? 1u << pick(g, x.rank) : 0, src, NULL, 0, &found));
        return;
    case DF_CLASS_control:
        if (o != DF_OP_cond) return;
        src[0] = any(g, DEFT_BOOL);
        src[1] = a;
        break;
    case DF_CLASS_ternary:
        if (o == DF_OP_where) {
            src[0] = any(g, DEFT_BOOL);
            src[1] = a;
        }
        out = t;
        break;
    case DF_CLASS_view: view(g, o, a); return;
    case DF_CLASS_index: indexed(g, o, a); return;
    case DF_CLASS_contract: product(g, a); return;
    case DF_CLASS_update: update(g, a); return;
    case DF_CLASS_reduce:
        attr = pick(g, 1u << x.rank) | (pick(g, 3) ? 0 : DF_REDUCE_KEEPDIMS);
        break;
    case DF_CLASS_scan: attr = x.rank ? pick(g, x.rank) : 0; break;
    case DF_CLASS_routine:
        /* A call needs a function of the program: opaque_programs.c. */
        if (o == DF_OP_pass || o == DF_OP_call || o == DF_OP_result) return;
        if (df_op_writes_over(o)) {
            scattered(g, o, a);
            return;
        }
        attr = o == DF_OP_compress ? 0 : pick(g, 2);
        if (o == DF_OP_compress && pick(g, 2)) src[1] = a;
        break;
    case DF_CLASS_unary:
        if (o == DF_OP_cast) out = (deft_dtype)pick(g, DF_N_RECORDED);
        /* Between integers: the bits of a NaN that was computed are unspecified. */
        if (o == DF_OP_bitcast) out = other_sign(t);
        if (o == DF_OP_powi) attr = pick(g, 5);
        if (o == DF_OP_polygamma) attr = 1 + pick(g, 3);
        break;
    case DF_CLASS_binary: break;
    }
    if (o == DF_OP_cond) out = t;
    if (o == DF_OP_topk && x.rank) {
        found = x;
        found.dim[x.rank - 1] = pick(g, (uint32_t)x.dim[x.rank - 1] + 1);
    }
    const int64_t rest = o == DF_OP_topk && x.rank ? x.dim[x.rank - 1] - found.dim[x.rank - 1] : 0;
    const int64_t first = pick(g, (uint32_t)rest + 1);
    put(g, op(g, o, out, attr, src, &first, o == DF_OP_topk ? 1 : 0,
              o == DF_OP_which || o == DF_OP_topk || o == DF_OP_compress ? &found : NULL));
}

/* ---- loops ---- */

static void grow(generator *g, uint32_t n_ops, uint32_t depth);

/* A body node of state's dtype and extents. */
static uint32_t advanced(generator *g, uint32_t state)
{
    const deft_dtype t = (deft_dtype)node(g, state)->dtype;
    const df_shape s = shape_of(g, state);
    for (int i = 0; i < 10; i++) {
        const uint32_t k = any(g, t);
        const df_shape x = shape_of(g, k);
        if (node(g, k)->dtype != t || k == state) continue;
        if (df_shape_equal(&x, &s)) return k;
        const df_ref r = op(g, DF_OP_minimum, t, 0, SRC(state, k), NULL, 0, NULL);
        if (!put(g, r)) continue;
        const df_shape y = shape_of(g, r.i);
        if (df_shape_equal(&y, &s)) return r.i;
    }
    return state;
}

/* parent: the loop it is part of, or DF_NONE. */
static void loop(generator *g, uint32_t parent, uint32_t depth)
{
    const uint32_t outside = g->n;
    int64_t most = 1 + pick(g, 4);
    const uint32_t whole = any(g, -1), init = any(g, DEFT_F32);
    const bool tested = pick(g, 3) == 0;
    if (node(g, whole)->rank && df_trace_extents(g->b.t, whole)[0] > 0 && pick(g, 2))
        most = df_trace_extents(g->b.t, whole)[0];
    if (node(g, init)->dtype == DEFT_BOOL || !is_small(g, init)) return;
    const uint32_t before =
        parent == DF_NONE ? op(g, DF_OP_cst, DEFT_I64, 0, NULL, NULL, 0, NULL).i : parent;
    const uint32_t head = op(g, DF_OP_loop, DEFT_I64, 0, &before, &most, 1, NULL).i;
    const deft_dtype t = (deft_dtype)node(g, init)->dtype;
    const uint32_t state = op(g, DF_OP_carry, t, 0, SRC(init, head), NULL, 0, NULL).i;
    put(g, (df_ref){ head });
    put(g, (df_ref){ state });
    if (node(g, whole)->rank && df_trace_extents(g->b.t, whole)[0] == most)
        put(g, op(g, DF_OP_each, (deft_dtype)node(g, whole)->dtype, 0, SRC(whole, head), NULL, 0,
                  NULL));
    grow(g, 2 + pick(g, 5), depth + 1);
    if (depth + 1 < MOST_NESTING && pick(g, 4) == 0) loop(g, head, depth + 1);
    uint32_t end = head;
    if (tested) {
        const int64_t bound = pick(g, 4);
        const uint32_t n = op(g, DF_OP_num, DEFT_I64, 0, NULL, &bound, 1, NULL).i;
        const uint32_t test = op(g, DF_OP_lt, DEFT_BOOL, 0, SRC(head, n), NULL, 0, NULL).i;
        end = op(g, DF_OP_proceed, DEFT_BOOL, 0, SRC(test, end), NULL, 0, NULL).i;
    }
    const uint32_t value = advanced(g, state), row = any(g, -1);
    const uint32_t next = end = op(g, DF_OP_next, t, 0, SRC(state, value, end), NULL, 0, NULL).i;
    df_ref rows = DF_NO_REF;
    if (!tested && node(g, row)->rank < 4) {
        df_shape s = { .rank = node(g, row)->rank + 1u, .dim = { most } };
        for (uint32_t i = 1; i < s.rank; i++) s.dim[i] = df_trace_extents(g->b.t, row)[i - 1];
        const deft_dtype of = (deft_dtype)node(g, row)->dtype;
        rows = op(g, DF_OP_stack, of, 0, SRC(row, end), NULL, 0, &s);
        if (rows.i != DF_NONE) end = rows.i;
    }
    g->n = outside;
    put(g, op(g, DF_OP_final, t, 0, SRC(next, end), NULL, 0, NULL));
    if (rows.i != DF_NONE)
        put(g, op(g, DF_OP_final, (deft_dtype)node(g, rows.i)->dtype, 0, SRC(rows.i, end), NULL, 0,
                  NULL));
}

static void grow(generator *g, uint32_t n_ops, uint32_t depth)
{
    const uint32_t from = g->b.t->n_nodes;
    for (int tries = 0; g->b.t->n_nodes - from < n_ops && tries < 4000; tries++) {
        if (depth == 0 && pick(g, 60) == 0)
            loop(g, DF_NONE, 0);
        else
            one_op(g);
    }
}

/* ---- outputs ---- */

static void root(generator *g, uint32_t k)
{
    uint32_t input = DF_NONE;
    const df_shape s = shape_of(g, k);
    for (uint32_t i = 0; i < g->b.t->n_inputs && input == DF_NONE; i++) {
        const df_shape x = shape_of(g, g->b.t->inputs[i].node);
        if (g->is_taken[i] || node(g, g->b.t->inputs[i].node)->dtype != node(g, k)->dtype) continue;
        if (df_shape_equal(&x, &s) && pick(g, 3) == 0) input = i;
    }
    const uint32_t flags = input == DF_NONE ? 0 : g->b.t->inputs[input].flags;
    const bool into = (flags & DF_INPUT_WRAPPED) != 0, donor = (flags & DF_INPUT_SOLE) != 0;
    if (into || donor) g->is_taken[input] = true;
    df_build_root(&g->b, (df_ref){ k }, into ? DF_ROOT_INTO : DF_ROOT_NEW, into ? input : DF_NONE,
                  donor ? input : DF_NONE);
}

/* A product of f32 that is rounded down. */
static uint32_t seed_of(generator *g)
{
    const df_shape s = { .rank = 2, .dim = { 4, 3 } };
    const uint32_t a = input(g, DEFT_F32, &s).i, b = input(g, DEFT_F32, &s).i;
    const df_ref product = op(g, DF_OP_mul, DEFT_F32, 0, SRC(a, b), NULL, 0, NULL);
    const df_ref floor = op(g, DF_OP_floor, DEFT_F32, 0, &product.i, NULL, 0, NULL);
    put(g, floor);
    return floor.i;
}

df_trace *random_trace(uint64_t seed, uint32_t n_ops, bool plant, df_arena *arena)
{
    generator *const g = df_arena_new(arena, generator, 1);
    if (!g || df_build_init(&g->b, arena, &g->d) != DEFT_OK) return NULL;
    g->state = seed * 2654435761u + n_ops;
    const df_shape s = { .rank = 2, .dim = { 4, 3 } };
    put(g, input(g, DEFT_F32, &s));
    put(g, input(g, DEFT_BOOL, &(df_shape){ .rank = 0 }));
    grow(g, n_ops / 2, 0);
    uint32_t planted = plant ? seed_of(g) : DF_NONE;
    grow(g, n_ops - n_ops / 2, 0);
    for (uint32_t i = 1 + pick(g, 4); i-- > 0;) root(g, any(g, -1));
    /* Through some more ops, so that no output is the seed itself. */
    for (int i = 0; plant && i < 3; i++) {
        const uint32_t other = any(g, DEFT_F32);
        const df_ref r = op(g, DF_OP_add, DEFT_F32, 0, SRC(planted, planted), NULL, 0, NULL);
        const df_ref more = op(g, DF_OP_where, DEFT_F32, 0, SRC(1, r.i, other), NULL, 0, NULL);
        (void)put(g, more);
        planted = r.i;
    }
    if (plant) df_build_root(&g->b, (df_ref){ planted }, DF_ROOT_NEW, DF_NONE, DF_NONE);
    return g->b.st == DEFT_OK && df_trace_verify(&g->d, g->b.t) == DEFT_OK ? g->b.t : NULL;
}
