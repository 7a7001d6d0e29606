/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops and branches. What their functions record is appended to the same list as
 * everything else, so it is compared, replayed and printed in the same way.
 * trace/control.h has the form. A function runs in a body, a scope of its own
 * (`body_at`), which no handle leaves. Acting calls are refused while it is open. The
 * exception is external work in a custom gradient (work.c).
 */
#include "lazy/calls/control.h"
#include "lazy/run/body.h"
#include "lazy/core/annotations.h"
#include "lazy/complex/parts.h"
#include "lazy/core/meet.h"
#include "lazy/run/materialize.h"
#include "trace/control.h"

#include <string.h>

enum { MAX_WIDTH = 1 << 16 }; /* most tensors that one function takes or gives */

/* One call of one function. */
typedef struct call {
    deft_ctx *cx;
    const char *what, *who; /* the call and the function, for messages: "while", "the test" */
    deft_body_fn fn;
    void *user;
    uintptr_t site;
    /* the dtype of a result that is a bare number is decided after both branches are
     * recorded */
    bool defers;
} call;

/* Lists of a call, in one allocation. */
typedef struct space {
    size_t n;
    deft_tensor **in, **out;
    /* Copies of results that are bare numbers, which outlive the scope of the function. */
    deft_tensor *number, *first_number;
    uint32_t *from, *node, *made;
    uint8_t *face, *made_face; /* of what the function gets, and of what it must make or made */
} space;

static size_t control_space_size(size_t n)
{
    return n * (2 * sizeof(deft_tensor *) + 2 * sizeof(deft_tensor) + 3 * sizeof(uint32_t) + 2) + 1;
}

static bool control_space_alloc(deft_ctx *cx, const char *what, size_t n, space *s)
{
    char *const at = df_mem_zalloc(cx->mem, control_space_size(n));
    if (!at) {
        df_error(cx, DEFT_E_MEMORY, "%s: no memory for %zu tensors", what, n);
        return false;
    }
    *s = (space){ .n = n, .in = (deft_tensor **)(void *)at };
    s->out = s->in + n;
    s->number = (deft_tensor *)(void *)(s->out + n);
    s->first_number = s->number + n;
    s->from = (uint32_t *)(void *)(s->first_number + n);
    s->node = s->from + n;
    s->made = s->node + n;
    s->face = (uint8_t *)(s->made + n);
    s->made_face = s->face + n;
    return true;
}

static void control_space_free(deft_ctx *cx, space *s)
{
    if (s->in) df_mem_free(cx->mem, s->in, control_space_size(s->n));
    *s = (space){ 0 };
}

/* ---- arguments ---- */

