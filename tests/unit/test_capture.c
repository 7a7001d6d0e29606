/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures: what is replayed equals what running the function again would give; what can't be
 * replayed is not, and says why.
 * Why this file is long: one function beside each test says what is captured.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "deft/deft.h"

static deft_runtime *rt;
static deft_ctx *cx;

static void set_up(void)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    cr_assert_eq(deft_runtime_create(&o, &rt), DEFT_OK);
    cr_assert_eq(deft_ctx_create(rt, NULL, &cx), DEFT_OK);
}

static void tear_down(void)
{
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}

TestSuite(capture, .init = set_up, .fini = tear_down);

#define OK(call) cr_assert_eq((call), DEFT_OK, "%s", deft_message(cx))

static deft_tensor *row(size_t n, const float *v)
{
    return deft_keep(deft_from(cx, DEFT_SHAPE((int64_t)n), DEFT_F32, v, n * sizeof *v));
}

#define ROW(...)                                                                                   \
    row(sizeof((float[]){ __VA_ARGS__ }) / sizeof(float), (const float[]){ __VA_ARGS__ })

static void expect(deft_tensor *t, size_t n, const float *want)
{
    float got[16] = { 0 };
    OK(deft_read(t, DEFT_F32, got, n * sizeof *got));
    for (size_t i = 0; i < n; i++)
        cr_assert(got[i] == want[i], "element %zu is %g, not %g", i, (double)got[i],
                  (double)want[i]);
}

#define EXPECT(t, ...)                                                                             \
    expect(t, sizeof((float[]){ __VA_ARGS__ }) / sizeof(float), (const float[]){ __VA_ARGS__ })

static deft_capture_stats stats(const deft_capture *c)
{
    deft_capture_stats s;
    deft_capture_stats_read(c, &s, sizeof s);
    return s;
}

static void expect_stats(const deft_capture *c, uint64_t calls, uint64_t replayed,
                         uint64_t recordings)
{
    const deft_capture_stats s = stats(c);
    cr_assert(s.calls == calls && s.replayed == replayed && s.recordings == recordings,
              "%llu calls, %llu replayed, %llu recordings: %s", (unsigned long long)s.calls,
              (unsigned long long)s.replayed, (unsigned long long)s.recordings,
              deft_capture_reason(c));
}

static void expect_reason(const deft_capture *c, const char *part)
{
    cr_assert(strstr(deft_capture_reason(c), part), "\"%s\" has no \"%s\"", deft_capture_reason(c),
              part);
}

static int n_runs; /* of the C code */

static deft_status difference(deft_ctx *x, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                              size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    n_runs++;
    out[0] = deft_sub(in[0], deft_mul(in[1], deft_const_f(x, 2)));
    return DEFT_OK;
}

typedef struct model {
    deft_tensor *p, *m;
} model;

static deft_status add_outside(deft_ctx *x, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    const model *const w = user;
    (void)n_in, (void)n_out, (void)x;
    out[0] = deft_add(in[0], w->p);
    return DEFT_OK;
}

static deft_status passes_on(deft_ctx *x, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user, (void)x;
    n_runs++;
    out[0] = in[0];
    return DEFT_OK;
}

/* There is nothing to replay. */
Test(capture, of_what_computes_nothing_is_not_replayed)
{
    deft_capture *c = deft_capture_create(cx, passes_on, NULL);
    deft_tensor *a = ROW(1, 2, 3), *out[1];
    n_runs = 0;
    for (int i = 1; i <= 3; i++) {
        OK(deft_capture_call(c, &a, 1, out, 1));
        EXPECT(out[0], 1, 2, 3);
        expect_stats(c, (uint64_t)i, 0, 0);
        expect_reason(c, "it computes nothing");
        cr_assert_eq(n_runs, i);
    }
    deft_capture_destroy(&c);
}

static deft_status writes_and_drops(deft_ctx *x, deft_tensor *const *in, size_t n_in,
                                    deft_tensor **out, size_t n_out, void *user)
{
    deft_tensor **const memory = user;
    (void)n_in, (void)n_out, (void)x;
    if (*memory) deft_assign(*memory, deft_mul(in[0], deft_const_f(x, 2)));
    deft_drop(memory);
    out[0] = deft_neg(in[0]);
    return DEFT_OK;
}

