/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of tiles on x86-64. It reads the table of CPU features that the compiler keeps,
 * because the cpuid instruction traps in virtual machines and takes microseconds.
 */
#include "runtime/matmul/tile.h"

const df_tiles *df_tiles_pick(deft_dtype dtype)
{
    const bool f32 = dtype == DEFT_F32;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        return f32 ? &df_tiles_avx512_f32 : &df_tiles_avx512_f64;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return f32 ? &df_tiles_avx2_f32 : &df_tiles_avx2_f64;
    return f32 ? &df_tiles_base_f32 : &df_tiles_base_f64;
}
