/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces the journal in builds without it (-Djournal=disabled).
 */
#include "base/journal.h"

df_journal *df_journal_open(const df_mem *mem, const df_log *log, const df_journal_options *o)
{
    (void)mem;
    (void)o;
    df_logf(log, error, "trace_dir: this library was built without the structured log");
    return NULL;
}

void df_journal_close(df_journal **j)
{
    (void)j;
}

bool df_journal_has_code(const df_journal *j)
{
    (void)j;
    return false;
}

bool df_journal_has_launches(const df_journal *j)
{
    (void)j;
    return false;
}

bool df_journal_has_inputs(const df_journal *j)
{
    (void)j;
    return false;
}

deft_status df_journal_folder(df_journal *j, df_diag *d, uint64_t bytes,
                              char name[DF_JOURNAL_FOLDER], int *fd)
{
    (void)j;
    (void)bytes;
    (void)name;
    (void)fd;
    return df_fail(d, DEFT_E_STATE, "there is no structured log");
}

df_ring *df_ring_open(df_journal *j, uint32_t context)
{
    (void)j;
    (void)context;
    return NULL;
}

void df_ring_end(df_ring **r)
{
    (void)r;
}

void df_ring_log(df_ring *r, df_note note, const void *values)
{
    (void)r;
    (void)note;
    (void)values;
}

void df_record_begin(df_str *s, df_journal *j, const char *type, uint32_t context)
{
    (void)s;
    (void)j;
    (void)type;
    (void)context;
}

void df_record_plan(df_str *s, const char *key, uint64_t plan)
{
    (void)s;
    (void)key;
    (void)plan;
}

void df_record_end(df_str *s, df_journal *j)
{
    (void)s;
    (void)j;
}
