/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides where the broadcast of a number is made.
 *
 * A number is loaded and broadcast once per call, and then stays in a vector register. A kernel
 * with more numbers than registers would store such vectors to the stack, and load them from there.
 * So its numbers are broadcast where they are read: on x86 this costs no instruction, because an
 * operand in memory may be one word for all lanes. A chain of 1,000 additions and products with as
 * many numbers then takes half of the time for 8 elements, and needs no 64 KiB of stack. A number
 * that several instructions read keeps its register, because the copies of a body may be far apart.
 */
#include "jit_llvm/gen.h"

static bool is_leaf(const df_gen *g, uint32_t i)
{
    return g->k->ins[i].op == DF_K_num && g->val[i].wants_vec && !g->val[i].wants_inverse;
}

/* Sets is_read_in_place of the numbers that one instruction on lanes reads, and nothing else. */
static void find_single_readers(df_gen *g)
{
    uint32_t *const n_readers = df_gen_array(g, sizeof *n_readers * g->k->n_ins);
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *ins = &g->k->ins[i];
        /* The other value of a load_if is kept in memory (df_gen_others). */
        const bool is_plain = g->val[i].place == PLACE_BODY && ins->op != DF_K_load_if;
        for (uint32_t s = 0; s < df_gen_n_src(g, i); s++)
            n_readers[ins->src[s]] += is_plain ? 1 : 2;
    }
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        g->val[i].is_read_in_place = is_leaf(g, i) && n_readers[i] == 1;
}

void df_numbers_place(df_gen *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        g->val[i].is_read_in_place = false;
        n += is_leaf(g, i);
    }
    if (n > df_gen_vector_registers(g) / 2) find_single_readers(g);
}
