/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of the transformations on x86-64.
 */
#include "runtime/winograd/winograd_parts.h"

const df_winograd_code *df_winograd_pick(void)
{
    return __builtin_cpu_supports("avx512f") ? &df_winograd_avx512 : NULL;
}
