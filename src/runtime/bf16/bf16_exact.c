/* SPDX-License-Identifier: Apache-2.0
 *
 * When products of pairs of bf16 have the bits of the strict chain (bf16.h).
 *
 * Let 2^x and 2^y be the exponents of the smallest elements of A and B other than 0. An element has
 * 8 bits, so each product is a multiple of 2^(x - 7 + y - 7). So is each sum, as rounding to 24
 * bits keeps that. A multiple of 2^-126 is 0 or a normal number.
 */
#include "runtime/matmul.h"
#include "runtime/bf16/bf16.h"

#include "base/half.h"

#include <math.h>
#include <string.h>

enum {
    NO_ELEMENT = 0xffff, /* all elements are 0 */
    FRACTION = 7,        /* bits of the fraction of a bf16 */
    BIAS = 127,
    LEAST_NORMAL = -126,
    MOST_PARTS = 64
};

/* Elements that one task reads. Builds with checks divide small operands, too. */
#ifdef DF_DEBUG
enum { PART = 1 << 8 };
#else
enum { PART = 1 << 16 };
#endif

/* ---- the smallest element ---- */

/* Leaves out axes that lead to no other element, sorts the rest by stride, and merges neighbours.
 */
static void merge_axes(df_bf16_view *v)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->rank; i++) {
        if (v->extent[i] == 1 || v->stride[i] == 0) continue;
        const int64_t extent = v->extent[i], stride = v->stride[i];
        uint32_t at = n++;
        for (; at > 0 && v->stride[at - 1] < stride; at--) {
            v->extent[at] = v->extent[at - 1];
            v->stride[at] = v->stride[at - 1];
        }
        v->extent[at] = extent;
        v->stride[at] = stride;
    }
    v->rank = n;
    for (uint32_t i = n; i-- > 1;) {
        if (v->stride[i - 1] != v->extent[i] * v->stride[i]) continue;
        v->extent[i - 1] *= v->extent[i];
        v->stride[i - 1] = v->stride[i];
        v->rank--;
        for (uint32_t j = i; j < v->rank; j++) {
            v->extent[j] = v->extent[j + 1];
            v->stride[j] = v->stride[j + 1];
        }
    }
}

typedef struct search {
    df_bf16_view view; /* of rank 1 or more; its last axis is the innermost */
    const df_bf16_code *code;
    int64_t n, part; /* elements in all, and of one task */
    uint16_t least[MOST_PARTS];
} search;

static uint16_t least_of_run(const search *s, const uint16_t *from, int64_t n)
{
    const int64_t step = s->view.stride[s->view.rank - 1];
    uint16_t least = NO_ELEMENT;
    if (step == 1) return s->code->least(from, n);
    for (int64_t i = 0; i < n; i++) {
        const uint16_t bits = from[i * step] & 0x7fff;
        if (bits && bits < least) least = bits;
    }
    return least;
}

static void search_part(void *user, uint32_t part, uint32_t thread)
{
    (void)thread;
    search *const s = user;
    const df_bf16_view *const v = &s->view;
    const uint32_t inner = v->rank - 1;
    const int64_t end = df_min_i64((part + 1) * s->part, s->n), run = v->extent[inner];
    uint16_t least = NO_ELEMENT;
    for (int64_t e = part * s->part, n; e < end; e += n) {
        const int64_t x = e % run;
        int64_t offset = x * v->stride[inner], left = e / run;
        for (uint32_t i = inner; i-- > 0; left /= v->extent[i])
            offset += left % v->extent[i] * v->stride[i];
        n = df_min_i64(run - x, end - e);
        const uint16_t here = least_of_run(s, v->at + offset, n);
        if (here < least) least = here;
    }
    s->least[part] = least;
}

uint16_t df_bf16_least(const df_bf16_view *view, df_pool *pool)
{
    search s = { .view = *view, .code = df_bf16_pick(), .n = 1 };
    uint16_t least = NO_ELEMENT;
    for (uint32_t i = 0; i < view->rank; i++)
        if (view->extent[i] == 0) return least;
    merge_axes(&s.view);
    if (s.view.rank == 0) s.view = (df_bf16_view){ view->at, 1, { 1 }, { 1 } };
    for (uint32_t i = 0; i < s.view.rank; i++) s.n *= s.view.extent[i];
    s.part = df_max_i64(PART, df_div_up(s.n, MOST_PARTS));
    const uint32_t n_parts = (uint32_t)df_div_up(s.n, s.part);
    if (n_parts == 1)
        search_part(&s, 0, 0);
    else
        df_pool_run(pool, n_parts, search_part, &s);
    for (uint32_t i = 0; i < n_parts; i++)
        if (s.least[i] < least) least = s.least[i];
    return least;
}

