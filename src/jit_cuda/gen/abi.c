/* SPDX-License-Identifier: Apache-2.0
 *
 * The words of a segment, and which entries it allows. Pure arithmetic on what plan.h says:
 * no driver, no text. What must hold: the generator asks df_cuda_layout for the position of
 * each word, so text and words cannot disagree.
 */
#include "jit_cuda/gen/held.h"

#include "base/limits.h"

enum {
    NARROW_MOST = 1 << 30, /* bound on extents, products of extents, and offsets */
    UNROLLED_MOST = 1024,  /* bound on lanes times instructions of a WIDE body, which is unrolled */
    /* What a thread has at once is bounded by registers and by the time of the compiler. */
    SHORT = 8,   /* instructions of a body that takes 4 packs */
    MEDIUM = 16, /* instructions of a body that takes 2 packs */
    HEAVY = 8,   /* what a division or a root counts as */
    LANES_MOST = 16,
    LOADS_MOST = 8, /* loads of 16 bytes: 32 registers */
    /* COL with several columns per thread: bytes of a thread's accumulators of one
     * reduction, and of a thread block's stacks. Folding takes 8 KB of shared memory beside
     * the stacks. */
    FOLD_MOST = 16,
    STACKS_MOST = 12 << 10
};

/* ---- words ---- */

static bool access_has_strides(const df_access *a)
{
    return a->kind != DF_ACCESS_AT && a->kind != DF_ACCESS_SCRATCH;
}

uint32_t df_cuda_layout(const df_kernel *k, void (*f)(void *user, uint32_t at, df_cuda_word w),
                        void *user)
{
    uint32_t n = 0;
#define WORD(...)                                                                                  \
    do {                                                                                           \
        if (f) f(user, n, (df_cuda_word){ __VA_ARGS__ });                                          \
        n++;                                                                                       \
    } while (0)
    for (uint32_t i = 0; i < k->n_access; i++) {
        const df_access *const a = &k->access[i];
        WORD(a->kind == DF_ACCESS_INDEX ? DF_CUDA_WORD_BASE : DF_CUDA_WORD_PTR, i, 0);
        for (uint32_t x = 0; x < k->n_axes && access_has_strides(a); x++)
            if (a->step[x] == DF_STEP_ANY) WORD(DF_CUDA_WORD_STRIDE, i, x);
    }
    for (uint32_t x = 0; x < k->n_axes; x++) WORD(DF_CUDA_WORD_EXTENT, 0, x);
    for (uint32_t i = 0; i < k->n_num; i++) WORD(DF_CUDA_WORD_NUM, i, 0);
    if (k->flags & DF_KERNEL_CHECKS) WORD(DF_CUDA_WORD_FAULT, 0, 0);
    if (k->flags & DF_KERNEL_SPLIT) WORD(DF_CUDA_WORD_PARTIAL, 0, 0);
#undef WORD
    return n;
}

typedef struct filling {
    const df_kernel *k;
    const df_kargs *a;
    uint64_t *words;
} filling;

static void fill_word(void *user, uint32_t at, df_cuda_word w)
{
    const filling *const f = user;
    const df_kargs *const a = f->a;
    uint64_t v = 0;
    switch ((df_cuda_word_kind)w.kind) {
    case DF_CUDA_WORD_PTR: v = (uintptr_t)a->ptr[w.access]; break;
    case DF_CUDA_WORD_BASE: v = (uint64_t)a->base[w.access]; break;
    case DF_CUDA_WORD_STRIDE: v = (uint64_t)a->stride[w.access * f->k->n_axes + w.axis]; break;
    case DF_CUDA_WORD_EXTENT: v = (uint64_t)a->extent[w.axis]; break;
    case DF_CUDA_WORD_NUM: v = a->num[w.access]; break;
    case DF_CUDA_WORD_FAULT: v = (uintptr_t)a->fault; break;
    case DF_CUDA_WORD_PARTIAL: v = (uintptr_t)a->partial; break;
    }
    f->words[at] = v;
}

void df_cuda_fill(const df_kernel *k, const df_kargs *a, uint64_t *words)
{
    filling f = { k, a, words };
    df_cuda_layout(k, fill_word, &f);
}

