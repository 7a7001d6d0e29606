/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes an exported program as a shared library for x86-64 Linux, without a linker. Offsets in the
 * file are addresses, so that each segment begins on a page of both:
 *
 *   read           headers, note, .hash, .dynsym, .dynstr, .rela.dyn, .rodata
 *   read, execute  .text, then jumps to the memory functions
 *   read, write    .data.rel.ro, .dynamic, .got, all read-only once they are relocated; then .bss
 *
 * References: System V ABI, chapter 5; its AMD64 supplement, sections 4.4 and 5.2.
 */
#include "aot/code.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

#include "runtime/exported.h"

enum { PAGE = 4096, JUMP_BYTES = 8, N_MEMORY = 3, N_DYNAMIC = 13, N_SEGMENTS = 7 };

/* Sections of the file, in the order of their places. */
enum {
    PART_NONE,
    PART_NOTE,
    PART_HASH,
    PART_SYMBOLS,
    PART_STRINGS,
    PART_RELA,
    PART_RODATA,
    PART_TEXT,
    PART_TABLES,
    PART_DYNAMIC,
    PART_GOT,
    PART_BSS,
    PART_NAMES,
    N_PARTS
};

typedef struct shared_file {
    const code_writer *w;
    df_str *out;
    Elf64_Shdr part[N_PARTS];
    df_str names, strings;
    uint64_t note; /* where the contents of the note begin */
    uint32_t soname;
} shared_file;

static void begin_part(shared_file *f, uint32_t i, const char *name, uint32_t type, uint64_t flags,
                       uint64_t align)
{
    code_align(f->out, align, 0);
    f->part[i] = (Elf64_Shdr){ .sh_name = code_put_name(&f->names, name),
                               .sh_type = type,
                               .sh_flags = flags,
                               .sh_addr = flags & SHF_ALLOC ? f->out->n : 0,
                               .sh_offset = f->out->n,
                               .sh_addralign = align };
}

static void end_part(shared_file *f, uint32_t i)
{
    f->part[i].sh_size = f->out->n - f->part[i].sh_offset;
}

/* The address of a symbol of code.h that is a section. */
static uint64_t section_address(const shared_file *f, uint32_t symbol)
{
    static const uint8_t parts[] = { [SYM_TEXT] = PART_TEXT,
                                     [SYM_RODATA] = PART_RODATA,
                                     [SYM_TABLES] = PART_TABLES,
                                     [SYM_BSS] = PART_BSS };
    df_assert(symbol >= SYM_TEXT && symbol <= SYM_BSS);
    return f->part[parts[symbol]].sh_addr;
}

/* ---- the note ---- */

static void put_note(shared_file *f)
{
    df_str signature;
    df_str_init(&signature, f->w->p->mem);
    signature_write(f->w->p, &signature);
    const size_t n_levels = strlen(f->w->levels);
    deft_exported_note note = { .version = DEFT_EXPORTED_FORMAT,
                                .n_signature = (uint32_t)signature.n,
                                .n_levels = (uint32_t)n_levels };
    /* The contents begin 20 bytes later, at a multiple of 8. */
    while (f->out->ok && f->out->n % 8 != 4) df_str_putc(f->out, '\0');
    begin_part(f, PART_NOTE, ".note.deft", SHT_NOTE, SHF_ALLOC, 4);
    code_put_word(f->out, 5, 4);
    code_put_word(f->out, (int64_t)(sizeof note + signature.n + n_levels), 4);
    code_put_word(f->out, DEFT_EXPORTED_NOTE, 4);
    df_str_putn(f->out, "deft\0\0\0", 8);
    f->note = f->out->n;
    df_str_putn(f->out, (const char *)&note, sizeof note);
    df_str_putn(f->out, signature.at ? signature.at : "", signature.n);
    df_str_putn(f->out, f->w->levels, n_levels);
    code_align(f->out, 4, 0);
    end_part(f, PART_NOTE);
    f->out->ok &= signature.ok;
    df_str_finish(&signature);
}

/* Writes the size of the file and its sum into the note. */
static void seal_note(shared_file *f)
{
    char *const at = f->out->at + f->note;
    deft_exported_note note;
    uint64_t word;
    memcpy(&note, at, sizeof note);
    note.file_bytes = f->out->n;
    memcpy(at, &note, sizeof note);
    for (size_t i = 0; i < f->out->n; i += sizeof word) {
        memcpy(&word, f->out->at + i, sizeof word);
        if (i != f->note + offsetof(deft_exported_note, check))
            note.check = deft_exported_add(note.check, word);
    }
    memcpy(at, &note, sizeof note);
}

/* ---- symbols ---- */

