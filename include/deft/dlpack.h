/* SPDX-License-Identifier: Apache-2.0
 *
 * DLPack: arrays of other libraries in this process, without a copy (docs/data.md).
 *
 * DLPack is a struct that describes an array and says how to give it back. NumPy, PyTorch, JAX,
 * CuPy, TVM and others produce and consume it. Version 1 has a version number and flags; the older
 * struct has neither.
 *
 * This header does not include dlpack.h. The functions name the structs of the standard, so
 * that programs with dlpack.h pass its pointers, in either order of the includes. The types
 * deft_dlpack_... have the same layout, for programs without dlpack.h.
 */
#ifndef DEFT_DLPACK_H
#define DEFT_DLPACK_H

#include "deft/eval.h"

#if defined(__GNUC__)
#define DEFT_DLPACK_ALIAS __attribute__((may_alias))
#else
#define DEFT_DLPACK_ALIAS
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** DLManagedTensorVersioned and DLManagedTensor of the standard. */
struct DLManagedTensorVersioned;
struct DLManagedTensor;

/** DLTensor of the standard: the array itself. */
typedef struct DEFT_DLPACK_ALIAS deft_dlpack_tensor {
    void *data;           /**< An address on the device. */
    int32_t device_type;  /**< 1: the host. 2: CUDA. 3: memory of the host that CUDA has pinned. */
    int32_t device_id;    /**< The number of the GPU. */
    int32_t ndim;         /**< The number of axes. */
    uint8_t code;         /**< The kind of dtype: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool. */
    uint8_t bits;         /**< Bits of one lane. */
    uint16_t lanes;       /**< Lanes of an element; deft takes 1. */
    int64_t *shape;       /**< ndim extents. */
    int64_t *strides;     /**< ndim strides in elements. NULL: row-major. */
    uint64_t byte_offset; /**< From data to the first element. */
} deft_dlpack_tensor;

/** DLManagedTensorVersioned of the standard. */
typedef struct DEFT_DLPACK_ALIAS deft_dlpack_versioned {
    uint32_t major;    /**< 1. Of another version, only deleter may be used. */
    uint32_t minor;    /**< Any. */
    void *manager_ctx; /**< For the producer alone. */
    /** Gives the array back, with the struct itself. NULL: nothing is to be done. */
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;            /**< Bit 0: read only. Bit 1: a copy was made for the consumer. */
    deft_dlpack_tensor tensor; /**< The array. */
} deft_dlpack_versioned;

/** DLManagedTensor of the standard, for consumers and producers of version 0. */
typedef struct DEFT_DLPACK_ALIAS deft_dlpack_old {
    deft_dlpack_tensor tensor;                     /**< The array. */
    void *manager_ctx;                             /**< For the producer alone. */
    void (*deleter)(struct DLManagedTensor *self); /**< As in deft_dlpack_versioned. */
} deft_dlpack_old;

/** How an array changes hands. 0 shares memory where that is possible, and copies otherwise. */
typedef enum deft_dlpack_flag {
    DEFT_DLPACK_COPY = 1,    /**< Always copy. A copy that is exported may be written. */
    DEFT_DLPACK_NO_COPY = 2, /**< Never copy: DEFT_E_ARG where memory cannot be shared. */
    /** Of an import: assignments write the producer's memory (deft_wrap_mut). Read-only memory
     * gives DEFT_E_ARG. */
    DEFT_DLPACK_WRITE = 4
} deft_dlpack_flag;

/** Computes t and exports its value. An acting call, with the rules of eval.h.
 *
 * *out is the caller's, who calls (*out)->deleter(*out) once, or passes the struct to a consumer
 * that does. Any thread may do so, also after the context and the runtime were destroyed: the
 * memory lives until then. The struct has version 1.1. On failure *out is NULL.
 *
 * Shared memory is flagged as read only, because handles of deft go on reading it. Assignments
 * to t and replays never change what the consumer sees. A copy is made of memory of deft_wrap
 * without a release function, whose end deft does not know, and of memory that assignments write.
 *
 * A value on a GPU is exported there. The call waits for the queue of the context, so that the
 * consumer may use any stream.
 *
 * DEFT_E_ARG: t or out is NULL, unknown flags, or DEFT_DLPACK_NO_COPY for memory that must be
 * copied. */
DEFT_API DEFT_MUST_CHECK deft_status deft_to_dlpack(deft_tensor *t, uint32_t flags,
                                                    struct DLManagedTensorVersioned **out);

/** The same for consumers of version 0. That struct cannot say that memory is read only: a
 * consumer that writes needs DEFT_DLPACK_COPY. */
DEFT_API DEFT_MUST_CHECK deft_status deft_to_dlpack_old(deft_tensor *t, uint32_t flags,
                                                        struct DLManagedTensor **out);

/** Makes a tensor of an array of another library, without a copy unless flags ask for one. A
 * recording call, with the rules of tensor.h.
 *
 * A call that succeeds takes *m: deft calls its deleter once, when nothing uses the memory any
 * more, on any thread. With DEFT_DLPACK_COPY that is before the call returns. A call that returns
 * NULL takes nothing: *m stays the caller's. A struct that was taken must not be used again. While
 * it exists, another import of it is refused, and its deleter does nothing when it is called.
 *
 * The producer must not write the memory while deft reads it, as with deft_wrap. Elements may have
 * any strides, negative ones too, any offset, and on the host any alignment. Memory of a GPU must
 * be aligned to the size of an element, and must be ready for work in deft_stream of cx.
 *
 * Mistakes: DEFT_E_FORMAT for a major version other than 1. DEFT_E_STATE for a struct that was
 * taken. DEFT_E_BACKEND for a device that cannot be used. DEFT_E_DTYPE for a dtype that deft does
 * not have, and for more than one lane. DEFT_E_SHAPE for more than DEFT_MAX_RANK axes, a negative
 * extent or a shape that overflows. DEFT_E_RANGE for strides or an offset that overflow.
 * DEFT_E_ARG for NULL, for missing data or shape, for unknown flags, and for DEFT_DLPACK_WRITE of
 * memory that is read only or whose elements overlap. */
DEFT_API deft_tensor *deft_from_dlpack(deft_ctx *cx, struct DLManagedTensorVersioned *m,
                                       uint32_t flags);

/** The same for structs of version 0, which cannot be read only. */
DEFT_API deft_tensor *deft_from_dlpack_old(deft_ctx *cx, struct DLManagedTensor *m, uint32_t flags);

#ifdef __cplusplus
}
#endif
#endif
