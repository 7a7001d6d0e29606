/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel bodies: writes the final cone of a group as instructions.
 *
 * Accesses are located first, because mode and axes follow from how they move. Then come the stages
 * in order, the row level of each before its element level. A value that depends on a RED loop is
 * written again in each stage that needs it. In a ROW kernel an expensive value is kept instead:
 * its first stage stores it in a scratch row of the thread. Equal instructions are found again
 * (CSE) where their values can be used: a value of row level in all later code, a value of a loop
 * only in that loop.
 *
 * Stores come last in their level, after every load of that level. In-place roots rely on that.
 *
 * Why this file is long: everything that turns a group into a segment, for all kinds of group.
 */
#include "fuser/fuse.h"

#include <string.h>

#define SCRATCH_MAX 65536 /* elements of a row that are kept rather than computed again */

/* ---- instructions ---- */

/* Appends an instruction. Returns its index. */
static uint32_t body_append_ins(body *b, df_ins ins)
{
    pass *const p = b->p;
    if (p->st != DEFT_OK) return 0;
    const uint32_t i = (uint32_t)b->ins.n;
    if (!df_vec_push(p->mem, &b->ins, ins)) p->st = df_fail_mem(p->diag, "fuser", sizeof ins);
    return i;
}

/* Whether the value of x can be used at the current stage and level. */
static bool seen_from_here(const body *b, const df_ins *x)
{
    return x->level == DF_LEVEL_ROW || x->stage == b->stage;
}

/* The callback of recipes, and the base of ins0 to ins2: see df_body_ins. */
static uint32_t body_emit_ins(df_emit *e, df_kop op, deft_dtype t, uint32_t s0, uint32_t s1,
                              uint32_t s2, uint64_t imm)
{
    body *const b = (body *)e;
    pass *const p = b->p;
    const uint32_t n = df_kop_infos[op].n_src;
    const df_ins x = { .op = (uint8_t)op,
                       .dtype = (uint8_t)t,
                       .stage = b->stage,
                       .level = b->level,
                       .src = { n > 0 ? s0 : 0, n > 1 ? s1 : 0, n > 2 ? s2 : 0 },
                       .imm = imm };
    const uint8_t kind = df_kop_infos[op].kind;
    if (op == DF_K_store || kind == DF_KOP_scan || kind == DF_KOP_loop)
        return body_append_ins(b, x);
    uint64_t h = df_mix(df_mix((uint64_t)op << 8 | (uint64_t)t, imm), x.src[0]);
    h = df_mix(df_mix(h, x.src[1]), x.src[2]);
    uint32_t pos = UINT32_MAX, i;
    while ((i = df_table_next(&b->cse, h, &pos)) != DF_NONE) {
        const df_ins *const y = &b->ins.at[i];
        if (y->op == x.op && y->dtype == x.dtype && y->imm == imm && seen_from_here(b, y) &&
            memcmp(y->src, x.src, sizeof x.src) == 0)
            return i;
    }
    i = body_append_ins(b, x);
    if (p->st == DEFT_OK && !df_table_add(&b->cse, p->mem, h, i))
        p->st = df_fail_mem(p->diag, "fuser", sizeof x);
    return i;
}

static bool is_rounding(const df_ins *x)
{
    return x->op == DF_K_cast && x->imm & DF_CAST_RESULT;
}

/* The callback of df_emit for halves in FAST kernels. */
static uint32_t unrounded(df_emit *e, uint32_t x)
{
    const df_ins *const at = ((const body *)e)->ins.at;
    return is_rounding(&at[x]) ? at[x].src[0] : x;
}

/* The callback of df_emit for halves in other kernels. */
static uint32_t before_cast(df_emit *e, uint32_t x, bool *exact)
{
    const df_ins *const at = ((const body *)e)->ins.at;
    if (at[x].op != DF_K_cast || at[at[x].src[0]].dtype != DEFT_F32) return x;
    *exact = at[x].imm & DF_CAST_EXACT;
    return at[x].src[0];
}

void df_body_drop_unread_casts(body *b)
{
    if (b->p->st != DEFT_OK) return;
    uint32_t *const at = df_arena_new(&b->p->tmp, uint32_t, b->ins.n + 1);
    bool *const is_read = df_arena_new(&b->p->tmp, bool, b->ins.n + 1);
    if (!at || !is_read) {
        b->p->st = df_fail_mem(b->p->diag, "fuser", b->ins.n * sizeof *at);
        return;
    }
    for (uint32_t i = 0; i < b->ins.n; i++)
        for (uint32_t s = 0; s < df_kop_infos[b->ins.at[i].op].n_src; s++)
            is_read[b->ins.at[i].src[s]] = true;
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->ins.n; i++) {
        df_ins x = b->ins.at[i];
        at[i] = n;
        if (x.op == DF_K_cast && df_is_half(x.dtype) && !is_read[i]) continue;
        for (uint32_t s = 0; s < df_kop_infos[x.op].n_src; s++) x.src[s] = at[x.src[s]];
        b->ins.at[n++] = x;
    }
    b->ins.n = n;
}

static uint32_t body_ins0(body *b, df_kop op, deft_dtype t, uint64_t imm)
{
    return body_emit_ins(&b->emit, op, t, 0, 0, 0, imm);
}

