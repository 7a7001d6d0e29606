/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains a transformer to go on with a text, and lets it write: what gpt.c (one character after the
 * other) and gpt2.c (one word) share. --help prints the options.
 */
#ifndef LANGUAGE_H
#define LANGUAGE_H

#include "transformer.h"

/* A text as numbers of tokens. All pointers are owned and freed by language_main. */
typedef struct language_text {
    int32_t *at; /* [n] */
    int64_t n;
    const char **spelling; /* per row of the table: in letters, or static */
    int64_t n_spellings;   /* that occur */
    char *letters;
    int32_t first; /* what is written begins after it */
} language_text;

typedef struct language_options {
    const char *data, *checkpoint, *resume, *picture; /* data NULL: the text beside this file */
    int64_t steps, batch, length, seed, n_write, memory;
    double rate, temperature;
    transformer_options net;
    bool strict, check;
} language_options;

typedef struct language {
    const char *name;
    language_options defaults;
    /* *n_tokens: rows of the table; 0 when it is to be what the text has. False: cannot be read. */
    bool (*read)(language_text *text, const char *path, int64_t *n_tokens);
} language;

/* A whole file of at most 16 MiB and a 0; NULL: cannot be read. Owned by the caller. */
char *language_file(const char *path, size_t *size);

/* What main returns. */
int language_main(const language *l, int argc, char **argv);

#endif
