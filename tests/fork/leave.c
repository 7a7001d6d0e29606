/* SPDX-License-Identifier: Apache-2.0
 *
 * A program may leave main while the background thread is in its very first compilation: it ends
 * with its own status, whatever of LLVM's static objects exists by then. Each child is a fresh
 * process that leaves at another point, from before the compiler is asked until after it is done;
 * some end by another thread, some destroy the runtime in a handler that runs after LLVM's own,
 * some call no handlers, some are forked children that have no compile thread, and some of those
 * make a runtime of their own, which computes whatever became of the compiler.
 *
 * usage: fork_leave [children]
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../support/budget.h"
#include "deft/deft.h"

enum { STATUS = 42, N_CHILDREN = 300, LEAST = 60, HANGS_AFTER_S = 20 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double asked; /* when the compiler was first asked */
static deft_runtime *rt;
static deft_ctx *cx;

/* 8 ops and a sum, compiled in the background while the interpreter answers. */
static void ask(void)
{
    const deft_runtime_options o = { .size = sizeof o, .n_threads = 1, .tier = DEFT_TIER_AUTO };
    static float v[64];
    float out = 0;
    if (deft_runtime_create(&o, &rt) != DEFT_OK || deft_ctx_create(rt, NULL, &cx) != DEFT_OK)
        exit(1);
    deft_tensor *const x = deft_from(cx, DEFT_SHAPE(64), DEFT_F32, v, sizeof v);
    deft_tensor *y = x;
    asked = now();
    for (int i = 0; i < 4; i++) y = deft_add(deft_tanh(y), deft_exp(deft_neg(deft_abs(x))));
    if (deft_item(deft_sum(y, DEFT_ALL_AXES, 0), &out) != DEFT_OK) exit(1);
}

static void destroy(void)
{
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}

typedef enum way { BY_MAIN, BY_THREAD, DESTROYING, QUICK, FORKED, RENEWED, N_WAYS } way;

/* The address sanitizer's own malloc stays locked in a child when another thread was in it. */
#ifdef __SANITIZE_ADDRESS__
enum { N_USED = FORKED };
#else
enum { N_USED = N_WAYS };
#endif

/* Whether a runtime that is made now computes. */
static bool works(void)
{
    const deft_runtime_options o = { .size = sizeof o, .n_threads = 1, .tier = DEFT_TIER_FULL };
    const float v[2] = { 1.5f, -3 };
    float out[2] = { 0 };
    deft_runtime *own = NULL;
    deft_ctx *in = NULL;
    if (deft_runtime_create(&o, &own) != DEFT_OK || deft_ctx_create(own, NULL, &in) != DEFT_OK)
        return false;
    deft_tensor *const x = deft_from(in, DEFT_SHAPE(2), DEFT_F32, v, sizeof v);
    const deft_status st = deft_read(deft_add(deft_abs(x), x), DEFT_F32, out, sizeof out);
    deft_ctx_destroy(&in);
    deft_runtime_destroy(&own);
    return st == DEFT_OK && out[0] == 3 && out[1] == 0;
}

static void *leave(void *user)
{
    (void)user;
    exit(STATUS);
}

/* delay < 0: prints how long the first compilation takes, in microseconds. */
static int child(double delay, way w)
{
    (void)alarm(HANGS_AFTER_S);
    if (w == DESTROYING) (void)atexit(destroy); /* below all that loading LLVM registers */
    ask();
    if (delay < 0) {
        deft_runtime_settle(rt);
        printf("%.0f\n", (now() - asked) * 1e6);
        return 0;
    }
    while ((now() - asked) * 1e6 < delay) (void)poll(NULL, 0, 0);
    pthread_t t;
    if (w == BY_THREAD && pthread_create(&t, NULL, leave, NULL) == 0) pthread_join(t, NULL);
    if (w == QUICK) quick_exit(STATUS);
    if (w == FORKED || w == RENEWED) {
        const pid_t pid = fork();
        int status = 0;
        if (pid == 0) {
            (void)alarm(HANGS_AFTER_S);
            return w == FORKED || works() ? STATUS : 1;
        }
        if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return 1;
        return WEXITSTATUS(status);
    }
    return STATUS;
}

static double first_compilation(const char *self)
{
    char command[4200];
    double us = 0;
    (void)snprintf(command, sizeof command, "'%s' child -1 0", self);
    FILE *const p = popen(command, "r");
    if (!p || fscanf(p, "%lf", &us) != 1) us = 0;
    if (p) (void)pclose(p);
    return us;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "child") == 0) return child(atof(argv[2]), (way)atoi(argv[3]));
    const int n = argc > 1 ? atoi(argv[1]) : N_CHILDREN;
    const double us = first_compilation(argv[0]);
    if (us <= 0) {
        printf("no first compilation\n");
        return 1;
    }
    int n_wrong = 0;
    uint64_t random = 1;
    int i = 0;
    for (; i < n && (i < LEAST || test_time_left(1)); i++) {
        char delay[32], way_text[8];
        random = random * 6364136223846793005u + 1442695040888963407u;
        (void)snprintf(delay, sizeof delay, "%.1f", (double)(random >> 40) / (1 << 24) * us * 1.1);
        (void)snprintf(way_text, sizeof way_text, "%d", i % N_USED);
        const pid_t pid = fork();
        if (pid == 0) {
            execl("/proc/self/exe", argv[0], "child", delay, way_text, (char *)NULL);
            _exit(127);
        }
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) != pid) return 1;
        if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS) continue;
        printf("left after %s us of %.0f, way %s: %s %d\n", delay, us, way_text,
               WIFSIGNALED(status) ? "signal" : "status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        n_wrong++;
    }
    printf("%d of %d programs ended wrongly; first compilation %.0f us\n", n_wrong, i, us);
    return n_wrong > 0;
}
