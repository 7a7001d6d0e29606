/* SPDX-License-Identifier: Apache-2.0
 *
 * What a capture keeps of a run of its function. Facts are noted while the function
 * records (core/recorder.h). They are completed when the step has been committed and the
 * values from before still exist.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lazy/capture/capture.h"

/* ---- making and destroying ---- */

void df_recording_destroy(recording *r)
{
    if (!r) return;
    deft_ctx *const cx = r->capture->cx;
    for (size_t i = 0; i < r->held.n; i++) deft_drop(&r->held.at[i]);
    if (cx->last == r->made.t) cx->last = NULL;
    df_counted_drop(&r->made.plan);
    df_arena_finish(&r->made.arena);
    df_arena_finish(&r->own);
    df_vec_finish(cx->mem, &r->in_value);
    df_vec_finish(cx->mem, &r->reached);
    df_vec_finish(cx->mem, &r->seen);
    df_vec_finish(cx->mem, &r->places);
    df_vec_finish(cx->mem, &r->results);
    df_vec_finish(cx->mem, &r->wanted);
    df_vec_finish(cx->mem, &r->sources);
    df_vec_finish(cx->mem, &r->assigned);
    df_vec_finish(cx->mem, &r->outputs);
    df_vec_finish(cx->mem, &r->passed);
    df_vec_finish(cx->mem, &r->numbers);
    df_vec_finish(cx->mem, &r->layer_numbers);
    df_vec_finish(cx->mem, &r->counts);
    df_vec_finish(cx->mem, &r->draws);
    df_vec_finish(cx->mem, &r->rngs);
    df_vec_finish(cx->mem, &r->held);
    df_vec_finish(cx->mem, &r->found);
    df_vec_finish(cx->mem, &r->values);
    df_vec_finish(cx->mem, &r->want);
    df_mem_free(cx->mem, r, sizeof *r);
}

uint32_t df_recording_same(deft_tensor *const *in, uint32_t i)
{
    uint32_t j = 0;
    while (in[j] != in[i]) j++;
    return j;
}

uint32_t df_recording_held(const recording *r, const deft_tensor *t)
{
    if (!t->keeps) return DF_NONE; /* all of held are kept */
    for (size_t i = 0; i < r->held.n; i++)
        if (r->held.at[i] == t) return (uint32_t)i;
    return DF_NONE;
}

recording *df_recording_create(deft_capture *c, deft_tensor *const *in, size_t n_in, size_t n_out)
{
    const df_mem *const mem = c->cx->mem;
    recording *const r = df_mem_zalloc(mem, sizeof *r);
    if (!r) return NULL;
    r->capture = c;
    r->whole = true;
    r->mixed = c->cx->mixed;
    r->n_in = (uint32_t)n_in;
    r->n_out = (uint32_t)n_out;
    df_arena_init(&r->made.arena, mem);
    df_arena_init(&r->own, mem);
    r->in = df_arena_new(&r->own, deft_tensor *, n_in);
    r->out = df_arena_new(&r->own, deft_tensor *, n_out);
    r->caller = in;
    r->in_memory = df_arena_new(&r->own, bool, n_in);
    r->in_assigned = df_arena_new(&r->own, bool, n_in);
    r->same = df_arena_new(&r->own, uint32_t, n_in);
    r->in_held = df_arena_new(&r->own, uint32_t, n_in);
    r->in_shape = df_arena_new(&r->own, df_shape, n_in);
    r->in_dtype = df_arena_new(&r->own, uint8_t, n_in);
    r->in_face = df_arena_new(&r->own, uint8_t, n_in);
    r->out_face = df_arena_zalloc(&r->own, n_out, 1);
    if (!r->in || !r->out || !r->in_memory || !r->in_assigned || !r->same || !r->in_held ||
        !r->in_shape || !r->in_dtype || !r->in_face || !r->out_face) {
        df_recording_destroy(r);
        return NULL;
    }
    for (size_t i = 0; i < n_in; i++) {
        df_value *const v = df_handle_value(c->cx, in[i]);
        if (!df_vec_push(mem, &r->in_value, v)) {
            df_recording_destroy(r);
            return NULL;
        }
        r->in_shape[i] = v->shape;
        r->in_dtype[i] = v->dtype;
        r->in_face[i] = (uint8_t)df_face_of(in[i]);
        r->in_memory[i] = in[i]->flags & DF_HANDLE_MUT;
        r->same[i] = df_recording_same(in, (uint32_t)i);
    }
    return r;
}

