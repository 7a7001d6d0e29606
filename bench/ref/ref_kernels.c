/* SPDX-License-Identifier: Apache-2.0
 *
 * See ref_kernels.h. Compiled with -DREF_TABLE=ref_strict_gcc -DREF_NAME="strict gcc" and, for the
 * strict ones, -DREF_STRICT. Plain loops that both compilers vectorize; inner loops run over a
 * constant 64 lanes, so that the accumulators of the strict order are vector registers or, at
 * worst, 256 bytes of L1.
 *
 * The order of a strict sum: element i goes to accumulator i mod 64 of its block of 4096,
 * accumulators start at -0.0, halves are folded, block sums are joined by a binary counter:
 * equal-sized neighbours first, at the end from the newest down.
 */
#include "ref_kernels.h"

#include "recipe_math.h"

#include <math.h>
#include <string.h>

enum { LANES = REF_LANES, BLOCK = REF_BLOCK, TREE_DEPTH = 52, STRIP = 16 };

#define INLINE static inline __attribute__((always_inline))

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- sums ---- */

INLINE void clear(float acc[LANES])
{
    for (int j = 0; j < LANES; j++) acc[j] = -0.0f;
}

INLINE float fold(float acc[LANES])
{
    for (int h = LANES / 2; h > 0; h /= 2)
        for (int j = 0; j < h; j++) acc[j] += acc[j + h];
    return acc[0];
}

typedef struct tree {
    float
        stack[TREE_DEPTH]; /* [0, top) are set: clearing it all would cost more than a short row */
    int top;
    uint64_t pushed;
} tree;

INLINE void start(tree *t)
{
    t->top = 0;
    t->pushed = 0;
}

INLINE void push(tree *t, float partial)
{
    t->stack[t->top++] = partial;
    for (uint64_t b = ++t->pushed; !(b & 1); b >>= 1) {
        t->stack[t->top - 2] += t->stack[t->top - 1];
        t->top--;
    }
}

INLINE float finish(const tree *t)
{
    if (!t->top) return 0;
    float s = t->stack[t->top - 1];
    for (int i = t->top - 2; i >= 0; i--) s = t->stack[i] + s;
    return s;
}

static float join(const float *partials, int64_t n)
{
    tree t;
    start(&t);
    for (int64_t b = 0; b < n; b++) push(&t, partials[b]);
    return finish(&t);
}

/* ---- maps ---- */

static void gelu(float *restrict out, const float *restrict x, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) out[i] = rm_gelu(x[i]);
}

static void black_scholes(float *restrict call, float *restrict put, const float *restrict s,
                          const float *restrict k, const float *restrict t, float r, float vol,
                          float drift, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        const float w = vol * sqrtf(t[i]);
        const float d1 = (rm_log(s[i] / k[i]) + drift * t[i]) / w;
        const float d2 = d1 - w;
        const float n1 = (rm_erf(d1 * 0.70710678f) + 1.0f) * 0.5f;
        const float n2 = (rm_erf(d2 * 0.70710678f) + 1.0f) * 0.5f;
        const float disc = k[i] * rm_exp(t[i] * -r);
        call[i] = s[i] * n1 - disc * n2;
        put[i] = disc * (1.0f - n2) - s[i] * (1.0f - n1);
    }
}

static void adam(float *restrict p, float *restrict m, float *restrict v, const float *restrict g,
                 float b1, float b2, float c2, float rate, float eps, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        const float mi = m[i] + b1 * (g[i] - m[i]);
        const float vi = v[i] + b2 * (g[i] * g[i] - v[i]);
        m[i] = mi;
        v[i] = vi;
        p[i] -= (mi / (sqrtf(vi / c2) + eps)) * rate;
    }
}

/* ---- mean squared difference ---- */

static float mse_block(const float *restrict a, const float *restrict b, int64_t n)
{
    float acc[LANES];
    clear(acc);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const float d = a[i + j] - b[i + j];
            acc[j] += d * d;
        }
    for (int j = 0; i + j < n; j++) {
        const float d = a[i + j] - b[i + j];
        acc[j] += d * d;
    }
    return fold(acc);
}

static void mse_blocks(float *restrict partials, const float *restrict a, const float *restrict b,
                       int64_t n, int64_t block_begin, int64_t block_end)
{
    for (int64_t k = block_begin; k < block_end; k++) {
        const int64_t at = k * BLOCK;
        partials[k] = mse_block(a + at, b + at, least(n - at, BLOCK));
    }
}

static float mse(const float *a, const float *b, int64_t n)
{
    tree t;
    start(&t);
    for (int64_t at = 0; at < n; at += BLOCK)
        push(&t, mse_block(a + at, b + at, least(n - at, BLOCK)));
    return finish(&t) / (float)n;
}

