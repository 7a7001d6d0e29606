/* SPDX-License-Identifier: Apache-2.0
 *
 * See execute.h. Inputs follow from the data source alone (data.h), so that two runs of one program
 * read the same numbers.
 */
#include "execute.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "deft/deft.h"
#include "ops/shape.h"

const tier_name tiers[N_TIERS] = { { "interp", DF_TIER_INTERP },
                                   { "0", DF_TIER_O0 },
                                   { "1", DF_TIER_O2 } };

/* ---- options ---- */

static bool tier_of(const char *text, int *out)
{
    *out = TIER_ALL;
    if (strcmp(text, "all") == 0) return true;
    for (int i = 0; i < N_TIERS; i++) {
        if (strcmp(text, tiers[i].name) != 0) continue;
        *out = i;
        return true;
    }
    (void)cli_fail(CLI_USAGE, "--tier=%s: must be interp, 0, 1 or all", text);
    return false;
}

int run_option(run_options *o, const char *argument, bool *known)
{
    const char *value;
    bool ok = true;
    *known = true;
    if (strcmp(argument, "--fast") == 0)
        o->flags |= DF_TRACE_FAST;
    else if (strcmp(argument, "--nofuse") == 0)
        o->flags |= DF_TRACE_NOFUSE;
    else if (cli_value(argument, "--tier", &value))
        ok = tier_of(value, &o->tier);
    else if (cli_value(argument, "--passes", &value))
        ok = cli_passes_of(value, &o->passes);
    else if (cli_value(argument, "--seed", &value))
        ok = cli_number("--seed", value, 0, UINT64_MAX, &o->data.seed);
    else if (cli_value(argument, "--threads", &value))
        ok = cli_number("--threads", value, 0, 4096, &o->threads);
    else
        *known = false;
    return ok ? CLI_OK : CLI_USAGE;
}

/* ---- one run ---- */

static int64_t bytes_of(const df_trace *t, uint32_t k)
{
    return df_trace_numel(t, k) * (int64_t)deft_dtype_size((deft_dtype)t->nodes[k].dtype);
}

enum { LEAST_RUNS = 5, MOST_RUNS = 10000, BENCH_NS = 500000000 };

static int64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const int64_t *const x = a, *const y = b;
    return (*x > *y) - (*x < *y);
}

/* Runs a prepared plan that has run once, over and over. */
static deft_status repeat(cli_program *p, df_device *dev, const df_plan *plan, const df_trace *t,
                          const int64_t *slots, df_launch_io *io, bench_result *out)
{
    deft_status st = DEFT_OK;
    df_run_stats stats = { 0 };
    int64_t total = 0;
    uint32_t n = 0;
    int64_t *const ns = df_arena_new(&p->arena, int64_t, MOST_RUNS);
    if (!ns) return df_fail_mem(&p->diag, "times", MOST_RUNS * sizeof *ns);
    while (st == DEFT_OK && n < MOST_RUNS && (n < LEAST_RUNS || total < BENCH_NS)) {
        for (uint32_t r = 0; r < t->n_roots; r++) df_buffer_drop(&io->root[r]);
        const int64_t start = now_ns();
        st = dev->run(dev, &p->diag, plan, t, slots, io, &stats);
        ns[n] = now_ns() - start;
        total += ns[n++];
    }
    qsort(ns, n, sizeof *ns, by_value);
    *out = (bench_result){ .median = (double)ns[n / 2] * 1e-9,
                           .least = (double)ns[0] * 1e-9,
                           .runs = n,
                           .launches = stats.launches,
                           .segments = stats.segments };
    return st;
}

/* bench: NULL, or what repeated runs took. */
static deft_status plan_and_run(cli_program *p, df_device *dev, const run_way *w, df_trace *t,
                                df_launch_io *io, run_results *out, bench_result *bench)
{
    deft_status st = DEFT_OK;
    df_plan *plan = NULL;
    df_limits limits = w->limits ? *w->limits : dev->limits;
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
    TRY(dev->prepare(dev, &p->diag, plan, NULL));
    st = dev->run(dev, &p->diag, plan, t, slots, io, NULL);
    out->launches = plan->n_launches;
    out->segments = plan->n_segs;
    out->kernels = plan->n_kernels;
    if (st == DEFT_OK && bench) st = repeat(p, dev, plan, t, slots, io, bench);
    dev->release(dev, plan);
done:
    df_plan_destroy(&plan, &df_mem_system);
    return st;
}

