/* SPDX-License-Identifier: Apache-2.0
 *
 * Micro-kernels of matrix products: C[m x n] (+)= A panel * B panel, with the whole tile of C in
 * registers. A tile has R rows of V vectors; a panel holds k steps.
 *
 *                        B panel [k][nr]
 *                       +----+----+----+
 *                       | b0 | b1 | b2 |
 *                       +----+----+----+
 *      A panel   a[0]   acc[0][0 .. V)        acc[i][j]: vector j of C's row i
 *      [k][mr]   a[1]   acc[1][0 .. V)
 *                 ..    ..
 *
 * One step of k loads V vectors of B and broadcasts the R elements of A one by one. So R + V loads
 * feed R * V multiply-adds. The tile needs R * V + V + 1 registers. R * V >= latency * units keeps
 * the multiply-add units busy. Each element is one chain acc = fma(a, b, acc) with ascending k, so
 * its bits are those of the scalar loop whatever the shape.
 *
 * Each turn of the k loop also prefetches one line of what the next calls read (`next`). The
 * prefetches are spread evenly. Prefetching all lines before the tile gained nothing, because the
 * tile then waits for them.
 *
 * One function holds several bodies: for all rows or half of them, and for 1 to V vectors. So a
 * narrow edge of C does not cost as much as the full tile. Rows and lanes beyond m and n are never
 * touched in C, because masks exclude them.
 *
 * References: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008).
 */
#include "jit_llvm/emit.h"

#include <string.h>

enum { MAX_ROWS = 14, MAX_VECS = 4, UNROLL = DF_GEMM_FETCH_STEPS, LINE = DF_GEMM_FETCH_BYTES };

typedef struct gemm {
    LLVMContextRef ctx;
    LLVMModuleRef mod;
    LLVMBuilderRef b;
    LLVMValueRef fn, n_k, pa, pb, pc, ldc, m, n, first, next; /* the arguments */
    LLVMTypeRef i64, elem, vec, mask;
    LLVMValueRef lane_ids; /* <0, 1, 2, ..> of i64 */
    uint32_t size, lanes;  /* bytes of an element; elements of a vector */
    uint32_t mr, nv;       /* rows and vectors of a full tile; nv vectors have nr elements */
    uint32_t r, v;         /* rows and vectors of the body being emitted */
} gemm;

typedef LLVMValueRef acc_tile[MAX_ROWS][MAX_VECS];

/* ---- small emitters ---- */

static LLVMValueRef gemm_i64(const gemm *g, uint64_t x)
{
    return LLVMConstInt(g->i64, x, false);
}

static LLVMBasicBlockRef gemm_add_block(const gemm *g, const char *name)
{
    return LLVMAppendBasicBlockInContext(g->ctx, g->fn, name);
}

static LLVMValueRef gemm_elem_at(const gemm *g, LLVMValueRef base, LLVMValueRef elements)
{
    return LLVMBuildInBoundsGEP2(g->b, g->elem, base, &elements, 1, "");
}

static LLVMValueRef gemm_elem_at_const(const gemm *g, LLVMValueRef base, uint32_t elements)
{
    return elements ? gemm_elem_at(g, base, gemm_i64(g, elements)) : base;
}

static LLVMValueRef gemm_load(const gemm *g, LLVMTypeRef type, LLVMValueRef p)
{
    const LLVMValueRef x = LLVMBuildLoad2(g->b, type, p, "");
    LLVMSetAlignment(x, g->size);
    return x;
}

static LLVMValueRef splat(const gemm *g, LLVMValueRef x)
{
    const LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(x), g->lanes);
    const LLVMTypeRef zeros = LLVMVectorType(LLVMInt32TypeInContext(g->ctx), g->lanes);
    const LLVMValueRef one =
        LLVMBuildInsertElement(g->b, LLVMGetUndef(type), x, gemm_i64(g, 0), "");
    return LLVMBuildShuffleVector(g->b, one, LLVMGetUndef(type), LLVMConstNull(zeros), "");
}

