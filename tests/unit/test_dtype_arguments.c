/* SPDX-License-Identifier: Apache-2.0
 *
 * Every call that takes a dtype, with dtypes that no record can have: complex ones, those that are
 * only stored, and numbers that are none. A call either makes a tensor of that dtype or refuses it
 * with a sentence.
 */
#include "support/harness.h"

#include <string.h>

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 1);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(dtype_arguments, .init = set_up, .fini = tear_down);

static deft_rng rng = { .seed = 5 };
static char memory[64];
static deft_tensor *x; /* f64 [2, 4] */

#define S DEFT_SHAPE(2, 4)

#define CALLS(X)                                                                                   \
    X(deft_eye_k(r.cx, 2, 2, 1, t))                                                                \
    X(deft_linspace_open(r.cx, 0, 1, 4, t))                                                        \
    X(deft_full_c(r.cx, S, t, 1, 2))                                                               \
    X(deft_wrap_device(r.cx, DEFT_CPU, DEFT_SHAPE(1), t, memory, sizeof memory, NULL))             \
    X(deft_wrap_device_mut(r.cx, DEFT_CPU, DEFT_SHAPE(1), t, memory, sizeof memory, NULL))         \
    X(deft_exponential(r.cx, &rng, S, t))                                                          \
    X(deft_laplace(r.cx, &rng, S, t))                                                              \
    X(deft_gumbel(r.cx, &rng, S, t))                                                               \
    X(deft_truncated_normal(r.cx, &rng, S, t, -1, 1))                                              \
    X(deft_from(r.cx, DEFT_SHAPE(1), t, memory, deft_dtype_size(t)))                               \
    X(deft_wrap(r.cx, DEFT_SHAPE(1), t, memory, sizeof memory, NULL))                              \
    X(deft_wrap_mut(r.cx, DEFT_SHAPE(1), t, memory, sizeof memory, NULL))                          \
    X(deft_wrap_with(r.cx, DEFT_SHAPE(1), t, memory, sizeof memory, NULL))                         \
    X(deft_zeros(r.cx, S, t))                                                                      \
    X(deft_ones(r.cx, S, t))                                                                       \
    X(deft_full(r.cx, S, t, 2.5))                                                                  \
    X(deft_arange(r.cx, 0., 4., 1., t))                                                            \
    X(deft_linspace(r.cx, 0, 1, 4, t))                                                             \
    X(deft_eye(r.cx, 2, 2, t))                                                                     \
    X(deft_uniform(r.cx, &rng, S, t, 0, 1))                                                        \
    X(deft_normal(r.cx, &rng, S, t, 0, 1))                                                         \
    X(deft_randint(r.cx, &rng, S, t, 0, 5))                                                        \
    X(deft_bitcast(x, t))                                                                          \
    X(deft_one_hot(deft_cast(x, DEFT_I32), 3, t))                                                  \
    X(deft_cast(x, t))

static void check(const char *call, deft_dtype t, deft_tensor *made)
{
    static char bytes[256];
    if (!made) {
        cr_assert(*deft_message(r.cx), "%s with %d gave no sentence", call, (int)t);
        deft_clear(r.cx);
        return;
    }
    cr_assert(deft_dtype_of(made) == t && deft_dtype_size(t), "%s with %d made another dtype", call,
              (int)t);
    size_t size = (size_t)deft_numel(made) * deft_dtype_size(t);
    if (t == DEFT_U4 || t == DEFT_I4) size = (size + 1) / 2; /* all rows are even, or of one */
    OK(&r, deft_read(made, t, bytes, size));
}

Test(dtype_arguments, a_dtype_that_no_record_has_is_made_or_refused)
{
    static const deft_dtype dtypes[] = { DEFT_C64,      DEFT_C128,
                                         DEFT_F8E4M3FN, DEFT_F8E5M2,
                                         DEFT_E8M0,     DEFT_U4,
                                         DEFT_I4,       (deft_dtype)DEFT_N_DTYPES,
                                         (deft_dtype)99 };
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const deft_dtype t = dtypes[i];
        const deft_scope s = deft_scope_begin(r.cx);
        x = deft_ones(r.cx, S, DEFT_F64);
#define X(call) check(#call, t, call);
        CALLS(X)
        OK(&r, deft_scope_end(s));
    }
}
