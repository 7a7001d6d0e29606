/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands of the tool share: exit codes, options, reading a program. The tool is thin: it
 * calls the library's stages one after the other and prints what they made.
 */
#ifndef TOOL_CLI_H
#define TOOL_CLI_H

#include <stdio.h>

#include "fuser/plan.h"
#include "trace/trace.h"

/* docs/cli.md */
enum {
    CLI_OK = 0,
    CLI_FAILED = 1,  /* a check found a difference, or deft itself failed */
    CLI_USAGE = 2,   /* the command line has no meaning */
    CLI_INPUT = 3,   /* the program could not be read, parsed or run */
    CLI_BACKEND = 4, /* what was asked for needs a code generator or a library, and there is none */
};

/* Which passes a program goes through. */
typedef struct cli_passes {
    uint32_t simplify; /* DF_PASS_* */
    bool fuse;
} cli_passes;

/* "cse,fold,algebra,dce,all,none,fuse". false: a word is none of these, told on stderr. */
bool cli_passes_of(const char *list, cli_passes *out);

/* If argument is "--name=value", sets *value and is true. */
bool cli_value(const char *argument, const char *name, const char **value);

/* A whole number in [low, high]; false otherwise, told on stderr. */
bool cli_number(const char *option, const char *text, uint64_t low, uint64_t high, uint64_t *out);

/* Writes "deft: ..." to stderr and returns code. */
int cli_fail(int code, const char *fmt, ...) DF_PRINTF(2, 3);

/* Whether what goes to fd is coloured: it is a terminal, and NO_COLOR is not set or empty. */
bool cli_has_colour(int fd);

/* The exit code for a failed call, its sentence told on stderr. */
int cli_status(const df_diag *d, deft_status st, const char *what);

/* A trace and all its memory. */
typedef struct cli_program {
    const char *path;
    const char *text; /* what was parsed */
    size_t size;
    df_arena arena;
    df_diag diag;
    df_trace *trace;
} cli_program;

/* Reads the trace at path ("-": standard input) up to the first line that starts with "--- ", and
 * sets flags (DF_TRACE_*) in it. An exit code. The program must be finished in any case. */
int cli_program_read(cli_program *p, const char *path, uint32_t flags);
/* The same for a text in memory, which must stay; name: for messages. */
int cli_program_parse(cli_program *p, const char *name, const char *text, size_t size,
                      uint32_t flags);
void cli_program_finish(cli_program *p);

/* The trace after the simplifying passes, in the program's arena; the trace itself when there are
 * none. */
deft_status cli_simplify(cli_program *p, const cli_passes *passes, df_trace **out);

/* The commands; argv[0] is the command's name. Each returns an exit code. */
int cli_opt(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_diff(int argc, char **argv);
int cli_aot(int argc, char **argv);
int cli_dot(int argc, char **argv);
int cli_minimize(int argc, char **argv);
int cli_stats(int argc, char **argv);
int cli_perfetto(int argc, char **argv);
int cli_bundle(int argc, char **argv);
int cli_report(int argc, char **argv);
int cli_cache(int argc, char **argv);
int cli_opcheck(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_ops(int argc, char **argv);
int cli_ops_json(void); /* deft ops --json */
int cli_api(int argc, char **argv);

void cli_doctor_print(FILE *f); /* what deft doctor prints */
void cli_doctor_cuda(FILE *f);  /* of that, what there is of CUDA */

#endif
