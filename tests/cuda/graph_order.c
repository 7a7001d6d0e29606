/* SPDX-License-Identifier: Apache-2.0
 *
 * Which nodes of a CUDA graph wait for which others, when temporaries are parts of the memory of
 * larger ones. A program runs as a graph on the stand-in GPU (trial.h), and the calls that add
 * nodes are recorded. One node must come after another exactly where the earlier one writes what
 * the later one uses, or uses what the later one writes. Two parts of one region share no memory.
 * A part shares memory with what is stored in its whole region.
 *
 *   graph_order DRIVER NVRTC CUBLASLT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit_cuda/exec/run_layout.h"
#include "runtime/bind.h"
#include "trial.h"

enum { MOST = 64 };

/* %2 is large, and is read twice. The small ones after it lie side by side in its memory: two
 * chains, each of which writes one part after the other. %12 takes the same memory as a whole, when
 * %15 has read a part. */
static const char two_chains[] = "%0 = input f32[64,64]\n"
                                 "%1 = input f32[64,8]\n"
                                 "%2 = matmul f32[64,64] %0 %0\n"
                                 "%3 = matmul f32[64,8] %2 %1\n"
                                 "%4 = permute f32[64,64] %2 perm=[1,0]\n"
                                 "%5 = matmul f32[64,8] %4 %1\n"
                                 "%6 = matmul f32[64,8] %0 %3\n"
                                 "%7 = matmul f32[64,8] %0 %5\n"
                                 "%8 = matmul f32[64,8] %0 %6\n"
                                 "%9 = matmul f32[64,8] %0 %7\n"
                                 "%10 = permute f32[8,64] %9 perm=[1,0]\n"
                                 "%11 = add f32[64,8] %8 %6\n"
                                 "%12 = matmul f32[64,64] %11 %10\n"
                                 "%13 = matmul f32[64,8] %12 %1\n"
                                 "%14 = permute f32[8,64] %1 perm=[1,0]\n"
                                 "%15 = matmul f32[8,8] %14 %7\n"
                                 "output %13\n"
                                 "output %15\n";

/* ---- recorded nodes ---- */

static df_cu_node nodes[MOST];
static bool before[MOST][MOST]; /* [i][k]: node i comes after node k, at first directly */
static uint32_t n_nodes;

static const df_driver *driver_was;

static void record(df_cu_node node, const df_cu_node *after, size_t n)
{
    if (n_nodes == MOST) return;
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n_nodes; k++)
            if (nodes[k] == after[i]) before[n_nodes][k] = true;
    nodes[n_nodes++] = node;
}

static df_cu_result add_kernel(df_cu_node *out, df_cu_graph to, const df_cu_node *after, size_t n,
                               const df_cu_kernel_node *k)
{
    const df_cu_result r = driver_was->graph_kernel(out, to, after, n, k);
    if (r == 0) record(*out, after, n);
    return r;
}

static df_cu_result add_child(df_cu_node *out, df_cu_graph to, const df_cu_node *after, size_t n,
                              df_cu_graph child)
{
    const df_cu_result r = driver_was->graph_child(out, to, after, n, child);
    if (r == 0) record(*out, after, n);
    return r;
}

/* What a node waits for, it also waits for by way of others. */
static void close_relation(bool r[MOST][MOST], uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i; k-- > 0;)
            for (uint32_t j = 0; r[i][k] && j < k; j++) r[i][j] |= r[k][j];
}

/* ---- what must be ordered ---- */

typedef struct world {
    const df_plan *plan;
    const df_cuda_run_layout *f;
    const int64_t *slots;
} world;

/* 0: the buffers share no memory. 1: they are one piece of memory. 2: one lies in a part of the
 * other's region. */
static int shares(const world *w, df_buf a, df_buf b)
{
    const uint32_t n = w->plan->n_bufs;
    if (a.i == b.i) return 1;
    if (a.i >= n || b.i >= n) return 0;
    const df_plan_buf *const x = &w->plan->bufs[a.i], *const y = &w->plan->bufs[b.i];
    if (x->kind != DF_BUF_TEMP || y->kind != DF_BUF_TEMP) return 0;
    if (x->index == y->index) return 1;
    const int64_t from_x = df_plan_region_offset(w->plan, w->slots, x->index);
    const int64_t from_y = df_plan_region_offset(w->plan, w->slots, y->index);
    const int64_t end_x = from_x + w->slots[w->plan->regions[x->index].bytes.i];
    const int64_t end_y = from_y + w->slots[w->plan->regions[y->index].bytes.i];
    return from_x < end_y && from_y < end_x ? 2 : 0;
}

