/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a new thread runs, as glibc has it: the thread starts there.
 */
#include "runtime/os_place.h"

#include <sched.h>

bool df_os_place(pthread_attr_t *attr, int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    (void)pthread_attr_setaffinity_np(attr, sizeof set, &set);
    return true;
}
