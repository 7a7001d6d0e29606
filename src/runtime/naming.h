/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of compiled code, for profilers and debuggers. An example:
 *
 *     deft:mul,exp,sum@mlp.c:41#a1b2c3
 *          operators   call #   the first 6 hex digits of the kernel's
 *                      site     name in the structured log
 *
 * The call site is that of the last operator that was recorded. A suffix may follow, which names
 * one of several codes of the kernel:
 *
 *     .O0                  code without optimization (optimized code has no suffix)
 *     .variant             code of a variant
 *     .main, .part, .fin   entry points of a SPLIT kernel. The function that they call has no
 *                          suffix; the time is spent there
 *
 * Debuggers get "deft_mul_exp_sum_mlp_c_41_a1b2c3", which can be typed. A micro-kernel of
 * products is named by its dtype and the rows and columns of its tile: "deft:matmul,f32#4x24".
 */
#ifndef DF_RUNTIME_NAMING_H
#define DF_RUNTIME_NAMING_H

#include "runtime/device.h"

typedef struct df_naming_options {
    /* The file for perf: "map" (/tmp/perf-PID.map) or "jitdump"; NULL or "": none. Another text is
     * an error, which is logged under the topic "error"; there is no file then. */
    const char *perf;
    const char *perf_dir; /* for jitdump: where its folder is made; NULL or "": /tmp */
    bool debugger;        /* use GDB's JIT interface, where the compiler offers it */
} df_naming_options;

/* Returns the options that DEFT_PERF, DEFT_GDB and TMPDIR ask for. The texts are those of the
 * environment. In a set-user-id program all are NULL or false. */
df_naming_options df_naming_wanted(void);
/* Whether code must keep frame pointers for what is wanted. */
bool df_naming_keeps_frames(const df_naming_options *o);

typedef struct df_naming df_naming;

/* Returns NULL when neither perf nor a debugger can be served: the options ask for nothing,
 * `perf` is not valid, c is NULL, or the compiler has no debugger interface. When memory runs
 * out, this is logged. The result is then NULL, or serves debuggers only. mem, log and c are
 * borrowed until df_naming_close. *o is read during the call only. */
df_naming *df_naming_open(const df_mem *mem, const df_log *log, const df_compiler *c,
                          const df_naming_options *o);
/* Sets *n to NULL. All code has been hidden before. *n may be NULL. */
void df_naming_close(df_naming **n);

/* What a name is made of. */
typedef struct df_code_about {
    const df_kernel *kernel;
    const char *ops;  /* "mul, exp, sum" */
    uintptr_t site;   /* call site, as for df_site_text */
    const char *mark; /* the suffix: "", ".O0" or ".variant" */
} df_code_about;

/* Gives code a name. To be called before any thread runs the code. n may be NULL: the call then
 * does nothing. When memory runs out, the code gets no name. Any thread. */
void df_naming_show(df_naming *n, df_code *code, const df_code_about *about);
/* Removes the names of code from debuggers. To be called before the code is released. Files for
 * perf keep the names. Code without a name is allowed, and n may be NULL. Any thread. */
void df_naming_hide(df_naming *n, df_code *code);
/* Gives the micro-kernel for products of dtype t a name, which stays until n is closed. To be
 * called once for f32 and once for f64. n may be NULL: the call then does nothing. When memory
 * runs out, the micro-kernel gets no name. */
void df_naming_show_gemm(df_naming *n, deft_dtype t, const df_gemm_kernel *k);

#endif