/* Nothing names the caller's memory any more, and so nothing would write it again. */
Test(capture, that_writes_memory_whose_tensor_ends_is_not_kept)
{
    float v[3] = { 0 };
    deft_tensor *a = ROW(1, 2, 3), *out[1];
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *memory = deft_keep(deft_wrap_mut(cx, DEFT_SHAPE(3), DEFT_F32, v, sizeof v, NULL));
    OK(deft_scope_end(s)); /* from here on a drop ends it */
    deft_capture *c = deft_capture_create(cx, writes_and_drops, &memory);
    OK(deft_capture_call(c, &a, 1, out, 1));
    expect_stats(c, 1, 0, 0);
    expect_reason(c, "memory whose tensor has ended");
    cr_assert(v[0] == 2 && v[2] == 6);
    OK(deft_capture_call(c, &a, 1, out, 1));
    expect_stats(c, 2, 0, 1);
    deft_capture_destroy(&c);
}

/* What waits outside is computed first, and is nothing that the recording knows. */
Test(capture, of_what_is_used_outside_too_is_replayed)
{
    deft_capture *c = deft_capture_create(cx, difference, NULL);
    deft_tensor *a = ROW(1, 2, 3), *b = ROW(10, 20, 30), *out[1];
    for (int i = 1; i <= 3; i++) {
        deft_tensor *const waits = deft_keep(deft_add(a, b));
        OK(deft_capture_call(c, (deft_tensor *[]){ a, b }, 2, out, 1));
        EXPECT(out[0], -19, -38, -57);
        EXPECT(waits, 11, 22, 33);
        expect_stats(c, (uint64_t)i, (uint64_t)i - 1, 1);
    }
    deft_capture_destroy(&c);
}

static deft_status asks_for_memory(deft_ctx *x, deft_tensor *const *in, size_t n_in,
                                   deft_tensor **out, size_t n_out, void *user)
{
    deft_step_memory m;
    const deft_scope s = deft_scope_begin(x);
    (void)n_in, (void)n_out;
    *(deft_status *)user = deft_step_memory_read(s, &m, sizeof m);
    out[0] = in[0];
    return deft_scope_end(s);
}

Test(capture, does_not_foresee_memory)
{
    deft_status st = DEFT_OK;
    deft_capture *c = deft_capture_create(cx, asks_for_memory, &st);
    deft_tensor *a = ROW(1, 2, 3), *out[1];
    cr_assert_eq(deft_capture_call(c, &a, 1, out, 1), DEFT_OK);
    cr_assert_eq(st, DEFT_E_STATE);
    cr_assert(strstr(deft_message(cx), "inside a captured function"), "%s", deft_message(cx));
    deft_capture_destroy(&c);
}

/* The recording that was used last stays longest, whether the use made it or replayed it. */
Test(capture, the_recording_used_least_recently_goes)
{
    enum { N = DEFT_MAX_RECORDINGS };
    static const float v[N + 2] = { 1 };
    deft_tensor *x[N + 3], *out[1];
    deft_capture *c = deft_capture_create(cx, difference, NULL);
    for (int n = 1; n <= N + 2; n++) x[n] = row((size_t)n, v);
    uint64_t calls = 0, replayed = 0, recordings = 0;
#define CALL(n, replays)                                                                           \
    do {                                                                                           \
        OK(deft_capture_call(c, (deft_tensor *[]){ x[n], x[n] }, 2, out, 1));                      \
        replayed += (replays);                                                                     \
        recordings += !(replays);                                                                  \
        expect_stats(c, ++calls, replayed, recordings);                                            \
    } while (0)
    for (int n = 1; n <= N; n++) CALL(n, 0);
    CALL(2, 1);
    CALL(N + 1, 0); /* for that of 1 */
    CALL(N + 2, 0); /* for that of 3 */
    CALL(N + 1, 1);
    CALL(2, 1);
    CALL(4, 1);
    CALL(3, 0); /* for that of 5 */
    CALL(1, 0); /* for that of 6 */
    CALL(4, 1);
    CALL(5, 0);
#undef CALL
    deft_capture_destroy(&c);
}

Test(capture, is_replayed_with_new_inputs)
{
    deft_capture *c = deft_capture_create(cx, difference, NULL);
    deft_tensor *a = ROW(1, 2, 3), *b = ROW(10, 20, 30), *out[1];
    n_runs = 0;
    for (int i = 0; i < 3; i++) {
        OK(deft_capture_call(c, (deft_tensor *[]){ a, b }, 2, out, 1));
        EXPECT(out[0], -19, -38, -57);
        OK(deft_capture_call(c, (deft_tensor *[]){ b, a }, 2, out, 1)); /* swapped */
        EXPECT(out[0], 8, 16, 24);
    }
    cr_assert_eq(n_runs, 1);
    expect_stats(c, 6, 5, 1);
    OK(deft_capture_call(c, (deft_tensor *[]){ a, a }, 2, out, 1)); /* aliased */
    EXPECT(out[0], -1, -2, -3);
    expect_reason(c, "one tensor now");
    OK(deft_capture_call(c, (deft_tensor *[]){ b, b }, 2, out, 1));
    EXPECT(out[0], -10, -20, -30);
    OK(deft_capture_call(c, (deft_tensor *[]){ a, b }, 2, out, 1));
    EXPECT(out[0], -19, -38, -57);
    expect_stats(c, 9, 7, 2);
    deft_capture_destroy(&c);
}

