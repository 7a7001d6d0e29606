/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates formulas (deft/formula.h) to code: a recursive descent over the text. Steps that are
 * equal are one, and operations on numbers alone are computed here.
 *
 * Why this file is long: it is one grammar, whose rules call each other.
 */
#include "lazy/extend/formula.h"

#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_NUMBERS = 1000,
    MOST_NAMES = 256,
    MOST_DEPTH = 64, /* of parentheses and of operators without them */
    MOST_BYTES = 65535,
    MOST_CALLED = 64,    /* other formulas */
    MOST_ARGUMENTS = 64, /* of one call */
    MOST_CALL_ARGUMENTS = 1000,
    NO_REF = 0xFFFF, /* after an error */
};

/* ---- functions ---- */

static const char *const op_names[] = {
#define DF_NAME_OF(name) #name,
    DEFT_UNARY_OPS(DF_NAME_OF) DEFT_BINARY_OPS(DF_NAME_OF)
#undef DF_NAME_OF
        "fma",
    "where",
    NULL,
};

static const struct {
    const char *name;
    uint16_t op;
} short_names[] = { { "min", DF_FORMULA_minimum }, { "max", DF_FORMULA_maximum } };

static uint32_t n_operands(uint32_t op)
{
    return op < DF_FORMULA_FIRST_BINARY ? 1 : op < DF_FORMULA_FMA ? 2 : 3;
}

/* ---- the parser ---- */

typedef struct text_span {
    const char *at;
    size_t n;
} text_span;

typedef struct named_value {
    text_span text;
    df_formula_ref value;
} named_value;

typedef struct formula_parser {
    const char *text, *at;
    const char *what; /* the name of the operator, for sentences */
    deft_runtime *rt;
    df_formula_find_fn find;
    int depth;
    uint32_t n_inputs, n_steps, n_numbers, n_names, n_results, n_called, n_arguments;
    bool is_slope; /* results may be numbers */
    deft_status st;
    char *why;
    size_t n_why;
    df_formula_number number[MOST_NUMBERS];
    df_formula_step step[DF_FORMULA_MOST_STEPS];
    named_value name[MOST_NAMES];
    deft_op *called[MOST_CALLED];
    df_formula_ref argument[MOST_CALL_ARGUMENTS];
    df_formula_ref result[DEFT_OP_MAX_TENSORS * DEFT_OP_MAX_TENSORS];
} formula_parser;

static void fail_at(formula_parser *p, const char *at, deft_status st, const char *fmt, ...)
    DF_PRINTF(4, 5);

/* Notes the first mistake, which ends the parsing. */
static void fail_at(formula_parser *p, const char *at, deft_status st, const char *fmt, ...)
{
    if (p->st != DEFT_OK) return;
    p->st = st;
    if (!p->n_why) return;
    int line = 1;
    const char *start = p->text;
    for (const char *c = p->text; c < at; c++)
        if (*c == '\n') line++, start = c + 1;
    const int n = snprintf(p->why, p->n_why, "formula_define: %s: %sline %d, column %d: ", p->what,
                           p->is_slope ? "derivative: " : "", line, (int)(at - start) + 1);
    if (n < 0 || (size_t)n >= p->n_why) return;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(p->why + n, p->n_why - (size_t)n, fmt, ap);
    va_end(ap);
}

