/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole program, by public calls, on the stand-in GPU (standin/standin.h, through the
 * environment): a network is trained at three lengths, losses and predictions are kept for some
 * steps, now and then it is evaluated, and a learning rate and weights are set from outside. In one
 * context steps are replayed as graphs, in another they are not; all that is read is the same, bit
 * for bit. With --trim another thread trims all the while.
 *
 *   graph_program [--quick] [--trim]
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "deft/deft.h"

enum { IN = 6, HIDDEN = 8, OUT = 3, MOST = 32, KEPT = 5, N_CONTEXTS = 2 };

static int n_faults;

#define OK(model, call)                                                                            \
    do {                                                                                           \
        const deft_status ok_st = (call);                                                          \
        if (ok_st != DEFT_OK) fail(model, #call, ok_st);                                           \
    } while (0)

typedef struct model {
    deft_ctx *cx;
    deft_tensor *w[2], *m[2];
    deft_tensor *kept[KEPT];
    float data[MOST * IN], labels[MOST * OUT];
} model;

static void fail(const model *m, const char *what, deft_status st)
{
    printf("%s: %s: %s\n", what, deft_status_text(st), deft_message(m->cx));
    exit(1);
}

static void set_weights(model *m, uint64_t seed)
{
    deft_rng rng = { seed, 0 };
    const deft_scope s = deft_scope_begin(m->cx);
    deft_tensor *const w[2] = { deft_normal(m->cx, &rng, DEFT_SHAPE(IN, HIDDEN), DEFT_F32, 0, 0.5),
                                deft_normal(m->cx, &rng, DEFT_SHAPE(HIDDEN, OUT), DEFT_F32, 0,
                                            0.5) };
    for (int i = 0; i < 2; i++) deft_assign(m->w[i], w[i]);
    OK(m, deft_scope_end(s));
}

static void open_model(model *m, deft_runtime *rt, deft_replay replay)
{
    const deft_ctx_options o = { .size = sizeof o, .device = DEFT_CUDA(0), .replay = replay };
    if (deft_ctx_create(rt, &o, &m->cx) != DEFT_OK) {
        printf("no context on cuda:0\n");
        exit(1);
    }
    static const int64_t sides[3] = { IN, HIDDEN, OUT };
    for (int i = 0; i < 2; i++) {
        m->w[i] = deft_keep(deft_zeros(m->cx, DEFT_SHAPE(sides[i], sides[i + 1]), DEFT_F32));
        m->m[i] = deft_keep(deft_zeros(m->cx, DEFT_SHAPE(sides[i], sides[i + 1]), DEFT_F32));
    }
    set_weights(m, 3);
}

static deft_tensor *forward(model *m, deft_tensor *x)
{
    return deft_matmul(deft_tanh(deft_matmul(x, m->w[0])), m->w[1]);
}

static deft_tensor *examples(model *m, const float *from, int64_t n, int64_t side)
{
    return deft_from(m->cx, DEFT_SHAPE(n, side), DEFT_F32, from, (size_t)(n * side) * sizeof *from);
}

static void keep(model *m, int at, deft_tensor *t)
{
    deft_drop(&m->kept[at]);
    m->kept[at] = deft_keep(t);
}

static void train(model *m, int step, int64_t n)
{
    const double rate = 0.1 / (1 + step % 7);
    const deft_scope s = deft_step_begin(m->cx);
    deft_tensor *const y = forward(m, examples(m, m->data, n, IN));
    deft_tensor *const d = deft_sub(y, examples(m, m->labels, n, OUT));
    deft_tensor *const loss = deft_mean(deft_square(d), DEFT_ALL_AXES, 0);
    deft_tensor *g[2];
    if (!deft_grad(&loss, NULL, 1, m->w, 2, NULL, g)) fail(m, "deft_grad", deft_error(m->cx));
    for (int i = 0; i < 2; i++) {
        deft_assign(m->m[i], deft_lerp(m->m[i], g[i], 0.3));
        deft_assign(m->w[i], deft_sub(m->w[i], deft_mul(m->m[i], rate)));
    }
    if (step % 3 == 0) keep(m, step / 3 % KEPT, loss);
    OK(m, deft_step_end(s));
}

static void evaluate(model *m, int step, int64_t n)
{
    const deft_scope s = deft_step_begin(m->cx);
    keep(m, step / 4 % KEPT, deft_softmax(forward(m, examples(m, m->data, n, IN)), 1));
    OK(m, deft_step_end(s));
}

static void one_step(model *m, int step)
{
    static const int64_t lengths[] = { 9, 20, MOST };
    const int64_t n = lengths[(step / 2 + step / 11) % 3];
    for (int i = 0; i < MOST * IN; i++) m->data[i] = (float)((i * 7 + step * 13) % 29) / 16 - 1;
    for (int i = 0; i < MOST * OUT; i++) m->labels[i] = (float)((i * 5 + step) % 11) / 8;
    train(m, step, n);
    if (step % 4 == 3) evaluate(m, step, n);
    if (step % 37 == 36) set_weights(m, (uint64_t)step);
}

static void compare(model *m, deft_tensor *const t[N_CONTEXTS], const char *what, int step)
{
    static float got[N_CONTEXTS][MOST * HIDDEN];
    size_t bytes = 0;
    for (int i = 0; i < N_CONTEXTS; i++) {
        bytes = sizeof **got * (size_t)deft_numel(t[i]);
        OK(&m[i], deft_read(t[i], DEFT_F32, got[i], bytes));
    }
    if (memcmp(got[0], got[1], bytes) == 0) return;
    printf("step %d: %s differs: %g, not %g\n", step, what, (double)got[1][0], (double)got[0][0]);
    n_faults++;
}

static void compare_all(model *m, int step)
{
    for (int i = 0; i < 2; i++) {
        compare(m, (deft_tensor *[]){ m[0].w[i], m[1].w[i] }, "a weight", step);
        compare(m, (deft_tensor *[]){ m[0].m[i], m[1].m[i] }, "a mean", step);
    }
    for (int i = 0; i < KEPT; i++)
        if (m[0].kept[i])
            compare(m, (deft_tensor *[]){ m[0].kept[i], m[1].kept[i] }, "what was kept", step);
}

/* ---- trims ---- */

typedef struct trimmer {
    deft_runtime *rt;
    atomic_bool is_over;
} trimmer;

static void *trim_on(void *user)
{
    trimmer *const t = user;
    while (!atomic_load(&t->is_over)) {
        deft_runtime_trim(t->rt);
        usleep(3000);
    }
    return NULL;
}

/* From here, where no context runs: all graphs go, and the memory that nothing is held in. */
static void check_trim(const model *m, deft_runtime *rt)
{
    deft_replay_stats s;
    deft_runtime_trim(rt);
    OK(m, deft_replay_read(m[1].cx, DEFT_CUDA(0), &s, sizeof s));
    if (s.graphs || s.recorded == 0) printf("graphs are left, or never were\n"), n_faults++;
    if ((s.held == 0) != (s.pool_bytes == 0)) printf("memory is left\n"), n_faults++;
}

static void check_stats(const model *m, int n_steps, bool trims)
{
    static char text[1 << 16];
    deft_replay_stats s, off;
    OK(m, deft_replay_read(m[1].cx, DEFT_CUDA(0), &s, sizeof s));
    OK(m, deft_replay_read(m[0].cx, DEFT_CUDA(0), &off, sizeof off));
    const size_t n = deft_show(m[1].cx, "graphs", text, sizeof text);
    printf("%.*s", (int)strcspn(strchr(text, '\n') + 1, "\n") + 40, text);
    printf(
        "\n%llu runs, %llu plain, %llu recorded, %llu replayed, %llu placed, %llu reshaped; pool "
        "%llu bytes, %llu apart\n",
        (unsigned long long)s.runs, (unsigned long long)s.plain, (unsigned long long)s.recorded,
        (unsigned long long)s.replayed, (unsigned long long)s.placed,
        (unsigned long long)s.reshaped, (unsigned long long)s.pool_bytes,
        (unsigned long long)s.separate_bytes);
    if (!s.is_on || off.is_on || off.runs) printf("another context replays\n"), n_faults++;
    if (s.replayed * 2 < (uint64_t)n_steps && !trims)
        printf("too little was replayed\n"), n_faults++;
    if (n == 0 || !strstr(text, "node 1: plan ")) printf("no tree is shown\n"), n_faults++;
    if (deft_show(m[0].cx, "graphs", text, sizeof text)) printf("what is shown?\n"), n_faults++;
}

int main(int argc, char **argv)
{
    const int n_steps = argc > 1 && strcmp(argv[1], "--quick") == 0 ? 80 : 1000;
    const bool trims = argc > 1 && strcmp(argv[argc - 1], "--trim") == 0;
    pthread_t thread;
    static model m[N_CONTEXTS];
    deft_runtime *rt = NULL;
    if (deft_runtime_create(NULL, &rt) != DEFT_OK) return 2;
    open_model(&m[0], rt, DEFT_REPLAY_OFF);
    open_model(&m[1], rt, DEFT_REPLAY_GRAPHS);
    trimmer t = { .rt = rt };
    if (trims && pthread_create(&thread, NULL, trim_on, &t) != 0) return 2;
    for (int step = 0; step < n_steps; step++) {
        for (int i = 0; i < N_CONTEXTS; i++) one_step(&m[i], step);
        if (step % 8 == 7) compare_all(m, step);
    }
    atomic_store(&t.is_over, true);
    if (trims) pthread_join(thread, NULL);
    compare_all(m, n_steps);
    check_stats(m, n_steps, trims);
    check_trim(m, rt);
    compare_all(m, n_steps);
    for (int i = 0; i < N_CONTEXTS; i++) {
        for (int k = 0; k < 2; k++) deft_drop(&m[i].w[k]), deft_drop(&m[i].m[k]);
        for (int k = 0; k < KEPT; k++) deft_drop(&m[i].kept[k]);
        deft_ctx_destroy(&m[i].cx);
    }
    deft_runtime_destroy(&rt);
    printf("%d faults\n", n_faults);
    return n_faults == 0 ? 0 : 1;
}
