/* SPDX-License-Identifier: Apache-2.0
 *
 * Short MAP kernels whose threads take several groups of neighbours side by side, on the CPU
 * (shim.h), against the interpreter: by every kind of entry, at the extents around where groups
 * become fewer, are short, or begin a row; in place.
 *
 *   map_cases COMPILER FOLDER-OF-SHIM
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "jit_cuda/exec/device_internal.h"
#include "runtime/interp/interp.h"
#include "support/hand_kernel.h"
#include "holds.h"

enum { MOST = 40000, GAP = 8, N_ENTRIES = 4, N_DTYPES = 3 };

static long n_runs;
static batch_tools tools;

static const df_cuda_entry entries[N_ENTRIES] = { { DF_CUDA_MAIN, DF_CUDA_NARROW | DF_CUDA_WIDE },
                                                  { DF_CUDA_MAIN, DF_CUDA_WIDE },
                                                  { DF_CUDA_MAIN, DF_CUDA_NARROW },
                                                  { DF_CUDA_MAIN, 0 } };

static void fill(void *at, uint8_t t, int64_t n, int64_t from)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t v = (i * 7 + from) % 251;
        if (t == DEFT_F64)
            ((double *)at)[i] = (double)v;
        else if (t == DEFT_F32)
            ((float *)at)[i] = (float)v;
        else
            ((uint8_t *)at)[i] = (uint8_t)v;
    }
}

/* rows of n, GAP elements apart. */
static void check_extents(const batch *b, const batch_kernel *bk, uint8_t t, int64_t rows,
                          int64_t n, int64_t n_blocks)
{
    static _Alignas(16) double x[MOST + 2], got[MOST + 2], want[MOST + 2];
    const int64_t by = n + (rows > 1 ? GAP - n % GAP : 0), size = (int64_t)deft_dtype_size(t),
                  all = rows * by + GAP;
    const int64_t extent_one[] = { n }, extent_rows[] = { rows, n };
    const int64_t stride_one[] = { 1, 1, 1 }, stride_rows[] = { by, 1, by, 1, by, 1 };
    char *ptr[] = { (char *)x, (char *)want, (char *)want };
    const bool is_one = bk->k->n_axes == 1;
    df_kargs a = { .ptr = ptr,
                   .extent = is_one ? extent_one : extent_rows,
                   .stride = is_one ? stride_one : stride_rows };
    fill(x, t, all, 3);
    fill(want, t, all, 11);
    void *const work = aligned_alloc(64, (df_interp_work_size(bk->k) + 127) & ~(size_t)63);
    if (work) df_interp_main(bk->k, work, &a, 0, rows, 0, n);
    free(work);
    ptr[1] = ptr[2] = (char *)got;
    for (uint32_t e = 0; e < N_ENTRIES; e++) {
        uint64_t words[32];
        fill(got, t, all, 11);
        if ((df_cuda_facts(bk->k, &a) & entries[e].flags) != entries[e].flags) continue;
        df_cuda_fill(bk->k, &a, words);
        EXPECT(batch_launch(b, bk, entries[e], words, n_blocks));
        n_runs++;
        if (memcmp(got, want, (size_t)(all * size)) == 0) continue;
        printf("%s: %lld rows of %lld by %lld blocks, entry %u: wrong\n", bk->where,
               (long long)rows, (long long)n, (long long)n_blocks, e);
        n_faults++;
    }
}

/* A thread block of 256 has 4 groups of 4 of f32 at 4096 elements. */
static void check_axpy(uint32_t number)
{
    static const uint8_t dtypes[N_DTYPES] = { DEFT_F32, DEFT_F64, DEFT_U8 };
    static const char *const where[2 * N_DTYPES] = { "f32",         "f64",         "u8",
                                                     "f32 of rows", "f64 of rows", "u8 of rows" };
    static const int64_t one[] = { 0,    1,    3,    4,    1023, 1024, 3072, 3073,  3076,
                                   4092, 4095, 4096, 4097, 4100, 8191, 8192, 16384, 20001 },
                         many[][2] = { { 2, 1 },    { 3, 5 },    { 7, 8 },    { 2, 1024 },
                                       { 5, 1000 }, { 31, 132 }, { 3, 4093 }, { 9, 4096 } };
    static hand_axpy p[2 * N_DTYPES];
    batch_kernel bk[2 * N_DTYPES];
    batch b;
    for (uint32_t i = 0; i < 2 * N_DTYPES; i++) {
        hand_axpy_make(&p[i], dtypes[i % N_DTYPES], i >= N_DTYPES);
        bk[i] = (batch_kernel){ .k = &p[i].k, .where = where[i], .n_entries = N_ENTRIES };
        memcpy(bk[i].entry, entries, sizeof entries);
        snprintf(bk[i].name, sizeof bk[i].name, "k%u", i);
    }
    if (!batch_build(&b, &tools, bk, 2 * N_DTYPES, number)) n_faults++;
    for (uint32_t i = 0; b.library && i < 2 * N_DTYPES; i++)
        for (int64_t blocks = 1; blocks <= 3; blocks++) {
            const uint8_t t = dtypes[i % N_DTYPES];
            for (size_t j = 0; i < N_DTYPES && j < DF_LEN(one); j++)
                check_extents(&b, &bk[i], t, 1, one[j], blocks);
            for (size_t j = 0; i >= N_DTYPES && j < DF_LEN(many); j++)
                check_extents(&b, &bk[i], t, many[j][0], many[j][1], blocks);
        }
    batch_close(&b);
}

