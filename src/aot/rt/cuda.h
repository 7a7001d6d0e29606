/* SPDX-License-Identifier: Apache-2.0
 *
 * What headers of exported GPU programs contain.
 */
#ifndef DEFT_CUDA_EXPORTED
#define DEFT_CUDA_EXPORTED

#include <stdint.h>

/* What the functions return. */
enum {
    DEFT_CUDA_OK = 0,
    DEFT_CUDA_INDEX = 1,        /* an index was out of range; outputs have no values */
    DEFT_CUDA_ARCHITECTURE = 2, /* no code for the GPU of the current context */
    DEFT_CUDA_ARGUMENT = 3,     /* an address is 0, or no multiple of 16 */
    DEFT_CUDA_VERSION = 4,      /* the header is not the one that was written with the C file */
    DEFT_CUDA_DRIVER = 5        /* a call of the driver failed: see deft_cuda_state */
};

/* A loaded program. */
typedef struct deft_cuda_state {
    int error;        /* after DEFT_CUDA_DRIVER: the CUresult */
    const char *call; /* and the name of the call that returned it */
    int architecture; /* of the code in use: 90 is that for compute capability 9.0 */
    uint64_t data;    /* address of the constants in device memory; 0: there are none */
} deft_cuda_state;

#endif
