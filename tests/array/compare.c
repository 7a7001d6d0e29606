/* SPDX-License-Identifier: Apache-2.0
 *
 * Every function of the array API against NumPy, bit for bit unless a case says otherwise, on
 * special values: both zeros, infinities, NaN, denormals, no elements, no axes. make_cases.py made
 * the cases, and describes their form. Each runs interpreted, and again with the compiler where
 * there is one.
 *
 *   compare FILE [NAME]
 */
#define DEFT_NO_GENERIC
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "deft/deft.h"

enum { MAX_TENSORS = 8, MAX_NUMBERS = 10, FLATTENED = 99 };

typedef struct datum {
    deft_dtype dtype;
    deft_shape shape;
    unsigned char *bytes;
    size_t size;
    double ulps;
} datum;

typedef struct kase {
    char name[48];
    double number[MAX_NUMBERS];
    datum in[MAX_TENSORS], out[MAX_TENSORS];
    size_t n_numbers, n_in, n_out;
    bool refused;
} kase;

typedef struct call {
    deft_ctx *cx;
    const kase *k;
    deft_tensor *in[MAX_TENSORS], *out[MAX_TENSORS];
} call;

static long n_passed, n_failed;
static const char *how;

/* ---- calls ---- */

#define X(i) c->in[i]
#define NUM(i) c->k->number[i]
#define INT(i) ((int64_t)c->k->number[i])
#define AXIS(i) ((int)c->k->number[i])
#define FLAG(i) (c->k->number[i] != 0)
#define TYPE(i) dtype_of[(int)c->k->number[i]]
#define ONE(i) deft_axes_of(1, &(const int){ AXIS(i) })

/* The order of DTYPES in make_cases.py. */
static const deft_dtype dtype_of[] = { DEFT_BOOL, DEFT_U8,  DEFT_I32, DEFT_I64, DEFT_F32,
                                       DEFT_F64,  DEFT_F16, DEFT_U64, DEFT_C64, DEFT_C128 };

static int axis_or_flat(double v)
{
    return v == FLATTENED ? DEFT_FLAT : (int)v;
}

/* The numbers from index `from` on, as a shape. */
static deft_shape shape_from(const call *c, size_t from)
{
    deft_shape s = { .rank = (uint32_t)(c->k->n_numbers - from) };
    for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = INT(from + i);
    return s;
}

static deft_axes axes_from(const call *c, size_t from)
{
    deft_axes a = { .n = (uint32_t)(c->k->n_numbers - from) };
    for (uint32_t i = 0; i < a.n; i++) a.at[i] = AXIS(from + i);
    return a;
}

#define CALL(name, expr)                                                                           \
    static bool call_##name(call *c)                                                               \
    {                                                                                              \
        return (c->out[0] = (expr)) != NULL;                                                       \
    }
#define UNARY(name) CALL(name, deft_##name(X(0)))
#define BINARY(name) CALL(name, deft_##name(X(0), X(1)))
#define REDUCE(name) CALL(name, deft_##name(X(0), ONE(0), FLAG(1)))
DEFT_UNARY_OPS(UNARY)
DEFT_BINARY_OPS(BINARY)

