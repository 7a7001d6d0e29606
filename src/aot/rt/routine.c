/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting, positions, and values that meet elements at indices, in exported programs. The bits are
 * those of src/runtime/sort and src/runtime/exec/scatter.c, which are faster and have many times
 * the code.
 *
 * Rows are sorted by their keys, least digits first, so that equal keys keep their order.
 */
#include "aot/rt/image.h"

/* ---- elements ---- */

static uint64_t routine_bits(const char *at, uint32_t bytes)
{
    uint8_t b1;
    uint16_t b2;
    uint32_t b4;
    uint64_t b8;
    if (bytes == 1) return memcpy(&b1, at, 1), b1;
    if (bytes == 2) return memcpy(&b2, at, 2), b2;
    if (bytes == 4) return memcpy(&b4, at, 4), b4;
    return memcpy(&b8, at, 8), b8;
}

static void routine_store(char *at, uint64_t bits, uint32_t bytes)
{
    const uint8_t b1 = (uint8_t)bits;
    const uint16_t b2 = (uint16_t)bits;
    const uint32_t b4 = (uint32_t)bits;
    if (bytes == 1) memcpy(at, &b1, 1);
    if (bytes == 2) memcpy(at, &b2, 2);
    if (bytes == 4) memcpy(at, &b4, 4);
    if (bytes == 8) memcpy(at, &bits, 8);
}

static aot_type routine_type_a(const aot_routine *x)
{
    return (aot_type){ x->a_kind, x->a_bytes };
}

static aot_type routine_type_b(const aot_routine *x)
{
    return (aot_type){ x->b_kind, x->b_bytes };
}

/* The integer that the bits are. */
static int64_t routine_integer(uint64_t bits, aot_type t)
{
    const uint32_t unused = 64 - 8 * t.bytes;
    if (t.kind == AOT_UNSIGNED || unused == 0) return (int64_t)bits;
    const uint64_t sign = UINT64_C(1) << (8 * t.bytes - 1);
    return (int64_t)((bits ^ sign) - sign);
}

/* A number with the order of the elements. All NaNs have one, and both zeros have one. */
static uint64_t routine_key(uint64_t bits, aot_type t, uint32_t flags)
{
    const uint64_t all = ~UINT64_C(0) >> (64 - 8 * t.bytes), sign = all ^ all >> 1;
    uint64_t key = bits;
    if (t.kind == AOT_SIGNED) key ^= sign;
    if (t.kind >= AOT_FLOAT) {
        const uint64_t magnitude = bits & ~sign;
        const uint64_t infinite = t.kind == AOT_F16    ? 0x7C00u
                                  : t.kind == AOT_BF16 ? 0x7F80u
                                  : t.bytes == 4       ? 0x7F800000u
                                                       : UINT64_C(0x7FF0000000000000);
        key = bits & sign ? bits ^ all : bits | sign;
        if (magnitude == 0) key = sign;
        if (magnitude > infinite) key = all;
    }
    return flags & AOT_DESCENDING ? key ^ all : key;
}

/* ---- orders ---- */

typedef struct routine_word {
    uint64_t key;
    int64_t at;
} routine_word;

/* Sorts n words by a digit of 8 bits. Returns 0 when all have the same one. */
static int routine_sort_digit(const routine_word *from, routine_word *to, int64_t n, uint32_t shift)
{
    int64_t next[256] = { 0 }, sum = 0;
    for (int64_t i = 0; i < n; i++) next[from[i].key >> shift & 255]++;
    if (next[from[0].key >> shift & 255] == n) return 0;
    for (int d = 0; d < 256; d++) {
        const int64_t here = next[d];
        next[d] = sum;
        sum += here;
    }
    for (int64_t i = 0; i < n; i++) to[next[from[i].key >> shift & 255]++] = from[i];
    return 1;
}

