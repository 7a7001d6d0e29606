/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of the process. A program may leave main while the background thread compiles; exit()
 * then destroys libLLVM's static objects under its feet. So every use of LLVM passes a gate, and a
 * handler that runs before those destructors waits for what is inside and lets nothing more in.
 *
 * exit() runs handlers and destructors of static objects from one list, last registered first:
 *
 *   registered   when libLLVM is loaded        by us, after that     on LLVM's first uses
 *                its namespace-scope objects   the gate's handler    its function-local ones
 *   run          last                          second                first: before the gate closes!
 *
 * The third kind is what kills: a compilation makes dozens of them, each registered on top of the
 * handler wherever that is registered anew, and half of the programs that left main within their
 * first compilation crashed in one. They must not be destroyed at all, and they need not be: the
 * plug-in is never unloaded and the process gives their memory back. So libLLVM's own reference to
 * __cxa_atexit is pointed at a function that registers nothing, right after the gate's handler was
 * registered. Only libLLVM's slot changes; what its load registered stays and runs after us. When
 * some other user of the same libLLVM made such objects earlier, they are registered below the
 * handler, so that they too go after it.
 *
 * Where no such slot is found (another loader, another C++ ABI) the handler is registered again
 * after each of the first uses, which leaves the very first compilation open.
 *
 * A child that was forked while some thread was inside has LLVM's locks as that thread held them,
 * of the session and of the process alike. Its gate stays shut: it interprets, and what LLVM has
 * made for it is never given back.
 *
 * References: Itanium C++ ABI 3.3.6; ELF gABI chapter 5 (dynamic section, relocation).
 */
#include "jit_llvm/gate.h"

#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <llvm-c/Core.h>

static pthread_rwlock_t gate = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER; /* taken before the gate */
static atomic_bool closed;
static atomic_uint n_uses;
static atomic_uint n_inside; /* who is at the gate counts, too */
static atomic_bool is_lost;
static bool keeps_statics; /* written before the first use */

#define FIRST_USES 64

/* ---- function-local statics ---- */

static int register_nothing(void (*destroy)(void *), void *object, void *dso)
{
    (void)destroy;
    (void)object;
    (void)dso;
    return 0;
}

#if UINTPTR_MAX == UINT64_MAX
#define SYMBOL_OF(info) ELF64_R_SYM(info)
#else
#define SYMBOL_OF(info) ELF32_R_SYM(info)
#endif

/* Of a loaded object: where its relocations and symbols lie. */
typedef struct object {
    uintptr_t base, relro, relro_end;
    const ElfW(Sym) * symbols;
    const char *strings;
    uintptr_t rela, plt_rela;
    size_t rela_size, plt_rela_size, n_relative; /* bytes, bytes, entries that name no symbol */
} object;

/* glibc has turned these into addresses already, on most machines. */
static uintptr_t address(const object *o, uintptr_t value)
{
    return value < o->base ? o->base + value : value;
}

static void read_dynamic(object *o, const ElfW(Dyn) * d)
{
    for (; d->d_tag != DT_NULL; d++) {
        const uintptr_t value = d->d_un.d_ptr;
        if (d->d_tag == DT_SYMTAB) o->symbols = (const ElfW(Sym) *)address(o, value);
        if (d->d_tag == DT_STRTAB) o->strings = (const char *)address(o, value);
        if (d->d_tag == DT_RELA) o->rela = address(o, value);
        if (d->d_tag == DT_RELASZ) o->rela_size = value;
        if (d->d_tag == DT_RELACOUNT) o->n_relative = value;
        if (d->d_tag == DT_JMPREL) o->plt_rela = address(o, value);
        if (d->d_tag == DT_PLTRELSZ) o->plt_rela_size = value;
        if (d->d_tag == DT_PLTREL && value != DT_RELA) o->plt_rela_size = 0;
    }
}

