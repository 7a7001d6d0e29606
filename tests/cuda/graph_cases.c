/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that go on, like training, on the stand-in GPU (standin/standin.h): in one queue their
 * runs are graphs, in another they are not, and what comes out is the same, bit for bit. Extents
 * and branches alternate; results are held for some time; weights are taken over, or were kept;
 * indices lie outside now and then. Then in runs of the first queue every call of the driver and
 * every allocation fails in turn: no result is wrong, nothing leaks, and graphs come back. Nothing
 * that the driver calls misuse may happen. DEFT_CUDA_TABLE=1: kernels of the first queue go by a
 * table.
 *
 * Why this file is long: one pair of queues, and each way in which their runs may differ.
 *
 *   graph_cases DRIVER NVRTC CUBLASLT [--quick] [--first=SEED]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../tools/deft/cli.h"
#include "jit_cuda/exec/device_internal.h"
#include "standin/standin.h"
#include "support/fail_mem.h"
#include "support/budget.h"

static standin gpu;
static long n_faults, n_runs, n_refused, n_failed;
static char where[128];
static bool (*in_each_run)(void *world); /* NULL: nothing */
static bool without_va;

static void fault(const char *what, const char *more)
{
    printf("%s: %s: %s\n", where, what, more);
    n_faults++;
}

static void check_misuse(void)
{
    if (gpu.n_misuse() == 0) return;
    fault("misuse of the driver", gpu.misuse());
    gpu.forgive();
}

/* ---- programs ---- */

enum { ROWS = 6, COLS = 5, MOST_PLANS = 16, MOST_ROOTS = 3, N_LANES = 2 };

typedef enum which { TRAIN, FAST_TRAIN, EVALUATE, LOOK_UP, PATCH, N_PROGRAMS } which;

/* R stands for the number of examples. The last input is the weights but for LOOK_UP. */
static const char *const texts[N_PROGRAMS] = {
    [TRAIN] = "%0 = input f32[R,6]\n%1 = input f32[6,5]\n%2 = matmul f32[R,5] %0 %1\n"
              "%3 = tanh f32[R,5] %2\n%4 = sum f32[] %3 axes=[0,1]\n"
              "%5 = permute f32[6,R] %0 perm=[1,0]\n%6 = matmul f32[6,5] %5 %3\n"
              "%7 = num f32[] 0x1p-7\n%8 = mul f32[6,5] %6 %7\n%9 = sub f32[6,5] %1 %8\n"
              "output %4\noutput %9 donor %1\n",
    [FAST_TRAIN] = "trace v1 fast\n%0 = input f32[R,6]\n%1 = input f32[6,5]\n"
                   "%2 = matmul f32[R,5] %0 %1\n"
                   "%3 = tanh f32[R,5] %2\n%4 = sum f32[] %3 axes=[0,1]\n"
                   "%5 = permute f32[6,R] %0 perm=[1,0]\n%6 = matmul f32[6,5] %5 %3\n"
                   "%7 = num f32[] 0x1p-7\n%8 = mul f32[6,5] %6 %7\n%9 = sub f32[6,5] %1 %8\n"
                   "output %4\noutput %9 donor %1\n",
    [EVALUATE] = "%0 = input f32[R,6]\n%1 = input f32[6,5]\n%2 = matmul f32[R,5] %0 %1\n"
                 "%3 = max f32[R,1] %2 axes=[1] keepdims\n%4 = sub f32[R,5] %2 %3\n"
                 "%5 = exp f32[R,5] %4\n%6 = sum f32[R] %5 axes=[1]\n%7 = argsort i64[R,5] %2\n"
                 "output %5\noutput %6\noutput %7\n",
    [LOOK_UP] = "%0 = input i64[R]\n%1 = input f32[6,5]\n%2 = take f32[R,5] %1 %0 axis=0\n"
                "%3 = sum f32[5] %2 axes=[0]\n%4 = expand f32[6,5] %3\n%5 = num f32[] 0x1p-7\n"
                "%6 = mul f32[6,5] %4 %5\n%7 = add f32[6,5] %1 %6\n"
                "output %2\noutput %7 donor %1\n",
    /* A row is written in place, or in a copy; the product reads what was there before. */
    [PATCH] = "%0 = input f32[R,6]\n%1 = input f32[6,5] sole\n%2 = slice f32[1,5] %1 start=[2,0] "
              "step=[1,1]\n%3 = squeeze f32[5] %2 axes=[0]\n%4 = num f32[] 0x1.8p-1\n"
              "%5 = mul f32[5] %3 %4\n%6 = update f32[6,5] %1 %5 %3\n"
              "%7 = matmul f32[R,5] %0 %1\noutput %7\noutput %6 donor %1\n",
};

