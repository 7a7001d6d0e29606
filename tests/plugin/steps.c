/* SPDX-License-Identifier: Apache-2.0
 *
 * Training steps on a code generator that fails (plugin.h, whose folder is the argument).
 *
 * The n-th compilation fails, for every n until none does: each step succeeds, gives the bits of
 * the interpreter, and the log says what happened. The n-th launch fails, likewise: the step fails
 * whole, and the same step once more gives what it would have given. The n-th allocation fails
 * while kernels are compiled: the same.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deft/deft.h"
#include "plugin.h"
#include "support/fail_mem.h"
#include "support/log_text.h"

enum { ROWS = 6, IN = 5, OUT = 4, STEPS = 3, MOST = 400 };

static plugin_controls *controls;
static long n_cases, n_faults;

/* ---- the program ---- */

/* What a step must leave alone when it fails. */
typedef struct state {
    float table[7][IN], w[IN][OUT], b[OUT], moment[2][IN][OUT], moment_b[2][OUT];
    float running[2][OUT];
    float out[ROWS][OUT]; /* the caller's memory */
    deft_rng rng;
} state;

typedef struct world {
    deft_runtime *rt;
    deft_ctx *cx;
    deft_tensor *table, *w, *b, *moment[2], *moment_b[2], *running, *out, *labels;
    float memory[ROWS][OUT];
    deft_rng rng;
    bool checks; /* the step looks rows up: an index outside is found while it runs */
    char log[4096];
} world;

typedef struct setting {
    const char *name;
    deft_tier tier;
    bool checks;
    uint32_t max_nodes; /* 0: one cut per step */
    uint32_t variants;  /* launches alike before one is made; 0: as of itself */
} setting;

static void fault(const setting *s, const char *kind, uint32_t n, const char *what)
{
    printf("%s, %s %u: %s\n", s->name, kind, n, what);
    n_faults++;
}

static void log_line(void *user, const char *topic, const char *line)
{
    world *const w = user;
    log_text_add(w->log, sizeof w->log, topic, line);
}

static bool open_world(world *w, const setting *s, deft_tier tier, const df_mem *mem)
{
    *w = (world){ .checks = s->checks };
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = tier,
                                     .variant_launches = s->variants,
                                     .log = "error,compile,plugin",
                                     .log_hook = log_line,
                                     .log_user = w,
                                     .resize = mem ? mem->resize : NULL,
                                     .resize_user = mem ? mem->user : NULL };
    const deft_ctx_options c = { .size = sizeof c, .max_nodes = s->max_nodes };
    return deft_runtime_create(&o, &w->rt) == DEFT_OK &&
           deft_ctx_create(w->rt, &c, &w->cx) == DEFT_OK;
}

static deft_tensor *filled(world *w, deft_shape shape, double from)
{
    float v[64];
    const size_t n = (size_t)(shape.dim[0] * (shape.rank > 1 ? shape.dim[1] : 1));
    for (size_t i = 0; i < n; i++) v[i] = (float)(from + (double)(i * 7 % 11) / 10);
    return deft_keep(deft_from(w->cx, shape, DEFT_F32, v, n * sizeof *v));
}

static bool fill(world *w)
{
    static const uint8_t labels[ROWS] = { 0, 6, 3, 3, 1, 5 };
    const deft_shape weights = DEFT_SHAPE(IN, OUT), row = DEFT_SHAPE(OUT);
    w->table = filled(w, DEFT_SHAPE(7, IN), -0.5);
    w->w = filled(w, weights, -0.3);
    w->b = filled(w, row, 0);
    for (int i = 0; i < 2; i++) {
        w->moment[i] = filled(w, weights, 0.1);
        w->moment_b[i] = filled(w, row, 0.1);
    }
    w->running = filled(w, DEFT_SHAPE(2, OUT), 0);
    w->out = deft_keep(
        deft_wrap_mut(w->cx, DEFT_SHAPE(ROWS, OUT), DEFT_F32, w->memory, sizeof w->memory, NULL));
    w->labels = deft_keep(deft_from(w->cx, DEFT_SHAPE(ROWS), DEFT_U8, labels, ROWS));
    w->rng = (deft_rng){ 3, 0 };
    return w->table && w->w && w->b && w->moment[0] && w->moment[1] && w->moment_b[0] &&
           w->moment_b[1] && w->running && w->out && w->labels;
}

static void close_world(world *w)
{
    deft_ctx_destroy(&w->cx);
    deft_runtime_destroy(&w->rt);
}

