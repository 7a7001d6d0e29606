/* SPDX-License-Identifier: Apache-2.0
 *
 * What the code of this machine may rely on, as bytes: the part of the key of kept code that keeps
 * machines apart.
 */
#ifndef DF_RUNTIME_CODE_MACHINE_H
#define DF_RUNTIME_CODE_MACHINE_H

#include "base/str.h"

/* Appends the description of the processor: its instructions, what the system lets programs use of
 * them, and its family and model, which tuning may depend on. Equal machines give equal bytes. A
 * machine that lacks an instruction gives other bytes. Appends nothing on machines without a
 * description (df_object_is_offered). */
void df_machine_put(df_str *out);

#endif
