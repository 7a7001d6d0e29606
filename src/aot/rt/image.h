/* SPDX-License-Identifier: Apache-2.0
 *
 * The image of an exported program: what the runtime part (run.c) reads. The exporter writes it
 * into an object or into a C file; docs/export.md describes what users see.
 *
 * An image is a plan (fuser/plan.h) in which everything that is known when the program is exported
 * has become a number. Only slots that depend on open extents are computed in each call.
 *
 * The files of this folder need neither libdeft nor libc beyond memcpy and memset. They are also
 * part of exported C files, so they include nothing else of deft.
 *
 * Why this file is long: declarations, and the sizes of workspaces, which two files must agree on.
 */
#ifndef DEFT_AOT_IMAGE_H
#define DEFT_AOT_IMAGE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* In an exported C file, everything but the exported functions is static. */
#if !defined(AOT_API)
#define AOT_API
#endif

/* What the exported functions return. The header of an exported program has the same numbers. */
enum {
    AOT_OK = 0,
    AOT_EXTENT = 1,
    AOT_INDEX = 2,
    AOT_PROCESSOR = 3,
    AOT_ARGUMENT = 4,
    AOT_COMPILER = 5
};

#define AOT_NONE 0xFFFFFFFFu

/* ---- kernels: the ABI of src/runtime/device.h ---- */

#if defined(AOT_C_FILE)
typedef struct df_aot_kargs aot_kargs; /* of the prelude (src/aot/c.h) */
#else
typedef struct aot_kargs {
    char *const *ptr;
    const int64_t *stride;
    const int64_t *base;
    const int64_t *extent;
    const uint64_t *num;
    uint64_t *partial;
    int64_t *fault;
    char *work;
    uint64_t streams;
    uint64_t fetches;
} aot_kargs;
#endif

typedef void (*aot_kernel)(const aot_kargs *args, int64_t o0, int64_t o1, int64_t i0, int64_t i1);

/* ---- slots ---- */

enum { AOT_SLOT_EXTENT, AOT_SLOT_ADD, AOT_SLOT_SUB, AOT_SLOT_MUL, AOT_SLOT_MAX, AOT_SLOT_DIVUP };

/* Slot `to` is computed from slots a and b. EXTENT: it is parameter a of the call. */
typedef struct aot_slot {
    uint32_t to, op, a, b;
} aot_slot;

enum { AOT_GUARD_EQUAL, AOT_GUARD_IS, AOT_GUARD_AT_LEAST, AOT_GUARD_AT_MOST };

/* Slot a is equal to slot b, or is `want`, or at least or at most that. */
typedef struct aot_guard {
    uint32_t kind, a, b, unused;
    int64_t want;
} aot_guard;

/* ---- memory ---- */

enum {
    AOT_BUF_PARAMETER, /* parameter `index` of the call */
    AOT_BUF_DATA,      /* slot `index`: bytes from the beginning of the linked data */
    AOT_BUF_TEMPORARY, /* slot `index`: bytes from the beginning of the arena */
    AOT_BUF_MOVING     /* a loop sets its address in each iteration (aot_loop) */
};

typedef struct aot_buf {
    uint32_t kind, index;
} aot_buf;

enum { AOT_ACCESS_LOAD, AOT_ACCESS_STORE, AOT_ACCESS_INDEX, AOT_ACCESS_SCRATCH };

/* One access of a segment, or an operand of a product. */
typedef struct aot_bind {
    uint32_t buf;    /* AOT_NONE: none */
    uint32_t kind;   /* AOT_ACCESS_... */
    uint32_t size;   /* bytes of an element */
    uint32_t offset; /* slot: elements; INDEX: the base; SCRATCH: elements that a thread needs */
    uint32_t stride; /* where its strides begin in image.list: slots */
    uint32_t same;   /* SCRATCH: the access with which it shares its memory */
} aot_bind;

/* ---- segments ---- */

enum { AOT_SEG_KERNEL, AOT_SEG_PRODUCT, AOT_SEG_ROUTINE };
enum { AOT_MODE_MAP, AOT_MODE_ROW, AOT_MODE_COL, AOT_MODE_LOOP };
enum { AOT_ROLE_OUTER, AOT_ROLE_RED, AOT_ROLE_INNER };
enum { AOT_SPLIT = 1, AOT_TILES = 2, AOT_SCRATCH = 4, AOT_WHOLE_ROWS = 8, AOT_BY_INNER = 16 };

