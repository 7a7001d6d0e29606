/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops with tests and branches in steps, by public calls, on the stand-in GPU: in one context
 * they decide on the GPU (jit_cuda/graphs/conditional.h), in another the host does, in a third
 * there is no GPU. All that is read is the same, bit for bit. With a driver that has conditional
 * nodes a warm step waits for nothing, also with one that sets no nodes of graphs; with an older
 * one it waits as ever. Then every call of the driver and every allocation fails in turn: what is
 * read is right or the step has failed, and the next one is right.
 *
 *   conditional_program [--quick]
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deft/deft.h"
#include "standin/standin.h"
#include "../support/budget.h"
#include "../support/log_text.h"

enum {
    SIDE = 6,
    USUAL_ROWS = 9,
    MOST_ROWS = 200,
    KEPT = 3,
    N_CONTEXTS = 3,
    N_OUTS = 4,
    GRAPHS = 2
};
enum { WITH = 12040, WITHOUT = 12030 };

static standin gpu;
static int n_faults;
static const char *where = "";
static bool is_fast;       /* the program at hand */
static char told[1 << 14]; /* why the host decides, since the runtime was made */

static void listen(void *user, const char *topic, const char *line)
{
    (void)user;
    if (strstr(line, "ask")) log_text_add(told, sizeof told, topic, line);
}

static void fault(const char *what, const char *more, int step)
{
    printf("%s, step %d: %s %s\n", where, step, what, more);
    n_faults++;
}

/* ---- memory of the host ---- */

static _Atomic long alloc_left; /* until one fails; 0: none will */
static _Atomic long alloc_live;

static void *resize(void *user, void *old, size_t old_size, size_t new_size)
{
    (void)user;
    if (new_size > 0 && atomic_load(&alloc_left) > 0 && atomic_fetch_sub(&alloc_left, 1) == 1)
        return NULL;
    if (new_size == 0) {
        free(old);
        atomic_fetch_sub(&alloc_live, old ? 1 : 0);
        return NULL;
    }
    (void)old_size;
    void *const p = realloc(old, new_size);
    if (!old && p) atomic_fetch_add(&alloc_live, 1);
    return p;
}

/* ---- programs ---- */

typedef struct model {
    deft_ctx *cx;
    deft_tensor *w, *kept[KEPT], *out[N_OUTS];
    double rate; /* a number of the step */
    int64_t limit, most;
    int64_t rows; /* 0: as usual */
} model;

typedef struct program {
    const char *name;
    /* Results at m->out, from x [rows,SIDE]; what is assigned is the model's own. */
    void (*run)(model *m, deft_tensor *x);
    const char *reason; /* why the host decides all the same; NULL: it does not */
    bool is_fast;       /* then the CPU's bits are others */
} program;

static deft_tensor *size_of(deft_tensor *x)
{
    return deft_max(deft_abs(x), DEFT_ALL_AXES, 0);
}

/* x, and how often. */
static deft_status shrinks(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    const model *const m = user;
    (void)cx, (void)n_in, (void)n_out;
    out[0] = deft_logical_and(deft_gt(size_of(in[0]), 0.125), deft_lt(in[1], m->limit));
    return DEFT_OK;
}

static deft_status shrink(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    const model *const m = user;
    (void)cx, (void)n_in, (void)n_out;
    deft_tensor *const y = deft_matmul(deft_tanh(deft_matmul(in[0], m->w)), m->w); /* temporaries */
    out[0] = deft_mul(deft_tanh(y), m->rate);
    out[1] = deft_add(in[1], 1);
    return DEFT_OK;
}

/* As often as its data want it; the counter and what goes in come from the step, too. */
static void by_data(model *m, deft_tensor *x)
{
    deft_tensor *state[2] = { deft_softmax(x, 1), deft_zeros(m->cx, DEFT_SHAPE(), DEFT_I32) };
    if (!deft_while(m->cx, shrinks, shrink, m, state, 2, m->most, state)) return;
    m->out[0] = deft_sum(state[0], DEFT_AXES(0), 0);
    m->out[1] = state[1];
}

static deft_status differs(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    const model *const m = user;
    (void)cx, (void)n_in, (void)n_out;
    out[0] = deft_lt(in[2], m->limit);
    return DEFT_OK;
}

