/* SPDX-License-Identifier: Apache-2.0
 *
 * machine.h for machines whose code is not kept.
 */
#include "runtime/code/machine.h"

void df_machine_put(df_str *out)
{
    (void)out;
}
