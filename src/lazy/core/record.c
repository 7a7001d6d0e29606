/* SPDX-License-Identifier: Apache-2.0
 *
 * Recording: what an operator costs while nothing runs. A record is 24 bytes, its call
 * site 8, its shape and value indices 4 each, its handle 32. Records of one shape share
 * their extents. Recording does no hashing, no allocation beyond growth by doubling, and
 * no atomic operations.
 *
 * A record is first compared with the record at its position in the history (history.h).
 * Only when the two differ does df_append evaluate the rules of dtypes and shapes
 * (ops/shape.h).
 */
#include "lazy/core/recorder.h"
#include "lazy/core/append.h"

#include <math.h>
#include <string.h>

/* ---- storage ---- */

static bool resize_record_array(const df_mem *mem, void **at, uint32_t old_cap, uint32_t cap,
                                size_t elem)
{
    void *const p = mem->resize(mem->user, *at, old_cap * elem, cap * elem);
    if (p) *at = p;
    return p != NULL;
}

/* Replaces the four arrays of cx->rec by larger ones. All are allocated before one is
 * replaced, so that cap is true of each array when memory runs out. */
static bool grow_records(deft_ctx *cx)
{
    df_rec *const r = &cx->rec;
    /* Doubles up to 2^16 records, then grows by an eighth, so that little memory is
     * unused. */
    const uint32_t cap = !r->cap ? 256 : r->cap < 1u << 16 ? r->cap * 2 : r->cap + r->cap / 8;
    df_rec fresh = { 0 };
    const df_mem *const m = cx->mem;
    fresh.nodes = df_mem_alloc(m, cap * sizeof *fresh.nodes);
    fresh.shape = df_mem_alloc(m, cap * sizeof *fresh.shape);
    fresh.site = df_mem_alloc(m, cap * sizeof *fresh.site);
    fresh.val = df_mem_alloc(m, cap * sizeof *fresh.val);
    if (!fresh.nodes || !fresh.shape || !fresh.site || !fresh.val) {
        df_mem_free(m, fresh.nodes, cap * sizeof *fresh.nodes);
        df_mem_free(m, fresh.shape, cap * sizeof *fresh.shape);
        df_mem_free(m, fresh.site, cap * sizeof *fresh.site);
        df_mem_free(m, fresh.val, cap * sizeof *fresh.val);
        return false;
    }
#define MOVE(field)                                                                                \
    do {                                                                                           \
        if (r->n) memcpy(fresh.field, r->field, r->n * sizeof *r->field);                          \
        df_mem_free(m, r->field, r->cap * sizeof *r->field);                                       \
        r->field = fresh.field;                                                                    \
    } while (0)
    MOVE(nodes);
    MOVE(shape);
    MOVE(site);
    MOVE(val);
#undef MOVE
    r->cap = cap;
    return true;
}

static bool room_ext(deft_ctx *cx, uint32_t n)
{
    df_rec *const r = &cx->rec;
    if (r->cap_ext - r->n_ext >= n) return true;
    const uint32_t cap = r->cap_ext ? r->cap_ext * 2 : 512;
    if (!resize_record_array(cx->mem, (void **)&r->ext, r->cap_ext, cap, sizeof *r->ext))
        return false;
    r->cap_ext = cap;
    return true;
}

static bool room_args(deft_ctx *cx, uint32_t n)
{
    df_rec *const r = &cx->rec;
    if (r->cap_args - r->n_args >= n) return true;
    const uint32_t cap = r->cap_args ? r->cap_args * 2 : 256;
    if (!resize_record_array(cx->mem, (void **)&r->args, r->cap_args, cap, sizeof *r->args))
        return false;
    r->cap_args = cap;
    return true;
}

