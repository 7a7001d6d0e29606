/* SPDX-License-Identifier: Apache-2.0
 *
 * The text form is the trace: what is printed and read back prints the same bytes, has the same key
 * and gives the same bits; so do the files that a context stores of it (lazy/files/store.h),
 * whatever its inputs held. For every program of tests/expect (the arguments) and random traces.
 *
 *   round_trip [FILE.expect ...] [--count=N] [--seed=N] [--quick | --full] [--tier=0 | --tier=1]
 *   round_trip --print=SEED [--ops=N] [--plant]      one random trace, for other tests
 *
 * With a tier, fused traces run as its code, and not in the interpreter. They then take as long as
 * the compiler, so that their number is bounded by the time of a test.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/budget.h"
#include "../support/random_trace.h"
#include "../../tools/deft/store.h"
#include "base/bits.h"
#include "lazy/files/store.h"
#include "runtime/cpu.h"

static long n_cases, n_run, n_stored, n_faults;
static char folder[64];
static df_tier tier_of_fused = DF_TIER_INTERP;
static df_compiler compiler; /* of that tier */

enum { STORED_EVERY = 10 }; /* of random traces; files take longer than these */

static void fault(const char *name, const char *what, const char *more)
{
    printf("%s: %s%s%s\n", name, what, *more ? ": " : "", more);
    n_faults++;
}

/* ---- one trace ---- */

static bool same_key(cli_program *p, const df_trace *a, const df_trace *b)
{
    df_key x, y;
    return df_trace_key(&p->diag, a, &x) == DEFT_OK && df_trace_key(&p->diag, b, &y) == DEFT_OK &&
           x.hash.hi == y.hash.hi && x.hash.lo == y.hash.lo && x.n == y.n &&
           memcmp(x.bytes, y.bytes, x.n) == 0;
}

static bool same_data(const df_trace *a, const df_trace *b)
{
    bool same = a->n_args == b->n_args && a->n_inputs == b->n_inputs && a->flags == b->flags;
    same = same && (a->n_args == 0 || !memcmp(a->args, b->args, a->n_args * sizeof *a->args));
    for (uint32_t k = 0; same && k < a->n_nodes; k++)
        for (uint32_t i = 0; i < a->nodes[k].rank; i++)
            same &= df_trace_extents(a, k)[i] == df_trace_extents(b, k)[i];
    for (uint32_t i = 0; same && i < a->n_inputs; i++)
        same = a->inputs[i].flags == b->inputs[i].flags && a->inputs[i].node == b->inputs[i].node &&
               !memcmp(a->inputs[i].stride, b->inputs[i].stride, sizeof a->inputs[i].stride);
    return same;
}

/* Makes all NaNs among n elements one NaN: which one an operator gives depends on fusion. */
static void join_nans(deft_dtype t, char *at, size_t n)
{
    const size_t size = deft_dtype_size(t);
    const uint64_t magnitudes = df_all_bits(t) >> 1;
    for (size_t i = 0; df_is_float(t) && i < n; i++) {
        const uint64_t bits = df_bits_load(at + i * size, size);
        if ((bits & magnitudes) > df_infinity_bits(t))
            df_bits_store(at + i * size, magnitudes, size);
    }
}

/* Runs t; *bytes: all results, one after the other, in p's arena. */
static deft_status run(cli_program *p, df_trace *t, bool fuses, const data_source *data,
                       const char **bytes, size_t *n)
{
    const run_way way = { .tier = fuses ? tier_of_fused : DF_TIER_INTERP,
                          .passes = { fuses ? DF_PASS_ALL : 0, fuses },
                          .threads = 1,
                          .compiler = fuses && compiler.compile ? &compiler : NULL };
    run_results r = { 0 };
    p->trace = t;
    const deft_status st = run_once(p, data, &way, &r);
    *n = 0;
    if (st != DEFT_OK) return st;
    for (uint32_t i = 0; i < t->n_roots; i++)
        *n += (size_t)df_trace_numel(t, t->roots[i].node) *
              deft_dtype_size((deft_dtype)t->nodes[t->roots[i].node].dtype);
    char *const all = df_arena_alloc(&p->arena, *n, 1);
    if (!all) return DEFT_E_MEMORY;
    for (uint32_t i = 0, at = 0; i < t->n_roots; i++) {
        const deft_dtype dtype = (deft_dtype)t->nodes[t->roots[i].node].dtype;
        const size_t n_elements = (size_t)df_trace_numel(t, t->roots[i].node);
        const size_t size = n_elements * deft_dtype_size(dtype);
        memcpy(all + at, r.root[i], size);
        join_nans(dtype, all + at, n_elements);
        at += (uint32_t)size;
    }
    *bytes = all;
    return DEFT_OK;
}