/* States that change places: neither is written over the other. */
static deft_status swap(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *user)
{
    const model *const m = user;
    (void)cx, (void)n_in, (void)n_out;
    out[0] = deft_sub(in[1], deft_mul(deft_sum(in[0], DEFT_AXES(1), 1), m->rate));
    out[1] = in[0];
    out[2] = deft_add(in[2], 1);
    return DEFT_OK;
}

static void swapping(model *m, deft_tensor *x)
{
    deft_tensor *state[3] = { x, deft_neg(x), deft_zeros(m->cx, DEFT_SHAPE(), DEFT_I32) };
    if (!deft_while(m->cx, differs, swap, m, state, 3, m->most, state)) return;
    m->out[0] = state[0];
    m->out[1] = deft_sub(state[0], state[1]);
}

/* The model's own matrix goes through a loop, and is assigned what comes out. */
static deft_status weigh(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    const model *const m = user;
    (void)cx, (void)n_in, (void)n_out;
    out[0] = deft_tanh(deft_sub(deft_matmul(in[0], in[0]), deft_mul(in[0], m->rate)));
    out[1] = deft_add(in[1], 1);
    return DEFT_OK;
}

static void assigned(model *m, deft_tensor *x)
{
    deft_tensor *state[2] = { m->w, deft_zeros(m->cx, DEFT_SHAPE(), DEFT_I32) };
    if (!deft_while(m->cx, shrinks, weigh, m, state, 2, m->most, state)) return;
    m->out[0] = deft_matmul(x, m->w); /* as it was */
    deft_assign(m->w, state[0]);
    m->out[1] = deft_matmul(x, m->w);
}

static deft_status product(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    const model *const m = user;
    (void)cx, (void)n_in, (void)n_out;
    out[0] = deft_tanh(deft_matmul(in[0], m->w));
    out[1] = deft_mul(deft_sum(out[0], DEFT_ALL_AXES, 0), m->rate);
    return DEFT_OK;
}

static deft_status other_side(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                              size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_softmax(in[0], 1);
    out[1] = deft_max(in[0], DEFT_ALL_AXES, 0);
    return DEFT_OK;
}

/* Between kernels; which side follows from data, and changes. */
static void branches(model *m, deft_tensor *x)
{
    deft_tensor *in[1] = { deft_add(deft_softmax(x, 0), x) }, *out[2];
    deft_tensor *const condition = deft_gt(deft_sum(x, DEFT_ALL_AXES, 0), 0);
    if (!deft_cond(condition, product, other_side, m, in, 1, out, 2)) return;
    m->out[0] = deft_cumsum(out[0], 1);
    m->out[1] = deft_mul(out[1], 2);
    m->out[2] = out[0];
}

/* A loop, then a branch on what it left, then a loop on what that left. */
static void in_turn(model *m, deft_tensor *x)
{
    by_data(m, x);
    deft_tensor *in[1] = { deft_add(x, m->out[0]) }, *out[2];
    deft_tensor *const condition = deft_gt(m->out[1], 2);
    if (!deft_cond(condition, product, other_side, m, in, 1, out, 2)) return;
    m->out[2] = out[0];
    by_data(m, out[0]);
    m->out[3] = out[1];
}

static deft_status outer(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    model *const m = user;
    deft_tensor *state[2] = { in[0], deft_zeros(cx, DEFT_SHAPE(), DEFT_I32) };
    (void)n_in, (void)n_out;
    if (!deft_while(cx, shrinks, shrink, m, state, 2, 2, state)) return deft_error(cx);
    out[0] = deft_add(state[0], 0.0625);
    out[1] = deft_add(in[1], 1);
    return DEFT_OK;
}

/* The inner loop decides on the GPU, each time that the host lets it. */
static void nested(model *m, deft_tensor *x)
{
    deft_tensor *state[2] = { x, deft_zeros(m->cx, DEFT_SHAPE(), DEFT_I32) };
    if (!deft_while(m->cx, shrinks, outer, m, state, 2, m->most, state)) return;
    m->out[0] = state[0];
    m->out[1] = state[1];
}

