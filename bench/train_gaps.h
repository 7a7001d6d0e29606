/* SPDX-License-Identifier: Apache-2.0
 *
 * How long is a GPU idle in a training step? deft by launches and by graphs, PyTorch eager,
 * compiled and with CUDA graphs, all by one definition:
 *
 *   step   seconds of a step, of many one after the other with one wait at the end
 *   GPU    seconds that the GPU is busy with a step while it never waits for the host: the time
 *          between two events around steps that were all put in before the first could begin
 *          (held.h; of PyTorch behind a kernel that spins). What a step itself waits for (its
 *          indices, looked at) divides it into segments, whose times are added up
 *   gap    step less GPU, and 0 where that is less, by as much as the clock is unsure
 *   host   seconds that the host takes to put a step in, waiting left out
 *
 * The driver takes some 1024 launches ahead. A step of more has no gap: null, and why.
 */
#ifndef BENCH_TRAIN_GAPS_H
#define BENCH_TRAIN_GAPS_H

#include "bench.h"
#include "peer.h"

typedef struct gap {
    double step_s, gpu_s, host_s;
    double n_waits; /* of the host for the GPU, in a step */
    char why[160];  /* it could not be measured; "": it was */
} gap;

/* Asks p, whose model is warm. */
gap gap_measure(peer *p, int rounds);
/* One row: the gap, beside the step it is of. goal: its share of that, at most. */
void gap_row(bench *b, const char *model, const char *mode, const gap *g, double goal);

#endif
