/* SPDX-License-Identifier: Apache-2.0
 *
 * The launches of a program on GPUs: the plug-in for GPUs lists them by inputs and roots of the
 * trace (runtime/gpu_export.h). Here they get the origins of the exported function: its arrays in
 * the order of the parameters, then the constants, then the workspace.
 */
#include "aot/maker.h"

#include "base/build_id.h"

enum { MOST_WORDS = 512 }; /* of a launch: CUDA_WORDS of rt/cuda.c */

static deft_status gpu_no_memory(program *p)
{
    return df_fail_mem(p->d, "export", p->params.n * sizeof(uint64_t));
}

uint32_t gpu_n_arrays(const program *p)
{
    uint32_t n = 0;
    for (size_t i = 0; i < p->params.n; i++) n += p->params.at[i].kind != PARAM_NUMBER;
    return n;
}

/* The origin of an array among the parameters. */
static uint32_t origin_of_param(const program *p, uint32_t param)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < param; i++) n += p->params.at[i].kind != PARAM_NUMBER;
    return n;
}

uint32_t gpu_number_index(const program *p, uint32_t param)
{
    return param - origin_of_param(p, param);
}

gpu_place gpu_place_of(const program *p, df_gpu_origin o)
{
    switch ((df_gpu_origin_kind)o.kind) {
    case DF_GPU_ORIGIN_INPUT:
        if (p->gpu_input[o.index] == DF_NONE)
            return (gpu_place){ gpu_n_arrays(p), p->gpu_linked[o.index] };
        return (gpu_place){ origin_of_param(p, p->gpu_input[o.index]), 0 };
    case DF_GPU_ORIGIN_ROOT: return (gpu_place){ origin_of_param(p, p->gpu_output[o.index]), 0 };
    case DF_GPU_ORIGIN_WORKSPACE: break;
    }
    return (gpu_place){ gpu_n_arrays(p) + 1, 0 };
}

/* Says which outputs may be the same array as an input. */
static deft_status take_donors(program *p)
{
    for (uint32_t r = 0; r < p->t->n_roots; r++) {
        const uint32_t donor = p->gpu.may_be[r], out = p->gpu_output[r];
        if (donor == DF_NONE || out == DF_NONE) continue;
        if (p->gpu_input[donor] == DF_NONE)
            return df_fail(p->d, DEFT_E_ARG,
                           "export: output %s replaces an input whose values are linked",
                           p->params.at[out].name);
        p->params.at[out].may_be = p->gpu_input[donor];
    }
    return DEFT_OK;
}

deft_status gpu_import(maker *m)
{
    deft_status st = DEFT_OK;
    program *const p = m->p;
    const df_gpu_plugin *const plugin = p->o->gpu->plugin;
    uint32_t *const number = df_arena_new(&p->arena, uint32_t, p->o->n_numbers + 1u);
    p->gpu_input = m->input;
    p->gpu_output = m->output;
    p->gpu_linked = df_arena_new(&p->arena, int64_t, p->t->n_inputs + 1u);
    if (!number || !p->gpu_linked) return gpu_no_memory(p);
    for (uint32_t i = 0; i < p->t->n_inputs; i++)
        if (m->input[i] == DF_NONE) p->gpu_linked[i] = p->values.at[m->linked[i]];
    for (uint32_t i = 0; i < p->o->n_numbers; i++) number[i] = p->o->number[i].arg;
    const df_gpu_export_options o = { .size = sizeof o,
                                      .architectures = p->o->gpu->architectures,
                                      .n_sms = p->o->gpu->n_sms,
                                      .number = number,
                                      .n_numbers = p->o->n_numbers };
    if (!plugin->ship)
        return df_fail(p->d, DEFT_E_BACKEND, "export: the plug-in for GPUs makes no exports");
    TRY(plugin->ship(&plugin->host, DF_BUILD_ID, p->d, p->t, &o, &p->gpu));
    p->has_gpu = true;
    for (uint32_t i = 0; i < p->gpu.n_steps; i++)
        if (p->gpu.step[i].n_words > MOST_WORDS)
            TRY(df_fail(p->d, DEFT_E_LIMIT, "export: a launch has %u words of arguments",
                        p->gpu.step[i].n_words));
    for (uint32_t i = 0; i < p->gpu.n_numbers; i++) {
        const df_gpu_number *const n = &p->gpu.number[i];
        aot_num unused;
        TRY(program_use_number(p, program_number(p, n->arg), n->dtype, &unused));
    }
    TRY(take_donors(p));
done:
    return st;
}
