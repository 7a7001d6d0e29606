/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime: allocator, tiers, executor, null device, over plans built by hand and a compiler
 * whose code is the interpreter. The interpreter itself is in test_interp.c.
 *
 * Why this file is long: one way of building plans by hand serves executor, tiers and devices.
 */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "runtime/cpu.h"
#include "runtime/interp/interp.h"
#include "runtime/matmul/tile.h"
#include "runtime/packs.h"
#include "runtime/tiers/null.h"
#include "runtime/spent.h"
#include "support/fail_mem.h"
#include "unit/hand_kernels.h"

/* ---- allocator ---- */

static df_allocator *make_allocator(const df_mem *mem, uint64_t max_cached)
{
    df_allocator *a = NULL;
    cr_assert_eq(df_allocator_create(NULL, mem, max_cached, &a), DEFT_OK);
    return a;
}

static df_buffer *make_buffer(df_allocator *a, int64_t bytes)
{
    df_buffer *b = NULL;
    cr_assert_eq(df_buffer_create(NULL, a, bytes, &b), DEFT_OK);
    cr_assert_eq(b->bytes, bytes);
    cr_assert_eq((uintptr_t)b->data % 64, 0);
    if (bytes) memset(b->data, 0x5A, (size_t)bytes);
    return b;
}

Test(runtime, classes_waste_an_eighth_at_most)
{
    df_allocator *a = make_allocator(&df_mem_system, 1 << 20);
    for (int64_t n = 0; n < 40 << 20; n = n < 3000 ? n + 1 : n + n / 3 + 17) {
        const uint64_t before = df_allocator_read(a).live_bytes;
        df_buffer *b = make_buffer(a, n);
        const int64_t got = (int64_t)(df_allocator_read(a).live_bytes - before);
        cr_assert_geq(got, n);
        cr_assert_eq(got % 64, 0);
        cr_assert(got <= 64 || got - 63 <= n + n / 8 + 1, "%lld for %lld", (long long)got,
                  (long long)n);
        if (n >= 2 << 20) cr_assert_eq((uintptr_t)b->data % (2 << 20), 0);
        df_buffer_drop(&b);
        cr_assert_null(b);
    }
    cr_assert_eq(df_allocator_read(a).live_bytes, 0);
    df_allocator_destroy(&a);
    cr_assert_null(a);
    df_buffer *b = NULL;
    df_buffer_drop(&b);
    df_diag d = { 0 };
    a = make_allocator(&df_mem_system, 0);
    cr_expect_eq(df_buffer_create(&d, a, INT64_MAX, &b), DEFT_E_MEMORY);
    cr_expect_eq(df_buffer_create(&d, a, -1, &b), DEFT_E_MEMORY);
    cr_expect_eq(df_buffer_create(&d, a, (int64_t)1 << 46, &b), DEFT_E_MEMORY);
    df_allocator_destroy(&a);
}

Test(runtime, freed_blocks_are_reused_and_bounded)
{
    df_allocator *a = make_allocator(&df_mem_system, 1 << 20);
    for (int64_t n = 100; n <= 1 << 19; n *= 17) {
        df_buffer *b = make_buffer(a, n);
        void *const data = b->data;
        df_buffer_drop(&b);
        const uint64_t system = df_allocator_read(a).system_allocations;
        b = make_buffer(a, n - 3); /* the same class */
        cr_expect_eq(b->data, data);
        cr_expect_eq(df_allocator_read(a).system_allocations, system);
        df_buffer_drop(&b);
    }
    df_allocator_trim(a);
    cr_expect_eq(df_allocator_read(a).cached_bytes, 0);

    /* The oldest leave first: of five blocks of 256 KiB, four fit. */
    df_buffer *b[5];
    void *data[5];
    for (int i = 0; i < 5; i++) b[i] = make_buffer(a, 256 << 10), data[i] = b[i]->data;
    const uint64_t peak = df_allocator_read(a).peak_bytes;
    cr_expect_geq(peak, 5 * (256 << 10));
    for (int i = 0; i < 5; i++) df_buffer_drop(&b[i]);
    cr_expect_eq(df_allocator_read(a).cached_bytes, 1 << 20);
    for (int i = 4; i >= 1; i--) {
        b[i] = make_buffer(a, 256 << 10);
        cr_expect_eq(b[i]->data, data[i], "the newest first");
    }
    const uint64_t system = df_allocator_read(a).system_allocations;
    b[0] = make_buffer(a, 256 << 10);
    cr_expect_eq(df_allocator_read(a).system_allocations, system + 1);
    for (int i = 0; i < 5; i++) df_buffer_drop(&b[i]);

    df_buffer *more = make_buffer(a, 2 << 20); /* more than may be cached */
    df_buffer_drop(&more);
    cr_expect_leq(df_allocator_read(a).cached_bytes, 1 << 20);
    df_allocator_destroy(&a);
}

Test(runtime, buffers_are_counted_and_borrowed)
{
    fail_mem *f = fail_mem_create();
    df_allocator *a = make_allocator(fail_mem_get(f), 0);
    df_buffer *b = make_buffer(a, 300000), *again = df_buffer_ref(b);
    df_buffer_drop(&b);
    memset(again->data, 1, 300000);
    df_buffer_drop(&again);
    char mine[10];
    cr_assert_eq(df_buffer_wrap(NULL, a, mine, 10, &b), DEFT_OK);
    cr_expect_null(b->from);
    cr_expect_eq(b->data, (void *)mine);
    df_buffer_drop(&b);
    df_allocator_destroy(&a);
    cr_expect_eq(fail_mem_count(f).live_blocks, 0);
    cr_expect_eq(fail_mem_count(f).faults, 0, "%s", fail_mem_fault(f));
    fail_mem_destroy(&f);
}

/* Asks for a packed copy of `owner` as a product does, and makes it when told so. Returns whether
 * there is one now. */
static bool use_packed(df_packs *p, df_allocator *a, df_buffer *owner, int64_t bytes)
{
    const df_pack_key key = {
        .k = 1, .n = bytes / 4, .row = 1, .column = 1, .size = 4, .width = 8
    };
    bool make;
    df_buffer *copy = df_packs_find(p, owner, &key, bytes, &make);
    if (make) {
        cr_assert_null(copy);
        cr_assert_eq(df_buffer_create_derived(NULL, a, bytes, &copy), DEFT_OK);
        df_packs_add(p, owner, &key, copy);
    }
    const bool has_copy = copy != NULL;
    df_buffer_drop(&copy);
    return has_copy;
}

Test(runtime, packed_copies_have_a_bound_and_old_ones_make_room)
{
    enum { N = 4, BYTES = 256 << 10 };
    df_allocator *a = make_allocator(&df_mem_system, 1 << 20);
    df_packs *p = NULL;
    df_buffer *owner[N + 1];
    cr_assert_eq(df_packs_create(NULL, &df_mem_system, a, N * BYTES, &p), DEFT_OK);
    for (int i = 0; i <= N; i++) owner[i] = make_buffer(a, 1000);
    const uint64_t live = df_allocator_read(a).live_bytes;
    for (int i = 0; i < N; i++) {
        cr_expect(!use_packed(p, a, owner[i], BYTES), "the first use");
        cr_expect(use_packed(p, a, owner[i], BYTES));
    }
    cr_expect_eq(df_allocator_read(a).derived_bytes, N * BYTES);
    cr_expect_eq(df_allocator_read(a).live_bytes, live);
    for (int i = 0; i < 3; i++)
        cr_expect(!use_packed(p, a, owner[N], BYTES), "there is no room, and none is old");
    for (int i = 0; i < 1000; i++)
        for (int k = 1; k < N; k++) cr_expect(use_packed(p, a, owner[k], BYTES));
    cr_expect(use_packed(p, a, owner[N], BYTES), "the copy of 0 is old");
    for (int k = 1; k <= N; k++) cr_expect(use_packed(p, a, owner[k], BYTES));
    cr_expect_eq(df_allocator_read(a).derived_bytes, N * BYTES);

    df_buffer_changed(owner[1]);
    cr_expect(!use_packed(p, a, owner[1], BYTES), "the first use of the new elements");
    cr_expect_eq(df_allocator_read(a).derived_bytes, (N - 1) * BYTES);
    df_buffer_drop(&owner[2]);
    cr_expect_eq(df_allocator_read(a).derived_bytes, (N - 2) * BYTES);
    df_allocator_trim(a);
    cr_expect_eq(df_allocator_read(a).derived_bytes, 0);
    for (int i = 0; i <= N; i++) df_buffer_drop(&owner[i]);
    df_packs_destroy(&p);
    df_allocator_destroy(&a);
}

