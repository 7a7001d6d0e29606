/* SPDX-License-Identifier: Apache-2.0
 *
 * From loops to kernel axes. Neighbouring loops become one axis when every access moves through
 * them as through one: stride[outer] == stride[inner] * extent[inner]. Slots are compared, not
 * numbers, so the answer holds for every run. Then the mode is chosen:
 *
 *   MAP  no RED loop; the innermost axis is the vector.
 *   ROW  the last reduced axis is the vector.
 *   COL  a kept axis is the vector: the one along which most accesses move by one element.
 *   LOOP a loop kernel (df_fuse_loop_axes); the innermost kept axis is the vector.
 *
 * ROW and COL are chosen by counts of accesses that move along a reduced axis. ROW is chosen when
 * more of them move by one element along the last reduced axis than along any kept axis.
 * df_fuse_pick_axes decides ties, and kernels without kept axes.
 *
 * Only the speed of a reduction depends on the mode, not its order: in every mode the elements are
 * numbered row-major over the RED loops.
 */
#include "fuser/fuse.h"

#include <string.h>

/* Axes made of loops, outermost first. */
typedef struct merged {
    uint32_t n;
    uint8_t loop[MAX_LOOPS + 1]; /* per axis: the loop whose strides it has */
    df_slot extent[MAX_LOOPS + 1];
} merged;

/* Whether every access moves through loops outer and inner as through one loop. */
static bool as_one(pass *p, const access *a, uint32_t n, uint8_t outer, uint8_t inner,
                   df_slot extent)
{
    for (uint32_t i = 0; i < n; i++) {
        if (a[i].kind == DF_ACCESS_AT || a[i].kind == DF_ACCESS_SCRATCH) continue;
        if (!df_same_slot(a[i].at.stride[outer], df_fuse_mul(p, a[i].at.stride[inner], extent)))
            return false;
    }
    return true;
}

/* Merges loops, given outermost first, where that is possible. apart: merges nothing. */
static merged axes_merge(pass *p, const space *sp, const uint8_t *loop, uint32_t n_loops,
                         const access *a, uint32_t n, bool apart)
{
    merged back = { 0 };
    for (uint32_t i = n_loops; i-- > 0;) {
        const uint8_t l = loop[i];
        if (!apart && df_same_slot(sp->extent[l], SLOT_ONE)) continue;
        const uint32_t at = back.n - 1;
        if (!apart && back.n > 0 && as_one(p, a, n, l, back.loop[at], back.extent[at])) {
            back.extent[at] = df_fuse_mul(p, back.extent[at], sp->extent[l]);
            continue;
        }
        back.loop[back.n] = l;
        back.extent[back.n++] = sp->extent[l];
    }
    merged out = { .n = back.n };
    for (uint32_t i = 0; i < back.n; i++) {
        out.loop[i] = back.loop[back.n - 1 - i];
        out.extent[i] = back.extent[back.n - 1 - i];
    }
    return out;
}

/* The number of loads and stores that move along some RED axis, and by one element along loop l. */
static uint32_t unit_along(const access *a, uint32_t n, const merged *red, uint8_t l)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool moves = false;
        if (!df_access_is_strided(a[i].kind)) continue;
        for (uint32_t k = 0; k < red->n; k++)
            moves |= !df_same_slot(a[i].at.stride[red->loop[k]], SLOT_ZERO);
        sum += moves && df_same_slot(a[i].at.stride[l], SLOT_ONE);
    }
    return sum;
}

static bool is_unit(const access *a, uint8_t l)
{
    return (a->kind == DF_ACCESS_LOAD || a->kind == DF_ACCESS_STORE) &&
           df_same_slot(a->at.stride[l], SLOT_ONE);
}

/* The number of accesses that move by one element along axis x of a MAP kernel, and by more along
 * the last axis. */
static uint32_t crossed_along(const access *a, uint32_t n, const merged *kept, uint32_t x)
{
    const uint8_t last = kept->loop[kept->n - 1];
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += is_unit(&a[i], kept->loop[x]) && !df_same_slot(a[i].at.stride[last], SLOT_ZERO) &&
               !df_same_slot(a[i].at.stride[last], SLOT_ONE);
    return sum;
}

/* Moves the axis that most accesses cross to the end of the OUTER axes. Back ends can then divide
 * rows into blocks along that axis and the last one. The order of OUTER axes changes no result. */
