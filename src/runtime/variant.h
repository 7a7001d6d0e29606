/* SPDX-License-Identifier: Apache-2.0
 *
 * Which variants a kernel should have. Policy and data alone: it looks at launches, and takes no
 * lock, no memory and no compiler (those are tier_variant.c's).
 *
 * A *watch* counts launches in a row that are alike. Two kernels' launches never meet in one, but
 * threads do: its words are relaxed atomics, and a count that is lost between two of them only
 * makes a variant come later.
 */
#ifndef DF_RUNTIME_VARIANT_H
#define DF_RUNTIME_VARIANT_H

#include <stdatomic.h>

#include "base/str.h"
#include "runtime/device.h"

/* One launch of one kernel, as its code would be called for it. */
typedef struct df_call {
    const df_kargs *args;
    bool rows, all; /* as in df_facts */
    int64_t n_rows; /* product of the extents of OUTER */
    double ns;      /* estimated */
} df_call;

/* What a variant knows; a later one knows more, and is taken where both fit. */
typedef enum df_variant_kind {
    DF_VARIANT_NONE,
    DF_VARIANT_MULTIPLE, /* the vectorized extent is a multiple */
    DF_VARIANT_ROWS,     /* the extents of a row, for any number of rows */
    DF_VARIANT_ALL,      /* all extents */
    DF_VARIANT_NUMBERS   /* numbers, and of extents what was known when it was made */
} df_variant_kind;

typedef struct df_watch {
    _Atomic uint64_t rows, all, nums;                   /* of the latest launch, hashed */
    _Atomic uint32_t n_rows, n_all, n_nums, n_multiple; /* launches in a row like it */
} df_watch;

enum {
    DF_VARIANT_AFTER = 64,  /* launches alike before a variant is made */
    DF_NUMBERS_FACTOR = 16, /* times as many for numbers, */
    DF_MISSED_FACTOR = 16,  /* and without a use before one is given up */
    DF_MAX_VARIANTS = 4     /* made of one kernel, ever */
};

/* Number slots that are worth a variant for some value: bit i is slot i. */
typedef struct df_number_slots {
    uint64_t f32, f64; /* divided by in this dtype */
} df_number_slots;

df_number_slots df_variant_slots(const df_kernel *k);

bool df_facts_hold(const df_facts *f, const df_kernel *k, const df_call *c);
/* Number slots whose fact the launch breaks. */
uint64_t df_facts_other_numbers(const df_facts *f, const df_call *c);

/* Counts a launch and says what its kernel should have a variant for. `slots`: number slots to
 * look at; `after`: launches in a row alike that it takes. */
df_variant_kind df_watch_launch(df_watch *w, const df_kernel *k, const df_call *c,
                                df_number_slots slots, uint32_t after);
/* The facts of a variant of this kind, for launches like c. */
void df_facts_take(df_facts *out, const df_watch *w, const df_kernel *k, const df_call *c,
                   df_variant_kind kind, df_number_slots slots, uint32_t after);
/* "extents [64,256], divisor 0.5"; "divisor 0.5". Cut at n and terminated. */
void df_facts_print(const df_facts *f, const df_kernel *k, char *out, size_t n);
void df_facts_print_numbers(uint64_t slots, const uint64_t *num, const df_kernel *k, char *out,
                            size_t n);

#endif
