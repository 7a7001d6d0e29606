/* SPDX-License-Identifier: Apache-2.0
 *
 * LOOP kernels by hand: the verifier's rules and the text, and the interpreter and compiled code at
 * both levels and every vector width against the same loop in C, bit for bit, whole and in ranges.
 * Arrays end at an inaccessible page, so that a lane or an iteration too much is a crash. Random
 * kernels of this mode are in test_llvm.c.
 *
 * Why this file is long: one set of kernels serves the runs, the rules and the text.
 */
#include <criterion/criterion.h>

#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/build_id.h"
#include "runtime/device.h"
#include "runtime/interp/interp.h"
#include "unit/hand_kernels.h"

/* ---- all ways to run a kernel ---- */

enum { N_CODES = 6, MAX_ACCESS = 12 };

typedef struct rig {
    df_compiler c[3];
    df_code code[N_CODES];
    const df_kernel *k;
} rig;

static df_plugin_cpu_fn open_plugin(void)
{
    char path[4096];
    const char *dir = getenv("DEFT_PLUGIN_DIR");
    cr_assert(dir, "DEFT_PLUGIN_DIR is not set");
    snprintf(path, sizeof path, "%.*s/deft-llvm.so", (int)strcspn(dir, ":"), dir);
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert(lib, "%s", dlerror());
    df_plugin_cpu_fn fn;
    void *p = dlsym(lib, DF_PLUGIN_CPU_SYMBOL);
    cr_assert(p);
    memcpy(&fn, &p, sizeof fn);
    return fn;
}

static df_compiler open_compiler(uint32_t max_vector_bytes)
{
    df_compiler c = { 0 };
    df_diag d = { 0 };
    const df_host host = { .size = sizeof(df_host),
                           .build_id = DF_BUILD_ID,
                           .mem = &df_mem_system,
                           .fail = df_fail,
                           .str_putn = df_str_putn,
                           .kops = df_kop_infos,
                           .max_vector_bytes = max_vector_bytes };
    cr_assert(open_plugin()(&host, DF_BUILD_ID, &d, &c) == DEFT_OK, "%s", d.text);
    return c;
}

static deft_status verify(df_diag *d, const df_kernel *k)
{
    df_plan p = { .kernels = (df_kernel *)k, .n_kernels = 1 };
    df_arena_init(&p.arena, &df_mem_system);
    const deft_status st = df_plan_verify(d, &p);
    df_arena_finish(&p.arena);
    return st;
}

static void rig_open(rig *r, kb *b)
{
    df_diag d = { 0 };
    kb_seal(b);
    r->k = &b->k;
    cr_assert_eq(verify(&d, &b->k), DEFT_OK, "%s", d.text);
    for (uint32_t v = 0; v < N_CODES; v++) {
        if (v % 2 == 0) r->c[v / 2] = open_compiler(16u << v / 2);
        const df_compiler *const c = &r->c[v / 2];
        cr_assert(c->compile(c->self, &d, &r->k, 1, v % 2 ? DF_OPT_O2 : DF_OPT_O0, &r->code[v]) ==
                      DEFT_OK,
                  "%s", d.text);
    }
}

static void rig_close(rig *r)
{
    for (uint32_t v = 0; v < N_CODES; v++) r->c[v / 2].release(r->c[v / 2].self, &r->code[v]);
    for (uint32_t v = 0; v < 3; v++) r->c[v].destroy(r->c[v].self);
}

/* ---- arguments ---- */

typedef struct array {
    char *map, *at; /* at: elements before the wall */
    size_t mapped, bytes;
    char *first, *want; /* outputs */
} array;

typedef struct run {
    const df_kernel *k;
    df_kargs a;
    char *ptr[MAX_ACCESS];
    int64_t stride[MAX_ACCESS * DF_MAX_AXES], base[MAX_ACCESS], extent[DF_MAX_AXES], fault[3];
    uint64_t num[4];
    array array[MAX_ACCESS];
    int64_t n_outer, n_inner, n_red;
} run;

static void run_begin(run *r, const rig *g, int64_t n_outer, int64_t n_red, int64_t n_inner)
{
    memset(r, 0, sizeof *r);
    r->k = g->k;
    r->n_outer = n_outer, r->n_red = n_red, r->n_inner = n_inner;
    for (uint32_t i = 0; i < r->k->n_axes; i++)
        r->extent[i] = r->k->role[i] == DF_AXIS_OUTER ? n_outer
                       : r->k->role[i] == DF_AXIS_RED ? n_red
                                                      : n_inner;
    r->a = (df_kargs){ .ptr = r->ptr,
                       .stride = r->stride,
                       .base = r->base,
                       .extent = r->extent,
                       .num = r->num,
                       .fault = r->fault };
}

