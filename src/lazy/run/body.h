/* SPDX-License-Identifier: Apache-2.0
 *
 * A body: the scope of a function of the program that is called while something is
 * recorded, such as the function of a loop. No handle leaves a body, and nothing can be
 * computed in it (deft/control.h).
 */
#ifndef DF_LAZY_BODY_H
#define DF_LAZY_BODY_H

#include "lazy/core/lazy.h"

/* Opens a body within the open one. *was is set for df_body_close, which must follow each
 * successful call. Returns false, with the error recorded, when nothing was opened. */
bool df_body_open(deft_ctx *cx, uintptr_t site, uint32_t *was);
/* Closes the innermost body. Its handles end. */
void df_body_close(deft_ctx *cx, uint32_t was);

#endif
