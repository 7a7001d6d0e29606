/* SPDX-License-Identifier: Apache-2.0
 *
 * See far.h. A run is done at once, by a CPU device in memory of its own; what is late is that its
 * results come into the GPU's memory. Work in a queue holds the memory that it reads and writes.
 */
#include "far.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/build_id.h"
#include "runtime/cpu.h"

enum { MOST_GPUS = 4, ALIGN = 256 };

/* From this bit on, an address names its GPU. Addresses of 32 bits have no bits that are always 0,
 * so tests with these GPUs do not run there. */
enum { TAG_SHIFT = sizeof(void *) == 8 ? 48 : 29 };

typedef struct block {
    struct block *next; /* of its GPU */
    char *at;           /* as the host has it */
    void *raw;
    size_t bytes, size;
    const df_mem *mem; /* NULL: the test's */
    uint32_t refs;
} block;

typedef struct far {
    df_device dev; /* first: a device is its far */
    const df_mem *mem;
    df_device *cpu;
    df_buffer_owner home;
    int ordinal;
    _Atomic int32_t n_plans; /* prepared and not released */
    char name[32];
    df_allocator_stats stats;
} far;

typedef struct far_buffer {
    df_buffer b; /* first */
    far *f;
    block *k;
    bool is_ours; /* counted: it wraps no memory */
} far_buffer;

typedef struct op {
    struct op *next;
    block *to_block, *from_block; /* held; from_block NULL: from taken */
    char *to;
    const char *from;
    size_t n;
    char *taken; /* owned, of n bytes; or */
    df_buffer *made;
} op;

struct df_queue {
    far *f;
    void *theirs;
    op *first, **last;
};

static far_controls controls;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *blocks[MOST_GPUS];

static void die(const char *what, const void *at)
{
    fprintf(stderr, "far: %s: %p\n", what, at);
    abort();
}

/* ---- memory ---- */

static void *far_address(int ordinal, const char *at)
{
    return (void *)((uintptr_t)at + ((uintptr_t)(ordinal + 1) << TAG_SHIFT));
}

static char *near_address(const void *at)
{
    return (char *)((uintptr_t)at & (((uintptr_t)1 << TAG_SHIFT) - 1));
}

static block *block_create(const df_mem *mem, int ordinal, size_t bytes)
{
    const size_t size = bytes + ALIGN;
    block *const k = mem ? df_mem_zalloc(mem, sizeof *k) : calloc(1, sizeof *k);
    void *const raw = mem ? df_mem_alloc(mem, size) : malloc(size);
    if (!k || !raw) {
        if (!mem) abort();
        df_mem_free(mem, k, sizeof *k);
        df_mem_free(mem, raw, size);
        return NULL;
    }
    memset(raw, 0xA5, size);
    *k = (block){ .raw = raw, .bytes = bytes, .size = size, .mem = mem, .refs = 1 };
    k->at = (char *)(((uintptr_t)raw + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1));
    pthread_mutex_lock(&lock);
    k->next = blocks[ordinal];
    blocks[ordinal] = k;
    pthread_mutex_unlock(&lock);
    return k;
}

static block *hold(block *k)
{
    pthread_mutex_lock(&lock);
    k->refs++;
    pthread_mutex_unlock(&lock);
    return k;
}

static void drop(int ordinal, block *k)
{
    pthread_mutex_lock(&lock);
    const bool last = --k->refs == 0;
    block **at = &blocks[ordinal];
    while (last && *at != k) at = &(*at)->next;
    if (last) *at = k->next;
    pthread_mutex_unlock(&lock);
    if (!last) return;
    const df_mem *const mem = k->mem;
    if (mem) {
        df_mem_free(mem, k->raw, k->size);
        df_mem_free(mem, k, sizeof *k);
    } else {
        free(k->raw);
        free(k);
    }
}

