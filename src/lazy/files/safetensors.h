/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of a safetensors file. All functions but df_safetensors_read are pure functions on
 * bytes.
 *
 *   | u64 LE: n | n bytes of JSON, padded with spaces | data section |
 *
 * The JSON is one object:
 *
 *   {"name": {"dtype": "F32", "shape": [2,3], "data_offsets": [0,24]}, ...,
 *    "__metadata__": {"k": "v"}}
 *
 * Offsets are bytes from the start of the data section. The tensors cover the section
 * without gaps and without overlap.
 */
#ifndef DF_LAZY_SAFETENSORS_H
#define DF_LAZY_SAFETENSORS_H

#include "base/diag.h"
#include "base/str.h"
#include "deft/dtype.h"
#include "lazy/files/reader.h"

/* Maximum size of the JSON in bytes, as in the reference implementation. */
#define DF_SAFETENSORS_MAX_HEADER ((uint64_t)100000000)
#define DF_SAFETENSORS_PREFIX 8u  /* bytes of the length before the JSON */
#define DF_SAFETENSORS_OTHER (-1) /* a dtype that deft does not have */

/* One tensor of a file. */
typedef struct df_safetensors_entry {
    const char *name; /* UTF-8, without terminating zero when it was parsed */
    uint32_t name_size;
    int32_t dtype;       /* a deft_dtype, or DF_SAFETENSORS_OTHER */
    char dtype_text[16]; /* the dtype in the file, shortened, printable */
    uint32_t rank;       /* may exceed DEFT_MAX_RANK; then dim has only the first extents */
    int64_t dim[DEFT_MAX_RANK];
    uint64_t begin, end; /* byte offsets in the data section */
} df_safetensors_entry;

/* Entries sorted by name. Their names point into the header that was parsed. */
typedef struct df_safetensors_table {
    df_safetensors_entry *at;
    size_t n, cap;
    const df_mem *mem;
} df_safetensors_table;

/* Parses header[0, n), which is the JSON without the prefix. Names are decoded in place, so
 * the header is overwritten and must outlive the table. data_bytes: size of the data
 * section. file: the name for messages. Entries of __metadata__ are checked but not kept.
 * The caller compares n with DF_SAFETENSORS_MAX_HEADER, and ends *out with
 * df_safetensors_finish. On failure *out is empty, and the status is DEFT_E_FORMAT or
 * DEFT_E_MEMORY. */
deft_status df_safetensors_parse(df_diag *d, const df_mem *mem, const char *file, char *header,
                                 size_t n, uint64_t data_bytes, df_safetensors_table *out);
void df_safetensors_finish(df_safetensors_table *t); /* frees the table; t may be all zero */

/* The header of an open file. */
typedef struct df_safetensors_file {
    char *header; /* owned; the names in table point into it */
    size_t header_size;
    uint64_t data_at; /* offset of the data section in the file, in bytes */
    df_safetensors_table table;
} df_safetensors_file;

/* Reads and parses the header of a file, whose size is checked before memory is allocated. The
 * caller ends *out, which is zero at first, with df_safetensors_close, after a failure too. */
deft_status df_safetensors_read(const df_reader *r, const df_mem *mem, df_safetensors_file *out);
void df_safetensors_close(df_safetensors_file *f, const df_mem *mem);

/* The entry with that name; NULL when there is none. */
const df_safetensors_entry *df_safetensors_find(const df_safetensors_table *t, const char *name);

/* Appends prefix and header of n entries to out. All members of each entry but dtype_text
 * must be set. dtype must be a deft_dtype, and rank at most DEFT_MAX_RANK. begin and end are
 * not checked.
 *
 * Returns DEFT_E_ARG for names that are empty, not UTF-8, "__metadata__" or not distinct.
 * Returns DEFT_E_LIMIT for a header too long to be read back, and DEFT_E_MEMORY when memory
 * runs out. After a failure, out may contain a part of the header. */
deft_status df_safetensors_write(df_diag *d, const df_mem *mem, const df_safetensors_entry *list,
                                 size_t n, df_str *out);

/* Writes the name into buf for a message: shortened and without control characters.
 * Returns buf. `room` is the size of buf; DF_SAFETENSORS_SHOW suffices. */
const char *df_safetensors_show(const char *name, size_t n, char *buf, size_t room);
#define DF_SAFETENSORS_SHOW 72

#endif
