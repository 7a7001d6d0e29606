/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU through gpu.h, with a stand-in for its driver: opening, queues, copies, errors that come
 * late.
 *
 *   test_gpu LIBCUDA-STANDIN
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_world.h"
#include "jit_cuda/driver/gpu_internal.h"

enum { PIECE = 4096, NOT_SUPPORTED = 801, ILLEGAL_ADDRESS = 700 };

static const df_gpu_options small = { .piece = PIECE };

/* ---- opening ---- */

static deft_status open_driver(df_diag *d, const char *path)
{
    df_driver *dr = NULL;
    const deft_status st = df_driver_open(d, &df_mem_system, path, &dr);
    df_driver_close(&dr);
    return st;
}

static void drivers(void)
{
    df_diag d = { 0 };
    const deft_status bad = DEFT_E_BACKEND;
    CHECK_SAYS(open_driver(&d, "/nowhere/libcuda.so.1"), &d, bad, "no driver|/nowhere");
    CHECK_SAYS(open_driver(&d, "libm.so.6"), &d, bad, "no cuInit|11.4");
    in.reset();
    in.fail("cuInit", 1, DF_CU_STUB);
    CHECK_SAYS(open_driver(&d, standin_path), &d, bad, "stub that toolkits ship|34");
    in.fail("cuInit", 1, DF_CU_NO_DEVICE);
    CHECK_SAYS(open_driver(&d, standin_path), &d, bad, "finds no GPU|100");
    in.fail("cuInit", 1, 999);
    CHECK_SAYS(open_driver(&d, standin_path), &d, bad, "cuInit: CUDA_ERROR_UNKNOWN (999): unk");
    in.fail("cuInit", 1, 12345);
    CHECK_SAYS(open_driver(&d, standin_path), &d, bad, "cuInit: error (12345)");
    in.set_version(11030);
    CHECK_SAYS(open_driver(&d, standin_path), &d, bad, "CUDA 11.3|11.4");
    in.set_version(11040);
    CHECK(setenv("DEFT_CUDA_DRIVER", standin_path, 1) == 0);
    CHECK(open_driver(&d, NULL) == DEFT_OK);
    CHECK(setenv("DEFT_CUDA_DRIVER", "/nowhere/else", 1) == 0);
    CHECK_SAYS(open_driver(&d, NULL), &d, bad, "/nowhere/else");
    CHECK(open_driver(&d, standin_path) == DEFT_OK);
    unsetenv("DEFT_CUDA_DRIVER");
    in.reset();
}

static void gpus(void)
{
    const standin_gpu two[] = { { .major = 7, .minor = 0 },
                                { .major = 7, .minor = 5, .n_sms = 9 } };
    df_diag d = { 0 };
    df_driver *dr = NULL;
    df_gpu *g = NULL;
    in.reset();
    in.set_gpus(2, two);
    CHECK(df_driver_open(&d, &df_mem_system, standin_path, &dr) == DEFT_OK);
    CHECK(dr->n_devices == 2 && dr->version == 12040);
    CHECK_SAYS(df_gpu_open(&d, dr, NULL, 2, NULL, &g), &d, DEFT_E_ARG, "no GPU 2|2 are here");
    CHECK_SAYS(df_gpu_open(&d, dr, NULL, -1, NULL, &g), &d, DEFT_E_ARG, "no GPU -1");
    CHECK_SAYS(df_gpu_open(&d, dr, NULL, 0, NULL, &g), &d, DEFT_E_BACKEND,
               "Stand-in GPU 0|capability 7.0|7.5");
    CHECK(!g && df_gpu_open(&d, dr, NULL, 1, NULL, &g) == DEFT_OK);
    const df_gpu_properties *const f = df_gpu_facts_of(g);
    CHECK(f->arch == 75 && f->n_sms == 9 && f->bytes == 1u << 30 && f->l2_bytes == 4 << 20);
    CHECK(f->threads_per_sm == 2048 && f->shared_per_block == 48 << 10);
    CHECK(f->shared_per_block_optin == 227 << 10 && f->shared_per_sm == 228 << 10);
    CHECK(f->has_va && f->has_graphs == (dr->exec_launch != NULL) &&
          strcmp(f->name, "Stand-in GPU 1") == 0);
    CHECK(df_gpu_driver(g) == dr);
    df_gpu_close(&g);
    df_gpu_close(&g);
    df_driver_close(&dr);
    standin_alive l;
    in.leaks(&l);
    CHECK(l.contexts == 0 && in.n_misuse() == 0);
}

