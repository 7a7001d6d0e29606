/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_export: captured functions become objects and C files, which are compiled, loaded, and
 * compared with the capture, bit for bit. tests/aot compares many more programs.
 * Why this file is long: many small captured functions, and the helpers that all of them share.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/harness.h"

#include "../../examples/fft_filter.h"
#include "deft/layers.h"
#include "deft/random.h"

typedef struct threads {
    int n;
    void *user;
    void (*run)(void *user, int n_tasks, void (*task)(void *data, int i), void *data);
} threads;

static rig r;
static char folder[64], path[96];
static int n_libraries;
static char workspace[1 << 20];

static void set_up(void)
{
    rig_interpret(&r, 1);
    snprintf(folder, sizeof folder, "/tmp/deft-export-XXXXXX");
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/f", folder);
}

static void tear_down(void)
{
    char command[128];
    rig_close(&r);
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(export, .init = set_up, .fini = tear_down);

/* Exports c and loads it. Returns the function `name`; *bytes: that of its workspace. */
static void *load(deft_capture *c, deft_export_options o, const char *name, void **bytes)
{
    char command[512], library[128], other[64];
    void *fn = NULL;
    o.size = sizeof o;
    OK(&r, deft_export(c, path, &o));
    snprintf(library, sizeof library, "%s/f%d.so", folder, n_libraries++);
    snprintf(command, sizeof command,
             "cc -std=c11 -Wall -Wextra -Werror -O1 -shared -fPIC -o %s %s.%c -lm", library, path,
             o.as_c ? 'c' : 'o');
    cr_assert_eq(system(command), 0, "%s", command);
    void *const so = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    cr_assert(so, "%s", dlerror());
    fn = dlsym(so, name);
    snprintf(other, sizeof other, "%s_workspace_bytes", name);
    *bytes = dlsym(so, other);
    cr_assert(fn && *bytes);
    return fn;
}

static bool file_has(const char *suffix, const char *text)
{
    char name[128], line[512];
    snprintf(name, sizeof name, "%s%s", path, suffix);
    FILE *const f = fopen(name, "r");
    bool found = false;
    while (f && fgets(line, sizeof line, f)) found |= strstr(line, text) != NULL;
    if (f) fclose(f);
    return found;
}

static const deft_export_options as_object = { 0 }, as_c = { .as_c = true };

/* ---- tensors from outside ---- */

static deft_tensor *state, *weights;

static deft_status decay(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    deft_tensor *const half = deft_mul(deft_cast(in[0], DEFT_F16), deft_param_f(cx, "keep"));
    deft_assign(state, deft_add(deft_mul(state, deft_param_f(cx, "keep")), in[0]));
    out[0] = deft_add(deft_sum(state, DEFT_ALL_AXES, 0), deft_sum(half, DEFT_ALL_AXES, 0));
    return DEFT_OK;
}

typedef int (*decay_fn)(const float *in0, const float *outside0, double keep, float *out0,
                        float *outside0_new, void *workspace, const threads *t);
typedef int64_t (*bytes_fn)(int64_t n_threads);

static void expect_decay(deft_export_options o)
{
    enum { N = 1000 };
    float x[N], own[N], sum, want[N], want_sum;
    void *fn_at, *bytes_at;
    decay_fn fn;
    bytes_fn bytes;
    state = rig_range(&r, N, 1);
    deft_tensor *in[1] = { rig_range(&r, N, 0.25f) }, *out;
    deft_capture *c = deft_capture_create(r.cx, decay, NULL);
    OK(&r, deft_capture_set_f(c, "keep", 0.5));
    OK(&r, deft_capture_call(c, in, 1, &out, 1));
    fn_at = load(c, o, "f", &bytes_at);
    memcpy(&fn, &fn_at, sizeof fn);
    memcpy(&bytes, &bytes_at, sizeof bytes);
    cr_assert(file_has(".h", "outside0_new f32[1000], written; may be the same array as outside0"));
    rig_read(&r, in[0], x, N);
    rig_read(&r, state, own, N);
    cr_assert_leq((size_t)bytes(1), sizeof workspace);
    for (int i = 0; i < 3; i++) {
        OK(&r, deft_capture_set_f(c, "keep", 0.3 * i));
        OK(&r, deft_capture_call(c, in, 1, &out, 1));
        rig_read(&r, state, want, N);
        want_sum = rig_item(&r, out);
        cr_assert_eq(fn(x, own, 0.3 * i, &sum, own, workspace, NULL), 0);
        for (int k = 0; k < N; k++)
            cr_assert(own[k] == want[k], "call %d, element %d: %.9g, not %.9g", i, k,
                      (double)own[k], (double)want[k]);
        cr_assert(memcmp(&sum, &want_sum, sizeof sum) == 0, "%g, not %g", (double)sum,
                  (double)want_sum);
    }
    cr_assert_eq(fn(x, own, 0, &sum, own, NULL, NULL), 4);
    deft_capture_destroy(&c);
}

Test(export, assigned_tensors_and_numbers_are_parameters)
{
    expect_decay(as_object);
}

Test(export, assigned_tensors_and_numbers_are_parameters_in_c)
{
    expect_decay(as_c);
}

static deft_status layer(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_softmax(deft_relu(deft_matmul(in[0], weights)), 1);
    return DEFT_OK;
}

static void run_backwards(void *user, int n, void (*task)(void *data, int i), void *data)
{
    ++*(int *)user;
    for (int i = n; i-- > 0;) task(data, i);
}

/* The weights are in the file, and the number of rows is a parameter. */
static void expect_layer(deft_export_options o)
{
    enum { ROWS = 77, IN = 129, OUT = 131, MOST = 3 * ROWS };
    typedef int (*layer_fn)(int64_t rows, const float *x, float *y, void *ws, const threads *t);
    typedef int64_t (*layer_bytes_fn)(int64_t rows, int64_t n_threads);
    static float x[MOST * IN], y[MOST * OUT], want[MOST * OUT];
    const deft_export_extent rows = { "rows", 0, 0 };
    const char *const in_names[] = { "x" }, *const out_names[] = { "y" };
    void *fn_at, *bytes_at;
    layer_fn fn;
    layer_bytes_fn bytes;
    int n_forks = 0;
    const threads backwards = { 3, &n_forks, run_backwards };
    for (int i = 0; i < MOST * IN; i++) x[i] = (float)(i % 1013) * 0.01f - 5;
    weights = deft_reshape(deft_arange(r.cx, 0, IN * OUT, 1, DEFT_F32), DEFT_SHAPE(IN, OUT));
    weights = deft_keep(deft_sin(weights));
    deft_tensor *in[1] = { rig_tensor(&r, DEFT_SHAPE(ROWS, IN), x) }, *out;
    deft_capture *c = deft_capture_create(r.cx, layer, NULL);
    OK(&r, deft_capture_call(c, in, 1, &out, 1));
    o.extents = &rows;
    o.n_extents = 1;
    o.inputs = in_names;
    o.outputs = out_names;
    o.name = "layer";
    fn_at = load(c, o, "layer", &bytes_at);
    memcpy(&fn, &fn_at, sizeof fn);
    memcpy(&bytes, &bytes_at, sizeof bytes);
    for (int64_t n = 1; n <= MOST; n += 76) {
        in[0] = rig_tensor(&r, DEFT_SHAPE(n, IN), x);
        OK(&r, deft_capture_call(c, in, 1, &out, 1));
        rig_read(&r, out, want, n * OUT);
        for (int k = 0; k < 2; k++) {
            const threads *const t = k ? &backwards : NULL;
            memset(y, 0, sizeof y);
            cr_assert_leq((size_t)bytes(n, k ? 3 : 1), sizeof workspace);
            cr_assert_eq(fn(n, x, y, workspace, t), 0);
            cr_assert(memcmp(y, want, (size_t)n * OUT * sizeof *y) == 0, "%d rows", (int)n);
        }
    }
    cr_assert_gt(n_forks, 0);
    deft_capture_destroy(&c);
}

Test(export, weights_are_in_the_file_and_extents_are_parameters)
{
    expect_layer(as_object);
}

Test(export, weights_are_in_the_file_and_extents_are_parameters_in_c)
{
    expect_layer(as_c);
}

/* ---- products of two dtypes ---- */

static deft_status products(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    const deft_dtype *const t = user;
    (void)cx, (void)n_in;
    for (size_t i = 0; i < n_out; i++) {
        deft_tensor *const x = deft_cast(in[0], t[i]);
        out[i] = deft_matmul(x, deft_transpose(x, 0, 1));
    }
    return DEFT_OK;
}

/* Exports x x' in each of the dtypes. Returns the size of the file, and compares what the function
 * computes when there are two: of f32 and f64. */
static int64_t expect_products(deft_export_options o, const deft_dtype *t, size_t n)
{
    enum { SIDE = 37 };
    typedef int (*products_fn)(const float *x, float *y, double *z, void *ws, const threads *t);
    static float x[SIDE * SIDE], y[SIDE * SIDE], want_y[SIDE * SIDE];
    static double z[SIDE * SIDE], want_z[SIDE * SIDE];
    void *fn_at, *bytes_at;
    products_fn fn;
    struct stat file;
    char name[128];
    for (int i = 0; i < SIDE * SIDE; i++) x[i] = (float)(i % 101) * 0.03f - 1;
    deft_tensor *in[1] = { rig_tensor(&r, DEFT_SHAPE(SIDE, SIDE), x) }, *out[2];
    deft_capture *c = deft_capture_create(r.cx, products, (void *)(uintptr_t)t);
    OK(&r, deft_capture_call(c, in, 1, out, n));
    fn_at = load(c, o, "f", &bytes_at);
    if (n == 2) {
        memcpy(&fn, &fn_at, sizeof fn);
        OK(&r, deft_read(out[0], DEFT_F32, want_y, sizeof want_y));
        OK(&r, deft_read(out[1], DEFT_F64, want_z, sizeof want_z));
        cr_assert_eq(fn(x, y, z, workspace, NULL), 0);
        cr_assert(memcmp(y, want_y, sizeof y) == 0);
        cr_assert(memcmp(z, want_z, sizeof z) == 0);
    }
    deft_capture_destroy(&c);
    snprintf(name, sizeof name, "%s.%c", path, o.as_c ? 'c' : 'o');
    cr_assert_eq(stat(name, &file), 0);
    return file.st_size;
}

static const deft_dtype f32_and_f64[] = { DEFT_F32, DEFT_F64 };

/* Each object has the runtime part, of 12 KB, and the code for its products. What controls tiles is
 * there once, where both dtypes have products: that saves 9 KB. */
Test(export, products_of_two_dtypes_share_their_control)
{
    const int64_t both = expect_products(as_object, f32_and_f64, 2);
    const int64_t f32 = expect_products(as_object, f32_and_f64, 1);
    const int64_t f64 = expect_products(as_object, f32_and_f64 + 1, 1);
    cr_assert_lt(both, f32 + f64 - 18 * 1024, "%d bytes, beside %d and %d", (int)both, (int)f32,
                 (int)f64);
}

Test(export, products_of_two_dtypes_in_c)
{
    expect_products(as_c, f32_and_f64, 2);
}

/* ---- a filter ---- */

static deft_tensor *dft, *twiddle, *response;

static deft_status filter(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = fft_filter(cx, in[0], dft, twiddle, response);
    return DEFT_OK;
}

/* The factor of a frequency: of a smooth low pass, which delays by three numbers. */
static void factor_of(int k, double *re, double *im)
{
    const int distance = k < FFT_SIZE - k ? k : FFT_SIZE - k;
    const double size = 1 / (1 + distance * distance / 400.0),
                 angle = -2 * 3.14159265358979 * 3 * k / FFT_SIZE;
    *re = size * cos(angle);
    *im = size * sin(angle);
}

/* A kept f32[2,16,16]. kind 0: the matrix; 1: the factors between; 2: the response. */
static deft_tensor *filter_table(int kind)
{
    static float v[2][FFT_SIDE][FFT_SIDE];
    for (int j = 0; j < FFT_SIDE; j++)
        for (int k = 0; k < FFT_SIDE; k++) {
            const double angle = -2 * 3.14159265358979 * j * k / (kind == 0 ? FFT_SIDE : FFT_SIZE);
            double re = cos(angle), im = sin(angle);
            if (kind == 2) factor_of(j + FFT_SIDE * k, &re, &im);
            v[0][j][k] = (float)re;
            v[1][j][k] = (float)im;
        }
    return rig_tensor(&r, DEFT_SHAPE(2, FFT_SIDE, FFT_SIDE), &v[0][0][0]);
}

/* The same by the sums of their definition, in double. */
static void filter_slowly(const float *x, double *y)
{
    for (int n = 0; n < FFT_SIZE; n++) y[n] = 0;
    for (int k = 0; k < FFT_SIZE; k++) {
        double re = 0, im = 0, hr, hi;
        for (int n = 0; n < FFT_SIZE; n++) {
            re += (double)x[n] * cos(2 * 3.14159265358979 * n * k / FFT_SIZE);
            im -= (double)x[n] * sin(2 * 3.14159265358979 * n * k / FFT_SIZE);
        }
        factor_of(k, &hr, &hi);
        for (int n = 0; n < FFT_SIZE; n++) {
            const double angle = 2 * 3.14159265358979 * n * k / FFT_SIZE;
            y[n] +=
                ((re * hr - im * hi) * cos(angle) - (re * hi + im * hr) * sin(angle)) / FFT_SIZE;
        }
    }
}

static void expect_filter(deft_export_options o)
{
    typedef int (*filter_fn)(const float *x, float *y, void *ws, const threads *t);
    static float x[FFT_SIZE], y[FFT_SIZE], want[FFT_SIZE];
    static double slow[FFT_SIZE];
    void *fn_at, *bytes_at;
    filter_fn fn;
    for (int i = 0; i < FFT_SIZE; i++) x[i] = (float)(i * 37 % 101) * 0.02f - 1;
    dft = filter_table(0);
    twiddle = filter_table(1);
    response = filter_table(2);
    deft_tensor *in[1] = { rig_vector(&r, FFT_SIZE, x) }, *out;
    deft_capture *c = deft_capture_create(r.cx, filter, NULL);
    OK(&r, deft_capture_call(c, in, 1, &out, 1));
    rig_read(&r, out, want, FFT_SIZE);
    filter_slowly(x, slow);
    for (int i = 0; i < FFT_SIZE; i++)
        cr_assert(fabs((double)want[i] - slow[i]) < 1e-5, "number %d: %g, not %g", i,
                  (double)want[i], slow[i]);
    fn_at = load(c, o, "f", &bytes_at);
    memcpy(&fn, &fn_at, sizeof fn);
    cr_assert_eq(fn(x, y, workspace, NULL), 0);
    cr_assert_arr_eq(y, want, sizeof y);
    deft_capture_destroy(&c);
}

Test(export, a_filter_in_the_frequency_domain)
{
    expect_filter(as_object);
}

Test(export, a_filter_in_the_frequency_domain_in_c)
{
    expect_filter(as_c);
}

/* ---- draws ---- */

static deft_rng rng;

static deft_status noise(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = deft_add(in[0], deft_uniform(cx, &rng, DEFT_SHAPE(100), DEFT_F32, 0, 1));
    return DEFT_OK;
}

Test(export, draws_take_their_seed_and_number)
{
    typedef int (*noise_fn)(const float *x, int64_t seed, int64_t draw, float *y, void *ws,
                            const threads *t);
    float x[100], y[100], want[100];
    void *fn_at, *bytes_at;
    noise_fn fn;
    rng = (deft_rng){ .seed = 12345 };
    deft_tensor *in[1] = { rig_range(&r, 100, 0) }, *out;
    deft_capture *c = deft_capture_create(r.cx, noise, NULL);
    OK(&r, deft_capture_call(c, in, 1, &out, 1));
    rig_read(&r, in[0], x, 100);
    fn_at = load(c, as_object, "f", &bytes_at);
    memcpy(&fn, &fn_at, sizeof fn);
    for (int i = 0; i < 3; i++) {
        const int64_t next = (int64_t)rng.next;
        OK(&r, deft_capture_call(c, in, 1, &out, 1));
        rig_read(&r, out, want, 100);
        cr_assert_eq(fn(x, 12345, next, y, workspace, NULL), 0);
        cr_assert_arr_eq(y, want, sizeof y);
    }
    deft_capture_destroy(&c);
}

/* ---- indices ---- */

static deft_status look_up(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_gather(in[0], in[1], 0);
    return DEFT_OK;
}

Test(export, an_index_out_of_range_is_a_status)
{
    typedef int (*look_up_fn)(const float *x, const int64_t *index, float *y, void *ws,
                              const threads *t);
    const float x[4] = { 10, 11, 12, 13 };
    int64_t index[3] = { 3, 0, 2 };
    float y[3] = { 0 };
    void *fn_at, *bytes_at;
    look_up_fn fn;
    deft_tensor *in[2] = { rig_vector(&r, 4, x), deft_keep(deft_from(r.cx, DEFT_SHAPE(3), DEFT_I64,
                                                                     index, sizeof index)) },
                *out;
    deft_capture *c = deft_capture_create(r.cx, look_up, NULL);
    OK(&r, deft_capture_call(c, in, 2, &out, 1));
    fn_at = load(c, as_object, "f", &bytes_at);
    memcpy(&fn, &fn_at, sizeof fn);
    cr_assert_eq(fn(x, index, y, workspace, NULL), 0);
    cr_assert(y[0] == 13 && y[1] == 10 && y[2] == 12);
    index[1] = 4;
    cr_assert_eq(fn(x, index, y, workspace, NULL), 2);
    deft_capture_destroy(&c);
}

/* ---- loops and branches ---- */

enum { STEPS = 7, COLUMNS = 9 };

/* Two states that change places, and a row of each iteration. */
static deft_status exchange(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_sub(in[1], deft_mean(in[2], DEFT_AXES(0), 1));
    out[1] = deft_tanh(deft_mul(deft_matmul(in[0], in[1]), in[3]));
    out[2] = deft_sum(out[1], DEFT_AXES(0), 0);
    return DEFT_OK;
}

static deft_status is_small(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = deft_lt(deft_max(in[0], DEFT_ALL_AXES, 0), deft_param_f(cx, "limit"));
    return DEFT_OK;
}

/* An iteration with a loop in it, and an update of a part of a state. */
static deft_status enlarge(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    deft_tensor *const init[2] = { in[0], in[0] }, *const rows[2] = { in[0], in[1] };
    deft_tensor *made[3], *kept = deft_mul(in[1], deft_const_f(cx, 1));
    (void)deft_scan(cx, exchange, NULL, init, 2, rows, 2, COLUMNS, 1, made);
    deft_assign(deft_slice(kept, DEFT_AT(2)), deft_slice(made[0], DEFT_AT(1)));
    out[0] = deft_add(in[0], deft_abs(made[2]));
    out[1] = kept;
    return DEFT_OK;
}

static deft_status twice(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_matmul(in[0], in[0]);
    return DEFT_OK;
}

static deft_status once(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_cumsum(deft_softmax(in[0], 1), 0);
    return DEFT_OK;
}

static deft_status iterated(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    deft_tensor *made[3], *const init[2] = { in[0], in[0] };
    deft_tensor *const sum = deft_sum(in[0], DEFT_ALL_AXES, 0);
    deft_tensor *state2[2];
    (void)deft_while(cx, is_small, enlarge, NULL, init, 2, STEPS, state2);
    (void)deft_cond(deft_gt(sum, deft_param_f(cx, "least")), twice, once, NULL, state2, 1, made, 1);
    out[0] = made[0];
    out[1] = state2[1];
    out[2] = deft_add(state2[0], deft_const_f(cx, 1));
    return DEFT_OK;
}

/* Calls the function and the capture with other numbers, so that loops end early or late, and both
 * branches run. */
static void expect_iterated(deft_export_options o)
{
    enum { N = COLUMNS * COLUMNS };
    typedef int (*iterated_fn)(const float *x, double limit, double least, float *a, float *b,
                               float *c, void *ws, const threads *t);
    float x[N], got[3][N], want[N];
    void *fn_at, *bytes_at;
    iterated_fn fn;
    bytes_fn bytes;
    int n_forks = 0;
    const threads backwards = { 3, &n_forks, run_backwards };
    for (int i = 0; i < N; i++) x[i] = (float)(i * 37 % 101) * 0.01f - 0.5f;
    deft_tensor *in[1] = { rig_tensor(&r, DEFT_SHAPE(COLUMNS, COLUMNS), x) }, *out[3];
    deft_capture *c = deft_capture_create(r.cx, iterated, NULL);
    OK(&r, deft_capture_set_f(c, "limit", 1));
    OK(&r, deft_capture_set_f(c, "least", 0));
    OK(&r, deft_capture_call(c, in, 1, out, 3));
    fn_at = load(c, o, "f", &bytes_at);
    memcpy(&fn, &fn_at, sizeof fn);
    memcpy(&bytes, &bytes_at, sizeof bytes);
    cr_assert_leq((size_t)bytes(3), sizeof workspace);
    for (int i = 0; i < 6; i++) {
        const double limit = i % 3 == 0 ? -1e9 : i % 3 == 1 ? 3 : 1e30, least = i < 3 ? -1e9 : 1e9;
        OK(&r, deft_capture_set_f(c, "limit", limit));
        OK(&r, deft_capture_set_f(c, "least", least));
        OK(&r, deft_capture_call(c, in, 1, out, 3));
        memset(workspace, 0xA5, sizeof workspace);
        cr_assert_eq(
            fn(x, limit, least, got[0], got[1], got[2], workspace, i & 1 ? &backwards : NULL), 0);
        for (int k = 0; k < 3; k++) {
            rig_read(&r, out[k], want, N);
            cr_assert(memcmp(want, got[k], sizeof want) == 0, "call %d, result %d", i, k);
        }
    }
    deft_capture_destroy(&c);
}

Test(export, loops_and_branches_have_the_bits_of_the_capture)
{
    expect_iterated(as_object);
}

Test(export, loops_and_branches_have_the_bits_of_the_capture_in_c)
{
    expect_iterated(as_c);
}

/* ---- attention over many keys ---- */

static deft_status attend(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_attention(in[0], in[1], in[2], DEFT_ATTENTION(.is_causal = true));
    return DEFT_OK;
}

/* Blocks of keys that are masked are left out, unless a value there is infinite. */
static void expect_attention(deft_export_options o)
{
    enum { HEADS = 2, KEYS = 2 * DEFT_ATTENTION_BLOCK + 44, WIDE = 8, N = HEADS * KEYS * WIDE };
    typedef int (*attend_fn)(const float *q, const float *k, const float *v, float *y, void *ws,
                             const threads *t);
    static float data[3][N], want[N], got[N];
    void *fn_at, *bytes_at;
    attend_fn fn;
    bytes_fn bytes;
    int n_forks = 0;
    const threads backwards = { 3, &n_forks, run_backwards };
    deft_tensor *in[3], *out;
    deft_capture *c = deft_capture_create(r.cx, attend, NULL);
    for (int i = 0; i < 3 * N; i++) data[i / N][i % N] = (float)(i * 7919 % 1009) * 0.004f - 2;
    for (int call = 0; call < 3; call++) {
        if (call == 2) data[2][N - 3] = INFINITY; /* of the last key */
        for (int i = 0; i < 3; i++) in[i] = rig_tensor(&r, DEFT_SHAPE(HEADS, KEYS, WIDE), data[i]);
        OK(&r, deft_capture_call(c, in, 3, &out, 1));
        rig_read(&r, out, want, N);
        if (call == 0) {
            fn_at = load(c, o, "f", &bytes_at);
            memcpy(&fn, &fn_at, sizeof fn);
            memcpy(&bytes, &bytes_at, sizeof bytes);
        }
        const size_t size = (size_t)bytes(3);
        char *const ws = malloc(size);
        cr_assert(ws);
        memset(ws, 0xA5, size);
        cr_assert_eq(fn(data[0], data[1], data[2], got, ws, call ? &backwards : NULL), 0);
        for (int i = 0; i < N; i++)
            cr_assert(memcmp(&want[i], &got[i], sizeof *got) == 0,
                      "call %d, element %d: %a, not %a", call, i, (double)got[i], (double)want[i]);
        free(ws);
    }
    cr_assert_gt(n_forks, 0);
    deft_capture_destroy(&c);
}

Test(export, attention_over_many_keys_has_the_bits_of_the_capture)
{
    expect_attention(as_object);
}

Test(export, attention_over_many_keys_has_the_bits_of_the_capture_in_c)
{
    expect_attention(as_c);
}

/* ---- C code that computes from an extent ---- */

typedef enum from_extent { NUMBER, STEPS_OF_SEARCH, ITERATIONS, FAR_AWAY, EXTENTS } from_extent;

static from_extent what_follows;

static deft_status follow(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    const int64_t n = deft_dim(in[0], 0);
    deft_tensor *y = in[0];
    switch (what_follows) {
    case NUMBER: y = deft_mul(y, deft_const_f(cx, 1.0 / (double)n)); break;
    case STEPS_OF_SEARCH:
        y = deft_cast(deft_searchsorted(deft_sort(y, 0, false), y, false), DEFT_F32);
        break;
    case ITERATIONS:
        for (int64_t i = 0; i < n; i++) y = deft_sin(y);
        break;
    case FAR_AWAY: y = n < 4 ? deft_sin(y) : n > 100 ? deft_cos(y) : deft_tanh(y); break;
    case EXTENTS:
        y = deft_mul(deft_sub(y, deft_mean(y, DEFT_AXES(0), 1)),
                     deft_cumsum(deft_full(cx, DEFT_SHAPE(n), DEFT_F32, 0.5), 0));
        break;
    }
    out[0] = y;
    return DEFT_OK;
}

static deft_capture *captured_follow(from_extent what, int64_t n)
{
    deft_tensor *in[1] = { rig_range(&r, n, 1) }, *out;
    what_follows = what;
    deft_capture *const c = deft_capture_create(r.cx, follow, NULL);
    OK(&r, deft_capture_call(c, in, 1, &out, 1));
    return c;
}

static void expect_mistake(deft_capture *c, const char *at, deft_export_options o, deft_status st,
                           const char *part);

Test(export, what_c_code_computes_from_an_open_extent_is_refused)
{
    static const struct {
        from_extent what;
        const char *part;
    } cases[] = {
        { NUMBER, "with n = 11, the number 0.0909090936 of mul at test_export.c" },
        { STEPS_OF_SEARCH, "with n = 11, the number 5 of add at test_export.c" },
        { ITERATIONS, "with n = 11, it records 12 operators, and 11 in the recording" },
    };
    const deft_export_extent n = { "n", 0, 0 };
    const deft_export_options o = { .extents = &n, .n_extents = 1, .as_c = true };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        deft_capture *c = captured_follow(cases[i].what, 10);
        expect_mistake(c, path, o, DEFT_E_ARG, cases[i].part);
        deft_capture_destroy(&c);
    }
}

