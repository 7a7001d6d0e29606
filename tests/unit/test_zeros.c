/* SPDX-License-Identifier: Apache-2.0
 *
 * Zeros that nobody has written take no memory (runtime/exec/exec_bind.c): when pages appear, and
 * that all elements are right whatever was in the memory before.
 */
#include <math.h>
#include <stdint.h>
#include <sys/mman.h>

#include "../support/harness.h"

enum { ROWS = 512, WIDTH = 4096, PAGE = 4096, PAGES = ROWS * WIDTH * 4 / PAGE };

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 2);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(zeros, .init = set_up, .fini = tear_down);

static deft_tensor *filled(double value)
{
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const x = deft_keep(deft_full(r.cx, DEFT_SHAPE(ROWS, WIDTH), DEFT_F32, value));
    OK(&r, deft_step_end(s));
    return x;
}

/* How many pages of the elements take memory. */
static int n_resident(deft_tensor *x)
{
    static unsigned char is_in[PAGES];
    deft_mapped m;
    int n = 0;
    OK(&r, deft_map(x, &m));
    cr_assert_eq(m.bytes, sizeof is_in * PAGE);
    cr_assert_eq((uintptr_t)m.data % PAGE, 0);
    cr_assert_eq(mincore((void *)(uintptr_t)m.data, m.bytes, is_in), 0);
    for (int i = 0; i < PAGES; i++) n += is_in[i] & 1;
    deft_unmap(&m);
    return n;
}

/* Expects the number of the row in which an element is to decide its value. */
static void expect_rows(deft_tensor *x, int row, float value, float others)
{
    deft_mapped m;
    int n_wrong = 0;
    OK(&r, deft_map(x, &m));
    const float *const at = m.data;
    for (int i = 0; i < ROWS * WIDTH; i++) n_wrong += at[i] != (i / WIDTH == row ? value : others);
    cr_assert_eq(n_wrong, 0);
    deft_unmap(&m);
}

static void write_row(deft_tensor *x, int64_t row, double value)
{
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const part = deft_slice(x, DEFT_R(row, row + 1), DEFT_FULL);
    deft_assign(part, deft_full(r.cx, DEFT_SHAPE(1, WIDTH), DEFT_F32, value));
    OK(&r, deft_step_end(s));
}

static void add_to_all(deft_tensor *x, double value)
{
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(x, deft_add(x, deft_num(r.cx, value)));
    OK(&r, deft_step_end(s));
}

Test(zeros, pages_take_memory_when_they_are_written)
{
    const int pages_of_row = WIDTH * 4 / PAGE;
    deft_tensor *x = filled(0);
    cr_expect_eq(n_resident(x), 0, "%d of %d pages", n_resident(x), (int)PAGES);
    for (int i = 1; i <= 3; i++) {
        write_row(x, 100, i);
        cr_expect_eq(n_resident(x), pages_of_row, "%d: %d pages", i, n_resident(x));
    }
    cr_expect_eq(rig_stats(&r).donated, 3);
    expect_rows(x, 100, 3, 0);
    deft_drop(&x);
}

Test(zeros, a_value_that_is_written_completely_has_its_pages_before)
{
    deft_tensor *x = filled(0);
    write_row(x, 7, 5);
    add_to_all(x, 2);
    cr_expect_eq(n_resident(x), PAGES);
    cr_expect_eq(rig_stats(&r).donated, 2);
    expect_rows(x, 7, 7, 2);
    deft_drop(&x);
}

Test(zeros, memory_that_was_used_is_filled)
{
    deft_tensor *x = filled(3);
    deft_drop(&x);
    for (int i = 0; i < 2; i++) {
        x = filled(0); /* in the memory of the value before */
        cr_expect_eq(n_resident(x), PAGES);
        expect_rows(x, 0, 0, 0);
        write_row(x, 0, 1);
        deft_drop(&x);
    }
    cr_expect_eq(rig_stats(&r).system_allocations, 1);
}

Test(zeros, other_numbers_are_written)
{
    deft_tensor *x = filled(-0.0);
    cr_expect_eq(n_resident(x), PAGES);
    deft_mapped m;
    OK(&r, deft_map(x, &m));
    for (int i = 0; i < ROWS * WIDTH; i++) cr_assert(signbit(((const float *)m.data)[i]));
    deft_unmap(&m);
    deft_drop(&x);
}

Test(zeros, memory_of_the_caller_is_filled)
{
    static float memory[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++) memory[i] = 9;
    deft_tensor *x =
        deft_wrap_mut(r.cx, DEFT_SHAPE(ROWS, WIDTH), DEFT_F32, memory, sizeof memory, NULL);
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(x, deft_zeros(r.cx, DEFT_SHAPE(ROWS, WIDTH), DEFT_F32));
    OK(&r, deft_step_end(s));
    for (int i = 0; i < ROWS * WIDTH; i++) cr_assert_eq(memory[i], 0);
    deft_drop(&x);
}
