/* SPDX-License-Identifier: Apache-2.0
 *
 * Random captured functions, exported and compared. A function has arrays with an extent that is
 * open, numbers, draws of random numbers, loops and branches, tensors from outside, and, as a step
 * of training, gradients, which it returns and by which it moves what is outside. What the exported
 * function computes must have the bits of the plain function, which the interpreter runs without
 * fusion: for several extents, numbers and draws, on one thread and on three, whose tasks run in
 * the opposite order. In some functions, C code computes from the extent that is open. These must
 * be refused, or be right for all extents that the exported function accepts.
 *
 *   export_programs [COUNT [SEED]] [--quick | --full] [--ways=LIST] [--cc=COMMAND] [--print]
 *
 * A way is c, shared, or the level of processors of an object, or `turns`: each program one of
 * these. A function follows from its seed alone. When one fails, the shortest beginning of it that
 * fails is shown, too.
 *
 * Why this file is long: generator, caller and shrinker of one kind of program.
 */
#include "../support/budget.h"
#include "../support/oracle.h"
#include "../support/tensor_pool.h"

#include "deft/control.h"
#include "deft/layers.h"
#include "deft/random.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEN(a) (sizeof(a) / sizeof *(a))

enum {
    WIDTH = 4, /* columns of all matrices */
    MOST_ROWS = 9000,
    N_MATRICES = 3, /* inputs [rows, WIDTH] */
    IN_INDEX = N_MATRICES,
    IN_WEIGHTS,
    IN_NUMBER,
    N_IN,
    N_OUT = 6,
    MOST_OPS = 14,
    MOST_ARGS = 40,
    GUARD = 64
};

