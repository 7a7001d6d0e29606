/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that appears whole or not at all (base/replace.h); a new one has mode 0600. What is there
 * and no regular file (a device, a pipe, a link) is written to as it is.
 */
#ifndef TOOL_OUT_H
#define TOOL_OUT_H

#include <stdbool.h>
#include <stdio.h>

#include "base/replace.h"

typedef struct out_file {
    FILE *f;
    const char *path; /* NULL: standard output */
    df_replace file;  /* when is_replaced */
    bool is_replaced;
} out_file;

/* path: NULL or "-" for standard output; it must outlive the file. A CLI_* code, told on stderr. */
int out_open(out_file *o, const char *path);
/* Moves it to its place, or removes it when is_whole is false. A CLI_* code, told on stderr. */
int out_close(out_file *o, bool is_whole);

/* What follows a command that turns a log into a file: LOG [-o FILE | --out=FILE]. *out: NULL
 * without one. A CLI_* code, told on stderr. */
int out_arguments(int argc, char **argv, const char **log, const char **out);

#endif
