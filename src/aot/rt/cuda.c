/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs an exported GPU program by the Driver API, which is linked (libcuda). The tables below say
 * what a run does; src/runtime/gpu_export.h describes them. Nothing is allocated in a run.
 *
 * The argument words of a launch are copied to the stack, and addresses and numbers are filled in.
 */
#include "aot/rt/cuda.h"
#include "aot/rt/number.h"

#include <stddef.h>

/* The calls of the driver, as NVIDIA documents them. Handles are pointers. */
int cuCtxGetDevice(int *device);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuModuleLoadDataEx(void **module, const void *image, unsigned n, int *options, void **values);
int cuModuleUnload(void *module);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuMemAlloc_v2(uint64_t *at, size_t bytes);
int cuMemFree_v2(uint64_t at);
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes);
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream);
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream);
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream);
int cuStreamSynchronize(void *stream);
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   void *stream, void **params, void **extra);

enum { CUDA_MAJOR = 75, CUDA_MINOR = 76 }; /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_... */

/* The most words of a range: parameters of a kernel are at most 4 KB. */
enum { CUDA_WORDS = 512 };

/* Word `word` of its range is the address of `origin`, plus `add`. */
typedef struct cuda_fix {
    uint32_t word, origin;
    int64_t add;
} cuda_fix;

/* Word `word` of its range has the bits of a number of the caller (number.h). */
typedef struct cuda_number {
    uint64_t add;
    uint32_t word, parameter, as, bytes, is_integer, unused;
} cuda_number;

/* Words [word, word + n_words), with their fixes and numbers. */
typedef struct cuda_range {
    uint32_t word, n_words, fix, n_fixes, number, n_numbers;
} cuda_range;

typedef struct cuda_step {
    uint32_t function, n_blocks, n_threads, shared;
    cuda_range range;
} cuda_step;

/* A copy of a complete array. With may_be, both may be one array. */
typedef struct cuda_copy {
    uint32_t to, from; /* origins */
    uint64_t bytes;
    uint32_t is_last, may_be;
} cuda_copy;

typedef struct cuda_function {
    uint32_t program;
    const char *name;
} cuda_function;

/* Origins are the arrays of the caller, in the order of the parameters, then the constants, then
 * the workspace. */
typedef struct cuda_program {
    const int *arch;             /* ascending; the last is that of PTX, which later GPUs compile */
    const uint64_t *const *code; /* [arch][program] */
    const cuda_function *functions;
    const uint64_t *words;
    const cuda_fix *fixes;
    const cuda_number *numbers;
    const cuda_range *table; /* pieces of the table, which the workspace begins with */
    const cuda_step *steps;
    const cuda_copy *copies;
    const uint64_t *origin_bytes; /* per origin */
    const uint64_t *data;         /* constants */
    uint64_t data_bytes, signature;
    uint32_t n_archs, n_programs, n_functions, n_table, n_steps, n_copies, n_origins, has_checks;
} cuda_program;

static int cuda_fail(deft_cuda_state *s, const char *call, int error)
{
    s->error = error;
    s->call = call;
    return DEFT_CUDA_DRIVER;
}

/* ---- loading ---- */

/* The index of the code for a GPU, or n_archs. A cubin runs on GPUs of its major number whose minor
 * is no less, and PTX on all that are no older. */
static uint32_t cuda_choose(const cuda_program *p, int arch)
{
    const uint32_t ptx = p->n_archs - 1;
    for (uint32_t i = ptx; i-- > 0;)
        if (p->arch[i] <= arch && p->arch[i] / 10 == arch / 10) return i;
    return p->arch[ptx] <= arch ? ptx : p->n_archs;
}

static void cuda_unload(const cuda_program *p, deft_cuda_state *s, void **code)
{
    for (uint32_t i = 0; i < p->n_programs; i++) {
        if (code[i]) (void)cuModuleUnload(code[i]);
        code[i] = NULL;
    }
    if (s->data) (void)cuMemFree_v2(s->data);
    s->data = 0;
}

static int cuda_load_data(const cuda_program *p, deft_cuda_state *s)
{
    int e;
    if (p->data_bytes == 0) return DEFT_CUDA_OK;
    if ((e = cuMemAlloc_v2(&s->data, (size_t)p->data_bytes)) != 0) {
        s->data = 0;
        return cuda_fail(s, "cuMemAlloc", e);
    }
    if ((e = cuMemcpyHtoD_v2(s->data, p->data, (size_t)p->data_bytes)) != 0)
        return cuda_fail(s, "cuMemcpyHtoD", e);
    return DEFT_CUDA_OK;
}

