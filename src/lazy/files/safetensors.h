/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of a safetensors file: pure functions on bytes, no file is touched here.
 *
 *   | u64 LE: n | n bytes of JSON, padded with spaces | data section |
 *
 * {"name": {"dtype": "F32", "shape": [2,3], "data_offsets": [0,24]}, ..., "__metadata__": {"k":
 * "v"}} Offsets count from the data section, which the tensors cover exactly.
 */
#ifndef DF_LAZY_SAFETENSORS_H
#define DF_LAZY_SAFETENSORS_H

#include "base/diag.h"
#include "base/str.h"
#include "deft/dtype.h"

/* Header bytes a file may have, as in the reference implementation. */
#define DF_SAFETENSORS_MAX_HEADER ((uint64_t)100000000)
#define DF_SAFETENSORS_PREFIX 8u
#define DF_SAFETENSORS_OTHER (-1)

typedef struct df_safetensors_entry {
    const char *name; /* UTF-8, not terminated when parsed */
    uint32_t name_size;
    int32_t dtype;       /* a deft_dtype, or DF_SAFETENSORS_OTHER */
    char dtype_text[16]; /* as the file has it, cut, printable */
    uint32_t rank;       /* may exceed DEFT_MAX_RANK: then only the first extents are kept */
    int64_t dim[DEFT_MAX_RANK];
    uint64_t begin, end; /* within the data section */
} df_safetensors_entry;

/* Sorted by name. Names point into the header that was parsed. */
typedef struct df_safetensors_table {
    df_safetensors_entry *at;
    size_t n, cap;
    const df_mem *mem;
} df_safetensors_table;

/* Reads header[0, n), which is overwritten (names are decoded in place) and must outlive the table.
 * data_bytes: the size of the data section. file: for sentences. On failure *out is empty and the
 * status is DEFT_E_FORMAT or DEFT_E_MEMORY. */
deft_status df_safetensors_parse(df_diag *d, const df_mem *mem, const char *file, char *header,
                                 size_t n, uint64_t data_bytes, df_safetensors_table *out);
void df_safetensors_finish(df_safetensors_table *t); /* all zero is fine */

/* NULL when there is no such name. */
const df_safetensors_entry *df_safetensors_find(const df_safetensors_table *t, const char *name);

/* Appends prefix and header to out. begin and end of list must be set. DEFT_E_ARG for names that
 * are empty, no UTF-8, "__metadata__" or not distinct; DEFT_E_LIMIT for a header too long to be
 * read back. */
deft_status df_safetensors_write(df_diag *d, const df_mem *mem, const df_safetensors_entry *list,
                                 size_t n, df_str *out);

/* name for a sentence: cut, and without control characters. */
const char *df_safetensors_show(const char *name, size_t n, char *buf, size_t room);
#define DF_SAFETENSORS_SHOW 72

#endif
