/* SPDX-License-Identifier: Apache-2.0
 *
 * What calls do at their edges: variances of too few elements, axes without elements, ranges the
 * wrong way round, integers beyond 2^53, windows in padding, options of which one number is given.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/harness.h"

/* Compilers warn of `.stride = 2`, and it is meant here. */
#pragma GCC diagnostic ignored "-Wmissing-braces"

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 2);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(edges, .init = set_up, .fini = tear_down);

#define EXPECT(t, ...) RIG_EXPECT(&r, t, __VA_ARGS__)

static deft_tensor *tensor(deft_shape s, const float *v)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < s.rank; i++) n *= s.dim[i];
    return deft_from(r.cx, s, DEFT_F32, v, (size_t)n * sizeof *v);
}

/* NumPy's values. */
Test(edges, variance_of_no_more_elements_than_ddof)
{
    deft_tensor *const x = rig_range(&r, 2, 1), *const none = deft_slice(x, DEFT_R(0, 0));
    EXPECT(deft_var(none, DEFT_ALL_AXES, 0, 0), NAN);
    EXPECT(deft_var(none, DEFT_ALL_AXES, 0, 1), NAN);
    EXPECT(deft_var(x, DEFT_ALL_AXES, 0, 2), INFINITY);
    EXPECT(deft_var(x, DEFT_ALL_AXES, 0, 3), INFINITY);
    EXPECT(deft_var(deft_mul(x, 0), DEFT_ALL_AXES, 0, 3), NAN);
    EXPECT(deft_var(x, DEFT_ALL_AXES, 0, -2), 0.125f);
}

Test(edges, axes_without_elements)
{
    deft_tensor *const x = deft_zeros(r.cx, DEFT_SHAPE(3, 0), DEFT_F32);
    deft_tensor *const row = deft_zeros(r.cx, DEFT_SHAPE(0, 3), DEFT_F32);
    deft_tensor *const all[] = { deft_softmax(x, 1), deft_log_softmax(x, -1), deft_softmax(row, 0),
                                 deft_softmax(row, 1) };
    OK(&r, deft_eval(all, 4));
    cr_assert_eq(deft_dim(all[0], 0), 3);
    cr_assert_eq(deft_dim(all[0], 1), 0);
    cr_assert_eq(deft_numel(all[2]), 0);
    deft_tensor *const g = rig_grad_of_sum(deft_softmax(x, 1), x);
    OK(&r, deft_eval(&g, 1));
}

/* Rows of no elements are not gone over, however many there are. */
Test(edges, four_billion_rows_of_nothing)
{
    deft_tensor *const x =
        deft_wrap(r.cx, DEFT_SHAPE((int64_t)1 << 32, 0), DEFT_F32, NULL, 0, NULL);
    deft_tensor *const all[] = { deft_layer_norm(x, 1, NULL, NULL, 1e-5),
                                 deft_rms_norm(x, 1, NULL, 1e-5),
                                 deft_softmax(x, 1),
                                 deft_sub(x, deft_mean(x, DEFT_AXES(1), 1)),
                                 deft_mul(x, deft_sqrt(deft_var(x, DEFT_AXES(1), 1, 1))),
                                 deft_cumsum(x, 1),
                                 deft_argsort(x, 1, 0) };
    OK(&r, deft_eval(all, 7));
}

/* A result with one element in each row stands in a kernel beside one with as many as x has
 * columns, and both read sums over rows that an earlier kernel made: it is there when the rows are
 * empty. */
static void one_element_beside_a_row(int64_t columns)
{
    static const float zeros[16 * 5], one_and_a_half = 1.5f;
    deft_tensor *const a = deft_from(r.cx, DEFT_SHAPE(1), DEFT_F32, &one_and_a_half, sizeof(float));
    deft_tensor *const less = deft_cast(deft_lt(a, 2), DEFT_F32);
    deft_tensor *const x = tensor(DEFT_SHAPE(16, columns), zeros);
    deft_tensor *const total = deft_sum(x, DEFT_AXES(0), 1), *const sums =
                                                                 deft_sum(x, DEFT_AXES(1), 1);
    deft_tensor *const rows = deft_sub(total, sums);
    deft_tensor *const scan = deft_cumsum(a, 0), *const same = deft_cast(scan, DEFT_F32);
    deft_tensor *const elements = deft_add(sums, same);
    deft_tensor *const every = deft_slice(sums, DEFT_FULL, DEFT_RS(0, 1, 2));
    deft_tensor *const before = deft_copysign(every, -1);
    deft_assign(every, less);
    deft_assign(deft_slice(sums, DEFT_FULL, DEFT_FULL), before);
    deft_tensor *const all[] = { rows, elements, before, sums, scan, same };
    OK(&r, deft_eval(all, 6));
    EXPECT(deft_reshape(elements, DEFT_SHAPE(16)), 1.5f, 1.5f, 1.5f, 1.5f, 1.5f, 1.5f, 1.5f, 1.5f,
           1.5f, 1.5f, 1.5f, 1.5f, 1.5f, 1.5f, 1.5f, 1.5f);
    cr_assert_eq(deft_numel(rows), 16 * columns);
}

