/* SPDX-License-Identifier: Apache-2.0
 *
 * deft run: a program on generated inputs. With --check every asked tier, fused, is held against
 * the interpreter with one kernel per op on one thread, bit for bit; NaNs count as equal.
 */
#include "cli.h"
#include "data.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "deft/deft.h"
#include "runtime/cpu.h"

enum { TIER_ALL = -1 };

static const struct {
    const char *name;
    df_tier tier;
} tiers[] = { { "interp", DF_TIER_INTERP }, { "0", DF_TIER_O0 }, { "1", DF_TIER_O2 } };

typedef struct options {
    const char *path;
    cli_passes passes;
    bool check;
    int tier; /* of tiers, or TIER_ALL */
    uint32_t flags;
    uint64_t threads, seed;
} options;

static bool tier_of(const char *text, int *out)
{
    *out = TIER_ALL;
    if (strcmp(text, "all") == 0) return true;
    for (size_t i = 0; i < DF_LEN(tiers); i++) {
        if (strcmp(text, tiers[i].name) != 0) continue;
        *out = (int)i;
        return true;
    }
    (void)cli_fail(CLI_USAGE, "--tier=%s: must be interp, 0, 1 or all", text);
    return false;
}

static bool is_option(options *o, const char *a)
{
    const char *value;
    if (strcmp(a, "--check") == 0) {
        o->check = true;
        return true;
    }
    if (strcmp(a, "--fast") == 0) {
        o->flags |= DF_TRACE_FAST;
        return true;
    }
    if (strcmp(a, "--nofuse") == 0) {
        o->flags |= DF_TRACE_NOFUSE;
        return true;
    }
    if (cli_value(a, "--tier", &value)) return tier_of(value, &o->tier);
    if (cli_value(a, "--passes", &value)) return cli_passes_of(value, &o->passes);
    if (cli_value(a, "--seed", &value)) return cli_number("--seed", value, 0, UINT64_MAX, &o->seed);
    if (cli_value(a, "--threads", &value))
        return cli_number("--threads", value, 0, 4096, &o->threads);
    (void)cli_fail(CLI_USAGE, "run: unknown option %s", a);
    return false;
}

static int parse(int argc, char **argv, options *o)
{
    *o = (options){ .passes = { DF_PASS_ALL, true }, .tier = 0, .seed = 1 };
    for (int i = 1; i < argc; i++) {
        const char *const a = argv[i];
        if (a[0] == '-' && a[1] != '\0') {
            if (!is_option(o, a)) return CLI_USAGE;
        } else if (o->path) {
            return cli_fail(CLI_USAGE, "run: two files: %s and %s", o->path, a);
        } else {
            o->path = a;
        }
    }
    if (!o->path) return cli_fail(CLI_USAGE, "run: which file?");
    if (o->tier == TIER_ALL && !o->check)
        return cli_fail(CLI_USAGE, "run: --tier=all goes with --check");
    return CLI_OK;
}

/* ---- one run ---- */

/* How a program is run once. */
typedef struct way {
    df_tier tier;
    cli_passes passes;
    uint32_t threads;
    const df_compiler *compiler; /* NULL: interpreter */
} way;

/* Row-major elements of each root, in the program's arena. */
typedef struct results {
    char **root;
    uint32_t launches, segments, kernels;
} results;

static deft_status plan_and_run(cli_program *p, df_device *dev, const way *w, df_trace *t,
                                df_launch_io *io, results *out)
{
    deft_status st = DEFT_OK;
    df_plan *plan = NULL;
    df_limits limits = dev->limits;
    limits.fuse = w->passes.fuse;
    TRY(df_fuse(&p->diag, t, &limits, &df_mem_system, &plan));
    TRY(df_plan_verify(&p->diag, plan));
    int64_t *const slots = df_arena_new(&p->arena, int64_t, plan->n_slots);
    if (!slots) TRY(df_fail_mem(&p->diag, "slots", plan->n_slots * sizeof *slots));
    df_slots_eval(plan->slots, plan->n_slots, t, slots);
    const df_guard *const miss = df_guard_first_miss(plan->guards, plan->n_guards, t, slots);
    if (miss) {
        df_str why;
        df_str_init(&why, &df_mem_system);
        df_guard_explain(&why, miss, t, plan->slots, slots);
        st = df_fail(&p->diag, DEFT_E_INTERNAL, "the plan refuses the program it was made from: %s",
                     why.at ? why.at : "");
        df_str_finish(&why);
        goto done;
    }
    TRY(dev->prepare(dev, &p->diag, plan));
    st = dev->run(dev, &p->diag, plan, t, slots, io, NULL);
    out->launches = plan->n_launches;
    out->segments = plan->n_segs;
    out->kernels = plan->n_kernels;
    dev->release(dev, plan);
done:
    df_plan_destroy(&plan, &df_mem_system);
    return st;
}

static deft_status keep_results(cli_program *p, const df_trace *t, df_launch_io *io, results *out)
{
    out->root = df_arena_new(&p->arena, char *, t->n_roots);
    if (!out->root) return df_fail_mem(&p->diag, "results", t->n_roots * sizeof *out->root);
    for (uint32_t r = 0; r < t->n_roots; r++) {
        const uint32_t node = t->roots[r].node;
        const size_t size = deft_dtype_size((deft_dtype)t->nodes[node].dtype);
        const size_t bytes = (size_t)df_trace_numel(t, node) * size;
        out->root[r] = df_arena_alloc(&p->arena, bytes, 16);
        if (!out->root[r]) return df_fail_mem(&p->diag, "results", bytes);
        if (t->roots[r].kind == DF_ROOT_INTO)
            data_gather(t, t->roots[r].into, out->root[r]);
        else
            memcpy(out->root[r], io->root[r]->data, bytes);
    }
    return DEFT_OK;
}

