/* SPDX-License-Identifier: Apache-2.0
 *
 * Which files a log consists of: private to log.c and log_files.c.
 */
#ifndef TOOL_LOG_FILES_H
#define TOOL_LOG_FILES_H

#include "base/arena.h"
#include "base/vec.h"

typedef struct log_file {
    const char *path;
    uint64_t start, process_id; /* of its name */
    uint32_t part;
    uint32_t process; /* index in the set */
} log_file;

struct log_set {
    df_arena arena; /* paths and names */
    DF_VEC(log_file) files;
    DF_VEC(const char *) processes;
    const char *bytes; /* of the one file, when it stands in memory */
    size_t size;
    bool is_folder; /* links are not followed */
    bool was_read;
};

/* Fields of a file name "deft-PID-START[.PART]" + ending. false: it is none. */
bool log_name(const char *name, const char *ending, log_file *out);

#endif
