/* SPDX-License-Identifier: Apache-2.0
 *
 * Random programs over long rows, run as if every array came from memory: maps go around the caches
 * (rows/stream.c) and prefetch (rows/fetch.c), reductions of rows prefetch, and reductions of
 * columns go along whole rows (rows/col_long.c). All paths have the bits of the interpreter. In
 * fast mode, where columns of floats go along whole rows too, results are near.
 *
 *   random_streams [--quick | --full | COUNT [SEED]] [-v]
 *
 * A program follows from its seed alone. It is run TURNS times with other extents and data, so that
 * the code that was compiled for the first turn meets rows of many lengths and starts. The test
 * fails when columns went along whole rows, maps streamed, or rows prefetched in fewer of the
 * programs of that kind than `least_percent` says.
 */
#include "../support/budget.h"
#include "../support/oracle.h"
#include "lazy/core/context.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))

enum { TURNS = 5, MOST_STEPS = 5, MOST_INPUTS = MOST_STEPS + 4, MOST_OUT = 3 };

typedef enum kind { COLUMNS, MAPS, ROWS, N_KINDS } kind;
static const char *const kind_names[] = { "columns", "maps", "rows" };
/* Asked of 20 programs or more. Many programs of columns have reductions that go another way: those
 * of floats in strict mode, positions, and those that read one row for all. */
static const int least_percent[N_KINDS] = { 15, 60, 30 };

/* How an operand lies in memory. */
typedef enum view {
    PLAIN,
    WITH_GAPS,       /* rows of more columns, which begin at any element */
    STEPPED_ROWS,    /* every other row */
    STEPPED_COLUMNS, /* every other element of a row */
    FLIPPED_ROWS,
    FLIPPED_COLUMNS,
    TRANSPOSED,
    ONE_ROW,    /* the same for all rows */
    ONE_COLUMN, /* the same for all columns */
    LENT,       /* memory of the caller that begins at any byte */
    N_VIEWS
} view;

typedef struct operand {
    view view;
    deft_dtype dtype;
    deft_shape shape; /* in memory */
    int64_t skip;     /* elements before a row; of LENT: bytes before all */
    char *data;
    size_t bytes;
} operand;

typedef struct program {
    uint64_t seed, state; /* state: of the generator of what is the same in all turns */
    kind kind;
    int64_t batch, rows, columns;
    bool is_hard, has_halves; /* has_halves: drawn by the recording at hand */
    int after;
    operand in[MOST_INPUTS];
    int n_in; /* operands that the recording at hand has used */
    int turn;
} program;

static long n_failed, n_programs[N_KINDS], n_reached[N_KINDS];
static bool is_verbose;

static uint32_t draw(program *p, uint32_t n)
{
    return (uint32_t)(oracle_next(&p->state) >> 33) % n;
}

/* ---- which code ran ---- */

static bool has_reached[N_KINDS]; /* by the program at hand */
static deft_status (*real_run)(df_device *, df_diag *, const df_plan *, const df_trace *,
                               const int64_t *, df_launch_io *, df_run_stats *);

/* Whether code for this kernel goes along whole rows of so many columns, if the launch fetches: it
 * reduces over one axis, without positions, and no operand is one row for all. */
static bool goes_along_rows(const df_kernel *k, int64_t columns)
{
    uint32_t size = 1, n_red = 0, n_reduce = 0;
    if (k->mode != DF_MODE_COL) return false;
    for (uint32_t x = 0; x < k->n_axes; x++) n_red += k->role[x] == DF_AXIS_RED;
    for (uint32_t i = 0; i < k->n_ins; i++) {
        const df_ins *const ins = &k->ins[i];
        if (ins->level == DF_LEVEL_ELEM && (ins->op == DF_K_store || ins->stage > 0)) return false;
        if (ins->op == DF_K_argmax || ins->op == DF_K_argmin) return false;
        if (df_kop_infos[ins->op].kind != DF_KOP_reduce) continue;
        n_reduce++;
        if (df_is_real((deft_dtype)k->ins[ins->src[0]].dtype) && !(k->flags & DF_KERNEL_FAST))
            return false;
    }
    for (uint32_t a = 0; a < k->n_access; a++) {
        const uint32_t own = (uint32_t)deft_dtype_size((deft_dtype)k->access[a].dtype);
        if (own > size) size = own;
        for (uint32_t x = 0; x < k->n_axes && k->access[a].kind == DF_ACCESS_LOAD; x++)
            if (k->role[x] == DF_AXIS_RED && k->access[a].step[x] == DF_STEP_ZERO) return false;
    }
    return n_red == 1 && n_reduce > 0 && columns * size >= 32 * 64;
}

