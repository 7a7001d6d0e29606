/* SPDX-License-Identifier: Apache-2.0
 *
 * What gradients of scans compute again, and what they read from rows.
 */
#include <criterion/criterion.h>

#include <string.h>

#include "support/harness.h"

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 1);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(grad_scan, .init = set_up, .fini = tear_down);

#define VECTOR(...) RIG_VECTOR(&r, __VA_ARGS__)

static char trace[1 << 14]; /* what computed the gradient of the weight, after read_gradients */

/* How often `part` is in the trace. */
static int count_in_trace(const char *part)
{
    int n = 0;
    for (const char *at = trace; (at = strstr(at, part)); at++) n++;
    return n;
}

/* The left operand of the product in product_step. */
typedef enum left_operand { STATE, ROW, COMPUTED, N_OPERANDS } left_operand;

typedef struct program {
    deft_tensor *w;
    left_operand left;
    int64_t length;
    bool stacks_product;
} program;

/* h' = tanh(left w + x); stacks h', and left w where the program says so. */
static deft_status product_step(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                deft_tensor **out, size_t n_out, void *user)
{
    const program *const p = user;
    (void)cx, (void)n_in, (void)n_out;
    deft_tensor *const left = p->left == COMPUTED ? deft_sin(in[0]) : in[p->left];
    deft_tensor *const product = deft_matmul(left, p->w);
    out[0] = out[1] = deft_tanh(deft_add(product, in[1]));
    if (p->stacks_product) out[2] = product;
    return DEFT_OK;
}

/* Reads the gradients of the sum of all states: first state, rows (at most three), weight. */
static void read_gradients(program p, float got[12])
{
    deft_tensor *out[3], *g[3];
    p.w = deft_reshape(VECTOR(0.5f, -0.25f, 0.75f, 1), DEFT_SHAPE(2, 2));
    deft_tensor *const h = deft_reshape(VECTOR(0.5f, 1), DEFT_SHAPE(1, 2));
    deft_tensor *const all =
        deft_reshape(VECTOR(0.25f, 0, -0.5f, 1, 0.125f, 0.5f), DEFT_SHAPE(3, 1, 2));
    deft_tensor *const x = deft_slice(all, DEFT_R(0, p.length));
    cr_assert(
        deft_scan(r.cx, product_step, &p, &h, 1, &x, 1, p.length, p.stacks_product ? 2 : 1, out),
        "%s", deft_message(r.cx));
    deft_tensor *const of =
        deft_add(deft_sum(out[1], DEFT_ALL_AXES, 0), deft_sum(out[0], DEFT_ALL_AXES, 0));
    deft_tensor *const with[] = { h, x, p.w };
    cr_assert(deft_grad(&of, NULL, 1, with, 3, NULL, g), "%s", deft_message(r.cx));
    memset(got, 0, 12 * sizeof *got);
    rig_read(&r, g[2], got + 8, 4);
    cr_assert_lt(deft_show(r.cx, "trace", trace, sizeof trace), sizeof trace);
    rig_read(&r, g[0], got, 2);
    if (p.length) rig_read(&r, g[1], got + 2, (size_t)p.length * 2);
}

/* Products in the trace that computes the gradient of the weight: of the loop, of the backward loop
 * for the state and the weight, and the one of the loop again where it was not stacked. */
Test(grad_scan, what_a_loop_has_stacked_is_not_computed_again)
{
    float got[2][12];
    for (int product = 0; product < 2; product++) {
        read_gradients((program){ .length = 3, .stacks_product = product }, got[product]);
        cr_assert_eq(count_in_trace("= loop "), 2, "%s", trace);
        cr_assert_eq(count_in_trace("= matmul "), 4 - product, "%s", trace);
    }
    cr_assert_arr_eq(got[1], got[0], sizeof got[0]);
}

static void open_fast(void)
{
    const deft_ctx_options o = { .size = sizeof o, .numerics = DEFT_FAST };
    rig_close(&r);
    rig_open(&r, NULL, &o);
}

/* In fast mode the backward loop has one state, the gradient of h, and no product for w. */
Test(grad_scan, in_fast_mode_a_weight_of_a_loop_gets_one_product)
{
    float got[12];
    for (int fast = 0; fast < 2; fast++) {
        if (fast) open_fast();
        read_gradients((program){ .length = 3, .stacks_product = true }, got);
        cr_assert_eq(count_in_trace("= carry "), fast ? 2 : 3, "%s", trace);
        cr_assert_eq(count_in_trace("= matmul "), 3, "%s", trace);
    }
}

Test(grad_scan, one_product_makes_the_gradient_of_the_sum)
{
    enum { LENGTHS = 4, PROGRAMS = LENGTHS * N_OPERANDS * 2 };
    float got[2][PROGRAMS][12];
    for (int fast = 0; fast < 2; fast++) {
        if (fast) open_fast();
        for (int i = 0; i < PROGRAMS; i++)
            read_gradients((program){ .left = (left_operand)(i / 2 / LENGTHS),
                                      .length = i / 2 % LENGTHS,
                                      .stacks_product = i % 2 },
                           got[fast][i]);
    }
    for (int i = 0; i < PROGRAMS; i++)
        for (int k = 0; k < 12; k++)
            cr_assert_float_eq(got[1][i][k], got[0][i][k], 1e-5,
                               "program %d, element %d: %g, not %g", i, k, (double)got[1][i][k],
                               (double)got[0][i][k]);
}
