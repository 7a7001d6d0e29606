/* SPDX-License-Identifier: Apache-2.0
 *
 * Each run of a plan on a GPU is one NVTX range, whether it succeeds or not; without DEFT_NVTX
 * there is none.
 *
 *   test_nvtx DRIVER NVRTC CUBLASLT NVTX
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trial.h"

static const char text[] = "%0 = input f32[7,5]\n"
                           "%1 = input i64[3]\n"
                           "%2 = take f32[3,5] %0 %1 axis=0\n"
                           "%3 = exp f32[3,5] %2\n"
                           "output %3\n";

static long (*ranges)(char latest[128]);
static int (*open_ranges)(void);

static void run_program(df_device *cpu, const char *library)
{
    df_diag d = { 0 };
    program p;
    bench b = { .mem = fail_mem_create() };
    if (library)
        (void)setenv("DEFT_NVTX", library, 1);
    else
        (void)unsetenv("DEFT_NVTX");
    if (bench_open(&b, &d) != DEFT_OK) trial_fault("device", "not opened", d.text);
    if (program_parse(&p, "nvtx", text, sizeof text - 1, cpu)) bench_check(&p, &b);
    program_finish(&p);
    bench_close(&b);
    fail_mem_destroy(&b.mem);
}

int main(int argc, char **argv)
{
    char latest[128];
    df_device *cpu = NULL;
    if (argc != 5) return 2;
    const char *const path = argv[4];
    argv[4] = NULL;
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *const f = library ? dlsym(library, "standin_nvtx_ranges") : NULL;
    void *const g = library ? dlsym(library, "standin_nvtx_open") : NULL;
    if (!f || !g || !trial_begin(argv, &cpu)) return 2;
    memcpy(&ranges, &f, sizeof f);
    memcpy(&open_ranges, &g, sizeof g);
    run_program(cpu, NULL);
    run_program(cpu, "/nowhere/libnvToolsExt.so.1");
    if (ranges(latest) != 0) trial_fault("nvtx", "ranges that nobody asked for", latest);
    const long before = trial_counts.runs;
    run_program(cpu, path);
    const long n = trial_counts.runs - before;
    if (ranges(latest) != n || n == 0) trial_fault("nvtx", "not one range for each run", latest);
    if (open_ranges() != 0) trial_fault("nvtx", "a range is left open", latest);
    if (strncmp(latest, "deft plan ", 10) != 0) trial_fault("nvtx", "another name", latest);
    return trial_end(&cpu) ? 0 : 1;
}
