/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of one array that are written one after the other, each from others: what was just written,
 * what lies beside it, the part itself, other arrays. Parts have mostly equal extents, lie side by
 * side, overlap, are equal or empty, step by one or more. A step is recorded several times: moved,
 * drawn anew, on an array of another size, in memory of the caller's and in memory of its own;
 * parts, values and whole versions are kept or read in between, now and then a cut comes in
 * between.
 *
 * A program that reads what it has just written by the handles that it assigned must not take more
 * memory than one that reads it by new views. Now and then a handle holds the array as it was
 * before the step. Once no handle does, the program must take less than one array more than a
 * program that never had such a handle.
 *
 * All arithmetic is exact or rounded once an operation, in f64, so that loops in C say what is
 * right, bit for bit. A program draws a structure once, and for each repetition where its parts
 * lie.
 *
 *   part_programs [COUNT [SEED]] [--quick | --full]
 */
#include "../support/budget.h"
#include "../support/oracle.h"
#include "../support/plan_rules.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Programs that are run whatever time that takes, and of how many one is compiled. */
enum { LEAST = 100, COMPILED = 16 };

enum { MOST_STEP = 2, MOST = 12, READS = 3, HELD = 6, RECENT = 5, SIDE = 24, REPS = 6 };

/* How a part is given, along both axes: a range, or one index, which leaves an axis less. */
typedef struct part {
    int64_t at[2];
} part;

/* How a part that was just written is read: by a view of its own, by the handle that it was
 * assigned by, as the value that was assigned, or by a view of that handle, backwards. */
typedef enum form { BY_VIEW, BY_HANDLE, AS_VALUE, BACKWARDS, N_FORMS } form;

typedef enum from { FROM_LAST, FROM_OWN, FROM_BESIDE, FROM_ANY, FROM_OTHER, N_FROM } from;

typedef struct statement {
    uint8_t kind;        /* 0: an assignment; 1: a part is kept; 2: a cut */
    uint8_t from[READS]; /* what the value is made of */
    uint8_t op[READS];
    uint8_t n_reads;
    bool shares_handle; /* the part that is written is read through the handle that it is assigned
                           by */
    bool keeps_value;
    bool is_odd;         /* of another extent than most */
    uint8_t step[READS]; /* of what is read, along both axes; 0: as what is written */
    uint8_t form[READS]; /* FROM_LAST: see recent */
    uint8_t back[READS]; /* and of which assignment, counted back */
} statement;

typedef struct program {
    statement s[MOST];
    int n;
    int64_t extent[2], step[2];
    bool is_index[2], is_wrapped, holds_old;
    uint64_t seed;
} program;

/* One repetition: where parts lie. */
typedef struct rep {
    int64_t rows, columns;
    part to[MOST], read[MOST][READS];
} rep;

static int failures;
static int64_t n_programs, n_assigned, n_compared, n_costs;

/* ---- drawing ---- */

static int64_t below(uint64_t *state, int64_t n)
{
    return n <= 0 ? 0 : (int64_t)(oracle_next(state) % (uint64_t)n);
}

static program draw(uint64_t seed)
{
    uint64_t r = oracle_mix(seed, 11);
    program p = { .n = 2 + (int)below(&r, MOST - 1), .seed = seed };
    p.is_wrapped = below(&r, 3) > 0;
    p.holds_old = oracle_mix(seed, 12) % 3 == 0;
    const int64_t is_column = below(&r, 3); /* 2: a block */
    const bool has_steps = below(&r, 3) > 0;
    for (int x = 0; x < 2; x++) {
        p.is_index[x] = is_column != 2 && is_column == x;
        p.step[x] = below(&r, 6) || !has_steps ? 1 : 2;
        p.extent[x] = p.is_index[x] ? 1 : below(&r, 12) ? 1 + below(&r, 4) : 0;
    }
    for (int i = 0; i < p.n; i++) {
        statement *const s = &p.s[i];
        s->kind = below(&r, 9) ? 0 : (uint8_t)(1 + below(&r, 2));
        s->n_reads = (uint8_t)(1 + below(&r, READS));
        for (int k = 0; k < READS; k++) {
            s->from[k] = (uint8_t)below(&r, N_FROM);
            s->op[k] = (uint8_t)below(&r, 4);
            s->step[k] = below(&r, 8) || !has_steps ? 0 : (uint8_t)(1 + below(&r, 2));
            s->form[k] = (uint8_t)(below(&r, 2) ? BY_VIEW : 1 + below(&r, N_FORMS - 1));
            s->back[k] = (uint8_t)(below(&r, 2) ? 0 : below(&r, RECENT));
        }
        s->shares_handle = below(&r, 2);
        s->keeps_value = below(&r, 14) == 0;
        s->is_odd = below(&r, 16) == 0;
    }
    return p;
}

