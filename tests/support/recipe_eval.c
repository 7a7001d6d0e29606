/* SPDX-License-Identifier: Apache-2.0
 *
 * One simple loop per (op, dtype), for the compiler to vectorize. Integer arithmetic is done
 * unsigned, which is how it wraps.
 */
#include "support/faces.h"
#include "support/half_ref.h"
#include "support/int_ref.h"
#include "support/recipe_eval.h"

#include "base/bits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t n_src[DF_N_KOPS] = {
#define KOP(name, n, kind, types, join, identity) n,
#include "ops/kops.def"
};

static const char *const kop_names[DF_N_KOPS] = {
#define KOP(name, n, kind, types, join, identity) #name,
#include "ops/kops.def"
};

static const uint8_t dtype_size[DF_N_RECORDED] = { 1, 1, 4, 8, 4, 8, 2, 2, 1, 2, 2, 4, 8 };

static void refuse(const recipe_ins *i)
{
    fprintf(stderr, "recipe_eval: no %s of dtype %d from %d\n", kop_names[i->op], i->t, i->src_t);
    abort();
}

static uint32_t append(recipe_prog *p, recipe_ins ins)
{
    for (uint32_t i = 0; i < p->n; i++) {
        const recipe_ins *old = &p->ins[i];
        if (old->op == ins.op && old->t == ins.t && old->a == ins.a && old->b == ins.b &&
            old->c == ins.c && old->imm == ins.imm)
            return i;
    }
    if (p->n == RECIPE_MAX) {
        fprintf(stderr, "recipe_eval: more than %d instructions\n", RECIPE_MAX);
        abort();
    }
    const size_t size = (size_t)RECIPE_LANES * dtype_size[ins.t];
    ins.lanes = aligned_alloc(64, size);
    if (!ins.lanes) abort();
    memset(ins.lanes, 0, size);
    if (ins.op == DF_K_const)
        for (size_t k = 0; k < RECIPE_LANES; k++)
            df_bits_store((char *)ins.lanes + k * dtype_size[ins.t], ins.imm, dtype_size[ins.t]);
    p->ins[p->n] = ins;
    return p->n++;
}

static uint32_t emit_ins(df_emit *e, df_kop op, deft_dtype t, uint32_t a, uint32_t b, uint32_t c,
                         uint64_t imm)
{
    recipe_prog *p = (recipe_prog *)(void *)e;
    const uint32_t src[3] = { a, b, c };
    for (unsigned k = 0; k < n_src[op]; k++) {
        if (src[k] >= p->n) abort();
        /* Operands have one dtype, except the condition of a select. */
        const bool free_dtype = op == DF_K_cast || op == DF_K_bitcast || op == DF_K_eq ||
                                op == DF_K_ne || op == DF_K_lt || op == DF_K_le;
        const deft_dtype want = op == DF_K_select && k == 0 ? DEFT_BOOL
                                : free_dtype                ? p->ins[a].t
                                                            : t;
        if (p->ins[src[k]].t != want) {
            fprintf(stderr, "recipe_eval: %s: operand %u has dtype %d, not %d\n", kop_names[op], k,
                    p->ins[src[k]].t, want);
            abort();
        }
    }
    return append(p, (recipe_ins){ .op = (uint8_t)op,
                                   .t = (uint8_t)t,
                                   .src_t = n_src[op] ? p->ins[a].t : (uint8_t)t,
                                   .a = n_src[op] > 0 ? a : 0,
                                   .b = n_src[op] > 1 ? b : 0,
                                   .c = n_src[op] > 2 ? c : 0,
                                   .imm = imm });
}

void recipe_init(recipe_prog *p)
{
    p->base = (df_emit){ .ins = emit_ins };
    p->n = p->n_inputs = 0;
}

void recipe_finish(recipe_prog *p)
{
    for (uint32_t i = 0; i < p->n; i++) free(p->ins[i].lanes);
    p->n = 0;
}

uint32_t recipe_input(recipe_prog *p, deft_dtype t)
{
    return append(
        p, (recipe_ins){
               .op = DF_K_load, .t = (uint8_t)t, .src_t = (uint8_t)t, .imm = p->n_inputs++ });
}

const void *recipe_lanes(const recipe_prog *p, uint32_t id)
{
    return p->ins[id].lanes;
}

uint32_t recipe_cost(const recipe_prog *p)
{
    uint32_t cost = 0;
    for (uint32_t i = 0; i < p->n; i++)
        cost +=
            p->ins[i].op != DF_K_const && p->ins[i].op != DF_K_load && p->ins[i].op != DF_K_bitcast;
    return cost;
}

