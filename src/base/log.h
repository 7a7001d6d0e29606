/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines for people, by topic. A topic is off unless DEFT_LOG or the runtime's options name it
 * ("fusion,guards,-cache", "+all"); an off topic costs one load and one test. Lines go to the hook
 * in the runtime's options; the library itself never prints. Default hook: none.
 */
#ifndef DF_BASE_LOG_H
#define DF_BASE_LOG_H

#include "base/compiler.h"

#define DF_LOG_TOPICS(X)                                                                           \
    X(error)  /* errors nobody collected */                                                        \
    X(why)    /* each miss, compile, sync: field, expected, found */                               \
    X(fusion) /* each pair tried and its reason */                                                 \
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
    uint32_t on; /* bit per topic; written only while the runtime is created */
    void (*hook)(void *user, const char *topic, const char *line);
    void *user;
    struct df_sites *sites;     /* names call sites in lines; NULL: as module+offset */
    struct df_journal *journal; /* the structured log; NULL: none. Set before the first event */
} df_log;

/* Sets topics from a specification (NULL: none); unknown names are reported through the hook once.
 * Without a hook all topics are off. The hook is called from whichever thread has something to say.
 */
void df_log_init(df_log *log, const char *spec, void (*hook)(void *, const char *, const char *),
                 void *user);

/* Lines over 1023 characters are cut. Through df_logf, so that off topics format nothing. */
void df_log_write(const df_log *log, df_log_topic topic, const char *fmt, ...) DF_PRINTF(3, 4);
const char *df_log_topic_name(df_log_topic topic);

/* log may be NULL. Worth asking before work that only feeds a line. */
DF_INLINE bool df_log_on(const df_log *log, df_log_topic topic)
{
    return DF_UNLIKELY(log != NULL && (log->on >> topic & 1) != 0);
}

#define df_logf(log, topic, ...)                                                                   \
    do {                                                                                           \
        if (df_log_on((log), DF_LOG_##topic)) df_log_write((log), DF_LOG_##topic, __VA_ARGS__);    \
    } while (0)

#endif
