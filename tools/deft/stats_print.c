/* SPDX-License-Identifier: Apache-2.0
 *
 * The summary of a log as text and as JSON: see stats.h. Texts of the log are printable already
 * (tally.h); paths are cleaned here. What did not happen has no line.
 */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "stats.h"

enum { MOST_ROWS = 10, TIME = 32 };

/* ---- text ---- */

static const char *time_of(char text[TIME], uint64_t ns)
{
    static const struct {
        double ns;
        const char *unit;
    } units[] = { { 1e9, "s" }, { 1e6, "ms" }, { 1e3, "us" } };
    size_t i = 0;
    while (i + 1 < DF_LEN(units) && (double)ns < units[i].ns) i++;
    (void)snprintf(text, TIME, "%.*f %s", ns ? 3 : 0, (double)ns / units[i].ns, units[i].unit);
    return text;
}

static const char *size_of(char text[TIME], uint64_t bytes)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB" };
    double n = (double)bytes;
    size_t i = 0;
    for (; i + 1 < DF_LEN(units) && n >= 1024; i++) n /= 1024;
    (void)snprintf(text, TIME, "%.*f %s", i ? 1 : 0, n, units[i]);
    return text;
}

/* "read 12, step_end 3" */
static void put_counts(FILE *f, const tally *t)
{
    for (size_t i = 0; i < t->rows.n && i < MOST_ROWS; i++)
        fprintf(f, "%s%s %" PRIu64, i ? ", " : "", t->rows.at[i].key, t->rows.at[i].count);
    if (t->rows.n > MOST_ROWS || t->rest.count) fputs(", ...", f);
}

/* "name   count  text" for each of the first rows. */
static void put_rows(FILE *f, const char *name, const tally *t, const char *unit)
{
    for (size_t i = 0; i < t->rows.n && i < MOST_ROWS; i++) {
        const tally_row *const r = &t->rows.at[i];
        fprintf(f, "  %-12s%" PRIu64 " x %s", i ? "" : name, r->count, r->key);
        if (unit) fprintf(f, ": %" PRIu64 " %s", r->total, unit);
        fputc('\n', f);
    }
    if (t->rows.n > MOST_ROWS || t->rest.count)
        fprintf(f, "  %-12s... and %" PRIu64 " others\n", "",
                (uint64_t)(t->rows.n > MOST_ROWS ? t->rows.n - MOST_ROWS : 0) + t->rest.count);
}

static void put_head(FILE *f, const stats_process *p, bool has_colour)
{
    char name[512], time[TIME];
    fprintf(f, "%s%s%s: %s", has_colour ? "\033[1m" : "",
            p->program ? p->program : "unknown program", has_colour ? "\033[0m" : "",
            log_clean(name, sizeof name, p->name));
    fprintf(f, "\n  %-12s%" PRId64 "%s, %s told in %" PRIu64 " lines%s\n", "process", p->process_id,
            p->is_forked ? ", forked" : "", time_of(time, (uint64_t)(p->last_ns - p->first_ns)),
            p->lines, p->is_ended ? "" : ", not ended");
    if (p->library_version)
        fprintf(f, "  %-12s%s, %s, %" PRId64 " threads\n", "deft", p->library_version,
                p->compiler ? p->compiler : "unknown compiler", p->threads);
}

static void put_cuts(FILE *f, const stats_process *p)
{
    char a[TIME], b[TIME], c[TIME], d[TIME];
    if (!p->cuts) return;
    fprintf(f, "  %-12s%" PRIu64 ": ", "cuts", p->cuts);
    put_counts(f, &p->cut_reasons);
    fprintf(f, "\n  %-12s%" PRIu64 " had a plan, %" PRIu64 " had none, %" PRIu64 " as before", "",
            p->hits, p->cuts - p->hits, p->matched);
    if (p->failed_cuts) fprintf(f, ", %" PRIu64 " failed", p->failed_cuts);
    fprintf(f, "\n  %-12s%s: extract %s, plan %s, run %s", "time",
            time_of(a, tally_sum(p->extract_ns, tally_sum(p->plan_ns, p->run_ns))),
            time_of(b, p->extract_ns), time_of(c, p->plan_ns), time_of(d, p->run_ns));
    fprintf(f, " (in launches %s)\n", time_of(a, p->launches_ns));
    fprintf(f, "  %-12s%" PRIu64 " of %" PRIu64 " segments, %" PRIu64 " interpreted\n", "launches",
            p->launches, p->segments, p->interpreted_segments);
    if (p->told_launches)
        fprintf(f, "  %-12s%" PRIu64 " told: %s, %s\n", "", p->told_launches,
                time_of(a, p->told_launches_ns), size_of(b, p->told_launches_bytes));
}

