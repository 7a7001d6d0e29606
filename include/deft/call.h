/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls by name, for bindings to other languages: one call takes the name of a function and an
 * array of tagged arguments.
 *
 * The table of functions is made from the headers when deft is built. It has the functions of
 * ops.h, tensor.h, array.h, layers.h, images.h, losses.h, random.h and complex.h that record and
 * return tensors. Those that take memory or functions of the program are not in it. Names are
 * those of C without "deft_".
 *
 * These functions are in a library of their own, libdeft-call. deft.h does not include this
 * header. A program links both libraries (pkg-config deft-call).
 *
 * Arguments. They are those of the C function in its order, with these differences:
 *   - The context, the length of a list, and what the function writes are no arguments.
 *   - A shape, a list of axes, and a list of numbers are DEFT_ARG_INTS. A list of ranges has
 *     three numbers for each range: start, stop, step.
 *   - The members of an options struct follow as arguments of their own, in their order,
 *     without `size` and `written`. A member of several numbers also takes fewer: the last one
 *     then stands for the rest.
 *   - Arguments at the end may be left out, and any of them may be DEFT_ARG_NONE, where the
 *     function has a default: members of options, axes (all axes), operands that may be NULL.
 *   - DEFT_ARG_INT, DEFT_ARG_UINT and DEFT_ARG_FLOAT in the place of a tensor are bare numbers
 *     (deft_num in tensor.h). In the place of a double, integers choose the function for
 *     integers where there is one: "full" is then deft_full_i.
 *
 * Results are tensors that the innermost open scope owns, as those of the C function are. All
 * arguments are borrowed for the call. A context and its tensors belong to one thread at a
 * time; the functions that take no context may be called by any thread.
 */
#ifndef DEFT_CALL_H
#define DEFT_CALL_H

#include "deft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What an argument is. */
typedef enum deft_arg_kind {
    DEFT_ARG_NONE = 0,    /**< Left out: the default. */
    DEFT_ARG_TENSOR = 1,  /**< A tensor. NULL is the result of an earlier mistake. */
    DEFT_ARG_TENSORS = 2, /**< A list of n tensors. */
    DEFT_ARG_INT = 3,     /**< An integer. Also a bool, a dtype, or a number of an enum. */
    DEFT_ARG_UINT = 4,    /**< An integer that int64_t may not hold. */
    DEFT_ARG_FLOAT = 5,   /**< A double. */
    DEFT_ARG_INTS = 6,    /**< A list of n integers. */
    DEFT_ARG_RNG = 7,     /**< A stream of random numbers, which the call changes. */
    DEFT_ARG_FLOATS = 8,  /**< A list of n doubles. */
    DEFT_ARG_TEXT = 9     /**< A text that ends with 0. */
} deft_arg_kind;

/** The argument itself. deft_arg.kind says which member counts. */
typedef union deft_arg_value {
    deft_tensor *tensor;         /**< DEFT_ARG_TENSOR */
    deft_tensor *const *tensors; /**< DEFT_ARG_TENSORS */
    int64_t i;                   /**< DEFT_ARG_INT */
    uint64_t u;                  /**< DEFT_ARG_UINT */
    double f;                    /**< DEFT_ARG_FLOAT */
    const int64_t *ints;         /**< DEFT_ARG_INTS */
    deft_rng *rng;               /**< DEFT_ARG_RNG */
    const double *floats;        /**< DEFT_ARG_FLOATS */
    const char *text;            /**< DEFT_ARG_TEXT */
} deft_arg_value;

/** One argument. */
typedef struct deft_arg {
    deft_arg_kind kind; /**< What the argument is. */
    uint32_t n;         /**< The length of a list; else it has no meaning. */
    deft_arg_value as;  /**< The argument. */
} deft_arg;

/** A function of the table. It is static: it lives as long as the program. */
typedef struct deft_function deft_function;

/** The function of a name such as "conv2d", or NULL when there is none. name may be NULL. */
DEFT_API const deft_function *deft_function_find(const char *name);

/** The function number i of the table, in the order of names; NULL from the end of the table on. */
DEFT_API const deft_function *deft_function_at(size_t i);

/** The name of a function, without "deft_"; "" for NULL. The text is static. */
DEFT_API const char *deft_function_name(const deft_function *f);

/** The number of arguments of f, including those that may be left out; 0 for NULL. */
DEFT_API size_t deft_function_arity(const deft_function *f);

/** What f takes as argument i. All members are 0 or NULL where there is no such argument. */
typedef struct deft_parameter {
    const char *name; /**< The name in C: of the parameter, or of the member of the options. */
    const char *type; /**< "tensor", "tensors", "int", "float", "bool", "dtype",
                         "ints", "floats", "shape", "axes", "ranges", "rng", "enum", "text". */
    bool is_optional; /**< DEFT_ARG_NONE is allowed. */
} deft_parameter;

/** Describes argument i of f. */
DEFT_API deft_parameter deft_function_parameter(const deft_function *f, size_t i);

/** The number of results that f gives for these arguments, of which there are n. */
DEFT_API size_t deft_function_results(const deft_function *f, const deft_arg *args, size_t n);

/** Why a call failed. */
typedef struct deft_call_error {
    char text[400]; /**< A sentence. The end may be cut. */
} deft_call_error;

/** Calls f with n_args arguments, and writes its results to out[0..n_out). Where f has more
 * results than n_out, the further ones are not wanted. Where it has fewer, the rest of out is
 * set to NULL.
 *
 * DEFT_OK: all results are there. DEFT_E_ARG: an argument is missing, is one too many, or is
 * of another kind. Otherwise the function recorded a mistake. The status is then that of the
 * mistake, and the results are NULL. The mistake stays in the context, undelivered, as after
 * any recording call. error may be NULL; on failure it gets the sentence. When an operand is
 * NULL by an earlier mistake, the status is that of the earlier mistake. */
DEFT_API deft_status deft_function_call(const deft_function *f, deft_ctx *cx, const deft_arg *args,
                                        size_t n_args, deft_tensor **out, size_t n_out,
                                        deft_call_error *error);

/** deft_function_call of deft_function_find(name). DEFT_E_NOT_FOUND: there is no such function,
 * and the sentence names the function with the nearest name. */
DEFT_API deft_status deft_call(deft_ctx *cx, const char *name, const deft_arg *args, size_t n_args,
                               deft_tensor **out, size_t n_out, deft_call_error *error);

#ifdef __cplusplus
}
#endif
#endif
