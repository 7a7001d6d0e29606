/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON, written only. Any bytes may be put: control characters, quotes and '<' are escaped, so that
 * no text ends its string, its line or a script around it, and what is no UTF-8 becomes U+FFFD.
 * Commas are put where they are needed. A key of NULL is for items of a list.
 */
#ifndef DF_BASE_JSON_H
#define DF_BASE_JSON_H

#include "base/str.h"

#define DF_JSON_MOST 6 /* bytes that one byte of text may become, or fewer */

/* Escapes text into out until it ends or fewer than 2 * DF_JSON_MOST bytes of room are left.
 * Returns the bytes written; *at moves to what is left of the text. */
size_t df_json_escape(char *out, size_t room, const char **at, const char *end);

void df_json_open(df_str *s, const char *key, char bracket);     /* '{' or '[' */
void df_json_close(df_str *s, char bracket);                     /* '}' or ']' */
void df_json_text(df_str *s, const char *key, const char *text); /* NULL: null */
void df_json_textn(df_str *s, const char *key, const char *text, size_t n);
void df_json_count(df_str *s, const char *key, uint64_t n);
void df_json_flag(df_str *s, const char *key, bool on);

/* A call site, 0: null. It stands as DF_JSON_SITE, which no escaped text has, and 16 hex digits;
 * who writes the text puts its name there, quoted. */
#define DF_JSON_SITE '\001'
void df_json_site(df_str *s, const char *key, uintptr_t site);

#endif
