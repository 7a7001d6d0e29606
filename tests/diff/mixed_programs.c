/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs in which features meet. A random program is a few blocks, each a step (ended, submitted
 * or aborted), a captured function or a scope, that is run several times over tensors which stay:
 * states, old values that are kept, memory of the caller's that is read or written. Inside are
 * elementwise work, views, assigns through views and from one part of a tensor to another, reads,
 * draws, marks, loops, branches, examples, gradients and products of Jacobians, and of all that
 * again; work in every dtype, complex ones too, and under policies of mixed precision; codes of
 * storage dtypes, in between and as tensors that stay; programs that were loaded from traces.
 *
 * The context under test fuses, captures, donates, submits, and cuts where budgets say so. The
 * reference does none of it: each result is computed as soon as it is recorded, without fusion, a
 * captured function is called as the plain function that it is, and there are no budgets. After
 * every block all that stays, all that was read, all memory and every status must be equal bit for
 * bit.
 *
 *   mixed_programs [COUNT [SEED]] [--quick | --full] [--print] [--no-shrink]
 *
 * A statement that does not fit its operands is derived from their shapes or left out, so that any
 * sublist is a program, too: a failing one is shrunk.
 * Why this file is long: generator, runner and shrinker of one kind of program.
 */
#include "../support/budget.h"
#include "../support/oracle.h"
#include "../support/plan_rules.h"
#include "mixed_loaded.h"
#include "mixed_pairs.h"
#include "mixed_stored.h"
#include "mixed_values.h"

#include "base/bits.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEN(a) (sizeof(a) / sizeof *(a))

/* Programs that are run whatever time that takes. */
enum { LEAST = 120, PROMISED = 4000 };

/* One of so many has long tensors, which take as long as hundreds of others. */
enum { LONG_EVERY = 24 };

enum {
    BLOCKS = 5,
    STMTS = 12,
    STATES = 5, /* [N], [N], [M, N], [M, N], [] */
    N = 6,
    M = 3,
    LOCALS = 6,
    OLD = 4,   /* kept values of before */
    CODES = 2, /* [M, N] of storage dtypes, which stay as the states do */
    TYPED = 2, /* [M, N] of other dtypes, which stay too */
    DLPACK_HOST = 1,
    MAX_ITER = 8,
    MAX_LOG = 1 << 16
};

typedef enum kind {
    K_UNARY,
    K_BINARY,
    K_REDUCE,
    K_PART,
    K_VIEW,
    K_SAME,
    K_RANDOM,
    K_BORROW,
    K_TAKE,
    K_FAULT,
    K_ASSIGN,
    K_SWAP,
    K_ASSIGN_PART,
    K_SWEEP,
    K_ASSIGN_VIEW,
    K_ASSIGN_MEMORY,
    K_MEMORY,
    K_KEEP,
    K_READ,
    K_EXPORT,
    K_GRAD,
    K_GRAD_STATE,
    K_JVP,
    K_STOP,
    K_HOOK,
    K_CUSTOM,
    K_SCAN,
    K_WHILE,
    K_COND,
    K_VMAP,
    K_WINDOWS,
    K_TOP,
    K_PRODUCT,
    K_COUNT,
    K_ARRAY,
    K_COMPLEX,
    K_JOINED,
    K_PLACES,
    K_ATTEND,
    K_DTYPE,
    K_POLICY,
    K_CODES,
    K_TYPED,
    K_LONG,
    K_PARAMETER,
    K_FILE,
    K_LOADED,
    K_REPEAT,
    K_SCOPE,
    N_KINDS
} kind;

static const char *const kind_name[N_KINDS] = {
    "unary",         "binary",        "reduce",    "part",   "view",    "same",        "random",
    "borrow",        "take",          "fault",     "assign", "swap",    "assign part", "sweep",
    "assign view",   "assign memory", "memory",    "keep",   "read",    "export",      "grad",
    "grad of state", "jvp",           "stop",      "hook",   "custom",  "scan",        "while",
    "cond",          "vmap",          "windows",   "top",    "product", "count",       "array",
    "complex",       "joined",        "places",    "attend", "dtype",   "policy",      "codes",
    "typed",         "long",          "parameter", "file",   "loaded",  "repeat",      "scope",
};

/* How often each is drawn. */
static const uint8_t weight[N_KINDS] = { 6, 6, 2, 4, 3, 3, 1, 1, 1, 1, 8, 2, 6, 3, 3, 2, 1,
                                         5, 2, 2, 4, 3, 2, 1, 1, 1, 4, 1, 2, 3, 3, 2, 3, 2,
                                         4, 4, 6, 5, 2, 5, 3, 3, 6, 5, 3, 3, 6, 1, 1 };

typedef struct stmt {
    uint8_t kind, dst, a, b, p, q;
    uint8_t when; /* 0: each time; else every when-th time left out */
    uint32_t id;  /* survives shrinking */
} stmt;

typedef enum block_kind {
    B_STEP,
    B_SUBMIT,
    B_ABORT,
    B_FAIL,
    B_CAPTURE,
    B_SCOPE,
    N_BLOCK_KINDS
} block_kind;

static const char *const block_name[N_BLOCK_KINDS] = { "step",         "submitted step",
                                                       "aborted step", "failing step",
                                                       "capture",      "scope" };

typedef struct block {
    uint8_t kind, in[2], n_out;
    bool same;          /* now and then both arguments are one tensor */
    uint8_t failure;    /* of a step that fails: how; of a capture: whether some calls fail */
    uint8_t failure_at; /* the statement before which it fails */
    deft_step_options budget;
    size_t n;
    stmt at[STMTS];
} block;

typedef struct world {
    uint64_t seed;
    uint32_t max_nodes; /* of the context */
    uint64_t max_bytes, max_latency_ns, max_temporary_bytes;
    bool is_exact; /* all arithmetic is exact, on small whole numbers: fast mode changes no bit */
    bool is_long;  /* has statements on long tensors; in others these are left out */
    unsigned n_iter, n_blocks;
    block at[BLOCKS];
} world;

/* ---- one side of the comparison ---- */

/* A value that another library has, and what it was. */
typedef struct lending {
    struct DLManagedTensorVersioned *m;
    size_t n;
    float was[M * N * N];
} lending;

typedef struct side {
    bool plain;     /* the reference */
    bool has_ended; /* some step has */
    bool stores;    /* some of its steps and reads are stored, and run again from the files */
    const world *w;
    deft_ctx *cx;
    deft_rng rng;
    deft_tensor *state[STATES], *old[OLD], *memory, *code[CODES], *typed[TYPED], *lasting;
    deft_program *loaded[N_MIXED_LOADED]; /* those that were called */
    deft_tensor *victim;                  /* assigned by what fails, and by nothing else */
    uint64_t drew;                        /* features of the block that runs */
    bool calls_plainly;                   /* the function of a capture is called without it */
    bool is_mute;   /* what is seen and fails is not compared, because the block will fail */
    bool was_large; /* of an exact program: numbers for which arithmetic may be inexact */
    unsigned fresh; /* which of old the open step has made */
    float written[N], lent[N];
    lending exported[OLD];
    deft_capture *capture[BLOCKS];
    uint64_t replayed, cuts;
    uint32_t log[MAX_LOG]; /* bits of what was seen, and statuses */
    size_t n_log;
    deft_status failed;
    char message[256];
    bool over;
} side;

static side reference, tested;

typedef struct local {
    deft_tensor *t;
    deft_tensor *root; /* of a view that may be assigned through */
    unsigned version;  /* of the root, when it was taken */
} local;

typedef struct exec {
    side *s;
    const world *w;
    const block *b;
    unsigned iter;
    local at[LOCALS];
    deft_tensor *const *in, *const *caller; /* of a captured function; what the caller calls them */
    unsigned version[STATES + 1];
    bool pure; /* in the function of a loop and the like, where nothing acts */
    bool did;  /* the statement was not left out */
} exec;

static void saw(side *s, const void *data, size_t n)
{
    if (s->is_mute) return;
    if (s->over || s->n_log + n > MAX_LOG) {
        s->over = true;
        return;
    }
    memcpy(s->log + s->n_log, data, n * sizeof *s->log);
    oracle_canonical(DEFT_F32, s->log + s->n_log, n);
    s->n_log += n;
}

static void saw_status(side *s, deft_status st)
{
    if (st == DEFT_OK || s->over || s->is_mute) return;
    s->failed = st;
    s->over = true;
    snprintf(s->message, sizeof s->message, "%s: %s", deft_status_text(st), deft_message(s->cx));
}

static char folder[64]; /* of files */
static uint64_t n_stored;

/* Asks the context under test to store what it computes next. */
static void ask_to_store(side *s)
{
    char path[96];
    (void)snprintf(path, sizeof path, "%s/stored", folder);
    saw_status(s, deft_store_next(s->cx, path));
}

/* What was stored since then, if anything was, must run again as it ran. */
static void run_stored(side *s, mixed_stored was)
{
    char path[96];
    bool is_there;
    saw_status(s, deft_store_next(s->cx, NULL));
    (void)snprintf(path, sizeof path, "%s/stored", folder);
    char why[sizeof s->message - 16];
    was.limits = plan_rules_limits(deft_ctx_runtime(s->cx));
    if (!mixed_stored_runs(path, &was, &is_there, why, sizeof why)) {
        const float nothing = -1;
        s->is_mute = false;
        (void)snprintf(s->message, sizeof s->message, "stored: %s", why);
        saw(s, &nothing, 1);
        s->over = true;
    }
    n_stored += is_there;
    if (is_there) s->drew |= MIXED(STORED);
}

/* Whether what a read computes is stored and run again, and also compared with what was read. */
typedef enum storing { STORES_NOT, STORES, STORES_AND_COMPARES } storing;

static void see_and_store(side *s, deft_tensor *t, storing how)
{
    float v[N * M * N];
    const int64_t n = t ? deft_numel(t) : 0;
    if (!t || s->over || n > (int64_t)LEN(v)) return;
    if (how) ask_to_store(s);
    const deft_status st = deft_read(t, DEFT_F32, v, (size_t)n * sizeof *v);
    if (st == DEFT_OK)
        saw(s, v, (size_t)n);
    else
        saw_status(s, st);
    if (!how) return;
    const bool is_known = how == STORES_AND_COMPARES;
    const bool compares = is_known && st == DEFT_OK && deft_dtype_of(t) == DEFT_F32;
    run_stored(s, (mixed_stored){ .is_known = is_known,
                                  .status = st,
                                  .read = { compares ? v : NULL, (size_t)n } });
}

static void see(side *s, deft_tensor *t)
{
    see_and_store(s, t, STORES_NOT);
}

/* The reference computes what it has recorded at once. */
static void settle(exec *e, deft_tensor *t)
{
    if (!e->s->plain || e->pure || !t) return;
    const deft_status st = deft_eval(&t, 1);
    if (st != DEFT_OK) saw_status(e->s, st);
}

/* Of the program that runs. */
static bool is_exact;

/* A number of a statement; in exact programs a whole one. */
static deft_tensor *number(const exec *e, double v)
{
    if (is_exact) v = v < 0 ? floor(v) : ceil(v);
    return deft_const_f(e->s->cx, v);
}

/* ---- operands ---- */

static deft_tensor *state_of(exec *e, unsigned i)
{
    i %= STATES + 2;
    if (i < STATES) return e->s->state[i];
    if (e->in && !e->pure) return e->in[i - STATES];
    return e->s->state[i - STATES];
}

/* A local, or a state where there is none yet. */
static deft_tensor *operand(exec *e, unsigned i)
{
    deft_tensor *const t = e->at[i % LOCALS].t;
    return t && i % 8 < LOCALS ? t : state_of(e, i);
}

/* Tensors of the states by their rank. */
static const deft_shape shape_of_rank[] = { { 0 }, { 1, { N } }, { 2, { M, N } } };

static bool same_shape(deft_tensor *a, deft_tensor *b)
{
    const deft_shape x = deft_shape_get(a), y = deft_shape_get(b);
    return x.rank == y.rank && memcmp(x.dim, y.dim, x.rank * sizeof *x.dim) == 0;
}

/* Small, whatever it was: programs run for many turns. */
static deft_tensor *tame(deft_tensor *t)
{
    return is_exact ? deft_clamp(t, -4, 4) : deft_tanh(t);
}

/* What stays in an exact program is small. */
static deft_tensor *bounded(deft_tensor *t)
{
    return is_exact ? deft_clamp(t, -4, 4) : t;
}

static deft_tensor *wave(deft_tensor *t)
{
    return is_exact ? deft_abs(tame(t)) : deft_sin(t);
}

/* t in the shape of like: itself, or its mean everywhere. */
static deft_tensor *fit(const exec *e, deft_tensor *t, deft_tensor *like)
{
    if (same_shape(t, like)) return t;
    const deft_shape s = deft_shape_get(like);
    deft_tensor *const sum = deft_rank(t) ? deft_sum(t, DEFT_ALL_AXES, 0) : t;
    deft_tensor *const mean = deft_mul(sum, number(e, 0.125));
    return s.rank ? deft_expand(mean, s) : mean;
}

/* Names a part of something, or the thing itself. */
static void bind_alias(exec *e, unsigned dst, deft_tensor *t)
{
    if (!t) return;
    e->did = true;
    e->at[dst % LOCALS] = (local){ .t = t };
    settle(e, t);
}

/* Looks whether numbers of an exact program became so large that fast mode may round them. */
static void watch(exec *e, deft_tensor *t)
{
    float v[N * M * N];
    const int64_t n = t ? deft_numel(t) : 0;
    if (!is_exact || !e->s->plain || e->pure || n > (int64_t)LEN(v)) return;
    if (deft_dtype_of(t) != DEFT_F32 || n <= 0) return;
    if (deft_read(t, DEFT_F32, v, (size_t)n * sizeof *v) != DEFT_OK) return;
    for (int64_t i = 0; i < n; i++) e->s->was_large |= !(fabsf(v[i]) < 0x1p23f);
}

static void bind(exec *e, unsigned dst, deft_tensor *t)
{
    watch(e, t);
    if (t) bind_alias(e, dst, bounded(t));
}

/* The states change: views of them taken before are stale. */
static unsigned *version_of(exec *e, const deft_tensor *t)
{
    for (unsigned k = 0; k < 2 && e->in; k++)
        if (e->in[k] == t) t = e->caller[k];
    for (unsigned i = 0; i < STATES; i++)
        if (t == e->s->state[i]) return &e->version[i];
    return &e->version[STATES];
}

static void assign(exec *e, deft_tensor *dst, deft_tensor *value)
{
    if (!value) return;
    if (!deft_assign(dst, bounded(fit(e, value, dst)))) return;
    e->did = true;
    ++*version_of(e, dst);
    settle(e, dst);
}

/* ---- functions of loops, branches and examples ---- */

/* A dtype that records have, and not f32. */
static deft_dtype other_dtype(unsigned p)
{
    static const deft_dtype all[] = { DEFT_I8,  DEFT_U8,  DEFT_I16, DEFT_U16,  DEFT_I32, DEFT_U32,
                                      DEFT_I64, DEFT_U64, DEFT_F16, DEFT_BF16, DEFT_F64 };
    return all[p % LEN(all)];
}

