/* SPDX-License-Identifier: Apache-2.0
 *
 * COL kernels whose threads have several columns, on the CPU (shim.h), against the interpreter, bit
 * for bit: whole and in parts, extents around blocks and tiles, columns that row level reads and
 * writes, stages that read what was reduced; and how many columns a thread has.
 *
 *   col_cases COMPILER FOLDER-OF-SHIM
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "jit_cuda/exec/device_internal.h"
#include "runtime/interp/interp.h"
#include "support/hand_kernel.h"
#include "holds.h"

enum { ROWS = 2, N_ACCESS = 4, N_KERNELS = 5 };

static long n_runs;
static batch_tools tools;

/* Of t: the sum of x * w, and their greatest added to it if has_two, at z, w and z being of a
 * column; and, not split, x - z at y. */
typedef struct subject {
    df_kernel k;
    df_access access[N_ACCESS];
    df_ins ins[10];
} subject;

enum { X, W, Z, Y };

static void subject_make(subject *s, uint8_t t, bool split, bool has_two)
{
    for (uint32_t i = 0; i < N_ACCESS; i++) {
        s->access[i] = (df_access){ .kind = i < Z ? DF_ACCESS_LOAD : DF_ACCESS_STORE,
                                    .dtype = t,
                                    .same_as = (uint8_t)i };
        s->access[i].step[0] = DF_STEP_ANY;
        s->access[i].step[1] = i == X || i == Y ? DF_STEP_ANY : DF_STEP_ZERO;
        s->access[i].step[2] = i == W ? DF_STEP_ANY : DF_STEP_UNIT;
    }
    const df_ins body[] = {
        ins(DF_K_load, t, 0, DF_LEVEL_ROW, 0, 0, W),
        ins(DF_K_load, t, 0, DF_LEVEL_ELEM, 0, 0, X),
        ins(DF_K_mul, t, 0, DF_LEVEL_ELEM, 0, 1, 0),
        ins(DF_K_sum, t, 0, DF_LEVEL_ELEM, 2, 0, 0),
        has_two ? ins(DF_K_rmax, t, 0, DF_LEVEL_ELEM, 2, 0, 0)
                : ins(DF_K_const, t, 0, DF_LEVEL_ROW, 0, 0, 0),
        ins(DF_K_add, t, 1, DF_LEVEL_ROW, 3, 4, 0),
        ins(DF_K_store, t, 1, DF_LEVEL_ROW, 5, 0, Z),
        ins(DF_K_load, t, 1, DF_LEVEL_ELEM, 0, 0, X),
        ins(DF_K_sub, t, 1, DF_LEVEL_ELEM, 7, 5, 0),
        ins(DF_K_store, t, 1, DF_LEVEL_ELEM, 8, 0, Y),
    };
    memcpy(s->ins, body, sizeof body);
    s->k = (df_kernel){ .mode = DF_MODE_COL,
                        .n_axes = 3,
                        .n_stages = 2,
                        .flags = split ? DF_KERNEL_SPLIT : 0,
                        .role = { DF_AXIS_OUTER, DF_AXIS_RED, DF_AXIS_INNER },
                        .n_access = N_ACCESS,
                        .n_ins = split ? 7 : 10,
                        .access = s->access,
                        .ins = s->ins };
}

static void fill(void *at, uint8_t t, int64_t n)
{
    uint32_t state = 5;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        if (t == DEFT_F64)
            ((double *)at)[i] = (double)state * 0x1p-32 - 0.5;
        else if (t == DEFT_F32)
            ((float *)at)[i] = (float)(state >> 8) * 0x1p-24f - 0.5f;
        else
            ((uint8_t *)at)[i] = (uint8_t)(state >> 24);
    }
}

/* ---- runs ---- */

typedef struct memory {
    char *x, *w, *z[2], *y[2]; /* wanted, got */
} memory;

static void set_up(df_kargs *a, char **ptr, const memory *m, uint32_t which)
{
    ptr[X] = m->x;
    ptr[W] = m->w;
    ptr[Z] = m->z[which];
    ptr[Y] = m->y[which];
    a->ptr = ptr;
}

static void launch(const batch *b, const batch_kernel *bk, df_cuda_entry e, const df_kargs *a,
                   int64_t n_blocks)
{
    uint64_t words[64];
    df_cuda_fill(bk->k, a, words);
    EXPECT(batch_launch(b, bk, e, words, n_blocks));
    n_runs++;
}

