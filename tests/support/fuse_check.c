/* SPDX-License-Identifier: Apache-2.0
 *
 * See fuse_check.h. Memory comes from malloc directly: this is the test's own, not the library's.
 */
#include "support/faces.h"
#include "support/fence.h"
#include "support/fuse_check.h"
#include "support/int_ref.h"
#include "support/half_ref.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/limits.h"
#include "ops/shape.h"
#include "runtime/bind.h"
#include "runtime/interp/interp.h"

typedef struct runner {
    const df_plan *plan;
    const df_trace *t;
    int64_t *slots;
    char **base; /* per buffer */
    char **own;  /* per buffer: to be freed, with room for a fence before and after */
    bool split;
} runner;

static size_t elem(deft_dtype t)
{
    return deft_dtype_size(t);
}

static uint64_t num_bits(const runner *r, uint32_t which, uint8_t dtype)
{
    uint64_t bits = 0;
    if (!(which & DF_NUM_IS_SLOT)) return (uint64_t)r->t->args[which];
    const int64_t v = r->slots[which & ~DF_NUM_IS_SLOT];
    const float f = (float)v;
    const double g = (double)v;
    switch ((deft_dtype)dtype) {
    CASES_OF_FACES:
        break;
    case DEFT_BOOL:
        return v != 0;
    INT_REF_CASES:
        return int_ref_word((deft_dtype)dtype, v);
    case DEFT_F32: return df_f32_bits(f);
    case DEFT_F64: memcpy(&bits, &g, sizeof g); return bits;
    case DEFT_F16: /* no slot is a half */
    case DEFT_BF16: break;
    }
    return 0;
}

/* Runs kernel k of a segment over all it has. tile: memory for the access that reads a matmul's
 * tile. */
static void run_kernel(runner *r, const df_seg *s, char *tile, int64_t *fault)
{
    const df_kernel *const k = &r->plan->kernels[s->kernel.i];
    int64_t extent[DF_MAX_AXES], n_outer = 1, inner = 1, red = 1;
    char **ptr = calloc(k->n_access + 1, sizeof *ptr);
    char **scratch = calloc(k->n_access + 1, sizeof *scratch);
    int64_t *stride = calloc((size_t)(k->n_access + 1) * k->n_axes, sizeof *stride);
    int64_t *base = calloc(k->n_access + 1, sizeof *base);
    uint64_t *num = calloc(k->n_num + 1, sizeof *num);
    for (uint32_t x = 0; x < k->n_axes; x++) {
        extent[x] = r->slots[s->extent[x].i];
        if (k->role[x] == DF_AXIS_OUTER) n_outer *= extent[x];
        if (k->role[x] == DF_AXIS_INNER) inner = extent[x];
        if (k->role[x] == DF_AXIS_RED) red *= extent[x];
    }
    for (uint32_t a = 0; a < k->n_access; a++) {
        const df_bind *const b = &s->bind[a];
        const int64_t off = r->slots[b->offset.i];
        const int64_t size = (int64_t)elem((deft_dtype)k->access[a].dtype);
        for (uint32_t x = 0; x < k->n_axes; x++)
            stride[a * k->n_axes + x] = r->slots[b->stride[x].i];
        if (k->access[a].kind == DF_ACCESS_INDEX)
            base[a] = off;
        else if (k->access[a].kind == DF_ACCESS_SCRATCH)
            ptr[a] = scratch[a] = malloc((size_t)(off * size + 64));
        else
            ptr[a] = (b->buf.i == DF_NONE ? tile : r->base[b->buf.i]) + off * size;
    }
    for (uint32_t n = 0; n < k->n_num; n++) num[n] = num_bits(r, s->num[n], s->num_dtype[n]);
    const size_t work_size = df_interp_work_size(k);
    void *work = aligned_alloc(64, (work_size + 127) & ~(size_t)63);
    df_kargs args = {
        .ptr = ptr, .stride = stride, .base = base, .extent = extent, .num = num, .fault = fault
    };
    if (n_outer > 0 && inner > 0) {
        if (r->split && k->flags & DF_KERNEL_SPLIT) {
            const int64_t n_blocks = (red + DF_BLOCK - 1) / DF_BLOCK;
            args.partial = calloc((size_t)(n_blocks * inner + 1) * 2 * (k->n_ins + 1), 8);
            for (int64_t o = 0; o < n_outer; o++) {
                for (int64_t b = n_blocks; b-- > 0;) df_interp_part(k, work, &args, o, b, b + 1);
                df_interp_fin(k, work, &args, o, 0, inner);
            }
            free(args.partial);
        } else if (n_outer > 1) {
            df_interp_main(k, work, &args, n_outer / 2, n_outer, 0, inner);
            df_interp_main(k, work, &args, 0, n_outer / 2, 0, inner);
        } else if (inner > 1) {
            df_interp_main(k, work, &args, 0, 1, inner / 2, inner);
            df_interp_main(k, work, &args, 0, 1, 0, inner / 2);
        } else {
            df_interp_main(k, work, &args, 0, n_outer, 0, inner);
        }
    }
    for (uint32_t a = 0; a < k->n_access; a++) free(scratch[a]);
    free(work);
    free(num);
    free(base);
    free(stride);
    free(scratch);
    free(ptr);
}

