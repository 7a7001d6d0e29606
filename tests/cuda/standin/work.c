/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams, events, and the work in them. A stream is a queue; its first piece of work may be done
 * at any time, but a wait for an event only when the mark it was recorded at is. Marks are made
 * before what waits for them, so running what a wait needs ends. What holds a stream back until a
 * word is written is waited for in earnest, as another thread may write it.
 *
 * The default stream and those that are not CU_STREAM_NON_BLOCKING wait for one another: what comes
 * into one is put in after the other side was run to its end, which is one of the orders allowed.
 */
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NON_BLOCKING = 1, DISABLE_TIMING = 2, BLOCKING_SYNC = 1 };

typedef struct event {
    object o;
    bool no_timing;
    mark *last;
} event;

static struct {
    stream defaults[STANDIN_MOST_GPUS];
    long n_work, fail_at;
    int fail_code;
    uint64_t clock;
} w;

/* ---- marks and work ---- */

static mark *mark_keep(mark *m)
{
    if (m) m->refs++;
    return m;
}

mark *mark_new(stream *in)
{
    mark *const m = grab(sizeof *m);
    *m = (mark){ .refs = 1, .in = in };
    return m;
}

void mark_drop(mark *m)
{
    if (m && --m->refs == 0) free(m);
}

op *mark_op(op_kind k, mark *m)
{
    op *const o = grab(sizeof *o);
    *o = (op){ .kind = k, .gpu = current(), .mark = mark_keep(m) };
    return o;
}

op *op_copy(const op *o)
{
    op *const c = grab(sizeof *c);
    *c = *o;
    c->next = NULL;
    mark_keep(c->mark);
    run_keep(c->in_run);
    c->inner = inner_copy(o->inner);
    if (!o->bytes) return c;
    c->bytes = grab(o->n_bytes);
    memcpy(c->bytes, o->bytes, o->n_bytes);
    if (o->kind == OP_COPY && o->src.at == (uint64_t)(uintptr_t)o->bytes)
        c->src.at = (uint64_t)(uintptr_t)c->bytes;
    return c;
}

void op_free(op *o)
{
    if (!o) return;
    mark_drop(o->mark);
    run_drop(o->in_run);
    inner_drop(o->inner);
    free(o->bytes);
    free(o);
}

const char *op_name(const op *o)
{
    switch (o->kind) {
    case OP_COPY: return "copy";
    case OP_SET: return "fill";
    case OP_KERNEL: return fn_name(o->fn);
    case OP_RECORD: return "event";
    case OP_WAIT: return "wait";
    case OP_CALL: return o->what;
    case OP_EMPTY: return "nothing";
    case OP_DECIDE: return o->turns ? "while" : "if";
    }
    return "";
}

/* ---- doing it ---- */

void poison(int ordinal, int code)
{
    gpu *const g = gpu_of(ordinal);
    if (!g->poison) g->poison = code;
}

static int run_call(const op *o)
{
    return o->run(o->bytes);
}

static int run_op(const op *o)
{
    switch (o->kind) {
    case OP_COPY: return run_copy(o);
    case OP_SET: return run_set(o);
    case OP_KERNEL: return guard(run_kernel, o);
    case OP_CALL: return guard(run_call, o);
    case OP_RECORD:
        o->mark->is_done = true;
        o->mark->time = w.clock;
        return 0;
    case OP_WAIT:
    case OP_DECIDE:
    case OP_EMPTY: return 0;
    }
    return 0;
}

static const char *stream_name(const stream *s)
{
    return object_name(s->o.number ? s : NULL);
}

/* Any thread may write the word, without a call. */
static bool is_held(const op *o)
{
    if (o->kind != OP_WAIT || o->mark) return false;
    const volatile uint32_t *const word = (const volatile uint32_t *)(uintptr_t)o->dst.at;
    return (int32_t)(*word - o->value) < 0;
}

static void run_first(stream *s)
{
    op *const o = s->first;
    while (is_held(o)) (void)usleep(50);
    if (o->kind == OP_WAIT && o->mark)
        while (!o->mark->is_done) run_first(o->mark->in);
    s->first = o->next;
    if (!s->first) s->end = &s->first;
    w.clock += 1 + chance(4);
    const bool is_order = o->kind == OP_RECORD || o->kind == OP_WAIT;
    int code = 0;
    if (is_order || !gpu_of(o->gpu)->poison) {
        if (!is_order && ++w.n_work == w.fail_at) code = w.fail_code;
        record_work("%s %s%s", stream_name(s), op_name(o), code ? " fails, as asked" : "");
        if (!code) code = o->kind == OP_DECIDE ? decide(s, o) : run_op(o);
        if (code) poison(o->gpu, code);
    }
    op_free(o);
}

