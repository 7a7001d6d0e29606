/* SPDX-License-Identifier: Apache-2.0
 *
 * Reader and writer of safetensors headers (format: huggingface/safetensors, 2022).
 *
 * The reader accepts exactly the JSON that the format allows. Its depth is fixed, so the
 * reader needs no recursion and no general tree. It trusts nothing in a file: every
 * number is checked for overflow, and every string is checked to be UTF-8. Its memory is
 * a small multiple of the size of the header, which the caller has seen on disk. Strings
 * are decoded in place, where they never grow.
 *
 * The reader is stricter than the reference implementation where no real file is
 * affected: it refuses unknown fields, and only spaces may follow the object.
 */
#include "lazy/files/safetensors.h"

#include <string.h>

#include "base/vec.h"

typedef struct text {
    char *at;
    uint32_t n;
} text;

/* A key of the top object (scope 0) or of __metadata__ (scope 1), for finding duplicates. */
typedef struct key {
    text name;
    uint32_t scope;
} key;

typedef struct reader {
    df_diag *d;
    const df_mem *mem;
    const char *file;
    char *base;
    size_t at, n;
    df_safetensors_table *out;
    DF_VEC(key) keys;
} reader;

const char *df_safetensors_show(const char *name, size_t n, char *buf, size_t room)
{
    size_t k = 0;
    for (; k < n && k + 4 < room; k++) {
        const unsigned char c = (unsigned char)name[k];
        buf[k] = c < 0x20 || c == 0x7f ? '?' : name[k];
    }
    /* Does not cut a character in half. */
    while (k < n && k > 0 && ((unsigned char)name[k] & 0xc0) == 0x80) k--;
    buf[k] = '\0';
    if (k < n) memcpy(buf + k, "...", 4);
    return buf;
}

static DF_COLD deft_status header_error_at(reader *r, size_t at, const char *what)
{
    return df_fail(r->d, DEFT_E_FORMAT, "load: %s: %s, at byte %zu", r->file, what,
                   at + DF_SAFETENSORS_PREFIX);
}

static DF_COLD deft_status header_error(reader *r, const char *what)
{
    return header_error_at(r, r->at, what);
}

/* ---- lexical level ---- */

static void skip_space(reader *r)
{
    while (r->at < r->n) {
        const char c = r->base[r->at];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return;
        r->at++;
    }
}

static bool at_char(reader *r, char c)
{
    skip_space(r);
    return r->at < r->n && r->base[r->at] == c;
}

static bool accept_char(reader *r, char c)
{
    if (!at_char(r, c)) return false;
    r->at++;
    return true;
}

static deft_status expect_char(reader *r, char c, const char *what)
{
    return accept_char(r, c) ? DEFT_OK : header_error(r, what);
}

