/* SPDX-License-Identifier: Apache-2.0
 *
 * Fast mode: how far it may be from the strict result, and that infinities, zeros and NaN come out
 * as in strict mode all the same.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include "deft/deft.h"

enum { N = 1 << 16, SPECIAL = 10 };

typedef deft_tensor *(*build_fn)(deft_tensor *x, deft_tensor *y);

static deft_runtime *rt;
static deft_ctx *cx[2]; /* strict, fast */
static float x[N], y[N], got[2][N];

/* Bits of a linear congruential sequence: every exponent but those of denormals and of infinity,
 * or, in every other element, magnitudes from 2^-27 to 2^36. */
static void fill(void)
{
    static const float special[SPECIAL] = { 0,   -0.0f,  INFINITY, -INFINITY, NAN,
                                            1.f, 1e-40f, -1e-40f,  3e38f,     -3e38f };
    uint64_t state = 7;
    for (int i = 0; i < N; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint32_t bits = (uint32_t)(state >> 32);
        const uint32_t narrow = (bits & 0x80ffffff) | (100 + (bits >> 24 & 63)) << 23;
        const uint32_t wide = (bits & 0x80ffffff) | (1 + (bits >> 23) % 252) << 23;
        memcpy(&x[i], i % 2 ? &narrow : &wide, sizeof x[i]);
        y[i] = 1 + (float)(bits % 1000) / 500;
    }
    memcpy(x, special, sizeof special);
}

static void open_contexts(uint32_t max_vector_bytes)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_FULL,
                                     .max_vector_bytes = max_vector_bytes };
    cr_assert_eq(deft_runtime_create(&o, &rt), DEFT_OK);
    for (int fast = 0; fast < 2; fast++) {
        const deft_ctx_options c = { .size = sizeof c, .numerics = fast ? DEFT_FAST : DEFT_STRICT };
        cr_assert_eq(deft_ctx_create(rt, &c, &cx[fast]), DEFT_OK);
    }
}

static void tear_down(void)
{
    for (int i = 0; i < 2; i++) deft_ctx_destroy(&cx[i]);
    deft_runtime_destroy(&rt);
}

static void set_up(void)
{
    open_contexts(0);
    fill();
}

TestSuite(fast, .init = set_up, .fini = tear_down);

static deft_tensor *over(deft_tensor *a, deft_tensor *b)
{
    return deft_div(b, a);
}

static deft_tensor *root(deft_tensor *a, deft_tensor *b)
{
    (void)b;
    return deft_sqrt(a);
}

static deft_tensor *over_root(deft_tensor *a, deft_tensor *b)
{
    return deft_div(b, deft_sqrt(a));
}

static deft_tensor *sigmoid(deft_tensor *a, deft_tensor *b)
{
    (void)b;
    return deft_sigmoid(a);
}

static deft_tensor *gelu(deft_tensor *a, deft_tensor *b)
{
    (void)b;
    return deft_gelu(a);
}

static deft_tensor *erfc_of(deft_tensor *a, deft_tensor *b)
{
    (void)b;
    return deft_erfc(a);
}

static deft_tensor *tanh_of(deft_tensor *a, deft_tensor *b)
{
    return deft_mul(deft_tanh(a), b);
}

static void check(const char *name, build_fn build, double max_ulp, double floor)
{
    for (int fast = 0; fast < 2; fast++) {
        deft_tensor *const a = deft_from(cx[fast], DEFT_SHAPE(N), DEFT_F32, x, sizeof x);
        deft_tensor *const b = deft_from(cx[fast], DEFT_SHAPE(N), DEFT_F32, y, sizeof y);
        cr_assert_eq(deft_read(build(a, b), DEFT_F32, got[fast], sizeof got[fast]), DEFT_OK, "%s",
                     deft_message(cx[fast]));
    }
    for (int i = 0; i < N; i++) {
        const float want = got[0][i], have = got[1][i];
        cr_assert_eq(isnan(want), isnan(have), "%s(%a): %a, strict %a", name, (double)x[i],
                     (double)have, (double)want);
        if (isnan(want) || want == have) continue;
        cr_assert(!isinf(want) && !isinf(have), "%s(%a): %a, strict %a", name, (double)x[i],
                  (double)have, (double)want);
        const double ulp = fmax(fabs((double)want) * 0x1p-23, floor);
        cr_assert_leq(fabs((double)want - (double)have), max_ulp * ulp, "%s(%a): %a, strict %a",
                      name, (double)x[i], (double)have, (double)want);
    }
}

