/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that say what they have (deft/files.h): opened, listed, and their tensors loaded or mapped.
 */
#include "deft/files.h"

#include "lazy/calls/wrap.h"
#include "lazy/files/listing.h"
#include "lazy/files/safetensors.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct deft_file {
    deft_ctx *cx;
    char *path;
    size_t path_size;
    df_diag d; /* of the call that runs */
    df_reader reader;
    df_listing list;
};

deft_status deft_file_open(deft_ctx *cx, const char *path, deft_file **out)
{
    deft_status st = DEFT_OK;
    deft_file *f = NULL;
    if (out) *out = NULL;
    if (!cx) return DEFT_E_ARG;
    df_act(cx, "file_open", DF_SITE);
    TRY(df_may_act(cx));
    if (!path || !*path) TRY(df_fail(&cx->diag, DEFT_E_ARG, "file_open: no path"));
    if (!out) TRY(df_fail(&cx->diag, DEFT_E_ARG, "file_open: out is NULL"));
    f = df_mem_zalloc(cx->mem, sizeof *f);
    if (!f) TRY(df_fail_mem(&cx->diag, "file_open", sizeof *f));
    f->cx = cx;
    f->path_size = strlen(path) + 1;
    f->path = df_mem_alloc(cx->mem, f->path_size);
    f->reader = (df_reader){ .d = &cx->diag, .what = "file_open", .path = f->path, .fd = -1 };
    if (!f->path) TRY(df_fail_mem(&cx->diag, "file_open", f->path_size));
    memcpy(f->path, path, f->path_size);
    TRY(df_reader_open(&f->reader));
    TRY(df_listing_read(&f->reader, cx->mem, &f->list));
    f->reader.d = &f->d;
    *out = f;
    f = NULL;
done:
    deft_file_close(&f);
    return st;
}

void deft_file_close(deft_file **out)
{
    if (!out || !*out) return;
    deft_file *const f = *out;
    *out = NULL;
    df_reader_close(&f->reader);
    df_listing_finish(&f->list);
    if (f->path) df_mem_free(f->cx->mem, f->path, f->path_size);
    df_mem_free(f->cx->mem, f, sizeof *f);
}

size_t deft_file_count(const deft_file *f)
{
    return f ? f->list.at.n : 0;
}

static bool listed_is_mappable(const df_listed *l)
{
    return l->dtype >= 0 && l->rank <= DEFT_MAX_RANK && !l->is_deflated && !l->is_swapped;
}

bool deft_file_entry_read(const deft_file *f, size_t i, deft_file_entry *out, size_t size)
{
    if (!f || !out || i >= f->list.at.n) return false;
    const df_listed *const l = &f->list.at.at[i];
    const deft_file_entry e = { .name = l->name,
                                .dtype = l->dtype < 0 ? DEFT_N_DTYPES : (deft_dtype)l->dtype,
                                .dtype_name = l->dtype_name,
                                .shape = deft_shape_of(l->rank, l->dim),
                                .bytes = l->bytes,
                                .is_mappable = listed_is_mappable(l) };
    memset(out, 0, size);
    memcpy(out, &e, size < sizeof e ? size : sizeof e);
    return true;
}

/* ---- one tensor ---- */

