/* SPDX-License-Identifier: Apache-2.0
 *
 * What do steps of whole networks cost, in f32, on one batch again and again? Training steps are a
 * forward pass, gradients and AdamW:
 *
 *   mlp       784-1024-1024-10, relu, 64 rows; mlp1 and mlp8 of 1 and 8 rows, on a GPU alone
 *   cnn       two 3x3 convolutions of 32 and 64 channels, each with relu and a 2x2 pool, and a
 *             layer of all that is left; 64 images of 28x28
 *   resnet18  ResNet-18 with its batch normalization; 4 images of 224x224
 *   lstm      10,000 words, two LSTM layers, 512 wide; 16 windows of 32
 *   gpt       examples/transformer.h with 4 layers, 256 wide, 1024 tokens; 16 windows of 64
 *   tiny      8 words, each 16 numbers, relu, 10 classes; not without --case: it shows that all
 *             works
 *   gpt2      the same as GPT-2 has it, 124,439,808 parameters; 4 windows of 64
 *
 * Others learn nothing:
 *
 *   resnet18-infer1, resnet18-infer8   scores of 1 and of 8 images
 *   gpt-decode, gpt2-decode            one token after the other, each read by the program; keys
 *                                      and values of earlier tokens stay in memory
 *
 * Every side is a process of its own (train_step.c, peers/train.py), so that memory can be told
 * apart: most resident bytes from before the model was built, less what there was then. By then
 * each side has loaded its libraries, and deft its compiler. All take turns on the same cores. With
 * --peers PyTorch is one of them, eager and compiled, with the same parameters and batch. ONNX
 * Runtime infers beside them. Else steps are compared with how long their products would take at
 * the speed of one of 1024 x 1024 x 1024.
 *
 * With DEFT_DEVICE=cuda:0 all of it is on that GPU: memory is then what lies there. Steps are also
 * replayed as CUDA graphs (docs/graphs.md), PyTorch's too (mode="reduce-overhead"), and each side
 * has a row of how long the GPU is idle in a step (train_gaps.c).
 *
 * --seconds=N: what would not end in that time is left out, and said to be; PyTorch compiles for a
 * minute or so.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "peer.h"
#include "train_gaps.h"
#include "train_models.h"

enum {
    ROUNDS = 11,
    ROUNDS_QUICK = 3,
    STEPS_TO_LOSS = 3,
    PAUSE_US = 20000, /* before a turn: the last one's idle threads stop spinning */
};
static const double loss_bound = 1e-3, mib = 1 << 20;
static const double compile_seconds = 60; /* until it is known */
static const double graphs_idle = 0.1;    /* of a step, at most */
static const double peak_goal = 0.7;      /* of the smallest peer's memory */
static const double decode_goal = 1.5;    /* times the tokens of eager PyTorch */

typedef struct model {
    const char *name;
    train_work work;
    double gflop;                            /* of the products of a step: a multiply-add is 2 */
    int steps, warm_up;                      /* of a turn; before the first */
    int launches;                            /* at most */
    double slower;                           /* than its products alone, at most */
    enum { ALWAYS, ON_A_GPU, BY_NAME } when; /* BY_NAME: only with --case, shows that all works */
} model;

#define RESNET18_FLOP 3.63e9 /* of one image's scores */

static const model models[] = {
    { "mlp", TRAINS, 6e-9 * 64 * (784 * 1024 + 1024 * 1024 + 1024 * 10), 20, 40, 16, 4, ALWAYS },
    { "mlp1", TRAINS, 6e-9 * 1 * (784 * 1024 + 1024 * 1024 + 1024 * 10), 20, 40, 16, 64, ON_A_GPU },
    { "mlp8", TRAINS, 6e-9 * 8 * (784 * 1024 + 1024 * 1024 + 1024 * 10), 20, 40, 16, 16, ON_A_GPU },
    { "gpt", TRAINS, 6e-9 * 1024 * (4 * (12. * 256 * 256 + 2 * 64 * 256) + 1024. * 256), 5, 20, 120,
      3, ALWAYS },
    { "tiny", TRAINS, 6e-9 * 8 * (16 * 16 + 16 * 10), 1, 2, 16, 1e6, BY_NAME },
    { "gpt2", TRAINS, 6e-9 * 256 * (12 * (12. * 768 * 768 + 2 * 64 * 768) + 50257. * 768), 1, 3,
      300, 2, ALWAYS },
    { "cnn", TRAINS, 6e-9 * 64 * (784. * 9 * 32 + 196. * 288 * 64 + 3136 * 10), 5, 20, 40, 8,
      ALWAYS },
    { "resnet18", TRAINS, 3e-9 * 4 * RESNET18_FLOP, 1, 3, 150, 3, ALWAYS },
    { "resnet18-infer1", INFERS, 1e-9 * RESNET18_FLOP, 10, 20, 24, 3, ALWAYS },
    { "resnet18-infer8", INFERS, 8e-9 * RESNET18_FLOP, 2, 4, 24, 3, ALWAYS },
    { "lstm", TRAINS, 6e-9 * 512 * (2 * 8. * 512 * 512 + 512 * 10000.), 1, 3, 400, 3, ALWAYS },
    { "gpt-decode", DECODES, 0, 40, 100, 60, 0, ALWAYS },
    { "gpt2-decode", DECODES, 0, 4, 140, 150, 0, ALWAYS },
};