CALL(nextafter_half, deft_nextafter_f(X(0), 1))
CALL(clamp_t, deft_clamp_t(X(0), INT(0) & 1 ? X(1) : NULL, INT(0) & 2 ? X(INT(0) - 1) : NULL))
CALL(real, deft_real(X(0)))
CALL(imag, deft_imag(X(0)))
CALL(conj, deft_conj(X(0)))
CALL(where, deft_where(X(0), X(1), X(2)))
CALL(astype, deft_cast(X(0), TYPE(0)))
CALL(zeros, deft_zeros(c->cx, DEFT_SHAPE(2, 3), TYPE(0)))
CALL(ones, deft_ones(c->cx, DEFT_SHAPE(2, 3), TYPE(0)))
CALL(full, deft_full_i(c->cx, DEFT_SHAPE(2, 3), TYPE(0), INT(1)))
CALL(zeros_like, deft_zeros_like(X(0)))
CALL(ones_like, deft_ones_like(X(0)))
CALL(full_like, deft_full_like_i(X(0), INT(0)))
CALL(eye_k, deft_eye_k(c->cx, INT(1), INT(2), INT(3), TYPE(0)))
CALL(arange, deft_arange_i(c->cx, INT(1), INT(2), INT(3), TYPE(0)))
CALL(linspace, deft_linspace(c->cx, NUM(1), NUM(2), INT(3), TYPE(0)))
CALL(linspace_open, deft_linspace_open(c->cx, NUM(1), NUM(2), INT(3), TYPE(0)))
CALL(tril, deft_tril(X(0), INT(0)))
CALL(triu, deft_triu(X(0), INT(0)))
CALL(flip, deft_flip(X(0), INT(0) == FLATTENED ? DEFT_ALL_AXES : ONE(0)))
CALL(roll, deft_roll(X(0), INT(0), axis_or_flat(NUM(1))))
CALL(roll_n, deft_roll_n(X(0), (const int64_t[]){ INT(0), INT(1) }, DEFT_AXES(0, 1)))
CALL(repeat, deft_repeat(X(0), INT(0), axis_or_flat(NUM(1))))
CALL(repeat_t, deft_repeat_t(X(0), X(1), 0, INT(0)))
CALL(unsqueeze, deft_unsqueeze(X(0), AXIS(0)))
CALL(expand_dims, deft_expand_dims(X(0), axes_from(c, 0)))
CALL(moveaxis, deft_moveaxis(X(0), ONE(0), ONE(1)))
CALL(concat, deft_concat(c->in, c->k->n_in, axis_or_flat(NUM(0))))
CALL(stack, deft_stack(c->in, c->k->n_in, AXIS(0)))
CALL(squeeze, deft_squeeze(X(0), ONE(0)))
CALL(reshape, deft_reshape(X(0), shape_from(c, 0)))
CALL(tile, deft_tile(X(0), shape_from(c, 0)))
CALL(permute, deft_permute(X(0), axes_from(c, 0)))
CALL(expand, deft_expand(X(0), shape_from(c, 0)))
REDUCE(argmax)
REDUCE(argmin)
REDUCE(count_nonzero)
REDUCE(sum)
REDUCE(prod)
REDUCE(min)
REDUCE(max)
REDUCE(mean)
REDUCE(any)
REDUCE(all)
CALL(nonzero, deft_nonzero(X(0), INT(0), NULL))
CALL(sort, deft_sort(X(0), AXIS(0), FLAG(1)))
CALL(argsort, deft_argsort(X(0), AXIS(0), FLAG(1)))
CALL(searchsorted, deft_searchsorted(X(0), X(1), FLAG(0)))
CALL(isin, deft_isin(X(0), X(1), FLAG(0)))
CALL(unique, deft_unique(X(0), INT(0), NULL))
CALL(take, deft_take(X(0), X(1), AXIS(0)))
CALL(take_along_axis, deft_take_along_axis(X(0), X(1), AXIS(0)))
CALL(cumulative_sum, deft_cumulative_sum(X(0), AXIS(0), FLAG(1)))
CALL(cumulative_prod, deft_cumulative_prod(X(0), AXIS(0), FLAG(1)))
CALL(cummax, deft_cummax(X(0), AXIS(0)))
CALL(cummin, deft_cummin(X(0), AXIS(0)))
CALL(var, deft_var(X(0), ONE(0), FLAG(1), AXIS(2)))
CALL(std, deft_std(X(0), ONE(0), FLAG(1), AXIS(2)))
CALL(diff, deft_diff(X(0), INT(0), AXIS(1), INT(2) == 1 ? X(1) : NULL, INT(2) == 2 ? X(1) : NULL))

REDUCE(logsumexp)
REDUCE(nansum)
REDUCE(nanprod)
REDUCE(nanmin)
REDUCE(nanmax)
REDUCE(nanmean)
CALL(nanvar, deft_nanvar(X(0), ONE(0), FLAG(1), AXIS(2)))
CALL(nanstd, deft_nanstd(X(0), ONE(0), FLAG(1), AXIS(2)))
CALL(vector_norm, deft_vector_norm(X(0), NUM(0), ONE(1), FLAG(2)))
CALL(median, deft_median(X(0), AXIS(0), FLAG(1)))
CALL(quantile, deft_quantile(X(0), NUM(0), AXIS(1), FLAG(2)))
CALL(histogram, deft_histogram(X(0), X(1)))
CALL(histc, deft_histc(X(0), INT(0), NUM(1), NUM(2)))
CALL(bucketize, deft_bucketize(X(0), X(1), FLAG(0)))
CALL(logcumsumexp, deft_logcumsumexp(X(0), AXIS(0)))
CALL(shift, deft_shift(X(0), (const int64_t[]){ INT(0), INT(1) }, (deft_pad_mode)INT(2), NUM(3)))

