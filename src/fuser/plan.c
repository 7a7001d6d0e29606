/* SPDX-License-Identifier: Apache-2.0
 *
 * The conductor: from a trace to a plan.
 *
 * When grouping finds no kernel for something, the trace is planned again with one kernel per
 * operator, which always exists. The reason is kept in df_plan.why. So a program never gets an
 * error because something cannot be fused.
 */
#include "fuser/fuse.h"
#include "trace/control.h"

#include <string.h>

/* Sets p->live. Bit 0: some root needs the value of the node. Bit 1: its extents are needed, as for
 * operands of count and places of updates. */
static deft_status find_live(pass *p)
{
    const df_trace *const t = p->t;
    p->live = df_arena_zalloc(&p->tmp, t->n_nodes + 1u, 1);
    if (!p->live) return df_fail_mem(p->diag, "fuser", t->n_nodes);
    for (uint32_t r = 0; r < t->n_roots; r++) {
        p->live[t->roots[r].node] |= 1;
        if (t->roots[r].kind == DF_ROOT_INTO) p->live[t->inputs[t->roots[r].into].node] |= 2;
        if (t->roots[r].donor != DF_NONE) p->live[t->inputs[t->roots[r].donor].node] |= 2;
    }
    for (uint32_t n = t->n_nodes; n-- > 0;) {
        const df_node *const x = &t->nodes[n];
        if (!p->live[n]) continue;
        for (uint32_t s = 0; s < x->n_src; s++) {
            const bool extents = x->op == DF_OP_count || (x->op == DF_OP_update && s == 2);
            p->live[x->src[s].i] |= extents || !(p->live[n] & 1) ? 2 : 1;
        }
    }
    return DEFT_OK;
}

static bool has_indices(const df_trace *t)
{
    bool any = false;
    for (uint32_t k = 0; k < t->n_nodes && !any; k++) {
        const int cls = df_op_infos[t->nodes[k].op].cls;
        any = cls == DF_CLASS_index || cls == DF_CLASS_routine || cls == DF_CLASS_update;
    }
    return any;
}

/* Fills in plan->faults: every node of the trace may report a fault under its own number. */
static bool name_faults(pass *p)
{
    df_plan *const plan = p->plan;
    const uint32_t n = p->t->n_nodes;
    if (!(plan->faults = df_arena_new(&plan->arena, df_plan_fault, n))) return false;
    for (uint32_t k = 0; k < n; k++) plan->faults[k] = (df_plan_fault){ k, p->t->nodes[k].op };
    plan->n_faults = n;
    return true;
}

/* ---- sizes ---- */

/* Notes that n slots are sizes. DF_NONE is skipped, and other numbers that are no slots are found
 * later (verify.c). */
static void plan_mark_sizes(const df_plan *plan, const df_slot *slot, uint32_t n, bool *is_size)
{
    for (uint32_t i = 0; i < n; i++)
        if (slot[i].i < plan->n_slots) is_size[slot[i].i] = true;
}

static void plan_mark_kernel_sizes(const df_plan *plan, const df_seg *s, bool *is_size)
{
    const df_kernel *const k = &plan->kernels[s->kernel.i];
    plan_mark_sizes(plan, s->extent, k->n_axes, is_size);
    for (uint32_t a = 0; a < k->n_access; a++) {
        const uint8_t kind = k->access[a].kind;
        plan_mark_sizes(plan, s->bind[a].stride, k->n_axes, is_size);
        /* The base of an index, and the length of a row of scratch. */
        if (kind == DF_ACCESS_INDEX || kind == DF_ACCESS_SCRATCH)
            plan_mark_sizes(plan, &s->bind[a].offset, 1, is_size);
    }
}

static void plan_mark_segment_sizes(const df_plan *plan, const df_seg *s, bool *is_size)
{
    if (!IS_NONE(s->kernel)) plan_mark_kernel_sizes(plan, s, is_size);
    if (s->kind == DF_SEG_KERNEL) return;
    const df_slot whole[] = { s->m, s->n, s->k };
    plan_mark_sizes(plan, whole, DF_LEN(whole), is_size);
    plan_mark_sizes(plan, s->batch, DEFT_MAX_RANK, is_size);
    plan_mark_sizes(plan, s->a.stride, DF_MAX_AXES, is_size);
    plan_mark_sizes(plan, s->b.stride, DF_MAX_AXES, is_size);
    plan_mark_sizes(plan, s->c.stride, DF_MAX_AXES, is_size);
    for (uint32_t i = 0; s->call && i < s->call->n_in; i++) {
        plan_mark_sizes(plan, s->call->in[i].extent, s->call->in[i].rank, is_size);
        plan_mark_sizes(plan, s->call->in[i].bind.stride, DF_MAX_AXES, is_size);
    }
    for (uint32_t i = 0; s->call && i < s->call->n_out; i++)
        plan_mark_sizes(plan, s->call->out[i].extent, s->call->out[i].rank, is_size);
    if (!s->windows) return;
    plan_mark_sizes(plan, s->windows->extent, 2, is_size);
    plan_mark_sizes(plan, s->windows->out, 2, is_size);
    plan_mark_sizes(plan, s->windows->step, 2, is_size);
    plan_mark_sizes(plan, s->windows->before, 2, is_size);
    plan_mark_sizes(plan, s->windows->tap, 2 * s->windows->n_taps, is_size);
}

