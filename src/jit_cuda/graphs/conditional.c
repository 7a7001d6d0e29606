/* SPDX-License-Identifier: Apache-2.0
 *
 * One run of a construct: its plans, their layouts, and where its memory is. The graph tree
 * sees the run as one call. Results that leave the construct are outputs of the call. All
 * else is in its arena:
 *
 *   | iterations | results nobody reads | roots beside their states | arenas of both plans |
 */
#include "jit_cuda/graphs/conditional.h"

#include <string.h>

enum { ALIGN = 256 };

/* ---- the plans of a construct ---- */

static int64_t state_bytes(const df_flow_construct *w, uint32_t k)
{
    return w->slots[w->plan->cells[w->part->init[k]].bytes.i];
}

/* Whether a root may be written over the state that its iteration reads: nothing else may
 * read that state. */
static bool is_over_state(const df_cuda_side *s, const df_flow_construct *w, df_buf buf)
{
    const df_plan_buf *const b = &s->call.plan->bufs[buf.i];
    if (b->donor == DF_NONE || s->port[b->donor].kind != DF_PORT_STATE) return false;
    const uint32_t k = s->port[b->donor].index;
    for (uint32_t i = 0; i < s->t.n_inputs; i++)
        if (i != b->donor && s->port[i].kind == DF_PORT_STATE && s->port[i].index == k)
            return false;
    return s->call.plan->root_buf[k].i == buf.i &&
           df_bind_bytes(b, s->call.slots) == state_bytes(w, k);
}

static void choose_places(df_cuda_side *s, const df_flow_construct *w, bool is_test)
{
    const df_plan *const plan = s->call.plan;
    const bool is_loop = w->part->kind == DF_PART_LOOP;
    for (uint32_t i = 0; i < plan->n_bufs; i++) s->of[i] = DF_NONE;
    for (uint32_t r = plan->n_roots; r-- > 0 && !is_test;) {
        const df_buf buf = plan->root_buf[r];
        if (!is_loop)
            s->of[buf.i] = r;
        else if (is_over_state(s, w, buf))
            s->of[buf.i] = s->port[plan->bufs[buf.i].donor].index;
    }
}

/* Sets the addresses of all buffers of a plan. Addresses that are not known yet are given
 * as DF_CUDA_NOWHERE, which has their alignment. */
static void set_origins(df_cuda_side *s, char *const *dest, char *count, char *arena)
{
    const df_plan *const plan = s->call.plan;
    for (uint32_t i = 0; i < s->t.n_inputs; i++) {
        if (s->port[i].kind == DF_PORT_STATE) s->t.inputs[i].data = dest[s->port[i].index];
        if (s->port[i].kind == DF_PORT_NUMBER) s->t.inputs[i].data = count;
    }
    for (uint32_t i = 0; i < plan->n_bufs; i++) {
        const df_plan_buf *const b = &plan->bufs[i];
        char **const origin = &s->call.f->origin[i];
        switch ((df_buf_kind)b->kind) {
        case DF_BUF_INPUT:
        case DF_BUF_INTO: *origin = s->t.inputs[b->index].data; break;
        case DF_BUF_ROOT: *origin = s->of[i] == DF_NONE ? arena + s->at[i] : dest[s->of[i]]; break;
        case DF_BUF_TEMP:
            *origin =
                (char *)DF_CUDA_NOWHERE + df_plan_region_offset(plan, s->call.slots, b->index);
            break;
        }
    }
}

static deft_status open_side(df_cuda_conditional *w, df_diag *d, df_arena *arena,
                             const df_subplan *b, df_input *inputs, df_cuda_side *s)
{
    deft_status st = DEFT_OK;
    const df_flow_construct *const f = w->w;
    s->port = b->port;
    s->t = b->trace;
    s->t.inputs = inputs;
    s->t.site = f->t->site;
    s->t.extents = f->t->extents;
    s->t.n_extents = f->t->n_extents;
    s->t.args = f->t->args;
    s->t.n_args = f->t->n_args;
    s->call = (df_cuda_call){ .c = w->c,
                              .d = d,
                              .plan = b->plan,
                              .t = &s->t,
                              .slots = f->slots + b->slot0,
                              .io = f->io,
                              .q = w->q,
                              .whole = w };
    s->of = df_arena_new(arena, uint32_t, b->plan->n_bufs + 1);
    s->at = df_arena_new(arena, int64_t, b->plan->n_bufs + 1);
    s->call.f = df_cuda_call_take_frame(&s->call);
    if (!s->of || !s->at || !s->call.f) return df_fail_mem(d, "run", sizeof *s);
    memset(s->at, 0, b->plan->n_bufs * sizeof *s->at);
    choose_places(s, f, w->is_loop && s == &w->other);
    set_origins(s, w->dest, (char *)DF_CUDA_NOWHERE, (char *)DF_CUDA_NOWHERE);
    if (df_cuda_run_layout_fits(s->call.f, b->plan, s->call.slots, false) &&
        !df_cuda_run_layout_is_outdated(s->call.f, w->c))
        return DEFT_OK;
    TRY(df_cuda_run_layout_build(s->call.f, d, w->c, df_gpu_facts_of(w->c->gpu), b->plan, &s->t,
                                 s->call.slots, false));
    TRY(df_cuda_run_layout_load(s->call.f, d, w->c, b->plan, f->io->waiter));
done:
    return st;
}

static void close_side(df_cuda_side *s)
{
    if (s->call.f) df_cuda_call_give_frame(&s->call, s->call.f);
}

/* ---- memory ---- */

static int64_t take(df_cuda_conditional *w, int64_t bytes)
{
    const int64_t at = w->arena_bytes;
    w->arena_bytes += (bytes + ALIGN - 1) & ~(int64_t)(ALIGN - 1);
    return at;
}

