/* SPDX-License-Identifier: Apache-2.0
 *
 * From lines to the object of a report: see model.h.
 *
 * Tables are JSON arrays; an object beside each finds the row of a name. What is counted often,
 * launches and cuts of a plan, is in C and joined with the rows at the end. Times of a process go
 * to buckets, whose width doubles when time outgrows them.
 *
 * Why this file is long: a few lines for each type of line of a log, all on the same tables.
 */
#include "model.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "parts.h"
#include "steps.h"
#include "trees.h"
#include "deft/status.h"

enum {
    N_BUCKETS = 240,
    MAX_LAUNCHES = 1 << 20, /* that are counted one by one, of all plans together */
    MAX_WORD = 2048,        /* bytes of a name, a site, a sentence */
    VALUE_BYTES = 64,       /* about what a small value of JSON takes */
};

typedef enum series { S_EXTRACT, S_PLAN, S_BIND, S_LAUNCHES, S_COMPILE, N_SERIES } series;
static const char *const series_name[N_SERIES] = { "extract", "plan", "bind", "launches",
                                                   "compile" };

typedef struct totals {
    uint64_t cuts, plan_hits, matched, failed, launches, segments, interpreted_segments, results,
        donated, allocated_bytes, max_allocated_bytes, extract_ns, plan_ns, run_ns, launches_ns,
        records;
} totals;

typedef struct launch_stat {
    uint64_t n, ns, least_ns, most_ns, bytes, flops, forked, last_bytes, last_flops;
} launch_stat;

typedef struct plan_stat {
    totals t;
    launch_stat *launch; /* of all blocks, one after the other */
    uint32_t n_launches, n_blocks;
    uint32_t *block; /* the first of each, and the end */
    size_t text_bytes;
} plan_stat;

typedef struct process {
    json_t *about;                                /* its row */
    int64_t base_ns, first_ns, last_ns, width_ns; /* base: where the first bucket begins */
    uint64_t time[N_SERIES][N_BUCKETS], live[N_BUCKETS], peak_bytes, steps, lines, syncs;
    totals t;
} process;

/* A table: rows, the row of each name, and how many there would be without a bound. */
typedef struct table {
    json_t *rows, *index;
    uint64_t n;
} table;

struct report_model {
    report_bounds max;
    bool ok;
    process *process;
    uint32_t n_processes;
    table sites, plans, kernels, whys, syncs, recomputes, replays;
    table cuts, misses, errors; /* events: no names */
    json_t *reasons;
    plan_stat *stat; /* per plan */
    size_t n_stats, room_for_stats;
    size_t plan_bytes, kernel_bytes, n_launches;
    uint64_t plans_without_text, kernels_without_code;
    report_trees *trees;
    report_steps *steps;
};

/* ---- JSON ---- */

static void put(report_model *m, json_t *object, const char *key, DEFT_OWN json_t *value)
{
    if (json_object_set_new(object, key, value) != 0) m->ok = false;
}

static void put_int(report_model *m, json_t *object, const char *key, uint64_t n)
{
    put(m, object, key, json_integer((json_int_t)(n > INT64_MAX ? INT64_MAX : n)));
}

static void append(report_model *m, json_t *array, DEFT_OWN json_t *value)
{
    if (json_array_append_new(array, value) != 0) m->ok = false;
}

/* A text, its end cut off when it is too long. */
static json_t *cut(const char *text)
{
    size_t n = strlen(text);
    if (n <= MAX_WORD) return json_string(text);
    for (n = MAX_WORD; n && ((unsigned char)text[n] & 0xc0) == 0x80;) n--;
    return json_sprintf("%.*s ...", (int)n, text);
}

/* The fields of list, "a b c", as they are in record; null where there is none. */
static void copy(report_model *m, json_t *to, const json_t *record, const char *list)
{
    char key[64];
    for (size_t n; *list; list += n + (list[n] == ' ')) {
        n = strcspn(list, " ");
        snprintf(key, sizeof key, "%.*s", (int)n, list);
        json_t *const v = json_object_get(record, key);
        const char *const text = json_string_value(v);
        put(m, to, key, text ? cut(text) : v ? json_incref(v) : json_null());
    }
}

/* The same of long texts, packed. Bytes that are held for them. */
static size_t copy_texts(report_model *m, json_t *to, const json_t *record, const char *const *keys,
                         size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *const text = report_pack(json_object_get(record, keys[i]));
        const json_t *const packed = json_object_get(text, "z");
        bytes += json_string_length(packed ? packed : text);
        put(m, to, keys[i], text);
    }
    return bytes;
}

