/* SPDX-License-Identifier: Apache-2.0
 *
 * Guards: what a plan relied on beyond the key, as data with a reason. They can be printed,
 * compared, tested and explained. Checked at each cut before a plan is used; a miss names field,
 * expected, found.
 */
#ifndef DF_GUARDS_GUARD_H
#define DF_GUARDS_GUARD_H

#include "trace/trace.h"

/* GUARD(kind, reason): reason is printed with expected and found numbers. */
#define DF_GUARDS(X)                                                                               \
    X(equal, "extents that met in one op differ")           /* slot a == slot b */                 \
    X(is_const, "an extent taken as a constant changed")    /* slot a == want */                   \
    X(at_least, "an extent fell below what the plan needs") /* slot a >= want */                   \
    X(at_most, "an extent outgrew what the plan allows")    /* slot a <= want */                   \
    X(contiguous, "an input is no longer contiguous")       /* input a has the flag == want */     \
    X(aligned, "an input's alignment changed")              /* input a has the flag == want */     \
    X(unit,                                                                                        \
      "an input's innermost stride changed class") /* (stride of input a axis b == 1) == want */   \
    X(disjoint, "two memory ranges overlap")       /* inputs a and b do not overlap */             \
    X(same_place, "two views that showed one place differ") /* slot a == slot b */

typedef enum df_guard_kind {
#define DF_X(name, reason) DF_GUARD_##name,
    DF_GUARDS(DF_X)
#undef DF_X
        DF_N_GUARDS
} df_guard_kind;

typedef struct df_guard {
    uint32_t kind;
    uint32_t a, b;
    uint32_t pad; /* 0 */
    int64_t want;
} df_guard;

/* The first guard that t breaks, or NULL when all hold. slots: the plan's slots evaluated for t. */
const df_guard *df_guard_first_miss(const df_guard *g, uint32_t n, const df_trace *t,
                                    const int64_t *slots);

/* One line: which guard, what it wanted, what it found, e.g.
 * "equal: extents that met in one op differ: %3 axis 0 is 37, %5 axis 0 is 64". */
void df_guard_explain(df_str *out, const df_guard *g, const df_trace *t, const df_slot_def *defs,
                      const int64_t *slots);

/* The same in parts, each as text: the guard's kind, what it is about, what it wanted, what it
 * found. */
void df_guard_parts(const df_guard *g, const df_trace *t, const df_slot_def *defs,
                    const int64_t *slots, const char **kind, df_str *field, df_str *expected,
                    df_str *found);

/* All guards, one line each, without values of this run. t names arguments; may be NULL. */
void df_guard_print(df_str *out, const df_guard *g, uint32_t n, const df_slot_def *defs,
                    const df_trace *t);

/* A slot as a formula, infix with parentheses around every inner operation, cut after 64 terms.
 * put_leaf names what is read (it gets t); spaces: for sentences, with parentheses around it all.
 */
void df_slot_print(df_str *out, const df_slot_def *defs, uint32_t slot, bool spaces,
                   void (*put_leaf)(df_str *out, const df_slot_def *s, const df_trace *t),
                   const df_trace *t);

#endif
