/* SPDX-License-Identifier: Apache-2.0
 *
 * Random programs: ops over small shapes, views, assigns (through views, to kept tensors, to the
 * caller's memory), scopes, steps that commit or abort, reads in between, random draws, numbers
 * that change. Each program runs on every path; all values read must have equal bits.
 *
 *   random_programs [COUNT [SEED]] [--quick | --full] [--all-paths] [--print] [-v]
 *
 * A program is a list of instructions over numbered variables. Executing one never fails by itself:
 * whatever does not fit the operands at hand (after shrinking, or under other extents) is derived
 * from their shapes or left out, in the same way on every path. So any sublist is a program too,
 * which is what makes shrinking simple.
 *
 * Each program runs three times in one context: as generated, with other numbers and other starts
 * of most slices (so that slices which were one place may be two), and with another first extent
 * (guards).
 *
 * The reference is the interpreter without fusion, computing each result as soon as it is recorded:
 * what it gives does not depend on how pending work is cut, shared, donated or reordered.
 * Why this file is long: generator, runner and shrinker of one kind of program.
 */
#include "ops/dtype.h"
#include "../support/bits.h"
#include "../support/oracle.h"
#include "../support/plan_rules.h"
#include "../support/budget.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN(a) (sizeof(a) / sizeof *(a))

/* ---- programs ---- */

typedef enum kind {
    K_INPUT,
    K_MUT,
    K_UNARY,
    K_BINARY,
    K_NUMBER,
    K_LEFT_NUMBER,
    K_WHERE,
    K_CAST,
    K_CLAMP,
    K_LERP,
    K_REDUCE,
    K_VAR,
    K_CUMSUM,
    K_SORT,
    K_FOUND,
    K_SOFTMAX,
    K_LAYER_NORM,
    K_SLICE,
    K_AT,
    K_FLIP,
    K_RESHAPE,
    K_PERMUTE,
    K_EXPAND,
    K_UNSQUEEZE,
    K_SQUEEZE,
    K_DIAGONAL,
    K_CONCAT,
    K_STACK,
    K_PAD,
    K_ROLL,
    K_TRI,
    K_TAKE,
    K_GATHER,
    K_SCATTER,
    K_ONE_HOT,
    K_MATMUL,
    K_CONTRACT,
    K_PLACES,
    K_ASSOCIATE,
    K_COMPLEX,
    K_RANDOM,
    K_SEQUENCE,
    K_FULL,
    K_ASSIGN,
    K_ASSIGN_NUMBER,
    K_READ,
    K_EVAL,
    K_KEEP,
    K_DROP,
    K_SCOPE_BEGIN,
    K_SCOPE_END,
    K_SCOPE_RETURN,
    K_STEP_BEGIN,
    K_STEP_END,
    K_STEP_ABORT,
    N_KINDS
} kind;

enum { VARS = 28, MAX_INS = 90, N_EXT = 4, MAX_DEPTH = 4, REPS = 3, MAX_MUT = 4, MAX_NUMEL = 5000 };

typedef struct ins {
    uint8_t kind, dst, a, b, c;
    uint8_t p[5];
    float num;
} ins;

typedef struct program {
    uint64_t seed;
    size_t n;
    ins at[MAX_INS];
    int64_t ext[N_EXT];
} program;

/* ---- one execution ---- */

typedef struct var {
    deft_tensor *t;
    uint32_t gen; /* of the handle; 0: none */
    uint32_t root_gen, root_ver, parent_gen, parent_ver;
    uint32_t epoch;
    uint8_t depth;
    bool kept;
} var;

typedef struct mut_memory {
    char *data;
    deft_dtype t;
    size_t n; /* elements, gaps included */
} mut_memory;

typedef struct run {
    deft_ctx *cx;
    bool eager;
    int rep;
    const program *pr;
    size_t pc;
    var v[VARS];
    uint32_t ver[2048], saved_ver[2048];
    uint32_t n_gen, epoch;
    deft_scope scope[MAX_DEPTH + 1];
    bool is_step[MAX_DEPTH + 1];
    uint8_t depth, step_depth;
    deft_rng rng, saved_rng;
    mut_memory mut[MAX_MUT];
    size_t n_mut;
    char *log;
    size_t n_log, cap_log;
    FILE *text;
    bool failed; /* an acting call failed: what it said is in the log */
    bool
        at_root; /* something was recorded outside all scopes: it lives on in the next repetition */
    bool retreated;       /* a plan was unsound: the fuser made one kernel per op instead */
    bool replanned;       /* other numbers made other plans */
    int n_mistakes[REPS]; /* calls that each repetition refused */
} run;

static void say(run *r, const char *fmt, ...)
{
    if (!r->text) return;
    va_list ap;
    va_start(ap, fmt);
    vfprintf(r->text, fmt, ap);
    va_end(ap);
    fputc('\n', r->text);
}

/* Entries: size, instruction, kind, then bytes; comparable with memcmp. */
typedef struct entry {
    uint32_t bytes, pc, rep;
    uint8_t what, dtype, rank, pad;
    int64_t dim[DEFT_MAX_RANK];
} entry;
enum { E_VALUE = 1, E_STATUS, E_MEMORY };

static char *log_room(run *r, const entry *e)
{
    const size_t need = sizeof *e + e->bytes;
    if (r->n_log + need > r->cap_log) {
        r->cap_log = (r->n_log + need) * 2;
        r->log = realloc(r->log, r->cap_log);
        if (!r->log) exit(2);
    }
    memcpy(r->log + r->n_log, e, sizeof *e);
    char *const at = r->log + r->n_log + sizeof *e;
    r->n_log += need;
    return at;
}

static entry entry_of(const run *r, int what)
{
    return (entry){ .pc = (uint32_t)r->pc, .rep = (uint32_t)r->rep, .what = (uint8_t)what };
}

static void log_status(run *r, deft_status st)
{
    entry e = entry_of(r, E_STATUS);
    e.dim[0] = st;
    r->n_mistakes[r->rep]++;
    (void)log_room(r, &e);
    say(r, "/* %s: %s */", deft_status_text(st), deft_message(r->cx));
    if (getenv("DEFT_LOG")) fprintf(stderr, "%s: %s\n", deft_status_text(st), deft_message(r->cx));
}

/* A recording mistake: logged and forgotten. All paths must make the same. */
static bool mistake(run *r)
{
    const deft_status st = deft_error(r->cx);
    if (st == DEFT_OK) return false;
    log_status(r, st);
    deft_clear(r->cx);
    return true;
}

static void check(run *r, deft_status st)
{
    if (st == DEFT_OK) return;
    log_status(r, st);
    if (st != DEFT_E_RANGE) r->failed = true;
}

static void log_value(run *r, deft_tensor *t)
{
    const deft_shape s = deft_shape_get(t);
    entry e = entry_of(r, E_VALUE);
    const size_t n = (size_t)oracle_numel(&s);
    e.dtype = (uint8_t)deft_dtype_of(t);
    e.rank = (uint8_t)s.rank;
    memcpy(e.dim, s.dim, s.rank * sizeof *s.dim);
    e.bytes = (uint32_t)(n * deft_dtype_size((deft_dtype)e.dtype));
    void *const data = oracle_alloc(e.bytes);
    const deft_status st = deft_read(t, (deft_dtype)e.dtype, data, e.bytes);
    if (st != DEFT_OK) {
        check(r, st);
    } else {
        oracle_canonical((deft_dtype)e.dtype, data, n);
        memcpy(log_room(r, &e), data, e.bytes);
    }
    free(data);
}

static void log_memory(run *r)
{
    for (size_t i = 0; i < r->n_mut; i++) {
        const mut_memory *const m = &r->mut[i];
        entry e = entry_of(r, E_MEMORY);
        e.dtype = (uint8_t)m->t;
        e.dim[0] = (int64_t)i;
        e.bytes = (uint32_t)(m->n * deft_dtype_size(m->t));
        char *const at = log_room(r, &e);
        memcpy(at, m->data, e.bytes);
        oracle_canonical(m->t, at, m->n);
    }
}

/* Binds a variable to a new handle. of: the variable it is a view of, or NULL. */
static void set(run *r, uint8_t dst, deft_tensor *t, const var *of)
{
    if (mistake(r) || !t) return;
    const deft_shape s = deft_shape_get(t);
    if (oracle_numel(&s) > MAX_NUMEL || r->n_gen + 1 >= LEN(r->ver)) return;
    var v = { .t = t, .gen = ++r->n_gen, .depth = r->depth, .epoch = r->epoch };
    r->ver[v.gen] = 0;
    if (of) {
        v.root_gen = of->root_gen ? of->root_gen : of->gen;
        v.root_ver = of->root_gen ? of->root_ver : r->ver[of->gen];
        v.parent_gen = of->gen;
        v.parent_ver = r->ver[of->gen];
        if (of->root_gen && (of->epoch < v.epoch || of->epoch == UINT32_MAX)) v.epoch = of->epoch;
    }
    var *const at = &r->v[dst % VARS];
    if (at->kept && at->t) deft_drop(&at->t);
    *at = v;
    if (!r->eager || of) return; /* a view is computed by its users */
    const deft_status st = deft_eval(&t, 1);
    if (st == DEFT_OK) return;
    check(r, st);
    at->t = NULL; /* its value does not exist anywhere */
}

static var *get(run *r, uint8_t i)
{
    var *const v = &r->v[i % VARS];
    return v->t ? v : NULL;
}

static bool is_float(deft_dtype t)
{
    return t == DEFT_F32 || t == DEFT_F64 || t == DEFT_F16 || t == DEFT_BF16;
}
static bool is_int(deft_dtype t)
{
    return !is_float(t) && t != DEFT_BOOL;
}

/* A number of this instruction in this repetition. */
static double number(const run *r, const ins *i)
{
    return r->rep == 1 ? (double)(i->num * 0.75f + 0.125f)
                       : (double)i->num; /* exact, and so are sums */
}

static int64_t whole(const run *r, const ins *i, deft_dtype t)
{
    const int64_t n = (int64_t)floorf(i->num) + (r->rep == 1);
    return t == DEFT_U8 && n < 0 ? -n : n;
}

static int64_t extent(const run *r, unsigned k)
{
    const int64_t n = r->pr->ext[k % N_EXT];
    static const int64_t other[] = { 5, 0, 33, 1, 3, 8, 17, 2, 16 };
    return r->rep == 2 && k % N_EXT == 0 ? other[(uint64_t)n % LEN(other)] : n;
}

static deft_shape shape_from(const run *r, const uint8_t *p)
{
    deft_shape s = { .rank = p[0] % 4u };
    for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = extent(r, p[1] >> (2 * i));
    while (oracle_numel(&s) > MAX_NUMEL) s.rank--;
    return s;
}

/* ---- tables of ops ---- */

typedef enum takes { TAKES_ANY, TAKES_NUMBERS, TAKES_INTEGRAL, TAKES_INTS } takes;

typedef struct unary_row {
    const char *name;
    deft_tensor *(*f)(deft_tensor *);
} unary_row;
typedef struct binary_row {
    const char *name;
    deft_tensor *(*f)(deft_tensor *, deft_tensor *);
    deft_tensor *(*number_f)(deft_tensor *, double);
    deft_tensor *(*number_i)(deft_tensor *, int64_t);
} binary_row;
typedef struct reduce_row {
    const char *name;
    deft_tensor *(*f)(deft_tensor *, deft_axes, bool);
    takes takes;
    bool needs_element;
} reduce_row;