typedef int (*follow_fn)(int64_t n, const float *x, float *y, void *ws, const threads *t);
typedef int64_t (*follow_bytes_fn)(int64_t n, int64_t n_threads);

/* Calls the export of c with n elements, and compares. */
static void expect_followed(deft_capture *c, follow_fn fn, int64_t n)
{
    static float x[500], y[500], want[500];
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i % 7) - 3;
    deft_tensor *in[1] = { rig_vector(&r, n, x) }, *out;
    OK(&r, deft_capture_call(c, in, 1, &out, 1));
    rig_read(&r, out, want, n);
    cr_assert_eq(fn(n, x, y, workspace, NULL), 0);
    cr_assert(memcmp(y, want, (size_t)n * sizeof *y) == 0, "%d elements", (int)n);
}

Test(export, extents_of_which_c_code_makes_a_difference_are_bounds)
{
    const deft_export_extent n = { "n", 0, 0 };
    const deft_export_options o = { .extents = &n, .n_extents = 1, .as_c = true };
    void *fn_at, *bytes_at;
    follow_fn fn;
    deft_capture *c = captured_follow(FAR_AWAY, 10);
    fn_at = load(c, o, "f", &bytes_at);
    memcpy(&fn, &fn_at, sizeof fn);
    cr_assert(file_has(".h", "an extent, at least 4, at most 100"));
    cr_assert_eq(fn(3, NULL, NULL, workspace, NULL), 1);
    cr_assert_eq(fn(101, NULL, NULL, workspace, NULL), 1);
    expect_followed(c, fn, 4);
    expect_followed(c, fn, 100);
    deft_capture_destroy(&c);
}

