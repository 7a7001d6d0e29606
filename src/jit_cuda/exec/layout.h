/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the GPU device: building a run layout (layout.c, run_layout.c), and products
 * and routines in it (jobs.c).
 */
#ifndef DF_JIT_CUDA_LAY_H
#define DF_JIT_CUDA_LAY_H

#include "jit_cuda/exec/run_layout.h"

/* The state while a run layout is built. */
typedef struct df_cuda_layout_builder {
    df_cuda_run_layout *f;
    df_cuda_device *c;
    const df_gpu_properties *gpu;
    const df_plan *plan;
    const df_trace *t;
    const int64_t *slots;
    df_arena arena;  /* reset for each launch of the plan */
    int64_t scratch; /* bytes of scratch memory that the current launch has taken */
} df_cuda_layout_builder;

/* ---- layout.c ---- */

/* bytes, rounded up to the alignment of scratch memory. */
int64_t df_cuda_scratch_aligned(int64_t bytes);
/* The index in f->origin of `which`, for example DF_CUDA_ORIGIN_TABLE. */
uint32_t df_cuda_origin_of(const df_cuda_layout_builder *l, uint32_t which);
/* Takes scratch memory for the current launch. Returns its offset. */
int64_t df_cuda_take_scratch(df_cuda_layout_builder *l, int64_t bytes);
/* Appends n words that are 0. Returns DEFT_E_MEMORY on failure, as all functions below do. */
deft_status df_cuda_more_words(const df_cuda_layout_builder *l, df_diag *d, df_cuda_words *to,
                               size_t n);
/* Declares that word `at` of params is an address: origin `which` plus `add` bytes. */
deft_status df_cuda_param_fix(const df_cuda_layout_builder *l, df_diag *d, uint32_t at,
                              uint32_t which, int64_t add);
/* Declares what the next step reads or writes. The uses of a step are declared before it is
 * added. buf DF_NONE declares nothing. */
deft_status df_cuda_use_buffer(const df_cuda_layout_builder *l, df_diag *d, df_buf buf,
                               bool writes);
/* Declares that the next step reads and writes scratch memory. */
deft_status df_cuda_use_scratch(const df_cuda_layout_builder *l, df_diag *d);
/* Declares the accesses of a kernel. */
deft_status df_cuda_use_accesses(const df_cuda_layout_builder *l, df_diag *d, const df_seg *seg,
                                 const df_kernel *k);
/* Appends a copy of a step, with all uses that were declared since the step before. */
deft_status df_cuda_add_step(const df_cuda_layout_builder *l, df_diag *d, const df_cuda_step *s);

/* ---- fallback.c ---- */

/* The entry that a phase uses. */
df_cuda_entry df_cuda_entry_of(df_cuda_choice choice, df_cuda_pass pass, bool many);
/* Replaces entries that are not compiled yet by entries that are and give equal bits. Then
 * *choice and *many are those of the fallback, and the missing entries are requested from
 * background compilation. facts: the flags that all segments allow together. */
void df_cuda_use_fallback(df_cuda_layout_builder *l, df_kern kernel, uint8_t facts,
                          df_cuda_choice *choice, bool *many);

/* ---- jobs.c ---- */

/* Whether segment `seg`, which is not a kernel, can be a job. If not, the reason is in why. */
bool df_cuda_job_can(df_diag *why, const df_plan *plan, const df_seg *seg);
/* Adds the job of a segment: its steps, and room for their words. is_check: only the steps
 * that check indices. */
deft_status df_cuda_job_build(df_cuda_layout_builder *l, df_diag *d, uint32_t seg, bool is_check);
/* Gets the functions of the steps of jobs. Compiles what is missing. */
deft_status df_cuda_jobs_load(df_cuda_run_layout *f, df_diag *d, df_cuda_device *c);
/* Appends the text of the job's program to `out`, which already holds the prelude. The job has a
 * step that is no product of cuBLASLt. */
deft_status df_cuda_job_write(const df_cuda_job *j, df_diag *d, const df_mem *mem, df_str *out);
/* The name in that program of the entry of a step of the job, which is no epilogue. A static
 * string. */
const char *df_cuda_job_entry(const df_cuda_job *j, const df_cuda_step *s);
/* Removes all jobs and drops their functions. */
void df_cuda_jobs_clear(df_cuda_run_layout *f);
/* The alignment of buffers on which the layout relies, in bytes. Algorithms of cuBLASLt may
 * need more than kernels do. */
uint32_t df_cuda_jobs_align(const df_cuda_run_layout *f);
/* Writes the words of all jobs. f->origin holds the addresses of this run. */
deft_status df_cuda_jobs_fill(df_cuda_run_layout *f, df_diag *d, const df_trace *t,
                              const int64_t *slots);
/* Writes the words on which a step of cuBLASLt depends in this run. Returns how many there
 * are. out NULL: only counts them. */
uint32_t df_cuda_job_lt_words(const df_cuda_run_layout *f, const df_cuda_step *s, uint64_t *out);
/* Enqueues a product of cuBLASLt. The GPU's context is current. */
deft_status df_cuda_job_run_lt(const df_cuda_run_layout *f, df_diag *d, df_cuda_device *c,
                               const df_cuda_step *s, df_cu_stream stream);

#endif
