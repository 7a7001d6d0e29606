/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_criterion [--tap] [--filter=SUITE/NAME]: runs the tests in the order of their names, and
 * prints TAP. The filter is a pattern of the shell, as Criterion takes it. Tests that
 * DEFT_TEST_LEFT_OUT names, one a line as SUITE::NAME, are skipped.
 */
#include <criterion/criterion.h>

#include <fnmatch.h>
#include <sys/wait.h>

/* musl knows no extended patterns; what asks for one is then left out. */
#ifndef FNM_EXTMATCH
#define FNM_EXTMATCH 0
#endif

enum { SKIPPED = 77 };

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

static void run_here(const plain_test *t)
{
    const plain_test *s = suites;
    while (s && strcmp(s->suite, t->suite) != 0) s = s->next;
    if (s && s->options.init) s->options.init();
    if (t->options.init) t->options.init();
    t->run();
    if (t->options.fini) t->options.fini();
    if (s && s->options.fini) s->options.fini();
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

int main(int argc, char **argv)
{
    const char *filter = NULL;
    int n = 0, n_failed = 0;
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--filter=", 9) == 0) filter = argv[i] + 9;
    for (const plain_test *t = tests; t; t = t->next) n += is_asked(t, filter);
    printf("1..%d\n", n);
    for (const plain_test *t = tests; t; t = t->next) {
        bool is_skipped = is_left_out(t);
        if (!is_asked(t, filter)) continue;
        const char *const said = is_skipped ? "ok" : run_forked(t, &is_skipped);
        n_failed += *said == 'n';
        printf("%s - %s::%s%s\n", said, t->suite, t->name, is_skipped ? " # SKIP" : "");
        fflush(stdout);
    }
    return n_failed > 0;
}
