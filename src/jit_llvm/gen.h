/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the code generator while it writes the functions of one kernel. Private to the
 * plug-in; every file that writes IR for kernels includes this header.
 *
 * Values. An instruction has a scalar value when the value is the same for all lanes. It has a
 * vector value of w lanes when the lanes differ, or when an instruction on lanes reads it. The
 * operands of an instruction decide where its value is computed, which is its df_gen_level:
 *
 *   PLACE_ENTRY  depends on numbers only: computed once per call
 *   PLACE_ROW    row-level instruction: computed once per row of OUTER, in its stage
 *   PLACE_PRE    element-level, the same for all reduced elements and lanes: computed before
 *                the stage's loop, and only when that loop runs at all
 *   PLACE_RED    changes with the reduced axes, the same for all lanes: a scalar in COL's
 *                reduction loop; in ROW with several reduced axes, computed before each run
 *                along the last of them
 *   PLACE_LANES  row-level in COL: one vector per group of lanes, kept in a slot in memory
 *   PLACE_BODY   vectors of the innermost loop
 *
 * In LOOP, PLACE_RED means: changes with the iterations. PLACE_LANES then holds row-level vectors
 * and those element-level vectors that are the same in all iterations. They need no slot.
 *
 * A loop body may be written more than once, and each writing is an epoch. Within an epoch the body
 * may be written for several neighbouring vectors, its copies. A vector of PLACE_BODY is valid
 * only in its epoch and copy. Scalars and their broadcasts are valid wherever their definition
 * dominates.
 *
 * Why this file is long: the state of one code generation, shared by all its files.
 */
#ifndef DF_JIT_LLVM_GEN_H
#define DF_JIT_LLVM_GEN_H

#include <setjmp.h>

#include "base/arena.h"
#include "jit_llvm/emit.h"
#include "jit_llvm/flow.h"

/* Where a value is computed. The header comment describes each level. */
typedef enum df_gen_level {
    PLACE_ENTRY,
    PLACE_ROW,
    PLACE_PRE,
    PLACE_RED,
    PLACE_LANES,
    PLACE_BODY
} df_gen_level;

/* The roles of the axes that a value or an access depends on, as a set of bits. MOVES_RUN stands
 * for the reduced axes of a ROW kernel other than the last axis. */
enum { MOVES_OUTER = 1, MOVES_RED = 2, MOVES_INNER = 4, MOVES_RUN = 8 };
enum { DF_FETCH_LINE = 64 }; /* bytes that one instruction prefetches */
enum { DF_ROWS_AHEAD = 32 }; /* COL: loads prefetch the row this many reduced elements ahead */
enum { DF_COPIES = 8 };      /* most copies of one loop body */
enum { DF_PAIR_MASKS = 8 };  /* most masks of pairs that are kept */
enum { DF_LONG_BODY = 160 }; /* instructions from which a body counts as long */

/* What a call of a SPLIT kernel computes. Its three functions `main`, `part` and `fin` pass one of
 * these to the one function that holds the body. */
typedef enum df_entry { ENTRY_MAIN, ENTRY_PART, ENTRY_FIN } df_entry;

/* The parts of a row, of which each has its code (inside.c): any lanes; an edge of a row that is
 * inside; the inside. */
typedef enum df_row_part { DF_ROW_ANY, DF_ROW_EDGE, DF_ROW_INSIDE } df_row_part;

/* What is known of a bool in the lanes that are inside (inside.c). */
typedef enum df_inside { DF_INSIDE_ANY, DF_INSIDE_FALSE, DF_INSIDE_TRUE } df_inside;

