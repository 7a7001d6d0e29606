/* SPDX-License-Identifier: Apache-2.0
 *
 * The state while a function of one kernel is written as C. Private to these files:
 *
 *   c_kernel.c   a kernel: what is refused, what is live, the functions and their heads
 *   c_loops.c    MAP and LOOP, and positions of rows
 *   c_col.c      COL
 *   c_row.c      ROW
 *   c_reduce.c   what these two share
 *   c_values.c   instructions, addresses of accesses, levels
 *   c_writer.c   lines and braces, names of types
 *
 * Names in the text:
 *
 *   v7       the value of instruction 7
 *   w7       an array with the values of instruction 7 for all columns of a chunk (COL, LOOP)
 *   p3       the address of access 3, or the base of an INDEX
 *   q3       the same at the current row; at position 0 of the other axes
 *   u3       the same at the current position along RED axes that are no lanes
 *   s3_1     the stride of access 3 along axis 1
 *   e1       the extent of axis 1
 *   x1       the position along axis 1
 *   a9, h9   accumulators of reduction 9, and the positions that argmin and argmax keep
 *   k9       results of blocks that are not joined yet
 *   g9       the running value of scan 9
 *   c, n     the first column of a chunk, and how many columns the chunk has
 *   i, l     the lane
 */
#ifndef DF_AOT_C_GEN_H
#define DF_AOT_C_GEN_H

#include "aot/c.h"
#include "base/limits.h"

typedef enum df_aot_pass { DF_AOT_MAIN, DF_AOT_PART, DF_AOT_FIN, DF_AOT_N_PASSES } df_aot_pass;

/* What is known of an instruction. */
typedef struct df_aot_val {
    bool uniform; /* depends on constants and numbers alone: computed at the top of the function */
    bool live;    /* the function needs the instruction: it decides, or it is shown */
    bool crosses; /* COL, LOOP: another loop over lanes reads the value, from an array */
    bool decides; /* LOOP: a proceed needs the value */
    bool shown;   /* something else than a proceed needs the value */
} df_aot_val;

typedef struct df_aot_c {
    const df_kernel *k;
    const char *name;
    const int64_t *extents; /* of each axis, or DF_ANY */
    df_str *out;
    df_aot_val *val;  /* per instruction */
    df_aot_pass pass; /* the function that is being written */
    uint32_t depth;   /* of indentation */
    uint32_t stage;   /* of the level that is being written */
    df_level level;
    int vec;         /* the axis along which lanes run */
    const char *at;  /* the position of the lane along vec; NULL: 0 */
    const char *red; /* the position among all reduced elements, for SCRATCH */
    bool has_red;    /* accesses that move along outer RED axes have addresses u */
    uint32_t width;  /* COL, LOOP: columns of a chunk */
    uint32_t lanes;  /* ROW: accumulators of each reduction of the stage */
} df_aot_c;

/* ---- c_writer.c ---- */

/* Appends a line, indented. */
void df_aot_line(df_aot_c *g, const char *fmt, ...) DF_PRINTF(2, 3);
/* Appends a line that opens a brace, or one that closes it. */
void df_aot_open(df_aot_c *g, const char *fmt, ...) DF_PRINTF(2, 3);
void df_aot_brace(df_aot_c *g); /* opens a brace on a line of its own */
void df_aot_close(df_aot_c *g);
/* The type of a dtype in the text. */
const char *df_aot_type(uint8_t dtype);

/* ---- c_values.c ---- */

