/* SPDX-License-Identifier: Apache-2.0
 *
 * All of deft-llvm.so: a compiler that forwards to the real one. The first call that needs the real
 * compiler opens its library, deft-llvm-code.so. Opening libLLVM takes 20 ms of CPU time. A program
 * that compiles nothing does not pay them, and another program pays them on the compile thread.
 *
 * A program may end or fork while another thread opens the library. The opening thread holds a lock
 * of the process, from before dlopen until the gate is ready (gate.c). A handler of exit() takes
 * the lock, so that destructors never run while the library is being loaded. From then on nothing
 * is opened. A handler of fork() takes the lock, so that no thread is in the loader when a child is
 * forked.
 *
 * Both handlers are registered when this library is loaded, by the thread that creates a runtime.
 * They wait for the lock a bounded time only. A thread that exits or forks in the constructor of a
 * library holds the loader's lock, for which the opening thread may wait. If the handler of fork()
 * gave up, the child opens nothing.
 *
 * This file has writable globals, because libLLVM's state and the handlers belong to the process.
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
#include "jit_llvm/generator_id.h"
#include "runtime/elf_file.h"
#include "runtime/os.h"

/* ---- the process ---- */

#define PATIENCE_S 5 /* seconds to wait for the lock */

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(uintptr_t) holder; /* the thread that holds `opening`; 0: none */
static atomic_bool held_for_fork; /* the holder forks. Written by the holder */
static atomic_bool is_guarded;    /* both handlers are registered */
static atomic_bool is_ending;     /* exit() has begun */
static atomic_bool is_lost;       /* in a child: a thread that is missing here was opening */
static _Atomic(const df_llvm_code *) opened; /* NULL until the library is open */

static bool is_mine(void)
{
    return atomic_load(&holder) == (uintptr_t)pthread_self();
}

/* Takes the lock. Returns false when that takes longer than PATIENCE_S. */
static bool opening_lock_take(void)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    if (pthread_mutex_timedlock(&opening, &until) != 0) return false;
    atomic_store(&holder, (uintptr_t)pthread_self());
    return true;
}

/* Takes the lock to open the library. Another thread that opens the library finishes by itself,
 * however slow the disk is. But a thread that forks may wait for this one, in another handler of
 * fork(). So the function returns false after waiting twice for a fork. */
static bool opening_lock_take_to_open(void)
{
    for (int n_forks = 0; n_forks < 2;) {
        if (opening_lock_take()) return true;
        n_forks += atomic_load(&held_for_fork);
    }
    return false;
}

static void opening_lock_give(void)
{
    atomic_store(&holder, 0);
    (void)pthread_mutex_unlock(&opening);
}

static void on_exit_begun(void)
{
    atomic_store(&is_ending, true); /* a thread that waits for the lock will open nothing */
    if (!is_mine() && opening_lock_take()) opening_lock_give();
}

static void before_fork(void)
{
    if (!is_mine() && opening_lock_take()) atomic_store(&held_for_fork, true);
}

static void after_fork(void)
{
    if (!is_mine() || !atomic_exchange(&held_for_fork, false)) return;
    opening_lock_give();
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

/* How many bytes of stack the loader of libraries and their constructors may need. */
#define LOADER_STACK ((size_t)128 << 10)

/* How many bytes of memory must be available before the library is opened. LLVM 19 of Debian and
 * the libraries that it needs map 175 MB. The loader and LLVM's constructors end the process when
 * memory runs out: for a thread-local block, or through an exception that nobody catches. So
 * nothing is loaded unless far more memory could be had. */
#define START_ROOM ((size_t)288 << 20)

typedef struct opening_call {
    const df_host *host;
    df_diag *d;
    deft_status st;
} opening_call;

/* Writes the path of deft-llvm-code.so, which is in the folder of this library. Returns false when
 * it is not known or too long. */
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

/* Opens the library and sets `opened`. The caller holds the lock `opening`. */
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

/* Opens the library unless it is open or may not be opened. The lock is taken by the thread that
 * this runs on, which df_os_call may have started. */
static void run_opening(void *user)
{
    opening_call *const c = user;
    /* True when this thread forks and has taken the lock in before_fork. Another handler of the
     * same fork then calls the library. */
    const bool is_ours = is_mine();
    if (!is_ours && !opening_lock_take_to_open()) {
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
    if (!is_ours) opening_lock_give();
}

/* ---- one compiler ---- */

/* A state other than WAITING is final. */
typedef enum state { WAITING, STARTED, REFUSED } state;

/* The compiler that forwards to `real`. */
typedef struct late {
    df_host host;
    df_fork_lock lock; /* guards the rest while the state is WAITING */
    _Atomic(state) state;
    deft_status status;                /* REFUSED: the reason, with its sentence in `why` */
    df_compiler real;                  /* STARTED: the real compiler */
    char why[DF_DIAG_TEXT], text[192]; /* text: what describe returns */
} late;

static void late_refuse(late *l, deft_status status, const char *why)
{
    l->status = status;
    (void)snprintf(l->why, sizeof l->why, "%s", why);
    (void)snprintf(l->text, sizeof l->text, "interpreter: %.160s", why);
    atomic_store_explicit(&l->state, REFUSED, memory_order_release);
}

/* Opens the library, if it is not open, and creates the real compiler. The caller holds l->lock. */
static void late_try_to_start(late *l)
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
        late_refuse(l, st, d.text);
        return;
    }
    (void)snprintf(l->text, sizeof l->text, "%s", l->real.name);
    atomic_store_explicit(&l->state, STARTED, memory_order_release);
}