static oracle_path paths[] = {
    { .name = "plain", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
    { .name = "exported", .tier = DEFT_TIER_INTERPRET, .n_threads = 1 },
};

static char folder[64];
static const char *cc = "cc -O0 -fPIC -Wall -Wextra -Werror";

/* ---- functions ---- */

typedef struct program {
    uint64_t seed;
    unsigned n_ops;
    bool trains;
    bool is_open;
    bool passes;   /* tensors from outside are parameters */
    bool computes; /* C code computes from the number of rows */
} program;

/* A function in one context. */
typedef struct side {
    const program *p;
    deft_tensor *outside[2]; /* f32[WIDTH,WIDTH], which it assigns, and f32[WIDTH] */
    deft_rng rng;
} side;

static deft_tensor *number(deft_ctx *cx, double v)
{
    return deft_const_f(cx, v);
}

static deft_status halve(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(deft_tanh(in[0]), deft_param_f(cx, "rate"));
    out[1] = deft_sum(out[0], DEFT_ALL_AXES, 0);
    return DEFT_OK;
}

static deft_status is_far(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = deft_lt(deft_max(deft_abs(in[0]), DEFT_ALL_AXES, 0), deft_param_f(cx, "shift"));
    return DEFT_OK;
}

static deft_status further(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = deft_sub(deft_mul(in[0], number(cx, 1.5)), deft_param_f(cx, "rate"));
    return DEFT_OK;
}

static deft_status negated(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_softmax(deft_neg(in[0]), 0);
    return DEFT_OK;
}

/* Draws numbers: a row, or a matrix. */
static deft_tensor *draw(deft_ctx *cx, side *s, const pool *p, bool is_row, uint64_t *seed)
{
    const deft_shape shape = is_row ? DEFT_SHAPE(WIDTH) : deft_shape_get(p->a[0]);
    if (pick(seed, 2)) return deft_uniform(cx, &s->rng, shape, DEFT_F32, -1, 1);
    return deft_normal(cx, &s->rng, shape, DEFT_F32, 0, 1);
}

/* In another dtype, and back. */
static deft_tensor *in_dtype(deft_ctx *cx, deft_tensor *a, deft_tensor *c, uint64_t *seed)
{
    static const deft_dtype types[] = { DEFT_F16, DEFT_BF16, DEFT_F64, DEFT_I32,
                                        DEFT_I8,  DEFT_I64,  DEFT_BOOL };
    const deft_dtype t = types[pick(seed, LEN(types))];
    a = deft_cast(a, t);
    c = deft_cast(c, t);
    if (t == DEFT_BOOL) return deft_cast(deft_logical_xor(a, c), DEFT_F32);
    if (pick(seed, 2)) a = deft_add(a, c);
    if (pick(seed, 2)) a = deft_maximum(a, deft_mul(c, deft_param_i(cx, "count")));
    if (pick(seed, 2) && (t == DEFT_F16 || t == DEFT_BF16 || t == DEFT_F64))
        a = deft_mul(a, deft_param_f(cx, "rate"));
    if (pick(seed, 2) && t != DEFT_I8) a = deft_add(a, deft_sum(a, DEFT_AXES(0), 1));
    return deft_cast(a, DEFT_F32);
}

/* A sort, positions, or values that meet elements at indices, in some dtype. x: the inputs. */
static deft_tensor *routine(deft_ctx *cx, deft_tensor *a, deft_tensor *c, deft_tensor *const *x,
                            uint64_t *seed)
{
    static const deft_dtype types[] = { DEFT_F32, DEFT_F16, DEFT_BF16, DEFT_F64,
                                        DEFT_I8,  DEFT_I32, DEFT_I64,  DEFT_U8 };
    const deft_dtype t = types[pick(seed, LEN(types))];
    const deft_scatter_how how = (deft_scatter_how)pick(seed, 5);
    const bool largest = pick(seed, 2);
    deft_tensor *at = x[IN_INDEX], *k, *v = deft_cast(c, t), *const u = deft_cast(a, t);
    if (pick(seed, 3) == 0) at = deft_cast(at, DEFT_I32);
    deft_tensor *const whole = deft_cast(c, DEFT_I32);
    deft_tensor *const each = deft_bitwise_and(whole, deft_const_i(cx, 3));
    switch (pick(seed, 12)) {
    case 0: v = deft_sort(u, (int)pick(seed, 2), largest); break;
    case 1: v = deft_argsort(u, (int)pick(seed, 2), largest); break;
    case 2:
        k = deft_topk(u, 2, 1, largest, &v);
        k = deft_add(deft_cast(k, DEFT_F32), deft_sum(v, DEFT_AXES(1), 1));
        v = deft_mul(deft_sum(k, DEFT_AXES(1), 1), a);
        break;
    case 3: v = deft_index_add(u, at, v, 0); break;
    case 4: v = deft_index_copy(u, at, v, 0); break;
    case 5: v = deft_index_reduce(u, at, v, 0, how, largest); break;
    case 6: v = deft_scatter_add(u, each, v, 1); break;
    case 7: v = deft_scatter(u, each, v, 1); break;
    case 8: v = deft_scatter_reduce(u, each, v, 1, how, largest); break;
    case 9:
        v = deft_nonzero(deft_slice(u, DEFT_FULL, DEFT_AT(1)), WIDTH, &k);
        v = deft_add(deft_add(a, deft_reshape(v, DEFT_SHAPE(WIDTH))), k);
        break;
    case 10:
        v = deft_gt(deft_slice(c, DEFT_FULL, DEFT_AT(2)), number(cx, 0));
        v = deft_compress(deft_slice(u, DEFT_FULL, DEFT_AT(1)), v, WIDTH, &k);
        v = deft_add(deft_add(a, v), k);
        break;
    default:
        /* It computes the number of its steps from an extent, which is not an open one here. */
        v = deft_searchsorted(deft_sort(deft_max(u, DEFT_AXES(0), 0), 0, false), v, largest);
    }
    return deft_tanh(deft_cast(v, DEFT_F32));
}

/* C code that computes from the number of rows. */
static void put_computed(deft_ctx *cx, pool *p, deft_tensor *const *x, uint64_t *seed)
{
    deft_tensor *const a = any_a(p, seed), *const b = any_b(p, seed);
    const int64_t rows = deft_dim(x[0], 0);
    deft_tensor *t = deft_slice(a, DEFT_FULL, DEFT_AT(2));
    switch (pick(seed, 14)) {
    case 0: put_a(p, seed, deft_mul(a, number(cx, 1.0 / (double)(rows + 1)))); return;
    case 1: put_b(p, seed, deft_add(b, number(cx, (double)(rows / 2)))); return;
    case 2: put_b(p, seed, deft_slice(a, DEFT_AT(rows ? rows / 2 : 0), DEFT_AT(1))); return;
    case 3: put_a(p, seed, deft_add(a, number(cx, (double)(rows % 3)))); return;
    case 4:
        for (int64_t i = 0; i * i < rows && i < 9; i++) t = deft_sin(t);
        put_b(p, seed, deft_max(t, DEFT_ALL_AXES, 0));
        return;
    case 5:
        t = deft_searchsorted(deft_sort(t, 0, false), t, pick(seed, 2));
        put_a(p, seed, deft_mul(a, deft_unsqueeze(deft_cast(t, DEFT_F32), 1)));
        return;
    case 6: put_a(p, seed, rows > 100 ? deft_sin(a) : deft_cos(a)); return;
    case 7: put_a(p, seed, rows == 1 ? deft_sin(a) : deft_cos(a)); return;
    case 8:
        t = deft_full(cx, DEFT_SHAPE(rows, WIDTH), DEFT_F32, 0.5);
        put_a(p, seed, pick(seed, 2) ? deft_mul(a, t) : deft_sub(deft_cumsum(t, 0), a));
        return;
    case 9:
        t = deft_arange(cx, 0, (double)rows, 1, DEFT_F32);
        put_a(p, seed, deft_mul(a, deft_unsqueeze(deft_sin(t), 1)));
        return;
    case 10: put_b(p, seed, deft_median(t, 0, false)); return;
    case 11:
        t = deft_slice(a, rows > 1 ? DEFT_R(1, DEFT_END) : DEFT_FULL);
        put_b(p, seed, deft_max(t, DEFT_ALL_AXES, 0));
        return;
    case 12: put_a(p, seed, deft_flip(a, DEFT_AXES(0))); return;
    default:
        t = deft_cast(deft_full(cx, DEFT_SHAPE(), DEFT_I64, (double)rows), DEFT_F32);
        put_a(p, seed, deft_div(a, deft_add(t, number(cx, 1))));
    }
}

/* Appends one operation. x: the inputs of the function. */
static void put_op(deft_ctx *cx, side *s, pool *p, deft_tensor *const *x, uint64_t *seed)
{
    deft_tensor *const a = any_a(p, seed), *const c = any_a(p, seed), *const b = any_b(p, seed);
    deft_tensor *const v = s->outside[1], *const w = pick(seed, 2) ? s->outside[0] : x[IN_WEIGHTS];
    deft_tensor *t, *made[3];
    uint64_t own = oracle_next(seed);
    switch (pick(seed, 36)) {
    case 0: put_a(p, &own, deft_add(a, deft_mul(c, deft_param_f(cx, "rate")))); return;
    case 1: put_a(p, &own, deft_mul(a, b)); return;
    case 2: put_a(p, &own, deft_sub(deft_sin(a), deft_param_f(cx, "shift"))); return;
    case 3: put_a(p, &own, deft_add(a, deft_param_i(cx, "count"))); return;
    case 4: put_a(p, &own, deft_where(deft_gt(a, b), a, c)); return;
    case 5: put_a(p, &own, deft_flip(a, DEFT_AXES(1))); return;
    case 6: put_a(p, &own, deft_tanh(deft_cumsum(a, (int)pick(&own, 2)))); return;
    case 7: put_a(p, &own, deft_tanh(deft_matmul(a, w))); return;
    case 8: put_a(p, &own, deft_softmax(a, (int)pick(&own, 2))); return;
    case 9: put_a(p, &own, deft_relu(deft_add(deft_matmul(a, w), v))); return;
    case 10: put_a(p, &own, deft_tanh(deft_matmul(c, deft_matmul(deft_t(a), c)))); return;
    case 11:
        t = deft_add(a, number(cx, 1));
        deft_assign(deft_slice(t, DEFT_FULL, DEFT_R(1, 3)), b);
        put_a(p, &own, t);
        return;
    case 12: put_a(p, &own, deft_add(deft_mul(a, number(cx, 0)), b)); return;
    case 13: put_b(p, &own, deft_tanh(deft_sum(a, DEFT_ALL_AXES, 0))); return;
    case 14: put_b(p, &own, deft_max(a, DEFT_ALL_AXES, 0)); return;
    case 15:
        put_b(p, &own, deft_add(b, deft_mul(any_b(p, &own), deft_param_f(cx, "rate"))));
        return;
    case 16: put_a(p, &own, deft_sub(a, deft_mean(a, DEFT_AXES(0), 1))); return;
    case 17: put_b(p, &own, deft_slice(a, DEFT_AT(0), DEFT_AT(pick(&own, 4)))); return;
    case 18: put_a(p, &own, deft_add(deft_mul(deft_take(a, x[IN_INDEX], 0), v), c)); return;
    case 19: put_a(p, &own, deft_add(a, draw(cx, s, p, pick(&own, 3) == 0, &own))); return;
    case 20:
        put_b(p, &own, deft_mean(deft_mul(draw(cx, s, p, true, &own), v), DEFT_ALL_AXES, 0));
        return;
    case 21: put_a(p, &own, in_dtype(cx, a, c, &own)); return;
    case 22:
        if (deft_scan(cx, halve, NULL, &a, 1, NULL, 0, 1 + pick(&own, 4), 1, made))
            put_a(p, &own, deft_add(made[0], deft_sum(made[1], DEFT_ALL_AXES, 0)));
        return;
    case 23:
        if (deft_while(cx, is_far, further, NULL, &a, 1, 5, made)) put_a(p, &own, made[0]);
        return;
    case 24:
        t = deft_gt(b, deft_param_f(cx, "shift"));
        if (deft_cond(t, negated, further, NULL, &a, 1, made, 1)) put_a(p, &own, made[0]);
        return;
    case 25: put_a(p, &own, deft_layer_norm(a, 1, v, NULL, 1e-5)); return;
    case 26: put_a(p, &own, deft_mul(a, deft_max(c, DEFT_AXES(1), 1))); return;
    case 27:
        t = deft_concat((deft_tensor *[]){ a, c }, 2, 1);
        put_a(p, &own, deft_slice(t, DEFT_FULL, DEFT_RS(1, DEFT_END, 2)));
        return;
    case 28: put_a(p, &own, deft_sub(a, deft_std(c, DEFT_AXES(0), 1, 0))); return;
    case 29:
    case 30:
    case 31:
    case 32:
    case 33: put_a(p, &own, routine(cx, a, c, x, &own)); return;
    default:
        put_a(p, &own, deft_square(deft_slice(a, DEFT_FULL, DEFT_RS(-1, DEFT_END, -1))));
        return;
    }
}

/* The captured function. */
static deft_status run(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                       size_t n_out, void *user)
{
    side *const s = user;
    uint64_t seed = s->p->seed;
    pool p = { .n_a = 0 };
    deft_tensor *grads[2];
    (void)n_in, (void)n_out;
    for (int i = 0; i < N_MATRICES; i++) put_a(&p, &seed, in[i]);
    put_b(&p, &seed, in[IN_NUMBER]);
    for (unsigned i = 0; i < s->p->n_ops; i++) put_op(cx, s, &p, in, &seed);
    if (s->p->computes) put_computed(cx, &p, in, &seed);
    for (unsigned i = 0; i < 3; i++) out[i] = deft_add(p.a[p.n_a - 1 - i % p.n_a], number(cx, 1));
    deft_tensor *const last = deft_tanh(p.a[p.n_a - 1]);
    deft_tensor *const bias = deft_mul(deft_sin(any_b(&p, &seed)), number(cx, 0.125));
    deft_tensor *const kept =
        deft_mean(deft_square(deft_matmul(in[0], s->outside[0])), DEFT_ALL_AXES, 0);
    deft_tensor *const loss =
        deft_add(deft_add(deft_mean(deft_square(last), DEFT_ALL_AXES, 0), bias), kept);
    out[3] = loss;
    out[4] = deft_neg(in[1]);
    out[5] = deft_mul(s->outside[0], number(cx, 2));
    if (!s->p->trains) return DEFT_OK;
    const deft_grad_options o = { .size = sizeof o, .unused_is_zero = true };
    deft_tensor *const with[2] = { in[0], s->outside[0] };
    if (!deft_grad(&loss, NULL, 1, with, 2, &o, grads)) return DEFT_OK;
    out[4] = grads[0];
    deft_assign(s->outside[0],
                deft_sub(s->outside[0], deft_mul(grads[1], deft_param_f(cx, "rate"))));
    return DEFT_OK;
}

/* ---- data ---- */

/* What a call is given. */
typedef struct data {
    int64_t rows;
    double rate, shift;
    int64_t count;
    uint64_t draw;
    float matrix[N_MATRICES][MOST_ROWS * WIDTH], weights[WIDTH * WIDTH], number;
    int64_t index[MOST_ROWS];
    float outside[2][WIDTH * WIDTH];
} data;

/* What it gives. */
typedef struct result {
    bool failed;
    float out[N_OUT][MOST_ROWS * WIDTH], outside[WIDTH * WIDTH];
} result;

/* Values of p. What is outside has the same ones in all calls where they are linked. */
static void draw_data(data *d, const program *p, uint64_t kind, int64_t rows)
{
    uint64_t seed = oracle_mix(p->seed, kind), fixed = oracle_mix(p->seed, 3);
    d->rows = rows;
    for (int i = 0; i < N_MATRICES; i++)
        oracle_fill(DEFT_F32, d->matrix[i], (size_t)rows * WIDTH, oracle_next(&seed), ORACLE_TAME);
    oracle_fill(DEFT_F32, d->weights, LEN(d->weights), oracle_next(&seed), ORACLE_TAME);
    oracle_fill(DEFT_F32, &d->number, 1, oracle_next(&seed), ORACLE_TAME);
    for (int i = 0; i < 2; i++) {
        const bool is_linked = !p->passes && !(i == 0 && p->trains);
        oracle_fill(DEFT_F32, d->outside[i], WIDTH * WIDTH, oracle_next(is_linked ? &fixed : &seed),
                    ORACLE_TAME);
    }
    for (int64_t i = 0; i < rows; i++)
        d->index[i] = (int64_t)pick(&seed, (unsigned)rows) - (pick(&seed, 4) ? 0 : rows);
    d->rate = (double)pick(&seed, 100) / 64 - 0.25;
    d->shift = (double)pick(&seed, 100) / 16 - 1;
    d->count = (int64_t)pick(&seed, 7) - 3;
    d->draw = oracle_next(&seed) >> 20;
}

static size_t out_size(const data *d, int i)
{
    return i == 3 ? 1 : i == 5 ? WIDTH * WIDTH : (size_t)d->rows * WIDTH;
}

/* ---- the plain function ---- */

static deft_status call_capture(deft_capture *c, side *s, const data *d, deft_tensor **out)
{
    deft_ctx *const cx = deft_ctx_of(s->outside[0]);
    deft_tensor *in[N_IN];
    const size_t bytes = (size_t)d->rows * WIDTH * sizeof(float);
    s->rng = (deft_rng){ .seed = 77, .next = d->draw };
    for (int i = 0; i < N_MATRICES; i++)
        in[i] = deft_from(cx, DEFT_SHAPE(d->rows, WIDTH), DEFT_F32, d->matrix[i], bytes);
    in[IN_INDEX] =
        deft_from(cx, DEFT_SHAPE(d->rows), DEFT_I64, d->index, (size_t)d->rows * sizeof *d->index);
    in[IN_WEIGHTS] =
        deft_from(cx, DEFT_SHAPE(WIDTH, WIDTH), DEFT_F32, d->weights, sizeof d->weights);
    in[IN_NUMBER] = deft_from(cx, DEFT_SHAPE(), DEFT_F32, &d->number, sizeof d->number);
    deft_status st = deft_capture_set_f(c, "rate", d->rate);
    if (st == DEFT_OK) st = deft_capture_set_f(c, "shift", d->shift);
    if (st == DEFT_OK) st = deft_capture_set_i(c, "count", d->count);
    if (st == DEFT_OK) st = deft_capture_call(c, in, N_IN, out, N_OUT);
    return st;
}

static void make_outside(deft_ctx *cx, side *s, const data *d)
{
    s->outside[0] = deft_keep(
        deft_from(cx, DEFT_SHAPE(WIDTH, WIDTH), DEFT_F32, d->outside[0], sizeof d->outside[0]));
    s->outside[1] =
        deft_keep(deft_from(cx, DEFT_SHAPE(WIDTH), DEFT_F32, d->outside[1], WIDTH * sizeof(float)));
}

/* Calls the function in a new capture of cx. */
static void run_plain(deft_ctx *cx, const program *p, const data *d, result *r)
{
    side s = { .p = p };
    deft_tensor *out[N_OUT];
    const deft_scope scope = deft_scope_begin(cx);
    make_outside(cx, &s, d);
    deft_capture *c = deft_capture_create(cx, run, &s);
    r->failed = call_capture(c, &s, d, out) != DEFT_OK;
    for (int i = 0; i < N_OUT && !r->failed; i++)
        r->failed = deft_read(out[i], DEFT_F32, r->out[i], out_size(d, i) * sizeof(float));
    if (!r->failed)
        r->failed = deft_read(s.outside[0], DEFT_F32, r->outside, sizeof r->outside) != DEFT_OK;
    deft_capture_destroy(&c);
    for (int i = 0; i < 2; i++) deft_drop(&s.outside[i]);
    if (r->failed) deft_clear(cx);
    if (deft_scope_end(scope) != DEFT_OK) r->failed = true;
}

/* ---- the exported function ---- */

typedef struct threads {
    int n;
    void *user;
    void (*run)(void *user, int n_tasks, void (*task)(void *data, int i), void *data);
} threads;

static void run_backwards(void *user, int n, void (*task)(void *data, int i), void *at)
{
    ++*(int *)user;
    for (int i = n; i-- > 0;) task(at, i);
}

/* A parameter: its name, and how the program that calls the function passes it. */
typedef struct argument {
    char name[40];
    char kind; /* 'e': an extent, 'f': a double, 'i': an int64_t, 'p': an array */
    bool is_vector, is_new;
} argument;

typedef struct exported {
    void *library;
    int (*call)(void *const *args, void *workspace, const threads *t);
    int64_t (*bytes)(int64_t rows, int64_t n_threads);
    argument arg[MOST_ARGS];
    int n_args;
    bool is_same;  /* the new value of what is outside may take the place of the old one */
    bool is_fixed; /* an output has the extents of the recording */
} exported;

static bool is_double(const char *name)
{
    return !strcmp(name, "rate") || !strcmp(name, "shift");
}

/* Reads the parameters that a header names. */
static bool read_header(const char *path, exported *x)
{
    char line[400], what[300];
    FILE *const f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        argument *const a = &x->arg[x->n_args];
        if (x->n_args == MOST_ARGS || sscanf(line, " *   %39s %299[^\n]", a->name, what) != 2)
            continue;
        a->kind = strncmp(what, "an extent", 9) == 0  ? 'e'
                  : strncmp(what, "a number", 8) == 0 ? is_double(a->name) ? 'f' : 'i'
                  : strstr(what, ", read") != NULL    ? 'p'
                  : strstr(what, ", written") != NULL ? 'p'
                                                      : 0;
        x->is_fixed |= strstr(what, "f32[5, 4], written") != NULL;
        x->is_same |= strstr(what, "may be the same array as outside") != NULL;
        a->is_new = strstr(a->name, "_new") != NULL;
        a->is_vector = strncmp(what, "f32[4]", 6) == 0;
        if (a->kind) x->n_args++;
    }
    return f && fclose(f) == 0 && x->n_args > 0;
}

