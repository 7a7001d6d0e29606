/* SPDX-License-Identifier: Apache-2.0
 *
 * The least time in which memory moves as many bytes as a row of the table does: a copy of what is
 * both read and written, then a read or a write of the rest. Its threads are those of a pool as
 * deft has one.
 */
#include "table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ref_copy.h"
#include "runtime/pool.h"

enum { LINE = 64 };

struct table_stream {
    df_pool *pool;
    table_bytes bytes; /* rounded down to lines, by thread */
    uint32_t n;        /* threads */
    bool around;       /* the turn that is taken writes around the caches */
    char *from, *to;
};

static size_t share_of(double bytes, uint32_t n)
{
    return (size_t)bytes / n / LINE * LINE;
}

table_stream *table_stream_open(table_bytes bytes, unsigned threads)
{
    table_stream *const s = calloc(1, sizeof *s);
    if (!s || df_pool_create(NULL, &df_mem_system, threads, &s->pool) != DEFT_OK) exit(1);
    s->bytes = bytes;
    s->n = threads;
    s->from = bench_map((size_t)bytes.read + LINE);
    s->to = bench_map((size_t)bytes.written + LINE);
    return s;
}

void table_stream_close(table_stream **s)
{
    if (!*s) return;
    df_pool_destroy(&(*s)->pool);
    munmap((*s)->from, (size_t)(*s)->bytes.read + LINE);
    munmap((*s)->to, (size_t)(*s)->bytes.written + LINE);
    free(*s);
    *s = NULL;
}

static void move_share(void *user, uint32_t i, uint32_t thread)
{
    const table_stream *const s = user;
    const size_t read = share_of(s->bytes.read, s->n), written = share_of(s->bytes.written, s->n);
    const size_t both = read < written ? read : written;
    const char *const from = s->from + i * read;
    char *const to = s->to + i * written;
    (void)thread;
    if (s->around)
        ref_copy_stream(to, from, both);
    else
        memcpy(to, from, both);
    if (both < read) ref_read_all(from + both, read - both);
    if (both < written) memset(to + both, 1, written - both);
}

double table_stream_turn(table_stream *s, bool around, int calls)
{
    s->around = around;
    df_pool_run(s->pool, s->n, move_share, s);
    const double start = bench_now();
    for (int i = 0; i < calls; i++) df_pool_run(s->pool, s->n, move_share, s);
    return (bench_now() - start) / calls;
}
