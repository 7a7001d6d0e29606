/* SPDX-License-Identifier: Apache-2.0
 *
 * The one exported symbol of deft-llvm-code.so, and the compiler that it creates. The kernels of a
 * batch become one module, one object and one resource of ORC. The code here does not print, exit,
 * or use a libdeft that the process may contain. Failures go through the host's table.
 */
#include "jit_llvm/gen.h"
#include "jit_llvm/gate.h"
#include "jit_llvm/give_back.h"
#include "jit_llvm/guard.h"
#include "jit_llvm/start.h"

#include "base/build_id.h"

#include <stdio.h>
#include <string.h>

/* ---- kernels to modules ---- */

static void init_types(df_gen *g)
{
    g->i1 = LLVMInt1TypeInContext(g->ctx);
    g->i8 = LLVMInt8TypeInContext(g->ctx);
    g->i16 = LLVMInt16TypeInContext(g->ctx);
    g->i32 = LLVMInt32TypeInContext(g->ctx);
    g->i64 = LLVMInt64TypeInContext(g->ctx);
    g->f32 = LLVMFloatTypeInContext(g->ctx);
    g->f64 = LLVMDoubleTypeInContext(g->ctx);
    g->ptr = LLVMPointerTypeInContext(g->ctx, 0);
    g->nothing = LLVMVoidTypeInContext(g->ctx);
}

/* Creates a module in which the kernels are named df_k0, df_k1 and so on. facts hold for all of the
 * kernels; NULL: general code. The caller destroys *m and *ctx; on failure they are destroyed. */
static deft_status plugin_build_module(const df_host *host, const df_llvm_target *t, df_diag *d,
                                       const df_kernel *const *k, const df_facts *facts, uint32_t n,
                                       df_opt level, LLVMContextRef *ctx, LLVMModuleRef *m)
{
    deft_status st = df_llvm_module_create(d, host, ctx, m);
    if (st != DEFT_OK) return st;
    df_gen g = { .host = host, .t = t, .d = d, .level = level, .ctx = *ctx, .m = *m };
    df_arena arena;
    df_arena_init(&arena, host->mem);
    g.arena = &arena;
    g.b = LLVMCreateBuilderInContext(*ctx);
    init_types(&g);
    for (uint32_t i = 0; i < n && st == DEFT_OK; i++) {
        char name[DF_CODE_NAME];
        df_code_name(name, i, 0);
        g.k = k[i];
        g.facts = facts;
        st = df_gen_kernel(&g, name);
        df_arena_reset(&arena);
    }
    LLVMDisposeBuilder(g.b);
    df_arena_finish(&arena);
    if (st != DEFT_OK) {
        LLVMDisposeModule(*m);
        LLVMContextDispose(*ctx);
    }
    return st;
}

/* ---- vtable ---- */

/* The names of the pieces of a kernel. */
typedef struct names {
    char text[DF_CODE_PIECES][DF_CODE_NAME];
} names;

/* Lists the names of the exported functions, then those of the internal ones. Returns the number of
 * exported functions. */
static uint32_t list_names(const df_kernel *const *k, const df_facts *facts, uint32_t n,
                           names *text, const char **list, uint32_t *n_inner)
{
    uint32_t at = 0;
    *n_inner = 0;
    for (uint32_t i = 0; i < n; i++) {
        const int n_pieces = df_code_has_parts(k[i], facts) ? DF_CODE_PIECES : 1;
        for (int e = 0; e < n_pieces; e++) df_code_name(text[i].text[e], i, e);
        for (int e = 0; e < n_pieces && e < 3; e++) list[at++] = text[i].text[e];
    }
    for (uint32_t i = 0; i < n; i++)
        if (df_code_has_parts(k[i], facts)) list[at + (*n_inner)++] = text[i].text[3];
    return at;
}

/* Function and data pointers have one representation here; C has no conversion between them. */
static df_kernel_fn as_fn(void *p)
{
    df_kernel_fn fn;
    memcpy(&fn, &p, sizeof fn);
    return fn;
}

static void fill_codes(const df_kernel *const *k, const df_facts *facts, uint32_t n,
                       const df_llvm_fn *fns, const df_llvm_fn *inner, size_t bytes,
                       df_llvm_batch *batch, df_code *out)
{
    atomic_store_explicit(&batch->refs, n, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++, fns++) {
        df_code *const c = &out[i];
        *c = (df_code){ .main = as_fn(fns->at), .bytes = bytes / n, .owner = batch };
        c->size[0] = fns->size;
        if (!df_code_has_parts(k[i], facts)) continue;
        c->part = as_fn((++fns)->at);
        c->size[1] = fns->size;
        c->fin = as_fn((++fns)->at);
        c->size[2] = fns->size;
        c->body = inner->at;
        c->size[3] = inner++->size;
    }
}

