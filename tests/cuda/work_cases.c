/* SPDX-License-Identifier: Apache-2.0
 *
 * The caller's own work, deft_device_work, on the stand-in GPU (standin/standin.h): kernels of the
 * program's, launched by its function, in the middle of steps whose runs are graphs. The same
 * program runs on the CPU, where the function computes, and what is read is the same, bit for bit;
 * how often the function is called is counted. Then calls of the driver and allocations fail in
 * turn: no result is wrong, nothing leaks, and the program goes on.
 *
 *   work_cases LIBCUDA LIBNVRTC [--quick]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deft/deft.h"
#include "standin/try.h"
#include "support/budget.h"
#include "support/fail_mem.h"
#include "support/log_text.h"

enum { COLS = 6, MOST = 24, GPU, HOST, N_SIDES = 2 };

static char where[128];

static void fault(const char *text, const char *more)
{
    printf("%s: %s: %s\n", where, text, more);
    n_faults++;
}

/* ---- the work: to = 2 a + by, difference = a - b ---- */

static const char text[] =
    "extern \"C\" __global__ void work(float *to, float *less, const float *a, const float *b,\n"
    "                                  int n, float by) {\n"
    "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < n) to[i] = 2 * a[i] + by;\n"
    "  if (i < n) less[i] = a[i] - b[i];\n"
    "}\n";

static df_cu_fn kernel;

typedef enum habit { GOOD, TAKES_MEMORY, WAITS, FAILS_ONCE_CAPTURED, FAILS } habit;

typedef struct job {
    int n, n_calls;
    float by;
    habit is;
    deft_status code; /* of FAILS */
} job;

static void on_host(const job *j, const void *const *from, void *const *out)
{
    const float *const a = from[0], *const b = from[1];
    for (int i = 0; i < j->n; i++) {
        ((float *)out[0])[i] = 2 * a[i] + j->by;
        ((float *)out[1])[i] = a[i] - b[i];
    }
}

/* What a program does that does not know of captures. */
static int misbehave(const job *j, df_cu_stream stream)
{
    df_cu_ptr p;
    if (j->is == WAITS) (void)cu.stream_wait(stream);
    if (j->is != TAKES_MEMORY) return 0;
    const int r = cu.mem_alloc(&p, 64);
    return r ? r : cu.mem_free(p);
}

static deft_status put_in(void *stream, const void *const *from, void *const *out, void *user)
{
    job *const j = user;
    j->n_calls++;
    if (!stream) {
        on_host(j, from, out);
        return DEFT_OK;
    }
    void *params[] = { (void *)(uintptr_t)&out[0],
                       (void *)(uintptr_t)&out[1],
                       (void *)(uintptr_t)&from[0],
                       (void *)(uintptr_t)&from[1],
                       &j->n,
                       &j->by };
    if (misbehave(j, stream)) return DEFT_E_BACKEND;
    if (launch(kernel, (unsigned)(j->n + 31) / 32, 32, stream, params)) return DEFT_E_BACKEND;
    if (j->is == FAILS) return j->code;
    return j->is == FAILS_ONCE_CAPTURED && j->n_calls == 2 ? DEFT_E_RANGE : DEFT_OK;
}

/* ---- a program, in two contexts ---- */

typedef struct side {
    deft_ctx *cx;
    deft_tensor *w, *held[4];
    job job;
} side;

typedef struct world {
    fail_mem *mem;
    deft_runtime *rt;
    side side[N_SIDES]; /* the GPU, the host */
    char log[1 << 14];
} world;

static void keep_log(void *user, const char *topic, const char *line)
{
    world *const w = user;
    log_text_add(w->log, sizeof w->log, topic, line);
}

static void *resize(void *user, void *p, size_t old, size_t size)
{
    const df_mem *const m = user;
    return m->resize(m->user, p, old, size);
}

static void set_weights(side *s)
{
    float first[COLS * COLS];
    for (int i = 0; i < COLS * COLS; i++) first[i] = (float)(i * 7 % 11) / 16 - 0.3f;
    const deft_scope sc = deft_scope_begin(s->cx);
    deft_assign(s->w, deft_from(s->cx, DEFT_SHAPE(COLS, COLS), DEFT_F32, first, sizeof first));
    if (deft_scope_end(sc) != DEFT_OK) fault("weights", deft_message(s->cx));
}

