/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast are windows that slide over images? Depthwise convolutions and pools beside C that was
 * written for the purpose, split over the same pool of threads. Dense convolutions beside oneDNN's
 * primitive, in the layouts that it likes best. A block of a residual network as inference, and as
 * a step with gradients, beside the times of its convolutions in that library (three times these
 * for the step). All are captured, so that recording is no part of the times.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer_conv.h"
#include "ref_images.h"
#include "runtime/pool.h"

enum { DEPTHWISE, MAX_POOL, AVG_POOL, DENSE, BLOCK, BLOCK_STEP };

typedef struct image_case {
    const char *name;
    int what;
    int64_t n, in, size, out, kernel, stride, padding;
} image_case;

typedef struct side {
    const image_case *of;
    uint32_t threads;
    deft_ctx *cx;
    deft_capture *c;
    deft_tensor *in[6];
    size_t n_in, n_out;
    float *x, *w, *y;
    ref_window window;
    const ref_images *table;
    df_pool *pool;
    peer_conv *peer;
} side;

/* ---- ours ---- */

static deft_tensor *normalized(deft_tensor *x, deft_tensor *gain, deft_tensor *shift)
{
    return deft_add(deft_mul(x, gain), shift);
}

/* Two 3x3 convolutions with batch normalization folded into a gain and a shift, and a residual. */
static deft_tensor *block(deft_tensor *const *in)
{
    deft_tensor *h = deft_conv2d(in[0], in[1], DEFT_CONV2D(.padding = { 1, 1 }));
    h = deft_relu(normalized(h, in[3], in[4]));
    h = deft_conv2d(h, in[2], DEFT_CONV2D(.padding = { 1, 1 }));
    return deft_relu(deft_add(normalized(h, in[3], in[4]), in[0]));
}

static deft_status record(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    const image_case *const k = ((side *)user)->of;
    (void)cx, (void)n_in;
    switch (k->what) {
    case DEPTHWISE:
    case DENSE:
        out[0] = deft_conv2d(in[0], in[1],
                             DEFT_CONV2D(.stride = { k->stride, k->stride },
                                         .padding = { k->padding, k->padding },
                                         .groups = k->what == DEPTHWISE ? k->in : 1));
        break;
    case MAX_POOL:
    case AVG_POOL: {
        const deft_pool2d_options *const o =
            DEFT_POOL2D(.kernel = { k->kernel, k->kernel }, .stride = { k->stride, k->stride },
                        .padding = { k->padding, k->padding });
        out[0] = k->what == MAX_POOL ? deft_max_pool2d(in[0], o) : deft_avg_pool2d(in[0], o);
        break;
    }
    case BLOCK: out[0] = block(in); break;
    default: {
        deft_tensor *const y = block(in);
        deft_tensor *const loss = deft_mean(deft_mul(y, y), DEFT_ALL_AXES, 0);
        if (!deft_grad(&loss, NULL, 1, in, 5, NULL, out)) return deft_error(cx);
    }
    }
    return n_out > 0 && out[0] ? DEFT_OK : deft_error(cx);
}

static void ours(void *user)
{
    side *const s = user;
    deft_tensor *out[6] = { NULL };
    const deft_scope scope = deft_scope_begin(s->cx);
    bench_must(s->cx, deft_capture_call(s->c, s->in, s->n_in, out, s->n_out), "images");
    bench_must(s->cx, deft_scope_end(scope), "images");
}

static void read_ours(side *s, float *to, size_t bytes)
{
    deft_tensor *out[6] = { NULL };
    const deft_scope scope = deft_scope_begin(s->cx);
    bench_must(s->cx, deft_capture_call(s->c, s->in, s->n_in, out, s->n_out), "images");
    bench_must(s->cx, deft_read(out[0], DEFT_F32, to, bytes), "images");
    bench_must(s->cx, deft_scope_end(scope), "images");
}

/* ---- the references ---- */

static void slide(const side *s, int64_t begin, int64_t end)
{
    ref_slide_fn *const f = s->of->what == DEPTHWISE  ? s->table->depthwise
                            : s->of->what == MAX_POOL ? s->table->max_pool
                                                      : s->table->avg_pool;
    f(s->y, s->x, s->w, &s->window, begin, end);
}