/* n elements for an access, of some values; element 0 stands at `origin` within. Returns them. */
static void *run_array(run *r, uint32_t access, int64_t n, int64_t origin, int64_t s0, int64_t s1,
                       int64_t s2)
{
    array *const x = &r->array[access];
    const uint8_t t = r->k->access[access].dtype;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = size_of(t);
    uint64_t seed = access * 77u + (uint64_t)n;
    x->bytes = (size_t)n * size;
    const size_t room = (x->bytes + page) / page * page;
    x->mapped = room + page;
    x->map = mmap(NULL, x->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(x->map != MAP_FAILED);
    mprotect(x->map + room, page, PROT_NONE);
    x->at = x->map + room - x->bytes;
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)(random_next(&seed) % 1000 + 1) / 1024;
        const uint64_t bits = t == DEFT_F32    ? F((float)v)
                              : t == DEFT_F64  ? D(v)
                              : t == DEFT_BOOL ? random_next(&seed) % 2
                                               : random_next(&seed) % 100;
        memcpy(x->at + (size_t)i * size, &bits, size);
    }
    const int64_t s[] = { s0, s1, s2 };
    for (uint32_t i = 0; i < r->k->n_axes; i++) r->stride[access * r->k->n_axes + i] = s[i];
    r->ptr[access] = x->at + (size_t)origin * size;
    if (r->k->access[access].kind != DF_ACCESS_STORE) return x->at;
    x->first = malloc(x->bytes + 1);
    x->want = malloc(x->bytes + 1);
    memcpy(x->first, x->at, x->bytes);
    memcpy(x->want, x->at, x->bytes);
    return x->want;
}

/* Accesses of the same memory: where `access` begins, `other` does too. */
static void run_share(run *r, uint32_t access, uint32_t other)
{
    r->ptr[access] = r->ptr[other];
    memcpy(&r->stride[access * r->k->n_axes], &r->stride[other * r->k->n_axes],
           sizeof *r->stride * r->k->n_axes);
}

static void reset(run *r)
{
    memset(r->fault, 0, sizeof r->fault);
    for (uint32_t i = 0; i < r->k->n_access; i++)
        if (r->array[i].first) memcpy(r->array[i].at, r->array[i].first, r->array[i].bytes);
}

static void expect(run *r, const char *what)
{
    for (uint32_t i = 0; i < r->k->n_access; i++) {
        const array *const x = &r->array[i];
        const size_t size = size_of(r->k->access[i].dtype);
        for (size_t n = 0; x->want && n < x->bytes / size; n++)
            cr_assert(memcmp(x->at + n * size, x->want + n * size, size) == 0,
                      "%s, [%lld, %lld, %lld]: access %u, element %zu", what, (long long)r->n_outer,
                      (long long)r->n_red, (long long)r->n_inner, i, n);
    }
}

typedef struct way {
    const df_code *code; /* NULL: the interpreter */
    void *work;
} way;

static void call(const way *w, run *r, int64_t o0, int64_t o1, int64_t i0, int64_t i1)
{
    if (w->code)
        w->code->main(&r->a, o0, o1, i0, i1);
    else
        df_interp_main(r->k, w->work, &r->a, o0, o1, i0, i1);
}

/* Every way, whole and in ranges; fault: what the fault word must be afterwards. */
static void run_all(run *r, const rig *g, int64_t fault)
{
    void *work = aligned_alloc(64, (df_interp_work_size(r->k) + 127) & ~(size_t)63);
    for (int v = -1; v < N_CODES; v++) {
        const way w = { v < 0 ? NULL : &g->code[v], work };
        char what[100];
        snprintf(what, sizeof what, "%s, O%d", v < 0 ? "interpreter" : g->c[v / 2].name,
                 v < 0   ? 0
                 : v % 2 ? 2
                         : 0);
        reset(r);
        call(&w, r, 0, r->n_outer, 0, r->n_inner);
        expect(r, what);
        cr_assert_eq(r->fault[0], fault, "%s: %lld", what, (long long)r->fault[0]);
        reset(r);
        const int64_t o = r->n_outer / 2, i = r->n_inner * 2 / 3;
        call(&w, r, 0, o, 0, r->n_inner);
        call(&w, r, o, r->n_outer, i, r->n_inner);
        call(&w, r, o, r->n_outer, 0, i);
        expect(r, what);
    }
    free(work);
}

static void run_end(run *r)
{
    for (uint32_t i = 0; i < r->k->n_access; i++) {
        if (r->array[i].map) munmap(r->array[i].map, r->array[i].mapped);
        free(r->array[i].first);
        free(r->array[i].want);
    }
}

static const int64_t inners[] = { 0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 127, 129, 144, 1000 };
static const int64_t counts[] = { 0, 1, 2, 100 };

/* ---- kernels ---- */

static uint32_t row(kb *b, int stage, df_kop op, int dtype, uint32_t x, uint32_t y, uint64_t imm)
{
    return kb_at(b, stage, DF_LEVEL_ROW, op, dtype, x, y, 0, imm);
}

static uint32_t elem(kb *b, df_kop op, int dtype, uint32_t x, uint32_t y, uint64_t imm)
{
    return kb_at(b, 0, DF_LEVEL_ELEM, op, dtype, x, y, 0, imm);
}

