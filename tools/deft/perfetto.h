/* SPDX-License-Identifier: Apache-2.0
 *
 * A structured log as a trace in Chrome's JSON format, which ui.perfetto.dev opens.
 */
#ifndef TOOL_PERFETTO_H
#define TOOL_PERFETTO_H

#include <stdio.h>

#include "log.h"

/* Writes while it reads. A CLI_* code, told on stderr unless it is CLI_OK. */
int perfetto_write(log_set *logs, FILE *f, log_faults *faults);

#endif
