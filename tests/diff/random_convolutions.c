/* SPDX-License-Identifier: Apache-2.0
 *
 * Random convolutions of 3 x 3 in fast mode, with numbers of channels and filters for which they
 * are computed with fewer multiplications (runtime/winograd), and, on machines with tiles of AMX,
 * as products of thirds (runtime/thirds). Some images and weights hold infinities, NaN or huge
 * numbers. Beside the strict results, those that are not finite are equal. Others are as near as
 * the elements that their tile reads allow.
 *
 *   random_convolutions [--quick | --full | COUNT [SEED]] [-v]
 *
 * A program follows from its seed alone. The bits tell which way a convolution went: the test fails
 * when all are strict, or when those of a machine with tiles are all the same without them.
 */
#include "../support/budget.h"
#include "../support/oracle.h"
#include "runtime/matmul.h"
#include "runtime/winograd/winograd_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))

enum { SIDE = 3, TAPS = SIDE * SIDE };

typedef struct program {
    uint64_t seed, state;
    int64_t n, groups, channels, filters; /* channels and filters of one group */
    int64_t extent[2], padding[2], out[2];
    int view;  /* how the images lie: as they are, channels last, in wider rows */
    int after; /* nothing, a bias, an activation, both */
    float *image, *weights, *bias;
    int64_t n_image, n_weights, n_out;
} program;

static long n_failed, n_fewer, n_by_tiles;
static bool is_verbose;

static int64_t drawn(program *p, int64_t least, int64_t most)
{
    return least + (int64_t)((oracle_next(&p->state) >> 33) % (uint64_t)(most - least + 1));
}

static float *numbers(program *p, int64_t n)
{
    float *const v = oracle_alloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = (float)drawn(p, -1000, 1000) / 512;
    return v;
}

static void put_specials(program *p, float *v, int64_t n)
{
    static const float special[] = { INFINITY, -INFINITY, NAN };
    const bool is_huge = drawn(p, 0, 1);
    for (int64_t i = drawn(p, 1, 3); i > 0; i--)
        v[drawn(p, 0, n - 1)] = is_huge ? ldexpf(drawn(p, 0, 1) ? -1 : 1, (int)drawn(p, 26, 40))
                                        : special[drawn(p, 0, 2)];
}

static program make(uint64_t seed)
{
    program p = { .seed = seed, .state = oracle_mix(seed, 21) };
    const bool is_wide = drawn(&p, 0, 2) > 0;
    p.n = drawn(&p, 1, 3);
    p.groups = drawn(&p, 0, 3) ? 1 : 2;
    p.channels = is_wide ? drawn(&p, 32, drawn(&p, 0, 2) ? 64 : 130) : drawn(&p, 1, 20);
    p.filters = is_wide ? drawn(&p, 32, drawn(&p, 0, 2) ? 64 : 200) : drawn(&p, 5, 70);
    for (int x = 0; x < 2; x++) {
        p.extent[x] = drawn(&p, is_wide ? 8 : 3, drawn(&p, 0, 3) ? 12 : 40);
        p.padding[x] = drawn(&p, 0, 2);
        p.out[x] = p.extent[x] + 2 * p.padding[x] - SIDE + 1;
    }
    p.view = (int)drawn(&p, 0, 2);
    p.after = (int)drawn(&p, 0, 3);
    p.n_image = p.n * p.groups * p.channels * p.extent[0] * p.extent[1];
    p.n_weights = p.groups * p.filters * p.channels * TAPS;
    p.n_out = p.n * p.groups * p.filters * p.out[0] * p.out[1];
    p.image = numbers(&p, p.n_image);
    p.weights = numbers(&p, p.n_weights);
    p.bias = numbers(&p, p.groups * p.filters);
    if (drawn(&p, 0, 2) > 0) put_specials(&p, p.image, p.n_image);
    if (drawn(&p, 0, 5) == 0) put_specials(&p, p.weights, p.n_weights);
    return p;
}