static int64_t extent_of(const program *p, int i, int x)
{
    return p->extent[x] + (p->s[i].is_odd && !p->is_index[x]);
}

/* A position of part i along axis x that fits. */
static int64_t fit(const program *p, const rep *q, int i, int x, int64_t at, int64_t step)
{
    const int64_t n = x ? q->columns : q->rows, e = extent_of(p, i, x);
    const int64_t last = n - (e ? (e - 1) * step + 1 : 0);
    return at < 0 ? 0 : at > last ? last : at;
}

static part draw_part(const program *p, const rep *q, int i, const part *near, uint64_t *r)
{
    part out;
    for (int x = 0; x < 2; x++) {
        const int64_t n = x ? q->columns : q->rows;
        const int64_t width = p->step[x] * (extent_of(p, i, x) ? extent_of(p, i, x) : 1);
        int64_t at = near ? near->at[x] : below(r, n);
        if (near && below(r, 2)) at += width * (below(r, 4) ? 1 : -1);
        if (near && !below(r, 10)) at += 1;
        out.at[x] = fit(p, q, i, x, at, MOST_STEP);
    }
    return out;
}

/* The first repetition draws; later ones move all, by as much along each axis, or draw again. */
static rep draw_rep(const program *p, int n, const rep *first)
{
    uint64_t r = oracle_mix(p->seed, 100 + (uint64_t)n);
    rep q = { 12 + below(&r, 3) * (n > 3),
              12 + below(&r, SIDE - 12) * (n > 2),
              { { { 0 } } },
              { { { { 0 } } } } };
    const bool moves = first && below(&r, 3);
    const int64_t by[2] = { below(&r, 3), below(&r, 3) };
    const part *last = NULL;
    for (int i = 0; i < p->n; i++) {
        if (moves)
            for (int x = 0; x < 2; x++)
                q.to[i].at[x] = fit(p, &q, i, x, first->to[i].at[x] + by[x], MOST_STEP);
        else
            q.to[i] = draw_part(p, &q, i, last && below(&r, 8) ? last : NULL, &r);
        for (int k = 0; k < p->s[i].n_reads; k++) {
            const from f = (from)p->s[i].from[k];
            part *const at = &q.read[i][k];
            if (f == FROM_OWN)
                *at = q.to[i];
            else if (f == FROM_LAST && last)
                for (int x = 0; x < 2; x++) at->at[x] = fit(p, &q, i, x, last->at[x], MOST_STEP);
            else if (moves)
                for (int x = 0; x < 2; x++)
                    at->at[x] = fit(p, &q, i, x, first->read[i][k].at[x] + by[x], MOST_STEP);
            else
                *at = draw_part(p, &q, i, f == FROM_BESIDE ? &q.to[i] : NULL, &r);
        }
        last = &q.to[i];
    }
    return q;
}

/* ---- what is right ---- */

static double apply(uint8_t op, double a, double b)
{
    switch (op) {
    case 0: return a + b;
    case 1: return a - b;
    case 2: return a * b * 0.03125;
    default: return a * 0.75 + b;
    }
}

static deft_tensor *record(uint8_t op, deft_tensor *a, deft_tensor *b)
{
    switch (op) {
    case 0: return deft_add(a, b);
    case 1: return deft_sub(a, b);
    case 2: return deft_mul(deft_mul(a, b), 0.03125);
    default: return deft_add(deft_mul(a, 0.75), b);
    }
}

