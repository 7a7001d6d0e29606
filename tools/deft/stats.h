/* SPDX-License-Identifier: Apache-2.0
 *
 * The summary of a structured log: collected in one pass (stats.c), printed (stats_print.c).
 */
#ifndef TOOL_STATS_H
#define TOOL_STATS_H

#include <stdio.h>

#include "log.h"
#include "tally.h"

enum { STATS_SLOWEST = 10 };

typedef struct stats_compile {
    uint64_t ns; /* this kernel's part of its module */
    char ops[128], site[256], tier[16];
} stats_compile;

/* Times in ns, of sums that saturate. Totals of tallies are what their comment says. */
typedef struct stats_process {
    const char *name; /* of the log */
    const char *program, *library_version, *compiler;
    int64_t process_id, parent_process_id, threads, clock_unix_ns;
    bool is_forked, is_ended;
    uint64_t lines, files;
    int64_t first_ns, last_ns; /* of lines; CLOCK_MONOTONIC */

    uint64_t cuts, matched, hits, failed_cuts;
    uint64_t extract_ns, plan_ns, run_ns, launches_ns;
    uint64_t launches, segments, interpreted_segments, donated, allocated_bytes;
    tally cut_reasons;  /* run_ns */
    tally source_lines; /* run_ns of cuts by call, labels left out */

    uint64_t plans, fused_ns; /* fused: simplified, fused, prepared */
    tally retreats;           /* 0 */
    tally misses;             /* 0, by kind */

    uint64_t kernels, failed_kernels, compile_ns, code_bytes;
    tally tiers;                          /* compile_ns */
    stats_compile slowest[STATS_SLOWEST]; /* by ns; those of ns 0 are none */

    uint64_t told_launches, told_launches_ns, told_launches_bytes;
    tally syncs;      /* records, by call */
    tally recomputed; /* records, by call */
    tally replays;    /* 0, by status */
    tally graphs;     /* 0, by what was done and why: runs on GPUs that were no mere replay */
    uint64_t graph_hits;
    uint64_t steps;
    int64_t live_bytes, peak_bytes, system_allocations;
    tally errors; /* 0, by message */
    tally why;    /* 0, by reason; note: the advice */

    int64_t dropped_notes, dropped_records;
} stats_process;

typedef struct stats {
    tally_store store;
    stats_process *processes;
    uint32_t n_processes;
    log_faults faults;
} stats;

/* A CLI_* code, told on stderr unless it is CLI_OK. Must be finished in any case. */
int stats_collect(stats *s, log_set *logs);
void stats_finish(stats *s);

/* For people: no byte of a log reaches f that a terminal obeys. */
void stats_print(const stats *s, FILE *f, bool has_colour);
/* One object. false: no memory. */
bool stats_print_json(const stats *s, FILE *f);

#endif
