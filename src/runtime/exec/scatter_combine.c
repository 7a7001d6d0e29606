/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops of scatters that set, multiply, or take the least or the greatest. A chunk of
 * indices first becomes the places of the elements and of their values. One loop for each kind of
 * combination and each dtype then goes over these places.
 */
#include "runtime/exec/scatter_add.h"

#include "base/compiler.h"

#include <string.h>

enum { CHUNK = DF_SCATTER_CHUNK };

typedef df_scatter_nest nest;

/* Up to CHUNK elements of out and their values, as offsets in elements. */
typedef struct places {
    int64_t n, to[CHUNK], from[CHUNK];
} places;

typedef void (*combine_fn)(void *out, const void *value, const places *p);

/* x is the element so far, y the value. */
#define COMBINE(name, T, expr)                                                                     \
    static void name(void *out_at, const void *value_at, const places *p)                          \
    {                                                                                              \
        typedef T DF_ANYWHERE element;                                                             \
        element *const out = out_at;                                                               \
        const element *const value = value_at;                                                     \
        for (int64_t i = 0; i < p->n; i++) {                                                       \
            const T x = out[p->to[i]], y = value[p->from[i]];                                      \
            (void)x;                                                                               \
            out[p->to[i]] = (T)(expr);                                                             \
        }                                                                                          \
    }

COMBINE(set_8, uint8_t, y)
COMBINE(set_16, uint16_t, y)
COMBINE(set_32, uint32_t, y)
COMBINE(set_64, uint64_t, y)

/* The interpreter's min and max give the same bits (interp_ops.def). Integers wrap, so they are
 * multiplied as unsigned integers of their size, which naturals are. Halves get here only to be
 * set: plans combine them as f32. */
#define LOOPS_boolean(name, T)
#define LOOPS_natural(name, T)                                                                     \
    COMBINE(mul_##name, T, (uint64_t)x *y)                                                         \
    LOOPS_integer(name, T)
#define LOOPS_integer(name, T)                                                                     \
    COMBINE(min_##name, T, x < y ? x : y)                                                          \
    COMBINE(max_##name, T, x > y ? x : y)
#define LOOPS_real(name, T)                                                                        \
    COMBINE(mul_##name, T, x *y)                                                                   \
    COMBINE(min_##name, T, x < y || x != x ? x : y)                                                \
    COMBINE(max_##name, T, x > y || x != x ? x : y)
#define LOOPS_half(name, T)
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file) LOOPS_##kind(name, c_type)
#include "ops/dtypes.def"

typedef struct loops {
    combine_fn set, mul, min, max; /* NULL: no plan asks for it */
} loops;

#define ALL(set, mul, name)                                                                        \
    {                                                                                              \
        set, mul, min_##name, max_##name                                                           \
    }
#define OF_boolean(name, bits)                                                                     \
    {                                                                                              \
        set_##bits, NULL, NULL, NULL                                                               \
    }
#define OF_natural(name, bits) ALL(set_##bits, mul_u##bits, name)
#define OF_integer(name, bits) ALL(set_##bits, mul_u##bits, name)
#define OF_real(name, bits) ALL(set_##bits, mul_##name, name)
#define OF_half(name, bits)                                                                        \
    {                                                                                              \
        set_##bits, NULL, NULL, NULL                                                               \
    }
static const loops loops_of[DEFT_N_DTYPES] = {
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file)                                \
    [DEFT_##NAME] = OF_##kind(name, bits),
#include "ops/dtypes.def"
};

static combine_fn loop_of(df_scatter_how how, deft_dtype t)
{
    const loops *const l = &loops_of[t];
    switch (how) {
    case DF_SCATTER_ADD: break;
    case DF_SCATTER_SET: return l->set;
    case DF_SCATTER_MUL: return l->mul;
    case DF_SCATTER_MIN: return l->min;
    case DF_SCATTER_MAX: return l->max;
    }
    df_unreachable();
}

/* n neighbours at out and value. */
static void combine_neighbours(const nest *x, char *out, const char *value, int64_t n)
{
    static const uint8_t folds[] = { [DF_SCATTER_MUL] = DF_K_prod - DF_K_sum,
                                     [DF_SCATTER_MIN] = DF_K_rmin - DF_K_sum,
                                     [DF_SCATTER_MAX] = DF_K_rmax - DF_K_sum };
    const int64_t size = (int64_t)deft_dtype_size(x->dtype);
    if (x->how == DF_SCATTER_SET) {
        memcpy(out, value, (size_t)(n * size));
        return;
    }
    df_scatter_fold(x->ops->fold[folds[x->how]][x->dtype], out, value, n, (size_t)size);
}

/* The line of values that begins at `value`, with an index for each or one for all. */
static bool combine_line(const nest *x, const char *index, char *out, const char *value)
{
    const combine_fn run = loop_of(x->how, x->dtype);
    const bool one = x->index_step[0] == 0, plain = x->out_step[0] == 1 && x->value_step[0] == 1;
    const int64_t bytes = (int64_t)deft_dtype_size(x->index_dtype) * x->index_step[0];
    int64_t copy[CHUNK];
    places p;
    bool ok = true;
    for (int64_t begin = 0; begin < x->extent[0]; begin += CHUNK) {
        const int64_t n = df_min_i64(x->extent[0] - begin, CHUNK);
        const df_any_i64 *const some = df_scatter_indices(
            x->ops, x->index_dtype, index + begin * bytes, x->index_step[0], one ? 1 : n, copy);
        if (one && plain) {
            int64_t at = some[0];
            if (df_scatter_takes(x, &at, &ok))
                combine_neighbours(x, out + at * x->step * (int64_t)deft_dtype_size(x->dtype),
                                   value, x->extent[0]);
            return ok;
        }
        p.n = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = some[one ? 0 : i];
            p.from[p.n] = (begin + i) * x->value_step[0];
            const bool is_taken = df_scatter_takes(x, &at, &ok);
            p.to[p.n] = (is_taken ? at : 0) * x->step + (begin + i) * x->out_step[0];
            p.n += is_taken; /* no branch: select_taken of scatter_add.c */
        }
        run(out, value, &p);
    }
    return ok;
}

bool df_scatter_nest_combine(const df_scatter_nest *x, char *out, const char *value)
{
    const int64_t size = (int64_t)deft_dtype_size(x->dtype);
    const int64_t bytes = (int64_t)deft_dtype_size(x->index_dtype) * x->index_step[1];
    bool ok = true;
    df_assert(x->how != DF_SCATTER_ADD && x->way == 0);
    for (int64_t i = 0; i < x->extent[1]; i++)
        ok &= combine_line(x, x->index + i * bytes, out + i * x->out_step[1] * size,
                           value + i * x->value_step[1] * size);
    return ok;
}
