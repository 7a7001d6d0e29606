/* SPDX-License-Identifier: Apache-2.0
 *
 * libnvrtc-standin.so: what tests find in it by dlsym, and what it has of NVRTC.
 */
#ifndef TEST_CUDA_STANDIN_NVRTC_H
#define TEST_CUDA_STANDIN_NVRTC_H

#include <stddef.h>

#define NVRTC_API __attribute__((visibility("default")))

NVRTC_API long standin_nvrtc_count(void); /* programs compiled so far, failures too */
/* The n-th compilation from now, n from 1, gives code (6: it does not compile). n 0: none. */
NVRTC_API void standin_nvrtc_fail(long n, int code);

struct program;
NVRTC_API const char *nvrtcGetErrorString(int code);
NVRTC_API int nvrtcVersion(int *major, int *minor);
NVRTC_API int nvrtcGetNumSupportedArchs(int *n);
NVRTC_API int nvrtcGetSupportedArchs(int *archs);
NVRTC_API int nvrtcCreateProgram(struct program **out, const char *source, const char *name,
                                 int n_headers, const char *const *headers,
                                 const char *const *names);
NVRTC_API int nvrtcDestroyProgram(struct program **p);
NVRTC_API int nvrtcCompileProgram(struct program *p, int n, const char *const *options);
NVRTC_API int nvrtcGetProgramLogSize(struct program *p, size_t *size);
NVRTC_API int nvrtcGetProgramLog(struct program *p, char *out);
NVRTC_API int nvrtcGetCUBINSize(struct program *p, size_t *size);
NVRTC_API int nvrtcGetCUBIN(struct program *p, char *out);
NVRTC_API int nvrtcGetPTXSize(struct program *p, size_t *size); /* the same, for compute_NN */
NVRTC_API int nvrtcGetPTX(struct program *p, char *out);

#endif