static bool check_control_operands(deft_ctx *cx, const char *what, deft_tensor *const *list,
                                   size_t n)
{
    if (n > 0 && !list) {
        df_error(cx, DEFT_E_ARG, "%s: a list of %zu tensors is NULL", what, n);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        if (!df_enter_more_of(cx, what, (unsigned)i + 1, list[i], DF_ALL_FACES)) return false;
    return true;
}

static void clear_control_results(deft_tensor **out, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = NULL;
}

/* Returns ok, and clears out[] when it is false. The arguments may be in out[], so out[]
 * is cleared last. */
static bool finish_control_call(bool ok, deft_tensor **out, size_t n)
{
    if (!ok && out && n <= MAX_WIDTH) clear_control_results(out, n);
    return ok;
}

static deft_ctx *context_of(deft_ctx *cx, const char *what)
{
    if (!cx) return NULL;
    if (cx->rec.n >= cx->look_at && !df_make_room(cx)) return NULL;
    if (cx->body_nest < DF_MAX_NESTING) return cx;
    df_error(cx, DEFT_E_LIMIT, "%s: nested more than %d deep", what, DF_MAX_NESTING);
    return NULL;
}

/* ---- running a function ---- */

/* The dtype that a record shows under a face, and its shape as text. */
static const char *shown_text(const deft_ctx *cx, uint32_t node, df_face face, char *text)
{
    df_shape s;
    df_rec_shape(&cx->rec, node, &s);
    df_face_show(face, &s);
    (void)df_shape_text(&s, text, DF_SHAPE_TEXT);
    return deft_dtype_name(face ? df_face_dtype(face) : df_dtype_at(cx, node));
}

/* The record of result i, which must have the dtype and shape of record `like`, and a face. A bare
 * number takes them. */
static uint32_t result_like(const call *c, deft_tensor *t, size_t i, uint32_t like, df_face face)
{
    deft_ctx *const cx = c->cx;
    df_shape want, have;
    char a[DF_SHAPE_TEXT], b[DF_SHAPE_TEXT];
    const deft_dtype dtype = df_dtype_at(cx, like);
    df_rec_shape(&cx->rec, like, &want);
    if (t->flags & DF_HANDLE_WEAK && !df_face_is_stored(face)) {
        uint32_t number = df_weak_node(cx, t, dtype);
        if (df_face_is_complex(face))
            number = df_parts_join(cx, (df_parts){ number, DF_BAD, true }, c->site);
        if (number == DF_BAD || want.rank == 0) return number;
        return df_expand_to(cx, number, &want, c->site);
    }
    const uint32_t node = df_node_of(cx, t);
    if (node == DF_BAD) return DF_BAD;
    df_rec_shape(&cx->rec, node, &have);
    if (df_dtype_at(cx, node) == dtype && df_shape_equal(&want, &have) && df_face_of(t) == face)
        return node;
    const char *const made = shown_text(cx, node, df_face_of(t), b);
    const char *const wanted = shown_text(cx, like, face, a);
    df_error(cx, DEFT_E_SHAPE, "%s: %s makes result %zu %s%s, it must be %s%s", c->what, c->who, i,
             made, b, wanted, a);
    return DF_BAD;
}

static bool make_body_handles(const call *c, space *s, size_t n_in)
{
    for (size_t i = 0; i < n_in; i++)
        if (s->node[i] != DF_BAD && !(s->in[i] = df_result_faced(c->cx, s->node[i], s->face[i])))
            return false;
    return true;
}

static bool run_fn(const call *c, space *s, size_t n_in, size_t n_out)
{
    deft_ctx *const cx = c->cx;
    clear_control_results(s->out, n_out);
    const uint32_t before = df_mistakes(cx);
    const deft_status st = c->fn(cx, s->in, n_in, s->out, n_out, c->user);
    df_enter_call(cx, c->site);
    if (st != DEFT_OK && df_mistakes(cx) == before)
        df_error(cx, st, "%s: %s failed", c->what, c->who);
    if (df_mistakes(cx) != before) return false;
    for (size_t i = 0; i < n_out; i++) {
        if (!s->out[i]) {
            df_error(cx, DEFT_E_ARG, "%s: %s leaves result %zu of %zu NULL", c->what, c->who, i,
                     n_out);
            return false;
        }
        if (!df_enter_more_of(cx, c->what, (unsigned)i + 1, s->out[i], DF_ALL_FACES)) return false;
    }
    return true;
}

/* Sets the record of result i, which need not be like another record. When c defers
 * numbers, a bare number is left in s->number, and its record is DF_BAD. */
static bool result_itself(const call *c, space *s, size_t i)
{
    deft_tensor *const t = s->out[i];
    const bool is_deferred = c->defers && t->flags & DF_HANDLE_WEAK;
    if (is_deferred) df_number_move(&s->number[i], t);
    s->made[i] = is_deferred ? DF_BAD : df_node_of(c->cx, t);
    if (!is_deferred) s->made_face[i] = (uint8_t)df_face_of(t);
    return is_deferred || s->made[i] != DF_BAD;
}

/* Runs c's function in a body, on handles of the records s->node[0..n_in). Where a record
 * is DF_BAD, the function gets the handle s->in[i] itself. Sets s->made[i] to the record
 * of result i, which must be like record s->from[i], unless that is DF_BAD. */
static bool record_control_body(const call *c, space *s, size_t n_in, size_t n_out)
{
    uint32_t was;
    if (!df_body_open(c->cx, c->site, &was)) return false;
    bool ok = make_body_handles(c, s, n_in) && run_fn(c, s, n_in, n_out);
    for (size_t i = 0; i < n_out && ok; i++) {
        if (s->from[i] == DF_BAD) {
            ok = result_itself(c, s, i);
        } else {
            s->made[i] = result_like(c, s->out[i], i, s->from[i], s->made_face[i]);
            ok = s->made[i] != DF_BAD;
        }
    }
    df_body_close(c->cx, was);
    return ok;
}

/* ---- loops ---- */

static uint32_t append2(deft_ctx *cx, df_op op, uint32_t like, uint32_t a, uint32_t b,
                        uintptr_t site)
{
    const uint32_t src[3] = { a, b, DF_BAD };
    if (a == DF_BAD || b == DF_BAD) return DF_BAD;
    return df_append(cx, op, df_dtype_at(cx, like), 0, src, NULL, 0, NULL, site);
}

static uint32_t open_loop(deft_ctx *cx, int64_t most, uint32_t attr, uintptr_t site)
{
    const uint32_t around =
        cx->body_loop == DF_NONE ? df_cst(cx, DEFT_I64, 0, site) : cx->body_loop;
    if (around == DF_BAD) return DF_BAD;
    return df_append(cx, DF_OP_loop, DEFT_I64, attr, &around, &most, 1, NULL, site);
}

/* Appends the states of the loop, in s->node[0..n). The results of the body must be like
 * them. */
static bool enter_states(deft_ctx *cx, space *s, deft_tensor *const *init, size_t n, uint32_t loop,
                         uintptr_t site)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t from = df_node_of(cx, init[i]);
        s->face[i] = s->made_face[i] = (uint8_t)df_face_of(init[i]);
        s->node[i] = s->from[i] =
            from == DF_BAD ? DF_BAD : append2(cx, DF_OP_carry, from, from, loop, site);
        if (s->node[i] == DF_BAD) return false;
    }
    return true;
}

