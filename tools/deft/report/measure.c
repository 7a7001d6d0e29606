/* SPDX-License-Identifier: Apache-2.0
 *
 * What this machine can do at most: see parts.h. Both numbers are what can be reached, not what a
 * data sheet says, so that a kernel near them has little left to gain. The best of several rounds
 * counts: whatever else runs takes time from some of them.
 */
#include "parts.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#include "base/mem.h"
#include "deft/deft.h"
#include "runtime/matmul/tile.h"

enum {
    MAX_THREADS = 256,
    SUM_FLOATS = 12 << 20, /* in each array, of all threads together: 144 MiB */
    TILE_K = 128,
};
static const uint64_t ROUND_NS = 8000000, TOTAL_NS = 80000000;

typedef struct worker {
    pthread_t thread;
    float *a, *b, *c; /* a sum: its slices */
    size_t n;
    double rate; /* of the best round, per ns */
    bool is_sum;
} worker;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A sum of arrays: 12 bytes an element. */
static double sum_round(const worker *w)
{
    const uint64_t start = now_ns();
    const float *const a = w->a, *const b = w->b;
    float *const c = w->c;
    for (size_t i = 0; i < w->n; i++) c[i] = a[i] + b[i];
    return 12.0 * (double)w->n / (double)(now_ns() - start + 1);
}

/* One tile of a product, again and again. */
static double product_round(const worker *w)
{
    const df_tiles *const tiles = df_tiles_pick(DEFT_F32);
    const df_block block = { .m = tiles->mr,
                             .n = tiles->nr,
                             .k = TILE_K,
                             .a = w->a,
                             .b = w->b,
                             .c = w->c,
                             .a_row = 1,
                             .a_col = tiles->mr,
                             .b_row = tiles->nr,
                             .c_row = tiles->nr,
                             .first = true };
    const uint64_t start = now_ns();
    uint64_t n = 0, end;
    do {
        for (int i = 0; i < 64; i++) tiles->block(&block);
        n += 64;
        end = now_ns();
    } while (end - start < ROUND_NS);
    return 2.0 * tiles->mr * tiles->nr * (double)TILE_K * (double)n / (double)(end - start);
}

static void *work(void *user)
{
    worker *const w = user;
    for (size_t i = 0; i < w->n; i++) w->a[i] = w->b[i] = w->c[i] = 1;
    const uint64_t start = now_ns();
    do {
        const double rate = w->is_sum ? sum_round(w) : product_round(w);
        if (rate > w->rate) w->rate = rate;
    } while (now_ns() - start < TOTAL_NS);
    return NULL;
}

/* The rates of n threads together, of fewer where no more can be had. Each makes its memory its own
 * before it measures; they take the same time to, and so are at work together. */
static double measure(uint32_t n, bool is_sum)
{
    const size_t each = is_sum ? SUM_FLOATS / n : 64 << 10;
    const size_t bytes = 3 * each * sizeof(float) * n;
    worker *const w = df_mem_zalloc(&df_mem_system, n * sizeof *w);
    float *const memory = df_mem_alloc(&df_mem_system, bytes);
    double rate = 0;
    uint32_t started = 1;
    const uintptr_t page = ((uintptr_t)memory + 4095) & ~(uintptr_t)4095;
    /* Touching it a page at a time would take longer than the measurement. */
    if (memory) (void)madvise((void *)page, (bytes - 4096) & ~(size_t)4095, MADV_HUGEPAGE);
    for (uint32_t i = 0; i < n && w && memory; i++) {
        float *const at = memory + 3 * each * i;
        w[i] = (worker){ .a = at, .b = at + each, .c = at + 2 * each, .n = each, .is_sum = is_sum };
    }
    if (w && memory) {
        while (started < n && !pthread_create(&w[started].thread, NULL, work, &w[started]))
            started++;
        (void)work(&w[0]);
        for (uint32_t i = 1; i < started; i++) pthread_join(w[i].thread, NULL);
        for (uint32_t i = 0; i < started; i++) rate += w[i].rate;
    }
    df_mem_free(&df_mem_system, memory, bytes);
    df_mem_free(&df_mem_system, w, n * sizeof *w);
    return rate;
}

report_limits report_measure(void)
{
    cpu_set_t set;
    uint32_t n = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    if (n > MAX_THREADS) n = MAX_THREADS;
    return (report_limits){ .gbytes = measure(n, true), .gflops = measure(n, false), .threads = n };
}

double report_measure_recording(void)
{
    enum { N_OPS = 1000, N_ROUNDS = 40 };
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    deft_runtime *rt = NULL;
    deft_ctx *cx = NULL;
    double best = 0;
    if (deft_runtime_create(&o, &rt) != DEFT_OK || deft_ctx_create(rt, NULL, &cx) != DEFT_OK)
        goto done;
    for (int round = 0; round < N_ROUNDS; round++) {
        const deft_scope s = deft_scope_begin(cx);
        deft_tensor *t = deft_zeros(cx, DEFT_SHAPE(8), DEFT_F32);
        const uint64_t start = now_ns();
        for (int i = 0; i < N_OPS; i++) t = deft_add(t, t);
        const double each = (double)(now_ns() - start) / (double)N_OPS;
        if (deft_scope_end(s) != DEFT_OK) break;
        if (round == 0 || each < best) best = each;
    }
done:
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    return best;
}
