/* SPDX-License-Identifier: Apache-2.0
 *
 * Final cones, and values that they compute more than once. Several kernels may compute a value, or
 * one kernel at several elements, or a loop again and again along which the value does not move.
 * Computing an addition again is cheaper than storing and loading its result. For an exponential it
 * is not.
 */
#include "fuser/fuse.h"

#include <string.h>

/* The most vector instructions per element that are spent again instead of storing a value: */
#define CHEAP 10.0f         /* for a value that several kernels compute */
#define CHEAP_SCALAR 200.0f /* for a value of one element */
#define CHEAP_WITHIN 64.0f  /* for a value that one kernel computes at several elements */
#define CHEAP_AGAIN 16.0f   /* for a value that a loop of its kernel repeats */
#define CHEAP_FAR 48.0f     /* for a large value that kernels much later need again */

/* A value of at least df_limits.over_bytes has left the caches when so many launches have run. A
 * load of it then waits for memory, as its store did. */
#define FAR_LAUNCHES 8
/* The epilogue of a product computes a value again if that takes at most this part of the
 * instructions of the product. */
#define LEAST_OF_PRODUCT 16

/* A repeated value is stored only when it is repeated at least LEAST_REPEATS times, and when its
 * kernel spends at least WORTH_A_LAUNCH vector instructions per thread on it: storing it takes a
 * launch more. */
#define LEAST_REPEATS 4
#define WORTH_A_LAUNCH (1 << 18)

/* ---- final cones ---- */

/* A bit for each loop along which a map moves. */
static uint32_t loops_of(const pass *p, map_id map)
{
    const index_map *const m = map_at(p, map);
    uint32_t used = 0;
    for (uint32_t j = 0; j < m->rank; j++)
        if (m->axis[j] != FIXED) used |= 1u << m->axis[j];
    for (uint32_t l = 0; l < MAX_LOOPS; l++)
        if (!df_same_slot(m->lcoef[l], SLOT_ZERO)) used |= 1u << l;
    return used;
}

/* A group may have RED loops, but no reduction or scan, because its reductions are loaded by now. A
 * RED loop then becomes a loop like the others, or of extent 1 when no head moves along it. RED
 * loops stay when one head moves along them and another does not: that other head must store once
 * per row, even when the row has no elements. */
static void drop_unused_roles(pass *p, group *g)
{
    if (g->has_red || g->has_scan) return;
    uint32_t by_some = 0, by_all = UINT32_MAX;
    for (head_id h = g->first_head; !IS_NONE(h); h = head_at(p, h)->next) {
        const uint32_t used = loops_of(p, head_at(p, h)->dest);
        by_some |= used;
        by_all &= used;
    }
    bool stay = false;
    for (uint32_t l = 0; l < g->sp.n; l++) {
        if (!g->sp.red[l]) continue;
        stay |= (by_some & ~by_all) >> l & 1;
        if (by_some >> l & 1) continue;
        g->sp.extent[l] = SLOT_ONE;
        g->sp.cls[l] = CLS_ONE;
    }
    if (stay) return;
    memset(g->sp.red, 0, sizeof g->sp.red);
    for (uint32_t i = 0; i < g->n_items; i++) g->items[i].elem = false;
}

