/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaded modules and their debug information, through libdwfl (elfutils).
 */
#ifndef DF_SITES_DWFL_MODULE_H
#define DF_SITES_DWFL_MODULE_H

#include <elfutils/libdwfl.h>

#include "base/compiler.h"

enum { MODULE_PATH = 4096, BUILD_ID = 64 };

/* What the dynamic loader says of the module whose code holds an address. */
typedef struct loaded {
    bool found;
    unsigned long long adds, subs; /* modules loaded and unloaded so far */
    uintptr_t bias;
    size_t n_id; /* 0: has no build id */
    unsigned char id[BUILD_ID];
    char path[MODULE_PATH];
} loaded;

void df_loaded_find(uintptr_t address, loaded *out);

/* Its file, opened; NULL when there is none or it is another than the one that was loaded. */
Dwfl *df_module_open(const loaded *at);

#endif