static void adam(deft_tensor *p, deft_tensor *const *moment, deft_tensor *g)
{
    deft_assign(moment[0], deft_lerp(moment[0], g, 0.1));
    deft_assign(moment[1], deft_lerp(moment[1], deft_square(g), 0.001));
    deft_tensor *den = deft_add(deft_sqrt(deft_abs(moment[1])), 1e-8);
    deft_assign(p, deft_sub(p, deft_mul(deft_div(moment[0], den), 0.01)));
}

/* Each number is a program of its own: something is compiled in every step. The views come first: a
 * cut inside the step ends them. */
static deft_status step(world *w, int number)
{
    const deft_scope s = deft_step_begin(w->cx);
    deft_tensor *x =
        w->checks ? deft_take(w->table, w->labels, 0) : deft_slice(w->table, DEFT_R(0, ROWS));
    deft_tensor *mask =
        deft_gt(deft_uniform(w->cx, &w->rng, DEFT_SHAPE(ROWS, IN), DEFT_F32, 0, 1), 0.2);
    x = deft_where(mask, x, deft_num(w->cx, 0));
    deft_tensor *y = deft_add(deft_matmul(x, w->w), w->b);
    deft_tensor *mean = deft_slice(w->running, DEFT_AT(0));
    deft_assign(mean, deft_lerp(mean, deft_mean(y, DEFT_AXES(0), 0), 0.1));
    deft_assign(deft_slice(w->running, DEFT_AT(1), DEFT_R(1, 3)),
                deft_slice(deft_var(y, DEFT_AXES(0), 0, 0), DEFT_R(0, 2)));
    deft_tensor *err = deft_div(deft_sub(deft_tanh(y), 0.5), (double)ROWS);
    for (int i = 0; i < number; i++) err = deft_mul(err, deft_cos(err));
    adam(w->w, w->moment, deft_matmul(deft_t(x), err));
    adam(w->b, w->moment_b, deft_sum(err, DEFT_AXES(0), 0));
    deft_assign(w->table, deft_mul(w->table, 0.9));
    deft_assign(w->out, deft_mul(y, 255));
    return deft_step_end(s);
}

static void get(world *w, state *out)
{
    memset(out, 0, sizeof *out);
    const struct {
        deft_tensor *t;
        void *to;
        size_t size;
    } list[] = {
        { w->table, out->table, sizeof out->table },
        { w->w, out->w, sizeof out->w },
        { w->b, out->b, sizeof out->b },
        { w->moment[0], out->moment[0], sizeof out->moment[0] },
        { w->moment[1], out->moment[1], sizeof out->moment[1] },
        { w->moment_b[0], out->moment_b[0], sizeof out->moment_b[0] },
        { w->moment_b[1], out->moment_b[1], sizeof out->moment_b[1] },
        { w->running, out->running, sizeof out->running },
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (deft_read(list[i].t, DEFT_F32, list[i].to, list[i].size) != DEFT_OK) abort();
    memcpy(out->out, w->memory, sizeof out->out);
    out->rng = w->rng;
    float shown[ROWS][OUT]; /* the handle on the caller's memory reads what is there */
    if (deft_read(w->out, DEFT_F32, shown, sizeof shown) != DEFT_OK) abort();
    if (memcmp(shown, w->memory, sizeof shown) != 0) {
        printf("the handle on wrapped memory reads something else\n");
        n_faults++;
    }
}

static deft_stats stats(const world *w)
{
    deft_stats s;
    deft_stats_read(w->cx, &s, sizeof s);
    return s;
}

/* ---- failing ---- */

static void reset(void)
{
    const int32_t live = atomic_load(&controls->n_live);
    memset(controls, 0, sizeof *controls);
    atomic_store(&controls->n_live, live);
    controls->status = DEFT_E_COMPILE;
}

/* What the interpreter makes of it, after each step. */
static void reference(const setting *s, state *want)
{
    world w;
    if (!open_world(&w, s, DEFT_TIER_INTERPRET, NULL) || !fill(&w)) abort();
    for (int i = 0; i < STEPS; i++) {
        if (step(&w, i) != DEFT_OK) fault(s, "step", (uint32_t)i, deft_message(w.cx));
        get(&w, &want[i]);
    }
    if (s->max_nodes ? stats(&w).cuts <= STEPS : stats(&w).cuts != STEPS)
        fault(s, "step", 0, "the number of cuts is not what the test is for");
    close_world(&w);
}

typedef struct explained {
    uint64_t compiled, failed;
} explained;

static uint64_t count(const char *text, const char *what)
{
    uint64_t n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) n++;
    return n;
}

/* Adds what deft_explain tells of kernels. */
static void explain(const world *w, explained *e)
{
    static char text[1 << 16];
    (void)deft_explain(w->cx, text, sizeof text);
    e->compiled += count(text, "note kernel_new: ") + count(text, "note kernel_better: ") +
                   count(text, "note variant_new: ");
    e->failed += count(text, "found at O0 compilation ") + count(text, "found at O2 compilation ");
}

