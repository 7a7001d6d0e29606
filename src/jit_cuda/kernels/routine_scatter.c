/* SPDX-License-Identifier: Apache-2.0
 *
 * scatter_* and index_* on a GPU, as launches. Each element of the result is a chain of
 * additions, or of other combinations, in the order of runtime/exec/scatter.c. There are
 * three ways to keep that order:
 *
 *   atomic   Sums of integers of 32 and 64 bits, which are the same in any order.
 *   walk     A thread for each position along the axes that are kept adds all values that
 *            meet there.
 *   runs     Entries, which have an index each, are sorted by target; the sort is stable.
 *            Then a target is a run of entries. A thread adds up a run, for each element that
 *            the entries of the run have in common.
 *
 * A walk has as many threads as kept positions, and each takes as many steps as values
 * meet. Runs take about thirty launches at most, and sort words. An estimate decides which
 * of them costs less.
 */
#include "jit_cuda/kernels/routine_plan.h"

#include "base/compiler.h"

#include <string.h>

/* Constants of the estimate, in ns. */
#define STEP_COST 350.0   /* one step of a walk: a read and a write that wait for each other */
#define WALK_PER_NS 64.0  /* values per ns, all threads together */
#define RUNS_COST 40000.0 /* all launches */
#define SORT_PER_NS 64.0  /* words per ns and pass */
#define RUNS_PER_NS 128.0 /* values per ns */
#define MOST_WORDS ((int64_t)UINT32_MAX - 1)

static int64_t extents(const df_scatter_job *j)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < j->rank; i++) n *= j->extent[i];
    return n;
}

_Static_assert((int)SCATTER_ADD == (int)DF_SCATTER_ADD && (int)SCATTER_SET == (int)DF_SCATTER_SET &&
                   (int)SCATTER_MUL == (int)DF_SCATTER_MUL &&
                   (int)SCATTER_MIN == (int)DF_SCATTER_MIN &&
                   (int)SCATTER_MAX == (int)DF_SCATTER_MAX,
               "kernels have the numbers of df_scatter_how");

static scatter_params params_of(const df_scatter_job *j)
{
    return (scatter_params){ .out = (uintptr_t)j->out,
                             .index = (uintptr_t)j->index,
                             .index_kind = df_cuda_routine_kind(j->index_dtype),
                             .how = j->how,
                             .is_signed = df_is_signed(j->dtype) && !df_is_float(j->dtype),
                             .value = (uintptr_t)j->value,
                             .n = j->n,
                             .step = j->step,
                             .n_first = 1,
                             .n_inner = 1 };
}

/* ---- boxes ---- */

enum { INDEXED = 1, KEPT = 2, MEETING = 4, REST = 8 };

/* The roles of axis i. It is KEPT or MEETING. It may also be INDEXED, or REST when it is in
 * no box of entries. */
static unsigned role_of(const df_scatter_job *j, uint32_t i)
{
    const unsigned indexed = j->index_step[i] != 0 ? INDEXED : 0;
    return indexed | (j->out_step[i] == 0 ? MEETING : indexed ? KEPT : KEPT | REST);
}

/* Appends axis i to the box [begin, *end). Axes that continue each other with one step
 * become one. */
static void append(scatter_params *p, uint32_t begin, uint32_t *end, const df_scatter_job *j,
                   uint32_t i)
{
    const int64_t n = j->extent[i], o = j->out_step[i], x = j->index_step[i], v = j->value_step[i];
    if (n == 1) return;
    const uint32_t last = *end - 1;
    if (*end > begin && p->out_step[last] == n * o && p->index_step[last] == n * x &&
        p->value_step[last] == n * v) {
        p->extent[last] *= n;
    } else {
        p->extent[*end] = n;
        ++*end;
    }
    p->out_step[*end - 1] = o;
    p->index_step[*end - 1] = x;
    p->value_step[*end - 1] = v;
}

static int64_t product(const scatter_params *p, uint32_t begin, uint32_t end)
{
    int64_t n = 1;
    for (uint32_t i = begin; i < end; i++) n *= p->extent[i];
    return n;
}

