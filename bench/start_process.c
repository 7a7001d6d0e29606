/* SPDX-License-Identifier: Apache-2.0
 *
 *     bench-start                            the least program that computes and needs no compiler
 *     bench-start PROGRAM [STEPS [WEIGHTS]]  STEPS steps of a program, or one
 *
 * Programs whose start is timed, with the defaults of the library:
 *
 *   chain         ten elementwise operations on 1 M elements
 *   floor         a loop in C over as many elements, on one thread, with a result as large
 *   mlp           a training step of network.h, 8 rows
 *   gpt2-forward  the loss of GPT-2 on 4 windows of 64 (train_models.h)
 *   gpt2          a training step of it
 *
 * With WEIGHTS, a file, the program begins with what the file has. A program of 0 steps writes the
 * file instead. It writes "result" to stdout as soon as the first step has its result. After all
 * steps it writes seconds of the first step, the median of the others, seconds of
 * deft_ctx_create, kernels compiled, kernels loaded, whether libLLVM is mapped, and a number that
 * the results can be compared by.
 *
 * Without WEIGHTS it leaves without waiting for the compiler, as a program would that goes on.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench.h"
#include "network.h"
#include "train_models.h"

enum { BATCH = 8, CHAIN = 1 << 20, MOST_STEPS = 4096 };

typedef struct start_state {
    deft_runtime *rt;
    deft_ctx *cx;
    const char *weights; /* NULL: none */
    bool writes;         /* the file of weights */
    network net;         /* of mlp */
    deft_tensor *x, *y;  /* of chain */
    float *floor[3];     /* of floor: two inputs and the result */
    deft_tensor *result; /* of chain and of GPT-2 */
    deft_nn *nn;         /* of GPT-2 */
    train_model *model;
    deft_optim *adamw; /* NULL: nothing is learnt */
    deft_tensor **grad;
} start_state;

typedef struct program {
    const char *name;
    void (*open)(start_state *s);
    void (*step)(start_state *s);
    double (*number)(start_state *s);
} program;

/* ---- what programs of benches need ---- */

static double seconds_to_create;

deft_ctx *bench_ctx(deft_runtime *rt, deft_numerics numerics)
{
    const deft_ctx_options o = { .size = sizeof o, .numerics = numerics };
    deft_ctx *cx = NULL;
    const double t = bench_now();
    if (deft_ctx_create(rt, &o, &cx) != DEFT_OK) exit(1);
    seconds_to_create = bench_now() - t;
    return cx;
}

void bench_must(deft_ctx *cx, deft_status st, const char *what)
{
    if (st == DEFT_OK) return;
    fprintf(stderr, "%s: %s: %s\n", what, deft_status_text(st), deft_message(cx));
    exit(1);
}

/* ---- chain ---- */

static void chain_open(start_state *s)
{
    float *const v = malloc(CHAIN * sizeof *v);
    if (!v) exit(1);
    s->cx = bench_ctx(s->rt, DEFT_STRICT);
    for (int i = 0; i < CHAIN; i++) v[i] = (float)i / CHAIN;
    s->x = deft_keep(deft_from(s->cx, DEFT_SHAPE(CHAIN), DEFT_F32, v, CHAIN * sizeof *v));
    for (int i = 0; i < CHAIN; i++) v[i] = 1 - (float)i / (2 * CHAIN);
    s->y = deft_keep(deft_from(s->cx, DEFT_SHAPE(CHAIN), DEFT_F32, v, CHAIN * sizeof *v));
    s->result = deft_keep(deft_zeros(s->cx, DEFT_SHAPE(CHAIN), DEFT_F32));
    free(v);
}

static void chain_step(start_state *s)
{
    const deft_scope scope = deft_step_begin(s->cx);
    deft_tensor *t = deft_add(deft_mul(s->x, s->y), s->x);
    t = deft_abs(deft_sub(deft_tanh(t), s->y));
    t = deft_exp(deft_neg(deft_sqrt(t)));
    deft_assign(s->result, deft_mul(deft_maximum(t, s->x), 0.5));
    bench_must(s->cx, deft_step_end(scope), "step");
}

