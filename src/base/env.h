/* SPDX-License-Identifier: Apache-2.0
 *
 * Environment variables. Each call reads the variable anew. Most variables are read when a runtime
 * is created, some when a context is created or a library is opened. In a process with raised
 * privileges, such as a set-user-id process, every variable counts as unset (secure_getenv). Any
 * thread may call these functions, while no thread changes the environment.
 */
#ifndef DF_BASE_ENV_H
#define DF_BASE_ENV_H

#include "base/compiler.h"

/* The value of a variable under its full name, for example "DEFT_LOG". The value may be empty.
 * Returns NULL when the variable counts as unset. The string belongs to the environment, and is
 * valid until the environment changes. */
const char *df_env(const char *name);

/* Reads a flag. The values 0, no, off and false, in upper, lower or mixed case, mean false, and all
 * others true. Returns fallback when the variable is unset or empty. */
bool df_env_flag(const char *name, bool fallback);

/* Reads a number: decimal, hexadecimal (0x..) or octal (0..), with or without a sign. Returns
 * fallback when the variable is unset or empty, when it is not a number to its end, or when the
 * number is out of the range of int64_t. */
int64_t df_env_int(const char *name, int64_t fallback);

#endif
