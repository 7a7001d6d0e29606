/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels as C text against the interpreter, bit for bit (all NaNs are equal): every kernel op and
 * dtype, every reduction and scan in each mode that has it, kernels written by hand, random kernels
 * of every mode. Many kernels share a run of the C compiler. Buffers end at an
 * inaccessible page.
 *
 *   kernels [--quick | --full] [SEED]      SEED: where random kernels begin
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "aot/c.h"
#include "base/limits.h"
#include "c_compiler.h"
#include "ops/kop.h"
#include "runtime/interp/interp.h"
#include "support/budget.h"
#include "support/hand_kernel.h"
#include "support/random_kernel.h"

enum { BATCH = 160, SHAPES = 3, MOST_ELEMENTS = 60000 };

/* Kernels that are waiting to be compiled, and what failed. */
typedef struct batch {
    df_compiler c;
    random_kernel *g;
    char name[BATCH][64];
    void *own[BATCH];  /* arrays of instructions, freed with the batch */
    bool is_op[BATCH]; /* one op, which also runs on awkward values */
    uint32_t n;
    uint64_t n_kernels, n_runs, n_wrong, n_texts;
} batch;

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "aot kernels: %s: %s\n", what, why);
    exit(1);
}

/* ---- runs ---- */

static void run_interpreter(random_kernel *g, random_run *r)
{
    void *const work = aligned_alloc(64, (df_interp_work_size(&g->k) + 127) & ~(size_t)63);
    const int64_t i1 = g->k.mode == DF_MODE_ROW ? 1 : r->n_inner;
    if (!work) stop("workspace", "no memory");
    df_interp_main(&g->k, work, &r->a, 0, r->n_outer, 0, i1);
    free(work);
}

/* main over ranges that are divided at random. */
static void run_main(random_kernel *g, random_run *r, const df_code *code)
{
    const int64_t om = random_pick(g, (uint32_t)r->n_outer + 1);
    const int64_t im = random_pick(g, (uint32_t)r->n_inner + 1);
    if (g->k.mode == DF_MODE_ROW) {
        code->main(&r->a, 0, om, 0, 1);
        code->main(&r->a, om, r->n_outer, 0, 1);
        return;
    }
    code->main(&r->a, 0, om, 0, im);
    code->main(&r->a, 0, om, im, r->n_inner);
    code->main(&r->a, om, r->n_outer, 0, r->n_inner);
}

static void run_split(random_kernel *g, random_run *r, const df_code *code)
{
    const int64_t n_blocks = (r->length + DF_BLOCK - 1) / DF_BLOCK, cut = n_blocks / 2;
    r->a.partial = malloc((size_t)(2 * RANDOM_INS * n_blocks * r->n_inner + 1) * 8);
    if (!r->a.partial) stop("partial results", "no memory");
    for (int64_t o = 0; o < r->n_outer; o++) {
        const int64_t im = random_pick(g, (uint32_t)r->n_inner + 1);
        code->part(&r->a, o, o + 1, cut, n_blocks);
        code->part(&r->a, o, o + 1, 0, cut);
        code->fin(&r->a, o, o + 1, 0, g->k.mode == DF_MODE_ROW ? 1 : im);
        if (g->k.mode != DF_MODE_ROW) code->fin(&r->a, o, o + 1, im, r->n_inner);
    }
    free(r->a.partial);
}

static void expect(batch *b, uint32_t i, random_run *r, bool failed, const char *entry)
{
    char text[160];
    const bool fails = r->fault[0] != 0;
    bool wrong = random_run_differs(&b->g[i], r, text, sizeof text);
    if (!wrong && failed != fails) {
        wrong = true;
        snprintf(text, sizeof text, "a check fails: %d, not %d", fails, failed);
    }
    b->n_runs++;
    if (!wrong) return;
    if (b->n_wrong++ < 20) fprintf(stderr, "%s, %s: %s\n", b->name[i], entry, text);
}

