/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that deft_store_next has stored, run again outside the context that stored them.
 */
#ifndef MIXED_STORED_H
#define MIXED_STORED_H

#include <stdbool.h>
#include <stddef.h>

#include "deft/deft.h"

/* n elements of a tensor of f32. */
typedef struct mixed_value {
    const float *at;
    size_t n;
} mixed_value;

/* What the run that was stored gave. */
typedef struct mixed_stored {
    bool is_known; /* status and values below are known; else any status may be found */
    deft_status status;
    mixed_value read;        /* one of the results; at NULL: not compared */
    const mixed_value *kept; /* of tensors after the run: each result of dtype f32 is among them */
    size_t n_kept;           /* 0: not compared */
    const struct df_limits *limits; /* by which its plan was made; NULL: those of a new device */
} mixed_stored;

/* Runs path.trace on path.safetensors, fused and unfused, and removes both files. Both runs must
 * end alike, with equal bits in all results, and as `was` says. The unfused run has no bound on
 * temporaries, so that the fused one alone may be refused, with DEFT_E_MEMORY. Returns false when
 * this does not hold, with the reason in why. Without these files the call returns true and sets
 * *is_there to false. */
bool mixed_stored_runs(const char *path, const mixed_stored *was, bool *is_there, char *why,
                       size_t why_size);

#endif