bool df_cuda_by_value(const df_kernel *k)
{
    return df_cuda_layout(k, NULL, NULL) * sizeof(uint64_t) <= DF_CUDA_PARAM_BYTES;
}

/* ---- which entries a segment allows ---- */

/* The product of the extents of a role. Returns false when it exceeds 64 bits. */
static bool multiply_role_extents(const df_kernel *k, const df_kargs *a, df_role role, int64_t *out)
{
    *out = 1;
    for (uint32_t x = 0; x < k->n_axes; x++)
        if (k->role[x] == role && !df_mul_i64(*out, a->extent[x], out)) return false;
    return true;
}

static int64_t product_of(const df_kernel *k, const df_kargs *a, df_role role)
{
    int64_t n;
    return multiply_role_extents(k, a, role, &n) ? n : INT64_MAX;
}

static bool all_within(const df_kernel *k, const df_kargs *a)
{
    int64_t n;
    if (!df_mul_i64(product_of(k, a, DF_AXIS_OUTER), product_of(k, a, DF_AXIS_INNER), &n) ||
        n > NARROW_MOST)
        return false;
    return k->mode == DF_MODE_LOOP || product_of(k, a, DF_AXIS_RED) <= NARROW_MOST;
}

/* Whether all offsets of access i fit 32 bits. For an INDEX only its positions must fit,
 * because its values always have 64 bits. */
static bool offsets_within(const df_kernel *k, const df_kargs *a, uint32_t i)
{
    int64_t sum = 0;
    if (!access_has_strides(&k->access[i])) return true;
    for (uint32_t x = 0; x < k->n_axes; x++) {
        const uint8_t step = k->access[i].step[x];
        if (step == DF_STEP_ZERO || a->extent[x] <= 1) continue;
        const int64_t by = step == DF_STEP_UNIT ? 1 : a->stride[i * k->n_axes + x];
        if (a->extent[x] > NARROW_MOST) return false;
        if (k->access[i].kind == DF_ACCESS_INDEX) continue;
        if (by < -NARROW_MOST || by > NARROW_MOST) return false;
        sum += (a->extent[x] - 1) * (by < 0 ? -by : by);
        if (sum > NARROW_MOST) return false;
    }
    return true;
}

static bool is_narrow(const df_kernel *k, const df_kargs *a)
{
    if (!all_within(k, a)) return false;
    for (uint32_t i = 0; i < k->n_access; i++)
        if (!offsets_within(k, a, i)) return false;
    return true;
}

static bool goes_wide(const df_kernel *k, uint32_t i)
{
    const df_access *const a = &k->access[i];
    return (a->kind == DF_ACCESS_LOAD || a->kind == DF_ACCESS_STORE) &&
           a->step[k->n_axes - 1u] == DF_STEP_UNIT;
}

/* Whether pairs of neighbours are within the last axis, for a row of several axes. */
static bool row_keeps_pairs(const df_kernel *k, const df_kargs *a)
{
    const uint32_t last = k->n_axes - 1u;
    return last == 0 || k->role[last - 1] != DF_AXIS_RED || a->extent[last] % 2 == 0;
}

/* Estimates how many instructions of a GPU an instruction becomes. */
static uint32_t estimate_ins_weight(const df_ins *ins)
{
    if (ins->op == DF_K_const || ins->op == DF_K_num) return 0;
    return ins->op == DF_K_div || ins->op == DF_K_rem || ins->op == DF_K_sqrt ? HEAVY : 1;
}

/* Bytes of an accumulator of a reduction; 0: not a reduction. */
static size_t accumulator_of(const df_kernel *k, const df_ins *ins)
{
    if (df_kop_infos[ins->op].kind != DF_KOP_reduce) return 0;
    if (ins->op == DF_K_argmin || ins->op == DF_K_argmax) return 16;
    return deft_dtype_size((deft_dtype)k->ins[ins->src[0]].dtype);
}

/* COL: how many of n columns a thread may have at most. 1 with a scan, which is one chain
 * for each column. */
