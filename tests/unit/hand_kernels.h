/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels by hand, for the tests of the runtime, and what they must compute: the order of
 * reductions once more, as plainly as can be.
 */
#ifndef TEST_HAND_KERNELS_H
#define TEST_HAND_KERNELS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "fuser/plan.h"

#define LEN(a) (sizeof(a) / sizeof *(a))
static const float inf = INFINITY, nan_f = NAN;

static inline uint64_t bits_f32(float v)
{
    uint32_t u;
    memcpy(&u, &v, 4);
    return u;
}

static inline uint64_t bits_f64(double v)
{
    uint64_t u;
    memcpy(&u, &v, 8);
    return u;
}

static inline size_t size_of(int dtype)
{
    return deft_dtype_size((deft_dtype)dtype);
}

#define F(x) bits_f32(x)
#define D(x) bits_f64(x)
#define I(x) ((uint64_t)(uint32_t)(int32_t)(x))
#define L(x) ((uint64_t)(int64_t)(x))
#define U(x) ((uint64_t)(uint8_t)(x))
#define H(x) ((uint64_t)(uint16_t)(x))

/* ---- building ---- */

typedef struct kb {
    df_kernel k;
    df_ins ins[64];
    df_access access[12];
    char key[8192];
} kb;

static inline void kb_init(kb *b, df_mode mode, const char *roles, uint8_t n_stages)
{
    memset(b, 0, sizeof *b);
    b->k.mode = (uint8_t)mode;
    b->k.n_stages = n_stages;
    b->k.ins = b->ins;
    b->k.access = b->access;
    b->k.cost = 1;
    for (; *roles; roles++)
        b->k.role[b->k.n_axes++] = *roles == 'o'   ? DF_AXIS_OUTER
                                   : *roles == 'r' ? DF_AXIS_RED
                                                   : DF_AXIS_INNER;
}

/* steps: per axis '0', '1' or 's'. */
static inline uint32_t kb_access(kb *b, df_access_kind kind, int dtype, const char *steps)
{
    const uint32_t i = b->k.n_access++;
    b->access[i] = (df_access){ .kind = (uint8_t)kind, .dtype = (uint8_t)dtype, .same_as = i };
    for (uint32_t j = 0; steps && steps[j]; j++)
        b->access[i].step[j] = steps[j] == '0'   ? DF_STEP_ZERO
                               : steps[j] == '1' ? DF_STEP_UNIT
                                                 : DF_STEP_ANY;
    return i;
}

static inline uint32_t kb_at(kb *b, int stage, int level, df_kop op, int dtype, uint32_t x,
                             uint32_t y, uint32_t z, uint64_t imm)
{
    if (b->k.n_ins == LEN(b->ins)) abort();
    b->ins[b->k.n_ins] = (df_ins){ .op = (uint8_t)op,
                                   .dtype = (uint8_t)dtype,
                                   .stage = (uint8_t)stage,
                                   .level = (uint8_t)level,
                                   .src = { x, y, z },
                                   .imm = imm };
    b->k.cost = b->k.n_ins + 1;
    return b->k.n_ins++;
}

static inline uint32_t kb_ins(kb *b, df_kop op, int dtype, uint32_t x, uint32_t y, uint32_t z,
                              uint64_t imm)
{
    return kb_at(b, 0, DF_LEVEL_ELEM, op, dtype, x, y, z, imm);
}

static inline void kb_seal(kb *b)
{
    char *at = b->key;
    memcpy(at, &b->k, offsetof(df_kernel, access)), at += offsetof(df_kernel, access);
    memcpy(at, b->access, sizeof *b->access * b->k.n_access),
        at += sizeof *b->access * b->k.n_access;
    memcpy(at, b->ins, sizeof *b->ins * b->k.n_ins), at += sizeof *b->ins * b->k.n_ins;
    b->k.key.bytes = b->key;
    b->k.key.n = (size_t)(at - b->key);
    b->k.key.hash = df_hash_bytes(b->key, b->k.key.n);
}

/* ---- values ---- */