/* Makes the first box of the axes with a role in `first`, and the second box of those with
 * a role in `inner`. */
static void box(scatter_params *p, const df_scatter_job *j, unsigned first, unsigned inner)
{
    uint32_t end = 0;
    for (uint32_t i = 0; i < j->rank; i++)
        if (role_of(j, i) & first) append(p, 0, &end, j, i);
    p->rank = end;
    for (uint32_t i = 0; i < j->rank; i++)
        if (role_of(j, i) & inner) append(p, p->rank, &end, j, i);
    p->inner = end - p->rank;
    p->n_first = product(p, 0, p->rank);
    p->n_inner = product(p, p->rank, end);
}

/* ---- which way ---- */

typedef struct way {
    df_cuda_routine kernel; /* the kernel that adds */
    bool is_atomic, is_sorted;
    int64_t n_words; /* number of words to sort */
    uint32_t n_slots, n_passes;
} way;

/* Integers, bools, and the bits of what is only moved are words of their size. */
static void choose_kernels(df_scatter_how how, deft_dtype t, way *w, df_cuda_routine *runs)
{
#define WALK(t)                                                                                    \
    w->kernel = DF_CUDA_R_scatter_walk_##t, *runs = DF_CUDA_R_scatter_runs_##t;                    \
    return
#define ATOMIC(word)                                                                               \
    if (how == DF_SCATTER_ADD) {                                                                   \
        w->kernel = DF_CUDA_R_scatter_atomic_##word, w->is_atomic = true;                          \
        return;                                                                                    \
    }                                                                                              \
    WALK(word)
#define WORDS_8 WALK(u8) /* no atomics for so few bits */
#define WORDS_16 WALK(u16)
#define WORDS_32 ATOMIC(u32)
#define WORDS_64 ATOMIC(u64)
#define KERNELS_boolean(t, bits) WORDS_##bits
#define KERNELS_natural(t, bits) WORDS_##bits
#define KERNELS_integer(t, bits) WORDS_##bits
#define KERNELS_real(t, bits) WALK(t)
#define KERNELS_half(t, bits) WORDS_##bits
    switch (t) {
/* clang-format off */
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file)                                \
    case DEFT_##NAME: KERNELS_##kind(cuda, bits);
#define FACE(name, NAME, kind, bits, record, c_type, file) case DEFT_##NAME: break;
#include "ops/dtypes.def"
        /* clang-format on */
    }
    df_unreachable();
}

static way choose(const df_scatter_job *j)
{
    way w = { .n_words = 0 };
    df_cuda_routine runs = DF_CUDA_N_ROUTINES;
    choose_kernels(j->how, j->dtype, &w, &runs);
    if (w.is_atomic) return w;
    int64_t kept = 1, meeting = 1, words = 1;
    double slots = (double)j->n;
    for (uint32_t i = 0; i < j->rank; i++) {
        const unsigned role = role_of(j, i);
        *(role & KEPT ? &kept : &meeting) *= j->extent[i];
        if (role & (INDEXED | MEETING)) words *= j->extent[i];
        if ((role & KEPT) && (role & INDEXED)) slots *= (double)j->extent[i];
    }
    if (words > MOST_WORDS || slots > (double)MOST_WORDS) return w;
    uint32_t passes = 1;
    while (passes < 4 && slots >= (double)((uint64_t)1 << 8 * passes)) passes++;
    const double steps = (double)meeting, values = steps * (double)kept;
    const double walk = steps * STEP_COST + values / WALK_PER_NS;
    if (walk <= RUNS_COST + passes * (double)words / SORT_PER_NS + values / RUNS_PER_NS) return w;
    w.kernel = runs;
    w.is_sorted = true;
    w.n_words = words;
    w.n_slots = (uint32_t)slots;
    w.n_passes = passes;
    return w;
}

static sort_params sort_of(const way *w)
{
    sort_params s = { .n = w->n_words, .n_rows = 1, .source = FROM_WORDS };
    df_cuda_sort_split(&s);
    return s;
}

