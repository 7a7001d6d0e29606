/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that fork after a runtime was made: idle; within a step; while other threads run, log,
 * compile, or stand at each of their allocations in turn; children of children; children that only
 * exec. A child goes on with its own thread's context, makes another on the same runtime, runs
 * programs that nobody has compiled, destroys all and leaves by exit. All bits are the parent's.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "deft/deft.h"
#include "support/budget.h"

enum { HANGS_AFTER_S = 30, N_THREADS = 3, N_PROGRAMS = 200 };
enum { ROWS = 12, COLS = 40 };

/* The address sanitizer's own malloc stays locked in a child when another thread was in it: no
 * forks there while threads run freely. */
#ifdef __SANITIZE_ADDRESS__
enum { N_STORMS = 0, MAY_FORK_AT_WORK = false };
#else
enum { N_STORMS = 24, MAY_FORK_AT_WORK = true };
#endif

static int n_wrong;
static bool is_child;
static atomic_bool hold; /* other threads stand where they are asked to; never in a child */
static deft_runtime *rt;
static uint64_t expected[N_PROGRAMS];

/* What a child's lost threads had is lost. Asked by the leak checker, where there is one. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return is_child;
}

static void wrong(const char *what, long n)
{
    printf("wrong: %s (%ld)%s\n", what, n, is_child ? " in a child" : "");
    n_wrong++;
}

static uint32_t draw(uint64_t *random, uint32_t n)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*random >> 33) % n);
}

/* ---- programs ---- */

static deft_tensor *some_op(deft_tensor *x, deft_tensor *y, uint32_t which)
{
    switch (which) {
    case 0: return deft_tanh(deft_add(x, y));
    case 1: return deft_exp(deft_clamp(y, -2, 2));
    case 2: return deft_softmax(y, 1);
    case 3: return deft_sub(y, deft_mean(y, DEFT_AXES(0), 1));
    case 4: return deft_where(deft_gt(x, y), x, deft_neg(y));
    default: return deft_add(y, deft_max(y, DEFT_AXES(1), 1));
    }
}

static deft_status program(deft_ctx *cx, uint32_t number, uint64_t *hash)
{
    float v[ROWS * COLS], out[ROWS * ROWS + COLS];
    for (int i = 0; i < ROWS * COLS; i++) v[i] = (float)((i * 37 + 11) % 101) / 50 - 1;
    deft_tensor *p = deft_keep(deft_from(cx, DEFT_SHAPE(1, COLS), DEFT_F32, v, COLS * 4));
    const deft_scope outer = deft_scope_begin(cx), s = deft_step_begin(cx);
    deft_tensor *x = deft_from(cx, DEFT_SHAPE(ROWS, COLS), DEFT_F32, v, sizeof v), *y = x;
    uint64_t random = number;
    for (int i = 0; i < 5; i++) y = some_op(x, y, draw(&random, 6));
    deft_tensor *product = deft_keep(deft_matmul(y, deft_t(x)));
    deft_assign(p, deft_sub(p, deft_mean(y, DEFT_AXES(0), 1)));
    deft_status st = deft_step_end(s);
    if (st == DEFT_OK) st = deft_read(product, DEFT_F32, out, ROWS * ROWS * 4);
    if (st == DEFT_OK) st = deft_read(p, DEFT_F32, out + ROWS * ROWS, COLS * 4);
    deft_drop(&product);
    deft_drop(&p);
    const deft_status end = deft_scope_end(outer);
    const unsigned char *const bytes = (const unsigned char *)out;
    *hash = 14695981039346656037u;
    for (size_t i = 0; i < sizeof out; i++) *hash = (*hash ^ bytes[i]) * 1099511628211u;
    return st == DEFT_OK ? end : st;
}

static void run(deft_ctx *cx, uint32_t number)
{
    uint64_t hash = 0;
    const deft_status st = program(cx, number, &hash);
    if (st != DEFT_OK)
        wrong(deft_message(cx), number);
    else if (hash != expected[number])
        wrong("other bits", number);
}

static uint64_t n_compiled(deft_ctx *cx)
{
    deft_stats s;
    deft_runtime_settle(rt);
    deft_stats_read(cx, &s, sizeof s);
    return s.kernels_compiled;
}

/* ---- children ---- */

typedef enum compiling { MUST, MUST_NOT, MAY } compiling;

static uint32_t n_used; /* programs nobody has run on the runtime begin here */

