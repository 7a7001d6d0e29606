/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a trace from text. Files may come from anywhere, so nothing in them is trusted. Every
 * number is read with an overflow check. The largest rank bounds lists, and DF_TRACE_MAX_NODES
 * bounds nodes. The builder checks each node, the verifier the complete trace. The parser makes
 * one pass, one line at a time, without recursion. Memory is proportional to the text.
 *
 * Sentences of failures start with the number of the line. A check of the complete trace names the
 * node instead.
 */
#include "ops/shape.h"
#include "trace/opaque.h"
#include "trace/text.h"

#include <inttypes.h>
#include <string.h>

typedef struct parser {
    const char *at, *end; /* the text that remains; a line ends with '\n' or with the text */
    uint32_t line;        /* number of the current line, from 1 */
    df_diag said;         /* sentence of a failure, without the number of the line */
    df_builder b;
    bool started;        /* a statement was read, so a header is an error */
    df_opaques *opaques; /* of the calls so far; NULL: none yet */
} parser;

/* ---- characters ---- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || c == '_' || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void skip_blanks(parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\r')) p->at++;
}

/* Whether the statement ends here, after blanks: at the end of a line or at a comment. */
static bool at_end(parser *p)
{
    skip_blanks(p);
    return p->at == p->end || *p->at == '\n' || *p->at == '#';
}

/* Skips blanks, then consumes c if it is the next character. Returns whether it was. */
static bool eat(parser *p, char c)
{
    skip_blanks(p);
    if (p->at == p->end || *p->at != c) return false;
    p->at++;
    return true;
}

static deft_status expected(parser *p, const char *what)
{
    char found[25];
    size_t n = 0;
    skip_blanks(p);
    for (const char *c = p->at; c < p->end && *c != '\n' && n < sizeof found - 1; c++)
        found[n++] = *c > ' ' && *c < 127 ? *c : *c == ' ' ? ' ' : '?';
    found[n] = '\0';
    return df_fail(&p->said, DEFT_E_FORMAT, "expected %s, found \"%s\"", what, found);
}

/* ---- words and numbers ---- */

typedef struct span {
    const char *at;
    size_t n;
} span;

static span parse_word(parser *p)
{
    skip_blanks(p);
    const char *const from = p->at;
    if (p->at < p->end && is_letter(*p->at))
        while (p->at < p->end && (is_letter(*p->at) || is_digit(*p->at))) p->at++;
    return (span){ from, (size_t)(p->at - from) };
}

/* Consumes the word if it is next. Returns whether it was. */
static bool eat_word(parser *p, const char *text)
{
    const char *const from = p->at;
    const span word = parse_word(p);
    if (df_text_equals(word.at, word.n, text)) return true;
    p->at = from;
    return false;
}

/* Reads a number of dtype t. It ends before a blank or before a character that no number has. */
static deft_status parse_number(parser *p, deft_dtype t, uint64_t *bits)
{
    skip_blanks(p);
    const char *const from = p->at;
    while (p->at < p->end && !strchr(" \t\r\n,]#=%", *p->at)) p->at++;
    if (df_text_get_number(from, (size_t)(p->at - from), t, bits)) return DEFT_OK;
    p->at = from;
    char what[32] = "a number that fits ";
    strcat(what, deft_dtype_name(t));
    return expected(p, what);
}

static deft_status parse_integer(parser *p, int64_t low, int64_t high, int64_t *out)
{
    uint64_t bits = 0;
    const char *const from = p->at;
    const deft_status st = parse_number(p, DEFT_I64, &bits);
    if (st != DEFT_OK) return st;
    const int64_t v = (int64_t)bits;
    if (v < low || v > high) {
        p->at = from;
        return df_fail(&p->said, DEFT_E_RANGE, "%" PRId64 " is outside [%" PRId64 ", %" PRId64 "]",
                       v, low, high);
    }
    *out = v;
    return DEFT_OK;
}

