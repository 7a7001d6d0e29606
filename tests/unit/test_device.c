/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts and tensors with devices, on GPUs that are none (tests/cuda/far): what an address of one
 * may not meet ends the program there, so that each case here is also a proof that nothing was read
 * where it does not live. Suite "far" runs other tests on those GPUs.
 * Why this file is long: one subject, deft/device.h, with a case for each way that a value goes.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/far/far.h"
#include "support/fail_mem.h"
#include "ops/dtype.h"
#include "support/harness.h"

#define GPU0 DEFT_CUDA(0)
#define GPU1 DEFT_CUDA(1)
#define S DEFT_SHAPE

static far_controls *far;

/* The plug-in that deft opens is the one of the first folder. */
static void set_up(void)
{
    char path[4096];
    const char *const dirs = getenv("DEFT_PLUGIN_DIR");
    cr_assert(dirs);
    snprintf(path, sizeof path, "%.*s/deft-cuda.so", (int)strcspn(dirs, ":"), dirs);
    void *const so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert(so, "%s", dlerror());
    far_controls_fn get = NULL;
    void *const symbol = dlsym(so, FAR_CONTROLS);
    memcpy(&get, &symbol, sizeof get);
    far = get();
}

TestSuite(device, .init = set_up);

static void open_on(rig *r, deft_device where)
{
    const deft_runtime_options o = {
        .size = sizeof o, .n_threads = 1, .tier = DEFT_TIER_INTERPRET, .log = "why,error,plugin"
    };
    const deft_ctx_options c = { .size = sizeof c, .device = where };
    rig_open(r, &o, &c);
}

static deft_device where_is(rig *r, deft_tensor *t)
{
    deft_device d = -7;
    OK(r, deft_device_of(t, &d));
    return d;
}

static deft_tensor *row(rig *r, size_t n, const float *v)
{
    return deft_from(r->cx, S((int64_t)n), DEFT_F32, v, n * sizeof *v);
}
#define ROW(r, ...)                                                                                \
    row((r), sizeof((float[]){ __VA_ARGS__ }) / sizeof(float), (const float[]){ __VA_ARGS__ })

static bool says(const rig *r, const char *text)
{
    return strstr(deft_message(r->cx), text) != NULL;
}

static int times(const char *text, const char *part)
{
    int n = 0;
    while ((text = strstr(text, part)) != NULL) {
        n++;
        text++;
    }
    return n;
}

/* ---- which there are ---- */

Test(device, counted_and_described)
{
    rig r;
    char text[256];
    open_on(&r, DEFT_CPU);
    cr_assert_eq(deft_gpu_count(r.rt, text, sizeof text), 2u);
    cr_assert_str_empty(text);
    OK(&r, deft_device_describe(r.rt, GPU1, text, sizeof text));
    cr_assert_str_eq(text, "cuda:1 (far)");
    OK(&r, deft_device_describe(r.rt, DEFT_CPU, text, sizeof text));
    cr_assert(strstr(text, "cpu: 1 threads, interpreter"), "%s", text);
    cr_assert_eq(deft_device_describe(r.rt, DEFT_CUDA(5), text, sizeof text), DEFT_E_BACKEND);
    cr_assert_str_eq(text, "cuda:5: far: there are 2 GPUs");
    cr_assert_eq(deft_device_describe(r.rt, DEFT_CUDA(16), text, 9), DEFT_E_ARG);
    cr_assert_str_eq(text, "device 1");
    cr_assert_eq(deft_device_describe(r.rt, -1, NULL, 0), DEFT_E_ARG);
    far->n_gpus = 0;
    cr_assert_eq(deft_gpu_count(r.rt, text, sizeof text), 0u);
    cr_assert_str_eq(text, "far: no GPU, as asked");
    cr_assert_eq(deft_gpu_count(NULL, text, sizeof text), 0u);
    rig_close(&r);
}

static bool waits_for_code(deft_tier tier, uint32_t n_settles)
{
    deft_runtime *rt = NULL;
    const deft_runtime_options o = { .size = sizeof o, .n_threads = 1, .tier = tier };
    cr_assert_eq(deft_runtime_create(&o, &rt), DEFT_OK);
    cr_assert_eq(deft_device_describe(rt, GPU1, NULL, 0), DEFT_OK);
    deft_runtime_settle(rt);
    cr_assert_eq(far->n_settles, n_settles);
    deft_runtime_destroy(&rt);
    return far->waits;
}

/* But in AUTO, runs wait for all of their code. */
Test(device, code_made_beside_runs)
{
    unsetenv("DEFT_TIER");
    cr_assert_not(waits_for_code(DEFT_TIER_AUTO, 1));
    cr_assert(waits_for_code(DEFT_TIER_FULL, 2));
    cr_assert(waits_for_code(DEFT_TIER_INTERPRET, 3));
    setenv("DEFT_TIER", "sync", 1);
    cr_assert(waits_for_code(DEFT_TIER_AUTO, 4));
}

Test(device, without_a_plug_in)
{
    rig r;
    char text[512];
    setenv("DEFT_PLUGIN_DIR", "/nowhere", 1);
    open_on(&r, DEFT_CPU);
    cr_assert_eq(deft_gpu_count(r.rt, text, sizeof text), 0u);
    cr_assert(strstr(text, "no plug-in for GPUs: "), "%s", text);
    cr_assert_eq(deft_device_describe(r.rt, GPU0, text, sizeof text), DEFT_E_BACKEND);
    cr_assert(strstr(text, "cuda:0: no plug-in for GPUs: "), "%s", text);
    deft_tensor *const x = ROW(&r, 1, 2);
    cr_assert_null(deft_to(x, GPU0));
    cr_assert_eq(deft_wait(r.cx), DEFT_E_BACKEND);
    cr_assert(says(&r, "no plug-in for GPUs"), "%s", deft_message(r.cx));
    RIG_EXPECT(&r, x, 1, 2);
    rig_close(&r);
}