static deft_status plugin_compile_batch(void *self, df_diag *d, const df_kernel *const *k,
                                        const df_facts *facts, uint32_t n, df_opt level,
                                        df_code *out)
{
    df_llvm *llvm = self;
    const df_host *host = &llvm->host;
    if (n == 0) return DEFT_OK;
    /* One block of memory holds the list of names, the functions, and the text of the names. */
    const size_t list_size = n * DF_CODE_PIECES * sizeof(char *),
                 fns_size = n * DF_CODE_PIECES * sizeof(df_llvm_fn),
                 size = list_size + fns_size + n * sizeof(names);
    char *block = df_mem_zalloc(host->mem, size);
    if (!block) return host->fail(d, DEFT_E_MEMORY, "compile: could not get %zu bytes", size);
    const char **list = (const char **)(void *)block;
    df_llvm_fn *fns = (df_llvm_fn *)(void *)(block + list_size);
    names *text = (names *)(void *)(block + list_size + fns_size);

    LLVMContextRef ctx = NULL;
    LLVMModuleRef m = NULL;
    df_llvm_batch *batch = NULL;
    size_t bytes = 0;
    deft_status st = DEFT_OK;
    TRY(plugin_build_module(host, &llvm->target, d, k, facts, n, level, &ctx, &m));
    uint32_t n_inner = 0;
    const uint32_t n_fns = list_names(k, facts, n, text, list, &n_inner);
    TRY(df_llvm_load_batch(llvm, d, m, ctx, level, list, n_fns, n_inner, fns, &bytes, &batch));
    fill_codes(k, facts, n, fns, fns + n_fns, bytes, batch, out);
done:
    df_mem_free(host->mem, block, size);
    return st;
}

/* Puts the functions of each of n kernels into a section of its own. */
static void set_sections(LLVMModuleRef m, uint32_t n)
{
    char name[DF_CODE_NAME], section[DF_CODE_NAME];
    for (uint32_t i = 0; i < n; i++) {
        snprintf(section, sizeof section, ".text.df_k%u", i);
        for (int e = 0; e < DF_CODE_PIECES; e++) {
            df_code_name(name, i, e);
            const LLVMValueRef fn = LLVMGetNamedFunction(m, name);
            if (fn) LLVMSetSection(fn, section);
        }
    }
}

static deft_status plugin_object(void *self, df_diag *d, const df_kernel *const *k,
                                 const df_facts *facts, uint32_t n, df_opt level, df_str *elf)
{
    df_llvm *const llvm = self;
    LLVMContextRef ctx = NULL;
    LLVMModuleRef m = NULL;
    const deft_status st =
        plugin_build_module(&llvm->host, &llvm->target, d, k, facts, n, level, &ctx, &m);
    if (st != DEFT_OK) return st;
    set_sections(m, n);
    return df_llvm_module_object(llvm, d, m, ctx, level, elf);
}

static deft_status plugin_show_kernel(void *self, df_diag *d, const df_kernel *k,
                                      const char *target, bool assembly, df_str *out)
{
    const df_host *host = &((df_llvm *)self)->host;
    df_llvm_target t = { 0 };
    LLVMContextRef ctx = NULL;
    LLVMModuleRef m = NULL;
    deft_status st = DEFT_OK;
    TRY(df_llvm_target_init(host, d, target, 0, &t));
    TRY(plugin_build_module(host, &t, d, &k, NULL, 1, DF_OPT_O2, &ctx, &m));
    st = df_llvm_module_text(host, d, &t, m, assembly, out);
    LLVMDisposeModule(m);
    LLVMContextDispose(ctx);
done:
    df_llvm_target_finish(&t);
    return st;
}

/* ---- guarded calls, through the gate ---- */

/* The memory that compiling needs, with a wide margin. Processes in which LLVM could get up to
 * 25 MB ran out of memory while they compiled kernels of a few instructions. */
#define ROOM ((size_t)64 << 20)
#define ROOM_PER_INS ((size_t)64 << 10)

static size_t room_for(const df_kernel *const *k, uint32_t n)
{
    size_t room = ROOM;
    for (uint32_t i = 0; i < n; i++) room += k[i]->n_ins * ROOM_PER_INS;
    return room;
}

/* The arguments of any of the calls below. */
typedef struct call {
    df_llvm *llvm;
    df_diag *d;
    const df_kernel *const *k;
    const df_facts *facts;
    uint32_t n;
    df_opt level;
    df_code *code;
    const char *target; /* run_show_debugger: the name for debuggers */
    bool assembly;
    df_str *text;
    deft_dtype dtype;
    df_gemm_kernel *gemm;
    const void *start;
    size_t size;
    void *shown;
    bool has_begun; /* run_start was called, so LLVM may hold something that must be released */
} call;

