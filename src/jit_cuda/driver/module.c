/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache of a GPU's kernels: functions by key, and the images that contain them.
 *
 * What must hold: an image is unloaded when no function of it is held and nothing runs. Two
 * threads that want the same entry may both compile it, and each gets a function that
 * works.
 */
#include "jit_cuda/driver/module.h"

#include <stdio.h>
#include <string.h>

#include "base/vec.h"
#include "cache/cache.h"
#include "runtime/os.h"

typedef struct df_cuda_image {
    df_counted counted; /* one reference per function */
    df_modules *m;
    df_cu_module module;
    size_t size;
} df_cuda_image;

struct df_modules {
    const df_mem *mem;
    const df_log *log;
    df_gpu *gpu;
    const df_driver *driver;
    df_nvrtc *nvrtc;
    df_cuda_compiler compiler;
    df_modules_options o;
    df_cache *fns;
    atomic_uint_fast64_t hits, compiled, programs, compile_ns, code_bytes;
};

/* ---- images and functions ---- */

static void image_destroy(df_counted *counted)
{
    df_cuda_image *const image = (df_cuda_image *)(void *)counted;
    df_modules *const m = image->m;
    m->o.settle(m->o.user);
    /* When the GPU is unusable, or in a forked child, the image is freed with the process. */
    if (df_gpu_enter(m->gpu, NULL) == DEFT_OK) {
        (void)m->driver->module_unload(image->module);
        df_gpu_leave(m->gpu);
    }
    atomic_fetch_sub(&m->code_bytes, image->size);
    df_mem_free(m->mem, image, sizeof *image);
}

static void image_drop(df_cuda_image *image)
{
    df_counted *c = &image->counted;
    df_counted_drop(&c);
}

static void fn_destroy(df_counted *counted)
{
    df_cuda_fn *const fn = (df_cuda_fn *)(void *)counted;
    df_cuda_image *const image = fn->image;
    df_mem_free(image->m->mem, fn, sizeof *fn);
    image_drop(image);
}

static deft_status image_load(df_modules *m, df_diag *d, const df_cubin *code, df_cuda_image **out)
{
    deft_status st = DEFT_OK;
    df_cuda_image *image = df_mem_zalloc(m->mem, sizeof *image);
    bool is_in = false;
    if (!image) return df_fail_mem(d, "kernels", sizeof *image);
    TRY(df_gpu_enter(m->gpu, d));
    is_in = true;
    const df_cu_result r = m->driver->module_load(&image->module, code->at, 0, NULL, NULL);
    if (r) TRY(df_driver_fail(m->driver, d, r, "cuModuleLoadDataEx of %zu bytes", code->size));
    df_counted_init(&image->counted, image_destroy);
    image->m = m;
    image->size = code->size;
    atomic_fetch_add(&m->code_bytes, code->size);
    *out = image;
    image = NULL;
done:
    if (is_in) df_gpu_leave(m->gpu);
    df_mem_free(m->mem, image, sizeof *image);
    return st;
}

/* Finds an entry of an image. The function holds a reference to the image. */
static deft_status fn_find(df_modules *m, df_diag *d, df_cuda_image *image, const char *name,
                           df_cuda_fn **out)
{
    deft_status st = DEFT_OK;
    df_cuda_fn *fn = df_mem_zalloc(m->mem, sizeof *fn);
    bool is_in = false;
    if (!fn) return df_fail_mem(d, "kernels", sizeof *fn);
    TRY(df_gpu_enter(m->gpu, d));
    is_in = true;
    const df_cu_result r = m->driver->module_fn(&fn->fn, image->module, name);
    if (r) TRY(df_driver_fail(m->driver, d, r, "cuModuleGetFunction of %s", name));
    df_counted_init(&fn->counted, fn_destroy);
    fn->image = image;
    df_counted_ref(&image->counted);
    *out = fn;
    fn = NULL;
done:
    if (is_in) df_gpu_leave(m->gpu);
    df_mem_free(m->mem, fn, sizeof *fn);
    return st;
}

