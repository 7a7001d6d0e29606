/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts on threads share one runtime. Eight threads run a random mix: training steps, programs
 * of changing sizes that others have planned before, more programs than the caches hold, captures,
 * memory of one context read by another, whole contexts handed from thread to thread and made anew,
 * mistakes, and interrupts from a ninth. Every result must be, bit for bit, that of one context
 * alone, interpreted on one thread.
 *
 * usage: race_contexts [seconds]
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "deft/capture.h"
#include "deft/deft.h"
#include "lazy/core/history.h"

enum { N_THREADS = 8, N_WORLDS = N_THREADS + 1, DEFAULT_SECONDS = 8 };
enum { MAX_OUT = 40000, MAX_SEEDS = 24 };

typedef enum kind { TRAIN, PROGRAM, CAPTURE, LEND, N_KINDS } kind;
enum { MISTAKE = N_KINDS, EXCHANGE, RENEW, TIDY, N_DEEDS };

static const int64_t sizes[][2] = { { 3, 5 }, { 8, 64 }, { 17, 33 }, { 64, 130 }, { 40, 300 } };
enum { N_SIZES = sizeof sizes / sizeof *sizes };
static const uint32_t n_seeds[N_KINDS] = { 4, MAX_SEEDS, 4, 4 };

typedef struct result {
    size_t n;
    float v[MAX_OUT];
} result;

/* What a context lends of its memory, for one borrower. */
typedef enum lending { NOTHING, OFFERED, TAKEN, RETURNED } lending;

typedef struct world {
    deft_ctx *cx;
    pthread_mutex_t alive; /* held to destroy cx and to interrupt it */
    pthread_mutex_t lock;  /* guards the rest */
    lending state;
    uint32_t size, seed;
    deft_mapped mapped;
    deft_tensor *lent; /* only by the context's thread */
} world;

typedef struct thread {
    pthread_t handle;
    world *w;
    uint64_t random;
    result r;
    uint64_t n_done[N_DEEDS], n_borrowed, n_replayed, n_interrupted;
} thread;

static deft_runtime *rt;
static world worlds[N_WORLDS];
static _Atomic(world *) spare;
static result *expected[N_KINDS][N_SIZES][MAX_SEEDS];
static atomic_bool stop;
static atomic_int n_wrong;

static void wrong(const char *what, int a, int b)
{
    printf("wrong: %s (%d, %d)\n", what, a, b);
    atomic_fetch_add(&n_wrong, 1);
}

static uint32_t draw(uint64_t *random, uint32_t n)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*random >> 33) % n);
}

static bool interrupted(thread *t, deft_status st)
{
    t->n_interrupted += st == DEFT_E_INTERRUPTED;
    return st == DEFT_E_INTERRUPTED;
}

/* ---- the work ---- */

static deft_tensor *input(deft_ctx *cx, int64_t rows, int64_t cols, uint32_t seed)
{
    static _Thread_local float v[MAX_OUT];
    uint64_t random = seed + 1;
    for (int64_t i = 0; i < rows * cols; i++) v[i] = (float)draw(&random, 2001) / 1000 - 1;
    return deft_from(cx, DEFT_SHAPE(rows, cols), DEFT_F32, v, (size_t)(rows * cols) * 4);
}

static deft_status take(thread *t, deft_tensor *from, result *r)
{
    const size_t n = (size_t)deft_numel(from);
    deft_status st;
    if (r->n + n > MAX_OUT) return DEFT_E_LIMIT;
    do st = deft_read(from, DEFT_F32, r->v + r->n, n * 4);
    while (interrupted(t, st));
    r->n += n;
    return st;
}

/* Two layers, their gradient by hand, three steps. */
static deft_status train(thread *t, const int64_t *size, uint32_t seed, result *r)
{
    deft_ctx *const cx = t->w->cx;
    deft_tensor *x = deft_keep(input(cx, size[0], size[1], seed)),
                *w = deft_keep(input(cx, size[1], 10, seed + 1)),
                *b = deft_keep(input(cx, 1, 10, seed + 2));
    deft_status st = DEFT_OK;
    for (int i = 0; i < 3 && st == DEFT_OK; i++) do {
            const deft_scope s = deft_step_begin(cx);
            deft_tensor *const p = deft_softmax(deft_add(deft_matmul(x, w), b), 1);
            deft_tensor *const g = deft_sub(p, 1.0 / (1 + i));
            deft_tensor *const dw = deft_matmul(deft_t(x), g);
            deft_assign(w, deft_sub(w, deft_mul(dw, 0.01)));
            deft_assign(b, deft_sub(b, deft_mul(deft_sum(g, DEFT_AXES(0), 1), 0.01)));
            st = deft_step_end(s);
        } while (interrupted(t, st));
    if (st == DEFT_OK) st = take(t, w, r);
    if (st == DEFT_OK) st = take(t, b, r);
    deft_drop(&x);
    deft_drop(&w);
    deft_drop(&b);
    return st;
}

