/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes JSON. Texts may contain any bytes: control characters, quotes and '<' are escaped, so that
 * no text can end its string, its line, or a script that contains it. Bytes that are not UTF-8
 * become U+FFFD.
 *
 * Functions with a key append one member of an object, or one item of a list when key is NULL. They
 * insert a comma where one is needed. A key is written as it is, so it must need no escapes. When
 * memory runs out, s->ok becomes false (str.h).
 */
#ifndef DF_BASE_JSON_H
#define DF_BASE_JSON_H

#include "base/str.h"

#define DF_JSON_MOST 6 /* bound on the bytes that escaping makes of one byte */

/* Escapes the text from *at to end into out, until the text ends or fewer than 2 * DF_JSON_MOST
 * bytes of room are left. Returns the number of bytes written, without a terminating zero, and
 * advances *at. When room is smaller than 2 * DF_JSON_MOST, nothing is written. */
size_t df_json_escape(char *out, size_t room, const char **at, const char *end);

/* Begins an object or a list. bracket is '{' or '['. While s is empty, key is
 * ignored: the object or list is then the outermost one. */
void df_json_open(df_str *s, const char *key, char bracket);
/* Ends the innermost object or list. bracket is '}' or ']'. */
void df_json_close(df_str *s, char bracket);
/* A NULL text becomes null. */
void df_json_text(df_str *s, const char *key, const char *text);
/* Takes n bytes of text, which must not be NULL. */
void df_json_textn(df_str *s, const char *key, const char *text, size_t n);
void df_json_count(df_str *s, const char *key, uint64_t n); /* a number */
void df_json_flag(df_str *s, const char *key, bool on);     /* true or false */

/* Appends a call site; 0 becomes null. Another site becomes a placeholder: the byte DF_JSON_SITE,
 * which no escaped text contains, and 16 hexadecimal digits. The writer of the journal replaces it
 * by the quoted name of the site. Until then the text is no valid JSON. */
#define DF_JSON_SITE '\001'
void df_json_site(df_str *s, const char *key, uintptr_t site);

#endif