#define U(id) { #id, (deft_##id) },
#define B(id) { #id, (deft_##id), deft_##id##_f, deft_##id##_i },
static const unary_row unary_ops[] = { DEFT_UNARY_OPS(U) };
static const binary_row binary_ops[] = { DEFT_BINARY_OPS(B) };
static const reduce_row reduce_ops[] = {
    { "sum", deft_sum, TAKES_ANY, false },      { "sum", deft_sum, TAKES_ANY, false },
    { "mean", deft_mean, TAKES_ANY, false },    { "max", deft_max, TAKES_NUMBERS, true },
    { "prod", deft_prod, TAKES_ANY, false },    { "min", deft_min, TAKES_NUMBERS, true },
    { "any", deft_any, TAKES_ANY, false },      { "all", deft_all, TAKES_ANY, false },
    { "argmin", deft_argmin, TAKES_ANY, true }, { "argmax", deft_argmax, TAKES_ANY, true },
};

static bool one_of(const char *name, const char *list)
{
    const size_t n = strlen(name);
    for (const char *at = strstr(list, name); at; at = strstr(at + 1, name))
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0)) return true;
    return false;
}

static takes takes_of(const char *name)
{
    if (one_of(name, "bitwise_not bitwise_and bitwise_or bitwise_xor")) return TAKES_INTEGRAL;
    if (one_of(name, "shift_left shift_right")) return TAKES_INTS;
    if (one_of(name,
               "neg abs sign square relu add sub mul floor_div remainder fmod minimum maximum"))
        return TAKES_NUMBERS;
    return TAKES_ANY;
}

/* t as a dtype that is taken: cast when it is not. */
static deft_tensor *fit(run *r, deft_tensor *t, takes k, const char **note)
{
    const deft_dtype d = deft_dtype_of(t);
    deft_dtype to = d;
    if (k == TAKES_NUMBERS && d == DEFT_BOOL) to = DEFT_I32;
    if (k == TAKES_INTEGRAL && is_float(d)) to = DEFT_I32;
    if (k == TAKES_INTS && !is_int(d)) to = DEFT_I64;
    (void)r;
    *note = to == d ? "" : " /* after a cast */";
    return to == d ? t : deft_cast(t, to);
}

/* b, cast to the dtype of a when the two have no common dtype. */
static deft_tensor *beside(deft_tensor *a, deft_tensor *b)
{
    const deft_dtype t = deft_dtype_of(a);
    return deft_promote(t, deft_dtype_of(b)) == DEFT_N_DTYPES ? deft_cast(b, t) : b;
}

static bool broadcasts(const deft_shape *a, const deft_shape *b, deft_shape *out)
{
    *out = a->rank >= b->rank ? *a : *b;
    const deft_shape *const lesser = a->rank >= b->rank ? b : a;
    for (uint32_t i = 0; i < lesser->rank; i++) {
        int64_t *const d = &out->dim[out->rank - lesser->rank + i];
        if (*d == 1)
            *d = lesser->dim[i];
        else if (lesser->dim[i] != *d && lesser->dim[i] != 1)
            return false;
    }
    return oracle_numel(out) <= MAX_NUMEL;
}

static bool fits_into(const deft_shape *src, const deft_shape *dst)
{
    deft_shape s;
    return broadcasts(src, dst, &s) && s.rank == dst->rank &&
           !memcmp(s.dim, dst->dim, s.rank * sizeof *s.dim);
}

static bool has_zero(const deft_shape *s)
{
    return oracle_numel(s) == 0;
}

static const char *shape_text(const deft_shape *s)
{
    static char buf[4][120];
    static unsigned turn;
    return oracle_shape_text(s, buf[turn++ % 4], sizeof *buf);
}

static deft_axes some_axes(uint32_t rank, uint8_t p)
{
    deft_axes a = { 0 };
    if (p % 5 == 0) return DEFT_ALL_AXES;
    for (uint32_t i = 0; i < rank; i++)
        if (p >> (3 + i) & 1) a.at[a.n++] = (int32_t)i;
    if (a.n == 0 && rank) {
        a.n = 1;
        a.at[0] = (int32_t)(p % rank);
    }
    return a;
}

static const char *axes_text(const deft_axes *a)
{
    static char buf[64];
    size_t at = (size_t)snprintf(buf, sizeof buf, "{");
    if (a->n == UINT32_MAX) return "ALL";
    for (uint32_t i = 0; i < a->n; i++)
        at += (size_t)snprintf(buf + at, sizeof buf - at, "%s%d", i ? "," : "", a->at[i]);
    snprintf(buf + at, sizeof buf - at, "}");
    return buf;
}

/* ---- inputs ---- */

static void do_input(run *r, const ins *i, bool mut)
{
    const deft_dtype t = (deft_dtype)(i->p[2] % DF_N_RECORDED);
    const deft_shape s = shape_from(r, i->p);
    const size_t size = deft_dtype_size(t);
    int64_t stride[DEFT_MAX_RANK], span = 1;
    const bool gaps = i->p[3] & 1;
    for (uint32_t k = s.rank; k-- > 0;) {
        stride[k] = span * (gaps && k + 1 == s.rank && s.rank == 1 ? 2 : 1);
        span = stride[k] * s.dim[k] + (gaps && k + 1 == s.rank ? 2 : 0);
        if (span <= 0) span = 1;
    }
    const size_t n = (size_t)span + 2;
    uint64_t seed = (uint64_t)r->rep;
    for (size_t k = 0; k < LEN(i->p); k++) seed = oracle_mix(seed, i->p[k]);
    const oracle_kind hard = i->p[4] % 6 == 0 ? ORACLE_HARD : ORACLE_TAME;
    if (mut || i->p[3] & 2) {
        if (r->n_mut == MAX_MUT || has_zero(&s)) return;
        mut_memory *const m = &r->mut[r->n_mut++];
        *m = (mut_memory){ oracle_alloc(n * size + 16), t, n };
        char *const at = m->data; /* misaligned starts are op_matrix's */
        oracle_fill(t, at, n, seed, hard);
        const uint32_t turned = s.rank ? (uint32_t)(i->p[3] >> 3) % s.rank : 0;
        const bool turns = s.rank && i->p[3] & 4;
        if (turns) stride[turned] = -stride[turned];
        say(r, "t%u = deft_wrap%s(cx, %s, %s, memory%zu, bytes, %s%s);", i->dst % VARS,
            mut ? "_mut" : "", shape_text(&s), deft_dtype_name(t), r->n_mut - 1,
            gaps ? "padded" : "packed", turns ? " and one axis from its end" : "");
        set(r, i->dst,
            (mut ? deft_wrap_mut(r->cx, s, t, at, n * size, stride)
                 : deft_wrap(r->cx, s, t, at, n * size, stride)),
            NULL);
        return;
    }
    char *const data = oracle_alloc(n * size);
    oracle_fill(t, data, n, seed, hard);
    say(r, "t%u = deft_from(cx, %s, %s, %s);", i->dst % VARS, shape_text(&s), deft_dtype_name(t),
        hard == ORACLE_HARD ? "hard" : "tame");
    set(r, i->dst, deft_from(r->cx, s, t, data, (size_t)oracle_numel(&s) * size), NULL);
    free(data);
}

/* ---- maps ---- */

/* The sign of a NaN that was computed is unspecified, so the ops that show it get none. */
static deft_tensor *without_nan(const char *op, deft_tensor *x)
{
    if (!x || (strcmp(op, "signbit") && strcmp(op, "copysign"))) return x;
    if (!deft_isdtype(deft_dtype_of(x), DEFT_KIND_REAL)) return x;
    return deft_where(deft_isnan(x), deft_num(deft_ctx_of(x), 1), x);
}

static void do_unary(run *r, const ins *i)
{
    const var *const a = get(r, i->a);
    if (!a) return;
    const unary_row *const o = &unary_ops[i->p[0] % LEN(unary_ops)];
    const char *note;
    deft_tensor *const x = fit(r, a->t, takes_of(o->name), &note);
    say(r, "t%u = deft_%s(t%u);%s", i->dst % VARS, o->name, i->a % VARS, note);
    set(r, i->dst, o->f(without_nan(o->name, x)), NULL);
}

static deft_tensor *with_number(run *r, const binary_row *o, deft_tensor *x, const ins *i,
                                char *text, size_t n)
{
    const deft_dtype t = deft_dtype_of(x);
    const takes k = takes_of(o->name);
    if (i->p[1] & 1 && k != TAKES_INTEGRAL && k != TAKES_INTS) {
        snprintf(text, n, "%.9g", number(r, i));
        return o->number_f(x, number(r, i));
    }
    /* A small whole exponent is an attribute: another one is another program. */
    const int64_t v = strcmp(o->name, "pow") ? whole(r, i, t) : 3;
    snprintf(text, n, "%lld", (long long)v);
    return o->number_i(x, v);
}

static void do_binary(run *r, const ins *i)
{
    const var *const a = get(r, i->a), *const b = get(r, i->b);
    if (!a) return;
    const binary_row *const o = &binary_ops[i->p[0] % LEN(binary_ops)];
    const takes k = takes_of(o->name);
    const deft_shape sa = deft_shape_get(a->t);
    deft_shape sb, out;
    const char *na, *nb;
    if (b) sb = deft_shape_get(b->t);
    deft_tensor *const x = fit(r, a->t, k, &na);
    if (i->kind == K_BINARY && b && broadcasts(&sa, &sb, &out)) {
        deft_tensor *const y = beside(x, fit(r, b->t, k, &nb));
        say(r, "t%u = deft_%s(t%u, t%u);%s%s", i->dst % VARS, o->name, i->a % VARS, i->b % VARS, na,
            nb);
        set(r, i->dst, o->f(x, without_nan(o->name, y)), NULL);
    } else if (i->kind == K_LEFT_NUMBER && k != TAKES_INTEGRAL && k != TAKES_INTS) {
        say(r, "t%u = deft_%s(deft_num(cx, %.9g), t%u);%s", i->dst % VARS, o->name, number(r, i),
            i->a % VARS, na);
        set(r, i->dst, o->f(deft_num(r->cx, number(r, i)), without_nan(o->name, x)), NULL);
    } else {
        char text[40];
        deft_tensor *const t = with_number(r, o, x, i, text, sizeof text);
        say(r, "t%u = deft_%s(t%u, %s);%s", i->dst % VARS, o->name, i->a % VARS, text, na);
        set(r, i->dst, t, NULL);
    }
}

static void do_where(run *r, const ins *i)
{
    const var *const a = get(r, i->a), *const b = get(r, i->b), *const c = get(r, i->c);
    if (!a || !b || !c) return;
    const deft_shape sa = deft_shape_get(a->t), sb = deft_shape_get(b->t),
                     sc = deft_shape_get(c->t);
    deft_shape ab, out;
    if (!broadcasts(&sa, &sb, &ab) || !broadcasts(&ab, &sc, &out)) return;
    say(r, "t%u = deft_where(t%u, t%u, t%u);", i->dst % VARS, i->a % VARS, i->b % VARS,
        i->c % VARS);
    set(r, i->dst, deft_where(a->t, b->t, beside(b->t, c->t)), NULL);
}

static void do_lerp(run *r, const ins *i)
{
    const var *const a = get(r, i->a), *const b = get(r, i->b);
    if (!a || !b) return;
    const deft_shape sa = deft_shape_get(a->t), sb = deft_shape_get(b->t);
    deft_shape ab;
    if (!broadcasts(&sa, &sb, &ab) || deft_dtype_of(a->t) == DEFT_BOOL ||
        deft_dtype_of(b->t) == DEFT_BOOL)
        return;
    say(r, "t%u = deft_lerp(t%u, t%u, %.9g);", i->dst % VARS, i->a % VARS, i->b % VARS,
        number(r, i));
    set(r, i->dst, deft_lerp_f(a->t, beside(a->t, b->t), number(r, i)), NULL);
}

