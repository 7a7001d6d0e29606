/* SPDX-License-Identifier: Apache-2.0
 *
 * What steps share with scopes. scope.c serves step.c.
 */
#ifndef DF_LAZY_SCOPE_H
#define DF_LAZY_SCOPE_H

#include "lazy/core/lazy.h"

/* ---- undo.c ---- */

/* Restores the bindings in the log, whose handles have `flag` (UNDO or FLIGHT), and empties it. */
void df_undo_all(deft_ctx *cx, df_undos *log, uint8_t flag);
/* Empties the log without restoring. */
void df_undo_forget(deft_ctx *cx, df_undos *log, uint8_t flag);
/* Drops what is still to be written into memory of the caller. */
void df_muts_forget(deft_ctx *cx);
/* Removes entry i of cx->muts. The last entry takes its place. */
void df_mut_forget(deft_ctx *cx, size_t i);

/* ---- scope.c ---- */

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
