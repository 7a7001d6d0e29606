/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes npy files, and npz files whose members are stored.
 */
#include "deft/files.h"

#include "lazy/calls/save.h"
#include "lazy/core/devices.h"
#include "lazy/files/npy.h"
#include "lazy/run/materialize.h"

static deft_status check_dtype_of_npy(deft_ctx *cx, const char *what, const deft_tensor *t)
{
    const deft_dtype dtype = df_shown_dtype(cx, t);
    if (df_npy_has(dtype)) return DEFT_OK;
    return df_fail(&cx->diag, DEFT_E_DTYPE, "%s: npy has no %s: cast it to f32", what,
                   deft_dtype_name(dtype));
}

/* Appends the npy header of t to out. */
static deft_status put_header(const deft_ctx *cx, df_diag *d, const char *what,
                              const deft_tensor *t, df_str *out)
{
    df_shape s;
    df_shown_shape(cx, t, &s);
    df_npy_write(out, df_shown_dtype(cx, t), &s);
    return out->ok ? DEFT_OK : df_fail_mem(d, what, 128);
}

deft_status deft_save_npy(deft_tensor *t, const char *path)
{
    deft_ctx *cx;
    df_value *v;
    df_str header;
    deft_status st = df_read_faced("save_npy", DF_SITE, t, &cx, &v);
    if (st != DEFT_OK) return st;
    df_writer w = { .d = &cx->diag, .what = "save_npy", .path = path, .file.fd = -1 };
    df_str_init(&header, cx->mem);
    if (!path || !*path) TRY(df_fail(&cx->diag, DEFT_E_ARG, "save_npy: no path"));
    TRY(check_dtype_of_npy(cx, w.what, t));
    TRY(put_header(cx, w.d, w.what, t, &header));
    TRY(df_writer_begin(&w, cx->mem));
    TRY(df_writer_put(&w, header.at, header.n));
    TRY(df_write_value(cx, &w, v));
    TRY(df_writer_commit(&w));
done:
    df_writer_finish(&w);
    df_str_finish(&header);
    return st;
}

/* ---- npz ---- */

typedef struct archiver {
    deft_ctx *cx;
    df_writer w;
    df_crc crc;
    df_str name, bytes, directory; /* bytes: what is written next */
} archiver;

/* Writes what a.bytes has. */
static deft_status archiver_flush(archiver *a)
{
    if (!a->bytes.ok || !a->directory.ok || !a->name.ok)
        return df_fail_mem(a->w.d, a->w.what, a->bytes.n + a->directory.n);
    return df_writer_put(&a->w, a->bytes.at, a->bytes.n);
}

static void archiver_clear(df_str *s)
{
    if (s->at) s->n = 0;
}

/* Writes one member. The checksum is known when its bytes are written. */
static deft_status archiver_add(archiver *a, const deft_named *item)
{
    df_value *v;
    deft_ctx *cx;
    deft_status st = df_read_faced("save_npz", a->cx->act_site, item->tensor, &cx, &v);
    if (st != DEFT_OK) return st;
    archiver_clear(&a->name);
    df_str_put(&a->name, item->name);
    df_str_put(&a->name, ".npy");
    df_str header;
    df_str_init(&header, a->cx->mem);
    TRY(put_header(cx, a->w.d, a->w.what, item->tensor, &header));
    if (!a->name.ok || a->name.n > 0xffff)
        TRY(df_fail(a->w.d, a->name.ok ? DEFT_E_LIMIT : DEFT_E_MEMORY,
                    "save_npz: a name of %zu bytes", a->name.n));
    df_zip_member m = { .name = a->name.at,
                        .name_size = (uint32_t)a->name.n,
                        .packed = header.n + df_value_size(v),
                        .unpacked = header.n + df_value_size(v),
                        .local_at = a->w.at };
    archiver_clear(&a->bytes);
    df_zip_put_local(&a->bytes, &m);
    TRY(archiver_flush(a));
    a->crc.value = 0;
    a->w.crc = &a->crc;
    TRY(df_writer_put(&a->w, header.at, header.n));
    TRY(df_write_value(a->cx, &a->w, v));
    m.crc = a->crc.value;
    unsigned char sum[4];
    for (int i = 0; i < 4; i++) sum[i] = (unsigned char)(m.crc >> 8 * i);
    TRY(df_writer_patch(&a->w, sum, sizeof sum, m.local_at + DF_ZIP_CRC_AT));
    df_zip_put_entry(&a->directory, &m);
done:
    a->w.crc = NULL;
    df_str_finish(&header);
    return st;
}

/* Computes the tensors together. */
static deft_status compute_named(deft_ctx *cx, const deft_named *list, size_t n)
{
    deft_status st = DEFT_OK;
    deft_tensor **const all = df_mem_alloc(cx->mem, n * sizeof *all);
    if (!all) return df_fail_mem(&cx->diag, "save_npz", n * sizeof *all);
    for (size_t i = 0; i < n; i++) all[i] = list[i].tensor;
    for (size_t i = 0; i < n; i++) TRY(check_dtype_of_npy(cx, "save_npz", all[i]));
    TRY(deft_eval(all, n));
done:
    df_mem_free(cx->mem, all, n * sizeof *all);
    return st;
}

/* Whether two tensors have one name. */
static bool names_recur(const deft_named *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (!strcmp(list[i].name, list[k].name)) return true;
    return false;
}

deft_status deft_save_npz(deft_ctx *cx, const char *path, const deft_named *list, size_t n)
{
    if (!cx) return DEFT_E_ARG;
    df_act(cx, "save_npz", DF_SITE);
    deft_status st = df_check_named(cx, "save_npz", path, list, n);
    if (st != DEFT_OK) return st;
    if (names_recur(list, n))
        return df_fail(&cx->diag, DEFT_E_ARG, "save_npz: two tensors have one name");
    archiver *const a = df_mem_zalloc(cx->mem, sizeof *a);
    if (!a) return df_fail_mem(&cx->diag, "save_npz", sizeof *a);
    a->cx = cx;
    a->w = (df_writer){ .d = &cx->diag, .what = "save_npz", .path = path, .file.fd = -1 };
    df_crc_init(&a->crc);
    df_str_init(&a->name, cx->mem);
    df_str_init(&a->bytes, cx->mem);
    df_str_init(&a->directory, cx->mem);
    if (n) TRY(compute_named(cx, list, n));
    TRY(df_writer_begin(&a->w, cx->mem));
    for (size_t i = 0; i < n; i++) TRY(archiver_add(a, &list[i]));
    archiver_clear(&a->bytes);
    const uint64_t at = a->w.at;
    df_str_putn(&a->bytes, a->directory.at ? a->directory.at : "", a->directory.n);
    df_zip_put_end(&a->bytes, n, at, a->directory.n);
    TRY(archiver_flush(a));
    TRY(df_writer_commit(&a->w));
done:
    df_writer_finish(&a->w);
    df_str_finish(&a->name);
    df_str_finish(&a->bytes);
    df_str_finish(&a->directory);
    df_mem_free(cx->mem, a, sizeof *a);
    return st;
}
