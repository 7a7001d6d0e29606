/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds what follows from a plan, its slots and the alignment of its buffers: the launches
 * of the driver in order, and their words. Addresses and numbers of a run are recorded as
 * fixes, and filled in for each run.
 *
 *   table    0 0 0 - | words of the segments of a MANY launch | first blocks | ...
 *   params   words of a segment by value | a df_cuda_many | ...
 *
 * Segments of one launch of the plan that have one kernel and use one entry become one
 * launch of the driver (MANY). `partial` and SCRATCH rows live for one launch of the plan.
 * The next launch uses the same memory, because launches are in order.
 */
#include "jit_cuda/exec/layout.h"

#include <string.h>

#include "replay/tree.h"

/* ---- run layouts ---- */

df_cuda_run_layout *df_cuda_run_layout_create(const df_mem *mem, const df_plan *plan)
{
    df_cuda_run_layout *f = df_mem_zalloc(mem, sizeof *f);
    const size_t n_origins = plan->n_bufs + (size_t)DF_CUDA_N_ORIGINS;
    if (!f) return NULL;
    df_arena_init(&f->arena, mem);
    f->n_bufs = plan->n_bufs;
    f->n_slots = plan->n_slots;
    f->n_launches = plan->n_launches;
    f->slots = df_mem_alloc(mem, (f->n_slots + 1) * sizeof *f->slots);
    f->low = df_mem_alloc(mem, f->n_bufs + 1);
    f->origin = df_mem_zalloc(mem, n_origins * sizeof *f->origin);
    f->own = df_mem_zalloc(mem, (f->n_bufs + 1) * sizeof *f->own);
    f->end = df_mem_zalloc(mem, (f->n_launches + 1) * sizeof *f->end);
    f->lent = df_mem_zalloc(mem, (f->n_bufs + 1) * sizeof *f->lent);
    f->out = df_mem_zalloc(mem, (f->n_bufs + 1) * sizeof *f->out);
    if (!f->slots || !f->low || !f->origin || !f->own || !f->end || !f->lent || !f->out)
        df_cuda_run_layout_destroy(mem, &f);
    return f;
}

static void words_finish(const df_mem *mem, df_cuda_words *w)
{
    df_vec_finish(mem, &w->word);
    df_vec_finish(mem, &w->fix);
    df_vec_finish(mem, &w->num);
}

void df_cuda_run_layout_destroy(const df_mem *mem, df_cuda_run_layout **out)
{
    df_cuda_run_layout *const f = *out;
    *out = NULL;
    if (!f) return;
    df_mem_free(mem, f->slots, (f->n_slots + 1) * sizeof *f->slots);
    df_mem_free(mem, f->low, f->n_bufs + 1);
    df_mem_free(mem, f->origin, (f->n_bufs + (size_t)DF_CUDA_N_ORIGINS) * sizeof *f->origin);
    df_mem_free(mem, f->own, (f->n_bufs + 1) * sizeof *f->own);
    df_mem_free(mem, f->end, (f->n_launches + 1) * sizeof *f->end);
    df_mem_free(mem, f->lent, (f->n_bufs + 1) * sizeof *f->lent);
    df_mem_free(mem, f->out, (f->n_bufs + 1) * sizeof *f->out);
    df_cuda_jobs_clear(f);
    df_vec_finish(mem, &f->steps);
    df_vec_finish(mem, &f->uses);
    df_vec_finish(mem, &f->copies);
    df_vec_finish(mem, &f->jobs);
    df_vec_finish(mem, &f->job_fns);
    df_arena_finish(&f->arena);
    words_finish(mem, &f->table);
    words_finish(mem, &f->params);
    df_mem_free(mem, f, sizeof *f);
}

static uint8_t low_of(const df_cuda_run_layout *f, df_buf buf)
{
    return (uint8_t)((uintptr_t)f->origin[buf.i] % f->align);
}

bool df_cuda_run_layout_fits(const df_cuda_run_layout *f, const df_plan *plan, const int64_t *slots,
                             bool by_table)
{
    if (!f->is_laid_out || f->by_table != by_table ||
        memcmp(f->slots, slots, plan->n_slots * sizeof *slots) != 0)
        return false;
    for (df_buf i = { 0 }; i.i < f->n_bufs; i.i++)
        if (f->low[i.i] != low_of(f, i)) return false;
    return true;
}

