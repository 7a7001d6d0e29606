/* SPDX-License-Identifier: Apache-2.0
 *
 * Random smooth programs in f64, with views, assigns, scatters, products, attention, functions with
 * a derivative of their own, loops and branches, differentiated. Along random directions d and e:
 *
 *   <gradient, d>            is the central difference of the value along d,
 *   forward mode along d     is <gradient, d>,
 *   gradient of <gradient, d>, times e, is the central difference of <gradient, d> along e,
 *
 * and all of it has equal bits on every path. Values and gradients of several points by deft_vmap
 * have those of each point alone, and gradients of what deft_vmap gives are near their sums.
 *
 *   random_gradients [COUNT [SEED]] [--quick | --full] [-v]
 *
 * A program follows from its seed alone. Its values are of two kinds, f64 [rows,4] and f64 [], and
 * stay within a few units, so that differences are of use.
 */
#include "../support/oracle.h"
#include "../support/plan_rules.h"
#include "../support/budget.h"
#include "../support/tensor_pool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))

enum { COLS = 4, MOST_ROWS = 5, N_IN = 3, MOST = 2 * MOST_ROWS * COLS + 1 };

static oracle_path paths[] = {
    { .name = "reference", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
    { .name = "interp", .tier = DEFT_TIER_INTERPRET, .n_threads = 1 },
    { .name = "llvm", .tier = DEFT_TIER_FULL, .n_threads = 2, .streams = true },
};

/* ---- programs ---- */

/* [rows] of i64, the first axis in some order, with repetitions. */
static deft_tensor *some_rows(deft_ctx *cx, uint64_t *seed, int64_t rows)
{
    int64_t at[MOST_ROWS];
    for (int64_t i = 0; i < rows; i++) at[i] = pick(seed, (unsigned)rows);
    return deft_from(cx, DEFT_SHAPE(rows), DEFT_I64, at, (size_t)rows * sizeof *at);
}

static deft_tensor *mapped(deft_tensor *a, uint64_t *seed)
{
    switch (pick(seed, 9)) {
    case 0: return deft_tanh(a);
    case 1: return deft_sin(a);
    case 2: return deft_sigmoid(a);
    case 3: return deft_sqrt(deft_add(deft_square(a), 1));
    case 4: return deft_log(deft_add(deft_square(a), 0.5));
    case 5: return deft_exp(deft_neg(deft_square(a)));
    case 6: return deft_gelu(a);
    case 7: return deft_erf(a);
    default: return deft_div(a, deft_add(deft_square(a), 1));
    }
}

/* A view of a, or what a view of it was written to. */
static deft_tensor *viewed(deft_tensor *a, deft_tensor *c, deft_tensor *b, uint64_t *seed)
{
    deft_tensor *t;
    switch (pick(seed, 6)) {
    case 0: return deft_flip(a, DEFT_AXES(0));
    case 1: return deft_slice(a, DEFT_FULL, DEFT_RS(-1, DEFT_END, -1));
    case 2: return deft_roll(a, 1, 0);
    case 3: /* a row of c written into a copy of a */
        t = deft_add(a, 0.25);
        deft_assign(deft_slice(t, DEFT_AT(0)), deft_slice(c, DEFT_AT(0)));
        return t;
    case 4: /* a number into two columns, then read on */
        t = deft_mul(a, 1.5);
        deft_assign(deft_slice(t, DEFT_FULL, DEFT_R(1, 3)), b);
        return deft_tanh(t);
    default:
        return deft_concat((deft_tensor *[]){ deft_slice(a, DEFT_FULL, DEFT_R(0, 2)),
                                              deft_slice(c, DEFT_FULL, DEFT_R(2, 4)) },
                           2, 1);
    }
}

/* tanh(a), and sin(a) b. */
static deft_status custom(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_tanh(in[0]);
    out[1] = deft_mul(deft_sin(in[0]), in[1]);
    return DEFT_OK;
}

static deft_status custom_back(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                               deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                               deft_tensor **grad_in, void *user)
{
    deft_tensor *const of_tanh = deft_mul(grad_out[0], deft_add(deft_neg(deft_square(out[0])), 1));
    deft_tensor *const of_product = deft_mul(grad_out[1], deft_mul(deft_cos(in[0]), in[1]));
    (void)cx, (void)n_in, (void)n_out, (void)user;
    grad_in[0] = deft_add(of_tanh, of_product);
    grad_in[1] = deft_sum(deft_mul(grad_out[1], deft_sin(in[0])), DEFT_ALL_AXES, 0);
    return DEFT_OK;
}

static void put_custom(deft_ctx *cx, pool *p, uint64_t *seed, deft_tensor *a, deft_tensor *b)
{
    deft_tensor *out[2];
    (void)deft_custom_grad(cx, custom, custom_back, NULL, (deft_tensor *[]){ a, b }, 2, out, 2);
    const unsigned which = pick(seed, 3);
    if (which != 1) put_a(p, seed, out[0]);
    if (which != 0) put_a(p, seed, out[1]);
}

static void put_op(deft_ctx *cx, pool *p, uint64_t *seed)
{
    deft_tensor *const a = any_a(p, seed), *const c = any_a(p, seed), *const b = any_b(p, seed);
    const int64_t rows = deft_shape_get(a).dim[0];
    switch (pick(seed, 18)) {
    case 0: put_a(p, seed, deft_tanh(deft_add(a, c))); return;
    case 1: put_a(p, seed, deft_mul(deft_tanh(a), c)); return;
    case 2: put_a(p, seed, deft_sub(deft_sin(a), deft_mul(b, 0.5))); return;
    case 3:
    case 4: put_a(p, seed, mapped(a, seed)); return;
    case 5:
    case 6:
    case 7: put_a(p, seed, viewed(a, c, b, seed)); return;
    case 8: put_a(p, seed, deft_tanh(deft_matmul(deft_matmul(a, deft_t(c)), a))); return;
    case 9: put_a(p, seed, deft_softmax(a, (int)pick(seed, 2))); return;
    case 10: put_a(p, seed, deft_tanh(deft_cumsum(a, (int)pick(seed, 2)))); return;
    case 11: put_a(p, seed, deft_take(a, some_rows(cx, seed, rows), 0)); return;
    case 12: put_a(p, seed, deft_tanh(deft_index_add(a, some_rows(cx, seed, rows), c, 0))); return;
    case 13: put_a(p, seed, deft_sub(a, deft_mean(c, DEFT_AXES((int)pick(seed, 2)), 1))); return;
    case 14: put_b(p, seed, deft_tanh(deft_sum(a, DEFT_ALL_AXES, 0))); return;
    case 15: put_custom(cx, p, seed, a, b); return;
    case 16:
        put_a(p, seed,
              deft_attention(a, c, mapped(c, seed),
                             pick(seed, 2) ? NULL : DEFT_ATTENTION(.is_causal = true)));
        return;
    default: put_b(p, seed, deft_slice(deft_sin(a), DEFT_AT(0), DEFT_AT(pick(seed, COLS)))); return;
    }
}

static bool grow(deft_ctx *cx, pool *p, uint64_t seed, int depth, unsigned n);

/* A function of a loop or branch: a tensor and a number are handed in, and what stands around is
 * used; it makes one of each. */
typedef struct fn {
    const pool *around;
    uint64_t seed;
    int depth;
} fn;

static deft_status call_fn(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    const fn *const f = user;
    pool p = { .a = { in[0] }, .b = { in[1] }, .n_a = 1, .n_b = 1 };
    uint64_t seed = f->seed;
    (void)n_in;
    put_a(&p, &seed, any_a(f->around, &seed));
    put_b(&p, &seed, any_b(f->around, &seed));
    if (!grow(cx, &p, oracle_next(&seed), f->depth, 1 + pick(&seed, 4))) return DEFT_E_ARG;
    out[0] = deft_tanh(deft_add(p.a[p.n_a - 1], in[0]));
    if (n_out > 1) out[1] = any_b(&p, &seed);
    return DEFT_OK;
}

static deft_status call_else(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    return call_fn(cx, in, n_in, out, n_out, (fn *)user + 1);
}

/* A state [rows,4] goes through iterations that each take a number and make one. */
static bool put_scan(deft_ctx *cx, pool *p, uint64_t seed, int depth)
{
    fn f = { p, oracle_next(&seed), depth - 1 };
    const int64_t n = 1 + pick(&seed, 4);
    deft_tensor *row[4], *init = any_a(p, &seed), *out[2];
    for (int64_t i = 0; i < n; i++) row[i] = any_b(p, &seed);
    deft_tensor *const rows = deft_stack(row, (size_t)n, 0);
    if (!deft_scan(cx, call_fn, &f, &init, 1, &rows, 1, n, 1, out)) return false;
    put_a(p, &seed, out[0]);
    put_b(p, &seed, deft_tanh(deft_sum(out[1], DEFT_ALL_AXES, 0)));
    return true;
}

typedef struct while_fn {
    fn body;
    int64_t turns;
} while_fn;

static deft_status has_turns_left(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                  deft_tensor **out, size_t n_out, void *user)
{
    const while_fn *const w = user;
    (void)cx, (void)n_in, (void)n_out;
    out[0] = deft_lt(in[2], (double)w->turns);
    return DEFT_OK;
}

static deft_status turn(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *user)
{
    while_fn *const w = user;
    (void)n_in, (void)n_out;
    const deft_status st = call_fn(cx, in, 2, out, 2, &w->body);
    out[2] = deft_add(in[2], 1);
    return st;
}

/* A matrix and a number go through some of the iterations that are permitted. */
static bool put_while(deft_ctx *cx, pool *p, uint64_t seed, int depth)
{
    while_fn w = { { p, oracle_next(&seed), depth - 1 }, pick(&seed, 5) };
    deft_tensor *const init[3] = { any_a(p, &seed), any_b(p, &seed),
                                   deft_zeros(cx, DEFT_SHAPE(), DEFT_F64) };
    deft_tensor *out[3];
    if (!deft_while(cx, has_turns_left, turn, &w, init, 3, 3, out)) return false;
    put_a(p, &seed, out[0]);
    put_b(p, &seed, deft_tanh(out[1]));
    return true;
}

/* Which branch is taken does not depend on what is differentiated; but where no differences are
 * taken, it may. */
static bool by_value;

static bool put_cond(deft_ctx *cx, pool *p, uint64_t seed, int depth)
{
    fn f[2] = { { p, oracle_next(&seed), depth - 1 }, { p, oracle_next(&seed), depth - 1 } };
    const bool which = pick(&seed, 2);
    deft_tensor *const condition =
        by_value ? deft_lt(any_b(p, &seed), 0.1)
                 : deft_from(cx, DEFT_SHAPE(), DEFT_BOOL, &which, sizeof which);
    deft_tensor *const in[2] = { any_a(p, &seed), any_b(p, &seed) }, *out[2];
    if (!deft_cond(condition, call_fn, call_else, f, in, 2, out, 2)) return false;
    put_a(p, &seed, out[0]);
    put_b(p, &seed, out[1]);
    return true;
}

static bool grow(deft_ctx *cx, pool *p, uint64_t seed, int depth, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        const unsigned kind = depth > 0 ? pick(&seed, 10) : 9;
        const uint64_t own = oracle_next(&seed);
        if ((kind == 0 && !put_scan(cx, p, own, depth)) ||
            (kind == 1 && !put_cond(cx, p, own, depth)) ||
            (kind == 2 && !put_while(cx, p, own, depth)))
            return false;
        if (kind > 2) put_op(cx, p, &seed);
    }
    return true;
}

