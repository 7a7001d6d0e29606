/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures: deft/capture.h.
 *
 * A call looks for a recording (capture.h) that still holds, and replays it. The tensors
 * that the recording reads (its places) are looked up, and their properties compared with
 * the recorded ones. Numbers and draws are written into the arguments of the trace, and
 * the plan runs. Otherwise the function runs as a step that is recorded (recording.c).
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lazy/capture/capture.h"
#include "lazy/run/submit.h"
#include "lazy/log/notes.h"
#include "lazy/run/materialize.h"
#include "lazy/log/why.h"

/* ---- reasons ---- */

/* Logs the reason, unless the call before had the same one. */
static void log_reason(deft_capture *c)
{
    if (!c->reason[0] || strcmp(c->reason, c->logged) == 0) return;
    memcpy(c->logged, c->reason, sizeof c->logged);
    df_event e;
    df_event_make(&e, DF_WHY_capture, c->call_site, c->reason, "a recording that holds", "none");
    e.other = c->site;
    df_why_log(c->cx, &e);
}

/* ---- making and destroying ---- */

deft_capture *deft_capture_create(deft_ctx *cx, deft_capture_fn fn, void *user)
{
    df_enter_call(cx, DF_SITE);
    if (!cx) return NULL;
    if (!fn) return df_error(cx, DEFT_E_ARG, "capture_create: fn is NULL");
    deft_capture *const c = df_mem_zalloc(cx->mem, sizeof *c);
    if (!c)
        return df_error(cx, DEFT_E_MEMORY, "capture_create: could not get %zu bytes", sizeof *c);
    c->cx = cx;
    c->fn = fn;
    c->user = user;
    c->site = df_here(cx, DF_SITE);
    return c;
}

void deft_capture_destroy(deft_capture **pc)
{
    if (!pc || !*pc) return;
    deft_capture *const c = *pc;
    *pc = NULL;
    if (c->running) { /* destroyed by its own function */
        c->doomed = true;
        return;
    }
    const df_mem *const mem = c->cx->mem;
    for (uint32_t i = 0; i < DEFT_MAX_RECORDINGS; i++) df_recording_destroy(c->recordings[i]);
    for (size_t i = 0; i < c->params.n; i++)
        df_mem_free(mem, c->params.at[i].name, c->params.at[i].size);
    df_vec_finish(mem, &c->params);
    df_mem_free(mem, c, sizeof *c);
}

/* ---- parameters ---- */

static param *find_param(deft_capture *c, const char *name)
{
    for (size_t i = 0; i < c->params.n; i++)
        if (strcmp(c->params.at[i].name, name) == 0) return &c->params.at[i];
    return NULL;
}

/* Sets a parameter to a number: name and size of `to` are ignored. */
static deft_status set_param(deft_capture *c, const char *name, param to, uintptr_t site)
{
    if (!c) return DEFT_E_ARG;
    df_act(c->cx, "capture_set", site);
    df_diag *const d = &c->cx->diag;
    if (!name || !name[0]) return df_fail(d, DEFT_E_ARG, "capture_set: a parameter has no name");
    param *p = find_param(c, name);
    if (p && p->is_int != to.is_int)
        return df_fail(d, DEFT_E_ARG, "capture_set: parameter \"%s\" is %s", name,
                       p->is_int ? "an integer" : "no integer");
    if (!p) {
        const param fresh = { .name = df_mem_alloc(c->cx->mem, strlen(name) + 1),
                              .size = strlen(name) + 1 };
        if (!fresh.name || !df_vec_push(c->cx->mem, &c->params, fresh)) {
            df_mem_free(c->cx->mem, fresh.name, fresh.size);
            return df_fail_mem(d, "capture_set", fresh.size);
        }
        p = &c->params.at[c->params.n - 1];
        memcpy(p->name, name, p->size);
    }
    to.name = p->name;
    to.size = p->size;
    *p = to;
    return DEFT_OK;
}

deft_status deft_capture_set_f(deft_capture *c, const char *name, double value)
{
    return set_param(c, name, (param){ .f = value }, DF_SITE);
}