static int64_t columns_at_hand, rows_at_hand;

static deft_status counted(df_device *dev, df_diag *d, const df_plan *p, const df_trace *t,
                           const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    const deft_status st = real_run(dev, d, p, t, slots, io, stats);
    has_reached[MAPS] |= stats->streamed_segments > 0;
    for (uint32_t k = 0; k < p->n_kernels && stats->fetched_segments > 0; k++) {
        has_reached[ROWS] |= p->kernels[k].mode == DF_MODE_ROW;
        has_reached[COLUMNS] |=
            rows_at_hand >= 64 && goes_along_rows(&p->kernels[k], columns_at_hand);
    }
    return st;
}

/* ---- operands ---- */

static deft_dtype drawn_dtype(program *p)
{
    static const deft_dtype all[] = { DEFT_F32, DEFT_F64, DEFT_F16, DEFT_BF16, DEFT_I32,
                                      DEFT_I64, DEFT_I8,  DEFT_I16, DEFT_U8,   DEFT_U16 };
    static const deft_dtype integers[] = { DEFT_I32, DEFT_I64, DEFT_I8,  DEFT_I16,
                                           DEFT_U8,  DEFT_U32, DEFT_U64, DEFT_U16 };
    if (p->kind == COLUMNS && draw(p, 4)) return integers[draw(p, LEN(integers))];
    const deft_dtype t = all[draw(p, LEN(all))];
    p->has_halves |= t == DEFT_F16 || t == DEFT_BF16;
    return t;
}

/* The shape in memory of an operand that shows [batch, rows, columns]. */
static deft_shape shape_of(const program *p, view v, int64_t skip)
{
    deft_shape s = DEFT_SHAPE(p->batch, p->rows, p->columns);
    if (v == WITH_GAPS) s.dim[2] += skip + (int64_t)(p->seed % 3);
    if (v == STEPPED_ROWS) s.dim[1] *= 2;
    if (v == STEPPED_COLUMNS) s.dim[2] *= 2;
    if (v == TRANSPOSED) s = DEFT_SHAPE(p->batch, p->columns, p->rows);
    if (v == ONE_ROW) s.dim[1] = 1;
    if (v == ONE_COLUMN) s.dim[2] = 1;
    return s;
}

/* Makes the data of an operand for the turn at hand, once for all paths. */
static void fill(const program *p, operand *o, int number)
{
    o->skip = (int64_t)(oracle_mix(p->seed, (uint64_t)(p->turn * 100 + number)) % 40);
    if (o->view == LENT && o->skip % 4) o->skip &= -(int64_t)deft_dtype_size(o->dtype);
    o->shape = shape_of(p, o->view, o->skip);
    const size_t n = (size_t)oracle_numel(&o->shape);
    o->bytes = n * deft_dtype_size(o->dtype);
    char *const data = oracle_alloc(o->bytes);
    oracle_fill(o->dtype, data, n, oracle_mix(p->seed, (uint64_t)(p->turn * 100 + number + 50)),
                p->is_hard ? ORACLE_HARD : ORACLE_TAME);
    o->data = oracle_alloc(o->bytes + (size_t)o->skip);
    memcpy(o->data + (o->view == LENT ? o->skip : 0), data, o->bytes);
    free(data);
}

