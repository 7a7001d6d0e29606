/* SPDX-License-Identifier: Apache-2.0
 *
 * deft-bench [--json] [--quick] [--case=TEXT] [--peers] [--seconds=N] [name...]: runs the named
 * benches, or all but those that need a GPU, NVRTC or much time; of kernels, variants, matmul and
 * train only the cases whose label has TEXT in it, of train the model TEXT alone where there is
 * such a model; with --peers the benches overhead and train also time the step of other libraries,
 * installed into the build folder, or taken from the environment DIR with --venv=DIR; train leaves
 * out what would not end in N seconds. The options of the benches peers and order are in table.c.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- reporting ---- */

static const char *const goal_text[] = {
    [BENCH_VALUE_AT_MOST] = "<=",
    [BENCH_VALUE_AT_LEAST] = ">=",
    [BENCH_RATIO_AT_MOST] = "ratio <=",
    [BENCH_RATIO_AT_LEAST] = "ratio >=",
};

static bool reached(bench_goal kind, double value, double ratio, double goal)
{
    switch (kind) {
    case BENCH_VALUE_AT_MOST: return value <= goal;
    case BENCH_VALUE_AT_LEAST: return value >= goal;
    case BENCH_RATIO_AT_MOST: return ratio <= goal;
    case BENCH_RATIO_AT_LEAST: return ratio >= goal;
    }
    return false;
}

bool bench_wants(const bench *b, const char *label)
{
    return !b->only || strstr(label, b->only);
}

void bench_row(bench *b, const char *label, double value, const char *unit, const char *reference,
               double reference_value, bench_goal kind, double goal)
{
    if (isnan(value)) {
        bench_row_without(b, label, value, unit, reference, "it could not be measured", goal);
        return;
    }
    const double ratio = reference_value != 0 ? value / reference_value : 0;
    const bool ok = reached(kind, value, ratio, goal);
    *(ok ? &b->n_ok : &b->n_not_ok) += 1;
    if (b->json)
        printf(
            "{\"bench\":\"%s\",\"case\":\"%s\",\"value\":%.6g,\"unit\":\"%s\",\"reference\":\"%s\","
            "\"reference_value\":%.6g,\"ratio\":%.4g,\"goal\":\"%s %g\",\"ok\":%s%s}\n",
            b->name, label, value, unit, reference, reference_value, ratio, goal_text[kind], goal,
            ok ? "true" : "false", b->more ? b->more : "");
    else
        printf("%-9s %-38s %11.5g %-8s %-28s %11.5g  %7.3g  %s %-8g %s\n", b->name, label, value,
               unit, reference, reference_value, ratio, goal_text[kind], goal,
               ok ? "ok" : "NOT OK");
    b->more = NULL;
    fflush(stdout);
}

void bench_row_without(bench *b, const char *label, double value, const char *unit,
                       const char *reference, const char *why, double goal)
{
    char text[256], number[32] = "null";
    snprintf(text, sizeof text, "%s", why);
    if (!isnan(value)) snprintf(number, sizeof number, "%.6g", value);
    for (char *c = text; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') *c = '\'';
    const char *const kind = goal_text[BENCH_RATIO_AT_MOST];
    b->n_not_ok++;
    if (b->json)
        printf(
            "{\"bench\":\"%s\",\"case\":\"%s\",\"value\":%s,\"unit\":\"%s\",\"reference\":\"%s\","
            "\"reference_value\":null,\"ratio\":null,\"goal\":\"%s %g\",\"ok\":false,"
            "\"why\":\"%s\"}\n",
            b->name, label, number, unit, reference, kind, goal, text);
    else
        printf("%-9s %-38s %11.5g %-8s %-28s %11s  %7s  %s %-8g NOT OK: %s\n", b->name, label,
               value, unit, reference, "-", "-", kind, goal, text);
    fflush(stdout);
}

/* ---- peers ---- */

void bench_environment_option(const bench *b, char *text, size_t size)
{
    snprintf(text, size, b->venv ? "--environment=%s" : "--venv=%s",
             b->venv ? b->venv : BENCH_BUILD_ROOT "/peers");
}

/* ---- timing ---- */

char *bench_map(size_t size)
{
    char *const p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(1);
    madvise(p, size, MADV_HUGEPAGE);
    memset(p, 1, size);
    return p;
}

static double once(bench_fn f, void *user, int calls)
{
    const double t = bench_now();
    for (int i = 0; i < calls; i++) f(user);
    return (bench_now() - t) / calls;
}

#define MAX_ROUNDS 201

void bench_pair(bench_fn f, void *fu, bench_fn g, void *gu, int rounds, int calls, double *tf,
                double *tg)
{
    double a[MAX_ROUNDS], c[MAX_ROUNDS];
    if (rounds > MAX_ROUNDS) rounds = MAX_ROUNDS;
    once(f, fu, calls);
    once(g, gu, calls);
    for (int i = 0; i < rounds; i++) {
        a[i] = once(f, fu, calls);
        c[i] = once(g, gu, calls);
    }
    *tf = bench_median(a, (size_t)rounds);
    *tg = bench_median(c, (size_t)rounds);
}

double bench_one(bench_fn f, void *user, int rounds, int calls)
{
    double a[MAX_ROUNDS];
    if (rounds > MAX_ROUNDS) rounds = MAX_ROUNDS;
    once(f, user, calls);
    for (int i = 0; i < rounds; i++) a[i] = once(f, user, calls);
    return bench_median(a, (size_t)rounds);
}

int bench_calls(bench_fn f, void *user, double seconds)
{
    f(user);
    int calls = 1;
    for (;;) {
        const double t = once(f, user, calls) * calls;
        if (t >= seconds / 4 || calls > 1 << 24)
            return (int)(calls * (seconds / (t > 1e-9 ? t : 1e-9))) + 1;
        calls *= 4;
    }
}

/* ---- contexts ---- */

static void log_line(void *user, const char *topic, const char *line)
{
    (void)user;
    fprintf(stderr, "deft %s: %s\n", topic, line);
}

deft_runtime *bench_runtime_with(uint32_t threads, deft_tier tier, int measure,
                                 uint32_t variant_launches)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = threads,
                                     .tier = tier,
                                     .measure = measure,
                                     .variant_launches = variant_launches,
                                     .log_hook = log_line };
    deft_runtime *rt;
    const deft_status st = deft_runtime_create(&o, &rt);
    if (st == DEFT_OK) return rt;
    fprintf(stderr, "no runtime: %s\n", deft_status_text(st));
    exit(1);
}

