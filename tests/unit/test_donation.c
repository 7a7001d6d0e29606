/* SPDX-License-Identifier: Apache-2.0
 *
 * Donation: a result may take over the memory of the value that it replaces, and must not where
 * anybody names that value afterwards. Captures, steps, submitted steps; what is borrowed; and the
 * handles of captured functions, on which it depends who names what.
 */
#include <stdlib.h>
#include <string.h>

#include "../support/harness.h"

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 1);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(donation, .init = set_up, .fini = tear_down);

enum { CALLS = 7, MOST = 3 };

/* What the functions here use from outside. */
typedef struct world {
    deft_tensor *cur, *prev, *before;
    bool captured; /* else the same function runs in a plain step */
} world;

static deft_tensor *number(const world *w, double v)
{
    return w->captured ? deft_const_f(r.cx, v) : deft_num(r.cx, v);
}

#define FUNCTION(name)                                                                             \
    static deft_status name(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,  \
                            size_t n_out, void *user)

#define UNUSED (void)cx, (void)in, (void)n_in, (void)out, (void)n_out, (void)user

FUNCTION(keeps_previous)
{
    world *const w = user;
    UNUSED;
    deft_assign(w->prev, w->cur);
    deft_assign(w->cur, deft_mul(w->cur, number(w, 2)));
    out[0] = deft_sum(w->cur, DEFT_ALL_AXES, 0);
    return DEFT_OK;
}

FUNCTION(keeps_two)
{
    world *const w = user;
    UNUSED;
    deft_assign(w->before, w->prev);
    deft_assign(w->prev, w->cur);
    deft_assign(w->cur, deft_mul(w->cur, number(w, 2)));
    out[0] = deft_neg(w->before);
    return DEFT_OK;
}

FUNCTION(keeps_input)
{
    world *const w = user;
    UNUSED;
    deft_assign(w->prev, in[0]);
    deft_assign(in[0], deft_mul(in[0], number(w, 2)));
    out[0] = deft_neg(in[0]);
    return DEFT_OK;
}

FUNCTION(returns_old)
{
    world *const w = user;
    UNUSED;
    out[0] = deft_cast(w->cur, DEFT_F32);
    deft_assign(w->cur, deft_mul(w->cur, number(w, 2)));
    return DEFT_OK;
}

FUNCTION(returns_old_input)
{
    world *const w = user;
    UNUSED;
    out[0] = deft_reshape(in[0], DEFT_SHAPE(2));
    deft_assign(in[0], deft_add(in[0], number(w, 1)));
    return DEFT_OK;
}

FUNCTION(returns_what_simplifies)
{
    world *const w = user;
    UNUSED;
    out[0] = deft_mul(w->cur, number(w, 1));
    deft_assign(w->cur, deft_mul(w->cur, number(w, 2)));
    return DEFT_OK;
}

FUNCTION(exchanges)
{
    world *const w = user;
    UNUSED;
    deft_tensor *const p = deft_reshape(w->prev, DEFT_SHAPE(2));
    deft_assign(w->prev, w->cur);
    deft_assign(w->cur, p);
    deft_assign(w->before, deft_add(w->before, w->cur));
    out[0] = w->before;
    return DEFT_OK;
}

FUNCTION(turns_around)
{
    world *const w = user;
    UNUSED;
    deft_tensor *const next = deft_add(deft_mul(w->cur, number(w, 2)), w->before);
    deft_assign(w->before, w->prev);
    deft_assign(w->prev, w->cur);
    deft_assign(w->cur, next);
    out[0] = w->prev;
    return DEFT_OK;
}

/* The new value takes the memory of the value before the one that it replaces. */
FUNCTION(leapfrogs)
{
    world *const w = user;
    UNUSED;
    deft_tensor *const next = deft_sub(deft_mul(w->cur, number(w, 3)), w->prev);
    deft_assign(w->prev, w->cur);
    deft_assign(w->cur, next);
    out[0] = deft_neg(w->prev);
    return DEFT_OK;
}

/* The same with a part, around which the state stays as it is. */
FUNCTION(leapfrogs_inside)
{
    world *const w = user;
    UNUSED;
    deft_tensor *const part = deft_slice(w->cur, DEFT_R(1, 2));
    deft_tensor *const twice = deft_add(part, deft_slice(w->cur, DEFT_R(0, 1)));
    deft_tensor *const next = deft_sub(twice, deft_slice(w->prev, DEFT_R(1, 2)));
    deft_assign(w->prev, w->cur);
    deft_assign(part, next);
    out[0] = deft_neg(w->before);
    return DEFT_OK;
}

