/* SPDX-License-Identifier: Apache-2.0
 *
 * Machines without vector code of our own: the compiler's vectors are those the whole library has.
 */
#include "runtime/matmul/tile.h"

const df_tiles *df_tiles_pick(deft_dtype dtype)
{
    return dtype == DEFT_F32 ? &df_tiles_base_f32 : &df_tiles_base_f64;
}
