/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes with little address space, and threads with small stacks. Each case is a process of its
 * own, which runs one workload: contexts in three tiers; an elementwise chain, a sum and a matrix
 * product, each several times, so that interpreted, quick, optimized and specialized code run; a
 * loop; a gradient; a capture; an index fault, whose sentence names a source line; a file that is
 * saved and loaded. A step of it may fail with a status. It may not give a wrong value, end its
 * process, or hang.
 *
 * usage: limits space FIRST LAST STEP   address spaces in units of 512 KiB
 *        limits draw N                  N address spaces, half of them where the compiler starts
 *        limits sudden N                the limit comes while the compiler works, N moments
 *        limits stacks [STEP]           every STEP-th size of stack in the table
 *        limits work TIER [STACK [US]]  one case; STACK in KiB, 0: on the thread of main; US: so
 *                                       many microseconds on there is no more address space
 *
 * A process says that it has begun through the file descriptor in LIMITS_BEGUN: a loader of
 * programs that ends it with status 127 before that found no room for libdeft, and later ones are
 * counted as aborts.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "deft/deft.h"

enum { N = 640, SIDE = 24, TURNS = 6, HANGS_AFTER_S = 60 };
enum { EXIT_RIGHT = 0, EXIT_STATUS = 3, EXIT_WRONG = 4 };

/* ---- the workload ---- */

/* Not on the stack, which may be small. */
typedef struct work {
    deft_runtime *rt;
    deft_ctx *cx;
    char path[64];
    float in[N], out[N], left[SIDE * SIDE], product[SIDE * SIDE];
    unsigned n_right, n_refused;
    bool is_wrong;
    char refusal[256];
} work;

static work all[4];

/* Whether the values may be looked at. */
static bool took(work *w, deft_status st)
{
    if (st == DEFT_OK) {
        w->n_right++;
        return true;
    }
    if (w->n_refused++ == 0)
        snprintf(w->refusal, sizeof w->refusal, "%s: %.200s", deft_status_text(st),
                 deft_message(w->cx));
    return false;
}

static void expect(work *w, const char *what, double got, double want)
{
    if (got == want) return;
    printf("wrong: %s is %.9g, not %.9g\n", what, got, want);
    w->is_wrong = true;
}

static void elementwise(work *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *const x = deft_wrap(w->cx, DEFT_SHAPE(N), DEFT_F32, w->in, sizeof w->in, NULL);
    deft_tensor *const y = deft_mul(deft_add(deft_abs(x), 1.0), 0.5);
    if (took(w, deft_read(y, DEFT_F32, w->out, sizeof w->out)))
        for (int i = 0; i < N; i++) expect(w, "element", w->out[i], (w->in[i] + 1) * 0.5F);
    float total = -1;
    if (took(w, deft_item(deft_sum(x, DEFT_ALL_AXES, 0), &total)))
        expect(w, "sum", total, (double)N * (N - 1) / 2);
    (void)took(w, deft_scope_end(s));
}

static void matrices(work *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *const x =
        deft_wrap(w->cx, DEFT_SHAPE(SIDE, SIDE), DEFT_F32, w->left, sizeof w->left, NULL);
    if (took(w, deft_read(deft_matmul(x, deft_t(x)), DEFT_F32, w->product, sizeof w->product))) {
        float want = 0;
        for (int k = 0; k < SIDE; k++) want += w->left[SIDE + k] * w->left[2 * SIDE + k];
        expect(w, "product", w->product[SIDE + 2], want);
    }
    (void)took(w, deft_scope_end(s));
}

/* Code for a transposed operand moves blocks through a workspace, which is not on the stack. */
static void transposed(work *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *const x =
        deft_wrap(w->cx, DEFT_SHAPE(SIDE, SIDE), DEFT_F32, w->left, sizeof w->left, NULL);
    if (took(w, deft_read(deft_add(x, deft_t(x)), DEFT_F32, w->product, sizeof w->product)))
        expect(w, "transposed", w->product[SIDE + 2], w->left[SIDE + 2] + w->left[2 * SIDE + 1]);
    (void)took(w, deft_scope_end(s));
}

static deft_status add_row(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_add(in[0], in[1]);
    return DEFT_OK;
}

static void loop(work *w)
{
    float total = -1;
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *rows = deft_wrap(w->cx, DEFT_SHAPE(N), DEFT_F32, w->in, sizeof w->in, NULL);
    deft_tensor *state = deft_zeros(w->cx, DEFT_SHAPE(), DEFT_F32), *out[1] = { NULL };
    (void)deft_scan(w->cx, add_row, NULL, &state, 1, &rows, 1, N, 0, out);
    if (took(w, deft_item(out[0], &total))) expect(w, "scan", total, (double)N * (N - 1) / 2);
    (void)took(w, deft_scope_end(s));
}

