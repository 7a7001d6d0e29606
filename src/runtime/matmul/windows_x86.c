/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of functions for windows on x86-64, as in tile_x86.c.
 */
#include "runtime/matmul/windows.h"

const df_image_tiles *df_image_tiles_pick(deft_dtype dtype)
{
    const bool f32 = dtype == DEFT_F32;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("bmi2"))
        return f32 ? &df_image_tiles_avx512_f32 : &df_image_tiles_avx512_f64;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return f32 ? &df_image_tiles_avx2_f32 : &df_image_tiles_avx2_f64;
    return f32 ? &df_image_tiles_base_f32 : &df_image_tiles_base_f64;
}
