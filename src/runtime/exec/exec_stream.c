/* SPDX-License-Identifier: Apache-2.0
 *
 * Which results are written around the caches (jit_llvm/rows/stream.c), and which loads prefetch
 * (jit_llvm/rows/fetch.c) or go along whole rows (jit_llvm/rows/col_long.c). This is the only
 * place that decides it. Bits do not depend on it.
 *
 * A result that is larger than the caches is not found there by its next reader in any case. When
 * it is written around them, its memory is not read first, and what the launch reads stays longer.
 * Two threads of Zen 4 with 32 MiB of cache compute o = k a + b over f32 in
 *
 *   MB moved               24    36    48    60    96   192
 *   through caches, us    206   403   598   858  1598  3147
 *   around them, us       282   421   373   507   942  2206
 *
 * A result that replaces an operand is not written around the caches: its lines have just been
 * read, and both kinds of stores then take the same time. Nor is one of a launch that mostly
 * writes, for which the table has 1027 and 1129 us in its last column.
 */
#include "runtime/exec/exec_run.h"

#include <math.h>
#include <string.h>

/* Rows with gaps between them have lines at both ends of which only a part is written. Shorter rows
 * than this do not stream. Results that alternate, as the parts of complex numbers do, are one row
 * of both. */
#define LEAST_ROW_BYTES 1024
/* A launch streams when it reads at least this share of what it writes. */
#define LEAST_READ 0.5
/* On an Intel server, whose processors share one large cache, a launch that mostly writes streams
 * from this share of that size on. GB/s of a fill of f32 on one thread and on two of a guest that
 * may count on 64 MiB:
 *
 *   MB written          48      64      96     128     256
 *   through caches   28 57   25 54   18 43   11 30   10 20
 *   around them      24 46   23 48   24 47   24 46   24 48 */
#define WRITTEN_SHARE 1.5
/* A kernel with transposed operands streams from this share of the bytes on. Many of its accesses
 * wait for memory that the hardware does not prefetch, and the lines that ordinary stores read
 * first are further ones. One thread and two of Zen 5 with 32 MiB of cache compute a transposed
 * copy of f32, and x' + y, in
 *
 *   copy, MB moved         11.4      13.4      16.9      20.5      29.0
 *   through caches, us    159 88   203 117   366 207   640 314  1099 540
 *   around them, us       154 144  193 166   256 233   350 290   781 408
 *
 *   x' + y, MB moved       12.2      20.2      25.4      30.7
 *   through caches, us    131 72   356 168   562 278   846 432
 *   around them, us       110 103  205 181   335 232   649 305
 */
#define TILED_SHARE 0.5
/* The same on an Intel server. A transposed copy of f32, through tiles, on one thread and on two of
 * a guest that may count on 64 MiB:
 *
 *   MB moved               8.4      12.6      16.8      25.7       33.6
 *   through caches, us  358 213   531 345   730 414  1056 514   1576 767
 *   around them, us     352 150   554 276   706 367  1122 554   1443 723
 */
#define TILED_SHARE_FAR 0.15
/* A kernel that reads more than this share of what it writes gains from that share on only in
 * squares (jit_llvm/rows/squares.c): where elements have 4 bytes or more, and rows begin at a cache
 * line. x' + y of bf16, 1800 x 2300, takes 1080 us through the caches and 1546 us around them. On
 * an Intel server such kernels have no squares and gain in any case. There x' + y of f32, 1600 x
 * 2500, takes 3800 us through the caches and 2870 us around them. */
#define MOST_READ 1.25
enum { MOST_VECTOR_BYTES = 64 };
/* Loads of reductions prefetch where each thread reads more than this share of its second cache,
 * and the launch reads at most this share of the last cache. GB/s of each thread, on one and two of
 * Zen 5 with 1 MiB and 32 MiB, in a sum of squared differences of two arrays:
 *
 *   MB per thread     1.0      1.6      2.1      3.1      4.2      6.3      8.4      12.6
 *   without         153 151  118 115  110 108  105 102  112 101  123 121  123 119  120 101
 *   prefetched      143 138  122 118  123 120  125 121  124 122  125 122  124 118  121  73
 *
 * Sums of one array gain up to a tenth. Maps gain as much in some sizes, and lose as much in
 * others.
 *
 * On an Intel server, whose processors share one large cache, loads prefetch when the launch reads
 * more than 1.5 times the part that the process may count on. GB/s of a sum of f64 on one thread
 * and on two of a guest with 2 MiB and 64 MiB:
 *
 *   MB           32      64     128     192     256     384     512
 *   without    29 58   28 57   20 43   17 36   16 32   16 30   16 31
 *   prefetched 27 57   26 53   22 48   20 40   18 35   17 33   18 32
 *
 * Loads also prefetch there when each thread reads about as much as its second cache holds. On that
 * guest sums of 2 MiB of i64, f64 and c64 take 38, 38 and 42 us with prefetching, and 41, 42 and 49
 * without. Prefetching costs sums of up to 1.4 MiB a twenty-fifth, and changes nothing at 4 MiB.
 * These numbers are of one line for each load. Of pairs of lines (rows/fetch.c), sums of 4 to 96 MB
 * take the same time with prefetching and without, on one thread and on two. */
