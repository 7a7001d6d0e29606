/* SPDX-License-Identifier: Apache-2.0
 *
 * What random kernels do not reach, on the CPU (shim.h): checks and gathers,
 * rows that stages share through scratch, reductions of many blocks by all ways
 * there are, ranges of the words' arithmetic, refusals, and memory that runs
 * out.
 *
 *   hand_cases COMPILER FOLDER-OF-SHIM
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "batch.h"
#include "runtime/interp/interp.h"
#include "support/fail_mem.h"
#include "support/hand_kernel.h"
#include "support/random_kernel.h"
#include "holds.h"

static batch_tools tools;
static uint32_t n_batches;

static void interp(const df_kernel *k, const df_kargs *a, int64_t rows, int64_t inner)
{
    void *const work = aligned_alloc(64, (df_interp_work_size(k) + 127) & ~(size_t)63);
    if (work) df_interp_main(k, work, a, 0, rows, 0, inner);
    free(work);
}

/* One kernel by itself, compiled for the CPU. */
static batch_kernel kernel_of(const df_kernel *k, const char *where, const df_cuda_entry *e,
                              uint32_t n)
{
    batch_kernel b = { .k = k, .where = where, .name = "k", .n_entries = n };
    memcpy(b.entry, e, sizeof *e * n);
    return b;
}

static bool launch(const batch *b, const batch_kernel *k, df_cuda_entry e, const df_kargs *a,
                   int64_t n_blocks)
{
    uint64_t words[DF_CUDA_PARAM_BYTES / 8];
    df_cuda_fill(k->k, a, words);
    return batch_launch(b, k, e, words, n_blocks);
}

/* ---- gather with a check ---- */

static void check_gather(void)
{
    static const df_cuda_entry entries[] = { { DF_CUDA_MAIN, DF_CUDA_NARROW | DF_CUDA_WIDE },
                                             { DF_CUDA_MAIN, 0 } };
    const batch_kernel bk = kernel_of(&hand_gather, "gather", entries, 2);
    static hand_gather_run r;
    batch b;
    if (!batch_build(&b, &tools, &bk, 1, n_batches++)) n_faults++;
    for (int64_t n = 1; b.library && n <= HAND_GATHER_MOST; n += 37)
        for (int64_t bad = -1; bad < n; bad += 50)
            for (uint32_t e = 0; e < 2; e++) {
                hand_gather_init(&r, n, bad);
                EXPECT(launch(&b, &bk, entries[e], &r.args, 2));
                EXPECT(hand_gather_holds(&r));
            }
    batch_close(&b);
}

/* ---- stages that share a row through scratch, in place ---- */

static void check_scratch(void)
{
    enum { ROWS = 19, MOST = 4200 };
    static const int64_t lengths[] = { 0, 1, 31, 64, 65, 1000, 4097 };
    static const df_cuda_entry entries[] = { { DF_CUDA_MAIN, DF_CUDA_NARROW },
                                             { DF_CUDA_MAIN, DF_CUDA_LONG } };
    const batch_kernel bk = kernel_of(&hand_softmax, "scratch", entries, 2);
    batch b;
    if (!batch_build(&b, &tools, &bk, 1, n_batches++)) n_faults++;
    float *const x = malloc(ROWS * MOST * 4), *const y = malloc(ROWS * MOST * 4);
    float *const scratch = malloc(RANDOM_TEAMS * df_cuda_scratch_row(MOST) * 4);
    for (size_t n = 0; b.library && x && y && scratch && n < DF_LEN(lengths); n++)
        for (uint32_t e = 0; e < 2; e++) {
            const int64_t l = lengths[n];
            hand_softmax_run of_x, of_y;
            hand_softmax_init(&of_x, x, scratch, ROWS, l);
            hand_softmax_init(&of_y, y, scratch, ROWS, l);
            EXPECT(launch(&b, &bk, entries[e], &of_x.args, 2));
            interp(&hand_softmax, &of_y.args, ROWS, 1);
            EXPECT(memcmp(x, y, (size_t)(ROWS * l) * 4) == 0);
        }
    free(x);
    free(y);
    free(scratch);
    batch_close(&b);
}

