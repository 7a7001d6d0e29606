/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps recorded again. A random program is a list of statements that is run many times, each time
 * a little differently: other numbers, slice starts, windows, draws and addresses each time; now
 * and then other branches, batch sizes, aliases, reads in the middle, a mistake, a fault or an
 * abort. In the context under test all of it comes one after the other, so that histories and made
 * cuts are in effect; the reference runs every iteration in a context that has just been made, with
 * the state copied in and out, so that there is nothing to remember. After every iteration all
 * state, all that was read and every status must be equal bit for bit.
 *
 *   replay_programs [COUNT [SEED]] [--quick | --full] [--print] [--no-shrink]
 *
 * What an iteration does is a function of (seed, statement, turn) for what comes back, turns being
 * few, and of (seed, statement, iteration) for what moves all the time. Both sides fuse: whether
 * that is right is what random_programs asks. A statement that does not
 * fit its operands is derived from their shapes or left out; any sublist is a program too.
 * Why this file is long: generator, runner and shrinker of one kind of program.
 */
#include "ops/dtype.h"
#include "../support/budget.h"
#include "../support/oracle.h"

#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))

/* Programs that are run whatever time that takes. */
enum { LEAST = 400 };

enum {
    MAX_STMTS = 60,
    LOCALS = 12,
    STATES = 6,
    PROGRAMS = 2, /* interleaved in one context */
    MAX_ITER = 48,
    MAX_DEPTH = 5,
    MAX_NUMEL = 2000,
    POOL = 4096, /* elements of the memory that is wrapped */
    MUT = 256
};

typedef enum kind {
    K_UNARY,
    K_BINARY,
    K_NUMBER,
    K_REDUCE,
    K_SLICE,
    K_VIEW,
    K_MATMUL,
    K_SOFTMAX,
    K_TAKE,
    K_CAST,
    K_WHERE,
    K_RANDOM,
    K_FULL,
    K_FROM,
    K_WRAP,
    K_WRAP_MUT_MEMORY,
    K_CHOOSE,
    K_ASSIGN,
    K_ASSIGN_NUMBER,
    K_ASSIGN_PLACE,
    K_ASSIGN_STATE,
    K_ASSIGN_MUT,
    K_KEEP,
    K_DROP,
    K_READ,
    K_IF,
    K_OPEN,
    K_CLOSE,
    K_RETURN,
    K_STEP,
    K_ABORT,
    K_BAD,
    N_KINDS
} kind;

static const char *const kind_name[N_KINDS] = {
    "unary",        "binary",     "number",        "reduce",
    "slice",        "view",       "matmul",        "softmax",
    "take",         "cast",       "where",         "random",
    "full",         "from",       "wrap",          "wrap mut memory",
    "choose",       "assign",     "assign number", "assign place",
    "assign state", "assign mut", "keep",          "drop",
    "read",         "if",         "open",          "close",
    "return",       "step",       "abort",         "bad",
};

/* When a statement is run at all. */
typedef enum when { ALWAYS, MOST_TURNS, SOME_TURNS, SOMETIMES, RARELY } when;

typedef struct stmt {
    uint8_t kind, when, program, dst, a, b, p, q;
    uint32_t id; /* survives shrinking */
} stmt;

typedef struct world {
    uint64_t seed;
    size_t n, n_iter;
    unsigned n_programs, style; /* 0: steps, 1: scopes, 2: steps inside scopes */
    uint32_t max_nodes;
    int64_t rows, columns, batch;
    bool any_batch; /* another one each iteration */
    stmt at[MAX_STMTS];
} world;

/* ---- one side of the comparison ---- */

typedef struct saved {
    bool present;
    deft_dtype t;
    deft_shape shape;
    size_t bytes;
    char *data;
} saved;

typedef struct side {
    deft_ctx *cx;
    deft_tensor *state[STATES], *mut; /* kept; mut writes mut_memory[0] */
    deft_rng rng;
    float mut_memory[2][MUT];
    char *log;
    size_t n_log, cap_log;
} side;

typedef struct local {
    deft_tensor *t;
    unsigned depth;
} local;

typedef struct exec {
    const world *w;
    side *s;
    const stmt *st;
    unsigned program, iter, turn;
    int64_t batch;
    local local[LOCALS];
    deft_scope scope[MAX_DEPTH + 1];
    unsigned depth, base;  /* base: that of the step, or of the outermost scope */
    deft_tensor *mut_here; /* of mut_memory[1] */
    unsigned mut_depth;
    bool mut_gone; /* its handle has ended before the step */
    bool poisoned; /* a mistake is on its way to the end of the step */
    bool over;
    deft_tensor *drop[STATES]; /* replaced in this step: dropped when it ends well */
    deft_tensor *fresh[STATES];
} exec;

static float pool_memory[POOL];

static uint64_t per_turn(const exec *e, unsigned salt)
{
    return oracle_mix(oracle_mix(e->w->seed, e->st->id * 16u + salt), 1000u + e->turn);
}
static uint64_t per_iter(const exec *e, unsigned salt)
{
    return oracle_mix(oracle_mix(e->w->seed, e->st->id * 16u + salt), 100000u + e->iter);
}

static double moving_number(const exec *e)
{
    return (double)(int64_t)(per_iter(e, 1) % 33) * 0.125 - 2;
}

/* ---- the log ---- */

static void put_log(side *s, const void *p, size_t n)
{
    if (s->n_log + n > s->cap_log) {
        s->cap_log = (s->n_log + n) * 2;
        s->log = realloc(s->log, s->cap_log);
        if (!s->log) exit(2);
    }
    if (n) memcpy(s->log + s->n_log, p, n);
    s->n_log += n;
}