/* user: a tensor of the loop's surroundings. */
static deft_status half_way(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out;
    out[0] = deft_mul(deft_add(in[0], user), 0.5);
    return DEFT_OK;
}

static deft_status centred(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out;
    out[0] = deft_sub(deft_tanh(in[0]), deft_mul(deft_mean(in[0], DEFT_ALL_AXES, 0), user));
    return DEFT_OK;
}

/* A loop that is one kernel, one that is not, a branch. */
static deft_tensor *loop_op(deft_ctx *cx, deft_tensor *x, deft_tensor *y, uint32_t which)
{
    deft_tensor *out = NULL;
    if (which == 0) (void)deft_scan(cx, half_way, x, &y, 1, NULL, 0, 7, 0, &out);
    if (which == 1) (void)deft_scan(cx, centred, x, &y, 1, NULL, 0, 3, 0, &out);
    if (which == 2)
        (void)deft_cond(deft_any(deft_gt(y, 0.9), DEFT_ALL_AXES, 0), centred, half_way, x, &y, 1,
                        &out, 1);
    return out;
}

static deft_tensor *some_op(deft_ctx *cx, deft_tensor *x, deft_tensor *y, uint32_t which)
{
    if (which >= 8) return loop_op(cx, x, y, which - 8);
    switch (which) {
    case 0: return deft_tanh(deft_add(x, y));
    case 1: return deft_mul(deft_exp(deft_clamp(y, -2, 2)), 0.25);
    case 2: return deft_softmax(y, 1);
    case 3: return deft_sub(y, deft_mean(y, DEFT_AXES(0), 1));
    case 4: return deft_where(deft_gt(x, y), x, deft_neg(y));
    case 5: return deft_div(y, deft_add(deft_abs(x), 1.5));
    case 6: return deft_flip(y, DEFT_AXES(1));
    default: return deft_add(y, deft_max(y, DEFT_AXES(1), 1));
    }
}

/* Each seed is a program of its own. */
static deft_status program(thread *t, const int64_t *size, uint32_t seed, result *r)
{
    const deft_scope s = deft_scope_begin(t->w->cx);
    deft_tensor *const x = input(t->w->cx, size[0], size[1], seed);
    deft_tensor *y = x;
    uint64_t random = seed * 77;
    for (int i = 0; i < 5; i++) y = some_op(t->w->cx, x, y, draw(&random, 11));
    deft_tensor *const sum = deft_sum(y, DEFT_AXES((int)seed % 2), 0);
    deft_status st = take(t, sum, r);
    if (st == DEFT_OK) st = take(t, y, r);
    const deft_status end = deft_scope_end(s);
    return st == DEFT_OK && !interrupted(t, end) ? end : st;
}

static deft_status to_capture(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                              size_t n_out, void *user)
{
    deft_tensor *const state = user;
    (void)n_in, (void)n_out;
    out[0] = deft_tanh(deft_add(deft_mul(in[0], deft_param_f(cx, "a")), state));
    deft_assign(
        state, deft_sub(deft_mul(state, deft_const_f(cx, 0.5)), deft_mean(in[0], DEFT_AXES(0), 1)));
    return DEFT_OK;
}