/* ---- floor ---- */

/* No library can avoid the time that the system takes for the pages of a result that is written for
 * the first time. So this loop has its code from the start, and pages as large as those of deft. */
static void floor_open(start_state *s)
{
    const size_t size = CHAIN * sizeof(float), huge = (size_t)2 << 20;
    chain_open(s);
    bench_must(s->cx, deft_wait(s->cx), "inputs");
    for (int i = 0; i < 3; i++) s->floor[i] = i < 2 ? malloc(size) : aligned_alloc(huge, size);
    if (!s->floor[0] || !s->floor[1] || !s->floor[2]) exit(1);
    (void)madvise(s->floor[2], size, MADV_HUGEPAGE);
    for (int i = 0; i < CHAIN; i++) {
        s->floor[0][i] = (float)i / CHAIN;
        s->floor[1][i] = 1 - (float)i / (2 * CHAIN);
    }
}

static void floor_step(start_state *s)
{
    const float *const x = s->floor[0], *const y = s->floor[1];
    float *const out = s->floor[2];
    for (int i = 0; i < CHAIN; i++) {
        const float t = fabsf(x[i] * y[i] + x[i] - y[i]);
        out[i] = (t > x[i] ? t : x[i]) * 0.5f;
    }
}

static double floor_number(start_state *s)
{
    return (double)s->floor[2][CHAIN / 2];
}

static double number_of_result(start_state *s)
{
    float number = 0;
    const deft_scope scope = deft_scope_begin(s->cx);
    bench_must(s->cx, deft_item(deft_mean(s->result, DEFT_ALL_AXES, false), &number), "mean");
    bench_must(s->cx, deft_scope_end(scope), "scope_end");
    return (double)number;
}

/* ---- mlp ---- */

static void write_network(start_state *s)
{
    static network_start start;
    network_read_start(&s->net, &start);
    FILE *const f = fopen(s->weights, "wb");
    if (!f || fwrite(&start, sizeof start, 1, f) != 1 || fclose(f) != 0) exit(1);
}

static void mlp_open(start_state *s)
{
    network_open(&s->net, s->rt, BATCH);
    network *const w = &s->net;
    s->cx = w->cx;
    if (s->writes) write_network(s);
    /* All that it was opened with is computed now, so that the first step is like the others. */
    deft_tensor *all[5 * NETWORK_PARAMS + 2] = { w->x, w->labels };
    size_t n = 2;
    for (int i = 0; i < NETWORK_PARAMS; i++) {
        deft_tensor *const of[] = { w->start[i], w->zeros[i], w->p[i], w->m[i], w->v[i] };
        for (int k = 0; k < 5; k++) all[n++] = of[k];
    }
    bench_must(s->cx, deft_eval(all, n), "parameters and batch");
}

static void mlp_step(start_state *s)
{
    network_train_again(&s->net);
}

static double mlp_number(start_state *s)
{
    return (double)network_loss(&s->net);
}

/* ---- GPT-2 ---- */

static void gpt2_make(start_state *s, const char *name)
{
    s->cx = bench_ctx(s->rt, DEFT_STRICT);
    bench_must(s->cx, deft_nn_create(s->cx, NULL, &s->nn), "nn");
    const deft_scope scope = deft_scope_begin(s->cx);
    s->model = train_model_create(s->cx, s->nn, name);
    s->result = deft_keep(deft_zeros(s->cx, (deft_shape){ 0 }, DEFT_F32));
    bench_must(s->cx, deft_scope_end(scope), "model");
    if (!s->model) exit(1);
    if (s->weights)
        bench_must(s->cx,
                   s->writes ? deft_nn_save(s->nn, s->weights, DEFT_NN_ALL)
                             : deft_nn_load(s->nn, s->weights, DEFT_NN_ALL),
                   "weights");
}

static void forward_open(start_state *s)
{
    gpt2_make(s, "gpt2-forward");
}