static void put_status(exec *e, int32_t what, deft_status st)
{
    const int32_t entry[3] = { -1 - what, e->st ? (int32_t)e->st->id : -1, (int32_t)st };
    put_log(e->s, entry, sizeof entry);
    if (getenv("REPLAY_VERBOSE"))
        fprintf(stderr, "%p it %u stmt %d: %s: %s\n", (void *)e->s->cx, e->iter, entry[1],
                deft_status_text(st), deft_message(e->s->cx));
}

/* A mistake of a statement that is not meant to be one: told, and forgotten. */
static bool mistake(exec *e)
{
    const deft_status st = deft_error(e->s->cx);
    if (st == DEFT_OK || e->poisoned) return st != DEFT_OK;
    put_status(e, 0, st);
    deft_clear(e->s->cx);
    return true;
}

static void save(exec *e, deft_tensor *t, saved *out)
{
    *out = (saved){ .t = deft_dtype_of(t), .shape = deft_shape_get(t) };
    const size_t n = (size_t)oracle_numel(&out->shape);
    out->bytes = n * deft_dtype_size(out->t);
    out->data = oracle_alloc(out->bytes + 1);
    const deft_status st = deft_read(t, out->t, out->data, out->bytes);
    out->present = st == DEFT_OK;
    if (out->present)
        oracle_canonical(out->t, out->data, n);
    else
        put_status(e, 1, st);
}

static void put_value(exec *e, deft_tensor *t)
{
    saved v;
    save(e, t, &v);
    if (v.present) {
        const int32_t head[4] = { 1, e->st ? (int32_t)e->st->id : -1, (int32_t)v.t,
                                  (int32_t)v.shape.rank };
        put_log(e->s, head, sizeof head);
        put_log(e->s, v.shape.dim, v.shape.rank * sizeof *v.shape.dim);
        put_log(e->s, v.data, v.bytes);
    }
    free(v.data);
}

/* ---- operands ---- */

static deft_tensor *get(const exec *e, unsigned i)
{
    i %= LOCALS + STATES;
    return i < LOCALS ? e->local[i].t : e->s->state[i - LOCALS];
}

static void put(exec *e, deft_tensor *t)
{
    if (mistake(e) || !t || deft_numel(t) > MAX_NUMEL) return;
    e->local[e->st->dst % LOCALS] = (local){ t, e->depth };
}

static bool is_float(const deft_tensor *t)
{
    return deft_dtype_of(t) == DEFT_F32 || deft_dtype_of(t) == DEFT_F64;
}

static deft_tensor *as_float(deft_tensor *t)
{
    return is_float(t) ? t : deft_cast(t, DEFT_F32);
}

static bool broadcasts(const deft_tensor *a, const deft_tensor *b, bool into_a)
{
    const deft_shape x = deft_shape_get(a), y = deft_shape_get(b);
    int64_t n = 1;
    if (into_a && y.rank > x.rank) return false;
    for (uint32_t i = 0; i < (x.rank > y.rank ? x.rank : y.rank); i++) {
        const int64_t p = i < x.rank ? x.dim[x.rank - 1 - i] : 1;
        const int64_t q = i < y.rank ? y.dim[y.rank - 1 - i] : 1;
        if (p != q && q != 1 && (into_a || p != 1)) return false;
        n *= p == 1 ? q : p;
    }
    return n <= MAX_NUMEL;
}

static deft_tensor *all_of(deft_tensor *t)
{
    return deft_mean(as_float(t), DEFT_ALL_AXES, 0);
}

/* src as it may be assigned to dst. */
static deft_tensor *fit(const exec *e, const deft_tensor *dst, deft_tensor *src)
{
    if (!broadcasts(dst, src, true)) src = all_of(src);
    if (e->st->q % 4 && deft_dtype_of(src) != DEFT_BOOL) src = deft_clamp(src, -3, 3);
    return deft_dtype_of(src) == deft_dtype_of(dst) ? src : deft_cast(src, deft_dtype_of(dst));
}

static deft_shape shape_of_class(const exec *e, unsigned c)
{
    const int64_t r = e->w->rows, k = e->w->columns, b = e->batch;
    switch (c % 8) {
    case 0: return DEFT_SHAPE(r, k);
    case 1: return DEFT_SHAPE(k);
    case 2: return DEFT_SHAPE();
    case 3: return DEFT_SHAPE(r);
    case 4: return DEFT_SHAPE(b, k);
    case 5: return DEFT_SHAPE(b);
    case 6: return DEFT_SHAPE(k, r);
    default: return DEFT_SHAPE(b, r);
    }
}

static deft_tensor *slice_of(const exec *e, deft_tensor *t, bool moving)
{
    deft_range at[DEFT_MAX_RANK];
    const uint32_t rank = deft_rank(t);
    if (!rank) return NULL;
    for (uint32_t i = 0; i < rank; i++) {
        const int64_t n = deft_dim(t, (int)i);
        at[i] = DEFT_FULL;
        if (!(e->st->p >> i & 1) || n == 0) continue;
        const int64_t len = 1 + e->st->q % n;
        const uint64_t h = moving ? per_iter(e, 2 + i) : per_turn(e, 2 + i);
        const int64_t start = (int64_t)(h % (uint64_t)(n - len + 1));
        at[i] = deft_range_of(start, start + len, 1);
        if (e->st->p & 16) at[i] = deft_range_of(start + len - 1, start ? start - 1 : DEFT_END, -1);
        if (e->st->p & 32) at[i] = DEFT_AT(start);
    }
    return deft_slice_n(t, rank, at);
}

