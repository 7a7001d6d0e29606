/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints docs/ops.md from ops.def. docs/ops.md is checked in; the test "fresh docs/ops.md" says
 * when it is stale.
 */
#include <stdio.h>
#include <string.h>

#include "ops/op.h"

typedef struct row {
    const char *name, *cls, *dtype, *shape, *how, *what, *batch, *doc;
    int n_src;
} row;

static const row rows[] = {
#define OP(id, n, class, facets) { .name = #id, .n_src = n, .cls = #class, facets },
#define DTYPE(rule) .dtype = #rule,
#define SHAPE(rule) .shape = #rule,
#define LOWER(way, name) .how = #way, .what = #name,
#define BATCH(way, name) .batch = BATCH_##way(name),
#define BATCH_signature(text) "`" text "`"
#define BATCH_rule(name) #name
#define DOC(text) .doc = text,
#include "ops/ops.def"
};

static const char *const titles[][2] = {
    { "leaf", "Leaves" },
    { "unary", "Unary" },
    { "binary", "Binary" },
    { "ternary", "Ternary" },
    { "reduce", "Reductions" },
    { "scan", "Scans" },
    { "view", "Views" },
    { "index", "Indexing" },
    { "update", "Updates" },
    { "contract", "Contraction" },
    { "routine", "Routines of the runtime" },
};

static const char *const dtype_rules[][2] = {
    { "none",
      "there are no operands, and the dtype of the record is free (`iota`, `random`: i64)" },
    { "same", "operands and result have one dtype, any" },
    { "arith",
      "one dtype, not bool; of the integers `sum`, `prod` and `cumsum` take i64 and u64 only" },
    { "floating", "one dtype, a float" },
    { "wide", "one dtype, f32 or f64" },
    { "integral", "one dtype, bool or an integer; shifts: an integer" },
    { "compare", "operands of one dtype, the result is bool" },
    { "boolean", "bool in, bool out" },
    { "test", "the operand is a float, the result bool" },
    { "cast", "any to any" },
    { "bits", "operand and result have as many bits; neither is bool" },
    { "select", "bool, then two operands of the result's dtype" },
    { "index", "the first operand has the result's dtype, the second is i64" },
    { "scatter",
      "as index; the third operand also has the dtype of the result. It is bool or a half only "
      "where values are set" },
    { "to_index", "any operand, the result is i64" },
    { "count", "any operand, the result is f32 or f64" },
};

static const char *const shape_rules[][2] = {
    { "given", "the record carries its extents" },
    { "same", "the operand's" },
    { "broadcast", "all operands broadcast, right-aligned; an extent of 1 stretches" },
    { "reduce", "the operand's without the reduced axes, or with extents of 1 (`keepdims`)" },
    { "slice", "carried; start, step and extent stay inside each axis" },
    { "permute", "the operand's, reordered" },
    { "expand", "carried; the operand broadcasts to it" },
    { "reshape", "carried; the same number of elements" },
    { "squeeze", "without the named axes, whose extents are 1" },
    { "unsqueeze", "with extents of 1 at the named positions" },
    { "diagonal", "carried; the other axes, then the diagonal's length" },
    { "matmul", "[..., M, K] and [..., K, N] give [..., M, N]; batch axes equal" },
    { "take", "the axis is replaced by the axes of the indices" },
    { "gather", "that of the indices; equal rank, no axis but the gathered one longer" },
    { "update", "that of the first operand; the value has the shape of the place" },
    { "scatter_add",
      "that of the first operand; the indices obey the rule of gather, values have their shape" },
    { "index_add",
      "that of the first operand; values have the shape that take has at the indices" },
    { "order", "the operand's, whose last axis has less than 2^32 elements" },
};

static const char *const batch_rules[][2] = {
    { "none", "it depends on no operand, and therefore on no example" },
    { "random", "one draw for all examples, each with elements of its own" },
    { "count", "the axes in the attribute move by one; the number is the same for all" },
    { "axes, axis", "the axes in the attribute move by one" },
    { "slice, permute, expand, reshape, diagonal", "the same view of each example" },
    { "take, index_add",
      "the axis moves by one; where each example has indices of its own, `gather` and "
      "`scatter_add` of elements" },
    { "update", "the same place in each example" },
    { "which", "computed by `cumsum` and `scatter_add`" },
};

static void put_rules(const char *title, const char *const (*rules)[2], size_t n)
{
    printf("\n## %s\n\n| rule | meaning |\n|---|---|\n", title);
    for (size_t i = 0; i < n; i++) printf("| %s | %s |\n", rules[i][0], rules[i][1]);
}

int main(void)
{
    puts("<!-- Written by tools/gen_ops from src/ops/ops.def. -->");
    puts("# Operators of a trace\n");
    puts("Every record of a trace is one of these. The public functions are built from them.");
    puts("[promotion](promotion.md) says which casts they insert, so that a record obeys its dtype "
         "rule.");
    puts("The lowering `kop x` means one kernel op. `recipe` is a straight line of kernel ops that "
         "all");
    puts("back ends share, `body` a short one in `bodies.c`. The fuser writes all others.");
    for (size_t c = 0; c < sizeof titles / sizeof *titles; c++) {
        printf("\n## %s\n\n| op | operands | dtypes | shape | lowering | examples | meaning |\n",
               titles[c][1]);
        puts("|---|---|---|---|---|---|---|");
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            const row *const r = &rows[i];
            if (strcmp(r->cls, titles[c][0]) != 0) continue;
            printf("| `%s` | %d | %s | %s | %s%s%s | %s | ", r->name, r->n_src, r->dtype, r->shape,
                   r->how, strcmp(r->how, "kop") == 0 ? " " : "",
                   strcmp(r->how, "kop") == 0 ? r->what : "", r->batch);
            for (const char *at = r->doc; *at; at++) printf(*at == '|' ? "\\%c" : "%c", *at);
            puts(" |");
        }
    }
    put_rules("Dtype rules", dtype_rules, sizeof dtype_rules / sizeof *dtype_rules);
    put_rules("Shape rules", shape_rules, sizeof shape_rules / sizeof *shape_rules);
    put_rules("Rules for an axis of examples", batch_rules,
              sizeof batch_rules / sizeof *batch_rules);
    puts("\nA signature names the axes of one operation; axes before them repeat it "
         "([vmap](vmap.md)).");
    return fflush(stdout) == 0 ? 0 : 1;
}
