/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints in safetensors files (lazy/files/safetensors.h has the header).
 *
 * Saving replaces the file as a whole (base/replace.h). Loading first checks names,
 * shapes, dtypes and the whole header, then reads every value, then assigns. When an
 * assign fails, the earlier ones are rolled back. Inside a step, the assigns belong to
 * the step's transaction.
 */
#include "lazy/calls/save.h"

#include "base/bits.h"
#include "lazy/calls/views.h"
#include "lazy/core/devices.h"
#include "lazy/core/recorder.h"
#include "lazy/files/reader.h"
#include "lazy/files/safetensors.h"
#include "lazy/run/submit.h"
#include "lazy/run/materialize.h"

#include <string.h>

deft_status df_check_named(deft_ctx *cx, const char *what, const char *path, const deft_named *list,
                           size_t n)
{
    deft_status st = df_may_act(cx);
    if (st == DEFT_OK) st = df_wait_for_steps(cx);
    if (st != DEFT_OK) return st;
    if (!path || !*path) return df_fail(&cx->diag, DEFT_E_ARG, "%s: no path", what);
    if (!list && n) return df_fail(&cx->diag, DEFT_E_ARG, "%s: the list is NULL", what);
    if (n > UINT32_MAX / sizeof(df_safetensors_entry))
        return df_fail(&cx->diag, DEFT_E_LIMIT, "%s: %zu tensors", what, n);
    for (size_t i = 0; i < n; i++) {
        if (!list[i].name || !*list[i].name)
            return df_fail(&cx->diag, DEFT_E_ARG, "%s: tensor %zu has no name", what, i + 1);
        if (df_enter_more_of(cx, what, (unsigned)i + 1, list[i].tensor, DF_ALL_FACES) &&
            !df_owes(cx, list[i].tensor))
            continue;
        char shown[DF_SAFETENSORS_SHOW];
        st = df_deliver(cx);
        df_fail_more(&cx->diag, " (\"%s\")",
                     df_safetensors_show(list[i].name, strlen(list[i].name), shown, sizeof shown));
        return st;
    }
    return DEFT_OK;
}

/* ---- saving ---- */

typedef struct saver {
    deft_ctx *cx;
    const deft_named *list;
    size_t n;
    /* tensors in file order: wide elements first, so that all are aligned */
    uint32_t *order;
    df_safetensors_entry *entry; /* in file order */
    df_want *want;
    uint32_t n_want;
    uint32_t *want_of; /* per tensor: its want, DF_NONE when it has a value */
    df_value **value;  /* per tensor: counted */
    df_str header;
    df_writer file;
} saver;

static deft_status saver_init(saver *s)
{
    const df_mem *const m = s->cx->mem;
    df_str_init(&s->header, m);
    if (!s->n) return DEFT_OK;
    s->order = df_mem_zalloc(m, s->n * sizeof *s->order);
    s->entry = df_mem_zalloc(m, s->n * sizeof *s->entry);
    s->want = df_mem_zalloc(m, s->n * sizeof *s->want);
    s->want_of = df_mem_zalloc(m, s->n * sizeof *s->want_of);
    s->value = df_mem_zalloc(m, s->n * sizeof *s->value);
    if (!s->order || !s->entry || !s->want || !s->want_of || !s->value)
        return df_fail_mem(&s->cx->diag, "save", s->n * sizeof *s->entry);
    return DEFT_OK;
}

static void saver_finish(saver *s)
{
    const df_mem *const m = s->cx->mem;
    df_writer_finish(&s->file);
    for (uint32_t i = 0; i < s->n_want; i++) df_value_drop(s->cx, &s->want[i].result);
    for (size_t i = 0; s->value && i < s->n; i++) df_value_drop(s->cx, &s->value[i]);
    df_str_finish(&s->header);
    df_mem_free(m, s->order, s->n * sizeof *s->order);
    df_mem_free(m, s->entry, s->n * sizeof *s->entry);
    df_mem_free(m, s->want, s->n * sizeof *s->want);
    df_mem_free(m, s->want_of, s->n * sizeof *s->want_of);
    df_mem_free(m, s->value, s->n * sizeof *s->value);
}

/* Gives each tensor its bytes of the data section, and makes the header. Nothing is
 * computed before. */
