/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole plans on the stand-in GPU (trial.h): programs of many shapes for one plan, checks that
 * fail, products that go to cuBLASLt, random traces, the programs of tests/expect. Each runs cold,
 * warm, and with inputs that may be taken over. Nothing may leak, nothing the driver calls misuse
 * may happen.
 *
 *   device_cases DRIVER NVRTC CUBLASLT [--graphs] [--quick] [--first=SEED] [--count=N] [--step=N]
 *                [FILE ...]
 *
 * With - for each of the three: on the GPU of this machine, by NVIDIA's libraries. --graphs: runs
 * are replayed. FILE: of tests/expect; --step: each N-th program of them.
 */
#include <stdio.h>
#include <string.h>

#include "../../tools/deft/cli.h"
#include "jit_cuda/exec/device_internal.h"
#include "support/budget.h"
#include "support/random_trace.h"
#include "trial.h"

/* ---- programs ---- */

static void check_text(bench *b, df_device *cpu, const char *where, const char *text, size_t n)
{
    program p;
    if (program_parse(&p, where, text, n, cpu)) bench_check(&p, b);
    program_finish(&p);
}

/* Every `step`th program of a file. */
static void check_file(bench *b, df_device *cpu, const char *path, long step)
{
    static char text[1 << 20];
    char where[512];
    static long number;
    FILE *const f = fopen(path, "r");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) (void)fclose(f);
    text[n] = '\0';
    for (char *at = strstr(text, "# deft "); at;) {
        char *const next = strstr(at + 1, "\n# deft ");
        if (next) *next = '\0';
        const char *const end = strstr(at, "\n--- ");
        (void)snprintf(where, sizeof where, "%s: %.*s", path, (int)strcspn(at, "\n"), at);
        if (number++ % step == 0)
            check_text(b, cpu, where, at, end ? (size_t)(end - at) + 1 : strlen(at));
        at = next ? next + 1 : NULL;
    }
}

static void check_random(bench *b, df_device *cpu, uint64_t seed)
{
    char where[64];
    const uint32_t n_ops = 4 + (uint32_t)(seed * 7919 % 40);
    program p = { .where = where };
    (void)snprintf(where, sizeof where, "random trace %llu of %u ops", (unsigned long long)seed,
                   n_ops);
    df_arena_init(&p.arena, &df_mem_system);
    p.whole = random_trace(seed, n_ops, false, &p.arena);
    if (p.whole && program_open(&p, cpu))
        bench_check(&p, b);
    else
        trial_counts.refused++;
    program_finish(&p);
}

/* ---- one plan, many shapes ---- */

typedef struct shaped {
    const char *name, *text; /* with R and C for extents, N for a digit that changes */
    int64_t shape[12][2];    /* up to one of -1 */
} shaped;

static const shaped all_shaped[] = {
    { "rows",
      "%0 = input f32[R,C]\n%1 = exp f32[R,C] %0\n%2 = sum f32[R] %1 axes=[1]\n"
      "%3 = argmax i64[R] %0 axes=[1]\noutput %2\noutput %3\n",
      { { 3, 5 },
        { 2, 70000 },
        { 1, 40000 },
        { 70, 5000 },
        { 700, 3 },
        { 0, 4 },
        { 3, 70001 },
        { 3, 5 },
        { -1 } } },
    { "columns",
      "%0 = input f32[R,C]\n%1 = mul f32[R,C] %0 %0\n%2 = sum f32[C] %1 axes=[0]\noutput %2\n",
      { { 5, 3 }, { 20000, 3 }, { 70, 500 }, { 33000, 33 }, { 4, 0 }, { 5, 3 }, { -1 } } },
    { "updates",
      "%0 = input f32[R,C]\n%1 = input f32[C]\n%2 = input f32[R]\n%3 = input f32[C,R]\n"
      "%4 = num f32[] 0xNp-1\n%5 = mul f32[R,C] %0 %4\n%6 = mul f32[C] %1 %4\n"
      "%7 = mul f32[R] %2 %4\n%8 = mul f32[C,R] %3 %4\n"
      "output %5\noutput %6\noutput %7\noutput %8\n",
      { { 3, 5 }, { 3, 5 }, { 64, 64 }, { 1000, 30 }, { 7, 4096 }, { 2, 0 }, { 3, 5 }, { -1 } } },
    { "softmax",
      "%0 = input f32[R,C]\n%1 = max f32[R,1] %0 axes=[1] keepdims\n%2 = sub f32[R,C] %0 %1\n"
      "%3 = exp f32[R,C] %2\n%4 = sum f32[R,1] %3 axes=[1] keepdims\n%5 = div f32[R,C] %3 %4\n"
      "output %5\n",
      { { 3, 5 }, { 40, 100 }, { 2, 66000 }, { 300, 17 }, { 0, 4 }, { -1 } } },
};

