/* SPDX-License-Identifier: Apache-2.0
 *
 * This file has no code, only static assertions on the rows of ops.def and kops.def. The build
 * fails with the name of the operator in these cases:
 *   - a row lacks a facet or has it twice;
 *   - its class and its number of operands disagree;
 *   - its class does not allow its lowering;
 *   - an elementwise operator has another shape rule or another number of batched operands than its
 *     number of operands asks for, or its result is a float without a gradient.
 * It fails with the name of the kernel op when the columns join and identity do not fit its kind.
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

/* ---- elementwise operators ---- */

enum {
    ELEMENTWISE_leaf = 0,
    ELEMENTWISE_unary = 1,
    ELEMENTWISE_binary = 1,
    ELEMENTWISE_ternary = 1,
    ELEMENTWISE_reduce = 0,
    ELEMENTWISE_scan = 0,
    ELEMENTWISE_view = 0,
    ELEMENTWISE_index = 0,
    ELEMENTWISE_update = 0,
    ELEMENTWISE_contract = 0,
    ELEMENTWISE_routine = 0,
    ELEMENTWISE_control = 0
};

#define OP(id, n, class, facets)                                                                   \
    _Static_assert(!ELEMENTWISE_##class || ((n) == 1 ? 0 facets == 1 : 0 facets == 2),             \
                   #id ": SHAPE is `same` with one operand, else `broadcast`");
#define SHAPE(rule) +(DF_SAME_TEXT(#rule, "same") ? 1 : DF_SAME_TEXT(#rule, "broadcast") ? 2 : 3)
#include "ops/ops.def"

/* The size of the signature "(),()->()" of n operands without axes. */
#define SIGNATURE_SIZE(n) (sizeof "()->()" + 3 * ((n)-1))
#define SIZE_OF_signature(text) sizeof text
#define SIZE_OF_rule(function) 0
#define OP(id, n, class, facets)                                                                   \
    _Static_assert(!ELEMENTWISE_##class || 0 facets == SIGNATURE_SIZE(n),                          \
                   #id ": BATCH is a signature with () for each operand");
#define BATCH(how, what) +SIZE_OF_##how(what)
#include "ops/ops.def"

enum { GRAD_IS_NONE = 1, RESULT_IS_FLOAT = 2 };

#define OP(id, n, class, facets)                                                                   \
    _Static_assert((0 facets) != (GRAD_IS_NONE | RESULT_IS_FLOAT),                                 \
                   #id ": a float result needs a GRAD rule");
#define GRAD(rule) | (DF_SAME_TEXT(#rule, "none") ? GRAD_IS_NONE : 0)
#define DTYPE(rule)                                                                                \
    | (DF_SAME_TEXT(#rule, "floating") || DF_SAME_TEXT(#rule, "wide") ? RESULT_IS_FLOAT : 0)
#include "ops/ops.def"

/* ---- kernel ops ---- */

/* For each kernel op, and for the name `none`: its number of operands if it is a map, else 0; and
 * the dtypes that it takes. */
enum {
    MAP_OPERANDS_none = 0,
    TYPES_OF_none = -1,
#define MAP_OPERANDS_map(n_src) (n_src)
#define MAP_OPERANDS_leaf(n_src) 0
#define MAP_OPERANDS_memory(n_src) 0
#define MAP_OPERANDS_reduce(n_src) 0
#define MAP_OPERANDS_scan(n_src) 0
#define MAP_OPERANDS_loop(n_src) 0
#define KOP(name, n_src, kind, types, join, identity)                                              \
    MAP_OPERANDS_##name = MAP_OPERANDS_##kind(n_src), TYPES_OF_##name = DF_TYPES_##types,
#include "ops/kops.def"
};

#define ACCUMULATES(kind) ((int)DF_KOP_##kind == DF_KOP_reduce || (int)DF_KOP_##kind == DF_KOP_scan)
#define JOINS(kind, types) (ACCUMULATES(kind) && (int)DF_TYPES_##types != DF_TYPES_position)
/* clang-format off */
#define KOP(name, n_src, kind, types, join, identity)                                              \
    _Static_assert(ACCUMULATES(kind) == !DF_SAME_TEXT(#identity, "none"),                          \
                   #name ": a reduction or scan has an identity, and no other op has one");        \
    _Static_assert(MAP_OPERANDS_##join == (JOINS(kind, types) ? 2 : 0),                            \
                   #name ": join is a map of two operands for a reduction or scan");               \
    _Static_assert(!JOINS(kind, types) || (int)TYPES_OF_##join == (int)DF_TYPES_##types ||         \
                       ((int)DF_TYPES_##types == DF_TYPES_bools &&                                 \
                        (int)TYPES_OF_##join == DF_TYPES_bits),                                    \
                   #name ": join takes other dtypes");
#include "ops/kops.def"
/* clang-format on */