/* ---- the order of calls ---- */

static void order_of_calls(void)
{
    static const char *const expected = "gpu0 cuMemAlloc_v2 m1 1024\n"
                                        "gpu0 cuEventCreate e1\n"
                                        "gpu0 cuEventCreate e2\n"
                                        "gpu0 cuEventCreate e3\n"
                                        "gpu0 cuEventCreate e4\n"
                                        "gpu0 cuMemHostAlloc h1 4194304\n"
                                        "gpu0 cuMemcpyHtoDAsync_v2 s1 m1+0 16 from h1+0\n"
                                        "gpu0 cuMemcpyHtoDAsync_v2 s1 m1+16 16 from h1+64\n"
                                        "gpu0 cuMemcpyDtoDAsync_v2 s1 m1+512 32 from m1+0\n"
                                        "gpu0 cuMemcpyDtoHAsync_v2 s1 32 from m1+512 to h1+0\n"
                                        "gpu0 cuStreamSynchronize s1\n"
                                        "again\n"
                                        "gpu0 cuStreamSynchronize s1\n"
                                        "gpu0 cuMemFreeHost h1+0\n"
                                        "gpu0 cuStreamDestroy_v2 s1\n"
                                        "gpu0 cuMemFree_v2 m1+0\n"
                                        "gpu0 cuEventDestroy_v2 e1\n"
                                        "gpu0 cuEventDestroy_v2 e2\n"
                                        "gpu0 cuEventDestroy_v2 e3\n"
                                        "gpu0 cuEventDestroy_v2 e4\n"
                                        "cuDevicePrimaryCtxRelease_v2 0\n";
    gpu_world w;
    df_diag d = { 0 };
    char text[4096], source[32], back[32] = "";
    world_open(&w, STANDIN_LATE, 1, NULL);
    fill(source, 32, 1);
    in.record(true, false);
    df_buffer *b = make(w.q[0], 1000);
    CHECK(df_queue_put(w.q[0], &d, at(b), source, 16) == DEFT_OK);
    CHECK(df_queue_put(w.q[0], &d, at(b) + 16, source + 16, 16) == DEFT_OK);
    CHECK(df_queue_copy(w.q[0], &d, at(b) + 512, at(b), 32) == DEFT_OK);
    CHECK(df_queue_get(w.q[0], &d, back, at(b) + 512, 32) == DEFT_OK);
    CHECK(is_filled(back, 32, 1));
    size_t n = (size_t)snprintf(text, sizeof text, "%s", in.recorded());
    n += (size_t)snprintf(text + n, sizeof text - n, "again\n");
    in.clear_record();
    df_buffer_drop(&b);
    b = make(w.q[0], 1024); /* without the driver */
    df_buffer_drop(&b);
    df_queue_destroy(&w.q[0]);
    df_gpu_close(&w.g[0]);
    (void)snprintf(text + n, sizeof text - n, "%s", in.recorded());
    if (!CHECK(strcmp(text, expected) == 0)) printf("%s", text);
    in.record(false, false);
    world_close(&w);
}

/* ---- copies ---- */

static void one_copy(gpu_world *w, size_t n, char *source, char *back, uint32_t seed)
{
    df_diag d = { 0 };
    df_buffer *b = make(w->q[0], (int64_t)n), *c = make(w->q[0], (int64_t)n);
    fill(source, n, seed);
    memset(back, 1, n);
    CHECK(df_queue_put(w->q[0], &d, at(b), source, n) == DEFT_OK);
    memset(source, 2, n); /* may change */
    CHECK(df_queue_copy(w->q[0], &d, at(c), at(b), n) == DEFT_OK);
    CHECK(df_queue_get(w->q[0], &d, back, at(c), n) == DEFT_OK);
    if (!CHECK(is_filled(back, n, seed))) printf("of %zu bytes\n", n);
    df_buffer_drop(&b);
    df_buffer_drop(&c);
}