static bool text_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool text_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Goes to the next token. */
static void skip_to_token(formula_parser *p)
{
    for (;;) {
        while (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r') p->at++;
        if (p->at[0] != '/' || (p->at[1] != '/' && p->at[1] != '*')) return;
        const char *const end = p->at[1] == '/' ? strchr(p->at + 2, '\n') : strstr(p->at + 2, "*/");
        if (end) {
            p->at = end + (p->at[1] == '/' ? 1 : 2);
        } else {
            if (p->at[1] == '*') fail_at(p, p->at, DEFT_E_ARG, "a comment that does not end");
            p->at += strlen(p->at);
        }
    }
}

/* Takes the token s, when it comes next. */
static bool take_token(formula_parser *p, const char *s)
{
    skip_to_token(p);
    const size_t n = strlen(s);
    if (strncmp(p->at, s, n)) return false;
    p->at += n;
    return true;
}

static bool expect_token(formula_parser *p, const char *s)
{
    if (p->st == DEFT_OK && take_token(p, s)) return true;
    if (*p->at)
        fail_at(p, p->at, DEFT_E_ARG, "'%s' is missing before '%.1s'", s, p->at);
    else
        fail_at(p, p->at, DEFT_E_ARG, "'%s' is missing at the end", s);
    return false;
}

/* The name that comes next; n is 0 when there is none. Names of other formulas have points. */
static text_span take_name(formula_parser *p)
{
    skip_to_token(p);
    text_span s = { p->at, 0 };
    if (!text_is_letter(*p->at)) return s;
    while (text_is_letter(s.at[s.n]) || text_is_digit(s.at[s.n]) ||
           (s.at[s.n] == '.' && text_is_letter(s.at[s.n + 1])))
        s.n++;
    p->at += s.n;
    return s;
}

static bool is_word(text_span s, const char *word)
{
    return strlen(word) == s.n && !memcmp(s.at, word, s.n);
}

static int shown_length(text_span s)
{
    return s.n < 64 ? (int)s.n : 64;
}

/* ---- code ---- */

static bool text_is_number(df_formula_ref r)
{
    return r & DF_FORMULA_NUMBER;
}

static df_formula_ref text_number(formula_parser *p, df_formula_number v)
{
    for (uint32_t i = 0; i < p->n_numbers; i++) {
        const df_formula_number *const n = &p->number[i];
        if (n->is_int == v.is_int && n->i == v.i && !memcmp(&n->f, &v.f, sizeof v.f))
            return (df_formula_ref)(DF_FORMULA_NUMBER | i);
    }
    if (p->n_numbers == MOST_NUMBERS) {
        fail_at(p, p->at, DEFT_E_LIMIT, "more than %d numbers", MOST_NUMBERS);
        return NO_REF;
    }
    p->number[p->n_numbers] = v;
    return (df_formula_ref)(DF_FORMULA_NUMBER | p->n_numbers++);
}

static df_formula_ref add_float(formula_parser *p, double f)
{
    return text_number(p, (df_formula_number){ .f = f });
}

static df_formula_ref add_int(formula_parser *p, int64_t i)
{
    return text_number(p, (df_formula_number){ .f = (double)i, .i = i, .is_int = true });
}

static df_formula_ref text_step(formula_parser *p, uint32_t op, df_formula_ref a, df_formula_ref b,
                                df_formula_ref c)
{
    if (p->st != DEFT_OK) return NO_REF;
    const df_formula_step s = { (uint16_t)op, { a, b, c } };
    for (uint32_t i = 0; i < p->n_steps; i++)
        if (!memcmp(&p->step[i], &s, sizeof s)) return (df_formula_ref)(p->n_inputs + i);
    if (p->n_steps == DF_FORMULA_MOST_STEPS) {
        fail_at(p, p->at, DEFT_E_LIMIT, "more than %d operations", DF_FORMULA_MOST_STEPS);
        return NO_REF;
    }
    p->step[p->n_steps] = s;
    return (df_formula_ref)(p->n_inputs + p->n_steps++);
}

/* a op b for two integers. Returns false when that is no integer of 64 bits, or not computed
 * here. */
static bool fold_ints(uint32_t op, int64_t a, int64_t b, int64_t *out)
{
    switch (op) {
    case DF_FORMULA_add: return !__builtin_add_overflow(a, b, out);
    case DF_FORMULA_sub: return !__builtin_sub_overflow(a, b, out);
    case DF_FORMULA_mul: return !__builtin_mul_overflow(a, b, out);
    }
    return false;
}

/* op on numbers alone. */
static df_formula_ref fold_numbers(formula_parser *p, const char *at, uint32_t op,
                                   df_formula_ref ra, df_formula_ref rb)
{
    const df_formula_number a = p->number[ra & ~DF_FORMULA_NUMBER];
    const df_formula_number b = p->number[rb & ~DF_FORMULA_NUMBER];
    int64_t i;
    switch (op) {
    case DF_FORMULA_add:
    case DF_FORMULA_sub:
    case DF_FORMULA_mul:
        if (a.is_int && b.is_int) {
            if (fold_ints(op, a.i, b.i, &i)) return add_int(p, i);
            fail_at(p, at, DEFT_E_ARG, "the integer does not fit 64 bits");
            return NO_REF;
        }
        return add_float(p, op == DF_FORMULA_add   ? a.f + b.f
                            : op == DF_FORMULA_sub ? a.f - b.f
                                                   : a.f * b.f);
    case DF_FORMULA_div: return add_float(p, a.f / b.f);
    case DF_FORMULA_neg:
        if (!a.is_int) return add_float(p, -a.f);
        if (fold_ints(DF_FORMULA_sub, 0, a.i, &i)) return add_int(p, i);
        break;
    case DF_FORMULA_abs:
        if (!a.is_int) return add_float(p, fabs(a.f));
        return a.i < 0 ? fold_numbers(p, at, DF_FORMULA_neg, ra, ra) : ra;
    case DF_FORMULA_sqrt: return add_float(p, sqrt(a.f));
    }
    fail_at(p, at, DEFT_E_ARG, "%s of numbers alone: write its value", op_names[op]);
    return NO_REF;
}

static df_formula_ref text_apply(formula_parser *p, const char *at, uint32_t op, df_formula_ref a,
                                 df_formula_ref b, df_formula_ref c)
{
    const uint32_t n = n_operands(op);
    if (p->st != DEFT_OK) return NO_REF;
    const bool are_numbers =
        text_is_number(a) && (n < 2 || text_is_number(b)) && (n < 3 || text_is_number(c));
    if (op == DF_FORMULA_WHERE && text_is_number(a)) {
        fail_at(p, at, DEFT_E_ARG, "the condition is a number");
        return NO_REF;
    }
    return are_numbers ? fold_numbers(p, at, op, a, b) : text_step(p, op, a, b, c);
}

/* ---- expressions ---- */

static df_formula_ref text_expression(formula_parser *p);

static df_formula_ref number_token(formula_parser *p)
{
    const char *const at = p->at;
    char text[80], *end = text;
    size_t n = 0, used = 0;
    const bool is_hex = at[0] == '0' && (at[1] == 'x' || at[1] == 'X');
    bool is_int = true;
    if (is_hex) n = 2 + strspn(at + 2, "0123456789abcdefABCDEF");
    while (!is_hex && (text_is_digit(at[n]) || at[n] == '.' || at[n] == 'e' || at[n] == 'E')) {
        is_int = is_int && text_is_digit(at[n]);
        n += (at[n] == 'e' || at[n] == 'E') && (at[n + 1] == '+' || at[n + 1] == '-') ? 2 : 1;
    }
    /* The C library reads the decimal point of the locale, which may have several bytes. */
    const char *const point = localeconv()->decimal_point;
    for (size_t i = 0; i < n && used < 64; i++)
        used += at[i] == '.' ? (size_t)snprintf(text + used, sizeof text - used, "%.8s", point)
                             : (size_t)(text[used] = at[i], 1);
    text[used] = '\0';
    p->at = at + n;
    const double f = is_hex ? 0 : strtod(text, &end);
    const bool is_whole = used < 64 && (is_hex ? n > 2 && n <= 18 : !*end);
    if (!is_whole || text_is_letter(*p->at)) {
        fail_at(p, at, DEFT_E_ARG, "\"%.*s\" is no number", shown_length((text_span){ at, n + 1 }),
                at);
        return NO_REF;
    }
    if (!is_int) return add_float(p, f);
    const unsigned long long u = strtoull(text, NULL, is_hex ? 16 : 10);
    if (u <= INT64_MAX && n < 20) return add_int(p, (int64_t)u);
    fail_at(p, at, DEFT_E_ARG, "%.*s does not fit 63 bits", (int)n, at);
    return NO_REF;
}

/* The arguments of a call, up to `most`. Returns their number. */
static uint32_t argument_list(formula_parser *p, df_formula_ref *a, uint32_t most)
{
    uint32_t n = 0;
    if (!expect_token(p, "(")) return 0;
    do {
        const char *const at = p->at;
        const df_formula_ref r = text_expression(p);
        if (n == most)
            fail_at(p, at, DEFT_E_ARG, "more than %u arguments", most);
        else
            a[n++] = r;
    } while (p->st == DEFT_OK && take_token(p, ","));
    (void)expect_token(p, ")");
    return n;
}

static df_formula_ref text_polynomial(formula_parser *p, const char *at, const df_formula_ref *a,
                                      uint32_t n)
{
    if (n < 2) {
        fail_at(p, at, DEFT_E_ARG, "polyval takes x and the coefficients");
        return NO_REF;
    }
    df_formula_ref y = a[1];
    for (uint32_t i = 2; i < n; i++)
        y = text_apply(p, at, DF_FORMULA_add, text_apply(p, at, DF_FORMULA_mul, y, a[0], 0), a[i],
                       0);
    return y;
}

static bool find_op(text_span s, uint32_t *op)
{
    for (*op = 0; op_names[*op]; ++*op)
        if (is_word(s, op_names[*op])) return true;
    for (size_t i = 0; i < sizeof short_names / sizeof *short_names; i++) {
        *op = short_names[i].op;
        if (is_word(s, short_names[i].name)) return true;
    }
    return false;
}

static bool find_dtype(text_span s, df_formula_ref *dtype)
{
    for (*dtype = 0; *dtype < DEFT_N_DTYPES; ++*dtype)
        if (is_word(s, deft_dtype_name((deft_dtype)*dtype))) return true;
    return false;
}

/* The formula that s names, which takes n arguments. NULL after a mistake. */
static deft_op *find_called(formula_parser *p, text_span s, uint32_t n)
{
    char name[DEFT_OP_MAX_NAME + 1];
    (void)snprintf(name, sizeof name, "%.*s", shown_length(s), s.at);
    deft_op *const op = s.n < sizeof name ? p->find(p->rt, name) : NULL;
    if (!op || !op->formula)
        fail_at(p, s.at, DEFT_E_ARG, "%s is no formula of this runtime", name);
    else if (op->def.n_out != 1)
        fail_at(p, s.at, DEFT_E_ARG, "%s has %u results, and must have one", name, op->def.n_out);
    else if (op->def.n_in != n)
        fail_at(p, s.at, DEFT_E_ARG, "%s takes %u arguments, and not %u", name, op->def.n_in, n);
    return p->st == DEFT_OK ? op : NULL;
}

/* The call of another formula. */
static df_formula_ref call_formula(formula_parser *p, text_span s, const df_formula_ref *a,
                                   uint32_t n)
{
    deft_op *const op = find_called(p, s, n);
    uint32_t which = 0, i = 0;
    if (!op) return NO_REF;
    while (i < n && text_is_number(a[i])) i++;
    if (i == n) {
        fail_at(p, s.at, DEFT_E_ARG, "%s of numbers alone: write its value", op->name);
        return NO_REF;
    }
    while (which < p->n_called && p->called[which] != op) which++;
    if (which == MOST_CALLED || p->n_arguments + n > MOST_CALL_ARGUMENTS) {
        fail_at(p, s.at, DEFT_E_LIMIT, "more than %d formulas are called, with %d arguments",
                MOST_CALLED, MOST_CALL_ARGUMENTS);
        return NO_REF;
    }
    if (which == p->n_called) p->called[p->n_called++] = op;
    const uint32_t first = p->n_arguments;
    memcpy(&p->argument[first], a, n * sizeof *a);
    p->n_arguments += n;
    return text_step(p, DF_FORMULA_CALL, (df_formula_ref)which, (df_formula_ref)first,
                     (df_formula_ref)n);
}

static df_formula_ref text_call(formula_parser *p, text_span s)
{
    df_formula_ref a[MOST_ARGUMENTS] = { 0 }, dtype;
    uint32_t op, wants;
    const uint32_t n = argument_list(p, a, MOST_ARGUMENTS);
    if (p->st != DEFT_OK) return NO_REF;
    if (memchr(s.at, '.', s.n)) return call_formula(p, s, a, n);
    if (is_word(s, "polyval")) return text_polynomial(p, s.at, a, n);
    if (is_word(s, "clamp") && n == 3)
        return text_apply(p, s.at, DF_FORMULA_minimum,
                          text_apply(p, s.at, DF_FORMULA_maximum, a[0], a[1], 0), a[2], 0);
    if (find_op(s, &op)) {
        wants = n_operands(op);
        if (n == wants) return text_apply(p, s.at, op, a[0], n > 1 ? a[1] : 0, n > 2 ? a[2] : 0);
    } else if (find_dtype(s, &dtype)) {
        wants = 1;
        if (n == 1 && !text_is_number(a[0])) return text_step(p, DF_FORMULA_CAST, a[0], dtype, 0);
        if (n == 1) {
            fail_at(p, s.at, DEFT_E_ARG, "%.*s of a number, which has no dtype of its own",
                    shown_length(s), s.at);
            return NO_REF;
        }
    } else if (is_word(s, "clamp")) {
        wants = 3;
    } else {
        fail_at(p, s.at, DEFT_E_ARG, "\"%.*s\" is no function of formulas", shown_length(s), s.at);
        return NO_REF;
    }
    fail_at(p, s.at, DEFT_E_ARG, "%.*s takes %u arguments, and not %u", shown_length(s), s.at,
            wants, n);
    return NO_REF;
}

static df_formula_ref text_primary(formula_parser *p)
{
    skip_to_token(p);
    if (text_is_digit(*p->at) || (*p->at == '.' && text_is_digit(p->at[1]))) return number_token(p);
    if (take_token(p, "(")) {
        const df_formula_ref r = text_expression(p);
        (void)expect_token(p, ")");
        return r;
    }
    const text_span s = take_name(p);
    if (!s.n) {
        fail_at(p, p->at, DEFT_E_ARG,
                *p->at ? "an expression is missing before '%.1s'" : "an expression is missing%s",
                p->at);
        return NO_REF;
    }
    for (uint32_t i = 0; i < p->n_names; i++)
        if (s.n == p->name[i].text.n && !memcmp(s.at, p->name[i].text.at, s.n))
            return p->name[i].value;
    skip_to_token(p);
    if (*p->at == '(') return text_call(p, s);
    if (is_word(s, "pi")) return add_float(p, 3.14159265358979323846);
    if (is_word(s, "inf")) return add_float(p, INFINITY);
    if (is_word(s, "nan")) return add_float(p, NAN);
    fail_at(p, s.at, DEFT_E_ARG, "\"%.*s\" has no value yet", shown_length(s), s.at);
    return NO_REF;
}

static df_formula_ref prefixed_operand(formula_parser *p)
{
    static const struct {
        char token;
        uint16_t op;
    } prefix[] = { { '-', DF_FORMULA_neg },
                   { '!', DF_FORMULA_logical_not },
                   { '~', DF_FORMULA_bitwise_not } };
    skip_to_token(p);
    const char *const at = p->at;
    if (p->depth == MOST_DEPTH) {
        fail_at(p, at, DEFT_E_LIMIT, "nested more than %d deep", MOST_DEPTH);
        return NO_REF;
    }
    p->depth++;
    df_formula_ref r = NO_REF;
    bool is_prefix = false;
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix && !is_prefix; i++)
        if (*at == prefix[i].token) {
            is_prefix = true;
            p->at++;
            r = prefixed_operand(p);
            r = text_apply(p, at, prefix[i].op, r, r, 0);
        }
    if (!is_prefix) r = take_token(p, "+") ? prefixed_operand(p) : text_primary(p);
    p->depth--;
    return r;
}

