/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the file of a shared library before it is loaded (elf_file.h).
 *
 * The dynamic loader maps the ranges that the program headers name, without regard to the length of
 * the file. An access to a page behind its end is a SIGBUS. The loader also trusts the addresses in
 * the dynamic section. So this file compares both with the length of the file and with each other.
 *
 * The section headers contain the same facts once more, and are compared too where the file has
 * them. They come last in a file, so a truncated copy lacks them. The content of sections is not
 * checked.
 *
 * References: ELF gABI chapters 4 and 5; elf(5).
 */
#include "runtime/elf_file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#if UINTPTR_MAX == UINT64_MAX
#define OUR_CLASS ELFCLASS64
#else
#define OUR_CLASS ELFCLASS32
#endif

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define OUR_ORDER ELFDATA2MSB
#else
#define OUR_ORDER ELFDATA2LSB
#endif

#if defined(__x86_64__)
#define OUR_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OUR_MACHINE EM_AARCH64
#else
#define OUR_MACHINE 0 /* any */
#endif

enum { MAX_SEGMENTS = 64, MAX_SECTIONS = 4096, MAX_DYNAMIC = 1024 };

typedef struct elf_file {
    int fd;
    uint64_t size;
    ElfW(Ehdr) head;
    ElfW(Phdr) * segment;
    ElfW(Shdr) * section;
    ElfW(Dyn) * dynamic;
    size_t n_dynamic;
    const char *path;
    char *why;
    size_t why_size;
} elf_file;

static DF_PRINTF(2, 3) bool refuse(const elf_file *f, const char *fmt, ...)
{
    va_list ap;
    const int n = snprintf(f->why, f->why_size, "%s: ", f->path);
    va_start(ap, fmt);
    if (n > 0 && (size_t)n < f->why_size)
        (void)vsnprintf(f->why + n, f->why_size - (size_t)n, fmt, ap);
    va_end(ap);
    return false;
}