static deft_tensor *view_of(const exec *e, deft_tensor *t)
{
    const uint32_t rank = deft_rank(t);
    switch (e->st->p % 5) {
    case 0: return rank >= 2 ? deft_t(t) : deft_unsqueeze(t, 0);
    case 1: return deft_flatten(t);
    case 2: return deft_unsqueeze(t, (int)rank);
    case 3: return rank ? deft_flip(t, DEFT_AXES(0)) : t;
    default: return rank == 1 ? deft_expand(t, DEFT_SHAPE(3, -1)) : deft_flatten(t);
    }
}

static deft_tensor *product(deft_tensor *a, deft_tensor *b)
{
    if (deft_rank(a) != 2 || deft_rank(b) != 2) return NULL;
    a = as_float(a);
    b = deft_cast(b, deft_dtype_of(a));
    if (deft_dim(a, 1) == deft_dim(b, 0)) return deft_matmul(a, b);
    if (deft_dim(a, 1) == deft_dim(b, 1)) return deft_matmul(a, deft_t(b));
    return deft_dim(a, 0) == deft_dim(b, 0) ? deft_matmul(deft_t(a), b) : NULL;
}

/* A window into memory of n elements, at another place and with other gaps each iteration. */
static deft_tensor *wrap_window(const exec *e, const float *memory, int64_t n)
{
    const deft_shape s = shape_of_class(e, e->st->p);
    const int64_t gap = (int64_t)(per_turn(e, 3) % 3 ? 0 : per_iter(e, 3) % 3);
    int64_t strides[2], reach = 1;
    strides[0] = s.rank == 2 ? s.dim[1] + gap : 1 + gap;
    strides[1] = 1;
    for (uint32_t i = 0; i < s.rank; i++) reach += (s.dim[i] > 0 ? s.dim[i] - 1 : 0) * strides[i];
    if (reach > n) return NULL;
    const int64_t from = (int64_t)(per_iter(e, 4) % (uint64_t)(n - reach + 1));
    if (per_iter(e, 6) % 4 == 0) strides[per_iter(e, 7) % 2] *= -1;
    return deft_wrap(e->s->cx, s, DEFT_F32, memory + from, (size_t)reach * sizeof *memory, strides);
}

/* ---- statements ---- */

static deft_tensor *unary(const exec *e, deft_tensor *x)
{
    x = deft_dtype_of(x) == DEFT_BOOL ? deft_cast(x, DEFT_F32) : x;
    switch (e->st->p % 9) {
    case 0: return deft_neg(x);
    case 1: return deft_abs(x);
    case 2: return deft_tanh(as_float(x));
    case 3: return deft_relu(x);
    case 4: return deft_floor(as_float(x));
    case 5: return deft_sin(as_float(x));
    case 6: return deft_square(x);
    case 7: return deft_sqrt(deft_abs(as_float(x)));
    default: return deft_sigmoid(as_float(x));
    }
}

static deft_tensor *binary(const exec *e, deft_tensor *a, deft_tensor *b)
{
    if (deft_dtype_of(a) == DEFT_BOOL) a = deft_cast(a, DEFT_I32);
    if (deft_dtype_of(b) == DEFT_BOOL) b = deft_cast(b, DEFT_I32);
    if (!broadcasts(a, b, false)) b = all_of(b);
    if (deft_promote(deft_dtype_of(a), deft_dtype_of(b)) == DEFT_N_DTYPES)
        b = deft_cast(b, deft_dtype_of(a));
    switch (e->st->p % 7) {
    case 0: return deft_add(a, b);
    case 1: return deft_sub(a, b);
    case 2: return deft_mul(a, b);
    case 3: return deft_maximum(a, b);
    case 4: return deft_lt(a, b);
    case 5: return deft_div(a, deft_add(deft_abs(b), 1));
    default: return deft_minimum(b, a);
    }
}

static deft_tensor *reduce(const exec *e, deft_tensor *t)
{
    const uint32_t rank = deft_rank(t);
    const deft_axes axes =
        e->st->q % 3 == 0 || !rank ? DEFT_ALL_AXES : DEFT_AXES((int)(e->st->q % rank));
    const int keep = e->st->p & 8;
    if (e->st->p % 3 == 0) return deft_sum(t, axes, keep);
    if (e->st->p % 3 == 1) return deft_mean(as_float(t), axes, keep);
    return deft_numel(t) ? deft_max(as_float(t), axes, keep) : NULL;
}

static deft_tensor *take(exec *e, deft_tensor *t)
{
    if (!deft_rank(t) || !deft_dim(t, 0)) return NULL;
    const int64_t n = deft_dim(t, 0);
    deft_tensor *at = deft_randint(e->s->cx, &e->s->rng, DEFT_SHAPE(3), DEFT_I64, 0, n);
    const bool fault = e->w->style != 1 && per_iter(e, 5) % 12 == 0;
    return deft_take(t, deft_add(at, fault ? n : 0), 0);
}