/* Writes a C file whose functions call the exported ones with all arguments in an array. */
static bool write_caller(const char *path, const exported *x, bool is_open)
{
    FILE *const f = fopen(path, "w");
    if (!f) return false;
    fprintf(f,
            "#include \"f.h\"\n"
            "int call(void *const *a, void *workspace, const deft_threads *t);\n"
            "int64_t bytes(int64_t rows, int64_t n_threads);\n"
            "int call(void *const *a, void *workspace, const deft_threads *t)\n{\n    return f(");
    for (int i = 0; i < x->n_args; i++) {
        const char kind = x->arg[i].kind;
        if (kind == 'p') fprintf(f, "a[%d], ", i);
        if (kind != 'p') fprintf(f, "*(const %s *)a[%d], ", kind == 'f' ? "double" : "int64_t", i);
    }
    fprintf(f,
            "workspace, t);\n}\n"
            "int64_t bytes(int64_t rows, int64_t n_threads)\n{\n"
            "    (void)rows;\n    return f_workspace_bytes(%sn_threads);\n}\n",
            is_open ? "rows, " : "");
    return fclose(f) == 0;
}

/* Compiles and opens what was exported. Returns false with a reason. */
static bool open_exported(exported *x, const char *way, bool is_open, char *why, size_t n)
{
    static int n_libraries;
    char command[400], path[128];
    const char *const suffix = !strcmp(way, "c") ? ".c" : !strcmp(way, "shared") ? ".so" : ".o";
    snprintf(path, sizeof path, "%s/f.h", folder);
    *x = (exported){ .library = NULL };
    if (!read_header(path, x)) return snprintf(why, n, "no header"), false;
    snprintf(path, sizeof path, "%s/caller.c", folder);
    if (!write_caller(path, x, is_open)) return snprintf(why, n, "no caller"), false;
    snprintf(command, sizeof command,
             "%s -shared -o %s/l%d.so %s/caller.c %s/f%s -Wl,-rpath,%s -lm", cc, folder,
             n_libraries, folder, folder, suffix, folder);
    if (system(command) != 0) return snprintf(why, n, "%s", command), false;
    snprintf(path, sizeof path, "%s/l%d.so", folder, n_libraries++);
    x->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    (void)unlink(path);
    if (!x->library) return snprintf(why, n, "%s", dlerror()), false;
    void *const fn[2] = { dlsym(x->library, "call"), dlsym(x->library, "bytes") };
    memcpy(&x->call, &fn[0], sizeof fn[0]);
    memcpy(&x->bytes, &fn[1], sizeof fn[1]);
    return true;
}

