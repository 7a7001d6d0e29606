/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of the scan on machines other than x86.
 */
#include "runtime/exec/select_skip.h"

df_select_skip_fn df_select_skip_best(void)
{
    return df_select_skip_plain;
}
