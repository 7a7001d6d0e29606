/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a GPU (memory.c), with a stand-in for its driver: what is used again when and by
 * whom, what is given back, bounds, running out, borrowed memory; and at random, where bytes tell
 * when somebody wrote into memory that another's work still had to read.
 *
 *   test_gpu_memory LIBCUDA-STANDIN
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_world.h"
#include "jit_cuda/driver/gpu_internal.h"

enum { NOT_SUPPORTED = 801 };

static df_queue *second_queue(gpu_world *w)
{
    df_diag d = { 0 };
    df_queue *q = NULL;
    CHECK(df_queue_create(&d, w->g[0], NULL, &q) == DEFT_OK);
    return q;
}

/* Work that holds q up until somebody waits for it. */
static void put_work(df_queue *q, const df_buffer *b)
{
    df_diag d = { 0 };
    CHECK(df_queue_put(q, &d, at(b), "0123456", 8) == DEFT_OK);
}

static bool is(const df_gpu *g, uint64_t live, uint64_t cached, uint64_t peak, uint64_t requests,
               uint64_t system)
{
    const df_allocator_stats s = df_gpu_read((df_gpu *)g);
    const bool good = s.live_bytes == live && s.cached_bytes == cached && s.peak_bytes == peak &&
                      s.requests == requests && s.system_allocations == system;
    if (!good)
        printf("live %llu cached %llu peak %llu requests %llu system %llu\n",
               (unsigned long long)s.live_bytes, (unsigned long long)s.cached_bytes,
               (unsigned long long)s.peak_bytes, (unsigned long long)s.requests,
               (unsigned long long)s.system_allocations);
    return good;
}

/* ---- one queue ---- */

static void own_at_once(void)
{
    gpu_world w;
    df_diag d = { 0 };
    df_buffer *none = NULL;
    const df_buffer_owner *home;
    world_open(&w, STANDIN_LATE, 1, &(df_gpu_options){ .dev = (df_device *)(void *)&w });
    df_buffer *a = make(w.q[0], 1000), *b = make(w.q[0], 0);
    CHECK(a->bytes == 1000 && a->data && at(a) % 256 == 0 && a->home->dev == (void *)&w);
    CHECK(b->bytes == 0 && b->data && b->data != a->data);
    home = a->home;
    put_work(w.q[0], a);
    const void *const was = a->data;
    CHECK(is(w.g[0], 1024 + 64, 0, 1024 + 64, 2, 2));
    df_buffer_drop(&a);
    CHECK(is(w.g[0], 64, 1024, 1024 + 64, 2, 2));
    a = make(w.q[0], 1024); /* with work still on it, and without a call */
    CHECK(a->data == was && a->bytes == 1024 && a->home == home && in.n_work() == 0);
    CHECK(is(w.g[0], 1024 + 64, 0, 1024 + 64, 3, 2));
    CHECK(in.count("cuEventCreate") == DF_RING_PIECES && in.count("cuEventRecord") == 0);
    df_buffer *c = make(w.q[0], 1024);
    CHECK(c->data != was);
    df_buffer *ref = df_buffer_ref(c);
    df_buffer_drop(&c);
    CHECK(is(w.g[0], 2 * 1024 + 64, 0, 2 * 1024 + 64, 4, 3));
    df_buffer_drop(&ref);
    df_buffer_drop(&a);
    df_buffer_drop(&b);
    CHECK_SAYS(df_gpu_buffer(w.q[0], &d, -1, &none), &d, DEFT_E_MEMORY, "-1 bytes");
    CHECK_SAYS(df_gpu_buffer(w.q[0], &d, INT64_MAX, &none), &d, DEFT_E_MEMORY, "more than any GPU");
    CHECK(is(w.g[0], 0, 2 * 1024 + 64, 2 * 1024 + 64, 4, 3));
    world_close(&w);
}

static void trim_waits(void)
{
    gpu_world w;
    world_open(&w, STANDIN_LATE, 1, NULL);
    df_buffer *a = make(w.q[0], 4096), *b = make(w.q[0], 8192);
    put_work(w.q[0], a);
    df_buffer_drop(&a);
    df_gpu_trim(w.g[0]); /* the stand-in would tell of memory freed too early */
    CHECK(in.n_work() == 1 && in.count("cuMemFree_v2") == 1);
    CHECK(is(w.g[0], 8192, 0, 4096 + 8192, 2, 2));
    df_gpu_trim(w.g[0]);
    CHECK(in.count("cuMemFree_v2") == 1);
    df_buffer_drop(&b);
    world_close(&w);
}

/* ---- several queues ---- */