Test(capture, one_tensor_given_twice_is_not_two)
{
    deft_capture *c = deft_capture_create(cx, difference, NULL);
    deft_tensor *a = ROW(1, 2, 3), *b = ROW(10, 20, 30), *out[1];
    for (int i = 0; i < 2; i++) {
        OK(deft_capture_call(c, (deft_tensor *[]){ a, a }, 2, out, 1));
        EXPECT(out[0], -1, -2, -3);
        OK(deft_capture_call(c, (deft_tensor *[]){ a, b }, 2, out, 1));
        EXPECT(out[0], -19, -38, -57);
    }
    expect_stats(c, 4, 2, 2);
    deft_capture_destroy(&c);

    model w = { ROW(1, 2), ROW(3, 4) };
    c = deft_capture_create(cx, add_outside, &w);
    OK(deft_capture_call(c, &w.p, 1, out, 1)); /* what it reads from outside as well */
    EXPECT(out[0], 2, 4);
    OK(deft_capture_call(c, &w.m, 1, out, 1));
    EXPECT(out[0], 4, 6);
    expect_reason(c, "were one tensor");
    deft_capture_destroy(&c);
}

Test(capture, sizes_and_dtypes_have_recordings_of_their_own)
{
    deft_capture *c = deft_capture_create(cx, difference, NULL);
    deft_tensor *a = ROW(1, 2, 3), *b = ROW(1, 1, 1), *d = ROW(5, 6), *e = ROW(1), *out[1];
    const int32_t whole[] = { 7, 8, 9 };
    deft_tensor *w = deft_keep(deft_from(cx, DEFT_SHAPE(3), DEFT_I32, whole, sizeof whole));
    for (int i = 0; i < 3; i++) {
        OK(deft_capture_call(c, (deft_tensor *[]){ a, b }, 2, out, 1));
        EXPECT(out[0], -1, 0, 1);
        OK(deft_capture_call(c, (deft_tensor *[]){ d, d }, 2, out, 1));
        EXPECT(out[0], -5, -6);
        OK(deft_capture_call(c, (deft_tensor *[]){ a, e }, 2, out,
                             1)); /* broadcasts: n - 1 sizes */
        EXPECT(out[0], -1, 0, 1);
        OK(deft_capture_call(c, (deft_tensor *[]){ w, b }, 2, out, 1));
        EXPECT(out[0], 5, 6, 7);
    }
    expect_stats(c, 12, 8, 4);
    deft_stats s;
    deft_stats_read(cx, &s, sizeof s);
    OK(deft_capture_call(c, (deft_tensor *[]){ d, e }, 2, out, 1));
    expect_reason(c, "is f32[2], was");
    const uint64_t plans = s.plans_built;
    deft_tensor *f = ROW(1, 2, 3, 4), *g = ROW(4, 3, 2, 1);
    OK(deft_capture_call(c, (deft_tensor *[]){ f, g }, 2, out, 1));
    EXPECT(out[0], -7, -4, -1, 2);
    deft_stats_read(cx, &s, sizeof s);
    cr_assert_eq(s.plans_built, plans); /* another size: another recording, the same plan */
    deft_capture_destroy(&c);
}

/* ---- state outside ---- */

static deft_status momentum(deft_ctx *x, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    model *const w = user;
    (void)n_in, (void)n_out;
    n_runs++;
    deft_assign(w->m, deft_add(deft_mul(w->m, deft_const_f(x, 0.5)), in[0]));
    deft_assign(w->p, deft_sub(w->p, deft_mul(w->m, deft_param_f(x, "rate"))));
    out[0] = deft_sum(w->p, DEFT_ALL_AXES, 0);
    return DEFT_OK;
}

Test(capture, parameters_and_assigned_tensors)
{
    model w = { ROW(0, 0), ROW(0, 0) };
    deft_capture *c = deft_capture_create(cx, momentum, &w);
    deft_tensor *g = ROW(1, 2), *out[1], *held = NULL;
    float p[2] = { 0 }, m[2] = { 0 };
    n_runs = 0;
    for (int i = 0; i < 6; i++) {
        const float rate = 0.25f * (float)(i + 1);
        OK(deft_capture_set_f(c, "rate", (double)rate));
        OK(deft_capture_call(c, &g, 1, out, 1));
        for (int k = 0; k < 2; k++) {
            m[k] = m[k] * 0.5f + (float)(k + 1);
            p[k] = p[k] - m[k] * rate;
        }
        EXPECT(w.p, p[0], p[1]);
        EXPECT(w.m, m[0], m[1]);
        EXPECT(out[0], p[0] + p[1]);
        if (i == 2) held = deft_keep(w.p); /* the same handle: follows it */
    }
    cr_assert_eq(n_runs, 1);
    expect_stats(c, 6, 5, 1);
    EXPECT(held, p[0], p[1]);
    deft_capture_destroy(&c);
}