/* Reads an unsigned decimal of up to 64 bits. */
static deft_status parse_unsigned_64(parser *p, int64_t *out)
{
    skip_blanks(p);
    uint64_t v = 0;
    const char *c = p->at;
    for (; c < p->end && is_digit(*c); c++) {
        const unsigned digit = (unsigned)(*c - '0');
        if (v > (UINT64_MAX - digit) / 10) return expected(p, "a number below 2^64");
        v = v * 10 + digit;
    }
    if (c == p->at) return expected(p, "a number");
    p->at = c;
    *out = (int64_t)v;
    return DEFT_OK;
}

/* Reads [a,b,..] with at most DEFT_MAX_RANK numbers, each from low to high. */
static deft_status parse_list(parser *p, int64_t low, int64_t high, int64_t v[DEFT_MAX_RANK],
                              uint32_t *n)
{
    deft_status st = DEFT_OK;
    *n = 0;
    if (!eat(p, '[')) TRY(expected(p, "["));
    if (eat(p, ']')) goto done;
    do {
        if (*n == DEFT_MAX_RANK)
            TRY(df_fail(&p->said, DEFT_E_LIMIT, "more than %d members", DEFT_MAX_RANK));
        TRY(parse_integer(p, low, high, &v[(*n)++]));
    } while (eat(p, ','));
    if (!eat(p, ']')) TRY(expected(p, ", or ]"));
done:
    return st;
}

/* Reads "name=". */
static deft_status parse_key(parser *p, const char *name)
{
    char what[32];
    const size_t n = strlen(name);
    memcpy(what, name, n);
    memcpy(what + n, "=", 2);
    return eat_word(p, name) && eat(p, '=') ? DEFT_OK : expected(p, what);
}

static deft_status parse_key_integer(parser *p, const char *name, int64_t low, int64_t high,
                                     int64_t *out)
{
    const deft_status st = parse_key(p, name);
    return st == DEFT_OK ? parse_integer(p, low, high, out) : st;
}

static deft_status parse_key_list(parser *p, const char *name, int64_t low, int64_t high,
                                  int64_t v[DEFT_MAX_RANK], uint32_t *n)
{
    const deft_status st = parse_key(p, name);
    return st == DEFT_OK ? parse_list(p, low, high, v, n) : st;
}

/* Reads %k, which must be an earlier node. */
static deft_status parse_reference(parser *p, df_ref *out)
{
    int64_t v = 0;
    const uint32_t n = p->b.t->n_nodes;
    if (!eat(p, '%')) return expected(p, "%");
    const deft_status st = parse_integer(p, 0, UINT32_MAX, &v);
    if (st != DEFT_OK) return st;
    if (v >= n) return df_fail(&p->said, DEFT_E_FORMAT, "%%%" PRId64 " is not an earlier node", v);
    *out = (df_ref){ (uint32_t)v };
    return DEFT_OK;
}

/* ---- records ---- */

typedef struct record {
    df_op op;
    deft_dtype dtype;
    df_shape shape;
    df_ref src[3];
    uint32_t attr;
    int64_t args[2 * DEFT_MAX_RANK];
    uint32_t n_args;
} record;

static deft_status parse_mask(parser *p, uint32_t *out)
{
    int64_t v[DEFT_MAX_RANK];
    uint32_t n;
    const deft_status st = parse_key_list(p, "axes", 0, DEFT_MAX_RANK - 1, v, &n);
    if (st != DEFT_OK) return st;
    for (uint32_t i = 0; i < n; i++) {
        if (*out >> v[i] & 1)
            return df_fail(&p->said, DEFT_E_ARG, "axis %" PRId64 " is named twice", v[i]);
        *out |= 1u << v[i];
    }
    return DEFT_OK;
}