enum { FAST, STRICT, GRAPHS, EAGER, COMPILED, REDUCED, ONNX, N_SIDES };

typedef struct side {
    peer p;
    bool is_on;
    char label[64];
    double loss, peak, seconds[ROUNDS]; /* of a step */
    gap gap;                            /* on a GPU */
} side;

/* The GPU that all is run on, NULL: none. */
static const char *gpu(void)
{
    const char *const device = getenv("DEFT_DEVICE");
    return device && strcmp(device, "cpu") != 0 ? device : NULL;
}

static bool has_side(const bench *b, const model *m, int i)
{
    if (i > GRAPHS && !b->peers) return false;
    if (i == ONNX) return m->work == INFERS && !gpu();
    return (i != GRAPHS && i != REDUCED) || gpu();
}

static void open_ours(side *s, const char *numerics, const char *threads)
{
    char program[] = BENCH_BUILD_ROOT "/bench/bench-train", t[32], n[32];
    snprintf(t, sizeof t, "%s", threads);
    snprintf(n, sizeof n, "%s", numerics);
    *s = (side){ .is_on = true };
    peer_open(&s->p, numerics, (char *const[]){ program, t, n, NULL });
    snprintf(s->label, sizeof s->label, "%s", numerics);
}

/* Installs the library where need be: minutes. */
static void open_peer(const bench *b, side *s, const char *name, const char *threads)
{
    char peer_option[64], threads_option[64], device_option[64], venv[512];
    char python[] = "python3", script[] = BENCH_SOURCE_ROOT "/bench/peers/train.py";
    bench_environment_option(b, venv, sizeof venv);
    snprintf(peer_option, sizeof peer_option, "--peer=%s", name);
    snprintf(threads_option, sizeof threads_option, "--threads=%s", threads);
    snprintf(device_option, sizeof device_option, "--device=%s", gpu() ? gpu() : "cpu");
    *s = (side){ .is_on = true };
    peer_open(
        &s->p, name,
        (char *const[]){ python, script, venv, peer_option, threads_option, device_option, NULL });
    snprintf(s->label, sizeof s->label, *s->p.version ? "%s %s" : "%s", name, s->p.version);
}

/* ---- turns ---- */

static void begin(side *sides, const model *m, const char *file)
{
    for (int i = 0; i < N_SIDES; i++) {
        side *const s = &sides[i];
        if (!s->is_on) continue;
        if (i < EAGER)
            peer_asked(&s->p, NULL, "make %s %s", m->name,
                       sides[EAGER].is_on && i == FAST ? file : "-");
        else
            peer_asked(&s->p, NULL, "load %s %s", m->name, file);
    }
    /* All at once: PyTorch compiles. */
    for (int i = 0; i < N_SIDES; i++)
        if (sides[i].is_on) peer_tell(&sides[i].p, "loss %d", STEPS_TO_LOSS);
    for (int i = 0; i < N_SIDES; i++)
        if (sides[i].is_on) peer_answer(&sides[i].p, &sides[i].loss);
    for (int i = 0; i < N_SIDES; i++)
        if (sides[i].is_on) peer_asked(&sides[i].p, NULL, "time %d", m->warm_up);
}

static void turns(side *sides, const model *m, int rounds)
{
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < N_SIDES; i++) {
            double t = 0;
            if (!sides[i].is_on) continue;
            usleep(PAUSE_US);
            if (peer_asked(&sides[i].p, &t, "time %d", m->steps))
                sides[i].seconds[r] = t / m->steps;
        }
    for (int i = 0; i < N_SIDES; i++) {
        if (!sides[i].is_on) continue;
        peer_asked(&sides[i].p, &sides[i].peak, "peak 0");
        if (gpu()) sides[i].gap = gap_measure(&sides[i].p, rounds);
    }
}

