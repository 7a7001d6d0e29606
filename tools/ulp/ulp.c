/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the recipes: the greatest error in ULP and where it is.
 *
 *   ulp [--f64] [--stride N] [--samples N] [--threads N] [--counts] [NAME...]
 *
 * f32: every N-th of the 2^32 bit patterns (N = 1 by default: all), against a reference in double;
 * functions of two operands: --samples random pairs.
 *
 * f64: published hard inputs, the f64 nearest to multiples of pi/2, and --samples random inputs,
 * against __float128. That takes microseconds, so a reference in long double goes first: where the
 * error by it is more than MARGIN below the greatest so far, the exact one cannot be greater. One
 * input in CHECK_EVERY is measured in both ways all the same; the two must agree within MARGIN / 2.
 *
 * --counts prints the instructions of each recipe instead.
 * Exits 1 when a function exceeds its bound.
 * recipe_refs.h says how errors are counted.
 */
#include "support/hard_inputs.h"
#include "support/recipe_eval.h"
#include "support/recipe_refs.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 64

typedef struct worst {
    double ulp;
    uint64_t x, y; /* bits of the inputs */
    uint64_t got;
    double want;
} worst;

/* ---- programs ---- */

typedef struct program {
    recipe_prog prog;
    uint32_t out;
} program;

static program *build(const ref_row *r, deft_dtype t)
{
    program *p = malloc(sizeof *p);
    if (!p) abort();
    recipe_init(&p->prog);
    const uint32_t x = recipe_input(&p->prog, t);
    if (r->recipe) {
        p->out = r->recipe(&p->prog.base, t, x);
    } else {
        const uint32_t y = recipe_input(&p->prog, t);
        p->out = r->recipe2(&p->prog.base, t, x, y);
    }
    return p;
}

static void discard(program *p)
{
    recipe_finish(&p->prog);
    free(p);
}

static void keep(worst *w, worst found)
{
    if (found.ulp > w->ulp) *w = found;
}

/* ---- all of f32 ---- */

typedef struct job {
    const ref_row *row;
    uint64_t begin, end, stride; /* bit patterns, or sample numbers */
    worst worst;
    uint64_t n_exact;  /* inputs that __float128 was asked for */
    double filter_off; /* the most that the filter was wrong by, in ULP */
} job;

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void *sweep_f32(void *argument)
{
    job *j = argument;
    program *p = build(j->row, DEFT_F32);
    float x[RECIPE_LANES];
    uint64_t bits = j->begin;
    while (bits < j->end) {
        size_t n = 0;
        for (; n < RECIPE_LANES && bits < j->end; n++, bits += j->stride) {
            const uint32_t b = (uint32_t)bits;
            memcpy(&x[n], &b, sizeof b);
        }
        recipe_run(&p->prog, n, (const void *[]){ x });
        const float *got = recipe_lanes(&p->prog, p->out);
        for (size_t k = 0; k < n; k++) {
            const double want = j->row->f32(x[k]);
            const double ulp = ref_error_f32(got[k], want);
            if (ulp > j->worst.ulp) {
                uint32_t xb, gb;
                memcpy(&xb, &x[k], sizeof xb);
                memcpy(&gb, &got[k], sizeof gb);
                keep(&j->worst, (worst){ .ulp = ulp, .x = xb, .got = gb, .want = want });
            }
        }
    }
    discard(p);
    return NULL;
}

