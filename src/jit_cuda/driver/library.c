/* SPDX-License-Identifier: Apache-2.0
 *
 * See library.h.
 */
#include "jit_cuda/driver/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

void *df_library_open(const char *path, const char *const *names, size_t n)
{
    char full[4096];
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (size_t i = 0; i < n && !library; i++) {
        (void)snprintf(full, sizeof full, "%s%s%s", path ? path : "", path ? "/" : "", names[i]);
        library = dlopen(full, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

/* Data and function pointers have one representation on this platform, but C has no
 * conversion between them. */
bool df_library_find(void *library, const char *symbol, void *fn)
{
    void *const p = dlsym(library, symbol);
    memcpy(fn, &p, sizeof p);
    return p != NULL;
}
