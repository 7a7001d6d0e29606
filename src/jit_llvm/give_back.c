/* SPDX-License-Identifier: Apache-2.0
 *
 * See give_back.h. Opening libLLVM reads 40 MiB of its file: symbols, relocations, constructors.
 * Compiling reads 10 to 20 MiB, and leaves up to 20 MiB of the heap free but resident.
 *
 * A page that was dropped is mapped again from the system's cache of the file. So only a page that
 * is still the one of the file may be dropped. A page that was written to, by a relocation or for a
 * breakpoint, is a copy that only this process has. /proc/self/pagemap tells the two apart, page by
 * page. Between that look and the call nobody may write. So segments that the process itself can
 * write are left alone, and so is everything while a debugger traces the process.
 *
 * This file has writable globals, because libLLVM is loaded once for the process. They are written
 * in a constructor: later the loader's lock may be held by a thread that is missing in a forked
 * child.
 */
#include "jit_llvm/give_back.h"

#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <llvm-c/Core.h>

/* The part of a segment that consists of whole pages. */
typedef struct segment {
    uintptr_t start;
    size_t n_pages;
} segment;

enum { MAX_SEGMENTS = 4, ENTRIES_AT_ONCE = 512 };

/* Bits of an entry of pagemap (Documentation/admin-guide/mm/pagemap.rst). */
#define PAGE_IS_PRESENT (UINT64_C(1) << 63)
#define PAGE_IS_OF_FILE (UINT64_C(1) << 61)

static segment segments[MAX_SEGMENTS]; /* those of libLLVM that cannot be written */
static int n_segments;
static size_t page_size;

/* Of the GNU C library; NULL elsewhere. */
extern int malloc_trim(size_t pad) __attribute__((weak));

static bool is_llvm(const struct dl_phdr_info *info)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *const p = &info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_LOAD && (uintptr_t)LLVMContextCreate - start < p->p_memsz) return true;
    }
    return false;
}

static int find_segments(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    (void)user;
    if (!is_llvm(info)) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *const p = &info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + p->p_vaddr,
                        first = (start + page_size - 1) / page_size * page_size,
                        end = (start + p->p_filesz) / page_size * page_size;
        if (p->p_type == PT_LOAD && !(p->p_flags & PF_W) && first < end &&
            n_segments < MAX_SEGMENTS)
            segments[n_segments++] = (segment){ first, (end - first) / page_size };
    }
    return 1;
}

__attribute__((constructor)) static void on_load(void)
{
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    (void)dl_iterate_phdr(find_segments, NULL);
}

/* Whether a debugger traces the process. */
static bool is_traced(void)
{
    char text[2048];
    const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) (void)close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *const tracer = strstr(text, "TracerPid:");
    return !tracer || strtol(tracer + strlen("TracerPid:"), NULL, 10) != 0;
}

static bool is_droppable(uint64_t entry)
{
    return (entry & PAGE_IS_PRESENT) && (entry & PAGE_IS_OF_FILE);
}

/* Drops those of n pages whose entries say that they are of the file, run by run. */
static void drop_pages(uintptr_t start, const uint64_t *entries, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && is_droppable(entries[end])) end++;
        if (end > i)
            (void)madvise((void *)(start + i * page_size), (end - i) * page_size, MADV_DONTNEED);
        i = end + 1;
    }
}

static void drop_segment(int pagemap, const segment *s)
{
    uint64_t entries[ENTRIES_AT_ONCE];
    for (size_t i = 0; i < s->n_pages;) {
        const size_t left = s->n_pages - i, n = left < ENTRIES_AT_ONCE ? left : ENTRIES_AT_ONCE;
        const uintptr_t at = s->start + i * page_size;
        const ssize_t size = (ssize_t)(n * sizeof *entries);
        if (pread(pagemap, entries, (size_t)size, (off_t)(at / page_size * sizeof *entries)) !=
            size)
            return;
        drop_pages(at, entries, n);
        i += n;
    }
}

void df_llvm_give_back_pages(void)
{
    if (is_traced()) return;
    const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pagemap < 0) return;
    for (int i = 0; i < n_segments; i++) drop_segment(pagemap, &segments[i]);
    (void)close(pagemap);
}

void df_llvm_give_back_heap(void)
{
    if (malloc_trim) (void)malloc_trim(0);
}
