/* SPDX-License-Identifier: Apache-2.0
 *
 * Topics, and the only function that formats log lines. Lines are truncated at LINE_MAX_SIZE,
 * because the log allocates no memory. So it also works when memory has run out.
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

#define LINE_MAX_SIZE 1024

static const char *const topic_names[] = {
#define DF_X(name) #name,
    DF_LOG_TOPICS(DF_X)
#undef DF_X
};

_Static_assert(DF_LEN(topic_names) == DF_LOG_N_TOPICS, "a name for each topic");
_Static_assert(DF_LOG_N_TOPICS < 32, "df_log.on has a bit for each topic");

/* The set of topics that name means; 0 when there is no such name. */
static uint32_t topic_bits(const char *name, size_t n)
{
    if (df_text_equals(name, n, "all")) return (1u << DF_LOG_N_TOPICS) - 1;
    for (size_t i = 0; i < DF_LEN(topic_names); i++)
        if (df_text_equals(name, n, topic_names[i])) return 1u << i;
    return 0;
}

void df_log_init(df_log *log, const char *spec, void (*hook)(void *, const char *, const char *),
                 void *user)
{
    *log = (df_log){ .hook = hook, .user = user };
    if (!spec || !hook) return;
    char unknown[256] = "";
    for (const char *at = spec; *at;) {
        const size_t item = strcspn(at, ", ");
        const bool off = *at == '-', sign = off || *at == '+';
        const char *const name = at + sign;
        const size_t n = item - sign;
        const uint32_t bits = topic_bits(name, n);
        if (off)
            log->on &= ~bits;
        else
            log->on |= bits;
        const size_t used = strlen(unknown);
        if (!bits && n)
            (void)snprintf(unknown + used, sizeof unknown - used, "%s%.*s", used ? ", " : "",
                           (int)(n < 64 ? n : 64), name);
        at += item;
        at += strspn(at, ", ");
    }
    if (unknown[0]) df_log_write(log, DF_LOG_error, "DEFT_LOG: no such topic: %s", unknown);
}

void df_log_write(const df_log *log, df_log_topic topic, const char *fmt, ...)
{
    if (!log->hook) return;
    char line[LINE_MAX_SIZE];
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(line, sizeof line, fmt, args) < 0) line[0] = '\0';
    va_end(args);
    log->hook(log->user, df_log_topic_name(topic), line);
}

const char *df_log_topic_name(df_log_topic topic)
{
    return (unsigned)topic < DF_LOG_N_TOPICS ? topic_names[topic] : "?";
}