typedef struct program {
    which is;
    int64_t n;
    df_arena arena;
    df_trace *t;
    df_plan *plan; /* not owned */
    int64_t *slots;
} program;

typedef struct world {
    fail_mem *mem;
    df_device *dev;
    df_queue *q[N_LANES]; /* the second has graphs */
    DF_VEC(program *) programs;
    df_plan *plans[N_PROGRAMS][MOST_PLANS];
    uint64_t state;
} world;

static uint64_t below(world *w, uint64_t n)
{
    w->state = w->state * 6364136223846793005u + 1442695040888963407u;
    return (w->state >> 33) % n;
}

static bool world_open(world *w, uint64_t seed, df_diag *d)
{
    static const df_gpu_request wish = { .size = sizeof wish };
    const df_replay_options usual = { .max_pool_bytes = without_va ? 1 << 20 : 0 };
    *w = (world){ .mem = fail_mem_create(), .state = seed * 977 + 1 };
    gpu.when(STANDIN_RANDOM, (uint32_t)seed);
    if (df_cuda_create(d, fail_mem_get(w->mem), NULL, &wish, &w->dev) != DEFT_OK) return false;
    for (int i = 0; i < N_LANES; i++)
        if (w->dev->far->queue_create(w->dev, d, NULL, &w->q[i]) != DEFT_OK) return false;
    return w->dev->far->replay(w->dev, d, w->q[1], &usual) == DEFT_OK;
}

static void check_nothing_left(const world *w)
{
    standin_alive alive;
    gpu.leaks(&alive);
    if (alive.contexts || alive.memory || alive.pinned || alive.streams || alive.events ||
        alive.modules || alive.graphs || alive.execs || alive.reserved || alive.handles ||
        alive.mapped)
        fault("something of the driver's is left", "");
    const fail_mem_counts c = fail_mem_count(w->mem);
    if (c.live_blocks) fault("memory leaks", "");
    if (c.faults) fault("memory is misused", fail_mem_fault(w->mem));
}

static void world_close(world *w)
{
    for (size_t i = 0; i < w->programs.n; i++) {
        df_arena_finish(&w->programs.at[i]->arena);
        free(w->programs.at[i]);
    }
    df_vec_finish(&df_mem_system, &w->programs);
    for (int i = 0; i < N_PROGRAMS; i++)
        for (int k = 0; k < MOST_PLANS; k++) {
            if (w->plans[i][k]) w->dev->release(w->dev, w->plans[i][k]);
            df_plan_destroy(&w->plans[i][k], fail_mem_get(w->mem));
        }
    for (int i = 0; i < N_LANES; i++) w->dev->far->queue_destroy(w->dev, &w->q[i]);
    w->dev->far->destroy(&w->dev);
    check_misuse();
    check_nothing_left(w);
    fail_mem_destroy(&w->mem);
}

