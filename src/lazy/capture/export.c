/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_export: a recording of a capture becomes an object or a C file. The plug-in deft-aot does
 * the work (src/aot/aot.h). This file says what the inputs, numbers and results of the trace are in
 * terms of the captured function.
 */
#include "deft/export.h"

#include <stdio.h>
#include <string.h>

#include "lazy/capture/trials.h"
#include "lazy/core/devices.h"
#include "lazy/files/writer.h"
#include "lazy/run/submit.h"
#include "runtime/export.h"

enum { MOST_NAME = 64, MOST_PATH = 4096 };

typedef struct export_work {
    deft_ctx *cx;
    df_diag *d;
    const recording *r;
    deft_export_options o;
    df_arena arena;
    df_trace t; /* that of the recording, with row-major inputs */
    df_aot_options aot;
    df_aot_gpu gpu;
    df_aot_input *input;
    const char **output;
    uint32_t *input_order, *root_order;
    df_aot_number *number;
    df_aot_open_axis *open;
    df_trials trials;
} export_work;

/* The recording that was used last, among those that can be replayed; NULL: there is none. */
static const recording *latest_recording(const deft_capture *c)
{
    const recording *found = NULL;
    for (uint32_t i = 0; i < DEFT_MAX_RECORDINGS; i++) {
        const recording *const r = c->recordings[i];
        if (r && r->whole && r->committed && r->cut && (!found || r->used > found->used)) found = r;
    }
    return found;
}

/* ---- inputs ---- */

static bool is_same_ref(tensor_ref a, tensor_ref b)
{
    return a.t == b.t && (a.t || a.arg == b.arg);
}

static bool is_assigned(const recording *r, tensor_ref ref)
{
    for (size_t i = 0; i < r->assigned.n; i++)
        if (is_same_ref(r->assigned.at[i].to, ref)) return true;
    for (size_t i = 0; i < r->wanted.n; i++)
        if (r->made.t->roots[i].kind == DF_ROOT_INTO && is_same_ref(r->wanted.at[i], ref))
            return true;
    return false;
}

/* Copies the value of an outside tensor, which becomes input k, row-major. */
static deft_status copy_outside(export_work *w, uint32_t k, deft_tensor *t, const void **out)
{
    const df_value *const v = df_handle_value(w->cx, t);
    if (!v)
        return df_fail(w->d, DEFT_E_STATE, "export: a tensor from outside has no value any more");
    const deft_dtype dtype = (deft_dtype)w->t.nodes[w->t.inputs[k].node].dtype;
    const size_t bytes = df_value_size(v);
    void *const packed = df_arena_alloc(&w->arena, bytes ? bytes : 1, 64);
    if (!packed) return df_fail_mem(w->d, "export", bytes);
    *out = packed;
    return df_value_read(w->cx, w->d, v, dtype, packed);
}

static const char *input_name(export_work *w, uint32_t arg)
{
    if (w->o.inputs && w->o.inputs[arg]) return w->o.inputs[arg];
    char *const name = df_arena_alloc(&w->arena, MOST_NAME, 1);
    if (name) (void)snprintf(name, MOST_NAME, "in%u", arg);
    return name;
}

static deft_status find_inputs(export_work *w)
{
    deft_status st = DEFT_OK;
    uint32_t n_outside = 0;
    for (uint32_t k = 0; k < w->t.n_inputs; k++) {
        df_input *const in = &w->t.inputs[k];
        const df_node *const n = &w->t.nodes[in->node];
        int64_t stride = 1;
        for (uint32_t x = n->rank; x-- > 0;) {
            in->stride[x] = stride;
            stride *= df_trace_extents(&w->t, in->node)[x];
        }
        in->flags |= DF_INPUT_CONTIGUOUS;
        const tensor_ref from = df_recording_source(w->r, k);
        if (!from.t && from.arg != DF_NONE) {
            w->input[k].name = input_name(w, from.arg);
        } else if (from.t && !w->o.passes_outside && !is_assigned(w->r, from)) {
            TRY(copy_outside(w, k, from.t, &w->input[k].data));
        } else {
            char *const name = df_arena_alloc(&w->arena, MOST_NAME, 1);
            if (name) (void)snprintf(name, MOST_NAME, "outside%u", n_outside++);
            w->input[k].name = name;
        }
        if (!w->input[k].name && !w->input[k].data) TRY(df_fail_mem(w->d, "export", MOST_NAME));
    }
done:
    return st;
}

