/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of an x86-64 processor: the words of CPUID that name instructions, and the mask
 * of the registers that the system saves.
 *
 * Words that differ between the cores of one machine, such as the number of the core, are left out.
 *
 * Reference: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CPUID and
 * XGETBV.
 */
#include "runtime/code/machine.h"

#include <cpuid.h>

enum { EAX, EBX, ECX, EDX };

/* A part of a leaf of CPUID, and the bits of each register that count. */
typedef struct leaf {
    uint32_t leaf, part;
    uint32_t bits[4];
} leaf;

#define OSXSAVE (1u << 27)

static uint64_t saved_registers(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Reads each leaf once: in a virtual machine, a CPUID takes some microseconds. */
void df_machine_put(df_str *out)
{
    static const leaf leaves[] = {
        { 0, 0, { 0, ~0u, ~0u, ~0u } }, { 1, 0, { 0x0FFF3FF0u, 0, ~0u, ~0u } },
        { 7, 0, { 0, ~0u, ~0u, ~0u } }, { 7, 1, { ~0u, 0, 0, ~0u } },
        { 0x24, 0, { 0, ~0u, 0, 0 } },  { 0x80000001u, 0, { 0, 0, ~0u, ~0u } },
    };
    const uint32_t last = __get_cpuid_max(0, NULL), last_extended = __get_cpuid_max(1u << 31, NULL);
    bool saves = false;
    for (size_t i = 0; i < DF_LEN(leaves); i++) {
        const leaf *const l = &leaves[i];
        uint32_t r[4] = { 0 };
        /* A leaf that the processor does not have counts as zeros. */
        if (l->leaf <= (l->leaf >> 31 ? last_extended : last))
            __cpuid_count(l->leaf, l->part, r[EAX], r[EBX], r[ECX], r[EDX]);
        for (int k = 0; k < 4; k++) r[k] &= l->bits[k];
        if (l->leaf == 1) saves = r[ECX] & OSXSAVE;
        df_str_putn(out, (const char *)r, sizeof r);
    }
    const uint64_t saved = saves ? saved_registers() : 0;
    df_str_putn(out, (const char *)&saved, sizeof saved);
}
