/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels that decide on the GPU whether the body of a conditional node runs
 * (conditional.h). One thread of each launch does the work. A handle comes from
 * cuGraphConditionalHandleCreate. Only kernels of its own graph may set its value: before
 * the node and, for a loop, at the end of its body.
 *
 * cudaGraphSetConditional is not in a library. It is declared as in NVIDIA's
 * cuda_device_runtime_api.h, and stays undefined in the PTX. The driver defines it when it
 * compiles the PTX; XLA's command buffers and NVIDIA's Warp rely on that, too. In a cubin
 * it would stay undefined.
 */
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);

/* Counts iterations: resets the count, or adds one. */
extern "C" __global__ void __launch_bounds__(32, 1)
    conditional_count(long long *n, long long begins)
{
    if (threadIdx.x == 0) *n = begins ? 0 : *n + 1;
}

extern "C" __global__ void __launch_bounds__(32, 1)
    conditional_loop(unsigned long long handle, const unsigned char *holds, const long long *n,
                     long long most)
{
    if (threadIdx.x == 0) cudaGraphSetConditional(handle, *n < most && *holds != 0);
}

extern "C" __global__ void __launch_bounds__(32, 1)
    conditional_branch(unsigned long long then, unsigned long long otherwise,
                       const unsigned char *holds)
{
    if (threadIdx.x == 0) {
        cudaGraphSetConditional(then, *holds != 0);
        cudaGraphSetConditional(otherwise, *holds == 0);
    }
}