static void others_when_done(void)
{
    gpu_world w;
    df_diag d = { 0 };
    world_open(&w, STANDIN_LATE, 1, NULL);
    df_queue *q = second_queue(&w);
    df_buffer *a = make(w.q[0], 4096);
    const void *const was = a->data;
    for (int i = 0; i < 3; i++) put_work(w.q[0], a);
    df_buffer_drop(&a);
    df_buffer *b = make(q, 4096); /* under way */
    CHECK(b->data != was && in.n_work() == 0);
    df_buffer *c = make(q, 4096); /* asked for: one piece of work is done */
    CHECK(c->data != was && in.n_work() == 1);
    CHECK(df_queue_wait(w.q[0], &d) == DEFT_OK);
    const long queries = in.count("cuEventQuery");
    df_buffer *e = make(q, 4096); /* the wait has told of it */
    CHECK(e->data == was && in.count("cuEventQuery") == queries);
    put_work(w.q[0], c); /* dropped before: it is not part of what was asked about */
    df_buffer_drop(&e);
    a = make(w.q[0], 4096); /* now q's */
    CHECK(a->data != was);
    df_buffer_drop(&a);
    df_buffer_drop(&b);
    df_buffer_drop(&c);
    CHECK(df_queue_wait(w.q[0], &d) == DEFT_OK);
    df_queue_destroy(&q);
    world_close(&w);
}

/* By queries alone; and a block that was dropped after the event is not covered by it. */
static void covered_by_an_event(void)
{
    gpu_world w;
    world_open(&w, STANDIN_LATE, 1, NULL);
    df_queue *q = second_queue(&w);
    df_buffer *a = make(w.q[0], 4096), *b = make(w.q[0], 4096), *got[8];
    const void *const was_a = a->data, *const was_b = b->data;
    put_work(w.q[0], a);
    df_buffer_drop(&a);
    got[0] = make(q, 4096); /* records the event */
    put_work(w.q[0], b);
    df_buffer_drop(&b);
    got[1] = make(q, 4096); /* work 1 */
    got[2] = make(q, 4096); /* the event */
    CHECK(got[0]->data != was_a && (got[1]->data == was_a || got[2]->data == was_a));
    CHECK(got[0]->data != was_b && got[1]->data != was_b && got[2]->data != was_b);
    got[3] = make(q, 4096);
    got[4] = make(q, 4096);
    got[5] = make(q, 4096);
    CHECK(in.n_work() == 2 &&
          (got[4]->data == was_b || got[5]->data == was_b || got[3]->data == was_b));
    for (int i = 0; i < 6; i++) df_buffer_drop(&got[i]);
    df_queue_destroy(&q);
    world_close(&w);
}

static void used_in_another(void)
{
    gpu_world w;
    df_diag d = { 0 };
    char back[8] = "", was[8] = "1234567";
    world_open(&w, STANDIN_LATE, 1, NULL);
    df_queue *q = second_queue(&w);
    df_buffer *a = make(w.q[0], 64), *to = make(q, 64);
    CHECK(df_queue_put(w.q[0], &d, at(a), was, 8) == DEFT_OK);
    CHECK(df_queue_after(q, &d, w.q[0]) == DEFT_OK);
    CHECK(df_queue_copy(q, &d, at(to), at(a), 8) == DEFT_OK);
    CHECK(df_gpu_used(a, &d, w.q[0]) == DEFT_OK && df_gpu_used(a, &d, q) == DEFT_OK);
    CHECK(df_gpu_used(a, &d, q) == DEFT_OK);
    CHECK_SAYS(df_gpu_used(a, &d, w.q[1]), &d, DEFT_E_ARG,
               "GPU 0 cannot be used in a queue of GPU 1");
    const void *const address = a->data;
    long events = in.count("cuEventRecord");
    df_buffer_drop(&a);
    CHECK(in.count("cuEventRecord") == events + 1);
    a = make(w.q[0], 64);
    CHECK(a->data == address);
    put_work(w.q[0], a); /* must come after the copy */
    CHECK(df_queue_wait(w.q[0], &d) == DEFT_OK);
    CHECK(df_queue_get(q, &d, back, at(to), 8) == DEFT_OK && strcmp(back, was) == 0);

    /* Its own queue is gone: the drop waits. */
    CHECK(df_gpu_used(to, &d, w.q[0]) == DEFT_OK);
    CHECK(df_queue_put(w.q[0], &d, at(to), was, 8) == DEFT_OK);
    CHECK(df_queue_copy(w.q[0], &d, at(a), at(to), 8) == DEFT_OK);
    df_queue_destroy(&q);
    const long n = in.n_work();
    df_buffer_drop(&to);
    CHECK(in.n_work() == n + 2);
    /* The other queue is gone: nothing to wait for. */
    q = second_queue(&w);
    CHECK(df_gpu_used(a, &d, q) == DEFT_OK);
    df_queue_destroy(&q);
    events = in.count("cuEventRecord");
    df_buffer_drop(&a);
    CHECK(in.count("cuEventRecord") == events);
    world_close(&w);
}