/* The value of the program at two tensors and a number. */
static deft_tensor *value_of(deft_ctx *cx, uint64_t seed, deft_tensor *const *in)
{
    pool p = { .a = { in[0], in[1] }, .b = { in[2] }, .n_a = 2, .n_b = 1 };
    if (!grow(cx, &p, oracle_next(&seed), 2, 4 + pick(&seed, 10))) return NULL;
    deft_tensor *sum = deft_mul(in[2], 0.5);
    for (unsigned i = 0; i < p.n_a; i++)
        sum = deft_add(sum, deft_mul(deft_sum(deft_square(p.a[i]), DEFT_ALL_AXES, 0), 0.25));
    for (unsigned i = 0; i < p.n_b; i++) sum = deft_add(sum, deft_sin(p.b[i]));
    return sum;
}

/* ---- points and directions ---- */

/* Three operands side by side. */
typedef struct point {
    int64_t rows;
    double x[MOST];
} point;

static size_t n_of(const point *p, int k)
{
    return k < 2 ? (size_t)p->rows * COLS : 1;
}

static point drawn(int64_t rows, uint64_t seed)
{
    point p = { .rows = rows };
    for (size_t i = 0; i < MOST; i++) p.x[i] = (double)(oracle_next(&seed) >> 11) * 0x1p-52 - 1;
    return p;
}