/* ---- many blocks ---- */

typedef struct results {
    float sum[10], least[10], times[10];
    int64_t at[10];
} results;

static void fill(float *x, int64_t n)
{
    uint32_t state = 7;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        x[i] = (float)(state >> 8) * 0x1p-24f - 0.5f;
    }
}

/* Sum (the last time of -0 alone), position of the greatest and, of zeros of
 * either sign, the least: its sign is that of the one that the order of joining
 * leaves. ROW or COL, whole, by LONG and in parts. */
static void check_long(bool col)
{
    static const int64_t row_lengths[] = { 65537, 200000, 300001, 0, 4200 },
                         col_lengths[] = { 20481, 70000, 0, 4200 };
    const uint32_t n_axes = col ? 3 : 2;
    df_access access[6] = { { .kind = DF_ACCESS_LOAD, .dtype = DEFT_F32 },
                            { .kind = DF_ACCESS_STORE, .dtype = DEFT_F32, .same_as = 1 },
                            { .kind = DF_ACCESS_STORE, .dtype = DEFT_I64, .same_as = 2 },
                            { .kind = DF_ACCESS_STORE, .dtype = DEFT_F32, .same_as = 3 },
                            { .kind = DF_ACCESS_LOAD, .dtype = DEFT_F32, .same_as = 4 },
                            { .kind = DF_ACCESS_STORE, .dtype = DEFT_F32, .same_as = 4 } };
    for (uint32_t i = 0; i < 6; i++)
        for (uint32_t x = 0; x < n_axes; x++)
            access[i].step[x] = i > 0 && x == 1 ? DF_STEP_ZERO : DF_STEP_ANY;
    const df_ins body[] = {
        ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ROW, 0, 0, 4),
        ins(DF_K_const, DEFT_F32, 0, DF_LEVEL_ROW, 0, 0, 0x3F800000),
        ins(DF_K_add, DEFT_F32, 0, DF_LEVEL_ROW, 0, 1, 0),
        ins(DF_K_store, DEFT_F32, 0, DF_LEVEL_ROW, 2, 0, 5),
        ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
        ins(DF_K_sum, DEFT_F32, 0, DF_LEVEL_ELEM, 4, 0, 0),
        ins(DF_K_argmax, DEFT_I64, 0, DF_LEVEL_ELEM, 4, 0, 0),
        ins(DF_K_const, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
        ins(DF_K_mul, DEFT_F32, 0, DF_LEVEL_ELEM, 4, 7, 0),
        ins(DF_K_rmin, DEFT_F32, 0, DF_LEVEL_ELEM, 8, 0, 0),
        ins(DF_K_store, DEFT_F32, 1, DF_LEVEL_ROW, 5, 0, 1),
        ins(DF_K_store, DEFT_I64, 1, DF_LEVEL_ROW, 6, 0, 2),
        ins(DF_K_store, DEFT_F32, 1, DF_LEVEL_ROW, 9, 0, 3),
    };
    const df_kernel k = { .mode = col ? DF_MODE_COL : DF_MODE_ROW,
                          .n_axes = (uint8_t)n_axes,
                          .n_stages = 2,
                          .flags = DF_KERNEL_SPLIT,
                          .role = { DF_AXIS_OUTER, DF_AXIS_RED, DF_AXIS_INNER },
                          .n_access = 6,
                          .n_ins = DF_LEN(body),
                          .access = access,
                          .ins = body };
    const df_cuda_entry entries[] = {
        { DF_CUDA_MAIN, (uint8_t)(col ? 0 : DF_CUDA_NARROW | DF_CUDA_LONG) },
        { DF_CUDA_PART, DF_CUDA_NARROW },
        { DF_CUDA_FIN, DF_CUDA_NARROW },
    };
    const batch_kernel bk = kernel_of(&k, "many blocks", entries, 3);
    batch b;
    if (!batch_build(&b, &tools, &bk, 1, n_batches++)) n_faults++;
    const size_t n_lengths = col ? DF_LEN(col_lengths) : DF_LEN(row_lengths);
    for (size_t n = 0; b.library && n < n_lengths; n++) {
        const int64_t l = col ? col_lengths[n] : row_lengths[n], inner = col ? 5 : 1;
        const int64_t extent[] = { 2, l, inner };
        const int64_t stride_row[] = { l, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0 },
                      stride_col[] = { l * 5, 5, 1, 5, 0, 1, 5, 0, 1, 5, 0, 1, 5, 0, 1, 5, 0, 1 };
        float *const x = malloc((size_t)(2 * l * inner) * 4 + 4);
        if (!x) return;
        fill(x, 2 * l * inner);
        for (int64_t i = 0; n + 1 == n_lengths && i < 2 * l * inner; i++) x[i] = -0.0f;
        results got, want;
        df_kargs a = { .stride = col ? stride_col : stride_row, .extent = extent };
        memset(&got, 0, sizeof got);
        memset(&want, 0, sizeof want);
        char *into_want[] = { (char *)x,          (char *)want.sum,   (char *)want.at,
                              (char *)want.least, (char *)want.times, (char *)want.times };
        char *into_got[] = { (char *)x,         (char *)got.sum,   (char *)got.at,
                             (char *)got.least, (char *)got.times, (char *)got.times };
        a.ptr = into_want;
        interp(&k, &a, 2, inner);
        a.ptr = into_got;
        a.partial = malloc((size_t)df_cuda_partial_words(&k, &a) * 8 + 8);
        if (!a.partial) return;
        EXPECT(launch(&b, &bk, entries[0], &a, 2));
        EXPECT(memcmp(&got, &want, sizeof got) == 0);
        memset(&got, 0, sizeof got);
        EXPECT(launch(&b, &bk, entries[1], &a, 3) && launch(&b, &bk, entries[2], &a, 1));
        EXPECT(memcmp(&got, &want, sizeof got) == 0);
        free(a.partial);
        free(x);
    }
    batch_close(&b);
}