static deft_tensor *shown(deft_ctx *cx, const program *p, const operand *o)
{
    if (o->view == LENT)
        return deft_wrap(cx, o->shape, o->dtype, o->data + o->skip, o->bytes, NULL);
    deft_tensor *const t = deft_from(cx, o->shape, o->dtype, o->data, o->bytes);
    const deft_range all = DEFT_FULL;
    switch (o->view) {
    case WITH_GAPS: return deft_slice(t, all, all, DEFT_R(o->skip, o->skip + p->columns));
    case STEPPED_ROWS: return deft_slice(t, all, DEFT_RS(0, 2 * p->rows, 2));
    case STEPPED_COLUMNS: return deft_slice(t, all, all, DEFT_RS(1, 2 * p->columns, 2));
    case FLIPPED_ROWS: return deft_flip(t, DEFT_AXES(1));
    case FLIPPED_COLUMNS: return deft_flip(t, DEFT_AXES(2));
    case TRANSPOSED: return deft_transpose(t, 1, 2);
    case PLAIN:
    case ONE_ROW:
    case ONE_COLUMN:
    case LENT:
    case N_VIEWS: break;
    }
    return t;
}

/* The next operand of the program. */
static deft_tensor *operand_of(deft_ctx *cx, program *p, deft_dtype t)
{
    const int number = p->n_in++;
    operand *const o = &p->in[number];
    const view v = draw(p, 2) ? PLAIN : (view)draw(p, N_VIEWS);
    if (!o->data) {
        *o = (operand){ .view = v, .dtype = t };
        fill(p, o, number);
    }
    return shown(cx, p, o);
}

/* ---- expressions ---- */

static deft_tensor *unary(program *p, deft_tensor *x)
{
    switch (draw(p, 5)) {
    case 0: return deft_abs(x);
    case 1: return deft_square(x);
    case 2: return deft_neg(x);
    case 3: return deft_mul(x, 3);
    default: return deft_maximum(x, 1);
    }
}

static deft_tensor *binary(program *p, deft_tensor *x, deft_tensor *y)
{
    /* u64 and signed integers have no common dtype. */
    if (deft_dtype_of(x) == DEFT_U64 || deft_dtype_of(y) == DEFT_U64)
        y = deft_cast(y, deft_dtype_of(x));
    switch (draw(p, 6)) {
    case 0: return deft_add(x, y);
    case 1: return deft_sub(y, x);
    case 2: return deft_mul(x, y);
    case 3: return deft_maximum(x, y);
    case 4: return deft_minimum(y, x);
    default: return deft_where(deft_lt(x, y), x, y);
    }
}

/* A value of the shape [batch, rows, columns]. The first operand has every element. */
static deft_tensor *expression(deft_ctx *cx, program *p, deft_dtype t)
{
    deft_tensor *x = deft_from(cx, DEFT_SHAPE(1), t, (int64_t[]){ 0 }, deft_dtype_size(t));
    x = deft_expand(x, DEFT_SHAPE(p->batch, p->rows, p->columns));
    x = deft_maximum(operand_of(cx, p, t), x);
    if (draw(p, 3)) x = operand_of(cx, p, t);
    deft_tensor *older = x;
    for (uint32_t n = draw(p, MOST_STEPS); n-- > 0;) {
        deft_tensor *const before = x;
        switch (draw(p, 6)) {
        case 0:
        case 1: x = binary(p, x, operand_of(cx, p, draw(p, 4) ? t : drawn_dtype(p))); break;
        case 2: x = binary(p, x, older); break;
        case 3: x = deft_cast(x, draw(p, 2) ? t : drawn_dtype(p)); break;
        default: x = unary(p, x); break;
        }
        older = before;
    }
    return x;
}

/* ---- programs ---- */

static deft_tensor *reduced(program *p, deft_tensor *x, int axis)
{
    const deft_axes a = DEFT_AXES(axis);
    const bool keeps = draw(p, 2);
    switch (draw(p, 10)) {
    case 0:
    case 1: return deft_sum(x, a, keeps);
    case 2: return deft_prod(x, a, keeps);
    case 3:
    case 4: return deft_max(x, a, keeps);
    case 5: return deft_min(x, a, keeps);
    case 6: return deft_mean(x, a, keeps);
    case 7: return draw(p, 2) ? deft_argmax(x, a, keeps) : deft_argmin(x, a, keeps);
    case 8: return deft_any(deft_lt(x, 1), a, keeps);
    default: return deft_all(deft_lt(x, 8), a, keeps);
    }
}

