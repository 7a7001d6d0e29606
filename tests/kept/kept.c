/* SPDX-License-Identifier: Apache-2.0
 *
 *     kept N                          all cases but the next two, with N processes at once
 *     kept killed N                   processes that are killed at N moments, or as time is left
 *     kept masked QEMU                processors that lack a feature
 *     kept work TIER FOLDERS [WIDTH]  one process that computes and prints what it did
 *
 * Processes that share compiled code. The second one compiles nothing and does not open LLVM.
 * Another width of vectors and another processor find nothing. Many processes may begin at once, in
 * an empty folder and in a full one. Damaged entries are compiled again. Processes whose disk is
 * full, and those after one that was killed, compute as all others do. In every case the bits are
 * those of the interpreter.
 */
#include <dirent.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache/disk.h"
#include "deft/deft.h"
#include "support/budget.h"

extern char **environ;

enum { ROWS = 96, COLS = 160, STEPS = 40, MAX_PROCESSES = 64 };

/* ---- one process ---- */

static deft_tensor *layer(deft_tensor *x, deft_tensor *w, deft_tensor *bias)
{
    return deft_tanh(deft_add(deft_matmul(x, w), bias));
}

/* Trains a little, with elementwise chains, rows, columns, products and sums in both precisions. */
static deft_status compute(deft_ctx *cx, uint64_t *hash)
{
    static float x[ROWS * COLS], w[COLS * COLS], out[COLS * COLS + ROWS];
    static double rows[ROWS * COLS], back[ROWS];
    for (int i = 0; i < ROWS * COLS; i++) {
        x[i] = (float)((i * 37 + 11) % 101) / 50 - 1;
        rows[i] = (double)x[i] * 1.5;
    }
    for (int i = 0; i < COLS * COLS; i++) w[i] = (float)((i * 53 + 7) % 97) / 970 - 0.05f;
    const deft_scope outer = deft_scope_begin(cx);
    deft_tensor *weights = deft_keep(deft_from(cx, DEFT_SHAPE(COLS, COLS), DEFT_F32, w, sizeof w));
    deft_tensor *norms = deft_keep(deft_zeros(cx, DEFT_SHAPE(ROWS), DEFT_F32));
    deft_tensor *wide = deft_keep(deft_zeros(cx, DEFT_SHAPE(ROWS), DEFT_F64));
    deft_status st = DEFT_OK;
    for (int i = 0; i < STEPS && st == DEFT_OK; i++) {
        const deft_scope s = deft_step_begin(cx);
        deft_tensor *in = deft_from(cx, DEFT_SHAPE(ROWS, COLS), DEFT_F32, x, sizeof x);
        deft_tensor *y = layer(in, weights, deft_mean(in, DEFT_AXES(0), 1));
        deft_tensor *p = deft_softmax(y, 1);
        deft_assign(norms, deft_add(norms, deft_sum(deft_mul(p, y), DEFT_AXES(1), 0)));
        deft_assign(weights, deft_sub(weights, deft_mul(deft_matmul(deft_t(in), y), 1e-4)));
        deft_tensor *v = deft_from(cx, DEFT_SHAPE(ROWS, COLS), DEFT_F64, rows, sizeof rows);
        deft_assign(wide, deft_add(wide, deft_sum(deft_remainder(v, 0.3), DEFT_AXES(1), 0)));
        st = deft_step_end(s);
    }
    if (st == DEFT_OK) st = deft_read(weights, DEFT_F32, out, sizeof w);
    if (st == DEFT_OK) st = deft_read(norms, DEFT_F32, out + COLS * COLS, ROWS * sizeof *out);
    if (st == DEFT_OK) st = deft_read(wide, DEFT_F64, back, sizeof back);
    deft_drop(&weights);
    deft_drop(&norms);
    deft_drop(&wide);
    const deft_status end = deft_scope_end(outer);
    const void *const block[] = { out, back };
    const size_t size[] = { sizeof out, sizeof back };
    *hash = 14695981039346656037u;
    for (int b = 0; b < 2; b++)
        for (size_t i = 0; i < size[b]; i++)
            *hash = (*hash ^ ((const unsigned char *)block[b])[i]) * 1099511628211u;
    return st == DEFT_OK ? end : st;
}

