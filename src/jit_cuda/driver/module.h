/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of one GPU: compiled when a run first wants them, loaded, found again by their
 * canonical bytes and entry.
 *
 *   module.c    what is known; loading
 *   compile.c   wanted entries to programs, many kernels each, several compiled at a time
 *   background.c     entries that runs can do without for a while: compiled beside them
 *   dump.c      texts of programs as files, for people
 *
 * A program holds kernels that may contract or such that may not. For a GPU whose
 * generation NVRTC knows it is a cubin, for a newer one PTX, which the driver compiles. An *image*
 * is a loaded program; it is unloaded when nobody holds a function of it any more: neither this
 * cache, which is bounded by bytes, nor a plan.
 */
#ifndef DF_JIT_CUDA_MODULE_H
#define DF_JIT_CUDA_MODULE_H

#include "base/counted.h"
#include "jit_cuda/gen/cuda_abi.h"
#include "jit_cuda/driver/gpu.h"
#include "jit_cuda/driver/nvrtc.h"

typedef struct df_modules df_modules;

/* An entry that can be launched while a reference is held. */
typedef struct df_cuda_fn {
    df_counted counted;
    df_cu_fn fn;
    struct df_cuda_image *image;
} df_cuda_fn;

typedef struct df_cuda_want {
    const df_kernel *kernel;
    df_cuda_entry entry;
    const char *ops; /* for sentences; may be NULL */
    uintptr_t site;
    df_cuda_fn *fn; /* out: a reference */
    double cost;    /* these two are compile.c's */
    uint32_t piece;
} df_cuda_want;

typedef struct df_modules_options {
    size_t max_bytes; /* of code that no plan needs; 0: no bound */
    /* Returns when nothing that was launched before still runs: before an image is unloaded. */
    void (*settle)(void *user);
    void *user;
} df_modules_options;

typedef struct df_modules_stats {
    uint64_t hits, compiled; /* entries */
    uint64_t programs, compile_ns, code_bytes;
} df_modules_stats;

deft_status df_modules_create(df_diag *d, const df_mem *mem, const df_log *log, df_gpu *gpu,
                              df_nvrtc *nvrtc, const df_modules_options *o, df_modules **out);
void df_modules_destroy(df_modules **m); /* no function is held any more; NULL is fine */

/* A function for each of n wants, no two of them equal; wants of one kernel stand together. All or
 * none. Any thread. n_threads: that compile, at most; 0: as many as there are processors. w: while
 * it waits; NULL: nobody asks. DEFT_E_COMPILE: the sentence names the kernel; DEFT_E_INTERRUPTED: w
 * was stopped, and what was in the compiler is kept. */
deft_status df_modules_get(df_modules *m, df_diag *d, df_cuda_want *want, uint32_t n,
                           uint32_t n_threads, df_waiter *w);
/* What is there already, as a reference; NULL: it is not, or there was no memory to look. */
df_cuda_fn *df_modules_find(df_modules *m, const df_kernel *k, df_cuda_entry e);
df_modules_stats df_modules_read(df_modules *m);

/* ---- texts of one's own: matrix products, routines ---- */

typedef struct df_cuda_program {
    const void *key; /* n_key bytes: what the text follows from, of at least 4 bytes */
    size_t n_key;
    bool contracts;
    bool is_ptx; /* calls what the driver has, which links it while it compiles PTX */
    /* Appends to what begins with the prelude. */
    deft_status (*write)(const void *user, df_diag *d, const df_mem *mem, df_str *out);
    const void *user;
    const char *const *name; /* its entries */
    uint32_t n_names;
    const char *what; /* for sentences */
} df_cuda_program;

/* fn[i]: a reference to the entry of that name. */
deft_status df_modules_program(df_modules *m, df_diag *d, const df_cuda_program *p,
                               df_cuda_fn **fn);

/* ---- compile.c ---- */

/* A program while it is made. */
typedef struct df_cuda_piece {
    uint32_t first, n; /* wants, of the list that is given */
    double cost;       /* about how long it takes */
    df_cubin code;     /* out; to be finished */
    df_diag diag;
    deft_status st;
    bool is_tried;
} df_cuda_piece;

typedef struct df_cuda_compiler {
    const df_mem *mem;
    const df_nvrtc *nvrtc;
    const df_log *log;
    int arch; /* of the GPU */
} df_cuda_compiler;

/* Text to code for the GPU. */
deft_status df_cuda_build(const df_cuda_compiler *c, df_diag *d, const char *text, bool contracts,
                          df_cubin *out);
/* The same as PTX, whatever the GPU. */
deft_status df_cuda_build_ptx(const df_cuda_compiler *c, df_diag *d, const char *text,
                              bool contracts, df_cubin *out);
/* The name of the entry of want i of a piece. */
void df_cuda_piece_name(df_cuda_want *const *want, const df_cuda_piece *p, uint32_t i,
                        char out[64]);
/* Cuts wants, sorted so that those that may contract stand together, into pieces for n_threads; at
 * most n. Kernels are put in another order, so that pieces take about the same time. */
uint32_t df_cuda_pieces(df_cuda_want **want, uint32_t n, uint32_t n_threads, df_cuda_piece *out);
/* Tries all pieces; n_threads and w as above. Each piece's st says how it went. */
deft_status df_cuda_compile(const df_cuda_compiler *c, df_diag *d, df_cuda_want *const *want,
                            df_cuda_piece *piece, uint32_t n, uint32_t n_threads, df_waiter *w);
/* So many threads compile where nobody says how many. */
uint32_t df_cuda_compile_threads(void);

/* ---- background.c ---- */

/* Entries that are compiled beside runs, by a thread of their own, which begins with the first. */
typedef struct df_cuda_background df_cuda_background;

typedef enum df_cuda_answer {
    DF_CUDA_COMES, /* df_cuda_background_arrived will grow, and it is worth looking again */
    DF_CUDA_NEVER, /* it could not be made: what stands in goes on */
    DF_CUDA_NOBODY /* no memory, no thread, or a forked child: nobody makes it */
} df_cuda_answer;

deft_status df_cuda_background_create(df_diag *d, const df_mem *mem, const df_log *log,
                                      df_modules *m, df_cuda_background **out);
/* Waits for the program in the compiler; what is still queued is dropped. NULL is fine. */
void df_cuda_background_destroy(df_cuda_background **l);
/* For m to have entry e; k and ops, for sentences, are copied. Any thread, but not in a child. */
df_cuda_answer df_cuda_background_ask(df_cuda_background *l, const df_kernel *k, df_cuda_entry e,
                                      const char *ops);
/* Grows when something was made, or could not be. l may be NULL: 0. */
uint64_t df_cuda_background_arrived(const df_cuda_background *l);
void df_cuda_background_settle(df_cuda_background *l); /* until nothing is queued; NULL is fine */

/* ---- dump.c ---- */

/* Writes the text of a program where DEFT_CUDA_DUMP asks for it. Any thread. */
void df_cuda_dump(const df_log *log, const char *text);

#endif