deft_status df_fuse_final_cone(pass *p, group_id gi)
{
    cone *const c = &p->c;
    df_cone_begin(p, c);
    c->sp = group_at(p, gi)->sp;
    c->group = gi;
    c->level = group_at(p, gi)->frame ? UINT32_MAX : group_at(p, gi)->level;
    c->grow = true;
    for (head_id h = group_at(p, gi)->first_head; !IS_NONE(h); h = head_at(p, h)->next)
        df_cone_add_head(p, c, *head_at(p, h));
    deft_status st = p->st == DEFT_OK ? df_cone_run(p, c) : p->st;
    if (st != DEFT_OK) return st;
    if (c->failed)
        return df_fail(p->diag, DEFT_E_INTERNAL, "fuser: %%%u: %s", group_at(p, gi)->node,
                       c->why ? c->why : "no kernel");
    group *const g = group_at(p, gi);
    const uint32_t n = (uint32_t)c->order.n;
    uint32_t *const to = df_arena_alloc(&p->tmp, (c->items.n + 1) * sizeof *to, _Alignof(uint32_t));
    g->items = df_arena_alloc(&p->tmp, (n + 1) * sizeof *g->items, _Alignof(item));
    if (!to || !g->items) return df_fail_mem(p->diag, "fuser", n * sizeof *g->items);
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t i = c->order.at[n - 1 - k];
        to[i] = k;
        g->items[k] = c->items.at[i];
        for (uint32_t s = 0; s < 3; s++)
            if (g->items[k].src[s] != DF_NONE) g->items[k].src[s] = to[g->items[k].src[s]];
    }
    g->n_items = n;
    g->sp = c->sp;
    g->n_stages = c->n_stages;
    g->has_red = c->has_red;
    g->has_scan = c->has_scan;
    uint32_t k = 0;
    for (head_id h = g->first_head; !IS_NONE(h); h = head_at(p, h)->next)
        head_at(p, h)->item = to[c->heads.at[k++].item];
    g->checks = false;
    for (uint32_t i = 0; i < n; i++) g->checks |= g->items[i].kind == IT_TAKE;
    if (g->kind == DF_SEG_ROUTINE && df_op_writes_over((df_op)node_of(p, g->node)->op)) {
        const bool first = IS_NONE(g->mm_val[0]);
        g->checks = !first;
        p->checks_first |= first;
    }
    /* A call may fail. */
    if (g->kind == DF_SEG_ROUTINE && node_of(p, g->node)->op == DF_OP_call) g->checks = true;
    p->has_checks |= g->checks;
    drop_unused_roles(p, g);
    return p->st;
}

/* Whether an item computes something, instead of loading it. */
static bool computes(const item *it)
{
    return it->kind == IT_MAP || it->kind == IT_REDUCE || it->kind == IT_SCAN ||
           it->kind == IT_TAKE || it->kind == IT_RANDOM || it->kind == IT_SURROUND;
}

/* Notes why neighbouring nodes of a group share a kernel. */
static void tell_neighbours(pass *p, const group *g)
{
    for (uint32_t i = 0; i < g->n_items; i++)
        for (uint32_t s = 0; s < 3; s++) {
            const item *const it = &g->items[i];
            if (it->src[s] == DF_NONE || it->kind == IT_LOAD || it->kind == IT_INPUT) continue;
            const item *const from = &g->items[it->src[s]];
            if (from->kind == IT_TILE)
                df_fuse_why(p, from->node, it->node, "fused", "applied to tiles of the product");
            if (!computes(from) || !computes(it)) continue;
            const char *const why =
                it->kind == IT_REDUCE     ? "each element is folded as soon as it is computed"
                : from->kind == IT_REDUCE ? "the row is at hand when its reduction is done"
                : it->kind == IT_SCAN     ? "each element is added as soon as it is computed"
                : it->kind == IT_TAKE     ? "the index is computed where it is used"
                : it->kind == IT_SURROUND ? "it is read where it exists"
                                          : "each element needs that element alone";
            df_fuse_why(p, from->node, it->node, "fused", "%s", why);
        }
}

deft_status df_fuse_final_cones(pass *p)
{
    for (group_id g = { 0 }; g.i < p->groups.n; g.i++) {
        const deft_status st = df_fuse_final_cone(p, g);
        if (st != DEFT_OK) return st;
    }
    return DEFT_OK;
}

void df_fuse_explain(pass *p)
{
    for (group_id g = { 0 }; g.i < p->groups.n && p->lim->keep_why; g.i++)
        tell_neighbours(p, group_at(p, g));
}

