/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads and stores of w lanes through an access, for the vector that df_gen describes (lane0,
 * mask).
 *
 * With unit stride an access is one vector. If it is masked, there are three cases:
 *
 * - Masked loads and stores are instructions (AVX-512; AVX2 for elements of 4 and 8 bytes). Then
 *   llvm.masked.load and llvm.masked.store are used.
 * - They are no instructions, and LLVM would write one branch per lane. Then a small loop copies
 *   the active lanes to a stack buffer, from which they are loaded. Stores write half a vector, a
 *   quarter and so on. Only tails are masked on such targets.
 * - Masked stores are slow instructions. Then stores also write half vectors, quarters and so on.
 *
 * With other strides an unmasked access works lane by lane. On Zen 5 that costs no more than
 * vgatherdps, and it needs no CPU feature. A masked load is a gather where the target has one. Else
 * inactive lanes load from the address of lane 0. A masked store is a scalar loop over the active
 * lanes.
 *
 * Loads at offsets (load_at) are gathers under a mask, where the target has them. Without a mask
 * they are gathers only where these are fast. On Zen 4, one vgatherqps takes longer than to extract
 * eight offsets and to load eight words.
 *
 * A stride of two elements, as windows with stride 2 have, is tested for at run time. It is read as
 * two vectors that lie side by side, the second of which begins at the last element of the first:
 *
 *   4 lanes, elements from p on   0 . 2 . 4 . 6
 *   first vector                  0 1 2 3
 *   second vector                       3 4 5 6
 *
 * So nothing behind the last wanted element is read. The elements of two accesses may alternate in
 * memory, as the parts of complex numbers do. Then two vectors are loaded for both, or stored:
 * rows/twos.c has the loops of such kernels.
 *
 * A stride of minus one element, as reversed rows have, is tested for in the same place. It is read
 * as one vector, whose lanes are exchanged.
 *
 * A load with a condition (load_if) touches only the active lanes for which it holds. With the
 * masks of the first case, the lanes of the condition are part of the mask. A part of the condition
 * may be the same for all lanes. Where that part is false, the vector comes from copies of the
 * other value on the stack. Without masks, an address on the stack takes the place of each address
 * that must not be touched.
 *
 * Inactive lanes hold zeros, lane 0's value or old contents of the stack. No instruction with an
 * effect uses them.
 *
 * Why this file is long: all ways to load and to store share their masks and conditions.
 */
#include "jit_llvm/gen.h"

/* ---- tails without masks ---- */

/* Writes the function df_copy(ptr to, ptr from, i64 n), which copies n bytes one by one. */
static void make_copy_fn(df_gen *g)
{
    LLVMTypeRef params[3] = { g->ptr, g->ptr, g->i64 };
    LLVMTypeRef type = LLVMFunctionType(g->nothing, params, 3, 0);
    LLVMValueRef fn = LLVMAddFunction(g->m, "df_copy", type);
    LLVMSetLinkage(fn, LLVMInternalLinkage);
    df_llvm_set_attributes(g->ctx, g->t, fn);

    LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b);
    LLVMValueRef outer_fn = g->fn;
    g->fn = fn;
    LLVMPositionBuilderAtEnd(g->b, LLVMAppendBasicBlockInContext(g->ctx, fn, "entry"));
    df_loop l;
    df_loop_begin(g, &l, df_gen_i64(g, 0), LLVMGetParam(fn, 2), df_gen_i64(g, 1), 0);
    LLVMValueRef byte = LLVMBuildLoad2(g->b, g->i8, df_gen_offset(g, LLVMGetParam(fn, 1), l.i), "");
    LLVMBuildStore(g->b, byte, df_gen_offset(g, LLVMGetParam(fn, 0), l.i));
    df_loop_end(g, &l);
    LLVMBuildRetVoid(g->b);
    g->fn = outer_fn;
    LLVMPositionBuilderAtEnd(g->b, here);
    g->copy_fn = fn;
}

static void access_copy_active(df_gen *g, LLVMValueRef to, LLVMValueRef from, uint32_t size)
{
    if (!g->copy_fn) make_copy_fn(g);
    LLVMValueRef args[3] = { to, from, LLVMBuildMul(g->b, g->n_active, df_gen_i64(g, size), "") };
    LLVMBuildCall2(g->b, LLVMGlobalGetValueType(g->copy_fn), g->copy_fn, args, 3, "");
}

static LLVMValueRef tail_buf(df_gen *g)
{
    if (!g->tail_buf) g->tail_buf = df_gen_alloca(g, g->i8, (uint64_t)g->w * 8, 64);
    return g->tail_buf;
}

static bool has_mask(const df_gen *g, uint32_t size)
{
    return size >= 4 ? g->t->mask_words : g->t->mask_bytes;
}

static bool has_masked_store(const df_gen *g, uint32_t size)
{
    return has_mask(g, size) && !g->t->slow_mask_stores;
}

static LLVMValueRef load_aligned(df_gen *g, LLVMTypeRef t, LLVMValueRef p, uint32_t align)
{
    LLVMValueRef v = LLVMBuildLoad2(g->b, t, p, "");
    LLVMSetAlignment(v, align);
    return v;
}

static void store_aligned(df_gen *g, LLVMValueRef v, LLVMValueRef p, uint32_t align)
{
    LLVMSetAlignment(LLVMBuildStore(g->b, v, p), align);
}