static bool open_world(world *w, deft_replay replay, standin_mode mode)
{
    *w = (world){ .mem = fail_mem_create() };
    (void)start(mode);
    const df_cu_module m = load(text, NULL, 0);
    if (!m || cu.module_fn(&kernel, m, "work")) return false;
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET,
                                     .log = "why,error",
                                     .log_hook = keep_log,
                                     .log_user = w,
                                     .resize = resize,
                                     .resize_user = (void *)(uintptr_t)fail_mem_get(w->mem) };
    if (deft_runtime_create(&o, &w->rt) != DEFT_OK) return false;
    for (int i = 0; i < N_SIDES; i++) {
        side *const s = &w->side[i];
        const deft_ctx_options c = { .size = sizeof c,
                                     .device = i ? DEFT_CPU : DEFT_CUDA(0),
                                     .replay = i ? DEFT_REPLAY_OFF : replay };
        if (deft_ctx_create(w->rt, &c, &s->cx) != DEFT_OK) {
            printf("no context: %s\n", w->log);
            return false;
        }
        s->w = deft_keep(deft_zeros(s->cx, DEFT_SHAPE(COLS, COLS), DEFT_F32));
        set_weights(s);
    }
    return true;
}

static void close_world(world *w)
{
    standin_alive a;
    for (int i = 0; i < N_SIDES; i++) {
        for (int k = 0; k < 4; k++) deft_drop(&w->side[i].held[k]);
        deft_drop(&w->side[i].w);
        deft_ctx_destroy(&w->side[i].cx);
    }
    deft_runtime_destroy(&w->rt);
    if (in.n_misuse()) fault("misuse of the driver", in.misuse());
    in.leaks(&a);
    if (a.contexts > 1 || a.memory || a.pinned || a.streams || a.events || a.modules != 1 ||
        a.graphs || a.execs || a.reserved || a.handles || a.mapped)
        fault("something of the driver's is left", "");
    const fail_mem_counts c = fail_mem_count(w->mem);
    if (c.live_blocks) fault("memory leaks", "");
    if (c.faults) fault("memory is misused", fail_mem_fault(w->mem));
    fail_mem_destroy(&w->mem);
}

static deft_status have_done(side *s, uint64_t key, deft_tensor *a, deft_tensor *b,
                             deft_tensor **out)
{
    const deft_work w = {
        .size = sizeof w, .fn = put_in, .user = &s->job, .name = "my kernel", .key = key
    };
    deft_tensor *const in_[2] = { a, b };
    const deft_shape shape = { deft_rank(a), { deft_dim(a, 0), deft_dim(a, 1) } };
    const deft_work_result results[2] = { { shape, DEFT_F32 }, { shape, DEFT_F32 } };
    s->job.n = (int)deft_numel(a);
    return deft_device_work(s->cx, &w, in_, 2, results, out, 2);
}

/* A step: a plan, the work, a plan. Then what was held is exchanged. */
static deft_status step(side *s, int i, int64_t n, bool holds)
{
    float data[MOST * COLS];
    for (int k = 0; k < (int)n * COLS; k++) data[k] = (float)((k * 5 + i * 3) % 17) / 8 - 1;
    const deft_scope sc = deft_step_begin(s->cx);
    deft_tensor *const x =
        deft_from(s->cx, DEFT_SHAPE(n, COLS), DEFT_F32, data, (size_t)n * COLS * sizeof *data);
    deft_tensor *const a = deft_tanh(deft_matmul(x, s->w));
    deft_tensor *made[2];
    deft_status st = have_done(s, 1, a, x, made);
    if (st != DEFT_OK) {
        deft_step_abort(sc);
        return st;
    }
    deft_tensor *const next = deft_mul(deft_matmul(deft_t(made[1]), made[0]), 0x1p-6);
    deft_assign(s->w, deft_add(deft_mul(s->w, 0.5), next));
    if (holds) {
        deft_drop(&s->held[i % 4]);
        s->held[i % 4] = deft_keep(made[i & 1]);
    }
    return deft_step_end(sc);
}

static void compare(world *w, deft_tensor *const t[N_SIDES], const char *what)
{
    float got[N_SIDES][MOST * COLS];
    size_t bytes = 0;
    if (!t[0] || !t[1]) return;
    for (int i = 0; i < N_SIDES; i++) {
        bytes = (size_t)deft_numel(t[i]) * sizeof(float);
        if (deft_read(t[i], DEFT_F32, got[i], bytes) != DEFT_OK)
            fault("reading", deft_message(w->side[i].cx));
    }
    if (memcmp(got[0], got[1], bytes) != 0) fault("the GPU has something else", what);
}