/* ---- rows ---- */

static void row(bench *b, const model *m, const char *what, double value, const char *unit,
                const side *other, double its, bench_goal kind, double goal)
{
    char label[96];
    snprintf(label, sizeof label, "%s, %s", m->name, what);
    if (*other->p.why)
        bench_row_without(b, label, value, unit, other->label, other->p.why, goal);
    else
        bench_row(b, label, value, unit, other->label, its, kind, goal);
}

static const char *const work_names[] = {
    [TRAINS] = "step", [INFERS] = "call", [DECODES] = "text"
};

/* What a step may take of a peer's time. An Intel guest has another share than an AMD guest. */
static double time_goal(int which)
{
    char line[256];
    bool is_amd = false;
    if (gpu() || (which != COMPILED && which != REDUCED)) return 1;
    FILE *const f = fopen("/proc/cpuinfo", "r");
    while (f && !is_amd && fgets(line, sizeof line, f)) is_amd = strstr(line, "AuthenticAMD");
    if (f) fclose(f);
    return is_amd ? 0.6 : 0.75;
}

static void row_of_time(bench *b, const model *m, const side *ours, double ms, const side *other,
                        double its_ms, int which)
{
    char what[48];
    snprintf(what, sizeof what, "%s, %.32s", work_names[m->work], ours->label);
    if (m->work == DECODES)
        row(b, m, what, 1e3 / ms, "tokens/s", other, 1e3 / its_ms, BENCH_RATIO_AT_LEAST,
            which == EAGER ? decode_goal : 1);
    else
        row(b, m, what, ms, "ms", other, its_ms, BENCH_RATIO_AT_MOST, time_goal(which));
}

static void row_of_peak(bench *b, const model *m, const side *sides)
{
    const side *least = NULL;
    for (int i = EAGER; i < N_SIDES; i++)
        if (sides[i].is_on && !*sides[i].p.why && (!least || sides[i].peak < least->peak))
            least = &sides[i];
    if (least)
        row(b, m, "peak, fast", sides[FAST].peak / mib, "MiB", least, least->peak / mib,
            BENCH_RATIO_AT_MOST, peak_goal);
}

static void rows_beside(bench *b, const model *m, side *sides, int rounds)
{
    double ms[N_SIDES];
    for (int i = 0; i < N_SIDES; i++) ms[i] = bench_median(sides[i].seconds, (size_t)rounds) * 1e3;
    for (int i = EAGER; i < N_SIDES; i++) {
        const side *const s = &sides[i];
        if (!s->is_on) continue;
        const double apart = fabs(sides[FAST].loss - s->loss);
        row(b, m, "loss apart", apart, "", s, s->loss, BENCH_VALUE_AT_MOST, loss_bound);
        for (int j = FAST; j < EAGER; j++)
            if (sides[j].is_on) row_of_time(b, m, &sides[j], ms[j], s, ms[i], i);
    }
    row_of_peak(b, m, sides);
}

static void rows_alone(bench *b, const model *m, side *sides, int rounds, double gflops)
{
    char label[128];
    double launches = 0;
    for (int i = FAST; i < EAGER && m->work != DECODES; i++) {
        if (!sides[i].is_on) continue;
        const double ms = bench_median(sides[i].seconds, (size_t)rounds) * 1e3;
        snprintf(label, sizeof label, "%s, %s, %.32s", m->name, work_names[m->work],
                 sides[i].label);
        bench_row(b, label, ms, "ms", "its products, ms", m->gflop / gflops * 1e3,
                  BENCH_RATIO_AT_MOST, m->slower);
    }
    snprintf(label, sizeof label, "%s, launches", m->name);
    if (peer_asked(&sides[FAST].p, &launches, "launches 0"))
        bench_row(b, label, launches, "", "limit", m->launches, BENCH_VALUE_AT_MOST, m->launches);
    snprintf(label, sizeof label, "%s, host, graphs", m->name);
    if (sides[GRAPHS].is_on && !*sides[GRAPHS].gap.why && !*sides[FAST].gap.why)
        bench_row(b, label, sides[GRAPHS].gap.host_s * 1e6, "us", "launched one by one",
                  sides[FAST].gap.host_s * 1e6, BENCH_RATIO_AT_MOST, 1);
}

/* A row for each side, the peers' for comparison alone. */
static void rows_of_gaps(bench *b, const model *m, const side *sides)
{
    for (int i = 0; gpu() && i < N_SIDES; i++)
        if (sides[i].is_on && i != STRICT)
            gap_row(b, m->name, sides[i].label, &sides[i].gap, i == GRAPHS ? graphs_idle : 1);
}

