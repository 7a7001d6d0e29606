/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of the scan on x86, by the instruction sets of the machine.
 */
#include "runtime/exec/select_skip.h"

df_select_skip_fn df_select_skip_best(void)
{
    if (!__builtin_cpu_supports("avx2")) return df_select_skip_plain;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return df_select_skip_avx512;
    return df_select_skip_avx2;
}