static uint32_t append_next(deft_ctx *cx, uint32_t state, uint32_t value, uint32_t before,
                            uintptr_t site)
{
    const uint32_t src[3] = { state, value, before };
    return df_append(cx, DF_OP_next, df_dtype_at(cx, state), 0, src, NULL, 0, NULL, site);
}

static uint32_t append_stack(deft_ctx *cx, uint32_t row, uint32_t before, int64_t length,
                             uintptr_t site)
{
    df_shape s, all;
    const uint32_t src[3] = { row, before, DF_BAD };
    df_rec_shape(&cx->rec, row, &s);
    if (s.rank == DEFT_MAX_RANK) {
        df_error(cx, DEFT_E_LIMIT, "scan: rows of rank %d leave no axis for the iterations",
                 DEFT_MAX_RANK);
        return DF_BAD;
    }
    all.rank = s.rank + 1;
    all.dim[0] = length;
    memcpy(all.dim + 1, s.dim, s.rank * sizeof *s.dim);
    return df_append(cx, DF_OP_stack, df_dtype_at(cx, row), 0, src, NULL, 0, &all, site);
}

/* Appends the list that ends the loop, and its results. s->node: the states; s->made: the
 * results of the body. A result that the body passes on unchanged is also a value of the
 * loop. */
static bool close_loop(const call *c, space *s, size_t n_states, size_t n_outs, int64_t length,
                       uint32_t before, deft_tensor **out)
{
    deft_ctx *const cx = c->cx;
    const size_t n = n_states + n_outs;
    for (size_t i = 0; i < n; i++) {
        before = i < n_states ? append_next(cx, s->node[i], s->made[i], before, c->site)
                              : append_stack(cx, s->made[i], before, length, c->site);
        if (before == DF_BAD) return false;
        s->from[i] = before;
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t k = append2(cx, DF_OP_final, s->from[i], s->from[i], before, c->site);
        out[i] = df_result_faced(cx, k, s->made_face[i]);
        if (!out[i]) return false;
    }
    cx->finals += (uint32_t)n;
    return true;
}

