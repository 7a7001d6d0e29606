/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the journal: what journal.c, where things are told, and journal_write.c, where they
 * are written, share.
 *
 * No lock: a ring has one thread that tells and one that writes, records and new rings are pushed
 * onto lists by one exchange, and only the writer takes anything away. So whatever moment a process
 * is forked at, a child finds lists that are whole.
 */
#ifndef DF_BASE_JOURNAL_OWN_H
#define DF_BASE_JOURNAL_OWN_H

#include <pthread.h>
#include <semaphore.h>

#include "base/fork.h"
#include "base/journal.h"
#include "base/journal_file.h"
#include "base/site.h"

#define DF_RING 2048 /* notes */

enum {
#define F(type, name) +1
#define NOTE(id, fields) DF_NOTE_SIZE_##id = 0 fields,
#include "base/notes.def"
#undef NOTE
#undef F
    DF_NOTE_MOST = 18 /* fields */
};
#define NOTE(id, fields)                                                                           \
    _Static_assert((int)DF_NOTE_SIZE_##id <= (int)DF_NOTE_MOST, #id " has too many fields");
#include "base/notes.def"
#undef NOTE

typedef struct df_told {
    uint64_t ns;
    uint32_t note;
    uint64_t v[DF_NOTE_MOST];
} df_told;

/* Note i stands at at[i % DF_RING] while tail <= i < head. */
struct df_ring {
    df_journal *journal;
    df_ring *_Atomic next;
    uint32_t context;
    _Atomic bool ended; /* the last thing its thread did to it */
    uint64_t seen;      /* the writer's: head when this round began */
    bool is_last_round; /* the writer's */
    char apart[64];     /* what two threads write shares no cache line */
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

/* Names of call sites, as JSON; of one round, since a library may be unloaded. */
typedef struct df_site_name {
    uintptr_t site; /* 0: none */
    uint32_t n;
    char text[DF_SITE_JSON];
} df_site_name;

struct df_journal {
    const df_mem *mem;
    const df_log *log;
    df_journal_options options; /* its strings are copies, or static */
    char compiler[192];
    df_ring *_Atomic rings;
    df_record *_Atomic records; /* the latest first */
    _Atomic uint64_t record_bytes, n_lost_records;
    _Atomic uint64_t n_lost_notes; /* of rings that are gone */
    _Atomic uint64_t input_bytes;  /* stored so far */
    _Atomic bool is_awake;         /* the writer has been called */
    _Atomic bool stop, is_dead;    /* dead: nothing will be written any more */
    df_fork_detector mark;
    bool has_thread, is_child;
    pthread_t thread;
    sem_t wake;

    /* The writer's. */
    df_journal_file file;
    uint64_t told_lost_notes, told_lost_records, n_written;
    df_site_name names[DF_SITE_NAMES_KEPT];
};

/* The monotonic clock that dates notes and records, in ns. */
uint64_t df_journal_now_ns(void);
void *df_journal_write(void *journal); /* the writer thread */

#endif
