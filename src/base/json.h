/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes JSON. Texts may contain any bytes: control characters, quotes and '<' are escaped, so that
 * no text can end its string, its line, or a script that contains it. Bytes that are not UTF-8
 * become U+FFFD. Commas are inserted where they are needed. Items of a list have a NULL key.
 */
#ifndef DF_BASE_JSON_H
#define DF_BASE_JSON_H

#include "base/str.h"

#define DF_JSON_MOST 6 /* bound on the bytes that escaping makes of one byte */

/* Escapes the text from *at to end into out, until the text ends or fewer than 2 * DF_JSON_MOST
 * bytes of room are left. Returns the number of bytes written and advances *at. */
size_t df_json_escape(char *out, size_t room, const char **at, const char *end);

/* Appends a member, or an item if key is NULL, that begins with bracket, '{' or '['. */
void df_json_open(df_str *s, const char *key, char bracket);
/* Appends '}' or ']'. */
void df_json_close(df_str *s, char bracket);
/* Append one member or item. A text that is NULL becomes null. */
void df_json_text(df_str *s, const char *key, const char *text);
void df_json_textn(df_str *s, const char *key, const char *text, size_t n);
void df_json_count(df_str *s, const char *key, uint64_t n);
void df_json_flag(df_str *s, const char *key, bool on);

/* Appends a call site, where 0 becomes null. A site is represented by DF_JSON_SITE, which no
 * escaped text contains, and 16 hexadecimal digits. The writer of the journal replaces both by the
 * quoted name of the site. */
#define DF_JSON_SITE '\001'
void df_json_site(df_str *s, const char *key, uintptr_t site);

#endif
