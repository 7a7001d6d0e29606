/* SPDX-License-Identifier: Apache-2.0
 *
 * Variants: made, chosen, given up. Beside its general code, which always fits, a kernel has at
 * most two.
 *
 *   launch --facts hold--> the variant's code            launches alike --> wish --> compile thread
 *          --none holds--> the general code                                 --> exec.variant[i]
 *
 * A variant is published by one atomic store and taken back by another. Whoever takes it back may
 * not free it while a run is in it: a run that finds variants counts itself in `inside` before it
 * looks at them, and out when it has ended. What was taken back is freed when nobody is inside, at
 * the next occasion; a run that begins later cannot find it any more. The count's upper half
 * numbers those runs and is the clock of "least recently used".
 *
 * Bounds: DF_MAX_VARIANTS compiles per kernel and life, each asking for twice as many launches as
 * the one before; variants only use what general code leaves of max_code_bytes and leave first. A
 * kernel that was refused as a variant is not tried again, and numbers that changed never are.
 */
#include "runtime/tiers/tier_store.h"

#include <stdio.h>
#include <string.h>

#include "runtime/os.h"

enum { INSIDE_BITS = 20 };

/* What each launch looks at stands first and together. */
struct df_variant {
    df_code code;
    _Atomic uint64_t used;     /* clock */
    _Atomic uint32_t n_missed; /* launches in a row of which its facts did not hold */
    df_variant_kind kind;
    df_facts facts;
    entry *of;
    size_t bytes;
    uint32_t generation;     /* of tiers: in a forked child older ones are on no list */
    uint32_t n_launches;     /* alike, before it was made */
    struct df_variant *next; /* live or retired */
};

/* ---- taking back ---- */

static void destroy(df_tiers *t, df_variant *v)
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
        destroy(t, v);
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

/* Under the variants' lock. */
static void retire(df_tiers *t, df_variant *v)
{
    df_exec *const x = &v->of->exec;
    for (int i = 0; i < DF_VARIANTS; i++)
        if (atomic_load_explicit(&x->variant[i], memory_order_relaxed) == v)
            atomic_store(&x->variant[i], NULL); /* before `inside` is looked at */
    if (v->generation == t->generation) {
        unlink_from(&t->variants, v);
        t->variant_bytes -= v->bytes;
    }
    v->next = t->retired;
    t->retired = v;
}

static bool is_live(const df_variant *v)
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

/* Under the variants' lock. */
static void make_room(df_tiers *t, size_t size)
{
    while (t->variants &&
           df_cache_stats_get(t->store).bytes + t->variant_bytes + size > t->max_bytes)
        retire(t, least_used(t));
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
        if (v) retire(t, v);
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

/* ---- telling ---- */

static void make_event(df_event *out, const df_variant *v, df_reason reason, const char *expected,
                       const char *found)
{
    const entry *const e = v->of;
    df_event_make(out, reason, e->site ? e->site : e->plan_site, e->ops, expected, found);
    out->other = e->plan_site;
    out->owner = e->owner;
    out->n = e->plan_number;
}

/* ---- making ---- */

/* Puts v into a free place, or that of the one used longest ago; false: the bound has no room. */
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
        if (before) retire(t, before);
        v->next = t->variants;
        t->variants = v;
        t->variant_bytes += v->bytes;
        atomic_store(&v->used, atomic_load(&t->inside) >> INSIDE_BITS);
        atomic_store(&x->variant[place], v);
    }
    pthread_mutex_unlock(&t->variant_lock);
    return fits;
}