typedef struct sides {
    const program *p;
    const rep *q;
    deft_tensor *x, *y;
    double *a, *b; /* what x and y are to be */
    deft_tensor *held[HELD];
    double want[HELD][SIDE * SIDE];
    int64_t size[HELD];
    int n_held;
    struct {
        deft_tensor *to, *value;
        double is[SIDE * SIDE];
        int64_t extent[2];
        part at;
        bool is_over; /* something else was written to a part of it since */
    } recent[RECENT]; /* the latest assignments, of n_assigned */
    int n_assigned;
    bool by_views; /* a recent part is read by a view of its own where that shows the same */
} sides;

/* The step of read k of statement i along axis x; k < 0: of what is written. */
static int64_t step_of(const sides *s, int i, int k, int x)
{
    const int64_t own = k < 0 ? 0 : s->p->s[i].step[k];
    return own ? own : s->p->step[x];
}

static int64_t index_of(const sides *s, int i, int k, const part *at, int64_t row, int64_t column)
{
    const int64_t r = at->at[0] + row * step_of(s, i, k, 0);
    const int64_t c = at->at[1] + column * step_of(s, i, k, 1);
    return r * s->q->columns + c;
}

static deft_tensor *view(const sides *s, deft_tensor *of, int i, int k, const part *at)
{
    deft_range range[2];
    for (int x = 0; x < 2; x++) {
        const int64_t e = extent_of(s->p, i, x), step = step_of(s, i, k, x);
        const int64_t end = at->at[x] + (e ? (e - 1) * step + 1 : 0);
        range[x] = s->p->is_index[x] ? DEFT_AT(at->at[x]) : DEFT_RS(at->at[x], end, step);
    }
    return deft_slice_n(of, 2, range);
}

static void hold(sides *s, deft_tensor *t, const double *values, int64_t n)
{
    if (s->n_held == HELD) return;
    s->held[s->n_held] = deft_keep(t);
    memcpy(s->want[s->n_held], values, (size_t)n * sizeof *values);
    s->size[s->n_held++] = n;
}

/* Element (r, c) of what statement i reads of a part that was written, where it has the same
 * extents; NULL: by a view. */
static deft_tensor *recent_of(const sides *s, int i, int k, const double **is, bool *backwards)
{
    const statement *const st = &s->p->s[i];
    const int at = s->n_assigned - 1 - st->back[k];
    if (st->from[k] != FROM_LAST || st->form[k] == BY_VIEW || at < 0) return NULL;
    for (int x = 0; x < 2; x++)
        if (extent_of(s->p, i, x) != s->recent[at % RECENT].extent[x]) return NULL;
    *is = s->recent[at % RECENT].is;
    *backwards = st->form[k] == BACKWARDS;
    if (s->by_views && !s->recent[at % RECENT].is_over && !*backwards)
        return view(s, s->x, i, -1, &s->recent[at % RECENT].at);
    if (st->form[k] == AS_VALUE) return s->recent[at % RECENT].value;
    deft_tensor *const to = s->recent[at % RECENT].to;
    const deft_range all[2] = { DEFT_FLIP, DEFT_FLIP };
    return *backwards ? deft_slice_n(to, deft_rank(to), all) : to;
}

static bool are_apart(const sides *s, int a, int b)
{
    for (int x = 0; x < 2; x++) {
        const int64_t i = s->recent[a].at.at[x], j = s->recent[b].at.at[x], step = s->p->step[x];
        if (i + (s->recent[a].extent[x] - 1) * step < j) return true;
        if (j + (s->recent[b].extent[x] - 1) * step < i) return true;
    }
    return false;
}

