/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a GPU: a caching allocator in the order of queues. Blocks are allocated
 * from the driver one by one, in size classes (base/size_class.h), and are never split. A
 * dropped block goes to the list of the queue it was made on. Who may reuse it, and when:
 *
 *   its own queue    At once: later work of the queue comes after the work on the block.
 *   another queue    When the work on the block is known to have ended. Blocks are numbered as
 *                    they are dropped. The first request that looks at the list records an event
 *                    behind them (drop_mark). A later request that finds the event done may take
 *                    every block that the event covers. No thread waits. With one queue no
 *                    event is recorded for this.
 *   used in others   A drop makes the block's own queue wait for the other queues that used it.
 *                    After that only its own queue matters.
 *   queue destroyed  The block is an orphan: its work has ended, and any queue may take it.
 *
 * Freeing: cuMemFree may be called only after all work on a block. So blocks are first
 * taken out of the lists under the lock. Then each queue is waited for, by an event and
 * without the lock. Then the blocks are freed. Blocks whose work the driver cannot confirm
 * as ended are *stuck*, and are freed with the GPU.
 */
#include "base/size_class.h"
#include "jit_cuda/driver/gpu_internal.h"

#define MAX_SIZE ((int64_t)1 << 47)

enum {
    ATTR_MEMORY_TYPE = 2, /* CUpointer_attribute */
    ATTR_ORDINAL = 9,
    ATTR_RANGE_START = 11,
    ATTR_RANGE_SIZE = 12,
    TYPE_DEVICE = 2,  /* CUmemorytype */
    INVALID_VALUE = 1 /* CUresult */
};

struct df_gpu_block {
    df_gpu_link age; /* first, so that a link can be cast to its block; used while cached */
    df_buffer b;
    df_gpu *g;
    /* the queue it was made on, a reference; NULL: wrapped memory, or an orphan */
    df_queue *q;
    DF_VEC(df_queue *) users;  /* other queues that used it, a reference each */
    df_gpu_block *next, *prev; /* in the list of its class while cached; `next` also links chains */
    uint64_t size;             /* of the class; 0: wrapped or lent memory */
    df_gpu_loan loan;          /* back is NULL: not lent */
    uint64_t dropped;          /* its number among the dropped blocks of its queue */
};

static df_gpu_block *gpu_block_of(df_buffer *b)
{
    return (df_gpu_block *)(void *)((char *)b - offsetof(df_gpu_block, b));
}

/* ---- blocks ---- */

static df_gpu_block *gpu_block_create(df_gpu *g, uint64_t size)
{
    df_gpu_block *const k = df_mem_alloc(g->mem, sizeof *k);
    if (k) *k = (df_gpu_block){ .g = g, .size = size };
    return k;
}

/* Frees the struct, not the memory on the GPU. */
static void gpu_block_free_struct(df_gpu *g, df_gpu_block *k)
{
    df_vec_finish(g->mem, &k->users);
    df_mem_free(g->mem, k, sizeof *k);
}

static df_cu_ptr gpu_block_address(const df_gpu_block *k)
{
    return (df_cu_ptr)(uintptr_t)k->b.data;
}

/* Needs the lock. */
static void memory_count_live(df_gpu *g, uint64_t size)
{
    g->stats.live_bytes += size;
    if (g->stats.live_bytes > g->stats.peak_bytes) g->stats.peak_bytes = g->stats.live_bytes;
}

/* ---- lists; all need the lock ---- */

static df_gpu_free *gpu_list_of(df_gpu *g, df_gpu_block *k)
{
    return k->q ? &k->q->free : &g->orphans;
}

static void gpu_list_add(df_gpu_free *f, df_gpu_block *k)
{
    df_gpu_block **const at = &f->cls[k->b.cls];
    k->prev = NULL;
    k->next = *at;
    if (*at) (*at)->prev = k;
    *at = k;
    f->bytes += k->size;
}

static void gpu_list_remove(df_gpu_free *f, df_gpu_block *k)
{
    if (k->prev)
        k->prev->next = k->next;
    else
        f->cls[k->b.cls] = k->next;
    if (k->next) k->next->prev = k->prev;
    f->bytes -= k->size;
}

static void gpu_cache_add(df_gpu *g, df_gpu_block *k)
{
    gpu_list_add(gpu_list_of(g, k), k);
    k->age = (df_gpu_link){ .prev = &g->ages, .next = g->ages.next };
    g->ages.next->prev = &k->age;
    g->ages.next = &k->age;
    g->stats.cached_bytes += k->size;
}