/* The place of input k among the parameters: arguments of the call by their numbers, then tensors
 * from outside. */
static uint64_t input_rank(const export_work *w, uint32_t k)
{
    const tensor_ref from = df_recording_source(w->r, k);
    const bool is_argument = !from.t && from.arg != DF_NONE;
    return (is_argument ? (uint64_t)from.arg : UINT64_C(1) << 32) << 31 | k;
}

static uint64_t root_rank(const export_work *w, uint32_t k)
{
    const recording *const r = w->r;
    for (size_t i = 0; i < r->outputs.n; i++)
        if (r->outputs.at[i].value == k) return (uint64_t)r->outputs.at[i].to.arg << 31 | k;
    return UINT64_C(1) << 63 | k;
}

static void put_in_order(const export_work *w, uint32_t *order, uint32_t n,
                         uint64_t (*rank)(const export_work *w, uint32_t k))
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && rank(w, order[at - 1]) > rank(w, i); at--) order[at] = order[at - 1];
        order[at] = i;
    }
}

/* ---- results ---- */

/* Names the root of a target. */
static deft_status name_target(export_work *w, const target *x, bool is_output)
{
    const recording *const r = w->r;
    if (x->value >= r->results.n)
        return df_fail(w->d, DEFT_E_ARG,
                       "export: a result is a tensor that the function does not compute");
    if (w->output[x->value]) return DEFT_OK;
    char *const name = df_arena_alloc(&w->arena, MOST_NAME, 1);
    if (!name) return df_fail_mem(w->d, "export", MOST_NAME);
    if (is_output && w->o.outputs && w->o.outputs[x->to.arg]) {
        w->output[x->value] = w->o.outputs[x->to.arg];
        return DEFT_OK;
    }
    if (is_output)
        (void)snprintf(name, MOST_NAME, "out%u", x->to.arg);
    else
        (void)snprintf(name, MOST_NAME, "new%u", x->value);
    for (uint32_t k = 0; !is_output && k < w->t.n_inputs; k++)
        if (is_same_ref(df_recording_source(r, k), x->to) && w->input[k].name)
            (void)snprintf(name, MOST_NAME, "%.50s_new", w->input[k].name);
    w->output[x->value] = name;
    return DEFT_OK;
}

static deft_status find_results(export_work *w)
{
    deft_status st = DEFT_OK;
    for (size_t i = 0; i < w->r->outputs.n; i++) TRY(name_target(w, &w->r->outputs.at[i], true));
    for (size_t i = 0; i < w->r->assigned.n; i++) TRY(name_target(w, &w->r->assigned.at[i], false));
done:
    return st;
}

/* ---- numbers ---- */

/* Adds a number of the trace, whose name is found here. Its parameter is that of number `same`, or,
 * where that is DF_NONE, a new one with a name of its own. */
static deft_status add_number(export_work *w, const char *name, uint32_t same, df_aot_number x)
{
    const uint32_t n = w->aot.n_numbers;
    if (same != DF_NONE) {
        x.name = w->number[same].name;
    } else {
        bool is_known = false;
        char *const own = df_arena_alloc(&w->arena, MOST_NAME, 1);
        if (!own) return df_fail_mem(w->d, "export", MOST_NAME);
        for (uint32_t k = 0; k < n; k++) is_known |= strcmp(w->number[k].name, name) == 0;
        if (is_known)
            (void)snprintf(own, MOST_NAME, "%.40s_%u", name, n);
        else
            (void)snprintf(own, MOST_NAME, "%.60s", name);
        x.name = own;
    }
    w->number[n] = x;
    w->aot.n_numbers++;
    return DEFT_OK;
}

/* The numbers of the function that are one parameter of the capture are one parameter. */
static deft_status find_parameters(export_work *w)
{
    deft_status st = DEFT_OK;
    const recording *const r = w->r;
    const deft_capture *const c = r->capture;
    for (uint32_t i = 0; i < r->numbers.n; i++) {
        const number_note *const note = &r->numbers.at[i];
        char name[MOST_NAME];
        uint32_t same = 0;
        while (same < i && (r->numbers.at[same].from != note->from ||
                            r->numbers.at[same].is_layers != note->is_layers))
            same++;
        (void)snprintf(name, sizeof name, "layer%u", i);
        const bool is_integer =
            note->is_layers ? !df_is_float(note->dtype) : c->params.at[note->from].is_int;
        TRY(add_number(w, note->is_layers ? name : c->params.at[note->from].name,
                       same < i ? same : DF_NONE,
                       (df_aot_number){ .arg = note->at, .is_integer = is_integer }));
    }
done:
    return st;
}

