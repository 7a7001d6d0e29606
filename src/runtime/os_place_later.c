/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a new thread runs, for libraries for C that cannot say it before the thread starts.
 */
#include "runtime/os_place.h"

bool df_os_place(pthread_attr_t *attr, int cpu)
{
    (void)attr;
    (void)cpu;
    return false;
}
