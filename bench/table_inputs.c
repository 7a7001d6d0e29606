/* SPDX-License-Identifier: Apache-2.0
 *
 * The inputs of the table of peers: the text of a row to shapes, and elements from a seed.
 */
#include "table.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- elements ---- */

/* Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014: any counter gives
 * a number of its own. */
static uint64_t bits_of(uint64_t seed, uint64_t i)
{
    uint64_t z = seed * 0xd1342543de82ef95u + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t seed, uint64_t i)
{
    return ((double)(bits_of(seed, i) >> 11) + 0.5) * 0x1p-53;
}

static double normal(uint64_t seed, uint64_t i)
{
    const double r = sqrt(-2 * log(uniform(seed, 2 * i)));
    return r * cos(6.283185307179586 * uniform(seed, 2 * i + 1));
}

typedef struct kind {
    char letter; /* 0: normal */
    double size; /* of "*" and "<" */
} kind;

/* The bits of integers that the dtype and f64 hold. */
static int bits_of_integers(deft_dtype t)
{
    return t == DEFT_I32 ? 32 : 53;
}

static bool is_drawn_whole(kind k)
{
    return k.letter == 'u' || k.letter == '^' || k.letter == 'v';
}

static double element(kind k, deft_dtype t, uint64_t seed, uint64_t i)
{
    if (is_drawn_whole(k) && (t == DEFT_I32 || t == DEFT_I64))
        return ldexp(floor(ldexp(uniform(seed, i), 53)), bits_of_integers(t) - 53) -
               ldexp(1, bits_of_integers(t) - 1);
    switch (k.letter) {
    case '+': return 0.1 + uniform(seed, i);
    case '<': return floor(uniform(seed, i) * k.size);
    case '*': return normal(seed, i) / sqrt(k.size);
    case '0': return 0;
    }
    return normal(seed, i);
}

static uint16_t bf16_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* Numbers are normal or zero in all rows, so subnormal halves flush to zero. */
static uint16_t f16_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude < 0x38800000) return (uint16_t)sign;
    const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
    return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

static bool store(table_input *in, uint64_t i, double value)
{
    const deft_dtype t = in->dtype;
    if (t == DEFT_F32)
        ((float *)in->data)[i] = (float)value;
    else if (t == DEFT_I32)
        ((int32_t *)in->data)[i] = (int32_t)floor(value);
    else if (t == DEFT_F64)
        ((double *)in->data)[i] = value;
    else if (t == DEFT_I64)
        ((int64_t *)in->data)[i] = (int64_t)floor(value);
    else if (t == DEFT_BF16)
        ((uint16_t *)in->data)[i] = bf16_of((float)value);
    else if (t == DEFT_F16)
        ((uint16_t *)in->data)[i] = f16_of((float)value);
    else
        return false;
    return true;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static const char *fill(table_input *in, kind k, uint64_t seed)
{
    int64_t n = 1;
    for (uint32_t d = 0; d < in->shape.rank; d++) n *= in->shape.dim[d];
    in->bytes = (size_t)n * deft_dtype_size(in->dtype);
    in->data = malloc(in->bytes + 1);
    if (!in->data) return "out of memory";
    double *const v = malloc((size_t)n * sizeof *v + 1);
    if (!v) return "out of memory";
    for (uint64_t i = 0; i < (uint64_t)n; i++) v[i] = element(k, in->dtype, seed, i);
    if (k.letter == '^' || k.letter == 'v') qsort(v, (size_t)n, sizeof *v, ascending);
    bool ok = true;
    for (uint64_t i = 0; i < (uint64_t)n; i++)
        ok &= store(in, i, v[k.letter == 'v' ? (uint64_t)n - 1 - i : i]);
    free(v);
    return ok ? NULL : "inputs are f32, f64, i32, i64, bf16 or f16";
}

/* ---- the text ---- */

static bool dtype_named(const char *name, deft_dtype *dtype)
{
    for (int d = 0; d < DEFT_N_DTYPES; d++)
        if (!strcmp(name, deft_dtype_name((deft_dtype)d))) return *dtype = (deft_dtype)d, true;
    return false;
}

/* The size that a character stands for; -1: none. */
static int64_t size_at(char c, const int64_t *sizes)
{
    if (isdigit((unsigned char)c)) return c - '0';
    return c >= 'a' && c < 'a' + TABLE_SIZES ? sizes[c - 'a'] : -1;
}

static const char *read_extents(const char *extents, const int64_t *sizes, deft_shape *shape)
{
    if (!strcmp(extents, "-")) return NULL;
    for (const char *c = extents; *c; c++) {
        const int64_t n = size_at(*c, sizes);
        if (n < 1 || shape->rank == DEFT_MAX_RANK) return "an extent is no size of the row";
        shape->dim[shape->rank++] = n;
    }
    return NULL;
}

static const char *read_input(table_inputs *t, char *text, const int64_t *sizes, uint64_t seed)
{
    char dtype[8], extents[16], kind_text[8] = "";
    if (t->n == TABLE_IN) return "too many inputs";
    table_input *const in = &t->at[t->n++];
    char *const mark = strchr(text, '!');
    in->is_state = mark;
    if (mark) *mark = ' ', t->n_states = t->n;
    if (sscanf(text, " %7s %15s %7s", dtype, extents, kind_text) < 2) return "an input is no text";
    if (!dtype_named(dtype, &in->dtype)) return "an input has an unknown dtype";
    const char *const why = read_extents(extents, sizes, &in->shape);
    if (why) return why;
    kind k = { .letter = kind_text[0] };
    if (k.letter && !strchr("+<*0u^v", k.letter)) return "an input has an unknown kind";
    if (k.letter == '<' || k.letter == '*') {
        k.size = (double)size_at(kind_text[1], sizes);
        if (k.size < 1) return "a kind has no size";
    }
    return fill(in, k, seed + (uint64_t)t->n * 0x10001);
}

void table_inputs_make(table_inputs *t, const char *text, const int64_t *sizes, uint64_t seed)
{
    char copy[512], *rest = copy;
    *t = (table_inputs){ 0 };
    snprintf(copy, sizeof copy, "%s", text);
    for (char *one; !t->why && (one = strsep(&rest, ";"));)
        if (one[strspn(one, " ")]) t->why = read_input(t, one, sizes, seed);
    for (int i = 0; i < t->n_states; i++)
        if (!t->at[i].is_state) t->why = "a state is behind an input that is none";
}

void table_inputs_free(table_inputs *t)
{
    for (int i = 0; i < t->n; i++) free(t->at[i].data);
    *t = (table_inputs){ 0 };
}

bool table_inputs_save(const table_inputs *t, const char *path)
{
    FILE *const f = fopen(path, "wb");
    if (!f) return false;
    bool ok = true;
    for (int i = 0; i < t->n; i++)
        ok &= fwrite(t->at[i].data, 1, t->at[i].bytes, f) == t->at[i].bytes;
    return fclose(f) == 0 && ok;
}

void table_inputs_text(const table_inputs *t, char *text, size_t n)
{
    size_t at = 0;
    *text = 0;
    for (int i = 0; i < t->n && at < n; i++) {
        const table_input *const in = &t->at[i];
        at +=
            (size_t)snprintf(text + at, n - at, "%s%s:", i ? " " : "", deft_dtype_name(in->dtype));
        for (uint32_t d = 0; d < in->shape.rank && at < n; d++)
            at += (size_t)snprintf(text + at, n - at, "%s%lld", d ? "x" : "",
                                   (long long)in->shape.dim[d]);
        if (in->is_state && at < n) at += (size_t)snprintf(text + at, n - at, "!");
    }
}