static void copies(standin_mode mode)
{
    static const size_t sizes[] = { 0,
                                    1,
                                    63,
                                    64,
                                    65,
                                    PIECE - 1,
                                    PIECE,
                                    PIECE + 1,
                                    2 * PIECE,
                                    4 * PIECE - 1,
                                    4 * PIECE,
                                    4 * PIECE + 1,
                                    9 * PIECE + 5 };
    gpu_world w;
    df_diag d = { 0 };
    char *const source = malloc(10 * PIECE), *const back = malloc(10 * PIECE);
    void *pinned = NULL;
    world_open(&w, mode, 7, &small);
    for (size_t i = 0; i < DF_LEN(sizes); i++) one_copy(&w, sizes[i], source, back, (uint32_t)i);

    CHECK(df_gpu_enter(w.g[0], &d) == DEFT_OK);
    CHECK(w.dr->host_alloc(&pinned, 10 * PIECE, 0) == 0);
    df_gpu_leave(w.g[0]);
    const long before = in.count("cuMemcpyHtoDAsync_v2") + in.count("cuMemcpyDtoHAsync_v2");
    one_copy(&w, 5 * PIECE, pinned, (char *)pinned + 5 * PIECE, 3);
    CHECK(in.count("cuMemcpyHtoDAsync_v2") + in.count("cuMemcpyDtoHAsync_v2") == before + 2);
    one_copy(&w, 9 * PIECE, pinned, back, 4);
    one_copy(&w, 9 * PIECE, source, pinned, 5);
    CHECK(df_gpu_enter(w.g[0], &d) == DEFT_OK);
    CHECK(w.dr->host_free(pinned) == 0);
    df_gpu_leave(w.g[0]);

    world_close(&w);
    free(source);
    free(back);
}

/* The GPU takes one piece while the next is filled: nobody waits for all of them. */
static void usual_pieces(void)
{
    enum { ALL = (9 << 20) + 5 };
    gpu_world w;
    df_diag d = { 0 };
    char *const source = malloc(ALL), *const back = malloc(ALL);
    world_open(&w, STANDIN_RANDOM, 1, NULL);
    df_buffer *b = make(w.q[0], ALL);
    fill(source, ALL, 1);
    CHECK(df_queue_put(w.q[0], &d, at(b), source, ALL) == DEFT_OK);
    CHECK(in.count("cuMemcpyHtoDAsync_v2") == 10 && in.count("cuStreamSynchronize") == 0);
    CHECK(in.count("cuEventRecord") == 9 && in.count("cuEventSynchronize") == 6);
    CHECK(df_queue_get(w.q[0], &d, back, at(b), ALL) == DEFT_OK && is_filled(back, ALL, 1));
    CHECK(in.count("cuMemcpyDtoHAsync_v2") == 10 && in.count("cuStreamSynchronize") == 1);
    /* All is done, and known to be. */
    for (int i = 0; i < 4; i++) CHECK(df_queue_put(w.q[0], &d, at(b), source, 1 << 20) == DEFT_OK);
    CHECK(in.count("cuEventRecord") == 9 + 10 + 3 && in.count("cuEventSynchronize") == 6 + 10);
    df_buffer_drop(&b);
    world_close(&w);
    free(source);
    free(back);
}

/* A get that failed may still write into the ring. */
static void failed_get(void)
{
    gpu_world w;
    df_diag d = { 0 };
    char back[4] = "";
    world_open(&w, STANDIN_LATE, 1, NULL);
    df_buffer *b = make(w.q[0], 64), *c = make(w.q[0], 64);
    CHECK(df_queue_put(w.q[0], &d, at(b), "old", 4) == DEFT_OK);
    CHECK(df_queue_wait(w.q[0], &d) == DEFT_OK);
    in.fail("cuStreamSynchronize", 1, NOT_SUPPORTED);
    CHECK_SAYS(df_queue_get(w.q[0], &d, back, at(b), 4), &d, DEFT_E_BACKEND, "cuStreamSynchronize");
    CHECK(back[0] == 0);
    CHECK(df_queue_put(w.q[0], &d, at(c), "new", 4) == DEFT_OK);
    CHECK(df_queue_get(w.q[0], &d, back, at(c), 4) == DEFT_OK && strcmp(back, "new") == 0);
    df_buffer_drop(&b);
    df_buffer_drop(&c);
    world_close(&w);
}