/* The block that [at, at + n) lies in; NULL: none does. */
static block *find(int ordinal, const void *at, size_t n)
{
    if ((uintptr_t)at >> TAG_SHIFT != (uintptr_t)ordinal + 1) return NULL;
    const char *const p = near_address(at);
    pthread_mutex_lock(&lock);
    block *k = blocks[ordinal];
    while (k && !(p >= k->at && p + n <= k->at + k->bytes)) k = k->next;
    pthread_mutex_unlock(&lock);
    return k;
}

static block *must_find(const far *f, const void *at, size_t n, const char *what)
{
    block *const k = find(f->ordinal, at, n);
    if (!k) die(what, at);
    return k;
}

static void count(far *f, int64_t bytes)
{
    pthread_mutex_lock(&lock);
    f->stats.live_bytes += (uint64_t)bytes;
    if (f->stats.live_bytes > f->stats.peak_bytes) f->stats.peak_bytes = f->stats.live_bytes;
    if (bytes > 0) f->stats.requests++;
    pthread_mutex_unlock(&lock);
}

static void release_buffer(df_buffer *b)
{
    far_buffer *const fb = (far_buffer *)(void *)b;
    far *const f = fb->f;
    if (fb->is_ours) count(f, -b->bytes);
    drop(f->ordinal, fb->k);
    df_mem_free(f->mem, fb, sizeof *fb);
}

static deft_status make_buffer(far *f, df_diag *d, DEFT_OWN block *k, void *data, int64_t bytes,
                               df_buffer **out)
{
    far_buffer *const fb = k ? df_mem_zalloc(f->mem, sizeof *fb) : NULL;
    if (!fb) {
        if (k) drop(f->ordinal, k);
        return df_fail(d, DEFT_E_MEMORY, "far: no memory for %lld bytes", (long long)bytes);
    }
    fb->b = (df_buffer){ .data = data, .bytes = bytes, .home = &f->home };
    atomic_init(&fb->b.refs, 1);
    fb->f = f;
    fb->k = k;
    *out = &fb->b;
    return DEFT_OK;
}

/* ---- failing when asked ---- */

static deft_status may_fail(df_diag *d, const char *what)
{
    if (++controls.n_calls != controls.fail_call) return DEFT_OK;
    const deft_status st = controls.status ? controls.status : DEFT_E_BACKEND;
    return df_fail(d, st, "far: %s fails as asked", what);
}

static deft_status may_lack(df_diag *d)
{
    if (++controls.n_buffers == controls.fail_buffer)
        return df_fail(d, DEFT_E_MEMORY, "far: a buffer fails as asked");
    return may_fail(d, "buffer");
}

static deft_status may_fail_late(df_diag *d)
{
    if (++controls.n_waits == controls.fail_wait)
        return df_fail(d, DEFT_E_BACKEND, "far: a launch has failed, as asked");
    return may_fail(d, "wait");
}

/* ---- queues ---- */

static void do_op(struct df_queue *q, op *o)
{
    const df_mem *const mem = q->f->mem;
    const char *from = o->taken;
    if (o->made) from = o->made->data;
    if (o->from_block) from = o->from;
    if (o->n) memmove(o->to, from, o->n);
    df_buffer_drop(&o->made);
    df_mem_free(mem, o->taken, o->taken ? o->n : 0);
    if (o->from_block) drop(q->f->ordinal, o->from_block);
    drop(q->f->ordinal, o->to_block);
    df_mem_free(mem, o, sizeof *o);
}

static void drain(struct df_queue *q)
{
    while (q->first) {
        op *const o = q->first;
        q->first = o->next;
        if (!q->first) q->last = &q->first;
        do_op(q, o);
    }
}

static void add(struct df_queue *q, op *o)
{
    *q->last = o;
    q->last = &o->next;
}

/* An op that writes [to, to + n); taken: with room for those bytes. */
static op *op_create(struct df_queue *q, void *to, size_t n, bool taken)
{
    const df_mem *const mem = q->f->mem;
    op *const o = df_mem_zalloc(mem, sizeof *o);
    if (!o) return NULL;
    if (taken && n && !(o->taken = df_mem_alloc(mem, n))) {
        df_mem_free(mem, o, sizeof *o);
        return NULL;
    }
    o->to = near_address(to);
    o->n = n;
    o->to_block = hold(must_find(q->f, to, n, "written outside its memory"));
    return o;
}

