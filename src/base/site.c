/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of call sites, and call sites as text. The dynamic loader gives modules and exported names
 * at no cost; files and lines come from the resolver.
 *
 * A hash table with open addressing finds names by their contents. Two names are the same when
 * kind, parts and text are equal. Names are never removed, so that a site remains valid.
 */
#include "base/site.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/fork.h"
#include "base/vec.h"

#if UINTPTR_MAX == UINT32_MAX
char df_site_reserved[DF_SITE_NAMES];
#endif

typedef enum kind { LINE, LABEL, WITHIN } kind;

typedef struct name {
    uint64_t hash;
    uintptr_t a, b; /* LINE: the line and 0; LABEL: the outer label and 0; WITHIN: site, label */
    kind kind;
    char text[]; /* LINE: the file; LABEL: the label; else "" */
} name;

struct df_sites {
    const df_mem *mem;
    df_fork_lock lock; /* protects everything below */
    df_arena arena;
    DF_VEC(name *) names;
    uint32_t *slot; /* hash table: index of a name + 1, or 0 */
    uint32_t n_slots;
    df_resolver_open open;
    void *user;
    df_resolver resolver;
    bool asked; /* the resolver was opened, or opening it failed */
};

void df_resolver_close(df_resolver *r)
{
    if (r->destroy) r->destroy(r->self);
    if (r->library) dlclose(r->library);
    memset(r, 0, sizeof *r);
}

df_sites *df_sites_create(const df_mem *mem, df_resolver_open open, void *user)
{
    df_sites *s = df_mem_zalloc(mem, sizeof *s);
    if (!s) return NULL;
    s->mem = mem;
    s->open = open;
    s->user = user;
    df_arena_init(&s->arena, mem);
    if (df_fork_lock_init(&s->lock)) return s;
    df_mem_free(mem, s, sizeof *s);
    return NULL;
}

void df_sites_destroy(df_sites **ps)
{
    df_sites *const s = *ps;
    *ps = NULL;
    if (!s) return;
    df_resolver_close(&s->resolver);
    df_arena_finish(&s->arena);
    df_vec_finish(s->mem, &s->names);
    df_mem_free(s->mem, s->slot, s->n_slots * sizeof *s->slot);
    df_fork_lock_finish(&s->lock);
    df_mem_free(s->mem, s, sizeof *s);
}

/* Takes the lock. In a child, state that a missing thread was changing is discarded. */
static void site_lock(df_sites *s)
{
    if (!df_fork_lock_take(&s->lock)) return;
    /* A missing thread was changing the state, so the old state is not read again. */
    df_arena_init(&s->arena, s->mem);
    memset(&s->names, 0, sizeof s->names);
    s->slot = NULL;
    s->n_slots = 0;
    memset(&s->resolver, 0, sizeof s->resolver);
    s->asked = true;
}

/* ---- the table ---- */

static uint64_t site_name_hash(kind k, uintptr_t a, uintptr_t b, const char *text, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    h = (h ^ a) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 29 ^ b) * 0x9e3779b97f4a7c15u;
    return (h ^ h >> 32) + k;
}

static bool site_name_matches(const name *x, uint64_t hash, kind k, uintptr_t a, uintptr_t b,
                              const char *text, size_t n)
{
    return x->hash == hash && x->kind == k && x->a == a && x->b == b &&
           strncmp(x->text, text, n) == 0 && !x->text[n];
}

static void site_table_insert(df_sites *s, uint32_t number)
{
    uint32_t i = (uint32_t)s->names.at[number]->hash & (s->n_slots - 1);
    while (s->slot[i]) i = (i + 1) & (s->n_slots - 1);
    s->slot[i] = number + 1;
}

/* Makes room for one more name, such that at least half of the cells remain empty. Returns false
 * when memory or names run out. */
static bool site_table_reserve(df_sites *s)
{
    if (s->names.n >= DF_SITE_NAMES || !df_vec_reserve(s->mem, &s->names, 1)) return false;
    if (2 * (s->names.n + 1) <= s->n_slots) return true;
    const uint32_t n = s->n_slots ? 2 * s->n_slots : 64;
    uint32_t *const slot = df_mem_zalloc(s->mem, n * sizeof *slot);
    if (!slot) return false;
    df_mem_free(s->mem, s->slot, s->n_slots * sizeof *slot);
    s->slot = slot;
    s->n_slots = n;
    for (uint32_t i = 0; i < s->names.n; i++) site_table_insert(s, i);
    return true;
}

/* Stores a new name and returns its site, or 0 when memory or names run out. */
static uintptr_t site_name_add(df_sites *s, uint64_t hash, kind k, uintptr_t a, uintptr_t b,
                               const char *text, size_t n)
{
    if (!site_table_reserve(s)) return 0;
    name *const x = df_arena_alloc(&s->arena, sizeof *x + n + 1, _Alignof(name));
    if (!x) return 0;
    *x = (name){ .hash = hash, .a = a, .b = b, .kind = k };
    memcpy(x->text, text, n);
    x->text[n] = '\0';
    s->names.at[s->names.n++] = x;
    site_table_insert(s, (uint32_t)s->names.n - 1);
    return df_site_of_name((uint32_t)s->names.n - 1);
}

