/* SPDX-License-Identifier: Apache-2.0
 *
 * deft api --json and deft ops --json: the interface and the operators for programs that read them,
 * such as generators of bindings. docs/api-json.md describes both. The build makes the first text
 * from the public headers (tools/gen_api), and this file makes the second from ops.def.
 */
#include "cli.h"

#include <stdio.h>
#include <string.h>

#include "api_text.h"
#include "ops/op.h"

int cli_api(int argc, char **argv)
{
    if (argc != 2 || strcmp(argv[1], "--json") != 0)
        return cli_fail(CLI_USAGE, "api: the only form is deft api --json");
    fputs(api_text, stdout);
    return CLI_OK;
}

typedef struct op_row {
    const char *name, *cls, *dtype, *shape, *how, *what, *mixed, *grad, *batch_how, *batch_what,
        *doc;
    int n_src;
} op_row;

static const op_row op_rows[] = {
#define OP(id, n, class, facets) { .name = #id, .n_src = n, .cls = #class, facets },
#define DTYPE(rule) .dtype = #rule,
#define SHAPE(rule) .shape = #rule,
#define LOWER(way, body) .how = #way, .what = #body,
#define MIXED(way) .mixed = #way,
#define GRAD(rule) .grad = #rule,
#define BATCH(way, rule) .batch_how = #way, .batch_what = BATCH_##way(rule),
#define BATCH_signature(text) text
#define BATCH_rule(rule) #rule
#define DOC(text) .doc = text,
#include "ops/ops.def"
};
_Static_assert(DF_LEN(op_rows) == DF_N_OPS, "a row for each operator");

static void put_text(const char *name, const char *text, const char *after)
{
    printf("\"%s\": \"", name);
    for (const char *at = text; *at; at++) {
        if (*at == '"' || *at == '\\') putchar('\\');
        putchar(*at);
    }
    printf("\"%s", after);
}

/* A rule of the table; null where the operator has none. */
static void put_rule(const char *name, const char *rule)
{
    if (strcmp(rule, "none") == 0)
        printf("\"%s\": null, ", name);
    else
        put_text(name, rule, ", ");
}

int cli_ops_json(void)
{
    printf("{\n \"ops\": [\n");
    for (size_t i = 0; i < DF_LEN(op_rows); i++) {
        const op_row *const r = &op_rows[i];
        printf("  {");
        put_text("name", r->name, ", ");
        printf("\"operands\": %d, ", r->n_src);
        put_text("class", r->cls, ", ");
        put_text("dtype_rule", r->dtype, ", ");
        put_text("shape_rule", r->shape, ", ");
        put_rule("gradient", r->grad);
        put_text("batch", r->batch_how, ", ");
        put_rule("batch_rule", r->batch_what);
        put_text("mixed", r->mixed, ", ");
        put_text("lowering", r->how, ", ");
        put_rule("lowered_to", r->what);
        put_text("doc", r->doc, i + 1 < DF_LEN(op_rows) ? "},\n" : "}\n");
    }
    printf(" ]\n}\n");
    return CLI_OK;
}