static bool leaves(const df_cuda_conditional *w, uint32_t i)
{
    return w->w->part->out[i] != DF_NONE;
}

static int64_t dest_bytes(const df_cuda_conditional *w, uint32_t i)
{
    const df_plan *const plan = w->body.call.plan;
    if (leaves(w, i)) return w->w->slots[w->w->plan->cells[w->w->part->out[i]].bytes.i];
    return df_bind_bytes(&plan->bufs[plan->root_buf[i].i], w->body.call.slots);
}

static void lay_out_side(df_cuda_conditional *w, df_cuda_side *s)
{
    const df_plan *const plan = s->call.plan;
    for (uint32_t i = 0; i < plan->n_bufs; i++)
        if (plan->bufs[i].kind == DF_BUF_ROOT && s->of[i] == DF_NONE)
            s->at[i] = take(w, df_bind_bytes(&plan->bufs[i], s->call.slots));
    s->arena_at = take(w, df_cuda_call_arena_bytes(&s->call));
}

void df_cuda_conditional_assign(df_cuda_conditional *w)
{
    w->count_at = take(w, w->is_loop ? sizeof(int64_t) : 0);
    for (uint32_t i = 0; i < w->n_dest; i++)
        if (!leaves(w, i)) w->dest_at[i] = take(w, dest_bytes(w, i));
    lay_out_side(w, &w->body);
    lay_out_side(w, &w->other);
}

deft_status df_cuda_conditional_prepare(df_cuda_conditional *w)
{
    deft_status st = DEFT_OK;
    df_diag *const d = w->body.call.d;
    for (uint32_t i = 0; i < w->n_dest; i++) {
        if (!leaves(w, i)) continue;
        TRY(df_gpu_borrower(w->q, d, &w->lent[i]));
        w->out[w->n_out++] = (df_tree_out){ .bytes = (uint64_t)dest_bytes(w, i) };
    }
done:
    return st;
}

deft_status df_cuda_conditional_aim(df_cuda_conditional *w, char *base, const uint64_t *offset,
                                    char *arena)
{
    deft_status st = DEFT_OK;
    uint32_t k = 0;
    w->other.call.d = w->body.call.d;
    for (uint32_t i = 0; i < w->n_dest; i++) {
        w->dest[i] = arena + w->dest_at[i];
        if (!leaves(w, i)) continue;
        const uint64_t at = offset[k++];
        if (at == DF_TREE_OUTSIDE && !w->own[i])
            TRY(df_gpu_buffer(w->q, w->body.call.d, dest_bytes(w, i), &w->own[i]));
        w->dest[i] = at == DF_TREE_OUTSIDE ? (char *)w->own[i]->data : base + at;
    }
    w->count = arena + w->count_at;
    for (df_cuda_side *s = &w->body; s; s = s == &w->body ? &w->other : NULL) {
        set_origins(s, w->dest, w->count, arena);
        df_cuda_call_divide(&s->call);
        TRY(df_cuda_call_fill(&s->call, arena + s->arena_at));
    }
    w->holds = w->other.call.f->origin[w->other.call.plan->root_buf[0].i];
done:
    return st;
}

deft_status df_cuda_conditional_put_tables(df_cuda_conditional *w)
{
    w->other.call.d = w->body.call.d;
    const deft_status st = df_cuda_call_put_table(&w->body.call);
    return st == DEFT_OK ? df_cuda_call_put_table(&w->other.call) : st;
}

/* ---- the construct ---- */

static uint64_t variant_of(const df_cuda_side *s, uint64_t h)
{
    const df_cuda_run_layout *const f = s->call.f;
    for (uint32_t i = 0; i < f->n_slots; i++) h = df_mix(h, (uint64_t)s->call.slots[i]);
    for (uint32_t i = 0; i < f->n_bufs; i++) h = df_mix(h, f->low[i]);
    return h;
}

uint64_t df_cuda_conditional_variant(const df_cuda_conditional *w)
{
    return variant_of(&w->other, variant_of(&w->body, w->n_dest));
}

static bool make_room(df_cuda_conditional *w, df_arena *arena)
{
    const uint32_t n = w->n_dest + 1;
    w->dest = df_arena_new(arena, char *, n);
    w->dest_at = df_arena_new(arena, int64_t, n);
    w->lent = df_arena_new(arena, df_buffer *, n);
    w->own = df_arena_new(arena, df_buffer *, n);
    w->out = df_arena_new(arena, df_tree_out, n);
    if (!w->dest || !w->dest_at || !w->lent || !w->own || !w->out) return false;
    for (uint32_t i = 0; i < n; i++) {
        w->dest[i] = (char *)DF_CUDA_NOWHERE;
        w->dest_at[i] = 0;
        w->lent[i] = w->own[i] = NULL;
    }
    return true;
}

deft_status df_cuda_conditional_open(df_cuda_conditional *w, df_diag *d, df_arena *arena)
{
    deft_status st = DEFT_OK;
    const df_part *const part = w->w->part;
    if (!make_room(w, arena)) return df_fail_mem(d, "run", w->n_dest * sizeof *w->out);
    TRY(open_side(w, d, arena, &part->body, w->w->body, &w->body));
    TRY(open_side(w, d, arena, &part->other, w->w->other, &w->other));
done:
    return st;
}

void df_cuda_conditional_close(df_cuda_conditional *w)
{
    for (uint32_t i = 0; w->own && i < w->n_dest; i++) {
        df_buffer_drop(&w->lent[i]);
        df_buffer_drop(&w->own[i]);
    }
    close_side(&w->body);
    close_side(&w->other);
}
