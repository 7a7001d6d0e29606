/* SPDX-License-Identifier: Apache-2.0
 *
 * random_updates [--quick | --full | COUNT [SEED]]: programs that write parts of one array from
 * parts of the same array, as text. Places overlap, are disjoint or equal as it comes; they are
 * stepped, flipped, permuted, diagonals; values are sums, reductions, products and lookups of what
 * is written; old and intermediate contents are read again later, or are results. The array is a
 * temporary, donated or the caller's (with gaps or without), or a fresh one made of pieces that
 * goes to the caller's memory, which the pieces may read. Maps over such pieces read them, the
 * array and other pieces with other boundaries; the maps are results, are written to the caller's
 * memory or that of a donor, and are changed in part afterwards.
 *
 * Each is planned and run as in test_fuser (support/fuse_check.h). Then the same program with other
 * bounds is given to that plan: it serves them with right values, or a guard says no.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/fuse_check.h"

enum { TEXT = 8192, MOST_PARTS = 4, VARIANTS = 3 };

typedef struct part {
    int64_t rows, columns; /* extents */
    int64_t step[2];
} part;

typedef struct program {
    char text[TEXT];
    size_t used;
    uint64_t shape;        /* state of the generator of what is the same in all variants */
    uint64_t bounds;       /* and of what is not */
    uint32_t n;            /* nodes */
    part usual;            /* extents that several places have */
    uint32_t aside;        /* an array of these extents that nobody writes */
    int64_t rows, columns; /* of the array */
    const char *dtype;
    bool is_real, is_half;
} program;

static long n_faults, n_served, n_guarded, n_staged;

static uint32_t draw(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % n);
}

static uint32_t pick(program *p, uint32_t n)
{
    return draw(&p->shape, n);
}

static void put(program *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    p->used += (size_t)vsnprintf(p->text + p->used, TEXT - p->used, fmt, ap);
    va_end(ap);
}

/* ---- parts ---- */

/* A start within an axis of n elements from which `extent` elements in steps fit. */
static int64_t start_of(program *p, int64_t n, int64_t extent, int64_t step)
{
    const int64_t reach = (extent - 1) * (step < 0 ? -step : step);
    const int64_t low = draw(&p->bounds, (uint32_t)(n - reach));
    return step < 0 ? low + reach : low;
}

static int64_t step_for(program *p, int64_t n, int64_t extent)
{
    const bool twice = (extent - 1) * 2 < n && pick(p, 8) == 0;
    return (twice ? 2 : 1) * (pick(p, 12) == 0 ? -1 : 1);
}

/* A slice of node `of` with these extents; returns its node. */
static uint32_t slice(program *p, uint32_t of, part x, const int64_t *start)
{
    put(p,
        "%%%" PRIu32 " = slice %s[%" PRId64 ",%" PRId64 "] %%%" PRIu32 " start=[%" PRId64
        ",%" PRId64 "] step=[%" PRId64 ",%" PRId64 "]\n",
        p->n, p->dtype, x.rows, x.columns, of, start[0], start[1], x.step[0], x.step[1]);
    return p->n++;
}

static uint32_t slice_anywhere(program *p, uint32_t of, part x)
{
    const int64_t start[2] = { start_of(p, p->rows, x.rows, x.step[0]),
                               start_of(p, p->columns, x.columns, x.step[1]) };
    return slice(p, of, x, start);
}

static uint32_t line(program *p, const char *fmt, ...)
{
    va_list ap;
    put(p, "%%%" PRIu32 " = ", p->n);
    va_start(ap, fmt);
    p->used += (size_t)vsnprintf(p->text + p->used, TEXT - p->used, fmt, ap);
    va_end(ap);
    return p->n++;
}

