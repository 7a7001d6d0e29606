/* SPDX-License-Identifier: Apache-2.0
 *
 * A log kept as one text. Two threads that compile may call a log hook at the same time.
 */
#ifndef TESTS_LOG_TEXT_H
#define TESTS_LOG_TEXT_H

#include <stddef.h>

/* Appends "topic: line\n" to the string text, a buffer of size bytes. A line that does not fit is
 * left out whole. Any thread may call it. */
void log_text_add(char *text, size_t size, const char *topic, const char *line);

#endif