static bool read_at(const elf_file *f, void *to, size_t n, uint64_t at)
{
    char *out = to;
    while (n > 0) {
        const ssize_t done = pread(f->fd, out, n, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return refuse(f, "cannot be read at byte %llu", (unsigned long long)at);
        out += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return true;
}

static bool is_inside(uint64_t at, uint64_t n, uint64_t size)
{
    return at <= size && n <= size - at;
}

/* Reads n records of `each` bytes at offset `at` of the file. *out gets new memory, which the
 * caller frees. `what` names the records in a refusal. */
static bool read_table(const elf_file *f, const char *what, uint64_t at, size_t n, size_t each,
                       void **out)
{
    if (!is_inside(at, n * each, f->size))
        return refuse(f, "%s end at byte %llu of %llu: the file is not whole", what,
                      (unsigned long long)(at + n * each), (unsigned long long)f->size);
    *out = df_mem_alloc(&df_mem_system, n * each);
    return *out ? read_at(f, *out, n * each, at) : refuse(f, "no memory to look at it");
}

static bool check_head(elf_file *f)
{
    ElfW(Ehdr) *const h = &f->head;
    if (f->size < sizeof *h)
        return refuse(f, "%llu bytes: no shared library", (unsigned long long)f->size);
    if (!read_at(f, h, sizeof *h, 0)) return false;
    if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 || h->e_ident[EI_VERSION] != EV_CURRENT ||
        h->e_version != EV_CURRENT || h->e_type != ET_DYN || h->e_ehsize != sizeof *h)
        return refuse(f, "no shared library");
    if (h->e_ident[EI_CLASS] != OUR_CLASS || h->e_ident[EI_DATA] != OUR_ORDER ||
        (OUR_MACHINE && h->e_machine != OUR_MACHINE))
        return refuse(f, "a shared library for another machine");
    if (h->e_phnum == 0 || h->e_phnum > MAX_SEGMENTS || h->e_phentsize != sizeof(ElfW(Phdr)) ||
        h->e_shnum > MAX_SECTIONS || (h->e_shnum && h->e_shentsize != sizeof(ElfW(Shdr))))
        return refuse(f, "headers of a shape that shared libraries do not have");
    void *segments = NULL, *sections = NULL;
    const bool ok =
        read_table(f, "program headers", h->e_phoff, h->e_phnum, sizeof(ElfW(Phdr)), &segments) &&
        (!h->e_shnum ||
         read_table(f, "section headers", h->e_shoff, h->e_shnum, sizeof(ElfW(Shdr)), &sections));
    f->segment = segments;
    f->section = sections;
    return ok;
}

/* Returns the segment that contains addresses [at, at + n), or NULL. in_file: all of the range must
 * come from the file, and not be zeros that the loader adds. */
static const ElfW(Phdr) * loaded(const elf_file *f, uint64_t at, uint64_t n, bool in_file)
{
    for (size_t i = 0; i < f->head.e_phnum; i++) {
        const ElfW(Phdr) *const p = &f->segment[i];
        if (p->p_type == PT_LOAD && at >= p->p_vaddr &&
            is_inside(at - p->p_vaddr, n, in_file ? p->p_filesz : p->p_memsz))
            return p;
    }
    return NULL;
}

static bool check_segments(elf_file *f)
{
    uint64_t end = 0;
    const ElfW(Phdr) *dynamic = NULL;
    for (size_t i = 0; i < f->head.e_phnum; i++) {
        const ElfW(Phdr) *const p = &f->segment[i];
        if (p->p_type != PT_GNU_STACK && !is_inside(p->p_offset, p->p_filesz, f->size))
            return refuse(f, "segment %zu ends at byte %llu of %llu: the file is not whole", i,
                          (unsigned long long)(p->p_offset + p->p_filesz),
                          (unsigned long long)f->size);
        if (p->p_type == PT_DYNAMIC) dynamic = p;
        if (p->p_type != PT_LOAD) continue;
        const uint64_t align = p->p_align ? p->p_align : 1, at = p->p_vaddr, n = p->p_memsz;
        if (p->p_filesz > n || (align & (align - 1)) || align > (uint64_t)1 << 30 ||
            ((at ^ p->p_offset) & (align - 1)) || at < end || n > (uint64_t)1 << 40 ||
            at > (uint64_t)1 << 46)
            return refuse(f, "segment %zu does not fit the others", i);
        end = at + n;
    }
    if (!dynamic || dynamic->p_filesz < sizeof(ElfW(Dyn)) ||
        dynamic->p_filesz > sizeof(ElfW(Dyn)) * MAX_DYNAMIC)
        return refuse(f, "no dynamic section: no shared library");
    /* A segment that the loader reads must be within a loaded one, at the same offset of the file.
     */
    for (size_t i = 0; i < f->head.e_phnum; i++) {
        const ElfW(Phdr) *const p = &f->segment[i];
        if (p->p_type != PT_DYNAMIC && p->p_type != PT_GNU_RELRO && p->p_type != PT_TLS &&
            p->p_type != PT_GNU_EH_FRAME && p->p_type != PT_NOTE)
            continue;
        const ElfW(Phdr) *const in = loaded(f, p->p_vaddr, p->p_filesz, true);
        if (p->p_memsz > 0 && (!in || p->p_offset - in->p_offset != p->p_vaddr - in->p_vaddr))
            return refuse(f, "segment %zu does not fit the others", i);
        /* The loader makes this range read-only. It may be padded to a page, and not further. */
        const uint64_t page = in && in->p_align > 1 ? in->p_align : 1;
        if (p->p_type == PT_GNU_RELRO && p->p_memsz > ((p->p_filesz + page - 1) & ~(page - 1)))
            return refuse(f, "segment %zu does not fit the others", i);
    }
    void *table = NULL;
    f->n_dynamic = dynamic->p_filesz / sizeof(ElfW(Dyn));
    const bool ok = read_table(f, "dynamic entries", dynamic->p_offset, f->n_dynamic,
                               sizeof(ElfW(Dyn)), &table);
    f->dynamic = table;
    return ok;
}

/* Each loaded section must be in a segment with its address and its permissions. Each loaded
 * segment must end where its last section ends. */
static bool check_sections(const elf_file *f)
{
    uint64_t end[MAX_SEGMENTS] = { 0 };
    const size_t n = f->head.e_shnum;
    for (size_t i = 0; i < n; i++) {
        const ElfW(Shdr) *const s = &f->section[i];
        const bool in_file = s->sh_type != SHT_NOBITS;
        if (in_file && !is_inside(s->sh_offset, s->sh_size, f->size))
            return refuse(f, "section %zu lies behind the end: the file is not whole", i);
        if (!(s->sh_flags & SHF_ALLOC) || s->sh_size == 0 ||
            (s->sh_type == SHT_NOBITS && (s->sh_flags & SHF_TLS)))
            continue;
        const ElfW(Phdr) *const p = loaded(f, s->sh_addr, s->sh_size, in_file);
        if (!p || (in_file && s->sh_offset - p->p_offset != s->sh_addr - p->p_vaddr) ||
            !(p->p_flags & PF_R) || ((s->sh_flags & SHF_WRITE) && !(p->p_flags & PF_W)) ||
            ((s->sh_flags & SHF_EXECINSTR) && !(p->p_flags & PF_X)))
            return refuse(f, "section %zu is in no segment that fits it", i);
        const uint64_t last = s->sh_addr + s->sh_size;
        if (last > end[p - f->segment]) end[p - f->segment] = last;
    }
    for (size_t i = 0; n > 0 && i < f->head.e_phnum; i++) {
        const ElfW(Phdr) *const p = &f->segment[i];
        if (p->p_type == PT_LOAD && p->p_memsz > 0 && end[i] != p->p_vaddr + p->p_memsz)
            return refuse(f, "segment %zu does not end where its sections do", i);
    }
    return true;
}

static uint64_t entry(const elf_file *f, int64_t tag)
{
    for (size_t i = 0; i < f->n_dynamic && f->dynamic[i].d_tag != DT_NULL; i++)
        if (f->dynamic[i].d_tag == tag) return f->dynamic[i].d_un.d_val;
    return 0;
}

static bool check_dynamic(const elf_file *f)
{
    /* The tag of the address of a table, and the tag of its size. 0: only the first byte is
     * checked. */
    static const int64_t tables[][2] = {
        { DT_STRTAB, DT_STRSZ },
        { DT_SYMTAB, 0 },
        { DT_RELA, DT_RELASZ },
        { DT_REL, DT_RELSZ },
        { DT_JMPREL, DT_PLTRELSZ },
        { DT_INIT_ARRAY, DT_INIT_ARRAYSZ },
        { DT_HASH, 0 },
        { DT_FINI_ARRAY, DT_FINI_ARRAYSZ },
        { DT_GNU_HASH, 0 },
        { DT_INIT, 0 },
        { DT_VERSYM, 0 },
        { DT_FINI, 0 },
        { DT_VERNEED, 0 },
        { DT_VERDEF, 0 },
    };
    bool ends = false;
    for (size_t i = 0; i < f->n_dynamic; i++) ends |= f->dynamic[i].d_tag == DT_NULL;
    const uint64_t n_text = entry(f, DT_STRSZ);
    if (!ends || !entry(f, DT_STRTAB) || !entry(f, DT_SYMTAB) || n_text == 0)
        return refuse(f, "its dynamic section lacks what every shared library has");
    for (size_t i = 0; i < DF_LEN(tables); i++) {
        const uint64_t at = entry(f, tables[i][0]);
        const uint64_t n = tables[i][1] ? entry(f, tables[i][1]) : 1;
        if (at && n && !loaded(f, at, n, true))
            return refuse(f, "a table of its dynamic section lies outside its segments");
    }
    for (size_t i = 0; i < f->n_dynamic && f->dynamic[i].d_tag != DT_NULL; i++) {
        const int64_t tag = f->dynamic[i].d_tag;
        const bool is_text =
            tag == DT_NEEDED || tag == DT_SONAME || tag == DT_RPATH || tag == DT_RUNPATH;
        if (is_text && f->dynamic[i].d_un.d_val >= n_text)
            return refuse(f, "a name of its dynamic section lies outside its text");
    }
    return true;
}

bool df_elf_file_check(const char *path, char *why, size_t size)
{
    struct stat info;
    elf_file f = { .path = path, .why = why, .why_size = size };
    /* With O_NONBLOCK, opening a pipe without a writer does not block. */
    do f.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (f.fd < 0 && errno == EINTR);
    if (f.fd < 0) return refuse(&f, "%s", strerror(errno));
    bool ok = fstat(f.fd, &info) == 0 && S_ISREG(info.st_mode);
    if (!ok) (void)refuse(&f, "not a regular file");
    f.size = ok ? (uint64_t)info.st_size : 0;
    ok = ok && check_head(&f) && check_segments(&f) && check_sections(&f) && check_dynamic(&f);
    const size_t n_segments = f.head.e_phnum * sizeof *f.segment,
                 n_sections = f.head.e_shnum * sizeof *f.section,
                 n_dynamic = f.n_dynamic * sizeof *f.dynamic;
    df_mem_free(&df_mem_system, f.segment, n_segments);
    df_mem_free(&df_mem_system, f.section, n_sections);
    df_mem_free(&df_mem_system, f.dynamic, n_dynamic);
    close(f.fd);
    return ok;
}
