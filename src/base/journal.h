/* SPDX-License-Identifier: Apache-2.0
 *
 * The structured log: what a runtime did, as lines of JSON in files (docs/trace-format.md). It
 * exists only when somebody asked for it; who has none pays one test of a pointer.
 *
 *   notes     small, of a fixed size (notes.def): into a ring of the thread that tells them, which
 *             never waits: a full ring drops the note and counts it
 *   records   texts of any length, told where something is slow anyway (a plan was made, a kernel
 *             compiled): an owned string into a bounded queue, dropped and counted when it is full
 *
 *   context --note--> ring ---\
 *   context --note--> ring ----+--> writer thread --> deft-PID-START.jsonl, .1.jsonl, ...
 *   any thread --record--> queue --/
 *
 * The writer turns notes into text and names call sites; a plan is written before the first cut
 * that uses it. Lines are ordered by their t_ns, not by their place. What cannot be written (no
 * thread, a full disk) is told once under the log topic "error", and then no more is written; the
 * program goes on.
 *
 * A forked child writes into files of its own, opened when it first tells something; what its
 * parent had not written yet is the parent's.
 *
 * With DF_NO_JOURNAL (-Djournal=disabled) df_journal_on and df_ring_on are false and the rest is
 * compiled away.
 */
#ifndef DF_BASE_JOURNAL_H
#define DF_BASE_JOURNAL_H

#include "base/diag.h"
#include "base/json.h"
#include "base/log.h"
#include "deft/status.h"

#define DF_JOURNAL_SCHEMA 1 /* grows when a field is renamed, dropped or means something else */

typedef struct df_journal df_journal;
typedef struct df_ring df_ring;

typedef struct df_journal_options {
    const char *dir;      /* made when it is not there, with mode 0700 */
    uint64_t max_bytes;   /* of one file; 0: 256 MiB */
    uint64_t text_bytes;  /* of records that wait; 0: 64 MiB */
    uint32_t max_files;   /* 0: 8; at least 2: the first is kept, since most plans stand there */
    bool code;            /* records of kernels carry their code */
    bool launches;        /* each launch is a note */
    bool inputs;          /* what plans read when they first run is stored */
    uint64_t input_bytes; /* of all of that; 0: 256 MiB */
    const char *version;  /* of the library */
    const char *compiler; /* and of code, for people */
    uint32_t n_threads;
    df_diag *problem; /* gets the sentence when there will be no log; may be NULL */
} df_journal_options;

#ifdef DF_NO_JOURNAL
DF_INLINE bool df_journal_on(const df_journal *j)
{
    (void)j;
    return false;
}

DF_INLINE bool df_ring_on(const df_ring *r)
{
    (void)r;
    return false;
}
#else
DF_INLINE bool df_journal_on(const df_journal *j)
{
    return DF_UNLIKELY(j != NULL);
}

DF_INLINE bool df_ring_on(const df_ring *r)
{
    return DF_UNLIKELY(r != NULL);
}
#endif

/* Opens the first file and starts the writer. NULL when either failed, told to log, which the
 * journal keeps, with its call sites. mem: any thread. */
df_journal *df_journal_open(const df_mem *mem, const df_log *log, const df_journal_options *o);
/* Writes what is left. Its rings must have ended. NULL is fine. */
void df_journal_close(df_journal **j);

bool df_journal_has_code(const df_journal *j);
bool df_journal_has_launches(const df_journal *j);
bool df_journal_has_inputs(const df_journal *j);

/* ---- files beside the log ---- */

#define DF_JOURNAL_FOLDER 64

/* Opens the folder deft-PID-START.inputs, made for its owner alone when it is not there, for bytes
 * more of inputs, which are counted. Its name goes to name, and *fd is the caller's. A folder that
 * is another user's, or open to others, is refused. Failures: DEFT_E_LIMIT (too many bytes),
 * DEFT_E_IO. Any thread. */
deft_status df_journal_folder(df_journal *j, df_diag *d, uint64_t bytes,
                              char name[DF_JOURNAL_FOLDER], int *fd);

/* ---- notes ---- */

typedef enum df_note {
#define NOTE(id, fields) DF_NOTE_##id,
#include "base/notes.def"
#undef NOTE
    DF_N_NOTES
} df_note;

/* df_note_cut and so on: what df_ring_log takes for DF_NOTE_cut. */
#define F(type, name) uint64_t name;
#define NOTE(id, fields)                                                                           \
    typedef struct df_note_##id {                                                                  \
        fields                                                                                     \
    } df_note_##id;
#include "base/notes.def"
#undef NOTE
#undef F

/* Of one thread at a time. NULL when journal is, or there is no memory, which counts as a dropped
 * note. context: 0 for none. */
df_ring *df_ring_open(df_journal *j, uint32_t context);
void df_ring_end(df_ring **r); /* the writer frees it; NULL is fine */

/* values: the struct of that note. Never waits, takes no memory. */
void df_ring_log(df_ring *r, df_note note, const void *values) DF_COLD;

/* A plan among those of a runtime: what number of which context. */
DF_INLINE uint64_t df_plan_id(uint32_t context, uint32_t number)
{
    return (uint64_t)context << 32 | number;
}

/* ---- records ---- */

/* Begins a record with its type, the time of now and the context (0: none). */
void df_record_begin(df_str *s, df_journal *j, const char *type, uint32_t context);
void df_record_plan(df_str *s, const char *key, uint64_t plan);
/* Ends the record and hands it over; one that had no memory is counted as dropped. Any thread. */
void df_record_end(DEFT_OWN df_str *s, df_journal *j);

#endif