bool df_cuda_run_layout_is_outdated(const df_cuda_run_layout *f, const df_cuda_device *c)
{
    return f->is_makeshift && f->arrived != df_cuda_background_arrived(c->later);
}

/* ---- building ---- */

/* A segment of a kernel, and whether it still needs a step. */
typedef struct item {
    const df_seg *seg;
    const df_kernel *k;
    df_kargs args;
    df_cuda_choice choice;
    int64_t partial, scratch; /* offsets in scratch memory */
    int64_t n_teams;          /* teams that have a scratch row for each access */
    bool is_done;
} item;

/* Bytes of one team's scratch row for access i. */
static int64_t access_row(const df_cuda_layout_builder *l, const item *s, uint32_t i)
{
    int64_t n = df_slot_value(l->slots, s->seg->bind[i].offset), n_red = 1;
    for (uint32_t x = 0; x < s->k->n_axes; x++)
        if (s->k->role[x] == DF_AXIS_RED) n_red *= s->args.extent[x];
    n = df_cuda_scratch_row(df_max_i64(df_max_i64(n, n_red), 1));
    return n * (int64_t)deft_dtype_size((deft_dtype)s->k->access[i].dtype);
}

static bool is_scratch_access(const df_kernel *k, uint32_t i)
{
    return k->access[i].kind == DF_ACCESS_SCRATCH;
}

static int64_t row_bytes(const df_cuda_layout_builder *l, const item *s)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < s->k->n_access; i++)
        if (is_scratch_access(s->k, i) && s->k->access[i].same_as == i) n += access_row(l, s, i);
    return s->choice.flags & DF_CUDA_HELD ? 0 : n;
}

/* Where the scratch rows of access `end` begin, behind the rows of the accesses before it. */
static int64_t rows_before(const df_cuda_layout_builder *l, const item *s, uint32_t end)
{
    int64_t n = 0;
    if (s->choice.flags & DF_CUDA_HELD) return 0;
    for (uint32_t i = 0; i < end; i++)
        if (is_scratch_access(s->k, i) && s->k->access[i].same_as == i)
            n += df_cuda_scratch_aligned(access_row(l, s, i) * s->n_teams);
    return n;
}

/* Binds the segment's arguments, at the addresses in f->origin, and chooses its entry. */
static deft_status bind_item(df_cuda_layout_builder *l, df_diag *d, item *s)
{
    const df_kernel *const k = s->k;
    const df_bound b = { .ptr = df_arena_new(&l->arena, char *, k->n_access + 1),
                         .stride = df_arena_new(&l->arena, int64_t, k->n_access * k->n_axes + 1),
                         .base = df_arena_new(&l->arena, int64_t, k->n_access + 1),
                         .extent = df_arena_new(&l->arena, int64_t, k->n_axes + 1),
                         .num = df_arena_new(&l->arena, uint64_t, k->n_num + 1) };
    if (!b.ptr || !b.stride || !b.base || !b.extent || !b.num)
        return df_fail_mem(d, "run", k->n_access * sizeof *b.ptr);
    df_bind_extents(&b, k, s->seg, l->slots);
    df_bind_addresses(&b, k, s->seg, l->slots, l->f->origin);
    df_bind_numbers(&b, k, s->seg, l->slots, l->t);
    s->args = (df_kargs){
        .ptr = b.ptr, .stride = b.stride, .base = b.base, .extent = b.extent, .num = b.num
    };
    s->choice = df_cuda_choose(l->gpu, k, &s->args);
    return df_cuda_fits(d, k, &s->args);
}

/* ---- words ---- */

typedef struct placing {
    const df_cuda_layout_builder *l;
    const item *s;
    df_cuda_words *to;
    uint32_t at; /* index of the segment's first word */
    bool ok;
} placing;

static void fix(placing *p, uint32_t at, uint32_t origin, int64_t add)
{
    p->ok =
        p->ok && df_vec_push(p->l->c->mem, &p->to->fix, ((df_cuda_fix){ p->at + at, origin, add }));
}

