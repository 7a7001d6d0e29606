/* SPDX-License-Identifier: Apache-2.0
 *
 * The scope of a function that is called while something is recorded: a body. No handle leaves it,
 * and nothing can be computed in it (deft/control.h).
 */
#ifndef DF_LAZY_BODY_H
#define DF_LAZY_BODY_H

#include "lazy/core/lazy.h"

/* Opens a body within the one that is open. *was is for df_body_close, which must follow every open
 * that was true. false, with the error recorded, when nothing was opened. */
bool df_body_open(deft_ctx *cx, uintptr_t site, uint32_t *was);
void df_body_close(deft_ctx *cx, uint32_t was);

#endif
