/* SPDX-License-Identifier: Apache-2.0
 *
 * GPUs, what they are, their primary contexts, the stack of current ones.
 */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64, CONTEXT = 0x50 };

static struct {
    gpu gpus[STANDIN_MOST_GPUS];
    int n;
    int version;
} d;
static uint32_t generation;

/* Whose context, +1; of which generation. */
typedef struct level {
    int gpu;
    uint32_t generation;
} level;
static _Thread_local struct {
    level at[DEEPEST];
    int n;
} stack;

gpu *gpu_of(int ordinal)
{
    return &d.gpus[ordinal];
}

int n_gpus(void)
{
    return d.n;
}

int contexts_top(void)
{
    if (stack.n == 0) return -1;
    const level top = stack.at[stack.n - 1];
    if (top.generation != generation) return -1;
    return d.gpus[top.gpu].retained ? top.gpu : -1;
}

static df_cu_ctx context_of(int ordinal)
{
    return (df_cu_ctx)(uintptr_t)((uint64_t)CONTEXT << 40 | (uint64_t)(generation & 0xFF) << 32 |
                                  (uint64_t)(ordinal + 1) << 4);
}

bool context_is(df_cu_ctx c, int ordinal)
{
    return c == context_of(ordinal) && d.gpus[ordinal].retained;
}

/* -1: misuse was told */
static int gpu_of_context(df_cu_ctx c)
{
    for (int i = 0; i < d.n; i++) {
        if (context_of(i) != c) continue;
        if (d.gpus[i].retained) return i;
        misuse(0, "the context of gpu%d was destroyed", i);
        return -1;
    }
    misuse(0, "no context");
    return -1;
}

static bool is_device(df_cu_device ordinal)
{
    if (ordinal >= 0 && ordinal < d.n) return true;
    misuse(0, "device %d, of %d", ordinal, d.n);
    return false;
}

/* ---- control ---- */

static standin_gpu usual_gpu(void)
{
    const char *const bytes = getenv("DEFT_STANDIN_BYTES"), *const no_va =
                                                                getenv("DEFT_STANDIN_NO_VA");
    return (standin_gpu){ .major = 9,
                          .minor = 0,
                          .bytes = bytes ? strtoull(bytes, NULL, 10) : 1ull << 30,
                          .n_sms = 4,
                          .no_va = no_va && *no_va == '1' };
}

void standin_set_gpus(int n, const standin_gpu *is)
{
    memset(d.gpus, 0, sizeof d.gpus);
    d.n = n < STANDIN_MOST_GPUS ? n : STANDIN_MOST_GPUS;
    for (int i = 0; i < d.n; i++) {
        const standin_gpu usual = usual_gpu();
        standin_gpu *const g = &d.gpus[i].is;
        *g = is ? is[i] : usual;
        if (!g->major) g->major = usual.major, g->minor = usual.minor;
        if (!g->bytes) g->bytes = usual.bytes;
        if (!g->n_sms) g->n_sms = usual.n_sms;
    }
}

int driver_version(void)
{
    return d.version;
}

void standin_set_version(int version)
{
    d.version = version;
}

void device_reset(void)
{
    const char *const n = getenv("DEFT_STANDIN_GPUS");
    standin_set_gpus(n ? (int)strtol(n, NULL, 10) : 2, NULL);
    d.version = 12040;
    generation++;
}

void device_leaks(standin_alive *out)
{
    for (int i = 0; i < d.n; i++) out->contexts += d.gpus[i].retained;
}

/* ---- the library ---- */

df_cu_result cuInit(unsigned flags)
{
    int r = enter(C_cuInit, BARE);
    if (r) return r;
    record(" %u", flags);
    if (flags) r = misuse(BAD_VALUE, "flags %u", flags);
    return leave(r ? r : d.n == 0 ? DF_CU_NO_DEVICE : 0);
}

df_cu_result cuDriverGetVersion(int *version)
{
    const int r = enter(C_cuDriverGetVersion, BARE);
    if (r) return r;
    *version = d.version;
    return leave(0);
}

typedef struct error {
    int code;
    const char *name, *text;
} error;