static void slide_part(void *user, uint32_t i, uint32_t thread)
{
    const side *const s = user;
    const int64_t planes = s->of->n * s->of->in;
    (void)thread;
    slide(s, planes * i / s->threads, planes * (i + 1) / s->threads);
}

static void plain(void *user)
{
    const side *const s = user;
    if (s->threads == 1)
        slide(s, 0, s->of->n * s->of->in);
    else
        df_pool_run(s->pool, s->threads, slide_part, user);
}

static void library(void *user)
{
    const side *const s = user;
    const int times = s->of->what == BLOCK ? 2 : s->of->what == BLOCK_STEP ? 6 : 1;
    for (int i = 0; i < times; i++) peer_conv_run(s->peer, (int)s->threads);
}

static const ref_images *fastest(side *s)
{
    static const ref_images *const table[] = {
#ifdef REF_HAVE_GCC
        &ref_images_gcc,
#endif
#ifdef REF_HAVE_CLANG
        &ref_images_clang,
#endif
    };
    const ref_images *best = NULL;
    double least = 1e30;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        s->table = table[i];
        const double t = bench_one(plain, s, 5, 4);
        if (t < least) best = table[i];
        if (t < least) least = t;
    }
    return best;
}

/* ---- one case ---- */

static float *memory(int64_t n)
{
    float *const p = calloc((size_t)n, sizeof *p);
    if (!p) exit(1);
    for (int64_t i = 0; i < n; i++) p[i] = (float)(i * 7 % 1009) / 1009 - 0.5f;
    return p;
}

static deft_tensor *tensor(side *s, deft_shape shape, const float *p, int64_t n)
{
    deft_tensor *const t = deft_keep(deft_from(s->cx, shape, DEFT_F32, p, (size_t)n * sizeof *p));
    if (!t) bench_must(s->cx, deft_error(s->cx), "images");
    return t;
}

static void begin_ours(side *s, deft_runtime *rt, bool fast)
{
    const image_case *const k = s->of;
    const int64_t depth = k->what == DEPTHWISE ? 1 : k->in;
    s->cx = bench_ctx(rt, fast ? DEFT_FAST : DEFT_STRICT);
    s->n_in = s->n_out = 1;
    s->in[0] = tensor(s, DEFT_SHAPE(k->n, k->in, k->size, k->size), s->x,
                      k->n * k->in * k->size * k->size);
    for (int i = 1; i < 3 && k->what != MAX_POOL && k->what != AVG_POOL; i++)
        s->in[s->n_in++] = tensor(s, DEFT_SHAPE(k->out, depth, k->kernel, k->kernel), s->w,
                                  k->out * depth * k->kernel * k->kernel);
    if (k->what == BLOCK || k->what == BLOCK_STEP)
        for (int i = 3; i < 5; i++)
            s->in[s->n_in++] = tensor(s, DEFT_SHAPE(k->out, 1, 1), s->w, k->out);
    if (k->what == BLOCK_STEP) s->n_out = 5;
    s->c = deft_capture_create(s->cx, record, s);
    for (int i = 0; i < 20; i++) ours(s);
}

static void end_ours(side *s)
{
    deft_capture_destroy(&s->c);
    deft_ctx_destroy(&s->cx);
}

static void check(side *s, size_t n)
{
    float *const got = memory((int64_t)n);
    read_ours(s, got, n * sizeof *got);
    plain(s);
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &s->y[i], sizeof got[i]) != 0) {
            fprintf(stderr, "images: %s: element %zu is %a, in C %a\n", s->of->name, i,
                    (double)got[i], (double)s->y[i]);
            exit(1);
        }
    free(got);
}

