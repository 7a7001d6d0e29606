/* SPDX-License-Identifier: Apache-2.0
 *
 * From a module to an object, and to callable code: the module is verified, compiled to an object
 * in memory with our own target machine, and loaded through ORC.
 *
 * ORC's own compile layer is not used. The host gets objects, and loads and keeps them by itself
 * where it can (runtime/code/kept.h). ORC loads the others: those of machines that the host has no
 * loader for, and those that need what the loader lacks. Each object is loaded into a symbol
 * table (JITDylib) of its own. So function names need not be unique, and the bytes of an object
 * depend on the kernels alone. Tables are reused because LLVM's C API cannot remove one. Each
 * object also has a resource tracker of its own. A table's default tracker would not do: its getter
 * does not retain it, which leads to a use after free.
 *
 * Generated code may call the functions of runtime/code/callees.def. Nothing else of the process is
 * visible to it.
 *
 * LLVM must neither print nor end the process. Contexts have a diagnostic handler, and the session
 * has an error reporter. guard.c handles fatal errors, after which LLVM is not used again. Apart
 * from missing memory, only an op that LLVM cannot compile leads to a fatal error. df_gen_check
 * refuses such ops.
 *
 * References: LLVM 19 llvm/include/llvm-c/Orc.h; Lang Hames, "ORC: LLVM's Next Generation of JIT
 * API", LLVM developers' meeting 2016.
 */
#include "jit_llvm/emit.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- what generated code may call ---- */

typedef struct callee {
    const char *name;
    void *fn;
} callee;

/* ISO C has no conversion from function to data pointers; POSIX has, and ORC asks for it. */
__extension__ static const callee callees[] = {
#define CALLEE(name, type) { #name, (void *)(type)name },
#include "runtime/code/callees.def"
};

/* Writes the message of `error`, which is not NULL, to the diag. Consumes the error. */
static deft_status fail_llvm(const df_host *host, df_diag *d, const char *call, LLVMErrorRef error)
{
    char *text = LLVMGetErrorMessage(error);
    const deft_status st = host->fail(d, DEFT_E_COMPILE, "%s: %s", call, text);
    LLVMDisposeErrorMessage(text);
    return st;
}

static void drop_report(void *user, LLVMErrorRef error)
{
    (void)user;
    LLVMConsumeError(error); /* the failing call returns it too */
}

static void drop_diagnostic(LLVMDiagnosticInfoRef info, void *user)
{
    (void)info;
    (void)user;
}

/* ---- symbol tables ---- */

static deft_status define_callees(df_llvm *self, df_diag *d, LLVMOrcJITDylibRef dylib)
{
    LLVMOrcCSymbolMapPair pairs[DF_LEN(callees)];
    for (size_t i = 0; i < DF_LEN(callees); i++) {
        pairs[i].Name = LLVMOrcLLJITMangleAndIntern(self->jit, callees[i].name);
        pairs[i].Sym.Address = (LLVMOrcExecutorAddress)(uintptr_t)callees[i].fn;
        pairs[i].Sym.Flags.GenericFlags =
            LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable;
        pairs[i].Sym.Flags.TargetFlags = 0;
    }
    LLVMErrorRef error = LLVMOrcJITDylibDefine(dylib, LLVMOrcAbsoluteSymbols(pairs, DF_LEN(pairs)));
    return error ? fail_llvm(&self->host, d, "LLVMOrcJITDylibDefine", error) : DEFT_OK;
}

static deft_status take_dylib(df_llvm *self, df_diag *d, LLVMOrcJITDylibRef *out)
{
    LLVMOrcJITDylibRef dylib = NULL;
    pthread_mutex_lock(&self->lock);
    if (self->idle_dylib.n > 0) dylib = self->idle_dylib.at[--self->idle_dylib.n];
    const uint32_t number = self->n_dylibs;
    if (!dylib) self->n_dylibs++;
    pthread_mutex_unlock(&self->lock);
    if (!dylib) {
        char name[32];
        snprintf(name, sizeof name, "deft%u", number);
        dylib = LLVMOrcExecutionSessionCreateBareJITDylib(
            LLVMOrcLLJITGetExecutionSession(self->jit), name);
        const deft_status st = define_callees(self, d, dylib);
        if (st != DEFT_OK) return st; /* the table stays in the session, unused */
    }
    *out = dylib;
    return DEFT_OK;
}

static void give_dylib(df_llvm *self, LLVMOrcJITDylibRef dylib)
{
    pthread_mutex_lock(&self->lock);
    (void)df_vec_push(self->host.mem, &self->idle_dylib, dylib); /* else it stays in the session */
    pthread_mutex_unlock(&self->lock);
}