/* x = n0 * x * (1 - x); accesses: x, y = the last x */
static void build_logistic(kb *b, int t, const char *roles, const char *steps)
{
    kb_init(b, DF_MODE_LOOP, roles, 2);
    b->k.n_num = 1;
    const uint32_t from = kb_access(b, DF_ACCESS_LOAD, t, steps);
    const uint32_t to = kb_access(b, DF_ACCESS_STORE, t, steps);
    const uint32_t x0 = row(b, 0, DF_K_load, t, 0, 0, from);
    const uint32_t r = row(b, 0, DF_K_num, t, 0, 0, 0);
    const uint32_t one = row(b, 0, DF_K_const, t, 0, 0, t == DEFT_F32 ? F(1) : D(1));
    const uint32_t x = elem(b, DF_K_carry, t, x0, 0, 0);
    const uint32_t rx = elem(b, DF_K_mul, t, r, x, 0);
    const uint32_t rest = elem(b, DF_K_sub, t, one, x, 0);
    const uint32_t next = elem(b, DF_K_next, t, x, elem(b, DF_K_mul, t, rx, rest, 0), 0);
    row(b, 1, DF_K_store, t, next, 0, to);
}

Test(iterate, logistic_maps_f32)
{
    kb b;
    rig g;
    build_logistic(&b, DEFT_F32, "ori", "s01");
    rig_open(&g, &b);
    for (size_t n = 0; n < LEN(inners); n++)
        for (size_t c = 0; c < LEN(counts); c++) {
            run r;
            const int64_t inner = inners[n];
            run_begin(&r, &g, 3, counts[c], inner);
            r.num[0] = F(3.7f);
            const float *const x = run_array(&r, 0, 3 * inner, 0, inner, 0, 1);
            float *const y = run_array(&r, 1, 3 * inner, 2 * inner, -inner, 0, 1);
            for (int64_t i = 0; i < 3 * inner; i++) {
                float v = x[i];
                for (int64_t t = 0; t < counts[c]; t++) v = 3.7f * v * (1 - v);
                y[(2 - i / inner) * inner + i % inner] = v;
            }
            run_all(&r, &g, 0);
            run_end(&r);
        }
    rig_close(&g);
}

/* Steps of 2 along INNER. */
Test(iterate, logistic_maps_f64_with_gaps)
{
    kb b;
    rig g;
    build_logistic(&b, DEFT_F64, "ri", "0s");
    rig_open(&g, &b);
    for (size_t n = 0; n < LEN(inners); n++) {
        run r;
        const int64_t inner = inners[n];
        run_begin(&r, &g, 1, 50, inner);
        r.num[0] = D(3.9);
        const double *const x = run_array(&r, 0, 2 * inner, 0, 0, 2, 0);
        double *const y = run_array(&r, 1, 2 * inner, 0, 0, 2, 0);
        for (int64_t i = 0; i < inner; i++) {
            double v = x[2 * i];
            for (int t = 0; t < 50; t++) v = 3.9 * v * (1 - v);
            y[2 * i] = v;
        }
        run_all(&r, &g, 0);
        run_end(&r);
    }
    rig_close(&g);
}

/* (a, b) = (b, a + b), and (p, q) = (q, p) of another dtype beside them. */
Test(iterate, states_move_together)
{
    kb b;
    rig g;
    kb_init(&b, DF_MODE_LOOP, "ri", 2);
    uint32_t in[4], out[4], x0[4], x[4], next[4];
    static const int dtypes[] = { DEFT_I64, DEFT_I64, DEFT_BOOL, DEFT_BOOL };
    for (int i = 0; i < 4; i++) in[i] = kb_access(&b, DF_ACCESS_LOAD, dtypes[i], "01");
    for (int i = 0; i < 4; i++) out[i] = kb_access(&b, DF_ACCESS_STORE, dtypes[i], "01");
    for (int i = 0; i < 4; i++) x0[i] = row(&b, 0, DF_K_load, dtypes[i], 0, 0, in[i]);
    for (int i = 0; i < 4; i++) x[i] = elem(&b, DF_K_carry, dtypes[i], x0[i], 0, 0);
    next[0] = elem(&b, DF_K_next, DEFT_I64, x[0], x[1], 0);
    const uint32_t sum = elem(&b, DF_K_add, DEFT_I64, x[0], x[1], 0);
    next[1] = elem(&b, DF_K_next, DEFT_I64, x[1], sum, 0);
    next[2] = elem(&b, DF_K_next, DEFT_BOOL, x[2], x[3], 0);
    next[3] = elem(&b, DF_K_next, DEFT_BOOL, x[3], x[2], 0);
    for (int i = 0; i < 4; i++) row(&b, 1, DF_K_store, dtypes[i], next[i], 0, out[i]);
    rig_open(&g, &b);
    for (size_t n = 0; n < LEN(inners); n++)
        for (size_t c = 0; c < LEN(counts); c++) {
            run r;
            const int64_t inner = inners[n];
            run_begin(&r, &g, 1, counts[c], inner);
            const int64_t *i64[2];
            const char *flag[2];
            int64_t *want[2];
            char *want_flag[2];
            for (uint32_t i = 0; i < 2; i++) {
                i64[i] = run_array(&r, i, inner, 0, 0, 1, 0);
                flag[i] = run_array(&r, 2 + i, inner, 0, 0, 1, 0);
                want[i] = run_array(&r, 4 + i, inner, 0, 0, 1, 0);
                want_flag[i] = run_array(&r, 6 + i, inner, 0, 0, 1, 0);
            }
            for (int64_t i = 0; i < inner; i++) {
                uint64_t p = (uint64_t)i64[0][i], q = (uint64_t)i64[1][i];
                for (int64_t t = 0; t < counts[c]; t++) {
                    const uint64_t s = p + q;
                    p = q;
                    q = s;
                }
                want[0][i] = (int64_t)p, want[1][i] = (int64_t)q;
                for (int k = 0; k < 2; k++) want_flag[k][i] = flag[counts[c] % 2 ? 1 - k : k][i];
            }
            run_all(&r, &g, 0);
            run_end(&r);
        }
    rig_close(&g);
}