static LLVMValueRef gemm_call_intrinsic(const gemm *g, const char *name, LLVMTypeRef *overload,
                                        size_t n_overload, LLVMValueRef *arg, unsigned n_arg)
{
    const unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    const LLVMValueRef f = LLVMGetIntrinsicDeclaration(g->mod, id, overload, n_overload);
    const LLVMTypeRef type = LLVMIntrinsicGetType(g->ctx, id, overload, n_overload);
    return LLVMBuildCall2(g->b, type, f, arg, n_arg, "");
}

/* The address of vector j of C's row i. */
static LLVMValueRef c_at(const gemm *g, uint32_t i, uint32_t j)
{
    const LLVMValueRef row = gemm_elem_at(g, g->pc, LLVMBuildMul(g->b, g->ldc, gemm_i64(g, i), ""));
    return gemm_elem_at_const(g, row, j * g->lanes);
}

/* Which lanes of vector j exist in row i. */
static LLVMValueRef mask_at(const gemm *g, uint32_t i, uint32_t j)
{
    const LLVMValueRef left = LLVMBuildSub(g->b, g->n, gemm_i64(g, j * g->lanes), "");
    const LLVMValueRef in_row = LLVMBuildICmp(g->b, LLVMIntUGT, g->m, gemm_i64(g, i), "");
    const LLVMValueRef width = LLVMBuildSelect(g->b, in_row, left, gemm_i64(g, 0), "");
    return LLVMBuildICmp(g->b, LLVMIntSGT, splat(g, width), g->lane_ids, "");
}

/* ---- one body ---- */

static void load_c(const gemm *g, bool masked, acc_tile c)
{
    LLVMTypeRef types[2] = { g->vec, LLVMPointerTypeInContext(g->ctx, 0) };
    const LLVMValueRef align = LLVMConstInt(LLVMInt32TypeInContext(g->ctx), g->size, false);
    for (uint32_t i = 0; i < g->r; i++)
        for (uint32_t j = 0; j < g->v; j++) {
            if (!masked) {
                c[i][j] = gemm_load(g, g->vec, c_at(g, i, j));
                continue;
            }
            LLVMValueRef arg[] = { c_at(g, i, j), align, mask_at(g, i, j), LLVMConstNull(g->vec) };
            c[i][j] = gemm_call_intrinsic(g, "llvm.masked.load", types, 2, arg, 4);
        }
}

static void store_c(const gemm *g, bool masked, acc_tile c)
{
    LLVMTypeRef types[2] = { g->vec, LLVMPointerTypeInContext(g->ctx, 0) };
    const LLVMValueRef align = LLVMConstInt(LLVMInt32TypeInContext(g->ctx), g->size, false);
    for (uint32_t i = 0; i < g->r; i++)
        for (uint32_t j = 0; j < g->v; j++) {
            if (!masked) {
                LLVMSetAlignment(LLVMBuildStore(g->b, c[i][j], c_at(g, i, j)), g->size);
                continue;
            }
            LLVMValueRef arg[] = { c[i][j], c_at(g, i, j), align, mask_at(g, i, j) };
            gemm_call_intrinsic(g, "llvm.masked.store", types, 2, arg, 4);
        }
}

static void phi_tile(const gemm *g, acc_tile phi)
{
    for (uint32_t i = 0; i < g->r; i++)
        for (uint32_t j = 0; j < g->v; j++) phi[i][j] = LLVMBuildPhi(g->b, g->vec, "");
}

/* Adds `value` as the incoming values of the phis from block `from`. NULL: zeros. */
static void phi_from(const gemm *g, acc_tile phi, acc_tile value, LLVMBasicBlockRef from)
{
    for (uint32_t i = 0; i < g->r; i++)
        for (uint32_t j = 0; j < g->v; j++)
            LLVMAddIncoming(phi[i][j],
                            value ? &value[i][j] : &(LLVMValueRef){ LLVMConstNull(g->vec) }, &from,
                            1);
}

