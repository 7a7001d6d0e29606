/* SPDX-License-Identifier: Apache-2.0
 *
 * When kernels' words go by a table (jit_cuda/exec/table.h), on the stand-in GPU (trial.h): a
 * chain of kernels whose inputs alternate between two places. What is counted: nodes updated,
 * tables put in, graphs; every result is the interpreter's. Then what cannot be had: the compiler
 * refuses, and every call of the driver and every allocation fails in turn in the run that
 * changes over.
 *
 *   table_cases DRIVER NVRTC CUBLASLT [--quick]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit_cuda/exec/run_layout.h"
#include "jit_cuda/exec/table.h"
#include "trial.h"

enum { SIDE = 8, LONG = 20, SHORT = 3, CHANGES_IN = 2 + DF_CUDA_TABLE_REPLAYS };

static void expect(const char *where, const char *what, uint64_t got, uint64_t want)
{
    char text[96];
    if (got == want) return;
    (void)snprintf(text, sizeof text, "%llu, not %llu", (unsigned long long)got,
                   (unsigned long long)want);
    trial_fault(where, what, text);
}

/* ---- a chain in a queue of its own ---- */

typedef struct chain {
    bench b;
    program p;
    df_plan *plan;
    trial at[2]; /* inputs in two places */
} chain;

static void ask(const char *table)
{
    if (table)
        (void)setenv("DEFT_CUDA_TABLE", table, 1);
    else
        (void)unsetenv("DEFT_CUDA_TABLE");
}

/* Sums along columns and rows in turn, a kernel for each; all of them read the second input. */
static void write_chain(char *text, size_t cap, int n)
{
    size_t at = (size_t)snprintf(text, cap, "%%0 = input f32[%d,%d]\n%%1 = input f32[%d,%d]\n",
                                 SIDE, SIDE, SIDE, SIDE);
    int from = 0, next = 2;
    for (int i = 0; i < n; i++, next += 3) {
        at += (size_t)snprintf(
            text + at, cap - at,
            "%%%d = sum f32[%d,%d] %%%d axes=[%d] keepdims\n%%%d = expand f32[%d,%d] %%%d\n"
            "%%%d = sub f32[%d,%d] %%1 %%%d\n",
            next, i % 2 ? SIDE : 1, i % 2 ? 1 : SIDE, from, i % 2, next + 1, SIDE, SIDE, next,
            next + 2, SIDE, SIDE, next + 1);
        from = next + 2;
    }
    (void)snprintf(text + at, cap - at, "output %%%d\n", from);
}

static bool chain_open_text(chain *c, const char *where, df_device *cpu, const char *table,
                            const char *text)
{
    df_diag d = { 0 };
    *c = (chain){ .b.mem = fail_mem_create() };
    ask(table);
    if (!program_parse(&c->p, where, text, strlen(text), cpu) || bench_open(&c->b, &d) != DEFT_OK ||
        !(c->plan = bench_plan(&c->p, &c->b, &d))) {
        trial_fault(where, "no chain", d.text);
        return false;
    }
    for (int i = 0; i < 2; i++) {
        trial_open(&c->at[i], &c->p, &c->b);
        if (trial_put(&c->at[i], &d) != DEFT_OK) trial_fault(where, "inputs", d.text);
    }
    c->p.is_fast = c->p.t->flags & DF_TRACE_FAST;
    trial_counts.cases++;
    return true;
}

static bool chain_open(chain *c, const char *where, df_device *cpu, const char *table, int n)
{
    static char text[1 << 14];
    write_chain(text, sizeof text, n);
    return chain_open_text(c, where, cpu, table, text);
}

static void chain_close(chain *c)
{
    for (int i = 0; i < 2; i++) trial_close(&c->at[i]);
    bench_drop(&c->b, &c->plan);
    bench_close(&c->b);
    if (fail_mem_count(c->b.mem).live_blocks) trial_fault(c->p.where, "memory leaks", "");
    fail_mem_destroy(&c->b.mem);
    trial_misuse(c->p.where);
    program_finish(&c->p);
}

/* What the inputs are is at one place; at the other there is something else. */
static void chain_aim(chain *c, int place)
{
    static const char other[33 * 20 * sizeof(float)];
    df_diag d = { 0 };
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < c->p.t->n_inputs; i++) {
            const df_buffer *const host = c->p.host[i];
            const size_t n = (size_t)host->bytes;
            df_assert(n <= sizeof other);
            if (c->b.dev->far->put(c->b.dev, &d, c->b.q, c->at[k].in[i]->data,
                                   k == place ? host->data : other, n) != DEFT_OK)
                trial_fault(c->p.where, "inputs", d.text);
        }
}

