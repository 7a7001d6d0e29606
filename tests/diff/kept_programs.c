/* SPDX-License-Identifier: Apache-2.0
 *
 * Training steps under bounds on temporaries (deft_step_options.max_temporary_bytes): layers with
 * and without dropout, transformer blocks, a loop, and random networks. Each is run without a bound
 * and then under ten, falling ones, each in a runtime of its own. Held are:
 *
 *   equal bits    of parameters and losses, whatever is computed again
 *   bound         what the plan says, and what the allocator counts, is no more
 *   monotone      a lower bound never takes more, and does no less again
 *   refusal       says so before anything ran; then all lower bounds are refused, too, and the step
 *                 runs without one as if nothing had been
 *   cache         one plan for one bound
 *
 *   kept_programs [COUNT [SEED]] [--quick | --full]
 */
#include "../support/oracle.h"
#include "../support/plan_rules.h"
#include "../support/budget.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PARAMS = 64, STEPS = 2, BOUNDS = 10 };

typedef struct net net;
typedef deft_tensor *(*loss_fn)(net *n, deft_tensor *x);

struct net {
    const char *name;
    loss_fn loss;
    int64_t rows, width, layers;
    bool decays; /* parameters are assigned in place as soon as all have read them */
    uint64_t seed;
    deft_ctx *cx;
    deft_rng rng;
    deft_tensor *p[MAX_PARAMS];
    int64_t size[MAX_PARAMS][2];
    uint32_t n_params;
    deft_tensor *result;
};

typedef struct outcome {
    deft_status st;
    deft_step_memory memory;
    uint64_t measured; /* beside what lived before the step */
    uint64_t plans;
    float *bits;
    size_t n;
} outcome;

static int failures;
static int64_t n_runs, n_refused, n_repeated;

static void hold(bool right, const net *n, const char *what, uint64_t is, uint64_t limit)
{
    if (right) return;
    printf("FAIL: %s (seed %llu): %s: %llu, %llu\n", n->name, (unsigned long long)n->seed, what,
           (unsigned long long)is, (unsigned long long)limit);
    failures++;
}

static void need(const net *n, deft_status st)
{
    if (st == DEFT_OK) return;
    printf("FAIL: %s: %s: %s\n", n->name, deft_status_text(st), deft_message(n->cx));
    exit(1);
}

/* ---- networks ---- */

static void add_param(net *n, int64_t rows, int64_t columns)
{
    n->size[n->n_params][0] = rows;
    n->size[n->n_params++][1] = columns;
}

/* A number that may stand in a captured function. */
static deft_tensor *number(const net *n, double value)
{
    return deft_const_f(n->cx, value);
}

static deft_tensor *dropped(net *n, deft_tensor *t)
{
    const deft_shape shape = DEFT_SHAPE(deft_dim(t, 0), deft_dim(t, 1));
    deft_tensor *const u = deft_uniform(n->cx, &n->rng, shape, DEFT_F32, 0, 1);
    return deft_where(deft_lt(u, number(n, 0.9)), deft_div(t, number(n, 0.9)), number(n, 0));
}

static deft_tensor *mean_square(deft_tensor *t)
{
    return deft_mean(deft_square(t), DEFT_ALL_AXES, 0);
}

static deft_tensor *activated(deft_tensor *t, uint64_t which)
{
    switch (which % 5) {
    case 0: return deft_gelu(t);
    case 1: return deft_tanh(t);
    case 2: return deft_relu(t);
    case 3: return deft_sigmoid(t);
    default: return deft_softmax(t, 1);
    }
}

static deft_tensor *mlp_loss(net *n, deft_tensor *x)
{
    for (int64_t i = 0; i < n->layers; i++) {
        deft_tensor *const y = deft_add(deft_matmul(x, n->p[2 * i]), n->p[2 * i + 1]);
        x = dropped(n, activated(y, (uint64_t)i));
    }
    return mean_square(x);
}

static deft_tensor *normed(deft_tensor *t)
{
    return deft_layer_norm(t, 1, NULL, NULL, 1e-5);
}