/* The memory of a parameter of a call, where it is given by d and returned by r. NULL: unknown. */
static void *argument_of(const argument *a, data *d, result *r, bool is_same, int64_t *word)
{
    unsigned i;
    if (a->kind == 'e') return &d->rows;
    if (!strcmp(a->name, "rate")) return &d->rate;
    if (!strcmp(a->name, "shift")) return &d->shift;
    if (!strcmp(a->name, "count")) return &d->count;
    if (!strcmp(a->name, "seed0")) return *word = 77, word;
    if (!strcmp(a->name, "draw0")) return &d->draw;
    if (sscanf(a->name, "in%u", &i) == 1)
        return i < N_MATRICES    ? (void *)d->matrix[i]
               : i == IN_INDEX   ? (void *)d->index
               : i == IN_WEIGHTS ? (void *)d->weights
                                 : (void *)&d->number;
    if (!strncmp(a->name, "outside", 7) && a->is_vector) return d->outside[1];
    if (!strncmp(a->name, "outside", 7)) /* the new value takes the place of the old one */
        return a->is_new || is_same ? r->outside : d->outside[0];
    if (sscanf(a->name, "out%u", &i) == 1) return r->out[i];
    return NULL;
}

static bool call_exported(const exported *x, data *d, bool forks, result *r, int *n_forks,
                          char *why, size_t n)
{
    void *args[MOST_ARGS];
    int64_t words[MOST_ARGS];
    const threads three = { 3, n_forks, run_backwards };
    const int64_t size = x->bytes(d->rows, forks ? 3 : 1);
    if (size < 0) return snprintf(why, n, "no size"), false;
    memset(r, 0x77, sizeof *r);
    memcpy(r->outside, d->outside[0], sizeof r->outside);
    for (int i = 0; i < x->n_args; i++) {
        args[i] = argument_of(&x->arg[i], d, r, x->is_same, &words[i]);
        if (!args[i]) return snprintf(why, n, "what is %s?", x->arg[i].name), false;
    }
    unsigned char *const ws = oracle_alloc((size_t)size + GUARD);
    memset(ws, 0x5A, (size_t)size + GUARD);
    const int st = x->call(args, ws, forks ? &three : NULL);
    bool left = false;
    for (int i = 0; i < GUARD; i++) left |= ws[size + i] != 0x5A;
    free(ws);
    if (st != 0) snprintf(why, n, "it returned %d", st);
    if (left) snprintf(why, n, "the workspace was left");
    return st == 0 && !left;
}

