/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that a plan is what plan.h promises to back ends. df_fuse checks every plan that fuses, in
 * every build; debug builds and tests check all plans.
 */
#include <inttypes.h>
#include <string.h>

#include "fuser/plan.h"
#include "ops/shape.h"

static deft_status verify_fail(df_diag *d, const char *what, uint32_t where, uint32_t which)
{
    return df_fail(d, DEFT_E_INTERNAL, "plan: %s (%" PRIu32 ", %" PRIu32 ")", what, where, which);
}

static bool touches_memory(const df_access *a)
{
    return a->kind != DF_ACCESS_INDEX && a->kind != DF_ACCESS_SCRATCH;
}

/* ---- kernels ---- */

static deft_status verify_axes(df_diag *d, const df_kernel *k, uint32_t at)
{
    uint32_t i = 0, red = 0, inner = 0;
    if (k->n_axes == 0 || k->n_axes > DF_MAX_AXES) return verify_fail(d, "axes", at, k->n_axes);
    while (i < k->n_axes && k->role[i] == DF_AXIS_OUTER) i++;
    while (i < k->n_axes && k->role[i] == DF_AXIS_RED) i++, red++;
    while (i < k->n_axes && k->role[i] == DF_AXIS_INNER) i++, inner++;
    const bool fits = k->mode == DF_MODE_MAP    ? red == 0 && inner == 1
                      : k->mode == DF_MODE_ROW  ? red >= 1 && inner == 0
                      : k->mode == DF_MODE_LOOP ? red == 1 && inner == 1
                                                : red >= 1 && inner == 1;
    if (k->mode > DF_MODE_LOOP) return verify_fail(d, "mode", at, k->mode);
    if (k->mode == DF_MODE_ROW && red > 1) {
        uint32_t n = 0;
        for (uint32_t j = 0; j < k->n_ins; j++)
            n += k->ins[j].op < DF_N_KOPS && df_kop_infos[k->ins[j].op].kind == DF_KOP_reduce;
        if (n > DF_MAX_RUN_REDS || k->flags & DF_KERNEL_SCAN) return verify_fail(d, "runs", at, n);
    }
    return i == k->n_axes && fits ? DEFT_OK : verify_fail(d, "roles", at, i);
}

static deft_status verify_access(df_diag *d, const df_kernel *k, uint32_t at)
{
    for (uint32_t a = 0; a < k->n_access; a++) {
        const df_access *const x = &k->access[a];
        if (x->kind > DF_ACCESS_PART || x->dtype >= DF_N_RECORDED)
            return verify_fail(d, "access", at, a);
        if (x->same_as > a) return verify_fail(d, "same_as", at, a);
        const df_access *const twin =
            x->twin && x->twin <= k->n_access ? &k->access[x->twin - 1] : NULL;
        if (x->twin && (!twin || twin->twin || x->kind != DF_ACCESS_LOAD || twin->kind != x->kind ||
                        twin->dtype != x->dtype || memcmp(twin->step, x->step, k->n_axes) != 0))
            return verify_fail(d, "twin", at, a);
        if (x->kind == DF_ACCESS_SCRATCH && k->mode != DF_MODE_ROW)
            return verify_fail(d, "scratch", at, a);
        for (uint32_t i = 0; i < k->n_axes; i++)
            if (x->step[i] > DF_STEP_ANY ||
                (x->step[i] == DF_STEP_UNIT && i + 1u != k->n_axes && k->mode != DF_MODE_MAP))
                return verify_fail(d, "step", at, a);
    }
    return DEFT_OK;
}

static bool access_fits(const df_kernel *k, const df_ins *x)
{
    if (x->imm >= k->n_access) return false;
    const df_access *const a = &k->access[x->imm];
    if (a->dtype != x->dtype) return false;
    switch (x->op) {
    case DF_K_load: return a->kind == DF_ACCESS_LOAD || a->kind == DF_ACCESS_SCRATCH;
    case DF_K_store: return a->kind == DF_ACCESS_STORE || a->kind == DF_ACCESS_SCRATCH;
    case DF_K_load_at: return a->kind == DF_ACCESS_AT;
    case DF_K_load_if:
        return a->kind == DF_ACCESS_PART && k->ins[x->src[0]].dtype == DEFT_BOOL &&
               k->ins[x->src[1]].dtype == x->dtype;
    case DF_K_index: return a->kind == DF_ACCESS_INDEX;
    }
    return true;
}