static void check_all(void)
{
    check("div", over, 2, 0);
    check("sqrt", root, 2, 0);
    check("div by sqrt", over_root, 3, 0);
    check("sigmoid", sigmoid, 4, 0x1p-126);
    check("tanh", tanh_of, 4, 0x1p-126);
    check("erfc", erfc_of, 8, 0x1p-126);
    check("gelu", gelu, 8, 0x1p-126);
}

Test(fast, is_near_strict_and_has_the_same_infinities_and_nans)
{
    check_all();
}

/* Of processors with vectors of 64 bytes, some divide by estimates and some do not. */
static void without_the_model(void)
{
    tear_down();
    open_contexts(64);
}

Test(fast, is_near_strict_whatever_model_has_vectors_of_64_bytes)
{
    without_the_model();
    check_all();
}

/* ---- every elementwise op at special values ---- */

/* One op of ops.def, by its class. A new op is here as soon as it has a row there; one whose public
 * function takes something else than tensors needs a wrapper below. */
typedef struct any_op {
    const char *name, *dtype_rule;
    deft_tensor *(*unary)(deft_tensor *);
    deft_tensor *(*binary)(deft_tensor *, deft_tensor *);
    deft_tensor *(*ternary)(deft_tensor *, deft_tensor *, deft_tensor *);
} any_op;

static deft_tensor *cube_inverse(deft_tensor *a)
{
    return deft_pow(a, -3);
}

static deft_tensor *to_f32(deft_tensor *a)
{
    return deft_cast(a, DEFT_F32);
}

static deft_tensor *choose(deft_tensor *a, deft_tensor *b, deft_tensor *c)
{
    return deft_where(deft_ne(a, b), b, c);
}

static deft_tensor *trigamma(deft_tensor *a)
{
    return deft_polygamma(1, a);
}

static deft_tensor *same_bits(deft_tensor *a)
{
    return deft_bitcast(a, deft_dtype_of(a));
}

#define deft_powi cube_inverse
#define deft_polygamma trigamma
#define deft_bitcast same_bits
#define deft_cast to_f32
#define deft_where choose
#define OP(name, n, class, facets) ROW_##class(name, facets)
#define DTYPE(rule) #rule
#define ROW_unary(op, rule) { .name = #op, .dtype_rule = rule, .unary = (deft_##op) },
#define ROW_binary(op, rule) { .name = #op, .dtype_rule = rule, .binary = (deft_##op) },
#define ROW_ternary(op, rule) { .name = #op, .dtype_rule = rule, .ternary = (deft_##op) },
#define ROW_leaf(op, rule)
#define ROW_reduce(op, rule)
#define ROW_scan(op, rule)
#define ROW_view(op, rule)
#define ROW_index(op, rule)
#define ROW_update(op, rule)
#define ROW_contract(op, rule)
#define ROW_routine(op, rule)
#define ROW_control(op, rule)

static const any_op ops[] = {
#include "ops/ops.def"
};
#undef deft_powi
#undef deft_polygamma
#undef deft_bitcast
#undef deft_cast
#undef deft_where

enum { TIMES = 4, MAX_SPECIALS = 64 };

