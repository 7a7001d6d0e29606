/* SPDX-License-Identifier: Apache-2.0
 *
 * deft stats: what the lines of a log add up to. One handler a type of line; each looks at one
 * record and adds to its process. Fields may be absent (an older library), and count as 0 then.
 */
#include "stats.h"

#include <string.h>
#include <unistd.h>

#include "cli.h"

static uint64_t count(const json_t *r, const char *key)
{
    const int64_t v = log_int(r, key, 0);
    return v > 0 ? (uint64_t)v : 0;
}

static void add(uint64_t *sum, const json_t *r, const char *key)
{
    *sum = tally_sum(*sum, count(r, key));
}

/* The call alone: "mlp.c:41 (train) in encoder" without its labels. */
static const char *call_of(const json_t *r, const char *key, char *out, size_t n)
{
    const char *const site = log_string(r, key);
    log_clean(out, n, site ? site : "unknown");
    char *const function_end = strstr(out, ") in ");
    char *const in = function_end ? function_end + 1 : strstr(out, " in ");
    if (in) *in = '\0';
    return out;
}

/* ---- types of lines ---- */

static void take_process(stats *s, stats_process *p, const json_t *r)
{
    const char *text;
    p->files++;
    p->is_forked |= log_bool(r, "forked");
    if (p->program) return;
    p->program = (text = log_string(r, "program")) ? tally_keep(&s->store, text) : NULL;
    p->compiler = (text = log_string(r, "compiler")) ? tally_keep(&s->store, text) : NULL;
    p->library_version =
        (text = log_string(r, "library_version")) ? tally_keep(&s->store, text) : NULL;
    p->process_id = log_int(r, "process_id", 0);
    p->parent_process_id = log_int(r, "parent_process_id", 0);
    p->threads = log_int(r, "threads", 0);
    p->clock_unix_ns = log_int(r, "clock_unix_ns", 0);
}

static bool is_ok(const json_t *r)
{
    const char *const status = log_string(r, "status");
    return !status || strcmp(status, "ok") == 0;
}

static void take_cut(stats *s, stats_process *p, const json_t *r)
{
    char call[TALLY_MAX_TEXT];
    const uint64_t run_ns = count(r, "run_ns");
    p->cuts++;
    p->matched += log_bool(r, "matched");
    p->hits += log_bool(r, "plan_hit");
    p->failed_cuts += !is_ok(r);
    add(&p->extract_ns, r, "extract_ns");
    add(&p->plan_ns, r, "plan_ns");
    add(&p->run_ns, r, "run_ns");
    add(&p->launches_ns, r, "launches_ns");
    add(&p->launches, r, "launches");
    add(&p->segments, r, "segments");
    add(&p->interpreted_segments, r, "interpreted_segments");
    add(&p->donated, r, "donated");
    add(&p->allocated_bytes, r, "allocated_bytes");
    const char *const reason = log_string(r, "reason");
    (void)tally_add(&p->cut_reasons, &s->store, reason ? reason : "unknown", run_ns);
    (void)tally_add(&p->source_lines, &s->store, call_of(r, "site", call, sizeof call), run_ns);
}

static void take_plan(stats *s, stats_process *p, const json_t *r)
{
    const char *const retreat = log_string(r, "retreat");
    p->plans++;
    add(&p->fused_ns, r, "simplify_ns");
    add(&p->fused_ns, r, "fuse_ns");
    add(&p->fused_ns, r, "prepare_ns");
    if (retreat) (void)tally_add(&p->retreats, &s->store, retreat, 0);
}

static void keep_slowest(stats_process *p, const json_t *r, uint64_t ns)
{
    size_t at = STATS_SLOWEST;
    const char *const ops = log_string(r, "ops"), *const tier = log_string(r, "tier");
    while (at > 0 && p->slowest[at - 1].ns < ns) at--;
    if (at == STATS_SLOWEST) return;
    stats_compile *const c = &p->slowest[at];
    memmove(c + 1, c, (STATS_SLOWEST - 1 - at) * sizeof *c);
    c->ns = ns;
    log_clean(c->ops, sizeof c->ops, ops ? ops : "");
    log_clean(c->tier, sizeof c->tier, tier ? tier : "");
    (void)call_of(r, "site", c->site, sizeof c->site);
}

