/* SPDX-License-Identifier: Apache-2.0
 *
 * Prepares a call of the interpreter. Each instruction becomes a *step* with the addresses of its
 * operands. Each value gets a vector of DF_CHUNK lanes.
 *
 * Values of the innermost loop reuse the vectors of dead values, so that a long body stays in the
 * L1 cache. Uniform values, which depend on constants and numbers alone, are evaluated here, once
 * per call.
 */
#include "runtime/interp/interp_run.h"

#include "base/bump.h"

enum { N_SIZES = 4 }; /* of elements: 1, 2, 4, 8 bytes */

/* One instruction, during prepare. */
typedef struct scratch_ins {
    char *value;
    uint32_t last; /* the last instruction that reads the value */
    uint32_t step; /* index of its step */
    bool uniform;  /* equal in all lanes of the call: prepare evaluates it */
    bool shared;   /* its vector is reused when the value is dead */
} scratch_ins;

/* ---- workspace ---- */

static bool is_reducing(uint8_t kind)
{
    return kind == DF_KOP_reduce || kind == DF_KOP_scan;
}

static size_t size_of(uint8_t dtype)
{
    return deft_dtype_size((deft_dtype)dtype);
}

/* Returns the dtype by which the loop of an instruction is looked up. */
static uint8_t loop_dtype(const df_kernel *k, const df_ins *ins)
{
    const uint8_t kind = df_kop_infos[ins->op].kind;
    if (kind == DF_KOP_leaf || kind == DF_KOP_memory || ins->op == DF_K_select) return ins->dtype;
    return k->ins[ins->src[0]].dtype;
}

static void take_red(df_bump *b, const df_kernel *k, const df_ins *ins, df_red *out)
{
    const size_t lane = size_of(loop_dtype(k, ins)) * df_red_lanes(k);
    const bool is_scan = df_kop_infos[ins->op].kind == DF_KOP_scan;
    char *const acc = df_bump_take(b, lane * (is_scan || df_is_arg(ins->op) ? 1 : DF_LANES));
    char *const stack =
        df_is_arg(ins->op) || is_scan ? NULL : df_bump_take(b, lane * DF_TREE_DEPTH);
    int64_t *const index =
        df_is_arg(ins->op) ? df_bump_take(b, sizeof(int64_t) * df_red_lanes(k)) : NULL;
    char *const operand = df_has_runs(k) ? df_bump_take(b, lane * DF_CHUNK) : NULL;
    if (out) {
        out->operand = operand;
        out->acc = acc;
        out->stack = stack;
        out->index = index;
    }
}

static uint32_t count_reds(const df_kernel *k)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n_ins; i++) n += is_reducing(df_kop_infos[k->ins[i].op].kind);
    return n;
}

size_t df_interp_work_size(const df_kernel *k)
{
    df_bump b = { 0 };
    df_bump_take(&b, sizeof(df_istep) * k->n_ins);
    df_bump_take(&b, sizeof(df_red) * count_reds(k));
    df_bump_take(&b, sizeof(int64_t) * k->n_access * (k->n_axes + 2u));
    df_bump_take(&b, sizeof(scratch_ins) * k->n_ins);
    df_bump_take(&b, sizeof(char *) * k->n_ins * N_SIZES);
    for (uint32_t i = 0; i < k->n_ins; i++) {
        const df_ins *const ins = &k->ins[i];
        if (is_reducing(df_kop_infos[ins->op].kind)) take_red(&b, k, ins, NULL);
        df_bump_take(&b, size_of(ins->dtype) * DF_CHUNK);
    }
    return b.used + 64;
}

/* ---- values ---- */

/* ---- steps ---- */

static bool is_uniform(const scratch_ins *info, const df_ins *ins)
{
    if (ins->op == DF_K_const || ins->op == DF_K_num) return true;
    if (df_kop_infos[ins->op].kind != DF_KOP_map || ins->op == DF_K_check) return false;
    for (uint32_t i = 0; i < df_kop_infos[ins->op].n_src; i++)
        if (!info[ins->src[i]].uniform) return false;
    return true;
}

static df_lane_fn map_fn(const df_interp *x, const df_ins *ins)
{
    const uint8_t dtype = loop_dtype(x->k, ins);
    return ins->op == DF_K_cast ? x->ops->cast[dtype][ins->dtype] : x->ops->map[ins->op][dtype];
}