static uint32_t body_ins1(body *b, df_kop op, deft_dtype t, uint32_t x, uint64_t imm)
{
    return body_emit_ins(&b->emit, op, t, x, 0, 0, imm);
}

static uint32_t body_ins2(body *b, df_kop op, deft_dtype t, uint32_t x, uint32_t y, uint64_t imm)
{
    return body_emit_ins(&b->emit, op, t, x, y, 0, imm);
}

uint32_t df_body_number(body *b, uint32_t which, deft_dtype t)
{
    uint32_t i = 0; /* num has one entry more than num_dtype when memory ended between the two */
    while (i < b->num_dtype.n && (b->num.at[i] != which || b->num_dtype.at[i] != t)) i++;
    if (i == b->num_dtype.n && (!df_vec_push(b->p->mem, &b->num, which) ||
                                !df_vec_push(b->p->mem, &b->num_dtype, (uint8_t)t)))
        b->p->st = df_fail_mem(b->p->diag, "fuser", sizeof which);
    return body_ins0(b, DF_K_num, t, i);
}

/* The value of a slot, as i64. */
static uint32_t slot_value(body *b, df_slot s)
{
    const df_slot_def *const d = &b->p->slots.at[s.i];
    if (d->op == DF_SLOT_const) return body_ins0(b, DF_K_const, DEFT_I64, (uint64_t)d->imm);
    return df_body_number(b, s.i | DF_NUM_IS_SLOT, DEFT_I64);
}

uint64_t df_body_bits(deft_dtype t, uint32_t attr)
{
    uint64_t bits;
    float f;
    double g;
    memcpy(&f, &attr, sizeof f);
    if (!df_is_float(t)) return df_int_bits(t, (int32_t)attr);
    if (df_is_half(t)) return df_half_of_f32(t, f);
    if (t == DEFT_F32) return attr;
    g = f;
    memcpy(&bits, &g, sizeof bits);
    return bits;
}

uint32_t df_body_constant(body *b, deft_dtype t, uint32_t attr)
{
    return body_ins0(b, DF_K_const, t, df_body_bits(t, attr));
}

uint32_t df_body_ins(body *b, df_kop op, deft_dtype t, uint32_t x, uint32_t y, uint32_t z,
                     uint64_t imm)
{
    return body_emit_ins(&b->emit, op, t, x, y, z, imm);
}

/* ---- accesses ---- */

/* A number that is equal for places that may be the same memory. */
static uint32_t memory_of_place(const pass *p, place_id at)
{
    while (!IS_NONE(place_at(p, at)->over)) at = place_at(p, at)->over;
    const storage *const q = place_at(p, at);
    if (q->kind == STORAGE_INTO) return q->index;
    return q->donor != DF_NONE ? q->donor : p->t->n_inputs + at.i;
}

uint32_t df_body_access(body *b, access a)
{
    for (uint32_t i = 0; i < b->access.n; i++) {
        const access *const x = &b->access.at[i];
        if (x->kind == a.kind && x->dtype == a.dtype && x->buf.i == a.buf.i &&
            a.kind != DF_ACCESS_SCRATCH && memcmp(&x->at, &a.at, sizeof a.at) == 0)
            return i;
    }
    if (!df_vec_push(b->p->mem, &b->access, a))
        b->p->st = df_fail_mem(b->p->diag, "fuser", sizeof a);
    return (uint32_t)b->access.n - 1;
}

/* The access to val v at map. */
static uint32_t access_val(body *b, df_access_kind kind, val_id v, map_id map)
{
    pass *const p = b->p;
    const place_id q = val_at(p, v)->place;
    const df_buf buf = place_at(p, q)->unused ? DF_NO_BUF : df_fuse_place_buf(p, q);
    access a = { .kind = (uint8_t)kind,
                 .dtype = node_of(p, place_at(p, q)->node)->dtype,
                 .buf = buf,
                 .memory = memory_of_place(p, q),
                 .at = df_map_locate(p, map, place_at(p, q)->stride) };
    if (kind == DF_ACCESS_AT) memset(a.at.stride, 0, sizeof a.at.stride);
    return df_body_access(b, a);
}

static uint32_t access_input(body *b, df_access_kind kind, uint32_t node, map_id map)
{
    pass *const p = b->p;
    const uint32_t input = node_of(p, node)->attr;
    access a = { .kind = (uint8_t)kind,
                 .dtype = node_of(p, node)->dtype,
                 .buf = df_fuse_input_buf(p, input),
                 .memory = input,
                 .at = df_map_locate(p, map, df_fuse_input_strides(p, input)) };
    if (kind == DF_ACCESS_AT) memset(a.at.stride, 0, sizeof a.at.stride);
    return df_body_access(b, a);
}

static uint32_t access_index(body *b, location at)
{
    at.stride[SPECIAL] = SLOT_ZERO;
    return df_body_access(
        b, (access){ .kind = DF_ACCESS_INDEX, .dtype = DEFT_I64, .buf = DF_NO_BUF, .at = at });
}

/* Where the operand of a lookup is in memory. */
static location take_location(pass *p, const item *it)
{
    df_slot stride[DEFT_MAX_RANK];
    if (!IS_NONE(it->val))
        memcpy(stride, place_at(p, val_at(p, it->val)->place)->stride, sizeof stride);
    else
        memcpy(stride, df_fuse_input_strides(p, node_of(p, it->base)->attr), sizeof stride);
    return df_map_locate(p, it->base_map, stride);
}

