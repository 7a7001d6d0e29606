/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of few rows and short sums with windows of images, computed without packing: depthwise
 * convolutions and convolutions of small groups.
 */
#ifndef DF_RUNTIME_DIRECT_H
#define DF_RUNTIME_DIRECT_H

#include "runtime/matmul.h"

/* Whether such a product is computed here. Then the next two do what df_matmul_work_size and
 * df_matmul_run do. The answer depends on extents alone. */
bool df_direct_wants(const df_matmul_job *j);
size_t df_direct_work_size(const df_matmul_job *j, uint32_t n_threads);
void df_direct_run(const df_matmul_job *j, df_pool *pool, void *work);

#endif
