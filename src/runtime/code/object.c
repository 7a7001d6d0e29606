/* SPDX-License-Identifier: Apache-2.0
 *
 * Links ELF objects to the objects of object.h. What differs between kinds of machines is in
 * object_machine.h.
 *
 * The sections of a kernel are those with its functions, and all that their relocations reach. They
 * are laid out one after the other: code, constants, stubs, slots. Every relocation must follow
 * from two places in the body, so it is resolved here, once.
 */
#include "runtime/code/object.h"

#include <string.h>

#include "base/elf.h"
#include "runtime/code/callees.h"
#include "runtime/code/object_machine.h"

bool df_object_is_offered(void)
{
    return df_object_machine() != 0;
}

/* ---- the parts of a kernel ---- */

enum { MAX_SECTIONS = 64 }; /* sections that one kernel may need */

/* A section that belongs to the kernel. */
typedef struct part {
    uint32_t section;
    Elf64_Shdr header;
    uint64_t at; /* in the body */
} part;

typedef struct linker {
    df_diag *d;
    df_elf e;
    part parts[MAX_SECTIONS];
    uint32_t n_parts;
    uint32_t calls[DF_N_CALLEES], n_calls; /* functions outside, in the order of their slots */
    uint64_t stubs, slots, body_size;      /* places in the body */
    uint32_t slot_reads;
} linker;

static deft_status object_refuse(const linker *l, const char *what)
{
    return df_fail(l->d, DEFT_E_COMPILE, "object: %s", what);
}

static const part *find_part(const linker *l, uint32_t section)
{
    for (uint32_t i = 0; i < l->n_parts; i++)
        if (l->parts[i].section == section) return &l->parts[i];
    return NULL;
}

static deft_status add_part(linker *l, uint32_t section)
{
    Elf64_Shdr s;
    if (find_part(l, section)) return DEFT_OK;
    if (!df_elf_section(&l->e, section, &s)) return object_refuse(l, "a section is missing");
    if (!(s.sh_flags & SHF_ALLOC) || (s.sh_flags & (SHF_WRITE | SHF_TLS)) ||
        s.sh_type != SHT_PROGBITS)
        return object_refuse(l, "a section is neither code nor constants");
    if (s.sh_offset > l->e.n || s.sh_size > l->e.n - s.sh_offset)
        return object_refuse(l, "a section ends behind the file");
    if (s.sh_addralign > DF_OBJECT_ALIGN || (s.sh_addralign & (s.sh_addralign - 1)))
        return object_refuse(l, "a section has an alignment that is not offered");
    if (l->n_parts == MAX_SECTIONS) return object_refuse(l, "a kernel has too many sections");
    l->parts[l->n_parts++] = (part){ .section = section, .header = s };
    return DEFT_OK;
}

/* The place of a function outside in l->calls; adds it. */
static deft_status add_call(linker *l, const char *name, uint32_t *out)
{
    const uint32_t callee = df_callee_find(name);
    if (callee == DF_N_CALLEES)
        return df_fail(l->d, DEFT_E_COMPILE, "object: code may not call '%.60s'", name);
    for (*out = 0; *out < l->n_calls; ++*out)
        if (l->calls[*out] == callee) return DEFT_OK;
    l->calls[l->n_calls++] = callee;
    return DEFT_OK;
}

/* Calls `take` with each relocation of part i. */
typedef deft_status (*take_relocation)(linker *l, uint32_t i, const Elf64_Rela *r,
                                       const Elf64_Sym *s, void *user);

static deft_status each_relocation(linker *l, uint32_t i, take_relocation take, void *user)
{
    Elf64_Shdr s;
    for (uint32_t k = 0; df_elf_section(&l->e, k, &s); k++) {
        if (s.sh_info != l->parts[i].section || !(s.sh_type == SHT_RELA || s.sh_type == SHT_REL))
            continue;
        if (s.sh_type == SHT_REL) return object_refuse(l, "relocations have no addends");
        for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= s.sh_size; at += sizeof(Elf64_Rela)) {
            Elf64_Rela r;
            Elf64_Sym symbol;
            if (s.sh_offset > l->e.n || !df_elf_read(&l->e, s.sh_offset + at, &r, sizeof r) ||
                !df_elf_symbol(&l->e, (uint32_t)ELF64_R_SYM(r.r_info), &symbol))
                return object_refuse(l, "a relocation ends behind the file");
            const deft_status st = take(l, i, &r, &symbol, user);
            if (st != DEFT_OK) return st;
        }
    }
    return DEFT_OK;
}

