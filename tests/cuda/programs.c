/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of programs. See tests/expect/run_expect for the form of a file.
 */
#include "programs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit_cuda/exec/device_internal.h"

static void *grow(void *p, size_t size)
{
    void *const q = realloc(p, size);
    if (q) return q;
    fprintf(stderr, "programs: no memory\n");
    abort();
}

static char *copy_of(const char *s)
{
    char *const c = grow(NULL, strlen(s) + 1);
    memcpy(c, s, strlen(s) + 1);
    return c;
}

static void add_kernel(programs *p, const df_kernel *k, const char *where)
{
    for (uint32_t i = 0; i < p->n_kernels; i++)
        if (p->kernel[i]->key.n == k->key.n &&
            memcmp(p->kernel[i]->key.bytes, k->key.bytes, k->key.n) == 0)
            return;
    p->kernel = grow(p->kernel, sizeof *p->kernel * (p->n_kernels + 1));
    p->where = grow(p->where, sizeof *p->where * (p->n_kernels + 1));
    p->kernel[p->n_kernels] = k;
    p->where[p->n_kernels++] = copy_of(where);
}

typedef struct adding {
    programs *p;
    const char *where;
} adding;

static deft_status add_plan(df_plan *plan, void *user)
{
    const adding *const a = user;
    for (uint32_t i = 0; i < plan->n_kernels; i++) add_kernel(a->p, &plan->kernels[i], a->where);
    return DEFT_OK;
}

static void add_program(programs *p, const char *text, size_t n, const char *where)
{
    static const df_gpu_properties gpu = { .n_sms = 132,
                                           .shared_per_sm = 228 << 10,
                                           .l2_bytes = 50 << 20 };
    const df_limits limits = df_cuda_limits(&gpu);
    df_diag d = { 0 };
    df_arena arena;
    df_trace *t = NULL, *simple = NULL;
    df_plan *plan = NULL;
    df_arena_init(&arena, &df_mem_system);
    uint32_t *from = NULL;
    if (df_trace_parse(&d, text, n, &arena, &t) == DEFT_OK &&
        df_trace_simplify(&d, t, DF_PASS_ALL, &arena, &simple, &from) == DEFT_OK &&
        df_fuse(&d, simple, &limits, &df_mem_system, &plan) == DEFT_OK) {
        adding a = { p, where };
        p->plan = grow(p->plan, sizeof *p->plan * (p->n_plans + 1));
        p->plan[p->n_plans++] = plan;
        (void)df_plan_each(plan, add_plan, &a);
    }
    df_arena_finish(&arena);
}

static char *whole_file(const char *path)
{
    FILE *const f = fopen(path, "r");
    char *text = NULL;
    size_t n = 0, got = 0;
    if (!f) return copy_of("");
    do {
        text = grow(text, n + 4097);
        got = fread(text + n, 1, 4096, f);
        n += got;
    } while (got > 0);
    text[n] = 0;
    fclose(f);
    return text;
}

static bool starts(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

static void read_file(programs *p, const char *path)
{
    char *const text = whole_file(path), where[256];
    const char *const base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    const char *line = text, *begin = NULL;
    const size_t length = strlen(base);
    if (length > 6 && strcmp(base + length - 6, ".trace") == 0) {
        add_program(p, text, strlen(text), base);
        free(text);
        return;
    }
    for (int number = 1; *line; number++) {
        const char *const next = line + strcspn(line, "\n");
        const bool is_case = starts(line, "# deft "), ends = is_case || starts(line, "--- ");
        if (begin && ends) {
            add_program(p, begin, (size_t)(line - begin), where);
            begin = NULL;
        }
        if (is_case) {
            snprintf(where, sizeof where, "%s:%d", base, number);
            begin = line;
        }
        line = *next ? next + 1 : next;
    }
    if (begin) add_program(p, begin, strlen(begin), where);
    free(text);
}

void programs_read(programs *p, const char *const *files, int n_files)
{
    *p = (programs){ 0 };
    for (int i = 0; i < n_files; i++) read_file(p, files[i]);
}

void programs_finish(programs *p)
{
    for (uint32_t i = 0; i < p->n_kernels; i++) free((void *)(uintptr_t)p->where[i]);
    for (uint32_t i = 0; i < p->n_plans; i++) df_plan_destroy(&p->plan[i], &df_mem_system);
    free((void *)p->kernel);
    free((void *)p->where);
    free(p->plan);
}
