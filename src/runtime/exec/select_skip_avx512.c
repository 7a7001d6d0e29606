/* SPDX-License-Identifier: Apache-2.0
 *
 * The scan of select_skip.h for x86 with AVX-512. The target is set here and not on the command
 * line, as in interp_ops_avx2.c.
 */
#include "runtime/exec/select_skip.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))),        \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif

#define SKIP df_select_skip_avx512
#include "runtime/exec/select_skip.def"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