static deft_status parse_nibbles(parser *p, const char *name, uint32_t want, uint32_t *out)
{
    int64_t v[DEFT_MAX_RANK];
    uint32_t n;
    const deft_status st = parse_key_list(p, name, 0, DEFT_MAX_RANK - 1, v, &n);
    if (st != DEFT_OK) return st;
    if (n != want)
        return df_fail(&p->said, DEFT_E_FORMAT, "%s has %" PRIu32 " members, must have %" PRIu32,
                       name, n, want);
    for (uint32_t i = 0; i < n; i++) *out |= (uint32_t)v[i] << 4 * i;
    return DEFT_OK;
}

static deft_status parse_slice_args(parser *p, record *r)
{
    deft_status st = DEFT_OK;
    int64_t start[DEFT_MAX_RANK], step[DEFT_MAX_RANK];
    uint32_t n, m;
    TRY(parse_key_list(p, "start", INT64_MIN, INT64_MAX, start, &n));
    TRY(parse_key_list(p, "step", INT64_MIN, INT64_MAX, step, &m));
    if (n != m)
        TRY(df_fail(&p->said, DEFT_E_FORMAT, "%" PRIu32 " starts, but %" PRIu32 " steps", n, m));
    for (uint32_t i = 0; i < n; i++) {
        r->args[2 * i] = start[i];
        r->args[2 * i + 1] = step[i];
    }
    r->n_args = 2 * n;
done:
    return st;
}

static deft_status parse_dtype(parser *p, deft_dtype *out)
{
    const char *const from = p->at;
    const span s = parse_word(p);
    for (int t = 0; t < DF_N_RECORDED; t++) {
        if (!df_text_equals(s.at, s.n, deft_dtype_name((deft_dtype)t))) continue;
        *out = (deft_dtype)t;
        return DEFT_OK;
    }
    p->at = from;
    return expected(p, "a dtype");
}

/* Reads the tag of a loop, which may be absent: a kind, "from" with a dtype, and flags. */
static deft_status parse_loop_tag(parser *p, uint32_t *out)
{
    deft_status st = DEFT_OK;
    df_loop_tag tag = { .kind = DF_LOOP_PLAIN };
    for (int i = DF_LOOP_PLAIN + 1; i < DF_N_LOOP_KINDS && tag.kind == DF_LOOP_PLAIN; i++)
        if (eat_word(p, df_loop_kind_name((df_loop_kind)i))) tag.kind = (df_loop_kind)i;
    if (tag.kind == DF_LOOP_PLAIN) return DEFT_OK;
    TRY(parse_key(p, "from"));
    TRY(parse_dtype(p, &tag.from));
    tag.is_causal = eat_word(p, "causal");
    tag.is_scaled = eat_word(p, "scaled");
    tag.is_padded = eat_word(p, "padded");
    *out = df_loop_attr(tag);
done:
    return st;
}

/* Reads the name of an opaque operator. */
static deft_status parse_opaque_name(parser *p, span *out)
{
    skip_blanks(p);
    *out = (span){ p->at, 0 };
    while (p->at < p->end &&
           (is_letter(*p->at) || is_digit(*p->at) || *p->at == '.' || *p->at == '-'))
        p->at++;
    out->n = (size_t)(p->at - out->at);
    if (out->n >= 1 && out->n <= DF_OPAQUE_MOST_NAME) return DEFT_OK;
    p->at = out->at;
    return expected(p, "the name of an operator");
}