void run_stream(stream *s)
{
    while (s->first) run_first(s);
}

/* The at-th stream, the default ones first; NULL: no more. */
static stream *stream_next(uint32_t *at)
{
    if (*at < STANDIN_MOST_GPUS) return &w.defaults[(*at)++];
    uint32_t i = *at - STANDIN_MOST_GPUS;
    stream *const s = object_next(STREAM, &i);
    *at = i + STANDIN_MOST_GPUS;
    return s;
}

void run_gpu(int ordinal)
{
    stream *s;
    uint32_t at = 0;
    while ((s = stream_next(&at)))
        if (s->o.gpu == ordinal) run_stream(s);
}

static bool may_go(const stream *s)
{
    return s->first && !is_held(s->first) &&
           (s->first->kind != OP_WAIT || !s->first->mark || s->first->mark->is_done);
}

void run_some(void)
{
    if (mode() == STANDIN_LATE) return;
    stream *s;
    uint32_t at = 0, n = 0;
    while ((s = stream_next(&at))) {
        while (mode() == STANDIN_EAGER && s->first && !is_held(s->first)) run_first(s);
        n += may_go(s);
    }
    if (n == 0 || chance(2)) return;
    uint32_t which = chance(n);
    at = 0;
    while ((s = stream_next(&at)))
        if (may_go(s) && which-- == 0) break;
    for (uint32_t left = 1 + chance(3); s && left && may_go(s); left--) run_first(s);
}

/* ---- putting it in ---- */

stream *stream_get(const void *handle)
{
    if ((uintptr_t)handle > 2) return object_get(STREAM, handle);
    if ((uintptr_t)handle == 2) {
        misuse(0, "the stand-in knows no default stream of threads");
        return NULL;
    }
    stream *const s = &w.defaults[current()];
    if (!s->end) *s = (stream){ .o = { STREAM, true, current(), 0 }, .end = &s->first };
    return s;
}

static void wait_for_other_side(const stream *s)
{
    stream *t;
    uint32_t at = 0;
    while ((t = stream_next(&at))) {
        if (t->o.gpu != s->o.gpu || !t->first) continue;
        if (s->o.number == 0 ? t->o.number && t->is_blocking : s->is_blocking && !t->o.number)
            run_stream(t);
    }
}

int put_work(stream *s, op *o)
{
    if (s->capture) return capture_work(s, o);
    wait_for_other_side(s);
    *s->end = o;
    s->end = &o->next;
    while (mode() == STANDIN_EAGER && s->first && !is_held(s->first)) run_first(s);
    return 0;
}

/* Events, too: the stand-in captures none. */
int refuse_capture(stream *s)
{
    if (!s->capture) return 0;
    s->is_broken = true;
    return misuse(BAD_CAPTURE, "%s is being captured", stream_name(s));
}

bool is_captured(void)
{
    stream *s;
    uint32_t at = 0;
    while ((s = stream_next(&at)))
        if (s->o.alive && s->capture && s->capture_mode != 2) return true;
    return false;
}

static bool overlaps(const op *o, const side *s, uint64_t p, uint64_t n)
{
    const uint64_t all = ((o->depth - 1) * s->height + o->height - 1) * s->pitch + o->width;
    return s->at < p + n && p < s->at + all;
}

static bool speaks_of(const op *o, uint64_t p, uint64_t n)
{
    for (size_t i = 0; i + 8 <= o->n_bytes; i += 8) {
        uint64_t word;
        memcpy(&word, (const char *)o->bytes + i, sizeof word);
        if (word - p < n) return true;
    }
    return false;
}

typedef struct range {
    uint64_t p, n;
    bool is_host;
} range;

static bool uses_range(const op *o, const void *user);

static bool uses(const op *o, uint64_t p, uint64_t n, bool is_host)
{
    switch (o->kind) {
    case OP_COPY:
        return (o->dst.is_host == is_host && overlaps(o, &o->dst, p, n)) ||
               (o->src.is_host == is_host && overlaps(o, &o->src, p, n));
    case OP_SET: return !is_host && overlaps(o, &o->dst, p, n);
    case OP_WAIT:
        return !o->mark && is_host && o->dst.at < p + n && p < o->dst.at + sizeof(uint32_t);
    case OP_KERNEL:
    case OP_CALL: return speaks_of(o, p, n);
    case OP_DECIDE: return plan_find(o->inner, uses_range, &(range){ p, n, is_host });
    case OP_RECORD:
    case OP_EMPTY: return false;
    }
    return false;
}