Test(capture, held_outputs_and_old_values_stay)
{
    model w = { ROW(1, 1), ROW(0, 0) };
    deft_capture *c = deft_capture_create(cx, momentum, &w);
    OK(deft_capture_set_f(c, "rate", 1));
    deft_tensor *g = ROW(1, 2), *out[1], *first, *old;
    OK(deft_capture_call(c, &g, 1, out, 1));
    first = deft_keep(out[0]);
    deft_scope s = deft_scope_begin(cx);
    old = deft_keep(deft_add(w.p, 0));
    OK(deft_scope_end(s));
    deft_tensor *same = ROW(0, 0);
    s = deft_step_begin(cx);
    deft_assign(same, w.p); /* another handle of that very value */
    OK(deft_step_end(s));
    for (int i = 0; i < 4; i++) OK(deft_capture_call(c, &g, 1, out, 1));
    EXPECT(first, -1);
    EXPECT(old, 0, -1);
    EXPECT(same, 0, -1);
    expect_stats(c, 5, 4, 1);
    deft_capture_destroy(&c);
}

Test(capture, a_tensor_it_uses_lives_on)
{
    deft_scope made = deft_scope_begin(cx);
    model w = { ROW(1, 1), ROW(0, 0) };
    OK(deft_scope_end(made));
    deft_capture *c = deft_capture_create(cx, momentum, &w);
    OK(deft_capture_set_f(c, "rate", 1));
    deft_tensor *g = ROW(1, 2), *out[1], *p = w.p;
    OK(deft_capture_call(c, &g, 1, out, 1));
    deft_drop(&p);
    for (int i = 0; i < 3; i++) {
        deft_scope s = deft_scope_begin(cx); /* would take the slot */
        for (int k = 0; k < 300; k++) (void)deft_zeros(cx, DEFT_SHAPE(2), DEFT_F32);
        OK(deft_scope_end(s));
        OK(deft_capture_call(c, &g, 1, out, 1));
    }
    /* m: 1 2, 1.5 3, 1.75 3.5, 1.875 3.75 */
    EXPECT(out[0], 2 - 6.125f - 12.25f);
    expect_stats(c, 4, 3, 1);
    deft_capture_destroy(&c);
}

static deft_status draw(deft_ctx *x, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)in;
    out[0] = deft_add(deft_uniform(x, user, DEFT_SHAPE(4), DEFT_F32, 0, 1),
                      deft_normal(x, user, DEFT_SHAPE(4), DEFT_F32, 0, 1));
    return DEFT_OK;
}

Test(capture, draws_go_on)
{
    deft_rng a = { 5, 0 }, b = { 5, 0 };
    deft_capture *c = deft_capture_create(cx, draw, &a);
    for (int i = 0; i < 4; i++) {
        deft_tensor *out[1], *want;
        float x[4], y[4];
        if (i == 2) a.seed = b.seed = 9;
        OK(deft_capture_call(c, NULL, 0, out, 1));
        (void)draw(cx, NULL, 0, &want, 1, &b);
        OK(deft_read(out[0], DEFT_F32, x, sizeof x));
        OK(deft_read(want, DEFT_F32, y, sizeof y));
        cr_assert_eq(memcmp(x, y, sizeof x), 0, "call %d", i);
        cr_assert_eq(a.next, b.next);
    }
    expect_stats(c, 4, 3, 1);
    deft_capture_destroy(&c);
}

static deft_status swap(deft_ctx *x, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *user)
{
    model *const w = user;
    (void)n_in, (void)n_out, (void)x;
    deft_tensor *const p = deft_add(w->p, deft_const_f(x, 0));
    deft_assign(w->p, w->m);
    deft_assign(w->m, p);
    out[0] = in[0];
    return DEFT_OK;
}

static deft_status accumulate(deft_ctx *x, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                              size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)out, (void)user;
    /* in[1] is looked at by C code alone */
    deft_assign(in[0], deft_add(in[0], deft_const_i(x, deft_numel(in[1]))));
    return DEFT_OK;
}

