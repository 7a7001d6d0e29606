/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops in which data moves. Transposes go block by block, so that the lines of both sides stay in
 * the first-level cache. Compiled like ref_kernels.c, strictly.
 */
#include "ref_movement.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { BLOCK = 32, CHANNELS = 64, ANGLES = 256, LANES = 64 };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#define TRANSPOSE(name, type, add)                                                                 \
    static void name(const ref_movement_job *j, int64_t begin, int64_t end)                        \
    {                                                                                              \
        const int64_t n = j->columns, m = j->rows;                                                 \
        type *restrict const out = j->out;                                                         \
        const type *restrict const x = j->in[0], *restrict const y = j->in[1];                     \
        (void)y;                                                                                   \
        for (int64_t r0 = begin; r0 < end; r0 += BLOCK)                                            \
            for (int64_t c0 = 0; c0 < n; c0 += BLOCK)                                              \
                for (int64_t r = r0; r < least(r0 + BLOCK, end); r++)                              \
                    for (int64_t c = c0; c < least(c0 + BLOCK, n); c++)                            \
                        out[r * n + c] = x[c * m + r] add;                                         \
    }
TRANSPOSE(transpose_add, float, +y[r * n + c])
TRANSPOSE(transpose, float, )
TRANSPOSE(transpose_8, double, )
TRANSPOSE(transpose_2, uint16_t, )

static void channels_last(const ref_movement_job *j, int64_t begin, int64_t end)
{
    const int64_t n = j->columns;
    for (int64_t i = begin / CHANNELS; i < end / CHANNELS; i++) {
        float *restrict const out = (float *)j->out + i * n * CHANNELS;
        const float *restrict const x = (const float *)j->in[0] + i * n * CHANNELS;
        for (int64_t p0 = 0; p0 < n; p0 += BLOCK)
            for (int64_t c0 = 0; c0 < CHANNELS; c0 += BLOCK)
                for (int64_t p = p0; p < least(p0 + BLOCK, n); p++)
                    for (int64_t c = c0; c < c0 + BLOCK; c++) out[p * CHANNELS + c] = x[c * n + p];
    }
}

static void take(const ref_movement_job *j, int64_t begin, int64_t end)
{
    const size_t bytes = (size_t)j->columns * sizeof(float);
    const int64_t *const index = j->in[1];
    for (int64_t r = begin; r < end; r++)
        if (index[r] >= 0 && index[r] < j->rows)
            memcpy((float *)j->out + r * j->columns,
                   (const float *)j->in[0] + index[r] * j->columns, bytes);
}

static void rotary(const ref_movement_job *j, int64_t begin, int64_t end)
{
    const int64_t half = j->columns / 2;
    for (int64_t r = begin; r < end; r++) {
        float *restrict const out = (float *)j->out + r * j->columns;
        const float *restrict const x = (const float *)j->in[0] + r * j->columns;
        const float *restrict const c = (const float *)j->in[1] + r % ANGLES * half;
        const float *restrict const s = (const float *)j->in[2] + r % ANGLES * half;
        for (int64_t i = 0; i < half; i++) {
            out[i] = x[i] * c[i] - x[i + half] * s[i];
            out[i + half] = x[i] * s[i] + x[i + half] * c[i];
        }
    }
}

/* Row r of the result is row r mod (n - 2) of plane r / (n - 2) of the inside. */
static void stencil(const ref_movement_job *j, int64_t begin, int64_t end)
{
    const int64_t n = j->columns + 2, inside = j->columns;
    for (int64_t r = begin; r < end; r++) {
        float *restrict const out = (float *)j->out + r * inside;
        const float *restrict const x =
            (const float *)j->in[0] + ((r / inside + 1) * n + r % inside + 1) * n + 1;
        for (int64_t i = 0; i < inside; i++) {
            const float sum =
                x[i - 1] + x[i + 1] + x[i - n] + x[i + n] + x[i - n * n] + x[i + n * n];
            out[i] = x[i] + (sum - x[i] * 6) * 0.1f;
        }
    }
}