/* Each generator has a seed, and the number of its first draw. */
static deft_status find_draws(export_work *w)
{
    deft_status st = DEFT_OK;
    const recording *const r = w->r;
    const uint32_t first = w->aot.n_numbers;
    for (uint32_t i = 0; i < r->draws.n; i++) {
        const draw_note *const note = &r->draws.at[i];
        char seed[MOST_NAME], draw[MOST_NAME];
        uint32_t k = 0;
        while (k < i && r->draws.at[k].rng != note->rng) k++;
        const uint32_t same = k < i ? first + 2 * k : DF_NONE;
        (void)snprintf(seed, sizeof seed, "seed%u", note->rng);
        (void)snprintf(draw, sizeof draw, "draw%u", note->rng);
        TRY(add_number(w, seed, same, (df_aot_number){ .arg = note->at, .is_integer = true }));
        TRY(add_number(w, draw, same == DF_NONE ? DF_NONE : same + 1,
                       (df_aot_number){ .arg = note->at + 1,
                                        .is_integer = true,
                                        .add = note->draw,
                                        .n_draws = (uint32_t)r->rngs.at[note->rng].n }));
    }
done:
    return st;
}

/* ---- extents ---- */

static deft_status find_extents(export_work *w)
{
    uint32_t n = 0;
    for (size_t i = 0; i < w->o.n_extents; i++) {
        const deft_export_extent *const e = &w->o.extents[i];
        bool found = false;
        for (uint32_t k = 0; k < w->t.n_inputs; k++) {
            const tensor_ref from = df_recording_source(w->r, k);
            if (from.t || from.arg != e->input) continue;
            found = true;
            w->open[n++] = (df_aot_open_axis){ e->name, k, (uint32_t)e->axis };
        }
        if (!found)
            return df_fail(w->d, DEFT_E_ARG, "export: the function does not use input %zu",
                           e->input);
    }
    w->aot.n_open = n;
    return DEFT_OK;
}

/* Records the function with other extents (df_aot_trials). */
static deft_status try_extents(void *user, const df_aot_found_axis *axis, uint32_t n,
                               uint32_t n_params, const df_aot_other **other, uint32_t *n_other,
                               df_aot_bounds *bounds)
{
    export_work *const w = user;
    const deft_status st = df_trials_run(w->r, axis, n, n_params, bounds, &w->arena, &w->trials);
    *other = w->trials.other.at;
    *n_other = (uint32_t)w->trials.other.n;
    return st;
}

/* ---- files ---- */

static deft_status write_file(export_work *w, const char *path, const char *suffix,
                              const df_str *bytes)
{
    char name[MOST_PATH];
    deft_status st = DEFT_OK;
    if ((size_t)snprintf(name, sizeof name, "%s%s", path, suffix) >= sizeof name)
        return df_fail(w->d, DEFT_E_ARG, "export: the path has more than %d bytes", MOST_PATH);
    df_writer f = { .d = w->d, .what = "export", .path = name };
    TRY(df_writer_begin(&f, w->cx->mem));
    TRY(df_writer_put(&f, bytes->at, bytes->n));
    TRY(df_writer_commit(&f));
done:
    df_writer_finish(&f);
    return st;
}

/* ---- a trace ---- */

/* Appends the name of an input to its line. */
static void note_input(df_str *out, uint32_t k, void *user)
{
    const export_work *const w = user;
    if (w->t.nodes[k].op == DF_OP_input)
        df_str_fmt(out, "  # %s", w->input[w->input_order[w->t.nodes[k].attr]].name);
}