static deft_status captured(thread *t, const int64_t *size, uint32_t seed, result *r)
{
    deft_ctx *const cx = t->w->cx;
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *state = deft_keep(input(cx, 1, size[1], seed)), *out = NULL;
    deft_capture *c = deft_capture_create(cx, to_capture, state);
    deft_capture_stats stats = { 0 };
    deft_status st = c ? DEFT_OK : deft_error(cx);
    for (uint32_t i = 0; i < 4 && st == DEFT_OK; i++) {
        deft_tensor *const in = input(cx, size[0] + (i == 2), size[1], seed + i);
        st = deft_capture_set_f(c, "a", 0.5 + i);
        while (st == DEFT_OK && interrupted(t, st = deft_capture_call(c, &in, 1, &out, 1)))
            st = DEFT_OK;
        if (st == DEFT_OK && i != 1) st = take(t, out, r);
    }
    if (st == DEFT_OK) st = take(t, state, r);
    if (c) deft_capture_stats_read(c, &stats, sizeof stats);
    t->n_replayed += stats.replayed;
    deft_capture_destroy(&c);
    deft_drop(&state);
    const deft_status end = deft_scope_end(s);
    return st == DEFT_OK && !interrupted(t, end) ? end : st;
}

/* Reads memory that may be another context's. */
static deft_status over(thread *t, const deft_mapped *m, const int64_t *size, result *r)
{
    deft_ctx *const cx = t->w->cx;
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *const x =
        deft_wrap(cx, DEFT_SHAPE(size[0], size[1]), DEFT_F32, m->data, m->bytes, NULL);
    deft_status st = take(t, deft_mul(deft_softmax(x, 1), x), r);
    const deft_status end = deft_scope_end(s);
    return st == DEFT_OK && !interrupted(t, end) ? end : st;
}

static deft_status map_new(thread *t, const int64_t *size, uint32_t seed, deft_tensor **out,
                           deft_mapped *m)
{
    deft_status st;
    const deft_scope s = deft_scope_begin(t->w->cx);
    *out = deft_keep(deft_tanh(input(t->w->cx, size[0], size[1], seed)));
    do st = deft_map(*out, m);
    while (interrupted(t, st));
    const deft_status end = deft_scope_end(s);
    return st == DEFT_OK && !interrupted(t, end) ? end : st;
}

/* Alone, a context borrows from itself. */
static deft_status lend(thread *t, const int64_t *size, uint32_t seed, result *r)
{
    deft_tensor *x = NULL;
    deft_mapped m = { 0 };
    deft_status st = map_new(t, size, seed, &x, &m);
    if (st == DEFT_OK) st = over(t, &m, size, r);
    deft_unmap(&m);
    deft_drop(&x);
    return st;
}

static deft_status (*const works[N_KINDS])(thread *, const int64_t *, uint32_t,
                                           result *) = { train, program, captured, lend };

static void compare(thread *t, deft_status st, kind k, uint32_t size, uint32_t seed)
{
    const result *const e = expected[k][size][seed];
    if (st != DEFT_OK)
        wrong(deft_message(t->w->cx), (int)k, (int)st);
    else if (t->r.n != e->n || memcmp(t->r.v, e->v, e->n * 4) != 0)
        wrong("other bits: kind, seed", (int)k, (int)seed);
}

/* ---- what only threads do ---- */

static void borrow(thread *t, world *from)
{
    pthread_mutex_lock(&from->lock);
    const bool mine = from->state == OFFERED;
    if (mine) from->state = TAKEN;
    pthread_mutex_unlock(&from->lock);
    if (!mine) return;
    t->r.n = 0;
    compare(t, over(t, &from->mapped, sizes[from->size], &t->r), LEND, from->size, from->seed);
    t->n_borrowed++;
    pthread_mutex_lock(&from->lock);
    from->state = RETURNED;
    pthread_mutex_unlock(&from->lock);
}

static void offer(thread *t)
{
    world *const w = t->w;
    pthread_mutex_lock(&w->lock);
    const lending state = w->state;
    pthread_mutex_unlock(&w->lock);
    if (state == RETURNED) {
        deft_unmap(&w->mapped);
        deft_drop(&w->lent);
    } else if (state != NOTHING) {
        return;
    }
    w->size = draw(&t->random, N_SIZES);
    w->seed = draw(&t->random, n_seeds[LEND]);
    if (map_new(t, sizes[w->size], w->seed, &w->lent, &w->mapped) != DEFT_OK)
        wrong(deft_message(w->cx), LEND, 0);
    deft_assign_f(w->lent, 7); /* what is mapped stays */
    pthread_mutex_lock(&w->lock);
    w->state = OFFERED;
    pthread_mutex_unlock(&w->lock);
}

/* A step with a mistake, one with a bad index: nothing of them takes effect, and the context goes
 * on. */
