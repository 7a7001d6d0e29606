/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the module (program or library) that contains an address, and opens its debug information
 * with libdwfl (elfutils).
 */
#ifndef DF_SITES_DWFL_MODULE_H
#define DF_SITES_DWFL_MODULE_H

#include <elfutils/libdwfl.h>

#include "base/compiler.h"

enum { MODULE_PATH = 4096, BUILD_ID = 64 }; /* bytes for a path, and for a build id */

/* What the dynamic loader knows of the module whose code contains an address. */
typedef struct loaded {
    bool found;                    /* without it, only adds and subs are valid */
    unsigned long long adds, subs; /* modules that the process has loaded and unloaded so far */
    uintptr_t bias;                /* addresses in memory minus addresses in the file */
    size_t n_id;                   /* bytes of the build id; 0 when the module has none */
    unsigned char id[BUILD_ID];
    char path[MODULE_PATH]; /* of its file; "/proc/self/exe" for the program itself */
} loaded;

/* Finds the module whose code contains an address. When there is none, or when its path is too
 * long, out->found is false. Any thread may call this. */
void df_loaded_find(uintptr_t address, loaded *out);

/* Opens the file of a module that was found. The caller ends it with dwfl_end. Returns NULL when
 * there is no such file, when memory runs out, or when it is not the file that was loaded. It is
 * that file when both have equal build ids, or neither has one. */
Dwfl *df_module_open(const loaded *at);

#endif