static void assign(sides *s, int i)
{
    const statement *const st = &s->p->s[i];
    const int64_t rows = extent_of(s->p, i, 0), columns = extent_of(s->p, i, 1);
    static double value[SIDE * SIDE];
    deft_tensor *to = st->shares_handle ? view(s, s->x, i, -1, &s->q->to[i]) : NULL, *sum = NULL;
    for (int k = 0; k < st->n_reads; k++) {
        const part *const at = &s->q->read[i][k];
        const bool is_other = st->from[k] == FROM_OTHER;
        const bool is_shared = to && st->from[k] == FROM_OWN && !st->step[k];
        const double *is = NULL;
        bool backwards = false;
        deft_tensor *const recent = recent_of(s, i, k, &is, &backwards);
        deft_tensor *const t = recent      ? recent
                               : is_shared ? to
                                           : view(s, is_other ? s->y : s->x, i, k, at);
        sum = deft_mul(k ? record(st->op[k], sum, t) : t, 0.5);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++) {
                const int64_t j = r * columns + c, j_back = rows * columns - 1 - j;
                const double v = recent ? is[backwards ? j_back : j]
                                        : (is_other ? s->b : s->a)[index_of(s, i, k, at, r, c)];
                double *const o = &value[r * columns + c];
                *o = k ? apply(st->op[k], *o, v) * 0.5 : v * 0.5;
            }
    }
    if (st->keeps_value) hold(s, sum, value, rows * columns);
    if (!to) to = view(s, s->x, i, -1, &s->q->to[i]);
    deft_assign(to, sum);
    const int at = s->n_assigned++ % RECENT;
    s->recent[at].to = to;
    s->recent[at].value = sum;
    memcpy(s->recent[at].is, value, (size_t)(rows * columns) * sizeof *value);
    s->recent[at].extent[0] = rows;
    s->recent[at].extent[1] = columns;
    s->recent[at].at = s->q->to[i];
    for (int j = 0; j < RECENT && j < s->n_assigned; j++)
        s->recent[j].is_over = j != at && (s->recent[j].is_over || !are_apart(s, j, at));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            s->a[index_of(s, i, -1, &s->q->to[i], r, c)] = value[r * columns + c];
    n_assigned++;
}

static void keep_part(sides *s, int i)
{
    static double value[SIDE * SIDE];
    const int64_t rows = extent_of(s->p, i, 0), columns = extent_of(s->p, i, 1);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            value[r * columns + c] = s->a[index_of(s, i, -1, &s->q->to[i], r, c)];
    hold(s, deft_mul(view(s, s->x, i, -1, &s->q->to[i]), 1), value, rows * columns);
}

/* ---- comparing ---- */

static bool fail(const program *p, const oracle_path *path, int turn, const char *what)
{
    if (failures++ < 10)
        printf("FAIL: program of seed %llu on %s, repetition %d: %s\n", (unsigned long long)p->seed,
               path->name, turn, what);
    return false;
}

/* Whether two arrays are equal: in strict mode bit for bit. Fast mode rounds a * 0.75 + b once
 * less; what is read from a wrong place is much farther away. */
static bool are_equal(const oracle_path *path, const double *is, const double *want, int64_t n)
{
    double scale = 1;
    if (path->numerics != DEFT_FAST)
        return oracle_difference(DEFT_F64, is, want, (size_t)n) == (size_t)n;
    for (int64_t i = 0; i < n; i++) scale = fmax(scale, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(is[i] - want[i]) <= 1e-10 * scale)) return false;
    return true;
}

static bool compare(const program *p, const oracle_path *path, int turn, deft_tensor *t,
                    const double *want, int64_t n, const char *what)
{
    static double is[SIDE * SIDE];
    char text[256];
    if (deft_read(t, DEFT_F64, is, (size_t)n * sizeof *is) != DEFT_OK) {
        snprintf(text, sizeof text, "%s: %s", what, deft_message(path->cx));
        return fail(p, path, turn, text);
    }
    n_compared += n;
    if (are_equal(path, is, want, n)) return true;
    return fail(p, path, turn, what);
}

/* Another kept handle of the value that t has now, where it lives. */
static deft_tensor *alias(deft_tensor *t)
{
    deft_device where;
    return deft_device_of(t, &where) == DEFT_OK ? deft_keep(deft_to(t, where)) : NULL;
}

