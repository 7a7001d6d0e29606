/* SPDX-License-Identifier: Apache-2.0
 *
 * deft minimize: the smallest trace found that fails as the given one does.
 *
 * Rounds of edits, until none is accepted. A candidate is accepted when it fails in the same way
 * and is less than the best one so far, or as large and plainer; so rounds end.
 *
 *   nodes     subsets of what is computed, by halves, quarters, ... ; what is cut off becomes an
 *             input (delta debugging: Zeller and Hildebrandt, 2002)
 *   outputs   each alone is left out
 *   bypass    each node's users read its operand instead
 *   merge     users of a leaf read an earlier one of equal dtype and extents
 *   extents   all axes of n elements get 1, 2, n / 2
 *   details   numbers become 0, 1 or 2, attributes their plainest, inputs contiguous, owned
 *
 * Candidates are texts: what was tried is what is written.
 */
#include "shrink.h"
#include "trial.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ops/shape.h"

enum { MOST_SECONDS = 86400, MOST_TRIES = 1 << 30 };

typedef struct options {
    const char *path, *out;
    trial trial;
    uint64_t tries, megabytes;
} options;

typedef struct search {
    options *o;
    trial_result wanted; /* how it fails */
    df_arena arena[2];   /* of best, and of the candidate */
    df_trace *best;
    uint32_t n_tried;
    int code; /* of a trial that could not be made, or CLI_OK */
} search;

/* ---- options ---- */

static int parse(int argc, char **argv, options *o)
{
    *o = (options){ .trial = { .run = RUN_OPTIONS, .seconds = 60 }, .tries = 5000 };
    o->trial.run.tier = TIER_ALL;
    bool of_run = false;
    for (int i = 1; i < argc; i++) {
        const char *const a = argv[i], *value;
        bool ok = true, known = true;
        if (of_run)
            ok = run_option(&o->trial.run, a, &known) == CLI_OK;
        else if (strcmp(a, "--") == 0)
            of_run = true;
        else if (cli_value(a, "--out", &o->out) || cli_value(a, "--with", &o->trial.command))
            continue;
        else if (cli_value(a, "--timeout", &value))
            ok = cli_number("--timeout", value, 1, MOST_SECONDS, &o->trial.seconds);
        else if (cli_value(a, "--memory", &value))
            ok = cli_number("--memory", value, 0, UINT32_MAX, &o->megabytes);
        else if (cli_value(a, "--tries", &value))
            ok = cli_number("--tries", value, 0, MOST_TRIES, &o->tries);
        else if (a[0] == '-' && a[1] != '\0')
            known = false;
        else if (o->path)
            return cli_fail(CLI_USAGE, "minimize: two files: %s and %s", o->path, a);
        else
            o->path = a;
        if (!known) return cli_fail(CLI_USAGE, "minimize: unknown option %s", a);
        if (!ok) return CLI_USAGE;
    }
    o->trial.memory = o->megabytes << 20;
    if (!o->path) return cli_fail(CLI_USAGE, "minimize: which file?");
    return CLI_OK;
}

/* ---- candidates ---- */

static int try_trace(search *s, const df_trace *t, trial_result *out)
{
    df_str text;
    df_str_init(&text, &df_mem_system);
    df_trace_print(&text, t);
    const int code = text.ok ? trial_run(&s->o->trial, text.at, text.n, out)
                             : cli_fail(CLI_INPUT, "minimize: out of memory");
    df_str_finish(&text);
    s->n_tried++;
    return code;
}

/* What rounds make less, the most important first: ops, nodes, outputs, extents. */
typedef struct size_of_trace {
    uint64_t by[4];
} size_of_trace;

static size_of_trace measure(const df_trace *t)
{
    size_of_trace z = { { 0, t->n_nodes, t->n_roots, 0 } };
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        const df_node *const n = &t->nodes[k];
        z.by[0] += n->n_src > 0;
        for (uint32_t i = 0; i < n->rank; i++) z.by[3] += (uint64_t)df_trace_extents(t, k)[i];
        if (n->op == DF_OP_loop) z.by[3] += (uint64_t)t->args[n->arg];
    }
    return z;
}

static bool is_less(const df_trace *a, const df_trace *b)
{
    const size_of_trace x = measure(a), y = measure(b);
    for (size_t i = 0; i < DF_LEN(x.by); i++)
        if (x.by[i] != y.by[i]) return x.by[i] < y.by[i];
    return false;
}

static bool is_over(const search *s)
{
    return s->code != CLI_OK || s->n_tried >= s->o->tries;
}

