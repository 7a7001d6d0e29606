/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to perf.c: the files that perf looks for, which have to stand where everybody may write.
 * Each is made anew, for its owner alone, and never through a link.
 */
#ifndef DF_RUNTIME_PERF_FILE_H
#define DF_RUNTIME_PERF_FILE_H

#include "base/compiler.h"

enum { DF_PERF_PATH = 320 };

/* /tmp/perf-PID.map, open for appending. One that this process made before (another runtime, or
 * another code generator) is gone on with; one that an earlier process of that number and of this
 * user left is replaced; any other is left alone. -1: errno says why. path gets its name. */
int df_perf_open_map(char path[DF_PERF_PATH]);

/* jit-PID.dump in a new folder below `base`, open for reading and writing. -1: errno says why. */
int df_perf_open_dump(const char *base, char path[DF_PERF_PATH]);

/* false: errno says why. */
bool df_perf_write(int fd, const void *from, size_t n);

#endif
