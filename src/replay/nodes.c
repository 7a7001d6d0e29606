/* SPDX-License-Identifier: Apache-2.0
 *
 * One hash table contains the children of all nodes, by parent, function and signature. The child
 * that was used last is tried first, so a program that repeats itself does not use the table.
 *
 * The ring of use contains only leaves, because only leaves can be evicted. A node enters the ring
 * when it is created and when its last child is removed. In the second case it was used no earlier
 * than that child, so the search for its position begins there.
 */
#include "replay/nodes.h"

#include <string.h>

#include "base/hash.h"

enum { FIRST_SLOTS = 64 };

bool df_nodes_init(df_nodes *s, const df_mem *mem)
{
    memset(s, 0, sizeof *s);
    s->mem = mem;
    s->leaves.older = s->leaves.newer = &s->leaves;
    s->n_slots = FIRST_SLOTS;
    s->table = df_mem_zalloc(mem, s->n_slots * sizeof *s->table);
    return s->table != NULL;
}

void df_nodes_finish(df_nodes *s)
{
    for (df_tree_node *n = s->first, *after; n; n = after) {
        after = n->after;
        df_layout_destroy(s->mem, &n->layout);
        df_mem_free(s->mem, n, sizeof *n);
    }
    df_mem_free(s->mem, s->table, s->n_slots * sizeof *s->table);
}

static df_tree_node **slot_of(const df_nodes *s, uint64_t parent, uint64_t fn, uint64_t variant)
{
    return &s->table[df_mix(df_mix(df_mix(0, parent), fn), variant) & (s->n_slots - 1)];
}

static bool is_for(const df_tree_node *n, const df_tree_node *p, const df_tree_call *c)
{
    return n->parent == p && n->fn == c->fn && n->variant == c->variant &&
           df_layout_fits(n->layout, c);
}

df_tree_node *df_nodes_find(const df_nodes *s, const df_tree_node *p, const df_tree_call *c)
{
    if (p->latest && is_for(p->latest, p, c)) return p->latest;
    df_tree_node *n = *slot_of(s, p->number, c->fn, c->variant);
    while (n && !is_for(n, p, c)) n = n->chain;
    return n;
}

static void chain_in(df_nodes *s, df_tree_node *n)
{
    df_tree_node **const slot = slot_of(s, n->parent->number, n->fn, n->variant);
    n->chain = *slot;
    *slot = n;
}

static void chain_out(df_nodes *s, df_tree_node *n)
{
    df_tree_node **at = slot_of(s, n->parent->number, n->fn, n->variant);
    while (*at != n) at = &(*at)->chain;
    *at = n->chain;
}

/* Doubles the table. Without memory the old table remains, and its chains get longer. */
static void grow_table(df_nodes *s)
{
    const size_t n = 2 * s->n_slots;
    df_tree_node **const table = df_mem_zalloc(s->mem, n * sizeof *table);
    if (!table) return;
    df_mem_free(s->mem, s->table, s->n_slots * sizeof *s->table);
    s->table = table;
    s->n_slots = n;
    for (df_tree_node *p = s->first; p; p = p->after) chain_in(s, p);
}

static void leaf_out(df_tree_node *n)
{
    n->older->newer = n->newer;
    n->newer->older = n->older;
    n->older = n->newer = NULL;
}

/* Inserts n into the ring of use, as the next newer leaf after `at`. */
static void leaf_in(df_tree_node *n, df_tree_node *at)
{
    n->older = at;
    n->newer = at->newer;
    n->older->newer = n->newer->older = n;
}

void df_nodes_touch(df_nodes *s, df_tree_node *n)
{
    n->used = ++s->clock;
    n->parent->latest = n;
    if (n->child) return;
    leaf_out(n);
    leaf_in(n, s->leaves.older);
}

df_tree_node *df_nodes_add(df_nodes *s, df_tree_node *p, const df_tree_call *c)
{
    df_tree_node *const n = df_mem_zalloc(s->mem, sizeof *n);
    if (!n) return NULL;
    n->layout = df_layout_create(s->mem, c);
    if (!n->layout) {
        df_mem_free(s->mem, n, sizeof *n);
        return NULL;
    }
    n->parent = p;
    n->fn = c->fn;
    n->variant = c->variant;
    n->depth = p->depth + 1;
    n->number = ++s->n_made;
    if (++s->n > s->n_slots) grow_table(s);
    chain_in(s, n);
    n->before = s->last;
    *(s->last ? &s->last->after : &s->first) = n;
    s->last = n;
    if (!p->child && p != &s->root) leaf_out(p);
    n->next = p->child;
    if (n->next) n->next->prev = n;
    p->child = n;
    leaf_in(n, s->leaves.older);
    df_nodes_touch(s, n);
    return n;
}

/* Inserts p, which has lost its last child, into the ring of use. Its position is `from` or newer:
 * p was used no earlier than that child. */
static void become_leaf(df_nodes *s, df_tree_node *p, df_tree_node *from)
{
    while (from != &s->leaves && from->used < p->used) from = from->newer;
    leaf_in(p, from->older);
}

void df_nodes_remove(df_nodes *s, df_tree_node *n)
{
    df_tree_node *const p = n->parent, *const newer = n->newer;
    df_assert(!n->graph && !n->child);
    chain_out(s, n);
    leaf_out(n);
    *(n->prev ? &n->prev->next : &p->child) = n->next;
    if (n->next) n->next->prev = n->prev;
    if (p->latest == n) p->latest = NULL;
    if (!p->child && p != &s->root) become_leaf(s, p, newer);
    *(n->before ? &n->before->after : &s->first) = n->after;
    *(n->after ? &n->after->before : &s->last) = n->before;
    s->n--;
    df_layout_destroy(s->mem, &n->layout);
    df_mem_free(s->mem, n, sizeof *n);
}

bool df_nodes_rename(df_nodes *s, df_tree_node *n, const df_tree_call *c)
{
    df_layout *const l = df_layout_create(s->mem, c), *const old = n->layout;
    if (!l) return false;
    if (l->n_out == old->n_out) {
        memcpy(l->in_way, old->in_way, l->n_out * sizeof *l->in_way);
        memcpy(l->outside, old->outside, l->n_out * sizeof *l->outside);
    }
    df_layout_destroy(s->mem, &n->layout);
    chain_out(s, n);
    n->layout = l;
    n->variant = c->variant;
    n->placed = false;
    n->why_unplaced = DF_TREE_WHY_variants;
    chain_in(s, n);
    df_nodes_touch(s, n);
    return true;
}

uint32_t df_nodes_variants(const df_tree_node *p, uint64_t fn, df_tree_node **oldest)
{
    uint32_t n = 0;
    *oldest = NULL;
    for (df_tree_node *k = p->child; k; k = k->next) {
        if (k->fn != fn) continue;
        if (!*oldest || k->used < (*oldest)->used) *oldest = k;
        n++;
    }
    return n;
}

df_tree_node *df_nodes_oldest_leaf(const df_nodes *s, const df_tree_node *but)
{
    df_tree_node *n = s->leaves.newer;
    if (n == but) n = n->newer;
    return n == &s->leaves ? NULL : n;
}
