/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls that record gradients, and the table of rules.
 */
#include "lazy/grad/grad.h"
#include "lazy/core/recorder.h"

#include <string.h>

static const df_grad_rules rules = {
    .of_op = {
#define OP(name, n_src, class, facets) [DF_OP_##name] = facets,
#define GRAD(rule) df_grad_##rule
#include "ops/ops.def"
    },
    .meet_annotations = df_grad_meet_annotations,
};

typedef struct call {
    deft_ctx *cx;
    const char *what;
    uintptr_t site;
    bool unused_is_zero;
} call;

static bool check_grad_lists(deft_ctx *cx, const char *what, deft_tensor *const *of, size_t n_of,
                             deft_tensor *const *with, size_t n_with, deft_tensor **out)
{
    if (!of || !with || !out || n_of == 0 || n_with == 0) {
        df_error(cx, DEFT_E_ARG,
                 "%s: %zu results, %zu tensors; it takes a list of each, of at least one, and room "
                 "for what it makes",
                 what, n_of, n_with);
        return false;
    }
    for (size_t i = 0; i < n_of; i++)
        if (!df_enter_more_faced(cx, what, (unsigned)i + 1, of[i])) return false;
    for (size_t i = 0; i < n_with; i++)
        if (!df_enter_more_faced(cx, what, (unsigned)(n_of + i) + 1, with[i])) return false;
    return true;
}

/* The context of the first result. NULL when one of the lists cannot be used. */
static deft_ctx *enter_grad_call(const char *what, deft_tensor *const *of, size_t n_of,
                                 deft_tensor *const *with, size_t n_with, deft_tensor **out,
                                 uintptr_t site)
{
    if (!of || n_of == 0) return NULL;
    deft_ctx *const cx = df_enter_faced(what, 1, of[0], site);
    return cx && check_grad_lists(cx, what, of, n_of, with, n_with, out) ? cx : NULL;
}

/* The record of t, which must be a float tensor. DF_BAD with the error recorded. */
static uint32_t float_record(const call *c, const char *role, size_t i, deft_tensor *t)
{
    deft_ctx *const cx = c->cx;
    df_shape s;
    char text[DF_SHAPE_TEXT];
    if (t->flags & DF_HANDLE_WEAK) {
        df_error(cx, DEFT_E_ARG, "%s: %s %zu is a bare number", c->what, role, i);
        return DF_BAD;
    }
    const uint32_t k = df_node_of(cx, t);
    if (k == DF_BAD || df_is_float(df_dtype_at(cx, k))) return k;
    df_rec_shape(&cx->rec, k, &s);
    df_error(cx, DEFT_E_DTYPE, "%s: %s %zu is %s%s; only floats have gradients", c->what, role, i,
             deft_dtype_name(df_dtype_at(cx, k)), df_shape_text(&s, text, sizeof text));
    return DF_BAD;
}

/* The record to which t was bound before the step assigned to it. DF_BAD when the step
 * has not, or the record is gone. For an argument of a captured function, the log has the
 * caller's handle. */
static uint32_t earlier_record(deft_ctx *cx, const deft_tensor *t)
{
    const deft_tensor *const twin = df_recording_twin(cx, t);
    if (twin && twin->flags & DF_HANDLE_UNDO) t = twin;
    if (!(t->flags & DF_HANDLE_UNDO)) return DF_BAD;
    for (size_t i = cx->undo.n; i-- > 0;)
        if (cx->undo.at[i].t == t)
            return cx->undo.at[i].epoch == cx->epoch ? cx->undo.at[i].node : DF_BAD;
    return DF_BAD;
}

/* The records of with[i]: the current one, and the one before the step assigned to it (or
 * DF_BAD). */
typedef struct asked {
    uint32_t now, before;
} asked;

/* The seed of result i, whose record is k: the tensor `seed`, whose face must be that of the
 * result, or 1. */
