/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the files that perf reads (perf.h).
 *
 * perf learns of a jitdump from the kernel. The file is mapped executable once, and `perf record`
 * keeps the event of that mapping, which has the path. So the folder may have any name, and is
 * created for this process alone. It is in TMPDIR, since some machines allow no executable mappings
 * in /tmp. Times are those of CLOCK_MONOTONIC (`perf record -k mono`).
 *
 * Kernels are fused, so an instruction of a kernel belongs to several lines of the program. The
 * line record of a kernel names one line for all: the call that recorded its last operator.
 *
 * References: linux/tools/perf/Documentation/jitdump-specification.txt and jit-interface.txt.
 */
#include "runtime/tiers/perf.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/str.h"
#include "runtime/os.h"
#include "runtime/tiers/perf_file.h"

struct df_perf {
    const df_mem *mem;
    const df_log *log;
    df_perf_kind kind;
    df_fork_lock lock; /* guards the rest */
    int fd;            /* -1: no file */
    int pid;           /* the process that opened it */
    void *marker;      /* jitdump: the executable mapping; NULL: none */
    size_t marker_size;
    uint64_t n_codes;
    bool failed;
    char base[256];
};

/* ---- records of a jitdump ---- */

enum { CODE_LOAD = 0, DEBUG_INFO = 2, CODE_CLOSE = 3 };
#define MAGIC 0x4A695444u /* "JiTD" */

typedef struct header {
    uint32_t magic, version, total_size, elf_machine, pad, pid;
    uint64_t timestamp, flags;
} header;
_Static_assert(sizeof(header) == 40, "perf reads it");

typedef struct record {
    uint32_t id, total_size;
    uint64_t timestamp;
} record;
_Static_assert(sizeof(record) == 16, "perf reads it");

typedef struct load {
    record r;
    uint32_t pid, tid;
    uint64_t vma, address, size, index;
} load;
_Static_assert(sizeof(load) == 56, "perf reads it");

typedef struct debug_info {
    record r;
    uint64_t address, n_entries;
} debug_info;
_Static_assert(sizeof(debug_info) == 32, "perf reads it");

typedef struct line_entry {
    uint64_t address;
    uint32_t line, discriminator;
} line_entry; /* the name of the file follows, with its final 0 */
_Static_assert(sizeof(line_entry) == 16, "perf reads it");

static void put(df_str *s, const void *from, size_t n)
{
    df_str_putn(s, from, n);
}

/* Writes the line of all of c as two entries, since an entry covers the code up to the next one. */
static void put_line(df_str *s, const df_perf_code *c, uint64_t now)
{
    const size_t n_file = strlen(c->file) + 1;
    const uintptr_t at[2] = { (uintptr_t)c->start, (uintptr_t)c->start + c->size - 1 };
    const debug_info d = { .r = { DEBUG_INFO,
                                  (uint32_t)(sizeof d + 2 * (sizeof(line_entry) + n_file)), now },
                           .address = at[0],
                           .n_entries = 2 };
    put(s, &d, sizeof d);
    for (int i = 0; i < 2; i++) {
        const line_entry e = { .address = at[i], .line = c->line };
        put(s, &e, sizeof e);
        put(s, c->file, n_file);
    }
}

static void put_load(df_str *s, df_perf *p, const df_perf_code *c, uint64_t now)
{
    const size_t n_name = strlen(c->name) + 1;
    const load l = { .r = { CODE_LOAD, (uint32_t)(sizeof l + n_name + c->size), now },
                     .pid = (uint32_t)p->pid,
                     .tid = (uint32_t)gettid(),
                     .vma = (uintptr_t)c->start,
                     .address = (uintptr_t)c->start,
                     .size = c->size,
                     .index = p->n_codes };
    put(s, &l, sizeof l);
    put(s, c->name, n_name);
    put(s, c->start, c->size);
}

/* ---- files ---- */

static void fail(df_perf *p, const char *what, const char *path)
{
    p->failed = true;
    df_logf(p->log, error, "DEFT_PERF: %s %s: %s", what, path, strerror(errno));
}

static void close_file(df_perf *p)
{
    if (p->marker) munmap(p->marker, p->marker_size);
    if (p->fd >= 0) close(p->fd);
    p->marker = NULL;
    p->fd = -1;
}

static bool begin_dump(df_perf *p)
{
    const header h = {
        .magic = MAGIC,
        .version = 1,
        .total_size = sizeof h,
#if defined(__aarch64__)
        .elf_machine = EM_AARCH64,
#else
        .elf_machine = EM_X86_64,
#endif
        .pid = (uint32_t)p->pid,
        .timestamp = df_os_now_ns()
    };
    if (!df_perf_write(p->fd, &h, sizeof h)) return false;
    p->marker_size = (size_t)sysconf(_SC_PAGESIZE);
    p->marker = mmap(NULL, p->marker_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, p->fd, 0);
    if (p->marker != MAP_FAILED) return true;
    p->marker = NULL;
    return false;
}

/* Opens the file of this process, unless it is open. Returns false when it cannot be written. */
static bool open_file(df_perf *p)
{
    char path[DF_PERF_PATH];
    if (p->pid != (int)getpid()) { /* a forked child does not write to the file of its parent */
        close_file(p);
        p->failed = false;
        p->n_codes = 0;
        p->pid = (int)getpid();
    }
    if (p->failed || p->fd >= 0) return !p->failed;
    p->fd = p->kind == DF_PERF_MAP ? df_perf_open_map(path) : df_perf_open_dump(p->base, path);
    if (p->fd < 0 || (p->kind == DF_PERF_JITDUMP && !begin_dump(p))) fail(p, "cannot begin", path);
    return !p->failed;
}

/* ---- exported ---- */

df_perf *df_perf_open(const df_mem *mem, const df_log *log, df_perf_kind kind, const char *base)
{
    df_perf *p = df_mem_zalloc(mem, sizeof *p);
    if (!p) return NULL;
    p->mem = mem;
    p->log = log;
    p->kind = kind;
    p->fd = -1;
    p->pid = (int)getpid();
    (void)snprintf(p->base, sizeof p->base, "%s", base);
    if (!df_fork_lock_init(&p->lock)) {
        df_mem_free(mem, p, sizeof *p);
        return NULL;
    }
    return p;
}

void df_perf_close(df_perf **out)
{
    df_perf *const p = *out;
    *out = NULL;
    if (!p) return;
    const record end = { CODE_CLOSE, sizeof end, df_os_now_ns() };
    if (p->marker && p->pid == (int)getpid()) (void)df_perf_write(p->fd, &end, sizeof end);
    close_file(p);
    df_fork_lock_finish(&p->lock);
    df_mem_free(p->mem, p, sizeof *p);
}

void df_perf_add(df_perf *p, const df_perf_code *c)
{
    df_str s;
    df_str_init(&s, p->mem);
    if (df_fork_lock_take(&p->lock)) p->pid = 0; /* a forked child, which opens a new file */
    if (open_file(p)) {
        const uint64_t now = df_os_now_ns();
        if (p->kind == DF_PERF_MAP) {
            df_str_fmt(&s, "%llx %zx %s\n", (unsigned long long)(uintptr_t)c->start, c->size,
                       c->name);
        } else {
            if (c->file) put_line(&s, c, now);
            put_load(&s, p, c, now);
        }
        p->n_codes++;
        if (s.ok && !df_perf_write(p->fd, s.at, s.n)) fail(p, "cannot go on with", "its file");
    }
    df_fork_lock_give(&p->lock);
    df_str_finish(&s);
}
