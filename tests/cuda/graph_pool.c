/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that graphs share (jit_cuda/driver/pool.h) on the stand-in: pieces that are mapped,
 * and one block where there is no virtual memory. Each call of the driver that growing makes
 * fails once; nothing leaks, and nothing is given back under work.
 *
 *   graph_pool DRIVER
 */
#include "jit_cuda/driver/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/standin.h"
#include "support/fail_mem.h"

enum { MIB = 1 << 20 };

static standin gpu;
static long n_faults;

static void fault(const char *what, const char *more)
{
    printf("%s: %s\n", what, more);
    n_faults++;
}

typedef struct rig {
    fail_mem *mem;
    df_driver *driver;
    df_gpu *g;
    df_queue *q;
    df_cuda_pool *p;
} rig;

static bool rig_open(rig *r, uint64_t most, df_diag *d)
{
    static const df_log log;
    const df_gpu_options o = { .max_bytes = 256 * MIB };
    *r = (rig){ .mem = fail_mem_create() };
    const df_mem *const mem = fail_mem_get(r->mem);
    gpu.when(STANDIN_LATE, 1);
    return df_driver_open(d, mem, NULL, &r->driver) == DEFT_OK &&
           df_gpu_open(d, r->driver, &log, 0, &o, &r->g) == DEFT_OK &&
           df_queue_create(d, r->g, NULL, &r->q) == DEFT_OK &&
           df_cuda_pool_create(d, mem, r->g, most, &r->p) == DEFT_OK;
}

static void rig_close(rig *r)
{
    standin_alive alive;
    df_queue_destroy(&r->q);
    df_cuda_pool_destroy(&r->p);
    df_gpu_close(&r->g);
    df_driver_close(&r->driver);
    gpu.leaks(&alive);
    if (alive.contexts || alive.memory || alive.events || alive.reserved || alive.handles ||
        alive.mapped)
        fault("something of the driver's is left", "");
    if (gpu.n_misuse() > 0) fault("misuse of the driver", gpu.misuse());
    gpu.forgive();
    const fail_mem_counts c = fail_mem_count(r->mem);
    if (c.live_blocks || c.faults) fault("memory leaks, or is misused", fail_mem_fault(r->mem));
    fail_mem_destroy(&r->mem);
}

static bool has(const rig *r, uint64_t bytes)
{
    return df_cuda_pool_bytes(r->p) == bytes && df_gpu_read(r->g).live_bytes == bytes;
}

static void back(rig *r, uint64_t bytes, uint64_t then)
{
    df_diag d = { 0 };
    if (df_cuda_pool_back(r->p, &d, r->q, bytes) != DEFT_OK) fault("backing", d.text);
    if (!has(r, then)) fault("its size", "");
}

/* With each call of the driver failing once before. */
static void back_failing(rig *r, uint64_t bytes)
{
    const uint64_t before = df_cuda_pool_bytes(r->p);
    df_diag d = { 0 };
    for (long n = 1;; n++) {
        gpu.fail(NULL, n, 1);
        if (df_cuda_pool_back(r->p, &d, r->q, bytes) == DEFT_OK) break;
        if (!has(r, before)) fault("a failed growth leaves something", d.text);
    }
    while (gpu.fails_waiting() > 0) (void)df_queue_wait(r->q, NULL);
}

/* All of it, late. */
static void use(rig *r)
{
    df_diag d = { 0 };
    const char data[64] = { 0 };
    for (uint64_t at = 0; at < df_cuda_pool_bytes(r->p); at += 16 * (uint64_t)MIB)
        if (df_queue_put(r->q, &d, df_cuda_pool_base(r->p) + at, data, sizeof data) != DEFT_OK)
            fault("writing", d.text);
}

static void check_pieces(void)
{
    rig r;
    df_diag d = { 0 };
    if (!rig_open(&r, 0, &d)) fault("no pool", d.text);
    back(&r, 40 * MIB, 40 * MIB);
    back_failing(&r, 200 * MIB);
    use(&r);
    back(&r, 1, 32 * MIB);
    if (df_cuda_pool_back(r.p, &d, r.q, 300 * MIB) != DEFT_E_MEMORY ||
        !strstr(d.text, "max_bytes, 268435456"))
        fault("a bound", d.text);
    if (df_cuda_pool_back(r.p, &d, r.q, (uint64_t)1 << 40) != DEFT_E_MEMORY)
        fault("a bound", d.text);
    rig_close(&r);
}

static void check_block(void)
{
    static const standin_gpu one[] = { { .no_va = true } };
    rig r;
    df_diag d = { 0 };
    gpu.set_gpus(1, one);
    if (rig_open(&r, 0, &d) || !strstr(d.text, "no virtual memory: graphs need replay_max_bytes"))
        fault("refusal", d.text);
    rig_close(&r);
    if (!rig_open(&r, 100 * MIB, &d)) fault("no pool", d.text);
    if (!has(&r, 0)) fault("it has memory that nobody asked for", "");
    back_failing(&r, 1);
    const df_cu_ptr base = df_cuda_pool_base(r.p);
    back(&r, 100 * MIB, 100 * MIB);
    use(&r);
    back(&r, 10, 100 * MIB);
    if (df_cuda_pool_base(r.p) != base) fault("it has moved", "");
    back(&r, 0, 0);
    back(&r, 0, 0);
    back(&r, 3 * MIB, 100 * MIB);
    use(&r);
    rig_close(&r);
    if (!rig_open(&r, 300 * MIB, &d)) fault("no pool", d.text);
    if (df_cuda_pool_back(r.p, &d, r.q, 1) != DEFT_E_MEMORY || !has(&r, 0))
        fault("a bound", d.text);
    rig_close(&r);
}

int main(int argc, char **argv)
{
    if (argc < 2 || !standin_open(&gpu, argv[1])) return 2;
    (void)setenv("DEFT_CUDA_DRIVER", argv[1], 1);
    check_pieces();
    gpu.reset();
    check_block();
    printf("%ld faults\n", n_faults);
    return n_faults == 0 ? 0 : 1;
}