static deft_tensor *block_loss(net *n, deft_tensor *x)
{
    for (int64_t i = 0; i < n->layers; i++) {
        deft_tensor *const *const p = n->p + 6 * i;
        deft_tensor *const h = normed(x);
        deft_tensor *const q = deft_matmul(h, p[0]), *const k = deft_matmul(h, p[1]);
        deft_tensor *const v = deft_matmul(h, p[2]);
        deft_tensor *const a = dropped(n, deft_softmax(deft_matmul(q, deft_t(k)), 1));
        x = deft_add(x, deft_matmul(deft_matmul(a, v), p[3]));
        x = deft_add(x, deft_matmul(deft_gelu(deft_matmul(normed(x), p[4])), p[5]));
    }
    return mean_square(x);
}

static deft_status cell(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *user)
{
    const net *const n = user;
    (void)cx;
    (void)n_in;
    (void)n_out;
    deft_tensor *const h = deft_tanh(deft_add(deft_matmul(in[0], n->p[0]), in[1]));
    out[0] = deft_mul(deft_gelu(deft_matmul(h, n->p[1])), deft_softmax(h, 1));
    return DEFT_OK;
}

static deft_tensor *loop_loss(net *n, deft_tensor *x)
{
    deft_tensor *const init = deft_tanh(deft_matmul(x, n->p[2]));
    const deft_shape each = DEFT_SHAPE(n->layers, 1, 1);
    deft_tensor *const ranks = deft_reshape(deft_iota(n->cx, DEFT_SHAPE(n->layers), 0), each);
    deft_tensor *const rows = deft_mul(deft_unsqueeze(x, 0), deft_add(ranks, number(n, 1)));
    deft_tensor *end = NULL;
    if (!deft_scan(n->cx, cell, n, &init, 1, &rows, 1, n->layers, 0, &end)) return NULL;
    deft_tensor *t = end;
    for (int i = 0; i < 24; i++) t = deft_gelu(deft_matmul(t, n->p[i % 3]));
    return mean_square(t);
}

/* Values of [rows, width], and what a die says of earlier ones. */
static deft_tensor *random_loss(net *n, deft_tensor *x)
{
    deft_tensor *t[32];
    uint64_t die = n->seed;
    const int64_t count = 6 + (int64_t)(n->seed % 20);
    t[0] = x;
    for (int64_t i = 1; i <= count; i++) {
        deft_tensor *const a = t[oracle_next(&die) % (uint64_t)i];
        deft_tensor *const b = t[(uint64_t)(i - 1) - oracle_next(&die) % (uint64_t)(i < 3 ? i : 3)];
        deft_tensor *const w = n->p[oracle_next(&die) % n->n_params];
        switch (oracle_next(&die) % 9) {
        case 0: t[i] = deft_matmul(a, w); break;
        case 1: t[i] = deft_add(a, deft_matmul(b, w)); break;
        case 2: t[i] = dropped(n, activated(b, oracle_next(&die))); break;
        case 3: t[i] = deft_mul(a, deft_sigmoid(b)); break;
        case 4: t[i] = normed(deft_add(a, b)); break;
        case 5: t[i] = activated(deft_matmul(b, w), oracle_next(&die)); break;
        case 6: t[i] = deft_div(deft_cumsum(b, 0), (double)n->rows); break;
        case 7: t[i] = deft_sub(a, deft_mean(b, DEFT_AXES(1), 1)); break;
        default: t[i] = deft_matmul(deft_softmax(deft_matmul(a, deft_t(b)), 1), b); break;
        }
    }
    return mean_square(deft_add(t[count], t[count - 1]));
}

/* ---- one training ---- */

static void make_params(net *n)
{
    const int64_t w = n->width;
    n->n_params = 0;
    for (int64_t i = 0; n->loss == mlp_loss && i < n->layers; i++) {
        add_param(n, w, w);
        add_param(n, 1, w);
    }
    for (int64_t i = 0; n->loss == block_loss && i < n->layers; i++) {
        for (int k = 0; k < 4; k++) add_param(n, w, w);
        add_param(n, w, 4 * w);
        add_param(n, 4 * w, w);
    }
    while (n->n_params < 3) add_param(n, w, w);
}

static deft_tensor *filled(const net *n, int64_t rows, int64_t columns, uint64_t seed)
{
    const size_t count = (size_t)(rows * columns);
    float *const data = oracle_alloc(count * sizeof *data);
    oracle_fill(DEFT_F32, data, count, seed, ORACLE_TAME);
    for (size_t i = 0; i < count; i++) data[i] *= 0.1f;
    deft_tensor *const t = deft_keep(
        deft_from(n->cx, DEFT_SHAPE(rows, columns), DEFT_F32, data, count * sizeof *data));
    need(n, deft_eval((deft_tensor *[]){ t }, 1));
    free(data);
    return t;
}

