/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces a file by a complete new one. Data is written to a temporary file beside the file, which
 * is then renamed. So a reader, also after a crash, finds either the old file or the new one.
 *
 * Symbolic links are followed: the file that a link names is replaced, and the link remains. The
 * new file gets the permissions of the old one, and its owner and group if the process may set
 * them. If not, nobody gets a permission that the old file did not give. Only regular files are
 * replaced: a folder, a device or a pipe is an error.
 */
#ifndef DF_BASE_REPLACE_H
#define DF_BASE_REPLACE_H

#include "base/mem.h"

typedef struct df_replace {
    const df_mem *mem;
    int fd;          /* the temporary file, to which the caller writes; -1 when it is not open */
    char *path;      /* the file that is replaced, after all links; owned */
    char *temporary; /* path of the temporary file; owned */
    size_t path_size, temporary_size;
    const char *call;  /* after a failure: the system call that set errno, or NULL */
    bool is_irregular; /* after a failure: path exists and is not a regular file */
} df_replace;

/* Opens the temporary file, whose name is that of the file with ".tmp-<process>-<number>" appended.
 * The permissions in mode, less the umask, are for a file that does not exist yet. Returns false
 * on failure. Then is_irregular or call gives the reason; when neither is set, memory ran out. In
 * every case the caller must call df_replace_finish. */
bool df_replace_begin(df_replace *r, const df_mem *mem, const char *path, unsigned mode);

/* Replaces the file by the temporary file, after all data is written. Returns false on failure,
 * with the reason as above; then the file is unchanged. */
bool df_replace_commit(df_replace *r);

/* Closes and removes the temporary file unless it was committed, and frees memory. Keeps errno. */
void df_replace_finish(df_replace *r);

#endif
