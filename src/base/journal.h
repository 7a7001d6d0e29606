/* SPDX-License-Identifier: Apache-2.0
 *
 * The structured log: what a runtime did, as lines of JSON in files (docs/trace-format.md). It
 * exists only when the program asked for it; without it, each log call is one test of a pointer.
 * A line has one of two origins:
 *
 *   notes     are small and have a fixed size (notes.def). A thread appends them to its own ring
 *             and never waits. When the ring is full, the note is dropped and counted.
 *   records   are texts of any length, logged where something is slow in any case (a plan was
 *             made, a kernel compiled). A record is a string in a bounded queue, which owns it.
 *             When the queue is full, the record is dropped and counted.
 *
 *   context    --note---> ring  ---\
 *   context    --note---> ring  ----+--> writer thread --> deft-PID-START.jsonl, .1.jsonl, ...
 *   any thread --record-> queue ---/
 *
 * The writer turns notes into text and call sites into names. A plan is written before the first
 * cut that uses it. The member t_ns of a line gives its time; lines are not sorted by it. When
 * nothing can be written (no thread, a full disk), that is logged once under the topic "error".
 * Then nothing more is written, and the program continues.
 *
 * A forked child writes to files of its own, which are opened when it first logs something. Notes
 * and records from before the fork are written by the parent only.
 *
 * With DF_NO_JOURNAL (-Djournal=disabled), df_journal_on and df_ring_on are constantly false, so
 * the compiler removes the calls.
 */
#ifndef DF_BASE_JOURNAL_H
#define DF_BASE_JOURNAL_H

#include "base/diag.h"
#include "base/json.h"
#include "base/log.h"
#include "deft/status.h"

/* Must grow when a member is renamed, removed, or changes its meaning. */
#define DF_JOURNAL_SCHEMA 1

typedef struct df_journal df_journal;
typedef struct df_ring df_ring;

typedef struct df_journal_options {
    const char *dir;      /* created with mode 0700 when it does not exist */
    uint64_t max_bytes;   /* bound on the size of one file; 0: 256 MiB */
    uint64_t text_bytes;  /* bound on the size of queued records; 0: 64 MiB */
    uint32_t max_files;   /* 0: 8; at least 2: the first file, with most plans, is never removed */
    bool code;            /* whether records of kernels include the code */
    bool launches;        /* whether each launch is a note */
    bool inputs;          /* whether the inputs of a plan's first run are stored */
    uint64_t input_bytes; /* bound on the size of all stored inputs; 0: 256 MiB */
    const char *version;  /* version of the library; a static string */
    const char *compiler; /* name of the code generator, for people; copied */
    uint32_t n_threads;   /* threads of the runtime, for people */
    df_diag *problem;     /* gets a sentence if there is no file; may be NULL; used during open */
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

/* Opens the first file and starts the writer. Returns NULL when either fails, which is logged under
 * the topic "error" of log. mem and log, with log->sites, must outlive the journal. Any thread may
 * call mem. */
df_journal *df_journal_open(const df_mem *mem, const df_log *log, const df_journal_options *o);
/* Writes everything that was logged, and closes the files. All rings must have been ended before.
 * *j may be NULL, and is NULL afterwards. */
void df_journal_close(df_journal **j);

/* The options of a journal; false when j is NULL. */
bool df_journal_has_code(const df_journal *j);
bool df_journal_has_launches(const df_journal *j);
bool df_journal_has_inputs(const df_journal *j);

/* ---- files beside the log ---- */

#define DF_JOURNAL_FOLDER 64

/* Opens the folder deft-PID-START.inputs to store `bytes` more bytes of inputs, and counts them. A
 * missing folder is created with mode 0700. A folder of another user, or one that others may
 * access, is refused. Writes the name of the folder to name. The caller must close *fd. Fails with
 * DEFT_E_LIMIT when the bound on inputs is exceeded, or with DEFT_E_IO. Any thread may call
 * this. */
deft_status df_journal_folder(df_journal *j, df_diag *d, uint64_t bytes,
                              char name[DF_JOURNAL_FOLDER], int *fd);

/* ---- notes ---- */

typedef enum df_note {
#define NOTE(id, fields) DF_NOTE_##id,
#include "base/notes.def"
#undef NOTE
    DF_N_NOTES
} df_note;

/* A struct per note: df_note_cut contains the values of DF_NOTE_cut, and so on. */
#define F(type, name) uint64_t name;
#define NOTE(id, fields)                                                                           \
    typedef struct df_note_##id {                                                                  \
        fields                                                                                     \
    } df_note_##id;
#include "base/notes.def"
#undef NOTE
#undef F

/* Opens a ring, which one thread at a time may use. context is the serial number of a context, or 0
 * for none. Returns NULL when j is NULL, when memory runs out, or when nothing more can be written.
 * The last two count as a dropped note. */
df_ring *df_ring_open(df_journal *j, uint32_t context);
/* Ends the use of a ring. The writer frees it later. *r may be NULL, and is NULL afterwards. */
void df_ring_end(df_ring **r);

/* Appends a note with the current time. values points to the struct of that note. Never waits and
 * never allocates memory. r must not be NULL. */
void df_ring_log(df_ring *r, df_note note, const void *values) DF_COLD;

/* The identifier of a plan within its runtime: plan `number` of a context. */
DF_INLINE uint64_t df_plan_id(uint32_t context, uint32_t number)
{
    return (uint64_t)context << 32 | number;
}

/* ---- records ---- */

/* Initialises s and begins a record with its type, the current time and the context, where 0 means
 * none. The caller appends members with base/json.h, then calls df_record_end. */
void df_record_begin(df_str *s, df_journal *j, const char *type, uint32_t context);
/* Appends a member with the identifier of a plan, as df_plan_id returns it. */
void df_record_plan(df_str *s, const char *key, uint64_t plan);
/* Ends the record and queues it. The record is dropped and counted if memory ran out, if the queue
 * is full, or if nothing more can be written. Any thread may call this. */
void df_record_end(DEFT_OWN df_str *s, df_journal *j);

#endif