/* ---- while the function runs ---- */

void df_capture_because(deft_capture *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(c->reason, sizeof c->reason, fmt, args);
    va_end(args);
}

static void recording_spoil(deft_ctx *cx, const char *why, uintptr_t site)
{
    recording *const r = cx->recording;
    if (!r->whole) return;
    r->whole = false;
    char text[DF_SITE_TEXT];
    if (site)
        df_capture_because(r->capture, "%s (at %s)", why,
                           df_ctx_site_text(cx, df_here(cx, site), text, sizeof text));
    else
        df_capture_because(r->capture, "%s", why);
}

static void recording_no_memory(deft_ctx *cx)
{
    cx->recording->lacks_memory = true;
    recording_spoil(cx, "there is no memory for what it would have to remember", 0);
}

/* The index of the argument that t is, by the function's handle or by the caller's.
 * DF_NONE: none. */
static uint32_t argument_of(const recording *r, const deft_tensor *t)
{
    for (uint32_t i = 0; i < r->n_in; i++)
        if (r->caller[i] == t || r->in[i] == t) return i;
    return DF_NONE;
}

static deft_tensor *recording_twin(deft_ctx *cx, const deft_tensor *t)
{
    const recording *const r = cx->recording;
    const uint32_t i = argument_of(r, t);
    return i == DF_NONE ? NULL : r->in[i] == t ? r->caller[i] : r->in[i];
}

static void mark_handle_seen(deft_tensor *t)
{
    df_flags_change(t, DF_HANDLE_UNSEEN, df_face_flags(df_face_of(t)));
}

static void recording_reached(deft_ctx *cx, deft_tensor *t)
{
    recording *const r = cx->recording;
    if (!df_vec_push(cx->mem, &r->reached, t)) recording_no_memory(cx);
    mark_handle_seen(t);
}

void df_recording_hide(recording *r)
{
    for (uint32_t i = 0; i < r->n_in; i++) {
        deft_tensor *const t = r->caller[i];
        df_flags_change(t, DF_HANDLE_LIVE, DF_HANDLE_UNSEEN);
    }
}

void df_recording_reveal(deft_ctx *cx)
{
    const recording *const r = cx->recording;
    for (uint32_t i = 0; i < r->n_in; i++) mark_handle_seen(r->caller[i]);
}

static void recording_input(deft_ctx *cx, uint32_t node, deft_tensor *t)
{
    recording *const r = cx->recording;
    const seen_input s = { node, DF_NONE, t, t->value };
    deft_tensor *const twin = recording_twin(cx, t);
    if (!twin && !df_is_outer(cx, t)) recording_spoil(cx, "it makes a tensor from memory", 0);
    if (twin) { /* one tensor is one record, whichever handle is used first */
        twin->node = node;
        twin->epoch = cx->epoch;
        twin->place = DF_NONE;
    }
    if (!df_vec_push(cx->mem, &r->seen, s)) recording_no_memory(cx);
}

static double bare_number_value(const deft_tensor *t)
{
    double v = t->place == DEFT_U64 ? (double)(uint64_t)t->number : (double)t->number;
    if (t->place == DEFT_F64) memcpy(&v, &t->number, sizeof v);
    return v;
}

static void recording_number(deft_ctx *cx, uint32_t at, deft_dtype dtype, const deft_tensor *t)
{
    recording *const r = cx->recording;
    if (!(t->flags & DF_HANDLE_PARAM)) {
        if (!(t->flags & DF_HANDLE_CONST) && df_recording_freezes(cx))
            (void)df_recording_refuses(cx, "num", bare_number_value(t), 0);
        return;
    }
    const number_note n = { at, t->node, dtype, t->flags & DF_HANDLE_CONST };
    if (!df_vec_push(cx->mem, &r->numbers, n)) recording_no_memory(cx);
}

/* ---- numbers of layers ---- */

void df_layer_enter(deft_ctx *cx)
{
    if (cx) cx->layer_nest++;
}

