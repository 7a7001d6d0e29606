/* SPDX-License-Identifier: Apache-2.0
 *
 * A compiler that loads its code itself and keeps it. It stands before another one, whose objects
 * it links (object.h), loads, and writes to a cache in folders (cache/disk.h). What the cache has
 * is never compiled again, and then the other compiler is never started.
 *
 * The key of kept code begins with the build of the library and the version of the code generator.
 * The machine follows (machine.h), the width of vectors, and whether code keeps frame pointers.
 * Then come the level, the facts of a variant, and the canonical bytes of the kernel.
 *
 * An object that this loader refuses is compiled again by the other compiler, which loads the code
 * itself and does not keep it.
 */
#ifndef DF_RUNTIME_CODE_KEPT_H
#define DF_RUNTIME_CODE_KEPT_H

#include "cache/disk.h"
#include "runtime/device.h"

typedef struct df_kept_options {
    df_disk *disk;             /* NULL: nothing is kept. Borrowed */
    uint32_t max_vector_bytes; /* as in df_host */
    bool keep_frames;          /* as in df_host */
    const char *machine;       /* for tests: stands for the bytes of df_machine_put; NULL: these */
} df_kept_options;

/* Puts the compiler in front of *c, which it replaces and owns from then on. Leaves *c as it is
 * when it gives no objects, when this kind of machine has no loader, and when memory runs out. mem
 * and log are borrowed. */
void df_kept_open(const df_mem *mem, const df_log *log, const df_kept_options *o, df_compiler *c);

#endif
