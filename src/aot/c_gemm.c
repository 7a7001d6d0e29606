/* SPDX-License-Identifier: Apache-2.0
 *
 * The micro-kernel of products as C. Each element of C is a chain acc = fma(a, b, acc) with
 * ascending k. The tile is as large as the registers allow: its rows are written out, each with two
 * vectors of accumulators, so that compilers keep all of them in registers. The text chooses
 * between vectors of 64 and 32 bytes by what the machine has. On other machines it is a plain loop,
 * whose tile is small.
 *
 * A tile at the edge of C is computed in full, because panels are padded, and copied from a buffer.
 */
#include "aot/c.h"
#include "base/diag.h"

/* The types and instructions of one machine. */
typedef struct gemm_machine {
    const char *condition; /* for #if or #elif */
    const char *vector;    /* type of a vector: prefix and bits; both dtypes */
    const char *prefix;    /* of intrinsics */
    uint32_t bytes, rows;
} gemm_machine;

static const gemm_machine gemm_machines[] = {
    { "defined(__AVX512F__)", "__m512", "_mm512", 64, 12 },
    { "defined(__AVX2__) && defined(__FMA__)", "__m256", "_mm256", 32, 6 },
};

/* The number of vectors in a row of a tile. */
enum { GEMM_VECTORS = 2, GEMM_PLAIN_ROWS = 4, GEMM_PLAIN_COLUMNS = 8 };

static void gemm_put_head(df_str *s, const char *t, const char *name, uint32_t mr, uint32_t nr)
{
    df_str_fmt(s, "enum { %s_mr = %u, %s_nr = %u };\n", name, mr, name, nr);
    df_str_fmt(s,
               "DF_AOT_KERNEL void %s(int64_t k, const void *pa, const void *pb, void *pc, "
               "int64_t ldc, int64_t m, int64_t n, int64_t first, const void *next)\n{\n",
               name);
    df_str_fmt(s, "    const mem_%s *a = pa, *b = pb;\n", t);
    df_str_fmt(s, "    mem_%s *c = pc, edge[%u];\n", t, mr * nr);
    df_str_put(s, "    const int64_t c_ldc = ldc;\n");
    df_str_fmt(s, "    const int is_edge = m < %u || n < %u;\n", mr, nr);
    df_str_put(s, "    if (is_edge) {\n");
    df_str_fmt(s, "        for (int64_t i = 0; i < %u; i++) edge[i] = 0;\n", mr * nr);
    df_str_put(s, "        for (int64_t i = 0; i < m && !first; i++)\n");
    df_str_fmt(
        s, "            for (int64_t j = 0; j < n; j++) edge[i * %u + j] = c[i * ldc + j];\n", nr);
    df_str_fmt(s, "        c = edge, ldc = %u;\n", nr);
    df_str_put(s, "    }\n");
}

static void gemm_put_tail(df_str *s, const char *t, uint32_t nr)
{
    df_str_put(s, "    if (!is_edge) return;\n");
    df_str_put(s, "    for (int64_t i = 0; i < m; i++)\n");
    df_str_put(s, "        for (int64_t j = 0; j < n; j++)\n");
    df_str_fmt(s, "            ((mem_%s *)pc)[i * c_ldc + j] = edge[i * %u + j];\n}\n", t, nr);
}

static void gemm_put_fetch(df_str *s)
{
    df_str_fmt(s, "        if (p %% %d == 0) {\n", DF_GEMM_FETCH_STEPS);
    df_str_put(s, "            __builtin_prefetch(next, 0, 2);\n");
    df_str_fmt(s, "            next = (const void *)((uintptr_t)next + %d);\n        }\n",
               DF_GEMM_FETCH_BYTES);
}

