/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of tensors: any bytes give a status and a sentence, or a list whose tensors can be loaded,
 * or are refused with a sentence. What is listed is consistent: no tensor is larger than the file
 * can fill.
 */
#include <stdlib.h>

#include "fuzz.h"
#include "lazy/files/listing.h"
#include "ops/dtype.h"

static void must(bool ok)
{
    if (!ok) abort();
}

static void check_listed(const df_reader *r, const df_listing *list, const df_listed *l)
{
    must(strlen(l->name) < l->name_size && l->dtype < DEFT_N_DTYPES);
    must(memchr(l->dtype_name, '\0', sizeof l->dtype_name) != NULL);
    if (l->dtype < 0 || l->rank > DEFT_MAX_RANK) return;
    must(l->bytes <= r->size * 1032 + 1032);
    df_shape s = { .rank = l->rank };
    int64_t n;
    memcpy(s.dim, l->dim, sizeof s.dim);
    must(df_shape_numel(&s, &n) && (uint64_t)n * df_bytes_of((deft_dtype)l->dtype) == l->bytes);
    if (l->bytes > 1 << 20) return;
    char *const dst = malloc(l->bytes + 1);
    r->d->text[0] = '\0';
    if (df_listing_load(r, list, l, dst) != DEFT_OK) must(r->d->text[0] != '\0');
    free(dst);
    if (l->is_deflated || l->is_swapped) return;
    uint64_t at = 0;
    if (df_listing_find(r, list, l, &at) == DEFT_OK)
        must(at <= r->size && l->bytes <= r->size - at);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    df_diag d = { 0 };
    df_listing list = { 0 };
    const df_reader r = {
        .d = &d, .what = "fuzz", .path = "file", .fd = -1, .memory = bytes, .size = n
    };
    if (df_listing_read(&r, &df_mem_system, &list) == DEFT_OK)
        for (size_t i = 0; i < list.at.n; i++) check_listed(&r, &list, &list.at.at[i]);
    else
        must(d.text[0] != '\0');
    df_listing_finish(&list);
    return 0;
}
