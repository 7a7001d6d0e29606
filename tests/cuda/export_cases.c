/* SPDX-License-Identifier: Apache-2.0
 *
 * Exports for GPUs as lists of launches (runtime/gpu_export.h): the list has the launches that a
 * run on the stand-in GPU makes, in its order; and every allocation fails in turn.
 *
 *   export_cases DRIVER NVRTC CUBLASLT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit_cuda/exec/device_internal.h"
#include "jit_cuda/exec/export.h"
#include "trial.h"

static const struct {
    const char *name, *text;
} cases[] = {
    { "map", "%0 = input f32[1000]\n%1 = exp f32[1000] %0\noutput %1\n" },
    { "row, split and joined", "%0 = input f32[2,300000]\n"
                               "%1 = sum f32[2] %0 axes=[1]\n"
                               "output %1\n" },
    { "softmax", "%0 = input f32[70,900]\n"
                 "%1 = max f32[70,1] %0 axes=[1] keepdims\n"
                 "%2 = sub f32[70,900] %0 %1\n"
                 "%3 = exp f32[70,900] %2\n"
                 "%4 = sum f32[70,1] %3 axes=[1] keepdims\n"
                 "%5 = div f32[70,900] %3 %4\n"
                 "output %5\n" },
    { "products with epilogues", "%0 = input f32[64,40]\n"
                                 "%1 = input f32[40,72]\n"
                                 "%2 = input f32[72]\n"
                                 "%3 = matmul f32[64,72] %0 %1\n"
                                 "%4 = add f32[64,72] %3 %2\n"
                                 "%5 = exp f32[64,72] %4\n"
                                 "%6 = permute f32[72,64] %5 perm=[1,0]\n"
                                 "%7 = matmul f32[64,64] %5 %6\n"
                                 "output %7\n" },
    { "a sort", "%0 = input f32[9,5000]\n%1 = argsort i64[9,5000] %0\noutput %1\n" },
    { "rows at indices, added", "%0 = input f32[400,30] sole\n"
                                "%1 = input i64[700]\n"
                                "%2 = input f32[700,30]\n"
                                "%3 = index_add f32[400,30] %0 %1 %2 axis=0\n"
                                "output %3 donor %0\n" },
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* "k0_main_nw" is "main_nw": kernels are numbered within a program. */
static const char *without_number(const char *entry)
{
    const char *const end = strchr(entry, '_');
    return entry[0] == 'k' && entry[1] >= '0' && entry[1] <= '9' && end ? end + 1 : entry;
}

/* Compares the list with the launches of the record. Each is "cuLaunchKernel s1 ENTRY N x M". */
static void compare(const char *where, const df_gpu_export *e, const char *record)
{
    uint32_t n = 0;
    static const char call[] = "cuLaunchKernel ";
    for (const char *at = record; (at = strstr(at, call)); n++) {
        char entry[128] = "", want[256], have[256];
        unsigned blocks = 0, threads = 0;
        at += sizeof call - 1;
        (void)sscanf(at, "%*s %127s %u x %u", entry, &blocks, &threads);
        const char *const in_module = strrchr(entry, ':');
        (void)snprintf(want, sizeof want, "%s %u x %u",
                       without_number(in_module ? in_module + 1 : entry), blocks, threads);
        (void)snprintf(have, sizeof have, "nothing");
        if (n < e->n_steps)
            (void)snprintf(have, sizeof have, "%s %u x %u",
                           without_number(e->function[e->step[n].function].name),
                           e->step[n].n_blocks, e->step[n].n_threads);
        if (strcmp(want, have) != 0) {
            printf("launch %u: the run has %s, the export %s\n", n, want, have);
            trial_fault(where, "other launches than a run", "");
            return;
        }
    }
    if (n == 0 || n != e->n_steps) trial_fault(where, "another number of launches", "");
}

static deft_status export_as(program *p, const df_mem *mem, df_diag *d,
                             const df_gpu_properties *like, df_gpu_export *out)
{
    const df_gpu_export_options o = { .size = sizeof o, .architectures = "90" };
    return df_cuda_export(d, mem, NULL, p->t, like, &o, out);
}

static void check_launches(program *p)
{
    bench b = { .mem = fail_mem_create() };
    df_gpu_export e;
    df_diag d = { 0 };
    deft_status st = bench_open(&b, &d);
    df_plan *plan = st == DEFT_OK ? bench_plan(p, &b, &d) : NULL;
    if (plan) {
        const df_cuda_device *const c = df_cuda_device_of(b.dev);
        bench_run(p, &b, plan, false);
        gpu.clear_record();
        gpu.record(true, false);
        bench_run(p, &b, plan, false);
        gpu.record(false, false);
        st = export_as(p, fail_mem_get(b.mem), &d, df_gpu_facts_of(c->gpu), &e);
        if (st == DEFT_OK) {
            compare(p->where, &e, gpu.recorded());
            df_arena_finish(&e.arena);
        }
    }
    if (!plan || st != DEFT_OK) trial_fault(p->where, "fails", d.text);
    if (plan) bench_drop(&b, &plan);
    bench_close(&b);
    fail_mem_destroy(&b.mem);
}

/* Every allocation fails in turn: nothing leaks, and a sentence says it. */
static void check_memory(program *p)
{
    const df_gpu_properties gpu_like = df_cuda_export_gpu(4);
    deft_status st = DEFT_E_MEMORY;
    for (size_t n = 1; st != DEFT_OK && n < 5000; n++) {
        fail_mem *f = fail_mem_create();
        df_gpu_export e;
        df_diag d = { 0 };
        fail_mem_at(f, n, false);
        st = export_as(p, fail_mem_get(f), &d, &gpu_like, &e);
        if (st != DEFT_OK && st != DEFT_E_MEMORY) trial_fault(p->where, "fails by itself", d.text);
        if (st != DEFT_OK && !d.text[0]) trial_fault(p->where, "failed without a sentence", "");
        if (st == DEFT_OK) df_arena_finish(&e.arena);
        const fail_mem_counts c = fail_mem_count(f);
        if (c.faults) trial_fault(p->where, "memory is misused", fail_mem_fault(f));
        if (c.live_blocks) trial_fault(p->where, "leaks", "");
        fail_mem_destroy(&f);
    }
}

int main(int argc, char **argv)
{
    df_device *cpu = NULL;
    (void)argc;
    if (!trial_begin(argv, &cpu)) return 1;
    for (int i = 0; i < N_CASES; i++) {
        program p;
        if (program_parse(&p, cases[i].name, cases[i].text, strlen(cases[i].text), cpu)) {
            trial_counts.cases++;
            check_launches(&p);
            check_memory(&p);
        } else {
            trial_fault(cases[i].name, "no program", p.d.text);
        }
        program_finish(&p);
    }
    return trial_end(&cpu) ? 0 : 1;
}
