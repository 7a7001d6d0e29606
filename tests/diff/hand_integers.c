/* SPDX-License-Identifier: Apache-2.0
 *
 * Integers of every dtype against C: all codes of 8 and 16 bits, all pairs of 8 bits, and awkward
 * and random numbers of 32 and 64 bits, on every path.
 *
 *   hand_integers [FILTER]     FILTER: part of the name of a test
 */
#include "ops/dtype.h"
#include "../support/half_ref.h"
#include "../support/int_ref.h"
#include "../support/oracle.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))
enum { N = 65536 };

static long n_checks, n_failures;
static const char *path_name = "", *filter;
static deft_ctx *cx;
static deft_dtype t;         /* the dtype that is tested */
static int64_t a[N], b[N];   /* the operands; a value of u64 is given by its bits */
static deft_tensor *ta, *tb; /* the same as tensors */
static char data[N * 8], other[N * 8], want[N * 8], got[N * 8];

static void fail(const char *fmt, ...)
{
    va_list ap;
    if (++n_failures > 100) return;
    printf("FAIL %s | %s | ", path_name, deft_dtype_name(t));
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    fflush(stdout);
}

/* x must hold exactly the n first elements of want. */
static void expect(const char *what, deft_tensor *x, deft_dtype d, size_t n)
{
    char is[64], wanted[64];
    n_checks++;
    if (!x || deft_dtype_of(x) != d || (size_t)deft_numel(x) != n ||
        deft_read(x, d, got, n * deft_dtype_size(d)) != DEFT_OK) {
        fail("%s: %s, %s", what, x ? deft_dtype_name(deft_dtype_of(x)) : "none", deft_message(cx));
        deft_clear(cx);
        return;
    }
    const size_t k = oracle_difference(d, want, got, n);
    if (k < n)
        fail("%s: element %zu (of %lld, %lld) is %s, expected %s", what, k, (long long)a[k],
             (long long)b[k], oracle_text(d, got, k, is, sizeof is),
             oracle_text(d, want, k, wanted, sizeof wanted));
}

/* ---- what C says ---- */

static bool is_negative(int64_t v)
{
    return int_ref_is_signed(t) && v < 0;
}

static int64_t quotient(int64_t x, int64_t y)
{
    if (y == 0) return 0;
    if (!int_ref_is_signed(t)) return (int64_t)((uint64_t)x / (uint64_t)y);
    return y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}

static int64_t rest(int64_t x, int64_t y)
{
    if (y == 0) return x;
    if (!int_ref_is_signed(t)) return (int64_t)((uint64_t)x % (uint64_t)y);
    return y == -1 ? 0 : x % y;
}

/* Whether the quotient rounded down is one less than the truncated one. */
static bool steps(int64_t x, int64_t y)
{
    const int64_t r = rest(x, y);
    return y != 0 && r != 0 && is_negative(r) != is_negative(y);
}

static bool is_shift(int64_t n)
{
    return !is_negative(n) && (uint64_t)n < (uint64_t)int_ref_bits(t);
}

static int64_t shifted_right(int64_t x, int64_t n)
{
    const int most = int_ref_bits(t) - 1;
    if (!int_ref_is_signed(t)) return is_shift(n) ? (int64_t)((uint64_t)x >> n) : 0;
    return x >> (is_shift(n) ? n : most);
}

#define X ((uint64_t)x)
#define Y ((uint64_t)y)
#define LESS int_ref_less(t, x, y)
#define MORE int_ref_less(t, y, x)
#define BINARY(F)                                                                                  \
    F(add, X + Y)                                                                                  \
    F(sub, X - Y)                                                                                  \
    F(mul, X *Y)                                                                                   \
    F(floor_div, (uint64_t)quotient(x, y) - steps(x, y))                                           \
    F(remainder, (uint64_t)rest(x, y) + (steps(x, y) ? Y : 0))                                     \
    F(fmod, rest(x, y))                                                                            \
    F(minimum, LESS ? x : y)                                                                       \
    F(maximum, MORE ? x : y)                                                                       \
    F(bitwise_and, X &Y)                                                                           \
    F(bitwise_or, X | Y)                                                                           \
    F(bitwise_xor, X ^ Y)                                                                          \
    F(shift_left, is_shift(y) ? X << y : 0)                                                        \
    F(shift_right, shifted_right(x, y))
