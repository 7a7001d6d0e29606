/* SPDX-License-Identifier: Apache-2.0
 *
 * The Arrow C data interface in both directions (deft/arrow.h).
 *
 * An exported struct of each level owns one allocation, in which the struct of its child lies. A
 * consumer may move the child out, so that each level holds a reference to the runtime of its own.
 */
#include "deft/arrow.h"

#include "lazy/calls/wrap.h"
#include "lazy/exchange/shared.h"
#include "lazy/run/materialize.h"

#include <stdio.h>

/* ---- formats ---- */

/* The format of a dtype; 0: Arrow has none. */
static char arrow_letter(deft_dtype t)
{
    static const char letters[][2] = { { 'c', 'C' }, { 's', 'S' }, { 'i', 'I' }, { 'l', 'L' } };
    const uint32_t bits = df_bits_of(t), row = bits == 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3;
    switch (df_kind_of(t)) {
    case DF_KIND_boolean: return 'b';
    case DF_KIND_integer: return letters[row][0];
    case DF_KIND_natural: return letters[row][1];
    case DF_KIND_real: return t == DEFT_F32 ? 'f' : 'g';
    case DF_KIND_half: return t == DEFT_F16 ? 'e' : '\0';
    case DF_KIND_complex:
    case DF_KIND_coded:
    case DF_KIND_packed: return '\0';
    }
    df_unreachable();
}

/* The dtype of a format; DEFT_N_DTYPES: it is none. */
static deft_dtype arrow_dtype(const char *format)
{
    deft_dtype t = (deft_dtype)0;
    if (!format[0] || format[1]) return DEFT_N_DTYPES;
    while (t < DEFT_N_DTYPES && arrow_letter(t) != format[0]) t = (deft_dtype)(t + 1);
    return t;
}

/* The size of a list of fixed size, "+w:N"; -1: the format is another one. */
static int64_t arrow_list_size(const char *format)
{
    int64_t n = 0;
    if (strncmp(format, "+w:", 3) != 0 || !format[3]) return -1;
    for (const char *at = format + 3; *at; at++)
        if (*at < '0' || *at > '9' || !df_mul_i64(n, 10, &n) || !df_add_i64(n, *at - '0', &n))
            return -1;
    return n;
}

/* ---- export ---- */

typedef struct schema_level {
    deft_runtime *rt; /* a reference */
    char format[24];
    struct ArrowSchema child, *children[1];
} schema_level;

typedef struct array_level {
    deft_runtime *rt; /* a reference */
    df_buffer *buf;   /* of the innermost level: a reference */
    const void *buffers[2];
    struct ArrowArray child, *children[1];
} array_level;

static void level_free(void *level, size_t size, deft_runtime *rt)
{
    df_mem_free(rt->mem, level, size);
    deft_runtime_destroy(&rt);
}

static void schema_release(struct ArrowSchema *self)
{
    schema_level *const l = self->private_data;
    if (self->n_children && l->child.release) l->child.release(&l->child);
    level_free(l, sizeof *l, l->rt);
    self->release = NULL;
}

static void array_release(struct ArrowArray *self)
{
    array_level *const l = self->private_data;
    if (self->n_children && l->child.release) l->child.release(&l->child);
    df_buffer_drop(&l->buf);
    level_free(l, sizeof *l, l->rt);
    self->release = NULL;
}

/* Fills in the schema of axis `axis` and of those inside it. */
static deft_status export_schema(deft_ctx *cx, const df_value *v, uint32_t axis,
                                 struct ArrowSchema *out)
{
    const bool is_list = axis + 1 < v->rank;
    schema_level *const l = df_mem_zalloc(cx->mem, sizeof *l);
    if (!l) return df_fail_mem(&cx->diag, "to_arrow", sizeof *l);
    l->rt = df_runtime_ref(cx);
    if (is_list)
        (void)snprintf(l->format, sizeof l->format, "+w:%lld", (long long)v->shape.dim[axis + 1]);
    else
        l->format[0] = arrow_letter((deft_dtype)v->dtype);
    l->children[0] = &l->child;
    *out = (struct ArrowSchema){ .format = l->format,
                                 .name = "",
                                 .n_children = is_list,
                                 .children = is_list ? l->children : NULL,
                                 .release = schema_release,
                                 .private_data = l };
    const deft_status st = is_list ? export_schema(cx, v, axis + 1, &l->child) : DEFT_OK;
    if (st != DEFT_OK) schema_release(out);
    return st;
}