/* Magnitudes at which some op changes its way, or at the ends of the format; of one sign. */
static const double magnitudes[] = {
    0,        0x1p-1074, 0x1.8p-1040, 0x1p-1022, 0x1p-149, 0x1.8p-140, 0x1.fp-130, 0x1p-128,
    0x1p-127, 0x1p-126,  0x1p-100,    0x1p-60,   1e-5,     0.5,        1,          1.5,
    2,        3,         9.25,        10.1,      13,       14.6,       30,         40,
    89,       104,       710,         1e5,       0x1p28,   1e10,       1e20,       0x1p104,
    0x1p126,  0x1p127,   3e38,        1e300,     0x1p1023, INFINITY,
};

static size_t specials_of(deft_dtype t, double v[2 * MAX_SPECIALS])
{
    size_t n = 0;
    for (size_t i = 0; i < sizeof magnitudes / sizeof *magnitudes; i++) {
        const double m = magnitudes[i];
        if (t == DEFT_F32 && (double)(float)m != m && m < 0x1p-149) continue;
        if (t == DEFT_F32 && isfinite(m) && m > 0x1.fffffep127) continue;
        v[n++] = m;
        v[n++] = -m;
    }
    v[n++] = NAN;
    return n;
}

/* Same NaN, infinity, zero and sign; else within 2^-20 (f32) or 2^-48 of it, or of the least
 * denormals. A quotient by a huge number has the few bits of that number's denormal inverse. */
static bool is_like(double want, double have, deft_dtype t)
{
    const double most = t == DEFT_F32 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;
    const double least = t == DEFT_F32 ? 0x1p-149 : 0x1p-1074;
    const double relative = t == DEFT_F32 ? 0x1p-20 : 0x1p-48;
    if (isnan(want) || isnan(have)) return isnan(want) && isnan(have);
    if (!signbit(want) != !signbit(have)) return false;
    if (want == have) return true;
    if (want == 0) return fabs(have) <= least; /* a result that was rounded to 0 */
    if (isinf(want)) return fabs(have) >= most * (1 - relative);
    if (isinf(have)) return fabs(want) >= most * (1 - relative);
    return fabs(want - have) <= fmax(fabs(want) * relative, 8 * least);
}

enum { UNARY, BINARY, TERNARY, N_KINDS };

static int kind_of(const any_op *op)
{
    return op->unary ? UNARY : op->binary ? BINARY : TERNARY;
}

static deft_tensor *apply(const any_op *op, deft_tensor *a, deft_tensor *b)
{
    return op->unary ? op->unary(a) : op->binary ? op->binary(a, b) : op->ternary(a, b, a);
}

/* What the ops of one kind are given: n values each, or one number as b. */
typedef struct operands {
    int kind;
    deft_dtype t;
    const double *a, *b;
    int64_t n;
    bool is_number;
} operands;

enum { N_OPS = sizeof ops / sizeof *ops, MAX_VALUES = 1 << 13 };
static double want[N_OPS][MAX_VALUES], have[N_OPS][MAX_VALUES];

static bool takes_floats(const any_op *op)
{
    return strcmp(op->dtype_rule, "integral") != 0;
}

/* All ops of the kind are computed by one plan, which is compiled once. */
static void compute(deft_ctx *c, const operands *in, double out[N_OPS][MAX_VALUES])
{
    const size_t size = (size_t)in->n * sizeof(double);
    const deft_shape all = DEFT_SHAPE(in->n), one = { 0 };
    deft_tensor *const a64 = deft_from(c, all, DEFT_F64, in->a, size);
    deft_tensor *const b64 = in->is_number ? deft_from(c, one, DEFT_F64, in->b, sizeof(double))
                                           : deft_from(c, all, DEFT_F64, in->b, size);
    deft_tensor *const operand[2] = { deft_cast(a64, in->t), deft_cast(b64, in->t) };
    cr_assert_eq(deft_eval(operand, 2), DEFT_OK, "%s", deft_message(c));
    deft_tensor *results[N_OPS];
    size_t n = 0, which[N_OPS];
    for (size_t o = 0; o < N_OPS; o++) {
        if (kind_of(&ops[o]) != in->kind || !takes_floats(&ops[o])) continue;
        which[n] = o;
        results[n++] = apply(&ops[o], operand[0], operand[1]);
    }
    cr_assert_eq(deft_eval(results, n), DEFT_OK, "%s", deft_message(c));
    for (size_t k = 0; k < n; k++)
        cr_assert_eq(deft_read(results[k], DEFT_F64, out[which[k]], size), DEFT_OK, "%s: %s",
                     ops[which[k]].name, deft_message(c));
}