/* One run with compilation n failing. Returns whether one did. */
static bool compile_case(const setting *s, const state *want, uint32_t n, bool keep,
                         deft_status status)
{
    world w;
    state got;
    explained told_of = { 0 };
    reset();
    controls->fail_compile = n;
    controls->keep_failing = keep;
    controls->status = status;
    if (!open_world(&w, s, s->tier, NULL) || !fill(&w)) abort();
    for (int i = 0; i < STEPS; i++) {
        if (step(&w, i) != DEFT_OK) fault(s, "compilation", n, deft_message(w.cx));
        deft_runtime_settle(w.rt);
        get(&w, &got);
        if (memcmp(&got, &want[i], sizeof got) != 0)
            fault(s, "compilation", n, "not the interpreter's bits");
        explain(&w, &told_of);
    }
    if (told_of.compiled != stats(&w).kernels_compiled)
        fault(s, "compilation", n, "a compile was not explained");
    if (n == 1 && keep && !told_of.failed) fault(s, "compilation", n, "a failure is not explained");
    const uint32_t n_failed = atomic_load(&controls->n_failed);
    const bool told = strstr(w.log, "fails as asked") != NULL;
    if (n_failed && !told) fault(s, "compilation", n, "the log says nothing");
    if (!n_failed && strstr(w.log, "error:")) fault(s, "compilation", n, w.log);
    if (s->tier != DEFT_TIER_AUTO && !keep && atomic_load(&controls->n_launches) == 0)
        fault(s, "compilation", n, "nothing that was compiled ran");
    if (s->tier != DEFT_TIER_AUTO && n_failed == 1 && strstr(w.log, "one by one") &&
        stats(&w).interpreted)
        fault(s, "compilation", n, "a refused module took its kernels with it");
    if (n == 1 && keep && !stats(&w).interpreted)
        fault(s, "compilation", n, "nothing was interpreted");
    close_world(&w);
    if (atomic_load(&controls->n_live)) fault(s, "compilation", n, "a kernel was not released");
    n_cases++;
    return n_failed > 0;
}

static void interrupt(void *user)
{
    deft_interrupt(user);
}

/* One run with launch n failing. Returns whether there was one. */
static bool launch_case(const setting *s, const state *want, uint32_t n, bool interrupts,
                        int *n_failed)
{
    world w;
    state before, got;
    const deft_status expected = interrupts ? DEFT_E_INTERRUPTED : DEFT_E_RANGE;
    reset();
    if (!open_world(&w, s, s->tier, NULL) || !fill(&w)) abort();
    controls->fail_launch = n;
    controls->hook = interrupts ? interrupt : NULL;
    controls->user = w.cx;
    for (int i = 0; i < STEPS; i++) {
        get(&w, &before);
        const deft_status st = step(&w, i);
        if (st != DEFT_OK) {
            ++*n_failed;
            if (st != expected) fault(s, "launch", n, deft_status_text(st));
            if (!deft_message(w.cx)[0]) fault(s, "launch", n, "no sentence");
            w.rng = before.rng; /* the caller's to keep */
            get(&w, &got);
            if (memcmp(&got, &before, sizeof got) != 0)
                fault(s, "launch", n, "the step that failed changed something");
            if (step(&w, i) != DEFT_OK) fault(s, "launch", n, "the next step fails too");
        }
        get(&w, &got);
        if (memcmp(&got, &want[i], sizeof got) != 0) fault(s, "launch", n, "the result differs");
    }
    if (!s->max_nodes && stats(&w).donated == 0)
        fault(s, "launch", n, "nothing was overwritten in place: the test has lost its subject");
    close_world(&w);
    n_cases++;
    return atomic_load(&controls->n_launches) >= n; /* counted up to the end */
}

