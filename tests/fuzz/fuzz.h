/* SPDX-License-Identifier: Apache-2.0
 *
 * A fuzz target: called with any bytes, it returns 0 or ends the process. libFuzzer calls it, or
 * replay.c with the files of the corpus.
 */
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* Whether an input is to be checked in all ways (replay.c); else a target may choose one of them by
 * the input's bytes, which is quicker (libfuzzer.c). */
extern const bool fuzz_all_ways;

#endif
