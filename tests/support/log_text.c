/* SPDX-License-Identifier: Apache-2.0 */
#include "log_text.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void log_text_add(char *text, size_t size, const char *topic, const char *line)
{
    pthread_mutex_lock(&lock);
    const size_t used = strlen(text);
    if (strlen(topic) + strlen(line) + 4 <= size - used)
        snprintf(text + used, size - used, "%s: %s\n", topic, line);
    pthread_mutex_unlock(&lock);
}