deft_status deft_capture_set_i(deft_capture *c, const char *name, int64_t value)
{
    return set_param(c, name, (param){ .is_int = true, .i = value }, DF_SITE);
}

deft_status deft_capture_set_u(deft_capture *c, const char *name, uint64_t value)
{
    const param to = { .is_int = true, .is_large = value > INT64_MAX, .i = (int64_t)value };
    return set_param(c, name, to, DF_SITE);
}

static double param_value(const param *p)
{
    if (!p->is_int) return p->f;
    return p->is_large ? (double)(uint64_t)p->i : (double)p->i;
}

static deft_tensor *get_param(deft_ctx *cx, const char *what, const char *name, bool is_int)
{
    if (!cx) return NULL;
    if (!cx->recording) return df_error(cx, DEFT_E_STATE, "%s: no captured function runs", what);
    deft_capture *const c = cx->recording->capture;
    const param *const p = name ? find_param(c, name) : NULL;
    if (!p || p->is_int != is_int)
        return df_error(cx, DEFT_E_ARG, "%s: parameter \"%s\" %s", what, name ? name : "",
                        p ? "was set as the other kind" : "was never set");
    deft_tensor *const t = !is_int       ? df_weak_f(cx, p->f, DF_HANDLE_PARAM)
                           : p->is_large ? df_weak_u(cx, (uint64_t)p->i, DF_HANDLE_PARAM)
                                         : df_weak_i(cx, p->i, DF_HANDLE_PARAM);
    if (t) t->node = (uint32_t)(p - c->params.at); /* node has no other use in a weak handle */
    return t;
}

deft_tensor *deft_param_f(deft_ctx *cx, const char *name)
{
    df_enter_call(cx, DF_SITE);
    return get_param(cx, "param_f", name, false);
}

deft_tensor *deft_param_i(deft_ctx *cx, const char *name)
{
    df_enter_call(cx, DF_SITE);
    return get_param(cx, "param_i", name, true);
}

deft_tensor *deft_const_f(deft_ctx *cx, double value)
{
    df_enter_call(cx, DF_SITE);
    return df_weak_f(cx, value, DF_HANDLE_CONST);
}

deft_tensor *deft_const_i(deft_ctx *cx, int64_t value)
{
    df_enter_call(cx, DF_SITE);
    return df_weak_i(cx, value, DF_HANDLE_CONST);
}

deft_tensor *deft_const_u(deft_ctx *cx, uint64_t value)
{
    df_enter_call(cx, DF_SITE);
    return df_weak_u(cx, value, DF_HANDLE_CONST);
}

/* ---- recording ---- */

/* Checks that a tensor of the caller can be used, and computes its value. */
static deft_status compute_capture_input(deft_ctx *cx, deft_tensor *t)
{
    if (!df_enter_more_of(cx, "capture_call", 1, t, DF_ALL_FACES)) return df_deliver(cx);
    if (t->flags & DF_HANDLE_WEAK)
        return df_fail(&cx->diag, DEFT_E_ARG,
                       "capture_call: a bare number is no input: set it as a parameter");
    if (df_owes(cx, t)) return df_deliver(cx);
    return df_handle_value(cx, t) ? DEFT_OK : deft_eval(&t, 1);
}

static void keep_recording(deft_capture *c, recording *r)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < DEFT_MAX_RECORDINGS; i++) {
        if (!c->recordings[i]) {
            at = i;
            break;
        }
        if (c->recordings[i]->used < c->recordings[at]->used) at = i;
    }
    df_recording_destroy(c->recordings[at]);
    r->used = ++c->serial;
    c->recordings[at] = r;
    c->stats.recordings++;
}

/* Makes the function's outputs tensors of the scope around its step. */
static void move_outputs_to_scope(deft_capture *c, recording *r, deft_tensor **out)
{
    deft_ctx *const cx = c->cx;
    for (uint32_t i = 0; i < r->n_out; i++) {
        deft_tensor *old = out[i];
        out[i] = df_wear(r->out[i], df_face_of(old));
        r->out_face[i] = (uint8_t)df_face_of(old);
        out[i]->value = df_value_ref(old->value);
        if (r->whole) df_recording_target(cx, r, true, (tensor_ref){ NULL, i }, out[i]->value);
        deft_drop(&old);
    }
}

