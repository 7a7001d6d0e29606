/* SPDX-License-Identifier: Apache-2.0
 *
 * What deft tells of itself: the lines of deft_explain and of the log topic "why", the counters
 * behind them, and the policies and budgets of steps. Call sites are compared as <site>, the time a
 * compile took as <ms>.
 *
 * Why this file is long: a test for each reason, and what they share is the reading of lines.
 */
#include "support/harness.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guards/reason.h"
#include "lazy/core/history.h" /* after the calls with plain numbers */

enum { TEXT = 65536 };

static char told[TEXT]; /* the latest deft_explain, call sites replaced */

/* Where the call site that stands at s ends; NULL when none does: file.c:41 or module+0x1f3, and
 * perhaps (function) or (function+0x21). */
static const char *site_end(const char *s)
{
    const size_t word = strcspn(s, " ;:,\n");
    const char *const plus = memchr(s, '+', word);
    const bool is_line = word > 2 && !strncmp(s + word - 2, ".c:", 3);
    if (!is_line && (!plus || strncmp(plus, "+0x", 3) != 0)) return NULL;
    const char *end = is_line ? s + word + 1 : plus + 3;
    while (isxdigit((unsigned char)*end)) end++;
    if (strncmp(end, " (", 2) == 0) {
        const char *const close = strchr(end, ')');
        if (close && (is_line || memchr(end, '+', (size_t)(close - end)))) end = close + 1;
    }
    return end;
}

/* The site behind `before` in text, as it stands there. */
static const char *site_behind(const char *text, const char *before)
{
    static char out[3][300];
    static int next;
    const char *const at = strstr(text, before);
    cr_assert(at, "%s in %s", before, text);
    const char *const end = site_end(at + strlen(before));
    cr_assert(end, "%s in %s", before, text);
    next = (next + 1) % 3;
    snprintf(out[next], sizeof out[next], "%.*s", (int)(end - at - strlen(before)),
             at + strlen(before));
    return out[next];
}

static void without_sites(const char *from, char *to)
{
    bool starts = true; /* a word */
    while (*from) {
        const char *const end = starts ? site_end(from) : NULL;
        double ms;
        int used = 0;
        if (end) {
            to += sprintf(to, "<site>");
            from = end;
        } else if (starts && sscanf(from, "%lf ms%n", &ms, &used) == 1 && used) {
            to += sprintf(to, "<ms>");
            from += used;
        } else {
            starts = *from == ' ' || *from == '\n';
            *to++ = *from++;
        }
    }
    *to = '\0';
}

/* Fills told. */
static void explain(const rig *r)
{
    static char raw[TEXT];
    const size_t n = deft_explain(r->cx, raw, sizeof raw);
    cr_assert(n < sizeof raw && n == strlen(raw));
    without_sites(raw, told);
}

/* Behind "note <id>: " at the start of the next line that has it; NULL: there is none. */
static const char *find(const char *text, const char *id)
{
    for (int severity = 0; severity < 2; severity++) {
        char mark[64];
        const int n = snprintf(mark, sizeof mark, "\n%s %s: ", severity ? "warning" : "note", id);
        if (text == told && !strncmp(text, mark + 1, (size_t)n - 1)) return text + n - 1;
        const char *const at = strstr(text, mark);
        if (at) return at + n;
    }
    return NULL;
}

/* How many lines told have this reason. */
static uint64_t lines(const char *id)
{
    uint64_t n = 0;
    for (const char *at = find(told, id); at; at = find(at, id)) n++;
    return n;
}

/* How many events told have this reason. Equal ones share a line, also times that are equal by
 * chance. */
static uint64_t events(const char *id)
{
    uint64_t n = 0;
    for (const char *at = find(told, id); at; at = find(at, id)) {
        const char *const end = strchr(at, '\n'), *const times = strstr(at, " times)");
        const char *digits = times && (!end || times < end) ? times : NULL;
        while (digits && digits > at && isdigit((unsigned char)digits[-1])) digits--;
        n += digits ? strtoull(digits, NULL, 10) : 1;
    }
    return n;
}

/* The text of the only line with this reason, without its advice. */
static const char *line(const char *id)
{
    static char out[1024];
    cr_assert_eq(lines(id), 1, "%s:\n%s", id, told);
    const char *const at = find(told, id), *const end = strstr(at, ". Advice: ");
    cr_assert(end && end < strchr(at, '\n'));
    snprintf(out, sizeof out, "%.*s", (int)(end - at), at);
    return out;
}

static void open_with(rig *r, deft_tier tier, const char *log, const deft_ctx_options *c)
{
    const deft_runtime_options o = { .size = sizeof o, .n_threads = 1, .tier = tier, .log = log };
    rig_open(r, &o, c);
}

static void open_plain(rig *r)
{
    open_with(r, DEFT_TIER_INTERPRET, NULL, NULL);
}

/* ---- the lines ---- */

Test(why, a_first_program)
{
    rig r;
    float v[40];
    open_plain(&r);
    deft_tensor *a = deft_reshape(rig_range(&r, 40, 1), DEFT_SHAPE(4, 10));
    rig_read(&r, deft_mul(deft_exp(a), 0.5), v, 40);
    explain(&r);
    cr_assert_str_eq(
        told,
        "note plan_miss: plan miss at <site>: a program of 5 records and 1 result: wanted a plan "
        "that fits, found none with its key. Advice: the line of the plan that follows says "
        "what was new; a miss in every step means that each step records something else.\n"
        "note plan_first: plan 1 built at <site>: a program of 5 records and 1 result; the first "
        "of this context. Advice: none needed: the first run of a program makes its plan.\n"
        "note sync: sync: read at <site> wanted a value, found 4 pending records. Advice: read "
        "values after the end of the step that computes them, or deft_eval all wanted tensors in "
        "one call.\n");
    rig_close(&r);
}

