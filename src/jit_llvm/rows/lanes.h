/* SPDX-License-Identifier: Apache-2.0
 *
 * The body of a kernel: what is computed where, in how many lanes and copies, and the loops around
 * it. Private to the plug-in; included by gen.h. From the top:
 *
 *   kernel.c    functions and their arguments; rows of MAP and ROW
 *   iterate.c   rows of LOOP
 *   col.c       rows of COL: reductions across the lanes
 *   row.c       reductions along the lanes, for ROW
 *   ahead.c     rows of ROW whose divisions are computed some vectors ahead
 *   reduce.c    what both kinds of reductions share: the order
 *   tiles.c     rows of MAP with transposed operands, block by block
 *   squares.c   the same, square by square in registers
 *   stream.c    rows of MAP whose results go around the caches
 *   jam.c       rows of MAP, two at a time
 *   inside.c    rows of MAP whose inside needs no tests
 *   twos.c      rows of MAP and ROW whose operands or results alternate in memory
 *   turns.c     rows of MAP with three or more results in turn in memory
 *   interleave.c  their vectors
 *   loops.c     loops over the elements of a row
 *   words.c     bodies of MAP on bf16, two elements to a word
 *   values.c    instructions, each at its level
 *   body.c      the instructions of a body, in their order
 *   arms.c      instructions behind a branch
 *   analyse.c   decisions: lanes, levels, copies
 *   lanes.c     the current vector
 */
#ifndef DF_JIT_LLVM_LANES_H
#define DF_JIT_LLVM_LANES_H

/* ---- lanes.c ---- */

/* Begins the vector whose first lane is element lane0. Lanes from `end` on are masked off; with
 * `end` NULL all lanes are active. */
void df_gen_lanes_begin(df_gen *g, LLVMValueRef lane0, LLVMValueRef end);
/* Begins n neighbouring vectors, for a body that is written n times, instruction by
 * instruction. */
void df_gen_copies_begin(df_gen *g, LLVMValueRef lane0, LLVMValueRef end, uint32_t n);
/* Masks off lanes of the vector that has begun, in both rows of a pair. */
void df_gen_mask(df_gen *g, LLVMValueRef mask, LLVMValueRef n_active);
/* Selects the vector, of those begun, that the next instructions are written for. */
void df_gen_copy(df_gen *g, uint32_t copy);
/* Where the whole vectors of [from, to) end, for vectors of `lanes` lanes. */
LLVMValueRef df_gen_whole(df_gen *g, LLVMValueRef from, LLVMValueRef to, uint32_t lanes);

/* ---- analyse.c ---- */

/* Whether this plug-in can compile the kernel. The verifier of the fuser has checked more. */
deft_status df_gen_check(const df_gen *g);
/* Decides the number of lanes, and the level at which each instruction is computed. */
void df_gen_analyse(df_gen *g);
/* Whether each value is computed at a level that its readers can see. Called after
 * df_gen_analyse. */
deft_status df_gen_check_places(const df_gen *g);
/* How many copies of the marked body a loop should hold. */
uint32_t df_gen_copies(df_gen *g);
/* Whether n copies of the marked body are few enough instructions to be written one after the
 * other, instead of instruction by instruction. */
bool df_gen_goes_by_vector(const df_gen *g, uint32_t n);
/* Whether an even number of copies of the marked body may be written with g->has_words. */
bool df_gen_may_have_words(const df_gen *g);
/* Whether the marked body is written as one masked loop, without a separate tail. */
bool df_gen_one_loop(const df_gen *g);
/* Whether the kernel may write the memory that the access reads. */
bool df_gen_may_be_written(const df_gen *g, uint32_t access);

/* ---- values.c ---- */

/* Stores the numbers that load_if yields where it loads nothing. All values of PLACE_ENTRY must
 * exist. */
void df_gen_others(df_gen *g);
/* The value of instruction `ins` in w lanes, or as a scalar. */
LLVMValueRef df_gen_vec(df_gen *g, uint32_t ins);
LLVMValueRef df_gen_sca(df_gen *g, uint32_t ins);
/* Sets the lanes of ins in the copy that is selected. */
void df_gen_set_lanes(df_gen *g, uint32_t ins, LLVMValueRef lanes);
/* Writes instruction `ins` for w lanes in the copy that is selected. */
void df_gen_emit_lanes(df_gen *g, uint32_t ins);
/* Writes the marked instructions on lanes whose values are the same in all rows, for the vector
 * that has begun, and the masks of its loads with conditions. */