/* compile_ns is of the whole module, and each of its kernels has a line. */
static void take_kernel(stats *s, stats_process *p, const json_t *r)
{
    const uint64_t n = count(r, "kernels_in_module");
    const uint64_t ns = count(r, "compile_ns") / (n ? n : 1);
    const char *const tier = log_string(r, "tier");
    p->kernels++;
    p->failed_kernels += !log_bool(r, "compiled");
    p->compile_ns = tally_sum(p->compile_ns, ns);
    add(&p->code_bytes, r, "code_bytes");
    (void)tally_add(&p->tiers, &s->store, tier ? tier : "unknown", ns);
    keep_slowest(p, r, ns);
}

static void take_why(stats *s, stats_process *p, const json_t *r)
{
    const char *const advice = log_string(r, "advice");
    tally_row *const row = tally_add(&p->why, &s->store, log_string(r, "reason"), 0);
    if (row->key && !row->note && advice) row->note = tally_keep(&s->store, advice);
}

static void take_miss(stats *s, stats_process *p, const json_t *r)
{
    (void)tally_add(&p->misses, &s->store, log_string(r, "kind"), 0);
}

static void take_error(stats *s, stats_process *p, const json_t *r)
{
    (void)tally_add(&p->errors, &s->store, log_string(r, "message"), 0);
}

static void take_launch(stats *s, stats_process *p, const json_t *r)
{
    (void)s;
    p->told_launches++;
    add(&p->told_launches_ns, r, "elapsed_ns");
    add(&p->told_launches_bytes, r, "bytes");
}

static void take_sync(stats *s, stats_process *p, const json_t *r)
{
    char call[TALLY_MAX_TEXT];
    const char *const site = call_of(r, "site", call, sizeof call);
    (void)tally_add(&p->syncs, &s->store, site, count(r, "records"));
}

static void take_recompute(stats *s, stats_process *p, const json_t *r)
{
    char call[TALLY_MAX_TEXT];
    const char *const site = call_of(r, "site", call, sizeof call);
    (void)tally_add(&p->recomputed, &s->store, site, count(r, "records"));
}

static void take_replay(stats *s, stats_process *p, const json_t *r)
{
    (void)tally_add(&p->replays, &s->store, log_string(r, "status"), 0);
}

static void take_graph(stats *s, stats_process *p, const json_t *r)
{
    char text[TALLY_MAX_TEXT];
    const char *const action = log_string(r, "action"), *const reason = log_string(r, "reason");
    add(&p->graph_hits, r, "hits");
    (void)snprintf(text, sizeof text, "%.100s: %.100s", action ? action : "unknown",
                   reason ? reason : "unknown");
    (void)tally_add(&p->graphs, &s->store, text, 0);
}

static void take_graph_tree(stats *s, stats_process *p, const json_t *r)
{
    (void)s;
    add(&p->graph_hits, r, "hits");
}

static void take_step_end(stats *s, stats_process *p, const json_t *r)
{
    const int64_t peak = log_int(r, "peak_bytes", 0);
    (void)s;
    p->steps++;
    p->live_bytes = log_int(r, "live_bytes", 0);
    p->system_allocations = log_int(r, "system_allocations", 0);
    if (peak > p->peak_bytes) p->peak_bytes = peak;
}

static void take_dropped(stats *s, stats_process *p, const json_t *r)
{
    (void)s;
    p->dropped_notes = log_int(r, "dropped_notes", 0);
    p->dropped_records = log_int(r, "dropped_records", 0);
}

static void take_end(stats *s, stats_process *p, const json_t *r)
{
    take_dropped(s, p, r);
    p->is_ended = true;
}

