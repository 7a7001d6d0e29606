/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists the tensors of safetensors, npy and npz files, and reads their elements.
 */
#include "lazy/files/listing.h"

#include "base/bits.h"
#include "lazy/files/npy.h"
#include "lazy/files/safetensors.h"
#include "ops/dtype.h"

#include <stdio.h>

/* Adds an entry with a copy of the name. */
static deft_status add_entry(const df_reader *r, df_listing *list, const char *name, size_t n,
                             df_listed *e)
{
    e->name_size = n + 1;
    e->name = df_mem_alloc(list->mem, e->name_size);
    if (!e->name) return df_fail_mem(r->d, r->what, e->name_size);
    memcpy(e->name, name, n);
    e->name[n] = '\0';
    if (df_vec_push(list->mem, &list->at, *e)) return DEFT_OK;
    df_mem_free(list->mem, e->name, e->name_size);
    return df_fail_mem(r->d, r->what, sizeof *e);
}

static deft_status list_safetensors(const df_reader *r, df_listing *list)
{
    deft_status st = DEFT_OK;
    df_safetensors_file f = { 0 };
    TRY(df_safetensors_read(r, list->mem, &f));
    for (size_t i = 0; i < f.table.n; i++) {
        const df_safetensors_entry *const from = &f.table.at[i];
        const bool is_known = from->dtype >= 0;
        df_listed e = { .dtype = from->dtype,
                        .rank = from->rank,
                        .is_swapped = DF_IS_BIG_ENDIAN && is_known &&
                                      df_bytes_of(df_record_dtype((deft_dtype)from->dtype)) > 1,
                        .bytes = from->end - from->begin,
                        .at = f.data_at + from->begin };
        memcpy(e.dtype_name, from->dtype_text, sizeof e.dtype_name);
        memcpy(e.dim, from->dim, sizeof e.dim);
        TRY(add_entry(r, list, from->name, from->name_size, &e));
    }
done:
    df_safetensors_close(&f, list->mem);
    return st;
}

/* ---- npy and npz ---- */

/* Reads the next bytes of a npy file: from the file, or from a member. */
typedef struct npy_source {
    const df_reader *r;
    df_zip_stream *stream; /* NULL: the file itself */
    uint64_t at;
} npy_source;

static deft_status source_read(npy_source *s, void *dst, size_t n)
{
    const deft_status st =
        s->stream ? df_zip_read(s->stream, dst, n) : df_reader_at(s->r, dst, n, s->at);
    if (st == DEFT_OK) s->at += n;
    return st;
}

/* Reads a header. size: of the whole npy file. */
static deft_status read_npy(npy_source *s, const df_mem *mem, const char *label, uint64_t size,
                            df_npy *out)
{
    deft_status st = DEFT_OK;
    unsigned char first[DF_NPY_PREFIX];
    char *text = NULL;
    const size_t begin = size < 10 ? (size_t)size : 10;
    *out = (df_npy){ 0 };
    TRY(source_read(s, first, begin));
    if (begin == 10 && first[6] > 1 && size >= DF_NPY_PREFIX)
        TRY(source_read(s, first + 10, DF_NPY_PREFIX - 10));
    TRY(df_npy_prefix(s->r->d, label, first, (size_t)s->at, out));
    if (out->text_size > size - out->text_at)
        TRY(df_fail(s->r->d, DEFT_E_FORMAT, "%s: a header of %llu bytes in %llu bytes", label,
                    (unsigned long long)out->text_size, (unsigned long long)size));
    text = df_mem_alloc(mem, (size_t)out->text_size + 1);
    if (!text) TRY(df_fail_mem(s->r->d, s->r->what, (size_t)out->text_size));
    TRY(source_read(s, text, (size_t)out->text_size));
    TRY(df_npy_parse(s->r->d, label, text, (size_t)out->text_size, out));
    const uint64_t has = size - out->text_at - out->text_size;
    if (out->dtype != DF_NPY_OTHER && out->bytes != has)
        TRY(df_fail(s->r->d, DEFT_E_FORMAT,
                    "%s: its header asks for %llu bytes of elements, and "
                    "it has %llu",
                    label, (unsigned long long)out->bytes, (unsigned long long)has));
done:
    if (text) df_mem_free(mem, text, (size_t)out->text_size + 1);
    return st;
}

static df_listed listed_npy(const df_npy *n)
{
    df_listed e = { .dtype = n->dtype,
                    .rank = n->shape.rank,
                    .bytes = n->bytes,
                    .is_fortran = n->is_fortran && n->shape.rank > 1,
                    .is_swapped = n->is_swapped,
                    .at = n->text_at + n->text_size };
    memcpy(e.dtype_name, n->descr, sizeof e.dtype_name);
    memcpy(e.dim, n->shape.dim, sizeof e.dim);
    return e;
}

/* "npy: file.npy", "load: file.npz: member". */
static const char *label_of(const df_reader *r, const df_zip_member *m, char *buf, size_t n)
{
    char shown[DF_SAFETENSORS_SHOW] = "";
    if (m) df_safetensors_show(m->name, m->name_size, shown, sizeof shown);
    (void)snprintf(buf, n, "%s: %.300s%s%s", r->what, r->path, m ? ": " : "", shown);
    return buf;
}

