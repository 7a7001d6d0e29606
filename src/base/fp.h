/* SPDX-License-Identifier: Apache-2.0
 *
 * The floating-point environment. Kernels always run with rounding to nearest, with denormals and
 * without traps. After a run, the state of the caller is restored, including its exception flags.
 */
#ifndef DF_BASE_FP_H
#define DF_BASE_FP_H

#include "base/compiler.h"

#if defined(__SSE__)
#include <xmmintrin.h>

typedef unsigned df_fp_state;

#define DF_FP_DEFAULT 0x1F80u /* exceptions masked, rounding to nearest, no flush to zero */
#define DF_FP_FLAGS 0x3Fu     /* the exception flags */

/* Sets the default environment. Returns the old one, which the caller passes to df_fp_leave. */
DF_INLINE df_fp_state df_fp_enter(void)
{
    const df_fp_state old = _mm_getcsr();
    if (DF_UNLIKELY((old & ~DF_FP_FLAGS) != DF_FP_DEFAULT)) _mm_setcsr(DF_FP_DEFAULT);
    return old;
}

/* Restores the environment that df_fp_enter returned, including the exception flags. */
DF_INLINE void df_fp_leave(df_fp_state old)
{
    if (_mm_getcsr() != old) _mm_setcsr(old);
}
#elif defined(__aarch64__)
/* The control register is 0 by default. fesetenv would also write the register of flags, which
 * waits for all operations before it. */
typedef struct df_fp_state {
    uint64_t control, flags;
} df_fp_state;

DF_INLINE df_fp_state df_fp_enter(void)
{
    df_fp_state old;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old.control) : : "memory");
    __asm__ volatile("mrs %0, fpsr" : "=r"(old.flags) : : "memory");
    if (DF_UNLIKELY(old.control != 0))
        __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
    return old;
}

DF_INLINE void df_fp_leave(df_fp_state old)
{
    if (DF_UNLIKELY(old.control != 0))
        __asm__ volatile("msr fpcr, %0" : : "r"(old.control) : "memory");
    __asm__ volatile("msr fpsr, %0" : : "r"(old.flags) : "memory");
}
#else
#include <fenv.h>

typedef fenv_t df_fp_state;

DF_INLINE df_fp_state df_fp_enter(void)
{
    fenv_t old;
    fegetenv(&old);
    fesetenv(FE_DFL_ENV);
    return old;
}

DF_INLINE void df_fp_leave(df_fp_state old)
{
    fesetenv(&old);
}
#endif

#endif
