/* SPDX-License-Identifier: Apache-2.0
 *
 * Text traces: any bytes give a status and a sentence, or a trace that prints to a text which reads
 * back as the same: same key, text, arguments, extents, strides and flags.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "trace/trace.h"

static void must(bool ok)
{
    if (!ok) abort();
}

/* What the key leaves out. */
static void same_details(const df_trace *a, const df_trace *b)
{
    must(a->n_args == b->n_args && a->n_inputs == b->n_inputs);
    for (uint32_t i = 0; i < a->n_args; i++) must(a->args[i] == b->args[i]);
    for (uint32_t k = 0; k < a->n_nodes; k++)
        for (int x = 0; x < (int)a->nodes[k].rank; x++)
            must(df_trace_extents(a, k)[x] == df_trace_extents(b, k)[x]);
    for (uint32_t i = 0; i < a->n_inputs; i++) {
        const df_input *const p = &a->inputs[i], *const q = &b->inputs[i];
        must(p->flags == q->flags && p->node == q->node);
        must(memcmp(p->stride, q->stride, sizeof p->stride) == 0);
    }
}

static const df_trace *print_and_key(df_arena *arena, const char *text, size_t n, df_str *out,
                                     df_key *key)
{
    df_diag d = { 0 };
    df_trace *t = NULL;
    must(df_trace_parse(&d, text, n, arena, &t) == DEFT_OK);
    must(df_trace_verify(&d, t) == DEFT_OK);
    must(df_trace_key(&d, t, key) == DEFT_OK);
    df_trace_print(out, t);
    must(out->ok);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    df_arena arena;
    df_diag d = { 0 };
    df_trace *t = NULL;
    df_key first, second;
    df_str a, b;
    df_arena_init(&arena, &df_mem_system);
    df_str_init(&a, &df_mem_system);
    df_str_init(&b, &df_mem_system);
    if (df_trace_parse(&d, (const char *)bytes, n, &arena, &t) == DEFT_OK) {
        const df_trace *const read = print_and_key(&arena, (const char *)bytes, n, &a, &first);
        same_details(read, print_and_key(&arena, a.at, a.n, &b, &second));
        must(a.n == b.n && memcmp(a.at, b.at, a.n) == 0);
        must(first.n == second.n && memcmp(first.bytes, second.bytes, first.n) == 0);
    } else {
        must(d.text[0] != '\0');
    }
    df_str_finish(&a);
    df_str_finish(&b);
    df_arena_finish(&arena);
    return 0;
}
