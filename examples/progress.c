/* SPDX-License-Identifier: Apache-2.0
 *
 * See progress.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void progress_show(bool is_last, const char *format, ...)
{
    va_list arguments;
    const bool on_terminal = isatty(STDOUT_FILENO);
    if (!on_terminal && !is_last) return;
    if (on_terminal) putchar('\r');
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    fflush(stdout);
}