static int record_reductions(deft_ctx *cx, program *p, int axis, deft_tensor **out)
{
    const deft_dtype t = drawn_dtype(p);
    deft_tensor *x;
    if (axis == 1 && p->after == 0 && p->kind == COLUMNS) { /* a row times a matrix */
        const deft_shape s = DEFT_SHAPE(p->batch, p->rows, p->columns);
        x = deft_expand(operand_of(cx, p, t), s); /* its first column is the row */
        x = deft_transpose(deft_slice(x, DEFT_FULL, DEFT_FULL, DEFT_R(0, 1)), 1, 2);
        out[0] = deft_matmul(x, deft_expand(operand_of(cx, p, t), s));
        return 1;
    }
    x = expression(cx, p, t);
    out[0] = reduced(p, x, axis);
    if (p->after == 1) { /* another of the same elements */
        out[1] = reduced(p, x, axis);
        return 2;
    }
    if (p->after == 2) out[0] = unary(p, deft_cast(out[0], deft_dtype_of(x)));
    if (p->after == 3) { /* what is reduced is read again */
        out[1] = deft_sub(x, deft_max(x, DEFT_AXES(axis), 1));
        return 2;
    }
    return 1;
}

/* An array of which a part is written, and what it holds afterwards. */
static deft_tensor *updated(deft_ctx *cx, program *p, deft_tensor *x)
{
    const deft_dtype t = deft_dtype_of(x);
    const int64_t skip = (int64_t)(oracle_mix(p->seed, (uint64_t)p->turn) % 37);
    const deft_shape s = DEFT_SHAPE(p->batch, p->rows + 1, p->columns + skip + 2);
    deft_tensor *const base = deft_mul(deft_cast(deft_iota(cx, s, 2), t), 1);
    const deft_range all = DEFT_FULL;
    deft_tensor *part = deft_slice(base, all, DEFT_R(0, p->rows), DEFT_R(skip, skip + p->columns));
    if (draw(p, 2)) x = binary(p, x, part);
    deft_assign(part, deft_cast(x, t));
    return base;
}

/* x in memory of the caller, which begins at any byte. */
static deft_tensor *stored_in_place(deft_ctx *cx, program *p, deft_tensor *x)
{
    const int number = p->n_in++;
    operand *const o = &p->in[number];
    if (!o->data) {
        *o = (operand){ .view = LENT, .dtype = deft_dtype_of(x) };
        fill(p, o, number);
    }
    deft_tensor *const y = deft_wrap_mut(cx, o->shape, o->dtype, o->data + o->skip, o->bytes, NULL);
    return deft_assign(y, x);
}

static int record_map(deft_ctx *cx, program *p, deft_tensor **out)
{
    const deft_dtype t = drawn_dtype(p);
    deft_tensor *const x = expression(cx, p, t);
    out[0] = x;
    switch (p->after) {
    case 0: out[0] = unary(p, x); return 1;
    case 1: /* two results */
        out[0] = unary(p, x);
        out[1] = draw(p, 2) ? deft_lt(x, 2) : binary(p, x, operand_of(cx, p, t));
        return 2;
    case 2: /* complex numbers: two results that alternate */
        out[0] = deft_cast(x, DEFT_F32);
        out[0] = deft_complex(out[0], deft_cast(operand_of(cx, p, t), DEFT_F32));
        if (draw(p, 2)) out[0] = deft_add(deft_mul(out[0], out[0]), out[0]);
        return 1;
    case 3: out[0] = updated(cx, p, x); return 1;
    case 4: /* two results that begin at different places of a cache line */
        out[0] = stored_in_place(cx, p, unary(p, x));
        out[1] = unary(p, x);
        return 2;
    default: /* in place of an operand that nobody else reads */
        out[0] = deft_mul(x, 1);
        deft_assign(out[0], binary(p, out[0], x));
        return 1;
    }
}