/* The values of one instruction. */
typedef struct df_val {
    uint8_t place;                 /* df_gen_level */
    uint8_t moves;                 /* MOVES_*: roles of the axes that the value depends on */
    bool wants_vec;                /* a scalar read by lanes: broadcast where it is defined */
    bool wants_inverse;            /* a scalar that lanes are divided by, through its inverse */
    bool is_read_in_place;         /* a number that is broadcast where it is read (numbers.c) */
    bool is_contracted;            /* FAST: a product that is part of the sum that reads it */
    bool is_marked;                /* part of the loop body being written */
    bool is_run;                   /* lane k is lane 0 plus k (analyse.c, "Runs") */
    bool is_address;               /* a run that only addresses of loads read: not in lanes */
    bool decides;                  /* LOOP: the predicate of the proceed depends on it */
    bool has_short_nan;            /* f32: the low half of a NaN would be 0 (halves.c) */
    bool has_quiet_nan;            /* f32: a NaN would be quiet (halves.c) */
    bool in_arm;                   /* computed in its arm only (arms.c) */
    bool asks_nan;                 /* asks whether a loaded value is NaN (nans.c) */
    bool is_asked;                 /* what such a question depends on */
    bool is_bare;                  /* first computed from estimates without guards (bare.c) */
    bool is_watched;               /* a bare value that the rest of the body reads */
    bool is_before;                /* what bare values depend on */
    uint8_t inside;                /* df_inside: what a bool is inside of rows (inside.c) */
    uint8_t arm_side;              /* a select that ends an arm: the operand that belongs to it */
    uint32_t arm;                  /* the last select of the arm it belongs to; 0: none */
    uint32_t product;              /* FAST: the operand that is contracted; DF_NONE: none */
    uint32_t epoch;                /* the epoch in which `lanes` are valid */
    uint32_t last_use;             /* analyse.c: last reader, while live vectors are counted */
    LLVMValueRef sca, vec;         /* the scalar, and its broadcast; NULL: none */
    LLVMValueRef inverse;          /* 1 / (scalar * lift) in w lanes; NULL: none */
    LLVMValueRef lift;             /* FAST: power of 2 that keeps `inverse` finite; NULL: 1 */
    LLVMValueRef bare_inverse;     /* FAST: `inverse` where lift is 1, else NaN; NULL: none */
    LLVMValueRef lanes[DF_COPIES]; /* the vector in each copy of the body; NULL: not yet */
    LLVMValueRef others;           /* df_condition.others of this number; NULL: none */
    LLVMValueRef slot;             /* COL: array of vectors, one per group of lanes; NULL: none */
    LLVMValueRef scan;             /* running value of a scan. COL: one vector per group */
} df_val;

/* One reduce instruction. The members *_idx are those of argmin and argmax, else NULL. */
typedef struct df_gen_red {
    uint32_t ins;
    uint8_t op;                  /* df_kop */
    uint8_t dtype;               /* of the accumulator; bool is held as u8 */
    bool is_arg;                 /* argmin or argmax, whose accumulators carry an index */
    uint32_t n_acc;              /* COL: accumulators. 1 in FAST, or if the order changes no bit */
    uint32_t first_slot;         /* the first of its 8-byte slots in args->partial */
    LLVMValueRef mem, mem_idx;   /* accumulators in memory. COL: the stack of results below */
    LLVMValueRef *reg, *reg_idx; /* ROW: DF_LANES / w accumulators in registers */
    LLVMValueRef operands;       /* ROW with runs: the operands of one block, in memory */
    LLVMValueRef stack, stack_idx; /* ROW: results of blocks that are not joined yet */
} df_gen_red;

/* Addresses and strides of one access. An access of kind INDEX has i64 values in place of
 * addresses, and its strides count units instead of bytes. */
typedef struct df_acc_state {
    LLVMValueRef base; /* the address at all indices 0 */
    LLVMValueRef row;  /* the address at the current row of OUTER */
    /* The address at the current row and reduced element (COL), run (ROW) or iteration (LOOP). */
    LLVMValueRef at;
    LLVMValueRef step; /* stride along the vectorized axis if that is DF_STEP_ANY, else NULL */
    LLVMValueRef ramp; /* <0, 1, .. w-1> * step; NULL where step is, and for w = 1 */
    /* The distance in bytes to what an access prefetches: further along the innermost reduced axis
     * (COL), or in the next row or lines (MAP). NULL: nothing. */
    LLVMValueRef ahead;
    bool has_pair;     /* what is prefetched there has a second line */
    LLVMValueRef next; /* jam.c: the address `at` of the next row */
    uint32_t below;    /* jam.c: the load that reads in this row what a load through this access
                        * reads in the next one; DF_NONE: none */
    uint8_t moves;     /* MOVES_* */
    bool has_run;      /* AT: some load through it is one of neighbouring elements */
    bool has_tile;     /* crossed, and reached through a tile (tiles.c) */
    LLVMValueRef tile; /* the address of its tile */
    /* The lanes of the load in the row that is being written (squares.c). NULL: in memory. */
    LLVMValueRef turned;
} df_acc_state;

