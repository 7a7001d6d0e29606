/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels that decide within a graph (jit_cuda/graphs/conditional.cu) through NVRTC to PTX,
 * no GPU needed, for each architecture that it knows. What the driver fills in is declared there,
 * of the parameters that it has, and called; nothing else stays open. Skipped, with a sentence,
 * where there is no NVRTC.
 *
 *   conditional_assemble
 */
#include <stdio.h>
#include <string.h>

#include "jit_cuda/conditional_text.h"
#include "jit_cuda/gen/cuda_abi.h"
#include "jit_cuda/driver/nvrtc.h"

enum { SKIP = 77 };

static long n_faults;

static long count(const char *text, const char *words)
{
    long n = 0;
    for (; (text = strstr(text, words)); text++) n++;
    return n;
}

static void expect(int arch, const char *ptx, const char *words, long n)
{
    const long found = count(ptx, words);
    if (found == n) return;
    printf("compute_%d: \"%s\" %ld times, not %ld\n", arch, words, found, n);
    n_faults++;
}

static void assemble(const df_nvrtc *nv, int arch)
{
    static const char *const entries[] = { ".entry conditional_count(", ".entry conditional_loop(",
                                           ".entry conditional_branch(" };
    df_diag d = { 0 };
    df_cubin c;
    df_str text;
    size_t size;
    df_str_init(&text, &df_mem_system);
    const char *const prelude = df_cuda_prelude(&size);
    df_str_putn(&text, prelude, size);
    df_str_putn(&text, (const char *)conditional_text, sizeof conditional_text - 1);
    if (df_nvrtc_ptx(nv, &d, text.at, arch, false, &c) != DEFT_OK) {
        printf("compute_%d: %s\n", arch, d.text);
        n_faults++;
    } else {
        const char *const ptx = c.at;
        for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
            expect(arch, ptx, entries[i], 1);
        expect(arch, ptx, ".extern", 1);
        expect(arch, ptx, ".extern .func cudaGraphSetConditional\n", 1);
        expect(arch, ptx, ".param .b64 cudaGraphSetConditional_param_0,", 1);
        expect(arch, ptx, ".param .b32 cudaGraphSetConditional_param_1\n", 1);
        expect(arch, ptx, "call.uni", 3);
        df_cubin_finish(nv, &c);
    }
    df_str_finish(&text);
}

int main(void)
{
    df_diag d = { 0 };
    df_nvrtc *nv = NULL;
    int n = 0;
    if (df_nvrtc_open(&d, &df_mem_system, NULL, &nv) != DEFT_OK) {
        printf("skipped: %s\n", d.text);
        return SKIP;
    }
    for (int arch = 75; arch < 200; arch++) {
        if (!df_nvrtc_has(nv, arch)) continue;
        assemble(nv, arch);
        n++;
    }
    printf("NVRTC %d.%d, %d architectures; %ld faults\n", df_nvrtc_version(nv) / 100,
           df_nvrtc_version(nv) % 100, n, n_faults);
    df_nvrtc_close(&nv);
    return n_faults || n == 0;
}
