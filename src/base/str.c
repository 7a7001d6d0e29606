/* SPDX-License-Identifier: Apache-2.0
 *
 * The string builder. Its memory grows by doubling. The text is NUL-terminated as soon as something
 * was appended.
 */
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Makes room for n more characters and the NUL. */
static bool reserve(df_str *s, size_t n)
{
    if (!s->ok) return false;
    if (n < s->cap - s->n) return true;
    size_t least;
    s->ok = false;
    if (__builtin_add_overflow(s->n, n, &least) || least >= SIZE_MAX / 2) return false;
    size_t cap = s->cap ? s->cap * 2 : 64;
    if (cap < least + 1) cap = least + 1;
    char *const at = s->mem->resize(s->mem->user, s->at, s->cap, cap);
    if (!at) return false;
    s->at = at;
    s->cap = cap;
    s->ok = true;
    return true;
}

void df_str_init(df_str *s, const df_mem *mem)
{
    *s = (df_str){ .mem = mem, .ok = true };
}

void df_str_finish(df_str *s)
{
    df_mem_free(s->mem, s->at, s->cap);
    df_str_init(s, s->mem);
}

void df_str_putn(df_str *s, const char *text, size_t n)
{
    if (!reserve(s, n)) return;
    if (n) memcpy(s->at + s->n, text, n);
    s->n += n;
    s->at[s->n] = '\0';
}

void df_str_put(df_str *s, const char *text)
{
    df_str_putn(s, text, strlen(text));
}

void df_str_putc(df_str *s, char c)
{
    df_str_putn(s, &c, 1);
}

void df_str_fmt(df_str *s, const char *fmt, ...)
{
    if (!reserve(s, 0)) return;
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const size_t room = s->cap - s->n;
    const int n = vsnprintf(s->at + s->n, room, fmt, args);
    if (n < 0) {
        s->at[s->n] = '\0';
        s->ok = false;
    } else if ((size_t)n < room) {
        s->n += (size_t)n;
    } else {
        s->at[s->n] = '\0'; /* removes the truncated text when growth fails */
        if (reserve(s, (size_t)n)) {
            (void)vsnprintf(s->at + s->n, (size_t)n + 1, fmt, again);
            s->n += (size_t)n;
        }
    }
    va_end(again);
    va_end(args);
}