static void routine_sort_row(const aot_routine_job *j, const char *in, char *out, char *work)
{
    const aot_routine *const x = j->what;
    const int64_t step = j->step * x->a_bytes;
    routine_word *from = (routine_word *)(void *)work, *to = from + j->n;
    for (int64_t i = 0; i < j->n; i++) {
        from[i].key =
            routine_key(routine_bits(in + i * step, x->a_bytes), routine_type_a(x), x->flags);
        from[i].at = i;
    }
    for (uint32_t shift = 0; shift < 8 * x->a_bytes; shift += 8) {
        if (!routine_sort_digit(from, to, j->n, shift)) continue;
        routine_word *const sorted = to;
        to = from;
        from = sorted;
    }
    for (int64_t i = 0; i < j->m; i++) {
        const int64_t at = from[j->first + i].at;
        if (x->op == AOT_SORT)
            routine_store(out + i * x->a_bytes, routine_bits(in + at * step, x->a_bytes),
                          x->a_bytes);
        else
            routine_store(out + 8 * i, (uint64_t)at, 8);
    }
}

/* The offset of position p of a box, in elements. */
static int64_t routine_offset(const aot_routine_job *j, const int64_t *stride, int64_t p)
{
    int64_t sum = 0;
    for (uint32_t i = j->what->rank; i-- > 0; p /= j->extent[i])
        sum += p % j->extent[i] * stride[i];
    return sum;
}

static int64_t routine_count(const aot_routine_job *j)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < j->what->rank; i++) n *= j->extent[i];
    return n;
}

static void routine_sort(const aot_routine_job *j, int64_t part, int64_t parts, char *work)
{
    const aot_routine *const x = j->what;
    const int64_t rows = routine_count(j);
    const int64_t begin = rows / parts * part + rows % parts * part / parts;
    const int64_t end = rows / parts * (part + 1) + rows % parts * (part + 1) / parts;
    const int64_t size = x->op == AOT_SORT ? x->a_bytes : 8;
    for (int64_t row = begin; row < end && j->m > 0; row++)
        routine_sort_row(j, j->a + routine_offset(j, j->a_stride, row) * x->a_bytes,
                         j->c + row * j->m * size, work);
}

/* ---- positions ---- */

static int routine_is_set(uint64_t bits, aot_type t)
{
    const uint64_t sign = UINT64_C(1) << (8 * t.bytes - 1);
    return (t.kind >= AOT_FLOAT ? bits & ~sign : bits) != 0;
}

static void routine_find(const aot_routine_job *j)
{
    const aot_routine *const x = j->what;
    const int is_which = x->op == AOT_WHICH;
    const aot_type t = is_which ? routine_type_a(x) : routine_type_b(x);
    const char *const tested = is_which ? j->a : j->b;
    const int64_t step = (is_which ? j->step : j->b_step) * t.bytes;
    const int64_t size = is_which ? 8 : x->a_bytes;
    int64_t k = 0;
    for (int64_t i = 0; i < j->n && k < j->m; i++) {
        if (!routine_is_set(routine_bits(tested + i * step, t.bytes), t)) continue;
        const uint64_t bits =
            is_which ? (uint64_t)i : routine_bits(j->a + i * j->step * size, x->a_bytes);
        routine_store(j->c + k++ * size, bits, (uint32_t)size);
    }
    for (; k < j->m; k++)
        routine_store(j->c + k * size, is_which && !(x->flags & AOT_ZEROS) ? ~UINT64_C(0) : 0,
                      (uint32_t)size);
}

/* ---- values at indices ---- */

/* x is the element so far, y the value. The interpreter's min and max give the same bits. */
static uint64_t routine_combine_f32(uint32_t op, uint64_t a, uint64_t b)
{
    const uint32_t a4 = (uint32_t)a, b4 = (uint32_t)b;
    float x, y;
    uint32_t bits;
    memcpy(&x, &a4, 4);
    memcpy(&y, &b4, 4);
    if (op == AOT_ADD) x = x + y;
    if (op == AOT_MUL) x = x * y;
    if (op == AOT_MIN) x = x < y || x != x ? x : y;
    if (op == AOT_MAX) x = x > y || x != x ? x : y;
    memcpy(&bits, &x, 4);
    return bits;
}

