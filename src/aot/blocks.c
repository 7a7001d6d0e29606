/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan without parts becomes steps of the image: its buffers, kernels, segments and launches. See
 * maker.h.
 */
#include "aot/maker.h"

#include <string.h>

#include "runtime/bind.h"

#define PUSH DF_AOT_PUSH

/* The slot of the image for a slot of the plan. */
static uint32_t block_slot(const block *b, df_slot s)
{
    return s.i == DF_NONE ? AOT_NONE : b->m->slot[b->slot0 + s.i];
}

/* ---- buffers ---- */

static uint32_t bytes_of_buf(const block *b, const df_plan_buf *buf)
{
    program *const p = b->m->p;
    return program_combine(p, AOT_SLOT_MUL, block_slot(b, buf->numel),
                           program_constant(p, (int64_t)deft_dtype_size(buf->dtype)));
}

/* Finds where each region begins. *end is the end of the last one that is in no other. */
static deft_status place_regions(const block *b, uint32_t *at, uint32_t *end)
{
    program *const p = b->m->p;
    const df_plan *const plan = b->plan;
    *end = b->arena;
    /* A region lies behind those before it in the same outer region; the outer one comes first. */
    for (uint32_t i = 0; i < plan->n_regions && p->st == DEFT_OK; i++) {
        const df_region *const r = &plan->regions[i];
        uint32_t start = r->outer == DF_NONE ? *end : DF_NONE;
        for (uint32_t k = i; k-- > 0 && start == DF_NONE;)
            if (plan->regions[k].outer == r->outer)
                start = program_end_of(p, at[k], block_slot(b, plan->regions[k].bytes));
        if (start == DF_NONE) {
            if (r->outer > i)
                return df_fail(p->d, DEFT_E_INTERNAL, "export: region %u lies in a later one", i);
            start = at[r->outer];
        }
        at[i] = start;
        if (r->outer == DF_NONE) *end = program_end_of(p, start, block_slot(b, r->bytes));
    }
    return p->st;
}

static void add_copy(const block *b, uint32_t to, uint32_t from, const df_plan_buf *buf)
{
    program *const p = b->m->p;
    PUSH(p, steps,
         ((aot_step){ .kind = AOT_STEP_COPY, .a = to, .b = from, .c = bytes_of_buf(b, buf) }));
}

/* The caller may pass the donor of a result as the result. Else the elements that the plan does not
 * write are copied. */
static deft_status take_donor(const block *b, const df_plan_buf *buf, uint32_t to)
{
    program *const p = b->m->p;
    if (buf->donor == DF_NONE) return p->st;
    const aot_buf *const from = &p->bufs.at[b->port[buf->donor]], *const out = &p->bufs.at[to];
    if (out->kind == AOT_BUF_PARAMETER && from->kind == AOT_BUF_DATA)
        return df_fail(p->d, DEFT_E_ARG,
                       "export: output %s replaces an input whose values are linked",
                       p->params.at[out->index].name);
    if (out->kind == AOT_BUF_PARAMETER && from->kind == AOT_BUF_PARAMETER)
        p->params.at[out->index].may_be = from->index;
    if (buf->keep) add_copy(b, to, b->port[buf->donor], buf);
    return p->st;
}

/* Finds the buffer of the image for each buffer of the plan. Appends the copies that come before
 * the first launch. */