bool df_record_grow(deft_ctx *cx)
{
    const uint32_t n = df_n_pending(cx), most = cx->budget.max_nodes;
    if (n >= most && n - most >= DF_SLACK_NODES) {
        df_error(cx, DEFT_E_LIMIT, "%u records are pending within one call", n);
        return false;
    }
    if (grow_records(cx)) return true;
    df_error(cx, DEFT_E_MEMORY, "could not get memory for %u records", cx->rec.cap * 2);
    return false;
}

static void append_record_extents(df_rec *r, const df_shape *s)
{
    int64_t *const at = r->ext + r->n_ext;
    if (r->n < r->limit && !df_same_words(at, s->dim, s->rank)) {
        r->stretched = true;
        r->same = 0;
    }
    memcpy(at, s->dim, s->rank * sizeof *at);
    r->n_ext += s->rank;
}

/* Appends a record of any kind. shape: the index of an operand's extents, or DF_BAD for
 * extents of its own, which are those of `out`. Compares with the history before anything
 * is written. */
static uint32_t append_record(deft_ctx *cx, df_node node, uint32_t shape, const df_shape *out,
                              const int64_t *args, uint32_t n_args, uintptr_t site)
{
    df_rec *const r = &cx->rec;
    const bool own = shape == DF_BAD;
    if (own) shape = r->n_ext;
    if (n_args) node.arg = r->n_args;
    if (r->n < r->limit &&
        (!df_same_words(&r->nodes[r->n], &node, sizeof node / 8) || r->shape[r->n] != shape))
        df_history_diverge(cx, node, shape);
    if (!df_record_room(cx)) return DF_BAD;
    if (!room_args(cx, n_args) || (own && !room_ext(cx, DEFT_MAX_RANK))) {
        df_error(cx, DEFT_E_MEMORY, "%s: no memory for its arguments", df_op_infos[node.op].name);
        return DF_BAD;
    }
    if (own) append_record_extents(r, out);
    if (n_args) memcpy(r->args + r->n_args, args, n_args * sizeof *args);
    r->n_args += n_args;
    return df_record_push(cx, node, shape, site);
}

/* ---- handles and records ---- */

static DF_COLD uint32_t input_record(deft_ctx *cx, deft_tensor *t)
{
    df_value *const v = t->value;
    if (!v) {
        df_error_lost(cx, "operand", t);
        return DF_BAD;
    }
    if (!df_vec_reserve(cx->mem, &cx->rec.vals, 1)) {
        df_error(cx, DEFT_E_MEMORY, "could not get memory for values");
        return DF_BAD;
    }
    const df_node node = { .op = DF_OP_input,
                           .dtype = v->dtype,
                           .rank = v->rank,
                           .src = { DF_NO_REF, DF_NO_REF, DF_NO_REF } };
    const uint32_t i = append_record(cx, node, DF_BAD, &v->shape, NULL, 0, 0);
    if (i == DF_BAD) return DF_BAD;
    cx->rec.n_inputs++;
    df_rec_resolve(cx, i, v);
    t->node = i;
    t->epoch = cx->epoch;
    t->place = DF_NONE; /* it was a record of an earlier epoch */
    df_recording_input(cx, i, t);
    return i;
}

/* Makes a record of a bare number in the dtype that it takes where it meets `dtype`. */
uint32_t df_weak_node(deft_ctx *cx, const deft_tensor *t, deft_dtype dtype)
{
    const uint32_t at = cx->rec.n_args;
    uint32_t node;
    double v;
    dtype = df_weak_dtype(t, dtype);
    if (t->place == DEFT_I64) {
        node = df_number_i(cx, "num", dtype, t->number, 0);
    } else if (t->place == DEFT_U64) {
        node = df_number_u(cx, "num", dtype, (uint64_t)t->number, 0);
    } else {
        df_assert(t->place == DEFT_F64);
        memcpy(&v, &t->number, sizeof v);
        node = df_number_f(cx, "num", dtype, v, 0);
    }
    if (node != DF_BAD) df_recording_number(cx, at, dtype, t);
    return node;
}

