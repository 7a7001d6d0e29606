/* SPDX-License-Identifier: Apache-2.0
 *
 * A string builder. After a failed allocation or a failed format `ok` is false, and all further
 * appends do nothing. The text from before stays. So callers check `ok` once, at the end.
 */
#ifndef DF_BASE_STR_H
#define DF_BASE_STR_H

#include <string.h>

#include "base/mem.h"

typedef struct df_str {
    const df_mem *mem; /* borrowed */
    char *at;          /* NUL-terminated; NULL before the first append that succeeds */
    size_t n, cap;     /* length without the NUL; capacity in bytes */
    bool ok;           /* false after an append has failed */
} df_str;

/* Initialises an empty string without allocating memory. */
void df_str_init(df_str *s, const df_mem *mem);
/* Frees the text. The string is then as after df_str_init. */
void df_str_finish(df_str *s);

/* Append text: a string, n bytes, one character, or a format as of printf. Texts are not NULL. */
void df_str_put(df_str *s, const char *text);
void df_str_putn(df_str *s, const char *text, size_t n);
void df_str_putc(df_str *s, char c);
void df_str_fmt(df_str *s, const char *fmt, ...) DF_PRINTF(2, 3);

/* Whether the n bytes at `at` are the text of `word`, which ends with a NUL. */
DF_INLINE bool df_text_equals(const char *at, size_t n, const char *word)
{
    return n == strlen(word) && memcmp(at, word, n) == 0;
}

#endif