static deft_status object_collect(linker *l, uint32_t i, const Elf64_Rela *r, const Elf64_Sym *s,
                                  void *user)
{
    uint32_t ignored;
    (void)i;
    (void)r;
    (void)user;
    if (s->st_shndx == SHN_UNDEF) return add_call(l, df_elf_name(&l->e, s), &ignored);
    if (s->st_shndx >= SHN_LORESERVE) return object_refuse(l, "a symbol is in no section");
    return add_part(l, s->st_shndx);
}

/* Finds the function `name`, and the part of its section, which is added. */
static deft_status find_piece(linker *l, const char *name, uint32_t *section, uint64_t *at,
                              uint32_t *size)
{
    Elf64_Sym s;
    for (uint32_t i = 0; df_elf_symbol(&l->e, i, &s); i++) {
        if (ELF64_ST_TYPE(s.st_info) != STT_FUNC || strcmp(df_elf_name(&l->e, &s), name) != 0)
            continue;
        if (s.st_shndx == SHN_UNDEF || s.st_shndx >= SHN_LORESERVE) break;
        const deft_status st = add_part(l, s.st_shndx);
        if (st != DEFT_OK) return st;
        const uint64_t all = find_part(l, s.st_shndx)->header.sh_size;
        if (s.st_value > all || s.st_size > all - s.st_value || s.st_size == 0) break;
        *section = s.st_shndx;
        *at = s.st_value;
        *size = (uint32_t)s.st_size;
        return DEFT_OK;
    }
    return df_fail(l->d, DEFT_E_COMPILE, "object: there is no function '%.60s'", name);
}

static uint64_t object_aligned(uint64_t x, uint64_t to)
{
    return (x + to - 1) & ~(to - 1);
}

/* Gives every part its place: code first, since it is aligned and is read together. */
static deft_status object_lay_out(linker *l)
{
    uint64_t at = 0;
    for (int code = 1; code >= 0; code--) {
        at = object_aligned(at, DF_OBJECT_ALIGN);
        for (uint32_t i = 0; i < l->n_parts; i++) {
            part *const p = &l->parts[i];
            if (((p->header.sh_flags & SHF_EXECINSTR) != 0) != code) continue;
            p->at = at = object_aligned(at, p->header.sh_addralign ? p->header.sh_addralign : 1);
            at += p->header.sh_size;
            if (at > DF_OBJECT_MAX) return object_refuse(l, "the code is too long");
        }
    }
    l->stubs = object_aligned(at, DF_STUB_BYTES);
    l->slots = l->stubs + (uint64_t)l->n_calls * DF_STUB_BYTES;
    l->body_size = l->slots + (uint64_t)l->n_calls * DF_SLOT_BYTES;
    return DEFT_OK;
}

/* ---- writing the body ---- */

static void write_stubs(const linker *l, unsigned char *body)
{
    for (uint32_t i = 0; i < l->n_calls; i++) {
        const uint64_t stub = l->stubs + (uint64_t)i * DF_STUB_BYTES;
        const uint64_t slot = l->slots + (uint64_t)i * DF_SLOT_BYTES;
        df_stub_write(body + stub, (int64_t)slot - (int64_t)stub);
    }
}

/* Where the target of a relocation is in the body. */
static deft_status target_of(linker *l, const Elf64_Rela *r, const Elf64_Sym *s, uint64_t *out)
{
    const bool wants_slot = df_relocation_wants_slot((uint32_t)ELF64_R_TYPE(r->r_info));
    if (s->st_shndx == SHN_UNDEF) {
        uint32_t i;
        const deft_status st = add_call(l, df_elf_name(&l->e, s), &i);
        if (st != DEFT_OK) return st;
        l->slot_reads += wants_slot;
        *out = wants_slot ? l->slots + (uint64_t)i * DF_SLOT_BYTES
                          : l->stubs + (uint64_t)i * DF_STUB_BYTES;
        return DEFT_OK;
    }
    if (wants_slot) return object_refuse(l, "code reads an address of its own from a slot");
    const part *const p = find_part(l, s->st_shndx);
    if (!p || s->st_value > p->header.sh_size)
        return object_refuse(l, "a symbol is behind its section");
    *out = p->at + s->st_value;
    return DEFT_OK;
}

