/* SPDX-License-Identifier: Apache-2.0
 *
 * Call sites: where the user's program called. A site is one word, and never part of an identity:
 *
 *   0                  unknown: "the start"
 *   a return address   lies just behind the call; module+offset says where, and a resolver (the
 *                      plug-in deft-sites) may know function, file and line
 *   a name             DF_SITE_NAMED and a number in a df_sites: a line that a binding told of, or
 *                      a site within labels. Addresses of programs have that bit clear.
 *
 * Names are kept once and as long as the df_sites, which belongs to a runtime: plans and events
 * hold sites, and outlive contexts.
 */
#ifndef DF_BASE_SITE_H
#define DF_BASE_SITE_H

#include "base/mem.h"

#define DF_SITE_TEXT 256
#define DF_SITE_NAMED ((uintptr_t)1 << 63)

/* ---- resolvers ---- */

typedef struct df_source_line {
    char file[64]; /* without folders; cut to fit */
    char function[80];
    uint32_t line;
} df_source_line;

/* Filled in by a plug-in. The df_sites that asks does so from one thread at a time. */
typedef struct df_resolver {
    void *self;
    void *library; /* closed with dlclose, last; may be NULL */
    /* Where the code at address was written, the innermost inlined function; false: not known. Any
     * address may be asked for. Prints nothing, starts nothing, asks no network. */
    bool (*find)(void *self, uintptr_t address, df_source_line *out);
    void (*destroy)(void *self);
} df_resolver;

void df_resolver_close(df_resolver *r); /* of zeros: nothing happens; leaves zeros */

/* What the plug-in may use of the host. */
typedef struct df_sites_host {
    uint32_t size;
    const char *build_id; /* must equal the plug-in's */
    const df_mem *mem;
} df_sites_host;

/* The one symbol of a resolver plug-in. false: refused, or no memory. */
typedef bool (*df_plugin_sites_fn)(const df_sites_host *host, df_resolver *out);
#define DF_PLUGIN_SITES_SYMBOL "df_plugin_sites"

/* ---- names ---- */

/* Any thread; a forked child may go on using its own. */
typedef struct df_sites df_sites;

/* Makes the resolver: called once, when the first address is to be text; false: there is none. */
typedef bool (*df_resolver_open)(void *user, df_resolver *out);

/* open NULL: no resolver. NULL without memory. */
df_sites *df_sites_create(const df_mem *mem, df_resolver_open open, void *user);
void df_sites_destroy(df_sites **s);

#define DF_SITE_NAMES (1u << 16) /* at most */
#define DF_LABEL_TEXT 63         /* bytes of a file's name or label that are kept */

/* Line `line` of file, of which what stands behind the last slash is copied. 0 when there is no
 * memory or no room. */
uintptr_t df_sites_line(df_sites *s, const char *file, int line);
/* The label `name`, copied, within the label `outer` (0: none). 0 as above. */
uintptr_t df_sites_label(df_sites *s, uintptr_t outer, const char *name);
/* site within label; site itself when it is 0 or within labels already, and as above. */
uintptr_t df_sites_within(df_sites *s, uintptr_t site, uintptr_t label);

/* "mlp.c:41 (train_step)"; where no line is known "heat+0x1f3", and where the dynamic symbol table
 * has a name for it, as in libraries and programs linked with -rdynamic, "sim.so+0x1f3
 * (advance+0x21)". "train.py:7" for a binding's line; " in encoder/attention" behind each that is
 * within labels. Written into buf, which is returned. s NULL: without resolver and names. */
const char *df_site_text(df_sites *s, uintptr_t site, char *buf, size_t n);

#endif
