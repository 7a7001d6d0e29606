/* SPDX-License-Identifier: Apache-2.0
 *
 * Captured functions. A random function assigns tensors of its own, of its arguments and from
 * outside, passes values through as they are, exchanges them, returns old ones, writes parts. It is
 * called many times, each time with other arguments: now and then one tensor twice, one that the
 * function also reaches by itself, memory of the caller's wrapped anew, two tensors of one value.
 * One context calls it as a capture, which replays it; another one calls it in a plain step. After
 * each call all tensors, all outputs that were ever returned, all mappings and all memory must be
 * equal bit for bit. Half of the programs are of f64 and exact, so that fast numerics give the same
 * bits. Each of the others has a dtype that is drawn among all numbers, complex ones too, and also
 * reads and writes at places that are computed.
 *
 *   capture_programs [COUNT [SEED]] [--quick | --full] [--print]
 *
 * A statement that does not fit its operands is left out on both sides, and any sublist is a
 * program too, so that a failing one is made smaller.
 * Why this file is long: generator, runner and shrinker of one kind of program.
 */
#include "ops/dtype.h"
#include "../support/budget.h"
#include "../support/half_ref.h"
#include "../support/int_ref.h"
#include "../support/oracle.h"
#include "../support/plan_rules.h"

#include <stdlib.h>
#include <string.h>

/* Programs that are run whatever time that takes. */
enum { LEAST = 500 };

enum {
    N = 3,        /* elements: of all tensors, so that any value fits anywhere */
    OUTSIDE = 4,  /* tensors that the function reaches by itself */
    OTHERS = 3,   /* tensors that are arguments alone */
    MEMORIES = 3, /* memory of the caller's */
    ARGS = 3,
    LOCALS = 6,
    OUTS = 2,
    MAX_STMTS = 14,
    MAX_CALLS = 14,
    HELD = MAX_CALLS * OUTS,
    WIDEST = 16 /* bytes of an element */
};

/* N elements of any dtype; what lies behind them is 0. */
typedef struct row {
    _Alignas(WIDEST) unsigned char at[N * WIDEST];
} row;

typedef enum kind {
    K_MAP,      /* local = f(a, b) */
    K_NUMBER,   /* local = a times a number */
    K_SAME,     /* local = a, through an op that changes nothing */
    K_ASSIGN,   /* target = a */
    K_ASSIGN_F, /* target = f(target, a) */
    K_SHIFT,    /* target = other target, as it is */
    K_EXCHANGE, /* two targets */
    K_PART,     /* a part of target = a part of a */
    K_PRODUCT,  /* local = a product of small integers as halves, which is exact in any order */
    K_OUT,      /* an output is a, or the target itself */
    K_PLACES,   /* local = elements of a and b at places that are computed, or scans of them */
    N_KINDS
} kind;

static const char *const kind_name[N_KINDS] = { "map",      "number", "same",     "assign",
                                                "assign f", "shift",  "exchange", "part",
                                                "product",  "out",    "places" };

typedef struct stmt {
    uint8_t kind, dst, a, b, p;
} stmt;

typedef enum argument_kind { IS_OTHER, IS_OUTSIDE, IS_MEMORY } argument_kind;

typedef struct argument {
    uint8_t kind, index;
} argument;

/* What happens before and after a call. */
typedef struct turn {
    argument arg[ARGS];
    bool maps, unmaps, drops, evals;
    int alias, alias_of; /* outside tensor `alias` is assigned from another one; -1: not */
    int strides;         /* of wrapped memory */
    double number;
} turn;

typedef struct world {
    uint64_t seed;
    deft_dtype dtype; /* of all tensors */
    bool is_exact;    /* no result is rounded */
    size_t n, n_calls;
    unsigned n_args;
    bool anew, in_scope; /* wrapped for each call; each call in a scope of its own */
    stmt at[MAX_STMTS];
    turn turns[MAX_CALLS];
} world;

