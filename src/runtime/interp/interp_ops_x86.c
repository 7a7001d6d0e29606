/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of loops on x86, by the instruction sets of the machine. All versions give equal bits.
 */
#include "runtime/interp/interp_ops.h"

const df_lane_ops *df_lane_ops_best(void)
{
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return &df_lane_ops_plain;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return &df_lane_ops_avx512;
    return &df_lane_ops_avx2;
}
