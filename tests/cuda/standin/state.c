/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects and their handles, the lock around calls, faults on demand, misuse, the record.
 */
#include "state.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_FAULTS = 16, RECORD_MOST = 1 << 20, SENTENCE = 512, ROTATING = 8, NAME = 48 };

/* What the n-th call gives, by name for tests; GIVES_BACK: injected only when named. */
static const char *const names[] = {
#define NAME_OF(field, symbol, parameters) #symbol,
    DF_CU_REQUIRED(NAME_OF) DF_CU_OPTIONAL(NAME_OF) STANDIN_MORE(NAME_OF)
#undef NAME_OF
};

typedef struct fault {
    const char *symbol; /* or NULL */
    long left;          /* calls until it comes; < 0: always */
    int code;
} fault;

typedef struct table {
    object **at;
    uint32_t n, cap;
} table;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    table objects[N_KINDS];
    fault faults[MOST_FAULTS];
    uint32_t n_faults;
    long n_calls[N_CALLS];
    long n_misuse;
    char first_misuse[SENTENCE];
    bool recording, recording_work;
    char *record;
    size_t n_record;
    uint32_t seed;
    standin_mode mode;
    bool is_init;
    call call;
} s;
static uint32_t generation;
static bool is_strict;

/* ---- small things ---- */

void *grab(size_t n)
{
    void *const p = calloc(n ? n : 1, 1);
    if (p) return p;
    fprintf(stderr, "stand-in: no memory\n");
    abort();
}

uint32_t chance(uint32_t below)
{
    uint32_t x = s.seed += 0x9E3779B9u;
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    return (uint32_t)((uint64_t)(x ^ x >> 16) * below >> 32);
}

standin_mode mode(void)
{
    return s.mode;
}

const char *call_name(void)
{
    return names[s.call];
}

/* Room for a short text, good until ROTATING more. */
static char *room(void)
{
    static char text[ROTATING][NAME];
    static unsigned at;
    return text[at++ % ROTATING];
}

const char *address_name(uint64_t p)
{
    char *const text = room();
    const piece *const m = piece_at(p);
    if (m)
        snprintf(text, NAME, "%c%u+%llu", m->is_mapped ? 'v' : 'm', m->number,
                 (unsigned long long)(p - m->base));
    else
        snprintf(text, NAME, is_reserved(p) ? "unmapped" : "nowhere");
    return text;
}

const char *host_name(const void *p)
{
    const pinned *const h = pinned_at(p, 1);
    if (!h) return in_device_range((uint64_t)(uintptr_t)p) ? "device" : "pageable";
    char *const text = room();
    snprintf(text, NAME, "h%u+%zu", h->number, (size_t)((const char *)p - h->at));
    return text;
}

/* ---- the record ---- */

static void put_record(const char *head, const char *fmt, va_list args)
{
    char line[SENTENCE];
    int n = snprintf(line, sizeof line, "%s", head);
    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, args);
    if ((size_t)n > sizeof line - 2) n = sizeof line - 2;
    line[n++] = '\n';
    if (!s.record) s.record = grab(RECORD_MOST + 1);
    if (s.n_record + (size_t)n > RECORD_MOST) return;
    memcpy(s.record + s.n_record, line, (size_t)n);
    s.n_record += (size_t)n;
    s.record[s.n_record] = 0;
}

void record(const char *fmt, ...)
{
    if (!s.recording) return;
    char head[64];
    const int top = contexts_top();
    if (top < 0)
        snprintf(head, sizeof head, "%s", names[s.call]);
    else
        snprintf(head, sizeof head, "gpu%d %s", top, names[s.call]);
    va_list args;
    va_start(args, fmt);
    put_record(head, fmt, args);
    va_end(args);
}

void record_work(const char *fmt, ...)
{
    if (!s.recording_work) return;
    va_list args;
    va_start(args, fmt);
    put_record("  ", fmt, args);
    va_end(args);
}