/* Fills in plan->sizes. */
static bool find_sizes(pass *p)
{
    df_plan *const plan = p->plan;
    bool *const is_size = df_arena_new(&p->tmp, bool, plan->n_slots);
    if (!is_size) return false;
    for (uint32_t i = 0; i < plan->n_segs; i++)
        plan_mark_segment_sizes(plan, &plan->segs[i], is_size);
    for (uint32_t i = 0; i < plan->n_bufs; i++)
        plan_mark_sizes(plan, &plan->bufs[i].numel, 1, is_size);
    for (uint32_t i = 0; i < plan->n_regions; i++)
        plan_mark_sizes(plan, &plan->regions[i].bytes, 1, is_size);
    plan->sizes = df_arena_new(&plan->arena, df_slot, plan->n_slots);
    for (df_slot i = { 0 }; plan->sizes && i.i < plan->n_slots; i.i++)
        if (is_size[i.i]) plan->sizes[plan->n_sizes++] = i;
    return plan->sizes != NULL;
}

deft_status df_fuse_copy_out(pass *p)
{
    df_plan *const plan = p->plan;
    df_arena *const arena = &plan->arena;
    bool ok = true;
#define COPY(field, vec)                                                                           \
    do {                                                                                           \
        plan->n_##field = (uint32_t)p->vec.n;                                                      \
        plan->field = df_arena_copy(arena, p->vec.at, p->vec.n * sizeof *p->vec.at, 8);            \
        ok &= plan->field != NULL;                                                                 \
    } while (0)
    COPY(slots, slots);
    COPY(guards, guards);
    COPY(kernels, kernels);
    COPY(segs, segs);
    COPY(launches, launches);
    COPY(bufs, bufs);
    COPY(regions, regions);
    COPY(from, from);
    COPY(why, whys);
    COPY(copied, copied);
#undef COPY
    plan->n_inputs = p->t->n_inputs;
    plan->n_repeated += p->n_repeated;
    if (p->n_checked > plan->n_checked) plan->n_checked = p->n_checked;
    plan->checks_first |= p->checks_first;
    if (has_indices(p->t) && !plan->faults) ok &= name_faults(p);
    ok = ok && find_sizes(p);
    return ok ? DEFT_OK : df_fail_mem(p->diag, "plan", plan->n_slots * sizeof *plan->slots);
}

/* Fills in plan->root_buf. */
static deft_status roots_out(pass *p)
{
    df_plan *const plan = p->plan;
    plan->n_roots = p->t->n_roots;
    plan->root_buf = df_arena_new(&plan->arena, df_buf, plan->n_roots);
    if (!plan->root_buf)
        return df_fail_mem(p->diag, "plan", plan->n_roots * sizeof *plan->root_buf);
    for (uint32_t r = 0; r < plan->n_roots; r++)
        plan->root_buf[r] = df_fuse_place_buf(p, val_at(p, p->root_val[r])->place);
    return p->st;
}

/* Guards the sizes of cells. What the plans within parts may take was computed from these sizes. */
static void guard_cells(pass *p)
{
    const df_plan *const plan = p->plan;
    const int64_t bytes_now = df_plan_temporary_bytes(plan, p->now.at);
    if (p->st == DEFT_OK && (uint64_t)bytes_now > p->t->max_temporary_bytes)
        p->st = df_fail(p->diag, DEFT_E_MEMORY,
                        "at most %llu bytes of temporaries are allowed, and loops that are one "
                        "kernel take %lld",
                        (unsigned long long)p->t->max_temporary_bytes, (long long)bytes_now);
    for (uint32_t c = 0; c < plan->n_cells && p->st == DEFT_OK; c++) {
        const df_slot bytes = plan->cells[c].bytes;
        if (p->slots.at[bytes.i].op != DF_SLOT_const)
            df_fuse_guard_slot(p, DF_GUARD_is_const, bytes, p->now.at[bytes.i]);
    }
}

