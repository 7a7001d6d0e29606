/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs that go by more general entries while theirs are compiled beside them: what may stand for
 * what, what happens on the stand-in GPU when a plan's shapes and alignments change, and when that
 * compiling fails; and how wants are cut into programs.
 *
 *   test_later DRIVER NVRTC CUBLASLT
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jit_cuda/exec/run_layout.h"
#include "trial.h"

enum { N = DF_CUDA_NARROW, W = DF_CUDA_WIDE, L = DF_CUDA_LONG, M = DF_CUDA_MANY };

static long (*n_compiled)(void);
static long n_told;

static void expect(bool holds, const char *where, const char *what)
{
    if (!holds) trial_fault(where, "does not hold", what);
}
#define EXPECT(where, x) expect(x, where, #x)

/* ---- what may stand for what ---- */

static const struct {
    uint8_t facts, by_pass, by, want_pass, want;
    bool may, fast_may;
} pairs[] = {
    { N | W, DF_CUDA_MAIN, N | W, DF_CUDA_MAIN, N | W, true, true },
    { N | W, DF_CUDA_MAIN, N, DF_CUDA_MAIN, N | W, true, false },
    { N | W, DF_CUDA_MAIN, W, DF_CUDA_MAIN, N | W, true, false },
    { N | W, DF_CUDA_MAIN, 0, DF_CUDA_MAIN, N | W, true, false },
    { N, DF_CUDA_MAIN, N | W, DF_CUDA_MAIN, N, false, false },
    { W, DF_CUDA_MAIN, N | W, DF_CUDA_MAIN, W, false, false },
    { 0, DF_CUDA_MAIN, N, DF_CUDA_MAIN, 0, false, false },
    /* a row that one warp may take, and one that it may not */
    { N, DF_CUDA_MAIN, N, DF_CUDA_MAIN, N | L, true, false },
    { N, DF_CUDA_MAIN, N | L, DF_CUDA_MAIN, N, true, false },
    { N | L, DF_CUDA_MAIN, N, DF_CUDA_MAIN, N | L, false, false },
    { N | L, DF_CUDA_MAIN, L, DF_CUDA_MAIN, N | L, true, false },
    /* a table has one segment, too */
    { N, DF_CUDA_MAIN, N | M, DF_CUDA_MAIN, N, true, false },
    { N, DF_CUDA_MAIN, N, DF_CUDA_MAIN, N | M, false, false },
    /* in two launches */
    { N | W, DF_CUDA_MAIN, N, DF_CUDA_PART, N | W, true, false },
    { N | W, DF_CUDA_MAIN, N, DF_CUDA_FIN, N, true, false },
    { N | W | L, DF_CUDA_MAIN, N, DF_CUDA_PART, N | W, false, false },
    { N | W | L, DF_CUDA_MAIN, N | L, DF_CUDA_FIN, N, true, false },
    { N | W | L, DF_CUDA_PART, N, DF_CUDA_PART, N | W, true, false },
    { N | W, DF_CUDA_PART, N, DF_CUDA_MAIN, N, false, false },
    { N | W, DF_CUDA_PART, N, DF_CUDA_FIN, N, false, false },
};

static void check_pairs(void)
{
    for (size_t i = 0; i < DF_LEN(pairs); i++) {
        char where[32];
        df_kernel k = { .mode = DF_MODE_ROW, .flags = DF_KERNEL_SPLIT };
        const df_cuda_entry by = { pairs[i].by_pass, pairs[i].by },
                            want = { pairs[i].want_pass, pairs[i].want };
        (void)snprintf(where, sizeof where, "pair %zu", i);
        EXPECT(where, df_cuda_may_substitute(&k, pairs[i].facts, by, want) == pairs[i].may);
        k.flags |= DF_KERNEL_FAST;
        EXPECT(where, df_cuda_may_substitute(&k, pairs[i].facts, by, want) == pairs[i].fast_may);
    }
}

/* ---- cutting ---- */

enum { N_KERNELS = 40, MOST_WANTS = 2 * N_KERNELS };

typedef struct wants {
    df_kernel kernel[N_KERNELS];
    df_cuda_want want[MOST_WANTS], *at[MOST_WANTS];
    df_cuda_piece piece[MOST_WANTS + 16];
    uint32_t n, n_pieces;
} wants;