static void write_shaped(const shaped *s, int i, char *out, size_t cap)
{
    size_t n = 0;
    for (const char *p = s->text; *p && n + 24 < cap; p++) {
        const bool is_name = (*p == 'R' || *p == 'C');
        if (is_name)
            n += (size_t)snprintf(out + n, cap - n, "%lld", (long long)s->shape[i][*p == 'C']);
        else
            out[n++] = *p == 'N' ? (char)('1' + i) : *p;
    }
    out[n] = '\0';
}

/* One plan as long as its guards hold. */
static void check_shapes(bench *b, df_device *cpu, const shaped *s)
{
    df_plan *plan = NULL;
    df_diag d = { 0 };
    for (int i = 0; s->shape[i][0] >= 0; i++) {
        char text[2048], where[64];
        program p;
        (void)snprintf(where, sizeof where, "%s [%lld,%lld]", s->name, (long long)s->shape[i][0],
                       (long long)s->shape[i][1]);
        write_shaped(s, i, text, sizeof text);
        if (!program_parse(&p, where, text, strlen(text), cpu)) {
            trial_fault(where, "no program", p.d.text);
        } else {
            const int64_t *const slots = plan ? program_slots(&p, plan, p.t) : NULL;
            if (plan && df_guard_first_miss(plan->guards, plan->n_guards, p.t, slots))
                bench_drop(b, &plan);
            if (!plan) plan = bench_plan(&p, b, &d);
            if (!plan)
                trial_fault(where, "no plan", d.text);
            else
                for (int turn = 0; turn < 2; turn++) bench_run(&p, b, plan, false);
            trial_counts.cases++;
        }
        program_finish(&p);
    }
    bench_drop(b, &plan);
}

/* ---- checks that fail ---- */

static const char *const checked[] = {
    "%0 = input f32[20,3]\n%1 = input i64[7]\n%2 = take f32[7,3] %0 %1 axis=0\n"
    "%3 = exp f32[7,3] %2\n%4 = sum f32[7] %3 axes=[1]\noutput %4\noutput %3\n",
    "%0 = input f32[20] sole\n%1 = input i64[20]\n%2 = take f32[20] %0 %1 axis=0\n"
    "%3 = add f32[20] %0 %2\noutput %3 donor %0\n",
    "%0 = input f32[20] sole\n%1 = input i64[20]\n%2 = input f32[9]\n"
    "%3 = take f32[20] %2 %1 axis=0\n%4 = add f32[20] %0 %3\noutput %4 donor %0\n",
    "%0 = input f32[20] wrapped\n%1 = input i64[20]\n%2 = take f32[20] %0 %1 axis=0\n"
    "%3 = add f32[20] %0 %2\noutput %3 into %0\n",
    "%0 = input f32[20,3]\n%1 = input i64[4]\n%2 = input f32[20,3]\n"
    "%3 = take f32[4,3] %0 %1 axis=0\n%4 = sum f32[3] %3 axes=[0]\n%5 = expand f32[20,3] %4\n"
    "%6 = mul f32[20,3] %2 %5\noutput %6\n",
    "%0 = input f32[20,3]\n%1 = input i64[7]\n%2 = input f32[7,3]\n"
    "%3 = index_add f32[20,3] %0 %1 %2 axis=0\noutput %3\n",
    "%0 = input f32[20,3] sole\n%1 = input i64[7]\n%2 = input f32[7,3]\n"
    "%3 = index_add f32[20,3] %0 %1 %2 axis=0\noutput %3 donor %0\n",
    "%0 = input i32[20,3] wrapped\n%1 = input i64[20,3]\n%2 = input i32[20,3]\n"
    "%3 = scatter_add i32[20,3] %0 %1 %2 axis=0\noutput %3 into %0\n",
    "%0 = input f32[20]\n%1 = input i64[7]\n%2 = input f32[7]\n%3 = num i64[] 0\n"
    "%4 = add i64[7] %1 %3\n%5 = index_add f32[20] %0 %4 %2 axis=0\noutput %5\n",
};

