/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy of variants: which variants a kernel should have. This module looks at launches. It
 * takes no lock, allocates nothing and calls no compiler; tier_variant.c does.
 *
 * A *watch* counts how many launches in a row of one kernel were alike. Several threads may update
 * a watch at once, so its words are relaxed atomics. A count that gets lost between two threads
 * only delays a variant.
 */
#ifndef DF_RUNTIME_VARIANT_H
#define DF_RUNTIME_VARIANT_H

#include <stdatomic.h>

#include "base/str.h"
#include "runtime/device.h"

/* One launch of one kernel: what its code would be called with. */
typedef struct df_call {
    const df_kargs *args;
    bool rows, all; /* as in df_facts: how the launch would divide the kernel */
    int64_t n_rows; /* product of the extents of OUTER */
    double ns;      /* estimated time */
} df_call;

/* What a variant relies on. A later kind relies on more, and is preferred where both fit. */
typedef enum df_variant_kind {
    DF_VARIANT_NONE,
    DF_VARIANT_MULTIPLE, /* the vectorized extent is a multiple of DF_FACT_MULTIPLE */
    DF_VARIANT_SHARED,   /* neighbouring rows read the same elements */
    DF_VARIANT_ROWS,     /* the extents of a row are known, the number of rows is not */
    DF_VARIANT_ALL,      /* all extents are known */
    DF_VARIANT_NUMBERS   /* numbers, and the extents that were stable when it was made */
} df_variant_kind;

typedef struct df_watch {
    _Atomic uint64_t rows, all, nums; /* hashes of the latest launch: row extents, all, numbers */
    _Atomic uint32_t n_rows, n_all, n_nums, n_multiple; /* how many launches in a row had these */
    _Atomic uint32_t n_launches;                        /* of a kernel that may share rows */
} df_watch;

enum {
    DF_VARIANT_AFTER = 64,  /* alike launches before a variant is made */
    DF_NUMBERS_FACTOR = 16, /* a variant for numbers needs this many times as many */
    DF_MISSED_FACTOR = 16,  /* dropped after this many times as many misses in a row */
    DF_MAX_VARIANTS = 4     /* variants of one kernel that are ever made */
};

/* What can be worth a variant of a kernel. Bit i of a set is number slot i. */
typedef struct df_number_slots {
    uint64_t f32, f64; /* slots that are divisors in this dtype */
    bool may_share;    /* several loads of rows might read the same elements */
    bool divides_rows; /* ROW: divides elements of f32, or takes their roots */
} df_number_slots;

df_number_slots df_variant_slots(const df_kernel *k);

/* Returns true when the launch satisfies all facts. */
bool df_facts_hold(const df_facts *f, const df_kernel *k, const df_call *c);
/* Returns the number slots in which the launch differs from the facts, bit i for slot i. */
uint64_t df_facts_other_numbers(const df_facts *f, const df_call *c);

/* Counts a launch, and returns the kind of variant that the kernel should get now. Only numbers in
 * `slots` are looked at. `after` is how many launches in a row must be alike. */
df_variant_kind df_watch_launch(df_watch *w, const df_kernel *k, const df_call *c,
                                df_number_slots slots, uint32_t after);
/* Fills in the facts of a variant of this kind, for launches like c. */
void df_facts_take(df_facts *out, const df_watch *w, const df_kernel *k, const df_call *c,
                   df_variant_kind kind, df_number_slots slots, uint32_t after);
/* Writes facts as text: "extents [64,256], divisor 0.5". The text is truncated to n bytes and
 * always terminated. */
void df_facts_print(const df_facts *f, const df_kernel *k, char *out, size_t n);
/* Writes only the numbers of the given slots, in the same way. */
void df_facts_print_numbers(uint64_t slots, const uint64_t *num, const df_kernel *k, char *out,
                            size_t n);

#endif