static df_plan *plan_for(world *w, program *p, df_diag *d)
{
    df_plan **const plans = w->plans[p->is];
    int i = 0;
    for (; i < MOST_PLANS && plans[i]; i++) {
        p->slots = df_arena_new(&p->arena, int64_t, plans[i]->n_slots + 1);
        df_slots_eval(plans[i]->slots, plans[i]->n_slots, p->t, p->slots);
        if (!df_guard_first_miss(plans[i]->guards, plans[i]->n_guards, p->t, p->slots))
            return plans[i];
    }
    if (i == MOST_PLANS ||
        df_fuse(d, p->t, &w->dev->limits, fail_mem_get(w->mem), &plans[i]) != DEFT_OK)
        return NULL;
    if (w->dev->prepare(w->dev, d, plans[i], NULL) != DEFT_OK) return NULL;
    p->slots = df_arena_new(&p->arena, int64_t, plans[i]->n_slots + 1);
    df_slots_eval(plans[i]->slots, plans[i]->n_slots, p->t, p->slots);
    return plans[i];
}

static program *program_of(world *w, which is, int64_t n)
{
    df_diag d = { 0 };
    char text[2048];
    size_t at = 0;
    uint32_t *from = NULL;
    df_trace *whole = NULL;
    for (size_t i = 0; i < w->programs.n; i++)
        if (w->programs.at[i]->is == is && w->programs.at[i]->n == n) return w->programs.at[i];
    for (const char *p = texts[is]; *p && at < sizeof text - 24; p++)
        if (*p == 'R')
            at += (size_t)snprintf(text + at, sizeof text - at, "%lld", (long long)n);
        else
            text[at++] = *p;
    program *const p = calloc(1, sizeof *p);
    if (!p) exit(2);
    p->is = is;
    p->n = n;
    df_arena_init(&p->arena, &df_mem_system);
    if (df_trace_parse(&d, text, at, &p->arena, &whole) != DEFT_OK ||
        df_trace_simplify(&d, whole, DF_PASS_ALL, &p->arena, &p->t, &from) != DEFT_OK ||
        !(p->plan = plan_for(w, p, &d))) {
        printf("program %d: %s\n", (int)is, d.text);
        exit(2);
    }
    if (!df_vec_push(&df_mem_system, &w->programs, p)) exit(2);
    return p;
}

/* ---- values: one in each lane ---- */

typedef struct value {
    df_buffer *b[N_LANES];
    size_t bytes;
} value;

static void value_drop(value *v)
{
    for (int i = 0; i < N_LANES; i++) df_buffer_drop(&v->b[i]);
}

static value value_of(world *w, const void *data, size_t bytes)
{
    df_diag d = { 0 };
    value v = { .bytes = bytes };
    for (int i = 0; i < N_LANES; i++)
        if (w->dev->far->create(w->dev, &d, w->q[i], (int64_t)bytes, &v.b[i]) != DEFT_OK ||
            w->dev->far->put(w->dev, &d, w->q[i], v.b[i]->data, data, bytes) != DEFT_OK)
            fault("a value", d.text);
    return v;
}

static value random_value(world *w, size_t n)
{
    float data[64 * ROWS] = { 0 };
    for (size_t i = 0; i < n; i++) data[i] = (float)below(w, 2000) / 1000 - 1;
    return value_of(w, data, n * sizeof *data);
}

static value random_indices(world *w, size_t n, bool bad)
{
    int64_t data[64] = { 0 };
    for (size_t i = 0; i < n; i++) data[i] = (int64_t)below(w, ROWS);
    if (bad && n > 0) data[n - 1] = ROWS;
    return value_of(w, data, n * sizeof *data);
}

static void check_value(world *w, const value *v, const char *what)
{
    df_diag d = { 0 };
    char *const at[N_LANES] = { malloc(v->bytes + 1), malloc(v->bytes + 1) };
    for (int i = 0; i < N_LANES; i++)
        if (w->dev->far->get(w->dev, &d, w->q[i], at[i], v->b[i]->data, v->bytes) != DEFT_OK)
            fault("reading", d.text);
    if (memcmp(at[0], at[1], v->bytes) != 0) fault("graphs give something else", what);
    for (int i = 0; i < N_LANES; i++) free(at[i]);
}