void df_variant_make(df_tiers *t, entry *e)
{
    df_diag d = { 0 };
    df_event event;
    char expected[96], found[200], facts[200];
    df_variant *const v = e->wish;
    const uint64_t start = df_os_now_ns();
    atomic_fetch_add(&t->n_in_compiler, 1);
    const deft_status st =
        t->compiler->specialize(t->compiler->self, &d, &e->kernel, &v->facts, &v->code);
    atomic_fetch_sub(&t->n_in_compiler, 1);
    const uint64_t ns = df_os_now_ns() - start;
    df_logf(t->log, compile, "a variant%s%s", st == DEFT_OK ? "" : ": ", d.text);
    const size_t code_bytes = v->code.bytes;
    v->bytes = sizeof *v + code_bytes;
    df_facts_print(&v->facts, &e->kernel, found, sizeof found);
    snprintf(expected, sizeof expected, "code for %.80s", found);
    const size_t at = strlen(found);
    snprintf(facts, sizeof facts, "%s", found);
    snprintf(found + at, sizeof found - at, " in %u launches in a row; took %.2f ms", v->n_launches,
             (double)ns * 1e-6);
    if (st == DEFT_OK) make_event(&event, v, DF_WHY_variant_new, "any extents and numbers", found);
    if (st == DEFT_OK) df_code_show(t, e, ".variant", &v->code);
    const bool is_made = st == DEFT_OK && publish(t, v);
    if (!is_made)
        make_event(&event, v, DF_WHY_variant_failed, expected,
                   st == DEFT_OK ? "no room within max_code_bytes" : d.text);

    pthread_mutex_lock(&t->lock);
    t->stats.compile_ns += ns;
    t->stats.compiled += is_made;
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
    if (!is_made) destroy(t, v);
    df_variants_sweep(t);
}

entry *df_variant_take(df_tiers *t)
{
    entry *const e = t->first_wish;
    if (e) t->first_wish = e->next_wish;
    return e;
}

/* Under the lock: in AUTO queues e's wish; false: the caller is to make it. */
static bool queue_wish(df_tiers *t, entry *e)
{
    if (t->tier != DF_TIER_AUTO) return false;
    df_counted_ref(&e->ref);
    e->next_wish = NULL;
    if (t->first_wish)
        t->last_wish->next_wish = e;
    else
        t->first_wish = e;
    t->last_wish = e;
    t->n_pending++;
    pthread_cond_broadcast(&t->changed);
    return true;
}

static df_number_slots numbers_of(const df_exec *x)
{
    const uint64_t mask = ~atomic_load_explicit(&x->given_up, memory_order_relaxed);
    return (df_number_slots){ x->numbers.f32 & mask, x->numbers.f64 & mask };
}

/* Whether x has a variant of this kind or better for launches like c. */
static bool is_served(df_exec *x, const df_call *c, df_variant_kind kind)
{
    for (int i = 0; i < DF_VARIANTS; i++) {
        const df_variant *const v = atomic_load(&x->variant[i]);
        if (v && v->kind >= kind && df_facts_hold(&v->facts, x->kernel, c)) return true;
    }
    return false;
}

/* The run is inside. */
static void wish(df_tiers *t, df_exec *x, const df_call *c, df_variant_kind kind, uint32_t after)
{
    entry *const e = df_entry_of(x);
    if (!t->compiler || is_served(x, c, kind)) return;
    df_variant *v = df_mem_zalloc(t->mem, sizeof *v);
    if (!v) return; /* the general code goes on; asked again some launches later */
    v->of = e;
    v->kind = kind;
    v->n_launches = kind == DF_VARIANT_NUMBERS ? after * DF_NUMBERS_FACTOR : after;
    v->generation = t->generation;
    df_facts_take(&v->facts, &x->watch, x->kernel, c, kind, numbers_of(x), after);

    bool makes = false;
    pthread_mutex_lock(&t->lock);
    const uint32_t n_made = atomic_load_explicit(&x->n_variants, memory_order_relaxed);
    const bool may = !e->wish && n_made < DF_MAX_VARIANTS &&
                     (t->tier != DF_TIER_AUTO || df_tiers_need_thread(t));
    if (may) {
        e->wish = v;
        v = NULL;
        atomic_store_explicit(&x->n_variants, n_made + 1, memory_order_relaxed);
        makes = !queue_wish(t, e);
    }
    pthread_mutex_unlock(&t->lock);
    destroy(t, v);
    if (makes) df_variant_make(t, e);
}

/* ---- choosing ---- */

