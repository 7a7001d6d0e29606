/* SPDX-License-Identifier: Apache-2.0
 *
 * Notes of launches in the structured log, and their time by call site (spent.h).
 *
 * The bytes of a launch are those that it must read or write at least once. Each access counts its
 * elements along the axes on which its stride is not 0. Values in a tile and computed values count
 * nothing. The operations of a launch are those on floats, in kernels and products. A fused
 * multiply-add counts two; min and comparisons count; casts and selections do not.
 */
#include "runtime/exec/exec_run.h"
#include "trace/opaque.h"

#include <stdio.h>

#include "ops/shape.h"
#include "runtime/spent.h"

static uint64_t matmul_bytes(const df_run *r, const df_seg *seg)
{
    const uint64_t m = (uint64_t)df_run_slot(r, seg->m), n = (uint64_t)df_run_slot(r, seg->n),
                   k = (uint64_t)df_run_slot(r, seg->k);
    uint64_t batch = 1;
    for (uint32_t i = 0; i < seg->n_batch; i++) batch *= (uint64_t)df_run_slot(r, seg->batch[i]);
    return batch * (m * k * deft_dtype_size(seg->a_dtype) + k * n * deft_dtype_size(seg->b_dtype) +
                    (seg->c.buf.i == DF_NONE ? 0 : m * n * deft_dtype_size(seg->dtype)));
}

static uint64_t call_operand_bytes(const df_run *r, const df_call_operand *x)
{
    uint64_t n = deft_dtype_size(x->dtype);
    for (uint32_t j = 0; j < x->rank; j++) n *= (uint64_t)df_run_slot(r, x->extent[j]);
    return n;
}

static uint64_t call_bytes(const df_run *r, const df_seg_call *c)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->n_in; i++) sum += call_operand_bytes(r, &c->in[i]);
    for (uint32_t i = 0; i < c->n_out; i++) sum += call_operand_bytes(r, &c->out[i]);
    return sum;
}

static uint64_t routine_bytes(const df_run *r, const df_seg *seg)
{
    uint64_t batch = 1;
    if (seg->op == DF_OP_result) return 0; /* counted with its call */
    if (seg->call) return call_bytes(r, seg->call);
    for (uint32_t i = 0; i < seg->n_batch; i++) batch *= (uint64_t)df_run_slot(r, seg->batch[i]);
    /* scatter_add and index_add: each value is read, and its element is read and written. */
    if (df_op_writes_over((df_op)seg->op)) return 3 * batch * deft_dtype_size(seg->dtype);
    const size_t b_size = seg->op == DF_OP_compress ? deft_dtype_size(seg->b_dtype) : 0;
    return batch * ((uint64_t)df_run_slot(r, seg->n) * (deft_dtype_size(seg->dtype) + b_size) +
                    (uint64_t)df_run_slot(r, seg->m) * deft_dtype_size(df_bind_routine_dtype(seg)));
}

static uint64_t seg_bytes(const df_run *r, const df_seg *seg)
{
    const df_kernel *const k = df_seg_kernel(r->plan, seg);
    uint64_t bytes = 0;
    for (uint32_t i = 0; k && i < k->n_access; i++)
        if (df_access_is_strided(k->access[i].kind) &&
            (seg->kind == DF_SEG_KERNEL || i != seg->c_access))
            bytes += df_run_access_bytes(r, seg, k, i);
    if (seg->kind == DF_SEG_MATMUL) bytes += matmul_bytes(r, seg);
    if (seg->kind == DF_SEG_ROUTINE) bytes += routine_bytes(r, seg);
    return bytes;
}

/* Returns how many operations on floats one instruction counts as. */
static uint64_t ins_flops(const df_kernel *k, const df_ins *ins)
{
    const uint32_t k_op = ins->op;
    const deft_dtype dtype =
        df_kop_infos[k_op].n_src ? (deft_dtype)k->ins[ins->src[0]].dtype : (deft_dtype)ins->dtype;
    if (!df_is_float(dtype)) return 0;
    if (k_op == DF_K_fma || k_op == DF_K_scale) return 2;
    if (k_op == DF_K_select || k_op == DF_K_cast || k_op == DF_K_bitcast) return 0;
    const df_kop_kind kind = (df_kop_kind)df_kop_infos[k_op].kind;
    return kind == DF_KOP_map || kind == DF_KOP_reduce || kind == DF_KOP_scan;
}

/* Returns true for a loop that can end early. Its bound says little, so it counts as one iteration.
 */
static bool has_proceed(const df_kernel *k)
{
    for (uint32_t i = 0; k->mode == DF_MODE_LOOP && i < k->n_ins; i++)
        if (k->ins[i].op == DF_K_proceed) return true;
    return false;
}