Test(why, the_log_has_the_same_lines)
{
    static char log[TEXT];
    rig r;
    float v[4];
    open_with(&r, DEFT_TIER_INTERPRET, "why", NULL);
    rig_read(&r, deft_neg(rig_range(&r, 4, 1)), v, 4);
    explain(&r);
    without_sites(r.log, log);
    char *at = log;
    for (char *told_line = strtok(told, "\n"); told_line; told_line = strtok(NULL, "\n")) {
        cr_assert(strncmp(at, "why: ", 5) == 0);
        cr_assert(strncmp(at + 5, told_line, strlen(told_line)) == 0, "%s\n%s", at, told_line);
        at += 5 + strlen(told_line) + 1;
    }
    cr_assert_eq(*at, '\0');
    rig_close(&r);
}

/* Evaluates a new program, whose plan must differ so from the nearest known one. */
static void expect_new(const rig *r, deft_tensor *t, const char *want)
{
    OK(r, deft_eval(&t, 1));
    explain(r);
    cr_assert_str_eq(line("plan_new"), want);
}

Test(why, a_new_program_names_where_it_left_the_nearest_one)
{
    rig r;
    open_plain(&r);
    deft_tensor *a = deft_keep(deft_full(r.cx, DEFT_SHAPE(4, 10), DEFT_F32, 2));
    OK(&r, deft_eval(&a, 1));
    deft_tensor *t = deft_mul(deft_add(deft_exp(a), a), 0.5);
    OK(&r, deft_eval(&t, 1));
    explain(&r);
    expect_new(&r, deft_mul(deft_mul(deft_exp(a), a), 0.5),
               "plan 3 built at <site>: a new program of 5 records and 1 result; nearest "
               "known program differs at record 2: mul f32[4,10], was add f32[4,10]");
    /* The nearest is not the latest: this one begins like the first. */
    expect_new(&r, deft_sub(deft_add(deft_exp(a), a), 0.5),
               "plan 4 built at <site>: a new program of 5 records and 1 result; nearest "
               "known program differs at record 4: sub f32[4,10], was mul f32[4,10]");
    /* Same op and shape: operands and attributes are spelled out. */
    expect_new(&r, deft_mul(deft_add(deft_exp(a), deft_exp(a)), 0.5),
               "plan 5 built at <site>: a new program of 6 records and 1 result; nearest "
               "known program differs at record 2: exp f32[4,10], was add f32[4,10]");
    expect_new(&r, deft_add(a, deft_exp(a)),
               "plan 6 built at <site>: a new program of 3 records and 1 result; nearest "
               "known program differs at record 2: add f32[4,10] %0 %1, was add f32[4,10] "
               "%1 %0");
    expect_new(&r, deft_exp(a),
               "plan 7 built at <site>: a new program of 2 records and 1 result; nearest "
               "known program differs at record 2: the end, was add f32[4,10]");
    rig_close(&r);
}

Test(why, the_same_records_with_other_results)
{
    rig r;
    open_plain(&r);
    deft_tensor *a = rig_range(&r, 8, 1);
    for (int both = 0; both < 2; both++) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const e = deft_exp(a), *const list[] = { deft_neg(e), e };
        OK(&r, deft_eval(list, both ? 2 : 1));
        OK(&r, deft_scope_end(s));
    }
    explain(&r);
    cr_assert_str_eq(line("plan_new"),
                     "plan 2 built at <site>: a new program of 3 records and 2 results; nearest "
                     "known program differs at result 1: %1, was the end");
    rig_close(&r);
}

Test(why, a_guard_that_missed)
{
    rig r;
    static float memory[64];
    open_plain(&r);
    float v[16];
    for (int64_t stride = 1; stride < 4; stride++) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *a = deft_wrap(r.cx, DEFT_SHAPE(16), DEFT_F32, memory, sizeof memory, &stride);
        rig_read(&r, deft_exp(a), v, 16);
        OK(&r, deft_scope_end(s));
    }
    explain(&r);
    const deft_stats s = rig_stats(&r);
    cr_assert(s.guard_misses > 0);
    cr_assert_eq(lines("guard_miss"), s.guard_misses);
    cr_assert_eq(lines("plan_miss"), s.plan_misses);
    cr_assert_eq(lines("plan_first") + lines("plan_guards"), s.plans_built);
    cr_assert_eq(s.plans_built, 2);
    cr_assert(strstr(line("guard_miss"), "guard miss at <site>: "), "%s", told);
    cr_assert(strstr(line("guard_miss"), "wanted"), "%s", told);
    cr_assert_str_eq(line("plan_guards"),
                     "plan 2 built at <site>: a program of 2 records and 1 result; the program is "
                     "known, but 1 known plan did not fit, wanted one whose guards hold");
    rig_close(&r);
}

Test(why, a_copied_array_names_who_needs_its_old_value)
{
    rig r;
    static double x[40 * 50];
    open_with(&r, DEFT_TIER_INTERPRET, NULL, NULL);
    deft_tensor *const a =
        deft_keep(deft_wrap_mut(r.cx, DEFT_SHAPE(40, 50), DEFT_F64, x, sizeof x, NULL));
    deft_tensor *const out = deft_keep(deft_zeros(r.cx, DEFT_SHAPE(40), DEFT_F64));
    for (int both = 0; both < 2; both++) {
        const deft_scope step = deft_step_begin(r.cx);
        deft_tensor *const old = deft_slice(a, DEFT_FULL, DEFT_AT(4));
        deft_tensor *const sum = deft_add(old, deft_slice(a, DEFT_FULL, DEFT_AT(5)));
        deft_tensor *const last = both ? deft_slice(a, DEFT_FULL, DEFT_AT(5)) : old;
        deft_assign(deft_slice(a, DEFT_FULL, DEFT_AT(5)), sum);
        deft_assign(out, deft_div(last, deft_slice(a, DEFT_FULL, DEFT_AT(5))));
        OK(&r, deft_step_end(step));
        explain(&r);
        if (!both) {
            cr_expect_eq(lines("array_copied"), 0, "%s", told);
            continue;
        }
        cr_expect(strstr(line("array_copied"),
                         "found div f64[40], which reads the old contents and needs the new ones"),
                  "%s", told);
    }
    rig_close(&r);
}

