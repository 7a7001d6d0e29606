/* SPDX-License-Identifier: Apache-2.0
 *
 * Export: a trace becomes an object or a C file, with a header, which programs use without libdeft
 * and without LLVM (docs/export.md).
 *
 *   trace --simplify, fuse--> plan --program.c--> image --object.c--> NAME.o
 *                               |                   |----c_file.c---> NAME.c
 *                               `---- kernels: machine code for each level, or C (c.h)
 *
 * The image is plain data that a small runtime part reads (rt/image.h). The runtime part is written
 * in freestanding C. It is compiled when deft is built, for objects, and is copied as text into
 * exported C files.
 *
 * Routines, such as sort, have code of their own there (rt/routine.c), which is small and plain.
 */
#ifndef DF_AOT_AOT_H
#define DF_AOT_AOT_H

#include "runtime/device.h"
#include "runtime/export.h"

/* Exports t, whose inputs must be row-major where an axis is open or data are linked. Values in
 * memory of t are not read.
 *
 * Fails with DEFT_E_ARG when t cannot be exported, or an option has no meaning. Fails with
 * DEFT_E_BACKEND where an object is wanted, and there is no code generator for it. */
deft_status df_aot_export(df_diag *d, const df_mem *mem, const df_trace *t, const df_aot_options *o,
                          df_aot_files *out);

#endif
