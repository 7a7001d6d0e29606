/* SPDX-License-Identifier: Apache-2.0
 *
 * How long does a program take from exec to its first result, the first time and the second? Whole
 * processes: those of start_process.c, and the same programs in JAX, torch.compile, Dr.Jit and
 * Numba (peers/start.py), each with the folder in which it keeps what it has compiled. All take
 * turns.
 *
 * First starts find an empty folder. Later starts find what earlier ones have left. The second one
 * finds what one process has left, which may not have had the time to compile all (docs/cache.md).
 * JAX and PyTorch keep compiled functions when told to, which they are; Numba is told cache=True;
 * Dr.Jit keeps kernels by itself. The time of a peer has the start of Python and its imports in it,
 * as that of ours has the dynamic loader. GPT-2 is not among the programs of Dr.Jit and Numba. Its
 * weights come from one file, which all sides read.
 *
 * The row "first steps beside C" has the reference for the first step of the chain: a process with
 * a loop that was compiled before (start_process.c). A result of 4 MB costs the system more in the
 * first step than the loop itself.
 *
 *   --case=NAME   one program
 *   --rows=TEXT   the peers with that text in their names
 */
#include "bench.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer.h"

extern char **environ;

enum { MOST_ROUNDS = 15, OURS = 0, N_SIDES = 5 };

static const char *const side_names[N_SIDES] = { "deft", "jax", "torch-compile", "drjit", "numba" };

typedef struct started {
    double to_result, first, steady; /* seconds: from exec; of the first step; of later ones */
    double create;                   /* ours: of deft_ctx_create */
    double compiled, loaded, llvm;   /* ours */
    double number;                   /* by which results are compared */
} started;

typedef struct start_side {
    char python[512]; /* "": ours */
    char label[64];
    char why[256]; /* it cannot be measured; "": it can */
    started cold[MOST_ROUNDS], warm[MOST_ROUNDS];
} start_side;

typedef struct start_program {
    const char *name;
    bool by_all; /* else JAX and PyTorch alone */
    int steps, cold_rounds, rounds;
} start_program;

static const start_program programs[] = {
    { "chain", true, 41, 3, 11 },
    { "mlp", true, 2001, 3, 11 },
    { "gpt2-forward", false, 6, 1, 5 },
    { "gpt2", false, 4, 1, 3 },
};

static char root[] = "/tmp/deft-bench-start-XXXXXX";

/* ---- folders ---- */

static void start_set(const char *variable, const char *side, const char *folder)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s/%s", root, side, folder);
    setenv(variable, path, 1);
}

/* The folders in which a side keeps what it compiles. */
static void keep_in_folders(const char *side)
{
    start_set("DEFT_CACHE_DIR", side, "deft");
    start_set("HOME", side, "home"); /* Dr.Jit: .drjit */
    start_set("JAX_COMPILATION_CACHE_DIR", side, "jax");
    setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0", 1);
    setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1", 1);
    setenv("JAX_PLATFORMS", "cpu", 1);
    start_set("TORCHINDUCTOR_CACHE_DIR", side, "inductor");
    setenv("TORCHINDUCTOR_FX_GRAPH_CACHE", "1", 1);
    setenv("TORCHINDUCTOR_AUTOGRAD_CACHE", "1", 1);
    start_set("NUMBA_CACHE_DIR", side, "numba");
}

static void start_command(const char *format, const char *side)
{
    char command[256];
    snprintf(command, sizeof command, format, root, side);
    if (system(command) != 0) fprintf(stderr, "%s failed\n", command);
}

static void empty_folders(const char *side)
{
    start_command("rm -rf '%s/%s'", side);
    start_command("mkdir -p '%s/%s/home'", side);
}

/* ---- one process ---- */

static bool start_fails(start_side *s, const char *why)
{
    snprintf(s->why, sizeof s->why, "%s", why);
    return false;
}

/* Starts argv[0] with its output in *from. */
static bool start_spawn(char *const argv[], pid_t *pid, FILE **from)
{
    int ends[2];
    posix_spawn_file_actions_t a;
    if (pipe(ends) != 0) return false;
    posix_spawn_file_actions_init(&a);
    posix_spawn_file_actions_adddup2(&a, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&a, ends[0]);
    posix_spawn_file_actions_addclose(&a, ends[1]);
    const bool ok = posix_spawn(pid, argv[0], &a, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&a);
    close(ends[1]);
    *from = ok ? fdopen(ends[0], "r") : NULL;
    if (!*from) close(ends[0]);
    return ok && *from;
}