/* Whether instruction x may use the value of y, which comes before it. */
static bool visible(const df_kernel *k, const df_ins *x, const df_ins *y)
{
    const uint8_t kind = df_kop_infos[y->op].kind;
    if (y->op == DF_K_store || y->op == DF_K_proceed) return false;
    if (k->mode == DF_MODE_MAP) return true;
    if (kind == DF_KOP_reduce || y->op == DF_K_next) return x->stage > y->stage;
    if (y->level == DF_LEVEL_ROW) return true;
    return x->level == DF_LEVEL_ELEM && x->stage == y->stage;
}

static deft_status verify_ins(df_diag *d, const df_kernel *k, uint32_t at)
{
    uint32_t order = 0;
    for (uint32_t i = 0; i < k->n_ins; i++) {
        const df_ins *const x = &k->ins[i];
        if (x->op >= DF_N_KOPS || x->dtype >= DF_N_RECORDED)
            return verify_fail(d, "instruction", at, i);
        const df_kop_info *const op = &df_kop_infos[x->op];
        const uint32_t here = 2u * x->stage + x->level;
        if (x->stage >= k->n_stages || x->level > DF_LEVEL_ELEM || here < order)
            return verify_fail(d, "stage", at, i);
        order = here;
        if (k->mode == DF_MODE_MAP && (x->stage != 0 || x->level != DF_LEVEL_ELEM))
            return verify_fail(d, "stage of a map", at, i);
        for (uint32_t s = 0; s < op->n_src; s++)
            if (x->src[s] >= i || !visible(k, x, &k->ins[x->src[s]]))
                return verify_fail(d, "operand", at, i);
        if (x->op == DF_K_num && x->imm >= k->n_num) return verify_fail(d, "number", at, i);
        if ((op->kind == DF_KOP_memory || x->op == DF_K_index) && !access_fits(k, x))
            return verify_fail(d, "access of an instruction", at, i);
        if (op->kind == DF_KOP_reduce && (k->mode == DF_MODE_MAP || x->level != DF_LEVEL_ELEM))
            return verify_fail(d, "reduction", at, i);
        if (op->kind == DF_KOP_scan && !(k->flags & DF_KERNEL_SCAN))
            return verify_fail(d, "scan", at, i);
    }
    return DEFT_OK;
}

/* ---- loops ---- */

/* The next of carry i; DF_NONE when there is none or more than one. */
static uint32_t next_of(const df_kernel *k, uint32_t i)
{
    uint32_t found = DF_NONE;
    for (uint32_t j = i + 1; j < k->n_ins; j++) {
        if (k->ins[j].op != DF_K_next || k->ins[j].src[0] != i) continue;
        if (found != DF_NONE) return DF_NONE;
        found = j;
    }
    return found;
}

/* Checks instruction i of kernel `at`: a carry, next or proceed. */
static deft_status verify_state(df_diag *d, const df_kernel *k, uint32_t at, uint32_t i)
{
    const df_ins *const x = &k->ins[i], *const src = &k->ins[x->src[0]];
    if (x->stage != 0 || x->level != DF_LEVEL_ELEM)
        return verify_fail(d, "stage of a state", at, i);
    if (src->dtype != x->dtype) return verify_fail(d, "dtype of a state", at, i);
    if (x->op == DF_K_carry) {
        const bool is_leaf = src->op == DF_K_const || src->op == DF_K_num;
        if (src->level != DF_LEVEL_ROW && !is_leaf)
            return verify_fail(d, "start of a state", at, i);
        if (next_of(k, i) == DF_NONE) return verify_fail(d, "a state without one next", at, i);
    }
    if (x->op == DF_K_next) {
        if (src->op != DF_K_carry) return verify_fail(d, "next of no state", at, i);
        if (k->ins[x->src[1]].dtype != x->dtype) return verify_fail(d, "dtype of a state", at, i);
    }
    if (x->op == DF_K_proceed && x->dtype != DEFT_BOOL)
        return verify_fail(d, "dtype of proceed", at, i);
    return DEFT_OK;
}

/* Whether access a may differ between lanes or rows. */
static bool steps_outside(const df_kernel *k, const df_access *a)
{
    if (a->kind == DF_ACCESS_AT) return false;
    for (uint32_t i = 0; i < k->n_axes; i++)
        if (k->role[i] != DF_AXIS_RED && a->step[i] != DF_STEP_ZERO) return true;
    return false;
}