/* Operators between two operands. Of two that begin equally the longer one comes first. */
static const struct {
    char token[3];
    uint8_t level; /* a higher one binds closer */
    uint16_t op;
} infix[] = {
    { "||", 1, DF_FORMULA_logical_or }, { "&&", 2, DF_FORMULA_logical_and },
    { "==", 6, DF_FORMULA_eq },         { "!=", 6, DF_FORMULA_ne },
    { "<<", 8, DF_FORMULA_shift_left }, { ">>", 8, DF_FORMULA_shift_right },
    { "<=", 7, DF_FORMULA_le },         { ">=", 7, DF_FORMULA_ge },
    { "|", 3, DF_FORMULA_bitwise_or },  { "^", 4, DF_FORMULA_bitwise_xor },
    { "&", 5, DF_FORMULA_bitwise_and }, { "<", 7, DF_FORMULA_lt },
    { ">", 7, DF_FORMULA_gt },          { "+", 9, DF_FORMULA_add },
    { "-", 9, DF_FORMULA_sub },         { "*", 10, DF_FORMULA_mul },
    { "/", 10, DF_FORMULA_div },        { "%", 10, DF_FORMULA_fmod },
};
enum { N_INFIX = sizeof infix / sizeof *infix };

/* The row of infix that comes next, or N_INFIX. */
static uint32_t peek_infix(formula_parser *p)
{
    skip_to_token(p);
    uint32_t i = 0;
    while (i < N_INFIX && strncmp(p->at, infix[i].token, strlen(infix[i].token))) i++;
    return i;
}

