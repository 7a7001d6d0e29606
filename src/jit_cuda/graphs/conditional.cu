/* SPDX-License-Identifier: Apache-2.0
 *
 * What decides on the GPU whether the body of a conditional node runs (conditional.h). One thread
 * of each launch does something. A handle is given by cuGraphConditionalHandleCreate; its value may
 * be set by kernels of its own graph alone, before the node and, for a loop, at the end of its body.
 *
 * cudaGraphSetConditional is no function of a library: declared as here and as in NVIDIA's
 * cuda_device_runtime_api.h, it stays open in the PTX, and the driver fills it in when it compiles
 * that (XLA's command buffers and NVIDIA's Warp count on the same). In a cubin it would stay open.
 */
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);

/* Iterations: none, or one more. */
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
