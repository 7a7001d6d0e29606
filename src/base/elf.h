/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads sections and symbols of ELF files of 64 bits in memory, in the order of bytes of x86-64 and
 * AArch64. The bytes need not be aligned, and nothing in them is trusted: what would be behind the
 * end is not read.
 *
 * Reference: System V ABI, chapters 4 and 5.
 */
#ifndef DF_BASE_ELF_H
#define DF_BASE_ELF_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct df_elf {
    const char *at; /* its bytes, borrowed */
    size_t n;
    Elf64_Ehdr header;
    uint32_t n_symbols;
    uint64_t symbols;         /* where the symbols are */
    uint64_t strings, n_text; /* where their names are, and how many bytes; the last one is 0 */
} df_elf;

/* Copies n bytes at `from` of the file to `to`. Returns false when the file ends before. */
static inline bool df_elf_read(const df_elf *e, uint64_t from, void *to, size_t n)
{
    if (from > e->n || n > e->n - from) return false;
    memcpy(to, e->at + from, n);
    return true;
}

/* Copies the header of section i. Returns false when there is none. */
static inline bool df_elf_section(const df_elf *e, uint32_t i, Elf64_Shdr *out)
{
    if (i >= e->header.e_shnum) return false;
    return df_elf_read(e, e->header.e_shoff + (uint64_t)i * sizeof *out, out, sizeof *out);
}

/* Copies symbol i. Returns false when there is none. */
static inline bool df_elf_symbol(const df_elf *e, uint32_t i, Elf64_Sym *out)
{
    return i < e->n_symbols &&
           df_elf_read(e, e->symbols + (uint64_t)i * sizeof *out, out, sizeof *out);
}

/* The name of a symbol, in the bytes of the file; "": it has none. */
static inline const char *df_elf_name(const df_elf *e, const Elf64_Sym *s)
{
    return s->st_name < e->n_text ? e->at + e->strings + s->st_name : "";
}

/* Finds the symbols and their names. */
static inline bool df_elf_find_symbols(df_elf *e)
{
    Elf64_Shdr s, names;
    for (uint32_t i = 0; df_elf_section(e, i, &s); i++) {
        if (s.sh_type != SHT_SYMTAB || !df_elf_section(e, s.sh_link, &names)) continue;
        if (names.sh_offset > e->n || names.sh_size > e->n - names.sh_offset) return false;
        if (names.sh_size == 0 || e->at[names.sh_offset + names.sh_size - 1] != '\0') return false;
        e->symbols = s.sh_offset;
        e->n_symbols = (uint32_t)(s.sh_size / sizeof(Elf64_Sym) & UINT32_MAX);
        e->strings = names.sh_offset;
        e->n_text = names.sh_size;
        return true;
    }
    return false;
}

/* Reads the header and finds the symbols. Returns false when the bytes are no such file. */
static inline bool df_elf_open(df_elf *e, const void *at, size_t n)
{
    *e = (df_elf){ .at = at, .n = n };
    if (!df_elf_read(e, 0, &e->header, sizeof e->header)) return false;
    const Elf64_Ehdr *const h = &e->header;
    return memcmp(h->e_ident, ELFMAG, SELFMAG) == 0 && h->e_ident[EI_CLASS] == ELFCLASS64 &&
           h->e_ident[EI_DATA] == ELFDATA2LSB && h->e_shoff <= n &&
           h->e_shentsize == sizeof(Elf64_Shdr) && df_elf_find_symbols(e);
}

#endif
