/* SPDX-License-Identifier: Apache-2.0
 *
 * deft bundle: one archive that reproduces a bug elsewhere.
 *
 *   deft-bundle/deft-PID-START.jsonl                     the logs, as they are
 *   deft-bundle/deft-PID-START.inputs/1.3.safetensors    stored inputs, where there are any
 *   deft-bundle/deft-PID-START.traces/plan-1.3.trace     each plan's trace with its call sites
 *   deft-bundle/doctor.txt, deft-bundle/README
 *
 * Only regular files with names that the library gives are taken, opened without following links,
 * and names of entries consist of plain characters: neither reading the folder nor unpacking the
 * archive reaches outside. Files are copied through a small buffer, with the size they had when
 * they were opened; a log may still grow.
 */
#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "log.h"
#include "log_files.h"
#include "out.h"

enum { MAX_NAME = 200, MAX_LISTED = 1000 };

typedef struct bundle {
    struct archive *archive;
    const char *folder, *out; /* out: for messages */
    int fd;                   /* of the folder */
    log_set *logs;
    df_str trace, list; /* list: the README's line for each plan */
    uint64_t n_files, n_inputs, n_traces;
    int code;
} bundle;

/* ---- entries ---- */

static bool fail(bundle *b, const char *what, const char *why)
{
    b->code = cli_fail(CLI_INPUT, "%s: %s", what, why ? why : "unknown error");
    return false;
}

static bool begin_entry(bundle *b, const char *name, int64_t size, time_t changed)
{
    char path[2 * MAX_NAME + 64];
    struct archive_entry *const e = archive_entry_new();
    if (!e) return fail(b, b->out, "out of memory");
    (void)snprintf(path, sizeof path, "deft-bundle/%s", name);
    archive_entry_set_pathname(e, path);
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_perm(e, 0600);
    archive_entry_set_size(e, size);
    archive_entry_set_mtime(e, changed, 0);
    const bool ok = archive_write_header(b->archive, e) == ARCHIVE_OK;
    archive_entry_free(e);
    return ok || fail(b, b->out, archive_error_string(b->archive));
}

static bool put(bundle *b, const void *bytes, size_t n)
{
    const la_ssize_t written = archive_write_data(b->archive, bytes, n);
    return (written >= 0 && (size_t)written == n) ||
           fail(b, b->out, archive_error_string(b->archive));
}

static bool put_text(bundle *b, const char *name, const char *text, size_t n)
{
    return begin_entry(b, name, (int64_t)n, time(NULL)) && put(b, text, n);
}

/* size bytes; what the file has lost since it was opened is filled with zeros. */
static bool copy(bundle *b, int fd, int64_t size, const char *name)
{
    static char block[1 << 16];
    for (int64_t left = size; left > 0;) {
        const size_t wanted = left < (int64_t)sizeof block ? (size_t)left : sizeof block;
        ssize_t n = read(fd, block, wanted);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(b, name, strerror(errno));
        if (n == 0) memset(block, 0, wanted), n = (ssize_t)wanted;
        if (!put(b, block, (size_t)n)) return false;
        left -= n;
    }
    return true;
}

/* ---- files of the folder ---- */

static bool is_plain(const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return name[0] != '.' && name[0] != '-' && strlen(name) < MAX_NAME &&
           name[strspn(name, plain)] == '\0';
}

/* What is no regular file is passed over. */
static bool add_file(bundle *b, int folder, const char *name, const char *entry, uint64_t *count)
{
    struct stat st;
    bool ok = true;
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        ok = begin_entry(b, entry, st.st_size, st.st_mtime) && copy(b, fd, st.st_size, entry);
        ++*count;
    } else if (fd >= 0 || errno != ELOOP) {
        (void)cli_fail(CLI_OK, "%s: left out: it is no file that can be read", entry);
    }
    if (fd >= 0) close(fd);
    return ok;
}