static void integers(const ref_movement_job *j, int64_t begin, int64_t end)
{
    uint32_t *restrict const out = j->out;
    const uint32_t *restrict const x = j->in[0], *restrict const y = j->in[1];
    for (int64_t i = begin * j->columns; i < end * j->columns; i++)
        out[i] = (x[i] * y[i] + 7) ^ (uint32_t)((int32_t)x[i] >> 3);
}

static void magnitude(const ref_movement_job *j, int64_t begin, int64_t end)
{
    float *restrict const out = j->out;
    const float *restrict const x = j->in[0], *restrict const y = j->in[1];
    for (int64_t i = begin * j->columns; i < end * j->columns; i++)
        out[i] = sqrtf(x[i] * x[i] + y[i] * y[i]);
}

static void interleaved(const ref_movement_job *j, int64_t begin, int64_t end)
{
    float *restrict const out = j->out;
    const float *restrict const x = j->in[0];
    for (int64_t i = begin * j->columns; i < end * j->columns; i++)
        out[i] = sqrtf(x[2 * i] * x[2 * i] + x[2 * i + 1] * x[2 * i + 1]);
}

static void concat(const ref_movement_job *j, int64_t begin, int64_t end)
{
    const int64_t half = j->columns / 2;
    const size_t bytes = (size_t)half * sizeof(float);
    for (int64_t r = begin; r < end; r++)
        for (int part = 0; part < 2; part++)
            memcpy((float *)j->out + r * j->columns + part * half,
                   (const float *)j->in[part] + r * half, bytes);
}

static void pad(const ref_movement_job *j, int64_t begin, int64_t end)
{
    const int64_t inside = j->columns - 2;
    for (int64_t r = begin; r < end; r++) {
        float *restrict const out = (float *)j->out + r * j->columns;
        const bool is_edge = r == 0 || r == j->rows - 1;
        out[0] = out[j->columns - 1] = 0;
        if (is_edge)
            memset(out, 0, (size_t)j->columns * sizeof *out);
        else
            memcpy(out + 1, (const float *)j->in[0] + (r - 1) * inside,
                   (size_t)inside * sizeof *out);
    }
}

static void stack(const ref_movement_job *j, int64_t begin, int64_t end)
{
    float *restrict const out = j->out;
    const float *restrict const x = j->in[0], *restrict const y = j->in[1];
    for (int64_t i = begin * j->columns / 2; i < end * j->columns / 2; i++) {
        out[2 * i] = x[i];
        out[2 * i + 1] = y[i];
    }
}

/* Sums in LANES parts, as deft has them, so that compilers may use vectors. */
static float sum_of(const float *x, int64_t n, float less, bool squares)
{
    float part[LANES] = { 0 }, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int64_t k = 0; k < LANES; k++) {
            const float d = x[i + k] - less;
            part[k] += squares ? d * d : d;
        }
    for (; i < n; i++) part[i % LANES] += squares ? (x[i] - less) * (x[i] - less) : x[i] - less;
    for (int64_t k = 0; k < LANES; k++) sum += part[k];
    return sum;
}

static void deviation(const ref_movement_job *j, int64_t begin, int64_t end)
{
    const int64_t n = j->columns;
    for (int64_t r = begin; r < end; r++) {
        const float *const x = (const float *)j->in[0] + r * n;
        const float mean = sum_of(x, n, 0, false) / (float)n;
        ((float *)j->out)[r] = sqrtf(sum_of(x, n, mean, true) / (float)n);
    }
}

const ref_movement REF_TABLE = { transpose_add, transpose, transpose_8, transpose_2, channels_last,
                                 take,          rotary,    stencil,     integers,    magnitude,
                                 interleaved,   concat,    pad,         stack,       deviation };
