/* SPDX-License-Identifier: Apache-2.0
 *
 * A trace evaluated the plain way: one node after the other, each stored whole, every index
 * computed from the definition of the op. It shares nothing with the fuser but the bodies of
 * elementwise ops, which it runs as kernels of one axis. Reductions follow base/limits.h literally.
 *
 * Why this file is long: the meaning of every operator, in one place.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/limits.h"
#include "support/faces.h"
#include "support/int_ref.h"
#include "runtime/interp/interp.h"
#include "support/fuse_check.h"
#include "support/half_ref.h"
#include "trace/control.h"

typedef struct tape {
    df_emit emit;
    df_ins ins[4096];
    uint32_t n;
} tape;

static uint32_t tape_ins(df_emit *e, df_kop op, deft_dtype t, uint32_t a, uint32_t b, uint32_t c,
                         uint64_t imm)
{
    tape *const w = (tape *)e;
    const uint32_t n = df_kop_infos[op].n_src;
    w->ins[w->n] = (df_ins){ .op = (uint8_t)op,
                             .dtype = (uint8_t)t,
                             .level = DF_LEVEL_ELEM,
                             .src = { n > 0 ? a : 0, n > 1 ? b : 0, n > 2 ? c : 0 },
                             .imm = imm };
    return w->n++;
}

/* Runs instructions over n elements: access 0 .. n_in - 1 are loads, the last is the store. */
static void run_tape(tape *w, uint32_t n_access, const df_access *access, char **ptr, int64_t n)
{
    df_kernel k = { .mode = DF_MODE_MAP, .n_axes = 1, .n_stages = 1, .role = { DF_AXIS_INNER } };
    int64_t stride[4] = { 1, 1, 1, 1 }, base[4] = { 0 }, fault[3] = { 0 };
    k.n_access = n_access;
    k.access = access;
    k.n_ins = w->n;
    k.ins = w->ins;
    void *work = aligned_alloc(64, (df_interp_work_size(&k) + 127) & ~(size_t)63);
    const df_kargs args = {
        .ptr = ptr, .stride = stride, .base = base, .extent = &n, .fault = fault
    };
    if (n > 0) df_interp_main(&k, work, &args, 0, 1, 0, n);
    free(work);
}

typedef struct naive {
    const df_trace *t;
    char **value; /* per node, contiguous */
    uint8_t *live;
    df_control c;
} naive;

static size_t size_of(const naive *x, uint32_t n)
{
    return deft_dtype_size((deft_dtype)x->t->nodes[n].dtype);
}

static void unravel(const naive *x, uint32_t n, int64_t at, int64_t *index)
{
    const int64_t *const e = df_trace_extents(x->t, n);
    for (uint32_t j = x->t->nodes[n].rank; j-- > 0;) {
        index[j] = at % e[j];
        at /= e[j];
    }
}

static int64_t ravel(const naive *x, uint32_t n, const int64_t *index)
{
    const int64_t *const e = df_trace_extents(x->t, n);
    int64_t at = 0;
    for (uint32_t j = 0; j < x->t->nodes[n].rank; j++) at = at * e[j] + index[j];
    return at;
}

/* Index into operand src of an element of n under broadcasting. */
static int64_t broadcast(const naive *x, uint32_t n, uint32_t src, const int64_t *index)
{
    const int64_t *const e = df_trace_extents(x->t, src);
    const uint32_t rank = x->t->nodes[src].rank, lead = x->t->nodes[n].rank - rank;
    int64_t at[DEFT_MAX_RANK];
    for (uint32_t j = 0; j < rank; j++) at[j] = e[j] == 1 ? 0 : index[j + lead];
    return ravel(x, src, at);
}

