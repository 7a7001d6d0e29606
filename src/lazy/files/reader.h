/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads of a file at given places, which fail with a sentence. They never map the file, so that a
 * file which becomes shorter is an error and no signal.
 */
#ifndef DF_LAZY_READER_H
#define DF_LAZY_READER_H

#include "base/diag.h"

typedef struct df_reader {
    df_diag *d;                  /* set on failure */
    const char *what, *path;     /* the public call, and the file, for messages; borrowed */
    int fd;                      /* -1: not open */
    const unsigned char *memory; /* the content of a file in memory, for tests; else NULL */
    uint64_t size;               /* bytes of the file when it was opened */
} df_reader;

/* Opens r->path for reading and sets r->size. r->fd must be -1. A pipe, a device or a folder gives
 * DEFT_E_IO; no such file gives DEFT_E_NOT_FOUND. */
deft_status df_reader_open(df_reader *r);
/* Reads the n bytes from offset `from`. A file that has ended gives DEFT_E_FORMAT. */
deft_status df_reader_at(const df_reader *r, void *dst, size_t n, uint64_t from);
void df_reader_close(df_reader *r); /* does nothing when r->fd is -1 */

#endif
