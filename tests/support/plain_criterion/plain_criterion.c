/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_criterion [--tap] [--filter=SUITE/NAME]: runs the tests in the order of their names, and
 * prints TAP. The filter is a pattern of the shell, as Criterion takes it. Tests that
 * DEFT_TEST_LEFT_OUT names, one a line as SUITE::NAME, are skipped.
 *
 * Each test has a process of its own. With DEFT_TEST_TOGETHER in the environment, one process runs
 * test after test as long as they pass, and one that does not pass there runs again alone. An
 * emulator translates the code of each process anew, which takes it longer than the tests.
 */
#include <criterion/criterion.h>

#include <fnmatch.h>
#include <poll.h>
#include <sys/wait.h>

/* musl knows no extended patterns; what asks for one is then left out. */
#ifndef FNM_EXTMATCH
#define FNM_EXTMATCH 0
#endif

enum { SKIPPED = 77, PATIENCE = 60000 /* ms */, MOST_IDLE = 2 };

static plain_test *tests, *suites;
static bool has_failed;

static int order(const plain_test *a, const plain_test *b)
{
    const int by_suite = strcmp(a->suite, b->suite);
    return by_suite || !a->name ? by_suite : strcmp(a->name, b->name);
}

void plain_add(plain_test *t)
{
    plain_test **at = t->name ? &tests : &suites;
    while (*at && order(*at, t) < 0) at = &(*at)->next;
    t->next = *at;
    *at = t;
}

void plain_fail(bool is_last, const char *file, int line, const char *what, const char *format, ...)
{
    va_list ap;
    has_failed = true;
    fprintf(stderr, "%s:%d: %s", file, line, what);
    if (*format) {
        fputs(": ", stderr);
        va_start(ap, format);
        vfprintf(stderr, format, ap);
        va_end(ap);
    }
    fputc('\n', stderr);
    if (is_last) _exit(EXIT_FAILURE);
}

void plain_skip(void)
{
    _exit(SKIPPED);
}

static void run_body(const plain_test *t)
{
    const plain_test *s = suites;
    while (s && strcmp(s->suite, t->suite) != 0) s = s->next;
    if (s && s->options.init) s->options.init();
    if (t->options.init) t->options.init();
    t->run();
    if (t->options.fini) t->options.fini();
    if (s && s->options.fini) s->options.fini();
}

static void run_here(const plain_test *t)
{
    run_body(t);
    exit(has_failed ? EXIT_FAILURE : t->options.exit_code);
}

/* Runs a test in a child. Returns what is said of it: "ok" or "not ok". */
static const char *run_forked(const plain_test *t, bool *is_skipped)
{
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) run_here(t);
    if (child < 0 || waitpid(child, &status, 0) != child) return "not ok";
    *is_skipped = WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED;
    const bool ok = t->options.signal
                        ? WIFSIGNALED(status) && WTERMSIG(status) == t->options.signal
                        : WIFEXITED(status) && WEXITSTATUS(status) == t->options.exit_code;
    if (!ok && !*is_skipped && WIFSIGNALED(status))
        fprintf(stderr, "%s::%s: signal %d\n", t->suite, t->name, WTERMSIG(status));
    return ok || *is_skipped ? "ok" : "not ok";
}

static bool is_left_out(const plain_test *t)
{
    char name[512];
    const char *const list = getenv("DEFT_TEST_LEFT_OUT");
    const int n = snprintf(name, sizeof name, "%s::%s", t->suite, t->name);
    for (const char *at = list; at && *at; at += strcspn(at, "\n"), at += *at == '\n')
        if (strcspn(at, "\n") == (size_t)n && strncmp(at, name, (size_t)n) == 0) return true;
    return false;
}

static bool is_asked(const plain_test *t, const char *filter)
{
    char name[512];
    snprintf(name, sizeof name, "%s/%s", t->suite, t->name);
    return !filter || fnmatch(filter, name, FNM_EXTMATCH) == 0;
}

/* ---- tests together ---- */

static char **first_environment;

