/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels that decide within a graph (conditional.cu). They are compiled when a
 * construct first needs them, once per device.
 */
#include "jit_cuda/graphs/conditional.h"

#include "jit_cuda/conditional_text.h"

struct df_cuda_conditionals {
    df_cuda_fn *fn[DF_CUDA_N_DECIDING]; /* references; NULL: the driver does not accept them */
};

static deft_status write(const void *user, df_diag *d, const df_mem *mem, df_str *out)
{
    (void)user;
    (void)d;
    (void)mem;
    df_str_putn(out, (const char *)conditional_text, sizeof conditional_text - 1);
    return DEFT_OK;
}

static deft_status get_functions(df_cuda_device *c, df_diag *d, df_cuda_fn **fn)
{
    static const char key[] = "conditional";
    static const char *const name[DF_CUDA_N_DECIDING] = { "conditional_count", "conditional_loop",
                                                          "conditional_branch" };
    const df_cuda_program program = { .key = key,
                                      .n_key = sizeof key,
                                      .is_ptx = true,
                                      .write = write,
                                      .name = name,
                                      .n_names = DF_CUDA_N_DECIDING,
                                      .what = "loops and branches" };
    return df_modules_program(c->modules, d, &program, fn);
}

static void drop_functions(df_cuda_device *c, struct df_cuda_conditionals *p)
{
    for (uint32_t i = 0; i < DF_CUDA_N_DECIDING; i++) df_cuda_fn_drop(&p->fn[i]);
    df_mem_free(c->mem, p, sizeof *p);
}

void df_cuda_deciding_make(df_cuda_device *c)
{
    df_diag d = { 0 };
    struct df_cuda_conditionals *none = NULL, *const p = df_mem_zalloc(c->mem, sizeof *p);
    if (!p) return;
    const deft_status st = get_functions(c, &d, p->fn);
    if (st != DEFT_OK && st != DEFT_E_MEMORY)
        df_logf(c->log, plugin, "%s: loops and branches ask the host: %s", c->name, d.text);
    if (st == DEFT_E_MEMORY ||
        !atomic_compare_exchange_strong_explicit(&c->conditionals, &none, p, memory_order_acq_rel,
                                                 memory_order_acquire))
        drop_functions(c, p);
}

df_cuda_fn *const *df_cuda_deciding(const df_cuda_device *c)
{
    const struct df_cuda_conditionals *const p =
        atomic_load_explicit(&c->conditionals, memory_order_acquire);
    return p && p->fn[0] ? p->fn : NULL;
}

void df_cuda_conditionals_destroy(df_cuda_device *c)
{
    struct df_cuda_conditionals *const p = atomic_load(&c->conditionals);
    if (p) drop_functions(c, p);
}