/* Begins the call `what`, and finds the tensor that it means. NULL with the error recorded. */
static const df_listed *find_listed(deft_file *f, const char *what, const char *name,
                                    uintptr_t site)
{
    const df_listed *found = NULL;
    char shown[DF_SAFETENSORS_SHOW];
    deft_ctx *const cx = f->cx;
    df_enter_call(cx, site);
    f->reader.what = what;
    f->d = (df_diag){ 0 };
    if (cx->body_at)
        return df_error(cx, DEFT_E_STATE,
                        "%s: inside a loop, branch or vmap no file is read: do it before", what);
    if (!name && f->list.at.n != 1)
        return df_error(cx, DEFT_E_NOT_FOUND, "%s: %s: it has %zu tensors: which one is meant?",
                        what, f->path, f->list.at.n);
    for (size_t i = 0; i < f->list.at.n && !found; i++)
        if (!name || !strcmp(f->list.at.at[i].name, name)) found = &f->list.at.at[i];
    if (!found)
        return df_error(cx, DEFT_E_NOT_FOUND, "%s: %s: no tensor is named \"%s\"", what, f->path,
                        df_safetensors_show(name, strlen(name), shown, sizeof shown));
    df_safetensors_show(found->name, strlen(found->name), shown, sizeof shown);
    if (found->dtype < 0)
        return df_error(cx, DEFT_E_DTYPE, "%s: %s: \"%s\" is %s, which deft does not have", what,
                        f->path, shown, found->dtype_name);
    if (found->rank > DEFT_MAX_RANK)
        return df_error(cx, DEFT_E_SHAPE, "%s: %s: \"%s\" has %u axes, and deft has at most %d",
                        what, f->path, shown, found->rank, DEFT_MAX_RANK);
    return found;
}

/* The extents in memory: in the order of Fortran, the last axis first. */
static deft_shape shape_in_memory(const df_listed *l)
{
    deft_shape s = { .rank = l->rank };
    for (uint32_t i = 0; i < l->rank; i++) s.dim[i] = l->dim[l->is_fortran ? l->rank - 1 - i : i];
    return s;
}

/* The tensor with its axes in the order of the file. t may be NULL. */
static deft_tensor *in_order(const df_listed *l, deft_tensor *t)
{
    deft_axes order = { .n = l->rank };
    if (!l->is_fortran || !t) return t;
    for (uint32_t i = 0; i < l->rank; i++) order.at[i] = (int32_t)(l->rank - 1 - i);
    return deft_permute(t, order);
}

/* Reads the elements into a new value on the host, whose record has shape s, and moves it to the
 * context's device. */
static deft_status load_listed(deft_file *f, const df_listed *l, const df_shape *s, df_value **out)
{
    deft_status st = DEFT_OK;
    deft_ctx *const cx = f->cx;
    df_value *there = NULL;
    df_value *v = df_value_new(cx, df_record_dtype((deft_dtype)l->dtype), s);
    if (!v) return df_fail_mem(&f->d, f->reader.what, sizeof *v);
    TRY(df_buffer_create(&f->d, cx->rt->dev->allocator, (int64_t)l->bytes, &v->buf));
    v->data = v->buf->data;
    TRY(df_listing_load(&f->reader, &f->list, l, v->data));
    for (uint64_t i = 0; l->dtype == DEFT_BOOL && i < l->bytes; i++)
        v->data[i] = v->data[i] != 0; /* kernels rely on bools being one byte, 0 or 1 */
    if (cx->default_device != DEFT_CPU) {
        TRY(df_value_moved(cx, &f->d, v, cx->default_device, &there));
        df_value_drop(cx, &v);
        v = there;
    }
    *out = v;
    v = NULL;
done:
    df_value_drop(cx, &v);
    return st;
}

deft_tensor *deft_file_load(deft_file *f, const char *name)
{
    df_shape s;
    df_value *v = NULL;
    const df_listed *const l = f ? find_listed(f, "file_load", name, DF_SITE) : NULL;
    if (!l) return NULL;
    const deft_shape shape = shape_in_memory(l);
    const df_face face = df_face_for((deft_dtype)l->dtype); /* no file has a packed dtype */
    if (!df_check_shape(f->cx, "file_load", &shape, &s) ||
        !df_face_hide(f->cx, "file_load", face, &s))
        return NULL;
    const deft_status st = load_listed(f, l, &s, &v);
    if (st != DEFT_OK) return df_error(f->cx, st, "%s", f->d.text);
    return in_order(l, df_wear(df_tensor_of(f->cx, v), face));
}