static uint64_t count_of(const json_t *record, const char *key)
{
    const int64_t n = log_int(record, key, 0);
    return n > 0 ? (uint64_t)n : 0;
}

static uint64_t add_up(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* ---- tables ---- */

static void table_init(report_model *m, table *t)
{
    t->rows = json_array();
    t->index = json_object();
    m->ok &= t->rows && t->index;
}

static void table_finish(table *t)
{
    json_decref(t->rows);
    json_decref(t->index);
}

/* The row of a name, -1 when there is none. */
static int64_t find(const table *t, const char *name)
{
    return json_is_integer(json_object_get(t->index, name))
               ? (int64_t)json_integer_value(json_object_get(t->index, name))
               : -1;
}

/* Makes it the name's row; -1: there are too many. */
static int64_t add_row(report_model *m, table *t, const char *name, DEFT_OWN json_t *row)
{
    t->n++;
    if (json_array_size(t->rows) >= m->max.n_rows) {
        json_decref(row);
        return -1;
    }
    const size_t at = json_array_size(t->rows);
    append(m, t->rows, row);
    put_int(m, t->index, name, at);
    return m->ok ? (int64_t)at : -1;
}

/* Keeps the newest: twice as many as are wanted are held, so that dropping is rare. */
static void add_event(report_model *m, table *t, DEFT_OWN json_t *event)
{
    const size_t most = m->max.n_events;
    t->n++;
    append(m, t->rows, event);
    if (json_array_size(t->rows) < 2 * most) return;
    json_t *const newest = json_array();
    for (size_t i = most; i < json_array_size(t->rows) && newest; i++)
        if (json_array_append(newest, json_array_get(t->rows, i)) != 0) m->ok = false;
    m->ok &= newest != NULL;
    json_decref(t->rows);
    t->rows = newest;
}

static void trim_events(report_model *m, table *t)
{
    while (json_array_size(t->rows) > m->max.n_events)
        if (json_array_remove(t->rows, 0) != 0) m->ok = false;
}

/* Sites are numbers in the object; null: none, too long, or too many. */
static json_t *site_of(report_model *m, const char *text)
{
    if (!text || strlen(text) > MAX_WORD) return json_null();
    int64_t at = find(&m->sites, text);
    if (at < 0) at = add_row(m, &m->sites, text, json_string(text));
    return at < 0 ? json_null() : json_integer(at);
}

static void put_site(report_model *m, json_t *to, const json_t *record, const char *key)
{
    put(m, to, key, site_of(m, log_string(record, key)));
}

static void plan_name(char name[96], uint32_t owner, const char *plan)
{
    snprintf(name, 96, "%u/%s", owner, plan ? plan : "");
}

static int64_t plan_of(const report_model *m, const log_line *line)
{
    char name[96];
    plan_name(name, line->process, log_string(line->record, "plan"));
    return find(&m->plans, name);
}

static void put_plan(report_model *m, json_t *to, const log_line *line)
{
    const int64_t at = plan_of(m, line);
    put(m, to, "plan", at < 0 ? json_null() : json_integer(at));
}

/* A row of its own for an event: where and when. */
static json_t *event_of(report_model *m, const log_line *line)
{
    json_t *const e = json_object();
    put_int(m, e, "process", line->process);
    put_int(m, e, "t", (uint64_t)line->t_ns);
    copy(m, e, line->record, "context");
    return e;
}

/* The row of equal events, made when it is the first; counted in n. NULL: too many. */
static json_t *group_of(report_model *m, table *t, const log_line *line, const char *a,
                        const char *b, const char *c)
{
    json_t *const name =
        json_sprintf("%u\n%s\n%s\n%s", line->process, a ? a : "", b ? b : "", c ? c : "");
    json_t *row = NULL;
    m->ok &= name != NULL;
    if (!name) return NULL;
    int64_t at = find(t, json_string_value(name));
    if (at < 0) at = add_row(m, t, json_string_value(name), event_of(m, line));
    if (at >= 0) row = json_array_get(t->rows, (size_t)at);
    if (row) put_int(m, row, "n", count_of(row, "n") + 1);
    json_decref(name);
    return row;
}

/* ---- processes ---- */

/* Makes one bucket of each 2^shift. */
static void widen(uint64_t *bucket, uint32_t shift, bool is_sum)
{
    for (uint32_t i = 1; i < N_BUCKETS; i++) {
        uint64_t *const to = &bucket[i >> shift];
        const uint64_t n = bucket[i];
        bucket[i] = 0;
        *to = is_sum ? add_up(*to, n) : *to > n ? *to : n;
    }
}

static uint32_t bucket_at(process *p, int64_t t)
{
    if (t < p->base_ns) return 0;
    const int64_t at = (t - p->base_ns) / p->width_ns;
    if (at < N_BUCKETS) return (uint32_t)at;
    uint32_t shift = 0;
    while (at >> shift >= N_BUCKETS) shift++;
    /* Shifted by 8, all are in the first. */
    for (uint32_t s = 0; s < N_SERIES; s++) widen(p->time[s], shift < 8 ? shift : 8, true);
    widen(p->live, shift < 8 ? shift : 8, false);
    p->width_ns <<= shift;
    return (uint32_t)((t - p->base_ns) / p->width_ns);
}
_Static_assert(N_BUCKETS <= 1 << 8, "bucket_at widens by 8 at most");

/* Time that ended at t, spread over the buckets it took, the newest first. */
static void spend(process *p, series s, int64_t t, uint64_t ns)
{
    (void)bucket_at(p, t);
    while (ns > 0) {
        const uint32_t at = bucket_at(p, t);
        const int64_t begin = p->base_ns + (int64_t)at * p->width_ns;
        const uint64_t room = t > begin ? (uint64_t)(t - begin) : 0;
        const uint64_t part = at == 0 || ns < room ? ns : room;
        p->time[s][at] = add_up(p->time[s][at], part);
        ns -= part;
        t = begin - 1;
    }
}

/* What began ns before t. */
static int64_t before(int64_t t, uint64_t ns)
{
    return ns > (uint64_t)t ? 0 : t - (int64_t)ns;
}

static void add_process(report_model *m, const log_line *line, process *p)
{
    if (json_object_size(p->about) && count_of(line->record, "part") > 0) return;
    copy(m, p->about, line->record,
         "library_version process_id parent_process_id program clock_unix_ns forked compiler "
         "threads has_launches has_code");
    put_int(m, p->about, "clock_ns", (uint64_t)line->t_ns);
}

static void add_end(report_model *m, const log_line *line, process *p)
{
    copy(m, p->about, line->record, "dropped_notes dropped_records");
    if (strcmp(line->type, "end") == 0) put(m, p->about, "ended", json_true());
}

/* ---- plans ---- */

static bool is_index(const json_t *v, size_t n)
{
    return json_is_integer(v) && json_integer_value(v) >= 0 && (size_t)json_integer_value(v) < n;
}

static bool is_segment(const json_t *seg, size_t n_kernels, size_t n_records)
{
    const json_t *const kernel = json_object_get(seg, "kernel");
    const json_t *const records = json_object_get(seg, "records");
    if (!log_string(seg, "kind") || !json_is_array(records)) return false;
    if (!json_is_null(kernel) && !is_index(kernel, n_kernels)) return false;
    for (size_t i = 0; i < json_array_size(records); i++)
        if (!is_index(json_array_get(records, i), n_records)) return false;
    return true;
}

static bool is_buffer(const json_t *b, size_t n_launches)
{
    const json_t *const first = json_object_get(b, "first"), *const last =
                                                                 json_object_get(b, "last");
    if (!log_string(b, "kind") || log_int(b, "bytes", -1) < 0 || log_int(b, "index", -1) < 0)
        return false;
    return (json_is_null(first) && json_is_null(last)) ||
           (is_index(first, n_launches) && is_index(last, n_launches));
}

static bool are_all(const json_t *array, bool (*holds)(const json_t *, size_t), size_t n)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!holds(json_array_get(array, i), n)) return false;
    return json_is_array(array);
}

