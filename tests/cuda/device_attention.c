/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention and its gradient as loops in a plan, on the stand-in GPU: done at once they give what
 * the loop gives on the CPU, up to what FAST may round (jit_cuda/kernels/attention.h), in fewer
 * launches than when the loop turns; what the kernels do not take turns. Operands of f32 are read
 * through views, as heads of a network are. When a call of a warm run fails nothing leaks, and
 * the next run is right.
 *
 *   device_attention DRIVER NVRTC CUBLASLT
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/str.h"
#include "fuser/plan.h"
#include "trial.h"
#include "../support/budget.h"

/* h: dtype; Q: queries; T: keys; N: blocks of keys; D: width. Lines with ?word are for some. */
static const char text[] = "%0 = input h[2,Q,3,D]\n"
                           "%1 = input h[2,3,T,D]\n"
                           "%2 = input h[2,3,T,D]\n"
                           "%3 = input h[2,Q,3,D]\n"
                           "%4 = permute h[2,3,Q,D] %0 perm=[0,2,1,3]\n"
                           "%5 = permute h[2,3,Q,D] %3 perm=[0,2,1,3]\n"
                           "?half %6 = cast f32[2,3,Q,D] %4\n"
                           "?f32 %6 = unsqueeze f32[2,3,Q,D] %4 axes=[]\n"
                           "?half %7 = cast f32[2,3,T,D] %1\n"
                           "?f32 %7 = unsqueeze f32[2,3,T,D] %1 axes=[]\n"
                           "?half %8 = cast f32[2,3,T,D] %2\n"
                           "?f32 %8 = unsqueeze f32[2,3,T,D] %2 axes=[]\n"
                           "?half %9 = cast f32[2,3,Q,D] %5\n"
                           "?f32 %9 = unsqueeze f32[2,3,Q,D] %5 axes=[]\n"
                           "%10 = num f32[] scale\n"
                           "%11 = mul f32[2,3,Q,D] %6 %10\n"
                           "%12 = num f32[] -inf\n"
                           "%13 = expand f32[2,3,Q,1] %12\n"
                           "%14 = num f32[] 0x0p+0\n"
                           "%15 = expand f32[2,3,Q,1] %14\n"
                           "%16 = expand f32[2,3,Q,D] %14\n"
                           "%17 = reshape f32[2,3,N,128,D] %7\n"
                           "%18 = permute f32[N,2,3,128,D] %17 perm=[2,0,1,3,4]\n"
                           "%19 = reshape f32[2,3,N,128,D] %8\n"
                           "%20 = permute f32[N,2,3,128,D] %19 perm=[2,0,1,3,4]\n"
                           "%21 = iota i64[T] axis=0\n"
                           "%22 = reshape i64[N,128] %21\n"
                           "%23 = cst i64[] 0\n"
                           "%24 = loop i64[] %23 most=N attention tag\n"
                           "%25 = carry f32[2,3,Q,1] %13 %24\n"
                           "%26 = carry f32[2,3,Q,1] %15 %24\n"
                           "%27 = carry f32[2,3,Q,D] %16 %24\n"
                           "%28 = each f32[2,3,128,D] %18 %24\n"
                           "%29 = each f32[2,3,128,D] %20 %24\n"
                           "%30 = each i64[128] %22 %24\n"
                           "%31 = permute f32[2,3,D,128] %28 perm=[0,1,3,2]\n"
                           "%32 = matmul f32[2,3,Q,128] %11 %31\n"
                           "%33 = iota i64[Q,1] axis=0\n"
                           "%34 = le bool[Q,128] %30 %33\n"
                           "%35 = num f32[] -inf\n"
                           "?causal %36 = where f32[2,3,Q,128] %34 %32 %35\n"
                           "?all %36 = unsqueeze f32[2,3,Q,128] %32 axes=[]\n"
                           "%37 = max f32[2,3,Q,1] %36 axes=[3] keepdims\n"
                           "%38 = maximum f32[2,3,Q,1] %25 %37\n"
                           "%39 = sub f32[2,3,Q,128] %36 %38\n"
                           "%40 = exp f32[2,3,Q,128] %39\n"
                           "%41 = sub f32[2,3,Q,1] %25 %38\n"
                           "%42 = exp f32[2,3,Q,1] %41\n"
                           "%43 = sum f32[2,3,Q,1] %40 axes=[3] keepdims\n"
                           "%44 = mul f32[2,3,Q,1] %26 %42\n"
                           "%45 = add f32[2,3,Q,1] %44 %43\n"
                           "%46 = matmul f32[2,3,Q,D] %40 %29\n"
                           "%47 = mul f32[2,3,Q,D] %27 %42\n"
                           "%48 = add f32[2,3,Q,D] %47 %46\n"
                           "%49 = next f32[2,3,Q,1] %25 %38 %24\n"
                           "%50 = next f32[2,3,Q,1] %26 %45 %49\n"
                           "%51 = next f32[2,3,Q,D] %27 %48 %50\n"
                           "%52 = final f32[2,3,Q,1] %49 %51\n"
                           "%53 = final f32[2,3,Q,1] %50 %51\n"
                           "%54 = final f32[2,3,Q,D] %51 %51\n"
                           "%55 = div f32[2,3,Q,D] %54 %53\n"
                           "%56 = log f32[2,3,Q,1] %53\n"
                           "%57 = add f32[2,3,Q,1] %52 %56\n"
                           "%58 = mul f32[2,3,Q,D] %9 %55\n"
                           "%59 = sum f32[2,3,Q,1] %58 axes=[3] keepdims\n"
                           "%60 = loop i64[] %23 most=N attention_grad tag\n"
                           "%61 = carry f32[2,3,Q,D] %16 %60\n"
                           "%62 = each f32[2,3,128,D] %18 %60\n"
                           "%63 = each f32[2,3,128,D] %20 %60\n"
                           "%64 = each i64[128] %22 %60\n"
                           "%65 = permute f32[2,3,D,128] %62 perm=[0,1,3,2]\n"
                           "%66 = matmul f32[2,3,Q,128] %11 %65\n"
                           "%67 = iota i64[Q,1] axis=0\n"
                           "%68 = le bool[Q,128] %64 %67\n"
                           "%69 = num f32[] -inf\n"
                           "?causal %70 = where f32[2,3,Q,128] %68 %66 %69\n"
                           "?all %70 = unsqueeze f32[2,3,Q,128] %66 axes=[]\n"
                           "%71 = sub f32[2,3,Q,128] %70 %57\n"
                           "%72 = exp f32[2,3,Q,128] %71\n"
                           "%73 = permute f32[2,3,D,128] %63 perm=[0,1,3,2]\n"
                           "%74 = matmul f32[2,3,Q,128] %9 %73\n"
                           "%75 = sub f32[2,3,Q,128] %74 %59\n"
                           "%76 = mul f32[2,3,Q,128] %72 %75\n"
                           "%77 = matmul f32[2,3,Q,D] %76 %62\n"
                           "%78 = add f32[2,3,Q,D] %61 %77\n"
                           "%79 = permute f32[2,3,128,Q] %76 perm=[0,1,3,2]\n"
                           "%80 = matmul f32[2,3,128,D] %79 %11\n"
                           "%81 = permute f32[2,3,128,Q] %72 perm=[0,1,3,2]\n"
                           "%82 = matmul f32[2,3,128,D] %81 %9\n"
                           "%83 = next f32[2,3,Q,D] %61 %78 %60\n"
                           "%84 = stack f32[N,2,3,128,D] %80 %83\n"
                           "%85 = stack f32[N,2,3,128,D] %82 %84\n"
                           "%86 = final f32[2,3,Q,D] %83 %85\n"
                           "%87 = final f32[N,2,3,128,D] %84 %85\n"
                           "%88 = final f32[N,2,3,128,D] %85 %85\n"
                           "output %55\n"
                           "output %57\n"
                           "output %86\n"
                           "output %87\n"
                           "output %88\n";

