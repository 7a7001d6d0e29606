/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of the sort of keys on machines other than x86.
 */
#include "runtime/sort/keys.h"

const df_keys *df_keys_best(void)
{
    return &df_keys_plain;
}
