/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a file that takes the place of another one when it is complete (base/replace.h), with
 * sentences for what fails.
 */
#ifndef DF_LAZY_WRITER_H
#define DF_LAZY_WRITER_H

#include "base/diag.h"
#include "base/replace.h"
#include "lazy/files/zip.h"

typedef struct df_writer {
    df_diag *d;              /* set on failure */
    const char *what, *path; /* the public call, and the file, for messages; borrowed */
    df_replace file;
    uint64_t at; /* bytes written so far */
    df_crc *crc; /* gets all bytes that are written; NULL: nobody asks */
} df_writer;

/* Opens the temporary file. d, what and path are set; the other members are zero. The caller ends
 * the writer with df_writer_finish, after a failure too. */
deft_status df_writer_begin(df_writer *w, const df_mem *mem);
deft_status df_writer_put(df_writer *w, const void *data, size_t n);
/* Writes again the n bytes at offset `at`, which were written before. */
deft_status df_writer_patch(df_writer *w, const void *data, size_t n, uint64_t at);
deft_status df_writer_commit(df_writer *w); /* the file takes its place */
void df_writer_finish(df_writer *w);

#endif