Test(capture, inputs_may_be_assigned_and_looked_at)
{
    deft_capture *c = deft_capture_create(cx, accumulate, NULL);
    deft_tensor *a = ROW(1, 2), *b = ROW(0, 0, 0), *d = ROW(0);
    for (int i = 0; i < 3; i++) {
        const float k = 4 * (float)i;
        OK(deft_capture_call(c, (deft_tensor *[]){ a, b }, 2, NULL, 0));
        EXPECT(a, 4 + k, 5 + k);
        OK(deft_capture_call(c, (deft_tensor *[]){ a, d }, 2, NULL, 0));
        EXPECT(a, 5 + k, 6 + k);
    }
    expect_stats(c, 6, 4, 2);
    deft_capture_destroy(&c);
}

Test(capture, assigned_tensors_may_exchange_values)
{
    model w = { ROW(1, 2), ROW(3, 4) };
    deft_capture *c = deft_capture_create(cx, swap, &w);
    deft_tensor *g = ROW(7, 8), *out[1];
    for (int i = 0; i < 4; i++) {
        OK(deft_capture_call(c, &g, 1, out, 1));
        EXPECT(out[0], 7, 8);
        if (i % 2) {
            EXPECT(w.p, 1, 2);
            EXPECT(w.m, 3, 4);
        } else {
            EXPECT(w.p, 3, 4);
            EXPECT(w.m, 1, 2);
        }
    }
    deft_capture_destroy(&c);
}

static deft_status into_memory(deft_ctx *x, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)out;
    deft_tensor *const *const m = user;
    deft_assign(deft_slice(*m, DEFT_R(1, 3)), deft_mul(in[0], deft_const_i(x, 3)));
    return DEFT_OK;
}

Test(capture, wrapped_memory_and_views)
{
    float memory[4] = { 9, 0, 0, 9 };
    deft_tensor *m =
        deft_keep(deft_wrap_mut(cx, DEFT_SHAPE(4), DEFT_F32, memory, sizeof memory, NULL));
    deft_capture *c = deft_capture_create(cx, into_memory, &m);
    for (int i = 1; i <= 4; i++) {
        deft_tensor *g = ROW((float)i, (float)-i);
        OK(deft_capture_call(c, &g, 1, NULL, 0));
        cr_assert(memory[0] == 9 && memory[1] == (float)(3 * i) && memory[2] == (float)(-3 * i) &&
                  memory[3] == 9);
        EXPECT(m, 9, (float)(3 * i), (float)(-3 * i), 9);
    }
    expect_stats(c, 4, 3, 1);
    deft_capture_destroy(&c);
}

/* ---- what is not replayed ---- */

static deft_status reads(deft_ctx *x, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    n_runs++;
    float first = 0;
    const deft_status st = deft_item(deft_slice(in[0], DEFT_AT(0)), &first);
    if (st != DEFT_OK) return st;
    out[0] = first > 0 ? deft_add(in[0], deft_const_f(x, 1)) : deft_neg(in[0]);
    return DEFT_OK;
}

Test(capture, what_reads_runs_each_time)
{
    deft_capture *c = deft_capture_create(cx, reads, NULL);
    deft_tensor *a = ROW(1, 2), *b = ROW(-1, 2), *out[1];
    n_runs = 0;
    for (int i = 0; i < 2; i++) {
        OK(deft_capture_call(c, &a, 1, out, 1));
        EXPECT(out[0], 2, 3);
        expect_reason(c, "reads a value");
        OK(deft_capture_call(c, &b, 1, out, 1));
        EXPECT(out[0], 1, -2);
    }
    cr_assert_eq(n_runs, 4);
    expect_stats(c, 4, 0, 0);
    deft_capture_destroy(&c);
}

static deft_status keeps_what_it_makes(deft_ctx *x, deft_tensor *const *in, size_t n_in,
                                       deft_tensor **out, size_t n_out, void *user)
{
    deft_tensor **const kept = user;
    (void)n_in, (void)n_out;
    n_runs++;
    *kept = deft_keep(deft_add(in[0], deft_const_f(x, 1)));
    out[0] = deft_neg(*kept);
    return DEFT_OK;
}

/* What it keeps is the caller's and of this call: a replay would make none. */
Test(capture, what_keeps_a_tensor_that_it_makes_runs_each_time)
{
    deft_tensor *kept = NULL, *a = ROW(1, 2), *b = ROW(-1, 2), *out[1];
    deft_capture *c = deft_capture_create(cx, keeps_what_it_makes, &kept);
    n_runs = 0;
    for (int i = 0; i < 2; i++) {
        OK(deft_capture_call(c, &a, 1, out, 1));
        EXPECT(out[0], -2, -3);
        EXPECT(kept, 2, 3);
        expect_reason(c, "keeps a tensor that it made");
        deft_tensor *const before = kept;
        OK(deft_capture_call(c, &b, 1, out, 1));
        EXPECT(out[0], 0, -3);
        EXPECT(kept, 0, 3);
        EXPECT(before, 2, 3);
    }
    cr_assert_eq(n_runs, 4);
    expect_stats(c, 4, 0, 0);
    deft_capture_destroy(&c);
}