static void draw_extents(program *p, int turn)
{
    uint64_t s = oracle_mix(p->seed, 1000 + (uint64_t)turn);
    const bool is_large = oracle_next(&s) % 8 == 0;
    p->turn = turn;
    p->rows = 64 + (int64_t)(oracle_next(&s) % (is_large ? 537 : 70));
    p->columns = 512 + (int64_t)(oracle_next(&s) % (is_large ? 2489 : 700));
    p->batch = oracle_next(&s) % 6 ? 1 : 2;
    if (oracle_next(&s) % 12 == 0) p->rows = 60 + (int64_t)(oracle_next(&s) % 4);
    if (oracle_next(&s) % 3 == 0) p->columns = (p->columns + 63) & -64;
    if (p->kind == COLUMNS) p->columns *= oracle_next(&s) % 3 == 0 ? 3 : 1;
    if (p->kind == ROWS) {
        p->columns = p->columns * 8 + (int64_t)(oracle_next(&s) % 300);
        p->rows = 1 + (int64_t)(oracle_next(&s) % 9);
    }
    if (p->kind == MAPS) p->rows = 1 + (p->rows >> (oracle_next(&s) % 8));
}

static program make(uint64_t seed)
{
    program p = { .seed = seed, .state = oracle_mix(seed, 3) };
    p.kind = (kind)((int)draw(&p, 6) % 4 % N_KINDS); /* half of them columns */
    p.is_hard = draw(&p, 3) == 0;
    p.after = (int)draw(&p, 6);
    return p;
}

static int record(deft_ctx *cx, program *p, deft_tensor **out)
{
    p->state = oracle_mix(p->seed, 4);
    p->n_in = 0;
    p->has_halves = false;
    return p->kind == MAPS ? record_map(cx, p, out)
                           : record_reductions(cx, p, p->kind == ROWS ? 2 : 1, out);
}

/* ---- running ---- */

typedef struct result {
    int n;
    deft_dtype dtype[MOST_OUT];
    size_t numel[MOST_OUT];
    char *data[MOST_OUT];
} result;

static void forget(result *r)
{
    for (int i = 0; i < MOST_OUT; i++) free(r->data[i]);
    *r = (result){ 0 };
}

/* One step, whose results are kept. */
static bool run(deft_ctx *cx, program *p, result *r)
{
    deft_tensor *out[MOST_OUT] = { NULL };
    const deft_scope s = deft_step_begin(cx);
    *r = (result){ .n = record(cx, p, out) };
    for (int i = 0; i < r->n; i++) out[i] = deft_keep(out[i]);
    bool ok = deft_step_end(s) == DEFT_OK;
    for (int i = 0; i < r->n && ok; i++) {
        r->dtype[i] = deft_dtype_of(out[i]);
        r->numel[i] = (size_t)deft_numel(out[i]);
        const size_t bytes = r->numel[i] * deft_dtype_size(r->dtype[i]);
        r->data[i] = oracle_alloc(bytes);
        ok = deft_read(out[i], r->dtype[i], r->data[i], bytes) == DEFT_OK;
        if (r->dtype[i] == DEFT_C64) r->dtype[i] = DEFT_F32, r->numel[i] *= 2;
    }
    if (!ok) printf("seed %" PRIu64 ": %s\n", p->seed, deft_message(cx));
    for (int i = 0; i < r->n; i++) deft_drop(&out[i]);
    deft_clear(cx);
    return ok;
}

static double element(deft_dtype t, const char *data, size_t k)
{
    char text[64];
    const char *const at = strchr(oracle_text(t, data, k, text, sizeof text), '(');
    return at ? strtod(at + 1, NULL) : 0;
}

/* Sums and maxima of tame floats in another order. The mean of what they are off is small: a cast
 * to an integer makes single elements differ by 1. Results that are no floats are not compared,
 * nor are programs with halves, whose values in between are not rounded in fast mode. */
static bool is_near(deft_dtype t, const char *a, const char *b, size_t n)
{
    double sum = 0, off = 0;
    if (!df_is_real(t)) return true;
    for (size_t k = 0; k < n; k++) {
        const double x = element(t, a, k), y = element(t, b, k);
        if (!isfinite(x) || !isfinite(y)) continue; /* they overflow in another order */
        sum += fabs(x), off += fabs(x - y);
    }
    return off <= 2e-3 * (sum + (double)n);
}