typedef struct aot_seg {
    uint32_t kind;
    /* The kernel; of a product: its epilogue, or AOT_NONE */
    uint32_t kernel, mode, flags, n_axes, n_access, n_num;
    uint32_t roles;       /* two bits for each axis */
    uint32_t n_partial;   /* SPLIT: words that a block has for each element of INNER */
    uint32_t extent;      /* where the extents of the axes begin in image.list */
    uint32_t bind;        /* the first of n_access binds */
    uint32_t num;         /* the first of n_num numbers */
    uint32_t picoseconds; /* estimated, of an element */
    /* What makes up a row of the loop, in a loop that runs in blocks; else 0. Of a kernel: rows of
     * OUTER, or elements of INNER (AOT_BY_INNER). Of a product: rows of C, counted over the
     * batch. */
    uint32_t per_row;
    /* A product: C[b,m,n] = sum of A[b,m,k] B[b,k,n] over k */
    uint32_t is_f64, n_batch, n_column_axes;
    uint32_t m, n, k;  /* slots */
    uint32_t batch;    /* where its extents begin in image.list */
    uint32_t operand;  /* the bind of A; those of B and C follow */
    uint32_t c_access; /* the access of the epilogue that reads C, or AOT_NONE */
    uint32_t routine;  /* ROUTINE: image.routines. Its operands are a, b and c of routine.c */
} aot_seg;

/* A number of a kernel: its bits; or a slot, or a parameter, as a float or an integer of so many
 * bytes. A parameter is an int64_t or a double, and becomes an integer only when it is one. */
typedef struct aot_num {
    uint64_t bits;            /* where it becomes an integer: what is added to it */
    uint32_t slot, parameter; /* AOT_NONE: not that */
    uint32_t as, bytes;       /* AOT_AS_... (number.h) */
    uint32_t is_integer;      /* the parameter is an int64_t */
    uint32_t unused;
} aot_num;

typedef struct aot_launch {
    uint32_t first, n, n_after; /* segments; the last n_after run when the others have ended */
    uint32_t checks;            /* whether an index may be found out of range up to here */
} aot_launch;

/* ---- steps ---- */

/* A program is a list of steps. Steps of a loop or a branch follow it in the list, and may be loops
 * and branches themselves: first n_first steps, then n_second. */
enum {
    AOT_STEP_LAUNCHES, /* runs b launches from launch a on; they have d segments from c on */
    AOT_STEP_COPY,     /* copies c bytes (slot) from buffer b to buffer a, if they are not the same
                        * memory */
    AOT_STEP_NUMBER,   /* writes number b, of c bytes, to buffer a */
    AOT_STEP_COND,     /* runs the n_first steps where buffer a holds true, else the n_second */
    AOT_STEP_LOOP      /* runs loop a: n_first steps are the test, n_second are an iteration */
};

typedef struct aot_step {
    uint32_t kind, a, b, c, d, n_first, n_second, unused;
} aot_step;

/* A loop runs iterations 0, 1, ... below `most` (slot), while the test stores true in buffer `test`
 * before an iteration. Without a test, test is AOT_NONE. Buffer `number` gets the number of the
 * iteration, an int64_t. */
typedef struct aot_loop {
    uint32_t most, number, test;
    uint32_t root, n_roots; /* what an iteration computes: image.roots */
    uint32_t row, n_rows;   /* buffers that move: image.rows */
    uint32_t blocks;        /* image.blocks; AOT_NONE: it does not run in blocks of rows */
} aot_loop;

/* A result of an iteration: the next value of a state, or a row among the rows of all iterations.
 *
 * Buffer `state` is where an iteration reads the state: at first it is buffer `init`, later the
 * value that the iteration before stored. Buffer `next` is where an iteration stores the result.
 *
 *   a row     next is row number n of buffer `out`
 *   a state   next is `out`, or the memory of its own, whichever does not hold the state. The last
 *             value is copied to `out`, if it is not there.
 *
 * AOT_ROOT_IN_PLACE: next may be the memory of the state itself. Then all values but the initial
 * one are in `out`, and the state has no memory of its own. */
typedef struct aot_root {
    uint32_t flags;
    uint32_t bytes; /* slot: of the state, or of one row */
    uint32_t same;  /* the root of this loop whose memory it shares, or its own number. A row shares
                     * that of a row only. */
    uint32_t next;  /* MOVING; AOT_NONE where it shares that of another root */
    uint32_t out;
    uint32_t state, init; /* `state` is MOVING; AOT_NONE: a row */
    uint32_t own;         /* slot: bytes from the beginning of the arena */
    uint32_t row_bytes;   /* of a state in a loop that runs in blocks: bytes of a row of it */
} aot_root;

enum { AOT_ROOT_IN_PLACE = 1 };

