/* SPDX-License-Identifier: Apache-2.0
 *
 * What does an exported program cost beside the same program in deft? Captured functions are
 * exported as objects and as C, which cc -O3 -march=native compiles, and are called in turn with
 * the capture, on one thread. Then the time of a call that computes next to nothing.
 *
 * The files for all of GPT-2 take the weights as parameters.
 */
#include "bench.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../examples/fft_filter.h"
#include "../examples/transformer.h"
#include "deft/nn.h"

enum { HUGE = 2 << 20, MOST_ARRAYS = 192, MOST_OUTSIDE = 12, ROUNDS = 15 };

static char folder[] = "/tmp/deft-bench-export-XXXXXX";

/* ---- programs ---- */

static deft_tensor *outside[MOST_OUTSIDE];

#define PROGRAM(name)                                                                              \
    static deft_status name(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,  \
                            size_t n_out, void *user)

PROGRAM(heat)
{
    (void)n_in, (void)n_out, (void)user;
    deft_tensor *const u = in[0];
    const deft_range low = DEFT_R(0, -2), middle = DEFT_R(1, -1), high = DEFT_R(2, DEFT_END);
    deft_tensor *const c = deft_slice(u, middle, middle);
    deft_tensor *const rows = deft_add(deft_slice(u, low, middle), deft_slice(u, high, middle));
    deft_tensor *const columns = deft_add(deft_slice(u, middle, low), deft_slice(u, middle, high));
    deft_tensor *const change = deft_sub(deft_add(rows, columns), deft_mul(c, deft_const_f(cx, 4)));
    out[0] = deft_add(c, deft_mul(change, deft_const_f(cx, 0.2)));
    return DEFT_OK;
}

static deft_tensor *normal_cdf(deft_ctx *cx, deft_tensor *x)
{
    deft_tensor *const e = deft_erf(deft_mul(x, deft_const_f(cx, 0.70710678118654752)));
    return deft_mul(deft_add(e, deft_const_f(cx, 1)), deft_const_f(cx, 0.5));
}

/* Prices of European calls (Black and Scholes 1973): spot, strike, years. */
PROGRAM(black_scholes)
{
    (void)n_in, (void)n_out, (void)user;
    deft_tensor *const s = in[0], *const k = in[1], *const t = in[2];
    deft_tensor *const deviation = deft_mul(deft_sqrt(t), deft_const_f(cx, 0.3));
    deft_tensor *const drift = deft_mul(t, deft_const_f(cx, 0.02 + 0.5 * 0.3 * 0.3));
    deft_tensor *const d1 = deft_div(deft_add(deft_log(deft_div(s, k)), drift), deviation);
    deft_tensor *const discount = deft_exp(deft_mul(t, deft_const_f(cx, -0.02)));
    out[0] = deft_sub(deft_mul(s, normal_cdf(cx, d1)),
                      deft_mul(deft_mul(k, discount), normal_cdf(cx, deft_sub(d1, deviation))));
    return DEFT_OK;
}

PROGRAM(digits)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    deft_tensor *const h = deft_relu(deft_add(deft_matmul(in[0], outside[0]), outside[1]));
    out[0] = deft_softmax(deft_add(deft_matmul(h, outside[2]), outside[3]), 1);
    return DEFT_OK;
}

PROGRAM(filter)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = fft_filter(cx, in[0], outside[0], outside[1], outside[2]);
    return DEFT_OK;
}

/* One step of Adam (Kingma and Ba 2015), with the corrections of a late step. */
PROGRAM(adam)
{
    (void)n_in, (void)n_out, (void)user;
    deft_tensor *const w = in[0], *const m = in[1], *const v = in[2], *const g = in[3];
    out[1] = deft_add(deft_mul(m, deft_const_f(cx, 0.9)), deft_mul(g, deft_const_f(cx, 0.1)));
    out[2] = deft_add(deft_mul(v, deft_const_f(cx, 0.999)),
                      deft_mul(deft_square(g), deft_const_f(cx, 0.001)));
    deft_tensor *const root = deft_add(deft_sqrt(out[2]), deft_const_f(cx, 1e-8));
    out[0] = deft_sub(w, deft_mul(deft_div(out[1], root), deft_const_f(cx, 1e-3)));
    return DEFT_OK;
}

enum { TOKENS = 64, WIDTH = 768, HEADS = 12 };

static deft_tensor *heads_of(deft_tensor *x)
{
    return deft_permute(deft_reshape(x, DEFT_SHAPE(TOKENS, HEADS, WIDTH / HEADS)),
                        DEFT_AXES(1, 0, 2));
}

