/* SPDX-License-Identifier: Apache-2.0
 *
 * sve.h for machines that cannot have SVE.
 */
#include "jit_llvm/sve.h"

uint32_t df_sve_bytes(void)
{
    return 0;
}