/* Whether the location moves along any loop. */
static bool body_location_moves(const location *at)
{
    for (uint32_t l = 0; l < MAX_LOOPS; l++)
        if (!df_same_slot(at->stride[l], SLOT_ZERO)) return true;
    return false;
}

/* The index that iota or random needs, as a location without memory. */
static location index_location(pass *p, const item *it)
{
    df_slot stride[DEFT_MAX_RANK] = { 0 };
    const df_node *const x = node_of(p, it->node);
    if (it->kind == IT_RANDOM)
        df_fuse_contiguous(p, it->node, stride);
    else
        stride[x->attr] = SLOT_ONE;
    return df_map_locate(p, it->map, stride);
}

/* Adds the indices that the conditions of a region need. */
static void region_accesses(body *b, region_id r)
{
    for (; !IS_NONE(r); r = region_at(b->p, r)->outer) {
        const location at = df_region_location(b->p, r);
        if (body_location_moves(&at)) access_index(b, at);
    }
}

/* The access that an item needs, or DF_NONE. A second call returns the same access. */
static uint32_t item_access(body *b, const item *it)
{
    pass *const p = b->p;
    const df_access_kind kind = IS_NONE(it->region) ? DF_ACCESS_LOAD : DF_ACCESS_PART;
    region_accesses(b, it->kind == IT_SURROUND ? it->inner : it->region);
    switch ((item_kind)it->kind) {
    case IT_SURROUND:
    case IT_MAP:
    case IT_REDUCE:
    case IT_SCAN:
    case IT_NUM: return DF_NONE;
    case IT_IOTA:
    case IT_RANDOM: return access_index(b, index_location(p, it));
    case IT_LOAD: return access_val(b, kind, it->val, it->map);
    case IT_TILE: return b->tile = access_val(b, DF_ACCESS_LOAD, it->val, it->map);
    case IT_INPUT: return access_input(b, kind, it->node, it->map);
    case IT_TAKE: {
        location rest = take_location(p, it);
        rest.off = SLOT_ZERO;
        if (body_location_moves(&rest)) access_index(b, rest);
        return !IS_NONE(it->val) ? access_val(b, DF_ACCESS_AT, it->val, it->base_map)
                                 : access_input(b, DF_ACCESS_AT, it->base, it->base_map);
    }
    }
    df_unreachable();
}

/* ---- items ---- */

/* Emits a lookup. */
static uint32_t emit_take(body *b, const item *it, const uint32_t *id)
{
    pass *const p = b->p;
    const df_node *const x = node_of(p, it->node);
    const uint32_t a = item_access(b, it);
    location at = take_location(p, it);
    const uint32_t extent = slot_value(b, df_fuse_axis_extent(p, x->src[0].i, x->attr));
    uint32_t off = body_ins2(b, DF_K_check, DEFT_I64, id[it->src[0]], extent, it->node);
    if (!df_same_slot(at.stride[SPECIAL], SLOT_ONE))
        off = body_ins2(b, DF_K_mul, DEFT_I64, off, slot_value(b, at.stride[SPECIAL]), 0);
    at.off = SLOT_ZERO;
    if (body_location_moves(&at))
        off = body_ins2(b, DF_K_add, DEFT_I64, off,
                        body_ins0(b, DF_K_index, DEFT_I64, access_index(b, at)), 0);
    return body_ins1(b, DF_K_load_at, (deft_dtype)x->dtype, off, a);
}

static uint32_t emit_number(body *b, uint32_t node)
{
    pass *const p = b->p;
    const df_node *const x = node_of(p, node);
    const deft_dtype t = (deft_dtype)x->dtype;
    if (x->op == DF_OP_num) return df_body_number(b, x->arg, t);
    if (x->op == DF_OP_cst) return df_body_constant(b, t, x->attr);
    if (x->op == DF_OP_empty) return body_ins0(b, DF_K_const, t, 0);
    df_slot n = SLOT_ONE; /* count */
    for (uint32_t j = 0; j < node_of(p, x->src[0].i)->rank; j++)
        if (x->attr >> j & 1) n = df_fuse_mul(p, n, df_fuse_axis_extent(p, x->src[0].i, j));
    return df_body_number(b, n.i | DF_NUM_IS_SLOT, t);
}

static uint32_t emit_random(body *b, const item *it)
{
    const df_node *const x = node_of(b->p, it->node);
    uint32_t word[4];
    const uint32_t element = body_ins0(b, DF_K_index, DEFT_I64, item_access(b, it));
    const uint32_t seed = df_body_number(b, x->arg, DEFT_I64),
                   draw = df_body_number(b, x->arg + 1, DEFT_I64);
    df_recipe_philox(&b->emit, seed, draw, element, word);
    return word[x->attr & 3];
}

/* The dtype in which values of t are reduced. */
static deft_dtype wide_dtype(deft_dtype t)
{
    return df_is_half(t) ? DEFT_F32 : t;
}

