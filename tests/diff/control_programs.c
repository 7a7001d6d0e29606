/* SPDX-License-Identifier: Apache-2.0
 *
 * Random programs with loops and branches in the trace, nested, held against the same programs
 * whose loops and branches are C code: what deft_scan, deft_while and deft_cond mean is what C
 * means. All values read must have equal bits, on every path, for two sets of extents.
 *
 *   control_programs [COUNT [SEED]] [--quick | --full] [--print] [--store=FOLDER]
 *
 * With --store, what the interpreter runs for the smaller extents is stored in the folder, a trace
 * for each value, which tests/aot/run_aot exports.
 *
 * A program follows from its seed alone. Its values are of two kinds, f32 [rows,4] and f32 []; each
 * function grows a pool of them by random ops over what it was handed and what stands around it.
 */
#include "../support/budget.h"
#include "../support/oracle.h"
#include "../support/plan_rules.h"
#include "../support/tensor_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))

/* Programs that are run whatever time that takes. */
enum { LEAST = 300 };

enum { MOST_STEPS = 5, MOST_READ = 4 };

static oracle_path paths[] = {
    { .name = "reference", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
    { .name = "interp", .tier = DEFT_TIER_INTERPRET, .n_threads = 1 },
    { .name = "interp, not fused", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
    { .name = "llvm", .tier = DEFT_TIER_FULL, .n_threads = 2 },
};

/* ---- programs ---- */

typedef struct env {
    deft_ctx *cx;
    bool in_c; /* loops and branches are C code */
    bool failed;
} env;

static void put_op(const env *e, pool *p, uint64_t *seed)
{
    deft_tensor *const a = any_a(p, seed), *const c = any_a(p, seed), *const b = any_b(p, seed);
    deft_tensor *t;
    switch (pick(seed, 20)) {
    case 0: put_a(p, seed, deft_add(a, c)); return;
    case 1: put_a(p, seed, deft_mul(a, b)); return;
    case 2: put_a(p, seed, deft_sin(a)); return;
    case 3: put_a(p, seed, deft_sub(a, (double)pick(seed, 9) / 8)); return;
    case 4: put_a(p, seed, deft_where(deft_gt(a, b), a, c)); return;
    case 5: put_a(p, seed, deft_flip(a, DEFT_AXES(0))); return;
    case 6: put_a(p, seed, deft_tanh(deft_cumsum(a, (int)pick(seed, 2)))); return;
    case 7: put_a(p, seed, deft_tanh(deft_matmul(deft_matmul(a, deft_t(c)), a))); return;
    case 8: put_a(p, seed, deft_softmax(a, 1)); return;
    case 9: put_a(p, seed, deft_maximum(a, deft_neg(c))); return;
    case 10: put_a(p, seed, deft_roll(a, 1, 0)); return;
    case 11:
        t = deft_add(a, 1);
        deft_assign(deft_slice(t, DEFT_AT(0)), b);
        put_a(p, seed, t);
        return;
    case 12: put_a(p, seed, deft_add(deft_mul(a, 0), b)); return;
    case 13: put_b(p, seed, deft_tanh(deft_sum(a, DEFT_ALL_AXES, 0))); return;
    case 14: put_b(p, seed, deft_max(a, DEFT_ALL_AXES, 0)); return;
    case 15: put_b(p, seed, deft_mul(b, any_b(p, seed))); return;
    case 16: put_b(p, seed, deft_sub(b, deft_num(e->cx, 0.25))); return;
    case 17: put_a(p, seed, deft_sub(a, deft_mean(a, DEFT_AXES(0), 1))); return;
    case 18: put_b(p, seed, deft_slice(a, DEFT_AT(0), DEFT_AT(pick(seed, 4)))); return;
    default: put_a(p, seed, deft_square(deft_slice(a, DEFT_FULL, DEFT_RS(-1, DEFT_END, -1))));
    }
}

static void grow(env *e, pool *p, uint64_t seed, int depth, unsigned n);

/* A function of a loop or branch: what it is handed comes first in the pool, then what stands
 * around. */
typedef struct fn {
    env *e;
    const pool *around;
    uint64_t seed;
    int depth;
    unsigned in_a, in_b; /* handed in */
    unsigned out_a, out_b;
    int64_t limit; /* while: of the counter, its last state */
    bool has_stop; /* while: the first state is a bool that ends the loop */
    bool test;
} fn;

static void run(const fn *f, deft_tensor *const *in, deft_tensor **out)
{
    pool p = { .n_a = 0 };
    uint64_t seed = f->seed;
    for (unsigned i = 0; i < f->in_a; i++) p.a[p.n_a++] = in[i];
    for (unsigned i = 0; i < f->in_b; i++) p.b[p.n_b++] = in[f->in_a + i];
    for (unsigned i = 0; i < 3; i++) {
        put_a(&p, &seed, any_a(f->around, &seed));
        put_b(&p, &seed, any_b(f->around, &seed));
    }
    grow(f->e, &p, oracle_next(&seed), f->depth, 1 + pick(&seed, 5));
    for (unsigned i = 0; i < f->out_a; i++)
        out[i] = pick(&seed, 3) ? p.a[p.n_a - 1 - i % p.n_a] : any_a(&p, &seed);
    for (unsigned i = 0; i < f->out_b; i++) out[f->out_a + i] = any_b(&p, &seed);
}

static deft_status call_fn(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out;
    run(user, in, out);
    return DEFT_OK;
}

static bool read_bool(env *e, deft_tensor *t)
{
    bool v = false;
    if (deft_item(t, &v) != DEFT_OK) e->failed = true;
    return v;
}

/* ---- scan ---- */

static deft_tensor *stacked(env *e, deft_tensor *const *row, int64_t n, deft_tensor *like)
{
    deft_shape s = deft_shape_get(like);
    if (n > 0) return deft_stack(row, (size_t)n, 0);
    memmove(s.dim + 1, s.dim, s.rank * sizeof *s.dim);
    s.rank++;
    s.dim[0] = 0;
    return deft_zeros(e->cx, s, DEFT_F32);
}

static void scan_in_c(const fn *f, deft_tensor *const *in, unsigned n_rows, int64_t n,
                      deft_tensor *const *like, deft_tensor **out)
{
    deft_tensor *now[8], *made[8], *kept[4][MOST_STEPS];
    const unsigned n_states = f->in_a + f->in_b - n_rows;
    for (unsigned i = 0; i < n_states; i++) now[i] = in[i];
    for (int64_t k = 0; k < n; k++) {
        for (unsigned i = 0; i < n_rows; i++)
            now[n_states + i] = deft_slice(in[n_states + i], DEFT_AT(k));
        run(f, now, made);
        for (unsigned i = 0; i < n_states; i++) now[i] = made[i];
        for (unsigned i = 0; i < f->out_a + f->out_b - n_states; i++)
            kept[i][k] = made[n_states + i];
    }
    for (unsigned i = 0; i < n_states; i++) out[i] = now[i];
    for (unsigned i = n_states; i < f->out_a + f->out_b; i++)
        out[i] = stacked(f->e, kept[i - n_states], n, like[i - n_states]);
}

/* States and rows are handed in as [a states], [b rows or states]: kinds must follow one another,
 * so a scan has states of one kind and rows of the other, or of the same. */
static void put_scan(env *e, pool *p, uint64_t seed, int depth)
{
    const bool states_b = pick(&seed, 3) == 0;
    const unsigned n_states = pick(&seed, 3), n_rows = pick(&seed, 2);
    const unsigned n_outs = n_states ? pick(&seed, 3) : 1 + pick(&seed, 2);
    const int64_t n = pick(&seed, MOST_STEPS);
    deft_tensor *in[8], *out[8], *row[MOST_STEPS], *like[4];
    fn f = { .e = e, .around = p, .seed = oracle_next(&seed), .depth = depth - 1 };
    for (unsigned i = 0; i < n_states; i++) in[i] = states_b ? any_b(p, &seed) : any_a(p, &seed);
    for (unsigned i = 0; i < n_rows; i++) {
        for (int64_t k = 0; k < n; k++) row[k] = any_b(p, &seed);
        in[n_states + i] = stacked(e, row, n, p->b[0]);
    }
    f.in_a = states_b ? 0 : n_states;
    f.in_b = (states_b ? n_states : 0) + n_rows;
    f.out_a = states_b ? 0 : n_states;
    f.out_b = (states_b ? n_states : 0) + n_outs;
    for (unsigned i = 0; i < n_outs; i++) like[i] = p->b[0];
    if (e->in_c)
        scan_in_c(&f, in, n_rows, n, like, out);
    else if (!deft_scan(e->cx, call_fn, &f, in, n_states, in + n_states, n_rows, n, n_outs, out))
        e->failed = true;
    if (e->failed) return;
    for (unsigned i = 0; i < n_states; i++)
        states_b ? put_b(p, &seed, out[i]) : put_a(p, &seed, out[i]);
    for (unsigned i = 0; i < n_outs; i++)
        put_a(p, &seed,
              deft_add(deft_mul(p->a[0], 0.5), deft_sum(out[n_states + i], DEFT_ALL_AXES, 0)));
}

/* ---- while ---- */

/* States: with has_stop a bool, then tensors, numbers, and an i32 counter. */
static deft_status call_test(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    const fn *const f = user;
    (void)cx, (void)n_out;
    deft_tensor *const more =
        f->has_stop ? deft_logical_not(in[0]) : deft_lt(in[n_in - 1], f->limit);
    deft_tensor *const first_b = in[f->has_stop + f->in_a];
    out[0] = f->in_b ? deft_logical_and(more, deft_lt(first_b, 0.5)) : more;
    return DEFT_OK;
}

static deft_status call_body(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    const fn *const f = user;
    (void)cx;
    run(f, in + f->has_stop, out + f->has_stop);
    out[n_out - 1] = deft_add(in[n_in - 1], 1);
    if (f->has_stop) out[0] = deft_ge(out[n_out - 1], f->limit);
    return DEFT_OK;
}

static void while_in_c(fn *f, deft_tensor **now, unsigned n, int64_t most)
{
    deft_tensor *made[8];
    for (int64_t k = 0; k < most && !f->e->failed; k++) {
        (void)call_test(f->e->cx, now, n, made, 1, f);
        if (!read_bool(f->e, made[0])) return;
        (void)call_body(f->e->cx, now, n, made, n, f);
        memcpy(now, made, n * sizeof *now);
    }
}

static void put_while(env *e, pool *p, uint64_t seed, int depth)
{
    const bool has_stop = pick(&seed, 3) == 0;
    const unsigned n_a = pick(&seed, 3), n_b = pick(&seed, 2), n = has_stop + n_a + n_b + 1;
    const int64_t most = pick(&seed, 4) ? 1 << 20 : pick(&seed, 4);
    deft_tensor *in[8];
    fn f = { .e = e, .around = p, .seed = oracle_next(&seed), .depth = depth - 1 };
    f.limit = pick(&seed, MOST_STEPS);
    f.in_a = f.out_a = n_a;
    f.in_b = f.out_b = n_b;
    f.has_stop = has_stop;
    deft_tensor **const state = in + has_stop;
    if (has_stop) in[0] = deft_zeros(e->cx, DEFT_SHAPE(), DEFT_BOOL);
    for (unsigned i = 0; i < n_a; i++) state[i] = any_a(p, &seed);
    for (unsigned i = 0; i < n_b; i++) state[n_a + i] = any_b(p, &seed);
    in[n - 1] = deft_zeros(e->cx, DEFT_SHAPE(), DEFT_I32);
    if (e->in_c)
        while_in_c(&f, in, n, most);
    else if (!deft_while(e->cx, call_test, call_body, &f, in, n, most, in))
        e->failed = true;
    if (e->failed) return;
    for (unsigned i = 0; i < n_a; i++) put_a(p, &seed, state[i]);
    for (unsigned i = 0; i < n_b; i++) put_b(p, &seed, state[n_a + i]);
    if (has_stop) put_b(p, &seed, deft_where(in[0], p->b[0], deft_num(e->cx, 0.5)));
    put_b(p, &seed, deft_div(in[n - 1], 8));
}

/* ---- cond ---- */

/* user: both branches. */
static deft_status call_then(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    return call_fn(cx, in, n_in, out, n_out, &((fn *)user)[0]);
}

static deft_status call_else(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    return call_fn(cx, in, n_in, out, n_out, &((fn *)user)[1]);
}

static void put_cond(env *e, pool *p, uint64_t seed, int depth)
{
    fn f[2];
    deft_tensor *in[2] = { any_a(p, &seed), any_b(p, &seed) }, *out[4];
    deft_tensor *const condition = deft_gt(any_b(p, &seed), (double)pick(&seed, 3) - 1);
    for (unsigned i = 0; i < 2; i++)
        f[i] = (fn){ .e = e,
                     .around = p,
                     .seed = oracle_next(&seed),
                     .depth = depth - 1,
                     .in_a = 1,
                     .in_b = 1,
                     .out_a = 1 + (unsigned)(seed >> 7 & 1),
                     .out_b = 1 };
    f[1].out_a = f[0].out_a;
    const unsigned n = f[0].out_a + f[0].out_b;
    if (e->in_c)
        run(&f[!read_bool(e, condition)], in, out);
    else if (!deft_cond(condition, call_then, call_else, f, in, 2, out, n))
        e->failed = true;
    if (e->failed) return;
    for (unsigned i = 0; i < f[0].out_a; i++) put_a(p, &seed, out[i]);
    put_b(p, &seed, out[n - 1]);
}

static void grow(env *e, pool *p, uint64_t seed, int depth, unsigned n)
{
    for (unsigned i = 0; i < n && !e->failed; i++) {
        const unsigned kind = depth > 0 ? pick(&seed, 8) : 7;
        const uint64_t own = oracle_next(&seed);
        if (kind == 0)
            put_scan(e, p, own, depth);
        else if (kind == 1)
            put_while(e, p, own, depth);
        else if (kind == 2)
            put_cond(e, p, own, depth);
        else
            put_op(e, p, &seed);
    }
}

/* ---- running ---- */

typedef struct result {
    int n;
    float v[MOST_READ][5 * 4];
    size_t size[MOST_READ];
    char error[180];
} result;

static void run_program(uint64_t seed, deft_ctx *cx, bool in_c, int64_t rows, const char *store,
                        result *r)
{
    char path[160];
    env e = { .cx = cx, .in_c = in_c };
    pool p = { .n_a = 0 };
    float data[3][5 * 4], number[2];
    const uint64_t own = seed;
    const deft_scope scope = deft_scope_begin(cx);
    memset(r, 0, sizeof *r);
    oracle_fill(DEFT_F32, data, 60, own + (uint64_t)rows, ORACLE_TAME);
    oracle_fill(DEFT_F32, number, 2, own + 99, ORACLE_TAME);
    for (int i = 0; i < 3; i++)
        put_a(&p, &seed,
              deft_from(cx, DEFT_SHAPE(rows, 4), DEFT_F32, data[i],
                        (size_t)rows * 4 * sizeof(float)));
    for (int i = 0; i < 2; i++)
        put_b(&p, &seed, deft_from(cx, DEFT_SHAPE(), DEFT_F32, &number[i], sizeof(float)));
    grow(&e, &p, own, 3, 8);
    for (r->n = 0; r->n < MOST_READ && !e.failed; r->n++) {
        deft_tensor *const t =
            r->n & 1 ? p.b[p.n_b - 1 - (unsigned)r->n / 2] : p.a[p.n_a - 1 - (unsigned)r->n / 2];
        r->size[r->n] = r->n & 1 ? 1 : (size_t)rows * 4;
        snprintf(path, sizeof path, "%s/%016llx_%d", store ? store : "", (unsigned long long)own,
                 r->n);
        if (store && deft_store_next(cx, path) != DEFT_OK) e.failed = true;
        if (deft_read(t, DEFT_F32, r->v[r->n], r->size[r->n] * sizeof(float)) != DEFT_OK)
            e.failed = true;
    }
    if (e.failed) {
        snprintf(r->error, sizeof r->error, "%s", deft_message(cx));
        deft_clear(cx);
        r->n = -1;
    }
    if (deft_scope_end(scope) != DEFT_OK) r->n = -1;
}

static bool same(const result *a, const result *b, char *why, size_t n)
{
    if (a->n != b->n) {
        snprintf(why, n, "%s%s", a->error, b->error);
        return false;
    }
    for (int i = 0; i < a->n; i++) {
        const size_t at = oracle_difference(DEFT_F32, a->v[i], b->v[i], a->size[i]);
        if (at == a->size[i]) continue;
        snprintf(why, n, "value %d, element %zu: %a, must be %a", i, at, (double)b->v[i][at],
                 (double)a->v[i][at]);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    oracle_asked asked = { .count = 1500, .quick = 300, .full = 60000, .seed = 1 };
    long failures = 0, n_values = 0;
    uint64_t n_unfused = 0, n_loops = 0;
    bool print = false;
    const char *store = NULL;
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], "--store=", 8))
            store = argv[i] + 8;
        else if (!oracle_takes(&asked, argv[i]))
            print |= !strcmp(argv[i], "--print");
    const uint64_t seed = asked.seed;
    const double t0 = oracle_now();
    const size_t n_paths = oracle_open(paths, LEN(paths));
    long k = 0;
    const long least = (long)oracle_least(LEAST);
    for (; k < (long)asked.count && (k < least || test_time_left(1)) && failures < 5; k++) {
        plan_rules_begin(paths, n_paths, seed + (uint64_t)k);
        for (int64_t rows = 3; rows <= 5; rows += 2) {
            result want, got;
            char why[400];
            const uint64_t own = oracle_mix(seed + (uint64_t)k, 77);
            if (print)
                printf("seed %llu\n", (unsigned long long)(seed + (uint64_t)k)), fflush(stdout);
            run_program(own, paths[0].cx, true, rows, NULL, &want);
            n_values += want.n > 0 ? want.n : 0;
            for (size_t i = 1; i < n_paths; i++) {
                if (i == 3 && k % 16) continue; /* compiling costs more than all else */
                run_program(own, paths[i].cx, false, rows, i == 1 && rows == 3 ? store : NULL,
                            &got);
                if (same(&want, &got, why, sizeof why)) continue;
                failures++;
                printf("FAIL seed %llu, %d rows, path %s: %s\n",
                       (unsigned long long)(seed + (uint64_t)k), (int)rows, paths[i].name, why);
            }
        }
    }
    for (size_t i = 1; i < n_paths; i++) {
        deft_stats s;
        deft_stats_read(paths[i].cx, &s, sizeof s);
        n_unfused += s.cuts_unfused;
        n_loops += s.cuts;
    }
    printf("%ld programs, %ld values, %ld failures, %.1f s; %llu cuts, %llu not fused\n", k,
           n_values, failures, oracle_now() - t0, (unsigned long long)n_loops,
           (unsigned long long)n_unfused);
    if (!plan_rules_end(2000)) failures++;
    if (n_values < k) failures++, printf("FAIL: too few programs gave values\n");
    if (n_unfused) failures++, printf("FAIL: the fuser gave up\n");
    oracle_close(paths, n_paths);
    return failures ? 1 : 0;
}
