/* SPDX-License-Identifier: Apache-2.0
 *
 * Ten thousand training steps with random batch sizes 1..64: what is compiled is bounded by the
 * regions of the program and not by its sizes, memory stays flat, and the parameters equal those of
 * the interpreter bit for bit.
 *
 *   replay_training [--quick]
 */
#include "../support/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IN = 8, HIDDEN = 16, CLASSES = 4, MAX_BATCH = 64, ROWS = 512, PARAMS = 4, LOOKS = 40 };

static float data[ROWS * IN];
static int32_t labels[ROWS];

static const int64_t shapes[PARAMS][2] = {
    { IN, HIDDEN }, { 1, HIDDEN }, { HIDDEN, CLASSES }, { 1, CLASSES }
};

typedef struct model {
    deft_ctx *cx;
    deft_tensor *p[PARAMS], *m[PARAMS], *v[PARAMS], *loss;
} model;

static void ok(const model *m, deft_status st)
{
    if (st == DEFT_OK) return;
    printf("FAIL: %s: %s\n", deft_status_text(st), deft_message(m->cx));
    exit(1);
}

static void open_model(model *m, const oracle_path *path)
{
    m->cx = oracle_context(path, NULL);
    deft_rng rng = { 11, 0 };
    const deft_scope s = deft_scope_begin(m->cx);
    for (int i = 0; i < PARAMS; i++) {
        const deft_shape shape = deft_shape_of(2, shapes[i]);
        m->p[i] = deft_keep(deft_uniform(m->cx, &rng, shape, DEFT_F32, -0.4, 0.4));
        m->m[i] = deft_keep(deft_zeros(m->cx, shape, DEFT_F32));
        m->v[i] = deft_keep(deft_zeros(m->cx, shape, DEFT_F32));
    }
    m->loss = deft_keep(deft_zeros(m->cx, DEFT_SHAPE(), DEFT_F32));
    ok(m, deft_scope_end(s));
}

static deft_tensor *over_batch(deft_tensor *t)
{
    return deft_sum(t, DEFT_AXES(0), 1);
}

static void train(model *m, int step)
{
    const int64_t b = 1 + (int64_t)(oracle_mix(77, (uint64_t)step) % MAX_BATCH);
    const int64_t from = (int64_t)(oracle_mix(78, (uint64_t)step) % (uint64_t)(ROWS - b + 1));
    const deft_scope s = deft_step_begin(m->cx);
    deft_tensor *x = deft_wrap(m->cx, DEFT_SHAPE(b, IN), DEFT_F32, data + from * IN,
                               (size_t)(b * IN) * sizeof *data, NULL);
    deft_tensor *label =
        deft_wrap(m->cx, DEFT_SHAPE(b), DEFT_I32, labels + from, (size_t)b * sizeof *labels, NULL);
    deft_tensor *pre = deft_add(deft_matmul(x, m->p[0]), m->p[1]);
    deft_tensor *h = deft_relu(pre);
    deft_tensor *logits = deft_add(deft_matmul(h, m->p[2]), m->p[3]);
    deft_tensor *d = deft_div(
        deft_sub(deft_softmax(logits, 1), deft_one_hot(label, CLASSES, DEFT_F32)), (double)b);
    deft_tensor *dh =
        deft_where(deft_gt(pre, 0), deft_matmul(d, deft_t(m->p[2])), deft_num(m->cx, 0));
    deft_tensor *g[PARAMS] = { deft_matmul(deft_t(x), dh), over_batch(dh),
                               deft_matmul(deft_t(h), d), over_batch(d) };
    deft_assign(m->loss, deft_cross_entropy(logits, label));
    const double c1 = 1 - pow(0.9, step + 1), c2 = 1 - pow(0.999, step + 1);
    for (int i = 0; i < PARAMS; i++) {
        deft_assign(m->m[i], deft_lerp(m->m[i], g[i], 0.1));
        deft_assign(m->v[i], deft_lerp(m->v[i], deft_square(g[i]), 0.001));
        deft_tensor *den = deft_add(deft_sqrt(deft_div(m->v[i], c2)), 1e-8);
        deft_assign(m->p[i], deft_sub(m->p[i], deft_mul(deft_div(m->m[i], den), 0.003 / c1)));
    }
    ok(m, deft_step_end(s));
}

/* All parameters and the loss, as bytes; returns how many. */
typedef struct look {
    float p[IN * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES], loss;
} look;

static void take_look(const model *m, look *out)
{
    float *at = out->p;
    for (int i = 0; i < PARAMS; i++) {
        const size_t n = (size_t)(shapes[i][0] * shapes[i][1]);
        ok(m, deft_read(m->p[i], DEFT_F32, at, n * sizeof *at));
        at += n;
    }
    ok(m, deft_item_f32(m->loss, &out->loss));
}

