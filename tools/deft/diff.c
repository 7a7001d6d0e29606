/* SPDX-License-Identifier: Apache-2.0
 *
 * deft diff: the first thing in which two traces differ, where it stands in both files and was
 * called from, and what it did to guards and kernels.
 */
#include "align.h"
#include "cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/vec.h"

/* As of diff(1). */
enum { EQUAL = 0, DIFFERENT = 1, TROUBLE = 2 };

enum { MOST_GUARDS = 10 }; /* lines per side */

typedef struct side {
    cli_program program;
    uint32_t *node_line, *root_line; /* of the file, from 1 */
    const char **node_text, **root_text;
    df_trace *simplified;
    df_plan *plan;
    DF_VEC(const df_kernel *) kernels;
    uint32_t launches, segments;
} side;

typedef struct comparison {
    side s[2];
    align_step *steps;
    uint32_t n_steps;
    uint32_t *partner; /* per node of the first: its node of the second, or DF_NONE */
    df_str out;
    bool is_told; /* the first difference */
} comparison;

/* ---- lines ---- */

/* Where each node and root stands: statements keep their order. */
static bool find_lines(side *s)
{
    const df_trace *const t = s->program.trace;
    df_arena *const a = &s->program.arena;
    s->node_line = df_arena_new(a, uint32_t, (size_t)t->n_nodes + 1);
    s->root_line = df_arena_new(a, uint32_t, (size_t)t->n_roots + 1);
    s->node_text = df_arena_new(a, const char *, (size_t)t->n_nodes + 1);
    s->root_text = df_arena_new(a, const char *, (size_t)t->n_roots + 1);
    if (!s->node_line || !s->root_line || !s->node_text || !s->root_text) return false;
    const char *at = s->program.text, *const end = at + s->program.size;
    uint32_t nodes = 0, roots = 0;
    for (uint32_t line = 1; at < end; line++) {
        const char *next = memchr(at, '\n', (size_t)(end - at));
        if (!next) next = end;
        while (at < next && (*at == ' ' || *at == '\t')) at++;
        if (at < next && *at == '%' && nodes < t->n_nodes) {
            s->node_text[nodes] = at;
            s->node_line[nodes++] = line;
        } else if (at < next && *at == 'o' && roots < t->n_roots) {
            s->root_text[roots] = at;
            s->root_line[roots++] = line;
        }
        at = next + 1;
    }
    return true;
}

static int length_of(const side *s, const char *line)
{
    const char *const end = s->program.text + s->program.size;
    const char *const newline = memchr(line, '\n', (size_t)(end - line));
    int n = (int)((newline ? newline : end) - line);
    while (n > 0 && (line[n - 1] == '\r' || line[n - 1] == ' ')) n--;
    return n;
}

/* What follows "# at " in a line; its length, 0 when there is none. */
static int site_of(const side *s, const char *line, const char **site)
{
    const int n = length_of(s, line);
    const char *const mark = memmem(line, (size_t)n, "# at ", 5);
    *site = mark ? mark + 5 : "";
    return mark ? (int)(line + n - *site) : 0;
}

static void put_line(df_str *out, const side *s, uint32_t number, const char *line)
{
    df_str_fmt(out, "%s:%" PRIu32 ": %.*s\n", s->program.path, number, length_of(s, line), line);
}

/* Both lines of a pair (DF_NONE: this side has none), and where they were called from. */
static void put_lines(comparison *c, const align_step *at, bool is_root)
{
    const uint32_t k[2] = { at->a, at->b };
    const char *site[2] = { "", "" };
    int n[2] = { 0, 0 };
    for (int i = 0; i < 2; i++) {
        const side *const s = &c->s[i];
        if (k[i] == DF_NONE) continue;
        const char *const line = is_root ? s->root_text[k[i]] : s->node_text[k[i]];
        put_line(&c->out, s, is_root ? s->root_line[k[i]] : s->node_line[k[i]], line);
        n[i] = site_of(s, line, &site[i]);
    }
    if (n[0] && n[1])
        df_str_fmt(&c->out, "called at %.*s and at %.*s\n", n[0], site[0], n[1], site[1]);
    else if (n[0] || n[1])
        df_str_fmt(&c->out, "called at %.*s\n", n[0] + n[1], n[0] ? site[0] : site[1]);
}