/* Three states move on by one, and a fourth value is computed from the last. */
FUNCTION(leapfrogs_thrice)
{
    world *const w = user;
    UNUSED;
    deft_tensor *const next = deft_add(w->cur, deft_mul(w->before, number(w, 0.5)));
    deft_assign(w->before, w->prev);
    deft_assign(w->prev, w->cur);
    deft_assign(w->cur, next);
    out[0] = deft_neg(w->cur);
    return DEFT_OK;
}

FUNCTION(assigns_a_part)
{
    world *const w = user;
    UNUSED;
    out[0] = w->cur; /* a handle, which is returned as it is at the end */
    deft_assign(w->prev, w->cur);
    deft_assign(deft_slice(w->cur, DEFT_R(0, 1)),
                deft_mul(deft_slice(w->cur, DEFT_R(1, 2)), number(w, 3)));
    return DEFT_OK;
}

static const struct {
    const char *name;
    deft_capture_fn fn;
} functions[] = {
    { "keeps_previous", keeps_previous },
    { "keeps_two", keeps_two },
    { "keeps_input", keeps_input },
    { "returns_old", returns_old },
    { "returns_old_input", returns_old_input },
    { "returns_what_simplifies", returns_what_simplifies },
    { "exchanges", exchanges },
    { "turns_around", turns_around },
    { "assigns_a_part", assigns_a_part },
    { "leapfrogs", leapfrogs },
    { "leapfrogs_inside", leapfrogs_inside },
    { "leapfrogs_thrice", leapfrogs_thrice },
};

static deft_status call(world *w, deft_capture *c, deft_capture_fn fn, deft_tensor **out)
{
    if (w->captured) return deft_capture_call(c, &w->cur, 1, out, 1);
    const deft_scope s = deft_step_begin(r.cx);
    *out = NULL;
    deft_status st = fn(r.cx, &w->cur, 1, out, 1, w);
    /* A capture's output is a tensor of its own. */
    deft_tensor *const o = deft_keep(deft_expand(*out, deft_shape_get(*out)));
    if (st == DEFT_OK) st = deft_step_end(s);
    *out = o;
    return st;
}

typedef struct seen {
    float v[CALLS][4][MOST];
    float old[CALLS][MOST]; /* each output as it is in the end */
} seen;

static void see(deft_tensor *t, float *to)
{
    rig_read(&r, t, to, deft_numel(t));
}

static void run(deft_capture_fn fn, bool captured, seen *out)
{
    world w = { RIG_VECTOR(&r, 1, 2), RIG_VECTOR(&r, 10, 20), RIG_VECTOR(&r, 5, 7), captured };
    deft_capture *c = deft_capture_create(r.cx, fn, &w);
    deft_tensor *o[CALLS] = { 0 };
    memset(out, 0, sizeof *out);
    for (int i = 0; i < CALLS; i++) {
        OK(&r, call(&w, c, fn, &o[i]));
        see(w.cur, out->v[i][0]);
        see(w.prev, out->v[i][1]);
        see(w.before, out->v[i][2]);
        see(o[i], out->v[i][3]);
    }
    for (int i = 0; i < CALLS; i++) see(o[i], out->old[i]);
    if (captured) {
        deft_capture_stats s;
        deft_capture_stats_read(c, &s, sizeof s);
        cr_assert(s.replayed >= CALLS - 3, "%llu replayed: %s", (unsigned long long)s.replayed,
                  deft_capture_reason(c));
    }
    deft_capture_destroy(&c);
}

Test(donation, a_replay_never_writes_what_is_passed_on)
{
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        seen want, got;
        run(functions[k].fn, false, &want);
        run(functions[k].fn, true, &got);
        for (int i = 0; i < CALLS; i++)
            for (int j = 0; j < 4; j++)
                for (int e = 0; e < 2; e++)
                    cr_assert(want.v[i][j][e] == got.v[i][j][e],
                              "%s, call %d, tensor %d: %g, in a step %g", functions[k].name, i, j,
                              (double)got.v[i][j][e], (double)want.v[i][j][e]);
        for (int i = 0; i < CALLS; i++)
            for (int e = 0; e < 2; e++)
                cr_assert(got.old[i][e] == got.v[i][3][e], "%s: output of call %d has changed",
                          functions[k].name, i);
    }
}