/* What a step of training records. */
static void record(net *n, deft_tensor *x)
{
    const deft_grad_options options = { .size = sizeof options, .unused_is_zero = true };
    deft_tensor *grad[MAX_PARAMS] = { 0 };
    deft_tensor *loss = n->loss(n, x);
    deft_grad(&loss, NULL, 1, n->p, n->n_params, &options, grad);
    for (uint32_t i = 0; i < n->n_params; i++)
        if (n->decays)
            deft_assign(deft_slice(n->p[i], DEFT_AT(0)), number(n, 0.01));
        else
            deft_assign(n->p[i], deft_sub(n->p[i], deft_mul(grad[i], number(n, 0.05))));
    for (uint32_t i = 0; i < n->n_params && n->decays; i++)
        loss = deft_add(loss, mean_square(grad[i]));
    deft_assign(n->result, loss);
}

/* One step; what it takes is foreseen first, with the same status. */
static deft_status train(net *n, uint64_t bound, deft_tensor *x, deft_step_memory *memory)
{
    const deft_step_options options = { .size = sizeof options, .max_temporary_bytes = bound };
    const uint64_t next = n->rng.next;
    const deft_scope s = deft_step_begin_with(n->cx, &options);
    record(n, x);
    const deft_status seen = deft_step_memory_read(s, memory, sizeof *memory);
    const deft_status st = deft_step_end(s);
    if (seen != st) hold(false, n, deft_message(n->cx), (uint64_t)seen, (uint64_t)st);
    if (st != DEFT_OK) n->rng.next = next;
    return st;
}

static uint64_t live_bytes(const net *n, uint64_t *peak, uint64_t *plans)
{
    deft_stats s;
    deft_stats_read(n->cx, &s, sizeof s);
    hold(s.cuts_unfused == 0, n, "no sound plan was found", s.cuts_unfused, 0);
    *peak = s.peak_bytes;
    *plans = s.plans_built;
    return s.live_bytes;
}

static void read_all(const net *n, outcome *o)
{
    o->n = 1;
    for (uint32_t i = 0; i < n->n_params; i++) o->n += (size_t)(n->size[i][0] * n->size[i][1]);
    o->bits = oracle_alloc(o->n * sizeof *o->bits);
    float *at = o->bits;
    for (uint32_t i = 0; i < n->n_params; i++) {
        const size_t count = (size_t)(n->size[i][0] * n->size[i][1]);
        need(n, deft_read(n->p[i], DEFT_F32, at, count * sizeof *at));
        at += count;
    }
    need(n, deft_item_f32(n->result, at));
}

/* Makes a runtime, a context and all that training needs; *n must stay where it is. Returns x. */
static deft_tensor *open_net(net *n, deft_tier tier, uint64_t bound, deft_runtime **rt)
{
    const deft_runtime_options options = { .size = sizeof options, .n_threads = 2, .tier = tier };
    const deft_ctx_options of_context = { .size = sizeof of_context, .max_temporary_bytes = bound };
    if (deft_runtime_create(&options, rt) != DEFT_OK) exit(2);
    if (deft_ctx_create(*rt, &of_context, &n->cx) != DEFT_OK) exit(2);
    if (n->seed % 2) plan_rules_save_all(*rt);
    make_params(n);
    for (uint32_t i = 0; i < n->n_params; i++)
        n->p[i] = filled(n, n->size[i][0], n->size[i][1], oracle_mix(n->seed, i));
    n->result = deft_keep(deft_zeros(n->cx, DEFT_SHAPE(), DEFT_F32));
    need(n, deft_eval(&n->result, 1));
    return filled(n, n->rows, n->width, oracle_mix(n->seed, 1000));
}

static void close_net(net *n, deft_runtime **rt)
{
    deft_ctx_destroy(&n->cx);
    deft_runtime_destroy(rt);
}

