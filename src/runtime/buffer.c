/* SPDX-License-Identifier: Apache-2.0
 *
 * The caching allocator.
 *
 * Sizes are rounded up to classes, eight per power of two, so that at most an eighth is wasted. A
 * freed block goes to the list of its class and serves the next request of that class. Blocks are
 * never split or joined. So a block keeps its header for life, and a request that the cache serves
 * allocates nothing.
 *
 *   class lists  cls[c] -> newest -> ... -> oldest          the newest is reused first
 *   ring         ages.next = newest ... ages.prev = oldest  the oldest is given back first
 *
 * A small block is one allocation from `mem`: the header, then the data at the next multiple of 64.
 * A large block has its header in `mem`, and its data is mapped.
 */
#include "runtime/buffer.h"

#include <stdatomic.h>
#include <string.h>

#include "base/fork.h"
#include "base/size_class.h"
#include "runtime/os.h"

#define ALIGN ((size_t)64)
#define MAP_FROM ((size_t)64 << 10)
/* Where sizes have 32 bits, at most half of the memory that they can address. */
#define MAX_SIZE (SIZE_MAX > UINT32_MAX ? (int64_t)1 << 47 : (int64_t)7 << 28)

enum { N_CLASSES = 320 };

typedef struct link {
    struct link *prev, *next;
} link;

typedef struct block {
    link age; /* must be first: a link is cast to its block. Used only while cached */
    df_buffer b;
    df_allocator *owner;
    struct block *next, *prev; /* neighbours in the class list, while cached */
    size_t size;               /* data bytes of the class; 0: the data is borrowed */
    size_t huge_size; /* the first bytes of a mapping, for which huge pages were requested */
    bool mapped;
    bool is_fresh;   /* mapped, and never in the cache: bytes that nobody wrote are 0 */
    bool is_sparse;  /* df_buffer_use_zeros: most pages may take no memory yet */
    bool is_derived; /* counted in derived_bytes, while it is live */
} block;

struct df_allocator {
    const df_mem *mem;
    bool maps; /* data of large blocks is mapped by the system, not taken from mem */
    uint64_t max_cached;
    df_buffer_watcher watcher; /* members are NULL when there is none */
    df_fork_lock lock;         /* guards all below */
    bool has_lost;             /* df_allocator_lost was called */
    block *cls[N_CLASSES];
    link ages;
    df_allocator_stats stats;
};

/* ---- classes ---- */

static uint32_t class_of(size_t bytes, size_t *size)
{
    uint64_t wide;
    const uint32_t cls = df_size_class(bytes, &wide);
    *size = (size_t)wide;
    return cls;
}

/* ---- blocks ---- */

static block *block_of(df_buffer *b)
{
    return (block *)(void *)((char *)b - offsetof(block, b));
}

/* Returns the bytes that a block takes from mem. */
static size_t head_size(const df_allocator *a, size_t size)
{
    const bool apart = size == 0 || (a->maps && size >= MAP_FROM);
    return apart ? sizeof(block) : sizeof(block) + ALIGN + size;
}

/* Allocates a block without references. size 0: only a header. Returns NULL when memory runs out.
 */
static block *block_create(df_allocator *a, size_t size)
{
    block *const k = df_mem_alloc(a->mem, head_size(a, size));
    if (!k) return NULL;
    *k = (block){ .owner = a, .size = size, .mapped = size > 0 && a->maps && size >= MAP_FROM };
    if (k->mapped) {
        k->b.data = df_os_map(size);
        if (!k->b.data) {
            df_mem_free(a->mem, k, head_size(a, size));
            return NULL;
        }
        k->is_fresh = true;
    } else {
        k->b.data = (void *)(((uintptr_t)(k + 1) + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1));
    }
    return k;
}

/* Asks for huge pages where a buffer of `bytes` bytes fills them. A huge page that is filled in
 * part takes memory that nobody uses: up to an eighth of a block lies behind its buffer. */
static void block_use_huge_pages(block *k, size_t bytes)
{
    const size_t size = bytes / DF_OS_HUGE * DF_OS_HUGE;
    if (!k->mapped || size <= k->huge_size) return;
    df_os_use_huge_pages((char *)k->b.data + k->huge_size, size - k->huge_size);
    k->huge_size = size;
}

static void block_destroy(df_allocator *a, block *k)
{
    if (k->mapped) df_os_unmap(k->b.data, k->size);
    df_mem_free(a->mem, k, head_size(a, k->size));
}

