/* SPDX-License-Identifier: Apache-2.0
 *
 * This file has no code, only static assertions on the rows of ops.def. The build fails with the
 * name of the operator in three cases:
 *   - a row lacks a facet or has it twice;
 *   - its class and its number of operands disagree;
 *   - its class does not allow its lowering.
 */
#include "ops/op.h"

#define OP(id, n, class, facets) _Static_assert(0 facets == 1, #id " needs exactly one DTYPE");
#define DTYPE(rule) +1
#include "ops/ops.def"

#define OP(id, n, class, facets) _Static_assert(0 facets == 1, #id " needs exactly one SHAPE");
#define SHAPE(rule) +1
#include "ops/ops.def"

#define OP(id, n, class, facets) _Static_assert(0 facets == 1, #id " needs exactly one ALGEBRA");
#define ALGEBRA(flags) +1
#include "ops/ops.def"

#define OP(id, n, class, facets) _Static_assert(0 facets == 1, #id " needs exactly one LOWER");
#define LOWER(how, what) +1
#include "ops/ops.def"

#define OP(id, n, class, facets) _Static_assert(0 facets == 1, #id " needs exactly one ARGS");
#define ARGS(n) +1
#include "ops/ops.def"

#define OP(id, n, class, facets) _Static_assert(0 facets == 1, #id " needs exactly one MIXED");
#define MIXED(how) +1
#include "ops/ops.def"

#define OP(id, n, class, facets) _Static_assert(0 facets == 1, #id " needs exactly one GRAD");
#define GRAD(rule) +1
#include "ops/ops.def"

#define OP(id, n, class, facets) _Static_assert(0 facets == 1, #id " needs exactly one BATCH");
#define BATCH(how, what) +1
#include "ops/ops.def"

#define OP(id, n, class, facets) _Static_assert(0 facets == 1, #id " needs exactly one DOC");
#define DOC(text) +1
#include "ops/ops.def"

/* Bounds on the number of operands by class. A leaf may read the extents of one operand. An index
 * operator has two operands. */
enum {
    LEAST_leaf = 0,
    MOST_leaf = 1,
    LEAST_unary = 1,
    MOST_unary = 1,
    LEAST_binary = 2,
    MOST_binary = 2,
    LEAST_ternary = 3,
    MOST_ternary = 3,
    LEAST_reduce = 1,
    MOST_reduce = 1,
    LEAST_scan = 1,
    MOST_scan = 1,
    LEAST_view = 1,
    MOST_view = 1,
    LEAST_index = 2,
    MOST_index = 2,
    LEAST_update = 3,
    MOST_update = 3,
    LEAST_contract = 2,
    MOST_contract = 2,
    LEAST_routine = 1,
    MOST_routine = 3,
    LEAST_control = 1,
    MOST_control = 3
};

#define OP(id, n, class, facets)                                                                   \
    _Static_assert(LEAST_##class <= (n) && (n) <= MOST_##class,                                    \
                   #id ": operand count and class disagree");
#include "ops/ops.def"

/* The ways of lowering that a class allows, as a set of bits. */
#define WAY(how) (1 << DF_LOWER_##how)
enum {
    WAYS_leaf = WAY(fuser),
    WAYS_unary = WAY(kop) | WAY(recipe) | WAY(body),
    WAYS_binary = WAYS_unary,
    WAYS_ternary = WAYS_unary,
    WAYS_reduce = WAY(kop),
    WAYS_scan = WAY(kop),
    WAYS_view = WAY(fuser),
    WAYS_index = WAY(fuser),
    WAYS_update = WAY(fuser),
    WAYS_contract = WAY(fuser),
    WAYS_routine = WAY(fuser),
    WAYS_control = WAY(fuser)
};

#define OP(id, n, class, facets)                                                                   \
    _Static_assert((WAYS_##class & (0 facets)) != 0, #id ": no such LOWER for its class");
#define LOWER(how, what) | WAY(how)
#include "ops/ops.def"
#undef WAY

#define OP(id, n, class, facets)                                                                   \
    _Static_assert(!((0 facets) & DF_COMMUTES) || (n) == 2, #id ": only binary ops commute");
#define ALGEBRA(flags) | (flags)
#include "ops/ops.def"
