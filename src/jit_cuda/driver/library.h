/* SPDX-License-Identifier: Apache-2.0
 *
 * NVIDIA's libraries, opened at run time and never closed: their threads and their memory are not
 * ours to end.
 */
#ifndef DF_JIT_CUDA_LIBRARY_H
#define DF_JIT_CUDA_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* path: a file, or a folder that holds one of the names; NULL: the names, as the loader finds them.
 * NULL: there is none. */
void *df_library_open(const char *path, const char *const *names, size_t n);
/* fn: of a pointer to a function, which gets the symbol; false, and NULL: it is not there. */
bool df_library_find(void *library, const char *symbol, void *fn);

#endif