/* s = s / 2 + x[t], y[t] = s * c, z = s: accesses x, c, y, z. c is the same in all iterations. */
static void build_filter(kb *b, const char *x_steps, const char *y_steps)
{
    kb_init(b, DF_MODE_LOOP, "ri", 2);
    const uint32_t ax = kb_access(b, DF_ACCESS_LOAD, DEFT_F32, x_steps);
    const uint32_t ac = kb_access(b, DF_ACCESS_LOAD, DEFT_F32, "01");
    const uint32_t ay = kb_access(b, DF_ACCESS_STORE, DEFT_F32, y_steps);
    const uint32_t az = kb_access(b, DF_ACCESS_STORE, DEFT_F32, "01");
    const uint32_t zero = elem(b, DF_K_const, DEFT_F32, 0, 0, F(0));
    const uint32_t half = elem(b, DF_K_const, DEFT_F32, 0, 0, F(0.5f));
    const uint32_t s = elem(b, DF_K_carry, DEFT_F32, zero, 0, 0);
    const uint32_t x = elem(b, DF_K_load, DEFT_F32, 0, 0, ax);
    const uint32_t c = elem(b, DF_K_load, DEFT_F32, 0, 0, ac);
    const uint32_t less = elem(b, DF_K_mul, DEFT_F32, s, half, 0);
    const uint32_t sum = elem(b, DF_K_add, DEFT_F32, less, x, 0);
    elem(b, DF_K_store, DEFT_F32, elem(b, DF_K_mul, DEFT_F32, sum, c, 0), 0, ay);
    const uint32_t next = elem(b, DF_K_next, DEFT_F32, s, sum, 0);
    row(b, 1, DF_K_store, DEFT_F32, next, 0, az);
}

/* x_t, x_i, y_t, y_i: strides */
static void check_filter(const rig *g, int64_t n_red, int64_t inner, bool rows_x, bool rows_y)
{
    run r;
    run_begin(&r, g, 1, n_red, inner);
    const int64_t x_t = rows_x ? inner : -1, x_i = rows_x ? 1 : n_red;
    const int64_t y_t = rows_y ? inner : 1, y_i = rows_y ? 1 : n_red;
    const int64_t first = rows_x || n_red == 0 ? 0 : n_red - 1;
    const float *const x = run_array(&r, 0, n_red * inner, first, x_t, x_i, 0);
    const float *const c = run_array(&r, 1, inner, 0, 0, 1, 0);
    float *const y = run_array(&r, 2, n_red * inner, 0, y_t, y_i, 0);
    float *const z = run_array(&r, 3, inner, 0, 0, 1, 0);
    for (int64_t i = 0; i < inner; i++) {
        float s = 0;
        for (int64_t t = 0; t < n_red; t++) {
            s = s * 0.5f + x[first + t * x_t + i * x_i];
            y[t * y_t + i * y_i] = s * c[i];
        }
        z[i] = s;
    }
    run_all(&r, g, 0);
    run_end(&r);
}

Test(iterate, scans_read_and_write_a_slice_per_iteration)
{
    for (int way_x = 0; way_x < 2; way_x++)
        for (int way_y = 0; way_y < 2; way_y++) {
            kb b;
            rig g;
            build_filter(&b, way_x ? "s1" : "ss", way_y ? "s1" : "ss");
            rig_open(&g, &b);
            for (size_t n = 0; n < LEN(inners); n++)
                for (size_t c = 0; c < LEN(counts); c++)
                    check_filter(&g, counts[c], inners[n], way_x, way_y);
            rig_close(&g);
        }
}

