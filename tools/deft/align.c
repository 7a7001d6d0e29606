/* SPDX-License-Identifier: Apache-2.0
 *
 * See align.h. Equal beginnings and ends first; between them the greedy algorithm of E. W. Myers,
 * "An O(ND) difference algorithm and its variations", 1986, whose memory grows with the square of
 * the number of differences: beyond MOST_EDITS of them nodes are paired by their place.
 */
#include "align.h"

#include <string.h>

#include "base/hash.h"

enum { MOST_EDITS = 3000 };

typedef struct aligner {
    const df_trace *t[2];
    uint64_t *token[2]; /* per node: equal where nodes are alike */
    align_step *steps;
    uint32_t n;
} aligner;

/* What a node is, and what its operands are, not where they stand: a node put in or left out
 * elsewhere changes no token. Operands count by op, dtype and attribute alone, else one
 * difference would be one in all that follows. */
static uint64_t token_of(const df_trace *t, uint32_t k)
{
    const df_node *const n = &t->nodes[k];
    uint32_t words[12] = { n->op, n->dtype, n->rank, n->op == DF_OP_input ? 0 : n->attr };
    for (uint32_t i = 0; i < n->n_src; i++) {
        const df_node *const s = &t->nodes[n->src[i].i];
        words[4 + 2 * i] = (uint32_t)s->op << 16 | (uint32_t)s->dtype << 8 | s->rank;
        words[5 + 2 * i] = s->op == DF_OP_input ? 0 : s->attr;
    }
    return df_hash_bytes(words, sizeof words).lo;
}

static void put(aligner *x, uint32_t a, uint32_t b)
{
    x->steps[x->n++] = (align_step){ a, b };
}

/* Nodes that have no partner in [a0, a1) and [b0, b1): in order, while ops are equal. */
static void put_gap(aligner *x, uint32_t a0, uint32_t a1, uint32_t b0, uint32_t b1)
{
    while (a0 < a1 && b0 < b1 && x->t[0]->nodes[a0].op == x->t[1]->nodes[b0].op) put(x, a0++, b0++);
    while (a0 < a1 && a1 - a0 > b1 - b0) put(x, a0++, DF_NONE);
    while (b0 < b1 && b1 - b0 > a1 - a0) put(x, DF_NONE, b0++);
    while (a0 < a1) put(x, a0++, b0++);
}

/* The furthest x on each diagonal after d edits; row d has 2 d + 1 entries. */
static uint32_t *row(uint32_t *rows, uint32_t d)
{
    return rows + (size_t)d * d;
}

/* Pairs of the middle: a0.. of n nodes, b0.. of m. false: too different, or no memory. */
static bool myers(aligner *x, uint32_t a0, uint32_t n, uint32_t b0, uint32_t m, df_arena *arena,
                  align_step *pairs, uint32_t *n_pairs)
{
    const uint32_t most = n + m < MOST_EDITS ? n + m : MOST_EDITS;
    uint32_t *const rows = df_arena_alloc(arena, (size_t)(most + 1) * (most + 1) * sizeof *rows, 4);
    if (!rows) return false;
    for (uint32_t d = 0; d <= most; d++) {
        uint32_t *const now = row(rows, d), *const was = d ? row(rows, d - 1) : NULL;
        for (uint32_t i = 0; i <= 2 * d; i += 2) {
            /* Diagonal i - d; was[i] is on the one above, was[i - 2] on the one below. */
            const bool down = i == 0 || (i < 2 * d && was[i - 2] < was[i]);
            uint32_t at = d == 0 ? 0 : down ? was[i] : was[i - 2] + 1;
            uint32_t to = at + d - i;
            while (at < n && to < m && x->token[0][a0 + at] == x->token[1][b0 + to]) at++, to++;
            now[i] = at;
            if (at != n || to != m) continue;
            uint32_t k = 0;
            for (uint32_t e = d, j = i, y = to;; e--) {
                uint32_t start = 0, next = j;
                if (e) {
                    const uint32_t *const w = row(rows, e - 1);
                    const bool went_down = j == 0 || (j < 2 * e && w[j - 2] < w[j]);
                    start = went_down ? w[j] : w[j - 2] + 1;
                    next = went_down ? j : j - 2;
                }
                while (at > start) pairs[k++] = (align_step){ a0 + --at, b0 + --y };
                if (e == 0) break;
                if (next == j)
                    y--;
                else
                    at--;
                j = next;
            }
            *n_pairs = k;
            return true;
        }
    }
    return false;
}

static uint64_t *tokens(const df_trace *t, df_arena *arena)
{
    uint64_t *const out = df_arena_new(arena, uint64_t, (size_t)t->n_nodes + 1);
    for (uint32_t k = 0; out && k < t->n_nodes; k++) out[k] = token_of(t, k);
    return out;
}

align_step *align(const df_trace *a, const df_trace *b, df_arena *arena, uint32_t *n)
{
    aligner x = { .t = { a, b }, .token = { tokens(a, arena), tokens(b, arena) } };
    const size_t most = (size_t)a->n_nodes + b->n_nodes + 1;
    x.steps = df_arena_new(arena, align_step, most);
    align_step *const pairs = df_arena_new(arena, align_step, most);
    if (!x.token[0] || !x.token[1] || !x.steps || !pairs) return NULL;
    uint32_t from = 0, end_a = a->n_nodes, end_b = b->n_nodes, n_pairs = 0;
    while (from < end_a && from < end_b && x.token[0][from] == x.token[1][from]) from++;
    while (end_a > from && end_b > from && x.token[0][end_a - 1] == x.token[1][end_b - 1])
        end_a--, end_b--;
    if (!myers(&x, from, end_a - from, from, end_b - from, arena, pairs, &n_pairs)) n_pairs = 0;
    for (uint32_t k = 0; k < from; k++) put(&x, k, k);
    uint32_t at_a = from, at_b = from;
    for (uint32_t i = n_pairs; i-- > 0;) { /* the last pair was found first */
        put_gap(&x, at_a, pairs[i].a, at_b, pairs[i].b);
        put(&x, pairs[i].a, pairs[i].b);
        at_a = pairs[i].a + 1;
        at_b = pairs[i].b + 1;
    }
    put_gap(&x, at_a, end_a, at_b, end_b);
    for (uint32_t k = 0; end_a + k < a->n_nodes; k++) put(&x, end_a + k, end_b + k);
    *n = x.n;
    return x.steps;
}
