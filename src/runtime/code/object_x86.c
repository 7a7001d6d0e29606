/* SPDX-License-Identifier: Apache-2.0
 *
 * Relocations and stubs of x86-64. Every relocation is the distance of two places, in 4 bytes.
 *
 * Reference: System V ABI, AMD64 supplement, section 4.4 (relocations).
 */
#include "runtime/code/object_machine.h"

#include <elf.h>
#include <string.h>

uint16_t df_object_machine(void)
{
    return EM_X86_64;
}

bool df_relocation_wants_slot(uint32_t type)
{
    return type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX ||
           type == R_X86_64_REX_GOTPCRELX;
}

uint32_t df_relocation_size(uint32_t type)
{
    const bool is_distance =
        type == R_X86_64_PC32 || type == R_X86_64_PLT32 || df_relocation_wants_slot(type);
    return is_distance ? 4 : 0;
}

bool df_relocation_apply(uint32_t type, unsigned char *at, int64_t place, int64_t target)
{
    const int32_t distance = (int32_t)(target - place);
    (void)type;
    memcpy(at, &distance, sizeof distance);
    return true;
}

/* `jmp *slot(%rip)`: FF 25, and the distance from the end of the instruction. Two bytes follow that
 * are never reached. */
void df_stub_write(unsigned char *at, int64_t distance)
{
    const int32_t from_end = (int32_t)(distance - 6);
    at[0] = 0xFF;
    at[1] = 0x25;
    memcpy(at + 2, &from_end, sizeof from_end);
    at[6] = at[7] = 0xCC;
}
