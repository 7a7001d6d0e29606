/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix of complex operators: every operator that takes complex tensors x {c64, c128} x
 * layouts x forms x shapes, interpreted and compiled. Values are near those of C's <complex.h> in
 * long double, and all paths have the bits of the interpreter without fusion.
 *
 *   complex_matrix [--quick | --full] [-v] [FILTER]     FILTER: part of the name of an operator
 *
 * Complex dtypes are no dtypes of a record, so op_matrix.c does not have them. An operator of ops.h
 * that takes complex tensors and has no row here fails by name. The numbers of operands are
 * ordinary ones: special values and branch cuts are in tests/unit/test_complex.c.
 *
 * Why this file is long: a row and a reference for every operator.
 */
#include "../support/budget.h"
#include "../support/oracle.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#undef I
#undef complex
#define I _Complex_I

#define LEN(a) (sizeof(a) / sizeof *(a))

typedef long double real;
typedef long double _Complex number;

enum { POOL = 3000, SHIFTS = 400, MOST = 600 };

/* The numbers of all operands, in each dtype; the same ones. */
static float pool_c64[POOL][2];
static double pool_c128[POOL][2];
static float pool_f32[POOL]; /* their real parts */
static double pool_f64[POOL];

static void fill_pools(void)
{
    uint64_t s = 5;
    for (size_t i = 0; i < POOL; i++) {
        for (size_t k = 0; k < 2; k++) {
            const double v = (double)(oracle_next(&s) >> 52) / 683 - 3; /* in [-3, 3] */
            pool_c64[i][k] = (float)(fabs(v) < 0.01 ? 0.5 : v);
            pool_c128[i][k] = (double)pool_c64[i][k];
        }
        pool_f32[i] = pool_c64[i][0];
        pool_f64[i] = pool_c128[i][0];
    }
}

static number pool_number(int64_t i)
{
    return (real)pool_c128[i][0] + (real)pool_c128[i][1] * I;
}

/* ---- operands ---- */

typedef enum layout {
    L_COPY,   /* deft_from */
    L_NEXT,   /* wrapped from an element on */
    L_PADDED, /* wrapped; rows with gaps */
    L_FLIP,   /* both axes reversed */
    L_TURNED, /* transposed */
    L_SPREAD, /* one row for all */
    L_STEP,   /* every third column */
    L_CONJ,   /* conjugated */
    L_MADE,   /* pending: from its parts */
    N_LAYOUTS
} layout;

static const char *const layout_names[N_LAYOUTS] = { "copy",   "next", "padded", "flip", "turned",
                                                     "spread", "step", "conj",   "made" };

/* Element [i][j] of an operand is that at `at + i * row + j * column` of the pool. */
typedef struct operand {
    deft_tensor *t;
    int64_t at, row, column;
    bool is_conj;
} operand;

static deft_dtype real_of(deft_dtype t)
{
    return t == DEFT_C64 ? DEFT_F32 : DEFT_F64;
}

static const char *elements(deft_dtype t)
{
    if (t == DEFT_C64) return (const char *)pool_c64;
    if (t == DEFT_C128) return (const char *)pool_c128;
    return t == DEFT_F32 ? (const char *)pool_f32 : (const char *)pool_f64;
}

static deft_tensor *wrapped(deft_ctx *cx, deft_dtype t, int64_t at, int64_t m, int64_t n,
                            int64_t row)
{
    const size_t size = deft_dtype_size(t);
    return deft_wrap(cx, DEFT_SHAPE(m, n), t, elements(t) + (size_t)at * size,
                     (size_t)(POOL - at) * size, (int64_t[]){ row, 1 });
}

static deft_tensor *copied(deft_ctx *cx, deft_dtype t, int64_t at, int64_t m, int64_t n)
{
    const size_t size = deft_dtype_size(t);
    return deft_from(cx, DEFT_SHAPE(m, n), t, elements(t) + (size_t)at * size,
                     (size_t)(m * n) * size);
}

