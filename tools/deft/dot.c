/* SPDX-License-Identifier: Apache-2.0
 *
 * deft dot: a trace and what the fuser made of it as Graphviz text; `dot` draws it. The same file
 * and options give the same bytes.
 *
 * A box around nodes is a segment: what one kernel, product or routine computes. A node that
 * several compute stands in the first of them. What no segment computes is an input, a number or a
 * view. What colours say stands in the labels too; they are those of Okabe and Ito, "Color
 * universal design", 2008, which all kinds of colour vision tell apart.
 */
#include "cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

typedef struct options {
    const char *path;
    cli_passes passes;
    bool fold;
} options;

typedef struct box {
    const df_plan *plan;
    const df_seg *seg;
    uint32_t launch, kernel; /* counted through all parts; kernel: DF_NONE where there is none */
} box;

typedef struct edge {
    uint32_t from, to; /* node of the trace, or n_nodes + box */
} edge;

typedef struct drawing {
    const df_trace *t;
    df_arena *arena;
    df_str out;
    DF_VEC(box) boxes;
    uint32_t *in;               /* per node: its box or DF_NONE */
    uint32_t launches, kernels; /* so far */
} drawing;

/* ---- boxes ---- */

static deft_status see_plan(df_plan *plan, void *user)
{
    drawing *const g = user;
    for (uint32_t l = 0; l < plan->n_launches; l++)
        for (uint32_t i = 0; i < plan->launches[l].n; i++) {
            const df_seg *const s = &plan->segs[plan->launches[l].first + i];
            const uint32_t k = s->kernel.i == DF_NONE ? DF_NONE : g->kernels + s->kernel.i;
            const box b = { plan, s, g->launches + l, k };
            if (!df_vec_push(&df_mem_system, &g->boxes, b)) return DEFT_E_MEMORY;
        }
    g->launches += plan->n_launches;
    g->kernels += plan->n_kernels;
    return DEFT_OK;
}

static bool place_nodes(drawing *g)
{
    g->in = df_arena_new(g->arena, uint32_t, (size_t)g->t->n_nodes + 1);
    if (!g->in) return false;
    for (uint32_t k = 0; k < g->t->n_nodes; k++) g->in[k] = DF_NONE;
    for (uint32_t b = 0; b < g->boxes.n; b++) {
        const box *const at = &g->boxes.at[b];
        for (uint32_t i = 0; i < at->seg->n_from; i++) {
            const uint32_t k = at->plan->from[at->seg->from + i];
            if (g->in[k] == DF_NONE) g->in[k] = b;
        }
    }
    return true;
}

/* ---- text ---- */

static const char *kind_of(const box *b, const char **colour)
{
    static const char *const modes[] = { "map", "row", "col", "loop" };
    static const char *const colours[] = { "#56B4E9", "#E69F00", "#009E73", "#CC79A7" };
    if (b->seg->kind == DF_SEG_MATMUL) {
        *colour = "#F0E442";
        return b->seg->kernel.i == DF_NONE ? "matmul" : "matmul with epilogue";
    }
    if (b->seg->kind == DF_SEG_ROUTINE) {
        *colour = "#D55E00";
        return "routine";
    }
    const uint8_t mode = b->plan->kernels[b->seg->kernel.i].mode;
    *colour = colours[mode];
    return modes[mode];
}

static void put_extents(df_str *out, const df_trace *t, uint32_t k)
{
    const df_node *const n = &t->nodes[k];
    df_str_fmt(out, "%s[", deft_dtype_name((deft_dtype)n->dtype));
    for (uint32_t i = 0; i < n->rank; i++)
        df_str_fmt(out, "%s%" PRId64, i ? "," : "", df_trace_extents(t, k)[i]);
    df_str_putc(out, ']');
}

static void put_node(drawing *g, uint32_t k, const char *indent)
{
    const df_op_info *const op = &df_op_infos[g->t->nodes[k].op];
    const bool is_leaf = op->cls == DF_CLASS_leaf;
    df_str_fmt(&g->out, "%sn%" PRIu32 " [label=\"%%%" PRIu32 " %s\\n", indent, k, k, op->name);
    put_extents(&g->out, g->t, k);
    df_str_fmt(&g->out, "\"%s];\n", is_leaf ? ", shape=ellipse" : "");
}

static void put_label(drawing *g, uint32_t b, const char **colour)
{
    const box *const at = &g->boxes.at[b];
    df_str_fmt(&g->out, "launch %" PRIu32 ": %s", at->launch, kind_of(at, colour));
    if (at->kernel != DF_NONE) df_str_fmt(&g->out, " k%" PRIu32, at->kernel);
}

static void put_box(drawing *g, uint32_t b)
{
    const char *colour = "";
    df_str_fmt(&g->out, "  subgraph cluster_%" PRIu32 " {\n    label=\"", b);
    put_label(g, b, &colour);
    df_str_fmt(&g->out, "\";\n    style=filled; color=\"#333333\"; fillcolor=\"%s\";\n", colour);
    for (uint32_t k = 0; k < g->t->n_nodes; k++)
        if (g->in[k] == b) put_node(g, k, "    ");
    df_str_put(&g->out, "  }\n");
}