/* Reads pairs of hexadecimal digits. *out is NULL and *n is 0 where there are none. */
static deft_status parse_bytes(parser *p, const unsigned char **out, size_t *n)
{
    static const char digits[] = "0123456789abcdef";
    size_t n_digits = 0;
    while (p->at + n_digits < p->end && p->at[n_digits] && strchr(digits, p->at[n_digits]))
        n_digits++;
    if (n_digits == 0 || n_digits % 2 || n_digits / 2 > DF_OPAQUE_MOST_ATTRIBUTES)
        return expected(p, "pairs of hexadecimal digits");
    unsigned char *const bytes = df_arena_alloc(p->b.t->arena, n_digits / 2, 16);
    if (!bytes) return df_fail_mem(&p->said, "trace", n_digits / 2);
    for (size_t i = 0; i < n_digits; i += 2)
        bytes[i / 2] = (unsigned char)((strchr(digits, p->at[i]) - digits) << 4 |
                                       (strchr(digits, p->at[i + 1]) - digits));
    p->at += n_digits;
    *out = bytes;
    *n = n_digits / 2;
    return DEFT_OK;
}

static bool is_same_opaque(const df_opaque *a, const df_opaque *b)
{
    return a->version == b->version && a->n_in == b->n_in && a->n_out == b->n_out &&
           a->attribute_bytes == b->attribute_bytes && !strcmp(a->name, b->name) &&
           (!a->attribute_bytes || !memcmp(a->attributes, b->attributes, a->attribute_bytes));
}

/* Sets *number to the entry of the trace's table that equals x, which is added when it is new. */
static deft_status add_parsed_opaque(parser *p, const df_opaque *x, uint32_t *number)
{
    df_arena *const a = p->b.t->arena;
    if (!p->opaques) p->b.t->opaques = p->opaques = df_arena_new(a, df_opaques, 1);
    if (!p->opaques) return df_fail_mem(&p->said, "trace", sizeof *p->opaques);
    for (*number = 0; *number < p->opaques->n; ++*number)
        if (is_same_opaque(df_opaques_at(p->opaques, *number), x)) return DEFT_OK;
    df_opaque *const at = df_opaques_next(p->opaques, a, number);
    if (!at) return df_fail(&p->said, DEFT_E_LIMIT, "too many opaque operators");
    *at = *x;
    df_opaques_added(p->opaques);
    return DEFT_OK;
}

/* Reads the operator of a call. The number of its inputs is that of the list, its only operand. */
static deft_status parse_opaque(parser *p, record *r)
{
    deft_status st = DEFT_OK;
    df_opaque x = { .n_in = df_opaque_count_inputs(p->b.t, r->src[0].i), .n_out = 1 };
    int64_t v = 0;
    span name;
    TRY(parse_opaque_name(p, &name));
    if (!eat(p, '@')) TRY(expected(p, "@"));
    TRY(parse_integer(p, 1, UINT32_MAX, &v));
    x.version = (uint32_t)v;
    if (eat_word(p, "results")) {
        if (!eat(p, '=')) TRY(expected(p, "="));
        TRY(parse_integer(p, 2, DF_OPAQUE_MOST_TENSORS, &v));
        x.n_out = (uint32_t)v;
    }
    if (eat_word(p, "attributes")) {
        const unsigned char *bytes = NULL;
        if (!eat(p, '=')) TRY(expected(p, "="));
        TRY(parse_bytes(p, &bytes, &x.attribute_bytes));
        x.attributes = bytes;
    }
    char *const text = df_arena_zalloc(p->b.t->arena, name.n + 1, 1);
    if (!text) TRY(df_fail_mem(&p->said, "trace", name.n));
    memcpy(text, name.at, name.n);
    x.name = text;
    TRY(add_parsed_opaque(p, &x, &r->attr));
done:
    return st;
}

