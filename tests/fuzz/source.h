/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of an input, one after the other, for targets that build structs from them.
 */
#ifndef TESTS_FUZZ_SOURCE_H
#define TESTS_FUZZ_SOURCE_H

#include <stddef.h>
#include <stdint.h>

typedef struct source {
    const uint8_t *at;
    size_t n;
} source;

/* The next byte; 0 behind the last. */
static inline unsigned next(source *s)
{
    if (!s->n) return 0;
    s->n--;
    return *s->at++;
}

#endif