static void drop_outputs(deft_tensor **out, size_t kept, size_t n)
{
    for (size_t i = 0; i < kept; i++) deft_drop(&out[i]);
    for (size_t i = 0; i < n; i++) out[i] = NULL;
}

deft_tensor *df_capture_handle(deft_ctx *cx, df_value *v)
{
    deft_tensor *const t = df_handle_new(cx, 0);
    if (!t) return NULL;
    t->epoch = 0;
    t->value = df_value_ref(v);
    return t;
}

/* Makes the handles of the outputs before the step, because nothing may fail after it. */
static bool make_outputs_of(deft_ctx *cx, recording *r)
{
    bool ok = true;
    for (uint32_t i = 0; i < r->n_out; i++) ok &= (r->out[i] = df_capture_handle(cx, NULL)) != NULL;
    return ok;
}

/* Makes the handles that the function sees: handles in the scope of its step, one for
 * each handle of the caller. */
static bool make_inputs_of(deft_ctx *cx, recording *r)
{
    bool ok = true;
    for (uint32_t i = 0; i < r->n_in; i++) {
        const uint32_t same = r->same[i];
        r->in[i] = same < i ? r->in[same]
                            : df_wear(df_capture_handle(cx, r->in_value.at[i]), r->in_face[i]);
        ok &= r->in[i] != NULL;
    }
    return ok;
}

static void bind_to_value(deft_ctx *cx, deft_tensor *t, df_value *v)
{
    df_value_ref(v);
    df_handle_unbind(cx, t);
    t->value = v;
}

/* Whether output t needs a copy although t may have a value. Wrapped memory is copied,
 * because an output must not change later. A bare number has no value. */
static bool needs_copy(deft_ctx *cx, const deft_tensor *t, const deft_tensor *callers)
{
    const df_value *const v = df_handle_value(cx, t);
    return (v && v->flags & DF_VALUE_WRAPPED) || t->flags & (DF_HANDLE_WEAK | DF_HANDLE_MUT) ||
           (callers && callers->flags & DF_HANDLE_MUT);
}

/* The tensor to keep as the output for t; NULL when an error is pending. An output is
 * read like any operand, so that the recording knows of which tensor it has the value. */
static deft_tensor *output_of(deft_ctx *cx, const recording *r, deft_tensor *t)
{
    deft_tensor *callers = NULL;
    if (!df_enter_more_of(cx, "capture", 0, t, DF_ALL_FACES)) return NULL;
    for (uint32_t i = 0; i < r->n_in && !callers; i++) {
        if (r->in[i] == t) callers = r->caller[i];
        if (r->caller[i] == t) df_capture_recorder.reached(cx, t);
    }
    const uint32_t node = df_node_of(cx, t);
    if (node == DF_BAD) return NULL;
    if (needs_copy(cx, t, callers)) return df_result_faced(cx, node, df_face_of(t));
    return callers ? callers : t;
}

static deft_status keep_outputs(deft_capture *c, recording *r, deft_tensor **out, size_t *kept)
{
    deft_ctx *const cx = c->cx;
    deft_status st = DEFT_OK;
    for (; st == DEFT_OK && *kept < r->n_out; ++*kept) {
        if (!out[*kept])
            return df_fail(&cx->diag, DEFT_E_ARG, "capture: the function left output %zu NULL",
                           *kept);
        if (df_owes(cx, out[*kept])) return df_deliver(cx);
        out[*kept] = output_of(cx, r, out[*kept]);
        cx->recording = NULL; /* this keep is ours, and does not prevent a replay */
        if (!out[*kept] || !deft_keep(out[*kept])) st = df_deliver(cx);
        cx->recording = r;
        if (st != DEFT_OK) break;
    }
    return st;
}

