/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the file with debug information for an address: module.h.
 *
 * A program may be rebuilt while it runs. Its file then has the lines of another program. So the
 * build id of the file must equal the build id in memory.
 *
 * The search of libdwfl for separate debug information may contact servers (debuginfod), so it is
 * not used. Only /usr/lib/debug/.build-id is searched, where Debian and others install such files.
 */
#include "sites_dwfl/module.h"

#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- loaded modules ---- */

static bool has(const struct dl_phdr_info *info, uintptr_t address)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *const p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && p->p_flags & PF_X &&
            address - info->dlpi_addr - p->p_vaddr < p->p_memsz)
            return true;
    }
    return false;
}

/* Copies the build id from n bytes of ELF notes and returns its size; 0 when there is none. */
static size_t id_in(const char *at, size_t n, unsigned char *id)
{
    ElfW(Nhdr) h;
    while (n >= sizeof h) {
        memcpy(&h, at, sizeof h);
        const size_t name = (h.n_namesz + (size_t)3) & ~(size_t)3;
        const size_t desc = (h.n_descsz + (size_t)3) & ~(size_t)3;
        at += sizeof h;
        n -= sizeof h;
        if (name > n || desc > n - name) return 0;
        if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && !memcmp(at, "GNU", 4) &&
            h.n_descsz <= BUILD_ID) {
            memcpy(id, at + name, h.n_descsz);
            return h.n_descsz;
        }
        at += name + desc;
        n -= name + desc;
    }
    return 0;
}

typedef struct question {
    uintptr_t address;
    loaded *out;
} question;

static int look(struct dl_phdr_info *info, size_t size, void *user)
{
    const question *const q = user;
    loaded *const out = q->out;
    if (size >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs) {
        out->adds = info->dlpi_adds;
        out->subs = info->dlpi_subs;
    }
    if (!has(info, q->address)) return 0;
    const char *const path =
        info->dlpi_name && *info->dlpi_name ? info->dlpi_name : "/proc/self/exe";
    if (strlen(path) >= sizeof out->path) return 1;
    strcpy(out->path, path);
    out->bias = info->dlpi_addr;
    for (unsigned i = 0; i < info->dlpi_phnum && !out->n_id; i++) {
        const ElfW(Phdr) *const p = &info->dlpi_phdr[i];
        if (p->p_type == PT_NOTE)
            out->n_id = id_in((const char *)(info->dlpi_addr + p->p_vaddr), p->p_memsz, out->id);
    }
    out->found = true;
    return 1;
}

void df_loaded_find(uintptr_t address, loaded *out)
{
    question q = { address, out };
    out->found = false;
    out->n_id = 0;
    out->adds = out->subs = 0;
    (void)dl_iterate_phdr(look, &q);
}

/* ---- files ---- */

static int open_file(const char *path)
{
    struct stat s;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || (fstat(fd, &s) == 0 && S_ISREG(s.st_mode))) return fd;
    close(fd);
    return -1;
}

static int no_elf(Dwfl_Module *m, void **user, const char *name, Dwarf_Addr base, char **path,
                  Elf **elf)
{
    (void)m, (void)user, (void)name, (void)base, (void)path, (void)elf;
    return -1;
}

static int find_debuginfo(Dwfl_Module *m, void **user, const char *name, Dwarf_Addr base,
                          const char *file, const char *link, GElf_Word crc, char **path)
{
    static const char folder[] = "/usr/lib/debug/.build-id/";
    (void)user, (void)name, (void)base, (void)file, (void)link, (void)crc, (void)path;
    const unsigned char *id;
    GElf_Addr at;
    const int n = dwfl_module_build_id(m, &id, &at);
    if (n < 2 || n > BUILD_ID) return -1;
    char text[sizeof folder + 2 * BUILD_ID + sizeof "/.debug"];
    size_t used = (size_t)snprintf(text, sizeof text, "%s%02x/", folder, id[0]);
    for (int i = 1; i < n; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%02x", id[i]);
    (void)snprintf(text + used, sizeof text - used, ".debug");
    return open_file(text);
}

static const Dwfl_Callbacks callbacks = { .find_elf = no_elf, .find_debuginfo = find_debuginfo };

static bool is_same(Dwfl_Module *m, const loaded *at)
{
    const unsigned char *id;
    GElf_Addr where;
    GElf_Addr bias;
    if (!dwfl_module_getelf(m, &bias)) return false;
    const int n = dwfl_module_build_id(m, &id, &where);
    return n >= 0 && (size_t)n == at->n_id && (n == 0 || memcmp(id, at->id, (size_t)n) == 0);
}

Dwfl *df_module_open(const loaded *at)
{
    int fd = open_file(at->path);
    if (fd < 0) return NULL;
    Dwfl *const dwfl = dwfl_begin(&callbacks);
    Dwfl_Module *m = NULL;
    if (dwfl) {
        dwfl_report_begin(dwfl);
        m = dwfl_report_elf(dwfl, "module", at->path, fd, at->bias, true);
        if (m) fd = -1; /* libdwfl owns it */
        (void)dwfl_report_end(dwfl, NULL, NULL);
    }
    if (fd >= 0) close(fd);
    if (m && is_same(m, at)) return dwfl;
    dwfl_end(dwfl);
    return NULL;
}
