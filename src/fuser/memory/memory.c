/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers and regions. The live range of a buffer goes from the first launch that writes it to the
 * last that reads it. Temporaries whose live ranges do not overlap may share a region of the arena
 * of temporaries (pack.c). A region is as large as the largest of its buffers at run time, or as
 * its parts together.
 */
#include "base/size_class.h"
#include "fuser/fuse.h"

static df_buf add_buf(pass *p, df_plan_buf b)
{
    if (!df_vec_push(p->mem, &p->bufs, b)) p->st = df_fail_mem(p->diag, "fuser", sizeof b);
    return p->st == DEFT_OK ? (df_buf){ (uint32_t)p->bufs.n - 1 } : (df_buf){ 0 };
}

df_buf df_fuse_place_buf(pass *p, place_id at)
{
    storage *const q = place_at(p, at);
    if (!IS_NONE(q->buf)) return q->buf;
    const uint32_t kind = q->kind == STORAGE_ROOT   ? DF_BUF_ROOT
                          : q->kind == STORAGE_INTO ? DF_BUF_INTO
                                                    : DF_BUF_TEMP;
    const df_slot numel = df_fuse_numel(p, q->node);
    const df_buf over = IS_NONE(q->over) ? DF_NO_BUF : df_fuse_place_buf(p, q->over);
    q->buf = add_buf(p, (df_plan_buf){ .kind = kind,
                                       .index = kind == DF_BUF_TEMP ? DF_NONE : q->index,
                                       .dtype = (deft_dtype)node_of(p, q->node)->dtype,
                                       .numel = numel,
                                       .donor = q->donor,
                                       .keep = q->keep,
                                       .first = q->first,
                                       .last = q->last,
                                       .over = over });
    return q->buf;
}

df_buf df_fuse_input_buf(pass *p, uint32_t input)
{
    if (!IS_NONE(p->in_buf[input])) return p->in_buf[input];
    const uint32_t node = p->t->inputs[input].node;
    return p->in_buf[input] =
               add_buf(p, (df_plan_buf){ .kind = DF_BUF_INPUT,
                                         .index = input,
                                         .dtype = (deft_dtype)node_of(p, node)->dtype,
                                         .numel = df_fuse_numel(p, node),
                                         .donor = DF_NONE,
                                         .over = DF_NO_BUF });
}

/* Extends the live range of a place to this launch. */
static void lives_at(storage *q, uint32_t launch)
{
    if (launch < q->first) q->first = launch;
    if (launch > q->last) q->last = launch;
}

/* The launch of the call of which `node` is a further result. */
static uint32_t memory_call_level(const pass *p, uint32_t node)
{
    const val_id call = p->node_val[node_of(p, node)->src[0].i];
    return group_at(p, val_at(p, call)->group)->level;
}

static void live_ranges(pass *p)
{
    for (place_id i = { 0 }; i.i < p->places.n; i.i++) {
        place_at(p, i)->first = UINT32_MAX;
        place_at(p, i)->last = 0;
    }
    for (val_id v = { 0 }; v.i < p->vals.n; v.i++) {
        const val *const w = val_at(p, v);
        storage *const q = place_at(p, w->place);
        const group *const g = group_at(p, w->group);
        lives_at(q, g->level);
        if (g->kind == DF_SEG_ROUTINE && node_of(p, g->node)->op == DF_OP_result)
            lives_at(q, memory_call_level(p, g->node));
        for (group_id f = w->frames; !IS_NONE(f); f = group_at(p, f)->next_frame)
            lives_at(q, group_at(p, f)->level);
        for (load_id l = w->readers; !IS_NONE(l); l = load_at(p, l)->next)
            lives_at(q, group_at(p, load_at(p, l)->group)->level);
    }
}

deft_status df_fuse_memory(pass *p)
{
    p->in_buf =
        df_arena_alloc(&p->tmp, (p->t->n_inputs + 1) * sizeof *p->in_buf, _Alignof(uint32_t));
    if (!p->in_buf) return df_fail_mem(p->diag, "fuser", p->t->n_inputs * sizeof *p->in_buf);
    for (uint32_t i = 0; i <= p->t->n_inputs; i++) p->in_buf[i] = DF_NO_BUF;
    live_ranges(p);
    return p->st;
}

/* ---- regions: after the bodies have named the buffers ---- */

static int64_t bytes_now(const pass *p, const df_plan_buf *b)
{
    return p->now.at[b->numel.i] * (int64_t)deft_dtype_size(b->dtype);
}

