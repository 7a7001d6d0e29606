/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of arrays that others wrote: safetensors, and npy and npz of NumPy. Here a file says what
 * it has. deft_save and deft_load (eval.h) are for checkpoints whose tensors the program knows.
 *
 *   deft_file *f = NULL;
 *   if (deft_file_open(cx, "weights.npz", &f) == DEFT_OK) {
 *       deft_tensor *w = deft_file_load(f, "w");
 *       ...
 *       deft_file_close(&f);
 *   }
 *
 * A file is read with its sizes checked before memory is allocated. Nothing in it is trusted.
 * docs/data.md says what is read of each format, and what happens when a file changes meanwhile.
 */
#ifndef DEFT_FILES_H
#define DEFT_FILES_H

#include "deft/eval.h"

#ifdef __cplusplus
extern "C" {
#endif

/** An open file. It belongs to the thread of its context. */
typedef struct deft_file deft_file;

/** A tensor in a file. Its texts live as long as the deft_file. */
typedef struct deft_file_entry {
    const char *name;       /**< UTF-8 in safetensors; "" in a npy file; in npz without ".npy". */
    deft_dtype dtype;       /**< DEFT_N_DTYPES: deft has no such dtype. */
    const char *dtype_name; /**< The dtype as the file has it, such as "F32" or "<f4". */
    /** The extents. A rank above DEFT_MAX_RANK means that there are more axes than deft has. */
    deft_shape shape;
    uint64_t bytes;   /**< Of the elements, once they are loaded. */
    bool is_mappable; /**< Whether deft_file_map can show it. */
} deft_file_entry;

/** Opens a file and reads the names, dtypes and shapes of its tensors. Its first bytes decide which
 * format it has. An acting call (eval.h). The caller owns *out; on failure it is NULL.
 *
 * DEFT_E_NOT_FOUND: there is no such file. DEFT_E_FORMAT: the file is damaged, or of no known
 * format. DEFT_E_BACKEND: it has deflated members, and there is no zlib. DEFT_E_ARG: an argument
 * is NULL, or path is empty. DEFT_E_IO and DEFT_E_MEMORY are possible. */
DEFT_API DEFT_MUST_CHECK deft_status deft_file_open(deft_ctx *cx, const char *path,
                                                    deft_file **out);

/** Closes the file and sets *f to NULL. Tensors of it remain. NULL and *f NULL are allowed. It
 * comes before deft_ctx_destroy. */
DEFT_API void deft_file_close(deft_file **f);

/** The number of tensors in the file; 0 for NULL. */
DEFT_API size_t deft_file_count(const deft_file *f);

/** Describes tensor i in *out; size is sizeof(deft_file_entry). Returns false when there is no such
 * tensor, or an argument is NULL. */
DEFT_API bool deft_file_entry_read(const deft_file *f, size_t i, deft_file_entry *out, size_t size);

/** Reads the tensor with that name; name NULL means the only one. The innermost open scope owns
 * it. Elements of another byte order are swapped, and arrays in the order of Fortran are permuted
 * views. The checksum of a member of an archive is compared.
 *
 * NULL means a mistake (context.h). DEFT_E_NOT_FOUND: no tensor, or more than one, is meant.
 * DEFT_E_DTYPE: deft does not have its dtype. DEFT_E_SHAPE: it has too many axes. DEFT_E_FORMAT:
 * the file is damaged, or became shorter. DEFT_E_STATE: the call is inside the function of a
 * loop, a branch or deft_vmap. DEFT_E_MEMORY and DEFT_E_IO are possible. */
DEFT_API deft_tensor *deft_file_load(deft_file *f, const char *name);

/** Like deft_file_load, without reading: the elements stay in the file, and the system reads what
 * is used. So a tensor may be larger than memory. Its memory is read only, and is unmapped when
 * nothing uses it any more.
 *
 * The file must not change meanwhile. When it becomes shorter, an access behind its end raises
 * SIGBUS in the program, as with every mapping; deft_file_load gives a status instead. The
 * checksum of a member is not compared.
 *
 * DEFT_E_ARG: the elements are deflated or of another byte order, so that they must be loaded. */
DEFT_API deft_tensor *deft_file_map(deft_file *f, const char *name);

/** Computes t and writes it to a npy file, in row-major order and version 1.0. An acting call. The
 * old file stays as it is when the call fails, as with deft_save.
 *
 * DEFT_E_DTYPE: npy has no bf16. DEFT_E_ARG: no path. DEFT_E_IO: the system failed. */
DEFT_API DEFT_MUST_CHECK deft_status deft_save_npy(deft_tensor *t, const char *path);

/** Computes the n tensors and writes them to a npz file, an archive of npy files that are stored
 * and not compressed. Rules and failures are those of deft_save and deft_save_npy. */
DEFT_API DEFT_MUST_CHECK deft_status deft_save_npz(deft_ctx *cx, const char *path,
                                                   const deft_named *list, size_t n);

#ifdef __cplusplus
}
#endif
#endif