/* The same for the array. length: of this level. buf: what the elements lie in. */
static deft_status export_array(deft_ctx *cx, const df_value *v, uint32_t axis, int64_t length,
                                df_buffer *buf, const void *data, struct ArrowArray *out)
{
    const bool is_list = axis + 1 < v->rank;
    array_level *const l = df_mem_zalloc(cx->mem, sizeof *l);
    if (!l) return df_fail_mem(&cx->diag, "to_arrow", sizeof *l);
    l->rt = df_runtime_ref(cx);
    if (!is_list) {
        l->buf = df_buffer_ref(buf);
        l->buffers[1] = data;
    }
    l->children[0] = &l->child;
    *out = (struct ArrowArray){ .length = length,
                                .n_buffers = is_list ? 1 : 2,
                                .n_children = is_list,
                                .buffers = l->buffers,
                                .children = is_list ? l->children : NULL,
                                .release = array_release,
                                .private_data = l };
    if (!is_list) return DEFT_OK;
    const int64_t inside = length * v->shape.dim[axis + 1];
    const deft_status st = export_array(cx, v, axis + 1, inside, buf, data, &l->child);
    if (st != DEFT_OK) array_release(out);
    return st;
}

/* Bools as bits, the first one lowest. v is on the host and contiguous. */
static deft_status pack_bits(deft_ctx *cx, const df_value *v, df_buffer **out)
{
    const size_t n = df_value_size(v);
    const deft_status st =
        df_buffer_create(&cx->diag, cx->rt->dev->allocator, (int64_t)((n + 7) / 8), out);
    if (st != DEFT_OK) return st;
    unsigned char *const bits = (*out)->data;
    memset(bits, 0, (n + 7) / 8);
    for (size_t i = 0; i < n; i++)
        bits[i / 8] = (unsigned char)(bits[i / 8] | (v->data[i] != 0) << i % 8);
    return DEFT_OK;
}

static deft_status export_value(deft_ctx *cx, df_value *v, struct ArrowSchema *schema,
                                struct ArrowArray *array)
{
    deft_status st = DEFT_OK;
    df_value *copy = NULL;
    df_buffer *bits = NULL;
    const deft_dtype t = (deft_dtype)v->dtype;
    if (!arrow_letter(t))
        return df_fail(&cx->diag, DEFT_E_DTYPE, "to_arrow: Arrow has no %s", deft_dtype_name(t));
    if (df_must_copy(v) || !df_value_contiguous(v) || df_value_where(cx, v) != DEFT_CPU) {
        TRY(df_value_moved(cx, &cx->diag, v, DEFT_CPU, &copy));
        v = copy;
    }
    if (t == DEFT_BOOL) TRY(pack_bits(cx, v, &bits));
    TRY(export_schema(cx, v, 0, schema));
    TRY(export_array(cx, v, 0, v->rank ? v->shape.dim[0] : 1, bits ? bits : v->buf,
                     bits ? bits->data : v->data, array));
done:
    if (st != DEFT_OK && schema->release) schema->release(schema);
    df_buffer_drop(&bits);
    df_value_drop(cx, &copy);
    return st;
}

deft_status deft_to_arrow(deft_tensor *t, struct ArrowSchema *schema, struct ArrowArray *array)
{
    deft_ctx *cx;
    df_value *v;
    if (schema) schema->release = NULL;
    if (array) array->release = NULL;
    const deft_status st = df_read_value("to_arrow", DF_SITE, t, &cx, &v);
    if (st != DEFT_OK) return st;
    if (!schema || !array)
        return df_fail(&cx->diag, DEFT_E_ARG, "to_arrow: %s is NULL", schema ? "array" : "schema");
    return export_value(cx, v, schema, array);
}

/* ---- import ---- */

