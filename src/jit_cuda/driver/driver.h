/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA Driver API, opened at run time. Types and calls are declared here as NVIDIA's
 * documentation gives them, so no CUDA header is needed.
 *
 * The library is libcuda.so.1, or the file that DEFT_CUDA_DRIVER names; it is never linked.
 * When it is missing, too old, or the stub that toolkits ship, df_driver_open fails with
 * DEFT_E_BACKEND and a sentence. A machine without a GPU fails in the same way.
 */
#ifndef DF_JIT_CUDA_DRIVER_H
#define DF_JIT_CUDA_DRIVER_H

#include "base/diag.h"
#include "base/mem.h"

typedef int df_cu_result; /* CUresult; 0 is success */
typedef int df_cu_device;
typedef uint64_t df_cu_ptr;
typedef struct CUctx_st *df_cu_ctx;
typedef struct CUstream_st *df_cu_stream;
typedef struct CUevent_st *df_cu_event;
typedef struct CUmod_st *df_cu_module;
typedef struct CUfunc_st *df_cu_fn;
typedef struct CUgraph_st *df_cu_graph;
typedef struct CUgraphNode_st *df_cu_node;
typedef struct CUgraphExec_st *df_cu_exec;
typedef unsigned long long df_cu_handle;    /* CUmemGenericAllocationHandle */
typedef unsigned long long df_cu_condition; /* CUgraphConditionalHandle */

enum {
    DF_CU_OUT_OF_MEMORY = 2,
    DF_CU_DEINITIALIZED = 4, /* the process is ending */
    DF_CU_STUB = 34,
    DF_CU_NO_DEVICE = 100,
    DF_CU_NOT_READY = 600
};

/* The parameters of graph nodes. df_cu_kernel_node is CUDA_KERNEL_NODE_PARAMS, as
 * cuGraphAddKernelNode without _v2 takes it; the others follow the same pattern. */
typedef struct df_cu_kernel_node {
    df_cu_fn func;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void **params;
    void **extra;
} df_cu_kernel_node;

typedef struct df_cu_memset_node {
    df_cu_ptr dst;
    size_t pitch;
    unsigned value, element_bytes;
    size_t width, height;
} df_cu_memset_node;

typedef struct df_cu_memcpy3d { /* CUDA_MEMCPY3D */
    size_t src_x, src_y, src_z, src_lod;
    unsigned src_kind; /* 1 host, 2 device */
    const void *src_host;
    df_cu_ptr src_device;
    void *src_array, *reserved0;
    size_t src_pitch, src_height;
    size_t dst_x, dst_y, dst_z, dst_lod;
    unsigned dst_kind;
    void *dst_host;
    df_cu_ptr dst_device;
    void *dst_array, *reserved1;
    size_t dst_pitch, dst_height;
    size_t width, height, depth;
} df_cu_memcpy3d;

/* CUgraphNodeParams, as cuGraphAddNode without _v2 takes it. It contains
 * CUDA_CONDITIONAL_NODE_PARAMS. */
typedef struct df_cu_node_params {
    int type; /* 13 is a conditional node */
    int reserved0[3];
    union {
        struct {
            df_cu_condition handle;
            int type;            /* 0: if, 1: while */
            unsigned size;       /* the number of bodies, always 1 */
            df_cu_graph *bodies; /* out: graphs that the driver owns */
            df_cu_ctx ctx;
        } conditional;
        int64_t reserved1[29];
    } is;
    int64_t reserved2;
} df_cu_node_params;
_Static_assert(sizeof(df_cu_node_params) == 256, "as the driver has it");

typedef struct df_cu_location {
    int type; /* 1: device */
    int id;
} df_cu_location;