/* ---- two nodes ---- */

/* Attributes of node k as text, in the program's arena: what follows its operands. */
static const char *attributes(side *s, uint32_t k)
{
    df_str text;
    df_str_init(&text, &df_mem_system);
    df_trace_print_node(&text, s->program.trace, k);
    const char *at = text.ok ? text.at : "";
    for (uint32_t i = 0; i < 2u + s->program.trace->nodes[k].n_src && *at; i++) {
        at += strcspn(at, " ");
        at += *at == ' ';
    }
    /* "op dtype[..]" is two words */
    const char *const copy = df_arena_strdup(&s->program.arena, *at ? at : "nothing");
    df_str_finish(&text);
    return copy ? copy : "";
}

static bool same_extents(const df_trace *a, const df_trace *b, const align_step *at, uint32_t *axis)
{
    for (*axis = 0; *axis < a->nodes[at->a].rank; ++*axis)
        if (df_trace_extents(a, at->a)[*axis] != df_trace_extents(b, at->b)[*axis]) return false;
    return true;
}

static bool same_operands(const comparison *c, const align_step *at, uint32_t *which)
{
    const df_node *const x = &c->s[0].program.trace->nodes[at->a];
    const df_node *const y = &c->s[1].program.trace->nodes[at->b];
    for (*which = 0; *which < x->n_src; ++*which)
        if (c->partner[x->src[*which].i] != y->src[*which].i) return false;
    return true;
}

/* Whether the nodes of a pair are alike; the first difference is told. */
static bool compare_pair(comparison *c, const align_step *at)
{
    const df_trace *const a = c->s[0].program.trace, *const b = c->s[1].program.trace;
    const df_node *const x = &a->nodes[at->a], *const y = &b->nodes[at->b];
    const char *const op = df_op_infos[x->op].name;
    const char *const mine = attributes(&c->s[0], at->a), *const other =
                                                              attributes(&c->s[1], at->b);
    const bool same_text = strcmp(mine, other) == 0;
    df_str *const out = &c->out;
    const size_t n = out->n;
    uint32_t i = 0;
    if (x->op != y->op)
        df_str_fmt(out, "op: %s and %s\n", op, df_op_infos[y->op].name);
    else if (x->dtype != y->dtype)
        df_str_fmt(out, "dtype: %s: %s and %s\n", op, deft_dtype_name((deft_dtype)x->dtype),
                   deft_dtype_name((deft_dtype)y->dtype));
    else if (x->rank == y->rank && !same_text && x->op != DF_OP_input)
        df_str_fmt(out, "%s: %s: %s and %s\n", x->attr != y->attr ? "attribute" : "argument", op,
                   mine, other);
    else if (!same_operands(c, at, &i))
        df_str_fmt(out, "operand: %s: operand %" PRIu32 " is %%%" PRIu32 " and %%%" PRIu32 "\n", op,
                   i + 1, x->src[i].i, y->src[i].i);
    else if (x->rank != y->rank)
        df_str_fmt(out, "rank: %s: %u and %u\n", op, x->rank, y->rank);
    else if (!same_extents(a, b, at, &i))
        df_str_fmt(out, "extent: %s: axis %" PRIu32 " has %" PRId64 " and %" PRId64 " elements\n",
                   op, i, df_trace_extents(a, at->a)[i], df_trace_extents(b, at->b)[i]);
    else if (!same_text)
        df_str_fmt(out, "input: %s and %s\n", mine, other);
    if (out->n == n) return true;
    if (c->is_told) {
        out->n = n;
        out->at[n] = '\0';
    } else {
        c->is_told = true;
        put_lines(c, at, false);
    }
    return false;
}

static bool compare_single(comparison *c, const align_step *at)
{
    const int i = at->a == DF_NONE;
    const uint32_t k = i ? at->b : at->a;
    if (c->is_told) return false;
    c->is_told = true;
    df_str_fmt(&c->out, "node: %s is only in %s\n",
               df_op_infos[c->s[i].program.trace->nodes[k].op].name, c->s[i].program.path);
    put_lines(c, at, false);
    return false;
}