static bool is_named_kernel(const json_t *k, size_t unused)
{
    (void)unused;
    return log_string(k, "kernel") != NULL;
}

/* Whether it is what docs/trace-format.md says, so that the page need not ask again. */
static bool is_block(const json_t *b, size_t n_records)
{
    const json_t *const kernels = json_object_get(b, "kernels");
    const json_t *const launches = json_object_get(b, "launches");
    const json_t *const buffers = json_object_get(b, "buffers");
    const size_t n_launches = json_array_size(launches);
    if (!are_all(kernels, is_named_kernel, 0) || !json_is_array(launches)) return false;
    for (size_t i = 0; i < n_launches; i++) {
        const json_t *const launch = json_array_get(launches, i);
        if (!json_is_array(launch)) return false;
        for (size_t k = 0; k < json_array_size(launch); k++)
            if (!is_segment(json_array_get(launch, k), json_array_size(kernels), n_records))
                return false;
    }
    return !buffers || are_all(buffers, is_buffer, n_launches);
}

static uint64_t count_launches(const json_t *blocks)
{
    uint64_t n = 0;
    for (size_t i = 0; i < json_array_size(blocks); i++)
        n += json_array_size(json_object_get(json_array_get(blocks, i), "launches"));
    return n;
}

/* Room for what its launches take. */
static bool stat_init(report_model *m, plan_stat *s, const json_t *blocks)
{
    const uint64_t n = count_launches(blocks);
    if (!json_is_array(blocks) || n > MAX_LAUNCHES - m->n_launches) return true;
    m->n_launches += n;
    s->n_blocks = (uint32_t)json_array_size(blocks);
    s->n_launches = (uint32_t)n;
    s->block = df_mem_zalloc(&df_mem_system, (s->n_blocks + 1) * sizeof *s->block);
    s->launch = df_mem_zalloc(&df_mem_system, (n + 1) * sizeof *s->launch);
    if (!s->block || !s->launch) return false;
    for (uint32_t i = 0; i < s->n_blocks; i++)
        s->block[i + 1] = s->block[i] + (uint32_t)json_array_size(
                                            json_object_get(json_array_get(blocks, i), "launches"));
    return true;
}

