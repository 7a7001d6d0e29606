/* SPDX-License-Identifier: Apache-2.0
 *
 * Which epilogue kernels cuBLASLt can compute: a bias of f32, and the rounding of C to
 * halves. Its relu is not used, because NaN must stay NaN. Its gelu is another function
 * than ours.
 */
#include "jit_cuda/kernels/cublaslt.h"
#include "ops/shape.h"

static uint8_t last_step(const df_kernel *k, uint64_t access)
{
    return k->access[access].step[k->n_axes - 1u];
}

/* Whether the access steps only along the columns of C. */
static bool is_bias(const df_kernel *k, uint64_t access)
{
    for (uint32_t x = 0; x + 1u < k->n_axes; x++)
        if (k->access[access].step[x] != DF_STEP_ZERO) return false;
    return last_step(k, access) == DF_STEP_UNIT;
}

/* Finds the accesses of a kernel that stores C + bias and does nothing else. */
static bool find_bias(const df_cuda_gemm_job *j, uint32_t *bias, uint32_t *store)
{
    const df_kernel *const k = j->epilogue;
    if (!k || k->mode != DF_MODE_MAP || k->n_ins != 4 || k->n_access != 3 ||
        !(k->flags & DF_KERNEL_FAST) || k->n_axes != j->batch_rank + 2)
        return false;
    const df_ins *const add = &k->ins[2], *const out = &k->ins[3];
    if (add->op != DF_K_add || out->op != DF_K_store || out->src[0] != 2) return false;
    if (add->src[0] == add->src[1] || add->src[0] > 1 || add->src[1] > 1) return false;
    for (uint32_t i = 0; i < 4; i++)
        if (k->ins[i].dtype != j->dtype || (i < 2 && k->ins[i].op != DF_K_load)) return false;
    const uint64_t a0 = k->ins[0].imm, a1 = k->ins[1].imm;
    if ((a0 == j->c_access) == (a1 == j->c_access)) return false;
    *bias = (uint32_t)(a0 == j->c_access ? a1 : a0);
    *store = (uint32_t)out->imm;
    return is_bias(k, *bias) && last_step(k, *store) == DF_STEP_UNIT;
}

/* Finds the result of a kernel that rounds C to the halves that A and B are, and does
 * nothing else. */
static bool find_rounding(const df_cuda_gemm_job *j, uint32_t *store)
{
    const df_kernel *const k = j->epilogue;
    if (!k || k->mode != DF_MODE_MAP || k->n_ins != 3 || k->n_access != 2 ||
        k->n_axes != j->batch_rank + 2 || !df_is_half(j->a_dtype) || j->a_dtype != j->b_dtype)
        return false;
    const df_ins *const c = &k->ins[0], *const cast = &k->ins[1], *const out = &k->ins[2];
    if (c->op != DF_K_load || c->imm != j->c_access || cast->op != DF_K_cast ||
        cast->dtype != j->a_dtype || out->op != DF_K_store || out->src[0] != 1)
        return false;
    *store = (uint32_t)out->imm;
    return last_step(k, *store) == DF_STEP_UNIT;
}

bool df_cublaslt_fuses(const df_cuda_gemm_job *j)
{
    uint32_t bias, store;
    return !j->c && (find_bias(j, &bias, &store) || find_rounding(j, &store));
}

df_cuda_gemm_job df_cublaslt_with_epilogue(const df_cuda_gemm_job *given, uint64_t *bias_at,
                                           deft_dtype *out)
{
    df_cuda_gemm_job j = *given;
    const df_kernel *const k = j.epilogue;
    uint32_t bias = 0, store = 0;
    const bool has_bias = find_bias(&j, &bias, &store);
    const bool found = has_bias || find_rounding(&j, &store);
    df_assert(found);
    (void)found;
    *out = (deft_dtype)k->access[store].dtype;
    const int64_t *const stride = j.args->stride + (size_t)store * k->n_axes;
    int64_t by[DF_MAX_AXES];
    for (uint32_t x = 0; x < k->n_axes; x++)
        by[x] = k->access[store].step[x] == DF_STEP_ANY    ? stride[x]
                : k->access[store].step[x] == DF_STEP_UNIT ? 1
                                                           : 0;
    for (uint32_t i = 0; i < j.batch_rank; i++) j.c_batch[i] = by[i];
    j.c_row = by[j.batch_rank];
    j.c = (uintptr_t)j.args->ptr[store];
    *bias_at = has_bias ? (uintptr_t)j.args->ptr[bias] : 0;
    return j;
}