static bool same(const data *d, const result *want, const result *got, char *why, size_t n)
{
    for (int i = 0; i <= N_OUT; i++) {
        const float *const a = i < N_OUT ? want->out[i] : want->outside;
        const float *const b = i < N_OUT ? got->out[i] : got->outside;
        const size_t size = i < N_OUT ? out_size(d, i) : LEN(want->outside);
        const size_t at = oracle_difference(DEFT_F32, a, b, size);
        if (at == size) continue;
        snprintf(why, n, "result %d, element %zu: %a, must be %a", i, at, (double)b[at],
                 (double)a[at]);
        return false;
    }
    return true;
}

/* ---- programs ---- */

typedef enum outcome { EQUAL, REFUSED, INVALID, WRONG } outcome;

static long n_calls, n_refused, n_exported, n_not_accepted;
static int n_forks;
static bool prints;

/* Calls what was exported with other rows, numbers and draws. */
static outcome compare_calls(const exported *x, const program *p, char *why, size_t n)
{
    static const int64_t rows[] = { 5, 1, 3, 64, 0, 2, 130, MOST_ROWS };
    static data d;
    static result want, got;
    char what[500];
    const bool is_open = p->is_open && !x->is_fixed;
    for (unsigned i = 0; i < (is_open ? LEN(rows) : 2); i++) {
        if (rows[i] == MOST_ROWS && p->seed % 4) break;
        draw_data(&d, p, 100 + i, is_open ? rows[i] : 5);
        run_plain(paths[0].cx, p, &d, &want);
        if (want.failed && d.rows == 0) continue; /* without rows there is no greatest element */
        if (want.failed) return snprintf(why, n, "the plain function failed"), WRONG;
        if (is_open && x->bytes(d.rows, 1) < 0) {
            n_not_accepted++;
            continue;
        }
        for (int forks = 0; forks < 2; forks++) {
            const bool ok = call_exported(x, &d, forks, &got, &n_forks, what, sizeof what) &&
                            same(&d, &want, &got, what, sizeof what);
            n_calls++;
            if (ok) continue;
            snprintf(why, n, "%lld rows, %d threads: %s", (long long)d.rows, forks ? 3 : 1, what);
            return WRONG;
        }
    }
    return EQUAL;
}

