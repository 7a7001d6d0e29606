/* SPDX-License-Identifier: Apache-2.0
 *
 * zlib 1.2 or later, opened by name. Its memory comes from the runtime's allocator.
 */
#include "lazy/files/inflate.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <zlib.h>

struct df_inflate {
    const df_mem *mem;
    void *library;
    int (*init)(z_streamp s, int window_bits, const char *version, int size);
    int (*run)(z_streamp s, int flush);
    int (*end)(z_streamp s);
    z_stream s;
    bool is_open;
};

/* The size stands before the block, because df_mem needs it. */
enum { HEAD = 16 };

static voidpf take(voidpf user, uInt n, uInt size)
{
    size_t bytes;
    if (__builtin_mul_overflow((size_t)n, (size_t)size, &bytes) || bytes > SIZE_MAX - HEAD)
        return NULL;
    char *const block = df_mem_alloc(user, bytes + HEAD);
    if (!block) return NULL;
    bytes += HEAD;
    memcpy(block, &bytes, sizeof bytes);
    return block + HEAD;
}

static void give(voidpf user, voidpf at)
{
    size_t bytes;
    if (!at) return;
    char *const block = (char *)at - HEAD;
    memcpy(&bytes, block, sizeof bytes);
    df_mem_free(user, block, bytes);
}

static bool symbol(void *library, const char *name, void *out)
{
    void *const at = dlsym(library, name);
    memcpy(out, &at, sizeof at);
    return at != NULL;
}

deft_status df_inflate_open(df_diag *d, const df_mem *mem, df_inflate **out)
{
    deft_status st = DEFT_OK;
    df_inflate *z = df_mem_zalloc(mem, sizeof *z);
    if (!z) return df_fail_mem(d, "zlib", sizeof *z);
    z->mem = mem;
    z->library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!z->library)
        TRY(df_fail(d, DEFT_E_BACKEND, "zlib is needed to decompress: %.200s", dlerror()));
    if (!symbol(z->library, "inflateInit2_", &z->init) || !symbol(z->library, "inflate", &z->run) ||
        !symbol(z->library, "inflateEnd", &z->end))
        TRY(df_fail(d, DEFT_E_BACKEND, "libz.so.1 is no zlib"));
    z->s.zalloc = take;
    z->s.zfree = give;
    z->s.opaque = (voidpf)(uintptr_t)mem;
    const int result = z->init(&z->s, -MAX_WBITS, ZLIB_VERSION, (int)sizeof z->s);
    if (result == Z_MEM_ERROR) TRY(df_fail_mem(d, "zlib", 1u << MAX_WBITS));
    if (result != Z_OK)
        TRY(df_fail(d, DEFT_E_BACKEND, "zlib does not begin: %d, another version?", result));
    z->is_open = true;
    *out = z;
    z = NULL;
done:
    df_inflate_close(&z);
    return st;
}

deft_status df_inflate_run(df_inflate *z, const unsigned char **in, size_t *n_in,
                           unsigned char **out, size_t *n_out, bool *ended)
{
    const uInt give_in = *n_in < UINT_MAX ? (uInt)*n_in : UINT_MAX;
    const uInt give_out = *n_out < UINT_MAX ? (uInt)*n_out : UINT_MAX;
    z->s.next_in = (Bytef *)(uintptr_t)*in;
    z->s.avail_in = give_in;
    z->s.next_out = *out;
    z->s.avail_out = give_out;
    const int result = z->run(&z->s, Z_NO_FLUSH);
    *in += give_in - z->s.avail_in;
    *n_in -= give_in - z->s.avail_in;
    *out += give_out - z->s.avail_out;
    *n_out -= give_out - z->s.avail_out;
    *ended = result == Z_STREAM_END;
    if (result == Z_MEM_ERROR) return DEFT_E_MEMORY;
    return result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR ? DEFT_OK
                                                                             : DEFT_E_FORMAT;
}

void df_inflate_close(df_inflate **out)
{
    df_inflate *const z = *out;
    *out = NULL;
    if (!z) return;
    if (z->is_open) (void)z->end(&z->s);
    if (z->library) (void)dlclose(z->library);
    df_mem_free(z->mem, z, sizeof *z);
}
