/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA C on the CPU: what generated kernels use of CUDA, for a C++ compiler. A file of kernels is
 * this header, the prelude, the kernels and a table of them (shim_entries); it becomes a shared
 * library that a test opens.
 *
 * Threads of a block are fibres, each on a stack of its own, run in turn until they wait: at a
 * barrier for the block's other threads, at a shuffle or __syncwarp for their warp's. When all wait
 * and none can go on, a barrier was not reached by all of them: the launch fails. Each block takes
 * its threads in another order, so that what a barrier is missing for goes wrong in some. Shared
 * memory is static, because blocks run one after the other, and holds what the block before left.
 *
 * Numbers are those of the CPU: rounding to nearest, denormals kept; the file is compiled without
 * contraction.
 *
 * Why this file is long: a file of kernels includes this and nothing else.
 */
#ifndef TEST_CUDA_SHIM_H
#define TEST_CUDA_SHIM_H

/* libstdc++ reads all of <cmath> for <math.h>, which takes longer than what follows it. A kernel
 * calls C's functions by their C names, so that C's header is enough. */
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define DF_SHIM 1
#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)

enum { SHIM_THREADS = 512, SHIM_STACK = 64 << 10, SHIM_SHARED = 48 << 10, SHIM_PAGE = 4096 };

struct shim_dim {
    unsigned x;
};
static shim_dim threadIdx, blockIdx, blockDim, gridDim;
/* What the launch asks for. It ends at an inaccessible page. */
static unsigned char *held_rows;

/* ---- fibres ---- */

struct shim_fibre {
    void *sp;           /* where it stopped; or NULL: its end */
    uint32_t word[2];   /* what it brings to a shuffle, by parity of the warp's meetings */
    unsigned waits_for; /* meeting that it waits for the end of */
    bool in_warp;       /* of its warp, else of the block */
};

struct shim_meeting {
    unsigned number, arrived, n;
};

static shim_fibre shim_fibres[SHIM_THREADS];
static shim_meeting shim_warps[SHIM_THREADS / 32], shim_block;
static char *shim_stacks;
static void *shim_scheduler;
static void (*shim_entry_fn)(const void *);
static const void *shim_params;