static uint32_t seed_record(const call *c, size_t i, uint32_t k, df_face face, deft_tensor *seed)
{
    deft_ctx *const cx = c->cx;
    df_shape s, have;
    char a[DF_SHAPE_TEXT], b[DF_SHAPE_TEXT];
    const deft_dtype t = df_dtype_at(cx, k);
    df_rec_shape(&cx->rec, k, &s);
    if (seed && !(seed->flags & DF_HANDLE_WEAK)) {
        const uint32_t g = df_node_of(cx, seed);
        if (g == DF_BAD) return DF_BAD;
        df_rec_shape(&cx->rec, g, &have);
        if (df_dtype_at(cx, g) == t && df_shape_equal(&s, &have) && df_face_of(seed) == face)
            return g;
        df_face_show(face, &s);
        df_face_show(df_face_of(seed), &have);
        df_error(cx, DEFT_E_SHAPE, "%s: seed %zu is %s%s, result %zu is %s%s", c->what, i,
                 deft_dtype_name(df_shown_dtype(cx, seed)), df_shape_text(&have, a, sizeof a), i,
                 deft_dtype_name(face ? df_face_dtype(face) : t), df_shape_text(&s, b, sizeof b));
        return DF_BAD;
    }
    if (face) {
        df_error(cx, DEFT_E_DTYPE,
                 "%s: result %zu is %s: without a seed of that dtype its gradient is not known; "
                 "take the gradient of a real number, such as deft_abs or deft_real",
                 c->what, i, deft_dtype_name(df_face_dtype(face)));
        return DF_BAD;
    }
    int64_t n = 1;
    for (uint32_t j = 0; j < s.rank; j++) n *= s.dim[j];
    if (!seed && n != 1) {
        df_error(cx, DEFT_E_SHAPE,
                 "%s: result %zu is %s%s; without a seed it must have one element: sum it, or give "
                 "a seed",
                 c->what, i, deft_dtype_name(t), df_shape_text(&s, a, sizeof a));
        return DF_BAD;
    }
    const uint32_t one = seed ? df_weak_node(cx, seed, t) : df_cst(cx, t, 1, c->site);
    return s.rank && one != DF_BAD ? df_expand_to(cx, one, &s, c->site) : one;
}

static bool trace_gradient_paths(const call *c, df_grad *w, const asked *a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        df_grad_with(w, a[i].now);
        if (a[i].before != DF_BAD) df_grad_with(w, a[i].before);
    }
    const uint32_t before = df_mistakes(c->cx);
    df_grad_trace(w);
    return df_mistakes(c->cx) == before;
}

static bool seed_grad_results(const call *c, df_grad *w, const uint32_t *of, const uint32_t *seed,
                              size_t n)
{
    w->site = c->site;
    for (size_t i = 0; i < n; i++)
        if (!df_grad_give(w, of[i], seed[i])) return false;
    return true;
}

/* The gradient of the current record, else of the earlier one; DF_BAD: none. */
static uint32_t found_gradient(df_grad *w, const asked *a)
{
    const uint32_t g = df_grad_of(w, a->now);
    return g == DF_BAD && a->before != DF_BAD ? df_grad_of(w, a->before) : g;
}

/* The record of the gradient for with[i]. DF_BAD with the error recorded. */
static uint32_t requested_gradient(const call *c, df_grad *w, const asked *a, size_t i)
{
    deft_ctx *const cx = c->cx;
    df_shape s;
    char text[DF_SHAPE_TEXT];
    const uint32_t g = found_gradient(w, a);
    if (g != DF_BAD) return g;
    if (c->unused_is_zero) return df_grad_zeros(cx, a->now, c->site);
    df_rec_shape(&cx->rec, a->now, &s);
    df_error(cx, DEFT_E_STATE,
             "%s: no result depends on tensor %zu, %s%s, by what this step recorded "
             "(unused_is_zero makes its gradient 0)",
             c->what, i, deft_dtype_name(df_dtype_at(cx, a->now)),
             df_shape_text(&s, text, sizeof text));
    return DF_BAD;
}

/* Lists of a call, in one allocation. */
typedef struct space {
    void *block;
    size_t bytes;
    uint32_t *of, *seed, *made;
    asked *with;
} space;

static bool grad_space_alloc(const call *c, size_t n_of, size_t n_with, space *s)
{
    deft_ctx *const cx = c->cx;
    const size_t most = DF_TRACE_MAX_NODES;
    *s = (space){ 0 };
    if (n_of <= most && n_with <= most) {
        s->bytes = n_of * 2 * sizeof(uint32_t) + n_with * (sizeof(asked) + sizeof(uint32_t));
        s->block = df_mem_alloc(cx->mem, s->bytes);
    }
    if (!s->block) {
        df_error(cx, DEFT_E_MEMORY, "%s: no memory for %zu results and %zu tensors", c->what, n_of,
                 n_with);
        return false;
    }
    s->with = s->block;
    s->of = (uint32_t *)(s->with + n_with);
    s->seed = s->of + n_of;
    s->made = s->seed + n_of;
    return true;
}

static void grad_space_free(deft_ctx *cx, space *s)
{
    if (s->block) df_mem_free(cx->mem, s->block, s->bytes);
    s->block = NULL;
}

