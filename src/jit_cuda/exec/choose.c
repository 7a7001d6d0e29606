/* SPDX-License-Identifier: Apache-2.0
 *
 * What suits a GPU: how long kernels become, which entry a segment uses, and with how many
 * thread blocks. All choices give equal bits. The constants are estimates; docs/benchmarks.md
 * has what an H100 made of them.
 *
 * - ROW has a warp for each row, which suits many rows. When rows are long, and too few to
 *   give each multiprocessor WARPS of them, a thread block takes a row (LONG). When there are
 *   fewer rows than multiprocessors, rows are split over the GPU (PART, FIN). This needs rows
 *   with more blocks of DF_BLOCK than the warps of a thread block take at once.
 * - Rows that several stages of ROW read stay in shared memory, where they fit (HELD).
 * - COL is split in a similar case. Its threads take several columns where enough thread
 *   blocks are left.
 * - MAP has a thread for each pack until that is enough for the GPU. With more packs, a
 *   thread takes as many as it processes side by side.
 */
#include "jit_cuda/exec/device_internal.h"

#include "base/limits.h"

enum {
    WAVES = 4,                /* thread blocks for each place on the GPU, at most */
    WARPS = 16,               /* warps of one multiprocessor that hide latency */
    SCRATCH_MOST = 128 << 20, /* bytes of scratch rows of a launch */
    /* Trace nodes of a kernel. Long bodies spill registers, and each costs time in NVRTC. */
    MAX_BODY = 300,
    ROWS_PER_SM = 4
};

df_limits df_cuda_limits(const df_gpu_properties *g)
{
    return (df_limits){ .n_threads = (uint32_t)g->n_sms * ROWS_PER_SM,
                        .max_body = MAX_BODY,
                        .l1_bytes = g->shared_per_sm,
                        .l2_bytes = (int64_t)g->l2_bytes,
                        .over_bytes = DF_OVER_BYTES,
                        .fuse = true,
                        .lifts = true };
}

static int64_t extent_of(const df_kernel *k, const df_kargs *a, df_role role)
{
    int64_t n = 1;
    for (uint32_t x = 0; x < k->n_axes; x++)
        if (k->role[x] == role) n *= a->extent[x];
    return n;
}

static bool splits(const df_gpu_properties *g, const df_kernel *k, const df_kargs *a, int64_t n_red)
{
    if (!(k->flags & DF_KERNEL_SPLIT) || n_red <= DF_BLOCK) return false;
    const int64_t outer = extent_of(k, a, DF_AXIS_OUTER), inner = extent_of(k, a, DF_AXIS_INNER);
    const int64_t columns = (inner + DF_CUDA_TILE - 1) / DF_CUDA_TILE;
    if (k->mode == DF_MODE_ROW)
        return n_red > DF_CUDA_WARPS * (int64_t)DF_BLOCK && outer < g->n_sms;
    return k->mode == DF_MODE_COL && outer * columns < g->n_sms;
}

/* Whether COL has a thread block for each multiprocessor when threads take several columns. */
static bool fills(const df_gpu_properties *g, const df_kernel *k, const df_kargs *a, bool split)
{
    const df_cuda_entry e = { .pass = split ? DF_CUDA_PART : DF_CUDA_MAIN, .flags = DF_CUDA_WIDE };
    return df_cuda_blocks(k, e, a) >= g->n_sms;
}

/* The flags to add so that rows stay in shared memory: those of the 8 warps of a thread block, or
 * that of the thread block. */
static uint8_t keep_rows(const df_kernel *k, uint8_t flags, const df_kargs *a)
{
    if (df_cuda_holds(k, flags, a)) return DF_CUDA_HELD;
    return df_cuda_holds(k, flags | DF_CUDA_LONG, a) ? DF_CUDA_HELD | DF_CUDA_LONG : 0;
}

df_cuda_choice df_cuda_choose(const df_gpu_properties *g, const df_kernel *k, const df_kargs *a)
{
    df_cuda_choice c = { .flags = df_cuda_facts(k, a) };
    if (k->mode != DF_MODE_ROW && k->mode != DF_MODE_COL) return c;
    const int64_t n_red = extent_of(k, a, DF_AXIS_RED), rows = extent_of(k, a, DF_AXIS_OUTER);
    c.split = splits(g, k, a, n_red);
    if (k->mode == DF_MODE_COL && c.flags & DF_CUDA_WIDE && !fills(g, k, a, c.split))
        c.flags &= (uint8_t)~DF_CUDA_WIDE;
    if (k->mode == DF_MODE_ROW && n_red > DF_BLOCK && rows < (int64_t)g->n_sms * WARPS)
        c.flags |= DF_CUDA_LONG;
    if (!c.split) c.flags |= keep_rows(k, c.flags, a);
    return c;
}

int64_t df_cuda_most_blocks(const df_gpu_properties *g, df_cuda_entry e, uint32_t n_threads,
                            int64_t row_bytes)
{
    const int threads = (int)n_threads;
    const int at_once = g->threads_per_sm > threads ? g->threads_per_sm / threads : 1;
    const int64_t places = (int64_t)g->n_sms * at_once;
    if (row_bytes == 0) return places * WAVES;
    const int64_t room = SCRATCH_MOST / (row_bytes * DF_CUDA_TEAMS(e));
    return df_max_i64(df_min_i64(places, room), 1);
}

int64_t df_cuda_fewer_blocks(const df_gpu_properties *g, const df_kernel *k, df_cuda_entry e,
                             int64_t n_blocks)
{
    const int64_t groups = df_cuda_packs(k, e.flags), fewer = (n_blocks + groups - 1) / groups;
    return fewer * DF_CUDA_WARPS >= (int64_t)g->n_sms * WARPS ? fewer : n_blocks;
}