/* The length of the well-formed UTF-8 sequence at s (Unicode, table 3-7), 0 when there is none. */
static size_t utf8_size(const unsigned char *s, size_t n)
{
    if (n == 0) return 0;
    const unsigned c = s[0];
    if (c < 0x80) return 1;
    const size_t size = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (c < 0xc2 || c > 0xf4 || n < size) return 0;
    const unsigned low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    const unsigned high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    if (s[1] < low || s[1] > high) return 0;
    for (size_t i = 2; i < size; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    return size;
}

static size_t utf8_put(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xc0 | c >> 6);
        to[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (char)(0xe0 | c >> 12);
        to[1] = (char)(0x80 | (c >> 6 & 0x3f));
        to[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | c >> 18);
    to[1] = (char)(0x80 | (c >> 12 & 0x3f));
    to[2] = (char)(0x80 | (c >> 6 & 0x3f));
    to[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* Four hex digits after "\u". */
static deft_status hex4(reader *r, uint32_t *out)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        const char c = r->at < r->n ? r->base[r->at] : '\0';
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (uint32_t)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = (uint32_t)(c - 'A') + 10;
        else
            return header_error(r, "\\u without four hexadecimal digits");
        v = v << 4 | digit;
    }
    *out = v;
    return DEFT_OK;
}

/* The escape after a backslash, decoded to `to`. */
static deft_status escape(reader *r, char **to)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    const char c = r->at < r->n ? r->base[r->at] : '\0';
    if (c != 'u') {
        const char *const which = c ? strchr(from, c) : NULL;
        if (!which) return header_error(r, "an escape that JSON does not know");
        *(*to)++ = into[which - from];
        r->at++;
        return DEFT_OK;
    }
    deft_status st = DEFT_OK;
    const size_t start = r->at - 1;
    uint32_t code = 0, low = 0;
    r->at++;
    TRY(hex4(r, &code));
    if (code >= 0xd800 && code < 0xdc00) {
        if (r->n - r->at < 2 || r->base[r->at] != '\\' || r->base[r->at + 1] != 'u')
            return header_error_at(r, start, "half a surrogate pair");
        r->at += 2;
        TRY(hex4(r, &low));
        if (low < 0xdc00 || low > 0xdfff) return header_error_at(r, start, "half a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
        return header_error_at(r, start, "half a surrogate pair");
    }
    *to += utf8_put(*to, code);
done:
    return st;
}

static deft_status string(reader *r, text *out)
{
    deft_status st = DEFT_OK;
    if (!accept_char(r, '"')) return header_error(r, "expected a string");
    const size_t start = r->at - 1;
    char *const first = r->base + r->at, *to = first;
    for (;;) {
        if (r->at >= r->n) return header_error_at(r, start, "a string without end");
        const unsigned char c = (unsigned char)r->base[r->at];
        if (c == '"') break;
        if (c < 0x20) return header_error(r, "a control character in a string");
        if (c == '\\') {
            r->at++;
            TRY(escape(r, &to));
            continue;
        }
        const size_t size = utf8_size((const unsigned char *)r->base + r->at, r->n - r->at);
        if (!size) return header_error(r, "a string that is no UTF-8");
        memmove(to, r->base + r->at, size);
        to += size;
        r->at += size;
    }
    r->at++;
    *out = (text){ first, (uint32_t)(to - first) };
done:
    return st;
}

/* Reads a JSON number without sign, point, exponent or leading zero. */
static deft_status natural(reader *r, uint64_t *out)
{
    skip_space(r);
    const size_t start = r->at;
    uint64_t v = 0;
    for (; r->at < r->n; r->at++) {
        const char c = r->base[r->at];
        if (c < '0' || c > '9') break;
        const uint64_t digit = (uint64_t)(c - '0');
        if (v > ((uint64_t)INT64_MAX - digit) / 10)
            return header_error_at(r, start, "a number beyond 2^63");
        v = v * 10 + digit;
    }
    if (r->at == start) return header_error(r, "expected a whole number that is not negative");
    if (r->base[start] == '0' && r->at > start + 1)
        return header_error_at(r, start, "a number with a leading zero");
    const char next = r->at < r->n ? r->base[r->at] : ' ';
    if (next == '.' || next == 'e' || next == 'E')
        return header_error_at(r, start, "a number that is not whole");
    *out = v;
    return DEFT_OK;
}

/* ---- entries ---- */

typedef struct dtype_row {
    char name[8];
    int32_t dtype;
    uint32_t size;
} dtype_row;

/* The dtypes of the format. */
static const dtype_row dtypes[] = {
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file)                                \
    { file, DEFT_##NAME, (bits) / 8 },
#define FACE(name, NAME, kind, bits, record, c_type, file) { file, DEFT_##NAME, (bits) / 8 },
#include "ops/dtypes.def"
};

typedef struct fields {
    bool dtype, shape, offsets;
    uint32_t size; /* bytes of one element; 0: the dtype is unknown */
    uint64_t numel;
    bool overflow; /* numel does not fit */
} fields;

static deft_status read_dtype(reader *r, df_safetensors_entry *e, fields *f)
{
    text t = { 0 };
    const deft_status st = string(r, &t);
    if (st != DEFT_OK) return st;
    df_safetensors_show(t.at, t.n, e->dtype_text, sizeof e->dtype_text);
    e->dtype = DF_SAFETENSORS_OTHER;
    for (size_t i = 0; i < DF_LEN(dtypes); i++)
        if (dtypes[i].name[0] && df_text_equals(t.at, t.n, dtypes[i].name)) {
            e->dtype = dtypes[i].dtype;
            f->size = dtypes[i].size;
        }
    return DEFT_OK;
}

static deft_status read_shape(reader *r, df_safetensors_entry *e, fields *f)
{
    deft_status st = DEFT_OK;
    bool zero = false;
    f->numel = 1;
    TRY(expect_char(r, '[', "a shape that is no list"));
    if (accept_char(r, ']')) return DEFT_OK;
    do {
        uint64_t v = 0;
        TRY(natural(r, &v));
        if (e->rank < DEFT_MAX_RANK) e->dim[e->rank] = (int64_t)v;
        e->rank++;
        zero = zero || v == 0;
        if (__builtin_mul_overflow(f->numel, v, &f->numel)) f->overflow = true;
    } while (accept_char(r, ','));
    TRY(expect_char(r, ']', "expected , or ] in a shape"));
    if (zero) { /* whatever the other extents are */
        f->numel = 0;
        f->overflow = false;
    }
done:
    return st;
}

static deft_status read_offsets(reader *r, df_safetensors_entry *e)
{
    deft_status st = DEFT_OK;
    TRY(expect_char(r, '[', "data_offsets that are no list"));
    TRY(natural(r, &e->begin));
    TRY(expect_char(r, ',', "data_offsets that are not two numbers"));
    TRY(natural(r, &e->end));
    TRY(expect_char(r, ']', "data_offsets that are not two numbers"));
done:
    return st;
}

static deft_status read_field(reader *r, df_safetensors_entry *e, fields *f)
{
    deft_status st = DEFT_OK;
    text name = { 0 };
    TRY(string(r, &name));
    TRY(expect_char(r, ':', "expected : after a field's name"));
    bool *seen;
    if (df_text_equals(name.at, name.n, "dtype"))
        seen = &f->dtype;
    else if (df_text_equals(name.at, name.n, "shape"))
        seen = &f->shape;
    else if (df_text_equals(name.at, name.n, "data_offsets"))
        seen = &f->offsets;
    else
        return header_error(r, "a field other than dtype, shape and data_offsets");
    if (*seen) return header_error(r, "a field that stands twice");
    *seen = true;
    if (seen == &f->dtype)
        TRY(read_dtype(r, e, f));
    else if (seen == &f->shape)
        TRY(read_shape(r, e, f));
    else
        TRY(read_offsets(r, e));
done:
    return st;
}

static deft_status read_entry(reader *r, text name, uint64_t data_bytes)
{
    deft_status st = DEFT_OK;
    df_safetensors_entry e = { .name = name.at, .name_size = name.n };
    fields f = { 0 };
    skip_space(r);
    const size_t start = r->at;
    TRY(expect_char(r, '{', "a tensor that is no object"));
    do TRY(read_field(r, &e, &f));
    while (accept_char(r, ','));
    TRY(expect_char(r, '}', "expected , or } in a tensor"));
    if (!f.dtype || !f.shape || !f.offsets)
        return header_error_at(r, start, "a tensor without dtype, shape or data_offsets");
    uint64_t bytes = 0;
    if (f.overflow || (f.size && __builtin_mul_overflow(f.numel, (uint64_t)f.size, &bytes)) ||
        bytes > INT64_MAX)
        return header_error_at(r, start, "a shape with more bytes than can be counted");
    if (e.begin > e.end)
        return header_error_at(r, start, "data_offsets that end before they begin");
    if (e.end > data_bytes)
        return header_error_at(r, start, "data_offsets beyond the end of the file");
    if (f.size && e.end - e.begin != bytes)
        return header_error_at(r, start,
                               "data_offsets that are not as far apart as the shape needs");
    if (!df_vec_push(r->mem, r->out, e)) return df_fail_mem(r->d, "load", sizeof e);
done:
    return st;
}

static deft_status add_key(reader *r, text name, uint32_t scope)
{
    const key k = { name, scope };
    return df_vec_push(r->mem, &r->keys, k) ? DEFT_OK : df_fail_mem(r->d, "load", sizeof k);
}

static deft_status read_metadata(reader *r)
{
    deft_status st = DEFT_OK;
    TRY(expect_char(r, '{', "__metadata__ that is no object"));
    if (accept_char(r, '}')) return DEFT_OK;
    do {
        text name = { 0 }, value;
        TRY(string(r, &name));
        TRY(add_key(r, name, 1));
        TRY(expect_char(r, ':', "expected : after a name in __metadata__"));
        if (!at_char(r, '"')) return header_error(r, "a value in __metadata__ that is no string");
        TRY(string(r, &value));
    } while (accept_char(r, ','));
    TRY(expect_char(r, '}', "expected , or } in __metadata__"));
done:
    return st;
}

static deft_status read_object(reader *r, uint64_t data_bytes)
{
    deft_status st = DEFT_OK;
    if (r->n == 0 || r->base[0] != '{')
        return header_error(r, "a header that does not begin with {");
    r->at = 1;
    if (!accept_char(r, '}')) {
        do {
            text name = { 0 };
            TRY(string(r, &name));
            TRY(add_key(r, name, 0));
            TRY(expect_char(r, ':', "expected : after a name"));
            if (df_text_equals(name.at, name.n, "__metadata__"))
                TRY(read_metadata(r));
            else
                TRY(read_entry(r, name, data_bytes));
        } while (accept_char(r, ','));
        TRY(expect_char(r, '}', "expected , or } after a tensor"));
    }
    for (; r->at < r->n; r->at++)
        if (r->base[r->at] != ' ')
            return header_error(r, "something other than spaces after the header's end");
done:
    return st;
}

/* ---- whole-table checks ---- */

typedef int (*compare_fn)(const void *a, const void *b);

static void swap_table_rows(char *a, char *b, size_t size)
{
    char tmp[sizeof(df_safetensors_entry)];
    memcpy(tmp, a, size);
    memcpy(a, b, size);
    memcpy(b, tmp, size);
}

/* Heapsort (Williams 1964): in place, without recursion, and n log n for every input.
 * qsort promises none of these. */
static void heapsort_table(void *base, size_t n, size_t size, compare_fn compare)
{
    char *const at = base;
    df_assert(size <= sizeof(df_safetensors_entry));
    for (size_t start = n / 2, end = n; end > 1;) {
        if (start > 0)
            start--;
        else
            swap_table_rows(at, at + --end * size, size);
        for (size_t root = start, child; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && compare(at + child * size, at + (child + 1) * size) < 0) child++;
            if (compare(at + root * size, at + child * size) >= 0) break;
            swap_table_rows(at + root * size, at + child * size, size);
        }
    }
}