/* Emits a reduction or scan. Halves are reduced in f32; the result must still be rounded. */
static uint32_t emit_running(body *b, const item *it, const uint32_t *id)
{
    const df_node *const x = node_of(b->p, it->node);
    const deft_dtype t = (deft_dtype)node_of(b->p, x->src[0].i)->dtype;
    const uint32_t src = df_emit_cast(&b->emit, wide_dtype(t), t, id[it->src[0]]);
    return body_ins1(b, (df_kop)df_op_infos[x->op].kop, wide_dtype((deft_dtype)x->dtype), src, 0);
}

/* Emits whether region r holds. It must have a condition. */
static uint32_t emit_region(body *b, region_id r)
{
    const region w = *region_at(b->p, r);
    const location at = df_region_location(b->p, r);
    const uint32_t index = body_location_moves(&at)
                               ? body_ins0(b, DF_K_index, DEFT_I64, access_index(b, at))
                               : slot_value(b, w.off);
    const uint32_t zero = body_ins0(b, DF_K_const, DEFT_I64, 0);
    const uint32_t from = body_ins2(b, DF_K_le, DEFT_BOOL, zero, index, 0);
    const uint32_t to = body_ins2(b, DF_K_lt, DEFT_BOOL, index, slot_value(b, w.extent), 0);
    const uint32_t is = body_ins2(b, DF_K_and, DEFT_BOOL, from, to, 0);
    if (IS_NONE(w.outer)) return is;
    return body_ins2(b, DF_K_and, DEFT_BOOL, emit_region(b, w.outer), is, 0);
}

/* Emits a load, which touches memory only where the region of the item holds. */
static uint32_t emit_load(body *b, const item *it, deft_dtype t)
{
    const uint32_t from = item_access(b, it);
    if (IS_NONE(it->region)) return body_ins0(b, DF_K_load, t, from);
    const uint32_t is = emit_region(b, it->region);
    const uint32_t other =
        it->around != DF_NONE ? emit_number(b, it->around) : body_ins0(b, DF_K_const, t, 0);
    return body_ins2(b, DF_K_load_if, t, is, other, from);
}

/* Emits the value of `value` where the inner region of the item holds, else the number around. */
static uint32_t emit_surround(body *b, const item *it, const item *value, uint32_t id)
{
    const deft_dtype t = (deft_dtype)node_of(b->p, it->node)->dtype;
    const bool is_load = value->kind == IT_LOAD || value->kind == IT_INPUT;
    const bool has_number =
        is_load && same_region(value->region, it->inner) && value->around == it->around;
    if (IS_NONE(it->inner) || has_number) return id;
    const uint32_t is = emit_region(b, it->inner);
    return body_emit_ins(&b->emit, DF_K_select, t, is, id, emit_number(b, it->around), 0);
}

static uint32_t emit_item(body *b, const item *it, const uint32_t *id)
{
    pass *const p = b->p;
    const df_node *const x = node_of(p, it->node);
    const df_op_info *const o = &df_op_infos[x->op];
    const deft_dtype t = (deft_dtype)x->dtype;
    switch ((item_kind)it->kind) {
    case IT_MAP: {
        uint32_t src[3] = { 0 };
        for (uint32_t s = 0; s < x->n_src; s++) src[s] = id[it->src[s]];
        if (o->cls == DF_CLASS_scan) return src[0];
        const uint32_t typed = o->cls == DF_CLASS_ternary ? 1 : 0;
        return df_op_emit(&b->emit, (df_op)x->op, (deft_dtype)node_of(p, x->src[typed].i)->dtype, t,
                          src, x->attr);
    }
    case IT_REDUCE: return emit_running(b, it, id);
    case IT_SCAN: return df_emit_cast(&b->emit, t, wide_dtype(t), emit_running(b, it, id));
    case IT_NUM: return emit_number(b, it->node);
    case IT_IOTA: return body_ins0(b, DF_K_index, DEFT_I64, item_access(b, it));
    case IT_RANDOM: return emit_random(b, it);
    case IT_TAKE: return emit_take(b, it, id);
    case IT_LOAD:
    case IT_TILE:
    case IT_INPUT: return emit_load(b, it, t);
    case IT_SURROUND:
        return emit_surround(b, it, &group_at(p, b->g)->items[it->src[0]], id[it->src[0]]);
    }
    df_unreachable();
}

/* ---- stages ---- */

/* Whether a value is so expensive that a scratch row pays. */
static bool is_dear(const pass *p, const item *it)
{
    if (it->kind == IT_RANDOM) return true;
    return it->kind == IT_MAP && df_op_infos[node_of(p, it->node)->op].how == DF_LOWER_recipe;
}

static uint32_t first_bit(uint32_t bits)
{
    uint32_t i = 0;
    while (!(bits >> i & 1)) i++;
    return i;
}

/* Whether a head stores inside a RED loop. */
static bool head_is_elem(const pass *p, const group *g, const head *h)
{
    const index_map *const m = map_at(p, h->dest);
    for (uint32_t j = 0; j < m->rank; j++)
        if (m->axis[j] != FIXED && g->sp.red[m->axis[j]]) return true;
    for (uint32_t l = 0; l < g->sp.n; l++)
        if (!df_same_slot(m->lcoef[l], SLOT_ZERO) && g->sp.red[l]) return true;
    return false;
}

/* The stage from which on the value of an item is complete. */
static uint32_t ready(const item *it)
{
    return (uint32_t)it->stage + (it->kind == IT_REDUCE);
}

