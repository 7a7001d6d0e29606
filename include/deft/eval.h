/* SPDX-License-Identifier: Apache-2.0
 *
 * Where deferred work runs: reading, evaluating, printing, saving. These are acting calls: they
 * return a status, and deliver the mistake that a missing tensor comes of (context.h). NULL alone
 * gives DEFT_E_ARG, as it cannot name its context; deft_message of the context then has the
 * sentence of the undelivered mistake.
 */
#ifndef DEFT_EVAL_H
#define DEFT_EVAL_H

#include <stdio.h>

#include "deft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Computes the given tensors as one unit. n 0 with a NULL list is an error. */
DEFT_API DEFT_MUST_CHECK deft_status deft_eval(deft_tensor *const *list, size_t n);

/* Computes t and writes its row-major elements as dtype into dst; bytes must be exactly their size.
 * Converts as deft_cast does. In C, a constant dtype and a pointer to a number of another type do
 * not compile: float for DEFT_F32, int32_t or uint32_t for DEFT_I32, uint16_t for halves and so on;
 * dst may always point to void or to characters. */
DEFT_API DEFT_MUST_CHECK deft_status deft_read(deft_tensor *t, deft_dtype dtype, void *dst,
                                               size_t bytes);

/* Reads a tensor of one element. */
DEFT_API DEFT_MUST_CHECK deft_status deft_item_f32(deft_tensor *t, float *out);
DEFT_API DEFT_MUST_CHECK deft_status deft_item_f64(deft_tensor *t, double *out);
DEFT_API DEFT_MUST_CHECK deft_status deft_item_i32(deft_tensor *t, int32_t *out);
DEFT_API DEFT_MUST_CHECK deft_status deft_item_i64(deft_tensor *t, int64_t *out);
DEFT_API DEFT_MUST_CHECK deft_status deft_item_u8(deft_tensor *t, uint8_t *out);
DEFT_API DEFT_MUST_CHECK deft_status deft_item_bool(deft_tensor *t, bool *out);

/* Computes t and lends its row-major elements, read only, until unmapped. They stay as they are
 * however t is assigned meanwhile. A copy is lent of a value on a GPU (without one:
 * deft_map_device), and of memory of deft_wrap_mut, which assignments write. Of deft_wrap the
 * caller's memory itself is lent: it must not change before it is unmapped. */
typedef struct deft_mapped {
    const void *data;
    size_t bytes;
    void *held; /* deft's own */
    deft_ctx *cx;
} deft_mapped;
DEFT_API DEFT_MUST_CHECK deft_status deft_map(deft_tensor *t, deft_mapped *out);
DEFT_API void deft_unmap(deft_mapped *m); /* NULL and unmapped are fine */

/* Text like "f32[2,3] [[1, 2, 3], [4, 5, 6]]"; long axes are shortened to their ends. Cut at n,
 * always terminated; *length (may be NULL) gets the full length. */
DEFT_API DEFT_MUST_CHECK deft_status deft_format(deft_tensor *t, char *buf, size_t n,
                                                 size_t *length);
/* The same and a newline, to a stream of the caller's. */
DEFT_API DEFT_MUST_CHECK deft_status deft_print(deft_tensor *t, FILE *stream);

/* ---- files: safetensors ---- */

typedef struct deft_named {
    const char *name; /* UTF-8, not empty */
    deft_tensor *tensor;
} deft_named;

/* Computes and writes all, to a temporary file beside path that is then renamed over it. */
DEFT_API DEFT_MUST_CHECK deft_status deft_save(deft_ctx *cx, const char *path,
                                               const deft_named *list, size_t n);
/* Assigns all or none: names, shapes and dtypes must match what the file holds; other names in the
 * file are ignored. DEFT_E_NOT_FOUND when there is no such file. */
DEFT_API DEFT_MUST_CHECK deft_status deft_load(deft_ctx *cx, const char *path,
                                               const deft_named *list, size_t n);

#ifdef __cplusplus
}
#endif

#if !defined(__cplusplus) && !defined(DEFT_NO_GENERIC)
#define deft_read(t, dtype, dst, bytes)                                                            \
    deft_read((t), (dtype), (dst),                                                                 \
              (bytes) + DEFT_REQUIRE(DEFT_MAY_HOLD((dst), dtype),                                  \
                                     "deft_read: dst points to elements of another type than "     \
                                     "dtype (a pointer to void takes any)"))
#endif

#endif
