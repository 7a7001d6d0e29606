/* SPDX-License-Identifier: Apache-2.0
 *
 * Reader and writer of npy headers. The reader accepts the dict with its three keys in any order,
 * and nothing else of Python. It allocates nothing, and checks every number for overflow.
 */
#include "lazy/files/npy.h"

#include "base/bits.h"
#include "ops/dtype.h"

#include <stdio.h>

static const char magic[6] = { '\x93', 'N', 'U', 'M', 'P', 'Y' };

/* The letter of a dtype in descr; 0: npy has no such dtype. */
static char npy_letter(deft_dtype t)
{
    switch (df_kind_of(t)) {
    case DF_KIND_boolean: return 'b';
    case DF_KIND_natural: return 'u';
    case DF_KIND_integer: return 'i';
    case DF_KIND_real: return 'f';
    case DF_KIND_half: return t == DEFT_F16 ? 'f' : '\0';
    case DF_KIND_complex: return 'c';
    case DF_KIND_coded:
    case DF_KIND_packed: return '\0';
    }
    df_unreachable();
}

bool df_npy_has(deft_dtype dtype)
{
    return npy_letter(dtype) != '\0';
}

deft_status df_npy_prefix(df_diag *d, const char *file, const unsigned char *first, size_t n,
                          df_npy *out)
{
    if (n < 10 || memcmp(first, magic, sizeof magic) != 0)
        return df_fail(d, DEFT_E_FORMAT, "%s: no npy file: it does not begin with \\x93NUMPY",
                       file);
    const unsigned major = first[6];
    if (major < 1 || major > 3)
        return df_fail(d, DEFT_E_FORMAT, "%s: version %u.%u of npy, and deft reads 1 to 3", file,
                       major, first[7]);
    if (major > 1 && n < DF_NPY_PREFIX)
        return df_fail(d, DEFT_E_FORMAT, "%s: it ends within its header", file);
    out->text_at = major == 1 ? 10 : 12;
    out->text_size = (uint64_t)first[8] | (uint64_t)first[9] << 8;
    if (major > 1) out->text_size |= (uint64_t)first[10] << 16 | (uint64_t)first[11] << 24;
    if (out->text_size > DF_NPY_MAX_TEXT)
        return df_fail(d, DEFT_E_FORMAT, "%s: a header of %llu bytes; at most %llu are read", file,
                       (unsigned long long)out->text_size, (unsigned long long)DF_NPY_MAX_TEXT);
    return DEFT_OK;
}

/* ---- the text ---- */

typedef struct npy_text {
    df_diag *d;
    const char *file;
    const char *at, *end;
    const char *start;
} npy_text;

static DF_COLD deft_status npy_wrong(const npy_text *t, const char *what)
{
    return df_fail(t->d, DEFT_E_FORMAT, "%s: the header has %s, at character %zu of it", t->file,
                   what, (size_t)(t->at - t->start));
}

static void npy_space(npy_text *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\n' || *t->at == '\t')) t->at++;
}

static bool npy_skip(npy_text *t, char c)
{
    npy_space(t);
    if (t->at == t->end || *t->at != c) return false;
    t->at++;
    return true;
}

/* A quoted text without escapes. */
static deft_status npy_string(npy_text *t, const char **at, size_t *n)
{
    const char quote = npy_skip(t, '\'') ? '\'' : npy_skip(t, '"') ? '"' : '\0';
    if (!quote) return npy_wrong(t, "something other than a string");
    *at = t->at;
    while (t->at < t->end && *t->at != quote && *t->at != '\\' && *t->at >= ' ') t->at++;
    if (t->at == t->end || *t->at != quote) return npy_wrong(t, "a string without end");
    *n = (size_t)(t->at++ - *at);
    return DEFT_OK;
}

static bool npy_word(npy_text *t, const char *word)
{
    const size_t n = strlen(word);
    npy_space(t);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0) return false;
    t->at += n;
    return true;
}

static deft_status npy_extent(npy_text *t, int64_t *out)
{
    int64_t v = 0;
    npy_space(t);
    const char *const first = t->at;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++)
        if (!df_mul_i64(v, 10, &v) || !df_add_i64(v, *t->at - '0', &v))
            return npy_wrong(t, "an extent beyond 2^63");
    if (t->at == first) return npy_wrong(t, "a shape that is no tuple of whole numbers");
    (void)npy_skip(t, 'L'); /* a long integer of Python 2 */
    *out = v;
    return DEFT_OK;
}

static deft_status npy_shape(npy_text *t, df_npy *out)
{
    deft_status st = DEFT_OK;
    if (!npy_skip(t, '(')) return npy_wrong(t, "a shape that is no tuple");
    while (!npy_skip(t, ')')) {
        int64_t extent = 0;
        TRY(npy_extent(t, &extent));
        if (out->shape.rank == DEFT_MAX_RANK)
            return df_fail(t->d, DEFT_E_SHAPE, "%s: it has more than %d axes", t->file,
                           DEFT_MAX_RANK);
        out->shape.dim[out->shape.rank++] = extent;
        if (!npy_skip(t, ',')) {
            if (!npy_skip(t, ')')) return npy_wrong(t, "a shape without end");
            break;
        }
    }
done:
    return st;
}