typedef struct variant {
    const char *dtype, *tag;
    int n_queries, n_blocks, width;
    bool is_causal, at_once; /* at_once: there is a kernel */
    float most_off;
} variant;

static const variant variants[] = {
    { "f32", "from=f32 causal scaled", 70, 2, 64, true, true, 1e-5f },
    { "f32", "from=f32", 33, 2, 20, false, true, 1e-5f },
    { "f16", "from=f16 causal scaled", 65, 2, 64, true, true, 0x1p-10f },
    { "bf16", "from=bf16 scaled", 20, 2, 32, false, true, 0x1p-7f },
    { "f16", "from=f16 causal", 20, 2, 32, true, true, 1e-5f }, /* not scaled: f32 */
    { "f32", "from=f32 scaled", 5, 2, 6, false, false, 1e-5f },
    { "f32", "from=f32 causal scaled", 5, 2, 132, true, false, 1e-5f },
};

/* Whether the line at *p is for v; goes past its word. */
static bool is_for(const variant *v, const char **p)
{
    const bool is_half = strcmp(v->dtype, "f32") != 0;
    const char *const word = *p;
    if (*word != '?') return true;
    *p = strchr(word, ' ') + 1;
    if (strncmp(word, "?half", 5) == 0) return is_half;
    if (strncmp(word, "?f32", 4) == 0) return !is_half;
    return (strncmp(word, "?causal", 7) == 0) == v->is_causal;
}

