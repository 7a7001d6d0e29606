/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules and exported names are what the dynamic loader knows at no cost. Files and lines are in
 * debug information, which only a resolver opened at run time could read: there is none yet.
 */
#include "base/site.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const char *df_site_text(uintptr_t site, char *buf, size_t n)
{
    Dl_info info;
    if (site == 0) {
        snprintf(buf, n, "the start");
    } else if (dladdr((void *)site, &info) && info.dli_fname) {
        const char *const slash = strrchr(info.dli_fname, '/');
        const int used = snprintf(buf, n, "%s+0x%zx", slash ? slash + 1 : info.dli_fname,
                                  (size_t)(site - (uintptr_t)info.dli_fbase));
        if (info.dli_sname && used > 0 && (size_t)used < n)
            snprintf(buf + used, n - (size_t)used, " (%s+0x%zx)", info.dli_sname,
                     (size_t)(site - (uintptr_t)info.dli_saddr));
    } else {
        snprintf(buf, n, "0x%zx", (size_t)site);
    }
    return buf;
}