Test(why, a_plan_that_was_given_up)
{
    rig r;
    const deft_runtime_options o = {
        .size = sizeof o, .n_threads = 1, .tier = DEFT_TIER_INTERPRET, .max_plan_bytes = 24 << 10
    };
    rig_open(&r, &o, NULL);
    deft_tensor *a = rig_range(&r, 4, 1);
    float v[4];
    uint64_t first = 0, again = 0;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 12; i++) { /* fewer than a context knows, more than the cache holds */
            const deft_scope s = deft_scope_begin(r.cx);
            deft_tensor *x = a;
            for (int k = 0; k < 4; k++) x = i >> k & 1 ? deft_add(x, 1) : deft_sub(x, 1);
            rig_read(&r, deft_mul(x, x), v, 4);
            OK(&r, deft_scope_end(s));
            explain(&r);
            first += lines("plan_first") + lines("plan_new");
            again += lines("plan_given_up");
            if (lines("plan_given_up"))
                cr_assert(strstr(line("plan_given_up"),
                                 " built at <site>: a program of 10 records and 1 result; it had "
                                 "one before, wanted it in the cache, found it gone"),
                          "%s", told);
        }
    cr_assert_eq(first, 12);
    cr_assert_eq(first + again, rig_stats(&r).plans_built);
    cr_assert(again > 0);
    rig_close(&r);
}

/* ---- kernels ---- */

/* Every compile has its line, and every line the site of a call of this program. */
static void each_kernel_is_told(const rig *r)
{
    const deft_stats s = rig_stats(r);
    cr_assert_eq(lines("kernel_new") + lines("kernel_better"), s.kernels_compiled, "%s", told);
    for (const char *at = told; (at = strstr(at, "kernel compiled")); at++) {
        const char *const to = strchr(at, '\n');
        const char *const first = strstr(at, " at <site> for plan ");
        const char *const second = strstr(at, " of <site>: ");
        cr_assert(first && first < to && second && second < to, "%.*s", (int)(to - at), at);
    }
}

static bool has_compiler(const rig *r)
{
    return strncmp(deft_runtime_compiler(r->rt), "interpreter", 11) != 0;
}

Test(why, a_kernel_names_its_ops_plan_and_tier)
{
    rig r;
    float v;
    open_with(&r, DEFT_TIER_FULL, NULL, NULL);
    if (!has_compiler(&r)) cr_skip_test();
    deft_tensor *a = rig_range(&r, 64, 1);
    v = rig_item(&r, deft_sum(deft_mul(deft_exp(deft_neg(a)), 2), DEFT_ALL_AXES, 0));
    cr_assert(v > 0);
    static char raw[TEXT];
    (void)deft_explain(r.cx, raw, deft_explain(r.cx, NULL, 0)); /* cut: nothing is forgotten */
    const char *const plan_site = site_behind(raw, "for plan 1 of ");
    cr_assert_str_eq(plan_site, site_behind(raw, "sync: item at "));
    cr_assert_str_neq(site_behind(raw, "kernel compiled at "), plan_site, "that of the sum");
    explain(&r);
    cr_assert_str_eq(line("kernel_new"),
                     "kernel compiled at <site> for plan 1 of <site>: neg, exp, mul, sum; wanted "
                     "code for it in the cache, found none; O2 took <ms> for 1 in one module");
    each_kernel_is_told(&r);
    rig_close(&r);
}

Test(why, better_code_is_told_too)
{
    rig r;
    float v[64];
    open_with(&r, DEFT_TIER_AUTO, NULL, NULL);
    if (!has_compiler(&r)) cr_skip_test();
    deft_tensor *a = rig_range(&r, 64, 1);
    for (int i = 0; i < 6; i++) {
        const deft_scope s = deft_scope_begin(r.cx);
        rig_read(&r, deft_exp(a), v, 64);
        OK(&r, deft_scope_end(s));
        deft_runtime_settle(r.rt);
    }
    explain(&r);
    cr_assert_str_eq(line("kernel_better"),
                     "kernel compiled again at <site> for plan 1 of <site>: exp; wanted O2 after 2 "
                     "launches, found O0; O2 took <ms> for 1 in one module");
    cr_assert_eq(rig_stats(&r).kernels_compiled, 2);
    each_kernel_is_told(&r);
    rig_close(&r);
}

Test(why, each_context_hears_of_its_own_kernels)
{
    rig r;
    open_with(&r, DEFT_TIER_FULL, NULL, NULL);
    if (!has_compiler(&r)) cr_skip_test();
    deft_ctx *other;
    OK(&r, deft_ctx_create(r.rt, NULL, &other));
    deft_tensor *x = deft_exp(deft_full(other, DEFT_SHAPE(9), DEFT_F32, 1));
    cr_assert_eq(deft_eval(&x, 1), DEFT_OK);
    explain(&r);
    cr_assert_str_eq(told, "");
    cr_assert(deft_explain(other, told, sizeof told) > 0);
    cr_assert_eq(lines("kernel_new"), rig_stats(&r).kernels_compiled);
    deft_ctx_destroy(&other);
    rig_close(&r);
}

