/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that forks with a step in flight: held before its first launch, in the middle of its
 * kernels, and done but not waited for. In a child the first two have failed; what they were about
 * to overwrite has no value there, all else is as before, and the context goes on, further steps in
 * flight and children of its own included. The parent notices nothing.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deft/deft.h"
#include "lazy/run/submit.h"

enum { HANGS_AFTER_S = 30 };
typedef enum moment { BEFORE, WITHIN, AFTER, N_MOMENTS } moment;

static atomic_bool closed, is_held;
static atomic_int moment_of;
static bool is_child;
static int n_wrong;
static deft_status (*real_run)(df_device *, df_diag *, const df_plan *, const df_trace *,
                               const int64_t *, df_launch_io *, df_run_stats *);

/* What a child's lost thread had is lost. Asked by the leak checker, where there is one. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return is_child;
}

static void wrong(const char *what, long n)
{
    printf("wrong: %s (%ld)%s\n", what, n, is_child ? " in a child" : "");
    n_wrong++;
}

static void stand(moment m)
{
    if ((moment)atomic_load(&moment_of) != m) return;
    while (atomic_load(&closed)) {
        atomic_store(&is_held, true);
        sched_yield();
    }
}

static bool within(void *user)
{
    (void)user;
    stand(WITHIN);
    return false;
}

static deft_status gated(df_device *dev, df_diag *d, const df_plan *p, const df_trace *t,
                         const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    df_launch_io mine = *io;
    mine.interrupted = within;
    stand(BEFORE);
    return real_run(dev, d, p, t, slots, &mine, stats);
}

/* ---- programs ---- */

typedef struct world {
    deft_runtime *rt;
    deft_ctx *cx;
    deft_tensor *sole, *shared, *read, *also; /* f32 [3] */
} world;

static deft_tensor *make(deft_ctx *cx, float first)
{
    const float v[3] = { first, first, first };
    return deft_keep(deft_from(cx, DEFT_SHAPE(3), DEFT_F32, v, sizeof v));
}

static deft_status submit(world *w)
{
    const deft_scope s = deft_step_begin(w->cx);
    deft_assign(w->sole, deft_add(w->sole, 1));
    deft_assign(w->shared, deft_add(w->shared, w->read));
    return deft_step_submit(s);
}

static void expect(deft_tensor *t, float want, int line)
{
    float v[3] = { 0 };
    if (deft_read(t, DEFT_F32, v, sizeof v) != DEFT_OK)
        wrong("not read, line", line);
    else if (v[0] != want || v[2] != want)
        wrong("other value, line", line);
}
#define EXPECT(t, want) expect((t), (want), __LINE__)

static void go_on(world *w, float sole, float shared)
{
    atomic_store(&moment_of, N_MOMENTS);
    deft_stats before, after;
    deft_stats_read(w->cx, &before, sizeof before);
    for (int i = 0; i < 3; i++)
        if (submit(w) != DEFT_OK) wrong(deft_message(w->cx), i);
    if (deft_wait(w->cx) != DEFT_OK) wrong(deft_message(w->cx), 0);
    EXPECT(w->sole, sole + 3);
    EXPECT(w->shared, shared + 3 * 2);
    deft_stats_read(w->cx, &after, sizeof after);
    if (after.submitted != before.submitted + 3) wrong("left to run", (long)after.submitted);
}

static void child(world *w, moment m, int depth);

static void fork_child(world *w, moment m, int depth)
{
    int status = 0;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        child(w, m, depth);
        exit(n_wrong != 0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) wrong("child, by", status);
}

static void child(world *w, moment m, int depth)
{
    is_child = true;
    n_wrong = 0;
    (void)alarm(HANGS_AFTER_S);
    atomic_store(&closed, false);
    if (depth > 0) fork_child(w, m, depth - 1); /* before anything has been looked at */
    const deft_status st = deft_wait(w->cx);
    if (m == AFTER) {
        if (st != DEFT_OK) wrong(deft_message(w->cx), st);
        EXPECT(w->sole, 2);
        EXPECT(w->shared, 12);
        go_on(w, 2, 12);
    } else {
        float v[3];
        if (st != DEFT_E_STATE || !strstr(deft_message(w->cx), "when this process was forked"))
            wrong(deft_message(w->cx), st);
        EXPECT(w->shared, 10);
        EXPECT(w->read, 2);
        EXPECT(w->also, 10);
        if (deft_read(w->sole, DEFT_F32, v, sizeof v) != DEFT_E_STATE)
            wrong("memory that was being overwritten", m);
        deft_drop(&w->sole);
        w->sole = make(w->cx, 20);
        go_on(w, 20, 10);
    }
    deft_ctx_destroy(&w->cx);
    deft_runtime_destroy(&w->rt);
}

static void test(moment m)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 2,
                                     .tier = DEFT_TIER_INTERPRET };
    world w = { 0 };
    if (deft_runtime_create(&o, &w.rt) != DEFT_OK || deft_ctx_create(w.rt, NULL, &w.cx) != DEFT_OK)
        exit(1);
    real_run = w.rt->dev->run;
    w.rt->dev->run = gated;
    w.sole = make(w.cx, 1);
    w.shared = make(w.cx, 10);
    w.read = make(w.cx, 2);
    w.also = make(w.cx, 0);
    const deft_scope s = deft_step_begin(w.cx);
    deft_assign(w.also, w.shared); /* one value, two tensors */
    if (deft_step_end(s) != DEFT_OK) exit(1);
    atomic_store(&moment_of, m);
    atomic_store(&is_held, false);
    atomic_store(&closed, m != AFTER);
    if (submit(&w) != DEFT_OK) wrong(deft_message(w.cx), m);
    while (m != AFTER && !atomic_load(&is_held)) sched_yield();
    if (m == AFTER) usleep(100000);
    fork_child(&w, m, 2);
    atomic_store(&closed, false);
    if (deft_wait(w.cx) != DEFT_OK) wrong(deft_message(w.cx), m);
    EXPECT(w.sole, 2);
    EXPECT(w.shared, 12);
    EXPECT(w.also, 10);
    go_on(&w, 2, 12);
    deft_ctx_destroy(&w.cx);
    deft_runtime_destroy(&w.rt);
}

int main(void)
{
    for (moment m = 0; m < N_MOMENTS; m++) test(m);
    printf("submit: %d wrong\n", n_wrong);
    return n_wrong != 0;
}