/* Whether the value of instruction i may differ between lanes or rows. varies: the instructions of
 * which that is known so far. */
static bool may_vary(const df_kernel *k, uint32_t i, const bool *varies)
{
    const df_ins *const x = &k->ins[i];
    for (uint32_t s = 0; s < df_kop_infos[x->op].n_src; s++)
        if (varies[x->src[s]]) return true;
    if (x->op == DF_K_carry) return varies[k->ins[next_of(k, i)].src[1]];
    return (x->op == DF_K_index || x->op == DF_K_load || x->op == DF_K_load_if) &&
           steps_outside(k, &k->access[x->imm]);
}

/* Checks that the operand of proceed is the same for all lanes and rows. */
static deft_status verify_uniform(df_diag *d, const df_plan *p, const df_kernel *k, uint32_t at,
                                  uint32_t proceed)
{
    deft_status st = DEFT_OK;
    df_arena tmp;
    df_arena_init(&tmp, p->arena.mem);
    bool *const varies = df_arena_new(&tmp, bool, k->n_ins);
    if (!varies) TRY(df_fail_mem(d, "plan", k->n_ins));
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < k->n_ins; i++) {
            if (varies[i] || !may_vary(k, i, varies)) continue;
            varies[i] = changed = true;
        }
    }
    if (varies[k->ins[proceed].src[0]])
        TRY(verify_fail(d, "proceed differs between lanes", at, proceed));
done:
    df_arena_finish(&tmp);
    return st;
}

/* Checks what plan.h says about LOOP kernels. Must come after verify_ins. */
static deft_status verify_loop(df_diag *d, const df_plan *p, uint32_t at)
{
    const df_kernel *const k = &p->kernels[at];
    uint32_t proceed = DF_NONE, effect = DF_NONE; /* effect: the first one before proceed */
    for (uint32_t i = 0; i < k->n_ins; i++) {
        const df_ins *const x = &k->ins[i];
        const uint8_t kind = df_kop_infos[x->op].kind;
        if (k->mode != DF_MODE_LOOP) {
            if (kind == DF_KOP_loop) return verify_fail(d, "a state outside of a loop", at, i);
            continue;
        }
        if (kind == DF_KOP_reduce || kind == DF_KOP_scan)
            return verify_fail(d, "reduction in a loop", at, i);
        if (x->stage > 0 && x->level == DF_LEVEL_ELEM)
            return verify_fail(d, "stage of a loop", at, i);
        if (kind == DF_KOP_loop) {
            const deft_status st = verify_state(d, k, at, i);
            if (st != DEFT_OK) return st;
        }
        if (x->op == DF_K_proceed && proceed != DF_NONE)
            return verify_fail(d, "second proceed", at, i);
        if (x->op == DF_K_proceed) proceed = i;
        const bool acts = x->op == DF_K_store || x->op == DF_K_check;
        if (acts && x->level == DF_LEVEL_ELEM && proceed == DF_NONE && effect == DF_NONE)
            effect = i;
    }
    if (k->mode != DF_MODE_LOOP) return DEFT_OK;
    if (k->n_stages > 2 || k->flags & (DF_KERNEL_SPLIT | DF_KERNEL_SCAN))
        return verify_fail(d, "stages or flags of a loop", at, k->n_stages);
    if (proceed == DF_NONE) return DEFT_OK;
    if (effect != DF_NONE) return verify_fail(d, "effect before proceed", at, effect);
    return verify_uniform(d, p, k, at, proceed);
}

/* ---- slots, segments and launches ---- */

static deft_status verify_slots(df_diag *d, const df_plan *p)
{
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const df_slot_def *const s = &p->slots[i];
        if (s->op > DF_SLOT_divup) return verify_fail(d, "slot", i, s->op);
        if (s->op >= DF_SLOT_add && (s->a >= i || s->b >= i))
            return verify_fail(d, "slot operand", i, s->a);
    }
    return DEFT_OK;
}

static bool bind_fits(const df_plan *p, const df_bind *b, uint32_t n_axes, bool memory)
{
    if (memory ? b->buf.i >= p->n_bufs && b->buf.i != DF_NONE : b->buf.i != DF_NONE) return false;
    if (b->offset.i >= p->n_slots) return false;
    for (uint32_t i = 0; i < n_axes; i++)
        if (b->stride[i].i >= p->n_slots) return false;
    return true;
}