static void gradient(work *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *x = deft_from(w->cx, DEFT_SHAPE(N), DEFT_F32, w->in, sizeof w->in);
    deft_tensor *y = deft_sum(deft_mul(x, x), DEFT_ALL_AXES, 0), *g[1] = { NULL };
    (void)deft_grad(&y, NULL, 1, &x, 1, NULL, g);
    if (took(w, deft_read(g[0], DEFT_F32, w->out, sizeof w->out)))
        expect(w, "gradient", w->out[N - 1], 2 * (N - 1));
    (void)took(w, deft_scope_end(s));
}

static deft_status doubled(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(in[0], deft_const_f(cx, 2));
    return DEFT_OK;
}

static void capture(work *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *x = deft_from(w->cx, DEFT_SHAPE(N), DEFT_F32, w->in, sizeof w->in);
    deft_capture *c = deft_capture_create(w->cx, doubled, NULL);
    for (int i = 0; i < TURNS; i++) {
        deft_tensor *out[1] = { NULL };
        if (!took(w, c ? deft_capture_call(c, &x, 1, out, 1) : DEFT_E_MEMORY)) continue;
        if (took(w, deft_read(out[0], DEFT_F32, w->out, sizeof w->out)))
            expect(w, "captured", w->out[N - 1], 2 * (N - 1));
    }
    deft_capture_destroy(&c);
    (void)took(w, deft_scope_end(s));
}

/* The sentence needs the resolver of call sites, and with it another plug-in. */
static void mistake(work *w)
{
    static const int64_t outside[1] = { N };
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *const x = deft_wrap(w->cx, DEFT_SHAPE(N), DEFT_F32, w->in, sizeof w->in, NULL);
    deft_tensor *const i = deft_from(w->cx, DEFT_SHAPE(1), DEFT_I64, outside, sizeof outside);
    if (deft_read(deft_take(x, i, 0), DEFT_F32, w->out, sizeof(float)) == DEFT_OK) {
        printf("wrong: an index outside was taken\n");
        w->is_wrong = true;
    }
    (void)took(w, deft_scope_end(s));
}

static void files(work *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *const x = deft_from(w->cx, DEFT_SHAPE(N), DEFT_F32, w->in, sizeof w->in);
    deft_tensor *const y = deft_keep(deft_zeros(w->cx, DEFT_SHAPE(N), DEFT_F32));
    const deft_named saved = { "x", x }, loaded = { "x", y };
    if (took(w, deft_save(w->cx, w->path, &saved, 1)) &&
        took(w, deft_load(w->cx, w->path, &loaded, 1)) &&
        took(w, deft_read(y, DEFT_F32, w->out, sizeof w->out)))
        expect(w, "loaded", w->out[N - 1], N - 1);
    (void)unlink(w->path);
    (void)took(w, deft_scope_end(s));
}

static unsigned sudden_us;

static size_t address_space(void)
{
    unsigned long pages = 0;
    FILE *const f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%lu", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* From some moment on the process gets no more than a little address space, for a while. */
static void *limit_later(void *user)
{
    (void)user;
    const struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };
    const struct timespec wait = { 0, (long)sudden_us * 1000 }, while_it_lasts = { 0, 30000000 };
    (void)nanosleep(&wait, NULL);
    const struct rlimit now = { address_space() + (sudden_us % 7 << 17), RLIM_INFINITY };
    (void)setrlimit(RLIMIT_AS, &now);
    (void)nanosleep(&while_it_lasts, NULL);
    (void)setrlimit(RLIMIT_AS, &none);
    return NULL;
}

/* Kernels that nobody has compiled, one after the other, while the limit comes and goes. By then
 * the compile thread has compiled others, and holds its thread-local memory: for want of that the
 * loader of libraries would end the process. */
static void many_kernels(work *w)
{
    pthread_t later;
    if (pthread_create(&later, NULL, limit_later, NULL) != 0) return;
    for (int i = 0; i < 24; i++) {
        const deft_scope s = deft_scope_begin(w->cx);
        deft_tensor *y = deft_wrap(w->cx, DEFT_SHAPE(N), DEFT_F32, w->in, sizeof w->in, NULL);
        for (int k = 0; k < 5; k++) y = i >> k & 1 ? deft_add(y, 1) : deft_mul(y, 2);
        float want = N - 1;
        for (int k = 0; k < 5; k++) want = i >> k & 1 ? want + 1 : want * 2;
        if (took(w, deft_read(y, DEFT_F32, w->out, sizeof w->out)))
            expect(w, "chain", w->out[N - 1], want);
        (void)took(w, deft_scope_end(s));
        deft_runtime_settle(w->rt);
    }
    pthread_join(later, NULL);
}

