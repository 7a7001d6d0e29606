/* SPDX-License-Identifier: Apache-2.0
 *
 * Logging to the journal: rings, the queue of records, opening and closing, and forks.
 */
#include "base/journal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/errno_text.h"
#include "base/journal_internal.h"
#include "base/signals.h"

#define MAX_BYTES ((uint64_t)256 << 20)
#define TEXT_BYTES ((uint64_t)64 << 20)
#define INPUT_BYTES ((uint64_t)256 << 20)
enum { MAX_FILES = 8 };

static const uint8_t note_sizes[DF_N_NOTES] = {
#define NOTE(id, fields) DF_NOTE_SIZE_##id,
#include "base/notes.def"
#undef NOTE
};

/* Wakes the writer, unless that was done since its last pause. */
static void wake(df_journal *j)
{
    if (!atomic_exchange_explicit(&j->is_awake, true, memory_order_acq_rel)) sem_post(&j->wake);
}

/* ---- the writer thread ---- */

/* Starts the writer with SIGXFSZ blocked, too. So a file that must not grow is an error of write,
 * and not a signal. */
static bool start(df_journal *j)
{
    sigset_t before;
    df_signals_block(&before);
    j->has_thread = pthread_create(&j->thread, NULL, df_journal_write, j) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (j->has_thread) return true;
    atomic_store(&j->is_dead, true);
    df_logf(j->log, error, "trace_dir: no thread could be had; nothing is written");
    return false;
}

/* Discards all notes and records. In a child, the parent writes them. Rings of missing threads
 * remain in the list. */
static void forget(df_journal *j)
{
    for (df_ring *r = atomic_load(&j->rings); r; r = atomic_load(&r->next)) {
        atomic_store(&r->tail, atomic_load(&r->head));
        atomic_store(&r->n_lost, 0);
    }
    for (df_record *t = atomic_exchange(&j->records, NULL), *next; t; t = next) {
        next = t->next;
        df_str_finish(&t->s);
        df_mem_free(j->mem, t, sizeof *t);
    }
    atomic_store(&j->record_bytes, 0);
    atomic_store(&j->n_lost_records, 0);
    atomic_store(&j->n_lost_notes, 0);
    atomic_store(&j->input_bytes, 0);
    atomic_store(&j->is_awake, false);
    sem_init(&j->wake, 0, 0);
    df_journal_file_forget(&j->file);
    j->told_lost_notes = j->told_lost_records = j->n_written = 0;
    memset(j->names, 0, sizeof j->names);
    j->has_thread = false;
    j->is_child = true;
}

/* In a forked child, discards what the parent will write. With `writes`, also begins a file and
 * starts a writer. */
static void check_fork(df_journal *j, bool writes)
{
    if (DF_LIKELY(!df_fork_detector_seen(&j->mark))) return;
    forget(j);
    /* The file is begun here and not in the thread, because its name may be needed at once. The
     * thread logs a failure. */
    if (writes && !atomic_load(&j->is_dead)) {
        (void)df_journal_file_next(&j->file);
        (void)start(j);
    }
    df_fork_detector_done(&j->mark);
}

/* ---- opening and closing ---- */

df_journal *df_journal_open(const df_mem *mem, const df_log *log, const df_journal_options *o)
{
    df_journal *j = df_mem_zalloc(mem, sizeof *j);
    if (!j) {
        df_logf(log, error, "trace_dir: no memory; nothing is written");
        return NULL;
    }
    j->mem = mem;
    j->log = log;
    j->options = *o;
    if (!o->max_bytes) j->options.max_bytes = MAX_BYTES;
    if (!o->max_files) j->options.max_files = MAX_FILES;
    if (!o->text_bytes) j->options.text_bytes = TEXT_BYTES;
    if (!o->input_bytes) j->options.input_bytes = INPUT_BYTES;
    snprintf(j->compiler, sizeof j->compiler, "%s", o->compiler);
    sem_init(&j->wake, 0, 0); /* cannot fail on Linux, where it only sets a field */
    df_fork_detector_init(&j->mark);
    const bool has_file =
        df_journal_file_init(&j->file, o->dir, j->options.max_bytes, j->options.max_files) &&
        df_journal_file_next(&j->file);
    if (!has_file) {
        char why[128];
        const char *const text = df_errno_text(j->file.error, why, sizeof why);
        df_logf(log, error, "trace_dir: no file in %.200s: %s; nothing is written", o->dir, text);
        (void)df_fail(o->problem, DEFT_E_IO, "trace_dir: no file in %.200s: %s; nothing is written",
                      o->dir, text);
    }
    j->options.dir = NULL;     /* borrowed for this call only */
    j->options.problem = NULL; /* likewise */
    if (has_file && start(j)) return j;
    df_journal_close(&j);
    return NULL;
}