static void prepare_strides(df_interp *x)
{
    const df_kernel *const k = x->k;
    for (uint32_t i = 0; i < k->n_access; i++) {
        const df_access *const acc = &k->access[i];
        int64_t inside = 1; /* elements of the RED axes inside this one */
        for (uint32_t j = k->n_axes; j-- > 0;) {
            int64_t by = x->a->stride[i * k->n_axes + j];
            if (acc->kind == DF_ACCESS_SCRATCH) {
                by = k->role[j] == DF_AXIS_RED ? inside : 0;
                if (by) inside *= x->a->extent[j];
            } else if (acc->kind == DF_ACCESS_AT || acc->step[j] == DF_STEP_ZERO) {
                by = 0;
            } else if (acc->step[j] == DF_STEP_UNIT) {
                by = 1;
            }
            x->stride[i * k->n_axes + j] = by;
        }
    }
}

static void prepare_red(df_interp *x, df_bump *b, const df_ins *ins, char *result, uint32_t *slot)
{
    df_red *const r = &x->reds[x->n_reds++];
    const uint8_t dtype = loop_dtype(x->k, ins);
    df_assert(ins->op >= DF_K_sum && ins->op <= DF_K_cummax);
    /* The remainder changes nothing: gcc does not know that the op is a reduction, and warns. */
    const uint32_t row = (uint32_t)(ins->op - DF_K_sum) % DF_N_FOLDS;
    const bool is_arg = df_is_arg(ins->op);
    *r = (df_red){ .result = result,
                   .op = ins->op,
                   .dtype = dtype,
                   .size = (uint8_t)size_of(dtype),
                   /* argmin and argmax of no elements are 0 */
                   .identity = is_arg ? 0 : df_kop_identity((df_kop)ins->op, (deft_dtype)dtype),
                   .fold = x->ops->fold[row][dtype],
                   .fold_row = x->ops->fold_row[row][dtype],
                   .before = is_arg ? x->ops->before[ins->op == DF_K_argmax][dtype] : NULL,
                   .slot = *slot };
    if (df_kop_infos[ins->op].kind == DF_KOP_scan)
        r->scan = x->ops->scan[df_scan_of((df_kop)ins->op)][dtype];
    take_red(b, x->k, ins, r);
    *slot += is_arg ? 2 : 1;
}

/* Fills in *out, the step of instruction i, and returns it. Evaluates a uniform value at once, and
 * returns NULL. */
static df_istep *prepare_step(df_interp *x, const scratch_ins *info, uint32_t i, df_istep *out)
{
    const df_ins *const ins = &x->k->ins[i];
    const df_kop_info *const op = &df_kop_infos[ins->op];
    const size_t size = size_of(ins->dtype);
    if (ins->op == DF_K_const || ins->op == DF_K_num) {
        const uint64_t bits = ins->op == DF_K_num ? x->a->num[ins->imm] : ins->imm;
        df_splat_bits(info[i].value, bits, size, x->width);
        return NULL;
    }
    *out = (df_istep){ .dst = info[i].value,
                       .imm = ins->imm,
                       .op = ins->op,
                       .kind = op->kind,
                       .dtype = ins->dtype,
                       .size = (uint8_t)size };
    for (uint32_t j = 0; j < op->n_src; j++) out->src[j] = info[ins->src[j]].value;
    if (ins->op == DF_K_next) out->state = info[ins->src[0]].value;
    if (op->kind == DF_KOP_map) out->fn = map_fn(x, ins);
    df_assert(op->kind != DF_KOP_map || out->fn || ins->op == DF_K_check);
    if (info[i].uniform) {
        out->fn(out->dst, out->src[0], out->src[1], out->src[2], x->width);
        return NULL;
    }
    if (x->vec >= 0 && (op->kind == DF_KOP_memory || op->kind == DF_KOP_leaf))
        out->by = x->stride[ins->imm * x->k->n_axes + (uint32_t)x->vec];
    return out;
}

/* Vectors for values. A vector of a dead value is reused by the next value of the same size. */
typedef struct vectors {
    df_bump *b;
    char **unused[N_SIZES]; /* by size 1, 2, 4, 8 */
    uint32_t n_unused[N_SIZES];
} vectors;

static unsigned size_class(size_t size)
{
    return size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3;
}

static char *take_vector(vectors *v, size_t size)
{
    const unsigned c = size_class(size);
    return v->n_unused[c] ? v->unused[c][--v->n_unused[c]] : df_bump_take(v->b, size * DF_CHUNK);
}

static void release_dead(vectors *v, const df_kernel *k, scratch_ins *info, uint32_t i)
{
    const df_ins *const ins = &k->ins[i];
    for (uint32_t j = 0; j <= df_kop_infos[ins->op].n_src; j++) {
        const uint32_t dead = j == df_kop_infos[ins->op].n_src ? i : ins->src[j];
        if (info[dead].last != i || !info[dead].shared) continue;
        info[dead].shared = false;
        const unsigned c = size_class(size_of(k->ins[dead].dtype));
        v->unused[c][v->n_unused[c]++] = info[dead].value;
    }
}

