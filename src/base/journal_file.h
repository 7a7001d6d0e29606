/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the journal: its files. One is open at a time; when it is full the next one follows.
 * Whole lines only; each file is created anew, for its owner alone, and never through a link. What
 * is stored beside them stands in one folder of the first one's name.
 */
#ifndef DF_BASE_JOURNAL_FILE_H
#define DF_BASE_JOURNAL_FILE_H

#include "base/compiler.h"

typedef struct df_journal_file {
    int dir, fd; /* -1: none */
    uint32_t part, max_files;
    uint64_t start_us; /* in names: microseconds since 1970; fixed once a file was begun */
    uint64_t max_bytes;
    uint64_t bytes; /* of the open file, with those in buf */
    int error;      /* errno of the first failure: from then on nothing is written */
    size_t n;       /* of buf */
    char buf[65536];
} df_journal_file;

/* The folder; false: error says why. */
bool df_journal_file_init(df_journal_file *f, const char *dir, uint64_t max_bytes,
                          uint32_t max_files);
void df_journal_file_finish(df_journal_file *f);

/* Begins a file, number 0 or the one after the open one, and removes what is too old. */
bool df_journal_file_next(df_journal_file *f);
/* In a forked child: begins with number 0 again. */
void df_journal_file_forget(df_journal_file *f);
/* Whether n more bytes belong into the next file. */
bool df_journal_file_full(const df_journal_file *f, size_t n);
/* A whole line. */
void df_journal_file_put(df_journal_file *f, const char *line, size_t n);
void df_journal_file_flush(df_journal_file *f);

/* The folder beside the first file, made if need be; -1: errno says why. Any thread. */
int df_journal_file_folder(const df_journal_file *f, char *name, size_t room);

#endif
