/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_device_work: the caller's own work among deft's, on the CPU and on GPUs that are none
 * (tests/cuda/far), whose addresses the host cannot use as they are. How it is captured and
 * replayed is tests/cuda/work_cases.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/far/far.h"
#include "support/harness.h"

#define GPU0 DEFT_CUDA(0)
#define GPU1 DEFT_CUDA(1)
#define S DEFT_SHAPE
#define ONE(shape)                                                                                 \
    (const deft_work_result[])                                                                     \
    {                                                                                              \
        {                                                                                          \
            (shape), DEFT_F32                                                                      \
        }                                                                                          \
    }

static far_controls *far;

static void set_up(void)
{
    char path[4096];
    const char *const dirs = getenv("DEFT_PLUGIN_DIR");
    cr_assert(dirs);
    snprintf(path, sizeof path, "%.*s/deft-cuda.so", (int)strcspn(dirs, ":"), dirs);
    void *const so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert(so, "%s", dlerror());
    far_controls_fn get = NULL;
    void *const symbol = dlsym(so, FAR_CONTROLS);
    memcpy(&get, &symbol, sizeof get);
    far = get();
}

TestSuite(work, .init = set_up);

static void open_on(rig *r, deft_device where)
{
    const deft_runtime_options o = {
        .size = sizeof o, .n_threads = 1, .tier = DEFT_TIER_INTERPRET, .log = "why,error,plugin"
    };
    const deft_ctx_options c = { .size = sizeof c, .device = where };
    rig_open(r, &o, &c);
}

static bool says(const rig *r, const char *text)
{
    return strstr(deft_message(r->cx), text) != NULL;
}

/* ---- the work ---- */

/* to[0] = a * times + b; to[1], where there is one, is a turned round. */
typedef struct job {
    deft_device where;
    int n, n_calls;
    float times;
    bool has_second, has_other;
    deft_status status;
    void *stream;
} job;

static const float *at(const job *j, const void *p)
{
    return j->where == DEFT_CPU ? p : far->host_of(p);
}

static deft_status do_job(void *stream, const void *const *in, void *const *out, void *user)
{
    job *const j = user;
    const float *const a = at(j, in[0]), *const b = j->has_other ? at(j, in[1]) : NULL;
    float *const to = (float *)(uintptr_t)at(j, out[0]);
    j->stream = stream;
    j->n_calls++;
    for (int i = 0; i < j->n; i++) to[i] = a[i] * j->times + (b ? b[i] : 0);
    for (int i = 0; i < j->n && j->has_second; i++)
        ((float *)(uintptr_t)at(j, out[1]))[i] = a[j->n - 1 - i];
    return j->status;
}

static deft_work work_of(job *j)
{
    return (deft_work){ .size = sizeof(deft_work), .fn = do_job, .user = j, .name = "my job" };
}

static deft_status have_done(rig *r, job *j, deft_tensor *x, deft_tensor **out)
{
    const deft_work w = work_of(j);
    return deft_device_work(r->cx, &w, &x, 1, ONE(S(j->n)), out, 1);
}

static deft_device where_is(rig *r, deft_tensor *t)
{
    deft_device d = -7;
    OK(r, deft_device_of(t, &d));
    return d;
}

/* ---- what it does ---- */

static void check_everywhere(deft_device where)
{
    rig r;
    open_on(&r, where);
    job j = { .where = where, .n = 3, .times = 10, .has_second = true, .has_other = true };
    const deft_work w = work_of(&j);
    const deft_work_result results[2] = { { S(3), DEFT_F32 }, { S(3, 1), DEFT_F32 } };
    deft_tensor *const x = RIG_VECTOR(&r, 1, 2, 3), *const row = RIG_VECTOR(&r, 0, 1, 2, 3, 4, 5);
    deft_tensor *const in[2] = { deft_add_f(x, 1), deft_slice(row, DEFT_RS(1, 6, 2)) };
    deft_tensor *out[2];
    OK(&r, deft_device_work(r.cx, &w, in, 2, results, out, 2));
    cr_expect_eq(j.stream, deft_stream(r.cx, where));
    cr_expect((j.stream == NULL) == (where == DEFT_CPU));
    cr_expect_eq(where_is(&r, out[0]), where);
    cr_expect_eq(deft_rank(out[1]), 2u);
    RIG_EXPECT(&r, deft_add_f(out[0], 0.5f), 21.5f, 33.5f, 45.5f);
    RIG_EXPECT(&r, out[1], 4, 3, 2);
    RIG_EXPECT(&r, in[0], 2, 3, 4);
    deft_tensor *const same[2] = { x, x };
    OK(&r, deft_device_work(r.cx, &w, same, 2, results, out, 2));
    RIG_EXPECT(&r, out[0], 11, 22, 33);
    cr_expect_eq(j.n_calls, 2);
    rig_close(&r);
}

