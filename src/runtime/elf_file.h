/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that the file of a shared library is complete, before the dynamic loader maps it.
 */
#ifndef DF_RUNTIME_ELF_FILE_H
#define DF_RUNTIME_ELF_FILE_H

#include <stddef.h>

#include "base/compiler.h"

/* Returns true when the file at path is a complete shared library for this machine. All that the
 * loader reads must be inside the file and inside the range that it maps.
 *
 * Otherwise writes a sentence with the path to why, at most size bytes, and returns false. When
 * the file does not exist, the sentence contains "No such file". */
bool df_elf_file_check(const char *path, char *why, size_t size);

#endif