/* Finds the stages that need each item of element level. With `scratch`, an expensive item that
 * several stages need is marked there, and counts as needed in its first stage alone. */
static void body_find_needs(pass *p, group *g, uint32_t *scratch)
{
    for (uint32_t i = 0; i < g->n_items; i++) g->items[i].need = 0;
    for (head_id h = g->first_head; !IS_NONE(h); h = head_at(p, h)->next) {
        item *const it = &g->items[head_at(p, h)->item];
        if (it->elem) it->need |= (uint8_t)(1u << it->stage);
    }
    for (uint32_t i = g->n_items; i-- > 0;) {
        const item *const it = &g->items[i];
        uint32_t bits = it->kind == IT_REDUCE ? 1u << it->stage : it->need;
        if (scratch && it->elem && it->kind != IT_REDUCE && (bits & (bits - 1)) != 0 &&
            is_dear(p, it)) {
            scratch[i] = 0; /* number_scratch sets the access */
            bits = 1u << first_bit(bits);
        }
        if (it->kind != IT_REDUCE && !it->elem) continue;
        for (uint32_t s = 0; s < 3; s++)
            if (it->src[s] != DF_NONE && g->items[it->src[s]].elem)
                g->items[it->src[s]].need |= (uint8_t)bits;
    }
}

/* Emits the stores of the heads that belong to this stage and level. */
static void store_heads(body *b, const group *g, bool elem, uint32_t stage, const uint32_t *id)
{
    pass *const p = b->p;
    for (head_id h = g->first_head; !IS_NONE(h); h = head_at(p, h)->next) {
        const head w = *head_at(p, h);
        if (!b->map) {
            const bool is = head_is_elem(p, g, &w);
            if (is != elem || stage != (is ? ready(&g->items[w.item]) : g->n_stages - 1)) continue;
        }
        const uint32_t a = access_val(b, DF_ACCESS_STORE, w.val, w.dest);
        body_ins1(b, DF_K_store, (deft_dtype)b->access.at[a].dtype, id[w.item], a);
    }
}

static void emit_elem(body *b, const group *g, uint32_t stage, uint32_t *id,
                      const uint32_t *scratch)
{
    for (uint32_t i = 0; i < g->n_items; i++) {
        const item *const it = &g->items[i];
        if (it->kind == IT_REDUCE ? it->stage != stage : !(it->elem && it->need >> stage & 1))
            continue;
        const deft_dtype t = (deft_dtype)node_of(b->p, it->node)->dtype;
        const bool kept = scratch && scratch[i] != DF_NONE;
        if (kept && first_bit(it->need) != stage) {
            id[i] = body_ins0(b, DF_K_load, t, scratch[i]);
            continue;
        }
        id[i] = emit_item(b, it, id);
        if (kept) body_ins1(b, DF_K_store, t, id[i], scratch[i]);
    }
}

/* The value of a complete reduction, in the dtype of its node. */
static uint32_t emit_rounded(body *b, const item *it, uint32_t id)
{
    const deft_dtype t = (deft_dtype)node_of(b->p, it->node)->dtype;
    return df_emit_cast(&b->emit, t, wide_dtype(t), id);
}

static void emit_stages(body *b, const group *g, uint32_t *id, const uint32_t *scratch)
{
    for (uint32_t s = 0; s < g->n_stages; s++) {
        b->stage = (uint8_t)s;
        b->level = DF_LEVEL_ROW;
        for (uint32_t i = 0; i < g->n_items; i++) {
            const item *const it = &g->items[i];
            if (it->kind == IT_REDUCE && ready(it) == s) id[i] = emit_rounded(b, it, id[i]);
            if (!it->elem && it->kind != IT_REDUCE && it->stage == s) id[i] = emit_item(b, it, id);
        }
        store_heads(b, g, false, s, id);
        b->level = DF_LEVEL_ELEM;
        emit_elem(b, g, s, id, scratch);
        store_heads(b, g, true, s, id);
    }
}

static void emit_map(body *b, const group *g, uint32_t *id)
{
    b->stage = 0;
    b->level = DF_LEVEL_ELEM;
    for (uint32_t i = 0; i < g->n_items; i++) id[i] = emit_item(b, &g->items[i], id);
    store_heads(b, g, true, 0, id);
}

/* Adds a scratch row of `row` elements for each marked item. */
static void number_scratch(body *b, const group *g, df_slot row, uint32_t *scratch)
{
    pass *const p = b->p;
    for (uint32_t i = 0; i < g->n_items; i++) {
        if (scratch[i] == DF_NONE) continue;
        access a = { .kind = DF_ACCESS_SCRATCH,
                     .dtype = node_of(p, g->items[i].node)->dtype,
                     .buf = DF_NO_BUF };
        a.at.off = row;
        scratch[i] = df_body_access(b, a);
    }
}

/* The number of elements of a row. */
static df_slot row_length(pass *p, const df_kernel *shape, const df_slot *extent)
{
    df_slot n = SLOT_ONE;
    for (uint32_t x = 0; x < shape->n_axes; x++)
        if (shape->role[x] == DF_AXIS_RED) n = df_fuse_mul(p, n, extent[x]);
    return n;
}

/* ---- segments ---- */

