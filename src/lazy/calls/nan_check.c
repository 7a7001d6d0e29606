/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the operation that makes a NaN. Everything pending that some tensors depend on is
 * computed at once, with the number of NaNs in each float record. The first record that
 * has NaNs, and whose operands have none, has made them. Records in the body of a loop
 * have no value outside it, and those of a branch that is not taken may be NaN. So loops
 * and branches are checked as a whole.
 */
#include "deft/grad.h"
#include "lazy/core/devices.h"
#include "lazy/core/recorder.h"
#include "lazy/run/submit.h"
#include "lazy/run/materialize.h"

#include <string.h>

enum { NEEDED = 1, INSIDE = 2 };

typedef struct nan_search {
    deft_ctx *cx;
    uint32_t n;      /* number of records when the search began */
    uint8_t *flags;  /* per record */
    uint32_t *count; /* per record: its index in want, or DF_BAD */
    df_want *want;
    int64_t *nans; /* per want: the number of NaNs, after count_nans */
    uint32_t n_want;
    size_t bytes;
} nan_search;

static deft_status search_init(nan_search *s, deft_ctx *cx)
{
    const uint32_t n = cx->rec.n;
    *s = (nan_search){ .cx = cx, .n = n };
    s->bytes = n * (sizeof *s->want + sizeof *s->nans + sizeof *s->count + 1) + 1;
    s->want = df_mem_zalloc(cx->mem, s->bytes);
    if (!s->want) return df_fail_mem(&cx->diag, "nan_check", s->bytes);
    s->nans = (int64_t *)(void *)(s->want + n);
    s->count = (uint32_t *)(void *)(s->nans + n);
    s->flags = (uint8_t *)(s->count + n);
    memset(s->count, 0xff, n * sizeof *s->count);
    return DEFT_OK;
}

static void search_finish(nan_search *s)
{
    for (uint32_t i = 0; i < s->n_want; i++) df_value_drop(s->cx, &s->want[i].result);
    if (s->want) df_mem_free(s->cx->mem, s->want, s->bytes);
}

/* Whether the loop of the final record k is nested in another loop. */
static bool ends_inner_loop(const df_rec *r, uint32_t k)
{
    while (r->nodes[k].op != DF_OP_loop) k = r->nodes[k].src[r->nodes[k].n_src - 1].i;
    return r->nodes[r->nodes[k].src[0].i].op == DF_OP_loop;
}

static void find_inside(nan_search *s)
{
    const df_rec *const r = &s->cx->rec;
    for (uint32_t k = 0; k < s->n; k++) {
        const df_node *const node = &r->nodes[k];
        bool inside = node->op == DF_OP_loop;
        for (uint32_t i = 0; i < node->n_src; i++)
            inside |= (s->flags[node->src[i].i] & INSIDE) != 0;
        if (node->op == DF_OP_final) inside = ends_inner_loop(r, k);
        if (inside) s->flags[k] |= INSIDE;
    }
}

/* Marks the records that are needed in any case, and not only by one branch of a cond. */
static void find_needed(nan_search *s)
{
    const df_rec *const r = &s->cx->rec;
    for (uint32_t k = s->n; k-- > 0;) {
        const df_node *const node = &r->nodes[k];
        if (!(s->flags[k] & NEEDED) || r->val[k]) continue;
        const uint32_t n = node->op == DF_OP_cond ? 1 : node->n_src;
        for (uint32_t i = 0; i < n; i++) s->flags[node->src[i].i] |= NEEDED;
    }
}

static int64_t nans_in(const nan_search *s, uint32_t k)
{
    return s->count[k] == DF_BAD ? 0 : s->nans[s->count[k]];
}

/* A list of inputs of a call has the NaNs of an input. */
static void count_passed(const nan_search *s)
{
    for (uint32_t k = 0; k < s->n; k++) {
        const df_node *const node = &s->cx->rec.nodes[k];
        if (node->op == DF_OP_pass)
            s->count[k] = s->count[node->src[nans_in(s, node->src[0].i) > 0 ? 0 : 1].i];
    }
}

/* What computes record k, for messages. */
static const char *name_of_maker(const deft_ctx *cx, uint32_t k)
{
    const df_node *const nodes = cx->rec.nodes;
    const uint8_t op = nodes[k].op;
    const uint32_t call = op == DF_OP_result ? nodes[k].src[0].i : k;
    const df_opaque *const x =
        nodes[call].op == DF_OP_call ? df_opaques_at(&cx->rt->opaques, nodes[call].attr) : NULL;
    return x ? x->name : op == DF_OP_final ? "the loop" : df_op_infos[op].name;
}

