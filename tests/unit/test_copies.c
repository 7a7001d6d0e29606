/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces of joined arrays whose rows are copied together, and short rows that are read in another
 * order (runtime/row_copies.h), through the public API. Values are compared with copies in C. A
 * hook in the device counts the segments that are copied in this way, so that each condition is
 * seen on both sides.
 */
#include "base/bits.h"
#include "support/harness.h"

#include <stdlib.h>
#include <string.h>

#include "lazy/core/context.h"

static rig r;
static uint64_t n_copied;
static deft_status (*real_run)(df_device *, df_diag *, const df_plan *, const df_trace *,
                               const int64_t *, df_launch_io *, df_run_stats *);

static deft_status counted(df_device *dev, df_diag *d, const df_plan *p, const df_trace *t,
                           const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    const deft_status st = real_run(dev, d, p, t, slots, io, stats);
    n_copied += stats->copied_segments;
    return st;
}

static void open_on(uint32_t n_threads)
{
    const deft_runtime_options o = { .size = sizeof o, .n_threads = n_threads };
    rig_open(&r, &o, NULL);
    real_run = r.rt->dev->run;
    r.rt->dev->run = counted;
}

static void set_up(void)
{
    open_on(2);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(copies, .init = set_up, .fini = tear_down);

/* ---- pieces ---- */

/* How a piece shows the array that it is made of. */
typedef enum shown {
    WHOLE,    /* all of it */
    COLUMNS,  /* all but the first column and the last two */
    REVERSED, /* the last column first */
    REPEATED, /* its only column, several times */
    NEGATED   /* all of it, but computed: with the other sign */
} shown;

enum { MOST = 24, BLOCK = 8 };

/* An array of rows x columns elements in C, and what the program makes of it. */
typedef struct side {
    deft_dtype t;
    int64_t rows;
    bool is_deep; /* blocks of BLOCK rows, each behind a row that no piece shows */
    deft_tensor *part[MOST];
    char *want[MOST]; /* rows of the piece */
    int64_t width[MOST];
    int n;
} side;

/* Adds a piece of this width. Elements differ, and no byte of them makes a NaN. */
static void add_piece(side *s, int64_t width, shown how)
{
    const size_t size = deft_dtype_size(s->t);
    const int64_t columns = how == COLUMNS ? width + 3 : how == REPEATED ? 1 : width;
    const int64_t held = s->is_deep ? s->rows / BLOCK * (BLOCK + 1) : s->rows;
    const size_t bytes = (size_t)(held * columns) * size;
    char *const data = malloc(bytes), *const want = malloc((size_t)(s->rows * width) * size);
    cr_assert(data && want);
    for (size_t i = 0; i < bytes; i++)
        data[i] = s->t == DEFT_BOOL ? (char)(i % 7 == 2)
                                    : (char)((i * 2654435761u >> 11) + (size_t)s->n) & 0x3f;
    for (int64_t i = 0; i < s->rows; i++) {
        const int64_t row = s->is_deep ? i / BLOCK * (BLOCK + 1) + 1 + i % BLOCK : i;
        for (int64_t j = 0; j < width; j++) {
            const int64_t k = how == COLUMNS    ? j + 1
                              : how == REVERSED ? width - 1 - j
                              : how == REPEATED ? 0
                                                : j;
            memcpy(want + (size_t)(i * width + j) * size, data + (size_t)(row * columns + k) * size,
                   size);
            const size_t first = (size_t)(i * width + j) * size; /* byte of the element */
            if (how == NEGATED) want[first + (DF_IS_BIG_ENDIAN ? 0 : size - 1)] ^= (char)0x80;
        }
    }
    const deft_shape flat = DEFT_SHAPE(s->rows, columns);
    const deft_shape deep = DEFT_SHAPE(s->rows / BLOCK, BLOCK + 1, columns);
    const int axis = s->is_deep ? 2 : 1;
    deft_tensor *x = deft_from(r.cx, s->is_deep ? deep : flat, s->t, data, bytes);
    OK(&r, deft_eval(&x, 1));
    if (s->is_deep) x = deft_slice(x, DEFT_FULL, DEFT_R(1, BLOCK + 1), DEFT_FULL);
    if (how == COLUMNS && s->is_deep)
        x = deft_slice(x, DEFT_FULL, DEFT_FULL, DEFT_R(1, width + 1));
    else if (how == COLUMNS)
        x = deft_slice(x, DEFT_FULL, DEFT_R(1, width + 1));
    if (how == REVERSED) x = deft_flip(x, DEFT_AXES(axis));
    if (how == REPEATED)
        x = deft_expand(x, s->is_deep ? DEFT_SHAPE(s->rows / BLOCK, BLOCK, width)
                                      : DEFT_SHAPE(s->rows, width));
    if (how == NEGATED) x = deft_neg(x);
    free(data);
    s->part[s->n] = x;
    s->width[s->n] = width;
    s->want[s->n++] = want;
}

/* Joins all pieces, compares the rows, and returns how many segments were copied together. */
static int join(side *s)
{
    const size_t size = deft_dtype_size(s->t);
    size_t pitch = 0;
    for (int i = 0; i < s->n; i++) pitch += (size_t)s->width[i] * size;
    char *const got = malloc(pitch * (size_t)s->rows);
    cr_assert(got);
    n_copied = 0;
    deft_tensor *y = deft_concat(s->part, (size_t)s->n, s->is_deep ? 2 : 1);
    OK(&r, deft_eval(&y, 1));
    const int copied = (int)n_copied;
    OK(&r, deft_read(y, s->t, got, pitch * (size_t)s->rows));
    for (int64_t i = 0; i < s->rows; i++) {
        const char *at = got + pitch * (size_t)i;
        for (int k = 0; k < s->n; k++) {
            const size_t bytes = (size_t)s->width[k] * size;
            cr_assert(!memcmp(at, s->want[k] + bytes * (size_t)i, bytes),
                      "%s: row %lld of piece %d of %d", deft_dtype_name(s->t), (long long)i, k,
                      s->n);
            at += bytes;
        }
    }
    for (int k = 0; k < s->n; k++) free(s->want[k]);
    s->n = 0;
    free(got);
    return copied;
}

/* Joins pieces that are whole arrays. */
static int join_whole(deft_dtype t, int64_t rows, int n, const int64_t *width)
{
    side s = { .t = t, .rows = rows };
    const deft_scope scope = deft_scope_begin(r.cx);
    for (int i = 0; i < n; i++) add_piece(&s, width[i], WHOLE);
    const int copied = join(&s);
    OK(&r, deft_scope_end(scope));
    return copied;
}

/* ---- which pieces are copied ---- */

Test(copies, elements_of_any_size)
{
    static const deft_dtype types[] = { DEFT_U8,  DEFT_I8,  DEFT_F16, DEFT_BF16, DEFT_I32,
                                        DEFT_F32, DEFT_I64, DEFT_F64, DEFT_C64,  DEFT_C128 };
    static const int64_t width[] = { 3, 40, 17, 1, 256 };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int n = 2; n <= 5; n++)
            cr_expect_eq(join_whole(types[i], 300, n, width), n, "%d pieces of %s", n,
                         deft_dtype_name(types[i]));
}

