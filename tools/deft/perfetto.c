/* SPDX-License-Identifier: Apache-2.0
 *
 * deft perfetto. Each process of the log is a process of the trace; its tracks are
 *
 *   compiles              one slice a module; several lanes, for modules are compiled beside others
 *   CONTEXT steps         steps and labels, and in between instants: syncs, misses, errors
 *   CONTEXT cuts          a cut and in it its phases; lanes, for the extraction of a cut may begin
 *                         while the one before still runs (submitted steps)
 *   CONTEXT launches      where the log has them
 *
 * and a counter of bytes. Slices of one track nest and none ends before it begins, whatever the log
 * holds: times of a track never go back, a slice that is closed closes those in it (a label may
 * outlive its step: it is opened again), and what is open at the end is closed. A line that tells
 * an end and how long it took is laid before its end.
 *
 * Written as it is read; what is kept is bounded by MAX_CONTEXTS and MAX_OPEN.
 */
#include "perfetto.h"

#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/vec.h"
#include "cli.h"
#include "out.h"

enum { MAX_CONTEXTS = 1024, MAX_OPEN = 64, LANES = 4, TRACKS = 16, NAME = 160 };

/* Tracks of a context; those of compiles are of the process, and stand in place of a context's. */
enum { TRACK_STEPS, TRACK_CUTS, TRACK_LAUNCHES = TRACK_CUTS + LANES, N_TRACKS };
_Static_assert((int)N_TRACKS <= (int)TRACKS, "thread numbers of contexts must not meet");

typedef struct slice {
    bool is_step;
    uint64_t serial; /* of a step */
    char name[NAME];
} slice;

typedef struct context {
    int64_t id;
    uint32_t index;         /* in its process */
    int64_t steps_at;       /* time of the latest begin or end */
    int64_t end[LANES + 1]; /* of the latest slice of each lane of cuts, and of launches */
    uint32_t named;         /* a bit for each track */
    uint32_t n_open;
    slice open[MAX_OPEN];
} context;

typedef struct process {
    DF_VEC(context *) contexts;
    context *latest; /* that was found: most lines follow one of their own */
    bool is_named;
    int64_t compiled[LANES]; /* end of the latest slice of each lane */
    uint32_t named;
    int64_t module_ns, module_left; /* of the module whose kernels are being told */
} process;

typedef struct writer {
    FILE *f;
    df_str s; /* the event that is being made */
    process *processes;
    uint32_t n_processes;
    bool has_event;
    bool is_short_of_memory;
    uint64_t left_out; /* lines of contexts that had no room */
    const log_line *line;
} writer;

/* ---- events ---- */