Test(export, extents_that_c_code_copies_and_means_follow)
{
    const deft_export_extent n = { "n", 0, 0 };
    const deft_export_options o = { .extents = &n, .n_extents = 1 };
    void *fn_at, *bytes_at;
    follow_fn fn;
    deft_capture *c = captured_follow(EXTENTS, 10);
    fn_at = load(c, o, "f", &bytes_at);
    memcpy(&fn, &fn_at, sizeof fn);
    cr_assert(file_has(".h", "an extent, at least 0\n"));
    for (int64_t k = 1; k < 500; k += 83) expect_followed(c, fn, k);
    deft_capture_destroy(&c);
}

static int n_runs;

static deft_status counted(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = deft_add(in[0], deft_uniform(cx, &rng, deft_shape_get(in[0]), DEFT_F32, 0, 1));
    deft_assign(state, deft_add(state, out[0]));
    n_runs++;
    return DEFT_OK;
}

/* Trials run the function. They draw nothing, assign nothing, and make no recording. */
Test(export, trials_leave_no_trace)
{
    const deft_export_extent n = { "n", 0, 0 };
    float before[10], after[10];
    deft_capture_stats stats;
    rng = (deft_rng){ .seed = 5 };
    state = rig_range(&r, 10, 1);
    deft_tensor *in[1] = { rig_range(&r, 10, 1) }, *out;
    deft_capture *c = deft_capture_create(r.cx, counted, NULL);
    OK(&r, deft_capture_call(c, in, 1, &out, 1));
    rig_read(&r, state, before, 10);
    const uint64_t next = rng.next;
    OK(&r, deft_export(c, path, DEFT_EXPORT(.extents = &n, .n_extents = 1, .as_c = true)));
    rig_read(&r, state, after, 10);
    cr_assert_gt(n_runs, 3);
    cr_assert_arr_eq(before, after, sizeof before);
    cr_assert_eq(rng.next, next);
    OK(&r, deft_capture_call(c, in, 1, &out, 1));
    deft_capture_stats_read(c, &stats, sizeof stats);
    cr_assert_eq(stats.recordings, 1);
    cr_assert_eq(stats.replayed, 1);
    deft_capture_destroy(&c);
}

