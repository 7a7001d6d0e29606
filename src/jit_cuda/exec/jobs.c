/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products (gemm.h) and routines (routine.h) as steps of a run layout. The layout
 * decides which implementation they use and how many launches that takes. The words of
 * those launches are written anew for each run, from jobs with the addresses of the run.
 */
#include "jit_cuda/exec/layout.h"

#include <stdio.h>
#include <string.h>

bool df_cuda_job_can(df_diag *why, const df_plan *plan, const df_seg *seg)
{
    if (seg->kind == DF_SEG_ROUTINE) return true;
    const df_kernel *const k = df_seg_kernel(plan, seg);
    const bool is_real = seg->dtype == DEFT_F32 || seg->dtype == DEFT_F64;
    if (is_real && (!k || seg->c_access < UINT8_MAX)) return true;
    (void)df_fail(why, DEFT_E_COMPILE, "cuda: no product of %s with such an epilogue",
                  deft_dtype_name(seg->dtype));
    return false;
}

/* ---- products ---- */

static df_cublaslt *library_for(df_cuda_device *c, const df_trace *t)
{
    df_diag d = { 0 };
    if (!(t->flags & DF_TRACE_FAST)) return NULL;
    pthread_mutex_lock(&c->lock);
    if (!c->lt_is_tried && df_gpu_enter(c->gpu, NULL) == DEFT_OK) {
        c->lt_is_tried = true;
        if (df_cublaslt_open(&d, c->mem, NULL, &c->lt) != DEFT_OK)
            df_logf(c->log, plugin, "%s", d.text);
        df_gpu_leave(c->gpu);
    }
    df_cublaslt *const lt = c->lt;
    pthread_mutex_unlock(&c->lock);
    return lt;
}

static uint64_t job_operand_address(const df_cuda_run_layout *f, const df_bind *bind, deft_dtype t,
                                    const int64_t *slots)
{
    if (bind->buf.i == DF_NONE) return 0;
    return (uintptr_t)f->origin[bind->buf.i] +
           (uint64_t)(df_slot_value(slots, bind->offset) * (int64_t)deft_dtype_size(t));
}

static void aim_operands(const df_cuda_run_layout *f, df_cuda_job *j, const int64_t *slots)
{
    const df_seg *const seg = j->seg;
    j->product.a = job_operand_address(f, &seg->a, seg->a_dtype, slots);
    j->product.b = job_operand_address(f, &seg->b, seg->b_dtype, slots);
    j->product.c = job_operand_address(f, &seg->c, seg->dtype, slots);
}

static void job_describe_product(const df_cuda_layout_builder *l, df_cuda_job *j)
{
    const df_seg *const seg = j->seg;
    const int64_t *const slots = l->slots;
    const bool has_c = seg->c.buf.i != DF_NONE;
    const uint32_t row = seg->n_batch, col = row + 1;
    df_cuda_gemm_job *const p = &j->product;
    *p = (df_cuda_gemm_job){ .dtype = seg->dtype,
                             .a_dtype = seg->a_dtype,
                             .b_dtype = seg->b_dtype,
                             .fast = (l->t->flags & DF_TRACE_FAST) != 0,
                             .mma = l->gpu->arch >= 80,
                             .m = df_slot_value(slots, seg->m),
                             .n = df_slot_value(slots, seg->n),
                             .k = df_slot_value(slots, seg->k),
                             .batch_rank = seg->n_batch,
                             .a_row = df_slot_value(slots, seg->a.stride[row]),
                             .a_col = df_slot_value(slots, seg->a.stride[col]),
                             .b_row = df_slot_value(slots, seg->b.stride[row]),
                             .b_col = df_slot_value(slots, seg->b.stride[col]),
                             .c_row = has_c ? df_slot_value(slots, seg->c.stride[row]) : 0,
                             .epilogue = j->epilogue,
                             .c_access = seg->c_access };
    for (uint32_t i = 0; i < seg->n_batch; i++) {
        p->batch_extent[i] = df_slot_value(slots, seg->batch[i]);
        p->a_batch[i] = df_slot_value(slots, seg->a.stride[i]);
        p->b_batch[i] = df_slot_value(slots, seg->b.stride[i]);
        p->c_batch[i] = has_c ? df_slot_value(slots, seg->c.stride[i]) : 0;
    }
}