static void fill_awkward(random_kernel *g, random_run *r)
{
    for (uint32_t a = 0; a < g->k.n_access; a++) {
        const uint32_t size = size_of(g->access[a].dtype);
        for (uint64_t e = 0; e < r->mem[a].bytes / size && !g->is_out[a]; e++) {
            const uint64_t which[3] = { e, e / 32, e * 7 + e / 32 };
            const uint64_t bits = awkward_bits(g->access[a].dtype, which[a % 3]);
            memcpy(r->mem[a].at + e * size, &bits, size); /* little-endian */
        }
    }
}

/* Whether the shape of the next run is the one for awkward values: each pair of them occurs.
 * Others have the extents that are given, if any are. */
static bool choose_shape(batch *b, uint32_t i, int shape, const int64_t *given)
{
    static const int64_t awkward[1] = { 1024 + 13 };
    const bool is = b->is_op[i] && shape == 0;
    b->g[i].given = is ? awkward : given;
    return is;
}

static void compare(batch *b, uint32_t i, const df_code *code, const int64_t *given)
{
    random_kernel *const g = &b->g[i];
    for (int shape = 0; shape < SHAPES; shape++) {
        random_run *const r = malloc(sizeof *r);
        if (!r) stop("a run", "no memory");
        const bool is_awkward = choose_shape(b, i, shape, given);
        random_run_make(g, r, 2.5, 0.75f, false);
        if (is_awkward) fill_awkward(g, r);
        run_interpreter(g, r);
        random_run_keep(g, r);
        const bool failed = r->fault[0] != 0;
        random_run_reset(g, r);
        r->fault[0] = 0;
        run_main(g, r, code);
        expect(b, i, r, failed, "main");
        if (g->k.flags & DF_KERNEL_SPLIT) {
            random_run_reset(g, r);
            run_split(g, r, code);
            expect(b, i, r, failed, "part and fin");
        }
        random_run_end(g, r);
        free(r);
    }
}

/* ---- batches ---- */

/* Chooses the extents of each run of a kernel of rows, mostly short ones, and blocks and their
 * neighbours. */
static void choose_extents(random_kernel *g, int64_t extents[DF_MAX_AXES])
{
    static const int64_t special[] = { 0, 1, 8, 9, 64, 65, DF_BLOCK, DF_BLOCK + 1 };
    int64_t total = MOST_ELEMENTS + 1;
    while (total > MOST_ELEMENTS) {
        total = 1;
        for (uint32_t x = 0; x < g->k.n_axes; x++) {
            const bool is_red = g->k.role[x] == DF_AXIS_RED;
            extents[x] = 1 + random_pick(g, is_red ? 40 : 5);
            if (is_red && random_pick(g, 3) == 0)
                extents[x] = special[random_pick(g, DF_LEN(special))];
            total *= extents[x] ? extents[x] : 1;
        }
    }
}

/* Compiles and runs n kernels as one text. extents: of each kernel, in each run, or NULL. */
static void run_text(batch *b, const uint32_t *which, uint32_t n,
                     const int64_t (*extents)[DF_MAX_AXES])
{
    df_code code[BATCH];
    const df_kernel *k[BATCH];
    df_diag d = { 0 };
    if (n == 0) return;
    for (uint32_t i = 0; i < n; i++) k[i] = &b->g[which[i]].k;
    c_compiler_extents(&b->c, extents);
    if (b->c.compile(b->c.self, &d, k, n, DF_OPT_O2, code) != DEFT_OK)
        stop(b->name[which[0]], d.text);
    for (uint32_t i = 0; i < n; i++) compare(b, which[i], &code[i], extents ? extents[i] : NULL);
    for (uint32_t i = 0; i < n; i++) b->c.release(b->c.self, &code[i]);
    b->n_texts++;
}

/* Runs all kernels of the batch; then those of rows again, where the text knows the extents. */
static void flush(batch *b)
{
    static int64_t extents[BATCH][DF_MAX_AXES];
    uint32_t which[BATCH], n_rows = 0;
    for (uint32_t i = 0; i < b->n; i++) which[i] = i;
    run_text(b, which, b->n, NULL);
    for (uint32_t i = 0; i < b->n; i++) {
        if (b->g[i].k.mode != DF_MODE_ROW) continue;
        which[n_rows] = i;
        choose_extents(&b->g[i], extents[n_rows++]);
    }
    run_text(b, which, n_rows, (const int64_t(*)[DF_MAX_AXES])extents);
    c_compiler_extents(&b->c, NULL);
    for (uint32_t i = 0; i < b->n; i++) free(b->own[i]);
    b->n_kernels += b->n;
    b->n = 0;
}

