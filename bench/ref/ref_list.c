/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables that the build made. REF_HAVE_GCC and REF_HAVE_CLANG come from meson.build.
 */
#include "ref_kernels.h"

#ifdef REF_HAVE_GCC
extern const ref_kernels ref_strict_gcc, ref_fast_gcc;
#endif
#ifdef REF_HAVE_CLANG
extern const ref_kernels ref_strict_clang, ref_fast_clang;
#endif

const ref_kernels *const ref_tables[] = {
#ifdef REF_HAVE_GCC
    &ref_strict_gcc,
    &ref_fast_gcc,
#endif
#ifdef REF_HAVE_CLANG
    &ref_strict_clang,
    &ref_fast_clang,
#endif
};

const int ref_n_tables = sizeof ref_tables / sizeof *ref_tables;
