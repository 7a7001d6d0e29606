/* SPDX-License-Identifier: Apache-2.0
 *
 * Products beyond those of float matrices: matrices of every integer dtype against plain C, bit for
 * bit, in every tier; einsum, tensordot, outer and vecdot against loops over all labels; how many
 * launches they take; mistakes.
 */
#include "base/compiler.h"
#include "support/harness.h"
#include "support/int_ref.h"

#include <stdlib.h>
#include <string.h>

static uint64_t seed = 88;

static uint64_t next(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 24;
}

static const deft_dtype wholes[] = { DEFT_I8, DEFT_I16, DEFT_I32, DEFT_I64,
                                     DEFT_U8, DEFT_U16, DEFT_U32, DEFT_U64 };

/* ---- matrices of integers ---- */

static void check_product(rig *r, deft_dtype t, int64_t batch, int64_t m, int64_t k, int64_t n)
{
    const size_t size = deft_dtype_size(t);
    char *const a = malloc((size_t)(batch * m * k) * size + 1);
    char *const b = malloc((size_t)(k * n) * size + 1);
    char *const got = malloc((size_t)(batch * m * n) * size + 1);
    for (int64_t i = 0; i < batch * m * k; i++) int_ref_put(t, a, (size_t)i, (int64_t)next());
    for (int64_t i = 0; i < k * n; i++) int_ref_put(t, b, (size_t)i, (int64_t)next());
    const deft_scope s = deft_scope_begin(r->cx);
    deft_tensor *const x =
        deft_from(r->cx, DEFT_SHAPE(batch, m, k), t, a, (size_t)(batch * m * k) * size);
    deft_tensor *const y = deft_from(r->cx, DEFT_SHAPE(k, n), t, b, (size_t)(k * n) * size);
    deft_tensor *const out = deft_matmul(x, y);
    cr_assert(out, "%s", deft_message(r->cx));
    cr_assert_eq(deft_dtype_of(out), t);
    OK(r, deft_read(out, t, got, (size_t)(batch * m * n) * size));
    for (int64_t i = 0; i < batch * m; i++)
        for (int64_t j = 0; j < n; j++) {
            uint64_t sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (uint64_t)int_ref_get(t, a, (size_t)(i * k + l)) *
                       (uint64_t)int_ref_get(t, b, (size_t)(l * n + j));
            cr_assert_eq(int_ref_get(t, got, (size_t)(i * n + j)), int_ref_wrap(t, (int64_t)sum),
                         "%s [%d,%d,%d,%d] at %d, %d", deft_dtype_name(t), (int)batch, (int)m,
                         (int)k, (int)n, (int)i, (int)j);
        }
    OK(r, deft_scope_end(s));
    free(a), free(b), free(got);
}

Test(products, integers_are_exact, .timeout = 120)
{
    static const deft_tier tiers[] = { DEFT_TIER_INTERPRET, DEFT_TIER_QUICK, DEFT_TIER_FULL };
    for (size_t w = 0; w < DF_LEN(tiers); w++) {
        rig r;
        const deft_runtime_options o = { .size = sizeof o,
                                         .tier = tiers[w],
                                         .n_threads = 1 + (uint32_t)w };
        rig_open(&r, &o, NULL);
        for (size_t t = 0; t < DF_LEN(wholes); t++) {
            check_product(&r, wholes[t], 1, 5, 7, 3);
            check_product(&r, wholes[t], 3, 4, 130, 33);
            check_product(&r, wholes[t], 1, 1, 300, 1);
        }
        check_product(&r, DEFT_I32, 2, 3, 0, 4);
        rig_close(&r);
    }
}

Test(products, integers_of_two_dtypes_are_promoted)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const int8_t a[3] = { 100, -100, 50 };
    const int32_t b[3] = { 1000, 2000, -3 };
    deft_tensor *const x = deft_from(r.cx, DEFT_SHAPE(3), DEFT_I8, a, sizeof a);
    deft_tensor *const y = deft_from(r.cx, DEFT_SHAPE(3), DEFT_I32, b, sizeof b);
    cr_assert_eq(deft_dtype_of(deft_matmul(x, y)), DEFT_I32);
    RIG_EXPECT(&r, deft_matmul(x, y), -100150);
    cr_assert_eq(deft_dtype_of(deft_matmul(x, rig_range(&r, 3, 0))), DEFT_F32);
    cr_assert_eq(deft_dtype_of(deft_matmul(deft_ones(r.cx, DEFT_SHAPE(3), DEFT_BOOL),
                                           deft_ones(r.cx, DEFT_SHAPE(3), DEFT_BOOL))),
                 DEFT_F32);
    rig_close(&r);
}