void df_body_init(body *b, pass *p)
{
    *b = (body){ .emit = { .ins = body_emit_ins, .fast = p->t->flags & DF_TRACE_FAST }, .p = p };
    if (b->emit.fast)
        b->emit.unrounded = unrounded;
    else
        b->emit.before_cast = before_cast;
}

void df_body_reset(body *b)
{
    b->ins.n = b->access.n = b->num.n = b->num_dtype.n = 0;
    b->tile = DF_NONE;
    df_table_clear(&b->cse);
}

void df_body_finish(body *b)
{
    const df_mem *const mem = b->p->mem;
    df_vec_finish(mem, &b->ins);
    df_vec_finish(mem, &b->access);
    df_vec_finish(mem, &b->num);
    df_vec_finish(mem, &b->num_dtype);
    df_table_finish(&b->cse, mem);
}

/* Makes the kernel of group g. */
static deft_status body_build_kernel(body *b, group *g, df_seg *seg)
{
    pass *const p = b->p;
    df_body_reset(b);
    for (uint32_t i = 0; i < g->n_items; i++) item_access(b, &g->items[i]);
    for (head_id h = g->first_head; !IS_NONE(h); h = head_at(p, h)->next)
        access_val(b, DF_ACCESS_STORE, head_at(p, h)->val, head_at(p, h)->dest);
    if (p->st != DEFT_OK) return p->st;

    df_kernel shape = { 0 };
    uint8_t order[MAX_LOOPS + 1];
    df_slot extent[MAX_LOOPS + 1];
    const uint32_t n = (uint32_t)b->access.n;
    if (g->kind == DF_SEG_MATMUL) {
        df_fuse_epilogue_axes(p, &g->sp, g->n_row_loops, b->access.at, n, &shape, order, extent);
        seg->n_column_axes = shape.n_axes - 1u - g->n_row_loops;
    } else {
        df_fuse_pick_axes(p, &g->sp, b->access.at, n, &shape, order, extent);
    }
    b->map = shape.mode == DF_MODE_MAP;
    if (b->map) g->n_stages = 1;
    shape.n_stages = (uint8_t)g->n_stages;
    if (g->has_scan) shape.flags |= DF_KERNEL_SCAN;
    if (g->checks) shape.flags |= DF_KERNEL_CHECKS;

    uint32_t *const id = df_arena_new(&p->tmp, uint32_t, g->n_items + 1);
    uint32_t *scratch = NULL;
    const df_slot row = row_length(p, &shape, extent);
    if (shape.mode == DF_MODE_ROW && g->n_stages > 1 && p->st == DEFT_OK) {
        if (p->now.at[row.i] <= SCRATCH_MAX) {
            scratch =
                df_arena_alloc(&p->tmp, (g->n_items + 1) * sizeof *scratch, _Alignof(uint32_t));
            if (!scratch) return df_fail_mem(p->diag, "fuser", g->n_items * sizeof *scratch);
            for (uint32_t i = 0; i < g->n_items; i++) scratch[i] = DF_NONE;
        }
    }
    if (!id) return df_fail_mem(p->diag, "fuser", g->n_items * sizeof *id);
    if (!b->map) body_find_needs(p, g, scratch);
    if (scratch) {
        const size_t before = b->access.n;
        number_scratch(b, g, row, scratch);
        if (b->access.n > before) df_fuse_guard_slot(p, DF_GUARD_at_most, row, SCRATCH_MAX);
    }
    if (b->map)
        emit_map(b, g, id);
    else
        emit_stages(b, g, id, scratch);
    df_body_drop_unread_casts(b);
    if (p->st != DEFT_OK) return p->st;
    seg->c_access = b->tile;
    return df_fuse_seal_body(p, b, shape, order, extent, seg);
}

/* The bind of a buffer that is read or written over `rank` axes through a map. */
static df_bind bind_at(pass *p, df_buf buf, map_id map, const df_slot *stride, uint32_t rank)
{
    const location at = df_map_locate(p, map, stride);
    df_bind out = { .buf = buf, .offset = at.off };
    for (uint32_t i = 0; i < rank && i < DF_MAX_AXES; i++) out.stride[i] = at.stride[i];
    return out;
}

/* The bind of operand s of a product or a routine, over `axes` axes. */
static df_bind bind_operand(pass *p, const group *g, uint32_t s, uint32_t axes)
{
    if (!IS_NONE(g->mm_val[s])) {
        const place_id q = val_at(p, g->mm_val[s])->place;
        return bind_at(p, df_fuse_place_buf(p, q), g->mm_map[s], place_at(p, q)->stride, axes);
    }
    const uint32_t input = node_of(p, g->mm_node[s])->attr;
    return bind_at(p, df_fuse_input_buf(p, input), g->mm_map[s], df_fuse_input_strides(p, input),
                   axes);
}

/* The bind of the whole of val v. */
static df_bind bind_val(pass *p, val_id v)
{
    const place_id q = val_at(p, v)->place;
    const uint32_t rank = node_of(p, val_at(p, v)->node)->rank;
    const df_buf buf = place_at(p, q)->unused ? DF_NO_BUF : df_fuse_place_buf(p, q);
    return bind_at(p, buf, df_map_identity(p, rank), place_at(p, q)->stride, rank);
}