static void place_address(placing *p, uint32_t at, uint32_t access)
{
    const df_cuda_layout_builder *const l = p->l;
    const df_kernel *const k = p->s->k;
    const df_bind *const bind = &p->s->seg->bind[access];
    const int64_t size = (int64_t)deft_dtype_size((deft_dtype)k->access[access].dtype);
    int64_t add = df_slot_value(l->slots, bind->offset) * size;
    if (is_scratch_access(k, access)) {
        add = p->s->scratch + rows_before(l, p->s, k->access[access].same_as);
        fix(p, at, df_cuda_origin_of(l, DF_CUDA_ORIGIN_SCRATCH), add);
        return;
    }
    if (bind->buf.i == DF_NONE) return;
    const df_plan_buf *const buf = &l->plan->bufs[bind->buf.i];
    const bool is_temp = buf->kind == DF_BUF_TEMP;
    if (is_temp) add += df_plan_region_offset(l->plan, l->slots, buf->index);
    fix(p, at, is_temp ? df_cuda_origin_of(l, DF_CUDA_ORIGIN_TEMPS) : bind->buf.i, add);
}

static void place_number(placing *p, uint32_t at, uint32_t i)
{
    const uint32_t from = p->s->seg->num[i];
    if (from & DF_NUM_IS_SLOT) return; /* layouts are kept per slots, so the word is constant */
    p->ok = p->ok && df_vec_push(p->l->c->mem, &p->to->num, ((df_cuda_num){ p->at + at, from }));
}

static void place_word(void *user, uint32_t at, df_cuda_word w)
{
    placing *const p = user;
    switch ((df_cuda_word_kind)w.kind) {
    case DF_CUDA_WORD_PTR: place_address(p, at, w.access); break;
    case DF_CUDA_WORD_NUM: place_number(p, at, w.access); break;
    case DF_CUDA_WORD_FAULT: fix(p, at, df_cuda_origin_of(p->l, DF_CUDA_ORIGIN_TABLE), 0); break;
    case DF_CUDA_WORD_PARTIAL:
        fix(p, at, df_cuda_origin_of(p->l, DF_CUDA_ORIGIN_SCRATCH), p->s->partial);
        break;
    case DF_CUDA_WORD_BASE:
    case DF_CUDA_WORD_STRIDE:
    case DF_CUDA_WORD_EXTENT: break;
    }
}

static deft_status layout_add_words(const df_cuda_layout_builder *l, df_diag *d, const item *s,
                                    df_cuda_words *to)
{
    placing p = { .l = l, .s = s, .to = to, .at = (uint32_t)to->word.n, .ok = true };
    const uint32_t n = df_cuda_layout(s->k, NULL, NULL);
    const deft_status st = df_cuda_more_words(l, d, to, n);
    if (st != DEFT_OK) return st;
    df_cuda_fill(s->k, &s->args, to->word.at + p.at);
    df_cuda_layout(s->k, place_word, &p);
    return p.ok ? DEFT_OK : df_fail_mem(d, "run", n * sizeof(df_cuda_fix));
}

/* ---- segments of one launch ---- */

/* Segments of one kernel that use one entry. */
typedef struct group {
    item **item;
    uint32_t n;
    bool many;
    uint32_t words;    /* first word of the first segment: in the table with MANY, else in params */
    int64_t *n_blocks; /* per segment, in the current phase */
} group;

/* Divides the thread blocks that fill the GPU among the segments. Returns their sum. */
static int64_t share_blocks(const df_cuda_layout_builder *l, group *g, df_cuda_entry e,
                            uint32_t n_threads)
{
    const df_kernel *const k = g->item[0]->k;
    int64_t total = 0, sum = 0, most = INT64_MAX;
    for (uint32_t i = 0; i < g->n; i++) {
        const item *const s = g->item[i];
        g->n_blocks[i] = df_cuda_blocks(k, e, &s->args);
        total += df_min_i64(g->n_blocks[i], INT64_MAX / (g->n + 1));
        most = df_min_i64(most, df_cuda_most_blocks(l->gpu, e, n_threads, row_bytes(l, s)));
    }
    most = df_min_i64(most, df_cuda_fewer_blocks(l->gpu, k, e, total));
    for (uint32_t i = 0; i < g->n; i++) {
        const double part = (double)g->n_blocks[i] / (double)total;
        if (total > most)
            g->n_blocks[i] =
                df_min_i64(g->n_blocks[i], df_max_i64((int64_t)((double)most * part), 1));
        sum += g->n_blocks[i];
    }
    return sum;
}