static deft_status saver_build_header(saver *s)
{
    deft_ctx *const cx = s->cx;
    size_t k = 0;
    uint64_t at = 0;
    for (size_t size = 8; size; size /= 2)
        for (size_t i = 0; i < s->n; i++) {
            const deft_tensor *const t = s->list[i].tensor;
            const deft_dtype dtype = df_shown_dtype(cx, t);
            if (dtype == DEFT_C128 || df_kind_of(dtype) == DF_KIND_packed)
                return df_fail(&cx->diag, DEFT_E_DTYPE,
                               "save: \"%s\" is %s, for which the format has no name: save deft_%s",
                               s->list[i].name, deft_dtype_name(dtype),
                               dtype == DEFT_C128 ? "view_as_real of it" : "bitcast of it to u8");
            if (deft_dtype_size(dtype) != size) continue;
            df_shape shape;
            int64_t numel;
            df_shown_shape(cx, t, &shape);
            (void)df_shape_numel(&shape, &numel);
            df_safetensors_entry *const e = &s->entry[k];
            *e = (df_safetensors_entry){ .name = s->list[i].name,
                                         .dtype = (int32_t)dtype,
                                         .rank = shape.rank };
            const size_t name_size = strlen(e->name);
            if (name_size > DF_SAFETENSORS_MAX_HEADER)
                return df_fail(&cx->diag, DEFT_E_LIMIT, "save: a name of %zu bytes", name_size);
            e->name_size = (uint32_t)name_size;
            memcpy(e->dim, shape.dim, shape.rank * sizeof *shape.dim);
            e->begin = at;
            if (__builtin_add_overflow(at, (uint64_t)numel * size, &at) || at > INT64_MAX)
                return df_fail(&cx->diag, DEFT_E_LIMIT, "save: more bytes than a file can have");
            e->end = at;
            s->order[k++] = (uint32_t)i;
        }
    df_assert(k == s->n);
    return df_safetensors_write(&cx->diag, cx->mem, s->entry, s->n, &s->header);
}

/* Gets the values of all tensors. Pending ones are computed together. */
static deft_status saver_compute_all(saver *s)
{
    deft_ctx *const cx = s->cx;
    df_recording_reads(cx);
    for (size_t i = 0; i < s->n; i++) {
        deft_tensor *const t = s->list[i].tensor;
        s->want_of[i] = DF_NONE;
        if ((s->value[i] = df_value_ref(df_handle_value(cx, t)))) continue;
        const uint32_t node = df_node_of(cx, t);
        if (node == DF_BAD) return df_deliver(cx);
        uint32_t w = 0;
        while (w < s->n_want && s->want[w].node != node) w++;
        if (w == s->n_want) s->want[s->n_want++].node = node;
        s->want_of[i] = w;
    }
    if (!s->n_want) return DEFT_OK;
    const deft_status st = df_sync(cx, s->want, s->n_want);
    if (st != DEFT_OK) return st;
    for (size_t i = 0; i < s->n; i++)
        if (s->want_of[i] != DF_NONE) s->value[i] = df_value_ref(s->want[s->want_of[i]].result);
    return DEFT_OK;
}

/* Writes the elements of v, which is on the host. */
static deft_status write_here(deft_ctx *cx, df_writer *w, const df_value *v)
{
    const size_t bytes = df_value_size(v);
    const uint32_t size = df_bytes_of((deft_dtype)v->dtype);
    const bool is_swapped = DF_IS_BIG_ENDIAN && size > 1;
    if (df_value_contiguous(v) && !is_swapped) return df_writer_put(w, v->data, bytes);
    char *const packed = df_mem_alloc(cx->mem, bytes);
    if (!packed) return df_fail_mem(&cx->diag, w->what, bytes);
    df_value_pack(v, (deft_dtype)v->dtype, packed);
    if (is_swapped) df_bits_reverse(packed, bytes, size);
    const deft_status st = df_writer_put(w, packed, bytes);
    df_mem_free(cx->mem, packed, bytes);
    return st;
}

deft_status df_write_value(deft_ctx *cx, df_writer *w, df_value *v)
{
    df_value *here = NULL;
    if (!df_value_size(v)) return DEFT_OK;
    deft_status st = df_value_host(cx, &cx->diag, v, &here);
    if (st == DEFT_OK) st = write_here(cx, w, here);
    df_value_drop(cx, &here);
    return st;
}

deft_status deft_save(deft_ctx *cx, const char *path, const deft_named *list, size_t n)
{
    if (!cx) return DEFT_E_ARG;
    df_act(cx, "save", DF_SITE);
    deft_status st = df_check_named(cx, "save", path, list, n);
    if (st != DEFT_OK) return st;
    saver s = { .cx = cx, .list = list, .n = n };
    s.file = (df_writer){ .d = &cx->diag, .what = "save", .path = path, .file.fd = -1 };
    TRY(saver_init(&s));
    TRY(saver_build_header(&s));
    TRY(saver_compute_all(&s));
    TRY(df_writer_begin(&s.file, cx->mem));
    TRY(df_writer_put(&s.file, s.header.at, s.header.n));
    for (size_t k = 0; k < n; k++) TRY(df_write_value(cx, &s.file, s.value[s.order[k]]));
    TRY(df_writer_commit(&s.file));
done:
    saver_finish(&s);
    return st;
}