static void compare_all(world *w)
{
    compare(w, (deft_tensor *[]){ w->side[0].w, w->side[1].w }, "weights");
    for (int k = 0; k < 4; k++)
        compare(w, (deft_tensor *[]){ w->side[0].held[k], w->side[1].held[k] }, "what was held");
}

static void steps(world *w, int from, int n, const int64_t *sizes, int n_sizes, bool holds)
{
    for (int i = from; i < from + n; i++)
        for (int k = 0; k < N_SIDES; k++)
            if (step(&w->side[k], i, sizes[i % n_sizes], holds) != DEFT_OK)
                fault("a step", deft_message(w->side[k].cx));
}

static deft_replay_stats stats_of(world *w)
{
    deft_replay_stats s;
    if (deft_replay_read(w->side[0].cx, DEFT_CUDA(0), &s, sizeof s) != DEFT_OK) fault("stats", "");
    if (s.is_on && s.work_calls != (uint64_t)w->side[0].job.n_calls)
        fault("calls are counted wrongly", "");
    return s;
}

static void check_calls(world *w, int n, const char *what)
{
    char more[128];
    if (w->side[0].job.n_calls == n) return;
    (void)snprintf(more, sizeof more, "%d calls, not %d", w->side[0].job.n_calls, n);
    fault(what, more);
}

/* ---- cases ---- */

static const int64_t one[] = { 9 }, three[] = { 9, 17, MOST };

static bool shows(world *w, const char *line)
{
    static char shown[1 << 14];
    (void)deft_show(w->side[0].cx, "graphs", shown, sizeof shown);
    if (!strstr(shown, line)) printf("%s", shown);
    return strstr(shown, line) != NULL;
}

/* Nothing changes from step to step: the function is not called any more. */
static void check_steady(standin_mode mode)
{
    world w;
    enum { WARM = 8, STEPS = 24 };
    (void)snprintf(where, sizeof where, "steady, mode %d", (int)mode);
    if (!open_world(&w, DEFT_REPLAY_GRAPHS, mode)) fault("no world", "");
    steps(&w, 0, WARM, one, 1, false);
    const int n = w.side[0].job.n_calls;
    const long launched = in.count("cuLaunchKernel");
    steps(&w, WARM, STEPS - WARM, one, 1, false);
    check_calls(&w, n, "it is called again");
    if (in.count("cuLaunchKernel") != launched) fault("kernels are launched one by one", "");
    compare_all(&w);
    const deft_replay_stats s = stats_of(&w);
    printf("%s: %d calls in %d steps\n", where, n, (int)STEPS);
    if (s.works != STEPS) fault("works are counted wrongly", "");
    if (!shows(&w, "work my kernel, ") || !shows(&w, "of the runs are works")) fault("shown", "");
    close_world(&w);
}

static void check_without_graphs(void)
{
    world w;
    (void)snprintf(where, sizeof where, "without graphs");
    if (!open_world(&w, DEFT_REPLAY_OFF, STANDIN_RANDOM)) fault("no world", "");
    steps(&w, 0, 12, three, 3, true);
    check_calls(&w, 12, "each time");
    compare_all(&w);
    w.side[0].job.is = FAILS;
    w.side[0].job.code = DEFT_E_RANGE;
    if (step(&w.side[0], 0, 9, false) != DEFT_E_RANGE) fault("a function that fails", "");
    compare_all(&w);
    (void)stats_of(&w);
    close_world(&w);
}

/* Extents alternate, results are held: placed anew, captured anew. */
static void check_changing(int n_steps)
{
    world w;
    (void)snprintf(where, sizeof where, "changing");
    if (!open_world(&w, DEFT_REPLAY_GRAPHS, STANDIN_RANDOM)) fault("no world", "");
    for (int i = 0; i < n_steps; i += 6) {
        steps(&w, i, 6, three, 3, true);
        compare_all(&w);
    }
    const deft_replay_stats s = stats_of(&w);
    printf("%s: %llu works, %llu calls, %llu placed, pool of %llu bytes\n", where,
           (unsigned long long)s.works, (unsigned long long)s.work_calls,
           (unsigned long long)s.placed, (unsigned long long)s.pool_bytes);
    if (s.work_calls >= s.works) fault("too many calls", "");
    close_world(&w);
}

