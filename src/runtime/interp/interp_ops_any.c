/* SPDX-License-Identifier: Apache-2.0
 *
 * Machines for which the compiler's default instruction set has all the loops need.
 */
#include "runtime/interp/interp_ops.h"

const df_lane_ops *df_lane_ops_best(void)
{
    return &df_lane_ops_plain;
}