typedef struct side {
    const world *w;
    const turn *turn;
    bool captured;
    deft_ctx *cx;
    deft_capture *capture;
    deft_tensor *outside[OUTSIDE], *others[OTHERS], *wrapped[MEMORIES];
    unsigned char *memory[MEMORIES]; /* 2 N elements each */
    deft_tensor *held[HELD];
    deft_mapped mapped[MAX_CALLS];
    size_t n_held;
    /* while the function runs */
    deft_tensor *local[LOCALS];
    deft_tensor *const *in;
} side;

static void ok(const side *s, deft_status st)
{
    if (st == DEFT_OK) return;
    printf("FAIL: seed %llu: %s: %s\n", (unsigned long long)s->w->seed, deft_status_text(st),
           deft_message(s->cx));
    exit(1);
}

/* ---- the function ---- */

/* What can be assigned: arguments and what is outside. */
static deft_tensor *target(const side *s, unsigned i)
{
    i %= s->w->n_args + OUTSIDE;
    return i < s->w->n_args ? s->in[i] : s->outside[i - s->w->n_args];
}

static deft_tensor *operand(const side *s, unsigned i)
{
    deft_tensor *const t = s->local[i % LOCALS];
    return i % 3 == 0 && t ? t : target(s, i);
}

/* ---- dtypes ---- */

static bool is_whole(deft_dtype t)
{
    return int_ref_bits(t) != 0;
}

/* The real dtype of the parts of t. */
static deft_dtype part_dtype(deft_dtype t)
{
    return t == DEFT_C64 ? DEFT_F32 : t == DEFT_C128 ? DEFT_F64 : t;
}

static size_t parts_of(deft_dtype t)
{
    return part_dtype(t) == t ? 1 : 2;
}

/* All NaN of n elements become one. */
static void canonical(deft_dtype t, void *data, size_t n)
{
    oracle_canonical(part_dtype(t), data, n * parts_of(t));
}

/* Part i of data, which has the parts of some elements. */
static void put_part(deft_dtype t, void *data, size_t i, int64_t v)
{
    const deft_dtype real = part_dtype(t);
    if (is_whole(real)) int_ref_put(real, data, i, v);
    if (real == DEFT_F32) ((float *)data)[i] = (float)v;
    if (real == DEFT_F64) ((double *)data)[i] = (double)v;
    if (real == DEFT_F16 || real == DEFT_BF16) ((uint16_t *)data)[i] = half_bits(real, (double)v);
}

/* Integers take integers: by a fraction they would become f32. */
static deft_tensor *number(const side *s, bool fixed, double v)
{
    const double now = fixed ? v : s->turn->number;
    if (is_whole(s->w->dtype)) {
        const int64_t n = (int64_t)(now < 0 ? -4 * now : 4 * now);
        if (!s->captured) return deft_num_i(s->cx, n);
        return fixed ? deft_const_i(s->cx, n) : deft_param_i(s->cx, "number");
    }
    if (!s->captured) return deft_num(s->cx, now);
    return fixed ? deft_const_f(s->cx, v) : deft_param_f(s->cx, "number");
}

/* What a function without a meaning for complex numbers takes of t. */
static deft_tensor *ordered(const side *s, deft_tensor *t)
{
    return parts_of(s->w->dtype) == 2 ? deft_real(t) : t;
}

static deft_tensor *combine(const side *s, unsigned p, deft_tensor *a, deft_tensor *b)
{
    deft_tensor *const half = number(s, true, 0.5);
    switch (p % 4) {
    case 0: return deft_mul(deft_add(a, b), half);
    case 1: return deft_sub(a, deft_mul(b, half));
    case 2: return deft_cast(deft_maximum(ordered(s, a), ordered(s, b)), s->w->dtype);
    default: return deft_add(deft_flip(a, DEFT_AXES(0)), deft_mul(b, half));
    }
}