/* How many tensors are kept. */
static int n_kept(void)
{
    char text[4096];
    int n = 0;
    cr_assert(deft_show(cx, "kept", text, sizeof text) < sizeof text);
    for (const char *p = text; (p = strchr(p, '\n')); p++) n++;
    return n;
}

Test(capture, outputs_are_kept_by_nobody)
{
    deft_capture *c = deft_capture_create(cx, difference, NULL);
    deft_tensor *a = ROW(1, 2), *b = ROW(2, 3), *out[1];
    const int kept = n_kept();
    for (int i = 0; i < 4; i++) {
        const deft_scope s = deft_scope_begin(cx);
        if (i == 2) deft_clear(cx);
        OK(deft_capture_call(c, (deft_tensor *[]){ i ? a : b, a }, 2, out, 1));
        cr_assert_eq(n_kept(), kept, "call %d: %d tensors are kept", i, n_kept());
        OK(deft_scope_end(s));
    }
    expect_stats(c, 4, 2, 2);
    deft_capture_destroy(&c);
}

static deft_status sums_all(deft_ctx *x, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)x, (void)user;
    for (size_t k = 0; k < n_out; k++) {
        out[k] = deft_add(in[0], in[0]);
        for (size_t i = 1; i < n_in; i++) out[k] = deft_add(out[k], in[i]);
    }
    return DEFT_OK;
}

Test(capture, other_numbers_of_inputs_and_outputs_have_recordings_of_their_own)
{
    deft_capture *c = deft_capture_create(cx, sums_all, NULL);
    deft_tensor *in[2] = { ROW(1, 2), ROW(2, 3) }, *out[2];
    static const struct {
        size_t n_in, n_out;
        const char *why;
    } call[] = { { 1, 1, "" },
                 { 2, 1, "2 inputs and 1 outputs, was 1 and 1" },
                 { 2, 2, "2 inputs and 2 outputs, was 2 and 1" } };
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < 3; i++) {
            OK(deft_capture_call(c, in, call[i].n_in, out, call[i].n_out));
            if (turn == 0) expect_reason(c, call[i].why);
            for (size_t k = 0; k < call[i].n_out; k++)
                expect(out[k], 2, i ? (const float[]){ 4, 7 } : (const float[]){ 2, 4 });
        }
    expect_stats(c, 6, 3, 3);
    deft_capture_destroy(&c);
}

typedef enum reading { READ, ITEM, MAP, MAP_DEVICE, FORMAT, SAVE, N_READINGS } reading;

typedef struct reader {
    deft_tensor *t; /* NULL: what the function is given */
    reading how;
} reader;

/* Whether the first element is positive. */
static bool is_positive(deft_tensor *t, reading how)
{
    float v = 0;
    char text[64] = "";
    deft_mapped m = { 0 };
    deft_device where;
    switch (how) {
    case READ: OK(deft_read(t, DEFT_F32, &v, sizeof v)); break;
    case ITEM: OK(deft_item(t, &v)); break;
    case MAP: OK(deft_map(t, &m)); break;
    case MAP_DEVICE: OK(deft_map_device(t, &m, &where)); break;
    case FORMAT: OK(deft_format(t, text, sizeof text, NULL)); return !strchr(text, '-');
    case SAVE: /* a device is not replaced: that it was asked for is enough */
        cr_assert_eq(deft_save(cx, "/dev/null", &(deft_named){ "t", t }, 1), DEFT_E_IO);
        return true;
    case N_READINGS: break;
    }
    if (m.data) v = *(const float *)m.data;
    deft_unmap(&m);
    return v > 0;
}

static deft_status reads_what_is_there(deft_ctx *x, deft_tensor *const *in, size_t n_in,
                                       deft_tensor **out, size_t n_out, void *user)
{
    (void)n_in, (void)n_out;
    const reader *const how = user;
    n_runs++;
    out[0] = is_positive(how->t ? how->t : in[0], how->how) ? deft_add(in[0], deft_const_f(x, 1))
                                                            : deft_neg(in[0]);
    return DEFT_OK;
}