/* Exports the function and compares it. */
static outcome compare(const program *p, const char *way, char *why, size_t n)
{
    deft_ctx *const cx = paths[1].cx;
    static data d;
    side s = { .p = p };
    deft_tensor *out[N_OUT];
    char path[96];
    outcome found = INVALID;
    const deft_scope scope = deft_scope_begin(cx);
    snprintf(path, sizeof path, "%s/f", folder);
    draw_data(&d, p, 99, 5);
    make_outside(cx, &s, &d);
    deft_capture *c = deft_capture_create(cx, run, &s);
    bool is_open = false;
    deft_export_extent extents[] = {
        { "rows", 0, 0 }, { "rows", 1, 0 }, { "rows", 2, 0 }, { "rows", IN_INDEX, 0 }
    };
    const bool is_level = strcmp(way, "c") != 0 && strcmp(way, "shared") != 0;
    deft_export_options o = { .size = sizeof o,
                              .passes_outside = p->passes,
                              .as_c = strcmp(way, "c") == 0,
                              .as_shared = strcmp(way, "shared") == 0,
                              .levels = is_level ? way : "x86-64-v3",
                              .extents = extents };
    /* An input that the function does not use has no open axis. */
    if (call_capture(c, &s, &d, out) != DEFT_OK) {
        snprintf(why, n, "%s", deft_message(cx));
    } else {
        deft_status st = DEFT_OK;
        unsigned unused;
        for (o.n_extents = p->is_open ? LEN(extents) : 0;;) {
            st = deft_export(c, path, &o);
            const char *const at = strstr(deft_message(cx), "does not use input");
            if (st == DEFT_OK || !at || sscanf(at, "does not use input %u", &unused) != 1) break;
            deft_clear(cx);
            size_t k = 0;
            while (extents[k].input != unused) k++;
            extents[k] = extents[--o.n_extents];
        }
        is_open = o.n_extents > 0;
        if (st != DEFT_OK) {
            snprintf(why, n, "%s", deft_message(cx));
            found = st == DEFT_E_ARG ? REFUSED : WRONG;
        } else {
            exported x;
            found = open_exported(&x, way, is_open, why, n) ? compare_calls(&x, p, why, n) : WRONG;
            if (x.library) (void)dlclose(x.library);
        }
    }
    deft_capture_destroy(&c);
    for (int i = 0; i < 2; i++) deft_drop(&s.outside[i]);
    deft_clear(cx);
    if (deft_scope_end(scope) != DEFT_OK) found = WRONG;
    return found;
}