/* What an array is. */
typedef struct arrow_column {
    deft_dtype dtype;
    deft_shape shape;
    int64_t from; /* index of the first element in the buffers of the innermost level */
    int64_t n;    /* number of elements */
    const struct ArrowArray *leaf;
} arrow_column;

static bool bit_is_set(const unsigned char *bits, int64_t i)
{
    return bits[i / 8] >> i % 8 & 1;
}

/* The nulls of a level: counted, unless the producer says that there are none. */
static int64_t count_nulls(const struct ArrowArray *a, int64_t from, int64_t n)
{
    int64_t nulls = 0;
    if (!a->null_count || !a->buffers || !a->buffers[0]) return 0;
    for (int64_t i = from; i < from + n; i++) nulls += !bit_is_set(a->buffers[0], i);
    return nulls;
}

/* Follows the lists down to the elements. */
static deft_status describe_column(df_diag *d, const struct ArrowSchema *s,
                                   const struct ArrowArray *a, arrow_column *out)
{
    *out = (arrow_column){ .n = a->length };
    for (;;) {
        if (!s || !a || !s->format) return df_fail(d, DEFT_E_ARG, "a child or a format is NULL");
        const int64_t size = arrow_list_size(s->format), n_buffers = size < 0 ? 2 : 1;
        int64_t end;
        out->dtype = arrow_dtype(s->format);
        if (size < 0 && out->dtype == DEFT_N_DTYPES)
            return df_fail(d, DEFT_E_DTYPE,
                           "its format \"%.32s\" is no number, bool or list of fixed size",
                           s->format);
        if (s->dictionary || a->dictionary) return df_fail(d, DEFT_E_ARG, "it has a dictionary");
        if (a->n_buffers != n_buffers || !a->buffers || a->n_children != (size >= 0) ||
            s->n_children != a->n_children || (size >= 0 && (!a->children || !s->children)))
            return df_fail(d, DEFT_E_ARG,
                           "\"%.32s\" with %lld buffers and %lld children is not as the format "
                           "says",
                           s->format, (long long)a->n_buffers, (long long)a->n_children);
        if (a->length < 0 || a->offset < 0 || !df_add_i64(out->from, a->offset, &out->from) ||
            !df_add_i64(out->from, out->n, &end) || end - a->offset > a->length)
            return df_fail(d, DEFT_E_SHAPE, "a length of %lld at offset %lld does not fit",
                           (long long)a->length, (long long)a->offset);
        if (out->shape.rank == 0) out->shape = (deft_shape){ .rank = 1, .dim = { out->n } };
        out->leaf = a;
        if (size < 0) return DEFT_OK;
        if (out->shape.rank == DEFT_MAX_RANK)
            return df_fail(d, DEFT_E_SHAPE, "it has more than %d axes", DEFT_MAX_RANK);
        out->shape.dim[out->shape.rank++] = size;
        if (!df_mul_i64(out->from, size, &out->from) || !df_mul_i64(out->n, size, &out->n))
            return df_fail(d, DEFT_E_SHAPE, "its shape overflows");
        s = s->children[0];
        a = a->children[0];
    }
}

/* The nulls among all lists. Their levels were described. */
static int64_t count_null_lists(const struct ArrowSchema *s, const struct ArrowArray *a)
{
    int64_t nulls = 0, from = 0, n = a->length;
    for (int64_t size; (size = arrow_list_size(s->format)) >= 0;) {
        from += a->offset;
        nulls += count_nulls(a, from, n);
        from *= size;
        n *= size;
        s = s->children[0];
        a = a->children[0];
    }
    return nulls;
}

/* A bool tensor of the bits [from, from + n). */
static deft_tensor *tensor_of_bits(deft_ctx *cx, const deft_shape *shape, const unsigned char *bits,
                                   int64_t from, int64_t n)
{
    char *const bytes = df_mem_alloc(cx->mem, (size_t)n + 1);
    if (!bytes) return df_error(cx, DEFT_E_MEMORY, "from_arrow: no memory");
    for (int64_t i = 0; i < n; i++) bytes[i] = (char)bit_is_set(bits, from + i);
    deft_tensor *const t = deft_from(cx, *shape, DEFT_BOOL, bytes, (size_t)n);
    df_mem_free(cx->mem, bytes, (size_t)n + 1);
    return t;
}