/* ---- loading ---- */

/* The binding of a tensor before an assign, for restoring it. */
typedef struct binding {
    deft_tensor *t;  /* NULL: none */
    df_value *value; /* counted */
    deft_tensor *root;
    uint32_t node, epoch, place;
    df_mut mut; /* the entry of t when it is wrapped memory; its `what` is counted */
} binding;

typedef struct loader {
    deft_ctx *cx;
    const char *path;
    const deft_named *list;
    size_t n;
    df_reader file;
    df_safetensors_file header;
    const df_safetensors_entry **entry; /* per tensor */
    df_value **value;                   /* per tensor: counted */
    /* the bindings of each tensor and of all tensors of which it is a view */
    binding *before;
    size_t n_before, max_before;
} loader;

/* Checks that the file's entry for one tensor fits the tensor. */
static deft_status match(loader *l, size_t i)
{
    deft_ctx *const cx = l->cx;
    const char *const name = l->list[i].name;
    char shown[DF_SAFETENSORS_SHOW], a[DF_SHAPE_TEXT], b[DF_SHAPE_TEXT];
    df_safetensors_show(name, strlen(name), shown, sizeof shown);
    const df_safetensors_entry *const e = df_safetensors_find(&l->header.table, name);
    if (!e)
        return df_fail(&cx->diag, DEFT_E_NOT_FOUND, "load: %s: no tensor is named \"%s\"", l->path,
                       shown);
    const deft_dtype dtype = df_shown_dtype(cx, l->list[i].tensor);
    if (e->dtype != (int32_t)dtype)
        return df_fail(&cx->diag, DEFT_E_DTYPE,
                       "load: %s: \"%s\" is %s in the file, the tensor is %s", l->path, shown,
                       e->dtype_text, deft_dtype_name(dtype));
    df_shape want, have = { .rank = e->rank };
    df_shown_shape(cx, l->list[i].tensor, &want);
    if (e->rank > DEFT_MAX_RANK)
        return df_fail(&cx->diag, DEFT_E_SHAPE,
                       "load: %s: \"%s\" has %u axes in the file, the tensor is %s", l->path, shown,
                       e->rank, df_shape_text(&want, b, sizeof b));
    memcpy(have.dim, e->dim, e->rank * sizeof *e->dim);
    if (!df_shape_equal(&want, &have))
        return df_fail(&cx->diag, DEFT_E_SHAPE,
                       "load: %s: \"%s\" is %s in the file, the tensor is %s", l->path, shown,
                       df_shape_text(&have, a, sizeof a), df_shape_text(&want, b, sizeof b));
    l->entry[i] = e;
    return DEFT_OK;
}

/* Moves a value that was read to the device of its tensor. */
static deft_status move_value(loader *l, size_t i)
{
    deft_ctx *const cx = l->cx;
    const df_value *const before = df_handle_value(cx, l->list[i].tensor);
    const deft_device where = before ? df_value_where(cx, before) : cx->default_device;
    df_value *v = l->value[i];
    if (where == DEFT_CPU) return DEFT_OK;
    const deft_status st = df_value_moved(cx, &cx->diag, v, where, &l->value[i]);
    if (st == DEFT_OK) df_value_drop(cx, &v);
    return st;
}

static deft_status read_value(loader *l, size_t i)
{
    deft_status st = DEFT_OK;
    deft_ctx *const cx = l->cx;
    const df_safetensors_entry *const e = l->entry[i];
    const size_t bytes = (size_t)(e->end - e->begin);
    df_shape shape = { .rank = e->rank };
    const deft_dtype t = (deft_dtype)e->dtype;
    memcpy(shape.dim, e->dim, e->rank * sizeof *e->dim);
    if (!df_face_hide(cx, "load", df_face_for(t), &shape)) return df_deliver(cx);
    df_value *const v = l->value[i] = df_value_new(cx, df_record_dtype(t), &shape);
    if (!v) return df_fail_mem(&cx->diag, "load", sizeof *v);
    TRY(df_buffer_create(&cx->diag, cx->rt->dev->allocator, (int64_t)bytes, &v->buf));
    v->data = v->buf->data;
    TRY(df_reader_at(&l->file, v->data, bytes, l->header.data_at + e->begin));
    if (DF_IS_BIG_ENDIAN) df_bits_reverse(v->data, bytes, df_bytes_of(df_record_dtype(t)));
    if (e->dtype == DEFT_BOOL) /* kernels rely on bools being one byte, 0 or 1 */
        for (size_t k = 0; k < bytes; k++) v->data[k] = v->data[k] != 0;
    TRY(move_value(l, i));
done:
    return st;
}

