/* SPDX-License-Identifier: Apache-2.0
 *
 * deft opcheck: checks the operators of a shared library (deft/check.h).
 *
 * The library is linked with a libdeft of its own. All calls go to that one, since this tool has
 * another copy of deft, which is not meant for other programs.
 */
#include "cli.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "deft/check.h"

/* The calls of the library's libdeft. */
#define CALLS(X)                                                                                   \
    X(ctx_create)                                                                                  \
    X(ctx_destroy) X(scope_begin) X(scope_end) X(op_check) X(op_name) X(message) X(status_text)

typedef struct deft_calls {
#define MEMBER(name) __typeof__(&deft_##name) name;
    CALLS(MEMBER)
#undef MEMBER
} deft_calls;

/* One run of the command. */
typedef struct opcheck {
    const char *path;
    deft_calls call;
    deft_op_cases_fn cases;
    deft_check_options options;
    deft_ctx *cx;
    uint32_t n_cases, n_faulty;
    int code;
} opcheck;

static int opcheck_parse(int argc, char **argv, opcheck *o)
{
    const char *value;
    uint64_t n;
    o->options.size = sizeof o->options;
    for (int i = 1; i < argc; i++) {
        const char *const a = argv[i];
        if (cli_value(a, "--seed", &value)) {
            if (!cli_number("--seed", value, 0, UINT64_MAX, &o->options.seed)) return CLI_USAGE;
        } else if (cli_value(a, "--directions", &value)) {
            if (!cli_number("--directions", value, 1, 64, &n)) return CLI_USAGE;
            o->options.directions = (uint32_t)n;
        } else if (strcmp(a, "--no-second") == 0) {
            o->options.no_second = true;
        } else if (a[0] == '-') {
            return cli_fail(CLI_USAGE, "opcheck: unknown option %s", a);
        } else if (o->path) {
            return cli_fail(CLI_USAGE, "opcheck: two files: %s and %s", o->path, a);
        } else {
            o->path = a;
        }
    }
    return o->path ? CLI_OK : cli_fail(CLI_USAGE, "opcheck: which shared library?");
}

/* Opens the library. A name without a slash is a file of this folder, as for other commands. */
static void *open_library(const char *path)
{
    char file[4096];
    if ((size_t)snprintf(file, sizeof file, "%s%s", strchr(path, '/') ? "" : "./", path) >=
        sizeof file)
        return NULL;
    return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

/* Finds what the command calls in the library and in what it is linked with. */
static int find_calls(opcheck *o, void *library)
{
    void *at = dlsym(library, "deft_op_cases");
    if (!at)
        return cli_fail(CLI_INPUT, "%s exports no function deft_op_cases (deft/check.h)", o->path);
    memcpy(&o->cases, &at, sizeof at);
#define FIND(name)                                                                                 \
    at = dlsym(library, "deft_" #name);                                                            \
    if (!at) return cli_fail(CLI_INPUT, "%s is not linked with libdeft", o->path);                 \
    memcpy(&o->call.name, &at, sizeof at);
    CALLS(FIND)
#undef FIND
    return CLI_OK;
}

/* A deft_op_case_fn. */
static void check_case(void *user, const char *label, const deft_op *op, deft_tensor *const *in,
                       size_t n_in, const void *attributes)
{
    static char report[1 << 16];
    opcheck *const o = user;
    const deft_status st =
        o->call.op_check(o->cx, op, in, n_in, attributes, &o->options, report, sizeof report);
    const char *const name = op ? o->call.op_name(op) : "NULL";
    o->n_cases++;
    printf("%s%s%s%s: ", name, label ? " (" : "", label ? label : "", label ? ")" : "");
    if (st == DEFT_OK) {
        printf("ok\n");
        return;
    }
    o->n_faulty++;
    if (st != DEFT_E_CHECK) {
        printf("%s\n", o->call.message(o->cx));
        return;
    }
    printf("wrong\n");
    for (const char *line = report, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        if (!end) break; /* cut */
        printf("    %.*s\n", (int)(end - line), line);
    }
}

static int run_cases(opcheck *o)
{
    deft_status st = o->call.ctx_create(NULL, NULL, &o->cx);
    if (st != DEFT_OK)
        return cli_fail(CLI_FAILED, "opcheck: no context: %s", o->call.status_text(st));
    const deft_scope s = o->call.scope_begin(o->cx);
    st = o->cases(o->cx, check_case, o);
    const deft_status end = o->call.scope_end(s);
    int code = o->n_faulty ? CLI_FAILED : CLI_OK;
    if (st != DEFT_OK || end != DEFT_OK) {
        const char *const why = o->call.message(o->cx);
        code = cli_fail(CLI_INPUT, "%s: deft_op_cases: %s", o->path,
                        *why ? why : o->call.status_text(st != DEFT_OK ? st : end));
    } else if (!o->n_cases) {
        code = cli_fail(CLI_INPUT, "%s: deft_op_cases checks nothing", o->path);
    } else {
        printf("%u cases, %u with faults\n", o->n_cases, o->n_faulty);
    }
    o->call.ctx_destroy(&o->cx);
    return code;
}

int cli_opcheck(int argc, char **argv)
{
    opcheck o = { 0 };
    const int usage = opcheck_parse(argc, argv, &o);
    if (usage != CLI_OK) return usage;
    void *const library = open_library(o.path);
    if (!library) return cli_fail(CLI_INPUT, "opcheck: %s", dlerror());
    const int found = find_calls(&o, library);
    const int code = found == CLI_OK ? run_cases(&o) : found;
    (void)dlclose(library);
    return code;
}