static deft_status chain_begin(chain *c, int place)
{
    df_diag d = { 0 };
    c->b.dev->far->begin_generation(c->b.dev, c->b.q);
    return trial_run(&c->at[place], &d, c->plan, false, NULL);
}

/* The result is looked at, and given out or dropped. */
static void chain_end(chain *c, int place, df_buffer **out)
{
    df_buffer **const root = &c->at[place].root[0];
    trial_check_root(&c->at[place], 0);
    if (out)
        *out = *root;
    else
        df_buffer_drop(root);
    *root = NULL;
}

static void chain_run(chain *c, int place, df_buffer **out)
{
    chain_aim(c, place);
    if (chain_begin(c, place) == DEFT_OK)
        chain_end(c, place, out);
    else
        trial_fault(c->p.where, "a run", "");
}

/* At the one place and the other. */
static void chain_turn(chain *c, int n)
{
    for (int i = 0; i < n; i++) chain_run(c, i % 2, NULL);
}

static df_replay_stats read(const chain *c)
{
    return c->b.dev->far->read_replay(c->b.dev, c->b.q);
}

/* Frames that are kept, laid out by table or not. */
static uint64_t count_frames(const chain *c, bool by_table)
{
    const df_cuda_plan *const p = c->plan->attached;
    uint64_t n = 0;
    for (int i = 0; i < DF_CUDA_FRAMES; i++) {
        const df_cuda_run_layout *const f = atomic_load(&p->frame[i]);
        n += f && f->is_laid_out && f->by_table == by_table;
    }
    return n;
}

/* ---- what is counted ---- */

/* Many updates: from the run after the latest few on a table, in the same graph's place. */
static void check_many(df_device *cpu)
{
    chain c;
    if (!chain_open(&c, "many", cpu, NULL, LONG)) return;
    chain_turn(&c, CHANGES_IN);
    const df_replay_stats before = read(&c);
    expect("many", "tables too early", before.tables, 0);
    expect("many", "nodes", before.updates, LONG * DF_CUDA_TABLE_REPLAYS);
    chain_turn(&c, 10);
    const df_replay_stats after = read(&c);
    expect("many", "tables", after.tables, 10);
    expect("many", "nodes by table", after.updates - before.updates, 0);
    expect("many", "replayed", after.replayed - before.replayed, 10);
    expect("many", "recorded", after.recorded, 1);
    expect("many", "nodes of the tree", after.n_nodes, 1);
    expect("many", "its pool", after.pool_bytes, before.pool_bytes);
    expect("many", "frames by value", count_frames(&c, false), 1);
    expect("many", "frames by table", count_frames(&c, true), 1);
    chain_close(&c);
}

static void check_few(df_device *cpu)
{
    chain c;
    if (!chain_open(&c, "few", cpu, NULL, SHORT)) return;
    chain_turn(&c, 20);
    expect("few", "tables", read(&c).tables, 0);
    expect("few", "nodes", read(&c).updates, 18 * SHORT);
    chain_close(&c);
}

/* What changes seldom is no reason: a mean counts. */
static void check_mean(df_device *cpu)
{
    chain c;
    if (!chain_open(&c, "seldom", cpu, NULL, LONG)) return;
    for (int i = 0; i < 20; i++) chain_run(&c, i / 4 % 2, NULL);
    expect("seldom", "tables", read(&c).tables, 0);
    expect("seldom", "nodes", read(&c).updates, 4 * LONG);
    chain_close(&c);
}

static void check_asked(df_device *cpu)
{
    static const struct {
        const char *table;
        int n;
        uint64_t tables, updates;
    } cases[] = { { "0", LONG, 0, 10 * LONG },  { "1", SHORT, 11, 0 },
                  { "3", SHORT, 6, 4 * SHORT }, { "4", SHORT, 0, 10 * SHORT },
                  { "15", LONG, 6, 4 * LONG },  { "-3", LONG, 6, 4 * LONG },
                  { "many", LONG, 6, 4 * LONG } };
    for (size_t i = 0; i < DF_LEN(cases); i++) {
        chain c;
        char where[48];
        (void)snprintf(where, sizeof where, "DEFT_CUDA_TABLE=%s", cases[i].table);
        if (!chain_open(&c, where, cpu, cases[i].table, cases[i].n)) continue;
        chain_turn(&c, 12);
        expect(where, "tables", read(&c).tables, cases[i].tables);
        expect(where, "nodes", read(&c).updates, cases[i].updates);
        chain_close(&c);
    }
}

/* Products are set as ever, and no reason for a table: ours and cuBLASLt's, but not what comes
 * after one of these. */