static double get(const char *p, deft_dtype t, int64_t i)
{
    if (half_is(t)) return half_value(t, ((const uint16_t *)(const void *)p)[i]);
    return t == DEFT_F32 ? ((const float *)(const void *)p)[i]
                         : ((const double *)(const void *)p)[i];
}

static void run_matmul(runner *r, const df_seg *s, int64_t *fault)
{
    const int64_t m = r->slots[s->m.i], n = r->slots[s->n.i], k = r->slots[s->k.i];
    int64_t batches = 1;
    for (uint32_t i = 0; i < s->n_batch; i++) batches *= r->slots[s->batch[i].i];
    const uint32_t x = s->n_batch;
    char *tile = malloc((size_t)(batches * m * n + 1) * 8);
    char *const c = s->c.buf.i == DF_NONE ? tile : r->base[s->c.buf.i];
    const char *const a = r->base[s->a.buf.i], *const b = r->base[s->b.buf.i];
    for (int64_t q = 0; q < batches; q++) {
        int64_t ao = r->slots[s->a.offset.i], bo = r->slots[s->b.offset.i], rest = q;
        for (uint32_t i = x; i-- > 0;) {
            const int64_t e = r->slots[s->batch[i].i], at = rest % e;
            rest /= e;
            ao += at * r->slots[s->a.stride[i].i];
            bo += at * r->slots[s->b.stride[i].i];
        }
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double acc = 0;
                for (int64_t l = 0; l < k; l++) {
                    const double u = get(a, s->a_dtype,
                                         ao + i * r->slots[s->a.stride[x].i] +
                                             l * r->slots[s->a.stride[x + 1].i]);
                    const double v = get(b, s->b_dtype,
                                         bo + l * r->slots[s->b.stride[x].i] +
                                             j * r->slots[s->b.stride[x + 1].i]);
                    acc = s->dtype == DEFT_F32 ? (double)fmaf((float)u, (float)v, (float)acc)
                                               : fma(u, v, acc);
                }
                const int64_t at = (q * m + i) * n + j;
                if (s->dtype == DEFT_F32)
                    ((float *)(void *)c)[at] = (float)acc;
                else
                    ((double *)(void *)c)[at] = acc;
            }
    }
    if (s->kernel.i != DF_NONE) run_kernel(r, s, tile, fault);
    free(tile);
}

static int64_t stride_of(const runner *r, const df_bind *b, uint32_t axis)
{
    return r->slots[b->stride[axis].i];
}

