/* SPDX-License-Identifier: Apache-2.0
 *
 * Failing allocation n = 1, 2, 3, ... of a scenario until it succeeds, once failing only that call
 * and once failing every later one too. Each failure must be DEFT_E_MEMORY with a sentence;
 * parameters, the caller's memory and what the calls write into must hold their bytes of before;
 * the context must work afterwards and give the same result; nothing may leak.
 */
#ifndef TEST_OOM_WORLD_H
#define TEST_OOM_WORLD_H

#include "deft/deft.h"
#include "support/fail_mem.h"

enum { N = 24, N_PARAMS = 3, MAX_GOT = 2048 };

typedef struct world {
    fail_mem *mem;
    deft_runtime *rt;
    deft_ctx *cx;
    deft_tensor *p[N_PARAMS];    /* f32 [4,6]: what steps assign */
    deft_tensor *x, *i, *labels; /* f32 [4,6], i32 [4,6] in [0,4), u8 [4] */
    deft_rng rng;                /* set back before each run: the caller's own data */
    uint8_t target[N * 4];       /* for deft_wrap_mut */
    unsigned char got[MAX_GOT];  /* for what acting calls hand out; zero before a run */
    size_t subject;              /* allocations made by the calls in SUBJECT */
    bool silent;                 /* set by a run whose failure has no context for a sentence */
    const char *wrong;           /* set by a run that saw something it must not see */
} world;

/* The calls that a scenario is there for. */
#define SUBJECT(w, ...)                                                                            \
    do {                                                                                           \
        const size_t before_ = fail_mem_count((w)->mem).calls;                                     \
        __VA_ARGS__;                                                                               \
        (w)->subject += fail_mem_count((w)->mem).calls - before_;                                  \
    } while (0)

typedef struct scenario {
    const char *name;
    deft_status (*run)(world *w);
    deft_ctx_options options; /* size 0: defaults */
    deft_status want;         /* what it gives when nothing fails */
} scenario;

/* Options NULL: defaults. false when memory was short; close then too. */
bool world_open(world *w, const deft_ctx_options *options);
bool world_fill(world *w);
void world_close(world *w);
void world_finish(world *w, const char *name, size_t n); /* closes, and reports what was lost */

typedef struct outcome {
    float p[N_PARAMS][N];
    uint8_t target[N * 4];
    unsigned char got[MAX_GOT];
    size_t subject;
} outcome;

/* One run in a world of its own, nothing failing. false, and reported, when it does not give what
 * it should. */
bool scenario_once(const scenario *sc, outcome *out);
/* Of the allocations of a scenario the first fails, and each n-th after it. 1 unless told. */
void scenario_every(size_t n);
/* Only allocations of this many bytes fail; 0 unless told: all do. */
void scenario_only(size_t size);
/* All of those, in one mode. */
void scenario_fail_each(const scenario *sc, bool keep_failing, const outcome *want);

/* After a run that may have been hit. again: runs the whole once more, nothing failing. */
void world_check(world *w, const scenario *sc, size_t n, deft_status st, const outcome *before,
                 const outcome *want, deft_status (*again)(world *w, const scenario *sc));
void world_get(world *w, outcome *out);

void oom_fault(const char *name, size_t n, const char *what);
long oom_cases(void);  /* runs so far */
long oom_faults(void); /* reported so far */
void oom_count(void);

#endif
