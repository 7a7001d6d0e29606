/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine that code is generated for. LLVM describes the host. Named levels give the same text
 * on every machine, so dumps use them. The vector width follows from the CPU's features, not from
 * LLVM's preference. For the CPU x86-64-v4, LLVM 19 prefers 256 bits unless the function says
 * otherwise (measured). Explicit 512-bit vectors were as fast or faster on Zen 5.
 *
 * Tests force narrower vectors through df_host.max_vector_bytes. On x86-64 the target is then a
 * generic level: x86-64-v3 for 32 bytes and plain x86-64 for 16. For 64 bytes it is x86-64-v4,
 * which leaves out what depends on the model of the processor. So tests also cover machines without
 * masked loads, FMA and SSE4.1 rounding.
 *
 * On AArch64, SVE is used where its registers have 32 bytes or more. Vectors have a fixed width,
 * and the attribute vscale_range lets LLVM map them to SVE (docs/decisions/aarch64.md). Otherwise
 * vectors are those of NEON.
 */
#include "jit_llvm/emit.h"

#include <llvm-c/Target.h>

#include <stdio.h>
#include <string.h>

#include "jit_llvm/sve.h"

/* A target by name. The members are those of df_llvm_target. */
typedef struct named {
    const char *name, *triple, *cpu, *features;
    df_llvm_arch arch;
    uint32_t vector_bytes;
    bool mask_words, mask_bytes, slow_mask_stores, has_fma, has_f16;
} named;

#define X86_TRIPLE "x86_64-unknown-linux-gnu"

static const named levels[] = {
    { "x86-64", X86_TRIPLE, "x86-64", "", DF_ARCH_X86_64, 16, false, false, false, false, false },
    { "x86-64-v2", X86_TRIPLE, "x86-64-v2", "", DF_ARCH_X86_64, 16, false, false, false, false,
      false },
    { "x86-64-v3", X86_TRIPLE, "x86-64-v3", "", DF_ARCH_X86_64, 32, true, false, true, true, true },
    { "x86-64-v4", X86_TRIPLE, "x86-64-v4", "", DF_ARCH_X86_64, 64, true, true, false, true, true },
    { "aarch64", "aarch64-unknown-linux-gnu", "generic", "", DF_ARCH_AARCH64, 16, false, false,
      false, true, true },
    { "aarch64-sve256", "aarch64-unknown-linux-gnu", "generic", "+sve", DF_ARCH_AARCH64, 32, true,
      true, false, true, true },
    { "aarch64-sve512", "aarch64-unknown-linux-gnu", "generic", "+sve", DF_ARCH_AARCH64, 64, true,
      true, false, true, true },
};

/* Registration writes LLVM's global tables, which have no lock. */
static pthread_once_t registered = PTHREAD_ONCE_INIT;

static void register_all(void)
{
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
}

/* Whether the feature string contains "+name". */
static bool has(const char *features, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = features; p && *p;) {
        if (p[0] == '+' && strncmp(p + 1, name, n) == 0 && (p[n + 1] == ',' || p[n + 1] == '\0'))
            return true;
        p = strchr(p, ',');
        if (p) p++;
    }
    return false;
}

static deft_status init_named(const df_host *host, df_diag *d, const char *name,
                              df_llvm_target *out)
{
    for (size_t i = 0; i < DF_LEN(levels); i++) {
        const named *l = &levels[i];
        if (strcmp(l->name, name) != 0) continue;
        *out = (df_llvm_target){ .arch = l->arch,
                                 .vector_bytes = l->vector_bytes,
                                 .mask_words = l->mask_words,
                                 .mask_bytes = l->mask_bytes,
                                 .slow_mask_stores = l->slow_mask_stores,
                                 .has_fma = l->has_fma,
                                 .has_f16 = l->has_f16 };
        if (strcmp(l->features, "+sve") == 0) out->sve_bytes = l->vector_bytes;
        snprintf(out->triple, sizeof out->triple, "%s", l->triple);
        snprintf(out->cpu, sizeof out->cpu, "%s", l->cpu);
        out->features = LLVMCreateMessage(l->features);
        return DEFT_OK;
    }
    return host->fail(
        d, DEFT_E_ARG,
        "target: '%s' is none of host, x86-64, x86-64-v2, x86-64-v3, x86-64-v4, aarch64, "
        "aarch64-sve256, aarch64-sve512",
        name);
}