static void assign_mut(exec *e, deft_tensor *src)
{
    side *const s = e->s;
    deft_tensor *dst = s->mut;
    if (e->st->p & 64) {
        if (!e->mut_here && e->mut_gone) return;
        if (!e->mut_here) {
            const int64_t strides[2] = { e->w->columns + 1, 1 };
            e->mut_here = deft_wrap_mut(s->cx, DEFT_SHAPE(e->w->rows, e->w->columns), DEFT_F32,
                                        s->mut_memory[1], sizeof s->mut_memory[1], strides);
            e->mut_depth = e->depth;
        }
        dst = e->mut_here;
    }
    if (!dst) return;
    deft_tensor *const place = e->st->p & 128 ? slice_of(e, dst, true) : dst;
    if (place) deft_assign(place, fit(e, place, src));
    put(e, dst);
}

/* What ended with the scopes down to depth. */
static void forget_locals(exec *e)
{
    for (unsigned i = 0; i < LOCALS; i++)
        if (e->local[i].t && e->local[i].depth > e->depth) e->local[i].t = NULL;
    if (e->mut_here && e->mut_depth > e->depth) {
        e->mut_here = NULL;
        e->mut_gone = true;
    }
}

static void push(exec *e, bool step)
{
    e->scope[++e->depth] = step ? deft_step_begin(e->s->cx) : deft_scope_begin(e->s->cx);
}

/* A name ends with what it names. */
static void forget_names(exec *e, const deft_tensor *t)
{
    for (unsigned i = 0; i < LOCALS; i++)
        if (e->local[i].t == t) e->local[i].t = NULL;
}

static void settle_states(exec *e, bool ok)
{
    for (unsigned i = 0; i < STATES; i++) {
        if (!ok && e->fresh[i]) { /* made by a step that never was */
            forget_names(e, e->s->state[i]);
            deft_drop(&e->s->state[i]);
            if (e->drop[i]) e->s->state[i] = e->drop[i];
        } else if (e->drop[i]) {
            forget_names(e, e->drop[i]);
            deft_drop(&e->drop[i]);
        }
        e->drop[i] = e->fresh[i] = NULL;
    }
}

static void begin(exec *e)
{
    if (e->w->style == 2) push(e, false);
    push(e, e->w->style != 1);
    e->base = e->depth;
    e->mut_gone = e->poisoned = false;
    e->mut_here = NULL;
}

static void end(exec *e, bool aborted)
{
    deft_status st = DEFT_OK;
    if (aborted)
        deft_step_abort(e->scope[e->base]);
    else if (e->w->style == 1)
        st = deft_scope_end(e->scope[e->base]);
    else
        st = deft_step_end(e->scope[e->base]);
    if (st != DEFT_OK) put_status(e, 2, st);
    e->depth = e->base - 1;
    e->poisoned = false;
    settle_states(e, st == DEFT_OK && !aborted);
    if (e->w->style == 2) {
        st = deft_scope_end(e->scope[e->depth--]);
        if (st != DEFT_OK) put_status(e, 3, st);
    }
    forget_locals(e);
}

static void keep(exec *e, deft_tensor *t)
{
    const unsigned k = e->st->dst % STATES;
    /* Wrapped memory may be other memory next time, and tensors that two names hold stay so. */
    if (e->drop[k] || e->fresh[k] || !t) return;
    t = deft_keep(deft_mul(as_float(t), 1));
    if (mistake(e) || !t) return;
    if (deft_numel(t) > MAX_NUMEL) {
        deft_drop(&t);
        return;
    }
    if (e->st->p & 1) {
        forget_names(e, e->s->state[k]);
        deft_drop(&e->s->state[k]);
    } else
        e->drop[k] = e->s->state[k];
    e->s->state[k] = e->fresh[k] = t;
}