static deft_tensor *of_numbers(const call *c, const double *v, int64_t n, deft_dtype as)
{
    return deft_cast(deft_from(c->cx, deft_shape_of(1, &n), DEFT_F64, v, (size_t)n * sizeof *v),
                     as);
}

CALL(isdtype, deft_full_i(c->cx, DEFT_SHAPE(), DEFT_BOOL, deft_isdtype(TYPE(0), (unsigned)INT(1))))
CALL(can_cast, deft_full_i(c->cx, DEFT_SHAPE(), DEFT_BOOL, deft_can_cast(TYPE(0), TYPE(1))))
CALL(result_type, deft_zeros(c->cx, DEFT_SHAPE(0), deft_result_type(c->in, c->k->n_in)))

static bool call_finfo(call *c)
{
    const deft_float_info i = deft_finfo(TYPE(0));
    const double v[5] = { i.bits, i.eps, i.max, i.min, i.smallest_normal };
    return (c->out[0] = of_numbers(c, v, 5, DEFT_F64)) != NULL;
}

static bool call_iinfo(call *c)
{
    const deft_int_info i = deft_iinfo(TYPE(0));
    const int64_t v[3] = { i.bits, (int64_t)i.max, i.min };
    return (c->out[0] = deft_from(c->cx, DEFT_SHAPE(3), DEFT_I64, v, sizeof v)) != NULL;
}

static bool call_meshgrid(call *c)
{
    return deft_meshgrid(c->in, c->k->n_in, FLAG(0), c->out) == DEFT_OK;
}

static bool call_broadcast_tensors(call *c)
{
    return deft_broadcast_tensors(c->in, c->k->n_in, c->out) == DEFT_OK;
}

static bool call_broadcast_shapes(call *c)
{
    const deft_shape s[2] = { deft_shape_get(X(0)), deft_shape_get(X(1)) };
    deft_shape out;
    double v[DEFT_MAX_RANK];
    if (!deft_broadcast_shapes(s, 2, &out)) return false;
    for (uint32_t i = 0; i < out.rank; i++) v[i] = (double)out.dim[i];
    return (c->out[0] = of_numbers(c, v, out.rank, DEFT_I64)) != NULL;
}

static bool call_unstack(call *c)
{
    return deft_unstack(X(0), AXIS(0), (size_t)deft_dim(X(0), AXIS(0)), c->out) == DEFT_OK;
}

static bool call_unique_all(call *c)
{
    c->out[0] = deft_unique_all(X(0), INT(0), &c->out[1], &c->out[2], &c->out[3], NULL);
    return c->out[0] != NULL;
}

static const struct {
    const char *name;
    bool (*f)(call *);
} calls[] = {
#define ROW(name) { #name, call_##name },
    DEFT_UNARY_OPS(ROW) DEFT_BINARY_OPS(ROW) ROW(nextafter_half) ROW(clamp_t) ROW(real) ROW(imag)
        ROW(conj) ROW(where) ROW(astype) ROW(zeros) ROW(ones) ROW(full) ROW(zeros_like)
            ROW(ones_like) ROW(full_like) ROW(eye_k) ROW(arange) ROW(linspace) ROW(linspace_open)
                ROW(tril) ROW(triu) ROW(flip) ROW(roll) ROW(roll_n) ROW(repeat) ROW(repeat_t) ROW(
                    unsqueeze) ROW(expand_dims) ROW(moveaxis) ROW(concat) ROW(stack) ROW(squeeze)
                    ROW(reshape) ROW(tile) ROW(permute) ROW(expand) ROW(argmax) ROW(argmin)
                        ROW(count_nonzero) ROW(sum) ROW(prod) ROW(min) ROW(max) ROW(mean) ROW(any)
                            ROW(all) ROW(nonzero) ROW(sort) ROW(argsort) ROW(searchsorted) ROW(isin)
                                ROW(unique) ROW(take) ROW(take_along_axis) ROW(cumulative_sum)
                                    ROW(cumulative_prod) ROW(cummax) ROW(cummin) ROW(var) ROW(std)
                                        ROW(diff) ROW(nansum) ROW(nanprod) ROW(nanmin) ROW(nanmax)
                                            ROW(nanmean) ROW(nanvar) ROW(nanstd) ROW(vector_norm)
                                                ROW(median) ROW(quantile) ROW(histogram) ROW(histc)
                                                    ROW(bucketize) ROW(logcumsumexp) ROW(logsumexp)
                                                        ROW(shift) ROW(isdtype) ROW(can_cast)
                                                            ROW(result_type) ROW(finfo) ROW(iinfo)
                                                                ROW(meshgrid) ROW(broadcast_tensors)
                                                                    ROW(broadcast_shapes)
                                                                        ROW(unstack) ROW(unique_all)
};