/* Binds the operands and the result of a product or a routine. Returns the node of the result. */
static uint32_t whole_seg(pass *p, const group *g, df_seg *seg)
{
    const uint32_t n = val_at(p, g->product)->node;
    df_bind *const side[2] = { &seg->a, &seg->b };
    for (uint32_t s = 0; s < g->n_operands; s++) {
        const bool shows = s == 1 && g->windows != DF_NONE;
        *side[s] = bind_operand(p, g, s, shows ? 4 : node_of(p, df_fuse_operand(p, n, s))->rank);
    }
    seg->c = bind_val(p, g->product);
    return n;
}

static void matmul_seg(pass *p, const group *g, df_seg *seg)
{
    const uint32_t n = whole_seg(p, g, seg), rank = node_of(p, n)->rank;
    seg->n_batch = rank - 2;
    seg->dtype = (deft_dtype)node_of(p, n)->dtype;
    for (uint32_t i = 0; i + 2 < rank; i++) seg->batch[i] = df_fuse_axis_extent(p, n, i);
    seg->m = df_fuse_axis_extent(p, n, rank - 2);
    seg->n = df_fuse_axis_extent(p, n, rank - 1);
    seg->k = df_fuse_axis_extent(p, node_of(p, n)->src[0].i, rank - 1);
    seg->a_dtype = (deft_dtype)node_of(p, g->mm_node[0])->dtype;
    seg->b_dtype = (deft_dtype)node_of(p, g->mm_node[1])->dtype;
}

static void scatter_seg(pass *p, const group *g, uint32_t n, df_seg *seg)
{
    const uint32_t values = node_of(p, n)->src[2].i;
    seg->n_batch = node_of(p, values)->rank;
    seg->fault = n;
    seg->n_index = node_of(p, node_of(p, n)->src[1].i)->rank;
    seg->a_dtype = (deft_dtype)node_of(p, g->mm_node[0])->dtype;
    seg->dtype = (deft_dtype)node_of(p, n)->dtype;
    for (uint32_t i = 0; i < seg->n_batch; i++) seg->batch[i] = df_fuse_axis_extent(p, values, i);
    seg->m = seg->n = df_fuse_axis_extent(p, n, seg->attr);
}

static df_call_operand call_operand(pass *p, uint32_t node, df_bind bind, uint32_t index)
{
    df_call_operand x = { .bind = bind,
                          .dtype = (deft_dtype)node_of(p, node)->dtype,
                          .rank = node_of(p, node)->rank,
                          .index = index };
    for (uint32_t j = 0; j < x.rank; j++) x.extent[j] = df_fuse_axis_extent(p, node, j);
    return x;
}

/* Binds a call of an opaque operator, with those of its results that have a val. */
static void call_seg(pass *p, const group *g, df_seg *seg)
{
    const uint32_t n = val_at(p, g->product)->node;
    df_arena *const a = &p->plan->arena;
    df_seg_call *const c = df_arena_new(a, df_seg_call, 1);
    if (c) c->in = df_arena_new(a, df_call_operand, g->n_operands);
    if (c) c->out = df_arena_new(a, df_call_operand, DF_OPAQUE_MOST_TENSORS);
    if (!c || !c->in || !c->out) {
        p->st = df_fail_mem(p->diag, "fuser", sizeof *c);
        return;
    }
    for (uint32_t s = 0; s < g->n_operands; s++) {
        const uint32_t src = df_fuse_operand(p, n, s);
        c->in[c->n_in++] = call_operand(p, src, bind_operand(p, g, s, node_of(p, src)->rank), s);
    }
    seg->c = bind_val(p, g->product);
    c->out[c->n_out++] = call_operand(p, n, seg->c, 0);
    for (uint32_t k = n + 1; k < p->t->n_nodes && c->n_out < DF_OPAQUE_MOST_TENSORS; k++) {
        const df_node *const x = node_of(p, k);
        if (x->op != DF_OP_result || x->src[0].i != n || IS_NONE(p->node_val[k])) continue;
        c->out[c->n_out++] = call_operand(p, k, bind_val(p, p->node_val[k]), x->attr);
    }
    seg->call = c;
    seg->fault = n;
    seg->n_batch = node_of(p, n)->rank;
}

static void routine_seg(pass *p, const group *g, df_seg *seg)
{
    const uint8_t op = node_of(p, val_at(p, g->product)->node)->op;
    if (op == DF_OP_call || op == DF_OP_result) {
        seg->op = op;
        seg->attr = node_of(p, g->node)->attr;
        seg->dtype = (deft_dtype)node_of(p, g->node)->dtype;
        seg->a.buf = seg->b.buf = DF_NO_BUF;
        if (op == DF_OP_call)
            call_seg(p, g, seg);
        else
            seg->c = bind_val(p, g->product), seg->n_batch = node_of(p, g->node)->rank;
        return;
    }
    const uint32_t n = whole_seg(p, g, seg), rank = node_of(p, n)->rank;
    const uint32_t src = node_of(p, n)->src[0].i;
    seg->op = node_of(p, n)->op;
    seg->attr = node_of(p, n)->attr;
    if (df_op_writes_over((df_op)seg->op)) {
        scatter_seg(p, g, n, seg);
        return;
    }
    if (g->n_operands == 2)
        seg->b_dtype = (deft_dtype)node_of(p, g->mm_node[1])->dtype;
    else
        seg->b.buf = DF_NO_BUF;
    seg->n_batch = rank - 1;
    seg->dtype = (deft_dtype)node_of(p, src)->dtype;
    for (uint32_t i = 0; i + 1 < rank; i++) seg->batch[i] = df_fuse_axis_extent(p, n, i);
    seg->m = df_fuse_axis_extent(p, n, rank - 1);
    seg->n = df_fuse_axis_extent(p, src, rank - 1);
    seg->k = seg->op == DF_OP_topk ? df_fuse_arg(p, node_of(p, n)->arg) : SLOT_ZERO;
}