static void gemm_put_vectors(df_str *s, const gemm_machine *x, deft_dtype dtype, const char *name)
{
    const bool is_single = dtype == DEFT_F32;
    const char *const t = is_single ? "f32" : "f64", *const end = is_single ? "ps" : "pd";
    const uint32_t lanes = x->bytes / (is_single ? 4 : 8), nr = GEMM_VECTORS * lanes;
    gemm_put_head(s, t, name, x->rows, nr);
    for (uint32_t i = 0; i < x->rows; i++)
        for (uint32_t j = 0; j < GEMM_VECTORS; j++)
            df_str_fmt(s,
                       "    %s%s c%u_%u = first ? %s_setzero_%s() : "
                       "%s_loadu_%s((const %s *)(const void *)(c + %u * ldc + %u));\n",
                       x->vector, is_single ? "" : "d", i, j, x->prefix, end, x->prefix, end,
                       is_single ? "float" : "double", i, j * lanes);
    df_str_fmt(s, "    for (int64_t p = 0; p < k; p++, a += %u, b += %u) {\n", x->rows, nr);
    for (uint32_t j = 0; j < GEMM_VECTORS; j++)
        df_str_fmt(s, "        const %s%s b%u = %s_loadu_%s((const %s *)(const void *)(b + %u));\n",
                   x->vector, is_single ? "" : "d", j, x->prefix, end,
                   is_single ? "float" : "double", j * lanes);
    for (uint32_t i = 0; i < x->rows; i++) {
        df_str_fmt(s, "        const %s%s a%u = %s_set1_%s(a[%u]);\n", x->vector,
                   is_single ? "" : "d", i, x->prefix, end, i);
        for (uint32_t j = 0; j < GEMM_VECTORS; j++)
            df_str_fmt(s, "        c%u_%u = %s_fmadd_%s(a%u, b%u, c%u_%u);\n", i, j, x->prefix, end,
                       i, j, i, j);
    }
    gemm_put_fetch(s);
    df_str_put(s, "    }\n");
    for (uint32_t i = 0; i < x->rows; i++)
        for (uint32_t j = 0; j < GEMM_VECTORS; j++)
            df_str_fmt(s, "    %s_storeu_%s((%s *)(void *)(c + %u * ldc + %u), c%u_%u);\n",
                       x->prefix, end, is_single ? "float" : "double", i, j * lanes, i, j);
    gemm_put_tail(s, t, nr);
}

static void gemm_put_plain(df_str *s, deft_dtype dtype, const char *name)
{
    const char *const t = dtype == DEFT_F32 ? "f32" : "f64";
    const uint32_t mr = GEMM_PLAIN_ROWS, nr = GEMM_PLAIN_COLUMNS;
    gemm_put_head(s, t, name, mr, nr);
    df_str_fmt(s, "    %s acc[%u][%u];\n", t, mr, nr);
    df_str_fmt(s, "    for (int i = 0; i < %u; i++)\n", mr);
    df_str_fmt(s, "        for (int j = 0; j < %u; j++) acc[i][j] = first ? 0 : c[i * ldc + j];\n",
               nr);
    df_str_fmt(s, "    for (int64_t p = 0; p < k; p++, a += %u, b += %u) {\n", mr, nr);
    df_str_fmt(s, "        for (int i = 0; i < %u; i++)\n", mr);
    df_str_fmt(s,
               "            for (int j = 0; j < %u; j++) acc[i][j] = fma_%s(a[i], b[j], "
               "acc[i][j]);\n",
               nr, t);
    gemm_put_fetch(s);
    df_str_put(s, "    }\n");
    df_str_fmt(s, "    for (int i = 0; i < %u; i++)\n", mr);
    df_str_fmt(s, "        for (int j = 0; j < %u; j++) c[i * ldc + j] = acc[i][j];\n", nr);
    gemm_put_tail(s, t, nr);
}

deft_status df_aot_c_gemm(df_diag *d, deft_dtype t, const char *name, df_str *out)
{
    deft_status st = DEFT_OK;
    df_str s;
    df_str_init(&s, out->mem);
    if (t != DEFT_F32 && t != DEFT_F64)
        TRY(df_fail(d, DEFT_E_COMPILE, "C export: there is no product of %s", deft_dtype_name(t)));
    df_str_put(&s, "\n");
    for (uint32_t i = 0; i < DF_LEN(gemm_machines); i++) {
        df_str_fmt(&s, "#%s %s\n", i ? "elif" : "if", gemm_machines[i].condition);
        gemm_put_vectors(&s, &gemm_machines[i], t, name);
    }
    df_str_put(&s, "#else\n");
    gemm_put_plain(&s, t, name);
    df_str_put(&s, "#endif\n");
    if (s.ok) df_str_putn(out, s.at, s.n);
    if (!s.ok || !out->ok) TRY(df_fail_mem(d, "C export", s.n));
done:
    df_str_finish(&s);
    return st;
}
