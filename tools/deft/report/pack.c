/* SPDX-License-Identifier: Apache-2.0
 *
 * Long texts, shortened: what stood before is named instead of repeated (after Lempel and Ziv,
 * 1977). Code and plans become four to six times smaller; the page unpacks what it shows.
 *
 *   text of ASCII, 0x7f aside:  { "z": packed }    any other, or a short one: itself
 *   packed = character | 0x7f length offset[3]     length, offset: digits of base 90
 *
 * A match is LEAST characters or more, its length less LEAST one digit; it starts `offset`
 * characters back, most significant digit first.
 */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "parts.h"

enum {
    BASE = 90,
    LEAST = 8,
    MOST = LEAST + BASE - 1,
    FARTHEST = BASE * BASE * BASE - 1,
    HASH_BITS = 15,
    SHORT = 200, /* not worth it */
    ESCAPE = 0x7f,
};

/* Printable, and none that JSON or HTML would escape. */
static char digit(size_t v)
{
    static const char digits[] = "!#$%&'()*+,-./0123456789:;=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`"
                                 "abcdefghijklmnopqrstuvwxyz{|}~";
    _Static_assert(sizeof digits == BASE + 2, "one more than is used");
    return digits[v];
}

static uint32_t hash(const char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return (uint32_t)((v * 0x9e3779b97f4a7c15u) >> (64 - HASH_BITS));
}

static bool is_plain(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] >= ESCAPE) return false;
    return true;
}

static size_t match(const char *text, size_t n, size_t at, size_t before)
{
    size_t length = 0;
    while (length < MOST && at + length < n && text[before + length] == text[at + length]) length++;
    return length;
}

static void pack(df_str *out, const char *text, size_t n, uint32_t *latest)
{
    for (size_t at = 0; at < n;) {
        size_t length = 0, back = 0;
        if (at + LEAST <= n) {
            uint32_t *const slot = &latest[hash(text + at)];
            back = *slot ? at - (*slot - 1) : 0;
            *slot = (uint32_t)at + 1;
            if (back && back <= FARTHEST) length = match(text, n, at, at - back);
        }
        if (length < LEAST) {
            df_str_putc(out, text[at++]);
            continue;
        }
        const char name[] = { ESCAPE, digit(length - LEAST), digit(back / (BASE * BASE)),
                              digit(back / BASE % BASE), digit(back % BASE) };
        df_str_putn(out, name, sizeof name);
        for (size_t i = at + 1; i < at + length && i + LEAST <= n; i++)
            latest[hash(text + i)] = (uint32_t)i + 1;
        at += length;
    }
}

json_t *report_pack(const json_t *text)
{
    const char *const from = json_string_value(text);
    const size_t n = json_string_length(text), bytes = sizeof(uint32_t) << HASH_BITS;
    if (!from) return json_null();
    if (n < SHORT || n >= UINT32_MAX || !is_plain(from, n))
        return json_incref((json_t *)(uintptr_t)text);
    uint32_t *const latest = df_mem_zalloc(&df_mem_system, bytes);
    df_str out;
    df_str_init(&out, &df_mem_system);
    if (latest) pack(&out, from, n, latest);
    json_t *const packed =
        latest && out.ok ? json_pack("{s:o}", "z", json_stringn(out.at, out.n)) : NULL;
    df_str_finish(&out);
    df_mem_free(&df_mem_system, latest, bytes);
    return packed;
}