/* ---- it still happens ---- */

FUNCTION(accumulates)
{
    UNUSED;
    deft_assign(in[0], deft_add(in[0], deft_const_f(cx, 1)));
    return DEFT_OK;
}

Test(donation, a_replay_reuses_what_nobody_names)
{
    deft_capture *c = deft_capture_create(r.cx, accumulates, NULL);
    deft_tensor *t = RIG_VECTOR(&r, 1, 2);
    for (int i = 0; i < 4; i++) {
        const uint64_t before = rig_stats(&r).donated;
        OK(&r, deft_capture_call(c, &t, 1, NULL, 0));
        cr_assert_eq(rig_stats(&r).donated - before, 1, "call %d", i);
    }
    RIG_EXPECT(&r, t, 5, 6);
    deft_capture_destroy(&c);
}

/* ---- a value that is handed on ----
 *
 * A step that hands its old value on, and computes a new one from the value before, needs no third
 * array. */

enum { LEAP_CALLS = 6 };

static deft_status leap(world *w, deft_capture *c, deft_capture_fn fn, bool submits)
{
    deft_tensor *out = NULL;
    if (w->captured) return call(w, c, fn, &out);
    const deft_scope s = deft_step_begin(r.cx);
    OK(&r, fn(r.cx, &w->cur, 1, &out, 1, w));
    const deft_status st = submits ? deft_step_submit(s) : deft_step_end(s);
    return st == DEFT_OK ? deft_wait(r.cx) : st;
}

/* Runs fn with a handle that holds the value which ends in call `held`. Every other call must
 * donate once. */
static void expect_leaps(const char *name, deft_capture_fn fn, int how, int held)
{
    world w = { RIG_VECTOR(&r, 1, 2), RIG_VECTOR(&r, 10, 20), RIG_VECTOR(&r, 5, 7), how == 2 };
    const bool thrice = fn == leapfrogs_thrice;
    deft_tensor **const last = thrice ? &w.before : &w.prev;
    deft_capture *c = deft_capture_create(r.cx, fn, &w);
    for (int i = 0; i < LEAP_CALLS; i++) {
        deft_tensor *old = i == held ? rig_alias(&r, *last) : NULL;
        float was[2] = { 0 }, now[2] = { 0 };
        if (old) see(old, was);
        const uint64_t before = rig_stats(&r).donated;
        OK(&r, leap(&w, c, fn, how == 1));
        cr_expect_eq(rig_stats(&r).donated - before, i != held, "%s, way %d, call %d", name, how,
                     i);
        if (old) see(old, now);
        cr_expect(was[0] == now[0] && was[1] == now[1], "%s, way %d: a held value", name, how);
        deft_drop(&old);
    }
    deft_capture_destroy(&c);
}

Test(donation, a_value_that_is_handed_on_frees_the_one_before)
{
    for (int how = 0; how < 3; how++)
        for (int held = -1; held < 5; held += 3) {
            expect_leaps("leapfrogs", leapfrogs, how, held);
            expect_leaps("leapfrogs_inside", leapfrogs_inside, how, held);
            expect_leaps("leapfrogs_thrice", leapfrogs_thrice, how, held);
        }
}

/* ---- who else may name a value ---- */

/* x has its value through its record alone, and y is another tensor of that value. */
Test(donation, a_value_that_a_record_names_is_not_overwritten)
{
    deft_capture *c = deft_capture_create(r.cx, accumulates, NULL);
    deft_tensor *a = RIG_VECTOR(&r, 1, 2);
    for (int i = 0; i < 3; i++) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *x = deft_add(a, 10), *y = deft_to(x, DEFT_CPU);
        OK(&r, deft_capture_call(c, &y, 1, NULL, 0));
        RIG_EXPECT(&r, y, 12, 13);
        RIG_EXPECT(&r, x, 11, 12);
        OK(&r, deft_scope_end(s));
    }
    deft_capture_destroy(&c);
}

FUNCTION(doubles)
{
    world *const w = user;
    UNUSED;
    deft_assign(w->cur, deft_mul(w->cur, number(w, 2)));
    return DEFT_OK;
}

/* What was recorded before a call is computed and ends: it holds no value that the call replaces.
 */