static int compare_names(const char *a, uint32_t na, const char *b, uint32_t nb)
{
    const int c = memcmp(a, b, na < nb ? na : nb);
    return c ? c : na < nb ? -1 : na > nb;
}

static int by_key(const void *a, const void *b)
{
    const key *const x = a, *const y = b;
    if (x->scope != y->scope) return x->scope < y->scope ? -1 : 1;
    return compare_names(x->name.at, x->name.n, y->name.at, y->name.n);
}

static int by_name(const void *a, const void *b)
{
    const df_safetensors_entry *const x = a, *const y = b;
    return compare_names(x->name, x->name_size, y->name, y->name_size);
}

static int by_place(const void *a, const void *b)
{
    const df_safetensors_entry *const x = a, *const y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static deft_status check_keys(reader *r)
{
    heapsort_table(r->keys.at, r->keys.n, sizeof *r->keys.at, by_key);
    for (size_t i = 1; i < r->keys.n; i++)
        if (by_key(&r->keys.at[i - 1], &r->keys.at[i]) == 0) {
            char shown[DF_SAFETENSORS_SHOW];
            const text t = r->keys.at[i].name;
            return df_fail(r->d, DEFT_E_FORMAT,
                           "load: %s: the name \"%s\" stands twice, at byte %zu", r->file,
                           df_safetensors_show(t.at, t.n, shown, sizeof shown),
                           (size_t)(t.at - r->base) + DF_SAFETENSORS_PREFIX);
        }
    return DEFT_OK;
}

static deft_status check_places(reader *r, uint64_t data_bytes)
{
    const df_safetensors_table *const t = r->out;
    heapsort_table(t->at, t->n, sizeof *t->at, by_place);
    uint64_t at = 0;
    char shown[DF_SAFETENSORS_SHOW];
    for (size_t i = 0; i < t->n; i++) {
        const df_safetensors_entry *const e = &t->at[i];
        if (e->begin != at)
            return df_fail(
                r->d, DEFT_E_FORMAT,
                "load: %s: the data of \"%s\" begins at %llu, %s at byte %llu of the data", r->file,
                df_safetensors_show(e->name, e->name_size, shown, sizeof shown),
                (unsigned long long)e->begin,
                e->begin > at ? "which leaves a hole" : "inside other data that ends",
                (unsigned long long)at);
        at = e->end;
    }
    if (at != data_bytes)
        return df_fail(
            r->d, DEFT_E_FORMAT,
            "load: %s: %llu bytes of data belong to no tensor, from byte %llu of the data", r->file,
            (unsigned long long)(data_bytes - at), (unsigned long long)at);
    return DEFT_OK;
}

/* ---- exported ---- */

deft_status df_safetensors_parse(df_diag *d, const df_mem *mem, const char *file, char *header,
                                 size_t n, uint64_t data_bytes, df_safetensors_table *out)
{
    deft_status st = DEFT_OK;
    *out = (df_safetensors_table){ .mem = mem };
    reader r = { .d = d, .mem = mem, .file = file, .base = header, .n = n, .out = out };
    TRY(read_object(&r, data_bytes));
    TRY(check_keys(&r));
    TRY(check_places(&r, data_bytes));
    heapsort_table(out->at, out->n, sizeof *out->at, by_name);
done:
    df_vec_finish(mem, &r.keys);
    if (st != DEFT_OK) df_safetensors_finish(out);
    return st;
}

void df_safetensors_finish(df_safetensors_table *t)
{
    if (t->mem) df_vec_finish(t->mem, t);
}

const df_safetensors_entry *df_safetensors_find(const df_safetensors_table *t, const char *name)
{
    const size_t size = strlen(name);
    if (size > UINT32_MAX) return NULL;
    for (size_t low = 0, high = t->n; low < high;) {
        const size_t mid = low + (high - low) / 2;
        const df_safetensors_entry *const e = &t->at[mid];
        const int c = compare_names(name, (uint32_t)size, e->name, e->name_size);
        if (c == 0) return e;
        if (c < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}

static deft_status check_name(df_diag *d, const df_safetensors_entry *e)
{
    char shown[DF_SAFETENSORS_SHOW];
    const char *what = NULL;
    if (e->name_size == 0) what = "is empty";
    if (e->name_size == 12 && memcmp(e->name, "__metadata__", 12) == 0)
        what = "is reserved by the format";
    for (size_t i = 0; i < e->name_size && !what;) {
        const size_t size = utf8_size((const unsigned char *)e->name + i, e->name_size - i);
        if (!size) what = "is no UTF-8";
        i += size;
    }
    if (!what) return DEFT_OK;
    return df_fail(d, DEFT_E_ARG, "save: the name \"%s\" %s",
                   df_safetensors_show(e->name, e->name_size, shown, sizeof shown), what);
}

static deft_status check_distinct(df_diag *d, const df_mem *mem, const df_safetensors_entry *list,
                                  size_t n)
{
    if (n < 2) return DEFT_OK;
    DF_VEC(key) keys = { 0 };
    deft_status st = DEFT_OK;
    if (!df_vec_reserve(mem, &keys, n)) return df_fail_mem(d, "save", n * sizeof *keys.at);
    for (size_t i = 0; i < n; i++)
        keys.at[i] = (key){ .name = { (char *)(uintptr_t)list[i].name, list[i].name_size } };
    heapsort_table(keys.at, n, sizeof *keys.at, by_key);
    for (size_t i = 1; i < n && st == DEFT_OK; i++) {
        char shown[DF_SAFETENSORS_SHOW];
        if (by_key(&keys.at[i - 1], &keys.at[i]) == 0)
            st = df_fail(
                d, DEFT_E_ARG, "save: the name \"%s\" stands twice",
                df_safetensors_show(keys.at[i].name.at, keys.at[i].name.n, shown, sizeof shown));
    }
    df_vec_finish(mem, &keys);
    return st;
}

static void write_header_string(df_str *s, const char *t, size_t n)
{
    df_str_putc(s, '"');
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)t[i];
        if (c < 0x20)
            df_str_fmt(s, "\\u%04x", c);
        else {
            if (c == '"' || c == '\\') df_str_putc(s, '\\');
            df_str_putc(s, t[i]);
        }
    }
    df_str_putc(s, '"');
}

static const char *format_name(int32_t dtype)
{
    for (size_t i = 0; i < DF_LEN(dtypes); i++)
        if (dtypes[i].dtype == dtype) return dtypes[i].name;
    df_unreachable();
}

static void write_header_entry(df_str *s, const df_safetensors_entry *e)
{
    write_header_string(s, e->name, e->name_size);
    df_str_fmt(s, ":{\"dtype\":\"%s\",\"shape\":[", format_name(e->dtype));
    for (uint32_t i = 0; i < e->rank; i++)
        df_str_fmt(s, i ? ",%lld" : "%lld", (long long)e->dim[i]);
    df_str_fmt(s, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)e->begin,
               (unsigned long long)e->end);
}

