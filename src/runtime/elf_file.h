/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a shared library's file is whole, before the loader of libraries maps it.
 */
#ifndef DF_RUNTIME_ELF_FILE_H
#define DF_RUNTIME_ELF_FILE_H

#include <stddef.h>

#include "base/compiler.h"

/* Whether the file at path is a shared library for this machine of which nothing that the loader
 * reads lies outside the file or outside what it maps. false: why has a sentence with the path;
 * "No such file" stands in it when there is none. */
bool df_elf_file_check(const char *path, char *why, size_t size);

#endif
