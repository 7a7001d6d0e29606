/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention's CUDA text on the CPU (shim.h) against sums in f64: forwards and backwards, f32 and
 * operands lifted from halves, causal or not, widths and numbers of queries that fill tiles and
 * such that do not, operands seen through strides, scores too great for exp. Operands and results
 * end at an inaccessible page; results hold noise before.
 *
 *   attention_cases COMPILER FOLDER-OF-SHIM [--quick]
 *
 * How far results may be off, over the greatest of a result. f32: 4e-6 for sums of a few hundred
 * terms in another order and exp2f; and as exp makes of an error of a score the same relative one,
 * 2^-22 of the greatest score. Halves: p and the gradients of scores are rounded to halves,
 * 2^-11 of each in f16 and 2^-8 in bf16, and errors of many terms cancel: once the unit where p
 * alone is rounded (acc, dv), twice for ds, which is more than a product of p (dq, dk). Of great
 * scores p is 0 or 1 and ds a difference of equals: dq and dk are numbers, no more is asked.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/half.h"
#include "batch.h"
#include "jit_cuda/kernels/attention.h"

enum { PAGE = 4096, NOISE = 0xA5, BLOCK = ATTENTION_BLOCK, ARCH = 90 };

static long n_faults, n_jobs, n_launched[DF_CUDA_ATTENTION_KERNELS];
static double worst[3][2]; /* by type, forwards and backwards */
static batch library;

static void fault(const char *what, const char *where)
{
    printf("%s: %s\n", where, what);
    if (++n_faults < 20) return;
    printf("and no further\n");
    exit(1);
}

static uint64_t state = 1;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545F4914F6CDD1Du;
}

/* ---- memory ---- */

typedef struct area {
    char *map;
    float *at;
    size_t n, mapped;
} area;