/* An elementwise function of x and y, computed in another dtype. */
static deft_tensor *elementwise_in(const exec *e, unsigned p, deft_tensor *x, deft_tensor *y)
{
    const deft_dtype t = other_dtype(p);
    const bool is_whole = deft_isdtype(t, DEFT_KIND_INTEGRAL);
    deft_tensor *const scale = number(e, is_whole ? 90 : 1);
    deft_tensor *const a = deft_cast(deft_mul(tame(x), scale), t);
    deft_tensor *const b = deft_cast(deft_mul(tame(y), scale), t), *r;
    deft_tensor *const divisor = deft_maximum(deft_abs(b), deft_cast(number(e, 1), t));
    /* Quotients and roots of floats are rounded, which fast mode may do otherwise. */
    switch (is_exact && !is_whole ? p / 11 % 2 * 4 : p / 11 % 6) {
    case 0: r = deft_mul(a, b); break;
    case 1: r = deft_floor_div(deft_sub(a, b), divisor); break;
    case 2: r = deft_remainder(deft_add(a, b), divisor); break;
    case 3: r = is_whole ? deft_bitwise_xor(a, deft_bitwise_not(b)) : deft_hypot(a, b); break;
    case 4: r = deft_where(deft_lt(a, b), deft_square(a), deft_neg(b)); break;
    default: r = deft_add(deft_minimum(a, b), a); break;
    }
    return tame(deft_mul(deft_cast(r, DEFT_F32), number(e, is_whole ? 0.01 : 0.5)));
}

/* x as codes of a storage dtype that move beside those of y, and are numbers again. */
static deft_tensor *through_codes(const exec *e, unsigned p, deft_tensor *x, deft_tensor *y)
{
    const bool has_axes = deft_rank(x) && deft_rank(y); /* as u4 and i4 must */
    const int n_dtypes = (has_axes ? DEFT_N_DTYPES : DEFT_U4) - DEFT_F8E4M3FN;
    const deft_dtype t = (deft_dtype)(DEFT_F8E4M3FN + (int)(p % (unsigned)n_dtypes));
    const bool is_packed = t == DEFT_U4 || t == DEFT_I4;
    deft_tensor *const scale = number(e, is_packed ? 6 : 1);
    deft_tensor *a = deft_cast(deft_mul(tame(x), scale), t);
    deft_tensor *const b = deft_cast(deft_mul(tame(y), scale), t);
    if (p / 5 % 2) a = deft_bitcast(a, t == DEFT_F8E5M2 ? DEFT_E8M0 : t);
    deft_tensor *const rolled = is_packed || !has_axes ? b : deft_roll(b, 1, -1);
    deft_tensor *const moved = deft_squeeze(deft_unsqueeze(rolled, 0), DEFT_AXES(0));
    deft_tensor *const sum = deft_add(deft_cast(a, DEFT_F32), deft_cast(moved, DEFT_F32));
    return tame(deft_mul(sum, number(e, is_packed ? 0.0625 : 0.5)));
}

static deft_dtype storage_dtype(unsigned p)
{
    static const deft_dtype all[] = { DEFT_F8E4M3FN, DEFT_F8E5M2, DEFT_E8M0, DEFT_U4, DEFT_I4 };
    return all[p % LEN(all)];
}

/* t as codes of that dtype. */
static deft_tensor *coded(const exec *e, deft_tensor *t, deft_dtype dtype)
{
    return deft_cast(deft_mul(tame(t), number(e, 6)), dtype);
}

/* A function of a and b, of one shape: a loaded program on the tested side. False: there is none
 * for the shape, or it failed. */
static bool call_loaded(const exec *e, unsigned p, deft_tensor *a, deft_tensor *b,
                        deft_tensor **out)
{
    side *const s = e->s;
    deft_tensor *const in[2] = { tame(a), tame(b) };
    const deft_shape shape = deft_shape_get(a);
    for (unsigned i = 0; i < MIXED_LOADED_RESULTS; i++) out[i] = NULL;
    if (shape.rank >= LEN(shape_of_rank) ||
        memcmp(shape.dim, shape_of_rank[shape.rank].dim, shape.rank * sizeof *shape.dim) != 0)
        return false;
    const unsigned which = mixed_loaded_pick(p, shape.rank, is_exact);
    if (s->plain) {
        mixed_loaded_record(s->cx, which, in, out);
        return out[0] && out[2];
    }
    if (!s->loaded[which]) s->loaded[which] = mixed_loaded_load(s->cx, folder, which);
    return s->loaded[which] &&
           deft_program_call(s->loaded[which], in, 2, out, MIXED_LOADED_RESULTS);
}

static deft_tensor *through_loaded(const exec *e, unsigned p, deft_tensor *x, deft_tensor *y)
{
    deft_tensor *out[MIXED_LOADED_RESULTS];
    if (!call_loaded(e, p, x, fit(e, y, x), out)) return deft_neg(x);
    return bounded(deft_add(deft_add(out[0], deft_mul(out[1], number(e, 2))), out[2]));
}

static deft_tensor *exact_work(const exec *e, unsigned p, deft_tensor *x, deft_tensor *y)
{
    deft_tensor *const a = tame(x), *const b = tame(y);
    switch (p % 9) {
    case 8: return through_loaded(e, p / 9, x, y);
    case 0: return bounded(deft_sub(deft_mul(a, number(e, 3)), b));
    case 1: return bounded(deft_mul(a, b));
    case 2: return bounded(deft_sub(a, deft_sum(b, DEFT_ALL_AXES, 0)));
    case 3: return bounded(deft_sub(deft_square(a), b));
    case 4: return bounded(deft_imag(deft_mul(deft_complex(a, b), deft_conj(deft_complex(b, a)))));
    case 5: return bounded(elementwise_in(e, p / 8 * 7 + p, x, y));
    case 6: return deft_where(deft_lt(a, b), deft_neg(b), a);
    default: return deft_maximum(deft_neg(a), b);
    }
}

static deft_tensor *work(const exec *e, unsigned p, deft_tensor *x, deft_tensor *y)
{
    if (is_exact) return exact_work(e, p, x, y);
    switch (p % 11) {
    case 10: return through_loaded(e, p / 11, x, y);
    case 9: return through_codes(e, p / 10 * 3 + p, x, y);
    case 8: return elementwise_in(e, p / 10 * 7 + p, x, y);
    case 7: return deft_imag(deft_sin(deft_conj(deft_complex(tame(x), tame(y)))));
    case 0: return deft_tanh(deft_mul(x, number(e, 1.25)));
    case 1: return deft_sin(deft_add(x, y));
    case 2: return deft_mul(deft_cos(x), y);
    case 3: return deft_sub(deft_square(tame(x)), y);
    case 4: return deft_exp(deft_neg(deft_square(deft_add(x, y))));
    case 5: return deft_mul(deft_add(x, y), deft_sum(tame(x), DEFT_ALL_AXES, 0));
    default: return deft_sub(x, deft_mul(deft_sin(y), number(e, 0.5)));
    }
}

typedef struct job {
    exec *e;
    unsigned p;
    deft_tensor *outside;
} job;

#define FN(name)                                                                                   \
    static deft_status name(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,  \
                            size_t n_out, void *user)
#define UNUSED (void)cx, (void)in, (void)n_in, (void)out, (void)n_out, (void)user

/* Several records, so that budgets are met in the middle. */
FN(turn)
{
    UNUSED;
    const job *const j = user;
    deft_tensor *x = in[0];
    for (unsigned i = 0; i < 1 + j->p % 3; i++)
        x = work(j->e, j->p + i, x, fit(j->e, j->outside, x));
    out[0] = x;
    if (n_out > 1) out[1] = bounded(deft_mul(x, n_in > 1 ? fit(j->e, in[1], x) : in[0]));
    return x ? DEFT_OK : deft_error(cx);
}

FN(goes_on)
{
    UNUSED;
    const job *const j = user;
    out[0] = deft_lt(in[1], number(j->e, 1 + j->p % 3));
    return DEFT_OK;
}

FN(counted_turn)
{
    UNUSED;
    const job *const j = user;
    out[0] = work(j->e, j->p, in[0], in[0]);
    out[1] = deft_add(in[1], number(j->e, 1));
    return DEFT_OK;
}

FN(other)
{
    UNUSED;
    const job *const j = user;
    out[0] = bounded(deft_add(wave(in[0]), fit(j->e, j->outside, in[0])));
    return DEFT_OK;
}

static deft_tensor *first_row(deft_tensor *t)
{
    return deft_rank(t) == 2 ? deft_slice(t, DEFT_AT(0)) : t;
}

/* A square matrix made of the first row of t. */
static deft_tensor *square_of(const exec *e, deft_tensor *t)
{
    const int64_t n = deft_dim(t, -1);
    deft_tensor *const column = deft_reshape(first_row(tame(t)), DEFT_SHAPE(n, 1));
    return deft_mul(column, deft_add(deft_t(column), number(e, 0.5)));
}

/* t, of one row or several, times a square matrix made of its first row, in either layout. Other
 * ranks have no row. */
static deft_tensor *product(const exec *e, unsigned p, deft_tensor *t)
{
    const int rank = deft_rank(t);
    if (rank == 0 || rank > 2) return deft_square(tame(t));
    deft_tensor *const square = square_of(e, t);
    return deft_mul(deft_matmul(t, p & 1 ? deft_t(square) : square), number(e, 0.25));
}

/* A step of a recurrent layer: the weights come from outside, and all states are stacked. */
FN(recurrent)
{
    UNUSED;
    const job *const j = user;
    deft_tensor *y = deft_mul(deft_matmul(in[0], j->outside), number(j->e, 0.25));
    if (n_in > 1) y = deft_add(y, fit(j->e, in[1], y));
    out[0] = tame(y);
    if (n_out > 1) out[1] = out[0];
    return y ? DEFT_OK : deft_error(cx);
}

/* The product under a policy of mixed precision, in f32 again, or the logarithm of a softmax of it
 * that is recorded under the same policy. */
static deft_tensor *under_policy(const exec *e, unsigned p, deft_tensor *t)
{
    const deft_dtype was = deft_mixed_set(e->s->cx, p & 1 ? DEFT_BF16 : DEFT_F16);
    deft_tensor *y = product(e, p, tame(t));
    if (p & 2 && deft_rank(y)) y = deft_log_softmax(y, -1);
    if (p & 4) y = deft_add(deft_square(y), deft_sum(y, DEFT_ALL_AXES, 0));
    if (p & 8) y = deft_mul(y, t);
    deft_mixed_set(e->s->cx, was);
    return deft_cast(y, DEFT_F32);
}

static bool gradient(deft_tensor *y, deft_tensor *x, deft_tensor **g)
{
    const deft_grad_options o = { .size = sizeof o, .unused_is_zero = true };
    deft_tensor *const sum = deft_rank(y) ? deft_sum(y, DEFT_ALL_AXES, 0) : y;
    return sum && deft_grad(&sum, NULL, 1, &x, 1, &o, g);
}

/* Of one example: with a loop, with a gradient of its own, with both; now and then with a product
 * under a policy. */
FN(example)
{
    UNUSED;
    job *const j = user;
    deft_tensor *x = in[0], *two[2];
    if (j->p & 1) {
        if (!deft_scan(cx, turn, j, &x, 1, NULL, 0, 2, 1, two)) return deft_error(cx);
        x = deft_add(two[0], deft_sum(two[1], DEFT_AXES(0), 0));
    } else {
        x = work(j->e, j->p / 4, x, fit(j->e, j->outside, x));
    }
    if (j->p % 5 == 4 && !is_exact) x = under_policy(j->e, j->p, x);
    if (j->p & 2 && !gradient(x, in[0], &x)) return deft_error(cx);
    out[0] = x;
    return DEFT_OK;
}

static deft_tensor *hook(deft_ctx *cx, deft_tensor *g, void *user)
{
    (void)user;
    return deft_mul(wave(g), deft_const_f(cx, is_exact ? 2 : 0.75));
}

FN(forward)
{
    UNUSED;
    out[0] = deft_mul(deft_square(in[0]), deft_const_f(cx, is_exact ? 1 : 0.25));
    return DEFT_OK;
}

static deft_status backward(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                            deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                            deft_tensor **grad_in, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    deft_tensor *const half = deft_const_f(cx, is_exact ? 1 : 0.5);
    grad_in[0] = deft_mul(grad_out[0], deft_add(deft_mul(out[0], half), in[0]));
    return DEFT_OK;
}

/* Keeps t as a value of before, in place of another. */
static void keep_old(exec *e, unsigned dst, deft_tensor *t)
{
    if (!t || !deft_keep(t)) return;
    e->did = true;
    settle(e, t);
    deft_drop(&e->s->old[dst % OLD]);
    e->s->old[dst % OLD] = t;
    e->s->fresh |= 1u << dst % OLD;
}

/* A gradient, which is to be seen. */
static void bind_gradient(exec *e, const stmt *st, deft_tensor *g)
{
    bind(e, st->dst, g);
    if (e->in && st->p & 1)
        assign(e, state_of(e, st->a), tame(g));
    else if (!e->in && st->p & 3)
        keep_old(e, st->dst, bounded(deft_mul(g, number(e, 2))));
}

/* What a loop or examples made, or its gradient at once. */
static void bind_made(exec *e, const stmt *st, deft_tensor *made)
{
    deft_tensor *g = NULL;
    if (st->q & 8 && gradient(made, state_of(e, st->b + 1u), &g))
        bind_gradient(e, st, g);
    else
        bind(e, st->dst, made);
}

static void run_scan(exec *e, const stmt *st)
{
    job j = { e, st->p, operand(e, st->b) };
    deft_tensor *x = operand(e, st->a), *out[2] = { 0 };
    deft_tensor *const rows = state_of(e, 2 + st->q % 2);
    const bool has_rows = st->q & 2, is_recurrent = st->q & 16 && deft_rank(x) > 0;
    if (is_recurrent) j.outside = square_of(e, fit(e, j.outside, x));
    e->pure = true;
    const bool ok = deft_scan(e->s->cx, is_recurrent ? recurrent : turn, &j, &x, 1, &rows, has_rows,
                              M, st->q >> 2 & 1, out);
    e->pure = false;
    if (!ok) return;
    settle(e, out[0]);
    bind_made(e, st, out[0]);
    if (st->q & 4) bind(e, st->dst + 1, deft_sum(out[1], DEFT_AXES(0), 0));
}

static void run_while(exec *e, const stmt *st)
{
    job j = { e, st->p, NULL };
    deft_tensor *in[2] = { operand(e, st->a), number(e, 0) }, *out[2] = { 0 };
    in[1] = deft_mul(deft_sum(in[0], DEFT_ALL_AXES, 0), number(e, 0));
    e->pure = true;
    const bool ok = deft_while(e->s->cx, goes_on, counted_turn, &j, in, 2, 6, out);
    e->pure = false;
    if (ok) bind_made(e, st, out[0]);
}

