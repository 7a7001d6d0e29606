/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows taken by indices, on every path, bit for bit beside the interpreter: rows of 1 to 300
 * elements of every size, along the first axis and along an inner one, stored as they are, added to
 * a bias, or summed over the rows. Some indices are negative. A table ends where its memory does.
 *
 *   row_gathers [--full] [SEED]
 */
#include "../support/budget.h"
#include "../support/oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))
enum { MOST_INDICES = 40 };

typedef struct program {
    int64_t n, n_rows, n_columns, n_indices; /* the table is [n, n_rows, n_columns] */
    deft_dtype dtype;
    int form; /* 0: as they are, 1: plus a bias, 2: summed over the indices, 3: reversed columns */
    uint64_t seed;
} program;

static deft_tensor *filled(deft_ctx *cx, deft_shape s, deft_dtype t, uint64_t seed)
{
    const size_t bytes = (size_t)oracle_numel(&s) * deft_dtype_size(t);
    void *const data = oracle_alloc(bytes + 1);
    oracle_fill(t, data, (size_t)oracle_numel(&s), seed, ORACLE_HARD);
    deft_tensor *const x = deft_from(cx, s, t, data, bytes);
    free(data);
    return x;
}

static deft_tensor *record(deft_ctx *cx, const program *p)
{
    int64_t index[MOST_INDICES];
    uint64_t seed = p->seed;
    for (int64_t i = 0; i < p->n_indices; i++)
        index[i] = (int64_t)(oracle_next(&seed) >> 40) % (2 * p->n_rows) - p->n_rows;
    deft_tensor *const at =
        deft_from(cx, DEFT_SHAPE(p->n_indices), DEFT_I64, index, (size_t)p->n_indices * 8);
    const bool is_flat = p->n == 1;
    const deft_shape s =
        is_flat ? DEFT_SHAPE(p->n_rows, p->n_columns) : DEFT_SHAPE(p->n, p->n_rows, p->n_columns);
    deft_tensor *const table = filled(cx, s, p->dtype, p->seed);
    const int axis = is_flat ? 0 : 1;
    deft_tensor *const rows = deft_take(table, at, axis);
    switch (p->form) {
    case 1: return deft_maximum(rows, filled(cx, DEFT_SHAPE(p->n_columns), p->dtype, p->seed + 1));
    case 2: return deft_max(rows, DEFT_AXES(axis), 0);
    case 3: return deft_flip(rows, DEFT_AXES(axis + 1));
    default: return rows;
    }
}

static size_t run(deft_ctx *cx, const program *p, deft_dtype *t, void **data)
{
    size_t n = 0;
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *const r = record(cx, p);
    *data = NULL;
    if (r) {
        const deft_shape shape = deft_shape_get(r);
        *t = deft_dtype_of(r);
        n = (size_t)oracle_numel(&shape);
        *data = oracle_alloc(n * deft_dtype_size(*t));
        if (deft_read(r, *t, *data, n * deft_dtype_size(*t)) != DEFT_OK) n = 0;
    }
    if (n == 0) printf("FAIL %s\n", deft_message(cx));
    deft_clear(cx);
    if (deft_scope_end(s) != DEFT_OK) printf("FAIL scope: %s\n", deft_message(cx));
    return n;
}

int main(int argc, char **argv)
{
    static const int64_t columns[] = { 1, 3, 7, 8, 15, 16, 17, 33, 64, 65, 100, 300 };
    static const deft_dtype dtypes[] = { DEFT_F32, DEFT_F64, DEFT_BF16, DEFT_U8,
                                         DEFT_I32, DEFT_I16, DEFT_U64 };
    oracle_path paths[] = {
        { .name = "interp unfused", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
        { .name = "llvm O2", .tier = DEFT_TIER_FULL, .n_threads = 1, .variant_launches = 2 },
        { .name = "llvm O2 16 bytes",
          .tier = DEFT_TIER_FULL,
          .n_threads = 3,
          .max_vector_bytes = 16,
          .streams = true },
        { .name = "llvm O2 32 bytes",
          .tier = DEFT_TIER_FULL,
          .n_threads = 2,
          .max_vector_bytes = 32 },
        { .name = "llvm O0", .tier = DEFT_TIER_QUICK, .n_threads = 2 },
    };
    const uint32_t rounds = argc > 1 && !strcmp(argv[1], "--full") ? 8 : 1;
    uint64_t seed = argc > 1 && argv[1][0] != '-' ? strtoull(argv[1], NULL, 10) : 3;
    long n_checks = 0, n_failures = 0;
    const size_t n_paths = oracle_open(paths, LEN(paths));
    for (uint32_t round = 0; round < rounds; round++)
        for (size_t c = 0; c < LEN(columns); c++)
            for (size_t k = 0; k < 4 * LEN(dtypes); k++) {
                if (c > 0 && !test_time_left(1)) break;
                const uint64_t drawn = oracle_next(&seed);
                const program p = { .n = drawn & 1 ? 1 : 3,
                                    .n_rows = 1 + (int64_t)(drawn >> 8) % 20,
                                    .n_columns = columns[c],
                                    .n_indices = 1 + (int64_t)(drawn >> 32) % MOST_INDICES,
                                    .dtype = dtypes[k % LEN(dtypes)],
                                    .form = (int)(k / LEN(dtypes)),
                                    .seed = drawn };
                deft_dtype want_t = DEFT_BOOL, t = DEFT_BOOL;
                void *want, *got;
                const size_t n = run(paths[0].cx, &p, &want_t, &want);
                for (size_t i = 1; i < n_paths; i++) {
                    const size_t n_got = run(paths[i].cx, &p, &t, &got);
                    const bool same = n > 0 && n_got == n && t == want_t &&
                                      oracle_difference(t, want, got, n) == n;
                    n_checks++;
                    n_failures += !same;
                    if (!same)
                        printf("FAIL %s: form %d of %s, %lld columns\n", paths[i].name, p.form,
                               deft_dtype_name(p.dtype), (long long)p.n_columns);
                    free(got);
                }
                free(want);
            }
    printf("%ld checks, %ld failures\n", n_checks, n_failures);
    oracle_close(paths, n_paths);
    return n_failures ? 1 : 0;
}