static void go_on(deft_ctx **cx, compiling want)
{
    deft_ctx *more = NULL;
    const bool has_compiler = strncmp(deft_runtime_compiler(rt), "interp", 6) != 0;
    const uint64_t before = n_compiled(*cx);
    for (uint32_t i = 0; i < 2; i++) run(*cx, i);
    run(*cx, n_used);
    if (deft_ctx_create(rt, NULL, &more) != DEFT_OK) {
        wrong("no context", 0);
        return;
    }
    run(more, n_used + 1);
    run(*cx, n_used + 1);
    deft_runtime_trim(rt);
    const bool compiled = n_compiled(more) > before;
    if (has_compiler && want != MAY && compiled != (want == MUST)) wrong("compiled", compiled);
    deft_ctx_destroy(&more);
    n_used += 2;
}

static void fork_and_go_on(const char *what, long n, deft_ctx **cx, compiling want, int depth)
{
    int status = 0;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        is_child = true;
        n_wrong = 0;
        atomic_store(&hold, false);
        (void)alarm(HANGS_AFTER_S);
        if (depth > 0) fork_and_go_on("a child's child, at once", n, cx, want, depth - 1);
        go_on(cx, want);
        if (depth > 0) fork_and_go_on("a child's child", n, cx, want, depth - 1);
        deft_ctx_destroy(cx);
        deft_runtime_destroy(&rt);
        exit(n_wrong == 0 ? 0 : 1);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) wrong(what, n);
}

static void fork_and_exec(char **argv)
{
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", argv[0], "child", (char *)NULL);
        _exit(1);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) wrong("exec", status);
}

/* ---- hooks: where other threads stand ---- */

static _Thread_local bool is_main, is_other;
static _Thread_local long n_allocations;
static atomic_bool is_held, is_over;
static atomic_long stand_at;
static atomic_bool stand_in_log, stand_in_compiler;

static void stand(void)
{
    if (!atomic_load(&hold)) return;
    atomic_store(&is_held, true);
    while (atomic_load(&hold)) sched_yield();
}

/* The thread that is neither ours nor a worker is the one that compiles: what it allocates, it
 * allocates within the compiler. */
static void *resize(void *user, void *old, size_t old_size, size_t new_size)
{
    (void)user, (void)old_size;
    if (is_other && ++n_allocations == atomic_load(&stand_at)) stand();
    if (!is_main && !is_other && !old && new_size && atomic_load(&stand_in_compiler)) stand();
    if (new_size) return realloc(old, new_size);
    free(old);
    return NULL;
}

static void hook(void *user, const char *topic, const char *line)
{
    (void)user, (void)line;
    if (!is_main && strcmp(topic, "compile") == 0 && atomic_load(&stand_in_log)) stand();
}

static void *one_program(void *user)
{
    deft_ctx *cx = NULL;
    is_other = true;
    n_allocations = 0;
    if (deft_ctx_create(rt, NULL, &cx) != DEFT_OK) exit(1);
    run(cx, *(uint32_t *)user);
    deft_ctx_destroy(&cx);
    atomic_store(&is_over, true);
    return NULL;
}

/* Another thread in a program of its own, from its context's first allocation to its last free. */
static void test_each_allocation(deft_ctx **cx)
{
    long n_stood = 0;
    bool stood = true;
    for (long at = 1; stood && n_wrong == 0; at += 1 + at / 6) {
        pthread_t t;
        uint32_t number = n_used++;
        atomic_store(&stand_at, at);
        atomic_store(&is_held, false);
        atomic_store(&is_over, false);
        atomic_store(&hold, true);
        if (pthread_create(&t, NULL, one_program, &number) != 0) exit(1);
        while (!atomic_load(&is_held) && !atomic_load(&is_over)) sched_yield();
        stood = atomic_load(&is_held);
        if (stood) fork_and_go_on("at an allocation", at, cx, MAY, 0);
        atomic_store(&hold, false);
        pthread_join(t, NULL);
        n_stood += stood;
    }
    if (n_stood < 20) wrong("allocations", n_stood);
    run(*cx, n_used++);
}

static void test_compile_thread(deft_ctx **cx, atomic_bool *where, compiling want)
{
    deft_runtime_settle(rt);
    atomic_store(&is_held, false);
    atomic_store(&hold, true);
    atomic_store(where, true);
    run(*cx, n_used++);
    if (strncmp(deft_runtime_compiler(rt), "interp", 6) != 0) {
        while (!atomic_load(&is_held)) sched_yield();
        fork_and_go_on(want == MUST ? "in the log" : "in the compiler", 0, cx, want, 1);
    }
    atomic_store(where, false);
    atomic_store(&hold, false);
    const uint64_t before = n_compiled(*cx);
    run(*cx, n_used++);
    if (strncmp(deft_runtime_compiler(rt), "interp", 6) != 0 && n_compiled(*cx) <= before)
        wrong("the parent does not compile", 0);
}

