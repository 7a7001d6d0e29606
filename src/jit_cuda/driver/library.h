/* SPDX-License-Identifier: Apache-2.0
 *
 * NVIDIA's libraries, opened at run time. They are never closed: the library does not own
 * their threads and their memory, so it must not end them.
 */
#ifndef DF_JIT_CUDA_LIBRARY_H
#define DF_JIT_CUDA_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* Opens a library. path is a file, or a folder that holds one of the n names. With path
 * NULL the names are searched as the dynamic loader searches them. Returns NULL when there
 * is none. */
void *df_library_open(const char *path, const char *const *names, size_t n);
/* Looks up a symbol. fn points to a pointer to a function, which receives the symbol's
 * address. Returns false, and stores NULL, when the library does not have the symbol. */
bool df_library_find(void *library, const char *symbol, void *fn);

#endif