static bool uses_range(const op *o, const void *user)
{
    const range *const r = user;
    return uses(o, r->p, r->n, r->is_host);
}

const op *work_on(uint64_t p, uint64_t n, bool is_host)
{
    stream *s;
    uint32_t at = 0;
    while ((s = stream_next(&at)))
        for (const op *o = s->first; o; o = o->next)
            if (uses(o, p, n, is_host)) return o;
    return NULL;
}

static bool is_of(const op *o, const void *module)
{
    if (o->kind == OP_DECIDE) return plan_find(o->inner, is_of, module);
    return o->kind == OP_KERNEL && module_of(o->fn) == module;
}

const op *work_of(const object *module)
{
    stream *s;
    uint32_t at = 0;
    while ((s = stream_next(&at)))
        for (const op *o = s->first; o; o = o->next)
            if (is_of(o, module)) return o;
    return NULL;
}

/* ---- streams ---- */

df_cu_result cuStreamCreate(df_cu_stream *out, unsigned flags)
{
    const int r = enter(C_cuStreamCreate, NEEDS_CONTEXT);
    if (r) return r;
    if (flags & ~(unsigned)NON_BLOCKING) return leave(misuse(BAD_VALUE, "flags %u", flags));
    stream *const s = object_new(STREAM, current(), sizeof *s);
    s->is_blocking = !(flags & NON_BLOCKING);
    s->end = &s->first;
    *out = handle_of(s);
    record(" %s", object_name(s));
    return leave(0);
}

df_cu_result cuStreamDestroy_v2(df_cu_stream handle)
{
    const int r = enter(C_cuStreamDestroy_v2, NEEDS_CONTEXT);
    if (r) return r;
    stream *const s = object_get(STREAM, handle);
    if (!s) return leave(BAD_HANDLE);
    record(" %s", object_name(s));
    if (s->capture) misuse(0, "%s is being captured", object_name(s));
    run_stream(s);
    s->o.alive = false;
    return leave(0);
}

df_cu_result cuStreamSynchronize(df_cu_stream handle)
{
    const int r = enter(C_cuStreamSynchronize, NEEDS_CONTEXT);
    if (r) return r;
    stream *const s = stream_get(handle);
    if (!s) return leave(BAD_HANDLE);
    record(" %s", stream_name(s));
    if (refuse_capture(s)) return leave(BAD_CAPTURE);
    wait_for_other_side(s);
    run_stream(s);
    return leave(gpu_of(current())->poison);
}

df_cu_result cuStreamQuery(df_cu_stream handle)
{
    const int r = enter(C_cuStreamQuery, NEEDS_CONTEXT);
    if (r) return r;
    stream *const s = stream_get(handle);
    if (!s) return leave(BAD_HANDLE);
    record(" %s", stream_name(s));
    if (refuse_capture(s)) return leave(BAD_CAPTURE);
    if (s->first && !is_held(s->first)) run_first(s);
    const int bad = gpu_of(current())->poison;
    return leave(bad ? bad : s->first ? DF_CU_NOT_READY : 0);
}

df_cu_result cuStreamWaitValue32_v2(df_cu_stream handle, df_cu_ptr at, uint32_t value,
                                    unsigned flags)
{
    const int r = enter(C_cuStreamWaitValue32_v2, NEEDS_CONTEXT);
    if (r) return r;
    stream *const s = stream_get(handle);
    if (!s) return leave(BAD_HANDLE);
    record(" %s until %s is %u", stream_name(s), host_name((const void *)(uintptr_t)at), value);
    if (refuse_capture(s)) return leave(BAD_CAPTURE);
    if (flags) return leave(misuse(BAD_VALUE, "flags %u", flags));
    if (!pinned_at((const void *)(uintptr_t)at, sizeof value))
        return leave(misuse(BAD_VALUE, "the word is not in pinned memory"));
    op *const o = grab(sizeof *o);
    *o = (op){ .kind = OP_WAIT, .gpu = current(), .dst = { true, at, 0, 0 }, .value = value };
    return leave(put_work(s, o));
}

/* ---- events ---- */