/* When the system has no more, what the cache holds is given back first. */
Test(runtime, a_short_system_gets_the_cache_back)
{
    fail_mem *f = fail_mem_create();
    df_allocator *a = make_allocator(fail_mem_get(f), 1 << 30);
    df_buffer *b = make_buffer(a, 1000), *c = NULL;
    df_buffer_drop(&b);
    fail_mem_at(f, 1, false);
    c = make_buffer(a, 5000);
    cr_expect_eq(df_allocator_read(a).cached_bytes, 0);
    df_buffer_drop(&c);
    for (size_t n = 1; n < 3; n++) {
        df_diag d = { 0 };
        fail_mem_at(f, n, true);
        cr_expect_eq(df_buffer_create(&d, a, 70000, &c), n == 1 ? DEFT_E_MEMORY : DEFT_OK);
        fail_mem_at(f, 0, false);
        if (n > 1) df_buffer_drop(&c);
        df_allocator_trim(a);
    }
    df_allocator_destroy(&a);
    cr_expect_eq(fail_mem_count(f).live_blocks, 0);
    fail_mem_destroy(&f);
}

/* ---- plans by hand ---- */

enum { MAX_SEGS = 40, MAX_BUFS = 48 };

typedef struct hand_plan {
    df_plan p;
    df_trace t;
    kb own; /* for a kernel that must live as long as the plan */
    df_kernel kernels[4];
    df_seg segs[MAX_SEGS];
    df_bind bind[MAX_SEGS][12];
    df_launch launches[8];
    df_plan_buf bufs[MAX_BUFS];
    df_region regions[4];
    df_buf root_buf[16];
    uint32_t num[MAX_SEGS][4];
    uint8_t num_dtype[MAX_SEGS][4];
    df_input inputs[24];
    const df_buffer *input[24];
    df_buffer *root[16];
    df_node nodes[4];
    int64_t slots[2000], args[32];
    uint32_t n_slots;
    df_launch_io io;
    df_run_stats stats;
    df_diag d;
} hand_plan;

static hand_plan *plan_new(void)
{
    hand_plan *const h = calloc(1, sizeof *h);
    h->p.kernels = h->kernels;
    h->p.segs = h->segs;
    h->p.launches = h->launches;
    h->p.bufs = h->bufs;
    h->p.regions = h->regions;
    h->p.root_buf = h->root_buf;
    h->t.inputs = h->inputs;
    h->t.args = h->args;
    h->t.nodes = h->nodes;
    h->io = (df_launch_io){ .root = h->root, .input = h->input };
    return h;
}

static df_slot slot(hand_plan *h, int64_t v)
{
    h->slots[h->n_slots] = v;
    return (df_slot){ h->n_slots++ };
}

static df_buf plan_buf(hand_plan *h, df_buf_kind kind, uint32_t index, deft_dtype t, int64_t numel)
{
    h->bufs[h->p.n_bufs] = (df_plan_buf){ .kind = kind,
                                          .index = index,
                                          .dtype = t,
                                          .numel = slot(h, numel),
                                          .donor = DF_NONE,
                                          .over = DF_NO_BUF };
    return (df_buf){ h->p.n_bufs++ };
}

static df_buf plan_input(hand_plan *h, deft_dtype t, void *data, int64_t numel)
{
    h->inputs[h->t.n_inputs] = (df_input){ .data = data, .bytes = numel * (int64_t)size_of(t) };
    h->p.n_inputs++;
    return plan_buf(h, DF_BUF_INPUT, h->t.n_inputs++, t, numel);
}

static df_buf plan_root(hand_plan *h, deft_dtype t, int64_t numel)
{
    const df_buf b = plan_buf(h, DF_BUF_ROOT, h->p.n_roots, t, numel);
    h->root_buf[h->p.n_roots++] = b;
    return b;
}

static uint32_t plan_kernel(hand_plan *h, kb *b)
{
    kb_seal(b);
    h->kernels[h->p.n_kernels] = b->k;
    return h->p.n_kernels++;
}

/* A segment whose accesses are bound later; all strides 0. */
static df_seg *plan_seg(hand_plan *h, uint32_t kernel, int64_t e0, int64_t e1, int64_t e2)
{
    const uint32_t i = h->p.n_segs++;
    const df_slot zero = slot(h, 0);
    df_seg *const s = &h->segs[i];
    *s = (df_seg){ .kind = DF_SEG_KERNEL,
                   .kernel = { kernel },
                   .bind = h->bind[i],
                   .num = h->num[i],
                   .num_dtype = h->num_dtype[i] };
    s->extent[0] = slot(h, e0), s->extent[1] = slot(h, e1), s->extent[2] = slot(h, e2);
    for (int a = 0; a < 12; a++) {
        h->bind[i][a] = (df_bind){ .buf = DF_NO_BUF, .offset = zero };
        for (int j = 0; j < DF_MAX_AXES; j++) h->bind[i][a].stride[j] = zero;
    }
    return s;
}

static void plan_bind(hand_plan *h, const df_seg *s, uint32_t access, df_buf buf, int64_t offset,
                      int64_t s0, int64_t s1, int64_t s2)
{
    df_bind *const b = &h->bind[s - h->segs][access];
    b->buf = buf;
    b->offset = slot(h, offset);
    b->stride[0] = slot(h, s0), b->stride[1] = slot(h, s1), b->stride[2] = slot(h, s2);
}

static void plan_launch(hand_plan *h, uint32_t n)
{
    const uint32_t first = h->p.n_launches ? h->launches[h->p.n_launches - 1].first +
                                                 h->launches[h->p.n_launches - 1].n
                                           : 0;
    h->launches[h->p.n_launches++] = (df_launch){ .first = first, .n = n };
}

static deft_status plan_run(df_device *dev, hand_plan *h)
{
    deft_status st = DEFT_OK;
    if (!h->p.execs) st = dev->prepare(dev, &h->d, &h->p, NULL);
    if (st != DEFT_OK) return st;
    return dev->run(dev, &h->d, &h->p, &h->t, h->slots, &h->io, &h->stats);
}

static void drop_roots(hand_plan *h)
{
    for (int i = 0; i < 16; i++) df_buffer_drop(&h->root[i]);
}

static void plan_free(df_device *dev, hand_plan *h)
{
    drop_roots(h);
    dev->release(dev, &h->p);
    free(h);
}

/* MAP y = x * num + y0, f32 */
static void build_axpy(kb *b)
{
    kb_init(b, DF_MODE_MAP, "i", 1);
    const uint32_t x =
        kb_ins(b, DF_K_load, DEFT_F32, 0, 0, 0, kb_access(b, DF_ACCESS_LOAD, DEFT_F32, "1"));
    const uint32_t y =
        kb_ins(b, DF_K_load, DEFT_F32, 0, 0, 0, kb_access(b, DF_ACCESS_LOAD, DEFT_F32, "1"));
    const uint32_t n = kb_ins(b, DF_K_num, DEFT_F32, 0, 0, 0, 0);
    const uint32_t m = kb_ins(b, DF_K_mul, DEFT_F32, x, n, 0, 0);
    const uint32_t s = kb_ins(b, DF_K_add, DEFT_F32, m, y, 0, 0);
    kb_ins(b, DF_K_store, DEFT_F32, s, 0, 0, kb_access(b, DF_ACCESS_STORE, DEFT_F32, "1"));
    b->k.n_num = 1;
}

static void bind_axpy(hand_plan *h, df_buf x, df_buf y, df_buf out, int64_t n, uint32_t num)
{
    df_seg *const s = plan_seg(h, 0, n, 0, 0);
    h->num[s - h->segs][0] = num;
    h->num_dtype[s - h->segs][0] = DEFT_F32;
    plan_bind(h, s, 0, x, 0, 1, 0, 0);
    plan_bind(h, s, 1, y, 0, 1, 0, 0);
    plan_bind(h, s, 2, out, 0, 1, 0, 0);
}

static df_device *make_cpu(const df_mem *mem, uint32_t n_threads, df_tier tier,
                           const df_compiler *c)
{
    df_device *dev = NULL;
    const df_cpu_options o = { .n_threads = n_threads, .tier = tier, .compiler = c };
    cr_assert_eq(df_cpu_create(NULL, mem, NULL, &o, &dev), DEFT_OK);
    return dev;
}