#define LEAST_FETCH 1.5
#define MOST_FETCH 0.375
#define LEAST_FETCH_BEYOND 1.5
#define LEAST_FETCH_NEAR 0.8 /* of the second caches of all threads */
#define MOST_FETCH_NEAR 2.0

static double tiled_share(const df_run *r)
{
    return r->x->shares_far ? TILED_SHARE_FAR : TILED_SHARE;
}

static const df_access *stream_access(const df_seg_run *s, uint32_t i)
{
    return &s->kernel->access[i];
}

static uint64_t stream_size(const df_seg_run *s, uint32_t i)
{
    return deft_dtype_size((deft_dtype)stream_access(s, i)->dtype);
}

/* The first access that may stream; DF_NONE: there is none. */
static uint32_t first_stream(const df_seg_run *s)
{
    for (uint32_t i = 0; i < s->kernel->n_access; i++)
        if (df_access_may_stream(s->kernel, i)) return i;
    return df_kernel_streamed_twos(s->kernel);
}

/* Whether the first access that may stream is that of results which may alternate. */
static bool is_of_twos(const df_seg_run *s, uint32_t first)
{
    return first != DF_NONE && !df_access_may_stream(s->kernel, first);
}

static double bytes_written(const df_run *r, const df_seg *seg, const df_seg_run *s)
{
    double written = 0;
    for (uint32_t i = 0; i < s->kernel->n_access; i++)
        if (stream_access(s, i)->kind == DF_ACCESS_STORE)
            written += (double)df_run_access_bytes(r, seg, s->kernel, i);
    return written;
}

/* Whether squares may compute the kernel, as far as elements of transposed operands tell. */
static bool has_wide_tiles(const df_seg_run *s)
{
    const df_kernel *const k = s->kernel;
    for (uint32_t i = 0; i < k->n_access; i++)
        for (uint32_t x = 0; x + 1u < k->n_axes; x++)
            if (k->access[i].step[x] == DF_STEP_UNIT && stream_size(s, i) < 4) return false;
    return df_kernel_has_tiles(k);
}

/* Whether a segment of a launch that moves `bytes` streams, as far as sizes tell. */
static bool sizes_allow(const df_run *r, const df_seg *seg, df_seg_run *s, double bytes)
{
    const uint32_t first = first_stream(s);
    if (first == DF_NONE) return false;
    const double lane = (double)stream_size(s, first) * (is_of_twos(s, first) ? 2 : 1);
    const double row = (double)s->n_inner * lane;
    if (row < fmin(LEAST_ROW_BYTES, r->x->stream_bytes)) return false;
    const double written = bytes_written(r, seg, s), read = s->bytes - written;
    const bool is_read = read > MOST_READ * written;
    const bool is_tiled = is_read ? has_wide_tiles(s) : df_kernel_has_tiles(s->kernel);
    s->streams_lines = is_read && bytes <= r->x->stream_bytes && !r->x->shares_far;
    const bool is_written = read < LEAST_READ * written;
    if (is_written && !r->x->shares_far) return false;
    const double share = is_written ? WRITTEN_SHARE : is_tiled ? tiled_share(r) : 1;
    return bytes > share * r->x->stream_bytes;
}

void df_run_find_streams(df_run *r)
{
    for (uint32_t l = 0; l < r->plan->n_launches; l++) {
        const df_launch *const launch = &r->plan->launches[l];
        double bytes = 0;
        for (uint32_t i = launch->first; i < launch->first + launch->n; i++)
            bytes += r->segs[i].bytes;
        if (bytes <= r->x->stream_bytes * tiled_share(r)) continue;
        for (uint32_t i = launch->first; i < launch->first + launch->n; i++) {
            df_seg_run *const s = &r->segs[i];
            const df_seg *const seg = &r->plan->segs[i];
            if (seg->kind == DF_SEG_KERNEL && !s->is_idle)
                s->may_stream = sizes_allow(r, seg, s, bytes);
        }
    }
}

/* Whether the loads of a segment, which moves `bytes` on n_threads threads, prefetch. Of a kernel
 * that reduces columns: whether they go along whole rows (jit_llvm/rows/col_long.c), which was
 * measured on an Intel server alone. */