/* n floats that end at an inaccessible page, full of noise. */
static area area_of(int64_t n)
{
    const size_t size = (size_t)n * sizeof(float), room = (size + PAGE - 1) / PAGE * PAGE;
    area a = { .n = (size_t)n, .mapped = room + PAGE };
    a.map = mmap(NULL, a.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (a.map == MAP_FAILED || mprotect(a.map + room, PAGE, PROT_NONE) != 0) abort();
    a.at = (float *)(void *)(a.map + room - size);
    memset(a.map, NOISE, room);
    return a;
}

static void area_close(area *a, const char *where)
{
    bool clean = true;
    for (const char *p = a->map; p < (const char *)a->at; p++) clean &= (unsigned char)*p == NOISE;
    if (!clean) fault("something was written before its place", where);
    munmap(a->map, a->mapped);
}

/* ---- a case ---- */

typedef struct shape {
    int64_t batch[2], n_queries, n_blocks, width;
    bool is_causal;
} shape;

typedef struct matrices {
    area q, k, v, dout;             /* as they are read */
    double *dq, *dk, *dv, *acc;     /* [batch, row, width], keys one after the other */
    double *m, *l, *log_sum, *less; /* [batch, query] */
    df_cuda_attention_job job;
    int64_t n_batch, n_keys;
    double most; /* of scores */
} matrices;

static int64_t batch_offset(const shape *s, const df_cuda_matrix *m, int64_t b)
{
    return b / s->batch[1] * m->batch[0] + b % s->batch[1] * m->batch[1];
}

static const float *query_row(const shape *s, const area *x, const df_cuda_matrix *m, int64_t b,
                              int64_t i)
{
    return x->at + batch_offset(s, m, b) + i * m->row;
}

static const float *key_row(const shape *s, const area *x, const df_cuda_matrix *m, int64_t b,
                            int64_t j)
{
    return x->at + batch_offset(s, m, b) + j % BLOCK * m->row + j / BLOCK * m->block;
}

/* A number that f16 and bf16 hold, or any of about that size. */
static float number(deft_dtype from, bool is_great)
{
    if (is_great) return (float)((int64_t)(draw() >> 40) % 17 - 8) * 2;
    double v = ((double)(draw() >> 11) / (double)((int64_t)1 << 53) - 0.5) * 4;
    if (from == DEFT_F32) return (float)v;
    return (float)(floor(v * 64) / 64); /* 8 bits */
}

/* Heads between queries, as networks have them: [batch, row, head, width], or [batch, head, row].
 */
static df_cuda_matrix strides(const shape *s, int64_t n_rows, bool heads_within)
{
    const int64_t w = s->width, h = s->batch[1];
    if (heads_within)
        return (df_cuda_matrix){ .row = h * w, .col = 1, .batch = { n_rows * h * w, w } };
    return (df_cuda_matrix){ .row = w, .col = 1, .batch = { n_rows * h * w, n_rows * w } };
}

static df_cuda_matrix key_strides(const shape *s)
{
    const int64_t w = s->width, all = s->batch[0] * s->batch[1];
    return (df_cuda_matrix){ .row = w,
                             .col = 1,
                             .block = all * BLOCK * w,
                             .batch = { s->batch[1] * BLOCK * w, BLOCK * w } };
}

static area drawn(int64_t n, deft_dtype from, bool is_great, float by)
{
    area a = area_of(n);
    for (int64_t i = 0; i < n; i++) a.at[i] = number(from, is_great) * by;
    return a;
}

static double *doubles(int64_t n)
{
    double *const p = calloc((size_t)n + 1, sizeof *p);
    if (!p) abort();
    return p;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

/* ---- what is wanted ---- */

static void want_row(const shape *s, matrices *x, int64_t b, int64_t i, double *score)
{
    const int64_t n = s->is_causal ? df_min_i64(i + 1, x->n_keys) : x->n_keys, w = s->width;
    const int64_t at = b * s->n_queries + i;
    const float *const q = query_row(s, &x->q, &x->job.q, b, i);
    const float *const g = query_row(s, &x->dout, &x->job.dout, b, i);
    double m = -INFINITY, l = 0, delta = 0;
    for (int64_t j = 0; j < n; j++) {
        score[j] = dot(q, key_row(s, &x->k, &x->job.k, b, j), w);
        m = fmax(m, score[j]);
        x->most = fmax(x->most, fabs(score[j]));
    }
    for (int64_t j = 0; j < n; j++) l += exp(score[j] - m);
    x->m[at] = m;
    x->l[at] = l;
    x->log_sum[at] = m + log(l);
    for (int64_t j = 0; j < n; j++) {
        const float *const v = key_row(s, &x->v, &x->job.v, b, j);
        for (int64_t d = 0; d < w; d++) x->acc[at * w + d] += exp(score[j] - m) * v[d];
    }
    for (int64_t d = 0; d < w; d++) delta += g[d] * x->acc[at * w + d] / l;
    x->less[at] = delta;
    for (int64_t j = 0; j < n; j++) {
        const float *const k = key_row(s, &x->k, &x->job.k, b, j);
        const float *const v = key_row(s, &x->v, &x->job.v, b, j);
        const double p = exp(score[j] - x->log_sum[at]), ds = p * (dot(g, v, w) - delta);
        const int64_t key = (b * x->n_keys + j) * w;
        for (int64_t d = 0; d < w; d++) {
            x->dq[at * w + d] += ds * k[d];
            x->dk[key + d] += ds * q[d];
            x->dv[key + d] += p * g[d];
        }
    }
}

static matrices make(const shape *s, deft_dtype from, bool is_great)
{
    matrices x = { .n_batch = s->batch[0] * s->batch[1], .n_keys = s->n_blocks * BLOCK };
    const int64_t rows = x.n_batch * s->n_queries, keys = x.n_batch * x.n_keys, w = s->width;
    const bool scaled = !is_great && from != DEFT_F32;
    x.job = (df_cuda_attention_job){
        .what = { .is_causal = s->is_causal, .is_scaled = scaled, .from = from },
        .n_batch = 2,
        .batch = { s->batch[0], s->batch[1] },
        .n_queries = s->n_queries,
        .n_blocks = s->n_blocks,
        .block = BLOCK,
        .width = w,
        .value_width = w,
        .q = strides(s, s->n_queries, true),
        .k = key_strides(s),
        .v = key_strides(s),
        .dout = strides(s, s->n_queries, s->is_causal),
    };
    x.q = drawn(rows * w, from, is_great, scaled ? (float)(1 / sqrt((double)w)) : 1);
    x.k = drawn(keys * w, from, is_great, 1);
    x.v = drawn(keys * w, from, false, 1);
    x.dout = drawn(rows * w, from, false, 1);
    x.job.q.at = (uintptr_t)x.q.at;
    x.job.k.at = (uintptr_t)x.k.at;
    x.job.v.at = (uintptr_t)x.v.at;
    x.job.dout.at = (uintptr_t)x.dout.at;
    x.dq = doubles(rows * w);
    x.acc = doubles(rows * w);
    x.dk = doubles(keys * w);
    x.dv = doubles(keys * w);
    x.m = doubles(rows);
    x.l = doubles(rows);
    x.log_sum = doubles(rows);
    x.less = doubles(rows);
    double *const score = doubles(x.n_keys);
    for (int64_t b = 0; b < x.n_batch; b++)
        for (int64_t i = 0; i < s->n_queries; i++) want_row(s, &x, b, i, score);
    free(score);
    return x;
}

static void finish(matrices *x, const char *where)
{
    area_close(&x->q, where);
    area_close(&x->k, where);
    area_close(&x->v, where);
    area_close(&x->dout, where);
    double *const all[] = { x->dq, x->dk, x->dv, x->acc, x->m, x->l, x->log_sum, x->less };
    for (size_t i = 0; i < DF_LEN(all); i++) free(all[i]);
}

/* ---- launches ---- */

static void launch(const df_cuda_attention_job *j, const char *where)
{
    df_cuda_attention p;
    if (!df_cuda_attention_takes(j, ARCH)) {
        fault("is not taken", where);
        return;
    }
    df_cuda_attention_plan(j, ARCH, &p);
    n_jobs++;
    for (uint32_t i = 0; i < p.n; i++) {
        char name[48];
        df_cuda_attention_name(p.at[i].kernel, name);
        n_launched[p.at[i].kernel]++;
        /* Fewer blocks than tiles: each goes on to others. */
        const uint32_t n = n_jobs % 2 ? p.at[i].n_blocks : (p.at[i].n_blocks + 2) / 3;
        if (!batch_call(&library, where, name, &p.params, n, DF_CUDA_ATTENTION_THREADS)) n_faults++;
    }
}

/* ---- comparing ---- */

static int type_of(deft_dtype from)
{
    return from == DEFT_F16 ? 1 : from == DEFT_BF16 ? 2 : 0;
}

/* most_off: how far it may be off. */
static void compare(const char *what, const char *where, const float *got, const double *want,
                    int64_t n, int type, bool is_grad, double most_off)
{
    double most = 0, apart = 0;
    int64_t at = -1;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs(got[i] - want[i]);
        most = fmax(most, fabs(want[i]));
        if (d <= apart) continue; /* NaN is not */
        apart = d;
        at = i;
        if (d != d) break;
    }
    const double is_off = most > 0 ? apart / most : apart;
    if (most_off < 1 && is_off > worst[type][is_grad]) worst[type][is_grad] = is_off;
    if (is_off <= most_off) return;
    char text[160];
    snprintf(text, sizeof text, "%s[%" PRId64 "] is %g, not %g: off by %g of %g", what, at,
             (double)got[at], want[at], is_off, most);
    fault(text, where);
}

/* Rows of blocks, [block, batch, key, width], against keys in a line. */
static void compare_keys(const char *what, const char *where, const area *got, const double *want,
                         const shape *s, const matrices *x, int type, double most_off)
{
    const int64_t w = s->width;
    float *const line = calloc(got->n, sizeof *line);
    if (!line) abort();
    for (int64_t b = 0; b < x->n_batch; b++)
        for (int64_t j = 0; j < x->n_keys; j++)
            memcpy(line + (b * x->n_keys + j) * w,
                   got->at + ((j / BLOCK * x->n_batch + b) * BLOCK + j % BLOCK) * w,
                   (size_t)w * sizeof *line);
    compare(what, where, line, want, (int64_t)got->n, type, true, most_off);
    free(line);
}

static double may_be_off(const matrices *x, int type)
{
    static const double unit[] = { 4e-6, 0x1p-11, 0x1p-8 };
    return unit[type] + x->most * 0x1p-22;
}

/* acc goes with m: both as if m were the one that is wanted. */
static void check_forward(const shape *s, matrices *x, int type, const char *where)
{
    const int64_t rows = x->n_batch * s->n_queries, w = s->width;
    area m = area_of(rows), l = area_of(rows), acc = area_of(rows * w);
    df_cuda_attention_job j = x->job;
    j.what.kind = DF_LOOP_ATTENTION;
    j.m = (uintptr_t)m.at;
    j.l = (uintptr_t)l.at;
    j.acc = (uintptr_t)acc.at;
    launch(&j, where);
    double *const out = doubles(rows * w);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t d = 0; d < w; d++) {
            out[i * w + d] = x->acc[i * w + d] / x->l[i];
            acc.at[i * w + d] /= l.at[i];
        }
        l.at[i] = m.at[i] + logf(l.at[i]);
    }
    compare("m", where, m.at, x->m, rows, 0, false, may_be_off(x, 0));
    compare("m + log l", where, l.at, x->log_sum, rows, 0, false, may_be_off(x, 0));
    compare("acc / l", where, acc.at, out, rows * w, type, false, may_be_off(x, type));
    free(out);
    area_close(&m, where);
    area_close(&l, where);
    area_close(&acc, where);
}