/* ---- the cache ---- */

/* A key with its own copy of the bytes. */
typedef struct key {
    df_cache_key k;
    void *bytes;
} key;

static bool key_make(const df_modules *m, const void *bytes, size_t n, const void *more,
                     size_t n_more, key *out)
{
    char *const all = df_mem_alloc(m->mem, n + n_more);
    if (!all) return false;
    memcpy(all, bytes, n);
    memcpy(all + n, more, n_more);
    *out = (key){ df_cache_key_make(all, n + n_more), all };
    return true;
}

static void key_finish(const df_modules *m, key *k)
{
    df_mem_free(m->mem, k->bytes, k->k.n);
}

static bool entry_key(const df_modules *m, const df_kernel *k, df_cuda_entry e, key *out)
{
    const uint8_t entry[2] = { e.pass, e.flags };
    return key_make(m, k->key.bytes, k->key.n, entry, sizeof entry, out);
}

static deft_status want_key(const df_modules *m, df_diag *d, const df_cuda_want *w, key *out)
{
    if (entry_key(m, w->kernel, w->entry, out)) return DEFT_OK;
    return df_fail_mem(d, "kernels", w->kernel->key.n);
}

static df_cuda_fn *module_cache_find(df_modules *m, const key *k)
{
    df_cuda_fn *const fn = (df_cuda_fn *)(void *)df_cache_find(m->fns, &k->k, NULL, NULL);
    if (fn) atomic_fetch_add(&m->hits, 1);
    return fn;
}

/* An entry that is too large for the cache is used by the caller that wanted it, and
 * compiled again for the next one. */
static deft_status module_cache_add(df_modules *m, df_diag *d, const key *k, df_cuda_fn *fn,
                                    size_t size)
{
    atomic_fetch_add(&m->compiled, 1);
    const deft_status st = df_cache_add(m->fns, &k->k, df_counted_ref(&fn->counted), size);
    if (st == DEFT_OK || st == DEFT_E_LIMIT) return DEFT_OK;
    return df_fail_mem(d, "kernels", size);
}

/* ---- wants ---- */

static deft_status find_all(df_modules *m, df_diag *d, df_cuda_want *want, uint32_t n)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < n; i++) {
        key k;
        TRY(want_key(m, d, &want[i], &k));
        want[i].fn = module_cache_find(m, &k);
        key_finish(m, &k);
    }
done:
    return st;
}

/* Lists the wants without a function, those that may be contracted last. */
static uint32_t list_missing(df_cuda_want *want, uint32_t n, df_cuda_want **out)
{
    uint32_t n_out = 0;
    for (unsigned fast = 0; fast < 2; fast++)
        for (uint32_t i = 0; i < n; i++)
            if (!want[i].fn && ((want[i].kernel->flags & DF_KERNEL_FAST) != 0) == fast)
                out[n_out++] = &want[i];
    return n_out;
}

static deft_status load_piece(df_modules *m, df_diag *d, df_cuda_want *const *want,
                              const df_cuda_piece *p)
{
    deft_status st = DEFT_OK;
    df_cuda_image *image = NULL;
    TRY(image_load(m, d, &p->code, &image));
    for (uint32_t i = p->first; i < p->first + p->n; i++) {
        char name[64];
        key k;
        df_cuda_piece_name(want, p, i, name);
        TRY(fn_find(m, d, image, name, &want[i]->fn));
        TRY(want_key(m, d, want[i], &k));
        st = module_cache_add(m, d, &k, want[i]->fn, p->code.size / p->n + sizeof **want);
        key_finish(m, &k);
        if (st != DEFT_OK) goto done;
    }
done:
    if (image) image_drop(image);
    return st;
}

/* Reports the first failure. Programs that were compiled are kept all the same. */
static deft_status load_all(df_modules *m, df_diag *d, df_cuda_want *const *want,
                            const df_cuda_piece *piece, uint32_t n)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < n; i++) {
        if (!piece[i].is_tried) continue; /* interrupted */
        deft_status now = piece[i].st;
        df_diag own = piece[i].diag;
        if (now == DEFT_OK) now = load_piece(m, &own, want, &piece[i]);
        atomic_fetch_add(&m->programs, 1);
        if (st == DEFT_OK && now != DEFT_OK) st = df_fail(d, now, "%s", own.text);
    }
    return st;
}