static void order_map(merged *kept, const access *a, uint32_t n)
{
    uint32_t best = 0, most = 0;
    for (uint32_t x = 0; x + 1 < kept->n; x++) {
        const uint32_t sum = crossed_along(a, n, kept, x);
        if (sum == 0 || sum < most) continue;
        best = x;
        most = sum;
    }
    if (most == 0) return;
    const uint8_t loop = kept->loop[best];
    const df_slot extent = kept->extent[best];
    for (uint32_t x = best; x + 2 < kept->n; x++) {
        kept->loop[x] = kept->loop[x + 1];
        kept->extent[x] = kept->extent[x + 1];
    }
    kept->loop[kept->n - 2] = loop;
    kept->extent[kept->n - 2] = extent;
}

static void put_axis(df_kernel *k, df_role role, uint8_t loop, df_slot extent, uint8_t *order,
                     df_slot *extents)
{
    k->role[k->n_axes] = (uint8_t)role;
    order[k->n_axes] = loop;
    extents[k->n_axes++] = extent;
}

void df_fuse_epilogue_axes(pass *p, const space *sp, uint32_t n_rows, const access *a, uint32_t n,
                           df_kernel *k, uint8_t *order, df_slot *extent)
{
    uint8_t loop[MAX_LOOPS];
    for (uint32_t i = 0; i < sp->n; i++) loop[i] = (uint8_t)i;
    df_assert(n_rows < sp->n);
    const merged rows = axes_merge(p, sp, loop, n_rows, a, n, true);
    merged columns = axes_merge(p, sp, loop + n_rows, sp->n - n_rows, a, n, false);
    if (columns.n == 0) {
        columns.loop[0] = (uint8_t)(sp->n - 1);
        columns.extent[0] = SLOT_ONE;
        columns.n = 1;
    }
    const uint32_t last = columns.n - 1;
    k->mode = DF_MODE_MAP;
    k->n_axes = 0;
    memset(k->role, 0, sizeof k->role);
    for (uint32_t i = 0; i < last; i++)
        put_axis(k, DF_AXIS_OUTER, columns.loop[i], columns.extent[i], order, extent);
    for (uint32_t i = 0; i < rows.n; i++)
        put_axis(k, DF_AXIS_OUTER, rows.loop[i], rows.extent[i], order, extent);
    put_axis(k, DF_AXIS_INNER, columns.loop[last], columns.extent[last], order, extent);
}

void df_fuse_pick_axes(pass *p, const space *sp, const access *a, uint32_t n, df_kernel *k,
                       uint8_t *order, df_slot *extent)
{
    uint8_t kept_loop[MAX_LOOPS] = { 0 }, red_loop[MAX_LOOPS] = { 0 };
    uint32_t n_kept = 0, n_red = 0;
    for (uint32_t i = 0; i < sp->n; i++) {
        const uint8_t l = sp->order[i];
        if (sp->red[l])
            red_loop[n_red++] = l;
        else
            kept_loop[n_kept++] = l;
    }
    merged kept = axes_merge(p, sp, kept_loop, n_kept, a, n, false);
    merged red = axes_merge(p, sp, red_loop, n_red, a, n, false);
    if (n_red > 0 && red.n == 0) {
        red.loop[0] = red_loop[n_red - 1];
        red.extent[0] = SLOT_ONE;
        red.n = 1;
    }
    const bool last_red = sp->n > 0 && sp->red[sp->order[sp->n - 1]];
    uint32_t best = 0, best_score = 0;
    for (uint32_t i = 0; i < kept.n; i++) {
        const uint32_t score = unit_along(a, n, &red, kept.loop[i]);
        if (score < best_score) continue;
        best = i;
        best_score = score;
    }
    k->n_axes = 0;
    memset(k->role, 0, sizeof k->role);
    if (n_red == 0) {
        k->mode = DF_MODE_MAP;
        order_map(&kept, a, n);
        for (uint32_t i = 0; i < kept.n; i++)
            put_axis(k, i + 1 < kept.n ? DF_AXIS_OUTER : DF_AXIS_INNER, kept.loop[i],
                     kept.extent[i], order, extent);
        if (kept.n == 0) put_axis(k, DF_AXIS_INNER, MAX_LOOPS, SLOT_ONE, order, extent);
        return;
    }
    /* With several RED axes, ROW needs the last loop to be reduced. A tie chooses ROW only when
     * it is. */
    const uint32_t row_score = unit_along(a, n, &red, red.loop[red.n - 1]);
    const bool row = (red.n == 1 || last_red) &&
                     (kept.n == 0 || (last_red ? row_score >= best_score : row_score > best_score));
    k->mode = row ? DF_MODE_ROW : DF_MODE_COL;
    for (uint32_t i = 0; i < kept.n; i++)
        if (row || i != best)
            put_axis(k, DF_AXIS_OUTER, kept.loop[i], kept.extent[i], order, extent);
    for (uint32_t i = 0; i < red.n; i++)
        put_axis(k, DF_AXIS_RED, red.loop[i], red.extent[i], order, extent);
    if (row) return;
    if (kept.n > 0)
        put_axis(k, DF_AXIS_INNER, kept.loop[best], kept.extent[best], order, extent);
    else
        put_axis(k, DF_AXIS_INNER, MAX_LOOPS, SLOT_ONE, order, extent);
}

