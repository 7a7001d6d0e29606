/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-ins: kernels compiled and run, graphs, virtual memory, two GPUs.
 *
 *   test_programs LIBCUDA LIBNVRTC
 */
#include <stdio.h>
#include <string.h>

#include "jit_cuda/prelude_text.h"
#include "try.h"

/* ---- kernels ---- */

static const char kernels[] =
    "extern \"C\" __global__ void __launch_bounds__(64, 1) add(float *to, const float *a, int n,\n"
    "                                                          float by) {\n"
    "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < n) to[i] = a[i] + by;\n"
    "}\n"
    "#define TWICE(name, type) \\\n"
    "  extern \"C\" __global__ void name(type *p) { p[threadIdx.x] *= 2; }\n"
    "TWICE(twice_f, float)\n"
    "TWICE(twice_i, int)\n"
    "extern \"C\" __global__ void follow(int **p) { if (threadIdx.x == 0) **p = 77; }\n"
    "extern \"C\" __global__ void divide(int *p) { *p = 100 / *p; }\n"
    "extern \"C\" void __global__ hang(int n) { if (threadIdx.x < n) __syncthreads(); }\n";

static void kernels_run_late(void)
{
    df_cu_ptr p, q;
    df_cu_stream s;
    df_cu_fn add, twice, none;
    float host[100], *out, by = 0.5f;
    int n = 100, value = 0;
    char log[1024];
    start(STANDIN_LATE);
    const df_cu_module m = load(kernels, log, sizeof log);
    CHECK(strstr(log, "entry function 'add' for 'sm_90'") && strstr(log, "Used 32 registers"));
    CHECK(strstr(log, "entry function 'twice_i'"));
    CHECK(cu.module_fn(&add, m, "add") == 0 && cu.module_fn(&twice, m, "twice_f") == 0);
    CHECK(cu.module_fn(&none, m, "nothing") == 500);
    CHECK(cu.fn_attribute(&value, 0, add) == 0 && value == 64);
    CHECK(cu.stream_create(&s, 1) == 0 && cu.host_alloc((void **)&out, sizeof host, 0) == 0);
    CHECK(cu.mem_alloc(&p, sizeof host) == 0 && cu.mem_alloc(&q, sizeof host) == 0);
    for (int i = 0; i < 100; i++) host[i] = (float)i;
    CHECK(cu.copy_in(p, host, sizeof host, s) == 0);
    void *params[] = { &q, &p, &n, &by };
    CHECK(launch(add, 2, 64, s, params) == 0);
    by = 99; /* parameters were copied */
    CHECK(launch(twice, 1, 32, s, params) == 0);
    CHECK(cu.copy_out(out, q, sizeof host, s) == 0);
    CHECK(in.n_work() == 0);
    CHECK(cu.stream_wait(s) == 0);
    CHECK(out[0] == 1 && out[31] == 63 && out[32] == 32.5f && out[99] == 99.5f);
    CHECK(in.n_misuse() == 0);
}

/* An address that stands in memory, not among the parameters. */
static void kernels_follow_addresses(void)
{
    df_cu_ptr p, q, other;
    df_cu_ctx b;
    df_cu_fn f;
    int out = 0;
    start(STANDIN_RANDOM);
    df_cu_module m = load(kernels, NULL, 0);
    CHECK(cu.module_fn(&f, m, "follow") == 0);
    CHECK(cu.mem_alloc(&p, 8) == 0);
    CHECK(cu.mem_alloc(&q, 4) == 0);
    CHECK(cu.copy_in(p, &q, 8, NULL) == 0);
    CHECK(launch(f, 1, 32, NULL, (void *[]){ &p }) == 0);
    CHECK(cu.copy_out(&out, q, 4, NULL) == 0 && out == 77);
    CHECK(cu.ctx_retain(&b, 1) == 0 && cu.ctx_push(b) == 0);
    CHECK(cu.mem_alloc(&other, 4) == 0 && cu.ctx_pop(NULL) == 0);
    CHECK(cu.peer_enable(b, 0) == 0);
    CHECK(cu.copy_in(p, &other, 8, NULL) == 0);
    CHECK(launch(f, 1, 32, NULL, (void *[]){ &p }) == 0 && cu.stream_wait(NULL) == 0);
    CHECK(*(int *)in.peek(other, 4) == 77);
    in.unpeek();
    CHECK(cu.ctx_push(b) == 0);
    m = load(kernels, NULL, 0);
    CHECK(cu.module_fn(&f, m, "follow") == 0);
    CHECK(launch(f, 1, 32, NULL, (void *[]){ &p }) == 0);
    CHECK(cu.stream_wait(NULL) == 700 && misused("follow: touched what is no memory of gpu1"));
}

