/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the two libraries of the LLVM plug-in: deft-llvm.so, which libdeft opens when a runtime
 * is made, and deft-llvm-code.so, which needs libLLVM and is opened by the former when there is
 * something to compile.
 */
#ifndef DF_JIT_LLVM_START_H
#define DF_JIT_LLVM_START_H

#include <stdbool.h>

#include "runtime/device.h"

#define DF_LLVM_CODE_FILE "deft-llvm-code.so"
#define DF_LLVM_CODE_SYMBOL "df_llvm_code"

/* What deft-llvm-code.so exports. */
typedef struct df_llvm_code {
    df_plugin_cpu_fn make;
    bool (*loaded)(void); /* df_llvm_gate_open */
    void (*forked)(void); /* df_llvm_gate_forked */
} df_llvm_code;

#endif
