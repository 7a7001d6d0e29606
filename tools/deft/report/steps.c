/* SPDX-License-Identifier: Apache-2.0
 *
 * See steps.h.
 */
#include "steps.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum {
    N_BUCKETS = 160, /* four to an octave: up to 2^40 ns, some 18 minutes */
    N_OPEN = 64,     /* steps that have begun and not ended, of all contexts */
    N_SITES = 512,   /* histograms */
};

typedef struct open_step {
    uint32_t process;
    uint64_t context, serial;
    int64_t t; /* when it began; -1: the entry is free */
} open_step;

typedef struct histogram {
    uint32_t process;
    json_t *site;
    uint64_t n, ns, least_ns, most_ns, bucket[N_BUCKETS];
} histogram;

struct report_steps {
    size_t n_events;
    open_step open[N_OPEN];
    uint32_t next_open; /* the entry that a new step takes: the oldest one goes */
    json_t *events;
    uint64_t n;
    histogram *of_site;
    uint32_t n_sites;
};

report_steps *report_steps_create(size_t n_events)
{
    report_steps *s = df_mem_zalloc(&df_mem_system, sizeof *s);
    if (!s) return NULL;
    s->n_events = n_events;
    s->events = json_array();
    s->of_site = df_mem_zalloc(&df_mem_system, N_SITES * sizeof *s->of_site);
    for (uint32_t i = 0; i < N_OPEN; i++) s->open[i].t = -1;
    if (!s->events || !s->of_site) report_steps_destroy(&s);
    return s;
}

void report_steps_destroy(report_steps **s)
{
    report_steps *const x = *s;
    if (!x) return;
    for (uint32_t i = 0; i < x->n_sites; i++) json_decref(x->of_site[i].site);
    json_decref(x->events);
    df_mem_free(&df_mem_system, x->of_site, N_SITES * sizeof *x->of_site);
    df_mem_free(&df_mem_system, x, sizeof *x);
    *s = NULL;
}

static bool is_of(const open_step *o, const log_line *line)
{
    return o->t >= 0 && o->process == line->process &&
           o->context == (uint64_t)log_int(line->record, "context", 0) &&
           o->serial == (uint64_t)log_int(line->record, "serial", 0);
}

static void begin_step(report_steps *s, const log_line *line)
{
    open_step *const o = &s->open[s->next_open++ % N_OPEN];
    *o = (open_step){ .process = line->process,
                      .context = (uint64_t)log_int(line->record, "context", 0),
                      .serial = (uint64_t)log_int(line->record, "serial", 0),
                      .t = line->t_ns };
}

static uint32_t bucket_of(uint64_t ns)
{
    const double at = ns < 1 ? 0 : 4 * log2((double)ns);
    return at < (double)N_BUCKETS ? (uint32_t)at : N_BUCKETS - 1;
}

/* NULL: there are too many. */
static histogram *histogram_of(report_steps *s, uint32_t process, json_t *site)
{
    for (uint32_t i = 0; i < s->n_sites; i++)
        if (s->of_site[i].process == process && json_equal(s->of_site[i].site, site))
            return &s->of_site[i];
    if (s->n_sites == N_SITES) return NULL;
    histogram *const h = &s->of_site[s->n_sites++];
    h->process = process;
    h->site = json_incref(site);
    return h;
}

static void count_step(histogram *h, uint64_t ns)
{
    h->least_ns = h->n && h->least_ns < ns ? h->least_ns : ns;
    h->most_ns = h->most_ns > ns ? h->most_ns : ns;
    h->ns = h->ns > UINT64_MAX - ns ? UINT64_MAX : h->ns + ns;
    h->n++;
    h->bucket[bucket_of(ns)]++;
}

/* Keeps the newest: twice as many as are wanted are held, so that dropping is rare. */
static bool keep_event(report_steps *s, json_t *event)
{
    if (json_array_append_new(s->events, event) != 0) return false;
    if (json_array_size(s->events) < 2 * s->n_events) return true;
    json_t *const newest = json_array();
    for (size_t i = s->n_events; i < json_array_size(s->events) && newest; i++)
        if (json_array_append(newest, json_array_get(s->events, i)) != 0) return false;
    json_decref(s->events);
    s->events = newest;
    return newest != NULL;
}

static bool end_step(report_steps *s, const log_line *line, json_t *site)
{
    const char *const status = log_string(line->record, "status");
    for (uint32_t i = 0; i < N_OPEN; i++) {
        open_step *const o = &s->open[i];
        if (!is_of(o, line)) continue;
        const int64_t begin = o->t, ns = line->t_ns > begin ? line->t_ns - begin : 0;
        histogram *const h = histogram_of(s, line->process, site);
        o->t = -1;
        s->n++;
        if (h) count_step(h, (uint64_t)ns);
        return keep_event(s, json_pack("[IIIOb]", (json_int_t)line->process, (json_int_t)begin,
                                       (json_int_t)ns, site, status && strcmp(status, "ok") != 0));
    }
    return true; /* it began before the log did */
}

bool report_steps_add(report_steps *s, const log_line *line, json_t *site)
{
    bool ok = site != NULL;
    if (ok && strcmp(line->type, "step_begin") == 0)
        begin_step(s, line);
    else if (ok && strcmp(line->type, "step_end") == 0)
        ok = end_step(s, line, site);
    json_decref(site);
    return ok;
}

static json_t *histogram_json(const histogram *h)
{
    json_t *const buckets = json_array();
    for (uint32_t i = 0; i < N_BUCKETS && buckets; i++)
        if (json_array_append_new(buckets, json_integer((json_int_t)h->bucket[i])) != 0) break;
    return json_pack("{s:I, s:O, s:I, s:I, s:I, s:I, s:o}", "process", (json_int_t)h->process,
                     "site", h->site, "n", (json_int_t)h->n, "ns", (json_int_t)h->ns, "least_ns",
                     (json_int_t)h->least_ns, "most_ns", (json_int_t)h->most_ns, "buckets",
                     buckets);
}

bool report_steps_put(report_steps *s, json_t *root, json_t *shown)
{
    json_t *const times = json_array();
    bool ok = times != NULL;
    for (uint32_t i = 0; i < s->n_sites && ok; i++)
        ok = json_array_append_new(times, histogram_json(&s->of_site[i])) == 0;
    while (ok && json_array_size(s->events) > s->n_events)
        ok = json_array_remove(s->events, 0) == 0;
    const size_t n = json_array_size(s->events);
    return json_object_set_new(root, "step_times", times) == 0 && ok &&
           json_object_set(root, "steps", s->events) == 0 &&
           json_object_set_new(shown, "steps",
                               json_pack("[II]", (json_int_t)n, (json_int_t)s->n)) == 0;
}
