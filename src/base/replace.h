/* SPDX-License-Identifier: Apache-2.0
 *
 * Replacing a file by a whole new one: what is written goes to a temporary file beside it, which is
 * then renamed, so that a reader or a crash finds either the old file or the new one. Links are
 * followed: the file that a symbolic link names is replaced, the link stays. A file that exists
 * keeps its permissions, and its owner and group where the process may set them; where it may not,
 * nobody gets a permission that the old file did not give. Only regular files are replaced: what is
 * there and is none (a folder, a device, a pipe) is left alone.
 */
#ifndef DF_BASE_REPLACE_H
#define DF_BASE_REPLACE_H

#include "base/mem.h"

typedef struct df_replace {
    const df_mem *mem;
    int fd;          /* where the new file is written; -1: none is open */
    char *path;      /* the file that is replaced; owned */
    char *temporary; /* owned */
    size_t path_size, temporary_size;
    const char *call;  /* after a failure: the system call whose errno it is, or NULL */
    bool is_irregular; /* the failure: path is there and is no regular file */
} df_replace;

/* Opens the temporary file, as path's name with ".tmp-<process>-<number>" behind it. mode: of a
 * file that did not exist, less the process's mask. Returns false with nothing open: is_irregular
 * or call say why; neither: out of memory. In every case df_replace_finish ends it. */
bool df_replace_begin(df_replace *r, const df_mem *mem, const char *path, unsigned mode);

/* All is written: makes the temporary file the file. false: as above, nothing has changed. */
bool df_replace_commit(df_replace *r);

/* Removes the temporary file of what was not committed. Keeps errno. */
void df_replace_finish(df_replace *r);

#endif
