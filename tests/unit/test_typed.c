/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays of C with their types: shapes and dtypes of arrays, and views of tensors that are read and
 * written.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "support/fail_mem.h"
#include "support/harness.h"

#define S DEFT_SHAPE

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 1);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(typed, .init = set_up, .fini = tear_down);

static void is(deft_tensor *t, deft_dtype dtype, deft_shape want)
{
    const deft_shape s = deft_shape_get(t);
    cr_assert(t && deft_dtype_of(t) == dtype && s.rank == want.rank, "%s",
              t ? deft_dtype_name(deft_dtype_of(t)) : deft_message(r.cx));
    cr_assert(memcmp(s.dim, want.dim, s.rank * sizeof *s.dim) == 0);
}

Test(typed, an_array_has_a_dtype){
#define EACH(type, want)                                                                           \
    {                                                                                              \
        type a[3] = { 0 };                                                                         \
        const type b[3] = { 0 };                                                                   \
        is(DEFT_FROM(r.cx, a), want, S(3));                                                        \
        is(DEFT_WRAP(r.cx, b), want, S(3));                                                        \
    }
    EACH(float, DEFT_F32) EACH(double, DEFT_F64) EACH(bool, DEFT_BOOL) EACH(int8_t, DEFT_I8)
        EACH(uint8_t, DEFT_U8) EACH(int16_t, DEFT_I16) EACH(uint16_t, DEFT_U16)
            EACH(int32_t, DEFT_I32) EACH(uint32_t, DEFT_U32) EACH(int64_t, DEFT_I64)
                EACH(uint64_t, DEFT_U64) EACH(long long, DEFT_I64)
                    EACH(unsigned long long, DEFT_U64)
#undef EACH
}

Test(typed, an_array_has_a_shape)
{
    static const float four[2][3][1][5];
    double three[2][1][3];
    int two[1][1];
    is(DEFT_WRAP(r.cx, four), DEFT_F32, S(2, 3, 1, 5));
    is(DEFT_WRAP(r.cx, four[1]), DEFT_F32, S(3, 1, 5));
    is(DEFT_WRAP(r.cx, four[1][0]), DEFT_F32, S(1, 5));
    is(DEFT_WRAP_MUT(r.cx, three), DEFT_F64, S(2, 1, 3));
    is(DEFT_WRAP(r.cx, two), DEFT_I32, S(1, 1));
}

static deft_status doubled(deft_tensor *t, float (*out)[2][2])
{
    DEFT_TRY(DEFT_READ(deft_mul(t, 2), *out));
    return DEFT_OK;
}

Test(typed, reads_into_arrays)
{
    double a[2][2] = { { 1, 2 }, { 3, 4 } };
    float out[2][2], few[3];
    deft_tensor *const x = DEFT_WRAP(r.cx, a);
    OK(&r, doubled(x, &out));
    cr_assert(out[0][0] == 2 && out[1][1] == 8);
    cr_assert_eq(doubled(NULL, &out), DEFT_E_ARG);
    const deft_status st = DEFT_READ(x, few);
    cr_assert_eq(st, DEFT_E_ARG);
    cr_assert(strstr(deft_message(r.cx), "is 16 bytes, dst has 12"), "%s", deft_message(r.cx));
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(DEFT_WRAP_MUT(r.cx, a), deft_t(x));
    OK(&r, deft_step_end(s));
    cr_assert(a[0][1] == 3 && a[1][0] == 2);
}