static void mistake(thread *t)
{
    static const int64_t bad[2] = { 1, 99 };
    deft_ctx *const cx = t->w->cx;
    float before[15], after[15];
    deft_tensor *x = deft_keep(input(cx, 3, 5, 1));
    deft_status st;
    do st = deft_read(x, DEFT_F32, before, sizeof before);
    while (interrupted(t, st));
    deft_scope s = deft_step_begin(cx);
    deft_assign(x, deft_mul(x, 2.0));
    deft_assign(x, deft_add(x, input(cx, 3, 4, 1)));
    st = deft_step_end(s);
    if (st != DEFT_E_SHAPE || !strstr(deft_message(cx), "[3,4]")) wrong("a mistake", (int)st, 0);
    do {
        s = deft_step_begin(cx);
        deft_tensor *const at = deft_from(cx, DEFT_SHAPE(2), DEFT_I64, bad, sizeof bad);
        deft_assign(x, deft_add(x, deft_sum(deft_take(x, at, 0), DEFT_ALL_AXES, 0)));
        st = deft_step_end(s);
    } while (interrupted(t, st));
    if (st != DEFT_E_RANGE) wrong("a bad index", (int)st, 0);
    do st = deft_read(x, DEFT_F32, after, sizeof after);
    while (interrupted(t, st));
    if (memcmp(before, after, sizeof before) != 0) wrong("a failed step took effect", 0, 0);
    deft_drop(&x);
}

static bool open_world(world *w)
{
    return deft_ctx_create(rt, NULL, &w->cx) == DEFT_OK;
}

/* Only when nobody has memory of it. */
static void renew(thread *t)
{
    world *const w = t->w;
    pthread_mutex_lock(&w->lock);
    const lending state = w->state;
    pthread_mutex_unlock(&w->lock);
    if (state != NOTHING) return;
    pthread_mutex_lock(&w->alive);
    deft_ctx_destroy(&w->cx);
    if (!open_world(w)) abort();
    pthread_mutex_unlock(&w->alive);
}

static void *work(void *user)
{
    static const uint8_t mix[] = { TRAIN,   PROGRAM, PROGRAM, PROGRAM, PROGRAM, CAPTURE,
                                   CAPTURE, LEND,    LEND,    LEND,    MISTAKE, EXCHANGE };
    thread *const t = user;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        uint32_t deed = mix[draw(&t->random, sizeof mix)];
        const uint32_t rare = draw(&t->random, 400);
        if (rare == 0) deed = RENEW;
        if (rare == 1) deed = TIDY;
        t->n_done[deed]++;
        if (deed == MISTAKE) mistake(t);
        if (deed == EXCHANGE) t->w = atomic_exchange(&spare, t->w);
        if (deed == RENEW) renew(t);
        if (deed == TIDY) deft_runtime_trim(rt);
        if (deed == LEND) {
            offer(t);
            borrow(t, &worlds[draw(&t->random, N_WORLDS)]);
        }
        if (deed >= N_KINDS || deed == LEND) continue;
        const uint32_t size = draw(&t->random, N_SIZES), seed = draw(&t->random, n_seeds[deed]);
        t->r.n = 0;
        compare(t, works[deed](t, sizes[size], seed, &t->r), (kind)deed, size, seed);
    }
    return NULL;
}

static void *interrupt(void *user)
{
    uint64_t random = 5;
    (void)user;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        world *const w = &worlds[draw(&random, N_WORLDS)];
        pthread_mutex_lock(&w->alive);
        deft_interrupt(w->cx);
        pthread_mutex_unlock(&w->alive);
        nanosleep(&(struct timespec){ .tv_nsec = draw(&random, 4000000) }, NULL);
    }
    return NULL;
}

/* ---- main ---- */

/* One context alone. */
static bool expect(thread *t)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    world w = { 0 };
    bool ok = deft_runtime_create(&o, &rt) == DEFT_OK && open_world(&w);
    t->w = &w;
    for (int k = 0; k < N_KINDS && ok; k++)
        for (uint32_t i = 0; i < N_SIZES * n_seeds[k] && ok; i++) {
            const uint32_t size = i % N_SIZES, seed = i / N_SIZES;
            t->r.n = 0;
            if (works[k](t, sizes[size], seed, &t->r) != DEFT_OK) {
                printf("alone: %s\n", deft_message(w.cx));
                ok = false;
            }
            const size_t bytes = offsetof(result, v) + t->r.n * 4;
            expected[k][size][seed] = malloc(bytes);
            if (expected[k][size][seed]) memcpy(expected[k][size][seed], &t->r, bytes);
        }
    deft_ctx_destroy(&w.cx);
    deft_runtime_destroy(&rt);
    return ok;
}

