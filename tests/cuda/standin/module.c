/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules are shared libraries (image.h); a launch copies its parameters when it is put in, and
 * runs the kernel late, thread block by thread block (shim.h). A kernel that faults ends there, as
 * on a GPU: its launch is an error that comes late.
 */
#include "plan.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"

enum { PARAMETER_BYTES = 4096, MOST_THREADS = 512, MOST_PARAMETERS = 64, SHARED = 48 << 10 };

typedef struct module {
    object o;
    bool is_ptx;
    void *library;
    const image_entry *entries;
    int (*launch)(void (*call)(const void *), const void *params, unsigned n_blocks,
                  unsigned n_threads, unsigned n_shared);
} module;

typedef struct fn {
    object o;
    module *in;
    const image_entry *is;
    int shared; /* cuFuncSetAttribute */
} fn;

const char *fn_name(const object *f)
{
    return ((const fn *)f)->is->name;
}

const object *module_of(const object *f)
{
    return &((const fn *)f)->in->o;
}

/* The driver links what it compiles itself. */
bool is_linked(const object *f)
{
    return ((const fn *)f)->in->is_ptx;
}

/* ---- modules ---- */

static _Thread_local const op *running;
static _Thread_local int condition_fault;

/* shim.h's, of every module. */
static void on_condition(unsigned long long handle, unsigned value)
{
    const int r = running ? set_condition(running, handle, value) : BAD_LAUNCH;
    if (r) condition_fault = r;
}

static bool open_module(module *m, const image *i)
{
    m->library = dlopen(i->path, RTLD_NOW | RTLD_LOCAL);
    void *const launch = m->library ? dlsym(m->library, "shim_launch") : NULL;
    m->entries = m->library ? dlsym(m->library, "standin_entries") : NULL;
    memcpy(&m->launch, &launch, sizeof launch);
    void *const hook = m->library ? dlsym(m->library, "shim_set_condition") : NULL;
    if (hook) *(void (**)(unsigned long long, unsigned))hook = on_condition;
    m->is_ptx = i->is_ptx;
    return launch && m->entries;
}

df_cu_result cuModuleLoadDataEx(df_cu_module *out, const void *data, unsigned n_options,
                                int *options, void **values)
{
    const int r = enter(C_cuModuleLoadDataEx, NEEDS_CONTEXT);
    if (r) return r;
    (void)options, (void)values;
    if (n_options) return leave(misuse(BAD_VALUE, "the stand-in knows no options"));
    image i;
    memcpy(&i, data, sizeof i.magic);
    if (memcmp(i.magic, IMAGE_MAGIC, sizeof i.magic) != 0)
        return leave(misuse(BAD_IMAGE, "not what libnvrtc-standin compiled"));
    memcpy(&i, data, sizeof i);
    const standin_gpu *const is = &gpu_of(current())->is;
    /* A cubin runs where the major number is the same and the minor at least its own. */
    const int arch = is->major * 10 + is->minor;
    if (i.is_ptx ? i.arch > arch : i.arch / 10 != is->major || i.arch > arch)
        return leave(misuse(209, "%s_%d on sm_%d", i.is_ptx ? "PTX for compute" : "a cubin for sm",
                            i.arch, arch));
    module *const m = object_new(MODULE, current(), sizeof *m);
    record(" %s", object_name(m));
    *out = handle_of(m);
    if (open_module(m, &i)) return leave(0);
    m->o.alive = false;
    return leave(misuse(BAD_IMAGE, "%s", dlerror()));
}

df_cu_result cuModuleUnload(df_cu_module handle)
{
    const int r = enter(C_cuModuleUnload, NEEDS_CONTEXT);
    if (r) return r;
    module *const m = object_get(MODULE, handle);
    if (!m) return leave(BAD_HANDLE);
    record(" %s", object_name(m));
    const op *const user = work_of(&m->o);
    if (user) {
        misuse(0, "%s has %s in a queue", object_name(m), op_name(user));
        run_gpu(m->o.gpu);
    }
    m->o.alive = false;
    fn *f;
    uint32_t at = 0;
    while ((f = object_next(FN, &at)))
        if (f->in == m) f->o.alive = false;
    return leave(0);
}

df_cu_result cuModuleGetFunction(df_cu_fn *out, df_cu_module handle, const char *name)
{
    const int r = enter(C_cuModuleGetFunction, NEEDS_CONTEXT);
    if (r) return r;
    module *const m = object_get(MODULE, handle);
    if (!m) return leave(BAD_HANDLE);
    record(" %s %s", object_name(m), name);
    const image_entry *e = m->entries;
    while (e->name && strcmp(e->name, name) != 0) e++;
    if (!e->name) return leave(NOT_FOUND);
    fn *const f = object_new(FN, current(), sizeof *f);
    f->in = m;
    f->is = e;
    *out = handle_of(f);
    return leave(0);
}

