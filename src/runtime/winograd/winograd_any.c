/* SPDX-License-Identifier: Apache-2.0
 *
 * Machines for which there are no transformations.
 */
#include "runtime/winograd/winograd_parts.h"

const df_winograd_code *df_winograd_pick(void)
{
    return NULL;
}