static deft_status run_compile_batch(void *user)
{
    const call *const c = user;
    return plugin_compile_batch(c->llvm, c->d, c->k, c->facts, c->n, c->level, c->code);
}

static deft_status gated_compile(void *self, df_diag *d, const df_kernel *const *k, uint32_t n,
                                 df_opt level, df_code *out)
{
    call c = { .llvm = self, .d = d, .k = k, .n = n, .level = level, .code = out };
    return df_llvm_call(&c.llvm->host, d, DF_LLVM_STACK_COMPILE, room_for(k, n), run_compile_batch,
                        &c);
}

static deft_status gated_specialize(void *self, df_diag *d, const df_kernel *k,
                                    const df_facts *facts, df_code *out)
{
    call c = { self, d, &k, facts, 1, DF_OPT_O2, out, .target = NULL };
    return df_llvm_call(&c.llvm->host, d, DF_LLVM_STACK_COMPILE, room_for(&k, 1), run_compile_batch,
                        &c);
}

static deft_status run_object(void *user)
{
    const call *const c = user;
    return plugin_object(c->llvm, c->d, c->k, c->facts, c->n, c->level, c->text);
}

static deft_status gated_object(void *self, df_diag *d, const df_kernel *const *k,
                                const df_facts *facts, uint32_t n, df_opt level, df_str *elf)
{
    call c = { .llvm = self, .d = d, .k = k, .facts = facts, .n = n, .level = level, .text = elf };
    return df_llvm_call(&c.llvm->host, d, DF_LLVM_STACK_COMPILE, room_for(k, n), run_object, &c);
}

static deft_status run_release(void *user)
{
    const call *const c = user;
    df_llvm_batch *batch = c->code->owner;
    df_llvm_batch_drop(c->llvm, &batch);
    return DEFT_OK;
}

/* Code that cannot be released here is freed when the process ends. */
static void gated_release(void *self, df_code *code)
{
    call c = { .llvm = self, .code = code };
    (void)df_llvm_call(&c.llvm->host, NULL, DF_LLVM_STACK_RELEASE, 0, run_release, &c);
    *code = (df_code){ 0 };
}

static deft_status run_show(void *user)
{
    const call *const c = user;
    return plugin_show_kernel(c->llvm, c->d, c->k[0], c->target, c->assembly, c->text);
}

static deft_status gated_show(void *self, df_diag *d, const df_kernel *k, const char *target,
                              bool assembly, df_str *out)
{
    call c = { .llvm = self, .d = d, .k = &k, .target = target, .assembly = assembly, .text = out };
    return df_llvm_call(&c.llvm->host, d, DF_LLVM_STACK_COMPILE, room_for(&k, 1), run_show, &c);
}

static deft_status run_gemm(void *user)
{
    const call *const c = user;
    return df_llvm_gemm(c->llvm, c->d, c->dtype, c->gemm);
}

static deft_status gated_gemm(void *self, df_diag *d, deft_dtype t, df_gemm_kernel *out)
{
    call c = { .llvm = self, .d = d, .dtype = t, .gemm = out };
    return df_llvm_call(&c.llvm->host, d, DF_LLVM_STACK_COMPILE, ROOM, run_gemm, &c);
}

static deft_status run_gemm_object(void *user)
{
    const call *const c = user;
    return df_llvm_gemm_object(c->llvm, c->d, c->dtype, c->gemm, c->text);
}

static deft_status gated_gemm_object(void *self, df_diag *d, deft_dtype t, df_gemm_kernel *out,
                                     df_str *elf)
{
    call c = { .llvm = self, .d = d, .dtype = t, .gemm = out, .text = elf };
    return df_llvm_call(&c.llvm->host, d, DF_LLVM_STACK_COMPILE, ROOM, run_gemm_object, &c);
}

static deft_status run_show_debugger(void *user)
{
    call *const c = user;
    c->shown = df_llvm_show_debugger(c->llvm, c->target, c->start, c->size);
    return DEFT_OK;
}

static void *gated_show_debugger(void *self, const char *name, const void *start, size_t size)
{
    call c = { .llvm = self, .target = name, .start = start, .size = size };
    (void)df_llvm_call(&c.llvm->host, NULL, DF_LLVM_STACK_RELEASE, 0, run_show_debugger, &c);
    return c.shown;
}

static deft_status run_hide_debugger(void *user)
{
    const call *const c = user;
    df_llvm_hide_debugger(c->llvm, c->shown);
    return DEFT_OK;
}

/* When LLVM may not be used any more, debuggers keep the object, and its code stays loaded. */
static void gated_hide_debugger(void *self, void *shown)
{
    call c = { .llvm = self, .shown = shown };
    (void)df_llvm_call(&c.llvm->host, NULL, DF_LLVM_STACK_RELEASE, 0, run_hide_debugger, &c);
}