#define COMPARE(F)                                                                                 \
    F(eq, x == y)                                                                                  \
    F(ne, x != y)                                                                                  \
    F(lt, LESS)                                                                                    \
    F(le, !MORE)                                                                                   \
    F(gt, MORE)                                                                                    \
    F(ge, !LESS)                                                                                   \
    F(logical_and, x &&y)                                                                          \
    F(logical_or, x || y)                                                                          \
    F(logical_xor, !x != !y)
#define UNARY(F)                                                                                   \
    F(neg, 0 - X)                                                                                  \
    F(abs, is_negative(x) ? 0 - X : X)                                                             \
    F(sign, is_negative(x) ? -1 : x != 0)                                                          \
    F(square, X *X)                                                                                \
    F(relu, is_negative(x) ? 0 : x)                                                                \
    F(bitwise_not, ~X)

/* ---- elementwise ---- */

static void test_unary(void)
{
#define ROW(op, value)                                                                             \
    for (size_t i = 0; i < N; i++) {                                                               \
        const int64_t x = a[i];                                                                    \
        int_ref_put(t, want, i, (int64_t)(value));                                                 \
    }                                                                                              \
    expect(#op, deft_##op(ta), t, N);
    UNARY(ROW)
#undef ROW
    for (size_t i = 0; i < N; i++) want[i] = a[i] == 0;
    expect("logical_not", deft_logical_not(ta), DEFT_BOOL, N);
    for (size_t i = 0; i < N; i++)
        int_ref_put(t, want, i, (int64_t)((uint64_t)a[i] * (uint64_t)a[i] * (uint64_t)a[i]));
    expect("pow 3", deft_pow(ta, 3), t, N);
}

static void test_binary(void)
{
#define ROW(op, value)                                                                             \
    for (size_t i = 0; i < N; i++) {                                                               \
        const int64_t x = a[i], y = b[i];                                                          \
        int_ref_put(t, want, i, (int64_t)(value));                                                 \
    }                                                                                              \
    expect(#op, (deft_##op)(ta, tb), t, N);
    BINARY(ROW)
#undef ROW
#define ROW(op, value)                                                                             \
    for (size_t i = 0; i < N; i++) {                                                               \
        const int64_t x = a[i], y = b[i];                                                          \
        want[i] = (value);                                                                         \
    }                                                                                              \
    expect(#op, (deft_##op)(ta, tb), DEFT_BOOL, N);
    COMPARE(ROW)
#undef ROW
    for (size_t i = 0; i < N; i++)
        ((float *)(void *)want)[i] = int_ref_float(t, a[i]) / int_ref_float(t, b[i]);
    expect("div", (deft_div)(ta, tb), DEFT_F32, N);
    for (size_t i = 0; i < N; i++) int_ref_put(t, want, i, a[i] ? b[i] : a[i]);
    expect("where", deft_where(ta, tb, ta), t, N);
}

/* ---- conversions ---- */

static void want_cast(deft_dtype to, size_t i, int64_t v)
{
    if (to == DEFT_F32)
        ((float *)(void *)want)[i] = int_ref_float(t, v);
    else if (to == DEFT_F64)
        ((double *)(void *)want)[i] = int_ref_double(t, v);
    else if (half_is(to))
        ((uint16_t *)(void *)want)[i] =
            t == DEFT_U64 ? half_bits_u(to, (uint64_t)v) : half_bits_i(to, v);
    else
        int_ref_put(to, want, i, v);
}

static void test_casts(void)
{
    char what[64];
    for (int to = 0; to < DF_N_RECORDED; to++) {
        const deft_dtype d = (deft_dtype)to;
        for (size_t i = 0; i < N; i++) want_cast(d, i, a[i]);
        snprintf(what, sizeof what, "cast to %s", deft_dtype_name(d));
        expect(what, deft_cast(ta, d), d, N);
        n_checks++;
        if (deft_read(ta, d, got, N * deft_dtype_size(d)) != DEFT_OK ||
            oracle_difference(d, want, got, N) < N)
            fail("%s: reading converts otherwise", what);
    }
}

/* Floats of all sizes to the dtype: every half, random f32 and f64, and those near the ends. */
static void test_from_floats(void)
{
    static const deft_dtype from[] = { DEFT_F16, DEFT_BF16, DEFT_F32, DEFT_F64 };
    uint64_t seed = 5;
    char what[64];
    for (size_t f = 0; f < LEN(from); f++) {
        const size_t size = deft_dtype_size(from[f]);
        for (size_t i = 0; i < N; i++) {
            const uint64_t bits = oracle_next(&seed), how = oracle_next(&seed);
            double v = ldexp((double)(int64_t)bits, (int)(how % 70) - 66);
            if (how % 3 == 0) v = (how & 4 ? -1.0 : 1.0) * ldexp(1, (int)(bits % 66));
            float s = (float)v;
            if (how % 7 == 1) s = nextafterf(s, how & 64 ? 0 : INFINITY);
            if (how % 7 == 1) v = nextafter(v, how & 64 ? 0 : (double)INFINITY);
            if (how % 97 == 2) s = NAN, v = (double)NAN;
            if (how % 97 == 3) s = -INFINITY, v = (double)INFINITY;
            if (half_is(from[f])) {
                const uint16_t h = (uint16_t)i;
                memcpy(other + i * size, &h, size);
                v = half_value(from[f], h);
            } else if (from[f] == DEFT_F32) {
                memcpy(other + i * size, &s, size);
                v = (double)s;
            } else {
                memcpy(other + i * size, &v, size);
            }
            int_ref_put(t, want, i, int_ref_of_double(t, v));
        }
        deft_tensor *const x = deft_from(cx, DEFT_SHAPE(N), from[f], other, N * size);
        snprintf(what, sizeof what, "cast from %s", deft_dtype_name(from[f]));
        expect(what, deft_cast(x, t), t, N);
        n_checks++;
        if (deft_read(x, t, got, N * deft_dtype_size(t)) != DEFT_OK ||
            oracle_difference(t, want, got, N) < N)
            fail("%s: reading converts otherwise", what);
    }
}

/* ---- reductions ---- */

static void test_reductions(void)
{
    const deft_dtype wide = int_ref_is_signed(t) ? DEFT_I64 : DEFT_U64;
    static const size_t sizes[] = { N, 4097, 100, 1 };
    for (size_t s = 0; s < LEN(sizes); s++) {
        const size_t n = sizes[s];
        uint64_t sum = 0, product = 1;
        size_t least = 0, most = 0;
        deft_tensor *const x = deft_slice(ta, DEFT_R(0, (int64_t)n));
        for (size_t i = 0; i < n; i++) {
            if (int_ref_less(t, a[i], a[least])) least = i;
            if (int_ref_less(t, a[most], a[i])) most = i;
            sum += (uint64_t)a[i];
            int_ref_put(wide, want, i, (int64_t)sum);
        }
        expect("cumsum", deft_cumsum(x, 0), wide, n);
        int_ref_put(wide, want, 0, (int64_t)sum);
        expect("sum", deft_sum(x, DEFT_ALL_AXES, 0), wide, 1);
        for (size_t i = 0; i < n; i++) product *= (uint64_t)a[i] | 1;
        int_ref_put(wide, want, 0, (int64_t)product);
        expect("prod", deft_prod(deft_bitwise_or(deft_cast(x, wide), 1), DEFT_ALL_AXES, 0), wide,
               1);
        int_ref_put(t, want, 0, a[least]);
        expect("min", deft_min(x, DEFT_ALL_AXES, 0), t, 1);
        int_ref_put(t, want, 0, a[most]);
        expect("max", deft_max(x, DEFT_ALL_AXES, 0), t, 1);
        int_ref_put(DEFT_I64, want, 0, (int64_t)least);
        expect("argmin", deft_argmin(x, DEFT_ALL_AXES, 0), DEFT_I64, 1);
        int_ref_put(DEFT_I64, want, 0, (int64_t)most);
        expect("argmax", deft_argmax(x, DEFT_ALL_AXES, 0), DEFT_I64, 1);
    }
    /* columns */
    enum { ROWS = 256, COLUMNS = N / ROWS };
    deft_tensor *const x = deft_reshape(ta, DEFT_SHAPE(ROWS, COLUMNS));
    for (size_t j = 0; j < COLUMNS; j++) {
        int64_t most = a[j];
        for (size_t i = 1; i < ROWS; i++)
            if (int_ref_less(t, most, a[i * COLUMNS + j])) most = a[i * COLUMNS + j];
        int_ref_put(t, want, j, most);
    }
    expect("max of columns", deft_max(x, DEFT_AXES(0), 0), t, COLUMNS);
    /* columns of one row that is repeated: their elements are loaded once, for all rows */
    enum { TIMES = 3, MOST_COLUMNS = 300 };
    for (int64_t n = 1; n < MOST_COLUMNS; n += 3) {
        for (int64_t j = 0; j < n; j++)
            int_ref_put(wide, want, (size_t)j, (int64_t)(TIMES * (uint64_t)a[j]));
        deft_tensor *const row = deft_reshape(deft_slice(ta, DEFT_R(0, n)), DEFT_SHAPE(1, n));
        deft_tensor *const rows = deft_expand(row, DEFT_SHAPE(TIMES, n));
        expect("sum of a repeated row", deft_sum(rows, DEFT_AXES(0), 0), wide, (size_t)n);
    }
}

/* ---- the program ---- */

/* 8 bits: all pairs. 16 bits: each number once in a. Else every third one is next to a power of 2.
 */
static void fill(void)
{
    const int bits = int_ref_bits(t);
    uint64_t seed = 17 + (uint64_t)t;
    for (size_t i = 0; i < N; i++) {
        uint64_t v[2] = { bits == 8 ? i >> 8 : i, i };
        for (int k = bits == 8 ? 2 : bits == 16 ? 1 : 0; k < 2; k++) {
            const uint64_t how = oracle_next(&seed);
            v[k] = oracle_next(&seed);
            if (how % 3 == 0) v[k] = ((uint64_t)1 << v[k] % 64) + how / 3 % 3 - 1;
            if (how % 3 == 1) v[k] = v[k] % 70 - 9;
        }
        a[i] = int_ref_wrap(t, (int64_t)v[0]);
        b[i] = int_ref_wrap(t, (int64_t)v[1]);
        int_ref_put(t, data, i, a[i]);
        int_ref_put(t, other, i, b[i]);
    }
    const size_t bytes = N * deft_dtype_size(t);
    ta = deft_from(cx, DEFT_SHAPE(N), t, data, bytes);
    tb = deft_from(cx, DEFT_SHAPE(N), t, other, bytes);
}

int main(int argc, char **argv)
{
    oracle_path paths[] = {
        { .name = "interp unfused", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
        { .name = "interp fused", .tier = DEFT_TIER_INTERPRET, .n_threads = 2 },
        { .name = "llvm O2", .tier = DEFT_TIER_FULL, .n_threads = 2 },
        { .name = "llvm O2 16 bytes",
          .tier = DEFT_TIER_FULL,
          .n_threads = 1,
          .max_vector_bytes = 16 },
        { .name = "llvm O0 32 bytes",
          .tier = DEFT_TIER_QUICK,
          .n_threads = 1,
          .max_vector_bytes = 32 },
    };
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        { "unary", test_unary },        { "binary", test_binary },         { "casts", test_casts },
        { "floats", test_from_floats }, { "reductions", test_reductions },
    };
#define ROW(dtype, T, U, bits) dtype,
    static const deft_dtype dtypes[] = { INT_REF_TYPES(ROW) };
#undef ROW
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '-') filter = argv[i];
    const double t0 = oracle_now();
    const size_t n = oracle_open(paths, LEN(paths));
    for (size_t i = 0; i < n; i++) {
        path_name = paths[i].name;
        cx = paths[i].cx;
        const double start = oracle_now();
        for (size_t k = 0; k < LEN(tests) * LEN(dtypes); k++) {
            if (filter && !strstr(tests[k % LEN(tests)].name, filter)) continue;
            t = dtypes[k / LEN(tests)];
            const deft_scope s = deft_scope_begin(cx);
            fill();
            tests[k % LEN(tests)].run();
            deft_clear(cx);
            if (deft_scope_end(s) != DEFT_OK) fail("scope_end: %s", deft_message(cx));
        }
        printf("%-16s %.1f s\n", path_name, oracle_now() - start);
    }
    printf("%ld checks, %ld failures, %.1f s\n", n_checks, n_failures, oracle_now() - t0);
    oracle_close(paths, n);
    return n_failures ? 1 : 0;
}
