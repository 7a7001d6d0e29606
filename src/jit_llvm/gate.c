/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of the process. A program may leave main while the background thread compiles; exit()
 * would then destroy static objects of libLLVM that the thread uses. So every use of LLVM passes a
 * gate. A handler that runs before those destructors waits until no thread is inside, and lets no
 * more threads in.
 *
 * exit() runs handlers and destructors of static objects from one list, the last registered first.
 * libLLVM registers destructors at two times:
 *
 * - Those of namespace-scope objects in its constructors. Meanwhile another thread may have begun
 *   exit() and run the part of the list that exists so far.
 * - Those of function-local objects when they are first used. They come before any handler of ours.
 *
 * Neither may be destroyed. They need not be: the plug-in is never unloaded, and the end of the
 * process frees their memory. So libLLVM's reference to __cxa_atexit is redirected to a function
 * that registers nothing. That must happen after libLLVM is relocated and before its constructors
 * run. The constructor of an object with the flag DF_1_INITFIRST runs at that time, and the plug-in
 * is linked with that flag.
 *
 * The other libraries that are loaded for libLLVM need their destructors (one flushes a C++
 * stream), but not while their constructors run. What they register meanwhile is deferred: it is
 * kept here and registered when all libraries are loaded. The gate's handler is registered after
 * it. The end of the process waits for that moment (start.c).
 *
 * A loader without that flag runs our constructor last. Then what libLLVM has registered by then
 * runs after the gate's handler, unless exit() had begun. Where libLLVM has no reference to
 * __cxa_atexit (another C++ ABI), the handler is registered again after each of the first uses.
 * That does not protect the very first compilation.
 *
 * A child that was forked while some thread was inside has copies of LLVM's locks that are held and
 * never released. Its gate stays shut. The child interprets kernels, and never frees what LLVM has
 * allocated.
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
static atomic_bool closed;   /* the process is ending; the gate stays write-locked */
static atomic_uint n_uses;   /* uses so far, counted only without keeps_statics */
static atomic_uint n_inside; /* threads inside or about to enter */
static atomic_bool is_lost;  /* LLVM's state is unusable in this process */
static bool keeps_statics;   /* libLLVM registers no destructors. Written before the first use */

#define FIRST_USES 64 /* without keeps_statics: uses that register the gate's handler again */

/* ---- function-local statics ---- */

static int register_nothing(void (*destroy)(void *), void *object, void *dso)
{
    (void)destroy;
    (void)object;
    (void)dso;
    return 0;
}

/* ---- destructors of the other libraries ---- */

int __cxa_atexit(void (*fn)(void *), void *arg, void *dso);

typedef struct kept {
    void (*destroy)(void *);
    void *object, *dso;
} kept;

/* The destructors that are deferred. One for which there is no room is registered at once. */
static pthread_mutex_t put_off_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the next two */
static kept put_off[2048];
static size_t n_put_off;
static atomic_bool is_loaded; /* written with the lock; nothing is deferred from then on */

static bool keep_for_later(const kept *k)
{
    pthread_mutex_lock(&put_off_lock);
    const bool ok = !atomic_load(&is_loaded) && n_put_off < sizeof put_off / sizeof *put_off;
    if (ok) put_off[n_put_off++] = *k;
    pthread_mutex_unlock(&put_off_lock);
    return ok;
}

/* Replaces __cxa_atexit in those libraries. Other threads may use them before dlopen has returned
 * to the thread that opens them. */
static int register_later(void (*destroy)(void *), void *object, void *dso)
{
    const kept k = { destroy, object, dso };
    if (!atomic_load(&is_loaded) && keep_for_later(&k)) return 0;
    return __cxa_atexit(destroy, object, dso);
}

/* ---- slots ----
 *
 * A slot is the word of a loaded object that holds the address of a function of another object.
 */

#if UINTPTR_MAX == UINT64_MAX
#define SYMBOL_OF(info) ELF64_R_SYM(info)
#else
#define SYMBOL_OF(info) ELF32_R_SYM(info)
#endif

/* The addresses of the relocations and symbols of a loaded object. */
typedef struct object {
    uintptr_t base, relro, relro_end;
    const ElfW(Sym) * symbols;
    const char *strings;
    uintptr_t rela, plt_rela;
    size_t rela_size, plt_rela_size, n_relative; /* bytes, bytes, entries that name no symbol */
} object;

/* The address of an entry of the dynamic section. On most machines glibc has already converted the
 * entries to addresses; elsewhere they are offsets from the base. */
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