static void keep_environment(void)
{
    size_t n = 0;
    while (environ[n]) n++;
    first_environment = calloc(n + 1, sizeof *first_environment);
    for (size_t i = 0; first_environment && i < n; i++) first_environment[i] = strdup(environ[i]);
}

static void restore_environment(void)
{
    clearenv();
    for (char **at = first_environment; at && *at; at++) putenv(*at);
}

/* The processor time of a process, in ticks of the system. */
static long long ticks_of(pid_t process)
{
    char path[64], text[1024];
    long long user = 0, kernel = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *const f = fopen(path, "r");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    const char *const after = strrchr(text, ')'); /* the name of the program may have anything */
    if (after) (void)sscanf(after + 1, "%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%lld%lld", &user, &kernel);
    return user + kernel;
}

/* Waits for a byte of a child. False when its end is closed, or when it computes nothing for long:
 * it hangs. */
static bool wait_for(int end, pid_t child)
{
    struct pollfd p = { .fd = end, .events = POLLIN };
    char byte;
    for (int n_idle = 0; n_idle < MOST_IDLE;) {
        const long long before = ticks_of(child);
        if (poll(&p, 1, PATIENCE) != 0) return read(end, &byte, 1) == 1;
        n_idle = ticks_of(child) == before ? n_idle + 1 : 0;
    }
    return false;
}

/* Runs n tests in a child, one after another until one does not pass. Returns how many passed. */
static int run_together(plain_test *const *t, int n)
{
    int ends[2], n_passed = 0, status = 0;
    fflush(NULL);
    if (n < 2 || pipe(ends) != 0) return 0;
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < n; i++) {
            restore_environment();
            run_body(t[i]);
            if (has_failed || write(ends[1], "", 1) != 1) _exit(EXIT_FAILURE);
        }
        exit(EXIT_SUCCESS);
    }
    close(ends[1]);
    while (child > 0 && wait_for(ends[0], child)) n_passed++;
    if (child > 0 && n_passed < n) kill(child, SIGKILL);
    close(ends[0]);
    if (child < 0 || waitpid(child, &status, 0) != child) return 0;
    if (n_passed < n)
        fprintf(stderr, "%s::%s runs again, alone\n", t[n_passed]->suite, t[n_passed]->name);
    return status != 0 && n_passed == n ? n - 1 : n_passed;
}

static bool may_share(const plain_test *t)
{
    return !t->options.signal && !t->options.exit_code && !is_left_out(t);
}

/* Runs those of the tests from t on that may share a process. Returns how many passed. */
static int run_shared(plain_test *t, const char *filter)
{
    enum { MOST = 4096 };
    static plain_test *some[MOST];
    int n = 0;
    for (; t && n < MOST; t = t->next) {
        if (!is_asked(t, filter)) continue;
        if (!may_share(t)) break;
        some[n++] = t;
    }
    return run_together(some, n);
}

int main(int argc, char **argv)
{
    const bool together = getenv("DEFT_TEST_TOGETHER") != NULL;
    const char *filter = NULL;
    int n = 0, n_failed = 0, n_passed = 0;
    bool is_alone = !together;
    keep_environment();
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--filter=", 9) == 0) filter = argv[i] + 9;
    for (const plain_test *t = tests; t; t = t->next) n += is_asked(t, filter);
    printf("1..%d\n", n);
    for (plain_test *t = tests; t; t = t->next) {
        bool is_skipped = is_left_out(t);
        if (!is_asked(t, filter)) continue;
        if (n_passed == 0 && !is_alone) {
            n_passed = run_shared(t, filter);
            is_alone = true; /* the one after them */
        }
        const bool has_passed = n_passed > 0;
        const char *const said = is_skipped || has_passed ? "ok" : run_forked(t, &is_skipped);
        if (has_passed)
            n_passed--;
        else
            is_alone = !together;
        n_failed += *said == 'n';
        printf("%s - %s::%s%s\n", said, t->suite, t->name, is_skipped ? " # SKIP" : "");
        fflush(stdout);
    }
    return n_failed > 0;
}
