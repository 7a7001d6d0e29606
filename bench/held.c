/* SPDX-License-Identifier: Apache-2.0
 *
 * See held.h. The driver's functions are its own addresses here, found when they are first looked
 * up (ifunc): nothing stands between a launch and the driver.
 */
#include "held.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "jit_cuda/driver/driver.h"

#define EXPORT __attribute__((visibility("default")))

enum { AT_LEAST = 0, DEVICE_MAPPED = 2, TIMED = 0 };

typedef df_cu_result wait_value_fn(df_cu_stream, df_cu_ptr, uint32_t, unsigned);

static struct {
    wait_value_fn *wait_value;
#define FIELD(field, symbol, parameters) df_cu_result(*field) parameters;
    DF_CU_REQUIRED(FIELD)
#undef FIELD
    df_cu_stream stream; /* NULL: nothing is held */
    df_cu_device device;
    df_cu_event begin, end;
    _Atomic uint32_t *word; /* pinned; the stream waits until it is `turn` */
    uint32_t turn;
    held sum;
    const char *why;
    atomic_bool is_late;
    pthread_t watch;
    long limit_ms;
    pthread_mutex_t lock; /* guards the rest, but while there is no watch */
    pthread_cond_t changed;
    bool is_holding, is_over;
    struct timespec limit;
} h = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* ---- the driver ---- */

static void *find(const char *symbol)
{
    static void *library;
    const char *const path = getenv("BENCH_CUDA_DRIVER");
    if (!library) library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, symbol) : NULL;
}

/* Data and function pointers have one representation here; C has no conversion between them. */
static bool find_into(void *fn, const char *symbol)
{
    void *const p = find(symbol);
    memcpy(fn, &p, sizeof p);
    return p != NULL;
}

