/* SPDX-License-Identifier: Apache-2.0
 *
 * Where no store is known to go round the caches, libc knows best.
 */
#include "ref_copy.h"

#include <string.h>

void ref_copy_stream(void *to, const void *from, size_t size)
{
    memcpy(to, from, size);
}