static deft_status compile_missing(df_modules *m, df_diag *d, df_cuda_want *want, uint32_t n,
                                   df_cuda_want **missing, df_cuda_piece *piece, uint32_t n_threads,
                                   df_waiter *w)
{
    const uint32_t n_missing = list_missing(want, n, missing);
    if (n_missing == 0) return DEFT_OK;
    const uint64_t begun = df_os_now_ns();
    const uint32_t n_pieces = df_cuda_pieces(missing, n_missing, n_threads, piece);
    const deft_status waited =
        df_cuda_compile(&m->compiler, d, missing, piece, n_pieces, n_threads, w);
    const deft_status st = load_all(m, waited == DEFT_OK ? d : NULL, missing, piece, n_pieces);
    const uint64_t ns = df_os_now_ns() - begun;
    atomic_fetch_add(&m->compile_ns, ns);
    df_logf(m->log, compile, "cuda: %u entries of kernels in %u programs, %llu ms", n_missing,
            n_pieces, (unsigned long long)(ns / 1000000));
    for (uint32_t i = 0; i < n_pieces; i++) df_cubin_finish(m->nvrtc, &piece[i].code);
    return waited == DEFT_OK ? st : waited;
}

deft_status df_modules_get(df_modules *m, df_diag *d, df_cuda_want *want, uint32_t n,
                           uint32_t n_threads, df_waiter *w)
{
    deft_status st = DEFT_OK;
    df_cuda_want **missing = NULL;
    df_cuda_piece *piece = NULL;
    if (n == 0) return DEFT_OK;
    for (uint32_t i = 0; i < n; i++) want[i].fn = NULL;
    TRY(find_all(m, d, want, n));
    missing = df_mem_zalloc(m->mem, n * sizeof *missing);
    piece = df_mem_zalloc(m->mem, n * sizeof *piece);
    if (!missing || !piece) TRY(df_fail_mem(d, "kernels", n * sizeof *piece));
    if (n_threads == 0) n_threads = df_cuda_compile_threads();
    TRY(compile_missing(m, d, want, n, missing, piece, n_threads, w));
done:
    for (uint32_t i = 0; st != DEFT_OK && i < n; i++) df_cuda_fn_drop(&want[i].fn);
    df_mem_free(m->mem, missing, n * sizeof *missing);
    df_mem_free(m->mem, piece, n * sizeof *piece);
    return st;
}

df_cuda_fn *df_modules_find(df_modules *m, const df_kernel *k, df_cuda_entry e)
{
    key of;
    if (!entry_key(m, k, e, &of)) return NULL;
    df_cuda_fn *const fn = module_cache_find(m, &of);
    key_finish(m, &of);
    return fn;
}

/* ---- programs that are not generated from a kernel ---- */

static deft_status find_names(df_modules *m, df_diag *d, const df_cuda_program *p, df_cuda_fn **fn,
                              bool *all)
{
    deft_status st = DEFT_OK;
    *all = true;
    for (uint32_t i = 0; i < p->n_names; i++) {
        key k;
        if (!key_make(m, p->key, p->n_key, p->name[i], strlen(p->name[i]), &k))
            TRY(df_fail_mem(d, "kernels", p->n_key));
        fn[i] = module_cache_find(m, &k);
        *all &= fn[i] != NULL;
        key_finish(m, &k);
    }
done:
    return st;
}