static void stat_finish(plan_stat *s)
{
    df_mem_free(&df_mem_system, s->block, (s->n_blocks + 1) * sizeof *s->block);
    df_mem_free(&df_mem_system, s->launch, (s->n_launches + 1) * sizeof *s->launch);
}

static plan_stat *add_stat(report_model *m)
{
    if (m->n_stats == m->room_for_stats) {
        const size_t room = m->room_for_stats * 2 + 64;
        plan_stat *const more = df_mem_zalloc(&df_mem_system, room * sizeof *more);
        if (!more) return NULL;
        if (m->stat) memcpy(more, m->stat, m->n_stats * sizeof *more);
        df_mem_free(&df_mem_system, m->stat, m->room_for_stats * sizeof *more);
        m->stat = more;
        m->room_for_stats = room;
    }
    return &m->stat[m->n_stats++];
}

static const char *const plan_texts[] = { "trace", "guards", "plan_text", "why" };

/* The plan that matters least loses its texts and blocks: what ran least, of the older ones. */
static void drop_plan_texts(report_model *m)
{
    size_t least = m->n_stats;
    for (size_t i = 0; i + 1 < m->n_stats; i++)
        if (m->stat[i].text_bytes &&
            (least == m->n_stats || m->stat[i].t.run_ns < m->stat[least].t.run_ns))
            least = i;
    if (least == m->n_stats) least--;
    json_t *const row = json_array_get(m->plans.rows, least);
    for (size_t i = 0; i < DF_LEN(plan_texts); i++) put(m, row, plan_texts[i], json_null());
    put(m, row, "blocks", json_null());
    put(m, row, "record_sites", json_null());
    m->plan_bytes -= m->stat[least].text_bytes;
    m->stat[least].text_bytes = 0;
    m->plans_without_text++;
}

static json_t *sites_of(report_model *m, const json_t *list)
{
    json_t *const out = json_array();
    for (size_t i = 0; i < json_array_size(list) && out; i++)
        append(m, out, site_of(m, json_string_value(json_array_get(list, i))));
    return out;
}

/* Sites within blocks become numbers too. */
static json_t *blocks_of(report_model *m, const json_t *blocks, size_t n_records)
{
    if (!are_all(blocks, is_block, n_records) || count_launches(blocks) > MAX_LAUNCHES)
        return json_null();
    for (size_t i = 0; i < json_array_size(blocks); i++) {
        const json_t *const kernels = json_object_get(json_array_get(blocks, i), "kernels");
        for (size_t k = 0; k < json_array_size(kernels); k++) {
            json_t *const kernel = json_array_get(kernels, k);
            put_site(m, kernel, kernel, "site");
        }
    }
    return json_incref((json_t *)(uintptr_t)blocks);
}

static size_t count_values(const json_t *v)
{
    size_t n = 1 + json_array_size(v);
    const char *key;
    json_t *part;
    if (json_is_object(v))
        json_object_foreach((json_t *)(uintptr_t)v, key, part) n += 1 + count_values(part);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *const one = json_array_get(v, i);
        if (!json_is_integer(one)) n += count_values(one);
    }
    return n;
}

