/* SPDX-License-Identifier: Apache-2.0
 *
 *     kept N                          all cases, with N processes at once
 *     kept work TIER FOLDERS [WIDTH]  one process that computes and prints what it did
 *
 * Processes that share compiled code. The second one compiles nothing and does not open LLVM.
 * Another width of vectors finds nothing. Many processes may begin at once, in an empty folder and
 * in a full one. Damaged entries are compiled again. In every case the bits are those of the
 * interpreter.
 */
#include <dirent.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deft/deft.h"

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
static char folder[64];

static void wrong(const char *what, const char *which)
{
    printf("wrong: %s: %s\n", which, what);
    n_wrong++;
}

static child start(const char *tier, const char *folders, const char *width)
{
    int ends[2];
    child c = { .pid = -1 };
    posix_spawn_file_actions_t a;
    char mode[] = "work";
    char *const argv[] = { (char *)self, mode, (char *)tier, (char *)folders, (char *)width, NULL };
    if (pipe(ends) != 0) return c;
    posix_spawn_file_actions_init(&a);
    posix_spawn_file_actions_adddup2(&a, ends[1], 1);
    posix_spawn_file_actions_addclose(&a, ends[0]);
    if (posix_spawn(&c.pid, self, &a, NULL, argv, environ) != 0) c.pid = -1;
    posix_spawn_file_actions_destroy(&a);
    close(ends[1]);
    c.out = ends[0];
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

/* In tier AUTO it depends on time what is compiled. After some processes all code is there. */
static void background(unsigned long long bits)
{
    told t = { .compiled = 1 };
    new_folder();
    for (int i = 0; i < 10 && (t.compiled > 0 || t.llvm); i++) {
        t = run("auto", folder, "0", "background");
        expect(t.hash == bits, "has the bits of the interpreter", "background", &t);
    }
    expect(t.compiled == 0 && !t.llvm, "compiles nothing in the end", "background", &t);
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

/* Writes over a byte of each file in the folder, at a place that depends on `at`. */
static void damage_files(long at)
{
    DIR *const dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        FILE *const f = e->d_name[0] == '.' ? NULL : fopen(path, "r+b");
        if (!f) continue;
        fseek(f, 0, SEEK_END);
        const long size = ftell(f), place = at * 7919 % size;
        fseek(f, place, SEEK_SET);
        const int byte = fgetc(f);
        fseek(f, place, SEEK_SET);
        fputc(byte ^ 0x10, f);
        fclose(f);
    }
    if (dir) closedir(dir);
}

static void damaged(unsigned long long bits)
{
    new_folder();
    const told first = run("full", folder, "0", "before the damage");
    for (long at = 0; at < 4; at++) {
        damage_files(at);
        const told t = run("full", folder, "0", "damaged");
        expect(t.hash == bits, "has the bits of the interpreter", "damaged", &t);
        expect(t.compiled == first.compiled, "compiles all again", "damaged", &t);
    }
    const told last = run("full", folder, "0", "mended");
    expect(last.compiled == 0 && last.hash == bits, "compiles nothing", "mended", &last);
    remove_folder();
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc >= 4 && strcmp(argv[1], "work") == 0)
        return work(argv[2], argv[3], argc > 4 ? (unsigned)atoi(argv[4]) : 0);
    const int n = argc > 1 ? atoi(argv[1]) : 8;
    if (n < 1 || n > MAX_PROCESSES) {
        fprintf(stderr, "usage: kept N | work TIER FOLDERS [WIDTH]\n");
        return 2;
    }
    const told interpreted = run("interpret", "", "0", "interpreter");
    second_process(interpreted.hash);
    background(interpreted.hash);
    at_once(n, interpreted.hash);
    damaged(interpreted.hash);
    printf("%d wrong\n", n_wrong);
    return n_wrong > 0;
}