/* ---- einsum ---- */

enum { MOST_ELEMENTS = 4096 };

static const int64_t extent_of[26] = { ['a' - 'a'] = 2, ['b' - 'a'] = 3, ['c' - 'a'] = 4,
                                       ['i' - 'a'] = 3, ['j' - 'a'] = 4, ['k' - 'a'] = 5,
                                       ['l' - 'a'] = 2, ['m' - 'a'] = 6 };

typedef struct plain_operand {
    deft_shape s;
    const char *labels;
    int64_t value[MOST_ELEMENTS];
} plain_operand;

static int64_t element(const plain_operand *x, const int64_t at[26])
{
    int64_t i = 0;
    for (uint32_t k = 0; k < x->s.rank; k++) i = i * x->s.dim[k] + at[x->labels[k] - 'a'];
    return x->value[i];
}

/* Loops over all labels of the equation, whose result is given as text. */
static void check_einsum(rig *r, const char *equation, const char *in[], uint32_t n,
                         const char *result)
{
    static plain_operand x[4], out;
    deft_tensor *t[4];
    bool used[26] = { false };
    int64_t at[26] = { 0 }, got[MOST_ELEMENTS];
    memset(&out, 0, sizeof out);
    out.labels = result;
    for (out.s.rank = 0; result[out.s.rank]; out.s.rank++)
        out.s.dim[out.s.rank] = extent_of[result[out.s.rank] - 'a'];
    for (uint32_t i = 0; i < n; i++) {
        int64_t size = 1;
        x[i].labels = in[i];
        for (x[i].s.rank = 0; in[i][x[i].s.rank]; x[i].s.rank++) {
            const int label = in[i][x[i].s.rank] - 'a';
            used[label] = true;
            size *= x[i].s.dim[x[i].s.rank] = extent_of[label];
        }
        for (int64_t k = 0; k < size; k++) x[i].value[k] = (int64_t)(next() % 19) - 9;
        t[i] = deft_from(r->cx, x[i].s, DEFT_I64, x[i].value, (size_t)size * 8);
    }
    for (bool more = true; more;) {
        int64_t product = 1, to = 0;
        for (uint32_t i = 0; i < n; i++) product *= element(&x[i], at);
        for (uint32_t k = 0; k < out.s.rank; k++) to = to * out.s.dim[k] + at[result[k] - 'a'];
        out.value[to] += product;
        more = false;
        for (int l = 0; l < 26 && !more; l++) {
            if (!used[l]) continue;
            more = ++at[l] < extent_of[l];
            if (!more) at[l] = 0;
        }
    }
    deft_tensor *const made = deft_einsum(equation, t, n);
    cr_assert(made, "%s: %s", equation, deft_message(r->cx));
    const deft_shape s = deft_shape_get(made);
    cr_assert_eq(s.rank, out.s.rank, "%s", equation);
    for (uint32_t k = 0; k < s.rank; k++) cr_assert_eq(s.dim[k], out.s.dim[k], "%s", equation);
    OK(r, deft_read(made, DEFT_I64, got, (size_t)deft_numel(made) * 8));
    cr_assert(!memcmp(got, out.value, (size_t)deft_numel(made) * 8), "%s", equation);
}

Test(products, einsum_is_a_loop_over_all_labels)
{
    rig r;
    rig_open(&r, NULL, NULL);
#define EINSUM(equation, result, ...)                                                              \
    check_einsum(&r, equation, (const char *[]){ __VA_ARGS__ },                                    \
                 sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *), result)
    EINSUM("ij,jk->ik", "ik", "ij", "jk");
    EINSUM(" i j , j k ", "ik", "ij", "jk");
    EINSUM("ij,kj->ki", "ki", "ij", "kj");
    EINSUM("ji,jk->ik", "ik", "ji", "jk");
    EINSUM("aij,ajk->aik", "aik", "aij", "ajk");
    EINSUM("iaj,jka->kia", "kia", "iaj", "jka");
    EINSUM("ij,ij->", "", "ij", "ij");
    EINSUM("i,j", "ij", "i", "j");
    EINSUM("ij,ij->ij", "ij", "ij", "ij");
    EINSUM("ij->ji", "ji", "ij");
    EINSUM("ij->j", "j", "ij");
    EINSUM("ij->", "", "ij");
    EINSUM("ii->i", "i", "ii");
    EINSUM("ii", "", "ii");
    EINSUM("iji->j", "j", "iji");
    EINSUM("abij,abjk,bkl->abil", "abil", "abij", "abjk", "bkl");
    EINSUM("ij,jk,kl,lm->im", "im", "ij", "jk", "kl", "lm");
    EINSUM("ij,jk,lm->ik", "ik", "ij", "jk", "lm");
    EINSUM("a,ab,abc->c", "c", "a", "ab", "abc");
    EINSUM(",ij->ij", "ij", "", "ij");
    EINSUM("...ij,...jk->...ik", "abik", "abij", "abjk");
    EINSUM("...ij, ...jk", "abik", "abij", "abjk");
    EINSUM("...ij,...jk->ik...", "ikab", "bij", "abjk");
    EINSUM("...ij,jk->...ik", "abik", "abij", "jk");
    EINSUM("i...->...i", "abi", "iab");
    EINSUM("...,...", "ab", "ab", "b");
    EINSUM("...", "ab", "ab");
    EINSUM("...ij->...j", "j", "ij");
    EINSUM("...ii->...i", "ai", "aii");
    EINSUM("...i,i->", "", "abi", "i");
    rig_close(&r);
}

