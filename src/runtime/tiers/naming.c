/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the names of compiled code (naming.h), from operators and call sites. Passes them to the
 * files of perf.c, and through the code generator to a debugger.
 */
#include "runtime/naming.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/site.h"
#include "runtime/tiers/perf.h"
#include "runtime/tier.h"

enum { NAME = 320, HASH_DIGITS = 6 };

struct df_naming {
    const df_mem *mem;
    const df_log *log;
    const df_compiler *compiler; /* NULL: debuggers get no names */
    df_perf *perf;               /* NULL: perf gets no names */
    void *gemm[2];               /* of show_debugger, for micro-kernels; each is written once */
};

/* ---- names ---- */

/* Writes a call site as "mlp.c:41", without the function that df_site_text appends. */
static void put_site(const df_naming *n, uintptr_t site, char out[DF_SITE_TEXT])
{
    char text[DF_SITE_TEXT];
    (void)df_site_text(n->log ? n->log->sites : NULL, site, text, sizeof text);
    (void)snprintf(out, DF_SITE_TEXT, "%.*s", (int)strcspn(text, " "), text);
}

/* Removes spaces and control characters, which would end a word or a line. */
static void squeeze(char *name)
{
    char *to = name;
    for (const char *at = name; *at; at++)
        if ((unsigned char)*at > ' ' && *at != 0x7f) *to++ = *at;
    *to = '\0';
}

static void make_name(const df_code_about *a, const char *site, const char *part, char name[NAME])
{
    char hash[DF_KERNEL_NAME];
    df_kernel_name(a->kernel, hash);
    (void)snprintf(name, NAME, "deft:%.150s@%.100s#%.*s%s%s", a->ops, site, HASH_DIGITS, hash,
                   a->mark, part);
    squeeze(name);
}

/* Makes an identifier of C from a name. */
static void make_symbol(const char *name, char symbol[NAME])
{
    size_t i = 0;
    for (; name[i]; i++) {
        const char c = name[i];
        const bool word =
            (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        symbol[i] = word ? c : '_';
    }
    symbol[i] = '\0';
}

/* ---- showing ---- */

/* Passes one name to perf and to the debugger. Returns the result of show_debugger, or NULL. */
static void *show(const df_naming *n, const char *name, const char *site, const void *start,
                  size_t size)
{
    char file[DF_SITE_TEXT], symbol[NAME];
    (void)snprintf(file, sizeof file, "%s", site);
    char *const colon = strrchr(file, ':');
    df_perf_code c = { .name = name, .start = start, .size = size };
    if (colon) {
        *colon = '\0';
        c.file = file;
        c.line = (uint32_t)strtoul(colon + 1, NULL, 10);
    }
    if (n->perf) df_perf_add(n->perf, &c);
    if (!n->compiler) return NULL;
    make_symbol(name, symbol);
    return n->compiler->show_debugger(n->compiler->self, symbol, start, size);
}

/* POSIX allows function pointers as object pointers. C has no conversion between them. */
static const void *address_of(df_kernel_fn fn)
{
    const void *p;
    memcpy(&p, &fn, sizeof p);
    return p;
}

void df_naming_show(df_naming *n, df_code *code, const df_code_about *about)
{
    static const char *const whole[DF_CODE_PIECES] = { "" };
    static const char *const pieces[DF_CODE_PIECES] = { ".main", ".part", ".fin", "" };
    const void *const start[DF_CODE_PIECES] = { address_of(code->main), address_of(code->part),
                                                address_of(code->fin), code->body };
    char name[NAME], site[DF_SITE_TEXT];
    if (!n) return;
    put_site(n, about->site, site);
    for (int i = 0; i < DF_CODE_PIECES; i++) {
        if (!start[i] || code->size[i] == 0) continue;
        make_name(about, site, code->body ? pieces[i] : whole[i], name);
        code->shown[i] = show(n, name, site, start[i], code->size[i]);
    }
}

void df_naming_hide(df_naming *n, df_code *code)
{
    if (!n || !n->compiler) return;
    for (int i = 0; i < DF_CODE_PIECES; i++) {
        n->compiler->hide_debugger(n->compiler->self, code->shown[i]);
        code->shown[i] = NULL;
    }
}

void df_naming_show_gemm(df_naming *n, deft_dtype t, const df_gemm_kernel *k)
{
    char name[NAME];
    const void *start;
    if (!n || k->size == 0) return;
    memcpy(&start, &k->fn, sizeof start);
    (void)snprintf(name, sizeof name, "deft:matmul,%s#%ux%u", deft_dtype_name(t), k->mr, k->nr);
    n->gemm[t == DEFT_F64] = show(n, name, "", start, k->size);
}

/* ---- life ---- */

df_naming_options df_naming_wanted(void)
{
    return (df_naming_options){ .perf = df_env("DEFT_PERF"),
                                .perf_dir = df_env("TMPDIR"),
                                .debugger = df_env_flag("DEFT_GDB", false) };
}

bool df_naming_keeps_frames(const df_naming_options *o)
{
    return o->debugger || (o->perf && *o->perf);
}

static df_perf *open_perf(const df_mem *mem, const df_log *log, const df_naming_options *o)
{
    const bool dump = strcmp(o->perf, "jitdump") == 0;
    df_perf *p = NULL;
    if (!dump && strcmp(o->perf, "map") != 0) {
        df_logf(log, error, "DEFT_PERF: '%.40s' is neither map nor jitdump", o->perf);
        return NULL;
    }
    const char *const dir = o->perf_dir && *o->perf_dir ? o->perf_dir : "/tmp";
    p = df_perf_open(mem, log, dump ? DF_PERF_JITDUMP : DF_PERF_MAP, dir);
    if (!p) df_logf(log, error, "DEFT_PERF: no memory");
    return p;
}

df_naming *df_naming_open(const df_mem *mem, const df_log *log, const df_compiler *c,
                          const df_naming_options *o)
{
    if (!c) return NULL;
    df_perf *perf = o->perf && *o->perf ? open_perf(mem, log, o) : NULL;
    const bool debugger = o->debugger && c->show_debugger;
    if (!perf && !debugger) return NULL;
    df_naming *const n = df_mem_zalloc(mem, sizeof *n);
    if (!n) {
        df_perf_close(&perf);
        df_logf(log, error, "DEFT_PERF, DEFT_GDB: no memory");
        return NULL;
    }
    *n = (df_naming){ .mem = mem, .log = log, .compiler = debugger ? c : NULL, .perf = perf };
    return n;
}

void df_naming_close(df_naming **out)
{
    df_naming *const n = *out;
    *out = NULL;
    if (!n) return;
    for (int i = 0; i < 2 && n->compiler; i++)
        n->compiler->hide_debugger(n->compiler->self, n->gemm[i]);
    df_perf_close(&n->perf);
    df_mem_free(n->mem, n, sizeof *n);
}
