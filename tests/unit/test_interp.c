/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter. What an op must give is written down here as numbers; the order of reductions is
 * checked against a second, naive implementation of the text in base/limits.h.
 *
 * Why this file is long: the tables of ops and casts are one row per case.
 */
#include <criterion/criterion.h>

#include "base/bits.h"
#include "runtime/interp/interp.h"
#include "runtime/interp/interp_ops.h"
#include "support/half_ref.h"
#include "support/int_ref.h"
#include "unit/hand_kernels.h"

/* All NaNs are equal. */
static bool same_bits(int dtype, const void *a, const void *b)
{
    float f[2];
    double g[2];
    if (dtype == DEFT_F32) {
        memcpy(&f[0], a, 4), memcpy(&f[1], b, 4);
        if (f[0] != f[0] && f[1] != f[1]) return true;
    }
    if (dtype == DEFT_F64) {
        memcpy(&g[0], a, 8), memcpy(&g[1], b, 8);
        if (g[0] != g[0] && g[1] != g[1]) return true;
    }
    return memcmp(a, b, size_of(dtype)) == 0;
}

/* ---- calls of the interpreter ---- */

typedef struct call {
    char *ptr[12];
    int64_t stride[12 * DF_MAX_AXES], base[12], extent[DF_MAX_AXES], fault[3];
    uint64_t num[8];
    df_kargs a;
    void *work;
} call;

static void call_init(call *c, const df_kernel *k)
{
    memset(c, 0, sizeof *c);
    c->a = (df_kargs){ .ptr = c->ptr,
                       .stride = c->stride,
                       .base = c->base,
                       .extent = c->extent,
                       .num = c->num,
                       .fault = c->fault };
    const size_t size = (df_interp_work_size(k) + 63) & ~(size_t)63;
    c->work = aligned_alloc(64, size);
    cr_assert(c->work);
    memset(c->work, 0x11, size); /* nothing may be taken for granted */
}

static void call_finish(call *c)
{
    free(c->work);
}

/* ---- every op ---- */

typedef struct row {
    df_kop op;
    int dtype, to; /* of the operands, of the result */
    uint64_t a, b, c, want;
} row;

/* Runs one row over n equal lanes through a MAP kernel; returns whether all lanes are right. */
static bool run_row(const row *r, int64_t n)
{
    kb b;
    call c;
    const df_kop_info *const op = &df_kop_infos[r->op];
    char *const in[3] = { malloc(8 * (size_t)n), malloc(8 * (size_t)n), malloc(8 * (size_t)n) };
    char *const out = malloc(8 * (size_t)n);
    const uint64_t value[3] = { r->a, r->b, r->c };
    char want[8];
    df_bits_store(want, r->want, size_of(r->to));
    uint32_t src[3] = { 0 };
    bool ok = true;
    kb_init(&b, DF_MODE_MAP, "i", 1);
    for (uint32_t i = 0; i < op->n_src; i++) {
        const int dtype = r->op == DF_K_select && i == 0 ? DEFT_BOOL : r->dtype;
        src[i] = kb_ins(&b, DF_K_load, dtype, 0, 0, 0, kb_access(&b, DF_ACCESS_LOAD, dtype, "1"));
        for (int64_t j = 0; j < n; j++)
            df_bits_store(in[i] + j * (int64_t)size_of(dtype), value[i], size_of(dtype));
    }
    const uint32_t v = kb_ins(&b, r->op, r->to, src[0], src[1], src[2], 0);
    kb_ins(&b, DF_K_store, r->to, v, 0, 0, kb_access(&b, DF_ACCESS_STORE, r->to, "1"));
    call_init(&c, &b.k);
    for (uint32_t i = 0; i < op->n_src; i++) c.ptr[i] = in[i];
    c.ptr[op->n_src] = out;
    c.extent[0] = n;
    df_interp_main(&b.k, c.work, &c.a, 0, 1, 0, n);
    for (int64_t j = 0; j < n; j++)
        ok = ok && same_bits(r->to, out + j * (int64_t)size_of(r->to), want);
    call_finish(&c);
    for (int i = 0; i < 3; i++) free(in[i]);
    free(out);
    return ok;
}

static void run_rows(const row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const row *const r = &rows[i];
        cr_expect(run_row(r, 1), "row %zu: %s %s, one lane", i, df_kop_infos[r->op].name,
                  deft_dtype_name((deft_dtype)r->dtype));
        cr_expect(run_row(r, 300), "row %zu: %s %s", i, df_kop_infos[r->op].name,
                  deft_dtype_name((deft_dtype)r->dtype));
    }
}