static deft_status make(rig *r, deft_device where, int allow, void *stream, deft_ctx **out)
{
    const deft_ctx_options o = {
        .size = sizeof o, .device = where, .allow_cpu = allow, .stream = stream
    };
    r->log[0] = '\0';
    return deft_ctx_create(r->rt, &o, out);
}

Test(device, contexts_go_where_they_are_told)
{
    rig r;
    deft_ctx *cx;
    int mine;
    open_on(&r, DEFT_CPU);
    cr_assert_eq(make(&r, DEFT_CUDA(4), 0, NULL, &cx), DEFT_E_BACKEND);
    cr_assert_null(cx);
    cr_assert_eq(times(r.log, "error: context: cuda:4: far: there are 2 GPUs\n"), 1, "%s", r.log);
    cr_assert_eq(make(&r, DEFT_CUDA(99), 1, NULL, &cx), DEFT_E_ARG);
    cr_assert_eq(make(&r, DEFT_CPU, 0, &mine, &cx), DEFT_E_ARG);
    cr_assert(strstr(r.log, "a stream is for the context of a GPU"), "%s", r.log);

    cr_assert_eq(make(&r, DEFT_CUDA(4), 1, &mine, &cx), DEFT_OK);
    cr_assert_eq(times(r.log, "a context computes on the CPU: cuda:4"), 1, "%s", r.log);
    deft_device d = -7;
    cr_assert_eq(deft_device_of(deft_ones(cx, S(1), DEFT_F32), &d), DEFT_OK);
    cr_assert_eq(d, DEFT_CPU);
    deft_ctx_destroy(&cx);

    cr_assert_eq(make(&r, GPU1, 1, &mine, &cx), DEFT_OK);
    cr_assert_eq(far->theirs, &mine);
    cr_assert_eq(deft_stream(cx, GPU1), &mine);
    cr_assert_not_null(deft_stream(cx, GPU0));
    cr_assert_null(far->theirs, "the caller's is for the context's own device");
    cr_assert_null(deft_stream(cx, DEFT_CPU));
    cr_assert_eq(deft_error(cx), DEFT_OK);
    cr_assert_null(deft_stream(cx, DEFT_CUDA(7)));
    cr_assert_eq(deft_wait(cx), DEFT_E_BACKEND);
    deft_ctx_destroy(&cx);
    rig_close(&r);
}

Test(device, the_variable_is_the_default)
{
    static const struct {
        const char *text;
        deft_status st;
        deft_device where;
    } cases[] = {
        { "", DEFT_OK, DEFT_CPU },    { "cpu", DEFT_OK, DEFT_CPU },    { "cuda", DEFT_OK, GPU0 },
        { "cuda:0", DEFT_OK, GPU0 },  { "cuda:1", DEFT_OK, GPU1 },     { "cuda:", DEFT_E_ARG, 0 },
        { "cuda:1x", DEFT_E_ARG, 0 }, { "cuda:-1", DEFT_E_ARG, 0 },    { "cuda:16", DEFT_E_ARG, 0 },
        { "rocm", DEFT_E_ARG, 0 },    { "cuda:9", DEFT_E_BACKEND, 0 },
    };
    rig r;
    open_on(&r, DEFT_CPU);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        deft_ctx *cx;
        deft_device d = -7;
        setenv("DEFT_DEVICE", cases[i].text, 1);
        cr_assert_eq(deft_ctx_create(r.rt, NULL, &cx), cases[i].st, "%s", cases[i].text);
        if (!cx) continue;
        cr_assert_eq(deft_device_of(deft_ones(cx, S(1), DEFT_F32), &d), DEFT_OK);
        cr_assert_eq(d, cases[i].where, "%s", cases[i].text);
        deft_ctx_destroy(&cx);
    }
    deft_ctx *cx;
    deft_device d = -7;
    setenv("DEFT_DEVICE", "cuda:1", 1);
    cr_assert_eq(make(&r, GPU0, 0, NULL, &cx), DEFT_OK);
    cr_assert_eq(deft_device_of(deft_ones(cx, S(1), DEFT_F32), &d), DEFT_OK);
    cr_assert_eq(d, GPU0);
    deft_ctx_destroy(&cx);
    rig_close(&r);
}

/* ---- to and fro ---- */

/* By way of every device: the same bytes. */
static void round_trip(rig *r, deft_dtype dtype, deft_shape shape, const void *data, size_t bytes)
{
    static const deft_device way[] = { GPU0, GPU0, GPU1, DEFT_CPU, DEFT_CPU, GPU1 };
    unsigned char got[64];
    deft_tensor *t = deft_from(r->cx, shape, dtype, data, bytes);
    for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
        t = deft_to(t, way[i]);
        cr_assert(t, "%s", deft_message(r->cx));
        cr_assert_eq(where_is(r, t), way[i]);
        cr_assert_eq(deft_rank(t), shape.rank);
        memset(got, 0xEE, sizeof got);
        OK(r, deft_read(t, dtype, got, bytes));
        cr_assert_arr_eq(got, data, bytes);
    }
}

Test(device, every_dtype_and_shape_goes_round)
{
    static const unsigned char bytes[64] = { 1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 1 };
    rig r;
    open_on(&r, DEFT_CPU);
    for (int t = 0; t < DF_N_RECORDED; t++) {
        const size_t size = deft_dtype_size((deft_dtype)t);
        round_trip(&r, (deft_dtype)t, S(), bytes, size);
        round_trip(&r, (deft_dtype)t, S(0), bytes, 0);
        round_trip(&r, (deft_dtype)t, S(3, 0, 2), bytes, 0);
        round_trip(&r, (deft_dtype)t, S(2, 3), bytes, 6 * size);
    }
    rig_close(&r);
}

Test(device, on_the_same_device_nothing_is_copied)
{
    rig r;
    open_on(&r, GPU0);
    deft_tensor *const x = ROW(&r, 1, 2, 3);
    const uint32_t calls = far->n_puts + far->n_copies + far->n_buffers;
    deft_tensor *const y = deft_to(x, GPU0);
    cr_assert_eq(far->n_puts + far->n_copies + far->n_buffers, calls);
    deft_assign_f(x, 7); /* a tensor of its own */
    RIG_EXPECT(&r, y, 1, 2, 3);
    RIG_EXPECT(&r, x, 7, 7, 7);
    rig_close(&r);
}