static void do_simple(run *r, const ins *i)
{
    const var *const a = get(r, i->a);
    if (!a) return;
    const deft_dtype t = deft_dtype_of(a->t);
    if (i->kind == K_CAST) {
        const deft_dtype to = (deft_dtype)(i->p[0] % DF_N_RECORDED);
        say(r, "t%u = deft_cast(t%u, %s);", i->dst % VARS, i->a % VARS, deft_dtype_name(to));
        set(r, i->dst, deft_cast(a->t, to), NULL);
    } else if (is_float(t)) {
        const double x = number(r, i);
        say(r, "t%u = deft_clamp(t%u, %.9g, %.9g);", i->dst % VARS, i->a % VARS, x - 1, x + 1);
        set(r, i->dst, deft_clamp(a->t, x - 1, x + 1), NULL);
    }
}

/* ---- reductions ---- */

static void do_reduce(run *r, const ins *i)
{
    const var *const a = get(r, i->a);
    if (!a) return;
    const deft_shape s = deft_shape_get(a->t);
    const deft_axes axes = some_axes(s.rank, i->p[1]);
    const int keep = i->p[2] & 1;
    const char *note;
    if (i->kind == K_VAR) {
        say(r, "t%u = deft_var(t%u, %s, %d, %d);", i->dst % VARS, i->a % VARS, axes_text(&axes),
            keep, i->p[2] >> 1 & 1);
        set(r, i->dst, deft_var(a->t, axes, keep, i->p[2] >> 1 & 1), NULL);
        return;
    }
    const reduce_row *const o = &reduce_ops[i->p[0] % LEN(reduce_ops)];
    if (o->needs_element && has_zero(&s)) return;
    deft_tensor *const x = fit(r, a->t, o->takes, &note);
    say(r, "t%u = deft_%s(t%u, %s, %d);%s", i->dst % VARS, o->name, i->a % VARS, axes_text(&axes),
        keep, note);
    set(r, i->dst, o->f(x, axes, keep), NULL);
}

static void do_rows(run *r, const ins *i)
{
    const var *const a = get(r, i->a);
    if (!a) return;
    const deft_shape s = deft_shape_get(a->t);
    if (!s.rank) return;
    const int axis = (int)(i->p[0] % s.rank);
    if (i->kind == K_CUMSUM) {
        static const struct {
            const char *name;
            deft_tensor *(*f)(deft_tensor *, int);
        } scans[] = { { "sum", deft_cumsum },
                      { "prod", deft_cumprod },
                      { "max", deft_cummax },
                      { "min", deft_cummin },
                      { "sum", deft_cumsum } };
        const unsigned which = i->p[1] % LEN(scans);
        const char *note;
        deft_tensor *const x = fit(r, a->t, TAKES_NUMBERS, &note);
        say(r, "t%u = deft_cum%s(t%u, %d);%s", i->dst % VARS, scans[which].name, i->a % VARS, axis,
            note);
        set(r, i->dst, scans[which].f(x, axis), NULL);
    } else if (i->kind == K_SORT && i->p[1] % 5 == 4 && !has_zero(&s)) {
        const char *note;
        deft_tensor *const x = fit(r, a->t, TAKES_NUMBERS, &note);
        const bool half = i->p[1] & 1, keep = i->p[1] & 2;
        say(r, "t%u = deft_%s(t%u, %s%d, %d);%s", i->dst % VARS, half ? "median" : "quantile",
            i->a % VARS, half ? "" : "0.3, ", axis, keep, note);
        set(r, i->dst, half ? deft_median(x, axis, keep) : deft_quantile(x, 0.3, axis, keep), NULL);
    } else if (i->kind == K_SORT) {
        const char *const name = i->p[1] & 1 ? "sort" : "argsort";
        const int down = i->p[1] >> 1 & 1;
        if (i->p[1] & 4) {
            const int64_t some = s.dim[axis] * (i->p[1] >> 3 & 3) / 3;
            say(r, "t%u = deft_topk(t%u, %lld, %d, %d, NULL);", i->dst % VARS, i->a % VARS,
                (long long)some, axis, down);
            set(r, i->dst, deft_topk(a->t, some, axis, down, NULL), NULL);
            return;
        }
        say(r, "t%u = deft_%s(t%u, %d, %d);", i->dst % VARS, name, i->a % VARS, axis, down);
        set(r, i->dst, i->p[1] & 1 ? deft_sort(a->t, axis, down) : deft_argsort(a->t, axis, down),
            NULL);
    } else if (i->kind == K_FOUND) {
        const char *const name = i->p[1] & 1 ? "unique" : "nonzero";
        const int64_t max = s.dim[axis];
        say(r, "t%u = deft_%s(t%u, %lld, NULL);", i->dst % VARS, name, i->a % VARS, (long long)max);
        set(r, i->dst, i->p[1] & 1 ? deft_unique(a->t, max, NULL) : deft_nonzero(a->t, max, NULL),
            NULL);
    } else if (has_zero(&s)) {
        return;
    } else if (i->kind == K_LAYER_NORM) {
        if (deft_dtype_of(a->t) == DEFT_BOOL) return;
        const uint32_t n = i->p[1] % s.rank + 1;
        say(r, "t%u = deft_layer_norm(t%u, %u, NULL, NULL, 1e-3);", i->dst % VARS, i->a % VARS, n);
        set(r, i->dst, deft_layer_norm(a->t, n, NULL, NULL, 1e-3), NULL);
    } else {
        const bool log = i->p[1] & 1;
        const char *note;
        deft_tensor *const x = fit(r, a->t, TAKES_NUMBERS, &note);
        say(r, "t%u = deft_%ssoftmax(t%u, %d);%s", i->dst % VARS, log ? "log_" : "", i->a % VARS,
            axis, note);
        set(r, i->dst, log ? deft_log_softmax(x, axis) : deft_softmax(x, axis), NULL);
    }
}

/* ---- views ---- */

static void do_slice(run *r, const ins *i)
{
    static const int64_t steps[] = { 1, 1, 1, 2, -1, -2, 3 };
    const var *const a = get(r, i->a);
    if (!a) return;
    const deft_shape s = deft_shape_get(a->t);
    deft_range range[DEFT_MAX_RANK];
    char text[200];
    size_t at = 0;
    text[0] = 0;
    for (uint32_t k = 0; k < s.rank; k++) {
        const uint8_t p = i->p[k % 4];
        const int64_t step = steps[p % LEN(steps)], n = s.dim[k];
        if (n == 0 || p & 128) {
            range[k] = DEFT_FULL;
        } else if (step > 0) {
            /* about half of the axis; the start is a number and may move */
            const int64_t want = (n + 1) / 2;
            const int64_t start = (p / 8 + (r->rep == 1 && i->p[4] % 3)) % (n - want + 1);
            range[k] = DEFT_RS(start, start + want, step);
        } else {
            range[k] = DEFT_RS(n - 1, DEFT_END, step);
        }
        at += (size_t)snprintf(text + at, sizeof text - at, ", DEFT_RS(%lld, %lld, %lld)",
                               (long long)range[k].start,
                               (long long)(range[k].stop == DEFT_END ? -9999 : range[k].stop),
                               (long long)range[k].step);
    }
    say(r, "t%u = deft_slice(t%u%s);", i->dst % VARS, i->a % VARS, text);
    set(r, i->dst, deft_slice_n(a->t, s.rank, range), a);
}

static void do_view(run *r, const ins *i)
{
    const var *const a = get(r, i->a);
    if (!a) return;
    deft_shape s = deft_shape_get(a->t), out = s;
    const int64_t n = oracle_numel(&s);
    const unsigned d = i->dst % VARS, v = i->a % VARS;
    switch (i->kind) {
    case K_AT: {
        if (!s.rank || s.dim[0] == 0) return;
        const int64_t at = (i->p[0] + (r->rep == 1)) % s.dim[0];
        say(r, "t%u = deft_slice(t%u, DEFT_AT(%lld));", d, v, (long long)at);
        set(r, i->dst, deft_slice(a->t, DEFT_AT(at)), a);
        return;
    }
    case K_FLIP: {
        const deft_axes axes = some_axes(s.rank, i->p[0]);
        say(r, "t%u = deft_flip(t%u, %s);", d, v, axes_text(&axes));
        set(r, i->dst, deft_flip(a->t, axes), a);
        return;
    }
    case K_RESHAPE:
        switch (i->p[0] % 4) {
        case 0: out = (deft_shape){ .rank = 1, .dim = { n } }; break;
        case 1:
            out = s.rank < 2
                      ? (deft_shape){ .rank = 2, .dim = { 1, n } }
                      : (deft_shape){ .rank = 2, .dim = { s.dim[0], s.dim[0] ? n / s.dim[0] : 0 } };
            break;
        case 2:
            out = n % 2 ? (deft_shape){ .rank = 2, .dim = { n, 1 } }
                        : (deft_shape){ .rank = 2, .dim = { n / 2, 2 } };
            break;
        default:
            for (uint32_t k = 0; k < s.rank; k++) out.dim[k] = s.dim[s.rank - 1 - k];
            break;
        }
        if (oracle_numel(&out) != n) return;
        say(r, "t%u = deft_reshape(t%u, %s);", d, v, shape_text(&out));
        set(r, i->dst, deft_reshape(a->t, out), a);
        return;
    case K_PERMUTE:
        if (s.rank < 2) return;
        say(r, "t%u = deft_transpose(t%u, %u, %u);", d, v, i->p[0] % s.rank, i->p[1] % s.rank);
        set(r, i->dst, deft_transpose(a->t, (int)(i->p[0] % s.rank), (int)(i->p[1] % s.rank)), a);
        return;
    case K_EXPAND:
        if (i->p[0] & 1 && s.rank < 4) {
            memmove(out.dim + 1, s.dim, s.rank * sizeof *s.dim);
            out.rank++;
            out.dim[0] = extent(r, i->p[1]);
        } else {
            bool any = false;
            for (uint32_t k = 0; k < s.rank; k++)
                if (s.dim[k] == 1) {
                    out.dim[k] = extent(r, i->p[1] >> k);
                    any = true;
                }
            if (!any) return;
        }
        if (oracle_numel(&out) > MAX_NUMEL) return;
        say(r, "t%u = deft_expand(t%u, %s);", d, v, shape_text(&out));
        set(r, i->dst, deft_expand(a->t, out), a);
        r->v[d].epoch = UINT32_MAX; /* no place to write to: elements share it */
        return;
    case K_UNSQUEEZE:
        if (s.rank > 4) return;
        say(r, "t%u = deft_unsqueeze(t%u, %u);", d, v, i->p[0] % (s.rank + 1));
        set(r, i->dst, deft_unsqueeze(a->t, (int)(i->p[0] % (s.rank + 1))), a);
        return;
    case K_SQUEEZE:
        say(r, "t%u = deft_squeeze(t%u, ALL);", d, v);
        set(r, i->dst, deft_squeeze(a->t, DEFT_ALL_AXES), a);
        return;
    case K_DIAGONAL: {
        if (s.rank < 2) return;
        const int64_t offset = (int64_t)(i->p[0] % 5) - 2;
        say(r, "t%u = deft_diagonal(t%u, %lld, 0, 1);", d, v, (long long)offset);
        set(r, i->dst, deft_diagonal(a->t, offset, 0, 1), a);
        return;
    }
    default: return;
    }
}

/* ---- joining, indexing, products ---- */