typedef struct moved_array {
    struct ArrowArray array;
    const df_mem *mem;
} moved_array;

static void release_moved(void *user)
{
    moved_array m = *(moved_array *)user;
    df_mem_free(m.mem, user, sizeof m);
    m.array.release(&m.array);
}

/* Makes a tensor of the elements, and moves *array into it. */
static deft_tensor *borrow_elements(deft_ctx *cx, const arrow_column *c, struct ArrowArray *array)
{
    const size_t size = deft_dtype_size(c->dtype);
    moved_array *const m = df_mem_alloc(cx->mem, sizeof *m);
    if (!m) return df_error(cx, DEFT_E_MEMORY, "from_arrow: no memory");
    *m = (moved_array){ *array, cx->mem };
    char *at = (char *)(uintptr_t)c->leaf->buffers[1];
    if (c->n) at += (size_t)c->from * size; /* without elements it may be NULL */
    const df_wrapping w = { .what = "from_arrow",
                            .dtype = c->dtype,
                            .shape = &c->shape,
                            .data = at,
                            .bytes = (size_t)c->n * size,
                            .release = { release_moved, m } };
    deft_tensor *const t = df_wrap(cx, &w);
    if (!t) df_mem_free(cx->mem, m, sizeof *m);
    return t;
}

/* Checks the column, except its nulls. Returns false with the error recorded. */
static bool find_column(deft_ctx *cx, const struct ArrowSchema *schema,
                        const struct ArrowArray *array, arrow_column *out)
{
    df_shape s;
    df_diag d = { 0 };
    const deft_status st = describe_column(&d, schema, array, out);
    if (st != DEFT_OK) df_error(cx, st, "from_arrow: %s", d.text);
    if (st != DEFT_OK || !df_check_shape(cx, "from_arrow", &out->shape, &s)) return false;
    const int64_t null_lists = count_null_lists(schema, array);
    if (null_lists)
        df_error(cx, DEFT_E_ARG, "from_arrow: %lld of its lists are null", (long long)null_lists);
    else if (out->n && !out->leaf->buffers[1])
        df_error(cx, DEFT_E_ARG, "from_arrow: its elements are NULL");
    else
        return true;
    return false;
}

static deft_tensor *import_column(deft_ctx *cx, const arrow_column *c, struct ArrowSchema *schema,
                                  struct ArrowArray *array, deft_tensor **is_valid)
{
    deft_tensor *t = NULL, *valid = NULL;
    const unsigned char *const present = c->leaf->buffers[0];
    const int64_t nulls = count_nulls(c->leaf, c->from, c->n);
    if (nulls && !is_valid)
        return df_error(cx, DEFT_E_ARG,
                        "from_arrow: %lld of %lld elements are null, and is_valid is NULL",
                        (long long)nulls, (long long)c->n);
    if (nulls && !(valid = tensor_of_bits(cx, &c->shape, present, c->from, c->n))) return NULL;
    const bool is_bits = c->dtype == DEFT_BOOL;
    if (is_bits)
        t = tensor_of_bits(cx, &c->shape, c->leaf->buffers[1], c->from, c->n);
    else
        t = borrow_elements(cx, c, array);
    if (!t) return NULL;
    if (is_bits) array->release(array);
    array->release = NULL; /* moved, or released */
    schema->release(schema);
    schema->release = NULL;
    if (is_valid) *is_valid = valid;
    return t;
}

deft_tensor *deft_from_arrow(deft_ctx *cx, struct ArrowSchema *schema, struct ArrowArray *array,
                             deft_tensor **is_valid)
{
    df_enter_call(cx, DF_SITE);
    arrow_column c;
    if (is_valid) *is_valid = NULL;
    if (!cx) return NULL;
    if (!schema || !array)
        return df_error(cx, DEFT_E_ARG, "from_arrow: %s is NULL", schema ? "array" : "schema");
    if (!schema->release || !array->release)
        return df_error(cx, DEFT_E_STATE, "from_arrow: the %s was released",
                        schema->release ? "array" : "schema");
    if (!find_column(cx, schema, array, &c)) return NULL;
    return import_column(cx, &c, schema, array, is_valid);
}