static void check_extents(const batch *b, const batch_kernel *bk, uint8_t t, int64_t length,
                          int64_t inner)
{
    const size_t size = deft_dtype_size(t), all = (size_t)(ROWS * length * inner) * size + 16,
                 columns = (size_t)(ROWS * inner) * size + 16;
    memory m = { .x = aligned_alloc(16, (all + 15) & ~(size_t)15),
                 .w = aligned_alloc(16, 2 * ((columns + 15) & ~(size_t)15)) };
    for (uint32_t i = 0; i < 2; i++) {
        m.z[i] = calloc(1, columns);
        m.y[i] = calloc(1, all);
    }
    const int64_t extent[] = { ROWS, length, inner };
    const int64_t stride[] = { length * inner, inner, 1, 2 * inner,      0,     2,
                               inner,          0,     1, length * inner, inner, 1 };
    char *ptr[N_ACCESS];
    df_kargs a = { .extent = extent, .stride = stride };
    fill(m.x, t, ROWS * length * inner);
    fill(m.w, t, 2 * ROWS * inner);
    set_up(&a, ptr, &m, 0);
    void *const work = aligned_alloc(64, (df_interp_work_size(bk->k) + 127) & ~(size_t)63);
    df_interp_main(bk->k, work, &a, 0, ROWS, 0, inner);
    free(work);
    set_up(&a, ptr, &m, 1);
    a.partial = malloc((size_t)df_cuda_partial_words(bk->k, &a) * 8 + 8);
    for (uint32_t e = 0; e < bk->n_entries; e++) {
        const uint8_t asked = bk->entry[e].flags & (DF_CUDA_NARROW | DF_CUDA_WIDE);
        if ((df_cuda_facts(bk->k, &a) & asked) != asked || bk->entry[e].pass == DF_CUDA_FIN)
            continue;
        memset(m.z[1], 0, columns);
        memset(m.y[1], 0, all);
        launch(b, bk, bk->entry[e], &a, 2);
        if (bk->entry[e].pass == DF_CUDA_PART) launch(b, bk, bk->entry[e + 1], &a, 2);
        if (memcmp(m.z[0], m.z[1], columns) == 0 && memcmp(m.y[0], m.y[1], all) == 0) continue;
        printf("%s: %lld by %lld, entry %u: wrong\n", bk->where, (long long)length,
               (long long)inner, e);
        n_faults++;
    }
    free(a.partial);
    free(m.x);
    free(m.w);
    for (uint32_t i = 0; i < 2; i++) {
        free(m.z[i]);
        free(m.y[i]);
    }
}

static void check_runs(void)
{
    static const df_cuda_entry entries[] = { { DF_CUDA_MAIN, DF_CUDA_NARROW | DF_CUDA_WIDE },
                                             { DF_CUDA_MAIN, DF_CUDA_WIDE },
                                             { DF_CUDA_MAIN, DF_CUDA_NARROW },
                                             { DF_CUDA_PART, DF_CUDA_WIDE },
                                             { DF_CUDA_FIN, 0 } };
    static const struct {
        uint8_t t;
        bool split, has_two;
        const char *where;
    } of[N_KERNELS] = { { DEFT_F32, false, false, "f32" },
                        { DEFT_F32, false, true, "f32, two reductions" },
                        { DEFT_F32, true, false, "f32 in parts" },
                        { DEFT_F64, true, false, "f64 in parts" },
                        { DEFT_U8, false, true, "u8" } };
    static const int64_t lengths[] = { 0, 1, 17, 64, 65, 130, 4097, 8200 },
                         inners[] = { 2, 4, 33, 60, 128, 132, 260 };
    static subject s[N_KERNELS];
    batch_kernel k[N_KERNELS];
    batch b;
    for (uint32_t i = 0; i < N_KERNELS; i++) {
        subject_make(&s[i], of[i].t, of[i].split, of[i].has_two);
        k[i] = (batch_kernel){ .k = &s[i].k, .where = of[i].where };
        k[i].n_entries = of[i].split ? 5 : 3;
        memcpy(k[i].entry, entries, sizeof *entries * k[i].n_entries);
        snprintf(k[i].name, sizeof k[i].name, "k%u", i);
    }
    if (!batch_build(&b, &tools, k, N_KERNELS, 0)) n_faults++;
    for (uint32_t i = 0; b.library && i < N_KERNELS; i++)
        for (size_t l = 0; l < DF_LEN(lengths); l++)
            for (size_t n = 0; n < DF_LEN(inners); n++)
                if (lengths[l] < 4000 || inners[n] <= 132)
                    check_extents(&b, &k[i], of[i].t, lengths[l], inners[n]);
    batch_close(&b);
}