/* r, a, b, c: lane k of result and operands, of C type T; expressions may use S, the signed type.
 */
#define LANES(T, expr)                                                                             \
    do {                                                                                           \
        T *restrict r_ = i->lanes;                                                                 \
        const T *a_ = p->ins[i->a].lanes, *b_ = p->ins[i->b].lanes, *c_ = p->ins[i->c].lanes;      \
        for (size_t k = 0; k < n; k++) {                                                           \
            const T a = a_[k], b = b_[k], c = c_[k];                                               \
            (void)a, (void)b, (void)c;                                                             \
            r_[k] = (T)(expr);                                                                     \
        }                                                                                          \
    } while (0)
#define COMPARE(T, expr)                                                                           \
    do {                                                                                           \
        uint8_t *restrict r_ = i->lanes;                                                           \
        const T *a_ = p->ins[i->a].lanes, *b_ = p->ins[i->b].lanes;                                \
        for (size_t k = 0; k < n; k++) {                                                           \
            const T a = a_[k], b = b_[k];                                                          \
            r_[k] = (uint8_t)(expr);                                                               \
        }                                                                                          \
    } while (0)

#define FLOAT_OPS(name, T, FMA, LDEXP, SQRT, FLOOR, CEIL, TRUNC, RINT, FABS, FMOD)                 \
    static bool name(const recipe_prog *p, const recipe_ins *i, size_t n)                          \
    {                                                                                              \
        switch ((int)i->op) {                                                                      \
        case DF_K_add: LANES(T, a + b); return true;                                               \
        case DF_K_sub: LANES(T, a - b); return true;                                               \
        case DF_K_mul: LANES(T, a *b); return true;                                                \
        case DF_K_div: LANES(T, a / b); return true;                                               \
        case DF_K_rem: LANES(T, FMOD(a, b)); return true;                                          \
        case DF_K_fma: LANES(T, FMA(a, b, c)); return true;                                        \
        case DF_K_scale: LANES(T, b != b ? b : LDEXP(a, (int)b)); return true;                     \
        case DF_K_neg: LANES(T, -a); return true;                                                  \
        case DF_K_abs: LANES(T, FABS(a)); return true;                                             \
        case DF_K_sqrt: LANES(T, SQRT(a)); return true;                                            \
        case DF_K_min: LANES(T, ((a < b) | (a != a)) ? a : b); return true;                        \
        case DF_K_max: LANES(T, ((a > b) | (a != a)) ? a : b); return true;                        \
        case DF_K_floor: LANES(T, FLOOR(a)); return true;                                          \
        case DF_K_ceil: LANES(T, CEIL(a)); return true;                                            \
        case DF_K_trunc: LANES(T, TRUNC(a)); return true;                                          \
        case DF_K_rint: LANES(T, RINT(a)); return true;                                            \
        default: return false;                                                                     \
        }                                                                                          \
    }
FLOAT_OPS(run_f32, float, __builtin_fmaf, ldexpf, sqrtf, floorf, ceilf, truncf, rintf, fabsf, fmodf)
FLOAT_OPS(run_f64, double, __builtin_fma, ldexp, sqrt, floor, ceil, trunc, rint, fabs, fmod)

/* U computes, S is the type, signed when sign is true, W the width in bits; fill: the value of an
 * overlong shr. */
#define INT_OPS(name, U, S, W, sign, fill)                                                         \
    static bool name(const recipe_prog *p, const recipe_ins *i, size_t n)                          \
    {                                                                                              \
        switch ((int)i->op) {                                                                      \
        case DF_K_add: LANES(U, a + b); return true;                                               \
        case DF_K_sub: LANES(U, a - b); return true;                                               \
        case DF_K_mul: LANES(U, (uint64_t)a *b); return true;                                      \
        case DF_K_div:                                                                             \
            LANES(U, b == 0 ? 0 : sign && (S)b == (S)-1 ? (U)(0 - a) : (U)((S)a / (S)b));          \
            return true;                                                                           \
        case DF_K_rem:                                                                             \
            LANES(U, b == 0 ? a : sign && (S)b == (S)-1 ? 0 : (U)((S)a % (S)b));                   \
            return true;                                                                           \
        case DF_K_neg: LANES(U, 0 - a); return true;                                               \
        case DF_K_abs: LANES(U, sign && (S)a <= 0 ? (U)(0 - a) : a); return true;                  \
        case DF_K_min: LANES(U, (S)a < (S)b ? a : b); return true;                                 \
        case DF_K_max: LANES(U, (S)a > (S)b ? a : b); return true;                                 \
        case DF_K_and: LANES(U, a &b); return true;                                                \
        case DF_K_or: LANES(U, a | b); return true;                                                \
        case DF_K_xor: LANES(U, a ^ b); return true;                                               \
        case DF_K_not: LANES(U, ~a); return true;                                                  \
        case DF_K_shl: LANES(U, b >= W ? 0 : (U)(a << (b & (W - 1)))); return true;                \
        case DF_K_shr: LANES(U, b >= W ? fill : (U)((S)a >> (b & (W - 1)))); return true;          \
        case DF_K_lshr: LANES(U, b >= W ? 0 : (U)(a >> (b & (W - 1)))); return true;               \
        default: return false;                                                                     \
        }                                                                                          \
    }
