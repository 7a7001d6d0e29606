/* SPDX-License-Identifier: Apache-2.0
 *
 * The heads of functions of operators of the program (deft/extend.h): BODY(name) { ... }
 */
#ifndef TESTS_OPERATOR_FUNCTIONS_H
#define TESTS_OPERATOR_FUNCTIONS_H

#include "deft/extend.h"

#define BODY(name)                                                                                 \
    static deft_status name(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,  \
                            size_t n_out, void *user)
#define GRADIENT(name)                                                                             \
    static deft_status name(deft_ctx *cx, deft_tensor *const *in, size_t n_in,                     \
                            deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,   \
                            deft_tensor **grad_in, void *user)
#define RULE(name)                                                                                 \
    static deft_status name(deft_ctx *cx, int64_t n, deft_tensor *const *in,                       \
                            const bool *is_mapped, size_t n_in, deft_tensor **out, size_t n_out,   \
                            void *user)
/* Says that a function needs none of its arguments, or not all. A RULE has n, too. */
#define UNUSED (void)cx, (void)in, (void)n_in, (void)out, (void)n_out, (void)user

#endif