/* Operands that are joined by operators of `level` or above. */
static df_formula_ref joined_operands(formula_parser *p, uint32_t level)
{
    df_formula_ref a = prefixed_operand(p);
    for (;;) {
        const uint32_t i = peek_infix(p);
        if (p->st != DEFT_OK || i == N_INFIX || infix[i].level < level) return a;
        const char *const at = p->at;
        p->at += strlen(infix[i].token);
        const df_formula_ref b = joined_operands(p, infix[i].level + 1u);
        a = text_apply(p, at, infix[i].op, a, b, 0);
    }
}

static df_formula_ref text_expression(formula_parser *p)
{
    if (p->depth == MOST_DEPTH) {
        fail_at(p, p->at, DEFT_E_LIMIT, "nested more than %d deep", MOST_DEPTH);
        return NO_REF;
    }
    p->depth++;
    df_formula_ref r = joined_operands(p, 1);
    skip_to_token(p);
    const char *const at = p->at;
    if (p->st == DEFT_OK && take_token(p, "?")) {
        const df_formula_ref a = text_expression(p);
        (void)expect_token(p, ":");
        r = text_apply(p, at, DF_FORMULA_WHERE, r, a, text_expression(p));
    }
    p->depth--;
    return r;
}

/* ---- formulas ---- */

