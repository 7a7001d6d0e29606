/* SPDX-License-Identifier: Apache-2.0
 *
 * Products' CUDA text through NVRTC to cubins, no GPU needed: every tile of both dtypes, and of f32
 * that lies in memory as halves, from sm_80 on by tensor cores too; operands read in every way,
 * with an epilogue and without, for one architecture. Prints registers and shared memory of each
 * tile; nothing may spill but a few words where there is an epilogue. Skipped, with a sentence,
 * where there is no NVRTC.
 *
 *   gemm_assemble --arch=90 [--brief]
 *
 * --brief: of each tile one way to read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit_cuda/kernels/gemm.h"
#include "jit_cuda/kernels/gemm_tile.h"
#include "jit_cuda/driver/nvrtc.h"
#include "support/budget.h"

/* EPILOGUE_LOCAL: a few words beside an epilogue cost less than a second thread block. */
enum { SKIP = 77, MOST = 8, EPILOGUE_LOCAL = 64 };

static long n_faults, n_entries;

/* C + bias[column] and its root, both stored. */
static const df_ins body[2][6] = {
#define BODY(t)                                                                                    \
    {                                                                                              \
        { .op = DF_K_load, .dtype = t, .level = DF_LEVEL_ELEM, .imm = 0 },                         \
            { .op = DF_K_load, .dtype = t, .level = DF_LEVEL_ELEM, .imm = 1 },                     \
            { .op = DF_K_add, .dtype = t, .level = DF_LEVEL_ELEM, .src = { 0, 1 } },               \
            { .op = DF_K_sqrt, .dtype = t, .level = DF_LEVEL_ELEM, .src = { 2 } },                 \
            { .op = DF_K_store, .dtype = t, .level = DF_LEVEL_ELEM, .src = { 2 }, .imm = 2 },      \
        {                                                                                          \
            .op = DF_K_store, .dtype = t, .level = DF_LEVEL_ELEM, .src = { 3 }, .imm = 3           \
        }                                                                                          \
    }
    BODY(DEFT_F32), BODY(DEFT_F64)
#undef BODY
};

static df_kernel make_epilogue(bool is_f64, df_access access[4])
{
    for (uint32_t i = 0; i < 4; i++)
        access[i] = (df_access){ .kind = i < 2 ? DF_ACCESS_LOAD : DF_ACCESS_STORE,
                                 .dtype = is_f64 ? DEFT_F64 : DEFT_F32,
                                 .same_as = i,
                                 .step = { i == 1 ? DF_STEP_ZERO : DF_STEP_ANY, DF_STEP_UNIT } };
    return (df_kernel){ .mode = DF_MODE_MAP,
                        .n_axes = 2,
                        .n_stages = 1,
                        .role = { DF_AXIS_OUTER, DF_AXIS_INNER },
                        .n_access = 4,
                        .n_ins = 6,
                        .access = access,
                        .ins = body[is_f64] };
}

static void check_usage(const df_cubin *c, const df_cuda_gemm_config *v, const char *name)
{
    df_diag d = { 0 };
    df_cuda_usage u;
    if (df_cubin_usage(&d, c, name, &u) != DEFT_OK) {
        printf("%s: %s\n", name, d.text);
        n_faults++;
        return;
    }
    const df_cuda_tile *const t = df_cuda_gemm_tile(v);
    printf("  %s of %s %ux%ux%u, A %u, B %u, flags %u: %u registers, %u bytes shared\n",
           deft_dtype_name((deft_dtype)v->dtype), deft_dtype_name((deft_dtype)v->a_dtype), t->bm,
           t->bn, t->bk, v->a, v->b, v->flags, u.registers, u.shared);
    n_entries++;
    const uint32_t most = v->flags & DF_CUDA_GEMM_EPILOGUE ? EPILOGUE_LOCAL : 0;
    if (u.stack <= most && (u.spilled == 0 || most > 0) && u.shared <= DF_CUDA_SHARED_BYTES) return;
    printf("%s: %u bytes spilled, %u of local memory\n", name, u.spilled, u.stack);
    n_faults++;
}