/* r = (x * 3 + x) * 0.5 + x through a temporary; the second number is a slot. */
static hand_plan *plan_axpy(float *x, int64_t n)
{
    hand_plan *const h = plan_new();
    build_axpy(&h->own);
    plan_kernel(h, &h->own);
    h->args[4] = (int64_t)F(3);
    const df_buf in = plan_input(h, DEFT_F32, x, n), out = plan_root(h, DEFT_F32, n);
    const df_buf temp = plan_buf(h, DF_BUF_TEMP, 0, DEFT_F32, n);
    h->regions[h->p.n_regions++] = (df_region){ slot(h, n * 4), DF_NONE };
    bind_axpy(h, in, in, temp, n, 4);
    bind_axpy(h, temp, in, out, n, DF_NUM_IS_SLOT | slot(h, -2).i);
    plan_launch(h, 1);
    plan_launch(h, 1);
    return h;
}

Test(runtime, a_plan_of_two_launches)
{
    for (int64_t n = 0; n < 3000000; n = n * 11 + 1) {
        float *const x = random_floats((size_t)n, 11);
        df_device *dev = make_cpu(&df_mem_system, 3, DF_TIER_INTERP, NULL);
        hand_plan *const h = plan_axpy(x, n);
        for (int again = 0; again < 2; again++) {
            drop_roots(h);
            cr_assert_eq(plan_run(dev, h), DEFT_OK);
            cr_expect_eq(h->stats.launches, 2);
            cr_expect_eq(h->stats.segments, 2);
            cr_expect_eq(h->stats.interpreted_segments, 2);
            cr_expect_eq(h->root[0]->bytes, n * 4);
            const float *const y = h->root[0]->data;
            for (int64_t i = 0; i < n; i++) {
                const float t = x[i] * 3, u = t + x[i], v = u * -2;
                cr_assert_eq(y[i], v + x[i], "n %lld i %lld", (long long)n, (long long)i);
            }
        }
        plan_free(dev, h);
        df_cpu_destroy(&dev);
        free(x);
    }
}

/* ---- threads change nothing ---- */

/* One launch: a split row reduction, a column reduction, three-stage rows with scratch, small maps.
 */
static hand_plan *plan_mixed(float *x, int64_t rows, int64_t cols)
{
    static kb b[4];
    hand_plan *const h = plan_new();
    build_axpy(&b[0]);
    build_fold(&b[1], DF_MODE_ROW, "or", "s1", "s0");
    build_fold(&b[2], DF_MODE_COL, "ri", "s1", "01");
    build_stages(&b[3]);
    for (int i = 0; i < 4; i++) plan_kernel(h, &b[i]);
    const df_buf in = plan_input(h, DEFT_F32, x, rows * cols);
    df_buf r[10];
    for (int i = 0; i < 5; i++) r[i] = plan_root(h, DEFT_F32, 1);
    for (int i = 5; i < 10; i++) r[i] = plan_root(h, DEFT_F32, cols);
    const df_buf soft = plan_root(h, DEFT_F32, rows * cols);
    df_seg *s = plan_seg(h, 1, 1, rows * cols, 0);
    plan_bind(h, s, 0, in, 0, 0, 1, 0);
    for (uint32_t i = 0; i < 5; i++) plan_bind(h, s, 1 + i, r[i], 0, 1, 0, 0);
    s = plan_seg(h, 2, rows, cols, 0);
    plan_bind(h, s, 0, in, 0, cols, 1, 0);
    for (uint32_t i = 0; i < 5; i++) plan_bind(h, s, 1 + i, r[5 + i], 0, 0, 1, 0);
    s = plan_seg(h, 3, rows, cols, 0);
    plan_bind(h, s, 0, in, 0, cols, 1, 0);
    plan_bind(h, s, 1, DF_NO_BUF, cols, 0, 1, 0);
    plan_bind(h, s, 2, DF_NO_BUF, cols, 0, 1, 0);
    plan_bind(h, s, 3, DF_NO_BUF, cols, 0, 1, 0);
    plan_bind(h, s, 4, soft, 0, cols, 1, 0);
    h->args[0] = (int64_t)F(2);
    for (uint32_t i = 0; i < 4; i++)
        bind_axpy(h, in, in, plan_root(h, DEFT_F32, 50 + i), 50 + i, 0);
    plan_launch(h, h->p.n_segs);
    return h;
}

Test(runtime, thread_counts_change_no_bit)
{
    static const int64_t shapes[][2] = {
        { 9, 15 }, { 1, 70000 }, { 70000, 3 }, { 300, 1000 }, { 9000, 40 }
    };
    static const uint32_t n_threads[] = { 1, 2, 3, 5 };
    for (size_t k = 0; k < LEN(shapes); k++) {
        const int64_t rows = shapes[k][0], cols = shapes[k][1];
        float *const x = random_floats((size_t)(rows * cols), k);
        float *want[15] = { NULL };
        for (size_t i = 0; i < LEN(n_threads); i++) {
            df_device *dev = make_cpu(&df_mem_system, n_threads[i], DF_TIER_INTERP, NULL);
            hand_plan *const h = plan_mixed(x, rows, cols);
            cr_assert_eq(plan_run(dev, h), DEFT_OK);
            for (uint32_t r = 0; r < h->p.n_roots; r++) {
                const size_t bytes = (size_t)h->root[r]->bytes;
                if (i == 0)
                    want[r] = memcpy(malloc(bytes), h->root[r]->data, bytes);
                else
                    cr_assert_eq(memcmp(want[r], h->root[r]->data, bytes), 0,
                                 "%u threads, shape %zu, root %u", n_threads[i], k, r);
            }
            plan_free(dev, h);
            df_cpu_destroy(&dev);
        }
        for (int i = 0; i < 4; i++) {
            cr_expect_eq(*want[i], naive(fold_ops[i], x, 1, rows * cols));
            cr_expect_eq(want[5 + i][cols - 1], naive(fold_ops[i], x + cols - 1, cols, rows));
        }
        float *const y = malloc((size_t)cols * 4);
        naive_stages(x + (rows - 1) * cols, cols, y);
        cr_expect_eq(memcmp(y, want[10] + (rows - 1) * cols, (size_t)cols * 4), 0);
        for (int i = 0; i < 15; i++) free(want[i]);
        free(y), free(x);
    }
}

/* Few instructions on many bytes are divided, too. What is loaded twice, or read by all elements,
 * comes from a cache and does not count. */
Test(runtime, bytes_decide_whether_threads_share_a_launch)
{
    enum { N = 200000, X_TWICE = 1, ONE_Y };
    df_device *dev = make_cpu(&df_mem_system, 2, DF_TIER_INTERP, NULL);
    float *const x = random_floats(N, 1), *const y = random_floats(N, 2);
    for (int way = 0; way < 3; way++) {
        hand_plan *const h = plan_new();
        build_axpy(&h->own);
        plan_kernel(h, &h->own);
        h->kernels[0].cost = 1;
        h->args[0] = (int64_t)F(2);
        const df_buf in = plan_input(h, DEFT_F32, x, N), other = plan_input(h, DEFT_F32, y, N);
        bind_axpy(h, in, way == X_TWICE ? in : other, plan_root(h, DEFT_F32, N), N, 0);
        if (way == ONE_Y) plan_bind(h, &h->segs[0], 1, other, 0, 0, 0, 0);
        plan_launch(h, 1);
        cr_assert_eq(plan_run(dev, h), DEFT_OK);
        cr_expect_eq(h->stats.forks, way == 0, "way %d", way);
        plan_free(dev, h);
    }
    free(x), free(y);
    df_cpu_destroy(&dev);
}

/* ---- donation, faults, interrupts, memory ---- */

Test(runtime, donation_takes_the_input_over)
{
    df_device *dev = make_cpu(&df_mem_system, 1, DF_TIER_INTERP, NULL);
    for (int variant = 0; variant < 4; variant++) {
        kb b;
        hand_plan *const h = plan_new();
        df_buffer *mine = make_buffer(dev->allocator, 400);
        float *const x = mine->data;
        for (int i = 0; i < 100; i++) x[i] = (float)i;
        build_axpy(&b);
        plan_kernel(h, &b);
        h->args[0] = (int64_t)F(2);
        const df_buf in = plan_input(h, DEFT_F32, x, 100), out = plan_root(h, DEFT_F32, 100);
        h->bufs[out.i].donor = 0;
        h->inputs[0].flags = DF_INPUT_SOLE;
        h->input[0] = mine;
        if (variant == 1) h->inputs[0].flags = 0;
        if (variant == 2) h->p.n_checked = 1;
        if (variant == 3) h->input[0] = NULL;
        bind_axpy(h, in, in, out, 100, 0);
        plan_launch(h, 1);
        cr_assert_eq(plan_run(dev, h), DEFT_OK);
        cr_expect_eq(h->stats.donated, variant == 0);
        cr_expect_eq(h->root[0] == mine, variant == 0, "variant %d", variant);
        cr_expect_eq(((float *)h->root[0]->data)[7], 21);
        if (variant) cr_expect_eq(x[7], 7);
        cr_expect_eq(atomic_load(&mine->refs), variant == 0 ? 2 : 1);
        df_buffer_drop(&mine);
        plan_free(dev, h);
    }
    cr_expect_eq(df_allocator_read(dev->allocator).live_bytes, 0);
    df_cpu_destroy(&dev);
}

