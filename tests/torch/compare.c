/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of networks, images and losses against PyTorch, in f64: results, and the gradients of
 * sum(result * ramp) with respect to the operands. make_cases.py made the cases, and describes
 * their form. Each case runs interpreted, and again with the compiler where there is one.
 *
 * Beside that, each case gives the same bits in four ways: called by itself, in a capture that is
 * replayed, for two examples under deft_vmap, and with each of these examples alone.
 *
 *   compare FILE [NAME]
 */
#include "calls.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 64 };

typedef struct datum {
    deft_dtype dtype;
    deft_shape shape;
    int64_t n;
    double *value;
    bool is_fixed; /* gets no gradient */
} datum;

typedef struct kase {
    char name[MAX_TEXT];
    arguments of;
    datum in[MAX_TENSORS], out[MAX_TENSORS], grad[MAX_TENSORS];
    size_t n_in, n_out, n_grad;
    call_fn f;
} kase;

static long n_passed, n_failed;
static const char *how;
static int line_of_case;

static void stop(const char *why, const char *at)
{
    printf("%s: %.60s\n", why, at);
    exit(1);
}

static void fail(const kase *k, const char *why)
{
    if (n_failed++ < 60) printf("%d: %s (%s): %s\n", line_of_case, k->name, how, why);
}

/* ---- the file ---- */

static deft_dtype dtype_named(const char *name, size_t n)
{
    for (int t = 0; t < DEFT_N_DTYPES; t++)
        if (strlen(deft_dtype_name((deft_dtype)t)) == n &&
            !strncmp(deft_dtype_name((deft_dtype)t), name, n))
            return (deft_dtype)t;
    stop("no such dtype", name);
    return DEFT_BOOL;
}

/* Reads one tensor; *at is moved behind it. */
static datum read_datum(char **at)
{
    datum d = { .n = 1 };
    char *p = *at, *const colon = strchr(p, ':');
    if (*p == '-') { /* no gradient is expected */
        *at = p + 1;
        while (**at == ' ') ++*at;
        d.is_fixed = true;
        d.n = 0;
        return d;
    }
    if (!colon) stop("no tensor", p);
    d.is_fixed = *p == '=';
    p += d.is_fixed;
    d.dtype = dtype_named(p, (size_t)(colon - p));
    for (p = colon + 1; *p != ':';) {
        if (d.shape.rank == DEFT_MAX_RANK) stop("too many axes", p);
        const int64_t dim = strtoll(p, &p, 10);
        d.shape.dim[d.shape.rank++] = dim;
        d.n *= dim;
        p += *p == ',';
    }
    d.value = calloc((size_t)d.n + 1, sizeof *d.value);
    if (!d.value) stop("no memory", p);
    p++;
    for (int64_t i = 0; i < d.n; i++) {
        d.value[i] = strtod(p, &p);
        p += *p == ',';
    }
    while (*p == ' ') p++;
    *at = p;
    return d;
}

static size_t read_data(char *at, datum *out)
{
    size_t n = 0;
    while (*at == ' ') at++;
    while (*at && *at != '\n') {
        if (n == MAX_TENSORS) stop("too many tensors", at);
        out[n++] = read_datum(&at);
    }
    return n;
}

static void read_case(char *line, kase *k)
{
    char *bar[3] = { line, NULL, NULL };
    for (int i = 0; i < 3; i++) {
        bar[i] = strchr(i ? bar[i - 1] + 1 : line, '|');
        if (!bar[i]) stop("no case", line);
    }
    for (int i = 0; i < 3; i++) *bar[i] = 0;
    int used = 0;
    if (sscanf(line, "%63s%n", k->name, &used) != 1) stop("no name", line);
    for (char *p = line + used, *end; k->of.n < MAX_NUMBERS; p = end) {
        const double v = strtod(p, &end);
        if (end == p) break;
        k->of.number[k->of.n++] = v;
    }
    k->n_in = read_data(bar[0] + 1, k->in);
    k->n_out = read_data(bar[1] + 1, k->out);
    k->n_grad = read_data(bar[2] + 1, k->grad);
    k->f = call_named(k->name);
    if (!k->f) stop("no such call", k->name);
}

static void free_case(kase *k)
{
    for (size_t i = 0; i < MAX_TENSORS; i++) {
        free(k->in[i].value);
        free(k->out[i].value);
        free(k->grad[i].value);
    }
}

/* ---- tensors ---- */

