/* SPDX-License-Identifier: Apache-2.0
 *
 * Random programs that call opaque operators (deft/opaque.h): in steps whose assignments donate,
 * submitted steps, loops, branches, deft_vmap, captures, gradients and gradients of gradients,
 * under budgets, with calls that fail. The oracle is the same program with operators that have a
 * body which computes the same. All states have equal bits.
 *
 *   opaque_programs [COUNT [SEED]] [--quick | --full]
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

enum { COLS = 4, MOST_ROWS = 5, N_IN = 3, N_STEPS = 4 };

static oracle_path paths[] = {
    { .name = "reference", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
    { .name = "interp", .tier = DEFT_TIER_INTERPRET, .n_threads = 1 },
    { .name = "threads", .tier = DEFT_TIER_INTERPRET, .n_threads = 2 },
    { .name = "llvm", .tier = DEFT_TIER_FULL, .n_threads = 2 },
};

/* ---- operators ---- */

#define BACK(name)                                                                                 \
    static deft_status name(deft_ctx *cx, deft_tensor *const *in, size_t n_in,                     \
                            deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,   \
                            deft_tensor **grad_in, void *user)
#define SHAPE_OF(name)                                                                             \
    static deft_status name(const deft_op_form *in, size_t n_in, deft_op_form *out, size_t n_out,  \
                            const deft_op_about *about)
#define RUN(name)                                                                                  \
    static deft_status name(const deft_op_input *in, size_t n_in, const deft_op_result *out,       \
                            size_t n_out, const deft_op_about *about)
#define UNUSED_RUN (void)in, (void)n_in, (void)out, (void)n_out, (void)about

typedef enum op_kind { TURN, PAIR, RANK, MIX, SUMS, FAIL, N_KINDS } op_kind;

/* How a program is recorded: by opaque operators, or by those with bodies. */
typedef struct way {
    deft_ctx *cx;
    deft_op *op[N_KINDS];
    bool is_opaque;
} way;
static way *now; /* the way of the program that is recorded */
static long n_runs[N_KINDS], n_strided, n_rules, n_failing;

static deft_tensor *number_of(double v)
{
    return deft_const_f(now->cx, v);
}

/* Element i, counted row-major, of an input; both float dtypes as f64. */
static double element(const deft_op_input *in, int64_t i)
{
    int64_t at = 0;
    for (uint32_t j = in->form.rank; j-- > 0;) {
        at += i % in->form.extent[j] * in->stride[j];
        i /= in->form.extent[j];
    }
    return in->form.dtype == DEFT_F32 ? (double)((const float *)in->data)[at]
                                      : ((const double *)in->data)[at];
}

static void put(const deft_op_result *out, int64_t i, double v)
{
    if (out->form.dtype == DEFT_F32)
        ((float *)out->data)[i] = (float)v;
    else
        ((double *)out->data)[i] = v;
}

/* a * b and a + b, rounded to the dtype. */
static double times(deft_dtype t, double a, double b)
{
    return t == DEFT_F32 ? (double)((float)a * (float)b) : a * b;
}

static double plus(deft_dtype t, double a, double b)
{
    return t == DEFT_F32 ? (double)((float)a + (float)b) : a + b;
}

static int64_t count(const deft_op_form *f)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < f->rank; i++) n *= f->extent[i];
    return n;
}

static double number_at(const void *attributes)
{
    double v;
    memcpy(&v, attributes, sizeof v);
    return v;
}

SHAPE_OF(same_shape)
{
    (void)n_in, (void)about;
    for (size_t i = 0; i < n_out; i++) out[i] = in[0];
    return DEFT_OK;
}

/* The elements of x along the last axis in reverse order, times number, plus y. */
BODY(turn)
{
    UNUSED;
    out[0] = deft_add(deft_mul(deft_flip(in[0], DEFT_AXES(-1)), number_of(number_at(user))), in[1]);
    return DEFT_OK;
}

RUN(turn_run)
{
    const deft_op_form *const f = &in[0].form;
    const int64_t n = f->extent[f->rank - 1];
    UNUSED_RUN;
    n_runs[TURN]++;
    n_strided += !in[0].is_dense;
    for (int64_t i = 0; i < count(f); i++)
        put(&out[0], i,
            plus(f->dtype,
                 times(f->dtype, element(&in[0], i / n * n + n - 1 - i % n),
                       number_at(about->attributes)),
                 element(&in[1], i)));
    return DEFT_OK;
}