static void put_word(df_str *s, const variant *v, const char *p, size_t n)
{
    const float scale = strstr(v->tag, "scaled") ? (float)(1 / sqrt(v->width)) : 0.25f;
#define IS(word) (n == sizeof(word) - 1 && memcmp(p, word, n) == 0)
    if (IS("h"))
        df_str_put(s, v->dtype);
    else if (IS("Q"))
        df_str_fmt(s, "%d", v->n_queries);
    else if (IS("T"))
        df_str_fmt(s, "%d", v->n_blocks * 128);
    else if (IS("N") || IS("most=N"))
        df_str_fmt(s, "%s%d", n > 1 ? "most=" : "", v->n_blocks);
    else if (IS("D"))
        df_str_fmt(s, "%d", v->width);
    else if (IS("tag"))
        df_str_put(s, v->tag);
    else if (IS("scale"))
        df_str_fmt(s, "%a", (double)scale);
    else
        df_str_putn(s, p, n);
#undef IS
}

static void put_text(df_str *s, const variant *v)
{
    for (const char *p = text; *p;) {
        const bool is_on = is_for(v, &p);
        for (bool ends = false; !ends;) {
            const size_t n = strcspn(p, " \n[],");
            if (is_on) put_word(s, v, p, n);
            ends = p[n] == '\n';
            if (is_on) df_str_putc(s, p[n]);
            p += n + 1;
        }
    }
}

/* Launches of the driver in a warm run. */
static long count_launches(program *p, bench *b, const df_plan *plan)
{
    for (int i = 0; i < 2; i++) bench_run(p, b, plan, false);
    const long before = gpu.count("cuLaunchKernel");
    bench_run(p, b, plan, false);
    return gpu.count("cuLaunchKernel") - before;
}

/* A warm run in which the n-th call of the driver, or allocation, fails; then one that is right.
 * false: it was not reached. */