/* Loads the lanes of g->mask, by an instruction. The others are those of `other`; NULL: zeros. */
static LLVMValueRef load_masked(df_gen *g, LLVMTypeRef t, LLVMValueRef p, uint32_t size,
                                LLVMValueRef other)
{
    LLVMTypeRef types[2] = { df_gen_lanes(t, g->w), g->ptr };
    LLVMValueRef args[4] = { p, LLVMConstInt(g->i32, size, 0), g->mask,
                             other ? other : LLVMConstNull(types[0]) };
    return df_gen_intrinsic(g, "llvm.masked.load", types, 2, args, 4);
}

LLVMValueRef df_access_load_unit(df_gen *g, LLVMTypeRef t, LLVMValueRef p, uint32_t size)
{
    LLVMTypeRef type = df_gen_lanes(t, g->w);
    if (!g->mask) return load_aligned(g, type, p, size);
    if (has_mask(g, size)) return load_masked(g, t, p, size, NULL);
    access_copy_active(g, tail_buf(g), p, size);
    return load_aligned(g, type, tail_buf(g), size);
}

/* Stores the active lanes of v in pieces. For each bit of their number, from the highest down, it
 * stores as many lanes as the bit counts and continues with the lanes above them. All w lanes can
 * be active in masked loops and where several vectors are masked, but not in a tail. */
static void store_pieces(df_gen *g, LLVMValueRef v, LLVMValueRef p, uint32_t size)
{
    LLVMValueRef zero = df_gen_i64(g, 0);
    LLVMValueRef is_any = LLVMBuildICmp(g->b, LLVMIntSGT, g->n_active, zero, "");
    LLVMValueRef n_active = LLVMBuildSelect(g->b, is_any, g->n_active, zero, "");
    const bool may_be_whole = g->native_masks || g->n_copies > 1;
    for (uint32_t n = may_be_whole ? g->w : g->w / 2; n > 0; n /= 2) {
        LLVMValueRef bit = LLVMBuildAnd(g->b, n_active, df_gen_i64(g, n), "");
        LLVMValueRef has = LLVMBuildICmp(g->b, LLVMIntNE, bit, zero, "");
        LLVMValueRef low = n == g->w ? v : df_gen_take_lanes(g, v, 0, n);
        df_if piece;
        df_if_begin(g, &piece, has);
        store_aligned(g, low, p, size);
        df_if_end(g, &piece);
        if (n == 1 || n == g->w) continue;
        v = LLVMBuildSelect(g->b, has, df_gen_take_lanes(g, v, n, n), low, "");
        p = df_gen_offset(g, p, LLVMBuildMul(g->b, bit, df_gen_i64(g, size), ""));
    }
}

void df_access_store_unit(df_gen *g, LLVMValueRef v, LLVMValueRef p, uint32_t size)
{
    if (!g->mask) {
        store_aligned(g, v, p, size);
    } else if (!has_masked_store(g, size)) {
        store_pieces(g, v, p, size);
    } else {
        LLVMTypeRef types[2] = { LLVMTypeOf(v), g->ptr };
        LLVMValueRef args[4] = { v, p, LLVMConstInt(g->i32, size, 0), g->mask };
        df_gen_intrinsic(g, "llvm.masked.store", types, 2, args, 4);
    }
}

/* ---- other strides ---- */

/* Whether a masked gather is used for elements of `size` bytes. Only on machines with 512-bit
 * vectors is it fast enough to be worth its code. */
static bool has_gather(const df_gen *g, uint32_t size)
{
    return g->w > 1 && size >= 4 && g->t->mask_bytes;
}

/* A gather of the active lanes at p + offset[lane], where offsets count units. */
static LLVMValueRef access_gather_lanes(df_gen *g, LLVMTypeRef t, LLVMValueRef p, LLVMTypeRef unit,
                                        LLVMValueRef offset, uint32_t size)
{
    LLVMTypeRef types[2] = { df_gen_lanes(t, g->w), LLVMVectorType(g->ptr, g->w) };
    LLVMValueRef mask = g->mask ? g->mask : LLVMConstAllOnes(LLVMVectorType(g->i1, g->w));
    LLVMValueRef args[4] = { df_gen_at(g, unit, p, offset), LLVMConstInt(g->i32, size, 0), mask,
                             LLVMConstNull(types[0]) };
    return df_gen_intrinsic(g, "llvm.masked.gather", types, 2, args, 4);
}

/* One scalar load per lane, at p + offset[lane], where offsets count units. Inactive lanes load
 * from lane 0's address. */
static LLVMValueRef access_load_lanes(df_gen *g, LLVMTypeRef t, LLVMValueRef p, LLVMTypeRef unit,
                                      LLVMValueRef offset, uint32_t size)
{
    if (g->mask) {
        LLVMValueRef first = LLVMBuildExtractElement(g->b, offset, df_gen_i64(g, 0), "");
        offset = LLVMBuildSelect(g->b, g->mask, offset, df_gen_splat(g, first, g->w), "");
    }
    LLVMValueRef v = LLVMGetPoison(LLVMVectorType(t, g->w));
    for (uint32_t i = 0; i < g->w; i++) {
        LLVMValueRef at = LLVMBuildExtractElement(g->b, offset, df_gen_i64(g, i), "");
        LLVMValueRef x = load_aligned(g, t, df_gen_at(g, unit, p, at), size);
        v = LLVMBuildInsertElement(g->b, v, x, df_gen_i64(g, i), "");
    }
    return v;
}