static const data_source made = { .seed = 1 };

/* Runs a fused, on inputs that are made, and b unfused, on the inputs `data`, and compares the
 * results. A trace in fast mode is fused both times, because its bits depend on fusion. p and q
 * hold a and b. */
static bool check_runs(const char *name, cli_program *p, df_trace *a, cli_program *q, df_trace *b,
                       const data_source *data)
{
    const char *x, *y;
    size_t n, m;
    const deft_status first = run(p, a, true, &made, &x, &n);
    const deft_status second = run(q, b, b->flags & DF_TRACE_FAST, data, &y, &m);
    if (first != second)
        fault(name, "only one of the two runs", first == DEFT_OK ? q->diag.text : p->diag.text);
    else if (first == DEFT_OK && (n != m || memcmp(x, y, n) != 0))
        fault(name, "other results", "");
    return first == DEFT_OK;
}

/* Stores a, of p, with what is made for its inputs, as files of that name. */
static deft_status store(cli_program *p, df_trace *a, const char *file)
{
    deft_status st = DEFT_OK;
    df_allocator *allocator = NULL;
    df_store s = { 0 };
    df_buffer **const buffers = df_arena_new(&p->arena, df_buffer *, a->n_inputs);
    if (!buffers) return DEFT_E_MEMORY;
    TRY(df_allocator_create(&p->diag, &df_mem_system, 0, &allocator));
    TRY(data_fill(&p->diag, a, a, allocator, &made, buffers));
    st = df_store_init(&s, &p->diag, &df_mem_system, a);
    if (st == DEFT_OK) st = df_store_write(&s, &p->diag, AT_FDCWD, file);
    df_store_finish(&s);
    for (uint32_t i = 0; i < a->n_inputs; i++) df_buffer_drop(&buffers[i]);
done:
    df_allocator_destroy(&allocator);
    return st;
}

/* a against what its files say; nothing that they lack would be made as for a. */
static void check_stored(const char *name, cli_program *p, df_trace *a)
{
    char file[128], trace[160], tensors[160];
    data_source data = { .seed = 99 };
    cli_program q;
    (void)snprintf(file, sizeof file, "%s/%ld", folder, n_cases);
    (void)snprintf(trace, sizeof trace, "%s.trace", file);
    (void)snprintf(tensors, sizeof tensors, "%s.safetensors", file);
    const deft_status st = store(p, a, file);
    if (st != DEFT_OK) {
        fault(name, "it could not be stored", p->diag.text);
        return;
    }
    n_stored++;
    if (cli_program_read(&q, trace, 0) != CLI_OK)
        fault(name, "its stored text is refused", "");
    else if (!same_key(p, a, q.trace))
        fault(name, "stored, it has another key", "");
    else if (store_read_inputs(&q, tensors, &data) != CLI_OK)
        fault(name, "its stored inputs are refused", "");
    else
        (void)check_runs(name, p, a, &q, q.trace, &data);
    cli_program_finish(&q);
    (void)unlink(trace);
    (void)unlink(tensors);
}

/* a, in p's arena, against what its text says. */
static void check_trace(const char *name, cli_program *p, df_trace *a, bool is_expect)
{
    df_trace *b = NULL;
    df_str text, again;
    df_str_init(&text, &df_mem_system);
    df_str_init(&again, &df_mem_system);
    n_cases++;
    df_trace_print(&text, a);
    if (df_trace_parse(&p->diag, text.at, text.n, &p->arena, &b) != DEFT_OK) {
        fault(name, "its text is refused", p->diag.text);
    } else {
        df_trace_print(&again, b);
        if (strcmp(text.at, again.at) != 0) fault(name, "printed again it is another text", "");
        if (!same_key(p, a, b)) fault(name, "another key", "");
        if (!same_data(a, b)) fault(name, "other extents, arguments or inputs", "");
        if (check_runs(name, p, a, p, b, &made)) {
            n_run++;
            if (n_run % STORED_EVERY == 0 || is_expect) check_stored(name, p, a);
        }
    }
    df_str_finish(&text);
    df_str_finish(&again);
}

/* ---- where traces come from ---- */

