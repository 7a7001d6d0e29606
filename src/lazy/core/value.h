/* SPDX-License-Identifier: Apache-2.0
 *
 * Values: tensors that are computed, or that wrap memory of the caller. A value is a counted
 * reference to a buffer, seen through a shape and strides. All functions need the thread of the
 * context.
 */
#ifndef DF_LAZY_VALUE_H
#define DF_LAZY_VALUE_H

#include "deft/deft.h"
#include "ops/shape.h"
#include "runtime/device.h"

enum {
    DF_VALUE_WRAPPED = 1, /* the memory is the caller's */
    DF_VALUE_MUT = 2,     /* WRAPPED, and assignments write the caller's memory */
    DF_VALUE_FUTURE = 4   /* a result of the submitted step that runs; it has no memory yet */
};

/* Handles, records, undo entries and mappings hold a value; refs counts them all. */
typedef struct df_value {
    df_buffer *buf;
    char *data; /* the first element */
    uint32_t refs;
    uint8_t dtype, rank, flags;
    uint32_t in_records; /* how many of refs are held by pending records */
    uint32_t input;      /* index of its input in the trace of the cut whose serial is `cut` */
    uint64_t cut;
    df_shape shape;
    int64_t stride[DEFT_MAX_RANK]; /* in elements */
    struct df_value *next;         /* in the context's list of free values */
} df_value;

/* A value with contiguous strides and no buffer, held once. NULL when memory runs out; the error
 * is not recorded. */
df_value *df_value_new(deft_ctx *cx, deft_dtype t, const df_shape *s);
/* Takes one more reference. Returns v. */
df_value *df_value_ref(df_value *v);
/* Drops one reference and sets *v to NULL. *v may be NULL. */
void df_value_drop(deft_ctx *cx, df_value **v);
bool df_value_contiguous(const df_value *v);
/* The bytes that the elements of v take without gaps. */
size_t df_value_size(const df_value *v);
/* Calls f for each innermost row of v, in row-major order, with the address of the row's first
 * element, the number of elements and their stride. The function reads no memory of v. */
void df_value_rows(const df_value *v,
                   void (*f)(void *user, char *at, int64_t n, int64_t stride_bytes), void *user);
/* Copies the elements of v, which must be on the host, to dst: contiguous, row-major, converted to
 * dtype. For values on a GPU see devices.h. */
void df_value_pack(const df_value *v, deft_dtype dtype, void *dst);
/* Copies contiguous row-major elements of v's dtype from src into v. */
void df_value_write(const df_value *v, const void *src);

#endif
