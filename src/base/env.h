/* SPDX-License-Identifier: Apache-2.0
 *
 * Environment variables. They are read once, when a runtime is created. In a set-user-id process
 * every DEFT_* variable counts as unset.
 */
#ifndef DF_BASE_ENV_H
#define DF_BASE_ENV_H

#include "base/compiler.h"

/* The value of a variable, or NULL when it is unset or must not be trusted. */
const char *df_env(const char *name);

/* The values 0, no, off and false, in upper or lower case, mean false, and all others true. Returns
 * fallback when the variable is unset or empty. */
bool df_env_flag(const char *name, bool fallback);

/* Reads a number: decimal, hexadecimal (0x..) or octal (0..). Returns fallback when the variable is
 * unset, empty, not a number, or too large. */
int64_t df_env_int(const char *name, int64_t fallback);

#endif