deft_status df_capture_run(deft_capture *c, recording *r, deft_tensor **out)
{
    deft_ctx *const cx = c->cx;
    size_t kept = 0;
    const bool ready = make_outputs_of(cx, r);
    const deft_scope s = deft_step_begin(cx);
    if (s.depth) cx->scope[s.depth].site = c->call_site; /* for messages */
    deft_status st = ready && s.depth ? DEFT_OK : df_deliver(cx);
    if (st == DEFT_OK && !make_inputs_of(cx, r)) st = df_deliver(cx);
    if (st == DEFT_OK) {
        cx->recording = r;
        cx->recorder = &df_capture_recorder;
        df_recording_hide(r);
        st = c->fn(cx, r->in, r->n_in, out, r->n_out, c->user);
        df_recording_reveal(cx);
        const deft_status recorded = df_deliver_step(cx);
        if (st == DEFT_OK)
            st = recorded;
        else if (recorded == DEFT_OK && cx->diag.status == DEFT_OK)
            df_fail(&cx->diag, st,
                    "capture_call: no call in the function failed, but the function returned "
                    "\"%s\"",
                    deft_status_text(st));
        if (st == DEFT_OK) df_act(cx, "capture_call", c->call_site);
        if (st == DEFT_OK) st = keep_outputs(c, r, out, &kept);
    }
    r->committed = true;
    if (st == DEFT_OK) {
        st = df_step_end(s);
    } else {
        const df_diag said = cx->diag;
        deft_step_abort(s);
        cx->diag = said;
    }
    if (st == DEFT_OK) {
        move_outputs_to_scope(c, r, out);
    } else {
        df_recording_take_back(r);
        drop_outputs(out, kept, r->n_out);
    }
    cx->recording = NULL;
    r->caller = NULL;
    return st;
}

static deft_status record_function(deft_capture *c, deft_tensor *const *in, size_t n_in,
                                   deft_tensor **out, size_t n_out)
{
    recording *const r = df_recording_create(c, in, n_in, n_out);
    if (!r) return df_fail_mem(&c->cx->diag, "capture", sizeof *r);
    const deft_status st = df_capture_run(c, r, out);
    if (st == DEFT_OK && r->whole)
        keep_recording(c, r);
    else
        df_recording_destroy(r);
    return st;
}

/* ---- replaying ---- */

static deft_tensor *tensor_of_ref(tensor_ref ref, deft_tensor *const *in)
{
    return ref.t ? ref.t : in[ref.arg];
}

static bool fits_call(deft_capture *c, const recording *r, deft_tensor *const *in, size_t n_in,
                      size_t n_out)
{
    if (r->n_in != n_in || r->n_out != n_out) {
        df_capture_because(c, "%zu inputs and %zu outputs, was %u and %u", n_in, n_out, r->n_in,
                           r->n_out);
        return false;
    }
    if (r->mixed != c->cx->mixed) {
        df_capture_because(c, "the policy of mixed precision is another one");
        return false;
    }
    for (size_t i = 0; i < n_in; i++) {
        const df_value *const v = df_handle_value(c->cx, in[i]);
        const bool is_memory = in[i]->flags & DF_HANDLE_MUT;
        if (is_memory != r->in_memory[i]) {
            df_capture_because(c, "input %zu %s", i,
                               is_memory ? "is memory to write, was none"
                                         : "is no memory to write, was some");
            return false;
        }
        if (r->in_assigned[i] && df_root_of(in[i])) {
            df_capture_because(c, "input %zu, which is assigned, is a view", i);
            return false;
        }
        if (v->dtype == r->in_dtype[i] && df_shape_equal(&v->shape, &r->in_shape[i]) &&
            df_face_of(in[i]) == r->in_face[i])
            continue;
        char now[DF_SHAPE_TEXT], then[DF_SHAPE_TEXT];
        df_shape here, there = r->in_shape[i];
        df_shown_shape(c->cx, in[i], &here);
        df_face_show(r->in_face[i], &there);
        df_capture_because(c, "input %zu is %s%s, was %s%s", i,
                           deft_dtype_name(df_shown_dtype(c->cx, in[i])),
                           df_shape_text(&here, now, sizeof now),
                           deft_dtype_name(r->in_face[i] ? df_face_dtype(r->in_face[i])
                                                         : (deft_dtype)r->in_dtype[i]),
                           df_shape_text(&there, then, sizeof then));
        return false;
    }
    return true;
}

