/* SPDX-License-Identifier: Apache-2.0
 *
 * Opaque operators: a C function on whole arrays, as the call of an existing library needs it.
 *
 * Instead of a body, the definition of such an operator (deft_op_def in extend.h) has two
 * functions. `shape` says which results inputs give. `run` computes them. A call is one operation
 * of the recorded program. It never cuts the program in two: what is before it and after it is
 * planned and fused together with it.
 *
 *   static deft_status median_shape(const deft_op_form *in, size_t n_in, deft_op_form *out,
 *                                   size_t n_out, const deft_op_about *about)
 *   {
 *       if (in[0].rank != 1 || in[0].extent[0] == 0 || in[0].dtype != DEFT_F64)
 *           return snprintf(about->why, about->n_why, "it takes a vector of f64"), DEFT_E_SHAPE;
 *       out[0] = (deft_op_form){ .dtype = DEFT_F64 };
 *       return DEFT_OK;
 *   }
 *
 * What both functions promise:
 *
 *   - They are functions: equal inputs and attributes give equal results, every time. So deft may
 *     call `run` once for two equal calls, not at all where no result is needed, again where a
 *     value is computed again, and earlier or later than where the call was recorded.
 *   - They may be called on any thread: on that of the context, or on one that runs a submitted
 *     step. A context makes one call at a time. Several contexts may call at the same time.
 *   - They make no call of deft, except on the functions that any thread may call. They do not jump
 *     out, and they let nothing else write what they are given.
 *
 * When `run` returns a status other than DEFT_OK, the computation fails with that status. The
 * sentence has the name of the operator, the line of its call, and what the function wrote into
 * `why`. A step that fails so has assigned nothing. The tensors that need that call never get a
 * value, unless the status is DEFT_E_MEMORY: then a later computation tries again.
 */
#ifndef DEFT_OPAQUE_H
#define DEFT_OPAQUE_H

#include "deft/dtype.h"
#include "deft/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The dtype and the extents of an input or a result. */
typedef struct deft_op_form {
    deft_dtype dtype;              /**< Any but the complex ones and the storage dtypes. */
    uint32_t rank;                 /**< The number of axes, at most DEFT_MAX_RANK. */
    int64_t extent[DEFT_MAX_RANK]; /**< Of the first `rank` axes. Others are 0. */
} deft_op_form;

/** An input of `run`. Nothing of it may be written. */
typedef struct deft_op_input {
    /** The address of element [0,...,0]. It is aligned like one element. Inputs may share memory.
     * Without elements, it may be any address. */
    const void *data;
    deft_op_form form; /**< The dtype and the extents. */
    /** From one element to the next along each axis, counted in elements: 0 and negative strides
     * are possible. With deft_op_def.dense, the input is row-major and has no gaps. */
    int64_t stride[DEFT_MAX_RANK];
    size_t bytes;  /**< Number of elements times the size of one. */
    bool is_dense; /**< The elements are row-major and have no gaps. */
} deft_op_input;

/** A result of `run`, which must write all of it. It is row-major, has no gaps, and shares memory
 * with nothing else. What it holds at first is undefined. */
typedef struct deft_op_result {
    void *data;        /**< Aligned like one element, at least. */
    deft_op_form form; /**< The dtype and the extents, as `shape` gives them. */
    size_t bytes;      /**< Number of elements times the size of one. */
} deft_op_result;

/** What both functions get beside the tensors. */
typedef struct deft_op_about {
    const void *attributes; /**< A copy of those of the call; NULL when there are none. */
    void *user;             /**< deft_op_def.user */
    /** A buffer for the sentence of a failure, which is "" at first. */
    char *why;
    size_t n_why; /**< Its size in bytes. */
} deft_op_about;

/** Says which dtypes and extents the results have. out[0..n_out) have rank 0 and no dtype that may
 * be relied on before. A status other than DEFT_OK refuses the inputs, and becomes the mistake of
 * the call. It is called while recording, and before `run`, with the extents of that run. */
typedef deft_status (*deft_op_shape_fn)(const deft_op_form *in, size_t n_in, deft_op_form *out,
                                        size_t n_out, const deft_op_about *about);

/** Computes the results. out[i] has the form that `shape` gives. */
typedef deft_status (*deft_op_run_fn)(const deft_op_input *in, size_t n_in,
                                      const deft_op_result *out, size_t n_out,
                                      const deft_op_about *about);

#ifdef __cplusplus
}
#endif
#endif
