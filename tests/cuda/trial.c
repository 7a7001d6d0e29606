/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs on the stand-in GPU against the interpreter. See trial.h.
 */
#include "trial.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../tools/deft/data.h"
#include "jit_cuda/exec/device_internal.h"
#include "support/oracle.h"

standin gpu;
trial_counts_type trial_counts;
void (*nvrtc_fail)(long n, int code);
bool trial_by_graphs;
static df_replay_stats replays; /* sums */

bool trial_begin(char **argv, df_device **cpu)
{
    static const df_cpu_options options = { .n_threads = 1, .tier = DF_TIER_INTERP };
    df_diag d = { 0 };
    for (int i = 4; argv[i]; i++)
        if (strcmp(argv[i], "--graphs") == 0) trial_by_graphs = true;
    if (strcmp(argv[1], "-") == 0)
        return df_cpu_create(&d, &df_mem_system, NULL, &options, cpu) == DEFT_OK;
    if (!standin_open(&gpu, argv[1])) return false;
    (void)setenv("DEFT_CUDA_DRIVER", argv[1], 1);
    (void)setenv("DEFT_NVRTC", argv[2], 1);
    (void)setenv("DEFT_CUBLASLT", argv[3], 1);
    void *const nvrtc = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    void *const fail = nvrtc ? dlsym(nvrtc, "standin_nvrtc_fail") : NULL;
    memcpy(&nvrtc_fail, &fail, sizeof fail);
    return fail && df_cpu_create(&d, &df_mem_system, NULL, &options, cpu) == DEFT_OK;
}

bool trial_end(df_device **cpu)
{
    df_cpu_destroy(cpu);
    if (trial_by_graphs)
        printf(
            "%llu graphs recorded, %llu replayed, %llu placed, %llu nodes updated, %llu tables\n",
            (unsigned long long)replays.recorded, (unsigned long long)replays.replayed,
            (unsigned long long)replays.placed, (unsigned long long)replays.updates,
            (unsigned long long)replays.tables);
    if (trial_by_graphs && replays.replayed < replays.recorded)
        trial_fault("at the end", "few replays", "");
    printf("%ld programs (%ld refused), %ld runs, %ld of them to fail, %ld plans on the host, %ld "
           "faults\n",
           trial_counts.cases, trial_counts.refused, trial_counts.runs, trial_counts.failed_runs,
           trial_counts.on_host, trial_counts.faults);
    return trial_counts.faults == 0 && trial_counts.cases > 0;
}

void trial_fault(const char *where, const char *what, const char *more)
{
    printf("%s: %s: %s\n", where, what, more);
    trial_counts.faults++;
}

void trial_misuse(const char *where)
{
    if (!gpu.n_misuse || gpu.n_misuse() == 0) return;
    trial_fault(where, "misuse of the driver", gpu.misuse());
    gpu.forgive();
}

/* ---- a device, and one to compare with ---- */

static const df_gpu_request wish = { .size = sizeof wish };

deft_status bench_open(bench *b, df_diag *d)
{
    static const df_replay_options usual;
    deft_status st = df_cuda_create(d, fail_mem_get(b->mem), NULL, &wish, &b->dev);
    if (st == DEFT_OK) st = b->dev->far->queue_create(b->dev, d, NULL, &b->q);
    return st == DEFT_OK && trial_by_graphs ? b->dev->far->replay(b->dev, d, b->q, &usual) : st;
}

/* But for graphs' memory. */
static uint64_t live_bytes(const bench *b)
{
    b->dev->far->trim_replay(b->dev, b->q);
    return b->dev->far->read(b->dev).live_bytes;
}

static void add_replays(const bench *b)
{
    const df_replay_stats s = b->dev->far->read_replay(b->dev, b->q);
    replays.recorded += s.recorded;
    replays.replayed += s.replayed;
    replays.placed += s.placed;
    replays.updates += s.updates;
    replays.tables += s.tables;
}

void bench_close(bench *b)
{
    if (!b->dev) return;
    if (b->q) add_replays(b);
    b->dev->far->queue_destroy(b->dev, &b->q);
    b->dev->far->destroy(&b->dev);
}

static void *reserve(size_t n)
{
    void *const p = calloc(1, n ? n : 1);
    if (p) return p;
    printf("no memory\n");
    exit(2);
}