df_cu_result cuFuncGetAttribute(int *value, int attribute, df_cu_fn handle)
{
    const int r = enter(C_cuFuncGetAttribute, NEEDS_CONTEXT);
    if (r) return r;
    const fn *const f = object_get(FN, handle);
    if (!f) return leave(BAD_HANDLE);
    const standin_gpu *const is = &gpu_of(current())->is;
    switch (attribute) {
    case 0: *value = f->is->threads ? (int)f->is->threads : 1024; break;
    case 1: *value = 1024; break; /* shared memory */
    case 2: *value = 0; break;    /* constant memory */
    case 3: *value = 0; break;    /* local memory */
    case 4: *value = 32; break;   /* registers */
    case 5:
    case 6: *value = is->major * 10 + is->minor; break; /* PTX, binary */
    case 8: *value = f->shared ? f->shared : SHARED; break;
    default: return leave(misuse(BAD_VALUE, "the stand-in knows no attribute %d", attribute));
    }
    return leave(0);
}

df_cu_result cuFuncSetAttribute(df_cu_fn handle, int attribute, int value)
{
    const int r = enter(C_cuFuncSetAttribute, NEEDS_CONTEXT);
    if (r) return r;
    fn *const f = object_get(FN, handle);
    if (!f) return leave(BAD_HANDLE);
    record(" %s %d %d", f->is->name, attribute, value);
    if (attribute != 8 && attribute != 9)
        return leave(misuse(BAD_VALUE, "the stand-in knows no attribute %d", attribute));
    if (attribute == 8 && (value < 0 || value > 227 << 10))
        return leave(misuse(BAD_VALUE, "%d bytes of shared memory", value));
    if (attribute == 8) f->shared = value;
    return leave(0);
}

df_cu_result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, df_cu_fn handle, int threads,
                                                         size_t shared)
{
    const int r = enter(C_cuOccupancyMaxActiveBlocksPerMultiprocessor, NEEDS_CONTEXT);
    if (r) return r;
    if (!object_get(FN, handle)) return leave(BAD_HANDLE);
    if (threads <= 0 || threads > 1024) return leave(misuse(BAD_VALUE, "%d threads", threads));
    *n = 2048 / threads < 32 ? 2048 / threads : 32;
    if (shared && *n > (int)((228u << 10) / shared)) *n = (int)((228u << 10) / shared);
    return leave(0);
}

/* ---- launches, put in ---- */

static int look(const fn *f, const df_cu_kernel_node *k)
{
    const unsigned threads = k->block_x * k->block_y * k->block_z;
    const unsigned limit = f->is->threads ? f->is->threads : MOST_THREADS;
    const char *const name = f->is->name;
    if (!k->grid_x || !k->grid_y || !k->grid_z || !threads)
        return misuse(BAD_VALUE, "%s: %u x %u x %u blocks of %u x %u x %u threads", name, k->grid_x,
                      k->grid_y, k->grid_z, k->block_x, k->block_y, k->block_z);
    if (k->grid_x > 0x7FFFFFFF) return misuse(BAD_VALUE, "%s: %u blocks", name, k->grid_x);
    if (k->grid_y > 1 || k->grid_z > 1 || k->block_y > 1 || k->block_z > 1)
        return misuse(BAD_VALUE, "%s: the shim's grids have one dimension", name);
    if (threads > limit)
        return misuse(BAD_VALUE, "%s: %u threads, of %u at most", name, threads, limit);
    if (threads % 32 || threads & (threads - 1))
        return misuse(BAD_VALUE, "%s: %u threads: the shim takes powers of two from 32", name,
                      threads);
    if (k->extra || (!k->params && f->is->n))
        return misuse(BAD_VALUE, "%s: the stand-in wants an array of parameters", name);
    if (k->shared_bytes > (unsigned)(f->shared ? f->shared : SHARED))
        return misuse(BAD_VALUE, "%s: %u bytes of shared memory", name, k->shared_bytes);
    return 0;
}

/* Each parameter at a multiple of 16. */
static size_t lay_out(const image_entry *e, size_t *at)
{
    size_t n = 0;
    for (unsigned i = 0; i < e->n; i++) {
        at[i] = n;
        n += (e->sizes[i] + 15u) / 16 * 16;
    }
    return n;
}