static bool fetch_pays(const df_run *r, const df_seg_run *s, double bytes, uint32_t n_threads)
{
    const df_executor *const x = r->x;
    if (!df_kernel_only_reduces(s->kernel)) return false;
    const double near = fmin(x->near_bytes, x->stream_bytes) * n_threads;
    if (s->kernel->mode == DF_MODE_COL) return x->shares_far && bytes > near;
    if (s->n_red <= DF_BLOCK) return false;
    if (x->shares_far)
        return (bytes > LEAST_FETCH_NEAR * near && bytes <= MOST_FETCH_NEAR * near) ||
               bytes > fmin(LEAST_FETCH_BEYOND * x->far_bytes, x->stream_bytes);
    return bytes > fmin(LEAST_FETCH * x->near_bytes, x->stream_bytes) * n_threads &&
           bytes <= MOST_FETCH * x->far_bytes;
}

void df_run_find_fetches(df_run *r)
{
    for (uint32_t l = 0; l < r->plan->n_launches; l++) {
        const df_launch *const launch = &r->plan->launches[l];
        if (launch->n == 0) continue;
        const uint32_t n_threads =
            r->segs[launch->first].parallel ? df_pool_threads(r->x->pool) : 1;
        for (uint32_t i = launch->first; i < launch->first + launch->n; i++) {
            df_seg_run *const s = &r->segs[i];
            if (r->plan->segs[i].kind != DF_SEG_KERNEL || s->is_idle) continue;
            s->fetches = fetch_pays(r, s, s->bytes, n_threads);
            if (s->fetches && s->kernel->mode == DF_MODE_COL && r->work_size < DF_SHEET_BYTES)
                r->work_size = DF_SHEET_BYTES;
        }
    }
}

/* Whether the segment loads from the memory that access `store` writes. */
static bool replaces_operand(const df_run *r, const df_seg *seg, const df_seg_run *s,
                             uint32_t store)
{
    const char *const to = r->base[seg->bind[store].buf.i];
    for (uint32_t i = 0; i < s->kernel->n_access; i++) {
        const df_buf buf = seg->bind[i].buf;
        if (stream_access(s, i)->kind != DF_ACCESS_STORE && buf.i != DF_NONE &&
            r->base[buf.i] == to)
            return true;
    }
    return false;
}

/* Whether access `other` is aligned to a vector of its elements, but to MOST_VECTOR_BYTES at most,
 * wherever access `first` is aligned to as many elements. Their dtypes may differ. A kernel that
 * stores elements of 4 or more bytes has no more lanes than such elements fit into a vector. */
static bool move_in_step(const df_seg_run *s, uint32_t first, uint32_t other)
{
    const uint32_t n = s->kernel->n_axes;
    const uint64_t of_first = stream_size(s, first), of_other = stream_size(s, other);
    const uint64_t largest = of_first > of_other ? of_first : of_other;
    const uint64_t lanes = MOST_VECTOR_BYTES / (largest < 4 ? 1 : of_other < 4 ? 4 : of_other);
    const uint64_t apart =
        (uintptr_t)s->ptr[first] / of_first - (uintptr_t)s->ptr[other] / of_other;
    return apart % lanes == 0 && !memcmp(&s->args.stride[first * n], &s->args.stride[other * n],
                                         n * sizeof *s->args.stride);
}

/* Whether all rows that go through the access begin at a cache line. */
static bool rows_are_aligned(const df_seg_run *s, uint32_t access)
{
    const uint32_t n = s->kernel->n_axes;
    uint64_t bits = (uintptr_t)s->ptr[access];
    for (uint32_t x = 0; x + 1 < n; x++)
        bits |= (uint64_t)s->args.stride[access * n + x] * stream_size(s, access);
    return bits % MOST_VECTOR_BYTES == 0;
}

/* Whether the elements of the results alternate, and two of them can be a part of a vector. */
static bool alternate(const df_run *r, const df_seg *seg, const df_seg_run *s, uint32_t first)
{
    const uint32_t n = s->kernel->n_axes;
    const uint64_t size = stream_size(s, first);
    const int64_t *const stride = &s->args.stride[first * n];
    return s->ptr[first + 1] == s->ptr[first] + size &&
           (uintptr_t)s->ptr[first] % (2 * size) == 0 && stride[n - 1] == 2 &&
           !memcmp(stride, stride + n, n * sizeof *stride) && !replaces_operand(r, seg, s, first) &&
           !replaces_operand(r, seg, s, first + 1);
}

bool df_run_streams(const df_run *r, const df_seg *seg, const df_seg_run *s)
{
    const uint32_t first = first_stream(s);
    if (is_of_twos(s, first)) return alternate(r, seg, s, first);
    for (uint32_t i = 0; i < s->kernel->n_access; i++) {
        if (!df_access_may_stream(s->kernel, i)) continue;
        if ((uintptr_t)s->ptr[i] % stream_size(s, i) != 0) return false; /* memory of the caller */
        if (replaces_operand(r, seg, s, i)) return false;
        if (!move_in_step(s, first, i)) return false;
    }
    return !s->streams_lines || rows_are_aligned(s, first);
}