static void compare(deft_ctx *strict, deft_ctx *fast, const operands *in)
{
    compute(strict, in, want);
    compute(fast, in, have);
    for (size_t o = 0; o < N_OPS; o++) {
        if (kind_of(&ops[o]) != in->kind || !takes_floats(&ops[o])) continue;
        for (int64_t i = 0; i < in->n; i++)
            cr_assert(is_like(want[o][i], have[o][i], in->t), "%s of %s (%a, %a): %a, strict %a",
                      ops[o].name, in->t == DEFT_F32 ? "f32" : "f64", in->a[i],
                      in->b[in->is_number ? 0 : i], have[o][i], want[o][i]);
    }
}

/* Each value alone, all pairs lane by lane, and some values as a number that all lanes share. */
static void check_specials(deft_ctx *strict, deft_ctx *fast)
{
    static double a[MAX_VALUES], b[MAX_VALUES], v[2 * MAX_SPECIALS];
    for (int wide = 0; wide < 2; wide++) {
        const deft_dtype t = wide ? DEFT_F64 : DEFT_F32;
        const size_t n = specials_of(t, v);
        cr_assert(n * n <= MAX_VALUES);
        for (size_t i = 0; i < n * n; i++) {
            a[i] = v[i % n];
            b[i] = v[i / n];
        }
        for (int kind = 0; kind < N_KINDS; kind++) {
            const size_t n_b = kind == UNARY ? TIMES : n;
            compare(strict, fast, &(operands){ kind, t, a, b, (int64_t)(n * n_b), false });
            for (size_t i = 0; i < n && kind == BINARY; i += i < 30 ? 1 : 7)
                compare(strict, fast, &(operands){ kind, t, a, &v[i], (int64_t)(TIMES * n), true });
        }
    }
}

static void with_interpreters(bool compiles)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    deft_runtime *plain = NULL;
    deft_ctx *c[2] = { NULL, NULL };
    cr_assert_eq(deft_runtime_create(&o, &plain), DEFT_OK);
    for (int fast = 0; fast < 2; fast++) {
        const deft_ctx_options by = { .size = sizeof by,
                                      .numerics = fast ? DEFT_FAST : DEFT_STRICT };
        cr_assert_eq(deft_ctx_create(plain, &by, &c[fast]), DEFT_OK);
    }
    check_specials(c[0], compiles ? cx[1] : c[1]);
    for (int fast = 0; fast < 2; fast++) deft_ctx_destroy(&c[fast]);
    deft_runtime_destroy(&plain);
}

Test(fast, every_op_has_the_strict_zeros_infinities_and_nans)
{
    with_interpreters(true);
}

Test(fast, every_op_has_the_strict_zeros_whatever_model_has_vectors_of_64_bytes)
{
    without_the_model();
    with_interpreters(true);
}

Test(fast, every_op_interpreted_has_the_strict_zeros_infinities_and_nans)
{
    with_interpreters(false);
}

/* The bits of a bf16 as a number. */
static double of_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

/* ---- chains of halves ---- */

enum { HALVES = 1000 };

static uint16_t half_x[HALVES], half_y[HALVES];

/* bf16 of either sign between 1 and 4 in x, and between 1 and 2 in y. */
static void fill_halves(void)
{
    uint64_t state = 11;
    for (int i = 0; i < HALVES; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        half_x[i] = (uint16_t)((state >> 40 & 0x807f) | (127 + (state >> 56 & 1)) << 7);
        half_y[i] = (uint16_t)((state >> 20 & 0x7f) | 127 << 7);
    }
}