/* ---- more reductions than fit shared memory ---- */

static void check_reductions(bool col, bool scans, uint32_t n_reds)
{
    enum { ROWS = 2, INNER = 3, MOST = 12400 };
    static const int64_t lengths[] = { 0, 1, 63, 200, 4096, 4097, 12400 };
    static hand_reductions r;
    static double x[ROWS * MOST * INNER], along[2][ROWS * MOST * INNER];
    static uint64_t got[HAND_REDUCTIONS][ROWS * INNER], want[HAND_REDUCTIONS][ROWS * INNER];
    hand_reductions_make(&r, col, scans, n_reds);
    const uint32_t n_axes = r.k.n_axes, run = n_reds + 1;
    const df_cuda_entry entries[] = {
        { DF_CUDA_MAIN, 0 }, { DF_CUDA_MAIN, (uint8_t)(col ? DF_CUDA_NARROW : DF_CUDA_LONG) }
    };
    const batch_kernel bk = kernel_of(&r.k, "many reductions", entries, 2);
    batch b;
    if (!batch_build(&b, &tools, &bk, 1, n_batches++)) n_faults++;
    const int64_t inner = col ? INNER : 1;
    uint32_t state = 11;
    for (int64_t i = 0; i < ROWS * MOST * INNER; i++) {
        state = state * 1664525 + 1013904223;
        x[i] = (double)(state >> 20) * 0.1 - 200; /* equals among them */
    }
    for (int64_t i = 0; i < ROWS * inner; i++) x[i] = -0.0;
    for (size_t at = 0; b.library && at < 2 * DF_LEN(lengths); at++) {
        const int64_t l = lengths[at / 2], extent[] = { ROWS, l, inner };
        int64_t stride[(HAND_REDUCTIONS + 2) * 3];
        char *into[2][HAND_REDUCTIONS + 2];
        for (uint32_t i = 0; i <= run; i++) {
            const bool is_row = i > 0 && i < run;
            stride[i * n_axes] = is_row ? inner : l * inner;
            stride[i * n_axes + 1] = is_row ? 0 : inner;
            if (col) stride[i * n_axes + 2] = 1;
            for (int j = 0; j < 2; j++)
                into[j][i] = i == 0     ? (char *)x
                             : i == run ? (char *)along[j]
                                        : (char *)(j ? got : want)[i - 1];
        }
        df_kargs a = { .ptr = into[0], .stride = stride, .extent = extent };
        memset(want, 0, sizeof want);
        memset(got, 0, sizeof got);
        memset(along, 0, sizeof along);
        interp(&r.k, &a, ROWS, inner);
        a.ptr = into[1];
        EXPECT(launch(&b, &bk, entries[at % 2], &a, 1));
        EXPECT(memcmp(got, want, sizeof got) == 0);
        EXPECT(memcmp(along[0], along[1], sizeof along[0]) == 0);
    }
    batch_close(&b);
}