/* Loads all lanes with one step between neighbours, so that addresses are computed by addition. */
static LLVMValueRef load_strided(df_gen *g, LLVMTypeRef t, LLVMValueRef p, LLVMValueRef step,
                                 uint32_t size)
{
    LLVMValueRef v = LLVMGetPoison(LLVMVectorType(t, g->w));
    for (uint32_t i = 0; i < g->w; i++) {
        if (i > 0) p = df_gen_offset(g, p, step);
        v = LLVMBuildInsertElement(g->b, v, load_aligned(g, t, p, size), df_gen_i64(g, i), "");
    }
    return v;
}

/* An address that may be loaded from, whose contents mean nothing. */
static LLVMValueRef anywhere(df_gen *g)
{
    if (!g->anywhere) g->anywhere = df_gen_alloca(g, g->i8, 8, 8);
    return g->anywhere;
}

/* One scalar load per lane, at p + bytes[lane] where `is` holds. Other lanes are unspecified. */
static LLVMValueRef access_load_lanes_if(df_gen *g, LLVMTypeRef t, LLVMValueRef p,
                                         LLVMValueRef bytes, LLVMValueRef is, uint32_t size)
{
    LLVMValueRef v = LLVMGetPoison(LLVMVectorType(t, g->w));
    for (uint32_t i = 0; i < g->w; i++) {
        LLVMValueRef lane = df_gen_i64(g, i);
        LLVMValueRef at = df_gen_offset(g, p, LLVMBuildExtractElement(g->b, bytes, lane, ""));
        at =
            LLVMBuildSelect(g->b, LLVMBuildExtractElement(g->b, is, lane, ""), at, anywhere(g), "");
        v = LLVMBuildInsertElement(g->b, v, load_aligned(g, t, at, size), lane, "");
    }
    return v;
}

/* The active lanes for which c holds. */
static LLVMValueRef all_conditions(df_gen *g, const df_condition *c)
{
    LLVMValueRef is = g->mask ? LLVMBuildAnd(g->b, g->mask, c->is, "") : c->is;
    if (!c->row) return is;
    return LLVMBuildAnd(g->b, g->w > 1 ? df_gen_splat(g, c->row, g->w) : c->row, is, "");
}

/* Where lanes are loaded from: p, or the address of enough copies of c->other when the scalar of c
 * is false. One mask then serves all rows. */
static LLVMValueRef row_or_other(df_gen *g, LLVMValueRef p, const df_condition *c)
{
    return c->row ? LLVMBuildSelect(g->b, c->row, p, c->others, "") : p;
}

/* The lanes of `is` as those of one of the two vectors of every_second: of the first for from 0,
 * else of the second. All lanes that every_second drops are false or 0. */
static LLVMValueRef spread_lanes(df_gen *g, LLVMValueRef is, uint32_t from)
{
    LLVMValueRef lane[DF_LANES];
    for (uint32_t i = 0; i < g->w; i++) {
        const bool taken = (i + from) % 2 == 0;
        lane[i] = LLVMConstInt(g->i32, taken ? (i + from) / 2 : g->w, 0);
    }
    return LLVMBuildShuffleVector(g->b, is, LLVMConstNull(LLVMTypeOf(is)),
                                  LLVMConstVector(lane, g->w), "");
}

/* Of the w neighbours from element `from` on, those before the last active lane of every_second. */
static LLVMValueRef before_last(df_gen *g, uint32_t from)
{
    LLVMValueRef all = LLVMBuildShl(g->b, g->n_active, df_gen_i64(g, 1), "");
    LLVMValueRef n = LLVMBuildSub(g->b, all, df_gen_i64(g, from + 1), "");
    n = LLVMBuildTrunc(g->b, n, g->i32, "");
    return LLVMBuildICmp(g->b, LLVMIntSLT, df_gen_iota(g, g->i32, g->w), df_gen_splat(g, n, g->w),
                         "");
}

/* The masks of the two vectors of every_second. They are made once for all loads of a vector that
 * have the same condition. That is possible where a vector is one block of code, but for branches
 * within single accesses. c: the condition of the load, or NULL. */
static df_pair_mask pair_mask(df_gen *g, const df_condition *c)
{
    LLVMValueRef is = c ? c->is : NULL;
    df_pair_mask m = { .epoch = g->epoch, .copy = g->copy, .is = is };
    const bool is_one_block = g->k->mode == DF_MODE_MAP || g->k->mode == DF_MODE_ROW;
    for (uint32_t i = 0; i < DF_PAIR_MASKS && is_one_block; i++) {
        const df_pair_mask *kept = &g->pair_mask[i];
        if (kept->epoch == m.epoch && kept->copy == m.copy && kept->is == is) return *kept;
    }
    if (is) {
        if (g->mask) is = LLVMBuildAnd(g->b, g->mask, is, "");
        m.low = spread_lanes(g, is, 0);
        m.high = spread_lanes(g, is, g->w - 1);
    } else if (g->mask) {
        m.low = before_last(g, 0);
        m.high = before_last(g, g->w - 1);
    }
    g->pair_mask[g->next_pair_mask++ % DF_PAIR_MASKS] = m;
    return m;
}