static void do_join(run *r, const ins *i)
{
    const var *const a = get(r, i->a), *const b = get(r, i->b);
    if (!a) return;
    const deft_shape s = deft_shape_get(a->t);
    const unsigned d = i->dst % VARS, v = i->a % VARS;
    const int axis = s.rank ? (int)(i->p[0] % s.rank) : 0;
    if (i->kind == K_CONCAT || i->kind == K_STACK) {
        const bool stack = i->kind == K_STACK;
        deft_tensor *part[3] = { a->t, a->t, a->t };
        if (!stack && !s.rank) return;
        bool fits = b != NULL;
        if (fits) {
            const deft_shape sb = deft_shape_get(b->t);
            fits = sb.rank == s.rank;
            for (uint32_t k = 0; fits && k < s.rank; k++)
                fits = sb.dim[k] == s.dim[k] || (!stack && (int)k == axis);
        }
        if (fits) part[1] = beside(a->t, b->t);
        say(r, "t%u = deft_%s({t%u, t%u, t%u}, %u, %d);", d, stack ? "stack" : "concat", v,
            fits ? i->b % VARS : v, v, 2 + (i->p[1] & 1), axis);
        set(r, i->dst,
            stack ? deft_stack(part, 2 + (i->p[1] & 1), axis)
                  : deft_concat(part, 2 + (i->p[1] & 1), axis),
            NULL);
        return;
    }
    if (i->kind == K_PAD) {
        const deft_pad_mode mode = (deft_pad_mode)(i->p[1] % 4);
        int64_t before[DEFT_MAX_RANK], after[DEFT_MAX_RANK];
        for (uint32_t k = 0; k < s.rank; k++) {
            const int64_t most = mode == DEFT_PAD_CONSTANT            ? 9
                                 : mode == DEFT_PAD_REFLECT           ? s.dim[k] - 1
                                 : mode == DEFT_PAD_WRAP || !s.dim[k] ? s.dim[k]
                                                                      : 9;
            const int64_t x = i->p[2] >> (2 * k) & 3, y = i->p[3] >> (2 * k) & 3;
            before[k] = most < 0 ? 0 : x < most ? x : most;
            after[k] = most < 0 ? 0 : y < most ? y : most;
        }
        const double value = deft_dtype_of(a->t) == DEFT_BOOL ? 1 : fabs(floor(number(r, i)));
        say(r, "t%u = deft_pad(t%u, {%lld..}, {%lld..}, %d, %g);", d, v,
            s.rank ? (long long)before[0] : 0, s.rank ? (long long)after[0] : 0, (int)mode, value);
        set(r, i->dst, deft_pad(a->t, before, after, mode, value), NULL);
    } else if (i->kind == K_ROLL && s.rank) {
        say(r, "t%u = deft_roll(t%u, %d, %d);", d, v, (int)i->p[1] - 100, axis);
        set(r, i->dst, deft_roll(a->t, (int)i->p[1] - 100, axis), NULL);
    } else if (i->kind == K_TRI && s.rank >= 2) {
        const int64_t k = (int64_t)(i->p[0] % 5) - 2;
        say(r, "t%u = deft_tri%c(t%u, %lld);", d, i->p[1] & 1 ? 'l' : 'u', v, (long long)k);
        set(r, i->dst, i->p[1] & 1 ? deft_tril(a->t, k) : deft_triu(a->t, k), NULL);
    }
}

/* Indices x, written as text, into a; values are what a third tensor has there, or a number. */
static void do_scatter(run *r, const ins *i, deft_tensor *x, const char *text, int axis)
{
    const var *const a = get(r, i->a), *const c = get(r, i->c);
    const unsigned d = i->dst % VARS, v = i->a % VARS, w = i->c % VARS;
    const deft_dtype t = deft_dtype_of(a->t);
    if (!c || t == DEFT_BOOL) return;
    const deft_shape s = deft_shape_get(a->t), sc = deft_shape_get(c->t);
    const bool alike = sc.rank == s.rank && !memcmp(sc.dim, s.dim, s.rank * sizeof *s.dim);
    deft_tensor *values = deft_num_i(r->cx, i->p[2] % 100);
    char text_of_values[160];
    snprintf(text_of_values, sizeof text_of_values, "%u", i->p[2] % 100u);
    if (alike) {
        values = deft_cast(deft_take(c->t, x, axis), t);
        snprintf(text_of_values, sizeof text_of_values, "deft_cast(deft_take(t%u, %s, %d), %s)", w,
                 text, axis, deft_dtype_name(t));
    }
    const unsigned how = i->p[3] % 7u;
    if (how < 2) {
        say(r, "t%u = deft_index_add(t%u, %s, %s, %d);", d, v, text, text_of_values, axis);
        set(r, i->dst, deft_index_add(a->t, x, values, axis), NULL);
    } else if (how == 2) {
        say(r, "t%u = deft_index_copy(t%u, %s, %s, %d);", d, v, text, text_of_values, axis);
        set(r, i->dst, deft_index_copy(a->t, x, values, axis), NULL);
    } else {
        say(r, "t%u = deft_index_reduce(t%u, %s, %s, %d, %u, true);", d, v, text, text_of_values,
            axis, how - 2);
        set(r, i->dst, deft_index_reduce(a->t, x, values, axis, (deft_scatter_how)(how - 2), true),
            NULL);
    }
}

static void do_index(run *r, const ins *i)
{
    const var *const a = get(r, i->a), *const b = get(r, i->b);
    if (!a || !b) return;
    const deft_shape s = deft_shape_get(a->t), sb = deft_shape_get(b->t);
    const unsigned d = i->dst % VARS, v = i->a % VARS, w = i->b % VARS;
    if (i->kind == K_ONE_HOT) {
        if (!is_int(deft_dtype_of(a->t)) || s.rank > 4) return;
        say(r, "t%u = deft_one_hot(t%u, 5, f32);", d, v);
        set(r, i->dst, deft_one_hot(a->t, 5, DEFT_F32), NULL);
        return;
    }
    if (!s.rank) return;
    const int axis = (int)(i->p[0] % s.rank);
    if (s.dim[axis] == 0 || s.rank + sb.rank > 6) return;
    /* Any tensor becomes indices: its integer part modulo the extent. */
    deft_tensor *x = deft_remainder_i(deft_cast(b->t, DEFT_I64), s.dim[axis]);
    if (i->p[1] & 1) x = deft_sub_i(x, 1);
    if (i->kind == K_GATHER) {
        bool fits = sb.rank == s.rank;
        for (uint32_t k = 0; fits && k < s.rank; k++)
            fits = (int)k == axis || sb.dim[k] <= s.dim[k];
        if (!fits) return;
    }
    char text[96];
    snprintf(text, sizeof text, "deft_sub(deft_remainder(deft_cast(t%u, i64), %lld), %d)", w,
             (long long)s.dim[axis], i->p[1] & 1);
    if (i->kind == K_SCATTER) {
        do_scatter(r, i, x, text, axis);
        return;
    }
    say(r, "t%u = deft_%s(t%u, %s, %d);", d, i->kind == K_TAKE ? "take" : "gather", v, text, axis);
    set(r, i->dst, i->kind == K_TAKE ? deft_take(a->t, x, axis) : deft_gather(a->t, x, axis), NULL);
}

static void do_matmul(run *r, const ins *i)
{
    const var *const a = get(r, i->a), *const b = get(r, i->b);
    if (!a) return;
    const deft_shape s = deft_shape_get(a->t);
    const unsigned d = i->dst % VARS, v = i->a % VARS, w = i->b % VARS;
    if (!s.rank) return;
    if (b) {
        const deft_shape sb = deft_shape_get(b->t);
        const int64_t k = s.dim[s.rank - 1];
        const bool plain = sb.rank >= 1 && sb.rank <= 2 && sb.dim[0] == k;
        const bool turned = sb.rank == 2 && sb.dim[1] == k;
        if (plain || turned) {
            say(r, "t%u = deft_matmul(t%u, %st%u%s);", d, v, plain ? "" : "deft_t(", w,
                plain ? "" : ")");
            set(r, i->dst, deft_matmul(a->t, beside(a->t, plain ? b->t : deft_t(b->t))), NULL);
            return;
        }
    }
    if (s.rank < 2) return;
    say(r, "t%u = deft_matmul(t%u, deft_t(t%u));", d, v, v);
    set(r, i->dst, deft_matmul(a->t, deft_t(a->t)), NULL);
}

/* ---- places, contractions, complex numbers ---- */

/* a and b in one dtype that has arithmetic. */
static bool two_numbers(run *r, const ins *i, deft_tensor **x, deft_tensor **y)
{
    const var *const a = get(r, i->a), *const b = get(r, i->b);
    const char *note;
    if (!a || !b) return false;
    *x = fit(r, a->t, TAKES_NUMBERS, &note);
    *y = deft_cast(b->t, deft_dtype_of(*x));
    return true;
}

/* Sums of products over labels: the last axis of a alone, and all axes of equal shapes. */
static void do_contract(run *r, const ins *i)
{
    static const char *const of[4][2] = { { "", "" },
                                          { "a,a->", "a,a,b->b" },
                                          { "ab,ab->b", "ab,cb,ab->ca" },
                                          { "abc,abc->ac", "abc,dbc->ad" } };
    deft_tensor *x, *y;
    if (!two_numbers(r, i, &x, &y)) return;
    const deft_shape s = deft_shape_get(x), sy = deft_shape_get(y);
    const unsigned d = i->dst % VARS, v = i->a % VARS, w = i->b % VARS;
    bool alike = s.rank == sy.rank;
    for (uint32_t k = 0; k < s.rank && alike; k++) alike = s.dim[k] == sy.dim[k];
    if (s.rank == 0 || s.rank > 3) return;
    if (!alike) y = x;
    const int last = (int)s.rank - 1;
    const char *const equation = of[s.rank][i->p[0] & 1];
    deft_tensor *const t[3] = { x, y, x };
    switch (i->p[1] % 3) {
    case 0:
        say(r, "t%u = deft_tensordot(t%u, t%u, {%d}, {%d});", d, v, alike ? w : v, last, last);
        set(r, i->dst, deft_tensordot(x, y, DEFT_AXES(last), DEFT_AXES(last)), NULL);
        return;
    default:
        say(r, "t%u = deft_einsum(\"%s\", {t%u, t%u, t%u}, ..);", d, equation, v, alike ? w : v, v);
        set(r, i->dst, deft_einsum(equation, t, s.rank < 3 && i->p[0] & 1 ? 3 : 2), NULL);
    }
}

/* A part of a from a place on that b decides: read, or replaced. */
static void do_places(run *r, const ins *i)
{
    const var *const a = get(r, i->a), *const b = get(r, i->b);
    if (!a || !b) return;
    const deft_shape s = deft_shape_get(a->t), sb = deft_shape_get(b->t);
    deft_tensor *start[DEFT_MAX_RANK] = { NULL };
    int64_t sizes[DEFT_MAX_RANK] = { 0 };
    if (s.rank == 0 || has_zero(&sb)) return;
    const uint32_t axis = i->p[0] % s.rank, other = i->p[1] % s.rank;
    deft_tensor *const at = deft_slice(deft_flatten(b->t), DEFT_AT(0));
    static const deft_dtype of[] = { DEFT_I64, DEFT_I32, DEFT_U8, DEFT_I8, DEFT_U32, DEFT_U64 };
    start[axis] = deft_cast(at, of[i->p[2] % LEN(of)]);
    start[other] = start[axis];
    sizes[axis] = (s.dim[axis] + 1) / 2;
    sizes[other] = (s.dim[other] + 1) / 2;
    const unsigned d = i->dst % VARS, v = i->a % VARS;
    if (i->p[3] & 1) {
        say(r, "t%u = deft_dynamic_slice(t%u, {t%u..}, ..); /* axes %u %u */", d, v, i->b % VARS,
            axis, other);
        set(r, i->dst, deft_dynamic_slice(a->t, start, sizes), NULL);
        return;
    }
    say(r, "t%u = deft_dynamic_update(t%u, its slice from 0, {t%u..}, ..); /* axes %u %u */", d, v,
        i->b % VARS, axis, other);
    deft_range part[DEFT_MAX_RANK];
    for (uint32_t k = 0; k < s.rank; k++)
        part[k] = start[k] ? DEFT_RS(sizes[k] - 1, DEFT_END, -1) : DEFT_FULL;
    for (uint32_t k = 0; k < s.rank; k++)
        if (start[k] && !sizes[k]) part[k] = DEFT_FULL;
    set(r, i->dst, deft_dynamic_update(a->t, deft_slice_n(a->t, s.rank, part), start, sizes), NULL);
}

