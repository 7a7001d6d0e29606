/* SPDX-License-Identifier: Apache-2.0
 *
 * Each row is written from its first element to its last:
 *
 *   one after the other   |000000|        then   |111111111|       copy by copy, on all rows
 *   together              |000000|111111111|     then the next row
 *
 * When one copy wrote all of its rows before the next, each line of the cache at which two of them
 * meet would be written twice, long after each other. With two threads, one of them would have the
 * first parts of all rows, and the other the last ones. Such lines then go to the other core and
 * back. Arrays of 300, 900 and 500 columns, joined to 2000 x 1700 f32, took 350 us in this way on
 * two threads of Zen 5 that are far apart. Row by row they take 170 to 210 us.
 *
 * Rows of a few elements are taken together to boxes of neighbours. The weights of a convolution
 * are an example. The gradient of its images reads them with filters and channels exchanged, and
 * with the taps of each window reversed:
 *
 *   result[channel][filter][tap] = weights[filter][channel][n_taps - 1 - tap]
 *
 * The box is a window. In the order of the result, neighbouring boxes are all channels of a filter
 * apart in the weights. Each of them is in another page, and its cache line is gone before the next
 * box in this line is read. So boxes of a few channels are copied for each filter, and those that
 * come soon are prefetched. A training step of ResNet-18 copies 11 million weights in this way. On
 * two threads of Zen 5 the step takes 122 to 128 ms. It took 138 to 146 ms with the code of the
 * kernel, which goes along rows of 3 elements. On an Intel server the launch that has these copies
 * takes 13.7 ms, 19.8 ms without prefetching and with half as many channels at a time.
 */
#include "runtime/row_copies.h"

#include <string.h>

#include "fuser/plan.h"

enum {
    BOX_ELEMENTS = 16, /* the most in a box */
    BLOCK = 16,        /* lines of boxes that are written side by side */
    AHEAD = 8          /* how many boxes further on in its line a box is prefetched */
};

/* Moves the addresses to the row at these indices. */
static void seek_row(df_row_copy *c, const int64_t *index, uint32_t n_outer)
{
    for (uint32_t x = 0; x < n_outer; x++) {
        c->from += index[x] * c->from_stride[x] * (int64_t)c->size;
        c->to += index[x] * c->to_stride[x] * (int64_t)c->size;
    }
}

static void copy_row(const df_row_copy *c, uint32_t inner)
{
    const int64_t step = c->from_stride[inner] * (int64_t)c->size;
    if (step == (int64_t)c->size) {
        memmove(c->to, c->from, c->n * c->size);
        return;
    }
    const char *from = c->from;
    for (size_t i = 0; i < c->n; i++, from += step) memmove(c->to + i * c->size, from, c->size);
}

/* The indices of a row along the outer axes. */
static void row_index(int64_t row, const int64_t *extent, uint32_t n_outer, int64_t *index)
{
    for (uint32_t x = n_outer; x-- > 0;) {
        index[x] = row % extent[x];
        row /= extent[x];
    }
}

void df_copy_rows(df_row_copy *list, uint32_t n, const int64_t *extent, uint32_t n_outer,
                  int64_t row, int64_t end)
{
    const uint32_t last = n_outer - 1u;
    int64_t index[DF_MAX_AXES], back[DF_MAX_AXES];
    df_assert(n_outer > 0 && n_outer < DF_MAX_AXES);
    while (row < end) {
        row_index(row, extent, n_outer, index);
        const int64_t next = df_min_i64(row + extent[last] - index[last], end);
        for (uint32_t i = 0; i < n; i++) seek_row(&list[i], index, n_outer);
        for (uint32_t x = 0; x < n_outer; x++) back[x] = -index[x];
        back[last] -= next - row;
        for (; row < next; row++)
            for (uint32_t i = 0; i < n; i++) {
                copy_row(&list[i], n_outer);
                list[i].from += list[i].from_stride[last] * (int64_t)list[i].size;
                list[i].to += list[i].to_stride[last] * (int64_t)list[i].size;
            }
        for (uint32_t i = 0; i < n; i++) seek_row(&list[i], back, n_outer);
    }
}

/* ---- short rows ---- */

/* A few elements that are neighbours in the result: rows, and the elements of a row. Strides count
 * elements. */
typedef struct copied_box {
    int64_t n_rows, n, to_row, from_row, from_element;
} copied_box;

