/* SPDX-License-Identifier: Apache-2.0
 *
 * Members of a zip archive, as npz files are: listed, read from front to back, and described for
 * writing (PKWARE's APPNOTE 6.3.10; members are stored or deflated, with 64-bit sizes).
 *
 * Sizes come from the central directory. They are checked against the size of the file, and a
 * deflated member against the greatest ratio that deflate can reach, before memory is allocated.
 */
#ifndef DF_LAZY_ZIP_H
#define DF_LAZY_ZIP_H

#include "base/str.h"
#include "base/vec.h"
#include "lazy/files/inflate.h"
#include "lazy/files/reader.h"

/* ---- reading ---- */

typedef struct df_zip_member {
    const char *name; /* not terminated; points into df_zip.directory */
    uint32_t name_size;
    uint16_t method; /* 0: stored, 8: deflated */
    bool is_encrypted;
    uint32_t crc;
    uint64_t packed, unpacked; /* sizes in the file, and of the content, in bytes */
    uint64_t local_at;         /* offset of the local header */
} df_zip_member;

typedef struct df_zip {
    const df_mem *mem;
    char *directory;
    uint64_t directory_at, directory_size; /* in the file, in bytes */
    DF_VEC(df_zip_member) members;
} df_zip;

/* Reads the central directory. The caller ends *out with df_zip_finish, after a failure too. */
deft_status df_zip_list(const df_reader *r, const df_mem *mem, df_zip *out);
void df_zip_finish(df_zip *z); /* *z may be all zero */
/* Sets *at to the offset of the member's bytes in the file. Returns DEFT_E_FORMAT when they are not
 * within the file, when they are encrypted, or when the sizes cannot be right. */
deft_status df_zip_find(const df_reader *r, const df_zip *z, const df_zip_member *m, uint64_t *at);

/* CRC-32 as zip has it, 8 bytes at a time (Kounavis and Berry, 2005). */
typedef struct df_crc {
    uint32_t table[8][256];
    uint32_t value; /* of all bytes so far */
} df_crc;
void df_crc_init(df_crc *c);
void df_crc_add(df_crc *c, const void *data, size_t n);

/* The content of a member, from front to back. */
typedef struct df_zip_stream {
    const df_reader *r;
    const df_mem *mem;
    uint64_t at, packed_left; /* what follows in the file */
    uint64_t left;            /* what follows of the content */
    uint32_t crc;             /* that the content must have */
    df_inflate *inflate;      /* NULL: stored */
    size_t in_at, in_n;       /* bytes of `in` that are not used yet */
    df_crc sum;
    unsigned char in[1 << 14];
} df_zip_stream;

/* Begins to read a member. The caller ends the stream with df_zip_close, after a failure too. A
 * stream is large: it belongs in allocated memory. */
deft_status df_zip_open(df_zip_stream *s, const df_reader *r, const df_mem *mem, const df_zip *z,
                        const df_zip_member *m);
/* Reads the next n bytes. When they are the last ones, the checksum is compared. */
deft_status df_zip_read(df_zip_stream *s, void *dst, size_t n);
void df_zip_close(df_zip_stream *s);

/* ---- writing ---- */

/* Append to out the local header of a stored member, which precedes its content, and its entry in
 * the central directory. All members of m are set but method and is_encrypted. */
void df_zip_put_local(df_str *out, const df_zip_member *m);
void df_zip_put_entry(df_str *out, const df_zip_member *m);
/* Appends the end of an archive of n members, whose directory has `size` bytes at offset `at`. */
void df_zip_put_end(df_str *out, uint64_t n, uint64_t at, uint64_t size);
/* Offset of the checksum from the start of a local header. */
#define DF_ZIP_CRC_AT 14u

#endif