/* ---- the decision ---- */

static uint16_t least_of_operand(const df_matmul_job *j, bool is_a, df_pool *pool)
{
    df_bf16_view v = { .at = (const uint16_t *)(const void *)(is_a ? j->a : j->b),
                       .rank = j->batch_rank + 2,
                       .extent = { is_a ? j->m : j->k, is_a ? j->k : j->n },
                       .stride = { is_a ? j->a_row : j->b_row, is_a ? j->a_col : j->b_col } };
    for (uint32_t i = 0; i < j->batch_rank; i++) {
        v.extent[2 + i] = j->batch_extent[i];
        v.stride[2 + i] = is_a ? j->a_batch[i] : j->b_batch[i];
    }
    return df_bf16_least(&v, pool);
}

bool df_matmul_pairs_are_exact(const df_matmul_job *j, df_pool *pool)
{
    int exponent[2];
    for (int i = 0; i < 2; i++) {
        const uint16_t least = j->least[i] ? j->least[i] : least_of_operand(j, i == 0, pool);
        if (least == NO_ELEMENT) return true;
        exponent[i] = least >> FRACTION;
        if (exponent[i] == 0) return false; /* a denormal */
    }
    return exponent[0] - BIAS - FRACTION + exponent[1] - BIAS - FRACTION >= LEAST_NORMAL;
}

/* ---- the trial ---- */

bool df_bf16_is_chain(const df_bf16_code *code)
{
    enum { PAIRS = 8, ROWS = 8, COLUMNS = 48 };
    uint32_t a[PAIRS * ROWS], b[(PAIRS + 1) * COLUMNS], state = 1;
    float c[ROWS * COLUMNS];
    if (!code || code->kernel.mr != ROWS || code->kernel.nr != COLUMNS) return false;
    memset(b, 0, sizeof b);
    for (size_t i = 0; i < DF_LEN(a) + PAIRS * COLUMNS; i++) {
        uint32_t pair = 0;
        for (int half = 0; half < 2; half++) { /* magnitudes from 2^-15 to 2: sums round */
            state = state * 1664525u + 1013904223u;
            const uint32_t exponent = BIAS - (state >> 28);
            pair = pair << 16 | (state >> 8 & 0x807f) | exponent << FRACTION;
        }
        *(i < DF_LEN(a) ? &a[i] : &b[i - DF_LEN(a)]) = pair;
    }
    code->kernel.fn(PAIRS, a, b, c, COLUMNS, ROWS, COLUMNS, true, b);
    for (int y = 0; y < ROWS; y++)
        for (int x = 0; x < COLUMNS; x++) {
            float sum = 0;
            for (int p = 0; p < 2 * PAIRS; p++) {
                const uint32_t left = a[p / 2 * ROWS + y], right = b[p / 2 * COLUMNS + x];
                const int by = p % 2 ? 0 : 16;
                sum = fmaf(df_f32_of_bf16((uint16_t)(left >> by)),
                           df_f32_of_bf16((uint16_t)(right >> by)), sum);
            }
            if (df_f32_bits(sum) != df_f32_bits(c[y * COLUMNS + x])) return false;
        }
    return true;
}

df_bf16_use df_matmul_try_bf16(void)
{
    const df_bf16_code *const code = df_bf16_pick();
    return !code ? DF_BF16_NONE : df_bf16_is_chain(code) ? DF_BF16_CHAINS : DF_BF16_FAST;
}

/* Slow pairs beside f32 and the conversion, in us, for m rows of bf16 by 1024 x 1024 on an Intel
 * server. The packed pairs of the second operand were kept, while f32 is converted in each call.
 *
 *   m                      4     16     32     64    128    256
 *   one thread, pairs    276    515    886   1589   2984   5470
 *               f32      404    589    801   1266   2376   3970
 *   two threads, pairs   143    257    421    756   1428   2775
 *                f32     289    402    567    854   1585   2295
 */
bool df_matmul_pairs_pay(const df_matmul_job *job)
{
    enum { MANY = 256 };
    const df_bf16_code *const code = df_bf16_pick();
    return code && (!code->is_slow || df_min_i64(job->m, job->n) < MANY);
}