static long resident_kb(void)
{
    long total = 0, pages = 0;
    FILE *const f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%ld %ld", &total, &pages) != 2) pages = 0;
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static deft_stats stats_of(const model *m)
{
    deft_stats s;
    deft_stats_read(m->cx, &s, sizeof s);
    return s;
}

static int failures;
static void hold(bool right, const char *what, unsigned long long is, unsigned long long limit)
{
    printf("  %-34s %8llu, at most %llu%s\n", what, is, limit, right ? "" : "  FAIL");
    failures += !right;
}

/* looks: filled in by the first path, compared by the others. */
static void run(const oracle_path *path, int n_steps, look *looks, bool first)
{
    model m;
    open_model(&m, path);
    uint64_t regions = 0;
    deft_stats half = { 0 };
    long half_kb = 0;
    const double t0 = oracle_now();
    for (int step = 0, k = 0; step < n_steps; step++) {
        train(&m, step);
        if (step == 0) regions = stats_of(&m).kernels_known;
        if (step == n_steps / 2) {
            half = stats_of(&m);
            half_kb = resident_kb();
        }
        if ((step + 1) % (n_steps / LOOKS) != 0) continue;
        look now;
        take_look(&m, first ? &looks[k] : &now);
        if (!first && memcmp(&now, &looks[k], sizeof now) != 0 && ++failures)
            printf("FAIL: after step %d parameters differ from those of the first path\n", step);
        k++;
    }
    const deft_stats end = stats_of(&m);
    const long kb = resident_kb();
    printf(
        "%s: %d steps, %.1f s, loss %g; %llu plans, %llu of %llu cuts matched, %llu guard misses\n",
        path->name, n_steps, oracle_now() - t0, (double)looks[LOOKS - 1].loss,
        (unsigned long long)end.plans_built, (unsigned long long)end.cuts_matched,
        (unsigned long long)end.cuts, (unsigned long long)end.guard_misses);
    if (path->tier != DEFT_TIER_INTERPRET)
        hold(end.kernels_compiled <= 3 * regions, "kernels compiled", end.kernels_compiled,
             3 * regions);
    hold(end.kernels_known <= 3 * regions, "kernels known", end.kernels_known, 3 * regions);
    hold(end.kernels_known == half.kernels_known, "kernels, as after half", end.kernels_known,
         half.kernels_known);
    hold(end.plans_built == half.plans_built, "plans, as after half", end.plans_built,
         half.plans_built);
    hold(end.live_bytes <= half.live_bytes, "live bytes, as after half", end.live_bytes,
         half.live_bytes);
    hold(end.peak_bytes <= half.peak_bytes, "peak bytes, as after half", end.peak_bytes,
         half.peak_bytes);
#ifndef __SANITIZE_ADDRESS__ /* which keeps freed memory for a while */
    hold(kb <= half_kb + 256, "resident KiB, as after half + 256", (unsigned long long)kb,
         (unsigned long long)half_kb + 256);
#else
    (void)kb, (void)half_kb;
#endif
    hold(end.cuts - end.cuts_matched <= end.cuts / 4, "cuts not matched",
         end.cuts - end.cuts_matched, end.cuts / 4);
    hold(looks[LOOKS - 1].loss < looks[0].loss, "loss * 1000",
         (unsigned long long)(1000 * looks[LOOKS - 1].loss),
         (unsigned long long)(1000 * looks[0].loss));
    deft_ctx_destroy(&m.cx);
}

int main(int argc, char **argv)
{
    const int n_steps = argc > 1 && !strcmp(argv[1], "--quick") ? 1000 : 10000;
    oracle_path paths[] = {
        { .name = "interp", .tier = DEFT_TIER_INTERPRET, .n_threads = 1 },
        { .name = "llvm", .tier = DEFT_TIER_FULL, .n_threads = 1 },
    };
    const size_t n_paths = oracle_open(paths, sizeof paths / sizeof *paths);
    uint64_t state = 3;
    for (int i = 0; i < ROWS; i++) {
        float sum[CLASSES] = { 0 };
        for (int j = 0; j < IN; j++) {
            const float v = (float)(oracle_next(&state) % 2001) / 1000 - 1;
            data[i * IN + j] = v;
            sum[j % CLASSES] += v;
        }
        for (int k = 1; k < CLASSES; k++)
            if (sum[k] > sum[labels[i]]) labels[i] = k;
    }
    static look looks[LOOKS];
    for (size_t i = 0; i < n_paths; i++) run(&paths[i], n_steps, looks, i == 0);
    oracle_close(paths, n_paths);
    return failures ? 1 : 0;
}