/* With few rows, all warps of a thread block are worth having where they can work together. */
static void size_thread_block(const df_cuda_layout_builder *l, const group *g, df_cuda_entry e,
                              uint32_t *n_threads, uint32_t *shared)
{
    const uint32_t all = df_cuda_threads(g->item[0]->k, (df_cuda_pass)e.pass);
    int64_t blocks = 0, threads = 0, bytes = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const item *const s = g->item[i];
        threads = df_max_i64(threads, df_cuda_team_threads(s->k, e, &s->args));
        bytes = df_max_i64(bytes, df_cuda_shared_bytes(s->k, e, &s->args));
        blocks += df_min_i64(df_cuda_blocks(s->k, e, &s->args), l->gpu->n_sms);
    }
    *n_threads = threads > 32 && blocks < l->gpu->n_sms ? all : (uint32_t)threads;
    *shared = (uint32_t)bytes;
}

static void place_rows(df_cuda_layout_builder *l, const group *g, df_cuda_entry e)
{
    for (uint32_t i = 0; i < g->n; i++) {
        item *const s = g->item[i];
        s->n_teams = DF_CUDA_TEAMS(e) * g->n_blocks[i];
        s->scratch = df_cuda_take_scratch(l, rows_before(l, s, s->k->n_access));
        if (s->choice.split)
            s->partial = df_cuda_take_scratch(l, df_cuda_partial_words(s->k, &s->args) * 8);
    }
}

static deft_status layout_add_segments(df_cuda_layout_builder *l, df_diag *d, group *g)
{
    deft_status st = DEFT_OK;
    df_cuda_words *const to = g->many ? &l->f->table : &l->f->params;
    g->words = (uint32_t)to->word.n;
    for (uint32_t i = 0; i < g->n; i++) TRY(layout_add_words(l, d, g->item[i], to));
done:
    return st;
}

/* Appends the first thread block of each segment to the table, and a df_cuda_many to
 * params. */
static deft_status layout_add_many(df_cuda_layout_builder *l, df_diag *d, const group *g,
                                   uint32_t n_blocks, uint32_t *at)
{
    deft_status st = DEFT_OK;
    df_cuda_words *const table = &l->f->table, *const params = &l->f->params;
    const uint32_t first = (uint32_t)table->word.n;
    df_cuda_many many = { .n = g->n, .n_blocks = n_blocks };
    *at = (uint32_t)params->word.n;
    TRY(df_cuda_more_words(l, d, table, (g->n + 1) / 2));
    TRY(df_cuda_more_words(l, d, params, sizeof many / 8));
    uint32_t *const begin = (uint32_t *)(void *)(table->word.at + first);
    for (uint32_t i = 0, sum = 0; i < g->n; i++) {
        begin[i] = sum;
        sum += (uint32_t)g->n_blocks[i];
    }
    memcpy(params->word.at + *at, &many, sizeof many);
    TRY(df_cuda_param_fix(l, d, *at, DF_CUDA_ORIGIN_TABLE, (int64_t)g->words * 8));
    TRY(df_cuda_param_fix(l, d, *at + 1, DF_CUDA_ORIGIN_TABLE, (int64_t)first * 8));
done:
    return st;
}

