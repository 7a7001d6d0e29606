/* SPDX-License-Identifier: Apache-2.0
 *
 * deft opt: a program through the stages of a plan miss, each printed on demand. Nothing printed
 * depends on this machine: the fuser's limits are fixed numbers, code is for a named target.
 */
#include "cli.h"

#include <stdio.h>
#include <string.h>

#include "runtime/cpu.h"

/* In the order in which they are printed. */
typedef enum stage {
    STAGE_trace,
    STAGE_key,
    STAGE_guards,
    STAGE_plan,
    STAGE_why,
    STAGE_ir,
    STAGE_asm,
    N_STAGES
} stage;

static const char *const stage_names[N_STAGES] = { "trace", "key", "guards", "plan",
                                                   "why",   "ir",  "asm" };

enum {
    NEEDS_PLAN =
        1 << STAGE_guards | 1 << STAGE_plan | 1 << STAGE_why | 1 << STAGE_ir | 1 << STAGE_asm
};
enum { NEEDS_COMPILER = 1 << STAGE_ir | 1 << STAGE_asm };

typedef struct options {
    const char *path, *target;
    cli_passes passes;
    uint32_t show, flags;
    uint64_t threads, max_body;
} options;

static bool stages_of(const char *list, uint32_t *out)
{
    *out = 0;
    for (const char *at = list; *at;) {
        const size_t n = strcspn(at, ",");
        uint32_t found = 0;
        for (int s = 0; s < N_STAGES; s++)
            if (strlen(stage_names[s]) == n && memcmp(stage_names[s], at, n) == 0) found = 1u << s;
        if (!found) {
            (void)cli_fail(CLI_USAGE,
                           "--show: '%.*s' is none of trace, key, guards, plan, why, ir, asm",
                           (int)n, at);
            return false;
        }
        *out |= found;
        at += n + (at[n] == ',');
    }
    return true;
}

static bool is_option(options *o, const char *a)
{
    const char *value;
    if (strcmp(a, "--fast") == 0) {
        o->flags |= DF_TRACE_FAST;
        return true;
    }
    if (strcmp(a, "--nofuse") == 0) {
        o->flags |= DF_TRACE_NOFUSE;
        return true;
    }
    if (cli_value(a, "--target", &o->target)) return true;
    if (cli_value(a, "--passes", &value)) return cli_passes_of(value, &o->passes);
    if (cli_value(a, "--show", &value)) return stages_of(value, &o->show);
    if (cli_value(a, "--threads", &value))
        return cli_number("--threads", value, 1, 4096, &o->threads);
    if (cli_value(a, "--max-body", &value))
        return cli_number("--max-body", value, 1, DF_TRACE_MAX_NODES, &o->max_body);
    (void)cli_fail(CLI_USAGE, "opt: unknown option %s", a);
    return false;
}

static int parse(int argc, char **argv, options *o)
{
    *o = (options){ .target = "x86-64-v4",
                    .passes = { DF_PASS_ALL, true },
                    .show = 1u << STAGE_trace,
                    .threads = 8,
                    .max_body = DF_MAX_BODY };
    for (int i = 1; i < argc; i++) {
        const char *const a = argv[i];
        if (a[0] == '-' && a[1] != '\0') {
            if (!is_option(o, a)) return CLI_USAGE;
        } else if (o->path) {
            return cli_fail(CLI_USAGE, "opt: two files: %s and %s", o->path, a);
        } else {
            o->path = a;
        }
    }
    if (!o->path) return cli_fail(CLI_USAGE, "opt: which file?");
    if (strcmp(o->target, "host") == 0)
        return cli_fail(CLI_USAGE, "opt: --target=host would differ from machine to machine");
    return CLI_OK;
}

/* ---- stages ---- */

static void put_key(df_str *out, const df_key *key)
{
    df_str_fmt(out, "%016llx%016llx %zu bytes\n", (unsigned long long)key->hash.hi,
               (unsigned long long)key->hash.lo, key->n);
}