Test(donation, records_before_a_replay_hold_nothing)
{
    world w = { .cur = rig_range(&r, 3, 1), .captured = true };
    deft_capture *c = deft_capture_create(r.cx, doubles, &w);
    for (int i = 0; i < 2; i++) OK(&r, deft_capture_call(c, NULL, 0, NULL, 0));
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const more = deft_keep(deft_add(w.cur, 1));
    const uint64_t donated = rig_stats(&r).donated;
    OK(&r, deft_capture_call(c, NULL, 0, NULL, 0));
    cr_assert_eq(rig_stats(&r).donated - donated, 1);
    OK(&r, deft_scope_end(s));
    RIG_EXPECT(&r, more, 5, 9, 13);
    RIG_EXPECT(&r, w.cur, 8, 16, 24);
    deft_capture_destroy(&c);
}

Test(donation, what_is_mapped_stays)
{
    deft_capture *c = deft_capture_create(r.cx, accumulates, NULL);
    deft_tensor *t = RIG_VECTOR(&r, 1, 2);
    for (int i = 0; i < 4; i++) {
        deft_mapped m;
        OK(&r, deft_map(t, &m));
        const float was = ((const float *)m.data)[0];
        if (i < 3) {
            OK(&r, deft_capture_call(c, &t, 1, NULL, 0));
        } else {
            const deft_scope s = deft_step_begin(r.cx);
            deft_assign(t, deft_add(t, 1));
            OK(&r, deft_step_submit(s));
        }
        cr_assert_eq(((const float *)m.data)[0], was);
        RIG_EXPECT(&r, t, (float)(2 + i), (float)(3 + i));
        cr_assert_eq(((const float *)m.data)[0], was);
        deft_unmap(&m);
    }
    deft_capture_destroy(&c);
}

/* Contiguous, aligned, bound to one handle alone: all but that it is borrowed. */
Test(donation, borrowed_memory_is_never_taken_over)
{
    float *const memory = aligned_alloc(64, 64);
    deft_capture *c = deft_capture_create(r.cx, accumulates, NULL);
    for (int how = 0; how < 6; how++) {
        memory[0] = 3;
        memory[1] = 4;
        deft_tensor *t = deft_keep(deft_wrap(r.cx, DEFT_SHAPE(2), DEFT_F32, memory, 8, NULL));
        const uint64_t before = rig_stats(&r).donated;
        if (how % 3 == 0) {
            OK(&r, deft_capture_call(c, &t, 1, NULL, 0));
        } else {
            const deft_scope s = deft_step_begin(r.cx);
            deft_assign(t, deft_add(t, 1));
            OK(&r, how % 3 == 1 ? deft_step_end(s) : deft_step_submit(s));
            OK(&r, deft_wait(r.cx));
        }
        cr_assert(memory[0] == 3 && memory[1] == 4, "way %d", how);
        cr_assert_eq(rig_stats(&r).donated, before);
        RIG_EXPECT(&r, t, 4, 5);
        deft_drop(&t);
    }
    deft_capture_destroy(&c);
    free(memory);
}

/* The same step over deft's memory and over the caller's is one plan, and one recording. */
Test(donation, who_owns_the_memory_is_no_part_of_a_plan)
{
    float memory[2] = { 3, 4 };
    deft_capture *c = deft_capture_create(r.cx, accumulates, NULL);
    deft_tensor *a = RIG_VECTOR(&r, 1, 2);
    deft_tensor *b = deft_keep(deft_wrap(r.cx, DEFT_SHAPE(2), DEFT_F32, memory, 8, NULL));
    deft_capture_stats s;
    OK(&r, deft_capture_call(c, &a, 1, NULL, 0));
    OK(&r, deft_capture_call(c, &b, 1, NULL, 0));
    deft_capture_stats_read(c, &s, sizeof s);
    cr_assert_eq(s.recordings, 1, "%s", deft_capture_reason(c));
    RIG_EXPECT(&r, a, 2, 3);
    RIG_EXPECT(&r, b, 4, 5);
    cr_assert(memory[0] == 3 && memory[1] == 4);
    deft_capture_destroy(&c);
}

/* ---- parts of arrays whose old value was held ---- */

enum { ROWS = 8, WIDTH = 8, ARRAYS = 3 };

FUNCTION(doubles_two_rows)
{
    UNUSED;
    for (size_t i = 0; i < n_in; i++) {
        deft_tensor *const rows = deft_slice(in[i], DEFT_R(2, 4));
        deft_assign(rows, deft_add(rows, rows));
    }
    return DEFT_OK;
}

