/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the relocatable ELF object of an exported program. Memory functions alone are undefined.
 *
 * References: System V ABI, chapters 4 and 5; its AMD64 supplement, sections 3.2 and 4.4.
 */
#include "aot/code.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

/* Sections of the file. */
enum {
    SEC_NONE,
    SEC_TEXT,
    SEC_RODATA,
    SEC_TABLES,
    SEC_BSS,
    SEC_RELA_TEXT,
    SEC_RELA_TABLES,
    SEC_STACK,
    SEC_SYMBOLS,
    SEC_STRINGS,
    SEC_NAMES,
    N_SECTIONS
};

typedef struct file {
    df_str *out;
    Elf64_Shdr section[N_SECTIONS];
    df_str names, strings;
} file;

static void put_section(file *f, uint32_t i, const char *name, uint32_t type, uint64_t flags,
                        const df_str *bytes, uint64_t align)
{
    code_align(f->out, 64, 0);
    f->section[i] = (Elf64_Shdr){ .sh_name = code_put_name(&f->names, name),
                                  .sh_type = type,
                                  .sh_flags = flags,
                                  .sh_offset = f->out->n,
                                  .sh_size = bytes ? bytes->n : 0,
                                  .sh_addralign = align };
    if (bytes) df_str_putn(f->out, bytes->at ? bytes->at : "", bytes->n);
}

static void put_symbol(df_str *symbols, uint32_t name, unsigned char info, uint16_t section,
                       code_function where)
{
    const Elf64_Sym s = { .st_name = name,
                          .st_info = info,
                          .st_shndx = section,
                          .st_value = (Elf64_Addr)where.at,
                          .st_size = (Elf64_Xword)where.size };
    df_str_putn(symbols, (const char *)&s, sizeof s);
}

static void put_symbols(file *f, const code_writer *w, df_str *out)
{
    const unsigned char local = ELF64_ST_INFO(STB_LOCAL, STT_SECTION);
    const unsigned char global = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    const unsigned char outside = ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE);
    const code_function none = { 0, 0 };
    const char *const name = w->p->o->name;
    char other[96];
    put_symbol(out, 0, 0, 0, none);
    put_symbol(out, 0, local, SEC_TEXT, none);
    put_symbol(out, 0, local, SEC_RODATA, none);
    put_symbol(out, 0, local, SEC_TABLES, none);
    put_symbol(out, 0, local, SEC_BSS, none);
    (void)snprintf(other, sizeof other, "%s_workspace_bytes", name);
    put_symbol(out, code_put_name(&f->strings, name), global, SEC_TEXT, w->function[0]);
    put_symbol(out, code_put_name(&f->strings, other), global, SEC_TEXT, w->function[1]);
    put_symbol(out, code_put_name(&f->strings, "memcpy"), outside, SHN_UNDEF, none);
    put_symbol(out, code_put_name(&f->strings, "memmove"), outside, SHN_UNDEF, none);
    put_symbol(out, code_put_name(&f->strings, "memset"), outside, SHN_UNDEF, none);
}

/* Undefined symbols that nothing refers to would still be asked for. They are made weak. */
static void drop_unused(const code_writer *w, df_str *symbols)
{
    bool used[N_SYMBOLS] = { false };
    for (size_t at = 0; at + sizeof(Elf64_Rela) <= w->rela_text.n; at += sizeof(Elf64_Rela)) {
        Elf64_Rela r;
        memcpy(&r, w->rela_text.at + at, sizeof r);
        used[ELF64_R_SYM(r.r_info)] = true;
    }
    for (uint32_t i = SYM_MEMCPY; i < N_SYMBOLS; i++) {
        Elf64_Sym s;
        char *const at = symbols->at + i * sizeof s;
        memcpy(&s, at, sizeof s);
        if (!used[i]) s.st_info = ELF64_ST_INFO(STB_WEAK, STT_NOTYPE);
        memcpy(at, &s, sizeof s);
    }
}

