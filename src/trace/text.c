/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers as text and back. The conversions of the C library are not used, because they depend on
 * the locale. Floats are hexadecimal, because a decimal float is rounded. Hexadecimal floats are
 * exact in both directions: reading refuses a number that it would have to round.
 */
#include "trace/text.h"

#include "ops/shape.h"

#include <inttypes.h>
#include <string.h>

typedef struct float_form {
    unsigned fraction_bits; /* without the hidden bit */
    unsigned exponent_bits;
    uint64_t quiet_nan;
} float_form;

static float_form form_of(deft_dtype t)
{
    const unsigned fraction = df_fraction_of(t);
    return (float_form){ fraction, df_bits_of(t) - 1 - fraction, df_nan_bits(t) };
}

static void put_float(df_str *out, deft_dtype t, uint64_t bits)
{
    const float_form f = form_of(t);
    const int most = (1 << f.exponent_bits) - 1, bias = most >> 1;
    uint64_t fraction = bits & (((uint64_t)1 << f.fraction_bits) - 1);
    const int exponent = (int)(bits >> f.fraction_bits) & most;
    const bool negative = bits >> (f.fraction_bits + f.exponent_bits) & 1;
    if (exponent == most && fraction != 0) {
        if (bits == f.quiet_nan)
            df_str_put(out, "nan");
        else
            df_str_fmt(out, "nan:0x%" PRIx64, bits);
        return;
    }
    if (negative) df_str_putc(out, '-');
    if (exponent == most) {
        df_str_put(out, "inf");
        return;
    }
    df_str_put(out, exponent == 0 ? "0x0" : "0x1");
    unsigned digits = (f.fraction_bits + 3) / 4;
    fraction <<= digits * 4 - f.fraction_bits;
    while (digits > 0 && (fraction & 15) == 0) {
        fraction >>= 4;
        digits--;
    }
    if (digits > 0) df_str_fmt(out, ".%0*" PRIx64, (int)digits, fraction);
    const bool zero = exponent == 0 && digits == 0;
    df_str_fmt(out, "p%+d", zero ? 0 : exponent == 0 ? 1 - bias : exponent - bias);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Reads all n characters as digits of base 10 or 16. Returns false for another character and on
 * overflow. */
static bool get_digits(const char *at, size_t n, unsigned base, uint64_t *out)
{
    uint64_t v = 0;
    if (n == 0) return false;
    for (size_t i = 0; i < n; i++) {
        const int digit = hex_digit(at[i]);
        if (digit < 0 || (unsigned)digit >= base) return false;
        if (v > (UINT64_MAX - (unsigned)digit) / base) return false;
        v = v * base + (unsigned)digit;
    }
    *out = v;
    return true;
}

/* Stores the bits of m * 2^e, negated if asked, as a t. Returns false unless t holds that number
 * exactly. */
static bool exact_float(bool negative, uint64_t m, int64_t e, deft_dtype t, uint64_t *bits)
{
    const float_form f = form_of(t);
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    const uint64_t sign = (uint64_t)negative << (f.fraction_bits + f.exponent_bits);
    *bits = sign;
    if (m != 0) {
        const unsigned trailing = df_ctz64(m);
        m >>= trailing;
        e += trailing;
        unsigned length = 0;
        while (length < 64 && m >> length != 0) length++;
        if (length > f.fraction_bits + 1) return false;
        if (e + length - 1 > bias || e < 1 - bias - (int64_t)f.fraction_bits) return false;
        const int64_t top = e + length - 1; /* of the leading bit */
        const bool normal = top >= 1 - bias;
        const int64_t unit = (normal ? top : 1 - bias) - (int64_t)f.fraction_bits;
        const uint64_t significand = m << (e - unit);
        const uint64_t biased = normal ? (uint64_t)(top + bias) : 0;
        const uint64_t hidden = normal ? (uint64_t)1 << f.fraction_bits : 0;
        *bits = sign | biased << f.fraction_bits | (significand - hidden);
    }
    return true;
}

/* Reads the characters after "0x". */
static bool get_hex_float(const char *at, size_t n, bool negative, deft_dtype t, uint64_t *bits)
{
    uint64_t m = 0, power;
    int64_t e = 0;
    size_t i = 0;
    bool point = false, any = false;
    for (; i < n && at[i] != 'p'; i++) {
        if (at[i] == '.' && !point) {
            point = true;
            continue;
        }
        const int digit = hex_digit(at[i]);
        if (digit < 0) return false;
        any = true;
        if (m >> 60 == 0) {
            m = m << 4 | (unsigned)digit;
            e -= point ? 4 : 0;
        } else if (digit != 0) {
            return false; /* more digits than any dtype holds */
        } else {
            e += point ? 0 : 4;
        }
    }
    if (!any || i == n) return false;
    i++;
    const bool down = i < n && at[i] == '-';
    if (i < n && (at[i] == '-' || at[i] == '+')) i++;
    if (!get_digits(at + i, n - i, 10, &power) || power > 100000) return false;
    return exact_float(negative, m, e + (down ? -(int64_t)power : (int64_t)power), t, bits);
}

static bool get_float(const char *at, size_t n, bool negative, deft_dtype t, uint64_t *bits)
{
    const float_form f = form_of(t);
    const uint64_t infinity = (((uint64_t)1 << f.exponent_bits) - 1) << f.fraction_bits;
    const uint64_t sign = (uint64_t)negative << (f.fraction_bits + f.exponent_bits);
    uint64_t v;
    if (df_text_equals(at, n, "inf")) {
        *bits = infinity | sign;
        return true;
    }
    if (!negative && df_text_equals(at, n, "nan")) {
        *bits = f.quiet_nan;
        return true;
    }
    if (!negative && n > 6 && memcmp(at, "nan:0x", 6) == 0) {
        const uint64_t all = ((infinity >> f.fraction_bits) << (f.fraction_bits + 1)) |
                             (((uint64_t)1 << (f.fraction_bits + 1)) - 1);
        if (!get_digits(at + 6, n - 6, 16, &v) || v > all) return false;
        *bits = v;
        return (v & infinity) == infinity && (v & (((uint64_t)1 << f.fraction_bits) - 1)) != 0;
    }
    if (n > 2 && memcmp(at, "0x", 2) == 0) return get_hex_float(at + 2, n - 2, negative, t, bits);
    return get_digits(at, n, 10, &v) && exact_float(negative, v, 0, t, bits);
}

void df_text_put_loop(df_str *out, uint32_t attr)
{
    df_loop_tag tag;
    if (!df_loop_tag_of(attr, &tag) || tag.kind == DF_LOOP_PLAIN) return;
    df_str_fmt(out, " %s from=%s%s%s%s", df_loop_kind_name(tag.kind), deft_dtype_name(tag.from),
               tag.is_causal ? " causal" : "", tag.is_scaled ? " scaled" : "",
               tag.is_padded ? " padded" : "");
}

df_text_form df_text_form_of(df_op op)
{
    const uint8_t class = df_op_infos[op].cls;
    if (class == DF_CLASS_reduce) return DF_TEXT_reduce;
    if (class == DF_CLASS_scan || class == DF_CLASS_index || df_op_scatters(op))
        return DF_TEXT_axis;
    static const struct {
        uint8_t op, form;
    } forms[] = {
        { DF_OP_input, DF_TEXT_input },     { DF_OP_num, DF_TEXT_value },
        { DF_OP_cst, DF_TEXT_cst },         { DF_OP_iota, DF_TEXT_axis },
        { DF_OP_random, DF_TEXT_random },   { DF_OP_count, DF_TEXT_axes },
        { DF_OP_polygamma, DF_TEXT_power }, { DF_OP_powi, DF_TEXT_power },
        { DF_OP_slice, DF_TEXT_slice },     { DF_OP_permute, DF_TEXT_perm },
        { DF_OP_squeeze, DF_TEXT_axes },    { DF_OP_unsqueeze, DF_TEXT_axes },
        { DF_OP_diagonal, DF_TEXT_pair },   { DF_OP_argsort, DF_TEXT_order },
        { DF_OP_sort, DF_TEXT_order },      { DF_OP_topk, DF_TEXT_order },
        { DF_OP_which, DF_TEXT_which },     { DF_OP_loop, DF_TEXT_loop },
        { DF_OP_call, DF_TEXT_call },       { DF_OP_result, DF_TEXT_index },
    };
    for (size_t i = 0; i < DF_LEN(forms); i++)
        if (forms[i].op == op) return (df_text_form)forms[i].form;
    return DF_TEXT_none;
}

void df_text_put_number(df_str *out, deft_dtype t, uint64_t bits)
{
    if (df_is_float(t))
        put_float(out, t, bits);
    else if (df_is_signed(t))
        df_str_fmt(out, "%" PRId64, df_int_of_bits(t, bits));
    else
        df_str_fmt(out, "%" PRIu64, bits);
}

bool df_text_get_number(const char *text, size_t n, deft_dtype t, uint64_t *bits)
{
    const bool negative = n > 0 && text[0] == '-';
    const char *const at = text + negative;
    n -= negative;
    if (df_is_float(t)) return get_float(at, n, negative, t, bits);
    uint64_t v;
    if (!get_digits(at, n, 10, &v)) return false;
    const uint64_t most = df_int_greatest(t);
    const bool has_sign = df_is_signed(t);
    if (v > most + (negative && has_sign) || (negative && !has_sign && v != 0)) return false;
    const uint64_t wrapped = negative ? 0 - v : v;
    *bits = wrapped & df_all_bits(t);
    return true;
}