/* One program of a tile's entries. */
static void assemble(const df_nvrtc *nv, int arch, deft_dtype in, bool mma, uint8_t tile,
                     bool brief)
{
    const bool is_f64 = in == DEFT_F64;
    static const uint8_t reads[][2] = {
        { DF_CUDA_READ_WIDE_K, DF_CUDA_READ_WIDE_C },
        { DF_CUDA_READ_WIDE_C, DF_CUDA_READ_WIDE_K },
        { DF_CUDA_READ_ALONG_K, DF_CUDA_READ_ALONG_C },
        { DF_CUDA_READ_ALONG_C, DF_CUDA_READ_ALONG_K },
    };
    df_access access[4];
    const df_kernel epilogue = make_epilogue(is_f64, access);
    df_cuda_gemm_config v[MOST];
    char name[MOST][16];
    df_str text;
    df_diag d = { 0 };
    df_cubin c;
    size_t size;
    const uint32_t n = brief ? 2 : MOST;
    df_str_init(&text, &df_mem_system);
    const char *prelude = df_cuda_prelude(&size);
    df_str_putn(&text, prelude, size);
    prelude = df_cuda_gemm_prelude(&size);
    df_str_putn(&text, prelude, size);
    for (uint32_t i = 0; i < n; i++) {
        const bool fused = i % 2;
        v[i] = (df_cuda_gemm_config){
            .dtype = is_f64 ? DEFT_F64 : DEFT_F32,
            .a_dtype = (uint8_t)in,
            .b_dtype = (uint8_t)in,
            .tile = tile,
            .a = reads[i / 2][0],
            .b = reads[i / 2][1],
            .flags = (uint8_t)((fused ? DF_CUDA_GEMM_EPILOGUE | DF_CUDA_NARROW | DF_CUDA_WIDE
                                      : DF_CUDA_GEMM_STORE | DF_CUDA_WIDE) |
                               (mma ? DF_CUDA_GEMM_MMA : 0)),
        };
        snprintf(name[i], sizeof name[i], "p%u", i);
        if (df_cuda_gemm_text(&d, &v[i], fused ? &epilogue : NULL, name[i], &df_mem_system,
                              &text) != DEFT_OK) {
            printf("%s\n", d.text);
            n_faults++;
        }
    }
    if (df_nvrtc_compile(nv, &d, text.at, arch, false, &c) == DEFT_OK) {
        for (uint32_t i = 0; i < n; i++) check_usage(&c, &v[i], name[i]);
        df_cubin_finish(nv, &c);
    } else {
        printf("tile %u: %s\n", tile, d.text);
        n_faults++;
    }
    df_str_finish(&text);
}

int main(int argc, char **argv)
{
    int arch = 90;
    bool brief = false;
    df_diag d = { 0 };
    df_nvrtc *nv = NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--arch=", 7) == 0) arch = atoi(argv[i] + 7);
        brief |= strcmp(argv[i], "--brief") == 0;
    }
    if (df_nvrtc_open(&d, &df_mem_system, NULL, &nv) != DEFT_OK || !df_nvrtc_has(nv, arch)) {
        printf("skipped: %s\n", nv ? "this NVRTC does not know the architecture" : d.text);
        df_nvrtc_close(&nv);
        return SKIP;
    }
    static const deft_dtype all[] = { DEFT_F32, DEFT_F64, DEFT_F16, DEFT_BF16 };
    const uint32_t n_plain = DF_LEN(all) * DF_CUDA_N_TILES;
    const uint32_t n_programs = n_plain + (arch >= 80 ? 2 * DF_CUDA_N_MMA_TILES : 0);
    uint32_t i = 0;
    for (; i < n_programs && (i < 2 || test_time_left(1)); i++) {
        const uint32_t at = test_scattered(i, n_programs), mma = at - n_plain;
        if (at < n_plain)
            assemble(nv, arch, all[at % DF_LEN(all)], false, (uint8_t)(at / DF_LEN(all)), brief);
        else
            assemble(nv, arch, mma % 2 ? DEFT_BF16 : DEFT_F16, true, (uint8_t)(mma / 2), brief);
    }
    df_nvrtc_close(&nv);
    printf("sm_%d: %u of %u programs, %ld entries, %ld faults\n", arch, i, n_programs, n_entries,
           n_faults);
    return n_faults == 0 ? 0 : 1;
}
