/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies that go round the caches on their way to memory, and reads of memory without more work.
 */
#ifndef REF_COPY_H
#define REF_COPY_H

#include <stddef.h>

/* size: a multiple of 64; both 64-byte aligned. */
void ref_copy_stream(void *to, const void *from, size_t size);

/* Loads every byte. size and alignment as above. */
void ref_read_all(const void *from, size_t size);

#endif
