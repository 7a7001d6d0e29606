/* SPDX-License-Identifier: Apache-2.0
 *
 * LLVM without memory. LLVM cannot return from a failed allocation: it is built without exceptions,
 * and what it does instead ends the process, in one of three ways.
 *
 *   operator new fails            std::bad_alloc meets no handler      new handler of libstdc++
 *   malloc fails                  llvm::report_bad_alloc_error         LLVM's handler for that
 *   pages for code fail, or LLVM  llvm::report_fatal_error             LLVM's handler for that
 *   meets what it cannot handle
 *
 * Two things keep the process alive. First, before each call we ask whether a good deal more memory
 * than a compilation takes could be had; where not, nothing is begun, and kernels are interpreted.
 * Second, where memory runs out nonetheless (another thread took it), the handlers on the right
 * jump out of LLVM, back to the call. Destructors of the frames in between do not run: LLVM's locks
 * stay held and its memory lost, so the gate is shut for good (gate.h). Code that was compiled
 * before goes on running.
 *
 * Other threads that are inside LLVM at that moment could wait for such a lock forever. So in a
 * process whose memory is limited one thread at a time is inside; elsewhere memory does not run out
 * between the question and the allocation but by the worst of luck.
 *
 * The three handlers are global to the process, and other users of the same libLLVM or libstdc++
 * share them. They are ours only while a call is inside. A thread that is none of ours gets from
 * the new handler what it would have got without us: the handler that was there before is put back,
 * and operator new asks that one. LLVM's two handlers have no getter; we leave none behind.
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

/* C++ functions, by the names that the Itanium C++ ABI gives them; NULL in a libLLVM without. */
extern new_handler set_new_handler(new_handler h) __asm__("_ZSt15set_new_handlerPFvvE")
    __attribute__((weak));
extern void install_bad_alloc(bad_alloc_handler h, void *user) __asm__(
    "_ZN4llvm31install_bad_alloc_error_handlerEPFvPvPKcbES0_") __attribute__((weak));
extern void remove_bad_alloc(void) __asm__("_ZN4llvm30remove_bad_alloc_error_handlerEv")
    __attribute__((weak));

/* ---- who is inside ---- */

typedef struct inside {
    pthread_t thread;
    jmp_buf out;
    struct inside *next;
    bool is_memory; /* why it was left */
    char reason[160];
} inside;

/* Guards the next three. A child of a fork never takes it: its gate is shut, or nobody was inside
 * and the lock free. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static inside *first;
static new_handler handler_before;
static bool has_new_handler;

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

/* operator new calls the handler that is set again and again, until there is memory or no handler,
 * and throws then. */
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
            if (now != on_new_failed) (void)set_new_handler(now); /* somebody set another since */
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

/* With the gate open and the thread's stack large enough. */
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
