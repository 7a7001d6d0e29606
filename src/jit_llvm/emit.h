/* SPDX-License-Identifier: Apache-2.0
 *
 * Types and functions that the files of the LLVM plug-in share: targets, the compiler object, and
 * loading of modules. gen.h adds the state of the code generator. Private to the plug-in.
 *
 * deft-llvm.so, which needs no LLVM:
 *
 *   start.c     opens the other library when there is something to compile
 *
 * deft-llvm-code.so, from the exported symbol down:
 *
 *   plugin.c    the exported symbol and the df_compiler vtable
 *   guard.c     calls into LLVM: stack, memory, LLVM's fatal errors
 *   gate.c      keeps LLVM unused while the process ends
 *   engine.c    a module becomes an object in memory, which ORC loads; release
 *   object.c    objects as debuggers and profilers need them
 *   target.c    the host and named targets, vector width, target machines
 *   kernel.c    functions of one kernel and their arguments
 *   rows/       the rows of each kind of kernel (rows/lanes.h)
 *   analyse.c   where each value is computed, how many lanes; kernels that are refused
 *   contract.c  sums of products in FAST kernels
 *   numbers.c   where numbers are broadcast
 *   values.c    instructions, each at its level
 *   access.c    loads and stores of w lanes through a df_access, with or without a mask
 *   lower.c     one kernel op to IR, for a scalar or for w lanes
 *   halves.c    f16 and bf16
 *   arms.c      instructions that run only when some lane needs them
 *   nans.c      loads whose lanes are asked for NaN once
 *   bare.c      estimates without guards
 *   estimate.c  quotients and roots of FAST kernels
 *   flow.c      loops, ifs, loop nests
 *   build.c     types, constants, addresses
 *   gemm.c      micro-kernels of matrix products
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
    uint32_t sve_bytes;    /* of a register of SVE; 0: no SVE */
    bool mask_words;       /* masked loads and stores of 4- and 8-byte elements are instructions */
    bool mask_bytes;       /* masked loads and stores of smaller elements are, too */
    bool slow_mask_stores; /* masked stores of words are instructions, but slow ones */
    bool slow_gathers;     /* a gather of words takes longer than single loads of its lanes */
    bool is_intel_server;  /* has AVX-512 and is no Zen: rows/fetch.c prefetches more */
    bool fast_division;    /* vdivps of 16 lanes is faster than the estimate and its correction */
    bool has_fma;          /* llvm.fma is an instruction, not a call */
    bool keep_frames;      /* code keeps frame pointers, as df_host.keep_frames asks */
    bool has_f16;          /* conversions between f16 and f32 are instructions */
    bool has_f16_math;     /* sums, products and quotients of f16, too (AVX-512 FP16) */
    bool has_products;     /* an instruction adds products of 16-bit integers to 32-bit ones */
    char triple[96];
    char cpu[64];
    char *features; /* a message of LLVM, owned; never NULL after df_llvm_target_init */
} df_llvm_target;

/* Registers the X86 and AArch64 back ends with LLVM. Calls after the first do nothing. Any thread.
 */
void df_llvm_target_register(void);

/* Describes the target `name`: "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64",
 * "aarch64-sve256" or "aarch64-sve512". NULL and "host" stand for this machine. If its vectors are
 * wider than max_vector_bytes, the target instead has vectors of 32 or of 16 bytes, on x86-64 those
 * of x86-64-v3 and x86-64; 0 is no limit. Returns DEFT_E_ARG for an unknown name. */
deft_status df_llvm_target_init(const df_host *host, df_diag *d, const char *name,
                                uint32_t max_vector_bytes, df_llvm_target *out);
/* Frees what t owns. A target whose bytes are all 0 is fine. */
void df_llvm_target_finish(df_llvm_target *t);
/* Creates a target machine for t, which the caller disposes of. Returns DEFT_E_BACKEND when LLVM
 * refuses. */
deft_status df_llvm_target_machine(const df_host *host, df_diag *d, const df_llvm_target *t,
                                   df_opt level, LLVMTargetMachineRef *out);

/* ---- the compiler object ---- */

enum { DF_LLVM_IDLE_MACHINES = 4 }; /* most idle target machines that are kept for each df_opt */

/* The compiler, one per df_compiler. `lock` guards the idle lists and n_dylibs. One thread at a
 * time loads objects through ORC; it holds load_lock. Members without a lock are constant after
 * creation. */
typedef struct df_llvm {
    df_host host; /* a copy */
    df_llvm_target target;
    LLVMOrcLLJITRef jit;
    pthread_mutex_t lock, load_lock;
    LLVMTargetMachineRef idle_machine[2][DF_LLVM_IDLE_MACHINES]; /* [df_opt] */
    uint32_t n_idle_machines[2];
    DF_VEC(LLVMOrcJITDylibRef) idle_dylib; /* empty symbol tables, for reuse */
    uint32_t n_dylibs;                     /* symbol tables created, which numbers their names */
    atomic_uint_least64_t n_modules;       /* objects loaded so far */
    char name[192];
    pthread_mutex_t gemm_lock; /* gemm.c: guards gemm */
    df_gemm_kernel gemm[2];    /* [0] f32, [1] f64; fn is NULL until the first request */
} df_llvm;