static deft_status keep_results(cli_program *p, const df_trace *t, df_launch_io *io,
                                run_results *out)
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
            df_input_gather(t, t->roots[r].into, out->root[r]);
        else
            memcpy(out->root[r], io->root[r]->data, bytes);
    }
    return DEFT_OK;
}

static deft_status run_way_of(cli_program *p, const data_source *data, const run_way *w,
                              run_results *out, bench_result *bench)
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
    TRY(data_fill(&p->diag, p->trace, t, dev->allocator, data, inputs));
    df_launch_io io = { .root = roots, .input = (const df_buffer *const *)inputs };
    TRY(plan_and_run(p, dev, w, t, &io, out, bench));
    if (!bench) TRY(keep_results(p, t, &io, out));
done:
    for (uint32_t i = 0; roots && i < t->n_roots; i++) df_buffer_drop(&roots[i]);
    for (uint32_t i = 0; inputs && i < t->n_inputs; i++) df_buffer_drop(&inputs[i]);
    df_cpu_destroy(&dev);
    return st;
}

deft_status run_once(cli_program *p, const data_source *data, const run_way *w, run_results *out)
{
    return run_way_of(p, data, w, out, NULL);
}

deft_status run_inputs(cli_program *p, const data_source *data, data_source *out)
{
    deft_status st = DEFT_OK;
    df_trace *const t = p->trace;
    df_allocator *a = NULL;
    char **const input = df_arena_new(&p->arena, char *, t->n_inputs);
    df_buffer **const buffers = df_arena_new(&p->arena, df_buffer *, t->n_inputs);
    if (!input || !buffers) TRY(df_fail_mem(&p->diag, "inputs", t->n_inputs * sizeof *input));
    TRY(df_allocator_create(&p->diag, &df_mem_system, 0, &a));
    TRY(data_fill(&p->diag, t, t, a, data, buffers));
    for (uint32_t i = 0; i < t->n_inputs; i++) {
        const size_t bytes = (size_t)bytes_of(t, t->inputs[i].node);
        input[i] = df_arena_alloc(&p->arena, bytes, 16);
        if (!input[i]) st = df_fail_mem(&p->diag, "inputs", bytes);
        if (st == DEFT_OK) df_input_gather(t, i, input[i]);
    }
    for (uint32_t i = 0; i < t->n_inputs; i++) df_buffer_drop(&buffers[i]);
    *out = (data_source){ .seed = data->seed, .input = input };
done:
    df_allocator_destroy(&a);
    return st;
}

deft_status run_bench(cli_program *p, const data_source *data, const run_way *w, bench_result *out)
{
    const df_trace *const t = p->trace;
    run_results unused = { 0 };
    const deft_status st = run_way_of(p, data, w, &unused, out);
    for (uint32_t i = 0; i < t->n_inputs; i++) out->bytes += bytes_of(t, t->inputs[i].node);
    for (uint32_t r = 0; r < t->n_roots; r++) out->bytes += bytes_of(t, t->roots[r].node);
    return st;
}

/* ---- comparing ---- */

static bool is_nan(deft_dtype dtype, const char *at)
{
    float f = 0;
    double g = 0;
    if (dtype == DEFT_F32) memcpy(&f, at, sizeof f);
    if (dtype == DEFT_F64) memcpy(&g, at, sizeof g);
    if (df_is_half(dtype)) {
        uint16_t half;
        memcpy(&half, at, sizeof half);
        f = df_f32_of_half(dtype, half);
    }
    return isnan(f) || isnan(g);
}

static uint64_t bits_at(const char *at, size_t size)
{
    uint64_t bits = 0;
    for (size_t i = size; i-- > 0;) bits = bits << 8 | (unsigned char)at[i];
    return bits;
}

/* Floats as integers whose order, and distance in steps, is that of the floats. */
static int64_t ordered(deft_dtype dtype, const char *at)
{
    int64_t wide = 0;
    int32_t narrow = 0;
    int16_t half = 0;
    memcpy(&half, at, df_is_half(dtype) ? sizeof half : 0);
    if (df_is_half(dtype)) return half < 0 ? INT16_MIN - half : half;
    memcpy(&wide, at, dtype == DEFT_F64 ? sizeof wide : 0);
    memcpy(&narrow, at, dtype == DEFT_F32 ? sizeof narrow : 0);
    if (dtype == DEFT_F64) return wide < 0 ? INT64_MIN - wide : wide;
    return narrow < 0 ? (int64_t)INT32_MIN - narrow : narrow;
}