static point moved(const point *p, const point *d, double by)
{
    point q = *p;
    for (size_t i = 0; i < MOST; i++) q.x[i] += by * d->x[i];
    return q;
}

static void operands(deft_ctx *cx, const point *p, deft_tensor **t)
{
    const double *x = p->x;
    for (int k = 0; k < N_IN; k++) {
        const deft_shape s = k < 2 ? DEFT_SHAPE(p->rows, COLS) : DEFT_SHAPE();
        t[k] = deft_from(cx, s, DEFT_F64, x, n_of(p, k) * sizeof *x);
        x += n_of(p, k);
    }
}

static deft_tensor *dot(deft_tensor *const *a, deft_tensor *const *b)
{
    deft_tensor *sum = NULL;
    for (int k = 0; k < N_IN; k++) {
        deft_tensor *const one = deft_sum(deft_mul(a[k], b[k]), DEFT_ALL_AXES, 0);
        sum = sum ? deft_add(sum, one) : one;
    }
    return sum;
}

/* ---- one program ---- */

/* value, slope: the value, and <gradient, d>; all that follows only where it is asked for. */
typedef struct result {
    double value, slope, forward, curve; /* curve: <gradient of slope, e> */
    double gradient[MOST];
    char error[200];
} result;

static void read_all(deft_tensor *const *t, const point *p, double *out, deft_status *st)
{
    for (int k = 0; k < N_IN && *st == DEFT_OK; k++) {
        *st = deft_read(t[k], DEFT_F64, out, n_of(p, k) * sizeof *out);
        out += n_of(p, k);
    }
}

