/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of perf.c: the files that perf looks for. They are in folders where everybody may
 * write. So each is created new, for its owner alone, and never through a link.
 */
#ifndef DF_RUNTIME_PERF_FILE_H
#define DF_RUNTIME_PERF_FILE_H

#include "base/compiler.h"

enum { DF_PERF_PATH = 320 };

/* Opens /tmp/perf-PID.map for appending, and writes its name to path.
 *
 * A file that this process created before, for another runtime or code generator, is continued. A
 * file that an earlier process with this PID and of this user has left is replaced. Any other file
 * is left alone. Returns the descriptor, or -1 with errno. */
int df_perf_open_map(char path[DF_PERF_PATH]);

/* Creates jit-PID.dump in a new folder below `base`, open for reading and writing, and writes its
 * name to path. Returns the descriptor, or -1 with errno. */
int df_perf_open_dump(const char *base, char path[DF_PERF_PATH]);

/* Writes all n bytes. Returns false with errno on failure. */
bool df_perf_write(int fd, const void *from, size_t n);

#endif