Test(capture, a_value_that_is_there_already_is_read_each_time)
{
    const float plus = 3, minus = -3;
    for (int i = 0; i < 2 * N_READINGS; i++) {
        deft_tensor *a = ROW(plus), *b = ROW(minus), *out[1];
        const bool outside = i % 2;
        reader how = { outside ? deft_keep(ROW(plus)) : NULL, (reading)(i / 2) };
        deft_capture *c = deft_capture_create(cx, reads_what_is_there, &how);
        n_runs = 0;
        for (int k = 0; k < 4; k++) {
            const bool is_plus = k % 2 == 0 || how.how == SAVE;
            if (outside) deft_assign(how.t, is_plus ? a : b);
            OK(deft_capture_call(c, outside || is_plus ? &a : &b, 1, out, 1));
            EXPECT(out[0], is_plus ? 4 : outside ? -3 : 3);
            expect_reason(c, "reads a value");
        }
        cr_assert_eq(n_runs, 4);
        expect_stats(c, 4, 0, 0);
        deft_capture_destroy(&c);
    }
}

static deft_status from_memory(deft_ctx *x, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    (void)n_in, (void)n_out;
    out[0] = deft_add(in[0], deft_from(x, DEFT_SHAPE(2), DEFT_F32, user, 8));
    return DEFT_OK;
}

Test(capture, memory_is_not_frozen)
{
    float memory[2] = { 1, 2 };
    deft_capture *c = deft_capture_create(cx, from_memory, memory);
    deft_tensor *a = ROW(1, 2), *out[1];
    for (int i = 0; i < 3; i++) {
        memory[0] = (float)i;
        OK(deft_capture_call(c, &a, 1, out, 1));
        EXPECT(out[0], 1 + (float)i, 4);
        expect_reason(c, "from memory");
    }
    deft_capture_destroy(&c);
}

static deft_status bare(deft_ctx *x, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *user)
{
    (void)n_in, (void)n_out;
    switch (*(int *)user) {
    case 0: out[0] = deft_mul(in[0], 0.5); break;
    case 1: out[0] = deft_mul(in[0], 3); break;
    case 2: out[0] = deft_sub(deft_num(x, 1), in[0]); break;
    case 3: out[0] = deft_where(deft_gt(in[0], 2), in[0], in[0]); break;
    default: out[0] = deft_assign(in[0], 2.0); break;
    }
    return DEFT_OK;
}

Test(capture, a_bare_number_is_refused)
{
    deft_tensor *a = ROW(1, 2), *out[1];
    for (int i = 0; i < 5; i++) {
        deft_capture *c = deft_capture_create(cx, bare, &i);
        cr_assert_eq(deft_capture_call(c, &a, 1, out, 1), DEFT_E_STATE);
        cr_assert(strstr(deft_message(cx), "would stay for ever"), "%s", deft_message(cx));
        cr_assert_null(out[0]);
        expect_stats(c, 1, 0, 0);
        EXPECT(a, 1, 2);
        deft_capture_destroy(&c);
    }
}

/* ---- failures ---- */

static deft_status take(deft_ctx *x, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *user)
{
    model *const w = user;
    (void)n_in, (void)n_out, (void)x;
    deft_assign(w->p, deft_add(w->p, w->m));
    out[0] = deft_take(w->p, in[0], 0);
    return DEFT_OK;
}

Test(capture, a_failing_replay_changes_nothing)
{
    model w = { ROW(1, 2), ROW(1, 1) };
    deft_capture *c = deft_capture_create(cx, take, &w);
    const int64_t good = 1, bad = 2;
    deft_tensor *g = deft_keep(deft_from(cx, DEFT_SHAPE(1), DEFT_I64, &good, sizeof good));
    deft_tensor *b = deft_keep(deft_from(cx, DEFT_SHAPE(1), DEFT_I64, &bad, sizeof bad));
    deft_tensor *out[1];
    for (int i = 0; i < 3; i++) {
        OK(deft_capture_call(c, &g, 1, out, 1));
        EXPECT(out[0], 3 + (float)i);
        cr_assert_eq(deft_capture_call(c, &b, 1, out, 1), DEFT_E_RANGE);
        cr_assert_null(out[0]);
        EXPECT(w.p, 2 + (float)i, 3 + (float)i);
    }
    deft_capture_destroy(&c);
}

static deft_status fails(deft_ctx *x, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)x;
    deft_assign(in[0], deft_neg(in[0]));
    if (*(int *)user == 0) return DEFT_E_RANGE;
    if (*(int *)user == 1) out[0] = deft_param_f(x, "missing");
    if (*(int *)user == 2) out[0] = deft_param_i(x, "rate");
    if (*(int *)user == 3) out[0] = NULL;
    if (*(int *)user == 4) out[0] = deft_add(in[0], deft_zeros(x, DEFT_SHAPE(5), DEFT_F32));
    return DEFT_OK;
}

