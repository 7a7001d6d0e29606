/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the GPU device: laying out a frame (run_layout.c), and products and routines in it
 * (jobs.c).
 */
#ifndef DF_JIT_CUDA_LAY_H
#define DF_JIT_CUDA_LAY_H

#include "jit_cuda/exec/run_layout.h"

/* While a frame is laid out. */
typedef struct df_cuda_layout_builder {
    df_cuda_run_layout *f;
    df_cuda_device *c;
    const df_gpu_properties *gpu;
    const df_plan *plan;
    const df_trace *t;
    const int64_t *slots;
    df_arena arena;  /* of the launch at hand */
    int64_t scratch; /* taken of the launch at hand */
} df_cuda_layout_builder;

/* ---- layout.c ---- */

/* bytes, rounded up to the alignment of scratch memory. */
int64_t df_cuda_scratch_aligned(int64_t bytes);
/* The index in f->origin of DF_CUDA_ORIGIN_TABLE and the like. */
uint32_t df_cuda_origin_of(const df_cuda_layout_builder *l, uint32_t which);
/* Where so many bytes of scratch memory are. */
int64_t df_cuda_take_scratch(df_cuda_layout_builder *l, int64_t bytes);
/* n more words, zero. */
deft_status df_cuda_more_words(const df_cuda_layout_builder *l, df_diag *d, df_cuda_words *to,
                               size_t n);
/* A word of params is an address. */
deft_status df_cuda_param_fix(const df_cuda_layout_builder *l, df_diag *d, uint32_t at,
                              uint32_t which, int64_t add);
/* The step at hand uses memory; uses come before their step. */
deft_status df_cuda_use_buffer(const df_cuda_layout_builder *l, df_diag *d, uint32_t buf,
                               bool writes);
deft_status df_cuda_use_scratch(const df_cuda_layout_builder *l, df_diag *d);
deft_status df_cuda_use_accesses(const df_cuda_layout_builder *l, df_diag *d, const df_seg *seg,
                                 const df_kernel *k);
/* With all uses since the step before. */
deft_status df_cuda_add_step(const df_cuda_layout_builder *l, df_diag *d, const df_cuda_step *s);

/* ---- fallback.c ---- */

/* The entry of a pass. */
df_cuda_entry df_cuda_entry_of(df_cuda_choice choice, df_cuda_pass pass, bool many);
/* Should entries be missing and others do in their place, *choice and *many become theirs, and the
 * missing ones are asked for. facts: of all segments that go by them. */
void df_cuda_use_fallback(df_cuda_layout_builder *l, uint32_t kernel, uint8_t facts,
                          df_cuda_choice *choice, bool *many);

/* ---- jobs.c ---- */

/* Whether segment `seg`, no kernel, can be a job. */
bool df_cuda_job_can(df_diag *why, const df_plan *plan, const df_seg *seg);
/* Its steps and places for their words. is_check: of the indices alone. */
deft_status df_cuda_job_build(df_cuda_layout_builder *l, df_diag *d, uint32_t seg, bool is_check);
/* The functions of steps of jobs. */
deft_status df_cuda_jobs_load(df_cuda_run_layout *f, df_diag *d, df_cuda_device *c);
void df_cuda_jobs_clear(df_cuda_run_layout *f);
/* Of addresses, what the layout relies on: cuBLASLt's algorithms may want more than kernels. */
uint32_t df_cuda_jobs_align(const df_cuda_run_layout *f);
/* Words of all jobs, f->origin being addresses. */
deft_status df_cuda_jobs_fill(df_cuda_run_layout *f, df_diag *d, const df_trace *t,
                              const int64_t *slots);
/* What a product of cuBLASLt's follows from in this run, as n words at out, or only how many
 * (NULL). */
uint32_t df_cuda_job_lt_words(const df_cuda_run_layout *f, const df_cuda_step *s, uint64_t *out);
/* A product of cuBLASLt's is put in. */
deft_status df_cuda_job_run_lt(const df_cuda_run_layout *f, df_diag *d, df_cuda_device *c,
                               const df_cuda_step *s, df_cu_stream stream);

#endif