/* Whether operand b of a product has dtype t, and the product can read that dtype. */
static bool operand_fits(const df_plan *p, const df_seg *s, const df_bind *b, deft_dtype t)
{
    return p->bufs[b->buf.i].dtype == t &&
           (t == s->dtype || (s->dtype == DEFT_F32 && df_is_half(t)));
}

static bool verify_slot_is_one(const df_plan *p, df_slot s)
{
    return p->slots[s.i].op == DF_SLOT_const && p->slots[s.i].imm == 1;
}

/* Checks that each store moves along all loops around it. Then each element is stored once. And an
 * element is stored even when a loop that it does not depend on has no iterations. */
static deft_status verify_stores(df_diag *d, const df_plan *p, uint32_t i)
{
    const df_seg *const s = &p->segs[i];
    const df_kernel *const k = &p->kernels[s->kernel.i];
    for (uint32_t n = 0; n < k->n_ins; n++) {
        if (k->ins[n].op != DF_K_store) continue;
        const df_access *const a = &k->access[k->ins[n].imm];
        if (a->kind != DF_ACCESS_STORE) continue;
        for (uint32_t x = 0; x < k->n_axes; x++) {
            const bool within = k->role[x] != DF_AXIS_RED || k->ins[n].level == DF_LEVEL_ELEM;
            if (within && a->step[x] == DF_STEP_ZERO && !verify_slot_is_one(p, s->extent[x]))
                return verify_fail(d, "a store in a loop that it does not move along", i, n);
        }
    }
    return DEFT_OK;
}

/* Whether all slots of windows exist. */
static bool windows_fit(const df_plan *p, const df_windows *w)
{
    bool fits = w->n_taps > 0;
    for (uint32_t i = 0; i < 2 * w->n_taps; i++) fits &= w->tap[i].i < p->n_slots;
    for (uint32_t i = 0; i < 2; i++)
        fits &= w->step[i].i < p->n_slots && w->before[i].i < p->n_slots &&
                w->extent[i].i < p->n_slots && w->out[i].i < p->n_slots;
    return fits;
}

static bool call_operand_fits(const df_plan *p, const df_call_operand *x)
{
    bool fits = x->rank <= DEFT_MAX_RANK && bind_fits(p, &x->bind, x->rank, true) &&
                x->bind.buf.i != DF_NONE && p->bufs[x->bind.buf.i].dtype == x->dtype;
    for (uint32_t j = 0; fits && j < x->rank; j++) fits = x->extent[j].i < p->n_slots;
    return fits;
}

/* Checks a call of an opaque operator, or a further result of one. */
static deft_status verify_call(df_diag *d, const df_plan *p, uint32_t i)
{
    const df_seg *const s = &p->segs[i];
    if (s->kernel.i != DF_NONE || s->a.buf.i != DF_NONE || s->b.buf.i != DF_NONE)
        return verify_fail(d, "call with a kernel", i, s->kernel.i);
    if (!bind_fits(p, &s->c, s->n_batch, true) || s->c.buf.i == DF_NONE)
        return verify_fail(d, "result of a call", i, s->c.buf.i);
    if ((s->op == DF_OP_call) != (s->call != NULL)) return verify_fail(d, "call", i, s->op);
    for (uint32_t k = 0; s->call && k < s->call->n_in; k++)
        if (!call_operand_fits(p, &s->call->in[k])) return verify_fail(d, "input of a call", i, k);
    for (uint32_t k = 0; s->call && k < s->call->n_out; k++)
        if (!call_operand_fits(p, &s->call->out[k]))
            return verify_fail(d, "result of a call", i, k);
    return DEFT_OK;
}