/* How many floats lie between two elements, plus 1; 0: equal. UINT64_MAX: not to be counted. */
static uint64_t distance(deft_dtype dtype, const char *a, const char *b)
{
    if (memcmp(a, b, deft_dtype_size(dtype)) == 0) return 0;
    const bool nan_a = is_nan(dtype, a), nan_b = is_nan(dtype, b);
    if (nan_a && nan_b) return 0;
    if (!df_is_float(dtype) || nan_a || nan_b) return UINT64_MAX;
    const int64_t x = ordered(dtype, a), y = ordered(dtype, b);
    const uint64_t steps = x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
    return steps ? steps : 1; /* 0 and -0 */
}

/* Whether all roots agree; tells the first that does not. *most: the largest distance. */
static bool compare(const df_trace *t, const run_options *o, const run_results *want,
                    const run_results *have, const char *tier, uint64_t *most)
{
    *most = 0;
    for (uint32_t r = 0; r < t->n_roots; r++) {
        const uint32_t node = t->roots[r].node;
        const deft_dtype dtype = (deft_dtype)t->nodes[node].dtype;
        const size_t size = deft_dtype_size(dtype);
        const int64_t n = df_trace_numel(t, node);
        for (int64_t i = 0; i < n; i++) {
            const char *const a = want->root[r] + (size_t)i * size;
            const char *const b = have->root[r] + (size_t)i * size;
            const uint64_t off = distance(dtype, a, b);
            if (off > *most) *most = off;
            if (off <= o->ulp) continue;
            printf("tier %s: output %%%u %s element %lld of %lld: 0x%llx, %s 0x%llx\n", tier, node,
                   deft_dtype_name(dtype), (long long)i, (long long)n,
                   (unsigned long long)bits_at(b, size),
                   o->expected ? "expected" : "unfused interpreter",
                   (unsigned long long)bits_at(a, size));
            return false;
        }
    }
    return true;
}

static void tell_equal(const cli_program *p, const run_options *o, const run_results *want,
                       const run_results *have, const char *tier, uint64_t most)
{
    printf("tier %s: ", tier);
    if (most)
        printf("within %llu ulp", (unsigned long long)most);
    else
        printf("equal");
    printf(", %u outputs, %u launches", p->trace->n_roots, have->launches);
    if (!o->expected) printf(" instead of %u", want->launches);
    printf("\n");
}

check_verdict run_check(cli_program *p, const run_options *o, const df_compiler *compiler,
                        int *code)
{
    const run_way reference = { .tier = DF_TIER_INTERP, .threads = 1 };
    run_results want = { 0 };
    check_verdict verdict = CHECK_EQUAL;
    *code = CLI_OK;
    deft_status st = DEFT_OK;
    if (o->expected) {
        want = *o->expected;
    } else {
        /* A plan that is not fused stores more, for which the program's bound is not meant. */
        const uint64_t bound = p->trace->max_temporary_bytes;
        p->trace->max_temporary_bytes = 0;
        st = run_once(p, &o->data, &reference, &want);
        p->trace->max_temporary_bytes = bound;
    }
    if (st != DEFT_OK) {
        *code = cli_status(&p->diag, st, p->path);
        return CHECK_UNRUN;
    }
    for (int i = 0; i < N_TIERS; i++) {
        if (o->tier != TIER_ALL && o->tier != i) continue;
        const run_way w = { .tier = tiers[i].tier,
                            .passes = o->passes,
                            .threads = (uint32_t)o->threads,
                            .compiler = tiers[i].tier == DF_TIER_INTERP ? NULL : compiler };
        run_results have = { 0 };
        uint64_t most;
        st = run_once(p, &o->data, &w, &have);
        if (st != DEFT_OK && o->expected) {
            *code = cli_status(&p->diag, st, p->path);
            return CHECK_UNRUN;
        }
        if (st != DEFT_OK) {
            (void)cli_status(&p->diag, st, p->path);
            *code = cli_fail(CLI_FAILED, "tier %s failed where the unfused interpreter did not",
                             tiers[i].name);
            return CHECK_FAILED;
        }
        if (compare(p->trace, o, &want, &have, tiers[i].name, &most)) {
            tell_equal(p, o, &want, &have, tiers[i].name, most);
        } else {
            verdict = CHECK_DIFFERS;
            *code = CLI_FAILED;
        }
    }
    return verdict;
}