/* Emits the k step number u after pa and pb. Replaces acc by its new values. */
static void step(const gemm *g, LLVMValueRef pa, LLVMValueRef pb, uint32_t u, acc_tile acc)
{
    LLVMTypeRef vec = g->vec;
    LLVMValueRef b[MAX_VECS];
    for (uint32_t j = 0; j < g->v; j++)
        b[j] = gemm_load(g, g->vec, gemm_elem_at_const(g, pb, (u * g->nv + j) * g->lanes));
    for (uint32_t i = 0; i < g->r; i++) {
        const LLVMValueRef a =
            splat(g, gemm_load(g, g->elem, gemm_elem_at_const(g, pa, u * g->mr + i)));
        for (uint32_t j = 0; j < g->v; j++) {
            LLVMValueRef arg[] = { a, b[j], acc[i][j] };
            acc[i][j] = gemm_call_intrinsic(g, "llvm.fma", &vec, 1, arg, 3);
        }
    }
}

/* Prefetches a line into L2, where it remains until the tiles before its use are done. */
static void gemm_prefetch_line(const gemm *g, LLVMValueRef p)
{
    const LLVMTypeRef i32 = LLVMInt32TypeInContext(g->ctx);
    LLVMTypeRef ptr = LLVMPointerTypeInContext(g->ctx, 0);
    LLVMValueRef arg[] = { p, LLVMConstInt(i32, 0, false), LLVMConstInt(i32, 2, false),
                           LLVMConstInt(i32, 1, false) }; /* to read; kept in L2; data */
    gemm_call_intrinsic(g, "llvm.prefetch", &ptr, 1, arg, 4);
}

/* Emits for (; left >= unroll; left -= unroll) with `unroll` k steps in its body. Replaces pa, pb,
 * left and acc by their values after the loop. next: the address to prefetch from; NULL: none. */
static void k_loop(const gemm *g, uint32_t unroll, LLVMValueRef *pa, LLVMValueRef *pb,
                   LLVMValueRef *left, LLVMValueRef next, acc_tile acc)
{
    const LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b);
    const LLVMBasicBlockRef head = gemm_add_block(g, "head"), body = gemm_add_block(g, "body"),
                            done = gemm_add_block(g, "done");
    LLVMBuildBr(g->b, head);

    LLVMPositionBuilderAtEnd(g->b, head);
    const LLVMTypeRef ptr = LLVMPointerTypeInContext(g->ctx, 0);
    const LLVMValueRef a = LLVMBuildPhi(g->b, ptr, "a"), b = LLVMBuildPhi(g->b, ptr, "b");
    const LLVMValueRef k = LLVMBuildPhi(g->b, g->i64, "k");
    const LLVMValueRef ahead = next ? LLVMBuildPhi(g->b, ptr, "ahead") : NULL;
    acc_tile phi = { { NULL } }, sum;
    phi_tile(g, phi);
    LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntUGE, k, gemm_i64(g, unroll), ""), body, done);

    LLVMPositionBuilderAtEnd(g->b, body);
    memcpy(sum, phi, sizeof sum);
    if (next) gemm_prefetch_line(g, ahead);
    for (uint32_t u = 0; u < unroll; u++) step(g, a, b, u, sum);
    LLVMValueRef a_next = gemm_elem_at_const(g, a, unroll * g->mr);
    LLVMValueRef b_next = gemm_elem_at_const(g, b, unroll * g->nv * g->lanes);
    const LLVMValueRef ahead_next = next ? gemm_elem_at_const(g, ahead, LINE / g->size) : NULL;
    LLVMValueRef k_next = LLVMBuildSub(g->b, k, gemm_i64(g, unroll), "");
    LLVMBuildBr(g->b, head);

    LLVMAddIncoming(a, (LLVMValueRef[]){ *pa, a_next }, (LLVMBasicBlockRef[]){ from, body }, 2);
    LLVMAddIncoming(b, (LLVMValueRef[]){ *pb, b_next }, (LLVMBasicBlockRef[]){ from, body }, 2);
    LLVMAddIncoming(k, (LLVMValueRef[]){ *left, k_next }, (LLVMBasicBlockRef[]){ from, body }, 2);
    if (next)
        LLVMAddIncoming(ahead, (LLVMValueRef[]){ next, ahead_next },
                        (LLVMBasicBlockRef[]){ from, body }, 2);
    phi_from(g, phi, acc, from);
    phi_from(g, phi, sum, body);
    *pa = a, *pb = b, *left = k;
    memcpy(acc, phi, sizeof phi);
    LLVMPositionBuilderAtEnd(g->b, done);
}