Test(work, on_the_cpu)
{
    check_everywhere(DEFT_CPU);
}

Test(work, on_a_gpu)
{
    check_everywhere(GPU1);
    cr_expect_eq(far->n_works, 2u);
}

/* In a context of the CPU the operand on a GPU says where; others are copied there. */
Test(work, goes_to_the_operand_that_is_on_a_gpu)
{
    rig r;
    float gaps[5] = { 1, 9, 2, 9, 3 };
    open_on(&r, DEFT_CPU);
    job j = { .where = GPU1, .n = 3, .times = 2, .has_other = true };
    const deft_work w = work_of(&j);
    deft_tensor *const in[2] = { deft_wrap(r.cx, S(3), DEFT_F32, gaps, sizeof gaps,
                                           (int64_t[]){ 2 }),
                                 deft_to(RIG_VECTOR(&r, 10, 20, 30), GPU1) };
    deft_tensor *out;
    OK(&r, deft_device_work(r.cx, &w, in, 2, ONE(S(3)), &out, 1));
    cr_expect_eq(where_is(&r, out), GPU1);
    RIG_EXPECT(&r, out, 12, 24, 36);
    j.where = DEFT_CPU;
    j.has_other = false;
    OK(&r, have_done(&r, &j, in[0], &out));
    cr_expect_eq(where_is(&r, out), DEFT_CPU);
    RIG_EXPECT(&r, out, 2, 4, 6);
    rig_close(&r);
}

static deft_status count_only(void *stream, const void *const *in, void *const *out, void *user)
{
    (void)stream, (void)in, (void)out;
    ++*(int *)user;
    return DEFT_OK;
}

Test(work, without_operands_or_results)
{
    rig r;
    int n = 0;
    open_on(&r, GPU0);
    const deft_work w = { .size = sizeof w, .fn = count_only, .user = &n };
    deft_tensor *const x = RIG_VECTOR(&r, 1, 2);
    deft_tensor *out;
    OK(&r, deft_device_work(r.cx, &w, NULL, 0, NULL, NULL, 0));
    OK(&r, deft_device_work(r.cx, &w, &x, 1, NULL, NULL, 0));
    OK(&r, deft_device_work(r.cx, &w, NULL, 0, ONE(S(0, 4)), &out, 1));
    cr_expect_eq(deft_numel(out), 0);
    cr_expect_eq(n, 3);
    rig_close(&r);
}

/* ---- steps ---- */

Test(work, inside_a_step)
{
    rig r;
    open_on(&r, GPU0);
    job j = { .where = GPU0, .n = 2, .times = 3 };
    deft_tensor *const w = RIG_VECTOR(&r, 1, 2);
    for (int i = 0; i < 2; i++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *y;
        OK(&r, have_done(&r, &j, deft_add_f(w, 1), &y));
        deft_assign(w, deft_sub(y, w));
        if (i == 1) (void)deft_reshape(w, S(7));
        if (i == 0)
            OK(&r, deft_step_end(s));
        else
            cr_expect_neq(deft_step_end(s), DEFT_OK);
        RIG_EXPECT(&r, w, 5, 7);
    }
    rig_close(&r);
}

Test(work, follows_the_policy_of_the_step)
{
    rig r;
    open_on(&r, DEFT_CPU);
    job j = { .n = 2, .times = 3 };
    deft_tensor *const w = RIG_VECTOR(&r, 1, 2);
    deft_tensor *y;
    const deft_step_options o = { .size = sizeof o, .syncs = DEFT_SYNC_REFUSE };
    const deft_scope s = deft_step_begin_with(r.cx, &o);
    OK(&r, have_done(&r, &j, w, &y));
    deft_assign(w, y);
    cr_expect_eq(have_done(&r, &j, deft_add_f(w, 1), &y), DEFT_E_STATE);
    cr_expect(says(&r, "device_work at") && says(&r, "refuses to compute"), "%s",
              deft_message(r.cx));
    cr_expect_null(y);
    OK(&r, deft_step_end(s));
    RIG_EXPECT(&r, w, 3, 6);
    cr_expect_eq(j.n_calls, 1);
    rig_close(&r);
}