static deft_status apply(linker *l, uint32_t i, const Elf64_Rela *r, const Elf64_Sym *s, void *user)
{
    unsigned char *const body = user;
    const part *const p = &l->parts[i];
    uint64_t target = 0;
    const deft_status st = target_of(l, r, s, &target);
    if (st != DEFT_OK) return st;
    const uint32_t type = (uint32_t)ELF64_R_TYPE(r->r_info), size = df_relocation_size(type);
    if (size == 0)
        return df_fail(l->d, DEFT_E_COMPILE, "object: relocations of type %u are not offered",
                       (unsigned)type);
    if (r->r_offset > p->header.sh_size || p->header.sh_size - r->r_offset < size)
        return object_refuse(l, "a relocation is behind its section");
    if (r->r_addend < INT32_MIN / 2 || r->r_addend > INT32_MAX / 2)
        return object_refuse(l, "an addend is too large");
    const uint64_t place = p->at + r->r_offset;
    if (!df_relocation_apply(type, body + place, (int64_t)place, (int64_t)target + r->r_addend))
        return object_refuse(l, "an instruction cannot reach what it names");
    return DEFT_OK;
}

static deft_status write_body(linker *l, unsigned char *body)
{
    for (uint32_t i = 0; i < l->n_parts; i++) {
        const part *const p = &l->parts[i];
        memcpy(body + p->at, l->e.at + p->header.sh_offset, (size_t)p->header.sh_size);
        const deft_status st = each_relocation(l, i, apply, body);
        if (st != DEFT_OK) return st;
    }
    write_stubs(l, body);
    return DEFT_OK;
}

/* ---- exported ---- */

/* df_object_make with a cleared linker. */
static deft_status object_make(linker *l, const df_mem *mem, const void *bytes, size_t n,
                               const char *const names[DF_CODE_PIECES], df_object **out)
{
    deft_status st = DEFT_OK;
    df_object *o = NULL;
    uint32_t section[DF_CODE_PIECES] = { 0 };
    uint64_t at[DF_CODE_PIECES] = { 0 };
    df_object_piece piece[DF_CODE_PIECES] = { { 0 } };
    if (!df_elf_open(&l->e, bytes, n) || l->e.header.e_type != ET_REL ||
        l->e.header.e_machine != df_object_machine())
        return object_refuse(l, "the code is not in an object of this machine");
    for (int i = 0; i < DF_CODE_PIECES; i++)
        if (names[i]) TRY(find_piece(l, names[i], &section[i], &at[i], &piece[i].size));
    for (uint32_t i = 0; i < l->n_parts; i++) TRY(each_relocation(l, i, object_collect, NULL));
    TRY(object_lay_out(l));

    const size_t body =
        (size_t)object_aligned(sizeof *o + l->n_calls * sizeof *o->calls, DF_OBJECT_ALIGN);
    const size_t size = body + (size_t)l->body_size; /* not far above DF_OBJECT_MAX */
    o = df_mem_zalloc(mem, size);
    if (!o) return df_fail_mem(l->d, "object", size);
    for (int i = 0; i < DF_CODE_PIECES; i++)
        if (names[i]) piece[i].at = (uint32_t)(find_part(l, section[i])->at + at[i]);
    o->size = (uint32_t)size;
    o->body = (uint32_t)body;
    o->body_size = (uint32_t)l->body_size;
    o->n_calls = l->n_calls;
    memcpy(o->piece, piece, sizeof piece);
    for (uint32_t i = 0; i < l->n_calls; i++)
        o->calls[i] =
            (df_object_call){ .callee = l->calls[i],
                              .slot = (uint32_t)(l->slots + (uint64_t)i * DF_SLOT_BYTES) };
    TRY(write_body(l, (unsigned char *)o + body));
    o->slot_reads = l->slot_reads;
    *out = o;
    o = NULL;
done:
    if (o) df_mem_free(mem, o, o->size);
    return st;
}

deft_status df_object_make(df_diag *d, const df_mem *mem, const void *bytes, size_t n,
                           const char *const names[DF_CODE_PIECES], df_object **out)
{
    *out = NULL;
    linker *const l = df_mem_zalloc(mem, sizeof *l); /* the stack of the caller may be small */
    if (!l) return df_fail_mem(d, "object", sizeof *l);
    l->d = d;
    const deft_status st = object_make(l, mem, bytes, n, names, out);
    df_mem_free(mem, l, sizeof *l);
    return st;
}