static void record_plain(const char *fmt, ...) DF_PRINTF(1, 2);
static void record_plain(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (s.recording) put_record("", fmt, args);
    va_end(args);
}

int misuse(int code, const char *fmt, ...)
{
    char text[SENTENCE - 32];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    char whole[SENTENCE];
    snprintf(whole, sizeof whole, "%.64s: %.400s", names[s.call], text);
    if (s.n_misuse++ == 0) memcpy(s.first_misuse, whole, sizeof whole);
    record_plain("misuse: %s", whole);
    if (is_strict) fprintf(stderr, "stand-in: misuse: %s\n", whole);
    return code;
}

/* ---- objects ---- */

void *object_new(kind k, int ordinal, size_t size)
{
    table *const t = &s.objects[k];
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 64;
        t->at = realloc(t->at, t->cap * sizeof(object *));
        if (!t->at) abort();
    }
    object *const o = grab(size);
    *o = (object){ .kind = k, .alive = true, .gpu = ordinal, .number = t->n + 1 };
    t->at[t->n++] = o;
    return o;
}

void *handle_of(const void *object_at)
{
    const object *const o = object_at;
    return (void *)(uintptr_t)((uint64_t)(0x51 + o->kind) << 40 |
                               (uint64_t)(generation & 0xFF) << 32 | (uint64_t)o->number << 4);
}

const char *object_name(const void *object_at)
{
    static const char *const letters[N_KINDS] = { "s", "e", "M", "f", "g", "n", "x", "p", "c" };
    const object *const o = object_at;
    char *const text = room();
    if (!o) return "s0";
    snprintf(text, NAME, "%s%u", letters[o->kind], o->number);
    return text;
}

void *object_get_any(kind k, const void *handle)
{
    static const char *const words[N_KINDS] = { "stream",          "event", "module",
                                                "kernel",          "graph", "node of a graph",
                                                "exec of a graph", "memory" };
    const uint64_t bits = (uint64_t)(uintptr_t)handle;
    const uint32_t number = (uint32_t)bits >> 4;
    object *o = NULL;
    if (bits >> 40 == 0x51 + (uint64_t)k && (bits >> 32 & 0xFF) == (generation & 0xFF) &&
        number - 1 < s.objects[k].n)
        o = s.objects[k].at[number - 1];
    if (!o)
        misuse(0, "no %s: %s", words[k], handle ? "no handle of that kind" : "NULL");
    else if (!o->alive)
        misuse(0, "%s %s was destroyed", words[k], object_name(o));
    return o && o->alive ? o : NULL;
}

void *object_get(kind k, const void *handle)
{
    object *const o = object_get_any(k, handle);
    if (!o || o->gpu == current()) return o;
    misuse(0, "%s is of gpu%d, the current context of gpu%d", object_name(o), o->gpu, current());
    return NULL;
}

void *object_next(kind k, uint32_t *at)
{
    return *at < s.objects[k].n ? s.objects[k].at[(*at)++] : NULL;
}

/* ---- calls ---- */

static bool gives_back(call c)
{
    switch ((int)c) {
    case C_cuGetErrorName:
    case C_cuGetErrorString:
    case C_cuDevicePrimaryCtxRelease_v2:
    case C_cuCtxPopCurrent_v2:
    case C_cuStreamDestroy_v2:
    case C_cuEventDestroy_v2:
    case C_cuMemFree_v2:
    case C_cuMemFreeHost:
    case C_cuModuleUnload:
    case C_cuMemAddressFree:
    case C_cuMemRelease:
    case C_cuMemUnmap:
    case C_cuGraphDestroy:
    case C_cuGraphExecDestroy: return true;
    default: return false;
    }
}

