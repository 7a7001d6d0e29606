/* SPDX-License-Identifier: Apache-2.0
 *
 * A build without the header of zlib cannot decompress.
 */
#include "lazy/files/inflate.h"

deft_status df_inflate_open(df_diag *d, const df_mem *mem, df_inflate **out)
{
    (void)mem;
    *out = NULL;
    return df_fail(d, DEFT_E_BACKEND, "deft was built without zlib, which decompresses");
}

deft_status df_inflate_run(df_inflate *z, const unsigned char **in, size_t *n_in,
                           unsigned char **out, size_t *n_out, bool *ended)
{
    (void)z, (void)in, (void)n_in, (void)out, (void)n_out, (void)ended;
    df_unreachable();
}

void df_inflate_close(df_inflate **z)
{
    *z = NULL;
}