static deft_status run_once(cli_program *p, const options *o, const way *w, results *out)
{
    deft_status st = DEFT_OK;
    df_device *dev = NULL;
    df_trace *t = NULL;
    df_buffer **roots = NULL, **inputs = NULL;
    const df_cpu_options cpu = { .n_threads = w->threads,
                                 .tier = w->tier,
                                 .compiler = w->compiler };
    TRY(df_cpu_create(&p->diag, &df_mem_system, NULL, &cpu, &dev));
    TRY(cli_simplify(p, &w->passes, &t));
    roots = df_arena_new(&p->arena, df_buffer *, t->n_roots);
    inputs = df_arena_new(&p->arena, df_buffer *, t->n_inputs);
    if (!roots || !inputs) TRY(df_fail_mem(&p->diag, "results", sizeof *roots));
    TRY(data_fill(&p->diag, t, dev->allocator, o->seed, inputs));
    df_launch_io io = { .root = roots, .input = (const df_buffer *const *)inputs };
    TRY(plan_and_run(p, dev, w, t, &io, out));
    TRY(keep_results(p, t, &io, out));
done:
    for (uint32_t i = 0; roots && i < t->n_roots; i++) df_buffer_drop(&roots[i]);
    for (uint32_t i = 0; inputs && i < t->n_inputs; i++) df_buffer_drop(&inputs[i]);
    df_cpu_destroy(&dev);
    return st;
}

/* ---- results ---- */

static int print_results(cli_program *p, const results *r)
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

static bool is_nan(deft_dtype dtype, const char *at)
{
    float f = 0;
    double g = 0;
    if (dtype == DEFT_F32) memcpy(&f, at, sizeof f);
    if (dtype == DEFT_F64) memcpy(&g, at, sizeof g);
    return isnan(f) || isnan(g);
}

static uint64_t bits_at(const char *at, size_t size)
{
    uint64_t bits = 0;
    for (size_t i = size; i-- > 0;) bits = bits << 8 | (unsigned char)at[i];
    return bits;
}

/* Whether all roots agree; tells the first that does not. */
static bool compare(const df_trace *t, const results *want, const results *have, const char *tier)
{
    for (uint32_t r = 0; r < t->n_roots; r++) {
        const uint32_t node = t->roots[r].node;
        const deft_dtype dtype = (deft_dtype)t->nodes[node].dtype;
        const size_t size = deft_dtype_size(dtype);
        const int64_t n = df_trace_numel(t, node);
        for (int64_t i = 0; i < n; i++) {
            const char *const a = want->root[r] + (size_t)i * size;
            const char *const b = have->root[r] + (size_t)i * size;
            if (memcmp(a, b, size) == 0 || (is_nan(dtype, a) && is_nan(dtype, b))) continue;
            printf("tier %s: output %%%u %s element %lld of %lld: 0x%llx, unfused interpreter "
                   "0x%llx\n",
                   tier, node, deft_dtype_name(dtype), (long long)i, (long long)n,
                   (unsigned long long)bits_at(b, size), (unsigned long long)bits_at(a, size));
            return false;
        }
    }
    return true;
}

static int check(cli_program *p, const options *o, const df_compiler *compiler)
{
    const way reference = { .tier = DF_TIER_INTERP, .threads = 1 };
    results want = { 0 };
    bool equal = true;
    deft_status st = run_once(p, o, &reference, &want);
    if (st != DEFT_OK) return cli_status(&p->diag, st, p->path);
    for (size_t i = 0; i < DF_LEN(tiers); i++) {
        if (o->tier != TIER_ALL && o->tier != (int)i) continue;
        const way w = { tiers[i].tier, o->passes, (uint32_t)o->threads,
                        tiers[i].tier == DF_TIER_INTERP ? NULL : compiler };
        results have = { 0 };
        st = run_once(p, o, &w, &have);
        if (st != DEFT_OK) {
            (void)cli_status(&p->diag, st, p->path);
            return cli_fail(CLI_FAILED, "tier %s failed where the unfused interpreter did not",
                            tiers[i].name);
        }
        if (!compare(p->trace, &want, &have, tiers[i].name))
            equal = false;
        else
            printf("tier %s: equal, %u outputs, %u launches instead of %u\n", tiers[i].name,
                   p->trace->n_roots, have.launches, want.launches);
    }
    return equal ? CLI_OK : CLI_FAILED;
}

static int run_program(cli_program *p, const options *o, const df_compiler *compiler)
{
    if (o->check && (p->trace->flags & DF_TRACE_FAST))
        return cli_fail(CLI_USAGE,
                        "run: fast numerics promise no bits: --check is for strict programs");
    if (o->check) return check(p, o, compiler);
    const way w = { tiers[o->tier].tier, o->passes, (uint32_t)o->threads, compiler };
    results r = { 0 };
    const deft_status st = run_once(p, o, &w, &r);
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
    code = cli_program_read(&p, o.path, o.flags);
    if (code == CLI_OK && o.tier != 0) {
        const deft_status st =
            df_plugin_open(&p.diag, &df_mem_system, NULL, NULL, 0, &compiler, &plugin);
        if (st != DEFT_OK) code = cli_status(&p.diag, st, o.path);
    }
    if (code == CLI_OK) code = run_program(&p, &o, plugin ? &compiler : NULL);
    df_plugin_close(&compiler, &plugin);
    cli_program_finish(&p);
    return code;
}