static deft_status count_nans(nan_search *s)
{
    deft_ctx *const cx = s->cx;
    for (uint32_t k = 0; k < s->n; k++) {
        if (s->flags[k] != NEEDED || !df_is_float(df_dtype_at(cx, k)) ||
            cx->rec.nodes[k].op == DF_OP_pass)
            continue;
        const uintptr_t site = cx->rec.site[k];
        const uint32_t is_nan = df_to(cx, df_map1(cx, DF_OP_isnan, k, site), DEFT_I64, site);
        const uint32_t all = (1u << cx->rec.nodes[k].rank) - 1;
        const uint32_t sum = all ? df_reduce(cx, DF_OP_sum, is_nan, all, false, site) : is_nan;
        if (sum == DF_BAD) return df_deliver(cx);
        s->count[k] = s->n_want;
        s->want[s->n_want++].node = sum;
    }
    deft_status st = s->n_want ? df_sync(cx, s->want, s->n_want) : DEFT_OK;
    for (uint32_t i = 0; i < s->n_want && st == DEFT_OK; i++)
        st = df_value_read(cx, &cx->diag, s->want[i].result, DEFT_I64, &s->nans[i]);
    if (st == DEFT_OK) count_passed(s);
    return st;
}

static deft_status tell(const nan_search *s, uint32_t k)
{
    deft_ctx *const cx = s->cx;
    const df_op op = (df_op)cx->rec.nodes[k].op;
    char site[DF_SITE_TEXT], text[DF_SHAPE_TEXT];
    df_shape shape;
    int64_t all = 1;
    df_rec_shape(&cx->rec, k, &shape);
    for (uint32_t i = 0; i < shape.rank; i++) all *= shape.dim[i];
    const char *const what = deft_dtype_name(df_dtype_at(cx, k));
    df_shape_text(&shape, text, sizeof text);
    if (op == DF_OP_input || cx->rec.val[k])
        return df_fail(&cx->diag, DEFT_E_NAN,
                       "nan_check: a value of before, %s%s, holds NaN in %lld of %lld elements",
                       what, text, (long long)nans_in(s, k), (long long)all);
    return df_fail(&cx->diag, DEFT_E_NAN,
                   "nan_check: %s at %s makes NaN in %lld of %lld elements of %s%s, from operands "
                   "without",
                   name_of_maker(cx, k),
                   df_ctx_site_text(cx, df_rec_site(cx, k), site, sizeof site),
                   (long long)nans_in(s, k), (long long)all, what, text);
}

static deft_status find_first(const nan_search *s)
{
    const df_rec *const r = &s->cx->rec;
    for (uint32_t k = 0; k < s->n; k++) {
        bool from_operand = false;
        if (nans_in(s, k) == 0) continue;
        for (uint32_t i = 0; i < r->nodes[k].n_src; i++)
            from_operand |= nans_in(s, r->nodes[k].src[i].i) > 0;
        if (!from_operand) return tell(s, k);
    }
    return DEFT_OK;
}

deft_status deft_nan_check(deft_tensor *const *list, size_t n)
{
    deft_ctx *cx = NULL;
    for (size_t i = 0; list && i < n && !cx; i++)
        if (list[i] && df_slab_of(list[i])->magic == DF_SLAB_MAGIC) cx = df_slab_of(list[i])->cx;
    if (!cx) return DEFT_E_ARG;
    df_act(cx, "nan_check", DF_SITE);
    deft_status st = df_may_act(cx);
    if (st == DEFT_OK) st = df_wait_for_steps(cx);
    if (st != DEFT_OK) return st;
    for (size_t i = 0; i < n; i++)
        if (!df_enter_more_faced(cx, "nan_check", (unsigned)i + 1, list[i]) ||
            df_owes(cx, list[i]) || df_node_of(cx, list[i]) == DF_BAD)
            return df_deliver(cx);
    nan_search s;
    st = search_init(&s, cx);
    for (size_t i = 0; i < n && st == DEFT_OK; i++) s.flags[df_node_of(cx, list[i])] |= NEEDED;
    if (st == DEFT_OK) {
        find_inside(&s);
        find_needed(&s);
        st = count_nans(&s);
    }
    if (st == DEFT_OK) st = find_first(&s);
    search_finish(&s);
    return st;
}
