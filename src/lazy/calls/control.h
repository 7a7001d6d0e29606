/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops that calls of other files record.
 */
#ifndef DF_LAZY_CONTROL_H
#define DF_LAZY_CONTROL_H

#include "lazy/core/recorder.h"

/* deft_scan for the call that returns to `site`. attr: the attribute of the loop record
 * (df_loop_attr), or 0. Returns false, with the error recorded and out[] set to NULL, on
 * failure. */
bool df_scan(deft_ctx *cx, deft_body_fn body, void *user, deft_tensor *const *init, size_t n_states,
             deft_tensor *const *rows, size_t n_rows, int64_t length, size_t n_outs,
             deft_tensor **out, uint32_t attr, uintptr_t site);

#endif
