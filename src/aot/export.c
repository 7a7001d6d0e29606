/* SPDX-License-Identifier: Apache-2.0
 *
 * df_aot_export, and the one symbol of deft-aot.so.
 */
#include <string.h>

#include "aot/program.h"
#include "base/build_id.h"

deft_status df_aot_export(df_diag *d, const df_mem *mem, const df_trace *t, const df_aot_options *o,
                          df_aot_files *out)
{
    deft_status st = DEFT_OK;
    program p;
    TRY(program_make(&p, d, mem, t, o));
    if (o->gpu) {
        TRY(cuda_file_write(&p, &out->header, &out->c));
        goto done;
    }
    header_write(&p, &out->header);
    if (o->wants_object || o->wants_shared)
        TRY(object_write(&p, o->wants_object ? &out->object : NULL,
                         o->wants_shared ? &out->shared : NULL));
    if (o->wants_c) TRY(c_file_write(&p, &out->c));
    if (!out->header.ok) st = df_fail_mem(d, "export", out->header.cap);
done:
    program_finish(&p);
    return st;
}

/* Exported as DF_PLUGIN_AOT_SYMBOL. */
__attribute__((visibility("default"))) deft_status
df_plugin_aot(const char *build_id, df_diag *d, const df_mem *mem, const df_trace *t,
              const df_aot_options *o, df_aot_files *out);

deft_status df_plugin_aot(const char *build_id, df_diag *d, const df_mem *mem, const df_trace *t,
                          const df_aot_options *o, df_aot_files *out)
{
    if (strcmp(build_id, DF_BUILD_ID) != 0)
        return df_fail(d, DEFT_E_BACKEND, "deft-aot is of build '%s', the host of build '%s'",
                       DF_BUILD_ID, build_id);
    return df_aot_export(d, mem, t, o, out);
}