void df_layer_leave(deft_ctx *cx)
{
    if (cx) cx->layer_nest--;
}

/* The index of the counter in r->counts, added when it is new. DF_NONE: no memory. */
static uint32_t count_of(deft_ctx *cx, int64_t *count)
{
    recording *const r = cx->recording;
    for (uint32_t k = 0; k < r->counts.n; k++)
        if (r->counts.at[k].at == count) return k;
    const count_note fresh = { count, *count, 0 };
    if (df_vec_push(cx->mem, &r->counts, fresh)) return (uint32_t)r->counts.n - 1;
    recording_no_memory(cx);
    return DF_NONE;
}

static deft_tensor *recorded_number(deft_ctx *cx, const df_layer_source *s, uint32_t which,
                                    double given, double now)
{
    recording *const r = cx->recording;
    const uint32_t k = count_of(cx, s->count);
    if (k == DF_NONE) return df_weak_f(cx, now, DF_HANDLE_CONST);
    layer_number n = { .from = *s, .which = which, .count = k, .param = DF_NONE, .given = given };
    n.from.given = NULL;
    n.ahead = *s->count - r->counts.at[k].first;
    if (s->given->flags & DF_HANDLE_PARAM) n.param = s->given->node;
    if (!df_vec_push(cx->mem, &r->layer_numbers, n)) recording_no_memory(cx);
    deft_tensor *const t = df_weak_f(cx, now, DF_HANDLE_PARAM | DF_HANDLE_CONST);
    if (t) t->node = (uint32_t)r->layer_numbers.n - 1;
    return t;
}

deft_tensor *df_layer_number(deft_ctx *cx, const df_layer_source *s, uint32_t which)
{
    if (!df_enter_more(cx, s->what, 0, s->given)) return NULL;
    if (!(s->given->flags & DF_HANDLE_WEAK))
        return df_error(cx, DEFT_E_ARG,
                        "%s is a tensor, not a bare number (deft_num; in a captured function "
                        "deft_param_f, deft_const_f)",
                        s->what);
    const double given = bare_number_value(s->given);
    if (!isfinite(given)) return df_error(cx, DEFT_E_RANGE, "%s is %g", s->what, given);
    const double now = s->value(s->user, which, *s->count, given);
    if (!cx->recording) return df_weak_f(cx, now, 0);
    if (s->given->flags & (DF_HANDLE_PARAM | DF_HANDLE_CONST))
        return recorded_number(cx, s, which, given, now);
    (void)df_recording_refuses(cx, s->what, given, 0);
    return NULL;
}

void df_layer_count(deft_ctx *cx, int64_t *count)
{
    const uint32_t k = cx->recording ? count_of(cx, count) : DF_NONE;
    if (k != DF_NONE) cx->recording->counts.at[k].n++;
    ++*count;
}

void df_recording_take_back(recording *r)
{
    for (size_t i = 0; i < r->counts.n; i++) *r->counts.at[i].at = r->counts.at[i].first;
    for (size_t i = 0; i < r->rngs.n; i++) r->rngs.at[i].rng->next = r->rngs.at[i].first;
}

static void recording_draw(deft_ctx *cx, uint32_t at, deft_rng *rng, uint64_t draw)
{
    recording *const r = cx->recording;
    uint32_t k = 0;
    while (k < r->rngs.n && r->rngs.at[k].rng != rng) k++;
    const rng_note fresh = { rng, draw, 0 };
    if (k == r->rngs.n && !df_vec_push(cx->mem, &r->rngs, fresh)) {
        recording_no_memory(cx);
        return;
    }
    rng_note *const g = &r->rngs.at[k];
    const draw_note d = { at, k, draw - g->first };
    if (d.draw >= g->n) g->n = d.draw + 1;
    if (!df_vec_push(cx->mem, &r->draws, d)) recording_no_memory(cx);
}

static void recording_draw_again(deft_ctx *cx, uint32_t from, uint32_t at)
{
    recording *const r = cx->recording;
    for (size_t i = 0; i < r->draws.n; i++) {
        draw_note d = r->draws.at[i];
        if (d.at != from) continue;
        d.at = at;
        if (!df_vec_push(cx->mem, &r->draws, d)) recording_no_memory(cx);
        return;
    }
}