uint32_t df_node_of_slow(deft_ctx *cx, deft_tensor *t)
{
    if (t->flags & DF_HANDLE_WEAK) return df_weak_node(cx, t, df_weak_own_dtype(t));
    return input_record(cx, t);
}

deft_ctx *df_begin(const char *what, deft_tensor *t, uint32_t *node, df_shape *s, uintptr_t site)
{
    deft_ctx *const cx = df_enter(what, 1, t, site);
    if (!cx) return NULL;
    *node = df_node_of(cx, t);
    if (*node == DF_BAD) return NULL;
    df_rec_shape(&cx->rec, *node, s);
    return cx;
}

deft_dtype df_tensor_dtype(const deft_ctx *cx, const deft_tensor *t)
{
    if (t->value) return (deft_dtype)t->value->dtype;
    if (df_is_lost(cx, t)) return DEFT_BOOL;
    if (t->flags & DF_HANDLE_WEAK) return df_weak_own_dtype(t);
    return (deft_dtype)cx->rec.nodes[t->node].dtype;
}

void df_tensor_shape(const deft_ctx *cx, const deft_tensor *t, df_shape *out)
{
    if (t->value)
        *out = t->value->shape;
    else if (t->flags & DF_HANDLE_WEAK || df_is_lost(cx, t))
        out->rank = 0;
    else
        df_rec_shape(&cx->rec, t->node, out);
}

deft_tensor *df_result(deft_ctx *cx, uint32_t node)
{
    return node == DF_BAD ? NULL : df_handle_new(cx, node);
}

deft_tensor *df_result_view(deft_ctx *cx, uint32_t node, deft_tensor *of)
{
    deft_tensor *const t = df_result(cx, node);
    if (t) {
        t->root = of;
        t->place = node;
        if (!(of->flags & DF_HANDLE_WEAK)) of->flags |= DF_HANDLE_VIEWED;
    }
    return t;
}

/* ---- appending ---- */

/* Whether the history has at this position the record that df_append would append. Then
 * no rule has to be evaluated. */
static bool is_as_then(const df_rec *r, df_op op, deft_dtype t, uint32_t attr, const uint32_t *src,
                       uint32_t n_src, const int64_t *args, uint32_t n_args, const df_shape *out)
{
    const uint32_t i = r->n;
    if (i >= r->same) return false;
    const df_node *const n = &r->nodes[i];
    if (n->op != op || n->dtype != t || n->attr != attr) return false;
    for (uint32_t k = 0; k < n_src; k++)
        if (n->src[k].i != src[k]) return false;
    for (uint32_t k = 0; k < n_args; k++)
        if (r->args[r->n_args + k] != args[k]) return false;
    if (!out) return true;
    const int64_t *const dim = r->ext + r->shape[i];
    if (out->rank != n->rank) return false;
    for (uint32_t k = 0; k < out->rank; k++)
        if (dim[k] != out->dim[k]) return false;
    return true;
}

uint32_t df_append(deft_ctx *cx, df_op op, deft_dtype t, uint32_t attr, const uint32_t *src,
                   const int64_t *args, uint32_t n_args, const df_shape *out_shape, uintptr_t site)
{
    const df_op_info *const info = &df_op_infos[op];
    df_shape in[3], out;
    deft_dtype in_dtype[3] = { DEFT_BOOL, DEFT_BOOL, DEFT_BOOL };
    df_node node = { .op = (uint8_t)op,
                     .dtype = (uint8_t)t,
                     .n_src = info->n_src,
                     .src = { DF_NO_REF, DF_NO_REF, DF_NO_REF },
                     .attr = attr };
    if (is_as_then(&cx->rec, op, t, attr, src, info->n_src, args, n_args, out_shape)) {
        cx->rec.n_args += n_args;
        return df_record_again(cx, site);
    }
    for (uint32_t i = 0; i < info->n_src; i++) {
        if (src[i] == DF_BAD) return DF_BAD;
        node.src[i].i = src[i];
        df_rec_shape(&cx->rec, src[i], &in[i]);
        in_dtype[i] = (deft_dtype)cx->rec.nodes[src[i]].dtype;
    }
    if (out_shape)
        out = *out_shape;
    else
        out.rank = 0;
    df_diag d; /* written only on failure */
    deft_status st = df_dtype_check(&d, op, in_dtype, t);
    if (st == DEFT_OK) st = df_shape_infer(&d, op, attr, args, in, info->n_src, &out);
    if (st != DEFT_OK) {
        df_error(cx, st, "%s", d.text);
        return DF_BAD;
    }
    uint32_t shape = DF_BAD;
    for (uint32_t i = 0; i < info->n_src && shape == DF_BAD; i++)
        if (df_shape_equal(&in[i], &out)) shape = cx->rec.shape[src[i]];
    node.rank = (uint8_t)out.rank;
    return append_record(cx, node, shape, &out, args, n_args, site);
}