/* The source element of one element of a view. */
static int64_t behind_view(const naive *x, uint32_t n, int64_t element)
{
    const df_node *const w = &x->t->nodes[n];
    const uint32_t src = w->src[0].i, rank = x->t->nodes[src].rank;
    const int64_t *const arg = x->t->args + w->arg;
    int64_t index[DEFT_MAX_RANK], at[DEFT_MAX_RANK] = { 0 };
    uint32_t k = 0;
    unravel(x, n, element, index);
    switch (w->op) {
    case DF_OP_reshape: return element;
    case DF_OP_expand: return broadcast(x, n, src, index);
    case DF_OP_slice:
        for (uint32_t j = 0; j < rank; j++) at[j] = arg[2 * j] + arg[2 * j + 1] * index[j];
        break;
    case DF_OP_permute:
        for (uint32_t j = 0; j < rank; j++) at[w->attr >> 4 * j & 15] = index[j];
        break;
    case DF_OP_squeeze:
        for (uint32_t j = 0; j < rank; j++) at[j] = w->attr >> j & 1 ? 0 : index[k++];
        break;
    case DF_OP_unsqueeze:
        for (uint32_t j = 0; j < w->rank; j++)
            if (!(w->attr >> j & 1)) at[k++] = index[j];
        break;
    default: { /* diagonal */
        const uint32_t a = w->attr & 15, b = w->attr >> 4 & 15;
        for (uint32_t j = 0; j < rank; j++)
            if (j != a && j != b) at[j] = index[k++];
        at[a] = index[w->rank - 1] + (arg[0] < 0 ? -arg[0] : 0);
        at[b] = index[w->rank - 1] + (arg[0] > 0 ? arg[0] : 0);
    }
    }
    return ravel(x, src, at);
}

static void copy_one(const naive *x, uint32_t n, int64_t to, uint32_t src, int64_t from)
{
    memcpy(x->value[n] + (size_t)to * size_of(x, n), x->value[src] + (size_t)from * size_of(x, n),
           size_of(x, n));
}

static void do_map(const naive *x, uint32_t n)
{
    const df_node *const w = &x->t->nodes[n];
    const int64_t numel = df_trace_numel(x->t, n);
    static tape t; /* the tests run on one thread */
    df_access access[4] = { { 0 } };
    char *ptr[4] = { 0 };
    uint32_t id[3] = { 0 };
    t.emit = (df_emit){ .ins = tape_ins };
    t.n = 0;
    for (uint32_t s = 0; s < w->n_src; s++) {
        const uint32_t src = w->src[s].i;
        const size_t size = size_of(x, src);
        ptr[s] = malloc((size_t)numel * size + 64);
        for (int64_t i = 0; i < numel; i++) {
            int64_t index[DEFT_MAX_RANK];
            unravel(x, n, i, index);
            memcpy(ptr[s] + (size_t)i * size,
                   x->value[src] + (size_t)broadcast(x, n, src, index) * size, size);
        }
        access[s] =
            (df_access){ .kind = DF_ACCESS_LOAD, .dtype = x->t->nodes[src].dtype, .same_as = s };
        access[s].step[0] = DF_STEP_UNIT;
        id[s] = tape_ins(&t.emit, DF_K_load, (deft_dtype)x->t->nodes[src].dtype, 0, 0, 0, s);
    }
    const df_op_info *const o = &df_op_infos[w->op];
    const uint32_t typed = o->cls == DF_CLASS_ternary ? 1 : 0;
    const uint32_t r =
        df_op_emit(&t.emit, (df_op)w->op, (deft_dtype)x->t->nodes[w->src[typed].i].dtype,
                   (deft_dtype)w->dtype, id, w->attr);
    access[w->n_src] =
        (df_access){ .kind = DF_ACCESS_STORE, .dtype = w->dtype, .same_as = w->n_src };
    access[w->n_src].step[0] = DF_STEP_UNIT;
    ptr[w->n_src] = x->value[n];
    tape_ins(&t.emit, DF_K_store, (deft_dtype)w->dtype, r, 0, 0, w->n_src);
    run_tape(&t, w->n_src + 1u, access, ptr, numel);
    for (uint32_t s = 0; s < w->n_src; s++) free(ptr[s]);
}

/* ---- reductions ---- */

typedef union cell {
    float f;
    double d;
    int64_t i;
} cell;

