/* SPDX-License-Identifier: Apache-2.0
 *
 * GPUs for tests of the front door, without CUDA: a plug-in deft-cuda.so, found in the real one's
 * place when DEFT_PLUGIN_DIR is its folder. Each GPU computes by the interpreter in memory of the
 * host, whose addresses it gives out changed: the host can't look at them, another GPU neither. All
 * that is put into a queue (copies, and the results of a run) happens when something waits for it,
 * and not before. An address that is not where it should be ends the program.
 *
 * The test reaches the controls with dlsym; all fields are set while nothing runs.
 */
#ifndef TEST_FAR_H
#define TEST_FAR_H

#include "deft/deft.h"

typedef struct far_controls {
    int n_gpus; /* 2 at first; 0: none */

    /* Calls so far, the one to fail and how. Buffers: out of memory. Waits: of wait and get. */
    uint32_t n_calls, fail_call; /* of all calls that can fail, buffers and waits too */
    uint32_t n_buffers, fail_buffer;
    uint32_t n_waits, fail_wait;
    deft_status status; /* of fail_call; 0: DEFT_E_BACKEND */

    uint32_t n_puts, n_gets, n_copies, n_peers, n_runs, n_works; /* done or begun */
    uint64_t put_bytes, get_bytes;
    uint32_t n_trims, n_settles;
    bool waits;   /* of the latest wish */
    void *theirs; /* the stream of the latest queue that was created */

    /* Memory of a GPU for the test to wrap, as the GPU has it; and as the host has it. */
    void *(*alloc)(int ordinal, size_t bytes);
    void (*release)(void *at);
    void *(*host_of)(const void *at);
} far_controls;

#define FAR_CONTROLS "test_far_controls"
typedef far_controls *(*far_controls_fn)(void);

#endif
