/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of an AArch64 processor: the instructions that Linux names, the width of SVE's
 * vectors, and the model of the first core. The model of the core that this thread is on could be
 * another one the next time.
 *
 * Reference: Linux, Documentation/arch/arm64: elf_hwcaps.rst, sve.rst, cpu-feature-registers.rst.
 */
#include "runtime/code/machine.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <unistd.h>

static void put_model(df_str *out)
{
    char text[32];
    const int file =
        open("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1", O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    const ssize_t n = read(file, text, sizeof text);
    if (n > 0) df_str_putn(out, text, (size_t)n);
    close(file);
}

void df_machine_put(df_str *out)
{
    const int width = prctl(PR_SVE_GET_VL); /* below 0: no SVE */
    const uint64_t words[] = { getauxval(AT_HWCAP), getauxval(AT_HWCAP2),
                               width < 0 ? 0 : (uint64_t)(width & PR_SVE_VL_LEN_MASK) };
    df_str_putn(out, (const char *)words, sizeof words);
    put_model(out);
}