static deft_status list_npy(const df_reader *r, df_listing *list)
{
    char label[512];
    df_npy n;
    npy_source s = { .r = r };
    const deft_status st =
        read_npy(&s, list->mem, label_of(r, NULL, label, sizeof label), r->size, &n);
    df_listed e = listed_npy(&n);
    return st == DEFT_OK ? add_entry(r, list, "", 0, &e) : st;
}

static bool is_npy_name(const df_zip_member *m)
{
    return m->name_size >= 4 && memcmp(m->name + m->name_size - 4, ".npy", 4) == 0;
}

static deft_status list_member(const df_reader *r, df_listing *list, uint32_t i,
                               df_zip_stream *stream)
{
    deft_status st = DEFT_OK;
    char label[512];
    df_npy n;
    const df_zip_member *const m = &list->zip.members.at[i];
    npy_source s = { .r = r, .stream = stream };
    TRY(df_zip_open(stream, r, list->mem, &list->zip, m));
    TRY(read_npy(&s, list->mem, label_of(r, m, label, sizeof label), m->unpacked, &n));
    df_listed e = listed_npy(&n);
    e.member = i;
    e.is_member = true;
    e.is_deflated = m->method != 0;
    TRY(add_entry(r, list, m->name, m->name_size - 4, &e));
done:
    df_zip_close(stream);
    return st;
}

static deft_status list_npz(const df_reader *r, df_listing *list)
{
    deft_status st = DEFT_OK;
    df_zip_stream *stream = NULL;
    TRY(df_zip_list(r, list->mem, &list->zip));
    stream = df_mem_alloc(list->mem, sizeof *stream);
    if (!stream) TRY(df_fail_mem(r->d, r->what, sizeof *stream));
    for (uint32_t i = 0; i < list->zip.members.n; i++)
        if (is_npy_name(&list->zip.members.at[i])) TRY(list_member(r, list, i, stream));
done:
    df_mem_free(list->mem, stream, sizeof *stream);
    return st;
}

deft_status df_listing_read(const df_reader *r, const df_mem *mem, df_listing *out)
{
    char first[4] = { 0 };
    *out = (df_listing){ .mem = mem };
    const size_t n = r->size < sizeof first ? (size_t)r->size : sizeof first;
    const deft_status st = df_reader_at(r, first, n, 0);
    if (st != DEFT_OK) return st;
    if (memcmp(first, "\x93NUM", 4) == 0) return list_npy(r, out);
    if (memcmp(first, "PK", 2) == 0) return list_npz(r, out);
    return list_safetensors(r, out);
}

void df_listing_finish(df_listing *l)
{
    if (!l->mem) return;
    for (size_t i = 0; i < l->at.n; i++)
        df_mem_free(l->mem, l->at.at[i].name, l->at.at[i].name_size);
    df_vec_finish(l->mem, &l->at);
    df_zip_finish(&l->zip);
    l->mem = NULL;
}

/* ---- elements ---- */

/* Reads the member from its start, because its checksum is of all. */
static deft_status load_member(const df_reader *r, const df_listing *list, const df_listed *l,
                               void *dst)
{
    deft_status st = DEFT_OK;
    df_zip_stream *const stream = df_mem_alloc(list->mem, sizeof *stream);
    if (!stream) return df_fail_mem(r->d, r->what, sizeof *stream);
    TRY(df_zip_open(stream, r, list->mem, &list->zip, &list->zip.members.at[l->member]));
    for (uint64_t left = l->at; left;) {
        unsigned char header[1024];
        const size_t n = left < sizeof header ? (size_t)left : sizeof header;
        TRY(df_zip_read(stream, header, n));
        left -= n;
    }
    TRY(df_zip_read(stream, dst, (size_t)l->bytes));
done:
    df_zip_close(stream);
    df_mem_free(list->mem, stream, sizeof *stream);
    return st;
}

deft_status df_listing_load(const df_reader *r, const df_listing *list, const df_listed *l,
                            void *dst)
{
    const deft_status st =
        l->is_member ? load_member(r, list, l, dst) : df_reader_at(r, dst, (size_t)l->bytes, l->at);
    if (st != DEFT_OK) return st;
    if (l->is_swapped) {
        const deft_dtype part = df_record_dtype((deft_dtype)l->dtype);
        df_bits_reverse(dst, l->bytes, df_bytes_of(part));
    }
    return DEFT_OK;
}

deft_status df_listing_find(const df_reader *r, const df_listing *list, const df_listed *l,
                            uint64_t *at)
{
    df_assert(!l->is_deflated && !l->is_swapped);
    *at = l->at;
    if (!l->is_member) return DEFT_OK;
    const deft_status st = df_zip_find(r, &list->zip, &list->zip.members.at[l->member], at);
    if (st == DEFT_OK) *at += l->at;
    return st;
}