/* The w neighbours from p + from on. Only those are touched that `mask` holds (NULL: all); the
 * others are those of `other` (NULL: any). */
static LLVMValueRef neighbours(df_gen *g, LLVMTypeRef t, LLVMValueRef p, uint32_t from,
                               uint32_t size, LLVMValueRef mask, LLVMValueRef other)
{
    LLVMValueRef kept = g->mask;
    g->mask = mask;
    p = df_gen_offset(g, p, df_gen_i64(g, (int64_t)from * size));
    LLVMValueRef v = mask ? load_masked(g, t, p, size, other) : df_access_load_unit(g, t, p, size);
    g->mask = kept;
    return v;
}

/* The elements p, p + 2, p + 4 and so on; where c does not hold, the other value of c. */
static LLVMValueRef every_second(df_gen *g, LLVMTypeRef t, LLVMValueRef p, uint32_t size,
                                 const df_condition *c, const df_pair_mask *m)
{
    LLVMValueRef lane[DF_LANES], others[2] = { NULL, NULL };
    df_assert(!c || m->low);
    if (c) {
        p = row_or_other(g, p, c);
        others[0] = spread_lanes(g, c->other, 0);
        others[1] = spread_lanes(g, c->other, g->w - 1);
    }
    LLVMValueRef low = neighbours(g, t, p, 0, size, m->low, others[0]);
    LLVMValueRef high = neighbours(g, t, p, g->w - 1, size, m->high, others[1]);
    for (uint32_t i = 0; i < g->w; i++)
        lane[i] = LLVMConstInt(g->i32, i < g->w / 2 ? 2 * i : 2 * i + 1, 0);
    return LLVMBuildShuffleVector(g->b, low, high, LLVMConstVector(lane, g->w), "");
}

static LLVMValueRef lanes_backwards(df_gen *g, LLVMValueRef v)
{
    LLVMValueRef lane[DF_LANES];
    for (uint32_t i = 0; i < g->w; i++) lane[i] = LLVMConstInt(g->i32, g->w - 1 - i, 0);
    return LLVMBuildShuffleVector(g->b, v, v, LLVMConstVector(lane, g->w), "");
}

/* The elements p, p - 1, p - 2 and so on; where c does not hold, the other value of c. */
static LLVMValueRef backwards(df_gen *g, LLVMTypeRef t, LLVMValueRef p, uint32_t size,
                              const df_condition *c)
{
    LLVMValueRef mask = c ? all_conditions(g, c) : g->mask;
    p = df_gen_offset(g, p, df_gen_i64(g, -(int64_t)size * (g->w - 1)));
    LLVMValueRef v = neighbours(g, t, p, 0, size, mask ? lanes_backwards(g, mask) : NULL, NULL);
    v = lanes_backwards(g, v);
    return c ? LLVMBuildSelect(g->b, mask, v, c->other, "") : v;
}

/* Loads the active lanes, which are `step` bytes apart, lane by lane or as a gather. */
static LLVMValueRef any_step(df_gen *g, uint32_t access, LLVMTypeRef t, LLVMValueRef p,
                             uint32_t size, const df_condition *c)
{
    LLVMValueRef mask = g->mask, bytes = g->acc[access].ramp, v;
    if (c) g->mask = all_conditions(g, c);
    if (!g->mask)
        v = load_strided(g, t, p, g->acc[access].step, size);
    else if (has_gather(g, size))
        v = access_gather_lanes(g, t, p, g->i8, bytes, size);
    else
        v = c ? access_load_lanes_if(g, t, p, bytes, g->mask, size)
              : access_load_lanes(g, t, p, g->i8, bytes, size);
    if (c) v = LLVMBuildSelect(g->b, g->mask, v, c->other, "");
    g->mask = mask;
    return v;
}

/* Loads the active lanes of an access without unit stride, of which lane 0 is at p. c: the
 * condition of the load, or NULL. */
static LLVMValueRef load_steps(df_gen *g, uint32_t access, LLVMTypeRef t, LLVMValueRef p,
                               uint32_t size, const df_condition *c)
{
    enum { SECOND, BACKWARDS, ANY, N_WAYS };
    LLVMValueRef step = g->acc[access].step, v[N_WAYS];
    const bool has_vectors = g->w > 1 && ((!g->mask && !c) || has_mask(g, size));
    if (g->w == 1) return load_aligned(g, t, p, size);
    if (!has_vectors || g->level == DF_OPT_O0) return any_step(g, access, t, p, size, c);
    if (g->are_twos || df_gen_is_second(g, access)) {
        const df_pair_mask known = pair_mask(g, c);
        return every_second(g, t, p, size, c, &known);
    }
    LLVMBasicBlockRef from[N_WAYS] = { df_gen_block(g, "second"), df_gen_block(g, "backwards"),
                                       df_gen_block(g, "any_step") };
    LLVMBasicBlockRef after = df_gen_block(g, "loaded");
    const df_pair_mask m = pair_mask(g, c); /* before the branch, for other loads, too */
    LLVMValueRef which = LLVMBuildSwitch(g->b, step, from[ANY], 2);
    LLVMAddCase(which, df_gen_i64(g, 2 * (int64_t)size), from[SECOND]);
    LLVMAddCase(which, df_gen_i64(g, -(int64_t)size), from[BACKWARDS]);
    for (int i = 0; i < N_WAYS; i++) {
        LLVMPositionBuilderAtEnd(g->b, from[i]);
        v[i] = i == SECOND      ? every_second(g, t, p, size, c, &m)
               : i == BACKWARDS ? backwards(g, t, p, size, c)
                                : any_step(g, access, t, p, size, c);
        from[i] = LLVMGetInsertBlock(g->b);
        LLVMBuildBr(g->b, after);
    }
    LLVMPositionBuilderAtEnd(g->b, after);
    LLVMValueRef loaded = LLVMBuildPhi(g->b, LLVMTypeOf(v[0]), "");
    LLVMAddIncoming(loaded, v, from, N_WAYS);
    return loaded;
}