static uint64_t routine_combine_f64(uint32_t op, uint64_t a, uint64_t b)
{
    double x, y;
    uint64_t bits;
    memcpy(&x, &a, 8);
    memcpy(&y, &b, 8);
    if (op == AOT_ADD) x = x + y;
    if (op == AOT_MUL) x = x * y;
    if (op == AOT_MIN) x = x < y || x != x ? x : y;
    if (op == AOT_MAX) x = x > y || x != x ? x : y;
    memcpy(&bits, &x, 8);
    return bits;
}

static uint64_t routine_combine(uint32_t op, aot_type t, uint64_t a, uint64_t b)
{
    if (op == AOT_SET) return b;
    if (t.kind == AOT_FLOAT)
        return t.bytes == 4 ? routine_combine_f32(op, a, b) : routine_combine_f64(op, a, b);
    if (op == AOT_ADD) return a + b;
    if (op == AOT_MUL) return a * b;
    const int is_less =
        t.kind == AOT_SIGNED ? routine_integer(a, t) < routine_integer(b, t) : a < b;
    return is_less == (op == AOT_MIN) ? a : b;
}

/* The axis that shares divide: the longest one that is an axis of c. Then no two shares meet an
 * element. rank: there is none. */
static uint32_t routine_divided_axis(const aot_routine_job *j)
{
    const uint32_t rank = j->what->rank;
    uint32_t axis = rank;
    for (uint32_t i = 0; i < rank; i++)
        if (j->c_stride[i] != 0 && (axis == rank || j->extent[i] > j->extent[axis])) axis = i;
    return axis;
}

/* Every element of c meets its values in row-major order, because a share goes through all values
 * of its elements in that order. */
static int routine_scatter(const aot_routine_job *given, int64_t part, int64_t parts)
{
    aot_routine_job own = *given;
    aot_routine_job *const j = &own;
    const aot_type t = routine_type_b(j->what), index = routine_type_a(j->what);
    const uint32_t rank = j->what->rank, axis = routine_divided_axis(j);
    if (axis == rank && part > 0) return 0;
    if (axis < rank) {
        const int64_t n = j->extent[axis];
        const int64_t begin = n / parts * part + n % parts * part / parts;
        const int64_t end = n / parts * (part + 1) + n % parts * (part + 1) / parts;
        j->a += begin * j->a_stride[axis] * index.bytes;
        j->b += begin * j->b_stride[axis] * t.bytes;
        j->c += begin * j->c_stride[axis] * t.bytes;
        j->extent[axis] = end - begin;
    }
    int64_t at[AOT_MOST_RANK] = { 0 };
    const char *a = j->a, *b = j->b;
    char *c = j->c;
    for (int64_t left = routine_count(j); left > 0; left--) {
        int64_t i = routine_integer(routine_bits(a, index.bytes), index);
        if (index.kind == AOT_UNSIGNED && i < 0) return 1;
        if (i < 0) i += j->n;
        if (i < 0 || i >= j->n) return 1;
        char *const to = c + i * j->step * t.bytes;
        const uint64_t bits = routine_bits(b, t.bytes);
        routine_store(to, routine_combine(j->what->op, t, routine_bits(to, t.bytes), bits),
                      t.bytes);
        for (uint32_t x = rank; x-- > 0;) {
            const int64_t steps = ++at[x] < j->extent[x] ? 1 : 1 - j->extent[x];
            a += steps * j->a_stride[x] * index.bytes;
            b += steps * j->b_stride[x] * t.bytes;
            c += steps * j->c_stride[x] * t.bytes;
            if (at[x] < j->extent[x]) break;
            at[x] = 0;
        }
    }
    return 0;
}

/* ---- image.h ---- */

AOT_API int deft_aot_routine(const aot_routine_job *j, int64_t part, int64_t parts, char *work);

AOT_API int deft_aot_routine(const aot_routine_job *j, int64_t part, int64_t parts, char *work)
{
    if (j->what->op >= AOT_ADD) return routine_scatter(j, part, parts);
    if (j->what->op <= AOT_TOPK)
        routine_sort(j, part, parts, work);
    else if (part == 0)
        routine_find(j);
    return 0;
}
