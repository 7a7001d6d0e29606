/* SPDX-License-Identifier: Apache-2.0
 *
 * The Arrow C data interface: formats of each dtype, lists of fixed size as axes, offsets, nulls
 * and bools as bits. Each struct is released once. What does not fit its format stays the caller's.
 */
#include <stdlib.h>
#include <string.h>

#include "support/fail_mem.h"
#include "support/harness.h"

#define S DEFT_SHAPE
#define LEN(a) (sizeof(a) / sizeof *(a))

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 1);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(arrow, .init = set_up, .fini = tear_down);

/* ---- export ---- */

Test(arrow, each_dtype_leaves_and_comes_back_where_it_is)
{
    static const char *const format[DEFT_N_DTYPES] = {
        [DEFT_U8] = "C",  [DEFT_I32] = "i", [DEFT_I64] = "l", [DEFT_F32] = "f",
        [DEFT_F64] = "g", [DEFT_F16] = "e", [DEFT_I8] = "c",  [DEFT_I16] = "s",
        [DEFT_U16] = "S", [DEFT_U32] = "I", [DEFT_U64] = "L",
    };
    for (deft_dtype t = 0; t < DEFT_N_DTYPES; t++) {
        struct ArrowSchema s;
        struct ArrowArray a;
        deft_mapped m;
        if (!format[t]) continue;
        const deft_scope scope = deft_scope_begin(r.cx);
        deft_tensor *const x = deft_cast(deft_iota(r.cx, S(4), 0), t);
        OK(&r, deft_to_arrow(x, &s, &a));
        cr_assert_str_eq(s.format, format[t]);
        cr_assert(a.length == 4 && a.n_buffers == 2 && !a.buffers[0] && !a.null_count && !a.offset);
        OK(&r, deft_map(x, &m));
        cr_assert_eq(a.buffers[1], m.data);
        deft_unmap(&m);
        deft_tensor *const y = deft_from_arrow(r.cx, &s, &a, NULL);
        cr_assert(y && deft_dtype_of(y) == t && !s.release && !a.release);
        RIG_EXPECT(&r, y, 0, 1, 2, 3);
        OK(&r, deft_scope_end(scope));
    }
}

Test(arrow, axes_are_lists_and_bools_are_bits)
{
    struct ArrowSchema s;
    struct ArrowArray a;
    deft_tensor *const x = deft_reshape(deft_arange(r.cx, 0, 24, 1, DEFT_F64), S(2, 3, 4));
    OK(&r, deft_to_arrow(x, &s, &a));
    cr_assert_str_eq(s.format, "+w:3");
    cr_assert_str_eq(s.children[0]->format, "+w:4");
    cr_assert_str_eq(s.children[0]->children[0]->format, "g");
    cr_assert(a.length == 2 && a.n_buffers == 1 && a.children[0]->length == 6);
    cr_assert_eq(a.children[0]->children[0]->length, 24);
    deft_tensor *y = deft_from_arrow(r.cx, &s, &a, NULL);
    cr_assert(y && deft_rank(y) == 3 && deft_dim(y, 2) == 4);
    RIG_EXPECT(&r, deft_slice(y, DEFT_AT(1), DEFT_AT(2)), 20, 21, 22, 23);

    const bool flags[10] = { 1, 0, 0, 1, 1, 0, 0, 0, 0, 1 };
    OK(&r, deft_to_arrow(DEFT_WRAP(r.cx, flags), &s, &a));
    const unsigned char *const bits = a.buffers[1];
    cr_assert(*s.format == 'b' && bits[0] == 0x19 && bits[1] == 2);
    y = deft_from_arrow(r.cx, &s, &a, NULL);
    RIG_EXPECT(&r, y, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1);

    OK(&r, deft_to_arrow(deft_num(r.cx, 2.5), &s, &a));
    cr_assert(a.length == 1 && ((const float *)a.buffers[1])[0] == 2.5f);
    s.release(&s);
    a.release(&a);
    OK(&r, deft_to_arrow(deft_zeros(r.cx, S(0, 3), DEFT_I8), &s, &a));
    y = deft_from_arrow(r.cx, &s, &a, NULL);
    cr_assert(y && deft_dim(y, 0) == 0 && deft_dim(y, 1) == 3);
}