uint32_t df_to(deft_ctx *cx, uint32_t a, deft_dtype t, uintptr_t site)
{
    if (a == DF_BAD || cx->rec.nodes[a].dtype == t) return a;
    return df_append(cx, DF_OP_cast, t, 0, &a, NULL, 0, NULL, site);
}

uint32_t df_mixed_cast(deft_ctx *cx, df_op op, uint32_t a, uintptr_t site)
{
    if (a == DF_BAD) return DF_BAD;
    const deft_dtype t = df_dtype_at(cx, a);
    switch ((df_mixed)df_op_infos[op].mixed) {
    case DF_MIXED_low: return t == DEFT_F32 ? df_to(cx, a, (deft_dtype)cx->mixed, site) : a;
    case DF_MIXED_high: return df_is_half(t) ? df_to(cx, a, DEFT_F32, site) : a;
    case DF_MIXED_widest:
    case DF_MIXED_same: return a;
    }
    df_unreachable();
}

static uint32_t append_number_record(deft_ctx *cx, deft_dtype t, int64_t bits, uintptr_t site)
{
    const df_shape scalar = { .rank = 0 };
    df_rec *const r = &cx->rec;
    if (DF_LIKELY(r->n < r->same && r->nodes[r->n].op == DF_OP_num && r->nodes[r->n].dtype == t)) {
        r->args[r->n_args++] = bits; /* the earlier number may differ */
        return df_record_again(cx, site);
    }
    return df_append(cx, DF_OP_num, t, 0, NULL, &bits, 1, &scalar, site);
}

bool df_number_bits(deft_ctx *cx, const char *what, deft_dtype t, double v, int64_t *out)
{
    int64_t bits = 0;
    if (t == DEFT_F64) {
        memcpy(&bits, &v, sizeof v);
    } else if (t == DEFT_F32) {
        const float f = (float)v;
        if (isinf(f) && !isinf(v)) goto unfit;
        uint32_t u;
        memcpy(&u, &f, sizeof u);
        bits = u;
    } else if (df_is_half(t)) {
        const uint16_t h = df_half_of_f64(t, v);
        if (isinf(df_f32_of_half(t, h)) && !isinf(v)) goto unfit;
        bits = h;
    } else {
        /* greatest + 1 is exact as a double, greatest itself need not be */
        if (!(v == floor(v)) || v < (double)df_int_least(t) || v >= (double)df_int_greatest(t) + 1)
            goto unfit;
        bits = v < 0x1p63 ? (int64_t)df_int_bits(t, (int64_t)v) : (int64_t)(uint64_t)v;
    }
    *out = bits;
    return true;
unfit:
    df_error(cx, DEFT_E_RANGE, "%s: the number %.17g does not fit %s", what, v, deft_dtype_name(t));
    return false;
}

bool df_number_bits_i(deft_ctx *cx, const char *what, deft_dtype t, int64_t v, int64_t *out)
{
    if (df_is_float(t)) return df_number_bits(cx, what, t, (double)v, out);
    if (!df_int_holds(t, v)) {
        df_error(cx, DEFT_E_RANGE, "%s: the number %lld does not fit %s", what, (long long)v,
                 deft_dtype_name(t));
        return false;
    }
    *out = (int64_t)df_int_bits(t, v);
    return true;
}