/* Compares a program, without its open extent where that is refused. Returns false when it is
 * wrong. */
static bool check(program p, const char *way)
{
    char why[700] = "", shorter[700] = "";
    outcome found = compare(&p, way, why, sizeof why);
    if (found == REFUSED && p.is_open) {
        if (prints) printf("refused: %s\n", why);
        n_refused++;
        p.is_open = false;
        found = compare(&p, way, why, sizeof why);
    }
    n_exported += found == EQUAL;
    if (found == INVALID && prints) printf("invalid: %s\n", why);
    if (found == REFUSED) {
        n_refused++;
        if (prints) printf("refused: %s\n", why);
    }
    if (found != WRONG) return true;
    program q = p;
    for (q.n_ops = 0; q.n_ops < p.n_ops; q.n_ops++)
        if (compare(&q, way, shorter, sizeof shorter) == WRONG) break;
    printf("FAIL program %llu, %s%s%s: %s\n  its first %u operations: %s\n",
           (unsigned long long)p.seed, way, p.trains ? ", trains" : "", p.is_open ? ", open" : "",
           why, q.n_ops, shorter);
    return false;
}

static const char *next_way(const char *list, long k)
{
    static const char *const turns[] = { "x86-64-v3", "c", "shared", "x86-64", "x86-64-v2" };
    static char one[32];
    if (!strcmp(list, "turns")) return turns[(size_t)k % LEN(turns)];
    long n = 1;
    for (const char *at = list; *at; at++) n += *at == ',';
    for (long i = k % n; i > 0; i--) list = strchr(list, ',') + 1;
    snprintf(one, sizeof one, "%.*s", (int)strcspn(list, ","), list);
    return one;
}