/* ---- softmax ---- */

/* May drop a NaN: its exp(x - max) is NaN whatever the max, and so then is the whole row. */
static float row_max(const float *restrict x, int64_t n)
{
    float acc[LANES];
    for (int j = 0; j < LANES; j++) acc[j] = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) acc[j] = acc[j] > x[i + j] ? acc[j] : x[i + j];
    for (int j = 0; i + j < n; j++) acc[j] = acc[j] > x[i + j] ? acc[j] : x[i + j];
    for (int h = LANES / 2; h > 0; h /= 2)
        for (int j = 0; j < h; j++) acc[j] = acc[j] > acc[j + h] ? acc[j] : acc[j + h];
    return acc[0];
}

static float exp_block(float *restrict out, const float *restrict x, float top, int64_t n)
{
    float acc[LANES];
    clear(acc);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const float e = rm_exp(x[i + j] - top);
            out[i + j] = e;
            acc[j] += e;
        }
    for (int j = 0; i + j < n; j++) {
        out[i + j] = rm_exp(x[i + j] - top);
        acc[j] += out[i + j];
    }
    return fold(acc);
}

static void softmax(float *restrict out, const float *restrict x, int64_t cols, int64_t begin,
                    int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        const float *in = x + row * cols;
        float *to = out + row * cols;
        const float top = row_max(in, cols);
        tree t;
        start(&t);
        for (int64_t at = 0; at < cols; at += BLOCK)
            push(&t, exp_block(to + at, in + at, top, least(cols - at, BLOCK)));
        const float sum = rm_divisor(finish(&t));
        for (int64_t i = 0; i < cols; i++) to[i] = rm_over(to[i], sum);
    }
}

/* ---- layer norm ---- */

static float sum_block(const float *restrict x, int64_t n)
{
    float acc[LANES];
    clear(acc);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) acc[j] += x[i + j];
    for (int j = 0; i + j < n; j++) acc[j] += x[i + j];
    return fold(acc);
}

static float spread_block(const float *restrict x, float mean, int64_t n)
{
    float acc[LANES];
    clear(acc);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const float d = x[i + j] - mean;
            acc[j] += d * d;
        }
    for (int j = 0; i + j < n; j++) {
        const float d = x[i + j] - mean;
        acc[j] += d * d;
    }
    return fold(acc);
}

static void layer_norm(float *restrict out, const float *restrict x, const float *restrict gain,
                       const float *restrict bias, float eps, int64_t cols, int64_t begin,
                       int64_t end)
{
    const float n = (float)cols;
    for (int64_t row = begin; row < end; row++) {
        const float *in = x + row * cols;
        float *to = out + row * cols;
        tree total, spread;
        start(&total), start(&spread);
        for (int64_t at = 0; at < cols; at += BLOCK)
            push(&total, sum_block(in + at, least(cols - at, BLOCK)));
        const float mean = finish(&total) / n;
        for (int64_t at = 0; at < cols; at += BLOCK)
            push(&spread, spread_block(in + at, mean, least(cols - at, BLOCK)));
        const float scale = rm_divisor(sqrtf(finish(&spread) / n + eps));
        for (int64_t i = 0; i < cols; i++) to[i] = rm_over(in[i] - mean, scale) * gain[i] + bias[i];
    }
}

/* ---- heat ---- */

/* The new value of c[0]; above and below in the same column of the neighbouring rows. */
INLINE float heat_point(const float *c, const float *above, const float *below, float rate)
{
    const float sum = (above[0] + below[0]) + (c[-1] + c[1]);
    return c[0] + (sum - c[0] * 4.0f) * rate;
}

static void heat(float *restrict next, const float *restrict u, float rate, int64_t cols,
                 int64_t begin, int64_t end)
{
    const int64_t last = cols - 1 - STRIP;
    for (int64_t y = begin; y < end; y++) {
        const float *c = u + y * cols;
        float *to = next + y * cols;
        if (last < 1) {
            for (int64_t x = 1; x < cols - 1; x++)
                to[x] = heat_point(c + x, c + x - cols, c + x + cols, rate);
            continue;
        }
        /* The last strip overlaps the one before it: cheaper than a scalar rest in every row. */
        for (int64_t x = 1; x < cols - 1; x += STRIP) {
            const int64_t at = least(x, last);
            for (int j = 0; j < STRIP; j++)
                to[at + j] = heat_point(c + at + j, c + at + j - cols, c + at + j + cols, rate);
        }
    }
}

/* The greater, or NaN when either is. | and not ||: a branch would keep gcc from vectorizing. */
INLINE float greater(float a, float b)
{
    return ((a > b) | (a != a)) ? a : b;
}