/* Masked stores are slow on AMD's cores without AVX-512. On Zen 3 a masked store at the end of a
 * row of 892 f64 takes about 130 cycles, a tenth of the time of updating the row. */
static bool has_slow_mask_stores(const df_llvm_target *t)
{
    const bool is_amd = strncmp(t->cpu, "znver", 5) == 0 || strncmp(t->cpu, "bdver", 5) == 0;
    return is_amd && !t->mask_bytes;
}

/* Adds SVE to the features of t. LLVM finds those of the host in /proc/cpuinfo, which emulators do
 * not show. */
static void add_sve(df_llvm_target *t)
{
    char text[1024];
    if (has(t->features, "sve")) return;
    snprintf(text, sizeof text, "%s%s+sve", t->features, *t->features ? "," : "");
    LLVMDisposeMessage(t->features);
    t->features = LLVMCreateMessage(text);
}

static void init_host(df_llvm_target *out)
{
    char *triple = LLVMGetDefaultTargetTriple();
    char *cpu = LLVMGetHostCPUName();
    char *features = LLVMGetHostCPUFeatures();
    *out = (df_llvm_target){ .vector_bytes = 16 };
    snprintf(out->triple, sizeof out->triple, "%s", triple);
    snprintf(out->cpu, sizeof out->cpu, "%s", cpu);
    out->features = features;
    if (strncmp(triple, "aarch64", 7) == 0 || strncmp(triple, "arm64", 5) == 0) {
        out->arch = DF_ARCH_AARCH64;
        out->has_fma = out->has_f16 = true;
        out->sve_bytes = df_sve_bytes();
        if (out->sve_bytes > 0) add_sve(out);
        if (out->sve_bytes >= 32) {
            out->vector_bytes = out->sve_bytes < 64 ? 32 : 64;
            out->mask_words = out->mask_bytes = true;
        }
    } else {
        out->arch = DF_ARCH_X86_64;
        out->has_fma = has(features, "fma");
        out->has_f16 = has(features, "f16c") || has(features, "avx512f");
        if (has(features, "avx2") && out->has_fma) {
            out->vector_bytes = 32;
            out->mask_words = true;
        }
        if (out->vector_bytes == 32 && has(features, "avx512f") && has(features, "avx512bw") &&
            has(features, "avx512dq") && has(features, "avx512vl")) {
            out->vector_bytes = 64;
            out->mask_bytes = true;
        }
        out->has_f16_math = out->mask_bytes && has(features, "avx512fp16");
        out->has_products = out->mask_bytes && has(features, "avx512vnni");
        out->slow_mask_stores = has_slow_mask_stores(out);
        const bool is_zen = strncmp(out->cpu, "znver", 5) == 0;
        out->fast_division = out->slow_gathers = out->mask_bytes && is_zen;
        out->is_intel_server = out->mask_bytes && !is_zen;
    }
    LLVMDisposeMessage(triple);
    LLVMDisposeMessage(cpu);
}

void df_llvm_target_register(void)
{
    pthread_once(&registered, register_all);
}