/* A mapping of a file. */
typedef struct mapping {
    const df_mem *mem;
    void *at;
    size_t bytes;
} mapping;

static void unmap_file(void *user)
{
    const mapping m = *(mapping *)user;
    (void)munmap(m.at, m.bytes);
    df_mem_free(m.mem, user, sizeof m);
}

/* Maps the elements, which begin `*skip` bytes into the mapping. */
static deft_status map_listed(deft_file *f, const df_listed *l, mapping *m, size_t *skip)
{
    deft_status st = DEFT_OK;
    struct stat info;
    uint64_t at = 0;
    TRY(df_listing_find(&f->reader, &f->list, l, &at));
    if (fstat(f->reader.fd, &info) || (uint64_t)info.st_size < at ||
        (uint64_t)info.st_size - at < l->bytes)
        TRY(df_fail(&f->d, DEFT_E_FORMAT, "file_map: %s: the file became shorter", f->path));
    *skip = (size_t)(at % (uint64_t)sysconf(_SC_PAGESIZE));
    if (df_size_or_most(l->bytes + *skip) == SIZE_MAX)
        TRY(df_fail(&f->d, DEFT_E_MEMORY, "file_map: %s: %llu bytes are more than memory can have",
                    f->path, (unsigned long long)l->bytes));
    m->bytes = (size_t)l->bytes + *skip;
    m->at = mmap(NULL, m->bytes, PROT_READ, MAP_SHARED, f->reader.fd, (off_t)(at - *skip));
    if (m->at == MAP_FAILED)
        TRY(df_fail(&f->d, errno == ENOMEM ? DEFT_E_MEMORY : DEFT_E_IO,
                    "file_map: %s: mmap of %zu bytes: %s", f->path, m->bytes, strerror(errno)));
done:
    return st;
}

static bool bools_are_plain(const unsigned char *at, uint64_t n)
{
    unsigned char all = 0;
    for (uint64_t i = 0; i < n; i++) all |= at[i];
    return all <= 1;
}

deft_tensor *deft_file_map(deft_file *f, const char *name)
{
    size_t skip = 0;
    mapping m = { 0 }, *kept = NULL;
    const df_listed *const l = f ? find_listed(f, "file_map", name, DF_SITE) : NULL;
    if (!l) return NULL;
    deft_ctx *const cx = f->cx;
    if (!listed_is_mappable(l))
        return df_error(cx, DEFT_E_ARG, "file_map: %s: the elements are %s: load them instead",
                        f->path, l->is_deflated ? "deflated" : "of another byte order");
    const deft_shape shape = shape_in_memory(l);
    df_wrapping w = { .what = "file_map",
                      .dtype = (deft_dtype)l->dtype,
                      .shape = &shape,
                      .bytes = (size_t)l->bytes };
    if (l->bytes == 0) return in_order(l, df_wrap(cx, &w));
    m.mem = cx->mem;
    const deft_status st = map_listed(f, l, &m, &skip);
    if (st != DEFT_OK) return df_error(cx, st, "%s", f->d.text);
    w.data = (char *)m.at + skip;
    kept = df_mem_alloc(cx->mem, sizeof *kept);
    deft_tensor *t = NULL;
    if (!kept)
        df_error(cx, DEFT_E_MEMORY, "file_map: no memory");
    else if (l->dtype == DEFT_BOOL && !bools_are_plain(w.data, l->bytes))
        df_error(cx, DEFT_E_FORMAT, "file_map: %s: a bool is neither 0 nor 1: load it instead",
                 f->path);
    else {
        *kept = m;
        w.release = (df_buffer_release){ unmap_file, kept };
        t = df_wrap(cx, &w);
    }
    if (t) return in_order(l, t);
    (void)munmap(m.at, m.bytes);
    df_mem_free(cx->mem, kept, sizeof *kept);
    return NULL;
}