/* How many statements are to be left out. */
static unsigned run_stmt(exec *e)
{
    const stmt *const st = e->st;
    side *const s = e->s;
    deft_ctx *const cx = s->cx;
    deft_tensor *const a = get(e, st->a), *const b = get(e, st->b);
    deft_tensor **const state = &s->state[st->dst % STATES];
    switch ((kind)st->kind) {
    case K_UNARY:
        if (a) put(e, unary(e, a));
        break;
    case K_BINARY:
        if (a && b) put(e, binary(e, a, b));
        break;
    case K_NUMBER:
        if (a && is_float(a))
            put(e, st->p & 1 ? deft_mul(a, moving_number(e)) : deft_add(a, moving_number(e)));
        break;
    case K_REDUCE:
        if (a && deft_dtype_of(a) != DEFT_BOOL) put(e, reduce(e, a));
        break;
    case K_SLICE:
        if (a) put(e, slice_of(e, a, st->p & 64));
        break;
    case K_VIEW:
        if (a) put(e, view_of(e, a));
        break;
    case K_MATMUL:
        if (a && b) put(e, product(a, b));
        break;
    case K_SOFTMAX:
        if (a && deft_rank(a)) put(e, deft_softmax(as_float(a), -1));
        break;
    case K_TAKE:
        if (a) put(e, take(e, a));
        break;
    case K_CAST:
        if (a) put(e, deft_cast(a, (deft_dtype)(st->p % DF_N_RECORDED)));
        break;
    case K_WHERE:
        if (a && b && is_float(a) && broadcasts(a, b, false))
            put(e, deft_where(deft_gt(a, moving_number(e)), a, b));
        break;
    case K_RANDOM:
        put(e, st->p & 8 ? deft_normal(cx, &s->rng, shape_of_class(e, st->p), DEFT_F32, 0, 1)
                         : deft_uniform(cx, &s->rng, shape_of_class(e, st->p), DEFT_F32, -1, 1));
        break;
    case K_FULL: put(e, deft_full(cx, shape_of_class(e, st->p), DEFT_F32, moving_number(e))); break;
    case K_FROM: {
        const deft_shape shape = shape_of_class(e, st->p);
        const size_t n = (size_t)oracle_numel(&shape);
        put(e, deft_from(cx, shape, DEFT_F32, pool_memory + per_iter(e, 6) % (POOL - n),
                         n * sizeof(float)));
        break;
    }
    case K_WRAP: put(e, wrap_window(e, pool_memory, POOL)); break;
    case K_WRAP_MUT_MEMORY: put(e, wrap_window(e, s->mut_memory[st->q % 2], MUT)); break;
    case K_CHOOSE: {
        deft_tensor *const t = per_turn(e, 7) % 2 ? a : b;
        const unsigned from = (t == a ? st->a : st->b) % (LOCALS + STATES);
        if (t) e->local[st->dst % LOCALS] = (local){ t, from < LOCALS ? e->local[from].depth : 0 };
        break;
    }
    case K_ASSIGN:
        if (a && *state) deft_assign(*state, fit(e, *state, a));
        break;
    case K_ASSIGN_NUMBER:
        if (*state && is_float(*state)) deft_assign(*state, moving_number(e));
        break;
    case K_ASSIGN_PLACE: {
        deft_tensor *const place = st->q & 64 ? b : *state ? slice_of(e, *state, st->p & 64) : NULL;
        if (a && place) deft_assign(place, fit(e, place, a));
        break;
    }
    case K_ASSIGN_STATE: { /* two handles of one value from here on */
        deft_tensor *const from = s->state[st->a % STATES];
        if (*state && from && deft_dtype_of(*state) == deft_dtype_of(from) &&
            broadcasts(*state, from, true))
            deft_assign(*state, from);
        break;
    }
    case K_ASSIGN_MUT:
        if (a) assign_mut(e, a);
        break;
    case K_KEEP: keep(e, a); break;
    case K_DROP:
        if (e->drop[st->dst % STATES] || e->fresh[st->dst % STATES]) break;
        forget_names(e, *state);
        deft_drop(state);
        break;
    case K_READ:
        if (a) put_value(e, a);
        break;
    case K_IF: {
        float v = 0;
        if (!a) break;
        const deft_status r = deft_item(all_of(a), &v);
        if (r != DEFT_OK) put_status(e, 4, r);
        return r == DEFT_OK && v > 0.1f ? st->q % 4 : 0;
    }
    case K_OPEN:
        if (e->depth < MAX_DEPTH) push(e, false);
        break;
    case K_CLOSE:
        if (e->depth > e->base) {
            const deft_status r = deft_scope_end(e->scope[e->depth--]);
            if (r != DEFT_OK) put_status(e, 5, r);
            forget_locals(e);
        }
        break;
    case K_RETURN:
        if (e->depth > e->base && a && st->a % (LOCALS + STATES) < LOCALS) {
            deft_tensor *const t = deft_scope_return(e->scope[e->depth--], a);
            forget_locals(e);
            put(e, t);
        }
        break;
    case K_STEP:
        if (e->w->style == 1) break;
        end(e, false);
        begin(e);
        break;
    case K_ABORT: e->over = e->w->style != 1; break;
    case K_BAD:
        if (e->w->style == 1 || e->poisoned) break;
        (void)deft_add(deft_zeros(cx, DEFT_SHAPE(2, 3), DEFT_F32),
                       deft_zeros(cx, DEFT_SHAPE(4), DEFT_F32));
        e->poisoned = true;
        break;
    case N_KINDS: break;
    }
    if (mistake(e)) { /* told */
    }
    return 0;
}

static bool due(const exec *e)
{
    switch ((when)e->st->when) {
    case ALWAYS: return true;
    case MOST_TURNS: return per_turn(e, 0) % 4 != 0;
    case SOME_TURNS: return per_turn(e, 0) % 4 == 0;
    case SOMETIMES: return per_iter(e, 0) % 4 == 0;
    case RARELY: return per_iter(e, 0) % 14 == 0;
    }
    return false;
}

static int64_t batch_of(const world *w, unsigned iter, unsigned turn)
{
    const int64_t all[] = { w->batch, w->rows, w->columns, 1, 0, 9, 2 };
    if (w->any_batch) return all[oracle_mix(w->seed, 7000 + iter) % LEN(all)];
    return turn == 0 ? w->batch : all[oracle_mix(w->seed, 8000 + turn) % LEN(all)];
}

static void iterate(const world *w, side *s, unsigned program, unsigned iter)
{
    exec e = { .w = w, .s = s, .program = program, .iter = iter };
    const uint64_t h = oracle_mix(w->seed, 9000 + iter) % 20;
    e.turn = h < 12 ? 0 : h < 16 ? 1 : h < 19 ? 2 : 100 + iter;
    e.batch = batch_of(w, iter, e.turn);
    for (unsigned i = 0; i < STATES; i++) { /* what is missing is made anew */
        static const unsigned classes[STATES] = { 0, 1, 2, 0, 3, 6 };
        if (s->state[i]) continue;
        const deft_shape shape = shape_of_class(&e, classes[i]);
        const size_t n = (size_t)oracle_numel(&shape);
        const float *const from = pool_memory + oracle_mix(iter, i) % (POOL - n);
        const deft_scope in = deft_scope_begin(s->cx);
        s->state[i] = deft_keep(deft_from(s->cx, shape, DEFT_F32, from, n * sizeof *from));
        if (deft_scope_end(in) != DEFT_OK) exit(2);
    }
    begin(&e);
    for (size_t i = 0; i < w->n && !e.over; i++) {
        e.st = &w->at[i];
        if (e.st->program != program || !due(&e)) continue;
        /* Now and then another operand, or another kind of the same statement. */
        stmt mine = w->at[i];
        if (mine.q % 5 == 0 && per_turn(&e, 8) % 2) mine.a = (uint8_t)(mine.a + 1 + mine.p % 3);
        if (mine.q % 5 == 1 && per_turn(&e, 9) % 2) mine.p++;
        e.st = &mine;
        i += run_stmt(&e);
    }
    e.st = NULL;
    end(&e, e.over);
}

