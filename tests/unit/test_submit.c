/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps left to run (deft_step_submit). A gate before the device's run holds the context's thread
 * where a test wants it, so that what must happen meanwhile does happen meanwhile.
 * Why this file is long: each call that must wait, and each thing that a failure must put back.
 */
#include "support/harness.h"

#include "base/fp.h"
#include "lazy/run/submit.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the gate ---- */

static atomic_bool closed, is_held;
static atomic_int n_runs;
static deft_status (*real_run)(df_device *, df_diag *, const df_plan *, const df_trace *,
                               const int64_t *, df_launch_io *, df_run_stats *);

static deft_status gated(df_device *dev, df_diag *d, const df_plan *p, const df_trace *t,
                         const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    while (atomic_load(&closed)) {
        atomic_store(&is_held, true);
        sched_yield();
    }
    atomic_fetch_add(&n_runs, 1);
    return real_run(dev, d, p, t, slots, io, stats);
}

static void open_rig(rig *r, const deft_runtime_options *o)
{
    deft_runtime_options mine = { .size = sizeof mine,
                                  .n_threads = 1,
                                  .tier = DEFT_TIER_INTERPRET };
    if (o) mine = *o;
    mine.log = "error";
    rig_open(r, &mine, NULL);
    real_run = r->rt->dev->run;
    r->rt->dev->run = gated;
}

static void close_gate(void)
{
    atomic_store(&is_held, false);
    atomic_store(&closed, true);
}

static void wait_held(void)
{
    while (!atomic_load(&is_held)) sched_yield();
}

static void open_gate(void)
{
    atomic_store(&closed, false);
}

/* Opens the gate while the program waits for what is behind it. */
static void *open_soon(void *user)
{
    (void)user;
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    open_gate();
    return NULL;
}

/* ---- shorthands ---- */

/* t *= 2, left to run. */
static deft_status twice(rig *r, deft_tensor *t)
{
    const deft_scope s = deft_step_begin(r->cx);
    deft_assign(t, deft_mul(t, 2));
    return deft_step_submit(s);
}

/* The same, with an index that is not there. */
static deft_status faulty(rig *r, deft_tensor *t)
{
    static const int64_t bad[1] = { 7 };
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *const at = deft_from(r->cx, DEFT_SHAPE(1), DEFT_I64, bad, sizeof bad);
    deft_assign(t, deft_add(t, deft_take(t, at, 0)));
    return deft_step_submit(s);
}

static bool says(const rig *r, const char *what)
{
    return strstr(deft_message(r->cx), what) != NULL;
}

#define EXPECT(t, ...) RIG_EXPECT(&r, (t), __VA_ARGS__)

/* ---- while it runs ---- */

Test(submit, recording_goes_on)
{
    rig r;
    open_rig(&r, NULL);
    deft_tensor *a = rig_range(&r, 3, 1), *b = rig_range(&r, 3, 5), *c = rig_range(&r, 3, 0);
    OK(&r, deft_eval(&b, 1));
    close_gate();
    deft_scope s = deft_step_begin(r.cx);
    deft_assign(a, deft_mul(a, 2));
    deft_tensor *made = deft_keep(deft_sum(a, DEFT_ALL_AXES, 0));
    OK(&r, deft_step_submit(s));
    wait_held();
    /* Nothing has run, and all is known but the values. */
    cr_assert_eq(atomic_load(&n_runs), 0);
    cr_assert_eq(deft_rank(made), 0);
    cr_assert_eq(deft_dim(a, 0), 3);
    cr_assert_eq(deft_dtype_of(made), DEFT_F32);
    s = deft_step_begin(r.cx);
    deft_assign(c, deft_add(deft_add(a, b), made));
    deft_tensor *temporary = deft_keep(deft_exp(a));
    deft_drop(&temporary);
    EXPECT(b, 5, 6, 7); /* a value that is there already */
    cr_assert_eq(atomic_load(&n_runs), 0);
    cr_assert(atomic_load(&closed));
    open_gate();
    OK(&r, deft_step_submit(s));
    EXPECT(c, 19, 22, 25);
    EXPECT(a, 2, 4, 6);
    cr_assert_eq(rig_item(&r, made), 12);
    cr_assert_eq(rig_stats(&r).submitted, 2);
    cr_assert_eq(rig_stats(&r).cuts, 2);
    cr_assert_eq(r.cx->pinned, 0);
    deft_drop(&made);
    rig_close(&r);
}