static deft_tensor *unchanged(const side *s, unsigned p, deft_tensor *a)
{
    const bool is_complex = parts_of(s->w->dtype) == 2;
    switch (p % 5) {
    case 0:
        if (!is_complex) return deft_cast(a, s->w->dtype);
        return p & 8 ? deft_complex(deft_real(a), deft_imag(a)) : deft_conj(deft_conj(a));
    case 1: return deft_reshape(a, DEFT_SHAPE(N));
    case 2:
        if (is_complex) return deft_view_as_complex(deft_view_as_real(a));
        return deft_mul(a, s->captured ? deft_const_i(s->cx, 1) : deft_num_i(s->cx, 1));
    case 3: return deft_flip(deft_flip(a, DEFT_AXES(0)), DEFT_AXES(0));
    default: return a;
    }
}

static deft_tensor *plain_number(const side *s, double v)
{
    return s->captured ? deft_const_f(s->cx, v) : deft_num(s->cx, v);
}

/* The integers of t, at most 7 in magnitude, as bf16 or f16. */
static deft_tensor *small_integers(const side *s, unsigned p, deft_tensor *t)
{
    deft_tensor *const low = plain_number(s, -7), *const high = plain_number(s, 7);
    deft_tensor *const real = deft_cast(ordered(s, t), DEFT_F64);
    deft_tensor *const n = deft_minimum(deft_maximum(deft_floor(real), low), high);
    return deft_cast(n, p % 4 ? DEFT_BF16 : DEFT_F16);
}

static deft_tensor *product(const side *s, unsigned p, deft_tensor *a, deft_tensor *b)
{
    deft_tensor *const column = deft_reshape(a, DEFT_SHAPE(N, 1));
    deft_tensor *const square = small_integers(s, p, deft_sub(column, b));
    deft_tensor *const by = deft_reshape(small_integers(s, p, b), DEFT_SHAPE(N, 1));
    return deft_cast(deft_reshape(deft_matmul(square, by), DEFT_SHAPE(N)), s->w->dtype);
}

/* ---- places that are computed ---- */

static deft_status add_all(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_add(in[0], in[1]);
    return DEFT_OK;
}

/* Numbers from 0 to N - 1 that t decides. */
static deft_tensor *indices(const side *s, deft_tensor *t)
{
    deft_tensor *const real = deft_cast(ordered(s, t), DEFT_F64);
    return deft_cast(deft_minimum(deft_abs(deft_floor(real)), plain_number(s, N - 1)), DEFT_I64);
}

/* N elements of a and b in the dtype of the program, or a single one. */
static deft_tensor *of_places(const side *s, unsigned p, deft_tensor *a, deft_tensor *b)
{
    static const deft_scatter_how how[] = { DEFT_SCATTER_SUM, DEFT_SCATTER_PROD, DEFT_SCATTER_AMIN,
                                            DEFT_SCATTER_AMAX };
    const deft_axes first = DEFT_AXES(0);
    deft_tensor *const at = indices(s, b), *const x = ordered(s, a), *const y = ordered(s, b);
    deft_tensor *const start[DEFT_MAX_RANK] = { deft_slice(at, DEFT_AT(0)) };
    const int64_t sizes[DEFT_MAX_RANK] = { 2 };
    deft_tensor *t = NULL;
    switch (p % 13) {
    case 0:
        t = deft_dynamic_slice(a, start, sizes);
        return deft_concat((deft_tensor *[]){ t, deft_slice(b, DEFT_R(2, 3)) }, 2, 0);
    case 1: return deft_dynamic_update(a, deft_slice(b, DEFT_R(0, 2)), start, sizes);
    case 2: return deft_einsum("a,b,a->b", (deft_tensor *[]){ a, b, a }, 3);
    case 3: return deft_tensordot(a, b, first, first);
    case 4: deft_associative_scan(add_all, NULL, &a, 1, 0, &t); return t;
    case 5: return deft_cumprod(a, 0);
    case 6: return deft_topk(x, N, 0, p & 16, NULL);
    case 7: return is_whole(s->w->dtype) ? deft_median(x, 0, false) : deft_quantile(x, 0.3, 0, 0);
    case 8: return deft_index_reduce(x, at, y, 0, how[p / 16 % 4], p & 8);
    case 9: return deft_scatter_reduce(x, at, y, 0, how[p / 16 % 4], p & 8);
    case 10: return deft_index_copy(a, at, b, 0);
    case 11: return deft_cummax(x, 0);
    default: return deft_take(a, deft_argsort(y, 0, p & 16), 0);
    }
}