/* Calls add for each entry of the folder in the order of their names. */
static bool each_entry(bundle *b, int fd, const char *prefix,
                       bool (*add)(bundle *b, int fd, const char *prefix, const char *name))
{
    struct dirent **names = NULL;
    const int n = scandirat(fd, ".", &names, NULL, alphasort);
    bool ok = n >= 0 || fail(b, b->folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        ok = ok && (!is_plain(names[i]->d_name) || add(b, fd, prefix, names[i]->d_name));
        free(names[i]);
    }
    free(names);
    return ok;
}

static bool add_input(bundle *b, int fd, const char *prefix, const char *name)
{
    char entry[2 * MAX_NAME + 8];
    (void)snprintf(entry, sizeof entry, "%s/%s", prefix, name);
    return add_file(b, fd, name, entry, &b->n_inputs);
}

static bool add_entry(bundle *b, int fd, const char *prefix, const char *name)
{
    log_file f;
    bool ok = true;
    (void)prefix;
    if (log_name(name, ".jsonl", &f)) return add_file(b, fd, name, name, &b->n_files);
    if (!log_name(name, ".inputs", &f)) return true;
    const int inner = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inner < 0) return true;
    ok = each_entry(b, inner, name, add_input);
    close(inner);
    return ok;
}

/* ---- traces ---- */

static void put_comment(df_str *s, const char *before, const char *text)
{
    char clean[1024];
    df_str_fmt(s, "%s%s", before, log_clean(clean, sizeof clean, text));
}

/* The trace's text with the call site behind each record, as deft_show writes it. */
static void put_trace(df_str *s, const char *text, const json_t *sites)
{
    size_t k = 0;
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, "\n");
        for (size_t i = 0; i < n; i++)
            df_str_putc(s, (at[i] >= ' ' && at[i] < 0x7f) || at[i] == '\t' ? at[i] : '?');
        const char *const site = *at == '%' ? json_string_value(json_array_get(sites, k++)) : NULL;
        if (site) put_comment(s, "  # at ", site);
        df_str_putc(s, '\n');
        at += n + (at[n] == '\n');
    }
}