static deft_status no_room(df_diag *d)
{
    return df_fail(d, DEFT_E_MEMORY, "far: no memory for what is put in");
}

static deft_status queue_create(df_device *dev, df_diag *d, void *theirs, struct df_queue **out)
{
    far *const f = (far *)(void *)dev;
    const deft_status st = may_fail(d, "queue");
    if (st != DEFT_OK) return st;
    struct df_queue *const q = df_mem_zalloc(f->mem, sizeof *q);
    if (!q) return no_room(d);
    q->f = f;
    q->theirs = controls.theirs = theirs;
    q->last = &q->first;
    *out = q;
    return DEFT_OK;
}

static void queue_destroy(df_device *dev, struct df_queue **q)
{
    far *const f = (far *)(void *)dev;
    if (!*q) return;
    if ((*q)->f != f) die("another device's queue", *q);
    drain(*q);
    df_mem_free(f->mem, *q, sizeof **q);
    *q = NULL;
}

static deft_status wait(df_device *dev, df_diag *d, struct df_queue *q)
{
    if ((df_device *)q->f != dev) die("another device's queue", q);
    drain(q);
    return may_fail_late(d);
}

static void *stream(df_device *dev, struct df_queue *q)
{
    (void)dev;
    return q->theirs ? q->theirs : q;
}

static deft_status create(df_device *dev, df_diag *d, struct df_queue *q, int64_t bytes,
                          df_buffer **out)
{
    far *const f = (far *)(void *)dev;
    const deft_status st = may_lack(d);
    if (st != DEFT_OK) return st;
    if (q->f != f) die("another device's queue", q);
    block *const k = block_create(f->mem, f->ordinal, (size_t)bytes);
    const deft_status made =
        make_buffer(f, d, k, k ? far_address(f->ordinal, k->at) : NULL, bytes, out);
    if (made == DEFT_OK) {
        ((far_buffer *)(void *)*out)->is_ours = true;
        count(f, bytes);
    }
    return made;
}

static deft_status wrap(df_device *dev, df_diag *d, void *data, int64_t bytes, df_buffer **out)
{
    far *const f = (far *)(void *)dev;
    block *const k = find(f->ordinal, data, (size_t)bytes);
    const deft_status st = may_fail(d, "wrap");
    if (st != DEFT_OK) return st;
    if (!k) return df_fail(d, DEFT_E_ARG, "far: %p is no memory of this GPU", data);
    return make_buffer(f, d, hold(k), data, bytes, out);
}

static deft_status put(df_device *dev, df_diag *d, struct df_queue *q, void *to, const void *from,
                       size_t bytes)
{
    (void)dev;
    const deft_status st = may_fail(d, "put");
    if (st != DEFT_OK) return st;
    op *const o = op_create(q, to, bytes, true);
    if (!o) return no_room(d);
    memcpy(o->taken, from, bytes);
    add(q, o);
    controls.n_puts++;
    controls.put_bytes += bytes;
    return DEFT_OK;
}

static deft_status get(df_device *dev, df_diag *d, struct df_queue *q, void *to, const void *from,
                       size_t bytes)
{
    const deft_status st = wait(dev, d, q);
    if (st != DEFT_OK) return st;
    must_find(q->f, from, bytes, "read outside its memory");
    memcpy(to, near_address(from), bytes);
    controls.n_gets++;
    controls.get_bytes += bytes;
    return DEFT_OK;
}

static deft_status copy(df_device *dev, df_diag *d, struct df_queue *q, void *to, const void *from,
                        size_t bytes)
{
    (void)dev;
    const deft_status st = may_fail(d, "copy");
    if (st != DEFT_OK) return st;
    op *const o = op_create(q, to, bytes, false);
    if (!o) return no_room(d);
    o->from_block = hold(must_find(q->f, from, bytes, "copied from outside its memory"));
    o->from = near_address(from);
    add(q, o);
    controls.n_copies++;
    return DEFT_OK;
}

