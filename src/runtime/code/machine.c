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

#if defined(__x86_64__)

#include <cpuid.h>

enum { EAX, EBX, ECX, EDX };

/* A word of CPUID: the leaf, its part, the register, and the bits that count. */
typedef struct word {
    uint32_t leaf, part;
    int reg;
    uint32_t bits;
} word;

#define OSXSAVE (1u << 27)

static uint64_t saved_registers(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

void df_machine_put(df_str *out)
{
    static const word words[] = {
        { 0, 0, EBX, ~0u },           { 0, 0, ECX, ~0u },           { 0, 0, EDX, ~0u },
        { 1, 0, EAX, 0x0FFF3FF0u },   { 1, 0, ECX, ~0u },           { 1, 0, EDX, ~0u },
        { 7, 0, EBX, ~0u },           { 7, 0, ECX, ~0u },           { 7, 0, EDX, ~0u },
        { 7, 1, EAX, ~0u },           { 7, 1, EDX, ~0u },           { 0x24, 0, EBX, ~0u },
        { 0x80000001u, 0, ECX, ~0u }, { 0x80000001u, 0, EDX, ~0u },
    };
    uint32_t r[4] = { 0 };
    for (size_t i = 0; i < DF_LEN(words); i++) {
        const word *const w = &words[i];
        memset(r, 0, sizeof r);
        /* Returns 0, and leaves the registers, for a leaf that the processor does not have. */
        (void)__get_cpuid_count(w->leaf, w->part, &r[EAX], &r[EBX], &r[ECX], &r[EDX]);
        const uint32_t value = r[w->reg] & w->bits;
        df_str_putn(out, (const char *)&value, sizeof value);
    }
    const bool saves = __get_cpuid(1, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) && (r[ECX] & OSXSAVE);
    const uint64_t saved = saves ? saved_registers() : 0;
    df_str_putn(out, (const char *)&saved, sizeof saved);
}

#else

void df_machine_put(df_str *out)
{
    (void)out;
}

#endif
