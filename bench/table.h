/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of peers (`deft-bench peers` and `deft-bench order`): what a row is, and the parts of
 * the bench.
 *
 * A row is a workload. It is described once: by its name, its inputs, three choices of sizes, and a
 * function that records it in deft. The peers know the same workload by the same name; their
 * functions are in bench/peers/table_LIBRARY.py. Inputs are made here from a seed, and a file
 * carries them to the peers, so that the outputs of all sides can be compared.
 *
 * The text `inputs` lists the inputs of a workload, separated by semicolons:
 *
 *     DTYPE EXTENTS [KIND]        such as "f32 ab; f32 cb *b; i32 a <c"
 *
 * EXTENTS has one character for each axis: a letter is a size of the row (a is sizes[0]), a digit
 * is itself, and "-" alone stands for rank 0. KIND says how the elements are drawn:
 *
 *     (none)  normal, mean 0 and deviation 1
 *     +       uniform between 0.1 and 1.1
 *     *b      normal, divided by the root of the size b, as weights are
 *     <b      integers from 0 to size b, which is excluded
 *     u       integers: uniform between the least and the greatest that the dtype and f64 hold;
 *             floats: as without a kind
 *     ^       the elements of u in ascending order
 *     v       the elements of u in descending order
 *     0       zeros
 *
 * A "!" behind all of it marks a state: the workload assigns the input, and what is compared is the
 * state after TABLE_CHECK_CALLS calls. States come before the other inputs.
 */
#ifndef BENCH_TABLE_H
#define BENCH_TABLE_H

#include <stdio.h>

#include "bench.h"

enum { TABLE_SIZES = 6, TABLE_DRAWS = 3, TABLE_IN = 20, TABLE_OUT = 20, TABLE_CHECK_CALLS = 3 };

/* Launches until a kernel is compiled for its extents. It is small, so that a slow row gets there
 * while it warms up. */
enum { TABLE_VARIANT_LAUNCHES = 8 };

/* One call of a workload: it reads in[], and sets out[] or assigns its states. */
typedef struct table_call {
    deft_ctx *cx;
    deft_tensor *const *in;
    deft_tensor **out;
    const int64_t *n; /* the sizes that were drawn */
    deft_rng *rng;
} table_call;

/* What the outputs of a row promise, and how it runs. */
typedef enum table_flags {
    /* bound by the speed of memory: the goal is a streaming copy or read of as many bytes, and not
     * what a second thread gives */
    TABLE_MEMORY = 1,
    TABLE_RANDOM = 2,   /* random numbers: mean and deviation are compared, not elements */
    TABLE_AGAIN = 4,    /* deft records the workload again in each call, without a capture */
    TABLE_STANDARD = 8, /* the expected mean is 0 and the deviation 1; else those of [0, 1) */
    /* the differences of all elements count together, not the greatest: a difference of rounding
     * may change a count */
    TABLE_ON_AVERAGE = 16,
    TABLE_PARTLY = 32 /* touches only a part of its inputs or states: its bytes are not counted */
} table_flags;

typedef struct table_row {
    const char *name;   /* GROUP/WORKLOAD */
    const char *inputs; /* as above; "": none */
    int n_out;          /* 0: the states are the outputs */
    double tolerance;   /* of an element, in terms of the root of the mean square of its output */
    unsigned flags;     /* table_flags */
    void (*record)(const table_call *c);
    int64_t sizes[TABLE_DRAWS][TABLE_SIZES];
} table_row;

/* A number that a captured function may use. */
static inline deft_tensor *table_num(const table_call *c, double value)
{
    return deft_const_f(c->cx, value);
}

/* The rows of each file; their ends have no name. */
extern const table_row table_maps[], table_moves[], table_products[], table_images[],
    table_sequences[], table_programs[], table_order[];

/* ---- inputs (table_inputs.c) ---- */

typedef struct table_input {
    deft_dtype dtype;
    deft_shape shape;
    bool is_state;
    size_t bytes;
    void *data; /* row-major */
} table_input;

typedef struct table_inputs {
    table_input at[TABLE_IN];
    int n, n_states;
    const char *why; /* the text cannot be read; NULL: it can */
} table_inputs;

/* Reads the text and makes the elements from the seed. The caller frees the inputs. */
void table_inputs_make(table_inputs *t, const char *text, const int64_t *sizes, uint64_t seed);
void table_inputs_free(table_inputs *t);

/* Writes all elements, one input behind the other. */
bool table_inputs_save(const table_inputs *t, const char *path);

/* Writes "f32:2048x2048 i32:100! ..." for the peers, cut at n bytes. */
void table_inputs_text(const table_inputs *t, char *text, size_t n);

/* ---- deft's side (table_ours.c) ---- */

typedef struct table_side table_side;

/* A context of rt with copies of the inputs, and the row recorded as a program would do it. */
table_side *table_side_open(const table_row *row, deft_runtime *rt, deft_numerics numerics,
                            const table_inputs *inputs, const int64_t *sizes);
void table_side_close(table_side **s);

/* Why the side failed; "" while it works. */
const char *table_side_why(const table_side *s);
void table_side_run(table_side *s, int calls);

/* Runs until the compiler has nothing left to do; the runtime has to be one of tier FULL. */
void table_side_warm_up(table_side *s);

/* Bytes of all inputs, and of all outputs. States are both. Valid after table_side_outputs. */
typedef struct table_bytes {
    double read, written;
} table_bytes;
table_bytes table_side_bytes(const table_side *s);

/* ---- what memory allows (table_stream.c) ---- */

typedef struct table_stream table_stream;

/* Buffers of as many bytes, and threads that move them. */
table_stream *table_stream_open(table_bytes bytes, unsigned threads);
void table_stream_close(table_stream **s);

/* Seconds in which all bytes are moved once. around: copies are written around the caches. */
double table_stream_turn(table_stream *s, bool around, int calls);

/* ---- outputs (table_outputs.c) ---- */

/* The outputs of a side as doubles, one behind the other. */
typedef struct table_outputs {
    double *v;
    int n;                     /* outputs */
    int64_t n_each[TABLE_OUT]; /* elements of each */
} table_outputs;

void table_outputs_free(table_outputs *o);

/* Runs the side from its first state. Returns false when the side failed. */
bool table_side_outputs(table_side *s, table_outputs *o);

/* Reads what a peer wrote; like has the extents. Returns false when the file has another size. */
bool table_outputs_load(table_outputs *o, const table_outputs *like, const char *path);

/* The greatest difference of an element, or the root of the mean square of all differences, divided
 * by the root of the mean square of its output in the reference. Infinity where a NaN or an
 * infinity is on one side alone. */
double table_apart(const table_outputs *o, const table_outputs *reference, bool on_average);

/* The difference of mean and deviation from those that the row expects, in units that are 1 for the
 * greatest difference that chance explains. */
double table_moments_apart(const table_outputs *o, bool standard);

#endif