static void shared_put_symbol(shared_file *f, const char *name, uint16_t section, uint64_t value,
                              uint64_t size)
{
    const Elf64_Sym s = {
        .st_name = *name ? code_put_name(&f->strings, name) : 0,
        .st_info = *name ? ELF64_ST_INFO(STB_GLOBAL, section ? STT_FUNC : STT_NOTYPE) : 0,
        .st_shndx = section,
        .st_value = value,
        .st_size = size
    };
    df_str_putn(f->out, (const char *)&s, sizeof s);
}

/* The symbols: none, the memory functions, the exported functions. Their places are not known yet:
 * those of functions are offsets in the text. */
static void shared_put_symbols(shared_file *f)
{
    static const char *const memory[N_MEMORY] = { "memcpy", "memmove", "memset" };
    const char *const name = f->w->p->o->name;
    char other[96], file[96];
    (void)snprintf(other, sizeof other, "%s_workspace_bytes", name);
    (void)snprintf(file, sizeof file, "%s.so", name);
    const char *const exported[CODE_FUNCTIONS] = { name, other, CODE_CALL, CODE_CALL_WORKSPACE };
    const uint32_t n = 1 + N_MEMORY + CODE_FUNCTIONS;
    begin_part(f, PART_HASH, ".hash", SHT_HASH, SHF_ALLOC, 8);
    code_put_word(f->out, 1, 4); /* one bucket, which has all symbols */
    code_put_word(f->out, n, 4);
    code_put_word(f->out, n - 1, 4);
    for (uint32_t i = 0; i < n; i++) code_put_word(f->out, i > 0 ? i - 1 : 0, 4);
    end_part(f, PART_HASH);
    begin_part(f, PART_SYMBOLS, ".dynsym", SHT_DYNSYM, SHF_ALLOC, 8);
    shared_put_symbol(f, "", 0, 0, 0);
    for (uint32_t i = 0; i < N_MEMORY; i++) shared_put_symbol(f, memory[i], 0, 0, 0);
    for (uint32_t i = 0; i < CODE_FUNCTIONS; i++)
        shared_put_symbol(f, exported[i], PART_TEXT, (uint64_t)f->w->function[i].at,
                          (uint64_t)f->w->function[i].size);
    end_part(f, PART_SYMBOLS);
    f->soname = code_put_name(&f->strings, file);
    begin_part(f, PART_STRINGS, ".dynstr", SHT_STRTAB, SHF_ALLOC, 1);
    df_str_putn(f->out, f->strings.at ? f->strings.at : "", f->strings.n);
    end_part(f, PART_STRINGS);
}

/* Turns offsets in the text into addresses. */
static void place_symbols(const shared_file *f)
{
    for (uint32_t i = 1 + N_MEMORY; i < 1 + N_MEMORY + CODE_FUNCTIONS; i++) {
        char *const at = f->out->at + f->part[PART_SYMBOLS].sh_offset + i * sizeof(Elf64_Sym);
        Elf64_Sym s;
        memcpy(&s, at, sizeof s);
        s.st_value += f->part[PART_TEXT].sh_addr;
        memcpy(at, &s, sizeof s);
    }
}

/* ---- code and tables ---- */

static void shared_put_text(shared_file *f)
{
    code_align(f->out, PAGE, 0);
    begin_part(f, PART_TEXT, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 64);
    df_str_putn(f->out, f->w->text.at, f->w->text.n);
    code_align(f->out, JUMP_BYTES, (char)0xCC);
    for (uint32_t i = 0; i < N_MEMORY; i++)
        df_str_putn(f->out, "\xFF\x25\0\0\0\0\xCC\xCC", JUMP_BYTES); /* jmp [rip + n] */
    end_part(f, PART_TEXT);
}

static void put_tables(shared_file *f)
{
    const uint64_t flags = SHF_ALLOC | SHF_WRITE;
    code_align(f->out, PAGE, 0);
    begin_part(f, PART_TABLES, ".data.rel.ro", SHT_PROGBITS, flags, 64);
    df_str_putn(f->out, f->w->tables.at, f->w->tables.n);
    end_part(f, PART_TABLES);
    begin_part(f, PART_DYNAMIC, ".dynamic", SHT_DYNAMIC, flags, 8);
    for (uint32_t i = 0; i < N_DYNAMIC * sizeof(Elf64_Dyn); i++) df_str_putc(f->out, '\0');
    end_part(f, PART_DYNAMIC);
    begin_part(f, PART_GOT, ".got", SHT_PROGBITS, flags, 8);
    for (uint32_t i = 0; i < N_MEMORY; i++) code_put_word(f->out, 0, 8);
    end_part(f, PART_GOT);
    code_align(f->out, PAGE, 0);
    begin_part(f, PART_BSS, ".bss", SHT_NOBITS, flags, 8);
    f->part[PART_BSS].sh_size = CODE_BSS_BYTES;
}

