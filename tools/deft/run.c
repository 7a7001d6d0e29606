/* SPDX-License-Identifier: Apache-2.0
 *
 * deft run: a program on inputs from a file, or generated; its results are printed, held against
 * the interpreter or against stored ones, or it is timed.
 */
#include "store.h"

#include <stdio.h>
#include <string.h>

#include "deft/deft.h"

typedef struct options {
    const char *path;
    const char *inputs, *expect, *save_inputs, *save_outputs; /* files; NULL: none */
    bool check, bench, has_ulp;
    run_options run;
} options;

/* Takes argument when it names a file or a tolerance; *known is false when it does not. */
static int file_option(options *o, const char *argument, bool *known)
{
    const char *text;
    *known = true;
    if (cli_value(argument, "--inputs", &o->inputs) ||
        cli_value(argument, "--expect", &o->expect) ||
        cli_value(argument, "--save-inputs", &o->save_inputs) ||
        cli_value(argument, "--save-outputs", &o->save_outputs))
        return CLI_OK;
    *known = o->has_ulp = cli_value(argument, "--ulp", &text);
    return !*known || cli_number("--ulp", text, 0, UINT32_MAX, &o->run.ulp) ? CLI_OK : CLI_USAGE;
}

static int check_options(const options *o)
{
    if (!o->path) return cli_fail(CLI_USAGE, "run: which file?");
    if (o->check + o->bench + (o->expect != NULL) > 1)
        return cli_fail(CLI_USAGE, "run: either --check or --bench or --expect");
    if (o->run.tier == TIER_ALL && !o->check && !o->bench && !o->expect)
        return cli_fail(CLI_USAGE, "run: --tier=all goes with --check, --bench or --expect");
    if (o->has_ulp && !o->expect) return cli_fail(CLI_USAGE, "run: --ulp goes with --expect");
    if (o->save_outputs && (o->check || o->bench || o->expect))
        return cli_fail(CLI_USAGE, "run: --save-outputs goes with no --check, --bench, --expect");
    return CLI_OK;
}

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
            int code = run_option(&o->run, a, &known);
            if (!known) code = file_option(o, a, &known);
            if (!known) return cli_fail(CLI_USAGE, "run: unknown option %s", a);
            if (code != CLI_OK) return code;
        } else if (o->path) {
            return cli_fail(CLI_USAGE, "run: two files: %s and %s", o->path, a);
        } else {
            o->path = a;
        }
    }
    return check_options(o);
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
        const run_way w = { .tier = tiers[i].tier,
                            .passes = o->run.passes,
                            .threads = (uint32_t)o->run.threads,
                            .compiler = tiers[i].tier == DF_TIER_INTERP ? NULL : compiler };
        bench_result r = { 0 };
        const deft_status st = run_bench(p, &o->run.data, &w, &r);
        if (st != DEFT_OK) return cli_status(&p->diag, st, p->path);
        printf("tier %s: median %.3f us, least %.3f us of %u runs, %.2f GB/s, %llu launches, %llu "
               "segments, %lld bytes\n",
               tiers[i].name, r.median * 1e6, r.least * 1e6, r.runs,
               r.median > 0 ? (double)r.bytes / r.median * 1e-9 : 0.0,
               (unsigned long long)r.launches, (unsigned long long)r.segments, (long long)r.bytes);
    }
    return CLI_OK;
}

/* Inputs as the options want them, and the results that are expected. */
static int take_files(cli_program *p, options *o, run_results *expected)
{
    int code = CLI_OK;
    if (o->inputs) code = store_read_inputs(p, o->inputs, &o->run.data);
    if (code == CLI_OK && o->save_inputs) {
        const deft_status st = run_inputs(p, &o->run.data, &o->run.data);
        code = st == DEFT_OK ? store_write_inputs(p, o->save_inputs, &o->run.data)
                             : cli_status(&p->diag, st, p->path);
    }
    if (code == CLI_OK && o->expect) {
        code = store_read_outputs(p, o->expect, expected);
        o->run.expected = expected;
    }
    return code;
}

static int run_program(cli_program *p, options *o, const df_compiler *compiler)
{
    run_results expected = { 0 };
    int code = take_files(p, o, &expected);
    if (code != CLI_OK) return code;
    if (o->check && (p->trace->flags & DF_TRACE_FAST))
        return cli_fail(CLI_USAGE,
                        "run: fast numerics promise no bits: --check is for strict programs");
    if (o->check || o->expect) {
        (void)run_check(p, &o->run, compiler, &code);
        return code;
    }
    if (o->bench) return bench(p, o, compiler);
    const run_way w = { .tier = tiers[o->run.tier].tier,
                        .passes = o->run.passes,
                        .threads = (uint32_t)o->run.threads,
                        .compiler = compiler };
    run_results r = { 0 };
    const deft_status st = run_once(p, &o->run.data, &w, &r);
    if (st != DEFT_OK) return cli_status(&p->diag, st, p->path);
    return o->save_outputs ? store_write_outputs(p, o->save_outputs, &r) : print_results(p, &r);
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