/* Emits a body of g->r rows and g->v vectors, and returns from the function. */
static void emit_body(const gemm *g)
{
    const LLVMBasicBlockRef old = gemm_add_block(g, "old"),
                            old_full = gemm_add_block(g, "old_full");
    const LLVMBasicBlockRef old_edge = gemm_add_block(g, "old_edge"),
                            start = gemm_add_block(g, "start");
    const LLVMBasicBlockRef full = gemm_add_block(g, "full"), edge = gemm_add_block(g, "edge");
    const LLVMBasicBlockRef entry = LLVMGetInsertBlock(g->b);
    const LLVMValueRef is_full = LLVMBuildAnd(
        g->b, LLVMBuildICmp(g->b, LLVMIntEQ, g->m, gemm_i64(g, g->r), ""),
        LLVMBuildICmp(g->b, LLVMIntEQ, g->n, gemm_i64(g, g->v * g->lanes), ""), "full");
    LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntNE, g->first, gemm_i64(g, 0), ""), start, old);

    acc_tile acc, c;
    LLVMPositionBuilderAtEnd(g->b, start);
    phi_tile(g, acc);
    phi_from(g, acc, NULL, entry);
    LLVMPositionBuilderAtEnd(g->b, old);
    LLVMBuildCondBr(g->b, is_full, old_full, old_edge);
    LLVMPositionBuilderAtEnd(g->b, old_full);
    load_c(g, false, c);
    phi_from(g, acc, c, old_full);
    LLVMBuildBr(g->b, start);
    LLVMPositionBuilderAtEnd(g->b, old_edge);
    load_c(g, true, c);
    phi_from(g, acc, c, old_edge);
    LLVMBuildBr(g->b, start);

    LLVMPositionBuilderAtEnd(g->b, start);
    LLVMValueRef pa = g->pa, pb = g->pb, left = g->n_k;
    k_loop(g, UNROLL, &pa, &pb, &left, g->next, acc);
    k_loop(g, 1, &pa, &pb, &left, NULL, acc);
    LLVMBuildCondBr(g->b, is_full, full, edge);
    LLVMPositionBuilderAtEnd(g->b, full);
    store_c(g, false, acc);
    LLVMBuildRetVoid(g->b);
    LLVMPositionBuilderAtEnd(g->b, edge);
    store_c(g, true, acc);
    LLVMBuildRetVoid(g->b);
}

/* Emits the bodies for half of the rows and for all, each with 1 to nv vectors. The first that
 * covers m x n is run. */
static void emit_dispatch(gemm *g)
{
    for (uint32_t half = 2; half-- > 0;) {
        const uint32_t rows = half ? g->mr / 2 : g->mr;
        for (uint32_t v = 1; v <= g->nv; v++) {
            const LLVMBasicBlockRef body = gemm_add_block(g, "tile"),
                                    next = gemm_add_block(g, "next");
            const LLVMValueRef fits = LLVMBuildAnd(
                g->b, LLVMBuildICmp(g->b, LLVMIntULE, g->m, gemm_i64(g, rows), ""),
                LLVMBuildICmp(g->b, LLVMIntULE, g->n, gemm_i64(g, v * g->lanes), ""), "");
            LLVMBuildCondBr(g->b, fits, body, next);
            LLVMPositionBuilderAtEnd(g->b, body);
            g->r = rows;
            g->v = v;
            emit_body(g);
            LLVMPositionBuilderAtEnd(g->b, next);
        }
    }
    LLVMBuildUnreachable(g->b); /* m <= mr and n <= nr */
}