/* The place of the next kernel. `own` is freed when the kernel has run. */
static random_kernel *next(batch *b, void *own, const char *fmt, ...) DF_PRINTF(3, 4);
static random_kernel *next(batch *b, void *own, const char *fmt, ...)
{
    va_list args;
    if (b->n == BATCH) flush(b);
    va_start(args, fmt);
    (void)vsnprintf(b->name[b->n], sizeof b->name[0], fmt, args);
    va_end(args);
    b->own[b->n] = own;
    b->is_op[b->n] = false;
    return &b->g[b->n++];
}

static void add_given(batch *b, const df_kernel *k, void *own, uint64_t seed, const char *name)
{
    random_kernel *const g = next(b, own, "%s", name);
    if (!random_kernel_of(g, k, seed)) stop(name, "has too many accesses");
}

static void *copy_of(const void *p, size_t size)
{
    void *const q = malloc(size);
    if (!q) stop("a kernel", "no memory");
    return memcpy(q, p, size);
}

/* ---- one op ---- */

static void add_op(batch *b, df_kop op, uint8_t t, uint8_t src)
{
    char name[64];
    one_op x;
    one_op_make(&x, op, t, src);
    one_op *const kept = copy_of(&x, sizeof x);
    kept->k.ins = kept->ins;
    kept->k.access = kept->access;
    snprintf(name, sizeof name, "%s %s <- %s", df_kop_infos[op].name,
             deft_dtype_name((deft_dtype)t), deft_dtype_name((deft_dtype)src));
    add_given(b, &kept->k, kept, (uint64_t)op * 1000 + t * 31u + src, name);
    b->is_op[b->n - 1] = true;
}

static void add_ops(batch *b)
{
    for (int op = DF_K_add; op <= DF_K_bitcast; op++)
        for (uint8_t t = 0; t < DF_N_RECORDED; t++)
            for (uint8_t src = 0; src < DF_N_RECORDED; src++)
                if (one_op_is_known((df_kop)op, t, src)) add_op(b, (df_kop)op, t, src);
}

/* ---- one reduction or scan ---- */

typedef struct one_reduction {
    df_kernel k;
    df_ins ins[3];
    df_access access[2];
} one_reduction;

/* n_red: RED axes. */
static void add_reduction(batch *b, df_mode mode, uint32_t n_red, df_kop op, uint8_t t,
                          uint64_t seed)
{
    const bool is_scan = df_kop_infos[op].kind == DF_KOP_scan, is_col = mode == DF_MODE_COL;
    const uint8_t to = op == DF_K_argmin || op == DF_K_argmax ? DEFT_I64 : t;
    const uint32_t n_axes = 1 + n_red + is_col;
    char name[64];
    one_reduction x = {
        .k = { .mode = (uint8_t)mode,
               .n_axes = (uint8_t)n_axes,
               .n_stages = is_scan ? 1 : 2,
               .flags = is_scan ? DF_KERNEL_SCAN : DF_KERNEL_SPLIT,
               .n_access = 2,
               .n_ins = 3 },
        .ins = { ins(DF_K_load, t, 0, DF_LEVEL_ELEM, 0, 0, 0),
                 ins(op, to, 0, DF_LEVEL_ELEM, 0, 0, 0),
                 ins(DF_K_store, to, is_scan ? 0 : 1, is_scan ? DF_LEVEL_ELEM : DF_LEVEL_ROW, 1, 0,
                     1) },
    };
    for (uint32_t a = 0; a < 2; a++) {
        x.access[a] = (df_access){ .kind = a ? DF_ACCESS_STORE : DF_ACCESS_LOAD,
                                   .dtype = a ? to : t,
                                   .same_as = a };
        for (uint32_t i = 0; i < n_axes; i++) {
            const bool is_last = i + 1 == n_axes, is_red = i > 0 && i <= n_red;
            x.k.role[i] = i == 0 ? DF_AXIS_OUTER : is_red ? DF_AXIS_RED : DF_AXIS_INNER;
            if (a == 0 || !is_red || is_scan)
                x.access[a].step[i] = is_last && seed % 2 ? DF_STEP_UNIT : DF_STEP_ANY;
        }
    }
    one_reduction *const kept = copy_of(&x, sizeof x);
    kept->k.ins = kept->ins;
    kept->k.access = kept->access;
    snprintf(name, sizeof name, "%s %s, %s of %u", df_kop_infos[op].name,
             deft_dtype_name((deft_dtype)t), is_col ? "columns" : "rows", n_red);
    add_given(b, &kept->k, kept, seed, name);
}