/* One value after the other, each found from its position. */
static void run_scatter(runner *r, const df_seg *s, int64_t *fault)
{
    const bool slices = df_op_scatters_slices((df_op)s->op);
    const char *const indices = r->base[s->a.buf.i];
    int64_t n_values = 1;
    for (uint32_t i = 0; i < s->n_batch; i++) n_values *= r->slots[s->batch[i].i];
    for (int64_t q = 0; q < n_values; q++) {
        int64_t a = r->slots[s->a.offset.i], b = r->slots[s->b.offset.i],
                c = r->slots[s->c.offset.i];
        int64_t rest = q;
        for (uint32_t i = s->n_batch; i-- > 0;) {
            const int64_t at = rest % r->slots[s->batch[i].i];
            const bool indexed = i >= s->attr && i < s->attr + (slices ? s->n_index : 1);
            rest /= r->slots[s->batch[i].i];
            b += at * stride_of(r, &s->b, i);
            if (!slices) a += at * stride_of(r, &s->a, i);
            if (slices && indexed) a += at * stride_of(r, &s->a, i - s->attr);
            if (!indexed)
                c += at * stride_of(r, &s->c, slices && i > s->attr ? i + 1 - s->n_index : i);
        }
        const int64_t index = int_ref_get((deft_dtype)s->a_dtype, indices, (size_t)a);
        const int64_t at = index < 0 ? index + r->slots[s->n.i] : index;
        if (at < 0 || at >= r->slots[s->n.i]) {
            fault[0] = s->fault + 1;
            fault[1] = at;
            fault[2] = r->slots[s->n.i];
            return;
        }
        c += at * stride_of(r, &s->c, s->attr);
        fuse_combine(df_scatter_how_of((df_op)s->op), s->dtype, r->base[s->c.buf.i], c,
                     r->base[s->b.buf.i], b);
    }
}

static void run_routine(runner *r, const df_seg *s)
{
    const int64_t n = r->slots[s->n.i], m = r->slots[s->m.i];
    if (s->op == DF_OP_compress) {
        const char *const a = r->base[s->a.buf.i], *const b = r->base[s->b.buf.i];
        const int64_t at = r->slots[s->a.offset.i], mask_at = r->slots[s->b.offset.i];
        fuse_compress(s->dtype, a + at * (int64_t)elem(s->dtype), stride_of(r, &s->a, 0),
                      s->b_dtype, b + mask_at * (int64_t)elem(s->b_dtype), stride_of(r, &s->b, 0),
                      n, r->base[s->c.buf.i], m);
        return;
    }
    int64_t batches = 1;
    for (uint32_t i = 0; i < s->n_batch; i++) batches *= r->slots[s->batch[i].i];
    for (int64_t q = 0; q < batches; q++) {
        int64_t from = r->slots[s->a.offset.i], rest = q;
        for (uint32_t i = s->n_batch; i-- > 0;) {
            from += rest % r->slots[s->batch[i].i] * r->slots[s->a.stride[i].i];
            rest /= r->slots[s->batch[i].i];
        }
        fuse_routine_row(s->op, s->attr, s->dtype,
                         r->base[s->a.buf.i] + from * (int64_t)elem(s->dtype),
                         r->slots[s->a.stride[s->n_batch].i], n,
                         (int64_t *)(void *)r->base[s->c.buf.i] + q * m, m);
    }
}