/* What is in flight is waited for. */
Test(work, after_a_submitted_step)
{
    rig r;
    open_on(&r, DEFT_CPU);
    job j = { .n = 2, .times = 3 };
    deft_tensor *const w = RIG_VECTOR(&r, 1, 2);
    deft_tensor *y;
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(w, deft_mul_f(w, 2));
    OK(&r, deft_step_submit(s));
    OK(&r, have_done(&r, &j, w, &y));
    RIG_EXPECT(&r, y, 6, 12);
    rig_close(&r);
}

/* ---- mistakes ---- */

static void check_refused(rig *r, deft_status want, const char *sentence, deft_status got,
                          deft_tensor *const *out)
{
    cr_expect_eq(got, want, "%s, for: %s", deft_status_text(got), sentence);
    cr_expect(says(r, sentence), "%s", deft_message(r->cx));
    if (out) cr_expect_null(*out);
}

Test(work, mistakes_are_told)
{
    rig r, other;
    open_on(&r, DEFT_CPU);
    open_on(&other, DEFT_CPU);
    job j = { .n = 2, .times = 3 };
    deft_work w = work_of(&j);
    deft_tensor *const x = RIG_VECTOR(&r, 1, 2);
    deft_tensor *const number = deft_num(r.cx, 3), *const theirs = RIG_VECTOR(&other, 1, 2);
    deft_tensor *const none = NULL;
    deft_tensor *o = x;
#define CALL(in, n, results) deft_device_work(r.cx, &w, (in), (n), (results), &o, 1)
    check_refused(&r, DEFT_E_ARG, "device_work: argument 1 is a bare number",
                  CALL(&number, 1, ONE(S(2))), &o);
    check_refused(&r, DEFT_E_ARG, "device_work: argument 1 is NULL", CALL(&none, 1, ONE(S(2))), &o);
    check_refused(&r, DEFT_E_STATE, "device_work: argument 1 belongs to another context",
                  CALL(&theirs, 1, ONE(S(2))), &o);
    check_refused(&r, DEFT_E_SHAPE, "device_work: extent -2 of axis 0", CALL(&x, 1, ONE(S(-2))),
                  &o);
    check_refused(&r, DEFT_E_ARG, "device_work: a list of 1 tensors", CALL(NULL, 1, ONE(S(2))), &o);
    check_refused(&r, DEFT_E_ARG, "1 results is NULL", CALL(&x, 1, NULL), &o);
    check_refused(&r, DEFT_E_LIMIT, "at most 65536 of each", CALL(&x, 65537, ONE(S(2))), &o);
    const deft_work_result bad = { S(2), (deft_dtype)77 };
    check_refused(&r, DEFT_E_DTYPE, "result 0: 77 is no dtype", CALL(&x, 1, &bad), &o);
    w.fn = NULL;
    check_refused(&r, DEFT_E_ARG, "device_work: no function", CALL(&x, 1, ONE(S(2))), &o);
    w = work_of(&j);
    w.size = 0;
    check_refused(&r, DEFT_E_ARG, "the size of deft_work is 0", CALL(&x, 1, ONE(S(2))), &o);
    cr_expect_eq(deft_device_work(NULL, &w, NULL, 0, NULL, NULL, 0), DEFT_E_ARG);
    cr_expect_eq(j.n_calls, 0);
    w = work_of(&j);
    deft_tensor *const missing = deft_reshape(x, S(5));
    check_refused(&r, DEFT_E_SHAPE, "reshape", CALL(&missing, 1, ONE(S(2))), &o);
    RIG_EXPECT(&r, x, 1, 2);
    rig_close(&other);
    rig_close(&r);
}

