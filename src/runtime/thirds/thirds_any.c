/* SPDX-License-Identifier: Apache-2.0
 *
 * Machines without tiles.
 */
#include "runtime/thirds/thirds.h"

const df_thirds_code *df_thirds_pick(void)
{
    return NULL;
}