static deft_status late_start(void *self, df_diag *d)
{
    late *const l = self;
    state now = atomic_load_explicit(&l->state, memory_order_acquire);
    if (now == WAITING) {
        /* True in a child: a thread that is missing here held the lock at the fork. */
        const bool is_left = df_fork_lock_take(&l->lock);
        now = atomic_load_explicit(&l->state, memory_order_relaxed);
        if (now == WAITING && is_left)
            late_refuse(l, DEFT_E_BACKEND, "forked while the compiler was being started");
        else if (now == WAITING)
            late_try_to_start(l);
        now = atomic_load_explicit(&l->state, memory_order_relaxed);
        df_fork_lock_give(&l->lock);
    }
    return now == STARTED ? DEFT_OK : l->host.fail(d, l->status, "%s", l->why);
}

static const char *late_describe(void *self, uint32_t *vector_bytes)
{
    late *const l = self;
    const state now = atomic_load_explicit(&l->state, memory_order_acquire);
    if (vector_bytes) *vector_bytes = now == STARTED ? l->real.vector_bytes : 0;
    return now == WAITING ? NULL : l->text;
}

/* ---- calls that start it ---- */

static deft_status late_compile(void *self, df_diag *d, const df_kernel *const *k, uint32_t n,
                                df_opt level, df_code *out)
{
    const late *const l = self;
    const deft_status st = late_start(self, d);
    return st == DEFT_OK ? l->real.compile(l->real.self, d, k, n, level, out) : st;
}

static deft_status late_specialize(void *self, df_diag *d, const df_kernel *k,
                                   const df_facts *facts, df_code *out)
{
    const late *const l = self;
    const deft_status st = late_start(self, d);
    return st == DEFT_OK ? l->real.specialize(l->real.self, d, k, facts, out) : st;
}

static deft_status late_object(void *self, df_diag *d, const df_kernel *const *k,
                               const df_facts *facts, uint32_t n, df_opt level, df_str *elf)
{
    const late *const l = self;
    const deft_status st = late_start(self, d);
    return st == DEFT_OK ? l->real.object(l->real.self, d, k, facts, n, level, elf) : st;
}

static deft_status late_show(void *self, df_diag *d, const df_kernel *k, const char *target,
                             bool assembly, df_str *out)
{
    const late *const l = self;
    const deft_status st = late_start(self, d);
    return st == DEFT_OK ? l->real.show(l->real.self, d, k, target, assembly, out) : st;
}

static deft_status late_gemm(void *self, df_diag *d, deft_dtype t, df_gemm_kernel *out)
{
    const late *const l = self;
    const deft_status st = late_start(self, d);
    return st == DEFT_OK ? l->real.gemm(l->real.self, d, t, out) : st;
}

static deft_status late_gemm_object(void *self, df_diag *d, deft_dtype t, df_gemm_kernel *out,
                                    df_str *elf)
{
    const late *const l = self;
    const deft_status st = late_start(self, d);
    return st == DEFT_OK ? l->real.gemm_object(l->real.self, d, t, out, elf) : st;
}

/* ---- calls that need compiled code, so that the compiler has started ---- */

static bool late_has_started(const late *l)
{
    return atomic_load_explicit(&l->state, memory_order_acquire) == STARTED;
}

static void late_release(void *self, df_code *code)
{
    const late *const l = self;
    if (late_has_started(l)) l->real.release(l->real.self, code);
}

static void *late_show_debugger(void *self, const char *name, const void *at, size_t size)
{
    const late *const l = self;
    return late_has_started(l) ? l->real.show_debugger(l->real.self, name, at, size) : NULL;
}

static void late_hide_debugger(void *self, void *shown)
{
    const late *const l = self;
    if (shown && late_has_started(l)) l->real.hide_debugger(l->real.self, shown);
}

static void late_give_back(void *self)
{
    const late *const l = self;
    if (late_has_started(l)) l->real.give_back(l->real.self);
}

/* ---- creating and destroying ---- */

static void late_destroy(void *self)
{
    late *const l = self;
    if (!l) return;
    if (late_has_started(l)) l->real.destroy(l->real.self);
    df_fork_lock_finish(&l->lock);
    const df_mem *const mem = l->host.mem;
    df_mem_free(mem, l, sizeof *l);
}

__attribute__((visibility("default"))) deft_status
df_plugin_cpu(const df_host *host, const char *build_id, df_diag *d, df_compiler *out);

deft_status df_plugin_cpu(const df_host *host, const char *build_id, df_diag *d, df_compiler *out)
{
    if (host->size != sizeof(df_host))
        return DEFT_E_BACKEND; /* `fail` may be elsewhere in the struct */
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
    *out = (df_compiler){ .version = DF_GENERATOR_ID,
                          .self = l,
                          .start = late_start,
                          .describe = late_describe,
                          .compile = late_compile,
                          .specialize = late_specialize,
                          .object = late_object,
                          .gemm_object = late_gemm_object,
                          .release = late_release,
                          .show = late_show,
                          .gemm = late_gemm,
                          .show_debugger = late_show_debugger,
                          .hide_debugger = late_hide_debugger,
                          .give_back = late_give_back,
                          .destroy = late_destroy };
    return DEFT_OK;
}