typedef enum how { STEP, SUBMITTED, CAPTURED, N_HOW } how;

static void double_two_rows(how h, deft_capture *c, deft_tensor *const *x, size_t n)
{
    if (h == CAPTURED) {
        OK(&r, deft_capture_call(c, x, n, NULL, 0));
        return;
    }
    const deft_scope s = deft_step_begin(r.cx);
    doubles_two_rows(r.cx, x, n, NULL, 0, NULL);
    OK(&r, h == STEP ? deft_step_end(s) : deft_step_submit(s));
    OK(&r, deft_wait(r.cx));
}

/* The array as it is after the rows were doubled `times` times. */
static void expect_doubled(deft_tensor *x, int times)
{
    float want[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++) {
        const bool is_changed = i / WIDTH == 2 || i / WIDTH == 3;
        want[i] = (float)(i + 1) * (is_changed ? (float)(1 << times) : 1);
    }
    rig_expect(&r, x, ROWS * WIDTH, want);
}

static deft_tensor *square(float *borrowed)
{
    const deft_shape shape = DEFT_SHAPE(ROWS, WIDTH);
    if (!borrowed) return deft_keep(deft_reshape(rig_range(&r, ROWS * WIDTH, 1), shape));
    for (int i = 0; i < ROWS * WIDTH; i++) borrowed[i] = (float)(i + 1);
    return deft_keep(deft_wrap(r.cx, shape, DEFT_F32, borrowed, ROWS * WIDTH * 4, NULL));
}

/* A plan that was made while a handle held the old value is not used when none does any more. The
 * second plan serves both. */
Test(donation, a_part_is_written_in_place_when_the_old_value_is_released)
{
    static const bool holds[] = { true, true, false, false, true, false };
    for (how h = STEP; h < N_HOW; h++) {
        rig_close(&r); /* each way makes its own plans */
        set_up();
        deft_capture *c = deft_capture_create(r.cx, doubles_two_rows, NULL);
        deft_tensor *x = square(NULL);
        OK(&r, deft_eval(&x, 1));
        const deft_stats start = rig_stats(&r);
        for (int i = 0; i < (int)(sizeof holds / sizeof *holds); i++) {
            deft_tensor *old = holds[i] ? rig_alias(&r, x) : NULL;
            const uint64_t before = rig_stats(&r).donated;
            double_two_rows(h, c, &x, 1);
            cr_assert_eq(rig_stats(&r).donated - before, !holds[i], "way %d, run %d", h, i);
            if (old) expect_doubled(old, i);
            expect_doubled(x, i + 1);
            deft_drop(&old);
        }
        const deft_stats end = rig_stats(&r);
        cr_assert_eq(end.plans_built - start.plans_built, 2, "way %d", h);
        cr_assert_eq(end.guard_misses - start.guard_misses, 1, "way %d", h);
        deft_capture_destroy(&c);
    }
}

/* The caller's memory is copied at the first update only: then the array is deft's. */
Test(donation, a_part_of_what_was_borrowed_is_written_in_place)
{
    float memory[ROWS * WIDTH];
    deft_tensor *x = square(memory);
    for (int i = 0; i < 4; i++) {
        const uint64_t before = rig_stats(&r).donated;
        double_two_rows(STEP, NULL, &x, 1);
        cr_assert_eq(rig_stats(&r).donated - before, i > 0, "run %d", i);
        expect_doubled(x, i + 1);
    }
    for (int i = 0; i < ROWS * WIDTH; i++) cr_assert_eq(memory[i], (float)(i + 1));
}

/* Which of several arrays are held changes in each run. That makes two plans, not one for each
 * set. */
Test(donation, sets_of_held_arrays_share_two_plans)
{
    deft_tensor *x[ARRAYS];
    for (int i = 0; i < ARRAYS; i++) x[i] = square(NULL);
    OK(&r, deft_eval(x, ARRAYS));
    const uint64_t built = rig_stats(&r).plans_built;
    static const unsigned sets[] = { 7, 6, 5, 3, 4, 2, 1, 0, 7, 1 };
    for (int i = 0; i < (int)(sizeof sets / sizeof *sets); i++) {
        deft_tensor *old[ARRAYS] = { 0 };
        uint64_t n_free = 0;
        for (int k = 0; k < ARRAYS; k++) {
            if (sets[i] >> k & 1)
                old[k] = rig_alias(&r, x[k]);
            else
                n_free++;
        }
        const uint64_t before = rig_stats(&r).donated;
        double_two_rows(STEP, NULL, x, ARRAYS);
        cr_assert_eq(rig_stats(&r).donated - before, n_free, "run %d", i);
        for (int k = 0; k < ARRAYS; k++) {
            if (old[k]) expect_doubled(old[k], i);
            expect_doubled(x[k], i + 1);
            deft_drop(&old[k]);
        }
    }
    cr_assert_eq(rig_stats(&r).plans_built - built, 2);
}

