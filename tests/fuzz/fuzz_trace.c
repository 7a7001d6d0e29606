/* SPDX-License-Identifier: Apache-2.0
 *
 * Text traces: any bytes give a status and a sentence, or a trace that prints to a text which reads
 * back as the same: same key, same text.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "trace/trace.h"

static void must(bool ok)
{
    if (!ok) abort();
}

static void print_and_key(df_arena *arena, const char *text, size_t n, df_str *out, df_key *key)
{
    df_diag d = { 0 };
    df_trace *t = NULL;
    must(df_trace_parse(&d, text, n, arena, &t) == DEFT_OK);
    must(df_trace_verify(&d, t) == DEFT_OK);
    must(df_trace_key(&d, t, key) == DEFT_OK);
    df_trace_print(out, t);
    must(out->ok);
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
        print_and_key(&arena, (const char *)bytes, n, &a, &first);
        print_and_key(&arena, a.at, a.n, &b, &second);
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