/* The states of s' = a s + b. */
static deft_status after(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(in[0], in[2]);
    out[1] = deft_add(deft_mul(in[1], in[2]), in[3]);
    return DEFT_OK;
}

static void do_associate(run *r, const ins *i)
{
    deft_tensor *x, *y, *out[2];
    if (!two_numbers(r, i, &x, &y)) return;
    const deft_shape s = deft_shape_get(x), sy = deft_shape_get(y);
    bool alike = s.rank == sy.rank && s.rank > 0;
    for (uint32_t k = 0; k < s.rank && alike; k++) alike = s.dim[k] == sy.dim[k];
    if (!alike) return;
    const int axis = (int)(i->p[0] % s.rank);
    say(r, "t%u = deft_associative_scan(a s + b, {t%u, t%u}, %d);", i->dst % VARS, i->a % VARS,
        i->b % VARS, axis);
    if (deft_associative_scan(after, NULL, (deft_tensor *[]){ x, y }, 2, axis, out))
        set(r, i->dst, out[1], NULL);
}

/* Reals again, of complex numbers whose parts are a and b. */
static deft_tensor *through_complex(const ins *i, deft_tensor *z, deft_tensor *w, uint32_t rank)
{
    const int axis = rank ? (int)(i->p[1] % rank) : 0;
    const deft_axes axes = DEFT_AXES(axis);
    switch (i->p[0] % 12) {
    case 0: return deft_real(deft_mul(z, w));
    case 1: return deft_imag(deft_div(w, deft_add(z, deft_num(deft_ctx_of(z), 0.5))));
    case 2: return deft_abs(deft_sub(z, deft_conj(w)));
    case 3: return rank ? deft_imag(deft_sum(z, axes, 0)) : deft_angle(z);
    case 4: return rank ? deft_real(deft_cumsum(w, axis)) : deft_imag(w);
    case 5: return deft_real(deft_exp(deft_conj(z)));
    case 6: deft_assign(deft_imag(w), deft_real(z)); return deft_imag(deft_mul(w, w));
    case 7: return rank ? deft_imag(deft_flip(deft_sqrt(z), axes)) : deft_real(deft_sqrt(z));
    case 8: return deft_sum(deft_view_as_real(deft_conj(z)), DEFT_AXES(-1), 0);
    case 9: return rank ? deft_imag(deft_conj(deft_slice(w, DEFT_R(0, -1)))) : deft_real(w);
    case 10: return rank >= 2 ? deft_real(deft_matmul(z, deft_conj(deft_t(w)))) : deft_abs(w);
    default: return deft_imag(deft_where(deft_ne(z, w), z, deft_conj(w)));
    }
}

static void do_complex(run *r, const ins *i)
{
    const var *const a = get(r, i->a), *const b = get(r, i->b);
    if (!a || !b) return;
    const deft_shape s = deft_shape_get(a->t), sb = deft_shape_get(b->t);
    const deft_dtype t = i->p[2] & 1 ? DEFT_F32 : DEFT_F64;
    if (!fits_into(&sb, &s)) return;
    deft_tensor *const re = deft_cast(a->t, t), *const im = deft_cast(b->t, t);
    say(r, "t%u = through_complex[%u](%s t%u, t%u);", i->dst % VARS, i->p[0] % 12u,
        deft_dtype_name(t), i->a % VARS, i->b % VARS);
    deft_tensor *const z = deft_complex(re, im), *const w = deft_complex(deft_neg(re), re);
    set(r, i->dst, through_complex(i, z, w, s.rank), NULL);
}

static void do_make(run *r, const ins *i)
{
    const deft_shape s = shape_from(r, i->p);
    const unsigned d = i->dst % VARS;
    const deft_dtype f = i->p[2] & 1 ? DEFT_F32 : DEFT_F64;
    if (i->kind == K_RANDOM) {
        if (i->p[3] % 3 == 0) {
            say(r, "t%u = deft_uniform(cx, &rng, %s, %s, -1, %.9g);", d, shape_text(&s),
                deft_dtype_name(f), number(r, i));
            set(r, i->dst, deft_uniform(r->cx, &r->rng, s, f, -1, number(r, i)), NULL);
        } else if (i->p[3] % 3 == 1) {
            say(r, "t%u = deft_normal(cx, &rng, %s, %s, %.9g, 2);", d, shape_text(&s),
                deft_dtype_name(f), number(r, i));
            set(r, i->dst, deft_normal(r->cx, &r->rng, s, f, number(r, i), 2), NULL);
        } else {
            static const deft_dtype t[] = {
                DEFT_U8, DEFT_I32, DEFT_I64, DEFT_I8, DEFT_U16, DEFT_U64
            };
            say(r, "t%u = deft_randint(cx, &rng, %s, %s, 0, 100);", d, shape_text(&s),
                deft_dtype_name(t[i->p[2] % LEN(t)]));
            set(r, i->dst, deft_randint(r->cx, &r->rng, s, t[i->p[2] % LEN(t)], 0, 100), NULL);
        }
    } else if (i->kind == K_FULL) {
        const deft_dtype t = (deft_dtype)(i->p[2] % DF_N_RECORDED);
        const double x = is_float(t)      ? number(r, i)
                         : t == DEFT_BOOL ? i->p[3] & 1
                                          : fabs(floor(number(r, i)));
        say(r, "t%u = deft_full(cx, %s, %s, %.9g);", d, shape_text(&s), deft_dtype_name(t), x);
        set(r, i->dst, deft_full(r->cx, s, t, x), NULL);
    } else if (i->p[3] & 1 && s.rank) {
        say(r, "t%u = deft_iota(cx, %s, %u);", d, shape_text(&s), i->p[2] % s.rank);
        set(r, i->dst, deft_iota(r->cx, s, (int)(i->p[2] % s.rank)), NULL);
    } else {
        const int64_t n = extent(r, i->p[1]);
        say(r, "t%u = deft_arange(cx, %.9g, %.9g + %lld, 1, %s);", d, number(r, i), number(r, i),
            (long long)n, deft_dtype_name(f));
        set(r, i->dst, deft_arange(r->cx, number(r, i), number(r, i) + (double)n, 1, f), NULL);
    }
}

/* ---- assigns ---- */

static bool
    no_places; /* --no-places: nothing is written through views, to look past faults there */

/* Whether the view still shows a place that may be written: the library calls the rest a mistake.
 */
static bool writable(const run *r, const var *v)
{
    if (!v->root_gen) return true;
    if (no_places) return false;
    if (v->epoch != r->epoch || v->root_ver != r->ver[v->root_gen]) return false;
    if (v->parent_gen != v->root_gen && v->parent_ver != r->ver[v->parent_gen]) return false;
    for (size_t i = 0; i < VARS; i++)
        if (r->v[i].t && r->v[i].gen == v->root_gen) return true;
    return false; /* its root is gone */
}

static void do_assign(run *r, const ins *i)
{
    var *const a = get(r, i->a);
    const var *const b = get(r, i->b);
    if (!a || (!writable(r, a) && (no_places || i->p[4] % 64))) return;
    const deft_dtype t = deft_dtype_of(a->t);
    const deft_shape s = deft_shape_get(a->t);
    deft_tensor *src = NULL;
    deft_tensor *done;
    if (i->kind == K_ASSIGN && b) {
        const deft_shape sb = deft_shape_get(b->t);
        if (fits_into(&sb, &s)) src = deft_dtype_of(b->t) == t ? b->t : deft_cast(b->t, t);
    }
    if (src) {
        say(r, "deft_assign(t%u, %st%u%s);", i->a % VARS, src == b->t ? "" : "deft_cast(",
            i->b % VARS, src == b->t ? "" : ", its dtype)");
        done = deft_assign(a->t, src);
    } else if (is_float(t)) {
        say(r, "deft_assign(t%u, %.9g);", i->a % VARS, number(r, i));
        done = deft_assign_f(a->t, number(r, i));
    } else {
        const int64_t n = t == DEFT_BOOL ? i->p[0] & 1 : whole(r, i, t);
        say(r, "deft_assign(t%u, %lld);", i->a % VARS, (long long)n);
        done = deft_assign_i(a->t, n);
    }
    if (mistake(r) || !done) return;
    r->ver[a->gen]++;
    if (a->root_gen) a->root_ver = ++r->ver[a->root_gen];
    if (r->eager) {
        check(r, deft_eval(&a->t, 1));
        for (size_t k = 0; k < VARS && a->root_gen; k++)
            if (r->v[k].t && r->v[k].gen == a->root_gen) check(r, deft_eval(&r->v[k].t, 1));
    }
}

/* ---- scopes, steps, reads ---- */

static void forget_inner(run *r, unsigned depth)
{
    for (size_t i = 0; i < VARS; i++)
        if (r->v[i].t && r->v[i].depth >= depth && !r->v[i].kept) r->v[i].t = NULL;
}

static void end_innermost(run *r, bool abort)
{
    const bool step = r->is_step[r->depth];
    const deft_scope s = r->scope[r->depth];
    const unsigned d = r->depth;
    if (step && abort) {
        say(r, "deft_step_abort(s%u);", d);
        deft_step_abort(s);
        memcpy(r->ver, r->saved_ver, sizeof r->ver);
        for (size_t i = 0; i < VARS; i++) /* kept inside: gone with the step's records */
            if (r->v[i].t && r->v[i].kept && r->v[i].depth >= d) deft_drop(&r->v[i].t);
        r->epoch++;
    } else if (step) {
        say(r, "deft_step_end(s%u);", d);
        check(r, deft_step_end(s));
        r->epoch++;
    } else {
        say(r, "deft_scope_end(s%u);", d);
        check(r, deft_scope_end(s));
        if (d == 1) r->epoch++;
    }
    if (step) r->step_depth = 0;
    r->depth--;
    forget_inner(r, d);
    log_memory(r);
}

static void do_scopes(run *r, const ins *i)
{
    switch (i->kind) {
    case K_SCOPE_BEGIN:
    case K_STEP_BEGIN: {
        const bool step = i->kind == K_STEP_BEGIN;
        if (r->depth == MAX_DEPTH || (step && r->step_depth)) return;
        r->depth++;
        r->is_step[r->depth] = step;
        if (step) {
            r->epoch++; /* views taken before are not written to inside */
            r->step_depth = r->depth;
            memcpy(r->saved_ver, r->ver, sizeof r->ver);
        }
        say(r, "deft_scope s%u = deft_%s_begin(cx);", r->depth, step ? "step" : "scope");
        r->scope[r->depth] = step ? deft_step_begin(r->cx) : deft_scope_begin(r->cx);
        return;
    }
    case K_SCOPE_END:
        if (r->depth && !r->is_step[r->depth]) end_innermost(r, false);
        return;
    case K_STEP_END:
    case K_STEP_ABORT:
        if (!r->step_depth) return;
        while (r->depth > r->step_depth) end_innermost(r, false);
        end_innermost(r, i->kind == K_STEP_ABORT);
        return;
    case K_SCOPE_RETURN: {
        const var *const a = get(r, i->a);
        if (!a || !r->depth || r->is_step[r->depth] || a->kept || a->depth != r->depth) return;
        say(r, "t%u = deft_scope_return(s%u, t%u);", i->dst % VARS, r->depth, i->a % VARS);
        deft_tensor *const t = deft_scope_return(r->scope[r->depth], a->t);
        forget_inner(r, r->depth--);
        set(r, i->dst, t, NULL);
        if (t && r->v[i->dst % VARS].t == t)
            r->v[i->dst % VARS].epoch = UINT32_MAX; /* no place to write */
        return;
    }
    default: return;
    }
}

