/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of small files for disk.c: whom it belongs to, reading, writing, and removing what is
 * old.
 */
#ifndef DF_CACHE_FOLDER_H
#define DF_CACHE_FOLDER_H

#include "base/mem.h"

enum { DF_FOLDER_NAME = 48, DF_FOLDER_WHY = 300 };
#define DF_FOLDER_MAX_FILE ((size_t)128 << 20) /* longer files are not read */

/* Opens the folder at `path`, which must be absolute, and returns its descriptor. Returns -1 with a
 * reason in `why` when there is no such folder, or when another user could change what is in it:
 *
 *   - the folder belongs to the user of the process, or with `shared` also to root, and only its
 *     owner may write to it;
 *   - each folder above belongs to the user or to root, and others may not write to it unless it is
 *     sticky;
 *   - a symbolic link is followed only in a folder where root alone may write.
 *
 * With `create`, missing folders are created for the user alone. */
int df_folder_open(const char *path, bool create, bool shared, char why[DF_FOLDER_WHY]);

/* The same, but the path may also be that of a plain file, for which the same must hold. *is_file
 * is set when a descriptor is returned. */
int df_folder_open_layer(const char *path, bool create, bool shared, bool *is_file,
                         char why[DF_FOLDER_WHY]);

typedef enum df_folder_result {
    DF_FOLDER_OK,
    DF_FOLDER_MISSING,
    DF_FOLDER_REFUSED
} df_folder_result;

/* Reads a file that belongs to the user, or with `shared` to root, as *n bytes allocated with mem.
 * With `touch`, its time becomes now when it is older than a day. REFUSED: it cannot be read. */
df_folder_result df_folder_read(const df_mem *mem, int folder, const char *name, bool shared,
                                bool touch, void **bytes, size_t *n);

/* Writes a file, which has its name when all of it is written. Returns false with the number of the
 * system's error on failure; then there is no new file. */
bool df_folder_write(int folder, const char *name, const void *bytes, size_t n, int *error);

typedef struct df_folder_limits {
    uint64_t max_bytes;
    uint32_t max_days;
} df_folder_limits;

/* Whether the folder was swept within the last day. */
bool df_folder_is_swept(int folder);
/* Removes files that are older than max_days, then the oldest ones until the rest takes less than
 * 7/8 of max_bytes, and unfinished files of more than an hour. Other processes may sweep at the
 * same time. Returns how many files were removed. */
uint64_t df_folder_sweep(const df_mem *mem, int folder, const df_folder_limits *l);

/* Called with the name and size of each entry. Returning false ends the walk. */
typedef bool (*df_folder_each)(void *user, const char *name, uint64_t bytes);
/* Calls `each` with the entries of the folder, in any order. Returns false when it cannot be
 * read. */
bool df_folder_walk(int folder, df_folder_each each, void *user);

#endif