static bool read_started(FILE *from, double begun, bool is_ours, started *out)
{
    char line[512] = "";
    while (strcmp(line, "result\n") != 0)
        if (!fgets(line, sizeof line, from)) return false;
    out->to_result = bench_now() - begun;
    if (!fgets(line, sizeof line, from)) return false;
    return is_ours
               ? sscanf(line, "%lf %lf %lf %lf %lf %lf %lf", &out->first, &out->steady,
                        &out->create, &out->compiled, &out->loaded, &out->llvm, &out->number) == 7
               : sscanf(line, "%lf %lf %lf", &out->first, &out->steady, &out->number) == 3;
}

static bool start_once(start_side *s, int side, const char *name, int steps, const char *weights,
                       started *out)
{
    char program[512], script[] = BENCH_SOURCE_ROOT "/bench/peers/start.py", library[32], what[32];
    char n[16], file[512];
    pid_t pid;
    FILE *from = NULL;
    int status = 1;
    snprintf(program, sizeof program, "%s",
             side == OURS ? BENCH_BUILD_ROOT "/bench/bench-start" : s->python);
    snprintf(library, sizeof library, "%s", side_names[side]);
    snprintf(what, sizeof what, "%s", name);
    snprintf(n, sizeof n, "%d", steps);
    snprintf(file, sizeof file, "%s", weights);
    char *const ours[] = { program, what, n, file, NULL };
    char *const theirs[] = { program, script, library, what, n, file, NULL };
    keep_in_folders(side_names[side]);
    const double begun = bench_now();
    if (!start_spawn(side == OURS ? ours : theirs, &pid, &from))
        return start_fails(s, strerror(errno));
    bool ok = steps == 0 || read_started(from, begun, side == OURS, out);
    fclose(from);
    ok = waitpid(pid, &status, 0) == pid && status == 0 && ok;
    return ok || start_fails(s, "its process failed");
}

/* ---- peers ---- */

/* Asks start.py for the Python that has the library, and installs it if that is wanted. */
static void find_peer(const bench *b, start_side *s, int side)
{
    char peer_option[64], venv[512], python[] = "python3", install[] = "--install";
    char script[] = BENCH_SOURCE_ROOT "/bench/peers/start.py", version[64] = "";
    peer p;
    snprintf(peer_option, sizeof peer_option, "--peer=%s", side_names[side]);
    bench_environment_option(b, venv, sizeof venv);
    peer_start(
        &p, side_names[side],
        (char *const[]){ python, script, peer_option, venv, b->install ? install : NULL, NULL });
    const char *const answer = *p.why ? NULL : peer_heard(&p);
    if (!answer || sscanf(answer, "%511s %63s", s->python, version) != 2)
        start_fails(s, *p.why ? p.why : "it did not say where it is");
    snprintf(s->label, sizeof s->label, *version ? "%s %.32s" : "%s", side_names[side], version);
    peer_close(&p);
}

/* ---- rows ---- */

static double start_median(const started *t, int n, size_t member)
{
    double v[MOST_ROUNDS];
    for (int i = 0; i < n; i++) memcpy(&v[i], (const char *)&t[i] + member, sizeof v[i]);
    return bench_median(v, (size_t)n);
}

#define MEDIAN(side, which, n, member) start_median((side)->which, n, offsetof(started, member))

static void start_label(char *out, size_t size, const start_program *p, const char *what)
{
    snprintf(out, size, "%s, %s", p->name, what);
}

static void row_beside(bench *b, const start_program *p, const char *what, double ms,
                       const start_side *other, double its_ms)
{
    char label[64], more[160];
    start_label(label, sizeof label, p, what);
    if (*other->why) {
        bench_row_without(b, label, ms, "ms", other->label, other->why, 1);
        return;
    }
    snprintf(more, sizeof more, ", \"its_first_ms\": %.6g, \"its_steady_ms\": %.6g",
             MEDIAN(other, warm, p->rounds, first) * 1e3,
             MEDIAN(other, warm, p->rounds, steady) * 1e3);
    b->more = more;
    bench_row(b, label, ms, "ms", other->label, its_ms, BENCH_RATIO_AT_MOST, 1);
}

static void rows_of_ours(bench *b, const start_program *p, const start_side *ours)
{
    char label[64];
    const int n = p->rounds;
    start_label(label, sizeof label, p, "second start, first step");
    bench_row(b, label, MEDIAN(ours, warm, n, first) * 1e3, "ms", "a later step, ms",
              MEDIAN(ours, warm, n, steady) * 1e3, BENCH_RATIO_AT_MOST, 1.2);
    start_label(label, sizeof label, p, "second start, compiled");
    bench_row(b, label, ours->warm[0].compiled, "kernels", "loaded", ours->warm[0].loaded,
              BENCH_VALUE_AT_MOST, 0);
    start_label(label, sizeof label, p, "later starts, compiled");
    bench_row(b, label, MEDIAN(ours, warm, n, compiled), "kernels", "loaded",
              MEDIAN(ours, warm, n, loaded), BENCH_VALUE_AT_MOST, 0);
    start_label(label, sizeof label, p, "later starts, libLLVM");
    bench_row(b, label, MEDIAN(ours, warm, n, llvm), "mapped", "first start",
              MEDIAN(ours, cold, p->cold_rounds, llvm), BENCH_VALUE_AT_MOST, 0);
    start_label(label, sizeof label, p, "deft_ctx_create");
    bench_row(b, label, MEDIAN(ours, warm, n, create) * 1e3, "ms", "limit, ms", 1,
              BENCH_VALUE_AT_MOST, 1);
}

