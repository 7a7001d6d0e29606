/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/aot: how the arrays of an image are made from a plan.
 *
 *   program.c   slots of the plan, guards and parameters
 *   blocks.c    a plan without parts: its buffers, kernels, segments and launches
 *   parts.c     a plan of parts: the memory of its cells, its loops and branches
 *   by_rows.c   loops that run in blocks of rows
 *   cuda_program.c  the launches of a program for GPUs, which has no image
 *   arrays.c    adds to the arrays
 *
 * Functions that return a slot or an index return 0 after a failure, which is in program.st. That
 * 0 must not be used for anything but further such calls.
 */
#ifndef DF_AOT_MAKER_H
#define DF_AOT_MAKER_H

#include "aot/program.h"

typedef struct maker {
    program *p;
    const uint32_t *slot; /* of the image, by slot of the plan */
    int64_t *value;       /* by slot of the plan; meaningless where it is open */
    uint32_t *input;      /* the parameter of each input; DF_NONE: it is linked */
    uint32_t *linked;     /* slot with the place of a linked input in the data */
    uint32_t *output;     /* the parameter of each root; DF_NONE: it is an input */
} maker;

/* A plan that becomes steps: the plan of the program, or one within a part of it. */
typedef struct block {
    maker *m;
    const df_plan *plan;
    uint32_t slot0;       /* its first slot is slot number slot0 of the plan of the program */
    const uint32_t *port; /* per input of its trace: the buffer; AOT_NONE: nothing is read */
    const uint32_t *dest; /* per root: the buffer that gets it; AOT_NONE: the plan says where */
    uint32_t n_roots;
    uint32_t arena; /* slot: where in the arena its temporaries begin */
} block;

/* ---- arrays.c ---- */

/* Adds a row to an array of the program p. */
#define DF_AOT_PUSH(p, v, value)                                                                   \
    do {                                                                                           \
        if (!df_vec_push((p)->mem, &(p)->v, value)) program_no_memory(p);                          \
    } while (0)

void program_no_memory(program *p);

/* A slot that each call computes as a (op) b; op: AOT_SLOT_... */
uint32_t program_computed(program *p, uint32_t op, uint32_t a, uint32_t b);

/* A slot that holds a number. */
uint32_t program_constant(program *p, int64_t value);

/* The same, or a constant, where both slots are. */
uint32_t program_combine(program *p, uint32_t op, uint32_t a, uint32_t b);

/* A slot that holds the end of `bytes` (slot) bytes at `begin` (slot), rounded up to the alignment
 * of regions. */
uint32_t program_end_of(program *p, uint32_t begin, uint32_t bytes);

/* A new buffer. */
uint32_t program_add_buf(program *p, uint32_t kind, uint32_t index);

/* Fills in a number of the options, as dtype t. */
deft_status program_use_number(program *p, uint32_t number, deft_dtype t, aot_num *out);

/* ---- blocks.c ---- */

/* Appends the steps of a plan without parts. *end is the slot with the end of its temporaries.
 * *bufs, unless bufs is NULL, has the buffer of the image for each buffer of the plan. */
deft_status blocks_import(const block *b, uint32_t *end, const uint32_t **bufs);

/* ---- by_rows.c ---- */

/* A loop that was imported. */
typedef struct imported_loop {
    const df_part *part;
    uint32_t slot0;       /* of its iteration, as in block */
    uint32_t loop;        /* in the image */
    uint32_t seg;         /* the first segment of an iteration */
    const uint32_t *port; /* per input of an iteration: its buffer */
    const uint32_t *buf;  /* per buffer of an iteration: its buffer in the image */
} imported_loop;

/* Lets the loop run in blocks of rows, if it can. An iteration must be a single step. */
deft_status by_rows_find(maker *m, const imported_loop *l);

/* ---- cuda_program.c ---- */

/* Gets the launches of the program, whose arrays are among the parameters. */
deft_status gpu_import(maker *m);

/* ---- parts.c ---- */

/* The same for any plan. */
deft_status parts_import(const block *b, uint32_t *end);

#endif