static bool run(thread *threads, double seconds)
{
    pthread_t interrupter;
    for (int i = 0; i < N_WORLDS; i++) {
        pthread_mutex_init(&worlds[i].alive, NULL);
        pthread_mutex_init(&worlds[i].lock, NULL);
        if (!open_world(&worlds[i])) return false;
    }
    atomic_store(&spare, &worlds[N_THREADS]);
    for (int i = 0; i < N_THREADS; i++) {
        threads[i].w = &worlds[i];
        threads[i].random = (uint64_t)i + 1;
        if (pthread_create(&threads[i].handle, NULL, work, &threads[i]) != 0) return false;
    }
    if (pthread_create(&interrupter, NULL, interrupt, NULL) != 0) return false;
    nanosleep(&(struct timespec){ .tv_sec = (time_t)seconds }, NULL);
    atomic_store(&stop, true);
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i].handle, NULL);
    pthread_join(interrupter, NULL);
    return true;
}

static void close_worlds(void)
{
    for (int i = 0; i < N_WORLDS; i++) {
        if (worlds[i].state != NOTHING) {
            deft_unmap(&worlds[i].mapped);
            deft_drop(&worlds[i].lent);
        }
        deft_ctx_destroy(&worlds[i].cx);
    }
}

int main(int argc, char **argv)
{
    static thread threads[N_THREADS];
    /* Small caches: more programs than they hold. */
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 3,
                                     .max_cached_bytes = 1 << 20,
                                     .max_code_bytes = 300000,
                                     .max_plan_bytes = 300000 };
    thread sum = { 0 };
    if (!expect(&threads[0]) || deft_runtime_create(&o, &rt) != DEFT_OK) return 1;
    if (!run(threads, argc > 1 ? atof(argv[1]) : DEFAULT_SECONDS)) return 1;
    uint64_t built = 0, hits = 0;
    for (int i = 0; i < N_THREADS; i++) {
        for (int k = 0; k < N_DEEDS; k++) sum.n_done[k] += threads[i].n_done[k];
        sum.n_borrowed += threads[i].n_borrowed;
        sum.n_replayed += threads[i].n_replayed;
        sum.n_interrupted += threads[i].n_interrupted;
    }
    for (int i = 0; i < N_WORLDS; i++) {
        deft_stats s;
        deft_stats_read(worlds[i].cx, &s, sizeof s);
        built += s.plans_built;
        hits += s.plan_hits;
    }
    const bool has_compiler = strncmp(deft_runtime_compiler(rt), "interp", 6) != 0;
    const df_tier_stats tiers = df_tiers_read(df_cpu_tiers(rt->dev));
    const uint64_t evicted = df_cache_stats_get(rt->plans).evictions;
    close_worlds();
    deft_runtime_destroy(&rt);
    for (int k = 0; k < N_KINDS; k++)
        for (int i = 0; i < N_SIZES; i++)
            for (int j = 0; j < MAX_SEEDS; j++) free(expected[k][i][j]);
    printf("trained %d programs %d captured %d (replayed %d) lent %d (borrowed %d) mistakes %d\n"
           "exchanged %d renewed %d interrupted %d plans %d (hits %d, evicted %d)\n"
           "compiled %d (failed %d, evicted %d)\n%d wrong\n",
           (int)sum.n_done[TRAIN], (int)sum.n_done[PROGRAM], (int)sum.n_done[CAPTURE],
           (int)sum.n_replayed, (int)sum.n_done[LEND], (int)sum.n_borrowed,
           (int)sum.n_done[MISTAKE], (int)sum.n_done[EXCHANGE], (int)sum.n_done[RENEW],
           (int)sum.n_interrupted, (int)built, (int)hits, (int)evicted, (int)tiers.compiled,
           (int)tiers.failed, (int)tiers.evicted, atomic_load(&n_wrong));
    const bool all = sum.n_done[TRAIN] && sum.n_replayed && sum.n_borrowed && sum.n_done[MISTAKE] &&
                     sum.n_interrupted && hits && evicted &&
                     (!has_compiler || (tiers.compiled && tiers.evicted && !tiers.failed));
    if (!all) printf("something never happened\n");
    return atomic_load(&n_wrong) != 0 || !all;
}
