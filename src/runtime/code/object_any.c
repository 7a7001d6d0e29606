/* SPDX-License-Identifier: Apache-2.0
 *
 * object_machine.h for machines without a linker of ours: objects are not offered.
 */
#include "runtime/code/object_machine.h"

uint16_t df_object_machine(void)
{
    return 0;
}

uint32_t df_relocation_size(uint32_t type)
{
    (void)type;
    return 0;
}

bool df_relocation_wants_slot(uint32_t type)
{
    (void)type;
    return false;
}

bool df_relocation_apply(uint32_t type, unsigned char *at, int64_t place, int64_t target)
{
    (void)type;
    (void)at;
    (void)place;
    (void)target;
    return false;
}

void df_stub_write(unsigned char *at, int64_t distance)
{
    (void)at;
    (void)distance;
}