/* A slot that the loader has made read-only is so again afterwards. */
static bool point_slot(const object *o, uintptr_t slot, uintptr_t to)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *const start = (void *)(slot / page * page);
    const bool is_sealed = slot >= o->relro && slot < o->relro_end;
    if (is_sealed && mprotect(start, page, PROT_READ | PROT_WRITE) != 0) return false;
    atomic_store((_Atomic uintptr_t *)slot, to);
    if (is_sealed) (void)mprotect(start, page, PROT_READ);
    return true;
}

static bool point_slots(const object *o, uintptr_t rela, size_t size)
{
    const ElfW(Rela) *r = (const ElfW(Rela) *)rela;
    bool any = false;
    for (const ElfW(Rela) *end = r + size / sizeof *r; r < end; r++) {
        const ElfW(Sym) *const symbol = o->symbols + SYMBOL_OF(r->r_info);
        if (SYMBOL_OF(r->r_info) == 0 || r->r_addend != 0) continue;
        if (strcmp(o->strings + symbol->st_name, "__cxa_atexit") != 0) continue;
        any |= point_slot(o, o->base + r->r_offset, (uintptr_t)register_nothing);
    }
    return any;
}

/* For dl_iterate_phdr: acts on the object that holds the address, and stops there. */
static int visit(struct dl_phdr_info *info, size_t size, void *inside)
{
    (void)size;
    object o = { .base = info->dlpi_addr };
    const ElfW(Dyn) *dynamic = NULL;
    bool is_it = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *const p = &info->dlpi_phdr[i];
        const uintptr_t start = o.base + p->p_vaddr;
        if (p->p_type == PT_LOAD)
            is_it |= (uintptr_t)inside >= start && (uintptr_t)inside - start < p->p_memsz;
        if (p->p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn) *)start;
        if (p->p_type == PT_GNU_RELRO) {
            const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
            o.relro = start / page * page;
            o.relro_end = (start + p->p_memsz) / page * page; /* as the loader rounds it */
        }
    }
    if (!is_it || !dynamic) return 0;
    read_dynamic(&o, dynamic);
    if (!o.symbols || !o.strings) return 1;
    const size_t skip = o.n_relative * sizeof(ElfW(Rela));
    if (o.plt_rela) keeps_statics |= point_slots(&o, o.plt_rela, o.plt_rela_size);
    if (o.rela && skip < o.rela_size)
        keeps_statics |= point_slots(&o, o.rela + skip, o.rela_size - skip);
    return 1;
}

/* ---- the gate ---- */

static void close_gate(void)
{
    if (!atomic_exchange(&closed, true)) (void)pthread_rwlock_wrlock(&gate);
}

/* A child has none of the threads that were inside: its own end would wait for them forever. */
static void empty_gate(void)
{
    if (atomic_exchange(&n_inside, 0) > 0) atomic_store(&is_lost, true);
    one_at_a_time = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (!atomic_load(&closed)) gate = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
}

void df_llvm_gate_open(void)
{
    (void)atexit(close_gate);
    (void)pthread_atfork(NULL, NULL, empty_gate);
    (void)dl_iterate_phdr(visit, (void *)(uintptr_t)LLVMContextCreate);
}

void df_llvm_gate_lose(void)
{
    atomic_store(&is_lost, true);
}

bool df_llvm_gate_enter(bool alone)
{
    atomic_fetch_add(&n_inside, 1);
    if (alone) pthread_mutex_lock(&one_at_a_time);
    if (!atomic_load(&is_lost) && pthread_rwlock_tryrdlock(&gate) == 0) return true;
    if (alone) pthread_mutex_unlock(&one_at_a_time);
    atomic_fetch_sub(&n_inside, 1);
    return false;
}

void df_llvm_gate_leave(bool alone)
{
    (void)pthread_rwlock_unlock(&gate);
    if (alone) pthread_mutex_unlock(&one_at_a_time);
    atomic_fetch_sub(&n_inside, 1);
    if (!keeps_statics && atomic_fetch_add(&n_uses, 1) < FIRST_USES) (void)atexit(close_gate);
}