/* Pairs: any bits, or both of moderate size, or near each other. */
static float random_f32(uint64_t *s, unsigned class)
{
    const uint64_t r = next_random(s);
    uint32_t b = (uint32_t)r;
    if (class == 1) b = (b & 0x807fffff) | (uint32_t)(117 + (r >> 32) % 18) << 23;
    if (class == 2) b = (b & 0x7fffff) | (uint32_t)(126 + (r >> 32) % 2) << 23;
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

static void *sample_pairs_f32(void *argument)
{
    job *j = argument;
    program *p = build(j->row, DEFT_F32);
    static const float special[] = { 0,
                                     1,
                                     2,
                                     3,
                                     0.5f,
                                     1.5f,
                                     0x1p24f,
                                     0x1.fffffep23f,
                                     0x1p25f,
                                     0x1.fffffep127f,
                                     0x1p-149f,
                                     0x1p-126f,
                                     INFINITY,
                                     NAN,
                                     1e10f,
                                     0x1.fffffep-1f,
                                     0x1.000002p0f,
                                     33 };
    const size_t n_special = sizeof special / sizeof *special * 2;
    float x[RECIPE_LANES], y[RECIPE_LANES];
    uint64_t state = j->begin * 77, i = j->begin;
    while (i < j->end) {
        size_t n = 0;
        for (; n < RECIPE_LANES && i < j->end; n++, i++) {
            if (i < n_special * n_special) {
                const size_t a = i % n_special, b = i / n_special;
                x[n] = a % 2 ? -special[a / 2] : special[a / 2];
                y[n] = b % 2 ? -special[b / 2] : special[b / 2];
            } else {
                x[n] = random_f32(&state, (unsigned)(i % 3));
                y[n] = random_f32(&state, (unsigned)(i / 3 % 3));
            }
        }
        recipe_run(&p->prog, n, (const void *[]){ x, y });
        const float *got = recipe_lanes(&p->prog, p->out);
        for (size_t k = 0; k < n; k++) {
            const double want = j->row->f32_2(x[k], y[k]);
            const double ulp = ref_error_f32(got[k], want);
            if (ulp > j->worst.ulp) {
                uint32_t xb, yb, gb;
                memcpy(&xb, &x[k], sizeof xb);
                memcpy(&yb, &y[k], sizeof yb);
                memcpy(&gb, &got[k], sizeof gb);
                keep(&j->worst, (worst){ .ulp = ulp, .x = xb, .y = yb, .got = gb, .want = want });
            }
        }
    }
    discard(p);
    return NULL;
}

/* ---- samples of f64 ---- */

/* Classes: any bits; exponents near 0; the range where most functions live; near multiples of pi/2.
 */
static double random_f64(uint64_t *s, unsigned class)
{
    uint64_t b = next_random(s);
    const uint64_t r = next_random(s);
    if (class == 1) b = (b & 0x800fffffffffffffu) | (1023 - 30 + r % 42) << 52;
    if (class == 2) b = (b & 0x800fffffffffffffu) | (1023 - 3 + r % 8) << 52;
    double x;
    memcpy(&x, &b, sizeof x);
    return class == 3 ? (double)(b >> r % 64) * 0x1.921fb54442d18p0 : x;
}

#define MARGIN 0.0625
#define CHECK_EVERY 1024

/* A result that is as the rounded reference errs by little more than half an ULP. */
static bool is_same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && !signbit(a) == !signbit(b);
}

static void check_f64(job *j, double x, double y, double got, bool is_check)
{
    const ref_row *const r = j->row;
    const long double near = r->filter ? r->filter(x) : r->filter_2(x, y);
    const double rough = ref_error_filtered(got, near);
    if (rough <= j->worst.ulp - MARGIN && !is_check) return;
    if (is_same(got, (double)near) && j->worst.ulp > 0.5 + MARGIN && !is_check) return;
    const ref_wide want = r->f64 ? r->f64(x) : r->f64_2(x, y);
    const double ulp = ref_error_f64(got, want);
    j->n_exact++;
    if (isfinite(rough) && isfinite(ulp)) j->filter_off = fmax(j->filter_off, fabs(rough - ulp));
    if (ulp <= j->worst.ulp) return;
    worst w = { .ulp = ulp, .want = (double)want };
    memcpy(&w.x, &x, sizeof w.x);
    memcpy(&w.y, &y, sizeof w.y);
    memcpy(&w.got, &got, sizeof w.got);
    j->worst = w;
}

