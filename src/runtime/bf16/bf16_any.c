/* SPDX-License-Identifier: Apache-2.0
 *
 * Machines without instructions for products of bf16.
 */
#include "runtime/bf16/bf16.h"

const df_bf16_code *df_bf16_pick(void)
{
    return NULL;
}

const df_bf16_code *df_bf16_tiles(void)
{
    return NULL;
}
