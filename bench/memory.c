/* SPDX-License-Identifier: Apache-2.0
 *
 * What does a pending op hold in memory? All bytes a context takes from its allocator while 2^18
 * ops with live handles are pending, per op.
 */
#include "bench.h"

#include <stdlib.h>

typedef struct meter {
    size_t live;
} meter;

static void *metered(void *user, void *old, size_t old_size, size_t new_size)
{
    meter *const m = user;
    void *p = NULL;
    if (new_size)
        p = realloc(old, new_size);
    else
        free(old);
    if (p || !new_size) m->live += new_size - old_size;
    return p;
}

void bench_memory(bench *b)
{
    enum { N = 1 << 18 };
    meter m = { 0 };
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET,
                                     .resize = metered,
                                     .resize_user = &m };
    deft_runtime *rt;
    if (deft_runtime_create(&o, &rt) != DEFT_OK) abort();
    deft_ctx *cx = bench_ctx(rt, DEFT_STRICT);
    const float v = 1;
    deft_tensor *x = deft_from(cx, DEFT_SHAPE(1), DEFT_F32, &v, sizeof v), *y = x;
    const size_t before = m.live;
    for (int i = 0; i < N; i++) y = i % 2 ? deft_add(y, x) : deft_mul(y, x);
    bench_row(b, "record, call site, handle", (double)(m.live - before) / N, "B/op",
              "64 B record alone", 64, BENCH_VALUE_AT_MOST, 80);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}