static void gpu_cache_remove(df_gpu *g, df_gpu_block *k)
{
    gpu_list_remove(gpu_list_of(g, k), k);
    k->age.prev->next = k->age.next;
    k->age.next->prev = k->age.prev;
    g->stats.cached_bytes -= k->size;
}

static void set_queue(df_gpu_block *k, df_queue *q)
{
    if (q) q->refs++;
    if (k->q) df_queue_unref(k->q);
    k->q = q;
}

/* ---- what other queues wait for; all need the lock ---- */

void df_memory_settle(df_queue *q, uint64_t n_dropped)
{
    if (n_dropped > q->n_settled) q->n_settled = n_dropped;
}

/* Records an event behind the dropped blocks, unless their work has ended. */
static void mark_drops(df_queue *q)
{
    df_gpu *const g = q->g;
    if (q->n_settled == q->n_dropped || df_gpu_event_take(g, &q->drop_mark)) return;
    if (g->dr->event_record(q->drop_mark, q->stream))
        df_gpu_event_give(g, &q->drop_mark);
    else
        q->drop_covers = q->n_dropped;
}

/* Queries how far q is. Errors are left to whoever waits for q. */
static void look_at_drops(df_queue *q)
{
    if (q->drop_mark && q->g->dr->event_query(q->drop_mark) == 0) {
        df_memory_settle(q, q->drop_covers);
        df_gpu_event_give(q->g, &q->drop_mark);
    }
    if (!q->drop_mark) mark_drops(q);
}

/* A cached block of q whose work has ended; NULL: none. */
static df_gpu_block *settled_in(df_queue *q, uint32_t cls)
{
    for (df_gpu_block *k = q->free.cls[cls]; k; k = k->next)
        if (k->dropped <= q->n_settled) return k;
    return NULL;
}

/* ---- freeing ---- */

/* Cached blocks of one queue that are being freed. */
typedef struct leaving {
    df_gpu_block *chain;
    df_cu_event ev; /* behind the work on them; NULL: the work has ended */
} leaving;

/* Needs the lock. Takes the oldest cached blocks of q out of its list, for q NULL the
 * orphans, until at most `keep` bytes are cached in all queues together. Returns false when
 * no event can be recorded; the blocks then stay. */
static bool memory_detach_oldest(df_gpu *g, df_queue *q, uint64_t keep, leaving *out)
{
    *out = (leaving){ 0 };
    if (q && q->n_settled < q->n_dropped) {
        if (df_gpu_event_take(g, &out->ev)) return false;
        if (g->dr->event_record(out->ev, q->stream)) {
            df_gpu_event_give(g, &out->ev);
            return false;
        }
    }
    df_gpu_link *at = g->ages.prev;
    while (at != &g->ages && g->stats.cached_bytes > keep) {
        df_gpu_block *const k = (df_gpu_block *)(void *)at;
        at = at->prev;
        if (k->q != q) continue;
        gpu_cache_remove(g, k);
        k->next = out->chain;
        out->chain = k;
    }
    return true;
}

static void stick(df_gpu *g, df_gpu_block *k)
{
    set_queue(k, NULL);
    k->next = g->stuck;
    g->stuck = k;
}

/* Without the lock: waits for the work on the blocks and frees them. */
static void memory_free_detached(df_gpu *g, leaving *l)
{
    const bool has_ended = !l->ev || g->dr->event_wait(l->ev) == 0;
    df_gpu_block *freed = NULL;
    for (df_gpu_block *k = l->chain, *next; k; k = next) {
        next = k->next;
        if (has_ended && g->dr->mem_free(gpu_block_address(k)) == 0) {
            k->next = freed;
            freed = k;
        } else {
            pthread_mutex_lock(&g->lock);
            stick(g, k);
            pthread_mutex_unlock(&g->lock);
        }
    }
    pthread_mutex_lock(&g->lock);
    df_gpu_event_give(g, &l->ev);
    for (df_gpu_block *k = freed, *next; k; k = next) {
        next = k->next;
        set_queue(k, NULL);
        gpu_block_free_struct(g, k);
    }
    pthread_mutex_unlock(&g->lock);
}

/* The queue of the oldest cached block, NULL for an orphan. Returns false when no more than
 * `keep` bytes are cached. */
static bool memory_find_oldest(df_gpu *g, uint64_t keep, df_queue **q)
{
    if (g->stats.cached_bytes <= keep) return false;
    *q = ((df_gpu_block *)(void *)g->ages.prev)->q;
    return true;
}

