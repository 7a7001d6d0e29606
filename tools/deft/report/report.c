/* SPDX-License-Identifier: Apache-2.0
 *
 * deft report: one page about structured logs. docs/report.md describes it.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../cli.h"
#include "../out.h"
#include "deft/deft.h"
#include "model.h"
#include "parts.h"

enum { MAX_FOLDERS = 16 };

typedef struct options {
    const char *logs, *out;
    const char *compared; /* the log of an earlier run, or NULL */
    const char *folder[MAX_FOLDERS];
    size_t n_folders;
    report_limits limits;
    report_bounds bounds;
    bool has_limits;
} options;

/* "GBPS,GFLOPS", each a number that is not negative; 0: unknown. */
static bool limits_of(const char *text, report_limits *out)
{
    char *end;
    out->gbytes = strtod(text, &end);
    if (end == text || *end != ',') return false;
    text = end + 1;
    out->gflops = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(out->gbytes) && isfinite(out->gflops) &&
           out->gbytes >= 0 && out->gflops >= 0;
}

static int option_of(options *o, const char *argument)
{
    const char *value;
    uint64_t n;
    if (cli_value(argument, "--source", &value)) {
        if (o->n_folders == MAX_FOLDERS)
            return cli_fail(CLI_USAGE, "report: at most %d folders by --source", MAX_FOLDERS);
        o->folder[o->n_folders++] = value;
    } else if (cli_value(argument, "--limits", &value)) {
        if (!limits_of(value, &o->limits))
            return cli_fail(CLI_USAGE, "--limits=%s: must be two numbers, GB/s,GFLOP/s", value);
        o->has_limits = true;
    } else if (cli_value(argument, "--events", &value)) {
        if (!cli_number("--events", value, 1, 1000000, &n)) return CLI_USAGE;
        o->bounds.n_events = (size_t)n;
    } else if (cli_value(argument, "--out", &value)) {
        o->out = value;
    } else if (cli_value(argument, "--compare", &value)) {
        o->compared = value;
    } else if (argument[0] == '-' && argument[1]) {
        return cli_fail(CLI_USAGE, "report: no option %s; deft --help lists all", argument);
    } else if (o->logs) {
        return cli_fail(CLI_USAGE, "report: takes one folder or file, not also %s", argument);
    } else {
        o->logs = argument;
    }
    return CLI_OK;
}

static int options_of(int argc, char **argv, options *o)
{
    *o = (options){ .out = "report.html" };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-o") == 0) {
            if (++i == argc) return cli_fail(CLI_USAGE, "report: -o needs a file");
            o->out = argv[i];
            continue;
        }
        const int code = option_of(o, argv[i]);
        if (code != CLI_OK) return code;
    }
    if (!o->logs)
        return cli_fail(CLI_USAGE,
                        "report: which folder? usage: deft report DIR -o FILE [--compare=DIR]");
    if (o->n_folders == 0) o->folder[o->n_folders++] = ".";
    return CLI_OK;
}

static json_t *faults_json(const log_faults *f)
{
    json_t *const first = json_array();
    for (uint32_t i = 0; i < f->n_first; i++)
        (void)json_array_append_new(first, json_string(f->first[i]));
    return json_pack("{s:I, s:I, s:I, s:I, s:b, s:o}", "lines", (json_int_t)f->lines, "bad_lines",
                     (json_int_t)f->bad_lines, "unknown_lines", (json_int_t)f->unknown_lines,
                     "bytes", (json_int_t)f->bytes, "newer_schema", (int)f->is_newer_schema,
                     "first", first);
}

static json_t *limits_json(const options *o)
{
    const report_limits l = o->has_limits ? o->limits : report_measure();
    return json_pack("{s:f, s:f, s:f, s:b, s:I}", "gbytes", l.gbytes, "gflops", l.gflops,
                     "record_ns", report_measure_recording(), "measured", (int)!o->has_limits,
                     "threads", (json_int_t)l.threads);
}

/* Takes the model's object and puts what stands beside it. */
static bool complete(json_t *data, const options *o, const log_faults *faults)
{
    json_t *const sources = report_sources(json_object_get(data, "sites"), o->folder, o->n_folders);
    return json_object_set_new(data, "faults", faults_json(faults)) == 0 &&
           json_object_set_new(data, "limits", limits_json(o)) == 0 &&
           json_object_set_new(data, "files", sources) == 0 &&
           json_object_set_new(data, "made_unix_s", json_integer((json_int_t)time(NULL))) == 0 &&
           json_object_set_new(data, "version", json_string(deft_version())) == 0;
}

static int no_memory(void)
{
    return cli_fail(CLI_INPUT, "report: out of memory");
}

static int write_page(const options *o, const json_t *data)
{
    out_file out;
    const int code = out_open(&out, o->out);
    if (code != CLI_OK) return code;
    errno = 0;
    const bool is_whole = report_write_page(out.f, data);
    const int error = errno;
    const int closed = out_close(&out, is_whole);
    if (is_whole || closed != CLI_OK) return closed;
    return cli_fail(CLI_INPUT, "%s: %s", o->out, error ? strerror(error) : "out of memory");
}

/* The object that is made of one log; *out gets a reference. */
static int read_log(const options *o, const char *path, log_faults *faults, json_t **out)
{
    log_set *logs = NULL;
    int code = log_open(&logs, path);
    if (code != CLI_OK) return code;
    report_model *model = report_model_create(log_process_count(logs), &o->bounds);
    if (!model)
        code = no_memory();
    else
        code = log_read(logs, report_model_add, model, faults);
    if (code == CLI_OK) {
        log_tell_faults(faults);
        *out = report_model_finish(model);
        if (!*out) code = no_memory();
    }
    if (code == CLI_OK && json_array_size(json_object_get(*out, "processes")) == 0)
        code = cli_fail(CLI_INPUT, "%s: holds no structured log", path);
    if (code == CLI_OK && faults->lines == faults->bad_lines + faults->unknown_lines)
        code = cli_fail(CLI_INPUT, "%s: no line of a structured log in it", path);
    report_model_destroy(&model);
    log_close(&logs);
    return code;
}

/* Puts the earlier run beside the data, as "compared". */
static int add_compared(const options *o, json_t *data)
{
    log_faults faults;
    json_t *earlier = NULL;
    const int code = read_log(o, o->compared, &faults, &earlier);
    if (code != CLI_OK) {
        json_decref(earlier);
        return code;
    }
    (void)json_object_set_new(earlier, "path", json_string(o->compared));
    return json_object_set_new(data, "compared", earlier) == 0 ? CLI_OK : no_memory();
}

int cli_report(int argc, char **argv)
{
    options o;
    log_faults faults;
    json_t *data = NULL;
    int code = options_of(argc, argv, &o);
    if (code == CLI_OK) code = read_log(&o, o.logs, &faults, &data);
    if (code == CLI_OK && !complete(data, &o, &faults)) code = no_memory();
    if (code == CLI_OK && o.compared) code = add_compared(&o, data);
    if (code == CLI_OK) code = write_page(&o, data);
    json_decref(data);
    return code;
}