/* Lists the nodes that a segment computes. */
static deft_status body_list_nodes(pass *p, const group *g, df_seg *seg)
{
    seg->from = (uint32_t)p->from.n;
    if (!IS_NONE(g->product) && !df_vec_push(p->mem, &p->from, val_at(p, g->product)->node))
        return df_fail_mem(p->diag, "fuser", 4);
    for (uint32_t i = 0; i < g->n_items; i++) {
        const uint8_t kind = g->items[i].kind;
        if (kind == IT_NUM || kind == IT_LOAD || kind == IT_INPUT || kind == IT_TILE) continue;
        if (i > 0 && p->from.n > seg->from && p->from.at[p->from.n - 1] == g->items[i].node)
            continue;
        if (!df_vec_push(p->mem, &p->from, g->items[i].node))
            return df_fail_mem(p->diag, "fuser", 4);
    }
    for (head_id h = g->first_head; !IS_NONE(h); h = head_at(p, h)->next) {
        const uint32_t n = val_at(p, head_at(p, h)->val)->node;
        bool known = false;
        for (size_t i = seg->from; i < p->from.n; i++) known |= p->from.at[i] == n;
        if (!known && !df_vec_push(p->mem, &p->from, n)) return df_fail_mem(p->diag, "fuser", 4);
    }
    seg->n_from = (uint32_t)p->from.n - seg->from;
    return DEFT_OK;
}

static deft_status one_seg(body *b, group_id gi)
{
    pass *const p = b->p;
    df_seg seg;
    memset(&seg, 0, sizeof seg);
    group *const g = group_at(p, gi);
    seg.kind = g->kind;
    seg.kernel = DF_NO_KERN;
    seg.c_access = DF_NONE;
    b->g = gi;
    deft_status st = DEFT_OK;
    if (!IS_NONE(g->first_head)) st = body_build_kernel(b, g, &seg);
    if (st == DEFT_OK && g->kind == DF_SEG_MATMUL) matmul_seg(p, g, &seg);
    if (st == DEFT_OK && g->windows != DF_NONE)
        st = df_fuse_windows_seg(p, &p->windows.at[g->windows], &seg);
    if (st == DEFT_OK && g->kind == DF_SEG_ROUTINE) routine_seg(p, g, &seg);
    if (st == DEFT_OK) st = body_list_nodes(p, g, &seg);
    if (st == DEFT_OK && !df_vec_push(p->mem, &p->segs, seg))
        st = df_fail_mem(p->diag, "fuser", sizeof seg);
    return st == DEFT_OK ? p->st : st;
}

void df_fuse_find_unused(pass *p)
{
    for (group_id g = { 0 }; g.i < p->groups.n; g.i++) {
        const val_id v = group_at(p, g)->product;
        if (IS_NONE(v) || IS_NONE(group_at(p, g)->first_head)) continue;
        bool used = !IS_NONE(val_at(p, v)->readers) || val_at(p, v)->root != DF_NONE;
        used |= !IS_NONE(val_at(p, v)->over_by);
        place_at(p, val_at(p, v)->place)->unused = !used;
    }
}

/* Groups run in rising order of this number. */
static uint32_t turn_of(const group *g)
{
    return 2 * g->level + g->after;
}

deft_status df_fuse_bodies(pass *p)
{
    const uint32_t n = (uint32_t)p->groups.n;
    uint32_t *const at = df_arena_new(&p->tmp, uint32_t, 2 * p->n_levels + 2);
    group_id *const list = df_arena_new(&p->tmp, group_id, n + 1);
    if (!at || !list) return df_fail_mem(p->diag, "fuser", n * sizeof *list);
    for (group_id g = { 0 }; g.i < n; g.i++) at[turn_of(group_at(p, g)) + 1]++;
    for (uint32_t l = 0; l < 2 * p->n_levels; l++) at[l + 1] += at[l];
    for (group_id g = { 0 }; g.i < n; g.i++) list[at[turn_of(group_at(p, g))]++] = g;
    df_fuse_find_unused(p);

    body b;
    df_body_init(&b, p);
    deft_status st = p->st;
    for (uint32_t i = 0; i < n && st == DEFT_OK; i++) {
        const uint32_t level = group_at(p, list[i])->level;
        if (p->launches.n <= level && !df_vec_push(p->mem, &p->launches, ((df_launch){ i, 0, 0 })))
            st = df_fail_mem(p->diag, "fuser", sizeof(df_launch));
        if (st == DEFT_OK) st = one_seg(&b, list[i]);
        if (st != DEFT_OK) break;
        p->launches.at[level].n++;
        p->launches.at[level].n_after += group_at(p, list[i])->after;
    }
    df_body_finish(&b);
    return st;
}