static deft_status verify_seg(df_diag *d, const df_plan *p, uint32_t i)
{
    const df_seg *const s = &p->segs[i];
    if (s->windows && (s->kind != DF_SEG_MATMUL || !windows_fit(p, s->windows)))
        return verify_fail(d, "windows", i, 0);
    if (s->kind == DF_SEG_MATMUL) {
        const uint32_t n = s->n_batch + 2, n_b = s->windows ? 4 : n;
        if (!bind_fits(p, &s->a, n, true) || !bind_fits(p, &s->b, n_b, true) ||
            !bind_fits(p, &s->c, n, true) || s->a.buf.i == DF_NONE || s->b.buf.i == DF_NONE)
            return verify_fail(d, "matmul bind", i, 0);
        if (!operand_fits(p, s, &s->a, s->a_dtype) || !operand_fits(p, s, &s->b, s->b_dtype))
            return verify_fail(d, "matmul dtype", i, s->dtype);
        if (s->c.buf.i == DF_NONE && s->kernel.i == DF_NONE)
            return verify_fail(d, "matmul without result", i, 0);
        if (s->m.i >= p->n_slots || s->n.i >= p->n_slots || s->k.i >= p->n_slots)
            return verify_fail(d, "matmul extent", i, 0);
    }
    const bool is_call = s->op == DF_OP_call || s->op == DF_OP_result;
    if (s->kind == DF_SEG_ROUTINE && is_call) return verify_call(d, p, i);
    if (s->kind == DF_SEG_ROUTINE) {
        const bool over = s->op < DF_N_OPS && df_op_writes_over((df_op)s->op);
        const uint32_t n = over ? s->n_batch : s->n_batch + 1;
        if (over && (!bind_fits(p, &s->b, n, true) || s->b.buf.i == DF_NONE || s->n_index > n))
            return verify_fail(d, "routine values", i, s->n_index);
        if (over && (df_is_float(s->a_dtype) || s->a.buf.i >= p->n_bufs ||
                     p->bufs[s->a.buf.i].dtype != s->a_dtype))
            return verify_fail(d, "routine indices", i, s->a_dtype);
        if (s->op == DF_OP_compress && (!bind_fits(p, &s->b, n, true) || s->b.buf.i >= p->n_bufs ||
                                        p->bufs[s->b.buf.i].dtype != s->b_dtype))
            return verify_fail(d, "routine mask", i, s->b_dtype);
        if (!bind_fits(p, &s->a, n, true) || !bind_fits(p, &s->c, n, true) ||
            s->a.buf.i == DF_NONE || s->c.buf.i == DF_NONE)
            return verify_fail(d, "routine bind", i, 0);
        if (s->m.i >= p->n_slots || s->n.i >= p->n_slots || s->k.i >= p->n_slots)
            return verify_fail(d, "routine extent", i, 0);
        if (s->op >= DF_N_OPS || df_op_infos[s->op].cls != DF_CLASS_routine)
            return verify_fail(d, "routine", i, s->op);
        if (s->kernel.i != DF_NONE) return verify_fail(d, "routine with a kernel", i, s->kernel.i);
    }
    if (s->kernel.i == DF_NONE)
        return s->kind != DF_SEG_KERNEL ? DEFT_OK : verify_fail(d, "kernel", i, 0);
    if (s->kernel.i >= p->n_kernels) return verify_fail(d, "kernel", i, s->kernel.i);
    const df_kernel *const k = &p->kernels[s->kernel.i];
    for (uint32_t x = 0; x < k->n_axes; x++)
        if (s->extent[x].i >= p->n_slots) return verify_fail(d, "extent", i, x);
    if (s->n_column_axes > 0 && (s->kind != DF_SEG_MATMUL || s->n_column_axes + 1u >= k->n_axes))
        return verify_fail(d, "columns", i, s->n_column_axes);
    for (uint32_t a = 0; a < k->n_access; a++) {
        const bool tile = s->kind == DF_SEG_MATMUL && a == s->c_access;
        if (!bind_fits(p, &s->bind[a], k->n_axes, touches_memory(&k->access[a])) ||
            (touches_memory(&k->access[a]) && s->bind[a].buf.i == DF_NONE && !tile))
            return verify_fail(d, "bind", i, a);
    }
    for (uint32_t n = 0; n < k->n_num; n++)
        if (s->num[n] & DF_NUM_IS_SLOT && (s->num[n] & ~DF_NUM_IS_SLOT) >= p->n_slots)
            return verify_fail(d, "number", i, n);
    if (s->from > p->n_from || s->n_from > p->n_from - s->from)
        return verify_fail(d, "from", i, s->from);
    return verify_stores(d, p, i);
}

/* A number of the memory of a buffer. A root with a donor has the memory of the donor. */
static uint32_t verify_memory_of(const df_plan *p, df_buf buf)
{
    const df_plan_buf *const b = &p->bufs[buf.i];
    if (b->kind == DF_BUF_INPUT || b->kind == DF_BUF_INTO) return b->index;
    if (b->kind == DF_BUF_ROOT) return b->donor != DF_NONE ? b->donor : p->n_inputs + b->index;
    return p->n_inputs + p->n_roots + b->index;
}

