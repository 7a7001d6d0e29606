/* SPDX-License-Identifier: Apache-2.0
 *
 * Notes and records of contexts: notes.h. The fields are those of docs/trace-format.md.
 */
#include "lazy/log/notes.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lazy/core/devices.h"
#include "lazy/files/store.h"
#include "runtime/os.h"

/* The texts of a plan with more records are left out, because they would fill the queue. */
enum { MOST_RECORDS = 65536 };

static uint64_t note_word(const char *text)
{
    return (uint64_t)(uintptr_t)text;
}

static uint64_t note_outcome(deft_status st)
{
    return note_word(st == DEFT_OK ? "ok" : deft_status_text(st));
}

static uint64_t id_of(const df_plan *p)
{
    return p ? df_plan_id(p->owner, p->number) : 0;
}

/* ---- plans ---- */

static void write_plan_kernels(df_str *s, const df_plan *p)
{
    char name[DF_KERNEL_NAME];
    df_json_open(s, "kernels", '[');
    for (uint32_t i = 0; i < p->n_kernels; i++) {
        df_json_open(s, NULL, '{');
        df_kernel_name(&p->kernels[i], name);
        df_json_text(s, "kernel", name);
        df_json_text(s, "ops", p->about ? p->about[i].ops : NULL);
        df_json_site(s, "site", p->about ? p->about[i].site : 0);
        df_json_close(s, '}');
    }
    df_json_close(s, ']');
}

static const char *segment_kind_name(const df_seg *seg)
{
    switch ((df_seg_kind)seg->kind) {
    case DF_SEG_KERNEL: return "kernel";
    case DF_SEG_MATMUL: return "matmul";
    case DF_SEG_ROUTINE: return "routine";
    }
    return NULL;
}

static void write_plan_launch(df_str *s, const df_plan *p, const df_launch *l)
{
    df_json_open(s, NULL, '[');
    for (uint32_t i = l->first; i < l->first + l->n; i++) {
        const df_seg *const seg = &p->segs[i];
        df_json_open(s, NULL, '{');
        df_json_text(s, "kind", segment_kind_name(seg));
        if (seg->kernel.i == DF_NONE)
            df_json_text(s, "kernel", NULL);
        else
            df_json_count(s, "kernel", seg->kernel.i);
        df_json_open(s, "records", '[');
        for (uint32_t k = 0; k < seg->n_from; k++) df_json_count(s, NULL, p->from[seg->from + k]);
        df_json_close(s, ']');
        df_json_close(s, '}');
    }
    df_json_close(s, ']');
}

/* The first and the last launch that use a buffer; last < first: none does. */
typedef struct range {
    uint32_t first, last;
} range;

static void touch(range *ranges, uint32_t launch, const df_bind *bind)
{
    if (bind->buf.i == DF_NONE) return;
    range *const r = &ranges[bind->buf.i];
    r->first = r->first < launch ? r->first : launch;
    r->last = launch;
}

static void touch_all(range *ranges, uint32_t launch, const df_plan *p, const df_seg *seg)
{
    const uint32_t n = seg->kernel.i == DF_NONE ? 0 : p->kernels[seg->kernel.i].n_access;
    for (uint32_t i = 0; i < n; i++) touch(ranges, launch, &seg->bind[i]);
    if (seg->kind == DF_SEG_KERNEL) return;
    touch(ranges, launch, &seg->a);
    touch(ranges, launch, &seg->c);
    touch(ranges, launch, &seg->b);
    for (uint32_t i = 0; seg->call && i < seg->call->n_in; i++)
        touch(ranges, launch, &seg->call->in[i].bind);
    for (uint32_t i = 0; seg->call && i < seg->call->n_out; i++)
        touch(ranges, launch, &seg->call->out[i].bind);
}

static void find_ranges(range *ranges, const df_plan *p)
{
    for (uint32_t i = 0; i < p->n_bufs; i++) ranges[i] = (range){ .first = UINT32_MAX };
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const df_launch *const l = &p->launches[i];
        for (uint32_t k = 0; k < l->n; k++) touch_all(ranges, i, p, &p->segs[l->first + k]);
    }
}

static void write_count_or_null(df_str *s, const char *key, bool has, uint32_t n)
{
    if (has)
        df_json_count(s, key, n);
    else
        df_json_text(s, key, NULL);
}

