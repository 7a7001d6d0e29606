/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators of the program (deft/extend.h). A runtime has a list of them, which
 * deft_runtime.op_lock guards. An operator does not change after it is defined.
 */
#ifndef DF_LAZY_OPERATORS_H
#define DF_LAZY_OPERATORS_H

#include "lazy/core/lazy.h"

struct deft_op {
    deft_runtime *rt;
    deft_op *next;
    char name[DEFT_OP_MAX_NAME + 1];
    deft_op_def def;        /* its name is the member above */
    bool is_simple;         /* it has neither a gradient nor a batch rule */
    uint32_t number;        /* in its runtime; never 0 */
    _Atomic uint32_t users; /* number of df_op_held of its calls (annotations.h) */
};

#endif