Test(device, views_pending_and_numbers)
{
    rig r;
    open_on(&r, DEFT_CPU);
    deft_tensor *const x = deft_reshape(ROW(&r, 0, 1, 2, 3, 4, 5), S(2, 3));
    deft_tensor *const v = deft_slice(deft_t(x), DEFT_RS(2, DEFT_END, -2));
    deft_tensor *const g = deft_to(v, GPU0);
    cr_assert(g, "%s", deft_message(r.cx));
    cr_assert_eq(where_is(&r, g), GPU0);
    RIG_EXPECT(&r, g, 2, 5, 0, 3);
    deft_tensor *const sum = deft_sum(deft_mul(g, g), DEFT_ALL_AXES, 0);
    cr_assert_eq(where_is(&r, sum), GPU0, "where it would be computed");
    deft_tensor *const back = deft_to(sum, DEFT_CPU);
    cr_assert_eq(where_is(&r, back), DEFT_CPU);
    cr_assert_eq(where_is(&r, sum), GPU0, "where it was computed");
    cr_assert_eq(rig_item(&r, back), 38);
    cr_assert_null(deft_to(deft_num(r.cx, 3), GPU0));
    cr_assert_eq(deft_wait(r.cx), DEFT_E_ARG);
    cr_assert(says(&r, "a bare number"), "%s", deft_message(r.cx));
    cr_assert_null(deft_to(NULL, GPU0));
    cr_assert_null(deft_to(x, 99));
    cr_assert_eq(deft_wait(r.cx), DEFT_E_ARG);
    deft_device d;
    cr_assert_eq(deft_device_of(NULL, &d), DEFT_E_ARG);
    cr_assert_eq(deft_device_of(x, NULL), DEFT_E_ARG);
    rig_close(&r);
}

/* ---- where work runs ---- */

Test(device, work_goes_to_the_operand_that_is_on_a_gpu)
{
    rig r;
    char text[4096];
    open_on(&r, DEFT_CPU);
    deft_tensor *const x = deft_keep(deft_to(ROW(&r, 1, 2), GPU1));
    deft_tensor *const w = deft_keep(ROW(&r, 10, 20)), *const z = deft_keep(deft_to(w, GPU0));
    (void)deft_explain(r.cx, text, sizeof text);
    for (int i = 0; i < 3; i++) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const y = deft_add(deft_mul(w, x), z);
        cr_assert_eq(where_is(&r, y), GPU1);
        RIG_EXPECT(&r, y, 20, 60);
        cr_assert_eq(where_is(&r, y), GPU1);
        OK(&r, deft_scope_end(s));
    }
    cr_assert_eq(far->n_peers, 3u);
    (void)deft_explain(r.cx, text, sizeof text);
    cr_assert_eq(times(text, "copied for a run"), 1, "once for a program: %s", text);
    cr_assert(strstr(text, "2 inputs of 16 bytes; wanted cuda:1, found the first on cpu"), "%s",
              text);
    cr_assert_eq(where_is(&r, deft_add(w, w)), DEFT_CPU);
    rig_close(&r);
}

/* The same records, with operands that move: another plan each, and never a wrong one. */
Test(device, a_program_follows_its_operands)
{
    rig r;
    open_on(&r, DEFT_CPU);
    static const deft_device turn[] = { GPU0, GPU1, DEFT_CPU, GPU1, GPU0, GPU0, DEFT_CPU };
    const uint64_t before = rig_stats(&r).plans_built;
    for (int i = 0; i < 7; i++) {
        deft_tensor *const x = deft_keep(deft_to(ROW(&r, 1, 2, (float)i), turn[i]));
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const y = deft_add(deft_mul(x, x), x);
        RIG_EXPECT(&r, y, 2, 6, (float)(i * i + i));
        cr_assert_eq(where_is(&r, y), turn[i]);
        OK(&r, deft_scope_end(s));
        deft_tensor *t = x;
        deft_drop(&t);
    }
    cr_assert_eq(rig_stats(&r).plans_built - before, 3u);
    rig_close(&r);
}

Test(device, all_reads)
{
    rig r;
    char text[128];
    open_on(&r, GPU0);
    deft_tensor *const x = ROW(&r, 1, -2.5f, 3);
    cr_assert_eq(where_is(&r, x), GPU0);
    RIG_EXPECT(&r, x, 1, -2.5f, 3);
    int32_t i32[3];
    OK(&r, deft_read(x, DEFT_I32, i32, sizeof i32));
    cr_assert(i32[0] == 1 && i32[1] == -2 && i32[2] == 3);
    OK(&r, deft_format(x, text, sizeof text, NULL));
    cr_assert_str_eq(text, "f32[3] [1, -2.5, 3]");
    OK(&r, deft_format(deft_exp(deft_slice(x, DEFT_AT(0))), text, sizeof text, NULL));
    cr_assert_str_eq(text, "f32[] 2.7182817");
    int64_t i64 = 0;
    OK(&r, deft_item_i64(deft_slice(x, DEFT_AT(2)), &i64));
    cr_assert_eq(i64, 3);
    deft_mapped m;
    OK(&r, deft_map(x, &m));
    cr_assert_eq(m.bytes, 12u);
    cr_assert_eq(((const float *)m.data)[1], -2.5f);
    deft_unmap(&m);
    deft_tensor *const bad[] = { deft_log(x) };
    cr_assert_eq(deft_nan_check(bad, 1), DEFT_E_NAN);
    cr_assert(says(&r, "makes NaN in 1 of 3"), "%s", deft_message(r.cx));
    bool b[2];
    deft_tensor *const mask = deft_from(r.cx, S(2), DEFT_BOOL, (uint8_t[]){ 0, 200 }, 2);
    OK(&r, deft_read(mask, DEFT_BOOL, b, 2));
    cr_assert(!b[0] && b[1]);
    cr_assert_eq(rig_item(&r, deft_sum(deft_cast(mask, DEFT_F32), DEFT_ALL_AXES, 0)), 1);
    rig_close(&r);
}

