/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing between the general code of a kernel and its variants, for each launch. A launch whose
 * numbers and extents equal those of many launches before it asks for a variant, which the compile
 * thread makes (tier_variant.c). A variant whose facts fail too often is given up.
 *
 * Launches count whatever ran them: interpreted ones, and those of O0 code, too. So the variants
 * that a process asks for depend on its launches, and hardly on the time that compiling took. A
 * later process, which has code from the start, then finds those it will ask for.
 */
#include "runtime/tiers/tier_store.h"

#include <stdio.h>

/* Queues the wish of e for the compile thread in tier AUTO. In other tiers returns false, and the
 * caller must compile it. The caller holds `lock`. */
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
    df_number_slots slots = x->numbers;
    slots.f32 &= mask;
    slots.f64 &= mask;
    return slots;
}

/* Returns true when x has a variant of this kind, or of a later one, that fits launch c. */
static bool is_served(df_exec *x, const df_call *c, df_variant_kind kind)
{
    for (int i = 0; i < DF_VARIANTS; i++) {
        const df_variant *const v = atomic_load(&x->variant[i]);
        if (v && v->kind >= kind && df_facts_hold(&v->facts, x->kernel, c)) return true;
    }
    return false;
}

/* Requests a variant of this kind for launches like c, unless x has one. The run is inside. */
static void wish(df_tiers *t, df_exec *x, const df_call *c, df_variant_kind kind, uint32_t after)
{
    entry *const e = df_entry_of(x);
    if (!t->compiler || is_served(x, c, kind)) return;
    df_variant *v = df_mem_zalloc(t->mem, sizeof *v);
    if (!v) return; /* the general code is used; a later launch asks again */
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
    df_variant_destroy(t, v);
    if (makes) df_variant_make(t, e);
}

/* ---- choosing ---- */

/* Drops v, because launch c differs in `numbers`, or because too many launches did not fit. The run
 * is inside. */
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
    df_variant_event(&event, v, DF_WHY_variant_dropped, expected, found);
    atomic_fetch_or(&x->given_up, numbers);
    pthread_mutex_lock(&t->variant_lock);
    const bool is_first = df_variant_is_live(v); /* another thread may have dropped it */
    if (is_first) df_variant_retire(t, v);
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
    df_tiers_check_fork(t); /* resets `inside` in a forked child */
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

/* Returns the best variant of x that fits launch c, or NULL. Drops variants that fail too often. */
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

/* Counts launch c, and asks for the variant that is due. v is the variant that fits now, or NULL.
 * Returns the one that fits afterwards. */
static df_variant *watch_launch(df_tiers *t, df_exec *x, const df_call *c, df_variant *v,
                                bool *is_inside)
{
    const uint32_t n_made = atomic_load_explicit(&x->n_variants, memory_order_relaxed);
    const df_number_slots numbers = numbers_of(x);
    const bool is_best =
        v && v->kind >= DF_VARIANT_ALL && (v->facts.num_mask || !(numbers.f32 | numbers.f64));
    if (n_made >= DF_MAX_VARIANTS || is_best) return v;
    const uint32_t after = t->variant_after << n_made;
    const df_variant_kind kind = df_watch_launch(&x->watch, x->kernel, c, numbers, after);
    if (kind == DF_VARIANT_NONE) return v;
    enter(t, is_inside);
    wish(t, x, c, kind, after);
    return find(t, x, c);
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
    v = watch_launch(t, x, c, v, is_inside);
    if (!v) return general;
    if (atomic_load_explicit(&v->n_missed, memory_order_relaxed) != 0)
        atomic_store_explicit(&v->n_missed, 0, memory_order_relaxed);
    atomic_store_explicit(&v->used,
                          atomic_load_explicit(&t->inside, memory_order_relaxed) >> INSIDE_BITS,
                          memory_order_relaxed);
    return &v->code;
}

void df_tiers_watch(df_tiers *t, df_exec *x, const df_call *c, bool *is_inside)
{
    if (!x->may_vary || df_tier_for(t, x->kernel) != DF_TIER_AUTO ||
        df_exec_state(x, DF_OPT_O0) == STATE_FAILED)
        return;
    (void)watch_launch(t, x, c, NULL, is_inside);
}
