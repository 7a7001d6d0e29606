/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles without vectors: a vector has one lane. On a machine without a fused multiply-add
 * instruction, fma() of libm gives the same bits and is slow.
 */
#include "base/compiler.h"
#include "runtime/matmul/tile.h"

#define T df_any_f32
#define V float
#define W 1
#define MASK int
#define MASK_OF(n) ((int)(n))
#define LOAD(p) (*(p))
#define STORE(p, v) ((void)(*(p) = (v)))
#define LOADM(p, m) ((void)(m), *(p))
#define STOREM(p, m, v) ((void)(m), (void)(*(p) = (v)))
#define SPLAT(p) (*(p))
#define ZERO 0.0f
#define FMA(a, b, c) __builtin_fmaf((a), (b), (c))
#define MR 3
#define NV 3
#define SQ 1
#define LONG 1
#define TRANSPOSE(to, to_row, from, from_row) (*(to) = *(from))
#define TARGET
#define NAME(x) x##_f32
#include "runtime/matmul/tile_body.h"

#define T df_any_f64
#define V double
#define W 1
#define MASK int
#define MASK_OF(n) ((int)(n))
#define LOAD(p) (*(p))
#define STORE(p, v) ((void)(*(p) = (v)))
#define LOADM(p, m) ((void)(m), *(p))
#define STOREM(p, m, v) ((void)(m), (void)(*(p) = (v)))
#define SPLAT(p) (*(p))
#define ZERO 0.0
#define FMA(a, b, c) __builtin_fma((a), (b), (c))
#define MR 3
#define NV 3
#define SQ 1
#define LONG 1
#define TRANSPOSE(to, to_row, from, from_row) (*(to) = *(from))
#define TARGET
#define NAME(x) x##_f64
#include "runtime/matmul/tile_body.h"

const df_tiles df_tiles_base_f32 = { 3,    3, 3,    block_f32, pack_f32,  pack_columns_f32,
                                     NULL, 0, NULL, 0,         sweep_f32, panels_f32 };
const df_tiles df_tiles_base_f64 = { 3,    3, 3,    block_f64, pack_f64,  pack_columns_f64,
                                     NULL, 0, NULL, 0,         sweep_f64, panels_f64 };