BACK(turn_back)
{
    UNUSED;
    grad_in[0] = deft_flip(deft_mul(grad_out[0], number_of(number_at(user))), DEFT_AXES(-1));
    grad_in[1] = grad_out[0];
    return DEFT_OK;
}

/* x + y, and x y. */
BODY(pair)
{
    UNUSED;
    out[0] = deft_add(in[0], in[1]);
    out[1] = deft_mul(in[0], in[1]);
    return DEFT_OK;
}

RUN(pair_run)
{
    const deft_dtype t = in[0].form.dtype;
    UNUSED_RUN;
    n_runs[PAIR]++;
    for (int64_t i = 0; i < count(&in[0].form); i++) {
        put(&out[0], i, plus(t, element(&in[0], i), element(&in[1], i)));
        put(&out[1], i, times(t, element(&in[0], i), element(&in[1], i)));
    }
    return DEFT_OK;
}

BACK(pair_back)
{
    UNUSED;
    grad_in[0] = deft_add(grad_out[0], deft_mul(grad_out[1], in[1]));
    grad_in[1] = deft_add(grad_out[0], deft_mul(grad_out[1], in[0]));
    return DEFT_OK;
}

static deft_status pair_of_all(deft_ctx *cx, int64_t n, deft_tensor *const *in,
                               const bool *is_mapped, size_t n_in, deft_tensor **out, size_t n_out,
                               void *user)
{
    int axis[2];
    (void)n;
    n_rules++;
    for (int i = 0; i < 2; i++) axis[i] = is_mapped[i] ? 0 : DEFT_NOT_MAPPED;
    return deft_vmap(cx, pair, user, in, axis, n_in, out, NULL, n_out) ? DEFT_OK : DEFT_E_STATE;
}

/* The elements of x along the last axis in order, and their positions. It has no gradient. */
BODY(rank_of)
{
    UNUSED;
    out[0] = deft_sort(in[0], -1, false);
    out[1] = deft_argsort(in[0], -1, false);
    return DEFT_OK;
}

SHAPE_OF(rank_shape)
{
    (void)n_in, (void)n_out, (void)about;
    out[0] = out[1] = in[0];
    out[1].dtype = DEFT_I64;
    return DEFT_OK;
}

RUN(rank_run)
{
    const deft_op_form *const f = &in[0].form;
    const int64_t n = f->extent[f->rank - 1];
    int64_t *const at = out[1].data;
    UNUSED_RUN;
    n_runs[RANK]++;
    if (!in[0].is_dense) return DEFT_E_INTERNAL;
    for (int64_t row = 0; row < count(f); row += n)
        for (int64_t i = 0; i < n; i++) {
            int64_t k = i;
            for (; k > 0 && element(&in[0], row + i) < element(&in[0], row + at[row + k - 1]); k--)
                at[row + k] = at[row + k - 1];
            at[row + k] = i;
        }
    for (int64_t i = 0; i < count(f); i++) put(&out[0], i, element(&in[0], i / n * n + at[i]));
    return DEFT_OK;
}

/* ((a + 2 b) + 4 c) + 8 d, of four inputs. */
BODY(mix)
{
    UNUSED;
    deft_tensor *t = in[0];
    for (int i = 1; i < 4; i++) t = deft_add(t, deft_mul(in[i], number_of(1 << i)));
    out[0] = t;
    return DEFT_OK;
}

RUN(mix_run)
{
    const deft_dtype t = in[0].form.dtype;
    UNUSED_RUN;
    n_runs[MIX]++;
    for (int64_t i = 0; i < count(&in[0].form); i++) {
        double v = element(&in[0], i);
        for (int k = 1; k < 4; k++) v = plus(t, v, times(t, element(&in[k], i), 1 << k));
        put(&out[0], i, v);
    }
    return DEFT_OK;
}

BACK(mix_back)
{
    UNUSED;
    for (int i = 0; i < 4; i++) grad_in[i] = deft_mul(grad_out[0], number_of(1 << i));
    return DEFT_OK;
}