Test(why, a_matmul_tile)
{
    rig r;
    open_with(&r, DEFT_TIER_FULL, NULL, NULL);
    if (!has_compiler(&r)) cr_skip_test();
    for (int i = 0; i < 2; i++) {
        deft_tensor *a = deft_ones(r.cx, DEFT_SHAPE(4 + i, 5), DEFT_F64);
        deft_tensor *b = deft_matmul(a, deft_t(a));
        OK(&r, deft_eval(&b, 1));
    }
    explain(&r);
    cr_assert(strstr(line("tile_new"), "matmul tile compiled at <site> for plan "), "%s", told);
    cr_assert(strstr(line("tile_new"), ": f64; wanted code for it, found none; tiles of "));
    rig_close(&r);
}

/* ---- reading the lines ---- */

Test(why, measuring_and_short_buffers_forget_nothing)
{
    rig r;
    float v[4];
    char small[100], big[4096], again[4096];
    open_plain(&r);
    cr_assert_eq(deft_explain(r.cx, big, sizeof big), 0);
    cr_assert_str_eq(big, "");
    rig_read(&r, deft_neg(rig_range(&r, 4, 1)), v, 4);
    const size_t n = deft_explain(r.cx, NULL, 0);
    cr_assert_eq(deft_explain(r.cx, small, sizeof small), n);
    cr_assert_eq(strlen(small), sizeof small - 1);
    cr_assert_eq(deft_explain(r.cx, big, n), n, "no room for the terminator");
    cr_assert_eq(strlen(big), n - 1);
    cr_assert_eq(deft_explain(r.cx, again, n + 1), n, "room to the byte");
    cr_assert_eq(strlen(again), n);
    cr_assert_eq(strncmp(again, small, sizeof small - 1), 0);
    cr_assert_eq(strncmp(again, big, n - 1), 0);
    cr_assert_eq(deft_explain(r.cx, big, sizeof big), 0, "now they were told");
    cr_assert_eq(deft_explain(NULL, big, sizeof big), 0);
    rig_close(&r);
}

Test(why, the_ring_keeps_128_and_counts_the_rest)
{
    rig r;
    open_plain(&r);
    deft_tensor *a = rig_range(&r, 4, 1);
    for (int i = 0; i < 64; i++) { /* three events each */
        deft_tensor *x = a;
        for (int k = 0; k < 6; k++) x = i >> k & 1 ? deft_add(x, 1) : deft_mul(x, 2);
        float v[4];
        rig_read(&r, x, v, 4);
    }
    explain(&r);
    cr_assert(strncmp(told, "64 earlier events were dropped\n", 31) == 0, "%.60s", told);
    size_t n = 0;
    for (const char *at = told; *at; at++) n += *at == '\n';
    cr_assert_eq(n, 129);
    explain(&r);
    cr_assert_str_eq(told, "", "and they are not told again");
    rig_close(&r);
}

static void repeat(const char *log)
{
    rig r;
    const deft_ctx_options c = { .size = sizeof c, .syncs = DEFT_SYNC_ALLOW };
    open_with(&r, DEFT_TIER_INTERPRET, log, &c);
    deft_tensor *p = rig_range(&r, 16, 1);
    for (int i = 0; i < 60; i++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *loss = deft_sum(deft_square(p), DEFT_ALL_AXES, 0);
        cr_assert(rig_item(&r, loss) > 0); /* a sync, and what it read is computed again */
        deft_assign(p, deft_sub(p, deft_mul(deft_mul(p, 0.0001), loss)));
        OK(&r, deft_step_end(s));
        if (i == 4) explain(&r);
    }
    explain(&r);
    cr_assert_str_eq(told, "");
    cr_assert_eq(rig_stats(&r).syncs, 60);
    rig_close(&r);
}

Test(why, a_program_that_repeats_itself_makes_no_event)
{
    repeat(NULL);
    repeat("why"); /* the log has its syncs, the ring does not */
}

/* ---- syncs ---- */

static __attribute__((noinline)) deft_status read_in_step(const rig *r, deft_tensor *p,
                                                          const deft_step_options *o, float *v)
{
    const deft_scope s = deft_step_begin_with(r->cx, o);
    deft_tensor *const t = deft_mul(p, 3);
    const deft_status st = deft_read(t, DEFT_F32, v, 4 * sizeof *v);
    deft_assign(p, t);
    OK(r, deft_step_end(s));
    return st;
}

Test(why, a_sync_inside_a_step_is_allowed_told_or_refused)
{
    rig r;
    float v[4] = { 0 };
    open_plain(&r);
    deft_tensor *p = rig_range(&r, 4, 1);
    deft_step_options o = { .size = sizeof o };
    OK(&r, read_in_step(&r, p, NULL, v));
    cr_assert_eq(v[0], 3);
    explain(&r);
    cr_assert_eq(lines("sync"), 1);
    cr_assert_eq(lines("sync_in_step"), 0);

    o.syncs = DEFT_SYNC_WARN;
    for (int i = 0; i < 3; i++) OK(&r, read_in_step(&r, p, &o, v));
    cr_assert_eq(v[0], 81);
    explain(&r);
    cr_assert_str_eq(line("sync_in_step"),
                     "sync inside a step: read at <site> wanted a value, found 2 pending records, "
                     "in the step opened at <site> (3 times)");
    cr_assert_eq(lines("sync"), 0);

    o.syncs = DEFT_SYNC_REFUSE;
    v[0] = -1;
    cr_assert_eq(read_in_step(&r, p, &o, v), DEFT_E_STATE);
    cr_assert_eq(v[0], -1, "nothing was read");
    static char sentence[1024];
    without_sites(deft_message(r.cx), sentence);
    cr_assert_str_eq(sentence, "read at <site>: the value is pending, and the step opened at "
                               "<site> refuses to compute before its end");
    explain(&r);
    cr_assert_str_eq(line("sync_refused"),
                     "sync refused: read at <site> wanted a value, found 2 pending records, in the "
                     "step opened at <site>");
    rig_read(&r, p, v, 4);
    cr_assert_eq(v[0], 243, "the step went on");
    cr_assert_eq(rig_stats(&r).syncs, 4);
    rig_close(&r);
}

