/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the table of peers: elementwise chains, reductions, random numbers, halves, integers.
 */
#include "table.h"

/* ---- elementwise ---- */

/* sqrt(x x + y y) exp(-x) + y tanh(x) */
static void chain(const table_call *c)
{
    deft_tensor *const x = c->in[0], *const y = c->in[1];
    deft_tensor *const r = deft_sqrt(deft_add(deft_square(x), deft_square(y)));
    c->out[0] = deft_add(deft_mul(r, deft_exp(deft_neg(x))), deft_mul(y, deft_tanh(x)));
}

static void gelu(const table_call *c)
{
    c->out[0] = deft_gelu(c->in[0]);
}

/* (2 x + y) y - x / 2: at the speed of memory */
static void saxpy(const table_call *c)
{
    deft_tensor *const x = c->in[0], *const y = c->in[1];
    deft_tensor *const s = deft_mul(deft_add(deft_mul(x, table_num(c, 2)), y), y);
    c->out[0] = deft_sub(s, deft_mul(x, table_num(c, 0.5)));
}

static void select(const table_call *c)
{
    deft_tensor *const x = c->in[0], *const y = c->in[1];
    deft_tensor *const limited = deft_minimum(deft_maximum(x, table_num(c, -1)), table_num(c, 1));
    c->out[0] = deft_where(deft_gt(x, y), limited, deft_mul(y, table_num(c, 0.1)));
}

static void broadcast(const table_call *c)
{
    deft_tensor *const column = deft_unsqueeze(c->in[0], 1);
    c->out[0] = deft_mul(deft_add(column, c->in[1]), deft_sin(c->in[2]));
}

static void magnitude(const table_call *c)
{
    c->out[0] = deft_sqrt(deft_add(deft_square(c->in[0]), deft_square(c->in[1])));
}

/* Adam of one parameter: p, m and v are states, g is the gradient. */
static void adam(const table_call *c)
{
    deft_tensor *const p = c->in[0], *const m = c->in[1], *const v = c->in[2], *const g = c->in[3];
    deft_assign(m, deft_lerp(m, g, table_num(c, 0.1)));
    deft_assign(v, deft_lerp(v, deft_square(g), table_num(c, 0.001)));
    deft_tensor *const den = deft_add(deft_sqrt(v), table_num(c, 1e-8));
    deft_assign(p, deft_sub(p, deft_mul(deft_div(m, den), table_num(c, 0.001))));
}

/* ---- reductions ---- */

static void sum_all(const table_call *c)
{
    c->out[0] = deft_sum(c->in[0], DEFT_ALL_AXES, 0);
}

static void sum_rows(const table_call *c)
{
    c->out[0] = deft_sum(c->in[0], DEFT_AXES(1), 0);
}

static void sum_columns(const table_call *c)
{
    c->out[0] = deft_sum(c->in[0], DEFT_AXES(0), 0);
}

static void mean_squared_error(const table_call *c)
{
    c->out[0] = deft_mean(deft_square(deft_sub(c->in[0], c->in[1])), DEFT_ALL_AXES, 0);
}

static void softmax(const table_call *c)
{
    c->out[0] = deft_softmax(c->in[0], 1);
}

static void log_sum_exp(const table_call *c)
{
    deft_tensor *const top = deft_max(c->in[0], DEFT_AXES(1), 1);
    deft_tensor *const sum = deft_sum(deft_exp(deft_sub(c->in[0], top)), DEFT_AXES(1), 1);
    c->out[0] = deft_squeeze(deft_add(deft_log(sum), top), DEFT_AXES(1));
}

static void deviation(const table_call *c)
{
    c->out[0] = deft_sqrt(deft_var(c->in[0], DEFT_AXES(1), 0, 1));
}

static void norm_all(const table_call *c)
{
    c->out[0] = deft_sqrt(deft_sum(deft_square(c->in[0]), DEFT_ALL_AXES, 0));
}

static void unit_rows(const table_call *c)
{
    deft_tensor *const square = deft_sum(deft_square(c->in[0]), DEFT_AXES(1), 1);
    c->out[0] = deft_div(c->in[0], deft_add(deft_sqrt(square), table_num(c, 1e-6)));
}

