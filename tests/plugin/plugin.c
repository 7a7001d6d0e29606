/* SPDX-License-Identifier: Apache-2.0
 *
 * Machine code knows its kernel; a C function does not. So there are N_SLOTS copies of each entry
 * point, and a compiled kernel is one of them and an entry in a table.
 */
#include "plugin.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/build_id.h"
#include "runtime/device.h"
#include "runtime/interp/interp.h"

enum { N_SLOTS = 128, MR = 3, NR = 5 };

static plugin_controls controls;
static const df_kernel *_Atomic slots[N_SLOTS];
static df_host host;

/* ---- kernels ---- */

typedef void (*interpret_fn)(const df_kernel *k, void *work, const df_kargs *a, int64_t o0,
                             int64_t o1, int64_t i0, int64_t i1);

static void part(const df_kernel *k, void *work, const df_kargs *a, int64_t o0, int64_t o1,
                 int64_t i0, int64_t i1)
{
    (void)o1;
    df_interp_part(k, work, a, o0, i0, i1);
}

static void fin(const df_kernel *k, void *work, const df_kargs *a, int64_t o0, int64_t o1,
                int64_t i0, int64_t i1)
{
    (void)o1;
    df_interp_fin(k, work, a, o0, i0, i1);
}

static void launch(int slot, interpret_fn f, const df_kargs *a, int64_t o0, int64_t o1, int64_t i0,
                   int64_t i1)
{
    const df_kernel *const k = atomic_load(&slots[slot]);
    void *const work = aligned_alloc(64, (df_interp_work_size(k) + 127) & ~(size_t)63);
    if (!work) abort();
    f(k, work, a, o0, o1, i0, i1);
    free(work);
    /* Only what looks something up may find that it is not there. */
    const bool may_fail = controls.hook || k->flags & DF_KERNEL_CHECKS;
    if (controls.fail_launch && !may_fail) return;
    if (atomic_fetch_add(&controls.n_launches, 1) + 1 != controls.fail_launch) return;
    if (controls.hook) {
        controls.hook(controls.user);
    } else {
        a->fault[0] = 1;
        a->fault[1] = 77;
        a->fault[2] = 7;
    }
}