Test(typed, views_are_read_where_the_elements_are)
{
    int16_t a[3][4] = { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 } };
    deft_tensor *const x =
        deft_wrap(r.cx, S(2, 3), DEFT_I16, a, sizeof a, (const int64_t[]){ 8, -1 });
    DEFT_MAP(int16_t, v, x);
    OK(&r, v.status);
    cr_assert_eq(v.at, &a[0][2]);
    cr_assert(v.view.rank == 2 && v.view.dim[0] == 2 && v.view.stride[1] == -1);
    cr_assert(DEFT_EL(v, 0, 0) == 3 && DEFT_EL(v, 1, 2) == 9);
    OK(&r, DEFT_UNMAP(v));
    cr_assert(!v.view.data && DEFT_UNMAP(v) == DEFT_OK);
    deft_tensor *const half = deft_ones(r.cx, S(2), DEFT_BF16);
    DEFT_MAP(uint16_t, bits, half);
    cr_assert_eq(DEFT_EL(bits, 1), 0x3f80);
    OK(&r, DEFT_UNMAP(bits));
    DEFT_MAP(float, number, deft_num(r.cx, 2.5));
    cr_assert_eq(*number.at, 2.5f);
    OK(&r, DEFT_UNMAP(number));
    DEFT_MAP(double, wrong, x);
    cr_assert(wrong.status == DEFT_E_DTYPE && !wrong.at);
    cr_assert(strstr(deft_message(r.cx), "the tensor is i16"), "%s", deft_message(r.cx));
    OK(&r, DEFT_UNMAP(wrong));
    DEFT_MAP(float, none, NULL);
    cr_assert_eq(none.status, DEFT_E_ARG);
    cr_assert_eq(deft_map_view(x, ~0u, false, NULL), DEFT_E_ARG);
}

Test(typed, what_is_written_is_assigned_at_the_end)
{
    deft_tensor *const x = rig_range(&r, 4, 1), *const before = rig_alias(&r, x);
    DEFT_MAP_MUT(float, v, x);
    OK(&r, v.status);
    DEFT_EL(v, 2) = -9;
    RIG_EXPECT(&r, x, 1, 2, 3, 4);
    OK(&r, DEFT_UNMAP(v));
    RIG_EXPECT(&r, x, 1, 2, -9, 4);
    RIG_EXPECT(&r, before, 1, 2, 3, 4);

    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const part = deft_slice(x, DEFT_R(0, 2));
    DEFT_MAP_MUT(float, w, part);
    OK(&r, w.status);
    DEFT_EL(w, 0) = DEFT_EL(w, 1) = 7;
    OK(&r, DEFT_UNMAP(w));
    RIG_EXPECT(&r, x, 7, 7, -9, 4);
    deft_step_abort(s);
    RIG_EXPECT(&r, x, 1, 2, -9, 4);

    float memory[3] = { 1, 2, 3 };
    deft_tensor *const m = deft_keep(DEFT_WRAP_MUT(r.cx, memory));
    const deft_scope step = deft_step_begin(r.cx);
    DEFT_MAP_MUT(float, u, m);
    DEFT_EL(u, 1) = 5;
    OK(&r, DEFT_UNMAP(u));
    cr_assert_eq(memory[1], 2.f, "the step has not ended");
    OK(&r, deft_step_end(step));
    cr_assert_eq(memory[1], 5.f);

    deft_tensor *const flags = deft_keep(deft_zeros(r.cx, S(2), DEFT_BOOL));
    deft_view bytes;
    OK(&r, deft_map_view(flags, 1u << DEFT_BOOL, true, &bytes));
    ((uint8_t *)bytes.data)[1] = 77; /* becomes 1 */
    OK(&r, deft_unmap_view(&bytes));
    RIG_EXPECT(&r, flags, 0, 1);

    DEFT_MAP_MUT(float, number, deft_num(r.cx, 1));
    cr_assert_eq(number.status, DEFT_E_ARG);
    const deft_scope gone = deft_scope_begin(r.cx);
    DEFT_MAP_MUT(float, late, deft_add(x, 1));
    OK(&r, deft_scope_end(gone));
    cr_assert_eq(DEFT_UNMAP(late), DEFT_E_STATE);
    deft_clear(r.cx);
}

Test(typed, an_index_out_of_range_ends_the_program, .signal = SIGABRT)
{
    float a[2][2] = { { 0 } };
    DEFT_MAP(float, v, DEFT_WRAP(r.cx, a));
    r.log[0] = (char)DEFT_EL(v, 1, 2);
}