Test(why, every_call_that_would_compute_is_refused)
{
    rig r;
    const deft_ctx_options c = { .size = sizeof c, .syncs = DEFT_SYNC_REFUSE };
    open_with(&r, DEFT_TIER_INTERPRET, NULL, &c);
    deft_tensor *p = rig_range(&r, 1, 2);
    float f;
    bool b;
    char text[64];
    deft_mapped m;
    OK(&r, deft_item(deft_neg(p), &f)); /* outside steps nothing is refused */
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *t = deft_mul(p, 3);
    OK(&r, deft_item(p, &f)); /* has its value */
    cr_assert_eq(f, 2);
    const deft_scope inner = deft_scope_begin(r.cx);
    cr_assert_eq(deft_read(t, DEFT_F32, &f, sizeof f), DEFT_E_STATE);
    OK(&r, deft_scope_end(inner));
    cr_assert_eq(deft_item(t, &f), DEFT_E_STATE);
    cr_assert_eq(deft_item(t, &b), DEFT_E_STATE);
    cr_assert_eq(deft_eval(&t, 1), DEFT_E_STATE);
    cr_assert_eq(deft_map(t, &m), DEFT_E_STATE);
    cr_assert_eq(deft_format(t, text, sizeof text, NULL), DEFT_E_STATE);
    cr_assert_eq(deft_print(t, stderr), DEFT_E_STATE);
    cr_assert_eq(deft_save(r.cx, "/tmp/deft-why-none", &(deft_named){ "t", t }, 1), DEFT_E_STATE);
    deft_assign(p, t);
    OK(&r, deft_step_end(s));
    OK(&r, deft_item(p, &f));
    cr_assert_eq(f, 6);
    /* A step's own word comes first. */
    const deft_step_options o = { .size = sizeof o, .syncs = DEFT_SYNC_ALLOW };
    const deft_scope free_step = deft_step_begin_with(r.cx, &o);
    OK(&r, deft_item(deft_neg(p), &f));
    OK(&r, deft_step_end(free_step));
    cr_assert_eq(f, -6);
    /* And ends with the step. */
    const deft_scope last = deft_step_begin(r.cx);
    cr_assert_eq(deft_item(deft_abs(p), &f), DEFT_E_STATE);
    deft_step_abort(last);
    rig_close(&r);
}

Test(why, options_without_a_size)
{
    rig r;
    open_plain(&r);
    const deft_step_options o = { 0 };
    const deft_scope s = deft_step_begin_with(r.cx, &o);
    cr_assert_eq(deft_step_end(s), DEFT_E_ARG);
    static const char want[] = "step_begin_with: the size of deft_step_options is 0";
    cr_assert_eq(strncmp(deft_message(r.cx), want, sizeof want - 1), 0, "%s", deft_message(r.cx));
    cr_assert_eq(deft_step_begin_with(NULL, NULL).cx, NULL);
    rig_close(&r);
}

/* ---- budgets ---- */

/* n times p = p + 1 in one step. */
static void count_up(const rig *r, deft_tensor *p, int n, const deft_step_options *o)
{
    const deft_scope s = deft_step_begin_with(r->cx, o);
    for (int i = 0; i < n; i++) deft_assign(p, deft_add(p, 1));
    OK(r, deft_step_end(s));
}

static void expect_all(rig *r, deft_tensor *p, float first)
{
    float v[4];
    rig_read(r, p, v, 4);
    for (int i = 0; i < 4; i++) cr_assert_eq(v[i], first + (float)i, "%g", v[i]);
}

Test(why, max_nodes_of_a_step)
{
    rig r;
    open_with(&r, DEFT_TIER_INTERPRET, "why", NULL);
    deft_tensor *p = rig_range(&r, 4, 0);
    const deft_step_options o = { .size = sizeof o, .max_nodes = 10 };
    for (int i = 1; i <= 3; i++) { /* also when it is a repetition */
        const uint64_t cuts = rig_stats(&r).cuts;
        count_up(&r, p, 20, &o);
        expect_all(&r, p, (float)(20 * i));
        cr_assert_eq(rig_stats(&r).cuts - cuts, 4, "two records each and the input: a cut at 11");
    }
    explain(&r);
    cr_assert_eq(lines("cut_nodes"), 6, "the input counts once in each step: %s", told);
    cr_assert(strstr(told,
                     "cut forced at <site>: pending records reached max_nodes: wanted at most "
                     "10, found 11. Advice: ") &&
                  strstr(told, "found 10 (3 times). Advice: "),
              "%s", told);
    cr_assert(strstr(r.log, "cut_nodes"));
    const uint64_t cuts = rig_stats(&r).cuts;
    count_up(&r, p, 20, NULL); /* the bound went with its step */
    cr_assert_eq(rig_stats(&r).cuts, cuts + 1);
    const deft_scope s = deft_step_begin_with(r.cx, &o);
    for (int i = 0; i < 20; i++) deft_assign(p, deft_add(p, 1));
    deft_step_abort(s);
    expect_all(&r, p, 80); /* cut or not, one transaction */
    count_up(&r, p, 20, NULL);
    explain(&r);
    cr_assert(lines("cut_nodes") == 2 && strstr(told, "found 10 (3 times)"), "%s", told);
    for (int aborts = 0; aborts < 2; aborts++) { /* nor is what comes after a step bound by it */
        const deft_scope last = deft_step_begin_with(r.cx, &o);
        if (aborts)
            deft_step_abort(last);
        else
            OK(&r, deft_step_end(last));
        const uint64_t before = rig_stats(&r).cuts;
        deft_tensor *t = p;
        for (int i = 0; i < 20; i++) t = deft_add(t, 1);
        cr_assert_eq(rig_stats(&r).cuts, before);
    }
    rig_close(&r);
}