/* What t was bound to is let go while it is being read. */
Test(submit, dropped_while_it_is_read)
{
    rig r;
    open_rig(&r, NULL);
    deft_tensor *a = rig_range(&r, 3, 1), *b = rig_range(&r, 3, 5);
    for (int i = 0; i < 3; i++) {
        const float v[3] = { (float)i, (float)i, (float)i };
        close_gate();
        const deft_scope outer = deft_scope_begin(r.cx), s = deft_step_begin(r.cx);
        deft_assign(a, deft_add(a, deft_from(r.cx, DEFT_SHAPE(3), DEFT_F32, v, sizeof v)));
        OK(&r, deft_step_submit(s));
        OK(&r, deft_scope_end(outer));
        deft_tensor *again = deft_from(r.cx, DEFT_SHAPE(3), DEFT_F32, (float[]){ 9, 9, 9 }, 12);
        deft_assign(b, again); /* may take the memory that x had */
        open_gate();
        OK(&r, deft_wait(r.cx));
    }
    EXPECT(a, 4, 5, 6);
    EXPECT(b, 9, 9, 9);
    rig_close(&r);
}

typedef enum waiting {
    WAIT,
    READ,
    ITEM,
    MAP,
    EVAL,
    FORMAT,
    SAVE,
    LOAD,
    END,
    SUBMIT,
    SCOPE_END,
    CAPTURE,
    DESTROY,
    N_WAITING
} waiting;

static deft_status captured(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = deft_add(in[0], deft_const_f(cx, 1));
    return DEFT_OK;
}

static deft_capture *capture;

static deft_status call(rig *r, waiting what, deft_tensor *t, const char *path)
{
    float v[3];
    char text[64];
    deft_mapped m;
    deft_status st = DEFT_OK;
    const deft_named list = { "t", t };
    deft_scope s;
    switch (what) {
    case WAIT: return deft_wait(r->cx);
    case READ: return deft_read(t, DEFT_F32, v, sizeof v);
    case ITEM: return deft_item(deft_sum(t, DEFT_ALL_AXES, 0), v);
    case MAP:
        st = deft_map(t, &m);
        deft_unmap(&m);
        return st;
    case EVAL: return deft_eval(&t, 1);
    case FORMAT: return deft_format(t, text, sizeof text, NULL);
    case SAVE: return deft_save(r->cx, path, &list, 1);
    case LOAD: return deft_load(r->cx, path, &list, 1);
    case END:
    case SUBMIT:
        s = deft_step_begin(r->cx);
        deft_assign(t, deft_add(t, 0));
        return what == END ? deft_step_end(s) : deft_step_submit(s);
    case SCOPE_END: {
        s = deft_scope_begin(r->cx);
        deft_tensor *kept = deft_keep(deft_exp(t));
        st = deft_scope_end(s);
        deft_drop(&kept);
        return st;
    }
    case CAPTURE: {
        deft_tensor *out = NULL;
        if (!capture) capture = deft_capture_create(r->cx, captured, NULL);
        return deft_capture_call(capture, &t, 1, &out, 1);
    }
    case DESTROY:
        deft_capture_destroy(&capture);
        deft_ctx_destroy(&r->cx);
        return DEFT_OK;
    case N_WAITING: break;
    }
    return DEFT_E_ARG;
}