static int fault_of(call c)
{
    int code = 0;
    for (uint32_t i = 0; i < s.n_faults; i++) {
        fault *const f = &s.faults[i];
        if (f->symbol ? strcmp(f->symbol, names[c]) != 0 : gives_back(c)) continue;
        if (f->left > 0) f->left--;
        if (f->left != 0) {
            if (f->left < 0 && !code) code = f->code;
            continue;
        }
        if (!code) code = f->code;
        s.faults[i--] = s.faults[--s.n_faults];
    }
    return code;
}

/* What must hold before the call, in the order in which a driver looks. */
static int refuses(call c, int needs)
{
    const bool before = c == C_cuInit || c == C_cuDriverGetVersion || c == C_cuGetErrorName ||
                        c == C_cuGetErrorString;
    if (!before && !s.is_init) return misuse(NO_INIT, "before cuInit");
    if (needs == NEEDS_CONTEXT && contexts_top() < 0)
        return misuse(BAD_CONTEXT, "no context is current");
    if (needs == NEEDS_CONTEXT && gpu_of(contexts_top())->poison)
        return gpu_of(contexts_top())->poison;
    const bool is_unsafe = c == C_cuMemAlloc_v2 || c == C_cuMemFree_v2 || c == C_cuMemHostAlloc ||
                           c == C_cuMemFreeHost || c == C_cuModuleLoadDataEx ||
                           c == C_cuModuleUnload;
    if (is_unsafe && is_captured()) return misuse(BAD_CAPTURE, "a stream is being captured");
    return 0;
}

int enter(call c, int needs)
{
    pthread_mutex_lock(&lock);
    s.call = c;
    s.n_calls[c]++;
    int code = fault_of(c);
    if (code) {
        record_plain("%s fails with %d, as asked", names[c], code);
        pthread_mutex_unlock(&lock);
        return code;
    }
    run_some();
    code = refuses(c, needs);
    if (code) {
        record_plain("%s gives %d", names[c], code);
        leave(code);
        return code;
    }
    if (c == C_cuInit) s.is_init = true;
    return 0;
}

int leave(int code)
{
    close_all();
    pthread_mutex_unlock(&lock);
    return code;
}

int current(void)
{
    return contexts_top();
}

/* ---- control ---- */

static void drop_objects(void)
{
    for (int k = 0; k < N_KINDS; k++) {
        for (uint32_t i = 0; i < s.objects[k].n; i++) free(s.objects[k].at[i]);
        free(s.objects[k].at);
    }
}

static uint32_t number_of(const char *variable, uint32_t otherwise)
{
    const char *const text = getenv(variable);
    return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

void standin_reset(void)
{
    pthread_mutex_lock(&lock);
    graph_reset();
    work_reset();
    virtual_reset();
    memory_reset();
    device_reset();
    drop_objects();
    free(s.record);
    memset(&s, 0, sizeof s);
    s.seed = number_of("DEFT_STANDIN_SEED", 1);
    generation++;
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void begin(void)
{
    is_strict = number_of("DEFT_STANDIN_STRICT", 0) != 0;
    standin_reset();
}

__attribute__((destructor)) static void end(void)
{
    if (!is_strict || s.n_misuse == 0) return;
    fflush(NULL);
    fprintf(stderr, "stand-in: misused %ld times: %s\n", s.n_misuse, s.first_misuse);
    _exit(99);
}

void standin_when(standin_mode m, uint32_t seed)
{
    pthread_mutex_lock(&lock);
    s.mode = m;
    s.seed = seed;
    pthread_mutex_unlock(&lock);
}

static void add_fault(const char *symbol, long left, int code)
{
    if (s.n_faults == MOST_FAULTS) {
        fprintf(stderr, "stand-in: %d faults wait already\n", MOST_FAULTS);
        abort();
    }
    fault *const f = &s.faults[s.n_faults++];
    *f = (fault){ NULL, left, code };
    for (int c = 0; symbol && c < N_CALLS; c++)
        if (strcmp(symbol, names[c]) == 0) f->symbol = names[c];
    if (!symbol || f->symbol) return;
    fprintf(stderr, "stand-in: no call %s\n", symbol);
    abort();
}

void standin_fail(const char *symbol, long n, int code)
{
    pthread_mutex_lock(&lock);
    add_fault(symbol, n, code);
    pthread_mutex_unlock(&lock);
}

void standin_fail_always(const char *symbol, int code)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < s.n_faults; i++) {
        const char *const is = s.faults[i].symbol;
        if (s.faults[i].left < 0 && (is && symbol ? strcmp(is, symbol) == 0 : is == symbol))
            s.faults[i--] = s.faults[--s.n_faults];
    }
    if (code) add_fault(symbol, -1, code);
    pthread_mutex_unlock(&lock);
}