/* ---- the rest of a trace ---- */

static const char *mode_of(const df_trace *t)
{
    static const char *const modes[] = { "strict", "fast", "nofuse", "fast nofuse" };
    return modes[t->flags & (DF_TRACE_FAST | DF_TRACE_NOFUSE)];
}

static void compare_headers(comparison *c)
{
    const df_trace *const a = c->s[0].program.trace, *const b = c->s[1].program.trace;
    if (a->flags == b->flags) return;
    c->is_told = true;
    df_str_fmt(&c->out, "header: %s and %s\n", mode_of(a), mode_of(b));
}

static bool same_input(const comparison *c, uint32_t x, uint32_t y)
{
    if (x == DF_NONE || y == DF_NONE) return x == y;
    return c->partner[c->s[0].program.trace->inputs[x].node] ==
           c->s[1].program.trace->inputs[y].node;
}

static void compare_roots(comparison *c)
{
    const df_trace *const a = c->s[0].program.trace, *const b = c->s[1].program.trace;
    for (uint32_t r = 0; (r < a->n_roots || r < b->n_roots) && !c->is_told; r++) {
        const align_step at = { r < a->n_roots ? r : DF_NONE, r < b->n_roots ? r : DF_NONE };
        if (r < a->n_roots && r < b->n_roots) {
            const df_root *const x = &a->roots[r], *const y = &b->roots[r];
            if (c->partner[x->node] == y->node && same_input(c, x->into, y->into) &&
                same_input(c, x->donor, y->donor))
                continue;
        }
        c->is_told = true;
        df_str_fmt(&c->out, "output: number %" PRIu32 "%s\n", r + 1,
                   r < a->n_roots && r < b->n_roots ? "" : " is only in one");
        put_lines(c, &at, true);
    }
}

/* Whether all is alike. */
static bool compare_traces(comparison *c)
{
    uint32_t alike = 0, changed = 0, only[2] = { 0, 0 };
    compare_headers(c);
    for (uint32_t i = 0; i < c->n_steps; i++) {
        const align_step *const at = &c->steps[i];
        if (at->a == DF_NONE || at->b == DF_NONE) {
            only[at->a == DF_NONE] += 1;
            (void)compare_single(c, at);
        } else if (compare_pair(c, at)) {
            alike++;
        } else {
            changed++;
        }
    }
    compare_roots(c);
    df_str_fmt(&c->out,
               "nodes: %" PRIu32 " alike, %" PRIu32 " changed, %" PRIu32 " only in %s, %" PRIu32
               " only in %s\n",
               alike, changed, only[0], c->s[0].program.path, only[1], c->s[1].program.path);
    return !c->is_told;
}

/* ---- guards and kernels ---- */

static deft_status see_plan(df_plan *plan, void *user)
{
    side *const s = user;
    s->launches += plan->n_launches;
    s->segments += plan->n_segs;
    for (uint32_t k = 0; k < plan->n_kernels; k++)
        if (!df_vec_push(&df_mem_system, &s->kernels, &plan->kernels[k]))
            return df_fail_mem(&s->program.diag, "kernels", sizeof *s->kernels.at);
    return DEFT_OK;
}

/* The fuser is told of the same machine as in `opt`. */
static int make_plan(side *s)
{
    static const cli_passes all = { DF_PASS_ALL, true };
    static const df_limits limits = { .n_threads = 8,
                                      .max_body = DF_MAX_BODY,
                                      .l1_bytes = 32 << 10,
                                      .l2_bytes = 1 << 20,
                                      .over_bytes = DF_OVER_BYTES,
                                      .fuse = true,
                                      .windows = true,
                                      .splits_columns = true };
    deft_status st = DEFT_OK;
    TRY(cli_simplify(&s->program, &all, &s->simplified));
    TRY(df_fuse(&s->program.diag, s->simplified, &limits, &df_mem_system, &s->plan));
    TRY(df_plan_each(s->plan, see_plan, s));
done:
    if (st == DEFT_OK) return EQUAL;
    (void)cli_status(&s->program.diag, st, s->program.path);
    return TROUBLE;
}