/* The work by itself, on tensors that are there. */
static void alone(world *w, uint64_t key, deft_tensor *const a[N_SIDES], int n_calls,
                  const char *what)
{
    deft_tensor *made[N_SIDES][2];
    for (int i = 0; i < N_SIDES; i++) {
        const deft_scope s = deft_step_begin(w->side[i].cx);
        if (have_done(&w->side[i], key, a[i], a[i], made[i]) != DEFT_OK)
            fault(what, deft_message(w->side[i].cx));
        for (int k = 0; k < 2; k++) made[i][k] = deft_keep(made[i][k]);
        if (deft_step_end(s) != DEFT_OK) fault(what, deft_message(w->side[i].cx));
    }
    for (int k = 0; k < 2; k++) {
        compare(w, (deft_tensor *[]){ made[0][k], made[1][k] }, what);
        deft_drop(&made[0][k]);
        deft_drop(&made[1][k]);
    }
    check_calls(w, n_calls, what);
}

static void make_two(world *w, deft_tensor *a[N_SIDES], float first)
{
    float data[12];
    for (int i = 0; i < 12; i++) data[i] = first + (float)i / 4;
    for (int i = 0; i < N_SIDES; i++)
        a[i] = deft_keep(deft_from(w->side[i].cx, DEFT_SHAPE(3, 4), DEFT_F32, data, sizeof data));
}

static void check_addresses(void)
{
    world w;
    enum { KEPT = 8, PLACES = 10 };
    deft_tensor *at[PLACES][N_SIDES];
    (void)snprintf(where, sizeof where, "addresses");
    if (!open_world(&w, DEFT_REPLAY_GRAPHS, STANDIN_RANDOM)) fault("no world", "");
    for (int i = 0; i < PLACES; i++) make_two(&w, at[i], (float)i);
    alone(&w, 7, at[0], 1, "plainly");
    alone(&w, 7, at[0], 2, "captured");
    alone(&w, 7, at[0], 2, "replayed");
    for (int i = 1; i < KEPT; i++) alone(&w, 7, at[i], 2 + i, "elsewhere: captured");
    for (int i = 0; i < KEPT; i++) alone(&w, 7, at[i], 1 + KEPT, "elsewhere: replayed");
    alone(&w, 7, at[KEPT], 2 + KEPT, "one too many: plainly");
    alone(&w, 7, at[KEPT + 1], 3 + KEPT, "another: plainly");
    alone(&w, 7, at[KEPT], 4 + KEPT, "not in a row: plainly");
    alone(&w, 7, at[KEPT - 1], 4 + KEPT, "replayed");
    alone(&w, 7, at[KEPT], 5 + KEPT, "not in a row");
    alone(&w, 7, at[KEPT], 6 + KEPT, "twice in a row: captured");
    alone(&w, 7, at[KEPT], 6 + KEPT, "replayed");
    alone(&w, 7, at[1], 6 + KEPT, "replayed");
    alone(&w, 7, at[0], 7 + KEPT, "the oldest has gone");
    alone(&w, 7, at[2], 7 + KEPT, "replayed");
    alone(&w, 8, at[2], 8 + KEPT, "another key, plainly");
    w.side[0].job.by = w.side[1].job.by = 3;
    alone(&w, 8, at[2], 9 + KEPT, "another key, captured");
    alone(&w, 8, at[2], 9 + KEPT, "another key, replayed");
    w.side[0].job.by = w.side[1].job.by = 0;
    alone(&w, 7, at[2], 9 + KEPT, "the key before");
    for (int i = 0; i < 4; i++) alone(&w, 0, at[2], 10 + KEPT + i, "without a key");
    if (!shows(&w, "work my kernel, ")) fault("shown", "");
    (void)stats_of(&w);
    for (int i = 0; i < PLACES * N_SIDES; i++) deft_drop(&at[i / N_SIDES][i % N_SIDES]);
    close_world(&w);
}

/* What may not be captured goes in plainly, and is tried again. */
static void check_habit(habit is, const char *name, const char *sentence, bool misuses)
{
    world w;
    deft_tensor *a[N_SIDES];
    (void)snprintf(where, sizeof where, "%s", name);
    if (!open_world(&w, DEFT_REPLAY_GRAPHS, STANDIN_RANDOM)) fault("no world", "");
    w.side[0].job.is = is;
    make_two(&w, a, 1);
    alone(&w, 7, a, 1, "plainly");
    alone(&w, 7, a, 3, "captured in vain, then plainly");
    if (!strstr(w.log, "why: my kernel is not captured: ") || !strstr(w.log, sentence))
        fault("why is not told", w.log);
    if (!shows(&w, "the latest graph that failed: ")) fault("shown", "");
    alone(&w, 7, a, 4, "not tried at once");
    if ((in.n_misuse() > 0) != misuses) fault("misuse", in.misuse());
    in.forgive();
    w.side[0].job.is = GOOD;
    alone(&w, 7, a, 5, "captured");
    alone(&w, 7, a, 5, "replayed");
    (void)stats_of(&w);
    for (int i = 0; i < N_SIDES; i++) deft_drop(&a[i]);
    close_world(&w);
}