static void add_name(formula_parser *p, text_span s, df_formula_ref value)
{
    for (uint32_t i = 0; i < p->n_names; i++)
        if (s.n == p->name[i].text.n && !memcmp(s.at, p->name[i].text.at, s.n))
            fail_at(p, s.at, DEFT_E_ARG, "\"%.*s\" has a value already", shown_length(s), s.at);
    if (is_word(s, "return") || memchr(s.at, '.', s.n))
        fail_at(p, s.at, DEFT_E_ARG, "\"%.*s\" is no name of a value", shown_length(s), s.at);
    else if (p->n_names == MOST_NAMES)
        fail_at(p, s.at, DEFT_E_LIMIT, "more than %d names", MOST_NAMES);
    if (p->st == DEFT_OK) p->name[p->n_names++] = (named_value){ s, value };
}

static void input_list(formula_parser *p)
{
    if (!expect_token(p, "(")) return;
    do {
        const text_span s = take_name(p);
        if (!s.n)
            fail_at(p, p->at, DEFT_E_ARG, "the name of an input is missing");
        else if (p->n_inputs == 2 * DEFT_OP_MAX_TENSORS)
            fail_at(p, s.at, DEFT_E_ARG, "too many inputs");
        else
            add_name(p, s, (df_formula_ref)p->n_inputs++);
    } while (p->st == DEFT_OK && take_token(p, ","));
    (void)expect_token(p, ")");
}