/* Something with the extents of x made of array `of`. */
static uint32_t operand(program *p, uint32_t of, part x)
{
    part y = x;
    uint32_t a, b;
    y.step[0] = step_for(p, p->rows, y.rows);
    y.step[1] = step_for(p, p->columns, y.columns);
    switch (pick(p, 12)) {
    case 0: /* sums of rows */
        a = slice_anywhere(p, of, y);
        a = line(p, "sum %s[%" PRId64 ",1] %%%" PRIu32 " axes=[1] keepdims\n", p->dtype, x.rows, a);
        return line(p, "expand %s[%" PRId64 ",%" PRId64 "] %%%" PRIu32 "\n", p->dtype, x.rows,
                    x.columns, a);
    case 1: /* a column, along all of x's */
        y.columns = 1;
        a = slice_anywhere(p, of, y);
        return line(p, "expand %s[%" PRId64 ",%" PRId64 "] %%%" PRIu32 "\n", p->dtype, x.rows,
                    x.columns, a);
    case 2: /* transposed */
        if (x.columns > p->rows || x.rows > p->columns) break;
        y = (part){ x.columns, x.rows, { 1, 1 } };
        a = slice_anywhere(p, of, y);
        return line(p, "permute %s[%" PRId64 ",%" PRId64 "] %%%" PRIu32 " perm=[1,0]\n", p->dtype,
                    x.rows, x.columns, a);
    case 3: /* a product */
        if (!p->is_real) break;
        a = slice_anywhere(p, of, (part){ x.rows, 3, { 1, 1 } });
        b = slice_anywhere(p, of, (part){ 3, x.columns, { 1, 1 } });
        return line(p, "matmul %s[%" PRId64 ",%" PRId64 "] %%%" PRIu32 " %%%" PRIu32 "\n", p->dtype,
                    x.rows, x.columns, a, b);
    case 4: /* a running sum; fuse_check adds up halves as halves */
        if (p->is_half) break;
        a = slice_anywhere(p, of, y);
        return line(p, "cumsum %s[%" PRId64 ",%" PRId64 "] %%%" PRIu32 " axis=1\n", p->dtype,
                    x.rows, x.columns, a);
    default: break;
    }
    return slice_anywhere(p, of, y);
}

/* ---- programs ---- */

static uint32_t write_part(program *p, uint32_t array, uint32_t older)
{
    const bool is_diagonal = p->rows == p->columns && pick(p, 10) == 0;
    part x = { 1 + pick(p, (uint32_t)p->rows), 1 + pick(p, (uint32_t)p->columns), { 1, 1 } };
    if (pick(p, 3) == 0) x = p->usual;
    if (pick(p, 4) == 0) x.columns = 1;
    if (pick(p, 4) == 0) x.rows = p->rows;
    if (pick(p, 4) == 0) x.columns = p->columns;
    x.step[0] = step_for(p, p->rows, x.rows);
    x.step[1] = step_for(p, p->columns, x.columns);
    if (is_diagonal) {
        const uint32_t d = line(p, "diagonal %s[%" PRId64 "] %%%" PRIu32 " axes=[0,1] offset=0\n",
                                p->dtype, p->rows, array);
        const part c = { p->rows, 1, { 1, 1 } };
        uint32_t v = slice_anywhere(p, array, c);
        v = line(p, "squeeze %s[%" PRId64 "] %%%" PRIu32 " axes=[1]\n", p->dtype, p->rows, v);
        v = line(p, "add %s[%" PRId64 "] %%%" PRIu32 " %%%" PRIu32 "\n", p->dtype, p->rows, v, d);
        return line(
            p, "update %s[%" PRId64 ",%" PRId64 "] %%%" PRIu32 " %%%" PRIu32 " %%%" PRIu32 "\n",
            p->dtype, p->rows, p->columns, array, v, d);
    }
    const uint32_t place = slice_anywhere(p, array, x);
    const bool is_own = pick(p, 3) != 0; /* else it waits for nothing that was written */
    uint32_t value = !is_own ? operand(p, p->aside, x) : pick(p, 3) ? place : operand(p, array, x);
    for (uint32_t i = pick(p, 3); i-- > 0;) {
        const uint32_t from = !is_own ? (pick(p, 2) ? p->aside : 0) : pick(p, 5) ? array : older;
        const uint32_t o = operand(p, from, x);
        value = line(p, "%s %s[%" PRId64 ",%" PRId64 "] %%%" PRIu32 " %%%" PRIu32 "\n",
                     pick(p, 2) ? "add" : "maximum", p->dtype, x.rows, x.columns, value, o);
    }
    return line(p, "update %s[%" PRId64 ",%" PRId64 "] %%%" PRIu32 " %%%" PRIu32 " %%%" PRIu32 "\n",
                p->dtype, p->rows, p->columns, array, value, place);
}

