/* SPDX-License-Identifier: Apache-2.0
 *
 * Accesses that prefetch. Loads of reductions do so in the launches that the executor chooses
 * (runtime/exec/exec_stream.c): row.c writes both halves of a branch on df_kargs.fetches. Maps on
 * some processors always do.
 *
 * The hardware prefetches from the third cache, but stops at the end of each page. Loads that run
 * ahead out of order cover the next page in part. With an instruction for each line, DISTANCE bytes
 * ahead, a core of Zen 5 reads as fast as its third cache permits. There the distance hardly
 * matters between 1 and 4 KiB, and 512 bytes are too few. With these instructions, data in the
 * first two caches is read up to a third more slowly.
 *
 * On an Intel server both lines of a pair of 128 bytes are prefetched before the first of them is
 * read. Where each line was prefetched just before its own load, the time depended on the distance
 * in a way that was not explained. The same assembly in a C program showed the same. Sums of
 * 128 MiB take this share of the time of C that does not prefetch:
 *
 *   bytes ahead                          512   704   768   896  1024  1536  2048  2112
 *   i64, each line before its load      0.96  1.04  0.96  1.01  1.04  0.96  1.04  0.98
 *   i64, pairs before two loads         0.96         0.96        0.97  0.98  1.00  0.99
 *   f32, each line before its load                   0.97                    1.13
 *   f32, pairs before two loads                      0.97        0.99  1.01  1.04
 *
 * A sum of products of two arrays then takes 2.00 of that time, where each line alone, 2048 bytes
 * ahead, takes 2.26. Sums of 2 MiB take the same time in all of these ways.
 *
 * Maps on Intel's servers prefetch what they store. There C takes, for a b + a of i16, in us:
 *
 *   MB of all arrays                       0.02    0.05    0.20    0.60    1.57
 *   vectors of 32 bytes                    0.09    0.18    1.47    4.51    14.0
 *   vectors of 64 bytes                    0.07    0.14    1.62    4.96    15.3
 *   vectors of 64, stores prefetched       0.07    0.15    1.52    4.55    13.8
 *
 * Bodies of halves have more instructions for each line, and so the processor does not load far
 * enough ahead from the third cache. Such bodies prefetch their operands, too. In that way
 * relu(a x + b) of 16 M bf16 takes 3.0 ms, as a copy does. With only the operands prefetched it
 * takes 3.4 ms, and without any prefetching 3.9. Results that go around the caches are not
 * prefetched, and their operands are: in C, the same map of f16 then takes 2.5 instead of 2.7 ms.
 *
 * Rows that are read again, as those of a softmax, prefetch the next row in the second stage. The
 * first stage would ask for a whole row in a few cycles. Results prefetch one row ahead, too. With
 * it, a softmax of 2048 rows of 512 f32 takes 284 instead of 411 us on one thread of such a server.
 * Rows in the second cache take as long as without. Shorter rows than LEAST_ROW lose up to an
 * eighth, and longer ones than MOST_ROW gain nothing. So only variants do this, which know the
 * length.
 *
 * Running sums of columns prefetch one row ahead, too. That takes 344 us for 1024 rows of 1000
 * f32, and 600 without prefetching. 2 KiB ahead, which is in the same row there, takes 897.
 */
#include "jit_llvm/gen.h"

enum {
    DISTANCE = 2048,       /* to what is loaded, and to what a map of halves stores */
    PAIR_DISTANCE = 768,   /* to pairs of lines that a reduction loads */
    STORE_DISTANCE = 1024, /* to what another map stores */
    LONG_BODY = 48,        /* instructions. A longer body does not wait for the third cache */
    LEAST_ROW = 1024,      /* bytes of a row that prefetches the next one */
    MOST_ROW = 8192
};

/* Whether facts know that all rows are single blocks, for which no launch prefetches. */
static bool has_short_rows(const df_gen *g)
{
    int64_t n;
    return g->k->mode == DF_MODE_ROW && df_gen_known(g->length, &n) && n <= DF_BLOCK;
}

void df_fetch_begin(df_gen *g)
{
    if (!df_kernel_only_reduces(g->k) || g->level == DF_OPT_O0 || g->w == 1 || g->has_runs ||
        g->vec_axis < 0 || g->t->arch != DF_ARCH_X86_64 || has_short_rows(g))
        return;
    df_gen_mark(g, 0);
    if (df_gen_body_size(g) > LONG_BODY) return;
    LLVMValueRef at = df_gen_at(g, g->i64, LLVMGetParam(g->fn, 0), df_gen_i64(g, DF_FETCHES_WORD));
    LLVMValueRef word = LLVMBuildLoad2(g->b, g->i64, at, "");
    g->fetches = LLVMBuildICmp(g->b, LLVMIntNE, word, df_gen_i64(g, 0), "");
}

