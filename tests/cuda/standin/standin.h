/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-ins for NVIDIA's libraries, so that what drives a GPU is tested where there is none:
 *
 *   libcuda-standin.so       the driver; DEFT_CUDA_DRIVER names it
 *   libnvrtc-standin.so      CUDA C for the CPU by shim.h and the C++ compiler; DEFT_NVRTC
 *   libcublasLt-standin.so   matrix products by three loops; DEFT_CUBLASLT
 *
 * Device memory is host memory at addresses that fault, but while the stand-in itself works there.
 * It ends at an inaccessible page. It holds 0xA5 at first; so does pinned memory. What is freed is
 * unmapped.
 *
 * Work that is put into a stream is done late: when a wait needs it, when a query asks (at least
 * one piece of work each time), and by chance in any call (standin_when). So host memory that is
 * read without waiting has its old bytes. Copies from pageable memory take the bytes at the call,
 * copies from pinned memory do not; copies to pageable memory wait. A kernel or copy that touches
 * what is not there fails late: every call that needs a context then gives 700, until a reset.
 *
 * *Misuse* is what a driver may answer with an error, or with wrong bytes: calls without a context,
 * handles of another context or already destroyed, copies out of bounds, memory freed while queued
 * work may use it, and so on. It is counted, told in the record, and mostly an error of the call.
 *
 * Faked handles and ordinals count from 1 for each kind since the last reset, in the order in which
 * they were made: streams s1, events e1, memory m1, pinned h1, modules M1, graphs g1, execs x1,
 * conditions c1.
 *
 * The environment, for whole programs, read when the library is loaded:
 *
 *   DEFT_STANDIN_GPUS=2      how many GPUs
 *   DEFT_STANDIN_BYTES=N     memory of each
 *   DEFT_STANDIN_NO_VA=1     without virtual memory
 *   DEFT_STANDIN_SEED=N      of chance
 *   DEFT_STANDIN_STRICT=1    misuse goes to stderr, and makes the process's exit status 99
 *   DEFT_STANDIN_CACHE=PATH  where libnvrtc-standin keeps what it compiled
 *
 * Any thread may call anything; one call runs at a time.
 */
#ifndef TEST_CUDA_STANDIN_H
#define TEST_CUDA_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STANDIN_MOST_GPUS = 8 };

typedef enum standin_mode {
    STANDIN_RANDOM, /* late, and by chance in between; the default */
    STANDIN_LATE,   /* only when a wait or a query needs it */
    STANDIN_EAGER   /* in the call that puts it in */
} standin_mode;

typedef struct standin_gpu {
    int major, minor; /* compute capability; 9.0 */
    uint64_t bytes;   /* 1 GiB */
    int n_sms;        /* 4 */
    bool no_peers;    /* cannot reach the other GPUs' memory */
    bool no_va;       /* no virtual memory */
} standin_gpu;

typedef struct standin_alive {
    int contexts, memory, pinned, streams, events, modules, graphs, execs;
    int reserved, handles, mapped; /* virtual memory */
    uint64_t bytes;                /* of device memory, handles' too */
} standin_alive;

/* X(name, result, parameters) */
/* clang-format off */
#define STANDIN_CALLS(X)                                                                           \
    /* Everything as after loading; what is alive is gone. No other thread may be in a call. */    \
    X(reset, void, (void))                                                                         \
    /* Before cuInit. gpu: n of them, or NULL for the usual. n 0: cuInit fails with 100. */        \
    X(set_gpus, void, (int n, const standin_gpu *gpu))                                             \
    X(set_version, void, (int version)) /* 12040 */                                                \
    X(when, void, (standin_mode mode, uint32_t seed))                                              \
    /* The n-th call of symbol from now, n from 1, gives code and does nothing. symbol NULL: of    \
     * any, but those that give back (pop, release, destroy, free, unload) and the error names.    \
     * Up to 16 wait at once. */                                                                   \
    X(fail, void, (const char *symbol, long n, int code))                                          \
    X(fail_always, void, (const char *symbol, int code)) /* 0: no more */                          \
    /* The n-th piece of work that is done from now fails, late, with code. */                     \
    X(fail_work, void, (long n, int code))                                                         \
    X(fails_waiting, int, (void)) /* of standin_fail, that have not come yet */                    \
    /* Since the reset. symbol NULL: of all. */                                                    \
    X(count, long, (const char *symbol))                                                           \
    X(n_work, long, (void)) /* pieces of work done */                                              \
    /* One line for each call; with work, one for each piece when it is done, "  " before it. At   \
     * most 1 MiB is kept. */                                                                      \
    X(record, void, (bool on, bool work))                                                          \
    X(recorded, const char *, (void)) /* until the next call */                                    \
    X(clear_record, void, (void))                                                                  \
    X(leaks, void, (standin_alive * out))                                                          \
    X(n_misuse, long, (void))                                                                      \
    X(misuse, const char *, (void)) /* the first since the reset, or "" */                         \
    X(forgive, void, (void))        /* forgets misuse */                                           \
    /* The host's address of n bytes of device memory at p, for tests to look or write; what is    \
     * queued is not done first. NULL: not there. standin_unpeek ends it. */                       \
    X(peek, void *, (uint64_t p, size_t n))                                                        \
    X(unpeek, void, (void))                                                                        \
    X(is_device, bool, (uint64_t p)) /* in live device memory */                                   \
    /* For other stand-ins. Queues fn(args' copy) on stream (a CUstream); what it may touch is all \
     * memory of the stream's GPU. fn gives 0 or a result code. */                                 \
    X(enqueue, int,                                                                                \
      (void *stream, int (*fn)(void *args), const void *args, size_t bytes, const char *what))
/* clang-format on */

/* Calls of the driver that deft does not make, but what measures it and what it exports do. */
#define STANDIN_MORE(X)                                                                            \
    X(wait_value, cuStreamWaitValue32_v2, (df_cu_stream, df_cu_ptr, uint32_t, unsigned))           \
    X(ctx_device, cuCtxGetDevice, (df_cu_device *))                                                \
    X(copy_in_now, cuMemcpyHtoD_v2, (df_cu_ptr, const void *, size_t))

/* In the library the functions are standin_reset and so on. */
typedef struct standin {
    void *library;
#define STANDIN_FIELD(name, result, parameters) result(*name) parameters;
    STANDIN_CALLS(STANDIN_FIELD)
#undef STANDIN_FIELD
} standin;

/* Opens libcuda-standin.so at path and finds its functions. False: said on stdout. The library
 * stays loaded: a driver opened by the same path is this one. */
bool standin_open(standin *s, const char *path);

#endif