static void check_products(df_device *cpu)
{
    static const char ours[] =
        "%0 = input f32[9,9]\n%1 = input f32[9,9]\n%2 = matmul f32[9,9] %0 %1\n"
        "%3 = matmul f32[9,9] %2 %1\n%4 = matmul f32[9,9] %3 %1\noutput %4\n";
    static const char theirs[] =
        "trace v1 fast\n%0 = input f32[33,20]\n%1 = input f32[20,17]\n"
        "%2 = matmul f32[33,17] %0 %1\n%3 = sin f32[33,17] %2\n%4 = input f32[33,17]\n"
        "%5 = mul f32[33,17] %3 %4\noutput %5\n";
    chain c;
    if (!chain_open_text(&c, "our products", cpu, "2", ours)) return;
    chain_turn(&c, 12);
    expect("our products", "nodes", read(&c).updates, 10 * 3);
    expect("our products", "frames by table", count_frames(&c, true), 0);
    chain_close(&c);
    for (int by_table = 0; by_table < 2; by_table++) {
        const char *const where = by_table ? "a product by table" : "a product by value";
        if (!chain_open_text(&c, where, cpu, by_table ? "1" : "0", theirs)) return;
        chain_turn(&c, 12);
        expect(where, "nodes", read(&c).updates, by_table ? 10 : 10 * 2);
        expect(where, "tables", read(&c).tables, by_table ? 11 : 0);
        chain_close(&c);
    }
}

/* Nodes that are set because the arena has moved are no reason: a table would move, too. */
static void check_moved(df_device *cpu)
{
    enum { HELD = 3 };
    chain c;
    df_buffer *held[HELD] = { NULL };
    if (!chain_open(&c, "moved", cpu, "5", LONG)) return;
    for (int i = 0; i < 12; i++) chain_run(&c, 0, i < HELD ? &held[i] : NULL);
    expect("moved", "nodes", read(&c).updates, LONG + 1); /* moved; and the last, learned */
    expect("moved", "tables", read(&c).tables, 0);
    for (int i = 0; i < HELD; i++) df_buffer_drop(&held[i]);
    chain_close(&c);
}

/* Another queue of the same device and plan, which has no graphs, keeps its own frame. */
static void check_other_queue(df_device *cpu)
{
    chain c;
    df_diag d = { 0 };
    df_queue *other = NULL;
    if (!chain_open(&c, "another queue", cpu, "1", SHORT)) return;
    df_queue *const own = c.b.q;
    if (c.b.dev->far->queue_create(c.b.dev, &d, NULL, &other) != DEFT_OK)
        trial_fault("another queue", "none", d.text);
    for (int i = 0; i < 8; i++) {
        c.b.q = i % 2 ? other : own;
        chain_run(&c, 0, NULL);
        (void)c.b.dev->far->wait(c.b.dev, &d, c.b.q);
    }
    c.b.q = own;
    expect("another queue", "frames by value", count_frames(&c, false), 1);
    expect("another queue", "frames by table", count_frames(&c, true), 1);
    expect("another queue", "laid out again", ((const df_cuda_plan *)c.plan->attached)->n_taken, 0);
    c.b.dev->far->queue_destroy(c.b.dev, &other);
    chain_close(&c);
}

/* ---- what cannot be had ---- */

/* The compiler refuses entries with MANY: nodes are updated as before, and it is not asked again.
 */
static void check_refused(df_device *cpu)
{
    chain c;
    if (!chain_open(&c, "refused", cpu, NULL, LONG)) return;
    chain_turn(&c, CHANGES_IN);
    nvrtc_fail(1, 6);
    chain_turn(&c, 12);
    nvrtc_fail(0, 0);
    expect("refused", "tables", read(&c).tables, 0);
    expect("refused", "nodes", read(&c).updates, LONG * (DF_CUDA_TABLE_REPLAYS + 12));
    expect("refused", "frames by table", count_frames(&c, true), 0);
    chain_close(&c);
}

/* The n-th call, or allocation, of the run that changes over. false: there were fewer. */
static bool fail_change(df_device *cpu, bool by_memory, long n)
{
    chain c;
    char where[64];
    enum { OUT_OF_MEMORY = 2 };
    (void)snprintf(where, sizeof where, "%s %ld fails", by_memory ? "allocation" : "call", n);
    if (!chain_open(&c, where, cpu, NULL, LONG)) return false;
    chain_turn(&c, CHANGES_IN);
    chain_aim(&c, 0);
    const size_t before = fail_mem_count(c.b.mem).failed;
    if (by_memory)
        fail_mem_at(c.b.mem, (size_t)n, false);
    else
        gpu.fail(NULL, n, OUT_OF_MEMORY);
    const deft_status st = chain_begin(&c, 0);
    const bool came =
        by_memory ? fail_mem_count(c.b.mem).failed > before : gpu.fails_waiting() == 0;
    fail_mem_at(c.b.mem, 0, false);
    while (!by_memory && gpu.fails_waiting() > 0) (void)c.b.dev->far->wait(c.b.dev, NULL, c.b.q);
    if (st != DEFT_OK && !came) trial_fault(where, "failed by itself", "");
    if (st == DEFT_OK) chain_end(&c, 0, NULL);
    trial_counts.failed_runs += st != DEFT_OK;
    chain_turn(&c, 12);
    if (read(&c).tables == 0) trial_fault(where, "it is not tried again", "");
    chain_close(&c);
    return came;
}