Test(donation, a_held_value_is_explained)
{
    char text[4096];
    deft_tensor *x = square(NULL);
    OK(&r, deft_eval(&x, 1));
    deft_tensor *old = rig_alias(&r, x);
    double_two_rows(STEP, NULL, &x, 1);
    deft_drop(&old);
    double_two_rows(STEP, NULL, &x, 1);
    deft_explain(r.cx, text, sizeof text);
    cr_assert(strstr(text, "a handle still holds the old value"), "%s", text);
    cr_assert(strstr(text, "input 0 is not needed after the run, wanted one that is needed"), "%s",
              text);
}

Test(donation, a_map_of_written_memory_is_a_copy)
{
    float memory[4] = { 1, 2, 3, 4 };
    deft_mapped m, there;
    deft_device where;
    deft_tensor *t =
        deft_keep(deft_wrap_mut(r.cx, DEFT_SHAPE(4), DEFT_F32, memory, sizeof memory, NULL));
    OK(&r, deft_map(t, &m));
    OK(&r, deft_map_device(t, &there, &where));
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(t, 9.0);
    OK(&r, deft_step_end(s));
    cr_assert_eq(memory[0], 9);
    cr_assert_eq(((const float *)m.data)[0], 1);
    cr_assert_eq(((const float *)there.data)[3], 4);
    deft_unmap(&m);
    deft_unmap(&there);
    OK(&r, deft_map(t, &m));
    cr_assert_eq(((const float *)m.data)[0], 9);
    deft_unmap(&m);
}

FUNCTION(passes_on)
{
    UNUSED;
    out[0] = in[0];
    out[1] = deft_neg(in[0]);
    return DEFT_OK;
}

static deft_status returns_outside(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                   deft_tensor **out, size_t n_out, void *user)
{
    const world *const w = user;
    UNUSED;
    deft_assign(in[0], deft_add(in[0], deft_const_f(cx, 1)));
    out[0] = w->prev; /* nothing reads it */
    return DEFT_OK;
}

/* Two tensors of one value the first time, of two values later. */
Test(donation, what_is_returned_is_told_by_its_tensor)
{
    world w = { .prev = RIG_VECTOR(&r, 1, 2) };
    deft_capture *c = deft_capture_create(r.cx, returns_outside, &w);
    deft_tensor *t = RIG_VECTOR(&r, 0, 0), *out[1];
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(t, w.prev);
    OK(&r, deft_step_end(s));
    for (int i = 0; i < 4; i++) {
        OK(&r, deft_capture_call(c, &t, 1, out, 1));
        RIG_EXPECT(&r, t, (float)(2 + i), (float)(3 + i));
        RIG_EXPECT(&r, out[0], 1, 2);
    }
    deft_capture_destroy(&c);
}

/* What a call returns is the program's: not the caller's memory, which changes. */
Test(donation, a_returned_argument_is_a_value)
{
    for (int is_mut = 0; is_mut < 2; is_mut++) {
        float memory[2];
        deft_capture *c = deft_capture_create(r.cx, passes_on, NULL);
        deft_tensor *out[3][2];
        for (int i = 0; i < 3; i++) {
            memory[0] = (float)i;
            memory[1] = 5;
            deft_tensor *t =
                is_mut ? deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, memory, sizeof memory, NULL)
                       : deft_wrap(r.cx, DEFT_SHAPE(2), DEFT_F32, memory, sizeof memory, NULL);
            OK(&r, deft_capture_call(c, &t, 1, out[i], 2));
        }
        memory[0] = 99;
        for (int i = 0; i < 3; i++) {
            RIG_EXPECT(&r, out[i][0], (float)i, 5);
            RIG_EXPECT(&r, out[i][1], (float)-i, -5);
        }
        deft_capture_destroy(&c);
    }
}