/* A queue of which nobody knows whether its work ended: its memory is not used again. */
static void unsure(void)
{
    gpu_world w;
    world_open(&w, STANDIN_LATE, 1, NULL);
    df_queue *q = second_queue(&w);
    df_buffer *a = make(q, 4096), *b = make(q, 8192);
    const void *const was_a = a->data, *const was_b = b->data;
    df_buffer_drop(&a);
    in.fail_always("cuStreamSynchronize", NOT_SUPPORTED);
    df_queue_destroy(&q);
    in.fail_always("cuStreamSynchronize", 0);
    df_buffer_drop(&b);
    CHECK(is(w.g[0], 0, 0, 4096 + 8192, 2, 2));
    a = make(w.q[0], 4096);
    b = make(w.q[0], 8192);
    CHECK(a->data != was_a && b->data != was_b);
    df_buffer_drop(&a);
    df_buffer_drop(&b);

    q = second_queue(&w);
    a = make(q, 100);
    const void *const was = a->data;
    in.fail("cuStreamSynchronize", 1, NOT_SUPPORTED); /* may be of earlier work: asked again */
    df_queue_destroy(&q);
    df_buffer_drop(&a);
    a = make(w.q[0], 100);
    CHECK(a->data == was);
    df_buffer_drop(&a);
    world_close(&w);
}

static void orphans(void)
{
    gpu_world w;
    world_open(&w, STANDIN_LATE, 1, NULL);
    df_queue *q = second_queue(&w);
    df_buffer *a = make(q, 4096), *b = make(q, 8192);
    const void *const was_a = a->data, *const was_b = b->data;
    put_work(q, a);
    put_work(q, b);
    df_buffer_drop(&a);
    df_queue_destroy(&q);
    a = make(w.q[0], 4096);
    df_buffer_drop(&b); /* made on a queue that is gone */
    b = make(w.q[0], 8192);
    CHECK(a->data == was_a && b->data == was_b);
    df_buffer_drop(&a);
    df_buffer_drop(&b);
    world_close(&w);
}

/* ---- bounds ---- */

static void bounds(void)
{
    gpu_world w;
    df_diag d = { 0 };
    df_buffer *none = NULL;
    world_open(&w, STANDIN_LATE, 1, &(df_gpu_options){ .max_bytes = 16384 });
    df_buffer *a = make(w.q[0], 8192), *b = make(w.q[0], 4096);
    df_buffer_drop(&b);
    b = make(w.q[0], 8192); /* what was cached goes */
    CHECK(is(w.g[0], 16384, 0, 16384, 3, 3) && in.count("cuMemFree_v2") == 1);
    CHECK_SAYS(df_gpu_buffer(w.q[0], &d, 100, &none), &d, DEFT_E_MEMORY,
               "GPU 0: 128 bytes would exceed max_bytes, 16384: 16384 are live, 0 cached");
    CHECK(is(w.g[0], 16384, 0, 16384, 4, 3));
    df_buffer_drop(&b);
    b = make(w.q[0], 100);
    df_buffer_drop(&a);
    df_buffer_drop(&b);
    world_close(&w);

    world_open(&w, STANDIN_LATE, 1, &(df_gpu_options){ .max_cached = 5000 });
    a = make(w.q[0], 4096);
    b = make(w.q[0], 2048);
    df_buffer *c = make(w.q[0], 8192);
    put_work(w.q[0], a);
    const void *const kept = b->data;
    df_buffer_drop(&a);
    CHECK(in.n_work() == 0);
    df_buffer_drop(&b); /* the oldest goes, which is a */
    CHECK(in.n_work() == 1 && is(w.g[0], 8192, 2048, 14336, 3, 3));
    df_buffer_drop(&c); /* all go: c is the newest and alone too large */
    CHECK(is(w.g[0], 0, 0, 14336, 3, 3));
    b = make(w.q[0], 2048);
    CHECK(b->data != kept || in.count("cuMemAlloc_v2") == 4);
    df_buffer_drop(&b);
    world_close(&w);
}