Test(submit, calls_that_wait)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/deft-submit-%ld", (long)getpid());
    for (waiting k = 0; k < N_WAITING; k++) {
        rig r;
        pthread_t thread;
        open_rig(&r, NULL);
        deft_tensor *a = rig_range(&r, 3, 1);
        OK(&r, call(&r, SAVE, a, path));
        OK(&r, call(&r, CAPTURE, a, path)); /* the next one replays */
        close_gate();
        OK(&r, twice(&r, a));
        wait_held();
        cr_assert_eq(pthread_create(&thread, NULL, open_soon, NULL), 0);
        OK(&r, call(&r, k, a, path));
        cr_assert(!atomic_load(&closed), "%d did not wait", (int)k);
        pthread_join(thread, NULL);
        if (k != DESTROY && k != LOAD) EXPECT(a, 2, 4, 6);
        if (k != DESTROY) deft_capture_destroy(&capture);
        rig_close(&r);
    }
    unlink(path);
}

/* As the calls above, when what they wait for has failed. */
Test(submit, calls_that_find_a_failure)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/deft-submit-%ld", (long)getpid());
    for (waiting k = 0; k < N_WAITING; k++) {
        rig r;
        open_rig(&r, NULL);
        deft_tensor *a = rig_range(&r, 3, 1);
        OK(&r, call(&r, SAVE, a, path));
        OK(&r, call(&r, CAPTURE, a, path)); /* the next one replays */
        OK(&r, faulty(&r, a));
        const deft_status st = call(&r, k, a, path);
        if (k == DESTROY) {
            cr_assert(strstr(r.log, "never collected: "), "%s", r.log);
            cr_assert(strstr(r.log, "take: index 7 is outside [0,3)"), "%s", r.log);
        } else {
            cr_assert_eq(st, DEFT_E_RANGE, "%d: %s", (int)k, deft_message(r.cx));
            cr_assert_eq(strncmp(deft_message(r.cx), "step submitted at ", 18), 0, "%s",
                         deft_message(r.cx));
            cr_assert(says(&r, "test_submit.c:") || says(&r, "+0x"), "%s", deft_message(r.cx));
            cr_assert(says(&r, ": take: index 7 is outside [0,3)"), "%s", deft_message(r.cx));
            EXPECT(a, 1, 2, 3);
            OK(&r, deft_wait(r.cx));
            OK(&r, twice(&r, a));
            EXPECT(a, 2, 4, 6);
            cr_assert_eq(r.cx->pinned, 0);
            deft_capture_destroy(&capture);
        }
        rig_close(&r);
    }
    unlink(path);
}

/* A mistake in recording is returned at once. */
Test(submit, recording_errors_at_once)
{
    rig r;
    open_rig(&r, NULL);
    deft_tensor *a = rig_range(&r, 3, 1), *b = rig_range(&r, 2, 1);
    OK(&r, twice(&r, a));
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(a, deft_add(a, b));
    cr_assert_eq(deft_step_submit(s), DEFT_E_SHAPE);
    OK(&r, deft_wait(r.cx));
    EXPECT(a, 2, 4, 6);
    cr_assert_eq(deft_step_submit(s), DEFT_E_STATE);
    cr_assert(says(&r, "step_submit: the step is not open"), "%s", deft_message(r.cx));
    cr_assert_eq(deft_step_submit((deft_scope){ 0 }), DEFT_E_ARG);
    cr_assert_eq(deft_wait(NULL), DEFT_E_ARG);
    rig_close(&r);
}

/* Records of before the step would be needed again should it fail. */
Test(submit, runs_at_once_with_older_records)
{
    rig r;
    open_rig(&r, NULL);
    deft_tensor *a = deft_keep(deft_full(r.cx, DEFT_SHAPE(2), DEFT_F32, 3));
    OK(&r, twice(&r, a));
    cr_assert_eq(atomic_load(&n_runs), 1);
    EXPECT(a, 6, 6);
    cr_assert_eq(rig_stats(&r).submitted, 0);
    deft_tensor *b = deft_keep(deft_add(a, 1));
    OK(&r, faulty(&r, a) == DEFT_E_RANGE ? DEFT_OK : DEFT_E_STATE);
    EXPECT(b, 7, 7);
    OK(&r, twice(&r, a));
    EXPECT(a, 12, 12);
    cr_assert_eq(rig_stats(&r).submitted, 1);
    /* A step that computes nothing has nothing to leave. */
    const deft_scope s = deft_step_begin(r.cx);
    OK(&r, deft_step_submit(s));
    cr_assert_eq(rig_stats(&r).submitted, 1);
    rig_close(&r);
}

