/* SPDX-License-Identifier: Apache-2.0
 *
 * A world with stand-in GPUs (standin.h) for the tests of gpu.h: opened, looked at, and closed with
 * nothing left over.
 */
#ifndef TEST_CUDA_GPU_WORLD_H
#define TEST_CUDA_GPU_WORLD_H

#include "jit_cuda/driver/gpu.h"
#include "standin/standin.h"
#include "support/fail_mem.h"

typedef struct gpu_world {
    fail_mem *mem;
    df_driver *dr;
    df_gpu *g[2];
    df_queue *q[2]; /* of g[0] and g[1] */
    df_log log;
} gpu_world;

extern standin in;
extern const char *standin_path;
extern long n_faults;

bool check(bool good, const char *what, const char *file, int line);
#define CHECK(x) check((x), #x, __FILE__, __LINE__)
/* st is `want`, and the sentence holds all of the words, divided by |. */
#define CHECK_SAYS(st, d, want, words) check_says(st, d, want, words, __FILE__, __LINE__)
bool check_says(deft_status st, const df_diag *d, deft_status want, const char *words,
                const char *file, int line);

/* argv[1] is the stand-in. false: there is none. */
bool worlds_begin(int argc, char **argv);
int worlds_end(void); /* the exit status */

/* A fresh stand-in with two GPUs, both open, a queue each. o: of both; NULL: none. */
void world_open(gpu_world *w, standin_mode mode, uint32_t seed, const df_gpu_options *o);
/* The same with the stand-in as it is; false: it failed, with d's sentence, and all was undone. */
bool world_try(gpu_world *w, df_diag *d, const df_gpu_options *o);
/* Without looking at leaks: after an error that lasts, or what was made to fail. */
void world_abandon(gpu_world *w);
void world_close(gpu_world *w);

/* Deterministic bytes. */
void fill(char *at, size_t n, uint32_t seed);
bool is_filled(const char *at, size_t n, uint32_t seed);
uint32_t draw(uint32_t *state, uint32_t below);

df_cu_ptr at(const df_buffer *b);
df_buffer *make(df_queue *q, int64_t bytes); /* must work */

#endif