typedef enum chain { CHAIN, RELU, TO_F32, SUM, ASKED, N_CHAINS } chain;

static deft_tensor *chain_of(deft_ctx *c, chain which)
{
    deft_tensor *const a = deft_from(c, DEFT_SHAPE(HALVES), DEFT_BF16, half_x, sizeof half_x);
    deft_tensor *const b = deft_from(c, DEFT_SHAPE(HALVES), DEFT_BF16, half_y, sizeof half_y);
    deft_tensor *const p = deft_mul(a, b);
    switch (which) {
    case CHAIN: return deft_sub(deft_mul(p, b), a);
    case RELU: return deft_relu(p);
    case TO_F32: return deft_cast(p, DEFT_F32);
    case SUM: return deft_cast(deft_cumsum(p, 0), DEFT_F32);
    case ASKED:
    case N_CHAINS: break;
    }
    deft_tensor *const wide = deft_mul(deft_cast(a, DEFT_F32), deft_cast(b, DEFT_F32));
    return deft_cast(deft_cast(wide, DEFT_BF16), DEFT_F32);
}

/* What is stored rounds once, and what is asked for is rounded: the distance from the exact result,
 * in halves of the last bit of a bf16. sum: the exact sum up to i. */
static double distance(chain which, int i, double z, double sum)
{
    const double a = of_bf16(half_x[i]), b = of_bf16(half_y[i]), p = a * b;
    const double exact = which == CHAIN  ? p * b - a
                         : which == RELU ? fmax(p, 0)
                         : which == SUM  ? sum
                                         : p;
    return exact == 0 ? fabs(z) : fabs(z - exact) / ldexp(1, ilogb(exact) - 8);
}

Test(fast, a_chain_of_halves_rounds_what_it_stores)
{
    static float z[HALVES];
    static const double bound[N_CHAINS] = { 1.01, 1, 0, 1.01, 1 };
    fill_halves();
    for (chain which = CHAIN; which < N_CHAINS; which++) {
        double worst = 0, sum = 0;
        deft_tensor *const t = chain_of(cx[1], which);
        cr_assert_eq(deft_read(t, DEFT_F32, z, sizeof z), DEFT_OK);
        for (int i = 0; i < HALVES; i++) {
            sum += of_bf16(half_x[i]) * of_bf16(half_y[i]);
            worst = fmax(worst, distance(which, i, (double)z[i], sum));
        }
        cr_expect_leq(worst, bound[which], "chain %d: %g", (int)which, worst);
        if (which == ASKED) cr_expect_gt(worst, 0.9);
    }
}

/* ---- products of bf16 ---- */

/* Expects each element of a fast product to be within the bound of src/runtime/bf16/bf16.h of the
 * exact sum. is_transposed: the transposed b lies in memory. */
static void expect_bound(int64_t m, int64_t n, int64_t k, bool is_transposed)
{
    static uint16_t a[300 * 300], b[300 * 300];
    static float c[300 * 300];
    uint64_t state = (uint64_t)(m * 1000003 + n * 1009 + k);
    for (size_t i = 0; i < sizeof a / sizeof *a; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        a[i] = (uint16_t)((state >> 40 & 0x807f) | (120 + (state >> 56 & 15)) << 7);
        b[i] = (uint16_t)((state >> 20 & 0x807f) | (120 + (state >> 32 & 15)) << 7);
    }
    deft_ctx *const fast = cx[1];
    const deft_scope s = deft_scope_begin(fast);
    deft_tensor *const left = deft_from(fast, DEFT_SHAPE(m, k), DEFT_BF16, a, (size_t)(m * k) * 2);
    deft_tensor *const right = deft_from(fast, is_transposed ? DEFT_SHAPE(n, k) : DEFT_SHAPE(k, n),
                                         DEFT_BF16, b, (size_t)(k * n) * 2);
    deft_tensor *const z = deft_matmul(deft_cast(left, DEFT_F32),
                                       deft_cast(is_transposed ? deft_t(right) : right, DEFT_F32));
    cr_assert_eq(deft_read(z, DEFT_F32, c, (size_t)(m * n) * sizeof *c), DEFT_OK);
    cr_assert_eq(deft_scope_end(s), DEFT_OK);
    for (int64_t i = 0; i < m * n; i++) {
        double sum = 0, all = 0;
        for (int64_t p = 0; p < k; p++) {
            const double product = of_bf16(a[i / n * k + p]) *
                                   of_bf16(is_transposed ? b[i % n * k + p] : b[p * n + i % n]);
            sum += product;
            all += fabs(product);
        }
        cr_assert_leq(fabs((double)c[i] - sum), ldexp((double)k * all, -23), "%d x %d x %d at %d",
                      (int)m, (int)n, (int)k, (int)i);
    }
}

