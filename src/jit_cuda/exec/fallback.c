/* SPDX-License-Identifier: Apache-2.0
 *
 * Which entry is used while another is being compiled.
 *
 * A run may need entries for which more general ones are loaded. Such a run uses the
 * general entries at once. The others are compiled in the background (background.c), and
 * the first run after that builds its layout anew.
 *
 * What must hold: only df_cuda_may_substitute decides which entry may replace another, so
 * that no bit of a result depends on what has been compiled. A run layout records that it
 * uses a fallback.
 */
#include "jit_cuda/exec/layout.h"

enum { ALL_FLAGS = DF_CUDA_NARROW | DF_CUDA_WIDE | DF_CUDA_LONG, MOST_ENTRIES = 2 };

/* One kernel of a plan and what its segments allow. */
typedef struct shelf {
    df_cuda_device *c;
    const df_plan *plan;
    df_kern kernel;
    uint8_t facts;
} shelf;

df_cuda_entry df_cuda_entry_of(df_cuda_choice choice, df_cuda_pass pass, bool many)
{
    df_cuda_entry e = { .pass = (uint8_t)pass, .flags = choice.flags };
    if (pass == DF_CUDA_PART) e.flags &= DF_CUDA_NARROW | DF_CUDA_WIDE;
    if (pass == DF_CUDA_FIN) e.flags &= DF_CUDA_NARROW;
    if (many) e.flags |= DF_CUDA_MANY;
    return e;
}

static uint32_t entries_of(df_cuda_choice choice, bool many, df_cuda_entry out[MOST_ENTRIES])
{
    if (!choice.split) {
        out[0] = df_cuda_entry_of(choice, DF_CUDA_MAIN, many);
        return 1;
    }
    out[0] = df_cuda_entry_of(choice, DF_CUDA_PART, many);
    out[1] = df_cuda_entry_of(choice, DF_CUDA_FIN, many);
    return 2;
}

static df_cuda_fn *_Atomic *place_of(const shelf *s, df_cuda_entry e)
{
    const df_cuda_plan *const p = s->plan->attached;
    return &p->fn[s->kernel.i * DF_CUDA_ENTRIES + df_cuda_entry_number(e)];
}

/* Whether the plan has the entry. An entry that another plan has had compiled is added to
 * the plan. */
static bool is_there(const shelf *s, df_cuda_entry e)
{
    df_cuda_fn *_Atomic *const at = place_of(s, e);
    if (atomic_load_explicit(at, memory_order_acquire)) return true;
    df_cuda_fn *const fn = df_modules_find(s->c->modules, &s->plan->kernels[s->kernel.i], e);
    if (fn) df_cuda_publish(at, fn);
    return fn != NULL;
}

static bool are_there(const shelf *s, df_cuda_choice choice, bool many)
{
    df_cuda_entry e[MOST_ENTRIES];
    const uint32_t n = entries_of(choice, many, e);
    for (uint32_t i = 0; i < n; i++)
        if (!is_there(s, e[i])) return false;
    return true;
}

static bool may_stand(const shelf *s, df_cuda_choice by, bool by_many, df_cuda_choice want,
                      bool many)
{
    const df_kernel *const k = &s->plan->kernels[s->kernel.i];
    df_cuda_entry a[MOST_ENTRIES], b[MOST_ENTRIES];
    const uint32_t n = entries_of(by, by_many, a), n_want = entries_of(want, many, b);
    for (uint32_t i = 0; i < n_want; i++)
        if (!df_cuda_may_substitute(k, s->facts, a[n == n_want ? i : 0], b[i])) return false;
    return true;
}

/* What the substitution costs: the greater, the slower. */
static uint32_t distance(df_cuda_choice by, bool by_many, df_cuda_choice want, bool many)
{
    const uint32_t differs = by.flags ^ want.flags;
    return (by.split != want.split) * 16u + (differs & DF_CUDA_LONG ? 8u : 0) +
           (differs & DF_CUDA_WIDE ? 4u : 0) + (differs & DF_CUDA_NARROW ? 2u : 0) +
           (by_many != many);
}

/* Finds the cheapest substitute that is compiled. */
static bool find_nearest(const shelf *s, df_cuda_choice want, bool many, df_cuda_choice *best,
                         bool *best_many)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < 4 * (ALL_FLAGS + 1); i++) {
        const df_cuda_choice by = { .flags = i & ALL_FLAGS, .split = i / 8 % 2 };
        const bool by_many = i / 16;
        if ((by.split && !want.split) || (many && !by_many)) continue;
        const uint32_t d = distance(by, by_many, want, many);
        if (d >= least || !may_stand(s, by, by_many, want, many) || !are_there(s, by, by_many))
            continue;
        least = d;
        *best = by;
        *best_many = by_many;
    }
    return least != UINT32_MAX;
}

/* Requests all entries that are missing. Returns the worst answer. */
static df_cuda_answer ask(const shelf *s, df_cuda_choice want, bool many)
{
    df_cuda_entry e[MOST_ENTRIES];
    df_cuda_answer worst = DF_CUDA_COMES;
    const uint32_t n = entries_of(want, many, e);
    for (uint32_t i = 0; i < n; i++) {
        if (is_there(s, e[i])) continue;
        const df_cuda_answer a = df_cuda_background_ask(s->c->later, &s->plan->kernels[s->kernel.i],
                                                        e[i], df_cuda_ops(s->plan, s->kernel));
        if (a > worst) worst = a;
    }
    return worst;
}

void df_cuda_use_fallback(df_cuda_layout_builder *l, df_kern kernel, uint8_t facts,
                          df_cuda_choice *choice, bool *many)
{
    const shelf s = { l->c, l->plan, kernel, facts };
    df_cuda_choice by;
    bool by_many = false;
    if (!l->c->later || are_there(&s, *choice, *many) ||
        !find_nearest(&s, *choice, *many, &by, &by_many))
        return;
    const df_cuda_answer a = ask(&s, *choice, *many);
    if (a == DF_CUDA_NOBODY) return;
    l->f->is_makeshift |= a == DF_CUDA_COMES;
    *choice = by;
    *many = by_many;
}