static void run_program(deft_ctx *cx, uint64_t seed, const point *at, const point *d,
                        const point *e, bool all, result *r)
{
    deft_tensor *x[N_IN], *dx[N_IN], *ex[N_IN], *g[N_IN], *h[N_IN], *forward = NULL;
    const deft_grad_options zero = { .size = sizeof zero, .unused_is_zero = true };
    deft_status st = DEFT_OK;
    memset(r, 0, sizeof *r);
    const deft_scope s = deft_scope_begin(cx);
    operands(cx, at, x);
    operands(cx, d, dx);
    operands(cx, e, ex);
    deft_tensor *const value = value_of(cx, seed, x);
    if (value && deft_grad(&value, NULL, 1, x, N_IN, &zero, g)) {
        deft_tensor *const slope = dot(g, dx);
        deft_tensor *curve = NULL;
        if (all && deft_jvp(&value, 1, x, dx, N_IN, &zero, &forward) &&
            deft_grad(&slope, NULL, 1, x, N_IN, &zero, h))
            curve = dot(h, ex);
        if (all && curve) {
            st = deft_eval((deft_tensor *[]){ value, slope, forward, curve, g[0], g[1], g[2] }, 7);
            if (st == DEFT_OK) st = deft_item(forward, &r->forward);
            if (st == DEFT_OK) st = deft_item(curve, &r->curve);
            read_all(g, at, r->gradient, &st);
        }
        if (st == DEFT_OK) st = deft_item(value, &r->value);
        if (st == DEFT_OK) st = deft_item(slope, &r->slope);
    }
    if (st == DEFT_OK) st = deft_error(cx);
    if (st != DEFT_OK) snprintf(r->error, sizeof r->error, "%s", deft_message(cx));
    deft_clear(cx);
    if (deft_scope_end(s) != DEFT_OK) deft_clear(cx);
}

static long n_failed, n_curved, n_steep;

static bool is_near(double got, double want, double tolerance)
{
    return fabs(got - want) <= tolerance * (1 + fabs(got) + fabs(want));
}

static void near(uint64_t seed, const char *what, double got, double want, double tolerance)
{
    if (is_near(got, want, tolerance)) return;
    printf("seed %llu: %s: %.15g, not %.15g\n", (unsigned long long)seed, what, got, want);
    n_failed++;
}

/* What is differentiated by differences: the value, or the slope along another direction. */
typedef struct line {
    uint64_t seed;
    const point *x, *d;       /* from x along d */
    const point *slope_along; /* NULL: the value */
} line;

/* The derivative along a line, from differences of fourth order, which are wrong by some h^4 and
 * 1e-16 / h. */
static double difference(const line *l, double h)
{
    static const struct {
        double at, weight;
    } form[] = { { 1, 8 }, { -1, -8 }, { 2, -1 }, { -2, 1 } };
    double sum = 0;
    for (size_t i = 0; i < LEN(form); i++) {
        const point p = moved(l->x, l->d, form[i].at * h);
        result r;
        run_program(paths[0].cx, l->seed, &p, l->slope_along ? l->slope_along : l->d, l->d, false,
                    &r);
        sum += form[i].weight * (l->slope_along ? r.slope : r.value);
    }
    return sum / (12 * h);
}