/* The site of the name with these contents, which is stored if it is new. 0 as above. */
static uintptr_t site_name_intern(df_sites *s, kind k, uintptr_t a, uintptr_t b, const char *text,
                                  size_t n)
{
    const uint64_t hash = site_name_hash(k, a, b, text, n);
    uintptr_t found = 0;
    site_lock(s);
    for (uint32_t i = (uint32_t)hash; s->n_slots && !found; i++) {
        const uint32_t number = s->slot[i & (s->n_slots - 1)];
        if (!number) break;
        if (site_name_matches(s->names.at[number - 1], hash, k, a, b, text, n))
            found = df_site_of_name(number - 1);
    }
    if (!found) found = site_name_add(s, hash, k, a, b, text, n);
    df_fork_lock_give(&s->lock);
    return found;
}

/* The number of bytes of text that are kept. It ends at a complete UTF-8 character. */
static size_t site_label_length(const char *text)
{
    size_t n = strnlen(text, DF_LABEL_TEXT);
    while (n && text[n] && ((unsigned char)text[n] & 0xc0) == 0x80) n--;
    return n;
}

uintptr_t df_sites_line(df_sites *s, const char *file, int line)
{
    const char *const base = df_site_file_name(file);
    return site_name_intern(s, LINE, (uintptr_t)line, 0, base, site_label_length(base));
}

uintptr_t df_sites_label(df_sites *s, uintptr_t outer, const char *label)
{
    return site_name_intern(s, LABEL, outer, 0, label, site_label_length(label));
}

/* The name of a site. NULL when site is not a name, or when the name was discarded after a fork. */
static const name *site_name_of(const df_sites *s, uintptr_t site)
{
    const uint32_t number = df_site_number(site);
    return df_site_is_name(site) && number < s->names.n ? s->names.at[number] : NULL;
}

uintptr_t df_sites_within(df_sites *s, uintptr_t site, uintptr_t label)
{
    bool is_within = false;
    if (!site || !label) return site;
    if (df_site_is_name(site)) {
        site_lock(s);
        const name *const x = site_name_of(s, site);
        is_within = !x || x->kind == WITHIN;
        df_fork_lock_give(&s->lock);
    }
    const uintptr_t found = is_within ? 0 : site_name_intern(s, WITHIN, site, label, "", 0);
    return found ? found : site;
}

/* ---- text ---- */

typedef struct line {
    char *at;
    size_t room; /* bytes, with the NUL */
} line;

/* Control characters could end or colour a line of the log, so they are replaced. */
static void site_append_text(line *l, const char *text)
{
    for (; *text && l->room > 1; text++, l->room--)
        *l->at++ = (unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text;
    *l->at = '\0';
}

static void site_append_number(line *l, const char *format, long long n)
{
    char text[32];
    (void)snprintf(text, sizeof text, format, n);
    site_append_text(l, text);
}

/* Appends module and offset of a return address, and the exported function that contains the call
 * before it: a call that does not return may be the last instruction of a function. */
static void site_append_module(line *l, uintptr_t site)
{
    Dl_info info;
    if (!dladdr((void *)(site - 1), &info) || !info.dli_fname) {
        site_append_number(l, "0x%llx", (long long)site);
        return;
    }
    site_append_text(l, df_site_file_name(info.dli_fname));
    site_append_number(l, "+0x%llx", (long long)(site - (uintptr_t)info.dli_fbase));
    if (!info.dli_sname) return;
    site_append_text(l, " (");
    site_append_text(l, info.dli_sname);
    site_append_number(l, "+0x%llx)", (long long)(site - (uintptr_t)info.dli_saddr));
}

/* Finds the source line of a return address. Returns false when it is not known. */
static bool site_find_source_line(df_sites *s, uintptr_t site, df_source_line *out)
{
    if (!s) return false;
    if (!s->asked) {
        s->asked = true;
        if (!s->open || !s->open(s->user, &s->resolver))
            memset(&s->resolver, 0, sizeof s->resolver);
    }
    /* The address before the return address is in the call itself. */
    return s->resolver.find && s->resolver.find(s->resolver.self, site - 1, out);
}

static void site_append_address(line *l, df_sites *s, uintptr_t site)
{
    df_source_line p;
    if (!site) {
        site_append_text(l, "the start");
    } else if (site_find_source_line(s, site, &p)) {
        site_append_text(l, p.file);
        site_append_number(l, ":%lld", p.line);
        if (!p.function[0]) return;
        site_append_text(l, " (");
        site_append_text(l, p.function);
        site_append_text(l, ")");
    } else {
        site_append_module(l, site);
    }
}

/* Appends the labels, outermost first. */
static void site_append_labels(line *l, const df_sites *s, uintptr_t label)
{
    enum { MOST = 64 };
    const name *all[MOST];
    int n = 0;
    for (const name *x; n < MOST && (x = site_name_of(s, label)) != NULL; label = x->a)
        all[n++] = x;
    site_append_text(l, n ? " in " : "");
    while (n--) {
        site_append_text(l, all[n]->text);
        site_append_text(l, n ? "/" : "");
    }
}

const char *df_site_text(df_sites *s, uintptr_t site, char *buf, size_t n)
{
    line l = { buf, n };
    if (n) *buf = '\0';
    if (!n) return buf;
    if (s) site_lock(s);
    const name *x = s ? site_name_of(s, site) : NULL;
    const uintptr_t label = x && x->kind == WITHIN ? x->b : 0;
    if (label) {
        site = x->a;
        x = site_name_of(s, site);
    }
    if (x) {
        site_append_text(&l, x->text);
        site_append_number(&l, ":%lld", (long long)(intptr_t)x->a);
    } else if (df_site_is_name(site)) {
        site_append_text(&l, "a line that is not known");
    } else {
        site_append_address(&l, s, site);
    }
    if (label) site_append_labels(&l, s, label);
    if (s) df_fork_lock_give(&s->lock);
    return buf;
}