static deft_status copy_peer(df_device *dev, df_diag *d, struct df_queue *q, void *to,
                             df_device *other, struct df_queue *others, const void *from,
                             size_t bytes)
{
    (void)dev;
    const deft_status st = may_fail(d, "copy_peer");
    if (st != DEFT_OK) return st;
    if ((df_device *)others->f != other || others->f == q->f) die("no peer's queue", others);
    op *const o = op_create(q, to, bytes, true);
    if (!o) return no_room(d);
    drain(others);
    must_find(others->f, from, bytes, "copied from outside its memory");
    memcpy(o->taken, near_address(from), bytes);
    add(q, o);
    controls.n_peers++;
    return DEFT_OK;
}

/* At once, on memory that nothing else is under way in. */
static deft_status work(df_device *dev, df_diag *d, struct df_queue *q, const df_work *w,
                        df_buffer **out)
{
    far *const f = (far *)(void *)dev;
    void **const at = df_mem_zalloc(f->mem, (w->n_out + 1) * sizeof *at);
    deft_status st = may_fail(d, "work");
    if (st == DEFT_OK && !at) st = no_room(d);
    drain(q);
    for (uint32_t i = 0; i < w->n_in; i++)
        must_find(f, w->in[i], 0, "an operand of work elsewhere");
    for (uint32_t i = 0; i < w->n_out && st == DEFT_OK; i++) {
        st = create(dev, d, q, w->out_bytes[i], &out[i]);
        if (st == DEFT_OK) at[i] = out[i]->data;
    }
    if (st == DEFT_OK) {
        controls.n_works++;
        st = w->fn(stream(dev, q), w->in, at, w->user);
        if (st != DEFT_OK) (void)df_fail(d, st, "%s: its function failed", w->name);
    }
    for (uint32_t i = 0; i < w->n_out && st != DEFT_OK; i++) df_buffer_drop(&out[i]);
    df_mem_free(f->mem, at, at ? (w->n_out + 1) * sizeof *at : 0);
    return st;
}

static df_allocator_stats read_stats(df_device *dev)
{
    pthread_mutex_lock(&lock);
    const df_allocator_stats s = ((far *)(void *)dev)->stats;
    pthread_mutex_unlock(&lock);
    return s;
}

static void trim(df_device *dev)
{
    (void)dev;
    controls.n_trims++;
}

static void settle(df_device *dev)
{
    (void)dev;
    controls.n_settles++;
}

static void destroy(df_device **dev)
{
    far *const f = (far *)(void *)*dev;
    *dev = NULL;
    if (f->stats.live_bytes) die("buffers are left", f);
    if (atomic_load(&f->n_plans)) die("plans are left", f);
    df_cpu_destroy(&f->cpu);
    df_mem_free(f->mem, f, sizeof *f);
}

/* ---- running ---- */

static deft_status prepare(df_device *dev, df_diag *d, df_plan *plan, df_waiter *w)
{
    far *const f = (far *)(void *)dev;
    const deft_status st = may_fail(d, "prepare");
    if (st != DEFT_OK) return st;
    const deft_status made = f->cpu->prepare(f->cpu, d, plan, w);
    if (made == DEFT_OK) atomic_fetch_add(&f->n_plans, 1);
    return made;
}

static void release(df_device *dev, df_plan *plan)
{
    far *const f = (far *)(void *)dev;
    f->cpu->release(f->cpu, plan);
    if (atomic_fetch_sub(&f->n_plans, 1) < 1) die("a plan of another device", plan);
}

