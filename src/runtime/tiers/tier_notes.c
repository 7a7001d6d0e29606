/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels in the structured log: what was compiled and how long it took. Where the log asks for
 * code, the kernel is compiled once more to print it.
 */
#include "base/journal.h"
#include "runtime/tiers/tier_store.h"

#include <stdio.h>

void df_kernel_name(const df_kernel *k, char name[DF_KERNEL_NAME])
{
    (void)snprintf(name, DF_KERNEL_NAME, "%016llx%016llx", (unsigned long long)k->key.hash.hi,
                   (unsigned long long)k->key.hash.lo);
}

static void put_code(df_tiers *t, const df_kernel *k, df_str *s, const char *key, bool assembly)
{
    df_str text;
    df_diag d = { 0 };
    df_str_init(&text, t->mem);
    const deft_status st = t->compiler->show(t->compiler->self, &d, k, NULL, assembly, &text);
    df_json_text(s, key, st == DEFT_OK && text.ok ? text.at : NULL);
    df_str_finish(&text);
}

/* n_in_compiler counts this thread, so that a forked child knows that the compiler was in use. */
static void put_codes(df_tiers *t, const df_kernel *k, df_str *s)
{
    df_str ir;
    df_str_init(&ir, t->mem);
    df_kernel_print(&ir, k);
    df_json_text(s, "kernel_ir", ir.ok ? ir.at : NULL);
    df_str_finish(&ir);
    if (!t->compiler || !t->compiler->show) return;
    atomic_fetch_add(&t->n_in_compiler, 1);
    put_code(t, k, s, "compiler_ir", false);
    put_code(t, k, s, "assembly", true);
    atomic_fetch_sub(&t->n_in_compiler, 1);
}

void df_tier_log(df_tiers *t, entry *e, const df_kernel_notes *told)
{
    df_journal *const j = t->log ? t->log->journal : NULL;
    char name[DF_KERNEL_NAME];
    df_str s;
    if (!df_journal_on(j)) return;
    df_kernel_name(&e->kernel, name);
    df_record_begin(&s, j, "kernel", e->owner);
    df_json_text(&s, "kernel", name);
    df_record_plan(&s, "plan", df_plan_id(e->owner, e->plan_number));
    df_json_site(&s, "site", e->site ? e->site : e->plan_site);
    df_json_text(&s, "ops", e->ops);
    df_json_text(&s, "tier", told->tier);
    df_json_text(&s, "facts", told->facts);
    df_json_flag(&s, "compiled", told->compiled);
    df_json_text(&s, "error", told->compiled ? NULL : told->error);
    df_json_count(&s, "compile_ns", told->compile_ns);
    df_json_count(&s, "kernels_in_module", told->n_in_module);
    df_json_count(&s, "code_bytes", told->code_bytes);
    if (df_journal_has_code(j)) put_codes(t, &e->kernel, &s);
    df_record_end(&s, j);
}
