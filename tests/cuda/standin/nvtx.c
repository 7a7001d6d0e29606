/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for libnvToolsExt: counts ranges, keeps the latest name.
 */
#include <stdio.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int nvtxRangePushA(const char *name);
EXPORTED int nvtxRangePop(void);
EXPORTED long standin_nvtx_ranges(char latest[128]);
EXPORTED int standin_nvtx_open(void);

static long n_ranges;
static int depth;
static char latest_name[128];

int nvtxRangePushA(const char *name)
{
    (void)snprintf(latest_name, sizeof latest_name, "%s", name);
    n_ranges++;
    return depth++;
}

int nvtxRangePop(void)
{
    return --depth;
}

/* How many were begun so far. */
long standin_nvtx_ranges(char latest[128])
{
    (void)snprintf(latest, 128, "%s", latest_name);
    return n_ranges;
}

/* How many have not ended. */
int standin_nvtx_open(void)
{
    return depth;
}