/* A fresh array of pieces side by side. */
static uint32_t write_pieces(program *p)
{
    const uint32_t axis = pick(p, 2);
    const int64_t all = axis ? p->columns : p->rows;
    const int64_t n = 1 + pick(p, 3), least = all / n;
    uint32_t array = line(p, "empty %s[%" PRId64 ",%" PRId64 "]\n", p->dtype, p->rows, p->columns);
    for (int64_t i = 0; i < n; i++) {
        const int64_t extent = i + 1 < n ? least : all - i * least;
        const int64_t start[2] = { axis ? 0 : i * least, axis ? i * least : 0 };
        const part x = { axis ? p->rows : extent, axis ? extent : p->columns, { 1, 1 } };
        const uint32_t place = slice(p, array, x, start);
        uint32_t value = operand(p, pick(p, 2) ? p->aside : 0, x);
        if (pick(p, 2))
            value = line(p, "add %s[%" PRId64 ",%" PRId64 "] %%%" PRIu32 " %%%" PRIu32 "\n",
                         p->dtype, x.rows, x.columns, value, slice(p, 0, x, start));
        array = line(
            p, "update %s[%" PRId64 ",%" PRId64 "] %%%" PRIu32 " %%%" PRIu32 " %%%" PRIu32 "\n",
            p->dtype, p->rows, p->columns, array, value, place);
    }
    return array;
}

/* A map over pieces, of their extents. The pieces of two arrays have boundaries of their own. */
static uint32_t map_pieces(program *p, uint32_t pieces)
{
    const part all = { p->rows, p->columns, { 1, 1 } };
    const int64_t zero[2] = { 0, 0 };
    for (uint32_t i = 1 + pick(p, 3); i-- > 0;) {
        const uint32_t what = pick(p, 5);
        const uint32_t with = what == 0   ? write_pieces(p)
                              : what == 1 ? operand(p, p->aside, all)
                              : what == 2 ? slice(p, p->aside, all, zero)
                                          : 0;
        pieces = line(p, "%s %s[%" PRId64 ",%" PRId64 "] %%%" PRIu32 " %%%" PRIu32 "\n",
                      pick(p, 2) ? "add" : "maximum", p->dtype, p->rows, p->columns, pieces, with);
    }
    return pieces;
}