/* ---- failures ---- */

Test(submit, interrupted)
{
    rig r;
    open_rig(&r, NULL);
    deft_tensor *a = rig_range(&r, 3, 1);
    close_gate();
    OK(&r, twice(&r, a));
    wait_held();
    deft_interrupt(r.cx);
    open_gate();
    cr_assert_eq(deft_wait(r.cx), DEFT_E_INTERRUPTED);
    cr_assert(says(&r, "step submitted at "), "%s", deft_message(r.cx));
    EXPECT(a, 1, 2, 3);
    OK(&r, twice(&r, a));
    EXPECT(a, 2, 4, 6);
    rig_close(&r);
}

/* What was recorded since, outside steps, goes with it. */
Test(submit, what_came_after_is_put_back)
{
    rig r;
    open_rig(&r, NULL);
    float memory[2] = { 5, 5 };
    deft_tensor *a = rig_range(&r, 2, 1), *b = rig_range(&r, 2, 10), *c = rig_range(&r, 2, 20);
    deft_tensor *out =
        deft_keep(deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, memory, sizeof memory, NULL));
    const deft_scope outer = deft_scope_begin(r.cx);
    deft_tensor *inner = deft_from(r.cx, DEFT_SHAPE(2), DEFT_F32, (float[]){ 3, 4 }, 8);
    deft_tensor *same = deft_from(r.cx, DEFT_SHAPE(2), DEFT_F32, (float[]){ 6, 7 }, 8);
    const deft_scope s = deft_step_begin(r.cx);
    const int64_t bad = 7;
    deft_tensor *const at = deft_from(r.cx, DEFT_SHAPE(1), DEFT_I64, &bad, sizeof bad);
    deft_assign(a, deft_add(a, deft_take(a, at, 0)));
    deft_tensor *within = deft_keep(deft_exp(a));
    OK(&r, deft_step_submit(s));
    deft_assign(b, deft_mul(a, 2));
    deft_assign(b, deft_mul(b, 2)); /* twice: the first binding counts */
    deft_assign(c, a);
    deft_assign(inner, deft_add(same, 1));
    deft_assign(out, deft_add(same, 1));
    deft_tensor *copy = deft_keep(deft_mul(a, 1));
    deft_tensor *bound = deft_keep(deft_from(r.cx, DEFT_SHAPE(2), DEFT_F32, memory, 8));
    deft_assign(bound, a);
    cr_assert_eq(deft_wait(r.cx), DEFT_E_RANGE);
    EXPECT(a, 1, 2);
    EXPECT(b, 10, 11);
    EXPECT(c, 20, 21);
    EXPECT(inner, 3, 4);
    EXPECT(same, 6, 7);
    EXPECT(bound, 5, 5); /* a value of its own, which depended on nothing */
    OK(&r, deft_scope_end(outer));
    EXPECT(out, 5, 5);
    cr_assert_eq(memory[0], 5);
    /* What was computed from what never came to be. */
    cr_assert_eq(deft_eval(&copy, 1), DEFT_E_STATE);
    cr_assert(says(&r, "neither value nor record"), "%s", deft_message(r.cx));
    cr_assert_eq(deft_eval(&within, 1), DEFT_E_STATE);
    cr_assert_null(deft_assign(copy, a));
    cr_assert_eq(deft_wait(r.cx), DEFT_E_STATE);
    cr_assert_eq(deft_rank(copy), 0);
    cr_assert_eq(deft_save(r.cx, "/tmp/deft-submit-never", &(deft_named){ "t", copy }, 1),
                 DEFT_E_STATE);
    deft_drop(&copy);
    deft_drop(&within);
    deft_drop(&bound);
    OK(&r, twice(&r, a));
    EXPECT(a, 2, 4);
    rig_close(&r);
}

