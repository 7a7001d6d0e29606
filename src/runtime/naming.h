/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of compiled code, for profilers and debuggers: "deft:mul,exp,sum@mlp.c:41#a1b2c3" is the
 * kernel of these operations, the last of them recorded at that line; behind # stand the first
 * digits of the kernel's name in the structured log. What follows says which of its codes:
 *
 *   .O0        not optimized (the optimized one has no mark)
 *   .variant   for launches that are alike
 *   .main .part .fin
 *              entry points of a kernel whose rows can be split among threads; what they go on to,
 *              where the time is spent, has no mark
 *
 * Debuggers are told "deft_mul_exp_sum_mlp_c_41_a1b2c3", which can be typed.
 */
#ifndef DF_RUNTIME_NAMING_H
#define DF_RUNTIME_NAMING_H

#include "runtime/device.h"

typedef struct df_naming_options {
    const char *perf; /* "map", "jitdump"; NULL or "": none. Else told under the topic "error" */
    const char *perf_dir; /* jitdump: the folder in which it makes its own; NULL: /tmp */
    bool debugger;        /* GDB's JIT interface, where the compiler offers it */
} df_naming_options;

/* Asked for by DEFT_PERF, DEFT_GDB and TMPDIR; all NULL and false in a set-user-id program. */
df_naming_options df_naming_wanted(void);

typedef struct df_naming df_naming;

/* NULL: nothing is asked for, or there is no memory, which is told. c is borrowed. */
df_naming *df_naming_open(const df_mem *mem, const df_log *log, const df_compiler *c,
                          const df_naming_options *o);
void df_naming_close(df_naming **n); /* NULL is fine */

typedef struct df_code_about {
    const df_kernel *kernel;
    const char *ops; /* "mul, exp, sum" */
    uintptr_t site;
    const char *mark; /* "", ".O0", ".variant" */
} df_code_about;

/* Any thread; n NULL: nothing happens. Code is shown before anybody runs it, and hidden before it
 * is released. Without memory it has no name. */
void df_naming_show(df_naming *n, df_code *code, const df_code_about *about);
void df_naming_hide(df_naming *n, df_code *code);
/* The same for a micro-kernel, which stays until n is closed. */
void df_naming_show_gemm(df_naming *n, deft_dtype t, const df_gemm_kernel *k);

#endif
