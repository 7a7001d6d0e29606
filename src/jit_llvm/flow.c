/* SPDX-License-Identifier: Apache-2.0
 *
 * Control flow as the other files need it: counted loops, ifs, and loop nests over several axes.
 *
 * A nest divides its first linear index into indices once (udiv, urem) and then only adds. A step
 * along the innermost axis adds a stride to every address. When that axis wraps, the indices carry
 * like an odometer, and all addresses are computed from the indices again. With one axis nothing
 * can carry.
 *
 *   index = the indices of `from`
 *   rebase:  address = origin + sum of index * stride
 *   body:    ...
 *            after the last index:            leave
 *            when the innermost axis wraps:   carry, then go to rebase
 *            otherwise:                       address += stride, then go to body
 */
#include "jit_llvm/gen.h"

/* ---- if ---- */

void df_if_begin(df_gen *g, df_if *f, LLVMValueRef cond)
{
    f->before = LLVMGetInsertBlock(g->b);
    f->then = df_gen_block(g, "then");
    f->after = df_gen_block(g, "after");
    LLVMBuildCondBr(g->b, cond, f->then, f->after);
    LLVMPositionBuilderAtEnd(g->b, f->then);
}

void df_if_end(df_gen *g, df_if *f)
{
    LLVMBuildBr(g->b, f->after);
    LLVMPositionBuilderAtEnd(g->b, f->after);
}

/* ---- counted loops ---- */

void df_loop_begin(df_gen *g, df_loop *l, LLVMValueRef from, LLVMValueRef to, LLVMValueRef step,
                   uint32_t max_carried)
{
    *l = (df_loop){ .to = to, .step = step };
    if (max_carried > 0) {
        l->phi = df_gen_values(g, max_carried);
        l->next = df_gen_values(g, max_carried);
        l->init = df_gen_values(g, max_carried);
        l->out = df_gen_values(g, max_carried);
    }
    l->pre = LLVMGetInsertBlock(g->b);
    l->body = df_gen_block(g, "loop");
    l->after = df_gen_block(g, "after");
    LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntSLT, from, to, ""), l->body, l->after);
    LLVMPositionBuilderAtEnd(g->b, l->body);
    l->i = LLVMBuildPhi(g->b, g->i64, "i");
    LLVMAddIncoming(l->i, &from, &l->pre, 1);
}

LLVMValueRef df_loop_carry(df_gen *g, df_loop *l, LLVMValueRef init)
{
    LLVMValueRef phi = LLVMBuildPhi(g->b, LLVMTypeOf(init), "");
    LLVMAddIncoming(phi, &init, &l->pre, 1);
    l->phi[l->n] = phi;
    l->next[l->n] = phi;
    l->init[l->n++] = init;
    return phi;
}

void df_loop_end(df_gen *g, df_loop *l)
{
    LLVMValueRef next = LLVMBuildAdd(g->b, l->i, l->step, "");
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(g->b);
    LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntSLT, next, l->to, ""), l->body, l->after);
    LLVMAddIncoming(l->i, &next, &latch, 1);
    LLVMPositionBuilderAtEnd(g->b, l->after);
    for (uint32_t i = 0; i < l->n; i++) {
        LLVMAddIncoming(l->phi[i], &l->next[i], &latch, 1);
        l->out[i] = LLVMBuildPhi(g->b, LLVMTypeOf(l->init[i]), "");
        LLVMAddIncoming(l->out[i], &l->init[i], &l->pre, 1);
        LLVMAddIncoming(l->out[i], &l->next[i], &latch, 1);
    }
}

/* ---- loop nests ---- */

/* Whether the access has the same address on all axes. The address of an AT access follows from an
 * index that the kernel computes. */
static bool stays(const df_access *a)
{
    return a->kind == DF_ACCESS_SCRATCH || a->kind == DF_ACCESS_AT;
}

/* Whether the access's address changes along an axis of the nest. */
static bool moves_along(const df_gen *g, const df_nest *w, uint32_t access)
{
    const df_access *a = &g->k->access[access];
    if (stays(a)) return false;
    for (int i = 0; i < w->n; i++)
        if (a->step[w->axes[i]] != DF_STEP_ZERO) return true;
    return false;
}

