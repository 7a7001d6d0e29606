/* SPDX-License-Identifier: Apache-2.0
 *
 * Guards: the conditions on which a plan relies beyond the key of its trace. A guard is data with
 * a reason, so it can be printed, compared, tested and explained. Each cut checks the guards of a
 * plan before the plan is used. A miss names the field, the expected value and the found value.
 */
#ifndef DF_GUARDS_GUARD_H
#define DF_GUARDS_GUARD_H

#include "trace/trace.h"

/* X(kind, reason): the comments say when a guard of this kind holds. A miss prints the reason with
 * the expected and the found number. */
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
    X(same_place, "two views that showed one place differ")      /* slot a == slot b */            \
    X(same_bound, "two bounds of slices that were equal differ") /* slot a == slot b */            \
    X(sole, "whether an input is needed after the run changed")  /* input a has the flag == want */

typedef enum df_guard_kind {
#define DF_X(name, reason) DF_GUARD_##name,
    DF_GUARDS(DF_X)
#undef DF_X
        DF_N_GUARDS
} df_guard_kind;

/* One condition. DF_GUARDS gives the meaning of a, b and want for each kind. */
typedef struct df_guard {
    uint32_t kind; /* df_guard_kind */
    uint32_t a, b; /* slots of the plan, or inputs of the trace, or an input and an axis */
    uint32_t pad;  /* 0 */
    int64_t want;  /* a number, or 0 or 1 for a condition; 0 when the kind does not use it */
} df_guard;

/* How many of a and b are slots: 2, 1 (a alone) or 0. Defined for all kinds. */
DF_INLINE uint32_t df_guard_n_slots(df_guard_kind kind)
{
    switch (kind) {
    case DF_GUARD_equal:
    case DF_GUARD_same_place:
    case DF_GUARD_same_bound: return 2;
    case DF_GUARD_is_const:
    case DF_GUARD_at_least:
    case DF_GUARD_at_most: return 1;
    case DF_GUARD_contiguous:
    case DF_GUARD_aligned:
    case DF_GUARD_unit:
    case DF_GUARD_disjoint:
    case DF_GUARD_sole:
    case DF_N_GUARDS: break;
    }
    return 0;
}

/* Returns the first of n guards that does not hold for t, or NULL when all hold. The caller passes
 * the values of the plan's slots for t (df_slots_eval). */
const df_guard *df_guard_first_miss(const df_guard *g, uint32_t n, const df_trace *t,
                                    const int64_t *slots);

/* Appends one line that says which guard missed, and its expected and found values:
 *     equal: extents that met in one op differ: %3 axis 0 is 37, %5 axis 0 is 64
 * defs are the plan's slots, slots their values for t. */
void df_guard_explain(df_str *out, const df_guard *g, const df_trace *t, const df_slot_def *defs,
                      const int64_t *slots);

/* The same as separate texts. *kind is set to the name of the guard's kind, which is a constant.
 * The other three are appended: the quantity that is checked, its expected and its found value. */
void df_guard_parts(const df_guard *g, const df_trace *t, const df_slot_def *defs,
                    const int64_t *slots, const char **kind, df_str *field, df_str *expected,
                    df_str *found);

/* Appends n guards, one line each, without values of a run. With t, an argument is named by its
 * operator. With t NULL, it is named by its number. */
void df_guard_print(df_str *out, const df_guard *g, uint32_t n, const df_slot_def *defs,
                    const df_trace *t);

/* Appends slot `slot` as a formula: infix, with parentheses around every inner operation. After 32
 * operations, "..." replaces each further operation. put_leaf appends the name of a constant,
 * extent, argument or stride; t is passed on to it. With `spaces`, operators have spaces around
 * them and the complete formula has parentheses, as sentences need it. */
void df_slot_print(df_str *out, const df_slot_def *defs, uint32_t slot, bool spaces,
                   void (*put_leaf)(df_str *out, const df_slot_def *s, const df_trace *t),
                   const df_trace *t);

#endif