INT_OPS(run_u8, uint8_t, uint8_t, 8, false, 0)
INT_OPS(run_i8, uint8_t, int8_t, 8, true, (uint8_t)((int8_t)a >> 7))
INT_OPS(run_u16, uint16_t, uint16_t, 16, false, 0)
INT_OPS(run_i16, uint16_t, int16_t, 16, true, (uint16_t)((int16_t)a >> 15))
INT_OPS(run_u32, uint32_t, uint32_t, 32, false, 0)
INT_OPS(run_i32, uint32_t, int32_t, 32, true, (uint32_t)((int32_t)a >> 31))
INT_OPS(run_u64, uint64_t, uint64_t, 64, false, 0)
INT_OPS(run_i64, uint64_t, int64_t, 64, true, (uint64_t)((int64_t)a >> 63))

static bool run_bool(const recipe_prog *p, const recipe_ins *i, size_t n)
{
    switch ((int)i->op) {
    case DF_K_and: LANES(uint8_t, a & b); return true;
    case DF_K_or: LANES(uint8_t, a | b); return true;
    case DF_K_xor: LANES(uint8_t, a ^ b); return true;
    case DF_K_not: LANES(uint8_t, !a); return true;
    default: return false;
    }
}

#define COMPARE_OPS(T)                                                                             \
    switch ((int)i->op) {                                                                          \
    case DF_K_eq: COMPARE(T, a == b); return true;                                                 \
    case DF_K_ne: COMPARE(T, a != b); return true;                                                 \
    case DF_K_lt: COMPARE(T, a < b); return true;                                                  \
    case DF_K_le: COMPARE(T, a <= b); return true;                                                 \
    default: return false;                                                                         \
    }

static bool run_compare(const recipe_prog *p, const recipe_ins *i, size_t n)
{
    switch ((deft_dtype)i->src_t) {
    CASES_OF_FACES:
        return false;
    case DEFT_BOOL: COMPARE_OPS(uint8_t)
#define ROW(dtype, T, U, bits)                                                                     \
    case dtype: COMPARE_OPS(T)
        INT_REF_TYPES(ROW)
#undef ROW
    case DEFT_F32: COMPARE_OPS(float)
    case DEFT_F64: COMPARE_OPS(double)
    case DEFT_F16:
    case DEFT_BF16: break;
    }
    return false;
}

#define SELECT(T)                                                                                  \
    do {                                                                                           \
        T *restrict r_ = i->lanes;                                                                 \
        const uint8_t *s_ = p->ins[i->a].lanes;                                                    \
        const T *b_ = p->ins[i->b].lanes, *c_ = p->ins[i->c].lanes;                                \
        for (size_t k = 0; k < n; k++) r_[k] = s_[k] ? b_[k] : c_[k];                              \
    } while (0)

static void run_select(const recipe_prog *p, const recipe_ins *i, size_t n)
{
    switch (dtype_size[i->t]) {
    case 1: SELECT(uint8_t); break;
    case 2: SELECT(uint16_t); break;
    case 4: SELECT(uint32_t); break;
    default: SELECT(uint64_t); break;
    }
}

#define CAST(TO, FROM, expr)                                                                       \
    do {                                                                                           \
        TO *restrict r_ = i->lanes;                                                                \
        const FROM *a_ = p->ins[i->a].lanes;                                                       \
        for (size_t k = 0; k < n; k++) {                                                           \
            const FROM a = a_[k];                                                                  \
            r_[k] = (TO)(expr);                                                                    \
        }                                                                                          \
        return true;                                                                               \
    } while (0)