/* ---- costs ---- */

float df_fuse_own_cost(const pass *p, uint32_t n)
{
    const df_node *const x = node_of(p, n);
    const df_op_info *const o = &df_op_infos[x->op];
    switch ((df_op_class)o->cls) {
    case DF_CLASS_leaf: return x->op == DF_OP_random ? 60 : x->op == DF_OP_input ? 1 : 0;
    case DF_CLASS_unary:
    case DF_CLASS_binary:
    case DF_CLASS_ternary:
        if (o->how == DF_LOWER_recipe) return 20;
        if (o->how == DF_LOWER_body) return 3;
        return o->kop == DF_K_div || o->kop == DF_K_sqrt || o->kop == DF_K_rem ? 4 : 1;
    case DF_CLASS_reduce:
    case DF_CLASS_scan: return 1e6f;
    case DF_CLASS_view: return 0;
    case DF_CLASS_index: return 8;
    case DF_CLASS_update: return df_surround_is(p, n) ? 3 : 1e6f;
    case DF_CLASS_contract:
    case DF_CLASS_control:
    case DF_CLASS_routine: return 1e6f;
    }
    df_unreachable();
}

/* ---- sharing ---- */

/* How a node is computed: at all, by several groups, by one group at several maps. AGAIN: it stays
 * computed by several groups. */
enum { SEEN = 1, TWICE = 2, WITHIN = 4, AGAIN = 8 };

/* Which groups compute each node, by node. */
typedef struct sharing {
    uint8_t *how;
    group_id *first, *last; /* the first and the last group that computes it */
    uint8_t *marks;         /* work space: a byte for each item of a group */
} sharing;

/* Whether node n costs more to compute again than to load. */
static bool worth_storing(const pass *p, uint32_t n, uint8_t how)
{
    bool scalar = true;
    for (uint32_t j = 0; j < node_of(p, n)->rank; j++) scalar &= df_fuse_cls(p, n, j) == CLS_ONE;
    const float limit = scalar ? CHEAP_SCALAR : how & TWICE ? CHEAP : CHEAP_WITHIN;
    return IS_NONE(p->node_val[n]) && p->cost[n] > limit;
}

static const char *shared_why(uint8_t how)
{
    return how & TWICE ? "several kernels need it, and it costs more than a load"
                       : "needed at several elements, and it costs more than a load";
}

/* The axes along which node n is longer than 1, or may be. */
static uint32_t n_long(const pass *p, uint32_t n)
{
    uint32_t sum = 0;
    for (uint32_t j = 0; j < node_of(p, n)->rank; j++) sum += df_fuse_cls(p, n, j) != CLS_ONE;
    return sum;
}

/* Whether operand `src` of node n is repeated along some axis of n. */
static bool is_repeated(const pass *p, uint32_t n, uint32_t src)
{
    return node_of(p, n)->op != DF_OP_reshape && n_long(p, src) < n_long(p, n);
}

/* Follows views from operand `src` of node n to the node whose elements they show. Sets *repeats
 * when n or one of the views repeats its elements. */
static uint32_t shown(const pass *p, uint32_t n, uint32_t src, bool *repeats)
{
    *repeats = is_repeated(p, n, src);
    while (IS_NONE(p->node_val[src]) && class_of_op(p, src) == DF_CLASS_view) {
        const uint32_t next = node_of(p, src)->src[0].i;
        *repeats |= is_repeated(p, src, next);
        src = next;
    }
    return src;
}

/* The vector instructions per element that node n takes when all repeated values behind it are
 * loaded. Stops above `most`, so that it is at most so many levels deep: each costs something. */
