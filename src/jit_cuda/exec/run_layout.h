/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the GPU device: the run layout (run_layout.c). It holds all that follows from
 * a plan, its slots and the alignment of its buffers, and is kept for later runs.
 */
#ifndef DF_JIT_CUDA_FRAME_H
#define DF_JIT_CUDA_FRAME_H

#include "jit_cuda/exec/device_internal.h"

/* Origins: the addresses to which offsets in words are added. The first are the buffers of
 * the plan; these follow. */
enum { DF_CUDA_ORIGIN_TABLE, DF_CUDA_ORIGIN_TEMPS, DF_CUDA_ORIGIN_SCRATCH, DF_CUDA_N_ORIGINS };

/* Stands for an address that is not known while a run layout is built: aligned, and not
 * NULL. */
#define DF_CUDA_NOWHERE ((uintptr_t)1 << 20)

typedef struct df_cuda_fix { /* word `at` is an address: origin[origin] + add */
    uint32_t at, origin;
    int64_t add;
} df_cuda_fix;

typedef struct df_cuda_num { /* word `at` is argument `arg` of the trace */
    uint32_t at, arg;
} df_cuda_num;

typedef struct df_cuda_words {
    DF_VEC(uint64_t) word;
    DF_VEC(df_cuda_fix) fix;
    DF_VEC(df_cuda_num) num;
} df_cuda_words;

/* One launch of the driver, or one product of cuBLASLt. */
typedef struct df_cuda_step {
    uint32_t seg;   /* of the plan; the first when there are several */
    df_kern kernel; /* of the plan; DF_NO_KERN: a step of `job` */
    df_cuda_entry entry;
    uint32_t job;            /* index of the job; DF_NONE: none */
    uint32_t of_job;         /* which kernel of the job; DF_NONE: a product of cuBLASLt */
    uint32_t param, n_words; /* words [param, param + n_words) of params; cuBLASLt has none */
    uint32_t first_use, n_uses;
    uint32_t n_blocks, n_threads;
    uint32_t shared; /* bytes of shared memory that the launch asks for */
    df_cu_fn fn;
} df_cuda_step;

/* Memory that a step uses: a buffer of the plan, or n_bufs for scratch memory. */
typedef struct df_cuda_use {
    df_buf what;
    bool writes; /* it may also read */
} df_cuda_use;

/* A copy before the first step. A root keeps contents of its donor, but has memory of its
 * own. */
typedef struct df_cuda_copy {
    uint32_t buf;
    size_t bytes;
    df_cu_ptr to, from;
} df_cuda_copy;

/* Steps [begin, end). With is_checked, the fault words are read after them. */
typedef struct df_cuda_phase {
    uint32_t begin, end;
    bool is_checked;
} df_cuda_phase;

enum { DF_CUDA_PHASES = 3 };

/* A product or a routine of a run layout. */
typedef struct df_cuda_job {
    const df_seg *seg;
    bool is_check;         /* only checks the indices of a scatter */
    int64_t c_at, work_at; /* offsets in scratch memory: C, when the product needs one; workspace */
    uint32_t param;        /* its first word in params; the words of its launches are contiguous */
    /* a product: */
    df_cuda_gemm_job product;
    df_cuda_gemm choice;
    const df_kernel *epilogue; /* NULL: none */
    df_bound bound;            /* arguments of the epilogue, as are `args` */
    df_kargs args;
    /* first word of an epilogue that is a launch of its own, in params or in the table;
     * DF_NONE */
    uint32_t words;
    bool in_table; /* those words are in the table */
    /* a routine: */
    df_cuda_launches *list;
} df_cuda_job;

struct df_cuda_run_layout {
    uint32_t n_bufs, n_slots, n_launches; /* counts of its plan */
    bool is_laid_out;                     /* built, and its functions are loaded */
    bool by_table;                        /* all kernels are launched with MANY (table.h) */
    bool is_makeshift; /* some entries are fallbacks for others, which are being compiled */
    uint64_t arrived;  /* df_cuda_background_arrived before the layout was built */
    int64_t *slots;    /* the slots it was built for */
    uint8_t *low;      /* per buffer: its address modulo `align` when the layout was built */
    uint32_t align;    /* 16 or 256 bytes */
    char **origin;     /* the address of each buffer, then of DF_CUDA_ORIGIN_* */
    df_buffer **own;   /* per buffer: a reference to the memory of a root, during a run */
    /* per buffer: what a root in the graph pool will be, while a graph is launched */
    df_buffer **lent;
    struct df_tree_out *out; /* per buffer: what a graph tree needs to know */
    DF_VEC(df_cuda_step) steps;
    DF_VEC(df_cuda_use) uses;
    DF_VEC(df_cuda_copy) copies; /* of the current run, as phases are */
    df_cuda_phase phase[DF_CUDA_PHASES];
    uint32_t n_phases;
    uint32_t n_first; /* number of steps that check indices before the first launch */
    uint32_t *end;    /* per launch of the plan: the index behind its last step */
    DF_VEC(df_cuda_job) jobs;
    DF_VEC(df_cuda_fn *) job_fns; /* references to the functions of jobs */
    df_arena arena;               /* memory of jobs */
    df_cuda_words table;          /* copied to the GPU: fault words, tables of MANY launches */
    df_cuda_words params;         /* passed to launches */
    /* words that the table would have in addition if by_table were set */
    size_t n_spare;
    int64_t temps_bytes, scratch_bytes;
};

enum { DF_CUDA_FAULT_WORDS = 4 }; /* at the front of the table: three, and one that is unused */

df_cuda_run_layout *df_cuda_run_layout_create(const df_mem *mem,
                                              const df_plan *plan);         /* NULL: no memory */
void df_cuda_run_layout_destroy(const df_mem *mem, df_cuda_run_layout **f); /* NULL is fine */
/* Whether the layout can be used for these slots, by_table, and the addresses in f->origin. */
bool df_cuda_run_layout_fits(const df_cuda_run_layout *f, const df_plan *plan, const int64_t *slots,
                             bool by_table);
/* Whether entries that it lacks may have been compiled since it was built. */
bool df_cuda_run_layout_is_outdated(const df_cuda_run_layout *f, const df_cuda_device *c);
/* Builds the steps and words of a run with these slots. f->origin holds addresses, and for
 * temporaries offsets to DF_CUDA_NOWHERE. gpu: what grids and entries are chosen for. An export
 * has a device without a GPU, and a strict trace (exec/export.c). */
deft_status df_cuda_run_layout_build(df_cuda_run_layout *f, df_diag *d, df_cuda_device *c,
                                     const df_gpu_properties *gpu, const df_plan *plan,
                                     const df_trace *t, const int64_t *slots, bool by_table);

/* ---- functions.c ---- */

/* Gets the functions of all steps. Compiles what is missing; w is called during that wait,
 * and may be NULL. */
deft_status df_cuda_run_layout_load(df_cuda_run_layout *f, df_diag *d, df_cuda_device *c,
                                    const df_plan *plan, df_waiter *w);

/* Stores fn, whose reference it takes, in a plan. When another thread was first, its
 * function stays and fn is dropped. */
void df_cuda_publish(df_cuda_fn *_Atomic *at, df_cuda_fn *fn);

#endif