static uint32_t columns_of(const df_kernel *k, uint32_t n)
{
    size_t largest = 0, all = 0;
    uint32_t n_ins = 0;
    for (uint32_t i = 0; i < k->n_ins; i++) {
        const size_t size = accumulator_of(k, &k->ins[i]);
        if (df_kop_infos[k->ins[i].op].kind == DF_KOP_scan) return 1;
        if (size > largest) largest = size;
        all += size;
        if (k->ins[i].level == DF_LEVEL_ELEM) n_ins += estimate_ins_weight(&k->ins[i]);
    }
    const size_t stacks = all * DF_CUDA_DEPTH * DF_CUDA_TILE;
    const uint32_t most = n_ins > MEDIUM ? 1 : n_ins > SHORT ? 2 : 4;
    while (n > most || (n > 1 && (n * largest > FOLD_MOST || n * stacks > STACKS_MOST))) n /= 2;
    return n;
}

uint32_t df_cuda_lanes(const df_kernel *k)
{
    size_t widest = 0;
    if (k->mode == DF_MODE_LOOP) return 1;
    for (uint32_t i = 0; i < k->n_access; i++) {
        const size_t size = deft_dtype_size((deft_dtype)k->access[i].dtype);
        if (goes_wide(k, i) && size > widest) widest = size;
    }
    uint32_t n = widest ? (uint32_t)(16 / widest) : 1;
    if (k->mode == DF_MODE_ROW) return widest ? 2 : 1;
    if (k->mode == DF_MODE_COL) return columns_of(k, n);
    while (n > 1 && n * k->n_ins > UNROLLED_MOST) n /= 2;
    return n;
}

uint32_t df_cuda_packs(const df_kernel *k, uint8_t flags)
{
    const uint32_t lanes = flags & DF_CUDA_WIDE ? df_cuda_lanes(k) : 1;
    uint32_t n_loads = 0, n_ins = 0;
    if (k->mode != DF_MODE_MAP) return 1;
    for (uint32_t i = 0; i < k->n_ins; i++) {
        n_loads += df_kop_infos[k->ins[i].op].kind == DF_KOP_memory && k->ins[i].op != DF_K_store;
        n_ins += estimate_ins_weight(&k->ins[i]);
    }
    uint32_t n = n_loads == 0 || n_ins > MEDIUM ? 1 : n_ins > SHORT ? 2 : 4;
    while (n > 1 && (n * lanes > LANES_MOST || n * n_loads > LOADS_MOST)) n /= 2;
    return n;
}

static bool is_aligned(const df_kernel *k, const df_kargs *a)
{
    const uint32_t n = df_cuda_lanes(k);
    if (k->mode == DF_MODE_ROW && !row_keeps_pairs(k, a)) return false;
    if (k->mode == DF_MODE_COL && a->extent[k->n_axes - 1u] % (int64_t)n != 0) return false;
    for (uint32_t i = 0; i < k->n_access; i++) {
        if (!goes_wide(k, i)) continue;
        const size_t bytes = n * deft_dtype_size((deft_dtype)k->access[i].dtype);
        if ((uintptr_t)a->ptr[i] % bytes != 0) return false;
        for (uint32_t x = 0; x + 1u < k->n_axes; x++)
            if (k->access[i].step[x] == DF_STEP_ANY && a->extent[x] > 1 &&
                a->stride[i * k->n_axes + x] % (int64_t)n != 0)
                return false;
    }
    return n > 1;
}

uint8_t df_cuda_facts(const df_kernel *k, const df_kargs *a)
{
    uint8_t flags = 0;
    if (is_narrow(k, a)) flags |= DF_CUDA_NARROW;
    if (is_aligned(k, a)) flags |= DF_CUDA_WIDE;
    if (k->mode == DF_MODE_ROW && product_of(k, a, DF_AXIS_RED) > DF_CUDA_WARP_ROW)
        flags |= DF_CUDA_LONG;
    return flags;
}

bool df_cuda_may_substitute(const df_kernel *k, uint8_t facts, df_cuda_entry by, df_cuda_entry want)
{
    const uint8_t relies_on = by.flags & (DF_CUDA_NARROW | DF_CUDA_WIDE);
    const bool is_main = by.pass == DF_CUDA_MAIN;
    if (by.pass == want.pass && by.flags == want.flags) return true;
    if (k->flags & DF_KERNEL_FAST || (by.pass != want.pass && !is_main)) return false;
    if (by.flags & DF_CUDA_HELD) return false;
    if (relies_on & ~facts) return false;
    if (is_main && facts & DF_CUDA_LONG && !(by.flags & DF_CUDA_LONG)) return false;
    return by.flags & DF_CUDA_MANY || !(want.flags & DF_CUDA_MANY);
}