Test(edges, one_element_beside_a_row_that_may_be_empty)
{
    one_element_beside_a_row(5);
    one_element_beside_a_row(0);
}

static void refused(deft_tensor *t, deft_status st, const char *part)
{
    cr_assert_null(t);
    cr_assert_eq(deft_error(r.cx), st, "%s", deft_message(r.cx));
    cr_assert(strstr(deft_message(r.cx), part), "\"%s\" lacks \"%s\"", deft_message(r.cx), part);
    deft_clear(r.cx);
}

Test(edges, ranges_that_hold_no_element_of_any_tensor_are_refused)
{
    deft_tensor *const x = rig_range(&r, 6, 0), *const one = deft_slice(x, DEFT_R(0, 1));
    refused(deft_slice(x, DEFT_R(1, 0)), DEFT_E_RANGE,
            "slice: [1, 0) by 1 on axis 0 holds no element");
    refused(deft_slice(x, DEFT_R(-1, 0)), DEFT_E_RANGE, "[-1, 0) by 1");
    refused(deft_slice(x, DEFT_R(-1, -3)), DEFT_E_RANGE, "[-1, -3) by 1");
    refused(deft_slice(x, DEFT_R(DEFT_END, 2)), DEFT_E_RANGE, "by 1");
    refused(deft_slice(x, DEFT_RS(0, 3, -1)), DEFT_E_RANGE, "[0, 3) by -1");
    refused(deft_slice(x, DEFT_RS(3, -1, -1)), DEFT_E_RANGE, "[3, -1) by -1");
    refused(deft_slice(x, DEFT_RS(-3, -1, -2)), DEFT_E_RANGE, "by -2");
    /* Equal bounds, and bounds whose order depends on the extent, may be empty. */
    deft_tensor *const empty[] = {
        deft_slice(x, DEFT_R(3, 3)),        deft_slice(x, DEFT_R(6, 6)),
        deft_slice(x, DEFT_R(-2, -2)),      deft_slice(x, DEFT_R(3, -3)),
        deft_slice(one, DEFT_R(1, -1)),     deft_slice(x, DEFT_R(-2, 1)),
        deft_slice(x, DEFT_R(6, DEFT_END)), deft_slice(x, DEFT_RS(2, -2, -1))
    };
    for (int i = 0; i < 8; i++) {
        cr_assert(empty[i], "%d: %s", i, deft_message(r.cx));
        cr_assert_eq(deft_numel(empty[i]), 0, "%d", i);
    }
    EXPECT(deft_slice(x, DEFT_RS(3, DEFT_END, -1)), 3, 2, 1, 0);
    EXPECT(deft_slice(x, DEFT_RS(-1, 3, -1)), 5, 4);
    EXPECT(deft_slice(x, DEFT_FLIP), 5, 4, 3, 2, 1, 0);
    EXPECT(deft_slice(x, DEFT_R(-2, DEFT_END)), 4, 5);
}

static void expect_i64(deft_tensor *t, int64_t n, const int64_t *want)
{
    int64_t got[8];
    OK(&r, deft_read(t, DEFT_I64, got, (size_t)n * sizeof *got));
    for (int64_t i = 0; i < n; i++)
        cr_assert_eq(got[i], want[i], "%lld: %lld", (long long)i, (long long)got[i]);
}

#define EXPECT_I64(t, ...)                                                                         \
    expect_i64(t, sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t), (int64_t[]){ __VA_ARGS__ })

