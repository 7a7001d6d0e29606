/* SPDX-License-Identifier: Apache-2.0
 *
 * All of deft-llvm.so: a compiler that stands in front of the real one, whose library it opens with
 * the first call that needs it. Opening libLLVM takes 20 ms of CPU, which a program that compiles
 * nothing does not pay, and one that does pays on the compile thread.
 *
 * A program may end or fork while another thread is opening. One lock of the process is held by
 * whoever opens, from before dlopen until the gate stands (gate.c). A handler of exit() takes it,
 * so that destructors run before all is loaded or after, never meanwhile; from then on nothing is
 * opened. A handler of fork() takes it, so that a child finds a loader that nobody was in.
 *
 * Both handlers are registered when this library is loaded, which the thread does that makes a
 * runtime. They wait a bounded time: a thread that exits or forks in the constructor of a library
 * has the loader's lock, for which the opening thread waits. A child that was not waited for opens
 * nothing.
 *
 * size: libLLVM's own state and the handlers are the process', so this file has writable globals.
 */
#include "jit_llvm/start.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/build_id.h"
#include "base/fork.h"
#include "runtime/elf_file.h"
#include "runtime/os.h"

/* ---- the process ---- */

#define PATIENCE_S 5

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(uintptr_t) holder; /* the thread that has `opening`; 0: none */
static atomic_bool held_for_fork; /* written by the holder */
static atomic_bool is_guarded;    /* both handlers are registered */
static atomic_bool is_ending;
static atomic_bool is_lost; /* in a child: a lost thread was opening */
static _Atomic(const df_llvm_code *) opened;

static bool is_mine(void)
{
    return atomic_load(&holder) == (uintptr_t)pthread_self();
}

/* false: not to be had in time. */
static bool take(void)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    if (pthread_mutex_timedlock(&opening, &until) != 0) return false;
    atomic_store(&holder, (uintptr_t)pthread_self());
    return true;
}

/* Another thread that opens ends by itself, however slow the disk is. A fork may wait for us, in
 * another handler: false after two times of patience. */
static bool take_to_open(void)
{
    for (int n_forks = 0; n_forks < 2;) {
        if (take()) return true;
        n_forks += atomic_load(&held_for_fork);
    }
    return false;
}

static void give(void)
{
    atomic_store(&holder, 0);
    (void)pthread_mutex_unlock(&opening);
}

static void on_exit_begun(void)
{
    atomic_store(&is_ending, true); /* who waits for the lock opens nothing */
    if (!is_mine() && take()) give();
}

static void before_fork(void)
{
    if (!is_mine() && take()) atomic_store(&held_for_fork, true);
}

static void after_fork(void)
{
    if (!is_mine() || !atomic_exchange(&held_for_fork, false)) return;
    give();
}

static void in_child(void)
{
    const df_llvm_code *const code = atomic_load(&opened);
    if (!is_mine()) {
        opening = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        atomic_store(&holder, 0);
        atomic_store(&held_for_fork, false);
        if (!code) atomic_store(&is_lost, true);
    }
    after_fork();
    if (code) code->forked();
}

__attribute__((constructor)) static void on_load(void)
{
    const bool ok =
        atexit(on_exit_begun) == 0 && pthread_atfork(before_fork, after_fork, in_child) == 0;
    atomic_store(&is_guarded, ok);
}

/* ---- opening ---- */

/* How much stack the loader of libraries, and the constructors of those, may take. */
#define LOADER_STACK ((size_t)128 << 10)

/* LLVM 19 of Debian maps 175 MB with the libraries that it needs. The loader of libraries and the
 * constructors of LLVM end the process when they find no memory (a thread-local block, an exception
 * that nobody handles), so nothing is loaded unless a good deal more could be had. */
#define START_ROOM ((size_t)288 << 20)

typedef struct opening_call {
    const df_host *host;
    df_diag *d;
    deft_status st;
} opening_call;

/* The library's path, which lies beside this one. */
static bool path_of(char *out, size_t size)
{
    static const char here = 0;
    Dl_info info;
    if (!dladdr(&here, &info) || !info.dli_fname) return false;
    const char *const slash = strrchr(info.dli_fname, '/');
    const int n = slash ? (int)(slash - info.dli_fname) : 1;
    const int all =
        snprintf(out, size, "%.*s/%s", n, slash ? info.dli_fname : ".", DF_LLVM_CODE_FILE);
    return all > 0 && (size_t)all < size;
}