static cell get_cell(const char *p, deft_dtype t, int64_t i)
{
    cell c = { .i = 0 };
    switch (t) {
    CASES_OF_FACES:
        break;
    case DEFT_BOOL:
    INT_REF_CASES:
        c.i = int_ref_get(t, p, (size_t)i);
        break;
    case DEFT_F32: c.f = ((const float *)(const void *)p)[i]; break;
    case DEFT_F64: c.d = ((const double *)(const void *)p)[i]; break;
    case DEFT_F16:
    case DEFT_BF16: c.f = (float)half_value(t, ((const uint16_t *)(const void *)p)[i]); break;
    }
    return c;
}

static void put_cell(char *p, deft_dtype t, int64_t i, cell c)
{
    switch (t) {
    CASES_OF_FACES:
        break;
    case DEFT_BOOL:
    INT_REF_CASES:
        int_ref_put(t, p, (size_t)i, c.i);
        break;
    case DEFT_F32: ((float *)(void *)p)[i] = c.f; break;
    case DEFT_F64: ((double *)(void *)p)[i] = c.d; break;
    case DEFT_F16:
    case DEFT_BF16: ((uint16_t *)(void *)p)[i] = half_bits(t, (double)c.f); break;
    }
}

/* Whether a cell of t holds its f: halves are calculated in f32. */
static bool is_single(deft_dtype t)
{
    return t == DEFT_F32 || half_is(t);
}

static cell join(uint8_t op, deft_dtype t, cell a, cell b)
{
    cell c = a;
    const bool f = is_single(t), d = t == DEFT_F64;
    switch (op) {
    case DF_OP_sum:
    case DF_OP_wrapped_sum:
    case DF_OP_cumsum:
        if (f)
            c.f = a.f + b.f;
        else if (d)
            c.d = a.d + b.d;
        else
            c.i = (int64_t)((uint64_t)a.i + (uint64_t)b.i);
        break;
    case DF_OP_prod:
    case DF_OP_cumprod:
        if (f)
            c.f = a.f * b.f;
        else if (d)
            c.d = a.d * b.d;
        else
            c.i = (int64_t)((uint64_t)a.i * (uint64_t)b.i);
        break;
    case DF_OP_min:
    case DF_OP_cummin:
        if (f)
            c.f = a.f < b.f || a.f != a.f ? a.f : b.f;
        else if (d)
            c.d = a.d < b.d || a.d != a.d ? a.d : b.d;
        else
            c.i = int_ref_less(t, a.i, b.i) ? a.i : b.i;
        break;
    case DF_OP_max:
    case DF_OP_cummax:
        if (f)
            c.f = a.f > b.f || a.f != a.f ? a.f : b.f;
        else if (d)
            c.d = a.d > b.d || a.d != a.d ? a.d : b.d;
        else
            c.i = int_ref_less(t, b.i, a.i) ? a.i : b.i;
        break;
    case DF_OP_any: c.i = a.i | b.i; break;
    default: c.i = a.i & b.i; break; /* all */
    }
    return c;
}

static cell identity(uint8_t op, deft_dtype t)
{
    cell c = { .i = 0 };
    const bool f = is_single(t), d = t == DEFT_F64;
    switch (op) {
    case DF_OP_sum:
    case DF_OP_wrapped_sum:
        if (f) c.f = -0.0f;
        if (d) c.d = -0.0;
        break;
    case DF_OP_prod:
        c.i = 1;
        if (f) c.f = 1;
        if (d) c.d = 1;
        break;
    case DF_OP_min:
    case DF_OP_max:
        c.i = op == DF_OP_min ? INT64_MAX : INT64_MIN;
        if (t == DEFT_U64) c.i = op == DF_OP_min ? -1 : 0;
        if (f) c.f = op == DF_OP_min ? INFINITY : -INFINITY;
        if (d) c.d = op == DF_OP_min ? (double)INFINITY : -(double)INFINITY;
        break;
    default: c.i = op == DF_OP_all;
    }
    return c;
}

