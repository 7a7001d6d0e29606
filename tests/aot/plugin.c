/* SPDX-License-Identifier: Apache-2.0
 *
 * The code generator of c_compiler.h under the name that libdeft looks for, so that every program
 * that compares results (tests/diff) can be run with exported C: DEFT_PLUGIN_DIR names the folder
 * of this plug-in.
 */
#include "c_compiler.h"

#include <string.h>

#include "base/build_id.h"

__attribute__((visibility("default"))) deft_status
df_plugin_cpu(const df_host *host, const char *build_id, df_diag *d, df_compiler *out);

deft_status df_plugin_cpu(const df_host *host, const char *build_id, df_diag *d, df_compiler *out)
{
    if (strcmp(build_id, DF_BUILD_ID) != 0 || strcmp(host->build_id, DF_BUILD_ID) != 0)
        return host->fail(d, DEFT_E_BACKEND, "the plug-in is of another build");
    c_compiler_open(host->fail, out);
    return DEFT_OK;
}