/* An operand of shape [m, n]. */
static operand make_operand(deft_ctx *cx, deft_dtype t, layout l, unsigned seed, int64_t m,
                            int64_t n)
{
    operand o = { .at = (int64_t)(seed * 7919u % SHIFTS), .row = n, .column = 1 };
    switch (l) {
    case L_COPY: o.t = copied(cx, t, o.at, m, n); break;
    case L_NEXT:
        o.at |= 1;
        o.t = wrapped(cx, t, o.at, m, n, n);
        break;
    case L_PADDED:
        o.row = n + 3;
        o.t = wrapped(cx, t, o.at, m, n, n + 3);
        break;
    case L_FLIP:
        o.t = deft_flip(copied(cx, t, o.at, m, n), DEFT_ALL_AXES);
        o.at += m * n - 1;
        o.row = -n;
        o.column = -1;
        break;
    case L_TURNED:
        o.t = deft_t(copied(cx, t, o.at, n, m));
        o.row = 1;
        o.column = m;
        break;
    case L_SPREAD:
        o.t = deft_expand(copied(cx, t, o.at, 1, n), DEFT_SHAPE(m, n));
        o.row = 0;
        break;
    case L_STEP:
        o.t = deft_slice(copied(cx, t, o.at, m, 3 * n), DEFT_FULL, DEFT_RS(0, DEFT_END, 3));
        o.row = 3 * n;
        o.column = 3;
        break;
    case L_CONJ:
        o.t = deft_conj(copied(cx, t, o.at, m, n));
        o.is_conj = true;
        break;
    case L_MADE: {
        deft_tensor *const x = copied(cx, t, o.at, m, n);
        const bool is_real = t == DEFT_F32 || t == DEFT_F64;
        o.t = is_real ? deft_neg(deft_neg(x)) : deft_complex(deft_real(x), deft_imag(x));
        break;
    }
    case N_LAYOUTS: break;
    }
    return o;
}

static number element(const operand *o, int64_t i, int64_t j)
{
    const number z = pool_number(o->at + i * o->row + j * o->column);
    return o->is_conj ? conjl(z) : z;
}

/* ---- what C says ---- */

static number c_neg(number z)
{
    return -z;
}
static number c_sign(number z)
{
    return z / cabsl(z);
}
static number c_round(number z)
{
    return CMPLXL(rintl(creall(z)), rintl(cimagl(z)));
}
static number c_square(number z)
{
    return z * z;
}
static number c_reciprocal(number z)
{
    return 1 / z;
}
static number c_rsqrt(number z)
{
    return 1 / csqrtl(z);
}
static number c_exp2(number z)
{
    return cexpl(z * logl(2));
}
static number c_expm1(number z)
{
    return cexpl(z) - 1;
}
static number c_log2(number z)
{
    return clogl(z) / logl(2);
}
static number c_log10(number z)
{
    return clogl(z) / logl(10);
}
static number c_log1p(number z)
{
    return clogl(1 + z);
}
static number c_abs(number z)
{
    return cabsl(z);
}
static number c_angle(number z)
{
    return cargl(z);
}
static number c_real(number z)
{
    return creall(z);
}
static number c_imag(number z)
{
    return cimagl(z);
}
static number c_no(number z)
{
    return 0 * creall(z);
}
static number c_yes(number z)
{
    return 1 + 0 * creall(z);
}

static number c_add(number a, number b)
{
    return a + b;
}
static number c_sub(number a, number b)
{
    return a - b;
}
static number c_mul(number a, number b)
{
    return a * b;
}
static number c_div(number a, number b)
{
    return a / b;
}
static number c_rsub(number a, number b)
{
    return b - a;
}
static number c_rdiv(number a, number b)
{
    return b / a;
}
static number c_pow(number a, number b)
{
    return cpowl(a, b);
}
static number c_rpow(number a, number b)
{
    return cpowl(b, a);
}
static number c_eq(number a, number b)
{
    return a == b;
}
static number c_ne(number a, number b)
{
    return a != b;
}
static number c_and(number a, number b)
{
    return a != 0 && b != 0;
}
static number c_or(number a, number b)
{
    return a != 0 || b != 0;
}
static number c_xor(number a, number b)
{
    return (a != 0) != (b != 0);
}

typedef number unary_ref(number);
typedef number binary_ref(number, number);