/* As a real device would: the executor of the CPU never sees a buffer that it may take over. */
static df_buffer *donated(const df_plan *plan, const df_trace *t, const df_launch_io *io,
                          uint32_t root, int64_t bytes)
{
    const df_buf at = plan->n_parts ? DF_NO_BUF : plan->root_buf[root];
    if (at.i == DF_NONE || plan->bufs[at.i].kind != DF_BUF_ROOT) return NULL;
    const df_plan_buf *const buf = &plan->bufs[at.i];
    if (buf->donor == DF_NONE || buf->first < plan->n_checked || !io->input) return NULL;
    const df_input *const in = &t->inputs[buf->donor];
    df_buffer *const b = (df_buffer *)(uintptr_t)io->input[buf->donor];
    if (!(in->flags & DF_INPUT_SOLE) || in->flags & DF_INPUT_WRAPPED || !b) return NULL;
    return b->data == in->data && b->bytes >= bytes ? df_buffer_ref(b) : NULL;
}

typedef struct far_run {
    far *f;
    struct df_queue *q;
    df_trace t;
    df_buffer **made; /* per root, the CPU's */
    op **late;        /* per root */
    uint32_t n_roots;
} far_run;

/* The trace with addresses that the host can use. */
static deft_status translate(far_run *r, df_diag *d, const df_trace *t)
{
    r->t = *t;
    r->t.inputs = df_mem_zalloc(r->f->mem, (t->n_inputs + 1) * sizeof *t->inputs);
    if (!r->t.inputs) return no_room(d);
    for (uint32_t k = 0; k < t->n_inputs; k++) {
        int64_t low, bytes;
        df_input *const in = &r->t.inputs[k];
        *in = t->inputs[k];
        if (!in->data || !df_input_reach(t, k, &low, &bytes)) continue;
        if (bytes) must_find(r->f, (char *)in->data + low, (size_t)bytes, "input elsewhere");
        const size_t size = deft_dtype_size((deft_dtype)t->nodes[in->node].dtype);
        if ((uintptr_t)in->data % size != 0) die("input across elements", in->data);
        in->data = near_address(in->data);
    }
    return DEFT_OK;
}

static deft_status take_room(far_run *r, df_diag *d, const df_plan *plan, const df_trace *t,
                             const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < t->n_roots; i++) {
        const int64_t bytes = df_plan_root_bytes(plan, i, slots);
        if (bytes < 0) continue;
        io->root[i] = donated(plan, t, io, i, bytes);
        if (io->root[i])
            stats->donated++;
        else
            TRY(create(&r->f->dev, d, r->q, bytes, &io->root[i]));
        r->late[i] = op_create(r->q, io->root[i]->data, (size_t)bytes, false);
        if (!r->late[i]) TRY(no_room(d));
    }
done:
    return st;
}

static void undo(far_run *r, df_launch_io *io)
{
    for (uint32_t i = 0; i < r->n_roots; i++) {
        if (r->late && r->late[i]) {
            r->late[i]->n = 0;
            do_op(r->q, r->late[i]);
        }
        df_buffer_drop(&io->root[i]);
    }
}

static deft_status run(df_device *dev, df_diag *d, const df_plan *plan, const df_trace *t,
                       const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    far *const f = (far *)(void *)dev;
    far_run r = { .f = f, .q = io->queue, .n_roots = t->n_roots };
    const size_t n = t->n_roots + 1u;
    uint64_t n_donated;
    df_run_stats mine = { 0 };
    deft_status st = DEFT_OK;
    if (!r.q || r.q->f != f) die("run without its queue", r.q);
    drain(r.q);
    r.made = df_mem_zalloc(f->mem, n * sizeof *r.made);
    r.late = df_mem_zalloc(f->mem, n * sizeof *r.late);
    if (!r.made || !r.late) TRY(no_room(d));
    TRY(translate(&r, d, t));
    TRY(take_room(&r, d, plan, t, slots, io, &mine));
    TRY(may_fail(d, "run"));
    df_launch_io near = *io;
    near.root = r.made;
    near.input = NULL;
    near.queue = NULL;
    n_donated = mine.donated;
    TRY(f->cpu->run(f->cpu, d, plan, &r.t, slots, &near, &mine));
    mine.donated = n_donated;
    if (stats) *stats = mine;
    for (uint32_t i = 0; i < r.n_roots; i++) {
        if (!r.late[i]) continue;
        r.late[i]->made = r.made[i];
        r.made[i] = NULL;
        add(r.q, r.late[i]);
    }
    controls.n_runs++;
done:
    if (st != DEFT_OK) undo(&r, io);
    df_mem_free(f->mem, r.made, n * sizeof *r.made);
    df_mem_free(f->mem, r.late, n * sizeof *r.late);
    df_mem_free(f->mem, r.t.inputs, r.t.inputs ? (t->n_inputs + 1) * sizeof *t->inputs : 0);
    return st;
}

