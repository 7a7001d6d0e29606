/* SPDX-License-Identifier: Apache-2.0
 *
 * With the extensions of GNU, strerror_r is another function in glibc than in other libraries for
 * C. This file asks for the one of POSIX, which all have.
 */
#undef _GNU_SOURCE
#define _POSIX_C_SOURCE 200809L

#include "base/errno_text.h"

#include <stdio.h>
#include <string.h>

const char *df_errno_text(int code, char *buf, size_t n)
{
    if (strerror_r(code, buf, n) != 0) (void)snprintf(buf, n, "error %d", code);
    return buf;
}