static const struct {
    const char *name;
    unary_ref *f;
} unary_refs[] = {
    { "neg", c_neg },        { "abs", c_abs },     { "sign", c_sign },
    { "square", c_square },  { "round", c_round }, { "sqrt", csqrtl },
    { "rsqrt", c_rsqrt },    { "exp", cexpl },     { "exp2", c_exp2 },
    { "expm1", c_expm1 },    { "log", clogl },     { "log2", c_log2 },
    { "log10", c_log10 },    { "log1p", c_log1p }, { "sin", csinl },
    { "cos", ccosl },        { "tan", ctanl },     { "asin", casinl },
    { "acos", cacosl },      { "atan", catanl },   { "sinh", csinhl },
    { "cosh", ccoshl },      { "tanh", ctanhl },   { "asinh", casinhl },
    { "acosh", cacoshl },    { "atanh", catanhl }, { "reciprocal", c_reciprocal },
    { "isnan", c_no },       { "isinf", c_no },    { "isfinite", c_yes },
    { "logical_not", c_no },
};

static const struct {
    const char *name;
    binary_ref *f;
} binary_refs[] = {
    { "add", c_add },         { "sub", c_sub },   { "mul", c_mul },         { "div", c_div },
    { "pow", c_pow },         { "rsub", c_rsub }, { "rdiv", c_rdiv },       { "rpow", c_rpow },
    { "eq", c_eq },           { "ne", c_ne },     { "logical_and", c_and }, { "logical_or", c_or },
    { "logical_xor", c_xor },
};

/* ---- cases ---- */

typedef enum form { WITH_SAME, WITH_SELF, WITH_REAL, OF_REAL, WITH_NUMBER, N_FORMS } form;

typedef struct row row;

typedef struct kase {
    const row *r;
    deft_dtype t;
    layout l;
    unsigned form, seed;
    int64_t m, n;
} kase;

/* One case on one path: what it gives. */
typedef deft_tensor *record_fn(deft_ctx *cx, const kase *k, const operand *a);
/* Element [i][j] of it, and the magnitude of what was added up to it. */
typedef number value_fn(const kase *k, const operand *a, int64_t i, int64_t j, real *size);

struct row {
    const char *name;
    deft_tensor *(*unary)(deft_tensor *);
    deft_tensor *(*binary)(deft_tensor *, deft_tensor *);
    record_fn *record;
    value_fn *value;
    unsigned n_forms;
    unary_ref *unary_ref;
    binary_ref *binary_ref;
};

static const real two_and_half = 2.5;

static operand second(deft_ctx *cx, const kase *k)
{
    const bool is_real = k->form == WITH_REAL || k->form == OF_REAL;
    return make_operand(cx, is_real ? real_of(k->t) : k->t,
                        is_real ? L_MADE : (layout)((k->l + k->seed) % N_LAYOUTS), k->seed + 1,
                        k->m, k->n);
}

static deft_tensor *record_binary(deft_ctx *cx, const kase *k, const operand *a)
{
    switch ((form)k->form) {
    case WITH_SELF: return k->r->binary(a->t, a->t);
    case WITH_NUMBER: return k->r->binary(a->t, deft_num(cx, (double)two_and_half));
    case OF_REAL: return k->r->binary(second(cx, k).t, a->t);
    case WITH_SAME:
    case WITH_REAL:
    case N_FORMS: break;
    }
    return k->r->binary(a->t, second(cx, k).t);
}

static number binary_value(const kase *k, const operand *a, int64_t i, int64_t j)
{
    const number x = element(a, i, j);
    if (k->form == WITH_SELF) return k->r->binary_ref(x, x);
    if (k->form == WITH_NUMBER) return k->r->binary_ref(x, two_and_half);
    const operand b = second(NULL, k);
    const number y = element(&b, i, j);
    if (k->form == WITH_SAME) return k->r->binary_ref(x, y);
    return k->form == OF_REAL ? k->r->binary_ref(creall(y), x) : k->r->binary_ref(x, creall(y));
}

/* ---- others ---- */

#define RECORD(name, ...)                                                                          \
    static deft_tensor *r_##name(deft_ctx *cx, const kase *k, const operand *a)                    \
    {                                                                                              \
        (void)cx, (void)k;                                                                         \
        return __VA_ARGS__;                                                                        \
    }