static int cuda_load_code(const cuda_program *p, deft_cuda_state *s, void **code, void **function)
{
    int device, major, minor, e;
    if ((e = cuCtxGetDevice(&device)) != 0) return cuda_fail(s, "cuCtxGetDevice", e);
    if ((e = cuDeviceGetAttribute(&major, CUDA_MAJOR, device)) != 0 ||
        (e = cuDeviceGetAttribute(&minor, CUDA_MINOR, device)) != 0)
        return cuda_fail(s, "cuDeviceGetAttribute", e);
    const uint32_t chosen = cuda_choose(p, 10 * major + minor);
    if (chosen == p->n_archs) return DEFT_CUDA_ARCHITECTURE;
    s->architecture = p->arch[chosen];
    for (uint32_t i = 0; i < p->n_programs; i++) {
        e = cuModuleLoadDataEx(&code[i], p->code[chosen * p->n_programs + i], 0, NULL, NULL);
        if (e != 0) {
            code[i] = NULL;
            return cuda_fail(s, "cuModuleLoadDataEx", e);
        }
    }
    for (uint32_t i = 0; i < p->n_functions; i++) {
        const cuda_function *const f = &p->functions[i];
        if ((e = cuModuleGetFunction(&function[i], code[f->program], f->name)) != 0)
            return cuda_fail(s, "cuModuleGetFunction", e);
    }
    return DEFT_CUDA_OK;
}

static int cuda_load(const cuda_program *p, uint64_t signature, deft_cuda_state *s, void **code,
                     void **function)
{
    *s = (deft_cuda_state){ 0, NULL, 0, 0 };
    if (signature != p->signature) return DEFT_CUDA_VERSION;
    for (uint32_t i = 0; i < p->n_programs; i++) code[i] = NULL;
    int st = cuda_load_code(p, s, code, function);
    if (st == DEFT_CUDA_OK) st = cuda_load_data(p, s);
    if (st != DEFT_CUDA_OK) cuda_unload(p, s, code);
    return st;
}

/* ---- running ---- */

static void cuda_words(const cuda_program *p, const cuda_range *r, const uint64_t *origin,
                       const uint64_t *given, uint64_t *out)
{
    memcpy(out, p->words + r->word, r->n_words * sizeof *out);
    for (uint32_t i = 0; i < r->n_fixes; i++) {
        const cuda_fix *const f = &p->fixes[r->fix + i];
        out[f->word] = origin[f->origin] + (uint64_t)f->add;
    }
    for (uint32_t i = 0; i < r->n_numbers; i++) {
        const cuda_number *const n = &p->numbers[r->number + i];
        out[n->word] =
            aot_bits_of_given(given[n->parameter], n->add, n->as, n->bytes, n->is_integer);
    }
}

static int cuda_copies(const cuda_program *p, deft_cuda_state *s, void *stream,
                       const uint64_t *origin, uint32_t is_last)
{
    for (uint32_t i = 0; i < p->n_copies; i++) {
        const cuda_copy *const c = &p->copies[i];
        const uint64_t to = origin[c->to], from = origin[c->from];
        if (c->is_last != is_last || (c->may_be && to == from)) continue;
        const int e = cuMemcpyDtoDAsync_v2(to, from, (size_t)c->bytes, stream);
        if (e != 0) return cuda_fail(s, "cuMemcpyDtoDAsync", e);
    }
    return DEFT_CUDA_OK;
}

static int cuda_run(const cuda_program *p, deft_cuda_state *s, void *const *function, void *stream,
                    const uint64_t *origin, const uint64_t *given)
{
    uint64_t words[CUDA_WORDS], to = origin[p->n_origins - 1];
    void *params[1] = { words };
    int st, e;
    for (uint32_t i = 0; i < p->n_origins; i++)
        if (p->origin_bytes[i] > 0 && (origin[i] == 0 || origin[i] % 16 != 0))
            return DEFT_CUDA_ARGUMENT;
    if ((st = cuda_copies(p, s, stream, origin, 0)) != DEFT_CUDA_OK) return st;
    for (uint32_t i = 0; i < p->n_table; i++) {
        const cuda_range *const r = &p->table[i];
        cuda_words(p, r, origin, given, words);
        if ((e = cuMemcpyHtoDAsync_v2(to, words, r->n_words * sizeof *words, stream)) != 0)
            return cuda_fail(s, "cuMemcpyHtoDAsync", e);
        to += r->n_words * sizeof *words;
    }
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const cuda_step *const l = &p->steps[i];
        cuda_words(p, &l->range, origin, given, words);
        if ((e = cuLaunchKernel(function[l->function], l->n_blocks, 1, 1, l->n_threads, 1, 1,
                                l->shared, stream, params, NULL)) != 0)
            return cuda_fail(s, "cuLaunchKernel", e);
    }
    return cuda_copies(p, s, stream, origin, 1);
}

static int cuda_finish(const cuda_program *p, deft_cuda_state *s, void *stream, uint64_t workspace)
{
    int64_t fault[3] = { 0, 0, 0 };
    int e;
    if (p->has_checks && (e = cuMemcpyDtoHAsync_v2(fault, workspace, sizeof fault, stream)) != 0)
        return cuda_fail(s, "cuMemcpyDtoHAsync", e);
    if ((e = cuStreamSynchronize(stream)) != 0) return cuda_fail(s, "cuStreamSynchronize", e);
    return fault[0] ? DEFT_CUDA_INDEX : DEFT_CUDA_OK;
}