static inline uint64_t random_next(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline float *random_floats(size_t n, uint64_t seed)
{
    float *const v = malloc(n * sizeof *v + 64);
    for (size_t i = 0; i < n; i++)
        v[i] = 1 + (float)(int32_t)random_next(&seed) * 0x1p-31f * (i % 7 ? 0.001f : 1);
    return v;
}

/* base/limits.h once more, for f32 sums and minima, as plainly as can be. v: element r at r * step.
 */
static inline float join(df_kop op, float a, float b)
{
    return op == DF_K_sum    ? a + b
           : op == DF_K_prod ? a * b
           : op == DF_K_rmin ? (a < b || a != a ? a : b)
                             : (a > b || a != a ? a : b);
}

static inline float naive(df_kop op, const float *v, int64_t step, int64_t n)
{
    const float identity = op == DF_K_sum    ? -0.0f
                           : op == DF_K_prod ? 1
                           : op == DF_K_rmin ? inf
                                             : -inf;
    float stack[64];
    int depth = 0;
    if (n == 0) return op == DF_K_sum ? 0 : identity;
    for (int64_t b = 0; b * DF_BLOCK < n; b++) {
        float acc[DF_LANES];
        for (int j = 0; j < DF_LANES; j++) acc[j] = identity;
        for (int64_t r = b * DF_BLOCK; r < n && r < (b + 1) * DF_BLOCK; r++)
            acc[r % DF_LANES] = join(op, acc[r % DF_LANES], v[r * step]);
        for (int h = 32; h >= 1; h /= 2)
            for (int j = 0; j < h; j++) acc[j] = join(op, acc[j], acc[j + h]);
        stack[depth++] = acc[0];
        for (int64_t c = b + 1; c % 2 == 0; c /= 2, depth--)
            stack[depth - 2] = join(op, stack[depth - 2], stack[depth - 1]);
    }
    for (; depth > 1; depth--) stack[depth - 2] = join(op, stack[depth - 2], stack[depth - 1]);
    return stack[0];
}

/* ---- two kernels ---- */

static const df_kop fold_ops[] = { DF_K_sum, DF_K_prod, DF_K_rmin, DF_K_rmax };

/* y[o, op] = op over r of x[o, r], and z = the sum + 1: all four and an epilogue in one kernel. */
static inline void build_fold(kb *b, df_mode mode, const char *roles, const char *in,
                              const char *out)
{
    kb_init(b, mode, roles, 2);
    b->k.flags = DF_KERNEL_SPLIT;
    const uint32_t x =
        kb_ins(b, DF_K_load, DEFT_F32, 0, 0, 0, kb_access(b, DF_ACCESS_LOAD, DEFT_F32, in));
    uint32_t red[4], one;
    for (int i = 0; i < 4; i++) red[i] = kb_ins(b, fold_ops[i], DEFT_F32, x, 0, 0, 0);
    for (int i = 0; i < 4; i++)
        kb_at(b, 1, DF_LEVEL_ROW, DF_K_store, DEFT_F32, red[i], 0, 0,
              kb_access(b, DF_ACCESS_STORE, DEFT_F32, out));
    one = kb_at(b, 1, DF_LEVEL_ROW, DF_K_const, DEFT_F32, 0, 0, 0, F(1));
    one = kb_at(b, 1, DF_LEVEL_ROW, DF_K_add, DEFT_F32, red[0], one, 0, 0);
    kb_at(b, 1, DF_LEVEL_ROW, DF_K_store, DEFT_F32, one, 0, 0,
          kb_access(b, DF_ACCESS_STORE, DEFT_F32, out));
    kb_seal(b);
}

/* Three stages, two scratch rows, row-level values read by later inner loops: e = 2 max - x, y = e
 * / sum(e) + x + max. */
static inline void build_stages(kb *b)
{
    kb_init(b, DF_MODE_ROW, "or", 3);
    const uint32_t in = kb_access(b, DF_ACCESS_LOAD, DEFT_F32, "s1");
    const uint32_t keep = kb_access(b, DF_ACCESS_SCRATCH, DEFT_F32, "01");
    const uint32_t again = kb_access(b, DF_ACCESS_SCRATCH, DEFT_F32, "01");
    const uint32_t other = kb_access(b, DF_ACCESS_SCRATCH, DEFT_F32, "01");
    const uint32_t to = kb_access(b, DF_ACCESS_STORE, DEFT_F32, "s1");
    b->access[again].same_as = keep;
    const uint32_t x = kb_at(b, 0, DF_LEVEL_ELEM, DF_K_load, DEFT_F32, 0, 0, 0, in);
    const uint32_t m = kb_at(b, 0, DF_LEVEL_ELEM, DF_K_rmax, DEFT_F32, x, 0, 0, 0);
    const uint32_t two = kb_at(b, 1, DF_LEVEL_ROW, DF_K_const, DEFT_F32, 0, 0, 0, F(2));
    const uint32_t m2 = kb_at(b, 1, DF_LEVEL_ROW, DF_K_mul, DEFT_F32, m, two, 0, 0);
    const uint32_t x2 = kb_at(b, 1, DF_LEVEL_ELEM, DF_K_load, DEFT_F32, 0, 0, 0, in);
    const uint32_t e = kb_at(b, 1, DF_LEVEL_ELEM, DF_K_sub, DEFT_F32, m2, x2, 0, 0);
    kb_at(b, 1, DF_LEVEL_ELEM, DF_K_store, DEFT_F32, e, 0, 0, keep);
    const uint32_t f = kb_at(b, 1, DF_LEVEL_ELEM, DF_K_add, DEFT_F32, x2, m, 0, 0);
    kb_at(b, 1, DF_LEVEL_ELEM, DF_K_store, DEFT_F32, f, 0, 0, other);
    const uint32_t s = kb_at(b, 1, DF_LEVEL_ELEM, DF_K_sum, DEFT_F32, e, 0, 0, 0);
    const uint32_t k = kb_at(b, 2, DF_LEVEL_ELEM, DF_K_load, DEFT_F32, 0, 0, 0, again);
    const uint32_t g = kb_at(b, 2, DF_LEVEL_ELEM, DF_K_load, DEFT_F32, 0, 0, 0, other);
    const uint32_t q = kb_at(b, 2, DF_LEVEL_ELEM, DF_K_div, DEFT_F32, k, s, 0, 0);
    const uint32_t y = kb_at(b, 2, DF_LEVEL_ELEM, DF_K_add, DEFT_F32, q, g, 0, 0);
    kb_at(b, 2, DF_LEVEL_ELEM, DF_K_store, DEFT_F32, y, 0, 0, to);
    kb_seal(b);
}

static inline void naive_stages(const float *x, int64_t n, float *y)
{
    float *const e = malloc((size_t)n * sizeof *e);
    const float m = naive(DF_K_rmax, x, 1, n);
    for (int64_t i = 0; i < n; i++) e[i] = m * 2 - x[i];
    const float s = naive(DF_K_sum, e, 1, n);
    for (int64_t i = 0; i < n; i++) y[i] = e[i] / s + (x[i] + m);
    free(e);
}

#endif