static void greatest_at(const table_call *c)
{
    c->out[0] = deft_argmax(c->in[0], DEFT_AXES(1), 0);
}

static void cumsum_rows(const table_call *c)
{
    c->out[0] = deft_cumsum(c->in[0], 1);
}

static void cumsum_columns(const table_call *c)
{
    c->out[0] = deft_cumsum(c->in[0], 0);
}

/* ---- random numbers ---- */

static void uniform(const table_call *c)
{
    c->out[0] = deft_uniform(c->cx, c->rng, DEFT_SHAPE(c->n[0]), DEFT_F32, 0, 1);
}

static void normal(const table_call *c)
{
    c->out[0] = deft_normal(c->cx, c->rng, DEFT_SHAPE(c->n[0]), DEFT_F32, 0, 1);
}

/* ---- halves ---- */

/* (x y + x) y - x / 2, each result rounded */
static void half_chain(const table_call *c)
{
    deft_tensor *const x = c->in[0], *const y = c->in[1];
    deft_tensor *const s = deft_mul(deft_add(deft_mul(x, y), x), y);
    c->out[0] = deft_sub(s, deft_mul(x, table_num(c, 0.5)));
}

/* ---- integers ---- */

/* ((3 x + y) ^ (x >> 3)) & 65535 */
static void integer_chain(const table_call *c)
{
    deft_tensor *const x = c->in[0], *const y = c->in[1];
    deft_tensor *const sum = deft_add(deft_mul(x, deft_const_i(c->cx, 3)), y);
    deft_tensor *const mixed = deft_bitwise_xor(sum, deft_shift_right(x, deft_const_i(c->cx, 3)));
    c->out[0] = deft_bitwise_and(mixed, deft_const_i(c->cx, 65535));
}

static void bins(const table_call *c)
{
    deft_tensor *const zeros = deft_zeros(c->cx, DEFT_SHAPE(c->n[1]), DEFT_I32);
    c->out[0] = deft_index_add(zeros, c->in[0], deft_const_i(c->cx, 1), 0);
}

static void sort(const table_call *c)
{
    c->out[0] = deft_sort(c->in[0], 1, false);
}

/* The k greatest of each row, with their places. */
static void top_k(const table_call *c)
{
    c->out[0] = deft_topk(c->in[0], c->n[2], 1, true, &c->out[1]);
}

