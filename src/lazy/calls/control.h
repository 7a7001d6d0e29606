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

/* deft_cond on a condition that is a record, for the call that returns to `site`. cx NULL: the
 * mistake is recorded already. */
bool df_cond(deft_ctx *cx, uint32_t condition, deft_body_fn then, deft_body_fn otherwise,
             void *user, deft_tensor *const *in, size_t n_in, deft_tensor **out, size_t n_out,
             uintptr_t site);

#endif
