/* SPDX-License-Identifier: Apache-2.0
 *
 * Slices and updates that begin at tensors: clamped starts, several axes, gradients, vmap, loops
 * over columns. Associative scans of functions of the program. Bits of numbers as other numbers.
 */
#include "base/bits.h"
#include "support/harness.h"

#include <math.h>
#include <string.h>

static deft_tensor *whole(rig *r, int64_t v)
{
    return deft_full_i(r->cx, DEFT_SHAPE(), DEFT_I64, v);
}

Test(dynamic, starts_are_clamped)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = rig_range(&r, 5, 0);
    static const struct {
        int64_t start, first;
    } rows[] = { { 0, 0 },  { 2, 2 },  { 3, 3 },         { 4, 3 },
                 { 99, 3 }, { -1, 0 }, { INT64_MIN, 0 }, { INT64_MAX, 3 } };
    for (size_t i = 0; i < DF_LEN(rows); i++) {
        deft_tensor *const at = whole(&r, rows[i].start);
        const float f = (float)rows[i].first;
        RIG_EXPECT(&r, deft_dynamic_slice(x, &at, (int64_t[]){ 2 }), f, f + 1);
        float want[5] = { 0, 1, 2, 3, 4 };
        want[rows[i].first] = 8, want[rows[i].first + 1] = 9;
        rig_expect(&r, deft_dynamic_update(x, RIG_VECTOR(&r, 8, 9), &at, (int64_t[]){ 2 }), 5,
                   want);
    }
    deft_tensor *const far = deft_full_u(r.cx, DEFT_SHAPE(), DEFT_U64, UINT64_MAX);
    RIG_EXPECT(&r, deft_dynamic_slice(x, &far, (int64_t[]){ 2 }), 3, 4);
    deft_tensor *const byte = deft_full_i(r.cx, DEFT_SHAPE(), DEFT_U8, 200);
    deft_tensor *const long_x = rig_range(&r, 300, 0);
    RIG_EXPECT(&r, deft_dynamic_slice(long_x, &byte, (int64_t[]){ 1 }), 200);
    cr_expect_eq(deft_numel(deft_dynamic_slice(x, &byte, (int64_t[]){ 0 })), 0);
    rig_close(&r);
}

Test(dynamic, several_axes)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const m = deft_reshape(rig_range(&r, 12, 0), DEFT_SHAPE(3, 4));
    deft_tensor *const starts[2] = { whole(&r, 1), whole(&r, 2) };
    deft_tensor *const columns[2] = { NULL, whole(&r, 3) };
    const int64_t sizes[2] = { 2, 2 }, one[2] = { 0, 1 };
    RIG_EXPECT(&r, deft_dynamic_slice(m, starts, sizes), 6, 7, 10, 11);
    RIG_EXPECT(&r, deft_dynamic_slice(m, columns, one), 3, 7, 11);
    deft_tensor *const v = deft_reshape(RIG_VECTOR(&r, 50, 51, 52, 53), DEFT_SHAPE(2, 2));
    RIG_EXPECT(&r, deft_dynamic_update(m, v, starts, sizes), 0, 1, 2, 3, 4, 5, 50, 51, 8, 9, 52,
               53);
    RIG_EXPECT(&r, deft_dynamic_update(m, deft_num(r.cx, 7), columns, one), 0, 1, 2, 7, 4, 5, 6, 7,
               8, 9, 10, 7);
    rig_close(&r);
}

Test(dynamic, gradients)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const x = deft_mul(rig_range(&r, 4, 1), 1), *const v =
                                                                 deft_mul(RIG_VECTOR(&r, 5, 6), 1);
    deft_tensor *const at = whole(&r, 1);
    RIG_EXPECT(&r, rig_grad_of_sum(deft_square(deft_dynamic_slice(x, &at, (int64_t[]){ 2 })), x), 0,
               4, 6, 0);
    deft_tensor *const y = deft_square(deft_dynamic_update(x, v, &at, (int64_t[]){ 2 }));
    RIG_EXPECT(&r, rig_grad_of_sum(y, x), 2, 0, 0, 8);
    RIG_EXPECT(&r, rig_grad_of_sum(y, v), 10, 12);
    OK(&r, deft_step_end(s));
    rig_close(&r);
}

