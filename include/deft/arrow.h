/* SPDX-License-Identifier: Apache-2.0
 *
 * The Arrow C data interface: columns of other libraries in this process (docs/data.md).
 *
 * Primitive arrays are tensors of one axis. A list of fixed size is one more axis, so that a
 * tensor [n, 3, 4] is n lists of 3 lists of 4 numbers. The two structs are those of the standard,
 * which every header that uses them declares in this way.
 */
#ifndef DEFT_ARROW_H
#define DEFT_ARROW_H

#include "deft/eval.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef ARROW_C_DATA_INTERFACE
/** Whether the structs are declared, here or in another header. */
#define ARROW_C_DATA_INTERFACE

/** A flag of a schema: the order of the categories means something. */
#define ARROW_FLAG_DICTIONARY_ORDERED 1
/** A flag of a schema: elements may be null. */
#define ARROW_FLAG_NULLABLE 2
/** A flag of a schema: the keys of each map are sorted. */
#define ARROW_FLAG_MAP_KEYS_SORTED 4

/** The type of an array. */
struct ArrowSchema {
    const char *format;             /**< Such as "f" for f32, or "+w:3" for lists of 3. */
    const char *name;               /**< May be NULL. */
    const char *metadata;           /**< May be NULL. */
    int64_t flags;                  /**< ARROW_FLAG_... */
    int64_t n_children;             /**< The number of children. */
    struct ArrowSchema **children;  /**< Of a list: the type of its elements. */
    struct ArrowSchema *dictionary; /**< NULL: no dictionary. */
    /** Frees what the struct refers to, and sets release to NULL. NULL: it was released. */
    void (*release)(struct ArrowSchema *self);
    void *private_data; /**< For the producer alone. */
};

/** The elements of an array. */
struct ArrowArray {
    int64_t length;                /**< The number of elements. */
    int64_t null_count;            /**< How many of them are null; -1: not counted. */
    int64_t offset;                /**< The index of the first element in the buffers. */
    int64_t n_buffers;             /**< 2 for primitive arrays, 1 for lists. */
    int64_t n_children;            /**< The number of children. */
    const void **buffers;          /**< First the bits of what is not null, then the elements. */
    struct ArrowArray **children;  /**< Of a list: its elements. */
    struct ArrowArray *dictionary; /**< NULL: no dictionary. */
    /** Frees what the struct refers to, and sets release to NULL. NULL: it was released. */
    void (*release)(struct ArrowArray *self);
    void *private_data; /**< For the producer alone. */
};

#endif

/** Computes t and exports its value. An acting call, with the rules of eval.h.
 *
 * Both structs are the caller's, and are filled in. The caller, or the consumer to whom they are
 * passed, calls the release of each once, on any thread, also after the context was destroyed.
 * On failure their release is NULL. The memory is shared and must not be written. It is copied
 * when deft_to_dlpack would copy it, when it has gaps, when it is on a GPU, and for bools, which
 * Arrow stores as bits. A tensor without axes is exported as one element.
 *
 * DEFT_E_ARG: an argument is NULL. DEFT_E_DTYPE: Arrow has no bf16. */
DEFT_API DEFT_MUST_CHECK deft_status deft_to_arrow(deft_tensor *t, struct ArrowSchema *schema,
                                                   struct ArrowArray *array);

/** Makes a tensor of an array of another library, without a copy unless it has bools. A recording
 * call, with the rules of tensor.h.
 *
 * A call that succeeds takes both structs. Their release is then NULL, as if the caller had
 * released them. Any thread may release the array, when nothing in deft uses its memory any more.
 * A call that returns NULL takes nothing.
 *
 * is_valid may be NULL; then an array with nulls is refused. Otherwise *is_valid gets a bool
 * tensor of the same shape, which is false where the array has a null; the elements there have any
 * value. Without nulls *is_valid is NULL.
 *
 * Mistakes: DEFT_E_DTYPE for a format that is no number, bool or list of fixed size. DEFT_E_STATE
 * for a struct that was released. DEFT_E_SHAPE for more than DEFT_MAX_RANK axes or a shape that
 * overflows. DEFT_E_ARG for NULL, for nulls without is_valid or among lists, for a dictionary,
 * and for buffers and children that do not fit the format. */
DEFT_API deft_tensor *deft_from_arrow(deft_ctx *cx, struct ArrowSchema *schema,
                                      struct ArrowArray *array, deft_tensor **is_valid);

#ifdef __cplusplus
}
#endif
#endif