static deft_status layout_add_pass(df_cuda_layout_builder *l, df_diag *d, group *g,
                                   df_cuda_pass pass)
{
    deft_status st = DEFT_OK;
    const item *const s = g->item[0];
    const df_cuda_entry e = df_cuda_entry_of(s->choice, pass, g->many);
    uint32_t n_threads, shared;
    size_thread_block(l, g, e, &n_threads, &shared);
    const int64_t n_blocks = share_blocks(l, g, e, n_threads);
    df_cuda_step step = { .seg = (uint32_t)(s->seg - l->plan->segs),
                          .kernel = s->seg->kernel,
                          .job = DF_NONE,
                          .entry = e,
                          .param = g->words,
                          .n_blocks = (uint32_t)n_blocks,
                          .n_threads = n_threads,
                          .shared = shared };
    if (pass != DF_CUDA_FIN) {
        place_rows(l, g, e);
        TRY(layout_add_segments(l, d, g));
        step.param = g->words;
    }
    step.n_words = df_cuda_layout(s->k, NULL, NULL);
    if (g->many) {
        step.n_words = sizeof(df_cuda_many) / 8;
        TRY(layout_add_many(l, d, g, step.n_blocks, &step.param));
    } else {
        l->f->n_spare += 1 + (pass == DF_CUDA_FIN ? 0 : step.n_words);
    }
    for (uint32_t i = 0; i < g->n; i++)
        TRY(df_cuda_use_accesses(l, d, g->item[i]->seg, g->item[i]->k));
    if (s->choice.split) TRY(df_cuda_use_scratch(l, d));
    TRY(df_cuda_add_step(l, d, &step));
done:
    return st;
}

/* Chooses one entry for all segments: a fallback, when theirs is not compiled. */
static void choose_together(df_cuda_layout_builder *l, group *g)
{
    df_cuda_choice choice = g->item[0]->choice;
    uint8_t facts = choice.flags & (DF_CUDA_NARROW | DF_CUDA_WIDE);
    for (uint32_t i = 0; i < g->n; i++)
        facts |= df_cuda_facts(g->item[i]->k, &g->item[i]->args) & DF_CUDA_LONG;
    df_cuda_use_fallback(l, g->item[0]->seg->kernel, facts, &choice, &g->many);
    for (uint32_t i = 0; i < g->n; i++) g->item[i]->choice = choice;
}

static deft_status layout_add_group(df_cuda_layout_builder *l, df_diag *d, group *g)
{
    deft_status st = DEFT_OK;
    const item *const s = g->item[0];
    g->many = l->f->by_table || g->n > 1 || !df_cuda_by_value(s->k);
    choose_together(l, g);
    g->n_blocks = df_arena_new(&l->arena, int64_t, g->n);
    if (!g->n_blocks) return df_fail_mem(d, "run", g->n * sizeof *g->n_blocks);
    if (!s->choice.split) return layout_add_pass(l, d, g, DF_CUDA_MAIN);
    TRY(layout_add_pass(l, d, g, DF_CUDA_PART));
    TRY(layout_add_pass(l, d, g, DF_CUDA_FIN));
done:
    return st;
}

/* ---- launches of the plan ---- */

static bool go_together(const item *a, const item *b)
{
    return a->seg->kernel.i == b->seg->kernel.i && a->choice.flags == b->choice.flags &&
           a->choice.split == b->choice.split;
}

static bool has_work(const item *s)
{
    const df_cuda_entry any = { .pass = DF_CUDA_MAIN };
    return df_cuda_blocks(s->k, any, &s->args) > 0;
}

/* Collects the segments that can be launched together with items[i]. */
static deft_status layout_collect_group(df_cuda_layout_builder *l, df_diag *d, item *items,
                                        uint32_t n, uint32_t i, group *g)
{
    *g = (group){ .item = df_arena_new(&l->arena, item *, n) };
    if (!g->item) return df_fail_mem(d, "run", n * sizeof *g->item);
    for (uint32_t j = i; j < n; j++) {
        if (items[j].is_done || !go_together(&items[i], &items[j])) continue;
        items[j].is_done = true;
        g->item[g->n++] = &items[j];
    }
    return DEFT_OK;
}

static deft_status bind_launch(df_cuda_layout_builder *l, df_diag *d, const df_launch *launch,
                               item *items)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < launch->n; i++) {
        item *const s = &items[i];
        s->seg = &l->plan->segs[launch->first + i];
        s->is_done = s->seg->kind != DF_SEG_KERNEL;
        if (s->is_done) continue;
        s->k = &l->plan->kernels[s->seg->kernel.i];
        TRY(bind_item(l, d, s));
        s->is_done = !has_work(s);
    }
done:
    return st;
}