static void running_out(void)
{
    const standin_gpu gpus[] = { { .bytes = 1 << 20 }, { .bytes = 1 << 20 } };
    gpu_world w = { .mem = fail_mem_create() };
    df_diag d = { 0 };
    df_buffer *none = NULL, *all[16];
    in.reset();
    in.set_gpus(2, gpus);
    in.when(STANDIN_LATE, 1);
    if (!CHECK(world_try(&w, &d, NULL))) return;
    df_queue *q = second_queue(&w);
    for (int i = 0; i < 16; i++) {
        all[i] = make(i & 1 ? q : w.q[0], 65536);
        CHECK(df_gpu_enter(w.g[0], &d) == DEFT_OK);
        CHECK(w.dr->set_8(at(all[i]), 1, 65536, df_queue_stream(i & 1 ? q : w.q[0])) == 0);
        df_gpu_leave(w.g[0]);
    }
    CHECK_SAYS(df_gpu_buffer(q, &d, 5000, &none), &d, DEFT_E_MEMORY,
               "GPU 0 (Stand-in GPU 0): 5120 bytes could not be had: 1048576 are live, 0 cached, "
               "0 of 1048576 free on the GPU");
    /* What is cached in either queue, with work on it, serves another size. */
    for (int i = 0; i < 8; i++) df_buffer_drop(&all[i]);
    all[0] = make(q, 4 * 131072);
    CHECK(is(w.g[0], 1 << 20, 0, 1 << 20, 18, 17));
    df_buffer_drop(&all[0]);
    for (int i = 8; i < 16; i++) df_buffer_drop(&all[i]);
    df_queue_destroy(&q);
    world_close(&w);
}

/* The n-th cuMemAlloc fails, and the one after it as well: the second try. */
static void every_allocation_runs_out(void)
{
    for (int n = 1; n <= 6; n++) {
        gpu_world w;
        df_diag d = { 0 };
        df_buffer *b[6] = { NULL };
        int n_failed = 0;
        world_open(&w, STANDIN_RANDOM, (uint32_t)n, NULL);
        df_buffer *cached = make(w.q[0], 100);
        df_buffer_drop(&cached);
        in.fail("cuMemAlloc_v2", n, DF_CU_OUT_OF_MEMORY);
        if (n != 6) in.fail("cuMemAlloc_v2", n + 1, DF_CU_OUT_OF_MEMORY);
        for (int i = 0; i < 6; i++) {
            const deft_status st = df_gpu_buffer(w.q[0], &d, 1000 * (i + 1), &b[i]);
            if (st == DEFT_OK) continue;
            n_failed++;
            CHECK_SAYS(st, &d, DEFT_E_MEMORY, "could not be had|0 cached|of 1073741824 free");
            CHECK(df_gpu_buffer(w.q[0], &d, 1000 * (i + 1), &b[i]) == DEFT_OK);
        }
        CHECK(n_failed == (n == 6 ? 0 : 1) && in.fails_waiting() == 0);
        for (int i = 0; i < 6; i++) df_buffer_drop(&b[i]);
        world_close(&w);
    }
}

/* ---- the caller's memory ---- */

static void borrowed(void)
{
    gpu_world w;
    df_diag d = { 0 };
    df_buffer *b = NULL;
    char back[8] = "", host[8] = "";
    void *pinned = NULL;
    df_cu_ptr p = 0;
    world_open(&w, STANDIN_LATE, 1, NULL);
    CHECK(df_gpu_enter(w.g[0], &d) == DEFT_OK && w.dr->mem_alloc(&p, 1000) == 0);
    CHECK(w.dr->host_alloc(&pinned, 64, 0) == 0);
    df_gpu_leave(w.g[0]);
    void *const at_p = (void *)(uintptr_t)p;
    const deft_status bad = DEFT_E_ARG;
    CHECK_SAYS(df_gpu_wrap(w.g[1], &d, at_p, 8, &b), &d, bad, "is memory of GPU 0, not of GPU 1");
    CHECK_SAYS(df_gpu_wrap(w.g[0], &d, host, 8, &b), &d, bad, "no address of a GPU's memory");
    CHECK_SAYS(df_gpu_wrap(w.g[0], &d, pinned, 8, &b), &d, bad, "no address of a GPU's memory");
    CHECK_SAYS(df_gpu_wrap(w.g[0], &d, at_p, 1001, &b), &d, bad, "1001 bytes|reach beyond");
    CHECK_SAYS(df_gpu_wrap(w.g[0], &d, at_p, -1, &b), &d, bad, "-1");
    CHECK(!b && df_gpu_wrap(w.g[0], &d, (char *)at_p + 992, 8, &b) == DEFT_OK);
    CHECK(b->data == (char *)at_p + 992 && b->bytes == 8 && b->home);
    CHECK(df_queue_put(w.q[0], &d, at(b), "abcdefg", 8) == DEFT_OK);
    CHECK(df_gpu_used(b, &d, w.q[0]) == DEFT_OK);
    df_buffer_drop(&b);
    CHECK(df_queue_get(w.q[0], &d, back, p + 992, 8) == DEFT_OK && strcmp(back, "abcdefg") == 0);
    CHECK(is(w.g[0], 0, 0, 0, 0, 0));
    CHECK(df_gpu_enter(w.g[0], &d) == DEFT_OK && w.dr->mem_free(p) == 0);
    CHECK(w.dr->host_free(pinned) == 0);
    df_gpu_leave(w.g[0]);
    world_close(&w);
}