/* Kernels of n_ins instructions and more, every third with two entries, the last third FAST. */
static void make_wants(wants *w, uint32_t n_kernels, uint32_t n_ins)
{
    *w = (wants){ 0 };
    for (uint32_t i = 0; i < n_kernels; i++) {
        df_kernel *const k = &w->kernel[i];
        k->n_stages = 1;
        k->n_ins = n_ins + i * 7 % 5 * n_ins;
        k->flags = i >= n_kernels - n_kernels / 3 ? DF_KERNEL_FAST : 0;
        for (uint8_t j = 0; j < (i % 3 == 0 ? 2 : 1); j++)
            w->want[w->n++] = (df_cuda_want){ .kernel = k, .entry = { DF_CUDA_MAIN, j } };
    }
    for (uint32_t i = 0; i < w->n; i++) w->at[i] = &w->want[i];
}

/* All wants in pieces, kernels whole, of one kind. */
static void check_pieces(const wants *w, const char *where)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < w->n_pieces; i++) {
        const df_cuda_piece *const p = &w->piece[i];
        EXPECT(where, p->first == next && p->n > 0);
        next += p->n;
        for (uint32_t j = p->first + 1; j < next; j++)
            EXPECT(where, w->at[j]->kernel->flags == w->at[j - 1]->kernel->flags);
    }
    EXPECT(where, next == w->n);
    for (uint32_t i = 0; i < w->n; i++) {
        const df_kernel *const k = w->at[i]->kernel;
        if ((k - w->kernel) % 3 != 0) continue;
        EXPECT(where,
               (i > 0 && w->at[i - 1]->kernel == k) || (i + 1 < w->n && w->at[i + 1]->kernel == k));
    }
}

static double cost_of_pieces(const wants *w, uint32_t flags, double *most)
{
    double sum = *most = 0;
    for (uint32_t i = 0; i < w->n_pieces; i++) {
        if (w->at[w->piece[i].first]->kernel->flags != flags) continue;
        sum += w->piece[i].cost;
        if (w->piece[i].cost > *most) *most = w->piece[i].cost;
    }
    return sum;
}

static void check_cutting(void)
{
    wants w;
    double most;
    for (uint32_t n = 0; n <= N_KERNELS; n++)
        for (uint32_t n_threads = 1; n_threads <= 16; n_threads *= 2) {
            make_wants(&w, n, n_threads * n);
            w.piece[w.n].n = 1234;
            w.n_pieces = df_cuda_pieces(w.at, w.n, n_threads, w.piece);
            EXPECT("room for pieces", w.piece[w.n].n == 1234);
            check_pieces(&w, "pieces");
        }
    make_wants(&w, N_KERNELS, 8);
    w.n_pieces = df_cuda_pieces(w.at, w.n, 4, w.piece);
    EXPECT("threads", w.n_pieces == 8);
    double sum = cost_of_pieces(&w, 0, &most);
    EXPECT("threads", most < 1.1 * sum / 4);
    make_wants(&w, 4, 300);
    for (uint32_t i = 0; i < 4; i++) w.kernel[i].flags = 0;
    w.kernel[0].n_ins = w.kernel[1].n_ins = 100;
    w.kernel[2].n_ins = 200;
    w.kernel[3].n_ins = 300;
    w.n_pieces = df_cuda_pieces(w.at, w.n, 2, w.piece);
    sum = cost_of_pieces(&w, 0, &most);
    EXPECT("the costliest first", w.n_pieces == 2 && sum > 1.6 * most);
    make_wants(&w, N_KERNELS, 2000);
    w.n_pieces = df_cuda_pieces(w.at, w.n, 1, w.piece);
    EXPECT("long programs", w.n_pieces > 20);
    make_wants(&w, 2, 1);
    w.n_pieces = df_cuda_pieces(w.at, w.n, 4, w.piece);
    EXPECT("short programs", w.n_pieces == 1);
    make_wants(&w, 1, 100000);
    w.n_pieces = df_cuda_pieces(w.at, w.n, 4, w.piece);
    EXPECT("one kernel", w.n_pieces == 1);
}