/* Sets the arguments of the epilogue, except the address of C. */
static void bind_epilogue(df_cuda_job *j, const df_cuda_run_layout *f, const df_trace *t,
                          const int64_t *slots)
{
    const df_kernel *const k = j->epilogue;
    if (!k) return;
    df_bind_addresses(&j->bound, k, j->seg, slots, f->origin);
    df_bind_numbers(&j->bound, k, j->seg, slots, t);
    j->bound.ptr[j->seg->c_access] = NULL;
    j->args = (df_kargs){ .ptr = j->bound.ptr,
                          .stride = j->bound.stride,
                          .base = j->bound.base,
                          .extent = j->bound.extent,
                          .num = j->bound.num,
                          .fault = (int64_t *)(void *)f->origin[f->n_bufs + DF_CUDA_ORIGIN_TABLE] };
    j->product.args = &j->args;
}

static bool take_bound(df_cuda_run_layout *f, const df_kernel *k, df_bound *b)
{
    *b = (df_bound){ .ptr = df_arena_new(&f->arena, char *, k->n_access + 1),
                     .stride = df_arena_new(&f->arena, int64_t, k->n_access * k->n_axes + 1),
                     .base = df_arena_new(&f->arena, int64_t, k->n_access + 1),
                     .extent = df_arena_new(&f->arena, int64_t, k->n_axes + 1),
                     .num = df_arena_new(&f->arena, uint64_t, k->n_num + 1) };
    return b->ptr && b->stride && b->base && b->extent && b->num;
}

static df_cuda_step job_new_step(const df_cuda_layout_builder *l, uint32_t seg, uint32_t of_job)
{
    return (df_cuda_step){ .seg = seg,
                           .kernel = DF_NO_KERN,
                           .job = (uint32_t)l->f->jobs.n, /* the job is added after its steps */
                           .of_job = of_job };
}

/* Adds a step of a job. The step is assumed to use all memory that the job uses. */
static deft_status job_add_step(const df_cuda_layout_builder *l, df_diag *d, const df_cuda_job *j,
                                const df_cuda_step *s)
{
    deft_status st = DEFT_OK;
    const df_seg *const seg = j->seg;
    TRY(df_cuda_use_buffer(l, d, seg->a.buf, false));
    if (seg->kind == DF_SEG_MATMUL || seg->b.buf.i != DF_NONE)
        TRY(df_cuda_use_buffer(l, d, seg->b.buf, false));
    TRY(df_cuda_use_buffer(l, d, seg->c.buf, !j->is_check));
    if (j->epilogue) TRY(df_cuda_use_accesses(l, d, seg, j->epilogue));
    if (j->list || j->choice.c_bytes > 0 || j->choice.work_bytes > 0)
        TRY(df_cuda_use_scratch(l, d));
    TRY(df_cuda_add_step(l, d, s));
done:
    return st;
}

/* Adds the epilogue as a launch of its own, over a C in memory. The words of a long
 * epilogue are in the table, as the only segment of a MANY launch. */
