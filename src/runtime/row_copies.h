/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of arrays row by row: several of them together, each of which fills a part of the same
 * rows.
 */
#ifndef DF_RUNTIME_ROW_COPIES_H
#define DF_RUNTIME_ROW_COPIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One copy. Strides count elements; there is one for each outer axis and one for the axis of a row,
 * along which `to` has the stride 1. The memory that is read is not that which is written, but for
 * elements that replace themselves. */
typedef struct df_row_copy {
    const char *from;
    char *to;
    const int64_t *from_stride, *to_stride;
    size_t n, size; /* elements of a row; bytes of an element */
} df_row_copy;

/* The most copies whose rows are written together. */
enum { DF_MOST_ROW_COPIES = 16 };

/* Copies rows [row, end) of n copies. They have n_outer outer axes, at least one, with these
 * extents. Changes the list. */
void df_copy_rows(df_row_copy *list, uint32_t n, const int64_t *extent, uint32_t n_outer,
                  int64_t row, int64_t end);

/* Whether rows are so short that a few of them are taken together, and on so many axes that it
 * matters in which order these are read. Then the next function copies the rows of one copy. */
bool df_has_short_rows(const df_row_copy *c, const int64_t *extent, uint32_t n_outer);
void df_copy_short_rows(const df_row_copy *c, const int64_t *extent, uint32_t n_outer, int64_t row,
                        int64_t end);

#endif