Test(submit, an_open_step_is_void)
{
    for (int way = 0; way < 3; way++) {
        rig r;
        open_rig(&r, NULL);
        deft_tensor *a = rig_range(&r, 2, 1), *b = rig_range(&r, 2, 10), *c = rig_range(&r, 2, 7);
        OK(&r, faulty(&r, a));
        const deft_scope s = deft_step_begin(r.cx);
        deft_assign(b, deft_mul(a, 2));
        deft_assign(a, deft_add(a, 1));
        if (way > 0) {
            float v[2];
            cr_assert_eq(deft_read(a, DEFT_F32, v, sizeof v), DEFT_E_RANGE);
            cr_assert_eq(strncmp(deft_message(r.cx), "step submitted at ", 18), 0);
            cr_assert(says(&r, " (and with it the step opened at "), "%s", deft_message(r.cx));
            /* The program goes on: nothing of it takes effect. */
            deft_assign(b, deft_add(b, 1));
            deft_assign_f(b, 3);
            cr_assert_eq(deft_read(b, DEFT_F32, v, sizeof v), DEFT_E_RANGE);
            cr_assert(says(&r, "read: the step opened at "), "%s", deft_message(r.cx));
            cr_assert(says(&r, " is void: step submitted at "), "%s", deft_message(r.cx));
            cr_assert_eq(deft_read(c, DEFT_F32, v, sizeof v), DEFT_E_RANGE);
            cr_assert_eq(deft_eval(&a, 1), DEFT_E_RANGE);
            cr_assert_eq(deft_wait(r.cx), DEFT_E_RANGE);
        }
        if (way == 2)
            deft_step_abort(s);
        else
            cr_assert_eq(deft_step_end(s), DEFT_E_RANGE);
        if (way == 0) cr_assert_eq(strncmp(deft_message(r.cx), "step submitted at ", 18), 0);
        if (way == 1) cr_assert(says(&r, "step_end: the step opened at "));
        EXPECT(a, 1, 2);
        EXPECT(b, 10, 11);
        cr_assert_eq(deft_step_end(s), DEFT_E_STATE);
        OK(&r, twice(&r, b));
        EXPECT(b, 20, 22);
        rig_close(&r);
    }
}

/* The other order: the step that is open fails, the one in flight does not. */
Test(submit, aborting_leaves_the_one_in_flight)
{
    rig r;
    open_rig(&r, NULL);
    deft_tensor *a = rig_range(&r, 2, 1);
    close_gate();
    OK(&r, twice(&r, a));
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(a, deft_mul(a, 100));
    deft_step_abort(s);
    cr_assert(atomic_load(&closed));
    open_gate();
    EXPECT(a, 2, 4);
    OK(&r, faulty(&r, a));
    const deft_scope s2 = deft_step_begin(r.cx);
    deft_assign(a, deft_mul(a, 100));
    deft_step_abort(s2);
    cr_assert_eq(deft_wait(r.cx), DEFT_E_RANGE);
    EXPECT(a, 2, 4);
    rig_close(&r);
}

/* Nothing to compute, and yet it depends on what is in flight. */
Test(submit, an_end_that_computes_nothing)
{
    for (int bad = 0; bad < 2; bad++) {
        rig r;
        open_rig(&r, NULL);
        deft_tensor *a = rig_range(&r, 2, 1), *b = rig_range(&r, 2, 10);
        OK(&r, bad ? faulty(&r, a) : twice(&r, a));
        const deft_scope s = deft_step_begin(r.cx);
        deft_assign(b, a);
        cr_assert_eq(deft_step_submit(s), bad ? DEFT_E_RANGE : DEFT_OK);
        if (bad)
            EXPECT(b, 10, 11);
        else
            EXPECT(b, 2, 4);
        rig_close(&r);
    }
}