static float heat_worst(float *restrict next, const float *restrict u, float rate, int64_t cols,
                        int64_t begin, int64_t end)
{
    float acc[LANES] = { 0 };
    for (int64_t y = begin; y < end; y++) {
        const float *c = u + y * cols;
        float *to = next + y * cols;
        int64_t x = 1;
        for (; x + LANES <= cols - 1; x += LANES)
            for (int j = 0; j < LANES; j++) {
                const float v = heat_point(c + x + j, c + x + j - cols, c + x + j + cols, rate);
                to[x + j] = v;
                acc[j] = greater(acc[j], fabsf(v - c[x + j]));
            }
        for (int j = 0; x + j < cols - 1; j++) {
            const float v = heat_point(c + x + j, c + x + j - cols, c + x + j + cols, rate);
            to[x + j] = v;
            acc[j] = greater(acc[j], fabsf(v - c[x + j]));
        }
    }
    float worst = 0;
    for (int j = 0; j < LANES; j++) worst = greater(worst, acc[j]);
    return worst;
}

/* ---- N-body ---- */

typedef struct pull {
    float x[LANES], y[LANES], z[LANES];
} pull;

INLINE void attract(pull *a, const float *x, const float *y, const float *z, const float *m,
                    float xi, float yi, float zi, float eps2, int lanes)
{
    for (int j = 0; j < lanes; j++) {
        const float dx = x[j] - xi, dy = y[j] - yi, dz = z[j] - zi;
        const float r2 = (dx * dx + dy * dy) + dz * dz + eps2;
        const float inv = 1.0f / sqrtf(r2);
        const float w = m[j] * (inv * inv * inv);
        a->x[j] += dx * w;
        a->y[j] += dy * w;
        a->z[j] += dz * w;
    }
}

static void nbody(float *restrict ax, float *restrict ay, float *restrict az,
                  const float *restrict x, const float *restrict y, const float *restrict z,
                  const float *restrict m, float eps2, int64_t n, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        tree tx, ty, tz;
        start(&tx), start(&ty), start(&tz);
        for (int64_t at = 0; at < n; at += BLOCK) {
            const int64_t stop = least(n, at + BLOCK);
            pull a;
            clear(a.x), clear(a.y), clear(a.z);
            int64_t j = at;
            for (; j + LANES <= stop; j += LANES)
                attract(&a, x + j, y + j, z + j, m + j, x[i], y[i], z[i], eps2, LANES);
            attract(&a, x + j, y + j, z + j, m + j, x[i], y[i], z[i], eps2, (int)(stop - j));
            push(&tx, fold(a.x)), push(&ty, fold(a.y)), push(&tz, fold(a.z));
        }
        ax[i] = finish(&tx), ay[i] = finish(&ty), az[i] = finish(&tz);
    }
}

/* ---- Mandelbrot ---- */

INLINE void iterate(int32_t *count, const float *cx, float cy, int32_t n_iter, int lanes)
{
    float x[LANES] = { 0 }, y[LANES] = { 0 };
    int32_t n[LANES] = { 0 };
    for (int32_t it = 0; it < n_iter; it++)
        for (int j = 0; j < lanes; j++) {
            const float x2 = x[j] * x[j], y2 = y[j] * y[j];
            const int alive = x2 + y2 <= 4.0f;
            const float xn = x2 - y2 + cx[j], yn = x[j] * y[j] * 2.0f + cy;
            x[j] = alive ? xn : x[j];
            y[j] = alive ? yn : y[j];
            n[j] += alive;
        }
    memcpy(count, n, (size_t)lanes * sizeof *n);
}

static void mandelbrot(int32_t *restrict count, const float *restrict cx, const float *restrict cy,
                       int32_t n_iter, int64_t width, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        int32_t *to = count + row * width;
        int64_t i = 0;
        for (; i + LANES <= width; i += LANES) iterate(to + i, cx + i, cy[row], n_iter, LANES);
        iterate(to + i, cx + i, cy[row], n_iter, (int)(width - i));
    }
}

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

extern const ref_kernels REF_TABLE;
const ref_kernels REF_TABLE = {
    .name = TEXT(REF_NAME),
#ifdef REF_STRICT
    .strict = true,
#endif
    .gelu = gelu,
    .black_scholes = black_scholes,
    .adam = adam,
    .mse_blocks = mse_blocks,
    .join = join,
    .mse = mse,
    .softmax = softmax,
    .layer_norm = layer_norm,
    .heat = heat,
    .heat_worst = heat_worst,
    .nbody = nbody,
    .mandelbrot = mandelbrot,
};