static void write_plan_buffer(df_str *s, const df_plan *p, uint32_t i, const int64_t *slots,
                              const range *r)
{
    static const char *const kinds[] = { "input", "result", "into", "temporary" };
    const df_plan_buf *const b = &p->bufs[i];
    df_json_open(s, NULL, '{');
    df_json_text(s, "kind", kinds[b->kind]);
    df_json_count(s, "index", b->index);
    df_json_text(s, "dtype", deft_dtype_name(b->dtype));
    df_json_count(s, "bytes", (uint64_t)slots[b->numel.i] * deft_dtype_size(b->dtype));
    write_count_or_null(s, "donor", b->donor != DF_NONE, b->donor);
    write_count_or_null(s, "first", r->first <= r->last, r->first);
    write_count_or_null(s, "last", r->first <= r->last, r->last);
    df_json_close(s, '}');
}

static void write_plan_memory(df_str *s, const df_plan *p, const int64_t *slots)
{
    range *const ranges = df_mem_alloc(s->mem, (p->n_bufs + 1) * sizeof *ranges);
    s->ok &= ranges != NULL;
    if (!ranges) return;
    find_ranges(ranges, p);
    df_json_open(s, "buffers", '[');
    for (uint32_t i = 0; i < p->n_bufs; i++) write_plan_buffer(s, p, i, slots, &ranges[i]);
    df_json_close(s, ']');
    df_json_open(s, "regions", '[');
    for (uint32_t i = 0; i < p->n_regions; i++)
        df_json_count(s, NULL, (uint64_t)slots[p->regions[i].bytes.i]);
    df_json_close(s, ']');
    df_json_open(s, "part_of", '[');
    for (uint32_t i = 0; i < p->n_regions; i++)
        write_count_or_null(s, NULL, p->regions[i].outer != DF_NONE, p->regions[i].outer);
    df_json_close(s, ']');
    df_mem_free(s->mem, ranges, (p->n_bufs + 1) * sizeof *ranges);
}

/* Writes the plans within a plan, or the plan itself when it has no parts, in the order
 * of df_plan_each. */
static void write_plan_blocks(df_str *s, const df_plan *p, const int64_t *slots)
{
    for (uint32_t i = 0; i < p->n_parts; i++) {
        const df_subplan *const sub[] = { &p->parts[i].body, &p->parts[i].other };
        for (size_t k = 0; k < DF_LEN(sub); k++)
            if (sub[k]->plan) write_plan_blocks(s, sub[k]->plan, slots + sub[k]->slot0);
    }
    if (p->n_parts) return;
    df_json_open(s, NULL, '{');
    write_plan_kernels(s, p);
    df_json_open(s, "launches", '[');
    for (uint32_t i = 0; i < p->n_launches; i++) write_plan_launch(s, p, &p->launches[i]);
    df_json_close(s, ']');
    write_plan_memory(s, p, slots);
    df_json_close(s, '}');
}

static void write_plan_text(df_str *s, const char *key, df_str *text)
{
    df_json_textn(s, key, text->at ? text->at : "", text->n);
    s->ok &= text->ok; /* a part of the text would look complete */
    text->n = 0;
}

static void write_plan_texts(df_str *s, const df_trace *t, const df_plan *p)
{
    df_str text;
    df_str_init(&text, s->mem);
    df_trace_print(&text, t);
    write_plan_text(s, "trace", &text);
    df_json_open(s, "record_sites", '[');
    for (uint32_t k = 0; k < t->n_nodes; k++) df_json_site(s, NULL, t->site ? t->site[k] : 0);
    df_json_close(s, ']');
    df_guard_print(&text, p->guards, p->n_guards, p->slots, t);
    write_plan_text(s, "guards", &text);
    df_plan_print(&text, p, t);
    write_plan_text(s, "plan_text", &text);
    df_why_print(&text, p, t);
    write_plan_text(s, "why", &text);
    df_str_finish(&text);
}

void df_log_plan(deft_ctx *cx, const df_cut *m, const df_plan *p, uint32_t n_misses,
                 const df_phases *phases)
{
    df_journal *const j = cx->rt->journal;
    char key[40];
    df_str s;
    snprintf(key, sizeof key, "%016llx%016llx", (unsigned long long)m->key.hash.hi,
             (unsigned long long)m->key.hash.lo);
    df_record_begin(&s, j, "plan", cx->id);
    df_record_plan(&s, "plan", id_of(p));
    df_json_site(&s, "site", p->site);
    df_json_text(&s, "reason", cx->act);
    df_json_text(&s, "cache", n_misses ? "guards_missed" : "key_missed");
    df_json_count(&s, "guards_missed", n_misses);
    df_json_text(&s, "key", key);
    df_json_count(&s, "key_bytes", m->key.n);
    df_json_count(&s, "records", m->t->n_nodes);
    df_json_count(&s, "inputs", m->t->n_inputs);
    df_json_count(&s, "results", m->t->n_roots);
    df_json_count(&s, "parts", p->n_parts);
    df_json_text(&s, "retreat", p->retreated ? df_plan_retreat(p) : NULL);
    df_json_count(&s, "simplify_ns", phases->simplify_ns);
    df_json_count(&s, "fuse_ns", phases->fuse_ns);
    df_json_count(&s, "prepare_ns", phases->prepare_ns);
    if (m->t->n_nodes <= MOST_RECORDS) {
        df_json_open(&s, "blocks", '[');
        write_plan_blocks(&s, p, cx->slots.at);
        df_json_close(&s, ']');
        write_plan_texts(&s, m->t, p);
    }
    df_record_end(&s, j);
}

