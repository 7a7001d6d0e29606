/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of the interpreter, compiled for any machine.
 */
#include "runtime/interp/interp_ops.h"

#include <string.h>

#define TABLE df_lane_ops_plain
#define TABLE_NAME "plain"
#include "runtime/interp/interp_ops.def"