bool fuse_run(const df_plan *plan, const df_trace *t, bool reverse, bool split, void **roots,
              char *why, size_t why_size)
{
    runner r = { .plan = plan, .t = t, .split = split };
    bool ok = true;
    int64_t fault[3] = { 0 };
    r.slots = calloc(plan->n_slots + 1, sizeof *r.slots);
    r.base = calloc(plan->n_bufs + 1, sizeof *r.base);
    r.own = calloc(plan->n_bufs + 1, sizeof *r.own);
    char **region = calloc(plan->n_regions + 1, sizeof *region);
    df_slots_eval(plan->slots, plan->n_slots, t, r.slots);
    for (uint32_t i = 0; i < plan->n_regions; i++)
        if (plan->regions[i].outer == DF_NONE)
            region[i] = fenced(r.slots[plan->regions[i].bytes.i], 0xA5);
    for (uint32_t i = 0; i < plan->n_bufs; i++) {
        const df_plan_buf *const b = &plan->bufs[i];
        const int64_t bytes = r.slots[b->numel.i] * (int64_t)elem(b->dtype);
        if (b->kind == DF_BUF_INPUT || b->kind == DF_BUF_INTO) {
            r.base[i] = t->inputs[b->index].data;
        } else if (b->kind == DF_BUF_TEMP) {
            const uint32_t outer = plan->regions[b->index].outer;
            const uint32_t all = outer != DF_NONE ? outer : b->index;
            int64_t at = df_plan_region_offset(plan, r.slots, b->index);
            at -= df_plan_region_offset(plan, r.slots, all);
            r.base[i] = region[all] + GUARD_BYTES + at;
            if (r.slots[plan->regions[b->index].bytes.i] < bytes) {
                snprintf(why, why_size, "buffer %u does not fit its region", i);
                ok = false;
            }
        } else if (b->donor != DF_NONE && t->inputs[b->donor].flags & DF_INPUT_SOLE &&
                   b->first >= plan->n_checked) {
            r.base[i] = t->inputs[b->donor].data;
        } else {
            r.own[i] = fenced(bytes, 0xA5);
            r.base[i] = r.own[i] + GUARD_BYTES;
            if (b->keep) memcpy(r.base[i], t->inputs[b->donor].data, (size_t)bytes);
        }
    }
    for (uint32_t l = 0; l < plan->n_launches && ok; l++)
        for (uint32_t j = 0; j < plan->launches[l].n; j++) {
            const uint32_t n_beside = plan->launches[l].n - plan->launches[l].n_after;
            const uint32_t i =
                plan->launches[l].first + (reverse && j < n_beside ? n_beside - 1 - j : j);
            const df_seg *const s = &plan->segs[i];
            if (s->kind == DF_SEG_MATMUL)
                run_matmul(&r, s, fault);
            else if (s->kind == DF_SEG_ROUTINE && df_op_writes_over((df_op)s->op))
                run_scatter(&r, s, fault);
            else if (s->kind == DF_SEG_ROUTINE)
                run_routine(&r, s);
            else
                run_kernel(&r, s, NULL, fault);
        }
    if (fault[0] != 0) {
        snprintf(why, why_size, "fault at %%%lld: %lld outside %lld", (long long)fault[0] - 1,
                 (long long)fault[1], (long long)fault[2]);
        ok = false;
    }
    for (uint32_t i = 0; i < t->n_roots; i++) {
        const df_plan_buf *const b = &plan->bufs[plan->root_buf[i].i];
        const size_t bytes = (size_t)(r.slots[b->numel.i] * (int64_t)elem(b->dtype));
        roots[i] = NULL;
        if (b->kind == DF_BUF_INTO) continue;
        roots[i] = malloc(bytes + 1);
        memcpy(roots[i], r.base[plan->root_buf[i].i], bytes);
    }
    for (uint32_t i = 0; i < plan->n_bufs; i++)
        if (r.own[i]) {
            const df_plan_buf *const b = &plan->bufs[i];
            if (!fence_holds(r.own[i], r.slots[b->numel.i] * (int64_t)elem(b->dtype))) {
                snprintf(why, why_size, "wrote outside buffer %u", i);
                ok = false;
            }
            free(r.own[i]);
        }
    for (uint32_t i = 0; i < plan->n_regions; i++) {
        if (plan->regions[i].outer != DF_NONE) continue;
        if (!fence_holds(region[i], r.slots[plan->regions[i].bytes.i])) {
            snprintf(why, why_size, "wrote outside region %u", i);
            ok = false;
        }
        free(region[i]);
    }
    free(region);
    free(r.own);
    free(r.base);
    free(r.slots);
    return ok;
}

