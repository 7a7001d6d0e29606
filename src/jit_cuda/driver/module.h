/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of one GPU: compiled when a run first wants them, loaded, and cached. An
 * *entry* is a function of a kernel: a phase with a set of flags (cuda_abi.h). The cache
 * key is the canonical bytes of a kernel together with its entry.
 *
 *   module.c       the cache; loading
 *   compile.c      wanted entries to programs of many kernels, several compiled at a time
 *   background.c   entries that are compiled while runs use a more general entry, the fallback
 *   dump.c         texts of programs as files, for people
 *
 * Contraction fuses a multiplication and an addition. It is allowed in all kernels of a
 * program, or in none. A program is a cubin when NVRTC knows the generation of the GPU. For
 * a newer GPU it is PTX, which the driver compiles. A program with is_ptx is always PTX.
 *
 * An *image* is a loaded program. It is unloaded when no function of it is held any more,
 * neither by this cache, which is bounded in bytes, nor by a plan.
 */
#ifndef DF_JIT_CUDA_MODULE_H
#define DF_JIT_CUDA_MODULE_H

#include "base/counted.h"
#include "jit_cuda/gen/cuda_abi.h"
#include "jit_cuda/driver/gpu.h"
#include "jit_cuda/driver/nvrtc.h"

typedef struct df_modules df_modules;

/* A loaded entry. It can be launched while a reference is held. */
typedef struct df_cuda_fn {
    df_counted counted;
    df_cu_fn fn;
    struct df_cuda_image *image;
} df_cuda_fn;

/* Drops a reference and sets *fn to NULL. *fn may be NULL. Any thread. */
DF_INLINE void df_cuda_fn_drop(df_cuda_fn **fn)
{
    df_counted *counted = *fn ? &(*fn)->counted : NULL;
    *fn = NULL;
    df_counted_drop(&counted);
}

/* A request for one entry of a kernel. */
typedef struct df_cuda_want {
    const df_kernel *kernel;
    df_cuda_entry entry;
    const char *ops; /* for error messages; may be NULL */
    uintptr_t site;  /* call site, for waiters */
    df_cuda_fn *fn;  /* out: a reference */
    double cost;     /* `cost` and `piece` are private to compile.c */
    uint32_t piece;
} df_cuda_want;

typedef struct df_modules_options {
    size_t max_bytes; /* bound on code in the cache; 0: no bound */
    /* Called before an image is unloaded, by the thread that drops its last function. Must return
     * only when everything that was launched before has ended. Must not be NULL. */
    void (*settle)(void *user);
    void *user;
} df_modules_options;

typedef struct df_modules_stats {
    uint64_t hits, compiled;       /* entries found in the cache; entries compiled */
    uint64_t programs, compile_ns; /* programs that were compiled, also in vain; their time */
    uint64_t code_bytes;           /* of all loaded images */
} df_modules_stats;

/* The caller owns *out. All other arguments but d and o must outlive it. */
deft_status df_modules_create(df_diag *d, const df_mem *mem, const df_log *log, df_gpu *gpu,
                              df_nvrtc *nvrtc, const df_modules_options *o, df_modules **out);
/* All functions must have been dropped before. *m may be NULL, and is NULL afterwards. */
void df_modules_destroy(df_modules **m);

/* Fills in `fn` of each of n wants, with a reference. No two wants may be equal, and wants
 * of one kernel must be neighbours. On failure no want has a function. Any thread.
 *
 * n_threads: how many threads compile at most; 0 means one per processor, but at most 16. w
 * is called while the calling thread waits; NULL means that nobody can interrupt.
 *
 * Returns DEFT_E_COMPILE with a sentence that names the kernel, DEFT_E_INTERRUPTED when w
 * stopped the wait, or another error. Programs that were already in the compiler are kept
 * in the cache. */
deft_status df_modules_get(df_modules *m, df_diag *d, df_cuda_want *want, uint32_t n,
                           uint32_t n_threads, df_waiter *w);
/* Returns a reference to an entry that is in the cache. Returns NULL when the entry is not
 * there, or when memory for the key runs out. Any thread. */
df_cuda_fn *df_modules_find(df_modules *m, const df_kernel *k, df_cuda_entry e);
/* Returns the statistics so far. Any thread. */
df_modules_stats df_modules_read(df_modules *m);

/* ---- programs that are not generated from a kernel: matrix products, routines ---- */

typedef struct df_cuda_program {
    const void *key; /* n_key bytes, at least 4, that determine the text */
    size_t n_key;
    bool contracts; /* may be compiled with contraction (fused multiply-add) */
    /* compile to PTX: the text calls functions of the driver, which links them only into
     * PTX */
    bool is_ptx;
    /* Appends the text to `out`, which already holds the prelude. */
    deft_status (*write)(const void *user, df_diag *d, const df_mem *mem, df_str *out);
    const void *user;
    const char *const *name; /* names of the entries */
    uint32_t n_names;
    const char *what; /* for error messages and the log */
} df_cuda_program;

