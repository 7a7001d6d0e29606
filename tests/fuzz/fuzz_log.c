/* SPDX-License-Identifier: Apache-2.0
 *
 * Structured logs: any bytes are read and summed up; the summary is one JSON object, its text holds
 * nothing that a terminal obeys, and the trace for Perfetto is JSON whose slices nest.
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "fuzz.h"
#include "perfetto.h"
#include "stats.h"

static void must(bool ok)
{
    if (!ok) abort();
}

/* What was written to a stream in memory. */
typedef struct sink {
    FILE *f;
    char *text;
    size_t n;
} sink;

static FILE *open_sink(sink *s)
{
    *s = (sink){ 0 };
    s->f = open_memstream(&s->text, &s->n);
    must(s->f != NULL);
    return s->f;
}

static json_t *close_json(sink *s)
{
    json_error_t e;
    must(fclose(s->f) == 0);
    json_t *const v = json_loadb(s->text, s->n, 0, &e);
    must(v != NULL);
    free(s->text);
    return v;
}

static void check_text(sink *s)
{
    must(fclose(s->f) == 0);
    for (size_t i = 0; i < s->n; i++) must((unsigned char)s->text[i] >= ' ' || s->text[i] == '\n');
    must(memchr(s->text, 0x7f, s->n) == NULL);
    free(s->text);
}

/* No slice ends before it begins; what ends on a track was begun there, and at the end all has
 * ended. */
static void check_events(json_t *trace)
{
    size_t i;
    json_t *e;
    enum { TRACKS = 1 << 16 };
    static int open[TRACKS]; /* all 0 again when this returns */
    int n_open = 0;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, e)
    {
        const char *const phase = log_string(e, "ph");
        const int64_t tid = log_int(e, "tid", -1);
        must(phase && tid >= 0 && tid < TRACKS && log_int(e, "pid", -1) > 0);
        const int step = strcmp(phase, "B") == 0 ? 1 : strcmp(phase, "E") == 0 ? -1 : 0;
        open[tid] += step;
        n_open += step;
        must(open[tid] >= 0);
        if (*phase != 'M') must(json_number_value(json_object_get(e, "ts")) >= 0);
        if (*phase == 'X') must(json_number_value(json_object_get(e, "dur")) >= 0);
    }
    must(n_open == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    sink out;
    stats s;
    log_faults faults;
    log_set *logs = log_open_memory("fuzz", bytes, n);
    must(logs != NULL);
    must(stats_collect(&s, logs) == CLI_OK);
    stats_print(&s, open_sink(&out), false);
    check_text(&out);
    must(stats_print_json(&s, open_sink(&out)));
    json_decref(close_json(&out));
    stats_finish(&s);
    must(perfetto_write(logs, open_sink(&out), &faults) == CLI_OK);
    json_t *const trace = close_json(&out);
    check_events(trace);
    json_decref(trace);
    log_close(&logs);
    return 0;
}
