/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints every recipe as a straight-line C function:
 *
 *     gen_recipe_c > recipes_gen.h
 *
 * static inline float dr_exp_f32(float x), static inline double dr_exp_f64(double x), and so on;
 * also dr_pow_*, dr_atan2_* and dr_philox. The text holds no branch but the conditional operator,
 * so compilers can vectorize a loop around it. Hand-written strict references take their
 * transcendentals from here and therefore agree with the library bit for bit when built with
 * -ffp-contract=off.
 *
 * A recipe runs once against an emitter that keeps the instructions; only those the results need
 * are printed, constants in place of their use. Same recipes, same bytes.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/kop.h"
#include "ops/recipe.h"

enum { MAX_INS = 16384, MAX_PARAMS = 3, K_PARAM = DF_N_KOPS, WORD_SIZE = 64 };

typedef struct ins {
    int op; /* df_kop, or K_PARAM with its number in imm */
    deft_dtype type;
    uint32_t src[3];
    uint64_t imm;
    bool used;
} ins;

typedef struct recorder {
    df_emit emit; /* first: the recipe's view */
    uint32_t n;
    ins body[MAX_INS];
} recorder;

static const char *const type_names[] = {
    [DEFT_BOOL] = "_Bool",  [DEFT_U8] = "uint8_t", [DEFT_I32] = "int32_t",
    [DEFT_I64] = "int64_t", [DEFT_F32] = "float",  [DEFT_F64] = "double"
};
static const char *const unsigned_names[] = {
    [DEFT_U8] = "uint8_t", [DEFT_I32] = "uint32_t", [DEFT_I64] = "uint64_t"
};
static const char *const short_names[] = {
    [DEFT_BOOL] = "bool", [DEFT_U8] = "u8",   [DEFT_I32] = "i32",
    [DEFT_I64] = "i64",   [DEFT_F32] = "f32", [DEFT_F64] = "f64"
};
static const char *const param_names[MAX_PARAMS] = { "x", "y", "z" };

static _Noreturn void die(const char *function, const char *why, const char *what)
{
    fprintf(stderr, "gen_recipe_c: %s: %s %s\n", function, why, what);
    exit(1);
}

static bool is_float(deft_dtype t)
{
    return t == DEFT_F32 || t == DEFT_F64;
}

/* What the C library's functions of this type end in. */
static const char *suffix(deft_dtype t)
{
    return t == DEFT_F32 ? "f" : "";
}

static int bits_of(deft_dtype t)
{
    return t == DEFT_BOOL ? 1 : (int)df_bits_of(t);
}

/* ---- recording ---- */

static bool same(const ins *a, const ins *b)
{
    return a->op == b->op && a->type == b->type && a->imm == b->imm &&
           memcmp(a->src, b->src, sizeof a->src) == 0;
}

static uint32_t add(recorder *r, ins in)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (same(&r->body[i], &in)) return i;
    if (r->n == MAX_INS) die("recorder", "too many instructions", "");
    r->body[r->n] = in;
    return r->n++;
}

static uint32_t record(df_emit *e, df_kop op, deft_dtype t, uint32_t a, uint32_t b, uint32_t c,
                       uint64_t imm)
{
    const int n_src = df_kop_infos[op].n_src;
    return add((recorder *)e,
               (ins){ .op = (int)op,
                      .type = t,
                      .src = { n_src > 0 ? a : 0, n_src > 1 ? b : 0, n_src > 2 ? c : 0 },
                      .imm = imm });
}

static void restart(recorder *r)
{
    r->emit = (df_emit){ .ins = record };
    r->n = 0;
}

static uint32_t param(recorder *r, uint64_t number, deft_dtype t)
{
    return add(r, (ins){ .op = K_PARAM, .type = t, .imm = number });
}

static int n_src_of(const ins *in)
{
    return in->op == K_PARAM ? 0 : df_kop_infos[in->op].n_src;
}

static void mark_used(recorder *r, const uint32_t *results, int n_results)
{
    for (int i = 0; i < n_results; i++) r->body[results[i]].used = true;
    for (uint32_t i = r->n; i-- > 0;)
        if (r->body[i].used)
            for (int s = 0; s < n_src_of(&r->body[i]); s++) r->body[r->body[i].src[s]].used = true;
}

/* ---- printing ---- */