#define ARGS const df_kargs *a, int64_t o0, int64_t o1, int64_t i0, int64_t i1
/* In octal. */
#define EACH_OF_8(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7)
#define EACH_OF_64(X, n)                                                                           \
    EACH_OF_8(X, n##0)                                                                             \
    EACH_OF_8(X, n##1)                                                                             \
    EACH_OF_8(X, n##2)                                                                             \
    EACH_OF_8(X, n##3)                                                                             \
    EACH_OF_8(X, n##4)                                                                             \
    EACH_OF_8(X, n##5)                                                                             \
    EACH_OF_8(X, n##6)                                                                             \
    EACH_OF_8(X, n##7)
#define EACH(X) EACH_OF_64(X, 00) EACH_OF_64(X, 01)

#define DEFINE(n)                                                                                  \
    static void main_##n(ARGS)                                                                     \
    {                                                                                              \
        launch(n, df_interp_main, a, o0, o1, i0, i1);                                              \
    }                                                                                              \
    static void part_##n(ARGS)                                                                     \
    {                                                                                              \
        launch(n, part, a, o0, o1, i0, i1);                                                        \
    }                                                                                              \
    static void fin_##n(ARGS)                                                                      \
    {                                                                                              \
        launch(n, fin, a, o0, o1, i0, i1);                                                         \
    }
EACH(DEFINE)
#undef DEFINE

static const df_kernel_fn entry[N_SLOTS][3] = {
#define ROW(n) { main_##n, part_##n, fin_##n },
    EACH(ROW)
#undef ROW
};

/* ---- planted defects ---- */

/* Asked for by the environment, for programs that cannot reach the controls: kernels in which a
 * product is rounded down are lowered wrong, or end or stop the process that compiles them. */
typedef enum defect { DEFECT_NONE, DEFECT_WRONG, DEFECT_CRASH, DEFECT_HANG } defect;

static defect planted;
static df_kernel wrong[N_SLOTS]; /* stand in for the kernels given */

static void read_defect(void)
{
    const char *const name = getenv("TEST_PLUGIN_DEFECT");
    if (!name) return;
    planted = strcmp(name, "wrong") == 0   ? DEFECT_WRONG
              : strcmp(name, "crash") == 0 ? DEFECT_CRASH
              : strcmp(name, "hang") == 0  ? DEFECT_HANG
                                           : DEFECT_NONE;
}

/* Whether instruction i rounds a product down. */
static bool is_seed(const df_kernel *k, uint32_t i)
{
    return k->ins[i].op == DF_K_floor && k->ins[k->ins[i].src[0]].op == DF_K_mul;
}

/* What is interpreted for k in that slot. NULL: no memory. */
static const df_kernel *lower(const df_kernel *k, int slot)
{
    uint32_t first = 0;
    while (first < k->n_ins && !is_seed(k, first)) first++;
    if (planted == DEFECT_NONE || first == k->n_ins) return k;
    if (planted == DEFECT_CRASH) abort();
    while (planted == DEFECT_HANG) (void)pause();
    df_ins *const ins = malloc(k->n_ins * sizeof *ins);
    if (!ins) return NULL;
    memcpy(ins, k->ins, k->n_ins * sizeof *ins);
    for (uint32_t i = first; i < k->n_ins; i++)
        if (is_seed(k, i)) ins[i].op = DF_K_ceil;
    wrong[slot] = *k;
    wrong[slot].ins = ins;
    return &wrong[slot];
}

static void drop_lowered(int slot)
{
    const df_kernel *const k = atomic_load(&slots[slot]);
    if (k == &wrong[slot]) free((void *)(uintptr_t)k->ins);
    atomic_store(&slots[slot], NULL);
}

/* ---- compiling ---- */

static bool fails(void)
{
    const uint32_t n = atomic_fetch_add(&controls.n_compiles, 1) + 1, at = controls.fail_compile;
    const bool now = at && (n == at || (n > at && controls.keep_failing));
    if (now) atomic_fetch_add(&controls.n_failed, 1);
    return now;
}

static void release(void *self, df_code *code)
{
    (void)self;
    drop_lowered((int)((const df_kernel *_Atomic *)code->owner - slots));
    *code = (df_code){ 0 };
    atomic_fetch_sub(&controls.n_live, 1);
}

static deft_status compile(void *self, df_diag *d, const df_kernel *const *k, uint32_t n,
                           df_opt level, df_code *out)
{
    (void)level;
    const struct timespec delay = { .tv_sec = controls.delay_ms / 1000,
                                    .tv_nsec = controls.delay_ms % 1000 * 1000000L };
    (void)nanosleep(&delay, NULL);
    if (fails())
        return host.fail(d, controls.status, "compilation %u fails as asked",
                         atomic_load(&controls.n_compiles));
    for (uint32_t i = 0; i < n; i++) {
        int slot = 0;
        const df_kernel *empty = NULL;
        while (slot < N_SLOTS && !atomic_compare_exchange_strong(&slots[slot], &empty, k[i])) {
            empty = NULL;
            slot++;
        }
        const df_kernel *const lowered = slot < N_SLOTS ? lower(k[i], slot) : NULL;
        if (!lowered) {
            if (slot < N_SLOTS) drop_lowered(slot);
            while (i-- > 0) release(self, &out[i]);
            return host.fail(d, DEFT_E_LIMIT, "more than %d kernels, or no memory", N_SLOTS);
        }
        atomic_store(&slots[slot], lowered);
        out[i] = (df_code){ .main = entry[slot][0],
                            .part = entry[slot][1],
                            .fin = entry[slot][2],
                            .bytes = 64,
                            .owner = (void *)&slots[slot] };
        atomic_fetch_add(&controls.n_live, 1);
    }
    return DEFT_OK;
}

static deft_status specialize(void *self, df_diag *d, const df_kernel *k, const df_facts *facts,
                              df_code *out)
{
    (void)facts; /* what it needs not know */
    return compile(self, d, &k, 1, DF_OPT_O2, out);
}

#define GEMM(T, fma_of)                                                                            \
    static void gemm_##T(int64_t k, const void *a, const void *b, void *c, int64_t ldc, int64_t m, \
                         int64_t n, int64_t first, const void *next)                               \
    {                                                                                              \
        (void)next;                                                                                \
        const T *const pa = a, *const pb = b;                                                      \
        T *const pc = c;                                                                           \
        for (int64_t i = 0; i < m; i++)                                                            \
            for (int64_t j = 0; j < n; j++) {                                                      \
                T acc = first ? 0 : pc[i * ldc + j];                                               \
                for (int64_t l = 0; l < k; l++) acc = fma_of(pa[l * MR + i], pb[l * NR + j], acc); \
                pc[i * ldc + j] = acc;                                                             \
            }                                                                                      \
    }
GEMM(float, fmaf)
GEMM(double, fma)
#undef GEMM

static deft_status gemm(void *self, df_diag *d, deft_dtype t, df_gemm_kernel *out)
{
    (void)self;
    if (fails()) return host.fail(d, controls.status, "micro-kernel fails as asked");
    *out = (df_gemm_kernel){ .fn = t == DEFT_F64 ? gemm_double : gemm_float, .mr = MR, .nr = NR };
    return DEFT_OK;
}

static void destroy(void *self)
{
    df_mem_free(host.mem, self, 64);
}

/* ---- entry ---- */

#define EXPORTED __attribute__((visibility("default")))

EXPORTED plugin_controls *test_plugin_controls(void);
EXPORTED deft_status df_plugin_cpu(const df_host *h, const char *build_id, df_diag *d,
                                   df_compiler *out);

plugin_controls *test_plugin_controls(void)
{
    return &controls;
}

deft_status df_plugin_cpu(const df_host *h, const char *build_id, df_diag *d, df_compiler *out)
{
    if (h->size != sizeof(df_host) || strcmp(build_id, DF_BUILD_ID) != 0) return DEFT_E_BACKEND;
    if (controls.refuse) return h->fail(d, controls.refuse, "refused as asked");
    host = *h;
    read_defect();
    void *const self = df_mem_alloc(h->mem, 64);
    if (!self) return h->fail(d, DEFT_E_MEMORY, "no memory");
    *out = (df_compiler){ .name = "test",
                          .self = self,
                          .vector_bytes = 16,
                          .compile = compile,
                          .specialize = specialize,
                          .release = release,
                          .gemm = gemm,
                          .destroy = destroy };
    return DEFT_OK;
}