/* Compares a derivative with differences. At a steep point, differences of the usual step are
 * wrong. So where they disagree with the derivative, smaller steps are tried until two differences
 * agree with each other, and these decide. Where none do, the point is counted as steep. */
static void near_differences(const line *l, const char *what, double got, double tolerance)
{
    double h = 1e-5, coarse = difference(l, h);
    if (is_near(got, coarse, tolerance)) return;
    for (int i = 0; i < 4; i++) {
        h /= 8;
        const double fine = difference(l, h);
        if (is_near(fine, coarse, tolerance) || !isfinite(fine)) {
            near(l->seed, what, got, fine, 2 * tolerance);
            return;
        }
        coarse = fine;
    }
    n_steep++;
}

static void check_program(uint64_t seed, size_t n_paths)
{
    static const int64_t extents[] = { 1, 3, MOST_ROWS };
    const int64_t rows = extents[seed % LEN(extents)];
    const point x = drawn(rows, oracle_mix(seed, 1)), d = drawn(rows, oracle_mix(seed, 2)),
                e = drawn(rows, oracle_mix(seed, 3));
    result want;
    run_program(paths[0].cx, seed, &x, &d, &e, true, &want);
    if (want.error[0]) {
        printf("seed %llu: %s\n", (unsigned long long)seed, want.error);
        n_failed++;
        return;
    }
    n_curved += want.curve != 0;
    near_differences(&(line){ .seed = seed, .x = &x, .d = &d }, "<gradient, d> against differences",
                     want.slope, 1e-6);
    near(seed, "forward mode against <gradient, d>", want.forward, want.slope, 1e-11);
    near_differences(&(line){ .seed = seed, .x = &x, .d = &e, .slope_along = &d },
                     "the second order against differences", want.curve, 1e-5);
    for (size_t i = 1; i < n_paths; i++) {
        result got;
        if (paths[i].tier == DEFT_TIER_FULL && seed % 4)
            continue; /* compiling is what takes time */
        run_program(paths[i].cx, seed, &x, &d, &e, true, &got);
        if (!memcmp(&got, &want, sizeof got)) continue;
        printf("seed %llu: %s: %s\n", (unsigned long long)seed, paths[i].name,
               got.error[0] ? got.error : "other bits than the reference");
        n_failed++;
    }
}

/* ---- many points at once ---- */

enum { POINTS = 3 };

typedef struct trial {
    uint64_t seed;
    unsigned mask; /* bit k: operand k is each point's own; else it is that of the first */
    point at[POINTS];
} trial;

static const deft_grad_options zero_is_fine = { .size = sizeof zero_is_fine,
                                                .unused_is_zero = true };

/* The value, and its gradients when they are asked for. */
static deft_status of_point(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    const trial *const t = user;
    (void)n_in;
    out[0] = value_of(cx, t->seed, in);
    if (n_out > 1 && out[0]) deft_grad(out, NULL, 1, in, N_IN, &zero_is_fine, out + 1);
    return DEFT_OK;
}

/* Operand k of all points, or of all alike. */
static deft_tensor *all_points(deft_ctx *cx, const trial *t, int k)
{
    deft_tensor *x[POINTS][N_IN], *of[POINTS];
    for (int i = 0; i < POINTS; i++) {
        operands(cx, &t->at[i], x[i]);
        of[i] = x[i][k];
    }
    return t->mask >> k & 1 ? deft_stack(of, POINTS, 0) : of[0];
}

static bool read_all_points(const trial *t, deft_tensor *const *out, double got[][MOST * POINTS],
                            deft_tensor *const *total)
{
    const size_t rows = n_of(&t->at[0], 0);
    const size_t n[1 + N_IN] = { 1, rows, rows, 1 };
    for (int k = 0; k < 1 + N_IN; k++)
        if (deft_read(out[k], DEFT_F64, got[k], POINTS * n[k] * sizeof(double)) != DEFT_OK)
            return false;
    for (int k = 0; k < N_IN; k++) {
        const size_t size = n[1 + k] * (t->mask >> k & 1 ? POINTS : 1) * sizeof(double);
        if (deft_read(total[k], DEFT_F64, got[1 + N_IN + k], size) != DEFT_OK) return false;
    }
    return true;
}