/* Whether candidate, in arena[1] (NULL: there is none), fails as wanted; then it is the best. One
 * that must be less, and is not, is not tried. */
static bool accept(search *s, df_trace *candidate, bool must_be_less)
{
    trial_result r;
    bool fails = false;
    if (candidate && !is_over(s) && (!must_be_less || is_less(candidate, s->best))) {
        s->code = try_trace(s, candidate, &r);
        fails = s->code == CLI_OK && r.kind == s->wanted.kind;
    }
    if (fails) {
        const df_arena old = s->arena[0];
        s->arena[0] = s->arena[1];
        s->arena[1] = old;
        s->best = candidate;
        s->best->arena = &s->arena[0];
        s->wanted = r;
    }
    df_arena_finish(&s->arena[1]);
    return fails;
}

/* ---- nodes and outputs ---- */

/* What an edit keeps, all of it at first. Its memory outlives the candidates. */
typedef struct kept {
    df_arena arena;
    bool *node, *root;
    uint32_t *read;
} kept;

static bool kept_init(kept *k, const df_trace *t)
{
    df_arena_init(&k->arena, &df_mem_system);
    k->node = df_arena_new(&k->arena, bool, t->n_nodes);
    k->root = df_arena_new(&k->arena, bool, t->n_roots);
    k->read = df_arena_new(&k->arena, uint32_t, t->n_nodes);
    if (!k->node || !k->root || !k->read) return false;
    memset(k->node, true, t->n_nodes);
    memset(k->root, true, t->n_roots);
    for (uint32_t i = 0; i < t->n_nodes; i++) k->read[i] = i;
    return true;
}

static bool try_kept(search *s, const df_trace *t, const kept *k)
{
    df_trace *candidate = NULL;
    const shrink_keep keep = { k->node, k->read, k->root };
    df_diag d;
    if (is_over(s) || shrink_cut(&d, t, &keep, &s->arena[1], &candidate) != DEFT_OK)
        candidate = NULL;
    return accept(s, candidate, true);
}

/* t in other memory, where it may be changed or outlive better ones. */
static df_trace *copy_of(df_arena *arena, const df_trace *t)
{
    df_diag d;
    df_str text;
    df_trace *out = NULL;
    df_str_init(&text, &df_mem_system);
    df_trace_print(&text, t);
    if (!text.ok || df_trace_parse(&d, text.at, text.n, arena, &out) != DEFT_OK) out = NULL;
    df_str_finish(&text);
    return out;
}

/* The units in [from, to) alone (only), or all others. */
static bool try_units(search *s, const df_trace *t, kept *k, const uint32_t *unit, uint32_t n,
                      uint32_t from, uint32_t to, bool only)
{
    for (uint32_t i = 0; i < n; i++) k->node[unit[i]] = (i >= from && i < to) == only;
    return try_kept(s, t, k);
}

static uint32_t remove_units(uint32_t *unit, uint32_t n, uint32_t from, uint32_t to, bool only)
{
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++)
        if ((i >= from && i < to) == only) unit[m++] = unit[i];
    return m;
}

/* unit: the nodes that are still computed, of n. */
static bool shrink_units(search *s, const df_trace *t, kept *k, uint32_t *unit, uint32_t n)
{
    bool any = false;
    for (uint32_t parts = 2; n >= 2 && !is_over(s);) {
        bool less = false;
        /* With two parts, the one is what the other leaves. */
        for (int only = 1; only >= (parts == 2 ? 1 : 0) && !less; only--)
            for (uint32_t i = 0; i < parts && !less; i++) {
                const uint32_t from = (uint32_t)((uint64_t)n * i / parts);
                const uint32_t to = (uint32_t)((uint64_t)n * (i + 1) / parts);
                less = try_units(s, t, k, unit, n, from, to, only);
                if (!less) continue;
                /* What is cut off is forgotten by all that comes. */
                for (uint32_t j = 0; j < n; j++) k->node[unit[j]] = false;
                n = remove_units(unit, n, from, to, only);
                parts = only ? 2 : parts > 3 ? parts - 1 : 2;
            }
        any |= less;
        if (!less && parts >= n) break;
        if (!less) parts = 2 * parts < n ? 2 * parts : n;
    }
    return any;
}

static bool shrink_nodes(search *s)
{
    kept k;
    bool any = false;
    uint32_t n = 0;
    const bool ready = kept_init(&k, s->best);
    df_trace *const t = ready ? copy_of(&k.arena, s->best) : NULL;
    uint32_t *const unit = t ? df_arena_new(&k.arena, uint32_t, t->n_nodes) : NULL;
    if (unit) {
        for (uint32_t i = 0; i < t->n_nodes; i++)
            if (t->nodes[i].n_src) unit[n++] = i;
        any = shrink_units(s, t, &k, unit, n);
    }
    df_arena_finish(&k.arena);
    return any;
}