/* ---- emission ---- */

deft_status df_llvm_machine_take(df_llvm *self, df_diag *d, df_opt level, LLVMTargetMachineRef *out)
{
    LLVMTargetMachineRef tm = NULL;
    pthread_mutex_lock(&self->lock);
    if (self->n_idle_machines[level] > 0)
        tm = self->idle_machine[level][--self->n_idle_machines[level]];
    pthread_mutex_unlock(&self->lock);
    if (!tm) return df_llvm_target_machine(&self->host, d, &self->target, level, out);
    *out = tm;
    return DEFT_OK;
}

void df_llvm_machine_give(df_llvm *self, df_opt level, LLVMTargetMachineRef tm)
{
    if (!tm) return;
    pthread_mutex_lock(&self->lock);
    if (self->n_idle_machines[level] < DF_LLVM_IDLE_MACHINES) {
        self->idle_machine[level][self->n_idle_machines[level]++] = tm;
        tm = NULL;
    }
    pthread_mutex_unlock(&self->lock);
    if (tm) LLVMDisposeTargetMachine(tm);
}

static deft_status verify(const df_host *host, df_diag *d, LLVMModuleRef m)
{
    char *text = NULL;
    deft_status st = DEFT_OK;
    if (LLVMVerifyModule(m, LLVMReturnStatusAction, &text))
        st = host->fail(d, DEFT_E_COMPILE, "LLVMVerifyModule: %s", text);
    LLVMDisposeMessage(text);
    return st;
}

static void set_layout(LLVMModuleRef m, const df_llvm_target *t, LLVMTargetMachineRef tm)
{
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(tm);
    LLVMSetTarget(m, t->triple);
    LLVMSetModuleDataLayout(m, layout);
    LLVMDisposeTargetData(layout);
}

static deft_status emit_object(const df_host *host, df_diag *d, const df_llvm_target *t,
                               LLVMTargetMachineRef tm, LLVMModuleRef m, LLVMCodeGenFileType type,
                               LLVMMemoryBufferRef *out)
{
    set_layout(m, t, tm);
    deft_status st = verify(host, d, m);
    if (st != DEFT_OK) return st;
    char *text = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(tm, m, type, &text, out)) {
        st = host->fail(d, DEFT_E_COMPILE, "LLVMTargetMachineEmitToMemoryBuffer: %s",
                        text ? text : "no reason given");
        LLVMDisposeMessage(text);
    }
    return st;
}

/* ---- loading ---- */

typedef struct lookup {
    const df_llvm *self;
    df_diag *d;
    const char *const *names;
    uint32_t n;
    df_llvm_fn *fns;
    deft_status st;
} lookup;

/* Receives the symbols of a lookup. Because of load_lock, ORC calls it on the thread of the lookup
 * and before the lookup returns. */
static void take_symbols(LLVMErrorRef error, LLVMOrcCSymbolMapPairs found, size_t n, void *user)
{
    lookup *l = user;
    if (error) {
        l->st = fail_llvm(&l->self->host, l->d, "LLVMOrcExecutionSessionLookup", error);
        return;
    }
    l->st = DEFT_OK;
    for (uint32_t i = 0; i < l->n; i++) {
        l->fns[i].at = NULL;
        for (size_t j = 0; j < n; j++)
            if (strcmp(LLVMOrcSymbolStringPoolEntryStr(found[j].Name), l->names[i]) == 0)
                l->fns[i].at = (void *)(uintptr_t)found[j].Sym.Address;
        if (!l->fns[i].at)
            l->st =
                l->self->host.fail(l->d, DEFT_E_COMPILE, "symbol %s was not found", l->names[i]);
    }
}

static deft_status engine_find_symbols(df_llvm *self, df_diag *d, LLVMOrcJITDylibRef dylib,
                                       const char *const *names, uint32_t n, df_llvm_fn *fns)
{
    const size_t bytes = sizeof(LLVMOrcCLookupSetElement) * n;
    LLVMOrcCLookupSetElement *set = df_mem_alloc(self->host.mem, bytes);
    if (!set) return self->host.fail(d, DEFT_E_MEMORY, "symbols: could not get %zu bytes", bytes);
    for (uint32_t i = 0; i < n; i++) {
        set[i].Name = LLVMOrcLLJITMangleAndIntern(self->jit, names[i]);
        set[i].LookupFlags = LLVMOrcSymbolLookupFlagsRequiredSymbol;
    }
    const LLVMOrcCJITDylibSearchOrderElement order = { dylib,
                                                       LLVMOrcJITDylibLookupFlagsMatchAllSymbols };
    lookup l = { self, d, names, n, fns, DEFT_E_INTERNAL };
    LLVMOrcExecutionSessionLookup(LLVMOrcLLJITGetExecutionSession(self->jit),
                                  LLVMOrcLookupKindStatic, (LLVMOrcCJITDylibSearchOrder)&order, 1,
                                  set, n, take_symbols, &l);
    df_mem_free(self->host.mem, set, bytes);
    return l.st;
}

