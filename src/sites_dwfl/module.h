/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the module (program or library) that contains an address, and opens its debug information
 * with libdwfl (elfutils).
 */
#ifndef DF_SITES_DWFL_MODULE_H
#define DF_SITES_DWFL_MODULE_H

#include <elfutils/libdwfl.h>

#include "base/compiler.h"

enum { MODULE_PATH = 4096, BUILD_ID = 64 };

/* What the dynamic loader knows of the module whose code contains an address. */
typedef struct loaded {
    bool found;                    /* without it, only adds and subs are valid */
    unsigned long long adds, subs; /* modules that the process has loaded and unloaded so far */
    uintptr_t bias;                /* addresses in memory minus addresses in the file */
    size_t n_id;                   /* bytes of the build id; 0 when the module has none */
    unsigned char id[BUILD_ID];
    char path[MODULE_PATH];
} loaded;

/* Finds the module at an address. Fills in all of *out; out->found says whether there is one. */
void df_loaded_find(uintptr_t address, loaded *out);

/* Opens the file of a module that was found. The caller ends it with dwfl_end. Returns NULL when
 * there is no such file, or when it is not the file that was loaded. */
Dwfl *df_module_open(const loaded *at);

#endif
