/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of the journal. Internal header of the journal. One file is open at a time. When it is
 * full, the next one is begun. A file has complete lines only. It is always newly created, with
 * mode 0600, and never through a link. Stored inputs are in one folder beside the files.
 */
#ifndef DF_BASE_JOURNAL_FILE_H
#define DF_BASE_JOURNAL_FILE_H

#include "base/compiler.h"

typedef struct df_journal_file {
    int dir, fd;              /* the folder and the open file; -1 when there is none */
    uint32_t part, max_files; /* part: number of the open file, from 0 */
    uint64_t start_us; /* START in names: microseconds since 1970; fixed once a file was begun */
    uint64_t max_bytes;
    uint64_t bytes; /* size of the open file with the bytes in buf */
    int error;      /* errno of the first failure, after which nothing is written; 0: none */
    size_t n;       /* bytes in buf */
    char buf[65536];
} df_journal_file;

/* Opens the folder, and creates it if it is missing. Returns false on failure, and sets error. */
bool df_journal_file_init(df_journal_file *f, const char *dir, uint64_t max_bytes,
                          uint32_t max_files);
void df_journal_file_finish(df_journal_file *f);

/* Closes the open file and begins the next one, or number 0. Removes the oldest file except number
 * 0 when there are more than max_files. Returns false on failure, and sets error. */
bool df_journal_file_next(df_journal_file *f);
/* For a forked child: closes the file without writing buf, so that the next file is number 0. */
void df_journal_file_forget(df_journal_file *f);
/* Whether the open file has no room for n more bytes. */
bool df_journal_file_full(const df_journal_file *f, size_t n);
/* Appends a complete line. Does nothing without an open file or after a failure. */
void df_journal_file_put(df_journal_file *f, const char *line, size_t n);
/* Writes the bytes in buf. */
void df_journal_file_flush(df_journal_file *f);

/* Opens the folder for stored inputs, and creates it if it is missing. Writes its name to name.
 * Returns a descriptor, which the caller closes, or -1 with errno. Any thread may call this. */
int df_journal_file_folder(const df_journal_file *f, char *name, size_t room);

#endif
