/* SPDX-License-Identifier: Apache-2.0
 *
 * Random programs that call operators and formulas of the program (deft/extend.h, deft/formula.h):
 * in steps whose assignments donate, in loops, branches, deft_vmap, captures, gradients and
 * gradients of gradients, under budgets, in all float dtypes, strict and fast. The oracle is the
 * same program recorded by hand: bodies are called as functions, and a gradient of its own is a
 * deft_custom_grad. All results have equal bits. Where no budget cuts and no batch rule applies,
 * the plans are equal, too.
 *
 *   operator_programs [COUNT [SEED]] [--quick | --full]
 *
 * A program follows from its seed alone. Its values are [rows,4].
 */
#include "../support/budget.h"
#include "../support/operator_functions.h"
#include "../support/oracle.h"
#include "../support/tensor_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))

enum { COLS = 4, MOST_ROWS = 5, N_IN = 3, N_STEPS = 3 };

static oracle_path paths[] = {
    { .name = "reference", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
    { .name = "interp", .tier = DEFT_TIER_INTERPRET, .n_threads = 1 },
    { .name = "fast", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .numerics = DEFT_FAST },
    { .name = "llvm", .tier = DEFT_TIER_FULL, .n_threads = 2 },
};

/* ---- operators ---- */

typedef enum op_kind {
    NORM,
    GATE,
    PAIR,
    BLOCK,
    SHIFT,
    CURVE,
    BLEND,
    N_KINDS,
    PLAIN_PAIR = N_KINDS,
    N_OPS
} op_kind;

/* How a program is recorded: by operators, or by hand. */
typedef struct way {
    deft_ctx *cx;
    deft_op *const *op; /* NULL: by hand */
    /* An operator with a batch rule was called in a deft_vmap: the trace has more views that change
     * nothing. */
    bool may_use_rule;
    int n_maps;   /* that are open */
    int n_shared; /* surroundings that are open in which gradients of rules add in another order */
} way;
static long n_rules;
static way *now; /* the way of the program that is recorded: bodies of operators call operators */

static bool call(op_kind kind, deft_tensor *const *in, double number, deft_tensor **out);

/* A number that a capture may keep, so that a program by hand may be captured. */
static deft_tensor *number_of(double v)
{
    return deft_const_f(now->cx, v);
}

/* x / sqrt(mean of x^2 + number) times gain. */
BODY(norm)
{
    UNUSED;
    deft_tensor *const mean = deft_mean(deft_square(in[0]), DEFT_AXES(-1), true);
    out[0] =
        deft_mul(deft_div(in[0], deft_sqrt(deft_add(mean, number_of(*(double *)user)))), in[1]);
    return DEFT_OK;
}

/* tanh(x) y number, whose gradient pretends that tanh were the identity. */
BODY(gate)
{
    UNUSED;
    out[0] = deft_mul(deft_mul(deft_tanh(in[0]), in[1]), number_of(*(double *)user));
    return DEFT_OK;
}

static deft_status gate_back(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                             deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                             deft_tensor **grad_in, void *user)
{
    deft_tensor *const g = deft_mul(grad_out[0], number_of(*(double *)user));
    (void)cx, (void)n_in, (void)out, (void)n_out;
    grad_in[0] = deft_mul(g, in[1]);
    grad_in[1] = deft_mul(g, deft_tanh(in[0]));
    return DEFT_OK;
}

/* Two results: x + y, and the greater one. */
BODY(pair)
{
    UNUSED;
    out[0] = deft_add(in[0], in[1]);
    out[1] = deft_maximum(in[0], deft_mul(in[1], number_of(*(double *)user)));
    return DEFT_OK;
}

/* A batch rule that records what deft_vmap makes of the body, so that gradients have equal bits. */
static deft_status of_all(deft_ctx *cx, deft_body_fn fn, deft_tensor *const *in,
                          const bool *is_mapped, size_t n_in, deft_tensor **out, size_t n_out,
                          void *user)
{
    int axis[2];
    n_rules++;
    for (int i = 0; i < 2; i++) axis[i] = is_mapped[i] ? 0 : DEFT_NOT_MAPPED;
    return deft_vmap(cx, fn, user, in, axis, n_in, out, NULL, n_out) ? DEFT_OK : DEFT_E_STATE;
}

static deft_status pair_of_all(deft_ctx *cx, int64_t n, deft_tensor *const *in,
                               const bool *is_mapped, size_t n_in, deft_tensor **out, size_t n_out,
                               void *user)
{
    (void)n;
    return of_all(cx, pair, in, is_mapped, n_in, out, n_out, user);
}

/* Operators in an operator. */
BODY(block)
{
    deft_tensor *a, *b[2];
    (void)cx, (void)n_in, (void)n_out;
    if (!call(NORM, in, *(double *)user, &a)) return DEFT_E_STATE;
    if (!call(PAIR, (deft_tensor *const[]){ a, in[1] }, 0.75, b)) return DEFT_E_STATE;
    return call(GATE, b, 1.25, out) ? DEFT_OK : DEFT_E_STATE;
}

/* Both a gradient and a batch rule: x + number, and the gradient of y is that of x. */
BODY(shift)
{
    UNUSED;
    out[0] = deft_add(deft_add(in[0], number_of(*(double *)user)), deft_mul(in[1], number_of(0)));
    return DEFT_OK;
}

static deft_status shift_back(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                              deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                              deft_tensor **grad_in, void *user)
{
    (void)cx, (void)in, (void)n_in, (void)out, (void)n_out, (void)user;
    grad_in[0] = grad_in[1] = grad_out[0];
    return DEFT_OK;
}

static deft_status shift_of_all(deft_ctx *cx, int64_t n, deft_tensor *const *in,
                                const bool *is_mapped, size_t n_in, deft_tensor **out, size_t n_out,
                                void *user)
{
    (void)n;
    return of_all(cx, shift, in, is_mapped, n_in, out, n_out, user);
}

/* Formulas, and the same by hand. */
static const char curve_text[] = "(x, y) { u = x * 0.5; return u > y ? tanh(u) : y - 2 * u; }";

BODY(curve)
{
    UNUSED;
    deft_tensor *const u = deft_mul(in[0], number_of(0.5)), *const is_more = deft_gt(u, in[1]);
    deft_tensor *const yes = deft_tanh(u);
    out[0] = deft_where(is_more, yes, deft_sub(in[1], deft_mul(u, number_of(2))));
    return DEFT_OK;
}

static const char blend_text[] = "(x, y) { return sigmoid(x) * y; }";
static const char blend_slopes[] = "(x, y, z) { s = sigmoid(x); return z * (1 - s), s; }";

BODY(blend)
{
    UNUSED;
    out[0] = deft_mul(deft_sigmoid(in[0]), in[1]);
    return DEFT_OK;
}

static deft_status blend_back(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                              deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                              deft_tensor **grad_in, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    deft_tensor *const s = deft_sigmoid(in[0]);
    deft_tensor *const slope = deft_mul(out[0], deft_sub(number_of(1), s));
    grad_in[0] = deft_mul(grad_out[0], slope);
    grad_in[1] = deft_mul(grad_out[0], s);
    return DEFT_OK;
}

static const deft_formula_def formulas[N_OPS] = {
    [CURVE] = { .name = "test.curve", .text = curve_text },
    [BLEND] = { .name = "test.blend", .text = blend_text, .derivative = blend_slopes },
};

static const deft_op_def defs[N_OPS] = {
    [NORM] = { .name = "test.norm", .n_out = 1, .body = norm },
    [GATE] = { .name = "test.gate", .n_out = 1, .body = gate, .grad = gate_back },
    [PAIR] = { .name = "test.pair", .n_out = 2, .body = pair, .batch = pair_of_all },
    [BLOCK] = { .name = "test.block", .n_out = 1, .body = block },
    [SHIFT] = { .name = "test.shift",
                .n_out = 1,
                .body = shift,
                .grad = shift_back,
                .batch = shift_of_all },
    [CURVE] = { .name = "test.curve", .n_out = 1, .body = curve },
    [BLEND] = { .name = "test.blend", .n_out = 1, .body = blend, .grad = blend_back },
    [PLAIN_PAIR] = { .name = "test.plain_pair", .n_out = 2, .body = pair },
};

/* What an operator does, by hand. The number of a gradient outlives the call. */
static bool by_hand(op_kind kind, deft_tensor *const *in, double number, deft_tensor **out)
{
    static double numbers[1 << 16];
    static unsigned n;
    double *const user = &numbers[n++ % LEN(numbers)];
    deft_tensor *made[2] = { NULL, NULL };
    const deft_op_def *const d = &defs[kind];
    *user = number;
    if (d->grad) return deft_custom_grad(now->cx, d->body, d->grad, user, in, 2, out, d->n_out);
    if (d->body(now->cx, in, 2, made, d->n_out, user) != DEFT_OK) return false;
    memcpy(out, made, d->n_out * sizeof *out);
    return true;
}

static bool call(op_kind kind, deft_tensor *const *in, double number, deft_tensor **out)
{
    if (now->n_maps && defs[kind].batch) now->may_use_rule = true;
    if (!now->op) return by_hand(kind, in, number, out);
    /* A gradient within the function of a deft_vmap follows from the body, and the value from the
     * rule. A gradient of both adds in another order than where they share records. So does that
     * of a tensor that is the same for all examples, since the rule records later than the body. */
    if (kind == PAIR && now->n_shared) kind = PLAIN_PAIR;
    const void *const attributes = formulas[kind].text ? NULL : &number;
    return deft_op_call(now->cx, now->op[kind], in, 2, attributes, out, defs[kind].n_out);
}

/* ---- programs ---- */

static long n_calls[N_KINDS], n_kinds_of_step[8];

/* A value from x and y by some operators and operations. */
static deft_tensor *grown(uint64_t *seed, deft_tensor *x, deft_tensor *y, unsigned n)
{
    for (unsigned i = 0; i < n && x; i++) {
        deft_tensor *out[2] = { NULL, NULL };
        const op_kind kind = (op_kind)pick(seed, N_KINDS + 3);
        const double number = 0.25 + 0.25 * pick(seed, 4);
        if (kind < N_KINDS) {
            n_calls[kind]++;
            if (!call(kind, (deft_tensor *const[]){ x, y }, number, out)) return NULL;
            x = out[kind == PAIR && pick(seed, 2)];
        } else if (kind == N_KINDS) {
            x = deft_sub(x, deft_mul(y, number_of(number)));
        } else if (kind == N_KINDS + 1) {
            x = deft_sin(x);
        } else {
            x = deft_add(deft_flip(x, DEFT_AXES(-1)), y);
        }
        if (pick(seed, 4) == 0) {
            deft_tensor *const t = x;
            x = y;
            y = t;
        }
    }
    return x;
}

/* The function of a loop, a branch, a vmap or a capture: its seed is its user. */
BODY(body_of_seed)
{
    uint64_t seed = *(uint64_t *)user;
    (void)cx, (void)n_in, (void)n_out;
    out[0] = grown(&seed, in[0], in[1], 1 + (unsigned)(seed % 3));
    return out[0] ? DEFT_OK : DEFT_E_STATE;
}

/* The gradient of the sum of what body_of_seed gives. */
BODY(gradient_of_seed)
{
    deft_tensor *y = NULL;
    const deft_grad_options zero = { .size = sizeof zero, .unused_is_zero = true };
    now->n_shared++;
    const deft_status st = body_of_seed(cx, in, n_in, &y, n_out, user);
    now->n_shared--;
    if (st != DEFT_OK) return st;
    deft_tensor *const sum = deft_sum(y, DEFT_ALL_AXES, false);
    return deft_grad(&sum, NULL, 1, in, 1, &zero, out) ? DEFT_OK : DEFT_E_STATE;
}

/* One more value of the program. */
static deft_tensor *surrounded(uint64_t *seed, deft_tensor *x, deft_tensor *y)
{
    deft_tensor *out = NULL, *const in[] = { x, y };
    uint64_t inner = oracle_next(seed);
    const deft_body_fn fn = pick(seed, 3) ? body_of_seed : gradient_of_seed;
    const unsigned which = pick(seed, 5);
    n_kinds_of_step[which]++;
    switch (which) {
    case 0:
    case 1: {
        deft_tensor *const one = which ? deft_slice(y, DEFT_AT(0)) : y;
        now->n_maps++;
        now->n_shared += which;
        const bool ok =
            deft_vmap(now->cx, fn, &inner, (deft_tensor *const[]){ x, one },
                      (const int[]){ 0, which ? DEFT_NOT_MAPPED : 0 }, 2, &out, NULL, 1);
        now->n_shared -= which;
        now->n_maps--;
        return ok ? out : NULL;
    }
    case 2: { /* the state is a row */
        deft_tensor *const row = deft_slice(x, DEFT_AT(0));
        if (!deft_scan(now->cx, body_of_seed, &inner, &row, 1, &y, 1, deft_shape_get(y).dim[0], 0,
                       &out))
            return NULL;
        return deft_add(x, out);
    }
    case 3: {
        deft_tensor *const yes =
            deft_gt(deft_sum(x, DEFT_ALL_AXES, false), deft_sum(y, DEFT_ALL_AXES, false));
        uint64_t *const user = &inner;
        return deft_cond(yes, body_of_seed, gradient_of_seed, user, in, 2, &out, 1) ? out : NULL;
    }
    default: return grown(seed, x, y, 3);
    }
}

/* What a program has: tensors that it assigns to, and a captured function. */
typedef struct run {
    deft_tensor *state[N_IN];
    deft_capture *capture;
    uint64_t capture_seed;
    char error[512], plan[1 << 16];
} run;

static const deft_dtype dtypes[] = { DEFT_F32, DEFT_F64, DEFT_F16, DEFT_BF16 };

static void begin_run(run *r, uint64_t seed, int64_t rows, deft_dtype t)
{
    double data[MOST_ROWS * COLS];
    r->error[0] = r->plan[0] = '\0';
    for (int i = 0; i < N_IN; i++) {
        oracle_fill(t, data, (size_t)(rows * COLS), oracle_mix(seed, (uint64_t)i), ORACLE_TAME);
        r->state[i] = deft_keep(deft_from(now->cx, DEFT_SHAPE(rows, COLS), t, data,
                                          (size_t)(rows * COLS) * deft_dtype_size(t)));
    }
    r->capture_seed = oracle_mix(seed, 9);
    r->capture = deft_capture_create(now->cx, body_of_seed, &r->capture_seed);
}

/* A step: some values, their gradients, and an assignment to each state. */
static deft_status run_step(run *r, uint64_t *seed)
{
    const deft_grad_options zero = { .size = sizeof zero, .unused_is_zero = true };
    const deft_scope step = deft_step_begin(now->cx);
    deft_tensor *x[N_IN], *g[N_IN], *h[N_IN];
    memcpy(x, r->state, sizeof x);
    deft_tensor *y = x[0];
    for (unsigned i = 0, n = 1 + pick(seed, 3); i < n && y; i++)
        y = surrounded(seed, y, x[1 + pick(seed, N_IN - 1)]);
    deft_tensor *const loss = y ? deft_sum(y, DEFT_ALL_AXES, false) : NULL;
    const bool twice = pick(seed, 3) == 0;
    bool ok = loss && deft_grad(&loss, NULL, 1, x, N_IN, &zero, g);
    if (ok && twice) {
        deft_tensor *const slope = deft_sum(deft_mul(g[0], x[1]), DEFT_ALL_AXES, false);
        ok = deft_grad(&slope, NULL, 1, x, N_IN, &zero, h);
    }
    for (int i = 0; i < N_IN && ok; i++) {
        deft_tensor *const change = twice ? deft_add(g[i], h[i]) : g[i];
        deft_assign(r->state[i], deft_tanh(deft_sub(r->state[i], deft_mul(change, 0.125))));
    }
    return deft_step_end(step);
}

/* Runs the program of the seed. The states are what it computes. */
static void run_program(run *r, uint64_t seed, int64_t rows, deft_dtype t)
{
    begin_run(r, seed, rows, t);
    deft_status st = DEFT_OK;
    for (int i = 0; i < N_STEPS && st == DEFT_OK; i++) {
        uint64_t same = oracle_mix(seed, 100 + (uint64_t)(i == 2)); /* the first step twice */
        st = run_step(r, &same);
        if (i == 0) (void)deft_show(now->cx, "plan", r->plan, sizeof r->plan);
        deft_tensor *y;
        const deft_scope s = deft_scope_begin(now->cx);
        if (st == DEFT_OK) st = deft_capture_call(r->capture, r->state, 2, &y, 1);
        if (st == DEFT_OK && !deft_assign(r->state[2], y)) st = deft_error(now->cx);
        const deft_status end = deft_scope_end(s);
        if (st == DEFT_OK) st = end;
    }
    if (st != DEFT_OK) snprintf(r->error, sizeof r->error, "%s", deft_message(now->cx));
    deft_clear(now->cx);
}

static void end_run(run *r)
{
    deft_capture_destroy(&r->capture);
    for (int i = 0; i < N_IN; i++) deft_drop(&r->state[i]);
}

/* ---- comparing ---- */

static long n_failed, n_plans;

static void compare_states(uint64_t seed, const char *path, const run *got, const run *want,
                           int64_t rows, deft_dtype t)
{
    const size_t bytes = (size_t)(rows * COLS) * deft_dtype_size(t);
    for (int i = 0; i < N_IN; i++) {
        double a[MOST_ROWS * COLS], b[MOST_ROWS * COLS];
        const size_t n = (size_t)(rows * COLS);
        if ((deft_read)(got->state[i], t, a, bytes) == DEFT_OK &&
            (deft_read)(want->state[i], t, b, bytes) == DEFT_OK &&
            oracle_difference(t, a, b, n) == n)
            continue;
        printf("seed %llu: %s: state %d of %s has other bits than by hand\n",
               (unsigned long long)seed, path, i, deft_dtype_name(t));
        n_failed++;
        return;
    }
}

static void check_program(uint64_t seed, const oracle_path *p)
{
    static const int64_t extents[] = { 1, 3, MOST_ROWS };
    const int64_t rows = extents[seed % LEN(extents)];
    const deft_dtype t = dtypes[oracle_mix(seed, 5) % LEN(dtypes)];
    /* In fast mode, what shares a kernel decides how halves are rounded. */
    const bool is_fast = p->numerics == DEFT_FAST;
    const bool has_budget = !is_fast && oracle_mix(seed, 6) % 3 == 0;
    const deft_ctx_options o = { .size = sizeof o, .max_nodes = has_budget ? 48 : 0 };
    static run hand, op;
    deft_op *ops[N_OPS];
    way by_op = { .cx = oracle_context(p, &o), .op = ops };
    way plain = { .cx = oracle_context(p, &o) };
    for (int k = 0; k < N_OPS; k++) {
        deft_op_def d = defs[k];
        deft_formula_def f = formulas[k];
        char why[256];
        d.size = sizeof d;
        f.size = sizeof f;
        d.version = f.version = 1;
        d.n_in = 2;
        d.attribute_bytes = sizeof(double);
        const deft_status st = f.text ? deft_formula_define(p->rt, &f, &ops[k], why, sizeof why)
                                      : deft_op_define(p->rt, &d, &ops[k], why, sizeof why);
        if (st != DEFT_OK) {
            printf("%s\n", why);
            exit(1);
        }
    }
    now = &plain;
    run_program(&hand, seed, rows, t);
    now = &by_op;
    run_program(&op, seed, rows, t);
    if (op.error[0] || hand.error[0]) {
        printf("seed %llu: %s: by operators: %s; by hand: %s\n", (unsigned long long)seed, p->name,
               op.error, hand.error);
        n_failed++;
    } else {
        if (!is_fast || !by_op.may_use_rule) compare_states(seed, p->name, &op, &hand, rows, t);
        if (!has_budget && !by_op.may_use_rule) {
            n_plans++;
            if (strcmp(op.plan, hand.plan)) {
                printf("seed %llu: %s: another plan than by hand\n%s\n%s\n",
                       (unsigned long long)seed, p->name, op.plan, hand.plan);
                n_failed++;
            }
        }
    }
    end_run(&op);
    now = &plain;
    end_run(&hand);
    deft_ctx_destroy(&by_op.cx);
    deft_ctx_destroy(&plain.cx);
}

int main(int argc, char **argv)
{
    oracle_asked asked = { .count = 400, .seed = 1, .quick = 60, .full = 20000 };
    for (int i = 1; i < argc; i++)
        if (!oracle_takes(&asked, argv[i])) {
            fprintf(stderr, "operator_programs [COUNT [SEED]] [--quick | --full]\n");
            return 2;
        }
    const size_t n_paths = oracle_open(paths, LEN(paths));
    uint64_t i = 0;
    for (; i < asked.count && (i < oracle_least(24) || test_time_left(1)); i++) {
        const uint64_t seed = asked.seed + i;
        const oracle_path *const p = &paths[i % n_paths];
        if (p->tier == DEFT_TIER_FULL && i % 8 >= 4) continue; /* compiling is what takes time */
        check_program(seed, p);
    }
    for (int k = 0; k < N_KINDS; k++)
        if (!n_calls[k]) printf("no call of %s\n", defs[k].name), n_failed++;
    for (int k = 0; k < 5; k++)
        if (!n_kinds_of_step[k]) printf("nothing of kind %d was recorded\n", k), n_failed++;
    if (!n_rules) printf("no batch rule was used\n"), n_failed++;
    if (!n_plans) printf("no plans were compared\n"), n_failed++;
    printf("%llu programs, %ld plans, %ld failures\n", (unsigned long long)i, n_plans, n_failed);
    oracle_close(paths, n_paths);
    return n_failed != 0;
}
