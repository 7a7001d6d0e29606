/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/matmul/parts.h"

int64_t df_matmul_even_part(int64_t n, int64_t most, int64_t unit)
{
    return n <= most ? df_matmul_round_up(n, unit)
                     : df_matmul_round_up(df_div_up(n, df_div_up(n, most)), unit);
}

int64_t df_matmul_fair_part(int64_t n, int64_t most, int64_t largest, int64_t unit, int64_t others,
                            int64_t n_threads)
{
    const int64_t first = df_matmul_even_part(n, most, unit) / unit, n_units = df_div_up(n, unit);
    int64_t best = first, least = INT64_MAX;
    if (n_threads == 1 || first >= n_units) return first * unit;
    for (int64_t part = first; 2 * part > first; part--) {
        const int64_t n_parts = df_div_up(n_units, part) * others;
        const int64_t longest = df_div_up(n_parts, n_threads) * part;
        if (longest < least) best = part;
        least = df_min_i64(least, longest);
    }
    for (int64_t part = first + 1; part * unit < largest + unit; part++) {
        const int64_t n_parts = df_div_up(n_units, part) * others;
        const int64_t longest = df_div_up(n_parts, n_threads) * part;
        if (longest > least - df_div_up(least, 8)) continue;
        best = part;
        least = longest;
    }
    return best * unit;
}

int64_t df_matmul_balanced_parts(int64_t n_units, int64_t n_parts, int64_t others,
                                 int64_t n_threads)
{
    const int64_t longest = df_div_up(n_parts * others, n_threads) * df_div_up(n_units, n_parts);
    const int64_t least = df_div_up(n_units * others, n_threads);
    if (n_threads == 1 || n_parts == 1 || longest - least <= longest / 32) return n_parts;
    for (int64_t n = n_parts; n <= df_min_i64(2 * n_parts, n_units); n++)
        if (n * others % n_threads == 0) return n;
    return n_parts;
}