typedef struct df_cu_alloc_prop {
    int type;         /* 1: pinned */
    int handle_types; /* 0 */
    df_cu_location location;
    void *win32;
    struct {
        unsigned char compression, gpu_direct;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
} df_cu_alloc_prop;

typedef struct df_cu_access {
    df_cu_location location;
    int flags; /* 3: read and write */
} df_cu_access;

/* Each list has rows X(field, symbol, parameters). A driver without one of the REQUIRED
 * calls is too old. */
#define DF_CU_REQUIRED(X)                                                                          \
    X(init, cuInit, (unsigned))                                                                    \
    X(driver_version, cuDriverGetVersion, (int *))                                                 \
    X(error_name, cuGetErrorName, (df_cu_result, const char **))                                   \
    X(error_text, cuGetErrorString, (df_cu_result, const char **))                                 \
    X(device_count, cuDeviceGetCount, (int *))                                                     \
    X(device_get, cuDeviceGet, (df_cu_device *, int))                                              \
    X(device_name, cuDeviceGetName, (char *, int, df_cu_device))                                   \
    X(device_bytes, cuDeviceTotalMem_v2, (size_t *, df_cu_device))                                 \
    X(device_attribute, cuDeviceGetAttribute, (int *, int, df_cu_device))                          \
    X(ctx_retain, cuDevicePrimaryCtxRetain, (df_cu_ctx *, df_cu_device))                           \
    X(ctx_release, cuDevicePrimaryCtxRelease_v2, (df_cu_device))                                   \
    X(ctx_push, cuCtxPushCurrent_v2, (df_cu_ctx))                                                  \
    X(ctx_pop, cuCtxPopCurrent_v2, (df_cu_ctx *))                                                  \
    X(stream_create, cuStreamCreate, (df_cu_stream *, unsigned))                                   \
    X(stream_destroy, cuStreamDestroy_v2, (df_cu_stream))                                          \
    X(stream_wait, cuStreamSynchronize, (df_cu_stream))                                            \
    X(stream_query, cuStreamQuery, (df_cu_stream))                                                 \
    X(stream_wait_event, cuStreamWaitEvent, (df_cu_stream, df_cu_event, unsigned))                 \
    X(event_create, cuEventCreate, (df_cu_event *, unsigned))                                      \
    X(event_destroy, cuEventDestroy_v2, (df_cu_event))                                             \
    X(event_record, cuEventRecord, (df_cu_event, df_cu_stream))                                    \
    X(event_query, cuEventQuery, (df_cu_event))                                                    \
    X(event_wait, cuEventSynchronize, (df_cu_event))                                               \
    X(event_elapsed, cuEventElapsedTime, (float *, df_cu_event, df_cu_event))                      \
    X(mem_info, cuMemGetInfo_v2, (size_t *, size_t *))                                             \
    X(mem_alloc, cuMemAlloc_v2, (df_cu_ptr *, size_t))                                             \
    X(mem_free, cuMemFree_v2, (df_cu_ptr))                                                         \
    X(host_alloc, cuMemHostAlloc, (void **, size_t, unsigned))                                     \
    X(host_free, cuMemFreeHost, (void *))                                                          \
    X(copy_in, cuMemcpyHtoDAsync_v2, (df_cu_ptr, const void *, size_t, df_cu_stream))              \
    X(copy_out, cuMemcpyDtoHAsync_v2, (void *, df_cu_ptr, size_t, df_cu_stream))                   \
    X(copy, cuMemcpyDtoDAsync_v2, (df_cu_ptr, df_cu_ptr, size_t, df_cu_stream))                    \
    X(copy_peer, cuMemcpyPeerAsync,                                                                \
      (df_cu_ptr, df_cu_ctx, df_cu_ptr, df_cu_ctx, size_t, df_cu_stream))                          \
    X(set_8, cuMemsetD8Async, (df_cu_ptr, unsigned char, size_t, df_cu_stream))                    \
    X(set_32, cuMemsetD32Async, (df_cu_ptr, unsigned, size_t, df_cu_stream))                       \
    X(pointer_attribute, cuPointerGetAttribute, (void *, int, df_cu_ptr))                          \
    X(module_load, cuModuleLoadDataEx, (df_cu_module *, const void *, unsigned, int *, void **))   \
    X(module_unload, cuModuleUnload, (df_cu_module))                                               \
    X(module_fn, cuModuleGetFunction, (df_cu_fn *, df_cu_module, const char *))                    \
    X(fn_attribute, cuFuncGetAttribute, (int *, int, df_cu_fn))                                    \
    X(fn_set_attribute, cuFuncSetAttribute, (df_cu_fn, int, int))                                  \
    X(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *, df_cu_fn, int, size_t))      \
    X(launch, cuLaunchKernel,                                                                      \
      (df_cu_fn, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,             \
       df_cu_stream, void **, void **))

/* An OPTIONAL call is NULL when the driver does not have it. They serve peer access,
 * virtual memory, graphs and conditional nodes. */