/* What lane 1 has becomes what lane 0 has. */
static void resync(world *w, value *v)
{
    df_diag d = { 0 };
    char *const at = malloc(v->bytes + 1);
    df_buffer_drop(&v->b[1]);
    if (w->dev->far->get(w->dev, &d, w->q[0], at, v->b[0]->data, v->bytes) != DEFT_OK ||
        w->dev->far->create(w->dev, &d, w->q[1], (int64_t)v->bytes, &v->b[1]) != DEFT_OK ||
        w->dev->far->put(w->dev, &d, w->q[1], v->b[1]->data, at, v->bytes) != DEFT_OK)
        fault("a value", d.text);
    free(at);
}

/* ---- a run in both lanes ---- */

/* In a run of the second lane. */
typedef struct failure {
    bool by_memory, has_come;
    uint32_t run, at; /* which run; how many there were */
    long n;           /* which call of it; 0: none */
} failure;

static bool is_due(const failure *f)
{
    return f->n > 0 && f->at == f->run;
}

static void ask_to_fail(world *w, const failure *f)
{
    enum { OUT_OF_MEMORY = 2, INVALID = 1 };
    if (!is_due(f)) return;
    if (f->by_memory)
        fail_mem_at(w->mem, (size_t)f->n, false);
    else
        gpu.fail(NULL, f->n, f->n % 2 ? OUT_OF_MEMORY : INVALID);
}

/* Whether it has come; none is left waiting. */
static void see_failure(world *w, failure *f, size_t failed_before)
{
    if (is_due(f)) {
        f->has_come =
            f->by_memory ? fail_mem_count(w->mem).failed > failed_before : gpu.fails_waiting() == 0;
        fail_mem_at(w->mem, 0, false);
        while (gpu.fails_waiting() > 0) (void)w->dev->far->wait(w->dev, NULL, w->q[0]);
    }
    f->at++;
}

static deft_status run_lane(world *w, program *p, int lane, value *const *in, uint32_t sole,
                            df_buffer **root, df_diag *d)
{
    df_trace t = *p->t;
    df_input inputs[2];
    const df_buffer *buffers[2];
    for (uint32_t i = 0; i < t.n_inputs; i++) {
        inputs[i] = t.inputs[i];
        inputs[i].data = in[i]->b[lane]->data;
        inputs[i].flags &= ~(uint32_t)DF_INPUT_SOLE;
        if (sole >> i & 1) inputs[i].flags |= DF_INPUT_SOLE;
        buffers[i] = in[i]->b[lane];
    }
    t.inputs = inputs;
    df_launch_io io = { .root = root, .input = buffers, .queue = w->q[lane] };
    if (lane == 1 && in_each_run) {
        io.interrupted = in_each_run;
        io.user = w;
    }
    n_runs++;
    return w->dev->run(w->dev, d, p->plan, &t, p->slots, &io, NULL);
}

static size_t root_bytes(const program *p, uint32_t r)
{
    const uint32_t node = p->t->roots[r].node;
    return (size_t)df_trace_numel(p->t, node) *
           deft_dtype_size((deft_dtype)p->t->nodes[node].dtype);
}

/* Whether it went well in the first lane; in the second it may fail as asked, and what is the
 * first's is put there then. */
static bool run(world *w, program *p, value *const *in, uint32_t sole, value *out, failure *f)
{
    df_buffer *root[N_LANES][MOST_ROOTS] = { { 0 } };
    df_diag d[N_LANES] = { { 0 } };
    const uint32_t n = p->t->n_roots;
    const deft_status want = run_lane(w, p, 0, in, sole, root[0], &d[0]);
    const size_t failed = fail_mem_count(w->mem).failed;
    ask_to_fail(w, f);
    const deft_status st = run_lane(w, p, 1, in, sole, root[1], &d[1]);
    see_failure(w, f, failed);
    if (st != want && !f->has_come) fault("another status", d[1].text);
    if (st == DEFT_E_RANGE && strcmp(d[0].text, d[1].text) != 0)
        fault("another sentence", d[1].text);
    for (uint32_t r = 0; r < n; r++) {
        if (st != DEFT_OK && root[1][r]) fault("a failed run left a root", d[1].text);
        out[r] = (value){ { root[0][r], root[1][r] }, root_bytes(p, r) };
        if (want == DEFT_OK && st != DEFT_OK) resync(w, &out[r]);
        if (want != DEFT_OK && out[r].b[1]) df_buffer_drop(&out[r].b[1]);
    }
    n_refused += want != DEFT_OK;
    n_failed += want == DEFT_OK && st != DEFT_OK;
    return want == DEFT_OK;
}

