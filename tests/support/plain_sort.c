/* SPDX-License-Identifier: Apache-2.0
 *
 * Few items are inserted one after the other. More of them are distributed by each byte of their
 * keys, the lowest first.
 */
#include "plain_sort.h"

#include <stdbool.h>
#include <string.h>

enum { FEW = 64 };

static void insert_each(plain_item *items, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const plain_item new = items[i];
        int64_t to = i;
        for (; to > 0 && items[to - 1].key > new.key; to--) items[to] = items[to - 1];
        items[to] = new;
    }
}

/* Returns false, and writes nothing, when all keys have the same byte. */
static bool distribute(const plain_item *from, plain_item *to, int64_t n, int shift)
{
    int64_t next[256] = { 0 }, sum = 0; /* where the next item with each byte goes */
    for (int64_t i = 0; i < n; i++) next[from[i].key >> shift & 255]++;
    if (next[from[0].key >> shift & 255] == n) return false;
    for (int b = 0; b < 256; b++) {
        const int64_t many = next[b];
        next[b] = sum;
        sum += many;
    }
    for (int64_t i = 0; i < n; i++) to[next[from[i].key >> shift & 255]++] = from[i];
    return true;
}

void plain_sort(plain_item *items, plain_item *room, int64_t n)
{
    plain_item *from = items, *to = room;
    if (n <= FEW) {
        insert_each(items, n);
        return;
    }
    for (int shift = 0; shift < 64; shift += 8)
        if (distribute(from, to, n, shift)) {
            plain_item *const other = from;
            from = to;
            to = other;
        }
    if (from != items) memcpy(items, from, (size_t)n * sizeof *items);
}