static deft_status put_code(df_str *out, df_diag *d, const df_compiler *c, const df_plan *p,
                            const options *o, bool assembly)
{
    deft_status st = DEFT_OK;
    for (uint32_t k = 0; k < p->n_kernels && st == DEFT_OK; k++) {
        df_str_fmt(out, "%s kernel k%u for %s\n", assembly ? "#" : ";", k, o->target);
        st = c->show(c->self, d, &p->kernels[k], o->target, assembly, out);
    }
    return st;
}

typedef struct work {
    const options *o;
    cli_program program;
    df_trace *t; /* after the simplifying passes */
    df_key key;
    df_plan *plan;
    df_compiler compiler;
    void *plugin;
    df_str out;
} work;

static deft_status make(work *w)
{
    deft_status st = DEFT_OK;
    df_diag *const d = &w->program.diag;
    const uint32_t show = w->o->show;
    const df_limits limits = { .n_threads = (uint32_t)w->o->threads,
                               .max_body = (uint32_t)w->o->max_body,
                               .l1_bytes = 32 << 10,
                               .l2_bytes = 1 << 20,
                               .over_bytes = DF_OVER_BYTES,
                               .fuse = w->o->passes.fuse,
                               .windows = true,
                               .splits_columns = true,
                               .keep_why = (show >> STAGE_why & 1) != 0 };
    TRY(df_trace_key(d, w->program.trace, &w->key));
    TRY(cli_simplify(&w->program, &w->o->passes, &w->t));
    TRY(df_trace_verify(d, w->t));
    if (!(show & NEEDS_PLAN)) return DEFT_OK;
    TRY(df_fuse(d, w->t, &limits, &df_mem_system, &w->plan));
    TRY(df_plan_verify(d, w->plan));
    if (show & NEEDS_COMPILER)
        TRY(df_plugin_open(d, &df_mem_system, NULL, NULL, 0, &w->compiler, &w->plugin));
done:
    return st;
}

static deft_status put_stage(work *w, stage s)
{
    df_str *const out = &w->out;
    df_diag *const d = &w->program.diag;
    df_str_fmt(out, "--- %s\n", stage_names[s]);
    switch (s) {
    case STAGE_trace: df_trace_print(out, w->t); break;
    case STAGE_key: put_key(out, &w->key); break;
    case STAGE_guards:
        df_guard_print(out, w->plan->guards, w->plan->n_guards, w->plan->slots, w->t);
        break;
    case STAGE_plan: df_plan_print(out, w->plan, w->t); break;
    case STAGE_why: df_why_print(out, w->plan, w->t); break;
    case STAGE_ir: return put_code(out, d, &w->compiler, w->plan, w->o, false);
    case STAGE_asm: return put_code(out, d, &w->compiler, w->plan, w->o, true);
    case N_STAGES: df_unreachable();
    }
    return DEFT_OK;
}

int cli_opt(int argc, char **argv)
{
    options o;
    int code = parse(argc, argv, &o);
    if (code != CLI_OK) return code;
    work w = { .o = &o };
    df_str_init(&w.out, &df_mem_system);
    code = cli_program_read(&w.program, o.path, o.flags);
    if (code == CLI_OK) {
        deft_status st = make(&w);
        for (int s = 0; s < N_STAGES && st == DEFT_OK; s++) {
            if (!(o.show >> s & 1)) continue;
            st = put_stage(&w, (stage)s);
            /* The plug-in knows the names of targets. */
            if (st == DEFT_E_ARG && w.plugin) code = CLI_USAGE;
        }
        if (st == DEFT_OK && !w.out.ok) st = df_fail_mem(&w.program.diag, "text", w.out.cap);
        if (st != DEFT_OK && code == CLI_USAGE)
            (void)cli_fail(code, "--target: %s", w.program.diag.text);
        else if (st != DEFT_OK)
            code = cli_status(&w.program.diag, st, o.path);
    }
    /* All or nothing: half a dump would look like a whole one. */
    if (code == CLI_OK && w.out.at) fputs(w.out.at, stdout);
    df_str_finish(&w.out);
    df_plugin_close(&w.compiler, &w.plugin);
    df_plan_destroy(&w.plan, &df_mem_system);
    cli_program_finish(&w.program);
    return code;
}