/* The sums along the last axis, in order, without that axis. y is not used. */
BODY(sums)
{
    UNUSED;
    deft_tensor *column[COLS];
    if (deft_unstack(in[0], -1, COLS, column) != DEFT_OK) return DEFT_E_STATE;
    out[0] = column[0];
    for (int i = 1; i < COLS; i++) out[0] = deft_add(out[0], column[i]);
    return DEFT_OK;
}

SHAPE_OF(sums_shape)
{
    (void)n_in, (void)n_out, (void)about;
    out[0] = in[0];
    out[0].rank--;
    return DEFT_OK;
}

RUN(sums_run)
{
    const deft_dtype t = in[0].form.dtype;
    UNUSED_RUN;
    n_runs[SUMS]++;
    for (int64_t i = 0; i < count(&out[0].form); i++) {
        double v = element(&in[0], i * COLS);
        for (int64_t k = 1; k < COLS; k++) v = plus(t, v, element(&in[0], i * COLS + k));
        put(&out[0], i, v);
    }
    return DEFT_OK;
}

BACK(sums_back)
{
    UNUSED;
    grad_in[0] = deft_expand(deft_expand_dims(grad_out[0], DEFT_AXES(-1)), deft_shape_get(in[0]));
    return DEFT_OK;
}

BODY(fail_body)
{
    UNUSED;
    out[0] = in[0];
    return DEFT_OK;
}

RUN(fail_run)
{
    UNUSED_RUN;
    n_runs[FAIL]++;
    snprintf(about->why, about->n_why, "it always fails");
    memset(out[0].data, 0xff, out[0].bytes);
    return DEFT_E_IO;
}

static const deft_op_def bodies[N_KINDS] = {
    [TURN] = { .name = "test.turn", .n_in = 2, .n_out = 1, .body = turn, .grad = turn_back },
    [PAIR] = { .name = "test.pair",
               .n_in = 2,
               .n_out = 2,
               .body = pair,
               .grad = pair_back,
               .batch = pair_of_all },
    [RANK] = { .name = "test.rank", .n_in = 2, .n_out = 2, .body = rank_of },
    [MIX] = { .name = "test.mix", .n_in = 4, .n_out = 1, .body = mix, .grad = mix_back },
    [SUMS] = { .name = "test.sums", .n_in = 2, .n_out = 1, .body = sums, .grad = sums_back },
    [FAIL] = { .name = "test.fail", .n_in = 2, .n_out = 1, .body = fail_body },
};

static const struct {
    deft_op_shape_fn shape;
    deft_op_run_fn run;
    bool dense;
} functions[N_KINDS] = {
    [TURN] = { same_shape, turn_run, false }, [PAIR] = { same_shape, pair_run, false },
    [RANK] = { rank_shape, rank_run, true },  [MIX] = { same_shape, mix_run, true },
    [SUMS] = { sums_shape, sums_run, false }, [FAIL] = { same_shape, fail_run, false },
};

static void define_all(way *w, deft_runtime *rt)
{
    for (int k = 0; k < N_KINDS; k++) {
        deft_op_def d = bodies[k];
        char why[256], name[32];
        snprintf(name, sizeof name, "%s%s", d.name, w->is_opaque ? "_opaque" : "");
        d.size = sizeof d;
        d.version = 1;
        d.name = name;
        d.attribute_bytes = sizeof(double);
        if (w->is_opaque) {
            d.body = NULL;
            d.shape = functions[k].shape;
            d.run = functions[k].run;
            d.dense = functions[k].dense;
        }
        if (deft_op_define(rt, &d, &w->op[k], why, sizeof why) != DEFT_OK) {
            printf("%s\n", why);
            exit(1);
        }
    }
}

static bool call(op_kind kind, deft_tensor *x, deft_tensor *y, double number, deft_tensor **out)
{
    deft_tensor *const in[] = { x, y, y, x };
    return deft_op_call(now->cx, now->op[kind], in, bodies[kind].n_in, &number, out,
                        bodies[kind].n_out);
}

/* ---- programs ---- */

static long n_kinds_of_step[8];