Test(edges, integers_keep_all_their_bits)
{
    enum { AT = 3 };
    const int64_t big = ((int64_t)1 << 53) + 1;
    EXPECT_I64(deft_full(r.cx, DEFT_SHAPE(2), DEFT_I64, big), big, big);
    EXPECT_I64(deft_full(r.cx, (deft_shape){ 1, { 1 } }, DEFT_I64, INT64_MIN), INT64_MIN);
    EXPECT_I64(deft_arange(r.cx, big, big + 5, 2, DEFT_I64), big, big + 2, big + 4);
    EXPECT_I64(deft_arange(r.cx, INT64_MAX, INT64_MAX - 3, -2, DEFT_I64), INT64_MAX, INT64_MAX - 2);
    cr_assert_eq(deft_numel(deft_arange(r.cx, AT, 0, 1, DEFT_I64)), 0);
    const uint64_t far = UINT64_MAX - 4, *const large = (uint64_t[]){ far, far + 2, far + 4 };
    const int64_t *const bits = (const int64_t *)large;
    EXPECT_I64(deft_bitcast(deft_arange(r.cx, far, UINT64_MAX, 2, DEFT_U64), DEFT_I64), bits[0],
               bits[1]);
    EXPECT_I64(deft_bitcast(deft_arange(r.cx, far + 4, far - 1, -2, DEFT_U64), DEFT_I64), bits[2],
               bits[1], bits[0]);
    EXPECT_I64(deft_arange(r.cx, (size_t)3, -1, -2, DEFT_I64), 3, 1);
    EXPECT_I64(deft_arange(r.cx, -1, (size_t)2, 2, DEFT_I64), -1, 1);
    EXPECT(deft_arange(r.cx, 3, 0, -1, DEFT_U8), 3, 2, 1);
    EXPECT(deft_arange(r.cx, far, far + 2, 1, DEFT_F32), 0x1p64f, 0x1p64f);
    refused(deft_arange(r.cx, far, UINT64_MAX, 1, DEFT_I64), DEFT_E_RANGE, "arange: the number");
    refused(deft_arange_u(r.cx, 0, UINT64_MAX, 1, DEFT_U64), DEFT_E_RANGE,
            "from 0 to 18446744073709551615 by 1 has no length");
    deft_tensor *const x = deft_full(r.cx, DEFT_SHAPE(1), DEFT_I64, big);
    EXPECT_I64(deft_clamp(x, big + 1, big + 2), big + 1);
    EXPECT_I64(deft_clamp(x, 0, big - 2), big - 2);
    EXPECT_I64(deft_pad(x, (int64_t[]){ 1 }, (int64_t[]){ 2 }, DEFT_PAD_CONSTANT, big + 2), big + 2,
               big, big + 2, big + 2);
    /* A fraction among them takes the other form. */
    EXPECT(deft_arange(r.cx, 0, 1, 0.5, DEFT_F32), 0, 0.5);
    EXPECT(deft_arange(r.cx, 0, 3, 1, DEFT_F16), 0, 1, 2);
    EXPECT(deft_clamp(rig_range(&r, 3, 0), 0.5, 1), 0.5, 1, 1);
    EXPECT(deft_full(r.cx, DEFT_SHAPE(1), DEFT_F32, -0.5), -0.5);
    refused(deft_arange(r.cx, 0, 300, 1, DEFT_U8), DEFT_E_RANGE,
            "arange: the number 299 does not fit u8");
    refused(deft_arange(r.cx, INT64_MIN, INT64_MAX, 1, DEFT_I64), DEFT_E_RANGE, "has no length");
    refused(deft_arange(r.cx, 0, 3, 0, DEFT_I64), DEFT_E_RANGE, "from 0 to 3 by 0 has no length");
    refused(deft_full(r.cx, DEFT_SHAPE(1), DEFT_U8, 256), DEFT_E_RANGE, "full: the number 256");
}

/* ---- windows ---- */

/* The first element of each window gets the gradient, and padding before it none. */
Test(edges, windows_of_minus_infinity_that_touch_padding_have_gradients)
{
    const float low[] = { -INFINITY, -INFINITY, -INFINITY, -INFINITY };
    deft_tensor *const x = tensor(DEFT_SHAPE(1, 1, 2, 2), low);
    deft_tensor *const y = deft_max_pool2d(x, DEFT_POOL2D(.kernel = { 2, 2 }, .padding = { 1, 1 }));
    EXPECT(y, -INFINITY, -INFINITY, -INFINITY, -INFINITY);
    EXPECT(rig_grad_of_sum(y, x), 1, 1, 1, 1);
    /* Every window of 3 by 3 holds x[0]: those of 2 by 2, from row and column -1 and 0. */
    EXPECT(rig_grad_of_sum(
               deft_max_pool2d(x, DEFT_POOL2D(.kernel = 3, .stride = 1, .padding = { 1, 1 })), x),
           4, 0, 0, 0);
    EXPECT(rig_grad_of_sum(deft_max_pool2d(x, DEFT_POOL2D(.kernel = { 1, 3 }, .stride = { 1, 2 },
                                                          .padding = { 0, 1 })),
                           x),
           1, 0, 1, 0);
}