/* ---- what row level stores, elements read ---- */

static void check_row_store(bool col)
{
    enum { ROWS = 3, L = 200, INNER = 4 };
    const uint8_t along = col ? DF_STEP_UNIT : DF_STEP_ZERO;
    df_access access[3] = { { .kind = DF_ACCESS_STORE, .dtype = DEFT_I32 },
                            { .kind = DF_ACCESS_LOAD, .dtype = DEFT_I32 },
                            { .kind = DF_ACCESS_STORE, .dtype = DEFT_I32, .same_as = 2 } };
    for (uint32_t i = 0; i < 3; i++) {
        access[i].step[0] = DF_STEP_ANY;
        if (col) access[i].step[2] = along;
    }
    const df_ins body[] = { ins(DF_K_const, DEFT_I32, 0, DF_LEVEL_ROW, 0, 0, 7),
                            ins(DF_K_store, DEFT_I32, 0, DF_LEVEL_ROW, 0, 0, 0),
                            ins(DF_K_load, DEFT_I32, 0, DF_LEVEL_ELEM, 0, 0, 1),
                            ins(DF_K_sum, DEFT_I32, 0, DF_LEVEL_ELEM, 2, 0, 0),
                            ins(DF_K_store, DEFT_I32, 1, DF_LEVEL_ROW, 3, 0, 2) };
    const df_kernel k = { .mode = col ? DF_MODE_COL : DF_MODE_ROW,
                          .n_axes = col ? 3 : 2,
                          .n_stages = 2,
                          .role = { DF_AXIS_OUTER, DF_AXIS_RED, DF_AXIS_INNER },
                          .n_access = 3,
                          .n_ins = DF_LEN(body),
                          .access = access,
                          .ins = body };
    const df_cuda_entry entries[] = {
        { DF_CUDA_MAIN, 0 }, { DF_CUDA_MAIN, (uint8_t)(col ? DF_CUDA_NARROW : DF_CUDA_LONG) }
    };
    const batch_kernel bk = kernel_of(&k, "row store", entries, 2);
    batch b;
    if (!batch_build(&b, &tools, &bk, 1, n_batches++)) n_faults++;
    for (uint32_t e = 0; b.library && e < 2; e++) {
        int32_t memory[ROWS * INNER] = { 0 }, sum[ROWS * INNER] = { 0 };
        const int64_t extent[] = { ROWS, L, INNER };
        const int64_t stride_row[] = { 1, 0, 1, 0, 1, 0 },
                      stride_col[] = { INNER, 0, 1, INNER, 0, 1, INNER, 0, 1 };
        char *ptr[] = { (char *)memory, (char *)memory, (char *)sum };
        const df_kargs a = { .ptr = ptr,
                             .stride = col ? stride_col : stride_row,
                             .extent = extent };
        EXPECT(launch(&b, &bk, entries[e], &a, 2));
        for (int i = 0; i < ROWS * (col ? INNER : 1); i++) EXPECT(sum[i] == 7 * L);
    }
    batch_close(&b);
}

