/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes, and the macros that mark public declarations.
 *
 * Every acting call returns a deft_status. A recording call keeps the status of its mistake
 * in the context. deft_message (context.h) gives the sentence that explains a failure.
 * Programs may store codes: a code never changes its number.
 */
#ifndef DEFT_STATUS_H
#define DEFT_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** DEFT_API exports a function from the library. DEFT_MUST_CHECK makes the compiler warn
 * when a program ignores the result. Both expand to nothing in compilers without
 * attributes of GCC. */
#if defined(__GNUC__)
#define DEFT_API __attribute__((visibility("default")))
#define DEFT_MUST_CHECK __attribute__((warn_unused_result))
#else
#define DEFT_API
#define DEFT_MUST_CHECK
#endif

/** Marks a parameter or a result whose ownership moves to the callee or to the caller. It
 * expands to nothing. */
#define DEFT_OWN

#ifdef __cplusplus
extern "C" {
#endif

/** Why a call failed. The comment of a function names the codes that have a meaning of their
 * own there. */
typedef enum deft_status {
    DEFT_OK = 0,        /**< The call has done its work. */
    DEFT_E_ARG = 1,     /**< An argument has no meaning here: NULL, an unknown flag, a bad size. */
    DEFT_E_SHAPE = 2,   /**< The shapes of the operands do not fit together. */
    DEFT_E_DTYPE = 3,   /**< The operation has no rule for these dtypes. */
    DEFT_E_RANGE = 4,   /**< An axis, index, bound or number is outside what is allowed. */
    DEFT_E_STATE = 5,   /**< The call is not allowed now, or the scope of a tensor has ended. */
    DEFT_E_MEMORY = 6,  /**< Memory ran out, or a bound on memory cannot be met. */
    DEFT_E_LIMIT = 7,   /**< A fixed or configured limit is exceeded: a count, a size, a depth. */
    DEFT_E_COMPILE = 8, /**< The compiler refused a kernel, and no fallback was allowed. */
    DEFT_E_BACKEND = 9, /**< A plug-in, a driver or a device is missing or failed. */
    DEFT_E_INTERRUPTED = 10, /**< deft_interrupt was called, or a callback asked to stop. */
    DEFT_E_NOT_FOUND = 11,   /**< There is no such file or name. */
    DEFT_E_IO = 12,          /**< The system failed to read or write. */
    DEFT_E_FORMAT = 13,      /**< A file or a text is damaged, or has another format. */
    DEFT_E_INTERNAL = 14,    /**< A defect of deft itself. Please report it. */
    DEFT_E_NAN = 15,         /**< deft_nan_check (grad.h) found a NaN. */
    DEFT_E_CHECK = 16        /**< deft_grad_check or deft_op_check (check.h) found a fault. */
} deft_status;

/** Describes a code by a general phrase such as "shapes do not fit together". A number that
 * is no code gives "no such status". The text is static and never NULL. deft_message has
 * the details of a failure. Any thread. */
DEFT_API const char *deft_status_text(deft_status status);

#ifdef __cplusplus
}
#endif
#endif