static void put_memory(FILE *f, const stats_process *p)
{
    char a[TIME], b[TIME];
    if (p->cuts)
        fprintf(f, "  %-12s%s allocated, %" PRIu64 " results in place\n", "memory",
                size_of(a, p->allocated_bytes), p->donated);
    if (p->steps)
        fprintf(f, "  %-12s%" PRIu64 ", at the last %s live, at most %s\n", "steps", p->steps,
                size_of(a, (uint64_t)p->live_bytes), size_of(b, (uint64_t)p->peak_bytes));
}

static void put_compiles(FILE *f, const stats_process *p)
{
    char a[TIME];
    if (p->plans)
        fprintf(f, "  %-12s%" PRIu64 " made in %s\n", "plans", p->plans, time_of(a, p->fused_ns));
    put_rows(f, "misses", &p->misses, NULL);
    put_rows(f, "retreats", &p->retreats, NULL);
    if (!p->kernels) return;
    fprintf(f, "  %-12s%" PRIu64 " kernels in %s: ", "compiles", p->kernels,
            time_of(a, p->compile_ns));
    put_counts(f, &p->tiers);
    if (p->failed_kernels) fprintf(f, ", %" PRIu64 " failed", p->failed_kernels);
    fputc('\n', f);
    for (size_t i = 0; i < STATS_SLOWEST && p->slowest[i].ns; i++)
        fprintf(f, "  %-12s%s %s: %s, %s\n", i ? "" : "slowest", p->slowest[i].tier,
                time_of(a, p->slowest[i].ns), p->slowest[i].site, p->slowest[i].ops);
}

static void put_lines(FILE *f, const stats_process *p)
{
    char a[TIME];
    const tally *const t = &p->source_lines;
    for (size_t i = 0; i < t->rows.n && i < MOST_ROWS; i++)
        fprintf(f, "  %-12s%s, %" PRIu64 " x %s\n", i ? "" : "run time",
                time_of(a, t->rows.at[i].total), t->rows.at[i].count, t->rows.at[i].key);
}

static void put_why(FILE *f, const stats_process *p)
{
    put_rows(f, "errors", &p->errors, NULL);
    for (size_t i = 0; i < p->why.rows.n; i++) {
        const tally_row *const r = &p->why.rows.at[i];
        fprintf(f, "  %-12s%" PRIu64 " x %s", i ? "" : "why", r->count, r->key);
        fprintf(f, "%s%s\n", r->note ? ": " : "", r->note ? r->note : "");
        if (i + 1 == 4 * MOST_ROWS) break;
    }
    if (p->dropped_notes || p->dropped_records)
        fprintf(f, "  %-12s%" PRId64 " notes and %" PRId64 " records: the numbers are too low\n",
                "dropped", p->dropped_notes, p->dropped_records);
}

static void put_graphs(FILE *f, const stats_process *p)
{
    if (p->graph_hits)
        fprintf(f, "  %-12s%" PRIu64 " runs replayed as they stood\n", "graphs", p->graph_hits);
    put_rows(f, p->graph_hits ? "" : "graphs", &p->graphs, NULL);
}

void stats_print(const stats *s, FILE *f, bool has_colour)
{
    for (uint32_t i = 0; i < s->n_processes; i++) {
        const stats_process *const p = &s->processes[i];
        put_head(f, p, has_colour);
        put_cuts(f, p);
        put_memory(f, p);
        put_compiles(f, p);
        put_rows(f, "syncs", &p->syncs, "records");
        put_rows(f, "recomputed", &p->recomputed, "records");
        put_rows(f, "replays", &p->replays, NULL);
        put_graphs(f, p);
        put_lines(f, p);
        put_why(f, p);
    }
}

/* ---- JSON ---- */

static void put_tally(df_str *s, const char *key, const tally *t, const char *total)
{
    df_json_open(s, key, '[');
    for (size_t i = 0; i < t->rows.n; i++) {
        const tally_row *const r = &t->rows.at[i];
        df_json_open(s, NULL, '{');
        df_json_text(s, "key", r->key);
        df_json_count(s, "count", r->count);
        if (total) df_json_count(s, total, r->total);
        if (r->note) df_json_text(s, "advice", r->note);
        df_json_close(s, '}');
    }
    if (t->rest.count) {
        df_json_open(s, NULL, '{');
        df_json_text(s, "key", NULL);
        df_json_count(s, "count", t->rest.count);
        if (total) df_json_count(s, total, t->rest.total);
        df_json_close(s, '}');
    }
    df_json_close(s, ']');
}

