/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects: the machine code of one kernel in one block of bytes, which can be kept in a file and be
 * loaded without a compiler or a linker.
 *
 * A code generator writes relocatable ELF objects. df_object_make links what one kernel needs of
 * such an object: its functions, and the constants that they read. Afterwards everything inside the
 * object is addressed relative to the code itself. Only the functions that it calls are missing.
 * These are named by their place in callees.def, and the loader writes their addresses:
 *
 *   df_object | calls[n_calls] | ... body: functions, constants, stubs, slots
 *
 * A call of a function outside goes to a stub of the body, which jumps to the address in the
 * function's slot. The body is aligned to DF_OBJECT_ALIGN in the block. In memory it begins on a
 * page.
 *
 * The loader trusts the code of an object. A block that was not made in this process must come from
 * a place that only trusted users can write.
 */
#ifndef DF_RUNTIME_CODE_OBJECT_H
#define DF_RUNTIME_CODE_OBJECT_H

#include "base/diag.h"
#include "base/mem.h"
#include "runtime/device.h"

enum { DF_OBJECT_ALIGN = 64 };
#define DF_OBJECT_MAX ((size_t)64 << 20) /* most bytes of an object */

/* The place of a function in the body. size 0: the kernel has no such function. */
typedef struct df_object_piece {
    uint32_t at, size;
} df_object_piece;

/* A function outside: its place in callees.def, and where its slot of 8 bytes is in the body. */
typedef struct df_object_call {
    uint32_t callee, slot;
} df_object_call;

typedef struct df_object {
    uint32_t size;      /* bytes of the block */
    uint32_t body;      /* where the body begins in the block */
    uint32_t body_size; /* up to the end of the block */
    uint32_t n_calls;
    uint32_t slot_reads; /* how often code reads a slot itself, without its stub */
    df_object_piece piece[DF_CODE_PIECES]; /* main, part, fin and body, as in df_code */
    df_object_call calls[];
} df_object;

/* Whether objects can be made and loaded on this kind of machine. */
bool df_object_is_offered(void);

/* Links one kernel of the ELF object in n bytes at `elf`. Any bytes are safe. names has the symbols
 * of its pieces, and NULL for those that it lacks. *out is allocated with mem, and the caller frees
 * its `size` bytes.
 *
 * Fails with DEFT_E_COMPILE when the bytes are no such object, or need what objects do not have:
 * writable data, or a function that is not in callees.def. */
deft_status df_object_make(df_diag *d, const df_mem *mem, const void *elf, size_t n,
                           const char *const names[DF_CODE_PIECES], df_object **out);

/* Whether the n bytes at `block`, which must be aligned to 8 bytes, are an object whose numbers fit
 * together. */
bool df_object_is_sound(const void *block, size_t n);

/* Memory with the code of one object. No page of it is writable and executable at once. */
typedef struct df_loaded {
    char *at;
    size_t size;
} df_loaded;

/* Maps the code of o, which must be sound, and fills in main, part, fin, body, size and bytes of
 * *code. The object is not needed afterwards. Fails with DEFT_E_MEMORY, or with DEFT_E_BACKEND
 * when the system does not permit new code. */
deft_status df_object_load(df_diag *d, const df_object *o, df_loaded *out, df_code *code);
/* Frees the code. No thread may be running it. */
void df_object_unload(df_loaded *l);

#endif