deft_status df_safetensors_write(df_diag *d, const df_mem *mem, const df_safetensors_entry *list,
                                 size_t n, df_str *out)
{
    deft_status st = DEFT_OK;
    for (size_t i = 0; i < n; i++) TRY(check_name(d, &list[i]));
    TRY(check_distinct(d, mem, list, n));
    const size_t start = out->n;
    df_str_putn(out, "\0\0\0\0\0\0\0\0", DF_SAFETENSORS_PREFIX);
    df_str_putc(out, '{');
    for (size_t i = 0; i < n; i++) {
        if (i) df_str_putc(out, ',');
        write_header_entry(out, &list[i]);
    }
    df_str_putc(out, '}');
    while (out->ok && (out->n - start) % 8) df_str_putc(out, ' '); /* so that data begins aligned */
    if (!out->ok)
        return df_fail(d, DEFT_E_MEMORY, "save: no memory for the header of %zu tensors", n);
    const uint64_t size = out->n - start - DF_SAFETENSORS_PREFIX;
    if (size > DF_SAFETENSORS_MAX_HEADER)
        return df_fail(d, DEFT_E_LIMIT, "save: a header of %llu bytes, more than a reader accepts",
                       (unsigned long long)size);
    for (uint32_t i = 0; i < DF_SAFETENSORS_PREFIX; i++)
        out->at[start + i] = (char)(unsigned char)(size >> (8 * i));
done:
    return st;
}