static void check_failing_function(void)
{
    world w;
    (void)snprintf(where, sizeof where, "a function that fails");
    if (!open_world(&w, DEFT_REPLAY_GRAPHS, STANDIN_RANDOM)) fault("no world", "");
    for (int i = 0; i < 3; i++) {
        const int n = w.side[0].job.n_calls;
        w.side[0].job.is = FAILS;
        w.side[0].job.code = i == 1 ? DEFT_E_MEMORY : DEFT_E_RANGE;
        const deft_status st = step(&w.side[0], 2 * i, 9, false);
        if (st != w.side[0].job.code ||
            !strstr(deft_message(w.side[0].cx), "my kernel: its function failed"))
            fault("another failure", deft_message(w.side[0].cx));
        if (i == 1) check_calls(&w, n + 2, "captured in vain, then plainly, once");
        w.side[0].job.is = GOOD;
        steps(&w, 2 * i + 1, 1, one, 1, true);
        compare_all(&w);
    }
    (void)stats_of(&w);
    close_world(&w);
}

/* In step `at` the n-th call of the driver, or allocation, fails. false: there was none. */
static bool check_fault(bool by_memory, int at, long n)
{
    enum { OUT_OF_MEMORY = 2, INVALID = 1, STEPS = 6 };
    world w;
    bool has_come = false;
    (void)snprintf(where, sizeof where, "%s %ld of step %d fails",
                   by_memory ? "allocation" : "driver call", n, at);
    if (!open_world(&w, DEFT_REPLAY_GRAPHS, STANDIN_RANDOM)) {
        fault("no world", "");
        return false;
    }
    side *const s = &w.side[0];
    for (int i = 0; i < STEPS; i++) {
        const size_t failed = fail_mem_count(w.mem).failed;
        if (i == at && by_memory) fail_mem_at(w.mem, (size_t)n, false);
        if (i == at && !by_memory) in.fail(NULL, n, n % 2 ? OUT_OF_MEMORY : INVALID);
        const deft_status st = step(s, i, 9, false);
        fail_mem_at(w.mem, 0, false);
        has_come |= i == at &&
                    (by_memory ? fail_mem_count(w.mem).failed > failed : in.fails_waiting() == 0);
        while (in.fails_waiting() > 0) (void)cu.stream_wait(NULL);
        if (st != DEFT_OK && i != at) fault("a step", deft_message(s->cx));
        if (st != DEFT_OK && st != DEFT_E_BACKEND && st != DEFT_E_MEMORY)
            fault("another failure", deft_message(s->cx));
        if (st != DEFT_OK && !has_come) fault("a failure from nowhere", deft_message(s->cx));
        if (st == DEFT_OK) (void)step(&w.side[1], i, 9, false);
        if (i >= at) compare_all(&w);
    }
    close_world(&w);
    return has_come;
}

int main(int argc, char **argv)
{
    if (argc < 3 || !try_open(argv[1], argv[2])) return 2;
    const bool quick = argc > 3 && strcmp(argv[3], "--quick") == 0;
    check_steady(STANDIN_RANDOM);
    check_steady(STANDIN_LATE);
    check_without_graphs();
    check_changing(quick ? 60 : 300);
    check_addresses();
    check_habit(TAKES_MEMORY, "memory while captured", "its function failed", true);
    check_habit(WAITS, "a wait while captured", "cuStreamEndCapture of my kernel", true);
    check_habit(FAILS_ONCE_CAPTURED, "a failure while captured", "its function failed", false);
    check_failing_function();
    const long step = quick ? (long)test_size(3, 9) : 1;
    for (int by_memory = 0; by_memory < 2; by_memory++) {
        long all = 0;
        for (int at = 0; at < 5; at++)
            for (long k = 1; check_fault(by_memory != 0, at, k); k += by_memory ? step : 1) all++;
        printf("%ld %s failed\n", all, by_memory ? "allocations" : "driver calls");
    }
    printf("%ld faults\n", n_faults);
    return n_faults == 0 ? 0 : 1;
}
