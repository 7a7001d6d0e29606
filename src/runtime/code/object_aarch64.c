/* SPDX-License-Identifier: Apache-2.0
 *
 * Relocations and stubs of AArch64. A body is shorter than the 128 MiB that a call reaches, and
 * calls of functions outside go through a stub, so that no call needs a veneer. ADRP adds pages of
 * 4 KiB to its own page. The body begins on a page, so the difference of two pages is known here.
 *
 * Absolute addresses (ABS64) are not offered: constants that hold addresses are writable data to a
 * linker, which objects do not have.
 *
 * Reference: Arm, "ELF for the Arm 64-bit Architecture (AArch64)", section "Relocation".
 */
#include "runtime/code/object_machine.h"

#include <elf.h>
#include <string.h>

#define ADRP_PAGE ((int64_t)4096)

uint16_t df_object_machine(void)
{
    return EM_AARCH64;
}

bool df_relocation_wants_slot(uint32_t type)
{
    return type == R_AARCH64_ADR_GOT_PAGE || type == R_AARCH64_LD64_GOT_LO12_NC;
}

/* What an instruction or a constant holds of its target. */
typedef enum field {
    FIELD_CALL,   /* the distance of a branch */
    FIELD_ADR,    /* the distance, up to 1 MiB */
    FIELD_PAGE,   /* the distance of the pages */
    FIELD_OFFSET, /* the place in the page, in units of 1 << scale bytes */
    FIELD_WORD    /* the distance, as a constant of 4 bytes */
} field;

typedef struct relocation {
    uint32_t type;
    field field;
    unsigned scale;
} relocation;

static const relocation *find_relocation(uint32_t type)
{
    static const relocation offered[] = {
        { R_AARCH64_CALL26, FIELD_CALL, 0 },
        { R_AARCH64_JUMP26, FIELD_CALL, 0 },
        { R_AARCH64_ADR_PREL_LO21, FIELD_ADR, 0 },
        { R_AARCH64_ADR_PREL_PG_HI21, FIELD_PAGE, 0 },
        { R_AARCH64_ADR_GOT_PAGE, FIELD_PAGE, 0 },
        { R_AARCH64_ADD_ABS_LO12_NC, FIELD_OFFSET, 0 },
        { R_AARCH64_LDST8_ABS_LO12_NC, FIELD_OFFSET, 0 },
        { R_AARCH64_LDST16_ABS_LO12_NC, FIELD_OFFSET, 1 },
        { R_AARCH64_LDST32_ABS_LO12_NC, FIELD_OFFSET, 2 },
        { R_AARCH64_LDST64_ABS_LO12_NC, FIELD_OFFSET, 3 },
        { R_AARCH64_LDST128_ABS_LO12_NC, FIELD_OFFSET, 4 },
        { R_AARCH64_LD64_GOT_LO12_NC, FIELD_OFFSET, 3 },
        { R_AARCH64_PREL32, FIELD_WORD, 0 },
    };
    for (size_t i = 0; i < DF_LEN(offered); i++)
        if (offered[i].type == type) return &offered[i];
    return NULL;
}

uint32_t df_relocation_size(uint32_t type)
{
    return find_relocation(type) ? 4 : 0;
}

/* Replaces the bits of `mask` in the instruction at `at`. */
static void put_bits(unsigned char *at, uint32_t mask, uint32_t bits)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    word = (word & ~mask) | (bits & mask);
    memcpy(at, &word, sizeof word);
}

/* The operand of ADR and ADRP: 21 bits, the two lowest apart from the others. */
static bool put_adr(unsigned char *at, int64_t value)
{
    if (value < -((int64_t)1 << 20) || value >= (int64_t)1 << 20) return false;
    const uint32_t bits = (uint32_t)value;
    put_bits(at, 0x60FFFFE0u, (bits & 3) << 29 | (bits >> 2 & 0x7FFFFu) << 5);
    return true;
}

/* The operand of a load or store: where the target is in its page, in units of 1 << scale bytes. */
static bool put_offset(unsigned char *at, int64_t target, unsigned scale)
{
    const uint32_t offset = (uint32_t)(target & (ADRP_PAGE - 1));
    if (offset & ((1u << scale) - 1)) return false;
    put_bits(at, 0x003FFC00u, offset >> scale << 10);
    return true;
}

static bool put_branch(unsigned char *at, int64_t distance)
{
    if (distance & 3 || distance < -((int64_t)1 << 27) || distance >= (int64_t)1 << 27)
        return false;
    put_bits(at, 0x03FFFFFFu, (uint32_t)(distance >> 2));
    return true;
}

bool df_relocation_apply(uint32_t type, unsigned char *at, int64_t place, int64_t target)
{
    const relocation *const r = find_relocation(type);
    const int64_t distance = target - place;
    switch (r->field) {
    case FIELD_CALL: return put_branch(at, distance);
    case FIELD_ADR: return put_adr(at, distance);
    case FIELD_PAGE: return put_adr(at, ((target & -ADRP_PAGE) - (place & -ADRP_PAGE)) / ADRP_PAGE);
    case FIELD_OFFSET: return put_offset(at, target, r->scale);
    case FIELD_WORD: put_bits(at, ~0u, (uint32_t)distance); return true;
    }
    df_unreachable();
}

/* `ldr x16, slot` and `br x16`. Calls may change x16 by the procedure call standard. */
void df_stub_write(unsigned char *at, int64_t distance)
{
    put_bits(at, ~0u, 0x58000010u | (uint32_t)(distance >> 2 & 0x7FFFF) << 5);
    put_bits(at + 4, ~0u, 0xD61F0200u);
}
