/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of AMX beside what they can disturb: alternate stacks for signals, signals while tiles
 * are in use, and forks. A process whose alternate stack is too small gets no tiles, and the same
 * program goes on without them.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deft/deft.h"
#include "runtime/matmul.h"

enum { SIDE = 160, SMALL_STACK = 8192, LARGE_STACK = 1 << 17, N_ROUNDS = 400, HANGS_AFTER_S = 60 };

static uint16_t half[SIDE * SIDE];
static volatile sig_atomic_t n_signals;

/* Numbers whose sums round, so that bits tell whether tiles are used. */
static void fill(void)
{
    uint64_t state = 9;
    for (int i = 0; i < SIDE * SIDE; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        half[i] = (uint16_t)((state >> 40 & 0x807f) | (120 + (state >> 56 & 15)) << 7);
    }
}

/* Writes the product of the matrix with itself. Returns false when a call failed. */
static bool multiply(deft_ctx *cx, float *out)
{
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *const a = deft_from(cx, DEFT_SHAPE(SIDE, SIDE), DEFT_BF16, half, sizeof half);
    deft_tensor *const wide = deft_cast(a, DEFT_F32);
    bool ok =
        deft_read(deft_matmul(wide, wide), DEFT_F32, out, SIDE * SIDE * sizeof *out) == DEFT_OK;
    ok = deft_scope_end(s) == DEFT_OK && ok;
    return ok;
}

typedef struct side {
    deft_runtime *rt;
    deft_ctx *cx;
} side;

/* Nothing compiles while a process forks: the allocator of GCC's AddressSanitizer takes no lock
 * around a fork, and a child would wait for ever for the lock that a thread of its parent had. */
static side open_side(void)
{
    side s = { 0 };
    const deft_runtime_options o = { .size = sizeof o, .n_threads = 2, .tier = DEFT_TIER_QUICK };
    const deft_ctx_options c = { .size = sizeof c, .numerics = DEFT_FAST };
    if (deft_runtime_create(&o, &s.rt) || deft_ctx_create(s.rt, &c, &s.cx)) exit(3);
    return s;
}

static void close_side(side *s)
{
    deft_ctx_destroy(&s->cx);
    deft_runtime_destroy(&s->rt);
}

/* Returns the exit status of a child that runs `body`; -1: it was killed. The child looks for no
 * leaks: what a thread of its parent held, one that compiles for instance, is lost in a fork. */
static int in_child(int (*body)(void))
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(HANGS_AFTER_S);
        _exit(body());
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

static float without[SIDE * SIDE], with[SIDE * SIDE], got[SIDE * SIDE];

static int refused(void)
{
    const stack_t small = { .ss_sp = malloc(SMALL_STACK), .ss_size = SMALL_STACK };
    if (sigaltstack(&small, NULL)) return 77; /* this system wants larger ones anyway */
    side s = open_side();
    for (int i = 0; i < 3; i++) {
        if (!multiply(s.cx, got)) return 1;
        if (memcmp(got, without, sizeof got) != 0) return 2;
    }
    close_side(&s);
    const bool allowed = df_matmul_enable_tiles();
    const stack_t none = { .ss_flags = SS_DISABLE };
    if (sigaltstack(&none, NULL)) return 4;
    free(small.ss_sp);
    return allowed ? 5 : 0;
}

static void count_signal(int number)
{
    char room[4096];
    memset(room, number, sizeof room);
    n_signals += room[17] == number;
}

/* Signals on an alternate stack while tiles are in use. */
static int interrupted(void)
{
    const stack_t large = { .ss_sp = malloc(LARGE_STACK), .ss_size = LARGE_STACK };
    struct sigaction action = { .sa_flags = SA_ONSTACK | SA_RESTART };
    const struct itimerval often = { { 0, 300 }, { 0, 300 } }, never = { { 0, 0 }, { 0, 0 } };
    int status = 0;
    action.sa_handler = count_signal;
    side s = open_side();
    if (sigaltstack(&large, NULL) || sigaction(SIGALRM, &action, NULL)) return 1;
    alarm(0);
    if (setitimer(ITIMER_REAL, &often, NULL)) return 1;
    for (int i = 0; i < N_ROUNDS && !status; i++)
        status = !multiply(s.cx, got) ? 2 : memcmp(got, with, sizeof got) != 0 ? 3 : 0;
    if (setitimer(ITIMER_REAL, &never, NULL)) return 1;
    close_side(&s);
    const stack_t none = { .ss_flags = SS_DISABLE };
    if (sigaltstack(&none, NULL)) return 4;
    free(large.ss_sp);
    return status ? status : n_signals == 0 ? 5 : 0;
}

static side parents;

/* A child goes on with its parent's runtime, and with one of its own. */
static int forked(void)
{
    side own = open_side();
    if (!multiply(parents.cx, got) || memcmp(got, with, sizeof got) != 0) return 1;
    if (!multiply(own.cx, got) || memcmp(got, with, sizeof got) != 0) return 2;
    close_side(&own);
    close_side(&parents);
    return 0;
}

/* Computes the product in a process that has not asked for tiles. */
static int first_without(void)
{
    setenv("DEFT_AMX", "0", 1);
    side s = open_side();
    const bool ok = multiply(s.cx, without);
    close_side(&s);
    unsetenv("DEFT_AMX");
    return ok ? 0 : 1;
}

int main(void)
{
    fill();
    if (first_without()) return 1;
    const int small = in_child(refused);
    if (small != 0 && small != 77) {
        printf("wrong: with a small alternate stack (%d)\n", small);
        return 1;
    }
    parents = open_side();
    if (!multiply(parents.cx, with)) return 1;
    const bool has_tiles = df_matmul_enable_tiles();
    if ((memcmp(with, without, sizeof with) != 0) != has_tiles) {
        printf("wrong: tiles are here: %d\n", has_tiles);
        return 1;
    }
    const int a = in_child(interrupted), b = in_child(forked), c = in_child(forked);
    if (a || b || c) printf("wrong: signals (%d), forks (%d, %d)\n", a, b, c);
    if (!multiply(parents.cx, got) || memcmp(got, with, sizeof got) != 0) return 1;
    close_side(&parents);
    printf("tiles: %s, small stack: %s\n", has_tiles ? "yes" : "no",
           small == 77 ? "not allowed by the system" : "no tiles");
    return a || b || c ? 1 : 0;
}
