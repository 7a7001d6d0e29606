/* SPDX-License-Identifier: Apache-2.0
 *
 * NVTX through dlopen. What must hold: ranges nest, and each range that begins also ends.
 * Without a library nothing is called.
 */
#include "jit_cuda/driver/nvtx.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "jit_cuda/driver/library.h"

enum { MOST_NAME = 128 };

df_nvtx df_nvtx_open(const df_log *log)
{
    df_nvtx n = { NULL, NULL };
    const char *const asked = df_env("DEFT_NVTX");
    if (!asked || !*asked || strcmp(asked, "0") == 0) return n;
    const char *const path = strcmp(asked, "1") == 0 ? "libnvToolsExt.so.1" : asked;
    void *const library = df_library_open(path, NULL, 0);
    if (library && df_library_find(library, "nvtxRangePushA", &n.push) &&
        df_library_find(library, "nvtxRangePop", &n.pop))
        return n;
    const char *const why = dlerror();
    df_logf(log, plugin, "no NVTX ranges: %s", why ? why : path);
    return (df_nvtx){ NULL, NULL };
}

void df_nvtx_begin(const df_nvtx *n, const df_plan *plan)
{
    char name[MOST_NAME];
    if (!n->push) return;
    const char *const ops = plan->about && plan->n_kernels ? plan->about[0].ops : NULL;
    (void)snprintf(name, sizeof name, "deft plan %u.%u%s%s", plan->owner, plan->number,
                   ops ? ": " : "", ops ? ops : "");
    (void)n->push(name);
}

void df_nvtx_end(const df_nvtx *n)
{
    if (n->pop) (void)n->pop();
}