void df_fetch_vector(df_gen *g, uint32_t vector, uint32_t n_vec)
{
    const uint32_t pair = 2 * DF_FETCH_LINE;
    g->prefetches = true;
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        df_acc_state *const acc = &g->acc[a];
        const uint32_t bytes = g->w * df_bytes_of((deft_dtype)g->k->access[a].dtype);
        acc->has_pair = g->t->is_intel_server && n_vec * bytes % pair == 0;
        const bool is_first = vector * bytes % (acc->has_pair ? pair : DF_FETCH_LINE) == 0;
        const int64_t distance = acc->has_pair ? PAIR_DISTANCE : DISTANCE;
        acc->ahead = is_first ? df_gen_i64(g, distance) : NULL;
    }
}

bool df_fetch_streamed(df_gen *g)
{
    if (g->prefetches || !(g->t->is_intel_server || g->are_twos)) return false;
    df_fetch_vector(g, 0, 1);
    return true;
}

static bool is_half(const df_gen *g, uint32_t access)
{
    const deft_dtype t = (deft_dtype)g->k->access[access].dtype;
    return t == DEFT_F16 || t == DEFT_BF16;
}

bool df_fetch_map(df_gen *g)
{
    if (g->k->mode != DF_MODE_MAP || !g->t->is_intel_server || g->level == DF_OPT_O0 ||
        g->prefetches || g->is_jammed || g->are_twos || g->has_inside ||
        df_gen_body_size(g) > LONG_BODY)
        return false;
    bool all_halves = true;
    for (uint32_t a = 0; a < g->k->n_access; a++)
        all_halves &= df_gen_lane_step(g, a) != DF_STEP_UNIT || is_half(g, a);
    for (uint32_t a = 0; a < g->k->n_access; a++)
        if (all_halves || g->k->access[a].kind == DF_ACCESS_STORE)
            g->acc[a].ahead = df_gen_i64(g, all_halves ? DISTANCE : STORE_DISTANCE);
    return g->prefetches = g->fetches_lines = true;
}

/* Whether rows of the access are known to be long enough for prefetching to pay, and so short that
 * the next one stays in the first cache. */
static bool has_rows_to_fetch(const df_gen *g, uint32_t access)
{
    int64_t n;
    if (!df_gen_known(g->length, &n)) return false;
    n *= df_bytes_of((deft_dtype)g->k->access[access].dtype);
    return n >= LEAST_ROW && n <= MOST_ROW;
}

bool df_fetch_rows(df_gen *g, uint32_t stage)
{
    if (stage == 0 || !g->t->is_intel_server || g->level == DF_OPT_O0 || g->w == 1 || g->has_runs ||
        g->n_outer == 0 || g->vec_axis < 0)
        return false;
    const uint32_t along = g->outer[g->n_outer - 1];
    bool any = false;
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        const df_access *const x = &g->k->access[a];
        const bool is_load = x->kind == DF_ACCESS_LOAD && stage == 1;
        if (!(is_load || x->kind == DF_ACCESS_STORE) || x->step[along] == DF_STEP_ZERO ||
            df_gen_lane_step(g, a) != DF_STEP_UNIT || !has_rows_to_fetch(g, a))
            continue;
        g->acc[a].ahead = df_gen_stride(g, a, along);
        any = true;
    }
    return g->prefetches = g->fetches_lines = any;
}

bool df_fetch_scan(df_gen *g)
{
    if (!g->t->is_intel_server || g->level == DF_OPT_O0 || g->w == 1 || g->n_red == 0) return false;
    const uint32_t along = g->red[g->n_red - 1];
    for (uint32_t a = 0; a < g->k->n_access; a++)
        if (df_gen_lane_step(g, a) == DF_STEP_UNIT && g->k->access[a].step[along] != DF_STEP_ZERO)
            g->acc[a].ahead = df_gen_stride(g, a, along);
    return g->prefetches = g->fetches_lines = true;
}

void df_fetch_end(df_gen *g)
{
    g->prefetches = g->fetches_lines = false;
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        g->acc[a].ahead = NULL;
        g->acc[a].has_pair = false;
    }
}