/* ---- training ---- */

enum { MOST_HELD = 24 };

typedef struct training {
    world w;
    value weights;
    value held[MOST_HELD];
    uint32_t n_held;
    const int64_t *sizes;
    uint32_t n_sizes;
    failure f;
} training;

static void hold(training *t, value *v)
{
    if (below(&t->w, 3) > 0 || t->n_held == MOST_HELD) {
        value_drop(v);
        return;
    }
    t->held[t->n_held++] = *v;
}

static void let_some_go(training *t)
{
    while (t->n_held > 0 && below(&t->w, 3) == 0) {
        const uint64_t i = below(&t->w, t->n_held);
        check_value(&t->w, &t->held[i], "a held result");
        value_drop(&t->held[i]);
        t->held[i] = t->held[--t->n_held];
    }
}

/* The weights' next value; the one before may be held. */
static void turn_weights(training *t, value *next)
{
    hold(t, &t->weights);
    t->weights = *next;
}

static void act(training *t, which is)
{
    world *const w = &t->w;
    value out[MOST_ROOTS];
    const int64_t n = t->sizes[below(w, t->n_sizes)];
    program *const p = program_of(w, is, n);
    const bool bad = is == LOOK_UP && below(w, 6) == 0;
    value x = is == LOOK_UP ? random_indices(w, (size_t)n, bad) : random_value(w, (size_t)n * ROWS);
    value *const in[] = { &x, &t->weights };
    const bool takes_over = below(w, 4) > 0;
    const bool well = run(w, p, in, takes_over ? 2 : 0, out, &t->f);
    value_drop(&x);
    if (well && is == EVALUATE) {
        for (int i = 0; i < 3; i++) hold(t, &out[i]);
    } else if (well && takes_over) {
        value_drop(&t->weights);
        t->weights = out[p->t->n_roots - 1];
        if (p->t->n_roots > 1) hold(t, &out[0]);
    } else if (well) {
        turn_weights(t, &out[p->t->n_roots - 1]);
        if (p->t->n_roots > 1) hold(t, &out[0]);
    } else {
        check_value(w, &t->weights, "weights after a failure");
    }
}

static void training_step(training *t)
{
    world *const w = &t->w;
    const uint64_t r = below(w, 8);
    if (below(w, 10) > 0) w->dev->far->begin_generation(w->dev, w->q[1]);
    act(t, r < 4 ? TRAIN : r < 5 ? FAST_TRAIN : r < 6 ? LOOK_UP : PATCH);
    if (below(w, 4) == 0) act(t, EVALUATE);
    if (below(w, 2) == 0) act(t, PATCH);
    if (below(w, 20) == 0) w->dev->far->trim_replay(w->dev, w->q[1]);
    if (below(w, 4) == 0) check_value(w, &t->weights, "weights");
    let_some_go(t);
}

static bool training_open(training *t, uint64_t seed, const int64_t *sizes, uint32_t n)
{
    df_diag d = { 0 };
    *t = (training){ .sizes = sizes, .n_sizes = n };
    if (!world_open(&t->w, seed, &d)) {
        fault("no device", d.text);
        return false;
    }
    t->weights = random_value(&t->w, ROWS * COLS);
    return true;
}

static bool goes_by_table(void)
{
    const char *const asked = getenv("DEFT_CUDA_TABLE");
    return asked && strcmp(asked, "1") == 0;
}