static cell fold(uint8_t op, deft_dtype t, const cell *v, int64_t n)
{
    cell stack[DF_TREE_DEPTH];
    uint32_t depth = 0;
    if (n == 0 && (op == DF_OP_sum || op == DF_OP_wrapped_sum)) return (cell){ .i = 0 };
    if (n == 0) return identity(op, t);
    for (int64_t b = 0; b * DF_BLOCK < n; b++) {
        cell acc[DF_LANES];
        for (int j = 0; j < DF_LANES; j++) acc[j] = identity(op, t);
        for (int64_t i = b * DF_BLOCK; i < n && i < (b + 1) * DF_BLOCK; i++)
            acc[i % DF_LANES] = join(op, t, acc[i % DF_LANES], v[i]);
        for (int h = DF_LANES / 2; h > 0; h /= 2)
            for (int j = 0; j < h; j++) acc[j] = join(op, t, acc[j], acc[j + h]);
        stack[depth++] = acc[0];
        for (int64_t k = b + 1; k % 2 == 0; k /= 2, depth--)
            stack[depth - 2] = join(op, t, stack[depth - 2], stack[depth - 1]);
    }
    for (; depth > 1; depth--) stack[depth - 2] = join(op, t, stack[depth - 2], stack[depth - 1]);
    return stack[0];
}

static bool better(uint8_t op, deft_dtype t, cell a, cell b)
{
    if (is_single(t) || t == DEFT_F64) {
        const double x = is_single(t) ? (double)a.f : a.d, y = is_single(t) ? (double)b.f : b.d;
        if (y != y) return false;
        return x != x || (op == DF_OP_argmin ? x < y : x > y);
    }
    return op == DF_OP_argmin ? int_ref_less(t, a.i, b.i) : int_ref_less(t, b.i, a.i);
}

static void do_reduce(const naive *x, uint32_t n)
{
    const df_node *const w = &x->t->nodes[n];
    const uint32_t src = w->src[0].i, rank = x->t->nodes[src].rank;
    const deft_dtype t = (deft_dtype)x->t->nodes[src].dtype;
    const int64_t all = df_trace_numel(x->t, src), out = df_trace_numel(x->t, n);
    cell *const v = malloc(sizeof *v * (size_t)(all + 1));
    for (int64_t o = 0; o < out; o++) {
        int64_t count = 0;
        for (int64_t i = 0; i < all; i++) {
            int64_t index[DEFT_MAX_RANK], kept[DEFT_MAX_RANK];
            uint32_t k = 0;
            unravel(x, src, i, index);
            for (uint32_t j = 0; j < rank; j++)
                if (!(w->attr >> j & 1))
                    kept[k++] = index[j];
                else if (w->attr & DF_REDUCE_KEEPDIMS)
                    kept[k++] = 0;
            if (ravel(x, n, kept) == o) v[count++] = get_cell(x->value[src], t, i);
        }
        if (w->op == DF_OP_argmin || w->op == DF_OP_argmax) {
            int64_t best = 0;
            for (int64_t i = 1; i < count; i++)
                if (better(w->op, t, v[i], v[best])) best = i;
            put_cell(x->value[n], DEFT_I64, o, (cell){ .i = best });
        } else {
            put_cell(x->value[n], t, o, fold(w->op, t, v, count));
        }
    }
    free(v);
}

static void do_scan(const naive *x, uint32_t n)
{
    const df_node *const w = &x->t->nodes[n];
    const deft_dtype t = (deft_dtype)w->dtype;
    for (int64_t i = 0; i < df_trace_numel(x->t, n); i++) {
        int64_t index[DEFT_MAX_RANK];
        unravel(x, n, i, index);
        cell c = get_cell(x->value[w->src[0].i], t, i);
        if (index[w->attr] > 0) {
            index[w->attr]--;
            c = join(w->op, t, get_cell(x->value[n], t, ravel(x, n, index)), c);
        }
        put_cell(x->value[n], t, i, c);
    }
}

/* ---- the rest ---- */

