/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows of images, for any machine.
 */
#include "runtime/matmul/windows.h"

#include <string.h>

#include "base/compiler.h"

enum { DF_CHAINS = 9 };

#define TARGET
#define T df_any_f32
#define NAME(x) x##_f32
#define FMA(a, b, c) __builtin_fmaf((a), (b), (c))
#include "runtime/matmul/windows_body.h"
#define T df_any_f64
#define NAME(x) x##_f64
#define FMA(a, b, c) __builtin_fma((a), (b), (c))
#include "runtime/matmul/windows_body.h"

const df_image_tiles df_image_tiles_base_f32 = {
    copy_f32, row_f32, sums_f32, NULL, NULL, 0, NULL, 0
};
const df_image_tiles df_image_tiles_base_f64 = {
    copy_f64, row_f64, sums_f64, NULL, NULL, 0, NULL, 0
};
