/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that the file of a shared library is complete, before the dynamic loader maps it.
 */
#ifndef DF_RUNTIME_ELF_FILE_H
#define DF_RUNTIME_ELF_FILE_H

#include <stddef.h>

#include "base/compiler.h"

/* Returns true when the file at path is a complete shared library for this machine, and leaves why
 * as it is. All that the loader reads must be inside the file and inside the range that it maps.
 *
 * Otherwise returns false, and writes a sentence with the path to why. The sentence is truncated to
 * size bytes, which include its terminator. When the file does not exist, the sentence ends with
 * strerror(ENOENT), which contains "No such file" in the C locale. */
bool df_elf_file_check(const char *path, char *why, size_t size);

#endif