static bool record_while(call *c, deft_body_fn test, deft_body_fn body, space *s,
                         deft_tensor *const *init, size_t n, int64_t most, deft_tensor **out)
{
    deft_ctx *const cx = c->cx;
    const uint32_t around = cx->body_loop, loop = open_loop(cx, most, 0, c->site);
    if (loop == DF_BAD || !enter_states(cx, s, init, n, loop, c->site)) return false;
    cx->body_loop = loop;
    const uint32_t like = s->from[0];
    df_shape shape;
    c->fn = test;
    c->who = "its test";
    s->from[0] = DF_BAD;
    bool ok = record_control_body(c, s, n, 1);
    s->from[0] = like;
    s->made_face[0] = s->face[0];
    const uint32_t holds = ok ? s->made[0] : DF_BAD;
    if (ok) {
        df_rec_shape(&cx->rec, holds, &shape);
        ok = df_dtype_at(cx, holds) == DEFT_BOOL && shape.rank == 0;
        if (!ok) {
            char text[DF_SHAPE_TEXT];
            df_error(cx, DEFT_E_DTYPE, "while: its test makes %s%s, it must make bool[]",
                     deft_dtype_name(df_dtype_at(cx, holds)),
                     df_shape_text(&shape, text, sizeof text));
        }
    }
    c->fn = body;
    c->who = "its body";
    ok = ok && record_control_body(c, s, n, n);
    cx->body_loop = around;
    if (!ok) return false;
    const uint32_t proceed = append2(cx, DF_OP_proceed, holds, holds, loop, c->site);
    return proceed != DF_BAD && close_loop(c, s, n, 0, 0, proceed, out);
}

static bool check_while(deft_ctx *cx, deft_body_fn test, deft_body_fn body,
                        deft_tensor *const *init, size_t n, int64_t most, deft_tensor **out)
{
    if (!context_of(cx, "while")) return false;
    if (test && body && out && n > 0 && n <= MAX_WIDTH && most >= 0)
        return check_control_operands(cx, "while", init, n);
    df_error(cx, DEFT_E_ARG,
             "while: %zu states, at most %lld iterations; it takes two functions, room for "
             "results, 1 to %d states and a bound of 0 or more",
             n, (long long)most, MAX_WIDTH);
    return false;
}

bool deft_while(deft_ctx *cx, deft_body_fn test, deft_body_fn body, void *user,
                deft_tensor *const *init, size_t n, int64_t most, deft_tensor **out)
{
    df_enter_call(cx, DF_SITE);
    call c = { .cx = cx, .what = "while", .user = user, .site = DF_SITE };
    space s = { 0 };
    const bool ok = check_while(cx, test, body, init, n, most, out) &&
                    control_space_alloc(cx, "while", n, &s) &&
                    record_while(&c, test, body, &s, init, n, most, out);
    if (cx) control_space_free(cx, &s);
    return finish_control_call(ok, out, n);
}

/* Appends the rows of the loop, in s->node[n_states ..). */
static bool enter_rows(deft_ctx *cx, space *s, deft_tensor *const *rows, size_t n_states, size_t n,
                       int64_t length, uint32_t loop, uintptr_t site)
{
    for (size_t i = 0; i < n; i++) {
        df_shape shape;
        char text[DF_SHAPE_TEXT];
        const uint32_t from = df_node_of(cx, rows[i]);
        if (from == DF_BAD) return false;
        s->face[n_states + i] = (uint8_t)df_face_of(rows[i]);
        df_shown_shape(cx, rows[i], &shape);
        if (shape.rank == 1 && df_face_is_packed(s->face[n_states + i]))
            return df_refuse_stored(cx, "scan", df_face_of(rows[i]), DF_SHARED_BYTES);
        if (shape.rank == 0 || shape.dim[0] != length) {
            df_error(cx, DEFT_E_SHAPE, "scan: rows %zu are %s, the first axis must have %lld", i,
                     df_shape_text(&shape, text, sizeof text), (long long)length);
            return false;
        }
        s->node[n_states + i] = append2(cx, DF_OP_each, from, from, loop, site);
        if (s->node[n_states + i] == DF_BAD) return false;
    }
    return true;
}

