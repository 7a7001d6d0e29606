/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface between the two libraries of the LLVM plug-in. libdeft opens deft-llvm.so when it
 * creates a runtime. deft-llvm-code.so needs libLLVM; deft-llvm.so opens it when there is something
 * to compile.
 */
#ifndef DF_JIT_LLVM_START_H
#define DF_JIT_LLVM_START_H

#include <stdbool.h>

#include "runtime/device.h"

#define DF_LLVM_CODE_FILE "deft-llvm-code.so"
#define DF_LLVM_CODE_SYMBOL "df_llvm_code"

/* What deft-llvm-code.so exports, under the name DF_LLVM_CODE_SYMBOL. */
typedef struct df_llvm_code {
    df_plugin_cpu_fn make; /* creates a compiler */
    bool (*loaded)(void);  /* opens the gate, gives memory back */
    void (*forked)(void);  /* df_llvm_gate_forked */
} df_llvm_code;

#endif