/* With good indices, then with a bad one, by one plan. */
static void check_checks(bench *b, df_device *cpu)
{
    for (size_t i = 0; i < DF_LEN(checked); i++)
        for (int bad = 0; bad < 2; bad++) {
            char where[32];
            program p = { .where = where, .is_spoilt = bad };
            (void)snprintf(where, sizeof where, "check %zu, %s", i, bad ? "bad" : "good");
            df_arena_init(&p.arena, &df_mem_system);
            if (df_trace_parse(&p.d, checked[i], strlen(checked[i]), &p.arena, &p.whole) !=
                    DEFT_OK ||
                !program_open(&p, cpu))
                trial_fault(where, "no program", p.d.text);
            else if (bad && p.st != DEFT_E_RANGE)
                trial_fault(where, "the reference found nothing", "");
            else
                bench_check(&p, b);
            program_finish(&p);
        }
}

/* ---- products of FAST traces: cuBLASLt ---- */

static const char *const fast[] = {
    "%0 = input f32[33,20]\n%1 = input f32[20,17]\n%2 = matmul f32[33,17] %0 %1\noutput %2\n",
    ("%0 = input f32[33,20]\n%1 = input f32[20,17]\n%2 = input f32[17]\n"
     "%3 = matmul f32[33,17] %0 %1\n%4 = expand f32[33,17] %2\n%5 = add f32[33,17] %3 %4\n"
     "%6 = num f32[] 0x0p+0\n%7 = maximum f32[33,17] %5 %6\noutput %7\n"),
    ("%0 = input f32[33,20]\n%1 = input f32[20,17]\n%2 = matmul f32[33,17] %0 %1\n"
     "%3 = sin f32[33,17] %2\noutput %3\n"),
};

/* Rounded on the way: another order of sums may round to the neighbour. */
static const char *const fast_halves[] = {
    "%0 = input f16[33,20]\n%1 = input f16[20,17]\n%2 = cast f32[33,20] %0\n"
    "%3 = cast f32[20,17] %1\n%4 = matmul f32[33,17] %2 %3\n%5 = cast f16[33,17] %4\n"
    "%6 = cast f32[33,17] %5\n%7 = input f32[17]\n%8 = expand f32[33,17] %7\n"
    "%9 = add f32[33,17] %6 %8\noutput %9\n",
    "%0 = input bf16[33,20]\n%1 = input bf16[20,17]\n%2 = input bf16[17,9]\n"
    "%3 = cast f32[33,20] %0\n%4 = cast f32[20,17] %1\n%5 = cast f32[17,9] %2\n"
    "%6 = matmul f32[33,17] %3 %4\n%7 = cast bf16[33,17] %6\n%8 = cast f32[33,17] %7\n"
    "%9 = matmul f32[33,9] %8 %5\noutput %9\n",
    "%0 = input f16[33,20]\n%1 = input bf16[20,17]\n%2 = cast f32[33,20] %0\n"
    "%3 = cast f32[20,17] %1\n%4 = matmul f32[33,17] %2 %3\noutput %4\n",
    "%0 = input f16[33,40]\n%1 = input f16[20,17]\n"
    "%2 = slice f16[33,20] %0 start=[0,1] step=[1,2]\n%3 = cast f32[33,20] %2\n"
    "%4 = cast f32[20,17] %1\n%5 = matmul f32[33,17] %3 %4\noutput %5\n",
};

static void check_fast(bench *b, df_device *cpu, const char *const *all, size_t n, float most_off)
{
    const df_cuda_device *const c = df_cuda_device_of(b->dev);
    for (size_t i = 0; i < n; i++) {
        char where[64];
        program p = { .where = where, .is_fast = true, .most_off = most_off };
        (void)snprintf(where, sizeof where, "fast product %zu of %zu", i, n);
        df_arena_init(&p.arena, &df_mem_system);
        const bool good =
            df_trace_parse(&p.d, all[i], strlen(all[i]), &p.arena, &p.whole) == DEFT_OK;
        if (good) p.whole->flags |= DF_TRACE_FAST;
        if (good && program_open(&p, cpu))
            bench_check(&p, b);
        else
            trial_fault(where, "no program", p.d.text);
        program_finish(&p);
    }
    if (!c->lt) trial_fault("fast products", "no cuBLASLt", "");
}

/* ---- products of halves ---- */