/* Masks of loads of every second element (access.c), in one copy of a body: the lanes of the two
 * vectors that are touched. NULL: all. is: the condition of the loads, or NULL. */
typedef struct df_pair_mask {
    uint32_t epoch, copy; /* epoch 0: none */
    LLVMValueRef is, low, high;
} df_pair_mask;

struct df_gen {
    const df_host *host;
    const df_llvm_target *t;
    const df_kernel *k;
    const df_facts *facts; /* NULL: general code, which relies on no facts */
    df_diag *d;
    df_opt level;
    df_arena *arena;   /* the generator's own memory, emptied after each kernel */
    jmp_buf no_memory; /* df_gen_array jumps here when memory runs out */

    LLVMContextRef ctx;
    LLVMModuleRef m;
    LLVMBuilderRef b;
    LLVMTypeRef i1, i8, i16, i32, i64, f32, f64, ptr, nothing;
    LLVMValueRef copy_fn; /* function that copies bytes, for tails; NULL until first needed */
    /* Functions that transpose elements of 1, 2, 4 and 8 bytes; NULL until first needed. */
    LLVMValueRef transpose_fn[2][4];

    /* the function being written */
    LLVMValueRef fn, o0, o1, i0, i1_; /* its parameters, or constants where facts know them */
    LLVMValueRef is_part, is_fin;     /* i1; NULL unless df_gen_splits */
    LLVMBasicBlockRef first;          /* the entry block; allocas go to its start */
    /* The members of df_kargs. NULL where no instruction needs them. */
    LLVMValueRef p_ptr, p_stride, p_base, p_extent, p_num, p_partial, p_fault, p_work;

    uint32_t w;        /* lanes of every vector of this kernel; 1: scalar code */
    uint32_t multiple; /* the vectorized extent, i0 and i1 are multiples of this power of two */
    int vec_axis;      /* the axis that lanes run along; -1: none */
    int outer[DF_MAX_AXES], red[DF_MAX_AXES]; /* axes of these roles, in order */
    int n_outer, n_red;
    LLVMValueRef extent[DF_MAX_AXES];
    LLVMValueRef length; /* number of reduced elements; NULL: no reduced axes */

    df_val *val;
    df_acc_state *acc;
    df_gen_red *reds; /* in order of their instructions */
    uint32_t n_reds;

