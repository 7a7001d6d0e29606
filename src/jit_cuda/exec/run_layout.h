/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the GPU device: the frame of a run (run_layout.c), which is all that follows from a
 * plan, its slots and the alignment of its buffers; kept from run to run.
 */
#ifndef DF_JIT_CUDA_FRAME_H
#define DF_JIT_CUDA_FRAME_H

#include "jit_cuda/exec/device_internal.h"

/* Where words that are addresses are counted from: plan buffers, then these. */
enum { DF_CUDA_ORIGIN_TABLE, DF_CUDA_ORIGIN_TEMPS, DF_CUDA_ORIGIN_SCRATCH, DF_CUDA_N_ORIGINS };

/* What has no address while a frame is laid out is taken to be here: aligned, and not NULL. */
#define DF_CUDA_NOWHERE ((uintptr_t)1 << 20)

typedef struct df_cuda_fix { /* a word: an address */
    uint32_t at, origin;
    int64_t add;
} df_cuda_fix;

typedef struct df_cuda_num { /* a word: an argument of the trace */
    uint32_t at, arg;
} df_cuda_num;

typedef struct df_cuda_words {
    DF_VEC(uint64_t) word;
    DF_VEC(df_cuda_fix) fix;
    DF_VEC(df_cuda_num) num;
} df_cuda_words;

/* One launch of the driver, or a product of cuBLASLt's. */
typedef struct df_cuda_step {
    uint32_t seg;    /* of the plan: the first */
    uint32_t kernel; /* of the plan; DF_NONE: of `job` */
    df_cuda_entry entry;
    uint32_t job;            /* whose; DF_NONE */
    uint32_t of_job;         /* which entry of it; DF_NONE: cuBLASLt */
    uint32_t param, n_words; /* where its parameter is among params; cuBLASLt: none */
    uint32_t first_use, n_uses;
    uint32_t n_blocks, n_threads;
    df_cu_fn fn;
} df_cuda_step;

/* What a step reads or writes: a buffer of the plan, or n_bufs: scratch memory. */
typedef struct df_cuda_use {
    uint32_t what;
    bool writes; /* and may read */
} df_cuda_use;

/* What is there before the first step: the donor's contents, in a root of its own. */
typedef struct df_cuda_copy {
    uint32_t buf;
    size_t bytes;
    df_cu_ptr to, from;
} df_cuda_copy;

/* Steps [begin, end), after which the words of fault are looked at, or not. */
typedef struct df_cuda_phase {
    uint32_t begin, end;
    bool is_checked;
} df_cuda_phase;

enum { DF_CUDA_PHASES = 3 };

/* A product or a routine. */
typedef struct df_cuda_job {
    const df_seg *seg;
    bool is_check;         /* of a scatter's indices alone */
    int64_t c_at, work_at; /* within the scratch memory: C, where it must be made; work space */
    uint32_t param;        /* of its first launch, the others follow */
    /* a product: */
    df_cuda_gemm_job product;
    df_cuda_gemm choice;
    const df_kernel *epilogue; /* NULL: none */
    df_bound bound;            /* arguments of the epilogue */
    df_kargs args;
    uint32_t words; /* of an epilogue by itself, among params, or in the table; DF_NONE */
    bool in_table;
    /* a routine: */
    df_cuda_launches *list;
} df_cuda_job;

struct df_cuda_run_layout {
    uint32_t n_bufs, n_slots, n_launches; /* of its plan */
    bool is_laid_out;
    bool by_table;     /* all kernels go by MANY (table.h) */
    bool is_makeshift; /* entries stand in for others, which are on their way: */
    uint64_t arrived;  /* df_cuda_background_arrived before it was laid out */
    int64_t *slots;    /* that it was laid out for */
    uint8_t *low;      /* and of each buffer its address modulo `align`: 16 or 256 */
    uint32_t align;
    char **origin;    /* per buffer, then DF_CUDA_ORIGIN_* */
    df_buffer **own;  /* per buffer: the reference of a root until it is handed out */
    df_buffer **lent; /* per buffer, while a graph is launched: what a root in the pool will be */
    struct df_tree_out *out; /* per buffer: room for what a graph tree wants to know */
    DF_VEC(df_cuda_step) steps;
    DF_VEC(df_cuda_use) uses;
    DF_VEC(df_cuda_copy) copies; /* of the run at hand, as phases are */
    df_cuda_phase phase[DF_CUDA_PHASES];
    uint32_t n_phases;
    uint32_t n_first; /* steps that look at indices, before the first launch */
    uint32_t *end;    /* per launch: past the last of its steps */
    DF_VEC(df_cuda_job) jobs;
    DF_VEC(df_cuda_fn *) job_fns; /* references, as jobs have entries */
    df_arena arena;               /* of jobs */
    df_cuda_words table;          /* goes to the device: words of fault, tables of MANY */
    df_cuda_words params;         /* goes with launches */
    size_t n_spare;               /* words that the table would have more, by_table */
    int64_t temps_bytes, scratch_bytes;
};

enum { DF_CUDA_FAULT_WORDS = 4 }; /* at the front of the table: three, and one unused */

df_cuda_run_layout *df_cuda_run_layout_create(const df_mem *mem,
                                              const df_plan *plan);         /* NULL: no memory */
void df_cuda_run_layout_destroy(const df_mem *mem, df_cuda_run_layout **f); /* NULL is fine */
/* Whether it stands as it is for these slots, f->origin and by_table. */
bool df_cuda_run_layout_fits(const df_cuda_run_layout *f, const df_plan *plan, const int64_t *slots,
                             bool by_table);
/* Whether what it does without may have come. */
bool df_cuda_run_layout_is_outdated(const df_cuda_run_layout *f, const df_cuda_device *c);
/* Steps and words of a run on these slots and f->origin; of temporaries these are offsets. */
deft_status df_cuda_run_layout_build(df_cuda_run_layout *f, df_diag *d, df_cuda_device *c,
                                     const df_plan *plan, const df_trace *t, const int64_t *slots,
                                     bool by_table);

/* ---- functions.c ---- */

/* Functions of all steps; what is missing is compiled. */
deft_status df_cuda_run_layout_load(df_cuda_run_layout *f, df_diag *d, df_cuda_device *c,
                                    const df_plan *plan, df_waiter *w);

/* fn, a reference, at its place among a plan's; or another was first, and that stays. */
void df_cuda_publish(df_cuda_fn *_Atomic *at, df_cuda_fn *fn);

#endif