/* A block of GPT-2 (Radford et al. 2019) for one sequence. */
PROGRAM(gpt2_block)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    deft_tensor *x = in[0], *h = deft_layer_norm(x, 1, outside[0], outside[1], 1e-5);
    deft_tensor *const q = heads_of(deft_matmul(h, outside[2]));
    deft_tensor *const k = heads_of(deft_matmul(h, outside[3]));
    deft_tensor *const v = heads_of(deft_matmul(h, outside[4]));
    deft_tensor *const a = deft_attention(q, k, v, DEFT_ATTENTION(.is_causal = true));
    deft_tensor *const joined =
        deft_reshape(deft_permute(a, DEFT_AXES(1, 0, 2)), DEFT_SHAPE(TOKENS, WIDTH));
    x = deft_add(x, deft_matmul(joined, outside[5]));
    h = deft_layer_norm(x, 1, outside[6], outside[7], 1e-5);
    h = deft_gelu(deft_add(deft_matmul(h, outside[8]), outside[9]));
    out[0] = deft_add(x, deft_add(deft_matmul(h, outside[10]), outside[11]));
    return DEFT_OK;
}

static transformer gpt2_net;

/* The loss of GPT-2 on a text as long as its context. */
PROGRAM(gpt2)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = transformer_loss(&gpt2_net, in[0], in[1]);
    return DEFT_OK;
}

PROGRAM(tiny)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = deft_add(deft_mul(in[0], deft_const_f(cx, 3)), deft_const_f(cx, 1));
    return DEFT_OK;
}

typedef struct program {
    const char *name, *label;
    deft_capture_fn fn;
    size_t n_in, n_out, n_outside;
    deft_shape in, out, outside[MOST_OUTSIDE];
} program;

/* Shapes as constants. */
#define S1(a)                                                                                      \
    {                                                                                              \
        .rank = 1, .dim = { a }                                                                    \
    }
#define S2(a, b)                                                                                   \
    {                                                                                              \
        .rank = 2, .dim = { a, b }                                                                 \
    }

#define S3(a, b, c)                                                                                \
    {                                                                                              \
        .rank = 3, .dim = { a, b, c }                                                              \
    }

static const program programs[] = {
    { "heat", "heat 1024 x 1024", heat, 1, 1, 0, S2(1024, 1024), S2(1022, 1022), { S1(0) } },
    { "black_scholes",
      "Black-Scholes 256 K",
      black_scholes,
      3,
      1,
      0,
      S1(262144),
      S1(262144),
      { S1(0) } },
    { "digits",
      "digits network, 64 images",
      digits,
      1,
      1,
      4,
      S2(64, 64),
      S2(64, 10),
      { S2(64, 128), S1(128), S2(128, 10), S1(10) } },
    { "adam", "step of Adam, 256 K", adam, 4, 3, 0, S1(262144), S1(262144), { S1(0) } },
    { "gpt2_block",
      "block of GPT-2, 64 tokens",
      gpt2_block,
      1,
      1,
      12,
      S2(TOKENS, WIDTH),
      S2(TOKENS, WIDTH),
      { S1(WIDTH), S1(WIDTH), S2(WIDTH, WIDTH), S2(WIDTH, WIDTH), S2(WIDTH, WIDTH),
        S2(WIDTH, WIDTH), S1(WIDTH), S1(WIDTH), S2(WIDTH, 4 * WIDTH), S1(4 * WIDTH),
        S2(4 * WIDTH, WIDTH), S1(WIDTH) } },
    { "gpt2", "GPT-2, 1024 tokens", gpt2, 2, 1, 0, S2(1, 1024), { .rank = 0 }, { S1(0) } },
    { "filter",
      "FFT filter, 256 numbers",
      filter,
      1,
      1,
      3,
      S1(FFT_SIZE),
      S1(FFT_SIZE),
      { S3(2, FFT_SIDE, FFT_SIDE), S3(2, FFT_SIDE, FFT_SIDE), S3(2, FFT_SIDE, FFT_SIDE) } },
    { "tiny", "16 elements", tiny, 1, 1, 0, S1(16), S1(16), { S1(0) } },
};

/* ---- one program, ready to be called ---- */

typedef struct ready {
    deft_ctx *cx;
    const program *p;
    deft_capture *capture;
    deft_tensor *in[4];
    void *array[MOST_ARRAYS + 2]; /* the arguments of the exported function */
    size_t n_arrays;
    int (*call)(void *const *array); /* calls the exported function */
    deft_nn *nn;                     /* of gpt2; else NULL */
    float *result;                   /* of the first output */
} ready;

static size_t numel(const deft_shape *s)
{
    size_t n = 1;
    for (uint32_t i = 0; i < s->rank; i++) n *= (size_t)s->dim[i];
    return n;
}

/* Memory as the library has it for results and workspaces: large arrays are in huge pages, where
 * the system grants them (runtime/os_linux.c). */