/* Many puts of all sizes, some gets between them, against memory of our own. */
static void ring(uint32_t seed)
{
    enum { ALL = 3 * PIECE };
    gpu_world w;
    df_diag d = { 0 };
    uint32_t s = seed;
    char *const is = calloc(1, ALL), *const back = malloc(ALL), *const some = malloc(ALL);
    world_open(&w, STANDIN_RANDOM, seed, &small);
    df_buffer *b = make(w.q[0], ALL);
    CHECK(df_queue_put(w.q[0], &d, at(b), is, ALL) == DEFT_OK);
    for (int i = 0; i < 1000; i++) {
        const uint32_t most = draw(&s, 4) ? 400 : draw(&s, 2) ? PIECE + 100 : 3 * PIECE;
        const size_t n = draw(&s, most), to = draw(&s, (uint32_t)(ALL - n));
        if (draw(&s, 20) == 0) {
            CHECK(df_queue_get(w.q[0], &d, some, at(b) + to, n) == DEFT_OK);
            CHECK(memcmp(some, is + to, n) == 0);
            continue;
        }
        fill(some, n, s);
        memcpy(is + to, some, n);
        CHECK(df_queue_put(w.q[0], &d, at(b) + to, some, n) == DEFT_OK);
        memset(some, 0, n);
    }
    CHECK(df_queue_get(w.q[0], &d, back, at(b), ALL) == DEFT_OK);
    CHECK(memcmp(is, back, ALL) == 0);
    df_buffer_drop(&b);
    world_close(&w);
    free(is);
    free(back);
    free(some);
}

/* ---- queues ---- */

static void after(bool across)
{
    gpu_world w;
    df_diag d = { 0 };
    df_queue *other = NULL;
    unsigned *out = NULL;
    world_open(&w, STANDIN_LATE, 1, NULL);
    CHECK(df_queue_create(&d, w.g[0], NULL, &other) == DEFT_OK);
    df_queue *const q = across ? w.q[1] : other;
    df_buffer *b = make(w.q[0], 16), *c = make(q, 16);
    const char words[4][4] = { "one", "two", "tri", "for" };
    for (int i = 0; i < 4; i++) {
        /* Without the order the copy would come before the put: late work is done when asked for.
         */
        CHECK(df_queue_put(w.q[0], &d, at(b), words[i], 4) == DEFT_OK);
        CHECK(df_queue_copy_peer(q, &d, at(c), w.q[0], at(b), 4) == DEFT_OK);
        CHECK(df_queue_put(w.q[0], &d, at(b), "bad", 4) == DEFT_OK);
        char back[4] = "";
        CHECK(df_queue_wait(i & 1 ? w.q[0] : q, &d) == DEFT_OK);
        CHECK(df_queue_get(q, &d, back, at(c), 4) == DEFT_OK);
        CHECK(memcmp(back, words[i], 4) == 0);
    }
    CHECK(in.count("cuCtxEnablePeerAccess") == (across ? 1 : 0));
    CHECK(df_queue_after(q, &d, q) == DEFT_OK);
    df_buffer_drop(&b);
    df_buffer_drop(&c);
    df_queue_destroy(&other);
    df_queue_destroy(&other);
    world_close(&w);
    (void)out;
}