static void do_acts(run *r, const ins *i)
{
    var *const a = get(r, i->a);
    if (!a) return;
    switch (i->kind) {
    case K_READ:
        say(r, "deft_read(t%u, ..);", i->a % VARS);
        log_value(r, a->t);
        return;
    case K_EVAL: {
        deft_tensor *list[3];
        size_t n = 0;
        list[n++] = a->t;
        if (get(r, i->b)) list[n++] = get(r, i->b)->t;
        if (get(r, i->c)) list[n++] = get(r, i->c)->t;
        say(r, "deft_eval({t%u, t%u, t%u}, %zu);", i->a % VARS, i->b % VARS, i->c % VARS, n);
        check(r, deft_eval(list, n));
        return;
    }
    case K_KEEP:
        if (a->kept) return;
        say(r, "deft_keep(t%u);", i->a % VARS);
        a->kept = deft_keep(a->t) != NULL;
        return;
    case K_DROP:
        if (!a->kept) return;
        say(r, "deft_drop(&t%u);", i->a % VARS);
        deft_drop(&a->t);
        return;
    default: return;
    }
}

static void step(run *r, const ins *i)
{
    r->at_root = r->at_root || (r->depth == 0 && i->kind != K_SCOPE_BEGIN);
    switch ((kind)i->kind) {
    case K_INPUT: do_input(r, i, false); break;
    case K_MUT: do_input(r, i, true); break;
    case K_UNARY: do_unary(r, i); break;
    case K_BINARY:
    case K_NUMBER:
    case K_LEFT_NUMBER: do_binary(r, i); break;
    case K_WHERE: do_where(r, i); break;
    case K_CAST:
    case K_CLAMP: do_simple(r, i); break;
    case K_LERP: do_lerp(r, i); break;
    case K_REDUCE:
    case K_VAR: do_reduce(r, i); break;
    case K_CUMSUM:
    case K_SORT:
    case K_FOUND:
    case K_SOFTMAX:
    case K_LAYER_NORM: do_rows(r, i); break;
    case K_SLICE: do_slice(r, i); break;
    case K_AT:
    case K_FLIP:
    case K_RESHAPE:
    case K_PERMUTE:
    case K_EXPAND:
    case K_UNSQUEEZE:
    case K_SQUEEZE:
    case K_DIAGONAL: do_view(r, i); break;
    case K_CONCAT:
    case K_STACK:
    case K_PAD:
    case K_ROLL:
    case K_TRI: do_join(r, i); break;
    case K_TAKE:
    case K_GATHER:
    case K_SCATTER:
    case K_ONE_HOT: do_index(r, i); break;
    case K_MATMUL: do_matmul(r, i); break;
    case K_CONTRACT: do_contract(r, i); break;
    case K_PLACES: do_places(r, i); break;
    case K_ASSOCIATE: do_associate(r, i); break;
    case K_COMPLEX: do_complex(r, i); break;
    case K_RANDOM:
    case K_SEQUENCE:
    case K_FULL: do_make(r, i); break;
    case K_ASSIGN:
    case K_ASSIGN_NUMBER: do_assign(r, i); break;
    case K_SCOPE_BEGIN:
    case K_SCOPE_END:
    case K_SCOPE_RETURN:
    case K_STEP_BEGIN:
    case K_STEP_END:
    case K_STEP_ABORT: do_scopes(r, i); break;
    case K_READ:
    case K_EVAL:
    case K_KEEP:
    case K_DROP: do_acts(r, i); break;
    case N_KINDS: break;
    }
    (void)mistake(r);
}

/* With DEFT_SHOW set: the trace and the plan of the last unit of the first repetition. */
static void show_plan(const run *r)
{
    static char buf[200000];
    if (!getenv("DEFT_SHOW") || r->rep || r->eager) return;
    (void)deft_show(r->cx, "trace", buf, sizeof buf);
    fprintf(stderr, "---- trace\n%s", buf);
    (void)deft_show(r->cx, "plan", buf, sizeof buf);
    fprintf(stderr, "---- plan\n%s", buf);
}

/* Everything still alive, as one unit, then closes what is open. */
static void finish_rep(run *r)
{
    deft_tensor *list[VARS];
    size_t n = 0;
    r->pc = MAX_INS;
    if (r->pr->seed & 1 && r->step_depth) {
        while (r->depth > r->step_depth) end_innermost(r, false);
        end_innermost(r, false);
    }
    for (size_t i = 0; i < VARS; i++)
        if (r->v[i].t) list[n++] = r->v[i].t;
    if (n) {
        say(r, "deft_eval(all %zu, in order); /* and read all */", n);
        check(r, deft_eval(list, n));
        show_plan(r);
    }
    for (size_t i = 0; i < VARS; i++)
        if (r->v[i].t) {
            r->pc = MAX_INS + i;
            log_value(r, r->v[i].t);
        }
    while (r->depth) end_innermost(r, false);
    for (size_t i = 0; i < VARS; i++) {
        if (r->v[i].t && r->v[i].kept) {
            r->pc = MAX_INS + VARS + i;
            log_value(r, r->v[i].t);
            deft_drop(&r->v[i].t);
        }
        r->v[i] = (var){ 0 };
    }
    log_memory(r);
}

static void begin_rep(run *r, int rep)
{
    r->rep = rep;
    if (getenv("DEFT_LOG")) fprintf(stderr, "repetition %d\n", rep);
    r->rng = (deft_rng){ .seed = r->pr->seed, .next = (uint64_t)rep * 1000 };
    say(r, "/* repetition %d: extents %lld %lld %lld %lld */", rep, (long long)extent(r, 0),
        (long long)extent(r, 1), (long long)extent(r, 2), (long long)extent(r, 3));
}

/* Half of the programs run inside a scope. */
static void open_outer(run *r)
{
    static const ins begin = { .kind = K_SCOPE_BEGIN };
    if (r->pr->seed & 2) step(r, &begin);
}

static void free_memory(run *r)
{
    for (size_t i = 0; i < r->n_mut; i++) free(r->mut[i].data);
    r->n_mut = 0;
}

static char doing[200];

static long n_replanned, n_second_runs, n_retreats;

/* Whether slices that were one place are two now, bounds that were equal are not, or slices that
 * overlapped have a gap between them, or the reverse: that may take another plan. */
static bool places_parted(deft_ctx *cx)
{
    static char text[1 << 16];
    (void)deft_explain(cx, text, sizeof text);
    const bool is_gap = strstr(text, "at_most: ") || strstr(text, "at_least: ");
    return strstr(text, "same_place") || strstr(text, "same_bound") ||
           (is_gap && strstr(text, " start["));
}

/* The log of one program on one path. The caller frees it. */
static void execute(run *r, const program *pr, const oracle_path *p, bool eager, int reps,
                    FILE *text)
{
    memset(r, 0, sizeof *r);
    r->pr = pr;
    r->eager = eager;
    r->cx = oracle_context(p, NULL);
    r->text = text;
    uint64_t built[REPS + 1] = { 0 };
    for (int rep = 0; rep < reps && !r->failed; rep++) {
        begin_rep(r, rep);
        open_outer(r);
        for (r->pc = 0; r->pc < pr->n && !r->failed; r->pc++) step(r, &pr->at[r->pc]);
        finish_rep(r);
        deft_stats st;
        deft_stats_read(r->cx, &st, sizeof st);
        built[rep + 1] = st.plans_built;
        r->retreated = r->retreated || st.cuts_unfused > 0;
        /* Wrapped memory is the caller's until the cut; nothing is pending now. */
        if (r->n_mut) {
            deft_ctx_destroy(&r->cx);
            free_memory(r);
            r->cx = oracle_context(p, NULL);
            built[rep + 1] = 0;
        } else if (rep == 1) {
            /* A number may fit its dtype in one repetition alone: then the other lacks a call. */
            r->replanned = !r->at_root && built[2] != built[1] && !places_parted(r->cx) &&
                           r->n_mistakes[0] == r->n_mistakes[1];
            n_second_runs += !r->at_root;
            n_replanned += r->replanned;
        }
    }
    deft_ctx_destroy(&r->cx);
    free_memory(r);
}

/* ---- generating ---- */

typedef struct gen {
    uint64_t state;
    program *pr;
    run *r; /* the reference's first repetition, executed as the program grows: it knows the shapes
             */
} gen;

static unsigned pick(gen *g, unsigned n)
{
    return (unsigned)(oracle_next(&g->state) >> 33) % n;
}

static void emit(gen *g, ins i)
{
    if (g->pr->n == MAX_INS || g->r->failed) return;
    g->r->pc = g->pr->n;
    g->pr->at[g->pr->n++] = i;
    step(g->r, &g->pr->at[g->pr->n - 1]);
}

static uint8_t live(gen *g)
{
    for (unsigned tries = 0; tries < 60; tries++) {
        const unsigned i = pick(g, VARS);
        if (g->r->v[i].t) return (uint8_t)i;
    }
    return 0;
}

/* A live variable whose shape meets a's; a itself now and then. */
static uint8_t partner(gen *g, uint8_t a)
{
    if (!g->r->v[a].t || pick(g, 10) == 0) return a;
    const deft_shape sa = deft_shape_get(g->r->v[a].t);
    deft_shape out;
    for (unsigned tries = 0; tries < 30; tries++) {
        const uint8_t b = live(g);
        if (!g->r->v[b].t) continue;
        const deft_shape sb = deft_shape_get(g->r->v[b].t);
        if (broadcasts(&sa, &sb, &out)) return b;
    }
    return a;
}

static uint8_t fresh(gen *g)
{
    for (unsigned i = 0; i < VARS; i++) {
        const unsigned k = (pick(g, VARS) + i) % VARS;
        if (!g->r->v[k].t) return (uint8_t)k;
    }
    return (uint8_t)pick(g, VARS);
}

static ins basic(gen *g, kind k)
{
    static const float numbers[] = { 0.5f, 2, -1, 3, 1.25f, -0.75f, 0.1f, 1, 0, 7 };
    ins i = { .kind = (uint8_t)k, .num = numbers[pick(g, LEN(numbers))] };
    i.dst = fresh(g);
    i.a = live(g);
    i.b = partner(g, i.a);
    i.c = partner(g, i.a);
    for (size_t n = 0; n < LEN(i.p); n++) i.p[n] = (uint8_t)pick(g, 256);
    return i;
}

static uint8_t make(gen *g, kind k, uint8_t a, uint8_t b)
{
    ins i = basic(g, k);
    i.a = a;
    i.b = b;
    emit(g, i);
    return i.dst;
}

static unsigned index_of(const char *name)
{
    for (unsigned i = 0; i < LEN(binary_ops); i++)
        if (!strcmp(binary_ops[i].name, name)) return i;
    for (unsigned i = 0; i < LEN(unary_ops); i++)
        if (!strcmp(unary_ops[i].name, name)) return i;
    return 0;
}

static uint8_t binary(gen *g, const char *name, uint8_t a, uint8_t b)
{
    ins i = basic(g, K_BINARY);
    i.a = a;
    i.b = b;
    i.p[0] = (uint8_t)index_of(name);
    emit(g, i);
    return i.dst;
}

static uint8_t reduce(gen *g, uint8_t a, unsigned op, unsigned axis, bool keep)
{
    ins i = basic(g, K_REDUCE);
    i.a = a;
    i.p[0] = (uint8_t)op;
    i.p[1] = (uint8_t)(8u << axis);
    if (i.p[1] % 5 == 0) i.p[1] |= 1;
    i.p[2] = keep;
    emit(g, i);
    return i.dst;
}