/* ---- entries ---- */

static const df_device_memory_ops far_calls = {
    .queue_create = queue_create,
    .queue_destroy = queue_destroy,
    .wait = wait,
    .stream = stream,
    .create = create,
    .wrap = wrap,
    .put = put,
    .get = get,
    .copy = copy,
    .copy_peer = copy_peer,
    .work = work,
    .read = read_stats,
    .trim = trim,
    .settle = settle,
    .destroy = destroy,
};

static void *test_alloc(int ordinal, size_t bytes)
{
    return far_address(ordinal, block_create(NULL, ordinal, bytes)->at);
}

static void test_release(void *at)
{
    const int ordinal = (int)((uintptr_t)at >> TAG_SHIFT) - 1;
    block *const k = find(ordinal, at, 0);
    if (!k) die("released twice", at);
    drop(ordinal, k);
}

static void *test_host_of(const void *at)
{
    return near_address(at);
}

#define EXPORTED __attribute__((visibility("default")))

EXPORTED far_controls *test_far_controls(void);
EXPORTED deft_status df_plugin_gpu(const df_host *h, const char *build_id, df_diag *d,
                                   const df_gpu_request *wish, df_device **out);
EXPORTED deft_status df_plugin_gpu_count(const df_host *h, const char *build_id, df_diag *d,
                                         int *out);

__attribute__((constructor)) static void set_up(void)
{
    controls = (far_controls){
        .n_gpus = 2, .alloc = test_alloc, .release = test_release, .host_of = test_host_of
    };
}

far_controls *test_far_controls(void)
{
    return &controls;
}

static bool is_ours(const df_host *h, const char *build_id)
{
    return h->size == sizeof *h && strcmp(build_id, DF_BUILD_ID) == 0;
}

deft_status df_plugin_gpu_count(const df_host *h, const char *build_id, df_diag *d, int *out)
{
    if (!is_ours(h, build_id)) return df_fail(d, DEFT_E_BACKEND, "far: another build");
    if (!controls.n_gpus) return df_fail(d, DEFT_E_BACKEND, "far: no GPU, as asked");
    *out = controls.n_gpus;
    return DEFT_OK;
}

deft_status df_plugin_gpu(const df_host *h, const char *build_id, df_diag *d,
                          const df_gpu_request *wish, df_device **out)
{
    static const df_cpu_options cpu = { .n_threads = 1, .tier = DF_TIER_INTERP };
    if (!is_ours(h, build_id)) return df_fail(d, DEFT_E_BACKEND, "far: another build");
    controls.waits = wish->waits;
    if (wish->ordinal >= controls.n_gpus)
        return df_fail(d, DEFT_E_ARG, "far: there are %d GPUs", controls.n_gpus);
    far *const f = df_mem_zalloc(h->mem, sizeof *f);
    if (!f) return no_room(d);
    const deft_status st = df_cpu_create(d, h->mem, NULL, &cpu, &f->cpu);
    if (st != DEFT_OK) {
        df_mem_free(h->mem, f, sizeof *f);
        return st;
    }
    f->mem = h->mem;
    f->ordinal = wish->ordinal;
    f->home = (df_buffer_owner){ &f->dev, release_buffer };
    snprintf(f->name, sizeof f->name, "cuda:%d (far)", wish->ordinal);
    f->dev = (df_device){ .name = f->name,
                          .limits = f->cpu->limits,
                          .prepare = prepare,
                          .run = run,
                          .release = release,
                          .far = &far_calls };
    *out = &f->dev;
    return DEFT_OK;
}