static bool are_one(deft_capture *c, bool now)
{
    df_capture_because(c, now ? "two of the tensors it uses are one tensor now"
                              : "two of the tensors it uses were one tensor");
    return false;
}

/* Looks up the tensors in r->places. Returns false when they are not the same tensors in
 * the same entries as when they were recorded. The arguments come first. Arguments that
 * are one handle have one value, too. */
static bool match_recorded_places(deft_capture *c, recording *r, deft_tensor *const *in)
{
    deft_ctx *const cx = c->cx;
    uint32_t n = 0;
    df_new_cut_serial(cx);
    for (size_t i = 0; i < r->places.n; i++) {
        df_value *const v = df_handle_value(cx, tensor_of_ref(r->places.at[i].from, in));
        const bool seen = v && v->cut == cx->cut_serial;
        if (!v || (seen ? v->input : n) != r->places.at[i].cls) return are_one(c, seen);
        if (seen && i < r->n_in && df_recording_same(in, (uint32_t)i) != r->same[i])
            return are_one(c, r->same[i] == i);
        r->found.at[i] = v;
        if (seen) continue;
        v->cut = cx->cut_serial;
        v->input = n++;
    }
    for (uint32_t i = 0; i < r->n_in; i++) {
        const uint32_t held = df_recording_held(r, in[i]);
        if (held != r->in_held[i]) return are_one(c, held != DF_NONE);
    }
    return true;
}

static void fill_replay_wants(deft_ctx *cx, recording *r, deft_tensor *const *in)
{
    for (size_t k = 0; k < r->sources.n; k++) {
        const uint32_t from = r->sources.at[k];
        r->values.at[k] = from == DF_NONE ? NULL : r->found.at[from];
    }
    for (size_t i = 0; i < r->wanted.n; i++) {
        df_want *const w = &r->want.at[i];
        const tensor_ref ref = r->wanted.at[i];
        *w = (df_want){ .node = r->made.want[i], .donor_refs = 1 };
        if (!ref.t && ref.arg == DF_NONE) continue;
        deft_tensor *const t = tensor_of_ref(ref, in);
        if (t->flags & DF_HANDLE_MUT)
            w->into = df_mut_of(cx, t)->value;
        else
            /* the handle's own reference, which ends when the handle is bound anew */
            w->donor = t->value;
    }
}

/* Adds references for the targets that take a value unchanged, and will refer to it only
 * after the run. So such a value is not donated. */
static void hold_passed(recording *r)
{
    for (size_t i = 0; i < r->passed.n; i++) df_value_ref(r->found.at[r->passed.at[i]]);
}

static void release_passed(deft_ctx *cx, recording *r)
{
    for (size_t i = 0; i < r->passed.n; i++) {
        df_value *v = r->found.at[r->passed.at[i]];
        df_value_drop(cx, &v);
    }
}

/* Computes the numbers of layers from their counters and from what they were given. */
static deft_status ask_layers(deft_capture *c, recording *r)
{
    for (size_t i = 0; i < r->layer_numbers.n; i++) {
        layer_number *const n = &r->layer_numbers.at[i];
        const param *const p = n->param == DF_NONE ? NULL : &c->params.at[n->param];
        const double given = p ? param_value(p) : n->given;
        if (!isfinite(given))
            return df_fail(&c->cx->diag, DEFT_E_RANGE, "%s is %g", n->from.what, given);
        const int64_t count = *r->counts.at[n->count].at + n->ahead;
        n->now = n->from.value(n->from.user, n->which, count, given);
    }
    return DEFT_OK;
}

/* Writes a number into *to. Returns false, with the error recorded, when it does not fit
 * its dtype. */
static bool patch_number(deft_capture *c, const recording *r, const number_note *n, int64_t *to)
{
    deft_ctx *const cx = c->cx;
    if (n->is_layers) {
        const layer_number *const k = &r->layer_numbers.at[n->from];
        return df_number_bits(cx, k->from.what, n->dtype, k->now, to);
    }
    const param *const p = &c->params.at[n->from];
    if (!p->is_int) return df_number_bits(cx, p->name, n->dtype, p->f, to);
    return p->is_large ? df_number_bits_u(cx, p->name, n->dtype, (uint64_t)p->i, to)
                       : df_number_bits_i(cx, p->name, n->dtype, p->i, to);
}