static void rows_of_program(bench *b, const start_program *p, const start_side *sides)
{
    const start_side *const ours = &sides[OURS];
    const double number = ours->warm[0].number;
    char label[64];
    for (int i = OURS + 1; i < N_SIDES; i++) {
        const start_side *const s = &sides[i];
        if (!*s->label) continue;
        row_beside(b, p, "second start", MEDIAN(ours, warm, p->rounds, to_result) * 1e3, s,
                   MEDIAN(s, warm, p->rounds, to_result) * 1e3);
        row_beside(b, p, "first start", MEDIAN(ours, cold, p->cold_rounds, to_result) * 1e3, s,
                   MEDIAN(s, cold, p->cold_rounds, to_result) * 1e3);
        start_label(label, sizeof label, p, "results apart");
        if (!*s->why)
            bench_row(b, label, fabs(number - s->warm[0].number), "", s->label, s->warm[0].number,
                      BENCH_VALUE_AT_MOST, 1e-3);
    }
    rows_of_ours(b, p, ours);
}

/* ---- turns ---- */

static void run_rounds(start_side *sides, const start_program *p, const char *weights, bool is_cold)
{
    const int n = is_cold ? p->cold_rounds : p->rounds;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < N_SIDES; i++) {
            start_side *const s = &sides[i];
            if (!*s->label || *s->why) continue;
            if (is_cold) empty_folders(side_names[i]);
            (void)start_once(s, i, p->name, p->steps, weights, is_cold ? &s->cold[r] : &s->warm[r]);
        }
}

/* Our first step beside that of a program that has its code from the start. */
static void row_of_floor(bench *b, const start_program *p, const start_side *ours)
{
    static start_side floor;
    char label[64], more[64];
    memset(&floor, 0, sizeof floor);
    for (int r = 0; r < p->rounds; r++)
        if (!start_once(&floor, OURS, "floor", p->steps, "-", &floor.warm[r])) {
            fprintf(stderr, "floor: %s\n", floor.why);
            return;
        }
    start_label(label, sizeof label, p, "first steps beside C");
    snprintf(more, sizeof more, ", \"its_steady_ms\": %.6g",
             MEDIAN(&floor, warm, p->rounds, steady) * 1e3);
    b->more = more;
    bench_row(b, label, MEDIAN(ours, warm, p->rounds, first) * 1e3, "ms", "a loop in C, ms",
              MEDIAN(&floor, warm, p->rounds, first) * 1e3, BENCH_RATIO_AT_MOST, 1.2);
}

static void one_program(bench *b, const start_program *p)
{
    static start_side sides[N_SIDES];
    char weights[256];
    memset(sides, 0, sizeof sides);
    snprintf(sides[OURS].label, sizeof sides[OURS].label, "deft");
    for (int i = OURS + 1; i < N_SIDES; i++)
        if ((p->by_all || i < 3) && (!b->rows || strstr(side_names[i], b->rows)))
            find_peer(b, &sides[i], i);
    snprintf(weights, sizeof weights, "%s/weights", root);
    empty_folders(side_names[OURS]);
    if (start_once(&sides[OURS], OURS, p->name, 0, weights, NULL)) {
        run_rounds(sides, p, weights, true);
        run_rounds(sides, p, weights, false);
    }
    if (*sides[OURS].why)
        fprintf(stderr, "%s: %s\n", p->name, sides[OURS].why);
    else
        rows_of_program(b, p, sides);
    if (!*sides[OURS].why && !strcmp(p->name, "chain")) row_of_floor(b, p, &sides[OURS]);
    remove(weights);
}

void bench_start(bench *b)
{
    char home[512];
    const char *const before = getenv("HOME");
    snprintf(home, sizeof home, "%s", before ? before : "");
    void (*const handler)(int) = signal(SIGPIPE, SIG_IGN); /* a peer's death is not ours */
    if (!mkdtemp(root)) return;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        start_program p = programs[i];
        if (b->only && strcmp(b->only, p.name) != 0) continue;
        if (b->quick) p.cold_rounds = 1, p.rounds = 3;
        one_program(b, &p);
    }
    setenv("DEFT_CACHE_DIR", "", 1);
    setenv("HOME", home, 1);
    start_command("rm -rf '%s'%s", "");
    signal(SIGPIPE, handler);
}
