/* SPDX-License-Identifier: Apache-2.0
 *
 * How LLVM's fatal errors become a status. LLVM cannot return from a failed allocation, because it
 * is built without exceptions. It ends the process instead, in one of three ways.
 *
 *   cause                         how it ends                          handler that we set
 *   ---------------------------   ----------------------------------   --------------------------
 *   operator new fails            nobody catches std::bad_alloc        new handler of libstdc++
 *   malloc fails                  llvm::report_bad_alloc_error         its handler in LLVM
 *   pages for code fail, or LLVM  llvm::report_fatal_error             its handler in LLVM
 *   cannot compile something
 *
 * Two measures keep the process alive. First, each call checks beforehand that far more memory than
 * a compilation takes could be had. If not, LLVM is not called, and kernels are interpreted.
 * Second, another thread may take that memory after the check. Then the handlers in the last column
 * jump out of LLVM, back to the call. Destructors of the frames in between do not run, so that
 * LLVM's locks stay held and its memory is lost. So the gate is shut for good (gate.h). Code that
 * was compiled before still runs.
 *
 * Other threads that are inside LLVM at that moment could wait for such a lock forever. So in a
 * process whose memory is limited, only one thread at a time is inside LLVM. In other processes,
 * memory hardly ever runs out between the check and the allocation.
 *
 * The three handlers are global to the process, and other users of the same libLLVM or libstdc++
 * share them. They are set only while a call is inside LLVM. When our new handler runs on a thread
 * without such a call, it restores the handler that was set before, which operator new then calls.
 * LLVM's two handlers have no getter, so afterwards none is set.
 *
 * References: LLVM 19 llvm/lib/Support/ErrorHandling.cpp; C++17 [new.delete.single].
 */
#include "jit_llvm/guard.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <llvm-c/ErrorHandling.h>

#include "base/diag.h"
#include "jit_llvm/gate.h"
#include "runtime/os.h"

typedef void (*new_handler)(void);
typedef void (*bad_alloc_handler)(void *user, const char *reason, bool crash_dump);

/* C++ functions, by their names in the Itanium C++ ABI. They are NULL where libraries lack them. */
extern new_handler set_new_handler(new_handler h) __asm__("_ZSt15set_new_handlerPFvvE")
    __attribute__((weak));
extern void install_bad_alloc(bad_alloc_handler h, void *user) __asm__(
    "_ZN4llvm31install_bad_alloc_error_handlerEPFvPvPKcbES0_") __attribute__((weak));
extern void remove_bad_alloc(void) __asm__("_ZN4llvm30remove_bad_alloc_error_handlerEv")
    __attribute__((weak));

/* ---- calls that are inside LLVM ---- */

typedef struct inside {
    pthread_t thread;
    jmp_buf out; /* where a handler jumps to */
    struct inside *next;
    bool is_memory; /* LLVM was left for lack of memory */
    char reason[160];
} inside;

/* Guards the next three. A forked child never waits for it: either its gate is shut, or no thread
 * was inside and the lock was free. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static inside *first;
static new_handler handler_before;
static bool has_new_handler;

/* The call of this thread that is inside LLVM, or NULL. */
static inside *find_inside(void)
{
    pthread_mutex_lock(&lock);
    inside *in = first;
    while (in && !pthread_equal(in->thread, pthread_self())) in = in->next;
    pthread_mutex_unlock(&lock);
    return in;
}

/* ---- handlers ---- */

static void leave_for(inside *in, bool is_memory, const char *reason)
{
    in->is_memory = is_memory;
    (void)snprintf(in->reason, sizeof in->reason, "%s", reason ? reason : "no reason given");
    longjmp(in->out, 1);
}

/* operator new calls the current handler repeatedly, until there is memory. When no handler is set,
 * it throws. */
static void on_new_failed(void)
{
    inside *const in = find_inside();
    if (in) leave_for(in, true, "operator new found no memory");
    pthread_mutex_lock(&lock);
    if (has_new_handler) (void)set_new_handler(handler_before);
    has_new_handler = false;
    pthread_mutex_unlock(&lock);
}

static void on_bad_alloc(void *user, const char *reason, bool crash_dump)
{
    (void)user;
    (void)crash_dump;
    inside *const in = find_inside();
    if (in) leave_for(in, true, reason);
}

static void on_fatal(const char *reason)
{
    inside *const in = find_inside();
    if (in) leave_for(in, strstr(reason, "memory") != NULL, reason);
}

/* Adds a call to the list; the first one sets the handlers. */
static void come_in(inside *in)
{
    pthread_mutex_lock(&lock);
    in->thread = pthread_self();
    in->next = first;
    if (!first) {
        LLVMInstallFatalErrorHandler(on_fatal);
        if (install_bad_alloc && remove_bad_alloc) install_bad_alloc(on_bad_alloc, NULL);
    }
    if (!has_new_handler && set_new_handler) {
        handler_before = set_new_handler(on_new_failed);
        has_new_handler = true;
    }
    first = in;
    pthread_mutex_unlock(&lock);
}

/* Removes a call from the list; the last one resets the handlers. */
static void go_out(const inside *in)
{
    pthread_mutex_lock(&lock);
    inside **at = &first;
    while (*at != in) at = &(*at)->next;
    *at = in->next;
    if (!first) {
        LLVMResetFatalErrorHandler();
        if (install_bad_alloc && remove_bad_alloc) remove_bad_alloc();
        if (has_new_handler) {
            const new_handler now = set_new_handler(handler_before);
            if (now != on_new_failed) (void)set_new_handler(now); /* another was set since */
        }
        has_new_handler = false;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- calls ---- */

typedef struct guarded {
    const df_host *host;
    df_diag *d;
    size_t room;
    deft_status (*fn)(void *user);
    void *user;
    deft_status st;
} guarded;

/* Calls fn. The thread has entered the gate, and its stack is large enough. */
static deft_status call_inside(guarded *g)
{
    inside in;
    if (setjmp(in.out) == 0) {
        come_in(&in);
        const deft_status st = g->fn(g->user);
        go_out(&in);
        return st;
    }
    df_llvm_gate_abandon();
    go_out(&in);
    return g->host->fail(g->d, in.is_memory ? DEFT_E_MEMORY : DEFT_E_COMPILE,
                         "LLVM: %s; it is not used any more in this process", in.reason);
}

static void run_guarded(void *user)
{
    guarded *const g = user;
    const bool alone = df_os_is_limited();
    if (!df_llvm_gate_enter(alone)) {
        g->st = g->host->fail(g->d, DEFT_E_BACKEND,
                              "deft-llvm: the process is ending, was forked while it compiled, or "
                              "ran out of memory in LLVM");
        return;
    }
    if (g->room && !df_os_has_room(g->room))
        g->st =
            g->host->fail(g->d, DEFT_E_MEMORY,
                          "deft-llvm: compiling wants room for %zu more bytes of memory", g->room);
    else
        g->st = call_inside(g);
    df_llvm_gate_leave(alone);
}

deft_status df_llvm_call(const df_host *host, df_diag *d, size_t stack, size_t room,
                         deft_status (*fn)(void *user), void *user)
{
    guarded g = { .host = host, .d = d, .room = room, .fn = fn, .user = user };
    if (!df_os_call(stack, run_guarded, &g))
        return host->fail(d, DEFT_E_MEMORY, "deft-llvm: no thread could be had to compile in");
    return g.st;
}