Test(fast, products_of_bf16_are_within_their_bound)
{
    static const int64_t shapes[][3] = { { 1, 1, 300 },    { 1, 300, 299 }, { 7, 50, 129 },
                                         { 300, 1, 64 },   { 33, 97, 258 }, { 64, 64, 1 },
                                         { 150, 100, 300 } };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int is_transposed = 0; is_transposed < 2; is_transposed++)
            expect_bound(shapes[i][0], shapes[i][1], shapes[i][2], is_transposed);
}

/* Whether fast kernels divide f32 by a number of each row as strict kernels do. */
static bool divides_rows(void)
{
    const char *const compiler = deft_runtime_compiler(rt);
    return strstr(compiler, " znver") && strstr(compiler, "64-byte");
}

/* Rows of n, each over its greatest element. The order of a maximum changes no bit. */
static void expect_quotients_of_rows(int64_t n, double max_ulp)
{
    const int64_t rows = 9, count = rows * n;
    for (int fast = 0; fast < 2; fast++) {
        const deft_scope s = deft_scope_begin(cx[fast]);
        deft_tensor *const a = deft_abs(
            deft_from(cx[fast], DEFT_SHAPE(rows, n), DEFT_F32, x, (size_t)count * sizeof *x));
        deft_tensor *const z = deft_div(a, deft_max(a, DEFT_AXES(1), 1));
        cr_assert_eq(deft_read(z, DEFT_F32, got[fast], (size_t)count * sizeof *x), DEFT_OK, "%s",
                     deft_message(cx[fast]));
        cr_assert_eq(deft_scope_end(s), DEFT_OK);
    }
    for (int64_t i = 0; i < count; i++) {
        const double wanted = (double)got[0][i], found = (double)got[1][i];
        if (isnan(wanted) && isnan(found)) continue;
        const double most = max_ulp * fmax(fabs(wanted) * 0x1p-23, 0x1p-149);
        cr_assert(fabs(wanted - found) <= most, "rows of %d: %a over its greatest is %a, strict %a",
                  (int)n, (double)x[i], found, wanted);
    }
}

Test(fast, rows_over_a_number_of_their_own_have_the_strict_bits_where_division_is_fast)
{
    const double max_ulp = divides_rows() ? 0 : 2;
    for (int64_t n = 1; n <= 70; n++) expect_quotients_of_rows(n, max_ulp);
    static const int64_t longer[] = { 127, 513, 1001, 4097, 4301 };
    for (size_t i = 0; i < sizeof longer / sizeof *longer; i++)
        expect_quotients_of_rows(longer[i], max_ulp);
}

/* ---- one special value in a block ---- */

enum { FEW = 1003, ROWS = 17, COLS = FEW / ROWS }; /* no multiple of a vector's lanes */

/* The update of Adam without its epsilon. Its divisor is 0, infinite or NaN where the root is. */
static deft_tensor *step_of_adam(deft_tensor *v, deft_tensor *m)
{
    return deft_sub(m, deft_mul(deft_div(m, deft_sqrt(deft_div(v, 0.75))), 0.01));
}

static deft_tensor *quotients(deft_tensor *a, deft_tensor *b)
{
    return deft_add(deft_div(b, a), deft_div(deft_mul(b, 1e-30), 1e-39));
}

