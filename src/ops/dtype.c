/* SPDX-License-Identifier: Apache-2.0
 *
 * Dtypes: sizes, names, promotion, and the dtype rules of ops.def. Each rule has two uses: for
 * recording, it says which cast an operand needs; for the verifier, whether a node obeys the rule.
 */
#include "ops/shape.h"
#include "deft/pick.h"

/* deft_read accepts a pointer to the C type of each dtype. */
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file)                                \
    _Static_assert(DEFT_MAY_HOLD((c_type *)NULL, DEFT_##NAME),                                     \
                   #name " is no dtype of " #c_type " in deft/pick.h");
#define FACE(name, NAME, kind, bits, record, c_type, file)                                         \
    _Static_assert(DEFT_MAY_HOLD((c_type *)NULL, DEFT_##NAME),                                     \
                   #name " is no dtype of " #c_type " in deft/pick.h");
#include "ops/dtypes.def"

static const char *const names[] = {
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file) #name,
#define FACE(name, NAME, kind, bits, record, c_type, file) #name,
#include "ops/dtypes.def"
};

static bool is_dtype(deft_dtype t)
{
    return (unsigned)t < DEFT_N_DTYPES;
}

/* Whether op sums or multiplies many elements, which it does in 64 bits for integers: in u64 for
 * unsigned ones, else in i64. */
static bool accumulates(df_op op)
{
    return op == DF_OP_sum || op == DF_OP_prod || op == DF_OP_cumsum || op == DF_OP_cumprod;
}

static bool shifts(df_op op)
{
    return op == DF_OP_shift_left || op == DF_OP_shift_right;
}

/* Whether op moves elements and computes nothing with them. */
static bool only_moves(df_op op)
{
    return df_op_scatters(op) && df_scatter_how_of(op) == DF_SCATTER_SET;
}

static df_dtype_rule rule_of(df_op op)
{
    return (df_dtype_rule)df_op_infos[op].dtype_rule;
}

/* Whether the operands of op may have dtype t, after casts. For index operators and where, these
 * are the operands that are neither an index nor a condition. Returns NULL if so, else the reason
 * why not. */
static const char *refuse(df_op op, deft_dtype t)
{
    switch (rule_of(op)) {
    case DF_DTYPE_arith:
    case DF_DTYPE_scatter:
        if (only_moves(op)) return NULL;
        if (rule_of(op) == DF_DTYPE_scatter && df_is_half(t)) return "halves are added up in f32";
        if (t == DEFT_BOOL) return "arithmetic needs numbers";
        if (accumulates(op) && df_is_int(t) && df_bits_of(t) != 64)
            return "integers are accumulated as i64 or u64";
        return NULL;
    case DF_DTYPE_floating:
    case DF_DTYPE_test: return df_is_float(t) ? NULL : "needs a float";
    case DF_DTYPE_wide: return df_is_float(t) && !df_is_half(t) ? NULL : "needs f32 or f64";
    case DF_DTYPE_integral:
        if (df_is_float(t)) return "bits of a float have no meaning here";
        return shifts(op) && t == DEFT_BOOL ? "a bool cannot be shifted" : NULL;
    case DF_DTYPE_boolean: return t == DEFT_BOOL ? NULL : "needs bool";
    case DF_DTYPE_bits: return t == DEFT_BOOL ? "its bits are no number" : NULL;
    case DF_DTYPE_none:
    case DF_DTYPE_same:
    case DF_DTYPE_compare:
    case DF_DTYPE_cast:
    case DF_DTYPE_select:
    case DF_DTYPE_index:
    case DF_DTYPE_to_index:
    case DF_DTYPE_count:
    case DF_DTYPE_any:
    case DF_DTYPE_but_last: return NULL;
    }
    df_unreachable();
}

/* The operand that determines the dtype of the result. */
static uint32_t leading(df_op op)
{
    return df_op_infos[op].dtype_rule == DF_DTYPE_select ? 1 : 0;
}

static deft_status check_result(df_diag *d, df_op op, deft_dtype t, deft_dtype out)
{
    deft_dtype want = out;
    switch (rule_of(op)) {
    case DF_DTYPE_none:
        if (op == DF_OP_iota || op == DF_OP_random) want = DEFT_I64;
        break;
    case DF_DTYPE_any:
    case DF_DTYPE_cast: break;
    case DF_DTYPE_bits:
        if (out == DEFT_BOOL || df_bits_of(out) != df_bits_of(t))
            return df_fail(d, DEFT_E_DTYPE, "%s: the result is %s, the operand %s: not of one size",
                           df_op_infos[op].name, deft_dtype_name(out), deft_dtype_name(t));
        break;
    case DF_DTYPE_count:
        if (!df_is_float(out) || df_is_half(out))
            return df_fail(d, DEFT_E_DTYPE, "%s: the result is %s, must be f32 or f64",
                           df_op_infos[op].name, deft_dtype_name(out));
        break;
    case DF_DTYPE_same:
    case DF_DTYPE_arith:
    case DF_DTYPE_floating:
    case DF_DTYPE_wide:
    case DF_DTYPE_integral:
    case DF_DTYPE_compare:
    case DF_DTYPE_boolean:
    case DF_DTYPE_test:
    case DF_DTYPE_select:
    case DF_DTYPE_index:
    case DF_DTYPE_scatter:
    case DF_DTYPE_but_last:
    case DF_DTYPE_to_index: want = df_dtype_result(op, t); break;
    }
    if (out != want)
        return df_fail(d, DEFT_E_DTYPE, "%s: the result is %s, must be %s", df_op_infos[op].name,
                       deft_dtype_name(out), deft_dtype_name(want));
    return DEFT_OK;
}

size_t deft_dtype_size(deft_dtype dtype)
{
    return is_dtype(dtype) ? df_bytes_of(dtype) : 0;
}

const char *deft_dtype_name(deft_dtype dtype)
{
    return is_dtype(dtype) ? names[dtype] : "?";
}

/* The signed integer dtype of that many bits; DF_NO_DTYPE when there is none. */
static deft_dtype signed_of(uint32_t bits)
{
    for (int t = 0; t < DEFT_N_DTYPES; t++)
        if (df_is_signed((deft_dtype)t) && df_bits_of((deft_dtype)t) == bits) return (deft_dtype)t;
    return DF_NO_DTYPE;
}

static deft_dtype promote_floats(deft_dtype a, deft_dtype b)
{
    if (df_bits_of(a) == df_bits_of(b)) return DEFT_F32; /* of f16 and bf16, none has the other */
    return df_bits_of(a) > df_bits_of(b) ? a : b;
}

/* An integer of any width does not change the dtype of a float, nor of the parts of a complex
 * number. */
deft_dtype df_promote(deft_dtype a, deft_dtype b)
{
    df_assert(is_dtype(a) && is_dtype(b));
    if (a != b && (df_is_stored(a) || df_is_stored(b))) return DF_NO_DTYPE;
    if (a == b || b == DEFT_BOOL) return a;
    if (a == DEFT_BOOL) return b;
    if (df_is_complex(a) || df_is_complex(b))
        return df_complex_of(df_promote(df_record_dtype(a), df_record_dtype(b)));
    if (df_is_float(a) != df_is_float(b)) return df_is_float(a) ? a : b;
    if (df_is_float(a)) return promote_floats(a, b);
    const uint32_t bits_a = df_bits_of(a), bits_b = df_bits_of(b);
    if (df_is_signed(a) == df_is_signed(b)) return bits_a > bits_b ? a : b;
    const uint32_t bits = df_is_signed(a) ? bits_b : bits_a; /* of the unsigned one */
    const deft_dtype with = df_is_signed(a) ? a : b;
    return df_bits_of(with) > bits ? with : signed_of(2 * bits);
}

deft_dtype deft_promote(deft_dtype a, deft_dtype b)
{
    /* An invalid dtype yields to the other one, so that the function is defined for all values. */
    if (!is_dtype(a)) return b;
    return is_dtype(b) ? df_promote(a, b) : a;
}

/* Refuses a dtype that no record can have. */
static deft_status check_recorded(df_diag *d, df_op op, deft_dtype t)
{
    if (!is_dtype(t))
        return df_fail(d, DEFT_E_DTYPE, "%s: %d is no dtype", df_op_infos[op].name, (int)t);
    if (df_is_face(t))
        return df_fail(d, DEFT_E_DTYPE, "%s: not for %s", df_op_infos[op].name, deft_dtype_name(t));
    return DEFT_OK;
}

deft_status df_dtype_check(df_diag *d, df_op op, const deft_dtype *src, deft_dtype out)
{
    const df_op_info *const info = &df_op_infos[op];
    deft_status st = check_recorded(d, op, out);
    for (uint32_t i = 0; i < info->n_src && st == DEFT_OK; i++) st = check_recorded(d, op, src[i]);
    if (st != DEFT_OK) return st;
    if (info->n_src == 0) return check_result(d, op, out, out);

    const uint32_t first = leading(op);
    const char *const why = refuse(op, src[first]);
    if (why)
        return df_fail(d, DEFT_E_DTYPE, "%s: the operand is %s: %s", info->name,
                       deft_dtype_name(src[first]), why);
    if (info->dtype_rule == DF_DTYPE_select && src[0] != DEFT_BOOL)
        return df_fail(d, DEFT_E_DTYPE, "%s: the condition is %s, must be bool", info->name,
                       deft_dtype_name(src[0]));
    const uint32_t n_checked = info->dtype_rule == DF_DTYPE_any
                                   ? 0
                                   : info->n_src - (info->dtype_rule == DF_DTYPE_but_last);
    for (uint32_t i = first + 1; i < n_checked; i++) {
        const bool is_index =
            info->dtype_rule == DF_DTYPE_index || (info->dtype_rule == DF_DTYPE_scatter && i == 1);
        const deft_dtype want = is_index ? DEFT_I64 : src[first];
        if (src[i] != want)
            return df_fail(d, DEFT_E_DTYPE, "%s: operand %u is %s, must be %s", info->name, i + 1,
                           deft_dtype_name(src[i]), deft_dtype_name(want));
    }
    return check_result(d, op, src[first], out);
}

deft_status df_dtype_operand(df_diag *d, df_op op, deft_dtype t, deft_dtype *out)
{
    const uint8_t rule = df_op_infos[op].dtype_rule;
    deft_dtype want = t;
    const deft_status st = check_recorded(d, op, t);
    if (st != DEFT_OK) return st;
    if (accumulates(op) && !df_is_float(t))
        want = df_is_unsigned(t) ? DEFT_U64 : DEFT_I64;
    else if ((rule == DF_DTYPE_floating || rule == DF_DTYPE_test) && !df_is_float(t))
        want = DEFT_F32;
    else if (rule == DF_DTYPE_wide ||
             (rule == DF_DTYPE_scatter && df_is_half(t) && !only_moves(op)))
        want = df_arithmetic_dtype(t);
    else if (rule == DF_DTYPE_boolean)
        want = DEFT_BOOL;
    const char *const why = refuse(op, want);
    if (why)
        return df_fail(d, DEFT_E_DTYPE, "%s: the operand is %s: %s", df_op_infos[op].name,
                       deft_dtype_name(t), why);
    *out = want;
    return DEFT_OK;
}

deft_dtype df_dtype_result(df_op op, deft_dtype operand)
{
    switch (rule_of(op)) {
    case DF_DTYPE_compare:
    case DF_DTYPE_boolean:
    case DF_DTYPE_test: return DEFT_BOOL;
    case DF_DTYPE_to_index: return DEFT_I64;
    case DF_DTYPE_count: return df_arithmetic_dtype(operand);
    case DF_DTYPE_none:
    case DF_DTYPE_same:
    case DF_DTYPE_arith:
    case DF_DTYPE_floating:
    case DF_DTYPE_wide:
    case DF_DTYPE_integral:
    case DF_DTYPE_cast:
    case DF_DTYPE_bits:
    case DF_DTYPE_select:
    case DF_DTYPE_index:
    case DF_DTYPE_scatter:
    case DF_DTYPE_any:
    case DF_DTYPE_but_last: return operand;
    }
    df_unreachable();
}