void df_fuse_loop_axes(pass *p, const space *sp, const access *a, uint32_t n, df_kernel *k,
                       uint8_t *order, df_slot *extent)
{
    uint8_t kept_loop[MAX_LOOPS] = { 0 }, iterations = 0;
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < sp->n; i++) {
        const uint8_t l = sp->order[i];
        if (sp->red[l])
            iterations = l;
        else
            kept_loop[n_kept++] = l;
    }
    const merged kept = axes_merge(p, sp, kept_loop, n_kept, a, n, false);
    k->mode = DF_MODE_LOOP;
    k->n_axes = 0;
    memset(k->role, 0, sizeof k->role);
    for (uint32_t i = 0; i + 1 < kept.n; i++)
        put_axis(k, DF_AXIS_OUTER, kept.loop[i], kept.extent[i], order, extent);
    put_axis(k, DF_AXIS_RED, iterations, sp->extent[iterations], order, extent);
    if (kept.n > 0)
        put_axis(k, DF_AXIS_INNER, kept.loop[kept.n - 1], kept.extent[kept.n - 1], order, extent);
    else
        put_axis(k, DF_AXIS_INNER, MAX_LOOPS, SLOT_ONE, order, extent);
}

/* ---- sealing ---- */

/* df_access.same_as: the first earlier access to the same memory, when either of the two stores;
 * else i itself. */
static uint32_t same_as(const access *a, uint32_t i)
{
    if (IS_NONE(a[i].buf)) return i;
    for (uint32_t j = 0; j < i; j++)
        if (!IS_NONE(a[j].buf) && a[j].memory == a[i].memory &&
            (a[j].kind == DF_ACCESS_STORE || a[i].kind == DF_ACCESS_STORE))
            return j;
    return i;
}

/* Whether two accesses load from one buffer with the same strides. */
static bool is_alike(const access *a, const access *b)
{
    return a->kind == DF_ACCESS_LOAD && b->kind == DF_ACCESS_LOAD && a->dtype == b->dtype &&
           a->buf.i == b->buf.i && !IS_NONE(a->buf) &&
           memcmp(a->at.stride, b->at.stride, sizeof a->at.stride) == 0;
}

/* The last argument that the slot depends on, plus 1. 0: it depends on none. */
static uint32_t last_argument(const pass *p, df_slot s)
{
    const df_slot_def d = p->slots.at[s.i];
    if (d.op == DF_SLOT_arg) return d.a + 1;
    if (d.op < DF_SLOT_add) return 0;
    const uint32_t a = last_argument(p, (df_slot){ d.a }), b = last_argument(p, (df_slot){ d.b });
    return a > b ? a : b;
}

/* df_access.twin of access i of n. Which of two begins first in memory is known in a run alone. The
 * first of two parts is mostly the one that was recorded first. */
static uint16_t twin_of(const pass *p, const access *a, uint32_t i, uint32_t n)
{
    uint32_t twin = n, n_alike = 0;
    for (uint32_t j = 0; j < n; j++) {
        if (j == i || !is_alike(&a[j], &a[i])) continue;
        n_alike++;
        twin = j;
    }
    if (n_alike != 1 || twin >= UINT16_MAX || p->st != DEFT_OK) return 0;
    const uint32_t mine = last_argument(p, a[i].at.off), other = last_argument(p, a[twin].at.off);
    const bool is_second = mine == other ? twin < i : other < mine;
    return is_second ? (uint16_t)(twin + 1) : 0;
}

/* may_be_unit: the last axis, or an axis of a MAP kernel that is no epilogue. */
static uint8_t axes_step_of(const access *a, uint8_t loop, bool last, bool may_be_unit)
{
    if (a->kind == DF_ACCESS_AT) return DF_STEP_ZERO;
    if (a->kind == DF_ACCESS_SCRATCH) return last ? DF_STEP_UNIT : DF_STEP_ZERO;
    if (loop == MAX_LOOPS || df_same_slot(a->at.stride[loop], SLOT_ZERO)) return DF_STEP_ZERO;
    return may_be_unit && df_same_slot(a->at.stride[loop], SLOT_ONE) ? DF_STEP_UNIT : DF_STEP_ANY;
}