static deft_status shifted(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_dynamic_slice(in[0], &in[1], (int64_t[]){ 2 });
    out[1] = deft_dynamic_update(in[0], deft_neg(out[0]), &in[1], (int64_t[]){ 2 });
    return DEFT_OK;
}

Test(dynamic, each_example_has_its_own_start)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *out[2];
    const int64_t at[3] = { 0, 2, 1 };
    deft_tensor *const in[2] = { deft_reshape(rig_range(&r, 12, 1), DEFT_SHAPE(3, 4)),
                                 deft_from(r.cx, DEFT_SHAPE(3), DEFT_I64, at, sizeof at) };
    cr_assert(deft_vmap(r.cx, shifted, NULL, in, NULL, 2, out, NULL, 2), "%s", deft_message(r.cx));
    RIG_EXPECT(&r, out[0], 1, 2, 7, 8, 10, 11);
    RIG_EXPECT(&r, out[1], -1, -2, 3, 4, 5, 6, -7, -8, 9, -10, -11, 12);
    rig_close(&r);
}

/* Column j of the state becomes the sum of the columns before it, plus itself. */
static deft_status next_column(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out, (void)user;
    deft_tensor *const now[2] = { NULL, in[1] };
    deft_tensor *const before[2] = { NULL, deft_sub(in[1], 1) };
    const int64_t one[2] = { 0, 1 };
    deft_tensor *const sum =
        deft_add(deft_dynamic_slice(in[0], now, one), deft_dynamic_slice(in[0], before, one));
    out[0] = deft_dynamic_update(in[0], sum, now, one);
    return DEFT_OK;
}

Test(dynamic, a_loop_over_columns)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const m = deft_mul(deft_reshape(rig_range(&r, 8, 1), DEFT_SHAPE(2, 4)), 1);
    deft_tensor *out = NULL, *const init[] = { m };
    deft_tensor *const rows[] = { deft_add(deft_iota(r.cx, DEFT_SHAPE(3), 0), 1) };
    cr_assert(deft_scan(r.cx, next_column, NULL, init, 1, rows, 1, 3, 0, &out), "%s",
              deft_message(r.cx));
    RIG_EXPECT(&r, out, 1, 3, 6, 10, 5, 11, 18, 26);
    RIG_EXPECT(&r, rig_grad_of_sum(out, m), 4, 3, 2, 1, 4, 3, 2, 1);
    OK(&r, deft_step_end(s));
    rig_close(&r);
}

/* ---- associative scans ---- */

/* x -> a x + b, composed: the later function of the earlier. */
static deft_status compose(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out;
    if (user) ++*(int *)user;
    out[0] = deft_mul(in[2], in[0]);
    out[1] = deft_add(deft_mul(in[2], in[1]), in[3]);
    return DEFT_OK;
}

Test(dynamic, associative_scans)
{
    rig r;
    rig_open(&r, NULL, NULL);
    for (int64_t n = 0; n <= 9; n++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *out[2], *const a = deft_mul(rig_range(&r, n, 1), 1);
        deft_tensor *const in[2] = { a, deft_mul(rig_range(&r, n, 2), 1) };
        float x[9][2], grad[9] = { 0 };
        int calls = 0, want_calls = 0;
        cr_assert(deft_associative_scan(compose, &calls, in, 2, 0, out), "%s", deft_message(r.cx));
        for (int64_t by = 1; by < n; by *= 2) want_calls++;
        cr_expect_eq(calls, want_calls);
        for (int64_t i = 0; i < n; i++) {
            x[i][0] = (float)(i + 1) * (i ? x[i - 1][0] : 1);
            x[i][1] = (float)(i + 1) * (i ? x[i - 1][1] : 0) + (float)(i + 2);
        }
        float got[9];
        rig_read(&r, out[0], got, n);
        for (int64_t i = 0; i < n; i++) cr_expect_eq(got[i], x[i][0], "%d of %d", (int)i, (int)n);
        rig_read(&r, out[1], got, n);
        for (int64_t i = 0; i < n; i++) cr_expect_eq(got[i], x[i][1], "%d of %d", (int)i, (int)n);
        if (n > 0) {
            deft_tensor *const last = deft_slice(out[0], DEFT_R(n - 1, n));
            for (int64_t i = 0; i < n; i++) grad[i] = x[n - 1][0] / (float)(i + 1);
            rig_expect(&r, rig_grad_of_sum(last, a), n, grad);
        }
        OK(&r, deft_step_end(s));
    }
    rig_close(&r);
}