#define VALUE(name, ...)                                                                           \
    static number v_##name(const kase *k, const operand *a, int64_t i, int64_t j, real *size)      \
    {                                                                                              \
        number z = 0;                                                                              \
        (void)k, (void)size, (void)i, (void)j;                                                     \
        __VA_ARGS__;                                                                               \
        return z;                                                                                  \
    }
#define EACH_ROW for (int64_t q = 0; q < k->m; q++)
#define EACH_COLUMN for (int64_t q = 0; q < k->n; q++)

RECORD(sum, deft_sum(a->t, k->form ? DEFT_AXES(1) : DEFT_AXES(0), 1))
VALUE(sum, if (k->form) EACH_COLUMN z += element(a, i, q), *size += 3;
      else EACH_ROW z += element(a, q, j), *size += 3)
RECORD(mean, deft_mean(a->t, DEFT_AXES(1), 1))
VALUE(mean, EACH_COLUMN z += element(a, i, q) / (real)k->n; *size = 3)
RECORD(prod, deft_prod(a->t, DEFT_AXES(0), 1))
VALUE(prod, z = 1; EACH_ROW z *= element(a, q, j))
RECORD(cumsum, deft_cumsum(a->t, 1))
VALUE(cumsum, for (int64_t q = 0; q <= j; q++) z += element(a, i, q), *size += 3)
RECORD(cumprod, deft_cumprod(a->t, 0))
VALUE(cumprod, z = 1; for (int64_t q = 0; q <= i; q++) z *= element(a, q, j))
RECORD(any, deft_any(a->t, DEFT_AXES(1), 1))
VALUE(any, EACH_COLUMN if (element(a, i, q) != 0) z = 1)
RECORD(all, deft_all(a->t, DEFT_AXES(1), 1))
VALUE(all, z = 1; EACH_COLUMN if (element(a, i, q) == 0) z = 0)
RECORD(var, k->n ? deft_var(a->t, DEFT_AXES(1), 1, 0) : deft_real(a->t))
VALUE(var, number mean = 0; EACH_COLUMN mean += element(a, i, q) / (real)k->n;
      EACH_COLUMN z += powl(cabsl(element(a, i, q) - mean), 2) / (real)k->n; *size = 18)
RECORD(norm, deft_vector_norm(a->t, 2, DEFT_AXES(0), 1))
VALUE(norm, real s = 0; EACH_ROW s += powl(cabsl(element(a, q, j)), 2); z = sqrtl(s))
RECORD(angle, deft_angle(a->t))
VALUE(angle, z = c_angle(element(a, i, j)))
RECORD(real, deft_real(a->t))
VALUE(real, z = c_real(element(a, i, j)))
RECORD(imag, deft_imag(a->t))
VALUE(imag, z = c_imag(element(a, i, j)))
RECORD(conj, deft_conj(a->t))
VALUE(conj, z = conjl(element(a, i, j)))
RECORD(as_real, deft_view_as_complex(deft_view_as_real(a->t)))
VALUE(as_real, z = element(a, i, j))
RECORD(polar, deft_polar(deft_real(a->t), deft_imag(a->t)))
VALUE(polar, z = creall(element(a, i, j)) * cexpl(cimagl(element(a, i, j)) * I))
RECORD(where, deft_where(deft_gt(deft_real(a->t), deft_num(cx, 0)), a->t, second(cx, k).t))
VALUE(where, const operand b = second(NULL, k);
      z = creall(element(a, i, j)) > 0 ? element(a, i, j) : element(&b, i, j))
RECORD(cast, deft_cast(a->t, k->form ? DEFT_C64 : DEFT_C128))
RECORD(truth, deft_cast(a->t, DEFT_BOOL))
VALUE(truth, z = element(a, i, j) != 0)
RECORD(concat, deft_concat((deft_tensor *[]){ a->t, second(cx, k).t }, 2, 1))
VALUE(concat, const operand b = second(NULL, k);
      z = j < k->n ? element(a, i, j) : element(&b, i, j - k->n))
