/* SPDX-License-Identifier: Apache-2.0
 *
 * Many entries of disk.h in one file, which is only read. An application can ship it.
 *
 * The file is a head, an index, and the files of the entries, as a folder has them. The index is
 * sorted by the names of the files. The head has the hash of the index; each entry has its own.
 * Numbers are in the order of the machine, as in entries.
 *
 * Entries are read, never mapped: a process that truncates the file must not end this one.
 */
#ifndef DF_CACHE_PACK_H
#define DF_CACHE_PACK_H

#include "base/hash.h"
#include "cache/folder.h"

#define DF_PACK_MAGIC "deftpack"
#define DF_PACK_VERSION 1
enum { DF_PACK_NAME = 32 }; /* letters in the name of an entry, without a NUL */

typedef struct df_pack_head {
    char magic[8];
    uint64_t version, n; /* entries */
    df_hash hash;        /* of the index */
} df_pack_head;
_Static_assert(sizeof(df_pack_head) == 40, "a format of files");

typedef struct df_pack_entry {
    char name[DF_PACK_NAME];
    uint64_t at, size; /* its bytes in the file */
} df_pack_entry;
_Static_assert(sizeof(df_pack_entry) == 48, "a format of files");

typedef struct df_pack {
    const df_mem *mem;
    int fd; /* owned */
    uint32_t n;
    df_pack_entry *index;
} df_pack;

/* Reads the index of a pack. Owns fd from then on, also on failure. Returns NULL when it is no
 * sound pack and when memory runs out. */
df_pack *df_pack_open(const df_mem *mem, int fd);
void df_pack_close(df_pack **p); /* *p may be NULL, and is NULL afterwards */

/* Reads an entry as *bytes, allocated with the df_mem of the pack. Any thread may call this. */
df_folder_result df_pack_read(const df_pack *p, const char *name, void **bytes, size_t *n);

#endif