static void run_cond(exec *e, const stmt *st)
{
    job j = { e, st->p, operand(e, st->b) };
    deft_tensor *x = operand(e, st->a), *out = NULL;
    deft_tensor *const sum = deft_sum(operand(e, st->q), DEFT_ALL_AXES, 0);
    e->pure = true;
    const bool ok = deft_cond(deft_gt(sum, number(e, 0.25)), turn, other, &j, &x, 1, &out, 1);
    e->pure = false;
    if (ok) bind(e, st->dst, out);
}

static void run_vmap(exec *e, const stmt *st)
{
    job j = { e, st->p, operand(e, st->b) };
    deft_tensor *x = operand(e, st->a), *out = NULL;
    if (deft_rank(x) == 0) x = state_of(e, 2);
    e->pure = true;
    const bool ok = deft_vmap(e->s->cx, example, &j, &x, NULL, 1, &out, NULL, 1);
    e->pure = false;
    if (ok) bind_made(e, st, out);
}

/* ---- parts ---- */

/* `moving`: other bounds each turn; equal ones where p is. */
static deft_tensor *part_of(const exec *e, deft_tensor *t, unsigned p)
{
    const deft_shape s = deft_shape_get(t);
    if (s.rank == 0) return NULL;
    const int64_t n = s.dim[0], k = p & 8 && n > 2 ? n / 2 : 1;
    const bool moving = p & 16 && e->b->kind != B_CAPTURE;
    const int64_t at = (int64_t)(moving ? p + e->iter : p & 7) % (n - k + 1);
    if (s.rank == 2 && p & 32)
        return deft_slice(t, DEFT_FULL, DEFT_R(at % (N - 1), at % (N - 1) + 1));
    return deft_slice(t, DEFT_R(at, at + k));
}

static deft_tensor *view_of(deft_tensor *t, unsigned p)
{
    const deft_shape s = deft_shape_get(t);
    if (s.rank == 0) return NULL;
    switch (p % 3) {
    case 0: return deft_flip(t, DEFT_AXES(0));
    case 1: return s.rank == 2 ? deft_t(t) : deft_reshape(t, DEFT_SHAPE(-1, 1));
    default: return deft_flatten(t);
    }
}

static void run_part(exec *e, const stmt *st, bool view)
{
    deft_tensor *const root = state_of(e, st->a);
    deft_tensor *const t = view ? view_of(root, st->p) : part_of(e, root, st->p);
    if (!t) return;
    bind_alias(e, st->dst, t);
    e->at[st->dst % LOCALS].root = root;
    e->at[st->dst % LOCALS].version = *version_of(e, root);
}

/* ---- assigns ---- */

/* One part of a tensor from another part of it, or of something else. */
static void assign_part(exec *e, const stmt *st)
{
    deft_tensor *const root = state_of(e, st->a);
    deft_tensor *const to = part_of(e, root, st->p);
    deft_tensor *from = st->q & 1 ? part_of(e, root, st->q / 2u) : operand(e, st->b);
    if (!to || !from) return;
    if (st->q & 2) from = deft_mul(fit(e, from, to), number(e, 0.75));
    if (st->q & 4) from = deft_sub(to, fit(e, from, to));
    if (!deft_assign(to, bounded(fit(e, from, to)))) return;
    e->did = true;
    ++*version_of(e, root);
    settle(e, root);
    if (st->q & 8) bind_alias(e, st->dst, to); /* the view goes on with what was assigned */
}

/* Rows or columns one after the other, each from itself, from the one before, and from others. */
static void sweep(exec *e, const stmt *st)
{
    deft_tensor *const root = state_of(e, st->a);
    const deft_shape s = deft_shape_get(root);
    if (s.rank == 0) return;
    const int axis = s.rank == 2 && st->p & 1;
    const int64_t n = s.dim[axis], by = st->p & 2 ? n - 1 : 1;
    const bool moving = st->p & 4 && e->b->kind != B_CAPTURE;
    int64_t at = (st->p / 8 + (moving ? (int64_t)e->iter : 0)) % n;
    deft_tensor *last = NULL; /* the handle that was assigned */
    for (unsigned i = 0; i < 2u + st->q % 8; i++) {
        const int64_t next = (at + by) % n;
        deft_tensor *part[2];
        for (unsigned k = 0; k < 2; k++) {
            const deft_range r = DEFT_R(k ? at : next, (k ? at : next) + 1);
            part[k] = axis ? deft_slice(root, DEFT_FULL, r) : deft_slice(root, r);
        }
        if (last && st->q & 32) part[1] = last;
        last = part[0];
        deft_tensor *value = deft_mul(deft_add(part[0], part[1]), number(e, 0.5));
        if (st->q & 8) value = deft_sub(value, fit(e, tame(operand(e, st->b)), value));
        if (st->q & 16 && i == 1) bind(e, st->dst, value);
        if (!deft_assign(part[0], bounded(value))) return;
        e->did = true;
        ++*version_of(e, root);
        settle(e, root);
        at = next;
    }
}

static void assign_view(exec *e, const stmt *st)
{
    for (unsigned i = 0; i < LOCALS; i++) {
        const local *const l = &e->at[(st->a + i) % LOCALS];
        if (!l->root || l->version != *version_of(e, l->root)) continue;
        deft_tensor *const value = fit(e, tame(operand(e, st->b)), l->t);
        if (value) e->did = deft_assign(l->t, bounded(value)) != NULL;
        settle(e, l->root);
        settle(e, l->t);
        /* Other views are stale from here on; this one is not. */
        const unsigned now = ++*version_of(e, l->root);
        e->at[(st->a + i) % LOCALS].version = now;
        return;
    }
}

/* Part of b changes, by what a had in the same place or elsewhere. */
static void leap_inside(exec *e, const stmt *st, deft_tensor *b, deft_tensor *was)
{
    deft_tensor *const to = part_of(e, b, st->q);
    deft_tensor *const from = part_of(e, was, st->p & 8 ? st->q + 1u : st->q);
    if (!to || !from) return;
    deft_tensor *const value = deft_sub(deft_mul(to, number(e, 0.5)), fit(e, from, to));
    if (!deft_assign(to, bounded(value))) return;
    ++*version_of(e, b);
    settle(e, b);
}

/* Two exchange their values, or one gets the other's, which then changes; what was is seen on. */
static void swap(exec *e, const stmt *st)
{
    const unsigned i = st->a & 2;
    deft_tensor *const a = state_of(e, i), *const b = state_of(e, i + 1);
    deft_tensor *const was = deft_cast(st->p & 2 ? b : a, DEFT_F32);
    settle(e, was);
    assign(e, a, b);
    if (st->p & 4)
        leap_inside(e, st, b, was);
    else
        assign(e, b, st->p & 1 ? was : deft_mul(was, number(e, 0.875)));
    bind_alias(e, st->dst, was);
}

/* ---- statements ---- */

/* A value of before that stays: over many steps, until another takes its place. */
static void keep(exec *e, const stmt *st)
{
    deft_tensor *const t = st->p & 1 ? operand(e, st->a) : state_of(e, st->a);
    if (e->b->kind == B_CAPTURE) return;
    deft_tensor *const same = st->p & 2 ? deft_mul(t, number(e, 0.5)) : deft_cast(t, DEFT_F32);
    keep_old(e, st->dst, bounded(same));
}

static deft_tensor *unary(const exec *e, unsigned p, deft_tensor *t)
{
    switch (p % 6) {
    case 0: return tame(t);
    case 1: return deft_neg(t);
    case 2: return wave(t);
    case 3: return deft_mul(t, number(e, 0.5 + p % 3));
    case 4: return deft_add(t, number(e, 0.25));
    default: return deft_square(tame(t));
    }
}

static deft_tensor *binary(unsigned p, deft_tensor *a, deft_tensor *b)
{
    switch (p % 4) {
    case 0: return deft_add(a, b);
    case 1: return deft_sub(a, b);
    case 2: return deft_mul(tame(a), tame(b));
    default: return deft_maximum(a, b);
    }
}

static deft_tensor *reduce(unsigned p, deft_tensor *t)
{
    if (deft_rank(t) == 0) return deft_square(tame(t));
    switch (p % 3) {
    case 0: return deft_sum(t, DEFT_AXES(0), p & 4);
    case 1: return deft_max(t, DEFT_ALL_AXES, 0);
    default: return deft_cumsum(t, 0);
    }
}

/* A convolution, an activation and the residual t itself, which the result may replace. */
static deft_tensor *residual_layer(const exec *e, deft_tensor *t, deft_tensor *x, deft_tensor *w)
{
    deft_conv2d_options o = { .size = sizeof o, .padding = { 0, 1 }, .groups = M };
    deft_tensor *const weights = deft_expand(
        deft_reshape(deft_slice(w, DEFT_R(0, 3)), DEFT_SHAPE(1, 1, 1, 3)), DEFT_SHAPE(M, 1, 1, 3));
    deft_tensor *const y = deft_mul(deft_conv2d(x, weights, &o), number(e, 0.25));
    return deft_reshape(deft_relu(deft_add(y, deft_reshape(t, deft_shape_get(x)))),
                        DEFT_SHAPE(M, N));
}

/* Functions of images with options of their own: at least as many rows and one column. */
static deft_tensor *resampled(unsigned p, deft_tensor *x, deft_tensor *w)
{
    const deft_conv_options conv = { .size = sizeof conv, .stride = { 1, 2 }, .groups = M };
    const deft_pool_options pool = { .size = sizeof pool,
                                     .kernel = { 2, 3 },
                                     .stride = { 1, 2 },
                                     .padding = { 1, 1 },
                                     .ceil_mode = p & 8 };
    const deft_sampling_options linear = { .size = sizeof linear, .mode = DEFT_LINEAR };
    const deft_sampling_options cubic = { .size = sizeof cubic,
                                          .mode = DEFT_CUBIC,
                                          .border = (deft_border)(p / 5 % 3) };
    deft_tensor *const place = deft_reshape(w, DEFT_SHAPE(1, N / 2, 1, 2));
    switch (p % 5) {
    case 4: return deft_expand(deft_grid_sample(x, place, &cubic), DEFT_SHAPE(1, M, N / 2, 3));
    case 0: return deft_conv_transpose(x, deft_reshape(w, DEFT_SHAPE(M, 1, 1, N / M)), &conv);
    case 1: return deft_max_pool(x, &pool, NULL);
    case 2: return deft_interpolate(x, DEFT_SHAPE(3, 2), &linear);
    default: return deft_group_norm(x, 1, NULL);
    }
}

/* Convolutions and pools over an image of M channels, and what they give again as [M, N]. */
static deft_tensor *windows(const exec *e, unsigned p, deft_tensor *t, deft_tensor *w)
{
    enum { ROWS = 2, COLUMNS = N / ROWS };
    deft_tensor *const x = deft_reshape(tame(t), DEFT_SHAPE(1, M, ROWS, COLUMNS));
    deft_conv2d_options conv = { .size = sizeof conv, .padding = { 0, 1 } };
    deft_pool2d_options pool = {
        .size = sizeof pool, .kernel = { 2, 3 }, .stride = { 1, 1 }, .padding = { 1, 1 }
    };
    deft_tensor *y;
    /* Means of 6 elements and resampled images are rounded. */
    switch (is_exact ? p % 3 : p & 32 ? 4 : p % 4) {
    case 4: y = resampled(p, x, w); break;
    case 0: /* depthwise */
        if (p / 4 % 2) return residual_layer(e, t, x, w);
        conv.groups = M;
        y = deft_conv2d(x, deft_reshape(w, DEFT_SHAPE(M, 1, 1, N / M)), &conv);
        break;
    case 1: /* dense, one output: the same for all channels */
        conv.dilation[1] = 1 + p / 4 % 2;
        y = deft_conv2d(x, deft_reshape(w, DEFT_SHAPE(1, M, 1, N / M)), &conv);
        break;
    case 2: y = deft_max_pool2d(x, &pool); break;
    default: y = deft_avg_pool2d(x, &pool); break;
    }
    const int64_t columns = deft_dim(y, 3) < COLUMNS ? deft_dim(y, 3) : COLUMNS;
    y = deft_slice(y, DEFT_FULL, DEFT_FULL, DEFT_R(0, ROWS), DEFT_R(0, columns));
    y = deft_sum(y, DEFT_AXES(3), 1);
    return deft_mul(t, deft_reshape(deft_add(deft_expand(deft_mul(y, number(e, 0.25)),
                                                         DEFT_SHAPE(1, M, ROWS, COLUMNS)),
                                             number(e, 0.5)),
                                    DEFT_SHAPE(M, N)));
}

static void run_windows(exec *e, const stmt *st, deft_tensor *t, deft_tensor *with)
{
    const deft_shape s = deft_shape_get(t), of_w = deft_shape_get(with);
    if (s.rank != 2 || s.dim[0] != M || s.dim[1] != N) return;
    if (of_w.rank != 1 || of_w.dim[0] != N) return;
    bind(e, st->dst, windows(e, st->p, t, with));
}

/* The greatest or least half of the elements along the last axis, twice. */
static deft_tensor *top(unsigned p, deft_tensor *t)
{
    deft_tensor *at = NULL;
    const int rank = deft_rank(t);
    const int64_t n = rank > 0 ? deft_dim(t, rank - 1) : 0;
    if (n < 2 || n % 2 != 0) return t;
    deft_tensor *const half = deft_topk(t, n / 2, rank - 1, p & 1, &at);
    deft_tensor *const second = p & 2 ? deft_gather(t, at, rank - 1) : deft_neg(half);
    return deft_concat((deft_tensor *[]){ half, second }, 2, rank - 1);
}

/* Attention of the rows of t to more keys than a block has, which are made of its first row. */
static deft_tensor *attended(const exec *e, unsigned p, deft_tensor *t)
{
    if (deft_rank(t) == 0) return t;
    const int64_t n_keys = p & 1 ? 2 * DEFT_ATTENTION_BLOCK : DEFT_ATTENTION_BLOCK + 5;
    deft_tensor *const row = first_row(tame(t));
    deft_tensor *const at = deft_cast(deft_iota(e->s->cx, DEFT_SHAPE(n_keys, 1), 0), DEFT_F32);
    deft_tensor *const keys = deft_mul(deft_sin(at), row);
    deft_tensor *const values = deft_add(deft_cos(at), row);
    deft_tensor *const q = deft_rank(t) == 1 ? deft_unsqueeze(t, 0) : t;
    const deft_attention_options o = {
        .size = sizeof o,
        .is_causal = p & 2,
        .is_at_end = p & 4,
        .window = p & 8 ? n_keys - 3 : 0,
        .mask = p & 16 ? deft_reshape(deft_cos(at), DEFT_SHAPE(1, n_keys)) : NULL,
        .cap = p & 32 ? 2 : 0,
    };
    return deft_reshape(deft_attention(q, keys, values, &o), deft_shape_get(t));
}

/* A costly function of t, which thousands of rows repeat: so often that it is stored first. */
static deft_tensor *repeated(const exec *e, deft_tensor *t)
{
    const int64_t rows = 40000 / (deft_numel(t) + 1) + 4;
    deft_tensor *const at = deft_cast(deft_iota(e->s->cx, DEFT_SHAPE(rows), 0), DEFT_F32);
    deft_tensor *const line = deft_reshape(tame(t), DEFT_SHAPE(1, -1));
    deft_tensor *const all = deft_mul(deft_sin(line), deft_reshape(at, DEFT_SHAPE(-1, 1)));
    return deft_reshape(deft_max(all, DEFT_AXES(0), 0), deft_shape_get(t));
}