/* Whether the reduction may be split between threads, in a PART and a FIN phase
 * (DF_KERNEL_SPLIT). */
static bool is_split(const body *b, const df_kernel *k)
{
    bool reduces = false;
    if (k->n_stages != 2 || k->flags & DF_KERNEL_SCAN) return false;
    for (size_t i = 0; i < b->ins.n; i++) {
        const df_ins *const x = &b->ins.at[i];
        if (df_kop_infos[x->op].kind == DF_KOP_reduce) reduces = true;
        if (x->stage == 1 && x->level == DF_LEVEL_ELEM) return false;
        if (x->stage == 0 && x->level == DF_LEVEL_ROW && x->op == DF_K_store) return false;
    }
    return reduces;
}

/* Seals *k: makes its canonical bytes, which are its key. Adds *k to the plan, unless the plan has
 * a kernel with the same key. *out: the kernel of the plan with that key. */
static deft_status add_kernel(pass *p, df_kernel *k, df_kern *out)
{
    const deft_status st = df_kernel_seal(p->diag, k, &p->plan->arena);
    if (st != DEFT_OK) return st;
    uint32_t pos = UINT32_MAX, i;
    while ((i = df_table_next(&p->kernel_index, k->key.hash.lo, &pos)) != DF_NONE) {
        const df_key *const key = &p->kernels.at[i].key;
        if (key->n == k->key.n && memcmp(key->bytes, k->key.bytes, key->n) == 0) {
            *out = (df_kern){ i };
            return DEFT_OK;
        }
    }
    *out = (df_kern){ (uint32_t)p->kernels.n };
    if (!df_vec_push(p->mem, &p->kernels, *k) ||
        !df_table_add(&p->kernel_index, p->mem, k->key.hash.lo, out->i))
        return df_fail_mem(p->diag, "fuser", sizeof *k);
    return DEFT_OK;
}

deft_status df_fuse_seal_body(pass *p, body *b, df_kernel shape, const uint8_t *order,
                              const df_slot *extent, df_seg *seg)
{
    df_arena *const arena = &p->plan->arena;
    const uint32_t n = (uint32_t)b->access.n;
    df_access *const access_out = df_arena_new(arena, df_access, n);
    df_bind *const bind = df_arena_new(arena, df_bind, n);
    uint32_t *const num = df_arena_copy(arena, b->num.at, b->num.n * sizeof *num, 4);
    uint8_t *const num_dtype = df_arena_copy(arena, b->num_dtype.at, b->num_dtype.n, 1);
    /* An epilogue reads the product from a tile, whose strides are not those of the plan. */
    const bool may_cross = shape.mode == DF_MODE_MAP && seg->kind != DF_SEG_MATMUL;
    df_ins *const ins = df_arena_copy(arena, b->ins.at, b->ins.n * sizeof *ins, 8);
    if (!access_out || !bind || !num || !num_dtype || !ins)
        return df_fail_mem(p->diag, "fuser", b->ins.n * sizeof *ins);
    for (uint32_t i = 0; i < n; i++) {
        const access *const a = &b->access.at[i];
        access_out[i].kind = a->kind;
        access_out[i].dtype = a->dtype;
        access_out[i].same_as = same_as(b->access.at, i);
        bind[i].buf = a->buf;
        bind[i].offset = a->at.off;
        for (uint32_t x = 0; x < shape.n_axes; x++) {
            const bool last = x + 1u == shape.n_axes;
            access_out[i].step[x] = axes_step_of(a, order[x], last, last || may_cross);
            bind[i].stride[x] = access_out[i].step[x] == DF_STEP_ZERO ? SLOT_ZERO
                                : a->kind == DF_ACCESS_SCRATCH        ? SLOT_ONE
                                                                      : a->at.stride[order[x]];
        }
        if (access_out[i].step[shape.n_axes - 1] == DF_STEP_ANY)
            access_out[i].twin = twin_of(p, b->access.at, i, n);
    }
    shape.n_access = n;
    shape.n_num = (uint32_t)b->num.n;
    shape.n_ins = (uint32_t)b->ins.n;
    shape.access = access_out;
    shape.ins = ins;
    if (p->t->flags & DF_TRACE_FAST) shape.flags |= DF_KERNEL_FAST;
    if (is_split(b, &shape)) shape.flags |= DF_KERNEL_SPLIT;
    seg->bind = bind;
    seg->num = num;
    seg->num_dtype = num_dtype;
    for (uint32_t x = 0; x < DF_MAX_AXES; x++)
        seg->extent[x] = x < shape.n_axes ? extent[x] : SLOT_ZERO;
    return p->st == DEFT_OK ? add_kernel(p, &shape, &seg->kernel) : p->st;
}