int standin_fails_waiting(void)
{
    int n = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < s.n_faults; i++) n += s.faults[i].left > 0;
    pthread_mutex_unlock(&lock);
    return n;
}

long standin_count(const char *symbol)
{
    long n = 0;
    pthread_mutex_lock(&lock);
    for (int c = 0; c < N_CALLS; c++)
        if (!symbol || strcmp(symbol, names[c]) == 0) n += s.n_calls[c];
    pthread_mutex_unlock(&lock);
    return n;
}

void standin_record(bool on, bool work)
{
    s.recording = on;
    s.recording_work = on && work;
}

const char *standin_recorded(void)
{
    return s.record ? s.record : "";
}

void standin_clear_record(void)
{
    s.n_record = 0;
    if (s.record) s.record[0] = 0;
}

long standin_n_misuse(void)
{
    pthread_mutex_lock(&lock);
    const long n = s.n_misuse;
    pthread_mutex_unlock(&lock);
    return n;
}

const char *standin_misuse(void)
{
    return s.first_misuse;
}

void standin_forgive(void)
{
    s.n_misuse = 0;
    s.first_misuse[0] = 0;
}

static int alive(kind k)
{
    int n = 0;
    for (uint32_t i = 0; i < s.objects[k].n; i++) n += s.objects[k].at[i]->alive;
    return n;
}

void standin_leaks(standin_alive *out)
{
    pthread_mutex_lock(&lock);
    *out = (standin_alive){ .streams = alive(STREAM),
                            .events = alive(EVENT),
                            .modules = alive(MODULE),
                            .graphs = alive(GRAPH),
                            .execs = alive(EXEC),
                            .handles = alive(PHYSICAL) };
    device_leaks(out);
    memory_leaks(out);
    virtual_leaks(out);
    pthread_mutex_unlock(&lock);
}

void *standin_peek(uint64_t p, size_t n)
{
    pthread_mutex_lock(&lock);
    const bool there = is_there(p, n, NULL);
    if (there) open_range(p, n);
    pthread_mutex_unlock(&lock);
    return there ? (void *)(uintptr_t)p : NULL;
}

void standin_unpeek(void)
{
    pthread_mutex_lock(&lock);
    leave(0);
}

bool standin_is_device(uint64_t p)
{
    pthread_mutex_lock(&lock);
    const bool is = piece_at(p) != NULL;
    pthread_mutex_unlock(&lock);
    return is;
}

int standin_enqueue(void *stream_handle, int (*fn)(void *args), const void *args, size_t bytes,
                    const char *what)
{
    int r = enter(C_cuLaunchKernel, NEEDS_CONTEXT);
    if (r) return r;
    stream *const st = stream_get(stream_handle);
    if (!st) return leave(BAD_HANDLE);
    op *const o = grab(sizeof *o);
    *o = (op){ .kind = OP_CALL, .gpu = current(), .run = fn, .what = what, .n_bytes = bytes };
    o->bytes = grab(bytes);
    memcpy(o->bytes, args, bytes);
    record(" %s %s", object_name(st->o.number ? st : NULL), what);
    return leave(put_work(st, o));
}