/* p advanced by `by`: bytes, or units for an access of kind INDEX. */
static LLVMValueRef move(df_gen *g, uint32_t access, LLVMValueRef p, LLVMValueRef by)
{
    if (g->k->access[access].kind == DF_ACCESS_INDEX) return LLVMBuildAdd(g->b, p, by, "");
    return df_gen_offset(g, p, by);
}

LLVMValueRef df_gen_stride(df_gen *g, uint32_t access, int axis)
{
    const df_access *a = &g->k->access[access];
    const int64_t at = (int64_t)access * g->k->n_axes + axis;
    LLVMValueRef elements =
        LLVMBuildLoad2(g->b, g->i64, df_gen_at(g, g->i64, g->p_stride, df_gen_i64(g, at)), "");
    const uint32_t size = a->kind == DF_ACCESS_INDEX ? 1 : df_bytes_of((deft_dtype)a->dtype);
    return size == 1 ? elements : LLVMBuildMul(g->b, elements, df_gen_i64(g, size), "");
}

/* Where the nest stores the current address of the access, and the address it begins with
 * (origin_of). */
static LLVMValueRef *place_of(df_gen *g, const df_nest *w, uint32_t access)
{
    return w->is_outer ? &g->acc[access].row : &g->acc[access].at;
}

static LLVMValueRef origin_of(const df_gen *g, const df_nest *w, uint32_t access)
{
    return w->is_outer ? g->acc[access].base : g->acc[access].row;
}

/* Sets index[0 .. n) to the indices of the linear index w->from. */
static void decompose(df_gen *g, df_nest *w, LLVMValueRef *index)
{
    LLVMValueRef rest = w->from;
    for (int i = w->n - 1; i > 0; i--) {
        LLVMValueRef extent = g->extent[w->axes[i]];
        index[i] = LLVMBuildURem(g->b, rest, extent, "");
        rest = LLVMBuildUDiv(g->b, rest, extent, "");
    }
    index[0] = rest;
}

void df_nest_guard(df_gen *g, df_nest *w)
{
    df_if_begin(g, &w->guard, LLVMBuildICmp(g->b, LLVMIntSLT, w->from, w->to, ""));
}

void df_nest_begin(df_gen *g, df_nest *w)
{
    for (uint32_t a = 0; a < g->k->n_access; a++) *place_of(g, w, a) = origin_of(g, w, a);
    w->o = w->from;
    if (df_gen_is(w->from, 0) && df_gen_is(w->to, 1)) w->n = 0; /* one position: all indices 0 */
    if (w->n == 0) return;

    w->inc = df_gen_values(g, g->k->n_access);
    LLVMValueRef index[DF_MAX_AXES];
    decompose(g, w, index);
    for (uint32_t a = 0; a < g->k->n_access; a++)
        if (!stays(&g->k->access[a]) && g->k->access[a].step[w->axes[w->n - 1]] != DF_STEP_ZERO)
            w->inc[a] = df_gen_stride(g, a, w->axes[w->n - 1]);
    for (uint32_t a = 0; a < g->k->n_access && !w->is_outer; a++)
        g->acc[a].ahead =
            w->inc[a] ? LLVMBuildMul(g->b, w->inc[a], df_gen_i64(g, DF_ROWS_AHEAD), "") : NULL;
    LLVMBasicBlockRef pre = LLVMGetInsertBlock(g->b);
    w->rebase = df_gen_block(g, "rebase");
    w->body = df_gen_block(g, "row");
    w->after = df_gen_block(g, "rows_done");
    LLVMBuildBr(g->b, w->rebase);
    LLVMPositionBuilderAtEnd(g->b, w->rebase);
    LLVMValueRef o = w->from;
    for (int i = 0; i < w->n; i++) w->index[i] = index[i];
    if (w->n > 1) {
        for (int i = 0; i < w->n; i++) {
            w->index[i] = LLVMBuildPhi(g->b, g->i64, "");
            LLVMAddIncoming(w->index[i], &index[i], &pre, 1);
        }
        w->rebase_o = o = LLVMBuildPhi(g->b, g->i64, "o");
        LLVMAddIncoming(o, &w->from, &pre, 1);
    }
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        if (!moves_along(g, w, a)) continue;
        LLVMValueRef p = origin_of(g, w, a);
        for (int i = 0; i < w->n; i++) {
            if (g->k->access[a].step[w->axes[i]] == DF_STEP_ZERO) continue;
            LLVMValueRef stride = i == w->n - 1 ? w->inc[a] : df_gen_stride(g, a, w->axes[i]);
            p = move(g, a, p, LLVMBuildMul(g->b, w->index[i], stride, ""));
        }
        *place_of(g, w, a) = p;
    }
    LLVMBuildBr(g->b, w->body);

    LLVMPositionBuilderAtEnd(g->b, w->body);
    w->o = LLVMBuildPhi(g->b, g->i64, "o");
    LLVMAddIncoming(w->o, &o, &w->rebase, 1);
    if (w->n > 1) {
        w->last = LLVMBuildPhi(g->b, g->i64, "");
        LLVMAddIncoming(w->last, &w->index[w->n - 1], &w->rebase, 1);
    }
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        if (!moves_along(g, w, a)) continue;
        LLVMValueRef *place = place_of(g, w, a), start = *place;
        *place = LLVMBuildPhi(g->b, LLVMTypeOf(start), "");
        LLVMAddIncoming(*place, &start, &w->rebase, 1);
    }
}