/* ---- runs ---- */

typedef struct turn {
    const char *shape;    /* of input 0 */
    bool is_shifted;      /* inputs at multiples of 8 bytes alone */
    uint8_t pass, stands; /* the entry it goes by at first; with `waits`: the one it wants */
    bool waits;
    uint8_t want_pass, wants;
} turn;

static const struct {
    const char *name, *text; /* S: the shape; O: that of the result */
    bool is_fast;
    turn turns[3];
} all_cases[] = {
    { "unaligned, then aligned",
      "%0 = input f32[S]\n%1 = exp f32[S] %0\noutput %1\n",
      false,
      { { "40", true, DF_CUDA_MAIN, N, true, DF_CUDA_MAIN, N },
        { "40", false, DF_CUDA_MAIN, N, false, DF_CUDA_MAIN, N | W } } },
    { "aligned, then unaligned",
      "%0 = input f32[S]\n%1 = exp f32[S] %0\noutput %1\n",
      false,
      { { "40", false, DF_CUDA_MAIN, N | W, true, DF_CUDA_MAIN, N | W },
        { "40", true, DF_CUDA_MAIN, N, true, DF_CUDA_MAIN, N } } },
    { "fast",
      "%0 = input f32[S]\n%1 = exp f32[S] %0\noutput %1\n",
      true,
      { { "40", true, DF_CUDA_MAIN, N, true, DF_CUDA_MAIN, N },
        { "40", false, DF_CUDA_MAIN, N | W, true, DF_CUDA_MAIN, N | W } } },
    { "many rows, then few",
      "%0 = input f32[S]\n%1 = exp f32[S] %0\n%2 = sum f32[O] %1 axes=[1]\noutput %2\n",
      false,
      { { "70,5000", false, DF_CUDA_MAIN, N | W, true, DF_CUDA_MAIN, N | W },
        { "7,5000", false, DF_CUDA_MAIN, N | W, false, DF_CUDA_MAIN, N | W | L } } },
    { "the nearest of two",
      "%0 = input f32[S]\n%1 = exp f32[S] %0\n%2 = sum f32[O] %1 axes=[1]\noutput %2\n",
      false,
      { { "70,5001", false, DF_CUDA_MAIN, N, true, DF_CUDA_MAIN, N },
        { "70,5000", false, DF_CUDA_MAIN, N, false, DF_CUDA_MAIN, N | W },
        { "7,5000", false, DF_CUDA_MAIN, N | W, false, DF_CUDA_MAIN, N | W | L } } },
    { "rows too long for a warp",
      "%0 = input f32[S]\n%1 = exp f32[S] %0\n%2 = sum f32[O] %1 axes=[1]\noutput %2\n",
      false,
      { { "70,500", false, DF_CUDA_MAIN, N | W, true, DF_CUDA_MAIN, N | W },
        { "2,66000", false, DF_CUDA_PART, N | W, true, DF_CUDA_PART, N | W } } },
    { "one row in two launches",
      "%0 = input f32[S]\n%1 = exp f32[S] %0\n%2 = sum f32[O] %1 axes=[1]\noutput %2\n",
      false,
      { { "5,5000", false, DF_CUDA_MAIN, N | W | L, true, DF_CUDA_MAIN, N | W | L },
        { "2,66000", false, DF_CUDA_MAIN, N | W | L, false, DF_CUDA_PART, N | W } } },
};
enum { N_CASES = DF_LEN(all_cases) };

static void write_text(size_t c, const turn *t, char *out, size_t cap)
{
    size_t n = 0;
    for (const char *p = all_cases[c].text; *p && n + 24 < cap; p++) {
        if (*p == 'S')
            n += (size_t)snprintf(out + n, cap - n, "%s", t->shape);
        else if (*p == 'O')
            n += (size_t)snprintf(out + n, cap - n, "%.*s", (int)strcspn(t->shape, ","), t->shape);
        else
            out[n++] = *p;
    }
    out[n] = '\0';
}