/* A context that dies while a step is void. */
Test(submit, destroyed_within_a_void_step)
{
    rig r;
    open_rig(&r, NULL);
    deft_tensor *a = rig_range(&r, 2, 1);
    OK(&r, faulty(&r, a));
    (void)deft_step_begin(r.cx);
    deft_assign(a, deft_mul(a, 2));
    cr_assert_eq(deft_wait(r.cx), DEFT_E_RANGE);
    deft_ctx_destroy(&r.cx);
    rig_close(&r);
}

/* A budget that is used up while one is in flight that fails. */
Test(submit, a_forced_cut_finds_a_failure)
{
    rig r;
    open_rig(&r, NULL);
    deft_tensor *a = rig_range(&r, 2, 1), *b = rig_range(&r, 2, 10);
    OK(&r, faulty(&r, a));
    const deft_step_options o = { .size = sizeof o, .max_nodes = 8 };
    const deft_scope s = deft_step_begin_with(r.cx, &o);
    for (int i = 0; i < 20; i++) deft_assign(b, deft_add(b, deft_mul(a, i)));
    cr_assert_eq(deft_error(r.cx), DEFT_E_RANGE);
    cr_assert_eq(deft_step_submit(s), DEFT_E_RANGE);
    cr_assert_eq(strncmp(deft_message(r.cx), "step submitted at ", 18), 0, "%s",
                 deft_message(r.cx));
    EXPECT(a, 1, 2);
    EXPECT(b, 10, 11);
    rig_close(&r);
}

/* A scope hands out what a failure has to put back. */
Test(submit, returned_from_a_scope)
{
    for (int kept = 0; kept < 2; kept++) {
        rig r;
        open_rig(&r, NULL);
        const deft_scope outer = deft_scope_begin(r.cx), s = deft_scope_begin(r.cx);
        deft_tensor *a = deft_from(r.cx, DEFT_SHAPE(2), DEFT_F32, (float[]){ 1, 2 }, 8);
        if (kept) deft_keep(a);
        OK(&r, faulty(&r, a));
        deft_tensor *out = deft_scope_return(s, a);
        deft_assign(out, deft_add(out, 1));
        cr_assert_eq(deft_wait(r.cx), DEFT_E_RANGE);
        EXPECT(out, 1, 2);
        if (kept) EXPECT(a, 1, 2);
        OK(&r, twice(&r, out));
        EXPECT(out, 2, 4);
        if (kept) EXPECT(a, 1, 2);
        OK(&r, deft_scope_end(outer));
        if (kept) deft_drop(&a);
        rig_close(&r);
    }
}

/* ---- the caller's memory ---- */

Test(submit, memory_is_written_when_waited_for)
{
    rig r;
    open_rig(&r, NULL);
    float memory[2][2] = { { 1, 2 }, { 3, 4 } };
    deft_tensor *x = rig_range(&r, 2, 10);
    for (int i = 0; i < 2; i++) {
        const deft_scope outer = deft_scope_begin(r.cx);
        deft_tensor *out = deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, memory[0], 8, NULL);
        deft_tensor *flip = deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, memory[1], 8, NULL);
        close_gate();
        const deft_scope s = deft_step_begin(r.cx);
        deft_assign(out, deft_add(x, out));
        deft_assign(flip, deft_flip(flip, DEFT_AXES(0))); /* copied after it has run */
        OK(&r, deft_step_submit(s));
        cr_assert_eq(memory[0][0], (float)(1 + 10 * i));
        open_gate();
        if (i == 0) {
            OK(&r, deft_wait(r.cx));
        } else {
            EXPECT(out, 21, 24);
            EXPECT(flip, 3, 4);
        }
        cr_assert_eq(memory[0][0], (float)(11 + 10 * i));
        cr_assert_eq(memory[1][0], i ? 3.0F : 4.0F);
        OK(&r, deft_scope_end(outer));
    }
    rig_close(&r);
}