    /* the loop body being written */
    uint32_t epoch;
    uint32_t n_copies;     /* copies of the body, for neighbouring vectors */
    uint32_t copy;         /* the copy being written. The next three members describe it */
    LLVMValueRef lane0;    /* i64: index of lane 0 along the vectorized axis */
    LLVMValueRef n_active; /* i64: number of active lanes, may be <= 0; NULL where mask is */
    LLVMValueRef mask;     /* the active lanes; NULL: all */
    LLVMValueRef lane0s[DF_COPIES], n_actives[DF_COPIES], masks[DF_COPIES]; /* per copy */
    LLVMValueRef group;   /* COL: i64, index of the group of lanes within the chunk */
    LLVMValueRef pitch;   /* COL: i64, number of groups in this chunk */
    uint32_t slot_groups; /* COL: vectors of an array that holds one for each group */
    bool prefetches;      /* accesses of unit stride also prefetch what is `ahead` of them */
    bool fetches_lines;   /* MAP: one copy of the body in each cache line does so, stores too */
    bool scans_in_regs;   /* df_val.scan is the running value itself, not its address */
    bool has_runs;        /* ROW with several reduced axes */
    /* ROW with runs: reductions store their operands to df_gen_red.operands at index
     * lane0 + gather, for a later pass that accumulates them. NULL: they accumulate directly. */
    LLVMValueRef gather;
    LLVMValueRef gathered; /* ROW: index of the block's first element, for that later pass */
    bool in_regs;          /* accumulators are in df_gen_red.reg, not in mem */
    uint32_t reg;          /* in_regs: index of the accumulator vector in reg */
    LLVMValueRef acc_at;   /* else: i64, index of the accumulator vector in mem */
    LLVMValueRef acc_one;  /* COL: the same for reductions whose n_acc is 1 */
    LLVMValueRef red_at;   /* position of lane 0 among the reduced elements */
    LLVMValueRef anywhere; /* 8 bytes on the stack that may be loaded; NULL until first needed */
    df_pair_mask pair_mask[DF_PAIR_MASKS]; /* the latest ones, in a ring */
    uint32_t next_pair_mask;
    LLVMValueRef tail_buf; /* stack buffer of one vector, for tails; NULL until first needed */
    /* MAP: whether results go around the caches (i1); NULL: never. And whether the body that is
     * being written stores them in that way. */
    LLVMValueRef streams;
    bool streams_twos; /* these results alternate: twos.c writes their loop */
    bool is_streaming;
    /* ROW: whether loads prefetch (i1); NULL: never. And whether they do in the body that is being
     * written. */
    LLVMValueRef fetches;
    bool is_fetching;
    /* MAP, ROW: in the body that is being written, all accesses that step along the lanes step by
     * two elements, and operands and results alternate as rows/twos.c says. */
    bool are_twos;
    /* MAP: in the body that is being written, results are in turn as rows/turns.c says. */
    bool are_turns;
    bool are_as_loaded; /* their lanes keep the order of memory (df_twos_reduce_as_loaded) */
    /* MAP: in the body that is being written, copies 2c and 2c + 1 have the even and the odd
     * elements of a vector of words (rows/words.c). No lane is masked off. */
    bool has_words;
    bool native_masks; /* masked accesses of this kernel are instructions, and not slow ones */
    bool may_leave;    /* LOOP: there is a proceed */
    /* MAP: the sides of a block of rows for which crossed accesses have tiles; 0: there is none. */
    uint32_t tile_rows, tile_lanes;
    bool has_inside;      /* MAP: rows are divided by inside.c */
    bool is_jammed;       /* the code being written computes two rows; the second half of the copies
                       * is for the next row (jam.c) */
    uint32_t n_questions; /* MAP: instructions of the body with asks_nan; 0: it has no versions */
    bool has_no_nan;      /* the code being written is for vectors without NaN */
    bool is_rest;         /* the code being written is one of the versions of nans.c */
    bool has_bare;        /* the body has bare values */
    bool is_bare_try;     /* the code being written computes them without guards */
    df_row_part part;     /* what the code being written is for */
};

#include "jit_llvm/build.h"

/* ---- lower.c ---- */

/* Writes the code of map instruction `ins` and returns its value. s: its operands, in w lanes each,
 * or scalars if w is 1. src: the dtype of s[0]. */
LLVMValueRef df_lower_op(df_gen *g, const df_ins *ins, deft_dtype src, LLVMValueRef s[3],
                         uint32_t w);
/* a op b for the op of a reduction or scan other than argmin and argmax. a and b have dtype t, and
 * both are scalars or both vectors. */
LLVMValueRef df_lower_join(df_gen *g, df_kop op, deft_dtype t, LLVMValueRef a, LLVMValueRef b);

/* ---- halves.c ---- */

/* Converts w lanes of the bits of t, which is f16 or bf16, to f32. */
LLVMValueRef df_half_to_f32(df_gen *g, deft_dtype t, LLVMValueRef x, uint32_t w);
/* Converts w lanes of f32 to the bits of t, rounded to nearest even. The flags are promises, and
 * change no bit: */
enum {
    DF_HALF_EXACT = 1,    /* t can represent every value, so that nothing needs to be rounded */
    DF_HALF_TAME_NAN = 2, /* a NaN is quiet, and the low half of its bits is 0 */
};
LLVMValueRef df_half_from_f32(df_gen *g, deft_dtype t, LLVMValueRef x, uint32_t w, unsigned flags);
/* Sets has_short_nan and has_quiet_nan of all values. */
void df_half_find_nans(df_gen *g);

/* ---- estimate.c: quotients and roots without the divider ---- */

/* Whether the three functions below may be used for w lanes of t in this kernel, which is FAST. */
bool df_estimate_has(const df_gen *g, deft_dtype t, uint32_t w);
/* Whether, besides, a single quotient or root is faster by an estimate than by its instruction. */
bool df_estimate_pays(const df_gen *g, deft_dtype t, uint32_t w);
/* a / d, then sqrt(x), within about 1.5 ULP. */
LLVMValueRef df_estimate_div(df_gen *g, LLVMValueRef a, LLVMValueRef d);
LLVMValueRef df_estimate_sqrt(df_gen *g, LLVMValueRef x);
/* The same bits for n copies, without guards. A quotient is NaN where d is 0, infinite, or at most
 * 2^-128 in size. A root is NaN where x is -0 or infinite. */
