/* SPDX-License-Identifier: Apache-2.0
 *
 * What a value of errno means, from any thread.
 */
#ifndef DF_BASE_ERRNO_TEXT_H
#define DF_BASE_ERRNO_TEXT_H

#include <stddef.h>

/* Writes the text of an error into buf, of n bytes, and returns buf. */
const char *df_errno_text(int code, char *buf, size_t n);

#endif