static void check_failing(df_device *cpu, int step)
{
    for (int by_memory = 0; by_memory < 2; by_memory++) {
        long n = 1;
        long all = 0;
        for (; n < 500 && fail_change(cpu, by_memory != 0, n); n += step) all++;
        printf("%ld %s failed\n", all, by_memory ? "allocations" : "calls of the driver");
        if (n < 20 || n >= 500) trial_fault("failing", "how many?", "");
    }
}

/* ---- by itself ---- */

/* A frame of the other way does not do, whatever else it has; laid out anew for another alignment,
 * it is as large as before. */
static void check_frame(df_device *cpu)
{
    chain c;
    if (!chain_open(&c, "a frame", cpu, "0", SHORT)) return;
    chain_turn(&c, 3);
    const df_cuda_run_layout *const f = atomic_load(&((df_cuda_plan *)c.plan->attached)->frame[0]);
    const size_t n_spare = f->n_spare;
    if (!df_cuda_run_layout_fits(f, c.plan, f->slots, false))
        trial_fault("a frame", "does not fit", "");
    if (df_cuda_run_layout_fits(f, c.plan, f->slots, true)) trial_fault("a frame", "fits", "");
    bench_run_shifted(&c.p, &c.b, c.plan);
    bench_run(&c.p, &c.b, c.plan, false);
    expect("a frame", "words to spare", f->n_spare, n_spare);
    chain_close(&c);
}

static void check_plan(void)
{
    static const struct {
        deft_status st;
        bool again;
    } cases[] = { { DEFT_E_MEMORY, true },
                  { DEFT_E_INTERRUPTED, true },
                  { DEFT_E_COMPILE, false },
                  { DEFT_E_BACKEND, false } };
    for (size_t i = 0; i < DF_LEN(cases); i++) {
        df_cuda_plan p = { 0 };
        const df_diag why = { .status = cases[i].st };
        if (df_cuda_table_is_wanted(&p, 7)) trial_fault("a plan", "by table at first", "");
        df_cuda_table_choose(&p);
        if (!df_cuda_table_is_wanted(&p, 7)) trial_fault("a plan", "not chosen", "");
        if (df_cuda_table_is_wanted(&p, 0)) trial_fault("a plan", "never is never", "");
        df_cuda_table_refuse(&p, NULL, &why);
        if (df_cuda_table_is_wanted(&p, 7)) trial_fault("a plan", "not refused", "");
        df_cuda_table_choose(&p);
        if (df_cuda_table_is_wanted(&p, 7) != cases[i].again) trial_fault("a plan", "again?", "");
    }
}

static void check_weighing(void)
{
    df_cuda_weighing w = { 0 };
    for (int i = 1; i < DF_CUDA_TABLE_REPLAYS; i++)
        if (df_cuda_table_weigh(&w, UINT64_MAX, 1)) trial_fault("weighing", "of too few", "");
    if (!df_cuda_table_weigh(&w, 0, 1000)) trial_fault("weighing", "not of many", "");
    for (int i = 0; i < 100; i++)
        if (df_cuda_table_weigh(&w, i % 2 ? 9 : 10, 10)) trial_fault("weighing", "of few", "");
    for (int i = 0; i < 100; i++)
        if (df_cuda_table_weigh(&w, 1000, 0)) trial_fault("weighing", "never is never", "");
}

int main(int argc, char **argv)
{
    df_device *cpu = NULL;
    if (argc < 4 || !trial_begin(argv, &cpu)) return 2;
    trial_by_graphs = true;
    check_weighing();
    check_plan();
    check_frame(cpu);
    check_products(cpu);
    check_many(cpu);
    check_few(cpu);
    check_mean(cpu);
    check_asked(cpu);
    check_moved(cpu);
    check_other_queue(cpu);
    check_refused(cpu);
    check_failing(cpu, argc > 4 && strcmp(argv[4], "--quick") == 0 ? 5 : 1);
    return trial_end(&cpu) ? 0 : 1;
}