static deft_tensor *places(const side *s, unsigned p, deft_tensor *a, deft_tensor *b)
{
    deft_tensor *const t = deft_cast(of_places(s, p, a, b), s->w->dtype);
    return deft_rank(t) ? t : deft_expand(t, DEFT_SHAPE(N));
}

static void run_stmt(side *s, const stmt *st, deft_tensor **out)
{
    deft_tensor **const local = &s->local[st->dst % LOCALS];
    deft_tensor *const a = operand(s, st->a), *const b = operand(s, st->b);
    deft_tensor *const to = target(s, st->dst);
    switch ((kind)st->kind) {
    case K_MAP: *local = combine(s, st->p, a, b); break;
    case K_NUMBER: *local = deft_mul(a, number(s, st->p % 2, 0.75)); break;
    case K_SAME: *local = unchanged(s, st->p, a); break;
    case K_ASSIGN: deft_assign(to, a); break;
    case K_ASSIGN_F: deft_assign(to, combine(s, st->p, to, a)); break;
    case K_SHIFT: deft_assign(to, target(s, st->a)); break;
    case K_EXCHANGE: {
        deft_tensor *const other = target(s, st->a);
        deft_tensor *const was = unchanged(s, st->p % 4, to); /* may be `to` with its new value */
        deft_assign(to, other);
        deft_assign(other, was);
        break;
    }
    case K_PART: {
        const int64_t k = st->p % N;
        if (parts_of(s->w->dtype) == 2 && st->p & 16)
            deft_assign(deft_imag(to), deft_real(a));
        else
            deft_assign(deft_slice(to, DEFT_R(k, k + 1)), deft_slice(a, DEFT_R(N - 1 - k, N - k)));
        break;
    }
    case K_PLACES: *local = places(s, st->p, a, b); break;
    case K_PRODUCT: *local = product(s, st->p, a, b); break;
    case K_OUT: out[st->p % OUTS] = st->p & 8 ? to : a; break;
    case N_KINDS: break;
    }
}

static deft_status function(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    side *const s = user;
    (void)cx, (void)n_in;
    s->in = in;
    memset(s->local, 0, sizeof s->local);
    for (size_t i = 0; i < n_out; i++) out[i] = in[0];
    for (size_t i = 0; i < s->w->n; i++) run_stmt(s, &s->w->at[i], out);
    return DEFT_OK;
}

/* ---- one side ---- */

static deft_tensor *wrap(side *s, unsigned k, int strides)
{
    const int64_t apart[1] = { 2 };
    return deft_wrap_mut(s->cx, DEFT_SHAPE(N), s->w->dtype, s->memory[k],
                         2 * N * deft_dtype_size(s->w->dtype), strides ? apart : NULL);
}

static void open_side(side *s, const world *w, const oracle_path *path, bool captured)
{
    *s = (side){ .w = w, .captured = captured };
    s->cx = oracle_context(path, NULL);
    const size_t n = N * parts_of(w->dtype), bytes = N * deft_dtype_size(w->dtype);
    for (unsigned i = 0; i < OUTSIDE + OTHERS; i++) {
        row v;
        for (size_t k = 0; k < n; k++) put_part(w->dtype, v.at, k, (int64_t)(i * N + k) - 7);
        *(i < OUTSIDE ? &s->outside[i] : &s->others[i - OUTSIDE]) =
            deft_keep(deft_from(s->cx, DEFT_SHAPE(N), w->dtype, v.at, bytes));
    }
    for (unsigned i = 0; i < MEMORIES; i++) {
        s->memory[i] = oracle_alloc(2 * bytes);
        for (size_t k = 0; k < 2 * n; k++)
            put_part(w->dtype, s->memory[i], k, 100 * (int64_t)(i + 1) + (int64_t)k);
        if (!w->anew) s->wrapped[i] = deft_keep(wrap(s, i, 0));
    }
    if (captured) s->capture = deft_capture_create(s->cx, function, s);
}