/* Launch c breaks the facts of v, of `numbers` for the first time. The run is inside. */
static void give_up(df_tiers *t, df_variant *v, const df_call *c, uint64_t numbers)
{
    df_event event;
    char expected[160], found[96];
    df_exec *const x = &v->of->exec;
    df_facts_print(&v->facts, x->kernel, expected, sizeof expected);
    if (numbers)
        df_facts_print_numbers(numbers, c->args->num, x->kernel, found, sizeof found);
    else
        snprintf(found, sizeof found, "others in %u launches in a row", atomic_load(&v->n_missed));
    make_event(&event, v, DF_WHY_variant_dropped, expected, found);
    atomic_fetch_or(&x->given_up, numbers);
    pthread_mutex_lock(&t->variant_lock);
    const bool is_first = is_live(v); /* another thread may have been here */
    if (is_first) retire(t, v);
    pthread_mutex_unlock(&t->variant_lock);
    if (!is_first) return;
    pthread_mutex_lock(&t->lock);
    t->stats.variants_dropped++;
    df_tiers_hear(t, &event);
    pthread_mutex_unlock(&t->lock);
    df_event_log(t->log, &event);
}

static void enter(df_tiers *t, bool *is_inside)
{
    if (*is_inside) return;
    df_tiers_check_fork(t); /* which begins the count anew */
    atomic_fetch_add(&t->inside, (UINT64_C(1) << INSIDE_BITS) + 1);
    *is_inside = true;
}

void df_tiers_leave(df_tiers *t)
{
    atomic_fetch_sub(&t->inside, 1);
}

static bool has_variants(const df_exec *x)
{
    bool any = false;
    for (int i = 0; i < DF_VARIANTS; i++)
        any |= atomic_load_explicit(&x->variant[i], memory_order_relaxed) != NULL;
    return any;
}

/* The best of x's variants that fits, or NULL. */
static df_variant *find(df_tiers *t, df_exec *x, const df_call *c)
{
    df_variant *best = NULL;
    for (int i = 0; i < DF_VARIANTS; i++) {
        df_variant *const v = atomic_load(&x->variant[i]);
        if (!v) continue;
        const uint64_t numbers = df_facts_other_numbers(&v->facts, c);
        if (numbers == 0 && df_facts_hold(&v->facts, x->kernel, c)) {
            if (!best || v->kind > best->kind) best = v;
            continue;
        }
        const uint32_t n = atomic_load_explicit(&v->n_missed, memory_order_relaxed) + 1;
        atomic_store_explicit(&v->n_missed, n, memory_order_relaxed);
        if (numbers || n > t->variant_after * DF_MISSED_FACTOR) give_up(t, v, c, numbers);
    }
    return best;
}

const df_code *df_tiers_choose(df_tiers *t, df_exec *x, const df_code *general, const df_call *c,
                               bool *is_inside)
{
    if (!x->may_vary) return general;
    df_variant *v = NULL;
    if (has_variants(x)) {
        enter(t, is_inside);
        v = find(t, x, c);
    }
    const uint32_t n_made = atomic_load_explicit(&x->n_variants, memory_order_relaxed);
    const df_number_slots numbers = numbers_of(x);
    const bool is_best =
        v && v->kind >= DF_VARIANT_ALL && (v->facts.num_mask || !(numbers.f32 | numbers.f64));
    if (n_made < DF_MAX_VARIANTS && !is_best && general == &df_entry_of(x)->code[DF_OPT_O2]) {
        const uint32_t after = t->variant_after << n_made;
        const df_variant_kind kind = df_watch_launch(&x->watch, x->kernel, c, numbers, after);
        if (kind != DF_VARIANT_NONE) {
            enter(t, is_inside);
            wish(t, x, c, kind, after);
            v = find(t, x, c);
        }
    }
    if (!v) return general;
    if (atomic_load_explicit(&v->n_missed, memory_order_relaxed) != 0)
        atomic_store_explicit(&v->n_missed, 0, memory_order_relaxed);
    atomic_store_explicit(&v->used,
                          atomic_load_explicit(&t->inside, memory_order_relaxed) >> INSIDE_BITS,
                          memory_order_relaxed);
    return &v->code;
}