/* What a thread takes side by side: by the body, its loads and the width of a group. */
static void check_groups(void)
{
    hand_axpy p;
    hand_axpy_make(&p, DEFT_F32, false);
    EXPECT(df_cuda_packs(&p.k, DF_CUDA_WIDE) == 4);
    EXPECT(df_cuda_packs(&p.k, 0) == 4);
    hand_axpy_make(&p, DEFT_U8, false);
    EXPECT(df_cuda_packs(&p.k, DF_CUDA_WIDE) == 1); /* 16 neighbours are enough */
    EXPECT(df_cuda_packs(&p.k, 0) == 4);
    hand_axpy_make(&p, DEFT_F64, false);
    EXPECT(df_cuda_packs(&p.k, DF_CUDA_WIDE) == 4);
    p.ins[3].op = DF_K_div;
    EXPECT(df_cuda_packs(&p.k, DF_CUDA_WIDE) == 2); /* a long instruction */
    p.ins[3].op = DF_K_load;
    EXPECT(df_cuda_packs(&p.k, DF_CUDA_WIDE) == 2); /* three loads */
    p.ins[1].op = p.ins[2].op = p.ins[3].op = DF_K_add;
    EXPECT(df_cuda_packs(&p.k, DF_CUDA_WIDE) == 1); /* none */
    static df_ins longer[30];
    for (uint32_t i = 0; i < 30; i++)
        longer[i] = ins(DF_K_add, DEFT_F32, 0, DF_LEVEL_ELEM, 0, 0, 0);
    longer[0].op = DF_K_load;
    p.k.ins = longer;
    p.k.n_ins = 16;
    EXPECT(df_cuda_packs(&p.k, 0) == 2);
    p.k.n_ins = 17;
    EXPECT(df_cuda_packs(&p.k, 0) == 1);
    p.k.n_ins = 8;
    p.k.mode = DF_MODE_ROW;
    EXPECT(df_cuda_packs(&p.k, 0) == 1);
}

/* Thread blocks until the GPU has 16 warps for each multiprocessor, then groups for each thread. */
static void check_grid(void)
{
    const df_gpu_properties g = { .n_sms = 100, .threads_per_sm = 2048 };
    const df_cuda_entry e = entries[0];
    hand_axpy p;
    hand_axpy_make(&p, DEFT_F32, false);
    EXPECT(df_cuda_fewer_blocks(&g, &p.k, e, 0) == 0);
    EXPECT(df_cuda_fewer_blocks(&g, &p.k, e, 796) == 796);
    EXPECT(df_cuda_fewer_blocks(&g, &p.k, e, 797) == 200);
    EXPECT(df_cuda_fewer_blocks(&g, &p.k, e, 10001) == 2501);
    p.k.mode = DF_MODE_ROW;
    EXPECT(df_cuda_fewer_blocks(&g, &p.k, e, 10001) == 10001);
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    tools = (batch_tools){ .compiler = argv[1],
                           .shim = argv[2],
                           .folder = "/tmp/deft-shim-XXXXXX",
                           .runs_briefly = true };
    if (!mkdtemp(tools.folder)) return 2;
    check_groups();
    check_grid();
    check_axpy(0);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", tools.folder);
    if (n_faults == 0 && system(command) != 0) n_faults++;
    printf("%ld runs, %ld faults\n", n_runs, n_faults);
    return n_faults == 0 ? 0 : 1;
}