/* ---- comparing ---- */

static oracle_path paths[] = {
    { .name = "reference", .tier = DEFT_TIER_INTERPRET, .n_threads = 1 },
    { .name = "interp", .tier = DEFT_TIER_INTERPRET, .n_threads = 1 },
    { .name = "llvm", .tier = DEFT_TIER_FULL, .n_threads = 2, .streams = true },
};
static size_t n_paths;
static uint64_t n_cuts, n_matched, n_unfused;
static long n_iterations, n_statuses;

static deft_ctx *open_context(const world *w, const oracle_path *p)
{
    const deft_ctx_options o = { .size = sizeof o, .max_nodes = w->max_nodes };
    return oracle_context(p, &o);
}

static void wrap_kept(const world *w, side *s)
{
    s->mut = deft_keep(deft_wrap_mut(s->cx, DEFT_SHAPE(w->rows, w->columns), DEFT_F32,
                                     s->mut_memory[0], sizeof s->mut_memory[0], NULL));
}

static void save_states(side *s, saved *out)
{
    exec e = { .s = s };
    for (unsigned i = 0; i < STATES; i++) {
        out[i] = (saved){ .data = NULL };
        if (s->state[i]) save(&e, s->state[i], &out[i]);
        if (!out[i].present) deft_drop(&s->state[i]);
    }
}

static void free_states(saved *s)
{
    for (unsigned i = 0; i < STATES; i++) {
        free(s[i].data);
        s[i] = (saved){ .data = NULL };
    }
}

static bool differ(const saved *a, const saved *b)
{
    return a->present != b->present ||
           (a->present &&
            (a->t != b->t || a->shape.rank != b->shape.rank ||
             memcmp(a->shape.dim, b->shape.dim, a->shape.rank * sizeof *a->shape.dim) != 0 ||
             memcmp(a->data, b->data, a->bytes) != 0));
}

/* The iteration of a context made for it: state in, state out. */
static void iterate_fresh(const world *w, side *s, unsigned program, unsigned iter, saved *states)
{
    s->cx = open_context(w, &paths[0]);
    const deft_scope in = deft_scope_begin(s->cx); /* as those that are kept over iterations */
    for (unsigned i = 0; i < STATES; i++) {
        const saved *const v = &states[i];
        s->state[i] =
            v->present ? deft_keep(deft_from(s->cx, v->shape, v->t, v->data, v->bytes)) : NULL;
    }
    wrap_kept(w, s);
    if (deft_scope_end(in) != DEFT_OK) exit(2);
    iterate(w, s, program, iter);
    free_states(states);
    save_states(s, states);
    deft_ctx_destroy(&s->cx);
}

static void report_difference(const side *a, const side *b, const saved *x, const saved *y)
{
    for (unsigned i = 0; i < STATES; i++) {
        if (!differ(&x[i], &y[i])) continue;
        if (!x[i].present || !y[i].present || x[i].bytes != y[i].bytes || x[i].t != y[i].t) {
            printf("    state %u is there, or has its shape or dtype, on one side only\n", i);
            continue;
        }
        const size_t n = x[i].bytes / deft_dtype_size(x[i].t);
        const size_t k = oracle_difference(x[i].t, x[i].data, y[i].data, n);
        char p[64], q[64];
        printf("    state %u, element %zu of %zu: %s, afresh %s\n", i, k, n,
               oracle_text(x[i].t, x[i].data, k < n ? k : 0, p, sizeof p),
               oracle_text(y[i].t, y[i].data, k < n ? k : 0, q, sizeof q));
    }
    for (unsigned m = 0; m < 2; m++)
        for (unsigned i = 0; i < MUT; i++)
            if (memcmp(&a->mut_memory[m][i], &b->mut_memory[m][i], sizeof(float)) != 0) {
                printf("    memory %u, element %u: %g, afresh %g\n", m, i,
                       (double)a->mut_memory[m][i], (double)b->mut_memory[m][i]);
                break;
            }
    size_t at = 0;
    while (at < a->n_log && at < b->n_log && a->log[at] == b->log[at]) at++;
    if (at < a->n_log || at < b->n_log)
        printf("    logs of %zu and %zu bytes differ at %zu\n", a->n_log, b->n_log, at);
}

static bool leaks(const world *w, const oracle_path *p)
{
    static uint64_t known[LEN(paths)];
    deft_ctx *cx = open_context(w, p);
    deft_stats st;
    deft_stats_read(cx, &st, sizeof st);
    deft_ctx_destroy(&cx);
    const bool more = st.live_bytes > known[p - paths];
    known[p - paths] = st.live_bytes;
    return more;
}

