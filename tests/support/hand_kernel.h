/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels written by hand, for what random ones (random_kernel.h) do not reach: tests of each code
 * generator run them.
 */
#ifndef TEST_HAND_KERNEL_H
#define TEST_HAND_KERNEL_H

#include "runtime/device.h"

static inline df_ins ins(df_kop op, uint8_t t, uint8_t stage, df_level level, uint32_t a,
                         uint32_t b, uint64_t imm)
{
    return (df_ins){ .op = (uint8_t)op,
                     .dtype = t,
                     .stage = stage,
                     .level = (uint8_t)level,
                     .src = { a, b },
                     .imm = imm };
}

/* out[i] = table[index[i]] with index[i] checked against num[0], as check 41. MAP; i64 index, f32
 * table, f32 out. */
extern const df_kernel hand_gather;
/* The same with i32 indices, which are cast. */
extern const df_kernel hand_short_gather;

enum { HAND_GATHER_MOST = 300, HAND_GATHER_TABLE = 4 };

/* n elements of it, some of whose indices count from the end, and of which one has an index out of
 * range; bad -1: none. */
typedef struct hand_gather_run {
    _Alignas(16) int64_t index[HAND_GATHER_MOST];
    _Alignas(16) float out[HAND_GATHER_MOST];
    float table[HAND_GATHER_TABLE];
    char *ptr[3];
    int64_t n, bad, fault[3];
    uint64_t num[1];
    df_kargs args; /* of the above: r stays where it is */
} hand_gather_run;

void hand_gather_init(hand_gather_run *r, int64_t n, int64_t bad);
/* Makes the indices i32. is_long: the table claims to have 2^33 elements, and no index counts from
 * its end. */
void hand_gather_shorten(hand_gather_run *r, bool is_long);
/* Whether it ran right: the fault is reported, whole, and element 0 read in its place. */
bool hand_gather_holds(const hand_gather_run *r);

/* Softmax but for its exp, of f32 rows: of three stages, the second keeps its elements in scratch.
 * Where it stores is where it loads from. */
extern const df_kernel hand_softmax;

/* It runs on rows of data that a generator and what it is held against have each for itself. */
typedef struct hand_softmax_run {
    char *ptr[3];
    int64_t extent[2], stride[6];
    df_kargs args; /* of the above: r stays where it is */
} hand_softmax_run;

/* Fills data, [rows, length]. scratch has room for a row of each team. */
void hand_softmax_init(hand_softmax_run *r, float *data, float *scratch, int64_t rows,
                       int64_t length);

/* y = 2 * x + y, in place, of f32, f64 or u8. MAP: two loads, each access its neighbours. has_rows:
 * of two axes, rows being apart; p stays where it is. */
typedef struct hand_axpy {
    df_kernel k;
    df_access access[3];
    df_ins ins[6];
} hand_axpy;

void hand_axpy_make(hand_axpy *p, uint8_t t, bool has_rows);

/* ---- reductions ---- */

enum { HAND_REDUCTIONS = 100 };

/* n reductions of one f64 in one stage, stored in the next: a sum, an argmin, a maximum, an argmax,
 * and so on. scans: beside a running sum, which is stored too and which every third of them takes
 * in place of the element. Access 0 is what is read, then the n results, then the running sum. */
typedef struct hand_reductions {
    df_kernel k;
    df_access access[HAND_REDUCTIONS + 2];
    df_ins ins[2 * HAND_REDUCTIONS + 3];
} hand_reductions;

/* col: of mode COL with three axes, else ROW with two. All strides but INNER's are given. */
void hand_reductions_make(hand_reductions *r, bool col, bool scans, uint32_t n);

#endif