/* Frees blocks until at most `keep` bytes are cached. The context is current. */
static void memory_shrink_cache(df_gpu *g, uint64_t keep)
{
    df_queue *q = NULL;
    leaving l;
    for (bool goes_on = true; goes_on;) {
        pthread_mutex_lock(&g->lock);
        goes_on = memory_find_oldest(g, keep, &q) && memory_detach_oldest(g, q, keep, &l);
        pthread_mutex_unlock(&g->lock);
        if (goes_on) memory_free_detached(g, &l);
    }
}

void df_gpu_trim(df_gpu *g)
{
    if (df_gpu_enter(g, NULL) != DEFT_OK) return;
    memory_shrink_cache(g, 0);
    df_gpu_leave(g);
}

/* ---- dropping ---- */

/* Makes later work of q wait for the work that is in `other`. Needs the lock and the
 * current context. Returns false when the driver refuses. */
static bool memory_order_queues(df_queue *q, df_queue *other)
{
    df_gpu *const g = q->g;
    df_cu_event ev = NULL;
    if (other->is_ended) return true;
    if (q->is_ended) return g->dr->stream_wait(other->stream) == 0;
    bool ok = !df_gpu_event_take(g, &ev) && !g->dr->event_record(ev, other->stream) &&
              !g->dr->stream_wait_event(q->stream, ev, 0);
    df_gpu_event_give(g, &ev);
    return ok || g->dr->stream_wait(other->stream) == 0;
}

/* Makes the queue of k wait for all other queues that used k. Needs the lock. Returns false
 * when that fails. */
static bool order_users(df_gpu *g, df_gpu_block *k)
{
    bool ok = true;
    const bool is_entered = k->users.n == 0 || df_gpu_enter(g, NULL) == DEFT_OK;
    for (size_t i = 0; i < k->users.n; i++) {
        ok = is_entered && memory_order_queues(k->q, k->users.at[i]) && ok;
        df_queue_unref(k->users.at[i]);
    }
    if (k->users.n && is_entered) df_gpu_leave(g);
    k->users.n = 0;
    return ok;
}

/* Drops a buffer of df_gpu_borrower. When the queues that used it cannot be waited for, the
 * driver has failed and nothing runs on the GPU any more. */
static void give_back(df_gpu *g, df_gpu_block *k)
{
    const df_gpu_loan loan = k->loan;
    pthread_mutex_lock(&g->lock);
    (void)order_users(g, k);
    set_queue(k, NULL);
    pthread_mutex_unlock(&g->lock);
    gpu_block_free_struct(g, k);
    if (loan.back) loan.back(loan.user, loan.what);
}

/* Waits for all queues of the GPU. The owner of wrapped memory may reuse it as soon as he is
 * informed that nothing uses it. */
static void memory_wait_for_queues(df_gpu *g)
{
    if (df_gpu_enter(g, NULL) != DEFT_OK) return;
    pthread_mutex_lock(&g->lock);
    for (df_queue *q = g->queues; q; q = q->next) (void)g->dr->stream_wait(q->stream);
    pthread_mutex_unlock(&g->lock);
    df_gpu_leave(g);
}

/* The `release` of df_buffer_owner. Any thread. */
static void memory_release_buffer(df_buffer *b)
{
    df_gpu_block *const k = gpu_block_of(b);
    df_gpu *const g = k->g;
    if (b->release.fn) memory_wait_for_queues(g);
    if (k->size == 0 && k->q && df_driver_usable(g->dr, NULL) == DEFT_OK) {
        give_back(g, k);
        return;
    }
    if (k->size == 0 || df_driver_usable(g->dr, NULL) != DEFT_OK) {
        gpu_block_free_struct(g, k);
        return;
    }
    pthread_mutex_lock(&g->lock);
    g->stats.live_bytes -= k->size;
    if (!order_users(g, k) || k->q->is_unsure) {
        stick(g, k);
    } else {
        if (k->q->is_ended)
            set_queue(k, NULL);
        else
            k->dropped = ++k->q->n_dropped;
        gpu_cache_add(g, k);
    }
    const bool is_over = g->o.max_cached && g->stats.cached_bytes > g->o.max_cached;
    pthread_mutex_unlock(&g->lock);
    if (!is_over || df_gpu_enter(g, NULL) != DEFT_OK) return;
    memory_shrink_cache(g, g->o.max_cached);
    df_gpu_leave(g);
}

/* ---- allocating ---- */

