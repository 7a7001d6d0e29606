/* SPDX-License-Identifier: Apache-2.0
 *
 * What steps share with scopes. scope.c serves step.c.
 */
#ifndef DF_LAZY_SCOPE_H
#define DF_LAZY_SCOPE_H

#include "lazy/core/lazy.h"

/* Called before a scope or step opens. When it is an outermost one, existing views become
 * tensors of their own. Then, if nothing is pending, the old records are removed, so that
 * the records inside begin at the same position each time. */
void df_scope_start_afresh(deft_ctx *cx);
/* The token of a scope or step that could not begin. Its end delivers the mistake. */
deft_scope df_scope_refused(deft_ctx *cx);
/* Whether s names an open scope or step. */
bool df_scope_is_open(const deft_ctx *cx, deft_scope s);
/* The failure of an acting call on s, which is not open. When s could not begin, this delivers the
 * mistake of its beginning. */
deft_status df_scope_not_open(deft_ctx *cx, deft_scope s);

#endif