/* How many elements of t are in each of N bins, as floats: integers are counted. */
static deft_tensor *counted(const exec *e, unsigned p, deft_tensor *t)
{
    deft_ctx *const cx = e->s->cx;
    const deft_dtype of = p & 1 ? DEFT_I32 : DEFT_I64;
    static const deft_dtype bins[8] = { DEFT_U8,  DEFT_I32, DEFT_I8,  DEFT_I16,
                                        DEFT_U16, DEFT_U32, DEFT_U64, DEFT_I64 };
    deft_tensor *const bin =
        deft_cast(deft_mul(deft_add(tame(deft_reshape(t, DEFT_SHAPE(-1))), number(e, 1)),
                           number(e, 0.49 * N)),
                  bins[p >> 1 & 7]);
    deft_tensor *const some = deft_clamp(bin, 0, N - 1);
    return deft_cast(deft_index_add(deft_zeros(cx, DEFT_SHAPE(N), of), some,
                                    deft_full_i(cx, DEFT_SHAPE(1), of, 3), 0),
                     DEFT_F32);
}

/* The elements of t in order, and where they would go among the elements of with. */
static deft_tensor *searched(deft_tensor *t, deft_tensor *with)
{
    deft_tensor *const list = deft_sort(deft_flatten(with), 0, false);
    return deft_cast(deft_searchsorted(list, t, true), DEFT_F32);
}

/* How often each value of t, rounded to a few, occurs. */
static deft_tensor *distinct(const exec *e, unsigned p, deft_tensor *t)
{
    deft_tensor *inverse, *counts;
    deft_tensor *const few = deft_round(deft_mul(tame(t), number(e, 1.5)));
    deft_tensor *const values = deft_unique_all(few, N, NULL, &inverse, &counts, NULL);
    deft_tensor *const some = p & 1 ? counts : inverse;
    return p & 2 ? values : deft_mul(deft_cast(some, DEFT_F32), number(e, 0.25));
}

/* The mean of the neighbours before and after each element, along the last axis. */
static deft_tensor *stencil(const exec *e, deft_tensor *t, deft_pad_mode mode)
{
    int64_t by[2][2] = { { 0 }, { 0 } };
    const uint32_t rank = deft_rank(t);
    if (rank > 2 || deft_dim(t, -1) < 2) return t;
    by[0][rank - 1] = 1;
    by[1][rank - 1] = -1;
    deft_tensor *const sum = deft_add(deft_shift(t, by[0], mode, 0), deft_shift(t, by[1], mode, 0));
    return deft_mul(sum, number(e, 0.5));
}

/* Numbers from 0 to n - 1 that t decides. */
static deft_tensor *places(const exec *e, deft_tensor *t, int64_t n)
{
    deft_tensor *const from_0 = deft_mul(deft_add(tame(t), number(e, 1)), number(e, 0.5));
    deft_tensor *const at = deft_cast(deft_mul(from_0, number(e, (double)n)), DEFT_I64);
    return deft_clamp(at, 0, n - 1);
}

/* The loss of paths through the rows of t, which read as one label that `with` decides. */
static deft_tensor *path_loss(const exec *e, deft_tensor *t, deft_tensor *with)
{
    const deft_ctc_options o = { .size = sizeof o, .reduction = DEFT_REDUCTION_SUM };
    const int64_t n = deft_dim(t, -1);
    if (n < 2) return number(e, 0.5);
    deft_tensor *const logits = deft_reshape(t, DEFT_SHAPE(-1, 1, n));
    deft_tensor *const first = deft_slice(deft_reshape(with, DEFT_SHAPE(-1, 1)), DEFT_R(0, 1));
    deft_tensor *const label = deft_add(places(e, first, n - 1), deft_const_i(e->s->cx, 1));
    return deft_mul(deft_ctc_loss(deft_log_softmax(logits, -1), label, NULL, NULL, &o),
                    number(e, 0.125));
}

/* Functions of array.h. */
static deft_tensor *arranged(const exec *e, unsigned p, deft_tensor *t, deft_tensor *with)
{
    if (deft_rank(t) == 0) return is_exact ? deft_neg(t) : deft_asinh(t);
    deft_tensor *const near_one = deft_add(deft_mul(tame(t), number(e, 0.25)), number(e, 1));
    static const uint8_t exact[] = { 0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 21, 22, 23, 25 };
    switch (is_exact ? exact[p % sizeof exact] : p % 26) {
    case 23: return deft_polyval(tame(t), deft_slice(deft_flatten(fit(e, with, t)), DEFT_R(0, 2)));
    case 24: return deft_mul(t, path_loss(e, t, with));
    case 0: return deft_cumprod(near_one, p & 16 ? -1 : 0);
    case 1: return deft_cummax(t, p & 16 ? -1 : 0);
    case 2: return deft_cummin(t, -1);
    case 3: return deft_std(t, DEFT_AXES(0), true, 0);
    case 4: return deft_diff(t, 1, 0, NULL, t);
    case 5: return deft_roll(t, (int64_t)(p / 16), DEFT_FLAT);
    case 6: return deft_roll_n(t, (const int64_t[]){ 1, -2 }, DEFT_AXES(0, -1));
    case 7: return deft_sum(deft_repeat(tame(t), 3, -1), DEFT_AXES(0), 0);
    case 8: return deft_max(deft_tile(tame(t), DEFT_SHAPE(3)), DEFT_AXES(-1), true);
    case 9: return searched(t, with);
    case 10: return deft_cast(deft_isin(deft_round(t), deft_round(with), p & 16), DEFT_F32);
    case 11: return distinct(e, p / 16, t);
    case 12: return deft_take_along_axis(t, deft_argsort(t, 0, p & 16), 0);
    case 13: return deft_moveaxis(t, DEFT_AXES(0), DEFT_AXES(-1));
    case 15: return deft_nanmean(deft_sqrt(t), DEFT_AXES(0), true);
    case 16: return deft_vector_norm(t, p & 32 ? 2 : 1, DEFT_AXES(-1), true);
    case 17: return deft_median(t, 0, true);
    case 18: return deft_quantile(t, 0.3, -1, true);
    case 19:
        return p & 32 ? deft_logsumexp(tame(t), DEFT_AXES(-1), true)
                      : deft_logcumsumexp(tame(t), 0);
    case 20: return deft_cast(deft_histc(t, N, -1, 1), DEFT_F32);
    case 21: return stencil(e, t, (deft_pad_mode)(p / 32 % 4));
    case 22: return deft_fma(t, near_one, fit(e, with, t));
    case 14: return deft_logaddexp(t, fit(e, with, t));
    default: return deft_cumulative_sum(tame(t), 0, true);
    }
}

/* The first n elements along an axis, which is the first or the last. */
static deft_tensor *first_of(deft_tensor *t, int axis, int64_t n)
{
    deft_range r[DEFT_MAX_RANK];
    const uint32_t rank = deft_rank(t);
    for (uint32_t i = 0; i < rank; i++) r[i] = DEFT_FULL;
    r[axis < 0 ? rank - 1 : 0] = DEFT_R(0, n);
    return deft_slice_n(t, rank, r);
}

/* Maps over arrays that are joined of pieces, along one axis or several. */
static deft_tensor *joined(const exec *e, unsigned p, deft_tensor *t, deft_tensor *with)
{
    if (deft_rank(t) == 0) return tame(t);
    const int axis = p & 32 ? 0 : -1;
    const int64_t n = deft_dim(t, axis), by = (p & 15) % n;
    const int64_t half[] = { by, n - by };
    deft_tensor *const x = fit(e, with, t);
    deft_tensor *const back = deft_roll(t, -1, -1), *const once = deft_roll(t, by, axis);
    switch (p / 64 % 6) {
    case 0: return deft_mul(deft_add(once, x), number(e, 0.5));
    case 1: return deft_mul(deft_sub(deft_add(once, back), deft_mul(t, x)), number(e, 0.25));
    case 2: {
        if (by == 0) return deft_sub(deft_concat(&t, 1, axis), x);
        deft_tensor *const of_t = first_of(t, axis, half[0]);
        deft_tensor *const of_x = first_of(x, axis, half[1]);
        return deft_maximum(deft_concat((deft_tensor *[]){ tame(of_x), of_t }, 2, axis), x);
    }
    case 3: {
        if (deft_rank(t) > 2) return once;
        deft_tensor *const both = deft_stack((deft_tensor *[]){ t, x }, 2, 0);
        return deft_mul(deft_sum(deft_mul(deft_add(both, once), number(e, 0.5)), DEFT_AXES(0), 0),
                        number(e, 0.5));
    }
    case 4: return deft_mul(deft_add(deft_roll(tame(once), 1, axis), back), number(e, 0.5));
    default: return deft_sub(tame(once), deft_flip(x, DEFT_AXES(-1)));
    }
}

/* Complex numbers of the parts t and `with`, of which real ones are made again. */
static deft_tensor *through_complex(const exec *e, unsigned p, deft_tensor *t, deft_tensor *with)
{
    deft_tensor *const z = deft_complex(tame(t), tame(fit(e, with, t)));
    deft_tensor *const w = deft_add(deft_mul(deft_conj(z), number(e, 0.5)), number(e, 2));
    const bool has_axes = deft_rank(t) > 0;
    deft_tensor *inverse = NULL, *flat;
    static const uint8_t exact[] = { 0, 3, 6, 9, 11, 12, 13 };
    switch (is_exact ? exact[p % sizeof exact] : p % 14) {
    case 0: return deft_real(deft_mul(z, deft_add(w, z)));
    case 1: return deft_abs(deft_exp(z));
    case 2: return has_axes ? deft_imag(deft_flip(deft_tanh(w), DEFT_AXES(0))) : deft_angle(w);
    case 3: return has_axes ? deft_real(deft_sum(deft_square(z), DEFT_AXES(0), 0)) : deft_imag(w);
    case 4: /* a part is assigned */
        deft_assign(deft_real(w), fit(e, with, t));
        return deft_add(deft_real(deft_sqrt(w)), deft_imag(w));
    case 5: return deft_imag(deft_view_as_complex(deft_view_as_real(deft_log(w))));
    case 6:
        return deft_real(deft_matmul(has_axes ? z : deft_unsqueeze(z, 0),
                                     has_axes ? deft_conj(deft_rank(t) > 1 ? deft_t(w) : w)
                                              : deft_unsqueeze(w, 0)));
    case 7: return has_axes ? deft_imag(deft_cumprod(deft_div(z, w), 0)) : deft_real(w);
    case 8:
        return has_axes ? deft_abs(deft_roll(deft_stack((deft_tensor *[]){ z, w }, 2, 0), 1, -1))
                        : deft_abs(z);
    case 9: return has_axes ? deft_imag(deft_vecdot(z, w, -1)) : deft_real(deft_round(z));
    case 10: /* every element again, from the distinct ones */
        deft_unique_all(z, deft_numel(z), NULL, &inverse, NULL, NULL);
        return deft_abs(deft_take(deft_unique(z, deft_numel(z), NULL), inverse, 0));
    case 11: return deft_where(deft_isin(z, w, false), t, deft_real(w));
    case 12:
        flat = deft_flatten(deft_mul(z, z));
        return deft_imag(deft_compress(flat, deft_isfinite(flat), deft_numel(flat), NULL));
    default: return deft_sum(deft_view_as_real(deft_where(deft_ne(z, w), z, w)), DEFT_AXES(-1), 0);
    }
}

/* The states of s' = a s + b, one of (a, b) after another. */
FN(after)
{
    UNUSED;
    out[0] = deft_mul(in[0], in[2]);
    out[1] = deft_add(deft_mul(in[1], in[2]), in[3]);
    return DEFT_OK;
}

static deft_tensor *recurrence(const exec *e, unsigned p, deft_tensor *t, deft_tensor *with)
{
    deft_tensor *const in[2] = { deft_mul(tame(with), number(e, 0.75)), t }, *out[2] = { 0 };
    deft_associative_scan(after, NULL, in, 2, p & 8 ? -1 : 0, out);
    return out[1];
}

/* Elements at places that are computed: read, replaced, and combined with others. */
static deft_tensor *at_places(const exec *e, unsigned p, deft_tensor *t, deft_tensor *with)
{
    if (deft_rank(t) == 0 || deft_numel(t) == 0)
        return is_exact ? deft_square(tame(t)) : deft_lgamma(deft_square(tame(t)));
    const deft_shape s = deft_shape_get(t);
    const int64_t n = s.dim[0];
    int64_t sizes[DEFT_MAX_RANK] = { (n + 1) / 2 };
    deft_tensor *start[DEFT_MAX_RANK] = { NULL };
    deft_tensor *const like = fit(e, with, t), *const rows = deft_slice(like, DEFT_R(0, sizes[0]));
    deft_tensor *const at =
        places(e, deft_slice(deft_reshape(like, DEFT_SHAPE(-1)), DEFT_R(0, n)), n);
    const deft_axes all = { s.rank, { 0, 1, 2, 3, 4, 5, 6, 7 } };
    static const deft_scatter_how how[] = { DEFT_SCATTER_SUM, DEFT_SCATTER_PROD, DEFT_SCATTER_MEAN,
                                            DEFT_SCATTER_AMIN, DEFT_SCATTER_AMAX };
    start[0] = places(e, deft_mul(fit(e, with, number(e, 0)), number(e, 0.125)), n);
    if (is_exact && how[p / 8 % 5] == DEFT_SCATTER_MEAN) p += 8;
    switch (p % 10) {
    case 8: return recurrence(e, p, t, like);
    case 9: return deft_mul(t, deft_tensordot(tame(t), tame(like), all, all));
    case 0: return deft_dynamic_slice(t, start, sizes);
    case 1: return deft_dynamic_update(t, rows, start, sizes);
    case 2: return deft_index_copy(t, at, tame(like), 0);
    case 3: return deft_index_reduce(t, at, tame(like), 0, how[p / 8 % 5], p & 64);
    case 4: return deft_scatter(t, places(e, like, n), tame(like), 0);
    case 5:
        return deft_scatter_reduce(t, places(e, like, n), tame(like), 0, how[p / 8 % 5], p & 64);
    case 6:
        if (s.rank > 2) return is_exact ? t : deft_erfinv(deft_mul(tame(t), number(e, 0.5)));
        return deft_einsum(s.rank == 1 ? "a,a,...->..." : "...b,ab,cb->...c",
                           (deft_tensor *[]){ tame(t), tame(like), tame(t) }, 3);
    default: return deft_bitcast(deft_bitcast(tame(t), DEFT_I32), DEFT_F32);
    }
}

