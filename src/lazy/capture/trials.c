/* SPDX-License-Identifier: Apache-2.0
 *
 * See trials.h. The inputs of a trial have one element, which strides of 0 repeat. So they take no
 * memory at any extent.
 *
 * Which extents are tried: for each parameter alone, one more than the recording had, and twice as
 * many and one. These differ from it in everything that C code computes with few steps: parity,
 * halves, reciprocals, numbers of levels of a tree. A function may accept multiples alone, so these
 * come next. When the function fails with all of them, because two extents must go together, all
 * parameters grow. Then follow one element, and about a million: where a function takes another
 * way for them, such as blocks of keys, the bound between the two is found by halving.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "lazy/capture/trials.h"
#include "lazy/core/devices.h"
#include "lazy/run/materialize.h"
#include "lazy/run/scope.h"
#include "lazy/run/submit.h"
#include "trace/text.h"

enum { ALL = -1, MANY = 1 << 20, WHY = 400 };

typedef enum outcome { SAME, DIFFERS, FAILED } outcome;

typedef struct trial_work {
    deft_capture *c;
    deft_ctx *cx;
    const recording *r;
    const df_aot_found_axis *axis;
    uint32_t n_axes, n_params;
    const char **name;  /* per parameter */
    int64_t *was;       /* per parameter: the extent in the recording */
    bool *is_given;     /* per argument of the trace: it is a parameter, or belongs to a draw */
    df_value **value;   /* per class of places: its value in the current trial, counted */
    bool *is_unused;    /* per argument of the function: no result depends on it */
    bool resizes;       /* unused arguments get the extents of parameters, too */
    df_value **outside; /* per place: the value that its tensor from outside has, counted */
    df_buffer *element;
    df_arena *arena;
    df_aot_bounds *bounds;
    df_trials *out;
    deft_status st; /* of what is not the function's fault */
    char why[WHY];  /* of the latest trial that was not the same */
} trial_work;

/* ---- inputs ---- */

/* The place that input k of the trace reads, or writes without reading it. DF_NONE: none. */
static uint32_t place_of_input(const recording *r, uint32_t k)
{
    if (r->sources.at[k] != DF_NONE) return r->sources.at[k];
    for (uint32_t i = 0; i < r->made.t->n_roots; i++)
        if (r->made.asked[i].into == k && !r->wanted.at[i].t) return r->wanted.at[i].arg;
    return DF_NONE;
}

/* The value of a place with other extents. NULL: it has no open axis, or there is no memory. */
static df_value *make_value(trial_work *w, uint32_t place, const df_shape *was, deft_dtype dtype,
                            const int64_t *extent)
{
    const recording *const r = w->r;
    df_shape s = *was;
    bool is_wrapped = false;
    for (uint32_t i = 0; i < w->n_axes; i++) {
        const df_aot_found_axis *const a = &w->axis[i];
        const uint32_t at = place_of_input(r, a->input);
        if (at == DF_NONE || r->places.at[at].cls != r->places.at[place].cls) continue;
        s.dim[a->axis] = extent[a->param];
    }
    for (uint32_t x = 0; x < s.rank && w->resizes && place < r->n_in && w->is_unused[place]; x++)
        for (uint32_t i = 0; i < w->n_params; i++)
            if (was->dim[x] == w->was[i]) s.dim[x] = extent[i];
    for (uint32_t k = 0; k < r->made.t->n_inputs; k++)
        if (place_of_input(r, k) == place)
            is_wrapped |= r->made.t->inputs[k].flags & DF_INPUT_WRAPPED;
    df_value *const v = df_value_new(w->cx, dtype, &s);
    if (!v) return NULL;
    v->buf = df_buffer_ref(w->element);
    v->data = v->buf->data;
    memset(v->stride, 0, sizeof v->stride);
    if (is_wrapped) v->flags = DF_VALUE_WRAPPED;
    return v;
}

static bool has_open_axis(const trial_work *w, uint32_t place)
{
    for (uint32_t i = 0; i < w->n_axes; i++) {
        const uint32_t at = place_of_input(w->r, w->axis[i].input);
        if (at != DF_NONE && w->r->places.at[at].cls == w->r->places.at[place].cls) return true;
    }
    return false;
}

/* Makes the values of arguments, and of tensors from outside that have an open axis. Places of one
 * value in the recording have one value again. */