/* Puts inputs and roots into the order of the parameters. All results are new values. */
static deft_status put_trace_in_order(export_work *w)
{
    df_trace *const t = &w->t;
    df_node *const nodes = df_arena_new(&w->arena, df_node, t->n_nodes + 1u);
    df_input *const inputs = df_arena_new(&w->arena, df_input, t->n_inputs + 1u);
    df_root *const roots = df_arena_new(&w->arena, df_root, t->n_roots + 1u);
    if (!nodes || !inputs || !roots) return df_fail_mem(w->d, "export", t->n_nodes * sizeof *nodes);
    memcpy(nodes, t->nodes, t->n_nodes * sizeof *nodes);
    for (uint32_t k = 0; k < t->n_inputs; k++) {
        inputs[k] = t->inputs[w->input_order[k]];
        inputs[k].flags = DF_INPUT_CONTIGUOUS;
        nodes[inputs[k].node].attr = k;
    }
    for (uint32_t k = 0; k < t->n_roots; k++)
        roots[k] = (df_root){ .node = t->roots[w->root_order[k]].node,
                              .kind = DF_ROOT_NEW,
                              .into = DF_NONE,
                              .donor = DF_NONE };
    t->nodes = nodes;
    t->inputs = inputs;
    t->roots = roots;
    return DEFT_OK;
}

static deft_status make_trace(export_work *w, const char *path)
{
    deft_status st = DEFT_OK;
    df_str text;
    df_str_init(&text, w->cx->mem);
    if (w->aot.n_numbers || w->o.n_extents)
        TRY(df_fail(w->d, DEFT_E_ARG, "export: a trace has no parameters, and %s is one",
                    w->aot.n_numbers ? w->number[0].name : w->o.extents[0].name));
    TRY(put_trace_in_order(w));
    df_trace_print_noted(&text, &w->t, note_input, w);
    if (!text.ok) TRY(df_fail_mem(w->d, "export", text.cap));
    TRY(write_file(w, path, ".trace", &text));
done:
    df_str_finish(&text);
    return st;
}

/* Appends the call of the operator that the exporter names. */
static void name_call(const export_work *w)
{
    char site[DF_SITE_TEXT];
    const uint32_t node = w->d->node;
    if (node == 0 || !w->t.site[node - 1]) return;
    (void)df_fail_more(w->d, " (at %s)",
                       df_ctx_site_text(w->cx, w->t.site[node - 1], site, sizeof site));
}

static deft_status make_files(export_work *w, const char *path)
{
    deft_status st = DEFT_OK;
    df_aot_files files;
    df_str *const all[] = { &files.header, &files.object, &files.shared, &files.c };
    for (size_t i = 0; i < DF_LEN(all); i++) df_str_init(all[i], w->cx->mem);
    st = df_plugin_export(w->d, w->cx->mem, NULL, &w->t, &w->aot, &files);
    if (st != DEFT_OK) name_call(w);
    TRY(st);
    const bool is_c = w->o.as_c || w->o.as_cuda;
    TRY(is_c             ? write_file(w, path, ".c", &files.c)
        : w->o.as_shared ? write_file(w, path, ".so", &files.shared)
                         : write_file(w, path, ".o", &files.object));
    TRY(write_file(w, path, ".h", &files.header));
done:
    for (size_t i = 0; i < DF_LEN(all); i++) df_str_finish(all[i]);
    return st;
}

/* ---- the call ---- */

/* An opaque operator is a function of this process. A trace names it; no other file can. */
static deft_status refuse_opaque(const export_work *w)
{
    const df_trace *const t = w->r->made.t;
    for (uint32_t k = 0; k < t->n_nodes && !w->o.as_trace; k++)
        if (t->nodes[k].op == DF_OP_call)
            return df_fail(
                w->d, DEFT_E_ARG,
                "export: the program calls %s, an opaque operator, which is a function of "
                "this process: only as_trace can name it",
                df_opaques_at(t->opaques, t->nodes[k].attr)->name);
    return DEFT_OK;
}

