/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of a npy file (numpy.lib.format). Pure functions on bytes.
 *
 *   | \x93NUMPY | major minor | n: u16, from version 2 u32 | n bytes of text | elements
 *
 * The text is a dict of Python with three keys:
 *
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 */
#ifndef DF_LAZY_NPY_H
#define DF_LAZY_NPY_H

#include "base/diag.h"
#include "base/str.h"
#include "ops/shape.h"

#define DF_NPY_PREFIX 12u                   /* bytes up to the text, at most */
#define DF_NPY_MAX_TEXT ((uint64_t)1 << 20) /* of numpy's own files the text has some 120 bytes */
#define DF_NPY_OTHER (-1)                   /* a dtype that deft does not have */

typedef struct df_npy {
    int32_t dtype;   /* a deft_dtype, or DF_NPY_OTHER */
    char descr[16];  /* the dtype in the file, shortened, printable */
    uint32_t size;   /* bytes of an element; 0 with DF_NPY_OTHER */
    bool is_fortran; /* the first axis is the innermost one in memory */
    bool is_swapped; /* elements have the other byte order than the machine */
    df_shape shape;
    uint64_t text_at, text_size; /* of the text, in bytes */
    uint64_t bytes;              /* of all elements; at most INT64_MAX */
} df_npy;

/* Reads the first n bytes of a file, at least DF_NPY_PREFIX unless the file is shorter. Sets
 * text_at and text_size. Nothing about the size of the file is checked. */
deft_status df_npy_prefix(df_diag *d, const char *file, const unsigned char *first, size_t n,
                          df_npy *out);
/* Parses the text, and sets the other members. */
deft_status df_npy_parse(df_diag *d, const char *file, const char *text, size_t n, df_npy *out);
/* Appends the header for an array of row-major elements to out. Its size is a multiple of 64. dtype
 * is one that npy has: df_npy_has. */
void df_npy_write(df_str *out, deft_dtype dtype, const df_shape *shape);
/* Whether npy has the dtype: all but bf16. */
bool df_npy_has(deft_dtype dtype);

#endif