/* ---- inputs ---- */

static uint64_t next_random(uint64_t *s)
{
    *s += 0x9E3779B97F4A7C15u;
    uint64_t z = *s;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void fill(void *data, deft_dtype t, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        const uint64_t x = next_random(&seed);
        const double u = (double)(x >> 11) / 9007199254740992.0 * 4 - 2;
        switch (t) {
        CASES_OF_FACES:
            break;
        case DEFT_BOOL: ((uint8_t *)data)[i] = x & 1; break;
        case DEFT_I64:
            ((int64_t *)data)[i] = (int64_t)(x % 5) - 2;
            break; /* fit for indices from 3 on */
        case DEFT_U8:
        case DEFT_U16:
        case DEFT_U32: int_ref_put(t, data, (size_t)i, (int64_t)(x & 31)); break;
        case DEFT_U64: ((uint64_t *)data)[i] = (x & 31) << (x >> 32 & 63); break;
        case DEFT_I8:
        case DEFT_I16:
        case DEFT_I32: int_ref_put(t, data, (size_t)i, (int64_t)(x % 9) - 4); break;
        case DEFT_F32: ((float *)data)[i] = (float)u; break;
        case DEFT_F64: ((double *)data)[i] = u; break;
        case DEFT_F16:
        case DEFT_BF16: ((uint16_t *)data)[i] = half_bits(t, u); break;
        }
    }
}

typedef struct memory {
    char *at; /* lowest byte, after the fence */
    char *block;
    int64_t bytes;
} memory;

/* Fresh copies of all inputs, the same each time. Lowest address from the strides. */
static memory *give_inputs(df_trace *t)
{
    memory *m = calloc(t->n_inputs + 1, sizeof *m);
    for (uint32_t i = 0; i < t->n_inputs; i++) {
        df_input *const in = &t->inputs[i];
        const df_node *const x = &t->nodes[in->node];
        const int64_t *const extent = df_trace_extents(t, in->node);
        int64_t below = 0, above = 0;
        bool empty = false;
        for (uint32_t j = 0; j < x->rank; j++) {
            if (extent[j] == 0) empty = true;
            if (extent[j] == 0) continue;
            const int64_t span = (extent[j] - 1) * in->stride[j];
            if (span < 0)
                below -= span;
            else
                above += span;
        }
        const int64_t n = empty ? 0 : below + above + 1;
        const int64_t size = (int64_t)elem((deft_dtype)x->dtype);
        m[i].bytes = n * size;
        m[i].block = fenced(m[i].bytes, 0);
        m[i].at = m[i].block + GUARD_BYTES;
        fill(m[i].at, (deft_dtype)x->dtype, n, 17 * i + 5);
        in->data = m[i].at + below * size;
    }
    return m;
}

static bool take_inputs(df_trace *t, memory *m, char *why, size_t n)
{
    bool ok = true;
    for (uint32_t i = 0; i < t->n_inputs; i++) {
        if (!fence_holds(m[i].block, m[i].bytes)) {
            snprintf(why, n, "wrote outside input %u", i);
            ok = false;
        }
        free(m[i].block);
        t->inputs[i].data = NULL;
    }
    free(m);
    return ok;
}

/* ---- comparing ---- */

static bool same_value(const char *a, const char *b, deft_dtype t)
{
    const size_t n = elem(t);
    if (memcmp(a, b, n) == 0) return true;
    const bool real = t == DEFT_F32 || t == DEFT_F64 || half_is(t);
    return real && isnan(get(a, t, 0)) && isnan(get(b, t, 0));
}

typedef struct outcome {
    void **roots;
    char **into; /* per root: the memory written through, as it is afterwards */
} outcome;