static void result_list(formula_parser *p, uint32_t most)
{
    do {
        skip_to_token(p);
        const char *const at = p->at;
        const df_formula_ref r = text_expression(p);
        if (p->st == DEFT_OK && !p->is_slope && text_is_number(r))
            fail_at(p, at, DEFT_E_ARG, "a result that does not depend on an input");
        if (p->n_results == most)
            fail_at(p, at, DEFT_E_ARG, "more than %u results", most);
        else
            p->result[p->n_results++] = r;
    } while (p->st == DEFT_OK && take_token(p, ","));
}

/* Translates the text. most: of results. */
static void parse_formula(formula_parser *p, uint32_t most)
{
    if (strlen(p->text) > MOST_BYTES) {
        fail_at(p, p->text, DEFT_E_LIMIT, "a text of %zu bytes, at most %d", strlen(p->text),
                MOST_BYTES);
        return;
    }
    input_list(p);
    (void)expect_token(p, "{");
    bool has_returned = false;
    while (p->st == DEFT_OK && !has_returned) {
        const text_span s = take_name(p);
        has_returned = s.n && is_word(s, "return");
        if (has_returned) {
            result_list(p, most);
        } else if (s.n) {
            (void)expect_token(p, "=");
            add_name(p, s, text_expression(p));
        } else {
            fail_at(p, p->at, DEFT_E_ARG, *p->at ? "'%.1s' begins no statement" : "no return%s",
                    p->at);
        }
        (void)expect_token(p, ";");
    }
    (void)expect_token(p, "}");
    skip_to_token(p);
    if (*p->at) fail_at(p, p->at, DEFT_E_ARG, "'%.1s' after the end", p->at);
}