/* all: every dtype in every mode; otherwise each dtype in some modes beside rows. */
static void add_reductions(batch *b, bool all)
{
    for (int op = DF_K_sum; op <= DF_K_cummax; op++)
        for (uint8_t t = 0; t < DF_N_RECORDED; t++) {
            const df_kop_info *const info = &df_kop_infos[op];
            const bool is_arg = op == DF_K_argmin || op == DF_K_argmax;
            const deft_dtype to = is_arg ? DEFT_I64 : (deft_dtype)t;
            const uint64_t seed = (uint64_t)op * 100 + t;
            const int which = (op + t) % 4;
            if (!df_kop_takes((df_kop_types)info->types, to, (deft_dtype)t)) continue;
            add_reduction(b, DF_MODE_ROW, 1, (df_kop)op, t, seed);
            if (all || which < 2) add_reduction(b, DF_MODE_COL, 1, (df_kop)op, t, seed + 1);
            if (info->kind == DF_KOP_scan) continue;
            if (all || which == 2) add_reduction(b, DF_MODE_ROW, 2, (df_kop)op, t, seed + 2);
            if (all || which == 3) add_reduction(b, DF_MODE_COL, 2, (df_kop)op, t, seed + 3);
        }
}

/* ---- random kernels ---- */

static void add_random(batch *b, df_mode mode, bool runs, uint64_t seed)
{
    static const char *const modes[] = { "MAP", "ROW", "COL", "LOOP" };
    random_kernel *const g =
        next(b, NULL, "%s%s %" PRIu64, modes[mode], runs ? " of runs" : "", seed);
    random_kernel_make(g, seed, mode, runs);
}

static void add_randoms(batch *b, uint64_t seed, uint64_t n)
{
    for (uint64_t i = 0; i < n && (i == 0 || test_time_left(0.6)); i++) {
        add_random(b, DF_MODE_MAP, false, seed + i);
        add_random(b, DF_MODE_ROW, false, seed + i);
        add_random(b, DF_MODE_ROW, true, seed + i);
        add_random(b, DF_MODE_COL, false, seed + i);
        add_random(b, DF_MODE_LOOP, false, seed + i);
    }
    flush(b);
}

/* ---- kernels written by hand ---- */

static void add_by_hand(batch *b)
{
    hand_reductions r;
    add_given(b, &hand_softmax, NULL, 5, "softmax with a row buffer");
    for (int col = 0; col < 2; col++)
        for (int scans = 0; scans < 2; scans++) {
            hand_reductions_make(&r, col, scans, 20);
            hand_reductions *const kept = copy_of(&r, sizeof r);
            kept->k.ins = kept->ins;
            kept->k.access = kept->access;
            add_given(b, &kept->k, kept, 6, col ? "20 reductions of columns" : "20 of rows");
        }
}