static void store_strided(df_gen *g, LLVMValueRef v, LLVMValueRef p, LLVMValueRef step,
                          uint32_t size)
{
    if (!g->mask) {
        for (uint32_t i = 0; i < g->w; i++) {
            if (i > 0) p = df_gen_offset(g, p, step);
            store_aligned(g, LLVMBuildExtractElement(g->b, v, df_gen_i64(g, i), ""), p, size);
        }
        return;
    }
    LLVMTypeRef t = LLVMGetElementType(LLVMTypeOf(v));
    store_aligned(g, v, tail_buf(g), size);
    df_loop l;
    df_loop_begin(g, &l, df_gen_i64(g, 0), g->n_active, df_gen_i64(g, 1), 0);
    LLVMValueRef x = load_aligned(g, t, df_gen_at(g, t, g->tail_buf, l.i), size);
    store_aligned(g, x, df_gen_offset(g, p, LLVMBuildMul(g->b, l.i, step, "")), size);
    df_loop_end(g, &l);
}

/* ---- accesses ---- */

/* A bool is a byte in memory and a bit (i1) in a register. These two functions convert. */
static LLVMValueRef from_mem(df_gen *g, deft_dtype t, LLVMValueRef v)
{
    if (t != DEFT_BOOL) return v;
    return LLVMBuildICmp(g->b, LLVMIntNE, v, LLVMConstNull(LLVMTypeOf(v)), "");
}

static LLVMValueRef to_mem(df_gen *g, deft_dtype t, LLVMValueRef v)
{
    if (t != DEFT_BOOL) return v;
    const bool is_vector = LLVMGetTypeKind(LLVMTypeOf(v)) == LLVMVectorTypeKind;
    return LLVMBuildZExt(g->b, v, is_vector ? LLVMVectorType(g->i8, g->w) : g->i8, "");
}

/* Why the rows of column reductions prefetch: they are far apart, and too many streams for the
 * hardware's prefetchers. With prefetching, 16384 rows of 1 KiB take 0.09 instead of 0.22 ns per
 * element, and rows that fit in caches take as long as without. kernel.c describes the rows of
 * updates in place, and rows/fetch.c the others. Prefetching past the end of memory is harmless.
 * Tiles are in the first cache already. */
void df_access_prefetch(df_gen *g, uint32_t access, LLVMValueRef p)
{
    if (!g->prefetches || !g->acc[access].ahead || g->acc[access].has_tile) return;
    const df_access *const x = &g->k->access[access];
    const bool is_written = x->kind == DF_ACCESS_STORE;
    const uint32_t bytes = g->w * df_bytes_of((deft_dtype)x->dtype);
    if (g->fetches_lines ? g->copy * bytes % DF_FETCH_LINE != 0 : is_written) return;
    LLVMValueRef args[4] = { df_gen_offset(g, p, g->acc[access].ahead),
                             LLVMConstInt(g->i32, is_written, 0), /* to be written */
                             LLVMConstInt(g->i32, 3, 0),          /* kept in L1 */
                             LLVMConstInt(g->i32, 1, 0) };        /* data */
    df_gen_intrinsic(g, "llvm.prefetch", &g->ptr, 1, args, 4);
    if (!g->acc[access].has_pair) return;
    args[0] = df_gen_offset(g, args[0], df_gen_i64(g, DF_FETCH_LINE));
    df_gen_intrinsic(g, "llvm.prefetch", &g->ptr, 1, args, 4);
}

/* The address of the first lane that an instruction handles. */
static LLVMValueRef lane_address(df_gen *g, uint32_t access, LLVMTypeRef t, LLVMValueRef row)
{
    const df_step step = df_gen_lane_step(g, access);
    if (step == DF_STEP_ZERO) return row;
    if (step == DF_STEP_UNIT) return df_gen_at(g, t, row, g->lane0);
    return df_gen_offset(g, row, LLVMBuildMul(g->b, g->lane0, g->acc[access].step, ""));
}