/* Translates one text. value: what it is the derivative of, or NULL. Returns a parser, for
 * df_mem_free. NULL with *st and a sentence in why, of n bytes, when the text is refused. */
static formula_parser *translate_text(deft_runtime *rt, df_formula_find_fn find,
                                      const deft_formula_def *def, const formula_parser *value,
                                      deft_status *st, char *why, size_t n)
{
    formula_parser *p = df_mem_zalloc(rt->mem, sizeof *p);
    if (!p) {
        *st = DEFT_E_MEMORY;
        if (n) (void)snprintf(why, n, "formula_define: %s: no memory", def->name);
        return NULL;
    }
    p->text = p->at = value ? def->derivative : def->text;
    p->what = def->name;
    p->rt = rt;
    p->find = find;
    p->is_slope = value != NULL;
    p->why = why;
    p->n_why = n;
    const uint32_t most = value ? value->n_results * value->n_inputs : DEFT_OP_MAX_TENSORS;
    parse_formula(p, most);
    if (!value && p->n_inputs > DEFT_OP_MAX_TENSORS)
        fail_at(p, p->text, DEFT_E_ARG, "%u inputs; at most %d", p->n_inputs, DEFT_OP_MAX_TENSORS);
    if (value && p->n_inputs != value->n_inputs &&
        p->n_inputs != value->n_inputs + value->n_results)
        fail_at(p, p->text, DEFT_E_ARG,
                "%u inputs; it has the %u of the formula, or its %u results after them",
                p->n_inputs, value->n_inputs, value->n_results);
    if (value && p->n_results != most)
        fail_at(p, p->text, DEFT_E_ARG, "%u partial derivatives; there are %u", p->n_results, most);
    *st = p->st;
    if (p->st != DEFT_OK) df_mem_free(rt->mem, p, sizeof *p), p = NULL;
    return p;
}