static void gemm_emit_function(const df_llvm_target *t, LLVMContextRef ctx, LLVMModuleRef mod,
                               deft_dtype dtype, uint32_t mr, uint32_t nv, const char *name)
{
    gemm g = { .ctx = ctx, .mod = mod, .mr = mr, .nv = nv };
    g.size = dtype == DEFT_F32 ? 4 : 8;
    g.lanes = t->vector_bytes / g.size;
    g.i64 = LLVMInt64TypeInContext(ctx);
    g.elem = dtype == DEFT_F32 ? LLVMFloatTypeInContext(ctx) : LLVMDoubleTypeInContext(ctx);
    g.vec = LLVMVectorType(g.elem, g.lanes);
    g.b = LLVMCreateBuilderInContext(ctx);

    const LLVMTypeRef ptr = LLVMPointerTypeInContext(ctx, 0);
    LLVMTypeRef params[] = { g.i64, ptr, ptr, ptr, g.i64, g.i64, g.i64, g.i64, ptr };
    g.fn = LLVMAddFunction(
        mod, name, LLVMFunctionType(LLVMVoidTypeInContext(ctx), params, DF_LEN(params), false));
    df_llvm_set_attributes(ctx, t, g.fn);
    LLVMValueRef *const arg[] = {
        &g.n_k, &g.pa, &g.pb, &g.pc, &g.ldc, &g.m, &g.n, &g.first, &g.next
    };
    for (unsigned i = 0; i < DF_LEN(arg); i++) *arg[i] = LLVMGetParam(g.fn, i);
    LLVMValueRef id[DF_LANES];
    for (uint32_t i = 0; i < g.lanes; i++) id[i] = gemm_i64(&g, i);
    g.lane_ids = LLVMConstVector(id, g.lanes);

    LLVMPositionBuilderAtEnd(g.b, gemm_add_block(&g, "entry"));
    emit_dispatch(&g);
    LLVMDisposeBuilder(g.b);
}

/* Rows and vectors of the full tile, which were measured: 24 accumulators in 32 registers with
 * AVX-512, and 12 in 16 with AVX2. Narrower vectors get 8, which leaves room for loads ahead. */
static void shape(const df_llvm_target *t, uint32_t *mr, uint32_t *nv)
{
    if (t->vector_bytes == 64) {
        *mr = 8;
        *nv = 3;
    } else if (t->vector_bytes == 32) {
        *mr = 6;
        *nv = 2;
    } else {
        *mr = 4;
        *nv = 2;
    }
}

/* Creates the module with the micro-kernel for t, and fills in mr and nr of *out. */
static deft_status make_module(const df_llvm *self, df_diag *d, deft_dtype t, LLVMContextRef *ctx,
                               LLVMModuleRef *mod, df_gemm_kernel *out)
{
    uint32_t mr, nv;
    df_assert(t == DEFT_F32 || t == DEFT_F64);
    if (!self->target.has_fma)
        return df_fail(d, DEFT_E_BACKEND, "matmul: %s has no fused multiply-add", self->target.cpu);
    const deft_status st = df_llvm_module_create(d, &self->host, ctx, mod);
    if (st != DEFT_OK) return st;
    shape(&self->target, &mr, &nv);
    gemm_emit_function(&self->target, *ctx, *mod, t, mr, nv, DF_GEMM_SYMBOL);
    out->mr = mr;
    out->nr = nv * self->target.vector_bytes / (t == DEFT_F32 ? 4 : 8);
    return DEFT_OK;
}

deft_status df_llvm_gemm_object(df_llvm *self, df_diag *d, deft_dtype t, df_gemm_kernel *out,
                                df_str *elf)
{
    LLVMContextRef ctx;
    LLVMModuleRef mod;
    const deft_status st = make_module(self, d, t, &ctx, &mod, out);
    return st == DEFT_OK ? df_llvm_module_object(self, d, mod, ctx, DF_OPT_O2, elf) : st;
}

deft_status df_llvm_gemm(df_llvm *self, df_diag *d, deft_dtype t, df_gemm_kernel *out)
{
    static const char *const name = DF_GEMM_SYMBOL;
    deft_status st = DEFT_OK;
    LLVMContextRef ctx;
    LLVMModuleRef mod;
    df_llvm_fn fn = { 0 };
    df_gemm_kernel *const kept = &self->gemm[t == DEFT_F64];
    pthread_mutex_lock(&self->gemm_lock);
    if (kept->fn) goto done;
    TRY(make_module(self, d, t, &ctx, &mod, kept));
    TRY(df_llvm_load_module(self, d, mod, ctx, DF_OPT_O2, &name, 1, &fn, NULL));
    kept->size = fn.size;
    memcpy(&kept->fn, &fn.at,
           sizeof fn.at); /* ISO C converts no object pointer to a function pointer */
done:
    if (st == DEFT_OK) *out = *kept;
    pthread_mutex_unlock(&self->gemm_lock);
    return st;
}
