/* SPDX-License-Identifier: Apache-2.0
 *
 * sve.h for AArch64.
 *
 * Reference: Linux, Documentation/arch/arm64/sve.rst.
 */
#include "jit_llvm/sve.h"

#include <sys/prctl.h>

uint32_t df_sve_bytes(void)
{
    const int width = prctl(PR_SVE_GET_VL);
    return width < 0 ? 0 : (uint32_t)width & PR_SVE_VL_LEN_MASK;
}