/* How many segments of a run of out = x * num + y over n elements stream, on a device with this
 * limit. */
static uint64_t streamed(uint64_t limit, int64_t n, bool in_place)
{
    const df_cpu_options o = {
        .n_threads = 2, .tier = DF_TIER_INTERP, .stream_bytes = limit, .last_cache = 1 << 20
    };
    df_device *dev = NULL;
    cr_assert_eq(df_cpu_create(NULL, &df_mem_system, NULL, &o, &dev), DEFT_OK);
    df_buffer *mine = make_buffer(dev->allocator, n * 4);
    kb b;
    hand_plan *const h = plan_new();
    build_axpy(&b);
    plan_kernel(h, &b);
    const df_buf x = plan_input(h, DEFT_F32, mine->data, n);
    float *const other = random_floats((size_t)n, 3);
    const df_buf y = plan_input(h, DEFT_F32, other, n), out = plan_root(h, DEFT_F32, n);
    h->bufs[out.i].donor = 0;
    h->inputs[0].flags = in_place ? DF_INPUT_SOLE : 0;
    h->input[0] = mine;
    bind_axpy(h, x, y, out, n, 0);
    plan_launch(h, 1);
    uint64_t first = 0;
    for (int again = 0; again < 2; again++) { /* the second run finds its layout */
        drop_roots(h);
        if (in_place && again) break; /* the input is gone */
        cr_assert_eq(plan_run(dev, h), DEFT_OK);
        cr_expect_eq(h->stats.donated, in_place);
        if (again) cr_expect_eq(h->stats.streamed_segments, first);
        first = h->stats.streamed_segments;
    }
    df_buffer_drop(&mine);
    plan_free(dev, h);
    df_cpu_destroy(&dev);
    free(other);
    return first;
}

Test(runtime, large_results_go_around_the_caches)
{
    enum { N = 10000, MOVED = 3 * 4 * N };
    cr_expect_eq(streamed(MOVED, N, false), 0);
    cr_expect_eq(streamed(MOVED - 1, N, false), 1);
    cr_expect_eq(streamed(MOVED - 1, N, true), 0, "its lines have just been read");
    cr_expect_eq(streamed(0, N, false), 0, "no cache is so small");
    cr_expect_eq(streamed(2048, 255, false), 0, "rows of less than a KiB");
    cr_expect_eq(streamed(2048, 256, false), 1);
}

/* Two results, the second `shift` elements behind the start of its buffer. */
static uint64_t streamed_pair(int64_t shift, bool reads)
{
    enum { N = 1000 };
    const df_cpu_options o = {
        .n_threads = 1, .tier = DF_TIER_INTERP, .stream_bytes = 1, .last_cache = 1 << 20
    };
    df_device *dev = NULL;
    cr_assert_eq(df_cpu_create(NULL, &df_mem_system, NULL, &o, &dev), DEFT_OK);
    kb b;
    kb_init(&b, DF_MODE_MAP, "i", 1);
    float *const data = random_floats(N, 4);
    const uint32_t in = kb_access(&b, DF_ACCESS_LOAD, DEFT_F32, reads ? "1" : "0");
    const uint32_t x = kb_ins(&b, DF_K_load, DEFT_F32, 0, 0, 0, in);
    for (int i = 0; i < 2; i++)
        kb_ins(&b, DF_K_store, DEFT_F32, x, 0, 0, kb_access(&b, DF_ACCESS_STORE, DEFT_F32, "1"));
    hand_plan *const h = plan_new();
    plan_kernel(h, &b);
    df_seg *const s = plan_seg(h, 0, N, 0, 0);
    plan_bind(h, s, 0, plan_input(h, DEFT_F32, data, N), 0, reads, 0, 0);
    for (uint32_t i = 1; i < 3; i++)
        plan_bind(h, s, i, plan_root(h, DEFT_F32, N + 64), i == 2 ? shift : 0, 1, 0, 0);
    plan_launch(h, 1);
    cr_assert_eq(plan_run(dev, h), DEFT_OK);
    const uint64_t n = h->stats.streamed_segments;
    plan_free(dev, h);
    df_cpu_destroy(&dev);
    free(data);
    return n;
}

Test(runtime, results_that_stream_move_in_step_and_are_not_mostly_written)
{
    cr_expect_eq(streamed_pair(0, true), 1);
    cr_expect_eq(streamed_pair(16, true), 1);
    cr_expect_eq(streamed_pair(1, true), 0);
    cr_expect_eq(streamed_pair(0, false), 0);
}

Test(runtime, a_bad_index_is_told_and_nothing_is_left)
{
    enum { N = 200000 };
    static int64_t at[N];
    static float table[10];
    kb b;
    df_device *dev = make_cpu(&df_mem_system, 3, DF_TIER_INTERP, NULL);
    hand_plan *const h = plan_new();
    kb_init(&b, DF_MODE_MAP, "i", 1);
    b.k.flags = DF_KERNEL_CHECKS;
    b.k.n_num = 1;
    const uint32_t i =
        kb_ins(&b, DF_K_load, DEFT_I64, 0, 0, 0, kb_access(&b, DF_ACCESS_LOAD, DEFT_I64, "1"));
    const uint32_t n = kb_ins(&b, DF_K_num, DEFT_I64, 0, 0, 0, 0);
    const uint32_t good = kb_ins(&b, DF_K_check, DEFT_I64, i, n, 0, 2);
    const uint32_t v =
        kb_ins(&b, DF_K_load_at, DEFT_F32, good, 0, 0, kb_access(&b, DF_ACCESS_AT, DEFT_F32, "0"));
    kb_ins(&b, DF_K_store, DEFT_F32, v, 0, 0, kb_access(&b, DF_ACCESS_STORE, DEFT_F32, "1"));
    plan_kernel(h, &b);
    h->p.n_checked = 1;
    h->nodes[2].op = DF_OP_take;
    h->t.n_nodes = 3;
    df_seg *const s = plan_seg(h, 0, N, 0, 0);
    h->num[0][0] = DF_NUM_IS_SLOT | slot(h, 10).i, h->num_dtype[0][0] = DEFT_I64;
    plan_bind(h, s, 0, plan_input(h, DEFT_I64, at, N), 0, 1, 0, 0);
    plan_bind(h, s, 1, plan_input(h, DEFT_F32, table, 10), 0, 0, 0, 0);
    plan_bind(h, s, 2, plan_root(h, DEFT_F32, N), 0, 1, 0, 0);
    plan_launch(h, 1);
    cr_assert_eq(plan_run(dev, h), DEFT_OK);
    drop_roots(h);
    at[N - 5] = 12;
    cr_expect_eq(plan_run(dev, h), DEFT_E_RANGE);
    cr_expect_str_eq(h->d.text, "take: index 12 is outside [0,10) (%2)");
    cr_expect_null(h->root[0]);
    at[N - 5] = 3;
    cr_expect_eq(plan_run(dev, h), DEFT_OK, "a fault does not stay");
    plan_free(dev, h);
    cr_expect_eq(df_allocator_read(dev->allocator).live_bytes, 0);
    df_cpu_destroy(&dev);
}

typedef struct stopper {
    int n_asked, stop_at;
} stopper;

static bool stop(void *user)
{
    stopper *const s = user;
    return ++s->n_asked == s->stop_at;
}

Test(runtime, interrupts_are_asked_while_they_can_be_undone)
{
    df_device *dev = make_cpu(&df_mem_system, 1, DF_TIER_INTERP, NULL);
    float *const x = random_floats(100, 1);
    for (int variant = 0; variant < 3; variant++) {
        hand_plan *const h = plan_axpy(x, 100);
        stopper s = { 0, variant == 2 ? 1 : 2 };
        float out[100];
        h->io.interrupted = stop;
        h->io.user = &s;
        if (variant == 1) { /* the first launch writes the caller's memory: no way back */
            h->inputs[h->t.n_inputs] = (df_input){ .data = out, .bytes = sizeof out };
            h->bufs[2] = (df_plan_buf){ .kind = DF_BUF_INTO,
                                        .index = h->t.n_inputs++,
                                        .dtype = DEFT_F32,
                                        .numel = h->bufs[0].numel,
                                        .donor = DF_NONE,
                                        .over = DF_NO_BUF };
        }
        cr_expect_eq(plan_run(dev, h), variant == 1 ? DEFT_OK : DEFT_E_INTERRUPTED);
        cr_expect_eq(s.n_asked, variant == 0 ? 2 : 1);
        cr_expect_eq(h->root[0] != NULL, variant == 1);
        if (variant == 1) cr_expect_eq(out[3], x[3] * 3 + x[3]);
        plan_free(dev, h);
    }
    df_cpu_destroy(&dev);
    free(x);
}