static df_slot bytes_slot(pass *p, const df_plan_buf *b)
{
    return df_fuse_mul(p, b->numel, df_fuse_const(p, (int64_t)deft_dtype_size(b->dtype)));
}

/* Puts buffer b into region `at`, which becomes as large as the largest of its buffers. */
static void take_region(pass *p, uint32_t b, uint32_t at, uint32_t outer)
{
    const df_slot bytes = bytes_slot(p, &p->bufs.at[b]);
    p->bufs.at[b].index = at;
    if (p->st != DEFT_OK) return;
    if (p->regions.n > at) {
        df_region *const r = &p->regions.at[at];
        r->bytes = df_fuse_max(p, r->bytes, bytes);
    } else if (!df_vec_push(p->mem, &p->regions, ((df_region){ bytes, outer }))) {
        p->st = df_fail_mem(p->diag, "fuser", sizeof(df_region));
    }
}

/* Lists the live ranges of temporaries. Those that are stored over each other count as one. */
static uint32_t list_lives(const pass *p, df_life *life)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < p->bufs.n; b++) {
        const df_plan_buf *const w = &p->bufs.at[b];
        if (w->kind == DF_BUF_TEMP && w->over.i == DF_NONE)
            life[n++] = (df_life){ bytes_now(p, w), w->first, w->last, b, 0, DF_NONE };
    }
    for (uint32_t b = 0; b < p->bufs.n; b++) {
        const df_plan_buf *const w = &p->bufs.at[b];
        if (w->over.i != DF_NONE) df_life_extend(life, n, w->over.i, w->last);
    }
    return n;
}

/* The bytes of all regions that lie beside each other in region `outer`, or in the arena. */
static df_slot bytes_within(pass *p, uint32_t outer)
{
    df_slot sum = SLOT_ZERO;
    for (uint32_t r = 0; r < p->regions.n && p->st == DEFT_OK; r++)
        if (p->regions.at[r].outer == outer)
            sum = df_fuse_add(p, sum, df_fuse_round_up(p, p->regions.at[r].bytes, DF_REGION_ALIGN));
    return sum;
}

/* At other sizes than those of this trace, the parts of a region may need more than its buffers. */
static void hold_parts(pass *p)
{
    for (uint32_t r = 1; r < p->regions.n && p->st == DEFT_OK; r++) {
        const uint32_t outer = p->regions.at[r].outer;
        bool known = outer == DF_NONE;
        for (uint32_t i = 0; i < r && !known; i++) known = p->regions.at[i].outer == outer;
        if (known) continue;
        const df_slot parts = bytes_within(p, outer);
        p->regions.at[outer].bytes = df_fuse_max(p, p->regions.at[outer].bytes, parts);
    }
}

/* Guards the bytes of temporaries when they are bounded. The plan serves only sizes at which the
 * bound holds, unless no size can exceed it. A plan that computes values again serves no smaller
 * sizes: there it could keep them. */
static void guard_total(pass *p, int64_t total)
{
    const uint64_t most = df_size_class_within(p->t->max_temporary_bytes);
    const df_slot sum = bytes_within(p, DF_NONE);
    if (p->st != DEFT_OK || p->slots.at[sum.i].op == DF_SLOT_const) return;
    df_assert(p->now.at[sum.i] == total);
    if (most <= INT64_MAX) df_fuse_guard_slot(p, DF_GUARD_at_most, sum, (int64_t)most);
    if (p->n_repeated) df_fuse_guard_slot(p, DF_GUARD_at_least, sum, total);
}

deft_status df_fuse_regions(pass *p)
{
    int64_t total;
    df_life *const life = df_arena_new(&p->tmp, df_life, p->bufs.n + 1);
    if (!life) return df_fail_mem(p->diag, "fuser", p->bufs.n * sizeof *life);
    const uint32_t n = list_lives(p, life);
    const deft_status st = df_fuse_pack(p, life, n, &total);
    for (uint32_t i = 0; i < n && st == DEFT_OK; i++)
        take_region(p, life[i].who, life[i].region, life[i].outer);
    for (uint32_t b = 0; b < p->bufs.n && st == DEFT_OK; b++) {
        const df_buf over = p->bufs.at[b].over;
        if (over.i != DF_NONE) take_region(p, b, p->bufs.at[over.i].index, DF_NONE);
    }
    if (st == DEFT_OK) hold_parts(p);
    if (st == DEFT_OK && p->t->max_temporary_bytes) guard_total(p, total);
    return st == DEFT_OK ? p->st : st;
}