/* Loads the active lanes for which c holds, of an access that moves along the lanes. */
static LLVMValueRef load_lanes_if(df_gen *g, uint32_t access, LLVMTypeRef t, const df_condition *c,
                                  uint32_t size)
{
    LLVMValueRef p = lane_address(g, access, t, g->acc[access].at), mask = g->mask;
    if (df_gen_lane_step(g, access) != DF_STEP_UNIT) return load_steps(g, access, t, p, size, c);
    if (has_mask(g, size)) {
        g->mask = mask ? LLVMBuildAnd(g->b, mask, c->is, "") : c->is;
        LLVMValueRef v = load_masked(g, t, row_or_other(g, p, c), size, c->other);
        g->mask = mask;
        return v;
    }
    LLVMValueRef all = all_conditions(g, c);
    LLVMValueRef bytes = LLVMBuildMul(g->b, df_gen_iota(g, g->i64, g->w),
                                      df_gen_splat(g, df_gen_i64(g, size), g->w), "");
    return LLVMBuildSelect(g->b, all, access_load_lanes_if(g, t, p, bytes, all, size), c->other,
                           "");
}

/* Loads one element, which all lanes share, in the active lanes for which c holds. */
static LLVMValueRef load_one_if(df_gen *g, uint32_t access, LLVMTypeRef t, const df_condition *c,
                                uint32_t size)
{
    LLVMValueRef is = all_conditions(g, c), any = is;
    LLVMTypeRef type = LLVMTypeOf(is);
    if (g->w > 1) any = df_gen_intrinsic(g, "llvm.vector.reduce.or", &type, 1, &any, 1);
    LLVMValueRef p = lane_address(g, access, t, g->acc[access].at);
    p = LLVMBuildSelect(g->b, any, p, anywhere(g), "");
    LLVMValueRef v = load_aligned(g, t, p, size);
    return LLVMBuildSelect(g->b, is, g->w > 1 ? df_gen_splat(g, v, g->w) : v, c->other, "");
}

void df_access_prepare_if(df_gen *g, uint32_t access, const df_condition *c)
{
    const uint32_t size = df_bytes_of((deft_dtype)g->k->access[access].dtype);
    if (df_gen_lane_step(g, access) == DF_STEP_ANY && has_mask(g, size)) (void)pair_mask(g, c);
}

LLVMValueRef df_access_load_if(df_gen *g, uint32_t access, const df_condition *given)
{
    const deft_dtype dtype = (deft_dtype)g->k->access[access].dtype;
    const uint32_t size = df_bytes_of(dtype);
    LLVMTypeRef t = df_gen_mem_type(g, dtype);
    df_condition c = *given;
    c.other = to_mem(g, dtype, c.other);
    if (c.row && !c.others) {
        c.is = LLVMBuildAnd(g->b, g->w > 1 ? df_gen_splat(g, c.row, g->w) : c.row, c.is, "");
        c.row = NULL;
    }
    const bool is_one = g->w == 1 || df_gen_lane_step(g, access) == DF_STEP_ZERO;
    return from_mem(g, dtype,
                    is_one ? load_one_if(g, access, t, &c, size)
                           : load_lanes_if(g, access, t, &c, size));
}

/* The address of lane 0 of the whole row, in the row that is being written. */
static LLVMValueRef row_address(const df_gen *g, uint32_t access)
{
    return df_jam_is_next(g) ? g->acc[access].next : g->acc[access].at;
}

LLVMValueRef df_access_load(df_gen *g, uint32_t access)
{
    const deft_dtype dtype = (deft_dtype)g->k->access[access].dtype;
    const uint32_t size = df_bytes_of(dtype);
    LLVMTypeRef t = df_gen_mem_type(g, dtype);
    if (g->acc[access].turned) return from_mem(g, dtype, g->acc[access].turned);
    LLVMValueRef p = lane_address(g, access, t, row_address(g, access)), v;
    if (df_gen_lane_step(g, access) == DF_STEP_UNIT) {
        df_access_prefetch(g, access, p);
        v = df_access_load_unit(g, t, p, size);
    } else if (df_gen_lane_step(g, access) == DF_STEP_ZERO) { /* a load_if whose lanes share it */
        v = load_aligned(g, t, p, size);
        if (g->w > 1) v = df_gen_splat(g, v, g->w);
    } else {
        v = load_steps(g, access, t, p, size, NULL);
    }
    return from_mem(g, dtype, v);
}

LLVMValueRef df_access_load_at(df_gen *g, uint32_t access, LLVMValueRef offset)
{
    const deft_dtype dtype = (deft_dtype)g->k->access[access].dtype;
    const uint32_t size = df_bytes_of(dtype);
    LLVMTypeRef t = df_gen_mem_type(g, dtype);
    LLVMValueRef p = g->acc[access].at, v;
    if (g->w == 1)
        v = load_aligned(g, t, df_gen_at(g, t, p, offset), size);
    else if (has_gather(g, size) && (g->mask || !g->t->slow_gathers))
        v = access_gather_lanes(g, t, p, t, offset, size);
    else
        v = access_load_lanes(g, t, p, t, offset, size);
    return from_mem(g, dtype, v);
}

LLVMValueRef df_access_load_run(df_gen *g, uint32_t access, LLVMValueRef start)
{
    const deft_dtype dtype = (deft_dtype)g->k->access[access].dtype;
    LLVMTypeRef t = df_gen_mem_type(g, dtype);
    LLVMValueRef p = df_gen_at(g, t, g->acc[access].at, start);
    return from_mem(g, dtype, df_access_load_unit(g, t, p, df_bytes_of(dtype)));
}