/* Creates self->jit. self->host and self->target must be set. */
deft_status df_llvm_engine_init(df_llvm *self, df_diag *d);
/* Frees all loaded code and what the engine keeps, also after df_llvm_engine_init failed or was
 * not called. */
void df_llvm_engine_finish(df_llvm *self);

/* One loaded object. Its code exists until the last reference is dropped. */
typedef struct df_llvm_batch {
    LLVMOrcJITDylibRef dylib;
    LLVMOrcResourceTrackerRef tracker;
    _Atomic uint32_t refs;
} df_llvm_batch;

/* A loaded function. */
typedef struct df_llvm_fn {
    void *at;         /* its address */
    uint32_t size;    /* bytes; 0: unknown */
    uint32_t section; /* index of its section in the object */
    uint64_t offset;  /* in that section */
} df_llvm_fn;

/* Verifies m, compiles it and loads the object. Fills fns[0..n + n_inner) with the functions of
 * these names. The first n are exported symbols of m, which the loader looks up. The others are
 * internal functions. Their addresses are derived from an exported function in the same section;
 * without one, their size is 0 and `at` is unspecified.
 *
 * m and ctx are destroyed in every case. *bytes gets the size of the object; bytes may be NULL.
 * *batch gets one reference. A caller that needs more sets batch->refs. */
deft_status df_llvm_load_batch(df_llvm *self, df_diag *d, LLVMModuleRef DEFT_OWN m,
                               LLVMContextRef DEFT_OWN ctx, df_opt level, const char *const *names,
                               uint32_t n, uint32_t n_inner, df_llvm_fn *fns, size_t *bytes,
                               df_llvm_batch **batch);
/* Drops one reference and sets *batch to NULL. The last reference frees the code, which no thread
 * may be running. *batch may be NULL. */
void df_llvm_batch_drop(df_llvm *self, df_llvm_batch **batch);

/* The same for n exported functions of a module whose code stays until the compiler is destroyed.
 */
deft_status df_llvm_load_module(df_llvm *self, df_diag *d, LLVMModuleRef DEFT_OWN m,
                                LLVMContextRef DEFT_OWN ctx, df_opt level, const char *const *names,
                                uint32_t n, df_llvm_fn *fns, size_t *bytes);

/* Verifies m, compiles it, and appends the object to *elf. m and ctx are always destroyed. */
deft_status df_llvm_module_object(df_llvm *self, df_diag *d, LLVMModuleRef DEFT_OWN m,
                                  LLVMContextRef DEFT_OWN ctx, df_opt level, df_str *elf);

/* Creates a context whose diagnostics are discarded, and an empty module in it. The caller destroys
 * both. The engine sets the module's triple and data layout before it emits code. */
deft_status df_llvm_module_create(df_diag *d, const df_host *host, LLVMContextRef *ctx,
                                  LLVMModuleRef *m);

/* Appends the text of m to out, as IR or as assembly. The caller still owns m. The triple and data
 * layout of m become those of t. */
deft_status df_llvm_module_text(const df_host *host, df_diag *d, const df_llvm_target *t,
                                LLVMModuleRef m, bool assembly, df_str *out);

/* Gets a target machine for the compiler's own target: an idle one, or a new one. The caller gives
 * it back with df_llvm_machine_give. Any thread. */
deft_status df_llvm_machine_take(df_llvm *self, df_diag *d, df_opt level,
                                 LLVMTargetMachineRef *out);
/* Keeps tm for later use, or disposes of it when enough machines of that level are idle. tm may be
 * NULL. Any thread. */
void df_llvm_machine_give(df_llvm *self, df_opt level, LLVMTargetMachineRef DEFT_OWN tm);

/* ---- object.c ---- */

/* Fills in size, section and offset of fns[0..n): the functions names[0..n) in the object of
 * n_bytes at `object`. The loader sets `at` afterwards. The size is 0 when the object is not a
 * 64-bit little-endian ELF file or has no such function. */
void df_llvm_object_read(const void *object, size_t n_bytes, const char *const *names, uint32_t n,
                         df_llvm_fn *fns);

/* These implement show_debugger and hide_debugger of df_compiler (runtime/device.h). They are
 * called inside the gate, so a forked child never sees the list of objects while it is changed. */
void *df_llvm_show_debugger(df_llvm *self, const char *name, const void *start, size_t size);
void df_llvm_hide_debugger(df_llvm *self, void *shown);

/* ---- target.c, gemm.c ---- */

/* Sets the attributes that every generated function has: nounwind, the CPU and features of t, its
 * vector width, and frame pointers if t keeps them. */
void df_llvm_set_attributes(LLVMContextRef ctx, const df_llvm_target *t, LLVMValueRef fn);

/* Gets the matrix product micro-kernel for t, which is f32 or f64. The first call compiles it; the
 * code stays until the compiler is destroyed. Returns DEFT_E_BACKEND when the target has no fused
 * multiply-add. Any thread. */
deft_status df_llvm_gemm(df_llvm *self, df_diag *d, deft_dtype t, df_gemm_kernel *out);
/* Appends the object of the same micro-kernel to *elf, and fills in mr and nr of *out. */
deft_status df_llvm_gemm_object(df_llvm *self, df_diag *d, deft_dtype t, df_gemm_kernel *out,
                                df_str *elf);

#endif
