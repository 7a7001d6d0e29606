/* SPDX-License-Identifier: Apache-2.0
 *
 * What libnvrtc-standin gives as a cubin and libcuda-standin loads: the path of a shared library
 * made of CUDA text, shim.h and a table of its kernels.
 */
#ifndef TEST_CUDA_STANDIN_IMAGE_H
#define TEST_CUDA_STANDIN_IMAGE_H

#include <stdint.h>

#define IMAGE_MAGIC "standin"

typedef struct image {
    char magic[8];
    int32_t arch;
    int32_t is_ptx; /* for arch and above */
    char path[1012];
} image;

/* standin_entries of the library, up to one without a name. */
typedef struct image_entry {
    const char *name;
    void (*call)(const void *params); /* void *const[n] */
    const unsigned *sizes;            /* of the n parameters */
    unsigned n;
    unsigned threads; /* __launch_bounds__, or 0 */
} image_entry;

#endif
