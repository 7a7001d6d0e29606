/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators of the program.
 *
 * An operator is a name, a version and a function that records: its body. A call of the operator
 * runs the body, which records ordinary operations. So deft fuses them with what is around them,
 * differentiates them, adds axes of examples, captures, exports and keeps them. The plan is that of
 * the same calls without the operator. The name of the operator stands in traces, reports and
 * sentences, together with the line of the call.
 *
 *   static deft_status rms_norm(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
 *                               deft_tensor **out, size_t n_out, void *attributes)
 *   {
 *       const double *const eps = attributes;
 *       deft_tensor *const mean = deft_mean(deft_square(in[0]), DEFT_AXES(-1), true);
 *       out[0] = deft_mul(deft_div(in[0], deft_sqrt(deft_add(mean, *eps))), in[1]);
 *       return DEFT_OK;
 *   }
 *
 *   deft_op *norm = NULL;
 *   deft_op_define(rt, &(deft_op_def){ .size = sizeof(deft_op_def), .name = "acme.rms_norm",
 *                                      .version = 1, .n_in = 2, .n_out = 1,
 *                                      .attribute_bytes = sizeof(double), .body = rms_norm },
 *                  &norm, NULL, 0);
 *   ...
 *   deft_op_call(cx, norm, (deft_tensor *[]){ x, gain }, 2, &(double){ 1e-6 }, &y, 1);
 *
 * Rules inside the functions of an operator:
 *   - They use the tensors that they are given, and tensors that they make. Another tensor from
 *     outside is a constant: no gradient and no axis of examples passes through it.
 *   - Nothing can be read, computed, kept or assigned that was made outside, and no external work
 *     can be done. A body may draw random numbers where its caller may.
 *   - The same arguments record the same operations. Values that change between calls come as
 *     inputs; extents and dtypes may be asked for.
 *   - The numbers of a body, and its attributes, are part of the operator. A capture keeps them,
 *     like the options of other calls. A bare number among the inputs stays a bare number inside,
 *     and captures treat it as context.h and capture.h say.
 *   - Breaking these rules is a mistake, DEFT_E_STATE, of the call.
 *
 * Operators nest: a body may call operators. Operators, loops, branches and deft_vmap nest 16 deep
 * together.
 *
 * Names. A runtime has at most one definition of a name. A definition that is equal in all members
 * is the same operator. Name and version are no part of the key of a plan: the recorded operations
 * are. So two definitions share plans and compiled code exactly where they record the same. Of an
 * opaque operator (opaque.h), name and version are part of the key.
 *
 * Thread rule. Any thread may define and destroy operators. Threads may call one operator at the
 * same time, each in its own context. Operators belong to the runtime. They end with it, or
 * earlier by deft_op_destroy.
 */
#ifndef DEFT_EXTEND_H
#define DEFT_EXTEND_H

#include "deft/grad.h"
#include "deft/opaque.h"
#include "deft/vmap.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The most inputs, and the most results, of an operator. */
#define DEFT_OP_MAX_TENSORS 64
/** The most bytes of attributes, and of a name. */
#define DEFT_OP_MAX_ATTRIBUTES 4096
#define DEFT_OP_MAX_NAME 63

/** An operator of a runtime. */
typedef struct deft_op deft_op;

/** The body of an operator for many examples at once (deft_op_def.batch).
 *
 * in[i] has the axis of its n_examples examples before all others when is_mapped[i] is true.
 * Otherwise it is the same for all examples. At least one input is mapped; n_examples may be 0. The
 * function sets out[0..n_out), which are NULL before. Each result has the axis of examples
 * first. Along it are the bits that the body gives for each example alone. The attributes are those
 * of the call, as for the body. A status other than DEFT_OK becomes the mistake of deft_vmap. */
typedef deft_status (*deft_op_batch_fn)(deft_ctx *cx, int64_t n_examples, deft_tensor *const *in,
                                        const bool *is_mapped, size_t n_in, deft_tensor **out,
                                        size_t n_out, void *attributes);