static outcome run(net n, uint64_t bound, deft_tier tier)
{
    outcome o = { 0 };
    deft_runtime *rt = NULL;
    uint64_t peak, plans;
    deft_tensor *const x = open_net(&n, tier, 0, &rt);
    const uint64_t before = live_bytes(&n, &peak, &plans);
    n_runs++;
    o.plans = plans;
    o.st = train(&n, bound, x, &o.memory);
    if (o.st == DEFT_OK) {
        live_bytes(&n, &peak, &plans);
        o.measured = peak - before;
        o.plans = plans - o.plans;
        hold(o.plans == 1, &n, "plans of a step that was foreseen", o.plans, 1);
    } else {
        n_refused++;
        hold(o.st == DEFT_E_MEMORY, &n, deft_message(n.cx), (uint64_t)o.st, DEFT_E_MEMORY);
        hold(strstr(deft_message(n.cx), "temporaries") != NULL, &n, deft_message(n.cx), 0, bound);
        hold(live_bytes(&n, &peak, &plans) == before, &n, "live after a refusal", peak, before);
        need(&n, train(&n, 0, x, &o.memory));
    }
    for (int i = 1; i < STEPS; i++) {
        const uint64_t was = (live_bytes(&n, &peak, &plans), plans);
        need(&n, train(&n, o.st == DEFT_OK ? bound : 0, x, &o.memory));
        live_bytes(&n, &peak, &plans);
        hold(plans == was, &n, "plans of an equal step", plans, was);
    }
    read_all(&n, &o);
    close_net(&n, &rt);
    return o;
}

/* ---- all bounds ---- */

static bool equal_bits(const outcome *a, const outcome *b)
{
    return a->n == b->n && oracle_difference(DEFT_F32, a->bits, b->bits, a->n) == a->n;
}

static void check(const net *n, deft_tier tier)
{
    const outcome want = run(*n, 0, tier);
    outcome last = want;
    last.bits = NULL;
    need(n, want.st);
    hold(want.memory.repeated == 0, n, "repeated without a bound", want.memory.repeated, 0);
    const uint64_t peak = want.memory.temporary_bytes;
    hold(want.measured <= peak + want.memory.result_bytes, n, "measured without a bound",
         want.measured, peak);
    for (uint64_t i = 0; i < BOUNDS; i++) {
        const uint64_t bound = peak * (BOUNDS - i) / BOUNDS;
        outcome o = run(*n, bound, tier);
        hold(equal_bits(&want, &o), n, "other bits under the bound", bound, peak);
        if (last.st != DEFT_OK) {
            hold(o.st == last.st, n, "a lower bound than a refused one is met", bound, peak);
        } else if (o.st == DEFT_OK) {
            hold(o.memory.temporary_bytes <= bound, n, "over the bound", o.memory.temporary_bytes,
                 bound);
            hold(o.measured + peak <= want.measured + bound, n, "measured over the bound",
                 o.measured, bound);
            hold(o.memory.temporary_bytes <= last.memory.temporary_bytes, n,
                 "a lower bound takes more", o.memory.temporary_bytes, last.memory.temporary_bytes);
            hold(o.memory.repeated >= last.memory.repeated, n, "a lower bound repeats less",
                 o.memory.repeated, last.memory.repeated);
            n_repeated += (int64_t)o.memory.repeated;
        }
        hold(i > 0 || (o.st == DEFT_OK && o.memory.repeated == 0), n, "the peak itself as a bound",
             o.memory.repeated, 0);
        last = o;
        free(o.bits);
    }
    free(want.bits);
}

/* ---- one context, several bounds and sizes; captures ---- */

/* The lowest of the bounds that can be met. */
static uint64_t low_bound(const net *n, uint64_t *peak)
{
    outcome o = run(*n, 0, DEFT_TIER_INTERPRET);
    uint64_t low = *peak = o.memory.temporary_bytes;
    free(o.bits);
    for (uint64_t i = 1; i < BOUNDS; i++) {
        o = run(*n, *peak * (BOUNDS - i) / BOUNDS, DEFT_TIER_INTERPRET);
        free(o.bits);
        if (o.st != DEFT_OK) break;
        low = *peak * (BOUNDS - i) / BOUNDS;
    }
    return low;
}

static void check_plans(net n, uint64_t low, uint64_t peak)
{
    const uint64_t bounds[] = { 0, low, peak * 2, 0, low, peak * 2 };
    deft_runtime *rt = NULL;
    deft_tensor *const x = open_net(&n, DEFT_TIER_INTERPRET, 0, &rt);
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        deft_step_memory m = { 0 };
        uint64_t top, before, after;
        live_bytes(&n, &top, &before);
        need(&n, train(&n, bounds[i], x, &m));
        live_bytes(&n, &top, &after);
        hold(after - before == (i < 3), &n, "plans for a bound", after - before, i);
        hold(bounds[i] == low ? m.repeated > 0 : m.repeated == 0, &n, "repeated", m.repeated, i);
    }
    close_net(&n, &rt);
}