static bool run_once(const df_plan *plan, df_trace *t, bool reverse, bool split, outcome *o,
                     char *why, size_t n)
{
    memory *m = give_inputs(t);
    o->roots = calloc(t->n_roots + 1, sizeof *o->roots);
    o->into = calloc(t->n_roots + 1, sizeof *o->into);
    bool ok = fuse_run(plan, t, reverse, split, o->roots, why, n);
    for (uint32_t i = 0; i < t->n_roots; i++) {
        if (t->roots[i].kind != DF_ROOT_INTO) continue;
        const memory *const w = &m[t->roots[i].into];
        o->into[i] = malloc((size_t)w->bytes + 1);
        memcpy(o->into[i], w->at, (size_t)w->bytes);
    }
    /* Inputs that may not be taken over keep their values. */
    for (uint32_t i = 0; i < t->n_inputs && ok; i++) {
        bool may = false;
        for (uint32_t r = 0; r < t->n_roots; r++)
            may |= t->roots[r].kind == DF_ROOT_INTO
                       ? t->roots[r].into == i
                       : t->roots[r].donor == i && t->inputs[i].flags & DF_INPUT_SOLE;
        if (may) continue;
        const df_node *const x = &t->nodes[t->inputs[i].node];
        char *fresh = malloc((size_t)m[i].bytes + 1);
        fill(fresh, (deft_dtype)x->dtype, m[i].bytes / (int64_t)elem((deft_dtype)x->dtype),
             17 * i + 5);
        if (memcmp(fresh, m[i].at, (size_t)m[i].bytes) != 0) {
            snprintf(why, n, "input %u was changed", i);
            ok = false;
        }
        free(fresh);
    }
    return take_inputs(t, m, why, n) && ok;
}

static void outcome_free(outcome *o, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        free(o->roots ? o->roots[i] : NULL);
        free(o->into ? o->into[i] : NULL);
    }
    free(o->roots);
    free(o->into);
}

/* ---- entry points ---- */

static df_trace *parse(df_arena *arena, const char *text, fuse_result *r)
{
    df_diag d = { 0 };
    df_trace *t = NULL;
    if (df_trace_parse(&d, text, strlen(text), arena, &t) == DEFT_OK) return t;
    snprintf(r->text, sizeof r->text, "parse: %s", d.text);
    return NULL;
}

static df_plan *plan_of(const df_trace *t, const df_limits *l, fuse_result *r)
{
    df_diag d = { 0 };
    df_plan *plan = NULL;
    /* With addresses, so that nothing seems to overlap. */
    memory *const m = give_inputs((df_trace *)(uintptr_t)t);
    const deft_status st = df_fuse(&d, t, l, &df_mem_system, &plan);
    take_inputs((df_trace *)(uintptr_t)t, m, r->text, sizeof r->text);
    if (st != DEFT_OK) {
        snprintf(r->text, sizeof r->text, "fuse: %s", d.text);
        return NULL;
    }
    if (df_plan_verify(&d, plan) != DEFT_OK) {
        snprintf(r->text, sizeof r->text, "verify: %s", d.text);
        df_plan_destroy(&plan, &df_mem_system);
    }
    return plan;
}

static bool guards_hold(const df_plan *plan, const df_trace *t, fuse_result *r)
{
    int64_t *const slots = calloc(plan->n_slots + 1, sizeof *slots);
    df_slots_eval(plan->slots, plan->n_slots, t, slots);
    memory *const m = give_inputs((df_trace *)(uintptr_t)t);
    const df_guard *const g = df_guard_first_miss(plan->guards, plan->n_guards, t, slots);
    if (g) {
        df_str s;
        df_str_init(&s, &df_mem_system);
        df_guard_explain(&s, g, t, plan->slots, slots);
        snprintf(r->text, sizeof r->text, "guard: %s", s.at ? s.at : "");
        df_str_finish(&s);
    }
    take_inputs((df_trace *)(uintptr_t)t, m, r->text, sizeof r->text);
    free(slots);
    return g == NULL;
}