void df_estimate_bare_div(df_gen *g, const LLVMValueRef *a, const LLVMValueRef *d, uint32_t n,
                          LLVMValueRef *quotient);
void df_estimate_bare_sqrt(df_gen *g, const LLVMValueRef *x, uint32_t n, LLVMValueRef *root);
LLVMValueRef df_estimate_over_sqrt(df_gen *g, LLVMValueRef a, LLVMValueRef x); /* a / sqrt(x) */
/* Whether the next function may be used for w lanes of t, and may pay. */
bool df_estimate_inverts_roots(const df_gen *g, deft_dtype t, uint32_t w);
/* one / root[c] for n copies, with the bits of IEEE 754. one: lanes that are 1. root[c]: a square
 * root. */
void df_estimate_inverse_roots(df_gen *g, LLVMValueRef one, const LLVMValueRef *root, uint32_t n,
                               LLVMValueRef *inverse);

/* ---- access.c ---- */

/* The condition of a load_if for w lanes: both `row` and a lane of `is` must hold. */
typedef struct df_condition {
    LLVMValueRef row; /* a scalar; NULL: true */
    LLVMValueRef is;
    LLVMValueRef other;  /* lanes: the value where the condition does not hold */
    LLVMValueRef others; /* address of 2 w elements in memory that are `other`; NULL: nowhere */
} df_condition;

/* The first four functions work on the w lanes from g->lane0 on, and touch memory only for the
 * lanes that g->mask holds. Inactive lanes of a result have unspecified values. */
LLVMValueRef df_access_load(df_gen *g, uint32_t access);
/* Loads where c holds. */
LLVMValueRef df_access_load_if(df_gen *g, uint32_t access, const df_condition *c);
/* Prefetches what is `ahead` of p, the address of the access's lanes, where g->prefetches. */
void df_access_prefetch(df_gen *g, uint32_t access, LLVMValueRef p);
/* Writes the masks that such loads will need, and that are the same in all rows. */
void df_access_prepare_if(df_gen *g, uint32_t access, const df_condition *c);
/* offset: w lanes of i64, in elements from the access's address. */
LLVMValueRef df_access_load_at(df_gen *g, uint32_t access, LLVMValueRef offset);
/* The same for offsets that are one after the other. start: the offset of lane 0. */
LLVMValueRef df_access_load_run(df_gen *g, uint32_t access, LLVMValueRef start);
/* The values of an access of kind INDEX, as i64. */
LLVMValueRef df_access_index(df_gen *g, uint32_t access);
void df_access_store(df_gen *g, uint32_t access, LLVMValueRef v);
/* Where g->are_twos: loads the lanes of an access, and those of the access whose df_access.twin it
 * is. Returns false, without any code, where the target has no instruction for the mask. */
bool df_access_load_two(df_gen *g, uint32_t access, LLVMValueRef out[2]);
/* Where g->are_twos: stores v through an access, and `other` through the next one, whose elements
 * alternate with those of the first. */
void df_access_store_two(df_gen *g, uint32_t access, LLVMValueRef v, LLVMValueRef other);
enum { DF_MOST_TURNS = 8 }; /* results in turn. More need many instructions for each vector */
/* Stores n vectors through n accesses from `access` on, whose elements are in memory in turn. */
void df_access_store_in_turn(df_gen *g, uint32_t access, LLVMValueRef *v, uint32_t n);
/* The number of stores, from store i on, whose results may be in turn: 3 or more, and at most
 * DF_MOST_TURNS. 0: there are not so many. Where g->are_turns holds, these are in turn. */
uint32_t df_access_stores_in_turn(const df_gen *g, uint32_t i);
/* Whether the elements of an access may lie more than one element apart along the lanes. */
bool df_access_steps(const df_gen *g, uint32_t access);
/* Whether the access may alternate in memory with its df_access.twin, and then begins second. Where
 * g->are_twos holds, they do. */