bool df_number_bits_u(deft_ctx *cx, const char *what, deft_dtype t, uint64_t v, int64_t *out)
{
    if (v <= INT64_MAX) return df_number_bits_i(cx, what, t, (int64_t)v, out);
    if (df_is_float(t)) return df_number_bits(cx, what, t, (double)v, out);
    if (v > df_int_greatest(t)) {
        df_error(cx, DEFT_E_RANGE, "%s: the number %llu does not fit %s", what,
                 (unsigned long long)v, deft_dtype_name(t));
        return false;
    }
    *out = (int64_t)v;
    return true;
}

uint32_t df_number_f(deft_ctx *cx, const char *what, deft_dtype t, double v, uintptr_t site)
{
    int64_t bits;
    return df_number_bits(cx, what, t, v, &bits) ? append_number_record(cx, t, bits, site) : DF_BAD;
}

uint32_t df_number_i(deft_ctx *cx, const char *what, deft_dtype t, int64_t v, uintptr_t site)
{
    int64_t bits;
    return df_number_bits_i(cx, what, t, v, &bits) ? append_number_record(cx, t, bits, site)
                                                   : DF_BAD;
}

uint32_t df_number_u(deft_ctx *cx, const char *what, deft_dtype t, uint64_t v, uintptr_t site)
{
    int64_t bits;
    return df_number_bits_u(cx, what, t, v, &bits) ? append_number_record(cx, t, bits, site)
                                                   : DF_BAD;
}

uint32_t df_cst(deft_ctx *cx, deft_dtype t, int32_t value, uintptr_t site)
{
    uint32_t attr = (uint32_t)value;
    if (df_is_float(t)) {
        const float f = (float)value;
        memcpy(&attr, &f, sizeof attr);
    }
    const df_shape scalar = { .rank = 0 };
    return df_append(cx, DF_OP_cst, t, attr, NULL, NULL, 0, &scalar, site);
}

bool df_common_dtype(deft_ctx *cx, const char *what, deft_dtype a, deft_dtype b, deft_dtype *out)
{
    const deft_dtype t = df_promote(a, b);
    if (DF_UNLIKELY(t == DF_NO_DTYPE)) {
        df_error(
            cx, DEFT_E_DTYPE,
            "%s: %s and %s have no common dtype: cast one of them, with deft_cast(t, DEFT_I64) "
            "or deft_cast(t, DEFT_U64)",
            what, deft_dtype_name(a), deft_dtype_name(b));
        return false;
    }
    *out = t;
    return true;
}

uint32_t df_indices(deft_ctx *cx, uint32_t a, uintptr_t site)
{
    if (a != DF_BAD && df_dtype_at(cx, a) == DEFT_U64) {
        const uint32_t most = df_number_i(cx, "index", DEFT_U64, INT64_MAX, site);
        a = df_map2(cx, DF_OP_minimum, a, most, site);
    }
    return df_to(cx, a, DEFT_I64, site);
}

uint32_t df_map1(deft_ctx *cx, df_op op, uint32_t a, uintptr_t site)
{
    a = df_mixed_operand(cx, op, a, site);
    if (a == DF_BAD) return DF_BAD;
    if (df_record_is_map(&cx->rec, op, a, DF_NONE)) return df_record_again(cx, site);
    deft_dtype t;
    df_diag d; /* written only on failure */
    const deft_status st = df_dtype_operand(&d, op, df_dtype_at(cx, a), &t);
    if (st != DEFT_OK) {
        df_error(cx, st, "%s", d.text);
        return DF_BAD;
    }
    const uint32_t b = df_to(cx, a, t, site);
    return df_append(cx, op, df_dtype_result(op, t), 0, &b, NULL, 0, NULL, site);
}