/* Saves what a call preserves on this stack, leaves its top in *from, and goes on from `to`. */
extern "C" void shim_switch(void **from, void *to);
#if defined __x86_64__
__asm__(".text\n.local shim_switch\n.type shim_switch,@function\nshim_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
#else
#error "the shim's fibres are written for x86-64"
#endif

static void shim_wait(void)
{
    shim_switch(&shim_fibres[threadIdx.x].sp, shim_scheduler);
}

static void shim_thread(void)
{
    void *nowhere;
    const unsigned t = threadIdx.x;
    shim_entry_fn(shim_params);
    shim_fibres[t].sp = NULL;
    shim_switch(&nowhere, shim_scheduler);
}

/* Returns when all have come: also those that have ended, who never will. */
static void shim_meet(shim_meeting *m, bool in_warp)
{
    shim_fibre *const f = &shim_fibres[threadIdx.x];
    if (++m->arrived == m->n) {
        m->arrived = 0;
        m->number++;
        return;
    }
    f->waits_for = m->number;
    f->in_warp = in_warp;
    shim_wait();
}

static bool shim_may_go(unsigned t)
{
    const shim_fibre *const f = &shim_fibres[t];
    const shim_meeting *const m = f->in_warp ? &shim_warps[t / 32] : &shim_block;
    return f->waits_for != m->number;
}

/* An odd number to multiply thread numbers by: another one for each block. */
static unsigned shim_turn(void)
{
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 16 | 1;
}

/* One thread block; false: its threads wait for one another for ever. */
static bool shim_run_block(void)
{
    const unsigned n = blockDim.x;
    const unsigned turn = shim_turn(); /* n is a power of two: t * turn goes through all threads */
    unsigned n_alive = n;
    shim_block = { 0, 0, n };
    for (unsigned w = 0; w < n / 32; w++) shim_warps[w] = { 0, 0, 32 };
    for (unsigned t = 0; t < n; t++) {
        void **const top = (void **)(shim_stacks + (size_t)(t + 1) * SHIM_STACK) - 2;
        *top = (void *)shim_thread;
        shim_fibres[t] = { top - 6, { 0, 0 }, ~0u, false };
    }
    while (n_alive > 0) {
        bool went = false;
        for (unsigned i = 0; i < n; i++) {
            const unsigned t = i * turn % n;
            if (!shim_fibres[t].sp || !shim_may_go(t)) continue;
            went = true;
            threadIdx.x = t;
            void *const to = shim_fibres[t].sp;
            shim_switch(&shim_scheduler, to);
            n_alive -= !shim_fibres[t].sp;
        }
        if (!went) return false;
    }
    return true;
}

/* ---- what tests call ---- */

struct shim_entry {
    const char *name;
    void (*call)(const void *params);
};

template <typename A, void (*F)(A)> static void shim_call(const void *params)
{
    F(*(const A *)params);
}

static char *shim_stacks_and_shared(void)
{
    const size_t size = (size_t)SHIM_THREADS * SHIM_STACK + SHIM_SHARED;
    void *const p =
        mmap(NULL, size + SHIM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect((char *)p + size, SHIM_PAGE, PROT_NONE) != 0) return NULL;
    return (char *)p;
}

/* 0: done; 1: a barrier that not all threads came to; 2: no memory. */
extern "C" int shim_launch(void (*call)(const void *), const void *params, unsigned n_blocks,
                           unsigned n_threads, unsigned n_shared)
{
    if (!shim_stacks) shim_stacks = shim_stacks_and_shared();
    if (!shim_stacks || n_shared > SHIM_SHARED) return 2;
    held_rows = (unsigned char *)shim_stacks + SHIM_THREADS * SHIM_STACK + SHIM_SHARED - n_shared;
    shim_entry_fn = call;
    shim_params = params;
    gridDim.x = n_blocks;
    blockDim.x = n_threads;
    for (unsigned b = 0; b < n_blocks; b++) {
        blockIdx.x = b;
        if (!shim_run_block()) return 1;
    }
    return 0;
}

/* ---- CUDA ---- */

/* Set by who loads the library; only kernels of graphs may call. */
extern "C" {
__attribute__((visibility("default"))) void (*shim_set_condition)(unsigned long long, unsigned);
void cudaGraphSetConditional(unsigned long long handle, unsigned value)
{
    shim_set_condition(handle, value);
}
}

static inline void __syncthreads(void)
{
    shim_meet(&shim_block, false);
}
static inline void __syncwarp(void)
{
    shim_meet(&shim_warps[threadIdx.x / 32], true);
}

/* Each brings a word and takes one; the next meeting of the warp cannot end before all have. */
static inline uint32_t shim_shuffle(uint32_t v, unsigned from)
{
    const unsigned t = threadIdx.x, parity = shim_warps[t / 32].number & 1;
    shim_fibres[t].word[parity] = v;
    __syncwarp();
    return shim_fibres[t / 32 * 32 + from % 32].word[parity];
}
static inline uint32_t __shfl_down_sync(unsigned, uint32_t v, unsigned by)
{
    const unsigned lane = threadIdx.x & 31;
    return shim_shuffle(v, lane + by < 32 ? lane + by : lane);
}
static inline uint32_t __shfl_sync(unsigned, uint32_t v, unsigned from)
{
    return shim_shuffle(v, from);
}

static inline uint32_t __shfl_up_sync(unsigned, uint32_t v, unsigned by)
{
    const unsigned lane = threadIdx.x & 31;
    return shim_shuffle(v, lane >= by ? lane - by : lane);
}
/* A bit for each lane. */
static inline unsigned __ballot_sync(unsigned, bool v)
{
    const unsigned t = threadIdx.x, parity = shim_warps[t / 32].number & 1;
    unsigned bits = 0;
    shim_fibres[t].word[parity] = v;
    __syncwarp();
    for (unsigned i = 0; i < 32; i++) bits |= shim_fibres[t / 32 * 32 + i].word[parity] << i;
    return bits;
}

/* A fibre is not left within these. */
template <typename T> static inline T atomicAdd(T *p, T v)
{
    const T was = *p;
    *p = was + v;
    return was;
}
static inline unsigned long long atomicMin(unsigned long long *p, unsigned long long v)
{
    const unsigned long long was = *p;
    if (v < was) *p = v;
    return was;
}
static inline unsigned long long atomicCAS(unsigned long long *p, unsigned long long want,
                                           unsigned long long v)
{
    const unsigned long long was = *p;
    if (was == want) *p = v;
    return was;
}

template <typename D, typename S> static inline D shim_bits(S s)
{
    D d;
    static_assert(sizeof d == sizeof s, "bits of one size");
    memcpy(&d, &s, sizeof d);
    return d;
}
static inline unsigned __float_as_uint(float v)
{
    return shim_bits<unsigned>(v);
}
static inline float __uint_as_float(unsigned v)
{
    return shim_bits<float>(v);
}
static inline long long __double_as_longlong(double v)
{
    return shim_bits<long long>(v);
}
static inline double __longlong_as_double(long long v)
{
    return shim_bits<double>(v);
}
static inline int __popc(unsigned v)
{
    return __builtin_popcount(v);
}
static inline int __popcll(unsigned long long v)
{
    return __builtin_popcountll(v);
}

static inline float __fadd_rn(float x, float y)
{
    return x + y;
}
static inline float __fsub_rn(float x, float y)
{
    return x - y;
}
static inline float __fmul_rn(float x, float y)
{
    return x * y;
}
static inline float __fdiv_rn(float x, float y)
{
    return x / y;
}
static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
static inline double __dadd_rn(double x, double y)
{
    return x + y;
}
static inline double __dsub_rn(double x, double y)
{
    return x - y;
}
static inline double __dmul_rn(double x, double y)
{
    return x * y;
}
static inline double __ddiv_rn(double x, double y)
{
    return x / y;
}
static inline double __dsqrt_rn(double x)
{
    return sqrt(x);
}
static inline double __fma_rn(double x, double y, double z)
{
    return fma(x, y, z);
}

#endif