/* In iteration n, buffer `buf` begins `first` + n * `step` bytes (slots) behind buffer `of`. */
typedef struct aot_row {
    uint32_t buf, of, first, step;
} aot_row;

/* A loop whose rows do not depend on each other (src/runtime/loop_rows.h), without a test. An
 * iteration is one step, LAUNCHES, without checks. A task takes some rows through all iterations,
 * and then takes the next rows; the states and temporaries of a block of rows are memory of the
 * task. Rows of a group are in one block. All extents of such a loop are known. */
typedef struct aot_blocks {
    uint32_t n_rows, group;   /* rows; a group is so many of them */
    uint32_t bytes;           /* of a row of all states and temporaries */
    uint32_t unit, least;     /* a block has a multiple of `unit` rows, at least `least` of them */
    uint32_t piece, n_pieces; /* temporaries: image.pieces */
    /* Causal attention: query i of a group sees the keys 0 .. i, and an iteration has `keys` of
     * them. 0: it is something else. The values of an iteration are a matrix of f32 for each group,
     * of `keys` rows of `width`, at `values` (buffer) + `offset` + the group's place. All are
     * numbers of elements; the extents and the strides of the batch begin in image.list. */
    uint32_t keys, width, values, offset, row, n_batch, batch;
} aot_blocks;

/* The state of attention that is the sum of the weighted values. */
enum { AOT_MASKED_SUM = 2 };

/* A temporary of a loop that runs in blocks. */
typedef struct aot_piece {
    uint32_t buf, row_bytes;
} aot_piece;

/* ---- products ---- */

typedef struct aot_product {
    int64_t m, n, k, n_batch;
    uint32_t batch_rank, is_f64;
    const int64_t *batch; /* extents */
    const char *a, *b;
    char *c;                                       /* NULL: the epilogue alone sees the product */
    const int64_t *a_stride, *b_stride, *c_stride; /* batch..., row, column; in elements */
    /* Called for each finished tile of rows [o0, o1) of (batch, m) and columns [i0, i1), whose
     * rows are ld elements apart; NULL: no epilogue. */
    void (*epilogue)(void *user, const char *tile, int64_t ld, int64_t o0, int64_t o1, int64_t i0,
                     int64_t i1);
    void *user;
} aot_product;

/* Computes share `part` of `parts` of the product. work has aot_product_bytes bytes. */
typedef void (*aot_product_fn)(const aot_product *p, int64_t part, int64_t parts, char *work);

/* ---- routines ---- */

/* The operators that are no loops over elements (src/runtime/routine.h). Those from AOT_ADD on
 * combine values with elements at indices. */
enum {
    AOT_ARGSORT,
    AOT_SORT,
    AOT_TOPK,
    AOT_WHICH,
    AOT_COMPRESS,
    AOT_ADD,
    AOT_SET,
    AOT_MUL,
    AOT_MIN,
    AOT_MAX
};

/* What the bits of an element mean. */
enum { AOT_UNSIGNED, AOT_SIGNED, AOT_FLOAT, AOT_F16, AOT_BF16 };
typedef struct aot_type {
    uint32_t kind, bytes;
} aot_type;

enum { AOT_MOST_RANK = 8, AOT_DESCENDING = 1, AOT_ZEROS = 2 };

/* A routine. Numbers that depend on extents are slots. The lists begin in image.list, one after the
 * other: `rank` extents, and as many strides of a, b and c.
 *
 *   ARGSORT, SORT, TOPK  rows of a, of n elements, which are `step` apart; c has the positions
 *                        [first, first + m) of the order of each row, row by row
 *   WHICH                c has the m positions at which the vector a is not 0
 *   COMPRESS             c has the m elements of the vector a at which the vector b is not 0
 *   others               the values b meet elements of c at the indices a: value p meets the one at
 *                        p * stride of c + index * step. There are n indices. */
typedef struct aot_routine {
    uint32_t op, flags, rank, list;
    uint32_t n, m, first, step;
    uint32_t b_step;                           /* COMPRESS */
    uint32_t a_kind, a_bytes, b_kind, b_bytes; /* the types of the elements of a and of b */
    uint32_t unused;
} aot_routine;

typedef struct aot_routine_job {
    const aot_routine *what;
    const char *a, *b;
    char *c;
    int64_t n, m, first, step, b_step;
    int64_t extent[AOT_MOST_RANK], a_stride[AOT_MOST_RANK], b_stride[AOT_MOST_RANK],
        c_stride[AOT_MOST_RANK];
} aot_routine_job;

/* Computes share `part` of `parts`. work has aot_routine_bytes bytes. Returns 1 when an index is
 * out of range, else 0. */