uint32_t df_map2(deft_ctx *cx, df_op op, uint32_t a, uint32_t b, uintptr_t site)
{
    a = df_mixed_operand(cx, op, a, site);
    b = df_mixed_operand(cx, op, b, site);
    if (a == DF_BAD || b == DF_BAD) return DF_BAD;
    if (df_record_is_map(&cx->rec, op, a, b)) return df_record_again(cx, site);
    deft_dtype t;
    if (!df_common_dtype(cx, df_op_infos[op].name, df_dtype_at(cx, a), df_dtype_at(cx, b), &t))
        return DF_BAD;
    df_diag d; /* written only on failure */
    const deft_status st = df_dtype_operand(&d, op, t, &t);
    if (st != DEFT_OK) {
        df_error(cx, st, "%s", d.text);
        return DF_BAD;
    }
    const uint32_t src[2] = { df_to(cx, a, t, site), df_to(cx, b, t, site) };
    return df_append(cx, op, df_dtype_result(op, t), 0, src, NULL, 0, NULL, site);
}

uint32_t df_where(deft_ctx *cx, uint32_t c, uint32_t a, uint32_t b, uintptr_t site)
{
    if (c == DF_BAD || a == DF_BAD || b == DF_BAD) return DF_BAD;
    deft_dtype t;
    if (!df_common_dtype(cx, "where", df_dtype_at(cx, a), df_dtype_at(cx, b), &t)) return DF_BAD;
    const uint32_t src[3] = { df_to(cx, c, DEFT_BOOL, site), df_to(cx, a, t, site),
                              df_to(cx, b, t, site) };
    return df_append(cx, DF_OP_where, t, 0, src, NULL, 0, NULL, site);
}

uint32_t df_reduce(deft_ctx *cx, df_op op, uint32_t a, uint32_t axes, bool keep, uintptr_t site)
{
    a = df_mixed_operand(cx, op, a, site);
    if (a == DF_BAD) return DF_BAD;
    deft_dtype t;
    df_diag d; /* written only on failure */
    const deft_status st = df_dtype_operand(&d, op, df_dtype_at(cx, a), &t);
    if (st != DEFT_OK) {
        df_error(cx, st, "%s", d.text);
        return DF_BAD;
    }
    const uint32_t b = df_to(cx, a, t, site);
    return df_append(cx, op, df_dtype_result(op, t), axes | (keep ? DF_REDUCE_KEEPDIMS : 0), &b,
                     NULL, 0, NULL, site);
}

uint32_t df_expand_to(deft_ctx *cx, uint32_t a, const df_shape *s, uintptr_t site)
{
    if (a == DF_BAD) return DF_BAD;
    return df_append(cx, DF_OP_expand, df_dtype_at(cx, a), 0, &a, NULL, 0, s, site);
}

uint32_t df_iota_node(deft_ctx *cx, const df_shape *s, uint32_t axis, uintptr_t site)
{
    return df_append(cx, DF_OP_iota, DEFT_I64, axis, NULL, NULL, 0, s, site);
}

uint32_t df_slice_node(deft_ctx *cx, uint32_t a, const int64_t *start, const int64_t *step,
                       const df_shape *out, uintptr_t site)
{
    if (a == DF_BAD) return DF_BAD;
    int64_t args[2 * DEFT_MAX_RANK];
    const uint32_t rank = cx->rec.nodes[a].rank;
    for (uint32_t i = 0; i < rank; i++) {
        args[2 * i] = start[i];
        args[2 * i + 1] = step[i];
    }
    return df_append(cx, DF_OP_slice, df_dtype_at(cx, a), 0, &a, args, 2 * rank, out, site);
}

deft_tensor *df_tensor_of(deft_ctx *cx, df_value *v)
{
    deft_tensor *const t = df_handle_new(cx, 0);
    if (!t) {
        df_value_drop(cx, &v);
        return NULL;
    }
    t->epoch = 0;
    t->value = v;
    return t;
}