static void no_peers(void)
{
    const standin_gpu two[] = { { .no_peers = true }, { .no_peers = true } };
    gpu_world w = { .mem = fail_mem_create() };
    df_diag d = { 0 };
    char back[4] = "";
    in.reset();
    in.set_gpus(2, two);
    if (!CHECK(world_try(&w, &d, NULL))) return;
    df_buffer *b = make(w.q[0], 16), *c = make(w.q[1], 16);
    CHECK(df_queue_put(w.q[0], &d, at(b), "abc", 4) == DEFT_OK);
    CHECK(df_queue_copy_peer(w.q[1], &d, at(c), w.q[0], at(b), 4) == DEFT_OK);
    CHECK(df_queue_get(w.q[1], &d, back, at(c), 4) == DEFT_OK);
    CHECK(strcmp(back, "abc") == 0 && in.count("cuCtxEnablePeerAccess") == 0);
    df_buffer_drop(&b);
    df_buffer_drop(&c);
    world_close(&w);
}

static void idle_and_theirs(void)
{
    gpu_world w;
    df_diag d = { 0 };
    df_cu_stream mine = NULL;
    df_queue *q = NULL;
    char back[4] = "";
    world_open(&w, STANDIN_LATE, 1, NULL);
    CHECK(df_gpu_enter(w.g[0], &d) == DEFT_OK);
    CHECK(w.dr->stream_create(&mine, 1) == 0);
    df_gpu_leave(w.g[0]);
    CHECK(df_queue_create(&d, w.g[0], mine, &q) == DEFT_OK);
    CHECK(df_queue_stream(q) == mine && df_queue_gpu(q) == w.g[0]);
    CHECK(df_queue_is_idle(q));
    df_buffer *b = make(q, 4);
    for (int i = 0; i < 3; i++) CHECK(df_queue_put(q, &d, at(b), "abc", 4) == DEFT_OK);
    CHECK(!df_queue_is_idle(q) && !df_queue_is_idle(q) && df_queue_is_idle(q));
    CHECK(df_queue_get(q, &d, back, at(b), 4) == DEFT_OK && strcmp(back, "abc") == 0);
    df_buffer_drop(&b);
    df_queue_destroy(&q);
    CHECK(df_gpu_enter(w.g[0], &d) == DEFT_OK);
    CHECK(w.dr->stream_destroy(mine) == 0); /* still there */
    df_gpu_leave(w.g[0]);

    /* What is in the legacy stream does not wait for ours. */
    b = make(w.q[0], 4);
    CHECK(df_queue_put(w.q[0], &d, at(b), "abc", 4) == DEFT_OK);
    const long n = in.n_work();
    CHECK(df_gpu_enter(w.g[0], &d) == DEFT_OK && w.dr->set_8(at(b), 0, 1, NULL) == 0);
    CHECK(w.dr->stream_wait(NULL) == 0 && in.n_work() == n + 1);
    df_gpu_leave(w.g[0]);
    df_buffer_drop(&b);
    world_close(&w);
}

/* A caller's own context on the same thread is current again after each call. */
static void contexts_are_restored(void)
{
    gpu_world w;
    df_diag d = { 0 };
    df_cu_stream s = NULL;
    df_cu_ctx popped = NULL;
    world_open(&w, STANDIN_RANDOM, 3, NULL);
    CHECK(df_gpu_enter(w.g[1], &d) == DEFT_OK);
    df_buffer *b = make(w.q[0], 64);
    CHECK(df_queue_put(w.q[0], &d, at(b), "abc", 4) == DEFT_OK);
    CHECK(df_queue_wait(w.q[0], &d) == DEFT_OK);
    df_buffer_drop(&b);
    df_gpu_trim(w.g[0]);
    CHECK(w.dr->stream_create(&s, 1) == 0 && w.dr->stream_destroy(s) == 0);
    CHECK(w.dr->ctx_pop(&popped) == 0 && popped == df_gpu_ctx(w.g[1]));
    CHECK(w.dr->ctx_pop(&popped) != 0);
    in.forgive();
    world_close(&w);
}

/* ---- errors that come late ---- */

static int work(void *args)
{
    return *(int *)args;
}