/* The greatest result of shares over the uses of two steps of which one writes; 0: they may run at
 * the same time. */
static int conflict(const world *w, uint32_t i, uint32_t k)
{
    const df_cuda_step *const a = &w->f->steps.at[i], *const b = &w->f->steps.at[k];
    int most = 0;
    for (uint32_t x = a->first_use; x < a->first_use + a->n_uses; x++)
        for (uint32_t y = b->first_use; y < b->first_use + b->n_uses; y++) {
            const df_cuda_use *const u = &w->f->uses.at[x], *const v = &w->f->uses.at[y];
            const int s = u->writes || v->writes ? shares(w, u->what, v->what) : 0;
            if (s > most) most = s;
        }
    return most;
}

static void compare(const world *w, const char *where)
{
    static bool must[MOST][MOST], same[MOST][MOST];
    const uint32_t n = w->f->steps.n;
    uint32_t n_by_parts = 0, n_apart = 0;
    char text[120];
    memset(must, 0, sizeof must);
    memset(same, 0, sizeof same);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < i; k++) {
            must[i][k] = conflict(w, i, k) > 0;
            same[i][k] = conflict(w, i, k) == 1;
        }
    close_relation(must, n);
    close_relation(same, n);
    close_relation(before, n);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < i; k++) {
            n_by_parts += must[i][k] && !same[i][k];
            n_apart += !must[i][k];
            if (before[i][k] == must[i][k]) continue;
            (void)snprintf(text, sizeof text, "step %u %s step %u", i,
                           must[i][k] ? "does not wait for" : "need not wait for", k);
            trial_fault(where, text, "");
        }
    /* Or else nothing was tested. */
    if (n_by_parts == 0) trial_fault(where, "no steps are ordered by parts of regions alone", "");
    if (n_apart == 0) trial_fault(where, "all steps are ordered", "");
    printf("%s: %u steps, %u pairs ordered by parts of regions alone, %u pairs not ordered\n",
           where, n, n_by_parts, n_apart);
}

/* ---- running ---- */

static const df_cuda_run_layout *layout_of(const df_plan *plan)
{
    df_cuda_plan *const p = plan->attached;
    for (int i = 0; i < DF_CUDA_FRAMES; i++) {
        const df_cuda_run_layout *const f = atomic_load(&p->frame[i]);
        if (f && f->is_laid_out) return f;
    }
    return NULL;
}

static void check(const char *where, const char *text, df_device *cpu)
{
    df_diag d = { 0 };
    program p = { 0 };
    trial x;
    bench b = { .mem = fail_mem_create() };
    df_plan *plan = NULL;
    n_nodes = 0;
    memset(before, 0, sizeof before);
    if (!program_parse(&p, where, text, strlen(text), cpu) || bench_open(&b, &d) != DEFT_OK ||
        !(plan = bench_plan(&p, &b, &d))) {
        trial_fault(where, "no plan", d.text);
        return;
    }
    df_cuda_device *const c = df_cuda_device_of(b.dev);
    const df_driver was = *c->driver;
    driver_was = &was;
    c->driver->graph_kernel = add_kernel;
    c->driver->graph_child = add_child;
    trial_open(&x, &p, &b);
    if (trial_put(&x, &d) != DEFT_OK) trial_fault(where, "inputs", d.text);
    for (int i = 0; i < 4; i++) {
        b.dev->far->begin_generation(b.dev, b.q);
        if (trial_run(&x, &d, plan, false, NULL) != DEFT_OK) trial_fault(where, "a run", d.text);
        for (uint32_t r = 0; r < p.t->n_roots; r++) {
            trial_check_root(&x, r);
            df_buffer_drop(&x.root[r]);
        }
    }
    const world w = { plan, layout_of(plan), program_slots(&p, plan, p.t) };
    trial_counts.cases++;
    if (!w.f || w.f->n_phases != 1 || w.f->copies.n > 0 || w.f->steps.n != n_nodes)
        trial_fault(where, "not one node for each step", "");
    else
        compare(&w, where);
    c->driver->graph_kernel = was.graph_kernel;
    c->driver->graph_child = was.graph_child;
    trial_close(&x);
    bench_drop(&b, &plan);
    bench_close(&b);
    fail_mem_destroy(&b.mem);
    trial_misuse(where);
    program_finish(&p);
}

int main(int argc, char **argv)
{
    df_device *cpu = NULL;
    if (argc < 4 || !trial_begin(argv, &cpu)) return 2;
    trial_by_graphs = true;
    check("two chains", two_chains, cpu);
    return trial_end(&cpu) ? 0 : 1;
}