/* got: values and gradients of all points, then gradients of the values' sum. */
static bool run_points(deft_ctx *cx, const trial *t, double got[][MOST * POINTS])
{
    int axes[N_IN];
    deft_tensor *in[N_IN], *out[1 + N_IN], *values, *total[N_IN];
    void *const user = (void *)(uintptr_t)t;
    const deft_scope s = deft_scope_begin(cx);
    for (int k = 0; k < N_IN; k++) {
        in[k] = all_points(cx, t, k);
        axes[k] = t->mask >> k & 1 ? 0 : DEFT_NOT_MAPPED;
    }
    bool ok = deft_vmap(cx, of_point, user, in, axes, N_IN, out, NULL, 1 + N_IN) &&
              deft_vmap(cx, of_point, user, in, axes, N_IN, &values, NULL, 1);
    deft_tensor *const of = ok ? deft_sum(values, DEFT_ALL_AXES, 0) : NULL;
    ok = ok && deft_grad(&of, NULL, 1, in, N_IN, &zero_is_fine, total) &&
         read_all_points(t, out, got, total);
    if (!ok) printf("seed %llu: vmap: %s\n", (unsigned long long)t->seed, deft_message(cx));
    deft_clear(cx);
    if (deft_scope_end(s) != DEFT_OK) deft_clear(cx);
    return ok;
}

/* Point i alone: its operands side by side. */
static point alone(const trial *t, int i)
{
    point p = t->at[0];
    size_t at = 0;
    for (int k = 0; k < N_IN; at += n_of(&p, k++))
        if (t->mask >> k & 1) memcpy(p.x + at, t->at[i].x + at, n_of(&p, k) * sizeof *p.x);
    return p;
}

static void compare_points(uint64_t seed)
{
    static double got[1 + 2 * N_IN][MOST * POINTS], sum[N_IN][MOST * POINTS];
    static const int64_t extents[] = { 1, 3, MOST_ROWS };
    trial t = { .seed = seed, .mask = 1 + (unsigned)(seed % 7) };
    for (int i = 0; i < POINTS; i++)
        t.at[i] = drawn(extents[seed % LEN(extents)], oracle_mix(seed, 10 + (uint64_t)i));
    memset(sum, 0, sizeof sum);
    if (!run_points(paths[0].cx, &t, got)) {
        n_failed++;
        return;
    }
    bool same = true;
    for (int i = 0; i < POINTS; i++) {
        const point p = alone(&t, i);
        const double *g;
        result r;
        run_program(paths[0].cx, seed, &p, &p, &p, true, &r);
        same &= r.value == got[0][i];
        g = r.gradient;
        for (int k = 0; k < N_IN; g += n_of(&p, k++)) {
            const size_t n = n_of(&p, k);
            same &= oracle_difference(DEFT_F64, g, got[1 + k] + (size_t)i * n, n) == n;
            for (size_t j = 0; j < n; j++)
                sum[k][(t.mask >> k & 1 ? (size_t)i * n : 0) + j] += g[j];
        }
    }
    if (!same) {
        printf("seed %llu: vmap: other bits than alone\n", (unsigned long long)seed);
        n_failed++;
    }
    for (int k = 0; k < N_IN; k++)
        for (size_t j = 0; j < n_of(&t.at[0], k) * (t.mask >> k & 1 ? POINTS : 1); j++)
            near(seed, "the gradient of vmap", got[1 + N_IN + k][j], sum[k][j], 1e-10);
}

static void check_points(uint64_t seed)
{
    by_value = seed % 2;
    compare_points(seed);
    by_value = false;
}

int main(int argc, char **argv)
{
    oracle_asked asked = { .count = 200, .quick = 24, .full = 20000, .seed = 1 };
    bool verbose = false;
    for (int i = 1; i < argc; i++)
        if (!oracle_takes(&asked, argv[i])) verbose |= !strcmp(argv[i], "-v");
    const double t0 = oracle_now();
    const size_t n_paths = oracle_open(paths, LEN(paths));
    long count = 0;
    for (; count < (long)asked.count && (count < (long)oracle_least(4) || test_time_left(1));
         count++) {
        const uint64_t seed = asked.seed + (uint64_t)count;
        if (verbose) fprintf(stderr, "%llu\n", (unsigned long long)seed);
        plan_rules_begin(paths, n_paths, seed);
        check_program(seed, n_paths);
        check_points(seed);
    }
    oracle_close(paths, n_paths);
    if (!plan_rules_end(24)) n_failed++;
    printf("%ld programs (%ld of them with a second derivative) on %zu paths, %ld differences "
           "without a limit, %ld failures, %.1f s\n",
           count, n_curved, n_paths, n_steep, n_failed, oracle_now() - t0);
    /* Each program has two differences; those that decide nothing must be rare. */
    return n_failed || n_curved < count / 2 || n_steep > 1 + count / 500;
}