static deft_tensor *argument_of(side *s, const turn *t, unsigned i)
{
    const argument *const a = &t->arg[i];
    switch ((argument_kind)a->kind) {
    case IS_OTHER: return s->others[a->index % OTHERS];
    case IS_OUTSIDE: return s->outside[a->index % OUTSIDE];
    case IS_MEMORY: break;
    }
    for (unsigned j = 0; j < i; j++) /* wrapped once for each call */
        if (t->arg[j].kind == IS_MEMORY && t->arg[j].index % MEMORIES == a->index % MEMORIES)
            return NULL;
    return s->w->anew ? wrap(s, a->index % MEMORIES, t->strides) : s->wrapped[a->index % MEMORIES];
}

/* The arguments of a call; the same memory is the same tensor. */
static void arguments(side *s, const turn *t, deft_tensor **in)
{
    for (unsigned i = 0; i < s->w->n_args; i++) {
        in[i] = argument_of(s, t, i);
        for (unsigned j = 0; !in[i] && j < i; j++)
            if (t->arg[j].kind == IS_MEMORY &&
                t->arg[j].index % MEMORIES == t->arg[i].index % MEMORIES)
                in[i] = in[j];
    }
}

/* Reads t, which is [N]. */
static void see(const side *s, deft_tensor *t, row *out)
{
    memset(out, 0, sizeof *out);
    ok(s, deft_read(t, s->w->dtype, out->at, N * deft_dtype_size(s->w->dtype)));
    canonical(s->w->dtype, out->at, N);
}

static void call_capture(side *s, deft_tensor *const *in)
{
    deft_tensor *out[OUTS];
    const double number = s->turn->number;
    if (is_whole(s->w->dtype))
        ok(s, deft_capture_set_i(s->capture, "number",
                                 (int64_t)(4 * (number < 0 ? -number : number))));
    else
        ok(s, deft_capture_set_f(s->capture, "number", number));
    ok(s, deft_capture_call(s->capture, in, s->w->n_args, out, OUTS));
    for (unsigned i = 0; i < OUTS; i++) s->held[s->n_held++] = deft_keep(out[i]);
}

/* What is returned is compared with what it was when the step ended. */
static void call_step(side *s, deft_tensor *const *in, row returned[OUTS])
{
    deft_tensor *out[OUTS];
    const deft_scope step = deft_step_begin(s->cx);
    ok(s, function(s->cx, in, s->w->n_args, out, OUTS, s));
    for (unsigned i = 0; i < OUTS; i++)
        out[i] = deft_keep(deft_flip(deft_flip(out[i], DEFT_AXES(0)), DEFT_AXES(0)));
    ok(s, deft_step_end(step));
    for (unsigned i = 0; i < OUTS; i++) {
        see(s, out[i], &returned[i]);
        deft_drop(&out[i]);
    }
}

static void call(side *s, deft_tensor *const *in, row returned[OUTS])
{
    if (s->captured)
        call_capture(s, in);
    else
        call_step(s, in, returned);
}

/* Everything there is after a call, but for what was returned. */
typedef struct state {
    row outside[OUTSIDE], others[OTHERS], memory[MEMORIES][2];
    row through_record[2];
} state;

static void see_all(const side *s, state *out)
{
    for (unsigned i = 0; i < OUTSIDE; i++) see(s, s->outside[i], &out->outside[i]);
    for (unsigned i = 0; i < OTHERS; i++) see(s, s->others[i], &out->others[i]);
    for (unsigned i = 0; i < MEMORIES; i++) {
        memcpy(out->memory[i], s->memory[i], 2 * N * deft_dtype_size(s->w->dtype));
        canonical(s->w->dtype, out->memory[i], 2 * N);
    }
}