/* without: a result that is not asked for. */
static void check_backward(const shape *s, matrices *x, int type, const char *where, int without)
{
    const int64_t rows = x->n_batch * s->n_queries, keys = x->n_batch * x->n_keys, w = s->width;
    area dq = area_of(rows * w), dk = area_of(keys * w), dv = area_of(keys * w);
    area log_sum = area_of(rows), less = area_of(rows);
    df_cuda_attention_job j = x->job;
    for (int64_t i = 0; i < rows; i++) {
        log_sum.at[i] = (float)x->log_sum[i];
        less.at[i] = (float)x->less[i];
    }
    j.what.kind = DF_LOOP_ATTENTION_GRAD;
    j.log_sum = (uintptr_t)log_sum.at;
    j.less = (uintptr_t)less.at;
    j.dq = without == 0 ? 0 : (uintptr_t)dq.at;
    j.dk = without == 1 ? 0 : (uintptr_t)dk.at;
    j.dv = without == 2 ? 0 : (uintptr_t)dv.at;
    launch(&j, where);
    const double once = may_be_off(x, type), twice = x->most > 500 ? INFINITY : 2 * once;
    if (without != 0) compare("dq", where, dq.at, x->dq, rows * w, type, true, twice);
    if (without != 1) compare_keys("dk", where, &dk, x->dk, s, x, type, twice);
    if (without != 2) compare_keys("dv", where, &dv, x->dv, s, x, type, once);
    area_close(&dq, where);
    area_close(&dk, where);
    area_close(&dv, where);
    area_close(&log_sum, where);
    area_close(&less, where);
}