/* Records that stand there from the last time are passed over quickly, but not over a bound. */
Test(why, a_repetition_is_bound_too)
{
    rig r;
    open_plain(&r);
    deft_tensor *p = rig_range(&r, 4, 0);
    const deft_step_options o = { .size = sizeof o, .max_nodes = 10 };
    for (int i = 0; i < 6; i++) {
        const uint64_t cuts = rig_stats(&r).cuts;
        const deft_scope s = deft_step_begin_with(r.cx, i < 3 ? NULL : &o);
        deft_tensor *t = p;
        for (int k = 0; k < 40; k++) t = k % 2 ? deft_neg(t) : deft_add(t, p);
        deft_assign(p, t);
        OK(&r, deft_step_end(s));
        if (i < 3)
            cr_assert_eq(rig_stats(&r).cuts - cuts, 1);
        else
            cr_assert_geq(rig_stats(&r).cuts - cuts, 4);
    }
    rig_close(&r);
}

/* Adds n fresh tensors of 1 MiB up; their handles end at once. */
static float sum_of_fresh(rig *r, int n, const deft_step_options *o)
{
    static float big[1 << 18];
    deft_tensor *sum = deft_keep(deft_full(r->cx, DEFT_SHAPE(1 << 18), DEFT_F32, 0));
    OK(r, deft_eval(&sum, 1));
    const deft_scope s = deft_step_begin_with(r->cx, o);
    for (int i = 0; i < n; i++) {
        const deft_scope one = deft_scope_begin(r->cx);
        for (size_t k = 0; k < 1 << 18; k++) big[k] = 1;
        deft_assign(
            sum, deft_add(sum, deft_from(r->cx, DEFT_SHAPE(1 << 18), DEFT_F32, big, sizeof big)));
        OK(r, deft_scope_end(one));
    }
    OK(r, deft_step_end(s));
    const float v = rig_item(r, deft_slice(sum, DEFT_AT(77)));
    deft_drop(&sum);
    return v;
}

Test(why, max_bytes_of_a_step)
{
    rig r;
    open_plain(&r);
    cr_assert_eq(sum_of_fresh(&r, 12, NULL), 12);
    const uint64_t peak = rig_stats(&r).peak_bytes;
    cr_assert(peak >= 13u << 20, "without a bound all are held at once");
    explain(&r);
    cr_assert_eq(lines("cut_bytes"), 0);
    rig_close(&r);

    open_plain(&r);
    const deft_step_options o = { .size = sizeof o, .max_bytes = 3 << 20 };
    cr_assert_eq(sum_of_fresh(&r, 12, &o), 12);
    explain(&r);
    cr_assert_eq(lines("cut_bytes"), 3, "%s", told);
    cr_assert(strstr(told,
                     "cut forced at <site>: what only pending records hold reached max_bytes: "
                     "wanted at most 3145728 bytes, found 4194304 bytes in "),
              "%s", told);
    cr_assert(rig_stats(&r).peak_bytes < 9u << 20, "%llu",
              (unsigned long long)rig_stats(&r).peak_bytes);
    rig_close(&r);
}

/* What handles hold a cut would not give back. */
Test(why, max_bytes_is_of_what_nobody_else_holds)
{
    rig r;
    const deft_ctx_options c = { .size = sizeof c, .max_bytes = 1024 };
    open_with(&r, DEFT_TIER_INTERPRET, NULL, &c);
    deft_tensor *p = rig_range(&r, 4, 0), *big = rig_range(&r, 4096, 0);
    for (int i = 0; i < 50; i++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_assign(p, deft_add(p, deft_slice(big, DEFT_R(0, 4))));
        OK(&r, deft_step_end(s));
    }
    explain(&r);
    cr_assert_eq(lines("cut_bytes"), 0, "%s", told);
    rig_close(&r);
}

Test(why, max_latency_of_a_step)
{
    rig r;
    open_plain(&r);
    deft_tensor *p = rig_range(&r, 4, 0);
    deft_step_options o = { .size = sizeof o, .max_latency_ns = 1 };
    count_up(&r, p, 50, &o);
    expect_all(&r, p, 50);
    explain(&r);
    cr_assert(events("cut_latency") >= 4 && events("cut_latency") <= 7, "%s", told);
    cr_assert(strstr(told, "cut forced at <site>: recording reached max_latency_ns: wanted at most "
                           "1 ns, found "),
              "%s", told);
    count_up(&r, p, 50, &o); /* a repetition is looked at as well */
    explain(&r);
    cr_assert(events("cut_latency") >= 4 && events("cut_latency") <= 7, "%s", told);
    o.max_latency_ns = UINT64_C(1000000000000);
    count_up(&r, p, 50, &o);
    explain(&r);
    cr_assert_eq(lines("cut_latency"), 0);
    expect_all(&r, p, 150);
    rig_close(&r);
}

/* ---- steps that grow ---- */

/* A step that sums `n` old results: it holds one record more for each. */
static __attribute__((noinline)) void growing_step(const rig *r, deft_tensor *a, deft_tensor *out,
                                                   int n)
{
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *t = a;
    for (int i = 0; i < n; i++) t = deft_sqrt(deft_add(t, a));
    deft_assign(out, t);
    OK(r, deft_step_end(s));
}

