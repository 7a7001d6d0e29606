/* SPDX-License-Identifier: Apache-2.0
 *
 * See store.h. Files are read and written as any program does it, through a context of their own.
 */
#include "store.h"

#include <stdio.h>
#include <string.h>

#include "deft/deft.h"

/* One tensor of a file. */
typedef struct item {
    char name[16];
    deft_dtype dtype;
    deft_shape shape;
    size_t bytes;
    char *data; /* row-major; NULL when it was not found */
} item;

typedef struct store {
    deft_ctx *cx;
    cli_program *p;
    const char *path;
    item *item;
    uint32_t n;
} store;

static item item_of(const df_trace *t, uint32_t node, const char *kind, uint32_t number, char *data)
{
    item x = { .dtype = (deft_dtype)t->nodes[node].dtype,
               .shape = { .rank = t->nodes[node].rank },
               .data = data };
    (void)snprintf(x.name, sizeof x.name, "%s%u", kind, number);
    for (uint32_t i = 0; i < t->nodes[node].rank; i++)
        x.shape.dim[i] = df_trace_extents(t, node)[i];
    x.bytes = (size_t)df_trace_numel(t, node) * deft_dtype_size(x.dtype);
    return x;
}

static int no_memory(const store *s)
{
    return cli_fail(CLI_INPUT, "%s: out of memory", s->path);
}

static int failed(const store *s, deft_status st)
{
    const char *const text = s->cx ? deft_message(s->cx) : "";
    return cli_fail(CLI_INPUT, "%s: %s", s->p->path, *text ? text : deft_status_text(st));
}

/* data: of each input (outputs: of each root), or NULL. */
static int open_store(store *s, cli_program *p, const char *path, bool outputs, char *const *data)
{
    const df_trace *const t = p->trace;
    const deft_runtime_options o = {
        .size = sizeof o, .n_threads = 1, .tier = DEFT_TIER_INTERPRET, .trace_dir = ""
    };
    *s = (store){ .p = p, .path = path, .n = outputs ? t->n_roots : t->n_inputs };
    s->item = df_arena_new(&p->arena, item, s->n);
    if (!s->item) return no_memory(s);
    for (uint32_t i = 0; i < s->n; i++)
        s->item[i] = item_of(t, outputs ? t->roots[i].node : t->inputs[i].node,
                             outputs ? "out" : "in", i, data ? data[i] : NULL);
    deft_runtime *rt = NULL;
    deft_status st = deft_runtime_create(&o, &rt);
    if (st == DEFT_OK) st = deft_ctx_create(rt, NULL, &s->cx);
    deft_runtime_destroy(&rt);
    return st == DEFT_OK ? CLI_OK : failed(s, st);
}

/* ---- reading ---- */

/* Reads the tensor `name` of the file for x. x->data stays NULL when there is none. */
static int read_item(const store *s, item *x, const char *name)
{
    const deft_scope scope = deft_scope_begin(s->cx);
    deft_tensor *const t = deft_zeros(s->cx, x->shape, x->dtype);
    char *const data = df_arena_alloc(&s->p->arena, x->bytes, 16);
    deft_status st = deft_load(s->cx, s->path, &(deft_named){ name, t }, 1);
    const bool absent = st == DEFT_E_NOT_FOUND;
    if (st == DEFT_OK && data) st = deft_read(t, x->dtype, data, x->bytes);
    const int code = st == DEFT_OK || absent ? CLI_OK : failed(s, st);
    st = deft_scope_end(scope);
    if (code == CLI_OK && st != DEFT_OK) return failed(s, st);
    if (code != CLI_OK || absent) return code;
    x->data = data;
    return data ? CLI_OK : no_memory(s);
}

static int read_items(store *s, uint32_t *n_found)
{
    /* Afterwards what is not found is a name, and not the file. */
    const deft_status st = deft_load(s->cx, s->path, NULL, 0);
    int code = st == DEFT_OK ? CLI_OK : failed(s, st);
    *n_found = 0;
    for (uint32_t i = 0; i < s->n && code == CLI_OK; i++) {
        code = read_item(s, &s->item[i], s->item[i].name);
        *n_found += s->item[i].data != NULL;
    }
    return code;
}