static void run(work *w, deft_tier tier, int number)
{
    const deft_runtime_options o = {
        .size = sizeof o, .n_threads = 2, .tier = tier, .variant_launches = 2
    };
    for (int i = 0; i < N; i++) w->in[i] = (float)i;
    for (int i = 0; i < SIDE * SIDE; i++) w->left[i] = (float)(i % 7);
    snprintf(w->path, sizeof w->path, "limits-%ld-%d.safetensors", (long)getpid(), number);
    if (!took(w, deft_runtime_create(&o, &w->rt))) return;
    if (took(w, deft_ctx_create(w->rt, NULL, &w->cx))) {
        for (int i = 0; i < TURNS; i++) {
            elementwise(w);
            matrices(w);
            transposed(w);
            if (i % 3 == 2) deft_runtime_settle(w->rt);
        }
        if (sudden_us) many_kernels(w);
        loop(w);
        gradient(w);
        capture(w);
        mistake(w);
        files(w);
    }
    deft_ctx_destroy(&w->cx);
    deft_runtime_destroy(&w->rt);
}

typedef struct job {
    work *w;
    deft_tier tier;
    int number;
} job;

static void *run_thread(void *user)
{
    job *const j = user;
    run(j->w, j->tier, j->number);
    return NULL;
}

static void say_begun(void)
{
    const char *const fd = getenv("LIMITS_BEGUN");
    if (fd && write(atoi(fd), "b", 1) != 1) exit(EXIT_WRONG);
}

/* stack 0: on the thread of main. */
static int work_main(deft_tier tier, size_t stack)
{
    say_begun();
    (void)alarm(HANGS_AFTER_S);
    const int n = stack ? 2 : 1;
    pthread_t thread[2];
    job jobs[2];
    pthread_attr_t attr;
    for (int i = 0; i < n; i++) {
        jobs[i] = (job){ &all[i], tier, i };
        if (!stack) {
            run_thread(&jobs[i]);
            continue;
        }
        if (pthread_attr_init(&attr) || pthread_attr_setstacksize(&attr, stack) ||
            pthread_create(&thread[i], &attr, run_thread, &jobs[i])) {
            printf("no thread of %zu bytes\n", stack);
            return EXIT_WRONG;
        }
        pthread_attr_destroy(&attr);
    }
    for (int i = 0; stack && i < n; i++) pthread_join(thread[i], NULL);
    int code = EXIT_RIGHT;
    for (int i = 0; i < n; i++) {
        if (!getenv("LIMITS_BEGUN"))
            printf("%u right, %u refused%s%s\n", all[i].n_right, all[i].n_refused,
                   all[i].n_refused ? "; the first: " : "", all[i].refusal);
        if (all[i].n_refused && code == EXIT_RIGHT) code = EXIT_STATUS;
        if (all[i].is_wrong) code = EXIT_WRONG;
    }
    return code;
}

/* ---- the cases ---- */

typedef struct counts {
    unsigned n, right, status, wrong, aborts, crashes, hung;
} counts;

typedef struct limit {
    const char *tier;
    size_t space;             /* bytes; 0: no limit */
    const char *stack, *when; /* NULL: none */
} limit;

static void run_limited(const char *self, const limit *l, const int begun[2])
{
    char fd[16];
    const struct rlimit space = { l->space, l->space }, no_core = { 0, 0 };
    snprintf(fd, sizeof fd, "%d", begun[1]);
    (void)setenv("LIMITS_BEGUN", fd, 1);
    close(begun[0]);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    if (l->space && setrlimit(RLIMIT_AS, &space) != 0) _exit(EXIT_WRONG);
    execl(self, self, "work", l->tier, l->stack ? l->stack : "0", l->when, (char *)NULL);
    _exit(EXIT_STATUS); /* too little to start a program at all */
}

/* Counts how a case ended; says what is wrong with it, or NULL. */
static const char *classify(counts *c, int status, bool has_begun)
{
    c->n++;
    if (WIFSIGNALED(status)) {
        const int number = WTERMSIG(status);
        unsigned *const count = number == SIGABRT   ? &c->aborts
                                : number == SIGALRM ? &c->hung
                                                    : &c->crashes;
        ++*count;
        return strsignal(number);
    }
    const int code = WEXITSTATUS(status);
    if (code == EXIT_RIGHT && has_begun) {
        c->right++;
    } else if (code == EXIT_STATUS || (code == 127 && !has_begun)) {
        c->status++;
    } else if (code == 127) {
        c->aborts++;
        return "ended by the loader";
    } else {
        c->wrong++;
        return "wrong";
    }
    return NULL;
}

