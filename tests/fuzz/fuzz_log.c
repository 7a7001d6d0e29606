/* SPDX-License-Identifier: Apache-2.0
 *
 * Structured logs: any bytes are read and summed up; the summary is one JSON object, its text holds
 * nothing that a terminal obeys, the trace for Perfetto is JSON whose slices nest, and the data of
 * a report holds nothing that a browser takes for markup and reads back as what it was.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cli.h"
#include "fuzz.h"
#include "perfetto.h"
#include "report/model.h"
#include "report/parts.h"
#include "stats.h"

static void must(bool ok)
{
    if (!ok) abort();
}

/* ---- what is written ---- */

/* One stream in memory for all inputs, written from its start each time: making one is slow. */
static char *sink_text;
static size_t sink_n;

static FILE *open_sink(void)
{
    static FILE *f;
    if (!f) f = open_memstream(&sink_text, &sink_n);
    must(f != NULL && fseek(f, 0, SEEK_SET) == 0);
    return f;
}

static void close_sink(FILE *f)
{
    must(fflush(f) == 0 && !ferror(f));
}

/* Where jansson takes memory: for a sanitizer the thousands of pieces that JSON consists of are
 * most of the time. What is written and read back is from here, and so are the records of three
 * inputs of four; those of the fourth are from malloc, which sees what was freed or is too short.
 */
static struct {
    _Alignas(16) char at[4 << 20];
    size_t n;
} scratch;

static void *scratch_alloc(size_t n)
{
    const size_t wanted = (n + 15) & ~(size_t)15;
    must(wanted <= sizeof scratch.at - scratch.n);
    void *const p = scratch.at + scratch.n;
    scratch.n += wanted;
    return p;
}

static void scratch_free(void *p)
{
    (void)p;
}

static void use_scratch(bool uses)
{
    json_set_alloc_funcs(uses ? scratch_alloc : malloc, uses ? scratch_free : free);
}

/* Read back from what was written. */
static const json_t *load_json(FILE *f)
{
    json_error_t e;
    json_malloc_t alloc;
    json_free_t release;
    close_sink(f);
    json_get_alloc_funcs(&alloc, &release);
    use_scratch(true);
    const json_t *const v = json_loadb(sink_text, sink_n, 0, &e);
    json_set_alloc_funcs(alloc, release);
    /* A log nests as deep as jansson reads, and stands deeper in a report. */
    must(v != NULL || json_error_code(&e) == json_error_stack_overflow);
    return v;
}

/* No control characters, neither those of ASCII nor U+0080 to U+009F. */
static void check_text(FILE *f)
{
    close_sink(f);
    unsigned char before = 0;
    for (size_t i = 0; i < sink_n; i++) {
        const unsigned char c = (unsigned char)sink_text[i];
        must((c >= ' ' || c == '\n') && c != 0x7f && !(before == 0xc2 && c < 0xa0));
        before = c;
    }
}

/* What may stand in a page. */
static void check_page(FILE *f)
{
    close_sink(f);
    for (size_t i = 0; i < sink_n; i++) must(sink_text[i] >= ' ' && sink_text[i] != '<');
}

/* No slice ends before it begins; what ends on a track was begun there, and at the end all has
 * ended. */
static void check_events(const json_t *trace)
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

/* ---- ways ---- */

static void check_stats(log_set *logs)
{
    stats s;
    must(stats_collect(&s, logs) == CLI_OK);
    FILE *f = open_sink();
    stats_print(&s, f, false);
    check_text(f);
    f = open_sink();
    must(stats_print_json(&s, f));
    must(load_json(f) != NULL);
    stats_finish(&s);
}

static void check_perfetto(log_set *logs)
{
    log_faults faults;
    FILE *const f = open_sink();
    must(perfetto_write(logs, f, &faults) == CLI_OK);
    const json_t *const trace = load_json(f);
    must(trace != NULL);
    check_events(trace);
}

static void check_report(log_set *logs)
{
    log_faults faults;
    const report_bounds small = { .n_events = 4, .n_rows = 8, .text_bytes = 1000 };
    report_model *m = report_model_create(log_process_count(logs), &small);
    must(m != NULL && log_read(logs, report_model_add, m, &faults) == CLI_OK);
    json_t *const data = report_model_finish(m);
    FILE *const f = open_sink();
    must(data != NULL && report_write_data(f, data));
    check_page(f);
    const json_t *const read = load_json(f);
    must(!read || json_equal(data, read));
    json_decref(data);
    report_model_destroy(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static void (*const ways[])(log_set * logs) = { check_stats, check_perfetto, check_report };
    const uint64_t hash = df_hash_bytes(bytes, n).lo;
    const size_t chosen = hash % DF_LEN(ways);
    for (size_t i = 0; i < DF_LEN(ways); i++) {
        if (i != chosen && !fuzz_all_ways) continue;
        log_set *logs = log_open_memory("fuzz", bytes, n);
        must(logs != NULL);
        use_scratch(!fuzz_all_ways && hash >> 62);
        ways[i](logs);
        scratch.n = 0;
        log_close(&logs);
    }
    return 0;
}