static void put_numbers(df_str *s, const stats_process *p)
{
    const struct {
        const char *key;
        uint64_t n;
    } numbers[] = { { "process_id", (uint64_t)p->process_id },
                    { "parent_process_id", (uint64_t)p->parent_process_id },
                    { "threads", (uint64_t)p->threads },
                    { "clock_unix_ns", (uint64_t)p->clock_unix_ns },
                    { "files", p->files },
                    { "lines", p->lines },
                    { "elapsed_ns", (uint64_t)(p->last_ns - p->first_ns) },
                    { "cuts", p->cuts },
                    { "matched", p->matched },
                    { "plan_hits", p->hits },
                    { "plan_misses", p->cuts - p->hits },
                    { "failed_cuts", p->failed_cuts },
                    { "extract_ns", p->extract_ns },
                    { "plan_ns", p->plan_ns },
                    { "run_ns", p->run_ns },
                    { "launches_ns", p->launches_ns },
                    { "launches", p->launches },
                    { "segments", p->segments },
                    { "interpreted_segments", p->interpreted_segments },
                    { "donated", p->donated },
                    { "allocated_bytes", p->allocated_bytes },
                    { "steps", p->steps },
                    { "live_bytes", (uint64_t)p->live_bytes },
                    { "peak_bytes", (uint64_t)p->peak_bytes },
                    { "system_allocations", (uint64_t)p->system_allocations },
                    { "plans", p->plans },
                    { "plans_ns", p->fused_ns },
                    { "kernels", p->kernels },
                    { "failed_kernels", p->failed_kernels },
                    { "compile_ns", p->compile_ns },
                    { "code_bytes", p->code_bytes },
                    { "told_launches", p->told_launches },
                    { "told_launches_ns", p->told_launches_ns },
                    { "told_launches_bytes", p->told_launches_bytes },
                    { "graph_hits", p->graph_hits },
                    { "dropped_notes", (uint64_t)p->dropped_notes },
                    { "dropped_records", (uint64_t)p->dropped_records } };
    for (size_t i = 0; i < DF_LEN(numbers); i++) df_json_count(s, numbers[i].key, numbers[i].n);
}

static void put_slowest(df_str *s, const stats_process *p)
{
    df_json_open(s, "slowest", '[');
    for (size_t i = 0; i < STATS_SLOWEST && p->slowest[i].ns; i++) {
        df_json_open(s, NULL, '{');
        df_json_text(s, "tier", p->slowest[i].tier);
        df_json_count(s, "compile_ns", p->slowest[i].ns);
        df_json_text(s, "site", p->slowest[i].site);
        df_json_text(s, "ops", p->slowest[i].ops);
        df_json_close(s, '}');
    }
    df_json_close(s, ']');
}

static void put_process(df_str *s, const stats_process *p)
{
    df_json_open(s, NULL, '{');
    df_json_text(s, "log", p->name);
    df_json_text(s, "program", p->program);
    df_json_text(s, "library_version", p->library_version);
    df_json_text(s, "compiler", p->compiler);
    df_json_flag(s, "forked", p->is_forked);
    df_json_flag(s, "ended", p->is_ended);
    put_numbers(s, p);
    put_slowest(s, p);
    put_tally(s, "cut_reasons", &p->cut_reasons, "run_ns");
    put_tally(s, "source_lines", &p->source_lines, "run_ns");
    put_tally(s, "misses", &p->misses, NULL);
    put_tally(s, "retreats", &p->retreats, NULL);
    put_tally(s, "tiers", &p->tiers, "compile_ns");
    put_tally(s, "syncs", &p->syncs, "records");
    put_tally(s, "recomputed", &p->recomputed, "records");
    put_tally(s, "replays", &p->replays, NULL);
    put_tally(s, "graphs", &p->graphs, NULL);
    put_tally(s, "errors", &p->errors, NULL);
    put_tally(s, "why", &p->why, NULL);
    df_json_close(s, '}');
}

bool stats_print_json(const stats *st, FILE *f)
{
    df_str s;
    df_str_init(&s, &df_mem_system);
    df_json_open(&s, NULL, '{');
    df_json_count(&s, "lines", st->faults.lines);
    df_json_count(&s, "bad_lines", st->faults.bad_lines);
    df_json_flag(&s, "newer_schema", st->faults.is_newer_schema);
    df_json_open(&s, "processes", '[');
    for (uint32_t i = 0; i < st->n_processes; i++) put_process(&s, &st->processes[i]);
    df_json_close(&s, ']');
    df_json_close(&s, '}');
    df_str_putc(&s, '\n');
    const bool ok = s.ok;
    if (ok) fwrite(s.at, 1, s.n, f);
    df_str_finish(&s);
    return ok;
}
