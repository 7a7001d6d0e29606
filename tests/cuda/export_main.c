/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that uses an export for GPUs and nothing of deft: what its functions return when
 * something is wrong. tests/cuda/run_export makes `taken` and compiles this with it. The driver is
 * the stand-in, whose controls are used.
 *
 *   export_main        all cases of taken.c
 *   export_main load   loads, and prints what load returns and the architecture
 */
#include <stdio.h>
#include <string.h>

#include "taken.h"

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxPushCurrent_v2(void *context);
int cuStreamCreate(void **stream, unsigned flags);
int cuMemAlloc_v2(uint64_t *at, size_t bytes);
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream);
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream);
int cuStreamSynchronize(void *stream);

typedef struct alive {
    int contexts, memory, pinned, streams, events, modules, graphs, execs, reserved, handles,
        mapped;
    uint64_t bytes;
} alive;
void standin_fail(const char *symbol, long n, int code);
void standin_fail_work(long n, int code);
int standin_fails_waiting(void);
void standin_leaks(alive *out);

enum { ROWS = 40, WIDTH = 30, PICKED = 7, FAILS = 719 };

static int bad;
#define EXPECT(x)                                                                                  \
    do {                                                                                           \
        if (!(x)) bad = 1, printf("line %d: %s\n", __LINE__, #x);                                  \
    } while (0)

static void *stream;
static uint64_t x, index, out, workspace;

static void put_index(int64_t last)
{
    const int64_t at[PICKED] = { 3, 1, 39, 0, 0, 12, last };
    EXPECT(cuMemcpyHtoDAsync_v2(index, at, sizeof at, stream) == 0);
}

static int run(taken_module *m)
{
    return taken_run(m, stream, x, index, 2.0, out, workspace);
}

static void check_values(int64_t last)
{
    static float have[PICKED][WIDTH];
    const int64_t at[PICKED] = { 3, 1, 39, 0, 0, 12, last };
    EXPECT(cuMemcpyDtoHAsync_v2(have, out, sizeof have, stream) == 0);
    EXPECT(cuStreamSynchronize(stream) == 0);
    for (int i = 0; i < PICKED; i++)
        for (int k = 0; k < WIDTH; k++)
            EXPECT(have[i][k] == 2.0f * (float)(at[i] * WIDTH + k) + 0.5f * (float)k);
}

static void check_runs(taken_module *m)
{
    put_index(5);
    EXPECT(run(m) == DEFT_CUDA_OK);
    EXPECT(taken_finish(m, stream, workspace) == DEFT_CUDA_OK);
    check_values(5);
    put_index(ROWS);
    EXPECT(run(m) == DEFT_CUDA_OK);
    EXPECT(taken_finish(m, stream, workspace) == DEFT_CUDA_INDEX);
    put_index(6);
    EXPECT(run(m) == DEFT_CUDA_OK);
    EXPECT(taken_finish(m, stream, workspace) == DEFT_CUDA_OK);
    check_values(6);
    EXPECT(taken_run(m, stream, x + 4, index, 2.0, out, workspace) == DEFT_CUDA_ARGUMENT);
    EXPECT(taken_run(m, stream, x, index, 2.0, out, 0) == DEFT_CUDA_ARGUMENT);
}

/* Calls of the driver fail in a run, at once; then work in the stream does, later. */
static void check_failures(taken_module *m)
{
    standin_fail("cuLaunchKernel", 1, FAILS);
    EXPECT(run(m) == DEFT_CUDA_DRIVER);
    EXPECT(m->state.error == FAILS && strcmp(m->state.call, "cuLaunchKernel") == 0);
    standin_fail("cuMemcpyHtoDAsync_v2", 1, FAILS);
    EXPECT(run(m) == DEFT_CUDA_DRIVER);
    EXPECT(m->state.error == FAILS && strcmp(m->state.call, "cuMemcpyHtoDAsync") == 0);
    EXPECT(run(m) == DEFT_CUDA_OK && taken_finish(m, stream, workspace) == DEFT_CUDA_OK);
    EXPECT(run(m) == DEFT_CUDA_OK);
    standin_fail("cuStreamSynchronize", 1, FAILS);
    EXPECT(taken_finish(m, stream, workspace) == DEFT_CUDA_DRIVER);
    EXPECT(m->state.error == FAILS && strcmp(m->state.call, "cuStreamSynchronize") == 0);
}

/* Each call fails while the program is loaded: nothing is left behind. */
static void check_loading(void)
{
    alive before, after;
    taken_module m;
    int st = DEFT_CUDA_DRIVER;
    long n = 1;
    EXPECT(taken_load_signed(&m, 1) == DEFT_CUDA_VERSION);
    standin_leaks(&before);
    for (; st != DEFT_CUDA_OK && n < 100; n++) {
        standin_fail(NULL, n, FAILS);
        st = taken_load(&m);
        if (st != DEFT_CUDA_OK)
            EXPECT(st == DEFT_CUDA_DRIVER && m.state.error == FAILS && m.state.call);
        if (st == DEFT_CUDA_OK) taken_unload(&m);
        while (standin_fails_waiting() > 0) (void)cuStreamSynchronize(stream);
        standin_leaks(&after);
        EXPECT(before.modules == after.modules && before.memory == after.memory);
    }
    EXPECT(n > 6); /* device, two attributes, module, function, memory, constants */
}

int main(int argc, char **argv)
{
    static float values[ROWS * WIDTH];
    void *context;
    taken_module m;
    EXPECT(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0);
    EXPECT(cuCtxPushCurrent_v2(context) == 0 && cuStreamCreate(&stream, 1) == 0);
    if (argc > 1 && strcmp(argv[1], "load") == 0) {
        const int st = taken_load(&m);
        printf("%d sm_%d\n", st, m.state.architecture);
        return bad;
    }
    const uint64_t bytes = (uint64_t)taken_workspace_bytes();
    EXPECT(bytes > 0);
    EXPECT(cuMemAlloc_v2(&x, sizeof values) == 0 && cuMemAlloc_v2(&index, PICKED * 8) == 0);
    EXPECT(cuMemAlloc_v2(&out, PICKED * WIDTH * 4) == 0 && cuMemAlloc_v2(&workspace, bytes) == 0);
    for (int i = 0; i < ROWS * WIDTH; i++) values[i] = (float)i;
    EXPECT(cuMemcpyHtoDAsync_v2(x, values, sizeof values, stream) == 0);
    check_loading();
    EXPECT(taken_load(&m) == DEFT_CUDA_OK);
    EXPECT(m.state.architecture == 90);
    check_runs(&m);
    check_failures(&m);
    taken_unload(&m);
    return bad;
}
