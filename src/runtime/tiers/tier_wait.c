/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for the compiler. A thread that waits sleeps on the condition of the tiers. With a
 * waiter, it wakes up now and then. It then reports progress, and asks whether to continue.
 */
#include "runtime/tiers/tier_store.h"

#include <string.h>

#include "runtime/os.h"

bool df_wait_level(const df_wait *s, uint32_t i, df_opt *level)
{
    const df_tier tier =
        s->level ? DF_TIER_AUTO : df_tier_for(s->t, &df_entry_of(s->execs[i])->kernel);
    *level = s->level ? *s->level : tier == DF_TIER_O0 ? DF_OPT_O0 : DF_OPT_O2;
    return s->level || tier == DF_TIER_O0 || tier == DF_TIER_O2;
}

/* Counts the kernels that are not settled yet. A kernel is settled when its code of the wanted
 * level is done or has failed. *busy is a kernel that is being compiled, or NULL. The caller holds
 * `lock`. */
static uint32_t count_open(const df_wait *s, const entry **busy)
{
    uint32_t n = 0;
    *busy = NULL;
    for (uint32_t i = 0; i < s->n; i++) {
        df_opt level;
        entry *const e = df_entry_of(s->execs[i]);
        if (!df_wait_level(s, i, &level) || df_is_settled(df_exec_state(&e->exec, level))) continue;
        n++;
        if (!*busy && df_exec_state(&e->exec, level) == STATE_BUSY) *busy = e;
    }
    return n;
}

void df_wait_begin(df_wait *s)
{
    const entry *busy;
    if (!s->w) return;
    s->begun_ns = s->told_ns = df_os_now_ns();
    s->n_asked = count_open(s, &busy);
}

/* Reports the progress to the waiter, which may stop the wait. The caller holds `lock`, which is
 * released during the call. */
static void ask(df_wait *s, uint64_t now)
{
    const entry *busy;
    char ops[sizeof busy->ops] = "";
    const uint32_t n_open = count_open(s, &busy);
    if (busy) memcpy(ops, busy->ops, sizeof ops);
    const df_waiting waiting = { .ops = ops,
                                 .site = !busy        ? 0
                                         : busy->site ? busy->site
                                                      : busy->plan_site,
                                 .n_done = s->n_asked > n_open ? s->n_asked - n_open : 0,
                                 .n = s->n_asked,
                                 .elapsed_ns = now - s->begun_ns };
    pthread_mutex_unlock(&s->t->lock);
    if (!s->w->go_on(s->w->user, &waiting)) s->w->stopped = true;
    pthread_mutex_lock(&s->t->lock);
    s->told_ns = df_os_now_ns();
}

bool df_wait_once(df_wait *s)
{
    if (!s->w) {
        pthread_cond_wait(&s->t->changed, &s->t->lock);
        return true;
    }
    const uint64_t until = s->told_ns + DF_WAITER_NS;
    if (s->w->stopped) return false;
    df_os_cond_wait_until(&s->t->changed, &s->t->lock, until);
    const uint64_t now = df_os_now_ns();
    if (now >= until) ask(s, now);
    return !s->w->stopped;
}