/* Every element and stride against the rule, looked up here. */
Test(edges, the_first_greatest_element_of_each_window_gets_its_gradient)
{
    enum { H = 5, W = 4 };
    for (int seed = 0; seed < 30; seed++) {
        const int64_t k[2] = { 1 + seed % 4, 1 + seed / 4 % 4 };
        const int64_t p[2] = { k[0] / 2 * (seed % 3 != 0), k[1] / 2 * (seed % 2) };
        const int64_t s[2] = { 1 + seed % 3, 1 + seed / 3 % 3 };
        float v[H * W], want[H * W] = { 0 };
        for (int i = 0; i < H * W; i++) {
            static const float some[] = { -INFINITY, -INFINITY, NAN, 1, 2 };
            v[i] = some[(i * 7 + seed * 13 + i * i * seed) % (seed % 2 ? 5 : 2)];
        }
        for (int64_t oy = -p[0]; oy + k[0] <= H + p[0]; oy += s[0])
            for (int64_t ox = -p[1]; ox + k[1] <= W + p[1]; ox += s[1]) {
                int64_t best = -1;
                for (int64_t i = 0; i < k[0]; i++)
                    for (int64_t j = 0; j < k[1]; j++) {
                        const int64_t at = (oy + i) * W + ox + j;
                        if (oy + i < 0 || oy + i >= H || ox + j < 0 || ox + j >= W) continue;
                        if (best < 0 || v[at] > v[best] || (isnan(v[at]) && !isnan(v[best])))
                            best = at;
                    }
                want[best]++;
            }
        deft_tensor *const x = tensor(DEFT_SHAPE(1, 1, H, W), v);
        const deft_pool2d_options o = { .size = sizeof o,
                                        .kernel = { k[0], k[1] },
                                        .stride = { s[0], s[1] },
                                        .padding = { p[0], p[1] } };
        rig_expect(&r, rig_grad_of_sum(deft_max_pool2d(x, &o), x), H * W, want);
    }
}

/* A runtime that waits for machine code with vectors of at most so many bytes; 0: the machine's.
 * Variants are made at once, or never. */
static void compile(rig *c, uint32_t vector_bytes, bool has_variants)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .tier = DEFT_TIER_FULL,
                                     .n_threads = 1,
                                     .variant_launches = has_variants ? 1 : UINT32_MAX,
                                     .max_vector_bytes = vector_bytes };
    rig_open(c, &o, NULL);
}

/* The bits of the maxima over windows of 3 x 3, moved by 2, of images [2, n, n] with padding. Of
 * 2^sparse elements one is NaN. No two NaN have equal bits. */
static void read_maxima(rig *c, deft_dtype dtype, int64_t n, int sparse, int64_t *out)
{
    const deft_scope scope = deft_scope_begin(c->cx);
    const int64_t all = 2 * n * n;
    int32_t bits[2 * 40 * 40];
    for (int64_t i = 0; i < all; i++) {
        const uint32_t h = (uint32_t)(i * 2654435761u + (uint32_t)sparse * 40503u) >> 9;
        const bool is_nan = (h & ((1u << sparse) - 1)) == 0;
        const float v = (float)((int)(h % 7) - 3) * 0.0f + (float)(h % 5);
        memcpy(&bits[i], &v, sizeof v);
        if (is_nan) bits[i] = (int32_t)(0x7FC00000u + (uint32_t)i * 8192u % 0x400000u);
    }
    deft_tensor *x = deft_bitcast(
        deft_from(c->cx, DEFT_SHAPE(1, 2, n, n), DEFT_I32, bits, (size_t)all * sizeof *bits),
        DEFT_F32);
    x = deft_cast(x, dtype);
    OK(c, deft_eval(&x, 1));
    deft_tensor *const y = deft_max_pool2d(
        x, DEFT_POOL2D(.kernel = { 3, 3 }, .stride = { 2, 2 }, .padding = { 1, 1 }));
    const deft_dtype as = dtype == DEFT_F64 ? DEFT_I64 : dtype == DEFT_F32 ? DEFT_I32 : DEFT_I16;
    OK(c, deft_eval(&y, 1));
    const size_t n_out = (size_t)deft_numel(y);
    OK(c, deft_read(deft_bitcast(y, as), DEFT_I64, out, n_out * sizeof *out));
    OK(c, deft_scope_end(scope));
}

