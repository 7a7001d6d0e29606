/* SPDX-License-Identifier: Apache-2.0
 *
 * A code generator for tests: a plug-in like deft-llvm, found in its place when DEFT_PLUGIN_DIR is
 * its folder. What it compiles interprets. The test reaches its controls with dlsym; all fields are
 * set while nothing runs.
 */
#ifndef TEST_PLUGIN_H
#define TEST_PLUGIN_H

#include "deft/deft.h"

typedef struct plugin_controls {
    deft_status refuse; /* what a host that opens it gets, when not DEFT_OK */

    /* Compilations (modules, and micro-kernels for products) so far; the one to fail, and whether
     * every later one does too. */
    _Atomic uint32_t n_compiles, n_failed;
    uint32_t fail_compile;
    bool keep_failing;
    deft_status status;
    uint32_t delay_ms; /* each takes so long at least */

    /* Calls of compiled kernels so far. The one to fail has written all its results when it reports
     * an index outside, or when it calls hook. */
    _Atomic uint32_t n_launches;
    uint32_t fail_launch;
    void (*hook)(void *user); /* NULL: report */
    void *user;

    _Atomic int32_t n_live; /* kernels not released */
} plugin_controls;

#define PLUGIN_CONTROLS "test_plugin_controls"
typedef plugin_controls *(*plugin_controls_fn)(void);

#endif