/* Axes of "..." with one element are repeated. */
Test(products, einsum_broadcasts_the_axes_of_dots)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const a = deft_reshape(RIG_VECTOR(&r, 1, 2, 3, 4), DEFT_SHAPE(2, 1, 2));
    deft_tensor *const b = deft_reshape(RIG_VECTOR(&r, 1, 0, 0, 1, 1, 1), DEFT_SHAPE(3, 2));
    deft_tensor *const both[2] = { a, b }, *const other[2] = { b, a };
    RIG_EXPECT(&r, deft_einsum("...i,...i->...", both, 2), 1, 2, 3, 3, 4, 7);
    RIG_EXPECT(&r, deft_einsum("...i,...i->...", other, 2), 1, 2, 3, 3, 4, 7);
    RIG_EXPECT(&r, rig_grad_of_sum(deft_einsum("...i,...i->...", both, 2), a), 2, 2, 2, 2);
    deft_tensor *const line[2] = { deft_reshape(RIG_VECTOR(&r, 2), DEFT_SHAPE(1)), b };
    RIG_EXPECT(&r, deft_einsum("...,...->...", line, 2), 2, 0, 0, 2, 2, 2);
    rig_close(&r);
}

static uint64_t launches_of(rig *r, deft_tensor *t)
{
    const uint64_t before = rig_stats(r).launches;
    OK(r, deft_eval(&t, 1));
    return rig_stats(r).launches - before;
}

/* One product of two matrices, or of batches of them, is one launch. */
Test(products, pairs_are_products_of_matrices)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const a = deft_keep(deft_add(deft_iota(r.cx, DEFT_SHAPE(40, 30), 0), 0.5));
    deft_tensor *const b = deft_keep(deft_add(deft_iota(r.cx, DEFT_SHAPE(30, 50), 1), 0.25));
    deft_tensor *const all[2] = { a, b }, *const turned[2] = { deft_t(b), a };
    OK(&r, deft_eval(all, 2));
    cr_expect_eq(launches_of(&r, deft_einsum("ij,jk->ik", all, 2)), 1);
    cr_expect_eq(launches_of(&r, deft_einsum("kj,ij->ik", turned, 2)), 1);
    cr_expect_eq(launches_of(&r, deft_tensordot(a, b, DEFT_AXES(1), DEFT_AXES(0))), 1);
    float got[2000], want[2000];
    rig_read(&r, deft_einsum("kj,ij->ik", turned, 2), got, 2000);
    rig_read(&r, deft_matmul(a, b), want, 2000);
    cr_expect(!memcmp(got, want, sizeof got));
    deft_tensor *ta = a, *tb = b;
    deft_drop(&ta), deft_drop(&tb);
    rig_close(&r);
}

Test(products, tensordot_outer_vecdot)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const a = deft_reshape(rig_range(&r, 12, 0), DEFT_SHAPE(2, 3, 2));
    deft_tensor *const b = deft_reshape(rig_range(&r, 12, 1), DEFT_SHAPE(3, 2, 2));
    RIG_EXPECT(&r, deft_tensordot(a, b, DEFT_AXES(1, 2), DEFT_AXES(0, -1)), 116, 146, 314, 416);
    RIG_EXPECT(&r,
               deft_tensordot(RIG_VECTOR(&r, 1, 2), RIG_VECTOR(&r, 3, 4), DEFT_AXES(), DEFT_AXES()),
               3, 4, 6, 8);
    RIG_EXPECT(&r, deft_outer(RIG_VECTOR(&r, 1, 2), RIG_VECTOR(&r, 3, 4, 5)), 3, 4, 5, 6, 8, 10);
    deft_tensor *const m = deft_reshape(rig_range(&r, 6, 0), DEFT_SHAPE(2, 3));
    RIG_EXPECT(&r, deft_vecdot(m, RIG_VECTOR(&r, 1, 2, 3), -1), 8, 26);
    RIG_EXPECT(&r, deft_vecdot(m, m, -2), 9, 17, 29);
    const uint8_t u[2] = { 20, 30 };
    deft_tensor *const bytes = deft_from(r.cx, DEFT_SHAPE(2), DEFT_U8, u, sizeof u);
    cr_assert_eq(deft_dtype_of(deft_vecdot(bytes, bytes, -1)), DEFT_U8);
    RIG_EXPECT(&r, deft_vecdot(bytes, bytes, -1), 1300 % 256);
    rig_close(&r);
}