static void mark_splats(df_interp *x, const scratch_ins *info)
{
    const df_kernel *const k = x->k;
    if (k->mode != DF_MODE_ROW) return;
    for (uint32_t i = 0; i < k->n_ins; i++) {
        if (k->ins[i].level != DF_LEVEL_ELEM) continue;
        for (uint32_t j = 0; j < df_kop_infos[k->ins[i].op].n_src; j++) {
            const uint32_t from = k->ins[i].src[j];
            const df_ins *const src = &k->ins[from];
            if (info[from].uniform) continue;
            if (src->level == DF_LEVEL_ROW || df_kop_infos[src->op].kind == DF_KOP_reduce)
                x->steps[info[from].step].splat = true;
        }
    }
}

static void prepare_steps(df_interp *x, df_bump *b)
{
    const df_kernel *const k = x->k;
    scratch_ins *const info = df_bump_take(b, sizeof *info * k->n_ins);
    vectors v = { .b = b };
    char **const unused = df_bump_take(b, sizeof *unused * k->n_ins * N_SIZES);
    for (uint32_t c = 0; c < N_SIZES; c++) v.unused[c] = unused + c * (size_t)k->n_ins;
    for (uint32_t i = 0; i < k->n_ins; i++) {
        info[i] = (scratch_ins){ .last = i };
        for (uint32_t j = 0; j < df_kop_infos[k->ins[i].op].n_src; j++)
            info[k->ins[i].src[j]].last = i;
    }

    uint32_t n_steps = 0, slot = 0;
    for (uint32_t i = 0; i < k->n_ins; i++) {
        const df_ins *const ins = &k->ins[i];
        const uint8_t kind = df_kop_infos[ins->op].kind;
        info[i].uniform = is_uniform(info, ins);
        info[i].shared = ins->level == DF_LEVEL_ELEM && kind != DF_KOP_reduce &&
                         kind != DF_KOP_loop && ins->op != DF_K_store && !info[i].uniform;
        if (ins->op != DF_K_store) {
            info[i].value = info[i].shared ? take_vector(&v, size_of(ins->dtype))
                                           : df_bump_take(b, size_of(ins->dtype) * DF_CHUNK);
        }
        df_istep *const s = prepare_step(x, info, i, &x->steps[n_steps]);
        if (s) {
            info[i].step = n_steps++;
            if (is_reducing(kind)) {
                s->red = x->n_reds;
                prepare_red(x, b, ins, info[i].value, &slot);
            }
            df_range *const in =
                ins->level == DF_LEVEL_ROW ? &x->row[ins->stage] : &x->elem[ins->stage];
            if (in->end == 0) in->begin = info[i].step;
            in->end = n_steps;
        }
        release_dead(&v, k, info, i);
    }
    mark_splats(x, info);
}

void df_interp_prepare(df_interp *x, df_pass p, const df_kernel *k, void *work, const df_kargs *a,
                       int64_t i0, int64_t i1)
{
    *x = (df_interp){
        .k = k, .a = a, .ops = df_lane_ops_best(), .pass = p, .vec = -1, .length = 1, .n_inner = 1
    };
    df_bump b = { .at = (char *)(((uintptr_t)work + 63) & ~(uintptr_t)63) };
    for (uint32_t j = 0; j < k->n_axes; j++) {
        switch ((df_role)k->role[j]) {
        case DF_AXIS_OUTER: x->n_outer++; break;
        case DF_AXIS_RED:
            x->n_red++;
            x->length *= a->extent[j];
            if (k->mode == DF_MODE_ROW) x->vec = (int)j;
            break;
        case DF_AXIS_INNER:
            x->vec = (int)j;
            x->n_inner = a->extent[j];
            break;
        }
    }
    /* The length of a loop may be a very large bound, and a loop has no blocks. */
    if (k->mode != DF_MODE_LOOP) x->n_blocks = (x->length + DF_BLOCK - 1) / DF_BLOCK;
    const int64_t lanes = k->mode == DF_MODE_ROW ? df_max_i64(x->length, 1) : i1 - i0;
    x->width = (uint32_t)df_min_i64(lanes, DF_CHUNK);

    x->steps = df_bump_take(&b, sizeof(df_istep) * k->n_ins);
    x->reds = df_bump_take(&b, sizeof(df_red) * count_reds(k));
    x->stride = df_bump_take(&b, sizeof(int64_t) * k->n_access * (k->n_axes + 2u));
    x->off = x->stride + (size_t)k->n_access * k->n_axes;
    x->outer = x->off + k->n_access;
    prepare_strides(x);
    prepare_steps(x, &b);
    df_assert(b.used <= df_interp_work_size(k));
}
