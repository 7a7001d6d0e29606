/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops that write a part of an array. Compiled like ref_kernels.c, strictly.
 */
#include "ref_updates.h"

#include <string.h>

static void column(double *x, int64_t n, int64_t t)
{
    for (int64_t i = 0; i < n; i++) x[i * n + t] = (x[i * n + t] + x[i * n + t - 1]) * 0.5;
}

static void minus(double *restrict x, const double *restrict y, int64_t n)
{
    for (int64_t i = 0; i < (n - 1) * n; i++) x[n + i] -= y[i];
}

static void fields(double *restrict ex, double *restrict ey, double *restrict hz, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            ey[i * n + j] -= 0.5 * (hz[i * n + j] - hz[(i - 1) * n + j]);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 1; j < n; j++) ex[i * n + j] -= 0.5 * (hz[i * n + j] - hz[i * n + j - 1]);
    for (int64_t i = 0; i < n - 1; i++)
        for (int64_t j = 0; j < n - 1; j++)
            hz[i * n + j] -=
                0.7 * (ex[i * n + j + 1] - ex[i * n + j] + ey[(i + 1) * n + j] - ey[i * n + j]);
}

static void stencil(double *restrict u, double *restrict to, int64_t n)
{
    const int64_t m = n - 2;
    for (int64_t i = 0; i < m; i++) {
        const double *const at = u + (i + 1) * n + 1;
        for (int64_t j = 0; j < m; j++)
            to[i * m + j] = (at[j - n] + at[j + n] + at[j - 1] + at[j + 1]) * 0.25;
    }
    for (int64_t i = 0; i < m; i++) memcpy(u + (i + 1) * n + 1, to + i * m, (size_t)m * sizeof *u);
}

static void rank1(double *a, int64_t n, int64_t k)
{
    const double *restrict const row = a + k * n;
    for (int64_t i = k + 1; i < n; i++) {
        double *restrict const to = a + i * n;
        const double left = to[k] * 0.001;
        for (int64_t j = k + 1; j < n; j++) to[j] -= left * row[j];
    }
}

static void parts(const float *restrict x, float *restrict g, int64_t rows, int64_t c)
{
    for (int64_t i = 0; i < rows; i++, x += 3 * c, g += 3 * c)
        for (int64_t j = 0; j < c; j++) {
            const float q = x[j], k = x[c + j], v = x[2 * c + j];
            g[j] = k * v;
            g[c + j] = q * v;
            g[2 * c + j] = q * k;
        }
}

const ref_updates REF_TABLE = { column, minus, fields, stencil, rank1, parts };
