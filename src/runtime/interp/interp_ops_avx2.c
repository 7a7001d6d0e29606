/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of the interpreter for x86 with AVX2 and FMA.
 *
 * The target is set here and not on the command line. So all files of the library are compiled with
 * the same options, and the inline code of headers exists in one version.
 */
#include "runtime/interp/interp_ops.h"

#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

#define TABLE df_lane_ops_avx2
#define TABLE_NAME "avx2"
#include "runtime/interp/interp_ops.def"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