static void do_index(const naive *x, uint32_t n)
{
    const df_node *const w = &x->t->nodes[n];
    const uint32_t a = w->src[0].i, b = w->src[1].i, b_rank = x->t->nodes[b].rank;
    for (int64_t i = 0; i < df_trace_numel(x->t, n); i++) {
        int64_t index[DEFT_MAX_RANK], at[DEFT_MAX_RANK];
        unravel(x, n, i, index);
        int64_t which;
        if (w->op == DF_OP_gather) {
            memcpy(at, index, sizeof at);
            which = i;
        } else {
            for (uint32_t j = 0; j < x->t->nodes[a].rank; j++)
                at[j] = j < w->attr ? index[j] : j > w->attr ? index[j + b_rank - 1] : 0;
            which = ravel(x, b, index + w->attr);
        }
        int64_t k = ((const int64_t *)(const void *)x->value[b])[which];
        if (k < 0) k += df_trace_extents(x->t, a)[w->attr];
        at[w->attr] = k;
        copy_one(x, n, i, a, ravel(x, a, at));
    }
}

static void do_update(const naive *x, uint32_t n)
{
    const df_node *const w = &x->t->nodes[n];
    memcpy(x->value[n], x->value[w->src[0].i], (size_t)df_trace_numel(x->t, n) * size_of(x, n));
    for (int64_t i = 0; i < df_trace_numel(x->t, w->src[1].i); i++) {
        int64_t at = i;
        for (uint32_t c = w->src[2].i; c != w->src[0].i; c = x->t->nodes[c].src[0].i)
            at = behind_view(x, c, at);
        copy_one(x, n, at, w->src[1].i, i);
    }
}

static void do_matmul(const naive *x, uint32_t n)
{
    const df_node *const w = &x->t->nodes[n];
    const uint32_t a = w->src[0].i, b = w->src[1].i, r = w->rank;
    const deft_dtype t = (deft_dtype)w->dtype;
    const int64_t k = df_trace_extents(x->t, a)[r - 1];
    for (int64_t i = 0; i < df_trace_numel(x->t, n); i++) {
        int64_t ai[DEFT_MAX_RANK], bi[DEFT_MAX_RANK];
        unravel(x, n, i, ai);
        memcpy(bi, ai, sizeof bi);
        cell acc = { .i = 0 };
        for (int64_t l = 0; l < k; l++) {
            ai[r - 1] = bi[r - 2] = l;
            const cell u = get_cell(x->value[a], t, ravel(x, a, ai)),
                       v = get_cell(x->value[b], t, ravel(x, b, bi));
            if (t == DEFT_F32)
                acc.f = fmaf(u.f, v.f, acc.f);
            else
                acc.d = fma(u.d, v.d, acc.d);
        }
        put_cell(x->value[n], t, i, acc);
    }
}

/* Whether a stands before b in ascending order, NaN last. */
static bool less(deft_dtype t, cell a, cell b)
{
    if (is_single(t) || t == DEFT_F64) {
        const double x = is_single(t) ? (double)a.f : a.d, y = is_single(t) ? (double)b.f : b.d;
        return x < y || (x == x && y != y);
    }
    return a.i < b.i;
}

static bool is_set(deft_dtype t, const char *in, int64_t i)
{
    const cell c = get_cell(in, t, i);
    return is_single(t) ? c.f != 0 : t == DEFT_F64 ? c.d != 0 : c.i != 0;
}

void fuse_compress(deft_dtype t, const char *in, int64_t step, deft_dtype mask_t, const char *mask,
                   int64_t mask_step, int64_t n, char *out, int64_t m)
{
    const size_t size = deft_dtype_size(t);
    int64_t k = 0;
    memset(out, 0, (size_t)m * size);
    for (int64_t i = 0; i < n && k < m; i++)
        if (is_set(mask_t, mask, i * mask_step))
            memcpy(out + (size_t)k++ * size, in + i * step * (int64_t)size, size);
}

void fuse_routine_row(uint32_t op, uint32_t attr, deft_dtype t, const char *in, int64_t step,
                      int64_t n, int64_t *out, int64_t m)
{
    int64_t k = 0;
    if (op == DF_OP_which) {
        for (int64_t i = 0; i < n && k < m; i++)
            if (is_set(t, in, i * step)) out[k++] = i;
        while (k < m) out[k++] = attr & DF_WHICH_ZEROS ? 0 : -1;
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const cell c = get_cell(in, t, i * step);
        for (k = i < m ? i : m; k > 0; k--) {
            const cell last = get_cell(in, t, out[k - 1] * step);
            if (attr & DF_ORDER_DESCENDING ? !less(t, last, c) : !less(t, c, last)) break;
            if (k < m) out[k] = out[k - 1];
        }
        if (k < m) out[k] = i;
    }
}