static deft_status run_destroy(void *user)
{
    df_llvm *const llvm = ((const call *)user)->llvm;
    df_llvm_engine_finish(llvm);
    df_llvm_target_finish(&llvm->target);
    return DEFT_OK;
}

static void free_self(df_llvm *llvm)
{
    pthread_mutex_destroy(&llvm->lock);
    pthread_mutex_destroy(&llvm->load_lock);
    pthread_mutex_destroy(&llvm->gemm_lock);
    df_mem_free(llvm->host.mem, llvm, sizeof *llvm);
}

static void gated_destroy(void *self)
{
    call c = { .llvm = self };
    df_llvm *const llvm = self;
    if (!llvm) return;
    const df_host *const host = &llvm->host;
    if (df_llvm_call(host, NULL, DF_LLVM_STACK_COMPILE, 0, run_destroy, &c) == DEFT_OK)
        free_self(llvm);
}

/* Touches nothing of LLVM's, so that it passes no gate. */
static void plugin_give_back(void *self)
{
    (void)self;
    df_llvm_give_back_pages();
    df_llvm_give_back_heap();
}

/* ---- entry ---- */

/* The loader has read the symbols and relocations of libLLVM, which is not done again. */
static bool plugin_loaded(void)
{
    const bool ok = df_llvm_gate_open();
    df_llvm_give_back_pages();
    return ok;
}

static void name_compiler(df_llvm *llvm)
{
    unsigned major = 0, minor = 0, patch = 0;
    LLVMGetVersion(&major, &minor, &patch);
    snprintf(llvm->name, sizeof llvm->name, "llvm %u.%u.%u %s %u-byte vectors", major, minor, patch,
             llvm->target.cpu, llvm->target.vector_bytes);
}

static deft_status run_start(void *user)
{
    deft_status st = DEFT_OK;
    call *const c = user;
    df_llvm *const llvm = c->llvm;
    c->has_begun = true;
    TRY(df_llvm_target_init(&llvm->host, c->d, llvm->host.target, llvm->host.max_vector_bytes,
                            &llvm->target));
    llvm->target.keep_frames = llvm->host.keep_frames;
    TRY(df_llvm_engine_init(llvm, c->d));
    name_compiler(llvm);
done:
    return st;
}

/* Creates a compiler (df_plugin_cpu_fn). */
static deft_status plugin_create_compiler(const df_host *host, const char *build_id, df_diag *d,
                                          df_compiler *out)
{
    if (host->size != sizeof(df_host))
        return DEFT_E_BACKEND; /* `fail` may be elsewhere in the struct */
    if (strcmp(host->build_id, DF_BUILD_ID) != 0 || strcmp(build_id, DF_BUILD_ID) != 0)
        return host->fail(d, DEFT_E_BACKEND, "deft-llvm is of build '%s', the host of build '%s'",
                          DF_BUILD_ID, host->build_id);
    df_llvm *llvm = df_mem_zalloc(host->mem, sizeof *llvm);
    if (!llvm)
        return host->fail(d, DEFT_E_MEMORY, "deft-llvm: could not get %zu bytes", sizeof *llvm);
    llvm->host = *host;
    pthread_mutex_init(&llvm->lock, NULL);
    pthread_mutex_init(&llvm->load_lock, NULL);
    pthread_mutex_init(&llvm->gemm_lock, NULL);
    call c = { .llvm = llvm, .d = d };
    const deft_status st = df_llvm_call(&llvm->host, d, DF_LLVM_STACK_COMPILE, ROOM, run_start, &c);
    if (st != DEFT_OK) {
        if (c.has_begun)
            gated_destroy(llvm);
        else
            free_self(llvm);
        return st;
    }
    *out = (df_compiler){ .name = llvm->name,
                          .self = llvm,
                          .vector_bytes = llvm->target.vector_bytes,
                          .compile = gated_compile,
                          .specialize = gated_specialize,
                          .object = gated_object,
                          .gemm_object = gated_gemm_object,
                          .release = gated_release,
                          .show = gated_show,
                          .gemm = gated_gemm,
                          .show_debugger = gated_show_debugger,
                          .hide_debugger = gated_hide_debugger,
                          .give_back = plugin_give_back,
                          .destroy = gated_destroy };
    return DEFT_OK;
}

__attribute__((visibility("default"))) extern const df_llvm_code
    df_llvm_code_table __asm__(DF_LLVM_CODE_SYMBOL);

const df_llvm_code df_llvm_code_table = { .make = plugin_create_compiler,
                                          .loaded = plugin_loaded,
                                          .forked = df_llvm_gate_forked };