static deft_status import_buffers(const block *b, uint32_t *at, uint32_t *end)
{
    deft_status st = DEFT_OK;
    program *const p = b->m->p;
    const df_plan *const plan = b->plan;
    uint32_t *const region = df_arena_new(&p->arena, uint32_t, plan->n_regions + 1u);
    if (!region) return df_fail_mem(p->d, "export", sizeof *region);
    TRY(place_regions(b, region, end));
    for (uint32_t i = 0; i < plan->n_bufs && p->st == DEFT_OK; i++) {
        const df_plan_buf *const buf = &plan->bufs[i];
        at[i] = AOT_NONE;
        switch ((df_buf_kind)buf->kind) {
        case DF_BUF_INPUT:
        case DF_BUF_INTO: at[i] = b->port[buf->index]; break;
        case DF_BUF_TEMP: at[i] = program_add_buf(p, AOT_BUF_TEMPORARY, region[buf->index]); break;
        case DF_BUF_ROOT:
            for (uint32_t r = b->n_roots; r-- > 0;)
                if (plan->root_buf[r].i == i && b->dest[r] != AOT_NONE) at[i] = b->dest[r];
            if (at[i] == AOT_NONE)
                return df_fail(p->d, DEFT_E_INTERNAL, "export: a result has no place");
            TRY(take_donor(b, buf, at[i]));
            break;
        }
    }
    for (uint32_t r = 0; r < b->n_roots; r++)
        if (b->dest[r] != AOT_NONE && plan->bufs[plan->root_buf[r].i].kind != DF_BUF_ROOT)
            add_copy(b, b->dest[r], at[plan->root_buf[r].i], &plan->bufs[plan->root_buf[r].i]);
    st = p->st;
done:
    return st;
}

/* Appends the copies of results that share a buffer. */
static deft_status copy_shared(const block *b, const uint32_t *at)
{
    const df_plan *const plan = b->plan;
    for (uint32_t r = 0; r < b->n_roots; r++) {
        const uint32_t i = plan->root_buf[r].i;
        if (b->dest[r] != AOT_NONE && plan->bufs[i].kind == DF_BUF_ROOT && at[i] != b->dest[r])
            add_copy(b, b->dest[r], at[i], &plan->bufs[i]);
    }
    return b->m->p->st;
}

/* ---- segments ---- */

/* A plan that is being imported, with its buffers in the image. */
typedef struct segments {
    const block *b;
    const uint32_t *buf;
} segments;

static uint32_t list_slots(const block *b, const df_slot *s, uint32_t n)
{
    const uint32_t first = (uint32_t)b->m->p->list.n;
    for (uint32_t i = 0; i < n; i++) PUSH(b->m->p, list, block_slot(b, s[i]));
    return first;
}

static void import_bind(const segments *s, const df_bind *b, uint32_t n_axes, uint32_t kind,
                        uint32_t same, deft_dtype t)
{
    const aot_bind out = { .buf = b->buf.i == DF_NONE ? AOT_NONE : s->buf[b->buf.i],
                           .kind = kind,
                           .size = (uint32_t)deft_dtype_size(t),
                           .offset = block_slot(s->b, b->offset),
                           .stride = list_slots(s->b, b->stride, n_axes),
                           .same = same };
    PUSH(s->b->m->p, binds, out);
}

static uint32_t access_kind(uint8_t kind)
{
    return kind == DF_ACCESS_STORE     ? AOT_ACCESS_STORE
           : kind == DF_ACCESS_INDEX   ? AOT_ACCESS_INDEX
           : kind == DF_ACCESS_SCRATCH ? AOT_ACCESS_SCRATCH
                                       : AOT_ACCESS_LOAD;
}

/* The dtype of number slot i of a kernel. */
static deft_dtype number_dtype(const df_kernel *k, uint32_t i)
{
    for (uint32_t x = 0; x < k->n_ins; x++)
        if (k->ins[x].op == DF_K_num && k->ins[x].imm == i) return (deft_dtype)k->ins[x].dtype;
    return DEFT_I64;
}

static deft_status import_numbers(const segments *s, const df_seg *seg, const df_kernel *k)
{
    deft_status st = DEFT_OK;
    maker *const m = s->b->m;
    program *const p = m->p;
    for (uint32_t i = 0; i < k->n_num; i++) {
        aot_num out = { .slot = AOT_NONE, .parameter = AOT_NONE };
        const bool is_slot = seg->num[i] & DF_NUM_IS_SLOT;
        const uint32_t slot =
            is_slot ? m->slot[s->b->slot0 + (seg->num[i] & ~DF_NUM_IS_SLOT)] : AOT_NONE;
        const uint32_t given = is_slot ? DF_NONE : program_number(p, seg->num[i]);
        if (is_slot && p->is_open.at[slot]) {
            const deft_dtype t = (deft_dtype)seg->num_dtype[i];
            out.slot = slot;
            out.as = program_as_dtype(t);
            out.bytes = (uint32_t)deft_dtype_size(t);
        } else if (given != DF_NONE) {
            TRY(program_use_number(p, given, number_dtype(k, i), &out));
        } else {
            out.bits = df_bind_number(seg, i, m->value + s->b->slot0, p->t);
        }
        PUSH(p, nums, out);
    }
    st = p->st;
done:
    return st;
}