Test(copies, bools_keep_the_code_that_makes_them_0_or_1)
{
    cr_expect_eq(join_whole(DEFT_BOOL, 300, 2, (const int64_t[]){ 40, 30 }), 0);
}

Test(copies, only_of_many_short_rows)
{
    static const int64_t width[] = { 40, 30 }, most[] = { 8192, 8192 }, more[] = { 8192, 8193 };
    cr_expect_eq(join_whole(DEFT_F32, 64, 2, width), 2);
    cr_expect_eq(join_whole(DEFT_F32, 63, 2, width), 0);
    cr_expect_eq(join_whole(DEFT_F32, 100, 2, most), 2);
    cr_expect_eq(join_whole(DEFT_F32, 100, 2, more), 0);
}

Test(copies, sixteen_pieces_are_written_together)
{
    int64_t width[MOST];
    for (int i = 0; i < MOST; i++) width[i] = 5 + 7 * (i % 4);
    cr_expect_eq(join_whole(DEFT_I16, 200, 16, width), 16);
    cr_expect_eq(join_whole(DEFT_I16, 200, 17, width), 16);
    cr_expect_eq(join_whole(DEFT_I16, 200, 20, width), 20);
}

/* More thin pieces than may be written together, before the wide one with which they are. */
Test(copies, many_thin_pieces_before_a_wide_one)
{
    int64_t width[MOST];
    for (int i = 0; i < MOST; i++) width[i] = i < 17 ? 3 : 50;
    cr_expect_eq(join_whole(DEFT_F32, 200, 18, width), 18);
    cr_expect_eq(join_whole(DEFT_F32, 200, 17, width), 16);
}