/* ---- states that are exchanged ---- */

static void check_exchange(void)
{
    const df_access access[] = {
        { .kind = DF_ACCESS_STORE, .dtype = DEFT_I32, .step = { DF_STEP_ZERO, DF_STEP_UNIT } },
        { .kind = DF_ACCESS_STORE, .dtype = DEFT_I32, .step = { DF_STEP_ZERO, DF_STEP_UNIT } },
    };
    const df_ins body[] = { ins(DF_K_const, DEFT_I32, 0, DF_LEVEL_ROW, 0, 0, 3),
                            ins(DF_K_const, DEFT_I32, 0, DF_LEVEL_ROW, 0, 0, 5),
                            ins(DF_K_carry, DEFT_I32, 0, DF_LEVEL_ELEM, 0, 0, 0),
                            ins(DF_K_carry, DEFT_I32, 0, DF_LEVEL_ELEM, 1, 0, 0),
                            ins(DF_K_next, DEFT_I32, 0, DF_LEVEL_ELEM, 2, 3, 0),
                            ins(DF_K_next, DEFT_I32, 0, DF_LEVEL_ELEM, 3, 2, 0),
                            ins(DF_K_store, DEFT_I32, 1, DF_LEVEL_ROW, 4, 0, 0),
                            ins(DF_K_store, DEFT_I32, 1, DF_LEVEL_ROW, 5, 0, 1) };
    const df_kernel k = { .mode = DF_MODE_LOOP,
                          .n_axes = 2,
                          .n_stages = 2,
                          .role = { DF_AXIS_RED, DF_AXIS_INNER },
                          .n_access = 2,
                          .n_ins = DF_LEN(body),
                          .access = access,
                          .ins = body };
    static const df_cuda_entry entries[] = { { DF_CUDA_MAIN, 0 } };
    const batch_kernel bk = kernel_of(&k, "exchange", entries, 1);
    batch b;
    if (!batch_build(&b, &tools, &bk, 1, n_batches++)) n_faults++;
    for (int64_t times = 0; b.library && times < 4; times++) {
        int32_t first[2], second[2];
        const int64_t extent[] = { times, 2 }, stride[] = { 0, 1, 0, 1 };
        char *ptr[] = { (char *)first, (char *)second };
        const df_kargs a = { .ptr = ptr, .stride = stride, .extent = extent };
        EXPECT(launch(&b, &bk, entries[0], &a, 1));
        EXPECT(first[1] == (times % 2 ? 5 : 3) && second[1] == (times % 2 ? 3 : 5));
    }
    batch_close(&b);
}

/* ---- a scan ---- */