/* Runs one case in a process of its own. */
static void run_case(counts *c, const char *self, const limit *l)
{
    int begun[2], status = 0;
    char byte;
    fflush(stdout);
    if (pipe(begun) != 0) exit(2);
    const pid_t pid = fork();
    if (pid == 0) run_limited(self, l, begun);
    close(begun[1]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    const bool has_begun = read(begun[0], &byte, 1) == 1;
    close(begun[0]);
    const char *const what = classify(c, status, has_begun);
    if (what)
        printf("tier %s, %.1f MiB of address space, stack %s KiB, limited after %s us: %s\n",
               l->tier, (double)l->space / (1 << 20), l->stack ? l->stack : "-",
               l->when ? l->when : "-", what);
}

static int report(const counts *c)
{
    printf("%u cases: %u right, %u with a status, %u wrong, %u aborts, %u crashes, %u hung\n", c->n,
           c->right, c->status, c->wrong, c->aborts, c->crashes, c->hung);
    return c->n == 0 || c->wrong + c->aborts + c->crashes + c->hung > 0;
}

static const char *const tiers[] = { "auto", "interpret", "quick", "full" };

static const char *tier_for(unsigned i)
{
    static const char *const turns[] = { "auto", "full", "auto", "quick" };
    return turns[i % 4];
}

static int space(const char *self, unsigned first, unsigned last, unsigned step)
{
    counts c = { 0 };
    for (unsigned i = first; step && i <= last; i += step)
        run_case(&c, self, &(limit){ tier_for(i / step), (size_t)i << 19, NULL, NULL });
    return report(&c);
}

/* Half of them between 150 and 500 MiB, where there is room to start the compiler but not much
 * more. */
static int draw(const char *self, unsigned n)
{
    counts c = { 0 };
    for (unsigned i = 0; i < n; i++) {
        const unsigned low = i % 2 ? 120 : 300, high = i % 2 ? 2048 : 1000;
        const unsigned at = low + (unsigned)((uint64_t)(high - low) * (i / 2) / (n / 2 + 1));
        run_case(&c, self, &(limit){ tier_for(i / 2), (size_t)at << 19, NULL, NULL });
    }
    return report(&c);
}

/* In tier AUTO, where one thread does all compiling. */
static int sudden(const char *self, unsigned n)
{
    counts c = { 0 };
    for (unsigned i = 0; i < n; i++) {
        char when[16];
        snprintf(when, sizeof when, "%u", 1 + 60000 * i / n);
        run_case(&c, self, &(limit){ "auto", 0, NULL, when });
    }
    return report(&c);
}

static int stacks(const char *self, unsigned step)
{
    static const char *const sizes[] = { "16", "20",  "24",  "32",  "48",  "64",
                                         "96", "128", "192", "256", "1024" };
    counts c = { 0 };
    for (size_t i = 0; step && i < sizeof sizes / sizeof *sizes; i += step)
        for (size_t t = 0; t < sizeof tiers / sizeof *tiers; t++)
            run_case(&c, self, &(limit){ tiers[t], 0, sizes[i], NULL });
    return report(&c);
}

static deft_tier tier_of(const char *name)
{
    for (size_t t = 0; t < sizeof tiers / sizeof *tiers; t++)
        if (strcmp(name, tiers[t]) == 0) return (deft_tier)t;
    return DEFT_TIER_AUTO;
}

static unsigned number(const char *text)
{
    return (unsigned)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
    const char *const mode = argc > 1 ? argv[1] : "";
    if (argc > 4) sudden_us = number(argv[4]);
    if (argc >= 3 && strcmp(mode, "work") == 0)
        return work_main(tier_of(argv[2]), argc > 3 ? (size_t)number(argv[3]) << 10 : 0);
    if (argc == 5 && strcmp(mode, "space") == 0)
        return space(argv[0], number(argv[2]), number(argv[3]), number(argv[4]));
    if (argc == 3 && strcmp(mode, "draw") == 0) return draw(argv[0], number(argv[2]));
    if (argc == 3 && strcmp(mode, "sudden") == 0) return sudden(argv[0], number(argv[2]));
    if (argc >= 2 && strcmp(mode, "stacks") == 0)
        return stacks(argv[0], argc > 2 ? number(argv[2]) : 1);
    fprintf(stderr, "usage: limits space FIRST LAST STEP | draw N | sudden N | stacks [STEP] | "
                    "work TIER [STACK [MICROSECONDS]]\n");
    return 2;
}