/* Few sets of extents alternate in the frames that are kept. */
static void check_frames(const training *t)
{
    const uint32_t ways = goes_by_table() ? 2 : 1;
    if (t->n_sizes * ways > DF_CUDA_FRAMES) return;
    for (int i = 0; i < N_PROGRAMS; i++)
        for (int k = 0; k < MOST_PLANS && t->w.plans[i][k]; k++)
            if (((df_cuda_plan *)t->w.plans[i][k]->attached)->n_taken > 0)
                fault("a frame was laid out again", texts[i]);
}

/* What is held outlives its queue now and then. */
static df_replay_stats training_close(training *t)
{
    world *const w = &t->w;
    df_diag d = { 0 };
    const df_replay_stats s = w->dev->far->read_replay(w->dev, w->q[1]);
    for (uint32_t i = 0; i < t->n_held; i++) check_value(w, &t->held[i], "a held result");
    check_value(w, &t->weights, "weights");
    check_frames(t);
    const bool late = below(w, 2) == 0;
    if (late && w->dev->far->wait(w->dev, &d, w->q[1]) != DEFT_OK) fault("waiting", d.text);
    if (late) w->dev->far->queue_destroy(w->dev, &w->q[1]);
    for (uint32_t i = 0; i < t->n_held; i++) value_drop(&t->held[i]);
    value_drop(&t->weights);
    world_close(w);
    return s;
}

static const int64_t three[] = { 3, 8, 17 };
static const int64_t many[] = { 1, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };

static void check_training(uint64_t seed, int n_steps, const int64_t *sizes, uint32_t n)
{
    training t;
    (void)snprintf(where, sizeof where, "training, seed %llu, %u lengths", (unsigned long long)seed,
                   n);
    if (!training_open(&t, seed, sizes, n)) return;
    for (int i = 0; i < n_steps; i++) training_step(&t);
    const df_replay_stats s = training_close(&t);
    printf("%s: %llu runs, %llu recorded, %llu replayed, %llu placed, %llu reshaped, %llu nodes "
           "updated, %llu tables\n",
           where, (unsigned long long)s.calls, (unsigned long long)s.recorded,
           (unsigned long long)s.replayed, (unsigned long long)s.placed,
           (unsigned long long)s.reshaped, (unsigned long long)s.updates,
           (unsigned long long)s.tables);
    if (goes_by_table() != (s.tables > 0)) fault("tables", "");
    if (s.failure[0]) fault("a graph failed", s.failure);
    if (s.replayed + s.placed + s.reshaped == 0) fault("nothing was replayed", "");
}

/* The n-th call of the driver, or allocation, within a graph's run fails; then all goes on. false:
 * there was none. */
static bool check_failing(bool by_memory, uint32_t at, long n)
{
    training t;
    enum { STEPS = 16 };
    (void)snprintf(where, sizeof where, "%s %ld of run %u fails",
                   by_memory ? "allocation" : "driver call", n, at);
    if (!training_open(&t, 5, three, 1)) return false;
    t.f = (failure){ .by_memory = by_memory, .run = at, .n = n };
    for (int i = 0; i < STEPS; i++) training_step(&t);
    (void)training_close(&t);
    return t.f.has_come;
}

/* ---- memory ---- */

/* Pool of a program that trains with these lengths and evaluates with the longest. */
static df_replay_stats pool_of(const int64_t *sizes, uint32_t n)
{
    training t;
    df_replay_stats s = { 0 };
    if (!training_open(&t, 3, sizes, n)) return s;
    world *const w = &t.w;
    for (int i = 0; i < 24; i++) {
        value out[MOST_ROOTS];
        const int64_t size = sizes[(uint32_t)i % n];
        value x = random_value(w, (size_t)size * ROWS);
        value *const in[] = { &x, &t.weights };
        w->dev->far->begin_generation(w->dev, w->q[1]);
        if (!run(w, program_of(w, TRAIN, size), in, 2, out, &t.f)) fault("a run", "");
        value_drop(&t.weights);
        t.weights = out[1];
        value loss = out[0];
        if (i % 4 == 3) {
            if (!run(w, program_of(w, EVALUATE, size), in, 0, out, &t.f)) fault("a run", "");
            for (int k = 0; k < 3; k++) value_drop(&out[k]);
        }
        value_drop(&loss);
        value_drop(&x);
    }
    s = w->dev->far->read_replay(w->dev, w->q[1]);
    (void)training_close(&t);
    return s;
}