/* The function of a source dtype: INT_OF is the value as an element of an integer dtype. */
#define CASTS_FROM(name, FROM, INT_OF)                                                             \
    static bool name(const recipe_prog *p, const recipe_ins *i, size_t n)                          \
    {                                                                                              \
        switch ((deft_dtype)i->t) {                                                                \
        CASES_OF_FACES:                                                                            \
            break;                                                                                 \
        case DEFT_U8: CAST(uint8_t, FROM, INT_OF(DEFT_U8));                                        \
        case DEFT_I8: CAST(int8_t, FROM, INT_OF(DEFT_I8));                                         \
        case DEFT_U16: CAST(uint16_t, FROM, INT_OF(DEFT_U16));                                     \
        case DEFT_I16: CAST(int16_t, FROM, INT_OF(DEFT_I16));                                      \
        case DEFT_U32: CAST(uint32_t, FROM, INT_OF(DEFT_U32));                                     \
        case DEFT_I32: CAST(int32_t, FROM, INT_OF(DEFT_I32));                                      \
        case DEFT_U64: CAST(uint64_t, FROM, INT_OF(DEFT_U64));                                     \
        case DEFT_I64: CAST(int64_t, FROM, INT_OF(DEFT_I64));                                      \
        case DEFT_BOOL: CAST(uint8_t, FROM, a != 0);                                               \
        case DEFT_F32: CAST(float, FROM, a);                                                       \
        case DEFT_F64: CAST(double, FROM, a);                                                      \
        case DEFT_F16:                                                                             \
        case DEFT_BF16: CAST(uint16_t, FROM, half_bits((deft_dtype)i->t, (double)a));              \
        }                                                                                          \
        return false;                                                                              \
    }
#define WRAPPED(dtype) a
#define SATURATED(dtype) int_ref_of_double(dtype, (double)a)
#define ROW(dtype, T, U, bits) CASTS_FROM(cast_##T, T, WRAPPED)
INT_REF_TYPES(ROW)
#undef ROW
CASTS_FROM(cast_float, float, SATURATED)
CASTS_FROM(cast_double, double, SATURATED)

static bool run_cast(const recipe_prog *p, const recipe_ins *i, size_t n)
{
    switch ((deft_dtype)i->src_t) {
    CASES_OF_FACES:
        break;
    case DEFT_BOOL: return cast_uint8_t(p, i, n);
#define ROW(dtype, T, U, bits)                                                                     \
    case dtype: return cast_##T(p, i, n);
        INT_REF_TYPES(ROW)
#undef ROW
    case DEFT_F32: return cast_float(p, i, n);
    case DEFT_F64: return cast_double(p, i, n);
    case DEFT_F16:
    case DEFT_BF16: CAST(float, uint16_t, half_value((deft_dtype)i->src_t, a));
    }
    return false;
}

static bool run_map(const recipe_prog *p, const recipe_ins *i, size_t n)
{
    switch ((deft_dtype)i->t) {
    CASES_OF_FACES:
        break;
    case DEFT_BOOL: return run_bool(p, i, n);
    case DEFT_U8: return run_u8(p, i, n);
    case DEFT_I8: return run_i8(p, i, n);
    case DEFT_U16: return run_u16(p, i, n);
    case DEFT_I16: return run_i16(p, i, n);
    case DEFT_U32: return run_u32(p, i, n);
    case DEFT_I32: return run_i32(p, i, n);
    case DEFT_U64: return run_u64(p, i, n);
    case DEFT_I64: return run_i64(p, i, n);
    case DEFT_F32: return run_f32(p, i, n);
    case DEFT_F64: return run_f64(p, i, n);
    case DEFT_F16:
    case DEFT_BF16: break;
    }
    return false;
}

static bool run_one(const recipe_prog *p, const recipe_ins *i, size_t n, const void *const *in)
{
    switch ((int)i->op) {
    case DF_K_const: return true;
    case DF_K_load: memcpy(i->lanes, in[i->imm], n * dtype_size[i->t]); return true;
    case DF_K_bitcast:
        if (dtype_size[i->t] != dtype_size[i->src_t]) return false;
        memcpy(i->lanes, p->ins[i->a].lanes, n * dtype_size[i->t]);
        return true;
    case DF_K_cast: return run_cast(p, i, n);
    case DF_K_select: run_select(p, i, n); return true;
    case DF_K_eq:
    case DF_K_ne:
    case DF_K_lt:
    case DF_K_le: return run_compare(p, i, n);
    default: return run_map(p, i, n);
    }
}

void recipe_run(recipe_prog *p, size_t n_lanes, const void *const *in)
{
    for (uint32_t k = 0; k < p->n; k++)
        if (!run_one(p, &p->ins[k], n_lanes, in)) refuse(&p->ins[k]);
}