static deft_status job_add_epilogue(df_cuda_layout_builder *l, df_diag *d, df_cuda_job *j)
{
    deft_status st = DEFT_OK;
    const df_kernel *const k = j->epilogue;
    df_cuda_words *const table = &l->f->table, *const params = &l->f->params;
    df_cuda_gemm_aim(&j->product, j->bound.ptr, j->bound.stride);
    df_cuda_entry e = { .pass = DF_CUDA_MAIN, .flags = df_cuda_facts(k, &j->args) };
    j->in_table = l->f->by_table || !df_cuda_by_value(k);
    if (j->in_table) e.flags |= DF_CUDA_MANY;
    const int64_t blocks = df_cuda_blocks(k, e, &j->args),
                  n = df_min_i64(
                      df_cuda_fewer_blocks(l->gpu, k, e, blocks),
                      df_cuda_most_blocks(l->gpu, e, df_cuda_threads(k, DF_CUDA_MAIN), 0));
    df_cuda_step s = job_new_step(l, (uint32_t)(j->seg - l->plan->segs), 0);
    s.kernel = j->seg->kernel;
    s.entry = e;
    s.n_blocks = (uint32_t)n;
    s.n_threads = df_cuda_threads(k, DF_CUDA_MAIN);
    df_cuda_words *const to = j->in_table ? table : params;
    s.param = j->words = (uint32_t)to->word.n;
    s.n_words = df_cuda_layout(k, NULL, NULL);
    TRY(df_cuda_more_words(l, d, to, s.n_words + 1)); /* and first[0] */
    if (j->in_table) {
        const df_cuda_many many = { .n = 1, .n_blocks = s.n_blocks };
        s.param = (uint32_t)params->word.n;
        s.n_words = sizeof many / 8;
        TRY(df_cuda_more_words(l, d, params, s.n_words));
        memcpy(params->word.at + s.param, &many, sizeof many);
        TRY(df_cuda_param_fix(l, d, s.param, DF_CUDA_ORIGIN_TABLE, (int64_t)j->words * 8));
        TRY(df_cuda_param_fix(l, d, s.param + 1, DF_CUDA_ORIGIN_TABLE,
                              ((int64_t)table->word.n - 1) * 8));
    } else {
        l->f->n_spare += s.n_words + 1;
    }
    TRY(job_add_step(l, d, j, &s));
done:
    return st;
}

/* Chooses how the product is done. Only cuBLASLt, when it is asked, needs the GPU's context. */
static deft_status job_choose(const df_cuda_layout_builder *l, df_diag *d, df_cuda_job *j,
                              df_cublaslt *lt)
{
    const deft_status st = lt ? df_gpu_enter(l->c->gpu, d) : DEFT_OK;
    if (st != DEFT_OK) return st;
    j->choice = df_cuda_gemm_choose(&j->product, (uint32_t)l->gpu->n_sms, lt);
    if (lt) df_gpu_leave(l->c->gpu);
    return DEFT_OK;
}

static deft_status job_add_product(df_cuda_layout_builder *l, df_diag *d, df_cuda_job *j)
{
    deft_status st = DEFT_OK;
    const df_kernel *const k = j->epilogue;
    df_cublaslt *const lt = library_for(l->c, l->t);
    job_describe_product(l, j);
    if (k && !take_bound(l->f, k, &j->bound)) TRY(df_fail_mem(d, "run", sizeof j->bound));
    if (k) df_bind_extents(&j->bound, k, j->seg, l->slots);
    for (uint32_t x = 0; k && x < k->n_axes; x++)
        j->bound.stride[j->seg->c_access * k->n_axes + x] = 0;
    aim_operands(l->f, j, l->slots);
    bind_epilogue(j, l->f, l->t, l->slots);
    TRY(job_choose(l, d, j, lt));
    df_cuda_step s = job_new_step(l, (uint32_t)(j->seg - l->plan->segs), 0);
    if (j->choice.way == DF_CUDA_GEMM_NOTHING) goto done;
    if (j->choice.c_bytes > 0) {
        j->c_at = df_cuda_take_scratch(l, j->choice.c_bytes);
        df_cuda_gemm_dense(&j->product, 256);
    }
    if (j->choice.work_bytes > 0) j->work_at = df_cuda_take_scratch(l, j->choice.work_bytes);
    if (j->choice.way == DF_CUDA_GEMM_OURS) {
        const df_cuda_entry e = { .pass = DF_CUDA_MAIN };
        s.param = j->param = (uint32_t)l->f->params.word.n;
        s.n_threads = DF_CUDA_GEMM_THREADS;
        s.n_blocks = (uint32_t)df_min_i64(j->choice.n_blocks,
                                          df_cuda_most_blocks(l->gpu, e, DF_CUDA_WARPS * 32, 0));
        s.n_words = j->choice.n_words;
        TRY(df_cuda_more_words(l, d, &l->f->params, s.n_words));
    } else {
        s.of_job = DF_NONE;
    }
    TRY(job_add_step(l, d, j, &s));
    if (k && !j->choice.fused) TRY(job_add_epilogue(l, d, j));
done:
    return st;
}

