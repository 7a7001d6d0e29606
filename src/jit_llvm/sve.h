/* SPDX-License-Identifier: Apache-2.0
 *
 * The width of SVE's vectors. Meson chooses the file.
 */
#ifndef DF_JIT_LLVM_SVE_H
#define DF_JIT_LLVM_SVE_H

#include "base/compiler.h"

/* The bytes of a register of SVE on the calling thread: a multiple of 16. Other threads of the
 * process have the same, unless somebody changes theirs. 0: the machine has no SVE. */
uint32_t df_sve_bytes(void);

#endif
