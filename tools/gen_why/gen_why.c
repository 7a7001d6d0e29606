/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints docs/why.md from reasons.def. docs/why.md is checked in; the test "fresh docs/why.md" says
 * when it is stale.
 */
#include <stdio.h>

typedef struct row {
    const char *id, *severity, *text, *advice;
} row;

static const row rows[] = {
#define REASON(id, severity, text, advice) { #id, #severity, text, advice },
#include "guards/reasons.def"
#undef REASON
};

static const char *const before[] = {
    "<!-- Written by tools/gen_why from src/guards/reasons.def. -->",
    "# Why something took time",
    "",
    "`deft_explain(cx, buf, n)` gives one line for each thing that a second run of the same "
    "program",
    "does not do again: a plan built, a kernel compiled, a plan or guard that missed, a read "
    "that had",
    "to compute, records computed twice, a cut by a budget. The log topic `why` "
    "(`DEFT_LOG=why`, or",
    "`log` in the runtime's options, with a `log_hook`) has the same lines as they happen. A "
    "program",
    "that repeats itself makes no event. The counters of `deft_stats` go on counting.",
    "",
    "    note plan_new: plan 3 built at sim.c:41 (advance): a new program of 12 records and 1 "
    "result;",
    "    nearest known program differs at record 7: add f32[4,10], was mul f32[4,10]. Advice: "
    "record",
    "    the same calls in the same order each time; ...",
    "",
    "A line has the severity and the reason, the call site, what was wanted and what was "
    "found, and",
    "advice. Records have the numbers that `deft_show(cx, \"trace\", ...)` prints. A read that "
    "repeats",
    "one that was reported before is counted (`syncs`, `recomputed`) and logged, but makes no new",
    "event. Equal events in a row are one line with \"(N times)\". 128 events and 128 compiles "
    "are kept",
    "for each context, and the first line counts dropped ones. `DEFT_SYNC_WARN` reports every "
    "sync.",
    "",
    "## Call sites",
    "",
    "A call site is a return address. With the plug-in `deft-sites.so` (elfutils; meson option",
    "`sites`) and debug information (`-g`), it is printed as file, line and function: `sim.c:41",
    "(advance)`. Where functions were inlined, this is the innermost one. A call that a header "
    "of the",
    "C++ interface makes inline counts as a call of its caller. The plug-in is looked for in "
    "the same",
    "folders as the code generator. The first sentence that names a call opens it; recording never",
    "uses it. Separate debug information is taken from `/usr/lib/debug/.build-id`, never from the",
    "network. That of `-gsplit-dwarf` is not read. A file whose build id is not that of the loaded",
    "module is not used, so a program that was built anew while it runs has no lines.",
    "",
    "Where no line is known, a site is module+offset. Where the dynamic symbol table has a "
    "name for it",
    "(libraries; programs linked with `-rdynamic`), the name follows: `libsim.so+0x1f3",
    "(advance+0x21)`. A return address is the address after its call, so",
    "",
    "    addr2line -f -e sim 0x1f2       # the offset less one",
    "",
    "names the line by hand.",
    "",
    "**Tail calls.** Where a function ends with `return deft_read(...)` (or with a call of a "
    "function",
    "that returns nothing), an optimizing compiler may turn the call into a jump. Then no return",
    "address is left in that function: deft returns directly to its caller, and the site is "
    "the line",
    "where the function was called. That line is true, but one call further out than expected.",
    "Compile with `-fno-optimize-sibling-calls` to have a site for each call.",
    "",
    "**Bindings** set the line themselves. After `deft_site(cx, \"train.py\", 7)` the calls on "
    "that",
    "context come from `train.py:7`, until the next `deft_site`. `deft_site(cx, NULL, 0)` ends "
    "this.",
    "",
    "**Labels.** Calls between `deft_label_begin(cx, \"encoder\")` and `deft_label_end(cx)` "
    "have the",
    "label after their site, outer labels first: `mlp.c:41 (block) in encoder/attention`. The "
    "end of a",
    "scope or step ends the labels that were begun inside it. `deft_show(cx, \"sites\", ...)` "
    "prints each",
    "record with its site and labels.",
    "",
    "None of this is part of the identity of a program. The same calls under other labels, "
    "from other",
    "lines, find the same plan. A plan and its kernels keep the sites and labels under which they",
    "were made.",
    "",
    "The line of a kernel names the call of its last record, and after `of` the call that cut the",
    "trace. A forced cut names the last call recorded before it.",
    "",
    "## Reasons",
    "",
    "Braces mark call sites, texts and numbers of the event.",
    "",
};

static void put_cell(const char *text)
{
    for (; *text; text++) printf(*text == '|' ? "\\%c" : "%c", *text);
}

int main(void)
{
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) puts(before[i]);
    puts("| reason | severity | line | advice |\n|---|---|---|---|");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        printf("| `%s` | %s | ", rows[i].id, rows[i].severity);
        put_cell(rows[i].text);
        printf(" | ");
        put_cell(rows[i].advice);
        puts(" |");
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
