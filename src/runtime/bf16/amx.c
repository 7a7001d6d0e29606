/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of AMX, which bf16_amx.c and thirds/thirds_amx.c use: permission and state. Linux gives
 * permission to a process that asks, since the tiles are 8 KiB of each thread's state.
 */
#include "runtime/bf16/amx.h"
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

/* GCC 11 and Clang 11 have the intrinsics; without them nobody uses tiles. */
#if __has_include(<amxbf16intrin.h>) || __has_include(<amxintrin.h>)

#include <immintrin.h>

__attribute__((target("amx-tile"))) void df_amx_begin(void)
{
    enum { ROWS = 16, BYTES = 64 };
    /* In memory as a whole: GCC believes that the intrinsic reads eight bytes. */
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t columns[16]; /* bytes */
        uint8_t rows[16];
    } config = { .palette = 1,
                 .columns = { BYTES, BYTES, BYTES, BYTES, BYTES, BYTES, BYTES, BYTES },
                 .rows = { ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS } };
    _Static_assert(sizeof config == 64, "as the processor reads it");
    _tile_loadconfig(&config);
}

__attribute__((target("amx-tile"))) void df_amx_end(void)
{
    _tile_release();
}

#endif

#else

bool df_matmul_enable_tiles(void)
{
    return false;
}

#endif