static bool open_turn(program *p, df_device *cpu, size_t c, uint32_t i)
{
    char text[512];
    *p = (program){ .where = all_cases[c].name, .is_fast = all_cases[c].is_fast };
    df_arena_init(&p->arena, &df_mem_system);
    write_text(c, &all_cases[c].turns[i], text, sizeof text);
    if (df_trace_parse(&p->d, text, strlen(text), &p->arena, &p->whole) == DEFT_OK) {
        if (p->is_fast) p->whole->flags |= DF_TRACE_FAST;
        if (program_open(p, cpu)) return true;
    }
    trial_fault(p->where, "no program", p->d.text);
    return false;
}

static void run_turn(program *p, bench *b, const df_plan *plan, const turn *t)
{
    if (t->is_shifted)
        bench_run_shifted(p, b, plan);
    else
        bench_run(p, b, plan, false);
}

/* The frame of the latest run of these shapes. */
static const df_cuda_run_layout *frame_of(program *p, const df_plan *plan)
{
    df_cuda_plan *const own = plan->attached;
    const int64_t *const slots = program_slots(p, plan, p->t);
    for (int i = 0; i < DF_CUDA_FRAMES; i++) {
        const df_cuda_run_layout *const f = atomic_load(&own->frame[i]);
        if (f && f->is_laid_out && memcmp(f->slots, slots, plan->n_slots * sizeof *slots) == 0)
            return f;
    }
    return NULL;
}

static void check_frame(program *p, const df_plan *plan, uint8_t pass, uint8_t flags,
                        bool is_makeshift)
{
    const df_cuda_run_layout *const f = frame_of(p, plan);
    char text[96];
    if (!f || f->steps.n == 0) {
        trial_fault(p->where, "no frame", "");
        return;
    }
    const df_cuda_entry e = f->steps.at[0].entry;
    (void)snprintf(text, sizeof text, "pass %u flags %u%s, not pass %u flags %u%s", e.pass, e.flags,
                   f->is_makeshift ? " for a while" : "", pass, flags,
                   is_makeshift ? " for a while" : "");
    if (e.pass != pass || e.flags != flags || f->is_makeshift != is_makeshift)
        trial_fault(p->where, "another entry", text);
}

static void settle(bench *b)
{
    b->dev->far->settle(b->dev);
}

static void hear(void *user, const char *topic, const char *line)
{
    (void)user;
    n_told += strcmp(topic, "why") == 0 && strstr(line, "compiled beside runs") != NULL;
}

static void open_bench(bench *b, const df_gpu_request *wish, const df_log *log)
{
    df_diag d = { 0 };
    *b = (bench){ .mem = fail_mem_create() };
    if (df_cuda_create(&d, fail_mem_get(b->mem), log, wish, &b->dev) != DEFT_OK ||
        b->dev->far->queue_create(b->dev, &d, NULL, &b->q) != DEFT_OK)
        trial_fault("device", "not opened", d.text);
}

static void close_bench(bench *b)
{
    bench_close(b);
    const fail_mem_counts c = fail_mem_count(b->mem);
    EXPECT("at the end", c.live_blocks == 0 && c.faults == 0);
    fail_mem_destroy(&b->mem);
    trial_misuse("at the end");
}

static const df_gpu_request beside = { .size = sizeof beside },
                            waiting = { .size = sizeof waiting, .waits = true };

/* All turns by one plan; then, what is compiled beside them having come, once more. */
static void check_case(df_device *cpu, size_t c, const df_gpu_request *wish)
{
    bench b;
    df_diag d = { 0 };
    df_plan *plan = NULL;
    open_bench(&b, wish, NULL);
    for (uint32_t i = 0; i < 3 && all_cases[c].turns[i].shape; i++) {
        const turn *const t = &all_cases[c].turns[i];
        const bool stands = !t->waits && !wish->waits;
        program p;
        if (open_turn(&p, cpu, c, i)) {
            if (!plan) plan = bench_plan(&p, &b, &d);
            run_turn(&p, &b, plan, t);
            check_frame(&p, plan, stands ? t->pass : t->want_pass, stands ? t->stands : t->wants,
                        stands);
            settle(&b);
            const long before = n_compiled();
            run_turn(&p, &b, plan, t);
            run_turn(&p, &b, plan, t);
            check_frame(&p, plan, t->want_pass, t->wants, false);
            EXPECT(p.where, n_compiled() == before);
            trial_counts.cases++;
        }
        program_finish(&p);
    }
    bench_drop(&b, &plan);
    close_bench(&b);
}