/* The images, from memory in which channels lie side by side, or rows have more columns. */
static deft_tensor *images(deft_ctx *cx, const program *p)
{
    enum { MORE = 3 };
    const int64_t channels = p->groups * p->channels, rows = p->extent[0], columns = p->extent[1];
    const int64_t wide = p->view == 2 ? columns + MORE : columns;
    const size_t bytes = (size_t)(p->n * channels * rows * wide) * sizeof(float);
    float *const v = oracle_alloc(bytes);
    memset(v, 0x7f, bytes);
    for (int64_t i = 0; i < p->n_image; i++) {
        const int64_t x = i % columns, y = i / columns % rows, c = i / (columns * rows) % channels;
        const int64_t n = i / (columns * rows * channels);
        v[p->view == 1 ? ((n * rows + y) * columns + x) * channels + c
                       : ((n * channels + c) * rows + y) * wide + x] = p->image[i];
    }
    const deft_shape s = p->view == 1 ? DEFT_SHAPE(p->n, rows, columns, channels)
                                      : DEFT_SHAPE(p->n, channels, rows, wide);
    deft_tensor *const t = deft_from(cx, s, DEFT_F32, v, bytes);
    free(v);
    return p->view == 1 ? deft_permute(t, DEFT_AXES(0, 3, 1, 2))
                        : deft_slice(t, DEFT_FULL, DEFT_FULL, DEFT_FULL, DEFT_R(0, columns));
}

static float *run(deft_ctx *cx, const program *p)
{
    float *const out = oracle_alloc((size_t)p->n_out * sizeof *out);
    const deft_scope s = deft_scope_begin(cx);
    const int64_t filters = p->groups * p->filters;
    deft_tensor *const w = deft_from(cx, DEFT_SHAPE(filters, p->channels, SIDE, SIDE), DEFT_F32,
                                     p->weights, (size_t)p->n_weights * sizeof *p->weights);
    deft_tensor *const bias =
        deft_from(cx, DEFT_SHAPE(filters), DEFT_F32, p->bias, (size_t)filters * sizeof *p->bias);
    const deft_conv2d_options o = { .size = sizeof o,
                                    .padding = { p->padding[0], p->padding[1] },
                                    .groups = p->groups,
                                    .bias = p->after & 1 ? bias : NULL };
    deft_tensor *y = deft_conv2d(images(cx, p), w, &o);
    if (p->after & 2) y = deft_maximum(y, 0.25);
    if (deft_read(y, DEFT_F32, out, (size_t)p->n_out * sizeof *out) != DEFT_OK) {
        n_failed++;
        printf("seed %" PRIu64 ": %s\n", p->seed, deft_message(cx));
    }
    deft_clear(cx);
    if (deft_scope_end(s) != DEFT_OK) n_failed++;
    return out;
}

/* The largest finite magnitude of n elements, `step` apart. */
static double largest(const float *v, int64_t n, int64_t step, double most)
{
    for (int64_t i = 0; i < n; i++)
        if (isfinite(v[i * step]) && fabsf(v[i * step]) > most) most = fabsf(v[i * step]);
    return most;
}

/* The largest magnitude among the elements that the tile of this result reads. It has results of
 * two rows and two columns. */
static double largest_near(const program *p, int64_t image, int64_t group, int64_t y, int64_t x)
{
    const int64_t plane = p->extent[0] * p->extent[1];
    const float *const first = p->image + (image * p->groups + group) * p->channels * plane;
    double most = 0;
    const int64_t y0 = (y & -2) - p->padding[0], x0 = (x & -2) - p->padding[1];
    for (int64_t i = y0; i <= y0 + SIDE; i++)
        for (int64_t j = x0; j <= x0 + SIDE; j++)
            if (i >= 0 && j >= 0 && i < p->extent[0] && j < p->extent[1])
                most = largest(first + i * p->extent[1] + j, p->channels, plane, most);
    return most;
}

/* by_tiles: huge elements, which are no sums of thirds, have the strict results. */
static void check_near(const program *p, const char *path, bool by_tiles, const float *is,
                       const float *wanted)
{
    const int64_t k = p->channels * TAPS;
    int64_t at = 0;
    for (int64_t n = 0; n < p->n; n++)
        for (int64_t f = 0; f < p->groups * p->filters; f++) {
            const double weight = largest(p->weights + f * k, k, 1, 0);
            for (int64_t y = 0; y < p->out[0]; y++)
                for (int64_t x = 0; x < p->out[1]; x++, at++) {
                    const float a = is[at], b = wanted[at];
                    if (a == b || (isnan(a) && isnan(b))) continue;
                    const double off = fabs((double)a - (double)b);
                    const double unit = 0x1p-24 * 16 * (double)k * weight;
                    const double most = largest_near(p, n, f / p->filters, y, x);
                    const bool is_exact = by_tiles && (most >= 0x1p26 || weight >= 0x1p26);
                    if (isfinite(a) && isfinite(b) && off < unit * most && !is_exact) continue;
                    if (n_failed++ < 10)
                        printf("seed %" PRIu64 ", %s: filter %d at %d,%d of image %d is %g, not "
                               "%g\n",
                               p->seed, path, (int)f, (int)y, (int)x, (int)n, (double)a, (double)b);
                    return;
                }
        }
}