static deft_status take_row(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    const model *const m = user;
    (void)cx, (void)n_in, (void)n_out;
    deft_tensor *const row = deft_take(m->w, deft_add(deft_mul(in[1], 0), 2), 0);
    out[0] = deft_mul(deft_add(deft_softmax(in[0], 1), row), m->rate);
    out[1] = deft_add(in[1], 1);
    return DEFT_OK;
}

static void looked_up(model *m, deft_tensor *x)
{
    deft_tensor *state[2] = { x, deft_zeros(m->cx, DEFT_SHAPE(), DEFT_I32) };
    if (!deft_while(m->cx, shrinks, take_row, m, state, 2, m->most, state)) return;
    m->out[0] = state[0];
}

/* Segments of one kernel in the test, and in the body: both have tables. */
static deft_status both_shrink(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    const model *const m = user;
    (void)cx, (void)n_in, (void)n_out;
    deft_tensor *const large =
        deft_logical_or(deft_gt(size_of(in[0]), 0.125), deft_gt(size_of(in[1]), 0.0625));
    out[0] = deft_logical_and(large, deft_lt(in[2], m->limit));
    return DEFT_OK;
}

static deft_status shrink_both(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    const model *const m = user;
    (void)cx, (void)n_in, (void)n_out;
    out[0] = deft_mul(deft_tanh(in[0]), m->rate);
    out[1] = deft_mul(deft_tanh(in[1]), m->rate);
    out[2] = deft_add(in[2], 1);
    return DEFT_OK;
}

static void with_tables(model *m, deft_tensor *x)
{
    deft_tensor *state[3] = { deft_exp(x), deft_exp(deft_concat((deft_tensor *[]){ x, x }, 2, 0)),
                              deft_zeros(m->cx, DEFT_SHAPE(), DEFT_I32) };
    if (!deft_while(m->cx, both_shrink, shrink_both, m, state, 3, m->most, state)) return;
    for (int i = 0; i < 3; i++) m->out[i] = state[i];
}

static const program programs[] = {
    { .name = "by data", .run = by_data },
    { .name = "with tables", .run = with_tables },
    { .name = "swapping", .run = swapping },
    { .name = "assigned", .run = assigned },
    { .name = "branches", .run = branches },
    { .name = "in turn", .run = in_turn },
    { .name = "fast",
      .run = by_data,
      .reason = "a product within it is cuBLASLt's",
      .is_fast = true },
    { .name = "nested", .run = nested, .reason = "there is a loop or a branch within it" },
    { .name = "looked up", .run = looked_up, .reason = "an index within it may be outside" },
};
enum { N_PROGRAMS = sizeof programs / sizeof *programs };
static const char too_old[] = "the driver has no conditional nodes, which are of CUDA 12.4";
static const char not_taken[] = "the driver does not take the kernels that decide";

/* ---- steps ---- */

static void open_model(model *m, deft_runtime *rt, int at)
{
    float w[SIDE * SIDE];
    *m = (model){ 0 };
    const deft_ctx_options o = { .size = sizeof o,
                                 .numerics = is_fast ? DEFT_FAST : DEFT_STRICT,
                                 .device = at == 0 ? DEFT_CPU : DEFT_CUDA(0),
                                 .replay = at == GRAPHS ? DEFT_REPLAY_GRAPHS : DEFT_REPLAY_OFF };
    if (deft_ctx_create(rt, &o, &m->cx) != DEFT_OK) {
        printf("no context on device %d\n", at);
        exit(1);
    }
    for (int i = 0; i < SIDE * SIDE; i++) w[i] = (float)((i * 11 + 3) % 17) / 32 - 0.25f;
    m->w = deft_keep(deft_from(m->cx, DEFT_SHAPE(SIDE, SIDE), DEFT_F32, w, sizeof w));
}

static void close_model(model *m)
{
    deft_drop(&m->w);
    for (int k = 0; k < KEPT; k++) deft_drop(&m->kept[k]);
    for (int k = 0; k < N_OUTS; k++) deft_drop(&m->out[k]);
    deft_ctx_destroy(&m->cx);
}

