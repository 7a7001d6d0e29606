/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of the public API share: contexts with every option at hand, quick tensors, and reads
 * that fail the test with deft's own sentence.
 */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include <criterion/criterion.h>

#include "deft/deft.h"

typedef struct rig {
    deft_runtime *rt;
    deft_ctx *cx;
    char log[8192]; /* lines so far, each "topic: line\n" */
} rig;

/* options may be NULL; hooks for the log are added. */
void rig_open(rig *r, const deft_runtime_options *options, const deft_ctx_options *cx_options);
/* The same by the interpreter alone, on so many threads. */
void rig_interpret(rig *r, uint32_t n_threads);
void rig_close(rig *r);

deft_stats rig_stats(const rig *r);

/* A kept f32 tensor [n] holding first, first + 1, ... */
deft_tensor *rig_range(rig *r, int64_t n, float first);

/* A kept f32 tensor [n] of these numbers. */
deft_tensor *rig_vector(rig *r, int64_t n, const float *v);
#define RIG_VECTOR(r, ...)                                                                         \
    rig_vector((r), sizeof((float[]){ __VA_ARGS__ }) / sizeof(float),                              \
               (const float[]){ __VA_ARGS__ })

/* A kept f32 tensor of this shape, with the numbers v. */
deft_tensor *rig_tensor(rig *r, deft_shape s, const float *v);

/* A call has returned t, which must be NULL, with an error of this status whose message has `part`
 * in it. The error is cleared. */
void rig_expect_error(rig *r, const deft_tensor *t, deft_status st, const char *part);

/* Another kept handle of the value that t has now, where it lives. */
deft_tensor *rig_alias(rig *r, deft_tensor *t);

/* Reads all of t as f32; n must be its size. */
void rig_read(rig *r, deft_tensor *t, float *out, int64_t n);
float rig_item(rig *r, deft_tensor *t);
/* t, read as f32, holds these n numbers; NaN equals NaN. NULL fails with what is pending. */
#define rig_expect(r, t, n, want) rig_expect_at((r), (t), (n), (want), __FILE__, __LINE__)
#define RIG_EXPECT(r, t, ...)                                                                      \
    rig_expect((r), (t), sizeof((float[]){ __VA_ARGS__ }) / sizeof(float),                         \
               ((const float[]){ __VA_ARGS__ }))
void rig_expect_at(rig *r, deft_tensor *t, int64_t n, const float *want, const char *file,
                   int line);

/* The gradient of the sum of y with respect to x; NULL where that is an error. */
deft_tensor *rig_grad_of_sum(deft_tensor *y, deft_tensor *x);

/* st must be OK. */
void rig_ok(const rig *r, deft_status st, const char *file, int line);
#define OK(r, expr) rig_ok((r), (expr), __FILE__, __LINE__)

#endif