static void kernels_of_the_generator(void)
{
    static char text[sizeof prelude_text + 256];
    df_cu_ptr p;
    df_cu_fn f;
    struct {
        uint64_t w[2];
    } one;
    float out[2];
    start(STANDIN_RANDOM);
    snprintf(text, sizeof text,
             "%sextern \"C\" __global__ void __launch_bounds__(32, 1) k_main_n(const one<2> a) {\n"
             "  if (threadIdx.x == 0) ((f32 *)a.w[0])[1] = add_f32(f32_of((u32)a.w[1]), 1.0f);\n"
             "}\n",
             (const char *)prelude_text);
    const df_cu_module m = load(text, NULL, 0);
    CHECK(cu.module_fn(&f, m, "k_main_n") == 0);
    CHECK(cu.mem_alloc(&p, 8) == 0);
    one.w[0] = p;
    one.w[1] = 0x40000000; /* 2.0f */
    CHECK(launch(f, 1, 32, NULL, (void *[]){ &one }) == 0);
    CHECK(cu.copy_out(out, p, 8, NULL) == 0);
    CHECK(out[1] == 3.0f);
}

static void kernels_fail_late(void)
{
    df_cu_ptr p;
    df_cu_fn f, hang;
    int two = 2;
    start(STANDIN_LATE);
    df_cu_module m = load(kernels, NULL, 0);
    CHECK(cu.module_fn(&f, m, "twice_i") == 0);
    CHECK(cu.mem_alloc(&p, 4 * 32) == 0 && cu.set_8(p, 0, 4 * 32, NULL) == 0);
    p += 4096; /* over the end */
    CHECK(launch(f, 1, 32, NULL, (void *[]){ &p }) == 0);
    CHECK(cu.stream_wait(NULL) == 700 && misused("twice_i: touched what is no memory of gpu0"));
    CHECK(cu.stream_wait(NULL) == 700);
    start(STANDIN_LATE);
    m = load(kernels, NULL, 0);
    CHECK(cu.module_fn(&f, m, "twice_i") == 0 && cu.mem_alloc(&p, 256) == 0);
    p += 2;
    CHECK(launch(f, 1, 32, NULL, (void *[]){ &p }) == 0);
    CHECK(cu.stream_wait(NULL) == 716 && misused("twice_i: an access is not aligned"));
    start(STANDIN_LATE);
    m = load(kernels, NULL, 0);
    CHECK(cu.module_fn(&f, m, "divide") == 0 && cu.mem_alloc(&p, 4) == 0);
    CHECK(cu.set_32(p, 0, 1, NULL) == 0);
    CHECK(launch(f, 1, 32, NULL, (void *[]){ &p }) == 0);
    CHECK(cu.stream_wait(NULL) == 719 && misused("divide: an integer divided by 0"));
    start(STANDIN_LATE);
    m = load(kernels, NULL, 0);
    CHECK(cu.module_fn(&hang, m, "hang") == 0);
    CHECK(launch(hang, 1, 32, NULL, (void *[]){ &two }) == 0);
    CHECK(cu.stream_wait(NULL) == 719 && misused("a barrier that not all threads came to"));
}