/* while (i < n0) { x = x * 1.5 + t; y[t] = x; i = i + 1 }: accesses x, y, last x, last i, t. */
static void build_while(kb *b)
{
    kb_init(b, DF_MODE_LOOP, "ri", 2);
    b->k.n_num = 1;
    const uint32_t ax = kb_access(b, DF_ACCESS_LOAD, DEFT_F64, "01");
    const uint32_t ay = kb_access(b, DF_ACCESS_STORE, DEFT_F64, "s1");
    const uint32_t alast = kb_access(b, DF_ACCESS_STORE, DEFT_F64, "01");
    const uint32_t ai = kb_access(b, DF_ACCESS_STORE, DEFT_I64, "00");
    const uint32_t at = kb_access(b, DF_ACCESS_INDEX, DEFT_I64, "s0");
    const uint32_t x0 = row(b, 0, DF_K_load, DEFT_F64, 0, 0, ax);
    const uint32_t zero = elem(b, DF_K_const, DEFT_I64, 0, 0, 0);
    const uint32_t one = elem(b, DF_K_const, DEFT_I64, 0, 0, 1);
    const uint32_t limit = elem(b, DF_K_num, DEFT_I64, 0, 0, 0);
    const uint32_t up = elem(b, DF_K_const, DEFT_F64, 0, 0, D(1.5));
    const uint32_t i = elem(b, DF_K_carry, DEFT_I64, zero, 0, 0);
    const uint32_t x = elem(b, DF_K_carry, DEFT_F64, x0, 0, 0);
    const uint32_t t = elem(b, DF_K_index, DEFT_I64, 0, 0, at);
    const uint32_t sum = elem(b, DF_K_mul, DEFT_F64, x, up, 0);
    const uint32_t less = elem(b, DF_K_lt, DEFT_BOOL, i, limit, 0);
    elem(b, DF_K_proceed, DEFT_BOOL, less, 0, 0);
    const uint32_t real = elem(b, DF_K_cast, DEFT_F64, t, 0, 0);
    const uint32_t new = elem(b, DF_K_add, DEFT_F64, sum, real, 0);
    elem(b, DF_K_store, DEFT_F64, new, 0, ay);
    const uint32_t x1 = elem(b, DF_K_next, DEFT_F64, x, new, 0);
    const uint32_t i1 = elem(b, DF_K_next, DEFT_I64, i, elem(b, DF_K_add, DEFT_I64, i, one, 0), 0);
    row(b, 1, DF_K_store, DEFT_F64, x1, 0, alast);
    row(b, 1, DF_K_store, DEFT_I64, i1, 0, ai);
}

Test(iterate, a_false_proceed_leaves_at_once)
{
    kb b;
    rig g;
    build_while(&b);
    rig_open(&g, &b);
    for (size_t n = 1; n < LEN(inners); n++)
        for (int64_t limit = 0; limit < 12; limit += limit < 3 ? 1 : 4) {
            run r;
            const int64_t inner = inners[n];
            /* The memory of y ends where the loop is left, or where its bound is. */
            const int64_t bound = limit == 11 ? 5 : INT64_MAX, count = df_min_i64(limit, bound);
            run_begin(&r, &g, 1, bound, inner);
            r.num[0] = (uint64_t)limit;
            r.base[4] = 3;
            r.stride[4 * 2] = 1;
            const double *const x = run_array(&r, 0, inner, 0, 0, 1, 0);
            double *const y = run_array(&r, 1, count * inner, 0, inner, 1, 0);
            double *const last = run_array(&r, 2, inner, 0, 0, 1, 0);
            int64_t *const i1 = run_array(&r, 3, 1, 0, 0, 0, 0);
            for (int64_t i = 0; i < inner; i++) {
                double v = x[i];
                for (int64_t t = 0; t < count; t++)
                    y[t * inner + i] = v = v * 1.5 + (double)(t + 3);
                last[i] = v;
            }
            i1[0] = count;
            run_all(&r, &g, 0);
            run_end(&r);
        }
    rig_close(&g);
}