/* '<f4', '>i2', '|b1', '=u8', '<c16'. Other dtypes are noted, and refused when they are loaded. */
static deft_status npy_descr(npy_text *t, df_npy *out)
{
    const char *at;
    size_t n;
    if (npy_skip(t, '[')) return npy_wrong(t, "a dtype with fields, which deft does not have");
    const deft_status st = npy_string(t, &at, &n);
    if (st != DEFT_OK) return st;
    const size_t shown = n < sizeof out->descr - 1 ? n : sizeof out->descr - 1;
    memcpy(out->descr, at, shown);
    out->descr[shown] = '\0';
    for (size_t i = 0; i < shown; i++)
        if ((unsigned char)out->descr[i] >= 0x7f) out->descr[i] = '?';
    out->dtype = DF_NPY_OTHER;
    if (n < 3 || !strchr("<>=|", at[0])) return DEFT_OK;
    for (deft_dtype k = (deft_dtype)0; k < DEFT_N_DTYPES; k = (deft_dtype)(k + 1)) {
        const uint32_t size = df_bytes_of(k);
        char text[4];
        (void)snprintf(text, sizeof text, "%u", size);
        if (npy_letter(k) != at[1] || !df_text_equals(at + 2, n - 2, text)) continue;
        out->dtype = (int32_t)k;
        out->size = size;
        out->is_swapped = at[0] == (DF_IS_BIG_ENDIAN ? '<' : '>') && size > 1;
    }
    return DEFT_OK;
}

/* Reads one key and its value. seen: a bit per key. */
static deft_status npy_entry(npy_text *t, df_npy *out, unsigned *seen)
{
    deft_status st = DEFT_OK;
    const char *key;
    size_t n;
    TRY(npy_string(t, &key, &n));
    if (!npy_skip(t, ':')) return npy_wrong(t, "a key without a value");
    unsigned bit;
    if (df_text_equals(key, n, "descr")) {
        bit = 1;
        TRY(npy_descr(t, out));
    } else if (df_text_equals(key, n, "fortran_order")) {
        bit = 2;
        out->is_fortran = npy_word(t, "True");
        if (!out->is_fortran && !npy_word(t, "False"))
            return npy_wrong(t, "a fortran_order that is neither True nor False");
    } else if (df_text_equals(key, n, "shape")) {
        bit = 4;
        if (!(*seen & bit)) TRY(npy_shape(t, out));
    } else {
        return npy_wrong(t, "a key other than descr, fortran_order and shape");
    }
    if (*seen & bit) return npy_wrong(t, "a key that stands twice");
    *seen |= bit;
done:
    return st;
}

deft_status df_npy_parse(df_diag *d, const char *file, const char *text, size_t n, df_npy *out)
{
    deft_status st = DEFT_OK;
    unsigned seen = 0;
    int64_t numel, bytes;
    npy_text t = { .d = d, .file = file, .at = text, .end = text + n, .start = text };
    out->shape.rank = 0;
    if (!npy_skip(&t, '{')) return npy_wrong(&t, "no dict");
    while (!npy_skip(&t, '}')) {
        TRY(npy_entry(&t, out, &seen));
        if (npy_skip(&t, ',')) continue;
        if (!npy_skip(&t, '}')) return npy_wrong(&t, "a dict without end");
        break;
    }
    npy_space(&t);
    if (t.at != t.end) return npy_wrong(&t, "something after its dict");
    if (seen != 7) return npy_wrong(&t, "not all of descr, fortran_order and shape");
    const int64_t size = out->dtype == DF_NPY_OTHER ? 1 : (int64_t)out->size;
    if (!df_shape_numel(&out->shape, &numel) || !df_mul_i64(numel, size, &bytes))
        return df_fail(d, DEFT_E_FORMAT, "%s: its shape has more bytes than can be counted", file);
    out->bytes = (uint64_t)bytes;
done:
    return st;
}

void df_npy_write(df_str *out, deft_dtype dtype, const df_shape *shape)
{
    const size_t from = out->n, unit = 64;
    const uint32_t size = df_bytes_of(dtype);
    df_str_putn(out, magic, sizeof magic);
    df_str_putn(out, "\1\0\0\0", 4);
    df_str_fmt(out, "{'descr': '%c%c%u', 'fortran_order': False, 'shape': (", size > 1 ? '<' : '|',
               npy_letter(dtype), size);
    for (uint32_t i = 0; i < shape->rank; i++)
        df_str_fmt(out, "%lld%s", (long long)shape->dim[i],
                   i + 1 < shape->rank ? ", "
                   : shape->rank == 1  ? ","
                                       : "");
    df_str_put(out, "), }");
    while (out->ok && (out->n - from + 1) % unit) df_str_putc(out, ' ');
    df_str_putc(out, '\n');
    if (!out->ok) return;
    const size_t text = out->n - from - 10;
    out->at[from + 8] = (char)(text & 0xff);
    out->at[from + 9] = (char)(text >> 8);
}