static void check(const shape *s, deft_dtype from, bool is_great)
{
    char where[160];
    static int turn;
    matrices x = make(s, from, is_great);
    const int type = x.job.what.is_scaled ? type_of(from) : 0;
    snprintf(where, sizeof where,
             "%s, batch %" PRId64 "x%" PRId64 ", %" PRId64 " queries, %" PRId64
             " blocks, width %" PRId64 "%s%s",
             deft_dtype_name(from), s->batch[0], s->batch[1], s->n_queries, s->n_blocks, s->width,
             s->is_causal ? ", causal" : "", is_great ? ", great scores" : "");
    check_forward(s, &x, type, where);
    check_backward(s, &x, type, where, turn++ % 4);
    finish(&x, where);
}

/* ---- what is refused ---- */

static void expect(bool holds, const char *what)
{
    if (!holds) fault(what, "does not hold");
}
#define EXPECT(x) expect(x, #x)

static void check_refusals(void)
{
    const df_cuda_attention_job good = {
        .what = { DF_LOOP_ATTENTION, .is_scaled = true, .from = DEFT_F16 },
        .n_batch = 1,
        .batch = { 2 },
        .n_queries = 5,
        .n_blocks = 2,
        .block = BLOCK,
        .width = 8,
        .value_width = 8,
        .q = { 4096, 8, 1, 0, { 40 } },
        .k = { 4096, 8, 1, 2048, { 1024 } },
        .v = { 4096, 8, 1, 2048, { 1024 } },
        .acc = 4096,
    };
    df_cuda_attention p;
    df_cuda_attention_job j = good;
    EXPECT(df_cuda_attention_takes(&j, 75));
    df_cuda_attention_plan(&j, 75, &p);
    EXPECT(p.n == 1 && p.at[0].kernel == 0 && p.params.scale == 1); /* f32 on what has no halves */
    df_cuda_attention_plan(&j, 80, &p);
    EXPECT(p.n == 1 && p.at[0].kernel == 4);
    j.what.is_scaled = false;
    df_cuda_attention_plan(&j, 80, &p);
    EXPECT(p.n == 1 && p.at[0].kernel == 0 && p.params.unscale == 1);
    j.acc = 0;
    df_cuda_attention_plan(&j, 80, &p);
    EXPECT(p.n == 0 && p.kernels == 0);
#define REFUSED(change)                                                                            \
    j = good;                                                                                      \
    j.change;                                                                                      \
    EXPECT(!df_cuda_attention_takes(&j, 90) && #change)
    REFUSED(what.kind = DF_LOOP_PLAIN);
    REFUSED(what.from = DEFT_F64);
    REFUSED(width = 132);
    REFUSED(value_width = 4);
    REFUSED(width = j.value_width = 6);
    REFUSED(block = 64);
    REFUSED(n_queries = 0);
    REFUSED(batch[0] = 0);
    REFUSED(q.col = 2);
    REFUSED(q.at = 4100);
    REFUSED(k.block = 2046);
    REFUSED(v.batch[0] = 1026);
    REFUSED(k.row = 9);
#undef REFUSED
    j = good;
    j.what.kind = DF_LOOP_ATTENTION_GRAD;
    EXPECT(!df_cuda_attention_takes(&j, 90)); /* dout has no columns */
}

/* ---- the whole ---- */

static void build(const batch_tools *t, uint64_t set)
{
    df_str s;
    size_t n;
    char name[48];
    df_str_init(&s, &df_mem_system);
    df_str_put(&s, "#include \"shim.h\"\n");
    const char *const prelude = df_cuda_prelude(&n);
    df_str_putn(&s, prelude, n);
    df_cuda_attention_text(set, &s);
    df_str_put(&s, "extern \"C\" const shim_entry shim_entries[] = {\n");
    for (uint32_t k = 0; k < DF_CUDA_ATTENTION_KERNELS; k++) {
        if (!(set >> k & 1)) continue;
        df_cuda_attention_name(k, name);
        df_str_fmt(&s, "{ \"%s\", shim_call<const attention_params, %s> },\n", name, name);
    }
    df_str_put(&s, "{ nullptr, nullptr } };\n");
    if (!batch_build_text(&library, t, &s, 0)) exit(1);
    df_str_finish(&s);
}

int main(int argc, char **argv)
{
    static const deft_dtype types[] = { DEFT_F32, DEFT_F16, DEFT_BF16 };
    static const shape shapes[] = {
        { { 2, 3 }, 70, 1, 64, true },   { { 1, 2 }, 150, 2, 128, true },
        { { 1, 1 }, 64, 2, 64, false },  { { 2, 1 }, 33, 2, 128, false },
        { { 1, 2 }, 128, 2, 48, true },  { { 1, 1 }, 1, 1, 4, false },
        { { 1, 2 }, 40, 2, 96, true },   { { 1, 1 }, 200, 1, 32, true },
        { { 1, 1 }, 300, 3, 20, false }, { { 2, 2 }, 100, 1, 92, false },
    };
    enum { QUICK = 4 };
    if (argc < 3) return 2;
    batch_tools tools = { .compiler = argv[1], .shim = argv[2], .folder = "/tmp/deft-shim-XXXXXX" };
    const bool is_quick = argc > 3 && strcmp(argv[3], "--quick") == 0;
    const size_t n = is_quick ? QUICK : DF_LEN(shapes);
    uint64_t set = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!mkdtemp(tools.folder)) return 2;
    for (uint32_t k = 0; k < DF_CUDA_ATTENTION_KERNELS; k++)
        if (!is_quick || k % 2) set |= (uint64_t)1 << k; /* widths 64 and 128 */
    build(&tools, set);
    check_refusals();
    for (size_t i = 0; i < n; i++)
        for (size_t t = 0; t < DF_LEN(types); t++) check(&shapes[i], types[t], false);
    check(&shapes[2], DEFT_F32, true);
    check(&shapes[3], DEFT_F16, true);
    for (uint32_t k = 0; k < DF_CUDA_ATTENTION_KERNELS; k++)
        if ((set >> k & 1) && n_launched[k] == 0) fault("was not launched", "a kernel");
    batch_close(&library);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", tools.folder);
    if (n_faults == 0 && system(command) != 0) n_faults++;
    static const char *const names[] = { "f32", "f16", "bf16" };
    for (int t = 0; t < 3; t++)
        printf("%s: off by %.2g forwards, %.2g backwards\n", names[t], worst[t][0], worst[t][1]);
    printf("%ld jobs, %ld faults\n", n_jobs, n_faults);
    return n_faults == 0 ? 0 : 1;
}