static void gpt2_open(start_state *s)
{
    gpt2_make(s, "gpt2");
    bench_must(s->cx, deft_optim_create(s->nn, NULL, &s->adamw), "optimizer");
    s->grad = calloc(deft_optim_n(s->adamw), sizeof *s->grad);
    if (!s->grad) exit(1);
}

static void gpt2_step(start_state *s)
{
    const deft_scope scope = deft_step_begin(s->cx);
    deft_tensor *const loss = train_model_call(s->model);
    if (s->adamw) {
        deft_grad(&loss, NULL, 1, deft_optim_parameters(s->adamw), deft_optim_n(s->adamw), NULL,
                  s->grad);
        deft_optim_step(s->adamw, s->grad, 3e-4);
    }
    deft_assign(s->result, loss);
    bench_must(s->cx, deft_step_end(scope), "step");
}

/* ---- all of them ---- */

static const program programs[] = {
    { "chain", chain_open, chain_step, number_of_result },
    { "floor", floor_open, floor_step, floor_number },
    { "mlp", mlp_open, mlp_step, mlp_number },
    { "gpt2-forward", forward_open, gpt2_step, number_of_result },
    { "gpt2", gpt2_open, gpt2_step, number_of_result },
};

static bool maps_llvm(void)
{
    char line[1024];
    bool found = false;
    FILE *const f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) found |= strstr(line, "libLLVM") != NULL;
    if (f) fclose(f);
    return found;
}

/* The compiler may still work in the background: later processes shall find all it makes. */
static void print_start(start_state *s, const program *p, double first, double *later, int n)
{
    deft_stats c;
    const double number = p->number(s);
    deft_runtime_settle(s->rt);
    deft_stats_read(s->cx, &c, sizeof c);
    printf("%.9g %.9g %.9g %llu %llu %d %.9g\n", first,
           n > 0 ? bench_median(later, (size_t)n) : NAN, seconds_to_create,
           (unsigned long long)c.kernels_compiled, (unsigned long long)c.kernels_loaded,
           maps_llvm(), number);
    fflush(stdout);
}

static int run_program(const program *p, int n, const char *weights)
{
    static double later[MOST_STEPS];
    start_state s = { .weights = weights, .writes = n == 0 };
    double first = 0;
    if (deft_runtime_create(NULL, &s.rt) != DEFT_OK) return 1;
    p->open(&s);
    for (int i = 0; i < n && i < MOST_STEPS; i++) {
        const double t = bench_now();
        p->step(&s);
        if (weights) bench_must(s.cx, deft_wait(s.cx), "wait");
        *(i == 0 ? &first : &later[i - 1]) = bench_now() - t;
        if (weights && i == 0) printf("result\n"), fflush(stdout);
    }
    if (weights && n > 0) print_start(&s, p, first, later, n - 1);
    const double number = weights ? 1 : p->number(&s);
    _Exit(number > 0 && number < 10 ? 0 : 1);
}

/* Its start is compared with empty.c. */
static int run_least(void)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    deft_runtime *rt = NULL;
    deft_ctx *cx = NULL;
    float out = 0;
    const float v[2] = { 1, 2 };
    if (deft_runtime_create(&o, &rt) != DEFT_OK || deft_ctx_create(rt, NULL, &cx) != DEFT_OK)
        return 1;
    deft_tensor *x = deft_from(cx, DEFT_SHAPE(2), DEFT_F32, v, sizeof v);
    const deft_status st = deft_item(deft_sum(deft_mul(x, 2), DEFT_ALL_AXES, 0), &out);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    return st == DEFT_OK && out == 6 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc < 2) return run_least();
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (!strcmp(programs[i].name, argv[1]))
            return run_program(&programs[i], argc > 2 ? atoi(argv[2]) : 1,
                               argc > 3 ? argv[3] : NULL);
    fprintf(stderr, "usage: bench-start [PROGRAM [STEPS [WEIGHTS]]]\n");
    return 2;
}