static void count(const df_plan *plan, const df_trace *t, fuse_result *r)
{
    int64_t *const slots = calloc(plan->n_slots + 1, sizeof *slots);
    df_slots_eval(plan->slots, plan->n_slots, t, slots);
    r->temporary_bytes = df_plan_temporary_bytes(plan, slots);
    free(slots);
    r->n_launches = plan->n_launches;
    r->n_segs = plan->n_segs;
    r->n_kernels = plan->n_kernels;
    r->n_regions = plan->n_regions;
    r->n_guards = plan->n_guards;
    r->n_ins = r->n_donated = r->n_kept = 0;
    for (uint32_t k = 0; k < plan->n_kernels; k++) r->n_ins += plan->kernels[k].n_ins;
    for (uint32_t b = 0; b < plan->n_bufs; b++) {
        r->n_donated += plan->bufs[b].donor != DF_NONE;
        r->n_kept += plan->bufs[b].keep;
    }
    r->n_staged = plan->n_staged;
    r->n_copied = plan->n_copied;
    for (uint32_t i = 0; i < DF_LEN(r->copied_for) && i < plan->n_copied; i++)
        r->copied_for[i] = plan->copied[i].reader;
    r->retreated = plan->retreated;
    if (r->retreated) snprintf(r->text, sizeof r->text, "retreated: %s", plan->why[0].reason);
}

/* A root as it should be, against what a run left: in memory of its own, or in the caller's. */
static bool compare_naive(const df_trace *t, void *const *want, const outcome *have, char *why,
                          size_t n)
{
    for (uint32_t r = 0; r < t->n_roots; r++) {
        const df_node *const x = &t->nodes[t->roots[r].node];
        const int64_t *const extent = df_trace_extents(t, t->roots[r].node);
        const bool into = t->roots[r].kind == DF_ROOT_INTO;
        const df_input *const in = into ? &t->inputs[t->roots[r].into] : NULL;
        const size_t size = elem((deft_dtype)x->dtype);
        int64_t low = 0;
        for (uint32_t j = 0; into && j < x->rank; j++)
            if (in->stride[j] < 0) low -= (extent[j] - 1) * in->stride[j];
        for (int64_t i = 0; i < df_trace_numel(t, t->roots[r].node); i++) {
            int64_t at = into ? low : i, rest = i;
            for (uint32_t j = x->rank; into && j-- > 0; rest /= extent[j])
                at += rest % extent[j] * in->stride[j];
            const char *const have_at =
                (into ? have->into[r] : (const char *)have->roots[r]) + (size_t)at * size;
            const char *const want_at = (const char *)want[r] + (size_t)i * size;
            if (same_value(have_at, want_at, (deft_dtype)x->dtype)) continue;
            const bool real = df_is_float((deft_dtype)x->dtype);
            snprintf(why, n, "root %u element %lld: %.9g, should be %.9g", r, (long long)i,
                     real ? get(have_at, (deft_dtype)x->dtype, 0) : (double)*have_at,
                     real ? get(want_at, (deft_dtype)x->dtype, 0) : (double)*want_at);
            return false;
        }
    }
    return true;
}

static bool agree(const df_plan *plan, df_trace *t, fuse_result *r)
{
    const df_limits plain = { .n_threads = 1, .fuse = false, .keep_why = false };
    df_plan *oracle = plan_of(t, &plain, r);
    if (!oracle) return false;
    void **naive = calloc(t->n_roots + 1, sizeof *naive);
    memory *const m = give_inputs(t);
    fuse_naive(t, naive);
    take_inputs(t, m, r->text, sizeof r->text);
    bool ok = true;
    for (int how = -1; how < 4 && ok; how++) {
        outcome have = { 0 };
        ok = run_once(how < 0 ? oracle : plan, t, how & 1, how >> 1, &have, r->text,
                      sizeof r->text) &&
             compare_naive(t, naive, &have, r->text, sizeof r->text);
        if (!ok && how < 0)
            strncat(r->text, " (one kernel per op)", sizeof r->text - strlen(r->text) - 1);
        outcome_free(&have, t->n_roots);
    }
    for (uint32_t i = 0; i < t->n_roots; i++) free(naive[i]);
    free(naive);
    df_plan_destroy(&oracle, &df_mem_system);
    return ok;
}