/* A plan of the same kernels finds what another has had compiled, and waits for nothing. */
static void check_other_plan(df_device *cpu)
{
    bench b;
    df_diag d = { 0 };
    program p;
    open_bench(&b, &beside, NULL);
    if (open_turn(&p, cpu, 0, 0)) {
        df_plan *plan = bench_plan(&p, &b, &d), *other = bench_plan(&p, &b, &d);
        bench_run_shifted(&p, &b, plan);
        const long before = n_compiled();
        bench_run(&p, &b, other, false);
        check_frame(&p, other, DF_CUDA_MAIN, N, true);
        settle(&b);
        EXPECT("another plan", n_compiled() == before + 1);
        bench_run(&p, &b, plan, false);
        check_frame(&p, plan, DF_CUDA_MAIN, N | W, false);
        bench_run(&p, &b, other, false);
        check_frame(&p, other, DF_CUDA_MAIN, N | W, false);
        EXPECT("another plan", n_compiled() == before + 1);
        bench_drop(&b, &plan);
        bench_drop(&b, &other);
    }
    program_finish(&p);
    close_bench(&b);
}

/* What cannot be compiled beside runs is tried no more, and the first is told. */
static void check_refused(df_device *cpu)
{
    static const size_t which[] = { 0, 3 };
    bench b;
    df_diag d = { 0 };
    df_log log;
    df_log_init(&log, "why", hear, NULL);
    open_bench(&b, &beside, &log);
    n_told = 0;
    for (size_t i = 0; i < DF_LEN(which); i++) {
        const turn *const t = all_cases[which[i]].turns;
        df_plan *plan = NULL;
        program p, next;
        const bool is_open = open_turn(&p, cpu, which[i], 0),
                   goes_on = open_turn(&next, cpu, which[i], 1);
        if (is_open && goes_on && (plan = bench_plan(&p, &b, &d))) {
            run_turn(&p, &b, plan, &t[0]);
            nvrtc_fail(1, 6);
            run_turn(&next, &b, plan, &t[1]);
            settle(&b);
            const long before = n_compiled();
            for (int again = 0; again < 3; again++) run_turn(&next, &b, plan, &t[1]);
            check_frame(&next, plan, t[1].pass, t[1].stands, false);
            settle(&b);
            EXPECT("refused", n_compiled() == before && n_told == 1);
        }
        bench_drop(&b, &plan);
        program_finish(&next);
        program_finish(&p);
    }
    close_bench(&b);
}

/* The device goes while something is still to be compiled. */
static void check_ended(df_device *cpu)
{
    for (int i = 0; i < 3; i++) {
        bench b;
        df_diag d = { 0 };
        program p;
        open_bench(&b, &beside, NULL);
        if (open_turn(&p, cpu, N_CASES - 1, 0)) {
            program next;
            df_plan *plan = bench_plan(&p, &b, &d);
            bench_run(&p, &b, plan, false);
            if (open_turn(&next, cpu, N_CASES - 1, 1)) bench_run(&next, &b, plan, false);
            program_finish(&next);
            bench_drop(&b, &plan);
        }
        program_finish(&p);
        close_bench(&b);
    }
}

/* A child has no thread to ask, and waits for none. */
static void check_fork(df_device *cpu)
{
    bench b;
    df_diag d = { 0 };
    program p;
    open_bench(&b, &beside, NULL);
    if (open_turn(&p, cpu, 0, 0)) {
        df_plan *plan = bench_plan(&p, &b, &d);
        df_cuda_background *later = df_cuda_device_of(b.dev)->later;
        bench_run_shifted(&p, &b, plan);
        bench_run(&p, &b, plan, false);
        settle(&b);
        (void)fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            (void)alarm(20);
            const df_cuda_entry e = { DF_CUDA_MAIN, 0 };
            const bool nobody =
                df_cuda_background_ask(later, &plan->kernels[0], e, NULL) == DF_CUDA_NOBODY;
            df_cuda_background_settle(later);
            df_cuda_background_destroy(&later);
            _exit(nobody ? 0 : 1);
        }
        int status = -1;
        EXPECT("a fork", child > 0 && waitpid(child, &status, 0) == child && status == 0);
        bench_drop(&b, &plan);
    }
    program_finish(&p);
    close_bench(&b);
}