/* Compiles and loads p, unless it is in the cache. fn[i] receives a reference to the entry
 * name[i]. On failure all are NULL. Any thread. */
deft_status df_modules_program(df_modules *m, df_diag *d, const df_cuda_program *p,
                               df_cuda_fn **fn);

/* ---- compile.c ---- */

/* One program while it is compiled. */
typedef struct df_cuda_piece {
    uint32_t first, n; /* wants [first, first + n) of the caller's list */
    double cost;       /* estimated time to compile, in ms */
    df_cubin code;     /* out: to be freed with df_cubin_finish */
    df_diag diag;      /* the error, when st is not DEFT_OK */
    deft_status st;
    bool is_tried; /* false: left out because the wait was interrupted */
} df_cuda_piece;

typedef struct df_cuda_compiler {
    const df_mem *mem;
    const df_nvrtc *nvrtc;
    const df_log *log;
    int arch; /* of the GPU: 90 is compute capability 9.0 */
} df_cuda_compiler;

/* Compiles a text for the GPU: to a cubin, or to PTX when NVRTC does not know the GPU's
 * generation. contracts: multiplications and additions may be contracted. Returns
 * DEFT_E_BACKEND when NVRTC knows no architecture up to that of the GPU. The caller frees
 * *out with df_cubin_finish. */
deft_status df_cuda_build(const df_cuda_compiler *c, df_diag *d, const char *text, bool contracts,
                          df_cubin *out);
/* As df_cuda_build, but compiles to PTX also when NVRTC knows the generation. */
deft_status df_cuda_build_ptx(const df_cuda_compiler *c, df_diag *d, const char *text,
                              bool contracts, df_cubin *out);
/* Writes the name that the entry of want[i] has in the program of piece p. i is an index into the
 * whole list, within the range of p. */
void df_cuda_piece_name(df_cuda_want *const *want, const df_cuda_piece *p, uint32_t i,
                        char out[64]);
/* Divides n wants into at most n pieces for n_threads, and returns how many there are.
 * Wants of one kernel must be neighbours. Wants that may not be contracted must come first.
 * Reorders the wants so that each piece is a range of them, and so that all pieces take about the
 * same time. */
uint32_t df_cuda_pieces(df_cuda_want **want, uint32_t n, uint32_t n_threads, df_cuda_piece *out);
/* Compiles n pieces; n_threads and w mean the same as for df_modules_get, but n_threads is
 * not 0. Each piece's st says how it went. Returns DEFT_E_INTERRUPTED when w stopped the
 * wait before all pieces were tried, otherwise DEFT_OK. */
deft_status df_cuda_compile(const df_cuda_compiler *c, df_diag *d, df_cuda_want *const *want,
                            df_cuda_piece *piece, uint32_t n, uint32_t n_threads, df_waiter *w);
/* How many threads compile when the caller does not say. */
uint32_t df_cuda_compile_threads(void);

/* ---- background.c ---- */

/* Background compilation of entries, by one thread, which starts with the first request. */
typedef struct df_cuda_background df_cuda_background;

/* The answer to a request for an entry. */
typedef enum df_cuda_answer {
    DF_CUDA_COMES, /* use the fallback, and ask again when df_cuda_background_arrived has grown */
    /* The entry could not be compiled, or the list is full of entries that could not: use the
     * fallback for good. */
    DF_CUDA_NEVER,
    /* No memory, no thread, or a forked child: the caller compiles the entry itself. */
    DF_CUDA_NOBODY
} df_cuda_answer;

/* The caller owns *out. mem, log and m must outlive it. */
deft_status df_cuda_background_create(df_diag *d, const df_mem *mem, const df_log *log,
                                      df_modules *m, df_cuda_background **out);
/* Waits for the entries that are being compiled, and drops the queued ones. When a program of
 * several entries is refused, the wait includes compiling each of them alone. *l may be
 * NULL, and is NULL afterwards. */
void df_cuda_background_destroy(df_cuda_background **l);
/* Asks for entry e of kernel k to be compiled into the modules. k and ops, which is for
 * error messages and may be NULL, are copied. An entry that is queued is not queued again. l
 * must not be NULL. Any thread. */
df_cuda_answer df_cuda_background_ask(df_cuda_background *l, const df_kernel *k, df_cuda_entry e,
                                      const char *ops);
/* A number that grows each time when a group of entries was compiled or has failed. 0 for l
 * NULL. Any thread. */
uint64_t df_cuda_background_arrived(const df_cuda_background *l);
/* Waits until no entry is queued or being compiled. In a forked child it returns at once. l
 * may be NULL. Any thread. */
void df_cuda_background_settle(df_cuda_background *l);

/* ---- dump.c ---- */

/* Writes the text of a program to a file in the folder that the environment variable DEFT_CUDA_DUMP
 * names, if it is set. A failure is only logged. Any thread. */
void df_cuda_dump(const df_log *log, const char *text);

#endif