static void write_program(program *p, uint64_t seed, uint64_t variant)
{
    static const char *const dtypes[] = { "f32", "f64", "f16", "i64" };
    static const char *const kinds[] = { "",         " sole", " wrapped", "",
                                         " wrapped", " sole", " wrapped" };
    memset(p, 0, sizeof *p);
    p->shape = seed * 2654435761u + 1;
    p->bounds = (seed * 31 + variant) * 40503 + 7;
    const uint32_t type = pick(p, 4), kind = pick(p, 7);
    p->dtype = dtypes[type];
    p->is_real = type < 2;
    p->is_half = type == 2;
    p->rows = 3 + pick(p, 5);
    p->columns = pick(p, 3) ? 3 + pick(p, 5) : p->rows;
    put(p, "%%%" PRIu32 " = input %s[%" PRId64 ",%" PRId64 "]", p->n++, p->dtype, p->rows,
        p->columns);
    const bool is_caller = kind == 2 || kind == 4 || kind == 6;
    if (is_caller && pick(p, 2)) /* rows with a gap between them */
        put(p, " strides=[%" PRId64 ",1]", p->columns + 1 + pick(p, 3));
    put(p, "%s\n", kinds[kind]);
    p->usual = (part){ 1 + pick(p, 3), 1 + pick(p, 3), { 1, 1 } };
    p->aside = line(p, "input %s[%" PRId64 ",%" PRId64 "]\n", p->dtype, p->rows, p->columns);
    uint32_t array = 0, older = 0, other = DF_NONE, held = DF_NONE;
    if (kind == 3)
        array = older =
            line(p, "neg %s[%" PRId64 ",%" PRId64 "] %%0\n", p->dtype, p->rows, p->columns);
    if (kind >= 4) array = write_pieces(p);
    if (kind >= 5) array = map_pieces(p, array);
    for (uint32_t i = (kind < 4) + (kind < 5 ? pick(p, MOST_PARTS) : pick(p, 2)); i-- > 0;) {
        const uint32_t before = array;
        array = write_part(p, array, older);
        if (pick(p, 3) == 0) older = before;
        if (pick(p, 10) == 0) held = array;
        if (pick(p, 3)) continue;
        const part x = { 1 + pick(p, (uint32_t)p->rows),
                         1 + pick(p, (uint32_t)p->columns),
                         { 1, 1 } };
        const uint32_t from = slice_anywhere(p, pick(p, 2) ? array : before, x);
        other = line(p, "sum %s[%" PRId64 "] %%%" PRIu32 " axes=[1]\n", p->dtype, x.rows, from);
    }
    put(p, "output %%%" PRIu32 "%s\n", array,
        kind == 1 || (kind == 5 && pick(p, 4)) ? " donor %0"
        : is_caller && pick(p, 5)              ? " into %0"
                                               : "");
    if (other != DF_NONE) put(p, "output %%%" PRIu32 "\n", other);
    if (held != DF_NONE && held != array) put(p, "output %%%" PRIu32 "\n", held);
}

/* ---- checks ---- */

static void fault(const program *p, uint64_t seed, const char *what, const fuse_result *r)
{
    n_faults++;
    printf("program %" PRIu64 ": %s: %s\n%s\n", seed, what, r->text, p->text);
}

static void check(uint64_t seed)
{
    static program first, other;
    fuse_result r;
    write_program(&first, seed, 0);
    if (first.used >= TEXT) return;
    const uint32_t n_threads = 1 + (uint32_t)(seed % 3);
    r = fuse_check(first.text, n_threads);
    if (!r.ok || r.retreated) fault(&first, seed, "its own plan", &r);
    n_staged += r.n_staged > 0;
    for (uint64_t v = 1; v <= VARIANTS && r.ok; v++) {
        write_program(&other, seed, v);
        const int serves = fuse_serves(first.text, other.text, n_threads, &r);
        n_served += serves == 1;
        n_guarded += serves == 0;
        if (serves < 0) fault(&other, seed, "another key", &r);
        if (serves != 1) r.ok = true;
        if (!r.ok) {
            fault(&other, seed, "the plan of another's bounds", &r);
            printf("planned for:\n%s\n", first.text);
        }
    }
}

int main(int argc, char **argv)
{
    uint64_t count = 3000, first = 0;
    if (argc > 1 && strcmp(argv[1], "--quick") == 0)
        count = 300;
    else if (argc > 1 && strcmp(argv[1], "--full") == 0)
        count = 200000;
    else if (argc > 1)
        count = strtoull(argv[1], NULL, 10);
    if (argc > 2) first = strtoull(argv[2], NULL, 10);
    for (uint64_t seed = first; seed < first + count && n_faults < 10; seed++) check(seed);
    printf("%" PRIu64
           " programs, %ld with staged parts; of other bounds %ld served, %ld refused by "
           "guards; %ld faults\n",
           count, n_staged, n_served, n_guarded, n_faults);
    return n_faults || n_staged * 20 < (long)count || n_served == 0 || n_guarded == 0 ? 1 : 0;
}
