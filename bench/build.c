/* SPDX-License-Identifier: Apache-2.0
 *
 * How long does deft take to build: all of it, and again after the operator table was touched? A
 * fresh release build folder, without ccache; library, plug-in and command line.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

static double timed(const char *command)
{
    const double t = bench_now();
    const int rc = system(command);
    if (rc != 0) {
        fprintf(stderr, "%s: status %d\n", command, rc);
        exit(1);
    }
    return bench_now() - t;
}

void bench_build(bench *b)
{
#define DIR BENCH_SOURCE_ROOT "/build-timed"
    timed("rm -rf " DIR);
    const double setup = timed("env CCACHE_DISABLE=1 meson setup " DIR " " BENCH_SOURCE_ROOT
                               " -Dbench=false -Dtests=disabled -Dexamples=false >/dev/null");
    const double full = timed("env CCACHE_DISABLE=1 ninja -C " DIR " >/dev/null");
    timed("touch " BENCH_SOURCE_ROOT "/src/ops/ops.def");
    const double again = timed("env CCACHE_DISABLE=1 ninja -C " DIR " >/dev/null");
    timed("rm -rf " DIR);
#undef DIR
    bench_row(b, "full build", full, "s", "its meson setup, s", setup, BENCH_VALUE_AT_MOST, 30);
    bench_row(b, "after touching ops.def", again, "s", "the full build, s", full,
              BENCH_VALUE_AT_MOST, 8);
}