static float cost_beside_rows(const pass *p, uint32_t n, float most)
{
    float sum = df_fuse_own_cost(p, n);
    for (uint32_t s = 0; s < node_of(p, n)->n_src && sum <= most; s++) {
        bool repeats;
        const uint32_t src = shown(p, n, node_of(p, n)->src[s].i, &repeats);
        const bool is_loaded = repeats || !IS_NONE(p->node_val[src]);
        const bool is_leaf = class_of_op(p, src) == DF_CLASS_leaf;
        sum += is_loaded ? 1
               : is_leaf ? df_fuse_own_cost(p, src)
                         : cost_beside_rows(p, src, most - sum);
    }
    return sum;
}

/* Stores the repeated values behind node n that cost more than a load. The cost of n beside rows is
 * at most CHEAP. Sets *again when one of them was not stored yet. Returns whether there are any. */
static bool store_rows(pass *p, uint32_t n, bool *again)
{
    bool any = false;
    for (uint32_t s = 0; s < node_of(p, n)->n_src; s++) {
        bool repeats;
        const uint32_t src = shown(p, n, node_of(p, n)->src[s].i, &repeats);
        if (class_of_op(p, src) == DF_CLASS_leaf) continue;
        if (!repeats) {
            if (IS_NONE(p->node_val[src])) any |= store_rows(p, src, again);
            continue;
        }
        if (p->cost[src] <= CHEAP) continue;
        any = true; /* stored in this round, it still has its cost */
        if (p->must[src] || !IS_NONE(p->node_val[src])) continue;
        p->must[src] = 1;
        *again = true;
        df_fuse_why(p, src, src, "stored", "%s", shared_why(TWICE));
    }
    return any;
}

/* Whether group g reads all that it needs to compute item `at` also for other items. marks: work
 * space for n_items bytes. */
static bool reads_all_anyway(const pass *p, const group *g, uint32_t at, uint8_t *marks)
{
    enum { BEHIND = 1, ELSEWHERE = 2 };
    memset(marks, 0, g->n_items);
    for (head_id h = g->first_head; !IS_NONE(h); h = head_at(p, h)->next)
        marks[head_at(p, h)->item] |= ELSEWHERE;
    for (uint32_t i = g->n_items; i-- > 0;) {
        const item *const it = &g->items[i];
        const bool is_behind = i == at || marks[i] == BEHIND;
        const bool is_free = it->kind == IT_MAP || it->kind == IT_NUM || it->kind == IT_IOTA;
        if (is_behind && !is_free) return false;
        for (uint32_t s = 0; s < 3; s++)
            if (it->src[s] != DF_NONE) marks[it->src[s]] |= is_behind ? BEHIND : ELSEWHERE;
    }
    return true;
}

/* Whether computing node n again takes little of the time of group g, which loads from memory or
 * multiplies. */
static bool takes_little(pass *p, uint32_t n, const group *g)
{
    if (g->kind != DF_SEG_MATMUL) return true;
    const uint32_t a = node_of(p, val_at(p, g->product)->node)->src[0].i;
    const df_slot depth = df_fuse_axis_extent(p, a, node_of(p, a)->rank - 1u);
    return p->st == DEFT_OK && p->cost[n] * LEAST_OF_PRODUCT <= (float)p->now.at[depth.i];
}

/* Whether all groups that compute node n, but the first of them, run so much later that computing n
 * again costs no more than memory does, and need nothing more for it. A training step keeps such
 * values for the gradient alone, and they take memory at its peak. */
static bool is_needed_far(pass *p, uint32_t n, const sharing *s)
{
    const group_id first = s->first[n];
    const df_slot numel = df_fuse_numel(p, n);
    const uint32_t far = p->lim->saves_all ? 1 : FAR_LAUNCHES;
    const int64_t size = (int64_t)deft_dtype_size((deft_dtype)node_of(p, n)->dtype);
    if (p->st != DEFT_OK || p->cost[n] > CHEAP_FAR) return false;
    if (!p->lim->saves_all && p->now.at[numel.i] * size < p->lim->over_bytes) return false;
    for (group_id g = { first.i + 1 }; g.i <= s->last[n].i; g.i++) {
        const group *const w = group_at(p, g);
        for (uint32_t i = 0; i < w->n_items; i++) {
            const item *const it = &w->items[i];
            if (it->node != n || !computes(it)) continue;
            if (w->level < group_at(p, first)->level + far || (it->need & (it->need - 1)) != 0 ||
                !reads_all_anyway(p, w, i, s->marks))
                return false;
            if (!p->lim->saves_all && !takes_little(p, n, w)) return false;
        }
    }
    return true;
}

