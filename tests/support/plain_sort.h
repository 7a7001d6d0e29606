/* SPDX-License-Identifier: Apache-2.0
 *
 * A stable sort, the reference of tests of sorting. They spend most of their time in it. So
 * plain_sort.c is optimized and has no sanitizer in any build.
 */
#ifndef TEST_PLAIN_SORT_H
#define TEST_PLAIN_SORT_H

#include <stdint.h>

typedef struct plain_item {
    uint64_t key;
    int64_t at;
} plain_item;

/* Sorts n items by their keys. Items with equal keys keep their order. room: for n items. */
void plain_sort(plain_item *items, plain_item *room, int64_t n);

#endif