/* The number of iterations after which both sides differ, 0 for never. */
static unsigned first_difference(const world *w, const oracle_path *p, bool explain, bool count)
{
    static side main_side[PROGRAMS], fresh[PROGRAMS];
    static saved got[STATES], want[PROGRAMS][STATES];
    unsigned bad = 0;
    deft_ctx *cx = open_context(w, p);
    for (unsigned q = 0; q < w->n_programs; q++) {
        side *const m = &main_side[q], *const f = &fresh[q];
        memset(m, 0, sizeof *m);
        memset(f, 0, sizeof *f);
        memset(want[q], 0, sizeof want[q]);
        m->cx = cx;
        for (unsigned i = 0; i < MUT; i++)
            m->mut_memory[0][i] = m->mut_memory[1][i] = (float)i * 0.25f;
        memcpy(f->mut_memory, m->mut_memory, sizeof f->mut_memory);
        m->rng = f->rng = (deft_rng){ w->seed + q, 0 };
        const deft_scope in = deft_scope_begin(cx);
        wrap_kept(w, m);
        if (deft_scope_end(in) != DEFT_OK) exit(2);
    }
    for (unsigned k = 0; k < w->n_iter * w->n_programs && !bad; k++) {
        const unsigned q = (unsigned)(oracle_mix(w->seed, 11000 + k / 3) % w->n_programs);
        side *const m = &main_side[q], *const f = &fresh[q];
        m->n_log = f->n_log = 0;
        iterate(w, m, q, k);
        save_states(m, got);
        oracle_canonical(DEFT_F32, m->mut_memory, sizeof m->mut_memory / sizeof(float));
        iterate_fresh(w, f, q, k, want[q]);
        oracle_canonical(DEFT_F32, f->mut_memory, sizeof f->mut_memory / sizeof(float));
        bool same = m->n_log == f->n_log && (!m->n_log || !memcmp(m->log, f->log, m->n_log)) &&
                    !memcmp(m->mut_memory, f->mut_memory, sizeof m->mut_memory);
        for (unsigned i = 0; i < STATES; i++) same = same && !differ(&got[i], &want[q][i]);
        if (!same) bad = k + 1;
        if (!same && explain) {
            printf("  iteration %u of program %u:\n", k, q);
            report_difference(m, f, got, want[q]);
        }
        n_statuses += m->n_log > 0;
        free_states(got);
    }
    deft_stats st;
    deft_stats_read(cx, &st, sizeof st);
    if (count) {
        n_cuts += st.cuts;
        n_matched += st.cuts_matched;
        n_unfused += st.cuts_unfused;
        n_iterations += (long)(bad ? bad : w->n_iter * w->n_programs);
    }
    deft_ctx_destroy(&cx);
    if (!bad && (leaks(w, p) || leaks(w, &paths[0]))) {
        if (explain) printf("  value memory outlives its contexts\n");
        bad = (unsigned)w->n_iter;
    }
    for (unsigned q = 0; q < w->n_programs; q++) {
        free_states(want[q]);
        free(main_side[q].log);
        free(fresh[q].log);
    }
    return bad;
}

/* ---- generating, showing, shrinking ---- */

static unsigned pick(uint64_t *state, unsigned n)
{
    return (unsigned)(oracle_next(state) % n);
}

static kind random_kind(uint64_t *state)
{
    static const uint8_t weight[N_KINDS] = {
        [K_UNARY] = 8,        [K_BINARY] = 14,    [K_NUMBER] = 6,        [K_REDUCE] = 6,
        [K_SLICE] = 7,        [K_VIEW] = 4,       [K_MATMUL] = 4,        [K_SOFTMAX] = 2,
        [K_TAKE] = 2,         [K_CAST] = 3,       [K_WHERE] = 3,         [K_RANDOM] = 3,
        [K_FULL] = 2,         [K_FROM] = 3,       [K_WRAP] = 5,          [K_WRAP_MUT_MEMORY] = 2,
        [K_CHOOSE] = 3,       [K_ASSIGN] = 9,     [K_ASSIGN_NUMBER] = 1, [K_ASSIGN_PLACE] = 5,
        [K_ASSIGN_STATE] = 2, [K_ASSIGN_MUT] = 4, [K_KEEP] = 2,          [K_DROP] = 1,
        [K_READ] = 3,         [K_IF] = 2,         [K_OPEN] = 3,          [K_CLOSE] = 3,
        [K_RETURN] = 1,       [K_STEP] = 2,       [K_ABORT] = 1,         [K_BAD] = 1,
    };
    unsigned sum = 0;
    for (unsigned i = 0; i < N_KINDS; i++) sum += weight[i];
    unsigned at = pick(state, sum);
    for (unsigned i = 0; i < N_KINDS; i++) {
        if (at < weight[i]) return (kind)i;
        at -= weight[i];
    }
    return K_UNARY;
}

static when random_when(uint64_t *state, kind k)
{
    if (k == K_ABORT || k == K_BAD || k == K_DROP) return RARELY;
    if (k == K_READ || k == K_IF || k == K_KEEP) return (when)(1 + pick(state, 4));
    const unsigned h = pick(state, 24);
    return h < 18   ? ALWAYS
           : h < 20 ? MOST_TURNS
           : h < 22 ? SOME_TURNS
           : h < 23 ? SOMETIMES
                    : RARELY;
}