LLVMValueRef df_access_index(df_gen *g, uint32_t access)
{
    const df_acc_state *s = &g->acc[access];
    const bool is_unit = df_gen_lane_step(g, access) == DF_STEP_UNIT;
    LLVMValueRef lane0 = is_unit ? g->lane0 : LLVMBuildMul(g->b, g->lane0, s->step, "");
    LLVMValueRef start = LLVMBuildAdd(g->b, s->at, lane0, "");
    if (g->w == 1) return start;
    LLVMValueRef ramp = is_unit ? df_gen_iota(g, g->i64, g->w) : s->ramp;
    return LLVMBuildAdd(g->b, df_gen_splat(g, start, g->w), ramp, "");
}

void df_access_store(df_gen *g, uint32_t access, LLVMValueRef v)
{
    const deft_dtype dtype = (deft_dtype)g->k->access[access].dtype;
    const uint32_t size = df_bytes_of(dtype);
    LLVMTypeRef t = df_gen_mem_type(g, dtype);
    LLVMValueRef p = lane_address(g, access, t, row_address(g, access));
    v = to_mem(g, dtype, v);
    if (df_gen_lane_step(g, access) == DF_STEP_UNIT) {
        if (g->is_streaming && df_access_may_stream(g->k, access))
            df_stream_store(g, v, p, size);
        else {
            df_access_prefetch(g, access, p);
            df_access_store_unit(g, v, p, size);
        }
        return;
    }
    if (g->w == 1)
        store_aligned(g, v, p, size);
    else
        store_strided(g, v, p, g->acc[access].step, size);
}

/* ---- elements that alternate (rows/twos.c) ---- */

/* The active lanes of vector number k of those that hold the elements of n accesses in turn; NULL:
 * all. */
static LLVMValueRef part_mask(df_gen *g, uint32_t n, uint32_t k)
{
    if (!g->mask) return NULL;
    LLVMValueRef left = LLVMBuildMul(g->b, g->n_active, df_gen_i64(g, n), "");
    left = LLVMBuildSub(g->b, left, df_gen_i64(g, (int64_t)k * g->w), "");
    left = LLVMBuildTrunc(g->b, left, g->i32, "");
    return LLVMBuildICmp(g->b, LLVMIntSLT, df_gen_iota(g, g->i32, g->w),
                         df_gen_splat(g, left, g->w), "");
}

/* The address of the first of these vectors, and of the second. */
static LLVMValueRef half_address(df_gen *g, uint32_t access, uint32_t half, uint32_t size)
{
    LLVMValueRef at = LLVMBuildMul(g->b, g->lane0, df_gen_i64(g, 2 * (int64_t)size), "");
    at = df_gen_offset(g, row_address(g, access), at);
    return df_gen_offset(g, at, df_gen_i64(g, (int64_t)half * g->w * size));
}

bool df_access_load_two(df_gen *g, uint32_t access, LLVMValueRef out[2])
{
    const deft_dtype dtype = (deft_dtype)g->k->access[access].dtype;
    const uint32_t size = df_bytes_of(dtype);
    LLVMTypeRef t = df_gen_mem_type(g, dtype);
    LLVMValueRef half[2], lane[DF_LANES], kept = g->mask;
    df_assert(g->are_twos && g->w > 1);
    if (g->mask && !has_mask(g, size)) return false;
    for (uint32_t h = 0; h < 2; h++) {
        LLVMValueRef p = half_address(g, access, h, size), mask = part_mask(g, 2, h);
        g->mask = mask;
        df_access_prefetch(g, access, p);
        half[h] = df_access_load_unit(g, t, p, size);
        g->mask = kept;
    }
    for (uint32_t n = 0; n < 2; n++) {
        if (g->are_as_loaded) {
            out[n] = from_mem(g, dtype, half[n]);
            continue;
        }
        for (uint32_t i = 0; i < g->w; i++) lane[i] = LLVMConstInt(g->i32, 2 * i + n, 0);
        LLVMValueRef order = LLVMConstVector(lane, g->w);
        out[n] = from_mem(g, dtype, LLVMBuildShuffleVector(g->b, half[0], half[1], order, ""));
    }
    return true;
}

/* Stores the lanes of a and b in turn. */
static void store_in_turn(df_gen *g, uint32_t access, LLVMValueRef a, LLVMValueRef b, uint32_t size)
{
    LLVMValueRef lane[DF_LANES], kept = g->mask;
    for (uint32_t half = 0; half < 2; half++) {
        for (uint32_t i = 0; i < g->w; i++) {
            const uint32_t at = half * g->w + i;
            lane[i] = LLVMConstInt(g->i32, at % 2 ? g->w + at / 2 : at / 2, 0);
        }
        LLVMValueRef v = LLVMBuildShuffleVector(g->b, a, b, LLVMConstVector(lane, g->w), "");
        LLVMValueRef p = half_address(g, access, half, size), mask = part_mask(g, 2, half);
        if (g->is_streaming) {
            df_stream_store(g, v, p, size);
            continue;
        }
        g->mask = mask;
        df_access_store_unit(g, v, p, size);
        g->mask = kept;
    }
}

