/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the LLVM plug-in: the compiler object, targets, the engine's entry points, and the
 * state of one kernel's emission.
 *
 *   plugin.c  the one exported symbol, the df_compiler vtable
 *   target.c  host and named targets, vector width, target machines
 *   engine.c  module -> object in memory -> ORC; release
 *   analyse.c where each value is computed, how many lanes; kernels that are refused
 *   lower.c   one kernel op -> IR, for a scalar or for w lanes
 *   access.c  loads and stores of w lanes through a df_access, with or without a mask
 *   values.c  instructions in their places
 *   flow.c    loops, ifs, walks over axes
 *   loops.c   entry points; loop nests of MAP and ROW
 *   reduce.c  the order of reductions: what follows is built on it
 *   row.c     reductions along the lanes        col.c     reductions across them
 *   gemm.c    matmul micro-kernels
 *   object.c  objects as debuggers and profilers need them
 */
#ifndef DF_JIT_LLVM_EMIT_H
#define DF_JIT_LLVM_EMIT_H

#include <pthread.h>
#include <stdatomic.h>

#include <llvm-c/Core.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/TargetMachine.h>

#include "base/limits.h"
#include "base/vec.h"
#include "runtime/device.h"

/* ---- targets ---- */

typedef enum df_llvm_arch { DF_ARCH_X86_64, DF_ARCH_AARCH64 } df_llvm_arch;

typedef struct df_llvm_target {
    df_llvm_arch arch;
    uint32_t vector_bytes; /* 16, 32 or 64 */
    bool mask_words;       /* masked loads and stores of 4- and 8-byte elements are instructions */
    bool mask_bytes;       /* and of 1-byte elements */
    bool slow_mask_stores; /* masked stores of words are instructions, but slow ones */
    bool has_fma;          /* llvm.fma is an instruction, not a call */
    bool keep_frames;      /* of df_host */
    bool has_f16;          /* so are conversions between f16 and f32 */
    char triple[96];
    char cpu[64];
    char *features; /* LLVM's message; never NULL after init */
} df_llvm_target;

/* Registers the X86 and AArch64 back ends with LLVM; once per process, any thread. */
void df_llvm_target_register(void);

/* name NULL: the host, narrowed to max_vector_bytes when that is not 0 (then the code is that of
 * the widest generic CPU level with such vectors). Names: "host", "x86-64", "x86-64-v2",
 * "x86-64-v3", "x86-64-v4", "aarch64". */
deft_status df_llvm_target_init(const df_host *host, df_diag *d, const char *name,
                                uint32_t max_vector_bytes, df_llvm_target *out);
void df_llvm_target_finish(df_llvm_target *t);
deft_status df_llvm_target_machine(const df_host *host, df_diag *d, const df_llvm_target *t,
                                   df_opt level, LLVMTargetMachineRef *out);

/* ---- the compiler object ---- */

enum { DF_LLVM_IDLE_MACHINES = 4 };

/* One per df_compiler. lock guards the idle lists, load_lock the way through ORC (taken outside
 * lock); the rest is constant after creation. */
typedef struct df_llvm {
    df_host host; /* a copy */
    df_llvm_target target;
    LLVMOrcLLJITRef jit;
    pthread_mutex_t lock, load_lock;
    LLVMTargetMachineRef idle_machine[2][DF_LLVM_IDLE_MACHINES]; /* [df_opt] */
    uint32_t n_idle_machines[2];
    DF_VEC(LLVMOrcJITDylibRef) idle_dylib; /* empty symbol tables, for reuse */
    uint32_t n_dylibs;                     /* made so far: names */
    atomic_uint_least64_t n_modules;       /* loaded so far */
    char name[192];
    pthread_mutex_t gemm_lock; /* gemm.c: guards gemm */
    df_gemm_kernel gemm[2];    /* [0] f32, [1] f64; fn NULL until first asked for */
} df_llvm;

deft_status df_llvm_engine_init(df_llvm *self, df_diag *d);
void df_llvm_engine_finish(df_llvm *self);

/* One loaded object: its code lives until its last df_code is released. */
typedef struct df_llvm_batch {
    LLVMOrcJITDylibRef dylib;
    LLVMOrcResourceTrackerRef tracker;
    _Atomic uint32_t refs;
} df_llvm_batch;

/* A function that was loaded. */
typedef struct df_llvm_fn {
    void *at;
    uint32_t size; /* bytes; 0: unknown */
    uint32_t section;
    uint64_t offset; /* in that section of its object */
} df_llvm_fn;

/* Compiles m (verified here), loads it and looks names[0..n) up into fns. m and ctx are destroyed
 * in every case. names[n..n + n_inner) are internal: they are
 * placed by what lies in the same section, else have size 0. bytes (may be NULL): size of the
 * object. batch: one reference per function asked for is up to the caller (refs starts at 1). */
deft_status df_llvm_load_batch(df_llvm *self, df_diag *d, LLVMModuleRef DEFT_OWN m,
                               LLVMContextRef DEFT_OWN ctx, df_opt level, const char *const *names,
                               uint32_t n, uint32_t n_inner, df_llvm_fn *fns, size_t *bytes,
                               df_llvm_batch **batch);
void df_llvm_batch_drop(df_llvm *self, df_llvm_batch **batch); /* no thread may be running it */

/* The same for code that stays until the compiler is destroyed. */
deft_status df_llvm_load_module(df_llvm *self, df_diag *d, LLVMModuleRef DEFT_OWN m,
                                LLVMContextRef DEFT_OWN ctx, df_opt level, const char *const *names,
                                uint32_t n, df_llvm_fn *fns, size_t *bytes);

/* A fresh context whose diagnostics go nowhere, and an empty module in it. The engine sets triple
 * and data layout before it emits. */
deft_status df_llvm_module_create(df_diag *d, const df_host *host, LLVMContextRef *ctx,
                                  LLVMModuleRef *m);

/* Text of m (owned) as IR, or as assembly for t. */
deft_status df_llvm_module_text(const df_host *host, df_diag *d, const df_llvm_target *t,
                                LLVMModuleRef m, bool assembly, df_str *out);

/* A target machine of the compiler's own target: from the idle list, or new. */
deft_status df_llvm_machine_take(df_llvm *self, df_diag *d, df_opt level,
                                 LLVMTargetMachineRef *out);
void df_llvm_machine_give(df_llvm *self, df_opt level, LLVMTargetMachineRef DEFT_OWN tm);

/* ---- object.c ---- */

/* Fills in all but `at` of fns, which are names[0..n) in the object of n_bytes at `object`. What is
 * no 64-bit little-endian ELF, or has no such symbol, leaves sizes 0. */
void df_llvm_object_read(const void *object, size_t n_bytes, const char *const *names, uint32_t n,
                         df_llvm_fn *fns);

/* As of df_compiler; under the gate, whose rules for forked children hold for the list too. */
void *df_llvm_show_debugger(df_llvm *self, const char *name, const void *start, size_t size);
void df_llvm_hide_debugger(df_llvm *self, void *shown);

/* ---- target.c, gemm.c ---- */

/* Puts the attributes every generated function has: nounwind, target cpu and features, vector
 * width; frame pointers where t asks for them. */
void df_llvm_set_attributes(LLVMContextRef ctx, const df_llvm_target *t, LLVMValueRef fn);

/* Micro-kernel for t (f32 or f64); compiled on first use, kept in self->gemm. Any thread. */
deft_status df_llvm_gemm(df_llvm *self, df_diag *d, deft_dtype t, df_gemm_kernel *out);

#endif