static void compare(const program *p, const oracle_path *path, const result *want,
                    const result *got)
{
    for (int i = 0; i < want->n; i++) {
        char a[64], b[64];
        const deft_dtype t = want->dtype[i];
        const size_t n = want->numel[i];
        const bool is_fast = path->numerics == DEFT_FAST;
        if (got->n != want->n || got->dtype[i] != t || got->numel[i] != n) {
            printf("seed %" PRIu64 ", %s: results differ in shape\n", p->seed, path->name);
        } else if (is_fast &&
                   (p->is_hard || p->has_halves || is_near(t, want->data[i], got->data[i], n))) {
            continue;
        } else {
            const size_t k = oracle_difference(t, want->data[i], got->data[i], n);
            if (k == n) continue;
            printf("seed %" PRIu64 ", turn %d, %s of [%d,%d,%d] on %s: result %d of %s is %s at "
                   "%zu, not %s\n",
                   p->seed, p->turn, kind_names[p->kind], (int)p->batch, (int)p->rows,
                   (int)p->columns, path->name, i, deft_dtype_name(t),
                   oracle_text(t, got->data[i], k, a, sizeof a), k,
                   oracle_text(t, want->data[i], k, b, sizeof b));
        }
        n_failed++;
        return;
    }
}

static void check(uint64_t seed, oracle_path *paths, size_t n_paths)
{
    program p = make(seed);
    memset(has_reached, 0, sizeof has_reached);
    for (int turn = 0; turn < TURNS; turn++) {
        result want, got;
        draw_extents(&p, turn);
        columns_at_hand = p.columns, rows_at_hand = p.rows;
        const bool ok = run(paths[0].cx, &p, &want);
        if (is_verbose && turn == 0)
            fprintf(stderr, "%" PRIu64 ": %s, after %d, %s\n", seed, kind_names[p.kind], p.after,
                    deft_dtype_name(want.dtype[0]));
        n_failed += !ok;
        for (size_t i = 1; i < n_paths && ok; i++) {
            if (run(paths[i].cx, &p, &got))
                compare(&p, &paths[i], &want, &got);
            else
                n_failed++;
            forget(&got);
        }
        forget(&want);
        for (int i = 0; i < MOST_INPUTS; i++) {
            free(p.in[i].data);
            p.in[i] = (operand){ 0 };
        }
    }
    n_programs[p.kind]++;
    n_reached[p.kind] += has_reached[p.kind];
}

int main(int argc, char **argv)
{
    oracle_path paths[] = {
        { .name = "interp unfused", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
        { .name = "llvm", .tier = DEFT_TIER_FULL, .n_threads = 1, .streams = true },
        { .name = "llvm variants",
          .tier = DEFT_TIER_FULL,
          .n_threads = 3,
          .variant_launches = 2,
          .streams = true },
        { .name = "llvm, 16 bytes",
          .tier = DEFT_TIER_FULL,
          .n_threads = 1,
          .max_vector_bytes = 16,
          .streams = true },
        { .name = "llvm, 32 bytes",
          .tier = DEFT_TIER_FULL,
          .n_threads = 2,
          .max_vector_bytes = 32,
          .streams = true },
        { .name = "fast",
          .tier = DEFT_TIER_FULL,
          .n_threads = 2,
          .streams = true,
          .numerics = DEFT_FAST },
    };
    oracle_asked asked = { .count = 60, .quick = 12, .full = 6000, .seed = 1 };
    for (int i = 1; i < argc; i++)
        if (!oracle_takes(&asked, argv[i])) is_verbose |= !strcmp(argv[i], "-v");
    const double t0 = oracle_now();
    const size_t n_paths = oracle_open(paths, LEN(paths));
    const bool is_compiled = n_paths == LEN(paths);
    if (is_compiled) { /* one path tells which code runs */
        real_run = paths[1].cx->rt->dev->run;
        paths[1].cx->rt->dev->run = counted;
    }
    uint64_t n = 0;
    for (; n < asked.count && (n < 4 || test_time_left(1)); n++)
        check(asked.seed + n, paths, n_paths);
    oracle_close(paths, n_paths);
    bool are_few = false;
    printf("%" PRIu64 " programs on %zu paths", n, n_paths);
    for (int k = 0; k < N_KINDS; k++) {
        printf(", %ld of %ld with %s", n_reached[k], n_programs[k], kind_names[k]);
        are_few |= n_programs[k] >= 20 && n_reached[k] * 100 < least_percent[k] * n_programs[k];
    }
    printf(" have such code, %ld failures, %.1f s\n", n_failed, oracle_now() - t0);
    return n_failed || (is_compiled && are_few);
}