/* Stores node n, which several kernels need. When n is cheap beside values with fewer elements that
 * it repeats, such as the mean of a row, these are stored in its place: they are less to write, and
 * n takes no more to compute than to load. */
static void store_shared(pass *p, uint32_t n, uint8_t how, bool *again)
{
    if (how & TWICE && cost_beside_rows(p, n, CHEAP) <= CHEAP && store_rows(p, n, again)) return;
    p->must[n] = 1;
    *again = true;
    df_fuse_why(p, n, n, "stored", "%s", shared_why(how));
}

/* Whether loops of the space repeat a value often enough for its cost and size. The value moves
 * along the loops in `used` alone. A guard keeps the answer. A value that does not move along the
 * innermost loop does not count: code computes it once for each row already. */
static bool repeats_pay(pass *p, const space *sp, uint32_t used, uint32_t node)
{
    df_slot repeats = SLOT_ONE;
    if (sp->n == 0 || !(used >> sp->order[sp->n - 1] & 1)) return false;
    for (uint32_t l = 0; l < sp->n; l++)
        if (!(used >> l & 1)) repeats = df_fuse_mul(p, repeats, sp->extent[l]);
    if (df_same_slot(repeats, SLOT_ONE)) return false;
    const df_slot total = df_space_total(p, sp), own = df_fuse_numel(p, node);
    if (p->st != DEFT_OK) return false;
    const int64_t enough = (int64_t)((double)WORTH_A_LAUNCH * p->lim->n_threads / p->cost[node]);
    if (p->now.at[own.i] > p->now.at[total.i] / LEAST_REPEATS) return false;
    if (p->now.at[repeats.i] < LEAST_REPEATS) {
        df_fuse_guard_slot(p, DF_GUARD_at_most, repeats, LEAST_REPEATS - 1);
        return false;
    }
    const bool pays = p->now.at[total.i] >= enough;
    df_fuse_guard_slot(p, pays ? DF_GUARD_at_least : DF_GUARD_at_most, total,
                       pays ? enough : enough - 1);
    if (pays) df_fuse_guard_slot(p, DF_GUARD_at_least, repeats, LEAST_REPEATS);
    return pays;
}

/* Stores what loops of their kernel repeat: of each chain the last value, whose reader moves along
 * more loops. */
static void find_repeated(pass *p, const group *g, bool *again)
{
    for (uint32_t i = 0; i < g->n_items && p->st == DEFT_OK; i++)
        for (uint32_t s = 0; s < 3 && computes(&g->items[i]); s++) {
            if (g->items[i].src[s] == DF_NONE) continue;
            const item *const it = &g->items[g->items[i].src[s]];
            const uint32_t used = loops_of(p, it->map);
            if (it->kind != IT_MAP || used == loops_of(p, g->items[i].map)) continue;
            if (p->cost[it->node] <= CHEAP_AGAIN || p->must[it->node] ||
                !IS_NONE(p->node_val[it->node]) || !repeats_pay(p, &g->sp, used, it->node))
                continue;
            p->must[it->node] = 1;
            *again = true;
            df_fuse_why(p, it->node, it->node, "stored",
                        "a loop repeats it, and it costs more than a load");
        }
}

