/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls that torch.cases names, each with operands and numbers of a case.
 */
#ifndef DF_TESTS_TORCH_CALLS_H
#define DF_TESTS_TORCH_CALLS_H

#define DEFT_NO_GENERIC
#include "deft/deft.h"

enum { MAX_TENSORS = 20, MAX_NUMBERS = 24 };

typedef struct arguments {
    double number[MAX_NUMBERS];
    size_t n;
} arguments;

typedef struct call {
    deft_ctx *cx;
    const arguments *of;
    deft_tensor *in[MAX_TENSORS], *out[MAX_TENSORS];
} call;

/* Records the call: sets out. Returns false after a mistake. */
typedef bool (*call_fn)(call *c);

/* NULL: there is none. */
call_fn call_named(const char *name);

#endif