static void run_f64(job *j, program *p, const double *x, const double *y, size_t n)
{
    recipe_run(&p->prog, n, (const void *[]){ x, y });
    const double *const got = recipe_lanes(&p->prog, p->out);
    for (size_t k = 0; k < n; k++) check_f64(j, x[k], y[k], got[k], k % CHECK_EVERY == 0);
}

/* The published inputs, and those near multiples of pi/2, each with its neighbour as y. */
static void run_hard_f64(job *j, program *p)
{
    double x[RECIPE_LANES], y[RECIPE_LANES] = { 0 };
    for (size_t i = 0; i < hard_n_published;) {
        size_t n = 0;
        for (; n < RECIPE_LANES && i < hard_n_published; n++, i++) {
            x[n] = hard_published[i];
            y[n] = hard_published[(i * 7 + 1) % hard_n_published];
        }
        run_f64(j, p, x, y, n);
    }
    for (int e = HARD_FIRST_EXPONENT; e <= HARD_LAST_EXPONENT;) {
        size_t n = 0;
        for (; e <= HARD_LAST_EXPONENT && n + HARD_PER_EXPONENT <= RECIPE_LANES; e++)
            n += hard_near_half_pi(e, x + n);
        for (size_t k = 0; k < n; k++) y[k] = x[n - 1 - k];
        run_f64(j, p, x, y, n);
    }
}

static void *sample_f64(void *argument)
{
    job *j = argument;
    program *p = build(j->row, DEFT_F64);
    static const double special[] = { 0,
                                      1,
                                      2,
                                      3,
                                      0.5,
                                      1.5,
                                      0x1p53,
                                      0x1.fffffffffffffp52,
                                      0x1p54,
                                      0x1.fffffffffffffp1023,
                                      0x1p-1074,
                                      0x1p-1022,
                                      INFINITY,
                                      NAN,
                                      1e10,
                                      0x1.fffffffffffffp-1,
                                      0x1.0000000000001p0,
                                      709.78,
                                      745.2,
                                      26.6,
                                      0x1.921fb54442d18p0,
                                      0x1.6ac5b262ca1ffp849,
                                      38.5 };
    const size_t n_special = sizeof special / sizeof *special * 2;
    double x[RECIPE_LANES], y[RECIPE_LANES];
    uint64_t state = j->begin * 77, i = j->begin;
    if (i == 0) run_hard_f64(j, p);
    while (i < j->end) {
        size_t n = 0;
        for (; n < RECIPE_LANES && i < j->end; n++, i++) {
            if (i < n_special * n_special) {
                const size_t a = i % n_special, b = i / n_special;
                x[n] = a % 2 ? -special[a / 2] : special[a / 2];
                y[n] = b % 2 ? -special[b / 2] : special[b / 2];
            } else {
                x[n] = random_f64(&state, (unsigned)(i % 4));
                y[n] = random_f64(&state, (unsigned)(i / 4 % 3));
            }
        }
        run_f64(j, p, x, y, n);
    }
    discard(p);
    return NULL;
}

/* ---- the table ---- */

typedef struct options {
    bool f64, counts;
    uint64_t stride, samples;
    unsigned threads;
} options;