/* Adds steps for the kernels of items [i, end). */
static deft_status layout_add_kernels(df_cuda_layout_builder *l, df_diag *d, item *items,
                                      uint32_t i, uint32_t end)
{
    deft_status st = DEFT_OK;
    for (; i < end; i++) {
        group g;
        if (items[i].is_done) continue;
        TRY(layout_collect_group(l, d, items, end, i, &g));
        TRY(layout_add_group(l, d, &g));
    }
done:
    return st;
}

/* Adds the steps of one launch of the plan. Kernels come first, then products and routines,
 * then the kernels that depend on those. */
static deft_status layout_add_launch(df_cuda_layout_builder *l, df_diag *d, const df_launch *launch)
{
    deft_status st = DEFT_OK;
    const uint32_t n_beside = launch->n - launch->n_after;
    df_arena_reset(&l->arena);
    l->scratch = 0;
    if (launch->n == 0) return DEFT_OK;
    item *const items = df_arena_new(&l->arena, item, launch->n);
    if (!items) return df_fail_mem(d, "run", launch->n * sizeof *items);
    TRY(bind_launch(l, d, launch, items));
    TRY(layout_add_kernels(l, d, items, 0, n_beside));
    for (uint32_t i = 0; i < launch->n; i++)
        if (items[i].seg->kind != DF_SEG_KERNEL)
            TRY(df_cuda_job_build(l, d, launch->first + i, false));
    for (uint32_t i = n_beside; i < launch->n; i++) TRY(layout_add_kernels(l, d, items, i, i + 1));
done:
    return st;
}

/* Adds steps that check the indices in inputs. They run before anything is overwritten,
 * when a run may overwrite something. */
static deft_status layout_add_checks(df_cuda_layout_builder *l, df_diag *d)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < l->plan->n_segs && l->plan->checks_first; i++) {
        const df_seg *const seg = &l->plan->segs[i];
        if (seg->kind != DF_SEG_ROUTINE || !df_bind_is_scatter(seg)) continue;
        if (l->plan->bufs[seg->a.buf.i].kind != DF_BUF_INPUT) continue;
        TRY(df_cuda_job_build(l, d, i, true));
    }
    l->f->n_first = (uint32_t)l->f->steps.n;
done:
    return st;
}

static void words_clear(df_cuda_words *w)
{
    w->word.n = w->fix.n = w->num.n = 0;
}

deft_status df_cuda_run_layout_build(df_cuda_run_layout *f, df_diag *d, df_cuda_device *c,
                                     const df_gpu_properties *gpu, const df_plan *plan,
                                     const df_trace *t, const int64_t *slots, bool by_table)
{
    deft_status st = DEFT_OK;
    df_cuda_layout_builder l = { .f = f, .c = c, .gpu = gpu, .plan = plan, .t = t, .slots = slots };
    df_arena_init(&l.arena, c->mem);
    f->is_laid_out = f->is_makeshift = false;
    f->arrived = df_cuda_background_arrived(c->later);
    f->by_table = by_table;
    f->n_spare = 0;
    f->steps.n = f->uses.n = 0;
    for (uint32_t i = 0; i < DF_CUDA_N_ORIGINS; i++)
        f->origin[f->n_bufs + i] = (char *)DF_CUDA_NOWHERE;
    f->scratch_bytes = 0;
    f->temps_bytes = df_plan_arena_bytes(plan, slots);
    words_clear(&f->table);
    words_clear(&f->params);
    df_cuda_jobs_clear(f);
    if (plan->n_checked > 0 || plan->checks_first)
        TRY(df_cuda_more_words(&l, d, &f->table, DF_CUDA_FAULT_WORDS));
    TRY(layout_add_checks(&l, d));
    for (uint32_t i = 0; i < plan->n_launches; i++) {
        TRY(layout_add_launch(&l, d, &plan->launches[i]));
        f->end[i] = (uint32_t)f->steps.n;
    }
    memcpy(f->slots, slots, plan->n_slots * sizeof *slots);
    f->align = df_cuda_jobs_align(f);
    for (df_buf i = { 0 }; i.i < f->n_bufs; i.i++) f->low[i.i] = low_of(f, i);
done:
    df_arena_finish(&l.arena);
    return st;
}
