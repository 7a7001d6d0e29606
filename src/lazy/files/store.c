/* SPDX-License-Identifier: Apache-2.0
 *
 * Stores a program and its inputs: store.h. Wide elements come first in the file, so that
 * all are aligned.
 */
#include "lazy/files/store.h"

#include "base/bits.h"
#include "base/errno_text.h"
#include "lazy/core/devices.h"
#include "lazy/files/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Bound on the bytes of one call of write. Linux writes at most 2^31 - 4096 at once. */
#define MAX_TRANSFER ((size_t)1 << 30)

static size_t element_size(const df_trace *t, uint32_t input)
{
    return deft_dtype_size((deft_dtype)t->nodes[t->inputs[input].node].dtype);
}

static uint64_t input_bytes(const df_trace *t, uint32_t input)
{
    return (uint64_t)df_trace_numel(t, t->inputs[input].node) * element_size(t, input);
}

/* ---- contents ---- */

typedef char input_name[16];

/* Places the inputs in the data section, in the order in which put_inputs writes them, and
 * writes the header. entry and name have room for all inputs. */
static deft_status make_header(df_store *s, df_diag *d, df_safetensors_entry *entry,
                               input_name *name)
{
    const df_trace *const t = s->t;
    uint64_t at = 0;
    uint32_t n = 0;
    for (size_t size = 8; size; size /= 2)
        for (uint32_t i = 0; i < t->n_inputs; i++) {
            if (element_size(t, i) != size) continue;
            const df_node *const node = &t->nodes[t->inputs[i].node];
            const int length = snprintf(name[i], sizeof name[i], "in%u", i);
            df_safetensors_entry *const e = &entry[n++];
            *e = (df_safetensors_entry){ .name = name[i],
                                         .name_size = (uint32_t)length,
                                         .dtype = node->dtype,
                                         .rank = node->rank,
                                         .begin = at };
            for (uint32_t j = 0; j < node->rank; j++)
                e->dim[j] = df_trace_extents(t, t->inputs[i].node)[j];
            at += input_bytes(t, i);
            e->end = at;
        }
    s->bytes = at;
    return df_safetensors_write(d, s->mem, entry, n, &s->header);
}

deft_status df_store_init(df_store *s, df_diag *d, const df_mem *mem, const df_trace *t)
{
    deft_status st = DEFT_OK;
    const size_t n = t->n_inputs ? t->n_inputs : 1;
    *s = (df_store){ .mem = mem, .t = t };
    df_str_init(&s->text, mem);
    df_str_init(&s->header, mem);
    df_safetensors_entry *const entry = df_mem_zalloc(mem, n * sizeof *entry);
    input_name *const name = df_mem_zalloc(mem, n * sizeof *name);
    if (!entry || !name) TRY(df_fail_mem(d, "inputs", n * sizeof *entry));
    TRY(make_header(s, d, entry, name));
    df_trace_print(&s->text, t);
    if (!s->text.ok) TRY(df_fail_mem(d, "inputs", s->text.n));
    s->bytes += s->header.n + s->text.n;
done:
    df_mem_free(mem, entry, n * sizeof *entry);
    df_mem_free(mem, name, n * sizeof *name);
    return st;
}

void df_store_finish(df_store *s)
{
    df_str_finish(&s->text);
    df_str_finish(&s->header);
}

/* ---- files ---- */

/* A file that is being written. */
typedef struct file {
    df_diag *d;
    int dir, fd;     /* dir: the folder that path starts from */
    char path[1024]; /* with the ending */
} file;

static deft_status failed(const file *f, const char *call)
{
    char why[128];
    const int code = errno;
    return df_fail(f->d, DEFT_E_IO, "inputs: %s: %s: %s", f->path, call,
                   df_errno_text(code, why, sizeof why));
}