static deft_status store_inputs(deft_ctx *cx, df_diag *d, const df_cut *m, const char *name,
                                char folder[DF_JOURNAL_FOLDER], uint64_t *bytes)
{
    df_store s;
    df_lent lent;
    int dir = -1;
    deft_status st = df_cut_lend(cx, d, m, &lent);
    if (st != DEFT_OK) return st;
    st = df_store_init(&s, d, cx->mem, &lent.t);
    if (st == DEFT_OK) st = df_journal_folder(cx->rt->journal, d, s.bytes, folder, &dir);
    if (st == DEFT_OK) st = df_store_write(&s, d, dir, name);
    if (dir >= 0) close(dir);
    *bytes = s.bytes;
    df_store_finish(&s);
    df_lent_drop(cx, &lent);
    return st;
}

void df_log_inputs(deft_ctx *cx, const df_cut *m)
{
    const df_plan *const p = df_plan_held(m->plan);
    char name[32], folder[DF_JOURNAL_FOLDER], path[sizeof name + sizeof folder + 16];
    uint64_t bytes = 0;
    df_diag d = { 0 };
    df_str s;
    const uint64_t start = df_os_now_ns();
    snprintf(name, sizeof name, "%u.%u", p->owner, p->number);
    const bool ok = store_inputs(cx, &d, m, name, folder, &bytes) == DEFT_OK;
    df_record_begin(&s, cx->rt->journal, "inputs", cx->id);
    df_record_plan(&s, "plan", id_of(p));
    if (ok) snprintf(path, sizeof path, "%s/%s.safetensors", folder, name);
    df_json_text(&s, "file", ok ? path : NULL);
    if (ok) snprintf(path, sizeof path, "%s/%s.trace", folder, name);
    df_json_text(&s, "trace_file", ok ? path : NULL);
    df_json_count(&s, "inputs", m->t->n_inputs);
    df_json_count(&s, "bytes", bytes);
    df_json_count(&s, "elapsed_ns", df_os_now_ns() - start);
    df_json_text(&s, "left_out", ok ? NULL : d.text);
    df_record_end(&s, cx->rt->journal);
}

static void write_miss_note(deft_ctx *cx, const df_plan *p, const char *kind, const char *field,
                            const char *expected, const char *found)
{
    df_str s;
    df_record_begin(&s, cx->rt->journal, "miss", cx->id);
    df_record_plan(&s, "plan", id_of(p));
    df_json_site(&s, "site", cx->act_site);
    df_json_text(&s, "kind", kind);
    df_json_text(&s, "field", field);
    df_json_text(&s, "expected", expected);
    df_json_text(&s, "found", found);
    df_record_end(&s, cx->rt->journal);
}

void df_log_miss(deft_ctx *cx, const df_plan *p, const df_guard *g, const df_trace *t,
                 const int64_t *slots)
{
    df_str field, expected, found;
    const char *kind = NULL;
    df_str_init(&field, cx->mem);
    df_str_init(&expected, cx->mem);
    df_str_init(&found, cx->mem);
    df_guard_parts(g, t, p->slots, slots, &kind, &field, &expected, &found);
    write_miss_note(cx, p, kind, field.at, expected.at, found.at);
    df_str_finish(&field);
    df_str_finish(&expected);
    df_str_finish(&found);
}

void df_log_key_miss(deft_ctx *cx, const char *field, const char *expected, const char *found)
{
    write_miss_note(cx, NULL, "key", field, expected[0] ? expected : NULL, found[0] ? found : NULL);
}

/* ---- cuts ---- */

void df_log_prepared(deft_ctx *cx, bool plan_hit, uint64_t plan_ns)
{
    cx->cut_notes.reason = cx->act;
    cx->cut_notes.site = cx->act_site;
    cx->cut_notes.plan_ns = plan_ns;
    cx->cut_notes.plan_hit = plan_hit;
}