void df_gen_same_in_rows(df_gen *g);
/* Computes ins for one element. */
void df_gen_scalar(df_gen *g, uint32_t ins);
/* Makes `scalar` the value of ins. */
void df_gen_define(df_gen *g, uint32_t ins, LLVMValueRef scalar);

/* ---- body.c ---- */

/* Marks the instructions that the loop over elements of `stage` computes. */
void df_gen_mark(df_gen *g, uint32_t stage);
bool df_gen_has_elem(const df_gen *g, uint32_t stage);
/* Writes the marked instructions of this level, except those of kind loop. Vectors are written for
 * all copies, or for the copies from `first` up to but excluding `end`. */
void df_gen_place(df_gen *g, df_gen_level place);
void df_gen_place_copies(df_gen *g, df_gen_level place, uint32_t first, uint32_t end);
/* The number of marked instructions at PLACE_BODY, without those in arms. */
uint32_t df_gen_body_size(const df_gen *g);
/* Whether marked instruction i is 1 / sqrt(x), and products invert most of its roots. */
bool df_gen_inverts_root(const df_gen *g, uint32_t i);
/* Writes the row level of `stage`: its scalars, or in COL and LOOP its vectors. In stage 0, a call
 * of `part` skips the stores. */
void df_gen_row_level(df_gen *g, uint32_t stage);
void df_gen_row_lanes(df_gen *g, uint32_t stage);

/* ---- loops.c ---- */

/* How the elements [from, to) are divided: n vectors at a time up to `several`, one at a time up
 * to `whole`, then the tail. The division does not depend on the row. It is computed before the
 * walk over rows, because in short rows it is most of the work. */
typedef struct df_lanes {
    LLVMValueRef from, to, several, whole;
    LLVMValueRef has_tail, mask, n_active; /* NULL: there is no separate tail */
    uint32_t n;
    bool one_loop;
} df_lanes;

df_lanes df_lanes_cut(df_gen *g, LLVMValueRef from, LLVMValueRef to);
/* Writes the loops over the elements of l, with the marked body in them. */
void df_lanes_loop(df_gen *g, const df_lanes *l);
/* Writes the marked body once, for n_copies vectors from lane0 on. */
void df_lanes_body(df_gen *g, LLVMValueRef lane0, LLVMValueRef end, uint32_t n_copies);
/* Writes the marked body for the elements [from, to) of a row of ROW with several reduced axes.
 * There must be some elements. With `gathers`, operands of reductions are stored in
 * df_gen_red.operands, at their distance from `from`. */
void df_gen_elements(df_gen *g, LLVMValueRef from, LLVMValueRef to, bool gathers);

/* ---- twos.c ---- */

/* Whether the marked body is worth code of its own for operands and results that alternate. */
bool df_twos_pay(const df_gen *g);
/* Whether they do (i1). Such code is written with g->are_twos. */
LLVMValueRef df_twos_hold(df_gen *g);
/* Whether a stage of ROW only reduces two operands that may alternate, both by one op. Then each
 * lane may be reduced where it was loaded. The accumulators of the first reduction get the lower of
 * two vectors, and those of the second one the upper. */
bool df_twos_reduce_as_loaded(df_gen *g, uint32_t stage);
/* Brings the accumulators in registers, the first n of either reduction, from that order to theirs.
 */
void df_twos_part_accumulators(df_gen *g, uint32_t stage, uint32_t n);
/* Whether such a body of MAP has two results that may alternate, and no others. */
bool df_twos_may_stream(const df_gen *g);

/* ---- turns.c ---- */

/* Whether the marked body is worth code of its own for results in turn. */
bool df_turns_pay(const df_gen *g);
/* Whether they are (i1). Such code is written with g->are_turns. */
LLVMValueRef df_turns_hold(df_gen *g);

/* ---- interleave.c ---- */

/* Interleaves n vectors of g->w lanes, at most DF_MOST_TURNS: v[0] becomes the first g->w elements
 * of v[0][0], v[1][0] .. v[n - 1][0], v[0][1] and so on, and v[1] the next ones. */
void df_interleave(df_gen *g, LLVMValueRef *v, uint32_t n);

/* ---- words.c ---- */

/* Where g->has_words, in an even copy: loads the lanes of this copy and of the next one. */
void df_words_load(df_gen *g, uint32_t access, LLVMValueRef out[2]);
/* The same for a store. */
void df_words_store(df_gen *g, uint32_t access, LLVMValueRef even, LLVMValueRef odd);