/* ---- grids ---- */

uint32_t df_cuda_threads(const df_kernel *k, df_cuda_pass pass)
{
    if (k->mode == DF_MODE_LOOP) return 128;
    if (k->mode == DF_MODE_COL && pass != DF_CUDA_FIN) return DF_CUDA_TILE * DF_CUDA_TILE_Y;
    return DF_CUDA_WARPS * 32;
}

uint32_t df_cuda_team_threads(const df_kernel *k, df_cuda_entry e, const df_kargs *a)
{
    const uint8_t both = DF_CUDA_HELD | DF_CUDA_LONG;
    const uint32_t all = df_cuda_threads(k, (df_cuda_pass)e.pass);
    if ((e.flags & both) != both) return all;
    const int64_t n_blocks = df_div_up(product_of(k, a, DF_AXIS_RED), DF_BLOCK);
    uint32_t n = 32;
    while (n < all && n < n_blocks * 32) n *= 2;
    return n;
}

int64_t df_cuda_shared_bytes(const df_kernel *k, df_cuda_entry e, const df_kargs *a)
{
    if (!(e.flags & DF_CUDA_HELD)) return 0;
    const df_cuda_held h = df_cuda_held_of(k);
    const int64_t row = df_cuda_held_bytes(&h, product_of(k, a, DF_AXIS_RED));
    return e.flags & DF_CUDA_LONG || row > DF_CUDA_SHARED_BYTES ? row : row * DF_CUDA_WARPS;
}

int64_t df_cuda_blocks(const df_kernel *k, df_cuda_entry e, const df_kargs *a)
{
    const int64_t outer = product_of(k, a, DF_AXIS_OUTER), inner = product_of(k, a, DF_AXIS_INNER);
    const int64_t threads = df_cuda_threads(k, (df_cuda_pass)e.pass);
    if (outer == 0 || inner == 0) return 0;
    const int64_t lanes = e.flags & DF_CUDA_WIDE ? df_cuda_lanes(k) : 1;
    const int64_t n_red =
        e.pass == DF_CUDA_PART ? df_div_up(product_of(k, a, DF_AXIS_RED), DF_BLOCK) : 1;
    switch ((df_mode)k->mode) {
    case DF_MODE_MAP: return df_div_up(outer * df_div_up(inner, lanes), threads);
    case DF_MODE_ROW:
        if (e.pass == DF_CUDA_FIN || e.flags & DF_CUDA_LONG) return outer;
        return df_div_up(outer * n_red, DF_CUDA_WARPS);
    case DF_MODE_COL:
        if (e.pass == DF_CUDA_FIN) return df_div_up(outer * inner, threads);
        return outer * n_red * df_div_up(inner, DF_CUDA_TILE * lanes);
    case DF_MODE_LOOP: return df_div_up(outer * inner, threads);
    }
    df_unreachable();
}

int64_t df_cuda_partial_words(const df_kernel *k, const df_kargs *a)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < k->n_ins; i++)
        if (df_kop_infos[k->ins[i].op].kind == DF_KOP_reduce)
            n += k->ins[i].op == DF_K_argmin || k->ins[i].op == DF_K_argmax ? 2 : 1;
    return n * product_of(k, a, DF_AXIS_OUTER) * product_of(k, a, DF_AXIS_INNER) *
           df_div_up(product_of(k, a, DF_AXIS_RED), DF_BLOCK);
}

deft_status df_cuda_fits(df_diag *d, const df_kernel *k, const df_kargs *a)
{
    const int64_t n = product_of(k, a, DF_AXIS_RED), most = (int64_t)DF_BLOCK << DF_CUDA_DEPTH;
    if ((k->mode != DF_MODE_ROW && k->mode != DF_MODE_COL) || n < most) return DEFT_OK;
    return df_fail(d, DEFT_E_LIMIT, "cuda: a reduction of %lld elements: fewer than %lld fit",
                   (long long)n, (long long)most);
}
