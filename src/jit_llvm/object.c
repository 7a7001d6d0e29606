/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects as debuggers and profilers need them: the size of each function in an object, and GDB's
 * interface for code that is in no file.
 *
 * GDB reads a list of ELF objects in the memory of the program. It stops in
 * __jit_debug_register_code whenever the list changes. The objects that ORC loads are not suitable:
 * they are not relocated, and their names (df_k0) say nothing. So each function gets a small object
 * of its own, with a .text section at the address of the code, and one symbol. The object needs no
 * unwind tables, because such code keeps frame pointers (df_host.keep_frames), which GDB finds.
 *
 * The names __jit_debug_descriptor and __jit_debug_register_code are GDB's interface. They are
 * exported so that GDB finds them in a stripped plug-in, too. They are protected so that those of
 * another code generator do not replace them; each library of a process may have its own. The
 * descriptor is the plug-in's one mutable global.
 *
 * References: GDB manual, "JIT Compilation Interface"; ELF gABI chapters 4 and 5.
 */
#include "jit_llvm/emit.h"

#include <stdlib.h>
#include <string.h>

#include "base/elf.h"

/* ---- sizes ---- */

void df_llvm_object_read(const void *object, size_t n_bytes, const char *const *names, uint32_t n,
                         df_llvm_fn *fns)
{
    df_elf e;
    Elf64_Sym s;
    for (uint32_t i = 0; i < n; i++) fns[i].size = 0;
    if (!df_elf_open(&e, object, n_bytes)) return;
    for (uint32_t k = 0; df_elf_symbol(&e, k, &s); k++) {
        if (ELF64_ST_TYPE(s.st_info) != STT_FUNC) continue;
        for (uint32_t i = 0; i < n; i++)
            if (strcmp(df_elf_name(&e, &s), names[i]) == 0)
                fns[i] = (df_llvm_fn){ .size = (uint32_t)s.st_size,
                                       .section = s.st_shndx,
                                       .offset = s.st_value };
    }
}

/* ---- GDB ---- */

/* An object in GDB's list. The first four members are GDB's jit_code_entry. */
typedef struct shown {
    struct shown *next, *prev;
    const void *object;
    uint64_t object_size;
    size_t size; /* bytes of this struct and the object that follows it */
} shown;

typedef enum action { NO_ACTION, REGISTER, UNREGISTER } action;

typedef struct descriptor {
    uint32_t version;
    uint32_t action;
    shown *relevant, *first;
} descriptor;
_Static_assert(offsetof(shown, object_size) == 3 * sizeof(void *), "GDB reads it");
_Static_assert(offsetof(descriptor, first) == 8 + sizeof(void *), "GDB reads it");

#define INTERFACE __attribute__((visibility("protected"), used))

extern descriptor __jit_debug_descriptor;
void __jit_debug_register_code(void);

INTERFACE descriptor __jit_debug_descriptor = { .version = 1 };

INTERFACE __attribute__((noinline)) void __jit_debug_register_code(void)
{
    __asm__ volatile("" ::: "memory"); /* GDB stops here */
}

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;

enum { SECTION_NONE, SECTION_TEXT, SECTION_SYMBOLS, SECTION_STRINGS, N_SECTIONS };
#define STRINGS "\0.text\0.symtab\0.strtab"
enum { NAME_TEXT = 1, NAME_SYMBOLS = 7, NAME_STRINGS = 15, NAME_CODE = sizeof STRINGS };

typedef struct object {
    Elf64_Ehdr header;
    Elf64_Shdr section[N_SECTIONS];
    Elf64_Sym symbol[2];
    char strings[]; /* STRINGS, then the function's name */
} object;

static void write_object(object *o, const char *name, const void *start, size_t size)
{
    const size_t n_strings = NAME_CODE + strlen(name) + 1;
    o->header = (Elf64_Ehdr)
    {
        .e_ident = { ELFMAG0,    ELFMAG1,     ELFMAG2,    ELFMAG3,
                     ELFCLASS64, ELFDATA2LSB, EV_CURRENT, ELFOSABI_NONE },
        .e_type = ET_REL,
#if defined(__aarch64__)
        .e_machine = EM_AARCH64,
#else
        .e_machine = EM_X86_64,
#endif
        .e_version = EV_CURRENT, .e_shoff = offsetof(object, section),
        .e_ehsize = sizeof(Elf64_Ehdr), .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = N_SECTIONS,
        .e_shstrndx = SECTION_STRINGS
    };
    o->section[SECTION_TEXT] = (Elf64_Shdr){ .sh_name = NAME_TEXT,
                                             .sh_type = SHT_NOBITS,
                                             .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                                             .sh_addr = (uintptr_t)start,
                                             .sh_size = size,
                                             .sh_addralign = 1 };
    o->section[SECTION_SYMBOLS] = (Elf64_Shdr){ .sh_name = NAME_SYMBOLS,
                                                .sh_type = SHT_SYMTAB,
                                                .sh_offset = offsetof(object, symbol),
                                                .sh_size = sizeof o->symbol,
                                                .sh_link = SECTION_STRINGS,
                                                .sh_info = 1,
                                                .sh_addralign = 8,
                                                .sh_entsize = sizeof(Elf64_Sym) };
    o->section[SECTION_STRINGS] = (Elf64_Shdr){ .sh_name = NAME_STRINGS,
                                                .sh_type = SHT_STRTAB,
                                                .sh_offset = offsetof(object, strings),
                                                .sh_size = n_strings,
                                                .sh_addralign = 1 };
    o->symbol[1] = (Elf64_Sym){ .st_name = NAME_CODE,
                                .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                                .st_shndx = SECTION_TEXT,
                                .st_size = size };
    memcpy(o->strings, STRINGS, NAME_CODE);
    memcpy(o->strings + NAME_CODE, name, n_strings - NAME_CODE);
}

/* Informs GDB of a change of the list. The caller holds list_lock. */
static void tell(action what, shown *s)
{
    __jit_debug_descriptor.action = what;
    __jit_debug_descriptor.relevant = s;
    __jit_debug_register_code();
    __jit_debug_descriptor.action = NO_ACTION;
    __jit_debug_descriptor.relevant = NULL;
}

void *df_llvm_show_debugger(df_llvm *self, const char *name, const void *start, size_t size)
{
    const size_t object_size = sizeof(object) + NAME_CODE + strlen(name) + 1;
    shown *const s = df_mem_zalloc(self->host.mem, sizeof *s + object_size);
    if (!s) return NULL;
    s->object = s + 1;
    s->object_size = object_size;
    s->size = sizeof *s + object_size;
    write_object((object *)(void *)(s + 1), name, start, size);
    pthread_mutex_lock(&list_lock);
    s->next = __jit_debug_descriptor.first;
    if (s->next) s->next->prev = s;
    __jit_debug_descriptor.first = s;
    tell(REGISTER, s);
    pthread_mutex_unlock(&list_lock);
    return s;
}

void df_llvm_hide_debugger(df_llvm *self, void *what)
{
    shown *const s = what;
    if (!s) return;
    pthread_mutex_lock(&list_lock);
    if (s->prev)
        s->prev->next = s->next;
    else
        __jit_debug_descriptor.first = s->next;
    if (s->next) s->next->prev = s->prev;
    tell(UNREGISTER, s);
    pthread_mutex_unlock(&list_lock);
    df_mem_free(self->host.mem, s, s->size);
}