RECORD(roll, deft_roll(a->t, 1, 1))
VALUE(roll, z = element(a, i, (j + k->n - 1) % k->n))
RECORD(tril, deft_tril(a->t, 0))
VALUE(tril, z = j <= i ? element(a, i, j) : 0)
RECORD(pad, deft_pad(a->t, (int64_t[]){ 1, 0 }, (int64_t[]){ 0, 2 }, DEFT_PAD_CONSTANT, 0))
VALUE(pad, z = i >= 1 && j < k->n ? element(a, i - 1, j) : 0)
RECORD(matmul, deft_matmul(a->t, deft_t(k->form == 2   ? deft_real(second(cx, k).t)
                                        : k->form == 1 ? deft_conj(second(cx, k).t)
                                                       : second(cx, k).t)))
VALUE(
    matmul, const operand b = second(NULL, k); EACH_COLUMN {
        const number y = element(&b, j, q);
        z += element(a, i, q) * (k->form == 2 ? creall(y) : k->form == 1 ? conjl(y) : y);
        *size += 18;
    })

static deft_tensor *r_assign(deft_ctx *cx, const kase *k, const operand *a)
{
    deft_tensor *const to = deft_complex(deft_imag(a->t), deft_real(a->t));
    deft_assign(k->form ? deft_imag(to) : deft_real(to), deft_num(cx, 2));
    return to;
}
VALUE(assign, const number x = element(a, i, j);
      z = k->form ? cimagl(x) + 2 * I : 2 + creall(x) * I)

static deft_tensor *r_unary(deft_ctx *cx, const kase *k, const operand *a)
{
    (void)cx;
    return k->r->unary(a->t);
}

static number v_unary(const kase *k, const operand *a, int64_t i, int64_t j, real *size)
{
    (void)size;
    return k->r->unary_ref(element(a, i, j));
}

static number v_binary(const kase *k, const operand *a, int64_t i, int64_t j, real *size)
{
    (void)size;
    return binary_value(k, a, i, j);
}

