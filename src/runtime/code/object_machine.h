/* SPDX-License-Identifier: Apache-2.0
 *
 * What the linker of object.h must know of a kind of machine: its relocations, and the stubs
 * through which code calls functions outside. Meson chooses the file.
 */
#ifndef DF_RUNTIME_CODE_OBJECT_MACHINE_H
#define DF_RUNTIME_CODE_OBJECT_MACHINE_H

#include "base/compiler.h"

enum {
    DF_STUB_BYTES = 8, /* a jump to the address in a slot */
    DF_SLOT_BYTES = 8
};

/* The e_machine of ELF objects that can be linked. 0: none, and nothing else here is called. */
uint16_t df_object_machine(void);

/* How many bytes a relocation of this type changes. 0: the type is not offered. */
uint32_t df_relocation_size(uint32_t type);
/* Whether a relocation of this type asks for the slot that holds an address, not for the place. */
bool df_relocation_wants_slot(uint32_t type);
/* Applies a relocation of an offered type to the bytes at `at`. `place` is their offset in the
 * body, and `target` that of what they name, addend included. The body begins on a page. Returns
 * false when the bytes cannot hold the result. */
bool df_relocation_apply(uint32_t type, unsigned char *at, int64_t place, int64_t target);
/* Writes the stub at `at`. `distance` leads from its first byte to its slot. It is a multiple of 8,
 * and below 4 KiB. */
void df_stub_write(unsigned char *at, int64_t distance);

#endif