static int take(const store *s, char ***out)
{
    *out = df_arena_new(&s->p->arena, char *, s->n);
    if (!*out) return no_memory(s);
    for (uint32_t i = 0; i < s->n; i++) (*out)[i] = s->item[i].data;
    return CLI_OK;
}

int store_read_inputs(cli_program *p, const char *path, data_source *data)
{
    store s;
    uint32_t n_found = 0;
    char **input = NULL;
    int code = open_store(&s, p, path, false, NULL);
    if (code == CLI_OK) code = read_items(&s, &n_found);
    if (code == CLI_OK && s.n && !n_found)
        code = cli_fail(CLI_INPUT, "%s: no tensor of %s is an input: they are in0 to in%u", p->path,
                        path, s.n - 1);
    for (uint32_t i = 0; i < s.n && code == CLI_OK; i++)
        if (!s.item[i].data)
            (void)cli_fail(CLI_OK, "%s: there is no %s: generated", path, s.item[i].name);
    if (code == CLI_OK) code = take(&s, &input);
    data->input = input;
    deft_ctx_destroy(&s.cx);
    return code;
}

int store_read_input(cli_program *p, const char *path, const char *name, uint32_t input, char **out)
{
    store s;
    int code = open_store(&s, p, path, false, NULL);
    const deft_status st = code == CLI_OK ? deft_load(s.cx, path, NULL, 0) : DEFT_OK;
    if (st != DEFT_OK) code = failed(&s, st);
    if (code == CLI_OK) code = read_item(&s, &s.item[input], name);
    if (code == CLI_OK && !s.item[input].data)
        code = cli_fail(CLI_INPUT, "%s: there is no tensor '%s' in %s", p->path, name, path);
    if (code == CLI_OK) *out = s.item[input].data;
    deft_ctx_destroy(&s.cx);
    return code;
}

int store_read_outputs(cli_program *p, const char *path, run_results *out)
{
    store s;
    uint32_t n_found = 0;
    int code = open_store(&s, p, path, true, NULL);
    if (code == CLI_OK) code = read_items(&s, &n_found);
    for (uint32_t i = 0; i < s.n && code == CLI_OK; i++)
        if (!s.item[i].data)
            code = cli_fail(CLI_INPUT, "%s: there is no %s in %s", p->path, s.item[i].name, path);
    if (code == CLI_OK) code = take(&s, &out->root);
    deft_ctx_destroy(&s.cx);
    return code;
}

/* ---- writing ---- */

static int write_store(cli_program *p, const char *path, bool outputs, char *const *data)
{
    store s;
    int code = open_store(&s, p, path, outputs, data);
    deft_named *const list = df_arena_new(&p->arena, deft_named, s.n);
    if (code == CLI_OK && !list) code = no_memory(&s);
    if (code == CLI_OK) {
        const deft_scope scope = deft_scope_begin(s.cx);
        for (uint32_t i = 0; i < s.n; i++)
            list[i] =
                (deft_named){ s.item[i].name, deft_wrap(s.cx, s.item[i].shape, s.item[i].dtype,
                                                        s.item[i].data, s.item[i].bytes, NULL) };
        deft_status st = deft_save(s.cx, path, list, s.n);
        if (st != DEFT_OK) code = failed(&s, st);
        st = deft_scope_end(scope);
        if (st != DEFT_OK && code == CLI_OK) code = failed(&s, st);
    }
    deft_ctx_destroy(&s.cx);
    return code;
}

int store_write_inputs(cli_program *p, const char *path, const data_source *data)
{
    return write_store(p, path, false, data->input);
}

int store_write_outputs(cli_program *p, const char *path, const run_results *r)
{
    return write_store(p, path, true, r->root);
}