/* ---- the speed of products ---- */

typedef struct square {
    deft_ctx *cx;
    deft_tensor *a;
} square;

static void multiply(void *user)
{
    const square *const s = user;
    const deft_scope scope = deft_scope_begin(s->cx);
    deft_tensor *c = deft_matmul(s->a, s->a);
    bench_must(s->cx, deft_eval(&c, 1), "eval");
    bench_must(s->cx, deft_wait(s->cx), "wait");
    bench_must(s->cx, deft_scope_end(scope), "scope_end");
}

static double products_gflops(deft_runtime *rt, int rounds)
{
    square s = { .cx = bench_ctx(rt, DEFT_FAST) };
    s.a = deft_full(s.cx, DEFT_SHAPE(1024, 1024), DEFT_F32, 1e-3);
    const double seconds = bench_one(multiply, &s, rounds, 1);
    deft_ctx_destroy(&s.cx);
    return 2e-9 * 1024 * 1024 * 1024 / seconds;
}

static void open_sides(side *sides, const bench *b, const model *m, bool peers, const char *threads)
{
    static const char *const names[] = { "fast",          "strict",        "graphs",     "torch",
                                         "torch-compile", "torch-reduced", "onnxruntime" };
    for (int i = 0; i < N_SIDES; i++) {
        sides[i] = (side){ 0 };
        if (!has_side(b, m, i) || (i >= EAGER && !peers)) continue;
        if (i < EAGER)
            open_ours(&sides[i], names[i], threads);
        else
            open_peer(b, &sides[i], names[i], threads);
    }
}

/* Whether another model's time is left, going by the longest so far. */
static bool has_time(const bench *b, const model *m, double longest, const char *of)
{
    const double left = b->until - bench_now();
    if (b->until == 0 || left > longest) return true;
    fprintf(stderr, "%s: %s left out: %.0f s may be needed, %.0f are left\n", m->name, of, longest,
            left > 0 ? left : 0);
    return false;
}

static void one_model(bench *b, const model *m, const char *threads, double gflops, bool peers)
{
    static side sides[N_SIDES];
    const int rounds = b->quick ? ROUNDS_QUICK : ROUNDS;
    const char *const file = BENCH_BUILD_ROOT "/bench-train.safetensors";
    open_sides(sides, b, m, peers, threads);
    begin(sides, m, file);
    turns(sides, m, rounds);
    for (int i = FAST; i < EAGER; i++)
        if (*sides[i].p.why)
            fprintf(stderr, "%s, %s: %s\n", m->name, sides[i].label, sides[i].p.why);
    if (sides[EAGER].is_on) rows_beside(b, m, sides, rounds);
    rows_alone(b, m, sides, rounds, gflops);
    rows_of_gaps(b, m, sides);
    for (int i = 0; i < N_SIDES; i++)
        if (sides[i].is_on) peer_close(&sides[i].p);
    remove(file);
}

static bool is_a_name(const char *text)
{
    for (size_t i = 0; text && i < sizeof models / sizeof *models; i++)
        if (!strcmp(models[i].name, text)) return true;
    return false;
}

/* --case=NAME of a model stands for it alone, other texts for all models that have it in their
 * names. */
static bool is_run(const bench *b, const model *m)
{
    const bool is_wanted = is_a_name(b->only) ? !strcmp(b->only, m->name) : bench_wants(b, m->name);
    if (m->when == BY_NAME) return is_wanted && is_a_name(b->only);
    return is_wanted && (m->when == ALWAYS || gpu());
}

void bench_train(bench *b)
{
    char threads[16];
    deft_runtime *rt = bench_runtime(0, DEFT_TIER_FULL, 0);
    void (*const before)(int) = signal(SIGPIPE, SIG_IGN); /* a peer's death is not ours */
    snprintf(threads, sizeof threads, "%u", deft_runtime_threads(rt));
    const double gflops = products_gflops(rt, b->quick ? ROUNDS_QUICK : 21);
    deft_runtime_destroy(&rt);
    double longest[2] = { 0, compile_seconds }; /* of a model alone; with peers */
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const model *const m = &models[i];
        if (!is_run(b, m) || !has_time(b, m, longest[0], "all of it")) continue;
        const bool peers = b->peers && has_time(b, m, longest[1], "PyTorch");
        const double start = bench_now();
        one_model(b, m, threads, gflops, peers);
        if (bench_now() - start > longest[peers]) longest[peers] = bench_now() - start;
    }
    signal(SIGPIPE, before);
}