static int join_shown(bool is_deep, int n, const shown *how, const int64_t *width)
{
    side s = { .t = DEFT_F32, .rows = 1000, .is_deep = is_deep };
    const deft_scope scope = deft_scope_begin(r.cx);
    for (int i = 0; i < n; i++) add_piece(&s, width[i], how[i]);
    const int copied = join(&s);
    OK(&r, deft_scope_end(scope));
    return copied;
}

Test(copies, views_with_gaps_and_thin_ones_in_any_order)
{
    static const int64_t width[] = { 2, 60, 16, 100 };
    static const shown thin[] = { REVERSED, WHOLE, REPEATED, COLUMNS },
                       wide[] = { REVERSED, REVERSED, REPEATED, COLUMNS };
    for (int deep = 0; deep < 2; deep++) {
        cr_expect_eq(join_shown(deep, 4, thin, width), 4, "deep %d", deep);
        cr_expect_eq(join_shown(deep, 4, wide, width), 3, "deep %d", deep);
    }
}

/* A computed piece has code of its own, beside pieces that are copied. */
Test(copies, of_pieces_beside_computed_ones)
{
    static const int64_t width[] = { 3, 60, 50, 5 };
    static const shown thin[] = { NEGATED, WHOLE, WHOLE, NEGATED },
                       wide[] = { WHOLE, NEGATED, WHOLE, REVERSED };
    cr_expect_eq(join_shown(false, 4, thin, width), 2);
    cr_expect_eq(join_shown(false, 4, wide, width), 3);
}

/* Stacked rows lie one after the other. */
Test(copies, rows_of_stacked_arrays)
{
    enum { ROWS = 500, COLUMNS_OF_ALL = 37, PARTS = 3 };
    static float x[PARTS][ROWS][COLUMNS_OF_ALL], got[ROWS][PARTS][COLUMNS_OF_ALL];
    deft_tensor *part[PARTS];
    for (int p = 0; p < PARTS; p++) {
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS_OF_ALL; j++)
                x[p][i][j] = (float)((i * COLUMNS_OF_ALL + j) * PARTS + p);
        part[p] = deft_from(r.cx, DEFT_SHAPE(ROWS, COLUMNS_OF_ALL), DEFT_F32, x[p], sizeof x[p]);
    }
    OK(&r, deft_eval(part, PARTS));
    n_copied = 0;
    OK(&r, deft_read(deft_stack(part, PARTS, 1), DEFT_F32, got, sizeof got));
    cr_expect_eq(n_copied, 3);
    for (int i = 0; i < ROWS; i++)
        for (int p = 0; p < PARTS; p++)
            cr_assert(!memcmp(got[i][p], x[p][i], sizeof x[p][i]), "row %d of part %d", i, p);
}

/* One thread writes the same rows. */
Test(copies, on_one_thread)
{
    rig_close(&r);
    open_on(1);
    cr_expect_eq(join_whole(DEFT_F32, 777, 3, (const int64_t[]){ 9, 300, 33 }), 3);
}

Test(copies, nothing_that_goes_around_the_caches)
{
    rig_close(&r);
    setenv("DEFT_STREAM_BYTES", "1", 1);
    open_on(2);
    cr_expect_eq(join_whole(DEFT_F32, 300, 2, (const int64_t[]){ 400, 300 }), 0);
}

