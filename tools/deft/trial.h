/* SPDX-License-Identifier: Apache-2.0
 *
 * Does a trace fail? Each is tried in a process of its own, with limits: it may crash, hang or eat
 * memory without harm to who asks.
 */
#ifndef TOOL_TRIAL_H
#define TOOL_TRIAL_H

#include "execute.h"

typedef enum trial_kind {
    TRIAL_PASSES,
    TRIAL_DIFFERS, /* other bits than the interpreter's */
    TRIAL_FAILS,   /* a tier, or the command, failed */
    TRIAL_CRASHES,
    TRIAL_HANGS
} trial_kind;

typedef struct trial_result {
    trial_kind kind;
    char said[200]; /* one line on it */
} trial_result;

/* How traces are tried; one thread, which has made no other. */
typedef struct trial {
    const char *command; /* a shell command that gets the trace's path and fails; NULL: run_check */
    run_options run;
    const df_compiler *compiler;
    uint64_t seconds;
    uint64_t memory; /* bytes of address space; 0: no bound */
    char path[4096]; /* for command; empty before trial_init */
} trial;

/* Makes the file that command gets. An exit code, told on stderr. */
int trial_init(trial *t);
void trial_finish(trial *t);

/* Tries a text. An exit code; CLI_OK whatever *out is. */
int trial_run(const trial *t, const char *text, size_t n, trial_result *out);

#endif