/* Lines of text that are not in other, as many as there are room for. */
static void put_only(df_str *out, const char *text, const char *other, const char *path)
{
    uint32_t n = 0;
    for (const char *at = text; *at;) {
        const size_t size = strcspn(at, "\n");
        bool found = false;
        for (const char *b = other; *b && !found;) {
            const size_t m = strcspn(b, "\n");
            found = m == size && memcmp(at, b, m) == 0;
            b += m + (b[m] == '\n');
        }
        if (!found && n < MOST_GUARDS)
            df_str_fmt(out, "guard only in %s: %.*s\n", path, (int)size, at);
        n += !found;
        at += size + (at[size] == '\n');
    }
    if (n > MOST_GUARDS) df_str_fmt(out, "and %" PRIu32 " more\n", n - MOST_GUARDS);
}

static bool compare_guards(comparison *c)
{
    df_str text[2];
    for (int i = 0; i < 2; i++) {
        const df_plan *const p = c->s[i].plan;
        df_str_init(&text[i], &df_mem_system);
        df_str_put(&text[i], "");
        df_guard_print(&text[i], p->guards, p->n_guards, p->slots, c->s[i].simplified);
    }
    const bool ok = text[0].ok && text[1].ok;
    const char *const a = text[0].at ? text[0].at : "", *const b = text[1].at ? text[1].at : "";
    df_str_fmt(&c->out, "guards: %" PRIu32 " and %" PRIu32 "\n", c->s[0].plan->n_guards,
               c->s[1].plan->n_guards);
    put_only(&c->out, a, b, c->s[0].program.path);
    put_only(&c->out, b, a, c->s[1].program.path);
    df_str_finish(&text[0]);
    df_str_finish(&text[1]);
    return ok;
}

/* The first kernel of s that other has not, or has less often. */
static const df_kernel *first_of_its_own(const side *s, const side *other, uint32_t *number)
{
    for (uint32_t i = 0; i < s->kernels.n; i++) {
        const df_key *const key = &s->kernels.at[i]->key;
        uint32_t mine = 0, theirs = 0;
        for (uint32_t j = 0; j <= i; j++)
            mine += df_hash_equal(s->kernels.at[j]->key.hash, key->hash);
        for (uint32_t j = 0; j < other->kernels.n; j++)
            theirs += df_hash_equal(other->kernels.at[j]->key.hash, key->hash);
        if (mine <= theirs) continue;
        *number = i;
        return s->kernels.at[i];
    }
    return NULL;
}

static const char *kernel_text(side *s, const df_kernel *k)
{
    df_str text;
    df_str_init(&text, &df_mem_system);
    df_kernel_print(&text, k);
    const char *const copy = text.ok ? df_arena_strdup(&s->program.arena, text.at) : NULL;
    df_str_finish(&text);
    return copy ? copy : "";
}

static bool same_head(const char *a, const char *b)
{
    const size_t n = strcspn(a, "\n");
    return n == strcspn(b, "\n") && memcmp(a, b, n) == 0;
}

/* The first lines of two kernels that are not equal. */
static void put_first_line(comparison *c, const char *a, const char *b)
{
    size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
    while (*a && *b && n == m && memcmp(a, b, n) == 0) {
        a += n + (a[n] == '\n');
        b += m + (b[m] == '\n');
        n = strcspn(a, "\n");
        m = strcspn(b, "\n");
    }
    df_str_fmt(&c->out, "its first other line in %s: %.*s\n", c->s[0].program.path, (int)n, a);
    df_str_fmt(&c->out, "its first other line in %s: %.*s\n", c->s[1].program.path, (int)m, b);
}