static bool fail_once(program *p, bench *b, const df_plan *plan, bool by_memory, long n)
{
    enum { OUT_OF_MEMORY = 2 };
    trial x;
    df_diag d = { 0 };
    trial_open(&x, p, b);
    if (trial_put(&x, &d) != DEFT_OK) trial_fault(p->where, "inputs", d.text);
    const size_t failed = fail_mem_count(b->mem).failed;
    if (by_memory)
        fail_mem_at(b->mem, (size_t)n, false);
    else
        gpu.fail(NULL, n, OUT_OF_MEMORY);
    const deft_status st = trial_run(&x, &d, plan, false, NULL);
    const bool came = by_memory ? fail_mem_count(b->mem).failed > failed : gpu.fails_waiting() == 0;
    fail_mem_at(b->mem, 0, false);
    while (gpu.fails_waiting() > 0) (void)b->dev->far->wait(b->dev, NULL, b->q);
    if (st != DEFT_OK && !came) trial_fault(p->where, "failed by itself", d.text);
    if (st != DEFT_OK) trial_untouched(&x);
    trial_close(&x);
    bench_run(p, b, plan, false);
    return came;
}

static void check_failures(program *p, bench *b, const df_plan *plan)
{
    for (int by_memory = 0; by_memory < 2; by_memory++) {
        long n = 1;
        while (n < 1000 && fail_once(p, b, plan, by_memory, n)) n += test_is_limited() ? 3 : 1;
        printf("failures: up to the %ldth of the %s\n", n - 1,
               by_memory ? "allocations" : "calls of the driver");
        if (n == 1 || n >= 1000) trial_fault(p->where, "fails never, or without end", "");
    }
}

static void check(bench *b, df_device *cpu, const variant *v)
{
    char where[64];
    df_str s;
    df_diag d = { 0 };
    program p = { .where = where, .is_fast = true, .most_off = v->most_off };
    (void)snprintf(where, sizeof where, "%s %s, width %d", v->dtype, v->tag, v->width);
    df_str_init(&s, &df_mem_system);
    put_text(&s, v);
    df_arena_init(&p.arena, &df_mem_system);
    const bool good = df_trace_parse(&p.d, s.at, s.n, &p.arena, &p.whole) == DEFT_OK;
    if (good) p.whole->flags |= DF_TRACE_FAST;
    df_plan *plan = good && program_open(&p, cpu) ? bench_plan(&p, b, &d) : NULL;
    if (!plan) {
        trial_fault(where, "no plan", good ? d.text : p.d.text);
    } else {
        uint32_t n_tags = 0;
        for (uint32_t i = 0; i < plan->n_parts; i++) n_tags += plan->parts[i].tag != NULL;
        if (n_tags != 2) trial_fault(where, "not two loops are tagged", "");
        const uint64_t live = b->dev->far->read(b->dev).live_bytes;
        const long once = count_launches(&p, b, plan);
        if (v == variants) check_failures(&p, b, plan);
        for (uint32_t i = 0; i < plan->n_parts; i++) plan->parts[i].tag = NULL;
        const long turning = count_launches(&p, b, plan);
        if (v->at_once ? once >= turning : once != turning)
            trial_fault(where, "as many launches as when loops turn, or more", "");
        trial_counts.cases++;
        if (b->dev->far->read(b->dev).live_bytes > live) trial_fault(where, "memory leaks", "");
        printf("%s: %ld launches, turning %ld\n", where, once, turning);
    }
    bench_drop(b, &plan);
    program_finish(&p);
    df_str_finish(&s);
}

int main(int argc, char **argv)
{
    df_diag d = { 0 };
    df_device *cpu = NULL;
    bench b = { .mem = fail_mem_create() };
    if (argc < 4 || !trial_begin(argv, &cpu)) return 2;
    if (bench_open(&b, &d) != DEFT_OK) {
        printf("%s\n", d.text);
        return 1;
    }
    for (size_t i = 0; i < DF_LEN(variants); i++) check(&b, cpu, &variants[i]);
    bench_close(&b);
    if (fail_mem_count(b.mem).live_blocks) trial_fault("at the end", "memory leaks", "");
    fail_mem_destroy(&b.mem);
    return trial_end(&cpu) ? 0 : 1;
}