static uint64_t kernel_flops(const df_run *r, const df_seg *seg, const df_kernel *k)
{
    const bool leaves = has_proceed(k);
    uint64_t rows = 1, elements = 1, per_row = 0, per_element = 0;
    for (uint32_t x = 0; x < k->n_axes; x++) {
        const uint64_t n = (uint64_t)df_run_slot(r, seg->extent[x]);
        if (k->role[x] != DF_AXIS_RED || !leaves) elements *= n;
        if (k->role[x] != DF_AXIS_RED) rows *= n;
    }
    for (uint32_t i = 0; i < k->n_ins; i++)
        if (k->ins[i].level == DF_LEVEL_ELEM)
            per_element += ins_flops(k, &k->ins[i]);
        else
            per_row += ins_flops(k, &k->ins[i]);
    return rows * per_row + elements * per_element;
}

static uint64_t seg_flops(const df_run *r, const df_seg *seg)
{
    const df_kernel *const k = df_seg_kernel(r->plan, seg);
    uint64_t flops = k ? kernel_flops(r, seg, k) : 0, product = 2;
    if (seg->kind != DF_SEG_MATMUL) return flops;
    for (uint32_t i = 0; i < seg->n_batch; i++) product *= (uint64_t)df_run_slot(r, seg->batch[i]);
    product *= (uint64_t)df_run_slot(r, seg->m) * (uint64_t)df_run_slot(r, seg->n);
    return flops + product * (uint64_t)df_run_slot(r, seg->k);
}

/* ---- time by call site ---- */

/* Returns the call site of the last record that a segment computes. Where the trace has no sites,
 * returns that of the plan. */
static uintptr_t site_of(const df_run *r, const df_seg *seg)
{
    const df_plan *const p = r->plan;
    const uintptr_t *const sites = r->t->site;
    uintptr_t site = 0;
    if (seg->kernel.i != DF_NONE && p->about) site = p->about[seg->kernel.i].site;
    if (!site && sites && seg->n_from) site = sites[p->from[seg->from + seg->n_from - 1]];
    return site ? site : p->site;
}

static const char *ops_of(const df_run *r, const df_seg *seg)
{
    const df_plan *const p = r->plan;
    if (seg->kernel.i != DF_NONE && p->about && p->about[seg->kernel.i].ops)
        return p->about[seg->kernel.i].ops;
    const df_opaque *const x = seg->call ? df_opaques_at(r->t->opaques, seg->attr) : NULL;
    return x ? x->name : seg->kind == DF_SEG_MATMUL ? "matmul" : "a routine";
}

/* The segments of a launch run together, so its time is shared out by their estimated times. A
 * product costs m n k multiplications, of which a core does some tens in a nanosecond. */
static double weight_of(const df_run *r, const df_seg *seg, const df_seg_run *s)
{
    double w = s->kernel ? s->ns : 0;
    if (seg->kind != DF_SEG_KERNEL)
        w += (double)seg_bytes(r, seg) * 0.1 + 0.05 * (double)df_run_slot(r, seg->m) *
                                                   (double)df_run_slot(r, seg->n) *
                                                   (double)df_run_slot(r, seg->k);
    return w + 1;
}

static void spend(const df_run *r, const df_launch *l, uint64_t ns)
{
    double total = 0;
    for (uint32_t i = l->first; i < l->first + l->n; i++)
        total += weight_of(r, &r->plan->segs[i], &r->segs[i]);
    for (uint32_t i = l->first; i < l->first + l->n; i++) {
        const df_seg *const seg = &r->plan->segs[i];
        df_spending add = { .site = site_of(r, seg),
                            .ns = (uint64_t)((double)ns * weight_of(r, seg, &r->segs[i]) / total),
                            .bytes = seg_bytes(r, seg),
                            .n = 1 };
        (void)snprintf(add.ops, sizeof add.ops, "%s", ops_of(r, seg));
        df_spent_add(r->x->spent, &add);
    }
}

/* ---- exported ---- */

void df_run_log_launch(const df_run *r, uint32_t index, df_ring *ring, uint64_t ns)
{
    if (r->x->spent) spend(r, &r->plan->launches[index], ns);
    if (!df_ring_on(ring)) return;
    const df_launch *const l = &r->plan->launches[index];
    uint64_t bytes = 0, flops = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        bytes += seg_bytes(r, &r->plan->segs[l->first + i]);
        flops += seg_flops(r, &r->plan->segs[l->first + i]);
    }
    const df_note_launch note = { .plan = df_plan_id(r->plan->owner, r->plan->number),
                                  .site = r->plan->site,
                                  .index = index,
                                  .segments = l->n,
                                  .forked = r->segs[l->first].parallel,
                                  .elapsed_ns = ns,
                                  .bytes = bytes,
                                  .block = r->plan->block,
                                  .flops = flops };
    df_ring_log(ring, DF_NOTE_launch, &note);
}

void df_run_log_loop(const df_run *r, df_ring *ring, uint64_t ns)
{
    const df_plan *const p = r->plan;
    double total = 0;
    for (uint32_t i = 0; i < p->n_segs; i++) total += weight_of(r, &p->segs[i], &r->segs[i]);
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const df_launch *const l = &p->launches[i];
        double share = 0;
        for (uint32_t j = l->first; j < l->first + l->n; j++)
            share += weight_of(r, &p->segs[j], &r->segs[j]);
        if (l->n > 0) df_run_log_launch(r, i, ring, (uint64_t)((double)ns * share / total));
    }
}