/* ---- a block of memory ---- */

static size_t code_bytes(const formula_parser *p)
{
    return p->n_called * sizeof *p->called + p->n_numbers * sizeof *p->number +
           p->n_steps * sizeof *p->step + (p->n_results + p->n_arguments) * sizeof *p->result;
}

static const void *put_text_list(char **at, const void *from, size_t n)
{
    void *const to = *at;
    memcpy(to, from, n);
    *at += n;
    return to;
}

static void put_text_code(df_formula_code *c, const formula_parser *p, char **at)
{
    c->n_inputs = p->n_inputs;
    c->n_steps = p->n_steps;
    c->n_results = p->n_results;
    c->n_called = p->n_called;
    c->called = put_text_list(at, (const void *)p->called, p->n_called * sizeof *p->called);
    c->number = put_text_list(at, p->number, p->n_numbers * sizeof *p->number);
    c->step = put_text_list(at, p->step, p->n_steps * sizeof *p->step);
    c->result = put_text_list(at, p->result, p->n_results * sizeof *p->result);
    c->argument = put_text_list(at, p->argument, p->n_arguments * sizeof *p->argument);
}

/* The lists of both functions come after the head, elements of 8 bytes before those of 2. */
static df_formula *formula_block(const df_mem *mem, const deft_formula_def *def,
                                 const formula_parser *value, const formula_parser *slope,
                                 size_t *bytes)
{
    const size_t n_text = strlen(def->text) + 1, n_slope = slope ? strlen(def->derivative) + 1 : 0;
    const size_t n_value = (code_bytes(value) + 7) / 8 * 8;
    const size_t lists = n_value + (slope ? code_bytes(slope) : 0);
    *bytes = sizeof(df_formula) + lists + n_text + n_slope;
    df_formula *const f = df_mem_zalloc(mem, *bytes);
    if (!f) return NULL;
    char *at = (char *)(f + 1);
    f->reference = def->reference;
    f->ulps = df_formula_ulps(def);
    put_text_code(&f->value, value, &at);
    if (slope) {
        at = (char *)(f + 1) + n_value;
        put_text_code(&f->slope, slope, &at);
        f->derivative = put_text_list(&at, def->derivative, n_slope);
    }
    f->text = put_text_list(&at, def->text, n_text);
    return f;
}

df_formula *df_formula_new(deft_runtime *rt, df_formula_find_fn find, const deft_formula_def *def,
                           size_t *bytes, deft_status *st, char *why, size_t n)
{
    const df_mem *const mem = rt->mem;
    df_formula *f = NULL;
    formula_parser *slope = NULL, *const value = translate_text(rt, find, def, NULL, st, why, n);
    if (value && def->derivative) slope = translate_text(rt, find, def, value, st, why, n);
    if (*st == DEFT_OK) {
        f = formula_block(mem, def, value, slope, bytes);
        if (!f) *st = DEFT_E_MEMORY;
        if (!f && n) (void)snprintf(why, n, "formula_define: %s: no memory", def->name);
    }
    if (slope) df_mem_free(mem, slope, sizeof *slope);
    if (value) df_mem_free(mem, value, sizeof *value);
    return f;
}
