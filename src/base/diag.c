/* SPDX-License-Identifier: Apache-2.0
 *
 * The sentences of failures. A sentence is formatted into a separate buffer and then copied, so
 * that an argument may be the old sentence itself ("kernel 3: <old sentence>").
 */
#include "base/diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

DF_COLD deft_status df_fail(df_diag *d, deft_status status, const char *fmt, ...)
{
    df_assert(status != DEFT_OK);
    if (!d) return status;
    char text[DF_DIAG_TEXT];
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(text, sizeof text, fmt, args) < 0) text[0] = '\0';
    va_end(args);
    memcpy(d->text, text, strlen(text) + 1);
    d->status = status;
    d->node = 0;
    d->site = 0;
    return status;
}

DF_COLD deft_status df_fail_more(df_diag *d, const char *fmt, ...)
{
    if (!d) return DEFT_E_INTERNAL;
    df_assert(d->status != DEFT_OK);
    char text[DF_DIAG_TEXT];
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(text, sizeof text, fmt, args) < 0) text[0] = '\0';
    va_end(args);
    const size_t used = strlen(d->text);
    const size_t room = sizeof d->text - 1 - used;
    const size_t n = strlen(text) < room ? strlen(text) : room;
    memcpy(d->text + used, text, n);
    d->text[used + n] = '\0';
    return d->status;
}

DF_COLD deft_status df_fail_mem(df_diag *d, const char *what, size_t bytes)
{
    return df_fail(d, DEFT_E_MEMORY, "%s: could not get %zu bytes", what, bytes);
}

void df_diag_clear(df_diag *d)
{
    d->status = DEFT_OK;
    d->node = 0;
    d->site = 0;
    d->text[0] = '\0';
}
