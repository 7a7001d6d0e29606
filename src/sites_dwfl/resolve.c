/* SPDX-License-Identifier: Apache-2.0
 *
 * The plug-in deft-sites finds function, file and line of an address. base/site.h has the contract.
 *
 * The plug-in caches a few modules, of which the least recently used one is dropped. It also caches
 * answers by address. When the process has unloaded a module, both caches are cleared, because
 * another module may have the same addresses.
 *
 * The answer is the innermost inlined function, with one exception: for a wrapper in deft.hpp, it
 * is the place where the wrapper was called.
 */
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/build_id.h"
#include "base/site.h"
#include "sites_dwfl/module.h"

enum { MODULES = 16, ANSWERS = 256 };

typedef struct module {
    uintptr_t bias;
    char *path;    /* owned; NULL when the entry is unused */
    Dwfl *dwfl;    /* NULL when the module has no usable file */
    uint64_t used; /* resolver.clock when it was used last */
} module;

typedef struct answer {
    uintptr_t address; /* 0 when the entry is unused */
    bool known;        /* whether place is the answer; otherwise there is none */
    df_source_line place;
} answer;

typedef struct resolver {
    df_mem mem;
    unsigned long long adds, subs;
    uint64_t clock;
    module modules[MODULES];
    answer answers[ANSWERS];
    loaded at; /* the module of the current call */
} resolver;

/* ---- modules ---- */

static void drop(resolver *r, module *m)
{
    if (m->dwfl) dwfl_end(m->dwfl);
    if (m->path) df_mem_free(&r->mem, m->path, strlen(m->path) + 1);
    *m = (module){ 0 };
}

static void forget(resolver *r)
{
    if (r->at.subs != r->subs)
        for (int i = 0; i < MODULES; i++) drop(r, &r->modules[i]);
    if (r->at.subs != r->subs || r->at.adds != r->adds) memset(r->answers, 0, sizeof r->answers);
    r->adds = r->at.adds;
    r->subs = r->at.subs;
}

/* The debug information of module r->at, or NULL when it has no usable file or memory runs out. */
static Dwfl *dwfl_of(resolver *r)
{
    module *m = NULL, *oldest = &r->modules[0];
    for (int i = 0; i < MODULES && !m; i++) {
        module *const x = &r->modules[i];
        if (x->path && x->bias == r->at.bias && strcmp(x->path, r->at.path) == 0) m = x;
        if (x->used < oldest->used) oldest = x;
    }
    if (!m) {
        m = oldest;
        drop(r, m);
        const size_t n = strlen(r->at.path) + 1;
        char *const path = df_mem_alloc(&r->mem, n);
        if (!path) return NULL;
        memcpy(path, r->at.path, n);
        *m = (module){ .bias = r->at.bias, .path = path, .dwfl = df_module_open(&r->at) };
    }
    m->used = ++r->clock;
    return m->dwfl;
}

/* ---- debug information ---- */

/* The compilation unit of an address. libdwfl uses an index that not every compiler writes, so all
 * units are searched if the index has no answer. */
static Dwarf_Die *unit_of(Dwfl_Module *m, uintptr_t address, Dwarf_Addr *bias)
{
    Dwarf_Die *unit = dwfl_module_addrdie(m, address, bias);
    if (unit) return unit;
    while ((unit = dwfl_module_nextcu(m, unit, bias)) != NULL)
        if (dwarf_haspc(unit, address - *bias) > 0) return unit;
    return NULL;
}

static bool is_function(Dwarf_Die *die)
{
    const int tag = dwarf_tag(die);
    return tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine;
}

static void put_name(df_source_line *out, Dwarf_Die *function)
{
    const char *const name = dwarf_diename(function);
    (void)snprintf(out->function, sizeof out->function, "%s", name ? name : "");
}

static void put_file(df_source_line *out, const char *path)
{
    (void)snprintf(out->file, sizeof out->file, "%s", df_site_file_name(path));
}

static bool number(Dwarf_Die *die, unsigned attribute, Dwarf_Word *out)
{
    Dwarf_Attribute a;
    return dwarf_attr(die, attribute, &a) && dwarf_formudata(&a, out) == 0;
}