static uint8_t input(gen *g, unsigned rank, deft_dtype t)
{
    ins i = basic(g, K_INPUT);
    i.p[0] = (uint8_t)rank;
    i.p[2] = (uint8_t)t;
    i.p[3] = 0;
    emit(g, i);
    return i.dst;
}

/* A slice of a with the bounds of the latest instruction, a slice; of half of them one number
 * differs. */
static uint8_t slice_again(gen *g, uint8_t a)
{
    ins i = basic(g, K_SLICE);
    i.a = a;
    if (g->pr->n) memcpy(i.p, g->pr->at[g->pr->n - 1].p, 4);
    if (pick(g, 2)) {
        const unsigned which = pick(g, 2);
        i.p[which] ^= (uint8_t)(8u << pick(g, 3));
    }
    emit(g, i);
    return i.dst;
}

/* A parameter of K_SLICE for a range with step 1 that begins at `start`, below 15. */
static uint8_t range_from(unsigned start)
{
    uint8_t p = (uint8_t)(8 * start);
    while (p % 7 > 2) p++; /* the first three steps are 1 */
    return p;
}

/* The rows of a from `row` on, each from element `lane` on. a has rank 2 or 3. */
static uint8_t rows_from(gen *g, uint8_t a, unsigned rank, unsigned row, unsigned lane)
{
    ins i = basic(g, K_SLICE);
    i.a = a;
    i.p[0] = 128;
    i.p[rank - 2] = range_from(row);
    i.p[rank - 1] = range_from(lane);
    i.p[4] = 0;
    emit(g, i);
    return i.dst;
}

/* What fusers get wrong. No call has two arguments that draw: their order is the compiler's. */
static void pattern(gen *g)
{
    uint8_t x = live(g), y, z, s;
    unsigned rank, axis, op;
    bool keeps;
    deft_dtype t;
    switch (pick(g, 16)) {
    case 0: /* a diamond */
        y = make(g, K_UNARY, x, x);
        s = make(g, K_UNARY, y, y);
        z = binary(g, "mul", make(g, K_NUMBER, y, y), s);
        binary(g, "add", z, y);
        break;
    case 1: /* a reduction of a broadcast */
        x = input(g, 2, DEFT_F32);
        y = reduce(g, x, 0, 0, true);
        s = reduce(g, x, 0, 1, true);
        keeps = pick(g, 2);
        axis = pick(g, 2);
        op = pick(g, 4);
        reduce(g, binary(g, "sub", y, s), op, axis, keeps);
        break;
    case 2: /* a view of a view of something pending */
        y = make(g, K_NUMBER, x, x);
        z = make(g, K_SLICE, y, y);
        s = make(g, pick(g, 2) ? K_PERMUTE : K_FLIP, z, z);
        make(g, K_SLICE, s, s);
        binary(g, "add", s, s);
        break;
    case 3: /* a chain of updates through views, reads of the root between */
        for (unsigned n = 2 + pick(g, 4); n--;) {
            z = make(g, pick(g, 3) ? K_SLICE : K_AT, x, x);
            if (pick(g, 2)) make(g, K_NUMBER, z, z);
            s = partner(g, z);
            make(g, pick(g, 2) ? K_ASSIGN : K_ASSIGN_NUMBER, z, s);
            if (pick(g, 3) == 0) binary(g, "add", x, x);
        }
        break;
    case 4: /* one tensor as both operands */
        binary(g, "sub", x, x);
        make(g, K_MATMUL, x, x);
        break;
    case 5: /* reduce, broadcast, reduce over the other axis */
        t = pick(g, 2) ? DEFT_F32 : DEFT_F64;
        x = input(g, 2 + pick(g, 2), t);
        y = binary(g, "sub", x, reduce(g, x, pick(g, 6), 0, true));
        z = reduce(g, binary(g, "mul", y, y), 0, 1, true);
        binary(g, "div", y, z);
        break;
    case 6: /* an intermediate is read before the end */
        y = make(g, K_UNARY, x, x);
        z = make(g, K_NUMBER, y, y);
        make(g, K_READ, y, y);
        binary(g, "add", z, y);
        break;
    case 7: /* two results of one domain, a path between them through a reduction */
        y = make(g, K_NUMBER, x, x);
        axis = pick(g, 2);
        z = binary(g, "sub", y, reduce(g, y, pick(g, 4), axis, true));
        make(g, K_EVAL, y, z);
        break;
    case 8: /* exchange */
        x = input(g, 1 + pick(g, 2), DEFT_F32);
        y = make(g, K_NUMBER, x, x);
        s = make(g, K_NUMBER, x, x);
        make(g, K_ASSIGN, x, y);
        make(g, K_ASSIGN, y, s);
        break;
    case 9: /* shifted slices of one tensor, written to its interior */
        x = input(g, 2, DEFT_F32);
        y = make(g, K_SLICE, x, x);
        z = make(g, K_SLICE, x, x);
        s = binary(g, "add", y, z);
        make(g, K_ASSIGN, y, s);
        break;
    case 10: /* a step with updates */
        if (g->r->step_depth || g->r->depth == MAX_DEPTH) break;
        x = live(g);
        make(g, K_STEP_BEGIN, x, x);
        for (unsigned n = 1 + pick(g, 3); n--;) {
            y = live(g);
            make(g, K_ASSIGN, y, partner(g, y));
            z = make(g, K_NUMBER, y, y);
            make(g, K_ASSIGN, y, z);
        }
        make(g, pick(g, 4) ? K_STEP_END : K_STEP_ABORT, x, x);
        break;
    case 11: /* row kernels: several reductions of one row */
        x = input(g, 2, DEFT_F32);
        y = reduce(g, x, 0, 1, true);
        z = reduce(g, binary(g, "mul", x, x), 0, 1, true);
        s = binary(g, "add", binary(g, "mul", x, y), z);
        reduce(g, s, 3, 1, false);
        break;
    case 12: /* one place by two slices, read and written */
        x = input(g, 1 + pick(g, 2), DEFT_F32);
        y = make(g, K_SLICE, x, x);
        z = slice_again(g, x);
        if (pick(g, 2)) z = make(g, K_NUMBER, z, z);
        s = binary(g, "sub", z, slice_again(g, x));
        make(g, K_ASSIGN, y, s);
        binary(g, "add", y, x);
        break;
    case 13: /* one place by slices of slices */
        y = make(g, K_SLICE, x, x);
        z = slice_again(g, x);
        s = make(g, K_SLICE, y, y);
        z = slice_again(g, z);
        if (pick(g, 2)) make(g, K_ASSIGN, s, make(g, K_NUMBER, z, z));
        reduce(g, binary(g, "mul", s, z), 0, 0, true);
        break;
    case 14: /* a stencil: rows of one tensor, one or two apart */
        rank = 2 + pick(g, 2);
        x = input(g, rank, pick(g, 3) ? DEFT_F32 : DEFT_F64);
        y = rows_from(g, x, rank, 0, pick(g, 2));
        for (unsigned n = 1; n < 6; n++) {
            z = rows_from(g, x, rank, n % 3, pick(g, 2));
            y = binary(g, n % 2 ? "mul" : "sub", y, z);
        }
        break;
    default: /* a cumulative sum between maps */
        y = make(g, K_NUMBER, x, x);
        make(g, K_UNARY, make(g, K_CUMSUM, y, y), y);
        break;
    }
}

static kind random_kind(gen *g)
{
    static const uint8_t weight[N_KINDS] = {
        [K_INPUT] = 6,         [K_MUT] = 2,         [K_UNARY] = 14,     [K_BINARY] = 22,
        [K_NUMBER] = 10,       [K_LEFT_NUMBER] = 3, [K_WHERE] = 4,      [K_CAST] = 4,
        [K_CLAMP] = 2,         [K_LERP] = 2,        [K_REDUCE] = 12,    [K_VAR] = 2,
        [K_SORT] = 2,          [K_FOUND] = 2,       [K_CUMSUM] = 2,     [K_SOFTMAX] = 3,
        [K_LAYER_NORM] = 2,    [K_SLICE] = 9,       [K_AT] = 3,         [K_FLIP] = 2,
        [K_RESHAPE] = 4,       [K_PERMUTE] = 4,     [K_EXPAND] = 4,     [K_UNSQUEEZE] = 2,
        [K_SQUEEZE] = 1,       [K_DIAGONAL] = 2,    [K_CONCAT] = 4,     [K_STACK] = 2,
        [K_PAD] = 3,           [K_ROLL] = 2,        [K_TRI] = 2,        [K_TAKE] = 3,
        [K_GATHER] = 2,        [K_SCATTER] = 3,     [K_ONE_HOT] = 1,    [K_MATMUL] = 4,
        [K_CONTRACT] = 3,      [K_PLACES] = 4,      [K_ASSOCIATE] = 2,  [K_COMPLEX] = 4,
        [K_RANDOM] = 3,        [K_SEQUENCE] = 2,    [K_FULL] = 2,       [K_ASSIGN] = 8,
        [K_ASSIGN_NUMBER] = 3, [K_READ] = 3,        [K_EVAL] = 2,       [K_KEEP] = 3,
        [K_DROP] = 1,          [K_SCOPE_BEGIN] = 2, [K_SCOPE_END] = 2,  [K_SCOPE_RETURN] = 1,
        [K_STEP_BEGIN] = 2,    [K_STEP_END] = 2,    [K_STEP_ABORT] = 1,
    };
    unsigned all = 0;
    for (size_t i = 0; i < N_KINDS; i++) all += weight[i];
    unsigned at = pick(g, all);
    for (size_t i = 0; i < N_KINDS; i++) {
        if (at < weight[i]) return (kind)i;
        at -= weight[i];
    }
    return K_UNARY;
}

/* Makes the program of a seed; r is left with the reference's log of its first repetition. */
static void generate(program *pr, uint64_t seed, run *r, const oracle_path *reference, FILE *text)
{
    static const int64_t extents[] = { 1, 2, 3, 5, 8, 16, 17, 33, 0, 5, 8, 0 };
    memset(pr, 0, sizeof *pr);
    memset(r, 0, sizeof *r);
    pr->seed = seed;
    gen g = { .state = oracle_mix(seed, 99), .pr = pr, .r = r };
    for (size_t i = 0; i < N_EXT; i++) pr->ext[i] = extents[pick(&g, LEN(extents))];
    if (pr->ext[1] == 0) pr->ext[1] = 4;
    r->pr = pr;
    r->eager = true;
    r->cx = oracle_context(reference, NULL);
    r->text = text;
    begin_rep(r, 0);
    open_outer(r);
    const size_t length = 5 + pick(&g, 56);
    for (unsigned i = 1 + pick(&g, 3); i--;) {
        const deft_dtype t = pick(&g, 3) ? DEFT_F32 : (deft_dtype)pick(&g, DF_N_RECORDED);
        input(&g, pick(&g, 4), t);
    }
    while (pr->n < length && !r->failed) {
        if (pick(&g, 5) == 0)
            pattern(&g);
        else
            emit(&g, basic(&g, random_kind(&g)));
    }
    finish_rep(r);
    deft_ctx_destroy(&r->cx);
    free_memory(r);
}

/* ---- comparing, shrinking ---- */

