/* SPDX-License-Identifier: Apache-2.0 */
#include "mixed_pairs.h"

#include <stdio.h>

static const char *const feature_text[N_MIXED_FEATURES] = {
#define FEATURE(name, text) text,
#include "mixed_pairs.def"
};

static const struct {
    uint8_t a, b;
    const char *why;
} never[] = {
#define NEVER(a, b, why) { MIXED_##a, MIXED_##b, why },
#include "mixed_pairs.def"
};

enum { N_NEVER = sizeof never / sizeof *never };
_Static_assert(N_MIXED_FEATURES <= 64, "a set of features is a word of 64 bits");

static uint64_t count[N_MIXED_FEATURES][N_MIXED_FEATURES];

void mixed_pairs_count(uint64_t features)
{
    for (unsigned i = 0; i < N_MIXED_FEATURES; i++)
        for (unsigned k = 0; k <= i && features >> i & 1; k++) count[i][k] += features >> k & 1;
}

/* Why two features cannot meet; NULL when they can. */
static const char *reason(unsigned a, unsigned b)
{
    for (unsigned i = 0; i < N_NEVER; i++)
        if ((never[i].a == a && never[i].b == b) || (never[i].a == b && never[i].b == a))
            return never[i].why;
    return NULL;
}

int mixed_pairs_check(uint64_t without)
{
    int n = 0;
    for (unsigned i = 0; i < N_MIXED_FEATURES; i++)
        for (unsigned k = 0; k <= i; k++) {
            const char *const why = reason(i, k);
            if (!((without >> i | without >> k) & 1) && !why && count[i][k] == 0) {
                printf("FAIL: no block had both: %s; %s\n", feature_text[i], feature_text[k]);
                n++;
            } else if (why && count[i][k]) {
                printf("FAIL: a block had both, which cannot be (%s): %s; %s\n", why,
                       feature_text[i], feature_text[k]);
                n++;
            }
        }
    return n;
}

void mixed_pairs_print(bool with_counts)
{
    printf("| | feature |");
    for (unsigned k = 0; k < N_MIXED_FEATURES; k++) printf(" %u |", k + 1);
    printf("\n|---|---|");
    for (unsigned k = 0; k < N_MIXED_FEATURES; k++) printf("---|");
    for (unsigned i = 0; i < N_MIXED_FEATURES; i++) {
        printf("\n| %u | %s |", i + 1, feature_text[i]);
        for (unsigned k = 0; k < N_MIXED_FEATURES; k++)
            if (k > i)
                printf(" |");
            else if (with_counts)
                printf(" %llu |", (unsigned long long)count[i][k]);
            else
                printf(" %s |", k == i ? "" : reason(i, k) ? "–" : "x");
    }
    printf("\n");
    if (with_counts) return;
    printf("\nPairs that cannot be:\n\n");
    for (unsigned i = 0; i < N_NEVER; i++)
        printf("- %s, %s: %s.\n", feature_text[never[i].a], feature_text[never[i].b], never[i].why);
}