bool df_access_is_twin(const df_gen *g, uint32_t access);
/* The first of the two accesses that may so alternate, of which `access` is one. DF_NONE: there are
 * none. */
uint32_t df_access_first_of_two(const df_gen *g, uint32_t access);
/* Whether stores i and i + 1 are of results that may alternate in memory. Where g->are_twos holds,
 * they do. The stores of a run are taken in twos, from its beginning. */
bool df_access_begins_twos(const df_gen *g, uint32_t i);
/* Whether access b begins one element behind access a (i1). */
LLVMValueRef df_access_is_behind(df_gen *g, uint32_t a, uint32_t b);
/* Loads one element of the access's dtype at p, or `offset` elements behind p. NULL is 0. */
LLVMValueRef df_access_load_one(df_gen *g, uint32_t access, LLVMValueRef p, LLVMValueRef offset);
/* Loads one element of the access where the scalar `is` is true. Elsewhere, the value is `other`.
 */
LLVMValueRef df_access_load_one_if(df_gen *g, uint32_t access, LLVMValueRef is, LLVMValueRef other);
/* Stores the scalar v at p. */
void df_access_store_one(df_gen *g, uint32_t access, LLVMValueRef p, LLVMValueRef v);
/* Loads and stores the active lanes of one vector at p, which is the address of lane 0. The type of
 * a lane in memory is t. Its size in bytes is `align`, and p is aligned to it. */
LLVMValueRef df_access_load_unit(df_gen *g, LLVMTypeRef t, LLVMValueRef p, uint32_t align);
void df_access_store_unit(df_gen *g, LLVMValueRef v, LLVMValueRef p, uint32_t align);

DF_INLINE df_kop_kind df_gen_kind(const df_gen *g, uint32_t i)
{
    return (df_kop_kind)g->host->kops[g->k->ins[i].op].kind;
}

DF_INLINE uint32_t df_gen_n_src(const df_gen *g, uint32_t i)
{
    return g->host->kops[g->k->ins[i].op].n_src;
}

/* Whether instruction i is marked (df_gen_mark) and belongs to this level. */
DF_INLINE bool df_gen_is_here(const df_gen *g, uint32_t i, df_gen_level place)
{
    return g->val[i].is_marked && g->val[i].place == place && g->k->ins[i].level == DF_LEVEL_ELEM;
}

/* The MOVES_* bit of the vectorized axis. */
DF_INLINE uint8_t df_gen_vec_moves(const df_gen *g)
{
    return g->k->mode == DF_MODE_ROW ? MOVES_RED : MOVES_INNER;
}

/* How an access moves from lane to lane. */
DF_INLINE df_step df_gen_lane_step(const df_gen *g, uint32_t access)
{
    const df_access *a = &g->k->access[access];
    if (a->kind == DF_ACCESS_SCRATCH || g->acc[access].has_tile) return DF_STEP_UNIT;
    if (a->kind == DF_ACCESS_AT || g->vec_axis < 0) return DF_STEP_ZERO;
    return (df_step)a->step[g->vec_axis];
}

/* Whether facts know that neighbouring lanes of the access are two elements apart. */
DF_INLINE bool df_gen_is_second(const df_gen *g, uint32_t access)
{
    return g->facts && access < 64 && g->facts->seconds >> access & 1;
}

/* The number of vector registers of the target. */
DF_INLINE uint32_t df_gen_vector_registers(const df_gen *g)
{
    return g->t->arch == DF_ARCH_AARCH64 || g->t->vector_bytes == 64 ? 32 : 16;
}

/* ---- contract.c ---- */

