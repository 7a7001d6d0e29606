/* SPDX-License-Identifier: Apache-2.0
 *
 * In place of object.c, where the runtime part has no machine code.
 */
#include "aot/program.h"

deft_status object_write(program *p, df_str *object, df_str *shared)
{
    (void)object, (void)shared;
    return df_fail(p->d, DEFT_E_BACKEND,
                   "export: objects are made on x86-64 Linux; elsewhere, export C");
}