static bool has_inputs(const bundle *b, const char *path)
{
    struct stat st;
    return fstatat(b->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

static void list_plan(bundle *b, const char *process, const char *plan, const json_t *record)
{
    char inputs[MAX_NAME];
    const char *const site = log_string(record, "site"), *const why = log_string(record, "retreat");
    if (b->n_traces > MAX_LISTED) return;
    df_str_fmt(&b->list, "deft run %s.traces/plan-%s.trace", process, plan);
    (void)snprintf(inputs, sizeof inputs, "%s.inputs/%s.safetensors", process, plan);
    if (has_inputs(b, inputs)) df_str_fmt(&b->list, " --inputs=%s", inputs);
    put_comment(&b->list, "  # ", site ? site : "call unknown");
    if (why) put_comment(&b->list, "; one kernel per op: ", why);
    df_str_putc(&b->list, '\n');
}

static bool take_line(void *user, const log_line *line)
{
    bundle *const b = user;
    char name[2 * MAX_NAME];
    const char *const trace = log_string(line->record, "trace");
    const char *const plan = log_string(line->record, "plan");
    const char *const site = log_string(line->record, "site");
    const char *const process = log_process_name(b->logs, line->process);
    if (strcmp(line->type, "plan") != 0 || !plan || !trace) return true;
    b->n_traces++;
    b->trace.n = 0;
    df_str_fmt(&b->trace, "# plan %s of %s", plan, process);
    put_comment(&b->trace, ", made at ", site ? site : "a call that is unknown");
    df_str_putc(&b->trace, '\n');
    put_trace(&b->trace, trace, json_object_get(line->record, "record_sites"));
    list_plan(b, process, plan, line->record);
    if (!b->trace.ok || !b->list.ok) return fail(b, b->out, "out of memory");
    (void)snprintf(name, sizeof name, "%s.traces/plan-%s.trace", process, plan);
    return put_text(b, name, b->trace.at, b->trace.n);
}

/* ---- what goes with them ---- */

static bool add_doctor(bundle *b)
{
    char *text = NULL;
    size_t n = 0;
    FILE *const f = open_memstream(&text, &n);
    if (!f) return fail(b, b->out, "out of memory");
    cli_doctor_print(f);
    const bool was_written = fclose(f) == 0;
    const bool ok =
        was_written ? put_text(b, "doctor.txt", text, n) : fail(b, b->out, "out of memory");
    free(text);
    return ok;
}

static bool add_readme(bundle *b)
{
    static const char head[] =
        "What a run of deft told (docs/trace-format.md), put together by deft bundle. It may hold\n"
        "names of files and functions, labels, numbers and stored inputs of the program.\n"
        "\n"
        "doctor.txt           the machine on which this was put together\n"
        "deft-*.jsonl         structured logs: deft stats . and deft perfetto . read them\n"
        "deft-*.traces        the trace of each plan, with its call sites\n"
        "deft-*.inputs        values of its inputs, where the run stored them\n"
        "\n"
        "Each plan again, from this folder. Without stored inputs they are generated; add --check "
        "to\n"
        "hold the result against the interpreter, --bench to time it. deft minimize makes a "
        "failing\n"
        "one small.\n"
        "\n";
    df_str s;
    df_str_init(&s, &df_mem_system);
    df_str_put(&s, head);
    if (b->list.n) df_str_putn(&s, b->list.at, b->list.n);
    if (b->n_traces > MAX_LISTED)
        df_str_fmt(&s, "... and %llu more\n", (unsigned long long)(b->n_traces - MAX_LISTED));
    const bool ok = s.ok ? put_text(b, "README", s.at, s.n) : fail(b, b->out, "out of memory");
    df_str_finish(&s);
    return ok;
}

/* ---- all of it ---- */

static bool open_archive(bundle *b, FILE *f)
{
    b->archive = archive_write_new();
    if (!b->archive) return fail(b, b->out, "out of memory");
    return (archive_write_add_filter_gzip(b->archive) == ARCHIVE_OK &&
            archive_write_set_format_pax_restricted(b->archive) == ARCHIVE_OK &&
            archive_write_open_FILE(b->archive, f) == ARCHIVE_OK) ||
           fail(b, b->out, archive_error_string(b->archive));
}

static bool add_traces(bundle *b)
{
    log_faults faults;
    const int code = log_read(b->logs, take_line, b, &faults);
    log_tell_faults(&faults);
    if (b->code == CLI_OK) b->code = code;
    return b->code == CLI_OK;
}

static int write_bundle(bundle *b, FILE *f)
{
    df_str_init(&b->trace, &df_mem_system);
    df_str_init(&b->list, &df_mem_system);
    b->fd = open(b->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (b->fd < 0)
        (void)fail(b, b->folder, strerror(errno));
    else if (open_archive(b, f) && each_entry(b, b->fd, "", add_entry) && add_traces(b) &&
             add_doctor(b) && add_readme(b) && archive_write_close(b->archive) != ARCHIVE_OK)
        (void)fail(b, b->out, archive_error_string(b->archive));
    archive_write_free(b->archive);
    if (b->fd >= 0) close(b->fd);
    df_str_finish(&b->trace);
    df_str_finish(&b->list);
    return b->code;
}

int cli_bundle(int argc, char **argv)
{
    const char *out;
    bundle b = { .fd = -1 };
    out_file o;
    struct stat st;
    int code = out_arguments(argc, argv, &b.folder, &out);
    if (code != CLI_OK) return code;
    if (stat(b.folder, &st) == 0 && !S_ISDIR(st.st_mode))
        return cli_fail(CLI_INPUT, "%s: is no folder", b.folder);
    b.out = out ? out : "deft-bundle.tar.gz";
    code = log_open(&b.logs, b.folder);
    if (code != CLI_OK) return code;
    code = out_open(&o, b.out);
    if (code == CLI_OK) {
        code = write_bundle(&b, o.f);
        const bool is_file = o.path != NULL;
        const int written = out_close(&o, code == CLI_OK);
        if (code == CLI_OK) code = written;
        if (code == CLI_OK && is_file)
            printf("%s: %llu logs, %llu traces, %llu files of inputs\n", b.out,
                   (unsigned long long)b.n_files, (unsigned long long)b.n_traces,
                   (unsigned long long)b.n_inputs);
    }
    log_close(&b.logs);
    return code;
}
