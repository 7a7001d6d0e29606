/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of attention through NVRTC to cubins, no GPU needed: every pass and width, of f32 on
 * all architectures and of halves from sm_80 on. Prints registers and shared memory; nothing may
 * spill. Skipped, with a sentence, where there is no NVRTC.
 *
 *   attention_assemble --arch=90
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit_cuda/kernels/attention.h"
#include "jit_cuda/gen/cuda_abi.h"
#include "jit_cuda/driver/nvrtc.h"
#include "support/budget.h"

enum { SKIP = 77, TYPES = 3, WIDTHS = 4 };

static long n_faults, n_entries;

static void check_usage(const df_cubin *c, uint32_t kernel)
{
    df_diag d = { 0 };
    df_cuda_usage u;
    char name[48];
    df_cuda_attention_name(kernel, name);
    if (df_cubin_usage(&d, c, name, &u) != DEFT_OK) {
        printf("%s: %s\n", name, d.text);
        n_faults++;
        return;
    }
    printf("  %s: %u registers, %u bytes shared\n", name, u.registers, u.shared);
    n_entries++;
    if (u.spilled == 0 && u.stack == 0 && u.shared <= DF_CUDA_SHARED_BYTES) return;
    printf("%s: %u bytes spilled, %u of local memory\n", name, u.spilled, u.stack);
    n_faults++;
}

/* One program of all passes of a type and width. */
static void assemble(const df_nvrtc *nv, int arch, uint32_t type, uint32_t width)
{
    df_str text;
    df_diag d = { 0 };
    df_cubin c;
    size_t size;
    uint64_t set = 0;
    for (uint32_t pass = 0; pass < DF_CUDA_ATTENTION_N_PASSES; pass++)
        set |= (uint64_t)1 << ((pass * TYPES + type) * WIDTHS + width);
    df_str_init(&text, &df_mem_system);
    const char *const prelude = df_cuda_prelude(&size);
    df_str_putn(&text, prelude, size);
    df_cuda_attention_text(set, &text);
    if (df_nvrtc_compile(nv, &d, text.at, arch, true, &c) == DEFT_OK) {
        for (uint32_t i = 0; i < DF_CUDA_ATTENTION_KERNELS; i++)
            if (set >> i & 1) check_usage(&c, i);
        df_cubin_finish(nv, &c);
    } else {
        printf("type %u, width %u: %s\n", type, width, d.text);
        n_faults++;
    }
    df_str_finish(&text);
}

int main(int argc, char **argv)
{
    int arch = 90;
    df_diag d = { 0 };
    df_nvrtc *nv = NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--arch=", 7) == 0) arch = atoi(argv[i] + 7);
    if (df_nvrtc_open(&d, &df_mem_system, NULL, &nv) != DEFT_OK || !df_nvrtc_has(nv, arch)) {
        printf("skipped: %s\n", nv ? "this NVRTC does not know the architecture" : d.text);
        df_nvrtc_close(&nv);
        return SKIP;
    }
    const uint32_t n_programs = (arch < 80 ? 1 : TYPES) * WIDTHS;
    uint32_t i = 0;
    for (; i < n_programs && (i < 2 || test_time_left(1)); i++) {
        const uint32_t at = test_scattered(i, n_programs);
        assemble(nv, arch, at / WIDTHS, at % WIDTHS);
    }
    df_nvrtc_close(&nv);
    printf("sm_%d: %u of %u programs, %ld entries, %ld faults\n", arch, i, n_programs, n_entries,
           n_faults);
    return n_faults == 0 ? 0 : 1;
}