Test(arrow, what_must_not_be_shared_is_copied)
{
    float m[4] = { 1, 2, 3, 4 };
    struct ArrowSchema s;
    struct ArrowArray a;
    OK(&r, deft_to_arrow(deft_wrap(r.cx, S(2), DEFT_F32, m, sizeof m, (int64_t[]){ -3 }), &s, &a));
    const float *const at = a.buffers[1];
    cr_assert(at[0] == 4 && at[1] == 1);
    s.release(&s);
    a.release(&a);
    deft_tensor *const x = DEFT_WRAP(r.cx, m);
    OK(&r, deft_to_arrow(x, &s, &a));
    cr_assert_neq(a.buffers[1], m);
    s.release(&s);
    a.release(&a);
    cr_assert(!s.release && !a.release);
    cr_assert_eq(deft_to_arrow(deft_ones(r.cx, S(1), DEFT_BF16), &s, &a), DEFT_E_DTYPE);
    cr_assert(!s.release && !a.release);
    cr_assert(strstr(deft_message(r.cx), "no bf16"), "%s", deft_message(r.cx));
    cr_assert_eq(deft_to_arrow(x, NULL, &a), DEFT_E_ARG);
    cr_assert_eq(deft_to_arrow(x, &s, NULL), DEFT_E_ARG);
    cr_assert_eq(deft_to_arrow(NULL, &s, &a), DEFT_E_ARG);
}

/* A consumer may take the elements out of a list, and release each later. */
Test(arrow, memory_outlives_context_and_runtime)
{
    fail_mem *mem = fail_mem_create();
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET,
                                     .resize = fail_mem_get(mem)->resize,
                                     .resize_user = fail_mem_get(mem)->user };
    struct ArrowSchema s;
    struct ArrowArray a;
    rig other;
    rig_open(&other, &o, NULL);
    OK(&other, deft_to_arrow(deft_ones(other.cx, S(2, 3), DEFT_F32), &s, &a));
    rig_close(&other);
    struct ArrowArray child = *a.children[0];
    a.children[0]->release = NULL;
    a.release(&a);
    cr_assert_eq(((const float *)child.buffers[1])[5], 1.f);
    child.release(&child);
    cr_assert_gt(fail_mem_count(mem).live_blocks, 0u);
    s.release(&s);
    cr_assert_eq(fail_mem_count(mem).live_blocks, 0u);
    cr_assert_eq(fail_mem_count(mem).faults, 0u, "%s", fail_mem_fault(mem));
    fail_mem_destroy(&mem);
}

/* ---- import ---- */

/* A column, perhaps with lists of 2 around it. It lives as long as the process. */
typedef struct column {
    struct ArrowSchema schema, child_schema, *schemas[1];
    struct ArrowArray array, child, *children[1];
    const void *buffers[2], *list_buffers[1];
    int n_released;
} column;

static void release_schema(struct ArrowSchema *s)
{
    ++*(int *)s->private_data;
    s->release = NULL;
}

static void release_array(struct ArrowArray *a)
{
    ++*(int *)a->private_data;
    a->release = NULL;
}

static column *column_of(const char *format, const void *data, int64_t n, int64_t offset,
                         bool is_list)
{
    static column all[64];
    static size_t count;
    cr_assert_lt(count, LEN(all));
    column *const c = &all[count++];
    struct ArrowSchema leaf = { .format = format, .release = release_schema };
    struct ArrowArray elements = {
        .length = n, .offset = offset, .n_buffers = 2, .release = release_array
    };
    *c = (column){ .buffers = { NULL, data } };
    leaf.private_data = elements.private_data = &c->n_released;
    elements.buffers = c->buffers;
    c->schema = leaf;
    c->array = elements;
    if (!is_list) return c;
    c->child_schema = leaf;
    c->child = elements;
    c->schemas[0] = &c->child_schema;
    c->children[0] = &c->child;
    c->schema.format = "+w:2";
    c->schema.n_children = c->array.n_children = 1;
    c->schema.children = c->schemas;
    c->array.children = c->children;
    c->array.buffers = c->list_buffers;
    c->array.n_buffers = 1;
    c->array.length = n / 2;
    c->array.offset = 0;
    return c;
}

static deft_tensor *take(column *c, deft_tensor **is_valid)
{
    return deft_from_arrow(r.cx, &c->schema, &c->array, is_valid);
}

