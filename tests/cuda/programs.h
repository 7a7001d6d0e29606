/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of programs, as the fuser makes them for a large GPU.
 */
#ifndef TEST_CUDA_PROGRAMS_H
#define TEST_CUDA_PROGRAMS_H

#include "fuser/plan.h"

typedef struct programs {
    df_plan **plan;
    uint32_t n_plans;
    const df_kernel **kernel; /* each once, in order of first use */
    const char **where;       /* file and line of its program */
    uint32_t n_kernels;
} programs;

/* files: of tests/expect, or NAME.trace with one program. Programs that do not parse are left out:
 * there are such, on purpose. Aborts when memory is short. */
void programs_read(programs *p, const char *const *files, int n_files);
void programs_finish(programs *p);

#endif