int main(int argc, char **argv)
{
    oracle_asked asked = { .count = 200, .quick = 10, .full = 4000, .seed = 1 };
    const char *ways = "turns";
    long failures = 0, k = 0;
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--ways=", 7))
            ways = argv[i] + 7;
        else if (!strncmp(argv[i], "--cc=", 5))
            cc = argv[i] + 5;
        else if (!oracle_takes(&asked, argv[i]))
            prints |= !strcmp(argv[i], "--print");
    }
    if (oracle_open(paths, LEN(paths)) != LEN(paths)) return 77;
    snprintf(folder, sizeof folder, "/tmp/deft-export-XXXXXX");
    if (!mkdtemp(folder)) return perror(folder), 1;
    const double t0 = oracle_now();
    for (; k < (long)asked.count && (k < 4 || test_time_left(1)) && failures < 5; k++) {
        uint64_t seed = oracle_mix(asked.seed + (uint64_t)k, 5);
        const uint64_t own = asked.seed + (uint64_t)k;
        const program p = { .seed = own,
                            .n_ops = 1 + pick(&seed, MOST_OPS),
                            .trains = pick(&seed, 2),
                            .passes = pick(&seed, 2),
                            .is_open = pick(&seed, 3) > 0,
                            .computes = pick(&seed, 4) == 0 };
        if (prints)
            printf("program %llu, %u ops\n", (unsigned long long)own, p.n_ops), fflush(stdout);
        failures += !check(p, next_way(ways, k));
    }
    printf("%ld functions, %ld exported, %ld refusals, %ld calls, %ld extents not accepted, %d "
           "forks, %ld failures, %.1f s\n",
           k, n_exported, n_refused, n_calls, n_not_accepted, n_forks, failures, oracle_now() - t0);
    if (n_exported * 2 < k) failures++, printf("FAIL: too few functions were exported\n");
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (system(command) != 0) failures++;
    oracle_close(paths, LEN(paths));
    return failures ? 1 : 0;
}