static void check_random(uint64_t seed, uint32_t n_ops)
{
    char name[64];
    cli_program p = { .path = name };
    (void)snprintf(name, sizeof name, "--print=%llu --ops=%u", (unsigned long long)seed, n_ops);
    df_arena_init(&p.arena, &df_mem_system);
    df_trace *const t = random_trace(seed, n_ops, false, &p.arena);
    if (t)
        check_trace(name, &p, t, false);
    else
        fault(name, "the generator made no trace", "");
    df_arena_finish(&p.arena);
}

static void check_program(const char *name, const char *text, size_t n)
{
    cli_program p = { .path = name };
    df_trace *t = NULL;
    df_arena_init(&p.arena, &df_mem_system);
    /* Some programs are there to be refused. */
    if (df_trace_parse(&p.diag, text, n, &p.arena, &t) == DEFT_OK) check_trace(name, &p, t, true);
    df_arena_finish(&p.arena);
}

/* Every program of a file: from a line "# deft ..." to one "--- ...". */
static void check_file(const char *path)
{
    static char text[1 << 20];
    char name[512];
    FILE *const f = fopen(path, "r");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    const long before = n_cases;
    if (f) (void)fclose(f);
    text[n] = '\0';
    for (char *at = strstr(text, "# deft "); at;) {
        char *const next = strstr(at + 1, "\n# deft ");
        if (next) *next = '\0';
        const char *const end = strstr(at, "\n--- ");
        (void)snprintf(name, sizeof name, "%s: %.*s", path, (int)strcspn(at, "\n"), at);
        check_program(name, at, end ? (size_t)(end - at) + 1 : strlen(at));
        at = next ? next + 1 : NULL;
    }
    if (n_cases == before && !strstr(path, "errors")) fault(path, "no program in it", "");
}

static int print_random(uint64_t seed, uint32_t n_ops, bool plant)
{
    df_arena arena;
    df_str text;
    df_arena_init(&arena, &df_mem_system);
    df_str_init(&text, &df_mem_system);
    const df_trace *const t = random_trace(seed, n_ops, plant, &arena);
    if (t) df_trace_print(&text, t);
    if (t && text.ok) (void)fputs(text.at, stdout);
    df_str_finish(&text);
    df_arena_finish(&arena);
    return t ? 0 : 1;
}

int main(int argc, char **argv)
{
    uint64_t count = 3000, n_ops = 200, print = 0, seed = 0;
    bool plant = false, prints = false;
    const char *const tmp = getenv("TMPDIR");
    (void)snprintf(folder, sizeof folder, "%.40s/deft-trip-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) return 77;
    for (int i = 1; i < argc; i++) {
        const char *value = argv[i];
        if (strcmp(value, "--quick") == 0)
            count = 1000;
        else if (strcmp(value, "--full") == 0)
            count = 100000;
        else if (strcmp(value, "--plant") == 0)
            plant = true;
        else if (cli_value(argv[i], "--print", &value))
            prints = cli_number("--print", value, 0, UINT64_MAX, &print);
        else if (cli_value(argv[i], "--ops", &value))
            (void)cli_number("--ops", value, 1, 2000, &n_ops);
        else if (cli_value(argv[i], "--count", &value))
            (void)cli_number("--count", value, 0, UINT32_MAX, &count);
        else if (cli_value(argv[i], "--seed", &value))
            (void)cli_number("--seed", value, 0, UINT64_MAX, &seed);
        else if (strcmp(value, "--tier=0") == 0)
            tier_of_fused = DF_TIER_O0;
        else if (strcmp(value, "--tier=1") == 0)
            tier_of_fused = DF_TIER_O2;
        else
            check_file(argv[i]);
    }
    if (prints) {
        (void)rmdir(folder);
        return print_random(print, (uint32_t)n_ops, plant);
    }
    df_diag d = { 0 };
    void *plugin = NULL;
    if (tier_of_fused != DF_TIER_INTERP &&
        df_plugin_open(&d, &df_mem_system, NULL, NULL, 0, &compiler, &plugin) != DEFT_OK) {
        printf("%s\n", d.text);
        return 77;
    }
    const long programs = n_cases;
    for (uint64_t i = 0; i < count && (tier_of_fused == DF_TIER_INTERP || test_time_left(1)); i++)
        check_random(seed + i, 4 + (uint32_t)((seed + i) * 7919 % 60));
    (void)rmdir(folder);
    if (plugin) df_plugin_close(&compiler, &plugin);
    printf("%ld programs, %ld random traces, %ld of them run twice, %ld from files, %ld faults\n",
           programs, n_cases - programs, n_run, n_stored, n_faults);
    return n_faults || n_run * 2 < n_cases ? 1 : 0;
}
