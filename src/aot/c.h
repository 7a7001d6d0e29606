/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel IR as C11 text, for exports that a C compiler builds (gcc or clang, of any machine whose
 * floats are IEEE). The text needs no header of deft. It consists of the prelude, once per file,
 * and of one piece for each kernel. The bits of the results are those of the interpreter in strict
 * mode. A kernel with the flag FAST gets strict arithmetic, too.
 *
 * Everything that the text defines is static, so a file may hold any number of pieces with
 * different names. A file that is compiled with -DDF_AOT_KERNEL= exports the functions instead.
 *
 * The compiler must not contract, reassociate or flush. The prelude switches contraction off
 * itself. Exporters also recommend -ffp-contract=off to those who build the file. df_aot_c_check()
 * says at run time whether the compiler and the calling thread keep the rules.
 */
#ifndef DF_AOT_C_H
#define DF_AOT_C_H

#include "base/str.h"
#include "runtime/device.h"
#include "runtime/facts.h"

/* Appends what the other pieces need. Among it are, for the rest of the exported file:
 *
 *   struct df_aot_kargs     the fields of df_kargs (runtime/device.h), in its layout
 *   df_aot_kernel_fn        the type of functions of kernels, as df_kernel_fn
 *   int df_aot_c_check(void)
 *                           1 when the arithmetic of this file is that of the interpreter on the
 *                           calling thread. 0 when the compiler contracted, computed with more
 *                           precision than the dtype has or was told to break IEEE, or when the
 *                           thread flushes denormals or does not round to nearest.
 *
 * The prelude includes <stdint.h> and <string.h>, and calls functions of libm. It defines names
 * without a prefix, such as f32 and add_f32, so it must come after the headers of others. */
void df_aot_c_prelude(df_str *out);

/* Appends the functions of kernel k, with the ABI of df_kernel_fn:
 *
 *   NAME           main
 *   NAME_part      part; in SPLIT kernels only
 *   NAME_fin       fin; in SPLIT kernels only
 *
 * `extents` has the extent of each axis in all launches of the kernel, or DF_ANY (runtime/facts.h);
 * NULL: none is known. `name` is an identifier. The functions ignore df_kargs.work, streams and
 * fetches. Their arrays are on the stack: less than 100 KB, and in kernels of few values less than
 * 20 KB. The text depends on the kernel, the extents and the name alone. Returns DEFT_E_COMPILE for
 * a kernel that is none, and DEFT_E_MEMORY. Then nothing was appended. */
deft_status df_aot_c_kernel(df_diag *d, const df_kernel *k, const int64_t *extents,
                            const char *name, df_str *out);

#endif