static void *memory(size_t bytes)
{
    const size_t to = bytes < HUGE ? 64 : HUGE, size = (bytes + to - 1) / to * to;
    void *const at = aligned_alloc(to, size ? size : to);
    if (at && bytes >= HUGE) (void)madvise(at, size, MADV_HUGEPAGE);
    return at;
}

/* Numbers between 0.5 and 1.5, which suit all programs. */
static float *numbers(size_t n, uint32_t seed)
{
    float *const v = memory(n * sizeof *v);
    for (size_t i = 0; v && i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        v[i] = 0.5f + (float)(seed >> 8) * 0x1p-24f;
    }
    return v;
}

static void call_exported(void *user)
{
    const ready *const r = user;
    if (r->call(r->array) != 0) exit(1);
}

static void call_capture(void *user)
{
    const ready *const r = user;
    deft_tensor *out[3];
    const deft_scope s = deft_scope_begin(r->cx);
    bench_must(r->cx, deft_capture_call(r->capture, r->in, r->p->n_in, out, r->p->n_out),
               "capture");
    bench_must(r->cx, deft_scope_end(s), "scope");
}

/* Writes a C file with a function that calls the exported one with an array of arguments. */
static void write_caller(const ready *r, const char *path)
{
    char name[112];
    snprintf(name, sizeof name, "%s_call.c", path);
    FILE *const f = fopen(name, "w");
    if (!f) exit(1);
    fprintf(
        f,
        "#include \"%s.h\"\nint call(void *const *a);\nint call(void *const *a)\n{\n    return %s(",
        path, r->p->name);
    for (size_t i = 0; i < r->n_arrays; i++) fprintf(f, "%sa[%zu]", i ? ", " : "", i);
    fprintf(f, ");\n}\n");
    if (fclose(f) != 0) exit(1);
}

/* Exports, compiles and loads the program. Returns false when that fails. */
static bool load(ready *r, bool as_c, void **library)
{
    char path[96], command[512], symbol[64];
    snprintf(path, sizeof path, "%s/%s", folder, r->p->name);
    snprintf(symbol, sizeof symbol, "%s_workspace_bytes", r->p->name);
    bench_must(r->cx,
               deft_export(r->capture, path, DEFT_EXPORT(.as_c = as_c, .passes_outside = true)),
               "export");
    write_caller(r, path);
    snprintf(command, sizeof command,
             "cc -std=c11 -O3 -march=native -shared -fPIC -o %s.%s.so %s.%s %s_call.c -lm", path,
             as_c ? "c" : "o", path, as_c ? "c" : "o", path);
    if (system(command) != 0) return false;
    snprintf(command, sizeof command, "%s.%s.so", path, as_c ? "c" : "o");
    *library = dlopen(command, RTLD_NOW | RTLD_LOCAL);
    void *const call_at = *library ? dlsym(*library, "call") : NULL;
    void *const bytes_at = *library ? dlsym(*library, symbol) : NULL;
    int64_t (*bytes)(int64_t n_threads);
    if (!call_at || !bytes_at) return false;
    memcpy(&r->call, &call_at, sizeof r->call);
    memcpy(&bytes, &bytes_at, sizeof bytes);
    free(r->array[r->n_arrays - 2]);
    r->array[r->n_arrays - 2] = memory((size_t)bytes(1));
    return r->array[r->n_arrays - 2] != NULL;
}

/* Makes the network and its inputs. Its parameters are used in the order in which they are made,
 * but for the table of tokens, which stands after that of places. */
static void open_gpt2(ready *r, deft_ctx *cx)
{
    const transformer_options o = transformer_gpt2();
    const size_t n = numel(&r->p->in);
    bench_must(cx, deft_nn_create(cx, NULL, &r->nn), "nn");
    const deft_scope s = deft_scope_begin(cx);
    if (!transformer_init(&gpt2_net, r->nn, &o)) exit(1);
    for (uint32_t i = 0; i < 2; i++) {
        int64_t *const v = malloc(n * sizeof *v);
        if (!v) exit(1);
        for (size_t k = 0; k < n; k++) v[k] = (int64_t)((k + i) * 7919 % 50257);
        r->in[i] = deft_keep(deft_wrap(cx, r->p->in, DEFT_I64, v, n * sizeof *v, NULL));
        r->array[r->n_arrays++] = v;
    }
    for (size_t i = 0; i < deft_nn_n_parameters(r->nn); i++) {
        deft_tensor *const t = deft_nn_parameter_at(r->nn, i < 2 ? 1 - i : i);
        const size_t bytes = (size_t)deft_numel(t) * sizeof(float);
        float *const v = memory(bytes);
        if (!v || r->n_arrays + 3 > MOST_ARRAYS) exit(1);
        bench_must(cx, deft_read(t, DEFT_F32, v, bytes), "parameter");
        r->array[r->n_arrays++] = v;
    }
    bench_must(cx, deft_scope_end(s), "network");
}