Test(work, a_function_that_fails)
{
    static const deft_device places[] = { DEFT_CPU, GPU0 };
    for (int i = 0; i < 2; i++) {
        rig r;
        open_on(&r, places[i]);
        job j = { .where = places[i], .n = 2, .times = 3, .status = DEFT_E_RANGE };
        deft_tensor *const x = RIG_VECTOR(&r, 1, 2);
        deft_tensor *y = x;
        check_refused(&r, DEFT_E_RANGE, "my job: its function failed",
                      have_done(&r, &j, deft_add_f(x, 1), &y), &y);
        j.status = DEFT_OK;
        OK(&r, have_done(&r, &j, x, &y));
        RIG_EXPECT(&r, y, 3, 6);
        rig_close(&r);
    }
}

static deft_status work_inside(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    (void)n_in, (void)n_out;
    const deft_work w = work_of(user);
    return deft_device_work(cx, &w, in, 1, ONE(S(2)), out, 1);
}

static deft_tensor *work_in_hook(deft_ctx *cx, deft_tensor *grad, void *user)
{
    deft_tensor *out;
    return work_inside(cx, &grad, 1, &out, 1, user) == DEFT_OK ? out : NULL;
}

Test(work, not_where_it_would_run_another_number_of_times)
{
    static const char sentence[] = "device_work: inside a captured function, a loop";
    rig r;
    open_on(&r, DEFT_CPU);
    job j = { .n = 2, .times = 3 };
    deft_tensor *const x = RIG_VECTOR(&r, 1, 2);
    deft_tensor *out, *const yes = deft_gt_f(deft_sum(x, DEFT_ALL_AXES, 0), 2);
    deft_capture *c = deft_capture_create(r.cx, work_inside, &j);
    check_refused(&r, DEFT_E_STATE, sentence, deft_capture_call(c, &x, 1, &out, 1), NULL);
    deft_capture_destroy(&c);
    cr_expect_not(deft_cond(yes, work_inside, work_inside, &j, &x, 1, &out, 1));
    check_refused(&r, DEFT_E_STATE, sentence, deft_wait(r.cx), NULL);
    deft_tensor *const rows = deft_keep(deft_expand(x, S(3, 2)));
    cr_expect_not(deft_vmap(r.cx, work_inside, &j, &rows, NULL, 1, &out, NULL, 1));
    check_refused(&r, DEFT_E_STATE, sentence, deft_wait(r.cx), NULL);
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const y = deft_mul_f(x, 2);
    cr_expect(deft_grad_hook(y, work_in_hook, &j));
    (void)rig_grad_of_sum(y, x);
    check_refused(&r, DEFT_E_STATE, sentence, deft_wait(r.cx), NULL);
    OK(&r, deft_scope_end(s));
    cr_expect_eq(j.n_calls, 0);
    rig_close(&r);
}

/* ---- gradients ---- */

/* y = 3 a + a; of which the derivative is 4. Both by work. */
static deft_status triple(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    const deft_status st = work_inside(cx, in, n_in, out, n_out, user);
    if (st == DEFT_OK) out[0] = deft_add(out[0], in[0]);
    return st;
}

static deft_status triple_back(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                               deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                               deft_tensor **grad_in, void *user)
{
    (void)in, (void)n_in, (void)out, (void)n_out;
    return triple(cx, grad_out, 1, grad_in, 1, user);
}

static void check_gradient(deft_device where)
{
    rig r;
    open_on(&r, where);
    job j = { .where = where, .n = 2, .times = 3 };
    deft_tensor *const x = RIG_VECTOR(&r, 1, 2);
    for (int i = 0; i < 2; i++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *const a = deft_square(x);
        deft_tensor *y, *const in[1] = { a };
        cr_assert(deft_custom_grad(r.cx, triple, triple_back, &j, in, 1, &y, 1), "%s",
                  deft_message(r.cx));
        deft_tensor *const g = rig_grad_of_sum(deft_mul(y, y), x);
        /* sum of (4 x^2)^2: 64 x^3 */
        RIG_EXPECT(&r, y, 4, 16);
        RIG_EXPECT(&r, g, 64, 512);
        OK(&r, deft_step_end(s));
        cr_expect_eq(j.n_calls, 2 * i + 2);
    }
    deft_tensor *out, *const yes = deft_gt_f(deft_sum(x, DEFT_ALL_AXES, 0), 2);
    cr_expect_not(deft_cond(yes, work_inside, work_inside, &j, &x, 1, &out, 1), "afterwards");
    cr_expect_eq(deft_wait(r.cx), DEFT_E_STATE);
    rig_close(&r);
}