/* Fails allocation 1, 2, 3 ... of making a device, preparing and running, until all succeed. */
Test(runtime, every_allocation_may_fail)
{
    float *const x = random_floats(30000, 1);
    size_t n = 1;
    for (bool done = false; !done; n++) {
        fail_mem *f = fail_mem_create();
        df_device *dev = NULL;
        df_diag d = { 0 };
        const df_cpu_options o = { .n_threads = 2, .tier = DF_TIER_INTERP };
        fail_mem_at(f, n, n % 2 == 0);
        deft_status st = df_cpu_create(&d, fail_mem_get(f), NULL, &o, &dev);
        if (st == DEFT_OK) {
            hand_plan *const h = plan_mixed(x, 10, 3000);
            st = plan_run(dev, h);
            if (st != DEFT_OK) {
                for (int i = 0; i < 16; i++) cr_assert_null(h->root[i]);
                cr_assert_neq(h->d.text[0], 0);
            }
            cr_assert(st == DEFT_OK || st == DEFT_E_MEMORY);
            done = st == DEFT_OK && fail_mem_count(f).failed == 0;
            fail_mem_at(f, 0, false);
            if (st != DEFT_OK)
                cr_assert_eq(plan_run(dev, h), DEFT_OK, "it works when memory is back");
            plan_free(dev, h);
        } else {
            cr_assert_null(dev);
        }
        df_cpu_destroy(&dev);
        cr_assert_eq(fail_mem_count(f).live_blocks, 0, "call %zu", n);
        cr_assert_eq(fail_mem_count(f).faults, 0, "call %zu: %s", n, fail_mem_fault(f));
        fail_mem_destroy(&f);
    }
    cr_expect_gt(n, 20);
    free(x);
}

/* ---- tiers ---- */

/* A compiler whose code interprets: it remembers each kernel it was given. */
typedef struct fake {
    df_compiler c;
    _Atomic int n_compiled, n_calls, n_released, n_o2, max_batch, n_gemm;
    _Atomic bool refuse, hold;
    uint32_t refuse_axes; /* refuses kernels with so many axes; 0: none */
} fake;

static const df_kernel *_Atomic fake_kernels[4]; /* per entry point */
static _Atomic int fake_runs[4], fake_slots;
static _Atomic int64_t fake_least_rows, fake_least_lanes; /* of any call; 0: there was none */

static void note_least(_Atomic int64_t *least, int64_t n)
{
    int64_t was = atomic_load(least);
    while ((was == 0 || n < was) && !atomic_compare_exchange_weak(least, &was, n)) {
    }
}

static void fake_main(int k, const df_kargs *a, int64_t o0, int64_t o1, int64_t i0, int64_t i1)
{
    const df_kernel *const kernel = atomic_load(&fake_kernels[k]);
    void *const work = aligned_alloc(64, (df_interp_work_size(kernel) + 63) & ~(size_t)63);
    atomic_fetch_add(&fake_runs[k], 1);
    note_least(&fake_least_rows, o1 - o0);
    note_least(&fake_least_lanes, i1 - i0);
    df_interp_main(kernel, work, a, o0, o1, i0, i1);
    free(work);
}

#define FAKE(k)                                                                                    \
    static void fake_main_##k(const df_kargs *a, int64_t o0, int64_t o1, int64_t i0, int64_t i1)   \
    {                                                                                              \
        fake_main(k, a, o0, o1, i0, i1);                                                           \
    }                                                                                              \
    _Static_assert(k < 4, "takes the semicolon")

FAKE(0);
FAKE(1);
FAKE(2);
FAKE(3);

static const df_kernel_fn fake_fns[] = { fake_main_0, fake_main_1, fake_main_2, fake_main_3 };

static deft_status fake_compile(void *self, df_diag *d, const df_kernel *const *k, uint32_t n,
                                df_opt level, df_code *out)
{
    fake *const f = self;
    atomic_fetch_add(&f->n_calls, 1);
    while (atomic_load(&f->hold)) sched_yield();
    if ((int)n > atomic_load(&f->max_batch)) atomic_store(&f->max_batch, (int)n);
    for (uint32_t i = 0; i < n; i++)
        if (atomic_load(&f->refuse) || k[i]->n_axes == f->refuse_axes)
            return df_fail(d, DEFT_E_COMPILE, "fake: refused");
    for (uint32_t i = 0; i < n; i++) {
        const int at = atomic_fetch_add(&fake_slots, 1) % 4;
        atomic_store(&fake_kernels[at], k[i]);
        out[i] = (df_code){ .main = fake_fns[at], .bytes = 100, .owner = (void *)fake_fns };
        atomic_fetch_add(&f->n_compiled, 1);
        if (level == DF_OPT_O2) atomic_fetch_add(&f->n_o2, 1);
    }
    return DEFT_OK;
}

static void fake_release(void *self, df_code *code)
{
    if (code->owner != (void *)fake_fns) abort();
    atomic_fetch_add(&((fake *)self)->n_released, 1);
}

static deft_status fake_gemm(void *self, df_diag *d, deft_dtype t, df_gemm_kernel *out)
{
    fake *const f = self;
    atomic_fetch_add(&f->n_gemm, 1);
    while (atomic_load(&f->hold)) sched_yield();
    if (t == DEFT_F64) return df_fail(d, DEFT_E_COMPILE, "fake: none");
    *out = (df_gemm_kernel){ .mr = 1, .nr = 1 };
    return DEFT_OK;
}

static void fake_init(fake *f)
{
    memset(f, 0, sizeof *f);
    f->c = (df_compiler){ .name = "fake",
                          .self = f,
                          .vector_bytes = 64,
                          .compile = fake_compile,
                          .gemm = fake_gemm,
                          .release = fake_release };
}

Test(runtime, auto_interprets_then_runs_code)
{
    fake f;
    float *const x = random_floats(100, 1);
    fake_init(&f);
    atomic_store(&f.hold, true);
    df_device *dev = make_cpu(&df_mem_system, 1, DF_TIER_AUTO, &f.c);
    hand_plan *const h = plan_axpy(x, 100);
    cr_assert_eq(plan_run(dev, h), DEFT_OK);
    cr_expect_eq(h->stats.interpreted_segments, 2, "small: not worth waiting");
    drop_roots(h);
    atomic_store(&f.hold, false);
    df_tiers_wait_idle(df_cpu_tiers(dev));
    cr_expect_eq(atomic_load(&f.n_compiled), 1);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(plan_run(dev, h), DEFT_OK);
        cr_expect_eq(h->stats.interpreted_segments, 0);
        drop_roots(h);
        df_tiers_wait_idle(df_cpu_tiers(dev));
    }
    cr_expect_eq(atomic_load(&f.n_compiled), 2, "O0, then once O2");
    cr_expect_eq(atomic_load(&f.n_o2), 1);
    hand_plan *const again = plan_axpy(x, 50);
    cr_assert_eq(plan_run(dev, again), DEFT_OK);
    cr_expect_eq(again->stats.interpreted_segments, 0);
    const df_tier_stats s = df_tiers_read(df_cpu_tiers(dev));
    cr_expect_eq(s.kernels, 1);
    cr_expect_eq(s.hits, 1);
    cr_expect_eq(s.compiled, 2);
    plan_free(dev, h);
    plan_free(dev, again);
    df_cpu_destroy(&dev);
    cr_expect_eq(atomic_load(&f.n_released), 2);
    free(x);
}

Test(runtime, large_work_waits_for_the_compiler)
{
    fake f;
    const int64_t n = 4 << 20;
    float *const x = random_floats((size_t)n, 1);
    fake_init(&f);
    df_device *dev = make_cpu(&df_mem_system, 2, DF_TIER_AUTO, &f.c);
    hand_plan *const h = plan_axpy(x, n);
    cr_assert_eq(plan_run(dev, h), DEFT_OK);
    cr_expect_eq(h->stats.interpreted_segments, 0);
    plan_free(dev, h);
    df_cpu_destroy(&dev);
    free(x);
}