/* x in another dtype: through a reduction, an order, a product or a scatter there. */
static deft_tensor *in_dtype(const exec *e, unsigned p, unsigned q, deft_tensor *x, deft_tensor *y)
{
    if (q % 8 == 0 || deft_rank(x) == 0) return elementwise_in(e, p, x, y);
    const deft_dtype t = is_exact ? other_dtype(p % 8) : other_dtype(p);
    const bool is_whole = deft_isdtype(t, DEFT_KIND_INTEGRAL);
    deft_tensor *const a = deft_cast(deft_mul(tame(x), number(e, is_whole ? 40 : 1)), t);
    deft_tensor *const b = deft_cast(deft_mul(tame(y), number(e, is_whole ? 40 : 1)), t), *r;
    const deft_shape s = deft_shape_get(x);
    switch (q % 8) {
    case 1: r = deft_cumsum(a, q & 16 ? -1 : 0); break;
    case 2: r = deft_cumprod(a, q & 16 ? -1 : 0); break;
    case 3: r = deft_sort(deft_maximum(a, b), q & 16 ? -1 : 0, q & 8); break;
    case 4: r = deft_expand(deft_sum(deft_mul(a, b), DEFT_AXES(0), 1), s); break;
    case 5:
        r = deft_index_reduce(a,
                              places(e, deft_slice(deft_flatten(y), DEFT_R(0, s.dim[0])), s.dim[0]),
                              b, 0, q & 16 ? DEFT_SCATTER_PROD : DEFT_SCATTER_AMAX, q & 8);
        break;
    case 6:
        r = deft_matmul(a, deft_matmul(deft_t(s.rank == 2 ? b : deft_unsqueeze(b, 0)),
                                       s.rank == 2 ? a : deft_unsqueeze(a, 0)));
        break;
    default:
        r = deft_concat(
            (deft_tensor *[]){ deft_slice(b, DEFT_R(0, 1)), deft_slice(a, DEFT_R(1, DEFT_END)) }, 2,
            0);
        break;
    }
    return tame(deft_mul(deft_cast(r, DEFT_F32), number(e, is_whole ? 0.02 : 0.5)));
}

/* ---- codes that stay ---- */

/* They are assigned: all of them, a row, or a row from another one. What they are then is used as
 * floats. */
static void run_codes(exec *e, const stmt *st, deft_tensor *a)
{
    deft_tensor *const code = e->s->code[st->q % CODES];
    const deft_range row = DEFT_R(st->p % M, st->p % M + 1);
    const deft_range other = DEFT_R(st->q % M, st->q % M + 1);
    deft_tensor *const made = coded(e, fit(e, a, e->s->state[2]), deft_dtype_of(code));
    deft_tensor *was = code;
    switch (st->p / 4 % 6) {
    case 0: deft_assign(code, made); break;
    case 1: deft_assign(deft_slice(code, row), deft_slice(made, other)); break;
    case 2: deft_assign(deft_slice(code, row), deft_slice(code, other)); break;
    case 3: deft_assign(code, deft_flip(code, DEFT_AXES(0))); break;
    case 4: {
        deft_tensor *const line = deft_slice(fit(e, a, e->s->state[0]), DEFT_R(0, M));
        was = deft_take(code, places(e, line, M), 0);
        break;
    }
    default:
        was = deft_where(deft_gt(deft_cast(made, DEFT_F32), number(e, 1)), e->s->state[3],
                         deft_cast(code, DEFT_F32));
    }
    settle(e, code);
    e->did = true;
    bind(e, st->dst, deft_mul(deft_cast(was, DEFT_F32), number(e, 0.125)));
}

static void see_codes(side *s, deft_tensor *t)
{
    uint8_t bytes[M * N];
    uint32_t each[M * N];
    const deft_dtype dtype = deft_dtype_of(t);
    const bool is_packed = dtype == DEFT_U4 || dtype == DEFT_I4;
    const size_t n = is_packed ? M * ((N + 1) / 2) : M * N;
    const deft_status st = deft_read(t, dtype, bytes, n);
    if (st != DEFT_OK) {
        saw_status(s, st);
        return;
    }
    for (size_t i = 0; i < n; i++) each[i] = bytes[i];
    saw(s, each, n);
}

static void run_grad(exec *e, const stmt *st, deft_tensor *with)
{
    deft_tensor *const of = operand(e, st->a);
    deft_tensor *g = NULL;
    if (gradient(of, with, &g)) bind_gradient(e, st, g);
}

static void run_jvp(exec *e, const stmt *st)
{
    deft_tensor *of = operand(e, st->a), *with = state_of(e, st->b), *image = NULL;
    deft_tensor *tangent = wave(with);
    const deft_grad_options o = { .size = sizeof o, .unused_is_zero = true };
    settle(e, tangent);
    if (deft_jvp(&of, 1, &with, &tangent, 1, &o, &image)) bind_gradient(e, st, image);
}

static void run_custom(exec *e, const stmt *st)
{
    deft_tensor *in = operand(e, st->a), *out = NULL;
    e->pure = true;
    const bool ok = deft_custom_grad(e->s->cx, forward, backward, NULL, &in, 1, &out, 1);
    e->pure = false;
    if (ok) bind(e, st->dst, out);
}

static void take(exec *e, const stmt *st, bool fault)
{
    int32_t at[3] = { st->p % M, st->q % M, fault ? N + 7 : 0 };
    deft_tensor *const t = state_of(e, st->a % 4);
    if (e->b->kind == B_CAPTURE) return;
    deft_tensor *const i = deft_from(e->s->cx, DEFT_SHAPE(3), DEFT_I32, at, sizeof at);
    deft_tensor *const taken = deft_take(t, i, 0);
    if (!fault) bind_alias(e, st->dst, taken); /* nobody asks for the other: it is no mistake */
}

static void borrow(exec *e, const stmt *st)
{
    if (e->b->kind == B_CAPTURE || e->b->kind == B_SCOPE) return;
    deft_tensor *const t =
        deft_wrap(e->s->cx, DEFT_SHAPE(N), DEFT_F32, e->s->lent, sizeof e->s->lent, NULL);
    if (t) bind(e, st->dst, st->p & 1 ? t : deft_mul(t, number(e, 0.5)));
}

static void end_export(lending *l)
{
    deft_dlpack_versioned *const v = (void *)l->m;
    if (v) v->deleter(l->m);
    l->m = NULL;
}

static const oracle_path *plain_path, *path_now;

/* The elements that another library has, from the host or a GPU. */
static void lent_values(const side *s, const lending *l, float *out)
{
    const deft_dlpack_tensor *const t =
        &((const deft_dlpack_versioned *)(const void *)l->m)->tensor;
    const oracle_path *const p = s->plain ? plain_path : path_now;
    const size_t bytes = l->n * sizeof *out;
    if (t->device_type == DLPACK_HOST) {
        memcpy(out, t->data, bytes);
        return;
    }
    const deft_scope scope = deft_scope_begin(p->cx);
    deft_tensor *const there = deft_wrap_device(p->cx, p->device, DEFT_SHAPE((int64_t)l->n),
                                                DEFT_F32, t->data, bytes, NULL);
    if (deft_read(there, DEFT_F32, out, bytes) != DEFT_OK || deft_scope_end(scope) != DEFT_OK) {
        fprintf(stderr, "an exported value on a GPU: %s\n", deft_message(p->cx));
        exit(1);
    }
}

/* What others have of before is as it was. */
static void see_exports(side *s)
{
    for (unsigned i = 0; i < OLD; i++) {
        const lending *const l = &s->exported[i];
        const float differs = s->plain ? 1 : 2;
        float now[LEN(l->was)];
        if (!l->m) continue;
        lent_values(s, l, now);
        if (memcmp(now, l->was, l->n * sizeof *now)) saw(s, &differs, 1);
    }
}

/* Exports a value, or its copy, in place of another; now and then imports it as well. */
static void export(exec *e, const stmt *st, deft_tensor *t)
{
    lending *const l = &e->s->exported[st->q % OLD];
    const int64_t n = t ? deft_numel(t) : 0;
    struct DLManagedTensorVersioned *twice = NULL;
    if (n <= 0 || n > (int64_t)LEN(l->was) || deft_dtype_of(t) != DEFT_F32) return;
    end_export(l);
    const uint32_t flags = st->p % 4 == 0 ? DEFT_DLPACK_COPY : 0;
    saw_status(e->s, deft_to_dlpack(t, flags, &l->m));
    if (!l->m) return;
    e->did = true;
    l->n = (size_t)n;
    lent_values(e->s, l, l->was);
    saw(e->s, l->was, l->n);
    if (e->b->kind == B_CAPTURE || e->b->kind == B_SCOPE || st->p % 3) return;
    saw_status(e->s, deft_to_dlpack(t, 0, &twice));
    deft_tensor *const in = deft_from_dlpack(e->s->cx, twice, 0);
    if (in) bind_alias(e, st->dst, in);
}

/* ---- tensors of other dtypes that stay ---- */

/* The tensor, by the handle that a captured function has for it. */
static deft_tensor *typed_of(const exec *e, unsigned i)
{
    i %= TYPED;
    return e->in && i == 0 ? e->in[2] : e->s->typed[i];
}

/* It, a row or some columns get what follows from it, from another dtype, or from f32. */
static void run_typed(exec *e, const stmt *st, deft_tensor *a)
{
    deft_tensor *const root = typed_of(e, st->a);
    const deft_dtype t = deft_dtype_of(root);
    deft_tensor *const other = st->q & 1   ? deft_flip(root, DEFT_AXES(0))
                               : st->q & 2 ? mixed_typed(mixed_untyped(typed_of(e, st->a + 1u)), t)
                                           : mixed_typed(fit(e, a, e->s->state[2]), t);
    deft_tensor *const made = mixed_typed_work(root, other, st->p);
    const deft_range row = DEFT_R(st->q / 4 % M, st->q / 4 % M + 1);
    deft_tensor *to = root, *from = made;
    if (!made) return;
    if (st->q & 16) {
        to = deft_slice(root, row);
        from = deft_slice(made, DEFT_R(st->p % M, st->p % M + 1));
    } else if (st->q & 32) {
        to = deft_slice(root, DEFT_FULL, DEFT_RS(st->q / 4 % 3, DEFT_END, 2));
        from = deft_slice(made, DEFT_FULL, DEFT_R(0, deft_dim(to, 1)));
    }
    const bool is_complex = t == DEFT_C64 || t == DEFT_C128;
    if (is_complex && st->p & 64) {
        to = st->q & 1 ? deft_imag(to) : deft_real(to);
        from = deft_real(from);
    }
    deft_tensor *const was = mixed_untyped(st->p & 32 ? made : root);
    settle(e, was);
    if (deft_assign(to, from)) settle(e, root);
    if (st->q & 8) bind_alias(e, st->dst, was);
    e->did = true;
}

static void see_typed(side *s, deft_tensor *t)
{
    uint32_t bytes[M * N * 4];
    const deft_dtype dtype = deft_dtype_of(t);
    const size_t n = M * N * deft_dtype_size(dtype);
    const deft_dtype part = dtype == DEFT_C64 ? DEFT_F32 : dtype == DEFT_C128 ? DEFT_F64 : dtype;
    if (s->over) return;
    memset(bytes, 0, sizeof bytes);
    const deft_status st = deft_read(t, dtype, (void *)bytes, n);
    if (st != DEFT_OK) {
        saw_status(s, st);
        return;
    }
    oracle_canonical(part, bytes, n / deft_dtype_size(part));
    saw(s, bytes, (n + 3) / 4);
}

/* ---- long tensors ---- */

/* All of the long tensor, or a part of it, gets what follows from short ones and from itself. */
static void run_long(exec *e, const stmt *st, deft_tensor *a)
{
    deft_tensor *const lasting = e->s->lasting;
    if (!e->w->is_long) return;
    deft_tensor *const made = mixed_long_work(a, st->p, st->q);
    if (!made) return;
    const int64_t n = deft_numel(made) < MIXED_LASTING ? deft_numel(made) : MIXED_LASTING;
    deft_tensor *const from = deft_cast(deft_slice(made, DEFT_R(0, n)), DEFT_I32);
    switch (st->b % 4) {
    case 0:
        if (n == MIXED_LASTING) {
            deft_assign(lasting, deft_sub(from, lasting));
            break;
        }
        deft_assign(deft_slice(lasting, DEFT_R(MIXED_LASTING - n, MIXED_LASTING)), from);
        break;
    case 1: {
        deft_tensor *const to = deft_slice(lasting, DEFT_R(st->q, MIXED_LASTING - 40));
        deft_assign(to, deft_slice(deft_sort(lasting, 0, st->q & 4), DEFT_R(40 + st->q, DEFT_END)));
        break;
    }
    default: break;
    }
    settle(e, lasting);
    deft_tensor *const seen = st->b % 4 == 3 ? deft_cast(lasting, DEFT_I64) : made;
    bind(e, st->dst, mixed_long_digest(seen, deft_shape_get(e->s->state[st->b % 2 ? 2 : 0])));
}

/* ---- numbers that change, and files ---- */

/* The number of a turn: a parameter of a capture, else a number. */
static double turn_number(unsigned iter)
{
    return iter % 3 == 0 ? 1 : iter % 3 == 1 ? -2 : 3;
}

static void run_parameter(exec *e, const stmt *st, deft_tensor *a)
{
    deft_ctx *const cx = e->s->cx;
    const double now = turn_number(e->iter);
    const bool is_replayed = e->in && !e->s->plain && !e->s->calls_plainly;
    deft_tensor *const f = is_replayed ? deft_param_f(cx, "f") : deft_num(cx, now);
    deft_tensor *const i = is_replayed ? deft_param_i(cx, "i") : deft_num_i(cx, (int64_t)now);
    if (st->p & 1) bind(e, st->dst, deft_add(deft_mul(tame(a), f), i));
    if (st->p & 2) assign(e, state_of(e, st->b), deft_sub(f, tame(state_of(e, st->b))));
    if (st->p & 4) {
        deft_tensor *const root = typed_of(e, st->a);
        deft_tensor *const row = deft_slice(root, DEFT_R(st->p % M, st->p % M + 1));
        e->did |= NULL !=
                  deft_assign(row, deft_cast(deft_mul(mixed_typed(mixed_untyped(row), DEFT_I32), i),
                                             deft_dtype_of(root)));
        settle(e, root);
    }
}

/* What follows from two tensors by a loaded program, which may be one and the same tensor. A state
 * may be assigned what follows from it. */
static void run_loaded(exec *e, const stmt *st, deft_tensor *a, deft_tensor *b)
{
    deft_tensor *out[MIXED_LOADED_RESULTS];
    deft_tensor *const state = state_of(e, st->b);
    if (st->q & 1) a = state;
    b = fit(e, st->q & 2 ? b : a, a);
    if (!call_loaded(e, st->p, a, b, out)) return;
    bind(e, st->dst, out[0]);
    if (st->q & 4) bind(e, st->dst + 1u, out[1]);
    if (st->q & 8) bind(e, st->dst + 2u, out[2]);
    if (st->q & 16) assign(e, state, out[st->q >> 5 & 1]);
}