static deft_status build_program(df_modules *m, df_diag *d, const df_cuda_program *p, df_cubin *out)
{
    deft_status st = DEFT_OK;
    size_t n;
    const char *const prelude = df_cuda_prelude(&n);
    df_str text;
    df_str_init(&text, m->mem);
    df_str_putn(&text, prelude, n);
    TRY(p->write(p->user, d, m->mem, &text));
    if (!text.ok) TRY(df_fail_mem(d, "cuda text", text.n));
    const uint64_t begun = df_os_now_ns();
    st = (p->is_ptx ? df_cuda_build_ptx : df_cuda_build)(&m->compiler, d, text.at, p->contracts,
                                                         out);
    if (st == DEFT_E_COMPILE) (void)df_fail_more(d, " (%s)", p->what);
    atomic_fetch_add(&m->compile_ns, df_os_now_ns() - begun);
    atomic_fetch_add(&m->programs, 1);
done:
    df_str_finish(&text);
    return st;
}

static deft_status load_program(df_modules *m, df_diag *d, const df_cuda_program *p,
                                const df_cubin *code, df_cuda_fn **fn)
{
    deft_status st = DEFT_OK;
    df_cuda_image *image = NULL;
    TRY(image_load(m, d, code, &image));
    for (uint32_t i = 0; i < p->n_names; i++) {
        key k;
        TRY(fn_find(m, d, image, p->name[i], &fn[i]));
        if (!key_make(m, p->key, p->n_key, p->name[i], strlen(p->name[i]), &k))
            TRY(df_fail_mem(d, "kernels", p->n_key));
        st = module_cache_add(m, d, &k, fn[i], code->size / p->n_names);
        key_finish(m, &k);
        if (st != DEFT_OK) goto done;
    }
done:
    if (image) image_drop(image);
    return st;
}

deft_status df_modules_program(df_modules *m, df_diag *d, const df_cuda_program *p, df_cuda_fn **fn)
{
    deft_status st = DEFT_OK;
    df_cubin code = { 0 };
    bool all;
    for (uint32_t i = 0; i < p->n_names; i++) fn[i] = NULL;
    TRY(find_names(m, d, p, fn, &all));
    if (all) return DEFT_OK;
    for (uint32_t i = 0; i < p->n_names; i++) df_cuda_fn_drop(&fn[i]);
    TRY(build_program(m, d, p, &code));
    TRY(load_program(m, d, p, &code, fn));
    df_logf(m->log, compile, "cuda: %s", p->what);
done:
    df_cubin_finish(m->nvrtc, &code);
    for (uint32_t i = 0; st != DEFT_OK && i < p->n_names; i++) df_cuda_fn_drop(&fn[i]);
    return st;
}

/* ---- exported ---- */

deft_status df_modules_create(df_diag *d, const df_mem *mem, const df_log *log, df_gpu *gpu,
                              df_nvrtc *nvrtc, const df_modules_options *o, df_modules **out)
{
    df_modules *m = df_mem_zalloc(mem, sizeof *m);
    if (!m) return df_fail_mem(d, "kernels", sizeof *m);
    m->mem = mem;
    m->log = log;
    m->gpu = gpu;
    m->driver = df_gpu_driver(gpu);
    m->nvrtc = nvrtc;
    m->compiler = (df_cuda_compiler){ mem, nvrtc, log, df_gpu_facts_of(gpu)->arch };
    m->o = *o;
    const df_cache_options bounds = { .max_bytes = o->max_bytes };
    const deft_status st = df_cache_create(mem, &bounds, &m->fns);
    if (st != DEFT_OK) {
        df_mem_free(mem, m, sizeof *m);
        return df_fail_mem(d, "kernels", sizeof *m);
    }
    *out = m;
    return DEFT_OK;
}

void df_modules_destroy(df_modules **out)
{
    df_modules *const m = *out;
    *out = NULL;
    if (!m) return;
    df_cache_destroy(&m->fns);
    df_mem_free(m->mem, m, sizeof *m);
}

df_modules_stats df_modules_read(df_modules *m)
{
    return (df_modules_stats){ .hits = atomic_load(&m->hits),
                               .compiled = atomic_load(&m->compiled),
                               .programs = atomic_load(&m->programs),
                               .compile_ns = atomic_load(&m->compile_ns),
                               .code_bytes = atomic_load(&m->code_bytes) };
}