static void constant(char *out, deft_dtype t, uint64_t bits)
{
    const uint32_t low = (uint32_t)bits;
    float f;
    double d;
    memcpy(&f, &low, sizeof f);
    memcpy(&d, &bits, sizeof d);
    if (df_is_half(t)) die("constant", "recipes are of f32 and f64, not of", "halves");
    if (t == DEFT_F32 && (low & 0x7f800000u) == 0x7f800000u)
        snprintf(out, WORD_SIZE, "dr_f32(0x%08" PRIx32 ")", low);
    else if (t == DEFT_F32)
        snprintf(out, WORD_SIZE, low >> 31 ? "(%af)" : "%af", (double)f);
    else if (t == DEFT_F64 && (bits >> 52 & 0x7ff) == 0x7ff)
        snprintf(out, WORD_SIZE, "dr_f64(0x%016" PRIx64 ")", bits);
    else if (t == DEFT_F64)
        snprintf(out, WORD_SIZE, bits >> 63 ? "(%a)" : "%a", d);
    else if (df_is_signed(t))
        snprintf(out, WORD_SIZE, "(%s)0x%" PRIx64 "u", type_names[t], bits & df_all_bits(t));
    else
        snprintf(out, WORD_SIZE, "(%s)%d", type_names[t], (int)df_int_of_bits(t, bits));
}

/* The name of a value, or its text when it is a constant. */
static const char *word(const recorder *r, uint32_t id, char *out)
{
    const ins *in = &r->body[id];
    if (in->op == K_PARAM)
        snprintf(out, WORD_SIZE, "%s", param_names[in->imm]);
    else if (in->op == DF_K_const)
        constant(out, in->type, in->imm);
    else
        snprintf(out, WORD_SIZE, "v%" PRIu32, id);
    return out;
}

static void wrapping(FILE *f, deft_dtype t, const char *a, const char *op, const char *b)
{
    if (is_float(t))
        fprintf(f, "%s %s %s", a, op, b);
    else
        fprintf(f, "(%s)((%s)%s %s (%s)%s)", type_names[t], unsigned_names[t], a, op,
                unsigned_names[t], b);
}

static void shift(FILE *f, const recorder *r, const ins *in, const char *a, const char *b)
{
    const char *s = type_names[in->type], *u = unsigned_names[in->type];
    const ins *count = &r->body[in->src[1]];
    const int width = bits_of(in->type);
    const char *value = in->op == DF_K_shr ? s : u;
    const char *arrow = in->op == DF_K_shl ? "<<" : ">>";
    if (count->op == DF_K_const && count->imm < (uint64_t)width) {
        fprintf(f, "(%s)((%s)%s %s %d)", s, value, a, arrow, (int)count->imm);
        return;
    }
    fprintf(f, "(uint64_t)%s < %d ? (%s)((%s)%s %s (%s & %d)) : ", b, width, s, value, a, arrow, b,
            width - 1);
    if (in->op == DF_K_shr && in->type != DEFT_U8)
        fprintf(f, "(%s)(%s >> %d)", s, a, width - 1);
    else
        fprintf(f, "(%s)0", s);
}

static void convert(FILE *f, deft_dtype from, deft_dtype to, const char *a)
{
    if (to == DEFT_BOOL)
        fprintf(f, "%s != 0", a);
    else if (is_float(from) && !is_float(to)) {
        fprintf(f, "dr_%s_to_%s(%s)", short_names[from], short_names[to], a);
    } else
        fprintf(f, "(%s)%s", type_names[to], a);
}

static void call(FILE *f, const char *name, deft_dtype t, const char *args)
{
    fprintf(f, "__builtin_%s%s(%s)", name, suffix(t), args);
}

static void extremum(FILE *f, deft_dtype t, const char *a, const char *op, const char *b)
{
    /* | and not ||: a second branch would keep gcc from vectorizing. */
    if (is_float(t))
        fprintf(f, "((%s %s %s) | (%s != %s)) ? %s : %s", a, op, b, a, a, a, b);
    else
        fprintf(f, "%s %s %s ? %s : %s", a, op, b, a, b);
}