/* The last write to a memory. */
typedef struct written {
    uint32_t turn; /* when: segments that run at the same time have the same turn, from 1 on */
    uint32_t by;   /* the segment; DF_NONE: more than one segment */
    df_buf temp;   /* the buffer, when that is a temporary; else DF_NO_BUF */
    df_buf before; /* the temporary that was there before this turn; DF_NO_BUF: none */
} written;

typedef struct uses {
    written *memory;
    uint32_t turn;
} uses;

/* Notes that a temporary which overlaps the memory was written: what was there is lost. */
static deft_status verify_overlap(df_diag *d, const df_plan *p, uint32_t i, uint32_t r, bool whole,
                                  const uses *u)
{
    written *const w = &u->memory[p->n_inputs + p->n_roots + r];
    if (w->turn == u->turn && w->temp.i != DF_NONE)
        return verify_fail(d, "a region is written, and a part of it", i, r);
    if (whole || w->turn != u->turn) *w = (written){ u->turn, DF_NONE, DF_NO_BUF, DF_NO_BUF };
    return DEFT_OK;
}

/* A temporary in region r is written. */
static deft_status verify_around(df_diag *d, const df_plan *p, uint32_t i, uint32_t r,
                                 const uses *u)
{
    deft_status st = DEFT_OK;
    if (p->regions[r].outer != DF_NONE)
        return verify_overlap(d, p, i, p->regions[r].outer, false, u);
    for (uint32_t part = r + 1; part < p->n_regions; part++)
        if (p->regions[part].outer == r) TRY(verify_overlap(d, p, i, part, true, u));
done:
    return st;
}

static deft_status verify_write(df_diag *d, const df_plan *p, uint32_t i, df_buf buf, const uses *u)
{
    deft_status st = DEFT_OK;
    written *const w = &u->memory[verify_memory_of(p, buf)];
    const df_buf temp = p->bufs[buf.i].kind == DF_BUF_TEMP ? buf : DF_NO_BUF;
    if (temp.i != DF_NONE) TRY(verify_around(d, p, i, p->bufs[buf.i].index, u));
    if (w->turn != u->turn) {
        *w = (written){ u->turn, i, temp, w->turn ? w->temp : DF_NO_BUF };
        return DEFT_OK;
    }
    if (w->by != i) w->by = DF_NONE;
    if (w->temp.i != temp.i)
        TRY(verify_fail(d, "two temporaries are written to one place", i, buf.i));
done:
    return st;
}

/* Whether a kernel of segment i writes the memory. */
static bool verify_replaces(const df_plan *p, uint32_t i, uint32_t memory)
{
    const df_seg *const s = &p->segs[i];
    const df_kernel *const k = df_seg_kernel(p, s);
    for (uint32_t a = 0; k && a < k->n_access; a++)
        if (k->access[a].kind == DF_ACCESS_STORE && s->bind[a].buf.i != DF_NONE &&
            verify_memory_of(p, s->bind[a].buf) == memory)
            return true;
    return false;
}

static deft_status verify_read(df_diag *d, const df_plan *p, uint32_t i, df_buf buf, const uses *u)
{
    const uint32_t memory = verify_memory_of(p, buf);
    const written *const w = &u->memory[memory];
    const bool there = p->bufs[buf.i].kind != DF_BUF_TEMP || (w->turn != 0 && w->temp.i == buf.i);
    if (w->turn == u->turn && w->by == i && w->temp.i != DF_NONE && w->before.i == buf.i &&
        p->bufs[w->temp.i].over.i == buf.i)
        return DEFT_OK; /* it is stored over this operand */
    const bool replaces = w->by == i || (w->by == DF_NONE && verify_replaces(p, i, memory));
    if (w->turn == u->turn && !(replaces && there))
        return verify_fail(d, "a launch reads what it writes", i, buf.i);
    return there ? DEFT_OK : verify_fail(d, "a temporary is read that is not there", i, buf.i);
}

/* Checks one use of a buffer. No segment may read what another segment writes in the same turn,
 * unless it replaces elements itself: it then reads those, and others write around them. A
 * temporary may be read only while no other temporary was written over it. All writes of a turn are
 * seen, with mark set, before its reads. */
static deft_status verify_use(df_diag *d, const df_plan *p, uint32_t i, df_buf buf, bool writes,
                              const uses *u, bool mark)
{
    if (buf.i == DF_NONE || mark != writes) return DEFT_OK;
    return writes ? verify_write(d, p, i, buf, u) : verify_read(d, p, i, buf, u);
}