static df_cut *recording_cut(deft_ctx *cx)
{
    recording *const r = cx->recording;
    if (!r->committed) {
        recording_spoil(cx, "it reads a value while it runs, or its records were cut by a bound",
                        0);
        return NULL;
    }
    r->cut = true;
    return &r->made;
}

static bool recording_stops(deft_ctx *cx)
{
    cx->recording->has_trace = true;
    return cx->recording->is_trial;
}

/* ---- what was recorded ---- */

tensor_ref df_recording_source(const recording *r, uint32_t k)
{
    const uint32_t place = r->sources.at[k];
    return place == DF_NONE ? (tensor_ref){ NULL, DF_NONE } : r->places.at[place].from;
}

static tensor_ref ref_of(const recording *r, deft_tensor *t)
{
    const uint32_t i = argument_of(r, t);
    return i == DF_NONE ? (tensor_ref){ t, DF_NONE } : (tensor_ref){ NULL, i };
}

/* Keeps the tensor from outside that ref names, once for this recording. */
static void hold(recording *r, tensor_ref ref)
{
    deft_ctx *const cx = r->capture->cx;
    deft_tensor *const t = ref.t;
    if (!t) return;
    for (size_t i = 0; i < r->held.n; i++)
        if (r->held.at[i] == t) return;
    const bool ok =
        t->keeps < DF_MAX_KEEPS && df_vec_reserve(cx->mem, &r->held, 1) &&
        (t->keeps > 0 || df_vec_push(cx->mem, &cx->kept, ((df_kept){ t, cx->act_site })));
    if (!ok) {
        recording_no_memory(cx);
        return;
    }
    r->held.at[r->held.n++] = t;
    t->keeps++;
}

static void recording_wants(deft_ctx *cx)
{
    recording *const r = cx->recording;
    if (!r->whole) return;
    for (size_t i = 0; i < cx->want.n; i++) {
        deft_tensor *const t = cx->who.at[i];
        deft_tensor *const gives = cx->want.at[i].into ? t : cx->want.at[i].giver;
        const tensor_ref ref = gives ? ref_of(r, gives) : (tensor_ref){ NULL, DF_NONE };
        if (cx->want.at[i].into && !t)
            recording_spoil(cx, "it assigns to memory whose tensor has ended", 0);
        if (!df_vec_push(cx->mem, &r->wanted, ref) ||
            !df_vec_push(cx->mem, &r->results, cx->want.at[i].result))
            recording_no_memory(cx);
        hold(r, ref);
    }
}

/* The number of v as a target value: a result, else an entry of places. DF_NONE: neither. */
static uint32_t target_value_index(const recording *r, const df_value *v)
{
    for (uint32_t i = 0; i < r->results.n; i++)
        if (r->results.at[i] == v) return i;
    for (uint32_t i = 0; i < r->places.n; i++)
        if (r->places.at[i].was == v) return (uint32_t)r->results.n + i;
    return DF_NONE;
}

void df_recording_target(deft_ctx *cx, recording *r, bool output, tensor_ref to, const df_value *v)
{
    const target x = { to, target_value_index(r, v) };
    if (x.value == DF_NONE) {
        recording_spoil(cx, "a result is a tensor that nothing computed", 0);
        return;
    }
    if (!(output ? df_vec_push(cx->mem, &r->outputs, x) : df_vec_push(cx->mem, &r->assigned, x)))
        recording_no_memory(cx);
    if (x.value < r->results.n) return;
    const uint32_t from = x.value - (uint32_t)r->results.n;
    if (!df_vec_push(cx->mem, &r->passed, from)) recording_no_memory(cx);
}

static void add_place(deft_ctx *cx, recording *r, tensor_ref from, df_value *v, uint32_t *n)
{
    if (v->cut != cx->cut_serial) {
        v->cut = cx->cut_serial;
        v->input = (*n)++;
    }
    const read_tensor p = { from, v->input, v };
    if (!df_vec_push(cx->mem, &r->places, p)) recording_no_memory(cx);
    hold(r, from);
}

/* Fills places: the arguments in order, then the tensors read from outside. All values
 * from the beginning still exist, because records and the undo log hold them. */