static deft_status create(file *f, const char *name, const char *ending)
{
    const int n = snprintf(f->path, sizeof f->path, "%s%s", name, ending);
    if (n < 0 || (size_t)n >= sizeof f->path)
        return df_fail(f->d, DEFT_E_LIMIT, "inputs: a path of more than %zu bytes",
                       sizeof f->path - 1);
    do f->fd = openat(f->dir, f->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    while (f->fd < 0 && errno == EINTR);
    return f->fd >= 0 ? DEFT_OK : failed(f, "open");
}

static deft_status put(file *f, const void *data, size_t n)
{
    const char *at = data;
    while (n) {
        const ssize_t done = write(f->fd, at, n < MAX_TRANSFER ? n : MAX_TRANSFER);
        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = EIO;
        if (done <= 0) return failed(f, "write");
        at += done;
        n -= (size_t)done;
    }
    return DEFT_OK;
}

static deft_status put_input(const df_store *s, file *f, uint32_t input)
{
    const df_input *const in = &s->t->inputs[input];
    const size_t bytes = (size_t)input_bytes(s->t, input);
    const df_node *const node = &s->t->nodes[in->node];
    const size_t size = element_size(s->t, input);
    const bool is_swapped = DF_IS_BIG_ENDIAN && size > 1;
    if (bytes == 0) return DEFT_OK;
    if (!is_swapped &&
        df_strides_contiguous(df_trace_extents(s->t, in->node), in->stride, node->rank))
        return put(f, in->data, bytes);
    char *const packed = df_mem_alloc(s->mem, bytes);
    if (!packed) return df_fail_mem(f->d, "inputs", bytes);
    df_input_gather(s->t, input, packed);
    if (is_swapped) df_bits_reverse(packed, bytes, (uint32_t)size);
    const deft_status st = put(f, packed, bytes);
    df_mem_free(s->mem, packed, bytes);
    return st;
}

/* Writes the header and then all inputs, in the order of make_header. */
static deft_status put_inputs(const df_store *s, file *f)
{
    deft_status st = put(f, s->header.at, s->header.n);
    for (size_t size = 8; size; size /= 2)
        for (uint32_t i = 0; i < s->t->n_inputs && st == DEFT_OK; i++)
            if (element_size(s->t, i) == size) st = put_input(s, f, i);
    return st;
}

/* Closes a file that was created, and removes it when it is incomplete. */
static deft_status end(file *f, deft_status st)
{
    if (close(f->fd) != 0 && st == DEFT_OK) st = failed(f, "close");
    if (st != DEFT_OK) (void)unlinkat(f->dir, f->path, 0);
    return st;
}

/* Writes NAME.trace and NAME.safetensors. Leaves neither on failure. */
static deft_status write_both(const df_store *s, file *f, const char *name)
{
    deft_status st = create(f, name, ".trace");
    if (st != DEFT_OK) return st;
    st = end(f, put(f, s->text.at, s->text.n));
    if (st != DEFT_OK) return st;
    char trace[sizeof f->path];
    memcpy(trace, f->path, sizeof trace);
    st = create(f, name, ".safetensors");
    if (st == DEFT_OK) st = end(f, put_inputs(s, f));
    if (st != DEFT_OK) (void)unlinkat(f->dir, trace, 0);
    return st;
}

deft_status df_store_write(const df_store *s, df_diag *d, int dir, const char *name)
{
    file f = { .d = d, .dir = dir };
    sigset_t size, before, pending;
    sigemptyset(&size);
    sigaddset(&size, SIGXFSZ);
    sigemptyset(&pending);
    (void)sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &size, &before);
    const deft_status st = write_both(s, &f, name);
    /* Removes the SIGXFSZ that writing has raised. */
    while (st != DEFT_OK && !sigismember(&pending, SIGXFSZ) &&
           sigtimedwait(&size, NULL, &(struct timespec){ 0 }) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return st;
}

/* ---- deft_store_next ---- */

void df_store_forget(deft_ctx *cx)
{
    if (cx->store_path) df_mem_free(cx->mem, cx->store_path, strlen(cx->store_path) + 1);
    cx->store_path = NULL;
}

deft_status deft_store_next(deft_ctx *cx, const char *path)
{
    if (!cx) return DEFT_E_ARG;
    if (path && !*path) return df_fail(&cx->diag, DEFT_E_ARG, "store_next: the path is empty");
    const size_t n = path ? strlen(path) + 1 : 0;
    char *const copy = n ? df_mem_alloc(cx->mem, n) : NULL;
    if (n && !copy) return df_fail_mem(&cx->diag, "store_next", n);
    if (n) memcpy(copy, path, n);
    df_store_forget(cx);
    cx->store_path = copy;
    return DEFT_OK;
}

deft_status df_store_asked(deft_ctx *cx, const df_cut *m)
{
    df_store s;
    df_lent lent;
    deft_status st = df_cut_lend(cx, &cx->diag, m, &lent);
    if (st != DEFT_OK) return st;
    st = df_store_init(&s, &cx->diag, cx->mem, &lent.t);
    if (st == DEFT_OK) st = df_store_write(&s, &cx->diag, AT_FDCWD, cx->store_path);
    df_store_finish(&s);
    df_lent_drop(cx, &lent);
    df_store_forget(cx);
    return st;
}