static void misuse_of_kernels(void)
{
    df_cu_ptr p;
    df_cu_fn f;
    void *params[] = { &p, &p, &p, &p };
    start(STANDIN_LATE);
    const df_cu_module m = load(kernels, NULL, 0);
    CHECK(cu.module_fn(&f, m, "add") == 0 && cu.mem_alloc(&p, 256) == 0);
    CHECK(launch(f, 0, 32, NULL, params) == 1 && misused("0 x 1 x 1 blocks"));
    CHECK(launch(f, 1, 128, NULL, params) == 1 && misused("128 threads, of 64 at most"));
    CHECK(launch(f, 1, 32, NULL, NULL) == 1 && misused("array of parameters"));
    CHECK(launch(f, 1, 32, NULL, params) == 0);
    CHECK(cu.mem_free(p) == 0 && misused("m1 may still be used by a queued add"));
    start(STANDIN_LATE);
    const df_cu_module again = load(kernels, NULL, 0);
    CHECK(cu.module_fn(&f, m, "add") == 400 && misused("no handle of that kind"));
    CHECK(cu.module_fn(&f, again, "hang") == 0);
    int none = 0;
    CHECK(launch(f, 1, 32, NULL, (void *[]){ &none }) == 0);
    CHECK(cu.module_unload(again) == 0 && misused("M1 has hang in a queue"));
    CHECK(launch(f, 1, 32, NULL, params) == 400 && misused("kernel f1 was destroyed"));
}

/* What is static in a template is each program's own, and so is the table's entry. */
static void programs_are_apart(void)
{
    df_cu_ptr p;
    df_cu_fn f, g;
    int out[2] = { 0 }, by = 5;
    start(STANDIN_RANDOM);
    const df_cu_module a = load("template <int N> int *own() { static int n = N; return &n; }\n"
                                "extern \"C\" __global__ void k(int *p) {\n"
                                "  if (threadIdx.x == 0) *p = ++*own<7>();\n"
                                "}\n",
                                NULL, 0);
    const df_cu_module b = load("template <int N> int *own() { static int n = N; return &n; }\n"
                                "extern \"C\" __global__ void k(int *p, int by) {\n"
                                "  if (threadIdx.x == 0) *p = *own<7>() += by;\n"
                                "}\n",
                                NULL, 0);
    CHECK(cu.module_fn(&f, a, "k") == 0);
    CHECK(cu.module_fn(&g, b, "k") == 0);
    CHECK(cu.mem_alloc(&p, 8) == 0);
    CHECK(launch(f, 1, 32, NULL, (void *[]){ &p }) == 0);
    p += 4;
    CHECK(launch(g, 1, 32, NULL, (void *[]){ &p, &by }) == 0);
    CHECK(cu.copy_out(out, p - 4, 8, NULL) == 0);
    CHECK(out[0] == 8 && out[1] == 12);
    CHECK(in.n_misuse() == 0);
}

static void compilers_words(void)
{
    char log[4096] = "";
    start(STANDIN_LATE);
    CHECK(!load("extern \"C\" __global__ void k(int *p) { *p = nothing; }\n", log, sizeof log));
    CHECK(strstr(log, "error") && strstr(log, "nothing"));
    rtc.fail(2, 6);
    CHECK(load(kernels, log, sizeof log));
    CHECK(!load(kernels, log, sizeof log) && strstr(log, "as asked"));
}

/* ---- graphs ---- */

static df_cu_memset_node fill_node(df_cu_ptr p, unsigned value)
{
    return (
        df_cu_memset_node){ .dst = p, .value = value, .element_bytes = 4, .width = 1, .height = 1 };
}

static df_cu_memcpy3d copy_node(void *to, df_cu_ptr from, size_t n)
{
    return (df_cu_memcpy3d){ .src_kind = 2,
                             .src_device = from,
                             .dst_kind = 1,
                             .dst_host = to,
                             .width = n,
                             .height = 1,
                             .depth = 1 };
}

