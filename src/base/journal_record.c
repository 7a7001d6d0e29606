/* SPDX-License-Identifier: Apache-2.0
 *
 * The first members of each record of the structured log, and identifiers of plans in records.
 */
#include <stdio.h>
#include <time.h>

#include "base/journal_internal.h"

uint64_t df_journal_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void df_record_plan(df_str *s, const char *key, uint64_t plan)
{
    char text[32];
    snprintf(text, sizeof text, "%u.%u", (unsigned)(plan >> 32), (unsigned)plan);
    df_json_text(s, key, plan ? text : NULL);
}

void df_record_begin(df_str *s, df_journal *j, const char *type, uint32_t context)
{
    df_str_init(s, j->mem);
    df_json_open(s, NULL, '{');
    df_json_text(s, "type", type);
    df_json_count(s, "t_ns", df_journal_now_ns());
    if (context)
        df_json_count(s, "context", context);
    else
        df_str_put(s, ",\"context\":null");
}