static void turn_once(side *s, const turn *t, state *out, row returned[OUTS])
{
    deft_scope scope = { 0 };
    deft_tensor *in[ARGS], *x = NULL;
    s->turn = t;
    memset(out, 0, sizeof *out);
    if (t->alias >= 0) {
        const deft_scope step = deft_step_begin(s->cx);
        deft_assign(s->outside[t->alias], s->outside[t->alias_of]);
        ok(s, deft_step_end(step));
    }
    if (s->w->in_scope) scope = deft_scope_begin(s->cx);
    arguments(s, t, in);
    if (t->evals && s->w->in_scope) { /* x has its value through a record, in[0] is that value */
        x = deft_add(s->others[0], 3);
        in[0] = deft_to(x, DEFT_CPU);
    }
    call(s, in, returned);
    if (x) {
        see(s, x, &out->through_record[0]);
        see(s, in[0], &out->through_record[1]);
    }
    if (s->w->in_scope) ok(s, deft_scope_end(scope));
    see_all(s, out);
}

static void close_side(side *s)
{
    deft_capture_destroy(&s->capture);
    for (unsigned i = 0; i < MAX_CALLS; i++) deft_unmap(&s->mapped[i]);
    deft_ctx_destroy(&s->cx);
    for (unsigned i = 0; i < MEMORIES; i++) free(s->memory[i]);
}

/* ---- comparing ---- */

static oracle_path paths[] = {
    { .name = "interp", .tier = DEFT_TIER_INTERPRET, .n_threads = 1 },
    { .name = "llvm", .tier = DEFT_TIER_FULL, .n_threads = 2, .streams = true },
    { .name = "fast",
      .tier = DEFT_TIER_FULL,
      .n_threads = 2,
      .variant_launches = 2,
      .streams = true,
      .numerics = DEFT_FAST },
};
static size_t n_paths;
static uint64_t n_calls, n_replayed, n_donated;

/* got and want are n rows. */
static bool differ(const world *w, const char *what, size_t call, const row *got, const row *want,
                   size_t n, bool explain)
{
    const size_t bytes = n * sizeof *got;
    const unsigned char *const x = got->at, *const y = want->at;
    if (memcmp(x, y, bytes) == 0) return false;
    size_t at = 0;
    while (x[at] == y[at]) at++;
    const size_t size = deft_dtype_size(part_dtype(w->dtype));
    char a[64], b[64];
    if (explain)
        printf("    after call %zu, %s, row %zu, part %zu: %s, in a step %s\n", call, what,
               at / sizeof *got, at % sizeof *got / size,
               oracle_text(part_dtype(w->dtype), x, at / size, a, sizeof a),
               oracle_text(part_dtype(w->dtype), y, at / size, b, sizeof b));
    return true;
}

static void map_some(side *s, size_t i, row lent[MAX_CALLS])
{
    const turn *const t = &s->w->turns[i];
    if (t->unmaps)
        for (size_t k = 0; k < i; k++) deft_unmap(&s->mapped[k]);
    if (!t->maps) return;
    ok(s, deft_map(s->outside[i % OUTSIDE], &s->mapped[i]));
    memcpy(lent[i].at, s->mapped[i].data, N * deft_dtype_size(s->w->dtype));
}

static bool differs(const world *w, const oracle_path *path, bool explain)
{
    static side plain, captured;
    static state want, got;
    static row returned[HELD], lent[MAX_CALLS], now;
    const size_t bytes = N * deft_dtype_size(w->dtype);
    bool bad = false;
    open_side(&plain, w, &paths[0], false);
    open_side(&captured, w, path, true);
    for (size_t i = 0; i < w->n_calls && !bad; i++) {
        const turn *const t = &w->turns[i];
        map_some(&captured, i, lent);
        turn_once(&plain, t, &want, &returned[i * OUTS]);
        turn_once(&captured, t, &got, NULL);
        bad |= differ(w, "outside", i, got.outside, want.outside, OUTSIDE, explain);
        bad |= differ(w, "others", i, got.others, want.others, OTHERS, explain);
        bad |= differ(w, "memory", i, got.memory[0], want.memory[0], MEMORIES * 2, explain);
        bad |= differ(w, "x and y", i, got.through_record, want.through_record, 2, explain);
        for (size_t k = 0; k < captured.n_held && !bad; k++) {
            if (!captured.held[k]) continue;
            see(&captured, captured.held[k], &now);
            bad |= differ(w, k / OUTS == i ? "output" : "old output", i, &now, &returned[k], 1,
                          explain);
        }
        for (size_t k = 0; k <= i && !bad; k++)
            if (captured.mapped[k].data && memcmp(captured.mapped[k].data, lent[k].at, bytes)) {
                if (explain) printf("    after call %zu, mapping %zu has changed\n", i, k);
                bad = true;
            }
        for (size_t k = 0; k < captured.n_held && t->drops; k++) deft_drop(&captured.held[k]);
    }
    deft_capture_stats s;
    deft_stats all;
    deft_capture_stats_read(captured.capture, &s, sizeof s);
    deft_stats_read(captured.cx, &all, sizeof all);
    n_calls += s.calls;
    n_replayed += s.replayed;
    n_donated += all.donated;
    close_side(&plain);
    close_side(&captured);
    return bad;
}