static bool make_trial_values(trial_work *w, const int64_t *extent)
{
    const recording *const r = w->r;
    bool ok = true;
    for (uint32_t i = 0; i < r->places.n; i++) {
        df_value **const v = &w->value[r->places.at[i].cls];
        if (*v || (i >= r->n_in && !has_open_axis(w, i))) continue;
        const df_value *const is =
            i < r->n_in ? NULL : df_handle_value(w->cx, r->places.at[i].from.t);
        *v = i < r->n_in ? make_value(w, i, &r->in_shape[i], (deft_dtype)r->in_dtype[i], extent)
             : is        ? make_value(w, i, &is->shape, (deft_dtype)is->dtype, extent)
                         : NULL;
        ok &= *v != NULL;
    }
    return ok;
}

/* Makes the handles of the caller. */
static bool make_arguments(trial_work *w, deft_tensor **in)
{
    const recording *const r = w->r;
    for (uint32_t i = 0; i < r->n_in; i++) {
        df_value *const v = w->value[r->places.at[i].cls];
        in[i] =
            r->same[i] < i ? in[r->same[i]] : df_wear(df_capture_handle(w->cx, v), r->in_face[i]);
        if (!in[i]) return false;
        if (!r->in_memory[i] || r->same[i] < i) continue;
        v->flags = DF_VALUE_WRAPPED | DF_VALUE_MUT;
        if (!df_mut_begin(w->cx, in[i])) return false;
    }
    return true;
}

/* Exchanges the values of tensors from outside, and those of the trial. */
static void exchange_outside(trial_work *w)
{
    const recording *const r = w->r;
    for (uint32_t i = r->n_in; i < r->places.n; i++) {
        deft_tensor *const t = r->places.at[i].from.t;
        df_value **const mine = &w->outside[i];
        if (!t || !*mine || t->flags & DF_HANDLE_MUT) continue;
        df_value *const was = t->value;
        t->value = *mine;
        *mine = was;
    }
}

/* Takes values for tensors from outside, which exchange_outside puts there and takes away. */
static void prepare_outside(trial_work *w)
{
    for (uint32_t i = w->r->n_in; i < w->r->places.n; i++)
        w->outside[i] = df_value_ref(w->value[w->r->places.at[i].cls]);
}

static void drop_values(trial_work *w)
{
    for (uint32_t i = 0; i < w->r->places.n; i++) {
        if (w->value[i]) df_value_drop(w->cx, &w->value[i]);
        if (w->outside[i]) df_value_drop(w->cx, &w->outside[i]);
    }
}

/* ---- one trial ---- */

/* Records the function with these extents. NULL: no memory. */
static recording *record_trial(trial_work *w, const int64_t *extent)
{
    deft_ctx *const cx = w->cx;
    const uint32_t n_in = w->r->n_in, n_out = w->r->n_out;
    deft_tensor **const in = df_arena_new(w->arena, deft_tensor *, n_in + 1u);
    deft_tensor **const out = df_arena_new(w->arena, deft_tensor *, n_out + 1u);
    recording *t = NULL;
    if (in && out && make_trial_values(w, extent) && make_arguments(w, in))
        t = df_recording_create(w->c, in, n_in, n_out);
    if (t) {
        t->is_trial = true;
        memset(out, 0, n_out * sizeof *out);
        prepare_outside(w);
        exchange_outside(w);
        const deft_status st = df_capture_run(w->c, t, out);
        exchange_outside(w);
        if (st == DEFT_E_MEMORY || t->lacks_memory) w->st = DEFT_E_MEMORY;
        (void)snprintf(w->why, sizeof w->why, "%.*s", WHY - 1,
                       !t->whole       ? w->c->reason
                       : st != DEFT_OK ? cx->diag.text
                                       : "it computes nothing");
    }
    drop_values(w);
    return t;
}

/* The first operator, beside views, that has node k as an operand, or k. */
static uint32_t first_user_of(const df_trace *t, uint32_t k)
{
    for (uint32_t u = k + 1; u < t->n_nodes; u++)
        for (uint32_t i = 0; i < t->nodes[u].n_src; i++) {
            if (t->nodes[u].src[i].i != k) continue;
            if (df_op_infos[t->nodes[u].op].cls != DF_CLASS_view) return u;
            k = u;
            break;
        }
    return k;
}

