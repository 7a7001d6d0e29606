/* SPDX-License-Identifier: Apache-2.0
 *
 * Environment variables, read once when a runtime is created. In a set-user-id process every DEFT_*
 * variable counts as unset.
 */
#ifndef DF_BASE_ENV_H
#define DF_BASE_ENV_H

#include "base/compiler.h"

const char *df_env(const char *name); /* NULL when unset or not to be trusted */

/* 0, no, off, false in any case, anything else is true; fallback when unset or empty. */
bool df_env_flag(const char *name, bool fallback);

/* Decimal, 0x.. or 0..; fallback when unset, empty, no number or too large. */
int64_t df_env_int(const char *name, int64_t fallback);

#endif