/* A layer in mixed precision, its gradients and an update; HALF: f16 or bf16. */
static const char mixed_layer[] =
    "%0 = input f32[33,20]\n%1 = input f32[24,20]\n%2 = input f32[24]\n%3 = input f32[33,24]\n"
    "%4 = cast HALF[33,20] %0\n%5 = cast HALF[24,20] %1\n%6 = cast f32[33,20] %4\n"
    "%7 = cast f32[24,20] %5\n%8 = permute f32[20,24] %7 perm=[1,0]\n"
    "%9 = matmul f32[33,24] %6 %8\n%10 = cast HALF[33,24] %9\n%11 = cast f32[33,24] %10\n"
    "%12 = expand f32[33,24] %2\n%13 = add f32[33,24] %11 %12\n%14 = relu f32[33,24] %13\n"
    "%15 = sub f32[33,24] %14 %3\n%16 = cast HALF[33,24] %15\n%17 = cast f32[33,24] %16\n"
    "%18 = permute f32[24,33] %17 perm=[1,0]\n%19 = matmul f32[24,20] %18 %6\n"
    "%20 = cast HALF[24,20] %19\n%21 = cast f32[24,20] %20\n%22 = num f32[] 0x1p-4\n"
    "%23 = mul f32[24,20] %21 %22\n%24 = sub f32[24,20] %1 %23\n"
    "%25 = matmul f32[33,20] %17 %7\n%26 = cast HALF[33,20] %25\noutput %24\noutput %26\n";

static void write_half(const char *text, const char *half, char *out, size_t cap)
{
    size_t n = 0;
    while (*text && n + 8 < cap)
        if (strncmp(text, "HALF", 4) == 0)
            n += (size_t)snprintf(out + n, cap - n, "%s", half), text += 4;
        else
            out[n++] = *text++;
    out[n] = '\0';
}

/* Operands of products that are read as halves. */
static deft_status count_halves(df_plan *plan, void *user)
{
    for (uint32_t i = 0; i < plan->n_segs; i++) {
        const df_seg *const s = &plan->segs[i];
        if (s->kind == DF_SEG_MATMUL)
            *(int *)user += (s->a_dtype != s->dtype) + (s->b_dtype != s->dtype);
    }
    return DEFT_OK;
}

static void check_halves(bench *b, df_device *cpu)
{
    for (int i = 0; i < 2; i++) {
        const char *const half = i ? "bf16" : "f16";
        char text[2048];
        program p;
        df_diag d = { 0 };
        df_plan *plan = NULL;
        int n = 0;
        write_half(mixed_layer, half, text, sizeof text);
        if (!program_parse(&p, half, text, strlen(text), cpu)) {
            trial_fault(half, "no program", p.d.text);
        } else if ((plan = bench_plan(&p, b, &d))) {
            df_plan_each(plan, count_halves, &n);
            if (n != 6) trial_fault(half, "operands are f32", "");
            bench_drop(b, &plan);
            bench_check(&p, b);
        } else {
            trial_fault(half, "no plan", d.text);
        }
        program_finish(&p);
    }
}

/* ---- a loop in parts that reads its number ---- */

static void check_loop(bench *b, df_device *cpu)
{
    static const char text[] =
        "%0 = input f32[6,6]\n%1 = input f32[6,4]\n%2 = cst i64[] 0\n%3 = loop i64[] %2 most=5\n"
        "%4 = carry f32[6,4] %1 %3\n%5 = matmul f32[6,4] %0 %4\n%6 = cast f32[] %3\n"
        "%7 = expand f32[6,4] %6\n%8 = add f32[6,4] %5 %7\n%9 = tanh f32[6,4] %8\n"
        "%10 = next f32[6,4] %4 %9 %3\n%11 = final f32[6,4] %10 %10\noutput %11\n";
    const long before = trial_counts.cases;
    check_text(b, cpu, "a loop", text, sizeof text - 1);
    if (trial_counts.cases == before) trial_fault("a loop", "no program", "");
}

/* ---- more reductions of columns than shared memory takes ---- */

static void check_reductions(bench *b, df_device *cpu)
{
    static const char text[] =
        "%0 = input f64[40,5]\n%1 = mul f64[40,5] %0 %0\n%2 = neg f64[40,5] %0\n"
        "%3 = exp f64[40,5] %0\n%4 = sum f64[5] %0 axes=[0]\n%5 = max f64[5] %0 axes=[0]\n"
        "%6 = min f64[5] %0 axes=[0]\n%7 = prod f64[5] %0 axes=[0]\n%8 = sum f64[5] %1 axes=[0]\n"
        "%9 = max f64[5] %1 axes=[0]\n%10 = sum f64[5] %2 axes=[0]\n%11 = sum f64[5] %3 axes=[0]\n"
        "%12 = input f64[5] wrapped\n%13 = add f64[5] %4 %12\noutput %5\noutput %6\noutput %7\n"
        "output %8\noutput %9\noutput %10\noutput %11\noutput %13 into %12\n";
    const long before = trial_counts.on_host;
    check_text(b, cpu, "many reductions", text, sizeof text - 1);
    if (trial_counts.on_host != before) trial_fault("many reductions", "on the host", "");
}