Test(device, a_device_address_is_lent)
{
    rig r;
    open_on(&r, GPU1);
    deft_tensor *const x = deft_keep(deft_mul_f(ROW(&r, 1, 2, 3), 2));
    deft_mapped m;
    deft_device where;
    OK(&r, deft_map_device(x, &m, &where));
    cr_assert_eq(where, GPU1);
    cr_assert_eq(m.bytes, 12u);
    OK(&r, deft_wait(r.cx));
    const float *const at = far->host_of(m.data);
    cr_assert(at[0] == 2 && at[1] == 4 && at[2] == 6, "waited for");
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(x, deft_add_f(x, 1)); /* not in place: it is lent */
    OK(&r, deft_step_end(s));
    OK(&r, deft_wait(r.cx));
    cr_assert_eq(at[0], 2);
    deft_unmap(&m);
    RIG_EXPECT(&r, x, 3, 5, 7);
    deft_tensor *const here = deft_to(x, DEFT_CPU);
    OK(&r, deft_map_device(here, &m, &where));
    cr_assert_eq(where, DEFT_CPU);
    cr_assert_eq(((const float *)m.data)[2], 7);
    deft_unmap(&m);
    cr_assert_eq(deft_map_device(x, &m, NULL), DEFT_E_ARG);
    rig_close(&r);
}

/* Exported memory stays where it is, and lives on after its context and runtime. */
Test(device, dlpack)
{
    rig r;
    deft_mapped m;
    deft_device where;
    float a[3] = { 1, 2, 3 };
    struct DLManagedTensorVersioned *first, *second;
    open_on(&r, GPU1);
    deft_tensor *const x = deft_mul(ROW(&r, 1, 2, 3), 2);
    OK(&r, deft_to_dlpack(x, DEFT_DLPACK_NO_COPY, &first));
    OK(&r, deft_to_dlpack(x, 0, &second));
    deft_dlpack_versioned *const v = (void *)first;
    cr_assert(v->tensor.device_type == 2 && v->tensor.device_id == 1 && v->flags == 1);
    OK(&r, deft_map_device(x, &m, &where));
    cr_assert_eq(v->tensor.data, m.data);
    deft_unmap(&m);
    deft_tensor *const y = deft_from_dlpack(r.cx, first, 0);
    cr_assert_eq(where_is(&r, y), GPU1);
    RIG_EXPECT(&r, deft_add(y, 1), 3, 5, 7);
    deft_tensor *const back = deft_wrap(r.cx, S(3), DEFT_F32, a, sizeof a, (const int64_t[]){ -1 });
    RIG_EXPECT(&r, deft_sub(y, back), -1, 2, 5);
    rig_close(&r);
    ((deft_dlpack_versioned *)(void *)second)->deleter(second);
}

Test(device, memory_is_counted_and_given_back)
{
    rig r;
    deft_device_memory m;
    open_on(&r, DEFT_CPU);
    OK(&r, deft_device_memory_read(r.rt, GPU1, &m, sizeof m));
    cr_assert_eq(m.requests, 0u);
    deft_tensor *const x = deft_to(ROW(&r, 1, 2, 3, 4), GPU1);
    cr_assert(x);
    OK(&r, deft_device_memory_read(r.rt, GPU1, &m, sizeof m));
    cr_assert(m.live_bytes == 16 && m.peak_bytes == 16 && m.requests == 1);
    OK(&r, deft_device_memory_read(r.rt, GPU0, &m, sizeof m));
    cr_assert_eq(m.live_bytes, 0u);
    OK(&r, deft_device_memory_read(r.rt, DEFT_CPU, &m, sizeof m));
    cr_assert(m.live_bytes >= 16);
    cr_assert_eq(deft_device_memory_read(r.rt, 99, &m, sizeof m), DEFT_E_ARG);
    deft_runtime_trim(r.rt);
    cr_assert_eq(far->n_trims, 1u);
    rig_close(&r);
}

/* ---- memory of the caller's ---- */

Test(device, host_memory_in_and_out)
{
    rig r;
    float in[4] = { 1, 2, 3, 4 }, out[4] = { 0 }, gaps[8] = { 0 };
    open_on(&r, GPU0);
    deft_tensor *const x = deft_keep(deft_wrap(r.cx, S(4), DEFT_F32, in, sizeof in, NULL));
    deft_tensor *const y = deft_keep(deft_wrap_mut(r.cx, S(4), DEFT_F32, out, sizeof out, NULL));
    deft_tensor *const z =
        deft_keep(deft_wrap_mut(r.cx, S(4), DEFT_F32, gaps, sizeof gaps, (int64_t[]){ 2 }));
    cr_assert_eq(where_is(&r, x), DEFT_CPU);
    for (int i = 0; i < 3; i++) {
        in[0] = (float)i;
        const deft_scope s = deft_step_begin(r.cx);
        deft_assign(y, deft_add(x, y));
        deft_assign(z, deft_mul_f(x, 10));
        OK(&r, deft_step_end(s));
        cr_assert(gaps[0] == 10.0f * (float)i && gaps[2] == 20 && gaps[6] == 40 && gaps[1] == 0);
    }
    cr_assert(out[0] == 3 && out[1] == 6 && out[3] == 12, "%g %g %g", out[0], out[1], out[3]);
    RIG_EXPECT(&r, y, 3, 6, 9, 12);
    cr_assert_eq(far->n_runs, 3u);
    cr_assert_eq(rig_stats(&r).plans_built, 1u);
    rig_close(&r);
}