/* Sets file and line to the place where an inlined function was called. Returns false when the
 * debug information does not contain it. */
static bool to_caller(df_source_line *out, Dwarf_Die *unit, Dwarf_Die *inlined)
{
    Dwarf_Files *files;
    size_t n_files;
    Dwarf_Word file, line;
    if (!number(inlined, DW_AT_call_file, &file) || !number(inlined, DW_AT_call_line, &line) ||
        dwarf_getsrcfiles(unit, &files, &n_files) != 0 || file >= n_files || !line)
        return false;
    const char *const path = dwarf_filesrc(files, file, NULL, NULL);
    if (!path) return false;
    put_file(out, path);
    out->line = (uint32_t)line;
    return true;
}

static bool is_wrapper(const df_source_line *p)
{
    return strcmp(p->file, "deft.hpp") == 0;
}

/* Sets the function. If it is a wrapper, also moves outwards to its caller. chain has n scopes: the
 * innermost function first, then those around it. */
static void walk_out(df_source_line *out, Dwarf_Die *unit, Dwarf_Die *chain, int n)
{
    for (int i = 0; i < n; i++) {
        if (!is_function(&chain[i])) continue;
        put_name(out, &chain[i]);
        if (!is_wrapper(out) || dwarf_tag(&chain[i]) != DW_TAG_inlined_subroutine ||
            !to_caller(out, unit, &chain[i]))
            return;
    }
}

static void put_function(df_source_line *out, Dwarf_Die *unit, Dwarf_Addr pc)
{
    Dwarf_Die *scopes = NULL, *chain = NULL;
    const int n = dwarf_getscopes(unit, pc, &scopes);
    int i = 0;
    while (i < n && !is_function(&scopes[i])) i++;
    if (i < n) {
        /* The later elements of scopes are around its definition and not around its call. */
        const int n_chain = dwarf_getscopes_die(&scopes[i], &chain);
        if (n_chain > 0)
            walk_out(out, unit, chain, n_chain);
        else
            put_name(out, &scopes[i]);
    }
    free(chain);
    free(scopes);
}

static bool look_up(resolver *r, uintptr_t address, df_source_line *out)
{
    Dwarf_Addr bias;
    int line = 0;
    Dwfl *const dwfl = dwfl_of(r);
    Dwfl_Module *const m = dwfl ? dwfl_addrmodule(dwfl, address) : NULL;
    Dwarf_Die *const unit = m ? unit_of(m, address, &bias) : NULL;
    Dwarf_Line *const at = unit ? dwarf_getsrc_die(unit, address - bias) : NULL;
    const char *const path = at ? dwarf_linesrc(at, NULL, NULL) : NULL;
    if (!path || dwarf_lineno(at, &line) != 0 || line <= 0) return false;
    put_file(out, path);
    out->line = (uint32_t)line;
    put_function(out, unit, address - bias);
    return true;
}

/* ---- the plug-in ---- */

static bool find(void *self, uintptr_t address, df_source_line *out)
{
    resolver *const r = self;
    df_loaded_find(address, &r->at);
    forget(r);
    if (!r->at.found) return false;
    answer *const a = &r->answers[(address * 0x9e3779b97f4a7c15u) >> 56];
    _Static_assert(ANSWERS == 256, "as many as 8 bits number");
    if (a->address != address) {
        *a = (answer){ .address = address };
        a->known = look_up(r, address, &a->place);
    }
    if (a->known) *out = a->place;
    return a->known;
}

static void destroy(void *self)
{
    resolver *const r = self;
    const df_mem mem = r->mem;
    for (int i = 0; i < MODULES; i++) drop(r, &r->modules[i]);
    df_mem_free(&mem, r, sizeof *r);
}

__attribute__((visibility("default"))) bool df_plugin_sites(const df_sites_host *host,
                                                            df_resolver *out);

bool df_plugin_sites(const df_sites_host *host, df_resolver *out)
{
    if (host->size != sizeof *host || strcmp(host->build_id, DF_BUILD_ID) != 0) return false;
    resolver *const r = df_mem_zalloc(host->mem, sizeof *r);
    if (!r) return false;
    r->mem = *host->mem;
    *out = (df_resolver){ .self = r, .find = find, .destroy = destroy };
    return true;
}