static deft_status parse_attributes(parser *p, record *r)
{
    deft_status st = DEFT_OK;
    uint64_t bits = 0;
    int64_t v = 0;
    switch (df_text_form_of(r->op)) {
    case DF_TEXT_none:
    case DF_TEXT_input: break;
    case DF_TEXT_value:
        TRY(parse_number(p, r->dtype, &bits));
        r->args[r->n_args++] = (int64_t)bits;
        break;
    case DF_TEXT_cst:
        TRY(parse_number(p, df_is_float(r->dtype) ? DEFT_F32 : DEFT_I32, &bits));
        r->attr = (uint32_t)bits;
        break;
    case DF_TEXT_axis:
        TRY(parse_key_integer(p, "axis", 0, DEFT_MAX_RANK - 1, &v));
        r->attr = (uint32_t)v;
        break;
    case DF_TEXT_axes: TRY(parse_mask(p, &r->attr)); break;
    case DF_TEXT_reduce:
        TRY(parse_mask(p, &r->attr));
        if (eat_word(p, "keepdims")) r->attr |= DF_REDUCE_KEEPDIMS;
        break;
    case DF_TEXT_perm: TRY(parse_nibbles(p, "perm", r->shape.rank, &r->attr)); break;
    case DF_TEXT_slice: TRY(parse_slice_args(p, r)); break;
    case DF_TEXT_pair:
        TRY(parse_nibbles(p, "axes", 2, &r->attr));
        TRY(parse_key_integer(p, "offset", INT64_MIN, INT64_MAX, &r->args[0]));
        r->n_args = 1;
        break;
    case DF_TEXT_random:
        TRY(parse_key_integer(p, "word", 0, 3, &v));
        r->attr = (uint32_t)v;
        TRY(parse_key(p, "seed"));
        TRY(parse_unsigned_64(p, &r->args[0]));
        TRY(parse_key(p, "draw"));
        TRY(parse_unsigned_64(p, &r->args[1]));
        r->n_args = 2;
        break;
    case DF_TEXT_power:
        TRY(parse_key_integer(p, "power", INT32_MIN, INT32_MAX, &v));
        r->attr = (uint32_t)(int32_t)v;
        break;
    case DF_TEXT_loop:
        TRY(parse_key_integer(p, "most", 0, INT64_MAX, &r->args[0]));
        r->n_args = 1;
        TRY(parse_loop_tag(p, &r->attr));
        break;
    case DF_TEXT_call: TRY(parse_opaque(p, r)); break;
    case DF_TEXT_index:
        TRY(parse_key_integer(p, "index", 1, DF_OPAQUE_MOST_TENSORS - 1, &v));
        r->attr = (uint32_t)v;
        break;
    case DF_TEXT_which: r->attr = eat_word(p, "zeros") ? DF_WHICH_ZEROS : 0; break;
    case DF_TEXT_order:
        r->attr = eat_word(p, "descending") ? DF_ORDER_DESCENDING : 0;
        if (r->op != DF_OP_topk) break;
        TRY(parse_key_integer(p, "first", 0, UINT32_MAX, &r->args[0]));
        r->n_args = 1;
        break;
    }
done:
    return st;
}

static deft_status parse_input(parser *p, const record *r)
{
    deft_status st = DEFT_OK;
    int64_t strides[DEFT_MAX_RANK], ordinal = p->b.t->n_inputs;
    uint32_t n = 0, flags = 0;
    bool has_strides = false;
    while (!at_end(p)) {
        if (eat_word(p, "wrapped"))
            flags |= DF_INPUT_WRAPPED;
        else if (eat_word(p, "sole"))
            flags |= DF_INPUT_SOLE;
        else if (eat_word(p, "aligned"))
            flags |= DF_INPUT_ALIGNED;
        else if (eat_word(p, "ordinal") && eat(p, '='))
            TRY(parse_integer(p, 0, DF_TRACE_MAX_NODES, &ordinal));
        else {
            TRY(parse_key_list(p, "strides", INT64_MIN, INT64_MAX, strides, &n));
            has_strides = true;
            if (n != r->shape.rank)
                TRY(df_fail(&p->said, DEFT_E_FORMAT,
                            "%" PRIu32 " strides of an input of rank %" PRIu32, n, r->shape.rank));
        }
    }
    const df_ref ref = df_build_input(&p->b, r->dtype, &r->shape, has_strides ? strides : NULL);
    TRY(p->b.st);
    p->b.t->inputs[p->b.t->n_inputs - 1].flags |= flags;
    p->b.t->nodes[ref.i].attr = (uint32_t)ordinal; /* settle_ordinals moves the input there */
done:
    return st;
}

