/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies: the scopes of the functions of loops, branches, custom gradients and the like.
 */
#include "lazy/run/body.h"
#include "lazy/run/materialize.h"

bool df_body_open(deft_ctx *cx, uintptr_t site, uint32_t *was)
{
    if (!df_scope_push(cx, df_here(cx, site))) return false;
    *was = cx->body_at;
    cx->body_at = cx->depth;
    cx->body_nest++;
    df_walk_begin(cx);
    return true;
}

void df_body_close(deft_ctx *cx, uint32_t was)
{
    df_scope_pop(cx, cx->body_at);
    cx->body_at = was;
    cx->body_nest--;
    df_walk_end(cx);
}