/* With the lock. */
static deft_status open_library(const df_host *host, df_diag *d)
{
    char path[4096], why[300];
    if (!df_os_has_room(START_ROOM))
        return host->fail(d, DEFT_E_MEMORY,
                          "the code generator wants room for %zu bytes of memory to start in",
                          START_ROOM);
    if (!path_of(path, sizeof path))
        return host->fail(d, DEFT_E_BACKEND, "no code generator: %s was not found",
                          DF_LLVM_CODE_FILE);
    if (!df_elf_file_check(path, why, sizeof why))
        return host->fail(d, DEFT_E_BACKEND, "no code generator: %s", why);
    void *const so = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!so) {
        const char *const error = dlerror();
        return host->fail(d, DEFT_E_BACKEND, "no code generator: %s", error ? error : path);
    }
    const df_llvm_code *const code = dlsym(so, DF_LLVM_CODE_SYMBOL);
    if (!code)
        return host->fail(d, DEFT_E_BACKEND, "%s has no symbol %s", path, DF_LLVM_CODE_SYMBOL);
    if (!code->loaded())
        return host->fail(d, DEFT_E_BACKEND, "the compiler is not started: the process is ending");
    atomic_store(&opened, code);
    return DEFT_OK;
}

/* On the thread that holds the lock meanwhile. */
static void run_opening(void *user)
{
    opening_call *const c = user;
    const bool is_ours = is_mine(); /* a handler of fork() that computes, before ours was left */
    if (!is_ours && !take_to_open()) {
        c->st = c->host->fail(
            c->d, DEFT_E_BACKEND,
            "the compiler is not started: another thread is forking, which takes too long");
        return;
    }
    if (atomic_load(&opened))
        c->st = DEFT_OK;
    else if (!atomic_load(&is_guarded))
        c->st = c->host->fail(c->d, DEFT_E_MEMORY,
                              "the compiler is not started: no handler could be registered");
    else if (atomic_load(&is_lost))
        c->st = c->host->fail(c->d, DEFT_E_BACKEND,
                              "the compiler is not started: forked while it was being loaded");
    else if (atomic_load(&is_ending))
        c->st = c->host->fail(c->d, DEFT_E_BACKEND,
                              "the compiler is not started: the process is ending");
    else
        c->st = open_library(c->host, c->d);
    if (!is_ours) give();
}

/* ---- one compiler ---- */

/* Once it is not WAITING it stays as it is. */
typedef enum state { WAITING, STARTED, REFUSED } state;

typedef struct late {
    df_host host;
    df_fork_lock lock; /* guards the rest while it is WAITING */
    _Atomic(state) state;
    deft_status status; /* REFUSED: why */
    df_compiler real;   /* STARTED */
    char why[DF_DIAG_TEXT], text[192];
} late;

static void refuse(late *l, deft_status status, const char *why)
{
    l->status = status;
    (void)snprintf(l->why, sizeof l->why, "%s", why);
    (void)snprintf(l->text, sizeof l->text, "interpreter: %.160s", why);
    atomic_store_explicit(&l->state, REFUSED, memory_order_release);
}

/* With l's lock. */
static void try_to_start(late *l)
{
    df_diag d = { 0 };
    const df_llvm_code *code = atomic_load(&opened);
    deft_status st = DEFT_OK;
    if (!code) {
        opening_call c = { .host = &l->host, .d = &d };
        if (df_os_call(LOADER_STACK, run_opening, &c))
            st = c.st;
        else
            st = l->host.fail(&d, DEFT_E_BACKEND,
                              "no code generator: no thread could be had to load it in");
        code = atomic_load(&opened);
    }
    if (st == DEFT_OK) st = code->make(&l->host, l->host.build_id, &d, &l->real);
    if (st != DEFT_OK) {
        refuse(l, st, d.text);
        return;
    }
    (void)snprintf(l->text, sizeof l->text, "%s", l->real.name);
    atomic_store_explicit(&l->state, STARTED, memory_order_release);
}

static deft_status start(void *self, df_diag *d)
{
    late *const l = self;
    state now = atomic_load_explicit(&l->state, memory_order_acquire);
    if (now == WAITING) {
        const bool is_left = df_fork_lock_take(&l->lock);
        now = atomic_load_explicit(&l->state, memory_order_relaxed);
        if (now == WAITING && is_left)
            refuse(l, DEFT_E_BACKEND, "forked while the compiler was being started");
        else if (now == WAITING)
            try_to_start(l);
        now = atomic_load_explicit(&l->state, memory_order_relaxed);
        df_fork_lock_give(&l->lock);
    }
    return now == STARTED ? DEFT_OK : l->host.fail(d, l->status, "%s", l->why);
}