static deft_tensor *array(const program *p, deft_ctx *cx, const rep *q, double *memory)
{
    const deft_shape shape = DEFT_SHAPE(q->rows, q->columns);
    const size_t bytes = (size_t)(q->rows * q->columns) * sizeof *memory;
    return deft_keep(p->is_wrapped ? deft_wrap_mut(cx, shape, DEFT_F64, memory, bytes, NULL)
                                   : deft_from(cx, shape, DEFT_F64, memory, bytes));
}

/* ---- what it costs ---- */

static bool has_steps(const program *p)
{
    bool has = p->step[0] != 1 || p->step[1] != 1;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < READS; k++) has |= p->s[i].step[k] != 0;
    return has;
}

/* Bytes of temporaries and new results of the assignments of a program, as one step. holds_old: a
 * handle holds the array as it was. */
static uint64_t bytes_of(const program *p, const oracle_path *path, bool by_views, bool holds_old)
{
    static double memory[SIDE * SIDE], a[SIDE * SIDE], b[SIDE * SIDE];
    static sides s;
    const rep q = draw_rep(p, 0, NULL);
    deft_step_memory m = { 0 };
    memset(&s, 0, sizeof s);
    s.p = p;
    s.q = &q;
    s.a = a;
    s.b = b;
    s.by_views = by_views;
    s.x = array(p, path->cx, &q, memory);
    s.y = array(p, path->cx, &q, b);
    deft_tensor *old = holds_old ? alias(s.x) : NULL;
    const deft_scope step = deft_step_begin(path->cx);
    for (int i = 0; i < p->n; i++)
        if (p->s[i].kind == 0) assign(&s, i);
    if (deft_step_memory_read(step, &m, sizeof m) != DEFT_OK || deft_step_end(step) != DEFT_OK)
        fail(p, path, 0, deft_message(path->cx));
    for (int i = 0; i < s.n_held; i++) deft_drop(&s.held[i]);
    deft_drop(&old);
    deft_drop(&s.x);
    deft_drop(&s.y);
    return m.temporary_bytes + m.result_bytes;
}

/* Fails when a program takes at least one more array one way than another. Parts that are kept may
 * cost some bytes. */
static void compare_costs(const program *p, const oracle_path *path, const char *one_way,
                          uint64_t bytes, const char *other_way, uint64_t other_bytes)
{
    char text[128];
    n_costs++;
    if (bytes < other_bytes + 12 * 12 * sizeof(double)) return;
    snprintf(text, sizeof text, "%llu bytes %s, %llu %s", (unsigned long long)bytes, one_way,
             (unsigned long long)other_bytes, other_way);
    fail(p, path, 0, text);
}

/* How a program names a part that it reads must not decide whether the array is copied. Programs
 * with steps are left out: a strided part has other reasons to be copied. */
static void compare_names(const program *p, const oracle_path *path)
{
    for (int i = 0; i < p->n; i++)
        if (p->s[i].keeps_value) return;
    if (has_steps(p)) return;
    compare_costs(p, path, "by handles", bytes_of(p, path, false, false), "by views",
                  bytes_of(p, path, true, false));
}

/* A handle of the old array must not decide what later runs without such a handle cost. Only
 * programs on the path `fresh` never have one. */
static void compare_releases(const program *p, const oracle_path *path, const oracle_path *fresh)
{
    if (!p->holds_old) return;
    (void)bytes_of(p, path, false, true);
    compare_costs(p, path, "after a handle was dropped", bytes_of(p, path, false, false),
                  "without one", bytes_of(p, fresh, false, false));
}