/* Needs the lock. Takes k out of its list, for q. */
static void memory_reuse_block(df_queue *q, df_gpu_block *k)
{
    gpu_cache_remove(q->g, k);
    set_queue(k, q);
    memory_count_live(q->g, k->size);
}

/* A cached block of the class that q may reuse at once; NULL: none. */
static df_gpu_block *memory_reuse_own(df_queue *q, uint32_t cls)
{
    df_gpu *const g = q->g;
    pthread_mutex_lock(&g->lock);
    df_gpu_block *const k = q->free.cls[cls] ? q->free.cls[cls] : g->orphans.cls[cls];
    g->stats.requests++;
    if (k) memory_reuse_block(q, k);
    pthread_mutex_unlock(&g->lock);
    return k;
}

/* A cached block of the class of another queue whose work has ended; NULL: none. The
 * context is current. */
static df_gpu_block *memory_reuse_others(df_queue *q, uint32_t cls)
{
    df_gpu *const g = q->g;
    df_gpu_block *k = NULL;
    pthread_mutex_lock(&g->lock);
    for (df_queue *other = g->queues; other && !k; other = other->next) {
        if (!other->free.cls[cls]) continue;
        k = settled_in(other, cls);
        if (k) continue;
        look_at_drops(other);
        k = settled_in(other, cls);
    }
    if (k) memory_reuse_block(q, k);
    pthread_mutex_unlock(&g->lock);
    return k;
}

static deft_status memory_fail_limit(df_gpu *g, df_diag *d, uint64_t size)
{
    const df_allocator_stats s = df_gpu_read(g);
    return df_fail(d, DEFT_E_MEMORY,
                   "cuda: GPU %d: %llu bytes would exceed max_bytes, %llu: %llu are live, %llu "
                   "cached",
                   g->ordinal, (unsigned long long)size, (unsigned long long)g->o.max_bytes,
                   (unsigned long long)s.live_bytes, (unsigned long long)s.cached_bytes);
}

static deft_status memory_fail_exhausted(df_gpu *g, df_diag *d, uint64_t size)
{
    const df_allocator_stats s = df_gpu_read(g);
    size_t free_bytes = 0, all = 0;
    const bool known = g->dr->mem_info(&free_bytes, &all) == 0;
    const deft_status st =
        df_fail(d, DEFT_E_MEMORY,
                "cuda: GPU %d (%s): %llu bytes could not be had: %llu are live, "
                "%llu cached",
                g->ordinal, g->facts.name, (unsigned long long)size,
                (unsigned long long)s.live_bytes, (unsigned long long)s.cached_bytes);
    if (known) (void)df_fail_more(d, ", %zu of %zu free on the GPU", free_bytes, all);
    return st;
}

/* Whether max_bytes allows `size` bytes more. If so, counts them as requested. */
static bool memory_reserve_bytes(df_gpu *g, uint64_t size)
{
    pthread_mutex_lock(&g->lock);
    const bool fits =
        !g->o.max_bytes ||
        g->stats.live_bytes + g->stats.cached_bytes + g->coming + size <= g->o.max_bytes;
    if (fits) g->coming += size;
    pthread_mutex_unlock(&g->lock);
    return fits;
}

/* Ends a request of memory_reserve_bytes. The block is k; NULL: it could not be allocated. */
static void memory_end_reservation(df_queue *q, uint64_t size, df_gpu_block *k)
{
    df_gpu *const g = q->g;
    pthread_mutex_lock(&g->lock);
    g->coming -= size;
    if (k) {
        memory_count_live(g, size);
        g->stats.system_allocations++;
        set_queue(k, q);
    }
    pthread_mutex_unlock(&g->lock);
}

/* Allocates a block from the driver and counts it as live memory of q. The context is
 * current. */