void fuse_combine(df_scatter_how how, deft_dtype t, char *to, int64_t i, const char *value,
                  int64_t k)
{
    static const df_op joins[] = { [DF_SCATTER_ADD] = DF_OP_sum,
                                   [DF_SCATTER_MUL] = DF_OP_prod,
                                   [DF_SCATTER_MIN] = DF_OP_min,
                                   [DF_SCATTER_MAX] = DF_OP_max };
    put_cell(to, t, i,
             how == DF_SCATTER_SET
                 ? get_cell(value, t, k)
                 : join(joins[how], t, get_cell(to, t, i), get_cell(value, t, k)));
}

static void do_scatter(const naive *x, uint32_t n)
{
    const df_node *const w = &x->t->nodes[n];
    const uint32_t b = w->src[1].i, c = w->src[2].i, b_rank = x->t->nodes[b].rank;
    const bool slices = df_op_scatters_slices((df_op)w->op);
    memcpy(x->value[n], x->value[w->src[0].i], (size_t)df_trace_numel(x->t, n) * size_of(x, n));
    for (int64_t i = 0; i < df_trace_numel(x->t, c); i++) {
        int64_t from[DEFT_MAX_RANK], to[DEFT_MAX_RANK];
        unravel(x, c, i, from);
        memcpy(to, from, sizeof to);
        if (slices)
            for (uint32_t j = w->attr + 1; j < w->rank; j++) to[j] = from[j + b_rank - 1];
        const int64_t which = slices ? ravel(x, b, from + w->attr) : i;
        const int64_t k = ((const int64_t *)(const void *)x->value[b])[which];
        to[w->attr] = k < 0 ? k + df_trace_extents(x->t, n)[w->attr] : k;
        fuse_combine(df_scatter_how_of((df_op)w->op), (deft_dtype)w->dtype, x->value[n],
                     ravel(x, n, to), x->value[c], i);
    }
}

static void do_routine(const naive *x, uint32_t n)
{
    const df_node *const w = &x->t->nodes[n];
    if (df_op_writes_over((df_op)w->op)) {
        do_scatter(x, n);
        return;
    }
    const uint32_t src = w->src[0].i, last = w->rank - 1u;
    const int64_t many = df_trace_extents(x->t, src)[last], m = df_trace_extents(x->t, n)[last];
    if (w->op == DF_OP_compress) {
        const uint32_t mask = w->src[1].i;
        fuse_compress((deft_dtype)w->dtype, x->value[src], 1, (deft_dtype)x->t->nodes[mask].dtype,
                      x->value[mask], 1, many, x->value[n], m);
        return;
    }
    for (int64_t q = 0; m > 0 && q < df_trace_numel(x->t, n) / m; q++)
        fuse_routine_row(w->op, w->attr, (deft_dtype)x->t->nodes[src].dtype,
                         x->value[src] + (size_t)(q * many) * size_of(x, src), 1, many,
                         (int64_t *)(void *)x->value[n] + q * m, m);
}