static void fill_product(df_cuda_run_layout *f, const df_trace *t, const int64_t *slots,
                         df_cuda_job *j)
{
    char *const scratch = f->origin[f->n_bufs + DF_CUDA_ORIGIN_SCRATCH];
    if (j->choice.way == DF_CUDA_GEMM_NOTHING) return;
    aim_operands(f, j, slots);
    bind_epilogue(j, f, t, slots);
    if (j->choice.c_bytes > 0) df_cuda_gemm_dense(&j->product, (uintptr_t)(scratch + j->c_at));
    if (j->choice.way == DF_CUDA_GEMM_OURS)
        df_cuda_gemm_fill(&j->product, &j->choice, f->params.word.at + j->param);
    if (j->words == DF_NONE) return;
    df_cuda_gemm_aim(&j->product, j->bound.ptr, j->bound.stride);
    df_cuda_fill(j->epilogue, &j->args, (j->in_table ? f->table : f->params).word.at + j->words);
}

uint32_t df_cuda_job_lt_words(const df_cuda_run_layout *f, const df_cuda_step *s, uint64_t *out)
{
    const df_cuda_job *const j = &f->jobs.at[s->job];
    char *const scratch = f->origin[f->n_bufs + DF_CUDA_ORIGIN_SCRATCH];
    const uint32_t n_ptr = j->choice.fused ? j->epilogue->n_access : 0;
    if (!out) return 4 + n_ptr;
    out[0] = j->product.a;
    out[1] = j->product.b;
    out[2] = j->product.c;
    out[3] = j->choice.work_bytes > 0 ? (uintptr_t)(scratch + j->work_at) : 0;
    for (uint32_t i = 0; i < n_ptr; i++) out[4 + i] = (uintptr_t)j->bound.ptr[i];
    return 4 + n_ptr;
}

deft_status df_cuda_job_run_lt(const df_cuda_run_layout *f, df_diag *d, df_cuda_device *c,
                               const df_cuda_step *s, df_cu_stream stream)
{
    const df_cuda_job *const j = &f->jobs.at[s->job];
    char *const scratch = f->origin[f->n_bufs + DF_CUDA_ORIGIN_SCRATCH];
    const uint64_t work = j->choice.work_bytes > 0 ? (uintptr_t)(scratch + j->work_at) : 0;
    return df_cublaslt_run(c->lt, d, &j->product, &j->choice, stream, work);
}

/* ---- routines ---- */

/* Plans the launches of a routine for the addresses in f->origin. While a layout is built
 * these addresses are only aligned, not real. */
static deft_status plan_routine(const df_cuda_run_layout *f, df_diag *d, const df_cuda_job *j,
                                const int64_t *slots)
{
    char *const *const more = f->origin + f->n_bufs;
    const uint64_t work = (uintptr_t)(more[DF_CUDA_ORIGIN_SCRATCH] + j->work_at);
    const uint64_t words = (uintptr_t)more[DF_CUDA_ORIGIN_TABLE];
    if (!df_bind_is_scatter(j->seg)) {
        const df_routine_job job = df_bind_routine(j->seg, slots, f->origin);
        return df_cuda_routine_plan(d, &job, work, j->list);
    }
    const df_scatter_job job = df_bind_scatter(j->seg, slots, f->origin);
    if (j->is_check)
        df_cuda_scatter_check_plan(&job, j->seg->fault, words, work, j->list);
    else
        df_cuda_scatter_plan(&job, j->seg->fault, words, work, j->list);
    return DEFT_OK;
}

static size_t work_size(const df_cuda_run_layout *f, const df_cuda_job *j, const int64_t *slots)
{
    if (df_bind_is_scatter(j->seg)) {
        const df_scatter_job job = df_bind_scatter(j->seg, slots, f->origin);
        return df_cuda_scatter_work_size(&job);
    }
    const df_routine_job job = df_bind_routine(j->seg, slots, NULL);
    return df_cuda_routine_work_size(&job);
}