/* The number of a kernel in the image. */
static uint32_t image_kernel(program *p, const df_kernel *k)
{
    for (uint32_t i = 0; i < p->kernels.n; i++) {
        const df_key *const key = &p->kernels.at[i]->key;
        if (key->n == k->key.n && memcmp(key->bytes, k->key.bytes, key->n) == 0) return i;
    }
    PUSH(p, kernels, k);
    return (uint32_t)p->kernels.n - 1;
}

static uint32_t program_partial_words(const df_kernel *k)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n_ins; i++)
        if (df_kop_infos[k->ins[i].op].kind == DF_KOP_reduce)
            n += k->ins[i].op == DF_K_argmin || k->ins[i].op == DF_K_argmax ? 2 : 1;
    return n;
}

/* The estimated time of an element in ps, as in runtime/exec/exec_measure.c. */
#define CODE_PS 15

static deft_status import_kernel(const segments *s, const df_seg *seg, aot_seg *out)
{
    program *const p = s->b->m->p;
    const df_kernel *const k = df_seg_kernel(s->b->plan, seg);
    out->kernel = image_kernel(p, k);
    out->mode = k->mode;
    out->n_axes = k->n_axes;
    out->n_access = k->n_access;
    out->n_num = k->n_num;
    for (uint32_t x = 0; x < k->n_axes; x++) out->roles |= (uint32_t)k->role[x] << (2 * x);
    if (k->flags & DF_KERNEL_SPLIT) {
        out->flags |= AOT_SPLIT;
        out->n_partial = program_partial_words(k);
    }
    if (df_kernel_has_tiles(k)) out->flags |= AOT_TILES;
    out->picoseconds = (uint32_t)(CODE_PS * (k->cost > 1 ? k->cost : 1));
    out->extent = list_slots(s->b, seg->extent, k->n_axes);
    out->bind = (uint32_t)p->binds.n;
    for (uint32_t i = 0; i < k->n_access; i++) {
        const df_access *const a = &k->access[i];
        if (a->kind == DF_ACCESS_SCRATCH) out->flags |= AOT_SCRATCH;
        import_bind(s, &seg->bind[i], k->n_axes, access_kind(a->kind), a->same_as,
                    (deft_dtype)a->dtype);
    }
    out->num = (uint32_t)p->nums.n;
    return import_numbers(s, seg, k);
}

static deft_status import_product(const segments *s, const df_seg *seg, aot_seg *out)
{
    const block *const b = s->b;
    program *const p = b->m->p;
    if (seg->windows || seg->a_dtype != seg->dtype || seg->b_dtype != seg->dtype ||
        !df_is_real(seg->dtype))
        return df_fail(p->d, DEFT_E_INTERNAL, "export: a product has operands of another kind");
    out->is_f64 = seg->dtype == DEFT_F64;
    out->n_batch = seg->n_batch;
    out->n_column_axes = seg->n_column_axes;
    out->m = block_slot(b, seg->m);
    out->n = block_slot(b, seg->n);
    out->k = block_slot(b, seg->k);
    out->batch = list_slots(b, seg->batch, seg->n_batch);
    out->c_access = seg->c_access;
    out->operand = (uint32_t)p->binds.n;
    const df_bind *const operand[3] = { &seg->a, &seg->b, &seg->c };
    for (int i = 0; i < 3; i++)
        import_bind(s, operand[i], seg->n_batch + 2, AOT_ACCESS_LOAD, 0, seg->dtype);
    return p->st;
}

