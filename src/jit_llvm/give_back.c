/* SPDX-License-Identifier: Apache-2.0
 *
 * See give_back.h. Opening libLLVM reads 40 MiB of its file: symbols, relocations, constructors.
 * Compiling reads 15 MiB, and leaves up to 20 MiB of the heap free but resident.
 *
 * Pages of code and constants are those of the file. A page that is dropped is read again from the
 * system's cache of the file, and the system itself drops such pages when memory is short. Only
 * segments that cannot be written are dropped, because relocated data are in no file. A debugger's
 * breakpoints are in no file either. So nothing is dropped while the process is traced.
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
    char *start;
    size_t size;
} segment;

enum { MAX_SEGMENTS = 4 };

static segment segments[MAX_SEGMENTS]; /* those of libLLVM that cannot be written */
static int n_segments;

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

/* Whether the loader has changed code. */
static bool has_text_relocations(const struct dl_phdr_info *info)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *const p = &info->dlpi_phdr[i];
        if (p->p_type != PT_DYNAMIC) continue;
        const ElfW(Dyn) *d = (const ElfW(Dyn) *)(info->dlpi_addr + p->p_vaddr);
        for (; d->d_tag != DT_NULL; d++)
            if (d->d_tag == DT_TEXTREL || (d->d_tag == DT_FLAGS && d->d_un.d_val & DF_TEXTREL))
                return true;
    }
    return false;
}

static int find_segments(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    (void)user;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (!is_llvm(info)) return 0;
    for (int i = 0; i < info->dlpi_phnum && !has_text_relocations(info); i++) {
        const ElfW(Phdr) *const p = &info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + p->p_vaddr,
                        first = (start + page - 1) / page * page,
                        end = (start + p->p_filesz) / page * page;
        if (p->p_type == PT_LOAD && !(p->p_flags & PF_W) && first < end &&
            n_segments < MAX_SEGMENTS)
            segments[n_segments++] = (segment){ (char *)first, end - first };
    }
    return 1;
}

__attribute__((constructor)) static void on_load(void)
{
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

void df_llvm_give_back_pages(void)
{
    if (is_traced()) return;
    for (int i = 0; i < n_segments; i++)
        (void)madvise(segments[i].start, segments[i].size, MADV_DONTNEED);
}

void df_llvm_give_back_heap(void)
{
    if (malloc_trim) (void)malloc_trim(0);
}