/* ---- plans ---- */

/* The first word of the workspace holds the first bad index, with the alignment of what
 * follows. */
#define BAD_SIZE df_cuda_align(sizeof(uint64_t))

static void begin(df_cuda_launches *out)
{
    out->n = 0;
    out->kernels = 0;
}

static void add_launch(df_cuda_launches *out, df_cuda_routine kernel, int64_t n_threads,
                       const scatter_params *p)
{
    df_cuda_routine_add(out, kernel, df_cuda_routine_blocks(n_threads), p, sizeof *p);
}

static void plan_check(const df_scatter_job *j, uint32_t id, uint64_t fault, uint64_t work,
                       df_cuda_launches *out)
{
    scatter_params p = params_of(j);
    df_scatter_job indices = *j;
    memset(indices.out_step, 0, sizeof indices.out_step);
    memset(indices.value_step, 0, sizeof indices.value_step);
    box(&p, &indices, INDEXED, 0);
    p.id = id;
    p.fault = fault;
    p.first_bad = work;
    add_launch(out, DF_CUDA_R_scatter_begin, 1, &p);
    add_launch(out, DF_CUDA_R_scatter_check, p.n_first, &p);
    add_launch(out, DF_CUDA_R_scatter_tell, 1, &p);
}

static void plan_runs(const df_scatter_job *j, const way *w, uint32_t id, uint64_t fault,
                      uint64_t work, df_cuda_launches *out)
{
    scatter_params p = params_of(j);
    sort_params s = sort_of(w);
    const uint64_t counts = work + BAD_SIZE;
    const uint64_t words = counts + df_cuda_align(df_cuda_sort_count_size(&s));
    box(&p, j, INDEXED | MEETING, REST);
    p.id = id;
    p.fault = fault;
    p.first_bad = work;
    p.words = words;
    p.n_slots = w->n_slots;
    if (fault) add_launch(out, DF_CUDA_R_scatter_begin, 1, &p);
    add_launch(out, DF_CUDA_R_scatter_slots, p.n_first, &p);
    if (fault) add_launch(out, DF_CUDA_R_scatter_tell, 1, &p);
    s.from = words;
    s.to = words + df_cuda_align((size_t)w->n_words * sizeof(uint64_t));
    for (uint32_t pass = 0; pass < w->n_passes; pass++) {
        s.shift = 32 + pass * 8;
        df_cuda_sort_pass(&s, counts, out);
        p.words = s.to;
        s.to = s.from;
        s.from = p.words;
    }
    add_launch(out, w->kernel, p.n_first * p.n_inner, &p);
}

size_t df_cuda_scatter_work_size(const df_scatter_job *j)
{
    const way w = extents(j) > 0 ? choose(j) : (way){ .is_sorted = false };
    if (!w.is_sorted) return sizeof(uint64_t);
    const sort_params s = sort_of(&w);
    return BAD_SIZE + df_cuda_align(df_cuda_sort_count_size(&s)) +
           2 * df_cuda_align((size_t)w.n_words * sizeof(uint64_t));
}

void df_cuda_scatter_plan(const df_scatter_job *j, uint32_t id, uint64_t fault, uint64_t work,
                          df_cuda_launches *out)
{
    begin(out);
    if (extents(j) == 0) return;
    const way w = choose(j);
    if (w.is_sorted) {
        plan_runs(j, &w, id, fault, work, out);
        return;
    }
    if (fault) plan_check(j, id, fault, work, out);
    scatter_params p = params_of(j);
    if (w.is_atomic)
        box(&p, j, KEPT | MEETING, 0);
    else
        box(&p, j, KEPT, MEETING);
    add_launch(out, w.kernel, p.n_first, &p);
}

void df_cuda_scatter_check_plan(const df_scatter_job *j, uint32_t id, uint64_t fault, uint64_t work,
                                df_cuda_launches *out)
{
    begin(out);
    df_assert(fault);
    if (extents(j) > 0) plan_check(j, id, fault, work, out);
}