/* Reads the name of an operator, and "@" with its version, which may be absent. */
static deft_status parse_op(parser *p, df_op *out)
{
    int64_t version = DF_OP_VERSION;
    skip_blanks(p);
    const span name = parse_word(p);
    if (name.n == 0) return expected(p, "an op");
    *out = df_op_find(name.at, name.n);
    if (*out == DF_N_OPS)
        return df_fail(&p->said, DEFT_E_FORMAT, "there is no operator '%.*s' in this library",
                       (int)(name.n < 60 ? name.n : 60), name.at);
    if (!eat(p, '@')) return DEFT_OK;
    const deft_status st = parse_integer(p, 1, INT32_MAX, &version);
    if (st == DEFT_OK && version != DF_OP_VERSION)
        return df_fail(&p->said, DEFT_E_FORMAT,
                       "%s has version %" PRId64 " here, and this library has version %d",
                       df_op_infos[*out].name, version, DF_OP_VERSION);
    return st;
}

/* Reads "%k = op dtype[extents] operands attributes", after the '%'. */
static deft_status parse_node(parser *p)
{
    deft_status st = DEFT_OK;
    record r = { .op = DF_N_OPS };
    int64_t k = 0;
    TRY(parse_integer(p, 0, UINT32_MAX, &k));
    if (k != p->b.t->n_nodes)
        TRY(df_fail(&p->said, DEFT_E_FORMAT, "%%%" PRId64 " where %%%" PRIu32 " is next", k,
                    p->b.t->n_nodes));
    if (!eat(p, '=')) TRY(expected(p, "="));
    TRY(parse_op(p, &r.op));
    TRY(parse_dtype(p, &r.dtype));
    TRY(parse_list(p, 0, INT64_MAX, r.shape.dim, &r.shape.rank));
    const uint32_t n_src = df_op_infos[r.op].n_src;
    for (uint32_t i = 0; i < n_src; i++) TRY(parse_reference(p, &r.src[i]));
    if (r.op == DF_OP_input) {
        TRY(parse_input(p, &r));
        goto done;
    }
    TRY(parse_attributes(p, &r));
    (void)df_build_op(&p->b, r.op, r.dtype, r.attr, r.src, n_src, r.args, r.n_args, &r.shape);
    st = p->b.st;
done:
    return st;
}

/* Reads %k, which must be an input node, and returns the index of its input. */
static deft_status parse_input_reference(parser *p, uint32_t *out)
{
    df_ref r;
    const deft_status st = parse_reference(p, &r);
    if (st != DEFT_OK) return st;
    if (p->b.t->nodes[r.i].op != DF_OP_input)
        return df_fail(&p->said, DEFT_E_FORMAT, "%%%" PRIu32 " is not an input", r.i);
    *out = p->b.t->nodes[r.i].attr;
    return DEFT_OK;
}

/* Reads "output %k [into %i] [donor %i]", after the first word. */
static deft_status parse_output(parser *p)
{
    deft_status st = DEFT_OK;
    df_ref r;
    uint32_t into = DF_NONE, donor = DF_NONE;
    TRY(parse_reference(p, &r));
    if (eat_word(p, "into")) TRY(parse_input_reference(p, &into));
    if (eat_word(p, "donor")) TRY(parse_input_reference(p, &donor));
    df_build_root(&p->b, r, into == DF_NONE ? DF_ROOT_NEW : DF_ROOT_INTO, into, donor);
    st = p->b.st;
done:
    return st;
}