static deft_status plan_run_passes(pass *p)
{
    deft_status st;
    if (!df_fuse_slots_init(p)) return p->st;
    if (df_has_control(p->t)) {
        TRY(df_fuse_outline(p));
        if (p->restarts) return p->st;
        if (p->t->max_temporary_bytes && p->part_most) guard_cells(p);
        TRY(p->st);
        return df_fuse_copy_out(p);
    }
    TRY(find_live(p));
    TRY(df_fuse_dims(p));
    TRY(df_fuse_find_windows(p));
    TRY(df_fuse_find_reshapes(p));
    TRY(df_fuse_find_joined(p));
    TRY(df_fuse_groups(p));
    TRY(df_fuse_places(p));
    TRY(df_fuse_launches(p));
    df_fuse_donors(p);
    if (p->fuse) df_fuse_tail(p);
    TRY(df_fuse_memory(p));
    if (p->fuse) TRY(df_fuse_postpone(p));
    TRY(df_fuse_keep(p));
    TRY(df_fuse_checked(p));
    TRY(df_fuse_bodies(p));
    TRY(roots_out(p));
    TRY(df_fuse_regions(p));
    TRY(p->st);
    TRY(df_fuse_copy_out(p));
done:
    return st;
}

void df_fuse_end(pass *p)
{
    const df_mem *const mem = p->mem;
    df_vec_finish(mem, &p->slots);
    df_vec_finish(mem, &p->now);
    df_vec_finish(mem, &p->guards);
    df_vec_finish(mem, &p->maps);
    df_vec_finish(mem, &p->regions_of_loops);
    df_vec_finish(mem, &p->cls_parent);
    df_vec_finish(mem, &p->cls_node);
    df_vec_finish(mem, &p->cls_axis);
    df_vec_finish(mem, &p->windows);
    df_vec_finish(mem, &p->vals);
    df_vec_finish(mem, &p->heads);
    df_vec_finish(mem, &p->groups);
    df_vec_finish(mem, &p->places);
    df_vec_finish(mem, &p->loads);
    df_vec_finish(mem, &p->edges);
    df_vec_finish(mem, &p->val_stack);
    df_vec_finish(mem, &p->group_stack);
    df_vec_finish(mem, &p->whys);
    df_vec_finish(mem, &p->copied);
    df_vec_finish(mem, &p->kernels);
    df_vec_finish(mem, &p->segs);
    df_vec_finish(mem, &p->launches);
    df_vec_finish(mem, &p->bufs);
    df_vec_finish(mem, &p->regions);
    df_vec_finish(mem, &p->from);
    df_table_finish(&p->slot_index, mem);
    df_table_finish(&p->guard_index, mem);
    df_table_finish(&p->map_index, mem);
    df_table_finish(&p->region_index, mem);
    df_table_finish(&p->kernel_index, mem);
    df_table_finish(&p->why_index, mem);
    df_cone_finish(&p->c, mem);
    df_arena_finish(&p->tmp);
}

deft_status df_fuse_begin(pass *p, df_diag *d, const df_trace *t, const df_limits *limits,
                          const df_mem *mem, bool fuse, df_plan **out)
{
    memset(p, 0, sizeof *p);
    p->diag = d;
    p->t = t;
    p->lim = limits;
    p->mem = mem;
    p->fuse = fuse;
    p->st = DEFT_OK;
    df_arena_init(&p->tmp, mem);
    p->plan = *out = df_mem_zalloc(mem, sizeof **out);
    if (!p->plan) return df_fail_mem(d, "plan", sizeof **out);
    df_arena_init(&p->plan->arena, mem);
    return DEFT_OK;
}

/* What the first attempt at a plan of parts finds out for the second.
 *
 * The bytes of temporaries that each plan within a part may take are known only after the parts
 * have been planned once without a bound, because cells and states around a plan count too. */
typedef struct part_bounds {
    uint64_t *most; /* by df_subplan.serial; NULL: not known yet */
    uint32_t n;
    bool keeps_parts; /* the parts cannot be joined into one plan */
} part_bounds;

/* Computes the bounds. Fails with DEFT_E_MEMORY when cells alone take more than the trace allows.
 */