static void add_plan(report_model *m, const log_line *line)
{
    char name[96];
    const json_t *const r = line->record;
    plan_name(name, line->process, log_string(r, "plan"));
    json_t *const row = event_of(m, line);
    json_t *const blocks = blocks_of(m, json_object_get(r, "blocks"), count_of(r, "records"));
    copy(m, row, r,
         "reason cache guards_missed key key_bytes records inputs results parts retreat");
    copy(m, row, r, "simplify_ns fuse_ns prepare_ns");
    const size_t bytes = copy_texts(m, row, r, plan_texts, DF_LEN(plan_texts));
    put_site(m, row, r, "site");
    put(m, row, "id", json_string(log_string(r, "plan") ? log_string(r, "plan") : "?"));
    put(m, row, "record_sites", sites_of(m, json_object_get(r, "record_sites")));
    put(m, row, "blocks", blocks);
    if (add_row(m, &m->plans, name, row) < 0) return;
    plan_stat *const s = add_stat(m);
    if (!s || !stat_init(m, s, blocks)) {
        m->ok = false;
        return;
    }
    s->text_bytes = bytes + VALUE_BYTES * (count_values(json_object_get(row, "record_sites")) +
                                           count_values(blocks));
    m->plan_bytes += s->text_bytes;
    while (m->ok && m->plan_bytes > m->max.text_bytes) drop_plan_texts(m);
}

static void count_cut(totals *t, const json_t *r)
{
    t->cuts++;
    t->plan_hits += log_bool(r, "plan_hit");
    t->matched += log_bool(r, "matched");
    const char *const status = log_string(r, "status");
    t->failed += status && strcmp(status, "ok") != 0;
    t->launches = add_up(t->launches, count_of(r, "launches"));
    t->segments = add_up(t->segments, count_of(r, "segments"));
    t->interpreted_segments = add_up(t->interpreted_segments, count_of(r, "interpreted_segments"));
    t->results = add_up(t->results, count_of(r, "results"));
    t->donated = add_up(t->donated, count_of(r, "donated"));
    t->allocated_bytes = add_up(t->allocated_bytes, count_of(r, "allocated_bytes"));
    if (count_of(r, "allocated_bytes") > t->max_allocated_bytes)
        t->max_allocated_bytes = count_of(r, "allocated_bytes");
    t->extract_ns = add_up(t->extract_ns, count_of(r, "extract_ns"));
    t->plan_ns = add_up(t->plan_ns, count_of(r, "plan_ns"));
    t->run_ns = add_up(t->run_ns, count_of(r, "run_ns"));
    t->launches_ns = add_up(t->launches_ns, count_of(r, "launches_ns"));
    t->records = add_up(t->records, count_of(r, "records"));
}

static void put_totals(report_model *m, json_t *row, const totals *t)
{
    json_t *const o = json_object();
#define PUT(name) put_int(m, o, #name, t->name)
    PUT(cuts), PUT(plan_hits), PUT(matched), PUT(failed), PUT(launches), PUT(segments);
    PUT(interpreted_segments), PUT(results), PUT(donated), PUT(allocated_bytes);
    PUT(max_allocated_bytes), PUT(extract_ns), PUT(plan_ns), PUT(run_ns), PUT(launches_ns);
    PUT(records);
#undef PUT
    put(m, row, "totals", o);
}

static void add_cut(report_model *m, const log_line *line, process *p)
{
    const json_t *const r = line->record;
    const int64_t at = plan_of(m, line);
    const uint64_t run = count_of(r, "run_ns"), launches = count_of(r, "launches_ns");
    count_cut(&p->t, r);
    if (at >= 0) count_cut(&m->stat[at].t, r);
    const int64_t started = before(line->t_ns, run);
    spend(p, S_LAUNCHES, line->t_ns, launches);
    if (run > launches) spend(p, S_BIND, line->t_ns, run - launches);
    spend(p, S_PLAN, started, count_of(r, "plan_ns"));
    spend(p, S_EXTRACT, before(started, count_of(r, "plan_ns")), count_of(r, "extract_ns"));
    json_t *const e = json_array();
    append(m, e, json_integer(line->process));
    append(m, e, json_integer(line->t_ns));
    append(m, e, site_of(m, log_string(r, "site")));
    append(m, e, at < 0 ? json_null() : json_integer(at));
    append(m, e, json_string(log_string(r, "reason") ? log_string(r, "reason") : ""));
    append(m, e, json_integer(log_bool(r, "plan_hit")));
    static const char *const times[] = { "extract_ns", "plan_ns", "run_ns", "launches_ns" };
    for (size_t i = 0; i < DF_LEN(times); i++)
        append(m, e, json_integer((json_int_t)count_of(r, times[i])));
    add_event(m, &m->cuts, e);
}