static void do_leaf(const naive *x, uint32_t n)
{
    const df_node *const w = &x->t->nodes[n];
    const int64_t numel = df_trace_numel(x->t, n);
    const deft_dtype t = (deft_dtype)w->dtype;
    int64_t index[DEFT_MAX_RANK];
    float f;
    switch (w->op) {
    case DF_OP_input:
        for (int64_t i = 0; i < numel; i++) {
            const df_input *const in = &x->t->inputs[w->attr];
            int64_t at = 0;
            unravel(x, n, i, index);
            for (uint32_t j = 0; j < w->rank; j++) at += index[j] * in->stride[j];
            memcpy(x->value[n] + (size_t)i * size_of(x, n),
                   (const char *)in->data + at * (int64_t)size_of(x, n), size_of(x, n));
        }
        return;
    case DF_OP_num:
        for (int64_t i = 0; i < numel; i++)
            df_bits_store(x->value[n] + (size_t)i * size_of(x, n), x->t->args[w->arg],
                          size_of(x, n));
        return;
    case DF_OP_cst:
        memcpy(&f, &w->attr, sizeof f);
        for (int64_t i = 0; i < numel; i++)
            put_cell(x->value[n], t, i,
                     is_single(t)    ? (cell){ .f = f }
                     : t == DEFT_F64 ? (cell){ .d = f }
                                     : (cell){ .i = (int32_t)w->attr });
        return;
    case DF_OP_iota:
        for (int64_t i = 0; i < numel; i++) {
            unravel(x, n, i, index);
            ((int64_t *)(void *)x->value[n])[i] = index[w->attr];
        }
        return;
    case DF_OP_count: {
        int64_t c = 1;
        for (uint32_t j = 0; j < x->t->nodes[w->src[0].i].rank; j++)
            if (w->attr >> j & 1) c *= df_trace_extents(x->t, w->src[0].i)[j];
        for (int64_t i = 0; i < numel; i++)
            put_cell(x->value[n], t, i,
                     t == DEFT_F32 ? (cell){ .f = (float)c } : (cell){ .d = (double)c });
        return;
    }
    case DF_OP_random: {
        static tape p;
        p.emit = (df_emit){ .ins = tape_ins };
        p.n = 0;
        df_access access[2] = { { .kind = DF_ACCESS_INDEX, .dtype = DEFT_I64 },
                                { .kind = DF_ACCESS_STORE, .dtype = DEFT_I64, .same_as = 1 } };
        access[0].step[0] = access[1].step[0] = DF_STEP_UNIT;
        char *ptr[2] = { NULL, x->value[n] };
        uint32_t word[4];
        const uint32_t seed =
            tape_ins(&p.emit, DF_K_const, DEFT_I64, 0, 0, 0, (uint64_t)x->t->args[w->arg]);
        const uint32_t draw =
            tape_ins(&p.emit, DF_K_const, DEFT_I64, 0, 0, 0, (uint64_t)x->t->args[w->arg + 1]);
        const uint32_t at = tape_ins(&p.emit, DF_K_index, DEFT_I64, 0, 0, 0, 0);
        df_recipe_philox(&p.emit, seed, draw, at, word);
        tape_ins(&p.emit, DF_K_store, DEFT_I64, word[w->attr], 0, 0, 1);
        run_tape(&p, 2, access, ptr, numel);
        return;
    }
    default: return; /* empty: whatever it held */
    }
}

static size_t bytes_of(const naive *x, uint32_t n)
{
    return (size_t)df_trace_numel(x->t, n) * size_of(x, n);
}

static void do_control(const naive *x, uint32_t n);

static void do_node(const naive *x, uint32_t n)
{
    const df_node *const w = &x->t->nodes[n];
    switch ((df_op_class)df_op_infos[w->op].cls) {
    case DF_CLASS_leaf: do_leaf(x, n); return;
    case DF_CLASS_unary:
    case DF_CLASS_binary:
    case DF_CLASS_ternary: do_map(x, n); return;
    case DF_CLASS_reduce: do_reduce(x, n); return;
    case DF_CLASS_scan: do_scan(x, n); return;
    case DF_CLASS_view:
        for (int64_t i = 0; i < df_trace_numel(x->t, n); i++)
            copy_one(x, n, i, w->src[0].i, behind_view(x, n, i));
        return;
    case DF_CLASS_index: do_index(x, n); return;
    case DF_CLASS_update: do_update(x, n); return;
    case DF_CLASS_contract: do_matmul(x, n); return;
    case DF_CLASS_routine: do_routine(x, n); return;
    case DF_CLASS_control: do_control(x, n); return;
    }
}

/* ---- loops ---- */

static bool is_true(const naive *x, uint32_t n)
{
    return x->value[n][0] != 0;
}