/* Read in the middle, it is computed before it may be written. */
Test(device, host_memory_is_written_at_the_end_of_a_step)
{
    rig r;
    float out[3] = { 7, 8, 9 };
    open_on(&r, GPU0);
    deft_tensor *const y = deft_keep(deft_wrap_mut(r.cx, S(3), DEFT_F32, out, sizeof out, NULL));
    deft_tensor *const x = deft_keep(ROW(&r, 1, 2, 3));
    for (int fails = 1; fails >= 0; fails--) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_assign(y, deft_mul_f(x, 2));
        RIG_EXPECT(&r, y, 2, 4, 6);
        cr_assert_eq(out[0], 7);
        if (fails) {
            far->fail_buffer = 0;
            far->status = DEFT_E_MEMORY;
            deft_step_abort(s);
            RIG_EXPECT(&r, y, 7, 8, 9);
        } else {
            OK(&r, deft_step_end(s));
        }
    }
    cr_assert(out[0] == 2 && out[2] == 6);
    rig_close(&r);
}

/* A cut that a budget forces inside the step computes what is written at its end. */
Test(device, memory_gets_what_an_earlier_cut_computed)
{
    rig r;
    float out[3] = { 7, 8, 9 };
    open_on(&r, GPU0);
    float *const b = far->alloc(1, 12), *const hb = far->host_of(b);
    deft_tensor *const y = deft_keep(deft_wrap_mut(r.cx, S(3), DEFT_F32, out, sizeof out, NULL));
    deft_tensor *const z = deft_keep(deft_wrap_device_mut(r.cx, GPU1, S(3), DEFT_F32, b, 12, NULL));
    deft_tensor *const x = deft_keep(ROW(&r, 1, 2, 3));
    const deft_step_options o = { .size = sizeof o, .max_nodes = 8 };
    const deft_scope s = deft_step_begin_with(r.cx, &o);
    deft_assign(y, deft_mul_f(x, 2));
    deft_assign(z, deft_mul_f(x, 3));
    deft_tensor *t = x;
    for (int i = 0; i < 12; i++) t = deft_add_f(t, 1);
    cr_assert_geq(far->n_runs, 1u);
    cr_assert_eq(out[0], 7);
    deft_assign(x, t);
    OK(&r, deft_step_end(s));
    OK(&r, deft_wait(r.cx));
    cr_assert(out[0] == 2 && out[2] == 6 && hb[0] == 3 && hb[2] == 9);
    RIG_EXPECT(&r, y, 2, 4, 6);
    RIG_EXPECT(&r, z, 3, 6, 9);
    RIG_EXPECT(&r, x, 13, 14, 15);
    rig_close(&r);
    far->release(b);
}

Test(device, an_index_outside_changes_nothing)
{
    rig r;
    float out[2] = { 7, 8 };
    open_on(&r, GPU0);
    deft_tensor *const table = deft_keep(ROW(&r, 1, 2, 3));
    deft_tensor *const y = deft_keep(deft_wrap_mut(r.cx, S(2), DEFT_F32, out, sizeof out, NULL));
    const int32_t good[2] = { 2, 0 }, bad[2] = { 0, 9 };
    for (int i = 0; i < 2; i++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *const at = deft_from(r.cx, S(2), DEFT_I32, i ? good : bad, 8);
        deft_assign(y, deft_take(table, at, 0));
        deft_assign(table, deft_mul_f(table, 2));
        const deft_status st = deft_step_end(s);
        cr_assert_eq(st, i ? DEFT_OK : DEFT_E_RANGE);
        cr_assert(i || says(&r, "9"), "%s", deft_message(r.cx));
        cr_assert(out[0] == (i ? 3 : 7) && out[1] == (i ? 1 : 8));
        RIG_EXPECT(&r, table, i ? 2 : 1, i ? 4 : 2, i ? 6 : 3);
    }
    rig_close(&r);
}

Test(device, device_memory_in_and_out)
{
    rig r;
    open_on(&r, DEFT_CPU);
    float *const a = far->alloc(0, 16), *const b = far->alloc(1, 32);
    float *const ha = far->host_of(a), *const hb = far->host_of(b);
    for (int i = 0; i < 4; i++) ha[i] = (float)i;
    for (int i = 0; i < 8; i++) hb[i] = -1;
    deft_tensor *const x = deft_keep(deft_wrap_device_mut(r.cx, GPU0, S(4), DEFT_F32, a, 16, NULL));
    deft_tensor *const y =
        deft_keep(deft_wrap_device_mut(r.cx, GPU1, S(4), DEFT_F32, b, 32, (int64_t[]){ 2 }));
    cr_assert(x && y, "%s", deft_message(r.cx));
    cr_assert_eq(where_is(&r, x), GPU0);
    RIG_EXPECT(&r, x, 0, 1, 2, 3);
    RIG_EXPECT(&r, y, -1, -1, -1, -1);
    for (int i = 0; i < 2; i++) { /* x decides: the first that is recorded */
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *const next = deft_add_f(x, 1);
        deft_assign(y, deft_mul(x, next));
        deft_assign(x, next);
        OK(&r, deft_step_end(s));
    }
    OK(&r, deft_wait(r.cx));
    cr_assert(ha[0] == 2 && ha[3] == 5, "%g", ha[0]);
    cr_assert(hb[0] == 2 && hb[2] == 6 && hb[6] == 20 && hb[1] == -1, "%g %g", hb[0], hb[6]);
    RIG_EXPECT(&r, y, 2, 6, 12, 20);
    cr_assert_null(deft_wrap_device(r.cx, GPU1, S(4), DEFT_F32, a, 16, NULL));
    cr_assert_eq(deft_wait(r.cx), DEFT_E_ARG);
    cr_assert(says(&r, "wrap_device: far: "), "%s", deft_message(r.cx));
    cr_assert_null(deft_wrap_device(r.cx, GPU0, S(2), DEFT_F32, (char *)a + 2, 8, NULL));
    cr_assert_eq(deft_wait(r.cx), DEFT_E_ARG);
    cr_assert(says(&r, "2 bytes past a multiple of an element's 4"), "%s", deft_message(r.cx));
    cr_assert(deft_wrap_device(r.cx, GPU1, S(0), DEFT_F32, NULL, 0, NULL));
    _Alignas(8) char shifted[9] = { 0 }; /* on the host elements may lie anywhere */
    const float two[] = { 3, 5 };
    memcpy(shifted + 1, two, sizeof two);
    deft_tensor *const odd = deft_wrap(r.cx, S(2), DEFT_F32, shifted + 1, 8, NULL);
    RIG_EXPECT(&r, deft_add(odd, deft_to(deft_from(r.cx, S(2), DEFT_F32, two, 8), GPU0)), 6, 10);
    float here = 4;
    RIG_EXPECT(&r, deft_wrap_device(r.cx, DEFT_CPU, S(1), DEFT_F32, &here, 4, NULL), 4);
    rig_close(&r);
    far->release(a);
    far->release(b);
}