static bool find_requested_records(const call *c, deft_tensor *const *with, size_t n, space *s)
{
    for (size_t i = 0; i < n; i++) {
        s->with[i].now = float_record(c, "tensor", i, with[i]);
        s->with[i].before = earlier_record(c->cx, with[i]);
        if (s->with[i].now == DF_BAD) return false;
    }
    return true;
}

/* Sets s->made to the records of the gradients. */
static bool gradients(const call *c, deft_tensor *const *of, deft_tensor *const *seeds, size_t n_of,
                      deft_tensor *const *with, size_t n_with, space *s)
{
    deft_ctx *const cx = c->cx;
    df_grad w = { .cx = cx };
    if (!find_requested_records(c, with, n_with, s)) return false;
    for (size_t i = 0; i < n_of; i++) {
        s->of[i] = float_record(c, "result", i, of[i]);
        if (s->of[i] == DF_BAD) return false;
        s->seed[i] = seed_record(c, i, s->of[i], df_face_of(of[i]), seeds ? seeds[i] : NULL);
        if (s->seed[i] == DF_BAD) return false;
    }
    bool ok = df_grad_init(&w, cx, c->what, 0, &rules) &&
              trace_gradient_paths(c, &w, s->with, n_with) &&
              seed_grad_results(c, &w, s->of, s->seed, n_of) && df_grad_walk(&w);
    for (size_t i = 0; i < n_with && ok; i++)
        ok = (s->made[i] = requested_gradient(c, &w, &s->with[i], i)) != DF_BAD;
    df_grad_finish(&w);
    return ok;
}

/* out[i] looks like tensor like[i]. The two lists may be one. */
static bool results(deft_ctx *cx, const uint32_t *made, deft_tensor *const *like, size_t n,
                    deft_tensor **out)
{
    for (size_t i = 0; i < n; i++)
        if (!(out[i] = df_result_faced(cx, made[i], df_face_of(like[i])))) return false;
    return true;
}

static bool finish_grad_call(bool ok, deft_tensor **out, size_t n)
{
    for (size_t i = 0; !ok && out && i < n; i++) out[i] = NULL;
    return ok;
}

static bool take_options(call *c, const deft_grad_options *options)
{
    deft_grad_options o = { .size = sizeof o };
    if (options && !df_check_options(c->cx, c->what, "deft_grad_options", options->size))
        return false;
    if (options) df_take_options(&o, sizeof o, options, options->size);
    c->unused_is_zero = o.unused_is_zero;
    return true;
}

bool deft_grad(deft_tensor *const *of, deft_tensor *const *seeds, size_t n_of,
               deft_tensor *const *with, size_t n_with, const deft_grad_options *options,
               deft_tensor **out)
{
    call c = { .what = "grad", .site = DF_SITE };
    space s = { 0 };
    c.cx = enter_grad_call("grad", of, n_of, with, n_with, out, c.site);
    bool ok = c.cx && take_options(&c, options);
    for (size_t i = 0; ok && seeds && i < n_of; i++)
        ok = !seeds[i] || df_enter_more_faced(c.cx, "grad", (unsigned)i + 1, seeds[i]);
    if (c.cx) df_walk_begin(c.cx);
    ok = ok && grad_space_alloc(&c, n_of, n_with, &s) &&
         gradients(&c, of, seeds, n_of, with, n_with, &s) &&
         results(c.cx, s.made, with, n_with, out);
    if (c.cx) df_walk_end(c.cx);
    if (c.cx) grad_space_free(c.cx, &s);
    return finish_grad_call(ok, out, n_with);
}

bool deft_value_and_grad(deft_ctx *cx, deft_body_fn fn, void *user, deft_tensor *const *in,
                         size_t n_in, deft_tensor **values, size_t n_values, deft_tensor **grads)
{
    call c = { .cx = cx, .what = "value_and_grad", .site = DF_SITE };
    space s = { 0 };
    if (!cx) return finish_grad_call(false, grads, n_in);
    df_enter_call(cx, c.site);
    if (!fn || !in || !values || !grads || n_in == 0 || n_values == 0) {
        df_error(cx, DEFT_E_ARG,
                 "value_and_grad: %zu tensors, %zu values; it takes a function, and room for one "
                 "value and for a gradient of each tensor at least",
                 n_in, n_values);
        return finish_grad_call(false, grads, n_in);
    }
    for (size_t i = 0; i < n_values; i++) values[i] = NULL;
    const uint32_t before = df_mistakes(cx);
    const deft_status st = fn(cx, in, n_in, values, n_values, user);
    df_enter_call(cx, c.site);
    if (st != DEFT_OK && df_mistakes(cx) == before)
        df_error(cx, st, "value_and_grad: its function failed");
    for (size_t i = 0; i < n_values && df_mistakes(cx) == before; i++)
        if (!values[i])
            df_error(cx, DEFT_E_ARG, "value_and_grad: its function leaves value %zu of %zu NULL", i,
                     n_values);
    df_walk_begin(cx);
    const bool ok = df_mistakes(cx) == before &&
                    check_grad_lists(cx, c.what, values, n_values, in, n_in, grads) &&
                    grad_space_alloc(&c, 1, n_in, &s) &&
                    gradients(&c, values, NULL, 1, in, n_in, &s) &&
                    results(cx, s.made, in, n_in, grads);
    df_walk_end(cx);
    grad_space_free(cx, &s);
    return finish_grad_call(ok, grads, n_in);
}

