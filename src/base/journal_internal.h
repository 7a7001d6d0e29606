/* SPDX-License-Identifier: Apache-2.0
 *
 * The structures that journal.c, which logs, and journal_write.c, which writes files, share.
 * Internal header of the journal.
 *
 * There is no lock. A ring has one thread that appends notes and one thread that writes them out.
 * Records and new rings are pushed onto lists by one atomic exchange, and only the writer removes
 * them. So the lists are consistent in a child, at whatever moment the process was forked.
 */
#ifndef DF_BASE_JOURNAL_OWN_H
#define DF_BASE_JOURNAL_OWN_H

#include <pthread.h>
#include <semaphore.h>

#include "base/fork.h"
#include "base/journal.h"
#include "base/journal_file.h"
#include "base/site.h"

#define DF_RING 2048 /* notes in a ring */

enum {
#define F(type, name) +1
#define NOTE(id, fields) DF_NOTE_SIZE_##id = 0 fields,
#include "base/notes.def"
#undef NOTE
#undef F
    DF_NOTE_MOST = 18 /* bound on the fields of a note */
};
#define NOTE(id, fields)                                                                           \
    _Static_assert((int)DF_NOTE_SIZE_##id <= (int)DF_NOTE_MOST, #id " has too many fields");
#include "base/notes.def"
#undef NOTE

/* A note in a ring. */
typedef struct df_told {
    uint64_t ns;   /* df_journal_now_ns when it was logged */
    uint32_t note; /* df_note */
    uint64_t v[DF_NOTE_MOST];
} df_told;

/* Note i is at[i % DF_RING] while tail <= i < head. */
struct df_ring {
    df_journal *journal;
    df_ring *_Atomic next;
    uint32_t context;
    _Atomic bool ended; /* set by df_ring_end; its thread then never uses the ring again */
    uint64_t seen;      /* used by the writer: head when the current round began */
    bool is_last_round; /* used by the writer: it had ended when the current round began */
    char apart[64];     /* padding: fields that different threads write share no cache line */
    _Atomic uint64_t head, n_lost;
    char apart2[64];
    _Atomic uint64_t tail;
    char apart3[64];
    df_told at[DF_RING];
};

typedef struct df_record {
    struct df_record *next;
    df_str s;
} df_record;

enum { DF_SITE_NAMES_KEPT = 256, DF_SITE_JSON = 320 };

/* A cache of the names of call sites, as JSON. It is cleared in each round, because a library may
 * be unloaded and its addresses used again. */
typedef struct df_site_name {
    uintptr_t site; /* 0 when the entry is empty */
    uint32_t n;     /* length of text */
    char text[DF_SITE_JSON];
} df_site_name;

struct df_journal {
    const df_mem *mem;
    const df_log *log;
    df_journal_options options; /* dir and problem are NULL after df_journal_open */
    char compiler[192];         /* copy of options.compiler */
    df_ring *_Atomic rings;
    df_record *_Atomic records;                    /* list, the latest first */
    _Atomic uint64_t record_bytes, n_lost_records; /* size of queued records; dropped records */
    _Atomic uint64_t n_lost_notes;                 /* dropped notes of rings that were freed */
    _Atomic uint64_t input_bytes;                  /* size of stored inputs */
    _Atomic bool is_awake;                         /* `wake` was posted */
    _Atomic bool stop, is_dead; /* is_dead: after a failure, nothing more will be written */
    df_fork_detector mark;
    bool has_thread, is_child; /* the writer thread exists; this process is a forked child */
    pthread_t thread;
    sem_t wake;

    /* Only the writer uses the following. */
    df_journal_file file;
    /* The numbers of dropped notes and records in the latest line that has them; lines written. */
    uint64_t told_lost_notes, told_lost_records, n_written;
    df_site_name names[DF_SITE_NAMES_KEPT];
};

/* The time of notes and records: the monotonic clock, in ns. */
uint64_t df_journal_now_ns(void);
/* The function of the writer thread. */
void *df_journal_write(void *journal);

#endif