static deft_status gpu_block_allocate(df_queue *q, df_diag *d, uint64_t size, uint32_t cls,
                                      df_gpu_block **out)
{
    df_gpu *const g = q->g;
    deft_status st = DEFT_OK;
    bool is_reserved = memory_reserve_bytes(g, size);
    df_cu_ptr p = 0;
    df_gpu_block *k = gpu_block_create(g, size);
    if (!k) TRY(df_fail_mem(d, "buffer of a GPU", sizeof *k));
    if (!is_reserved) {
        memory_shrink_cache(g, 0);
        is_reserved = memory_reserve_bytes(g, size);
    }
    if (!is_reserved) TRY(memory_fail_limit(g, d, size));
    df_cu_result r = g->dr->mem_alloc(&p, (size_t)size);
    if (r == DF_CU_OUT_OF_MEMORY) {
        df_logf(g->log, memory, "cuda: GPU %d: %llu bytes could not be had: cached ones go back",
                g->ordinal, (unsigned long long)size);
        memory_shrink_cache(g, 0);
        r = g->dr->mem_alloc(&p, (size_t)size);
    }
    if (r == DF_CU_OUT_OF_MEMORY) TRY(memory_fail_exhausted(g, d, size));
    if (r) TRY(df_gpu_failed(g, q, d, r, false, "cuMemAlloc"));
    k->b.data = (void *)(uintptr_t)p;
    k->b.cls = cls;
    *out = k;
done:
    if (is_reserved) memory_end_reservation(q, size, st == DEFT_OK ? k : NULL);
    if (k && st != DEFT_OK) gpu_block_free_struct(g, k);
    return st;
}

static void memory_init_buffer(df_gpu *g, df_gpu_block *k, int64_t bytes, df_buffer **out)
{
    k->b.bytes = bytes;
    k->b.home = &g->home;
    k->b.release = (df_buffer_release){ 0 };
    atomic_store_explicit(&k->b.refs, 1, memory_order_relaxed);
    *out = &k->b;
}

deft_status df_gpu_buffer(df_queue *q, df_diag *d, int64_t bytes, df_buffer **out)
{
    df_gpu *const g = q->g;
    uint64_t size;
    if (bytes < 0 || bytes > MAX_SIZE)
        return df_fail(d, DEFT_E_MEMORY, "buffer: %lld bytes are more than any GPU has",
                       (long long)bytes);
    deft_status st = df_gpu_check(g, d);
    if (st != DEFT_OK) return st;
    const uint32_t cls = df_size_class((uint64_t)bytes, &size);
    df_assert(cls < DF_GPU_CLASSES);
    df_gpu_block *k = memory_reuse_own(q, cls);
    if (!k) {
        st = df_queue_enter(q, d);
        if (st != DEFT_OK) return st;
        k = memory_reuse_others(q, cls);
        if (!k) st = gpu_block_allocate(q, d, size, cls, &k);
        df_gpu_leave(g);
    }
    if (st == DEFT_OK) memory_init_buffer(g, k, bytes, out);
    return st;
}

/* ---- memory of the caller ---- */

/* Whether [p, p + bytes) is within one allocation. True when the driver cannot say. */
static bool is_within(const df_gpu *g, df_cu_ptr p, int64_t bytes)
{
    df_cu_ptr start = 0;
    size_t size = 0;
    if (g->dr->pointer_attribute(&start, ATTR_RANGE_START, p) ||
        g->dr->pointer_attribute(&size, ATTR_RANGE_SIZE, p))
        return true;
    return p >= start && (uint64_t)bytes <= size && p - start <= size - (uint64_t)bytes;
}

static deft_status check_theirs(df_gpu *g, df_diag *d, df_cu_ptr p, int64_t bytes)
{
    unsigned type = 0;
    int ordinal = -1;
    df_cu_result r = g->dr->pointer_attribute(&type, ATTR_MEMORY_TYPE, p);
    if (r == INVALID_VALUE || (!r && type != TYPE_DEVICE))
        return df_fail(d, DEFT_E_ARG, "cuda: 0x%llx is no address of a GPU's memory",
                       (unsigned long long)p);
    if (!r) r = g->dr->pointer_attribute(&ordinal, ATTR_ORDINAL, p);
    if (r) return df_gpu_failed(g, NULL, d, r, false, "cuPointerGetAttribute");
    if (ordinal != g->ordinal)
        return df_fail(d, DEFT_E_ARG, "cuda: 0x%llx is memory of GPU %d, not of GPU %d",
                       (unsigned long long)p, ordinal, g->ordinal);
    if (!is_within(g, p, bytes))
        return df_fail(d, DEFT_E_ARG, "cuda: %lld bytes at 0x%llx reach beyond that memory",
                       (long long)bytes, (unsigned long long)p);
    return DEFT_OK;
}

deft_status df_gpu_wrap(df_gpu *g, df_diag *d, void *data, int64_t bytes, df_buffer **out)
{
    if (bytes < 0) return df_fail(d, DEFT_E_ARG, "cuda: %lld bytes", (long long)bytes);
    deft_status st = df_gpu_enter(g, d);
    if (st != DEFT_OK) return st;
    TRY(check_theirs(g, d, (df_cu_ptr)(uintptr_t)data, bytes));
    df_gpu_block *const k = gpu_block_create(g, 0);
    if (!k) TRY(df_fail_mem(d, "buffer of a GPU", sizeof *k));
    k->b.data = data;
    memory_init_buffer(g, k, bytes, out);
done:
    df_gpu_leave(g);
    return st;
}