static void one_case(bench *b, const image_case *k, uint32_t threads, bool fast)
{
    char label[96];
    snprintf(label, sizeof label, "%s, %u thread%s, %s", k->name, threads, threads > 1 ? "s" : "",
             fast ? "fast" : "strict");
    if (!bench_wants(b, label)) return;
    side s = { .of = k, .threads = threads };
    const int64_t wo = (k->size + 2 * k->padding - k->kernel) / k->stride + 1;
    const int64_t n_out = k->n * k->out * wo * wo;
    const bool loops = k->what <= AVG_POOL;
    deft_runtime *rt = bench_runtime(threads, DEFT_TIER_FULL, 0);
    s.window = (ref_window){ k->in, k->size, k->size, wo, wo, k->kernel, k->stride, k->padding };
    s.x = memory(k->n * k->in * k->size * k->size);
    s.w = memory(k->out * k->in * k->kernel * k->kernel);
    s.y = memory(n_out);
    if (df_pool_create(NULL, &df_mem_system, threads, &s.pool) != DEFT_OK) exit(1);
    begin_ours(&s, rt, fast);
    if (loops)
        s.table = fastest(&s);
    else
        s.peer = peer_conv_open(k->n, k->in, k->size, k->out, k->kernel, k->stride, k->padding);
    if (loops && !fast) check(&s, (size_t)n_out);
    const bench_fn reference = loops ? plain : library;
    double t_ours, t_ref;
    const int calls = bench_calls(ours, &s, 0.003);
    if (loops || s.peer) {
        bench_pair(ours, &s, reference, &s, b->quick ? 5 : 15, calls, &t_ours, &t_ref);
        bench_row(b, label, t_ours * 1e6, "us", loops ? "C loops, -O3 -march=native" : "oneDNN",
                  t_ref * 1e6, BENCH_RATIO_AT_MOST, 1.0);
    } else {
        t_ours = bench_one(ours, &s, b->quick ? 5 : 15, calls);
        bench_row_without(b, label, t_ours * 1e6, "us", "oneDNN", "not here", 1.0);
    }
    end_ours(&s);
    peer_conv_close(&s.peer);
    df_pool_destroy(&s.pool);
    deft_runtime_destroy(&rt);
    free(s.x);
    free(s.w);
    free(s.y);
}

void bench_images(bench *b)
{
    static const image_case cases[] = {
        { "depthwise 3x3, 1x64x56x56", DEPTHWISE, 1, 64, 56, 64, 3, 1, 1 },
        { "depthwise 3x3, 8x32x112x112", DEPTHWISE, 8, 32, 112, 32, 3, 1, 1 },
        { "depthwise 3x3 / 2, 1x64x56x56", DEPTHWISE, 1, 64, 56, 64, 3, 2, 1 },
        { "max-pool 2x2 / 2, 1x64x56x56", MAX_POOL, 1, 64, 56, 64, 2, 2, 0 },
        { "max-pool 3x3 / 2, 1x64x112x112", MAX_POOL, 1, 64, 112, 64, 3, 2, 1 },
        { "avg-pool 2x2 / 2, 1x64x56x56", AVG_POOL, 1, 64, 56, 64, 2, 2, 0 },
        { "avg-pool 3x3 / 2, 1x64x112x112", AVG_POOL, 1, 64, 112, 64, 3, 2, 1 },
        { "conv 3x3, 1x64x56x56 to 64", DENSE, 1, 64, 56, 64, 3, 1, 1 },
        { "conv 3x3, 8x64x28x28 to 64", DENSE, 8, 64, 28, 64, 3, 1, 1 },
        { "conv 3x3, 1x128x28x28 to 128", DENSE, 1, 128, 28, 128, 3, 1, 1 },
        { "conv 7x7 / 2, 1x3x224x224 to 64", DENSE, 1, 3, 224, 64, 7, 2, 3 },
        { "conv 1x1, 1x64x56x56 to 256", DENSE, 1, 64, 56, 256, 1, 1, 0 },
        { "conv 1x1, 8x64x28x28 to 128", DENSE, 8, 64, 28, 128, 1, 1, 0 },
        { "residual block, 1x64x56x56", BLOCK, 1, 64, 56, 64, 3, 1, 1 },
        { "residual block, step, 4x64x28x28", BLOCK_STEP, 4, 64, 28, 64, 3, 1, 1 },
    };
    for (uint32_t threads = 1; threads <= 2; threads++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (int fast = 0; fast < 2; fast++) one_case(b, &cases[i], threads, fast);
}