static bool run(const program *p, const oracle_path *path)
{
    static double memory[SIDE * SIDE], a[SIDE * SIDE], b[SIDE * SIDE], was[SIDE * SIDE];
    static sides s;
    rep first;
    bool right = true;
    for (int n = 0; n < REPS && right; n++) {
        const rep q = draw_rep(p, n, n ? &first : NULL);
        const int64_t size = q.rows * q.columns;
        if (n == 0) first = q;
        for (int64_t i = 0; i < size; i++) {
            memory[i] = a[i] = was[i] = (double)(oracle_mix(p->seed, (uint64_t)i) % 512) / 16;
            b[i] = (double)(oracle_mix(p->seed, (uint64_t)(i + 4096)) % 512) / 16;
        }
        s.n_held = s.n_assigned = 0;
        s.p = p;
        s.q = &q;
        s.a = a;
        s.b = b;
        s.x = array(p, path->cx, &q, memory);
        s.y = deft_keep(deft_from(path->cx, DEFT_SHAPE(q.rows, q.columns), DEFT_F64, b,
                                  (size_t)size * sizeof *b));
        const uint64_t draw_old = oracle_mix(p->seed, 200 + (uint64_t)n);
        deft_tensor *old = p->holds_old && draw_old % 2 ? alias(s.x) : NULL;
        const deft_scope step = deft_step_begin(path->cx);
        for (int i = 0; i < p->n; i++) {
            if (i == p->n / 2 && draw_old % 3 == 0) deft_drop(&old);
            if (p->s[i].kind == 0) assign(&s, i);
            if (p->s[i].kind == 1) keep_part(&s, i);
            if (p->s[i].kind == 2 && deft_eval(&s.x, 1) != DEFT_OK)
                right = fail(p, path, n, deft_message(path->cx));
        }
        if (deft_step_end(step) != DEFT_OK) right = fail(p, path, n, deft_message(path->cx));
        for (int i = 0; i < s.n_held; i++) {
            if (right) right = compare(p, path, n, s.held[i], s.want[i], s.size[i], "a value kept");
            deft_drop(&s.held[i]);
        }
        if (right) right = compare(p, path, n, s.x, a, size, "the array");
        if (right && old) right = compare(p, path, n, old, was, size, "the old array");
        deft_drop(&old);
        deft_drop(&s.x);
        deft_drop(&s.y);
    }
    return right;
}

/* Seeds of programs that were not fused once. */
static const uint64_t found_before[] = { 2427 };

int main(int argc, char **argv)
{
    oracle_path path[] = {
        { .name = "interp", .tier = DEFT_TIER_INTERPRET, .n_threads = 1 },
        { .name = "llvm", .tier = DEFT_TIER_FULL, .n_threads = 2 },
        { .name = "unfused", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
        { .name = "fast",
          .tier = DEFT_TIER_FULL,
          .n_threads = 2,
          .variant_launches = 2,
          .streams = true,
          .numerics = DEFT_FAST },
    };
    oracle_path fresh[] = { { .name = "never held", .tier = DEFT_TIER_INTERPRET, .n_threads = 1 } };
    oracle_asked asked = { .count = 1000, .quick = 300, .full = 100000, .seed = 1 };
    for (int i = 1; i < argc; i++) (void)oracle_takes(&asked, argv[i]);
    const size_t n = oracle_open(path, sizeof path / sizeof *path);
    const size_t n_fresh = oracle_open(fresh, 1);
    const uint64_t least = oracle_least(LEAST);
    for (uint64_t i = 0; i < asked.count && (i < least || test_time_left(1)); i++, n_programs++) {
        const uint64_t seed =
            i < sizeof found_before / sizeof *found_before ? found_before[i] : asked.seed + i;
        const program p = draw(seed);
        plan_rules_begin(path, n, seed);
        plan_rules_draw(fresh, n_fresh, seed);
        compare_releases(&p, &path[0], &fresh[0]);
        compare_names(&p, &path[0]);
        for (size_t k = 0; k < n; k++)
            if (path[k].tier == DEFT_TIER_INTERPRET || i % COMPILED == 0) run(&p, &path[k]);
    }
    printf("%lld programs, %lld parts written, %lld numbers and %lld costs compared; %d failures\n",
           (long long)n_programs, (long long)n_assigned, (long long)n_compared, (long long)n_costs,
           failures);
    if (!plan_rules_end(LEAST)) failures++;
    oracle_close(path, n);
    oracle_close(fresh, n_fresh);
    return failures != 0;
}
