/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads DEFT_* variables. For flags and numbers, an empty value counts as unset.
 */
#include "base/env.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>

const char *df_env(const char *name)
{
    return secure_getenv(name);
}

bool df_env_flag(const char *name, bool fallback)
{
    static const char *const no[] = { "0", "no", "off", "false" };
    const char *const text = df_env(name);
    if (!text || !*text) return fallback;
    for (size_t i = 0; i < DF_LEN(no); i++)
        if (strcasecmp(text, no[i]) == 0) return false;
    return true;
}

int64_t df_env_int(const char *name, int64_t fallback)
{
    const char *const text = df_env(name);
    if (!text || !*text) return fallback;
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 0);
    return *end || errno ? fallback : (int64_t)value;
}