static void add_launch(report_model *m, const log_line *line)
{
    const json_t *const r = line->record;
    const int64_t at = plan_of(m, line);
    if (at < 0) return;
    plan_stat *const s = &m->stat[at];
    /* Logs of before have no block: it can be told where there is one. */
    const int64_t block = log_int(r, "block", s->n_blocks == 1 ? 0 : -1);
    const int64_t index = log_int(r, "index", -1);
    if (block < 0 || block >= s->n_blocks || index < 0) return;
    if (index >= s->block[block + 1] - s->block[block]) return;
    launch_stat *const l = &s->launch[s->block[block] + index];
    const uint64_t ns = count_of(r, "elapsed_ns");
    l->least_ns = l->n && l->least_ns < ns ? l->least_ns : ns;
    l->most_ns = l->most_ns > ns ? l->most_ns : ns;
    l->n++;
    l->ns = add_up(l->ns, ns);
    l->last_bytes = count_of(r, "bytes");
    l->last_flops = count_of(r, "flops");
    l->bytes = add_up(l->bytes, l->last_bytes);
    l->flops = add_up(l->flops, l->last_flops);
    l->forked += log_bool(r, "forked");
}

/* A row for each launch that ran: block, index, n, ns, least, most, bytes, flops, forked. */
static void put_launches(report_model *m, json_t *row, const plan_stat *s)
{
    json_t *const all = json_array();
    for (uint32_t b = 0; b < s->n_blocks; b++)
        for (uint32_t i = s->block[b]; i < s->block[b + 1]; i++) {
            const launch_stat *const l = &s->launch[i];
            if (!l->n) continue;
            const uint64_t field[] = { b,          i - s->block[b], l->n,     l->ns,    l->least_ns,
                                       l->most_ns, l->bytes,        l->flops, l->forked };
            json_t *const one = json_array();
            for (size_t k = 0; k < DF_LEN(field); k++)
                append(m, one,
                       json_integer((json_int_t)(field[k] > INT64_MAX ? INT64_MAX : field[k])));
            append(m, all, one);
        }
    put(m, row, "launch_stats", all);
}

/* ---- kernels ---- */

static void put_code(report_model *m, json_t *row, const json_t *r)
{
    static const char *const texts[] = { "kernel_ir", "compiler_ir", "assembly" };
    if (!log_string(r, "kernel_ir") || json_object_get(row, "kernel_ir")) return;
    if (m->kernel_bytes >= m->max.text_bytes) {
        m->kernels_without_code++;
        return;
    }
    m->kernel_bytes += copy_texts(m, row, r, texts, DF_LEN(texts));
}

static void add_kernel(report_model *m, const log_line *line, process *p)
{
    enum { MOST_COMPILES = 64 };
    const json_t *const r = line->record;
    const char *const name = log_string(r, "kernel");
    if (!name) return;
    spend(p, S_COMPILE, line->t_ns, count_of(r, "compile_ns"));
    int64_t at = find(&m->kernels, name);
    if (at < 0) {
        json_t *const row = json_object();
        copy(m, row, r, "kernel ops");
        put_site(m, row, r, "site");
        put(m, row, "compiles", json_array());
        at = add_row(m, &m->kernels, name, row);
    }
    json_t *const row = at < 0 ? NULL : json_array_get(m->kernels.rows, (size_t)at);
    if (!row) return;
    put_code(m, row, r);
    put_int(m, row, "n_compiles", count_of(row, "n_compiles") + 1);
    put_int(m, row, "compile_ns", add_up(count_of(row, "compile_ns"), count_of(r, "compile_ns")));
    json_t *const list = json_object_get(row, "compiles");
    if (json_array_size(list) >= MOST_COMPILES) return;
    json_t *const e = event_of(m, line);
    copy(m, e, r, "tier facts compiled error compile_ns kernels_in_module code_bytes");
    put_plan(m, e, line);
    append(m, list, e);
}

/* ---- events ---- */

static void add_why(report_model *m, const log_line *line)
{
    const json_t *const r = line->record;
    const char *const reason = log_string(r, "reason");
    if (!reason || strlen(reason) > MAX_WORD) return;
    if (!json_object_get(m->reasons, reason) && json_object_size(m->reasons) < 1000) {
        json_t *const about = json_object();
        copy(m, about, r, "severity template advice");
        put(m, m->reasons, reason, about);
    }
    json_t *const row =
        group_of(m, &m->whys, line, reason, log_string(r, "site"), log_string(r, "other_site"));
    if (!row) return;
    copy(m, row, r, "reason severity count field expected found");
    put_int(m, row, "t", (uint64_t)line->t_ns);
    put_site(m, row, r, "site");
    put_site(m, row, r, "other_site");
}

static void add_miss(report_model *m, const log_line *line)
{
    json_t *const e = event_of(m, line);
    copy(m, e, line->record, "kind field expected found");
    put_site(m, e, line->record, "site");
    put_plan(m, e, line);
    add_event(m, &m->misses, e);
}