/* ---- how many columns ---- */

static void check_columns(void)
{
    subject s;
    subject_make(&s, DEFT_F32, true, false);
    EXPECT(df_cuda_lanes(&s.k) == 4);
    s.ins[3].op = DF_K_argmax;
    EXPECT(df_cuda_lanes(&s.k) == 1);
    s.ins[3].op = DF_K_cumsum;
    EXPECT(df_cuda_lanes(&s.k) == 1);
    subject_make(&s, DEFT_F32, true, true); /* stacks for two columns */
    EXPECT(df_cuda_lanes(&s.k) == 2);
    subject_make(&s, DEFT_F32, true, false);
    s.ins[2].op = DF_K_div;
    EXPECT(df_cuda_lanes(&s.k) == 2);
    subject_make(&s, DEFT_U8, true, true);
    EXPECT(df_cuda_lanes(&s.k) == 4);
    subject_make(&s, DEFT_F64, false, false);
    EXPECT(df_cuda_lanes(&s.k) == 2);
}

/* Stacks of 24 for 32 or 64 columns, of two reductions, behind 8 KB for folding. No run is so long
 * that it needs all of them. */
static void check_stacks(void)
{
    const df_cuda_entry e = { DF_CUDA_MAIN, DF_CUDA_WIDE };
    df_diag d = { 0 };
    df_str text;
    subject s;
    subject_make(&s, DEFT_F32, true, true);
    df_str_init(&text, &df_mem_system);
    EXPECT(df_cuda_text(&d, &s.k, "k", &e, 1, &df_mem_system, &text) == DEFT_OK);
    EXPECT(text.at && strstr(text.at, "mem[C == 1 ? 14336 : 20480]"));
    EXPECT(text.at && strstr(text.at, "stack3 = (sum_f32::t *)(mem + (C == 1 ? 8192 : 8192))"));
    EXPECT(text.at && strstr(text.at, "stack4 = (rmax_f32::t *)(mem + (C == 1 ? 11264 : 14336))"));
    df_str_finish(&text);
}

static void check_facts(void)
{
    const df_gpu_properties g = { .n_sms = 10, .threads_per_sm = 2048 };
    const uint8_t both = DF_CUDA_NARROW | DF_CUDA_WIDE;
    subject s;
    char *ptr[N_ACCESS] = { (char *)64, (char *)64, (char *)64, (char *)64 };
    int64_t extent[] = { 2, 64, 132 },
            stride[] = { 64 * 132, 132, 1, 264, 0, 2, 132, 0, 1, 64 * 132, 132, 1 };
    const df_kargs a = { .ptr = ptr, .stride = stride, .extent = extent };
    subject_make(&s, DEFT_F32, false, false);
    EXPECT(df_cuda_facts(&s.k, &a) == both);
    EXPECT(df_cuda_blocks(&s.k, (df_cuda_entry){ DF_CUDA_MAIN, DF_CUDA_WIDE }, &a) == 4);
    EXPECT(df_cuda_blocks(&s.k, (df_cuda_entry){ DF_CUDA_MAIN, 0 }, &a) == 10);
    EXPECT(df_cuda_choose(&g, &s.k, &a).flags == DF_CUDA_NARROW); /* 4 thread blocks are few */
    extent[2] = 130; /* the last thread would have two of four columns */
    EXPECT(df_cuda_facts(&s.k, &a) == DF_CUDA_NARROW);
    extent[2] = 132;
    stride[1] = 133;
    EXPECT(df_cuda_facts(&s.k, &a) == DF_CUDA_NARROW);
    stride[1] = 132;
    extent[0] = 8;
    EXPECT(df_cuda_choose(&g, &s.k, &a).flags == both);
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    tools = (batch_tools){ .compiler = argv[1],
                           .shim = argv[2],
                           .folder = "/tmp/deft-shim-XXXXXX",
                           .runs_briefly = true };
    if (!mkdtemp(tools.folder)) return 2;
    check_columns();
    check_stacks();
    check_facts();
    check_runs();
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", tools.folder);
    if (n_faults == 0 && system(command) != 0) n_faults++;
    printf("%ld runs, %ld faults\n", n_runs, n_faults);
    return n_faults == 0 ? 0 : 1;
}