Test(work, in_a_custom_gradient)
{
    check_gradient(DEFT_CPU);
    check_gradient(GPU0);
}

static deft_status custom_inside(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                 deft_tensor **out, size_t n_out, void *user)
{
    const bool ok = deft_custom_grad(cx, triple, triple_back, user, in, n_in, out, n_out);
    return ok ? DEFT_OK : deft_error(cx);
}

static deft_status plus_itself(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_add(in[0], in[0]);
    return DEFT_OK;
}

/* Work in the backward function alone. */
static deft_status backward_inside(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                   deft_tensor **out, size_t n_out, void *user)
{
    const bool ok = deft_custom_grad(cx, plus_itself, triple_back, user, in, n_in, out, n_out);
    return ok ? DEFT_OK : deft_error(cx);
}

Test(work, in_a_custom_gradient_inside_of_something_else)
{
    rig r;
    open_on(&r, DEFT_CPU);
    job j = { .n = 2, .times = 3 };
    deft_tensor *const x = RIG_VECTOR(&r, 1, 2);
    deft_tensor *out, *const yes = deft_gt_f(deft_sum(x, DEFT_ALL_AXES, 0), 2);
    cr_expect_not(deft_cond(yes, custom_inside, custom_inside, &j, &x, 1, &out, 1));
    check_refused(&r, DEFT_E_STATE, "device_work: inside", deft_wait(r.cx), NULL);
    for (int kind = 0; kind < 3; kind++) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const three = deft_expand(x, S(3, 2));
        bool ok;
        if (kind == 0)
            ok = deft_cond(yes, backward_inside, backward_inside, &j, &x, 1, &out, 1);
        else if (kind == 1)
            ok = deft_scan(r.cx, backward_inside, &j, &x, 1, NULL, 0, 3, 0, &out);
        else
            ok = deft_vmap(r.cx, backward_inside, &j, &three, NULL, 1, &out, NULL, 1);
        cr_assert(ok, "%d: %s", kind, deft_message(r.cx));
        cr_expect_null(rig_grad_of_sum(out, x), "%d", kind);
        check_refused(&r, DEFT_E_STATE, "device_work: inside", deft_wait(r.cx), NULL);
        OK(&r, deft_scope_end(s));
    }
    cr_expect_eq(j.n_calls, 0);
    /* A failure of the function is what the gradient fails by. */
    j.status = DEFT_E_RANGE;
    cr_expect_not(deft_custom_grad(r.cx, triple, triple_back, &j, &x, 1, &out, 1));
    check_refused(&r, DEFT_E_RANGE, "my job: its function failed", deft_wait(r.cx), NULL);
    rig_close(&r);
}

/* ---- devices that fail ---- */

Test(work, each_call_of_the_device_fails)
{
    bool has_come = true;
    for (uint32_t n = 1; has_come; n++) {
        rig r;
        open_on(&r, GPU0);
        job j = { .where = GPU0, .n = 2, .times = 3 };
        deft_tensor *const x = RIG_VECTOR(&r, 1, 2);
        deft_tensor *const old = deft_keep(deft_to(RIG_VECTOR(&r, 5, 6), GPU1)), *y = NULL;
        const deft_work w = work_of(&j);
        j.has_other = true;
        deft_tensor *const in[2] = { deft_add_f(x, 1), old };
        far->fail_call = far->n_calls + n;
        const deft_status st = deft_device_work(r.cx, &w, in, 2, ONE(S(2)), &y, 1);
        has_come = far->n_calls >= far->fail_call;
        far->fail_call = 0;
        cr_expect_eq(st, has_come ? DEFT_E_BACKEND : DEFT_OK, "%u", n);
        cr_expect_eq(y == NULL, has_come);
        cr_expect_lt(n, 50u);
        if (!has_come) RIG_EXPECT(&r, y, 11, 15);
        OK(&r, deft_device_work(r.cx, &w, in, 2, ONE(S(2)), &y, 1));
        RIG_EXPECT(&r, y, 11, 15);
        deft_tensor *gone = old;
        deft_drop(&gone);
        rig_close(&r);
    }
}
