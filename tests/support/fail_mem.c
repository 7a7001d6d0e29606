/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks are described beside, not in, the memory given out, so a pointer that is not live is
 * noticed without touching what it points to. Behind each block stands a guard.
 */
#include "support/fail_mem.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_SIZE 16
#define GUARD_BYTE 0xA5
#define FREED_BYTE 0xDD
#define N_SLOTS 4096 /* chains by address: tests hold up to some thousands of blocks */

typedef struct block {
    struct block *next;
    unsigned char *at; /* what the caller sees */
    size_t size;
} block;

struct fail_mem {
    df_mem mem;
    pthread_mutex_t lock;
    block *live[N_SLOTS];
    fail_mem_counts counts;
    size_t fail_in; /* calls until the failure; 0: none armed */
    bool keep_failing;
    size_t only;     /* the size of what fails; 0: any */
    char fault[160]; /* the first one */
};

static size_t slot_of(const void *p)
{
    return ((uintptr_t)p >> 4) % N_SLOTS;
}

static void note_fault(fail_mem *f, const char *what, const void *p, size_t a, size_t b)
{
    if (f->counts.faults++ == 0)
        (void)snprintf(f->fault, sizeof f->fault, "%s (block %p, sizes %zu and %zu)", what, p, a,
                       b);
}

static void *test_alloc(size_t size)
{
    void *const p = malloc(size);
    if (!p) {
        (void)fputs("fail_mem: the test itself is out of memory\n", stderr);
        exit(99);
    }
    return p;
}

static void *block_add(fail_mem *f, size_t size)
{
    block *const b = test_alloc(sizeof *b);
    b->at = test_alloc(size + GUARD_SIZE);
    b->size = size;
    memset(b->at, FREED_BYTE, size); /* fresh memory is not zero */
    memset(b->at + size, GUARD_BYTE, GUARD_SIZE);
    b->next = f->live[slot_of(b->at)];
    f->live[slot_of(b->at)] = b;
    f->counts.live_blocks++;
    f->counts.live_bytes += size;
    if (f->counts.live_bytes > f->counts.peak_bytes) f->counts.peak_bytes = f->counts.live_bytes;
    return b->at;
}

static block **block_find(fail_mem *f, const void *p)
{
    block **at = &f->live[slot_of(p)];
    while (*at && (*at)->at != p) at = &(*at)->next;
    return at;
}

static void block_check(fail_mem *f, const block *b, size_t said)
{
    if (b->size != said) note_fault(f, "returned with another size", b->at, b->size, said);
    for (size_t i = 0; i < GUARD_SIZE; i++)
        if (b->at[b->size + i] != GUARD_BYTE) {
            note_fault(f, "written past its end", b->at, b->size, i);
            return;
        }
}

static void block_remove(fail_mem *f, block **at)
{
    block *const b = *at;
    *at = b->next;
    f->counts.live_blocks--;
    f->counts.live_bytes -= b->size;
    memset(b->at, FREED_BYTE, b->size);
    free(b->at);
    free(b);
}

static bool fails_now(fail_mem *f)
{
    f->counts.calls++;
    if (f->fail_in == 0) return false;
    if (f->fail_in > 1) {
        f->fail_in--;
        return false;
    }
    if (!f->keep_failing) f->fail_in = 0;
    f->counts.failed++;
    return true;
}

static void *resize_locked(fail_mem *f, void *old, size_t old_size, size_t new_size)
{
    block **at = old ? block_find(f, old) : NULL;
    if (old && !*at) {
        note_fault(f, "not live: freed twice or never given out", old, old_size, new_size);
        return NULL;
    }
    if (old) block_check(f, *at, old_size);
    if (!old && old_size) note_fault(f, "no block, but a size", old, old_size, new_size);
    if (new_size == 0) {
        if (old) block_remove(f, at);
        return NULL;
    }
    if ((!f->only || f->only == new_size) && fails_now(f)) return NULL;
    unsigned char *const p = block_add(f, new_size);
    if (old) {
        at = block_find(f, old); /* adding may have put a new block in front */
        memcpy(p, old, (*at)->size < new_size ? (*at)->size : new_size);
        block_remove(f, at);
    }
    return p;
}

static void *resize(void *user, void *old, size_t old_size, size_t new_size)
{
    fail_mem *const f = user;
    pthread_mutex_lock(&f->lock);
    void *const p = resize_locked(f, old, old_size, new_size);
    pthread_mutex_unlock(&f->lock);
    return p;
}

fail_mem *fail_mem_create(void)
{
    fail_mem *const f = test_alloc(sizeof *f);
    *f = (fail_mem){ .mem = { .resize = resize, .user = f }, .fault = "none" };
    if (pthread_mutex_init(&f->lock, NULL) != 0) exit(99);
    return f;
}

void fail_mem_destroy(fail_mem **out)
{
    fail_mem *const f = *out;
    if (!f) return;
    *out = NULL;
    for (size_t i = 0; i < N_SLOTS; i++)
        while (f->live[i]) block_remove(f, &f->live[i]);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

const df_mem *fail_mem_get(fail_mem *f)
{
    return &f->mem;
}

void fail_mem_at(fail_mem *f, size_t n, bool keep_failing)
{
    pthread_mutex_lock(&f->lock);
    f->fail_in = n;
    f->keep_failing = keep_failing;
    pthread_mutex_unlock(&f->lock);
}

void fail_mem_only(fail_mem *f, size_t size)
{
    pthread_mutex_lock(&f->lock);
    f->only = size;
    pthread_mutex_unlock(&f->lock);
}

fail_mem_counts fail_mem_count(fail_mem *f)
{
    pthread_mutex_lock(&f->lock);
    const fail_mem_counts counts = f->counts;
    pthread_mutex_unlock(&f->lock);
    return counts;
}

const char *fail_mem_fault(fail_mem *f)
{
    return f->fault;
}