/* All nodes of loop l (and of loops within), once per iteration; then nexts all together. */
static void do_loop(const naive *x, uint32_t l)
{
    const df_trace *const t = x->t;
    const df_loop_info *const info = &x->c.loops[l];
    const int64_t most = t->args[t->nodes[info->node].arg];
    for (uint32_t k = 0; k < info->n_states; k++) {
        const uint32_t n = info->list[k], state = t->nodes[n].src[0].i;
        memcpy(x->value[n], x->value[t->nodes[state].src[0].i], bytes_of(x, n));
    }
    for (int64_t it = 0; it < most; it++) {
        memcpy(x->value[info->node], &it, sizeof it);
        for (uint32_t k = 0; k < info->n_states; k++) {
            const uint32_t n = info->list[k];
            memcpy(x->value[t->nodes[n].src[0].i], x->value[n], bytes_of(x, n));
        }
        for (uint32_t n = info->node + 1; n <= info->end; n++) {
            if (!x->live[n] || !df_control_is_within(&x->c, x->c.inside[n], l)) continue;
            const df_node *const w = &t->nodes[n];
            if (x->c.inside[n] == l && w->op == DF_OP_each)
                memcpy(x->value[n], x->value[w->src[0].i] + it * (int64_t)bytes_of(x, n),
                       bytes_of(x, n));
            else if (x->c.inside[n] == l && w->op == DF_OP_proceed && !is_true(x, w->src[0].i))
                return;
            else if (x->c.inside[n] == l)
                do_node(x, n);
            for (uint32_t k = l + 1; k < x->c.n_loops; k++)
                if (x->c.loops[k].end == n && x->c.loops[k].parent == l) do_loop(x, k);
        }
        for (uint32_t k = 0; k < info->n_states + info->n_rows; k++) {
            const uint32_t n = info->list[k];
            const df_node *const w = &t->nodes[n];
            const size_t row = bytes_of(x, w->src[0].i);
            if (w->op == DF_OP_next)
                memcpy(x->value[n], x->value[w->src[1].i], bytes_of(x, n));
            else
                memcpy(x->value[n] + (size_t)it * row, x->value[w->src[0].i], row);
        }
    }
}

/* What is not done by the loop itself. Both branches are computed here. */
static void do_control(const naive *x, uint32_t n)
{
    const df_node *const w = &x->t->nodes[n];
    uint32_t from = DF_NONE;
    if (w->op == DF_OP_final) from = w->src[0].i;
    if (w->op == DF_OP_cond) from = w->src[is_true(x, w->src[0].i) ? 1 : 2].i;
    if (from != DF_NONE) memcpy(x->value[n], x->value[from], bytes_of(x, n));
}

void fuse_naive(const df_trace *t, void **roots)
{
    naive x = { .t = t, .value = calloc(t->n_nodes + 1u, sizeof *x.value) };
    df_arena arena;
    df_arena_init(&arena, &df_mem_system);
    if (df_control_find(NULL, t, &arena, &x.c) != DEFT_OK) abort();
    x.live = calloc(t->n_nodes + 1u, 1);
    for (uint32_t r = 0; r < t->n_roots; r++) x.live[t->roots[r].node] = 1;
    for (uint32_t n = t->n_nodes; n-- > 0;)
        for (uint32_t s = 0; s < t->nodes[n].n_src && x.live[n]; s++)
            x.live[t->nodes[n].src[s].i] = 1;
    for (uint32_t n = 0; n < t->n_nodes; n++)
        if (x.live[n]) x.value[n] = calloc(bytes_of(&x, n) + 64, 1);
    for (uint32_t n = 0; n < t->n_nodes; n++) {
        if (!x.live[n]) continue;
        if (x.c.inside[n] == DF_NONE) do_node(&x, n);
        for (uint32_t l = 0; l < x.c.n_loops; l++) /* all that it needs is there at its end */
            if (x.c.loops[l].end == n && x.c.loops[l].parent == DF_NONE) do_loop(&x, l);
    }
    for (uint32_t r = 0; r < t->n_roots; r++) {
        const uint32_t n = t->roots[r].node;
        roots[r] = malloc(bytes_of(&x, n) + 1);
        memcpy(roots[r], x.value[n], bytes_of(&x, n));
    }
    for (uint32_t n = 0; n < t->n_nodes; n++) free(x.value[n]);
    free(x.value);
    free(x.live);
    df_arena_finish(&arena);
}
