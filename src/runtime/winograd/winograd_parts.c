/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/winograd/winograd_parts.h"

enum { TAPS = DF_WINOGRAD_TAPS, LANES = DF_WINOGRAD_LANES, ALIGN = DF_WINOGRAD_ALIGN };

int64_t df_winograd_skewed(int64_t n)
{
    return (df_div_up(n, LANES) + 3) * LANES;
}

size_t df_winograd_bytes(int64_t n)
{
    return ((size_t)n * sizeof(float) + ALIGN - 1) / ALIGN * ALIGN;
}

char *df_winograd_aligned(void *work)
{
    return (char *)(((uintptr_t)work + ALIGN - 1) / ALIGN * ALIGN);
}

bool df_winograd_find_square(const df_images *m, df_winograd_square *out)
{
    uint32_t seen = 0;
    if (m->n_taps != TAPS || !m->tap) return false;
    out->least[0] = m->tap[0];
    out->least[1] = m->tap[1];
    for (int64_t t = 1; t < TAPS; t++)
        for (int i = 0; i < 2; i++) out->least[i] = df_min_i64(out->least[i], m->tap[2 * t + i]);
    for (int64_t t = 0; t < TAPS; t++) {
        const int64_t y = m->tap[2 * t] - out->least[0], x = m->tap[2 * t + 1] - out->least[1];
        if (y > 2 || x > 2) return false;
        out->where[y * 3 + x] = t;
        seen |= 1u << (y * 3 + x);
    }
    return seen == (1u << TAPS) - 1u;
}

void df_winograd_multiply(const df_gemm_kernel *g, const df_tiles *tiles, int64_t mr,
                          const df_winograd_tile *t)
{
    if (g) {
        g->fn(t->k, t->a, t->b, t->c, t->ld, t->m, t->n, t->first, t->next);
        return;
    }
    tiles->block(&(df_block){ .m = t->m,
                              .n = t->n,
                              .k = t->k,
                              .a = t->a,
                              .b = t->b,
                              .c = t->c,
                              .a_row = 1,
                              .a_col = mr,
                              .b_row = t->nr,
                              .c_row = t->ld,
                              .first = t->first });
}

void df_winograd_run_tasks(df_pool *pool, int64_t n, void (*task)(void *, uint32_t, uint32_t),
                           void *user)
{
    df_assert(n <= UINT32_MAX);
    if (n == 1 || !pool)
        for (int64_t i = 0; i < n; i++) task(user, (uint32_t)i, 0);
    else
        df_pool_run(pool, (uint32_t)n, task, user);
}