static void add_error(report_model *m, const log_line *line)
{
    json_t *const e = event_of(m, line);
    copy(m, e, line->record, "reason status message");
    put_site(m, e, line->record, "site");
    add_event(m, &m->errors, e);
}

/* Events that are alike are one row: a, b name sites. */
static void add_alike(report_model *m, const log_line *line, table *t, const char *a, const char *b,
                      const char *summed)
{
    const json_t *const r = line->record;
    json_t *const row =
        group_of(m, t, line, log_string(r, a), log_string(r, b), log_string(r, "reason"));
    if (!row) return;
    put_site(m, row, r, a);
    put_site(m, row, r, b);
    put_plan(m, row, line);
    copy(m, row, r, "reason");
    put_int(m, row, summed, add_up(count_of(row, summed), count_of(r, summed)));
}

static void add_step(report_model *m, const log_line *line, process *p)
{
    m->ok &= report_steps_add(m->steps, line, site_of(m, log_string(line->record, "site")));
    if (strcmp(line->type, "step_end") != 0) return;
    const uint64_t live = count_of(line->record, "live_bytes");
    const uint64_t peak = count_of(line->record, "peak_bytes");
    uint64_t *const at = &p->live[bucket_at(p, line->t_ns)];
    *at = live > *at ? live : *at;
    p->peak_bytes = peak > p->peak_bytes ? peak : p->peak_bytes;
    p->steps++;
}

bool report_model_add(void *user, const log_line *line)
{
    report_model *const m = user;
    if (line->process >= m->n_processes) return true;
    process *const p = &m->process[line->process];
    const char *const type = line->type;
    if (p->lines++ == 0) p->base_ns = p->first_ns = p->last_ns = line->t_ns;
    if (line->t_ns < p->first_ns) p->first_ns = line->t_ns;
    if (line->t_ns > p->last_ns) p->last_ns = line->t_ns;
    if (strcmp(type, "launch") == 0)
        add_launch(m, line);
    else if (strcmp(type, "cut") == 0)
        add_cut(m, line, p);
    else if (strncmp(type, "step_", 5) == 0)
        add_step(m, line, p);
    else if (strcmp(type, "process") == 0)
        add_process(m, line, p);
    else if (strcmp(type, "plan") == 0)
        add_plan(m, line);
    else if (strcmp(type, "kernel") == 0)
        add_kernel(m, line, p);
    else if (strcmp(type, "why") == 0)
        add_why(m, line);
    else if (strcmp(type, "miss") == 0)
        add_miss(m, line);
    else if (strcmp(type, "error") == 0)
        add_error(m, line);
    else if (strcmp(type, "sync") == 0)
        p->syncs++, add_alike(m, line, &m->syncs, "site", "step_site", "records");
    else if (strcmp(type, "recompute") == 0)
        add_alike(m, line, &m->recomputes, "site", "first_site", "records");
    else if (strcmp(type, "replay") == 0)
        add_alike(m, line, &m->replays, "site", "capture_site", "outputs");
    else if (strncmp(type, "graph", 5) == 0)
        m->ok &= report_trees_add(m->trees, line, plan_of(m, line),
                                  site_of(m, log_string(line->record, "site")));
    else if (strcmp(type, "end") == 0 || strcmp(type, "dropped") == 0)
        add_end(m, line, p);
    return m->ok;
}

/* ---- the whole ---- */

report_model *report_model_create(uint32_t n_processes, const report_bounds *bounds)
{
    report_model *m = df_mem_zalloc(&df_mem_system, sizeof *m);
    if (!m) return NULL;
    const report_bounds none = { 0 };
    if (!bounds) bounds = &none;
    m->max.n_events = bounds->n_events ? bounds->n_events : 1000;
    m->max.n_rows = bounds->n_rows ? bounds->n_rows : 20000;
    m->max.text_bytes = bounds->text_bytes ? bounds->text_bytes : 32 << 20;
    m->ok = true;
    m->n_processes = n_processes;
    m->process = df_mem_zalloc(&df_mem_system, (n_processes + 1) * sizeof *m->process);
    m->reasons = json_object();
    table *const all[] = { &m->sites,      &m->plans,   &m->kernels, &m->whys,   &m->syncs,
                           &m->recomputes, &m->replays, &m->cuts,    &m->misses, &m->errors };
    for (size_t i = 0; i < DF_LEN(all); i++) table_init(m, all[i]);
    m->trees = report_trees_create(m->max.n_events, m->max.n_rows);
    m->steps = report_steps_create(m->max.n_events);
    m->ok &= m->process && m->reasons && m->trees && m->steps;
    for (uint32_t i = 0; i < n_processes && m->process; i++) {
        m->process[i].about = json_object();
        m->process[i].width_ns = 1 << 18;
        m->ok &= m->process[i].about != NULL;
    }
    if (!m->ok) report_model_destroy(&m);
    return m;
}