static deft_status load_object(df_llvm *self, df_diag *d, LLVMMemoryBufferRef DEFT_OWN object,
                               const char *const *names, uint32_t n, df_llvm_fn *fns,
                               df_llvm_batch **out)
{
    deft_status st = DEFT_OK;
    df_llvm_batch *batch = df_mem_zalloc(self->host.mem, sizeof *batch);
    if (!batch) {
        LLVMDisposeMemoryBuffer(object);
        return self->host.fail(d, DEFT_E_MEMORY, "batch: could not get %zu bytes", sizeof *batch);
    }
    atomic_init(&batch->refs, 1);
    st = take_dylib(self, d, &batch->dylib);
    if (st != DEFT_OK) {
        LLVMDisposeMemoryBuffer(object);
        goto done;
    }
    batch->tracker = LLVMOrcJITDylibCreateResourceTracker(batch->dylib);
    /* One thread at a time. ORC queues materializations per session, and any thread in the session
     * may run them. So a lookup could otherwise return before its callback was called. */
    pthread_mutex_lock(&self->load_lock);
    LLVMErrorRef error = LLVMOrcLLJITAddObjectFileWithRT(self->jit, batch->tracker, object);
    if (error)
        st = fail_llvm(&self->host, d, "LLVMOrcLLJITAddObjectFileWithRT", error);
    else
        st = engine_find_symbols(self, d, batch->dylib, names, n, fns);
    pthread_mutex_unlock(&self->load_lock);
    if (st != DEFT_OK) goto done;
    atomic_fetch_add_explicit(&self->n_modules, 1, memory_order_relaxed);
    *out = batch;
    batch = NULL;
done:
    df_llvm_batch_drop(self, &batch);
    return st;
}

void df_llvm_batch_drop(df_llvm *self, df_llvm_batch **batch)
{
    df_llvm_batch *b = *batch;
    *batch = NULL;
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1) return;
    bool is_clean = true;
    if (b->tracker) {
        LLVMErrorRef error = LLVMOrcResourceTrackerRemove(b->tracker);
        if (error) {
            LLVMConsumeError(error);
            is_clean = false; /* do not reuse a table that may still hold symbols */
        }
        LLVMOrcReleaseResourceTracker(b->tracker);
    }
    if (b->dylib && is_clean) give_dylib(self, b->dylib);
    df_mem_free(self->host.mem, b, sizeof *b);
}

/* ---- exported ---- */

deft_status df_llvm_module_create(df_diag *d, const df_host *host, LLVMContextRef *ctx,
                                  LLVMModuleRef *m)
{
    LLVMContextRef c = LLVMContextCreate();
    if (!c) return host->fail(d, DEFT_E_MEMORY, "LLVMContextCreate gave nothing");
    LLVMContextSetDiscardValueNames(c, 0);
    LLVMContextSetDiagnosticHandler(c, drop_diagnostic, NULL);
    *m = LLVMModuleCreateWithNameInContext("deft", c);
    *ctx = c;
    return DEFT_OK;
}

deft_status df_llvm_module_text(const df_host *host, df_diag *d, const df_llvm_target *t,
                                LLVMModuleRef m, bool assembly, df_str *out)
{
    LLVMTargetMachineRef tm = NULL;
    LLVMMemoryBufferRef buffer = NULL;
    deft_status st = DEFT_OK;
    TRY(df_llvm_target_machine(host, d, t, DF_OPT_O2, &tm));
    if (assembly) {
        TRY(emit_object(host, d, t, tm, m, LLVMAssemblyFile, &buffer));
        host->str_putn(out, LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer));
    } else {
        set_layout(m, t, tm);
        TRY(verify(host, d, m));
        char *text = LLVMPrintModuleToString(m);
        host->str_putn(out, text, strlen(text));
        LLVMDisposeMessage(text);
    }
done:
    if (buffer) LLVMDisposeMemoryBuffer(buffer);
    if (tm) LLVMDisposeTargetMachine(tm);
    return st;
}