static void generate(world *w, uint64_t seed)
{
    static const uint32_t nodes[] = { 0, 0, 0, 0, 60, 25 };
    uint64_t g = oracle_mix(seed, 4711);
    *w = (world){ .seed = seed,
                  .n_iter = 12 + pick(&g, MAX_ITER - 12),
                  .n_programs = 1 + (pick(&g, 4) == 0),
                  .style = pick(&g, 6) % 4 % 3,
                  .max_nodes = nodes[pick(&g, LEN(nodes))],
                  .rows = 2 + pick(&g, 7),
                  .columns = 2 + pick(&g, 5),
                  .batch = 3 + pick(&g, 8),
                  .any_batch = pick(&g, 5) == 0 };
    if (pick(&g, 3) == 0) w->columns = w->rows; /* more fits, in more than one way */
    if (pick(&g, 3) == 0) w->batch = w->rows;
    w->n = 4 + pick(&g, MAX_STMTS - 4);
    if (pick(&g, 3) == 0) w->n = 4 + w->n / 4;
    for (size_t i = 0; i < w->n; i++) {
        stmt *const s = &w->at[i];
        const kind k = i < 2 ? K_WRAP : random_kind(&g);
        const when time = i < 2 ? ALWAYS : random_when(&g, k);
        *s = (stmt){ .kind = (uint8_t)k,
                     .when = (uint8_t)time,
                     .program = (uint8_t)pick(&g, w->n_programs),
                     .dst = (uint8_t)pick(&g, 240),
                     .a = (uint8_t)pick(&g, LOCALS + STATES),
                     .b = (uint8_t)pick(&g, LOCALS + STATES),
                     .p = (uint8_t)pick(&g, 256),
                     .q = (uint8_t)pick(&g, 256),
                     .id = (uint32_t)i };
    }
}

static void show(const world *w)
{
    static const char *const when_name[] = { "", "most turns", "some turns", "sometimes",
                                             "rarely" };
    static const char *const styles[] = { "steps", "scopes", "steps in scopes" };
    printf("  %s, max_nodes %u, rows %lld, columns %lld, batch %lld%s\n", styles[w->style],
           w->max_nodes, (long long)w->rows, (long long)w->columns, (long long)w->batch,
           w->any_batch ? " or another" : "");
    for (size_t i = 0; i < w->n; i++) {
        const stmt *const s = &w->at[i];
        char a[8], b[8];
        snprintf(a, sizeof a, "%c%u", s->a < LOCALS ? 'l' : 's',
                 s->a < LOCALS ? s->a : s->a - LOCALS);
        snprintf(b, sizeof b, "%c%u", s->b < LOCALS ? 'l' : 's',
                 s->b < LOCALS ? s->b : s->b - LOCALS);
        printf("  %2u  program %u: %-15s l%u/s%u <- %s, %s  p %u q %u  %s\n", s->id, s->program,
               kind_name[s->kind], s->dst % LOCALS, s->dst % STATES, a, b, s->p, s->q,
               when_name[s->when]);
    }
}

static void shrink(world *w, const oracle_path *p)
{
    const double until = oracle_now() + 30;
    for (size_t chunk = w->n / 2; chunk >= 1; chunk = chunk > 1 ? chunk / 2 : 0) {
        bool any = true;
        while (any) {
            any = false;
            for (size_t at = w->n; at-- > 0;) {
                if (at + chunk > w->n || oracle_now() > until) continue;
                world smaller = *w;
                memmove(smaller.at + at, smaller.at + at + chunk,
                        (w->n - at - chunk) * sizeof *w->at);
                smaller.n -= chunk;
                if (!first_difference(&smaller, p, false, false)) continue;
                *w = smaller;
                any = true;
            }
        }
    }
}

int main(int argc, char **argv)
{
    oracle_asked asked = { .count = 2000, .quick = 600, .full = 200000, .seed = 1 };
    bool print = false, no_shrink = false;
    for (int i = 1; i < argc; i++)
        if (!oracle_takes(&asked, argv[i])) {
            print |= !strcmp(argv[i], "--print");
            no_shrink |= !strcmp(argv[i], "--no-shrink");
        }
    const uint64_t seed = asked.seed;
    const double t0 = oracle_now();
    n_paths = oracle_open(paths, LEN(paths));
    oracle_fill(DEFT_F32, pool_memory, POOL, 5, ORACLE_TAME);
    long failures = 0;
    long k = 0;
    const long least = (long)oracle_least(LEAST);
    for (; k < (long)asked.count && (k < least || test_time_left(1)) && failures < 5; k++) {
        static world w;
        generate(&w, seed + (uint64_t)k);
        /* Compiling costs more than all else: one program in thirty-two. */
        const oracle_path *const p = n_paths > 2 && k % 32 == 0 ? &paths[2] : &paths[1];
        if (print) printf("seed %llu\n", (unsigned long long)w.seed), show(&w), fflush(stdout);
        if (!first_difference(&w, p, false, true)) continue;
        failures++;
        printf("FAIL seed %llu on path %s\n", (unsigned long long)w.seed, p->name);
        if (!no_shrink) shrink(&w, p);
        show(&w);
        (void)first_difference(&w, p, true, false);
        fflush(stdout);
    }
    const double share = n_cuts ? (double)n_matched / (double)n_cuts : 0;
    printf("%ld programs, %ld iterations, %ld failures, %.1f s; %llu of %llu cuts matched (%.0f "
           "%%), %ld iterations with reads or errors, %llu cuts not fused\n",
           k, n_iterations, failures, oracle_now() - t0, (unsigned long long)n_matched,
           (unsigned long long)n_cuts, 100 * share, n_statuses, (unsigned long long)n_unfused);
    /* Or else nothing was tested. */
    if (!failures && k >= 100 && share < 0.3) {
        printf("FAIL: too few cuts were matched\n");
        failures++;
    }
    oracle_close(paths, n_paths);
    return failures ? 1 : 0;
}