/* What stays goes through a file: loaded into other tensors, assigned from it, or mapped. */
static void run_file(exec *e, const stmt *st, deft_tensor *a)
{
    side *const s = e->s;
    char path[128];
    if (e->in) return;
    deft_tensor *const state = s->state[st->a % STATES];
    deft_tensor *const code = s->code[0], *const bytes = deft_bitcast(s->code[1], DEFT_U8);
    deft_tensor *const typed = s->typed[st->p % TYPED];
    deft_tensor *const pairs = deft_dtype_of(typed) == DEFT_C128 ? deft_view_as_real(typed) : typed;
    const bool is_packed = deft_dtype_of(code) == DEFT_U4 || deft_dtype_of(code) == DEFT_I4;
    const deft_named list[] = { { "state", state },
                                { "typed", pairs },
                                { "a", a },
                                { "bytes", bytes },
                                { is_packed ? "bytes too" : "code",
                                  is_packed ? deft_bitcast(code, DEFT_U8) : code } };
    deft_file *f = NULL;
    (void)snprintf(path, sizeof path, "%s/%u-%u", folder, st->id, e->iter);
    const deft_status st_save =
        st->q & 1 ? deft_save(s->cx, path, list, LEN(list)) : deft_save_npz(s->cx, path, list, 1);
    saw_status(s, st_save);
    if (st_save != DEFT_OK) return;
    saw_status(s, deft_file_open(s->cx, path, &f));
    if (!f) return;
    const bool maps = st->p & 2 && !DF_IS_BIG_ENDIAN; /* the file has the low byte first */
    deft_tensor *const got = maps ? deft_file_map(f, "state") : deft_file_load(f, "state");
    bind_alias(e, st->dst, got);
    if (st->q & 1) {
        deft_tensor *const b = deft_file_load(f, "typed");
        if (deft_dtype_of(b) == deft_dtype_of(typed))
            deft_assign(typed, deft_flip(b, DEFT_AXES(1)));
        settle(e, typed);
        bind_alias(e, st->dst + 1, deft_file_load(f, "a"));
    }
    if (st->q & 2) assign(e, state_of(e, st->b), got);
    deft_file_close(&f);
    (void)unlink(path);
}

/* What each kind of statement has of what is mixed; 0: nothing of interest. */
static const uint64_t feature[N_KINDS] = {
    [K_UNARY] = MIXED(ELEMENTWISE),
    [K_BINARY] = MIXED(ELEMENTWISE),
    [K_REDUCE] = MIXED(REDUCTION),
    [K_PART] = MIXED(VIEW),
    [K_VIEW] = MIXED(VIEW),
    [K_ASSIGN] = MIXED(ASSIGN),
    [K_SWAP] = MIXED(ASSIGN),
    [K_ASSIGN_PART] = MIXED(PART),
    [K_SWEEP] = MIXED(PART),
    [K_ASSIGN_VIEW] = MIXED(PART) | MIXED(VIEW),
    [K_ASSIGN_MEMORY] = MIXED(MEMORY),
    [K_KEEP] = MIXED(KEPT),
    [K_READ] = MIXED(READ),
    [K_EXPORT] = MIXED(EXPORT),
    [K_GRAD] = MIXED(GRADIENT),
    [K_GRAD_STATE] = MIXED(GRADIENT),
    [K_JVP] = MIXED(GRADIENT),
    [K_SCAN] = MIXED(LOOP),
    [K_WHILE] = MIXED(LOOP),
    [K_COND] = MIXED(BRANCH),
    [K_VMAP] = MIXED(VMAP),
    [K_WINDOWS] = MIXED(WINDOWS),
    [K_PRODUCT] = MIXED(PRODUCT),
    [K_ARRAY] = MIXED(ARRAY),
    [K_COMPLEX] = MIXED(COMPLEX),
    [K_PLACES] = MIXED(PLACES),
    [K_DTYPE] = MIXED(DTYPE),
    [K_CODES] = MIXED(CODES),
    [K_TYPED] = MIXED(TYPED),
    [K_LONG] = MIXED(LONG),
    [K_PARAMETER] = MIXED(PARAMETER),
    [K_FILE] = MIXED(FILES),
    [K_LOADED] = MIXED(LOADED),
};

/* A read under a budget may first compute everything pending, and that cut is the one that is
 * stored: it need not have what is read. */
static storing storing_of(const exec *e, const stmt *st)
{
    const deft_step_options *const step = &e->b->budget;
    const world *const w = e->w;
    const bool has_step = e->b->kind != B_SCOPE;
    const bool is_cut = w->max_nodes || w->max_bytes || w->max_latency_ns ||
                        (has_step && (step->max_nodes || step->max_bytes || step->max_latency_ns));
    if (!e->s->stores || e->in || st->q % 3) return STORES_NOT;
    return is_cut ? STORES : STORES_AND_COMPARES;
}

static void run_stmt(exec *e, const stmt *st)
{
    e->did = false;
    deft_tensor *const a = operand(e, st->a), *const b = operand(e, st->b);
    deft_ctx *const cx = e->s->cx;
    switch ((kind)st->kind) {
    case K_UNARY: bind(e, st->dst, unary(e, st->p, a)); break;
    case K_BINARY: bind(e, st->dst, binary(st->p, a, fit(e, b, a))); break;
    case K_REDUCE: bind(e, st->dst, reduce(st->p, a)); break;
    case K_PART: run_part(e, st, false); break;
    case K_VIEW: run_part(e, st, true); break;
    case K_SAME: bind_alias(e, st->dst, deft_cast(state_of(e, st->a), DEFT_F32)); break;
    case K_RANDOM:
        if (is_exact) break;
        bind(e, st->dst,
             st->p & 1 ? deft_uniform(cx, &e->s->rng, DEFT_SHAPE(N), DEFT_F32, -1, 1)
                       : deft_normal(cx, &e->s->rng, DEFT_SHAPE(N), DEFT_F32, 0, 1));
        break;
    case K_BORROW: borrow(e, st); break;
    case K_TAKE: take(e, st, false); break;
    case K_FAULT: take(e, st, true); break;
    case K_ASSIGN: assign(e, state_of(e, st->a), st->p & 1 ? tame(b) : b); break;
    case K_SWAP: swap(e, st); break;
    case K_ASSIGN_PART: assign_part(e, st); break;
    case K_SWEEP: sweep(e, st); break;
    case K_ASSIGN_VIEW: assign_view(e, st); break;
    case K_ASSIGN_MEMORY: assign(e, e->s->memory, tame(b)); break;
    case K_MEMORY: bind_alias(e, st->dst, deft_cast(e->s->memory, DEFT_F32)); break;
    case K_KEEP: keep(e, st); break;
    case K_READ:
        see_and_store(e->s, a, storing_of(e, st));
        e->did = true;
        break;
    case K_EXPORT: export(e, st, a); break;
    case K_GRAD: run_grad(e, st, b); break;
    case K_GRAD_STATE: run_grad(e, st, state_of(e, st->b)); break;
    case K_JVP: run_jvp(e, st); break;
    case K_STOP: bind(e, st->dst, deft_stop_gradient(a)); break;
    case K_HOOK: (void)deft_grad_hook(a, hook, NULL); break;
    case K_CUSTOM: run_custom(e, st); break;
    case K_SCAN: run_scan(e, st); break;
    case K_WHILE: run_while(e, st); break;
    case K_COND: run_cond(e, st); break;
    case K_VMAP: run_vmap(e, st); break;
    case K_WINDOWS:
        run_windows(e, st, st->q & 1 ? a : state_of(e, 2 + st->a % 2),
                    st->q & 2 ? b : state_of(e, st->b % 2));
        break;
    case K_PRODUCT: bind(e, st->dst, product(e, st->p, a)); break;
    case K_ARRAY: bind(e, st->dst, arranged(e, st->p, a, b)); break;
    case K_COMPLEX: bind(e, st->dst, through_complex(e, st->p, a, b)); break;
    case K_JOINED: bind(e, st->dst, joined(e, (unsigned)st->p << 1 | st->q % 2, a, b)); break;
    case K_PLACES: bind(e, st->dst, at_places(e, st->p, a, b)); break;
    case K_COUNT: bind(e, st->dst, counted(e, st->p, a)); break;
    case K_ATTEND:
        if (is_exact) break;
        bind(e, st->dst, attended(e, st->p, a));
        break;
    case K_DTYPE: bind(e, st->dst, in_dtype(e, st->p, st->q, a, fit(e, b, a))); break;
    case K_CODES: run_codes(e, st, a); break;
    case K_POLICY:
        if (is_exact) break;
        bind(e, st->dst, under_policy(e, st->p, a));
        break;
    case K_TYPED: run_typed(e, st, a); break;
    case K_LONG: run_long(e, st, a); break;
    case K_PARAMETER: run_parameter(e, st, a); break;
    case K_FILE: run_file(e, st, a); break;
    case K_LOADED: run_loaded(e, st, a, b); break;
    case K_REPEAT:
        if (is_exact) break;
        bind(e, st->dst, repeated(e, a));
        break;
    case K_TOP: bind(e, st->dst, top(st->p, a)); break;
    case K_SCOPE:
    case N_KINDS: break;
    }
    if (e->did) e->s->drew |= feature[st->kind];
}

/* A scope inside goes on for p statements; what they make ends with it. */
static size_t run_inner(exec *e, size_t at)
{
    const size_t n = at + 1 + e->b->at[at].p % 4;
    local before[LOCALS];
    memcpy(before, e->at, sizeof before);
    const deft_scope s = deft_scope_begin(e->s->cx);
    for (at++; at <= n && at < e->b->n && !e->s->over; at++)
        if (e->b->at[at].kind != K_SCOPE) run_stmt(e, &e->b->at[at]);
    const deft_status st = deft_scope_end(s);
    if (st != DEFT_OK) saw_status(e->s, st);
    memcpy(e->at, before, sizeof before);
    return at;
}

/* ---- failures ---- */

typedef enum failure { FAILS_NOT, FAILS_BY_FAULT, FAILS_BY_MISTAKE, FAILS_BY_INTERRUPT } failure;

static const deft_status failure_status[] = {
    [FAILS_BY_FAULT] = DEFT_E_RANGE,
    [FAILS_BY_MISTAKE] = DEFT_E_SHAPE,
    [FAILS_BY_INTERRUPT] = DEFT_E_INTERRUPTED,
};

/* What makes the step fail. Only the context under test does it; the reference aborts. */
static void fail_here(exec *e)
{
    deft_ctx *const cx = e->s->cx;
    deft_tensor *const victim = e->s->victim;
    const int32_t outside[1] = { N + 3 };
    if (e->s->plain) return;
    if (e->b->failure == FAILS_BY_FAULT) {
        deft_tensor *const at = deft_from(cx, DEFT_SHAPE(1), DEFT_I32, outside, sizeof outside);
        deft_assign(victim, deft_add(victim, deft_take(e->s->state[0], at, 0)));
    } else if (e->b->failure == FAILS_BY_MISTAKE) {
        deft_assign(victim, deft_add(victim, deft_zeros(cx, DEFT_SHAPE(N + 1), DEFT_F32)));
    } else {
        deft_assign(victim, deft_add(victim, number(e, 1)));
    }
}

static void run_stmts(exec *e)
{
    const bool fails = e->b->kind == B_FAIL;
    const size_t failure_at = e->b->failure_at < e->b->n ? e->b->failure_at : e->b->n;
    for (size_t i = 0; i < e->b->n && !e->s->over;) {
        const stmt *const st = &e->b->at[i];
        if (fails && i == failure_at) fail_here(e);
        if (st->when && e->iter % (st->when + 1u) == st->when) {
            i++;
        } else if (st->kind == K_SCOPE) {
            i = run_inner(e, i);
            if (fails && i > failure_at && failure_at > (size_t)(st - e->b->at)) fail_here(e);
        } else {
            run_stmt(e, st);
            i++;
        }
    }
    if (fails && failure_at == e->b->n) fail_here(e);
}

/* ---- blocks ---- */

enum { CALL_INPUTS = 4 }; /* two states, a tensor of another dtype, an index */

typedef struct call {
    side *s;
    const block *b;
    unsigned iter;
    deft_tensor *in[CALL_INPUTS];
    uint64_t drew; /* features of the function */
} call;

/* The captured function. What it does must not depend on the turn but by parameters. */
static deft_status captured(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    call *const c = user;
    exec e = { .s = c->s, .w = c->s->w, .b = c->b, .iter = c->iter, .in = in, .caller = c->in };
    (void)n_in;
    c->s->drew = 0;
    run_stmts(&e);
    c->drew = c->s->drew;
    if (c->b->failure)
        deft_assign(c->s->victim, deft_add(deft_mul(c->s->victim, number(&e, 0)),
                                           deft_take(c->s->state[0], in[3], 0)));
    for (size_t i = 0; i < n_out; i++) {
        const unsigned which = (unsigned)(c->b->at[0].id + i);
        deft_tensor *const t = which % 3 ? operand(&e, which) : state_of(&e, which);
        out[i] = deft_cast(t, DEFT_F32);
        if (!out[i]) out[i] = deft_neg(t);
    }
    /* A read that was refused has told so already: the call fails nevertheless. */
    return c->s->over && c->s->failed != DEFT_OK ? c->s->failed : deft_error(cx);
}

static void keep_output(side *s, unsigned i, deft_tensor *t, bool kept)
{
    if (!t || (!kept && !deft_keep(t))) return;
    deft_drop(&s->old[i % OLD]);
    s->old[i % OLD] = t;
}

/* Something that must not be was seen. */
static void saw_wrong(side *s, float what)
{
    if (!s->message[0]) snprintf(s->message, sizeof s->message, "%s", deft_message(s->cx));
    s->is_mute = false;
    saw(s, &what, 1);
}

static uint64_t n_unbounded, n_bounded;

/* Whether something failed within a step or a call because of its bound on temporaries. Forgets
 * it. */
static bool takes_refusal(side *s, bool is_bounded)
{
    if (s->plain || !is_bounded || !s->over || s->failed != DEFT_E_MEMORY) return false;
    s->over = false;
    s->failed = DEFT_OK;
    s->message[0] = 0;
    return true;
}

static deft_status call_plainly(side *s, call *c, deft_tensor **out)
{
    const deft_step_options unbounded = { .size = sizeof unbounded,
                                          .max_temporary_bytes = UINT64_MAX };
    const deft_scope step = deft_step_begin_with(s->cx, &unbounded);
    s->calls_plainly = true;
    deft_status st = captured(s->cx, c->in, CALL_INPUTS, out, c->b->n_out, c);
    s->calls_plainly = false;
    for (unsigned i = 0; i < c->b->n_out && st == DEFT_OK; i++) deft_keep(out[i]);
    if (st == DEFT_OK)
        st = deft_step_end(step);
    else
        deft_step_abort(step);
    return st;
}

/* A call that must fail, of which nothing then has happened. */
static void call_failing(side *s, unsigned which, call *c)
{
    deft_tensor *out[2] = { 0 };
    const deft_rng rng = s->rng;
    if (s->plain) return;
    s->is_mute = true;
    const deft_status st =
        deft_capture_call(s->capture[which], c->in, CALL_INPUTS, out, c->b->n_out);
    const bool is_bounded = s->w->max_temporary_bytes && st == DEFT_E_MEMORY;
    if (st != DEFT_E_RANGE && !is_bounded) saw_wrong(s, 1);
    if (memcmp(&rng, &s->rng, sizeof rng) != 0) saw_wrong(s, 2);
    s->is_mute = false;
}