Test(why, a_step_that_grows_is_told_once)
{
    rig r;
    open_plain(&r);
    deft_tensor *a = rig_range(&r, 4, 1), *out = rig_range(&r, 4, 1);
    for (int i = 1; i <= 8; i++) growing_step(&r, a, out, i);
    explain(&r);
    cr_assert_eq(lines("trace_grows"), 0, "eight steps have grown seven times");
    growing_step(&r, a, out, 9);
    explain(&r);
    cr_assert_str_eq(
        line("trace_grows"),
        "the step opened at <site> has grown 8 times in a row: wanted 17 records as in "
        "the step before, found 19; new is add f32[4] at <site>");
    for (int i = 10; i < 40; i++) growing_step(&r, a, out, i);
    explain(&r);
    cr_assert_eq(lines("trace_grows"), 0, "once per site");
    rig_close(&r);
}

Test(why, a_step_that_shrinks_now_and_then_does_not_grow)
{
    rig r;
    open_plain(&r);
    deft_tensor *a = rig_range(&r, 4, 1), *out = rig_range(&r, 4, 1);
    for (int i = 0; i < 40; i++) growing_step(&r, a, out, 1 + i % 8);
    for (int i = 0; i < 40; i++) growing_step(&r, a, out, 5);
    explain(&r);
    cr_assert_eq(lines("trace_grows"), 0);
    rig_close(&r);
}

/* ---- counters ---- */

Test(why, recomputed_counts_what_a_later_cut_computes_again)
{
    rig r;
    float v[4];
    open_plain(&r);
    deft_tensor *a = rig_range(&r, 4, 1);
    deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *e = deft_exp(a), *n = deft_neg(e); /* both computed by the first read */
    rig_read(&r, deft_mul(n, 2), v, 4);
    cr_assert_eq(rig_stats(&r).recomputed, 0);
    rig_read(&r, deft_mul(n, 3), v, 4); /* exp and neg again, but neither 2 nor 3 */
    cr_assert_eq(rig_stats(&r).recomputed, 2);
    explain(&r);
    cr_assert_str_eq(line("recomputed"),
                     "computed again at <site>: 2 records, first exp f32[4] of <site>: wanted a "
                     "stored value, found computed and not stored by an earlier cut");
    rig_read(&r, e, v, 4);
    cr_assert_eq(rig_stats(&r).recomputed, 3);
    rig_read(&r, deft_mul(n, 4), v, 4); /* e has its value now: neg alone */
    cr_assert_eq(rig_stats(&r).recomputed, 4);
    OK(&r, deft_scope_end(s));
    s = deft_scope_begin(r.cx); /* another epoch remembers nothing */
    rig_read(&r, deft_neg(deft_exp(a)), v, 4);
    cr_assert_eq(rig_stats(&r).recomputed, 4);
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

Test(why, recomputed_is_counted_on_every_repetition)
{
    rig r;
    float v[4];
    open_plain(&r);
    deft_tensor *p = rig_range(&r, 4, 1);
    for (int i = 1; i <= 20; i++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *e = deft_exp(deft_mul(p, 0.5));
        rig_read(&r, deft_neg(e), v, 4);
        deft_assign(p, deft_mul(e, 0.1)); /* mul and exp again */
        OK(&r, deft_step_end(s));
        cr_assert_eq(rig_stats(&r).recomputed, 2u * (unsigned)i, "step %d", i);
    }
    cr_assert(rig_stats(&r).cuts_matched > 20);
    explain(&r);
    cr_assert(lines("recomputed") <= 3, "%s", told);
    rig_close(&r);
}

/* More cuts in one epoch than a context knows, and a step given up between. */
Test(why, recomputed_survives_many_cuts_and_aborted_steps)
{
    rig r;
    float v[4];
    open_plain(&r);
    deft_tensor *a = rig_range(&r, 4, 1);
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *e = deft_exp(a);
    for (int i = 0; i < 40; i++) rig_read(&r, deft_add(e, i), v, 4);
    cr_assert_eq(rig_stats(&r).recomputed, 39);
    const deft_scope step = deft_step_begin(r.cx);
    rig_read(&r, deft_sub(deft_cos(e), 1), v, 4);
    cr_assert_eq(rig_stats(&r).recomputed, 40);
    deft_step_abort(step);
    deft_tensor *sine = deft_sin(e); /* stands where cos stood */
    rig_read(&r, deft_add(sine, 1), v, 4);
    cr_assert_eq(rig_stats(&r).recomputed, 41);
    rig_read(&r, deft_add(sine, 2), v, 4); /* exp and sin */
    cr_assert_eq(rig_stats(&r).recomputed, 43);
    OK(&r, deft_scope_end(s));
    rig_close(&r);
}

Test(why, syncs_are_reads_that_computed)
{
    rig r;
    float v[4];
    char text[64];
    deft_mapped m;
    open_plain(&r);
    deft_tensor *a = rig_range(&r, 4, 1), *b = deft_neg(a);
    rig_read(&r, a, v, 4); /* has its value */
    cr_assert_eq(rig_stats(&r).syncs, 0);
    rig_read(&r, b, v, 4);
    rig_read(&r, b, v, 4);
    cr_assert_eq(rig_stats(&r).syncs, 1);
    deft_tensor *const list[] = { deft_exp(a), deft_sin(a), b };
    OK(&r, deft_eval(list, 3));
    OK(&r, deft_eval(list, 3));
    cr_assert_eq(rig_stats(&r).syncs, 2);
    OK(&r, deft_map(deft_abs(a), &m));
    deft_unmap(&m);
    OK(&r, deft_format(deft_cos(a), text, sizeof text, NULL));
    cr_assert_eq(rig_item(&r, deft_sum(a, DEFT_ALL_AXES, 0)), 10);
    cr_assert_eq(rig_stats(&r).syncs, 5);
    const deft_scope s = deft_step_begin(r.cx);
    deft_assign(a, deft_neg(a));
    OK(&r, deft_step_end(s)); /* is no read */
    cr_assert_eq(rig_stats(&r).syncs, 5);
    rig_close(&r);
}

Test(why, plans_kernels_and_memory_are_counted)
{
    rig r;
    open_with(&r, DEFT_TIER_FULL, NULL, NULL);
    const bool compiles = has_compiler(&r);
    deft_tensor *p = rig_range(&r, 64, 1);
    deft_stats s = rig_stats(&r);
    cr_assert_eq(s.system_allocations, 1, "p's memory");
    cr_assert(s.plans_built == 0 && s.kernels_compiled == 0 && s.kernels_known == 0);
    for (int i = 1; i <= 10; i++) {
        const deft_scope step = deft_step_begin(r.cx);
        deft_assign(p, deft_add(deft_flip(p, DEFT_ALL_AXES), i)); /* needs memory of its own */
        OK(&r, deft_step_end(step));
        s = rig_stats(&r);
        cr_assert_eq(s.plans_built, 1);
        cr_assert_eq(s.plan_misses, 1);
        cr_assert_eq(s.plan_hits, (unsigned)i - 1);
        cr_assert_eq(s.guard_misses, 0);
        cr_assert_eq(s.kernels_known, 1);
        cr_assert_eq(s.kernels_compiled, compiles);
        cr_assert_eq(s.system_allocations, 2, "then they take turns");
        cr_assert_eq(s.cuts, (unsigned)i);
        cr_assert_eq(s.launches, (unsigned)i);
        cr_assert_eq(s.kernels_run, (unsigned)i);
        cr_assert_eq(s.interpreted, compiles ? 0u : (unsigned)i);
        cr_assert_eq(s.ops_recorded, 3u * (unsigned)i, "flip, the number, add");
        cr_assert(s.donated == 0 && s.cuts_unfused == 0);
    }
    rig_close(&r);
}

/* The fuser finds no sound plan only by a fault of its own: here a plan says so that is sound. */
Test(why, cuts_that_were_not_fused_are_counted)
{
    rig r;
    open_plain(&r);
    deft_tensor *x = rig_range(&r, 3, 1);
    for (unsigned i = 0; i < 4; i++) {
        RIG_EXPECT(&r, deft_neg(deft_exp(deft_mul(x, 0))), -1, -1, -1);
        cr_assert_eq(rig_stats(&r).plans_built, 1);
        cr_assert_eq(rig_stats(&r).cuts_unfused, i);
        ((df_plan *)(uintptr_t)df_plan_held(r.cx->last_plan))->retreated = true;
    }
    rig_close(&r);
}

static deft_status reads_its_input(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                   deft_tensor **out, size_t n_out, void *user)
{
    float v;
    const bool *const reads = user;
    (void)cx, (void)n_in, (void)n_out;
    if (*reads) {
        const deft_status st = deft_read(in[0], DEFT_F32, &v, sizeof v);
        if (st != DEFT_OK) return st;
    }
    out[0] = deft_neg(in[0]);
    return DEFT_OK;
}

/* Why the C code ran again is told when the reason is another than before. */
Test(why, reasons_of_a_capture_are_told_once_in_a_row)
{
    rig r;
    bool reads = true;
    open_plain(&r);
    deft_capture *c = deft_capture_create(r.cx, reads_its_input, &reads);
    deft_tensor *x = rig_range(&r, 1, 1), *y = rig_range(&r, 2, 1), *out;
    static const struct {
        bool reads, is_long;
        uint64_t lines;
    } calls[] = { { true, false, 1 },  { true, false, 0 }, { true, false, 0 },
                  { false, false, 1 }, { false, true, 1 }, { false, true, 0 } };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        reads = calls[i].reads;
        OK(&r, deft_capture_call(c, calls[i].is_long ? &y : &x, 1, &out, 1));
        deft_drop(&out);
        explain(&r);
        cr_assert_eq(lines("capture"), calls[i].lines, "call %zu: %s\n%s", i,
                     deft_capture_reason(c), told);
    }
    deft_capture_destroy(&c);
    rig_close(&r);
}

