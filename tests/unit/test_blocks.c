/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops whose rows do not depend on each other run block by block: beside the operations of their
 * iterations recorded one by one, bit for bit, on one to four threads. States keep their places,
 * change places, are computed from a whole row of each other, or are the latest row of a stacked
 * result. Weights are the same in all iterations.
 */
#include <criterion/criterion.h>

#include <string.h>

#include "support/harness.h"

enum { WIDTH = 8, TURNS = 5, MOST_ROWS = 70, ROOM = 3 * MOST_ROWS * WIDTH * (2 + TURNS) };

typedef enum body {
    BODY_SWAPS,
    BODY_STAYS,
    BODY_BATCH,
    BODY_MIXES_ROWS,
    BODY_WEIGHTS,
    N_BODIES
} body;

typedef struct turns {
    body b;
    deft_tensor *weights; /* of BODY_WEIGHTS */
} turns;

/* in: two states, a row of matrices. out: the next states, and one number for each row. */
static deft_status turn(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *user)
{
    const turns *const t = user;
    (void)cx, (void)n_in, (void)n_out;
    deft_tensor *const by = t->b == BODY_WEIGHTS ? t->weights : in[2];
    deft_tensor *const product = deft_matmul(in[0], by);
    deft_tensor *const next = deft_add(deft_mul(product, 0.25), in[1]);
    switch (t->b) {
    case BODY_SWAPS:
    case BODY_BATCH:
        out[0] = next;
        out[1] = deft_mul(in[0], 0.5);
        break;
    case BODY_STAYS:
        out[0] = deft_sub(in[0], deft_mul(product, 0.125));
        out[1] = deft_maximum(in[1], product);
        break;
    case BODY_MIXES_ROWS: /* each row depends on the one before it: this loop has no blocks */
        out[0] = deft_roll(next, 1, -2);
        out[1] = in[0];
        break;
    case BODY_WEIGHTS: /* a recurrent layer: all states are stacked */
        out[0] = deft_tanh(deft_add(next, deft_slice(in[2], DEFT_R(0, 1))));
        out[1] = deft_mul(in[0], in[1]);
        break;
    case N_BODIES: break;
    }
    out[2] = t->b == BODY_WEIGHTS ? out[0] : deft_sum(deft_abs(out[0]), DEFT_AXES(-1), 0);
    return DEFT_OK;
}

static deft_tensor *drawn(deft_ctx *cx, uint64_t seed, deft_shape s)
{
    deft_rng rng = { seed, 0 };
    return deft_normal(cx, &rng, s, DEFT_F32, 0, 1);
}

/* Reads the results of the loop (or of its iterations one by one) into out. Returns how many. */
static size_t results_with(rig *own, body b, int64_t n, bool by_hand, deft_tensor *weights,
                           float *out)
{
    deft_tensor *end[3] = { NULL };
    const bool batch = b == BODY_BATCH;
    const deft_shape s = batch ? DEFT_SHAPE(3, n, WIDTH) : DEFT_SHAPE(n, WIDTH);
    const deft_scope scope = deft_scope_begin(own->cx);
    deft_tensor *const init[2] = { drawn(own->cx, 1, s), drawn(own->cx, 2, s) };
    deft_tensor *const rows = drawn(
        own->cx, 3, batch ? DEFT_SHAPE(TURNS, 3, WIDTH, WIDTH) : DEFT_SHAPE(TURNS, WIDTH, WIDTH));
    deft_tensor *in[3] = { init[0], init[1], NULL }, *one[TURNS];
    turns t = { b, weights };
    if (!weights) t.weights = drawn(own->cx, 4, DEFT_SHAPE(WIDTH, WIDTH));
    for (int64_t i = 0; by_hand && i < TURNS; i++) {
        in[2] = deft_squeeze(deft_slice(rows, DEFT_R(i, i + 1)), DEFT_AXES(0));
        cr_assert(turn(own->cx, in, 3, end, 3, &t) == DEFT_OK);
        in[0] = end[0];
        in[1] = end[1];
        one[i] = end[2];
    }
    if (by_hand)
        end[2] = deft_stack(one, TURNS, 0);
    else
        cr_assert(deft_scan(own->cx, turn, &t, init, 2, &rows, 1, TURNS, 1, end), "%s",
                  deft_message(own->cx));
    size_t total = 0;
    for (int i = 0; i < 3; i++) {
        const size_t numel = (size_t)deft_numel(end[i]);
        OK(own, deft_read(end[i], DEFT_F32, out + total, numel * sizeof *out));
        total += numel;
    }
    OK(own, deft_scope_end(scope));
    return total;
}

static size_t results(rig *own, body b, int64_t n, bool by_hand, float *out)
{
    return results_with(own, b, n, by_hand, NULL, out);
}

/* Each of the at least two segments of an iteration counts. */
Test(blocks, iterations_in_blocks_are_counted)
{
    static float out[ROOM];
    rig own;
    rig_interpret(&own, 2);
    const uint64_t before = rig_stats(&own).interpreted;
    (void)results(&own, BODY_SWAPS, MOST_ROWS, false, out);
    cr_assert_geq(rig_stats(&own).interpreted - before, 2 * TURNS);
    rig_close(&own);
}

Test(blocks, loops_have_the_bits_of_their_iterations)
{
    static const int64_t rows[] = { 1, 2, 3, 8, 17, 64, MOST_ROWS };
    static float got[ROOM], want[ROOM];
    for (uint32_t threads = 1; threads <= 4; threads++) {
        rig own;
        rig_interpret(&own, threads);
        for (int b = 0; b < N_BODIES; b++)
            for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
                const size_t n = results(&own, (body)b, rows[i], false, got);
                cr_assert_eq(results(&own, (body)b, rows[i], true, want), n);
                cr_assert_eq(memcmp(got, want, n * sizeof *got), 0, "body %d, %d rows, %u threads",
                             b, (int)rows[i], threads);
            }
        rig_close(&own);
    }
}

/* The first run packs the weights, and the assignment drops the copy. */
Test(blocks, weights_may_change_between_loops)
{
    static float got[ROOM], want[ROOM];
    rig own;
    rig_interpret(&own, 2);
    deft_tensor *weights = deft_keep(drawn(own.cx, 5, DEFT_SHAPE(WIDTH, WIDTH)));
    OK(&own, deft_eval((deft_tensor *[]){ weights }, 1));
    for (int i = 0; i < 6; i++) {
        const size_t n = results_with(&own, BODY_WEIGHTS, MOST_ROWS, false, weights, got);
        cr_assert_eq(results_with(&own, BODY_WEIGHTS, MOST_ROWS, true, weights, want), n);
        cr_assert_eq(memcmp(got, want, n * sizeof *got), 0, "loop %d", i);
        if (i % 2 == 0) continue;
        const deft_scope step = deft_step_begin(own.cx);
        deft_assign(weights, deft_mul(weights, 0.75));
        OK(&own, deft_step_end(step));
    }
    deft_drop(&weights);
    rig_close(&own);
}
