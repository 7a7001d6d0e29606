/* SPDX-License-Identifier: Apache-2.0
 *
 * Making and freeing variants. A kernel has at most two of them, beside its general code, which
 * always fits.
 *
 *   launch  -- facts of a variant hold -->  code of the variant
 *           -- none hold -->                general code
 *
 *   alike launches  -->  wish  -->  compile thread  -->  exec.variant[i]
 *
 * A variant is published by one atomic store, and *retired* by another. A retired variant must not
 * be freed while a run is in its code. So a run increments `inside` before it looks for variants,
 * and decrements it at its end. Retired variants are freed when no run is inside. A run that begins
 * later cannot find them. The upper bits of `inside` number these runs, and are the clock for
 * "least recently used".
 *
 * Bounds: at most DF_MAX_VARIANTS variants are compiled for an entry. Each needs twice as many
 * alike launches as the one before. Variants use only the part of max_code_bytes that general code
 * leaves, and are dropped first. After a failed variant, a kernel gets no more. A number that
 * changed under a variant gets no other variant.
 */
#include "runtime/tiers/tier_store.h"

#include <stdio.h>
#include <string.h>

#include "runtime/os.h"

/* ---- retiring and freeing ---- */

void df_variant_destroy(df_tiers *t, df_variant *v)
{
    if (!v) return;
    if (v->code.main) df_code_release(t, &v->code);
    df_mem_free(t->mem, v, sizeof *v);
}

static void unlink_from(df_variant **list, const df_variant *v)
{
    while (*list && *list != v) list = &(*list)->next;
    if (*list) *list = v->next;
}

static void destroy_all(df_tiers *t, df_variant *list)
{
    for (df_variant *v = list, *next; v; v = next) {
        next = v->next;
        df_variant_destroy(t, v);
    }
}

void df_variants_sweep(df_tiers *t)
{
    pthread_mutex_lock(&t->variant_lock);
    const uint64_t inside = atomic_load(&t->inside) & ((UINT64_C(1) << INSIDE_BITS) - 1);
    df_variant *const list = inside == 0 ? t->retired : NULL;
    if (list) t->retired = NULL;
    pthread_mutex_unlock(&t->variant_lock);
    destroy_all(t, list);
}

void df_variant_retire(df_tiers *t, df_variant *v)
{
    df_exec *const x = &v->of->exec;
    for (int i = 0; i < DF_VARIANTS; i++)
        if (atomic_load_explicit(&x->variant[i], memory_order_relaxed) == v)
            atomic_store(&x->variant[i], NULL); /* must come before `inside` is read */
    if (v->generation == t->generation) {
        unlink_from(&t->variants, v);
        t->variant_bytes -= v->bytes;
    }
    v->next = t->retired;
    t->retired = v;
}

bool df_variant_is_live(const df_variant *v)
{
    const df_exec *const x = &v->of->exec;
    bool any = false;
    for (int i = 0; i < DF_VARIANTS; i++) any |= atomic_load(&x->variant[i]) == v;
    return any;
}

static df_variant *least_used(const df_tiers *t)
{
    df_variant *best = t->variants;
    for (df_variant *v = best; v; v = v->next)
        if (atomic_load_explicit(&v->used, memory_order_relaxed) <
            atomic_load_explicit(&best->used, memory_order_relaxed))
            best = v;
    return best;
}

/* As df_variants_make_room, without freeing. The caller holds variant_lock. */
static void make_room(df_tiers *t, size_t size)
{
    while (t->variants &&
           df_cache_stats_get(t->store).bytes + t->variant_bytes + size > t->max_bytes)
        df_variant_retire(t, least_used(t));
}

void df_variants_make_room(df_tiers *t, size_t size)
{
    pthread_mutex_lock(&t->variant_lock);
    make_room(t, size);
    pthread_mutex_unlock(&t->variant_lock);
    df_variants_sweep(t);
}

void df_variants_finish(df_tiers *t, entry *e)
{
    df_variant *dead = e->wish && e->wish->generation == t->generation ? e->wish : NULL;
    pthread_mutex_lock(&t->variant_lock);
    for (int i = 0; i < DF_VARIANTS; i++) {
        df_variant *const v = atomic_load_explicit(&e->exec.variant[i], memory_order_relaxed);
        if (v) df_variant_retire(t, v);
    }
    for (df_variant **at = &t->retired; *at;) {
        df_variant *const v = *at;
        if (v->of != e) {
            at = &v->next;
            continue;
        }
        *at = v->next;
        v->next = dead;
        dead = v;
    }
    pthread_mutex_unlock(&t->variant_lock);
    destroy_all(t, dead);
}

/* ---- events ---- */