static void put_distance(const shared_file *f, uint64_t at, uint64_t target)
{
    const int32_t distance = (int32_t)((int64_t)target - (int64_t)at);
    memcpy(f->out->at + at, &distance, sizeof distance);
}

/* Where the jump to memory function i is. */
static uint64_t jump_at(const shared_file *f, uint32_t i)
{
    const Elf64_Shdr *const text = &f->part[PART_TEXT];
    return text->sh_addr + text->sh_size - (uint64_t)(N_MEMORY - i) * JUMP_BYTES;
}

/* Resolves what the text refers to. */
static void relocate_text(shared_file *f)
{
    const df_str *const rela = &f->w->rela_text;
    for (size_t k = 0; k + sizeof(Elf64_Rela) <= rela->n; k += sizeof(Elf64_Rela)) {
        Elf64_Rela r;
        memcpy(&r, rela->at + k, sizeof r);
        const uint32_t symbol = (uint32_t)ELF64_R_SYM(r.r_info);
        const uint64_t at = f->part[PART_TEXT].sh_addr + r.r_offset;
        const uint64_t to =
            symbol >= SYM_MEMCPY ? jump_at(f, symbol - SYM_MEMCPY) : section_address(f, symbol);
        put_distance(f, at, to + (uint64_t)r.r_addend);
    }
    for (uint32_t i = 0; i < N_MEMORY; i++)
        put_distance(f, jump_at(f, i) + 2, f->part[PART_GOT].sh_addr + 8 * (uint64_t)i - 4);
}

/* The addresses that the dynamic linker writes: those of the tables, then the memory functions. */
static void write_rela(const shared_file *f)
{
    const df_str *const rela = &f->w->rela_tables;
    char *at = f->out->at + f->part[PART_RELA].sh_offset;
    for (size_t k = 0; k + sizeof(Elf64_Rela) <= rela->n; k += sizeof(Elf64_Rela)) {
        Elf64_Rela r;
        memcpy(&r, rela->at + k, sizeof r);
        r.r_addend += (Elf64_Sxword)section_address(f, (uint32_t)ELF64_R_SYM(r.r_info));
        r.r_offset += f->part[PART_TABLES].sh_addr;
        r.r_info = ELF64_R_INFO(0, R_X86_64_RELATIVE);
        memcpy(at, &r, sizeof r);
        at += sizeof r;
    }
    for (uint32_t i = 0; i < N_MEMORY; i++) {
        const Elf64_Rela r = { .r_offset = f->part[PART_GOT].sh_addr + 8 * (uint64_t)i,
                               .r_info = ELF64_R_INFO(1 + i, R_X86_64_GLOB_DAT) };
        memcpy(at, &r, sizeof r);
        at += sizeof r;
    }
}

static void write_dynamic(const shared_file *f)
{
    const uint64_t n_tables = f->w->rela_tables.n / sizeof(Elf64_Rela);
    const Elf64_Dyn all[N_DYNAMIC] = { { DT_HASH, { f->part[PART_HASH].sh_addr } },
                                       { DT_STRTAB, { f->part[PART_STRINGS].sh_addr } },
                                       { DT_SYMTAB, { f->part[PART_SYMBOLS].sh_addr } },
                                       { DT_STRSZ, { f->part[PART_STRINGS].sh_size } },
                                       { DT_SYMENT, { sizeof(Elf64_Sym) } },
                                       { DT_RELA, { f->part[PART_RELA].sh_addr } },
                                       { DT_RELASZ, { f->part[PART_RELA].sh_size } },
                                       { DT_RELAENT, { sizeof(Elf64_Rela) } },
                                       { DT_RELACOUNT, { n_tables } },
                                       { DT_SONAME, { f->soname } },
                                       { DT_FLAGS, { DF_BIND_NOW } },
                                       { DT_FLAGS_1, { DF_1_NOW } },
                                       { DT_NULL, { 0 } } };
    memcpy(f->out->at + f->part[PART_DYNAMIC].sh_offset, all, sizeof all);
}

/* ---- headers ---- */

static Elf64_Phdr segment(uint32_t type, uint32_t flags, uint64_t begin, uint64_t end,
                          uint64_t memory, uint64_t align)
{
    return (Elf64_Phdr){ .p_type = type,
                         .p_flags = flags,
                         .p_offset = begin,
                         .p_vaddr = begin,
                         .p_paddr = begin,
                         .p_filesz = end - begin,
                         .p_memsz = memory - begin,
                         .p_align = align };
}

static uint64_t part_end(const shared_file *f, uint32_t i)
{
    return f->part[i].sh_offset + f->part[i].sh_size;
}