/* Puts in a launch that will end with `code`. */
static deft_status launch(df_queue *q, df_diag *d, int code, const char *ops, uint32_t number)
{
    const df_launch_note n = { .owner = 4, .number = number, .ops = ops };
    CHECK(df_gpu_enter(df_queue_gpu(q), d) == DEFT_OK);
    CHECK(in.enqueue(df_queue_stream(q), work, &code, sizeof code, "launch") == 0);
    df_gpu_leave(df_queue_gpu(q));
    return df_queue_launched(q, d, &n);
}

static void lasting_errors(void)
{
    gpu_world w;
    df_diag d = { 0 };
    df_buffer *c = NULL;
    df_queue *other = NULL;
    char back[4];
    const deft_status bad = DEFT_E_BACKEND;
    world_open(&w, STANDIN_LATE, 1, NULL);
    df_buffer *b = make(w.q[0], 4096);
    CHECK(launch(w.q[0], &d, 0, "exp", 1) == DEFT_OK);
    CHECK(df_queue_wait(w.q[0], &d) == DEFT_OK);
    CHECK(launch(w.q[0], &d, 0, "mul, add", 2) == DEFT_OK);
    CHECK(launch(w.q[0], &d, ILLEGAL_ADDRESS, "gather", 3) == DEFT_OK);
    CHECK(launch(w.q[0], &d, 0, NULL, 4) == DEFT_OK);
    CHECK_SAYS(df_queue_wait(w.q[0], &d), &d, bad,
               "GPU 0|CUDA_ERROR_ILLEGAL_ADDRESS|launch of mul, add (plan 4.2)|one of 2 that "
               "follow|DEFT_CUDA_BLOCKING=1|until the process ends");
    CHECK_SAYS(df_queue_get(w.q[0], &d, back, at(b), 4), &d, bad,
               "GPU 0 cannot be used until the process ends|ILLEGAL_ADDRESS|mul, add");
    CHECK_SAYS(df_gpu_buffer(w.q[0], &d, 64, &c), &d, bad, "cannot be used");
    CHECK_SAYS(df_queue_put(w.q[0], &d, at(b), back, 4), &d, bad, "cannot be used");
    CHECK_SAYS(df_queue_create(&d, w.g[0], NULL, &other), &d, bad, "cannot be used");
    CHECK_SAYS(df_queue_after(w.q[1], &d, w.q[0]), &d, bad, "cannot be used");
    CHECK(!df_queue_is_idle(w.q[0]));
    CHECK(df_queue_is_idle(w.q[1])); /* the other GPU works on */
    c = make(w.q[1], 4);
    CHECK(df_queue_put(w.q[1], &d, at(c), "abc", 4) == DEFT_OK);
    CHECK(df_queue_get(w.q[1], &d, back, at(c), 4) == DEFT_OK && strcmp(back, "abc") == 0);
    df_buffer_drop(&c);
    df_buffer_drop(&b);
    df_gpu_trim(w.g[0]);
    world_abandon(&w);
    CHECK(fail_mem_count(w.mem).live_blocks == 0);
    CHECK(fail_mem_count(w.mem).faults == 0);
    fail_mem_destroy(&w.mem);
}

/* What a query finds comes out of the next call. */
static void found_by_query(void)
{
    gpu_world w;
    df_diag d = { 0 };
    world_open(&w, STANDIN_LATE, 1, NULL);
    CHECK(launch(w.q[0], &d, 0, "exp", 1) == DEFT_OK);
    in.fail("cuStreamQuery", 1, NOT_SUPPORTED);
    CHECK(!df_queue_is_idle(w.q[0]) && !df_queue_is_idle(w.q[0]));
    CHECK_SAYS(df_queue_wait(w.q[0], &d), &d, DEFT_E_BACKEND, "NOT_SUPPORTED|in the launch of exp");
    CHECK(df_queue_wait(w.q[0], &d) == DEFT_OK && df_queue_is_idle(w.q[0]));
    in.fail("cuStreamSynchronize", 1, NOT_SUPPORTED);
    CHECK_SAYS(df_queue_wait(w.q[0], &d), &d, DEFT_E_BACKEND, "have ended");
    world_close(&w);
}