static void compare_kernels(comparison *c)
{
    const side *const a = &c->s[0], *const b = &c->s[1];
    df_str_fmt(&c->out,
               "kernels: %zu and %zu, segments: %" PRIu32 " and %" PRIu32 ", launches: %" PRIu32
               " and %" PRIu32 "\n",
               a->kernels.n, b->kernels.n, a->segments, b->segments, a->launches, b->launches);
    const char *text[2] = { NULL, NULL };
    for (int i = 0; i < 2; i++) {
        uint32_t number = 0;
        const df_kernel *const k = first_of_its_own(&c->s[i], &c->s[1 - i], &number);
        if (!k) continue;
        text[i] = kernel_text(&c->s[i], k);
        df_str_fmt(&c->out, "first kernel only in %s: k%" PRIu32 " %.*s\n", c->s[i].program.path,
                   number, (int)strcspn(text[i], "\n"), text[i]);
    }
    /* That of the heads stands there already. */
    if (text[0] && text[1] && same_head(text[0], text[1])) put_first_line(c, text[0], text[1]);
}

/* ---- the command ---- */

static int load(side *s, const char *path)
{
    if (cli_program_read(&s->program, path, 0) != CLI_OK) return TROUBLE;
    if (find_lines(s)) return EQUAL;
    (void)cli_fail(TROUBLE, "%s: out of memory", path);
    return TROUBLE;
}

static bool pair_nodes(comparison *c)
{
    df_arena *const a = &c->s[0].program.arena;
    const df_trace *const x = c->s[0].program.trace;
    c->steps = align(x, c->s[1].program.trace, a, &c->n_steps);
    c->partner = df_arena_new(a, uint32_t, (size_t)x->n_nodes + 1);
    if (!c->steps || !c->partner) return false;
    for (uint32_t k = 0; k < x->n_nodes; k++) c->partner[k] = DF_NONE;
    for (uint32_t i = 0; i < c->n_steps; i++)
        if (c->steps[i].a != DF_NONE) c->partner[c->steps[i].a] = c->steps[i].b;
    return true;
}

/* On a terminal the first line, which names the difference, is bold. */
static void put_out(const char *text)
{
    const int n = (int)strcspn(text, "\n");
    if (cli_has_colour(STDOUT_FILENO))
        printf("\033[1m%.*s\033[0m%s", n, text, text + n);
    else
        fputs(text, stdout);
}

static int compare(comparison *c)
{
    if (!pair_nodes(c)) return cli_fail(TROUBLE, "diff: out of memory");
    const bool equal = compare_traces(c);
    if (equal) {
        df_str_finish(&c->out);
        df_str_fmt(&c->out, "equal: %" PRIu32 " nodes\n", c->n_steps);
    } else {
        df_key key[2];
        for (int i = 0; i < 2; i++) {
            side *const s = &c->s[i];
            if (df_trace_key(&s->program.diag, s->program.trace, &key[i]) != DEFT_OK)
                return cli_fail(TROUBLE, "diff: %s", s->program.diag.text);
            const int code = make_plan(s);
            if (code != EQUAL) return code;
        }
        df_str_fmt(&c->out, "keys: %s\n",
                   df_hash_equal(key[0].hash, key[1].hash) ? "equal" : "differ");
        if (!compare_guards(c)) return cli_fail(TROUBLE, "diff: out of memory");
        compare_kernels(c);
    }
    if (!c->out.ok) return cli_fail(TROUBLE, "diff: out of memory");
    put_out(c->out.at);
    return equal ? EQUAL : DIFFERENT;
}

int cli_diff(int argc, char **argv)
{
    if (argc > 1 && argv[1][0] == '-' && argv[1][1] != '\0')
        return cli_fail(TROUBLE, "diff: unknown option %s", argv[1]);
    if (argc != 3) return cli_fail(TROUBLE, "diff: which two files?");
    comparison c = { .is_told = false };
    df_str_init(&c.out, &df_mem_system);
    int code = load(&c.s[0], argv[1]);
    const bool is_loaded = code == EQUAL;
    if (is_loaded) code = load(&c.s[1], argv[2]);
    if (code == EQUAL) code = compare(&c);
    df_str_finish(&c.out);
    for (int i = 0; i < 1 + is_loaded; i++) {
        df_vec_finish(&df_mem_system, &c.s[i].kernels);
        df_plan_destroy(&c.s[i].plan, &df_mem_system);
        cli_program_finish(&c.s[i].program);
    }
    return code;
}
