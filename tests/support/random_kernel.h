/* SPDX-License-Identifier: Apache-2.0
 *
 * Random kernels and shapes, for tests of what runs kernels: a body of every mode, over dtypes,
 * strides and data that are awkward now and then; and kernels of one op each. Buffers end at an
 * inaccessible page, so that an element read or written too much is a crash. Where a test cannot go
 * on it says why and aborts.
 */
#ifndef TEST_RANDOM_KERNEL_H
#define TEST_RANDOM_KERNEL_H

#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "runtime/device.h"
#include "support/int_ref.h"
#include "support/half_ref.h"

/* ---- bits ---- */

static inline bool is_half(uint8_t t)
{
    return half_is((deft_dtype)t);
}
static inline uint32_t size_of(uint8_t t)
{
    const int bits = int_ref_bits((deft_dtype)t);
    if (bits) return (uint32_t)bits / 8;
    return t == DEFT_BOOL ? 1 : is_half(t) ? 2 : t == DEFT_F32 ? 4 : 8;
}
static inline bool is_float(uint8_t t)
{
    return t == DEFT_F32 || t == DEFT_F64;
}
static inline bool is_real(uint8_t t)
{
    return is_float(t) || is_half(t);
}

static inline float f32_of(uint64_t b)
{
    const uint32_t w = (uint32_t)b;
    float f;
    memcpy(&f, &w, 4);
    return f;
}

static inline double f64_of(uint64_t b)
{
    double f;
    memcpy(&f, &b, 8);
    return f;
}

static inline uint64_t of_f32(float f)
{
    uint32_t w;
    memcpy(&w, &f, 4);
    return w;
}

static inline uint64_t of_f64(double f)
{
    uint64_t w;
    memcpy(&w, &f, 8);
    return w;
}

/* A float of either size, exactly. */
static inline double real_of(uint8_t t, uint64_t b)
{
    if (is_half(t)) return half_value((deft_dtype)t, (uint16_t)b);
    return t == DEFT_F32 ? (double)f32_of(b) : f64_of(b);
}
static inline uint64_t of_real(uint8_t t, double v)
{
    if (is_half(t)) return half_bits((deft_dtype)t, v);
    return t == DEFT_F32 ? of_f32((float)v) : of_f64(v);
}

static inline int64_t int_of(uint8_t t, uint64_t b)
{
    return int_ref_wrap((deft_dtype)t, (int64_t)b);
}

static inline uint64_t of_int(uint8_t t, uint64_t v)
{
    return t == DEFT_BOOL ? v & 1 : v & UINT64_MAX >> (64 - int_ref_bits((deft_dtype)t));
}

static inline uint64_t load_bits(const char *p, uint8_t t)
{
    const uint64_t b = df_bits_load(p, size_of(t));
    return b;
}

static inline bool same_bits(uint8_t t, uint64_t a, uint64_t b)
{
    return a == b || (is_real(t) && isnan(real_of(t, a)) && isnan(real_of(t, b)));
}

/* The product of the extents of a role. */
static inline int64_t role_extent(const df_kernel *k, const df_kargs *a, df_role role)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < k->n_axes; i++)
        if (k->role[i] == role) n *= a->extent[i];
    return n;
}

/* ---- kernels ---- */

typedef struct walled {
    char *map;
    size_t mapped;
    char *at; /* bytes before the wall */
    size_t bytes;
} walled;

walled walled_take(size_t bytes);

enum { RANDOM_INS = 200, RANDOM_ACCESSES = 40, RANDOM_NUMS = 40, RANDOM_TEAMS = 32 };

typedef struct random_kernel {
    uint64_t seed;
    df_kernel k;
    df_ins ins[RANDOM_INS];
    df_access access[RANDOM_ACCESSES];
    bool is_out[RANDOM_ACCESSES];
    bool is_missing[RANDOM_ACCESSES]; /* the access has no memory, because nothing is loaded */
    uint32_t row_vals[RANDOM_INS], n_row, elem_vals[RANDOM_INS], n_elem;
    uint8_t stage, level;
    bool runs;            /* ROW with several reduced axes */
    const int64_t *given; /* extents of every run; NULL: random ones */
    bool wild;            /* NaN, infinities, huge numbers among the data */
} random_kernel;

/* The kernel that follows from seed. runs: ROW with several reduced axes. Ids of checks are none.
 */
void random_kernel_make(random_kernel *g, uint64_t seed, df_mode mode, bool runs);
/* A given kernel, whose instructions are borrowed; false: it has too many accesses or numbers.
 * SCRATCH has room for RANDOM_TEAMS rows of an even number of elements. */
bool random_kernel_of(random_kernel *g, const df_kernel *k, uint64_t seed);
uint32_t random_pick(random_kernel *g, uint32_t n); /* below n */

/* ---- runs ---- */

typedef struct random_run {
    df_kargs a;
    char *ptr[RANDOM_ACCESSES];
    int64_t stride[RANDOM_ACCESSES * DF_MAX_AXES], base[RANDOM_ACCESSES], extent[DF_MAX_AXES],
        fault[3];
    uint64_t num[RANDOM_NUMS];
    walled mem[RANDOM_ACCESSES];
    char *first[RANDOM_ACCESSES]; /* contents of outputs before */
    char *want[RANDOM_ACCESSES];
    int64_t n_outer, n_inner, length;
    _Alignas(64) char work[DF_TILES_BYTES];
} random_run;

/* Shapes, strides and data for g, which go on from its seed. numbers: of f64 and f32. is_multiple:
 * the last axis' extent is, of DF_FACT_MULTIPLE. */
void random_run_make(random_kernel *g, random_run *r, double f64, float f32, bool is_multiple);
void random_run_keep(random_kernel *g, random_run *r);  /* what outputs hold is what is wanted */
void random_run_reset(random_kernel *g, random_run *r); /* outputs as they were at first */
void random_run_end(random_kernel *g, random_run *r);
/* Whether some output is not as wanted; all NaNs are equal. text says which. */
bool random_run_differs(random_kernel *g, random_run *r, char *text, size_t size);

/* ---- one op ---- */

typedef struct one_op {
    df_kernel k;
    df_ins ins[5];
    df_access access[4];
    uint8_t src, mid; /* dtypes of operand 0, of operands 1 and 2 */
} one_op;

bool one_op_is_known(df_kop op, uint8_t t, uint8_t src); /* to t, of a first operand of src */
void one_op_make(one_op *x, df_kop op, uint8_t t, uint8_t src);
uint64_t awkward_bits(uint8_t t, uint64_t i); /* repeats after 32 */

#endif