static bool take_line(void *user, const log_line *line)
{
    static const struct {
        const char *type;
        void (*take)(stats *s, stats_process *p, const json_t *record);
    } types[] = { { "cut", take_cut },           { "launch", take_launch },
                  { "step_end", take_step_end }, { "why", take_why },
                  { "sync", take_sync },         { "miss", take_miss },
                  { "kernel", take_kernel },     { "plan", take_plan },
                  { "replay", take_replay },     { "recompute", take_recompute },
                  { "graph", take_graph },       { "graph_tree", take_graph_tree },
                  { "error", take_error },       { "process", take_process },
                  { "dropped", take_dropped },   { "end", take_end } };
    stats *const s = user;
    stats_process *const p = &s->processes[line->process];
    if (p->lines++ == 0 || line->t_ns < p->first_ns) p->first_ns = line->t_ns;
    if (line->t_ns > p->last_ns) p->last_ns = line->t_ns;
    for (size_t i = 0; i < DF_LEN(types); i++) {
        if (strcmp(types[i].type, line->type) != 0) continue;
        types[i].take(s, p, line->record);
        break;
    }
    return true;
}

/* ---- all of it ---- */

static void sort(stats_process *p)
{
    tally_sort_by_count(&p->cut_reasons);
    tally_sort_by_total(&p->source_lines);
    tally_sort_by_count(&p->retreats);
    tally_sort_by_count(&p->misses);
    tally_sort_by_count(&p->tiers);
    tally_sort_by_count(&p->syncs);
    tally_sort_by_total(&p->recomputed);
    tally_sort_by_count(&p->replays);
    tally_sort_by_count(&p->graphs);
    tally_sort_by_count(&p->errors);
    tally_sort_by_count(&p->why);
}

int stats_collect(stats *s, log_set *logs)
{
    *s = (stats){ .n_processes = log_process_count(logs) };
    df_arena_init(&s->store.arena, &df_mem_system);
    s->processes = df_arena_zalloc(&s->store.arena, s->n_processes * sizeof *s->processes,
                                   _Alignof(stats_process));
    if (!s->processes) return cli_fail(CLI_INPUT, "stats: out of memory");
    for (uint32_t i = 0; i < s->n_processes; i++) s->processes[i].name = log_process_name(logs, i);
    const int code = log_read(logs, take_line, s, &s->faults);
    for (uint32_t i = 0; i < s->n_processes; i++) sort(&s->processes[i]);
    return code;
}

void stats_finish(stats *s)
{
    for (uint32_t i = 0; s->processes && i < s->n_processes; i++) {
        stats_process *const p = &s->processes[i];
        tally *const all[] = { &p->cut_reasons, &p->source_lines, &p->retreats,   &p->misses,
                               &p->tiers,       &p->syncs,        &p->recomputed, &p->replays,
                               &p->graphs,      &p->errors,       &p->why };
        for (size_t k = 0; k < DF_LEN(all); k++) tally_finish(all[k]);
    }
    df_arena_finish(&s->store.arena);
}

int cli_stats(int argc, char **argv)
{
    const char *path = NULL;
    bool is_json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            is_json = true;
        else if (argv[i][0] == '-' && argv[i][1])
            return cli_fail(CLI_USAGE, "stats: unknown option %s", argv[i]);
        else if (path)
            return cli_fail(CLI_USAGE, "stats: two logs: %s and %s", path, argv[i]);
        else
            path = argv[i];
    }
    if (!path) return cli_fail(CLI_USAGE, "stats: which folder or file?");
    log_set *logs = NULL;
    stats s = { 0 };
    int code = log_open(&logs, path);
    if (code != CLI_OK) return code;
    code = stats_collect(&s, logs);
    log_tell_faults(&s.faults);
    if (code == CLI_OK && !is_json)
        stats_print(&s, stdout, cli_has_colour(STDOUT_FILENO));
    else if (code == CLI_OK && !stats_print_json(&s, stdout))
        code = cli_fail(CLI_INPUT, "%s: out of memory", path);
    if (code == CLI_OK && s.faults.lines && s.faults.lines == s.faults.bad_lines)
        code = cli_fail(CLI_INPUT, "%s: no line of it is that of a log", path);
    stats_finish(&s);
    log_close(&logs);
    return code;
}