/* All states the same for all lanes: x = (x + a / x) / 2 until it stands, and a vector of it. */
Test(iterate, a_loop_of_scalars)
{
    kb b;
    rig g;
    kb_init(&b, DF_MODE_LOOP, "ori", 2);
    const uint32_t ain = kb_access(&b, DF_ACCESS_LOAD, DEFT_F64, "000");
    const uint32_t aout = kb_access(&b, DF_ACCESS_STORE, DEFT_F64, "s00");
    const uint32_t ac = kb_access(&b, DF_ACCESS_LOAD, DEFT_F64, "001");
    const uint32_t av = kb_access(&b, DF_ACCESS_STORE, DEFT_F64, "s01");
    const uint32_t a = row(&b, 0, DF_K_load, DEFT_F64, 0, 0, ain);
    const uint32_t c = row(&b, 0, DF_K_load, DEFT_F64, 0, 0, ac);
    const uint32_t zero = row(&b, 0, DF_K_const, DEFT_F64, 0, 0, D(0));
    const uint32_t half = elem(&b, DF_K_const, DEFT_F64, 0, 0, D(0.5));
    const uint32_t x = elem(&b, DF_K_carry, DEFT_F64, a, 0, 0);
    const uint32_t was = elem(&b, DF_K_carry, DEFT_F64, zero, 0, 0);
    const uint32_t moves = elem(&b, DF_K_ne, DEFT_BOOL, x, was, 0);
    elem(&b, DF_K_proceed, DEFT_BOOL, moves, 0, 0);
    const uint32_t q = elem(&b, DF_K_div, DEFT_F64, a, x, 0);
    const uint32_t s = elem(&b, DF_K_add, DEFT_F64, x, q, 0);
    const uint32_t x1 =
        elem(&b, DF_K_next, DEFT_F64, x, elem(&b, DF_K_mul, DEFT_F64, s, half, 0), 0);
    elem(&b, DF_K_next, DEFT_F64, was, x, 0);
    row(&b, 1, DF_K_store, DEFT_F64, x1, 0, aout);
    row(&b, 1, DF_K_store, DEFT_F64, row(&b, 1, DF_K_mul, DEFT_F64, c, x1, 0), 0, av);
    rig_open(&g, &b);
    for (size_t n = 1; n < LEN(inners); n++) {
        run r;
        const int64_t inner = inners[n];
        run_begin(&r, &g, 2, 60, inner);
        const double *const in = run_array(&r, 0, 1, 0, 0, 0, 0);
        double *const out = run_array(&r, 1, 2, 0, 1, 0, 0);
        const double *const by = run_array(&r, 2, inner, 0, 0, 0, 1);
        double *const v = run_array(&r, 3, 2 * inner, 0, inner, 0, 1);
        double at = in[0], before = 0;
        for (int t = 0; t < 60 && at != before; t++) {
            before = at;
            at = (at + in[0] / at) * 0.5;
        }
        for (int o = 0; o < 2; o++) out[o] = at;
        for (int64_t i = 0; i < 2 * inner; i++) v[i] = by[i % inner] * at;
        run_all(&r, &g, 0);
        run_end(&r);
    }
    rig_close(&g);
}

/* x = table[i] + x while i < n0, i counted up; i is checked against the table's 5 elements, and so
 * is, at each turn, n1. */
static void build_table(kb *b)
{
    kb_init(b, DF_MODE_LOOP, "ri", 2);
    b->k.n_num = 2;
    b->k.flags = DF_KERNEL_CHECKS;
    const uint32_t table = kb_access(b, DF_ACCESS_AT, DEFT_I32, "00");
    const uint32_t from = kb_access(b, DF_ACCESS_LOAD, DEFT_I32, "01");
    const uint32_t to = kb_access(b, DF_ACCESS_STORE, DEFT_I32, "01");
    const uint32_t x0 = row(b, 0, DF_K_load, DEFT_I32, 0, 0, from);
    const uint32_t zero = elem(b, DF_K_const, DEFT_I64, 0, 0, 0);
    const uint32_t one = elem(b, DF_K_const, DEFT_I64, 0, 0, 1);
    const uint32_t five = elem(b, DF_K_const, DEFT_I64, 0, 0, 5);
    const uint32_t limit = elem(b, DF_K_num, DEFT_I64, 0, 0, 0);
    const uint32_t other = elem(b, DF_K_num, DEFT_I64, 0, 0, 1);
    const uint32_t i = elem(b, DF_K_carry, DEFT_I64, zero, 0, 0);
    const uint32_t x = elem(b, DF_K_carry, DEFT_I32, x0, 0, 0);
    elem(b, DF_K_proceed, DEFT_BOOL, elem(b, DF_K_lt, DEFT_BOOL, i, limit, 0), 0, 0);
    const uint32_t at = elem(b, DF_K_check, DEFT_I64, i, five, 7);
    const uint32_t v = elem(b, DF_K_load_at, DEFT_I32, at, 0, table);
    const uint32_t same = elem(b, DF_K_check, DEFT_I64, other, five, 9);
    const uint32_t w = elem(b, DF_K_load_at, DEFT_I32, same, 0, table);
    const uint32_t sum = elem(b, DF_K_add, DEFT_I32, elem(b, DF_K_add, DEFT_I32, x, v, 0), w, 0);
    const uint32_t x1 = elem(b, DF_K_next, DEFT_I32, x, sum, 0);
    elem(b, DF_K_next, DEFT_I64, i, elem(b, DF_K_add, DEFT_I64, i, one, 0), 0);
    row(b, 1, DF_K_store, DEFT_I32, x1, 0, to);
}