void report_model_destroy(report_model **m)
{
    report_model *const x = *m;
    if (!x) return;
    table *const all[] = { &x->sites,      &x->plans,   &x->kernels, &x->whys,   &x->syncs,
                           &x->recomputes, &x->replays, &x->cuts,    &x->misses, &x->errors };
    for (size_t i = 0; i < DF_LEN(all); i++) table_finish(all[i]);
    for (uint32_t i = 0; i < x->n_processes && x->process; i++) json_decref(x->process[i].about);
    for (size_t i = 0; i < x->n_stats; i++) stat_finish(&x->stat[i]);
    df_mem_free(&df_mem_system, x->stat, x->room_for_stats * sizeof *x->stat);
    df_mem_free(&df_mem_system, x->process, (x->n_processes + 1) * sizeof *x->process);
    json_decref(x->reasons);
    report_trees_destroy(&x->trees);
    report_steps_destroy(&x->steps);
    df_mem_free(&df_mem_system, x, sizeof *x);
    *m = NULL;
}

static json_t *numbers(report_model *m, const uint64_t *v, uint32_t n)
{
    json_t *const out = json_array();
    for (uint32_t i = 0; i < n; i++)
        append(m, out, json_integer((json_int_t)(v[i] > INT64_MAX ? INT64_MAX : v[i])));
    return out;
}

static void put_process(report_model *m, json_t *all, process *p)
{
    json_t *const row = p->about, *const buckets = json_object();
    const uint32_t n = bucket_at(p, p->last_ns) + 1;
    put_int(m, row, "first_ns", (uint64_t)p->first_ns);
    put_int(m, row, "last_ns", (uint64_t)p->last_ns);
    put_int(m, row, "peak_bytes", p->peak_bytes);
    put_int(m, row, "steps", p->steps);
    put_int(m, row, "syncs", p->syncs);
    put_int(m, row, "lines", p->lines);
    put_totals(m, row, &p->t);
    put_int(m, buckets, "width_ns", (uint64_t)p->width_ns);
    for (uint32_t s = 0; s < N_SERIES; s++)
        put(m, buckets, series_name[s], numbers(m, p->time[s], n));
    put(m, buckets, "live", numbers(m, p->live, n));
    put(m, row, "buckets", buckets);
    append(m, all, json_incref(row));
}

static void put_table(report_model *m, json_t *root, json_t *shown, const char *name,
                      const table *t)
{
    put(m, root, name, json_incref(t->rows));
    put(m, shown, name, json_pack("[II]", (json_int_t)json_array_size(t->rows), (json_int_t)t->n));
}

json_t *report_model_finish(report_model *m)
{
    json_t *root = json_object();
    json_t *const shown = json_object(), *const processes = json_array();
    trim_events(m, &m->cuts);
    trim_events(m, &m->misses);
    trim_events(m, &m->errors);
    for (size_t i = 0; i < m->n_stats; i++) {
        json_t *const row = json_array_get(m->plans.rows, i);
        put_totals(m, row, &m->stat[i].t);
        put_launches(m, row, &m->stat[i]);
    }
    for (uint32_t i = 0; i < m->n_processes; i++) put_process(m, processes, &m->process[i]);
    put(m, root, "processes", processes);
    put_table(m, root, shown, "sites", &m->sites);
    put_table(m, root, shown, "plans", &m->plans);
    put_table(m, root, shown, "kernels", &m->kernels);
    put_table(m, root, shown, "whys", &m->whys);
    put_table(m, root, shown, "syncs", &m->syncs);
    put_table(m, root, shown, "recomputes", &m->recomputes);
    put_table(m, root, shown, "replays", &m->replays);
    put_table(m, root, shown, "cuts", &m->cuts);
    put_table(m, root, shown, "misses", &m->misses);
    put_table(m, root, shown, "errors", &m->errors);
    put(m, shown, "plan_texts",
        json_pack("[II]", (json_int_t)(m->n_stats - m->plans_without_text),
                  (json_int_t)m->n_stats));
    put(m, shown, "kernel_codes",
        json_pack("[II]", (json_int_t)(m->kernels.n - m->kernels_without_code),
                  (json_int_t)m->kernels.n));
    m->ok &= report_trees_put(m->trees, root, shown) && report_steps_put(m->steps, root, shown);
    put(m, root, "shown", shown);
    put(m, root, "reasons", json_incref(m->reasons));
    if (!m->ok) {
        json_decref(root);
        root = NULL;
    }
    return root;
}