/* A value from x and y by some operators and operations. */
static deft_tensor *grown(uint64_t *seed, deft_tensor *x, deft_tensor *y, unsigned n)
{
    for (unsigned i = 0; i < n && x; i++) {
        deft_tensor *out[2] = { NULL, NULL };
        const unsigned kind = pick(seed, FAIL + 4);
        const double number = 0.25 + 0.25 * pick(seed, 4);
        if (kind < FAIL) {
            if (pick(seed, 3) == 0) x = deft_flip(x, DEFT_AXES(-1)); /* strides */
            /* Its gradient is not known. */
            deft_tensor *const from = kind == RANK ? deft_stop_gradient(x) : x;
            deft_tensor *const more = kind == RANK ? from : y;
            if (!call((op_kind)kind, from, more, number, out)) return NULL;
            const bool second = pick(seed, 2);
            if (kind == RANK)
                x = deft_add(x, second ? deft_cast(out[1], deft_dtype_of(x)) : out[0]);
            else if (kind == SUMS)
                x = deft_add(y, deft_expand_dims(out[0], DEFT_AXES(-1)));
            else if (kind == PAIR && pick(seed, 2))
                x = deft_sub(out[0], out[1]);
            else
                x = out[kind == PAIR && second];
        } else if (kind == FAIL) {
            x = deft_sub(x, deft_mul(y, number_of(number)));
        } else if (kind == FAIL + 1) {
            x = deft_sin(x);
        } else if (kind == FAIL + 2) {
            x = deft_tanh(deft_add(deft_flip(x, DEFT_AXES(-1)), y));
        } else {
            x = deft_mul(x, number_of(0.5));
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
    const deft_status st = body_of_seed(cx, in, n_in, &y, n_out, user);
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
        const bool ok =
            deft_vmap(now->cx, fn, &inner, (deft_tensor *const[]){ x, one },
                      (const int[]){ 0, which ? DEFT_NOT_MAPPED : 0 }, 2, &out, NULL, 1);
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
    char error[512];
} run;

static void begin_run(run *r, uint64_t seed, int64_t rows, deft_dtype t)
{
    double data[MOST_ROWS * COLS];
    r->error[0] = '\0';
    for (int i = 0; i < N_IN; i++) {
        oracle_fill(t, data, (size_t)(rows * COLS), oracle_mix(seed, (uint64_t)i), ORACLE_TAME);
        r->state[i] = deft_keep(deft_from(now->cx, DEFT_SHAPE(rows, COLS), t, data,
                                          (size_t)(rows * COLS) * deft_dtype_size(t)));
    }
    r->capture_seed = oracle_mix(seed, 9);
    r->capture = deft_capture_create(now->cx, body_of_seed, &r->capture_seed);
}

/* A step: some values, their gradients, and an assignment to each state. In some steps a call
 * fails. With bodies, such a step is aborted. */
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
    const bool twice = pick(seed, 3) == 0, fails = pick(seed, 6) == 0, submits = pick(seed, 3) == 0;
    bool ok = loss && deft_grad(&loss, NULL, 1, x, N_IN, &zero, g);
    if (ok && twice) {
        deft_tensor *const slope = deft_sum(deft_mul(g[0], x[1]), DEFT_ALL_AXES, false);
        ok = deft_grad(&slope, NULL, 1, x, N_IN, &zero, h);
    }
    for (int i = 0; i < N_IN && ok; i++) {
        deft_tensor *change = twice ? deft_add(g[i], h[i]) : g[i];
        if (fails && i == 1) ok = call(FAIL, change, change, 0, &change);
        if (ok) deft_assign(r->state[i], deft_tanh(deft_sub(r->state[i], deft_mul(change, 0.125))));
    }
    if (fails && !now->is_opaque) {
        deft_step_abort(step);
        return DEFT_OK;
    }
    deft_status st = submits ? deft_step_submit(step) : deft_step_end(step);
    if (submits && st == DEFT_OK) st = deft_wait(now->cx);
    if (!fails) return st;
    n_failing += st == DEFT_E_IO;
    if (st == DEFT_OK) snprintf(r->error, sizeof r->error, "a step did not fail");
    const bool names = strstr(deft_message(now->cx), "test.fail_opaque: it always fails") != NULL;
    if (!names) snprintf(r->error, sizeof r->error, "failing: %.400s", deft_message(now->cx));
    deft_clear(now->cx);
    return DEFT_OK;
}

/* Runs the program of the seed. The states are what it computes. */
static void run_program(run *r, uint64_t seed, int64_t rows, deft_dtype t)
{
    begin_run(r, seed, rows, t);
    deft_status st = DEFT_OK;
    for (int i = 0; i < N_STEPS && st == DEFT_OK; i++) {
        uint64_t same = oracle_mix(seed, 100 + (uint64_t)(i >= 2)); /* the first step twice */
        st = run_step(r, &same);
        deft_tensor *y;
        const deft_scope s = deft_scope_begin(now->cx);
        if (st == DEFT_OK) st = deft_capture_call(r->capture, r->state, 2, &y, 1);
        if (st == DEFT_OK && !deft_assign(r->state[2], deft_tanh(y))) st = deft_error(now->cx);
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

static long n_failed;

static void compare_states(uint64_t seed, const char *path, const run *got, const run *want,
                           int64_t rows, deft_dtype t)
{
    const size_t n = (size_t)(rows * COLS), bytes = n * deft_dtype_size(t);
    for (int i = 0; i < N_IN; i++) {
        double a[MOST_ROWS * COLS], b[MOST_ROWS * COLS];
        if ((deft_read)(got->state[i], t, a, bytes) == DEFT_OK &&
            (deft_read)(want->state[i], t, b, bytes) == DEFT_OK &&
            oracle_difference(t, a, b, n) == n)
            continue;
        printf("seed %llu: %s: state %d of %s has other bits than with bodies\n",
               (unsigned long long)seed, path, i, deft_dtype_name(t));
        n_failed++;
        return;
    }
}

static void check_program(uint64_t seed, const oracle_path *p)
{
    static const int64_t extents[] = { 1, 3, MOST_ROWS };
    const int64_t rows = extents[seed % LEN(extents)];
    const deft_dtype t = oracle_mix(seed, 5) % 2 ? DEFT_F32 : DEFT_F64;
    const uint64_t budget = oracle_mix(seed, 6) % 4;
    const deft_ctx_options o = { .size = sizeof o,
                                 .max_nodes = budget == 0 ? 48 : 0,
                                 .max_temporary_bytes = budget == 1 ? 1 << 15 : 0 };
    static run with_bodies, opaque;
    way by_body = { .cx = oracle_context(p, &o) };
    way by_function = { .cx = oracle_context(p, &o), .is_opaque = true };
    define_all(&by_body, p->rt);
    define_all(&by_function, p->rt);
    now = &by_body;
    run_program(&with_bodies, seed, rows, t);
    now = &by_function;
    run_program(&opaque, seed, rows, t);
    if (opaque.error[0] || with_bodies.error[0]) {
        printf("seed %llu: %s: opaque: %s; with bodies: %s\n", (unsigned long long)seed, p->name,
               opaque.error, with_bodies.error);
        n_failed++;
    } else {
        compare_states(seed, p->name, &opaque, &with_bodies, rows, t);
    }
    end_run(&opaque);
    now = &by_body;
    end_run(&with_bodies);
    deft_ctx_destroy(&by_function.cx);
    deft_ctx_destroy(&by_body.cx);
}

int main(int argc, char **argv)
{
    oracle_asked asked = { .count = 400, .seed = 1, .quick = 60, .full = 20000 };
    for (int i = 1; i < argc; i++)
        if (!oracle_takes(&asked, argv[i])) {
            fprintf(stderr, "opaque_programs [COUNT [SEED]] [--quick | --full]\n");
            return 2;
        }
    const size_t n_paths = oracle_open(paths, LEN(paths));
    uint64_t i = 0;
    for (; i < asked.count && (i < oracle_least(32) || test_time_left(1)); i++) {
        const oracle_path *const p = &paths[i % n_paths];
        if (p->tier == DEFT_TIER_FULL && i % 8 >= 4) continue; /* compiling is what takes time */
        check_program(asked.seed + i, p);
    }
    for (int k = 0; k < N_KINDS; k++)
        if (!n_runs[k]) printf("no call of %s\n", bodies[k].name), n_failed++;
    for (int k = 0; k < 5; k++)
        if (!n_kinds_of_step[k]) printf("nothing of kind %d was recorded\n", k), n_failed++;
    if (!n_strided) printf("no input had strides\n"), n_failed++;
    if (!n_rules) printf("no batch rule was used\n"), n_failed++;
    if (!n_failing) printf("no step failed\n"), n_failed++;
    printf("%llu programs, %ld failures\n", (unsigned long long)i, n_failed);
    oracle_close(paths, n_paths);
    return n_failed != 0;
}