static void expression(FILE *f, const recorder *r, const ins *in, const char *function)
{
    char wa[WORD_SIZE], wb[WORD_SIZE], wc[WORD_SIZE], both[3 * WORD_SIZE + 8];
    const int n = n_src_of(in);
    const char *a = n > 0 ? word(r, in->src[0], wa) : "";
    const char *b = n > 1 ? word(r, in->src[1], wb) : "";
    const char *c = n > 2 ? word(r, in->src[2], wc) : "";
    const deft_dtype t = in->type, from = n > 0 ? r->body[in->src[0]].type : t;
    const bool fl = is_float(t);

    switch ((df_kop)in->op) {
    case DF_K_add: wrapping(f, t, a, "+", b); return;
    case DF_K_sub: wrapping(f, t, a, "-", b); return;
    case DF_K_mul: wrapping(f, t, a, "*", b); return;
    case DF_K_div:
        if (fl)
            fprintf(f, "%s / %s", a, b);
        else
            fprintf(f, "dr_div_%s(%s, %s)", short_names[t], a, b);
        return;
    case DF_K_rem:
        snprintf(both, sizeof both, "%s, %s", a, b);
        if (fl)
            call(f, "fmod", t, both);
        else
            fprintf(f, "dr_rem_%s(%s)", short_names[t], both);
        return;
    case DF_K_fma:
        snprintf(both, sizeof both, "%s, %s, %s", a, b, c);
        call(f, "fma", t, both);
        return;
    case DF_K_scale: fprintf(f, "dr_scale_%s(%s, %s)", short_names[t], a, c); return;
    case DF_K_neg:
        if (fl)
            fprintf(f, "-%s", a);
        else
            wrapping(f, t, "0", "-", a);
        return;
    case DF_K_abs:
        if (fl)
            call(f, "fabs", t, a);
        else
            fprintf(f, "%s < 0 ? (%s)(0 - (%s)%s) : %s", a, type_names[t], unsigned_names[t], a, a);
        return;
    case DF_K_sqrt: call(f, "sqrt", t, a); return;
    case DF_K_min: extremum(f, t, a, "<", b); return;
    case DF_K_max: extremum(f, t, a, ">", b); return;
    case DF_K_floor: call(f, "floor", t, a); return;
    case DF_K_ceil: call(f, "ceil", t, a); return;
    case DF_K_trunc: call(f, "trunc", t, a); return;
    case DF_K_rint: call(f, "rint", t, a); return;
    case DF_K_and: fprintf(f, "(%s)(%s & %s)", type_names[t], a, b); return;
    case DF_K_or: fprintf(f, "(%s)(%s | %s)", type_names[t], a, b); return;
    case DF_K_xor: fprintf(f, "(%s)(%s ^ %s)", type_names[t], a, b); return;
    case DF_K_not: fprintf(f, t == DEFT_BOOL ? "!%s" : "~%s", a); return;
    case DF_K_shl:
    case DF_K_shr:
    case DF_K_lshr: shift(f, r, in, a, b); return;
    case DF_K_eq: fprintf(f, "%s == %s", a, b); return;
    case DF_K_ne: fprintf(f, "%s != %s", a, b); return;
    case DF_K_lt: fprintf(f, "%s < %s", a, b); return;
    case DF_K_le: fprintf(f, "%s <= %s", a, b); return;
    case DF_K_select: fprintf(f, "%s ? %s : %s", a, b, c); return;
    case DF_K_cast: convert(f, from, t, a); return;
    case DF_K_bitcast:
        if (from == t)
            fprintf(f, "%s", a);
        else
            fprintf(f, "dr_bits_%s(%s)", short_names[t], a);
        return;
    case DF_K_check:
#define KOP(name, n_src, kind, types, join, identity) DF_CASE_##kind(name)
#include "ops/kops.def"
    case DF_N_KOPS: break;
    }
    die(function, "a recipe may not use", in->op < DF_N_KOPS ? df_kop_infos[in->op].name : "?");
}

static void statements(FILE *f, const recorder *r, const char *function)
{
    for (uint32_t i = 0; i < r->n; i++) {
        const ins *in = &r->body[i];
        if (!in->used || in->op == K_PARAM || in->op == DF_K_const) continue;
        fprintf(f, "    const %s v%" PRIu32 " = ", type_names[in->type], i);
        expression(f, r, in, function);
        fputs(";\n", f);
    }
}

static void function(FILE *f, recorder *r, const char *name, deft_dtype t, int n_params,
                     uint32_t result)
{
    char w[WORD_SIZE];
    mark_used(r, &result, 1);
    fprintf(f, "\nDR_INLINE %s dr_%s_%s(", type_names[t], name, short_names[t]);
    for (int i = 0; i < n_params; i++)
        fprintf(f, "%s%s %s", i ? ", " : "", type_names[t], param_names[i]);
    fputs(")\n{\n", f);
    statements(f, r, name);
    fprintf(f, "    return %s;\n}\n", word(r, result, w));
}

static void unary(FILE *f, recorder *r, const char *name, deft_dtype t,
                  uint32_t (*recipe)(df_emit *, deft_dtype, uint32_t))
{
    restart(r);
    const uint32_t x = param(r, 0, t);
    function(f, r, name, t, 1, recipe(&r->emit, t, x));
}

static void binary(FILE *f, recorder *r, const char *name, deft_dtype t,
                   uint32_t (*recipe)(df_emit *, deft_dtype, uint32_t, uint32_t))
{
    restart(r);
    const uint32_t x = param(r, 0, t), y = param(r, 1, t);
    function(f, r, name, t, 2, recipe(&r->emit, t, x, y));
}