/* In a context of one GPU, memory of another; and what a cut in the middle of the step computed. */
Test(device, device_memory_elsewhere)
{
    rig r;
    open_on(&r, GPU0);
    float *const b = far->alloc(1, 12), *const hb = far->host_of(b);
    for (int i = 0; i < 3; i++) hb[i] = (float)i;
    deft_tensor *const y = deft_keep(deft_wrap_device_mut(r.cx, GPU1, S(3), DEFT_F32, b, 12, NULL));
    deft_tensor *const x = deft_keep(ROW(&r, 5, 6, 7));
    for (int i = 0; i < 2; i++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_assign(y, deft_add(y, x));
        if (i) RIG_EXPECT(&r, y, 10, 13, 16);
        cr_assert_eq(where_is(&r, deft_neg(y)), GPU0);
        OK(&r, deft_wait(r.cx));
        cr_assert_eq(hb[0], i ? 5 : 0);
        OK(&r, deft_step_end(s));
    }
    OK(&r, deft_wait(r.cx));
    cr_assert(hb[0] == 10 && hb[1] == 13 && hb[2] == 16, "%g", hb[0]);
    RIG_EXPECT(&r, y, 10, 13, 16);
    deft_tensor *const copy = deft_keep(deft_to(y, GPU1));
    OK(&r, deft_wait(r.cx));
    hb[0] = 99; /* the caller's, and no longer the tensor's */
    RIG_EXPECT(&r, copy, 10, 13, 16);
    rig_close(&r);
    far->release(b);
}

/* ---- steps ---- */

static deft_status train(rig *r, deft_tensor *w, deft_tensor *m, deft_tensor *out)
{
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *const x = ROW(r, 1, 2, 3);
    deft_assign(m, deft_add(deft_mul_f(m, 0.5), deft_mul(w, x)));
    deft_assign(w, deft_sub(w, deft_mul_f(m, 0.25)));
    deft_assign(out, deft_sum(deft_mul(w, m), DEFT_ALL_AXES, 0));
    return deft_step_end(s);
}

typedef struct trained {
    rig r;
    deft_tensor *w, *m, *out;
    float memory;
} trained;

static void begin_training(trained *t)
{
    open_on(&t->r, GPU0);
    t->memory = -1;
    t->w = deft_keep(ROW(&t->r, 1, 2, 3));
    t->m = deft_keep(ROW(&t->r, 0, 0, 0));
    t->out = deft_keep(deft_wrap_mut(t->r.cx, S(), DEFT_F32, &t->memory, 4, NULL));
}

Test(device, steps_replace_in_place)
{
    trained t;
    begin_training(&t);
    for (int i = 0; i < 5; i++) OK(&t.r, train(&t.r, t.w, t.m, t.out));
    cr_assert_geq(rig_stats(&t.r).donated, 8u);
    cr_assert_leq(rig_stats(&t.r).plans_built, 2u);
    float w[3] = { 1, 2, 3 }, m[3] = { 0 }, out = 0;
    for (int i = 0; i < 5; i++) {
        out = 0;
        for (int k = 0; k < 3; k++) {
            m[k] = m[k] * 0.5f + w[k] * (float)(k + 1);
            w[k] -= m[k] * 0.25f;
            out += w[k] * m[k];
        }
    }
    RIG_EXPECT(&t.r, t.w, w[0], w[1], w[2]);
    cr_assert_float_eq(t.memory, out, 1e-5f * fabsf(out));
    rig_close(&t.r);
}

/* The n-th call of the device fails, for every n until none does. */
Test(device, a_step_that_fails_changes_nothing)
{
    for (uint32_t n = 1, done = 0; !done; n++) {
        trained t;
        begin_training(&t);
        OK(&t.r, train(&t.r, t.w, t.m, t.out));
        const float memory = t.memory;
        float w[3], again[3];
        rig_read(&t.r, t.w, w, 3);
        far->n_buffers = 0;
        far->fail_buffer = n;
        const deft_status st = train(&t.r, t.w, t.m, t.out);
        far->fail_buffer = 0;
        rig_read(&t.r, t.w, again, 3);
        if (st == DEFT_OK) {
            done = 1;
            cr_assert_gt(n, 2u);
        } else {
            cr_assert_eq(st, DEFT_E_MEMORY);
            cr_assert(says(&t.r, "as asked"), "%s", deft_message(t.r.cx));
            cr_assert_arr_eq(w, again, sizeof w);
            cr_assert_eq(t.memory, memory);
            OK(&t.r, train(&t.r, t.w, t.m, t.out));
        }
        rig_close(&t.r);
    }
}