fuse_result fuse_check_limits(const char *text, const df_limits *limits)
{
    fuse_result r = { .ok = false };
    df_arena arena;
    df_arena_init(&arena, &df_mem_system);
    df_trace *const t = parse(&arena, text, &r);
    df_plan *plan = t ? plan_of(t, limits, &r) : NULL;
    if (plan) {
        count(plan, t, &r);
        r.ok = guards_hold(plan, t, &r) && agree(plan, t, &r);
    }
    df_plan_destroy(&plan, &df_mem_system);
    df_arena_finish(&arena);
    return r;
}

fuse_result fuse_check(const char *text, uint32_t n_threads)
{
    const df_limits l = {
        .n_threads = n_threads, .max_body = DF_MAX_BODY, .fuse = true, .keep_why = true
    };
    return fuse_check_limits(text, &l);
}

static bool sizes_agree(const df_plan *plan, const df_trace *x, const df_trace *y)
{
    int64_t *const a = calloc(2 * ((size_t)plan->n_slots + 1), sizeof *a), *const b =
                                                                               a + plan->n_slots;
    bool same = plan->sizes != NULL;
    df_slots_eval(plan->slots, plan->n_slots, x, a);
    df_slots_eval(plan->slots, plan->n_slots, y, b);
    for (uint32_t i = 0; i < plan->n_sizes; i++) same &= a[plan->sizes[i].i] == b[plan->sizes[i].i];
    free(a);
    return same;
}

int fuse_serves(const char *a, const char *b, uint32_t n_threads, fuse_result *r)
{
    const df_limits l = {
        .n_threads = n_threads, .max_body = DF_MAX_BODY, .fuse = true, .keep_why = true
    };
    *r = (fuse_result){ .ok = false };
    int answer = -1;
    df_arena arena;
    df_arena_init(&arena, &df_mem_system);
    df_trace *const x = parse(&arena, a, r), *const y = parse(&arena, b, r);
    df_plan *plan = x ? plan_of(x, &l, r) : NULL;
    if (plan && y) {
        df_key kx, ky;
        df_diag d = { 0 };
        count(plan, x, r);
        if (df_trace_key(&d, x, &kx) == DEFT_OK && df_trace_key(&d, y, &ky) == DEFT_OK &&
            kx.n == ky.n && memcmp(kx.bytes, ky.bytes, kx.n) == 0) {
            answer = guards_hold(plan, y, r);
            if (answer) r->ok = agree(plan, y, r);
            r->same_sizes = sizes_agree(plan, x, y);
        }
    }
    df_plan_destroy(&plan, &df_mem_system);
    df_arena_finish(&arena);
    return answer;
}

char *fuse_plan_text(const char *text, uint32_t n_threads)
{
    const df_limits l = {
        .n_threads = n_threads, .max_body = DF_MAX_BODY, .fuse = true, .keep_why = true
    };
    fuse_result r = { .ok = false };
    df_arena arena;
    df_arena_init(&arena, &df_mem_system);
    df_trace *const t = parse(&arena, text, &r);
    df_plan *plan = t ? plan_of(t, &l, &r) : NULL;
    char *out = NULL;
    if (plan) {
        df_str s;
        df_str_init(&s, &df_mem_system);
        df_plan_print(&s, plan, t);
        out = s.at ? strdup(s.at) : NULL;
        df_str_finish(&s);
    } else {
        out = strdup(r.text);
    }
    df_plan_destroy(&plan, &df_mem_system);
    df_arena_finish(&arena);
    return out;
}