static bool shrink_outputs(search *s)
{
    bool any = false;
    for (uint32_t r = s->best->n_roots; r-- > 0 && !is_over(s);) {
        kept k;
        if (s->best->n_roots < 2 || r >= s->best->n_roots) continue;
        if (kept_init(&k, s->best)) {
            k.root[r] = false;
            any |= try_kept(s, s->best, &k);
        }
        df_arena_finish(&k.arena);
    }
    return any;
}

static bool alike(const df_trace *t, uint32_t a, uint32_t b)
{
    const df_node *const x = &t->nodes[a], *const y = &t->nodes[b];
    return x->dtype == y->dtype && x->rank == y->rank &&
           (x->rank == 0 ||
            memcmp(df_trace_extents(t, a), df_trace_extents(t, b), x->rank * sizeof(int64_t)) == 0);
}

/* Users of node i read node `instead`. */
static bool try_reading(search *s, uint32_t i, uint32_t instead)
{
    kept k;
    bool fails = false;
    if (kept_init(&k, s->best)) {
        for (uint32_t x = i; x < s->best->n_nodes; x++)
            if (k.read[x] == i) k.read[x] = instead;
        fails = try_kept(s, s->best, &k);
    }
    df_arena_finish(&k.arena);
    return fails;
}

static bool bypass(search *s)
{
    bool any = false;
    for (uint32_t i = s->best->n_nodes; i-- > 0 && !is_over(s);) {
        for (uint32_t j = 0; i < s->best->n_nodes && j < s->best->nodes[i].n_src; j++) {
            const df_node *const n = &s->best->nodes[i];
            const bool is_loop = df_op_infos[n->op].cls == DF_CLASS_control && n->op != DF_OP_cond;
            if (is_loop || !alike(s->best, i, n->src[j].i)) continue;
            if (!try_reading(s, i, n->src[j].i)) continue;
            any = true;
            break;
        }
    }
    return any;
}

static bool merge(search *s)
{
    bool any = false;
    for (uint32_t i = s->best->n_nodes; i-- > 1 && !is_over(s);) {
        for (uint32_t j = 0; i < s->best->n_nodes && j < i; j++) {
            const df_trace *const t = s->best;
            if (t->nodes[i].n_src || t->nodes[j].n_src || !alike(t, i, j)) continue;
            if (!try_reading(s, i, j)) continue;
            any = true;
            break;
        }
    }
    return any;
}

/* ---- extents ---- */

/* The largest extent, or number of iterations, below `below`; 1 when there is none. */
static int64_t next_extent(const df_trace *t, int64_t below)
{
    int64_t most = 1;
    for (uint32_t k = 0; k < t->n_nodes; k++) {
        for (uint32_t i = 0; i < t->nodes[k].rank; i++) {
            const int64_t n = df_trace_extents(t, k)[i];
            if (n < below && n > most) most = n;
        }
        const int64_t n = t->nodes[k].op == DF_OP_loop ? t->args[t->nodes[k].arg] : 1;
        if (n < below && n > most) most = n;
    }
    return most;
}

static bool try_extent(search *s, int64_t from, int64_t to)
{
    for (int margins = 0; margins < 2; margins++) {
        df_trace *candidate = NULL;
        df_diag d;
        if (shrink_extents(&d, s->best, from, to, margins != 0, &s->arena[1], &candidate) !=
            DEFT_OK)
            candidate = NULL;
        if (accept(s, candidate, true)) return true;
    }
    return false;
}

static bool shrink_axes(search *s)
{
    bool any = false;
    int64_t n = INT64_MAX;
    while ((n = next_extent(s->best, n)) > 1 && !is_over(s)) {
        bool less = try_extent(s, n, 1) || (n > 2 && try_extent(s, n, 2));
        /* A half may have a half. */
        while (!less && n > 5 && try_extent(s, n, n / 2)) {
            any = true;
            n /= 2;
        }
        any |= less;
    }
    return any;
}

/* ---- details ---- */

/* Bits of 0, 1, 2 as a number of dtype t. */
static uint64_t number_bits(deft_dtype t, int value)
{
    static const uint64_t floats[] = { 0, 0x3f800000, 0x40000000 };
    static const uint64_t doubles[] = { 0, 0x3ff0000000000000, 0x4000000000000000 };
    if (df_is_half(t)) return df_half_of_f32(t, (float)value);
    return t == DEFT_F32 ? floats[value] : t == DEFT_F64 ? doubles[value] : (uint64_t)value;
}