/* ---- cache; the caller holds the lock ---- */

/* Empties the cache without freeing. In a forked child the lists may be damaged, so the child never
 * uses these blocks again. */
static void forget_cached(df_allocator *a)
{
    memset(a->cls, 0, sizeof a->cls);
    a->ages = (link){ &a->ages, &a->ages };
    a->stats.cached_bytes = 0;
}

static void allocator_lock(df_allocator *a)
{
    if (df_fork_lock_take(&a->lock)) forget_cached(a);
}

static void cache_add(df_allocator *a, block *k)
{
    k->is_fresh = k->is_sparse = false;
    block **const list = &a->cls[k->b.cls];
    k->prev = NULL;
    k->next = *list;
    if (*list) (*list)->prev = k;
    *list = k;
    k->age = (link){ .prev = &a->ages, .next = a->ages.next };
    a->ages.next->prev = &k->age;
    a->ages.next = &k->age;
    a->stats.cached_bytes += k->size;
}

static void cache_take(df_allocator *a, block *k)
{
    if (k->prev)
        k->prev->next = k->next;
    else
        a->cls[k->b.cls] = k->next;
    if (k->next) k->next->prev = k->prev;
    k->age.prev->next = k->age.next;
    k->age.next->prev = k->age.prev;
    a->stats.cached_bytes -= k->size;
}

/* Takes the oldest blocks out of the cache until it holds at most `keep` bytes. Returns them as a
 * chain through `next`. */
static block *cache_shrink(df_allocator *a, uint64_t keep)
{
    block *out = NULL;
    while (a->stats.cached_bytes > keep) {
        block *const k = (block *)(void *)a->ages.prev;
        cache_take(a, k);
        k->next = out;
        out = k;
    }
    return out;
}

/* To be called without the lock, because unmapping is slow. */
static void destroy_chain(df_allocator *a, block *k)
{
    while (k) {
        block *const next = k->next;
        block_destroy(a, k);
        k = next;
    }
}

static void count_live(df_allocator *a, size_t size, bool is_derived)
{
    if (is_derived) {
        a->stats.derived_bytes += size;
        return;
    }
    a->stats.live_bytes += size;
    if (a->stats.live_bytes > a->stats.peak_bytes) a->stats.peak_bytes = a->stats.live_bytes;
}

/* ---- exported ---- */

deft_status df_allocator_create(df_diag *d, const df_mem *mem, uint64_t max_cached,
                                df_allocator **out)
{
    df_allocator *const a = df_mem_zalloc(mem, sizeof *a);
    if (!a) return df_fail_mem(d, "allocator", sizeof *a);
    if (!df_fork_lock_init(&a->lock)) {
        df_mem_free(mem, a, sizeof *a);
        return df_fail(d, DEFT_E_MEMORY, "allocator: no mutex could be had");
    }
    a->mem = mem;
    a->maps = mem->resize == df_mem_system.resize;
    a->max_cached = max_cached;
    forget_cached(a);
    *out = a;
    return DEFT_OK;
}

void df_allocator_destroy(df_allocator **out)
{
    df_allocator *const a = *out;
    if (!a) return;
    *out = NULL;
    df_assert(a->stats.live_bytes + a->stats.derived_bytes == 0 || a->has_lost);
    df_allocator_trim(a);
    df_fork_lock_finish(&a->lock);
    df_mem_free(a->mem, a, sizeof *a);
}

df_allocator_stats df_allocator_read(df_allocator *a)
{
    allocator_lock(a);
    const df_allocator_stats s = a->stats;
    df_fork_lock_give(&a->lock);
    return s;
}

void df_allocator_lost(df_allocator *a)
{
    allocator_lock(a);
    a->has_lost = true;
    df_fork_lock_give(&a->lock);
}

void df_allocator_watch(df_allocator *a, const df_buffer_watcher *w)
{
    a->watcher = w ? *w : (df_buffer_watcher){ 0 };
}

void df_allocator_trim(df_allocator *a)
{
    if (a->watcher.trim) a->watcher.trim(a->watcher.self);
    allocator_lock(a);
    block *const old = cache_shrink(a, 0);
    df_fork_lock_give(&a->lock);
    destroy_chain(a, old);
}