static uint32_t routine_op(const df_seg *seg)
{
    if (df_op_scatters((df_op)seg->op)) return AOT_ADD + df_scatter_how_of((df_op)seg->op);
    return seg->op == DF_OP_argsort ? AOT_ARGSORT
           : seg->op == DF_OP_sort  ? AOT_SORT
           : seg->op == DF_OP_topk  ? AOT_TOPK
           : seg->op == DF_OP_which ? AOT_WHICH
                                    : AOT_COMPRESS;
}
_Static_assert(AOT_MAX - AOT_ADD == DF_SCATTER_MAX && AOT_SET - AOT_ADD == DF_SCATTER_SET &&
                   AOT_MUL - AOT_ADD == DF_SCATTER_MUL && AOT_MIN - AOT_ADD == DF_SCATTER_MIN,
               "the order of df_scatter_how");
_Static_assert((int)AOT_MOST_RANK == (int)DEFT_MAX_RANK, "the ranks of routines");

static uint32_t kind_of_element(deft_dtype t)
{
    return t == DEFT_F16     ? AOT_F16
           : t == DEFT_BF16  ? AOT_BF16
           : df_is_float(t)  ? AOT_FLOAT
           : df_is_signed(t) ? AOT_SIGNED
                             : AOT_UNSIGNED;
}

static void set_types(aot_routine *out, deft_dtype a, deft_dtype b)
{
    out->a_kind = kind_of_element(a);
    out->a_bytes = (uint32_t)deft_dtype_size(a);
    out->b_kind = kind_of_element(b);
    out->b_bytes = (uint32_t)deft_dtype_size(b);
}

/* Appends the lists of a routine that combines values at indices. Its axes are those of the values
 * (df_bind_scatter). */
static void list_scatter(const segments *s, const df_seg *seg, aot_routine *out)
{
    const block *const b = s->b;
    const uint32_t axis = seg->attr, n_index = seg->n_index;
    const bool slices = df_op_scatters_slices((df_op)seg->op);
    df_slot index[DEFT_MAX_RANK], result[DEFT_MAX_RANK];
    for (uint32_t i = 0; i < seg->n_batch; i++) {
        const bool indexed = slices ? i >= axis && i < axis + n_index : i == axis;
        const uint32_t at = !slices || i < axis ? i : i + 1 - n_index; /* in the result */
        index[i] = result[i] = (df_slot){ DF_NONE };
        if (!indexed) result[i] = seg->c.stride[at];
        if (!slices) index[i] = seg->a.stride[i];
        if (slices && indexed) index[i] = seg->a.stride[i - axis];
    }
    out->list = list_slots(b, seg->batch, seg->n_batch);
    (void)list_slots(b, index, seg->n_batch);
    (void)list_slots(b, seg->b.stride, seg->n_batch);
    (void)list_slots(b, result, seg->n_batch);
    out->step = block_slot(b, seg->c.stride[axis]);
    set_types(out, seg->a_dtype, seg->dtype);
}

/* The same for an order, or for positions. */
static void list_order(const segments *s, const df_seg *seg, aot_routine *out)
{
    const block *const b = s->b;
    out->list = list_slots(b, seg->batch, seg->n_batch);
    for (int i = 0; i < 3; i++) (void)list_slots(b, seg->a.stride, seg->n_batch);
    out->step = block_slot(b, seg->a.stride[seg->n_batch]);
    if (seg->op == DF_OP_topk) out->first = block_slot(b, seg->k);
    set_types(out, seg->dtype, seg->op == DF_OP_compress ? seg->b_dtype : DEFT_BOOL);
    if (seg->op == DF_OP_compress) out->b_step = block_slot(b, seg->b.stride[0]);
}

