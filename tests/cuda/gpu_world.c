/* SPDX-License-Identifier: Apache-2.0
 *
 * Worlds with stand-in GPUs: see gpu_world.h.
 */
#include "gpu_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

standin in;
const char *standin_path;
long n_faults;

bool check(bool good, const char *what, const char *file, int line)
{
    if (!good) printf("%s:%d: does not hold: %s\n", file, line, what);
    n_faults += !good;
    return good;
}

bool check_says(deft_status st, const df_diag *d, deft_status want, const char *words,
                const char *file, int line)
{
    char copy[DF_DIAG_TEXT];
    bool good = st == want;
    snprintf(copy, sizeof copy, "%s", words);
    char *save = NULL;
    for (char *word = strtok_r(copy, "|", &save); word; word = strtok_r(NULL, "|", &save))
        good = good && strstr(d->text, word);
    if (!good)
        printf("%s:%d: status %d, wanted %d with \"%s\": %s\n", file, line, st, want, words,
               d->text);
    n_faults += !good;
    return good;
}

bool worlds_begin(int argc, char **argv)
{
    standin_path = argc == 2 ? argv[1] : "";
    unsetenv("DEFT_CUDA_BLOCKING");
    unsetenv("DEFT_CUDA_DRIVER");
    return standin_open(&in, standin_path);
}

int worlds_end(void)
{
    printf("%ld faults\n", n_faults);
    return n_faults == 0 ? 0 : 1;
}

bool world_try(gpu_world *w, df_diag *d, const df_gpu_options *o)
{
    bool good = df_driver_open(d, fail_mem_get(w->mem), standin_path, &w->dr) == DEFT_OK;
    for (int i = 0; i < 2 && good; i++)
        good = df_gpu_open(d, w->dr, &w->log, i, o, &w->g[i]) == DEFT_OK &&
               df_queue_create(d, w->g[i], NULL, &w->q[i]) == DEFT_OK;
    if (!good) world_abandon(w);
    return good;
}

void world_open(gpu_world *w, standin_mode mode, uint32_t seed, const df_gpu_options *o)
{
    df_diag d = { 0 };
    in.reset();
    in.when(mode, seed);
    *w = (gpu_world){ .mem = fail_mem_create() };
    if (!world_try(w, &d, o)) {
        printf("no world: %s\n", d.text);
        exit(1);
    }
}

void world_abandon(gpu_world *w)
{
    for (int i = 0; i < 2; i++) {
        df_queue_destroy(&w->q[i]);
        df_gpu_close(&w->g[i]);
    }
    df_driver_close(&w->dr);
}

void world_close(gpu_world *w)
{
    standin_alive l;
    world_abandon(w);
    in.leaks(&l);
    CHECK(l.contexts == 0 && l.memory == 0 && l.pinned == 0 && l.streams == 0);
    CHECK(l.events == 0 && l.modules == 0 && l.graphs == 0 && l.execs == 0);
    CHECK(l.reserved == 0 && l.handles == 0 && l.mapped == 0 && l.bytes == 0);
    if (in.n_misuse()) printf("misuse: %s\n", in.misuse());
    CHECK(in.n_misuse() == 0);
    CHECK(fail_mem_count(w->mem).live_blocks == 0);
    CHECK(fail_mem_count(w->mem).faults == 0);
    fail_mem_destroy(&w->mem);
}

uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)(*state >> 8) * below >> 24);
}

static char byte_of(size_t i, uint32_t seed)
{
    const uint32_t x = ((uint32_t)i + seed * 0x9E3779B9u) * 2654435761u;
    return (char)(x >> 24);
}

void fill(char *at, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) at[i] = byte_of(i, seed);
}

bool is_filled(const char *at, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        if (at[i] != byte_of(i, seed)) return false;
    return true;
}

df_cu_ptr at(const df_buffer *b)
{
    return (df_cu_ptr)(uintptr_t)b->data;
}

df_buffer *make(df_queue *q, int64_t bytes)
{
    df_diag d = { 0 };
    df_buffer *b = NULL;
    if (df_gpu_buffer(q, &d, bytes, &b) == DEFT_OK) return b;
    printf("no buffer of %lld bytes: %s\n", (long long)bytes, d.text);
    exit(1);
}