/* The how-manieth plainest number bits are; most of all others. */
static int plainness(deft_dtype t, uint64_t bits)
{
    for (int v = 0; v < 3; v++)
        if (number_bits(t, v) == bits) return v;
    return 3;
}

static bool put_number(uint64_t *bits, deft_dtype t, int value)
{
    if (plainness(t, *bits) <= value || (t == DEFT_BOOL && value > 1)) return false;
    *bits = number_bits(t, value);
    return true;
}

static bool put_args(int64_t *args, uint32_t n, uint32_t step, int64_t value)
{
    bool changed = false;
    for (uint32_t i = 0; i < n; i += step) {
        changed |= args[i] != value;
        args[i] = value;
    }
    return changed;
}

static bool put_attr(df_node *n, uint32_t attr)
{
    const bool changed = n->attr != attr;
    n->attr = attr;
    return changed;
}

static uint32_t identity_permutation(uint32_t rank)
{
    uint32_t attr = 0;
    for (uint32_t i = 0; i < rank; i++) attr |= i << 4 * i;
    return attr;
}

/* Makes node k of t plainer in its way-th way. false: it is, or there is no such way. */
static bool simplify_node(df_trace *t, uint32_t k, int way)
{
    df_node *const n = &t->nodes[k];
    int64_t *const args = t->args + n->arg;
    const bool is_float = df_is_float((deft_dtype)n->dtype);
    uint64_t bits;
    switch (n->op) {
    case DF_OP_num:
        bits = (uint64_t)args[0];
        if (way > 2 || !put_number(&bits, (deft_dtype)n->dtype, way)) return false;
        args[0] = (int64_t)bits;
        return true;
    case DF_OP_cst:
        bits = n->attr;
        if (way > 2 || !put_number(&bits, is_float ? DEFT_F32 : (deft_dtype)n->dtype, way))
            return false;
        return put_attr(n, (uint32_t)bits);
    case DF_OP_slice: {
        const uint32_t pairs = 2 * (uint32_t)n->rank;
        if (way == 0) {
            const bool starts = put_args(args, pairs, 2, 0),
                       steps = put_args(args + 1, pairs, 2, 1);
            return starts || steps;
        }
        if (way == 1) return put_args(args + 1, pairs, 2, 1);
        return way == 2 && put_args(args, pairs, 2, 0);
    }
    case DF_OP_random:
        if (way == 0) return put_args(args, 2, 1, 0);
        return way == 1 && put_attr(n, 0);
    case DF_OP_diagonal: return way == 0 && put_args(args, 1, 1, 0);
    case DF_OP_permute: return way == 0 && put_attr(n, identity_permutation(n->rank));
    case DF_OP_powi: {
        const int32_t power = (int32_t)n->attr;
        return way < 2 && (power < 1 || power > way + 1) && put_attr(n, (uint32_t)way + 1);
    }
    case DF_OP_polygamma: return way == 0 && put_attr(n, 1);
    case DF_OP_argsort:
    case DF_OP_topk:
    case DF_OP_which: return way == 0 && put_attr(n, 0);
    case DF_OP_input: {
        df_input *const in = &t->inputs[n->attr];
        const uint32_t flags = in->flags;
        if (way > 1) return false;
        if (way == 0) {
            in->flags &= (uint32_t)DF_INPUT_CONTIGUOUS;
            return in->flags != flags;
        }
        in->flags |= DF_INPUT_CONTIGUOUS; /* shrink_extents makes new strides then */
        return in->flags != flags;
    }
    default:
        return way == 0 && df_op_infos[n->op].cls == DF_CLASS_reduce &&
               put_attr(n, n->attr & ~DF_REDUCE_KEEPDIMS);
    }
}

static bool simplify_root(df_root *r)
{
    const bool changed = r->kind != DF_ROOT_NEW || r->donor != DF_NONE;
    r->kind = DF_ROOT_NEW;
    r->into = r->donor = DF_NONE;
    return changed;
}

/* Tries a copy of best in which edit changed something. */
static bool try_edit(search *s, uint32_t k, int way)
{
    df_diag d;
    df_trace *candidate = NULL;
    df_trace *const t = copy_of(&s->arena[1], s->best);
    const bool changed =
        t && (k < t->n_nodes ? simplify_node(t, k, way)
                             : way == 0 && simplify_root(&t->roots[k - t->n_nodes]));
    if (changed && shrink_extents(&d, t, 0, 0, false, &s->arena[1], &candidate) != DEFT_OK)
        candidate = NULL;
    return accept(s, candidate, false);
}