Test(iterate, checks_fail_only_in_iterations_that_are)
{
    kb b;
    rig g;
    build_table(&b);
    rig_open(&g, &b);
    static const int64_t cases[][3] = { /* limit, other, fault */
                                        { 0, 2, 0 },
                                        { 0, 50, 0 },
                                        { 5, 2, 0 },
                                        { 6, 2, 8 },
                                        { 3, -6, 10 }
    };
    for (size_t c = 0; c < LEN(cases); c++)
        for (size_t n = 1; n < LEN(inners); n++) {
            run r;
            const int64_t inner = inners[n];
            run_begin(&r, &g, 1, INT64_MAX, inner);
            r.num[0] = (uint64_t)cases[c][0];
            r.num[1] = (uint64_t)cases[c][1];
            const int32_t *const table = run_array(&r, 0, 5, 0, 0, 0, 0);
            const int32_t *const x = run_array(&r, 1, inner, 0, 0, 1, 0);
            int32_t *const y = run_array(&r, 2, inner, 0, 0, 1, 0);
            const int32_t w = table[cases[c][1] == 2 ? 2 : 0];
            for (int64_t i = 0; i < inner; i++) {
                y[i] = x[i];
                for (int64_t t = 0; t < cases[c][0]; t++) y[i] += table[t < 5 ? t : 0] + w;
            }
            run_all(&r, &g, cases[c][2]);
            run_end(&r);
        }
    rig_close(&g);
}

/* What an iteration stored, the next one reads, through whatever access: y = y + 2 y in memory, not
 * in a state. */
Test(iterate, memory_that_the_loop_writes_is_read_again)
{
    kb b;
    rig g;
    kb_init(&b, DF_MODE_LOOP, "ri", 1);
    const uint32_t from = kb_access(&b, DF_ACCESS_LOAD, DEFT_I32, "01");
    const uint32_t again = kb_access(&b, DF_ACCESS_LOAD, DEFT_I32, "01");
    const uint32_t to = kb_access(&b, DF_ACCESS_STORE, DEFT_I32, "01");
    b.access[to].same_as = from;
    const uint32_t y = elem(&b, DF_K_load, DEFT_I32, 0, 0, from);
    const uint32_t z = elem(&b, DF_K_load, DEFT_I32, 0, 0, again);
    const uint32_t zz = elem(&b, DF_K_add, DEFT_I32, z, z, 0);
    elem(&b, DF_K_store, DEFT_I32, elem(&b, DF_K_add, DEFT_I32, y, zz, 0), 0, to);
    rig_open(&g, &b);
    for (size_t n = 0; n < LEN(inners); n++) {
        run r;
        run_begin(&r, &g, 1, 4, inners[n]);
        int32_t *const want = run_array(&r, to, inners[n], 0, 0, 1, 0);
        run_share(&r, from, to);
        run_share(&r, again, to);
        for (int64_t i = 0; i < inners[n]; i++) want[i] *= 81;
        run_all(&r, &g, 0);
        run_end(&r);
    }
    rig_close(&g);
}

/* ---- the rules ---- */

typedef void (*spoil_fn)(kb *b);

static uint32_t find(const kb *b, df_kop op)
{
    uint32_t i = 0;
    while (b->ins[i].op != op) i++;
    return i;
}

static void two_reds(kb *b)
{
    b->k.role[b->k.n_axes - 1] = DF_AXIS_RED;
}
static void no_mode(kb *b)
{
    b->k.mode = 9;
}
static void is_split(kb *b)
{
    b->k.flags = DF_KERNEL_SPLIT;
}
static void third_stage(kb *b)
{
    b->k.n_stages = 3;
}
static void second_loop(kb *b)
{
    b->ins[b->k.n_ins - 1].level = DF_LEVEL_ELEM;
}
static void a_sum(kb *b)
{
    const uint32_t i = find(b, DF_K_mul);
    b->ins[i].op = DF_K_sum;
    b->ins[find(b, DF_K_add)].src[0] = b->ins[i].src[0];
}
static void a_map(kb *b)
{
    b->k.mode = DF_MODE_COL;
}
static void carry_in_row(kb *b)
{
    const uint32_t i = find(b, DF_K_const);
    b->ins[i].level = b->ins[i + 1].level = DF_LEVEL_ROW;
    b->ins[i + 1].op = DF_K_carry;
    b->ins[i + 1].src[0] = i;
}
static void other_start(kb *b)
{
    b->ins[find(b, DF_K_carry)].src[0] = find(b, DF_K_load);
}
static void moving_start(kb *b)
{
    df_ins *const x = &b->ins[find(b, DF_K_const)];
    x->op = DF_K_index;
    x->imm = 4;
}
static void no_next(kb *b)
{
    b->ins[find(b, DF_K_next)].op = DF_K_add;
    b->ins[b->k.n_ins - 2].src[0] = find(b, DF_K_load);
}
static void two_nexts(kb *b)
{
    df_ins *const x = &b->ins[find(b, DF_K_cast)];
    *x = b->ins[find(b, DF_K_next)];
    x->src[1] = b->ins[find(b, DF_K_add)].src[1] = find(b, DF_K_mul);
}
static void next_of_nothing(kb *b)
{
    df_ins *const x = &b->ins[b->k.n_ins - 4], *const next = x + 1;
    *x = *next;
    x->src[0] = find(b, DF_K_const);
    x->src[1] = next->src[1] = next->src[0];
}
static void next_of_other_dtype(kb *b)
{
    b->ins[find(b, DF_K_next)].src[1] = find(b, DF_K_index);
}
static void next_in_the_loop(kb *b)
{
    const uint32_t i = find(b, DF_K_next);
    b->ins[i + 1].src[0] = i;
    b->ins[i + 1].dtype = DEFT_F64;
}
static void uses_proceed(kb *b)
{
    b->ins[find(b, DF_K_cast)].src[0] = find(b, DF_K_proceed);
}
static void proceed_of_i64(kb *b)
{
    b->ins[find(b, DF_K_proceed)].dtype = DEFT_I64;
}
static void second_proceed(kb *b)
{
    const uint32_t i = find(b, DF_K_cast);
    b->ins[i] = b->ins[find(b, DF_K_proceed)];
    b->ins[i + 1].src[1] = find(b, DF_K_mul);
}
static void store_before(kb *b)
{
    df_ins *const x = &b->ins[find(b, DF_K_mul)];
    x->op = DF_K_store;
    x->imm = 1;
    b->ins[find(b, DF_K_add)].src[0] = x->src[0];
}
static void check_before(kb *b)
{
    b->ins[find(b, DF_K_index)].op = DF_K_check;
    df_ins *const x = &b->ins[find(b, DF_K_check)];
    x->src[0] = x->src[1] = find(b, DF_K_num);
}
static void lanes_decide(kb *b)
{
    b->access[4].step[1] = DF_STEP_UNIT;
    b->ins[find(b, DF_K_lt)].src[0] = find(b, DF_K_index);
}
/* It is only in the next iteration that it differs. */
static void lanes_decide_later(kb *b)
{
    b->access[4].step[1] = DF_STEP_UNIT;
    b->ins[b->k.n_ins - 3].src[1] = find(b, DF_K_index);
}