static const error *error_of(int code)
{
    static const error errors[] = {
        { 0, "CUDA_SUCCESS", "no error" },
        { 1, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
        { 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
        { 3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
        { 4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down" },
        { 34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library" },
        { 46, "CUDA_ERROR_DEVICE_UNAVAILABLE",
          "CUDA-capable device(s) is/are busy or unavailable" },
        { 100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
        { 101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
        { 200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid" },
        { 201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
        { 209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
          "no kernel image is available for execution on the device" },
        { 214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered" },
        { 217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
          "peer access is not supported between these two devices" },
        { 400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
        { 500, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
        { 600, "CUDA_ERROR_NOT_READY", "device not ready" },
        { 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered" },
        { 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch" },
        { 704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled" },
        { 716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address" },
        { 719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure" },
        { 801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
        { 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
          "operation not permitted when stream is capturing" },
        { 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
          "operation failed due to a previous error during capture" },
        { 910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
          "the graph update was not performed because it included changes which violated "
          "constraints specific to instantiated graph update" },
        { 999, "CUDA_ERROR_UNKNOWN", "unknown error" },
    };
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code) return &errors[i];
    return NULL;
}

df_cu_result cuGetErrorName(df_cu_result code, const char **name)
{
    const int r = enter(C_cuGetErrorName, BARE);
    if (r) return r;
    const error *const e = error_of(code);
    *name = e ? e->name : NULL;
    return leave(e ? 0 : BAD_VALUE);
}

df_cu_result cuGetErrorString(df_cu_result code, const char **text)
{
    const int r = enter(C_cuGetErrorString, BARE);
    if (r) return r;
    const error *const e = error_of(code);
    *text = e ? e->text : NULL;
    return leave(e ? 0 : BAD_VALUE);
}

/* ---- devices ---- */

df_cu_result cuDeviceGetCount(int *n)
{
    const int r = enter(C_cuDeviceGetCount, BARE);
    if (r) return r;
    *n = d.n;
    record(" %d", d.n);
    return leave(0);
}

df_cu_result cuDeviceGet(df_cu_device *out, int ordinal)
{
    const int r = enter(C_cuDeviceGet, BARE);
    if (r) return r;
    record(" %d", ordinal);
    if (!is_device(ordinal)) return leave(BAD_DEVICE);
    *out = ordinal;
    return leave(0);
}

df_cu_result cuDeviceGetName(char *name, int cap, df_cu_device ordinal)
{
    const int r = enter(C_cuDeviceGetName, BARE);
    if (r) return r;
    if (!is_device(ordinal)) return leave(BAD_DEVICE);
    snprintf(name, (size_t)cap, "Stand-in GPU %d", ordinal);
    return leave(0);
}

df_cu_result cuDeviceTotalMem_v2(size_t *bytes, df_cu_device ordinal)
{
    const int r = enter(C_cuDeviceTotalMem_v2, BARE);
    if (r) return r;
    if (!is_device(ordinal)) return leave(BAD_DEVICE);
    *bytes = d.gpus[ordinal].is.bytes;
    return leave(0);
}

/* CUdevice_attribute; -1: not known */
static int attribute_of(int attribute, int ordinal)
{
    const standin_gpu *const is = &d.gpus[ordinal].is;
    switch (attribute) {
    case 1: return 1024; /* threads per block */
    case 2:
    case 3: return 1024;
    case 4: return 64;
    case 5: return 0x7FFFFFFF; /* grid x */
    case 6:
    case 7: return 65535;
    case 8: return 48 << 10; /* shared memory per block */
    case 9: return 64 << 10; /* constant memory */
    case 10: return 32;      /* warp */
    case 12: return 65536;   /* registers per block */
    case 13: return 1500000; /* clock, kHz */
    case 16: return is->n_sms;
    case 19: return 1;       /* can map host memory */
    case 31: return 1;       /* concurrent kernels */
    case 33: return ordinal; /* PCI bus */
    case 34: return 0;       /* PCI device */
    case 36: return 2000000; /* memory clock, kHz */
    case 37: return 5120;    /* memory bus, bits */
    case 38: return 4 << 20; /* L2 */
    case 39: return 2048;    /* threads per multiprocessor */
    case 40: return 2;       /* copy engines */
    case 41: return 1;       /* one address space */
    case 50: return 0;       /* PCI domain */
    case 75: return is->major;
    case 76: return is->minor;
    case 81: return 228 << 10;   /* shared memory per multiprocessor */
    case 82: return 65536;       /* registers per multiprocessor */
    case 97: return 227 << 10;   /* shared memory per block, when asked for */
    case 102: return !is->no_va; /* virtual memory */
    case 106: return 32;         /* blocks per multiprocessor */
    case 111: return 1024;       /* shared memory kept per block */
    case 115: return 0;          /* memory pools */
    default: return -1;
    }
}

df_cu_result cuDeviceGetAttribute(int *value, int attribute, df_cu_device ordinal)
{
    const int r = enter(C_cuDeviceGetAttribute, BARE);
    if (r) return r;
    if (!is_device(ordinal)) return leave(BAD_DEVICE);
    const int v = attribute_of(attribute, ordinal);
    if (v < 0) return leave(misuse(BAD_VALUE, "the stand-in knows no attribute %d", attribute));
    *value = v;
    return leave(0);
}

/* ---- contexts ---- */

df_cu_result cuDevicePrimaryCtxRetain(df_cu_ctx *out, df_cu_device ordinal)
{
    const int r = enter(C_cuDevicePrimaryCtxRetain, BARE);
    if (r) return r;
    record(" %d", ordinal);
    if (!is_device(ordinal)) return leave(BAD_DEVICE);
    d.gpus[ordinal].retained++;
    *out = context_of(ordinal);
    return leave(0);
}

/* What dies with a context is not freed here; it is told, and stays a leak. */
df_cu_result cuDevicePrimaryCtxRelease_v2(df_cu_device ordinal)
{
    const int r = enter(C_cuDevicePrimaryCtxRelease_v2, BARE);
    if (r) return r;
    record(" %d", ordinal);
    if (!is_device(ordinal)) return leave(BAD_DEVICE);
    gpu *const g = &d.gpus[ordinal];
    if (g->retained == 0) return leave(misuse(BAD_CONTEXT, "gpu%d is not retained", ordinal));
    if (--g->retained == 0) {
        run_gpu(ordinal);
        for (int k = 0; k < N_KINDS; k++) {
            uint32_t at = 0;
            const object *o;
            while ((o = object_next((kind)k, &at)))
                if (o->alive && o->gpu == ordinal && k != FN && k != NODE)
                    misuse(0, "%s is still there", object_name(o));
        }
        if (g->used) misuse(0, "%llu bytes are still there", (unsigned long long)g->used);
        g->peers = 0;
    }
    return leave(0);
}

df_cu_result cuCtxPushCurrent_v2(df_cu_ctx c)
{
    const int r = enter(C_cuCtxPushCurrent_v2, BARE);
    if (r) return r;
    const int ordinal = gpu_of_context(c);
    if (ordinal < 0) return leave(BAD_CONTEXT);
    if (stack.n && stack.at[0].generation != generation) stack.n = 0;
    if (stack.n == DEEPEST) return leave(misuse(BAD_VALUE, "%d contexts are pushed", DEEPEST));
    stack.at[stack.n++] = (level){ ordinal, generation };
    return leave(0);
}

df_cu_result cuCtxPopCurrent_v2(df_cu_ctx *out)
{
    const int r = enter(C_cuCtxPopCurrent_v2, BARE);
    if (r) return r;
    if (stack.n && stack.at[0].generation != generation) stack.n = 0;
    if (stack.n == 0) return leave(misuse(BAD_CONTEXT, "no context is current"));
    const level top = stack.at[--stack.n];
    if (out) *out = context_of(top.gpu);
    return leave(0);
}

/* ---- peers ---- */

static bool can_peer(int a, int b)
{
    return a != b && !d.gpus[a].is.no_peers && !d.gpus[b].is.no_peers;
}

df_cu_result cuCtxGetDevice(df_cu_device *out)
{
    const int r = enter(C_cuCtxGetDevice, NEEDS_CONTEXT);
    if (r) return r;
    *out = current();
    return leave(0);
}

df_cu_result cuDeviceCanAccessPeer(int *can, df_cu_device a, df_cu_device b)
{
    const int r = enter(C_cuDeviceCanAccessPeer, BARE);
    if (r) return r;
    if (!is_device(a) || !is_device(b)) return leave(BAD_DEVICE);
    *can = can_peer(a, b);
    return leave(0);
}

df_cu_result cuCtxEnablePeerAccess(df_cu_ctx c, unsigned flags)
{
    const int r = enter(C_cuCtxEnablePeerAccess, NEEDS_CONTEXT);
    if (r) return r;
    const int other = gpu_of_context(c);
    if (other < 0) return leave(BAD_CONTEXT);
    record(" gpu%d", other);
    gpu *const g = &d.gpus[current()];
    if (flags) return leave(misuse(BAD_VALUE, "flags %u", flags));
    if (!can_peer(current(), other)) return leave(217);
    if (g->peers >> other & 1) return leave(PEER_ENABLED);
    g->peers |= 1u << other;
    return leave(0);
}