/* Code for vectors without NaN must leave those with NaN alone. */
Test(edges, maxima_of_windows_are_the_first_nan)
{
    static int64_t got[2 * 20 * 20], want[2 * 20 * 20];
    const deft_dtype dtypes[] = { DEFT_F32, DEFT_F64, DEFT_F16, DEFT_BF16 };
    for (int run = 0; run < 4; run++) { /* the last one makes variants */
        const uint32_t bytes[] = { 16, 32, 0, 0 };
        rig c;
        compile(&c, bytes[run], run == 3);
        for (int d = 0; d < (run == 2 ? 4 : 1); d++)
            for (int64_t n = 7; n <= 40; n += run == 3 ? 33 : 3)
                for (int sparse = 1; sparse <= 11; sparse += 5) {
                    const size_t n_out = (size_t)(2 * ((n + 1) / 2) * ((n + 1) / 2));
                    read_maxima(&r, dtypes[d], n, sparse, want);
                    read_maxima(&c, dtypes[d], n, sparse, got);
                    for (size_t i = 0; i < n_out; i++)
                        cr_assert_eq(got[i], want[i], "%s, run %d, side %d, 2^-%d: element %zu",
                                     deft_dtype_name(dtypes[d]), run, (int)n, sparse, i);
                }
        rig_close(&c);
    }
}

/* Machine code of every vector width reads every second element of rows with 5 around them, from
 * an element of the padding on or from the first one of the row. */
Test(edges, every_second_element_of_padded_rows)
{
    enum { MOST = 70, ROWS = 3 };
    float v[ROWS * MOST], want[(ROWS + 2) * (MOST + 2)];
    for (int i = 0; i < ROWS * MOST; i++) v[i] = (float)(i + 10);
    for (int run = 0; run < 6; run++) {
        const uint32_t bytes[] = { 16, 32, 0 };
        rig c;
        compile(&c, bytes[run % 3], run >= 3);
        for (int64_t n = 1; n <= MOST; n += run < 3 ? 1 : 16)
            for (int64_t from = 0; from < 2; from++) {
                int64_t k = 0;
                for (int64_t i = -1; i <= ROWS + 1; i++)
                    for (int64_t j = from - 1; j < n + 2; j += 2) {
                        const bool is_in = i >= 0 && i < ROWS && j >= 0 && j < n;
                        want[k++] = 1 - (is_in ? v[i * n + j] : 5);
                    }
                const deft_scope scope = deft_scope_begin(c.cx);
                deft_tensor *const x = deft_from(c.cx, DEFT_SHAPE(ROWS, n), DEFT_F32, v,
                                                 (size_t)(ROWS * n) * sizeof *v);
                deft_tensor *const padded =
                    deft_pad(x, (int64_t[]){ 1, 1 }, (int64_t[]){ 2, 2 }, DEFT_PAD_CONSTANT, 5.0);
                deft_tensor *const every =
                    deft_slice(padded, DEFT_FULL, DEFT_RS(from, DEFT_END, 2));
                rig_expect(&c, deft_sub(deft_num(c.cx, 1.0), every), k, want);
                OK(&c, deft_scope_end(scope));
            }
        rig_close(&c);
    }
}

/* Sets element i of dtype t, which has as many bytes as its number needs. */
static void set_element(void *at, deft_dtype t, int64_t i, int number)
{
    if (t == DEFT_U8)
        ((uint8_t *)at)[i] = (uint8_t)number;
    else if (t == DEFT_I16)
        ((int16_t *)at)[i] = (int16_t)number;
    else if (t == DEFT_F32)
        ((float *)at)[i] = (float)number;
    else
        ((double *)at)[i] = number;
}

/* The rows of x backwards: beside x, or with 5 around them from element `from` on. */
static void expect_backwards(rig *c, deft_tensor *x, int64_t rows, int64_t n, bool is_padded,
                             int64_t from)
{
    static float want[5 * 72];
    deft_tensor *y = deft_flip(x, DEFT_AXES(1));
    const int64_t border = is_padded ? 1 : 0, first = is_padded ? from - 1 : 0;
    int64_t k = 0;
    for (int64_t i = -border; i < rows + border; i++)
        for (int64_t j = first; j < n + border; j++) {
            const bool is_in = i >= 0 && i < rows && j >= 0 && j < n;
            const int64_t back = is_in ? 1 + (i * n + n - 1 - j) % 100 : 5;
            want[k++] = (float)(back + 1 + (is_padded ? 0 : (i * n + j) % 100));
        }
    if (is_padded) {
        y = deft_pad(y, (int64_t[]){ 1, 1 }, (int64_t[]){ 1, 1 }, DEFT_PAD_CONSTANT, 5.0);
        y = deft_add(deft_slice(y, DEFT_FULL, DEFT_R(from, DEFT_END)), 1);
    } else {
        y = deft_add(y, x);
    }
    rig_expect(c, deft_cast(y, DEFT_F32), k, want);
}