typedef struct rule {
    spoil_fn spoil;
    const char *says;
    bool refused; /* by the compiler too */
} rule;

static const rule rules[] = {
    { two_reds, "roles", true },
    { no_mode, "mode", true },
    { is_split, "flags of a loop", false },
    { third_stage, "stages or flags", false },
    { second_loop, "stage of a loop", true },
    { a_sum, "reduction in a loop", true },
    { a_map, "outside of a loop", true },
    { carry_in_row, "stage of a state", true },
    { other_start, "dtype of a state", true },
    { moving_start, "start of a state", false },
    { no_next, "without one next", true },
    { two_nexts, "without one next", true },
    { next_of_nothing, "next of no state", true },
    { next_of_other_dtype, "dtype of a state", true },
    { next_in_the_loop, "operand", false },
    { uses_proceed, "operand", false },
    { proceed_of_i64, "dtype of", true },
    { second_proceed, "second proceed", true },
    { store_before, "effect before proceed", false },
    { check_before, "effect before proceed", false },
    { lanes_decide, "differs between lanes", true },
    { lanes_decide_later, "differs between lanes", true },
};

Test(iterate, bad_kernels_are_refused)
{
    df_compiler c = open_compiler(0);
    for (size_t i = 0; i < LEN(rules); i++) {
        kb b;
        df_diag d = { 0 };
        build_while(&b);
        rules[i].spoil(&b);
        kb_seal(&b);
        cr_expect_neq(verify(&d, &b.k), DEFT_OK, "rule %zu: %s", i, rules[i].says);
        cr_expect_not_null(strstr(d.text, rules[i].says), "rule %zu, %s: %s", i, rules[i].says,
                           d.text);
        if (!rules[i].refused) continue;
        const df_kernel *const k = &b.k;
        df_code code;
        cr_expect_eq(c.compile(c.self, &d, &k, 1, DF_OPT_O2, &code), DEFT_E_COMPILE, "rule %zu", i);
    }
    c.destroy(c.self);
}

Test(iterate, text_and_cost)
{
    kb b;
    df_arena arena;
    df_diag d = { 0 };
    df_str s;
    df_arena_init(&arena, &df_mem_system);
    df_str_init(&s, &df_mem_system);
    build_logistic(&b, DEFT_F32, "ri", "01");
    cr_assert_eq(df_kernel_seal(&d, &b.k, &arena), DEFT_OK);
    cr_expect_eq(b.k.cost, 3, "%g", b.k.cost);
    df_kernel_print(&s, &b.k);
    cr_expect_str_eq(s.at, "loop axes=[red,inner] stages=2\n"
                           "    a0 = load f32 step=01\n"
                           "    a1 = store f32 step=01\n"
                           "    row 0:\n"
                           "      v0 = load f32 a0\n"
                           "      v1 = num f32 n0\n"
                           "      v2 = const f32 0x3f800000\n"
                           "    elem 0:\n"
                           "      v3 = carry f32 v0\n"
                           "      v4 = mul f32 v1 v3\n"
                           "      v5 = sub f32 v2 v3\n"
                           "      v6 = mul f32 v4 v5\n"
                           "      v7 = next f32 v3 v6\n"
                           "    row 1:\n"
                           "      v8 = store f32 v7 a1\n");
    df_str_finish(&s);
    df_arena_finish(&arena);
}