/* The n-th allocation of the host fails, those of the device among them; and all from there on. */
static void run_out_of_memory(bool for_good)
{
    for (size_t n = 1, done = 0; !done; n++) {
        fail_mem *f = fail_mem_create();
        const df_mem *const m = fail_mem_get(f);
        const deft_runtime_options o = { .size = sizeof o,
                                         .n_threads = 1,
                                         .tier = DEFT_TIER_INTERPRET,
                                         .resize = m->resize,
                                         .resize_user = m->user };
        const deft_ctx_options c = { .size = sizeof c, .device = GPU1 };
        float out[2][2] = { { 1, 2 }, { 3, 4 } };
        rig r;
        rig_open(&r, &o, &c);
        deft_tensor *to[2];
        for (int i = 0; i < 2; i++)
            to[i] = deft_keep(deft_wrap_mut(r.cx, S(2), DEFT_F32, out[i], 8, NULL));
        deft_tensor *const x = deft_keep(deft_to(ROW(&r, 5, 6), GPU0));
        cr_assert(x && to[0] && to[1]);
        const deft_scope s = deft_step_begin(r.cx);
        for (int i = 0; i < 2; i++) deft_assign(to[i], deft_add(to[i], x));
        deft_assign(x, deft_neg(x));
        fail_mem_at(f, n, for_good);
        const deft_status st = deft_step_end(s);
        done = fail_mem_count(f).failed == 0;
        fail_mem_at(f, 0, false);
        const bool ok = st == DEFT_OK; /* not all memory is needed */
        cr_assert(done ? ok : ok || st == DEFT_E_MEMORY, "%zu: %s", n, deft_message(r.cx));
        cr_assert(out[0][0] == (ok ? 6 : 1) && out[1][1] == (ok ? 10 : 4));
        RIG_EXPECT(&r, x, ok ? -5 : 5, ok ? -6 : 6);
        rig_close(&r);
        cr_assert_eq(fail_mem_count(f).live_blocks, 0u);
        cr_assert_eq(fail_mem_count(f).faults, 0u, "%s", fail_mem_fault(f));
        fail_mem_destroy(&f);
    }
}

Test(device, a_step_without_memory_changes_nothing)
{
    run_out_of_memory(false);
    run_out_of_memory(true);
}

/* Any call: the status comes out of this call or the next that waits, and all goes on. */
Test(device, a_gpu_that_fails_is_told)
{
    for (uint32_t n = 1, done = 0; !done; n++) {
        trained t;
        begin_training(&t);
        far->n_calls = 0;
        far->fail_call = n;
        const deft_status st = train(&t.r, t.w, t.m, t.out);
        const deft_status waited = deft_wait(t.r.cx);
        done = far->n_calls < n;
        cr_assert(done ? st == DEFT_OK : st == DEFT_E_BACKEND || waited == DEFT_E_BACKEND);
        cr_assert(done || says(&t.r, "as asked"), "%s", deft_message(t.r.cx));
        far->fail_call = 0;
        OK(&t.r, train(&t.r, t.w, t.m, t.out));
        rig_close(&t.r);
    }
}

Test(device, late_failures_come_out_of_what_waits)
{
    rig r;
    float v[3];
    open_on(&r, GPU0);
    deft_tensor *const x = deft_keep(ROW(&r, 1, 2, 3));
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(x, deft_mul_f(x, 2));
    far->fail_wait = far->n_waits + 1;
    OK(&r, deft_step_end(s));
    cr_assert_eq(deft_wait(r.cx), DEFT_E_BACKEND);
    cr_assert(says(&r, "far: a launch has failed, as asked, at "), "%s", deft_message(r.cx));
    OK(&r, deft_wait(r.cx));
    far->fail_wait = far->n_waits + 1;
    cr_assert_eq(deft_read(x, DEFT_F32, v, sizeof v), DEFT_E_BACKEND);
    far->fail_wait = far->n_waits + 1;
    cr_assert_eq(deft_format(x, NULL, 0, NULL), DEFT_E_BACKEND);
    deft_mapped m;
    far->fail_wait = far->n_waits + 1;
    cr_assert_eq(deft_map(x, &m), DEFT_E_BACKEND);
    RIG_EXPECT(&r, x, 2, 4, 6);
    far->fail_wait = far->n_waits + 1;
    rig_close(&r);
    cr_assert(strstr(r.log, "error: never collected: "), "%s", r.log);
}

Test(device, a_submitted_step_is_put_in)
{
    trained t;
    begin_training(&t);
    const deft_scope s = deft_step_begin(t.r.cx);
    deft_assign(t.w, deft_mul_f(t.w, 3));
    deft_assign(t.out, deft_sum(t.w, DEFT_ALL_AXES, 0));
    OK(&t.r, deft_step_submit(s));
    cr_assert_eq(far->n_runs, 1u);
    OK(&t.r, deft_wait(t.r.cx));
    cr_assert_eq(t.memory, 18);
    RIG_EXPECT(&t.r, t.w, 3, 6, 9);
    cr_assert_eq(rig_stats(&t.r).submitted, 0u);
    rig_close(&t.r);
}

Test(device, reads_inside_a_step_follow_its_policy)
{
    rig r;
    open_on(&r, DEFT_CPU);
    const deft_step_options o = { .size = sizeof o, .syncs = DEFT_SYNC_REFUSE };
    deft_tensor *const x = deft_keep(ROW(&r, 1, 2));
    deft_scope s = deft_step_begin_with(r.cx, &o);
    deft_tensor *const there = deft_to(x, GPU0); /* has its value: computes nothing */
    cr_assert(there, "%s", deft_message(r.cx));
    cr_assert_null(deft_to(deft_neg(x), GPU0));
    cr_assert_eq(deft_wait(r.cx), DEFT_E_STATE);
    cr_assert(says(&r, "(to cuda:0)"), "%s", deft_message(r.cx));
    deft_clear(r.cx); /* the step may end without it */
    deft_step_memory m;
    deft_assign(x, deft_mul(x, deft_exp(there)));
    const uint32_t runs = far->n_runs;
    OK(&r, deft_step_memory_read(s, &m, sizeof m));
    cr_assert_eq(far->n_runs, runs);
    cr_assert_geq(m.result_bytes, 8u);
    OK(&r, deft_step_end(s));
    cr_assert_eq(where_is(&r, x), GPU0);
    s = deft_step_begin(r.cx);
    deft_assign(x, deft_to(deft_sub(x, x), DEFT_CPU));
    OK(&r, deft_step_end(s));
    cr_assert_eq(where_is(&r, x), DEFT_CPU);
    RIG_EXPECT(&r, x, 0, 0);
    rig_close(&r);
}

/* ---- captures, loops, branches ---- */

typedef struct captured {
    deft_tensor *w;
    bool moves;
} captured;

