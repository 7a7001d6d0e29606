/* SPDX-License-Identifier: Apache-2.0
 *
 * The convolution of another library, oneDNN: f32, with the layouts that the library likes best for
 * images, weights and results. Nothing is converted within the time.
 */
#ifndef BENCH_PEER_CONV_H
#define BENCH_PEER_CONV_H

#include <stdint.h>

typedef struct peer_conv peer_conv;

/* NULL: the library is not there, or refuses. `out` channels; kernel, stride and padding of both
 * sides. */
peer_conv *peer_conv_open(int64_t n, int64_t in, int64_t size, int64_t out, int64_t kernel,
                          int64_t stride, int64_t padding);
void peer_conv_run(peer_conv *c, int threads);
void peer_conv_close(peer_conv **c);

#endif
