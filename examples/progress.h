/* SPDX-License-Identifier: Apache-2.0
 *
 * One line that shows how far a long piece of work is.
 */
#ifndef EXAMPLES_PROGRESS_H
#define EXAMPLES_PROGRESS_H

#include <stdbool.h>

/* Shows a line of text on stdout, formatted as by printf. On a terminal each line replaces the one
 * before. Elsewhere (a file, a pipe, a CI log) only the line with is_last set is printed. The line
 * is not ended: the caller goes on after it. */
void progress_show(bool is_last, const char *format, ...);

#endif
