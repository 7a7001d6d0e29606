/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows of images, for x86-64 with AVX2 and FMA. The compiler makes vectors of the loops.
 */
#include "runtime/matmul/windows.h"

#include <string.h>

enum { DF_CHAINS = 9 };

#define TARGET __attribute__((target("avx2,fma")))
#define T float
#define NAME(x) x##_f32
#define FMA(a, b, c) __builtin_fmaf((a), (b), (c))
#include "runtime/matmul/windows_body.h"
#define T double
#define NAME(x) x##_f64
#define FMA(a, b, c) __builtin_fma((a), (b), (c))
#include "runtime/matmul/windows_body.h"

const df_image_tiles df_image_tiles_avx2_f32 = {
    copy_f32, row_f32, sums_f32, NULL, NULL, 0, NULL, 0
};
const df_image_tiles df_image_tiles_avx2_f64 = {
    copy_f64, row_f64, sums_f64, NULL, NULL, 0, NULL, 0
};

void df_image_sums_f32(void *sum, const void *a, const void *from, int64_t n, const int64_t *tap,
                       int64_t n_taps)
{
    sums_f32(sum, a, from, n, tap, n_taps);
}

void df_image_sums_f64(void *sum, const void *a, const void *from, int64_t n, const int64_t *tap,
                       int64_t n_taps)
{
    sums_f64(sum, a, from, n, tap, n_taps);
}