/** The definition of an operator. It is read, and its name copied, during deft_op_define only. */
typedef struct deft_op_def {
    size_t size; /**< sizeof(deft_op_def) */
    /** Letters, digits, '_', '-' and '.', with a '.' that is neither first nor last:
     * "acme.rms_norm". At most 63 bytes. */
    const char *name;
    uint32_t version; /**< At least 1. A body that records something else is another version. */
    uint32_t n_in;    /**< The number of inputs, at most 64. */
    uint32_t n_out;   /**< The number of results, 1 to 64. */
    /** The size of the attributes of a call, in bytes, at most 4096. 0: it takes none. They are
     * plain data, and are copied where a gradient or a batch rule needs them later. */
    size_t attribute_bytes;
    /** Records the operator. Its `user` is the attributes of the call, which it only reads. NULL:
     * the operator is opaque, and has `shape` and `run` instead. */
    deft_body_fn body;
    /** Replaces the gradient that follows from the body. NULL: there is no replacement. It is a
     * function as deft_custom_grad has, under its rules, and gradients pass through what it
     * records. Its `user` is a copy of the attributes. */
    deft_backward_fn grad;
    /** Replaces what deft_vmap makes of the body. NULL: there is no replacement. Without `grad`,
     * gradients inside deft_vmap follow from the body, and outside from what this records. */
    deft_op_batch_fn batch;
    /** The shape rule of an opaque operator (opaque.h). Without `grad`, a gradient that passes
     * through a call is a mistake, DEFT_E_STATE. Without `batch`, deft_vmap calls `run` once for
     * each example. NULL: the operator has a body. */
    deft_op_shape_fn shape;
    deft_op_run_fn run; /**< What computes an opaque operator. NULL: it has a body. */
    void *user;         /**< about->user of the two functions. It must outlive the operator. */
    bool dense;         /**< true: `run` gets inputs that are row-major and have no gaps. */
} deft_op_def;

/** Defines an operator, and sets *out to it, which is borrowed from the runtime.
 *
 * why may be NULL. Otherwise it is a buffer of n bytes, which gets a sentence when the call fails,
 * and "" when it does not. The text is cut at n bytes and always terminated. On failure *out is
 * NULL.
 *
 * DEFT_E_ARG: rt, def or out is NULL, or a member is missing or out of its range. DEFT_E_STATE: the
 * runtime has another definition of that name. DEFT_E_MEMORY is possible. */
DEFT_API DEFT_MUST_CHECK deft_status deft_op_define(deft_runtime *rt, const deft_op_def *def,
                                                    deft_op **out, char *why, size_t n);

/** Removes a definition and sets *op to NULL. Its name is free again. NULL and *op NULL are
 * allowed. No call of the operator may be under way. It must come before the last reference to the
 * runtime is given back.
 *
 * What has called an opaque operator and is computed later fails with DEFT_E_STATE and its name:
 * pending tensors, captures, loaded programs.
 *
 * DEFT_E_STATE: records of an open step or scope may still need `grad` or `batch`, or formulas call
 * the operator. Then nothing changes. why and n are as in deft_op_define. */
DEFT_API DEFT_MUST_CHECK deft_status deft_op_destroy(deft_op **op, char *why, size_t n);

/** The name, the version, and the numbers of inputs and results of an operator. NULL gives "" and
 * 0. Any thread. */
DEFT_API const char *deft_op_name(const deft_op *op);
DEFT_API uint32_t deft_op_version(const deft_op *op);
DEFT_API uint32_t deft_op_inputs(const deft_op *op);
DEFT_API uint32_t deft_op_results(const deft_op *op);

/** Records a call of an operator: runs its body on in[0..n_in), or asks the shape rule of an opaque
 * one, and sets out[0..n_out).
 *
 * This is a recording call. It returns true, or false for a mistake or when cx is NULL; then all of
 * out are NULL. context.h has the error rule. The innermost open scope owns the results. A result
 * is a tensor of its own, never a view of an input. A result that is a bare number becomes a
 * tensor. Inputs are borrowed. out may be the array of the inputs. attributes are
 * deft_op_def.attribute_bytes bytes, read during the call, and NULL when that is 0.
 *
 * DEFT_E_ARG: op or a list is NULL, n_in or n_out is not that of the definition, or attributes are
 * missing or not wanted. Also where the body leaves a result NULL or sets one too many.
 * DEFT_E_STATE: op belongs to another runtime, an input to another context, or the body breaks a
 * rule above.
 * DEFT_E_LIMIT: functions nest more than 16 deep. DEFT_E_MEMORY is possible. Mistakes of the calls
 * of the body are mistakes of this call. A status other than DEFT_OK that the body returns becomes
 * the mistake, unless the body has recorded one. */
DEFT_API bool deft_op_call(deft_ctx *cx, const deft_op *op, deft_tensor *const *in, size_t n_in,
                           const void *attributes, deft_tensor **out, size_t n_out);

/** For a function of an operator that refuses its arguments: records a mistake whose sentence is
 * the name of the operator and `sentence`, which is copied. Returns `status`, for the function to
 * return. DEFT_OK records DEFT_E_ARG instead.
 *
 *   if (deft_dtype_of(in[1]) != DEFT_F32)
 *       return deft_op_fail(cx, DEFT_E_DTYPE, "the gain must be f32");
 *
 * Outside a function of an operator the sentence stands alone. cx NULL records nothing; sentence
 * NULL means "it failed". */
DEFT_API deft_status deft_op_fail(deft_ctx *cx, deft_status status, const char *sentence);

#ifdef __cplusplus
}
#endif
#endif