Test(arrow, offsets_nulls_and_releases)
{
    static const int32_t data[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    static const unsigned char some[1] = { 0xed }; /* elements 1 and 4 are null */
    const deft_scope scope = deft_scope_begin(r.cx);
    column *c = column_of("i", data, 3, 2, false);
    deft_tensor *t = take(c, NULL), *valid;
    RIG_EXPECT(&r, t, 2, 3, 4);
    cr_assert(c->n_released == 1 && !c->schema.release && !c->array.release, "the schema alone");
    rig_expect_error(&r, take(c, NULL), DEFT_E_STATE, "was released");
    column *const list = column_of("i", data, 6, 1, true);
    list->array.offset = 1;
    list->array.length = 2;
    RIG_EXPECT(&r, take(list, NULL), 3, 4, 5, 6);

    column *const nulls = column_of("i", data, 6, 0, false);
    nulls->buffers[0] = some;
    nulls->array.null_count = -1;
    rig_expect_error(&r, take(nulls, NULL), DEFT_E_ARG, "2 of 6 elements are null");
    cr_assert(nulls->n_released == 0 && nulls->array.release, "it stays the caller's");
    t = take(nulls, &valid);
    RIG_EXPECT(&r, deft_where(valid, t, deft_num_i(r.cx, -1)), 0, -1, 2, 3, -1, 5);
    column *const few = column_of("i", data, 2, 2, false);
    few->buffers[0] = some;
    few->array.null_count = -1;
    RIG_EXPECT(&r, take(few, &valid), 2, 3);
    cr_assert_null(valid, "none of them is null");

    column *const flags = column_of("b", some, 5, 1, false);
    RIG_EXPECT(&r, take(flags, NULL), 0, 1, 1, 0, 1);
    cr_assert_eq(flags->n_released, 2, "a copy needs it no longer");
    OK(&r, deft_scope_end(scope));
    cr_assert(c->n_released == 2 && list->n_released == 2 && nulls->n_released == 2);
}

typedef struct refusal {
    const char *part;
    deft_status st;
    void (*spoil)(column *c);
} refusal;

#define SPOIL(name, ...)                                                                           \
    static void name(column *c)                                                                    \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
SPOIL(text, c->schema.format = "u";)
SPOIL(no_size, c->schema.format = "+w:";)
SPOIL(huge_size, c->schema.format = "+w:99999999999999999999";)
SPOIL(no_format, c->schema.format = NULL;)
SPOIL(dictionary, c->schema.dictionary = &c->child_schema;)
SPOIL(buffers, c->array.n_buffers = 3;)
SPOIL(no_buffers, c->array.buffers = NULL;)
SPOIL(children, c->array.n_children = 2;)
SPOIL(no_child, c->children[0] = NULL;)
SPOIL(no_children, c->schema.children = NULL;)
SPOIL(minus, c->array.length = -1;)
SPOIL(minus_offset, c->array.offset = -1;)
SPOIL(far_offset, c->array.offset = INT64_MAX;)
SPOIL(too_long, c->array.length = 4;)
SPOIL(overflows, c->schema.format = "+w:4611686018427387904"; c->array.length = 3;)
SPOIL(null_lists, static const unsigned char none[1]; c->list_buffers[0] = none;
      c->array.null_count = 3;)
SPOIL(no_elements, c->buffers[1] = NULL;)

static const refusal refusals[] = {
    { "\"u\" is no number", DEFT_E_DTYPE, text },
    { "\"+w:\" is no number", DEFT_E_DTYPE, no_size },
    { "is no number", DEFT_E_DTYPE, huge_size },
    { "a format is NULL", DEFT_E_ARG, no_format },
    { "a dictionary", DEFT_E_ARG, dictionary },
    { "with 3 buffers", DEFT_E_ARG, buffers },
    { "is not as the format", DEFT_E_ARG, no_buffers },
    { "and 2 children", DEFT_E_ARG, children },
    { "is NULL", DEFT_E_ARG, no_child },
    { "is not as the format", DEFT_E_ARG, no_children },
    { "a length of -1", DEFT_E_SHAPE, minus },
    { "at offset -1", DEFT_E_SHAPE, minus_offset },
    { "does not fit", DEFT_E_SHAPE, far_offset },
    { "a length of 6 at offset 0 does not fit", DEFT_E_SHAPE, too_long },
    { "its shape overflows", DEFT_E_SHAPE, overflows },
    { "3 of its lists are null", DEFT_E_ARG, null_lists },
    { "its elements are NULL", DEFT_E_ARG, no_elements },
};

Test(arrow, what_is_refused_stays_the_callers)
{
    static const float data[6] = { 0, 1, 2, 3, 4, 5 };
    for (size_t i = 0; i < LEN(refusals); i++) {
        column *const c = column_of("f", data, 6, 0, true);
        refusals[i].spoil(c);
        const column before = *c;
        rig_expect_error(&r, take(c, NULL), refusals[i].st, refusals[i].part);
        cr_assert(memcmp(c, &before, sizeof before) == 0, "%zu", i);
    }
    struct ArrowArray a = { 0 };
    rig_expect_error(&r, deft_from_arrow(r.cx, NULL, &a, NULL), DEFT_E_ARG, "schema is NULL");
    cr_assert_null(deft_from_arrow(NULL, NULL, NULL, NULL));
}