/* ---- bits ---- */

/* Elements of this size from the order of bytes of files, the low one first, to that of the
 * machine; or back. */
static void order_bytes(void *elements, size_t n, size_t size)
{
    if (DF_IS_BIG_ENDIAN) df_bits_reverse(elements, n, (uint32_t)size);
}

Test(dynamic, bits_as_numbers_of_one_size)
{
    rig r;
    rig_open(&r, NULL, NULL);
    static const deft_dtype dtypes[] = { DEFT_I8,  DEFT_U8,   DEFT_I16, DEFT_U16,
                                         DEFT_F16, DEFT_BF16, DEFT_I32, DEFT_U32,
                                         DEFT_F32, DEFT_I64,  DEFT_U64, DEFT_F64 };
    unsigned char bytes[512], data[512], got[512], padded[512];
    for (int i = 0; i < 512; i++) bytes[i] = (unsigned char)(i * 37 + i / 256 * 5);
    for (size_t i = 0; i < DF_LEN(dtypes); i++)
        for (size_t k = 0; k < DF_LEN(dtypes); k++) {
            const size_t size = deft_dtype_size(dtypes[i]), to = deft_dtype_size(dtypes[k]);
            const deft_scope s = deft_scope_begin(r.cx);
            memcpy(data, bytes, sizeof data);
            order_bytes(data, sizeof data, size);
            deft_tensor *const x =
                deft_from(r.cx, DEFT_SHAPE(4, 128 / (int64_t)size), dtypes[i], data, sizeof data);
            deft_tensor *const y = deft_bitcast(x, dtypes[k]);
            cr_assert(y, "%s", deft_message(r.cx));
            cr_assert_eq(deft_dtype_of(y), dtypes[k]);
            cr_assert_eq(deft_dim(y, 1), 128 / (int64_t)to);
            OK(&r, deft_read(y, dtypes[k], got, sizeof got));
            order_bytes(got, sizeof got, to);
            cr_expect(!memcmp(got, bytes, sizeof got), "%s to %s", deft_dtype_name(dtypes[i]),
                      deft_dtype_name(dtypes[k]));
            /* beside other operations, and back */
            deft_tensor *const part =
                deft_bitcast(deft_bitcast(deft_pad(x, (int64_t[]){ 1, 0 }, (int64_t[]){ 0, 0 },
                                                   DEFT_PAD_CONSTANT, 0),
                                          dtypes[k]),
                             dtypes[i]);
            OK(&r, deft_read(deft_slice(part, DEFT_R(1, 5)), dtypes[i], padded, sizeof padded));
            order_bytes(padded, sizeof padded, size);
            cr_expect(!memcmp(padded, bytes, sizeof padded));
            OK(&r, deft_scope_end(s));
        }
    rig_close(&r);
}

/* ---- numbers that i64 cannot hold ---- */