deft_status df_llvm_target_init(const df_host *host, df_diag *d, const char *name,
                                uint32_t max_vector_bytes, df_llvm_target *out)
{
    df_llvm_target_register();
    if (name && strcmp(name, "host") != 0) return init_named(host, d, name, out);
    init_host(out);
    if (max_vector_bytes == 0 || max_vector_bytes > out->vector_bytes) return DEFT_OK;
    if (max_vector_bytes == out->vector_bytes && max_vector_bytes < 64) return DEFT_OK;
    if (out->arch == DF_ARCH_AARCH64 && max_vector_bytes >= 32) {
        out->vector_bytes = max_vector_bytes < 64 ? 32 : 64;
        return DEFT_OK;
    }
    const df_llvm_arch arch = out->arch;
    df_llvm_target_finish(out);
    if (arch == DF_ARCH_AARCH64) return init_named(host, d, "aarch64", out);
    return init_named(host, d,
                      max_vector_bytes >= 64   ? "x86-64-v4"
                      : max_vector_bytes >= 32 ? "x86-64-v3"
                                               : "x86-64",
                      out);
}

void df_llvm_target_finish(df_llvm_target *t)
{
    if (t->features) LLVMDisposeMessage(t->features);
    t->features = NULL;
}

deft_status df_llvm_target_machine(const df_host *host, df_diag *d, const df_llvm_target *t,
                                   df_opt level, LLVMTargetMachineRef *out)
{
    char *message = NULL;
    LLVMTargetRef target = NULL;
    if (LLVMGetTargetFromTriple(t->triple, &target, &message)) {
        const deft_status st =
            host->fail(d, DEFT_E_BACKEND, "LLVMGetTargetFromTriple(%s): %s", t->triple, message);
        LLVMDisposeMessage(message);
        return st;
    }
    /* The small code model suffices: ORC keeps code and constants of an object together, and each
     * call to other code goes through a stub in the object. */
    LLVMTargetMachineRef tm =
        LLVMCreateTargetMachine(target, t->triple, t->cpu, t->features,
                                level == DF_OPT_O0 ? LLVMCodeGenLevelNone : LLVMCodeGenLevelDefault,
                                LLVMRelocPIC, LLVMCodeModelSmall);
    if (!tm)
        return host->fail(d, DEFT_E_BACKEND, "LLVMCreateTargetMachine(%s, %s) gave nothing",
                          t->triple, t->cpu);
    *out = tm;
    return DEFT_OK;
}

static void set_attribute(LLVMContextRef ctx, LLVMValueRef fn, const char *name, uint64_t value)
{
    const unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(ctx, kind, value));
}

/* Says how wide the registers of SVE are, in units of 16 bytes: the least width in the upper half,
 * the greatest in the lower. When both are that of the machine, code needs no predicate for whole
 * registers. */
static void set_sve_width(LLVMContextRef ctx, const df_llvm_target *t, LLVMValueRef fn)
{
    const uint64_t least = t->vector_bytes / 16, most = t->sve_bytes / 16;
    set_attribute(ctx, fn, "vscale_range", least << 32 | most);
}

void df_llvm_set_attributes(LLVMContextRef ctx, const df_llvm_target *t, LLVMValueRef fn)
{
    set_attribute(ctx, fn, "nounwind", 0);
    if (t->arch == DF_ARCH_AARCH64 && t->vector_bytes > 16) set_sve_width(ctx, t, fn);
    /* Debuggers expect the frame to be set up at the very start, before early returns. The pass of
     * this sanitizer is never run. Here its attribute only keeps LLVM from moving the prologue
     * (ShrinkWrap.cpp). */
    if (t->keep_frames) set_attribute(ctx, fn, "sanitize_hwaddress", 0);
    char bits[8];
    snprintf(bits, sizeof bits, "%u", (unsigned)(t->vector_bytes * 8 % 100000));
    const char *const text[][2] = { { "target-cpu", t->cpu },
                                    { "target-features", t->features },
                                    { "prefer-vector-width", bits },
                                    { "min-legal-vector-width", bits },
                                    { "frame-pointer", t->keep_frames ? "all" : "" } };
    for (size_t i = 0; i < DF_LEN(text); i++) {
        if (text[i][1][0] == '\0') continue;
        LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                                LLVMCreateStringAttribute(ctx, text[i][0],
                                                          (unsigned)strlen(text[i][0]), text[i][1],
                                                          (unsigned)strlen(text[i][1])));
    }
}