/* ---- short rows ---- */

/* How the taps of windows are shown: from the last one on, every `step`-th row and column. */
typedef struct taps {
    int64_t kernel[2], step[2];
} taps;

/* Exchanges filters and channels of windows, reverses taps, and compares the elements with those in
 * C. Returns how many segments were copied. */
static int exchange(deft_dtype t, int64_t filters, int64_t channels, const taps *w)
{
    const size_t size = deft_dtype_size(t);
    const int64_t rows = w->kernel[0], columns = w->kernel[1], n_taps = rows * columns;
    const int64_t seen[2] = { (rows - 1) / w->step[0] + 1, (columns - 1) / w->step[1] + 1 };
    const size_t n = (size_t)(filters * channels * n_taps);
    char *const x = malloc(n * size), *const got = malloc(n * size);
    cr_assert(x && got);
    for (size_t i = 0; i < n * size; i++) x[i] = (char)((i * 2654435761u >> 11) & 0x3f);
    deft_tensor *y = deft_from(r.cx, DEFT_SHAPE(filters, channels, rows, columns), t, x, n * size);
    OK(&r, deft_eval(&y, 1));
    y = deft_slice(deft_flip(y, DEFT_AXES(2, 3)), DEFT_FULL, DEFT_FULL,
                   DEFT_RS(0, rows, w->step[0]), DEFT_RS(0, columns, w->step[1]));
    y = deft_permute(y, DEFT_AXES(1, 0, 2, 3));
    n_copied = 0;
    OK(&r, deft_eval(&y, 1));
    const int copied = (int)n_copied;
    OK(&r, deft_read(y, t, got, (size_t)(filters * channels * seen[0] * seen[1]) * size));
    const char *at = got;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t f = 0; f < filters; f++)
            for (int64_t i = 0; i < seen[0]; i++)
                for (int64_t j = 0; j < seen[1]; j++, at += size) {
                    const int64_t tap =
                        (rows - 1 - i * w->step[0]) * columns + columns - 1 - j * w->step[1];
                    const int64_t from = (f * channels + c) * n_taps + tap;
                    cr_assert(!memcmp(at, x + (size_t)from * size, size),
                              "%s: channel %lld, filter %lld, row %lld, column %lld",
                              deft_dtype_name(t), (long long)c, (long long)f, (long long)i,
                              (long long)j);
                }
    free(x);
    free(got);
    return copied;
}

Test(copies, short_rows_in_another_order)
{
    static const deft_dtype types[] = { DEFT_U8, DEFT_BF16, DEFT_F32, DEFT_F64 };
    static const taps windows[] = {
        { { 3, 3 }, { 1, 1 } }, { { 4, 4 }, { 1, 1 } }, { { 3, 3 }, { 2, 2 } },
        { { 3, 2 }, { 2, 1 } }, { { 5, 5 }, { 1, 1 } }, { { 1, 7 }, { 1, 2 } },
    };
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
        rig_close(&r);
        open_on(n_threads);
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            for (size_t k = 0; k < sizeof windows / sizeof *windows; k++) {
                const deft_scope scope = deft_scope_begin(r.cx);
                cr_expect_eq(exchange(types[i], 45, 71, &windows[k]), 1);
                cr_expect_eq(exchange(types[i], 9, 8, &windows[k]), 1);
                OK(&r, deft_scope_end(scope));
            }
    }
}

/* Few rows, long ones, and those of a matrix keep their code. */
Test(copies, other_rows_keep_their_order)
{
    const deft_scope scope = deft_scope_begin(r.cx);
    cr_expect_eq(exchange(DEFT_F32, 7, 3, &(taps){ { 3, 3 }, { 1, 1 } }), 0);
    cr_expect_eq(exchange(DEFT_F32, 30, 40, &(taps){ { 3, 17 }, { 1, 1 } }), 0);
    OK(&r, deft_scope_end(scope));
}