/* Checks whose indices count from the end, or are out of range. */
static void run_gathers(batch *b)
{
    df_code code;
    df_diag d = { 0 };
    const df_kernel *const k = &hand_gather;
    if (b->c.compile(b->c.self, &d, &k, 1, DF_OPT_O2, &code) != DEFT_OK) stop("gather", d.text);
    for (int64_t n = 1; n <= HAND_GATHER_MOST; n += 23)
        for (int64_t bad = -1; bad < n; bad += 11) {
            static hand_gather_run r;
            hand_gather_init(&r, n, bad);
            code.main(&r.args, 0, 1, 0, n);
            b->n_runs++;
            if (hand_gather_holds(&r)) continue;
            fprintf(stderr, "gather of %d, %d is bad\n", (int)n, (int)bad);
            b->n_wrong++;
        }
    b->c.release(b->c.self, &code);
}

/* ---- halves ---- */

/* Every half; floats that are halves, and beside them and between them. */
static void fill_halves(uint8_t from, uint8_t half, char *to)
{
    for (uint32_t i = 0; i < 1u << 18; i++) {
        const uint32_t next = (i >> 2) + 1;
        double v = half_value((deft_dtype)half, (uint16_t)(i >> 2));
        const bool is_last = (next & 0x7FFF) == 0 || isnan(v);
        if ((i & 3) == 1 && !is_last) v = (v + half_value((deft_dtype)half, (uint16_t)next)) / 2;
        float f = (float)v;
        if ((i & 3) == 2) f = nextafterf(f, INFINITY);
        if ((i & 3) == 3) f = nextafterf(f, -INFINITY);
        if (isnan(v) && (i & 3) == 1) f = f32_of(0x7F800001u | (i >> 17) << 31);
        const uint16_t bits = (uint16_t)(i >> 2);
        if (from == DEFT_F32)
            memcpy(to + i * 4, &f, 4);
        else
            memcpy(to + i * 2, &bits, 2);
    }
}

static void run_halves(batch *b)
{
    enum { N = 1 << 18 };
    static const uint8_t pairs[][2] = { { DEFT_F16, DEFT_F32 },
                                        { DEFT_F32, DEFT_F16 },
                                        { DEFT_BF16, DEFT_F32 },
                                        { DEFT_F32, DEFT_BF16 } };
    one_op x[DF_LEN(pairs)];
    const df_kernel *k[DF_LEN(pairs)];
    df_code code[DF_LEN(pairs)];
    df_diag d = { 0 };
    char *const in = malloc(N * 4), *const out = malloc(N * 4), *const want = malloc(N * 4);
    if (!in || !out || !want) stop("halves", "no memory");
    for (uint32_t i = 0; i < DF_LEN(pairs); i++) {
        one_op_make(&x[i], DF_K_cast, pairs[i][0], pairs[i][1]);
        k[i] = &x[i].k;
    }
    if (b->c.compile(b->c.self, &d, k, DF_LEN(pairs), DF_OPT_O2, code) != DEFT_OK)
        stop("halves", d.text);
    for (uint32_t i = 0; i < DF_LEN(pairs); i++) {
        const uint8_t to = pairs[i][0], from = pairs[i][1];
        const int64_t stride[2] = { 1, 1 }, extent[1] = { N };
        char *ptr[2] = { in, want };
        const df_kargs a = { .ptr = ptr, .stride = stride, .extent = extent };
        void *const work = malloc(df_interp_work_size(k[i]));
        if (!work) stop("halves", "no memory");
        fill_halves(from, is_half(to) ? to : from, in);
        df_interp_main(k[i], work, &a, 0, 1, 0, N);
        ptr[1] = out;
        code[i].main(&a, 0, 1, 0, N);
        for (uint32_t e = 0; e < N; e++) {
            const uint64_t got = load_bits(out + e * size_of(to), to);
            if (same_bits(to, got, load_bits(want + e * size_of(to), to))) continue;
            fprintf(stderr, "cast %s <- %s: element %u is %llx\n", deft_dtype_name(to),
                    deft_dtype_name(from), e, (unsigned long long)got);
            b->n_wrong++;
            break;
        }
        b->n_runs++;
        b->c.release(b->c.self, &code[i]);
        free(work);
    }
    free(in);
    free(out);
    free(want);
}

/* ---- rules ---- */