/* The operand d; the second example has other values, which are floats in (0, 1] of the first. */
static deft_tensor *tensor_of(deft_ctx *cx, const datum *d, int example)
{
    double *const v = calloc((size_t)d->n + 1, sizeof *v);
    if (!v) stop("no memory", "");
    const bool is_float = d->dtype == DEFT_F64 && !d->is_fixed;
    for (int64_t i = 0; i < d->n; i++)
        v[i] = is_float && example ? d->value[i] * 0.75 : d->value[i];
    deft_tensor *const t = deft_from(cx, d->shape, DEFT_F64, v, (size_t)d->n * sizeof *v);
    free(v);
    return deft_cast(t, d->dtype);
}

/* Reads any tensor as f64. */
static double *values_of(deft_tensor *t)
{
    const size_t n = (size_t)deft_numel(t);
    double *const v = calloc(n + 1, sizeof *v);
    if (!v) stop("no memory", "");
    if (!t || deft_read(deft_cast(t, DEFT_F64), DEFT_F64, v, n * sizeof *v) == DEFT_OK) return v;
    free(v);
    return NULL;
}

static bool same_shape(const deft_shape *a, const deft_shape *b)
{
    return a->rank == b->rank && !memcmp(a->dim, b->dim, a->rank * sizeof *a->dim);
}

static bool is_near(double a, double b)
{
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= 1e-8 * (1 + fabs(b));
}

static void compare(deft_ctx *cx, const kase *k, const char *part, size_t i, deft_tensor *t,
                    const datum *want)
{
    char why[200];
    const deft_shape s = deft_shape_get(t);
    if (!t || !same_shape(&s, &want->shape) || deft_dtype_of(t) != want->dtype) {
        snprintf(why, sizeof why, "%s %zu: %s of rank %u, PyTorch has %s of rank %u (%s)", part, i,
                 t ? deft_dtype_name(deft_dtype_of(t)) : "nothing", s.rank,
                 deft_dtype_name(want->dtype), want->shape.rank, t ? "" : deft_message(cx));
        fail(k, why);
        return;
    }
    double *const got = values_of(t);
    if (!got) {
        fail(k, deft_message(cx));
        return;
    }
    for (int64_t e = 0; e < want->n; e++) {
        if (is_near(got[e], want->value[e])) continue;
        snprintf(why, sizeof why, "%s %zu, element %lld: %.12g, PyTorch has %.12g", part, i,
                 (long long)e, got[e], want->value[e]);
        fail(k, why);
        break;
    }
    free(got);
    n_passed++;
}

/* ---- the ways of one case ---- */

/* A deft_body_fn and a deft_capture_fn. */
static deft_status body(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *user)
{
    const kase *const k = user;
    call c = { .cx = cx, .of = &k->of };
    for (size_t i = 0; i < n_in; i++) c.in[i] = in[i];
    if (!k->f(&c)) return DEFT_E_STATE;
    for (size_t i = 0; i < n_out; i++) out[i] = c.out[i];
    return DEFT_OK;
}

static deft_tensor *ramp(deft_ctx *cx, deft_tensor *t)
{
    const deft_shape s = deft_shape_get(t);
    deft_tensor *const i = deft_reshape(deft_iota(cx, DEFT_SHAPE(deft_numel(t)), 0), s);
    deft_tensor *const v = deft_sub_i(deft_remainder_i(deft_mul_i(i, 7), 11), 5);
    return deft_mul_f(deft_cast(v, DEFT_F64), 0.125);
}

static void check_gradients(deft_ctx *cx, const kase *k, deft_tensor *const *in,
                            deft_tensor *const *out)
{
    deft_tensor *with[MAX_TENSORS], *grad[MAX_TENSORS] = { 0 }, *of[MAX_TENSORS],
                                    *seed[MAX_TENSORS];
    const deft_grad_options o = { .size = sizeof o, .unused_is_zero = true };
    size_t n = 0, n_of = 0, at[MAX_TENSORS];
    for (size_t i = 0; i < k->n_grad; i++) {
        if (k->grad[i].is_fixed) continue;
        at[n] = i;
        with[n++] = in[i];
    }
    if (!n) return;
    for (size_t i = 0; i < k->n_out; i++) {
        if (k->out[i].dtype != DEFT_F64) continue;
        of[n_of] = out[i];
        seed[n_of++] = ramp(cx, out[i]);
    }
    if (!deft_grad(of, seed, n_of, with, n, &o, grad)) {
        fail(k, deft_message(cx));
        deft_clear(cx);
        return;
    }
    for (size_t i = 0; i < n; i++) compare(cx, k, "gradient", at[i], grad[i], &k->grad[at[i]]);
}

