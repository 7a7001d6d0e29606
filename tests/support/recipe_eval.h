/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs recipes with no other part of deft: a df_emit that keeps a list of instructions, and an
 * evaluator that runs the list over batches of lanes. Kernel ops mean what kops.def says.
 */
#ifndef TEST_RECIPE_EVAL_H
#define TEST_RECIPE_EVAL_H

#include "ops/recipe.h"

#define RECIPE_LANES 1024
#define RECIPE_MAX 2048 /* instructions */

typedef struct recipe_ins {
    uint8_t op, t, src_t; /* src_t: dtype of the first operand */
    uint32_t a, b, c;
    uint64_t imm;
    void *lanes; /* RECIPE_LANES values */
} recipe_ins;

typedef struct recipe_prog {
    df_emit base; /* equal instructions get one id */
    uint32_t n, n_inputs;
    recipe_ins ins[RECIPE_MAX];
} recipe_prog;

/* prog is the caller's, large: not for the stack of a thread. */
void recipe_init(recipe_prog *p);
void recipe_finish(recipe_prog *p);

/* The next input; inputs are numbered from 0. */
uint32_t recipe_input(recipe_prog *p, deft_dtype t);

/* Runs lanes 0 .. n_lanes-1, n_lanes <= RECIPE_LANES; in[i] holds input i in its dtype. */
void recipe_run(recipe_prog *p, size_t n_lanes, const void *const *in);

/* The lanes of value id after a run. */
const void *recipe_lanes(const recipe_prog *p, uint32_t id);

/* Instructions that cost something: not constants, inputs or bitcasts. */
uint32_t recipe_cost(const recipe_prog *p);

#endif