/* p is filled with 1 and then, when in_order, with 2. Returns what is there. */
static unsigned two_fills(uint32_t seed, bool in_order)
{
    df_cu_ptr p;
    df_cu_graph g;
    df_cu_node a, b;
    df_cu_exec x;
    unsigned out = 0;
    const df_cu_ctx c = start(STANDIN_LATE);
    in.when(STANDIN_LATE, seed);
    CHECK(cu.mem_alloc(&p, 4) == 0);
    CHECK(cu.graph_create(&g, 0) == 0);
    df_cu_memset_node one = fill_node(p, 1), two = fill_node(p, 2);
    CHECK(cu.graph_memset(&a, g, NULL, 0, &one, c) == 0);
    CHECK(cu.graph_memset(&b, g, &a, in_order, &two, c) == 0);
    CHECK(cu.graph_instantiate(&x, g, 0) == 0 && cu.graph_destroy(g) == 0);
    CHECK(cu.exec_launch(x, NULL) == 0);
    CHECK(cu.copy_out(&out, p, 4, NULL) == 0);
    CHECK(cu.exec_destroy(x) == 0 && in.n_misuse() == 0);
    return out;
}

static void graph_order(void)
{
    unsigned seen = 0;
    for (uint32_t seed = 1; seed <= 16; seed++) {
        CHECK(two_fills(seed, true) == 2);
        seen |= two_fills(seed, false);
    }
    CHECK(seen == 3);
}

static void exec_waits_for_itself(void)
{
    df_cu_ptr p;
    df_cu_stream a, b;
    df_cu_graph g;
    df_cu_node n;
    df_cu_exec x;
    const df_cu_ctx c = start(STANDIN_LATE);
    CHECK(cu.stream_create(&a, 1) == 0);
    CHECK(cu.stream_create(&b, 1) == 0);
    CHECK(cu.mem_alloc(&p, 4) == 0);
    CHECK(cu.graph_create(&g, 0) == 0);
    const df_cu_memset_node one = fill_node(p, 1);
    CHECK(cu.graph_memset(&n, g, NULL, 0, &one, c) == 0);
    CHECK(cu.graph_instantiate(&x, g, 0) == 0);
    CHECK(cu.exec_launch(x, a) == 0 && cu.exec_launch(x, b) == 0);
    CHECK(in.n_work() == 0);
    CHECK(cu.stream_wait(b) == 0 && in.n_work() == 2);
    CHECK(cu.exec_launch(x, a) == 0 && in.n_misuse() == 0);
    CHECK(cu.exec_destroy(x) == 0 && misused("x1 is in a queue"));
}

static void graph_kernels(void)
{
    df_cu_ptr p;
    df_cu_graph g, child;
    df_cu_node fill, twice, out, inner;
    df_cu_exec x;
    df_cu_fn f;
    int *host;
    const df_cu_ctx c = start(STANDIN_RANDOM);
    const df_cu_module m = load(kernels, NULL, 0);
    CHECK(cu.module_fn(&f, m, "twice_i") == 0);
    CHECK(cu.mem_alloc(&p, 4 * 64) == 0);
    CHECK(cu.host_alloc((void **)&host, 4 * 64, 0) == 0);
    CHECK(cu.graph_create(&g, 0) == 0);
    CHECK(cu.graph_create(&child, 0) == 0);
    df_cu_memset_node set = fill_node(p, 3);
    set.width = 64;
    CHECK(cu.graph_memset(&inner, child, NULL, 0, &set, c) == 0);
    CHECK(cu.graph_child(&fill, g, NULL, 0, child) == 0);
    df_cu_kernel_node k = { f, 1, 1, 1, 32, 1, 1, 0, (void *[]){ &p }, NULL };
    CHECK(cu.graph_kernel(&twice, g, &fill, 1, &k) == 0);
    df_cu_memcpy3d copy = copy_node(host, p, 4 * 64);
    CHECK(cu.graph_memcpy(&out, g, (df_cu_node[]){ twice, fill }, 2, &copy, c) == 0);
    CHECK(cu.graph_instantiate(&x, g, 0) == 0);
    CHECK(cu.exec_launch(x, NULL) == 0 && cu.stream_wait(NULL) == 0);
    CHECK(host[0] == 6 && host[31] == 6 && host[32] == 3);

    df_cu_ptr later = p + 4 * 32;
    k.params = (void *[]){ &later };
    CHECK(cu.exec_kernel(x, twice, &k) == 0);
    set.value = 5;
    df_cu_graph other;
    CHECK(cu.graph_create(&other, 0) == 0);
    CHECK(cu.graph_memset(&inner, other, NULL, 0, &set, c) == 0);
    CHECK(cu.exec_child(x, fill, other) == 0);
    CHECK(cu.exec_launch(x, NULL) == 0);
    later = 0; /* parameters were copied */
    set.value = 9;
    CHECK(cu.stream_wait(NULL) == 0);
    CHECK(host[0] == 5 && host[32] == 10 && host[63] == 10);
    copy = copy_node(host + 1, p, 4);
    CHECK(cu.exec_memcpy(x, out, &copy, c) == 0);
    CHECK(cu.exec_launch(x, NULL) == 0 && cu.stream_wait(NULL) == 0);
    CHECK(host[1] == 5 && host[2] == 5);
    CHECK(in.n_misuse() == 0);

    CHECK(cu.exec_memset(x, out, &set, c) == 1 && misused("of another kind"));
    CHECK(cu.exec_kernel(x, inner, &k) == 400 && misused("is no node of x1"));
    CHECK(cu.graph_empty(&inner, g, &inner, 1) == 1 && misused("is a node of g3, not of g1"));
    CHECK(cu.graph_destroy(other) == 0);
    CHECK(cu.graph_empty(&inner, other, NULL, 0) == 400 && misused("graph g3 was destroyed"));
    CHECK(cu.exec_child(x, fill, g) == 910 && misused("is not like"));
    CHECK(cu.module_unload(m) == 0);
    CHECK(cu.exec_launch(x, NULL) == 400 && misused("kernel f1 was destroyed"));
    standin_alive l;
    in.leaks(&l);
    CHECK(l.graphs == 2 && l.execs == 1 && l.modules == 0);
}