/* A product does not wait for its micro-kernel in AUTO, and is not compiled for twice. */
Test(runtime, products_wait_for_no_micro_kernel)
{
    static const df_tier tiers[] = { DF_TIER_AUTO, DF_TIER_O0, DF_TIER_O2 };
    for (size_t k = 0; k < DF_LEN(tiers); k++) {
        const df_tier tier = tiers[k];
        if (tier == DF_TIER_AUTO && df_tiles_pick(DEFT_F32) == &df_tiles_base_f32) continue;
        fake f;
        df_seg seg = { .kind = DF_SEG_MATMUL, .dtype = DEFT_F32 };
        df_plan p = { .segs = &seg, .n_segs = 1 };
        fake_init(&f);
        atomic_store(&f.hold, tier == DF_TIER_AUTO);
        df_device *dev = make_cpu(&df_mem_system, 1, tier, &f.c);
        for (int i = 0; i < 3; i++) {
            cr_assert_eq(dev->prepare(dev, NULL, &p, NULL), DEFT_OK);
            dev->release(dev, &p);
            if (tier != DF_TIER_AUTO) cr_expect_eq(atomic_load(&f.n_gemm), 1);
        }
        seg.dtype = DEFT_F64;
        cr_assert_eq(dev->prepare(dev, NULL, &p, NULL), DEFT_OK);
        dev->release(dev, &p);
        cr_expect_leq(atomic_load(&f.n_gemm), tier == DF_TIER_AUTO ? 1 : 2);
        atomic_store(&f.hold, false);
        df_tiers_wait_idle(df_cpu_tiers(dev));
        cr_expect_eq(atomic_load(&f.n_gemm), 2, "once for each dtype");
        df_cpu_destroy(&dev);
    }
}

static void *release_later(void *user)
{
    usleep(20000);
    atomic_store((_Atomic bool *)user, false);
    return NULL;
}

Test(runtime, a_device_may_end_while_a_micro_kernel_is_made)
{
    if (df_tiles_pick(DEFT_F32) == &df_tiles_base_f32) cr_skip_test();
    fake f;
    pthread_t t;
    df_seg seg = { .kind = DF_SEG_MATMUL, .dtype = DEFT_F32 };
    df_plan p = { .segs = &seg, .n_segs = 1 };
    fake_init(&f);
    atomic_store(&f.hold, true);
    df_device *dev = make_cpu(&df_mem_system, 1, DF_TIER_AUTO, &f.c);
    cr_assert_eq(dev->prepare(dev, NULL, &p, NULL), DEFT_OK);
    dev->release(dev, &p);
    while (atomic_load(&f.n_gemm) == 0) sched_yield();
    cr_assert_eq(pthread_create(&t, NULL, release_later, &f.hold), 0);
    df_cpu_destroy(&dev);
    cr_expect_not(atomic_load(&f.hold), "the end waits for the compiler");
    pthread_join(t, NULL);
}

Test(runtime, waiting_tiers_compile_in_one_module_per_thread)
{
    float *const x = random_floats(5000, 1);
    for (int level = 0; level < 2; level++) {
        fake f;
        fake_init(&f);
        atomic_store(&fake_slots, 0);
        df_device *dev = make_cpu(&df_mem_system, 2, level ? DF_TIER_O2 : DF_TIER_O0, &f.c);
        hand_plan *const h = plan_mixed(x, 50, 100);
        cr_assert_eq(plan_run(dev, h), DEFT_OK);
        cr_expect_eq(h->stats.interpreted_segments, 0);
        cr_expect_eq(atomic_load(&f.n_calls), level ? 2 : 1);
        cr_expect_eq(atomic_load(&f.max_batch), level ? 2 : 4);
        cr_expect_eq(atomic_load(&f.n_o2), level ? 4 : 0);
        const float want = naive(DF_K_sum, x, 1, 5000);
        cr_expect_eq(*(float *)h->root[0]->data, want);
        plan_free(dev, h);
        df_cpu_destroy(&dev);
        cr_expect_eq(atomic_load(&f.n_released), 4);
    }
    free(x);
}

/* x = x / 2 + 1, n0 times, or while a counter is below n0; [rows, cols]. */
static hand_plan *plan_loop(float *x, int64_t rows, int64_t bound, int64_t cols, bool leaves)
{
    hand_plan *const h = plan_new();
    kb *const b = &h->own;
    kb_init(b, DF_MODE_LOOP, "ori", 2);
    b->k.n_num = 1;
    const uint32_t from = kb_access(b, DF_ACCESS_LOAD, DEFT_F32, "s01");
    const uint32_t to = kb_access(b, DF_ACCESS_STORE, DEFT_F32, "s01");
    const uint32_t x0 = kb_at(b, 0, DF_LEVEL_ROW, DF_K_load, DEFT_F32, 0, 0, 0, from);
    const uint32_t zero = kb_ins(b, DF_K_const, DEFT_I64, 0, 0, 0, 0);
    const uint32_t one = kb_ins(b, DF_K_const, DEFT_I64, 0, 0, 0, 1);
    const uint32_t half = kb_ins(b, DF_K_const, DEFT_F32, 0, 0, 0, F(0.5f));
    const uint32_t up = kb_ins(b, DF_K_const, DEFT_F32, 0, 0, 0, F(1));
    const uint32_t n = kb_ins(b, DF_K_num, DEFT_I64, 0, 0, 0, 0);
    const uint32_t i = kb_ins(b, DF_K_carry, DEFT_I64, zero, 0, 0, 0);
    const uint32_t v = kb_ins(b, DF_K_carry, DEFT_F32, x0, 0, 0, 0);
    const uint32_t less = kb_ins(b, DF_K_lt, DEFT_BOOL, i, n, 0, 0);
    if (leaves) kb_ins(b, DF_K_proceed, DEFT_BOOL, less, 0, 0, 0);
    kb_ins(b, DF_K_next, DEFT_I64, i, kb_ins(b, DF_K_add, DEFT_I64, i, one, 0, 0), 0, 0);
    const uint32_t less_v = kb_ins(b, DF_K_mul, DEFT_F32, v, half, 0, 0);
    const uint32_t next = kb_ins(b, DF_K_add, DEFT_F32, less_v, up, 0, 0);
    const uint32_t last = kb_ins(b, DF_K_next, DEFT_F32, v, next, 0, 0);
    kb_at(b, 1, DF_LEVEL_ROW, DF_K_store, DEFT_F32, last, 0, 0, to);
    plan_kernel(h, b);
    const df_buf in = plan_input(h, DEFT_F32, x, rows * cols);
    const df_buf out = plan_root(h, DEFT_F32, rows * cols);
    df_seg *const s = plan_seg(h, 0, rows, bound, cols);
    h->num[0][0] = 0;
    h->num_dtype[0][0] = DEFT_I64;
    plan_bind(h, s, 0, in, 0, cols, 0, 1);
    plan_bind(h, s, 1, out, 0, cols, 0, 1);
    plan_launch(h, 1);
    return h;
}

static void expect_loop(const hand_plan *h, const float *x, int64_t n, int64_t count)
{
    const float *const y = h->root[0]->data;
    for (int64_t i = 0; i < n; i++) {
        float v = x[i];
        for (int64_t t = 0; t < count; t++) v = v * 0.5f + 1;
        cr_assert_eq(y[i], v, "element %lld", (long long)i);
    }
}

static int count_runs(void)
{
    int n = 0;
    for (int i = 0; i < 4; i++) n += atomic_exchange(&fake_runs[i], 0);
    return n;
}

/* Rows and INNER are cut, iterations never; a bound is no estimate. */
Test(runtime, loops_are_cut_by_rows_and_lanes)
{
    static const struct {
        int64_t rows, bound, cols;
        bool leaves;
        int least, most; /* items on three threads */
    } cases[] = {
        { 1, 1000, 5000, false, 8, 24 },     { 40, 1000, 100, false, 8, 24 },
        { 1, INT64_MAX, 5000, true, 8, 24 }, { 1, 100000, 1, false, 1, 1 },
        { 4, 30000, 1, false, 4, 4 },        { 4, INT64_MAX, 0, true, 0, 0 },
        { 2, INT64_MAX, 3, true, 1, 1 },     { 3, 0, 7, false, 1, 1 },
    };
    for (size_t c = 0; c < LEN(cases); c++) {
        const int64_t n = cases[c].rows * cases[c].cols;
        float *const x = random_floats((size_t)n, c);
        fake f;
        fake_init(&f);
        df_device *dev = make_cpu(&df_mem_system, 3, DF_TIER_O2, &f.c);
        hand_plan *const h =
            plan_loop(x, cases[c].rows, cases[c].bound, cases[c].cols, cases[c].leaves);
        h->args[0] = 9;
        count_runs();
        cr_assert_eq(plan_run(dev, h), DEFT_OK, "%s", h->d.text);
        const int n_runs = count_runs();
        cr_expect(n_runs >= cases[c].least && n_runs <= cases[c].most, "case %zu: %d", c, n_runs);
        expect_loop(h, x, n, cases[c].leaves ? 9 : cases[c].bound);
        plan_free(dev, h);
        df_cpu_destroy(&dev);
        free(x);
    }
}

