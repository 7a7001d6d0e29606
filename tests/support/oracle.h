/* SPDX-License-Identifier: Apache-2.0
 *
 * What the comparing tests share: the ways a program can be run ("paths"), data with the values
 * that break arithmetic, and a comparison of bits in which all NaNs are equal. Uses the public API
 * alone.
 */
#ifndef TEST_ORACLE_H
#define TEST_ORACLE_H

#include "deft/deft.h"

/* One way to run a program. The first path of a list is the reference. */
typedef struct oracle_path {
    const char *name;
    deft_tier tier;
    uint32_t max_vector_bytes, n_threads;
    int no_fusion, no_simplify;
    const char *log; /* log topics to switch on; nothing is printed */
    unsigned turn;   /* the test's own */
    uint32_t variant_launches;
    bool streams; /* all results that may, go around the caches, however small they are */
    deft_device device;
    deft_numerics numerics; /* DEFT_FAST: compared as the test says */
    deft_runtime *rt;       /* filled in by oracle_open, as is cx */
    deft_ctx *cx;
} oracle_path;

/* Opens the paths in place. Those that need a compiler are dropped, and said so on stderr, when
 * there is none. Returns how many are left; ends the program when a runtime cannot be made, or when
 * the plug-in is there (DEFT_PLUGIN_DIR) but was not taken. With DEFT_TEST_BITS (bits.h) only the
 * first path is left. With DEFT_TEST_GPU=N in the environment only the first path is left, and a
 * way of running on that GPU beside it. */
size_t oracle_open(oracle_path *path, size_t n);
void oracle_close(oracle_path *path, size_t n);

/* One more context of an open path: on its device, in its numerics, without what it leaves out,
 * and with `more`, which may be NULL. The caller destroys it. Ends the program when it cannot be
 * made. */
deft_ctx *oracle_context(const oracle_path *p, const deft_ctx_options *more);

/* splitmix64. */
uint64_t oracle_next(uint64_t *state);
uint64_t oracle_mix(uint64_t a, uint64_t b);

typedef enum oracle_kind {
    ORACLE_HARD, /* a third special values: zeros, infinities, NaN, denormals, extreme integers */
    ORACLE_TAME  /* floats in [-3, 3], integers in [-9, 9], no special values */
} oracle_kind;

void oracle_fill(deft_dtype t, void *dst, size_t n, uint64_t seed, oracle_kind kind);

/* The first index at which a and b differ, n when they are equal. */
size_t oracle_difference(deft_dtype t, const void *a, const void *b, size_t n);

/* Replaces every NaN by one and the same, so that equal values have equal bytes. */
void oracle_canonical(deft_dtype t, void *data, size_t n);

/* "0x3f800000 (1)" of element i. */
const char *oracle_text(deft_dtype t, const void *data, size_t i, char *buf, size_t n);

/* "[2,3]". */
const char *oracle_shape_text(const deft_shape *s, char *buf, size_t n);
int64_t oracle_numel(const deft_shape *s);

/* What a generator of programs is asked for on its command line: [--quick|--full] [COUNT [SEED]].
 * The test sets the first four members. */
typedef struct oracle_asked {
    uint64_t count, seed;
    uint64_t quick, full; /* values of count that --quick and --full stand for */
    bool is_quick, is_full;
    int n_numbers;
} oracle_asked;

/* Takes one argument. Returns false when it is another option, which is then the test's own. */
bool oracle_takes(oracle_asked *a, const char *argument);

/* How many cases a test runs at least, whatever its limit of time: `usual`, and one on a GPU
 * (DEFT_TEST_GPU), where each kernel is compiled anew. */
uint64_t oracle_least(uint64_t usual);

/* Seconds since some point. */
double oracle_now(void);
/* Processor time of all threads. */
double oracle_cpu(void);

/* malloc that ends the program. */
void *oracle_alloc(size_t n);

#endif