/* What is locked may be the process's: no runtime compiles in the child. */
static void test_other_runtime(deft_ctx **cx, const deft_runtime_options *o)
{
    deft_runtime *const mine = rt;
    deft_ctx *other = NULL;
    if (deft_runtime_create(o, &rt) != DEFT_OK || deft_ctx_create(rt, NULL, &other) != DEFT_OK)
        exit(1);
    /* What the first product compiles is compiled on a thread with a larger stack while main waits
     * for it: that thread must not be held. */
    run(other, 1);
    deft_runtime_settle(rt);
    atomic_store(&is_held, false);
    atomic_store(&hold, true);
    atomic_store(&stand_in_compiler, true);
    run(other, 0);
    deft_runtime *others = rt;
    rt = mine;
    if (strncmp(deft_runtime_compiler(rt), "interp", 6) != 0) {
        while (!atomic_load(&is_held)) sched_yield();
        fork_and_go_on("in another's compiler", 0, cx, MUST_NOT, 0);
    }
    atomic_store(&stand_in_compiler, false);
    atomic_store(&hold, false);
    deft_ctx_destroy(&other);
    deft_runtime_destroy(&others);
}

/* ---- storms ---- */

static atomic_bool stop;

static void *work(void *user)
{
    uint64_t random = (uint64_t)(uintptr_t)user;
    deft_ctx *cx = NULL;
    while (!atomic_load(&stop)) {
        if (!cx && deft_ctx_create(rt, NULL, &cx) != DEFT_OK) exit(1);
        run(cx, draw(&random, N_PROGRAMS));
        const uint32_t rare = draw(&random, 20);
        if (rare == 0) deft_ctx_destroy(&cx);
        if (rare == 1) deft_runtime_trim(rt);
    }
    deft_ctx_destroy(&cx);
    return NULL;
}

static void test_storm(deft_ctx **cx, char **argv)
{
    pthread_t threads[N_THREADS];
    uint64_t random = 3;
    for (int i = 0; i < N_THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1)) != 0) exit(1);
    const int64_t n = test_size(N_STORMS, N_STORMS / 2);
    for (int i = 0; i < n && n_wrong == 0; i++) {
        nanosleep(&(struct timespec){ .tv_nsec = draw(&random, 8000000) }, NULL);
        if (i % 8 == 7)
            fork_and_exec(argv);
        else
            fork_and_go_on("in a storm", i, cx, MAY, i % 16 == 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
}

/* ---- main ---- */

/* Both ends of the step: the child's takes effect there, the parent's not at all. */
static void test_open_step(deft_ctx *cx)
{
    float v = 0;
    int status = 0;
    deft_tensor *p = deft_keep(deft_full(cx, DEFT_SHAPE(1), DEFT_F32, 1));
    const deft_scope s = deft_step_begin(cx);
    deft_assign(p, deft_add(p, 2.0));
    const pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(HANGS_AFTER_S);
        _exit(deft_step_end(s) == DEFT_OK && deft_item(p, &v) == DEFT_OK && v == 3 ? 0 : 1);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) wrong("an open step", status);
    deft_step_abort(s);
    if (deft_item(p, &v) != DEFT_OK || v != 1) wrong("the parent's step", (long)v);
    deft_drop(&p);
}

static bool expect(void)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    deft_ctx *cx = NULL;
    bool ok = deft_runtime_create(&o, &rt) == DEFT_OK && deft_ctx_create(rt, NULL, &cx) == DEFT_OK;
    for (uint32_t i = 0; i < N_PROGRAMS && ok; i++) ok = program(cx, i, &expected[i]) == DEFT_OK;
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    return ok;
}

int main(int argc, char **argv)
{
    if (argc > 1) return strcmp(argv[1], "child") != 0;
    deft_ctx *cx = NULL;
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 3,
                                     .max_code_bytes = 200000,
                                     .max_plan_bytes = 200000,
                                     .log = "compile",
                                     .log_hook = hook,
                                     .resize = resize };
    is_main = true;
    if (!expect() || deft_runtime_create(&o, &rt) != DEFT_OK ||
        deft_ctx_create(rt, NULL, &cx) != DEFT_OK)
        return 1;
    fork_and_go_on("at once", 0, &cx, MUST, 1);
    for (uint32_t i = 0; i < 4; i++) run(cx, n_used++);
    deft_runtime_settle(rt);
    fork_and_go_on("idle", 0, &cx, MUST, 2);
    fork_and_exec(argv);
    test_open_step(cx);
    test_compile_thread(&cx, &stand_in_log, MUST);
    test_compile_thread(&cx, &stand_in_compiler, MUST_NOT);
    test_other_runtime(&cx, &o);
    if (MAY_FORK_AT_WORK) test_each_allocation(&cx);
    test_storm(&cx, argv);
    run(cx, n_used);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    printf("program: %d wrong, %u programs\n", n_wrong, n_used);
    return n_wrong != 0;
}