/* Machine code of every vector width reads rows backwards. Memory cannot be read before the first
 * element, or behind the last. */
Test(edges, rows_backwards)
{
    enum { MOST = 70, ROWS = 3 };
    static const deft_dtype dtypes[] = { DEFT_U8, DEFT_I16, DEFT_F32, DEFT_F64 };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *const all =
        mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(all != MAP_FAILED);
    cr_assert_eq(mprotect(all, page, PROT_NONE) | mprotect(all + 2 * page, page, PROT_NONE), 0);
    for (int run = 0; run < 6; run++) {
        const uint32_t bytes[] = { 16, 32, 0 };
        rig c;
        compile(&c, bytes[run % 3], run >= 3);
        for (int64_t k = 0; k < (run < 3 ? MOST : 4) * 4; k++) {
            const deft_dtype t = dtypes[k % 4];
            const int64_t n = run < 3 ? k / 4 + 1 : k / 4 * 23 + 1;
            const size_t size = (size_t)(ROWS * n) * deft_dtype_size(t);
            for (int way = 0; way < 4; way++) {
                char *const at = all + (way % 2 ? 2 * page - size : page);
                const deft_scope scope = deft_scope_begin(c.cx);
                for (int64_t i = 0; i < ROWS * n; i++) set_element(at, t, i, 1 + (int)(i % 100));
                deft_tensor *const x = deft_wrap(c.cx, DEFT_SHAPE(ROWS, n), t, at, size, NULL);
                expect_backwards(&c, x, ROWS, n, way / 2, k % 3 == 0);
                OK(&c, deft_scope_end(scope));
            }
        }
        rig_close(&c);
    }
    munmap(all, 3 * page);
}

Test(edges, one_number_is_for_rows_and_columns)
{
    deft_tensor *const x = deft_ones(r.cx, DEFT_SHAPE(1, 1, 6, 6), DEFT_F32);
    deft_tensor *const w = deft_ones(r.cx, DEFT_SHAPE(1, 1, 2, 2), DEFT_F32);
    deft_tensor *const y = deft_conv2d(x, w, DEFT_CONV2D(.stride = 2, .dilation = 3));
    cr_assert_eq(deft_dim(y, 2), 2);
    cr_assert_eq(deft_dim(y, 3), 2);
    deft_tensor *const p = deft_max_pool2d(x, DEFT_POOL2D(.kernel = 3));
    cr_assert_eq(deft_dim(p, 2), 2);
    cr_assert_eq(deft_dim(p, 3), 2);
    deft_tensor *const q = deft_avg_pool2d(x, DEFT_POOL2D(.kernel = { 2, 3 }, .stride = 1));
    cr_assert_eq(deft_dim(q, 2), 5);
    cr_assert_eq(deft_dim(q, 3), 4);
    /* Padding of no columns is meant by { 1, 0 }, and by nothing else. */
    deft_tensor *const rows = deft_conv2d(x, w, DEFT_CONV2D(.groups = 1, .padding = { 1, 0 }));
    cr_assert_eq(deft_dim(rows, 2), 7);
    cr_assert_eq(deft_dim(rows, 3), 5);
#define ALL_ROUND { 1, 1 }
    cr_assert(deft_conv2d(x, w, DEFT_CONV2D(.padding = ALL_ROUND)));
    cr_assert(deft_conv2d(x, w, DEFT_CONV2D(.padding = 0)));
    refused(deft_conv2d(x, w, DEFT_CONV2D(.stride = { 2, 2 }, .padding = 1)), DEFT_E_ARG,
            "conv2d: .padding = 1 is of rows alone: write { 1, 1 } for both, or { 1, 0 }");
    refused(deft_max_pool2d(x, DEFT_POOL2D(.kernel = 2, .padding = 1)), DEFT_E_ARG,
            "max_pool2d: .padding = 1 is of rows alone");
}
