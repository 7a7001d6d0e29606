/* SPDX-License-Identifier: Apache-2.0
 *
 * What a file of tensors has, in one form for all formats, and how its elements are read.
 */
#ifndef DF_LAZY_LISTING_H
#define DF_LAZY_LISTING_H

#include "lazy/files/reader.h"
#include "lazy/files/zip.h"
#include "ops/shape.h"

/* A tensor of a file. */
typedef struct df_listed {
    char *name;       /* NUL-terminated, owned */
    size_t name_size; /* with the NUL */
    int32_t dtype;    /* a deft_dtype, or -1 */
    char dtype_name[16];
    uint32_t rank; /* may exceed DEFT_MAX_RANK; then extents are missing */
    int64_t dim[DEFT_MAX_RANK];
    uint64_t bytes; /* of all elements */
    bool is_fortran, is_swapped;
    uint64_t at;     /* offset of the elements: in the file, or in the content of the member */
    uint32_t member; /* index of its member in the archive, which is deflated or has a checksum */
    bool is_member, is_deflated;
} df_listed;

typedef struct df_listing {
    const df_mem *mem;
    df_zip zip; /* of npz */
    DF_VEC(df_listed) at;
} df_listing;

/* Reads what the file has. Its first bytes decide the format. The caller ends *out with
 * df_listing_finish, after a failure too. */
deft_status df_listing_read(const df_reader *r, const df_mem *mem, df_listing *out);
void df_listing_finish(df_listing *l); /* *l may be all zero */
/* Reads all l->bytes of a tensor into dst, in the byte order of the machine. */
deft_status df_listing_load(const df_reader *r, const df_listing *list, const df_listed *l,
                            void *dst);
/* Sets *at to the offset in the file of elements that are neither deflated nor swapped. */
deft_status df_listing_find(const df_reader *r, const df_listing *list, const df_listed *l,
                            uint64_t *at);

#endif