/* ---- drawing ---- */

static unsigned pick(uint64_t *g, unsigned n)
{
    return (unsigned)(oracle_next(g) >> 33) % n;
}

static void draw_turn(uint64_t *g, const turn *before, turn *t)
{
    static const double numbers[] = { 0.5, 1, -0.25, 1.5 };
    *t = *before; /* most calls are like the one before */
    if (pick(g, 3) == 0)
        for (unsigned i = 0; i < ARGS; i++) {
            const unsigned k = pick(g, 8);
            t->arg[i].kind = (uint8_t)(k < 4 ? IS_OTHER : k < 6 ? IS_OUTSIDE : IS_MEMORY);
            t->arg[i].index = (uint8_t)pick(g, 4);
            if (i && pick(g, 3) == 0) t->arg[i] = t->arg[pick(g, i)];
        }
    t->maps = pick(g, 4) == 0;
    t->unmaps = pick(g, 4) == 0;
    t->drops = pick(g, 3) == 0;
    t->evals = pick(g, 4) == 0;
    t->alias = pick(g, 6) == 0 ? (int)pick(g, OUTSIDE) : -1;
    t->alias_of = (int)pick(g, OUTSIDE);
    t->strides = pick(g, 5) == 0;
    t->number = numbers[pick(g, 4)];
}

/* The dtypes that have arithmetic. */
static deft_dtype draw_number(uint64_t *g)
{
    static const deft_dtype all[] = { DEFT_U8,  DEFT_I32,  DEFT_I64, DEFT_F32, DEFT_F64,
                                      DEFT_F16, DEFT_BF16, DEFT_I8,  DEFT_I16, DEFT_U16,
                                      DEFT_U32, DEFT_U64,  DEFT_C64, DEFT_C128 };
    return all[pick(g, sizeof all / sizeof *all)];
}

static void generate(world *w, uint64_t seed)
{
    uint64_t g = oracle_mix(seed, 77);
    turn last = { .alias = -1 };
    *w = (world){ .seed = seed, .dtype = DEFT_F64, .is_exact = pick(&g, 2) };
    if (!w->is_exact) w->dtype = draw_number(&g);
    const unsigned n_kinds = w->is_exact ? K_PLACES : N_KINDS;
    w->n = 1 + pick(&g, MAX_STMTS);
    w->n_calls = 4 + pick(&g, MAX_CALLS - 3);
    w->n_args = 1 + pick(&g, ARGS);
    w->anew = pick(&g, 2);
    w->in_scope = pick(&g, 2);
    for (size_t i = 0; i < w->n; i++)
        w->at[i] = (stmt){ .kind = (uint8_t)pick(&g, n_kinds),
                           .dst = (uint8_t)pick(&g, 240),
                           .a = (uint8_t)pick(&g, 240),
                           .b = (uint8_t)pick(&g, 240),
                           .p = (uint8_t)pick(&g, 240) };
    for (size_t i = 0; i < w->n_calls; i++) {
        draw_turn(&g, &last, &w->turns[i]);
        last = w->turns[i];
    }
}

