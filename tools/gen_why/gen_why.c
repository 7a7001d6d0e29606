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
    "`deft_explain(cx, buf, n)` gives one line for each thing that a run of the same program need",
    "not do again: a plan built, a kernel compiled, a plan or guard that missed, a read that had "
    "to",
    "compute, records computed twice, a cut by a budget. The log topic `why` (`DEFT_LOG=why`, or",
    "`log` in the runtime's options, with a `log_hook`) has the same lines as they happen. A",
    "program that repeats itself makes no event; the counters of `deft_stats` go on counting.",
    "",
    "    note plan_new: plan 3 built at sim+0x1f3: a new program of 12 records and 1 result; "
    "nearest",
    "    known program differs at record 7: add f32[4,10], was mul f32[4,10]. Advice: record the "
    "same",
    "    calls in the same order each time; ...",
    "",
    "A line holds its severity and reason, the call site, what was wanted and found, and advice.",
    "Records have the numbers that `deft_show(cx, \"trace\", ...)` prints. Reads that repeat one "
    "that",
    "was told before are counted (`syncs`, `recomputed`) and logged, but no new event; equal "
    "events",
    "in a row are one line with \"(N times)\". 64 events and 64 compiles are kept for each "
    "context;",
    "what was dropped is counted in the first line. `DEFT_SYNC_WARN` tells every sync.",
    "",
    "## Call sites",
    "",
    "A call site is a return address, printed as module+offset. Where the dynamic symbol table has",
    "a name for it (libraries; programs linked with `-rdynamic`), that stands behind it:",
    "`libsim.so+0x1f3 (advance+0x21)`. Files and lines are in debug information, which deft does "
    "not",
    "read; a return address lies behind its call, so",
    "",
    "    addr2line -f -e sim 0x1f2       # the offset less one",
    "",
    "names the line. Where the compiler turned a call into a jump (a function that ends with",
    "`return deft_read(...)`), the site is that of its caller.",
    "",
    "A kernel's line names the call of its last record, and behind `of` the call that cut the "
    "trace.",
    "A forced cut names the last call recorded before it.",
    "",
    "## Reasons",
    "",
    "In braces: call sites, texts and numbers of the event.",
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