static long waits(void)
{
    return gpu.count("cuStreamSynchronize") + gpu.count("cuEventSynchronize") +
           gpu.count("cuMemcpyDtoHAsync_v2");
}

/* What the step has made is kept in m->out; how often it waited for the GPU. */
static deft_status one_step(model *m, const program *p, int step, long *n_waits)
{
    float data[MOST_ROWS * SIDE];
    const int64_t rows = m->rows ? m->rows : step % 5 == 4 ? USUAL_ROWS : 4;
    for (int i = 0; i < MOST_ROWS * SIDE; i++)
        data[i] = (float)((i * 7 + step * 13) % 29) / 16 - (step % 3 ? 0.75f : 1);
    m->rate = 0.5 + 0.125 * (step % 4);
    m->limit = step % 7 == 3 ? 0 : step % 7 == 5 ? 40 : 7;
    m->most = step % 6 == 2 ? 3 : 50;
    for (int k = 0; k < N_OUTS; k++) deft_drop(&m->out[k]);
    const long before = waits();
    const deft_scope s = deft_step_begin(m->cx);
    p->run(m, deft_from(m->cx, DEFT_SHAPE(rows, SIDE), DEFT_F32, data,
                        (size_t)(rows * SIDE) * sizeof *data));
    for (int k = 0; k < N_OUTS; k++)
        if (m->out[k]) m->out[k] = deft_keep(m->out[k]);
    const deft_status st = deft_step_end(s);
    *n_waits = waits() - before;
    return st;
}

static deft_status read(deft_tensor *t, float *out, size_t *bytes)
{
    static const deft_dtype as[2] = { DEFT_F32, DEFT_I32 };
    *bytes = (size_t)deft_numel(t) * 4;
    return deft_read(t, as[deft_dtype_of(t) == DEFT_I32], out, *bytes);
}

static void compare(const model *m, deft_tensor *const *t, const char *what, int step)
{
    const int first = is_fast;
    static float got[N_CONTEXTS][MOST_ROWS * SIDE + SIDE * SIDE];
    size_t bytes = 0;
    for (int i = 0; i < N_CONTEXTS; i++)
        if (read(t[i], got[i], &bytes) != DEFT_OK)
            fault("cannot read", deft_message(m[i].cx), step);
    for (int i = first + 1; i < N_CONTEXTS; i++)
        if (memcmp(got[first], got[i], bytes) != 0)
            fault(what, i == GRAPHS ? "differs by graphs" : "differs", step);
}

static void compare_all(const model *m, int step)
{
    compare(m, (deft_tensor *[]){ m[0].w, m[1].w, m[2].w }, "the matrix", step);
    for (int k = 0; k < N_OUTS; k++)
        if (m[0].out[k])
            compare(m, (deft_tensor *[]){ m[0].out[k], m[1].out[k], m[2].out[k] }, "a result",
                    step);
    for (int k = 0; k < KEPT; k++)
        if (m[0].kept[k])
            compare(m, (deft_tensor *[]){ m[0].kept[k], m[1].kept[k], m[2].kept[k] },
                    "what was kept", step);
}

static void keep_some(model *m, int step)
{
    deft_drop(&m->kept[step % KEPT]);
    m->kept[step % KEPT] = deft_keep(m->out[0]);
}

static void check_misuse(int step)
{
    if (gpu.n_misuse() > 0) fault("misuse:", gpu.misuse(), step);
    gpu.forgive();
}

/* ---- what is proven ---- */

enum { WARM = 35 };

static bool must_wait(const program *p, int version)
{
    return p->reason || version < WITH;
}