deft_runtime *bench_runtime(uint32_t threads, deft_tier tier, int measure)
{
    return bench_runtime_with(threads, tier, measure, 0);
}

deft_ctx *bench_ctx(deft_runtime *rt, deft_numerics numerics)
{
    const deft_ctx_options o = { .size = sizeof o, .numerics = numerics };
    deft_ctx *cx;
    const deft_status st = deft_ctx_create(rt, &o, &cx);
    if (st == DEFT_OK) return cx;
    fprintf(stderr, "no context: %s\n", deft_status_text(st));
    exit(1);
}

void bench_must(deft_ctx *cx, deft_status st, const char *what)
{
    if (st == DEFT_OK) return;
    fprintf(stderr, "%s: %s: %s\n", what, deft_status_text(st), deft_message(cx));
    exit(1);
}

deft_stats bench_stats(deft_ctx *cx)
{
    deft_stats s;
    deft_stats_read(cx, &s, sizeof s);
    return s;
}

/* ---- main ---- */

static const struct {
    const char *name;
    void (*run)(bench *b);
    bool by_name_only;
} benches[] = {
    { "record", bench_record, false },
    { "cut", bench_cut, false },
    { "first", bench_first, false },
    { "kept", bench_kept, false },
    { "export", bench_export, false },
    { "start", bench_start, true },
    { "launches", bench_launches, false },
    { "kernels", bench_kernels, false },
    { "variants", bench_variants, false },
    { "matmul", bench_matmul, false },
    { "memory", bench_memory, false },
    { "depth", bench_depth, false },
    { "threads", bench_threads, false },
    { "library", bench_library, false },
    { "replay", bench_replay, false },
    { "overhead", bench_overhead, false },
    { "sizes", bench_sizes, false },
    { "scatter", bench_scatter, false },
    { "routines", bench_routines, false },
    { "updates", bench_updates, false },
    { "movement", bench_movement, false },
    { "control", bench_control, false },
    { "dtypes", bench_dtypes, false },
    { "halves", bench_halves, false },
    { "images", bench_images, false },
    { "optim", bench_optim, false },
    { "train", bench_train, true },
    { "peers", bench_peers, true },
    { "order", bench_order, true },
    { "trace", bench_trace, false },
    { "bound", bench_bound, true },
    { "build", bench_build, true },
    { "graph_policy", bench_graph_policy, false },
    { "cuda_codegen", bench_cuda_codegen, true },
    { "gpu", bench_gpu, true },
    { "graph_updates", bench_graph_updates, true },
};

int main(int argc, char **argv)
{
    bench b = { .argv0 = argv[0] };
    int named = 0;
    setenv("DEFT_CACHE_DIR", "", 1); /* what is timed is compiled here; kept.c is the exception */
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json"))
            b.json = true;
        else if (!strcmp(argv[i], "--quick"))
            b.quick = true;
        else if (!strncmp(argv[i], "--case=", 7))
            b.only = argv[i] + 7;
        else if (!strncmp(argv[i], "--seconds=", 10))
            b.until = bench_now() + atof(argv[i] + 10);
        else if (!strcmp(argv[i], "--peers"))
            b.peers = true;
        else if (!strcmp(argv[i], "--install"))
            b.install = true;
        else if (!strncmp(argv[i], "--venv=", 7))
            b.venv = argv[i] + 7;
        else if (!strncmp(argv[i], "--rows=", 7))
            b.rows = argv[i] + 7;
        else if (!strncmp(argv[i], "--seed=", 7))
            b.seed = strtoull(argv[i] + 7, NULL, 10);
        else if (!strncmp(argv[i], "--threads=", 10))
            b.threads = (unsigned)atoi(argv[i] + 10);
        else
            named++;
    }
    if (!b.json) {
        deft_runtime *rt = bench_runtime(0, DEFT_TIER_AUTO, 0);
        printf("deft %s, %u threads, %s\n", deft_version(), deft_runtime_threads(rt),
               deft_runtime_compiler(rt));
        deft_runtime_destroy(&rt);
        printf("%-9s %-38s %11s %-8s %-28s %11s  %7s  goal\n", "bench", "case", "value", "unit",
               "reference", "its value", "ratio");
    }
    for (size_t k = 0; k < sizeof benches / sizeof *benches; k++) {
        bool run = named == 0 && !benches[k].by_name_only;
        for (int i = 1; i < argc; i++) run |= !strcmp(argv[i], benches[k].name);
        if (!run) continue;
        b.name = benches[k].name;
        benches[k].run(&b);
    }
    if (!b.json) printf("%d ok, %d not ok\n", b.n_ok, b.n_not_ok);
    return 0;
}