/* f64: says on stderr what the filter did; *is_sound is cleared when it was wrong by too much. */
static worst measure(const ref_row *r, const options *o, bool *is_sound)
{
    const bool sweep = !o->f64 && r->recipe;
    const uint64_t total = sweep ? (uint64_t)1 << 32 : o->samples;
    const uint64_t step = sweep ? o->stride : 1;
    void *(*run)(void *) = o->f64 ? sample_f64 : sweep ? sweep_f32 : sample_pairs_f32;
    job jobs[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    for (unsigned i = 0; i < o->threads; i++) {
        const uint64_t chunk = (total / o->threads / step + 1) * step;
        const uint64_t end = chunk * (i + 1);
        jobs[i] = (job){ .row = r,
                         .begin = chunk * i,
                         .end = end < total ? end : total,
                         .stride = step,
                         .worst = { .ulp = -1 } };
        if (pthread_create(&threads[i], NULL, run, &jobs[i])) abort();
    }
    worst w = { .ulp = -1 };
    uint64_t n_exact = 0;
    double off = 0;
    for (unsigned i = 0; i < o->threads; i++) {
        pthread_join(threads[i], NULL);
        keep(&w, jobs[i].worst);
        n_exact += jobs[i].n_exact;
        off = fmax(off, jobs[i].filter_off);
    }
    *is_sound &= off < MARGIN / 2;
    if (o->f64)
        fprintf(stderr, "%s: %llu inputs by __float128; the filter was wrong by %.4f ULP%s\n",
                r->name, (unsigned long long)n_exact, off, off < MARGIN / 2 ? "" : ": TOO MUCH");
    return w;
}

static void print_counts(const ref_row *r)
{
    program *p32 = build(r, DEFT_F32), *p64 = build(r, DEFT_F64);
    printf("| %-8s | %3u | %3u |\n", r->name, recipe_cost(&p32->prog), recipe_cost(&p64->prog));
    discard(p32);
    discard(p64);
}

static bool report(const ref_row *r, const options *o)
{
    bool is_sound = true;
    const worst w = measure(r, o, &is_sound);
    const double bound = o->f64 ? r->bound_f64 : r->bound_f32;
    const bool good = w.ulp <= bound && is_sound;
    const int digits = o->f64 ? 16 : 8;
    printf("| %-8s | %7.3f | %5.2f | 0x%0*llx", r->name, w.ulp, bound, digits,
           (unsigned long long)w.x);
    if (!r->recipe) printf(", 0x%0*llx", digits, (unsigned long long)w.y);
    printf(" | 0x%0*llx | %.9g |%s\n", digits, (unsigned long long)w.got, w.want,
           good ? "" : " EXCEEDED");
    fflush(stdout);
    return good;
}

static bool asked(const char *name, int n, char **names)
{
    if (n == 0) return true;
    for (int i = 0; i < n; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

static int usage(void)
{
    fputs("usage: ulp [--f64] [--stride N] [--samples N] [--threads N] [--counts] [NAME...]\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    options o = { .stride = 1, .samples = 3000000, .threads = 1 };
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        const bool has_value = i + 1 < argc;
        if (!strcmp(argv[i], "--f64")) {
            o.f64 = true;
        } else if (!strcmp(argv[i], "--counts")) {
            o.counts = true;
        } else if (!strcmp(argv[i], "--stride") && has_value) {
            o.stride = strtoull(argv[++i], NULL, 0);
        } else if (!strcmp(argv[i], "--samples") && has_value) {
            o.samples = strtoull(argv[++i], NULL, 0);
        } else if (!strcmp(argv[i], "--threads") && has_value) {
            o.threads = (unsigned)strtoul(argv[++i], NULL, 0);
        } else {
            return usage();
        }
    }
    if (o.stride == 0 || o.threads == 0 || o.threads > MAX_THREADS) return usage();
    for (int k = i; k < argc; k++) {
        bool known = false;
        for (size_t r = 0; r < ref_n_rows; r++) known |= !strcmp(ref_rows[r].name, argv[k]);
        if (!known) {
            fprintf(stderr, "ulp: no function %s\n", argv[k]);
            return 2;
        }
    }
    puts(o.counts ? "| function | f32 | f64 |\n|---|---|---|"
                  : "| function | max ULP | bound | worst input | result | exact "
                    "|\n|---|---|---|---|---|---|");
    bool good = true;
    for (size_t r = 0; r < ref_n_rows; r++) {
        if (!asked(ref_rows[r].name, argc - i, argv + i)) continue;
        if (o.counts)
            print_counts(&ref_rows[r]);
        else
            good &= report(&ref_rows[r], &o);
    }
    return good ? 0 : 1;
}
