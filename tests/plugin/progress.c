/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that are told how the compiler gets on, on a code generator that is slow when asked
 * (plugin.h, whose folder is the argument): what they are told, by which thread and how often, and
 * that a step whose program does not want to wait any longer fails whole.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "deft/deft.h"
#include "plugin.h"

enum {
    N = 1 << 21,  /* so many that waiting for quick code beats interpreting */
    SLOW_MS = 600 /* to be told of several times even on a busy machine */
};

static plugin_controls *controls;
static int n_faults;

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            printf("%s: %d: %s\n", what, __LINE__, #x);                                            \
            n_faults++;                                                                            \
        }                                                                                          \
    } while (0)

/* ---- who is told ---- */

typedef struct listener {
    pthread_t thread;
    deft_ctx *cx;
    int stop_at;      /* the call that says no; 0: none does */
    int interrupt_at; /* the call that interrupts */
    int n, n_wrong_thread, n_early;
    double last; /* ms */
    deft_progress latest;
    char ops[64], site[64];
    bool sees_kernel;
} listener;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static bool hear(void *user, const deft_progress *now)
{
    listener *const l = user;
    const double at = now_ms();
    l->n++;
    l->n_wrong_thread += !pthread_equal(l->thread, pthread_self());
    l->n_early += at - l->last < 99;
    l->last = at;
    l->latest = *now;
    l->sees_kernel |= now->size == sizeof *now && strstr(now->ops, "exp") &&
                      strstr(now->site, "progress") && now->n_kernels > 0 &&
                      now->n_done < now->n_kernels && now->elapsed_ns >= 100000000u;
    if (l->n == l->interrupt_at) deft_interrupt(l->cx);
    return l->n != l->stop_at;
}

/* ---- the program ---- */

static float x[N], y[N];

typedef struct world {
    deft_runtime *rt;
    deft_ctx *cx;
    deft_tensor *state;
    listener l;
} world;

static bool open_world(world *w, deft_tier tier, bool listens)
{
    const deft_runtime_options o = { .size = sizeof o, .n_threads = 1, .tier = tier };
    memset(w, 0, sizeof *w);
    w->l.thread = pthread_self();
    const deft_ctx_options c = { .size = sizeof c,
                                 .progress = listens ? hear : NULL,
                                 .progress_user = &w->l };
    for (int i = 0; i < N; i++) x[i] = (float)(i % 5);
    if (deft_runtime_create(&o, &w->rt) || deft_ctx_create(w->rt, &c, &w->cx)) return false;
    w->l.cx = w->cx;
    w->state = deft_keep(deft_from(w->cx, DEFT_SHAPE(N), DEFT_F32, x, sizeof x));
    return w->state != NULL;
}

static void close_world(world *w)
{
    deft_ctx_destroy(&w->cx);
    deft_runtime_destroy(&w->rt);
}

static deft_status step(world *w)
{
    const deft_scope s = deft_step_begin(w->cx);
    w->l.last = now_ms();
    deft_site(w->cx, "progress.txt", 7);
    deft_assign(w->state, deft_add(deft_exp(deft_mul(w->state, -1.0)), 2.0));
    return deft_step_end(s);
}

/* Whether the state is that of the beginning, or that after one step. */
static bool is_as_made(world *w)
{
    return deft_read(w->state, DEFT_F32, y, sizeof y) == DEFT_OK && memcmp(x, y, sizeof x) == 0;
}

static bool is_stepped(world *w)
{
    return deft_read(w->state, DEFT_F32, y, sizeof y) == DEFT_OK && y[0] == 3 && /* exp(0) + 2 */
           y[3] > 2.0497f && y[3] < 2.0499f;
}

static void reset(uint32_t delay_ms)
{
    controls->delay_ms = delay_ms;
    atomic_store(&controls->n_compiles, 0);
}

/* ---- cases ---- */

static void tells(const char *what, deft_tier tier)
{
    world w;
    reset(SLOW_MS);
    CHECK(open_world(&w, tier, true));
    CHECK(step(&w) == DEFT_OK);
    CHECK(w.l.n >= 2);
    CHECK(w.l.n_wrong_thread == 0 && w.l.n_early == 0 && w.l.sees_kernel);
    const int before = w.l.n;
    CHECK(is_stepped(&w) && step(&w) == DEFT_OK); /* nothing is new */
    if (tier != DEFT_TIER_AUTO) CHECK(w.l.n == before && controls->n_compiles == 1);
    close_world(&w);
}

static void stops(const char *what, deft_tier tier, bool by_interrupt)
{
    world w;
    reset(SLOW_MS);
    CHECK(open_world(&w, tier, true));
    if (by_interrupt)
        w.l.interrupt_at = 1;
    else
        w.l.stop_at = 2;
    CHECK(step(&w) == DEFT_E_INTERRUPTED);
    CHECK(strstr(deft_message(w.cx), "interrupted") != NULL);
    CHECK(by_interrupt ? w.l.n == 1 : w.l.n == 2);
    CHECK(is_as_made(&w));
    CHECK(step(&w) == DEFT_OK && is_stepped(&w)); /* what was begun was finished */
    if (tier != DEFT_TIER_AUTO) CHECK(controls->n_compiles == 1);
    close_world(&w);
}

static void is_quiet(const char *what)
{
    world w;
    reset(0);
    CHECK(open_world(&w, DEFT_TIER_FULL, true));
    CHECK(step(&w) == DEFT_OK && w.l.n == 0 && is_stepped(&w));
    close_world(&w);
    reset(150);
    CHECK(open_world(&w, DEFT_TIER_FULL, false));
    CHECK(step(&w) == DEFT_OK && w.l.n == 0 && is_stepped(&w));
    close_world(&w);
}

int main(int argc, char **argv)
{
    char path[4096];
    if (argc != 2 || setenv("DEFT_PLUGIN_DIR", argv[1], 1)) return 99;
    snprintf(path, sizeof path, "%s/deft-llvm.so", argv[1]);
    void *const so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *const symbol = so ? dlsym(so, PLUGIN_CONTROLS) : NULL;
    if (!symbol) {
        printf("%s\n", dlerror());
        return 99;
    }
    plugin_controls_fn fn;
    memcpy(&fn, &symbol, sizeof fn);
    controls = fn();
    tells("full code", DEFT_TIER_FULL);
    tells("quick code", DEFT_TIER_QUICK);
    tells("code from the background", DEFT_TIER_AUTO);
    stops("full code, stopped", DEFT_TIER_FULL, false);
    stops("full code, interrupted", DEFT_TIER_FULL, true);
    stops("code from the background, stopped", DEFT_TIER_AUTO, false);
    stops("code from the background, interrupted", DEFT_TIER_AUTO, true);
    is_quiet("nobody is told");
    printf("%d faults\n", n_faults);
    dlclose(so);
    return n_faults ? 1 : 0;
}