void df_journal_close(df_journal **out)
{
    df_journal *const j = *out;
    *out = NULL;
    if (!j) return;
    check_fork(j, false);
    if (j->has_thread) {
        atomic_store(&j->stop, true);
        sem_post(&j->wake);
        pthread_join(j->thread, NULL);
    }
    forget(j); /* frees records that no writer has taken */
    for (df_ring *r = atomic_load(&j->rings), *next; r; r = next) {
        next = atomic_load(&r->next);
        df_mem_free(j->mem, r, sizeof *r);
    }
    df_journal_file_finish(&j->file);
    df_fork_detector_finish(&j->mark);
    df_mem_free(j->mem, j, sizeof *j);
}

bool df_journal_has_code(const df_journal *j)
{
    return df_journal_on(j) && j->options.code;
}

bool df_journal_has_launches(const df_journal *j)
{
    return df_journal_on(j) && j->options.launches;
}

bool df_journal_has_inputs(const df_journal *j)
{
    return df_journal_on(j) && j->options.inputs;
}

/* ---- files beside the log ---- */

deft_status df_journal_folder(df_journal *j, df_diag *d, uint64_t bytes,
                              char name[DF_JOURNAL_FOLDER], int *fd)
{
    check_fork(j, true);
    const uint64_t most = j->options.input_bytes;
    const uint64_t sum = atomic_fetch_add(&j->input_bytes, bytes) + bytes;
    if (sum <= most && sum >= bytes) {
        char why[128];
        if ((*fd = df_journal_file_folder(&j->file, name, DF_JOURNAL_FOLDER)) >= 0) return DEFT_OK;
        const int code = errno;
        atomic_fetch_sub(&j->input_bytes, bytes);
        return df_fail(d, DEFT_E_IO, "%s: %s", name, df_errno_text(code, why, sizeof why));
    }
    atomic_fetch_sub(&j->input_bytes, bytes);
    return df_fail(d, DEFT_E_LIMIT, "%llu bytes more would be over the bound of %llu",
                   (unsigned long long)bytes, (unsigned long long)most);
}

/* ---- notes ---- */

df_ring *df_ring_open(df_journal *j, uint32_t context)
{
    if (!df_journal_on(j)) return NULL;
    check_fork(j, true);
    df_ring *const r = atomic_load(&j->is_dead) ? NULL : df_mem_zalloc(j->mem, sizeof *r);
    if (!r) {
        atomic_fetch_add(&j->n_lost_notes, 1);
        return NULL;
    }
    r->journal = j;
    r->context = context;
    df_ring *first = atomic_load(&j->rings);
    do atomic_store(&r->next, first);
    while (!atomic_compare_exchange_weak(&j->rings, &first, r));
    return r;
}

void df_ring_end(df_ring **out)
{
    df_ring *const r = *out;
    *out = NULL;
    if (r) atomic_store_explicit(&r->ended, true, memory_order_release);
}

void df_ring_log(df_ring *r, df_note note, const void *values)
{
    check_fork(r->journal, true);
    const uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    const uint64_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);
    if (head - tail >= DF_RING) {
        atomic_fetch_add_explicit(&r->n_lost, 1, memory_order_relaxed);
        return;
    }
    df_told *const t = &r->at[head % DF_RING];
    t->ns = df_journal_now_ns();
    t->note = note;
    memcpy(t->v, values, note_sizes[note] * sizeof *t->v);
    atomic_store_explicit(&r->head, head + 1, memory_order_release);
    if (head + 1 - tail == DF_RING / 2) wake(r->journal);
}

/* ---- records ---- */

void df_record_end(df_str *s, df_journal *j)
{
    check_fork(j, true);
    df_json_close(s, '}');
    df_str_putc(s, '\n');
    df_record *const t = s->ok ? df_mem_alloc(j->mem, sizeof *t) : NULL;
    const uint64_t bytes = atomic_fetch_add(&j->record_bytes, s->n) + s->n;
    if (!t || bytes > j->options.text_bytes || atomic_load(&j->is_dead)) {
        atomic_fetch_sub(&j->record_bytes, s->n);
        atomic_fetch_add(&j->n_lost_records, 1);
        df_mem_free(j->mem, t, sizeof *t);
        df_str_finish(s);
        return;
    }
    t->s = *s;
    df_record *first = atomic_load(&j->records);
    do t->next = first;
    while (!atomic_compare_exchange_weak(&j->records, &first, t));
}