static deft_status export_recording(export_work *w, const char *path)
{
    deft_status st = DEFT_OK;
    const recording *const r = w->r;
    if ((st = refuse_opaque(w)) != DEFT_OK) return st;
    const char *const slash = strrchr(path, '/');
    const size_t n_numbers = r->numbers.n + 2 * r->draws.n;
    const df_aot_trials trials = { try_extents, w };
    w->t = *r->made.t;
    w->t.max_temporary_bytes = 0; /* the workspace is the caller's */
    w->t.inputs = df_arena_new(&w->arena, df_input, w->t.n_inputs + 1u);
    w->input = df_arena_zalloc(&w->arena, sizeof *w->input * (w->t.n_inputs + 1u), 8);
    w->output = df_arena_zalloc(&w->arena, sizeof *w->output * (w->t.n_roots + 1u), 8);
    w->number = df_arena_new(&w->arena, df_aot_number, n_numbers + 1);
    w->open = df_arena_new(&w->arena, df_aot_open_axis, w->o.n_extents * (w->t.n_inputs + 1u) + 1);
    w->input_order = df_arena_new(&w->arena, uint32_t, w->t.n_inputs + 1u);
    w->root_order = df_arena_new(&w->arena, uint32_t, w->t.n_roots + 1u);
    if (!w->t.inputs || !w->input || !w->output || !w->number || !w->open || !w->input_order ||
        !w->root_order)
        return df_fail_mem(w->d, "export", n_numbers * sizeof *w->number);
    memcpy(w->t.inputs, r->made.t->inputs, w->t.n_inputs * sizeof *w->t.inputs);
    w->aot = (df_aot_options){ .name = w->o.name ? w->o.name
                                       : slash   ? slash + 1
                                                 : path,
                               .input = w->input,
                               .input_order = w->input_order,
                               .root_order = w->root_order,
                               .output = w->output,
                               .open = w->open,
                               .trials = &trials,
                               .number = w->number,
                               .levels = w->o.levels,
                               .wants_object = !w->o.as_c && !w->o.as_shared && !w->o.as_cuda,
                               .wants_shared = w->o.as_shared,
                               .wants_c = w->o.as_c };
    w->gpu = (df_aot_gpu){ .architectures = w->o.architectures, .n_sms = w->o.multiprocessors };
    if (w->o.as_cuda) w->aot.gpu = &w->gpu;
    put_in_order(w, w->input_order, w->t.n_inputs, input_rank);
    put_in_order(w, w->root_order, w->t.n_roots, root_rank);
    TRY(find_inputs(w));
    TRY(find_results(w));
    TRY(find_parameters(w));
    TRY(find_draws(w));
    TRY(find_extents(w));
    TRY(w->o.as_trace ? make_trace(w, path) : make_files(w, path));
done:
    df_trials_finish(w->cx, &w->trials);
    return st;
}

deft_status deft_export(deft_capture *c, const char *path, const deft_export_options *o)
{
    if (!c) return DEFT_E_ARG;
    deft_ctx *const cx = c->cx;
    df_act(cx, "export", DF_SITE);
    deft_status st = df_may_act(cx);
    if (st != DEFT_OK) return st;
    if (!path || !*path) return df_fail(&cx->diag, DEFT_E_ARG, "export: the path is empty");
    if (o && !df_check_options(cx, "export", "deft_export_options", o->size)) return DEFT_E_ARG;
    if (c->running)
        return df_fail(&cx->diag, DEFT_E_STATE, "export: the captured function is running");
    export_work w = { .cx = cx, .d = &cx->diag, .r = latest_recording(c) };
    if (!w.r)
        return df_fail(&cx->diag, DEFT_E_STATE,
                       "export: the capture has no recording that can be replayed%s%s",
                       c->reason[0] ? ": " : "; call it first", c->reason);
    if ((st = df_wait_for_steps(cx)) != DEFT_OK) return st;
    df_take_options(&w.o, sizeof w.o, o, o ? o->size : 0);
    if (w.o.as_c + w.o.as_shared + w.o.as_trace + w.o.as_cuda > 1)
        return df_fail(&cx->diag, DEFT_E_ARG,
                       "export: as_c, as_shared, as_cuda and as_trace are kinds of output, and one "
                       "is made");
    if (!w.o.as_cuda && (w.o.architectures || w.o.multiprocessors))
        return df_fail(&cx->diag, DEFT_E_ARG,
                       "export: architectures and multiprocessors are for as_cuda");
    if (w.o.multiprocessors < 0 || w.o.multiprocessors > 100000)
        return df_fail(&cx->diag, DEFT_E_ARG, "export: a GPU has no %d multiprocessors",
                       w.o.multiprocessors);
    w.o.passes_outside |= w.o.as_trace;
    df_arena_init(&w.arena, cx->mem);
    c->running = true; /* by trials */
    st = export_recording(&w, path);
    c->running = false;
    df_arena_finish(&w.arena);
    if (c->doomed) deft_capture_destroy(&c);
    return st;
}