/* ---- mistakes ---- */

static deft_status middle(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_median(in[0], 0, false);
    return DEFT_OK;
}

static deft_status shortened(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_neg(deft_slice(in[0], DEFT_R(1, DEFT_END)));
    return DEFT_OK;
}

static void expect_mistake(deft_capture *c, const char *at, deft_export_options o, deft_status st,
                           const char *part)
{
    struct stat s;
    char name[128];
    o.size = sizeof o;
    cr_assert_eq(deft_export(c, at, &o), st, "%s", deft_message(r.cx));
    cr_assert(strstr(deft_message(r.cx), part), "\"%s\" has no \"%s\"", deft_message(r.cx), part);
    snprintf(name, sizeof name, "%s.h", path);
    cr_assert_neq(stat(name, &s), 0, "a header was left behind");
    deft_clear(r.cx);
}

Test(export, mistakes_are_named)
{
    const deft_export_extent first = { "n", 0, 0 }, third = { "n", 0, 2 };
    deft_export_options o = { 0 };
    deft_tensor *in[1] = { rig_range(&r, 10, 0) }, *out;
    deft_capture *c = deft_capture_create(r.cx, middle, NULL), *d;
    expect_mistake(c, path, o, DEFT_E_STATE, "no recording that can be replayed; call it first");
    OK(&r, deft_capture_call(c, in, 1, &out, 1));
    o = (deft_export_options){ .extents = &first, .n_extents = 1 };
    expect_mistake(c, path, o, DEFT_E_ARG, "of gather at test_export.c");
    o = (deft_export_options){ 0 };
    expect_mistake(c, "", o, DEFT_E_ARG, "path is empty");
    state = rig_range(&r, 10, 1);
    d = deft_capture_create(r.cx, decay, NULL);
    OK(&r, deft_capture_set_f(d, "keep", 0.5));
    OK(&r, deft_capture_call(d, in, 1, &out, 1));
    expect_mistake(d, "/nowhere/f", o, DEFT_E_IO, "/nowhere/f");
    o.name = "a-b";
    expect_mistake(d, path, o, DEFT_E_ARG, "'a-b' is no name for a function");
    o = (deft_export_options){ .levels = "x86-64,pentium" };
    expect_mistake(d, path, o, DEFT_E_ARG, "'x86-64,pentium' must be some of");
    o = (deft_export_options){ .extents = &third, .n_extents = 1 };
    expect_mistake(d, path, o, DEFT_E_ARG, "has no axis 2");
    cr_assert_eq(deft_export(NULL, path, NULL), DEFT_E_ARG);
    deft_capture_destroy(&d);
    d = deft_capture_create(r.cx, shortened, NULL);
    OK(&r, deft_capture_call(d, in, 1, &out, 1));
    o = (deft_export_options){ .extents = &first, .n_extents = 1 };
    expect_mistake(d, path, o, DEFT_E_ARG, "is a slice of axis 0, whose extent is open");
    deft_capture_destroy(&c);
    deft_capture_destroy(&d);
}
