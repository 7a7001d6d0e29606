/* SPDX-License-Identifier: Apache-2.0
 *
 * How long is a GPU busy with the work of a program that is put into one stream? libbench-held.so
 * stands between the program and its driver: DEFT_CUDA_DRIVER names it, BENCH_CUDA_DRIVER the
 * driver behind it ("" or unset: libcuda.so.1). It has all that jit_cuda/driver/driver.h asks
 * for, which are the driver's own functions but for the two that wait.
 *
 * From held_begin on the stream is held back, by a word in pinned memory that it waits for
 * (cuStreamWaitValue32), so that the GPU never waits for the host. Where the program itself
 * waits, the stream is let go before and held back again after: what was put in between two waits
 * is a *segment*, and its time on the GPU that between two events around it. held_end lets go for
 * good.
 *
 *   the host   hold | put in ........ | let go, wait, hold | put in ... | let go, wait
 *   the GPU                            | first segment |                | second segment |
 *
 * A thread lets go of what is held for longer than a limit: a program that waits in some other
 * way, or puts in more than the driver's queue takes (about 1024 launches), is told of, and goes
 * on.
 */
#ifndef BENCH_HELD_H
#define BENCH_HELD_H

/* Names the library has them by: held_begin, held_end. */
typedef struct held {
    double gpu_s;  /* of all segments */
    double wait_s; /* that the host was within calls that wait */
    unsigned n_segments;
} held;

/* NULL, or why the stream of GPU `ordinal` (its primary context) cannot be held back. One at a
 * time; everything by one thread. */
typedef const char *held_begin_fn(void *stream, int ordinal, double limit_s);
/* Waits. NULL, or why *out says nothing. */
typedef const char *held_end_fn(held *out);

#endif