void df_variant_event(df_event *out, const df_variant *v, df_reason reason, const char *expected,
                      const char *found)
{
    const entry *const e = v->of;
    df_event_make(out, reason, e->site ? e->site : e->plan_site, e->ops, expected, found);
    out->other = e->plan_site;
    out->owner = e->owner;
    out->n = e->plan_number;
}

/* ---- making ---- */

/* Publishes v in a free entry of exec.variant, or instead of the least recently used variant.
 * Returns false when v does not fit the bound on code. */
static bool publish(df_tiers *t, df_variant *v)
{
    df_exec *const x = &v->of->exec;
    int place = 0;
    uint64_t oldest = UINT64_MAX;
    pthread_mutex_lock(&t->variant_lock);
    make_room(t, v->bytes);
    const bool fits =
        df_cache_stats_get(t->store).bytes + t->variant_bytes + v->bytes <= t->max_bytes;
    for (int i = 0; i < DF_VARIANTS; i++) {
        df_variant *const other = atomic_load(&x->variant[i]);
        const uint64_t used = other ? atomic_load(&other->used) + 1 : 0;
        if (used >= oldest) continue;
        oldest = used;
        place = i;
    }
    if (fits) {
        df_variant *const before = atomic_load(&x->variant[place]);
        if (before) df_variant_retire(t, before);
        v->next = t->variants;
        t->variants = v;
        t->variant_bytes += v->bytes;
        atomic_store(&v->used, atomic_load(&t->inside) >> INSIDE_BITS);
        atomic_store(&x->variant[place], v);
    }
    pthread_mutex_unlock(&t->variant_lock);
    return fits;
}

/* Gets the code of v: what an earlier process kept, which sets *is_kept, or new code. */
static deft_status make_code(df_tiers *t, df_diag *d, entry *e, df_variant *v, bool *is_kept)
{
    const df_compiler *const c = t->compiler;
    *is_kept = c->recall && c->recall(c->self, &e->kernel, &v->facts, DF_OPT_O2, &v->code);
    if (*is_kept) return DEFT_OK;
    atomic_fetch_add(&t->n_in_compiler, 1);
    const deft_status st = c->specialize(c->self, d, &e->kernel, &v->facts, &v->code);
    atomic_fetch_sub(&t->n_in_compiler, 1);
    df_logf(t->log, compile, "a variant%s%s", st == DEFT_OK ? "" : ": ", d->text);
    return st;
}

void df_variant_make(df_tiers *t, entry *e)
{
    df_diag d = { 0 };
    df_event event;
    char expected[96], found[200], facts[200];
    bool is_kept;
    df_variant *const v = e->wish;
    const uint64_t start = df_os_now_ns();
    const deft_status st = make_code(t, &d, e, v, &is_kept);
    const uint64_t ns = df_os_now_ns() - start;
    const size_t code_bytes = v->code.bytes;
    v->bytes = sizeof *v + code_bytes;
    df_facts_print(&v->facts, &e->kernel, found, sizeof found);
    snprintf(expected, sizeof expected, "code for %.80s", found);
    const size_t at = strlen(found);
    snprintf(facts, sizeof facts, "%s", found);
    snprintf(found + at, sizeof found - at, " in %u launches in a row; took %.2f ms", v->n_launches,
             (double)ns * 1e-6);
    if (st == DEFT_OK)
        df_variant_event(&event, v, is_kept ? DF_WHY_variant_loaded : DF_WHY_variant_new,
                         "any extents and numbers", found);
    if (st == DEFT_OK) df_code_show(t, e, ".variant", &v->code);
    const bool is_made = st == DEFT_OK && publish(t, v);
    if (!is_made)
        df_variant_event(&event, v, DF_WHY_variant_failed, expected,
                         st == DEFT_OK ? "no room within max_code_bytes" : d.text);

    pthread_mutex_lock(&t->lock);
    t->stats.compile_ns += ns;
    t->stats.compiled += is_made && !is_kept;
    t->stats.loaded += is_made && is_kept;
    t->stats.variants += is_made;
    t->stats.failed += st != DEFT_OK;
    if (!is_made) atomic_store_explicit(&e->exec.n_variants, DF_MAX_VARIANTS, memory_order_relaxed);
    e->wish = NULL;
    df_tiers_hear(t, &event);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    df_event_log(t->log, &event);
    const df_kernel_notes told = { .tier = "variant",
                                   .facts = facts,
                                   .error = event.text + event.found,
                                   .compiled = is_made,
                                   .code_bytes = code_bytes,
                                   .compile_ns = ns,
                                   .n_in_module = 1 };
    df_tier_log(t, e, &told);
    if (!is_made) df_variant_destroy(t, v);
    df_variants_sweep(t);
}

entry *df_variant_take(df_tiers *t)
{
    entry *const e = t->first_wish;
    if (e) t->first_wish = e->next_wish;
    return e;
}
