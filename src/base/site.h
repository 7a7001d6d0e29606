/* SPDX-License-Identifier: Apache-2.0
 *
 * Call sites: the places where the program called the library. A site is one word, and never part
 * of an identity. Its value is one of:
 *
 *   0                  An unknown site. Its text is "the start".
 *   a return address   The address after the call. Its text has module and offset. A resolver (the
 *                      plug-in deft-sites) may find function, file and line.
 *   a name             df_site_of_name of a number in a df_sites. A name is a line that a binding
 *                      has passed, or a site within labels. No code has such an address.
 *
 * Each name is stored once. It lives as long as the df_sites, which belongs to a runtime, because
 * plans and events contain sites and outlive contexts.
 */
#ifndef DF_BASE_SITE_H
#define DF_BASE_SITE_H

#include <string.h>

#include "base/mem.h"

#define DF_SITE_TEXT 256 /* bytes for the text of a site */

/* ---- resolvers ---- */

typedef struct df_source_line {
    char file[64]; /* without folders; truncated to fit */
    char function[80];
    uint32_t line;
} df_source_line;

/* Finds source lines. A plug-in fills this in. A df_sites calls it from one thread at a time. */
typedef struct df_resolver {
    void *self;    /* passed to both functions */
    void *library; /* passed to dlclose at the end; may be NULL */
    /* Finds the source line of the code at any address, and the innermost function that was inlined
     * there. Returns false when they are not known. Must not print, start processes or use the
     * network. */
    bool (*find)(void *self, uintptr_t address, df_source_line *out);
    void (*destroy)(void *self);
} df_resolver;

/* Destroys a resolver and sets *r to zeros. Does nothing when *r is zeros. */
void df_resolver_close(df_resolver *r);

/* The services of the host for a plug-in. */
typedef struct df_sites_host {
    uint32_t size;        /* sizeof of this struct in the host */
    const char *build_id; /* must equal that of the plug-in */
    const df_mem *mem;
} df_sites_host;

/* The only symbol of a resolver plug-in. Returns false when it refuses the host, or when memory
 * runs out. */
typedef bool (*df_plugin_sites_fn)(const df_sites_host *host, df_resolver *out);
#define DF_PLUGIN_SITES_SYMBOL "df_plugin_sites"

/* ---- names ---- */

/* The names of call sites of a runtime. Any thread may use it, and so may a forked child. */
typedef struct df_sites df_sites;

/* Opens the resolver. It is called once, when the text of an address is first needed. Returns false
 * when there is no resolver. */
typedef bool (*df_resolver_open)(void *user, df_resolver *out);

/* Returns NULL when memory runs out. open may be NULL when there is no resolver. */
df_sites *df_sites_create(const df_mem *mem, df_resolver_open open, void *user);
void df_sites_destroy(df_sites **s);

#define DF_SITE_NAMES (1u << 16) /* bound on the number of names */

/* The site of name `number`, which is less than DF_SITE_NAMES. No address of 64 bits has the top
 * bit. Where addresses have 32 bits, code may lie at any of them. There the names are addresses of
 * memory that belongs to the library, which nobody reads or writes, so that the system never
 * provides it. */
#if UINTPTR_MAX > UINT32_MAX
#define DF_SITE_FIRST_NAME ((uintptr_t)1 << 63)
#else
extern char df_site_reserved[DF_SITE_NAMES];
#define DF_SITE_FIRST_NAME ((uintptr_t)df_site_reserved)
#endif

DF_INLINE uintptr_t df_site_of_name(uint32_t number)
{
    return DF_SITE_FIRST_NAME + number;
}

DF_INLINE bool df_site_is_name(uintptr_t site)
{
    return site - DF_SITE_FIRST_NAME < DF_SITE_NAMES;
}

/* Whether a site is a return address. */
DF_INLINE bool df_site_is_address(uintptr_t site)
{
#if UINTPTR_MAX > UINT32_MAX
    return (intptr_t)site > 0;
#else
    return site && !df_site_is_name(site);
#endif
}

/* The number of a site that is a name. */
DF_INLINE uint32_t df_site_number(uintptr_t site)
{
    return (uint32_t)(site - DF_SITE_FIRST_NAME);
}

#define DF_LABEL_TEXT 63 /* bytes that are kept of a file name or a label */

/* The site of a line in a file. The part of file after the last slash is copied. Returns 0 when
 * memory or names run out. */
uintptr_t df_sites_line(df_sites *s, const char *file, int line);
/* The label `name`, which is copied, within the label `outer`, where 0 means no outer label.
 * Returns 0 when memory or names run out. */
uintptr_t df_sites_label(df_sites *s, uintptr_t outer, const char *name);
/* The site within a label. Returns site itself when it is 0, when it is within labels already, or
 * when memory or names run out. */
uintptr_t df_sites_within(df_sites *s, uintptr_t site, uintptr_t label);

/* Writes the text of a site into buf, of n bytes, and returns buf. The text is one of:
 *
 *   mlp.c:41 (train_step)          an address whose line is known
 *   sim.so+0x1f3 (advance+0x21)    an address whose function is in the dynamic symbol table, as in
 *                                  libraries and in programs linked with -rdynamic
 *   heat+0x1f3                     any other address
 *   train.py:7                     a line that a binding has passed
 *
 * A site within labels has " in encoder/attention" appended. With s NULL there are neither a
 * resolver nor names. */
const char *df_site_text(df_sites *s, uintptr_t site, char *buf, size_t n);

/* The name of a file without its folders: a pointer into path. */
DF_INLINE const char *df_site_file_name(const char *path)
{
    const char *const slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

#endif