const table_row table_maps[] = {
    { "elementwise/chain",
      "f32 a; f32 a",
      1,
      2e-5,
      0,
      chain,
      { { 1 << 20 }, { 900000 }, { 1300000 } } },
    { "elementwise/chain_small",
      "f32 a; f32 a",
      1,
      2e-5,
      0,
      chain,
      { { 4096 }, { 4000 }, { 5000 } } },
    { "elementwise/gelu", "f32 a", 1, 2e-5, 0, gelu, { { 1 << 20 }, { 900000 }, { 1300000 } } },
    { "elementwise/axpy",
      "f32 a; f32 a",
      1,
      2e-5,
      TABLE_MEMORY,
      saxpy,
      { { 1 << 22 }, { 4000000 }, { 5000000 } } },
    { "elementwise/select",
      "f32 a; f32 a",
      1,
      2e-5,
      TABLE_MEMORY,
      select,
      { { 1 << 22 }, { 4000000 }, { 5000000 } } },
    { "elementwise/broadcast",
      "f32 a; f32 b; f32 ab",
      1,
      2e-5,
      0,
      broadcast,
      { { 1024, 1024 }, { 1000, 1200 }, { 777, 1500 } } },
    { "elementwise/magnitude",
      "f32 a; f32 a",
      1,
      2e-5,
      TABLE_MEMORY,
      magnitude,
      { { 1 << 22 }, { 4000000 }, { 5000000 } } },
    { "elementwise/adam",
      "f32 a !; f32 a 0!; f32 a 0!; f32 a",
      0,
      1e-5,
      TABLE_MEMORY,
      adam,
      { { 1 << 22 }, { 4000000 }, { 3000000 } } },

    { "reductions/sum_all",
      "f32 a +",
      1,
      1e-5,
      TABLE_MEMORY,
      sum_all,
      { { 1 << 22 }, { 4000000 }, { 5000000 } } },
    { "reductions/sum_rows",
      "f32 ab +",
      1,
      1e-5,
      TABLE_MEMORY,
      sum_rows,
      { { 4096, 1024 }, { 5000, 1000 }, { 2048, 2048 } } },
    { "reductions/sum_columns",
      "f32 ab +",
      1,
      1e-5,
      TABLE_MEMORY,
      sum_columns,
      { { 4096, 1024 }, { 5000, 1000 }, { 2048, 2048 } } },
    { "reductions/mean_squared_error",
      "f32 a; f32 a",
      1,
      1e-5,
      TABLE_MEMORY,
      mean_squared_error,
      { { 1 << 22 }, { 4000000 }, { 3000000 } } },
    { "reductions/softmax",
      "f32 ab",
      1,
      1e-5,
      0,
      softmax,
      { { 2048, 512 }, { 2000, 500 }, { 1024, 1024 } } },
    { "reductions/log_sum_exp",
      "f32 ab",
      1,
      1e-5,
      0,
      log_sum_exp,
      { { 2048, 512 }, { 2000, 500 }, { 1024, 1024 } } },
    { "reductions/deviation_rows",
      "f32 ab",
      1,
      1e-5,
      0,
      deviation,
      { { 2048, 512 }, { 2000, 500 }, { 1024, 1024 } } },
    { "reductions/norm_all",
      "f32 a",
      1,
      5e-4,
      TABLE_MEMORY,
      norm_all,
      { { 1 << 22 }, { 4000000 }, { 5000000 } } },
    { "reductions/unit_rows",
      "f32 ab",
      1,
      1e-5,
      0,
      unit_rows,
      { { 2048, 512 }, { 2000, 500 }, { 1024, 1024 } } },
    { "reductions/argmax_rows",
      "f32 ab",
      1,
      0,
      0,
      greatest_at,
      { { 2048, 512 }, { 2000, 500 }, { 1024, 1024 } } },
    { "reductions/cumsum_rows",
      "f32 ab",
      1,
      1e-5,
      0,
      cumsum_rows,
      { { 2048, 512 }, { 2000, 500 }, { 1024, 1024 } } },
    { "reductions/cumsum_columns",
      "f32 ab",
      1,
      1e-5,
      0,
      cumsum_columns,
      { { 2048, 512 }, { 2000, 500 }, { 1024, 1024 } } },

    { "random/uniform", "", 1, 1, TABLE_RANDOM, uniform, { { 1 << 20 }, { 900000 }, { 1300000 } } },
    { "random/normal",
      "",
      1,
      1,
      TABLE_RANDOM | TABLE_STANDARD,
      normal,
      { { 1 << 20 }, { 900000 }, { 1300000 } } },

    { "halves/bf16_chain",
      "bf16 a; bf16 a",
      1,
      0.01,
      TABLE_MEMORY | TABLE_ON_AVERAGE,
      half_chain,
      { { 1 << 22 }, { 4000000 }, { 5000000 } } },
    { "halves/f16_chain",
      "f16 a; f16 a",
      1,
      0.001,
      TABLE_MEMORY | TABLE_ON_AVERAGE,
      half_chain,
      { { 1 << 22 }, { 4000000 }, { 5000000 } } },
    { "halves/bf16_gelu",
      "bf16 a",
      1,
      0.01,
      TABLE_ON_AVERAGE,
      gelu,
      { { 1 << 20 }, { 900000 }, { 1300000 } } },

    { "integers/chain",
      "i32 a <b; i32 a <b",
      1,
      0,
      TABLE_MEMORY,
      integer_chain,
      { { 1 << 22, 1 << 20 }, { 4000000, 99999 }, { 5000000, 77777 } } },
    { "integers/bins",
      "i32 a <b",
      1,
      0,
      0,
      bins,
      { { 1 << 20, 256 }, { 1000000, 1000 }, { 1300000, 100 } } },
    { "integers/sort", "f32 ab", 1, 0, 0, sort, { { 256, 1024 }, { 200, 1500 }, { 64, 4096 } } },
    { "integers/top_k",
      "f32 ab",
      2,
      0,
      0,
      top_k,
      { { 64, 8192, 8 }, { 32, 16000, 10 }, { 128, 5000, 5 } } },
    { 0 },
};