/* Whether a and b hold the same bits. */
static void check_bits(deft_ctx *cx, const kase *k, const char *way, deft_tensor *a, deft_tensor *b)
{
    char why[200];
    double *const x = values_of(a), *const y = values_of(b);
    const deft_shape s = deft_shape_get(a), t = deft_shape_get(b);
    const char *const text = x && y ? "" : deft_message(cx);
    if (!x || !y || !same_shape(&s, &t) || memcmp(x, y, (size_t)deft_numel(a) * sizeof *x)) {
        snprintf(why, sizeof why, "%s: other bits or another shape %s", way, text);
        fail(k, why);
    }
    free(x);
    free(y);
    n_passed++;
}

static void check_capture(deft_ctx *cx, kase *k, deft_tensor *const *in, deft_tensor *const *out)
{
    deft_capture *c = deft_capture_create(cx, body, k);
    deft_capture_stats st = { 0 };
    for (int i = 0; i < 2; i++) {
        deft_tensor *got[MAX_TENSORS] = { 0 };
        if (deft_capture_call(c, in, k->n_in, got, k->n_out) != DEFT_OK) {
            fail(k, deft_message(cx));
            break;
        }
        for (size_t j = 0; j < k->n_out; j++) check_bits(cx, k, "capture", got[j], out[j]);
    }
    deft_capture_stats_read(c, &st, sizeof st);
    if (st.replayed != 1) fail(k, deft_capture_reason(c));
    deft_capture_destroy(&c);
}

static void check_vmap(deft_ctx *cx, kase *k)
{
    deft_tensor *in[2][MAX_TENSORS], *both[MAX_TENSORS], *out[MAX_TENSORS] = { 0 };
    int axes[MAX_TENSORS];
    bool has_mapped = false;
    for (size_t i = 0; i < k->n_in; i++) {
        for (int e = 0; e < 2; e++) in[e][i] = tensor_of(cx, &k->in[i], e);
        axes[i] = k->in[i].dtype == DEFT_F64 ? 0 : DEFT_NOT_MAPPED;
        both[i] =
            axes[i] == 0 ? deft_stack((deft_tensor *[]){ in[0][i], in[1][i] }, 2, 0) : in[0][i];
        has_mapped = has_mapped || axes[i] == 0;
    }
    if (!has_mapped) return;
    if (!deft_vmap(cx, body, k, both, axes, k->n_in, out, NULL, k->n_out)) {
        fail(k, deft_message(cx));
        deft_clear(cx);
        return;
    }
    for (int e = 0; e < 2; e++) {
        call c = { .cx = cx, .of = &k->of };
        for (size_t i = 0; i < k->n_in; i++) c.in[i] = in[e][i];
        if (!k->f(&c)) fail(k, deft_message(cx));
        for (size_t j = 0; j < k->n_out; j++)
            check_bits(cx, k, "vmap", deft_slice(out[j], DEFT_AT(e)), c.out[j]);
    }
}

static void run(deft_ctx *cx, kase *k)
{
    call c = { .cx = cx, .of = &k->of };
    const deft_scope s = deft_scope_begin(cx);
    for (size_t i = 0; i < k->n_in; i++) c.in[i] = tensor_of(cx, &k->in[i], 0);
    if (!k->f(&c)) {
        fail(k, deft_message(cx));
    } else {
        for (size_t i = 0; i < k->n_out; i++) compare(cx, k, "result", i, c.out[i], &k->out[i]);
        check_gradients(cx, k, c.in, c.out);
        check_capture(cx, k, c.in, c.out);
        check_vmap(cx, k);
    }
    deft_clear(cx);
    if (deft_scope_end(s) != DEFT_OK) fail(k, deft_message(cx));
}

static void run_file(FILE *f, deft_tier tier, const char *name, const char *only)
{
    const deft_runtime_options o = { .size = sizeof o, .tier = tier };
    deft_runtime *rt;
    deft_ctx *cx;
    if (deft_runtime_create(&o, &rt) != DEFT_OK || deft_ctx_create(rt, NULL, &cx) != DEFT_OK)
        stop("no context", name);
    how = name;
    char *line = NULL;
    size_t room = 0;
    rewind(f);
    for (line_of_case = 1; getline(&line, &room, f) > 0; line_of_case++) {
        kase k = { .n_in = 0 };
        read_case(line, &k);
        if (!only || !strcmp(only, k.name)) run(cx, &k);
        free_case(&k);
    }
    free(line);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}

int main(int argc, char **argv)
{
    FILE *const f = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!f) stop("no file", argc > 1 ? argv[1] : "");
    const char *const only = argc > 2 ? argv[2] : NULL;
    run_file(f, DEFT_TIER_INTERPRET, "interpreted", only);
    run_file(f, DEFT_TIER_AUTO, "as by default", only);
    fclose(f);
    printf("%ld comparisons, %ld failed\n", n_passed, n_failed);
    return n_failed || !n_passed;
}