static void put_trial_node(df_str *out, const df_trace *t, uint32_t k)
{
    const df_node *const n = &t->nodes[k];
    if (n->op == DF_OP_num && (n->dtype == DEFT_F32 || n->dtype == DEFT_F64)) {
        double v;
        memcpy(&v, &t->args[n->arg], sizeof v);
        if (n->dtype == DEFT_F32) v = (double)df_f32_of_bits((uint32_t)t->args[n->arg]);
        df_str_fmt(out, "the number %.9g", v);
    } else if (n->op == DF_OP_num) {
        df_str_put(out, "the number ");
        df_text_put_number(out, (deft_dtype)n->dtype, (uint64_t)t->args[n->arg]);
    } else {
        df_str_put(out, "\"");
        df_trace_print_node(out, t, k);
        df_str_put(out, "\"");
    }
}

/* Describes node k, which the two traces do not have in common. */
static void describe_difference(trial_work *w, const df_trace *now, uint32_t k)
{
    const df_trace *const then = w->r->made.t;
    char site[DF_SITE_TEXT];
    df_str s;
    df_str_init(&s, w->cx->mem);
    if (k >= now->n_nodes || k >= then->n_nodes) {
        df_str_fmt(&s, "it records %u operators, and %u in the recording", now->n_nodes,
                   then->n_nodes);
    } else {
        const uint32_t user = first_user_of(now, k);
        put_trial_node(&s, now, k);
        if (user != k) df_str_fmt(&s, " of %s", df_op_infos[now->nodes[user].op].name);
        if (now->site[user])
            df_str_fmt(&s, " at %s", df_ctx_site_text(w->cx, now->site[user], site, sizeof site));
        df_str_put(&s, " is ");
        put_trial_node(&s, then, k);
        df_str_put(&s, " in the recording");
    }
    (void)snprintf(w->why, sizeof w->why, "%s", s.ok ? s.at : "another trace");
    df_str_finish(&s);
}

/* Whether a trial gave the trace of the recording, apart from extents. */
static bool is_same_trace(trial_work *w, const df_trace *now)
{
    const df_trace *const then = w->r->made.t;
    uint32_t k = 0;
    for (; k < now->n_nodes && k < then->n_nodes; k++) {
        const df_node *const a = &now->nodes[k], *const b = &then->nodes[k];
        if (memcmp(a, b, sizeof *a) != 0) break;
        const uint32_t n = df_op_n_args((df_op)a->op, a->n_src ? now->nodes[a->src[0].i].rank : 0);
        bool is_same = true;
        for (uint32_t i = a->arg; i < a->arg + n; i++)
            is_same &= w->is_given[i] || now->args[i] == then->args[i];
        if (!is_same) break;
    }
    bool same = k == now->n_nodes && k == then->n_nodes;
    if (!same) describe_difference(w, now, k);
    if (same && now->n_roots != then->n_roots) {
        same = false;
        (void)snprintf(w->why, sizeof w->why, "it has %u results, and %u in the recording",
                       now->n_roots, then->n_roots);
    }
    for (uint32_t i = 0; same && i < now->n_roots; i++)
        if (now->roots[i].node != then->roots[i].node) {
            same = false;
            describe_difference(w, now, now->roots[i].node);
        }
    return same;
}

/* Keeps a trial for the exporter. */
static void keep_trial(trial_work *w, DEFT_OWN recording *t, const int64_t *extent)
{
    const df_aot_other x = { t->made.t, extent };
    if (!df_vec_push(w->cx->mem, &w->out->made, t)) {
        df_recording_destroy(t);
        w->st = df_fail_mem(&w->cx->diag, "export", sizeof x);
    } else if (!df_vec_push(w->cx->mem, &w->out->other, x)) {
        w->st = df_fail_mem(&w->cx->diag, "export", sizeof x);
    }
}

/* Records the function with the extent `to` for a parameter, or with extents that grow like it for
 * all, and compares. A failure of the library is in w->st. */