/* The val that tells whether groups compute parts of one divided val: that of its first part. */
static val_id first_part(const pass *p, group_id g)
{
    const head_id h = group_at(p, g)->first_head;
    val_id v = IS_NONE(h) ? NO_VAL : head_at(p, h)->val;
    while (!IS_NONE(v) && val_at(p, v)->divided && !IS_NONE(val_at(p, v)->over))
        v = val_at(p, v)->over;
    return v;
}

/* Whether a node that groups a and b compute is computed for the same elements there, and not for
 * different parts of one val. */
static bool computes_again(const pass *p, group_id a, group_id b)
{
    const val_id v = first_part(p, a);
    return IS_NONE(v) || !val_at(p, v)->divided || !same_val(v, first_part(p, b));
}

/* Decides about node n: whether it is stored, when it is computed more than once. */
static void share(pass *p, uint32_t n, const sharing *s, bool *again)
{
    if (s->how[n] == SEEN || s->how[n] & AGAIN || !worth_storing(p, n, s->how[n]) || p->must[n])
        return;
    if (s->how[n] != (SEEN | TWICE) || !is_needed_far(p, n, s)) {
        store_shared(p, n, s->how[n], again);
        return;
    }
    s->how[n] |= AGAIN;
    df_fuse_why(p, n, n, "computed again",
                "kernels much later need it, which costs no more than to load it from memory");
}

/* Fills in which groups compute each node. */
static deft_status find_sharing(pass *p, sharing *s)
{
    const uint32_t n_nodes = p->t->n_nodes;
    uint32_t most = 0;
    for (group_id g = { 0 }; g.i < p->groups.n; g.i++)
        if (group_at(p, g)->n_items > most) most = group_at(p, g)->n_items;
    s->how = df_arena_zalloc(&p->tmp, n_nodes + 1, 1);
    s->first = df_arena_alloc(&p->tmp, (n_nodes + 1) * sizeof *s->first, _Alignof(group_id));
    s->last = df_arena_alloc(&p->tmp, (n_nodes + 1) * sizeof *s->last, _Alignof(group_id));
    s->marks = df_arena_alloc(&p->tmp, most + 1, 1);
    if (!s->how || !s->first || !s->last || !s->marks)
        return df_fail_mem(p->diag, "fuser", n_nodes * sizeof *s->last);
    for (group_id g = { 0 }; g.i < p->groups.n; g.i++)
        for (uint32_t i = 0; i < group_at(p, g)->n_items; i++) {
            const item *const it = &group_at(p, g)->items[i];
            const uint32_t n = it->node;
            if (!computes(it)) continue;
            if (!(s->how[n] & SEEN)) s->first[n] = g;
            if (s->how[n] & SEEN && same_group(s->last[n], g))
                s->how[n] |= WITHIN;
            else if (s->how[n] & SEEN && computes_again(p, s->last[n], g))
                s->how[n] |= TWICE;
            s->how[n] |= SEEN;
            s->last[n] = g;
        }
    return DEFT_OK;
}

deft_status df_fuse_find_shared(pass *p, bool *again)
{
    sharing s;
    *again = false;
    const deft_status st = find_sharing(p, &s);
    if (st != DEFT_OK) return st;
    for (group_id g = { 0 }; g.i < p->groups.n; g.i++) {
        const group *const w = group_at(p, g);
        find_repeated(p, w, again);
        for (uint32_t i = 0; i < w->n_items; i++)
            for (uint32_t k = 0; k < 3 && computes(&w->items[i]); k++) {
                const uint32_t src = w->items[i].src[k];
                /* Only the last shared value of a chain is stored. */
                if (src == DF_NONE || s.how[w->items[i].node] != SEEN) continue;
                if (computes(&w->items[src])) share(p, w->items[src].node, &s, again);
            }
        for (head_id h = w->first_head; !IS_NONE(h); h = head_at(p, h)->next) {
            const item *const it = &w->items[head_at(p, h)->item];
            if (computes(it)) share(p, it->node, &s, again);
        }
    }
    return p->st;
}