/* ---- a program: its inputs, and what it gives ---- */

static size_t root_numel(const program *p, uint32_t r)
{
    return (size_t)df_trace_numel(p->t, p->t->roots[r].node);
}

static deft_dtype root_dtype(const program *p, uint32_t r)
{
    return (deft_dtype)p->t->nodes[p->t->roots[r].node].dtype;
}

static size_t root_bytes(const program *p, uint32_t r)
{
    return root_numel(p, r) * deft_dtype_size(root_dtype(p, r));
}

int64_t *program_slots(program *p, const df_plan *plan, const df_trace *t)
{
    int64_t *const slots = df_arena_new(&p->arena, int64_t, plan->n_slots + 1);
    if (slots) df_slots_eval(plan->slots, plan->n_slots, t, slots);
    return slots;
}

/* One kernel per op, interpreted. */
static deft_status run_reference(program *p, df_buffer **roots)
{
    deft_status st = DEFT_OK;
    df_plan *plan = NULL;
    df_limits limits = p->cpu->limits;
    df_launch_io io = { .root = roots };
    limits.fuse = false;
    TRY(df_fuse(&p->d, p->t, &limits, &df_mem_system, &plan));
    TRY(p->cpu->prepare(p->cpu, &p->d, plan, NULL));
    st = p->cpu->run(p->cpu, &p->d, plan, p->t, program_slots(p, plan, p->t), &io, NULL);
    p->cpu->release(p->cpu, plan);
done:
    df_plan_destroy(&plan, &df_mem_system);
    return st;
}

static void drop_all(df_buffer **b, uint32_t n)
{
    for (uint32_t i = 0; b && i < n; i++) df_buffer_drop(&b[i]);
}

static const data_source source = { .seed = 1 };

/* Of the first input of integers, its last element. */
static void spoil(program *p)
{
    for (uint32_t i = 0; i < p->t->n_inputs; i++) {
        if (p->t->nodes[p->t->inputs[i].node].dtype != DEFT_I64) continue;
        int64_t *const at = p->host[i]->data;
        at[p->host[i]->bytes / 8 - 1] = -1000;
        return;
    }
}

static deft_status fill_inputs(program *p)
{
    const deft_status st = data_fill(&p->d, p->whole, p->t, p->cpu->allocator, &source, p->host);
    if (st == DEFT_OK && p->is_spoilt) spoil(p);
    return st;
}

/* What the reference gives; inputs are then as before. */
static deft_status make_wanted(program *p)
{
    deft_status st = DEFT_OK;
    const uint32_t n = p->t->n_roots;
    df_buffer **const roots = df_arena_new(&p->arena, df_buffer *, n + 1);
    p->want = df_arena_new(&p->arena, char *, n + 1);
    TRY(fill_inputs(p));
    p->st = run_reference(p, roots);
    for (uint32_t r = 0; p->st == DEFT_OK && r < n; r++) {
        p->want[r] = df_arena_alloc(&p->arena, root_bytes(p, r), 16);
        if (p->t->roots[r].kind == DF_ROOT_INTO)
            df_input_gather(p->t, p->t->roots[r].into, p->want[r]);
        else
            memcpy(p->want[r], roots[r]->data, root_bytes(p, r));
    }
    drop_all(roots, n);
    drop_all(p->host, p->t->n_inputs);
    st = fill_inputs(p);
done:
    return st;
}

bool program_open(program *p, df_device *cpu)
{
    uint32_t *from = NULL;
    p->cpu = cpu;
    if (df_trace_simplify(&p->d, p->whole, DF_PASS_ALL, &p->arena, &p->t, &from) != DEFT_OK)
        return false;
    p->host = df_arena_new(&p->arena, df_buffer *, p->t->n_inputs + 1);
    return make_wanted(p) == DEFT_OK;
}

void program_finish(program *p)
{
    if (p->t) drop_all(p->host, p->t->n_inputs);
    df_arena_finish(&p->arena);
}

/* ---- one run on the GPU ---- */

static char *start_of(const trial *x, uint32_t i)
{
    return (char *)x->in[i]->data + x->shift;
}