static void philox(FILE *f, recorder *r)
{
    uint32_t out[4];
    char w[WORD_SIZE];
    restart(r);
    const uint32_t x = param(r, 0, DEFT_I64), y = param(r, 1, DEFT_I64), z = param(r, 2, DEFT_I64);
    df_recipe_philox(&r->emit, x, y, z, out);
    mark_used(r, out, 4);
    fputs("\n/* x seed, y draw, z element; four 32-bit words. */\n"
          "DR_INLINE void dr_philox(int64_t x, int64_t y, int64_t z, int64_t out[4])\n{\n",
          f);
    statements(f, r, "philox");
    for (int i = 0; i < 4; i++) fprintf(f, "    out[%d] = %s;\n", i, word(r, out[i], w));
    fputs("}\n", f);
}

static const char preamble[] =
    "/* Made by gen_recipe_c from the recipes in src/ops: do not edit. Build with "
    "-ffp-contract=off. */\n"
    "#ifndef DEFT_RECIPES_GEN_H\n"
    "#define DEFT_RECIPES_GEN_H\n\n"
    "#include <stdint.h>\n"
    "#include <string.h>\n\n"
    "/* Large bodies must still go inline, or no loop around them vectorizes. */\n"
    "#define DR_INLINE static inline __attribute__((always_inline, unused))\n\n"
    "DR_INLINE float dr_f32(uint32_t b) { float f; memcpy(&f, &b, 4); return f; }\n"
    "DR_INLINE double dr_f64(uint64_t b) { double f; memcpy(&f, &b, 8); return f; }\n"
    "DR_INLINE float dr_bits_f32(int32_t b) { float f; memcpy(&f, &b, 4); return f; }\n"
    "DR_INLINE double dr_bits_f64(int64_t b) { double f; memcpy(&f, &b, 8); return f; }\n"
    "DR_INLINE int32_t dr_bits_i32(float f) { int32_t b; memcpy(&b, &f, 4); return b; }\n"
    "DR_INLINE int64_t dr_bits_i64(double f) { int64_t b; memcpy(&b, &f, 8); return b; }\n"
    "DR_INLINE float dr_scale_f32(float p, float sum)\n{\n"
    "    const uint32_t b = (uint32_t)dr_bits_i32(sum), h = b >> 1;\n"
    "    return p * dr_f32(h << 23) * dr_f32((b - h) << 23);\n}\n"
    "DR_INLINE double dr_scale_f64(double p, double sum)\n{\n"
    "    const uint64_t b = (uint64_t)dr_bits_i64(sum), h = b >> 1;\n"
    "    return p * dr_f64(h << 52) * dr_f64((b - h) << 52);\n}\n";

/* Value conversions saturate and take NaN to 0; integer division by 0 gives 0, and MIN / -1 is MIN.
 */
static void helpers(FILE *f)
{
    static const struct {
        deft_dtype to;
        const char *low, *high, *least, *greatest;
    } ints[] = { { DEFT_U8, "0", "256", "0", "255" },
                 { DEFT_I32, "-0x1p31", "0x1p31", "INT32_MIN", "INT32_MAX" },
                 { DEFT_I64, "-0x1p63", "0x1p63", "INT64_MIN", "INT64_MAX" } };
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        const char *to = type_names[ints[i].to], *name = short_names[ints[i].to];
        for (int from = DEFT_F32; from <= DEFT_F64; from++)
            fprintf(f,
                    "DR_INLINE %s dr_%s_to_%s(%s x)\n"
                    "{\n    return x != x ? 0 : x < %s ? %s : x >= %s ? %s : (%s)x;\n}\n",
                    to, short_names[from], name, type_names[from], ints[i].low, ints[i].least,
                    ints[i].high, ints[i].greatest, to);
        fprintf(f, "DR_INLINE %s dr_div_%s(%s a, %s b)\n{\n    return b == 0 ? 0 : ", to, name, to,
                to);
        if (ints[i].to == DEFT_U8)
            fputs("(uint8_t)(a / b);\n}\n", f);
        else
            fprintf(f, "b == -1 ? (%s)(0 - (%s)a) : a / b;\n}\n", to, unsigned_names[ints[i].to]);
        fprintf(f, "DR_INLINE %s dr_rem_%s(%s a, %s b)\n{\n    return b == 0 ? a : ", to, name, to,
                to);
        if (ints[i].to == DEFT_U8)
            fputs("(uint8_t)(a % b);\n}\n", f);
        else
            fputs("b == -1 ? 0 : a % b;\n}\n", f);
    }
}

int main(void)
{
    recorder *r = malloc(sizeof *r);
    if (!r) die("main", "out of memory", "");
    fputs(preamble, stdout);
    helpers(stdout);
    for (int i = 0; i < 2; i++) {
        const deft_dtype t = i ? DEFT_F64 : DEFT_F32;
#define X(name) unary(stdout, r, #name, t, df_recipe_##name);
        DF_RECIPES(X)
#undef X
        binary(stdout, r, "pow", t, df_recipe_pow);
        binary(stdout, r, "atan2", t, df_recipe_atan2);
    }
    philox(stdout, r);
    fputs("\n#endif\n", stdout);
    free(r);
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