static void find_recorded_places(deft_ctx *cx, recording *r)
{
    uint32_t n = 0;
    df_new_cut_serial(cx);
    for (uint32_t i = 0; i < r->n_in; i++)
        add_place(cx, r, (tensor_ref){ NULL, i }, r->in_value.at[i], &n);
    for (size_t i = 0; i < r->seen.n; i++) {
        seen_input *const s = &r->seen.at[i];
        const tensor_ref from = ref_of(r, s->t);
        s->place = from.t ? (uint32_t)r->places.n : from.arg;
        if (from.t) add_place(cx, r, from, s->v, &n);
    }
}

/* Finds the entry of places that each input reads. Both lists are in the order of the
 * records. */
static void find_sources(deft_ctx *cx, recording *r)
{
    const df_cut *const m = &r->made;
    for (uint32_t k = 0; k < m->t->n_inputs; k++) {
        const uint32_t none = DF_NONE;
        if (!df_vec_push(cx->mem, &r->sources, none)) {
            recording_no_memory(cx);
            return;
        }
    }
    size_t at = 0;
    for (uint32_t u = 0; u < m->n_use; u++) {
        while (at < r->seen.n && r->seen.at[at].node < m->use[u].record) at++;
        if (at == r->seen.n || r->seen.at[at].node != m->use[u].record) {
            recording_spoil(cx, "an input was bound before the function began", 0);
            return;
        }
        r->sources.at[m->use[u].input] = r->seen.at[at].place;
    }
}

/* Allocates the lists that a replay fills. */
static bool reserve_replay_lists(deft_ctx *cx, recording *r)
{
    return df_vec_reserve(cx->mem, &r->found, r->places.n) &&
           df_vec_reserve(cx->mem, &r->values, r->sources.n) &&
           df_vec_reserve(cx->mem, &r->want, r->wanted.n);
}

/* Changes *at from an index among the arguments of the records to one of the trace.
 * Returns false when no result depends on the argument. */
static bool to_trace(const df_cut *m, uint32_t *at)
{
    for (uint32_t j = 0; j < m->t->n_args; j++)
        if (m->arg_from[j] == *at) {
            *at = j;
            return true;
        }
    return false;
}

static void find_patches(recording *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->numbers.n; i++)
        if (to_trace(&r->made, &r->numbers.at[i].at)) r->numbers.at[n++] = r->numbers.at[i];
    r->numbers.n = n;
    n = 0;
    for (size_t i = 0; i < r->draws.n; i++)
        if (to_trace(&r->made, &r->draws.at[i].at)) r->draws.at[n++] = r->draws.at[i];
    r->draws.n = n;
}

static void recording_commit(deft_ctx *cx)
{
    recording *const r = cx->recording;
    if (!r->whole) return;
    if (!r->cut) {
        recording_spoil(cx, "it computes nothing", 0);
        return;
    }
    find_recorded_places(cx, r);
    if (r->whole) find_sources(cx, r);
    if (r->whole) find_patches(r);
    if (!reserve_replay_lists(cx, r)) recording_no_memory(cx);
    for (size_t i = 0; i < cx->undo.n && r->whole; i++) {
        deft_tensor *const t = cx->undo.at[i].t;
        /* its memory was written, and it stays bound to that memory */
        if (t->flags & DF_HANDLE_MUT) continue;
        const tensor_ref ref = ref_of(r, t);
        if (!ref.t) r->in_assigned[ref.arg] = true;
        df_recording_target(cx, r, false, ref, t->value);
        hold(r, ref);
    }
    for (size_t i = 0; i < r->reached.n; i++) hold(r, (tensor_ref){ r->reached.at[i], DF_NONE });
    for (uint32_t i = 0; i < r->n_in; i++) r->in_held[i] = df_recording_held(r, r->caller[i]);
}

const df_recorder df_capture_recorder = {
    .input = recording_input,
    .twin = recording_twin,
    .reached = recording_reached,
    .number = recording_number,
    .draw = recording_draw,
    .draw_again = recording_draw_again,
    .spoil = recording_spoil,
    .cut = recording_cut,
    .stops = recording_stops,
    .commit = recording_commit,
    .wants = recording_wants,
};