static deft_status patch(deft_capture *c, recording *r)
{
    deft_ctx *const cx = c->cx;
    int64_t *const args = r->made.t->args;
    const deft_status st = ask_layers(c, r);
    if (st != DEFT_OK) return st;
    for (size_t i = 0; i < r->numbers.n; i++) {
        const number_note *const n = &r->numbers.at[i];
        if (!patch_number(c, r, n, &args[n->at])) return df_deliver(cx);
    }
    for (size_t i = 0; i < r->draws.n; i++) {
        const draw_note *const d = &r->draws.at[i];
        const deft_rng *const rng = r->rngs.at[d->rng].rng;
        args[d->at] = (int64_t)rng->seed;
        args[d->at + 1] = (int64_t)(rng->next + d->draw);
    }
    return DEFT_OK;
}

static df_value *target_value(const recording *r, uint32_t i)
{
    return i < r->wanted.n ? r->want.at[i].result : r->found.at[i - r->wanted.n];
}

/* Makes the handles of the outputs before the run, because nothing may fail after it. */
static deft_status make_outputs(deft_ctx *cx, const recording *r, deft_tensor **out)
{
    for (size_t i = 0; i < r->n_out; i++) {
        out[i] = df_wear(df_capture_handle(cx, NULL), r->out_face[i]);
        if (!out[i]) return df_deliver(cx);
    }
    return DEFT_OK;
}

/* Binds outputs and assigned tensors. Two assigned tensors may exchange their values, so
 * all values are referenced before the first is bound. */
static void publish_replay_results(deft_ctx *cx, recording *r, deft_tensor *const *in,
                                   deft_tensor **out)
{
    for (size_t i = 0; i < r->assigned.n; i++)
        df_value_ref(target_value(r, r->assigned.at[i].value));
    for (size_t i = 0; i < r->outputs.n; i++) {
        const target *const x = &r->outputs.at[i];
        out[x->to.arg]->value = df_value_ref(target_value(r, x->value));
    }
    for (size_t i = 0; i < r->assigned.n; i++) {
        const target *const x = &r->assigned.at[i];
        df_value *v = target_value(r, x->value);
        bind_to_value(cx, tensor_of_ref(x->to, in), v);
        df_value_drop(cx, &v);
    }
    for (size_t i = 0; i < r->rngs.n; i++) r->rngs.at[i].rng->next += r->rngs.at[i].n;
    for (size_t i = 0; i < r->counts.n; i++) *r->counts.at[i].at += r->counts.at[i].n;
}

/* Checks the tensors from outside, which may miss an assign. The inputs were checked
 * before. */
static deft_status check_missed_assigns(deft_ctx *cx, const recording *r)
{
    for (size_t i = 0; i < r->places.n && cx->owes; i++) {
        deft_tensor *const t = r->places.at[i].from.t;
        if (t && df_owes(cx, t)) return df_deliver(cx);
    }
    return DEFT_OK;
}

/* Runs the cut of r. Its places have been found, and the values that are passed on are
 * held. */
static deft_status run_again(deft_capture *c, recording *r, deft_tensor *const *in,
                             deft_tensor **out)
{
    deft_ctx *const cx = c->cx;
    deft_status st = check_missed_assigns(cx, r);
    if (st == DEFT_OK) st = patch(c, r);
    if (st == DEFT_OK) st = make_outputs(cx, r, out);
    if (st == DEFT_OK) st = df_cut_run(cx, &r->made, r->want.at, false);
    if (st == DEFT_OK) {
        publish_replay_results(cx, r, in, out);
        for (size_t i = 0; i < r->wanted.n; i++) df_value_drop(cx, &r->want.at[i].result);
    }
    r->used = ++c->serial;
    return st;
}