static deft_status parse_most_temporaries(parser *p)
{
    int64_t bytes = 0;
    if (!eat(p, '=')) return expected(p, "=");
    const deft_status st = parse_unsigned_64(p, &bytes);
    if (st != DEFT_OK) return st;
    if (bytes == 0)
        return df_fail(&p->said, DEFT_E_RANGE, "0 is outside [1, %" PRIu64 "]", UINT64_MAX);
    p->b.t->max_temporary_bytes = (uint64_t)bytes;
    return DEFT_OK;
}

/* Reads "trace v1 flags", after the first word. */
static deft_status parse_header(parser *p)
{
    deft_status st = DEFT_OK;
    if (p->started)
        return df_fail(&p->said, DEFT_E_FORMAT, "the header stands before the first node");
    const span version = parse_word(p);
    if (version.n > 1 && *version.at == 'v' && !df_text_equals(version.at, version.n, "v1"))
        return df_fail(&p->said, DEFT_E_FORMAT,
                       "the trace has version %.*s, and this library reads v1",
                       (int)(version.n < 20 ? version.n : 20), version.at);
    p->at = version.at;
    if (!eat_word(p, "v1")) return expected(p, "v1");
    while (!at_end(p)) {
        if (eat_word(p, "fast"))
            p->b.t->flags |= DF_TRACE_FAST;
        else if (eat_word(p, "nofuse"))
            p->b.t->flags |= DF_TRACE_NOFUSE;
        else if (eat_word(p, "temporaries"))
            TRY(parse_most_temporaries(p));
        else
            TRY(expected(p, "fast, nofuse or temporaries"));
    }
done:
    return st;
}

static deft_status parse_statement(parser *p)
{
    deft_status st = DEFT_OK;
    if (at_end(p)) return DEFT_OK;
    if (eat_word(p, "trace"))
        TRY(parse_header(p));
    else if (eat_word(p, "output"))
        TRY(parse_output(p));
    else if (eat(p, '%'))
        TRY(parse_node(p));
    else
        TRY(expected(p, "%, output or trace"));
    p->started = true;
    if (!at_end(p)) st = expected(p, "the end of the line");
done:
    return st;
}

/* Sorts the inputs by the ordinals of their nodes. */
static deft_status settle_ordinals(parser *p)
{
    df_trace *const t = p->b.t;
    df_input *const sorted = df_arena_new(t->arena, df_input, t->n_inputs);
    if (!sorted) return df_fail_mem(&p->said, "trace", t->n_inputs * sizeof *sorted);
    for (uint32_t i = 0; i < t->n_inputs; i++) sorted[i].node = DF_NONE;
    for (uint32_t i = 0; i < t->n_inputs; i++) {
        const uint32_t k = t->inputs[i].node, at = t->nodes[k].attr;
        if (at >= t->n_inputs || sorted[at].node != DF_NONE)
            return df_fail(&p->said, DEFT_E_FORMAT,
                           "%%%" PRIu32 ": ordinal %" PRIu32 " is taken or not below %" PRIu32, k,
                           at, t->n_inputs);
        sorted[at] = t->inputs[i];
    }
    t->inputs = sorted;
    return DEFT_OK;
}

deft_status df_trace_parse(df_diag *d, const char *text, size_t n, df_arena *arena, df_trace **out)
{
    parser p = { .at = text, .end = text + n, .line = 1 };
    deft_status st = df_build_init(&p.b, arena, &p.said);
    while (st == DEFT_OK) {
        st = parse_statement(&p);
        if (st != DEFT_OK) {
            (void)df_fail(d, st, "line %" PRIu32 ": %s", p.line, p.said.text);
            return st;
        }
        while (p.at < p.end && *p.at != '\n') p.at++;
        if (p.at == p.end) break;
        p.at++;
        p.line++;
    }
    if (st == DEFT_OK) st = settle_ordinals(&p);
    if (st == DEFT_OK) st = df_trace_verify(&p.said, p.b.t);
    if (st != DEFT_OK) return df_fail(d, st, "%s", p.said.text);
    *out = p.b.t;
    return DEFT_OK;
}
