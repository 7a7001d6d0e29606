/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes JSON: json.h.
 */
#include "base/json.h"

#include <string.h>

/* ---- characters ---- */

/* The length of the UTF-8 character at p; 0 when the bytes are not valid UTF-8. A valid character
 * is not overlong, is no surrogate, and is at most U+10FFFF. */
static size_t character(const unsigned char *p, size_t n)
{
    const unsigned char a = p[0];
    const size_t length = a < 0x80 ? 1 : a >= 0xf0 ? 4 : a >= 0xe0 ? 3 : 2;
    if (length == 1) return 1;
    if (a < 0xc2 || a > 0xf4 || n < length) return 0;
    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if ((a == 0xe0 && p[1] < 0xa0) || (a == 0xed && p[1] >= 0xa0)) return 0;
    if ((a == 0xf0 && p[1] < 0x90) || (a == 0xf4 && p[1] >= 0x90)) return 0;
    return length;
}

static bool is_plain(unsigned char c)
{
    return c >= ' ' && c < 0x7f && c != '"' && c != '\\' && c != '<';
}

static size_t put_code(char *out, unsigned code)
{
    static const char hex[] = "0123456789abcdef";
    memcpy(out, "\\u", 2);
    for (int i = 0; i < 4; i++) out[2 + i] = hex[code >> (12 - 4 * i) & 15];
    return 6;
}

static size_t put_escape(char *out, unsigned char c)
{
    char shorter = 0;
    if (c == '"' || c == '\\') shorter = (char)c;
    if (c == '\n') shorter = 'n';
    if (c == '\t') shorter = 't';
    if (!shorter) return put_code(out, c);
    out[0] = '\\';
    out[1] = shorter;
    return 2;
}

size_t df_json_escape(char *out, size_t room, const char **at, const char *end)
{
    size_t n = 0;
    while (*at < end && room - n >= 2 * DF_JSON_MOST) {
        const unsigned char *const p = (const unsigned char *)*at;
        const size_t length = character(p, (size_t)(end - *at));
        *at += length ? length : 1;
        if (length == 0) {
            n += put_code(out + n, 0xfffd);
        } else if (length == 3 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] & 0xfe) == 0xa8) {
            n += put_code(out + n, 0x2000u + (p[2] & 0x3fu)); /* ends a line in old scripts */
        } else if (length == 1 && !is_plain(*p)) {
            n += put_escape(out + n, *p);
        } else {
            memcpy(out + n, p, length);
            n += length;
        }
    }
    return n;
}

/* ---- values ---- */

static void put_key(df_str *s, const char *key)
{
    const char last = s->n ? s->at[s->n - 1] : '{';
    if (last != '{' && last != '[') df_str_putc(s, ',');
    if (!key) return;
    df_str_putc(s, '"');
    df_str_put(s, key);
    df_str_put(s, "\":");
}

void df_json_open(df_str *s, const char *key, char bracket)
{
    if (s->n) put_key(s, key);
    df_str_putc(s, bracket);
}

void df_json_close(df_str *s, char bracket)
{
    df_str_putc(s, bracket);
}

void df_json_textn(df_str *s, const char *key, const char *text, size_t n)
{
    char part[512];
    const char *const end = text + n;
    put_key(s, key);
    df_str_putc(s, '"');
    for (const char *at = text; at < end && s->ok;)
        df_str_putn(s, part, df_json_escape(part, sizeof part, &at, end));
    df_str_putc(s, '"');
}

void df_json_text(df_str *s, const char *key, const char *text)
{
    if (text) {
        df_json_textn(s, key, text, strlen(text));
    } else {
        put_key(s, key);
        df_str_put(s, "null");
    }
}

void df_json_count(df_str *s, const char *key, uint64_t n)
{
    put_key(s, key);
    df_str_fmt(s, "%llu", (unsigned long long)n);
}

void df_json_flag(df_str *s, const char *key, bool on)
{
    put_key(s, key);
    df_str_put(s, on ? "true" : "false");
}

void df_json_site(df_str *s, const char *key, uintptr_t site)
{
    put_key(s, key);
    if (site)
        df_str_fmt(s, "%c%016llx", DF_JSON_SITE, (unsigned long long)site);
    else
        df_str_put(s, "null");
}