static int has_llvm(void)
{
    char line[1024];
    int found = 0;
    FILE *const f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) found |= strstr(line, "libLLVM") != NULL;
    if (f) fclose(f);
    return found;
}

static int work(const char *tier, const char *folders, unsigned width)
{
    deft_runtime_options o = { .size = sizeof o,
                               .tier = strcmp(tier, "full") == 0        ? DEFT_TIER_FULL
                                       : strcmp(tier, "interpret") == 0 ? DEFT_TIER_INTERPRET
                                                                        : DEFT_TIER_AUTO,
                               .cache_dir = folders,
                               .variant_launches = 8,
                               .max_vector_bytes = width };
    deft_runtime *rt = NULL;
    deft_ctx *cx = NULL;
    deft_stats s;
    uint64_t hash = 0;
    if (deft_runtime_create(&o, &rt) != DEFT_OK) return 1;
    const deft_ctx_options c = { .size = sizeof c, .numerics = DEFT_STRICT };
    if (deft_ctx_create(rt, &c, &cx) != DEFT_OK) return 1;
    if (compute(cx, &hash) != DEFT_OK) {
        printf("failed: %s\n", deft_message(cx));
        return 1;
    }
    deft_runtime_settle(rt);
    deft_stats_read(cx, &s, sizeof s);
    printf("%llu %llu %d %016llx\n", (unsigned long long)s.kernels_compiled,
           (unsigned long long)s.kernels_loaded, has_llvm(), (unsigned long long)hash);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    return 0;
}

/* ---- many ---- */

typedef struct told {
    unsigned long long compiled, loaded, hash;
    int llvm;
} told;

typedef struct child {
    pid_t pid;
    int out;
} child;

static int n_wrong;
static const char *self;
/* What runs the processes, NULL: this machine does; and the processor that it shows them, NULL: its
 * default. */
static const char *emulator, *processor;
static bool
    forks; /* processes are children that begin with the compiler opened, not new programs */
static char folder[64];

static void wrong(const char *what, const char *which)
{
    printf("wrong: %s: %s\n", which, what);
    n_wrong++;
}

/* A child that has what this process has opened. */
static pid_t fork_work(const int ends[2], const char *tier, const char *folders)
{
    fflush(stdout);
    const pid_t pid = fork();
    if (pid != 0) return pid;
    dup2(ends[1], 1);
    close(ends[0]);
    close(ends[1]);
    const int status = work(tier, folders, 0);
    fflush(stdout);
    _exit(status);
}

static child start(const char *tier, const char *folders, const char *width)
{
    int ends[2];
    child c = { .pid = -1 };
    posix_spawn_file_actions_t a;
    char mode[] = "work", option[] = "-cpu";
    char *argv[9] = { NULL };
    int n = 0;
    if (emulator) argv[n++] = (char *)emulator;
    if (processor) argv[n++] = option, argv[n++] = (char *)processor;
    argv[n++] = (char *)self;
    argv[n++] = mode;
    argv[n++] = (char *)tier;
    argv[n++] = (char *)folders;
    argv[n++] = (char *)width;
    if (pipe(ends) != 0) return c;
    c.out = ends[0];
    if (forks) {
        c.pid = fork_work(ends, tier, folders);
        close(ends[1]);
        return c;
    }
    posix_spawn_file_actions_init(&a);
    posix_spawn_file_actions_adddup2(&a, ends[1], 1);
    posix_spawn_file_actions_addclose(&a, ends[0]);
    if (posix_spawn(&c.pid, argv[0], &a, NULL, argv, environ) != 0) c.pid = -1;
    posix_spawn_file_actions_destroy(&a);
    close(ends[1]);
    return c;
}