#define DF_CU_OPTIONAL(X)                                                                          \
    X(peer_can, cuDeviceCanAccessPeer, (int *, df_cu_device, df_cu_device))                        \
    X(peer_enable, cuCtxEnablePeerAccess, (df_cu_ctx, unsigned))                                   \
    X(va_granularity, cuMemGetAllocationGranularity, (size_t *, const df_cu_alloc_prop *, int))    \
    X(va_reserve, cuMemAddressReserve, (df_cu_ptr *, size_t, size_t, df_cu_ptr, uint64_t))         \
    X(va_free, cuMemAddressFree, (df_cu_ptr, size_t))                                              \
    X(va_create, cuMemCreate, (df_cu_handle *, size_t, const df_cu_alloc_prop *, uint64_t))        \
    X(va_release, cuMemRelease, (df_cu_handle))                                                    \
    X(va_map, cuMemMap, (df_cu_ptr, size_t, size_t, df_cu_handle, uint64_t))                       \
    X(va_unmap, cuMemUnmap, (df_cu_ptr, size_t))                                                   \
    X(va_access, cuMemSetAccess, (df_cu_ptr, size_t, const df_cu_access *, size_t))                \
    X(graph_create, cuGraphCreate, (df_cu_graph *, unsigned))                                      \
    X(graph_destroy, cuGraphDestroy, (df_cu_graph))                                                \
    X(graph_kernel, cuGraphAddKernelNode,                                                          \
      (df_cu_node *, df_cu_graph, const df_cu_node *, size_t, const df_cu_kernel_node *))          \
    X(graph_memcpy, cuGraphAddMemcpyNode,                                                          \
      (df_cu_node *, df_cu_graph, const df_cu_node *, size_t, const df_cu_memcpy3d *, df_cu_ctx))  \
    X(graph_memset, cuGraphAddMemsetNode,                                                          \
      (df_cu_node *, df_cu_graph, const df_cu_node *, size_t, const df_cu_memset_node *,           \
       df_cu_ctx))                                                                                 \
    X(graph_child, cuGraphAddChildGraphNode,                                                       \
      (df_cu_node *, df_cu_graph, const df_cu_node *, size_t, df_cu_graph))                        \
    X(graph_empty, cuGraphAddEmptyNode, (df_cu_node *, df_cu_graph, const df_cu_node *, size_t))   \
    X(graph_instantiate, cuGraphInstantiateWithFlags, (df_cu_exec *, df_cu_graph, uint64_t))       \
    X(exec_destroy, cuGraphExecDestroy, (df_cu_exec))                                              \
    X(exec_launch, cuGraphLaunch, (df_cu_exec, df_cu_stream))                                      \
    X(exec_kernel, cuGraphExecKernelNodeSetParams,                                                 \
      (df_cu_exec, df_cu_node, const df_cu_kernel_node *))                                         \
    X(exec_memcpy, cuGraphExecMemcpyNodeSetParams,                                                 \
      (df_cu_exec, df_cu_node, const df_cu_memcpy3d *, df_cu_ctx))                                 \
    X(exec_memset, cuGraphExecMemsetNodeSetParams,                                                 \
      (df_cu_exec, df_cu_node, const df_cu_memset_node *, df_cu_ctx))                              \
    X(exec_child, cuGraphExecChildGraphNodeSetParams, (df_cu_exec, df_cu_node, df_cu_graph))       \
    X(capture_begin, cuStreamBeginCapture_v2, (df_cu_stream, int))                                 \
    X(capture_end, cuStreamEndCapture, (df_cu_stream, df_cu_graph *))                              \
    X(graph_node, cuGraphAddNode,                                                                  \
      (df_cu_node *, df_cu_graph, const df_cu_node *, size_t, df_cu_node_params *))                \
    X(graph_condition, cuGraphConditionalHandleCreate,                                             \
      (df_cu_condition *, df_cu_graph, df_cu_ctx, unsigned, unsigned))

typedef struct df_driver {
    const df_mem *mem;
    int version; /* 12040 is CUDA 12.4 */
    int n_devices;
    struct df_driver_forks *forks; /* private to driver.c */
#define DF_CU_FIELD(field, symbol, parameters) df_cu_result(*field) parameters;
    DF_CU_REQUIRED(DF_CU_FIELD)
    DF_CU_OPTIONAL(DF_CU_FIELD)
#undef DF_CU_FIELD
} df_driver;

/* Opens the library, finds its calls and calls cuInit. path NULL means DEFT_CUDA_DRIVER or,
 * without that, the usual name. The caller owns *out. Returns DEFT_E_BACKEND when there is
 * no usable driver or GPU, and DEFT_E_MEMORY. */
deft_status df_driver_open(df_diag *d, const df_mem *mem, const char *path, df_driver **out);
void df_driver_close(df_driver **dr); /* NULL is fine; the library stays loaded */

/* Returns DEFT_E_BACKEND in a child process that was forked after df_driver_open. CUDA does
 * not work in such a child, and no call of the driver may be made there. Any thread. */
deft_status df_driver_usable(const df_driver *dr, df_diag *d);

/* Turns an error of the driver into a status and a sentence. r is the error, not 0. `what`
 * is a format string that describes the call, for example "cuMemAlloc of 4096 bytes".
 * Returns DEFT_E_MEMORY when memory ran out, and DEFT_E_BACKEND otherwise. The sentence
 * contains the driver's name for the error. */
deft_status df_driver_fail(const df_driver *dr, df_diag *d, df_cu_result r, const char *what, ...)
    DF_PRINTF(4, 5);

#endif