static void log_error(deft_ctx *cx, const char *reason, uintptr_t site, deft_status st,
                      const char *message)
{
    df_str s;
    df_record_begin(&s, cx->rt->journal, "error", cx->id);
    df_json_text(&s, "reason", reason);
    df_json_site(&s, "site", site);
    df_json_text(&s, "status", deft_status_text(st));
    df_json_text(&s, "message", message);
    df_record_end(&s, cx->rt->journal);
    cx->cut_notes.failed = true;
}

void df_log_cut(deft_ctx *cx, const df_cut *m, const df_run_stats *run, uint64_t run_ns,
                const df_diag *failed)
{
    const deft_status st = failed ? failed->status : DEFT_OK;
    const df_cut_notes *const told = &cx->cut_notes;
    const df_note_cut note = { .serial = cx->stats.cuts,
                               .reason = note_word(told->reason),
                               .site = told->site,
                               .plan = id_of(df_plan_held(m->plan)),
                               .matched = cx->matched,
                               .plan_hit = told->plan_hit,
                               .records = m->t->n_nodes,
                               .results = m->t->n_roots,
                               .launches = run->launches,
                               .segments = run->segments,
                               .interpreted_segments = run->interpreted_segments,
                               .donated = run->donated,
                               .allocated_bytes = run->bytes_allocated,
                               .extract_ns = told->extract_ns,
                               .plan_ns = told->plan_ns,
                               .run_ns = run_ns,
                               .launches_ns = run->t_run_ns,
                               .status = note_outcome(st) };
    df_ring_log(cx->ring, DF_NOTE_cut, &note);
    if (failed) log_error(cx, told->reason, told->site, st, failed->text);
}

void df_log_sync(deft_ctx *cx)
{
    const df_note_sync note = { .reason = note_word(cx->act),
                                .site = cx->act_site,
                                .plan = id_of(df_plan_held(cx->last_plan)),
                                .records = cx->last->n_nodes - cx->last->n_inputs,
                                .step_site = cx->step_at ? cx->scope[cx->step_at].site : 0 };
    df_ring_log(cx->ring, DF_NOTE_sync, &note);
}

void df_log_recompute(deft_ctx *cx, const df_cut *m)
{
    const df_note_recompute note = { .site = cx->act_site,
                                     .plan = id_of(df_plan_held(m->plan)),
                                     .records = m->n_again,
                                     .first_site = m->t->site ? m->t->site[m->first_again] : 0 };
    df_ring_log(cx->ring, DF_NOTE_recompute, &note);
}

void df_log_replay(deft_ctx *cx, const df_cut *m, uintptr_t capture_site, uint32_t recording,
                   uint32_t n_in, uint32_t n_out, deft_status st)
{
    const df_note_replay note = { .site = cx->act_site,
                                  .capture_site = capture_site,
                                  .plan = id_of(df_plan_held(m->plan)),
                                  .recording = recording,
                                  .inputs = n_in,
                                  .outputs = n_out,
                                  .status = note_outcome(st) };
    df_ring_log(cx->ring, DF_NOTE_replay, &note);
}

/* ---- steps, labels ---- */

void df_log_step_begin(deft_ctx *cx)
{
    const df_scope_entry *const f = &cx->scope[cx->step_at];
    const df_note_step_begin note = { .serial = f->serial, .site = f->site };
    cx->cut_notes.failed = false;
    df_ring_log(cx->ring, DF_NOTE_step_begin, &note);
}

void df_log_step_end(deft_ctx *cx, const char *reason, deft_status st)
{
    const df_allocator_stats a = df_allocator_read(cx->rt->dev->allocator);
    const df_scope_entry *const f = &cx->scope[cx->step_at];
    const df_note_step_end note = { .serial = f->serial,
                                    .reason = note_word(reason),
                                    .site = f->site,
                                    .records = cx->rec.n - cx->step_n,
                                    .live_bytes = a.live_bytes,
                                    .peak_bytes = a.peak_bytes,
                                    .cached_bytes = a.cached_bytes,
                                    .system_allocations = a.system_allocations,
                                    .status = note_outcome(st) };
    df_ring_log(cx->ring, DF_NOTE_step_end, &note);
    if (st != DEFT_OK && !cx->cut_notes.failed) log_error(cx, reason, f->site, st, cx->diag.text);
}

void df_log_label(deft_ctx *cx, uintptr_t site, bool begins)
{
    const df_note_label_begin begin = { .site = site, .depth = cx->n_labels };
    const df_note_label_end end = { .depth = cx->n_labels };
    if (begins)
        df_ring_log(cx->ring, DF_NOTE_label_begin, &begin);
    else
        df_ring_log(cx->ring, DF_NOTE_label_end, &end);
}