static deft_status job_add_routine(df_cuda_layout_builder *l, df_diag *d, df_cuda_job *j)
{
    deft_status st = DEFT_OK;
    j->list = df_arena_new(&l->f->arena, df_cuda_launches, 1);
    if (!j->list) return df_fail_mem(d, "run", sizeof *j->list);
    j->work_at = df_cuda_take_scratch(l, (int64_t)work_size(l->f, j, l->slots));
    TRY(plan_routine(l->f, d, j, l->slots));
    j->param = (uint32_t)l->f->params.word.n;
    for (uint32_t i = 0; i < j->list->n; i++) {
        const df_cuda_launch *const at = &j->list->at[i];
        df_cuda_step s = job_new_step(l, (uint32_t)(j->seg - l->plan->segs), (uint32_t)at->kernel);
        s.param = (uint32_t)l->f->params.word.n;
        s.n_blocks = at->n_blocks;
        s.n_threads = df_cuda_routine_threads(at->kernel);
        s.n_words = (uint32_t)((at->size + 7) / 8);
        TRY(df_cuda_more_words(l, d, &l->f->params, s.n_words));
        TRY(job_add_step(l, d, j, &s));
    }
done:
    return st;
}

static deft_status fill_routine(df_cuda_run_layout *f, df_diag *d, const int64_t *slots,
                                const df_cuda_job *j)
{
    const uint32_t n = j->list->n;
    uint64_t *at = f->params.word.at + j->param;
    const deft_status st = plan_routine(f, d, j, slots);
    if (st != DEFT_OK) return st;
    df_assert(j->list->n == n);
    for (uint32_t i = 0; i < n; i++) {
        const df_cuda_launch *const launch = &j->list->at[i];
        memcpy(at, launch->params, launch->size);
        at += (launch->size + 7) / 8;
    }
    return DEFT_OK;
}

/* ---- functions ---- */

static const char gemm_entry[] = "gemm_entry";

static deft_status write_product(const void *user, df_diag *d, const df_mem *mem, df_str *out)
{
    const df_cuda_job *const j = user;
    size_t n;
    const char *const prelude = df_cuda_gemm_prelude(&n);
    df_str_putn(out, prelude, n);
    const bool fused = (j->choice.variant.flags & DF_CUDA_GEMM_EPILOGUE) != 0;
    return df_cuda_gemm_text(d, &j->choice.variant, fused ? j->epilogue : NULL, gemm_entry, mem,
                             out);
}

static deft_status write_routines(const void *user, df_diag *d, const df_mem *mem, df_str *out)
{
    (void)d;
    (void)mem;
    df_cuda_routine_text(((const df_cuda_job *)user)->list->kernels, out);
    return DEFT_OK;
}

/* Gets the function of a product; its program depends on the configuration and the fused
 * epilogue. */
static deft_status get_product(df_cuda_device *c, df_diag *d, const df_cuda_job *j, df_cuda_fn **fn)
{
    static const char *const name = gemm_entry;
    const bool fused = (j->choice.variant.flags & DF_CUDA_GEMM_EPILOGUE) != 0;
    const size_t head = sizeof j->choice.variant;
    size_t n = head;
    if (fused) n += j->epilogue->key.n;
    char *const key = df_mem_alloc(c->mem, n);
    if (!key) return df_fail_mem(d, "run", n);
    memcpy(key, &j->choice.variant, head);
    if (fused) memcpy(key + head, j->epilogue->key.bytes, n - head);
    const df_cuda_program p = { .key = key,
                                .n_key = n,
                                .contracts = fused && (j->epilogue->flags & DF_KERNEL_FAST),
                                .write = write_product,
                                .user = j,
                                .name = &name,
                                .n_names = 1,
                                .what = "a matrix product" };
    const deft_status st = df_modules_program(c->modules, d, &p, fn);
    df_mem_free(c->mem, key, n);
    return st;
}

/* Gets the functions of a routine: one for each bit in the set of its kernels, in order. */
static deft_status get_routines(df_cuda_device *c, df_diag *d, const df_cuda_job *j,
                                df_cuda_fn **fn)
{
    const char *name[DF_CUDA_N_ROUTINES];
    uint32_t n = 0;
    for (uint32_t k = 0; k < DF_CUDA_N_ROUTINES; k++)
        if (j->list->kernels >> k & 1) name[n++] = df_cuda_routine_name((df_cuda_routine)k);
    const df_cuda_program p = { .key = &j->list->kernels,
                                .n_key = sizeof j->list->kernels,
                                .write = write_routines,
                                .user = j,
                                .name = name,
                                .n_names = n,
                                .what = df_op_infos[j->seg->op].name };
    return df_modules_program(c->modules, d, &p, fn);
}