/* Merges the axes [first, inner] to rows of a box. Returns false when they do not merge. */
static bool merge_axes(const df_row_copy *c, const int64_t *extent, uint32_t first, uint32_t inner,
                       copied_box *out)
{
    *out = (copied_box){ .n_rows = 1, .n = (int64_t)c->n, .from_element = c->from_stride[inner] };
    for (uint32_t x = inner; x-- > first;) {
        const int64_t to = c->to_stride[x], from = c->from_stride[x];
        if (extent[x] == 1) continue;
        if (out->n_rows == 1 && to == out->n && from == out->n * out->from_element) {
            out->n *= extent[x];
        } else if (out->n_rows == 1) {
            out->n_rows = extent[x];
            out->to_row = to;
            out->from_row = from;
        } else if (to == out->n_rows * out->to_row && from == out->n_rows * out->from_row) {
            out->n_rows *= extent[x];
        } else {
            return false;
        }
    }
    return true;
}

#define DEFINE_COPY_BOX(T)                                                                         \
    static void copy_box_##T(const copied_box *b, T *to, const T *from)                            \
    {                                                                                              \
        for (int64_t y = 0; y < b->n_rows; y++, to += b->to_row, from += b->from_row)              \
            for (int64_t i = 0; i < b->n; i++) to[i] = from[i * b->from_element];                  \
    }
DEFINE_COPY_BOX(uint8_t)
DEFINE_COPY_BOX(uint16_t)
DEFINE_COPY_BOX(uint32_t)
DEFINE_COPY_BOX(uint64_t)

static void copy_box(const copied_box *b, void *to, const void *from, size_t size)
{
    df_assert(size == 1 || size == 2 || size == 4 || size == 8);
    if (size == 1)
        copy_box_uint8_t(b, to, from);
    else if (size == 2)
        copy_box_uint16_t(b, to, from);
    else if (size == 4)
        copy_box_uint32_t(b, to, from);
    else
        copy_box_uint64_t(b, to, from);
}

/* Copies lines [line, end) of n boxes each. The axes of a line are the first n_axes ones, and boxes
 * of a line are on the next axis. */
static void copy_lines(const df_row_copy *c, const copied_box *b, const int64_t *extent,
                       uint32_t n_axes, int64_t line, int64_t end)
{
    const int64_t size = (int64_t)c->size;
    const int64_t to_line = c->to_stride[n_axes - 1] * size,
                  from_line = c->from_stride[n_axes - 1] * size;
    const int64_t to_box = c->to_stride[n_axes] * size, from_box = c->from_stride[n_axes] * size;
    int64_t index[DF_MAX_AXES];
    for (int64_t n; line < end; line += n) {
        df_row_copy at = *c;
        row_index(line, extent, n_axes, index);
        n = df_min_i64(df_min_i64(BLOCK, end - line), extent[n_axes - 1] - index[n_axes - 1]);
        seek_row(&at, index, n_axes);
        for (int64_t x = 0; x < extent[n_axes]; x++)
            for (int64_t i = 0; i < n; i++) {
                __builtin_prefetch(at.from + i * from_line + (x + AHEAD) * from_box);
                copy_box(b, at.to + i * to_line + x * to_box,
                         at.from + i * from_line + x * from_box, c->size);
            }
    }
}

/* How the rows of a copy are taken together: boxes, and lines of boxes. */
typedef struct row_lines {
    copied_box box;
    uint32_t n_axes;  /* of lines */
    int64_t per_line; /* rows */
} row_lines;

static bool find_lines(const df_row_copy *c, const int64_t *extent, uint32_t n_outer,
                       row_lines *out)
{
    uint32_t first = n_outer;
    int64_t n_rows = 1; /* of a box */
    while (first > 0 && n_rows * extent[first - 1] * (int64_t)c->n <= BOX_ELEMENTS)
        n_rows *= extent[--first];
    if (first < 2 || n_rows <= 0 || extent[first - 1] <= 0) return false;
    out->n_axes = first - 1;
    out->per_line = n_rows * extent[first - 1];
    return merge_axes(c, extent, first, n_outer, &out->box);
}

bool df_has_short_rows(const df_row_copy *c, const int64_t *extent, uint32_t n_outer)
{
    row_lines l;
    return c->n <= BOX_ELEMENTS && find_lines(c, extent, n_outer, &l);
}

void df_copy_short_rows(const df_row_copy *c, const int64_t *extent, uint32_t n_outer, int64_t row,
                        int64_t end)
{
    row_lines l;
    const bool found = find_lines(c, extent, n_outer, &l);
    df_assert(found);
    (void)found;
    df_row_copy list = *c;
    const int64_t begin = df_div_up(row, l.per_line) * l.per_line;
    const int64_t whole = df_max_i64(begin, end / l.per_line * l.per_line);
    if (begin >= end) {
        df_copy_rows(&list, 1, extent, n_outer, row, end);
        return;
    }
    df_copy_rows(&list, 1, extent, n_outer, row, begin);
    copy_lines(c, &l.box, extent, l.n_axes, begin / l.per_line, whole / l.per_line);
    df_copy_rows(&list, 1, extent, n_outer, whole, end);
}
