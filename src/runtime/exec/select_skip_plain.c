/* SPDX-License-Identifier: Apache-2.0
 *
 * The scan of select_skip.h for the instructions that every machine has.
 */
#include "runtime/exec/select_skip.h"

#define SKIP df_select_skip_plain
#include "runtime/exec/select_skip.def"