static deft_status find_bounds(const pass *p, part_bounds *b)
{
    const df_plan *const plan = p->plan;
    b->n = p->n_fused + 1;
    b->most = df_mem_zalloc(p->mem, b->n * sizeof *b->most);
    if (!b->most) return df_fail_mem(p->diag, "fuser", b->n * sizeof *b->most);
    for (uint32_t i = 0; i < plan->n_parts; i++) {
        const int64_t around = df_fuse_around_bytes(plan, i, p->now.at);
        const uint64_t most = p->t->max_temporary_bytes;
        const df_subplan *const side[2] = { &plan->parts[i].body, &plan->parts[i].other };
        if ((uint64_t)around >= most)
            return df_fail(p->diag, DEFT_E_MEMORY,
                           "at most %llu bytes of temporaries are allowed, and %lld pass between "
                           "part %u of %u and others: states and rows of loops are always kept",
                           (unsigned long long)most, (long long)around, i, plan->n_parts);
        for (uint32_t k = 0; k < 2; k++)
            if (side[k]->plan && side[k]->serial != DF_NONE)
                b->most[side[k]->serial] = most - (uint64_t)around;
    }
    return DEFT_OK;
}

/* Makes one plan. Fills in *bounds if they are needed and not known. *out is set only on success.
 * It stays NULL, too, when the parts of a plan cannot be joined as planned. Then
 * bounds->keeps_parts is set, and the next attempt succeeds. */
static deft_status attempt(df_diag *d, const df_trace *t, const df_limits *limits,
                           const df_mem *mem, bool fuse, part_bounds *bounds, df_plan **out)
{
    pass p;
    df_plan *plan;
    deft_status st = df_fuse_begin(&p, d, t, limits, mem, fuse, &plan);
    if (st != DEFT_OK) return st;
    p.part_most = bounds->most;
    p.keeps_parts = bounds->keeps_parts;
    st = plan_run_passes(&p);
    if (st == DEFT_OK) st = p.st;
    bounds->keeps_parts |= p.restarts;
    if (st == DEFT_OK && t->max_temporary_bytes && plan->n_parts > 0 && !bounds->most)
        st = find_bounds(&p, bounds);
    /* In every build: an unsound plan must never run, and checking costs little beside planning.
     * df_fuse then falls back to one kernel per operator. */
    if (st == DEFT_OK && fuse && !p.restarts) st = df_plan_verify(d, plan);
    df_fuse_end(&p);
    if (st == DEFT_OK && !p.restarts) {
        *out = plan;
        return st;
    }
    df_plan_destroy(&plan, mem);
    return st;
}

/* Makes the reason for one kernel per operator the only entry of plan->why. */
static deft_status note_retreat(df_diag *d, df_plan *plan, const char *reason)
{
    df_why *const w = df_arena_new(&plan->arena, df_why, 1);
    char *const text = df_arena_strdup(&plan->arena, reason);
    if (!w || !text) return df_fail_mem(d, "plan", sizeof *w);
    *w = (df_why){ .a = DF_NONE, .b = DF_NONE, .what = "not fused at all", .reason = text };
    plan->why = w;
    plan->n_why = 1;
    plan->retreated = true;
    return DEFT_OK;
}

/* Makes a plan within the bound on temporaries. A plan of parts with such a bound is made twice. */
static deft_status in_bounds(df_diag *d, const df_trace *t, const df_limits *limits,
                             const df_mem *mem, bool fuse, df_plan **out)
{
    part_bounds b = { 0 };
    deft_status st = attempt(d, t, limits, mem, fuse, &b, out);
    if (st == DEFT_OK && !*out) st = attempt(d, t, limits, mem, fuse, &b, out);
    if (st == DEFT_OK && b.most) {
        df_plan_destroy(out, mem);
        st = attempt(d, t, limits, mem, fuse, &b, out);
    }
    df_mem_free(mem, b.most, b.n * sizeof *b.most);
    return st;
}

deft_status df_fuse(df_diag *d, const df_trace *t, const df_limits *limits, const df_mem *mem,
                    df_plan **out)
{
    const bool fuse = limits->fuse && !(t->flags & DF_TRACE_NOFUSE);
    df_limits l = *limits;
    if (l.max_body == 0) l.max_body = DF_MAX_BODY;
    if (!fuse) l.max_body = DF_MAX_BODY;
    *out = NULL;
    deft_status st = in_bounds(d, t, &l, mem, fuse, out);
    if (st == DEFT_E_INTERNAL && fuse) {
        char reason[DF_DIAG_TEXT] = "";
        if (d) memcpy(reason, d->text, sizeof reason);
        df_diag_clear(d);
        st = in_bounds(d, t, &l, mem, false, out);
        if (st == DEFT_OK) st = note_retreat(d, *out, reason);
        if (st != DEFT_OK) df_plan_destroy(out, mem);
    }
    return st;
}
