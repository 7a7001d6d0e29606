/* SPDX-License-Identifier: Apache-2.0
 *
 * Options and programs: see cli.h. Text is read whole, with a bound, before anything looks at it.
 */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TEXT = 256 << 20 };

bool cli_has_colour(int fd)
{
    const char *const no = getenv("NO_COLOR"), *const terminal = getenv("TERM");
    return !(no && *no) && isatty(fd) && !(terminal && strcmp(terminal, "dumb") == 0);
}

int cli_fail(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs(cli_has_colour(STDERR_FILENO) ? "\033[1mdeft:\033[0m " : "deft: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    return code;
}

int cli_status(const df_diag *d, deft_status st, const char *what)
{
    const char *const text = d->text[0] ? d->text : deft_status_text(st);
    return cli_fail(st == DEFT_E_BACKEND                            ? CLI_BACKEND
                    : st == DEFT_E_INTERNAL || st == DEFT_E_COMPILE ? CLI_FAILED
                                                                    : CLI_INPUT,
                    "%s: %s", what, text);
}

/* ---- options ---- */

bool cli_value(const char *argument, const char *name, const char **value)
{
    const size_t n = strlen(name);
    if (strncmp(argument, name, n) != 0 || argument[n] != '=') return false;
    *value = argument + n + 1;
    return true;
}

bool cli_number(const char *option, const char *text, uint64_t low, uint64_t high, uint64_t *out)
{
    uint64_t v = 0;
    bool ok = *text != '\0';
    for (const char *p = text; *p && ok; p++) {
        const unsigned digit = (unsigned)(*p - '0');
        ok = digit <= 9 && v <= (UINT64_MAX - digit) / 10;
        v = v * 10 + digit;
    }
    if (ok && v >= low && v <= high) {
        *out = v;
        return true;
    }
    (void)cli_fail(CLI_USAGE, "%s=%s: must be a whole number from %llu to %llu", option, text,
                   (unsigned long long)low, (unsigned long long)high);
    return false;
}

bool cli_passes_of(const char *list, cli_passes *out)
{
    static const struct {
        const char *name;
        uint32_t pass;
    } words[] = { { "cse", DF_PASS_CSE }, { "fold", DF_PASS_FOLD }, { "algebra", DF_PASS_ALGEBRA },
                  { "dce", DF_PASS_DCE }, { "all", DF_PASS_ALL },   { "none", 0 } };
    *out = (cli_passes){ 0 };
    for (const char *at = list; *at;) {
        const size_t n = strcspn(at, ",");
        bool known = n == 4 && memcmp(at, "fuse", 4) == 0;
        out->fuse |= known;
        for (size_t i = 0; i < DF_LEN(words) && !known; i++) {
            known = strlen(words[i].name) == n && memcmp(words[i].name, at, n) == 0;
            if (known) out->simplify |= words[i].pass;
        }
        if (!known) {
            (void)cli_fail(CLI_USAGE,
                           "--passes: '%.*s' is none of cse, fold, algebra, dce, all, none, fuse",
                           (int)n, at);
            return false;
        }
        at += n + (at[n] == ',');
    }
    return true;
}

/* ---- programs ---- */

static int read_text(df_arena *arena, const char *path, const char **text, size_t *size)
{
    int code = CLI_OK;
    df_str s;
    df_str_init(&s, arena->mem);
    const bool is_stdin = strcmp(path, "-") == 0;
    FILE *const f = is_stdin ? stdin : fopen(path, "rb");
    if (!f) return cli_fail(CLI_INPUT, "%s: %s", path, strerror(errno));
    char block[8192];
    size_t n = 0;
    while (s.n <= MAX_TEXT && (n = fread(block, 1, sizeof block, f)) > 0) df_str_putn(&s, block, n);
    if (ferror(f))
        code = cli_fail(CLI_INPUT, "%s: %s", path, strerror(errno));
    else if (s.n > MAX_TEXT)
        code = cli_fail(CLI_INPUT, "%s: larger than %d bytes", path, MAX_TEXT);
    if (!is_stdin) fclose(f);
    *size = s.n;
    *text = df_arena_copy(arena, s.at ? s.at : "", s.n, 1);
    if (code == CLI_OK && (!s.ok || !*text)) code = cli_fail(CLI_INPUT, "%s: out of memory", path);
    df_str_finish(&s);
    return code;
}

/* Where what was expected of a program begins. */
static size_t program_end(const char *text, size_t n)
{
    for (size_t at = 0; at + 4 <= n;) {
        if (memcmp(text + at, "--- ", 4) == 0) return at;
        const char *const line = memchr(text + at, '\n', n - at);
        if (!line) break;
        at = (size_t)(line - text) + 1;
    }
    return n;
}

static int parse(cli_program *p, uint32_t flags)
{
    const deft_status st = df_trace_parse(&p->diag, p->text, p->size, &p->arena, &p->trace);
    if (st != DEFT_OK) return cli_status(&p->diag, st, p->path);
    p->trace->flags |= flags;
    return CLI_OK;
}

int cli_program_read(cli_program *p, const char *path, uint32_t flags)
{
    *p = (cli_program){ .path = path };
    df_arena_init(&p->arena, &df_mem_system);
    const int code = read_text(&p->arena, path, &p->text, &p->size);
    if (code != CLI_OK) return code;
    p->size = program_end(p->text, p->size);
    return parse(p, flags);
}

int cli_program_parse(cli_program *p, const char *name, const char *text, size_t size,
                      uint32_t flags)
{
    *p = (cli_program){ .path = name, .text = text, .size = size };
    df_arena_init(&p->arena, &df_mem_system);
    return parse(p, flags);
}

void cli_program_finish(cli_program *p)
{
    df_arena_finish(&p->arena);
}

deft_status cli_simplify(cli_program *p, const cli_passes *passes, df_trace **out)
{
    *out = p->trace;
    if (!passes->simplify) return DEFT_OK;
    /* The plan is for this run alone: pairs of views that show one place need no guards. */
    df_places places = { .n = 0 };
    return df_trace_simplify_now(&p->diag, p->trace, passes->simplify, &places, &p->arena, out,
                                 NULL);
}
