/* SPDX-License-Identifier: Apache-2.0
 *
 * Decompression by zlib, which is opened when it is needed first, so that libdeft links nothing
 * more.
 */
#ifndef DF_LAZY_INFLATE_H
#define DF_LAZY_INFLATE_H

#include "base/diag.h"
#include "base/mem.h"

typedef struct df_inflate df_inflate;

/* Begins a raw deflate stream. DEFT_E_BACKEND: there is no zlib. */
deft_status df_inflate_open(df_diag *d, const df_mem *mem, df_inflate **out);
/* Decompresses from *in to *out, and moves both on. Returns DEFT_OK when one of them is used up, or
 * the stream has ended; *ended says so. DEFT_E_FORMAT: the stream is damaged. DEFT_E_MEMORY is
 * possible. The sentence is the caller's. */
deft_status df_inflate_run(df_inflate *z, const unsigned char **in, size_t *n_in,
                           unsigned char **out, size_t *n_out, bool *ended);
void df_inflate_close(df_inflate **z); /* *z may be NULL */

#endif