Test(products, gradient_of_a_chain)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const x = deft_reshape(rig_range(&r, 4, 1), DEFT_SHAPE(2, 2));
    deft_tensor *const all[3] = { x, RIG_VECTOR(&r, 1, 2), RIG_VECTOR(&r, 3, 4) };
    RIG_EXPECT(&r, rig_grad_of_sum(deft_einsum("ij,i,j->", all, 3), x), 3, 4, 6, 8);
    OK(&r, deft_step_end(s));
    rig_close(&r);
}

Test(products, mistakes)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const m = deft_zeros(r.cx, DEFT_SHAPE(2, 3), DEFT_F32);
    deft_tensor *const all[2] = { m, m };
#define REFUSED(equation, n, status, words)                                                        \
    rig_expect_error(&r, deft_einsum(equation, all, n), status, words)
    REFUSED("ij,jk->ik", 2, DEFT_E_SHAPE, "axis 0 of operand 2 has extent 2, another 3");
    REFUSED("ijk", 1, DEFT_E_SHAPE, "operand 1 has 2 axes and 3 labels");
    REFUSED("ij", 2, DEFT_E_ARG, "too few operands");
    REFUSED("ij,ij,ij", 2, DEFT_E_ARG, "too many operands");
    REFUSED("i.,ij->ij", 2, DEFT_E_ARG, "a label is a letter");
    REFUSED("ij-ij", 1, DEFT_E_ARG, "a label is a letter");
    REFUSED("...i...,ij->ij", 2, DEFT_E_ARG, "\"...\" once in a list");
    REFUSED("...ijk,ij->ij", 2, DEFT_E_SHAPE, "operand 1 has 2 axes and 3 labels");
    REFUSED("ij->ik", 1, DEFT_E_ARG, "a label of the result");
    REFUSED("ij->ii", 1, DEFT_E_ARG, "a label of the result");
    REFUSED("ij->i,j", 1, DEFT_E_ARG, "the result has one list");
    REFUSED("ijklmabcd", 1, DEFT_E_ARG, "more than 8 labels");
    REFUSED(NULL, 1, DEFT_E_ARG, "there is no equation");
    rig_expect_error(&r, deft_tensordot(m, m, DEFT_AXES(0), DEFT_AXES(1)), DEFT_E_SHAPE,
                     "tensordot: axis 1 of operand 2 has extent 3, another 2");
    rig_expect_error(&r, deft_tensordot(m, m, DEFT_AXES(0), DEFT_AXES()), DEFT_E_ARG,
                     "tensordot: 1 axes of a, 0 axes of b");
    rig_expect_error(&r, deft_tensordot(m, m, DEFT_AXES(2), DEFT_AXES(0)), DEFT_E_RANGE,
                     "tensordot");
    rig_expect_error(&r, deft_outer(m, m), DEFT_E_SHAPE, "outer: a has 2 axes");
    rig_expect_error(&r, deft_vecdot(m, m, 1), DEFT_E_RANGE, "vecdot: axis 1");
    rig_expect_error(&r, deft_vecdot(m, rig_range(&r, 2, 0), -1), DEFT_E_SHAPE,
                     "vecdot: vectors of 3 and 2 elements");
    deft_tensor *const bools[1] = { deft_ones(r.cx, DEFT_SHAPE(2), DEFT_BOOL) };
    rig_expect_error(&r, deft_einsum("i", bools, 1), DEFT_E_DTYPE, "operand 1 is bool");
    deft_tensor *const wide = deft_expand(deft_num(r.cx, 1), DEFT_SHAPE(1 << 20));
    deft_tensor *const many[] = { wide, wide, wide, wide };
    rig_expect_error(&r, deft_einsum("a,b,c,d->abcd", many, 4), DEFT_E_SHAPE, "too many elements");
    rig_close(&r);
}