static void run_capture(side *s, unsigned which, unsigned iter, call *c)
{
    const block *const b = c->b;
    const unsigned other = b->same && iter % 3 == 1 ? b->in[0] : b->in[1];
    const bool fails = b->failure && iter % 4 == b->failure;
    const int32_t at[1] = { fails ? -N - 2 : (int32_t)iter % N };
    const double now = turn_number(iter);
    deft_tensor *out[2] = { 0 };
    deft_tensor *const index = deft_keep(deft_from(s->cx, DEFT_SHAPE(1), DEFT_I32, at, sizeof at));
    deft_capture_stats before = { 0 }, after = { 0 };
    c->iter = iter;
    c->in[0] = s->state[b->in[0] % 4];
    c->in[1] = s->state[other % 4];
    c->in[2] = s->typed[0];
    c->in[3] = index;
    deft_status st = DEFT_OK;
    bool kept = s->plain;
    if (!s->plain) {
        deft_capture_stats_read(s->capture[which], &before, sizeof before);
        if (deft_capture_set_f(s->capture[which], "f", now) != DEFT_OK ||
            deft_capture_set_i(s->capture[which], "i", (int64_t)now) != DEFT_OK)
            saw_wrong(s, 3);
    }
    if (fails) {
        call_failing(s, which, c);
    } else if (s->plain) {
        st = call_plainly(s, c, out);
    } else {
        const size_t n_log = s->n_log;
        st = deft_capture_call(s->capture[which], c->in, CALL_INPUTS, out, b->n_out);
        const bool refused = takes_refusal(s, s->w->max_temporary_bytes);
        n_bounded += s->w->max_temporary_bytes != 0;
        if (refused || (st == DEFT_E_MEMORY && s->w->max_temporary_bytes)) {
            n_unbounded++;
            deft_clear(s->cx);
            s->n_log = n_log;
            kept = true;
            st = call_plainly(s, c, out);
        }
    }
    saw_status(s, st);
    for (unsigned i = 0; i < b->n_out && st == DEFT_OK && !fails; i++)
        keep_output(s, i, out[i], kept);
    deft_drop((deft_tensor **)&c->in[3]);
    if (s->plain) return;
    deft_capture_stats_read(s->capture[which], &after, sizeof after);
    s->drew = c->drew | (fails ? MIXED(REFUSED) : MIXED(CAPTURE)) |
              (after.replayed > before.replayed && !fails ? MIXED(REPLAYED) : 0);
}

/* Runs the end of a step again that was stored, and ended with st. Each result must be the value
 * that one of the tensors which stay has then. Complex numbers are two f32 to a record. The first
 * step also computes what make_first_values has left pending. */
static void run_stored_step(side *s, bool is_known, deft_status st)
{
    static float v[STATES + OLD + TYPED + 2][N * M * N];
    mixed_value kept[LEN(v)];
    mixed_stored was = { .is_known = is_known, .status = st, .kept = kept };
    deft_tensor *all[LEN(v)] = { s->memory, s->victim };
    memcpy(all + 2, s->state, sizeof s->state);
    memcpy(all + 2 + STATES, s->old, sizeof s->old);
    memcpy(all + 2 + STATES + OLD, s->typed, sizeof s->typed);
    const bool compares = is_known && st == DEFT_OK && s->has_ended;
    for (size_t i = 0; i < LEN(v) && compares && !s->over; i++) {
        const deft_dtype t = all[i] ? deft_dtype_of(all[i]) : DEFT_BOOL;
        if (t != DEFT_F32 && t != DEFT_C64) continue;
        const int64_t n = deft_numel(all[i]) * (t == DEFT_C64 ? 2 : 1);
        if (n > (int64_t)LEN(v[i])) {
            was.n_kept = 0;
            break;
        }
        saw_status(s, deft_read(all[i], t, v[i], (size_t)n * sizeof *v[i]));
        kept[was.n_kept++] = (mixed_value){ v[i], (size_t)n };
    }
    run_stored(s, was);
}

static deft_status end_step(side *s, const block *b, deft_scope step, unsigned iter)
{
    const bool submit = (b->kind == B_SUBMIT || (b->kind == B_FAIL && b->same)) && !s->plain;
    if (b->kind == B_FAIL && b->failure == FAILS_BY_INTERRUPT && !s->plain) deft_interrupt(s->cx);
    const bool stores = s->stores && (b->at[0].id + iter) % 3 == 0;
    if (stores) ask_to_store(s);
    const deft_status st = submit ? deft_step_submit(step) : deft_step_end(step);
    /* A step that is interrupted is stored before, and how one ends that was submitted is not known
     * yet. */
    const bool is_known = !submit && st != DEFT_E_INTERRUPTED;
    if (stores) run_stored_step(s, is_known, st);
    s->has_ended |= st == DEFT_OK;
    if (submit) s->drew |= MIXED(SUBMITTED);
    if (st != DEFT_OK || !submit || (b->kind == B_SUBMIT && iter % 2 == 0)) return st;
    return deft_wait(s->cx);
}

/* Old values that were made by what has never been. */
static void drop_fresh(side *s)
{
    for (unsigned i = 0; i < OLD; i++)
        if (s->fresh >> i & 1u) deft_drop(&s->old[i]);
}

static void run_failing(side *s, const block *b, exec *e)
{
    deft_step_options budget = b->budget;
    budget.max_temporary_bytes = 0;
    /* An interrupt also stops a step that is in flight, which is to succeed here. */
    if (b->failure == FAILS_BY_INTERRUPT) saw_status(s, deft_wait(s->cx));
    if (s->over) return;
    const deft_scope step =
        s->plain ? deft_step_begin(s->cx) : deft_step_begin_with(s->cx, &budget);
    s->is_mute = true;
    run_stmts(e);
    if (s->plain) {
        deft_step_abort(step);
    } else {
        const deft_status st = end_step(s, b, step, e->iter);
        const bool is_bounded = s->w->max_temporary_bytes && st == DEFT_E_MEMORY;
        if (st != failure_status[b->failure] && !is_bounded) saw_wrong(s, 4);
        deft_clear(s->cx);
    }
    s->is_mute = false;
    drop_fresh(s);
    s->drew |= MIXED(FAILED);
}

static void run_step(side *s, const block *b, unsigned iter)
{
    exec e = { .s = s, .w = s->w, .b = b, .iter = iter };
    const deft_rng rng = s->rng;
    const size_t n_log = s->n_log;
    s->fresh = 0;
    if (b->kind == B_FAIL) {
        run_failing(s, b, &e);
        return;
    }
    deft_scope step = s->plain ? deft_step_begin(s->cx) : deft_step_begin_with(s->cx, &b->budget);
    run_stmts(&e);
    const bool is_bounded = b->budget.max_temporary_bytes || s->w->max_temporary_bytes;
    bool refused = takes_refusal(s, is_bounded);
    if (b->kind == B_ABORT && !refused && deft_error(s->cx) == DEFT_OK) {
        deft_step_abort(step);
        drop_fresh(s);
        s->drew |= MIXED(ABORTED);
        return;
    }
    deft_status st = DEFT_OK;
    if (refused) {
        deft_step_abort(step);
    } else {
        st = end_step(s, b, step, iter);
        refused = st == DEFT_E_MEMORY && is_bounded && !s->plain;
    }
    n_bounded += is_bounded && !s->plain;
    if (refused) {
        /* Nothing of it has happened. It comes again, without the bound. */
        deft_step_options budget = b->budget;
        budget.max_temporary_bytes = UINT64_MAX;
        n_unbounded++;
        drop_fresh(s);
        s->rng = rng;
        s->n_log = n_log;
        s->fresh = 0;
        e = (exec){ .s = s, .w = s->w, .b = b, .iter = iter };
        step = deft_step_begin_with(s->cx, &budget);
        run_stmts(&e);
        if (b->kind == B_ABORT && deft_error(s->cx) == DEFT_OK) {
            deft_step_abort(step);
            drop_fresh(s);
            return;
        }
        st = end_step(s, b, step, iter);
    }
    saw_status(s, st);
    if (b->kind == B_STEP) s->drew |= MIXED(STEP);
}

static void run_scope(side *s, const block *b, unsigned iter)
{
    exec e = { .s = s, .w = s->w, .b = b, .iter = iter };
    const deft_scope scope = deft_scope_begin(s->cx);
    run_stmts(&e);
    saw_status(s, deft_scope_end(scope));
    s->drew |= MIXED(SCOPE);
}

/* A digest of the long tensor: each element counts. */
static void see_lasting(side *s)
{
    static int32_t v[MIXED_LASTING];
    uint32_t digest = 0;
    if (!s->lasting || s->over) return;
    const deft_status st = deft_read(s->lasting, DEFT_I32, v, sizeof v);
    if (st != DEFT_OK) {
        saw_status(s, st);
        return;
    }
    for (size_t i = 0; i < MIXED_LASTING; i++) digest = digest * 31 + (uint32_t)v[i];
    digest &= 0x7fffff; /* no NaN */
    saw(s, &digest, 1);
}

static void see_all(side *s)
{
    for (unsigned i = 0; i < STATES; i++) see(s, s->state[i]);
    for (unsigned i = 0; i < CODES && !s->over; i++) see_codes(s, s->code[i]);
    for (unsigned i = 0; i < TYPED; i++) see_typed(s, s->typed[i]);
    for (unsigned i = 0; i < OLD; i++) see(s, s->old[i]);
    see(s, s->memory);
    see(s, s->victim);
    see_lasting(s);
    see_exports(s);
    const deft_status st = deft_wait(s->cx);
    if (st != DEFT_OK) saw_status(s, st);
    saw(s, s->written, N);
}

static deft_tensor *first_value(side *s, unsigned i)
{
    static const uint32_t rank[STATES] = { 1, 1, 2, 2, 0 };
    float v[M * N];
    deft_shape shape = { .rank = rank[i], .dim = { rank[i] == 2 ? M : N, N } };
    oracle_fill(DEFT_F32, v, LEN(v), oracle_mix(s->w->seed, i + 1), ORACLE_TAME);
    const size_t n = (size_t)oracle_numel(&shape);
    for (size_t k = 0; k < LEN(v) && is_exact; k++) v[k] = roundf(v[k]);
    return deft_keep(deft_from(s->cx, shape, DEFT_F32, v, n * sizeof *v));
}

/* Runs block i, and counts what it had. */
static void run_block(side *s, unsigned i, unsigned iter, call *c)
{
    const block *const b = &s->w->at[i];
    deft_stats before = { 0 }, after = { 0 };
    if (!s->plain) deft_stats_read(s->cx, &before, sizeof before);
    s->drew = 0;
    if (b->kind == B_CAPTURE)
        run_capture(s, i, iter, c);
    else if (b->kind == B_SCOPE)
        run_scope(s, b, iter);
    else
        run_step(s, b, iter);
    if (s->plain) return;
    const bool is_step = b->kind != B_CAPTURE && b->kind != B_SCOPE;
    const world *const w = s->w;
    deft_stats_read(s->cx, &after, sizeof after);
    uint64_t had = s->drew;
    if (w->max_nodes || (is_step && b->budget.max_nodes)) had |= MIXED(NODES);
    if (w->max_bytes || (is_step && b->budget.max_bytes)) had |= MIXED(BYTES);
    if (w->max_latency_ns || (is_step && b->budget.max_latency_ns)) had |= MIXED(LATENCY);
    if (w->max_temporary_bytes || (is_step && b->budget.max_temporary_bytes))
        had |= MIXED(TEMPORARIES);
    if (path_now->numerics == DEFT_FAST) had |= MIXED(FAST);
    if (after.donated > before.donated) had |= MIXED(DONATED);
    mixed_pairs_count(had);
}

/* Makes the tensors that stay. With a bound on temporaries, a step without it computes them: no
 * block may do so, and reads outside steps would be refused. */
static void make_first_values(side *s)
{
    const deft_step_options unbounded = { .size = sizeof unbounded,
                                          .max_temporary_bytes = UINT64_MAX };
    deft_scope step;
    const bool is_bounded = s->w->max_temporary_bytes && !s->plain;
    if (is_bounded) step = deft_step_begin_with(s->cx, &unbounded);
    for (unsigned i = 0; i < STATES; i++) s->state[i] = first_value(s, i);
    for (unsigned i = 0; i < CODES; i++) {
        const deft_dtype dtype = storage_dtype((unsigned)s->w->seed + 2 * i);
        s->code[i] = deft_keep(deft_cast(s->state[2 + i], dtype));
    }
    for (unsigned i = 0; i < TYPED; i++)
        s->typed[i] = deft_keep(
            mixed_typed(s->state[2 + i], mixed_dtype((unsigned)(s->w->seed / 3) + 5 * i)));
    s->victim = deft_keep(deft_zeros(s->cx, DEFT_SHAPE(N), DEFT_F32));
    if (s->w->is_long)
        s->lasting =
            deft_keep(mixed_long_values(s->state[2], DEFT_I32, MIXED_LASTING, 1, s->w->seed & 1));
    if (is_bounded) saw_status(s, deft_step_end(step));
}

static void run(side *s, const world *w, const oracle_path *p, bool plain)
{
    const deft_ctx_options o = { .size = sizeof o,
                                 .no_fusion = plain,
                                 .no_simplify = plain,
                                 .max_nodes = plain ? 0 : w->max_nodes,
                                 .max_bytes = plain ? 0 : w->max_bytes,
                                 .max_latency_ns = plain ? 0 : w->max_latency_ns,
                                 .max_temporary_bytes = plain ? 0 : w->max_temporary_bytes };
    call c[BLOCKS];
    is_exact = w->is_exact;
    memset(s, 0, sizeof *s);
    s->plain = plain;
    /* In fast mode, results that may be rounded depend on fusion. */
    s->stores = !plain && (path_now->numerics != DEFT_FAST || !reference.was_large);
    s->w = w;
    s->rng.seed = w->seed;
    s->cx = oracle_context(p, &o);
    make_first_values(s);
    s->memory = deft_keep(
        deft_wrap_mut(s->cx, DEFT_SHAPE(N), DEFT_F32, s->written, sizeof s->written, NULL));
    for (unsigned i = 0; i < w->n_blocks; i++) {
        c[i] = (call){ .s = s, .b = &w->at[i] };
        if (w->at[i].kind == B_CAPTURE && !plain)
            s->capture[i] = deft_capture_create(s->cx, captured, &c[i]);
    }
    for (unsigned iter = 0; iter < w->n_iter && !s->over; iter++) {
        oracle_fill(DEFT_F32, s->lent, N, oracle_mix(w->seed, iter), ORACLE_TAME);
        for (unsigned k = 0; k < N && is_exact; k++) s->lent[k] = roundf(s->lent[k]);
        for (unsigned i = 0; i < w->n_blocks && !s->over; i++) {
            const block *const b = &w->at[i];
            run_block(s, i, iter, &c[i]);
            if (b->kind != B_SUBMIT || iter % 2) see_all(s);
        }
        see_all(s);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        deft_capture_stats stats;
        if (!s->capture[i]) continue;
        deft_capture_stats_read(s->capture[i], &stats, sizeof stats);
        s->replayed += stats.replayed;
        deft_capture_destroy(&s->capture[i]);
    }
    deft_stats stats;
    deft_stats_read(s->cx, &stats, sizeof stats);
    s->cuts = stats.cuts;
    deft_clear(s->cx);
    for (unsigned i = 0; i < STATES; i++) deft_drop(&s->state[i]);
    for (unsigned i = 0; i < CODES; i++) deft_drop(&s->code[i]);
    for (unsigned i = 0; i < TYPED; i++) deft_drop(&s->typed[i]);
    deft_drop(&s->victim);
    deft_drop(&s->lasting);
    for (unsigned i = 0; i < OLD; i++) deft_drop(&s->old[i]);
    deft_drop(&s->memory);
    for (unsigned i = 0; i < N_MIXED_LOADED; i++) deft_program_destroy(&s->loaded[i]);
    deft_ctx_destroy(&s->cx);
    see_exports(s);
    for (unsigned i = 0; i < OLD; i++) end_export(&s->exported[i]);
}

