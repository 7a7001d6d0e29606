/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the table of peers: workloads that move data more than they compute.
 */
#include "table.h"

static void transposed_add(const table_call *c)
{
    c->out[0] = deft_add(deft_t(c->in[0]), c->in[1]);
}

/* Images with channels last become images with channels first, scaled. */
static void channels_first(const table_call *c)
{
    c->out[0] = deft_mul(deft_permute(c->in[0], DEFT_AXES(0, 3, 1, 2)), table_num(c, 0.5));
}

static void take_rows(const table_call *c)
{
    c->out[0] = deft_take(c->in[0], c->in[1], 0);
}

static void gather(const table_call *c)
{
    c->out[0] = deft_gather(c->in[0], c->in[1], 1);
}

static void add_rows(const table_call *c)
{
    deft_tensor *const zeros = deft_zeros(c->cx, DEFT_SHAPE(c->n[0], c->n[1]), DEFT_F32);
    c->out[0] = deft_index_add(zeros, c->in[0], c->in[1], 0);
}

static void scatter(const table_call *c)
{
    deft_tensor *const zeros = deft_zeros(c->cx, DEFT_SHAPE(c->n[0], c->n[1]), DEFT_F32);
    c->out[0] = deft_scatter_add(zeros, c->in[0], c->in[1], 0);
}

static void concat(const table_call *c)
{
    c->out[0] = deft_concat(c->in, 3, 1);
}

static void pad(const table_call *c)
{
    const int64_t edge[] = { 0, 0, 2, 2 };
    c->out[0] = deft_pad(c->in[0], edge, edge, DEFT_PAD_CONSTANT, 0);
}

static void stack(const table_call *c)
{
    c->out[0] = deft_stack(c->in, 3, 2);
}

static void roll(const table_call *c)
{
    c->out[0] = deft_add(deft_roll(c->in[0], 3, 1), c->in[0]);
}

/* The mean of each window of 8 elements of a row. */
static void windows(const table_call *c)
{
    enum { WIDTH = 8 };
    const int64_t n = c->n[1] - WIDTH + 1;
    deft_tensor *sum = deft_slice(c->in[0], DEFT_FULL, DEFT_R(0, n));
    for (int i = 1; i < WIDTH; i++)
        sum = deft_add(sum, deft_slice(c->in[0], DEFT_FULL, DEFT_R(i, i + n)));
    c->out[0] = deft_mul(sum, table_num(c, 1. / WIDTH));
}

/* The rows in the middle of a state become what they were and a half of y. */
static void update_part(const table_call *c)
{
    deft_tensor *const rows = deft_slice(c->in[0], DEFT_R(c->n[2], c->n[2] + c->n[3]));
    deft_assign(rows, deft_add(deft_mul(rows, table_num(c, 0.5)), c->in[1]));
}

static void flip(const table_call *c)
{
    c->out[0] = deft_sub(c->in[0], deft_flip(c->in[0], DEFT_AXES(1)));
}

const table_row table_moves[] = {
    { "movement/transposed_add",
      "f32 ab; f32 ba",
      1,
      2e-5,
      TABLE_MEMORY,
      transposed_add,
      { { 2048, 2048 }, { 1800, 2300 }, { 2500, 1600 } } },
    { "movement/channels_first",
      "f32 abbc",
      1,
      2e-5,
      TABLE_MEMORY,
      channels_first,
      { { 16, 64, 64 }, { 8, 112, 32 }, { 32, 56, 48 } } },
    { "movement/take_rows",
      "f32 ab; i32 c <a",
      1,
      0,
      TABLE_MEMORY | TABLE_PARTLY,
      take_rows,
      { { 20000, 128, 16384 }, { 50000, 64, 30000 }, { 10000, 256, 8000 } } },
    { "movement/gather",
      "f32 ab; i32 ac <b",
      1,
      0,
      0,
      gather,
      { { 4096, 256, 128 }, { 5000, 100, 100 }, { 2000, 500, 300 } } },
    { "movement/add_rows",
      "i32 c <a; f32 cb",
      1,
      1e-5,
      TABLE_MEMORY,
      add_rows,
      { { 2000, 128, 16384 }, { 5000, 64, 30000 }, { 1000, 256, 8000 } } },
    { "movement/scatter",
      "i32 cb <a; f32 cb",
      1,
      1e-5,
      0,
      scatter,
      { { 1000, 64, 8192 }, { 500, 100, 5000 }, { 2000, 32, 16000 } } },
    { "movement/concat",
      "f32 ab; f32 ac; f32 ad",
      1,
      0,
      TABLE_MEMORY,
      concat,
      { { 2048, 512, 256, 768 }, { 2000, 300, 900, 500 }, { 4000, 100, 200, 300 } } },
    { "movement/pad",
      "f32 abcc",
      1,
      0,
      TABLE_MEMORY,
      pad,
      { { 16, 32, 64 }, { 8, 64, 56 }, { 32, 16, 60 } } },
    { "movement/stack",
      "f32 ab; f32 ab; f32 ab",
      1,
      0,
      TABLE_MEMORY,
      stack,
      { { 1024, 1024 }, { 1000, 1200 }, { 1500, 800 } } },
    { "movement/roll",
      "f32 ab",
      1,
      2e-5,
      TABLE_MEMORY,
      roll,
      { { 2048, 2048 }, { 1800, 2300 }, { 2500, 1600 } } },
    { "movement/windows",
      "f32 ab",
      1,
      2e-5,
      0,
      windows,
      { { 1024, 2048 }, { 1000, 2000 }, { 700, 3000 } } },
    { "movement/update_part",
      "f32 ab !; f32 db",
      0,
      2e-5,
      TABLE_MEMORY | TABLE_PARTLY,
      update_part,
      { { 4096, 1024, 1000, 1024 }, { 5000, 1000, 2000, 900 }, { 8000, 512, 100, 2000 } } },
    { "movement/flip",
      "f32 ab",
      1,
      2e-5,
      TABLE_MEMORY,
      flip,
      { { 2048, 2048 }, { 1800, 2300 }, { 2500, 1600 } } },
    { 0 },
};