/* What cannot be written is refused, and nothing is appended. */
static void expect_refusals(batch *b)
{
    df_str s;
    df_diag d = { 0 };
    one_op x;
    df_str_init(&s, &df_mem_system);
    df_str_put(&s, "before");
    one_op_make(&x, DF_K_sqrt, DEFT_I32, DEFT_I32);
    b->n_wrong +=
        df_aot_c_kernel(&d, &x.k, NULL, "k", &s) != DEFT_E_COMPILE || !strstr(d.text, "sqrt");
    one_op_make(&x, DF_K_add, DEFT_F32, DEFT_F32);
    x.ins[2].src[1] = 7;
    b->n_wrong += df_aot_c_kernel(&d, &x.k, NULL, "k", &s) != DEFT_E_COMPILE;
    b->n_wrong += strcmp(s.at, "before") != 0;
    df_str_finish(&s);
}

/* Whether a library that is compiled with these options is refused, because its arithmetic is not
 * that of the interpreter. */
static bool is_refused(batch *b, const char *options)
{
    char usual[256];
    df_code code;
    df_diag d = { 0 };
    const df_kernel *const k = &hand_gather;
    const char *const given = getenv("DEFT_TEST_CFLAGS");
    snprintf(usual, sizeof usual, "%s", given ? given : "");
    setenv("DEFT_TEST_CFLAGS", options, 1);
    const deft_status st = b->c.compile(b->c.self, &d, &k, 1, DF_OPT_O2, &code);
    if (st == DEFT_OK) b->c.release(b->c.self, &code);
    if (given)
        setenv("DEFT_TEST_CFLAGS", usual, 1);
    else
        unsetenv("DEFT_TEST_CFLAGS");
    return st == DEFT_E_COMPILE && strstr(d.text, "a rule of arithmetic");
}

/* df_aot_c_check() sees options that break rules, and a thread that flushes denormals. */
static void expect_rules(batch *b)
{
    static const char *const breaking[] = { "-O1 -ffast-math", "-O1 -funsafe-math-optimizations" };
    for (uint32_t i = 0; i < DF_LEN(breaking); i++) {
        if (is_refused(b, breaking[i])) continue;
        fprintf(stderr, "nothing is said of %s\n", breaking[i]);
        b->n_wrong++;
    }
#if defined(__x86_64__)
    enum { FLUSH_RESULTS = 0x8000 };
    const unsigned usual = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(usual | FLUSH_RESULTS);
    const bool refused = is_refused(b, "-O1");
    __builtin_ia32_ldmxcsr(usual);
    if (refused) return;
    fprintf(stderr, "nothing is said of denormals that are flushed\n");
    b->n_wrong++;
#endif
}

/* Whether this machine runs what DEFT_TEST_CFLAGS asks for. */
static bool can_run(void)
{
    const char *const flags = getenv("DEFT_TEST_CFLAGS");
    if (!flags) return true;
#if defined(__x86_64__)
    if (strstr(flags, "x86-64-v4")) return __builtin_cpu_supports("avx512vl");
    if (strstr(flags, "x86-64-v3")) return __builtin_cpu_supports("fma");
#endif
    return true;
}

int main(int argc, char **argv)
{
    static batch b;
    bool all = true;
    uint64_t seed = 1, n = 60;
    if (!can_run()) return 77;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            n = 8, all = false;
        else if (strcmp(argv[i], "--full") == 0)
            n = 4000;
        else
            seed = strtoull(argv[i], NULL, 0);
    }
    b.g = malloc(sizeof *b.g * BATCH);
    if (!b.g) stop("a batch", "no memory");
    c_compiler_open(df_fail, &b.c);
    add_ops(&b);
    add_reductions(&b, all);
    add_by_hand(&b);
    add_randoms(&b, seed, n);
    flush(&b);
    run_gathers(&b);
    run_halves(&b);
    expect_refusals(&b);
    expect_rules(&b);
    b.c.destroy(b.c.self);
    free(b.g);
    printf("%" PRIu64 " kernels in %" PRIu64 " texts, %" PRIu64 " runs, %" PRIu64 " wrong\n",
           b.n_kernels, b.n_texts, b.n_runs, b.n_wrong);
    return b.n_wrong != 0;
}