int kernel_op(const df_cu_kernel_node *k, op **out)
{
    fn *const f = object_get(FN, k->func);
    if (!f) return BAD_HANDLE;
    const int r = look(f, k);
    if (r) return r;
    size_t at[MOST_PARAMETERS];
    if (f->is->n > MOST_PARAMETERS)
        return misuse(BAD_VALUE, "%s: %u parameters", f->is->name, f->is->n);
    const size_t n = lay_out(f->is, at);
    if (n > PARAMETER_BYTES)
        return misuse(BAD_VALUE, "%s: %zu bytes of parameters", f->is->name, n);
    op *const o = grab(sizeof *o);
    *o = (op){ .kind = OP_KERNEL,
               .gpu = current(),
               .fn = &f->o,
               .n_blocks = k->grid_x,
               .n_threads = k->block_x,
               .shared = k->shared_bytes,
               .bytes = grab(n),
               .n_bytes = n };
    for (unsigned i = 0; i < f->is->n; i++)
        memcpy((char *)o->bytes + at[i], k->params[i], f->is->sizes[i]);
    *out = o;
    return 0;
}

df_cu_result cuLaunchKernel(df_cu_fn handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                            df_cu_stream where, void **params, void **extra)
{
    int r = enter(C_cuLaunchKernel, NEEDS_CONTEXT);
    if (r) return r;
    const df_cu_kernel_node k = { handle,  grid_x,  grid_y, grid_z, block_x,
                                  block_y, block_z, shared, params, extra };
    op *o = NULL;
    stream *const s = stream_get(where);
    if (!s) return leave(BAD_HANDLE);
    r = kernel_op(&k, &o);
    if (r) return leave(r);
    record(" %s %s %u x %u", object_name(where ? s : NULL), fn_name(o->fn), grid_x, block_x);
    return leave(put_work(s, o));
}

/* ---- launches, done ---- */

enum { N_SIGNALS = 4 };
static const int signals[N_SIGNALS] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE };
static struct sigaction before[N_SIGNALS];
static _Thread_local sigjmp_buf way_out;

/* Memory is opened when it is touched first: opening all for each launch takes 8 us a piece. A
 * kernel that does worse ends. Its stacks are left as they are: the next launch makes new ones. */
static void on_signal(int number, siginfo_t *what, void *context)
{
    (void)context;
    if (running && number == SIGSEGV && open_at((uint64_t)(uintptr_t)what->si_addr, running->gpu))
        return;
    if (running) siglongjmp(way_out, number);
    for (int i = 0; i < N_SIGNALS; i++)
        if (signals[i] == number) sigaction(number, &before[i], NULL);
}

/* Most of what will be touched is named by a parameter, which takes no signal. */
static void open_named(const op *o)
{
    for (size_t i = 0; i + 8 <= o->n_bytes; i += 8) {
        uint64_t word;
        memcpy(&word, (const char *)o->bytes + i, sizeof word);
        open_at(word, o->gpu);
    }
}

static int tell_signal(const op *o, int number)
{
    if (number == SIGILL)
        return misuse(BAD_ALIGNMENT, "%s: an access is not aligned, or a trap", op_name(o));
    if (number == SIGFPE)
        return misuse(BAD_LAUNCH, "%s: an integer divided by 0, or too small by -1", op_name(o));
    return misuse(BAD_ADDRESS, "%s: touched what is no memory of gpu%d", op_name(o), o->gpu);
}

int guard(int (*run_op)(const op *o), const op *o)
{
    open_named(o);
    struct sigaction mine = { .sa_sigaction = on_signal, .sa_flags = SA_NODEFER | SA_SIGINFO };
    sigemptyset(&mine.sa_mask);
    for (int i = 0; i < N_SIGNALS; i++) sigaction(signals[i], &mine, &before[i]);
    sigset_t open_signals;
    pthread_sigmask(SIG_SETMASK, NULL, &open_signals);
    int code;
    const int number = sigsetjmp(way_out, 0);
    if (number == 0) {
        running = o;
        code = run_op(o);
    } else {
        code = tell_signal(o, number);
        pthread_sigmask(SIG_SETMASK, &open_signals, NULL); /* a sanitizer may have blocked all */
    }
    running = NULL;
    for (int i = 0; i < N_SIGNALS; i++) sigaction(signals[i], &before[i], NULL);
    return code;
}

int run_kernel(const op *o)
{
    const fn *const f = (const fn *)o->fn;
    size_t at[MOST_PARAMETERS];
    void *params[MOST_PARAMETERS];
    lay_out(f->is, at);
    for (unsigned i = 0; i < f->is->n; i++) params[i] = (char *)o->bytes + at[i];
    condition_fault = 0;
    if (f->in->launch(f->is->call, params, o->n_blocks, o->n_threads, o->shared) == 0)
        return condition_fault;
    return misuse(BAD_LAUNCH, "%s: a barrier that not all threads came to", f->is->name);
}