static bool simplify_details(search *s)
{
    enum { WAYS = 3 };
    bool any = false;
    for (uint32_t k = 0; k < s->best->n_nodes + s->best->n_roots && !is_over(s); k++)
        for (int way = 0; way < WAYS; way++) any |= try_edit(s, k, way);
    return any;
}

/* ---- all of it ---- */

static void shrink(search *s)
{
    static bool (*const edits[])(search *) = { shrink_nodes, shrink_outputs, bypass,
                                               merge,        shrink_axes,    simplify_details };
    for (bool any = true; any && !is_over(s);) {
        any = false;
        for (size_t i = 0; i < DF_LEN(edits) && !is_over(s); i++) any |= edits[i](s);
    }
}

static int write_result(const search *s, uint32_t n_before)
{
    const options *const o = s->o;
    int code = CLI_OK;
    df_str text;
    df_str_init(&text, &df_mem_system);
    df_str_fmt(&text, "# %u of %u nodes, %u candidates tried\n# fails: %s\n", s->best->n_nodes,
               n_before, s->n_tried, s->wanted.said);
    df_trace_print(&text, s->best);
    FILE *const f = o->out ? fopen(o->out, "w") : stdout;
    if (!text.ok)
        code = cli_fail(CLI_INPUT, "minimize: out of memory");
    else if (!f || fwrite(text.at, 1, text.n, f) != text.n)
        code = cli_fail(CLI_INPUT, "%s: %s", o->out ? o->out : "standard output", strerror(errno));
    if (o->out && f && fclose(f) != 0 && code == CLI_OK)
        code = cli_fail(CLI_INPUT, "%s: %s", o->out, strerror(errno));
    df_str_finish(&text);
    return code;
}

static int minimize(options *o, cli_program *p)
{
    search s = { .o = o, .best = p->trace };
    int code = CLI_OK;
    df_arena_init(&s.arena[0], &df_mem_system);
    df_arena_init(&s.arena[1], &df_mem_system);
    code = try_trace(&s, p->trace, &s.wanted);
    if (code == CLI_OK && s.wanted.kind == TRIAL_PASSES)
        code = cli_fail(CLI_FAILED, "%s: does not fail: there is nothing to minimize", o->path);
    if (code == CLI_OK) {
        s.best = copy_of(&s.arena[0], p->trace);
        if (!s.best) code = cli_fail(CLI_INPUT, "minimize: out of memory");
    }
    if (code == CLI_OK) {
        shrink(&s);
        code = s.code == CLI_OK ? write_result(&s, p->trace->n_nodes) : s.code;
    }
    df_arena_finish(&s.arena[0]);
    df_arena_finish(&s.arena[1]);
    return code;
}

/* The code generator is opened once, before any child: it starts no thread. Without one only the
 * interpreter is checked. */
static int open_compiler(options *o, cli_program *p, df_compiler *c, void **plugin)
{
    if (o->trial.command || o->trial.run.tier == 0) return CLI_OK;
    const deft_status st = df_plugin_open(&p->diag, &df_mem_system, NULL, NULL, 0, c, plugin);
    if (st == DEFT_OK) {
        o->trial.compiler = c;
        return CLI_OK;
    }
    if (o->trial.run.tier != TIER_ALL) return cli_status(&p->diag, st, o->path);
    (void)fprintf(stderr, "deft: only the interpreter is checked: %s\n", p->diag.text);
    o->trial.run.tier = 0;
    return CLI_OK;
}

int cli_minimize(int argc, char **argv)
{
    static options o;
    int code = parse(argc, argv, &o);
    if (code != CLI_OK) return code;
    cli_program p;
    df_compiler compiler = { 0 };
    void *plugin = NULL;
    code = cli_program_read(&p, o.path, o.trial.run.flags);
    if (code == CLI_OK && !o.trial.command && (p.trace->flags & DF_TRACE_FAST))
        code = cli_fail(CLI_USAGE, "minimize: fast numerics promise no bits: use --with");
    if (code == CLI_OK) code = open_compiler(&o, &p, &compiler, &plugin);
    if (code == CLI_OK) code = trial_init(&o.trial);
    if (code == CLI_OK) code = minimize(&o, &p);
    trial_finish(&o.trial);
    df_plugin_close(&compiler, &plugin);
    cli_program_finish(&p);
    return code;
}