/* The box as one node, which lists its ops, the last one with extents. */
static void put_folded(drawing *g, uint32_t b)
{
    enum { MOST_OPS = 12 };
    const char *colour = "";
    uint32_t n = 0, last = DF_NONE;
    df_str_fmt(&g->out, "  b%" PRIu32 " [label=\"", b);
    put_label(g, b, &colour);
    for (uint32_t k = 0; k < g->t->n_nodes; k++) {
        if (g->in[k] != b) continue;
        last = k;
        if (n++ >= MOST_OPS) continue;
        df_str_fmt(&g->out, "%s%s", n % 4 == 1 ? "\\n" : " ", df_op_infos[g->t->nodes[k].op].name);
    }
    if (n > MOST_OPS) df_str_fmt(&g->out, "\\nand %" PRIu32 " more", n - MOST_OPS);
    if (last != DF_NONE) {
        df_str_put(&g->out, "\\n");
        put_extents(&g->out, g->t, last);
    }
    df_str_fmt(&g->out, "\", style=filled, fillcolor=\"%s\"];\n", colour);
}

/* ---- edges ---- */

static uint32_t end_of(const drawing *g, uint32_t k, bool fold)
{
    return fold && g->in[k] != DF_NONE ? g->t->n_nodes + g->in[k] : k;
}

static void put_end(drawing *g, uint32_t end)
{
    if (end < g->t->n_nodes)
        df_str_fmt(&g->out, "n%" PRIu32, end);
    else
        df_str_fmt(&g->out, "b%" PRIu32, end - g->t->n_nodes);
}

static int by_ends(const void *a, const void *b)
{
    const edge *const x = a, *const y = b;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

static bool put_edges(drawing *g, bool fold)
{
    const df_trace *const t = g->t;
    size_t n = 0;
    edge *const edges = df_arena_new(g->arena, edge, 3 * (size_t)t->n_nodes + 1);
    if (!edges) return false;
    for (uint32_t k = 0; k < t->n_nodes; k++)
        for (uint32_t i = 0; i < t->nodes[k].n_src; i++) {
            const edge e = { end_of(g, t->nodes[k].src[i].i, fold), end_of(g, k, fold) };
            if (e.from != e.to) edges[n++] = e;
        }
    qsort(edges, n, sizeof *edges, by_ends);
    for (size_t i = 0; i < n; i++) {
        if (i && by_ends(&edges[i - 1], &edges[i]) == 0) continue;
        df_str_put(&g->out, "  ");
        put_end(g, edges[i].from);
        df_str_put(&g->out, " -> ");
        put_end(g, edges[i].to);
        df_str_put(&g->out, ";\n");
    }
    for (uint32_t r = 0; r < t->n_roots; r++) {
        df_str_fmt(&g->out, "  r%" PRIu32 " [label=\"output %" PRIu32 "%s\", shape=ellipse];\n  ",
                   r, r, t->roots[r].kind == DF_ROOT_INTO ? "\\ninto an input" : "");
        put_end(g, end_of(g, t->roots[r].node, fold));
        df_str_fmt(&g->out, " -> r%" PRIu32 ";\n", r);
    }
    return true;
}

/* ---- the command ---- */

static bool draw(drawing *g, bool fold)
{
    df_str_put(&g->out, "digraph trace {\n  node [shape=box, style=filled, fillcolor=white, "
                        "fontname=\"sans-serif\"];\n  fontname=\"sans-serif\";\n");
    for (uint32_t b = 0; b < g->boxes.n; b++) {
        if (fold)
            put_folded(g, b);
        else
            put_box(g, b);
    }
    for (uint32_t k = 0; k < g->t->n_nodes; k++)
        if (g->in[k] == DF_NONE) put_node(g, k, "  ");
    if (!put_edges(g, fold)) return false;
    df_str_put(&g->out, "}\n");
    return g->out.ok;
}

static int dot(cli_program *p, const options *o)
{
    static const df_limits limits = { .n_threads = 8,
                                      .max_body = DF_MAX_BODY,
                                      .l1_bytes = 32 << 10,
                                      .l2_bytes = 1 << 20,
                                      .over_bytes = DF_OVER_BYTES,
                                      .windows = true,
                                      .splits_columns = true };
    deft_status st = DEFT_OK;
    df_plan *plan = NULL;
    df_trace *t = NULL;
    drawing g = { .arena = &p->arena };
    df_limits asked = limits;
    asked.fuse = o->passes.fuse;
    df_str_init(&g.out, &df_mem_system);
    TRY(cli_simplify(p, &o->passes, &t));
    TRY(df_fuse(&p->diag, t, &asked, &df_mem_system, &plan));
    g.t = t;
    TRY(df_plan_each(plan, see_plan, &g));
    if (!place_nodes(&g) || !draw(&g, o->fold))
        TRY(df_fail(&p->diag, DEFT_E_MEMORY, "out of memory"));
    fputs(g.out.at, stdout);
done:
    df_plan_destroy(&plan, &df_mem_system);
    df_vec_finish(&df_mem_system, &g.boxes);
    df_str_finish(&g.out);
    return st == DEFT_OK ? CLI_OK : cli_status(&p->diag, st, p->path);
}

int cli_dot(int argc, char **argv)
{
    options o = { .passes = { DF_PASS_ALL, true } };
    for (int i = 1; i < argc; i++) {
        const char *const a = argv[i], *value;
        if (strcmp(a, "--fold") == 0)
            o.fold = true;
        else if (cli_value(a, "--passes", &value)) {
            if (!cli_passes_of(value, &o.passes)) return CLI_USAGE;
        } else if (a[0] == '-' && a[1] != '\0')
            return cli_fail(CLI_USAGE, "dot: unknown option %s", a);
        else if (o.path)
            return cli_fail(CLI_USAGE, "dot: two files: %s and %s", o.path, a);
        else
            o.path = a;
    }
    if (!o.path) return cli_fail(CLI_USAGE, "dot: which file?");
    cli_program p;
    int code = cli_program_read(&p, o.path, 0);
    if (code == CLI_OK) code = dot(&p, &o);
    cli_program_finish(&p);
    return code;
}