/* Sets the slot to `to`. A slot that the loader has made read-only is read-only again afterwards.
 * Returns false when the page cannot be made writable. */
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

/* Sets the slots of __cxa_atexit among `size` bytes of relocations. Returns whether there were any.
 */
static bool point_slots(const object *o, uintptr_t rela, size_t size, uintptr_t to)
{
    const ElfW(Rela) *r = (const ElfW(Rela) *)rela;
    bool any = false;
    for (const ElfW(Rela) *end = r + size / sizeof *r; r < end; r++) {
        const ElfW(Sym) *const symbol = o->symbols + SYMBOL_OF(r->r_info);
        if (SYMBOL_OF(r->r_info) == 0 || r->r_addend != 0) continue;
        if (strcmp(o->strings + symbol->st_name, "__cxa_atexit") != 0) continue;
        any |= point_slot(o, o->base + r->r_offset, to);
    }
    return any;
}

/* The same for all relocations of an object. */
static bool point_all(const object *o, uintptr_t to)
{
    const size_t skip = o->n_relative * sizeof(ElfW(Rela));
    bool any = false;
    if (!o->symbols || !o->strings) return false;
    if (o->plt_rela) any |= point_slots(o, o->plt_rela, o->plt_rela_size, to);
    if (o->rela && skip < o->rela_size)
        any |= point_slots(o, o->rela + skip, o->rela_size - skip, to);
    return any;
}

/* What dl_iterate_phdr has found. Its callback only fills this struct, because the loader's lock is
 * held meanwhile: a child forked at that time could never take the lock. */
typedef struct objects {
    object llvm;
    object later[64]; /* objects loaded after this plug-in, that is, for it */
    uint32_t n_later;
    bool has_llvm, has_self;
} objects;

static int visit(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    objects *const all = user;
    object o = { .base = info->dlpi_addr };
    const ElfW(Dyn) *dynamic = NULL;
    bool is_llvm = false, is_self = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *const p = &info->dlpi_phdr[i];
        const uintptr_t start = o.base + p->p_vaddr;
        if (p->p_type == PT_LOAD) {
            is_llvm |= (uintptr_t)LLVMContextCreate - start < p->p_memsz;
            is_self |= (uintptr_t)visit - start < p->p_memsz;
        }
        if (p->p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn) *)start;
        if (p->p_type == PT_GNU_RELRO) {
            const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
            o.relro = start / page * page;
            o.relro_end = (start + p->p_memsz) / page * page; /* as the loader rounds it */
        }
    }
    if (dynamic) read_dynamic(&o, dynamic);
    if (is_llvm) {
        all->llvm = o;
        all->has_llvm = true;
    } else if (all->has_self && all->n_later < sizeof all->later / sizeof *all->later) {
        all->later[all->n_later++] = o;
    }
    all->has_self |= is_self;
    return 0;
}

/* ---- the gate ---- */

static void close_gate(void)
{
    if (!atomic_exchange(&closed, true)) (void)pthread_rwlock_wrlock(&gate);
}

/* Because of DF_1_INITFIRST this runs before the constructors of libLLVM and of the libraries that
 * libLLVM needs. The loader's lock is held. */
__attribute__((constructor)) static void on_load(void)
{
    static objects all;
    (void)dl_iterate_phdr(visit, &all);
    keeps_statics = all.has_llvm && point_all(&all.llvm, (uintptr_t)register_nothing);
    for (uint32_t i = 0; i < all.n_later; i++)
        (void)point_all(&all.later[i], (uintptr_t)register_later);
}

bool df_llvm_gate_open(void)
{
    bool ok = true;
    pthread_mutex_lock(&put_off_lock);
    const bool is_first = !atomic_exchange(&is_loaded, true);
    for (size_t i = 0; is_first && i < n_put_off; i++)
        ok &= __cxa_atexit(put_off[i].destroy, put_off[i].object, put_off[i].dso) == 0;
    pthread_mutex_unlock(&put_off_lock);
    if (!is_first) return !atomic_load(&closed);
    ok &= atexit(close_gate) == 0;
    if (!ok) close_gate(); /* exit() has run the whole list, or there is no memory */
    return ok;
}

void df_llvm_gate_forked(void)
{
    if (atomic_exchange(&n_inside, 0) > 0) atomic_store(&is_lost, true);
    one_at_a_time = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (!atomic_load(&closed)) gate = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
}

void df_llvm_gate_abandon(void)
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
