/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to naming.c: files in which Linux's perf finds the names of code that no file holds.
 *
 *   map      /tmp/perf-PID.map: address, size and name, a line each. `perf report` reads it.
 *   jitdump  jit-PID.dump: also the code itself, when it came, and its line in the user's program;
 *            `perf inject --jit` makes of it what `perf annotate` reads.
 *
 * A map says nothing of when: where code was released and other code came to lie, the later name
 * holds for all samples. A forked child writes files of its own, of what it compiles itself; perf
 * knows what it inherited from its parent's.
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
    const char *file; /* where its line is; NULL: not known */
    uint32_t line;
} df_perf_code;

typedef struct df_perf df_perf;

/* Nothing is written before the first code. base: the folder in which jitdump makes its own,
 * copied. NULL without memory. */
df_perf *df_perf_open(const df_mem *mem, const df_log *log, df_perf_kind kind, const char *base);
void df_perf_close(df_perf **p); /* NULL is fine; files stay, perf reads them afterwards */

/* The code must be there. Any thread. A file that cannot be written is told once under the log
 * topic "error", and no more is then written. */
void df_perf_add(df_perf *p, const df_perf_code *c);

#endif
