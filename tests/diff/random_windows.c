/* SPDX-License-Identifier: Apache-2.0
 *
 * Random convolutions and pools, also those with options of their own, with what stands around them
 * in networks: operands that are views or computed, a bias, a normalization, an activation, a
 * residual. Values, and gradients of all operands, have equal bits on every path: recorded at once,
 * replayed, and by deft_vmap. In fast mode they are near.
 *
 *   random_windows [COUNT [SEED]] [--quick | --full] [-v]
 *
 * A program follows from its seed alone. In one of three, operands hold NaN, infinities and
 * denormals. The test fails when no plan reads windows without storing them, or none computes in
 * the tiles of a product what follows a convolution.
 */
#include "../support/budget.h"
#include "../support/oracle.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))

enum { X, WEIGHTS, BIAS, N_IN, N_OUT = 1 + N_IN, MOST = 1 << 17 };

static oracle_path paths[] = {
    { .name = "reference", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
    { .name = "interp", .tier = DEFT_TIER_INTERPRET, .n_threads = 2 },
    { .name = "llvm", .tier = DEFT_TIER_FULL, .n_threads = 3, .variant_launches = 1 },
    { .name = "llvm, 16 bytes", .tier = DEFT_TIER_FULL, .max_vector_bytes = 16, .n_threads = 1 },
    { .name = "fast", .tier = DEFT_TIER_FULL, .n_threads = 2, .numerics = DEFT_FAST },
};

/* How a program is run. */
enum { AT_ONCE, CAPTURED, BY_VMAP, N_WAYS };

typedef struct program {
    uint64_t seed;
    deft_dtype dtype;
    bool is_hard;
    /* 0 to 3: convolution; 4: maximum; 5: mean; 6: neighbours of padded images; 7: transposed
     * convolution; 8: convolution with planes; 9: maximum with indices; 10: mean of windows that
     * reach beyond the padding; 11: windows as columns, added up */
    int what;
    /* what x is: itself, channels last in memory, flipped, computed, part of more, one column */
    int view;
    /* what comes after: nothing, activation, normalization, the same twice, a residual, a residual
     * that lies in another order, several results, a part of more */
    int after;
    deft_shape x, w, bias;
    int64_t stride[2], padding[2], dilation[2], groups;
    bool has_gradient;
} program;

static long n_failed, n_read, n_split;
static bool is_verbose;

static int64_t drawn(uint64_t *state, int64_t least, int64_t most)
{
    return least + (int64_t)(oracle_next(state) % (uint64_t)(most - least + 1));
}

/* Mostly small, at times longer than the vectors of any machine. */
static int64_t drawn_side(uint64_t *state, int64_t least)
{
    return drawn(state, least, oracle_next(state) % 4 ? least + 9 : least + 40);
}

static bool is_convolution(int what)
{
    return what < 4 || what == 7 || what == 8;
}

static program draw(uint64_t seed)
{
    uint64_t s = oracle_mix(seed, 77);
    program p = { .seed = seed, .dtype = drawn(&s, 0, 2) ? DEFT_F32 : DEFT_F64 };
    static const int64_t batches[] = { 1, 1, 2, 3 };
    p.is_hard = drawn(&s, 0, 2) == 0;
    p.what = (int)drawn(&s, 0, 11);
    p.view = (int)drawn(&s, 0, 5);
    p.after = (int)drawn(&s, 0, 7);
    p.has_gradient = drawn(&s, 0, 1);
    /* Products of few, some and many rows divide their work differently. */
    const int64_t per_group = drawn(&s, 0, 7) ? drawn(&s, 1, 6) : drawn(&s, 30, 50);
    const bool is_3x3 = drawn(&s, 0, 2) == 0; /* that moves by 1 */
    p.groups = drawn(&s, 0, 1) ? 1 : drawn(&s, 2, 5);
    const int64_t depth = drawn(&s, 0, 3) ? drawn(&s, 1, 3) : 1;
    int64_t kernel[2], side[2];
    for (int i = 0; i < 2; i++) {
        kernel[i] = is_3x3 ? 3 : drawn(&s, 1, 3 + (drawn(&s, 0, 7) == 0 ? 3 : 0));
        p.stride[i] = is_3x3 ? 1 : drawn(&s, 1, 3);
        p.dilation[i] = is_3x3 || p.what == 4 || p.what == 5 ? 1 : drawn(&s, 1, 2);
        p.padding[i] = is_convolution(p.what) ? drawn(&s, 0, 2) : drawn(&s, 0, kernel[i] / 2);
        const int64_t reach = p.dilation[i] * (kernel[i] - 1) + 1 - 2 * p.padding[i];
        side[i] = drawn_side(&s, reach > 1 ? reach : 1);
        if (p.what == 7) side[i] += 4; /* padding takes elements away */
        if (i == 1 && !is_convolution(p.what) && drawn(&s, 0, 1))
            side[i] += 30; /* rows of several vectors */
    }
    p.x = DEFT_SHAPE(batches[drawn(&s, 0, 3)], p.groups * depth, side[0], side[1]);
    p.w = DEFT_SHAPE(p.groups * per_group, depth, kernel[0], kernel[1]);
    if (!is_convolution(p.what)) p.w.dim[0] = p.x.dim[1];
    p.bias = DEFT_SHAPE(p.w.dim[0]);
    return p;
}

/* ---- one program ---- */

/* The images, from an operand that has its axes in another order, more columns, or one for all. */
static deft_tensor *viewed(const program *p, deft_tensor *x)
{
    switch (p->view) {
    case 1: return deft_permute(x, DEFT_AXES(0, 3, 1, 2));
    case 2: return deft_flip(x, DEFT_AXES(3));
    case 3: return deft_relu(x);
    case 4: return deft_slice(x, DEFT_FULL, DEFT_FULL, DEFT_FULL, DEFT_R(1, p->x.dim[3] + 1));
    case 5: return deft_expand(x, p->x);
    default: return x;
    }
}

static deft_shape shape_of(const program *p, int which)
{
    deft_shape s = which == X ? p->x : which == WEIGHTS ? p->w : p->bias;
    if (which == X && p->view == 1) s = DEFT_SHAPE(s.dim[0], s.dim[2], s.dim[3], s.dim[1]);
    if (which == X && p->view == 4) s.dim[3] += 2;
    if (which == X && p->view == 5) s.dim[3] = 1;
    return s;
}

/* y, but for one row and one column, which are at any distance from the edges, and what is before
 * another column. */
static deft_tensor *marked(const program *p, deft_tensor *y)
{
    deft_ctx *const cx = deft_ctx_of(y);
    const int64_t rows = deft_dim(y, 2), columns = deft_dim(y, 3);
    uint64_t s = oracle_mix(p->seed, 5);
    deft_tensor *const row = deft_iota(cx, DEFT_SHAPE(rows, 1), 0);
    deft_tensor *const column = deft_iota(cx, DEFT_SHAPE(columns), 0);
    const int64_t a = drawn(&s, 0, rows - 1), b = drawn(&s, 0, columns - 1);
    y = deft_where(deft_eq(column, deft_const_i(cx, b)), deft_neg(y), y);
    y = deft_where(deft_ne(row, deft_const_i(cx, a)), y, deft_mul(y, deft_const_f(cx, 3)));
    return deft_where(deft_lt(column, deft_const_i(cx, drawn(&s, 0, columns))), y, deft_square(y));
}

/* Each element of the images, and its neighbours at two places of a window, at steps of the stride.
 * Around the images is another number. A part of the padding may be read in another way, so that
 * what is computed where it is read is also stored. */
static deft_tensor *neighbours(const program *p, deft_tensor *x)
{
    const int64_t around[4] = { 0, 0, p->padding[0] + 1, p->padding[1] + 1 };
    const int64_t after[4] = { 0, p->groups % 3, p->padding[0], p->padding[1] };
    deft_tensor *const padded = deft_pad(x, around, after, DEFT_PAD_CONSTANT, 0.75);
    const int64_t rows = deft_dim(padded, 2), columns = deft_dim(padded, 3);
    deft_tensor *const a =
        deft_slice(padded, DEFT_FULL, DEFT_R(0, p->x.dim[1]), DEFT_RS(0, rows - 1, p->stride[0]),
                   DEFT_RS(0, columns - 1, p->stride[1]));
    deft_tensor *const b =
        deft_slice(padded, DEFT_FULL, DEFT_R(0, p->x.dim[1]), DEFT_RS(1, rows, p->stride[0]),
                   DEFT_RS(1, columns, p->stride[1]));
    deft_tensor *y = deft_sub(deft_mul(a, b), a);
    if (p->groups % 2) y = marked(p, y);
    if (p->dilation[0] == 2) return deft_mul(y, deft_sum(padded, DEFT_AXES(0, 1, 2, 3), 1));
    if (p->dilation[1] == 2) return deft_add(y, deft_max(deft_flatten(padded), DEFT_ALL_AXES, 0));
    return y;
}

/* Numbers of the shape of y, which depend on where they are. With `by_channel` the channels are
 * next to each other. */
static deft_tensor *residual(deft_tensor *y, bool by_channel)
{
    static const int forth[] = { 0, 2, 3, 1 };
    deft_ctx *const cx = deft_ctx_of(y);
    deft_shape s = deft_shape_get(y);
    for (int i = 0; i < 4 && by_channel; i++) s.dim[i] = deft_dim(y, forth[i]);
    const deft_dtype t = deft_dtype_of(y);
    deft_tensor *const channels = deft_reshape(deft_arange(cx, 0., (double)s.dim[1], 1., DEFT_F64),
                                               DEFT_SHAPE(s.dim[1], 1, 1));
    deft_tensor *const columns = deft_arange(cx, 0., (double)s.dim[3], 1., DEFT_F64);
    deft_tensor *const r =
        deft_cast(deft_expand(deft_sub(deft_sin(channels), deft_cos(columns)), s), t);
    if (!by_channel) return r;
    return deft_permute(deft_cumsum(r, 3), DEFT_AXES(0, 3, 1, 2));
}

/* What stands behind a convolution or a pool in a network. */
static deft_tensor *followed(deft_ctx *cx, const program *p, deft_tensor *y, deft_tensor *bias)
{
    if (p->after == 1) return deft_relu(y);
    if (p->after == 0) return y;
    if (p->after == 4 || p->after == 5)
        return deft_relu(deft_add(deft_mul(y, deft_const_f(cx, 0.5)), residual(y, p->after == 5)));
    y = deft_mul(y, deft_reshape(bias, DEFT_SHAPE(p->bias.dim[0], 1, 1)));
    if (p->after == 6) { /* the sum needs y itself, and so does the activation */
        deft_tensor *const mean = deft_mean(y, DEFT_AXES(0, 2, 3), 1);
        return deft_sub(deft_relu(y), mean);
    }
    if (p->after == 7) {
        const int64_t around[4] = { 0, 1, 1, 2 };
        return deft_pad(deft_relu(y), around, around, DEFT_PAD_CONSTANT, 0.25);
    }
    return p->after == 2 ? deft_relu(y) : deft_add(deft_mul(y, deft_const_f(cx, 0.5)), y);
}

/* ---- images of any number of sides ---- */

/* The transposed convolution with the weights [out, in / groups, ...], turned. */
static deft_tensor *transposed(const program *p, deft_tensor *x, deft_tensor *w,
                               const deft_conv_options *o)
{
    const int64_t g = p->groups, out = p->w.dim[0] / g, in = p->w.dim[1];
    const int64_t rows = p->w.dim[2], columns = p->w.dim[3];
    deft_tensor *const parted = deft_reshape(w, DEFT_SHAPE(g, out, in, rows, columns));
    return deft_conv_transpose(
        x, deft_reshape(deft_transpose(parted, 1, 2), DEFT_SHAPE(g * in, out, rows, columns)), o);
}

/* A plane of a convolution of three sides: x has two planes, and so has the window. */
static deft_tensor *plane_of(deft_ctx *cx, deft_tensor *x, deft_tensor *w,
                             const deft_conv_options *o)
{
    deft_conv_options with_planes = *o;
    for (int i = 0; i < 2; i++) {
        with_planes.stride[i + 1] = o->stride[i];
        with_planes.padding[i + 1] = o->padding[i];
        with_planes.dilation[i + 1] = o->dilation[i];
    }
    with_planes.stride[0] = with_planes.dilation[0] = with_planes.padding[0] = 1;
    deft_tensor *const half = deft_mul(w, deft_const_f(cx, 0.5));
    deft_tensor *const planes = deft_stack((deft_tensor *[]){ x, deft_neg(x) }, 2, 2);
    deft_tensor *const window = deft_stack((deft_tensor *[]){ w, half }, 2, 2);
    deft_tensor *const y = deft_conv(planes, window, &with_planes);
    return deft_slice(y, DEFT_FULL, DEFT_FULL, DEFT_AT(1));
}

static deft_tensor *with_options(deft_ctx *cx, const program *p, deft_tensor *x,
                                 deft_tensor *const *in)
{
    const deft_conv_options conv = { .size = sizeof conv,
                                     .stride = { p->stride[0], p->stride[1] },
                                     .padding = { p->padding[0], p->padding[1] },
                                     .dilation = { p->dilation[0], p->dilation[1] },
                                     .groups = p->groups };
    const deft_pool_options pool = { .size = sizeof pool,
                                     .kernel = { p->w.dim[2], p->w.dim[3] },
                                     .stride = { p->stride[0], p->stride[1] },
                                     .padding = { p->padding[0], p->padding[1] },
                                     .dilation = { p->dilation[0], p->dilation[1] },
                                     .ceil_mode = p->groups % 2,
                                     .excludes_padding = p->x.dim[1] % 2 };
    deft_tensor *indices, *y;
    switch (p->what) {
    case 7: return transposed(p, x, in[WEIGHTS], &conv);
    case 8: return plane_of(cx, x, in[WEIGHTS], &conv);
    case 9:
        y = deft_max_pool(x, &pool, &indices);
        return deft_add(y, deft_mul(deft_cast(indices, p->dtype), deft_const_f(cx, 0.125)));
    case 10: return deft_avg_pool(x, &pool);
    default: return deft_fold(deft_unfold(x, &pool), DEFT_SHAPE(p->x.dim[2], p->x.dim[3]), &pool);
    }
}

static deft_tensor *value_of(deft_ctx *cx, const program *p, deft_tensor *const *in)
{
    deft_tensor *const x = viewed(p, in[X]);
    const deft_pool2d_options pool = { .size = sizeof pool,
                                       .kernel = { p->w.dim[2], p->w.dim[3] },
                                       .stride = { p->stride[0], p->stride[1] },
                                       .padding = { p->padding[0], p->padding[1] } };
    const deft_conv2d_options conv = { .size = sizeof conv,
                                       .stride = { p->stride[0], p->stride[1] },
                                       .padding = { p->padding[0], p->padding[1] },
                                       .dilation = { p->dilation[0], p->dilation[1] },
                                       .groups = p->groups,
                                       .bias = p->what % 2 ? in[BIAS] : NULL };
    deft_tensor *y = p->what == 4   ? deft_max_pool2d(x, &pool)
                     : p->what == 5 ? deft_avg_pool2d(x, &pool)
                     : p->what == 6 ? neighbours(p, x)
                     : p->what > 6  ? with_options(cx, p, x, in)
                                    : deft_conv2d(x, in[WEIGHTS], &conv);
    return y ? followed(cx, p, y, in[BIAS]) : NULL;
}

/* The value, then the gradients of the operands; those that it does not depend on are zeros. */
static deft_status run(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                       size_t n_out, void *user)
{
    const program *const p = user;
    (void)n_in, (void)n_out;
    out[0] = value_of(cx, p, in);
    if (p->has_gradient && out[0]) {
        /* Each operand takes part, so that it has a gradient. */
        deft_tensor *loss = deft_sum(deft_mul(out[0], deft_sin(out[0])), DEFT_ALL_AXES, 0);
        for (int i = 0; i < N_IN; i++)
            loss = deft_add(loss, deft_mul(deft_sum(in[i], DEFT_ALL_AXES, 0), deft_const_f(cx, 0)));
        if (!deft_grad(&loss, NULL, 1, in, N_IN, NULL, out + 1)) return deft_error(cx);
    } else {
        for (int i = 0; i < N_IN; i++) out[1 + i] = deft_abs(in[i]);
    }
    return deft_error(cx);
}

/* ---- on one path ---- */

typedef struct result {
    char *data[N_OUT];
    size_t n[N_OUT];
} result;

static char *image[N_IN];
static bool is_large; /* the program at hand has a result of more than MOST elements: left out */

static bool read_all(deft_ctx *cx, const program *p, deft_tensor *const *out, result *r)
{
    for (int i = 0; i < N_OUT; i++) {
        if (!out[i]) return false;
        r->n[i] = (size_t)deft_numel(out[i]);
        is_large |= r->n[i] > MOST;
        if (is_large) return false;
        if (deft_read(out[i], p->dtype, r->data[i], r->n[i] * deft_dtype_size(p->dtype)) != DEFT_OK)
            return false;
    }
    static char plan[1 << 16];
    deft_show(cx, "plan", plan, sizeof plan);
    n_read += strstr(plan, "    windows") != NULL;
    n_split += strstr(plan, " columns=") != NULL;
    return true;
}

static bool run_way(deft_ctx *cx, program *p, int way, result *r)
{
    deft_tensor *in[N_IN], *out[N_OUT] = { NULL };
    bool ok = true;
    const deft_scope s = deft_scope_begin(cx);
    for (int i = 0; i < N_IN; i++) {
        deft_shape shape = shape_of(p, i);
        const size_t size = (size_t)oracle_numel(&shape) * deft_dtype_size(p->dtype);
        if (way == BY_VMAP && i == X) { /* the images are examples, each of a batch of one */
            memmove(shape.dim + 1, shape.dim, 4 * sizeof *shape.dim);
            shape.dim[1] = 1;
            shape.rank = 5;
        }
        in[i] = deft_from(cx, shape, p->dtype, image[i], size);
    }
    if (way == AT_ONCE) {
        ok = run(cx, in, N_IN, out, N_OUT, p) == DEFT_OK && read_all(cx, p, out, r);
    } else if (way == BY_VMAP) {
        const int axes[N_IN] = { 0, DEFT_NOT_MAPPED, DEFT_NOT_MAPPED };
        program one = *p;
        one.x.dim[0] = 1;
        ok = deft_vmap(cx, run, &one, in, axes, N_IN, out, NULL, N_OUT) && read_all(cx, p, out, r);
    } else {
        deft_capture *c = deft_capture_create(cx, run, p);
        for (int turn = 0; turn < 3 && ok; turn++)
            ok = deft_capture_call(c, in, N_IN, out, N_OUT) == DEFT_OK;
        ok = ok && read_all(cx, p, out, r);
        deft_capture_destroy(&c);
    }
    if (!ok && !is_large) printf("seed %llu: %s\n", (unsigned long long)p->seed, deft_message(cx));
    if (deft_scope_end(s) != DEFT_OK) deft_clear(cx);
    return ok;
}

static double element(deft_dtype t, const char *data, size_t k)
{
    return t == DEFT_F32 ? (double)((const float *)(const void *)data)[k]
                         : ((const double *)(const void *)data)[k];
}

/* Compares results in fast mode. Only their sums are near, because a sum that is nearly 0 may have
 * another sign, which an activation and its gradient see. The loss has the sine of the values: the
 * larger these are, the less is left of the digits of a gradient. */
static void compare_fast(const program *p, int way, const result *a, const result *b)
{
    const double most = p->dtype == DEFT_F32 ? 1e-4 : 1e-12;
    double largest = 1;
    for (size_t k = 0; k < a->n[0]; k++)
        largest = fmax(largest, fabs(element(p->dtype, a->data[0], k)));
    for (int i = 0; i < N_OUT && !p->is_hard; i++) {
        double sum = 0, off = 0;
        for (size_t k = 0; k < a->n[i]; k++) {
            const double x = element(p->dtype, a->data[i], k);
            sum += fabs(x);
            off += fabs(x - element(p->dtype, b->data[i], k));
        }
        const double limit = i == 0 ? most : most * largest;
        if (a->n[i] == b->n[i] && off <= limit * (sum + (double)a->n[i])) continue;
        n_failed++;
        printf("seed %llu, fast, way %d: result %d is off by %g of %g\n",
               (unsigned long long)p->seed, way, i, off, sum);
    }
}

static void compare(const program *p, const char *path, int way, const result *a, const result *b)
{
    char at[64], of[64];
    for (int i = 0; i < N_OUT; i++) {
        const size_t k = oracle_difference(p->dtype, a->data[i], b->data[i], a->n[i]);
        if (a->n[i] == b->n[i] && k == a->n[i]) continue;
        n_failed++;
        printf("seed %llu, %s, way %d: result %d is %s at %zu, on the reference %s\n",
               (unsigned long long)p->seed, path, way, i,
               oracle_text(p->dtype, b->data[i], k, at, sizeof at), k,
               oracle_text(p->dtype, a->data[i], k, of, sizeof of));
        return;
    }
}

static void check(uint64_t seed, size_t n_paths)
{
    static result r[2];
    program p = draw(seed);
    char x[64], w[64];
    is_large = false;
    for (int i = 0; i < N_IN; i++) {
        const deft_shape s = shape_of(&p, i);
        if (oracle_numel(&s) > MOST) return;
        oracle_fill(p.dtype, image[i], (size_t)oracle_numel(&s), oracle_mix(seed, (uint64_t)i),
                    p.is_hard ? ORACLE_HARD : ORACLE_TAME);
    }
    for (int k = 0; k < N_OUT && !r[0].data[k]; k++)
        for (int i = 0; i < 2; i++) r[i].data[k] = oracle_alloc(MOST * sizeof(double));
    if (is_verbose)
        fprintf(stderr,
                "%llu: kind %d, view %d, after %d, x %s, w %s, stride %d %d, padding %d %d\n",
                (unsigned long long)seed, p.what, p.view, p.after,
                oracle_shape_text(&p.x, x, sizeof x), oracle_shape_text(&p.w, w, sizeof w),
                (int)p.stride[0], (int)p.stride[1], (int)p.padding[0], (int)p.padding[1]);
    for (int way = AT_ONCE; way < N_WAYS; way++) {
        const bool is_read = way == CAPTURED || run_way(paths[0].cx, &p, way, &r[0]);
        if (is_large) return;
        n_failed += !is_read;
        for (size_t i = 0; i < n_paths; i++) {
            if (i == 0 && way != CAPTURED) continue;
            if (!run_way(paths[i].cx, &p, way, &r[1]))
                n_failed++;
            else if (paths[i].numerics == DEFT_FAST)
                compare_fast(&p, way, &r[0], &r[1]);
            else
                compare(&p, paths[i].name, way, &r[0], &r[1]);
        }
    }
}

int main(int argc, char **argv)
{
    oracle_asked asked = { .count = 300, .quick = 40, .full = 20000, .seed = 1 };
    for (int i = 1; i < argc; i++)
        if (!oracle_takes(&asked, argv[i])) is_verbose |= !strcmp(argv[i], "-v");
    const double t0 = oracle_now();
    const size_t n_paths = oracle_open(paths, LEN(paths));
    for (int i = 0; i < N_IN; i++) image[i] = oracle_alloc(MOST * sizeof(double));
    uint64_t n = 0;
    for (; n < asked.count && (n < 4 || test_time_left(1)); n++) check(asked.seed + n, n_paths);
    oracle_close(paths, n_paths);
    printf("%" PRIu64
           " programs on %zu paths, %ld plans read windows, %ld go on in tiles of images, "
           "%ld failures, %.1f s\n",
           n, n_paths, n_read, n_split, n_failed, oracle_now() - t0);
    for (int i = 0; i < N_IN; i++) free(image[i]);
    return n_failed || n_read == 0 || n_split == 0;
}
