/* SPDX-License-Identifier: Apache-2.0
 *
 * A cache in folders, from key bytes to value bytes, which outlives the process. It knows nothing
 * of kernels. Any number of threads and processes may use one folder at once.
 *
 * An entry is one file, whose name is the hash of its key. It is written to another name first and
 * then renamed, so a reader finds all of it or nothing. A hit needs equal key bytes and a right
 * checksum. The checksum finds accidents, not attacks: a program trusts what is in its folders as
 * it trusts its own code. So a folder is used only when nobody else can write to it
 * (df_folder_open), and not at all in a process with more rights than its user (AT_SECURE).
 *
 * Failures are never errors of the caller. What cannot be read counts as missing, and after a
 * failure to write nothing is written any more; both are logged once, under the topic cache.
 */
#ifndef DF_CACHE_DISK_H
#define DF_CACHE_DISK_H

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "deft/status.h"

typedef struct df_disk df_disk;

typedef struct df_disk_options {
    /* Folders, separated by ':'. The first one is read and written, and is created when it is
     * missing. The others are only read. A file among them is a pack (pack.h), which is only read
     * wherever it is. Borrowed during df_disk_open.
     *
     * NULL: $DEFT_CACHE_DIR, or when this is not set, the folder deft in $XDG_CACHE_HOME or in
     * $HOME/.cache. "", here or in the variable: none. */
    const char *folders;
    uint64_t max_bytes; /* files in the first folder, in bytes, which is kept roughly; 0: 512 MiB */
    uint32_t max_days;  /* entries that were not used for so long are removed; 0: 60 */
} df_disk_options;

/* Appends the folders to use, as df_disk_options.folders is `asked`: the list, or nothing. */
void df_disk_list(const char *asked, df_str *out);
/* Whether the n bytes of a file are an entry as it was written. */
bool df_disk_is_entry(const void *file, size_t n);

/* Counts since df_disk_open. */
typedef struct df_disk_stats {
    uint64_t hits, misses;
    uint64_t
        damaged; /* files that were no entries, or whose bytes were not those that were written */
    uint64_t added;   /* entries that were written */
    uint64_t removed; /* files that were removed by sweeping */
} df_disk_stats;

/* mem and log are borrowed until df_disk_close. log may be NULL. Returns NULL when there are no
 * folders, when none of them can be used, and when memory runs out. A folder that cannot be used is
 * logged. */
df_disk *df_disk_open(const df_mem *mem, const df_log *log, const df_disk_options *o);
void df_disk_close(df_disk **k); /* *k may be NULL, and is NULL afterwards */

/* Finds the value of a key. *value is allocated with the df_mem of the cache, and the caller frees
 * its *n bytes. Returns false when no folder has it. */
bool df_disk_find(df_disk *k, const void *key, size_t n_key, void **value, size_t *n);

/* Writes an entry to the first folder, in place of one with the same key. Failures are not
 * reported. */
void df_disk_add(df_disk *k, const void *key, size_t n_key, const void *value, size_t n);

df_disk_stats df_disk_stats_get(const df_disk *k);

#endif