static void captured(void)
{
    df_cu_ptr p;
    df_cu_stream s;
    df_cu_graph g;
    df_cu_exec x;
    int host[2] = { 1, 2 }, out[2] = { 0 };
    start(STANDIN_RANDOM);
    CHECK(cu.stream_create(&s, 1) == 0);
    CHECK(cu.mem_alloc(&p, 8) == 0);
    CHECK(cu.capture_begin(s, 0) == 0);
    CHECK(cu.copy_in(p, host, 8, s) == 0);
    CHECK(cu.set_32(p, 7, 1, s) == 0);
    CHECK(cu.copy_out(out, p, 8, s) == 0);
    CHECK(cu.mem_alloc(&p, 8) == 900 && misused("captured"));
    CHECK(cu.capture_end(s, &g) == 0);
    CHECK(cu.graph_instantiate(&x, g, 0) == 0);
    CHECK(in.n_work() == 0);
    host[1] = 4; /* read at the launch */
    CHECK(cu.exec_launch(x, s) == 0 && cu.stream_wait(s) == 0);
    CHECK(out[0] == 7 && out[1] == 4);
    CHECK(cu.capture_begin(s, 0) == 0);
    CHECK(cu.stream_wait(s) == 900 && misused("s1 is being captured"));
    CHECK(cu.capture_end(s, &g) == 901);
}

/* ---- virtual memory ---- */

