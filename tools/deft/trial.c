/* SPDX-License-Identifier: Apache-2.0
 *
 * See trial.h. The child has a process group and its output in a pipe, which is at its end when the
 * child and all that it started have gone: that, or the time limit, is what the parent waits for.
 * A child that outlives its parent is killed by the kernel.
 */
#include "trial.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A verdict as an exit status: other ones are of who ended the process without our knowing. */
enum { VERDICT = 64, NO_COMMAND = 126 };

/* ---- the child ---- */

static void limit(int what, rlim_t n)
{
    const struct rlimit l = { n, n };
    (void)setrlimit(what, &l);
}

static void confine(const trial *t, int out)
{
    const long threads = sysconf(_SC_NPROCESSORS_ONLN);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)dup2(out, STDOUT_FILENO);
    (void)dup2(out, STDERR_FILENO);
    (void)close(out);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, (rlim_t)t->seconds * (rlim_t)(threads > 0 ? threads : 1) + 1);
    if (t->memory) limit(RLIMIT_AS, (rlim_t)t->memory);
}

_Noreturn static void check(const trial *t, const char *text, size_t n)
{
    cli_program p;
    int code = cli_program_parse(&p, "candidate", text, n, t->run.flags);
    const check_verdict v =
        code == CLI_OK ? run_check(&p, &t->run, t->compiler, &code) : CHECK_UNRUN;
    (void)fflush(stdout);
    _exit(VERDICT + (int)v);
}

_Noreturn static void execute(const trial *t)
{
    char line[4096];
    const int n = snprintf(line, sizeof line, "%s \"$1\"", t->command);
    if (n < (int)sizeof line) execl("/bin/sh", "sh", "-c", line, "sh", t->path, (char *)NULL);
    _exit(NO_COMMAND);
}

/* ---- the parent ---- */

static int64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Reads until the pipe's end; keeps what has room. false: the time is over. */
static bool listen(int in, int64_t deadline, char *said, size_t room)
{
    size_t n = 0;
    char block[4096];
    said[0] = '\0';
    for (;;) {
        const int64_t left = deadline - now_ms();
        struct pollfd p = { .fd = in, .events = POLLIN };
        const int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return false;
        const ssize_t got = read(in, block, sizeof block);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return true;
        const size_t keep = (size_t)got < room - 1 - n ? (size_t)got : room - 1 - n;
        memcpy(said + n, block, keep);
        n += keep;
        said[n] = '\0';
    }
}

/* The line of text that tells most: the first with `word`, else the last. */
static void choose_line(const char *text, const char *word, char *out, size_t room)
{
    const char *best = "";
    for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        const size_t n = strcspn(at, "\n");
        if (n) best = at;
        if (word && n && memmem(at, n, word, strlen(word))) break;
    }
    size_t n = strcspn(best, "\n");
    if (n > room - 1) n = room - 1;
    for (size_t i = 0; i < n; i++) out[i] = best[i] >= ' ' && best[i] < 127 ? best[i] : '?';
    out[n] = '\0';
}

static trial_kind kind_of(const trial *t, int status)
{
    if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGXCPU ? TRIAL_HANGS : TRIAL_CRASHES;
    const int code = WEXITSTATUS(status);
    if (t->command) return code == 0 ? TRIAL_PASSES : TRIAL_FAILS;
    switch (code - VERDICT) {
    case CHECK_EQUAL:
    case CHECK_UNRUN: return TRIAL_PASSES;
    case CHECK_DIFFERS: return TRIAL_DIFFERS;
    case CHECK_FAILED: return TRIAL_FAILS;
    default: return TRIAL_CRASHES;
    }
}

static void describe(const trial *t, int status, const char *text, trial_result *out)
{
    char line[160];
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    choose_line(text, out->kind == TRIAL_DIFFERS ? " element " : NULL, line, sizeof line);
    const char *const colon = line[0] ? ": " : "";
    switch (out->kind) {
    case TRIAL_PASSES: out->said[0] = '\0'; break;
    case TRIAL_DIFFERS: (void)snprintf(out->said, sizeof out->said, "%s", line); break;
    case TRIAL_FAILS:
        if (t->command)
            (void)snprintf(out->said, sizeof out->said, "exit %d%s%s", code, colon, line);
        else
            (void)snprintf(out->said, sizeof out->said, "%s", line);
        break;
    case TRIAL_CRASHES:
        if (WIFSIGNALED(status))
            (void)snprintf(out->said, sizeof out->said, "ended by signal %d%s%s", WTERMSIG(status),
                           colon, line);
        else
            (void)snprintf(out->said, sizeof out->said, "ended by itself with status %d%s%s", code,
                           colon, line);
        break;
    case TRIAL_HANGS:
        (void)snprintf(out->said, sizeof out->said, "took more than %llu s",
                       (unsigned long long)t->seconds);
        break;
    }
}

static int write_text(const char *path, const char *text, size_t n)
{
    FILE *const f = fopen(path, "w");
    const bool ok = f && fwrite(text, 1, n, f) == n;
    if (f && fclose(f) == 0 && ok) return CLI_OK;
    return cli_fail(CLI_INPUT, "%s: %s", path, strerror(errno));
}

int trial_init(trial *t)
{
    const char *const folder = getenv("TMPDIR");
    (void)signal(SIGCHLD, SIG_DFL);
    if (!t->command) return CLI_OK;
    const int n =
        snprintf(t->path, sizeof t->path, "%s/deft-XXXXXX", folder && *folder ? folder : "/tmp");
    const int fd = n < (int)sizeof t->path ? mkstemp(t->path) : -1;
    if (fd >= 0) {
        (void)close(fd);
        return CLI_OK;
    }
    t->path[0] = '\0';
    return cli_fail(CLI_INPUT, "minimize: no file for candidates: %s", strerror(errno));
}

void trial_finish(trial *t)
{
    if (t->path[0]) (void)unlink(t->path);
    t->path[0] = '\0';
}

int trial_run(const trial *t, const char *text, size_t n, trial_result *out)
{
    int ends[2], status = 0;
    char said[8192];
    if (t->command) {
        const int code = write_text(t->path, text, n);
        if (code != CLI_OK) return code;
    }
    (void)fflush(NULL);
    if (pipe(ends) != 0) return cli_fail(CLI_INPUT, "minimize: pipe: %s", strerror(errno));
    const pid_t child = fork();
    if (child == 0) {
        (void)close(ends[0]);
        confine(t, ends[1]);
        if (t->command) execute(t);
        check(t, text, n);
    }
    (void)close(ends[1]);
    if (child < 0) {
        (void)close(ends[0]);
        return cli_fail(CLI_INPUT, "minimize: fork: %s", strerror(errno));
    }
    (void)setpgid(child, child); /* whichever of us is first */
    const bool ended = listen(ends[0], now_ms() + (int64_t)t->seconds * 1000, said, sizeof said);
    if (!ended) (void)kill(-child, SIGKILL);
    (void)close(ends[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (t->command && ended && WIFEXITED(status) && WEXITSTATUS(status) >= NO_COMMAND &&
        WEXITSTATUS(status) <= NO_COMMAND + 1)
        return cli_fail(CLI_USAGE, "minimize: --with=%s: there is no such command", t->command);
    out->kind = ended ? kind_of(t, status) : TRIAL_HANGS;
    describe(t, status, said, out);
    return CLI_OK;
}