static outcome try_once(trial_work *w, int which, int64_t to, bool keeps)
{
    deft_ctx *const cx = w->cx;
    int64_t *const extent = df_arena_new(w->arena, int64_t, w->n_params + 1u);
    const char *const act = cx->act;
    const uintptr_t site = cx->act_site;
    char reason[REASON];
    outcome found = FAILED;
    const deft_scope scope = deft_scope_begin(cx);
    if (!extent || !scope.depth) {
        if (scope.depth) w->st = deft_scope_end(scope);
        (void)df_deliver(cx);
        w->st = df_fail_mem(&cx->diag, "export", w->n_params * sizeof *extent);
        return FAILED;
    }
    for (uint32_t i = 0; i < w->n_params; i++)
        extent[i] = which == ALL ? w->was[i] * to : i == (uint32_t)which ? to : w->was[i];
    memcpy(reason, w->c->reason, sizeof reason);
    recording *t = record_trial(w, extent);
    (void)df_deliver(cx);
    memcpy(w->c->reason, reason, sizeof reason);
    df_diag_clear(&cx->diag);
    if (!t)
        w->st = DEFT_E_MEMORY;
    else if (t->has_trace && t->whole)
        found = is_same_trace(w, t->made.t) ? SAME : DIFFERS;
    if (t && keeps && found == SAME)
        keep_trial(w, t, extent);
    else
        df_recording_destroy(t);
    const deft_status ended = deft_scope_end(scope);
    if (w->st == DEFT_OK) w->st = ended;
    df_act(cx, act, site);
    if (w->st == DEFT_E_MEMORY) w->st = df_fail_mem(&cx->diag, "export", sizeof *t);
    return found;
}

/* The same. Arguments on which no result depends are in no trace, so that nothing says whether
 * their extents follow. The function decides: at first they do where they had the same number. */
static outcome try_extent(trial_work *w, int which, int64_t to, bool keeps)
{
    bool any = false;
    for (uint32_t i = 0; i < w->r->n_in; i++) any |= w->is_unused[i];
    w->resizes = any;
    outcome found = try_once(w, which, to, keeps);
    if (!any || found != FAILED || w->st != DEFT_OK) return found;
    w->resizes = false;
    return try_once(w, which, to, keeps);
}

/* ---- which extents ---- */

static deft_status refuse_extent(trial_work *w, const char *name, int64_t to)
{
    return df_fail(&w->cx->diag, DEFT_E_ARG,
                   "export: with %s = %" PRId64 ", %s. C code computes it from the extent, which "
                   "the exported function cannot follow; deft_mean and the like follow an extent, "
                   "and deft_param_f makes a number a parameter",
                   name, to, w->why);
}

/* Tries one element. Where that gives another trace, finds the least extent that does not. */
static void find_least(trial_work *w, uint32_t which)
{
    int64_t low = 1, high = w->was[which];
    if (high <= low || try_extent(w, (int)which, low, true) != DIFFERS) return;
    while (high - low > 1 && w->st == DEFT_OK) {
        const int64_t middle = low + (high - low) / 2;
        *(try_extent(w, (int)which, middle, false) == SAME ? &high : &low) = middle;
    }
    w->bounds[which].least = high;
}

/* Tries very many elements: a multiple of those of the recording, and so are those that follow. */
static void find_most(trial_work *w, uint32_t which)
{
    const int64_t n = df_max_i64(w->was[which], 1);
    int64_t low = 1, high = 2;
    while (high * n < MANY) high *= 2;
    if (try_extent(w, (int)which, high * n, true) != DIFFERS) return;
    while (high - low > 1 && w->st == DEFT_OK) {
        const int64_t middle = low + (high - low) / 2;
        *(try_extent(w, (int)which, middle * n, false) == SAME ? &low : &high) = middle;
    }
    w->bounds[which].most = low * n;
}

static deft_status try_parameter(trial_work *w, uint32_t which)
{
    const int64_t n = df_max_i64(w->was[which], 1);
    const int64_t to[] = { n + 1, 2 * n + 1, 2 * n, 3 * n, 4 * n, 8 * n };
    const char *const name = w->name[which];
    bool any = false;
    for (size_t i = 0; i < DF_LEN(to) && (i < 2 || !any); i++) {
        if (to[i] == w->was[which]) continue;
        const outcome found = try_extent(w, (int)which, to[i], true);
        if (w->st != DEFT_OK) return w->st;
        if (found == DIFFERS) return refuse_extent(w, name, to[i]);
        any |= found == SAME;
    }
    if (any) {
        find_least(w, which);
        if (w->st == DEFT_OK) find_most(w, which);
        return w->st;
    }
    for (int64_t by = 2; by <= 4 && !any; by++) { /* it may go together with others */
        const outcome found = try_extent(w, ALL, by, true);
        if (w->st != DEFT_OK) return w->st;
        if (found == DIFFERS) return refuse_extent(w, name, n * by);
        any = found == SAME;
    }
    if (any) return DEFT_OK;
    return df_fail(&w->cx->diag, DEFT_E_ARG,
                   "export: the function fails with every other extent %s that was tried, so it "
                   "cannot be open: %s",
                   name, w->why);
}