deft_status trial_put(trial *x, df_diag *d)
{
    deft_status st = DEFT_OK;
    const df_device_memory_ops *const far = x->b->dev->far;
    for (uint32_t i = 0; i < x->t.n_inputs; i++) {
        const df_buffer *const host = x->p->host[i];
        const df_input *const in = &x->p->t->inputs[i];
        x->t.inputs[i] = *in;
        if (!host) continue;
        TRY(far->create(x->b->dev, d, x->b->q, host->bytes + x->shift, &x->in[i]));
        TRY(far->put(x->b->dev, d, x->b->q, start_of(x, i), host->data, (size_t)host->bytes));
        x->t.inputs[i].data = start_of(x, i) + ((const char *)in->data - (const char *)host->data);
    }
done:
    return st;
}

/* Elements of root r, row-major, into copy. */
static deft_status get_root(trial *x, df_diag *d, uint32_t r, char *out)
{
    const df_device_memory_ops *const far = x->b->dev->far;
    const df_root *const root = &x->t.roots[r];
    if (root->kind != DF_ROOT_INTO)
        return far->get(x->b->dev, d, x->b->q, out, x->root[r]->data, root_bytes(x->p, r));
    const df_buffer *const into = x->in[root->into];
    char *const span = reserve((size_t)into->bytes);
    const deft_status st = far->get(x->b->dev, d, x->b->q, span, into->data, (size_t)into->bytes);
    df_trace t = x->t;
    df_input *const inputs = reserve(t.n_inputs * sizeof *inputs);
    memcpy(inputs, t.inputs, t.n_inputs * sizeof *inputs);
    inputs[root->into].data = span + ((char *)t.inputs[root->into].data - (char *)into->data);
    t.inputs = inputs;
    if (st == DEFT_OK) df_input_gather(&t, root->into, out);
    free(inputs);
    free(span);
    return st;
}

/* The first element that is off by more than most_off of the greatest, or, where that is 0, by more
 * than rounding of a sum of few; n: none. */
static size_t first_far(const float *a, const float *b, size_t n, float most_off)
{
    float most = 0;
    for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(b[i]));
    for (size_t i = 0; i < n; i++) {
        const float may = most_off > 0 ? most_off * most : 1e-4f * (1 + fabsf(b[i]));
        if (!(fabsf(a[i] - b[i]) <= may)) return i;
    }
    return n;
}

void trial_check_root(trial *x, uint32_t r)
{
    df_diag d = { 0 };
    char text[256], a[64], b[64];
    const program *const p = x->p;
    const size_t n = root_numel(p, r);
    char *const got = reserve(root_bytes(p, r));
    if (get_root(x, &d, r, got) != DEFT_OK) {
        trial_fault(p->where, "reading a result", d.text);
    } else {
        const deft_dtype t = root_dtype(p, r);
        const size_t at = p->is_fast ? first_far((const float *)(void *)got,
                                                 (const float *)(void *)p->want[r], n, p->most_off)
                                     : oracle_difference(t, got, p->want[r], n);
        (void)snprintf(text, sizeof text, "root %u, element %zu of %zu: %s, not %s", r, at, n,
                       at < n ? oracle_text(t, got, at, a, sizeof a) : "",
                       at < n ? oracle_text(t, p->want[r], at, b, sizeof b) : "");
        if (at < n) trial_fault(p->where, "differs", text);
    }
    free(got);
}

void trial_untouched(trial *x)
{
    for (uint32_t i = 0; i < x->t.n_roots; i++)
        if (x->root[i]) trial_fault(x->p->where, "a failed run left a root", "");
    for (uint32_t i = 0; i < x->t.n_inputs; i++) {
        df_diag d = { 0 };
        const df_buffer *const host = x->p->host[i];
        if (!host) continue;
        char *const now = reserve((size_t)host->bytes);
        if (x->b->dev->far->get(x->b->dev, &d, x->b->q, now, start_of(x, i), (size_t)host->bytes) !=
            DEFT_OK)
            trial_fault(x->p->where, "reading an input", d.text);
        else if (memcmp(now, host->data, (size_t)host->bytes) != 0)
            trial_fault(x->p->where, "a failed run changed an input", "");
        free(now);
    }
}

void trial_open(trial *x, program *p, bench *b)
{
    *x = (trial){ .p = p, .b = b, .t = *p->t };
    x->t.inputs = reserve((x->t.n_inputs + 1) * sizeof *x->t.inputs);
    x->in = reserve((x->t.n_inputs + 1) * sizeof(df_buffer *));
    x->root = reserve((x->t.n_roots + 1) * sizeof(df_buffer *));
}