static deft_status scale(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    captured *const c = user;
    (void)n_in;
    (void)n_out;
    deft_tensor *x = in[0];
    if (c->moves) x = deft_to(x, GPU0);
    out[0] = deft_add(deft_mul(x, c->w), deft_const_f(cx, 1));
    deft_assign(c->w, deft_neg(c->w));
    return DEFT_OK;
}

Test(device, captures_are_made_for_a_device)
{
    rig r;
    captured c = { 0 };
    deft_tensor *out = NULL;
    deft_capture_stats st;
    open_on(&r, DEFT_CPU);
    c.w = deft_keep(ROW(&r, 1, 2));
    deft_capture *f = deft_capture_create(r.cx, scale, &c);
    deft_tensor *const x = deft_keep(ROW(&r, 10, 10)), *const g = deft_keep(deft_to(x, GPU1));
    deft_tensor *in[1] = { x };
    for (int i = 0; i < 4; i++) { /* w moves with the first call on g */
        if (i == 2) in[0] = g;
        OK(&r, deft_capture_call(f, in, 1, &out, 1));
        const float sign = i % 2 ? -1 : 1;
        RIG_EXPECT(&r, out, 1 + 10 * sign, 1 + 20 * sign);
        cr_assert_eq(where_is(&r, out), i < 2 ? DEFT_CPU : GPU1);
        if (i == 2)
            cr_assert_str_eq(deft_capture_reason(f),
                             "what it reads lives on another device than it did");
    }
    deft_capture_stats_read(f, &st, sizeof st);
    cr_assert_eq(st.recordings, 2u);
    cr_assert_eq(st.replayed, 2u);
    c.moves = true;
    deft_capture_destroy(&f);
    f = deft_capture_create(r.cx, scale, &c);
    cr_assert_eq(deft_capture_call(f, in, 1, &out, 1), DEFT_E_STATE);
    cr_assert(says(&r, "to: inside a captured function"), "%s", deft_message(r.cx));
    deft_capture_destroy(&f);
    rig_close(&r);
}

static deft_status moves_inside(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                deft_tensor **out, size_t n_out, void *user)
{
    (void)cx;
    (void)n_in;
    (void)n_out;
    out[0] = user ? deft_to(in[0], GPU0) : deft_add_f(in[0], 1);
    return DEFT_OK;
}

Test(device, loops_and_vmap)
{
    rig r;
    deft_tensor *out = NULL;
    open_on(&r, GPU1);
    deft_tensor *const x = deft_keep(deft_reshape(ROW(&r, 1, 2, 3, 4), S(2, 2)));
    for (int moves = 0; moves < 2; moves++) {
        deft_tensor *const in[1] = { x };
        void *const user = moves ? &r : NULL;
        deft_vmap(r.cx, moves_inside, user, in, NULL, 1, &out, NULL, 1);
        if (moves) {
            cr_assert_null(out);
            cr_assert_eq(deft_wait(r.cx), DEFT_E_STATE);
            cr_assert(says(&r, "to: inside"), "%s", deft_message(r.cx));
        } else {
            RIG_EXPECT(&r, out, 2, 3, 4, 5);
        }
        deft_tensor *yes = deft_gt_f(deft_sum(x, DEFT_ALL_AXES, 0), 3);
        deft_cond(yes, moves_inside, moves_inside, user, in, 1, &out, 1);
        if (moves)
            cr_assert_eq(deft_wait(r.cx), DEFT_E_STATE);
        else
            RIG_EXPECT(&r, out, 2, 3, 4, 5);
    }
    deft_tensor *const g = rig_grad_of_sum(deft_mul(x, x), x);
    cr_assert_eq(where_is(&r, g), GPU1);
    RIG_EXPECT(&r, g, 2, 4, 6, 8);
    rig_close(&r);
}

/* ---- files ---- */

Test(device, files)
{
    rig r;
    char path[64], stored[96], name[128];
    snprintf(path, sizeof path, "/tmp/deft_device_%d", (int)getpid());
    snprintf(stored, sizeof stored, "%s_stored", path);
    open_on(&r, GPU0);
    float gaps[5] = { 1, 0, 2, 0, 3 };
    deft_tensor *const w = deft_wrap(r.cx, S(3), DEFT_F32, gaps, sizeof gaps, (int64_t[]){ 2 });
    deft_tensor *const list[3] = { deft_keep(ROW(&r, 1, 2, 3)), deft_keep(deft_to(w, GPU1)),
                                   deft_keep(deft_to(w, DEFT_CPU)) };
    const deft_named named[3] = { { "a", list[0] }, { "b", list[1] }, { "c", list[2] } };
    OK(&r, deft_save(r.cx, path, named, 3));
    for (int i = 0; i < 3; i++) deft_assign_f(list[i], 0);
    OK(&r, deft_eval(list, 3));
    deft_tensor *moved = deft_to(list[2], DEFT_CPU);
    deft_assign(list[2], moved);
    OK(&r, deft_load(r.cx, path, named, 3));
    static const deft_device want[3] = { GPU0, GPU0, DEFT_CPU };
    for (int i = 0; i < 3; i++) {
        RIG_EXPECT(&r, list[i], 1, 2, 3);
        cr_assert_eq(where_is(&r, list[i]), want[i], "a tensor stays where it lives");
    }
    OK(&r, deft_store_next(r.cx, stored));
    RIG_EXPECT(&r, deft_add(list[0], deft_mul(w, list[2])), 2, 6, 12);
    snprintf(name, sizeof name, "%s.safetensors", stored);
    deft_tensor *const in[3] = { deft_zeros(r.cx, S(3), DEFT_F32), deft_zeros(r.cx, S(3), DEFT_F32),
                                 deft_zeros(r.cx, S(3), DEFT_F32) };
    const deft_named inputs[3] = { { "in0", in[0] }, { "in1", in[1] }, { "in2", in[2] } };
    OK(&r, deft_load(r.cx, name, inputs, 3));
    for (int i = 0; i < 3; i++) RIG_EXPECT(&r, in[i], 1, 2, 3);
    remove(name);
    snprintf(name, sizeof name, "%s.trace", stored);
    remove(name);
    remove(path);
    rig_close(&r);
}
