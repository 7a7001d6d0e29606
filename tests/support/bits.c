/* SPDX-License-Identifier: Apache-2.0 */
#include "bits.h"

#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *file;
static uint64_t digest, n_added; /* of this group */
static uint64_t n_groups, n_different, n_elements;

bool test_bits_are_asked(void)
{
    return getenv("DEFT_TEST_BITS") != NULL;
}

static bool writes(void)
{
    return getenv("DEFT_TEST_BITS_NEW") != NULL;
}

static void open_file(void)
{
    const char *const path = getenv("DEFT_TEST_BITS");
    if (file) return;
    file = fopen(path, writes() ? "w" : "r");
    if (file) return;
    fprintf(stderr, "bits: %s cannot be opened\n", path);
    exit(2);
}

/* The bits of an element, as a number. */
static uint64_t bits_of(const char *at, size_t size)
{
    uint8_t of_1;
    uint16_t of_2;
    uint32_t of_4;
    uint64_t of_8;
    switch (size) {
    case 1: memcpy(&of_1, at, size); return of_1;
    case 2: memcpy(&of_2, at, size); return of_2;
    case 4: memcpy(&of_4, at, size); return of_4;
    default: memcpy(&of_8, at, sizeof of_8); return of_8;
    }
}

void test_bits_add(deft_dtype t, const void *data, size_t n)
{
    const size_t size = deft_dtype_size(t);
    if (!test_bits_are_asked()) return;
    char *const all = oracle_alloc(n * size);
    memcpy(all, data, n * size);
    oracle_canonical(t, all, n);
    digest = oracle_mix(digest ^ (uint64_t)t, n);
    for (size_t i = 0; i < n; i++) digest = oracle_mix(digest, bits_of(all + i * size, size));
    free(all);
    n_added++;
    n_elements += n;
}

void test_bits_next(void)
{
    char line[64] = "";
    if (!test_bits_are_asked() || n_added == 0) return;
    open_file();
    n_groups++;
    if (writes()) {
        fprintf(file, "%016llx\n", (unsigned long long)digest);
    } else if (!fgets(line, sizeof line, file) || strtoull(line, NULL, 16) != digest) {
        n_different++;
        printf("bits: group %llu differs: %016llx, expected %s\n", (unsigned long long)n_groups,
               (unsigned long long)digest, *line ? line : "none");
    }
    digest = n_added = 0;
}

bool test_bits_end(void)
{
    if (!test_bits_are_asked()) return true;
    test_bits_next();
    open_file();
    bool ok = n_different == 0 && n_groups > 0;
    if (!writes() && fgetc(file) != EOF) {
        printf("bits: there are more groups in the file\n");
        ok = false;
    }
    ok &= fclose(file) == 0;
    file = NULL;
    printf("bits: %llu groups of %llu elements, %llu differ\n", (unsigned long long)n_groups,
           (unsigned long long)n_elements, (unsigned long long)n_different);
    return ok;
}