static void go_on(model *m, const program *p, int version, int n_steps)
{
    long n[N_CONTEXTS] = { 0 }, n_made = 0, n_waiting = 0;
    for (int step = 0; step < n_steps; step++) {
        if (step == WARM) n_made = gpu.count("cuGraphInstantiateWithFlags");
        for (int i = 0; i < N_CONTEXTS; i++) {
            if (one_step(&m[i], p, step, &n[i]) != DEFT_OK)
                fault("has failed:", deft_message(m[i].cx), step);
            if (step % 3 == 0) keep_some(&m[i], step);
        }
        if (step >= WARM) n_waiting += n[GRAPHS] > 0;
        compare_all(m, step);
        check_misuse(step);
    }
    if (n_steps <= WARM) return;
    n_made = gpu.count("cuGraphInstantiateWithFlags") - n_made;
    printf("%s, CUDA %d: %d warm steps, %ld of which wait; %ld graphs made meanwhile\n", p->name,
           version, n_steps - WARM, n_waiting, n_made);
    if (!must_wait(p, version) && n_waiting > 0) fault("a warm step waits", p->name, n_steps);
    if (must_wait(p, version) && n_waiting == 0) fault("no step waits", p->name, n_steps);
    const char *const reason = version < WITH ? too_old : p->reason;
    if (reason ? !strstr(told, reason) : told[0]) fault("other reasons:", told, n_steps);
    const bool decides = version >= WITH && (!p->reason || p->run == nested);
    if ((gpu.count("cuGraphAddNode") > 0) != decides) fault("conditional nodes", p->name, n_steps);
}

/* A driver that sets no nodes of graphs, in bodies say: they are made anew, and nothing waits. */
static void without_updates(model *m, const program *p)
{
    enum { INVALID = 1, FIRST = 3000, N = 12 };
    long n[N_CONTEXTS] = { 0 }, n_waiting = 0;
    const long n_made = gpu.count("cuGraphAddNode");
    for (int step = FIRST; step < FIRST + N; step++)
        for (int i = 0; i < N_CONTEXTS; i++) {
            if (i == GRAPHS) gpu.fail_always("cuGraphExecKernelNodeSetParams", INVALID);
            if (one_step(&m[i], p, step, &n[i]) != DEFT_OK)
                fault("has failed:", deft_message(m[i].cx), step);
            gpu.fail_always("cuGraphExecKernelNodeSetParams", 0);
            if (i < GRAPHS) continue;
            n_waiting += n[GRAPHS] > 0;
            compare_all(m, step);
        }
    check_misuse(FIRST);
    if (gpu.count("cuGraphAddNode") == n_made) fault("no graph was made anew", "", FIRST);
    if (n_waiting > 0) fault("without updates a step waits", "", FIRST);
}

/* The n-th call of the driver, or allocation, in a step of the third context fails; false: there
 * were none so many. */
static bool fail_once(model *m, const program *p, int step, long n, bool by_memory)
{
    enum { INVALID = 1, OUT_OF_MEMORY = 2 };
    long unused;
    model *const g = &m[GRAPHS];
    if (by_memory)
        atomic_store(&alloc_left, n);
    else
        gpu.fail(NULL, n, n % 2 ? OUT_OF_MEMORY : INVALID);
    const deft_status st = one_step(g, p, step, &unused);
    const bool has_come = by_memory ? atomic_load(&alloc_left) == 0 : gpu.fails_waiting() == 0;
    atomic_store(&alloc_left, 0);
    while (gpu.fails_waiting() > 0) (void)!deft_wait(g->cx);
    for (int i = 0; i < GRAPHS; i++)
        if (one_step(&m[i], p, step, &unused) != DEFT_OK) fault("has failed", "", step);
    if (st == DEFT_OK) compare_all(m, step);
    return has_come;
}

static void must_do(model *m, const program *p, int step)
{
    long unused;
    for (int i = 0; i < N_CONTEXTS; i++)
        if (one_step(&m[i], p, step, &unused) != DEFT_OK)
            fault("has failed:", deft_message(m[i].cx), step);
    compare_all(m, step);
    check_misuse(step);
}

/* anew: of steps that make their graphs, since they have rows as none before; else of warm ones. */
static void fail_each(model *m, const program *p, bool anew, bool by_memory)
{
    int step = 1000 + anew * 2000 + by_memory * 4000;
    long n = 1;
    for (bool has_come = true; has_come; n++) {
        const int64_t rows = USUAL_ROWS + 1 + n % (MOST_ROWS - USUAL_ROWS);
        for (int i = 0; anew && i < N_CONTEXTS; i++) m[i].rows = rows;
        if (anew) must_do(m, p, step++);
        has_come = fail_once(m, p, step++, n, by_memory);
        must_do(m, p, step++);
    }
    for (int i = 0; i < N_CONTEXTS; i++) m[i].rows = 0;
    printf("%s: each of %ld %s of a %s step failed\n", p->name, n - 2,
           by_memory ? "allocations" : "calls", anew ? "new" : "warm");
}

