/* SPDX-License-Identifier: Apache-2.0
 *
 * The enumeration of kernel ops and the properties of each. kops.def has the table.
 */
#ifndef DF_OPS_KOP_H
#define DF_OPS_KOP_H

#include <string.h>

#include "base/compiler.h"
#include "ops/dtype.h"

typedef enum df_kop {
#define KOP(name, n_src, kind, types, join, identity) DF_K_##name,
#include "ops/kops.def"
    DF_N_KOPS,
    DF_K_none = DF_N_KOPS
} df_kop;

/* What a kernel op does: kops.def. */
typedef enum df_kop_kind {
    DF_KOP_leaf,
    DF_KOP_memory,
    DF_KOP_map,
    DF_KOP_reduce,
    DF_KOP_scan,
    DF_KOP_loop
} df_kop_kind;

/* Bits of imm of a cast from f32 to a half. */
enum {
    DF_CAST_EXACT = 1, /* the half can represent the value, so that nothing is rounded */
    DF_CAST_RESULT = 2 /* FAST kernels: it rounds the result of an operator (ops/half.c) */
};

/* Which dtypes an op takes: t is the dtype of the result, src of operand 0. */
typedef enum df_kop_types {
    DF_TYPES_any,
    DF_TYPES_index,    /* t is i64 */
    DF_TYPES_at,       /* src is i64 */
    DF_TYPES_when,     /* src is bool */
    DF_TYPES_numbers,  /* t = src: integers and reals */
    DF_TYPES_reals,    /* t = src: reals */
    DF_TYPES_ordered,  /* t = src: bool, integers and reals */
    DF_TYPES_bits,     /* t = src: bool and integers */
    DF_TYPES_ints,     /* t = src: integers */
    DF_TYPES_bools,    /* t = src = bool */
    DF_TYPES_compare,  /* t is bool, src anything but a half */
    DF_TYPES_select,   /* src is bool */
    DF_TYPES_cast,     /* a half only from and to f32 */
    DF_TYPES_bitcast,  /* two dtypes of one size, neither bool */
    DF_TYPES_check,    /* t = src = i64 */
    DF_TYPES_position, /* t is i64, src anything but a half */
    DF_TYPES_state     /* t = src */
} df_kop_types;

/* The properties of a kernel op. */
typedef struct df_kop_info {
    const char *name;
    uint8_t n_src;
    uint8_t kind;  /* df_kop_kind */
    uint8_t types; /* df_kop_types */
    uint8_t join;  /* the map op that joins two accumulators of a reduction or scan; or DF_K_none */
} df_kop_info;

extern const df_kop_info df_kop_infos[DF_N_KOPS];

/* For a switch that handles the map ops by name: with KOP defined as DF_CASE_##kind(name), kops.def
 * gives the cases of all other ops. */
#define DF_CASE_map(name)
#define DF_CASE_leaf(name) case DF_K_##name:
#define DF_CASE_memory(name) case DF_K_##name:
#define DF_CASE_reduce(name) case DF_K_##name:
#define DF_CASE_scan(name) case DF_K_##name:
#define DF_CASE_loop(name) case DF_K_##name:

/* Whether an op of these types is defined for a result of dtype t and operand 0 of dtype src. For
 * an op without operands, src is t. */
DF_INLINE bool df_kop_takes(df_kop_types types, deft_dtype t, deft_dtype src)
{
    const bool half = df_is_half(t) || df_is_half(src);
    switch (types) {
    case DF_TYPES_any: return true;
    case DF_TYPES_index: return t == DEFT_I64;
    case DF_TYPES_at: return src == DEFT_I64;
    case DF_TYPES_when: return src == DEFT_BOOL;
    case DF_TYPES_numbers: return t == src && t != DEFT_BOOL && !half;
    case DF_TYPES_reals: return t == src && df_is_real(t);
    case DF_TYPES_ordered: return t == src && !half;
    case DF_TYPES_bits: return t == src && !df_is_float(t);
    case DF_TYPES_ints: return t == src && df_is_int(t);
    case DF_TYPES_bools: return t == DEFT_BOOL && src == DEFT_BOOL;
    case DF_TYPES_compare: return t == DEFT_BOOL && !half;
    case DF_TYPES_select: return src == DEFT_BOOL;
    case DF_TYPES_cast: return !half || (df_is_half(t) ? src : t) == DEFT_F32;
    case DF_TYPES_bitcast:
        return df_bits_of(t) == df_bits_of(src) && t != DEFT_BOOL && src != DEFT_BOOL;
    case DF_TYPES_check: return t == DEFT_I64 && src == DEFT_I64;
    case DF_TYPES_position: return t == DEFT_I64 && !half;
    case DF_TYPES_state: return t == src;
    }
    df_unreachable();
}

/* The bits of the identity of a reduction or scan in dtype t: joined to a value, it changes no bit
 * of that value. 0 for any other op. */
DF_INLINE uint64_t df_kop_identity(df_kop op, deft_dtype t)
{
    switch (op) {
/* clang-format off */
#define KOP(name, n_src, kind, types, join, identity)                                              \
    case DF_K_##name: return df_identity_##identity(t);
#include "ops/kops.def"
        /* clang-format on */
    case DF_N_KOPS: break;
    }
    df_unreachable();
}

/* The op `scale`, which needs n only where there is an instruction for it. */
DF_INLINE float df_kop_scale_f32(float p, float n, float sum)
{
    (void)n;
    uint32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    const uint32_t powers[2] = { bits >> 1 << 23, (bits - (bits >> 1)) << 23 };
    float factor[2];
    memcpy(factor, powers, sizeof factor);
    return p * factor[0] * factor[1];
}

DF_INLINE double df_kop_scale_f64(double p, double n, double sum)
{
    (void)n;
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    const uint64_t powers[2] = { bits >> 1 << 52, (bits - (bits >> 1)) << 52 };
    double factor[2];
    memcpy(factor, powers, sizeof factor);
    return p * factor[0] * factor[1];
}

#endif