/* ---- failures ---- */

typedef enum failing { BY_DRIVER, BY_MEMORY } failing;

/* The entry that a turn wants is there, or it could not be made: nobody forgets about it. */
static void check_not_left(program *p, bench *b, const df_plan *plan, const turn *t)
{
    const df_cuda_entry e = { t->want_pass, t->wants };
    const df_cuda_run_layout *const f = frame_of(p, plan);
    if (!f || f->steps.at[0].entry.flags == t->wants) return;
    EXPECT(p->where, df_cuda_background_ask(df_cuda_device_of(b->dev)->later, &plan->kernels[0], e,
                                            NULL) == DF_CUDA_NEVER);
}

/* The n-th call fails in a run that something stands in for, or beside it; then all goes well.
 * false: it was not reached. */
static bool fail_one(df_device *cpu, size_t c, failing by, long n)
{
    bench b;
    df_diag d = { 0 };
    program p, next;
    df_plan *plan = NULL;
    trial x;
    bool came = false;
    open_bench(&b, &beside, NULL);
    const bool is_open = open_turn(&p, cpu, c, 0), goes_on = open_turn(&next, cpu, c, 1);
    if (is_open && goes_on && (plan = bench_plan(&p, &b, &d))) {
        const turn *const t = &all_cases[c].turns[1];
        run_turn(&p, &b, plan, &all_cases[c].turns[0]);
        trial_open(&x, &next, &b);
        if (trial_put(&x, &d) != DEFT_OK) trial_fault(next.where, "inputs", d.text);
        if (by == BY_DRIVER) gpu.fail(NULL, n, 2);
        if (by == BY_MEMORY) fail_mem_at(b.mem, (size_t)n, false);
        const deft_status st = trial_run(&x, &d, plan, false, NULL);
        settle(&b);
        came = by == BY_DRIVER ? gpu.fails_waiting() == 0 : fail_mem_count(b.mem).failed > 0;
        fail_mem_at(b.mem, 0, false);
        while (by == BY_DRIVER && gpu.fails_waiting() > 0) (void)b.dev->far->wait(b.dev, NULL, b.q);
        if (st != DEFT_OK && !came) trial_fault(next.where, "failed by itself", d.text);
        if (st != DEFT_OK) trial_untouched(&x);
        trial_close(&x);
        run_turn(&next, &b, plan, t);
        settle(&b);
        run_turn(&next, &b, plan, t);
        if (c == 0) check_not_left(&next, &b, plan, t);
    }
    bench_drop(&b, &plan);
    program_finish(&next);
    program_finish(&p);
    close_bench(&b);
    return came;
}

static void check_failures(df_device *cpu)
{
    static const size_t which[] = { 0, N_CASES - 1 };
    for (size_t i = 0; i < DF_LEN(which); i++)
        for (failing by = BY_DRIVER; by <= BY_MEMORY; by++) {
            long n = 1;
            while (n < 500 && fail_one(cpu, which[i], by, n)) n++;
            printf("%s: %ld calls of %s\n", all_cases[which[i]].name, n - 1,
                   by == BY_DRIVER ? "the driver" : "memory");
            EXPECT("failures", n > 5 && n < 500);
        }
}

/* ---- all ---- */

int main(int argc, char **argv)
{
    df_device *cpu = NULL;
    if (argc < 4 || !trial_begin(argv, &cpu)) return 2;
    void *const nvrtc = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    void *const f = nvrtc ? dlsym(nvrtc, "standin_nvrtc_count") : NULL;
    if (!f) return 2;
    memcpy(&n_compiled, &f, sizeof f);
    check_pairs();
    check_cutting();
    for (size_t c = 0; c < N_CASES; c++) {
        check_case(cpu, c, &beside);
        check_case(cpu, c, &waiting);
    }
    check_other_plan(cpu);
    check_refused(cpu);
    check_ended(cpu);
    check_fork(cpu);
    check_failures(cpu);
    return trial_end(&cpu) ? 0 : 1;
}