static bool find_all(void)
{
    bool all = true;
    if (!find_into(&h.wait_value, "cuStreamWaitValue32_v2"))
        (void)find_into(&h.wait_value, "cuStreamWaitValue32");
#define FIND(field, symbol, parameters) all = find_into(&h.field, #symbol) && all;
    DF_CU_REQUIRED(FIND)
#undef FIND
    return all;
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- holding ---- */

static void must(df_cu_result r, const char *why)
{
    if (r && !h.why) h.why = why;
}

/* Lets go of what is held for too long, and of all turns to come. */
static void *watch(void *user)
{
    (void)user;
    pthread_mutex_lock(&h.lock);
    while (!h.is_over) {
        if (!h.is_holding)
            pthread_cond_wait(&h.changed, &h.lock);
        else if (pthread_cond_timedwait(&h.changed, &h.lock, &h.limit) == ETIMEDOUT)
            break;
    }
    if (!h.is_over) {
        atomic_store(&h.is_late, true);
        atomic_store(h.word, INT32_MAX);
    }
    pthread_mutex_unlock(&h.lock);
    return NULL;
}

static void tell_watch(bool is_holding, bool is_over)
{
    pthread_mutex_lock(&h.lock);
    (void)clock_gettime(CLOCK_REALTIME, &h.limit);
    h.limit.tv_sec += h.limit_ms / 1000;
    h.limit.tv_nsec += h.limit_ms % 1000 * 1000000;
    h.limit.tv_sec += h.limit.tv_nsec / 1000000000;
    h.limit.tv_nsec %= 1000000000;
    h.is_holding = is_holding;
    h.is_over = is_over;
    pthread_cond_signal(&h.changed);
    pthread_mutex_unlock(&h.lock);
}

static void hold(void)
{
    tell_watch(true, false);
    h.turn++;
    must(h.wait_value(h.stream, (df_cu_ptr)(uintptr_t)h.word, h.turn, AT_LEAST),
         "the driver cannot hold a stream back (cuStreamWaitValue32)");
    must(h.event_record(h.begin, h.stream), "an event could not be recorded");
}

static void let_go(void)
{
    must(h.event_record(h.end, h.stream), "an event could not be recorded");
    atomic_store(h.word, h.turn);
    if (atomic_load(&h.is_late)) atomic_store(h.word, INT32_MAX);
    tell_watch(false, false);
}

static void add_segment(void)
{
    float ms = 0;
    must(h.event_wait(h.end), "the GPU failed");
    must(h.event_elapsed(&ms, h.begin, h.end), "the time between events could not be had");
    h.sum.gpu_s += (double)ms * 1e-3;
    h.sum.n_segments++;
}

/* Entered, as is finish. */
static bool make(void)
{
    void *word = NULL;
    h.turn = 0;
    atomic_store(&h.is_late, false);
    if (h.host_alloc(&word, sizeof *h.word, DEVICE_MAPPED)) return false;
    h.word = word;
    atomic_store(h.word, 0);
    if (h.event_create(&h.begin, TIMED) == 0) {
        if (h.event_create(&h.end, TIMED) == 0) return true;
        (void)h.event_destroy(h.begin);
    }
    (void)h.host_free(word);
    return false;
}

static void finish(void)
{
    (void)h.event_destroy(h.begin);
    (void)h.event_destroy(h.end);
    (void)h.host_free((void *)h.word);
}

EXPORT held_begin_fn held_begin;
EXPORT held_end_fn held_end;

static bool enter(void)
{
    df_cu_ctx ctx = NULL;
    return !h.ctx_retain(&ctx, h.device) && !h.ctx_push(ctx);
}

static void leave(void)
{
    df_cu_ctx ctx;
    (void)h.ctx_pop(&ctx);
    (void)h.ctx_release(h.device);
}

const char *held_begin(void *stream, int ordinal, double limit_s)
{
    if (!find_all() || !h.wait_value) return "the driver has no cuStreamWaitValue32";
    h.why = NULL;
    h.sum = (held){ 0 };
    if (h.device_get(&h.device, ordinal) || !enter()) return "there is no such GPU";
    const bool is_made = make();
    h.limit_ms = (long)(limit_s * 1e3);
    h.is_over = h.is_holding = false;
    const bool is_watched = is_made && pthread_create(&h.watch, NULL, watch, NULL) == 0;
    h.stream = is_watched ? stream : NULL;
    if (is_watched)
        hold();
    else if (is_made)
        finish();
    leave();
    return is_watched ? NULL : "no memory to hold a stream back with";
}

const char *held_end(held *out)
{
    if (!enter()) return "the GPU is gone";
    let_go();
    add_segment();
    must(h.stream_wait(h.stream), "the GPU failed");
    h.stream = NULL;
    tell_watch(false, true);
    pthread_join(h.watch, NULL);
    if (atomic_load(&h.is_late))
        must(1, "the work did not fit into the driver's queue, or waited for the GPU unseen");
    finish();
    leave();
    if (!h.why) *out = h.sum;
    return h.why;
}

/* ---- what waits ---- */

static bool is_held(void)
{
    return h.stream && !atomic_load(&h.is_late);
}

EXPORT df_cu_result cuStreamSynchronize(df_cu_stream stream);
EXPORT df_cu_result cuEventSynchronize(df_cu_event event);

df_cu_result cuStreamSynchronize(df_cu_stream stream)
{
    if (!h.stream_wait && !find_all()) return 1;
    if (!is_held() || stream != h.stream) return h.stream_wait(stream);
    const double start = now();
    let_go();
    const df_cu_result r = h.stream_wait(stream);
    add_segment();
    hold();
    h.sum.wait_s += now() - start;
    return r;
}

df_cu_result cuEventSynchronize(df_cu_event event)
{
    if (!h.event_wait && !find_all()) return 1;
    if (!is_held()) return h.event_wait(event);
    const double start = now();
    let_go();
    const df_cu_result r = h.event_wait(event);
    add_segment();
    hold();
    h.sum.wait_s += now() - start;
    return r;
}

/* ---- all else ---- */

/* The two above stay under their own names. */
#define cuStreamSynchronize unused_cuStreamSynchronize
#define cuEventSynchronize unused_cuEventSynchronize
#define SAME(field, symbol, parameters)                                                            \
    typedef df_cu_result type_of_##field parameters;                                               \
    __attribute__((used)) static type_of_##field *find_##field(void)                               \
    {                                                                                              \
        type_of_##field *fn = NULL;                                                                \
        (void)find_into(&fn, #symbol);                                                             \
        return fn;                                                                                 \
    }                                                                                              \
    EXPORT type_of_##field symbol __attribute__((ifunc("find_" #field)));
DF_CU_REQUIRED(SAME)
DF_CU_OPTIONAL(SAME)