/* ---- the file ---- */

static void stop(const char *why, const char *at)
{
    printf("%s: %.60s\n", why, at);
    exit(1);
}

static deft_dtype dtype_named(const char *name, size_t n)
{
    for (int t = 0; t < DEFT_N_DTYPES; t++)
        if (strlen(deft_dtype_name((deft_dtype)t)) == n &&
            !strncmp(deft_dtype_name((deft_dtype)t), name, n))
            return (deft_dtype)t;
    stop("no such dtype", name);
    return DEFT_BOOL;
}

/* The dtype of the parts of a complex number; t itself when it is another one. */
static deft_dtype part_of(deft_dtype t)
{
    return t == DEFT_C64 ? DEFT_F32 : t == DEFT_C128 ? DEFT_F64 : t;
}

/* Reads one tensor; *at is moved behind it. */
static datum read_datum(char **at)
{
    datum d = { 0 };
    char *p = *at, *const colon = strchr(p, ':');
    if (!colon) stop("no tensor", p);
    d.dtype = dtype_named(p, (size_t)(colon - p));
    int64_t n = 1;
    for (p = colon + 1; *p != ':';) {
        if (d.shape.rank == DEFT_MAX_RANK) stop("too many axes", p);
        const int64_t dim = strtoll(p, &p, 10);
        d.shape.dim[d.shape.rank++] = dim;
        n *= dim;
        p += *p == ',';
    }
    const size_t size = deft_dtype_size(part_of(d.dtype));
    d.size = (size_t)n * deft_dtype_size(d.dtype);
    d.bytes = calloc(1, d.size + 1);
    if (!d.bytes) stop("no memory", p);
    p++;
    for (size_t i = 0; i < d.size / size; i++) {
        const uint64_t bits = strtoull(p, &p, 16);
        df_bits_store(d.bytes + i * size, bits, size);
        p += *p == ',';
    }
    if (*p == '~') d.ulps = strtod(p + 1, &p);
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
    char *const bar = strchr(line, '|'), *const second = bar ? strchr(bar + 1, '|') : NULL;
    if (!second) stop("no case", line);
    *bar = *second = 0;
    int used = 0;
    if (sscanf(line, "%47s%n", k->name, &used) != 1) stop("no name", line);
    for (char *p = line + used, *end; k->n_numbers < MAX_NUMBERS; p = end) {
        const double v = strtod(p, &end);
        if (end == p) break;
        k->number[k->n_numbers++] = v;
    }
    k->n_in = read_data(bar + 1, k->in);
    k->refused = strchr(second + 1, '!') != NULL;
    if (!k->refused) k->n_out = read_data(second + 1, k->out);
}

static void free_case(kase *k)
{
    for (size_t i = 0; i < k->n_in; i++) free(k->in[i].bytes);
    for (size_t i = 0; i < k->n_out; i++) free(k->out[i].bytes);
}

/* ---- comparing ---- */

static double as_double(deft_dtype t, const unsigned char *p)
{
    float f;
    double d;
    memcpy(&f, p, t == DEFT_F64 ? 0 : sizeof f);
    if (t == DEFT_F64) memcpy(&d, p, sizeof d);
    return t == DEFT_F64 ? d : (double)f;
}

/* The distance of a and b in units of the last place of b. */
static double distance(deft_dtype t, double a, double b)
{
    int e;
    if (isinf(a) || isinf(b) || a == b) return a == b ? 0 : INFINITY;
    (void)frexp(b, &e);
    const int digits = t == DEFT_F64 ? 53 : 24, least = t == DEFT_F64 ? -1074 : -149;
    return fabs(a - b) / ldexp(1, e - digits < least ? least : e - digits);
}

static bool is_nan_f16(const unsigned char *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return (h & 0x7fffu) > 0x7c00u;
}

/* Parts of complex numbers may differ by places of the greater part. Zeros of both signs are equal
 * only where the numbers may differ. */