Test(capture, failures_of_the_function)
{
    static const struct {
        deft_status st;
        const char *said;
    } want[] = { { DEFT_E_RANGE, "" },
                 { DEFT_E_ARG, "was never set" },
                 { DEFT_E_ARG, "the other kind" },
                 { DEFT_E_ARG, "output 0 NULL" },
                 { DEFT_E_SHAPE, "add" } };
    deft_tensor *a = ROW(1, 2), *out[1];
    for (int i = 0; i < 5; i++) {
        deft_capture *c = deft_capture_create(cx, fails, &i);
        OK(deft_capture_set_f(c, "rate", 1));
        for (int again = 0; again < 2; again++) {
            cr_assert_eq(deft_capture_call(c, &a, 1, out, 1), want[i].st, "case %d: %s", i,
                         deft_message(cx));
            cr_assert(strstr(deft_message(cx), want[i].said), "case %d: %s", i, deft_message(cx));
            EXPECT(a, 1, 2);
        }
        deft_capture_destroy(&c);
    }
}

static deft_status opens_a_step(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                                size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = deft_neg(in[0]);
    return deft_step_end(deft_step_begin(c));
}

Test(capture, opens_no_step)
{
    deft_capture *c = deft_capture_create(cx, opens_a_step, NULL);
    deft_tensor *a = ROW(1, 2), *out[1];
    cr_assert_eq(deft_capture_call(c, &a, 1, out, 1), DEFT_E_STATE);
    const char *const said = deft_message(cx);
    cr_assert(strstr(said, "step_begin: the call of a capture at test_capture"), "%s", said);
    deft_capture_destroy(&c);
}

static deft_status plus_parameter(deft_ctx *x, deft_tensor *const *in, size_t n_in,
                                  deft_tensor **out, size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = deft_add(in[0], deft_param_i(x, "n"));
    out[1] = deft_minimum(in[0], deft_const_u(x, UINT64_MAX - 7));
    return DEFT_OK;
}

Test(capture, a_parameter_may_need_all_bits_of_an_unsigned_number)
{
    const uint64_t given[] = { UINT64_MAX, 1, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX - 5 };
    const uint64_t two = 2;
    deft_capture *c = deft_capture_create(cx, plus_parameter, NULL);
    deft_tensor *const in = deft_keep(deft_from(cx, DEFT_SHAPE(1), DEFT_U64, &two, sizeof two));
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        deft_tensor *out[2];
        uint64_t got[2];
        OK(deft_capture_set_u(c, "n", given[i]));
        OK(deft_capture_call(c, &in, 1, out, 2));
        OK(deft_read(out[0], DEFT_U64, &got[0], sizeof got[0]));
        OK(deft_read(out[1], DEFT_U64, &got[1], sizeof got[1]));
        cr_assert(got[0] == given[i] + 2 && got[1] == 2, "%llu", (unsigned long long)got[0]);
    }
    expect_stats(c, 5, 4, 1);
    OK(deft_capture_set_i(c, "n", 7)); /* the same kind of number */
    cr_assert_eq(deft_capture_set_f(c, "n", 1), DEFT_E_ARG);
    deft_capture_destroy(&c);
}

Test(capture, misuse)
{
    deft_capture *c = deft_capture_create(cx, difference, NULL);
    deft_tensor *a = ROW(1, 2), *out[1];
    cr_assert_eq(deft_capture_call(NULL, &a, 1, out, 1), DEFT_E_ARG);
    cr_assert_null(deft_capture_create(cx, NULL, NULL));
    cr_assert_eq(deft_error(cx), DEFT_E_ARG);
    deft_clear(cx);
    cr_assert_null(deft_param_f(cx, "rate"));
    cr_assert_eq(deft_error(cx), DEFT_E_STATE);
    deft_clear(cx);
    const deft_scope s = deft_step_begin(cx);
    cr_assert_eq(deft_capture_call(c, (deft_tensor *[]){ a, a }, 2, out, 1), DEFT_E_STATE);
    OK(deft_step_end(s));
    cr_assert_eq(deft_capture_call(c, (deft_tensor *[]){ a, NULL }, 2, out, 1), DEFT_E_ARG);
    cr_assert_eq(deft_capture_set_f(c, "", 1), DEFT_E_ARG);
    OK(deft_capture_set_i(c, "n", 1));
    cr_assert_eq(deft_capture_set_f(c, "n", 1), DEFT_E_ARG);
    OK(deft_capture_call(c, (deft_tensor *[]){ a, deft_mul(a, 2.0) }, 2, out, 1)); /* pending */
    EXPECT(out[0], -3, -6);
    deft_capture_destroy(&c);
    deft_capture_destroy(&c);
}