/* Checks all uses by the segments first .. end - 1, which run at the same time. */
static deft_status each_use(df_diag *d, const df_plan *p, uint32_t first, uint32_t end,
                            const uses *u, bool mark)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = first; i < end; i++) {
        const df_seg *const s = &p->segs[i];
        if (s->kind != DF_SEG_KERNEL) {
            TRY(verify_use(d, p, i, s->a.buf, false, u, mark));
            TRY(verify_use(d, p, i, s->b.buf, false, u, mark));
            TRY(verify_use(d, p, i, s->c.buf, true, u, mark));
        }
        for (uint32_t k = 0; s->call && k < s->call->n_in; k++)
            TRY(verify_use(d, p, i, s->call->in[k].bind.buf, false, u, mark));
        for (uint32_t k = 1; s->call && k < s->call->n_out; k++)
            TRY(verify_use(d, p, i, s->call->out[k].bind.buf, true, u, mark));
        if (s->kernel.i == DF_NONE) continue;
        const df_kernel *const k = &p->kernels[s->kernel.i];
        for (uint32_t a = 0; a < k->n_access; a++)
            if (touches_memory(&k->access[a]))
                TRY(verify_use(d, p, i, s->bind[a].buf, k->access[a].kind == DF_ACCESS_STORE, u,
                               mark));
    }
done:
    return st;
}

static deft_status verify_turn(df_diag *d, const df_plan *p, uint32_t first, uint32_t end, uses *u)
{
    u->turn++;
    const deft_status st = each_use(d, p, first, end, u, true);
    return st == DEFT_OK ? each_use(d, p, first, end, u, false) : st;
}

static deft_status verify_launches(df_diag *d, const df_plan *p)
{
    deft_status st = DEFT_OK;
    uint32_t at = 0;
    const size_t n = (size_t)p->n_inputs + p->n_roots + p->n_regions + 1;
    df_arena tmp;
    df_arena_init(&tmp, p->arena.mem);
    uses u = { .memory = df_arena_new(&tmp, written, n) };
    if (!u.memory) TRY(df_fail_mem(d, "plan", n * sizeof *u.memory));
    for (uint32_t l = 0; l < p->n_launches; l++) {
        if (p->launches[l].first != at || p->launches[l].n <= p->launches[l].n_after)
            TRY(verify_fail(d, "launch", l, at));
        at += p->launches[l].n;
        if (at > p->n_segs) TRY(verify_fail(d, "launch", l, at));
        const uint32_t after = at - p->launches[l].n_after; /* from here on one by one */
        TRY(verify_turn(d, p, p->launches[l].first, after, &u));
        for (uint32_t i = after; i < at; i++) TRY(verify_turn(d, p, i, i + 1, &u));
    }
    if (at != p->n_segs) TRY(verify_fail(d, "segments in no launch", at, p->n_segs));
done:
    df_arena_finish(&tmp);
    return st;
}

/* ---- parts ---- */

static deft_status verify_block(df_diag *d, const df_plan *p, const df_part *part, uint32_t i,
                                const df_subplan *b)
{
    if (b->slot0 > p->n_slots || b->plan->n_slots > p->n_slots - b->slot0)
        return verify_fail(d, "slots of a part", i, b->slot0);
    for (uint32_t k = 0; k < b->trace.n_inputs; k++) {
        const df_port *const x = &b->port[k];
        const bool in_loop = part->kind == DF_PART_LOOP;
        const uint32_t limit = x->kind == DF_PORT_INPUT   ? p->n_inputs
                               : x->kind == DF_PORT_STATE ? part->n_states
                                                          : p->n_cells;
        if (x->kind > DF_PORT_EXTENTS || x->index >= limit + (x->kind >= DF_PORT_NUMBER))
            return verify_fail(d, "port", i, k);
        if (!in_loop &&
            (x->kind == DF_PORT_STATE || x->kind == DF_PORT_ROW || x->kind == DF_PORT_NUMBER))
            return verify_fail(d, "port of a loop", i, k);
        if (x->kind == DF_PORT_ROW &&
            (x->first_bytes.i >= p->n_slots || x->row_bytes.i >= p->n_slots))
            return verify_fail(d, "row", i, k);
    }
    return df_plan_verify(d, b->plan);
}