void df_nest_at(df_gen *g, int axis, LLVMValueRef i)
{
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        g->acc[a].at = g->acc[a].row;
        if (stays(&g->k->access[a]) || g->k->access[a].step[axis] == DF_STEP_ZERO) continue;
        LLVMValueRef by = LLVMBuildMul(g->b, i, df_gen_stride(g, a, axis), "");
        g->acc[a].at = move(g, a, g->acc[a].row, by);
    }
}

/* The innermost axis has wrapped: computes the next indices and jumps to rebase. */
static void carry(df_gen *g, df_nest *w, LLVMValueRef next_o)
{
    LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b);
    LLVMValueRef zero = df_gen_i64(g, 0), more = LLVMConstInt(g->i1, 1, 0);
    LLVMValueRef index[DF_MAX_AXES];
    index[w->n - 1] = zero;
    for (int i = w->n - 2; i >= 0; i--) {
        LLVMValueRef up =
            LLVMBuildAdd(g->b, w->index[i], LLVMBuildZExt(g->b, more, g->i64, ""), "");
        LLVMValueRef wraps = LLVMBuildICmp(g->b, LLVMIntEQ, up, g->extent[w->axes[i]], "");
        index[i] = i == 0 ? up : LLVMBuildSelect(g->b, wraps, zero, up, "");
        more = wraps;
    }
    for (int i = 0; i < w->n; i++) LLVMAddIncoming(w->index[i], &index[i], &here, 1);
    LLVMAddIncoming(w->rebase_o, &next_o, &here, 1);
    LLVMBuildBr(g->b, w->rebase);
}

void df_nest_end(df_gen *g, df_nest *w)
{
    if (w->n > 0) {
        LLVMValueRef o = LLVMBuildAdd(g->b, w->o, df_gen_i64(g, 1), "");
        LLVMBasicBlockRef next = df_gen_block(g, "next");
        LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntSLT, o, w->to, ""), next, w->after);
        LLVMPositionBuilderAtEnd(g->b, next);
        LLVMValueRef last = NULL;
        if (w->n > 1) {
            LLVMBasicBlockRef wrap = df_gen_block(g, "carry"), step = df_gen_block(g, "step");
            last = LLVMBuildAdd(g->b, w->last, df_gen_i64(g, 1), "");
            LLVMValueRef wraps =
                LLVMBuildICmp(g->b, LLVMIntEQ, last, g->extent[w->axes[w->n - 1]], "");
            LLVMBuildCondBr(g->b, wraps, wrap, step);
            LLVMPositionBuilderAtEnd(g->b, wrap);
            carry(g, w, o);
            LLVMPositionBuilderAtEnd(g->b, step);
            next = step;
        }
        LLVMAddIncoming(w->o, &o, &next, 1);
        if (last) LLVMAddIncoming(w->last, &last, &next, 1);
        for (uint32_t a = 0; a < g->k->n_access; a++) {
            if (!moves_along(g, w, a)) continue;
            LLVMValueRef phi = *place_of(g, w, a);
            LLVMValueRef p = w->inc[a] ? move(g, a, phi, w->inc[a]) : phi;
            LLVMAddIncoming(phi, &p, &next, 1);
        }
        LLVMBuildBr(g->b, w->body);
        LLVMPositionBuilderAtEnd(g->b, w->after);
    }
    df_if_end(g, &w->guard);
    for (uint32_t a = 0; a < g->k->n_access; a++) *place_of(g, w, a) = origin_of(g, w, a);
}