typedef int (*aot_routine_fn)(const aot_routine_job *j, int64_t part, int64_t parts, char *work);

/* Bytes that each share of a routine needs: for a key and a position of each element, twice. */
static inline int64_t aot_routine_bytes(const aot_routine *x, int64_t n)
{
    return x->op <= AOT_TOPK ? 32 * n : 0;
}

/* ---- the image ---- */

/* The code for one kind of processor. */
typedef struct aot_level {
    uint64_t needs;            /* AOT_CPU_... */
    aot_product_fn product[2]; /* of f32 and of f64; NULL where the program has none */
    const aot_kernel *kernels; /* per kernel: main, part, fin */
} aot_level;

enum { AOT_CPU_ANY, AOT_CPU_V2, AOT_CPU_V3, AOT_CPU_V4 };

typedef struct aot_image {
    const int64_t *values; /* of the slots that are known; 0 for the others */
    const aot_slot *slots; /* those that a call computes, in order */
    const aot_guard *guards;
    const aot_buf *bufs;
    const aot_bind *binds;
    const aot_num *nums;
    const uint32_t *list;
    const aot_seg *segs;
    const aot_launch *launches;
    const aot_step *steps;
    const aot_loop *loops;
    const aot_root *roots;
    const aot_row *rows;
    const aot_blocks *blocks;
    const aot_piece *pieces;
    const aot_routine *routines;
    aot_routine_fn routine;  /* NULL: the program has none */
    const aot_level *levels; /* the best first */
    const char *data;
    uint32_t *level; /* 1 + the level that this processor takes; 0 until the first call */
    uint32_t n_values, n_slots, n_guards, n_bufs, n_segs, n_steps, n_roots, n_levels;
    uint32_t n_parameters; /* extents and pointers; then come the workspace and the threads */
    uint32_t arena;        /* slot: bytes of the arena of temporaries */
    uint32_t n_blocks;     /* loops that run in blocks */
    uint32_t unused;
} aot_image;

/* Threads of the caller, as the header of an exported program describes them. */
typedef struct aot_threads {
    int n;
    void *user;
    void (*run)(void *user, int n_tasks, void (*task)(void *data, int index), void *data);
} aot_threads;

/* Bytes of workspace for a call with these extents on n_threads threads. Returns -1 when the
 * program does not accept the extents. */
AOT_API int64_t deft_aot_workspace(const aot_image *im, const int64_t *extents, int64_t n_threads);

/* Runs the program. args: the parameters, the workspace, the threads. */
AOT_API int deft_aot_run(const aot_image *im, const uint64_t *args);

/* The columns of B that a product packs at a time. The micro-kernels have at most 48 columns, and
 * the result is a multiple of all of them. */
enum {
    AOT_KC_BYTES = 3072,
    AOT_MC = 96,
    AOT_NC = 960,
    AOT_LEAST_NC = 48,
    AOT_PACKED_BYTES = 4 << 20
};

static inline int64_t aot_round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static inline int64_t aot_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t aot_columns_at_once(int64_t n, int64_t k, int64_t size)
{
    int64_t nc = AOT_NC;
    while (nc > AOT_LEAST_NC && nc * k * size > AOT_PACKED_BYTES) nc -= AOT_LEAST_NC;
    const int64_t parts = (n + nc - 1) / nc; /* of nearly equal sizes */
    return parts > 0 ? aot_round_up((n + parts - 1) / parts, AOT_LEAST_NC) : AOT_LEAST_NC;
}

/* The rows of A that are packed at a time: a multiple of the rows of all micro-kernels. */
static inline int64_t aot_rows_at_once(int64_t m)
{
    return aot_least(AOT_MC, aot_round_up(m, 24));
}

/* The elements along k that are multiplied at a time. C is read and written each time. */
static inline int64_t aot_steps_at_once(int64_t size)
{
    return AOT_KC_BYTES / size;
}

/* Bytes of the packed part of A. */
static inline int64_t aot_packed_a_bytes(int64_t m, int64_t k, int64_t size)
{
    return aot_round_up(aot_rows_at_once(m) * aot_least(k, aot_steps_at_once(size)) * size, 64);
}

/* Bytes that each share of a product needs. */
static inline int64_t aot_product_bytes(int64_t m, int64_t n, int64_t k, int is_f64, int has_c)
{
    const int64_t size = is_f64 ? 8 : 4, nc = aot_columns_at_once(n, k, size);
    const int64_t bytes = aot_round_up(nc * k * size, 64) + aot_packed_a_bytes(m, k, size) + 64;
    return has_c ? bytes : bytes + aot_round_up(aot_rows_at_once(m) * nc * size, 64);
}

#endif
