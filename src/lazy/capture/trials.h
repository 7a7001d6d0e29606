/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials: what a captured function records with other extents. An exported function has open
 * extents, and its trace has numbers where C code computed from an extent. One recording does not
 * show such numbers. So the function is recorded again, with inputs of other extents, and nothing
 * of it is run. What differs from the recording cannot be exported with that extent open.
 */
#ifndef DF_LAZY_TRIALS_H
#define DF_LAZY_TRIALS_H

#include "lazy/capture/capture.h"
#include "runtime/export.h"

typedef struct df_trials {
    DF_VEC(recording *) made;   /* those that were kept, which own the traces */
    DF_VEC(df_aot_other) other; /* for the exporter; extents are in the arena */
} df_trials;

/* Records the function of r again with other extents, and compares. axis has the n open axes of
 * inputs of its trace, which have n_params extents. c->running must be set. The arena keeps what
 * *out refers to. On failure, too, df_trials_finish frees *out.
 *
 * Fails with DEFT_E_ARG where C code computes from an extent. The sentence names the operator and
 * its call. Fails, too, where the function fails with all other extents. A difference with extents
 * that are much smaller or larger gives bounds instead: bounds[i] are those of extent i. */
deft_status df_trials_run(const recording *r, const df_aot_found_axis *axis, uint32_t n,
                          uint32_t n_params, df_aot_bounds *bounds, df_arena *arena,
                          df_trials *out);
void df_trials_finish(deft_ctx *cx, df_trials *t);

#endif