#define U(id) { .name = #id, .unary = (deft_##id), .record = r_unary, .value = v_unary },
#define B(id)                                                                                      \
    { .name = #id,                                                                                 \
      .binary = (deft_##id),                                                                       \
      .record = record_binary,                                                                     \
      .value = v_binary,                                                                           \
      .n_forms = N_FORMS },
#define O(id, forms) { .name = #id, .record = r_##id, .value = v_##id, .n_forms = forms },
#define v_cast v_as_real
static row rows[] = {
    /* clang-format off */
    DEFT_UNARY_OPS(U) DEFT_BINARY_OPS(B)
    O(sum, 2) O(mean, 1) O(prod, 1) O(cumsum, 1) O(cumprod, 1) O(any, 1) O(all, 1) O(var, 1)
    O(norm, 1) O(angle, 1) O(real, 1) O(imag, 1) O(conj, 1) O(as_real, 1) O(polar, 1) O(where, 1)
    O(cast, 2) O(truth, 1) O(concat, 1) O(roll, 1) O(tril, 1) O(pad, 1) O(matmul, 3) O(assign, 2)
    /* clang-format on */
};

static unary_ref *unary_ref_of(const char *name)
{
    for (size_t i = 0; i < LEN(unary_refs); i++)
        if (!strcmp(unary_refs[i].name, name)) return unary_refs[i].f;
    return NULL;
}

static binary_ref *binary_ref_of(const char *name)
{
    for (size_t i = 0; i < LEN(binary_refs); i++)
        if (!strcmp(binary_refs[i].name, name)) return binary_refs[i].f;
    return NULL;
}

/* ---- running ---- */

static oracle_path paths[] = {
    { .name = "interp unfused", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
    { .name = "interp fused", .tier = DEFT_TIER_INTERPRET, .n_threads = 1 },
    { .name = "llvm O2", .tier = DEFT_TIER_FULL, .n_threads = 1 },
    { .name = "llvm O0", .tier = DEFT_TIER_QUICK, .n_threads = 1 },
};
static size_t n_paths;
static long n_cases[2], n_failures;

static void fail(const oracle_path *p, const kase *k, const char *what)
{
    if (++n_failures <= 100)
        printf("FAIL %s %s %s form %u seed %u [%lld,%lld] | %s | %s\n", k->r->name,
               deft_dtype_name(k->t), layout_names[k->l], k->form, k->seed, (long long)k->m,
               (long long)k->n, p->name, what);
    fflush(stdout);
}

/* What a path gives of a case. */
typedef struct result {
    deft_dtype t;
    deft_shape s;
    double at[2 * MOST];
} result;

static bool is_complex(deft_dtype t)
{
    return t == DEFT_C64 || t == DEFT_C128;
}

/* Reads n elements as pairs of f64, which have all f32. */
static bool read_pairs(deft_tensor *t, result *out)
{
    const size_t n = (size_t)oracle_numel(&out->s);
    static float f[2 * MOST];
    static uint8_t b[MOST];
    void *const to = out->t == DEFT_BOOL                        ? (void *)b
                     : out->t == DEFT_C64 || out->t == DEFT_F32 ? (void *)f
                                                                : (void *)out->at;
    if (n > MOST || deft_read(t, out->t, to, n * deft_dtype_size(out->t)) != DEFT_OK) return false;
    for (size_t i = 2 * n; i-- > 0;) {
        const size_t from = is_complex(out->t) ? i : i / 2;
        const double v = out->t == DEFT_BOOL ? b[from] : to == f ? (double)f[from] : out->at[from];
        out->at[i] = !is_complex(out->t) && i % 2 ? 0 : v;
    }
    return true;
}

static bool run_case(const oracle_path *p, const kase *k, result *out)
{
    const deft_scope s = deft_scope_begin(p->cx);
    const operand a = make_operand(p->cx, k->t, k->l, k->seed, k->m, k->n);
    deft_tensor *const t = k->r->record(p->cx, k, &a);
    bool ok = t != NULL;
    memset(out, 0, sizeof *out);
    if (ok) {
        out->t = deft_dtype_of(t);
        out->s = deft_shape_get(t);
        ok = read_pairs(t, out);
    }
    if (!ok) fail(p, k, deft_message(p->cx));
    deft_clear(p->cx);
    return deft_scope_end(s) == DEFT_OK && ok;
}

/* Holds a result against C. */
static void compare_with_c(const kase *k, const result *got)
{
    const operand a = make_operand(NULL, k->t, k->l, k->seed, k->m, k->n);
    const double eps = k->t == DEFT_C64 || got->t == DEFT_C64 ? 8e-6 : 3e-13;
    for (int64_t i = 0; i < got->s.dim[0]; i++)
        for (int64_t j = 0; j < got->s.dim[1]; j++) {
            const double *const g = &got->at[2 * (i * got->s.dim[1] + j)];
            real size = 0.05L;
            const number want = k->r->value(k, &a, i, j, &size);
            const real off = cabsl((real)g[0] + (real)g[1] * I - want);
            if (off <= (real)eps * fmaxl(size, cabsl(want))) continue;
            char text[200];
            snprintf(text, sizeof text, "element [%lld,%lld] is %.17g%+.17gi, in C %.17g%+.17gi",
                     (long long)i, (long long)j, g[0], g[1], (double)creall(want),
                     (double)cimagl(want));
            fail(&paths[0], k, text);
            return;
        }
}

static void one_case(const kase *k)
{
    static result want, got;
    n_cases[k->t == DEFT_C128]++;
    if (!run_case(&paths[0], k, &want)) return;
    compare_with_c(k, &want);
    for (size_t i = 1; i < n_paths; i++) {
        if (!run_case(&paths[i], k, &got)) continue;
        const size_t n = 2 * (size_t)oracle_numel(&want.s);
        if (got.t != want.t || memcmp(&got.s, &want.s, sizeof got.s) ||
            oracle_difference(DEFT_F64, got.at, want.at, n) < n)
            fail(&paths[i], k, "other bits than the interpreter without fusion");
    }
}

static const int64_t shapes[][2] = { { 3, 5 }, { 17, 16 }, { 0, 4 }, { 2, 33 },
                                     { 1, 1 }, { 8, 9 },   { 4, 1 }, { 1, 65 } };

/* Reductions over nothing, and operators that wrap around, need elements. */
static void cases_of(const row *r, deft_dtype t, bool is_full, uint64_t *die)
{
    const unsigned n_forms = r->n_forms ? r->n_forms : 1;
    for (unsigned f = 0; f < n_forms; f++)
        for (unsigned l = 0; l < N_LAYOUTS; l++) {
            if (!is_full && oracle_next(die) % (n_forms + 2) > 1) continue;
            for (size_t i = 0; i < LEN(shapes); i++) {
                if (!is_full && oracle_next(die) % 2 != 0) continue;
                kase k = { .r = r,
                           .t = t,
                           .l = (layout)l,
                           .form = f,
                           .seed = (unsigned)(oracle_next(die) >> 50),
                           .m = shapes[i][0],
                           .n = shapes[i][1] };
                one_case(&k);
            }
        }
}

/* Whether the library takes complex operands for an operator of ops.h. */
static bool takes_complex(const row *r)
{
    const kase k = { .r = r, .t = DEFT_C64, .m = 1, .n = 1, .form = WITH_SAME };
    deft_ctx *const cx = paths[0].cx;
    const deft_scope s = deft_scope_begin(cx);
    const operand a = make_operand(cx, k.t, L_COPY, 1, 1, 1);
    const bool yes = r->record(cx, &k, &a) != NULL && deft_error(cx) == DEFT_OK;
    deft_clear(cx);
    return deft_scope_end(s) == DEFT_OK && yes;
}

/* The rows with a reference come first; those that refuse complex tensors are left out. */
static size_t sort_rows(void)
{
    size_t n = 0;
    for (size_t i = 0; i < LEN(rows); i++) {
        row r = rows[i];
        const bool is_map = r.unary || r.binary;
        if (r.unary) r.unary_ref = unary_ref_of(r.name);
        if (r.binary) r.binary_ref = binary_ref_of(r.name);
        const bool has_ref = !is_map || r.unary_ref || r.binary_ref;
        const bool takes = takes_complex(&r);
        if (takes != has_ref) {
            printf("FAIL %s %s\n", r.name,
                   takes ? "takes complex tensors and has no reference here"
                         : "has a reference here and refuses complex tensors");
            n_failures++;
        }
        if (takes && has_ref) rows[n++] = r;
    }
    return n;
}

/* Whether the C library has a reference for the row. catanl and catanhl of musl 1.2.3 return values
 * of f32 alone. */
static bool has_reference(const row *r)
{
    static volatile const real x = 0.3L, y = 1.1L;
    const real got = creall(catanl(CMPLXL(x, y)));
    const bool is_precise = fabsl(got - 1.0172219678978514L) < 1e-15L;
    return is_precise || (strcmp(r->name, "atan") != 0 && strcmp(r->name, "atanh") != 0);
}

int main(int argc, char **argv)
{
    bool is_quick = false, is_full = false, verbose = false;
    const char *filter = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick"))
            is_quick = true;
        else if (!strcmp(argv[i], "--full"))
            is_full = true;
        else if (!strcmp(argv[i], "-v"))
            verbose = true;
        else
            filter = argv[i];
    }
    fill_pools();
    n_paths = oracle_open(paths, is_quick ? 3 : LEN(paths));
    const size_t n_rows = sort_rows();
    const uint32_t n = 2 * (uint32_t)n_rows, least = (uint32_t)oracle_least(n / 8);
    uint64_t die = 7;
    uint32_t i = 0;
    for (; i < n && (i < least || test_time_left(1)); i++) {
        const uint32_t which = test_scattered(i, n);
        const row *const r = &rows[which / 2];
        if (filter && !strstr(r->name, filter)) continue;
        if (!has_reference(r)) {
            printf("%s left out: the C library computes it in f32\n", r->name);
            continue;
        }
        const long before = n_failures;
        cases_of(r, which % 2 ? DEFT_C128 : DEFT_C64, is_full, &die);
        if (verbose) printf("%s: %ld failures\n", r->name, n_failures - before);
    }
    printf("op matrix: %ld cases: c64 %ld c128 %ld; %u of %u pairs of an operator and a dtype, %zu "
           "paths, %ld failures\n",
           n_cases[0] + n_cases[1], n_cases[0], n_cases[1], i, n, n_paths, n_failures);
    oracle_close(paths, n_paths);
    return n_failures != 0;
}