static void write_headers(const shared_file *f, uint64_t sections)
{
    const uint64_t code = f->part[PART_TEXT].sh_offset, data = f->part[PART_TABLES].sh_offset;
    const uint64_t bss = f->part[PART_BSS].sh_addr, note = f->part[PART_NOTE].sh_offset;
    const uint64_t dynamic = f->part[PART_DYNAMIC].sh_offset;
    const uint64_t constants = part_end(f, PART_RODATA), text = part_end(f, PART_TEXT);
    const Elf64_Phdr segments[N_SEGMENTS] = {
        segment(PT_LOAD, PF_R, 0, constants, constants, PAGE),
        segment(PT_LOAD, PF_R | PF_X, code, text, text, PAGE),
        segment(PT_LOAD, PF_R | PF_W, data, bss, bss + CODE_BSS_BYTES, PAGE),
        segment(PT_DYNAMIC, PF_R | PF_W, dynamic, part_end(f, PART_DYNAMIC),
                part_end(f, PART_DYNAMIC), 8),
        segment(PT_NOTE, PF_R, note, part_end(f, PART_NOTE), part_end(f, PART_NOTE), 4),
        segment(PT_GNU_RELRO, PF_R, data, bss, bss, 1),
        segment(PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 16)
    };
    const Elf64_Ehdr header = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
                                             ELFDATA2LSB, EV_CURRENT, ELFOSABI_NONE },
                                .e_type = ET_DYN,
                                .e_machine = EM_X86_64,
                                .e_version = EV_CURRENT,
                                .e_phoff = sizeof header,
                                .e_shoff = sections,
                                .e_ehsize = sizeof header,
                                .e_phentsize = sizeof(Elf64_Phdr),
                                .e_phnum = N_SEGMENTS,
                                .e_shentsize = sizeof(Elf64_Shdr),
                                .e_shnum = N_PARTS,
                                .e_shstrndx = PART_NAMES };
    memcpy(f->out->at, &header, sizeof header);
    memcpy(f->out->at + sizeof header, segments, sizeof segments);
}

static void link_parts(shared_file *f)
{
    f->part[PART_HASH].sh_link = PART_SYMBOLS;
    f->part[PART_SYMBOLS].sh_link = PART_STRINGS;
    f->part[PART_SYMBOLS].sh_info = 1; /* the first that is global */
    f->part[PART_SYMBOLS].sh_entsize = sizeof(Elf64_Sym);
    f->part[PART_RELA].sh_link = PART_SYMBOLS;
    f->part[PART_RELA].sh_entsize = sizeof(Elf64_Rela);
    f->part[PART_DYNAMIC].sh_link = PART_STRINGS;
    f->part[PART_DYNAMIC].sh_entsize = sizeof(Elf64_Dyn);
}

/* ---- the file ---- */

/* Places all parts, some of which are still zeros. Returns where the headers of sections are. */
static uint64_t put_parts(shared_file *f)
{
    const size_t n_rela = f->w->rela_tables.n + N_MEMORY * sizeof(Elf64_Rela);
    for (size_t i = 0; i < sizeof(Elf64_Ehdr) + N_SEGMENTS * sizeof(Elf64_Phdr); i++)
        df_str_putc(f->out, '\0');
    df_str_putc(&f->names, '\0');
    df_str_putc(&f->strings, '\0');
    put_note(f);
    shared_put_symbols(f);
    begin_part(f, PART_RELA, ".rela.dyn", SHT_RELA, SHF_ALLOC, 8);
    for (size_t i = 0; i < n_rela; i++) df_str_putc(f->out, '\0');
    end_part(f, PART_RELA);
    begin_part(f, PART_RODATA, ".rodata", SHT_PROGBITS, SHF_ALLOC, 64);
    df_str_putn(f->out, f->w->rodata.at ? f->w->rodata.at : "", f->w->rodata.n);
    end_part(f, PART_RODATA);
    shared_put_text(f);
    put_tables(f);
    begin_part(f, PART_NAMES, ".shstrtab", SHT_STRTAB, 0, 1);
    df_str_putn(f->out, f->names.at ? f->names.at : "", f->names.n);
    end_part(f, PART_NAMES);
    code_align(f->out, 8, 0);
    const uint64_t sections = f->out->n;
    link_parts(f);
    df_str_putn(f->out, (const char *)f->part, sizeof f->part);
    return sections;
}

deft_status shared_file_write(const code_writer *w, df_str *out)
{
    shared_file f = { .w = w, .out = out };
    df_assert(out->n == 0);
    df_str_init(&f.names, w->p->mem);
    df_str_init(&f.strings, w->p->mem);
    const uint64_t sections = put_parts(&f);
    const bool ok = out->ok && f.names.ok && f.strings.ok;
    if (ok) {
        place_symbols(&f);
        relocate_text(&f);
        write_rela(&f);
        write_dynamic(&f);
        write_headers(&f, sections);
        seal_note(&f);
    }
    df_str_finish(&f.names);
    df_str_finish(&f.strings);
    return ok ? DEFT_OK : df_fail_mem(w->d, "export", out->cap);
}