/* A cut inside the step has computed what memory is to get: it is not written before the end. */
Test(submit, memory_of_a_cut_inside)
{
    for (int bad = 0; bad < 2; bad++) {
        rig r;
        open_rig(&r, NULL);
        float memory[2] = { 1, 2 };
        deft_tensor *x = rig_range(&r, 2, 10);
        deft_tensor *out = deft_keep(deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, memory, 8, NULL));
        const deft_step_options o = { .size = sizeof o, .max_nodes = 6 };
        const deft_scope s = deft_step_begin_with(r.cx, &o);
        deft_assign(out, deft_add(x, 1));
        for (int i = 0; i < 9; i++) deft_assign(x, deft_add(x, 1));
        close_gate();
        OK(&r, deft_step_submit(s));
        wait_held();
        cr_assert_eq(memory[0], 1);
        if (bad) deft_interrupt(r.cx);
        open_gate();
        cr_assert_eq(deft_wait(r.cx), bad ? DEFT_E_INTERRUPTED : DEFT_OK);
        cr_assert_eq(memory[0], bad ? 1.0F : 11.0F);
        if (bad)
            EXPECT(x, 10, 11);
        else
            EXPECT(out, 11, 12);
        rig_close(&r);
    }
}

/* ---- manners ---- */

Test(submit, denormals_are_kept)
{
    rig r;
    open_rig(&r, NULL);
    deft_tensor *a = rig_range(&r, 1, 1e-38F);
    const df_fp_state before = df_fp_enter();
#if defined(__SSE__)
    _mm_setcsr(0x9FC0u); /* flush to zero, denormals are zero: the thread inherits it */
#endif
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(a, deft_mul(a, 0.25));
    OK(&r, deft_step_submit(s));
    OK(&r, deft_wait(r.cx));
#if defined(__SSE__)
    cr_assert_eq(_mm_getcsr() & ~0x3Fu, 0x9FC0u);
#endif
    df_fp_leave(before);
    float v;
    OK(&r, deft_item(a, &v));
    cr_assert(v > 0 && v == 1e-38F * 0.25F);
    rig_close(&r);
}

Test(submit, one_processor)
{
    rig r;
    cpu_set_t one;
    const deft_runtime_options o = { .size = sizeof o, .n_threads = 4 };
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    open_rig(&r, &o);
    deft_tensor *a = deft_keep(deft_ones(r.cx, DEFT_SHAPE(100000), DEFT_F32));
    OK(&r, deft_eval(&a, 1));
    for (int i = 0; i < 20; i++) OK(&r, twice(&r, a));
    cr_assert_eq(rig_item(&r, deft_slice(a, DEFT_AT(99999))), 1048576);
    cr_assert_eq(rig_stats(&r).submitted, 20);
    cr_assert_eq(rig_stats(&r).donated, 20); /* in place, as by step_end */
    rig_close(&r);
}

/* The thread begins with the first step that is left to run. */
Test(submit, no_thread_before)
{
    rig r;
    open_rig(&r, NULL);
    deft_tensor *a = rig_range(&r, 2, 1);
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(a, deft_add(a, 1));
    OK(&r, deft_step_end(s));
    OK(&r, deft_wait(r.cx));
    cr_assert_null(r.cx->flight);
    rig_close(&r);
}

/* ---- as step_end ---- */

enum { N_TENSORS = 6, N_ELEMENTS = 12, N_STEPS = 200 };

typedef struct twin {
    deft_ctx *cx;
    bool submits;
    deft_tensor *t[N_TENSORS], *made[4];
    float memory[N_ELEMENTS];
    deft_tensor *out;
    uint64_t hash, random;
} twin;

static uint32_t draw(twin *w, uint32_t n)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((w->random >> 33) % n);
}

static void see(twin *w, deft_tensor *t)
{
    float v[N_ELEMENTS];
    cr_assert_eq(deft_read(t, DEFT_F32, v, sizeof v), DEFT_OK, "%s", deft_message(w->cx));
    const unsigned char *const bytes = (const unsigned char *)v;
    for (size_t i = 0; i < sizeof v; i++) w->hash = (w->hash ^ bytes[i]) * 1099511628211u;
}