static deft_status verify_part(df_diag *d, const df_plan *p, uint32_t i)
{
    const df_part *const x = &p->parts[i];
    deft_status st = DEFT_OK;
    if (x->kind > DF_PART_COND || !x->body.plan) TRY(verify_fail(d, "part", i, x->kind));
    if (x->n_out != x->body.trace.n_roots) TRY(verify_fail(d, "roots of a part", i, x->n_out));
    for (uint32_t k = 0; k < x->n_out; k++)
        if (x->out[k] != DF_NONE && x->out[k] >= p->n_cells)
            TRY(verify_fail(d, "cell", i, x->out[k]));
    if (x->kind == DF_PART_LOOP) {
        if (x->n_states > x->n_out || x->most.i >= p->n_slots)
            TRY(verify_fail(d, "loop", i, x->n_states));
        if (x->other.plan && x->other.trace.n_roots != 1) TRY(verify_fail(d, "test", i, 0));
        for (uint32_t k = 0; k < x->n_states; k++)
            if (x->init[k] >= p->n_cells) TRY(verify_fail(d, "state", i, k));
        for (uint32_t k = x->n_states; k < x->n_out; k++)
            if (x->row_bytes[k - x->n_states].i >= p->n_slots) TRY(verify_fail(d, "rows", i, k));
    } else if (x->kind == DF_PART_COND) {
        if (!x->other.plan || x->other.trace.n_roots != x->n_out || x->cond >= p->n_cells)
            TRY(verify_fail(d, "branches", i, x->n_out));
    }
    TRY(verify_block(d, p, x, i, &x->body));
    if (x->other.plan) TRY(verify_block(d, p, x, i, &x->other));
done:
    return st;
}

deft_status df_plan_verify(df_diag *d, const df_plan *p)
{
    deft_status st;
    TRY(verify_slots(d, p));
    for (uint32_t c = 0; c < p->n_cells; c++)
        if (p->cells[c].bytes.i >= p->n_slots || p->cells[c].kind > DF_CELL_CONST ||
            (p->cells[c].kind == DF_CELL_INPUT && p->cells[c].from >= p->n_inputs))
            TRY(verify_fail(d, "cell", c, p->cells[c].from));
    for (uint32_t i = 0; i < p->n_parts; i++) TRY(verify_part(d, p, i));
    if (p->root_cell) return DEFT_OK;
    for (uint32_t k = 0; k < p->n_kernels; k++) {
        TRY(verify_axes(d, &p->kernels[k], k));
        TRY(verify_access(d, &p->kernels[k], k));
        TRY(verify_ins(d, &p->kernels[k], k));
        TRY(verify_loop(d, p, k));
        if (p->kernels[k].key.n == 0) TRY(verify_fail(d, "unsealed kernel", k, 0));
    }
    for (uint32_t b = 0; b < p->n_bufs; b++) {
        const df_plan_buf *const x = &p->bufs[b];
        const uint32_t limit = x->kind == DF_BUF_TEMP   ? p->n_regions
                               : x->kind == DF_BUF_ROOT ? p->n_roots
                                                        : p->n_inputs;
        if (x->kind > DF_BUF_TEMP || x->index >= limit || x->numel.i >= p->n_slots)
            TRY(verify_fail(d, "buffer", b, x->index));
        if (x->kind == DF_BUF_TEMP && x->first > x->last)
            TRY(verify_fail(d, "live range", b, x->first));
        if (x->over.i != DF_NONE &&
            (x->kind != DF_BUF_TEMP || x->over.i >= p->n_bufs ||
             p->bufs[x->over.i].kind != DF_BUF_TEMP || p->bufs[x->over.i].index != x->index))
            TRY(verify_fail(d, "stored over", b, x->over.i));
    }
    for (uint32_t r = 0; r < p->n_regions; r++) {
        const uint32_t outer = p->regions[r].outer;
        if (outer == DF_NONE) continue;
        if (outer >= r || p->regions[outer].outer != DF_NONE)
            TRY(verify_fail(d, "region", r, outer));
    }
    for (uint32_t r = 0; r < p->n_roots; r++)
        if (p->root_buf[r].i >= p->n_bufs) TRY(verify_fail(d, "root", r, p->root_buf[r].i));
    for (uint32_t i = 0; i < p->n_segs; i++) TRY(verify_seg(d, p, i));
    TRY(verify_launches(d, p));
done:
    return st;
}