/* Replays r when its guards hold. Otherwise *replayed is false and nothing has happened. */
static deft_status replay_recording(deft_capture *c, recording *r, deft_tensor *const *in,
                                    deft_tensor **out, bool *replayed)
{
    deft_ctx *const cx = c->cx;
    deft_status st = DEFT_OK;
    *replayed = false;
    if (!match_recorded_places(c, r, in)) return DEFT_OK;
    fill_replay_wants(cx, r, in);
    hold_passed(r);
    *replayed = df_extract_values(cx, r->want.at, r->values.at, &r->made);
    if (*replayed)
        st = run_again(c, r, in, out);
    else
        df_capture_because(c, "%s", r->made.differs);
    release_passed(cx, r);
    return st;
}

/* Replays a recording that holds, or records a new one. */
static deft_status replay_or_record(deft_capture *c, deft_tensor *const *in, size_t n_in,
                                    deft_tensor **out, size_t n_out)
{
    deft_ctx *const cx = c->cx;
    deft_status st = DEFT_OK;
    bool any = false, replayed = false;
    for (uint32_t i = 0; i < DEFT_MAX_RECORDINGS && !replayed; i++) {
        recording *const r = c->recordings[i];
        if (!r) continue;
        any = true;
        if (fits_call(c, r, in, n_in, n_out)) st = replay_recording(c, r, in, out, &replayed);
        if (replayed && df_ring_on(cx->ring))
            df_log_replay(cx, &r->made, c->site, i, (uint32_t)n_in, (uint32_t)n_out, st);
    }
    if (replayed) {
        c->stats.replayed += st == DEFT_OK;
        if (st == DEFT_OK)
            c->reason[0] = 0;
        else
            drop_outputs(out, 0, n_out);
        return st;
    }
    c->stats.missed += any;
    if (!any) df_capture_because(c, "the first call");
    st = record_function(c, in, n_in, out, n_out);
    log_reason(c);
    return st;
}

static bool call_lists_overlap(deft_tensor *const *in, size_t n_in, deft_tensor **out, size_t n_out)
{
    const uintptr_t a = (uintptr_t)in, b = (uintptr_t)out;
    return n_in && n_out && a < b + n_out * sizeof *out && b < a + n_in * sizeof *in;
}

deft_status deft_capture_call(deft_capture *c, deft_tensor *const *in, size_t n_in,
                              deft_tensor **out, size_t n_out)
{
    if (!c || n_in >= DF_NONE || n_out >= DF_NONE) return DEFT_E_ARG;
    deft_ctx *const cx = c->cx;
    df_act(cx, "capture_call", DF_SITE);
    const uintptr_t site = cx->act_site;
    deft_status st = df_may_act(cx);
    if (st != DEFT_OK) return st;
    if (cx->step_at)
        return df_fail(&cx->diag, DEFT_E_STATE,
                       "capture_call: a step is open; a call is one itself");
    if ((n_in && !in) || (n_out && !out))
        return df_fail(&cx->diag, DEFT_E_ARG, "capture_call: the list of %zu %s is NULL",
                       n_in && !in ? n_in : n_out, n_in && !in ? "inputs" : "outputs");
    if (call_lists_overlap(in, n_in, out, n_out))
        return df_fail(&cx->diag, DEFT_E_ARG, "capture_call: the lists in and out overlap");
    if ((st = df_wait_for_steps(cx)) != DEFT_OK) return st;
    for (size_t i = 0; i < n_in; i++)
        if ((st = compute_capture_input(cx, in[i])) != DEFT_OK) return st;
    /* A call is a step: earlier records end, and every handle has its own reference to
     * its value. */
    if (cx->rec.n > 0) st = df_flush(cx);
    if (st != DEFT_OK) return st;
    c->call_site = site;
    df_act(cx, "capture_call", site);
    for (size_t i = 0; i < n_out; i++) out[i] = NULL;
    c->stats.calls++;
    c->reason[0] = 0;
    c->running = true;
    st = replay_or_record(c, in, n_in, out, n_out);
    c->running = false;
    if (c->doomed) deft_capture_destroy(&c);
    return st;
}

/* ---- statistics ---- */

void deft_capture_stats_read(const deft_capture *c, deft_capture_stats *out, size_t size)
{
    if (!c || !out) return;
    memset(out, 0, size);
    memcpy(out, &c->stats, size < sizeof c->stats ? size : sizeof c->stats);
}

const char *deft_capture_reason(const deft_capture *c)
{
    return c ? c->reason : "";
}