static deft_runtime *runtime(void)
{
    const deft_runtime_options o = {
        .size = sizeof o, .log = "why,plugin", .log_hook = listen, .resize = resize
    };
    deft_runtime *rt = NULL;
    told[0] = 0;
    if (deft_runtime_create(&o, &rt) != DEFT_OK) exit(2);
    return rt;
}

static void try_program(const program *p, int version, bool is_quick)
{
    model m[N_CONTEXTS];
    standin_alive left;
    deft_runtime *rt;
    gpu.set_version(version);
    where = p->name;
    is_fast = p->is_fast;
    rt = runtime();
    for (int i = 0; i < N_CONTEXTS; i++) open_model(&m[i], rt, i);
    go_on(m, p, version, WARM + (is_quick ? (int)test_size(20, 8) : 200));
    if (!must_wait(p, version)) without_updates(m, p);
    const int n_kinds = must_wait(p, version) || p->run == assigned ? 0 : is_quick ? 2 : 4;
    for (int i = 0; i < n_kinds; i++) fail_each(m, p, i / 2, i % 2);
    for (int i = 0; i < N_CONTEXTS; i++) close_model(&m[i]);
    deft_runtime_destroy(&rt);
    check_misuse(-1);
    if (atomic_load(&alloc_live) != 0) fault("memory leaks", "", -1);
    gpu.leaks(&left);
    if (left.graphs || left.execs || left.memory || left.modules || left.contexts)
        fault("something of the driver's is left", "", -1);
    gpu.reset();
}

/* The n-th text that a GPU wants compiled is refused; whether that was the one that decides. */
static bool refuse_text(const program *p, long n)
{
    model m[N_CONTEXTS];
    void (*fail_text)(long, int);
    long n_waits = 0;
    deft_runtime *rt = runtime();
    void *const nvrtc = dlopen(getenv("DEFT_NVRTC"), RTLD_NOW | RTLD_LOCAL);
    void *const found = nvrtc ? dlsym(nvrtc, "standin_nvrtc_fail") : NULL;
    if (!found) exit(2);
    memcpy(&fail_text, &found, sizeof found);
    where = "refused";
    for (int i = 0; i < N_CONTEXTS; i++) open_model(&m[i], rt, i);
    fail_text(n, 6);
    (void)!one_step(&m[GRAPHS], p, 0, &n_waits);
    fail_text(0, 0);
    for (int i = 0; i < GRAPHS; i++)
        if (one_step(&m[i], p, 0, &n_waits) != DEFT_OK) fault("has failed", "", 0);
    for (int step = 1; step < 5; step++) must_do(m, p, step);
    const bool is_it = strstr(told, not_taken) != NULL;
    (void)!one_step(&m[GRAPHS], p, 5, &n_waits);
    if (is_it != (n_waits > 0)) fault("waits:", told, 5);
    if (is_it && !strstr(told, "as asked")) fault("no sentence of the compiler's:", told, 5);
    for (int i = 0; i < N_CONTEXTS; i++) close_model(&m[i]);
    deft_runtime_destroy(&rt);
    gpu.reset();
    dlclose(nvrtc);
    return is_it;
}

static void without_kernels(const program *p)
{
    int n_found = 0;
    for (long n = 1; n < 6; n++) n_found += refuse_text(p, n);
    printf("%s: without the kernels that decide, %d time\n", p->name, n_found);
    if (n_found != 1) fault("not refused once", "", n_found);
}

int main(int argc, char **argv)
{
    const bool is_quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    const char *const path = getenv("DEFT_CUDA_DRIVER");
    if (!path || !standin_open(&gpu, path)) return 2;
    for (int i = 0; i < N_PROGRAMS; i++) {
        try_program(&programs[i], WITH, is_quick);
        if (!is_quick || i == 0 || i == 4) try_program(&programs[i], WITHOUT, is_quick);
    }
    without_kernels(&programs[0]);
    printf("%d faults\n", n_faults);
    return n_faults == 0 ? 0 : 1;
}
