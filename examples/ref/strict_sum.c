/* SPDX-License-Identifier: Apache-2.0 */
#include "strict_sum.h"

enum { LANES = 64, BLOCK = 4096 };

static void clear(strict_sum *s)
{
    for (int j = 0; j < LANES; j++) s->acc[j] = -0.0f;
}

static void join_newest_two(strict_sum *s)
{
    s->stack[s->top - 2] += s->stack[s->top - 1];
    s->top--;
}

static void push_block(strict_sum *s, int64_t blocks_so_far)
{
    for (int h = LANES / 2; h > 0; h /= 2)
        for (int j = 0; j < h; j++) s->acc[j] += s->acc[j + h];
    s->stack[s->top++] = s->acc[0];
    for (; blocks_so_far % 2 == 0; blocks_so_far /= 2) join_newest_two(s);
    clear(s);
}

void strict_sum_start(strict_sum *s)
{
    s->top = 0;
    s->count = 0;
    clear(s);
}

void strict_sum_add(strict_sum *s, float value)
{
    s->acc[s->count % LANES] += value;
    if (++s->count % BLOCK == 0) push_block(s, s->count / BLOCK);
}

float strict_sum_end(strict_sum *s)
{
    if (s->count == 0) return 0;
    if (s->count % BLOCK != 0) push_block(s, s->count / BLOCK + 1);
    while (s->top > 1) join_newest_two(s);
    return s->stack[0];
}
