/* SPDX-License-Identifier: Apache-2.0
 *
 * Where deferred work runs: reading, evaluating, printing, saving.
 *
 * These are acting calls. They return a status, and deliver the mistake from which a
 * missing tensor comes (context.h). NULL as the only tensor gives DEFT_E_ARG, because such
 * a call cannot reach a context. deft_message of the context then has the sentence of the
 * undelivered mistake.
 *
 * Rules for all calls here:
 *   - A call waits for the step in flight when it needs its values.
 *   - Inside a step, a call that has to compute follows the step's policy
 *     (deft_sync_policy).
 *   - Inside the function of a loop, a branch or deft_vmap every call gives DEFT_E_STATE.
 *   - A computation may fail with DEFT_E_RANGE (an index), DEFT_E_MEMORY, DEFT_E_LIMIT,
 *     DEFT_E_COMPILE, DEFT_E_BACKEND or DEFT_E_INTERRUPTED. Nothing has changed then.
 *   - Tensors are borrowed. Only the thread of the context may call.
 */
#ifndef DEFT_EVAL_H
#define DEFT_EVAL_H

#include <stdio.h>

#include "deft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Computes the n given tensors as one unit. All belong to one context. A NULL list, or n 0,
 * gives DEFT_E_ARG. */
DEFT_API DEFT_MUST_CHECK deft_status deft_eval(deft_tensor *const *list, size_t n);

/** Computes t and writes its elements in row-major order to dst, converted to dtype as
 * deft_cast does. bytes must be exactly their size, else the status is DEFT_E_ARG.
 *
 * In C, a constant dtype and a pointer to another type of number do not compile. DEFT_F32
 * takes float, DEFT_I32 takes int32_t or uint32_t, as DEFT_U32 does, halves take uint16_t,
 * and so on. A
 * pointer to void or to characters is always allowed. */
DEFT_API DEFT_MUST_CHECK deft_status deft_read(deft_tensor *t, deft_dtype dtype, void *dst,
                                               size_t bytes);

/** Computes a tensor of one element and converts the element to the type of *out. Any other
 * number of elements gives DEFT_E_SHAPE. In C, deft_item (ops.h) chooses by the type of
 * out. */
DEFT_API DEFT_MUST_CHECK deft_status deft_item_f32(deft_tensor *t, float *out);
DEFT_API DEFT_MUST_CHECK deft_status deft_item_f64(deft_tensor *t, double *out);
DEFT_API DEFT_MUST_CHECK deft_status deft_item_i8(deft_tensor *t, int8_t *out);
DEFT_API DEFT_MUST_CHECK deft_status deft_item_i16(deft_tensor *t, int16_t *out);
DEFT_API DEFT_MUST_CHECK deft_status deft_item_i32(deft_tensor *t, int32_t *out);
DEFT_API DEFT_MUST_CHECK deft_status deft_item_i64(deft_tensor *t, int64_t *out);
DEFT_API DEFT_MUST_CHECK deft_status deft_item_u8(deft_tensor *t, uint8_t *out);
DEFT_API DEFT_MUST_CHECK deft_status deft_item_u16(deft_tensor *t, uint16_t *out);
DEFT_API DEFT_MUST_CHECK deft_status deft_item_u32(deft_tensor *t, uint32_t *out);
DEFT_API DEFT_MUST_CHECK deft_status deft_item_u64(deft_tensor *t, uint64_t *out);
/** The real part and the imaginary part go to parts[0] and parts[1]. */
DEFT_API DEFT_MUST_CHECK deft_status deft_item_c64(deft_tensor *t, float *parts);
DEFT_API DEFT_MUST_CHECK deft_status deft_item_c128(deft_tensor *t, double *parts);
DEFT_API DEFT_MUST_CHECK deft_status deft_item_bool(deft_tensor *t, bool *out);

/** What deft_map lends. */
typedef struct deft_mapped {
    const void *data; /**< The elements, read only. */
    size_t bytes;     /**< Their size. */
    void *held;       /**< Private to deft. */
    deft_ctx *cx;     /**< Private to deft. */
} deft_mapped;

/** Computes t and lends its elements in row-major order, read only, until deft_unmap. They
 * do not change when t is assigned meanwhile. On failure *out is zero.
 *
 * A copy is lent when the value lives on a GPU; deft_map_device lends it without a copy. A
 * copy is also lent of memory of deft_wrap_mut, because assignments write that memory. Of
 * deft_wrap, the caller's memory itself is lent, and must not change before deft_unmap.
 * Wrapped memory with gaps gives DEFT_E_ARG. */