static void open_program(ready *r, deft_ctx *cx, const program *p)
{
    *r = (ready){ .cx = cx, .p = p };
    if (p->fn == gpt2) open_gpt2(r, cx);
    for (size_t i = 0; i < p->n_in && p->fn != gpt2; i++) {
        float *const v = numbers(numel(&p->in), (uint32_t)i + 1);
        r->array[r->n_arrays++] = v;
        r->in[i] = deft_keep(deft_wrap(cx, p->in, DEFT_F32, v, numel(&p->in) * sizeof *v, NULL));
    }
    for (size_t i = 0; i < p->n_outside; i++) {
        const size_t n = numel(&p->outside[i]);
        float *const v = numbers(n, (uint32_t)i + 77);
        for (size_t k = 0; k < n; k++) v[k] = (v[k] - 1) * 0.05f;
        outside[i] = deft_keep(deft_wrap(cx, p->outside[i], DEFT_F32, v, n * sizeof *v, NULL));
        r->array[r->n_arrays++] = v;
    }
    r->result = NULL;
    for (size_t i = 0; i < p->n_out; i++) {
        float *const v = numbers(numel(&p->out), 5);
        if (i == 0) r->result = v;
        r->array[r->n_arrays++] = v;
    }
    r->n_arrays += 2; /* the workspace, and no threads */
    r->capture = deft_capture_create(cx, p->fn, NULL);
}

static void close_program(ready *r)
{
    deft_capture_destroy(&r->capture);
    for (size_t i = 0; i < r->p->n_in; i++) deft_drop(&r->in[i]);
    for (size_t i = 0; i < r->p->n_outside; i++) deft_drop(&outside[i]);
    deft_nn_destroy(&r->nn);
    for (size_t i = 0; i < r->n_arrays; i++) free(r->array[i]);
}

/* Whether the exported function gives the bits of the capture. */
static bool is_equal(ready *r)
{
    const size_t n = numel(&r->p->out);
    deft_tensor *out[3];
    float *const want = malloc(n * sizeof *want);
    const deft_scope s = deft_scope_begin(r->cx);
    bench_must(r->cx, deft_capture_call(r->capture, r->in, r->p->n_in, out, r->p->n_out),
               "capture");
    bench_must(r->cx, deft_read(out[0], DEFT_F32, want, n * sizeof *want), "read");
    bench_must(r->cx, deft_scope_end(s), "scope");
    call_exported(r);
    const bool is = memcmp(want, r->result, n * sizeof *want) == 0;
    free(want);
    return is;
}

static void write_label(char label[96], const program *p, bool as_c)
{
    (void)snprintf(label, 96, "%s, %s", p->label, as_c ? "C" : "object");
}

static bool is_wanted(const bench *b, const program *p)
{
    char label[96];
    write_label(label, p, false);
    if (bench_wants(b, label)) return true;
    write_label(label, p, true);
    return bench_wants(b, label);
}

static void compare(bench *b, ready *r, bool as_c)
{
    char label[96];
    void *library = NULL;
    double mine, theirs;
    const double goal = as_c ? 1.3 : 1.05;
    write_label(label, r->p, as_c);
    if (!bench_wants(b, label)) return;
    if (!load(r, as_c, &library)) {
        bench_row_without(b, label, NAN, "us", "capture", "cc or the loader failed", goal);
    } else if (!is_equal(r)) {
        bench_row_without(b, label, NAN, "us", "capture", "the results differ", goal);
    } else if (r->p->fn == tiny) {
        const double one = bench_one(call_exported, r, ROUNDS, 10000);
        bench_row(b, label, one * 1e9, "ns", "a call and one kernel", 250, BENCH_RATIO_AT_MOST, 1);
    } else {
        const int calls = bench_calls(call_exported, r, 0.02);
        const int rounds = r->p->fn == gpt2 ? 3 : b->quick ? 5 : ROUNDS;
        bench_pair(call_exported, r, call_capture, r, rounds, calls, &mine, &theirs);
        bench_row(b, label, mine * 1e6, "us", "capture", theirs * 1e6, BENCH_RATIO_AT_MOST, goal);
    }
    if (library) dlclose(library);
}

void bench_export(bench *b)
{
    char command[96];
    if (!mkdtemp(folder)) exit(1);
    deft_runtime *rt = bench_runtime(1, DEFT_TIER_FULL, 0);
    deft_ctx *cx = bench_ctx(rt, DEFT_STRICT);
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        ready r;
        if (!is_wanted(b, &programs[i])) continue;
        open_program(&r, cx, &programs[i]);
        for (int k = 0; k < (programs[i].fn == gpt2 ? 2 : 20); k++) call_capture(&r);
        compare(b, &r, false);
        compare(b, &r, true);
        close_program(&r);
    }
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (system(command) != 0) exit(1);
}