deft_status object_file_write(const code_writer *w, df_str *out)
{
    file f = { .out = out };
    df_str symbols, unused;
    df_str_init(&f.names, w->p->mem);
    df_str_init(&f.strings, w->p->mem);
    df_str_init(&symbols, w->p->mem);
    df_str_init(&unused, w->p->mem);
    Elf64_Ehdr header = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
                                       EV_CURRENT, ELFOSABI_NONE },
                          .e_type = ET_REL,
                          .e_machine = EM_X86_64,
                          .e_version = EV_CURRENT,
                          .e_ehsize = sizeof header,
                          .e_shentsize = sizeof(Elf64_Shdr),
                          .e_shnum = N_SECTIONS,
                          .e_shstrndx = SEC_NAMES };
    const size_t begin = out->n;
    df_str_putn(out, (const char *)&header, sizeof header);
    df_str_putc(&f.names, '\0');
    df_str_putc(&f.strings, '\0');
    put_symbols(&f, w, &symbols);
    if (symbols.ok) drop_unused(w, &symbols);
    const uint64_t code = SHF_ALLOC | SHF_EXECINSTR, tables = SHF_ALLOC | SHF_WRITE;
    put_section(&f, SEC_TEXT, ".text", SHT_PROGBITS, code, &w->text, 64);
    put_section(&f, SEC_RODATA, ".rodata", SHT_PROGBITS, SHF_ALLOC, &w->rodata, 64);
    put_section(&f, SEC_TABLES, ".data.rel.ro", SHT_PROGBITS, tables, &w->tables, 8);
    put_section(&f, SEC_BSS, ".bss", SHT_NOBITS, tables, NULL, 8);
    f.section[SEC_BSS].sh_size = CODE_BSS_BYTES;
    put_section(&f, SEC_RELA_TEXT, ".rela.text", SHT_RELA, SHF_INFO_LINK, &w->rela_text, 8);
    put_section(&f, SEC_RELA_TABLES, ".rela.data.rel.ro", SHT_RELA, SHF_INFO_LINK, &w->rela_tables,
                8);
    put_section(&f, SEC_STACK, ".note.GNU-stack", SHT_PROGBITS, 0, &unused, 1);
    put_section(&f, SEC_SYMBOLS, ".symtab", SHT_SYMTAB, 0, &symbols, 8);
    put_section(&f, SEC_STRINGS, ".strtab", SHT_STRTAB, 0, &f.strings, 1);
    put_section(&f, SEC_NAMES, ".shstrtab", SHT_STRTAB, 0, NULL, 1);
    f.section[SEC_NAMES].sh_size = f.names.n;
    df_str_putn(out, f.names.at ? f.names.at : "", f.names.n);
    for (int i = 0; i < 2; i++) {
        Elf64_Shdr *const s = &f.section[i ? SEC_RELA_TABLES : SEC_RELA_TEXT];
        s->sh_link = SEC_SYMBOLS;
        s->sh_info = i ? SEC_TABLES : SEC_TEXT;
        s->sh_entsize = sizeof(Elf64_Rela);
    }
    f.section[SEC_SYMBOLS].sh_link = SEC_STRINGS;
    f.section[SEC_SYMBOLS].sh_info = SYM_FIRST_GLOBAL;
    f.section[SEC_SYMBOLS].sh_entsize = sizeof(Elf64_Sym);
    code_align(out, 64, 0);
    header.e_shoff = out->n - begin;
    df_str_putn(out, (const char *)f.section, sizeof f.section);
    const bool ok = out->ok && symbols.ok && f.names.ok && f.strings.ok;
    if (ok) memcpy(out->at + begin, &header, sizeof header);
    df_str_finish(&f.names);
    df_str_finish(&f.strings);
    df_str_finish(&symbols);
    df_str_finish(&unused);
    return ok ? DEFT_OK : df_fail_mem(w->d, "export", out->cap);
}