static void change(twin *w)
{
    deft_tensor *const a = w->t[draw(w, N_TENSORS)], *const b = w->t[draw(w, N_TENSORS)];
    deft_tensor *const c = w->t[draw(w, N_TENSORS)];
    const double by = draw(w, 9);
    const uint32_t slot = draw(w, 4);
    switch (draw(w, 9)) {
    case 0: deft_assign(a, deft_add(deft_mul(b, 0.5), by)); break;
    case 1: deft_assign(a, b); break;
    case 2: deft_assign(a, deft_sub(deft_tanh(c), deft_mul(b, 0.25))); break;
    case 3: deft_assign(deft_slice(a, DEFT_R(2, 7)), deft_slice(b, DEFT_R(5, 10))); break;
    case 4: deft_assign(w->out, deft_add(w->out, deft_mul(a, 0.125))); break;
    case 5: deft_assign(a, deft_flip(a, DEFT_AXES(0))); break;
    case 6:
        deft_drop(&w->made[slot]);
        w->made[slot] = deft_keep(deft_cos(deft_add(a, c)));
        break;
    case 7: deft_drop(&w->made[slot]); break;
    default:
        if (w->made[slot]) deft_assign(a, w->made[slot]);
        break;
    }
}

static void random_step(twin *w)
{
    if (draw(w, 6) == 0) change(w); /* outside */
    const deft_scope s = deft_step_begin(w->cx);
    for (uint32_t n = 1 + draw(w, 5); n > 0; n--) {
        change(w);
        if (draw(w, 12) == 0) see(w, w->t[draw(w, N_TENSORS)]);
    }
    if (draw(w, 15) == 0) {
        deft_step_abort(s);
        for (int i = 0; i < 4; i++) deft_drop(&w->made[i]); /* some are lost */
    } else
        cr_assert_eq(w->submits ? deft_step_submit(s) : deft_step_end(s), DEFT_OK, "%s",
                     deft_message(w->cx));
    if (draw(w, 5) == 0) see(w, w->t[draw(w, N_TENSORS)]);
    if (draw(w, 9) == 0) see(w, w->out);
    const uint32_t slot = draw(w, 8);
    if (slot < 4 && w->made[slot]) see(w, w->made[slot]);
}

static uint64_t random_program(bool submits, uint64_t seed, uint64_t *n_submitted)
{
    rig r;
    const deft_runtime_options o = { .size = sizeof o, .n_threads = 2 };
    rig_open(&r, &o, NULL);
    twin w = { .cx = r.cx, .submits = submits, .random = seed, .hash = 14695981039346656037u };
    for (int i = 0; i < N_TENSORS; i++) w.t[i] = rig_range(&r, N_ELEMENTS, (float)i);
    w.out = deft_keep(
        deft_wrap_mut(r.cx, DEFT_SHAPE(N_ELEMENTS), DEFT_F32, w.memory, sizeof w.memory, NULL));
    for (int i = 0; i < N_STEPS; i++) random_step(&w);
    for (int i = 0; i < N_TENSORS; i++) see(&w, w.t[i]);
    OK(&r, deft_wait(r.cx));
    for (int i = 0; i < N_ELEMENTS; i++)
        w.hash = (w.hash ^ (uint64_t)(int64_t)(w.memory[i] * 4096)) * 1099511628211u;
    *n_submitted = rig_stats(&r).submitted;
    for (int i = 0; i < 4; i++) deft_drop(&w.made[i]);
    cr_assert_eq(r.cx->pinned, 0);
    rig_close(&r);
    return w.hash;
}

Test(submit, values_are_those_of_step_end)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        uint64_t n[2];
        const uint64_t a = random_program(false, seed, &n[0]);
        const uint64_t b = random_program(true, seed, &n[1]);
        cr_assert_eq(a, b, "seed %d", (int)seed);
        cr_assert_eq(n[0], 0);
        cr_assert_gt(n[1], 60, "%d of %d steps were left to run", (int)n[1], N_STEPS);
    }
}