df_cu_result cuEventCreate(df_cu_event *out, unsigned flags)
{
    const int r = enter(C_cuEventCreate, NEEDS_CONTEXT);
    if (r) return r;
    if (flags & ~(unsigned)(BLOCKING_SYNC | DISABLE_TIMING))
        return leave(misuse(BAD_VALUE, "flags %u", flags));
    event *const e = object_new(EVENT, current(), sizeof *e);
    e->no_timing = flags & DISABLE_TIMING;
    *out = handle_of(e);
    record(" %s", object_name(e));
    return leave(0);
}

df_cu_result cuEventDestroy_v2(df_cu_event handle)
{
    const int r = enter(C_cuEventDestroy_v2, NEEDS_CONTEXT);
    if (r) return r;
    event *const e = object_get(EVENT, handle);
    if (!e) return leave(BAD_HANDLE);
    record(" %s", object_name(e));
    mark_drop(e->last);
    e->last = NULL;
    e->o.alive = false;
    return leave(0);
}

df_cu_result cuEventRecord(df_cu_event handle, df_cu_stream where)
{
    const int r = enter(C_cuEventRecord, NEEDS_CONTEXT);
    if (r) return r;
    stream *const s = stream_get(where);
    event *const e = object_get(EVENT, handle);
    if (!s || !e) return leave(BAD_HANDLE);
    record(" %s in %s", object_name(e), stream_name(s));
    if (refuse_capture(s)) return leave(BAD_CAPTURE);
    mark_drop(e->last);
    e->last = mark_new(s);
    return leave(put_work(s, mark_op(OP_RECORD, e->last)));
}

df_cu_result cuStreamWaitEvent(df_cu_stream where, df_cu_event handle, unsigned flags)
{
    const int r = enter(C_cuStreamWaitEvent, NEEDS_CONTEXT);
    if (r) return r;
    stream *const s = stream_get(where);
    event *const e = object_get_any(EVENT, handle);
    if (!s || !e) return leave(BAD_HANDLE);
    record(" %s for %s", stream_name(s), object_name(e));
    if (flags) return leave(misuse(BAD_VALUE, "flags %u", flags));
    if (refuse_capture(s)) return leave(BAD_CAPTURE);
    return leave(e->last ? put_work(s, mark_op(OP_WAIT, e->last)) : 0);
}

df_cu_result cuEventQuery(df_cu_event handle)
{
    const int r = enter(C_cuEventQuery, NEEDS_CONTEXT);
    if (r) return r;
    event *const e = object_get_any(EVENT, handle);
    if (!e) return leave(BAD_HANDLE);
    record(" %s", object_name(e));
    if (e->last && !e->last->is_done && !is_held(e->last->in->first)) run_first(e->last->in);
    const int bad = gpu_of(current())->poison;
    return leave(bad ? bad : e->last && !e->last->is_done ? DF_CU_NOT_READY : 0);
}

df_cu_result cuEventSynchronize(df_cu_event handle)
{
    const int r = enter(C_cuEventSynchronize, NEEDS_CONTEXT);
    if (r) return r;
    event *const e = object_get_any(EVENT, handle);
    if (!e) return leave(BAD_HANDLE);
    record(" %s", object_name(e));
    while (e->last && !e->last->is_done) run_first(e->last->in);
    return leave(gpu_of(current())->poison);
}

df_cu_result cuEventElapsedTime(float *ms, df_cu_event from, df_cu_event to)
{
    const int r = enter(C_cuEventElapsedTime, NEEDS_CONTEXT);
    if (r) return r;
    event *const a = object_get(EVENT, from), *const b = object_get(EVENT, to);
    if (!a || !b) return leave(BAD_HANDLE);
    if (!a->last || !b->last || a->no_timing || b->no_timing)
        return leave(misuse(BAD_HANDLE, "an event was not recorded, or has no time"));
    if (!a->last->is_done || !b->last->is_done) return leave(DF_CU_NOT_READY);
    *ms = ((float)b->last->time - (float)a->last->time) / 1000;
    return leave(0);
}

/* ---- control ---- */

void standin_fail_work(long n, int code)
{
    w.fail_at = w.n_work + n;
    w.fail_code = code;
}

long standin_n_work(void)
{
    return w.n_work;
}

void work_reset(void)
{
    stream *s;
    uint32_t at = 0;
    while ((s = stream_next(&at)))
        while (s->first) {
            op *const o = s->first;
            s->first = o->next;
            op_free(o);
        }
    event *e;
    at = 0;
    while ((e = object_next(EVENT, &at))) mark_drop(e->last);
    memset(&w, 0, sizeof w);
}
