/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the stand-ins share: the libraries, opened, and their calls.
 */
#ifndef TEST_CUDA_STANDIN_TRY_H
#define TEST_CUDA_STANDIN_TRY_H

#include "jit_cuda/driver/driver.h"
#include "standin.h"
#include "standin_nvrtc.h"

#define NVRTC(X)                                                                                   \
    X(create, nvrtcCreateProgram,                                                                  \
      (struct program **, const char *, const char *, int, const char *const *,                    \
       const char *const *))                                                                       \
    X(destroy, nvrtcDestroyProgram, (struct program **))                                           \
    X(compile, nvrtcCompileProgram, (struct program *, int, const char *const *))                  \
    X(log_size, nvrtcGetProgramLogSize, (struct program *, size_t *))                              \
    X(log, nvrtcGetProgramLog, (struct program *, char *))                                         \
    X(cubin_size, nvrtcGetCUBINSize, (struct program *, size_t *))                                 \
    X(cubin, nvrtcGetCUBIN, (struct program *, char *))                                            \
    X(ptx_size, nvrtcGetPTXSize, (struct program *, size_t *))                                     \
    X(ptx, nvrtcGetPTX, (struct program *, char *))                                                \
    X(fail, standin_nvrtc_fail, (long, int))

typedef struct nvrtc {
#define FIELD(field, symbol, parameters) int(*field) parameters;
    NVRTC(FIELD)
#undef FIELD
} nvrtc;

extern standin in;
extern df_driver cu;
extern nvrtc rtc;
extern long n_faults;

/* Opens libcuda-standin, libnvrtc-standin; false: said. */
bool try_open(const char *cuda_path, const char *nvrtc_path);
/* A fresh world with the context of GPU 0 current. */
df_cu_ctx start(standin_mode mode);
/* The first misuse has these words; forgives it. */
bool misused(const char *words);
/* Compiled and loaded, or NULL where log, which has the compiler's words, is not. */
df_cu_module load(const char *text, char *log, size_t cap);
df_cu_module load_as(const char *text, bool is_ptx);
int launch(df_cu_fn f, unsigned blocks, unsigned threads, df_cu_stream s, void **params);

bool check(bool good, const char *what, const char *file, int line);
#define CHECK(x) check(x, #x, __FILE__, __LINE__)

#endif