static void virtual_memory(void)
{
    enum { MIB2 = 2 << 20 };
    const df_cu_alloc_prop prop = { .type = 1, .location = { 1, 0 } };
    const df_cu_access both = { { 1, 0 }, 3 };
    df_cu_ptr p;
    df_cu_handle h[2];
    size_t granule = 0, is_free, total;
    unsigned out[2];
    start(STANDIN_RANDOM);
    CHECK(cu.va_granularity(&granule, &prop, 0) == 0 && granule == MIB2);
    CHECK(cu.va_reserve(&p, 3 * MIB2, 0, 0, 0) == 0 && p % MIB2 == 0);
    CHECK(cu.set_8(p, 0, 8, NULL) == 1 && misused("unmapped has fewer"));
    CHECK(cu.va_create(&h[0], MIB2, &prop, 0) == 0 && cu.va_create(&h[1], MIB2, &prop, 0) == 0);
    CHECK(cu.va_map(p, MIB2, 0, h[0], 0) == 0 && cu.va_map(p + MIB2, MIB2, 0, h[1], 0) == 0);
    CHECK(cu.set_8(p, 0, 8, NULL) == 1 && misused("has fewer"));
    CHECK(cu.va_access(p, 2 * MIB2, &both, 1) == 0);
    CHECK(cu.set_32(p + MIB2 - 4, 6, 2, NULL) == 0); /* over the seam */
    CHECK(cu.copy_out(out, p + MIB2 - 4, 8, NULL) == 0 && out[0] == 6 && out[1] == 6);
    CHECK(cu.set_32(p + 2 * MIB2 - 4, 6, 2, NULL) == 1 && misused("has fewer"));
    CHECK(cu.va_unmap(p, MIB2) == 0);
    CHECK(cu.va_map(p + 2 * MIB2, MIB2, 0, h[0], 0) == 0);
    CHECK(cu.va_access(p + 2 * MIB2, MIB2, &both, 1) == 0);
    CHECK(cu.copy_out(out, p + 3 * MIB2 - 4, 4, NULL) == 0 && out[0] == 6); /* kept */
    CHECK(cu.va_free(p, 3 * MIB2) == 1 && misused("still mapped"));
    CHECK(cu.va_unmap(p + MIB2, MIB2 + 1) == 1 && misused("not what was mapped"));
    CHECK(cu.va_release(h[0]) == 0 && cu.va_release(h[1]) == 0);
    CHECK(cu.mem_info(&is_free, &total) == 0 && total - is_free == 2 * MIB2);
    CHECK(cu.set_8(p + MIB2, 0, 8, NULL) == 0);
    in.when(STANDIN_LATE, 1);
    CHECK(cu.set_8(p + MIB2, 0, 8, NULL) == 0);
    CHECK(cu.va_unmap(p + MIB2, 2 * MIB2) == 0 && misused("v2+0 may still be used"));
    CHECK(cu.mem_info(&is_free, &total) == 0 && total == is_free);
    CHECK(cu.va_free(p, 3 * MIB2) == 0);
    CHECK(cu.va_create(&h[0], total + MIB2, &prop, 0) == DF_CU_OUT_OF_MEMORY);
    standin_alive l;
    in.leaks(&l);
    CHECK(l.reserved == 0 && l.handles == 0 && l.mapped == 0 && l.bytes == 0);
    CHECK(in.n_misuse() == 0);
}

static void peers(void)
{
    df_cu_ptr p, q;
    df_cu_stream s;
    df_cu_ctx b;
    unsigned out = 0;
    int can = 0;
    const df_cu_ctx a = start(STANDIN_RANDOM);
    CHECK(cu.mem_alloc(&p, 16) == 0 && cu.set_32(p, 5, 4, NULL) == 0);
    CHECK(cu.stream_wait(NULL) == 0);
    CHECK(cu.ctx_retain(&b, 1) == 0 && cu.ctx_push(b) == 0);
    CHECK(cu.mem_alloc(&q, 16) == 0);
    CHECK(cu.stream_create(&s, 1) == 0);
    CHECK(cu.copy(q, p, 16, s) == 1 && misused("memory of gpu0, not of gpu1"));
    CHECK(cu.copy_peer(q, a, p, b, 16, s) == 201 && misused("not of that context"));
    CHECK(cu.copy_peer(q, b, p, a, 16, s) == 0);
    CHECK(cu.copy_out(&out, q, 4, s) == 0 && out == 5);
    CHECK(cu.peer_can(&can, 1, 0) == 0 && can);
    CHECK(cu.peer_enable(a, 0) == 0 && cu.peer_enable(a, 0) == 704);
    CHECK(cu.copy(q, p, 16, s) == 0 && cu.stream_wait(s) == 0);
    CHECK(in.n_misuse() == 0);
}

int main(int argc, char **argv)
{
    if (argc < 3 || !try_open(argv[1], argv[2])) return 1;
    kernels_run_late();
    kernels_follow_addresses();
    kernels_of_the_generator();
    kernels_fail_late();
    misuse_of_kernels();
    programs_are_apart();
    compilers_words();
    graph_order();
    exec_waits_for_itself();
    graph_kernels();
    captured();
    virtual_memory();
    peers();
    in.reset();
    if (n_faults) printf("%ld faults\n", n_faults);
    return n_faults != 0;
}