void df_access_store_two(df_gen *g, uint32_t access, LLVMValueRef v, LLVMValueRef other)
{
    const deft_dtype dtype = (deft_dtype)g->k->access[access].dtype;
    const uint32_t size = df_bytes_of(dtype);
    df_assert(g->are_twos);
    if ((g->mask && !has_masked_store(g, size)) || g->w == 1) {
        df_access_store(g, access, v);
        df_access_store(g, access + 1, other);
        return;
    }
    store_in_turn(g, access, to_mem(g, dtype, v), to_mem(g, dtype, other), size);
}

/* ---- elements in turn (rows/turns.c) ---- */

/* Whether store i is followed by one to the same memory, through the next access. */
static bool are_neighbours(const df_gen *g, uint32_t i)
{
    const df_kernel *k = g->k;
    if (i + 1 >= k->n_ins || k->ins[i].op != DF_K_store || k->ins[i + 1].op != DF_K_store)
        return false;
    const uint32_t a = (uint32_t)k->ins[i].imm;
    return k->ins[i + 1].imm == a + 1 && k->access[a].same_as == k->access[a + 1].same_as &&
           k->access[a].dtype == k->access[a + 1].dtype && df_access_steps(g, a) &&
           df_access_steps(g, a + 1);
}

enum { LEAST_TURNS = 3 };

uint32_t df_access_stores_in_turn(const df_gen *g, uint32_t i)
{
    uint32_t n = 1;
    if (i > 0 && are_neighbours(g, i - 1)) return 0;
    while (are_neighbours(g, i + n - 1)) n++;
    return n >= LEAST_TURNS && n <= DF_MOST_TURNS ? n : 0;
}

void df_access_store_in_turn(df_gen *g, uint32_t access, LLVMValueRef *v, uint32_t n)
{
    const deft_dtype dtype = (deft_dtype)g->k->access[access].dtype;
    const uint32_t size = df_bytes_of(dtype);
    LLVMValueRef kept = g->mask, part[DF_MOST_TURNS];
    df_assert(g->are_turns && g->w > 1);
    if (g->mask && !has_masked_store(g, size)) {
        for (uint32_t k = 0; k < n; k++) df_access_store(g, access + k, v[k]);
        return;
    }
    for (uint32_t k = 0; k < n; k++) {
        v[k] = to_mem(g, dtype, v[k]);
        part[k] = part_mask(g, n, k);
    }
    df_interleave(g, v, n);
    LLVMValueRef first = LLVMBuildMul(g->b, g->lane0, df_gen_i64(g, (int64_t)n * size), "");
    LLVMValueRef p = df_gen_offset(g, row_address(g, access), first);
    for (uint32_t k = 0; k < n; k++) {
        LLVMValueRef at = df_gen_i64(g, (int64_t)k * g->w * size);
        g->mask = part[k];
        df_access_store_unit(g, v[k], df_gen_offset(g, p, at), size);
    }
    g->mask = kept;
}

LLVMValueRef df_access_load_one(df_gen *g, uint32_t access, LLVMValueRef p, LLVMValueRef offset)
{
    const deft_dtype dtype = (deft_dtype)g->k->access[access].dtype;
    LLVMTypeRef t = df_gen_mem_type(g, dtype);
    if (offset) p = df_gen_at(g, t, p, offset);
    return from_mem(g, dtype, load_aligned(g, t, p, df_bytes_of(dtype)));
}

LLVMValueRef df_access_load_one_if(df_gen *g, uint32_t access, LLVMValueRef is, LLVMValueRef other)
{
    LLVMValueRef p = LLVMBuildSelect(g->b, is, g->acc[access].at, anywhere(g), "");
    return LLVMBuildSelect(g->b, is, df_access_load_one(g, access, p, NULL), other, "");
}

void df_access_store_one(df_gen *g, uint32_t access, LLVMValueRef p, LLVMValueRef v)
{
    const deft_dtype dtype = (deft_dtype)g->k->access[access].dtype;
    store_aligned(g, to_mem(g, dtype, v), p, df_bytes_of(dtype));
}

LLVMValueRef df_access_is_behind(df_gen *g, uint32_t a, uint32_t b)
{
    const int64_t size = df_bytes_of((deft_dtype)g->k->access[a].dtype);
    LLVMValueRef next = df_gen_offset(g, g->acc[a].at, df_gen_i64(g, size));
    return LLVMBuildICmp(g->b, LLVMIntEQ, g->acc[b].at, next, "");
}

bool df_access_steps(const df_gen *g, uint32_t access)
{
    return df_access_is_strided(g->k->access[access].kind) &&
           g->k->access[access].step[g->vec_axis] == DF_STEP_ANY && !g->acc[access].has_tile;
}

bool df_access_is_twin(const df_gen *g, uint32_t access)
{
    const df_access *a = &g->k->access[access];
    return a->twin > 0 && df_access_steps(g, access) && df_access_steps(g, a->twin - 1u);
}

uint32_t df_access_first_of_two(const df_gen *g, uint32_t access)
{
    if (df_access_is_twin(g, access)) return g->k->access[access].twin - 1u;
    for (uint32_t a = 0; a < g->k->n_access; a++)
        if (g->k->access[a].twin == access + 1 && df_access_is_twin(g, a)) return access;
    return DF_NONE;
}

bool df_access_begins_twos(const df_gen *g, uint32_t i)
{
    uint32_t n = 0;
    if (!are_neighbours(g, i)) return false;
    while (i > n && are_neighbours(g, i - n - 1)) n++;
    return n % 2 == 0;
}