static void put_time(df_str *s, const char *key, int64_t ns)
{
    df_str_fmt(s, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void begin(writer *w, const char *phase, const char *name, uint32_t pid, uint32_t tid)
{
    w->s.n = 0;
    df_json_open(&w->s, NULL, '{');
    df_json_text(&w->s, "ph", phase);
    df_json_count(&w->s, "pid", pid);
    df_json_count(&w->s, "tid", tid);
    if (name) df_json_text(&w->s, "name", name);
}

static void end(writer *w)
{
    df_json_close(&w->s, '}');
    w->is_short_of_memory = !w->s.ok;
    if (!w->s.ok) return;
    fputs(w->has_event ? ",\n" : "\n", w->f);
    fwrite(w->s.at, 1, w->s.n, w->f);
    w->has_event = true;
}

/* Which fields of a line are arguments of its event. A log may have any key; df_json_text escapes
 * values alone. */
static bool is_argument(const char *key)
{
    static const char *const left_out[] = { "type",      "t_ns",        "context",
                                            "kernel_ir", "compiler_ir", "assembly" };
    for (size_t i = 0; i < DF_LEN(left_out); i++)
        if (strcmp(key, left_out[i]) == 0) return false;
    return strspn(key, "abcdefghijklmnopqrstuvwxyz_") == strlen(key);
}

static void put_fields(writer *w)
{
    const char *key;
    json_t *v;
    df_json_open(&w->s, "args", '{');
    json_object_foreach(w->line->record, key, v)
    {
        if (!is_argument(key)) continue;
        if (json_is_string(v)) df_json_text(&w->s, key, json_string_value(v));
        if (json_is_integer(v) && json_integer_value(v) >= 0)
            df_json_count(&w->s, key, (uint64_t)json_integer_value(v));
        if (json_is_boolean(v)) df_json_flag(&w->s, key, json_is_true(v));
    }
    df_json_close(&w->s, '}');
}

static void name_track(writer *w, uint32_t pid, uint32_t tid, const char *name)
{
    begin(w, "M", "thread_name", pid, tid);
    df_json_open(&w->s, "args", '{');
    df_json_text(&w->s, "name", name);
    df_json_close(&w->s, '}');
    end(w);
    begin(w, "M", "thread_sort_index", pid, tid);
    df_json_open(&w->s, "args", '{');
    df_json_count(&w->s, "sort_index", tid);
    df_json_close(&w->s, '}');
    end(w);
}

static void put_slice(writer *w, const char *name, uint32_t pid, uint32_t tid, int64_t from,
                      int64_t to, bool has_fields)
{
    begin(w, "X", name, pid, tid);
    put_time(&w->s, "ts", from);
    put_time(&w->s, "dur", to - from);
    if (has_fields) put_fields(w);
    end(w);
}

/* ---- processes, contexts, tracks ---- */

static uint32_t pid_of(const writer *w)
{
    return w->line->process + 1;
}

static void name_process(writer *w, const log_set *logs, uint32_t k)
{
    char name[NAME], text[2 * NAME];
    process *const p = &w->processes[k];
    const char *const program = log_string(w->line->record, "program");
    if (p->is_named) return;
    p->is_named = true;
    log_clean(name, sizeof name, program ? program : "unknown program");
    (void)snprintf(text, sizeof text, "%s (%.120s)", name, log_process_name(logs, k));
    begin(w, "M", "process_name", k + 1, 0);
    df_json_open(&w->s, "args", '{');
    df_json_text(&w->s, "name", text);
    df_json_close(&w->s, '}');
    end(w);
}

static context *add_context(writer *w, process *p, int64_t id)
{
    context *c = NULL;
    if (p->contexts.n < MAX_CONTEXTS) c = df_mem_zalloc(&df_mem_system, sizeof *c);
    if (c && !df_vec_push(&df_mem_system, &p->contexts, c)) {
        df_mem_free(&df_mem_system, c, sizeof *c);
        c = NULL;
    }
    if (!c) {
        w->left_out++;
        return NULL;
    }
    c->id = id;
    c->index = (uint32_t)p->contexts.n - 1;
    return c;
}

/* NULL: no room. */
static context *context_of(writer *w)
{
    process *const p = &w->processes[w->line->process];
    const int64_t id = log_int(w->line->record, "context", 0);
    if (p->latest && p->latest->id == id) return p->latest;
    context *c = NULL;
    for (size_t i = 0; i < p->contexts.n && !c; i++)
        if (p->contexts.at[i]->id == id) c = p->contexts.at[i];
    if (!c) c = add_context(w, p, id);
    if (c) p->latest = c;
    return c;
}

/* The thread number of a context's track, which it names first. */
static uint32_t track(writer *w, context *c, uint32_t which)
{
    const uint32_t tid = TRACKS * (c->index + 1) + which;
    if (c->named & 1u << which) return tid;
    c->named |= 1u << which;
    char name[NAME];
    (void)snprintf(name, sizeof name, "context %" PRId64 " %s", c->id,
                   which == TRACK_STEPS      ? "steps"
                   : which == TRACK_LAUNCHES ? "launches"
                   : which == TRACK_CUTS     ? "cuts"
                                             : "cuts beside");
    name_track(w, pid_of(w), tid, name);
    return tid;
}

/* The first lane that is free at from; when none is, the last, and from moves to where it is. */
static uint32_t lane(const int64_t *ends, int64_t *from)
{
    uint32_t k = 0;
    while (k + 1 < LANES && ends[k] > *from) k++;
    if (ends[k] > *from) *from = ends[k];
    return k;
}

static int64_t before(int64_t t, int64_t ns)
{
    return ns < t ? t - ns : 0;
}

/* ---- steps and labels ---- */

static int64_t step_time(context *c, int64_t t)
{
    if (t > c->steps_at) c->steps_at = t;
    return c->steps_at;
}

static void put_begin(writer *w, context *c, const slice *s, int64_t t, bool has_fields)
{
    begin(w, "B", s->name, pid_of(w), track(w, c, TRACK_STEPS));
    put_time(&w->s, "ts", t);
    if (has_fields) put_fields(w);
    end(w);
}

static void put_end(writer *w, context *c, int64_t t)
{
    begin(w, "E", NULL, pid_of(w), track(w, c, TRACK_STEPS));
    put_time(&w->s, "ts", t);
    end(w);
}

static void open_slice(writer *w, context *c, const slice *s, int64_t t)
{
    if (c->n_open == MAX_OPEN) return;
    put_begin(w, c, s, step_time(c, t), true);
    c->open[c->n_open++] = *s;
}

/* Closes open[k]: those in it are closed too and opened again. */
static void close_slice(writer *w, context *c, uint32_t k, int64_t t)
{
    const int64_t now = step_time(c, t);
    for (uint32_t i = c->n_open; i > k; i--) put_end(w, c, now);
    memmove(&c->open[k], &c->open[k + 1], (c->n_open - k - 1) * sizeof *c->open);
    c->n_open--;
    for (uint32_t i = k; i < c->n_open; i++) put_begin(w, c, &c->open[i], now, false);
}

/* Closes the innermost labels until no more than n are open. */
static void keep_labels(writer *w, context *c, int64_t n, int64_t t)
{
    int64_t n_labels = 0;
    for (uint32_t i = 0; i < c->n_open; i++) n_labels += !c->open[i].is_step;
    for (uint32_t i = c->n_open; i > 0 && n_labels > n; i--) {
        if (c->open[i - 1].is_step) continue;
        close_slice(w, c, i - 1, t);
        n_labels--;
    }
}

static void take_step_begin(writer *w, context *c, const json_t *r)
{
    const char *const site = log_string(r, "site");
    slice s = { .is_step = true, .serial = (uint64_t)log_int(r, "serial", 0) };
    (void)snprintf(s.name, sizeof s.name, "step");
    if (site) log_clean(s.name, sizeof s.name, site);
    open_slice(w, c, &s, w->line->t_ns);
}

static void put_counter(writer *w, const json_t *r)
{
    begin(w, "C", "memory", pid_of(w), 0);
    put_time(&w->s, "ts", w->line->t_ns);
    df_json_open(&w->s, "args", '{');
    df_json_count(&w->s, "live bytes", (uint64_t)log_int(r, "live_bytes", 0));
    df_json_count(&w->s, "cached bytes", (uint64_t)log_int(r, "cached_bytes", 0));
    df_json_close(&w->s, '}');
    end(w);
}

static void take_step_end(writer *w, context *c, const json_t *r)
{
    const uint64_t serial = (uint64_t)log_int(r, "serial", 0);
    put_counter(w, r);
    for (uint32_t i = c->n_open; i > 0; i--) {
        if (!c->open[i - 1].is_step || c->open[i - 1].serial != serial) continue;
        close_slice(w, c, i - 1, w->line->t_ns);
        return;
    }
}

static void take_label_begin(writer *w, context *c, const json_t *r)
{
    char name[2 * NAME];
    slice s = { 0 };
    const char *const site = log_string(r, "site");
    keep_labels(w, c, log_int(r, "depth", 1) - 1, w->line->t_ns);
    log_clean(name, sizeof name, site ? site : "label");
    const char *const function_end = strstr(name, ") in ");
    const char *const in = function_end ? function_end + 1 : strstr(name, " in ");
    log_clean(s.name, sizeof s.name, in ? in + 4 : name);
    open_slice(w, c, &s, w->line->t_ns);
}

static void take_label_end(writer *w, context *c, const json_t *r)
{
    keep_labels(w, c, log_int(r, "depth", 0), w->line->t_ns);
}

static void take_instant(writer *w, context *c, const json_t *r)
{
    (void)r;
    begin(w, "i", w->line->type, pid_of(w), track(w, c, TRACK_STEPS));
    put_time(&w->s, "ts", w->line->t_ns);
    df_json_text(&w->s, "s", "t");
    put_fields(w);
    end(w);
}

static void take_graph(writer *w, context *c, const json_t *r)
{
    char name[NAME];
    take_instant(w, c, r);
    (void)snprintf(name, sizeof name, "graph pool of context %" PRId64 ", cuda:%" PRId64, c->id,
                   log_int(r, "device", 0));
    begin(w, "C", name, pid_of(w), 0);
    put_time(&w->s, "ts", w->line->t_ns);
    df_json_open(&w->s, "args", '{');
    df_json_count(&w->s, "pool bytes", (uint64_t)log_int(r, "pool_bytes", 0));
    df_json_count(&w->s, "held bytes", (uint64_t)log_int(r, "held_bytes", 0));
    df_json_close(&w->s, '}');
    end(w);
}

/* ---- work ---- */

static void take_cut(writer *w, context *c, const json_t *r)
{
    const int64_t extract = log_int(r, "extract_ns", 0), plan = log_int(r, "plan_ns", 0);
    const int64_t run = log_int(r, "run_ns", 0), t = w->line->t_ns;
    const char *const reason = log_string(r, "reason"), *const site = log_string(r, "site");
    char name[NAME], text[2 * NAME];
    int64_t from = before(before(before(t, run), plan), extract);
    const uint32_t k = lane(c->end, &from);
    const int64_t to = t > from ? t : from;
    int64_t run_from = before(to, run), plan_from = before(run_from, plan);
    if (run_from < from) run_from = from;
    if (plan_from < from) plan_from = from;
    c->end[k] = to;
    (void)snprintf(text, sizeof text, "%.40s %.200s", reason ? reason : "cut", site ? site : "");
    const uint32_t tid = track(w, c, TRACK_CUTS + k), pid = pid_of(w);
    put_slice(w, log_clean(name, sizeof name, text), pid, tid, from, to, true);
    put_slice(w, "extract", pid, tid, from, plan_from, false);
    put_slice(w, "plan", pid, tid, plan_from, run_from, false);
    put_slice(w, "run", pid, tid, run_from, to, false);
}

static void take_launch(writer *w, context *c, const json_t *r)
{
    char name[NAME];
    int64_t *const at = &c->end[LANES];
    int64_t from = before(w->line->t_ns, log_int(r, "elapsed_ns", 0));
    if (from < *at) from = *at;
    if (w->line->t_ns > *at) *at = w->line->t_ns;
    const char *const plan = log_string(r, "plan");
    (void)snprintf(name, sizeof name, "launch %" PRId64 " of %.50s", log_int(r, "index", 0),
                   plan ? plan : "a plan");
    put_slice(w, name, pid_of(w), track(w, c, TRACK_LAUNCHES), from, *at, true);
}

/* compile_ns is of the module, of which each kernel has a line: only the first is a slice. */
static bool is_in_module(process *p, const json_t *r)
{
    const int64_t ns = log_int(r, "compile_ns", 0);
    const bool is_in = p->module_left > 0 && p->module_ns == ns;
    p->module_left = is_in ? p->module_left - 1 : log_int(r, "kernels_in_module", 1) - 1;
    p->module_ns = ns;
    return is_in;
}

static void take_kernel(writer *w, context *c, const json_t *r)
{
    char name[NAME], text[2 * NAME];
    process *const p = &w->processes[w->line->process];
    int64_t from = before(w->line->t_ns, log_int(r, "compile_ns", 0));
    (void)c;
    if (is_in_module(p, r)) return;
    const uint32_t k = lane(p->compiled, &from), pid = pid_of(w), tid = 1 + k;
    p->compiled[k] = w->line->t_ns > from ? w->line->t_ns : from;
    if (!(p->named & 1u << k)) name_track(w, pid, tid, k ? "compiles beside" : "compiles");
    p->named |= 1u << k;
    const char *const tier = log_string(r, "tier"), *const ops = log_string(r, "ops");
    (void)snprintf(text, sizeof text, "%.20s: %.200s", tier ? tier : "", ops ? ops : "");
    put_slice(w, log_clean(name, sizeof name, text), pid, tid, from, p->compiled[k], true);
}

/* ---- all of it ---- */

typedef struct pass {
    writer w;
    log_set *logs;
} pass;

static bool take_line(void *user, const log_line *line)
{
    static const struct {
        const char *type;
        void (*take)(writer *w, context *c, const json_t *record);
    } types[] = { { "cut", take_cut },
                  { "launch", take_launch },
                  { "step_begin", take_step_begin },
                  { "step_end", take_step_end },
                  { "label_begin", take_label_begin },
                  { "label_end", take_label_end },
                  { "kernel", take_kernel },
                  { "sync", take_instant },
                  { "miss", take_instant },
                  { "error", take_instant },
                  { "replay", take_instant },
                  { "recompute", take_instant },
                  { "graph", take_graph } };
    pass *const p = user;
    writer *const w = &p->w;
    w->line = line;
    if (strcmp(line->type, "process") == 0) name_process(w, p->logs, line->process);
    for (size_t i = 0; i < DF_LEN(types); i++) {
        if (strcmp(types[i].type, line->type) != 0) continue;
        context *const c = context_of(w);
        if (c) types[i].take(w, c, line->record);
        break;
    }
    return !w->is_short_of_memory && !ferror(w->f);
}

static void close_all(writer *w)
{
    for (uint32_t k = 0; k < w->n_processes; k++) {
        process *const p = &w->processes[k];
        const log_line line = { .process = k };
        w->line = &line;
        for (size_t i = 0; i < p->contexts.n; i++) {
            context *const c = p->contexts.at[i];
            for (; c->n_open; c->n_open--) put_end(w, c, c->steps_at);
            df_mem_free(&df_mem_system, c, sizeof *c);
        }
        df_vec_finish(&df_mem_system, &p->contexts);
    }
}

int perfetto_write(log_set *logs, FILE *f, log_faults *faults)
{
    pass p = { .w = { .f = f, .n_processes = log_process_count(logs) }, .logs = logs };
    const size_t bytes = p.w.n_processes * sizeof *p.w.processes;
    p.w.processes = df_mem_zalloc(&df_mem_system, bytes);
    if (!p.w.processes) return cli_fail(CLI_INPUT, "perfetto: out of memory");
    df_str_init(&p.w.s, &df_mem_system);
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", f);
    int code = log_read(logs, take_line, &p, faults);
    close_all(&p.w);
    fputs("\n]}\n", f);
    if (p.w.is_short_of_memory) code = cli_fail(CLI_INPUT, "perfetto: out of memory");
    if (p.w.left_out)
        (void)cli_fail(CLI_OK, "%llu lines are left out: no more than %d contexts are shown",
                       (unsigned long long)p.w.left_out, (int)MAX_CONTEXTS);
    df_str_finish(&p.w.s);
    df_mem_free(&df_mem_system, p.w.processes, bytes);
    return code;
}

int cli_perfetto(int argc, char **argv)
{
    const char *path, *out;
    log_set *logs = NULL;
    log_faults faults;
    out_file o;
    int code = out_arguments(argc, argv, &path, &out);
    if (code == CLI_OK) code = log_open(&logs, path);
    if (code != CLI_OK) return code;
    code = out_open(&o, out);
    if (code == CLI_OK) {
        code = perfetto_write(logs, o.f, &faults);
        log_tell_faults(&faults);
        const int written = out_close(&o, code == CLI_OK);
        if (code == CLI_OK) code = written;
    }
    log_close(&logs);
    return code;
}