static void check_memory(void)
{
    static const int64_t sizes[] = { 17, 31, 63 };
    (void)snprintf(where, sizeof where, "memory");
    const df_replay_stats all = pool_of(sizes, 3), largest = pool_of(sizes + 2, 1);
    printf("%s: %llu bytes for three lengths, %llu for the longest, %llu in pools apart\n", where,
           (unsigned long long)all.pool_bytes, (unsigned long long)largest.pool_bytes,
           (unsigned long long)all.separate_bytes);
    if (all.pool_bytes != largest.pool_bytes || all.separate_bytes <= all.pool_bytes)
        fault("the pool is not as large as the largest path", "");
    if (all.mapped_bytes != 2 << 20) fault("more is mapped than is needed", "");
}

/* ---- results in the pool, used in another queue ---- */

/* Evaluates in the second lane; x is the same each time, the weights are not. */
static value evaluate_once(world *w, value *x, const value *weights)
{
    value out[MOST_ROOTS], rest = *weights;
    failure none = { 0 };
    value *const in[] = { x, &rest };
    w->dev->far->begin_generation(w->dev, w->q[1]);
    if (!run(w, program_of(w, EVALUATE, 8), in, 0, out, &none)) fault("a run", "");
    value_drop(&out[1]);
    value_drop(&out[2]);
    return out[0];
}

/* What the first lane reads of the second's is not written over when it is dropped. */
static void check_other_queue(void)
{
    world w;
    df_diag d = { 0 };
    (void)snprintf(where, sizeof where, "another queue");
    if (!world_open(&w, 1, &d)) {
        fault("no device", d.text);
        return;
    }
    gpu.when(STANDIN_LATE, 1);
    const df_device_memory_ops *const far = w.dev->far;
    value x = random_value(&w, 8 * (size_t)ROWS), to = random_value(&w, 8 * (size_t)COLS);
    value weights[6];
    for (int i = 0; i < 6; i++) weights[i] = random_value(&w, ROWS * COLS);
    for (int i = 0; i < 4; i++) {
        value out = evaluate_once(&w, &x, &weights[i]);
        value_drop(&out);
    }
    value out = evaluate_once(&w, &x, &weights[4]);
    if (far->read_replay(w.dev, w.q[1]).held != 1) fault("it is not in the pool", "");
    if (far->wait(w.dev, &d, w.q[1]) != DEFT_OK || df_gpu_used(out.b[1], &d, w.q[0]) != DEFT_OK ||
        far->copy(w.dev, &d, w.q[0], to.b[1]->data, out.b[1]->data, to.bytes) != DEFT_OK ||
        far->copy(w.dev, &d, w.q[0], to.b[0]->data, out.b[0]->data, to.bytes) != DEFT_OK)
        fault("copying", d.text);
    const void *const place = out.b[1]->data;
    df_buffer_drop(&out.b[1]);
    value next = evaluate_once(&w, &x, &weights[5]);
    if (next.b[1]->data != place) fault("it is not where the other was", "");
    if (far->wait(w.dev, &d, w.q[1]) != DEFT_OK || far->wait(w.dev, &d, w.q[0]) != DEFT_OK)
        fault("waiting", d.text);
    check_value(&w, &to, "what another queue read");
    value_drop(&next);
    value_drop(&out);
    value_drop(&x);
    value_drop(&to);
    for (int i = 0; i < 6; i++) value_drop(&weights[i]);
    world_close(&w);
}

/* ---- trims from outside ---- */

static bool trim_all(void *user)
{
    world *const w = user;
    w->dev->far->trim(w->dev);
    return false;
}