/* ---- at random ---- */

enum { N_QUEUES = 3, N_SLOTS = 12, BLOCK = 4096 };

typedef struct slot {
    df_buffer *b;
    df_queue *on;  /* its queue */
    uint32_t seed; /* of what it holds */
    int64_t bytes;
} slot;

static void fill_slot(slot *s, uint32_t seed)
{
    df_diag d = { 0 };
    char bytes[BLOCK];
    s->seed = seed;
    fill(bytes, (size_t)s->bytes, seed);
    CHECK(df_queue_put(s->on, &d, at(s->b), bytes, (size_t)s->bytes) == DEFT_OK);
}

static void check_slot(slot *s)
{
    df_diag d = { 0 };
    char bytes[BLOCK];
    CHECK(df_queue_get(s->on, &d, bytes, at(s->b), (size_t)s->bytes) == DEFT_OK);
    CHECK(is_filled(bytes, (size_t)s->bytes, s->seed));
}

/* `to` gets what `from` holds, in to's queue; `from` is dropped as soon as that is put in. */
static void hand_on(slot *to, slot *from)
{
    df_diag d = { 0 };
    const int64_t n = from->bytes;
    CHECK(df_gpu_buffer(to->on, &d, n, &to->b) == DEFT_OK);
    CHECK(df_queue_after(to->on, &d, from->on) == DEFT_OK);
    CHECK(df_queue_copy(to->on, &d, at(to->b), at(from->b), (size_t)n) == DEFT_OK);
    CHECK(df_gpu_used(from->b, &d, to->on) == DEFT_OK);
    df_buffer_drop(&from->b);
    to->bytes = n;
    to->seed = from->seed;
}

static void at_random(uint32_t seed, const df_gpu_options *o)
{
    static const int64_t sizes[] = { 8, 100, 1000, BLOCK };
    gpu_world w;
    slot s[N_SLOTS] = { { 0 } };
    df_queue *q[N_QUEUES];
    uint32_t x = seed;
    world_open(&w, STANDIN_RANDOM, seed, o);
    q[0] = w.q[0];
    for (int i = 1; i < N_QUEUES; i++) q[i] = second_queue(&w);
    for (int i = 0; i < 3000; i++) {
        slot *const a = &s[draw(&x, N_SLOTS)], *const b = &s[draw(&x, N_SLOTS)];
        if (!a->b) {
            a->on = q[draw(&x, N_QUEUES)];
            a->bytes = sizes[draw(&x, DF_LEN(sizes))];
            a->b = make(a->on, a->bytes);
            fill_slot(a, x);
        } else if (!b->b) {
            b->on = q[draw(&x, N_QUEUES)];
            hand_on(b, a);
        } else if (draw(&x, 8) == 0) {
            check_slot(a);
        } else if (draw(&x, 40) == 0) {
            df_gpu_trim(w.g[0]);
        } else {
            df_buffer_drop(&a->b);
        }
    }
    for (int i = 0; i < N_SLOTS; i++) {
        if (s[i].b) check_slot(&s[i]);
        df_buffer_drop(&s[i].b);
    }
    for (int i = 1; i < N_QUEUES; i++) df_queue_destroy(&q[i]);
    world_close(&w);
}

int main(int argc, char **argv)
{
    if (!worlds_begin(argc, argv)) return 2;
    own_at_once();
    trim_waits();
    others_when_done();
    covered_by_an_event();
    used_in_another();
    orphans();
    unsure();
    bounds();
    running_out();
    every_allocation_runs_out();
    borrowed();
    for (uint32_t seed = 1; seed <= 6; seed++) {
        at_random(seed, &(df_gpu_options){ .piece = 4096 });
        at_random(seed, &(df_gpu_options){ .piece = 4096, .max_cached = 6000 });
    }
    return worlds_end();
}