/* ---- stream.c ---- */

/* As df_lanes_loop. The loop is written twice where df_twos_pay. Where g->streams holds, results
 * are stored around the caches. is_block: the elements are a part of [g->i0, g->i1_), whose other
 * parts are written in the same way. What is written then begins and ends at a whole vector in
 * memory, which may be one vector later. */
void df_stream_lanes(df_gen *g, const df_lanes *l, bool is_block);

/* ---- inside.c ---- */

/* The vector at an edge of rows, with the values in it that are the same in all rows. */
typedef struct df_edge {
    LLVMValueRef lane0, n_active, mask;
    uint32_t epoch;      /* in which these values were made */
    LLVMValueRef *lanes; /* per instruction; NULL: differs between rows */
    df_pair_mask pair_mask[DF_PAIR_MASKS];
} df_edge;

/* How rows that are inside are divided. */
typedef struct df_inside_lanes {
    LLVMValueRef first, end, has_left, has_right;
    LLVMValueRef is_any; /* whether they are divided at all */
    df_edge left, right;
    df_lanes lanes, others; /* of the inside; of rows that are not inside */
} df_inside_lanes;
/* Decides whether rows have an inside, and sets df_val.inside of all values. */
void df_inside_find(df_gen *g);
/* Divides rows, before the walk over them. */
df_inside_lanes df_inside_cut(df_gen *g);
/* Writes the loops over the elements of one row. The values at PLACE_PRE must exist. */
void df_inside_row(df_gen *g, const df_inside_lanes *in);

/* ---- jam.c ---- */

/* Whether rows of the kernel are computed in pairs, because facts know that the two rows of a pair
 * load the same elements. Sets df_acc_state.below. The body must be marked. */
bool df_jam_find(df_gen *g);
/* How the elements of two rows are divided. Where has_head (i1), one masked vector computes the
 * elements before those of `aligned`; else the elements are divided as in `all`. */
typedef struct df_jam_lanes {
    df_lanes all, aligned;
    LLVMValueRef has_head, first; /* NULL: no rows have a head. first: where `aligned` begins */
} df_jam_lanes;
df_jam_lanes df_jam_cut(df_gen *g);
/* Writes the code of one row in the nest `rows`. The code computes two rows, or one, or nothing if
 * the row before has computed this one. Two parameters, l and pair, say how the lanes of one row
 * and of two rows are divided. */
void df_jam_row(df_gen *g, const df_nest *rows, const df_lanes *l, const df_jam_lanes *pair);
/* Whether the copy that is selected belongs to the second row of a pair. */
bool df_jam_is_next(const df_gen *g);

/* ---- ahead.c ---- */

/* A body of ROW that is software-pipelined: its early part is computed DF_COPIES vectors ahead of
 * its late part. */
typedef struct df_ahead {
    uint32_t n_vec;                /* vectors per iteration */
    uint32_t carried;              /* the early instruction whose vectors the late part reads */
    LLVMValueRef value[DF_COPIES]; /* its vectors, for the vectors whose late part comes next */
    uint8_t *part;                 /* per instruction: which parts it belongs to */
} df_ahead;
/* Whether the marked body is pipelined for the elements [from, to) of a row, which are a whole
 * number of iterations of n_vec vectors. Sets *a if it is. */
bool df_ahead_find(df_gen *g, LLVMValueRef from, LLVMValueRef to, uint32_t n_vec, df_ahead *a);
/* The element at which the iterations of df_ahead_step end. df_ahead_end continues there. */
LLVMValueRef df_ahead_until(const df_gen *g, LLVMValueRef to);
/* Writes the early part of the first vectors, from element `from` on. */
void df_ahead_begin(df_gen *g, df_ahead *a, LLVMValueRef from);
/* Writes an iteration: the late part of n_vec vectors from `at` on, and the early part of as many
 * vectors. Accumulators must be in registers. */
void df_ahead_step(df_gen *g, df_ahead *a, LLVMValueRef at);
/* Writes the late part of the last vectors, from `at` on. */
void df_ahead_end(df_gen *g, df_ahead *a, LLVMValueRef at);

/* ---- iterate.c ---- */

/* Writes one row of a LOOP kernel, with all iterations. */
void df_iterate_row(df_gen *g);

/* ---- kernel.c ---- */

/* Writes the functions of g's kernel into g's module: `main` under `name`, and for kernels that are
 * split, `part` and `fin`. */
deft_status df_gen_kernel(df_gen *g, const char *name);

#endif