static const char *describe(void *self, uint32_t *vector_bytes)
{
    late *const l = self;
    const state now = atomic_load_explicit(&l->state, memory_order_acquire);
    if (vector_bytes) *vector_bytes = now == STARTED ? l->real.vector_bytes : 0;
    return now == WAITING ? NULL : l->text;
}

/* ---- calls that start it ---- */

static deft_status compile(void *self, df_diag *d, const df_kernel *const *k, uint32_t n,
                           df_opt level, df_code *out)
{
    const late *const l = self;
    const deft_status st = start(self, d);
    return st == DEFT_OK ? l->real.compile(l->real.self, d, k, n, level, out) : st;
}

static deft_status specialize(void *self, df_diag *d, const df_kernel *k, const df_facts *facts,
                              df_code *out)
{
    const late *const l = self;
    const deft_status st = start(self, d);
    return st == DEFT_OK ? l->real.specialize(l->real.self, d, k, facts, out) : st;
}

static deft_status show(void *self, df_diag *d, const df_kernel *k, const char *target,
                        bool assembly, df_str *out)
{
    const late *const l = self;
    const deft_status st = start(self, d);
    return st == DEFT_OK ? l->real.show(l->real.self, d, k, target, assembly, out) : st;
}

static deft_status gemm(void *self, df_diag *d, deft_dtype t, df_gemm_kernel *out)
{
    const late *const l = self;
    const deft_status st = start(self, d);
    return st == DEFT_OK ? l->real.gemm(l->real.self, d, t, out) : st;
}

/* ---- calls about code that was made: it has started ---- */

static bool has_started(const late *l)
{
    return atomic_load_explicit(&l->state, memory_order_acquire) == STARTED;
}

static void release(void *self, df_code *code)
{
    const late *const l = self;
    if (has_started(l)) l->real.release(l->real.self, code);
}

static void *show_debugger(void *self, const char *name, const void *at, size_t size)
{
    const late *const l = self;
    return has_started(l) ? l->real.show_debugger(l->real.self, name, at, size) : NULL;
}

static void hide_debugger(void *self, void *shown)
{
    const late *const l = self;
    if (shown && has_started(l)) l->real.hide_debugger(l->real.self, shown);
}

/* ---- life ---- */

static void destroy(void *self)
{
    late *const l = self;
    if (!l) return;
    if (has_started(l)) l->real.destroy(l->real.self);
    df_fork_lock_finish(&l->lock);
    const df_mem *const mem = l->host.mem;
    df_mem_free(mem, l, sizeof *l);
}

__attribute__((visibility("default"))) deft_status
df_plugin_cpu(const df_host *host, const char *build_id, df_diag *d, df_compiler *out);

deft_status df_plugin_cpu(const df_host *host, const char *build_id, df_diag *d, df_compiler *out)
{
    if (host->size != sizeof(df_host)) return DEFT_E_BACKEND; /* fail may not be where we think */
    if (strcmp(host->build_id, DF_BUILD_ID) != 0 || strcmp(build_id, DF_BUILD_ID) != 0)
        return host->fail(d, DEFT_E_BACKEND, "deft-llvm is of build '%s', the host of build '%s'",
                          DF_BUILD_ID, host->build_id);
    late *const l = df_mem_zalloc(host->mem, sizeof *l);
    if (!l) return host->fail(d, DEFT_E_MEMORY, "deft-llvm: could not get %zu bytes", sizeof *l);
    l->host = *host;
    if (!df_fork_lock_init(&l->lock)) {
        df_mem_free(host->mem, l, sizeof *l);
        return host->fail(d, DEFT_E_MEMORY, "deft-llvm: no mutex could be had");
    }
    *out = (df_compiler){ .self = l,
                          .start = start,
                          .describe = describe,
                          .compile = compile,
                          .specialize = specialize,
                          .release = release,
                          .show = show,
                          .gemm = gemm,
                          .show_debugger = show_debugger,
                          .hide_debugger = hide_debugger,
                          .destroy = destroy };
    return DEFT_OK;
}
