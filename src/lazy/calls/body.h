/* SPDX-License-Identifier: Apache-2.0
 *
 * The scope of a function that is called while something is recorded: no handle leaves it, and
 * nothing can be computed in it (deft/control.h).
 */
#ifndef DF_LAZY_BODY_H
#define DF_LAZY_BODY_H

#include "lazy/capture/recording.h"

/* false: an error, and nothing was opened. *was is for df_body_close, which comes after every open
 * that was true. */
bool df_body_open(deft_ctx *cx, uintptr_t site, uint32_t *was);
void df_body_close(deft_ctx *cx, uint32_t was);

/* deft_scan, for the call at site. attr: of the loop (df_loop_attr), 0: nothing is said of it. */
bool df_scan(deft_ctx *cx, deft_body_fn body, void *user, deft_tensor *const *init, size_t n_states,
             deft_tensor *const *rows, size_t n_rows, int64_t length, size_t n_outs,
             deft_tensor **out, uint32_t attr, uintptr_t site);

#endif
