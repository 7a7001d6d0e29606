/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines for people, by topic. A topic is off unless DEFT_LOG or the options of the runtime name
 * it ("fusion,guards,-cache", "+all"). A topic that is off costs one load and one test. Lines go to
 * the hook in the options of the runtime. By default there is no hook. The library itself never
 * prints.
 */
#ifndef DF_BASE_LOG_H
#define DF_BASE_LOG_H

#include "base/compiler.h"

#define DF_LOG_TOPICS(X)                                                                           \
    X(error)  /* errors that no call returned */                                                   \
    X(why)    /* each miss, compilation and sync: field, expected, found */                        \
    X(fusion) /* each pair that was considered, and the reason */                                  \
    X(guards)                                                                                      \
    X(cache)                                                                                       \
    X(memory)                                                                                      \
    X(compile)                                                                                     \
    X(launch)                                                                                      \
    X(plugin)                                                                                      \
    X(stats) /* what a runtime did, when it ends */

typedef enum df_log_topic {
#define DF_X(name) DF_LOG_##name,
    DF_LOG_TOPICS(DF_X)
#undef DF_X
        DF_LOG_N_TOPICS
} df_log_topic;

typedef struct df_log {
    uint32_t on; /* one bit per topic; constant after the runtime is created */
    void (*hook)(void *user, const char *topic, const char *line);
    void *user;
    struct df_sites *sites;     /* names of call sites; NULL: sites are written as module+offset */
    struct df_journal *journal; /* the structured log or NULL; set before the first event */
} df_log;

/* Switches topics on by a specification, which may be NULL for none. Unknown names are reported
 * through the hook, once. Without a hook all topics are off. Any thread that logs calls the
 * hook. */
void df_log_init(df_log *log, const char *spec, void (*hook)(void *, const char *, const char *),
                 void *user);

/* Formats a line, truncated to 1023 characters, and passes it to the hook. Use df_logf, which
 * formats nothing when the topic is off. */
void df_log_write(const df_log *log, df_log_topic topic, const char *fmt, ...) DF_PRINTF(3, 4);
const char *df_log_topic_name(df_log_topic topic);

/* Whether a topic is on. log may be NULL. Call this before work that is needed only for a line. */
DF_INLINE bool df_log_on(const df_log *log, df_log_topic topic)
{
    return DF_UNLIKELY(log != NULL && (log->on >> topic & 1) != 0);
}

#define df_logf(log, topic, ...)                                                                   \
    do {                                                                                           \
        if (df_log_on((log), DF_LOG_##topic)) df_log_write((log), DF_LOG_##topic, __VA_ARGS__);    \
    } while (0)

#endif