static told finish(child c, const char *which)
{
    char text[256] = "";
    told t = { 0 };
    size_t n = 0;
    int status = 1;
    if (c.pid < 0) {
        wrong("could not be started", which);
        return t;
    }
    for (ssize_t k; n < sizeof text - 1 && (k = read(c.out, text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)k;
    close(c.out);
    if (waitpid(c.pid, &status, 0) != c.pid || status != 0) wrong("ended badly", which);
    if (sscanf(text, "%llu %llu %d %llx", &t.compiled, &t.loaded, &t.llvm, &t.hash) != 4)
        wrong(text, which);
    return t;
}

static told run(const char *tier, const char *folders, const char *width, const char *which)
{
    return finish(start(tier, folders, width), which);
}

static void expect(bool ok, const char *what, const char *which, const told *t)
{
    if (ok) return;
    wrong(what, which);
    printf("    compiled %llu, loaded %llu, LLVM %d, bits %016llx\n", t->compiled, t->loaded,
           t->llvm, t->hash);
}

static void new_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/deft-kept-XXXXXX");
    if (!mkdtemp(folder)) wrong("no folder", "set up");
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) wrong("could not be removed", folder);
}

static void second_process(unsigned long long bits)
{
    new_folder();
    const told first = run("full", folder, "0", "first");
    expect(first.compiled > 0 && first.loaded == 0 && first.llvm, "compiles", "first", &first);
    expect(first.hash == bits, "has the bits of the interpreter", "first", &first);
    const told second = run("full", folder, "0", "second");
    expect(second.compiled == 0, "compiles nothing", "second", &second);
    expect(second.loaded == first.compiled, "loads all", "second", &second);
    expect(!second.llvm, "does not open LLVM", "second", &second);
    expect(second.hash == bits, "has the bits of the interpreter", "second", &second);
    const told other = run("full", folder, "16", "other width");
    expect(other.compiled > 0 && other.hash == bits, "compiles", "other width", &other);
    const told none = run("full", "", "0", "no folder");
    expect(none.compiled > 0 && none.loaded == 0, "compiles", "no folder", &none);
    remove_folder();
}

/* In tier AUTO, too, the second process compiles nothing, although the first one has run all its
 * steps before it has code. It waits for its compiler in the end. */
static void background(unsigned long long bits)
{
    new_folder();
    const told first = run("auto", folder, "0", "background, first");
    expect(first.compiled > 0 && first.hash == bits, "compiles", "background, first", &first);
    const told second = run("auto", folder, "0", "background, second");
    expect(second.hash == bits, "has the bits of the interpreter", "background, second", &second);
    expect(second.compiled == 0 && !second.llvm, "compiles nothing", "background, second", &second);
    remove_folder();
}

static void at_once(int n, unsigned long long bits)
{
    child c[MAX_PROCESSES];
    new_folder();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < n; i++) c[i] = start("full", folder, "0");
        for (int i = 0; i < n; i++) {
            const char *const which = round ? "at once, full folder" : "at once, empty folder";
            const told t = finish(c[i], which);
            expect(t.hash == bits, "has the bits of the interpreter", which, &t);
            if (round) expect(t.compiled == 0 && !t.llvm, "compiles nothing", which, &t);
        }
    }
    remove_folder();
}

/* Calls `each` with each entry in the folder, open for reading and writing, and its size. Returns
 * how many there are. */
static int each_entry(void (*each)(FILE *f, long size, long user), long user)
{
    int n = 0;
    DIR *const dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        FILE *const f = e->d_name[0] == '.' ? NULL : fopen(path, "r+b");
        if (!f) continue;
        fseek(f, 0, SEEK_END);
        each(f, ftell(f), user);
        fclose(f);
        n++;
    }
    if (dir) closedir(dir);
    return n;
}

/* Writes over a byte, at a place that depends on `at`. */
static void damage_file(FILE *f, long size, long at)
{
    const long place = at * 7919 % size;
    fseek(f, place, SEEK_SET);
    const int byte = fgetc(f);
    fseek(f, place, SEEK_SET);
    fputc(byte ^ 0x10, f);
}