static deft_status buffer_create(df_diag *d, df_allocator *a, int64_t bytes, bool is_derived,
                                 df_buffer **out)
{
    size_t size;
    if (bytes < 0 || bytes > MAX_SIZE)
        return df_fail(d, DEFT_E_MEMORY, "buffer: %lld bytes are more than any machine has",
                       (long long)bytes);
    const uint32_t cls = class_of((size_t)bytes, &size);
    df_assert(cls < N_CLASSES);
    allocator_lock(a);
    block *k = a->cls[cls];
    a->stats.requests++;
    if (k) {
        cache_take(a, k);
        count_live(a, size, is_derived);
    } else {
        a->stats.system_allocations++;
    }
    df_fork_lock_give(&a->lock);

    if (!k) {
        k = block_create(a, size);
        if (!k) {
            df_allocator_trim(a); /* blocks of other classes may be the memory that is missing */
            k = block_create(a, size);
        }
        if (!k) return df_fail_mem(d, "buffer", size);
        allocator_lock(a);
        count_live(a, size, is_derived);
        df_fork_lock_give(&a->lock);
    }
    block_use_huge_pages(k, (size_t)bytes);
    k->is_derived = is_derived;
    k->b.bytes = bytes;
    k->b.from = a;
    k->b.home = NULL;
    k->b.cls = cls;
    atomic_store_explicit(&k->b.wanted, 0, memory_order_relaxed);
    atomic_store_explicit(&k->b.has_derived, false, memory_order_relaxed);
    atomic_store_explicit(&k->b.refs, 1, memory_order_relaxed);
    *out = &k->b;
    return DEFT_OK;
}

deft_status df_buffer_create(df_diag *d, df_allocator *a, int64_t bytes, df_buffer **out)
{
    return buffer_create(d, a, bytes, false, out);
}

deft_status df_buffer_create_derived(df_diag *d, df_allocator *a, int64_t bytes, df_buffer **out)
{
    return buffer_create(d, a, bytes, true, out);
}

deft_status df_buffer_wrap(df_diag *d, df_allocator *a, void *data, int64_t bytes, df_buffer **out)
{
    block *const k = block_create(a, 0);
    if (!k) return df_fail_mem(d, "buffer", sizeof *k);
    k->b = (df_buffer){ .data = data, .bytes = bytes };
    atomic_init(&k->b.refs, 1);
    *out = &k->b;
    return DEFT_OK;
}

df_buffer *df_buffer_ref(df_buffer *b)
{
    const uint32_t before = atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    (void)before;
    df_assert(before > 0);
    return b;
}

bool df_buffer_use_zeros(df_buffer *b)
{
    if (!b->from || !block_of(b)->is_fresh) return false;
    block *const k = block_of(b);
    k->is_sparse = true;
    if (k->huge_size > 0) df_os_use_small_pages(b->data, k->huge_size);
    k->huge_size = 0;
    return true;
}

bool df_buffer_wants_pages(df_buffer *b)
{
    if (!b->from || !block_of(b)->is_sparse) return false;
    block *const k = block_of(b);
    k->is_sparse = false;
    block_use_huge_pages(k, (size_t)b->bytes);
    return true;
}

void df_buffer_changed(df_buffer *b)
{
    if (!b->from) return;
    atomic_store_explicit(&b->wanted, 0, memory_order_relaxed);
    if (!atomic_exchange_explicit(&b->has_derived, false, memory_order_acq_rel)) return;
    const df_buffer_watcher *const w = &b->from->watcher;
    if (w->forget) w->forget(w->self, b);
}

/* Frees a buffer that has no reference left, or puts its block into the cache. It is not inlined,
 * so that df_buffer_drop saves no registers for the references that are not the last. */
static __attribute__((noinline)) void buffer_release(df_buffer *b)
{
    const df_buffer_release told = b->release;
    if (b->home || !b->from) {
        if (b->home)
            b->home->release(b);
        else
            block_destroy(block_of(b)->owner, block_of(b));
        if (told.fn) told.fn(told.user);
        return;
    }
    block *const k = block_of(b);
    df_allocator *const a = k->owner;
    df_assert(!told.fn);
    if (atomic_load_explicit(&b->has_derived, memory_order_relaxed)) df_buffer_changed(b);
    allocator_lock(a);
    *(k->is_derived ? &a->stats.derived_bytes : &a->stats.live_bytes) -= k->size;
    cache_add(a, k);
    block *const old = cache_shrink(a, a->max_cached);
    df_fork_lock_give(&a->lock);
    destroy_chain(a, old);
}

void df_buffer_drop(df_buffer **out)
{
    df_buffer *const b = *out;
    *out = NULL;
    if (b && atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1) buffer_release(b);
}