static uint64_t graphs_of(world *w)
{
    return w->dev->far->read_replay(w->dev, w->q[1]).n_graphs;
}

/* Between runs it is done at once, within one when that has ended; then all is recorded again. */
static void check_trim(void)
{
    world w;
    df_diag d = { 0 };
    (void)snprintf(where, sizeof where, "trim%s", without_va ? " without virtual memory" : "");
    if (!world_open(&w, 1, &d)) {
        fault("no device", d.text);
        return;
    }
    value x = random_value(&w, 8 * (size_t)ROWS), weights = random_value(&w, ROWS * COLS);
    for (int i = 0; i < 24; i++) {
        in_each_run = i % 8 == 7 ? trim_all : NULL;
        value out = evaluate_once(&w, &x, &weights);
        check_value(&w, &out, "a result beside a trim");
        if (i >= 2 && (graphs_of(&w) > 0) == (i % 8 == 7)) fault("graphs after a run", "");
        if (i % 8 == 5) trim_all(&w);
        if (i % 8 == 5 && graphs_of(&w) > 0) fault("graphs after a trim", "");
        const df_replay_stats s = w.dev->far->read_replay(w.dev, w.q[1]);
        if (i % 8 == 5 && s.pool_bytes > 512) fault("more is left than is held", "");
        check_value(&w, &out, "a result that was held through a trim");
        value_drop(&out);
    }
    in_each_run = NULL;
    trim_all(&w);
    const df_replay_stats s = w.dev->far->read_replay(w.dev, w.q[1]);
    if (s.mapped_bytes > 0) fault("memory is left", "");
    value_drop(&x);
    value_drop(&weights);
    world_close(&w);
}

/* Without virtual memory the pool is one block of the greatest size, or graphs are refused. */
static void check_without_va(bool quick)
{
    static const standin_gpu one[] = { { .no_va = true } };
    world w;
    df_diag d = { 0 };
    gpu.reset();
    gpu.set_gpus(1, one);
    if (world_open(&w, 1, &d) || !strstr(d.text, "has no virtual memory")) fault("refusal", d.text);
    world_close(&w);
    without_va = true;
    check_trim();
    check_training(90, quick ? 60 : 300, three, 3);
    for (long k = 1; k < (quick ? 8 : 40) && check_failing(false, 2, k); k++) {
    }
    without_va = false;
    gpu.reset();
}

int main(int argc, char **argv)
{
    bool quick = false;
    uint64_t first = 0;
    if (argc < 4 || !standin_open(&gpu, argv[1])) return 2;
    (void)setenv("DEFT_CUDA_DRIVER", argv[1], 1);
    (void)setenv("DEFT_NVRTC", argv[2], 1);
    (void)setenv("DEFT_CUBLASLT", argv[3], 1);
    for (int i = 4; i < argc; i++) {
        const char *value_at;
        if (strcmp(argv[i], "--quick") == 0)
            quick = true;
        else if (cli_value(argv[i], "--first", &value_at))
            (void)cli_number("--first", value_at, 0, UINT64_MAX, &first);
        else
            return 2;
    }
    const unsigned n = quick ? 4 : 40;
    for (uint64_t i = 0; i < n && (i == 0 || test_time_left(0.5)); i++)
        check_training(first + i, quick ? 60 : 300, three, 3);
    check_training(first + n, quick ? 120 : 1000, many, 12);
    check_memory();
    check_other_queue();
    check_trim();
    check_without_va(quick);
    for (int by_memory = 0; by_memory < 2; by_memory++) {
        long all = 0;
        for (uint32_t at = 0; at < 16; at += quick ? 3 : 1)
            for (long k = 1; check_failing(by_memory != 0, at, k); k += quick ? 3 : 1) all++;
        printf("%ld %s failed\n", all, by_memory ? "allocations" : "driver calls");
    }
    printf("%ld runs, %ld refused, %ld failed as asked, %ld faults\n", n_runs, n_refused, n_failed,
           n_faults);
    return n_faults == 0 ? 0 : 1;
}