/* An op, operand dtype and result dtype for all numbers at once, small exact values. */
#define WHOLE(op, x, y, w)                                                                         \
    { DF_K_##op, DEFT_U8, DEFT_U8, U(x), U(y), 0, U(w) },                                          \
        { DF_K_##op, DEFT_I8, DEFT_I8, U(x), U(y), 0, U(w) },                                      \
        { DF_K_##op, DEFT_U16, DEFT_U16, H(x), H(y), 0, H(w) },                                    \
        { DF_K_##op, DEFT_I16, DEFT_I16, H(x), H(y), 0, H(w) },                                    \
        { DF_K_##op, DEFT_U32, DEFT_U32, I(x), I(y), 0, I(w) },                                    \
        { DF_K_##op, DEFT_I32, DEFT_I32, I(x), I(y), 0, I(w) },                                    \
        { DF_K_##op, DEFT_U64, DEFT_U64, L(x), L(y), 0, L(w) },                                    \
    {                                                                                              \
        DF_K_##op, DEFT_I64, DEFT_I64, L(x), L(y), 0, L(w)                                         \
    }
#define NUMBERS(op, x, y, w)                                                                       \
    WHOLE(op, x, y, w), { DF_K_##op, DEFT_F32, DEFT_F32, F(x), F(y), 0, F(w) },                    \
    {                                                                                              \
        DF_K_##op, DEFT_F64, DEFT_F64, D(x), D(y), 0, D(w)                                         \
    }
#define COMPARE(op, x, y, w)                                                                       \
    { DF_K_##op, DEFT_U8, DEFT_BOOL, U(x), U(y), 0, w },                                           \
        { DF_K_##op, DEFT_I8, DEFT_BOOL, U(x), U(y), 0, w },                                       \
        { DF_K_##op, DEFT_U16, DEFT_BOOL, H(x), H(y), 0, w },                                      \
        { DF_K_##op, DEFT_I16, DEFT_BOOL, H(x), H(y), 0, w },                                      \
        { DF_K_##op, DEFT_U32, DEFT_BOOL, I(x), I(y), 0, w },                                      \
        { DF_K_##op, DEFT_U64, DEFT_BOOL, L(x), L(y), 0, w },                                      \
        { DF_K_##op, DEFT_I32, DEFT_BOOL, I(x), I(y), 0, w },                                      \
        { DF_K_##op, DEFT_I64, DEFT_BOOL, L(x), L(y), 0, w },                                      \
        { DF_K_##op, DEFT_F32, DEFT_BOOL, F(x), F(y), 0, w },                                      \
    {                                                                                              \
        DF_K_##op, DEFT_F64, DEFT_BOOL, D(x), D(y), 0, w                                           \
    }
#define FLOATS(op, x, y, w)                                                                        \
    { DF_K_##op, DEFT_F32, DEFT_F32, F(x), F(y), 0, F(w) },                                        \
    {                                                                                              \
        DF_K_##op, DEFT_F64, DEFT_F64, D(x), D(y), 0, D(w)                                         \
    }
#define INTS(op, x, y, w) WHOLE(op, x, y, w)
#define BOOLS(op, x, y, to, w)                                                                     \
    {                                                                                              \
        DF_K_##op, DEFT_BOOL, to, x, y, 0, w                                                       \
    }

/* Marks which (op, dtype) the rows cover; every loop in the table must be covered. */
static bool covered[DF_N_KOPS][DF_N_RECORDED];

static void cover(const row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) covered[rows[i].op][rows[i].dtype] = true;
}

Test(interp, ops_give_written_values)
{
    const row rows[] = {
        NUMBERS(add, 7, 5, 12),
        NUMBERS(sub, 7, 5, 2),
        NUMBERS(mul, 7, 5, 35),
        NUMBERS(min, 7, 5, 5),
        NUMBERS(max, 5, 7, 7),
        NUMBERS(rem, 17, 5, 2),
        NUMBERS(abs, 5, 0, 5),
        { DF_K_add, DEFT_U8, DEFT_U8, 250, 10, 0, 4 },
        { DF_K_add, DEFT_I32, DEFT_I32, I(INT32_MAX), I(1), 0, I(INT32_MIN) },
        { DF_K_add, DEFT_I64, DEFT_I64, L(INT64_MAX), L(1), 0, L(INT64_MIN) },
        { DF_K_sub, DEFT_U8, DEFT_U8, 3, 5, 0, 254 },
        { DF_K_sub, DEFT_I32, DEFT_I32, I(INT32_MIN), I(1), 0, I(INT32_MAX) },
        { DF_K_mul, DEFT_I32, DEFT_I32, I(65536), I(65537), 0, I(65536) },
        { DF_K_mul, DEFT_I64, DEFT_I64, L(1LL << 32), L(1LL << 32), 0, 0 },
        { DF_K_mul, DEFT_U8, DEFT_U8, 16, 17, 0, 16 },
        WHOLE(neg, 1, 0, -1),
        { DF_K_neg, DEFT_U8, DEFT_U8, 1, 0, 0, 255 },
        { DF_K_neg, DEFT_I32, DEFT_I32, I(INT32_MIN), 0, 0, I(INT32_MIN) },
        { DF_K_neg, DEFT_I64, DEFT_I64, L(5), 0, 0, L(-5) },
        FLOATS(neg, 0, 0, -0.0f),
        FLOATS(abs, -0.0f, 0, 0),
        FLOATS(abs, -inf, 0, inf),
        { DF_K_abs, DEFT_I32, DEFT_I32, I(INT32_MIN), 0, 0, I(INT32_MIN) },
        { DF_K_abs, DEFT_I64, DEFT_I64, L(INT64_MIN), 0, 0, L(INT64_MIN) },
        { DF_K_abs, DEFT_I64, DEFT_I64, L(-3), 0, 0, L(3) },
        { DF_K_abs, DEFT_U8, DEFT_U8, 200, 0, 0, 200 },
        /* division */
        INTS(div, 17, 5, 3),
        INTS(div, 17, 0, 0),
        INTS(rem, 17, 0, 17),
        FLOATS(div, 1, 4, 0.25f),
        { DF_K_div, DEFT_I32, DEFT_I32, I(-17), I(5), 0, I(-3) },
        { DF_K_div, DEFT_I32, DEFT_I32, I(INT32_MIN), I(-1), 0, I(INT32_MIN) },
        { DF_K_div, DEFT_I64, DEFT_I64, L(INT64_MIN), L(-1), 0, L(INT64_MIN) },
        { DF_K_div, DEFT_U8, DEFT_U8, 200, 255, 0, 0 },
        { DF_K_rem, DEFT_I32, DEFT_I32, I(-17), I(5), 0, I(-2) },
        { DF_K_rem, DEFT_I32, DEFT_I32, I(INT32_MIN), I(-1), 0, 0 },
        { DF_K_rem, DEFT_I64, DEFT_I64, L(INT64_MIN), L(-1), 0, 0 },
        FLOATS(div, 1, 0, inf),
        FLOATS(div, -1, 0, -inf),
        FLOATS(div, 0, 0, nan_f),
        FLOATS(rem, -17, 5, -2),
        FLOATS(rem, 5.5f, inf, 5.5f),
        FLOATS(rem, 5, 0, nan_f),
        FLOATS(rem, -4, 2, -0.0f),
        { DF_K_rem, DEFT_F64, DEFT_F64, D(1e300), D(3), 0, D(fmod(1e300, 3)) },
        /* one rounding: (1 + e)(1 - e) - 1 is -e*e, which mul and add lose */
        { DF_K_fma, DEFT_F32, DEFT_F32, F(1 + 0x1p-23f), F(1 - 0x1p-23f), F(-1), F(-0x1p-46f) },
        { DF_K_scale, DEFT_F32, DEFT_F32, F(1.5f), F(3), F(0x1.8p23f + 254 + 3), F(12) },
        { DF_K_scale, DEFT_F32, DEFT_F32, F(1.5f), F(-149), F(0x1.8p23f + 254 - 149),
          F(0x1p-148f) },
        { DF_K_scale, DEFT_F32, DEFT_F32, F(0.75f), F(128), F(0x1.8p23f + 254 + 128),
          F(0x1.8p127f) },
        { DF_K_scale, DEFT_F32, DEFT_F32, F(1), F(128), F(0x1.8p23f + 254 + 128), F(inf) },
        { DF_K_scale, DEFT_F64, DEFT_F64, D(1.25), D(-1070), D(0x1.8p52 + 2046 - 1070),
          D(0x1.4p-1070) },
        { DF_K_scale, DEFT_F64, DEFT_F64, D(0.5), D(1024), D(0x1.8p52 + 2046 + 1024), D(0x1p1023) },
        { DF_K_fma, DEFT_F64, DEFT_F64, D(1 + 0x1p-52), D(1 - 0x1p-52), D(-1), D(-0x1p-104) },
        FLOATS(sqrt, 2.25f, 0, 1.5f),
        FLOATS(sqrt, -1, 0, nan_f),
        FLOATS(sqrt, -0.0f, 0, -0.0f),
        /* min and max: a when a is less or NaN, else b */
        FLOATS(min, nan_f, 1, nan_f),
        FLOATS(min, 1, nan_f, nan_f),
        FLOATS(max, nan_f, 1, nan_f),
        FLOATS(max, 1, nan_f, nan_f),
        FLOATS(min, -0.0f, 0, 0),
        FLOATS(min, 0, -0.0f, -0.0f),
        FLOATS(max, 0, -0.0f, -0.0f),
        FLOATS(max, -0.0f, 0, 0),
        FLOATS(min, -inf, 3, -inf),
        { DF_K_min, DEFT_I32, DEFT_I32, I(-7), I(5), 0, I(-7) },
        { DF_K_max, DEFT_U8, DEFT_U8, 200, 5, 0, 200 },
        BOOLS(min, 1, 0, DEFT_BOOL, 0),
        BOOLS(max, 1, 0, DEFT_BOOL, 1),
        /* rounding */
        FLOATS(floor, -1.5f, 0, -2),
        FLOATS(ceil, -1.5f, 0, -1),
        FLOATS(trunc, -1.5f, 0, -1),
        FLOATS(ceil, -0.5f, 0, -0.0f),
        FLOATS(trunc, -0.5f, 0, -0.0f),
        FLOATS(rint, 2.5f, 0, 2),
        FLOATS(rint, 3.5f, 0, 4),
        FLOATS(rint, -0.5f, 0, -0.0f),
        FLOATS(floor, 1e30f, 0, 1e30f),
        FLOATS(rint, inf, 0, inf),
        FLOATS(floor, nan_f, 0, nan_f),
        /* bits */
        INTS(and, 12, 10, 8),
        INTS(or, 12, 10, 14),
        INTS(xor, 12, 10, 6),
        INTS(not, 12, 0, ~12),
        BOOLS(and, 1, 0, DEFT_BOOL, 0),
        BOOLS(or, 1, 0, DEFT_BOOL, 1),
        BOOLS(xor, 1, 1, DEFT_BOOL, 0),
        BOOLS(not, 1, 0, DEFT_BOOL, 0),
        BOOLS(not, 0, 0, DEFT_BOOL, 1),
        INTS(shl, 5, 2, 20),
        INTS(shl, 5, 64, 0),
        INTS(shr, 20, 2, 5),
        INTS(lshr, 20, 2, 5),
        INTS(shr, 20, 64, 0),
        INTS(lshr, 20, 100, 0),
        { DF_K_shl, DEFT_I32, DEFT_I32, I(1), I(31), 0, I(INT32_MIN) },
        { DF_K_shl, DEFT_I32, DEFT_I32, I(1), I(32), 0, 0 },
        { DF_K_shl, DEFT_I32, DEFT_I32, I(1), I(-1), 0, 0 },
        { DF_K_shl, DEFT_I64, DEFT_I64, L(1), L(63), 0, L(INT64_MIN) },
        { DF_K_shl, DEFT_U8, DEFT_U8, 255, 7, 0, 128 },
        { DF_K_shl, DEFT_U8, DEFT_U8, 255, 8, 0, 0 },
        { DF_K_shr, DEFT_I32, DEFT_I32, I(-8), I(1), 0, I(-4) },
        { DF_K_shr, DEFT_I32, DEFT_I32, I(-8), I(32), 0, I(-1) },
        { DF_K_shr, DEFT_I32, DEFT_I32, I(-8), I(-1), 0, I(-1) },
        { DF_K_shr, DEFT_I64, DEFT_I64, L(-8), L(99), 0, L(-1) },
        { DF_K_shr, DEFT_U8, DEFT_U8, 255, 7, 0, 1 },
        { DF_K_shr, DEFT_U8, DEFT_U8, 255, 8, 0, 0 },
        { DF_K_lshr, DEFT_I32, DEFT_I32, I(-1), I(28), 0, 15 },
        { DF_K_lshr, DEFT_I32, DEFT_I32, I(-1), I(32), 0, 0 },
        { DF_K_lshr, DEFT_I64, DEFT_I64, L(-1), L(60), 0, 15 },
        /* comparisons */
        COMPARE(eq, 5, 5, 1),
        COMPARE(eq, 5, 6, 0),
        COMPARE(ne, 5, 6, 1),
        COMPARE(ne, 5, 5, 0),
        COMPARE(lt, 5, 6, 1),
        COMPARE(lt, 6, 6, 0),
        COMPARE(le, 6, 6, 1),
        COMPARE(le, 7, 6, 0),
        { DF_K_lt, DEFT_I32, DEFT_BOOL, I(-1), I(1), 0, 1 },
        { DF_K_lt, DEFT_U8, DEFT_BOOL, 255, 1, 0, 0 },
        { DF_K_eq, DEFT_F32, DEFT_BOOL, F(nan_f), F(nan_f), 0, 0 },
        { DF_K_ne, DEFT_F32, DEFT_BOOL, F(nan_f), F(nan_f), 0, 1 },
        { DF_K_lt, DEFT_F32, DEFT_BOOL, F(nan_f), F(1), 0, 0 },
        { DF_K_le, DEFT_F64, DEFT_BOOL, D(1), D(nan_f), 0, 0 },
        { DF_K_eq, DEFT_F64, DEFT_BOOL, D(-0.0), D(0), 0, 1 },
        BOOLS(eq, 1, 1, DEFT_BOOL, 1),
        BOOLS(ne, 1, 0, DEFT_BOOL, 1),
        BOOLS(lt, 0, 1, DEFT_BOOL, 1),
        BOOLS(le, 1, 0, DEFT_BOOL, 0),
        /* select */
        { DF_K_select, DEFT_BOOL, DEFT_BOOL, 1, 0, 1, 0 },
        { DF_K_select, DEFT_U8, DEFT_U8, 1, 7, 9, 7 },
        { DF_K_select, DEFT_I8, DEFT_I8, 0, 7, 0x80, 0x80 },
        { DF_K_select, DEFT_U16, DEFT_U16, 1, 0xFFFE, 9, 0xFFFE },
        { DF_K_select, DEFT_I16, DEFT_I16, 0, 7, 0x8000, 0x8000 },
        { DF_K_select, DEFT_U32, DEFT_U32, 1, 0xFFFFFFFE, 9, 0xFFFFFFFE },
        { DF_K_select, DEFT_U64, DEFT_U64, 0, 7, UINT64_MAX, UINT64_MAX },
        { DF_K_select, DEFT_I32, DEFT_I32, 0, I(7), I(9), I(9) },
        { DF_K_select, DEFT_I64, DEFT_I64, 1, L(-7), L(9), L(-7) },
        { DF_K_select, DEFT_F32, DEFT_F32, 0, F(7), F(nan_f), F(nan_f) },
        { DF_K_select, DEFT_F64, DEFT_F64, 1, D(7), D(9), D(7) },
        { DF_K_select, DEFT_F16, DEFT_F16, 0, 0x4700, 0x7D01, 0x7D01 },
        { DF_K_select, DEFT_BF16, DEFT_BF16, 1, 0xFF81, 0x4110, 0xFF81 },
        /* bitcast */
        { DF_K_bitcast, DEFT_I32, DEFT_F32, 0x3F800000, 0, 0, F(1) },
        { DF_K_bitcast, DEFT_F32, DEFT_I32, F(-0.0f), 0, 0, 0x80000000 },
        { DF_K_bitcast, DEFT_I64, DEFT_F64, D(2), 0, 0, D(2) },
        { DF_K_bitcast, DEFT_F64, DEFT_I64, D(-1), 0, 0, D(-1) },
        { DF_K_bitcast, DEFT_I8, DEFT_U8, 200, 0, 0, 200 },
        { DF_K_bitcast, DEFT_U8, DEFT_I8, 0xFF, 0, 0, 255 },
        { DF_K_bitcast, DEFT_I16, DEFT_F16, 0x7D01, 0, 0, 0x7D01 },
        { DF_K_bitcast, DEFT_U16, DEFT_BF16, 0xFF81, 0, 0, 0xFF81 },
        { DF_K_bitcast, DEFT_F16, DEFT_U16, 0x8001, 0, 0, 0x8001 },
        { DF_K_bitcast, DEFT_BF16, DEFT_F16, 0x3C00, 0, 0, 0x3C00 },
        { DF_K_bitcast, DEFT_U32, DEFT_F32, F(nan_f), 0, 0, F(nan_f) },
        { DF_K_bitcast, DEFT_U64, DEFT_F64, D(-0.0), 0, 0, D(-0.0) },
    };
    run_rows(rows, LEN(rows));
    cover(rows, LEN(rows));
    for (int op = 0; op < DF_N_KOPS; op++)
        for (int t = 0; t < DF_N_RECORDED; t++)
            cr_expect(op >= DF_N_MAPS || !df_lane_ops_best()->map[op][t] || covered[op][t],
                      "%s %s has no row", df_kop_infos[op].name, deft_dtype_name((deft_dtype)t));
}

/* Whether a cast between these dtypes is from or to an integer dtype, and between no half. */
static bool is_integer_pair(int f, int t)
{
    const bool is_half = half_is((deft_dtype)f) || half_is((deft_dtype)t);
    return !is_half && (int_ref_bits((deft_dtype)f) || int_ref_bits((deft_dtype)t));
}

Test(interp, casts_give_written_values)
{
    const double big = 1e300;
    const row rows[] = {
#define CAST(from, to, x, w) { DF_K_cast, DEFT_##from, DEFT_##to, x, 0, 0, w }
        CAST(BOOL, BOOL, 1, 1),
        CAST(BOOL, U8, 1, 1),
        CAST(BOOL, I32, 1, 1),
        CAST(BOOL, I64, 1, 1),
        CAST(BOOL, F32, 1, F(1)),
        CAST(BOOL, F64, 0, D(0)),
        CAST(U8, BOOL, 2, 1),
        CAST(U8, U8, 200, 200),
        CAST(U8, I32, 200, 200),
        CAST(U8, I64, 200, 200),
        CAST(U8, F32, 200, F(200)),
        CAST(U8, F64, 200, D(200)),
        CAST(I32, BOOL, I(256), 1),
        CAST(I32, U8, I(-1), 255),
        CAST(I32, U8, I(256), 0),
        CAST(I32, I32, I(-5), I(-5)),
        CAST(I32, I64, I(-5), L(-5)),
        CAST(I32, F32, I(16777217), F(16777216)),
        CAST(I32, F64, I(-7), D(-7)),
        CAST(I64, BOOL, L(1LL << 40), 1),
        CAST(I64, U8, L(258), 2),
        CAST(I64, I32, L(1LL << 32 | 9), 9),
        CAST(I64, I64, L(-5), L(-5)),
        CAST(I64, F32, L(INT64_MAX), F(0x1p63f)),
        CAST(I64, F64, L((1LL << 53) + 1), D(0x1p53)),
        CAST(F32, BOOL, F(0.1f), 1),
        CAST(F32, BOOL, F(-0.0f), 0),
        CAST(F32, BOOL, F(nan_f), 1),
        CAST(F32, U8, F(255.9f), 255),
        CAST(F32, U8, F(-0.9f), 0),
        CAST(F32, U8, F(-5), 0),
        CAST(F32, U8, F(256), 255),
        CAST(F32, U8, F(nan_f), 0),
        CAST(F32, U8, F(inf), 255),
        CAST(F32, I32, F(-1.9f), I(-1)),
        CAST(F32, I32, F(3e9f), I(INT32_MAX)),
        CAST(F32, I32, F(-inf), I(INT32_MIN)),
        CAST(F32, I32, F(-0x1p31f), I(INT32_MIN)),
        CAST(F32, I32, F(0x1p31f), I(INT32_MAX)),
        CAST(F32, I32, F(nan_f), 0),
        CAST(F32, I32, F(2147483520.0f), I(2147483520)),
        CAST(F32, I64, F(0x1p62f), L(1LL << 62)),
        CAST(F32, I64, F(0x1p63f), L(INT64_MAX)),
        CAST(F32, I64, F(-0x1p63f), L(INT64_MIN)),
        CAST(F32, I64, F(nan_f), 0),
        CAST(F32, F32, F(-0.0f), F(-0.0f)),
        CAST(F32, F64, F(0.1f), D((double)0.1f)),
        CAST(F64, BOOL, D(1e-320), 1),
        CAST(F64, U8, D(1.99), 1),
        CAST(F64, U8, D(big), 255),
        CAST(F64, I32, D(2147483647.5), I(INT32_MAX)),
        CAST(F64, I32, D(-2147483648.9), I(INT32_MIN)),
        CAST(F64, I32, D(-2147483649.0), I(INT32_MIN)),
        CAST(F64, I32, D(nan_f), 0),
        CAST(F64, I64, D(-big), L(INT64_MIN)),
        CAST(F64, I64, D(0x1p63), L(INT64_MAX)),
        CAST(F64, I64, D(-2.5), L(-2)),
        CAST(F64, F32, D(1 + 0x1p-24), F(1)),
        CAST(F64, F32, D(1 + 3 * 0x1p-24), F(1 + 0x1p-22f)),
        CAST(F64, F32, D(big), F(inf)),
        CAST(F64, F32, D(0x1p-149), F(0x1p-149f)),
        CAST(F64, F64, D(-2.5), D(-2.5)),
        /* ties, the last finite value, subnormals, NaN */
        CAST(F32, F16, F(1 + 0x1p-11f), 0x3C00),
        CAST(F32, F16, F(1 + 3 * 0x1p-11f), 0x3C02),
        CAST(F32, F16, F(-65519.996f), 0xFBFF),
        CAST(F32, F16, F(65520), 0x7C00),
        CAST(F32, F16, F(-inf), 0xFC00),
        CAST(F32, F16, F(0x1p-25f), 0),
        CAST(F32, F16, F(0x1.000002p-25f), 1),
        CAST(F32, F16, F(-0x1.8p-24f), 0x8002),
        CAST(F32, F16, F(0x1.ffap-15f), 0x03FF),
        CAST(F32, F16, F(0x1.ffep-15f), 0x0400),
        CAST(F32, F16, F(0x1p-149f), 0),
        CAST(F32, F16, 0x7F800001, 0x7E00),
        CAST(F32, F16, 0xFFC02000, 0xFE01),
        CAST(F16, F32, 0x0001, F(0x1p-24f)),
        CAST(F16, F32, 0x83FF, F(-0x1.ff8p-15f)),
        CAST(F16, F32, 0x0400, F(0x1p-14f)),
        CAST(F16, F32, 0x7BFF, F(65504)),
        CAST(F16, F32, 0x8000, F(-0.0f)),
        CAST(F16, F32, 0xFC00, F(-inf)),
        CAST(F16, F32, 0x7C01, F(nan_f)),
        CAST(F32, BF16, F(1 + 0x1p-8f), 0x3F80),
        CAST(F32, BF16, F(1 + 3 * 0x1p-8f), 0x3F82),
        CAST(F32, BF16, 0xFF7F7FFF, 0xFF7F),
        CAST(F32, BF16, 0x7F7F8000, 0x7F80),
        CAST(F32, BF16, 0x00008000, 0),
        CAST(F32, BF16, 0x00008001, 1),
        CAST(F32, BF16, 0x80018000, 0x8002),
        CAST(F32, BF16, 0x7F800001, 0x7FC0),
        CAST(F32, BF16, 0xFF8F0000, 0xFFCF),
        CAST(BF16, F32, 0x0001, F(0x1p-133f)),
        CAST(BF16, F32, 0xC110, F(-9)),
        CAST(BF16, F32, 0x7F81, F(nan_f)),
#undef CAST
    };
    bool seen[DF_N_RECORDED][DF_N_RECORDED] = { { false } };
    run_rows(rows, LEN(rows));
    for (size_t i = 0; i < LEN(rows); i++) seen[rows[i].dtype][rows[i].to] = true;
    for (int f = 0; f < DF_N_RECORDED; f++)
        for (int t = 0; t < DF_N_RECORDED; t++)
            cr_expect(seen[f][t] || is_integer_pair(f, t) || df_lane_ops_best()->cast[f][t] == NULL,
                      "cast %d -> %d has no row", f, t);
}

/* Each cast from and to an integer dtype, of the ends of every dtype and what is next to them. */
Test(interp, casts_of_integers_are_those_of_C)
{
    static const double floats[] = {
        0.0,     -0.0,   0.9,        -0.9,          1.5,     -1.5,          127.9,        128,
        -128.9,  -129,   255.9,      256,           32767.5, 32768,         -32768.5,     -32769,
        65535.5, 65536,  2147483520, 0x1p31,        -0x1p31, -2147483904.0, 4294967040.0, 0x1p32,
        0x1p53,  0x1p63, -0x1p63,    0x1.fffffep63, 0x1p64,  1e30,          -1e30
    };
    for (int f = 0; f < DF_N_RECORDED; f++)
        for (int t = 0; t < DF_N_RECORDED; t++) {
            const deft_dtype from = (deft_dtype)f, to = (deft_dtype)t;
            const bool is_pair = is_integer_pair(f, t);
            if (!is_pair) continue;
            cr_assert(df_lane_ops_best()->cast[f][t], "cast %d -> %d has no loop", f, t);
            for (size_t i = 0; i < LEN(floats) + 3; i++) {
                const double more[] = { inf, -inf, nan_f };
                const double v = i < LEN(floats) ? floats[i] : more[i - LEN(floats)];
                row r = { .op = DF_K_cast, .dtype = f, .to = t };
                if (f == DEFT_F32)
                    r.a = F(v), r.want = (uint64_t)int_ref_of_double(to, (double)(float)v);
                else if (f == DEFT_F64)
                    r.a = D(v), r.want = (uint64_t)int_ref_of_double(to, v);
                else
                    break;
                cr_expect(run_row(&r, 70), "%s %s %g", deft_dtype_name(from), deft_dtype_name(to),
                          v);
            }
            for (int bits = 0; bits < 64 && (int_ref_bits(from) || f == DEFT_BOOL); bits++)
                for (int64_t by = -1; by <= 1; by++) {
                    const int64_t v =
                        int_ref_wrap(from, (int64_t)(((uint64_t)1 << bits) + (uint64_t)by));
                    row r = { .op = DF_K_cast, .dtype = f, .to = t, .a = (uint64_t)v };
                    r.want = t == DEFT_F32   ? F(int_ref_float(from, v))
                             : t == DEFT_F64 ? D(int_ref_double(from, v))
                                             : (uint64_t)int_ref_wrap(to, v);
                    cr_expect(run_row(&r, 70), "%s %s %lld", deft_dtype_name(from),
                              deft_dtype_name(to), (long long)v);
                }
        }
}

/* The versions of the loops that this machine can run agree bit for bit on any bits. */
Test(interp, instruction_sets_agree)
{
    const df_lane_ops *const best = df_lane_ops_best(), *const plain = &df_lane_ops_plain;
    enum { N = 500 };
    static uint64_t in[3][N], out[2][N];
    uint64_t seed = 1;
    for (int op = 0; op < DF_N_KOPS * 3; op++)
        for (int t = 0; t < DF_N_RECORDED * DF_N_RECORDED; t++) {
            const int kop = op % DF_N_KOPS, table = op / DF_N_KOPS, from = t % DF_N_RECORDED;
            const int second = t / DF_N_RECORDED;
            if ((kop != DF_K_cast || table) && second) continue;
            if (table ? kop < DF_K_sum || kop > DF_K_cumsum : kop >= DF_N_MAPS) continue;
            const int map = table ? 0 : kop, at = table ? kop - DF_K_sum : 0;
            const df_lane_fn x =
                kop == DF_K_cast ? plain->cast[from][second] : plain->map[map][from];
            const df_lane_fn y = kop == DF_K_cast ? best->cast[from][second] : best->map[map][from];
            const df_fold_fn fx = table == 1 ? plain->fold[at][from] : plain->fold_row[at][from];
            const df_fold_fn fy = table == 1 ? best->fold[at][from] : best->fold_row[at][from];
            if (table ? !fx : !x) continue;
            const int to = table || kop == DF_K_select        ? from
                           : kop == DF_K_cast                 ? second
                           : kop >= DF_K_eq && kop <= DF_K_le ? DEFT_BOOL
                                                              : from;
            for (int i = 0; i < N; i++)
                for (int j = 0; j < 3; j++) {
                    in[j][i] = random_next(&seed);
                    if (from == DEFT_BOOL || (kop == DF_K_select && j == 0))
                        in[j][i] &= 0x0101010101010101u;
                }
            memcpy(out[0], in[2], sizeof out[0]), memcpy(out[1], in[2], sizeof out[1]);
            if (table)
                fx(out[0], in[0], N), fy(out[1], in[0], N);
            else
                x(out[0], in[0], in[1], in[2], N), y(out[1], in[0], in[1], in[2], N);
            for (size_t i = 0; i < N; i++)
                cr_assert(same_bits(to, (char *)out[0] + i * size_of(to),
                                    (char *)out[1] + i * size_of(to)),
                          "%s against %s: %s %s lane %zu", plain->name, best->name,
                          df_kop_infos[kop].name, deft_dtype_name((deft_dtype)from), i);
        }
}

/* ---- reductions ---- */

static const int64_t lengths[] = { 0,    1,    2,    3,    63,    64,    65,   300,
                                   4095, 4096, 4097, 8192, 12289, 20000, 32768 };

Test(interp, row_reductions_keep_the_order)
{
    enum { ROWS = 3 };
    kb b;
    build_fold(&b, DF_MODE_ROW, "or", "s1", "s0");
    for (size_t l = 0; l < LEN(lengths); l++) {
        const int64_t n = lengths[l], n_blocks = (n + DF_BLOCK - 1) / DF_BLOCK;
        float *const x = random_floats((size_t)(ROWS * n), 7 + l), out[5][ROWS], split[5][ROWS];
        uint64_t *const partial = calloc((size_t)(4 * n_blocks + 1), 8);
        call c;
        call_init(&c, &b.k);
        c.ptr[0] = (char *)x;
        for (int i = 0; i < 5; i++) c.ptr[1 + i] = (char *)out[i], c.stride[(1 + i) * 2] = 1;
        c.stride[0] = n;
        c.extent[0] = ROWS, c.extent[1] = n;
        df_interp_main(&b.k, c.work, &c.a, 0, 2, 0, 1);
        df_interp_main(&b.k, c.work, &c.a, 2, ROWS, 0, 1);
        for (int i = 0; i < 5; i++) c.ptr[1 + i] = (char *)split[i];
        c.a.partial = partial;
        for (int64_t o = 0; o < ROWS; o++) {
            for (int64_t k = 0; k < n_blocks; k += 2)
                df_interp_part(&b.k, c.work, &c.a, o, k, k + 2 < n_blocks ? k + 2 : n_blocks);
            df_interp_fin(&b.k, c.work, &c.a, o, 0, 1);
        }
        for (int o = 0; o < ROWS; o++) {
            for (int i = 0; i < 4; i++) {
                const float want = naive(fold_ops[i], x + o * n, 1, n);
                cr_expect(same_bits(DEFT_F32, &out[i][o], &want), "%s of %lld: %a, not %a",
                          df_kop_infos[fold_ops[i]].name, (long long)n, (double)out[i][o],
                          (double)want);
            }
            cr_expect_eq(out[4][o], out[0][o] + 1);
            for (int i = 0; i < 5; i++) cr_expect(same_bits(DEFT_F32, &out[i][o], &split[i][o]));
        }
        call_finish(&c);
        free(x), free(partial);
    }
}

/* Two reduced axes around a kept one, the last axis kept: [ra, o] and [rb, i] of x[o, ra, rb, i].
 */
Test(interp, column_reductions_keep_the_order)
{
    enum { OUTER = 2, INNER = 300 };
    static const int64_t shapes[][2] = { { 1, 1 },   { 5, 13 },  { 64, 1 },
                                         { 3, 100 }, { 70, 60 }, { 0, 4 } };
    kb b;
    build_fold(&b, DF_MODE_COL, "orri", "sss1", "s001");
    for (size_t l = 0; l < LEN(shapes); l++) {
        const int64_t ra = shapes[l][0], rb = shapes[l][1], n = ra * rb;
        const int64_t n_blocks = (n + DF_BLOCK - 1) / DF_BLOCK;
        float *const x = random_floats((size_t)(OUTER * n * INNER), 3 + l);
        static float out[5][OUTER][INNER], split[5][OUTER][INNER];
        uint64_t *const partial = calloc((size_t)(4 * n_blocks * INNER + 1), 8);
        call c;
        call_init(&c, &b.k);
        c.ptr[0] = (char *)x;
        c.stride[0] = n * INNER, c.stride[1] = rb * INNER, c.stride[2] = INNER, c.stride[3] = 1;
        for (int i = 0; i < 5; i++)
            c.ptr[1 + i] = (char *)out[i], c.stride[(1 + i) * 4] = INNER,
                      c.stride[(1 + i) * 4 + 3] = 1;
        c.extent[0] = OUTER, c.extent[1] = ra, c.extent[2] = rb, c.extent[3] = INNER;
        df_interp_main(&b.k, c.work, &c.a, 0, OUTER, 0, 130);
        df_interp_main(&b.k, c.work, &c.a, 0, OUTER, 130, INNER);
        for (int i = 0; i < 5; i++) c.ptr[1 + i] = (char *)split[i];
        c.a.partial = partial;
        for (int64_t o = 0; o < OUTER; o++) {
            for (int64_t k = 0; k < n_blocks; k++) df_interp_part(&b.k, c.work, &c.a, o, k, k + 1);
            df_interp_fin(&b.k, c.work, &c.a, o, 0, 7);
            df_interp_fin(&b.k, c.work, &c.a, o, 7, INNER);
        }
        for (int o = 0; o < OUTER; o++)
            for (int j = 0; j < INNER; j++)
                for (int i = 0; i < 5; i++) {
                    float want = naive(fold_ops[i % 4], x + o * n * INNER + j, INNER, n);
                    if (i == 4) want += 1;
                    cr_assert(same_bits(DEFT_F32, &out[i][o][j], &want),
                              "shape %zu op %d at %d,%d: %a not %a", l, i, o, j,
                              (double)out[i][o][j], (double)want);
                    cr_assert(same_bits(DEFT_F32, &split[i][o][j], &want));
                }
        call_finish(&c);
        free(x), free(partial);
    }
}

/* One reduction of n values of a dtype in a ROW kernel, whole or split. */
static uint64_t reduce_one(df_kop op, int dtype, int to, const void *v, int64_t n, bool split)
{
    kb b;
    call c;
    uint64_t out = 0, partial[64] = { 0 };
    kb_init(&b, DF_MODE_ROW, "r", 2);
    const uint32_t x =
        kb_ins(&b, DF_K_load, dtype, 0, 0, 0, kb_access(&b, DF_ACCESS_LOAD, dtype, "1"));
    const uint32_t y = kb_ins(&b, op, to, x, 0, 0, 0);
    kb_at(&b, 1, DF_LEVEL_ROW, DF_K_store, to, y, 0, 0, kb_access(&b, DF_ACCESS_STORE, to, "0"));
    call_init(&c, &b.k);
    c.ptr[0] = (char *)(uintptr_t)v, c.ptr[1] = (char *)&out;
    c.extent[0] = n;
    c.a.partial = partial;
    if (split) {
        for (int64_t k = (n + DF_BLOCK - 1) / DF_BLOCK; k-- > 0;)
            df_interp_part(&b.k, c.work, &c.a, 0, k, k + 1);
        df_interp_fin(&b.k, c.work, &c.a, 0, 0, 1);
    } else {
        df_interp_main(&b.k, c.work, &c.a, 0, 1, 0, 1);
    }
    call_finish(&c);
    return df_bits_load(&out, size_of(to));
}

Test(interp, reductions_of_every_dtype)
{
    static int32_t i32[10000];
    static int64_t i64[10000];
    static uint8_t u8[10000], flag[10000];
    static double f64[10000];
    for (int i = 0; i < 10000; i++)
        i32[i] = i * 7919 % 1000 - 500, i64[i] = i32[i], u8[i] = 100, f64[i] = i32[i];
    i32[77] = INT32_MAX, i64[77] = INT64_MAX, f64[9000] = -1e9, u8[5000] = 3, u8[5001] = 250;
    int64_t sum = 0;
    for (int i = 0; i < 10000; i++) sum = (int64_t)((uint64_t)sum + (uint64_t)i64[i]);
    for (int s = 0; s < 2; s++) {
        cr_expect_eq(reduce_one(DF_K_sum, DEFT_I64, DEFT_I64, i64, 10000, s), (uint64_t)sum);
        cr_expect_eq(reduce_one(DF_K_rmax, DEFT_I32, DEFT_I32, i32, 10000, s), INT32_MAX);
        cr_expect_eq(reduce_one(DF_K_rmin, DEFT_I32, DEFT_I32, i32, 10000, s), I(-500));
        cr_expect_eq(reduce_one(DF_K_rmax, DEFT_I64, DEFT_I64, i64, 10000, s), INT64_MAX);
        cr_expect_eq(reduce_one(DF_K_rmin, DEFT_U8, DEFT_U8, u8, 10000, s), 3);
        cr_expect_eq(reduce_one(DF_K_rmax, DEFT_U8, DEFT_U8, u8, 10000, s), 250);
        cr_expect_eq(reduce_one(DF_K_sum, DEFT_U8, DEFT_U8, u8, 3, s), 300 - 256);
        cr_expect_eq(reduce_one(DF_K_prod, DEFT_I64, DEFT_I64, (int64_t[]){ 3, -4, 5 }, 3, s),
                     L(-60));
        cr_expect_eq(reduce_one(DF_K_prod, DEFT_I32, DEFT_I32, (int32_t[]){ 3, -4, 5 }, 3, s),
                     I(-60));
        cr_expect_eq(reduce_one(DF_K_rmin, DEFT_F64, DEFT_F64, f64, 10000, s), D(-1e9));
        cr_expect_eq(reduce_one(DF_K_sum, DEFT_F64, DEFT_F64, (double[]){ 0.5, 0.25, -4 }, 3, s),
                     D(-3.25));
        cr_expect_eq(reduce_one(DF_K_any, DEFT_BOOL, DEFT_BOOL, flag, 10000, s), 0);
        cr_expect_eq(reduce_one(DF_K_all, DEFT_BOOL, DEFT_BOOL, flag, 10000, s), 0);
        flag[9999] = 1;
        cr_expect_eq(reduce_one(DF_K_any, DEFT_BOOL, DEFT_BOOL, flag, 10000, s), 1);
        cr_expect_eq(reduce_one(DF_K_all, DEFT_BOOL, DEFT_BOOL, flag + 9999, 1, s), 1);
        flag[9999] = 0;
        /* nothing */
        cr_expect_eq(reduce_one(DF_K_sum, DEFT_F32, DEFT_F32, f64, 0, s), F(0));
        cr_expect_eq(reduce_one(DF_K_prod, DEFT_F64, DEFT_F64, f64, 0, s), D(1));
        cr_expect_eq(reduce_one(DF_K_rmin, DEFT_I32, DEFT_I32, i32, 0, s), INT32_MAX);
        cr_expect_eq(reduce_one(DF_K_all, DEFT_BOOL, DEFT_BOOL, flag, 0, s), 1);
        /* a sum of -0 is -0: the identity shows nowhere */
        cr_expect_eq(reduce_one(DF_K_sum, DEFT_F32, DEFT_F32, (float[]){ -0.0f, -0.0f }, 2, s),
                     F(-0.0f));
        cr_expect_eq(reduce_one(DF_K_sum, DEFT_F64, DEFT_F64, (double[]){ -0.0 }, 1, s), D(-0.0));
        /* min and max take the newer of equal values: older op newer shows in the sign of zero */
        static float zeros[2 * DF_BLOCK];
        for (int i = 0; i < DF_BLOCK; i++) zeros[DF_BLOCK + i] = -0.0f;
        cr_expect_eq(reduce_one(DF_K_rmin, DEFT_F32, DEFT_F32, zeros, 2 * DF_BLOCK, s), F(-0.0f));
        cr_expect_eq(reduce_one(DF_K_rmax, DEFT_F32, DEFT_F32, zeros, 2 * DF_BLOCK, s), F(-0.0f));
        const uint64_t nan_min =
            reduce_one(DF_K_rmin, DEFT_F32, DEFT_F32, (float[]){ 1, nan_f, -9 }, 3, s);
        cr_expect(nan_min << 33 > (uint64_t)0x7F800000 << 33);
    }
}

Test(interp, argmin_and_argmax)
{
    static float v[10000];
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < 10000; i++) v[i] = (float)(i * 7919 % 9973);
        v[6000] = v[8000] = -5, v[100] = v[9000] = 1e9f;
        cr_expect_eq(reduce_one(DF_K_argmin, DEFT_F32, DEFT_I64, v, 10000, s), 6000);
        cr_expect_eq(reduce_one(DF_K_argmax, DEFT_F32, DEFT_I64, v, 10000, s), 100);
        for (int i = 0; i < 10000; i++) v[i] += 10;
        cr_expect_eq(reduce_one(DF_K_argmin, DEFT_F32, DEFT_I64, v, 10000, s), 6000,
                     "all above what was there");
        v[9500] = v[9501] = nan_f;
        cr_expect_eq(reduce_one(DF_K_argmin, DEFT_F32, DEFT_I64, v, 10000, s), 9500);
        cr_expect_eq(reduce_one(DF_K_argmax, DEFT_F32, DEFT_I64, v, 10000, s), 9500);
        cr_expect_eq(reduce_one(DF_K_argmin, DEFT_F32, DEFT_I64, (float[]){ 0, -0.0f }, 2, s), 0);
        cr_expect_eq(reduce_one(DF_K_argmax, DEFT_I32, DEFT_I64, (int32_t[]){ -7, -3, -3 }, 3, s),
                     1);
        cr_expect_eq(reduce_one(DF_K_argmin, DEFT_I64, DEFT_I64, (int64_t[]){ 9, INT64_MAX }, 2, s),
                     0);
        cr_expect_eq(reduce_one(DF_K_argmax, DEFT_U8, DEFT_I64, (uint8_t[]){ 9, 200 }, 2, s), 1);
        cr_expect_eq(reduce_one(DF_K_argmax, DEFT_F64, DEFT_I64, (double[]){ -inf, -inf }, 2, s),
                     0);
        cr_expect_eq(reduce_one(DF_K_argmax, DEFT_BOOL, DEFT_I64, (uint8_t[]){ 0, 1, 1 }, 3, s), 1);
    }
    /* per column */
    kb b;
    call c;
    const int32_t x[3][4] = { { 5, 1, 7, 2 }, { 3, 1, 9, 2 }, { 4, 0, 9, 2 } };
    int64_t out[4];
    kb_init(&b, DF_MODE_COL, "ri", 2);
    const uint32_t l =
        kb_ins(&b, DF_K_load, DEFT_I32, 0, 0, 0, kb_access(&b, DF_ACCESS_LOAD, DEFT_I32, "s1"));
    const uint32_t m = kb_ins(&b, DF_K_argmax, DEFT_I64, l, 0, 0, 0);
    kb_at(&b, 1, DF_LEVEL_ROW, DF_K_store, DEFT_I64, m, 0, 0,
          kb_access(&b, DF_ACCESS_STORE, DEFT_I64, "01"));
    call_init(&c, &b.k);
    c.ptr[0] = (char *)(uintptr_t)x, c.ptr[1] = (char *)out, c.stride[0] = 4;
    c.extent[0] = 3, c.extent[1] = 4;
    df_interp_main(&b.k, c.work, &c.a, 0, 1, 0, 4);
    cr_expect_eq(out[0], 0);
    cr_expect_eq(out[1], 0);
    cr_expect_eq(out[2], 1);
    cr_expect_eq(out[3], 0);
    call_finish(&c);
}

Test(interp, scans_run_in_order)
{
    enum { N = 9000, W = 3 };
    static float x[N * W], y[N * W];
    for (int i = 0; i < N * W; i++) x[i] = 0.1f * (float)(i % 13);
    x[0] = -0.0f;
    for (int col = 0; col < 2; col++) {
        kb b;
        call c;
        kb_init(&b, col ? DF_MODE_COL : DF_MODE_ROW, col ? "ri" : "or", 1);
        b.k.flags = DF_KERNEL_SCAN;
        const char *const steps = col ? "s1" : "ss";
        const uint32_t l = kb_ins(&b, DF_K_load, DEFT_F32, 0, 0, 0,
                                  kb_access(&b, DF_ACCESS_LOAD, DEFT_F32, steps));
        const uint32_t s = kb_ins(&b, DF_K_cumsum, DEFT_F32, l, 0, 0, 0);
        const uint32_t t = kb_ins(&b, DF_K_sub, DEFT_F32, s, l, 0, 0);
        kb_ins(&b, DF_K_store, DEFT_F32, t, 0, 0, kb_access(&b, DF_ACCESS_STORE, DEFT_F32, steps));
        call_init(&c, &b.k);
        c.ptr[0] = (char *)x, c.ptr[1] = (char *)y;
        for (int a = 0; a < 2; a++) {
            c.stride[2 * a] = col ? W : 1, c.stride[2 * a + 1] = col ? 1 : W;
        }
        c.extent[0] = col ? N : W, c.extent[1] = col ? W : N;
        memset(y, 0xFF, sizeof y);
        df_interp_main(&b.k, c.work, &c.a, 0, col ? 1 : W, 0, col ? W : 1);
        for (int j = 0; j < W; j++) {
            float acc = x[j];
            for (int i = 0; i < N; i++) {
                if (i) acc += x[i * W + j];
                const float want = acc - x[i * W + j];
                cr_assert(same_bits(DEFT_F32, &want, &y[i * W + j]), "mode %d at %d,%d", col, i, j);
            }
        }
        call_finish(&c);
    }
}

/* ---- memory ---- */

/* out[b, a, i] = x[a, b, i0 - i] + index + n, over two OUTER axes, negative and zero strides. */
Test(interp, views_numbers_and_indices)
{
    enum { A = 3, B = 5, N = 700 };
    static int64_t x[A * N], out[B][A][N];
    kb b;
    call c;
    kb_init(&b, DF_MODE_MAP, "ooi", 1);
    const uint32_t l =
        kb_ins(&b, DF_K_load, DEFT_I64, 0, 0, 0, kb_access(&b, DF_ACCESS_LOAD, DEFT_I64, "s0s"));
    const uint32_t at =
        kb_ins(&b, DF_K_index, DEFT_I64, 0, 0, 0, kb_access(&b, DF_ACCESS_INDEX, DEFT_I64, "sss"));
    const uint32_t n = kb_ins(&b, DF_K_num, DEFT_I64, 0, 0, 0, 1);
    const uint32_t k = kb_ins(&b, DF_K_const, DEFT_I64, 0, 0, 0, L(-2));
    const uint32_t nk = kb_ins(&b, DF_K_mul, DEFT_I64, n, k, 0, 0); /* uniform */
    uint32_t v = kb_ins(&b, DF_K_add, DEFT_I64, l, at, 0, 0);
    v = kb_ins(&b, DF_K_add, DEFT_I64, v, nk, 0, 0);
    kb_ins(&b, DF_K_store, DEFT_I64, v, 0, 0, kb_access(&b, DF_ACCESS_STORE, DEFT_I64, "ss1"));
    for (int i = 0; i < A * N; i++) x[i] = i;
    call_init(&c, &b.k);
    c.ptr[0] = (char *)&x[N - 1], c.ptr[2] = (char *)out;
    c.stride[0] = N, c.stride[1] = 12345,
    c.stride[2] = -1; /* axis 1 is ZERO: its stride means nothing */
    c.stride[3] = 1000000, c.stride[4] = 10000, c.stride[5] = 2;
    c.stride[6] = N, c.stride[7] = A * N;
    c.base[1] = 7;
    c.num[1] = 50;
    c.extent[0] = A, c.extent[1] = B, c.extent[2] = N;
    df_interp_main(&b.k, c.work, &c.a, 0, 7, 0, N);
    df_interp_main(&b.k, c.work, &c.a, 7, A * B, 0, 100);
    df_interp_main(&b.k, c.work, &c.a, 7, A * B, 100, N);
    for (int i = 0; i < A; i++)
        for (int j = 0; j < B; j++)
            for (int e = 0; e < N; e++)
                cr_assert_eq(out[j][i][e],
                             i * N + N - 1 - e + 7 + i * 1000000 + j * 10000 + e * 2 - 100,
                             "%d %d %d", i, j, e);
    call_finish(&c);
}

Test(interp, gather_checks_its_index)
{
    enum { N = 600 };
    static int64_t at[N];
    static float table[10], out[N];
    kb b;
    call c;
    kb_init(&b, DF_MODE_MAP, "i", 1);
    const uint32_t i =
        kb_ins(&b, DF_K_load, DEFT_I64, 0, 0, 0, kb_access(&b, DF_ACCESS_LOAD, DEFT_I64, "1"));
    const uint32_t n = kb_ins(&b, DF_K_num, DEFT_I64, 0, 0, 0, 0);
    const uint32_t good = kb_ins(&b, DF_K_check, DEFT_I64, i, n, 0, 41);
    const uint32_t v =
        kb_ins(&b, DF_K_load_at, DEFT_F32, good, 0, 0, kb_access(&b, DF_ACCESS_AT, DEFT_F32, "0"));
    kb_ins(&b, DF_K_store, DEFT_F32, v, 0, 0, kb_access(&b, DF_ACCESS_STORE, DEFT_F32, "1"));
    for (int j = 0; j < N; j++) at[j] = j * 7 % 10;
    for (int j = 0; j < 10; j++) table[j] = (float)j * 0.5f;
    call_init(&c, &b.k);
    c.ptr[0] = (char *)at, c.ptr[1] = (char *)table, c.ptr[2] = (char *)out;
    c.num[0] = 10, c.extent[0] = N;
    df_interp_main(&b.k, c.work, &c.a, 0, 1, 0, N);
    for (int j = 0; j < N; j++) cr_assert_eq(out[j], (float)(j * 7 % 10) * 0.5f);
    cr_expect_eq(c.fault[0], 0);
    at[333] = 12;
    df_interp_main(&b.k, c.work, &c.a, 0, 1, 0, N);
    cr_expect_eq(c.fault[0], 42);
    cr_expect_eq(c.fault[1], 12);
    cr_expect_eq(c.fault[2], 10);
    cr_expect_eq(out[333], 0);
    c.fault[0] = 0, at[333] = -11;
    df_interp_main(&b.k, c.work, &c.a, 0, 1, 333, 334);
    cr_expect_eq(c.fault[0], 42);
    cr_expect_eq(c.fault[1], -1);
    c.fault[0] = 0, at[333] = -1;
    df_interp_main(&b.k, c.work, &c.a, 0, 1, 333, 334);
    cr_expect_eq(c.fault[0], 0);
    cr_expect_eq(out[333], 4.5f, "a negative index counts from the end");
    call_finish(&c);
}

Test(interp, stages_and_scratch)
{
    static float y[3 * 5000], want[5000], scratch[10000];
    kb b;
    build_stages(&b);
    for (int64_t n = 1; n <= 5000; n = n * 3 + 1) {
        float *const x = random_floats((size_t)(3 * n), 5);
        call c;
        call_init(&c, &b.k);
        c.ptr[0] = (char *)x, c.ptr[1] = c.ptr[2] = (char *)scratch, c.ptr[4] = (char *)y;
        c.ptr[3] = (char *)(scratch + 5000);
        c.stride[0] = c.stride[8] = n;
        c.extent[0] = 3, c.extent[1] = n;
        df_interp_main(&b.k, c.work, &c.a, 0, 3, 0, 1);
        for (int r = 0; r < 3; r++) {
            naive_stages(x + r * n, n, want);
            cr_assert_eq(memcmp(want, y + r * n, (size_t)n * 4), 0, "row %d of %lld", r,
                         (long long)n);
        }
        call_finish(&c);
        free(x);
    }
}