static unsigned long n_bits, n_truncations;

/* The file is an entry. */
static void check_sound(FILE *f, long size, long user)
{
    char *const file = malloc((size_t)size);
    (void)user;
    rewind(f);
    if (!file || fread(file, 1, (size_t)size, f) != (size_t)size ||
        !df_disk_is_entry(file, (size_t)size))
        wrong("no entry", "killed");
    free(file);
}

/* The file is an entry, and is none with any bit flipped, or with its end missing. */
static void check_file(FILE *f, long size, long user)
{
    char *const file = malloc((size_t)size);
    const size_t n = (size_t)size;
    (void)user;
    rewind(f);
    if (!file || fread(file, 1, n, f) != n || !df_disk_is_entry(file, n)) wrong("no entry", "bits");
    for (size_t bit = 0; file && bit < 8 * n; bit++, n_bits++) {
        file[bit / 8] = (char)(file[bit / 8] ^ (1 << bit % 8));
        if (df_disk_is_entry(file, n)) wrong("an entry with a flipped bit is used", "bits");
        file[bit / 8] = (char)(file[bit / 8] ^ (1 << bit % 8));
    }
    for (size_t left = 0; file && left < n; left++, n_truncations++)
        if (df_disk_is_entry(file, left)) wrong("a truncated entry is used", "bits");
    free(file);
}

static void damaged(unsigned long long bits)
{
    new_folder();
    const told first = run("full", folder, "0", "before the damage");
    for (long at = 0; at < 4; at++) {
        (void)each_entry(damage_file, at);
        const told t = run("full", folder, "0", "damaged");
        expect(t.hash == bits, "has the bits of the interpreter", "damaged", &t);
        expect(t.compiled == first.compiled, "compiles all again", "damaged", &t);
    }
    const told last = run("full", folder, "0", "mended");
    expect(last.compiled == 0 && last.hash == bits, "compiles nothing", "mended", &last);
    const int n = each_entry(check_file, 0);
    printf("%d entries, %lu bits flipped, %lu times truncated\n", n, n_bits, n_truncations);
    if ((unsigned long long)n < first.compiled) wrong("entries are missing", "bits");
    remove_folder();
}

/* A file that grows beyond a limit gets an error, as on a full disk. */
static void full_disk(unsigned long long bits)
{
    struct rlimit limit, before;
    new_folder();
    if (getrlimit(RLIMIT_FSIZE, &before) != 0) wrong("no limits", "full disk");
    signal(SIGXFSZ, SIG_IGN);
    limit = (struct rlimit){ 512, before.rlim_max };
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) wrong("no limit", "full disk");
    const told first = run("full", folder, "0", "full disk");
    const told second = run("full", folder, "0", "full disk, again");
    if (setrlimit(RLIMIT_FSIZE, &before) != 0) wrong("the limit stays", "full disk");
    expect(first.compiled > 0 && first.hash == bits, "compiles", "full disk", &first);
    expect(second.compiled == first.compiled && second.hash == bits, "compiles", "full disk, again",
           &second);
    if (each_entry(damage_file, 0) != 0) wrong("an entry was written", "full disk");
    const told last = run("full", folder, "0", "disk with room");
    expect(last.compiled == first.compiled && last.hash == bits, "compiles", "disk with room",
           &last);
    if (each_entry(damage_file, 0) == 0) wrong("no entry was written", "disk with room");
    remove_folder();
}

/* ---- killed processes ---- */

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The i-th of numbers that fill 0 to 1 evenly, however many are taken (van der Corput 1935). */
static double evenly(unsigned i)
{
    double x = 0;
    for (double digit = 0.5; i > 0; i >>= 1, digit /= 2) x += digit * (i & 1);
    return x;
}

/* A killed process leaves whole entries alone. The next one loads these, and keeps the rest. This
 * process opens the compiler first, and all others are forked from it, so that their time is that
 * of compiling and keeping. */
