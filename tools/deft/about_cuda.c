/* SPDX-License-Identifier: Apache-2.0
 *
 * deft doctor: what there is of CUDA. The libraries are opened, as a program that uses a GPU would;
 * nothing is put to work.
 */
#include "cli.h"

#include <stdio.h>

#include "base/env.h"
#include "jit_cuda/kernels/cublaslt.h"
#include "jit_cuda/driver/gpu.h"
#include "jit_cuda/driver/library.h"
#include "jit_cuda/driver/nvrtc.h"

static void show_gpu(FILE *f, const df_driver *dr, int ordinal)
{
    df_diag d = { 0 };
    df_gpu *g = NULL;
    if (df_gpu_open(&d, dr, NULL, ordinal, NULL, &g) == DEFT_OK) {
        const df_gpu_properties *const is = df_gpu_facts_of(g);
        fprintf(f, "gpu %d      %s, sm_%d, %llu MiB, %d multiprocessors\n", ordinal, is->name,
                is->arch, (unsigned long long)(is->bytes >> 20), is->n_sms);
    } else {
        fprintf(f, "gpu %d      not usable: %s\n", ordinal, d.text);
    }
    df_gpu_close(&g);
}

static void show_driver(FILE *f)
{
    df_diag d = { 0 };
    df_driver *dr = NULL;
    if (df_driver_open(&d, &df_mem_system, NULL, &dr) != DEFT_OK) {
        fprintf(f, "cuda       none: %s\n", d.text);
        return;
    }
    fprintf(f, "cuda       driver of CUDA %d.%d, %d GPU%s\n", dr->version / 1000,
            dr->version % 1000 / 10, dr->n_devices, dr->n_devices == 1 ? "" : "s");
    for (int i = 0; i < dr->n_devices; i++) show_gpu(f, dr, i);
    df_driver_close(&dr);
}

static void show_nvrtc(FILE *f)
{
    df_diag d = { 0 };
    df_nvrtc *n = NULL;
    if (df_nvrtc_open(&d, &df_mem_system, NULL, &n) == DEFT_OK)
        fprintf(f, "nvrtc      CUDA %d.%d\n", df_nvrtc_version(n) / 100, df_nvrtc_version(n) % 100);
    else
        fprintf(f, "nvrtc      none: %s\n", d.text);
    df_nvrtc_close(&n);
}

static void show_cublaslt(FILE *f)
{
    void *const library = df_cublaslt_library(df_env("DEFT_CUBLASLT"));
    size_t (*version)(void) = NULL;
    if (library && df_library_find(library, "cublasLtGetVersion", &version))
        fprintf(f, "cublasLt   %zu: may serve matmuls in fast mode\n", version());
    else
        fprintf(f, "cublasLt   none\n");
}

void cli_doctor_cuda(FILE *f)
{
    show_driver(f);
    show_nvrtc(f);
    show_cublaslt(f);
}
