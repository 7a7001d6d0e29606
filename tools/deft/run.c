/* SPDX-License-Identifier: Apache-2.0
 *
 * deft run: a program on generated inputs; its results are printed, or held against the
 * interpreter, or it is timed.
 */
#include "execute.h"

#include <stdio.h>
#include <string.h>

#include "deft/deft.h"

typedef struct options {
    const char *path;
    bool check, bench;
    run_options run;
} options;

static int parse(int argc, char **argv, options *o)
{
    *o = (options){ .run = RUN_OPTIONS };
    for (int i = 1; i < argc; i++) {
        const char *const a = argv[i];
        bool known = false;
        if (strcmp(a, "--check") == 0) {
            o->check = true;
        } else if (strcmp(a, "--bench") == 0) {
            o->bench = true;
        } else if (a[0] == '-' && a[1] != '\0') {
            const int code = run_option(&o->run, a, &known);
            if (!known) return cli_fail(CLI_USAGE, "run: unknown option %s", a);
            if (code != CLI_OK) return code;
        } else if (o->path) {
            return cli_fail(CLI_USAGE, "run: two files: %s and %s", o->path, a);
        } else {
            o->path = a;
        }
    }
    if (!o->path) return cli_fail(CLI_USAGE, "run: which file?");
    if (o->check && o->bench) return cli_fail(CLI_USAGE, "run: either --check or --bench");
    if (o->run.tier == TIER_ALL && !o->check && !o->bench)
        return cli_fail(CLI_USAGE, "run: --tier=all goes with --check or --bench");
    return CLI_OK;
}

static int print_results(cli_program *p, const run_results *r)
{
    const df_trace *const t = p->trace;
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    deft_runtime *rt = NULL;
    deft_ctx *cx = NULL;
    static char text[1 << 16];
    int code = CLI_OK;
    deft_status st = deft_runtime_create(&o, &rt);
    if (st == DEFT_OK) st = deft_ctx_create(rt, NULL, &cx);
    for (uint32_t i = 0; i < t->n_roots && st == DEFT_OK; i++) {
        const uint32_t node = t->roots[i].node;
        const deft_dtype dtype = (deft_dtype)t->nodes[node].dtype;
        deft_shape shape = { .rank = t->nodes[node].rank };
        for (int x = 0; x < (int)t->nodes[node].rank; x++)
            shape.dim[x] = df_trace_extents(t, node)[x];
        const size_t bytes = (size_t)df_trace_numel(t, node) * deft_dtype_size(dtype);
        deft_tensor *const v = deft_from(cx, shape, dtype, r->root[i], bytes);
        st = deft_format(v, text, sizeof text, NULL);
        if (st == DEFT_OK) printf("output %%%u %s\n", node, text);
    }
    if (st != DEFT_OK)
        code = cli_fail(CLI_FAILED, "%s: %s", p->path,
                        cx && *deft_message(cx) ? deft_message(cx) : deft_status_text(st));
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    return code;
}

static int bench(cli_program *p, const options *o, const df_compiler *compiler)
{
    for (int i = 0; i < N_TIERS; i++) {
        if (o->run.tier != TIER_ALL && o->run.tier != i) continue;
        const run_way w = { tiers[i].tier, o->run.passes, (uint32_t)o->run.threads,
                            tiers[i].tier == DF_TIER_INTERP ? NULL : compiler };
        bench_result r = { 0 };
        const deft_status st = run_bench(p, o->run.seed, &w, &r);
        if (st != DEFT_OK) return cli_status(&p->diag, st, p->path);
        printf("tier %s: median %.3f us, least %.3f us of %u runs, %.2f GB/s, %llu launches, %llu "
               "segments, %lld bytes\n",
               tiers[i].name, r.median * 1e6, r.least * 1e6, r.runs,
               r.median > 0 ? (double)r.bytes / r.median * 1e-9 : 0.0,
               (unsigned long long)r.launches, (unsigned long long)r.segments, (long long)r.bytes);
    }
    return CLI_OK;
}

static int run_program(cli_program *p, const options *o, const df_compiler *compiler)
{
    int code = CLI_OK;
    if (o->check && (p->trace->flags & DF_TRACE_FAST))
        return cli_fail(CLI_USAGE,
                        "run: fast numerics promise no bits: --check is for strict programs");
    if (o->check) {
        (void)run_check(p, &o->run, compiler, &code);
        return code;
    }
    if (o->bench) return bench(p, o, compiler);
    const run_way w = { tiers[o->run.tier].tier, o->run.passes, (uint32_t)o->run.threads,
                        compiler };
    run_results r = { 0 };
    const deft_status st = run_once(p, o->run.seed, &w, &r);
    return st == DEFT_OK ? print_results(p, &r) : cli_status(&p->diag, st, p->path);
}

int cli_run(int argc, char **argv)
{
    options o;
    int code = parse(argc, argv, &o);
    if (code != CLI_OK) return code;
    cli_program p;
    df_compiler compiler = { 0 };
    void *plugin = NULL;
    code = cli_program_read(&p, o.path, o.run.flags);
    if (code == CLI_OK && o.run.tier != 0) {
        const deft_status st =
            df_plugin_open(&p.diag, &df_mem_system, NULL, NULL, 0, &compiler, &plugin);
        if (st != DEFT_OK) code = cli_status(&p.diag, st, o.path);
    }
    if (code == CLI_OK) code = run_program(&p, &o, plugin ? &compiler : NULL);
    df_plugin_close(&compiler, &plugin);
    cli_program_finish(&p);
    return code;
}