static void killed(int n, unsigned long long bits)
{
    int done = 0, halfway = 0;
    if (work("full", "", 0) != 0) wrong("could not compile", "opens the compiler");
    forks = true;
    new_folder();
    const double begun = seconds_now();
    const told whole = run("full", folder, "0", "not killed");
    double all = seconds_now() - begun; /* at most so long does a process live */
    const int entries = each_entry(check_sound, 0);
    remove_folder();
    for (unsigned i = 1; done < n && (done < 8 || test_time_left(1)); i++) {
        const double wait = all * evenly(i);
        const struct timespec t = { (time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9) };
        int status = 0;
        new_folder();
        const child c = start("full", folder, "0");
        nanosleep(&t, NULL);
        kill(c.pid, SIGKILL);
        close(c.out);
        if (waitpid(c.pid, &status, 0) != c.pid) wrong("is not ours", "killed");
        const bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (was_killed) {
            const told next = run("full", folder, "0", "after a killed one");
            halfway += next.loaded > 0 && next.compiled > 0;
            expect(next.compiled + next.loaded == whole.compiled, "compiles the rest", "killed",
                   &next);
            expect(next.hash == bits, "has the bits of the interpreter", "killed", &next);
            if (each_entry(check_sound, 0) != entries) wrong("not all entries are there", "killed");
            done++;
        } else { /* it had ended */
            all = wait;
        }
        remove_folder();
    }
    forks = false;
    printf("%d processes were killed, %d of them between two entries\n", done, halfway);
    if (done >= 100 && halfway == 0) wrong("no process was killed halfway", "killed");
}

/* ---- other processors ---- */

/* On each processor the second process finds all that the first one kept. A processor that lacks
 * one feature finds nothing of it, and has entries of its own. */
static void masked(const char *program, unsigned long long bits)
{
    static const char *const processors[] = { "max", "max,-bmi2", "max,-fma", "max,-popcnt" };
    new_folder();
    emulator = program;
    for (int i = 0; i < (test_is_limited() ? 2 : 4); i++) {
        processor = processors[i];
        const told first = run("full", folder, "0", processor);
        expect(first.compiled > 0 && first.loaded == 0, "finds nothing", processor, &first);
        expect(first.hash == bits, "has the bits of the interpreter", processor, &first);
        const told second = run("full", folder, "0", processor);
        expect(second.compiled == 0 && second.loaded == first.compiled, "finds all", processor,
               &second);
        expect(second.hash == bits && !second.llvm, "runs kept code", processor, &second);
    }
    emulator = processor = NULL;
    remove_folder();
}

int main(int argc, char **argv)
{
    self = argv[0];
    emulator = getenv("MESON_EXE_WRAPPER"); /* set where programs are those of another machine */
    if (argc >= 4 && strcmp(argv[1], "work") == 0)
        return work(argv[2], argv[3], argc > 4 ? (unsigned)atoi(argv[4]) : 0);
    const bool kills = argc == 3 && strcmp(argv[1], "killed") == 0;
    const bool masks = argc == 3 && strcmp(argv[1], "masked") == 0;
    const int n = kills ? atoi(argv[2]) : argc > 1 ? atoi(argv[1]) : 8;
    if (!masks && (n < 1 || (!kills && n > MAX_PROCESSES))) {
        fprintf(stderr, "usage: kept N | killed N | masked QEMU | work TIER FOLDERS [WIDTH]\n");
        return 2;
    }
    const told interpreted = run("interpret", "", "0", "interpreter");
    if (kills) {
        killed(n, interpreted.hash);
    } else if (masks) {
        masked(argv[2], interpreted.hash);
    } else {
        second_process(interpreted.hash);
        background(interpreted.hash);
        at_once(n, interpreted.hash);
        damaged(interpreted.hash);
        full_disk(interpreted.hash);
    }
    printf("%d wrong\n", n_wrong);
    return n_wrong > 0;
}
