/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of the sort of keys on x86, by the instruction sets of the machine.
 */
#include "runtime/sort/keys.h"

const df_keys *df_keys_best(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")
               ? &df_keys_avx512
               : &df_keys_plain;
}