Test(dynamic, calls_keep_all_bits_of_unsigned_numbers)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const uint64_t most = UINT64_MAX, near = UINT64_MAX - 5;
    const uint64_t v[2] = { UINT64_MAX - 1, 3 };
    uint64_t got[3];
    deft_tensor *const x = deft_from(r.cx, DEFT_SHAPE(2), DEFT_U64, v, sizeof v);
    deft_tensor *const i = deft_from(r.cx, DEFT_SHAPE(2), DEFT_I64, v, sizeof v);
    OK(&r, deft_read(deft_clamp(x, UINT64_C(5), near), DEFT_U64, got, 16));
    cr_expect(got[0] == near && got[1] == 5);
    OK(&r, deft_read(deft_pad(x, (int64_t[]){ 0 }, (int64_t[]){ 1 }, DEFT_PAD_CONSTANT, most),
                     DEFT_U64, got, 24));
    cr_expect(got[1] == 3 && got[2] == most);
    OK(&r, deft_read(deft_full_like(x, most), DEFT_U64, got, 16));
    cr_expect(got[0] == most && got[1] == most);
    OK(&r, deft_read(deft_lerp(x, deft_add(x, 1), most), DEFT_U64, got, 16));
    cr_expect(got[0] == UINT64_MAX - 2 && got[1] == 2);
    RIG_EXPECT(&r, deft_clamp(i, -1, sizeof v), -1, 3);
    rig_expect_error(&r, deft_full_like(i, most), DEFT_E_RANGE, "does not fit i64");
    rig_expect_error(&r, deft_pad(i, (int64_t[]){ 0 }, (int64_t[]){ 1 }, DEFT_PAD_CONSTANT, most),
                     DEFT_E_RANGE, "does not fit i64");
    rig_close(&r);
}

/* ---- mistakes ---- */

Test(dynamic, mistakes)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = rig_range(&r, 5, 0), *at = whole(&r, 1), *out[2];
    rig_expect_error(&r, deft_dynamic_slice(x, &at, (int64_t[]){ 6 }), DEFT_E_RANGE,
                     "dynamic_slice: 6 elements of axis 0, which has 5");
    rig_expect_error(&r, deft_dynamic_slice(x, NULL, (int64_t[]){ 1 }), DEFT_E_ARG, "no starts");
    rig_expect_error(&r, deft_dynamic_slice(x, &x, (int64_t[]){ 1 }), DEFT_E_DTYPE,
                     "the start of axis 0 is f32 with 1 axes");
    rig_expect_error(&r, deft_dynamic_update(x, at, &at, (int64_t[]){ 1 }), DEFT_E_DTYPE,
                     "dynamic_update: values are i64, the tensor is f32");
    rig_expect_error(&r, deft_dynamic_update(x, rig_range(&r, 3, 0), &at, (int64_t[]){ 2 }),
                     DEFT_E_SHAPE, "expand");
    rig_expect_error(&r, deft_dynamic_update(x, x, (deft_tensor *const[]){ NULL }, NULL),
                     DEFT_E_ARG, "no starts or no sizes");
    rig_expect_error(&r,
                     deft_dynamic_update(x, x, (deft_tensor *const[]){ NULL }, (int64_t[]){ 5 }),
                     DEFT_E_ARG, "no axis has a start");
    rig_expect_error(&r, deft_bitcast(x, DEFT_BOOL), DEFT_E_DTYPE, "bitcast: f32 to bool");
    rig_expect_error(&r, deft_bitcast(x, DEFT_F64), DEFT_E_SHAPE,
                     "bitcast: f32 to f64: the last of 1 axes has 5 elements");
    rig_expect_error(&r, deft_bitcast(at, DEFT_I8), DEFT_E_SHAPE, "the last of 0 axes");
    rig_expect_error(&r, deft_bitcast(x, (deft_dtype)77), DEFT_E_DTYPE, "77 is no dtype");
    deft_tensor *const two[2] = { x, rig_range(&r, 4, 0) };
    cr_assert(!deft_associative_scan(compose, NULL, two, 2, 0, out));
    rig_expect_error(&r, out[0], DEFT_E_SHAPE, "associative_scan: axis 0 of tensor 1 differs");
    cr_assert(!deft_associative_scan(NULL, NULL, two, 2, 0, out));
    rig_expect_error(&r, out[0], DEFT_E_ARG, "a function or a list is missing");
    rig_close(&r);
}