/* y = x' for `rows` rows of `lanes` elements. */
static hand_plan *plan_transpose(float *x, int64_t rows, int64_t lanes)
{
    hand_plan *const h = plan_new();
    kb *const b = &h->own;
    kb_init(b, DF_MODE_MAP, "oi", 1);
    const uint32_t from = kb_access(b, DF_ACCESS_LOAD, DEFT_F32, "1*");
    const uint32_t to = kb_access(b, DF_ACCESS_STORE, DEFT_F32, "*1");
    const uint32_t v = kb_ins(b, DF_K_load, DEFT_F32, 0, 0, 0, from);
    kb_ins(b, DF_K_store, DEFT_F32, v, 0, 0, to);
    plan_kernel(h, b);
    const df_buf in = plan_input(h, DEFT_F32, x, rows * lanes);
    const df_buf out = plan_root(h, DEFT_F32, rows * lanes);
    df_seg *const s = plan_seg(h, 0, rows, lanes, 0);
    plan_bind(h, s, 0, in, 0, 1, rows, 0);
    plan_bind(h, s, 1, out, 0, lanes, 1, 0);
    plan_launch(h, 1);
    return h;
}

/* Fewer rows than a strip are transposed element by element. */
Test(runtime, transposed_operands_are_cut_into_strips_of_rows)
{
    static const struct {
        int64_t rows, lanes, least_rows, least_lanes;
        int least, most; /* calls on two threads */
    } cases[] = {
        { 16, 200000, 16, 512, 8, 16 },  { 3, 1000000, 3, 512, 8, 16 },
        { 31, 100000, 31, 512, 8, 16 },  { 40, 80000, 16, 512, 8, 20 },
        { 250, 12000, 16, 4000, 8, 16 }, { 1000, 3001, 32, 3001, 8, 16 },
    };
    for (size_t c = 0; c < LEN(cases); c++) {
        const int64_t rows = cases[c].rows, lanes = cases[c].lanes;
        float *const x = random_floats((size_t)(rows * lanes), c);
        fake f;
        fake_init(&f);
        df_device *dev = make_cpu(&df_mem_system, 2, DF_TIER_O2, &f.c);
        hand_plan *const h = plan_transpose(x, rows, lanes);
        count_runs();
        atomic_store(&fake_least_rows, 0);
        atomic_store(&fake_least_lanes, 0);
        cr_assert_eq(plan_run(dev, h), DEFT_OK, "%s", h->d.text);
        const int n = count_runs();
        cr_expect(n >= cases[c].least && n <= cases[c].most, "case %zu: %d", c, n);
        cr_expect_geq(atomic_load(&fake_least_rows), cases[c].least_rows, "case %zu", c);
        cr_expect_geq(atomic_load(&fake_least_lanes), cases[c].least_lanes, "case %zu", c);
        const float *const y = h->root[0]->data;
        for (int64_t i = 0; i < rows * lanes; i++)
            cr_assert_eq(y[i], x[i % lanes * rows + i / lanes], "element %lld", (long long)i);
        plan_free(dev, h);
        df_cpu_destroy(&dev);
        free(x);
    }
}

/* A loop of few lanes that may end soon is not waited for. */
Test(runtime, loops_of_unknown_length_begin_at_once)
{
    fake f;
    float *const x = random_floats(40, 1);
    fake_init(&f);
    atomic_store(&f.hold, true);
    df_device *dev = make_cpu(&df_mem_system, 1, DF_TIER_AUTO, &f.c);
    hand_plan *const h = plan_loop(x, 1, INT64_MAX, 40, true);
    h->args[0] = 50;
    cr_assert_eq(plan_run(dev, h), DEFT_OK);
    cr_expect_eq(h->stats.interpreted_segments, 1);
    expect_loop(h, x, 40, 50);
    atomic_store(&f.hold, false);
    for (int i = 0; i < 4; i++) {
        drop_roots(h);
        df_tiers_wait_idle(df_cpu_tiers(dev));
        cr_assert_eq(plan_run(dev, h), DEFT_OK);
        cr_expect_eq(h->stats.interpreted_segments, 0);
    }
    cr_expect_eq(atomic_load(&f.n_compiled), 2);
    plan_free(dev, h);
    df_cpu_destroy(&dev);
    free(x);
}

/* One that will run long has O2 at its first launch, however little it is for the interpreter. */
Test(runtime, long_loops_wait_for_o2)
{
    static const int64_t lengths[] = { 100, 20000, 2000000 };
    float *const x = random_floats(1, 1);
    for (int i = 0; i < 3; i++) {
        fake f;
        fake_init(&f);
        atomic_store(&f.hold, i == 0);
        df_device *dev = make_cpu(&df_mem_system, 1, DF_TIER_AUTO, &f.c);
        hand_plan *const h = plan_loop(x, 1, lengths[i], 1, false);
        cr_assert_eq(plan_run(dev, h), DEFT_OK);
        cr_expect_eq(h->stats.interpreted_segments, i == 0);
        cr_expect_eq(atomic_load(&f.n_o2), i == 2, "%lld iterations", (long long)lengths[i]);
        expect_loop(h, x, 1, lengths[i]);
        atomic_store(&f.hold, false);
        plan_free(dev, h);
        df_cpu_destroy(&dev);
    }
    free(x);
}

static void count_line(void *user, const char *topic, const char *line)
{
    (void)line;
    if (strcmp(topic, "error") == 0) ++*(int *)user;
}

Test(runtime, a_refused_kernel_is_interpreted_and_told_once)
{
    float *const x = random_floats(5000, 1);
    for (int variant = 0; variant < 2; variant++) {
        fake f;
        df_log log;
        int n_lines = 0;
        df_device *dev = NULL;
        fake_init(&f);
        atomic_store(&fake_slots, 0);
        df_log_init(&log, "error", count_line, &n_lines);
        atomic_store(&f.refuse, variant == 0);
        f.refuse_axes = variant ? 1 : 0; /* only the map */
        const df_cpu_options o = { .n_threads = 1, .tier = DF_TIER_O2, .compiler = &f.c };
        cr_assert_eq(df_cpu_create(NULL, &df_mem_system, &log, &o, &dev), DEFT_OK);
        hand_plan *const h = plan_mixed(x, 50, 100);
        cr_assert_eq(plan_run(dev, h), DEFT_OK);
        cr_expect_eq(h->stats.interpreted_segments, variant ? 4 : 7);
        cr_expect_eq(*(float *)h->root[0]->data, naive(DF_K_sum, x, 1, 5000));
        cr_expect_eq(n_lines, 1);
        cr_expect_eq(df_tiers_read(df_cpu_tiers(dev)).failed, variant ? 1 : 4);
        hand_plan *const other = plan_new();
        kb_init(&other->own, DF_MODE_MAP, "i", 1);
        plan_kernel(other, &other->own);
        f.refuse_axes = 1;
        cr_assert_eq(plan_run(dev, other), DEFT_OK);
        cr_expect_eq(df_tiers_read(df_cpu_tiers(dev)).failed, variant ? 2 : 5);
        cr_expect_eq(n_lines, 1);
        plan_free(dev, other);
        plan_free(dev, h);
        df_cpu_destroy(&dev);
    }
    free(x);
}

/* The store is small: old kernels leave, those a plan holds stay usable. */
Test(runtime, kernels_nobody_holds_are_evicted)
{
    fake f;
    df_device *dev = NULL;
    float x[10] = { 1, 2, 3 };
    fake_init(&f);
    const df_cpu_options o = {
        .n_threads = 1, .tier = DF_TIER_O0, .compiler = &f.c, .max_code = 20000
    };
    cr_assert_eq(df_cpu_create(NULL, &df_mem_system, NULL, &o, &dev), DEFT_OK);
    hand_plan *held = NULL;
    for (uint32_t i = 0; i < 20; i++) {
        hand_plan *const h = plan_new();
        static kb b[20];
        build_axpy(&b[i]);
        kb_ins(&b[i], DF_K_const, DEFT_F32, 0, 0, 0, i); /* makes it another kernel */
        plan_kernel(h, &b[i]);
        const df_buf in = plan_input(h, DEFT_F32, x, 10);
        bind_axpy(h, in, in, plan_root(h, DEFT_F32, 10), 10, 0);
        h->args[0] = (int64_t)F(1);
        plan_launch(h, 1);
        cr_assert_eq(plan_run(dev, h), DEFT_OK);
        cr_expect_eq(((float *)h->root[0]->data)[2], 6);
        if (i == 0)
            held = h;
        else
            plan_free(dev, h);
    }
    const df_tier_stats s = df_tiers_read(df_cpu_tiers(dev));
    cr_expect_eq(s.kernels, 20);
    cr_expect_gt(s.evicted, 10);
    cr_expect_geq(atomic_load(&f.n_released), (int)s.evicted - 1);
    plan_free(dev, held);
    df_cpu_destroy(&dev);
    cr_expect_eq(atomic_load(&f.n_released), 20);
}