/* ---- reasons ---- */

Test(why, every_reason_renders)
{
    char text[1024], cut[64];
    for (int i = 0; i < DF_N_REASONS; i++) {
        const df_reason_info *const info = &df_reason_infos[i];
        df_event e;
        df_event_make(&e, (df_reason)i, 0, "FIELD", "EXPECTED", "FOUND");
        e.n = 777;
        const size_t n = df_event_text(&e, NULL, text, sizeof text);
        cr_assert(n == strlen(text) && n < 600, "%s", info->id);
        cr_assert(!strpbrk(text, "{}"), "%s", text);
        cr_assert(strstr(text, info->id) && strstr(text, info->advice), "%s", text);
        cr_assert(strstr(text, "FIELD") && strstr(text, "the start"), "field, site: %s", text);
        const bool first = i == DF_WHY_plan_first || i == DF_WHY_guard_miss;
        cr_assert(first || (strstr(text, "EXPECTED") && strstr(text, "FOUND")), "%s", text);
        cr_assert_eq(df_event_text(&e, NULL, cut, sizeof cut), n);
        cr_assert(strlen(cut) == sizeof cut - 1 && !strncmp(cut, text, sizeof cut - 1));
        cr_assert_eq(df_event_text(&e, NULL, NULL, 0), n);
    }
}

Test(why, texts_of_an_event_are_cut_to_fit)
{
    char longer[400], text[2048];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    df_event e;
    df_event_make(&e, DF_WHY_plan_miss, 0, longer, longer, longer);
    df_event_text(&e, NULL, text, sizeof text);
    cr_assert(strstr(text, "xxx...: wanted ") && strstr(text, "xxx..., found ") &&
                  strstr(text, "xxx.... Advice"),
              "%s", text);
    df_event_make(&e, DF_WHY_plan_miss, 0, NULL, longer, NULL);
    df_event_text(&e, NULL, text, sizeof text);
    cr_assert(strstr(text, ": : wanted xxx") && strstr(text, "..., found . Advice"), "%s", text);
}