#define MAX_PATHS 10
static oracle_path paths[MAX_PATHS] = {
    { .name = "interp unfused eager", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
    { .name = "interp unfused", .tier = DEFT_TIER_INTERPRET, .n_threads = 2, .no_fusion = 1 },
    { .name = "interp fused", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .log = "fusion,error" },
    { .name = "interp no_simplify",
      .tier = DEFT_TIER_INTERPRET,
      .log = "fusion,error",
      .n_threads = 3,
      .no_simplify = 1 },
    { .name = "llvm O2", .tier = DEFT_TIER_FULL, .n_threads = 1 },
    { .name = "llvm variants",
      .tier = DEFT_TIER_FULL,
      .n_threads = 2,
      .variant_launches = 1,
      .streams = true },
    { .name = "llvm O0", .tier = DEFT_TIER_QUICK, .n_threads = 2 },
    { .name = "llvm O2 16 bytes",
      .tier = DEFT_TIER_FULL,
      .n_threads = 3,
      .max_vector_bytes = 16,
      .streams = true },
    { .name = "llvm O2 32 bytes",
      .tier = DEFT_TIER_FULL,
      .n_threads = 2,
      .max_vector_bytes = 32,
      .streams = true },
    { .name = "llvm O2 no_simplify", .tier = DEFT_TIER_FULL, .n_threads = 2, .no_simplify = 1 },
};
static size_t n_paths;

static bool differ(const run *a, const run *b)
{
    return a->n_log != b->n_log || (a->n_log && memcmp(a->log, b->log, a->n_log) != 0);
}

static void explain(const run *want, const run *got)
{
    size_t at = 0;
    while (at < want->n_log && at < got->n_log) {
        entry e, f;
        memcpy(&e, want->log + at, sizeof e);
        memcpy(&f, got->log + at, sizeof f);
        const bool same = !memcmp(&e, &f, sizeof e);
        if (!same || memcmp(want->log + at, got->log + at, sizeof e + e.bytes)) {
            char who[40];
            if (e.pc < MAX_INS)
                snprintf(who, sizeof who, "at instruction %u", e.pc);
            else
                snprintf(who, sizeof who, "of t%u at the end", (e.pc - MAX_INS) % VARS);
            if (!same) {
                printf("  repetition %u, %s: entries differ: kind %u %s (status %lld), not kind %u "
                       "%s (status %lld)\n",
                       e.rep, who, f.what, deft_dtype_name((deft_dtype)f.dtype),
                       (long long)f.dim[0], e.what, deft_dtype_name((deft_dtype)e.dtype),
                       (long long)e.dim[0]);
                return;
            }
            const deft_dtype t = (deft_dtype)e.dtype;
            const size_t n = e.bytes / deft_dtype_size(t);
            const size_t i =
                oracle_difference(t, want->log + at + sizeof e, got->log + at + sizeof e, n);
            char a[64], b[64];
            const deft_shape s = deft_shape_of(e.rank, e.dim);
            printf("  repetition %u, %s %s: %s%s element %zu is %s, reference %s\n", e.rep,
                   e.what == E_MEMORY ? "memory" : "value", who, deft_dtype_name(t), shape_text(&s),
                   i, oracle_text(t, got->log + at + sizeof e, i, a, sizeof a),
                   oracle_text(t, want->log + at + sizeof e, i, b, sizeof b));
            return;
        }
        at += sizeof e + e.bytes;
    }
    if (got->n_log == want->n_log)
        printf("  all values are equal\n"); /* it failed by its plans */
    else
        printf("  one log is longer: %zu and %zu bytes\n", got->n_log, want->n_log);
}

/* With --dump: every value of the first repetition, both sides. */
static bool dumping;
static void dump(const char *name, const run *r)
{
    for (size_t at = 0; at < r->n_log;) {
        entry e;
        memcpy(&e, r->log + at, sizeof e);
        if (e.rep == 0) {
            const deft_shape s = deft_shape_of(e.rank, e.dim);
            printf("  %s: instruction %u kind %u %s%s:", name, e.pc, e.what,
                   deft_dtype_name((deft_dtype)e.dtype), shape_text(&s));
            char text[64];
            for (size_t i = 0;
                 e.what != E_STATUS && i < e.bytes / deft_dtype_size((deft_dtype)e.dtype) && i < 16;
                 i++)
                printf(" %s", oracle_text((deft_dtype)e.dtype, r->log + at + sizeof e, i, text,
                                          sizeof text));
            printf("\n");
        }
        at += sizeof e + e.bytes;
    }
}

/* Whether the program differs between the reference and path p. */
static bool fails_here(const program *pr, const oracle_path *p, FILE *text, bool explaining)
{
    static run a, b;
    execute(&a, pr, &paths[0], true, REPS, text);
    execute(&b, pr, p, p == &paths[0], REPS, NULL);
    const bool yes = differ(&a, &b) || b.replanned || b.retreated;
    if (explaining && b.replanned) printf("  the second repetition built plans anew\n");
    if (explaining && b.retreated) printf("  a plan was not fused at all\n");
    if (explaining) explain(&a, &b);
    if (explaining && dumping) {
        dump("reference", &a);
        dump(p->name, &b);
    }
    free(a.log);
    free(b.log);
    return yes;
}

/* With --fork each trial is a process, so that programs that crash are shrunk as well. Only for
 * paths without threads: others do not outlive fork(). */
static bool forking;

static bool fails(const program *pr, const oracle_path *p, FILE *text, bool explaining)
{
    if (!forking || p->tier != DEFT_TIER_INTERPRET) return fails_here(pr, p, text, explaining);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGILL, SIG_DFL);
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        const bool yes = fails_here(pr, p, text, explaining);
        fflush(stdout);
        _exit(yes);
    }
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0) {
    }
    if (explaining && WIFSIGNALED(status)) printf("  ended by signal %d\n", WTERMSIG(status));
    return child > 0 && (WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
}

static void shrink(program *pr, const oracle_path *p)
{
    const double until = oracle_now() + 20;
    for (size_t chunk = pr->n / 2; chunk >= 1; chunk = chunk > 1 ? chunk / 2 : 0) {
        bool any = true;
        while (any) {
            any = false;
            for (size_t at = pr->n; at-- > 0;) {
                if (at + chunk > pr->n || oracle_now() > until) continue;
                program smaller = *pr;
                memmove(smaller.at + at, smaller.at + at + chunk,
                        (pr->n - at - chunk) * sizeof *pr->at);
                smaller.n -= chunk;
                if (!fails(&smaller, p, NULL, false)) continue;
                *pr = smaller;
                any = chunk > 1;
            }
        }
    }
}

static void report(const program *pr, const oracle_path *p, bool no_shrink)
{
    program small = *pr;
    printf("FAIL seed %llu on path %s (%zu instructions)\n", (unsigned long long)pr->seed, p->name,
           pr->n);
    if (!no_shrink) shrink(&small, p);
    (void)fails(&small, p, stdout, true);
    fflush(stdout);
}

static void crashed(int sig)
{
    static const char text[] = "crashed in: ";
    (void)!write(2, text, sizeof text - 1);
    (void)!write(2, doing, strlen(doing));
    (void)!write(2, "\n", 1);
    signal(sig, SIG_DFL);
    raise(sig);
}

/* Compiling a program takes a hundred times as long as all else. So one of sixteen is compiled, and
 * the compiled paths take turns. */
static size_t compiled_path(long k, size_t first_llvm)
{
    enum { EVERY = 16 };
    const size_t n = n_paths - first_llvm;
    return n == 0 || k % EVERY != EVERY - 1 ? n_paths : first_llvm + (size_t)(k / EVERY) % n;
}

/* Adds the elements that were read. */
static void add_bits(const run *r)
{
    for (size_t at = 0; at < r->n_log;) {
        entry e;
        memcpy(&e, r->log + at, sizeof e);
        const deft_dtype t = (deft_dtype)e.dtype;
        if (e.what != E_STATUS)
            test_bits_add(t, r->log + at + sizeof e, e.bytes / deft_dtype_size(t));
        at += sizeof e + e.bytes;
    }
}

int main(int argc, char **argv)
{
    long count = 12000;
    uint64_t seed = 1;
    bool all = false, print = false, verbose = false, no_shrink = false;
    int plain = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--full"))
            count = 40000, all = true;
        else if (!strcmp(argv[i], "--quick"))
            count = 2000;
        else if (!strcmp(argv[i], "--all-paths"))
            all = true;
        else if (!strcmp(argv[i], "--no-places"))
            no_places = true;
        else if (!strcmp(argv[i], "--fork"))
            forking = true, setvbuf(stdout, NULL, _IOLBF, 0);
        else if (!strcmp(argv[i], "--dump"))
            dumping = true;
        else if (!strcmp(argv[i], "--print"))
            print = true;
        else if (!strcmp(argv[i], "--no-shrink"))
            no_shrink = true;
        else if (!strcmp(argv[i], "-v"))
            verbose = true;
        else if (plain++ == 0)
            count = strtol(argv[i], NULL, 10);
        else
            seed = strtoull(argv[i], NULL, 10);
    }
    if (print) setvbuf(stdout, NULL, _IONBF, 0);
    signal(SIGSEGV, crashed);
    signal(SIGBUS, crashed);
    signal(SIGABRT, crashed);
    signal(SIGILL, crashed);
    signal(SIGFPE, crashed);
    const double t0 = oracle_now();
    n_paths = oracle_open(paths, MAX_PATHS);
    size_t first_llvm = 0;
    while (first_llvm < n_paths && paths[first_llvm].tier == DEFT_TIER_INTERPRET) first_llvm++;
    long failures = 0, instructions = 0, errors = 0;
    double seconds[MAX_PATHS] = { 0 };
    static run want, got;
    static program pr;
    const long asked = count, least = (long)oracle_least(20);
    for (count = 0; count < asked && (count < least || test_time_left(1)); count++) {
        const long k = count;
        snprintf(doing, sizeof doing, "program of seed %llu, generating",
                 (unsigned long long)(seed + (uint64_t)k));
        plan_rules_begin(paths, n_paths, seed + (uint64_t)k);
        generate(&pr, seed + (uint64_t)k, &want, &paths[0], print ? stdout : NULL);
        free(want.log);
        double at = oracle_cpu();
        execute(&want, &pr, &paths[0], true, REPS, print ? stdout : NULL);
        add_bits(&want);
        if (k % 50 == 49) test_bits_next();
        seconds[0] += oracle_cpu() - at;
        instructions += (long)pr.n;
        errors += want.failed;
        bool bad = want.failed;
        if (bad) report(&pr, &paths[0], true);
        for (size_t j = 1; j < n_paths && !bad; j++) {
            if (!all && j >= first_llvm && j != compiled_path(k, first_llvm)) continue;
            snprintf(doing, sizeof doing, "program of seed %llu on %s",
                     (unsigned long long)(seed + (uint64_t)k), paths[j].name);
            at = oracle_cpu();
            if (forking && paths[j].tier == DEFT_TIER_INTERPRET) {
                bad = fails(&pr, &paths[j], NULL, false);
            } else {
                execute(&got, &pr, &paths[j], false, REPS, NULL);
                bad = differ(&want, &got) || got.replanned || got.retreated;
                n_retreats += got.retreated;
                free(got.log);
            }
            seconds[j] += oracle_cpu() - at;
            if (bad) report(&pr, &paths[j], no_shrink);
        }
        free(want.log);
        failures += bad;
        if (verbose)
            printf("seed %llu: %zu instructions\n", (unsigned long long)(seed + (uint64_t)k), pr.n);
        if (failures >= 10) break;
    }
    printf("%ld programs, %ld instructions, %ld failures, %.1f s; %ld of %ld second runs planned "
           "anew, %ld plans not fused at all\n",
           count, instructions, failures, oracle_now() - t0, n_replanned, n_second_runs,
           n_retreats);
    for (size_t i = 0; i < n_paths; i++)
        printf("  %-22s %6.1f s processor time\n", paths[i].name, seconds[i]);
    (void)errors;
    if (!plan_rules_end(test_bits_are_asked() ? UINT64_MAX : 500)) failures++;
    failures += !test_bits_end();
    oracle_close(paths, n_paths);
    return failures ? 1 : 0;
}