/* ---- matmul ---- */

/* r = a b + num as an epilogue, tiles only or through c. */
Test(runtime, matmul_segments_run_their_epilogue)
{
    enum { M = 37, N = 29, K = 50, B = 2 };
    static float a[B * M * K], b[B * K * N], want[B * M * N];
    for (int i = 0; i < B * M * K; i++) a[i] = (float)(i % 17) * 0.25f;
    for (int i = 0; i < B * K * N; i++) b[i] = (float)(i % 13) - 6;
    for (int t = 0; t < B; t++)
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                float acc = 0;
                for (int k = 0; k < K; k++)
                    acc = fmaf(a[(t * M + i) * K + k], b[(t * K + k) * N + j], acc);
                want[(t * M + i) * N + j] = acc;
            }
    for (int variant = 0; variant < 3; variant++) { /* plain, epilogue over tiles, epilogue and c */
        kb e;
        df_device *dev = make_cpu(&df_mem_system, 3, DF_TIER_INTERP, NULL);
        hand_plan *const h = plan_new();
        kb_init(&e, DF_MODE_MAP, "ooi", 1);
        const uint32_t c = kb_ins(&e, DF_K_load, DEFT_F32, 0, 0, 0,
                                  kb_access(&e, DF_ACCESS_LOAD, DEFT_F32, "ss1"));
        const uint32_t n = kb_ins(&e, DF_K_num, DEFT_F32, 0, 0, 0, 0);
        const uint32_t y = kb_ins(&e, DF_K_add, DEFT_F32, c, n, 0, 0);
        kb_ins(&e, DF_K_store, DEFT_F32, y, 0, 0, kb_access(&e, DF_ACCESS_STORE, DEFT_F32, "ss1"));
        e.k.n_num = 1;
        plan_kernel(h, &e);
        h->args[0] = (int64_t)F(0.5f);
        df_seg *const s = plan_seg(h, 0, B, M, N);
        s->kind = DF_SEG_MATMUL;
        s->dtype = s->a_dtype = s->b_dtype = DEFT_F32;
        s->n_batch = 1;
        s->m = slot(h, M), s->n = slot(h, N), s->k = slot(h, K), s->batch[0] = slot(h, B);
        const df_slot one = slot(h, 1), zero = slot(h, 0);
        s->a = (df_bind){ .buf = plan_input(h, DEFT_F32, a, B * M * K),
                          .offset = zero,
                          .stride = { slot(h, M * K), slot(h, K), one } };
        s->b = (df_bind){ .buf = plan_input(h, DEFT_F32, b, B * K * N),
                          .offset = zero,
                          .stride = { slot(h, K * N), slot(h, N), one } };
        s->c = (df_bind){ .buf = DF_NO_BUF,
                          .offset = zero,
                          .stride = { slot(h, M * N), slot(h, N), one } };
        if (variant != 1) s->c.buf = plan_root(h, DEFT_F32, B * M * N);
        s->c_access = 0;
        if (variant == 0) {
            s->kernel = DF_NO_KERN;
        } else {
            plan_bind(h, s, 1, plan_root(h, DEFT_F32, B * M * N), 0, M * N, N, 1);
        }
        plan_launch(h, 1);
        cr_assert_eq(plan_run(dev, h), DEFT_OK);
        for (uint32_t r = 0; r < h->p.n_roots; r++)
            for (int i = 0; i < B * M * N; i++)
                cr_assert_eq(((float *)h->root[r]->data)[i],
                             variant > 0 && r == h->p.n_roots - 1 ? want[i] + 0.5f : want[i],
                             "variant %d root %u at %d", variant, r, i);
        plan_free(dev, h);
        df_cpu_destroy(&dev);
    }
}

/* ---- null device ---- */

Test(runtime, null_device_records_and_fails)
{
    float *const x = random_floats(100, 1);
    df_device *dev = NULL;
    df_str text;
    cr_assert_eq(df_null_create(NULL, &df_mem_system, &(df_null_options){ .fail_run = 2 }, &dev),
                 DEFT_OK);
    hand_plan *h = plan_axpy(x, 100);
    cr_expect_eq(plan_run(dev, h), DEFT_OK);
    cr_expect_eq(((float *)h->root[0]->data)[5], 0, "nothing runs");
    drop_roots(h);
    cr_expect_eq(plan_run(dev, h), DEFT_E_BACKEND);
    cr_expect_null(h->root[0]);
    df_null_set(dev, &(df_null_options){ .interpret = true });
    cr_expect_eq(plan_run(dev, h), DEFT_OK);
    cr_expect_neq(((float *)h->root[0]->data)[5], 0);
    plan_free(dev, h);
    df_null_set(dev, &(df_null_options){ .fail_prepare = 1, .status = DEFT_E_COMPILE });
    h = plan_axpy(x, 100);
    cr_expect_eq(plan_run(dev, h), DEFT_E_COMPILE);
    plan_free(dev, h);
    df_str_init(&text, &df_mem_system);
    df_null_record(dev, &text);
    cr_expect_str_eq(text.at,
                     "prepare kernels=1 segs=2\nrun launches=2 segs=2 roots=1\nrun failed\n"
                     "run launches=2 segs=2 roots=1\nrelease\nprepare failed\nrelease\n");
    cr_expect_eq(df_null_read(dev).failures, 2);
    df_str_finish(&text);
    df_null_destroy(&dev);
    free(x);
}

/* ---- time by call site ---- */

Test(runtime, the_sites_that_took_most_time)
{
    df_spending top[3], all;
    df_spent *s = df_spent_create(&df_mem_system);
    cr_assert_not_null(s);
    cr_expect_eq(df_spent_top(s, top, 3, &all), 0);
    for (int round = 0; round < 2; round++)
        for (uint64_t i = 1; i <= 900; i++)
            df_spent_add(s, &(df_spending){ .site = 16 * i,
                                            .ops = "exp",
                                            .ns = i * 7 % 901, /* each number up to 900 once */
                                            .bytes = 2,
                                            .n = 1 });
    cr_assert_eq(df_spent_top(s, top, 3, &all), 3);
    for (uint64_t i = 0; i < 3; i++) {
        cr_expect_eq(top[i].ns, 2 * (900 - i));
        cr_expect_eq(top[i].site / 16 * 7 % 901, 900 - i);
        cr_expect(top[i].n == 2 && top[i].bytes == 4 && !strcmp(top[i].ops, "exp"));
    }
    cr_expect_eq(all.ns, 900 * 901);
    cr_expect_eq(all.n, 1800);
    /* More sites than there is room for: the rest is counted as unknown. */
    for (uint64_t i = 901; i <= 2000; i++)
        df_spent_add(s, &(df_spending){ .site = 16 * i, .ns = 1, .n = 1 });
    cr_expect_eq(df_spent_top(s, top, 3, &all), 3);
    cr_expect_eq(all.n, 1800 + 1100);
    df_spent_add(s, &(df_spending){ .site = 16 * 5000, .ns = 1 << 20, .n = 1 });
    cr_expect_eq(df_spent_top(s, top, 1, &all), 1);
    cr_expect_eq(top[0].site, 0);
    df_spent_destroy(&s);
    cr_expect_null(s);
}

/* ---- plug-in ---- */

Test(runtime, a_missing_plugin_is_a_sentence)
{
    df_diag d = { 0 };
    df_compiler c = { 0 };
    void *handle = NULL;
    unsetenv("DEFT_PLUGIN_DIR");
    cr_expect_eq(df_plugin_open(&d, &df_mem_system, NULL, "/nowhere", 0, &c, &handle),
                 DEFT_E_BACKEND);
    cr_expect_neq(strstr(d.text, "deft-llvm.so"), NULL, "%s", d.text);
    cr_expect_null(handle);
    df_plugin_close(&c, &handle);
}