static bool equal_part(const datum *want, const unsigned char *got, size_t i)
{
    const deft_dtype t = part_of(want->dtype);
    const size_t size = deft_dtype_size(t);
    const double x = as_double(t, got + i * size), y = as_double(t, want->bytes + i * size);
    const double other = as_double(t, want->bytes + (i ^ 1) * size);
    if (!memcmp(got + i * size, want->bytes + i * size, size)) return true;
    if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
    const double by = fmax(fabs(y), isfinite(other) ? fabs(other) : 0);
    return (x != y || want->ulps > 0) && isfinite(x) && isfinite(y) &&
           distance(t, by + fabs(x - y), by) <= want->ulps;
}

static bool equal(const datum *want, const unsigned char *got, size_t i)
{
    if (part_of(want->dtype) != want->dtype) return equal_part(want, got, i);
    const size_t size = deft_dtype_size(want->dtype);
    const unsigned char *const a = got + i * size, *const b = want->bytes + i * size;
    if (!memcmp(a, b, size)) return true;
    if (want->dtype == DEFT_F16) return is_nan_f16(a) && is_nan_f16(b);
    if (want->dtype != DEFT_F32 && want->dtype != DEFT_F64) return false;
    const double x = as_double(want->dtype, a), y = as_double(want->dtype, b);
    if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
    return x != y && distance(want->dtype, x, y) <= want->ulps; /* zeros differ in sign */
}

static void fail(const kase *k, int line, const char *why)
{
    if (n_failed++ < 60) printf("%d: %s (%s): %s\n", line, k->name, how, why);
}

static bool same_shape(const deft_shape *a, const deft_shape *b)
{
    return a->rank == b->rank && !memcmp(a->dim, b->dim, a->rank * sizeof *a->dim);
}

static void compare(const call *c, size_t i, int line)
{
    char why[200];
    const datum *const want = &c->k->out[i];
    deft_tensor *const t = c->out[i];
    const deft_shape s = deft_shape_get(t);
    if (deft_dtype_of(t) != want->dtype || !same_shape(&s, &want->shape)) {
        snprintf(why, sizeof why,
                 "result %zu is %s of rank %u, not %s of rank %u, or its extents differ", i,
                 deft_dtype_name(deft_dtype_of(t)), s.rank, deft_dtype_name(want->dtype),
                 want->shape.rank);
        fail(c->k, line, why);
        return;
    }
    unsigned char *const got = calloc(1, want->size + 1);
    if (!got) stop("no memory", c->k->name);
    const size_t size = deft_dtype_size(part_of(want->dtype));
    if (deft_read(t, want->dtype, got, want->size) != DEFT_OK) {
        fail(c->k, line, deft_message(c->cx));
    } else {
        for (size_t e = 0; e < want->size / size; e++) {
            if (equal(want, got, e)) continue;
            const uint64_t a = df_bits_load(got + e * size, size);
            const uint64_t b = df_bits_load(want->bytes + e * size, size);
            snprintf(why, sizeof why, "result %zu, element %zu: %llx, NumPy has %llx", i, e,
                     (unsigned long long)a, (unsigned long long)b);
            fail(c->k, line, why);
            break;
        }
    }
    free(got);
    n_passed++;
}

static void run(deft_ctx *cx, const kase *k, int line)
{
    call c = { .cx = cx, .k = k };
    bool (*f)(call *) = NULL;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(calls[i].name, k->name)) f = calls[i].f;
    if (!f) stop("no such call", k->name);
    const deft_scope s = deft_scope_begin(cx);
    for (size_t i = 0; i < k->n_in; i++)
        c.in[i] = deft_from(cx, k->in[i].shape, k->in[i].dtype, k->in[i].bytes, k->in[i].size);
    const bool ok = f(&c);
    if (ok == k->refused)
        fail(k, line, ok ? "was not refused" : deft_message(cx));
    else if (k->refused)
        n_passed++;
    for (size_t i = 0; ok && i < k->n_out; i++) compare(&c, i, line);
    deft_clear(cx);
    if (deft_scope_end(s) != DEFT_OK) fail(k, line, deft_message(cx));
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
    for (int at = 1; getline(&line, &room, f) > 0; at++) {
        kase k = { 0 };
        read_case(line, &k);
        if (!only || !strcmp(only, k.name)) run(cx, &k, at);
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
    printf("%ld results compared, %ld failed\n", n_passed, n_failed);
    return n_failed > 0;
}
