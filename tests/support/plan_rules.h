/* SPDX-License-Identifier: Apache-2.0
 *
 * Lets generators of programs reach the rules by which the fuser saves memory. Temporaries are
 * stored over operands from DF_OVER_BYTES on, at the launch with the most live bytes. What
 * generators draw is smaller. So in half of the programs the rules are applied wherever they may be
 * (df_limits.saves_all). In half of these, kernels are short, so that more is stored. The plans
 * that are made meanwhile are counted.
 */
#ifndef TEST_PLAN_RULES_H
#define TEST_PLAN_RULES_H

#include "oracle.h"

/* What was counted. A plan with loops or branches counts once, with all plans within it. */
typedef struct plan_rules {
    uint64_t programs;
    uint64_t n_over;    /* programs with a temporary that is stored over an operand */
    uint64_t plans;     /* fused plans */
    uint64_t parted;    /* plans in which a region has parts */
    uint64_t postponed; /* plans with a postponed launch */
    uint64_t retreated; /* plans that the verifier refused, so that nothing was fused */
} plan_rules;

/* Begins a program on open paths: draws the limits by its seed, for all plans that the runtimes of
 * the paths run from now on. A runtime whose limits change forgets its plans, so that none made by
 * other limits is found. One thread may call this. */
void plan_rules_begin(const oracle_path *path, size_t n, uint64_t seed);
/* Draws the same for more paths that run the current program. */
void plan_rules_draw(const oracle_path *path, size_t n, uint64_t seed);
/* The limits by which the runtime has made all plans for the CPU that it holds. */
const struct df_limits *plan_rules_limits(const deft_runtime *rt);

/* Sets saves_all for all plans that this runtime makes from now on. They are not counted. */
void plan_rules_save_all(deft_runtime *rt);
/* Returns what has been counted so far. */
plan_rules plan_rules_read(void);
/* Prints what has been counted. Returns false, and prints why, when a plan retreated. Returns false
 * also when no temporary was stored over an operand, no region had parts or no launch was
 * postponed, unless fewer than `least_programs` programs were run. */
bool plan_rules_end(uint64_t least_programs);

#endif
