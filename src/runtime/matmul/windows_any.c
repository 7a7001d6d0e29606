/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of functions for windows on machines without vector code in this folder.
 */
#include "runtime/matmul/windows.h"

const df_image_tiles *df_image_tiles_pick(deft_dtype dtype)
{
    return dtype == DEFT_F32 ? &df_image_tiles_base_f32 : &df_image_tiles_base_f64;
}
