/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops that a GPU computes with one routine (df_part.tag): attention and its gradient, by
 * attention.h. The routine reads and writes what the loop would, so the rest of the plan is
 * the same. A loop whose operands the routine does not accept runs iteration by iteration.
 */
#include "jit_cuda/kernels/attention.h"
#include "jit_cuda/exec/device_internal.h"
#include "runtime/flow.h"

enum { F32_SIZE = 4 };

/* A tagged loop and what its part reads. */
typedef struct tagged {
    const df_part *part;
    const int64_t *outer, *slots; /* slots of the surrounding plan; slots of an iteration */
    void *const *in;
} tagged;

static df_cuda_matrix matrix(const tagged *t, const df_tag_matrix *m)
{
    const df_port *const port = &t->part->body.port[m->port];
    df_cuda_matrix out = {
        .at = (uintptr_t)t->in[m->port] + (uint64_t)(df_slot_value(t->slots, m->offset) * F32_SIZE),
        .row = df_slot_value(t->slots, m->row),
        .col = df_slot_value(t->slots, m->col),
        .block = port->kind == DF_PORT_ROW ? t->outer[port->row_bytes.i] / F32_SIZE : 0,
    };
    for (uint32_t i = 0; i < t->part->tag->n_batch; i++)
        out.batch[i] = df_slot_value(t->slots, m->batch[i]);
    return out;
}

static df_cuda_attention_job job_of(const tagged *t, void *const *out)
{
    const df_part_tag *const tag = t->part->tag;
    const bool is_grad = tag->what.kind == DF_LOOP_ATTENTION_GRAD;
    df_cuda_attention_job j = { .what = tag->what,
                                .n_batch = tag->n_batch,
                                .n_queries = df_slot_value(t->slots, tag->n_queries),
                                .n_blocks = t->outer[t->part->most.i],
                                .block = df_slot_value(t->slots, tag->block),
                                .width = df_slot_value(t->slots, tag->width),
                                .value_width = df_slot_value(t->slots, tag->value_width),
                                .q = matrix(t, &tag->q),
                                .k = matrix(t, &tag->k),
                                .v = matrix(t, &tag->v) };
    for (uint32_t i = 0; i < tag->n_batch; i++) j.batch[i] = df_slot_value(t->slots, tag->batch[i]);
    if (!is_grad) {
        j.m = (uintptr_t)out[0];
        j.l = (uintptr_t)out[1];
        j.acc = (uintptr_t)out[2];
        return j;
    }
    j.dout = matrix(t, &tag->dout);
    j.log_sum = (uintptr_t)t->in[tag->log_sum];
    j.less = (uintptr_t)t->in[tag->less];
    j.dq = (uintptr_t)out[0];
    j.dk = (uintptr_t)out[1];
    j.dv = (uintptr_t)out[2];
    return j;
}

static deft_status write(const void *user, df_diag *d, const df_mem *mem, df_str *out)
{
    (void)d;
    (void)mem;
    df_cuda_attention_text(*(const uint64_t *)user, out);
    return DEFT_OK;
}

/* Gets one function per launch. */
static deft_status get_functions(df_cuda_device *c, df_diag *d, const df_cuda_attention *p,
                                 df_cuda_fn **fn)
{
    char text[DF_CUDA_ATTENTION_LAUNCHES][48];
    const char *name[DF_CUDA_ATTENTION_LAUNCHES];
    for (uint32_t i = 0; i < p->n; i++) {
        df_cuda_attention_name(p->at[i].kernel, text[i]);
        name[i] = text[i];
    }
    const df_cuda_program program = { .key = &p->kernels,
                                      .n_key = sizeof p->kernels,
                                      .contracts = true,
                                      .write = write,
                                      .user = &p->kernels,
                                      .name = name,
                                      .n_names = p->n,
                                      .what = "attention" };
    return df_modules_program(c->modules, d, &program, fn);
}

static deft_status launch(df_cuda_device *c, df_queue *q, df_diag *d, const df_plan *plan,
                          df_cuda_attention *p, df_cuda_fn *const *fn)
{
    const df_launch_note note = {
        .owner = plan->owner, .number = plan->number, .site = plan->site, .ops = "attention"
    };
    deft_status st = df_gpu_enter(c->gpu, d);
    if (st != DEFT_OK) return st;
    for (uint32_t i = 0; i < p->n; i++) {
        void *param[1] = { &p->params };
        const df_cu_result result =
            c->driver->launch(fn[i]->fn, p->at[i].n_blocks, 1, 1, DF_CUDA_ATTENTION_THREADS, 1, 1,
                              0, df_queue_stream(q), param, NULL);
        if (result)
            TRY(df_queue_fail(q, d, result, "cuLaunchKernel of %u blocks of attention",
                              p->at[i].n_blocks));
        TRY(df_queue_launched(q, d, &note));
    }
done:
    df_gpu_leave(c->gpu);
    return st;
}

deft_status df_cuda_run_tagged(df_cuda_device *c, df_queue *q, df_diag *d, const df_plan *plan,
                               const df_part *part, const int64_t *slots, void *const *in,
                               void *const *out, bool *done)
{
    deft_status st = DEFT_OK;
    const int arch = df_gpu_facts_of(c->gpu)->arch;
    const tagged t = { part, slots, slots + part->body.slot0, in };
    const df_cuda_attention_job j = job_of(&t, out);
    df_cuda_attention p;
    df_cuda_fn *fn[DF_CUDA_ATTENTION_LAUNCHES] = { 0 };
    *done = false;
    if (!df_cuda_attention_takes(&j, arch)) return DEFT_OK;
    df_cuda_attention_plan(&j, arch, &p);
    TRY(get_functions(c, d, &p, fn));
    TRY(launch(c, q, d, plan, &p, fn));
    *done = true;
done:
    for (uint32_t i = 0; i < p.n; i++) df_cuda_fn_drop(&fn[i]);
    return st;
}