/* The first element is taken as it is: -0 stays. */
static void check_scan(void)
{
    enum { ROWS = 3, L = 150 };
    const df_access access[] = {
        { .kind = DF_ACCESS_LOAD, .dtype = DEFT_F32, .step = { DF_STEP_ANY, DF_STEP_UNIT } },
        { .kind = DF_ACCESS_STORE, .dtype = DEFT_F32, .step = { DF_STEP_ANY, DF_STEP_UNIT } },
    };
    const df_ins body[] = { ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
                            ins(DF_K_cumsum, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
                            ins(DF_K_sum, DEFT_F32, 0, DF_LEVEL_ELEM, 1, 0, 0),
                            ins(DF_K_store, DEFT_F32, 0, DF_LEVEL_ELEM, 1, 0, 1) };
    const df_kernel k = { .mode = DF_MODE_ROW,
                          .n_axes = 2,
                          .n_stages = 1,
                          .flags = DF_KERNEL_SCAN,
                          .role = { DF_AXIS_OUTER, DF_AXIS_RED },
                          .n_access = 2,
                          .n_ins = DF_LEN(body),
                          .access = access,
                          .ins = body };
    static const df_cuda_entry entries[] = { { DF_CUDA_MAIN, 0 }, { DF_CUDA_MAIN, DF_CUDA_LONG } };
    const batch_kernel bk = kernel_of(&k, "scan", entries, 2);
    batch b;
    static float x[ROWS * L], got[ROWS * L], want[ROWS * L];
    if (!batch_build(&b, &tools, &bk, 1, n_batches++)) n_faults++;
    fill(x, ROWS * L);
    for (int row = 0; row < ROWS; row++) x[row * L] = x[row * L + 1] = -0.0f;
    for (uint32_t e = 0; b.library && e < 2; e++) {
        const int64_t extent[] = { ROWS, L }, stride[] = { L, 1, L, 1 };
        char *into_want[] = { (char *)x, (char *)want }, *into_got[] = { (char *)x, (char *)got };
        df_kargs a = { .ptr = into_want, .stride = stride, .extent = extent };
        interp(&k, &a, ROWS, 1);
        a.ptr = into_got;
        memset(got, 0, sizeof got);
        EXPECT(launch(&b, &bk, entries[e], &a, 2));
        EXPECT(memcmp(got, want, sizeof got) == 0);
    }
    batch_close(&b);
}

/* ---- facts ---- */

static void check_facts(void)
{
    const df_access access[] = {
        { .kind = DF_ACCESS_LOAD, .dtype = DEFT_F32, .step = { DF_STEP_ANY, DF_STEP_UNIT } },
        { .kind = DF_ACCESS_STORE, .dtype = DEFT_F64, .step = { DF_STEP_ANY, DF_STEP_UNIT } },
    };
    const df_ins body[] = { ins(DF_K_load, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0),
                            ins(DF_K_cast, DEFT_F64, 0, DF_LEVEL_ELEM, 0, 0, 0),
                            ins(DF_K_store, DEFT_F64, 0, DF_LEVEL_ELEM, 1, 0, 1) };
    df_kernel k = { .mode = DF_MODE_MAP,
                    .n_axes = 2,
                    .n_stages = 1,
                    .role = { DF_AXIS_OUTER, DF_AXIS_INNER },
                    .n_access = 2,
                    .n_ins = 3,
                    .access = access,
                    .ins = body };
    char *ptr[2] = { (char *)4096, (char *)8192 };
    int64_t extent[2] = { 10, 100 }, stride[4] = { 100, 1, 100, 1 };
    const df_kargs a = { .ptr = ptr, .stride = stride, .extent = extent };
    const uint8_t both = DF_CUDA_NARROW | DF_CUDA_WIDE;
    EXPECT(df_cuda_lanes(&k) == 2); /* 16 bytes of f64 */
    EXPECT(df_cuda_facts(&k, &a) == both);
    ptr[0] += 4; /* a pair of f32 is 8 bytes */
    EXPECT(df_cuda_facts(&k, &a) == DF_CUDA_NARROW);
    ptr[0] += 4;
    EXPECT(df_cuda_facts(&k, &a) == both);
    stride[2] = 101;
    EXPECT(df_cuda_facts(&k, &a) == DF_CUDA_NARROW);
    extent[0] = 1; /* a stride along one element is no stride */
    EXPECT(df_cuda_facts(&k, &a) == both);
    extent[0] = 10;
    stride[2] = -200000000;
    EXPECT(df_cuda_facts(&k, &a) == DF_CUDA_WIDE); /* 1.8e9 elements back */
    extent[0] = 5;
    stride[2] = (int64_t)1 << 62; /* four times that is 0 in 64 bits */
    EXPECT(df_cuda_facts(&k, &a) == DF_CUDA_WIDE);
    stride[2] = 100;
    extent[0] = 1 << 20;
    extent[1] = 1 << 11;
    EXPECT(df_cuda_facts(&k, &a) == DF_CUDA_WIDE); /* 2^31 positions */
    extent[0] = 0;
    EXPECT(df_cuda_blocks(&k, (df_cuda_entry){ DF_CUDA_MAIN, 0 }, &a) == 0);
    extent[0] = 3;
    extent[1] = 257;
    EXPECT(df_cuda_blocks(&k, (df_cuda_entry){ DF_CUDA_MAIN, 0 }, &a) == 4);
    EXPECT(df_cuda_blocks(&k, (df_cuda_entry){ DF_CUDA_MAIN, DF_CUDA_WIDE }, &a) == 2);

    k.n_ins = 3000; /* what is counted, not looked at */
    EXPECT(df_cuda_lanes(&k) == 1);
    k.n_ins = 3;

    df_diag d = { 0 };
    k.mode = DF_MODE_ROW;
    k.role[1] = DF_AXIS_RED;
    extent[1] = DF_CUDA_WARP_ROW;
    EXPECT(df_cuda_lanes(&k) == 2);
    EXPECT(df_cuda_facts(&k, &a) == both);
    extent[1]++; /* an odd length: the last has no neighbour */
    EXPECT(df_cuda_facts(&k, &a) == (both | DF_CUDA_LONG));
    ptr[1] += 8; /* a pair of f64 is 16 bytes */
    EXPECT(df_cuda_facts(&k, &a) == (DF_CUDA_NARROW | DF_CUDA_LONG));
    ptr[1] -= 8;
    stride[0] = 101;
    EXPECT(df_cuda_facts(&k, &a) == (DF_CUDA_NARROW | DF_CUDA_LONG));
    stride[0] = 100;
    k.role[0] = DF_AXIS_RED; /* a row of two axes: pairs may not go across the last one's end */
    extent[1] = 100;
    EXPECT(df_cuda_facts(&k, &a) == both);
    extent[1] = 99;
    EXPECT(df_cuda_facts(&k, &a) == DF_CUDA_NARROW);
    k.role[0] = DF_AXIS_OUTER;
    extent[1] = (int64_t)1 << 36;
    EXPECT(df_cuda_fits(&d, &k, &a) == DEFT_E_LIMIT && strstr(d.text, "68719476736 elements"));
    extent[1]--;
    EXPECT(df_cuda_fits(&d, &k, &a) == DEFT_OK);
    EXPECT(df_cuda_facts(&k, &a) == (DF_CUDA_WIDE | DF_CUDA_LONG));
}

/* ---- refusals ---- */

static void expect_refused(const df_kernel *k, df_cuda_entry e, const char *words)
{
    df_str s;
    df_diag d = { 0 };
    df_str_init(&s, &df_mem_system);
    const deft_status st = df_cuda_text(&d, k, "k", &e, 1, &df_mem_system, &s);
    if (st != DEFT_E_COMPILE || !strstr(d.text, words) || s.n != 0) {
        printf("not refused with \"%s\": %s\n", words, d.text);
        n_faults++;
    }
    df_str_finish(&s);
}

static void check_refusals(void)
{
    enum { MANY_ACCESSES = 300 };
    const df_cuda_entry plain = { DF_CUDA_MAIN, 0 };
    one_op x;
    one_op_make(&x, DF_K_sqrt, DEFT_I32, DEFT_I32);
    expect_refused(&x.k, plain, "no sqrt of i32 from i32");
    one_op_make(&x, DF_K_add, DEFT_F16, DEFT_F16);
    expect_refused(&x.k, plain, "no add of f16 from f16");
    one_op_make(&x, DF_K_add, DEFT_F32, DEFT_F32);
    x.ins[2].src[1] = 7;
    expect_refused(&x.k, plain, "reads instruction 7");
    x.ins[2].src[1] = 1;
    x.ins[0].imm = 9;
    expect_refused(&x.k, plain, "access 9, of 3");
    x.ins[0].imm = 0;
    expect_refused(&x.k, (df_cuda_entry){ DF_CUDA_MAIN, DF_CUDA_LONG }, "mean nothing");
    expect_refused(&x.k, (df_cuda_entry){ DF_CUDA_PART, 0 }, "pass 1");

    df_access access[MANY_ACCESSES] = { { .kind = DF_ACCESS_LOAD, .dtype = DEFT_F64 } };
    const df_ins body[] = { ins(DF_K_load, DEFT_F64, 0, DF_LEVEL_ELEM, 0, 0, 0),
                            ins(DF_K_sum, DEFT_F64, 0, DF_LEVEL_ELEM, 0, 0, 0) };
    df_kernel k = { .mode = DF_MODE_COL,
                    .n_axes = 2,
                    .n_stages = 1,
                    .role = { DF_AXIS_RED, DF_AXIS_INNER },
                    .n_access = 1,
                    .n_ins = DF_LEN(body),
                    .access = access,
                    .ins = body };
    for (uint32_t i = 0; i < MANY_ACCESSES; i++) {
        access[i] = access[0];
        access[i].step[0] = DF_STEP_ANY;
    }
    k.n_access = MANY_ACCESSES; /* 300 addresses and as many strides */
    EXPECT(!df_cuda_by_value(&k));
    expect_refused(&k, plain, "602 words");
}

/* ---- the same text ---- */

static void check_same_text(void)
{
    static random_kernel g[2];
    for (int mode = DF_MODE_MAP; mode <= DF_MODE_LOOP; mode++) {
        const df_cuda_entry e = { DF_CUDA_MAIN, DF_CUDA_NARROW };
        df_str s[2];
        for (int i = 0; i < 2; i++) { /* at another address */
            df_diag d = { 0 };
            df_str_init(&s[i], &df_mem_system);
            random_kernel_make(&g[i], 20, (df_mode)mode, false);
            EXPECT(df_cuda_text(&d, &g[i].k, "k", &e, 1, &df_mem_system, &s[i]) == DEFT_OK);
        }
        EXPECT(s[0].n > 500 && s[0].n == s[1].n && memcmp(s[0].at, s[1].at, s[0].n) == 0);
        df_str_finish(&s[0]);
        df_str_finish(&s[1]);
    }
}

/* ---- memory ---- */

static void check_memory(void)
{
    random_kernel *const g = malloc(sizeof *g);
    fail_mem *f = fail_mem_create();
    if (!g) return;
    for (int mode = DF_MODE_MAP; mode <= DF_MODE_LOOP; mode++) {
        const df_cuda_entry e = { DF_CUDA_MAIN, DF_CUDA_NARROW };
        random_kernel_make(g, 12, (df_mode)mode, false);
        deft_status st = DEFT_E_MEMORY;
        for (size_t at = 1; st != DEFT_OK && at < 10000; at++) {
            df_diag d = { 0 };
            df_str s;
            df_str_init(&s, fail_mem_get(f));
            const size_t failed = fail_mem_count(f).failed;
            fail_mem_at(f, at, false);
            st = df_cuda_text(&d, &g->k, "k", &e, 1, fail_mem_get(f), &s);
            fail_mem_at(f, 0, false);
            EXPECT(st == (fail_mem_count(f).failed > failed ? DEFT_E_MEMORY : DEFT_OK));
            df_str_finish(&s);
            EXPECT(fail_mem_count(f).live_blocks == 0 && fail_mem_count(f).faults == 0);
        }
        EXPECT(st == DEFT_OK);
    }
    fail_mem_destroy(&f);
    free(g);
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    tools = (batch_tools){ .compiler = argv[1],
                           .shim = argv[2],
                           .folder = "/tmp/deft-shim-XXXXXX",
                           .runs_briefly = true };
    if (!mkdtemp(tools.folder)) return 2;
    check_facts();
    check_refusals();
    check_same_text();
    check_memory();
    check_gather();
    check_scratch();
    check_row_store(false);
    check_row_store(true);
    check_exchange();
    check_scan();
    check_reductions(false, false, HAND_REDUCTIONS);
    check_reductions(false, true, HAND_REDUCTIONS);
    check_reductions(true, false, 15);
    check_reductions(true, true, 5);
    check_reductions(true, true, 15);
    check_long(false);
    check_long(true);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", tools.folder);
    if (n_faults == 0 && system(command) != 0) n_faults++;
    printf("%ld faults\n", n_faults);
    return n_faults == 0 ? 0 : 1;
}
