/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of tiles on machines without vector code in this folder: the tiles for any machine.
 */
#include "runtime/matmul/tile.h"

const df_tiles *df_tiles_pick(deft_dtype dtype)
{
    return dtype == DEFT_F32 ? &df_tiles_base_f32 : &df_tiles_base_f64;
}