static uint32_t count_fns(const df_cuda_job *j)
{
    if (j->list) return (uint32_t)__builtin_popcountll(j->list->kernels);
    return j->choice.way == DF_CUDA_GEMM_OURS;
}

/* Which of a job's functions a step uses. */
static uint32_t fn_number(const df_cuda_job *j, const df_cuda_step *s)
{
    if (!j->list) return 0;
    return (uint32_t)__builtin_popcountll(j->list->kernels & ((UINT64_C(1) << s->of_job) - 1));
}

deft_status df_cuda_jobs_load(df_cuda_run_layout *f, df_diag *d, df_cuda_device *c)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < f->jobs.n; i++) {
        const df_cuda_job *const j = &f->jobs.at[i];
        const uint32_t n = count_fns(j);
        df_cuda_fn *fn[DF_CUDA_N_ROUTINES];
        if (n == 0) continue;
        if (!df_vec_reserve(c->mem, &f->job_fns, n)) TRY(df_fail_mem(d, "run", n * sizeof *fn));
        TRY(j->list ? get_routines(c, d, j, fn) : get_product(c, d, j, fn));
        for (uint32_t k = 0; k < n; k++) f->job_fns.at[f->job_fns.n++] = fn[k];
        for (uint32_t k = 0; k < f->steps.n; k++) {
            df_cuda_step *const s = &f->steps.at[k];
            if (s->job == i && s->kernel.i == DF_NONE && s->of_job != DF_NONE)
                s->fn = fn[fn_number(j, s)]->fn;
        }
    }
done:
    return st;
}

/* ---- exported ---- */

deft_status df_cuda_job_write(const df_cuda_job *j, df_diag *d, const df_mem *mem, df_str *out)
{
    return (j->list ? write_routines : write_product)(j, d, mem, out);
}

const char *df_cuda_job_entry(const df_cuda_job *j, const df_cuda_step *s)
{
    return j->list ? df_cuda_routine_name((df_cuda_routine)s->of_job) : gemm_entry;
}

uint32_t df_cuda_jobs_align(const df_cuda_run_layout *f)
{
    for (size_t i = 0; i < f->jobs.n; i++)
        if (!f->jobs.at[i].list && f->jobs.at[i].choice.way == DF_CUDA_GEMM_LT) return 256;
    return 16;
}

void df_cuda_jobs_clear(df_cuda_run_layout *f)
{
    for (uint32_t i = 0; i < f->job_fns.n; i++) df_cuda_fn_drop(&f->job_fns.at[i]);
    f->job_fns.n = f->jobs.n = 0;
    df_arena_reset(&f->arena);
}

deft_status df_cuda_job_build(df_cuda_layout_builder *l, df_diag *d, uint32_t seg, bool is_check)
{
    deft_status st = DEFT_OK;
    const df_seg *const s = &l->plan->segs[seg];
    df_cuda_job j = { .seg = s, .is_check = is_check, .words = DF_NONE };
    if (s->kind == DF_SEG_ROUTINE && (s->op == DF_OP_call || s->op == DF_OP_result))
        TRY(df_fail(d, DEFT_E_BACKEND,
                    "cuda: the program calls an opaque operator, which runs on the CPU alone"));
    if (s->kernel.i != DF_NONE) j.epilogue = &l->plan->kernels[s->kernel.i];
    TRY(s->kind == DF_SEG_MATMUL ? job_add_product(l, d, &j) : job_add_routine(l, d, &j));
    if (!df_vec_push(l->c->mem, &l->f->jobs, j)) TRY(df_fail_mem(d, "run", sizeof j));
done:
    return st;
}

deft_status df_cuda_jobs_fill(df_cuda_run_layout *f, df_diag *d, const df_trace *t,
                              const int64_t *slots)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < f->jobs.n; i++) {
        df_cuda_job *const j = &f->jobs.at[i];
        if (j->list)
            TRY(fill_routine(f, d, slots, j));
        else
            fill_product(f, t, slots, j);
    }
done:
    return st;
}