static bool record_scan(call *c, space *s, deft_tensor *const *init, size_t n_states,
                        deft_tensor *const *rows, size_t n_rows, int64_t length, size_t n_outs,
                        deft_tensor **out, uint32_t attr)
{
    deft_ctx *const cx = c->cx;
    const uint32_t around = cx->body_loop, loop = open_loop(cx, length, attr, c->site);
    if (loop == DF_BAD || !enter_states(cx, s, init, n_states, loop, c->site) ||
        !enter_rows(cx, s, rows, n_states, n_rows, length, loop, c->site))
        return false;
    for (size_t i = 0; i < n_outs; i++) s->from[n_states + i] = DF_BAD;
    cx->body_loop = loop;
    const bool ok = record_control_body(c, s, n_states + n_rows, n_states + n_outs);
    cx->body_loop = around;
    return ok && close_loop(c, s, n_states, n_outs, length, loop, out);
}

static bool check_scan(deft_ctx *cx, deft_body_fn body, deft_tensor *const *init, size_t n_states,
                       deft_tensor *const *rows, size_t n_rows, int64_t length, size_t n_outs,
                       deft_tensor **out)
{
    if (!context_of(cx, "scan")) return false;
    if (body && out && n_states + n_outs > 0 && length >= 0 && n_states <= MAX_WIDTH &&
        n_rows <= MAX_WIDTH && n_outs <= MAX_WIDTH)
        return check_control_operands(cx, "scan", init, n_states) &&
               check_control_operands(cx, "scan", rows, n_rows);
    df_error(cx, DEFT_E_ARG,
             "scan: %zu states, %zu rows, %zu results, %lld iterations; it takes a function, room "
             "for results, something to make, at most %d of each and a length of 0 or more",
             n_states, n_rows, n_outs, (long long)length, MAX_WIDTH);
    return false;
}

bool df_scan(deft_ctx *cx, deft_body_fn body, void *user, deft_tensor *const *init, size_t n_states,
             deft_tensor *const *rows, size_t n_rows, int64_t length, size_t n_outs,
             deft_tensor **out, uint32_t attr, uintptr_t site)
{
    call c = {
        .cx = cx, .what = "scan", .who = "its body", .fn = body, .user = user, .site = site
    };
    space s = { 0 };
    const size_t n_out = n_states + n_outs, n_in = n_states + n_rows;
    const bool ok = check_scan(cx, body, init, n_states, rows, n_rows, length, n_outs, out) &&
                    control_space_alloc(cx, "scan", n_out > n_in ? n_out : n_in, &s) &&
                    record_scan(&c, &s, init, n_states, rows, n_rows, length, n_outs, out, attr);
    if (cx) control_space_free(cx, &s);
    return finish_control_call(ok, out,
                               n_states <= MAX_WIDTH && n_outs <= MAX_WIDTH ? n_out : SIZE_MAX);
}

bool deft_scan(deft_ctx *cx, deft_body_fn body, void *user, deft_tensor *const *init,
               size_t n_states, deft_tensor *const *rows, size_t n_rows, int64_t length,
               size_t n_outs, deft_tensor **out)
{
    df_enter_call(cx, DF_SITE);
    return df_scan(cx, body, user, init, n_states, rows, n_rows, length, n_outs, out, 0, DF_SITE);
}

/* ---- branches ---- */

/* Decides the dtypes of results that are bare numbers in the first branch. Each takes the
 * dtype and shape of the other branch's result. When both branches give a number, the
 * dtype of the first one is used. */
static bool settle_numbers(const call *c, space *s, size_t n)
{
    deft_ctx *const cx = c->cx;
    for (size_t i = 0; i < n; i++) {
        if (s->from[i] != DF_BAD) continue;
        const deft_dtype own = df_tensor_dtype(cx, &s->first_number[i]);
        const bool both = s->made[i] == DF_BAD;
        s->from[i] = both ? df_weak_node(cx, &s->first_number[i], own)
                          : result_like(c, &s->first_number[i], i, s->made[i], s->made_face[i]);
        if (s->from[i] == DF_BAD) return false;
        if (both) s->made[i] = result_like(c, &s->number[i], i, s->from[i], 0);
        if (s->made[i] == DF_BAD) return false;
    }
    return true;
}