/* ---- exported ---- */

static deft_status prepare_trials(trial_work *w)
{
    const recording *const r = w->r;
    w->name = (const char **)df_arena_zalloc(w->arena, w->n_params * sizeof *w->name, 8);
    w->was = df_arena_new(w->arena, int64_t, w->n_params);
    w->is_given = df_arena_zalloc(w->arena, r->made.t->n_args + 1u, 1);
    w->value = (df_value **)df_arena_zalloc(w->arena, (r->places.n + 1) * sizeof *w->value, 8);
    w->outside = (df_value **)df_arena_zalloc(w->arena, (r->places.n + 1) * sizeof *w->outside, 8);
    w->is_unused = df_arena_alloc(w->arena, r->n_in + 1u, 1);
    if (!w->name || !w->was || !w->is_given || !w->value || !w->outside || !w->is_unused)
        return df_fail_mem(&w->cx->diag, "export", r->made.t->n_args);
    for (uint32_t i = 0; i < w->n_axes; i++) {
        const df_aot_found_axis *const a = &w->axis[i];
        const int64_t is = df_trace_extents(r->made.t, r->made.t->inputs[a->input].node)[a->axis];
        if (w->name[a->param] && w->was[a->param] != is)
            return df_fail(&w->cx->diag, DEFT_E_ARG,
                           "export: axes with the extent %s have %" PRId64 " and %" PRId64
                           " elements",
                           a->name, w->was[a->param], is);
        w->name[a->param] = a->name;
        w->was[a->param] = is;
    }
    for (uint32_t i = 0; i < r->n_in; i++) {
        w->is_unused[i] = true;
        for (uint32_t k = 0; k < r->made.t->n_inputs; k++) {
            const uint32_t at = place_of_input(r, k);
            w->is_unused[i] &= at == DF_NONE || r->places.at[at].cls != r->places.at[i].cls;
        }
    }
    for (size_t i = 0; i < r->numbers.n; i++) w->is_given[r->numbers.at[i].at] = true;
    for (size_t i = 0; i < r->draws.n; i++)
        w->is_given[r->draws.at[i].at] = w->is_given[r->draws.at[i].at + 1] = true;
    const deft_status st =
        df_buffer_create(&w->cx->diag, w->cx->rt->dev->allocator, 16, &w->element);
    if (st == DEFT_OK) memset(w->element->data, 0, 16);
    return st;
}

deft_status df_trials_run(const recording *r, const df_aot_found_axis *axis, uint32_t n,
                          uint32_t n_params, df_aot_bounds *bounds, df_arena *arena, df_trials *out)
{
    deft_status st = DEFT_OK;
    trial_work w = { .c = r->capture,
                     .cx = r->capture->cx,
                     .r = r,
                     .axis = axis,
                     .n_axes = n,
                     .n_params = n_params,
                     .bounds = bounds,
                     .arena = arena,
                     .out = out };
    df_assert(w.c->running);
    if (w.cx->step_at)
        return df_fail(&w.cx->diag, DEFT_E_STATE,
                       "export: a step is open, and open extents are tried in one");
    TRY(df_deliver(w.cx));
    if (w.cx->rec.n > 0) TRY(df_flush(w.cx));
    TRY(prepare_trials(&w));
    const outcome again = try_extent(&w, 0, w.was[0], false);
    TRY(w.st);
    if (again != SAME)
        TRY(df_fail(&w.cx->diag, DEFT_E_ARG,
                    "export: the function does not record the same again, so its open extents "
                    "cannot be tried: %s",
                    w.why));
    for (uint32_t i = 0; i < n_params; i++) TRY(try_parameter(&w, i));
done:
    df_buffer_drop(&w.element);
    return st;
}

void df_trials_finish(deft_ctx *cx, df_trials *t)
{
    for (size_t i = 0; i < t->made.n; i++) df_recording_destroy(t->made.at[i]);
    df_vec_finish(cx->mem, &t->made);
    df_vec_finish(cx->mem, &t->other);
}
