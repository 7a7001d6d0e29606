/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: the control functions of libcuda-standin.so.
 */
#include "standin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

bool standin_open(standin *s, const char *path)
{
    bool good = true;
    *s = (standin){ .library = dlopen(path, RTLD_NOW | RTLD_LOCAL) };
    if (!s->library) {
        printf("%s: %s\n", path, dlerror());
        return false;
    }
#define FIND(name, result, parameters)                                                             \
    {                                                                                              \
        void *const p = dlsym(s->library, "standin_" #name);                                       \
        memcpy(&s->name, &p, sizeof p);                                                            \
        if (!p) printf("%s: no standin_" #name "\n", path);                                        \
        good &= p != NULL;                                                                         \
    }
    STANDIN_CALLS(FIND)
#undef FIND
    return good;
}