/* A plan for few rows must not serve more of them over the bound, nor one for many do again what
 * fewer need not. */
static void check_sizes(net n, uint64_t low)
{
    deft_runtime *rt = NULL;
    const int64_t rows = n.rows;
    (void)open_net(&n, DEFT_TIER_INTERPRET, 0, &rt);
    for (int i = 0; i < 4; i++) {
        deft_step_memory m = { 0 };
        n.rows = i % 2 ? rows : rows / 4;
        need(&n, train(&n, low, filled(&n, n.rows, n.width, 5), &m));
        hold(m.temporary_bytes <= low, &n, "over the bound at another size", m.temporary_bytes,
             low);
        hold((m.repeated > 0) == (i % 2 == 1), &n, "repeated at another size", m.repeated, 0);
    }
    close_net(&n, &rt);
}

static deft_status captured(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    net *const n = user;
    (void)cx;
    (void)n_in;
    (void)n_out;
    record(n, in[0]);
    out[0] = deft_neg(n->result);
    return DEFT_OK;
}

static void check_capture(net n, uint64_t low)
{
    outcome o = { 0 }, want = run(n, 0, DEFT_TIER_INTERPRET);
    deft_runtime *rt = NULL;
    deft_capture_stats s;
    deft_tensor *const x = open_net(&n, DEFT_TIER_INTERPRET, low, &rt);
    deft_capture *c = deft_capture_create(n.cx, captured, &n);
    uint64_t peak, plans;
    const uint64_t before = live_bytes(&n, &peak, &plans);
    for (int i = 0; i < STEPS; i++) {
        deft_tensor *out = NULL;
        need(&n, deft_capture_call(c, &x, 1, &out, 1));
    }
    live_bytes(&n, &peak, &plans);
    deft_capture_stats_read(c, &s, sizeof s);
    hold(s.replayed == STEPS - 1, &n, deft_capture_reason(c), s.replayed, STEPS - 1);
    hold(peak - before + want.memory.temporary_bytes < want.measured + low + 4096, &n,
         "a capture over the bound", peak - before, low);
    read_all(&n, &o);
    hold(equal_bits(&want, &o), &n, "other bits in a capture", 0, 0);
    free(o.bits);
    free(want.bits);
    deft_capture_destroy(&c);
    close_net(&n, &rt);
}

int main(int argc, char **argv)
{
    net fixed[] = {
        { .name = "12 layers", .loss = mlp_loss, .rows = 48, .width = 32, .layers = 12 },
        { .name = "decay",
          .loss = mlp_loss,
          .rows = 64,
          .width = 32,
          .layers = 10,
          .decays = true },
        { .name = "blocks", .loss = block_loss, .rows = 40, .width = 16, .layers = 3 },
        { .name = "loop", .loss = loop_loss, .rows = 24, .width = 16, .layers = 5 },
    };
    uint64_t count = 60, seed = 1;
    bool is_brief = false; /* what compiles, and half of the rest, is left to other runs */
    int n_given = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick"))
            count = 3, is_brief = test_is_limited();
        else if (!strcmp(argv[i], "--full"))
            count = 2000;
        else
            *(n_given++ ? &seed : &count) = strtoull(argv[i], NULL, 10);
    }
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        check(&fixed[i], DEFT_TIER_INTERPRET);
        hold(n_repeated > 0, &fixed[i], "nothing was computed again", 0, 0);
        if (i % 2 && is_brief) continue;
        uint64_t peak;
        const uint64_t low = low_bound(&fixed[i], &peak);
        check_plans(fixed[i], low, peak);
        check_sizes(fixed[i], low);
        check_capture(fixed[i], low);
    }
    if (!is_brief) check(&fixed[0], DEFT_TIER_FULL);
    for (uint64_t i = 0; i < count && (i < 20 || test_time_left(1)); i++) {
        const net n = { .name = "random",
                        .loss = random_loss,
                        .rows = 8 + (int64_t)(oracle_mix(seed, i) % 40),
                        .width = 4 + (int64_t)(oracle_mix(seed, i + 7) % 30),
                        .seed = seed + i };
        check(&n, DEFT_TIER_INTERPRET);
    }
    printf("%lld runs, %lld refused, %lld done again; %d failures\n", (long long)n_runs,
           (long long)n_refused, (long long)n_repeated, failures);
    return failures != 0;
}