/* More launches than are kept; and events tell how far the GPU is. */
static void many_notes(void)
{
    gpu_world w;
    df_diag d = { 0 };
    char ops[200];
    world_open(&w, STANDIN_LATE, 1, NULL);
    memset(ops, 'x', sizeof ops);
    ops[199] = '\0';
    for (uint32_t i = 0; i < 1000; i++) CHECK(launch(w.q[0], &d, 0, ops, i) == DEFT_OK);
    CHECK(in.count("cuEventQuery") <= 1000 / DF_QUEUE_NOTES_MARK);
    in.fail("cuStreamSynchronize", 1, NOT_SUPPORTED);
    CHECK_SAYS(df_queue_wait(w.q[0], &d), &d, DEFT_E_BACKEND,
               "(plan 4.936)|one of 63 that follow, or before");
    CHECK(strstr(d.text, " xxx") && strspn(strstr(d.text, " xxx") + 1, "x") == 63);
    CHECK(df_queue_wait(w.q[0], &d) == DEFT_OK);
    in.when(STANDIN_EAGER, 1);
    for (uint32_t i = 0; i < 100; i++) CHECK(launch(w.q[0], &d, 0, "log", i) == DEFT_OK);
    in.fail("cuStreamSynchronize", 1, NOT_SUPPORTED);
    CHECK_SAYS(df_queue_wait(w.q[0], &d), &d, DEFT_E_BACKEND, "|one of ");
    CHECK(w.q[0]->n_noted - w.q[0]->n_ended <= 2 * DF_QUEUE_NOTES_MARK);
    world_close(&w);
}

static void blocking(bool by_variable)
{
    gpu_world w;
    df_diag d = { 0 };
    if (by_variable) CHECK(setenv("DEFT_CUDA_BLOCKING", "1", 1) == 0);
    world_open(&w, STANDIN_LATE, 1, &(df_gpu_options){ .blocking = !by_variable });
    unsetenv("DEFT_CUDA_BLOCKING");
    CHECK(launch(w.q[0], &d, 0, "exp", 1) == DEFT_OK && in.n_work() == 1);
    CHECK_SAYS(launch(w.q[0], &d, ILLEGAL_ADDRESS, "gather", 2), &d, DEFT_E_BACKEND,
               "ILLEGAL_ADDRESS|; in the launch of gather (plan 4.2) at ");
    CHECK(!strstr(d.text, "one of"));
    world_abandon(&w);
    fail_mem_destroy(&w.mem);
}

static void direct_calls(void)
{
    gpu_world w;
    df_diag d = { 0 };
    world_open(&w, STANDIN_LATE, 1, NULL);
    CHECK(launch(w.q[0], &d, 0, "exp", 1) == DEFT_OK);
    CHECK_SAYS(df_queue_fail(w.q[0], &d, 701, "cuLaunchKernel of %d blocks", 7), &d, DEFT_E_BACKEND,
               "GPU 0: cuLaunchKernel of 7 blocks: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)");
    CHECK(!strstr(d.text, "exp"));
    CHECK(df_queue_fail(w.q[0], NULL, 2, "cuMemAlloc") == DEFT_E_MEMORY);
    CHECK_SAYS(df_queue_fail(w.q[0], &d, 719, "cuLaunchKernel"), &d, DEFT_E_BACKEND,
               "launch of exp");
    CHECK_SAYS(df_queue_wait(w.q[0], &d), &d, DEFT_E_BACKEND, "cannot be used");
    world_abandon(&w);
    in.leaks(&(standin_alive){ 0 });
    fail_mem_destroy(&w.mem);
}

int main(int argc, char **argv)
{
    if (!worlds_begin(argc, argv)) return 2;
    drivers();
    gpus();
    order_of_calls();
    copies(STANDIN_LATE);
    copies(STANDIN_RANDOM);
    copies(STANDIN_EAGER);
    usual_pieces();
    failed_get();
    for (uint32_t seed = 1; seed <= 4; seed++) ring(seed);
    after(false);
    after(true);
    no_peers();
    idle_and_theirs();
    contexts_are_restored();
    lasting_errors();
    found_by_query();
    many_notes();
    blocking(false);
    blocking(true);
    direct_calls();
    return worlds_end();
}
