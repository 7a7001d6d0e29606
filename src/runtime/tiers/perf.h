/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of naming.c: files in which perf of Linux finds the names of code that was
 * compiled in memory.
 *
 *   map       /tmp/perf-PID.map: one line with address, size and name for each code.
 *             `perf report` reads it.
 *   jitdump   jit-PID.dump: also the code itself, the time, and the line in the user's program.
 *             `perf inject --jit` converts it to what `perf annotate` reads.
 *
 * A map has no times. When other code is placed where code was released, all samples there get the
 * later name. A forked child writes files of its own, about code that it compiles itself. perf
 * knows inherited code from the files of the parent.
 */
#ifndef DF_RUNTIME_PERF_H
#define DF_RUNTIME_PERF_H

#include "base/log.h"
#include "base/mem.h"

typedef enum df_perf_kind { DF_PERF_MAP, DF_PERF_JITDUMP } df_perf_kind;

typedef struct df_perf_code {
    const char *name; /* one line */
    const void *start;
    size_t size;      /* bytes */
    const char *file; /* the source file of its call site; NULL: unknown */
    uint32_t line;    /* its line there */
} df_perf_code;

typedef struct df_perf df_perf;

/* Creates a writer. No file is created before the first df_perf_add. base is the folder in which
 * jitdump creates a folder of its own; it is copied. Returns NULL when memory runs out. */
df_perf *df_perf_open(const df_mem *mem, const df_log *log, df_perf_kind kind, const char *base);
/* Closes the file, which is kept for perf. *p may be NULL. */
void df_perf_close(df_perf **p);

/* Writes the name of code, and for jitdump the code, which must exist during the call. When the
 * file cannot be written, this is logged once under the topic "error", and nothing more is written.
 * Any thread. */
void df_perf_add(df_perf *p, const df_perf_code *c);

#endif