deft_status df_gpu_used(df_buffer *b, df_diag *d, df_queue *q)
{
    df_gpu_block *const k = gpu_block_of(b);
    df_gpu *const g = k->g;
    if (q->g != g)
        return df_fail(d, DEFT_E_ARG, "cuda: memory of GPU %d cannot be used in a queue of GPU %d",
                       g->ordinal, q->g->ordinal);
    deft_status st = df_driver_usable(g->dr, d);
    if (st != DEFT_OK || !k->q) return st; /* no queue: memory of the caller */
    pthread_mutex_lock(&g->lock);
    bool is_known = k->q == q;
    for (size_t i = 0; i < k->users.n && !is_known; i++) is_known = k->users.at[i] == q;
    if (!is_known && df_vec_push(g->mem, &k->users, q))
        q->refs++;
    else if (!is_known)
        st = df_fail_mem(d, "buffer of a GPU", sizeof q);
    pthread_mutex_unlock(&g->lock);
    return st;
}

/* ---- memory of other allocators ---- */

deft_status df_gpu_borrower(df_queue *q, df_diag *d, df_buffer **out)
{
    df_gpu *const g = q->g;
    df_gpu_block *const k = gpu_block_create(g, 0);
    if (!k) return df_fail_mem(d, "buffer of a GPU", sizeof *k);
    pthread_mutex_lock(&g->lock);
    set_queue(k, q);
    pthread_mutex_unlock(&g->lock);
    memory_init_buffer(g, k, 0, out);
    return DEFT_OK;
}

void df_gpu_lend(df_buffer *b, void *data, int64_t bytes, const df_gpu_loan *loan)
{
    df_gpu_block *const k = gpu_block_of(b);
    df_assert(k->size == 0 && k->q && !k->loan.back);
    b->data = data;
    b->bytes = bytes;
    k->loan = *loan;
}

bool df_memory_claim(df_gpu *g, uint64_t bytes)
{
    pthread_mutex_lock(&g->lock);
    const bool fits =
        !g->o.max_bytes ||
        g->stats.live_bytes + g->stats.cached_bytes + g->coming + bytes <= g->o.max_bytes;
    if (fits) memory_count_live(g, bytes);
    pthread_mutex_unlock(&g->lock);
    return fits;
}

void df_memory_unclaim(df_gpu *g, uint64_t bytes)
{
    pthread_mutex_lock(&g->lock);
    g->stats.live_bytes -= bytes;
    pthread_mutex_unlock(&g->lock);
}

/* ---- the GPU as a whole ---- */

df_allocator_stats df_gpu_read(df_gpu *g)
{
    if (df_driver_usable(g->dr, NULL) != DEFT_OK) return (df_allocator_stats){ 0 };
    pthread_mutex_lock(&g->lock);
    const df_allocator_stats s = g->stats;
    pthread_mutex_unlock(&g->lock);
    return s;
}

void df_memory_init(df_gpu *g)
{
    g->home = (df_buffer_owner){ .dev = g->o.dev, .release = memory_release_buffer };
    g->ages = (df_gpu_link){ &g->ages, &g->ages };
}

void df_memory_leave(df_queue *q)
{
    df_gpu *const g = q->g;
    df_gpu_link *at = g->ages.prev;
    while (at != &g->ages) {
        df_gpu_block *const k = (df_gpu_block *)(void *)at;
        at = at->prev;
        if (k->q != q) continue;
        if (!q->is_unsure) {
            gpu_list_remove(&q->free, k);
            set_queue(k, NULL);
            gpu_list_add(&g->orphans, k);
        } else {
            gpu_cache_remove(g, k);
            stick(g, k);
        }
    }
}

void df_memory_finish(df_gpu *g, bool is_entered)
{
    df_gpu_block *k = g->stuck;
    while (g->ages.prev != &g->ages) {
        df_gpu_block *const old = (df_gpu_block *)(void *)g->ages.prev;
        gpu_cache_remove(g, old);
        old->next = k;
        k = old;
    }
    while (k) {
        df_gpu_block *const next = k->next;
        if (is_entered) (void)g->dr->mem_free(gpu_block_address(k));
        gpu_block_free_struct(g, k);
        k = next;
    }
    g->stuck = NULL;
}