/* One step with allocation n failing while its kernels are compiled. */
static bool memory_case(const setting *s, const state *want, size_t n, bool keep)
{
    world w;
    state before, got;
    fail_mem *mem = fail_mem_create();
    reset();
    if (!open_world(&w, s, s->tier, fail_mem_get(mem)) || !fill(&w)) abort();
    get(&w, &before);
    fail_mem_at(mem, n, keep);
    deft_status st = step(&w, 0);
    const bool hit = fail_mem_count(mem).failed > 0;
    fail_mem_at(mem, 0, false);
    if (st != DEFT_OK) {
        if (st != DEFT_E_MEMORY) fault(s, "allocation", (uint32_t)n, deft_status_text(st));
        w.rng = before.rng;
        get(&w, &got);
        if (memcmp(&got, &before, sizeof got) != 0)
            fault(s, "allocation", (uint32_t)n, "the step that failed changed something");
        st = step(&w, 0);
    }
    if (st != DEFT_OK) fault(s, "allocation", (uint32_t)n, "the next step fails too");
    get(&w, &got);
    if (memcmp(&got, &want[0], sizeof got) != 0)
        fault(s, "allocation", (uint32_t)n, "the result differs");
    close_world(&w);
    if (fail_mem_count(mem).live_blocks) fault(s, "allocation", (uint32_t)n, "memory was lost");
    if (fail_mem_count(mem).faults) fault(s, "allocation", (uint32_t)n, fail_mem_fault(mem));
    fail_mem_destroy(&mem);
    n_cases++;
    return hit;
}

/* The plug-in gives no compiler at all: interpreted, and said so. */
static void refused(const setting *s, const state *want)
{
    world w;
    state got;
    reset();
    controls->refuse = DEFT_E_BACKEND;
    if (!open_world(&w, s, s->tier, NULL) || !fill(&w)) abort();
    if (step(&w, 0) != DEFT_OK) fault(s, "opening", 0, deft_message(w.cx));
    get(&w, &got);
    if (memcmp(&got, want, sizeof got) != 0) fault(s, "opening", 0, "the result differs");
    if (!strstr(deft_runtime_compiler(w.rt), "interpreter: refused as asked"))
        fault(s, "opening", 0, deft_runtime_compiler(w.rt));
    if (!strstr(w.log, "no compiler, kernels are interpreted: refused as asked"))
        fault(s, "opening", 0, "the log says nothing");
    close_world(&w);
}

static void drive(const setting *s)
{
    static const deft_status statuses[] = { DEFT_E_COMPILE, DEFT_E_MEMORY };
    state want[STEPS];
    int n_failed = 0;
    uint32_t n;
    reference(s, want);
    refused(s, want);
    for (int keep = 0; keep < 2; keep++)
        for (int k = 0; k < 2; k++) {
            for (n = 1; n < MOST && compile_case(s, want, n, keep, statuses[k]); n++) continue;
            if (n < 4 || n == MOST) fault(s, "compilation", n, "few or too many compilations");
        }
    if (s->tier == DEFT_TIER_AUTO) return; /* when code is there is not the program's to say */
    for (int kind = s->checks ? 0 : 1; kind < 2; kind++) {
        n_failed = 0;
        for (n = 1; n < MOST && launch_case(s, want, n, kind, &n_failed); n++) continue;
        /* What a cut by a budget cannot compute waits for who asks for it, and is computed then. */
        const bool waits = kind == 0 && s->max_nodes;
        if (n < 4 || n == MOST || (!n_failed && !waits))
            fault(s, "launch", n, "few or too many launches");
        /* After its last check a plan does not ask. */
        if (kind == 0 && n_failed < STEPS && !waits)
            fault(s, "launch", n, "a lookup failed unseen");
    }
    for (int keep = 0; keep < 2; keep++) {
        for (n = 1; n < MOST && memory_case(s, want, n, keep); n++) continue;
        if (n < 20 || n == MOST) fault(s, "allocation", n, "few or too many allocations");
    }
}

int main(int argc, char **argv)
{
    static const setting settings[] = {
        { "quick code", DEFT_TIER_QUICK, false, 0, 0 },
        { "full code", DEFT_TIER_FULL, false, 0, 0 },
        { "full code, rows looked up", DEFT_TIER_FULL, true, 0, 0 },
        { "full code, cuts inside", DEFT_TIER_FULL, false, 70, 0 },
        { "full code, rows looked up, cuts inside", DEFT_TIER_FULL, true, 70, 0 },
        { "code from the background", DEFT_TIER_AUTO, true, 0, 0 },
        { "variants at once", DEFT_TIER_FULL, true, 0, 1 },
        { "variants from the background", DEFT_TIER_AUTO, true, 0, 1 },
    };
    char path[4096];
    if (argc != 2 || setenv("DEFT_PLUGIN_DIR", argv[1], 1)) return 99;
    snprintf(path, sizeof path, "%s/deft-llvm.so", argv[1]);
    void *const so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *const symbol = so ? dlsym(so, PLUGIN_CONTROLS) : NULL;
    if (!symbol) {
        printf("%s\n", dlerror());
        return 99;
    }
    plugin_controls_fn fn;
    memcpy(&fn, &symbol, sizeof fn);
    controls = fn();
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) drive(&settings[i]);
    printf("%ld failures in turn, %ld faults\n", n_cases, n_faults);
    dlclose(so);
    return n_faults ? 1 : 0;
}