static void loader_save_bindings(loader *l, deft_tensor *t)
{
    for (; t; t = df_root_of(t)) {
        const df_mut *const m = df_mut_of(l->cx, t);
        binding *const b = &l->before[l->n_before++];
        *b = (binding){ t, df_value_ref(t->value), t->root, t->node, t->epoch, t->place, { 0 } };
        if (!m) continue;
        b->mut = *m;
        df_value_ref(b->mut.now.what);
        df_value_ref(b->mut.before.what);
    }
}

static void loader_restore_bindings(loader *l)
{
    while (l->n_before) {
        binding *const b = &l->before[--l->n_before];
        df_mut *const m = df_mut_of(l->cx, b->t);
        df_value_drop(l->cx, &b->t->value);
        b->t->value = b->value;
        b->t->root = b->root;
        b->t->node = b->node;
        b->t->epoch = b->epoch;
        b->t->place = b->place;
        if (!m) continue;
        df_value_drop(l->cx, &m->now.what);
        df_value_drop(l->cx, &m->before.what);
        m->now = b->mut.now;
        m->before = b->mut.before;
        m->in_step = b->mut.in_step;
    }
}

/* Assigns all values. The earlier bindings are remembered with their record numbers, so
 * this is a walk. */
static deft_status assign_all(loader *l)
{
    deft_status st = DEFT_OK;
    df_walk_begin(l->cx);
    for (size_t i = 0; i < l->n && st == DEFT_OK; i++) {
        deft_tensor *const dst = l->list[i].tensor;
        loader_save_bindings(l, dst);
        st = df_assign_value(l->cx, dst, l->value[i]);
        if (st == DEFT_OK) continue;
        char shown[DF_SAFETENSORS_SHOW];
        df_fail_more(
            &l->cx->diag, " (load of \"%s\")",
            df_safetensors_show(l->list[i].name, strlen(l->list[i].name), shown, sizeof shown));
        loader_restore_bindings(l);
    }
    df_walk_end(l->cx);
    return st;
}

static void loader_finish(loader *l)
{
    const df_mem *const m = l->cx->mem;
    df_reader_close(&l->file);
    for (size_t i = 0; i < l->n_before; i++) {
        df_value_drop(l->cx, &l->before[i].value);
        df_value_drop(l->cx, &l->before[i].mut.now.what);
        df_value_drop(l->cx, &l->before[i].mut.before.what);
    }
    for (size_t i = 0; l->value && i < l->n; i++) df_value_drop(l->cx, &l->value[i]);
    df_safetensors_close(&l->header, m);
    df_mem_free(m, l->entry, l->n * sizeof *l->entry);
    df_mem_free(m, l->value, l->n * sizeof *l->value);
    df_mem_free(m, l->before, l->max_before * sizeof *l->before);
}

deft_status deft_load(deft_ctx *cx, const char *path, const deft_named *list, size_t n)
{
    if (!cx) return DEFT_E_ARG;
    df_act(cx, "load", DF_SITE);
    deft_status st = df_check_named(cx, "load", path, list, n);
    if (st != DEFT_OK) return st;
    loader l = { .cx = cx, .path = path, .list = list, .n = n };
    l.file = (df_reader){ .d = &cx->diag, .what = "load", .path = path, .fd = -1 };
    if (n) {
        l.entry = df_mem_zalloc(cx->mem, n * sizeof *l.entry);
        l.value = df_mem_zalloc(cx->mem, n * sizeof *l.value);
        for (size_t i = 0; i < n; i++)
            for (const deft_tensor *t = list[i].tensor; t; t = df_root_of(t)) l.max_before++;
        l.before = df_mem_zalloc(cx->mem, l.max_before * sizeof *l.before);
        if (!l.entry || !l.value || !l.before)
            TRY(df_fail_mem(&cx->diag, "load", l.max_before * sizeof *l.before));
    }
    TRY(df_reader_open(&l.file));
    TRY(df_safetensors_read(&l.file, cx->mem, &l.header));
    for (size_t i = 0; i < n; i++) TRY(match(&l, i));
    for (size_t i = 0; i < n; i++) TRY(read_value(&l, i));
    TRY(assign_all(&l));
done:
    loader_finish(&l);
    return st;
}
