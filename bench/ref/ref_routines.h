/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting, selecting, counting and random numbers as C programs have them; one table per compiler
 * found. All run on one thread.
 */
#ifndef REF_ROUTINES_H
#define REF_ROUTINES_H

#include <stdint.h>

typedef struct ref_routines {
    /* the indices of the k greatest of n, in order: a heap of the best so far */
    void (*topk)(const float *x, int64_t n, int64_t k, int64_t *index);
    /* the indices that sort x in ascending order: a radix sort; work: 4 n words */
    void (*argsort)(const float *x, int64_t n, int64_t *index, uint32_t *work);
    /* how often each index occurs */
    void (*count_i64)(const int64_t *index, int64_t n, int64_t *out, int64_t bins);
    void (*count_i32)(const int64_t *index, int64_t n, int32_t *out, int64_t bins);
    void (*count_f32)(const int64_t *index, int64_t n, float *out, int64_t bins);
    /* Philox 4x32-10 with all four words of each block; pairs of Box and Muller. n is a multiple
     * of 4. */
    void (*uniform)(uint64_t seed, float *out, int64_t n);
    void (*normal)(uint64_t seed, float *out, int64_t n);
} ref_routines;

extern const ref_routines ref_routines_gcc, ref_routines_clang;

#endif