/* ---- forward mode ---- */

/* Records the gradients of all of `of` with respect to `with`. They are linear functions
 * of the seeds, which are new records in s->seed. s->made[i] is DF_BAD where no result
 * depends on with[i]. */
static bool linearize(const call *c, size_t n_of, size_t n_with, space *s)
{
    df_grad w = { .cx = c->cx };
    for (size_t i = 0; i < n_of; i++) {
        s->seed[i] = df_grad_zeros(c->cx, s->of[i], c->site);
        if (s->seed[i] == DF_BAD) return false;
    }
    bool ok = df_grad_init(&w, c->cx, c->what, 0, &rules) &&
              trace_gradient_paths(c, &w, s->with, n_with) &&
              seed_grad_results(c, &w, s->of, s->seed, n_of) && df_grad_walk(&w);
    for (size_t i = 0; i < n_with && ok; i++) {
        s->made[i] = found_gradient(&w, &s->with[i]);
        if (s->made[i] == DF_BAD && !c->unused_is_zero)
            ok = requested_gradient(c, &w, &s->with[i], i) != DF_BAD;
    }
    df_grad_finish(&w);
    return ok;
}

/* Records the images of the tangents: the gradients with respect to the seeds of what
 * linearize made, weighted by the tangents. */
static bool transpose(const call *c, deft_tensor *const *with, deft_tensor *const *tangents,
                      size_t n_of, size_t n_with, space *s)
{
    df_grad w = { .cx = c->cx };
    bool ok = df_grad_init(&w, c->cx, c->what, s->seed[0], &rules);
    for (size_t i = 0; i < n_of && ok; i++) df_grad_with(&w, s->seed[i]);
    if (ok) df_grad_trace(&w);
    w.site = c->site;
    for (size_t i = 0; i < n_with && ok; i++) {
        if (s->made[i] == DF_BAD) continue;
        const uint32_t t = seed_record(c, i, s->with[i].now, df_face_of(with[i]), tangents[i]);
        ok = t != DF_BAD && df_grad_give(&w, s->made[i], t);
    }
    ok = ok && df_grad_walk(&w);
    for (size_t i = 0; i < n_of && ok; i++) {
        const uint32_t image = df_grad_of(&w, s->seed[i]);
        s->of[i] = image == DF_BAD ? df_grad_zeros(c->cx, s->of[i], c->site) : image;
        ok = s->of[i] != DF_BAD;
    }
    df_grad_finish(&w);
    return ok;
}

bool deft_jvp(deft_tensor *const *of, size_t n_of, deft_tensor *const *with,
              deft_tensor *const *tangents, size_t n_with, const deft_grad_options *options,
              deft_tensor **out)
{
    call c = { .what = "jvp", .site = DF_SITE };
    space s = { 0 };
    deft_ctx *const cx = c.cx = enter_grad_call("jvp", of, n_of, with, n_with, out, c.site);
    bool ok = cx && take_options(&c, options);
    if (ok && !tangents) {
        df_error(cx, DEFT_E_ARG, "jvp: the list of %zu tangents is NULL", n_with);
        ok = false;
    }
    for (size_t i = 0; ok && i < n_with; i++)
        ok = df_enter_more_faced(cx, "jvp", (unsigned)i + 1, tangents[i]);
    if (cx) df_walk_begin(cx);
    ok = ok && grad_space_alloc(&c, n_of, n_with, &s) &&
         find_requested_records(&c, with, n_with, &s);
    for (size_t i = 0; i < n_of && ok; i++)
        ok = (s.of[i] = float_record(&c, "result", i, of[i])) != DF_BAD;
    ok = ok && linearize(&c, n_of, n_with, &s) && transpose(&c, with, tangents, n_of, n_with, &s) &&
         results(cx, s.of, of, n_of, out);
    if (cx) df_walk_end(cx);
    if (cx) grad_space_free(cx, &s);
    return finish_grad_call(ok, out, n_of);
}