/* ---- what has no code: an epilogue that reads the product after 256 other values ---- */

/* Its operands are halves, which the host then lifts. */
static void check_host(bench *b, df_device *cpu)
{
    enum { OTHERS = 260 };
    df_str s;
    uint32_t at = OTHERS + 3;
    df_str_init(&s, &df_mem_system);
    for (uint32_t i = 0; i < at; i++)
        df_str_fmt(&s, "%%%u = input %s[4,4]%s\n", i,
                   i == 1   ? "bf16"
                   : i == 2 ? "f16"
                            : "f32",
                   i == 0 ? " wrapped" : "");
    df_str_fmt(&s, "%%%u = cast f32[4,4] %%1\n%%%u = cast f32[4,4] %%2\n", at, at + 1);
    df_str_fmt(&s, "%%%u = matmul f32[4,4] %%%u %%%u\n", at + 2, at, at + 1);
    at += 2;
    for (uint32_t i = 0, sum = 0; i < OTHERS; i++, sum = at)
        df_str_fmt(&s, "%%%u = add f32[4,4] %%%u %%%u\n", ++at, sum, i + 3);
    df_str_fmt(&s, "%%%u = mul f32[4,4] %%%u %%%u\noutput %%%u into %%0\n", at + 1, at, OTHERS + 5,
               at + 1);
    const long before = trial_counts.on_host;
    check_text(b, cpu, "a long epilogue", s.at, s.n);
    if (trial_counts.on_host == before) trial_fault("a long epilogue", "not on the host", "");
    df_str_finish(&s);
}

/* ---- all ---- */

int main(int argc, char **argv)
{
    uint64_t count = 400, first = 0, step = 1;
    df_diag d = { 0 };
    df_device *cpu = NULL;
    bench b = { .mem = fail_mem_create() };
    if (argc < 4 || !trial_begin(argv, &cpu)) return 2;
    int i = 4;
    for (; i < argc && argv[i][0] == '-'; i++) {
        const char *value;
        if (strcmp(argv[i], "--quick") == 0)
            step = count = 16;
        else if (strcmp(argv[i], "--graphs") == 0)
            continue;
        else if (cli_value(argv[i], "--first", &value))
            (void)cli_number("--first", value, 0, UINT64_MAX, &first);
        else if (cli_value(argv[i], "--step", &value))
            (void)cli_number("--step", value, 1, UINT32_MAX, &step);
        else if (cli_value(argv[i], "--count", &value))
            (void)cli_number("--count", value, 0, UINT32_MAX, &count);
        else
            return 2;
    }
    if (bench_open(&b, &d) != DEFT_OK) {
        printf("%s\n", d.text);
        return 1;
    }
    for (size_t s = 0; s < DF_LEN(all_shaped); s++) check_shapes(&b, cpu, &all_shaped[s]);
    check_checks(&b, cpu);
    check_fast(&b, cpu, fast, DF_LEN(fast), 0);
    check_fast(&b, cpu, fast_halves, DF_LEN(fast_halves), 0x1p-7f);
    check_halves(&b, cpu);
    check_reductions(&b, cpu);
    check_host(&b, cpu);
    check_loop(&b, cpu);
    for (uint64_t n = 0; n < count && (n == 0 || test_time_left(0.5)); n++)
        check_random(&b, cpu, first + n);
    const int first_file = i, n_files = argc - i;
    for (i = 0; i < n_files && (i == 0 || test_time_left(1)); i++)
        check_file(&b, cpu, argv[first_file + (int)test_scattered((uint32_t)i, (uint32_t)n_files)],
                   (uint32_t)step);
    printf("%d of %d files of programs\n", i, n_files);
    bench_close(&b);
    if (fail_mem_count(b.mem).live_blocks) trial_fault("at the end", "memory leaks", "");
    fail_mem_destroy(&b.mem);
    return trial_end(&cpu) ? 0 : 1;
}