DEFT_API DEFT_MUST_CHECK deft_status deft_map(deft_tensor *t, deft_mapped *out);

/** Ends the loan and makes *m zero. NULL and an unmapped *m are allowed. It comes before
 * deft_ctx_destroy. */
DEFT_API void deft_unmap(deft_mapped *m);

/** What deft_map_view lends: the elements, wherever they are. typed.h has macros for it. */
typedef struct deft_view {
    void *data;                    /**< Element [0, ..., 0]. */
    deft_dtype dtype;              /**< The dtype of the elements. */
    uint32_t rank;                 /**< The number of axes. */
    int64_t dim[DEFT_MAX_RANK];    /**< The extents. */
    int64_t stride[DEFT_MAX_RANK]; /**< Per axis, in elements; may be negative or 0. */
    void *held;                    /**< Private to deft. */
    deft_tensor *target;           /**< Private to deft. */
    deft_ctx *cx;                  /**< Private to deft. */
} deft_view;

/** Computes t and lends its elements with their strides, until deft_unmap_view. On failure *out is
 * zero.
 *
 * dtypes has bit 1 << d for each dtype d that the caller can read, such as 1u << DEFT_F32. Another
 * dtype gives DEFT_E_DTYPE. With is_writable, the elements may be written. They are a copy, which
 * is assigned to t at the end. Otherwise nothing is copied where deft_map copies nothing, and
 * memory of deft_wrap may have gaps. */
DEFT_API DEFT_MUST_CHECK deft_status deft_map_view(deft_tensor *t, uint32_t dtypes,
                                                   bool is_writable, deft_view *out);

/** Ends the loan and makes *view zero. What was written is assigned to the tensor, as by
 * deft_assign: the failures of that call are returned here. NULL and a view that is zero are
 * allowed. The call comes before deft_ctx_destroy. */
DEFT_API deft_status deft_unmap_view(deft_view *view);

/** Computes t and writes a text such as "f32[2,3] [[1, 2, 3], [4, 5, 6]]" to buf. Long axes
 * are shortened to their ends. The text is cut at n bytes and always terminated. *length
 * gets the full length; length may be NULL. */
DEFT_API DEFT_MUST_CHECK deft_status deft_format(deft_tensor *t, char *buf, size_t n,
                                                 size_t *length);

/** Writes the same text and a newline to the caller's stream. DEFT_E_IO: the stream failed. */
DEFT_API DEFT_MUST_CHECK deft_status deft_print(deft_tensor *t, FILE *stream);

/* ---- files: safetensors ----
 *
 * safetensors is the format of Hugging Face: a JSON header and the elements in
 * little-endian order.
 */

/** A tensor and its name in a file. */
typedef struct deft_named {
    const char *name;    /**< UTF-8, not empty. */
    deft_tensor *tensor; /**< Borrowed. */
} deft_named;

/** Computes the n tensors and writes them to a file. The file is written under a temporary
 * name in the same folder and then renamed to path, so that a failure leaves the old file
 * as it was.
 *
 * DEFT_E_ARG: no path, no list, or an empty name. DEFT_E_IO: the system failed, or path is
 * no regular file. Nothing is kept from the arguments. */
DEFT_API DEFT_MUST_CHECK deft_status deft_save(deft_ctx *cx, const char *path,
                                               const deft_named *list, size_t n);

/** Assigns the n tensors from a file: all of them, or none. Names, shapes and dtypes must
 * match the file. Other names in the file are ignored.
 *
 * DEFT_E_NOT_FOUND: there is no such file or name. DEFT_E_SHAPE, DEFT_E_DTYPE: a tensor
 * does not match. DEFT_E_FORMAT: the file is damaged. DEFT_E_IO: the system failed. */
DEFT_API DEFT_MUST_CHECK deft_status deft_load(deft_ctx *cx, const char *path,
                                               const deft_named *list, size_t n);

#ifdef __cplusplus
}
#endif

#if !defined(__cplusplus) && !defined(DEFT_NO_GENERIC)
/** In C, deft_read checks the type of dst when the program is compiled. */
#define deft_read(t, dtype, dst, bytes)                                                            \
    deft_read((t), (dtype), (dst),                                                                 \
              (bytes) + DEFT_REQUIRE(DEFT_MAY_HOLD((dst), dtype),                                  \
                                     "deft_read: dst points to elements of another type than "     \
                                     "dtype (a pointer to void takes any)"))
#endif

#endif
