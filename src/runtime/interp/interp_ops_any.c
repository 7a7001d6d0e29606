/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of loops on machines other than x86, whose default instruction set has all that the
 * loops need.
 */
#include "runtime/interp/interp_ops.h"

const df_lane_ops *df_lane_ops_best(void)
{
    return &df_lane_ops_plain;
}