bool df_aot_is_reduce(const df_aot_c *g, uint32_t i);
bool df_aot_is_arg(const df_aot_c *g, uint32_t i);
bool df_aot_is_scan(const df_aot_c *g, uint32_t i);
/* Whether instruction i is live, not uniform, and of the stage and level. */
bool df_aot_is_at(const df_aot_c *g, uint32_t i, uint32_t stage, df_level level);
/* Whether a stage has live instructions of element level. */
bool df_aot_has_elem(const df_aot_c *g, uint32_t stage);
uint8_t df_aot_operand(const df_aot_c *g, uint32_t i); /* dtype of operand 0 of instruction i */
int df_aot_axis(const df_kernel *k, df_role role);     /* the last axis of a role; -1: none */
uint32_t df_aot_count(const df_kernel *k, df_role role);
/* Whether a live instruction uses the access. */
bool df_aot_is_used(const df_aot_c *g, uint32_t access);

/* Writes the value of instruction i as an operand at the current place. */
void df_aot_ref(const df_aot_c *g, uint32_t i, char out[32]);
/* Writes bits of a dtype as an expression. */
void df_aot_const(uint8_t dtype, uint64_t bits, char out[64]);
/* Appends one instruction: the declaration of its value, or a store. */
void df_aot_ins(df_aot_c *g, uint32_t i);
/* Appends the loads of a stage's element level that are the same in all lanes. */
void df_aot_hoisted(df_aot_c *g, uint32_t stage);
/* Appends the other instructions of a stage's element level, without what belongs to loops. each is
 * called for reductions and scans, in their order. It is NULL where there are none. */
void df_aot_elems(df_aot_c *g, uint32_t stage, void (*each)(df_aot_c *g, uint32_t i));
/* Appends the instructions of a stage's row level. In PART they store nothing. */
void df_aot_row_level(df_aot_c *g, uint32_t stage);
/* Appends what all instructions of the function share: addresses, extents and uniform values. */
void df_aot_words(df_aot_c *g);
/* Declares q: the addresses at the current row. */
void df_aot_row_addresses(df_aot_c *g);
/* Declares u: the addresses at the current position along RED axes but vec. */
void df_aot_red_addresses(df_aot_c *g, uint32_t stage);

/* ---- c_loops.c ---- */

/* Declares and sets the positions along all axes of a role but `except`, at index `of`. */
void df_aot_split(df_aot_c *g, df_role role, int except, const char *of);
/* Appends the step to the next position along these axes. */
void df_aot_step(df_aot_c *g, df_role role, int except);
/* The product of the extents of a role. DF_ANY: it is not known. */
int64_t df_aot_known(const df_aot_c *g, df_role role);
/* Writes the product of the extents of a role as an expression, "1" for no axes. */
void df_aot_extents(const df_aot_c *g, df_role role, char *out, size_t cap);
/* Opens and closes the loop over rows [o0, o1), in which x and q are those of the row. */
void df_aot_open_rows(df_aot_c *g);
void df_aot_close_rows(df_aot_c *g);
/* Opens the loop over chunks of columns [from, to): c is the first column of a chunk, n the number
 * of columns. */
void df_aot_open_columns(df_aot_c *g, const char *from, const char *to);
/* Opens the loop over the lanes i of a chunk. */
void df_aot_open_lanes(df_aot_c *g);
void df_aot_map(df_aot_c *g);
void df_aot_loop(df_aot_c *g);

/* ---- c_reduce.c: what ROW and COL share ---- */

/* Writes the name of reduction i in the prelude, such as sum_f32. */
void df_aot_red(const df_aot_c *g, uint32_t i, char out[32]);
/* The index of the first word of reduction i in df_kargs.partial. */
uint32_t df_aot_slot(const df_aot_c *g, uint32_t i);
/* Declares `length`, `n_blocks`, `n_inner` and `plane`, the words of one slot. */
void df_aot_lengths(df_aot_c *g);
/* Writes the value with which the running value of scan i begins. */
void df_aot_scan_start(df_aot_c *g, uint32_t i, char out[64]);
/* Appends the value of scan i, and stores it in `state`, the running value. */
void df_aot_scan_join(df_aot_c *g, uint32_t i, const char *state);

/* ---- c_row.c, c_col.c ---- */

void df_aot_row(df_aot_c *g);
void df_aot_col(df_aot_c *g);

#endif