static bool differ(const program *p, const float *a, const float *b)
{
    return oracle_difference(DEFT_F32, a, b, (size_t)p->n_out) != (size_t)p->n_out;
}

enum { STRICT, ON_ONE, ON_THREE, WITHOUT_TILES };

static void check(uint64_t seed, const oracle_path *paths, size_t n_paths)
{
    program p = make(seed);
    float *out[4] = { NULL };
    if (is_verbose)
        fprintf(stderr, "%" PRIu64 ": %d x %d channels to %d filters, %d images of %d x %d\n", seed,
                (int)p.groups, (int)p.channels, (int)p.filters, (int)p.n, (int)p.extent[0],
                (int)p.extent[1]);
    for (size_t i = 0; i < n_paths; i++) out[i] = run(paths[i].cx, &p);
    const bool by_tiles = n_paths == LEN(out) && differ(&p, out[ON_ONE], out[WITHOUT_TILES]);
    for (size_t i = 1; i < n_paths; i++)
        check_near(&p, paths[i].name, by_tiles && i != WITHOUT_TILES, out[i], out[STRICT]);
    if (n_paths == LEN(out)) {
        n_fewer += differ(&p, out[ON_ONE], out[STRICT]);
        n_by_tiles += by_tiles;
        if (differ(&p, out[ON_ONE], out[ON_THREE]) && n_failed++ < 10)
            printf("seed %" PRIu64 ": bits depend on the number of threads\n", seed);
    }
    for (size_t i = 0; i < n_paths; i++) free(out[i]);
    free(p.image), free(p.weights), free(p.bias);
}

int main(int argc, char **argv)
{
    oracle_path paths[] = {
        [STRICT] = { .name = "strict", .tier = DEFT_TIER_INTERPRET, .n_threads = 2 },
        [ON_ONE] = { .name = "fast",
                     .tier = DEFT_TIER_FULL,
                     .n_threads = 1,
                     .numerics = DEFT_FAST },
        [ON_THREE] = { .name = "fast on three threads",
                       .tier = DEFT_TIER_FULL,
                       .n_threads = 3,
                       .numerics = DEFT_FAST },
        [WITHOUT_TILES] = { .name = "fast without tiles",
                            .tier = DEFT_TIER_FULL,
                            .n_threads = 2,
                            .numerics = DEFT_FAST },
    };
    oracle_asked asked = { .count = 200, .quick = 30, .full = 10000, .seed = 1 };
    for (int i = 1; i < argc; i++)
        if (!oracle_takes(&asked, argv[i])) is_verbose |= !strcmp(argv[i], "-v");
    const double t0 = oracle_now();
    size_t n_paths = oracle_open(paths, WITHOUT_TILES);
    if (n_paths == WITHOUT_TILES) {
        setenv("DEFT_AMX", "0", 1);
        n_paths += oracle_open(paths + WITHOUT_TILES, 1);
        unsetenv("DEFT_AMX");
    }
    uint64_t n = 0;
    for (; n < asked.count && (n < 6 || test_time_left(1)); n++)
        check(asked.seed + n, paths, n_paths);
    oracle_close(paths, n_paths);
    printf("%" PRIu64 " convolutions on %zu paths, %ld with fewer multiplications, %ld by tiles; "
           "%ld failures, %.1f s\n",
           n, n_paths, n_fewer, n_by_tiles, n_failed, oracle_now() - t0);
    if (n_failed || n_paths < LEN(paths) || n < 20) return n_failed != 0;
    return (df_winograd_pick() && n_fewer == 0) || (df_matmul_enable_tiles() && n_by_tiles == 0);
}