/* ---- comparing ---- */

static uint64_t n_refused, n_replayed, n_cut, n_seen, n_large;

/* -1: both do the same; else the first thing seen that differs. */
static long differs(const world *w)
{
    run(&reference, w, plain_path, true);
    run(&tested, w, path_now, false);
    const side *const a = &reference, *const b = &tested;
    /* When a mistake is found depends on what has been computed; what it is does not. */
    if (a->failed != b->failed) return (long)(a->n_log < b->n_log ? a->n_log : b->n_log);
    if (a->failed != DEFT_OK) return -1;
    if (a->was_large && path_now->numerics == DEFT_FAST) {
        n_large++;
        return -1;
    }
    for (size_t i = 0; i < a->n_log && i < b->n_log; i++)
        if (a->log[i] != b->log[i]) return (long)i;
    return a->n_log == b->n_log ? -1 : (long)(a->n_log < b->n_log ? a->n_log : b->n_log);
}

/* ---- drawing ---- */

static unsigned pick(uint64_t *g, unsigned n)
{
    return (unsigned)(oracle_next(g) % n);
}

static kind pick_kind(uint64_t *g)
{
    unsigned all = 0;
    for (unsigned i = 0; i < N_KINDS; i++) all += weight[i];
    unsigned at = pick(g, all);
    for (unsigned i = 0;; i++) {
        if (at < weight[i]) return (kind)i;
        at -= weight[i];
    }
}

static deft_step_options pick_budget(uint64_t *g)
{
    deft_step_options o = { .size = sizeof o };
    switch (pick(g, 8)) {
    case 0:
    case 1:
    case 2:
    case 3: o.max_nodes = 1 + pick(g, pick(g, 2) ? 8 : 60); break;
    case 4: o.max_latency_ns = 1; break;
    case 5: o.max_bytes = 1; break;
    case 6: o.max_temporary_bytes = UINT64_C(1) << pick(g, 12); break;
    default: break;
    }
    return o;
}

static void pick_block(uint64_t *g, block *b, uint32_t *id)
{
    static const uint8_t kinds[] = { B_STEP,  B_STEP,    B_STEP,    B_SUBMIT,  B_ABORT,
                                     B_SCOPE, B_CAPTURE, B_CAPTURE, B_CAPTURE, B_FAIL };
    memset(b, 0, sizeof *b);
    b->kind = kinds[pick(g, LEN(kinds))];
    b->in[0] = (uint8_t)pick(g, 4);
    b->in[1] = (uint8_t)pick(g, 4);
    b->same = pick(g, 3) == 0;
    b->n_out = (uint8_t)pick(g, 3);
    b->budget = pick_budget(g);
    if (b->kind == B_FAIL)
        b->failure = (uint8_t)(FAILS_BY_FAULT + pick(g, 3));
    else if (b->kind == B_CAPTURE && pick(g, 3) == 0)
        b->failure = (uint8_t)(1 + pick(g, 3));
    b->failure_at = (uint8_t)pick(g, STMTS);
    b->n = 1 + pick(g, STMTS);
    for (size_t i = 0; i < b->n; i++) {
        stmt *const st = &b->at[i];
        st->kind = (uint8_t)pick_kind(g);
        st->dst = (uint8_t)pick(g, LOCALS);
        st->a = (uint8_t)pick(g, 16);
        st->b = (uint8_t)pick(g, 16);
        st->p = (uint8_t)pick(g, 128);
        st->q = (uint8_t)pick(g, 64);
        st->when = b->kind != B_CAPTURE && pick(g, 5) == 0 ? (uint8_t)(1 + pick(g, 3)) : 0;
        st->id = ++*id;
    }
}

static void draw(world *w, uint64_t seed)
{
    uint64_t g = oracle_mix(seed, 0x6d69786564);
    uint32_t id = 0;
    memset(w, 0, sizeof *w);
    w->seed = seed;
    w->n_iter = 2 + pick(&g, MAX_ITER - 2);
    w->n_blocks = 1 + pick(&g, BLOCKS - 1);
    if (pick(&g, 4) == 0) w->max_nodes = 1 + pick(&g, 40);
    if (pick(&g, 12) == 0) w->max_bytes = 1;
    if (pick(&g, 12) == 0) w->max_latency_ns = 1;
    if (pick(&g, 12) == 0) w->max_temporary_bytes = UINT64_C(1) << pick(&g, 12);
    w->is_exact = seed % 3 == 1;
    w->is_long = seed % LONG_EVERY == 7;
    const bool is_cut = w->max_nodes || w->max_bytes || w->max_latency_ns;
    for (unsigned i = 0; i < w->n_blocks; i++) {
        block *const b = &w->at[i];
        pick_block(&g, b, &id);
        /* An interrupt fails what is computed next, and a budget may have computed all. */
        if (b->failure == FAILS_BY_INTERRUPT && b->kind == B_FAIL &&
            (is_cut || b->budget.max_nodes || b->budget.max_bytes || b->budget.max_latency_ns))
            b->failure = FAILS_BY_MISTAKE;
        /* Outside steps a bound would refuse reads. */
        if (b->kind == B_SCOPE && w->max_temporary_bytes) b->kind = B_STEP;
    }
}

/* ---- printing and shrinking ---- */

static void print(const world *w)
{
    printf("seed %llu: %u iterations%s%s; context: max_nodes %u, max_bytes %llu, "
           "max_latency_ns %llu, max_temporary_bytes %llu\n",
           (unsigned long long)w->seed, w->n_iter, w->is_exact ? ", exact" : "",
           w->is_long ? ", long" : "", w->max_nodes, (unsigned long long)w->max_bytes,
           (unsigned long long)w->max_latency_ns, (unsigned long long)w->max_temporary_bytes);
    for (unsigned i = 0; i < w->n_blocks; i++) {
        const block *const b = &w->at[i];
        printf("  %s: in %u %u%s, %u out; failure %u at %u; max_nodes %u, max_bytes %llu, "
               "max_latency_ns %llu, max_temporary_bytes %llu\n",
               block_name[b->kind], b->in[0] % 4, b->in[1] % 4, b->same ? " (or one)" : "",
               b->n_out, b->failure, b->failure_at, b->budget.max_nodes,
               (unsigned long long)b->budget.max_bytes,
               (unsigned long long)b->budget.max_latency_ns,
               (unsigned long long)b->budget.max_temporary_bytes);
        for (size_t k = 0; k < b->n; k++) {
            const stmt *const st = &b->at[k];
            printf("    %-14s dst %u, a %u, b %u, p %u, q %u%s\n", kind_name[st->kind], st->dst,
                   st->a, st->b, st->p, st->q, st->when ? ", not always" : "");
        }
    }
}

static bool still_fails(world *best, const world *smaller)
{
    if (differs(smaller) < 0) return false;
    *best = *smaller;
    return true;
}

static void drop_stmts(world *w)
{
    for (unsigned i = 0; i < w->n_blocks; i++)
        for (size_t k = w->at[i].n; k-- > 0;) {
            world x = *w;
            block *const b = &x.at[i];
            memmove(&b->at[k], &b->at[k + 1], (b->n - k - 1) * sizeof *b->at);
            b->n--;
            (void)still_fails(w, &x);
        }
}

static void drop_blocks(world *w)
{
    for (unsigned i = w->n_blocks; i-- > 0 && w->n_blocks > 1;) {
        world x = *w;
        memmove(&x.at[i], &x.at[i + 1], (x.n_blocks - i - 1) * sizeof *x.at);
        x.n_blocks--;
        (void)still_fails(w, &x);
    }
}

static void calm(world *w)
{
    world x = *w;
    x.max_nodes = 0;
    x.max_bytes = x.max_latency_ns = x.max_temporary_bytes = 0;
    (void)still_fails(w, &x);
    for (unsigned i = 0; i < w->n_blocks; i++) {
        x = *w;
        x.at[i].budget = (deft_step_options){ .size = sizeof(deft_step_options) };
        (void)still_fails(w, &x);
        x = *w;
        x.at[i].same = false;
        (void)still_fails(w, &x);
        x = *w;
        x.at[i].n_out = 0;
        (void)still_fails(w, &x);
        if (w->at[i].kind == B_CAPTURE) {
            x = *w;
            x.at[i].failure = 0;
            (void)still_fails(w, &x);
        }
        for (size_t k = 0; k < w->at[i].n; k++) {
            x = *w;
            x.at[i].at[k].when = 0;
            (void)still_fails(w, &x);
        }
    }
    while (w->n_iter > 1) {
        x = *w;
        x.n_iter--;
        if (!still_fails(w, &x)) break;
    }
}

static void report(world *w, bool shrinks)
{
    for (int i = 0; i < 3 && shrinks; i++) {
        drop_blocks(w);
        drop_stmts(w);
        calm(w);
    }
    const long at = differs(w);
    print(w);
    if (at < 0) {
        printf("  (not found again)\n");
        return;
    }
    char a[64] = "nothing", b[64] = "nothing";
    if ((size_t)at < reference.n_log) oracle_text(DEFT_F32, reference.log, (size_t)at, a, sizeof a);
    if ((size_t)at < tested.n_log) oracle_text(DEFT_F32, tested.log, (size_t)at, b, sizeof b);
    printf("  thing %ld that is seen is %s%s%s, must be %s%s%s\n", at, b,
           tested.message[0] ? "; " : "", tested.message, a, reference.failed ? "; " : "",
           reference.message);
}

/* Of the paths in main. */
enum { INTERPRETED = 1, FAST, COMPILED, COMPILED_FAST };

/* Exact programs run in fast mode every other time. Few are compiled. */
static unsigned pick_path(const world *w, size_t n_paths, uint64_t n)
{
    const bool is_fast = w->is_exact && n % 2;
    const bool is_compiled = n % 32 >= 30 && n_paths > COMPILED;
    if (n_paths <= FAST) return INTERPRETED;
    if (is_compiled) return w->is_exact && n_paths > COMPILED_FAST ? COMPILED_FAST : COMPILED;
    return is_fast ? FAST : INTERPRETED;
}

static char running[64];

/* A crash names its program. */
static void crashed(int signal_number)
{
    const ssize_t n = write(STDOUT_FILENO, running, strlen(running));
    signal(signal_number, SIG_DFL);
    raise(n < 0 ? SIGKILL : signal_number);
}

int main(int argc, char **argv)
{
    static const int signals[] = { SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGTRAP };
    oracle_asked asked = { .count = 3000, .quick = 500, .full = 20000, .seed = 1 };
    bool shrinks = true, prints = false, counts = false;
    int failures = 0;
    for (int i = 1; i < argc; i++)
        if (!oracle_takes(&asked, argv[i])) {
            shrinks &= strcmp(argv[i], "--no-shrink") != 0;
            prints |= !strcmp(argv[i], "--print");
            counts |= !strcmp(argv[i], "--count");
            if (!strcmp(argv[i], "--pairs")) {
                mixed_pairs_print(false);
                return 0;
            }
        }
    oracle_path path[] = {
        { .name = "plain", .tier = DEFT_TIER_INTERPRET, .n_threads = 1 },
        { .name = "interpreted", .tier = DEFT_TIER_INTERPRET, .n_threads = 2 },
        { .name = "fast", .tier = DEFT_TIER_INTERPRET, .n_threads = 2, .numerics = DEFT_FAST },
        { .name = "compiled", .tier = DEFT_TIER_FULL, .n_threads = 2, .streams = true },
        { .name = "compiled, fast", .tier = DEFT_TIER_FULL, .n_threads = 2, .numerics = DEFT_FAST },
    };
    const size_t n_paths = oracle_open(path, asked.is_quick ? FAST + 1 : LEN(path));
    const bool is_gpu = path[1].device != DEFT_CPU;
    const char *const tmp = getenv("TMPDIR");
    (void)snprintf(folder, sizeof folder, "%.30s/deft-mixed-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) return 77;
    plain_path = &path[0];
    if (!mixed_loaded_write(path[0].cx, folder, shape_of_rank)) return 1;
    for (size_t i = 0; i < LEN(signals); i++) signal(signals[i], crashed);
    uint64_t n = 0;
    const uint64_t least = oracle_least(LEAST);
    const double start = oracle_now();
    for (; n < asked.count && (n < least || test_time_left(1)) && failures < 5; n++) {
        world w;
        draw(&w, asked.seed + n);
        path_now = &path[pick_path(&w, n_paths, n)];
        plan_rules_begin(path, n_paths, w.seed);
        snprintf(running, sizeof running, "FAIL: crash in seed %llu\n", (unsigned long long)w.seed);
        if (prints) print(&w);
        fflush(stdout);
        const long at = differs(&w);
        n_refused += reference.over;
        if (prints && reference.over) printf("  %s\n", reference.message);
        n_replayed += tested.replayed;
        n_cut += tested.cuts;
        n_seen += reference.n_log;
        if (at < 0) continue;
        failures++;
        printf("FAIL: program %llu\n", (unsigned long long)n + 1);
        report(&w, shrinks);
    }
    printf(
        "%llu programs (%llu ended early, %llu with numbers too large for fast mode), %llu numbers "
        "compared, %llu cuts, %llu calls replayed, %llu of %llu bounds "
        "refused, %llu traces stored; %.1f s; %d failures\n",
        (unsigned long long)n, (unsigned long long)n_refused, (unsigned long long)n_large,
        (unsigned long long)n_seen, (unsigned long long)n_cut, (unsigned long long)n_replayed,
        (unsigned long long)n_unbounded, (unsigned long long)n_bounded,
        (unsigned long long)n_stored, oracle_now() - start, failures);
    if (!plan_rules_end(LEAST)) failures++;
    if (counts) mixed_pairs_print(true);
    /* What mixed_pairs.def promises holds for so many programs; they are run at night. */
    if (n >= PROMISED && asked.seed == 1 && !is_gpu) failures += mixed_pairs_check(0);
    mixed_loaded_remove(folder);
    (void)rmdir(folder);
    oracle_close(path, n_paths);
    return failures != 0;
}
