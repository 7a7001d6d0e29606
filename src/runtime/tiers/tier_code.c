/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions for general code and variants: to name and release code, and to pass an event to the
 * contexts that listen.
 */
#include "runtime/tiers/tier_store.h"

void df_code_show(df_tiers *t, const entry *e, const char *mark, df_code *code)
{
    const df_code_about about = {
        .kernel = &e->kernel, .ops = e->ops, .site = e->site ? e->site : e->plan_site, .mark = mark
    };
    df_naming_show(t->naming, code, &about);
}

void df_code_release(df_tiers *t, df_code *code)
{
    if (!t->compiler) return;
    df_naming_hide(t->naming, code);
    t->compiler->release(t->compiler->self, code);
}

void df_tiers_hear(df_tiers *t, const df_event *e)
{
    for (df_listener *l = t->listeners; l; l = l->next)
        if (l->owner == e->owner) df_events_add(&l->events, e, UINT64_MAX);
}