/* ---- files ---- */

deft_status df_safetensors_read(const df_reader *r, const df_mem *mem, df_safetensors_file *out)
{
    deft_status st = DEFT_OK;
    unsigned char prefix[DF_SAFETENSORS_PREFIX];
    if (r->size < sizeof prefix)
        return df_fail(r->d, DEFT_E_FORMAT,
                       "load: %s: %llu bytes, too short for a header, at byte 0", r->path,
                       (unsigned long long)r->size);
    TRY(df_reader_at(r, prefix, sizeof prefix, 0));
    uint64_t n = 0;
    for (uint32_t i = 0; i < sizeof prefix; i++) n |= (uint64_t)prefix[i] << (8 * i);
    if (n == 0 || n > DF_SAFETENSORS_MAX_HEADER || n > r->size - sizeof prefix)
        return df_fail(
            r->d, DEFT_E_FORMAT,
            "load: %s: a header of %llu bytes in a file of %llu (at most %llu are read), at byte 0",
            r->path, (unsigned long long)n, (unsigned long long)r->size,
            (unsigned long long)DF_SAFETENSORS_MAX_HEADER);
    out->data_at = n + sizeof prefix;
    out->header = df_mem_alloc(mem, (size_t)n);
    if (!out->header) return df_fail_mem(r->d, "load", (size_t)n);
    out->header_size = (size_t)n;
    TRY(df_reader_at(r, out->header, (size_t)n, sizeof prefix));
    TRY(df_safetensors_parse(r->d, mem, r->path, out->header, (size_t)n, r->size - out->data_at,
                             &out->table));
done:
    return st;
}

void df_safetensors_close(df_safetensors_file *f, const df_mem *mem)
{
    df_safetensors_finish(&f->table);
    df_mem_free(mem, f->header, f->header_size);
    *f = (df_safetensors_file){ 0 };
}
