/* SPDX-License-Identifier: Apache-2.0
 *
 * Permission for the tiles of AMX. Linux gives it to a process that asks, since the tiles are 8 KiB
 * of each thread's state. bf16_amx.c and thirds/thirds_amx.c use the tiles.
 */
#include "runtime/matmul.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    ASK_PERMISSION = 0x1023, /* ARCH_REQ_XCOMP_PERM of arch_prctl */
    TILE_DATA = 18           /* the state that is asked for */
};

bool df_matmul_enable_tiles(void)
{
    enum { HAS_BF16 = 1 << 22, HAS_TILES = 1 << 24 };
    uint32_t a, b, c, d;
    if (!__builtin_cpu_supports("avx512bw") || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return false;
    return (d & HAS_BF16) && (d & HAS_TILES) &&
           syscall(SYS_arch_prctl, ASK_PERMISSION, TILE_DATA) == 0;
}

#else

bool df_matmul_enable_tiles(void)
{
    return false;
}

#endif
