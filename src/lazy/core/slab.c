/* SPDX-License-Identifier: Apache-2.0
 *
 * The slabs in which handles are stored.
 *
 * A slab is 8 KiB, aligned to its size, and stays mapped until the context is destroyed.
 * So the header of its slab can be found from any handle, live or stale. The header tells
 * the context, the scope, and whether that scope is still open. Within a scope, handles
 * are given out in address order. Slots whose handle from an earlier scope is still kept
 * are skipped.
 */
#include "lazy/core/lazy.h"

static df_slab *slab_create(deft_ctx *cx)
{
    if (cx->chunk_left < DF_SLAB_SIZE) {
        /* Chunks double from 64 KiB to 1 MiB: small programs stay small. */
        const size_t n = df_min_i64((int64_t)cx->chunks.n, 4) < 4 ? cx->chunks.n : 4;
        const size_t size = ((size_t)65536 << n) + DF_SLAB_SIZE;
        if (!df_vec_reserve(cx->mem, &cx->chunks, 2)) return NULL;
        char *const p = df_mem_alloc(cx->mem, size);
        if (!p) return NULL;
        cx->chunks.at[cx->chunks.n++] = p;
        cx->chunks.at[cx->chunks.n++] = (void *)(uintptr_t)size;
        const uintptr_t up = ((uintptr_t)p + DF_SLAB_SIZE - 1) & ~(uintptr_t)(DF_SLAB_SIZE - 1);
        cx->chunk_at = (char *)up;
        cx->chunk_left = size - (size_t)(up - (uintptr_t)p);
    }
    df_slab *const s = (df_slab *)(void *)cx->chunk_at;
    cx->chunk_at += DF_SLAB_SIZE;
    cx->chunk_left -= DF_SLAB_SIZE;
    memset(s, 0, DF_SLAB_SIZE);
    s->magic = DF_SLAB_MAGIC;
    s->cx = cx;
    return s;
}

static void slab_open(df_slab *s, const df_scope_entry *f, uint32_t depth)
{
    s->site = f->site;
    s->serial = f->serial;
    s->depth = depth;
    s->n = 0;
    s->open = true;
}

bool df_scope_push(deft_ctx *cx, uintptr_t site)
{
    const uint32_t depth = cx->scope[0].first ? cx->depth + 1 : 0;
    if (depth >= DF_MAX_DEPTH) {
        df_error(cx, DEFT_E_LIMIT, "scope_begin: %d scopes are open already", DF_MAX_DEPTH);
        return false;
    }
    df_depth *const d = &cx->runs[depth];
    df_slab **const run = &d->run[d->turn ^= 1u];
    if (!*run && !(*run = slab_create(cx))) {
        df_error(cx, DEFT_E_MEMORY, "scope_begin: could not get %zu bytes", DF_SLAB_SIZE);
        return false;
    }
    df_scope_entry *const f = &cx->scope[depth];
    *f = (df_scope_entry){
        .first = *run, .cur = *run, .site = site, .serial = ++cx->serial, .n_labels = cx->n_labels
    };
    cx->depth = depth;
    slab_open(*run, f, depth);
    return true;
}

static bool next_slab(deft_ctx *cx, df_scope_entry *f)
{
    if (!f->cur->next && !(f->cur->next = slab_create(cx))) return false;
    f->cur = f->cur->next;
    slab_open(f->cur, f, cx->depth);
    return true;
}

deft_tensor *df_handle_new_slow(deft_ctx *cx, uint32_t node)
{
    df_scope_entry *const f = &cx->scope[cx->depth];
    for (;;) {
        df_slab *const s = f->cur;
        while (s->n < DF_SLAB_SLOTS) {
            deft_tensor *const t = df_slab_slot(s, s->n++);
            if (!t->keeps) return df_handle_init(cx, t, node);
        }
        if (!next_slab(cx, f))
            return df_error(cx, DEFT_E_MEMORY, "could not get %zu bytes for handles", DF_SLAB_SIZE);
    }
}