static deft_status import_routine(const segments *s, const df_seg *seg, aot_seg *out)
{
    program *const p = s->b->m->p;
    if (seg->op == DF_OP_call || seg->op == DF_OP_result)
        return df_fail(p->d, DEFT_E_ARG,
                       "export: the program calls an opaque operator, which is a function of one "
                       "process");
    const bool scatters = df_op_scatters((df_op)seg->op);
    aot_routine x = { .op = routine_op(seg),
                      .rank = seg->n_batch,
                      .n = block_slot(s->b, seg->n),
                      .m = block_slot(s->b, seg->m),
                      .first = AOT_NONE,
                      .step = AOT_NONE,
                      .b_step = AOT_NONE };
    if (!scatters && seg->op != DF_OP_which && seg->attr & DF_ORDER_DESCENDING)
        x.flags |= AOT_DESCENDING;
    if (seg->op == DF_OP_which && seg->attr & DF_WHICH_ZEROS) x.flags |= AOT_ZEROS;
    if (seg->op == DF_OP_topk && p->is_open.at[x.n] && block_slot(s->b, seg->k) != AOT_NONE &&
        p->values.at[block_slot(s->b, seg->k)] != 0)
        return df_fail(p->d, DEFT_E_ARG,
                       "export: topk takes the positions from %lld on of an axis whose extent is "
                       "open; the program does not say how they follow from it",
                       (long long)p->values.at[block_slot(s->b, seg->k)]);
    if (scatters)
        list_scatter(s, seg, &x);
    else
        list_order(s, seg, &x);
    out->operand = (uint32_t)p->binds.n;
    const deft_dtype result = scatters ? seg->dtype : df_bind_routine_dtype(seg);
    import_bind(s, &seg->a, 0, AOT_ACCESS_LOAD, 0, scatters ? seg->a_dtype : seg->dtype);
    if (scatters || seg->op == DF_OP_compress)
        import_bind(s, &seg->b, 0, AOT_ACCESS_LOAD, 0, scatters ? seg->dtype : seg->b_dtype);
    else
        PUSH(p, binds, ((aot_bind){ .buf = AOT_NONE }));
    import_bind(s, &seg->c, 0, AOT_ACCESS_STORE, 0, result);
    PUSH(p, routines, x);
    return p->st;
}

static deft_status import_segment(const segments *s, const df_seg *seg)
{
    deft_status st = DEFT_OK;
    program *const p = s->b->m->p;
    aot_seg out = { .kind = AOT_SEG_KERNEL, .kernel = AOT_NONE, .c_access = AOT_NONE };
    if (seg->kind == DF_SEG_ROUTINE) {
        out.kind = AOT_SEG_ROUTINE;
        out.routine = (uint32_t)p->routines.n;
        TRY(import_routine(s, seg, &out));
    }
    if (seg->kernel.i != DF_NONE) TRY(import_kernel(s, seg, &out));
    if (seg->kind == DF_SEG_MATMUL) {
        out.kind = AOT_SEG_PRODUCT;
        TRY(import_product(s, seg, &out));
    }
    PUSH(p, segs, out);
    st = p->st;
done:
    return st;
}

/* ---- exported ---- */

deft_status blocks_import(const block *b, uint32_t *end, const uint32_t **bufs)
{
    deft_status st = DEFT_OK;
    program *const p = b->m->p;
    const df_plan *const plan = b->plan;
    uint32_t *const buf = df_arena_new(&p->arena, uint32_t, plan->n_bufs + 1u);
    if (!buf) return df_fail_mem(p->d, "export", sizeof *buf);
    TRY(import_buffers(b, buf, end));
    const segments s = { b, buf };
    const aot_step step = { .kind = AOT_STEP_LAUNCHES,
                            .a = (uint32_t)p->launches.n,
                            .b = plan->n_launches,
                            .c = (uint32_t)p->segs.n,
                            .d = plan->n_segs };
    for (uint32_t i = 0; i < plan->n_segs; i++) TRY(import_segment(&s, &plan->segs[i]));
    for (uint32_t i = 0; i < plan->n_launches; i++) {
        const df_launch *const l = &plan->launches[i];
        PUSH(p, launches,
             ((aot_launch){ .first = step.c + l->first,
                            .n = l->n,
                            .n_after = l->n_after,
                            .checks = i < plan->n_checked }));
    }
    if (plan->n_launches > 0) PUSH(p, steps, step);
    TRY(copy_shared(b, buf));
    if (bufs) *bufs = buf;
done:
    return st;
}