/* Sets `product` and is_contracted of all values. */
void df_contract_find(df_gen *g);
/* a * b + c, rounded once. */
LLVMValueRef df_contract_fma(df_gen *g, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
/* The sum or difference i, whose contracted operand is a * b and whose other operand is `other`. */
LLVMValueRef df_contract_into(df_gen *g, uint32_t i, LLVMValueRef a, LLVMValueRef b,
                              LLVMValueRef other);

/* ---- numbers.c ---- */

/* Sets is_read_in_place of all values. */
void df_numbers_place(df_gen *g);

/* ---- arms.c ---- */

/* Finds the arms of the marked body: sets arm, in_arm and arm_side of all values. */
void df_arms_find(df_gen *g);

/* ---- nans.c ---- */

/* Finds the questions for NaN of the marked body: sets asks_nan and is_asked of all values, and
 * g->n_questions. */
void df_nans_find(df_gen *g);

/* ---- bare.c ---- */

/* Finds the bare values of the marked body: sets is_bare, is_watched and is_before of all values,
 * and g->has_bare. df_arms_find must be called before. */
void df_bare_find(df_gen *g);
/* Writes the bare values and what they depend on, for the copies from `first` up to but excluding
 * `end`. Returns false, without any code, where a vector is not whole or a bare value is there. */
bool df_bare_place(df_gen *g, uint32_t first, uint32_t end);

/* ---- fetch.c ---- */

enum { DF_FETCHES_WORD = 9 }; /* the index of df_kargs.fetches among the words of df_kargs */
/* Sets g->fetches, if the kernel gets code whose loads prefetch. Called before the rows. */
void df_fetch_begin(df_gen *g);
/* From now on, loads of vector `vector` of a group of n_vec vectors prefetch what begins a line, or
 * a pair of lines. */
void df_fetch_vector(df_gen *g, uint32_t vector, uint32_t n_vec);
/* From now on, accesses do not prefetch. */
void df_fetch_end(df_gen *g);
/* The same for a body of MAP: from now on, stores prefetch, and so do the loads of a body that has
 * halves alone. Returns false, and changes nothing, where that does not pay. Else the caller calls
 * df_fetch_end behind the body. */
bool df_fetch_map(df_gen *g);
/* As df_fetch_map, for a body whose results go around the caches. Its loads prefetch. */
bool df_fetch_streamed(df_gen *g);
/* Sets what the accesses of a stage of a ROW kernel prefetch of the next row. Returns whether they
 * prefetch; then the caller calls df_fetch_end behind the stage. */
bool df_fetch_rows(df_gen *g, uint32_t stage);
/* The same for the body of a COL kernel that scans and reduces nothing. */
bool df_fetch_scan(df_gen *g);

/* ---- stream.c ---- */

enum {
    DF_WORK_WORD = 7,
    DF_STREAMS_WORD = 8
}; /* the index of df_kargs.streams among the words of df_kargs */
/* Sets g->streams, if the kernel gets code that stores its results around the caches. Called before
 * the rows. The body must be marked. */
void df_stream_begin(df_gen *g);
/* Orders these stores, if there are any, before all later ones. Called behind the rows. */
void df_stream_end(df_gen *g);
/* Stores v at p, which is aligned to it. */
void df_stream_store(df_gen *g, LLVMValueRef v, LLVMValueRef p, uint32_t size);

/* ---- tiles.c ---- */

/* Decides which accesses of a MAP kernel have tiles, and how large blocks are. */
void df_tiles_find(df_gen *g);
/* Writes all rows of a kernel with tiles. */
void df_tiles_rows(df_gen *g);

/* ---- squares.c ---- */

enum { DF_SQUARE = 16 }; /* most rows of a square, for which 16 registers suffice */
/* Rows and columns of a square of elements of `size` bytes. A row is one vector, of 16 bytes or
 * more. */
uint32_t df_square_side(const df_gen *g, uint32_t size);
/* Exchanges rows and columns of the square v. */
void df_square_transpose(df_gen *g, LLVMValueRef v[DF_SQUARE], uint32_t size);
/* Whether the kernel, which has tiles, gets code for strips of squares. The body must be marked,
 * and df_stream_begin called. */
bool df_squares_pay(const df_gen *g);
/* Where squares are used, at the current position on the other OUTER axes. */
typedef struct df_squares {
    LLVMValueRef fit;    /* whether strips along the axis are computed in squares (i1) */
    LLVMValueRef around; /* whether these store around the caches (i1); NULL: never */
} df_squares;
df_squares df_squares_fit(df_gen *g, int across);
/* Writes the strip of g->w rows from `row` on, for the lanes from g->i0 up to `to`. Their number is
 * a multiple of g->w. around: as in df_squares. */
void df_squares_strip(df_gen *g, int across, LLVMValueRef row, LLVMValueRef to,
                      LLVMValueRef around);

#include "jit_llvm/rows/lanes.h"
#include "jit_llvm/rows/reduce.h"

#endif