void trial_close(trial *x)
{
    drop_all(x->root, x->t.n_roots);
    drop_all(x->in, x->t.n_inputs);
    free(x->t.inputs);
    free(x->in);
    free(x->root);
}

deft_status trial_run(trial *x, df_diag *d, const df_plan *plan, bool donates, df_run_stats *stats)
{
    df_launch_io io = { .root = x->root,
                        .input = donates ? (const df_buffer *const *)x->in : NULL,
                        .queue = x->b->q };
    trial_counts.runs++;
    return x->b->dev->run(x->b->dev, d, plan, &x->t, program_slots(x->p, plan, &x->t), &io, stats);
}

static void run_and_check(program *p, bench *b, const df_plan *plan, bool donates, int64_t shift)
{
    trial x;
    df_diag d = { 0 };
    df_run_stats stats = { 0 };
    trial_open(&x, p, b);
    x.shift = shift;
    deft_status st = trial_put(&x, &d);
    if (st == DEFT_OK) st = trial_run(&x, &d, plan, donates, &stats);
    if (st != p->st)
        trial_fault(p->where, "another status", st == DEFT_OK ? p->d.text : d.text);
    else if (st == DEFT_OK)
        for (uint32_t r = 0; r < p->t->n_roots; r++) trial_check_root(&x, r);
    else if (strncmp(d.text, p->d.text, strcspn(d.text, ":")) != 0)
        trial_fault(p->where, "another sentence", d.text);
    else
        trial_untouched(&x);
    trial_counts.failed_runs += st != DEFT_OK;
    trial_close(&x);
    trial_misuse(p->where);
}

void bench_run(program *p, bench *b, const df_plan *plan, bool donates)
{
    run_and_check(p, b, plan, donates, 0);
}

void bench_run_shifted(program *p, bench *b, const df_plan *plan)
{
    run_and_check(p, b, plan, false, 8);
}

static deft_status count_host(df_plan *plan, void *user)
{
    const df_cuda_plan *const p = plan->attached;
    *(long *)user += p && p->on_host;
    return DEFT_OK;
}

df_plan *bench_plan(program *p, bench *b, df_diag *d)
{
    df_plan *plan = NULL;
    if (df_fuse(d, p->t, &b->dev->limits, fail_mem_get(b->mem), &plan) != DEFT_OK) return NULL;
    if (b->dev->prepare(b->dev, d, plan, NULL) == DEFT_OK) return plan;
    df_plan_destroy(&plan, fail_mem_get(b->mem));
    return NULL;
}

void bench_drop(bench *b, df_plan **plan)
{
    if (*plan) b->dev->release(b->dev, *plan);
    df_plan_destroy(plan, fail_mem_get(b->mem));
}

void bench_check(program *p, bench *b)
{
    df_diag d = { 0 };
    const uint64_t live = live_bytes(b);
    df_plan *plan = bench_plan(p, b, &d);
    if (!plan) {
        trial_fault(p->where, "no plan", d.text);
        return;
    }
    df_plan_each(plan, count_host, &trial_counts.on_host);
    for (int i = 0; i < (trial_by_graphs ? 3 : 1); i++) {
        b->dev->far->begin_generation(b->dev, b->q);
        bench_run(p, b, plan, false);
        b->dev->far->begin_generation(b->dev, b->q);
        bench_run(p, b, plan, false);
        b->dev->far->begin_generation(b->dev, b->q);
        bench_run(p, b, plan, true);
        bench_run_shifted(p, b, plan);
        bench_run(p, b, plan, false);
    }
    bench_drop(b, &plan);
    if (live_bytes(b) != live) trial_fault(p->where, "device memory leaks", "");
    trial_counts.cases++;
}

bool program_parse(program *p, const char *where, const char *text, size_t n, df_device *cpu)
{
    *p = (program){ .where = where };
    df_arena_init(&p->arena, &df_mem_system);
    const bool good =
        df_trace_parse(&p->d, text, n, &p->arena, &p->whole) == DEFT_OK && program_open(p, cpu);
    trial_counts.refused += !good;
    return good;
}