/* A comparison does not keep a NaN, and so must not read one that stands for another value. */
static deft_tensor *chosen_by_quotient(deft_tensor *a, deft_tensor *b)
{
    return deft_where(deft_lt(deft_div(b, a), 3), b, deft_mul(b, 5));
}

static deft_tensor *sums_of_quotients(deft_tensor *a, deft_tensor *b)
{
    const deft_shape shape = DEFT_SHAPE(ROWS, COLS);
    deft_tensor *const q = deft_div(b, deft_sqrt(a));
    return deft_sum(deft_reshape(deft_add(q, deft_div(a, b)), shape), DEFT_AXES(1), 0);
}

static void run_few(int fast, build_fn build, int64_t n_out)
{
    const deft_scope s = deft_scope_begin(cx[fast]);
    deft_tensor *const a = deft_from(cx[fast], DEFT_SHAPE(FEW), DEFT_F32, x, FEW * sizeof *x);
    deft_tensor *const b = deft_from(cx[fast], DEFT_SHAPE(FEW), DEFT_F32, y, FEW * sizeof *y);
    cr_assert_eq(deft_read(build(a, b), DEFT_F32, got[fast], (size_t)n_out * sizeof *x), DEFT_OK,
                 "%s", deft_message(cx[fast]));
    cr_assert_eq(deft_scope_end(s), DEFT_OK);
}

/* The result that has the special value is near the strict one, and no other has changed. */
static void expect_only(const char *name, const float *before, int64_t n_out, int64_t at, float v)
{
    for (int64_t i = 0; i < n_out; i++)
        cr_assert(i == at || memcmp(&before[i], &got[1][i], sizeof *before) == 0,
                  "%s: %a at %d changes result %d from %a to %a", name, (double)v, (int)at, (int)i,
                  (double)before[i], (double)got[1][i]);
    const float wanted = got[0][at], found = got[1][at];
    if ((isnan(wanted) && isnan(found)) || wanted == found) return;
    cr_assert_leq(fabs((double)wanted - (double)found), 8 * 0x1p-23 * fabs((double)wanted),
                  "%s: %a at %d gives %a, strict %a", name, (double)v, (int)at, (double)found,
                  (double)wanted);
}

static void expect_alone(const char *name, build_fn build, int64_t n_out)
{
    static const float special[] = { 0,         -0.0f,      INFINITY,  -INFINITY, NAN,   1e-40f,
                                     0x1p-128f, -0x1p-149f, 0x1p-126f, 0x1p127f,  -2.5f, 3e38f };
    static const int64_t places[] = { 0, 5, 16, 63, 64, 209, 511, 768, 1001, FEW - 1 };
    static float before[FEW];
    for (int i = 0; i < FEW; i++) x[i] = 0.25f + (float)(i * 37 % 101) / 64, y[i] = 1 + x[i] / 8;
    run_few(1, build, n_out);
    memcpy(before, got[1], sizeof before);
    for (size_t p = 0; p < sizeof places / sizeof *places; p++)
        for (size_t k = 0; k < sizeof special / sizeof *special; k++) {
            const float kept = x[places[p]];
            x[places[p]] = special[k];
            for (int fast = 0; fast < 2; fast++) run_few(fast, build, n_out);
            expect_only(name, before, n_out, n_out == FEW ? places[p] : places[p] / COLS,
                        special[k]);
            x[places[p]] = kept;
        }
}

static void expect_all_alone(void)
{
    expect_alone("a step of Adam", step_of_adam, FEW);
    expect_alone("a quotient", quotients, FEW);
    expect_alone("a choice", chosen_by_quotient, FEW);
    expect_alone("a sum", sums_of_quotients, ROWS);
}

Test(fast, one_special_value_changes_no_result_beside_it)
{
    expect_all_alone();
}

Test(fast, one_special_value_changes_none_whatever_model_has_vectors_of_64_bytes)
{
    without_the_model();
    expect_all_alone();
}