static void show(const world *w)
{
    static const char *const kinds[] = { "other", "outside", "memory" };
    printf("  %s, %u arguments, memory %s, %s\n", deft_dtype_name(w->dtype), w->n_args,
           w->anew ? "wrapped anew" : "wrapped once",
           w->in_scope ? "each call in a scope" : "no scopes");
    for (size_t i = 0; i < w->n; i++) {
        const stmt *const s = &w->at[i];
        printf("  %-8s dst %u (target %u) a %u b %u p %u\n", kind_name[s->kind], s->dst,
               s->dst % (w->n_args + OUTSIDE), s->a, s->b, s->p);
    }
    for (size_t i = 0; i < w->n_calls; i++) {
        const turn *const t = &w->turns[i];
        printf("  call %zu:", i);
        for (unsigned k = 0; k < w->n_args; k++)
            printf(" %s %u", kinds[t->arg[k].kind], t->arg[k].index);
        printf("%s%s%s%s alias %d\n", t->maps ? ", maps" : "", t->unmaps ? ", unmaps" : "",
               t->drops ? ", drops" : "", t->evals ? ", evals" : "", t->alias);
    }
}

static void shrink(world *w, const oracle_path *p)
{
    for (bool any = true; any;) {
        any = false;
        for (size_t at = w->n; at-- > 0;) {
            world smaller = *w;
            memmove(smaller.at + at, smaller.at + at + 1, (w->n - at - 1) * sizeof *w->at);
            smaller.n--;
            if (!differs(&smaller, p, false)) continue;
            *w = smaller;
            any = true;
        }
        for (size_t at = w->n_calls; at-- > 0;) {
            world smaller = *w;
            memmove(smaller.turns + at, smaller.turns + at + 1,
                    (w->n_calls - at - 1) * sizeof *w->turns);
            smaller.n_calls--;
            if (!differs(&smaller, p, false)) continue;
            *w = smaller;
            any = true;
        }
    }
}

/* A compiler takes long, so few programs are compiled; on a GPU (two paths are left) all are. */
static size_t path_of(long k, bool is_exact)
{
    if (n_paths == 2) return 1;
    if (k % 64 == 63 && n_paths > 1) return 1;
    return k % 64 == 31 && n_paths > 2 ? (is_exact ? 2 : 1) : 0;
}

int main(int argc, char **argv)
{
    oracle_asked asked = { .count = 6000, .quick = 500, .full = 200000, .seed = 1 };
    long failures = 0;
    bool print = false;
    for (int i = 1; i < argc; i++)
        if (!oracle_takes(&asked, argv[i])) print |= !strcmp(argv[i], "--print");
    const uint64_t seed = asked.seed;
    const double t0 = oracle_now();
    n_paths = oracle_open(paths, sizeof paths / sizeof *paths);
    long k = 0;
    const long least = (long)oracle_least(LEAST);
    for (; k < (long)asked.count && (k < least || test_time_left(1)) && failures < 3; k++) {
        static world w;
        generate(&w, seed + (uint64_t)k);
        plan_rules_begin(paths, n_paths, w.seed);
        const oracle_path *const p = &paths[path_of(k, w.is_exact)];
        if (print) printf("seed %llu\n", (unsigned long long)w.seed), show(&w), fflush(stdout);
        if (!differs(&w, p, false)) continue;
        failures++;
        printf("FAIL seed %llu on path %s, program %ld\n", (unsigned long long)w.seed, p->name, k);
        shrink(&w, p);
        show(&w);
        (void)differs(&w, p, true);
        fflush(stdout);
    }
    printf("%ld programs, %llu calls, %llu replayed, %llu results in the memory of what they "
           "replace, %ld failures, %.1f s\n",
           k, (unsigned long long)n_calls, (unsigned long long)n_replayed,
           (unsigned long long)n_donated, failures, oracle_now() - t0);
    if (!plan_rules_end(4000)) failures++;
    /* Or else nothing was tested. */
    if (!failures && k >= 100 && (n_replayed < n_calls / 4 || n_donated < n_calls / 4)) {
        printf("FAIL: too few calls were replayed, or too little was taken over\n");
        failures++;
    }
    oracle_close(paths, n_paths);
    return failures ? 1 : 0;
}