static bool record_cond(call *c, deft_body_fn then, deft_body_fn otherwise, uint32_t condition,
                        space *s, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out)
{
    deft_ctx *const cx = c->cx;
    for (size_t i = 0; i < n_in; i++) {
        const bool is_number = in[i]->flags & DF_HANDLE_WEAK;
        s->in[i] = in[i]; /* a bare number takes its dtype within a branch */
        s->face[i] = (uint8_t)df_face_of(in[i]);
        s->node[i] = is_number ? DF_BAD : df_node_of(cx, in[i]);
        if (!is_number && s->node[i] == DF_BAD) return false;
    }
    for (size_t i = 0; i < n_out; i++) s->from[i] = DF_BAD;
    const uint32_t first = cx->rec.n;
    c->defers = true;
    c->fn = then;
    c->who = "its first branch";
    if (!record_control_body(c, s, n_in, n_out)) return false;
    for (size_t i = 0; i < n_out; i++) {
        s->from[i] = s->made[i];
        s->first_number[i] = s->number[i];
    }
    const uint32_t middle = cx->rec.n;
    c->fn = otherwise;
    c->who = "its other branch";
    /* A result that is a bare number only here is made like the one of the first branch. */
    if (!record_control_body(c, s, n_in, n_out) || !settle_numbers(c, s, n_out)) return false;
    for (size_t i = 0; i < n_out; i++) {
        const uint32_t src[3] = { condition, s->from[i], s->made[i] };
        const uint32_t k =
            df_append(cx, DF_OP_cond, df_dtype_at(cx, s->from[i]), 0, src, NULL, 0, NULL, c->site);
        if (i == 0 && k != DF_BAD && !df_grad_annotate_branches(cx, k, first, middle)) return false;
        if (!(out[i] = df_result_faced(cx, k, s->made_face[i]))) return false;
    }
    return true;
}

static bool check_cond(deft_ctx *cx, uint32_t condition, deft_body_fn then, deft_body_fn otherwise,
                       deft_tensor *const *in, size_t n_in, deft_tensor **out, size_t n_out)
{
    df_shape shape;
    char text[DF_SHAPE_TEXT];
    if (condition == DF_BAD) return false;
    if (!then || !otherwise || !out || n_out == 0 || n_out > MAX_WIDTH || n_in > MAX_WIDTH) {
        df_error(cx, DEFT_E_ARG,
                 "cond: %zu tensors, %zu results; it takes two functions, room for results, 1 to "
                 "%d of them and no more tensors",
                 n_in, n_out, MAX_WIDTH);
        return false;
    }
    if (!check_control_operands(cx, "cond", in, n_in)) return false;
    df_rec_shape(&cx->rec, condition, &shape);
    if (df_dtype_at(cx, condition) == DEFT_BOOL && shape.rank == 0) return true;
    df_error(cx, DEFT_E_DTYPE, "cond: the condition is %s%s, it must be bool[]",
             deft_dtype_name(df_dtype_at(cx, condition)), df_shape_text(&shape, text, sizeof text));
    return false;
}

bool df_cond(deft_ctx *cx, uint32_t condition, deft_body_fn then, deft_body_fn otherwise,
             void *user, deft_tensor *const *in, size_t n_in, deft_tensor **out, size_t n_out,
             uintptr_t site)
{
    space s = { 0 };
    call c = { .cx = cx, .what = "cond", .user = user, .site = site };
    const bool ok = cx && check_cond(cx, condition, then, otherwise, in, n_in, out, n_out) &&
                    control_space_alloc(cx, "cond", n_in > n_out ? n_in : n_out, &s) &&
                    record_cond(&c, then, otherwise, condition, &s, in, n_in, out, n_out);
    if (cx) control_space_free(cx, &s);
    return finish_control_call(ok, out, n_out);
}

bool deft_cond(deft_tensor *condition, deft_body_fn then, deft_body_fn otherwise, void *user,
               deft_tensor *const *in, size_t n_in, deft_tensor **out, size_t n_out)
{
    deft_ctx *const cx = context_of(df_enter("cond", 1, condition, DF_SITE), "cond");
    return df_cond(cx, cx ? df_node_of(cx, condition) : DF_BAD, then, otherwise, user, in, n_in,
                   out, n_out, DF_SITE);
}
