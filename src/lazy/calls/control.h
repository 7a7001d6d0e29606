/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops that other calls record.
 */
#ifndef DF_LAZY_CONTROL_H
#define DF_LAZY_CONTROL_H

#include "lazy/core/recorder.h"

/* deft_scan, for the call at site. attr: of the loop (df_loop_attr), 0: nothing is said of it. */
bool df_scan(deft_ctx *cx, deft_body_fn body, void *user, deft_tensor *const *init, size_t n_states,
             deft_tensor *const *rows, size_t n_rows, int64_t length, size_t n_outs,
             deft_tensor **out, uint32_t attr, uintptr_t site);

#endif