/* Computes the addresses of the internal functions fns[n..n + n_inner). A section is loaded in one
 * piece, so two of its functions are as far apart in memory as in the object. */
static void place_inner(df_llvm_fn *fns, uint32_t n, uint32_t n_inner)
{
    for (df_llvm_fn *f = fns + n; f < fns + n + n_inner; f++) {
        const df_llvm_fn *beside = fns;
        while (beside < fns + n && (beside->size == 0 || beside->section != f->section)) beside++;
        if (f->size == 0 || beside == fns + n)
            f->size = 0;
        else
            f->at = (char *)beside->at + (int64_t)(f->offset - beside->offset);
    }
}

deft_status df_llvm_load_batch(df_llvm *self, df_diag *d, LLVMModuleRef m, LLVMContextRef ctx,
                               df_opt level, const char *const *names, uint32_t n, uint32_t n_inner,
                               df_llvm_fn *fns, size_t *bytes, df_llvm_batch **batch)
{
    LLVMTargetMachineRef tm = NULL;
    LLVMMemoryBufferRef object = NULL;
    deft_status st = DEFT_OK;
    TRY(df_llvm_machine_take(self, d, level, &tm));
    TRY(emit_object(&self->host, d, &self->target, tm, m, LLVMObjectFile, &object));
    if (bytes) *bytes = LLVMGetBufferSize(object);
    df_llvm_object_read(LLVMGetBufferStart(object), LLVMGetBufferSize(object), names, n + n_inner,
                        fns);
    TRY(load_object(self, d, object, names, n, fns, batch));
    place_inner(fns, n, n_inner);
done:
    df_llvm_machine_give(self, level, tm);
    LLVMDisposeModule(m);
    LLVMContextDispose(ctx);
    return st;
}

deft_status df_llvm_module_object(df_llvm *self, df_diag *d, LLVMModuleRef m, LLVMContextRef ctx,
                                  df_opt level, df_str *elf)
{
    LLVMTargetMachineRef tm = NULL;
    LLVMMemoryBufferRef object = NULL;
    deft_status st = DEFT_OK;
    TRY(df_llvm_machine_take(self, d, level, &tm));
    TRY(emit_object(&self->host, d, &self->target, tm, m, LLVMObjectFile, &object));
    self->host.str_putn(elf, LLVMGetBufferStart(object), LLVMGetBufferSize(object));
    LLVMDisposeMemoryBuffer(object);
done:
    df_llvm_machine_give(self, level, tm);
    LLVMDisposeModule(m);
    LLVMContextDispose(ctx);
    return st;
}

deft_status df_llvm_load_module(df_llvm *self, df_diag *d, LLVMModuleRef m, LLVMContextRef ctx,
                                df_opt level, const char *const *names, uint32_t n, df_llvm_fn *fns,
                                size_t *bytes)
{
    df_llvm_batch *batch = NULL;
    const deft_status st =
        df_llvm_load_batch(self, d, m, ctx, level, names, n, 0, fns, bytes, &batch);
    /* The reference is never dropped, because the session frees the code. Only the record and its
     * tracker are released here. */
    if (batch) {
        LLVMOrcReleaseResourceTracker(batch->tracker);
        df_mem_free(self->host.mem, batch, sizeof *batch);
    }
    return st;
}

deft_status df_llvm_engine_init(df_llvm *self, df_diag *d)
{
    LLVMTargetMachineRef tm = NULL;
    deft_status st = df_llvm_target_machine(&self->host, d, &self->target, DF_OPT_O2, &tm);
    if (st != DEFT_OK) return st;
    LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
    LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(
        builder, LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(tm)); /* takes both */
    LLVMErrorRef error = LLVMOrcCreateLLJIT(&self->jit, builder);            /* takes builder */
    if (error) {
        self->jit = NULL;
        return fail_llvm(&self->host, d, "LLVMOrcCreateLLJIT", error);
    }
    LLVMOrcExecutionSessionSetErrorReporter(LLVMOrcLLJITGetExecutionSession(self->jit), drop_report,
                                            NULL);
    return DEFT_OK;
}

void df_llvm_engine_finish(df_llvm *self)
{
    for (int level = 0; level < 2; level++)
        while (self->n_idle_machines[level] > 0)
            LLVMDisposeTargetMachine(self->idle_machine[level][--self->n_idle_machines[level]]);
    df_vec_finish(self->host.mem, &self->idle_dylib);
    if (self->jit) {
        LLVMErrorRef error = LLVMOrcDisposeLLJIT(self->jit);
        if (error) LLVMConsumeError(error);
    }
    self->jit = NULL;
}
