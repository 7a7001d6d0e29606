/* SPDX-License-Identifier: Apache-2.0
 *
 * One sentence per status code. The switch has no default, so the compiler reports a missing code.
 */
#include "deft/status.h"

const char *deft_status_text(deft_status status)
{
    switch (status) {
    case DEFT_OK: return "success";
    case DEFT_E_ARG: return "an argument has no meaning here";
    case DEFT_E_SHAPE: return "shapes do not fit together";
    case DEFT_E_DTYPE: return "the operation has no rule for these dtypes";
    case DEFT_E_RANGE: return "a number lies outside what is allowed";
    case DEFT_E_STATE: return "the call is not allowed in this state";
    case DEFT_E_MEMORY: return "memory could not be had";
    case DEFT_E_LIMIT: return "a configured bound was reached";
    case DEFT_E_COMPILE: return "a kernel could not be compiled";
    case DEFT_E_BACKEND: return "a plug-in, driver or device is missing or failed";
    case DEFT_E_INTERRUPTED: return "the step was interrupted";
    case DEFT_E_NOT_FOUND: return "no such file or name";
    case DEFT_E_IO: return "the system failed to read or write";
    case DEFT_E_FORMAT: return "a file or text is not what it claims to be";
    case DEFT_E_INTERNAL: return "a fault of deft itself";
    case DEFT_E_NAN: return "a value is not a number";
    case DEFT_E_CHECK: return "a check found a fault";
    }
    return "no such status";
}
